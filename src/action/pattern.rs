//! Patterns of rules: text in which `*` stands for any octets, none and `/` included; everything else for itself.
//! A pattern describes the whole text.
//!
//! Matching is linear in the text, whatever pattern and text are (Knuth, Morris, Pratt, "Fast Pattern Matching in
//! Strings", 1977): the pattern is the operator's, the text anybody's.

use crate::limits::RULE_PATTERN_BYTES_MAX;

/// A checked pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The text between the stars, the pieces before the first and behind the last included; never empty.
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    text: Box<[u8]>,
    /// For each prefix of `text`, longer than nothing: the length of its longest border.
    borders: Box<[u16]>,
}

const _: () = assert!(RULE_PATTERN_BYTES_MAX <= u16::MAX as usize);

impl Pattern {
    /// `None` if the pattern is empty or longer than [`RULE_PATTERN_BYTES_MAX`].
    pub(super) fn new(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > RULE_PATTERN_BYTES_MAX {
            return None;
        }
        Some(Self { pieces: text.split('*').map(|piece| Piece::new(piece.as_bytes())).collect() })
    }

    /// Matches everything.
    pub(super) fn is_any(&self) -> bool {
        self.pieces.len() > 1 && self.pieces.iter().all(|piece| piece.text.is_empty())
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let [first, middle @ .., last] = &*self.pieces else {
            return text == &*self.pieces[0].text;
        };
        let Some(rest) = text.strip_prefix(&*first.text) else { return false };
        let Some(mut rest) = rest.strip_suffix(&*last.text) else { return false };
        for piece in middle {
            let Some(end) = piece.end_in(rest) else { return false };
            rest = &rest[end..];
        }
        true
    }
}

impl Piece {
    fn new(text: &[u8]) -> Self {
        let mut borders = vec![0_u16; text.len()];
        let mut border = 0;
        for at in 1..text.len() {
            while border > 0 && text[border] != text[at] {
                border = usize::from(borders[border - 1]);
            }
            border += usize::from(text[border] == text[at]);
            // A border is shorter than the text, and that fits.
            borders[at] = border as u16;
        }
        Self { text: text.into(), borders: borders.into() }
    }

    /// The end of the first occurrence.
    fn end_in(&self, text: &[u8]) -> Option<usize> {
        if self.text.is_empty() {
            return Some(0);
        }
        let mut matched = 0;
        for (at, octet) in text.iter().enumerate() {
            while matched > 0 && self.text[matched] != *octet {
                matched = usize::from(self.borders[matched - 1]);
            }
            matched += usize::from(self.text[matched] == *octet);
            if matched == self.text.len() {
                return Some(at + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The simplest thing that could be right.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| slow(rest, &text[skip..])),
            [octet, rest @ ..] => text.first() == Some(octet) && slow(rest, &text[1..]),
        }
    }

    #[test]
    fn stars() {
        let matches = |pattern, text: &str| Pattern::new(pattern).expect("a pattern").matches(text.as_bytes());
        assert!(matches("*", "") && matches("*", "/x/y") && matches("**", "x"));
        assert!(matches("/items/*", "/items/") && matches("/items/*", "/items/a/b"));
        assert!(!matches("/items/*", "/items") && !matches("/items/*", "x/items/a"));
        assert!(matches("reindex", "reindex") && !matches("reindex", "reindexx"));
        assert!(matches("a*a", "aa") && !matches("a*a", "a"));
        assert!(Pattern::new("").is_none() && Pattern::new(&"x".repeat(RULE_PATTERN_BYTES_MAX + 1)).is_none());
        assert!(Pattern::new("**").is_some_and(|p| p.is_any()) && Pattern::new("*a").is_some_and(|p| !p.is_any()));
    }

    proptest! {
        #[test]
        fn agrees_with_the_simplest(pattern in "[ab*]{1,8}", text in "[ab]{0,12}") {
            let fast = Pattern::new(&pattern).expect("not empty");
            prop_assert_eq!(fast.matches(text.as_bytes()), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
