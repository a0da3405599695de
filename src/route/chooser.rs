//! What a worker keeps of its own to choose with: random numbers and cursors. Never shared, so never an atomic.

use crate::limits::COST_SCAN_MAX;
use crate::probe::mix;

/// One worker's side of [`select`](super::select()).
#[derive(Debug)]
pub struct Chooser {
    random: u64,
    /// Where the last look at all candidates began, by rank.
    rank: usize,
    /// By group index; grown when a group is first chosen in.
    turns: Vec<Turn>,
}

/// Where a worker stands in one group.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// `round_robin`: the index to try first.
    pub(super) next: usize,
    /// `weighted`: what each child is owed, by index.
    pub(super) owed: Vec<i64>,
}

impl Chooser {
    /// A chooser whose random numbers follow from `seed`. Each worker's differs, so that they do not walk in step.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: mix(seed), rank: seed as usize % COST_SCAN_MAX, turns: Vec::new() }
    }

    /// A number below `bound`, evenly spread (to one part in 2^32).
    ///
    /// # Panics
    /// If `bound` is 0 or does not fit 32 bits.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = u32::try_from(bound).expect("a bound of at most 32 bits");
        assert!(bound > 0, "a number below 0");
        self.random = self.random.wrapping_add(1);
        let number = mix(self.random) >> 32;
        // Lemire's multiplication in place of a division.
        ((number * u64::from(bound)) >> 32) as usize
    }

    /// Counts up, below `bound` (at least 1), and begins again; each worker begins at another number. No division: on
    /// many processors one takes as long as a look at a child.
    pub(super) const fn next_rank(&mut self, bound: usize) -> usize {
        self.rank = if self.rank + 1 < bound { self.rank + 1 } else { 0 };
        self.rank
    }

    /// Where this worker stands in the group with this index, of `count` children.
    pub(super) fn turn(&mut self, group: usize, count: usize) -> &mut Turn {
        if self.turns.len() <= group {
            self.turns.resize_with(group + 1, Turn::default);
        }
        if self.turns[group].owed.is_empty() {
            // Each worker begins at another child.
            self.turns[group].next = self.below(count);
        }
        let turn = &mut self.turns[group];
        if turn.owed.len() < count {
            turn.owed.resize(count, 0);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_repeatable() {
        let mut chooser = Chooser::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[chooser.below(7)] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        let (mut one, mut other) = (Chooser::new(5), Chooser::new(5));
        assert!((1..100).all(|bound| one.below(bound) == other.below(bound)));
        assert_eq!(one.below(1), 0);
    }
}
