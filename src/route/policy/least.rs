//! `least_conn`: the candidate with the least in flight for its weight, of several such ones any.
//!
//! Without the dice among equals, workers that look at the same moment would all take the first.

use std::cmp::Ordering;

use super::Candidates;
use crate::route::chooser::Chooser;
use crate::route::set::ChildSet;

/// One of the least loaded.
pub(super) fn pick(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let mut equals = ChildSet::new();
    let mut count = 0;
    let mut least: Option<Load> = None;
    for index in candidates.set.iter() {
        let load = Load::of(candidates, index);
        match least.map_or(Ordering::Less, |least| load.cmp(least)) {
            Ordering::Less => {
                least = Some(load);
                equals.clear();
                equals.insert(index);
                count = 1;
            }
            Ordering::Equal => {
                equals.insert(index);
                count += 1;
            }
            Ordering::Greater => {}
        }
    }
    equals.nth(me.below(count)).expect("a number below the count")
}

/// What is in flight, with the request to come, for a weight.
#[derive(Clone, Copy)]
pub(super) struct Load {
    in_flight: u64,
    weight: u64,
}

impl Load {
    pub(super) fn of(candidates: &Candidates<'_>, index: usize) -> Self {
        let in_flight = u64::from(candidates.child(index).load()) + 1;
        Self { in_flight, weight: candidates.weight(index).into() }
    }

    /// Compares the quotients without dividing. Both factors have at most 33 and 14 bits.
    pub(super) fn cmp(self, other: Self) -> Ordering {
        (self.in_flight * other.weight).cmp(&(other.in_flight * self.weight))
    }
}
