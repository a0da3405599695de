//! One child's lane as a pure state machine: what to send it next, and what follows from how that ended.
//!
//! Not the task (that is [`worker::lane`](crate::worker), which does what [`Lane::next`] says and reports), and not a
//! queue: what a child has missed is the ring between its cursor and the head. So what was missed comes before what is
//! new, with no rule for it.
//!
//! # The rules
//!
//! - One change in flight, in order. It is *confirmed* (the cursor passes it, `applied` rises) when it succeeded, or
//!   when it was refused as its siblings refused it.
//! - After anything that went unanswered the lane *holds*: nothing is sent until a probe is good. A child that is not
//!   up is held too. A child that holds is not live.
//! - *Nothing left for the child*: sent again later, whatever it is. *Something left and no answer came*: sent again if
//!   the rule says `idempotent`; else nobody can know, and the child is in doubt (`doubting.rs`): it needs a reseed if a
//!   sibling knows better, and is resolved by the rule or the operator if none does.
//! - *5xx*: tried up to [`CHANGE_TRIES_MAX`](crate::limits::CHANGE_TRIES_MAX) times if it may be repeated, by each lane
//!   on its own. Then it is an answer like others. So what fails everywhere has been tried several times everywhere.
//! - *Refused* (4xx, or 5xx in the end): the lane waits until the siblings have ended too, at most
//!   [`CHANGE_PATIENCE`](crate::limits::CHANGE_PATIENCE). Unlike them: diverged.
//! - *Too slow*, and a sibling has answered: the client waits no longer for this child, which is no longer live. The
//!   request stays in flight: a late answer is as good as any. At last it counts as unanswered.
//! - *Slow, and no sibling has answered either*: it may take as long as it likes while it shows life.
//! - *Overrun*: with a journal, replays from there; without one, or where the journal has nothing either, needs a reseed.
//! - *Back*: a good probe after a hold. The child replays up to where the head was then and is live when it is no more
//!   than [`LIVE_LAG_MAX`](crate::limits::LIVE_LAG_MAX) entries behind. Reads wait until it has applied what was
//!   answered.
//! - Diverged and needs a reseed end by `attach` only, which moves the cursor to the head.
//! - *Vacant*: where nobody stands any more, what is in flight is dropped and the lane leaves. A child that is put there
//!   needs a reseed, unless no change has been numbered yet.
//! - *A live change* is sent once, by a lane that has proven its connection for it. Not sent, not answered, or answered
//!   unlike the siblings: diverged.
//!
//! While a child is not live, the lane ends the wait of clients for it: its scan passes over every entry once, ahead of
//! the cursor, for that and for probes.

