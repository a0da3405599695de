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
//!   the rule says `idempotent`; else nobody can know, and the child needs a reseed.
//! - *5xx*: tried up to [`CHANGE_TRIES_MAX`] times if it may be repeated, by each lane on its own. Then it is an answer
//!   like others. So what fails everywhere has been tried several times everywhere.
//! - *Refused* (4xx, or 5xx in the end): the lane waits until the siblings have ended too, at most [`CHANGE_PATIENCE`].
//!   Unlike them: diverged.
//! - *Too slow*, and a sibling has answered: the client waits no longer for this child, which is no longer live. The
//!   request stays in flight: a late answer is as good as any. At last it counts as unanswered.
//! - *Slow, and no sibling has answered either*: it may take as long as it likes while it shows life.
//! - *Overrun*: needs a reseed.
//! - *Back*: a good probe after a hold. The child replays up to where the head was then and is live when it is no more
//!   than [`LIVE_LAG_MAX`] entries behind. Reads wait until it has applied what was answered.
//! - Diverged and needs a reseed end by `attach` only, which moves the cursor to the head.
//!
//! While a child is not live, the lane ends the wait of clients for it: its scan passes over every entry once, ahead of
//! the cursor, for that and for probes.

use std::borrow::Cow;
use std::time::Duration;

use super::ack::{Class, End, demotion_at};
use super::{Change, Condemned, Held, MirrorGroup, Read, Wake, What};
use crate::limits::{
    CHANGE_CONNECTION_FRESH, CHANGE_LATE, CHANGE_PATIENCE, CHANGE_RETRY_PAUSE, CHANGE_SENDS_MAX, CHANGE_SILENCE_MAX,
    CHANGE_TRIES_MAX, LIVE_LAG_MAX,
};
use crate::probe::{Event, Failure, Kind, State};
use crate::route::{Admin, Child, Standing};
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
    /// When a probe that the schedule did not plan is asked for next.
    want_probe_at: Time,
    /// When the lane's connection last answered a change.
    answered_at: Option<Time>,
    /// Judgements up to this sequence are void: the operator has attached the child since.
    attached: u64,
}

/// What the lane's task does.
#[derive(Debug)]
pub enum Do {
    /// Send the change; then `on_sent`, and one of `on_connect_failed`, `on_answered`, `on_unanswered`.
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
    /// It was answered, not with success, and the siblings decide what that means.
    Judging { change: Arc<Change>, class: Class, since: Time },
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

// === impl Lane: asking ===

impl Lane {
    /// The lane of `child`, at the head of the group's ring. `wake` makes its task call [`next`](Self::next).
    ///
    /// # Panics
    /// If the child has a lane already.
    #[must_use]
    pub fn new(group: Arc<MirrorGroup>, child: usize, wake: Arc<dyn Wake>) -> Self {
        assert!(group.posts[child].wake.set(wake).is_ok(), "a child has one lane");
        let standing = group.child(child).standing();
        Self {
            group,
            child,
            standing,
            cursor: 0,
            passed: 0,
            scan: 0,
            heard: 0,
            hold: false,
            target: 0,
            tried: Tried::default(),
            work: Work::Idle,
            probe: None,
            want_probe_at: Time::ZERO,
            answered_at: None,
            attached: 0,
        }
    }

