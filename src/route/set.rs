//! A set of children of one group, by index: a fixed array of bits, so that making one costs no allocation.
//!
//! Not a set of [`Child`](super::Child)ren of several groups: an index means nothing outside its group.

use std::fmt;

use crate::limits::CHILDREN_MAX;

const WORDS: usize = CHILDREN_MAX / 64;
const _: () = assert!(CHILDREN_MAX.is_multiple_of(64));

/// Indices of children of one group, each below [`CHILDREN_MAX`]. 128 octets, no allocation.
///
/// ```
/// use antiphon::route::ChildSet;
/// let tried: ChildSet = [0, 2].into_iter().collect();
/// assert!(tried.contains(2) && !tried.contains(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildSet {
    words: [u64; WORDS],
}

impl ChildSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// The set of the indices below `count`.
    ///
    /// # Panics
    /// If `count` is above [`CHILDREN_MAX`].
    #[must_use]
    pub fn all(count: usize) -> Self {
        (0..count).collect()
    }

    /// Adds `index`; true if it was not there.
    ///
    /// # Panics
    /// If `index` is not below [`CHILDREN_MAX`].
    pub fn insert(&mut self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        let word = &mut self.words[index / 64];
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Takes `index` out; true if it was there.
    pub fn remove(&mut self, index: usize) -> bool {
        let was = self.contains(index);
        if was {
            self.words[index / 64] &= !(1 << (index % 64));
        }
        was
    }

    /// Is `index` in the set?
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// How many are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        // Without POPCNT a count is a dozen operations, and most words are empty.
        self.words.iter().filter(|word| **word != 0).map(|word| word.count_ones() as usize).sum()
    }

    /// Is nothing in the set?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The lowest index.
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        self.at_or_after(0)
    }

    /// The lowest index that is `from` or above.
    #[must_use]
    pub fn at_or_after(&self, from: usize) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for (i, word) in self.words.iter().enumerate().skip(from / 64) {
            let left = word & mask;
            if left != 0 {
                return Some(i * 64 + left.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The lowest index that is `from` or above; if there is none, the lowest of all.
    #[must_use]
    pub fn around(&self, from: usize) -> Option<usize> {
        self.at_or_after(from).or_else(|| self.first())
    }

    /// The `n`-th lowest index, counted from 0.
    #[must_use]
    pub fn nth(&self, mut n: usize) -> Option<usize> {
        for (i, word) in self.words.iter().enumerate() {
            let here = word.count_ones() as usize;
            if n < here {
                let mut left = *word;
                for _ in 0..n {
                    left &= left - 1;
                }
                return Some(i * 64 + left.trailing_zeros() as usize);
            }
            n -= here;
        }
        None
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| Bits(*word).map(move |bit| i * 64 + bit))
    }

    /// Those in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, theirs) in both.words.iter_mut().zip(other.words) {
            *word &= theirs;
        }
        both
    }

    /// Is each of these in `other` too?
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.intersection(other) == *self
    }
}

impl Default for ChildSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<usize> for ChildSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::new();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl fmt::Debug for ChildSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The set bits of a word, ascending.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set() {
        // A model: the standard library's set, and a small generator of operations.
        let mut set = ChildSet::new();
        let mut model = BTreeSet::new();
        let mut x = 7_usize;
        for _ in 0..5_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (x >> 33) % CHILDREN_MAX;
            match (x >> 20) % 3 {
                0 => assert_eq!(set.remove(index), model.remove(&index)),
                _ => assert_eq!(set.insert(index), model.insert(index)),
            }
            assert_eq!(set.contains(index), model.contains(&index));
            assert_eq!(set.at_or_after(index), model.range(index..).next().copied());
            assert_eq!(set.nth(index % 90), model.iter().nth(index % 90).copied());
        }
        assert!(set.iter().eq(model.iter().copied()));
        assert_eq!((set.len(), set.first()), (model.len(), model.first().copied()));
    }

    #[test]
    fn the_ends_hold() {
        let last = CHILDREN_MAX - 1;
        let set: ChildSet = [last].into_iter().collect();
        assert_eq!(
            (set.around(3), set.around(last), set.nth(0), set.nth(1)),
            (Some(last), Some(last), Some(last), None)
        );
        assert_eq!(set.at_or_after(CHILDREN_MAX), None);
        assert_eq!(ChildSet::all(CHILDREN_MAX).len(), CHILDREN_MAX);
        assert!(!set.contains(usize::MAX) && set.is_subset(&ChildSet::all(CHILDREN_MAX)));
        assert!(ChildSet::new().is_empty() && ChildSet::new().around(0).is_none());
    }
}