mod asking;
mod doubting;
mod gathering;
mod hearing;
mod reading;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use self::gathering::Part;
use self::reading::Behind;
use super::ack::Class;
use super::durable::Slot;
use super::{Change, MirrorGroup, Wake};
use crate::route::{Child, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// One child's lane. Owned by its task; nobody else writes the child's standing or how far it has applied.
#[derive(Debug)]
pub struct Lane {
    group: Arc<MirrorGroup>,
    child: usize,
    standing: Standing,
    /// The position of the entry that is to be confirmed next. All before it are.
    cursor: u64,
    /// The sequence of the last change before `cursor`: what `applied` says.
    passed: u64,
    /// Entries before it have been looked at for probes, and for clients that wait in vain. At least `cursor`, save
    /// within `next`.
    scan: u64,
    /// Probes before it have been heard.
    heard: u64,
    /// Nothing is sent until a probe is good.
    hold: bool,
    /// Where the head was when the child came back. What is before it was missed.
    target: u64,
    /// The change at the cursor, so far.
    tried: Tried,
    work: Work,
    probe: Option<Probe>,
    /// The live change that it gets ready for, or is bound to.
    part: Option<Part>,
    /// It failed to get ready for one: a probe is to say whether it is well.
    doubted: bool,
    /// When a probe that the schedule did not plan is asked for next.
    want_probe_at: Time,
    /// When the lane's connection last answered a change.
    answered_at: Option<Time>,
    /// Judgements up to this sequence are void: the operator has attached the child since.
    attached: u64,
    /// What is read from the record, while the lane is behind the ring.
    behind: Option<Behind>,
    /// Changes up to here may have been carried out before antiphon itself was started.
    begun: u64,
    /// What the child's slot says.
    slot: Slot,
    /// A child has stood here: clients may wait for it.
    lived: bool,
}

/// What the lane's task does.
#[derive(Debug)]
pub enum Do {
    /// Send the change; then `on_sent`, and one of `on_connect_failed`, `on_answered`, `on_unanswered`. A live change goes
    /// on the connection that was proven and on no other: without it, `on_connect_failed`.
    SendChange {
        /// Head and body.
        change: Arc<Change>,
        /// The how-manieth time it is sent to this child, from 1.
        attempt: u32,
        /// On a connection that has carried nothing yet: the last one ended, or it is too old for a change that may not
        /// be repeated.
        fresh_connection: bool,
    },
    /// Ask the child how it is; then `on_probe`.
    Probe {
        /// No answer by then is a bad one: `on_probe` must come soon after.
        expires: Time,
        /// Not on the lane's connection: a change is in flight there, or may come at any moment.
        second_connection: bool,
    },
    /// Drop the connection of the last change, make a new one and ask on it how the child is; then `on_proved`. It takes
    /// the place of a proof that is still under way.
    Prove {
        /// No answer by then is a bad one.
        expires: Time,
    },
    /// Drop the connection on which the change is in flight. The lane has judged it already: no event follows.
    GiveUp,
    /// Nothing to start. Ask again after an event or a wake, and at `until`.
    Wait {
        /// [`Time::NEVER`] if only an event or a wake matters.
        until: Time,
    },
}

/// What is under way with the change at the cursor.
#[derive(Debug)]
enum Work {
    /// Nothing.
    Idle,
    /// It is on its way to the child.
    InFlight { change: Arc<Change>, since: Time, slow: bool, give_up_at: Time },
    /// It failed, and is tried again at that moment.
    Pausing { until: Time },
    /// It was answered, not with success, and the siblings decide what that means; and then it has to be on record.
    Judging { change: Arc<Change>, class: Class, since: Time },
    /// It may have been carried out or not, and may not be sent again.
    Doubting { change: Arc<Change>, cause: String },
}

/// What has been tried with the change at the cursor.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    /// Times it was sent, the one in flight included.
    sends: u32,
    /// Times it was answered with 5xx.
    failures: u32,
    /// It may have been applied by an earlier send: "applied before" counts as success.
    in_doubt: bool,
    /// It is known, or taken for known, that nothing of it was carried out before: it is sent though the start says that it
    /// may have been.
    resolved: bool,
    /// When it was sent first since the last hold: what the deadline counts from.
    since: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    expires: Time,
    started: bool,
}

/// Between probes that the lane asks for itself.
const WANT_PROBE_EVERY: Duration = Duration::from_secs(1);
/// Between looks at whether a sibling has answered what this child has not.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

// === impl Lane ===

impl Lane {
    /// The lane of `child`, at the head of the group's ring. `wake` makes its task call [`next`](Self::next).
    ///
    /// # Panics
    /// If the child has a lane already.
    #[must_use]
    pub fn new(group: Arc<MirrorGroup>, child: usize, wake: Arc<dyn Wake>) -> Self {
        assert!(group.posts[child].wake.set(wake).is_ok(), "a child has one lane");
        let lived = !group.child(child).is_vacant();
        group.posts[child].serves.store(lived, Ordering::Release);
        let standing = group.child(child).standing();
        let applied = group.child(child).applied();
        let begun = group.keeping().map_or(applied, |keeping| keeping.resume[child].begun);
        let is_behind = applied < group.ring.base();
        Self {
            child,
            standing,
            cursor: 0,
            passed: applied,
            scan: 0,
            heard: 0,
            // One that stood at the end when antiphon stopped is asked nothing first, as where there is no record.
            hold: standing != Standing::Live,
            behind: is_behind.then(Behind::default),
            begun,
            slot: Slot { applied, begun },
            group,
            target: 0,
            tried: Tried::default(),
            work: Work::Idle,
            probe: None,
            part: None,
            doubted: false,
            want_probe_at: Time::ZERO,
            answered_at: None,
            attached: 0,
            lived,
        }
    }

