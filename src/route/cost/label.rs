//! What kind of action a request is, as far as what it takes depends on that.
//!
//! `aci`: the action's name. `http`: the method and the first parts of the path, where whatever looks like an id
//! counts as one. Both by size: what the request asks for, or brings. A label is a hash, so two kinds may share one by
//! a chance of one to 2^64; and it is the client's words, so the table of them is bounded.

use crate::action::{Asked, Decision, Dialect, numeric_parameter};
use crate::probe::mix;

/// Parts of a path that make a class.
const SEGMENTS_MAX: usize = 4;
/// A longer part is an id, whatever it looks like.
const SEGMENT_BYTES_MAX: usize = 24;
/// Hexadecimal parts from this length on are ids: shorter ones may be words (`feed`, `cafe`).
const HEX_BYTES_MIN: usize = 8;
/// Sizes are told apart by powers of four, this many of them; 0 is none.
const SIZES: u8 = 7;
/// Octets of a name that are kept for the operator.
const TEXT_BYTES: usize = 31;
pub(super) const TEXT_WORDS: usize = 4;

/// The kind of an action. Small, and made without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// 0: nothing is known.
    pub(super) name: u64,
    pub(super) size: u8,
    /// Length and octets of the name's beginning.
    text: [u8; TEXT_BYTES + 1],
}

impl Label {
    /// Nothing is known of the action.
    pub const NONE: Self = Self { name: 0, size: 0, text: [0; TEXT_BYTES + 1] };

    /// An ACI action by its name in lower case, with what it asks for.
    #[must_use]
    pub fn of_action(name: &str, size: Option<u64>) -> Self {
        let mut label = Self::NONE;
        label.push(name.as_bytes());
        label.sized(size)
    }

    /// Method and target of an HTTP request, with what it asks for or brings.
    #[must_use]
    pub fn of_path(method: &[u8], target: &[u8], size: Option<u64>) -> Self {
        let mut label = Self::NONE;
        label.push(method);
        label.push(b" ");
        let path = target.split(|octet| matches!(octet, b'?' | b'#')).next().unwrap_or_default();
        let mut segments = path.split(|octet| *octet == b'/').filter(|segment| !segment.is_empty());
        let mut any = false;
        for segment in segments.by_ref().take(SEGMENTS_MAX) {
            label.push(b"/");
            label.push(if is_id(segment) { b"*" } else { segment });
            any = true;
        }
        if !any {
            label.push(b"/");
        }
        if segments.next().is_some() {
            label.push(b"/...");
        }
        label.sized(size)
    }

    /// A request that has been classified. `size_parameter` is the number in it that tells its size; without one, the
    /// length of its body does, where that is known.
    #[must_use]
    pub fn of(
        dialect: Dialect,
        decision: &Decision<'_>,
        asked: &Asked<'_>,
        size_parameter: Option<&str>,
        body_bytes: u64,
    ) -> Self {
        let told = size_parameter.and_then(|name| numeric_parameter(asked, name));
        let size = told.or_else(|| Some(body_bytes).filter(|bytes| *bytes > 0));
        match dialect {
            Dialect::Aci => Self::of_action(decision.name.as_str(), size),
            Dialect::Http => Self::of_path(asked.method, asked.target, size),
        }
    }

    /// A change on its way to one child: by its name, or, in `http`, by the head that the child gets.
    #[must_use]
    pub fn of_change(dialect: Dialect, name: &str, head: &[u8], body_bytes: u64) -> Self {
        let size = Some(body_bytes).filter(|bytes| *bytes > 0);
        match dialect {
            Dialect::Aci => Self::of_action(name, size),
            Dialect::Http => {
                let mut words = head.split(|octet| *octet == b' ');
                let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                Self::of_path(method, target, size)
            }
        }
    }

    /// The key in the table of classes, for this size; never 0.
    pub(super) const fn key(&self, size: u8) -> u64 {
        let key = mix(self.name ^ (size as u64) << 56);
        if key == 0 { 1 } else { key }
    }

    /// The name as words that can be stored one by one, with the size or without.
    pub(super) fn text_words(&self, with_size: bool) -> [u64; TEXT_WORDS] {
        let mut octets = self.text;
        if with_size {
            octets[0] |= self.size << 5;
        }
        std::array::from_fn(|i| u64::from_le_bytes(octets[8 * i..][..8].try_into().expect("eight octets")))
    }

