//! Changes that the ring does not hold any more, brought back from the record for the lanes that need them.
//!
//! A lane that is behind the ring leaves word which change it wants; the group's reader thread asks
//! [`MirrorGroup::wanted`], reads, and hands over what it found by [`MirrorGroup::bring`], which wakes the lane.
//!
//! # One change, one table
//!
//! Two lanes that deliver the same change must see each other's answers, or each would judge by itself. So a change is
//! brought back as a new one only if no other is left: not in the ring, not held by a lane or a client that took it from
//! there ([`Outlived`]), not brought back for another lane before. What it comes back with is the verdict on record.
//!
//! The two locks here are not on a request's line: they are taken by the sequencer when an entry leaves the ring, by the
//! reader thread, and by a lane whose child is in doubt.

#![expect(clippy::disallowed_types, reason = "off the line of requests: see the header")]

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::change::Change;
use super::durable::{ReadError, Stored};
use super::verdicts::Verdicts;
use super::{MirrorGroup, Read, What};
use crate::sync::{Arc, Ordering};

/// What the group remembers of what is behind the ring.
#[derive(Debug)]
pub(super) struct Past {
    verdicts: Mutex<Verdicts>,
    outlived: Mutex<Outlived>,
}

/// Changes that left the ring while somebody still held them, and those that were brought back; by sequence.
#[derive(Debug, Default)]
struct Outlived(VecDeque<(u64, Weak<Change>)>);

/// What a lane finds that asked for the past.
#[derive(Debug)]
pub(super) enum Found {
    /// Changes from the one that it wanted on, in order.
    Changes(VecDeque<Arc<Change>>),
    /// It is not on record any more, or cannot be read.
    Lost(String),
}

impl Past {
    pub(super) fn new(verdicts: Verdicts) -> Self {
        Self { verdicts: Mutex::new(verdicts), outlived: Mutex::default() }
    }

    pub(super) fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        // A panic elsewhere leaves whole values: each call changes them in one step.
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outlived(&self) -> MutexGuard<'_, Outlived> {
        self.outlived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The change is about to leave the ring. Said before it does: at no moment can it be found in neither place.
    pub(super) fn on_leaving(&self, change: &Arc<Change>) {
        self.outlived().keep(change);
    }
}

impl Outlived {
    fn keep(&mut self, change: &Arc<Change>) {
        if self.0.len() >= KEPT_BEFORE_LOOKING && self.0.len() == self.0.capacity() {
            // Before it grows: lanes hold one each, clients for a minute at most.
            self.0.retain(|(_, change)| change.strong_count() > 0);
        }
        while self.0.front().is_some_and(|(_, change)| change.strong_count() == 0) {
            self.0.pop_front();
        }
        self.0.push_back((change.sequence(), Arc::downgrade(change)));
    }

    fn find(&self, sequence: u64) -> Option<Arc<Change>> {
        self.0.iter().rev().filter(|entry| entry.0 == sequence).find_map(|entry| entry.1.upgrade())
    }
}

/// Entries that are kept without a look whether anybody still holds them.
const KEPT_BEFORE_LOOKING: usize = 1024;

impl MirrorGroup {
    /// The lanes that want something of the past: child, and the first change wanted.
    pub fn wanted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let posts = self.posts.iter().enumerate();
        // Acquire: what the lane did before it asked is done.
        posts.filter_map(|(child, post)| {
            Some((child, post.wanted.load(Ordering::Acquire))).filter(|(_, from)| *from > 0)
        })
    }

    /// Hands `child`'s lane what it wanted from `from` on, and wakes it.
    pub fn bring(&self, child: usize, from: u64, read: Result<Vec<Stored>, ReadError>) {
        let (post, Some(past)) = (&self.posts[child], &self.past) else {
            return;
        };
        let found = match read {
            // Not durable yet: it is, or soon will be, in the ring.
            Ok(stored) if stored.is_empty() => None,
            Ok(stored) => Some(Found::Changes(stored.into_iter().map(|stored| self.revive(past, stored)).collect())),
            Err(ReadError::Released { oldest }) => {
                Some(Found::Lost(format!("change {from} is not kept any more, the oldest is {oldest}")))
            }
            Err(ReadError::Damaged { why }) => Some(Found::Lost(format!("change {from} cannot be read: {why}"))),
        };
        post.found.store(found.map(|found| Arc::new((from, found))));
        // Release: the lane that sees its wish gone sees what was found. A newer wish stays.
        let _ = post.wanted.compare_exchange(from, 0, Ordering::Release, Ordering::Relaxed);
        self.wake_lane(child);
    }

    /// The change with this place in the order, whoever may hold it; else a new one.
    fn revive(&self, past: &Past, stored: Stored) -> Arc<Change> {
        let sequence = stored.sequence;
        let in_ring = self.ring.find(sequence).and_then(|position| match self.ring.read(position) {
            Read::Entry(entry) => match &entry.what {
                What::Change(change) if change.sequence() == sequence => Some(Arc::clone(change)),
                What::Change(_) | What::Probe { .. } => None,
            },
            Read::NotYet | Read::Overrun => None,
        });
        let mut outlived = past.outlived();
        if let Some(change) = in_ring.or_else(|| outlived.find(sequence)) {
            return change;
        }
        let verdict = past.verdicts().of(sequence, |child| self.child(child).applied());
        let change = Change::revived(stored, self.epoch, self.posts.len(), verdict);
        outlived.keep(&change);
        change
    }
}
