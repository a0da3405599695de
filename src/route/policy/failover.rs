//! `failover`: all reads to the primary, whose role is sticky.
//!
//! The first child in the configuration is primary. When it is away (down, not live, or not wanted by the operator)
//! the next available one in order takes the role, and keeps it when the old one returns, until it is away itself or an
//! operator changes it. A role that moved back by itself would send reads to a child that has only just come up, and
//! then away again if it falls.
//!
//! A primary that is not *away* but cannot take this read (suspect while a probe decides, a moment behind the floor,
//! or tried already) keeps the role: the read goes to the next candidate in order.

use super::{Candidates, Rank, rank};
use crate::route::group::GroupTable;

/// The primary if it is a candidate, else the next candidate in order.
pub(super) fn pick(candidates: &Candidates<'_>) -> usize {
    let primary = settle(candidates.group);
    if candidates.set.contains(primary) {
        return primary;
    }
    candidates.set.around(primary + 1).expect("candidates are never none")
}

/// Moves the role on if the primary is away and another child is not. Returns the primary's index.
pub(in crate::route) fn settle(group: &GroupTable) -> usize {
    loop {
        let (primary, moves) = group.shared.primary();
        let Some(successor) = successor(group, primary) else { return primary };
        if group.shared.move_primary(primary, moves, successor) {
            return successor;
        }
        // Another worker moved it, or an operator did: look again.
    }
}

/// Who takes the role from `primary`; `None` if it keeps it.
fn successor(group: &GroupTable, primary: usize) -> Option<usize> {
    // How far a child has applied does not matter for the role.
    let rank_of = |index: usize| group.children.get(index).and_then(|child| rank(child, 0).ok());
    let kept = rank_of(primary);
    if matches!(kept, Some(Rank::Up | Rank::Suspect)) {
        return None;
    }
    let count = group.children.len();
    let next = (1..=count)
        .map(|distance| (primary + distance) % count)
        .filter_map(|index| Some((rank_of(index)?, index)))
        .min_by_key(|(rank, _)| *rank)?; // the first of the least, so the nearest
    // Only a child with a weight takes the role from one of last resort.
    (kept.is_none() || next.0 == Rank::Up).then_some(next.1)
}