    /// The name from such words; never wrong but where two threads wrote them at once, and then only to look at.
    pub(super) fn text_of(words: &[u64; TEXT_WORDS]) -> String {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (len, size) = (usize::from(octets[0] & 31), octets[0] >> 5);
        let name = String::from_utf8_lossy(&octets[1..][..len]).into_owned();
        if size == 0 { name } else { format!("{name} (size {size})") }
    }

    fn sized(mut self, size: Option<u64>) -> Self {
        self.size = size.map_or(0, size_of);
        self
    }

    fn push(&mut self, octets: &[u8]) {
        let len = usize::from(self.text[0]);
        let kept = octets.len().min(TEXT_BYTES - len);
        self.text[1 + len..][..kept].copy_from_slice(&octets[..kept]);
        self.text[0] += kept as u8;
        // FNV-1a, then stirred: names are short, and what a client makes of collisions is one mean for two of its own.
        let start = if self.name == 0 { 0xcbf2_9ce4_8422_2325 } else { self.name };
        let hash = octets.iter().fold(start, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3));
        self.name = if hash == 0 { 1 } else { hash };
    }
}

/// 1 to [`SIZES`]: up to 3, 15, 63, ... and all above.
fn size_of(size: u64) -> u8 {
    let bits = (u64::BITS - size.leading_zeros()).max(1);
    (bits.div_ceil(2) as u8).min(SIZES)
}

/// Does this part of a path name one thing of many?
fn is_id(segment: &[u8]) -> bool {
    let is_hex = |octet: &u8| octet.is_ascii_hexdigit() || *octet == b'-';
    segment.iter().all(u8::is_ascii_digit)
        || segment.len() > SEGMENT_BYTES_MAX
        || (segment.len() >= HEX_BYTES_MIN && segment.iter().all(is_hex) && segment.iter().any(u8::is_ascii_digit))
}

#[cfg(all(test, not(antiphon_loom)))]
mod tests {
    use super::*;

    fn text(method: &str, target: &str, size: Option<u64>) -> String {
        Label::text_of(&Label::of_path(method.as_bytes(), target.as_bytes(), size).text_words(true))
    }

    #[test]
    fn ids_are_one() {
        for (target, class) in [
            ("/", "GET /"),
            ("", "GET /"),
            ("/items/17?x=/y", "GET /items/*"),
            ("/items//17", "GET /items/*"),
            ("/u/6f9619ff-8b86-d011-b42d-00cf", "GET /u/*"),
            ("/u/deadbeef01", "GET /u/*"),
            ("/feed/facade", "GET /feed/facade"),
            ("/decade00", "GET /*"),
            ("/a-name-of-more-than-24-octets", "GET /*"),
            ("/a/b/c/d/e", "GET /a/b/c/d/..."),
        ] {
            assert_eq!(text("GET", target, None), class, "{target}");
        }
    }

    #[test]
    fn kinds_differ_by_method_path_and_size() {
        let label = |method: &str, target: &str, size| Label::of_path(method.as_bytes(), target.as_bytes(), size);
        assert_eq!(label("GET", "/a/1", None).name, label("GET", "/a/2", None).name);
        assert_ne!(label("GET", "/a", None).name, label("HEAD", "/a", None).name);
        assert_ne!(label("GET", "/a", None).name, label("GET", "/b", None).name);
        assert_ne!(label("GET", "/a", Some(1)).key(1), label("GET", "/a", Some(1)).key(0));
        let sizes: Vec<_> = [0, 3, 4, 15, 16, 1_000, 1_000_000, u64::MAX].into_iter().map(size_of).collect();
        assert_eq!(sizes, [1, 1, 2, 2, 3, 5, 7, 7]);
    }

    #[test]
    fn a_long_name_is_cut_to_look_at_and_not_to_tell_apart() {
        let (one, other) = ("x".repeat(64), format!("{}y", "x".repeat(63)));
        assert_ne!(Label::of_action(&one, None).name, Label::of_action(&other, None).name);
        assert_eq!(Label::text_of(&Label::of_action(&one, None).text_words(true)), "x".repeat(31));
    }

    #[test]
    fn a_change_is_known_by_the_head_that_a_child_gets() {
        let head = b"PUT /items/9 HTTP/1.1\r\nHost: a\r\n\r\n";
        let label = Label::of_change(Dialect::Http, "PUT", head, 0);
        assert_eq!(label, Label::of_path(b"PUT", b"/items/7", None));
        assert_eq!(Label::of_change(Dialect::Aci, "useradd", head, 0), Label::of_action("useradd", None));
        assert_ne!(Label::of_change(Dialect::Http, "", b"", 0), Label::NONE);
    }
}
