//! Where a lane gets its next change from: the ring, or the record while it is behind the ring.
//!
//! Behind the ring the lane's cursor is a sequence, not a position. It reads ahead a batch at a time, and joins the ring
//! as soon as the ring holds what comes next; so nothing is skipped and nothing is read twice.

use std::collections::VecDeque;

use super::Lane;
use crate::mirror::past::Found;
use crate::mirror::{Change, Read, What};
use crate::route::Standing;
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// What a lane that is behind the ring has read ahead.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// In order; the first is the next to be confirmed, or nothing is.
    ahead: VecDeque<Arc<Change>>,
}

/// What comes next.
pub(super) enum Next {
    /// The change that is to be confirmed next.
    Change(Arc<Change>),
    /// Nothing is published behind the cursor.
    AtHead,
    /// It has been asked for; a wake follows.
    Awaited,
    /// It is gone for good; why, for the operator.
    Gone(String),
}

impl Behind {
    /// The change was confirmed.
    pub(super) fn pass(&mut self, sequence: u64) {
        if self.ahead.front().is_some_and(|change| change.sequence() == sequence) {
            self.ahead.pop_front();
        }
    }
}

impl Lane {
    /// The change after the last confirmed one. Passes over probes.
    pub(super) fn next_change(&mut self, now: Time) -> Next {
        loop {
            if self.behind.is_some() {
                match self.next_behind() {
                    Some(next) => return next,
                    None => self.behind = None,
                }
            }
            match self.group.ring.read(self.cursor) {
                Read::NotYet => return Next::AtHead,
                Read::Entry(entry) => match &entry.what {
                    What::Probe { .. } => self.cursor += 1,
                    What::Change(change) => return Next::Change(Arc::clone(change)),
                },
                Read::Overrun if self.step_over_probes() => {}
                Read::Overrun if self.group.is_durable() => self.fall_behind_the_ring(now),
                Read::Overrun => return Next::Gone("more than memory holds".to_owned()),
            }
        }
    }

    /// From here on the lane reads the record, until it is back.
    fn fall_behind_the_ring(&mut self, now: Time) {
        // What it scans from here on has not been overrun.
        self.cursor = self.group.ring.tail();
        if self.standing == Standing::Live {
            self.stand(Standing::Replaying, "is further behind than memory holds: reads the journal", now);
            self.target = self.group.ring.head();
        }
        self.behind = Some(Behind::default());
    }

    /// What comes next, for a lane behind the ring; `None` if it has joined the ring again.
    fn next_behind(&mut self) -> Option<Next> {
        let wanted = self.passed + 1;
        let post = &self.group.posts[self.child];
        // Acquire pairs with the reader's Release: a wish that is gone has been answered.
        let is_waiting = post.wanted.load(Ordering::Acquire) == wanted;
        if !is_waiting && let Some(found) = post.found.swap(None) {
            // An answer to an older wish (the operator has attached the child since) is worth nothing.
            match Arc::try_unwrap(found) {
                Ok((from, Found::Lost(why))) if from == wanted => return Some(Next::Gone(why)),
                Ok((from, Found::Changes(changes))) if from == wanted => {
                    if let Some(behind) = &mut self.behind {
                        behind.ahead = changes;
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
        let ahead = self.behind.as_ref().and_then(|behind| behind.ahead.front());
        if let Some(change) = ahead.filter(|change| change.sequence() == wanted) {
            return Some(Next::Change(Arc::clone(change)));
        }
        if self.join_ring(wanted) {
            return None;
        }
        if !is_waiting {
            // Release: what this lane has confirmed is seen by the reader that answers.
            self.group.posts[self.child].wanted.store(wanted, Ordering::Release);
            if let Some(keeping) = self.group.keeping() {
                keeping.reader.wake();
            }
        }
        Some(Next::Awaited)
    }

    /// Stands in the ring, before the change `wanted`, if that is in the ring or will be published there next.
    fn join_ring(&mut self, wanted: u64) -> bool {
        let ring = &self.group.ring;
        let head = ring.head();
        let place = ring.find(wanted).or_else(|| (ring.through(head) == Some(wanted - 1)).then_some(head));
        if let Some(place) = place {
            self.cursor = place;
            self.scan = self.scan.max(place);
        }
        place.is_some()
    }
}