    /// What to do now. To be called after every event, every wake, and at the moment that [`Do::Wait`] names; each
    /// answer but `Wait` is given once, and is to be started before the next call.
    #[must_use]
    pub fn next(&mut self, now: Time) -> Do {
        if self.obey(now) {
            return Do::GiveUp;
        }
        if self.judge_time(now) {
            return Do::GiveUp;
        }
        self.judge_siblings(now);
        self.scan(now);
        if let Some(probe) = self.start_probe(now) {
            return probe;
        }
        if let Some(send) = self.start_change(now) {
            return send;
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

    /// Takes what others have said since. True if the request in flight is to be dropped.
    fn obey(&mut self, now: Time) -> bool {
        let post = &self.group.posts[self.child];
        // Acquire: what the operator did before is done.
        let attach = post.attach.load(Ordering::Relaxed) && post.attach.swap(false, Ordering::Acquire);
        if attach && self.standing != Standing::Live {
            return self.attach(now);
        }
        let condemned = post.condemned.load().as_deref().copied();
        if let Some(Condemned { sequence, class, agreed }) = condemned
            && sequence > self.attached
        {
            self.diverge(sequence, class, agreed, now);
        }
        self.watch(now);
        false
    }

    /// Holds while the operator or the child's health says so.
    fn watch(&mut self, now: Time) {
        let child = self.child();
        let up = child.admin() == Admin::Online && child.health().state().kind() == Kind::Up;
        if !self.hold && !up {
            self.hold_because("was away: waits for a good probe", now);
        }
    }

    /// The operator's word: the child is what its siblings are. True if a request in flight is to be dropped.
    fn attach(&mut self, now: Time) -> bool {
        let in_flight = match std::mem::replace(&mut self.work, Work::Idle) {
            Work::InFlight { change, .. } => {
                self.group.on_end(&change, self.child, End::InDoubt, now);
                true
            }
            Work::Idle | Work::Pausing { .. } | Work::Judging { .. } => false,
        };
        // Clients that wait for what is now skipped.
        self.scan = self.cursor;
        self.scan(now);
        self.cursor = loop {
            let head = self.group.ring.head();
            if let Some(through) = self.group.ring.through(head) {
                self.passed = through;
                break head;
            }
        };
        self.attached = self.passed;
        self.scan = self.scan.max(self.cursor);
        self.tried = Tried::default();
        self.hold = true;
        self.want_probe_at = now;
        self.child().confirm_applied(self.passed);
        self.stand(Standing::Replaying, "attached by the operator: waits for a good probe", now);
        in_flight
    }

    /// Is the change in flight too slow? True if it is to be dropped.
    fn judge_time(&mut self, now: Time) -> bool {
        let deadline = self.group.deadline;
        let Work::InFlight { change, since, slow, give_up_at, .. } = &mut self.work else {
            return false;
        };
        let since = self.tried.since.unwrap_or(*since);
        let answered_at = change.sibling_answered_at(self.child);
        if !*slow && now >= demotion_at(since, answered_at, deadline) {
            *slow = true;
            // Whatever happened since the deadline, this much is left for a late answer.
            *give_up_at = (*give_up_at).max(now + CHANGE_LATE);
            let change = Arc::clone(change);
            self.group.on_end(&change, self.child, End::Slow, now);
            self.hold_because(format!("slow with change {}: a sibling has answered it", change.sequence()), now);
            return false;
        }
        if now < *give_up_at {
            return false;
        }
        if answered_at.is_none() {
            // No sibling has done better, and a child that shows life may take its time. One that fell and came back has
            // forgotten us.
            let health = self.group.table.children[self.child].health();
            let silent_for = now.since(health.last_answer().max(since));
            let may_take_its_time = match health.state() {
                State::Up { since: up_since, trial } if trial > 0 && up_since > since => false,
                State::Up { .. } | State::Suspect { .. } | State::Down { .. } => silent_for < CHANGE_SILENCE_MAX,
            };
            if may_take_its_time {
                *give_up_at = now + LOOK_AGAIN;
                return false;
            }
        }
        self.on_unanswered(now, true, Failure::AnswerTimeout);
        true
    }

    /// Have the siblings decided about an answer of this child?
    fn judge_siblings(&mut self, now: Time) {
        let Work::Judging { change, class, since } = &self.work else {
            return;
        };
        let (change, class) = (Arc::clone(change), *class);
        if now >= *since + CHANGE_PATIENCE {
            // A sibling that is so far behind has no say.
            self.group.end_open(&change, now);
        }
        let Some(agreed) = change.agreed() else {
            return;
        };
        self.work = Work::Idle;
        if class == agreed {
            self.pass(change.sequence());
        } else {
            self.diverge(change.sequence(), class, agreed, now);
        }
    }

    /// Looks at every entry once: for probes of this child, and for clients that wait for it in vain.
    fn scan(&mut self, now: Time) {
        let group = Arc::clone(&self.group);
        self.scan = self.scan.max(self.cursor);
        loop {
            let entry = match group.ring.read(self.scan) {
                Read::Entry(entry) => entry,
                Read::NotYet => return,
                Read::Overrun => {
                    self.scan = group.ring.tail().max(self.scan + 1);
                    continue;
                }
            };
            match &entry.what {
                What::Probe { child, expires } if *child == self.child && entry.position >= self.heard => {
                    self.heard = entry.position + 1;
                    if self.probe.is_none_or(|probe| !probe.started) && *expires > now {
                        self.probe = Some(Probe { expires: *expires, started: false });
                    }
                }
                What::Change(change) if self.standing != Standing::Live && change.awaits(self.child) => {
                    let at_cursor = entry.position == self.cursor;
                    if change.ended(self.child).is_none() && !(at_cursor && self.is_in_flight()) {
                        let end = if at_cursor && self.tried.in_doubt { End::InDoubt } else { End::Queued };
                        group.on_end(change, self.child, end, now);
                    }
                }
                What::Probe { .. } | What::Change(_) => {}
            }
            self.scan += 1;
        }
    }

    fn start_probe(&mut self, now: Time) -> Option<Do> {
        if self.probe.is_some_and(|probe| probe.started) {
            return None;
        }
        let scheduled = self.probe.take().map(|probe| probe.expires).filter(|expires| *expires > now);
        let expires = scheduled.or_else(|| self.own_probe(now))?;
        // An operator's offline means no probes.
        if self.child().admin() == Admin::Offline {
            return None;
        }
        self.probe = Some(Probe { expires, started: true });
        Some(Do::Probe { expires, second_connection: !self.hold || self.is_in_flight() })
    }

    /// When a probe expires that the lane asks for itself: the child counts as up, so that none is planned soon, and
    /// the lane needs to know. It does not pass through the ring, which a change in flight for hours must not wear out.
    fn own_probe(&mut self, now: Time) -> Option<Time> {
        let health = self.group.child(self.child).health().state().kind();
        let wanted = health == Kind::Up && now >= self.want_probe_at && (self.hold || self.overdue_at() <= now);
        wanted.then(|| {
            self.want_probe_at = now + WANT_PROBE_EVERY;
            now + self.group.table.probe.timeout
        })
    }

    /// When the change in flight has been there for its deadline.
    fn overdue_at(&self) -> Time {
        match &self.work {
            Work::InFlight { since, .. } => *since + self.group.deadline,
            Work::Idle | Work::Pausing { .. } | Work::Judging { .. } => Time::NEVER,
        }
    }

    fn start_change(&mut self, now: Time) -> Option<Do> {
        match self.work {
            Work::InFlight { .. } | Work::Judging { .. } => return None,
            Work::Pausing { until } if now < until => return None,
            Work::Pausing { .. } | Work::Idle => self.work = Work::Idle,
        }
        if self.hold || !matches!(self.standing, Standing::Live | Standing::Replaying) {
            return None;
        }
        loop {
            match self.group.ring.read(self.cursor) {
                Read::NotYet => {
                    self.go_live(now);
                    return None;
                }
                Read::Overrun => {
                    if !self.step_over_probes() {
                        self.fall_behind(now);
                        return None;
                    }
                }
                Read::Entry(entry) => match &entry.what {
                    What::Probe { .. } => self.cursor += 1,
                    What::Change(change) => {
                        self.go_live(now);
                        return Some(self.send(change, now));
                    }
                },
            }
        }
    }

    fn send(&mut self, change: &Arc<Change>, now: Time) -> Do {
        let since = *self.tried.since.get_or_insert(now);
        self.tried.sends += 1;
        change.set_in_flight(self.child, since);
        self.work = Work::InFlight {
            change: Arc::clone(change),
            since: now,
            slow: false,
            give_up_at: now + self.group.deadline + CHANGE_LATE,
        };
        let trusted = self.answered_at.is_some_and(|at| now.since(at) < CHANGE_CONNECTION_FRESH);
        Do::SendChange {
            change: Arc::clone(change),
            attempt: self.tried.sends,
            fresh_connection: !trusted && (!change.may_repeat() || self.tried.sends > 1),
        }
    }

    /// The cursor's entry is gone. If it was a probe, and so were those behind it, goes on after them; false if a change
    /// is gone.
    fn step_over_probes(&mut self) -> bool {
        let ring = &self.group.ring;
        loop {
            let tail = ring.tail();
            if let Read::Entry(oldest) = ring.read(tail) {
                if oldest.before() != self.passed {
                    return false;
                }
                self.cursor = tail;
                return true;
            }
            // The producer is between two stores of one `publish`.
            std::hint::spin_loop();
        }
    }

    /// Live, if what was missed is confirmed.
    fn go_live(&mut self, now: Time) {
        let lag = self.group.ring.head().saturating_sub(self.cursor);
        if self.standing == Standing::Replaying && self.cursor >= self.target && lag <= LIVE_LAG_MAX {
            self.stand(Standing::Live, "", now);
        }
    }

    fn wait_until(&self, now: Time) -> Time {
        let work = match &self.work {
            Work::Idle => Time::NEVER,
            Work::Judging { since, .. } => *since + CHANGE_PATIENCE,
            Work::Pausing { until } => *until,
            Work::InFlight { give_up_at, slow: true, .. } => *give_up_at,
            Work::InFlight { change, since, give_up_at, .. } => {
                let (since, deadline) = (self.tried.since.unwrap_or(*since), self.group.deadline);
                let slow_at = match demotion_at(since, change.sibling_answered_at(self.child), deadline) {
                    // A sibling that answers does not wake this lane: from the deadline on it looks for itself.
                    Time::NEVER => (since + deadline).max(now + LOOK_AGAIN),
                    at => at,
                };
                slow_at.min(*give_up_at)
            }
        };
        // The lane's own probe; and a child may come to count as up by a read, which wakes nobody.
        let held = if self.hold { self.want_probe_at.max(now + WANT_PROBE_EVERY) } else { Time::NEVER };
        work.min(held).min(self.overdue_at().max(now + LOOK_AGAIN))
    }
}

// === impl Lane: hearing ===

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
    /// [wants it](Change::wants_answer).
    pub fn on_answered(&mut self, now: Time, status: u16, answer: Option<Held>) {
        let Some(change) = self.take_in_flight() else {
            return;
        };
        self.answered_at = Some(now);
        let applied_before = self.tried.in_doubt && change.applied.contains(&status);
        let class = if applied_before { Class::Success } else { Class::of(status) };
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
            self.child().confirm_applied(sequence);
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
        if !octets_left {
            if why == Failure::Closed && reused && self.tried.sends == 1 {
                // An idle connection that had ended. The next one is new.
                return;
            }
            self.group.on_end(&change, self.child, End::Queued, now);
            self.hold_because(format!("change {sequence} could not be sent: {why}"), now);
        } else if !change.may_repeat() {
            self.group.on_end(&change, self.child, End::Unknowable, now);
            let why = format!("outcome of change {sequence} ({}) unknown: {why}", change.name);
            self.stand(Standing::NeedsReseed, why, now);
        } else {
            self.tried.in_doubt = true;
            if why == Failure::Closed && reused && self.tried.sends == 1 {
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
        if self.probe.take().is_none() {
            return;
        }
        let event = match result {
            Ok(()) => Event::ProbeGood,
            Err(failure) => Event::ProbeBad(failure),
        };
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

// === impl Lane: its own words ===

impl Lane {
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

    /// The change at the cursor is confirmed.
    fn pass(&mut self, sequence: u64) {
        assert_eq!(sequence, self.passed + 1, "confirmed in order");
        self.passed = sequence;
        self.child().confirm_applied(sequence);
        self.cursor += 1;
        self.tried = Tried::default();
    }

    fn hold_because(&mut self, why: impl Into<Cow<'static, str>>, now: Time) {
        self.hold = true;
        self.tried.since = None;
        if matches!(self.standing, Standing::Live | Standing::Replaying) {
            self.stand(Standing::Replaying, why, now);
        }
    }

    fn diverge(&mut self, sequence: u64, class: Class, agreed: Class, now: Time) {
        if matches!(self.standing, Standing::Live | Standing::Replaying) {
            let why = format!("{} change {sequence}, which its siblings {}", class.verb(), agreed.verb());
            self.stand(Standing::Diverged, why, now);
        }
    }

    fn fall_behind(&mut self, now: Time) {
        let behind = self.group.last_sequence() - self.passed;
        let why = format!("fell {behind} changes behind, more than memory holds");
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

#[cfg(test)]
mod tests;
