//! The operations under way, by the key that the kernel knows and by the token that the caller knows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::io::op::Token;
use crate::io::slab::{Key, Slab};

/// The `user_data` of an entry that belongs to no operation.
pub(super) const NO_OPERATION: u64 = u64::MAX;

/// A table of operations, each with what it holds until its last completion.
#[derive(Debug)]
pub(super) struct Ops<T> {
    under_way: Slab<(Token, T)>,
    /// The key of each operation in `under_way`, and no other.
    by_token: HashMap<Token, Key, BuildHasherDefault<TokenHasher>>,
}

impl<T> Default for Ops<T> {
    fn default() -> Self {
        Self { under_way: Slab::new(), by_token: HashMap::default() }
    }
}

impl<T> Ops<T> {
    /// Adds an operation. Its key, the `user_data` of its completions, names no other after it.
    ///
    /// # Panics
    /// When the token names one that is still under way.
    pub(super) fn insert(&mut self, token: Token, held: T) -> u64 {
        let key = self.under_way.insert((token, held));
        let before = self.by_token.insert(token, key);
        assert!(before.is_none(), "{token:?} names an operation that is still under way");
        assert!(key.as_u64() != NO_OPERATION, "the top bit of a key is never set");
        key.as_u64()
    }

    /// The operation of that key, if it is still under way.
    pub(super) fn find(&mut self, key: u64) -> Option<(Token, &mut T)> {
        self.under_way.find_mut(Key::from_u64(key)).map(|(token, held)| (*token, held))
    }

    /// The key of the operation that the caller calls `token`.
    pub(super) fn key_of(&self, token: Token) -> Option<u64> {
        self.by_token.get(&token).map(|key| key.as_u64())
    }

    /// Takes an operation out after its last completion.
    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let (token, held) = self.under_way.remove(Key::from_u64(key))?;
        self.by_token.remove(&token);
        Some(held)
    }

    /// Nothing is under way.
    pub(super) const fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}

/// Spreads a token over a word: tokens are ours, so nobody can choose them to collide, and SipHash would cost more
/// than the rest of a submission.
#[derive(Debug, Default)]
pub(super) struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write_u64(&mut self, word: u64) {
        // 2^64 / φ: consecutive words land far apart; the fold brings the high half, where the mixing is, down.
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write(&mut self, octets: &[u8]) {
        for &octet in octets {
            self.write_u64(u64::from(octet));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_operation_for_ever() {
        let mut ops = Ops::default();
        let first = ops.insert(Token(7), "first");
        assert_eq!((ops.key_of(Token(7)), ops.key_of(Token(8))), (Some(first), None));
        assert_eq!(ops.remove(first), Some("first"));
        assert!(ops.is_empty() && ops.key_of(Token(7)).is_none());
        let second = ops.insert(Token(7), "second");
        assert_ne!(first, second);
        assert_eq!(ops.find(first), None);
        assert_eq!(ops.remove(first), None);
        assert_eq!(ops.find(second), Some((Token(7), &mut "second")));
        assert_eq!(ops.find(NO_OPERATION), None);
    }

    #[test]
    #[should_panic(expected = "still under way")]
    fn one_token_for_two_operations_is_our_mistake() {
        let mut ops = Ops::default();
        ops.insert(Token(1), ());
        ops.insert(Token(1), ());
    }
}