    /// What to do now. To be called after every event, every wake, and at the moment that [`Do::Wait`] names; each
    /// answer but `Wait` is given once, and is to be started before the next call.
    #[must_use]
    pub fn next(&mut self, now: Time) -> Do {
        if self.obey(now) {
            return Do::GiveUp;
        }
        if self.child().is_vacant() {
            if self.lived {
                self.scan(now);
            }
            return Do::Wait { until: Time::NEVER };
        }
        if self.judge_time(now) {
            return Do::GiveUp;
        }
        self.judge_siblings(now);
        self.judge_doubt(now);
        self.scan(now);
        if let Some(prove) = self.join() {
            return prove;
        }
        // Before anything that could change the mind of a lane that is bound: `scan` has left this change to it.
        if self.is_bound()
            && let Some(send) = self.start_change(now)
        {
            return send;
        }
        if let Some(probe) = self.start_probe(now) {
            return probe;
        }
        if let Some(send) = self.start_change(now) {
            return send;
        }
        if self.standing != Standing::Live && self.scan < self.group.ring.head() {
            // That it is not live any more has come out in this look, and clients wait for it: nothing else may come that
            // makes the lane look again.
            return self.next(now);
        }
        Do::Wait { until: self.wait_until(now) }
    }

    /// The child's name, for messages.
    #[must_use]
    pub fn child(&self) -> &Arc<Child> {
        &self.group.table.children[self.child]
    }

    /// Is a change on its way, or waiting to be judged or tried again? A clean stop lets this end first.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        !matches!(self.work, Work::Idle)
    }

    const fn is_in_flight(&self) -> bool {
        matches!(self.work, Work::InFlight { .. })
    }

    fn take_in_flight(&mut self) -> Option<Arc<Change>> {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::InFlight { change, .. } => Some(change),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// Nothing is under way any more.
    fn rest(&mut self) {
        self.work = Work::Idle;
        self.child().set_doubt(None);
    }

    /// The change at the cursor is confirmed.
    fn pass(&mut self, sequence: u64) {
        assert_eq!(sequence, self.passed + 1, "confirmed in order");
        self.passed = sequence;
        self.confirm(sequence);
        match &mut self.behind {
            Some(behind) => behind.pass(sequence),
            None => self.cursor += 1,
        }
        self.tried = Tried::default();
    }

    /// The child has carried out, or rightly refused, everything up to `sequence`. Written down before anybody can be
    /// told: what a client knows is in doubt at no child that it knows it of.
    fn confirm(&mut self, sequence: u64) {
        // One that could not be written down is in doubt after a restart, which is the truth; nobody is shown it until then.
        if self.write_slot(Slot { applied: sequence, begun: sequence.max(self.begun) }, false) {
            self.group.confirm(self.child, sequence);
        }
    }

    fn write_slot(&mut self, slot: Slot, once: bool) -> bool {
        if self.slot == slot {
            return true;
        }
        let written = self.group.put_slot(self.child, slot, once);
        if written {
            self.slot = slot;
        }
        written
    }

    fn hold_because(&mut self, why: impl Into<Cow<'static, str>>, now: Time) {
        self.hold = true;
        self.tried.since = None;
        if matches!(self.standing, Standing::Live | Standing::Replaying) {
            self.stand(Standing::Replaying, why, now);
        }
    }

    fn diverge(&mut self, sequence: u64, class: Class, agreed: Class, now: Time) {
        self.diverge_because(format!("{} change {sequence}, which its siblings {}", class.verb(), agreed.verb()), now);
    }

    fn diverge_because(&mut self, why: String, now: Time) {
        if matches!(self.standing, Standing::Live | Standing::Replaying) {
            self.stand(Standing::Diverged, why, now);
        }
    }

    fn fall_behind(&mut self, what: &str, now: Time) {
        let behind = self.group.last_sequence() - self.passed;
        let why = format!("fell {behind} changes behind, {what}");
        self.stand(Standing::NeedsReseed, why, now);
    }

    fn stand(&mut self, standing: Standing, why: impl Into<Cow<'static, str>>, now: Time) {
        if self.standing == Standing::Live && standing != Standing::Live {
            // Clients may wait for it at any entry from the cursor on.
            self.scan = self.cursor;
        }
        self.standing = standing;
        self.child().set_standing(standing, why, now);
    }
}
