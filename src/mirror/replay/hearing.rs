//! What a lane hears from its task: how the change and the probe that it began have ended.

use super::{Lane, WANT_PROBE_EVERY, Work};
use crate::limits::{CHANGE_LATE, CHANGE_RETRY_PAUSE, CHANGE_SENDS_MAX, CHANGE_TRIES_MAX};
use crate::mirror::Held;
use crate::mirror::ack::{Class, End};
use crate::probe::{Event, Failure, Kind};
use crate::route::{Admin, Standing};
use crate::sync::Arc;
use crate::time::Time;

impl Lane {
    /// There is a connection, and octets of the change begin to leave.
    pub fn on_sent(&mut self, now: Time) {
        let first = self.tried.sends == 1;
        if let Work::InFlight { change, since, give_up_at, .. } = &mut self.work {
            *since = now;
            *give_up_at = now + self.group.deadline + CHANGE_LATE;
            if first {
                // Connecting does not count against the child's time to answer.
                self.tried.since = Some(now);
                change.set_in_flight(self.child, now);
            }
        }
    }

    /// There is no connection: nothing has left.
    pub fn on_connect_failed(&mut self, now: Time, why: Failure) {
        self.on_unanswered(now, false, why);
    }

    /// The whole answer is here. `answer` is kept for the client; it may be left out if nobody
    /// [wants it](crate::mirror::Change::wants_answer).
    pub fn on_answered(&mut self, now: Time, status: u16, answer: Option<Held>) {
        let Some(change) = self.take_in_flight() else {
            return;
        };
        self.answered_at = Some(now);
        let applied_before = self.tried.in_doubt && change.applied.contains(&status);
        let class = match change.agreed() {
            // The siblings were refused likewise at their first send: there was nothing to apply, here or there.
            Some(Class::Rejected) if applied_before => Class::Rejected,
            _ if applied_before => Class::Success,
            _ => Class::of(status),
        };
        if class == Class::Failed && change.may_repeat() && self.tried.failures + 1 < CHANGE_TRIES_MAX {
            self.work = Work::Pausing { until: now + CHANGE_RETRY_PAUSE * (1 << self.tried.failures) };
            self.tried.failures += 1;
            self.tried.in_doubt = true;
            return;
        }
        let sequence = change.sequence();
        let agreed = change.agreed();
        if class == Class::Success && agreed.is_none_or(|agreed| agreed == class) {
            // Before the client can be told: it may read at once.
            self.confirm(sequence);
        }
        self.group.on_answer(&change, self.child, status, class, answer, now);
        self.work = Work::Judging { change: Arc::clone(&change), class, since: now };
        if class == Class::Success && change.agreed().is_none() {
            // Unlike a rejection it need not wait; should another class win, the child is condemned later.
            self.work = Work::Idle;
            self.pass(sequence);
        }
        self.judge_siblings(now);
    }

    /// The connection ended, the answer is not HTTP, or our own time is over. `octets_left`: could any octet of the
    /// request have reached the child?
    pub fn on_unanswered(&mut self, now: Time, octets_left: bool, why: Failure) {
        let Some(change) = self.take_in_flight() else {
            return;
        };
        let sequence = change.sequence();
        let reused = self.answered_at.take().is_some();
        if change.live {
            let (end, what) = match octets_left {
                true => (End::Unknowable, "did not answer"),
                false => (End::Missed, "was not sent"),
            };
            self.group.on_end(&change, self.child, end, now);
            self.diverge_because(format!("{what} live change {sequence} ({}): {why}", change.name), now);
        } else if !octets_left {
            if why == Failure::Closed && reused && self.tried.sends == 1 && !self.hold {
                // An idle connection that had ended. The next one is new.
                return;
            }
            self.group.on_end(&change, self.child, End::Queued, now);
            self.hold_because(format!("change {sequence} could not be sent: {why}"), now);
        } else if !change.may_repeat() {
            self.doubted = true;
            self.doubt(&change, why, now);
        } else {
            self.tried.in_doubt = true;
            if why == Failure::Closed && reused && self.tried.sends == 1 && !self.hold {
                // Its end may have crossed our request: that says nothing of the child.
                return;
            }
            self.group.on_end(&change, self.child, End::InDoubt, now);
            if self.tried.sends >= CHANGE_SENDS_MAX {
                let why =
                    format!("change {sequence} ({}) sent {CHANGE_SENDS_MAX} times and never answered", change.name);
                self.stand(Standing::NeedsReseed, why, now);
            } else {
                self.hold_because(format!("change {sequence} was not answered: {why}"), now);
            }
        }
        self.want_probe_at = now;
        // A connection that ended may have been old. The probe that the lane asks for decides.
        if why != Failure::Closed {
            let table = &self.group.table;
            self.child().on_event(Event::ReadFailed(why), now, &table.probe);
        }
        self.group.sequencer.wake();
    }

    /// The probe was answered as expected, or was not. Tells the child's health.
    pub fn on_probe(&mut self, now: Time, result: Result<(), Failure>) {
        // A child that fell meanwhile, and that this very probe may bring back, must not be live before it has replayed.
        self.watch(now);
        // One that was begun for a child which has left since is nobody's.
        if self.probe.take_if(|probe| probe.started).is_none() {
            return;
        }
        let event = match result {
            Ok(()) => Event::ProbeGood,
            Err(failure) => Event::ProbeBad(failure),
        };
        self.doubted = false;
        self.child().on_event(event, now, &self.group.table.probe);
        let child = self.child();
        let up = child.admin() == Admin::Online && child.health().state().kind() == Kind::Up;
        if result.is_ok() && up && self.hold {
            self.hold = false;
            self.tried.since = None;
            self.target = self.group.ring.head();
            if self.standing == Standing::Replaying {
                self.stand(Standing::Replaying, "is sent what it missed", now);
            }
        }
        self.want_probe_at = now + WANT_PROBE_EVERY;
        self.group.sequencer.wake();
    }
}
