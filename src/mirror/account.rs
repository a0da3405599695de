//! What an operator is shown of a group's record: drawn up by the sequencer, which has the journal, read by control.
//!
//! A copy, and some hundred milliseconds old. Nothing is decided by it, and nobody waits for it: the sequencer swaps a new
//! one in, at most every [`ACCOUNT_PAUSE`](crate::limits::ACCOUNT_PAUSE). What atomics say exactly (how far a child has
//! come, whether the journal has failed) is read there.

use super::MirrorGroup;
use super::durable::{Journal, Space};
use crate::error::Fault;
use crate::limits::PACE_SPAN;
use crate::route::Standing;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::Time;

/// A group's record, as it was a moment ago.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The sequence that was given last; it may not be on record yet.
    pub given: u64,
    /// Batches of changes that were put on record since the start.
    pub batches: u64,
    /// The changes in them.
    pub changes: u64,
    /// The journal's files and syncs.
    pub space: Space,
    /// The child whose backlog is the longest: what it lacks cannot be let go. `None` where none lacks anything.
    pub pinned_by: Option<usize>,
    /// What each child lacks, by its place.
    pub backlogs: Box<[Backlog]>,
}

/// What one child lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Octets on record of it, about.
    pub bytes: u64,
    /// When the oldest of it was numbered, about: milliseconds since 1970.
    pub oldest_unix_ms: Option<u64>,
    /// While it replays.
    pub pace: Option<Pace>,
}

/// How fast a child catches up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Changes that it confirms in a second.
    pub per_s: f64,
    /// Until it is at the head if both, it and the writers, go on as they do; `None` where it gains nothing.
    pub left_s: Option<u64>,
}

/// Changes that a journal could not take.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    full: AtomicU64,
    failed: AtomicU64,
}

/// Draws up accounts. The sequencer's.
#[derive(Debug)]
pub(super) struct Accountant {
    batches: u64,
    changes: u64,
    runs: Box<[Run]>,
}

/// How far a child, and the group, were at two moments in the past.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    from: Point,
    middle: Point,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: Time,
    applied: u64,
    last: u64,
}

