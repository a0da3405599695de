//! A lane's part in a live change: it drains, proves its child, stands ready, and sends; or withdraws. The whole is told
//! in `mirror/gate.rs`.

use super::{Do, Lane, Work};
use crate::error::Fault;
use crate::mirror::ack::End;
use crate::mirror::gate::{AWAY, Gathering, LATE, LEFT};
use crate::mirror::{Change, Read, What};
use crate::probe::Failure;
use crate::route::{ChildSet, Standing};
use crate::sync::Arc;
use crate::time::Time;

/// What the lane has to do with a gathering. Kept from its opening until the change is sent, missed or refused.
#[derive(Debug)]
pub(super) struct Part {
    gathering: Arc<Gathering>,
    proof: Proof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// What was numbered before is not confirmed yet.
    Draining,
    /// The probe is under way, on a new connection.
    Asked,
    /// It was good; the connection is kept.
    Good,
    /// The connection has ended since.
    Lost,
}

impl Lane {
    /// Takes part in what gathers, if something does. Perhaps a probe is to be sent.
    pub(super) fn join(&mut self) -> Option<Do> {
        if self.part.as_ref().is_some_and(|part| !part.gathering.is_open() && !part.gathering.is_committed()) {
            // Refused. A proof that is still under way ends by itself.
            self.part = None;
        }
        if self.part.is_none() {
            let open = self.group.gate.load();
            let open = open.as_ref().filter(|gathering| gathering.is_open());
            self.part = open.map(|gathering| Part { gathering: Arc::clone(gathering), proof: Proof::Draining });
        }
        let part = self.part.as_ref().filter(|part| part.gathering.is_open())?;
        let (expires, proof) = (part.gathering.deadline, part.proof);
        if self.hold || self.standing != Standing::Live {
            self.withdraw(if proof == Proof::Draining { AWAY } else { LEFT });
            return None;
        }
        if proof != Proof::Draining || !self.is_drained() {
            return None;
        }
        self.set_proof(Proof::Asked);
        // The connection that was used until now is dropped.
        self.answered_at = None;
        Some(Do::Prove { expires })
    }

    /// The probe on the new connection was answered as expected, or was not. The connection of a good one is to be kept
    /// for the next change, and watched.
    pub fn on_proved(&mut self, now: Time, result: Result<(), Failure>) {
        if self.part.as_ref().is_none_or(|part| part.proof != Proof::Asked) {
            return;
        }
        match result {
            Ok(()) => {
                self.set_proof(Proof::Good);
                // One that fell meanwhile is not ready, whatever it answers.
                self.watch(now);
                if let Some(part) = self.part.as_ref().filter(|_| !self.hold) {
                    part.gathering.set_ready(self.child);
                    self.group.sequencer.wake();
                }
            }
            Err(failure) => {
                // It was given less time than a probe has, so an ordinary one is to judge the child.
                self.doubted = true;
                self.want_probe_at = now;
                self.withdraw(if failure == Failure::AnswerTimeout { LATE } else { LEFT });
            }
        }
    }

    /// The connection that was proven has ended, or something came on it, before a change was sent there.
    pub fn on_proof_lost(&mut self, now: Time) {
        if self.is_proven() {
            self.set_proof(Proof::Lost);
            self.doubted = true;
            self.want_probe_at = now;
            self.withdraw(LEFT);
        }
    }

    /// Is there a proven connection that is to be watched?
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.proof == Proof::Good)
    }

    /// Has the change that the lane got ready for its place in the order? Then it is sent whatever has happened since,
    /// unless the child has diverged.
    pub(super) fn is_bound(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.gathering.is_committed())
    }

    /// The lane stands at this live change. Sends it, if this child is ready for it.
    pub(super) fn start_live(&mut self, change: &Arc<Change>, now: Time) -> Option<Do> {
        let ready = self.is_proven() && self.is_part_of(change);
        self.part = None;
        if ready {
            return self.send(change, now);
        }
        self.miss(change, now);
        None
    }

    pub(super) fn is_part_of(&self, change: &Arc<Change>) -> bool {
        self.part.as_ref().is_some_and(|part| Arc::ptr_eq(&part.gathering.change, change))
    }

    /// The child will never have this live change.
    pub(super) fn miss(&mut self, change: &Arc<Change>, now: Time) {
        if self.is_part_of(change) {
            self.part = None;
        }
        self.group.on_end(change, self.child, End::Missed, now);
        let (sequence, name) = (change.sequence(), &change.name);
        self.diverge_because(format!("lacks live change {sequence} ({name}): it went away before it was sent"), now);
    }

    /// Leaves what gathers, for the operator's sake.
    pub(super) fn leave(&mut self) {
        self.withdraw(LEFT);
        self.part = None;
    }

    /// This child is not ready: nobody gets the change, unless all are bound to it already.
    fn withdraw(&mut self, why: &'static str) {
        let Some(part) = &self.part else {
            return;
        };
        let missing: ChildSet = [self.child].into_iter().collect();
        if self.group.refuse(&part.gathering.change, Fault::NotQueueable(why), missing) {
            self.part = None;
            self.group.sequencer.wake();
        } else if !part.gathering.is_committed() {
            self.part = None;
        }
    }

    fn set_proof(&mut self, proof: Proof) {
        if let Some(part) = &mut self.part {
            part.proof = proof;
        }
    }

    /// Is all that was numbered confirmed? Nothing is numbered meanwhile.
    fn is_drained(&mut self) -> bool {
        if !matches!(self.work, Work::Idle) || self.behind.is_some() {
            return false;
        }
        loop {
            match self.group.ring.read(self.cursor) {
                Read::NotYet => return true,
                Read::Overrun if self.step_over_probes() => {}
                Read::Overrun => return false,
                Read::Entry(entry) => match entry.what {
                    What::Probe { .. } => self.cursor += 1,
                    What::Change(_) => return false,
                },
            }
        }
    }
}
