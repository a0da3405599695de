//! `round_robin`, `weighted`, `random`: policies that look at no child's load.
//!
//! The turns are each worker's own: with several workers the mix of all is as even as each is.

use super::Candidates;
use crate::route::chooser::Chooser;

/// The next candidate in ascending order after the last one chosen.
pub(super) fn round_robin(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let turn = me.turn(candidates.group.index, candidates.group.children.len());
    let index = candidates.set.around(turn.next).expect("candidates are never none");
    turn.next = index + 1;
    index
}

/// Smooth weighted round robin, as nginx has it: each candidate is owed its weight, the one that is owed most is
/// chosen and pays the sum. 5:1:1 gives a a b a c a a, not a a a a a b c.
pub(super) fn weighted(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let turn = me.turn(candidates.group.index, candidates.group.children.len());
    let mut sum = 0;
    let mut most: Option<(i64, usize)> = None;
    for index in candidates.set.iter() {
        let weight = i64::from(candidates.weight(index));
        let owed = &mut turn.owed[index];
        *owed += weight;
        sum += weight;
        if most.is_none_or(|(most, _)| *owed > most) {
            most = Some((*owed, index));
        }
    }
    let (_, index) = most.expect("candidates are never none");
    turn.owed[index] -= sum;
    index
}

/// A candidate at random, in proportion to the weights.
pub(super) fn random(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    // An operator may change weights between the sum and the walk, which then ends at the last candidate at the latest.
    let sum: u32 = candidates.set.iter().map(|index| candidates.weight(index)).sum();
    let mut left = me.below(sum as usize);
    let mut last = None;
    for index in candidates.set.iter() {
        last = Some(index);
        match left.checked_sub(candidates.weight(index) as usize) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    last.expect("candidates are never none")
}