impl Refusals {
    pub(super) fn on_refused(&self, fault: &Fault) {
        match fault {
            Fault::JournalFull => self.full.fetch_add(1, Ordering::Relaxed),
            Fault::JournalFailed => self.failed.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    pub(super) fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl Accountant {
    pub(super) fn new(children: usize) -> Self {
        Self { batches: 0, changes: 0, runs: vec![Run::default(); children].into() }
    }

    pub(super) fn on_batch(&mut self, changes: usize) {
        if changes > 0 {
            self.batches += 1;
            self.changes += changes as u64;
        }
    }

    /// The account as of now. `given` is the sequence that was given last.
    pub(super) fn draw_up(&mut self, group: &MirrorGroup, journal: &dyn Journal, given: u64, now: Time) -> Account {
        let children = &group.table.children;
        let backlogs = children.iter().zip(&mut self.runs).map(|(child, run)| {
            if child.standing() == Standing::NeedsReseed {
                // It is owed nothing.
                *run = Run::default();
                return Backlog::default();
            }
            let applied = child.applied();
            let replays = child.standing() == Standing::Replaying;
            Backlog {
                bytes: journal.bytes_after(applied),
                oldest_unix_ms: journal.age_after(applied),
                pace: run.step(replays, Point { at: now, applied, last: group.last_sequence() }),
            }
        });
        Account {
            given,
            batches: self.batches,
            changes: self.changes,
            space: journal.space(),
            backlogs: backlogs.collect(),
            pinned_by: children
                .iter()
                .filter(|child| child.standing() != Standing::NeedsReseed && group.lag(child.index) > 0)
                .min_by_key(|child| child.applied())
                .map(|child| child.index),
        }
    }
}

impl Run {
    /// Its pace up to this point, while it replays.
    fn step(&mut self, replays: bool, point: Point) -> Option<Pace> {
        if !replays {
            *self = Self::default();
            return None;
        }
        if self.from.at == Time::ZERO {
            *self = Self { from: point, middle: point };
        }
        let took = point.at.since(self.from.at).as_secs_f64();
        let pace = (took > 0.0).then(|| {
            let done = point.applied.saturating_sub(self.from.applied) as f64;
            let lag = |point: &Point| point.last.saturating_sub(point.applied) as f64;
            let gained = (lag(&self.from) - lag(&point)) / took;
            let left_s = (gained > 0.0).then(|| (lag(&point) / gained).ceil() as u64);
            Pace { per_s: done / took, left_s }
        });
        if point.at.since(self.middle.at) >= PACE_SPAN {
            (self.from, self.middle) = (self.middle, point);
        }
        pace
    }
}

impl MirrorGroup {
    /// The account of the record, a moment old; `None` without one.
    #[must_use]
    pub fn account(&self) -> Option<Arc<Account>> {
        self.keeping().map(|keeping| keeping.account.load_full())
    }

    /// Changes that were refused because the journal was full.
    #[must_use]
    pub fn refused_full(&self) -> u64 {
        self.keeping().map_or(0, |keeping| keeping.refusals.full())
    }

    /// Changes that were refused because it had failed.
    #[must_use]
    pub fn refused_failed(&self) -> u64 {
        self.keeping().map_or(0, |keeping| keeping.refusals.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::UnknownOutcome::Idempotent;
    use crate::mirror::model::Model;
    use crate::mirror::testing::{Bell, Like, at_ms, change, group_from, kept_by};

    fn point(ms: u64, applied: u64, last: u64) -> Point {
        Point { at: at_ms(ms), applied, last }
    }

    #[test]
    fn the_pace_is_that_of_late_and_the_time_left_counts_what_writers_add() {
        let mut run = Run::default();
        assert_eq!(run.step(true, point(1_000, 0, 1_000)), None, "nothing is known yet");
        // 100 a second are confirmed, 50 come.
        let pace = run.step(true, point(3_000, 200, 1_100)).expect("two points");
        assert_eq!(pace, Pace { per_s: 100.0, left_s: Some(18) });
        // It slows down: after two spans the early pace is forgotten.
        for second in 1..=4 {
            let ms = 3_000 + second * PACE_SPAN.as_millis() as u64;
            let _ = run.step(true, point(ms, 200, 1_100));
        }
        let pace = run.step(true, point(24_000, 200, 1_200)).expect("two points");
        assert_eq!(pace, Pace { per_s: 0.0, left_s: None }, "it never ends");
        assert_eq!(run.step(false, point(25_000, 200, 1_200)), None);
        assert_eq!(run.step(true, point(26_000, 200, 1_200)), None, "another replay has a pace of its own");
    }

    #[test]
    fn what_is_given_and_not_on_record_and_what_is_refused_is_told() {
        let model = Model::new(3);
        let bell = Arc::new(Bell::default());
        let durable = kept_by(&model, false, bell.clone());
        let (group, mut sequencer) = group_from(Like::default(), bell, Some(durable));
        let submit = || {
            let (change, waiting) = change(&group, Idempotent, b"", at_ms(1));
            group.submit(0, &change).expect("room");
            (change, waiting)
        };
        let seen =
            || group.account().map(|account| (account.given, account.batches, account.changes, account.pinned_by));
        let first = [submit(), submit()];
        let _ = sequencer.step(at_ms(1));
        assert_eq!(seen(), Some((2, 1, 2, Some(0))), "no lane has moved");
        model.set_full(true);
        let full = submit();
        let _ = sequencer.step(at_ms(2));
        model.set_full(false);
        model.fail_next(true);
        let lost = submit();
        let _ = sequencer.step(at_ms(1_000));
        let refused = submit();
        let _ = sequencer.step(at_ms(2_000));
        assert_eq!(seen(), Some((3, 1, 2, Some(0))));
        assert_eq!((group.last_sequence(), group.refused_full(), group.refused_failed()), (2, 1, 1));
        assert!(group.failed().is_some());
        drop((first, full, lost, refused));
    }
}
