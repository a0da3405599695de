//! A table whose keys are never valid twice: slots are used again, each time with the next generation.
//!
//! Connections, tasks, timers and operations live in one each. What comes late for something that is gone (a
//! completion, a deadline, a wake) finds nothing, instead of finding its successor. Not a map: the table chooses
//! the keys. Relies on nothing.

/// A table of values with keys that carry a generation.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Slots without a value, used last-in first-out: the warmest first.
    free: Vec<u32>,
}

/// Names one value from its insertion until its removal. The top bit is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

#[derive(Debug)]
struct Slot<T> {
    /// Rises when the value is removed; 31 bits, so two thousand million removals of one slot pass before a key
    /// could be taken for an old one.
    generation: u32,
    value: Option<T>,
}

const GENERATION_MASK: u32 = u32::MAX >> 1;

// === impl Key ===

impl Key {
    /// The number behind the key.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The key behind a number; of any number, as a foreign one merely finds nothing.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    const fn new(index: u32, generation: u32) -> Self {
        Self(((generation as u64) << 32) | index as u64)
    }

    const fn index(self) -> usize {
        (self.0 & u32::MAX as u64) as usize
    }

    const fn generation(self) -> u64 {
        self.0 >> 32
    }
}

// === impl Slab ===

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty table; it allocates with the first value.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Values in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Nothing is in the table.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores a value under a new key.
    ///
    /// # Panics
    /// At 2^32 values.
    pub fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.value.is_none(), "a free slot is empty");
            slot.value = Some(value);
            return Key::new(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 slots");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Key::new(index, 0)
    }

    /// The value under a key, unless it is gone.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index())?;
        if u64::from(slot.generation) == key.generation() { slot.value.as_ref() } else { None }
    }

    /// The value under a key, unless it is gone.
    #[must_use]
    pub fn find_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index())?;
        if u64::from(slot.generation) == key.generation() { slot.value.as_mut() } else { None }
    }

    /// Takes the value out; its key finds nothing from now on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if u64::from(slot.generation) != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        #[expect(clippy::cast_possible_truncation, reason = "an index has 32 bits")]
        self.free.push(key.index() as u32);
        Some(value)
    }

    /// All keys in use, in the order of the slots.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.slots
            .iter()
            .zip(0_u32..)
            .filter(|(slot, _)| slot.value.is_some())
            .map(|(slot, index)| Key::new(index, slot.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_valid_twice() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_ne!(first, second);
        assert_eq!(first.index(), second.index(), "the slot is used again");
        assert_eq!(slab.find(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.find(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn foreign_numbers_find_nothing() {
        let mut slab = Slab::new();
        let key = slab.insert(());
        for number in [u64::MAX, key.as_u64() + 1, key.as_u64() | (1 << 32), 1 << 63] {
            assert_eq!(slab.find(Key::from_u64(number)), None);
            assert_eq!(slab.find_mut(Key::from_u64(number)), None);
            assert_eq!(slab.remove(Key::from_u64(number)), None);
        }
    }

    #[test]
    fn the_top_bit_of_a_key_stays_clear() {
        let mut slab = Slab::new();
        let key = slab.insert(());
        slab.slots[0].generation = GENERATION_MASK;
        assert_eq!(slab.find(key), None);
        let last = slab.keys().next().expect("one value");
        assert_eq!(last.as_u64() >> 63, 0);
        assert_eq!(slab.remove(last), Some(()));
        assert_eq!(slab.insert(()), Key::new(0, 0));
    }
}
