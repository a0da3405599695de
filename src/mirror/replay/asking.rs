//! What a lane does next: obeys what others have said, judges its own change by the clock and by its siblings, looks
//! through the ring, and begins a probe or a change.

use super::reading::Next;
use super::{Do, LOOK_AGAIN, Lane, Probe, Slot, Tried, WANT_PROBE_EVERY, Work};
use crate::limits::{CHANGE_CONNECTION_FRESH, CHANGE_LATE, CHANGE_PATIENCE, CHANGE_SILENCE_MAX, LIVE_LAG_MAX};
use crate::mirror::ack::{Class, End, demotion_at};
use crate::mirror::{Change, Condemned, Read, What};
use crate::probe::{Failure, Kind, State};
use crate::route::{Admin, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// Why a change may have been carried out that this process has not sent.
const STOPPED: &str = "antiphon was stopped while it was on its way";

impl Lane {
    /// Takes what others have said since. True if the request in flight is to be dropped.
    pub(super) fn obey(&mut self, now: Time) -> bool {
        let post = &self.group.posts[self.child];
        let serves = post.serves.load(Ordering::Relaxed);
        if self.child().is_vacant() {
            return serves && self.vacate(now);
        }
        if !serves {
            self.lived = true;
            post.serves.store(true, Ordering::Release);
        }
        // Acquire: the child is there.
        if post.join.load(Ordering::Relaxed) && post.join.swap(false, Ordering::Acquire) {
            self.join_siblings(now);
        }
        let post = &self.group.posts[self.child];
        if post.flush.load(Ordering::Relaxed) && post.flush.swap(false, Ordering::Relaxed) && self.flush(now) {
            return true;
        }
        let dropped = &self.group.posts[self.child].dropped;
        if dropped.load().is_some()
            && let Some(why) = dropped.swap(None)
            && self.drop_out(why.as_str().to_owned(), now)
        {
            return true;
        }
        let post = &self.group.posts[self.child];
        // Acquire: what the operator did before is done.
        let attach = post.attach.load(Ordering::Relaxed) && post.attach.swap(false, Ordering::Acquire);
        if attach {
            if self.standing != Standing::Live || matches!(self.work, Work::Doubting { .. }) {
                return self.attach(now);
            }
            // Nothing to attach, and so nothing to put on record.
            self.group.posts[self.child].attached.store(Some(Arc::new((self.passed, self.passed))));
            self.group.sequencer.wake();
        }
        if post.probe.load(Ordering::Relaxed) != 0
            && let Some(nanos) = post.probe.swap(0, Ordering::Relaxed).checked_sub(1)
            && self.probe.is_none_or(|probe| !probe.started)
        {
            self.probe = Some(Probe { expires: Time::from_nanos(nanos), started: false });
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
    pub(super) fn watch(&mut self, now: Time) {
        let child = self.child();
        let up = child.admin() == Admin::Online && child.health().state().kind() == Kind::Up;
        if !self.hold && !up {
            self.hold_because("was away: waits for a good probe", now);
        }
    }

    /// Nobody stands here any more. True if a request in flight is to be dropped.
    fn vacate(&mut self, now: Time) -> bool {
        let in_flight = self.take_in_flight().inspect(|change| {
            self.group.on_end(change, self.child, End::InDoubt, now);
        });
        self.rest();
        self.leave();
        // Clients that wait for what it will never get.
        self.scan = self.cursor;
        self.tried = Tried::default();
        // What is under way of a probe says nothing of whoever comes next.
        self.probe = None;
        (self.hold, self.doubted, self.answered_at) = (true, false, None);
        self.stand(Standing::NeedsReseed, "removed by the operator", now);
        let post = &self.group.posts[self.child];
        for order in [&post.attach, &post.flush, &post.join] {
            order.store(false, Ordering::Relaxed);
        }
        // Release: all of the above is done.
        post.serves.store(false, Ordering::Release);
        in_flight.is_some()
    }

    /// The child is new in a group without changes: it goes through all there will be, like its siblings.
    fn join_siblings(&mut self, now: Time) {
        if self.standing != Standing::NeedsReseed || self.passed > 0 {
            return;
        }
        self.scan = self.cursor;
        self.hold = true;
        self.want_probe_at = now;
        self.stand(Standing::Replaying, "added by the operator: waits for a good probe", now);
    }

    /// The operator gives up what the child has missed. True if a request in flight is to be dropped.
    fn flush(&mut self, now: Time) -> bool {
        if self.standing == Standing::Live {
            return false;
        }
        let missed = self.group.last_sequence() - self.passed;
        self.drop_out(format!("flushed by the operator: {missed} changes will never be sent to it"), now)
    }

    /// The child will not be sent what it has missed. True if a request in flight is to be dropped.
    fn drop_out(&mut self, why: String, now: Time) -> bool {
        if self.standing == Standing::NeedsReseed {
            return false;
        }
        let in_flight = self.take_in_flight().inspect(|change| {
            self.group.on_end(change, self.child, End::InDoubt, now);
        });
        self.rest();
        self.stand(Standing::NeedsReseed, why, now);
        in_flight.is_some()
    }

    /// The operator's word: the child is what its siblings are. True if a request in flight is to be dropped.
    fn attach(&mut self, now: Time) -> bool {
        let in_flight = match std::mem::replace(&mut self.work, Work::Idle) {
            Work::InFlight { change, .. } => {
                self.group.on_end(&change, self.child, End::InDoubt, now);
                true
            }
            Work::Idle | Work::Pausing { .. } | Work::Judging { .. } | Work::Doubting { .. } => false,
        };
        self.rest();
        self.leave();
        let from = self.passed;
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
        self.behind = None;
        self.begun = self.passed;
        self.scan = self.scan.max(self.cursor);
        self.tried = Tried::default();
        self.group.posts[self.child].attached.store(Some(Arc::new((from, self.passed))));
        self.group.sequencer.wake();
        self.hold = true;
        self.want_probe_at = now;
        self.confirm(self.passed);
        self.stand(Standing::Replaying, "attached by the operator: waits for a good probe", now);
        in_flight
    }

    /// Is the change in flight too slow? True if it is to be dropped.
    pub(super) fn judge_time(&mut self, now: Time) -> bool {
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
    pub(super) fn judge_siblings(&mut self, now: Time) {
        let Work::Judging { change, class, since } = &self.work else {
            return;
        };
        let (change, class) = (Arc::clone(change), *class);
        if now >= *since + CHANGE_PATIENCE && change.agreed().is_none() {
            // A sibling that is so far behind has no say.
            self.group.end_open(&change, now);
        }
        let Some(agreed) = change.agreed() else {
            return;
        };
        if class != Class::Success && class == agreed && !self.group.is_recorded(&change) {
            // The sequencer wakes us when it is on record: a refusal that is forgotten would be a success.
            return;
        }
        self.work = Work::Idle;
        if class == agreed {
            self.pass(change.sequence());
        } else {
            self.diverge(change.sequence(), class, agreed, now);
        }
    }

    /// Looks at every entry once: for probes of this child, and for clients that wait for it in vain.
    pub(super) fn scan(&mut self, now: Time) {
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
                    let at_cursor = entry.position == self.cursor && self.behind.is_none();
                    if change.ended(self.child).is_some() || (at_cursor && self.is_in_flight()) {
                        // Its end is known, or will be.
                    } else if change.live {
                        // One that is bound sends it, though it is held.
                        if self.standing != Standing::Replaying || !self.is_part_of(change) {
                            self.miss(change, now);
                        }
                    } else {
                        let end = if at_cursor && self.tried.in_doubt { End::InDoubt } else { End::Queued };
                        group.on_end(change, self.child, end, now);
                    }
                }
                What::Probe { .. } | What::Change(_) => {}
            }
            self.scan += 1;
        }
    }

    pub(super) fn start_probe(&mut self, now: Time) -> Option<Do> {
        if self.probe.is_some_and(|probe| probe.started) {
            return None;
        }
        let scheduled = self.probe.take().map(|probe| probe.expires).filter(|expires| *expires > now);
        let expires = scheduled.or_else(|| self.own_probe(now))?;
        if !self.child().is_probed() {
            return None;
        }
        self.probe = Some(Probe { expires, started: true });
        Some(Do::Probe { expires, second_connection: !self.hold || self.is_in_flight() })
    }

    /// When a probe expires that the lane asks for itself: the child counts as up, so that none is planned soon, and
    /// the lane needs to know. It does not pass through the ring, which a change in flight for hours must not wear out.
    fn own_probe(&mut self, now: Time) -> Option<Time> {
        let health = self.group.child(self.child).health().state().kind();
        let wanted =
            health == Kind::Up && now >= self.want_probe_at && (self.hold || self.doubted || self.overdue_at() <= now);
        wanted.then(|| {
            self.want_probe_at = now + WANT_PROBE_EVERY;
            now + self.group.table.probe.timeout
        })
    }

    /// When the change in flight has been there for its deadline.
    fn overdue_at(&self) -> Time {
        match &self.work {
            Work::InFlight { since, .. } => *since + self.group.deadline,
            Work::Idle | Work::Pausing { .. } | Work::Judging { .. } | Work::Doubting { .. } => Time::NEVER,
        }
    }

    pub(super) fn start_change(&mut self, now: Time) -> Option<Do> {
        match self.work {
            Work::InFlight { .. } | Work::Judging { .. } | Work::Doubting { .. } => return None,
            Work::Pausing { until } if now < until => return None,
            Work::Pausing { .. } | Work::Idle => self.work = Work::Idle,
        }
        let held = self.hold && !self.is_bound();
        if held || !matches!(self.standing, Standing::Live | Standing::Replaying) || self.group.failed().is_some() {
            return None;
        }
        loop {
            match self.next_change(now) {
                Next::AtHead => {
                    self.go_live(now);
                    return None;
                }
                Next::Awaited => return None,
                Next::Gone(why) => {
                    self.fall_behind(&why, now);
                    return None;
                }
                Next::Change(change) if change.is_withdrawn() => self.pass(change.sequence()),
                Next::Change(change) => {
                    if change.sequence() <= self.begun && self.tried.sends == 0 && !self.tried.resolved {
                        if !change.may_repeat() {
                            self.doubt(&change, STOPPED, now);
                            return None;
                        }
                        self.tried.in_doubt = true;
                    }
                    if change.live {
                        return self.start_live(&change, now);
                    }
                    self.go_live(now);
                    return self.send(&change, now);
                }
            }
        }
    }

    /// Sends it, once it is written down that it is on its way; if that fails, nothing is sent any more.
    pub(super) fn send(&mut self, change: &Arc<Change>, now: Time) -> Option<Do> {
        if !self
            .write_slot(Slot { applied: self.passed, begun: change.sequence().max(self.begun) }, !change.may_repeat())
        {
            return None;
        }
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
        Some(Do::SendChange {
            change: Arc::clone(change),
            attempt: self.tried.sends,
            // A server may close a connection at any moment after an answer, without having said so: a change that may
            // not be repeated would be in doubt for no fault of the child's. A live one goes where its child was proven.
            fresh_connection: !change.live && (!change.may_repeat() || (!trusted && self.tried.sends > 1)),
        })
    }

    /// The cursor's entry is gone. If it was a probe, and so were those behind it, goes on after them; false if a change
    /// is gone.
    pub(super) fn step_over_probes(&mut self) -> bool {
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
        if self.behind.is_some() {
            return;
        }
        let lag = self.group.ring.head().saturating_sub(self.cursor);
        let is_there = self.cursor >= self.target && lag <= LIVE_LAG_MAX;
        if self.standing == Standing::Replaying && is_there && !self.hold {
            self.stand(Standing::Live, "", now);
        }
    }

    pub(super) fn wait_until(&self, now: Time) -> Time {
        let work = match &self.work {
            Work::Idle | Work::Doubting { .. } => Time::NEVER,
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
        let held = if self.hold || self.doubted { self.want_probe_at.max(now + WANT_PROBE_EVERY) } else { Time::NEVER };
        work.min(held).min(self.overdue_at().max(now + LOOK_AGAIN))
    }
}
