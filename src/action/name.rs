//! Names as they stand in a request: decoded once, compared without regard to case, refused where they could be read
//! in two ways.
//!
//! Two kinds. A *parameter's name* may be anything, is mostly not the action's, and only borrows unless it is encoded.
//! The *action's name* is kept, inline and in lower case. Values of other parameters are none of our business.

use std::borrow::Cow;
use std::fmt;

use super::form::decode_octet;
use crate::error::Fault;
use crate::limits::ACTION_NAME_BYTES_MAX;

/// An action's name in lower case, or a method's; at most [`ACTION_NAME_BYTES_MAX`] octets, visible ASCII and inner
/// blanks only. Inline, so that keeping it allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ActionName {
    len: u8,
    octets: [u8; ACTION_NAME_BYTES_MAX],
}

/// A parameter's name after one decoding.
pub(super) struct ParameterName<'a> {
    text: Cow<'a, [u8]>,
    /// Where in `text` the name stands once blanks around it and a path in front are taken off.
    bare: (usize, usize),
}

// === impl ActionName ===

impl ActionName {
    /// No name: the request has none.
    pub const EMPTY: Self = Self { len: 0, octets: [0; ACTION_NAME_BYTES_MAX] };

    /// The name; empty where there is none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ASCII is ever pushed.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// The value of `action` in a form or a target, encoded as it came.
    ///
    /// # Errors
    /// [`Fault::ActionMissing`] if it is empty, [`Fault::ActionAmbiguous`] if it has more than one reading.
    pub(super) fn decode(raw: &[u8]) -> Result<Self, Fault> {
        let mut name = Self::EMPTY;
        let mut at = 0;
        while at < raw.len() {
            let Some((octet, taken)) = decode_octet(&raw[at..]) else {
                return Err(Fault::ActionAmbiguous(VALUE_ENCODING));
            };
            name.push_checked(octet)?;
            at += taken;
        }
        name.checked_whole()
    }

    /// The value of `action` in a part, where nothing is encoded. A percent sign or a plus could be decoded by some.
    pub(super) fn literal(raw: &[u8]) -> Result<Self, Fault> {
        let mut name = Self::EMPTY;
        for &octet in raw {
            if octet == b'+' {
                return Err(Fault::ActionAmbiguous(VALUE_SEPARATOR));
            }
            name.push_checked(octet)?;
        }
        name.checked_whole()
    }

    /// A method's name, cut where it is too long: only shown, never compared.
    pub(super) fn of_method(method: &[u8]) -> Self {
        let mut name = Self::EMPTY;
        for octet in method.iter().filter(|octet| octet.is_ascii_graphic()).take(ACTION_NAME_BYTES_MAX) {
            name.push(*octet);
        }
        name
    }

    fn push(&mut self, octet: u8) {
        debug_assert!(octet.is_ascii());
        self.octets[usize::from(self.len)] = octet.to_ascii_lowercase();
        self.len += 1;
    }

    fn push_checked(&mut self, octet: u8) -> Result<(), Fault> {
        match octet {
            0..0x20 | 0x7f => return Err(Fault::ActionAmbiguous(VALUE_CONTROL)),
            0x80.. => return Err(Fault::ActionAmbiguous(VALUE_NOT_ASCII)),
            // What a server that decodes twice, or splits after decoding, would take for the end of the name.
            b'&' | b'=' | b';' | b'?' | b'#' | b'%' | b'/' | b'\\' | b'"' | b'\'' => {
                return Err(Fault::ActionAmbiguous(VALUE_SEPARATOR));
            }
            _ => {}
        }
        if usize::from(self.len) == ACTION_NAME_BYTES_MAX {
            return Err(Fault::ActionAmbiguous(VALUE_LONG));
        }
        self.push(octet);
        Ok(())
    }

    fn checked_whole(self) -> Result<Self, Fault> {
        match self.as_bytes() {
            [] => Err(Fault::ActionMissing),
            [b' ', ..] | [.., b' '] => Err(Fault::ActionAmbiguous(VALUE_BLANK)),
            _ => Ok(self),
        }
    }
}

impl fmt::Debug for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ParameterName ===

impl<'a> ParameterName<'a> {
    /// Reads a name as it came. Allocates only where it holds more than letters, digits, `_`, `-` and `.`.
    ///
    /// # Errors
    /// [`Fault::ActionAmbiguous`] if it has more than one reading.
    pub(super) fn decode(raw: &'a [u8]) -> Result<Self, Fault> {
        if raw.iter().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b'-' | b'.')) {
            return Ok(Self { text: Cow::Borrowed(raw), bare: (0, raw.len()) });
        }
        Self::decode_odd(raw)
    }

    /// Reads a name as the most forgiving server would. For text that may be anything, where a doubt is no fault.
    pub(super) fn decode_loosely(raw: &'a [u8]) -> Self {
        Self::decode(raw).unwrap_or_else(|_| {
            let octets = decode_leniently(&decode_leniently(raw));
            // Where a server in C ends it.
            let octets = octets.split(|octet| *octet == 0).next().unwrap_or_default();
            let text: String = String::from_utf8_lossy(octets)
                .chars()
                .map(|letter| match ascii_twin(letter) {
                    Some(twin) => twin,
                    None if letter.is_control() || passes_for_ascii(letter) => ' ',
                    None => letter,
                })
                .collect();
            let bare = bare_range(text.as_bytes());
            Self { text: Cow::Owned(text.into_bytes()), bare }
        })
    }

    #[cold]
    fn decode_odd(raw: &[u8]) -> Result<Self, Fault> {
        let mut text = Vec::with_capacity(raw.len());
        let mut at = 0;
        while at < raw.len() {
            let Some((octet, taken)) = decode_octet(&raw[at..]) else {
                return Err(Fault::ActionAmbiguous(NAME_ENCODING));
            };
            if octet.is_ascii_control() {
                return Err(Fault::ActionAmbiguous(NAME_CONTROL));
            }
            text.push(octet);
            at += taken;
        }
        let Ok(letters) = std::str::from_utf8(&text) else {
            return Err(Fault::ActionAmbiguous(NAME_NOT_UTF8));
        };
        if letters.contains(passes_for_ascii) {
            return Err(Fault::ActionAmbiguous(NAME_FOLDS));
        }
        let bare = bare_range(&text);
        if is_action(&decode_leniently(&text[bare.0..bare.1])) && !is_action(&text[bare.0..bare.1]) {
            return Err(Fault::ActionAmbiguous(NAME_TWICE_ENCODED));
        }
        Ok(Self { text: Cow::Owned(text), bare })
    }

    /// The name without blanks around it and without a path in front: what a lenient server may look up.
    pub(super) fn bare(&self) -> &[u8] {
        &self.text[self.bare.0..self.bare.1]
    }

    /// `action` or `a` and nothing else.
    pub(super) fn is_exactly_action(&self) -> bool {
        is_action(&self.text)
    }

    /// Whether some server would take it for the name of the action's parameter.
    pub(super) fn may_name_action(&self) -> bool {
        is_action(self.bare())
    }

    /// Whether it is the name of the action's parameter, to every server.
    ///
    /// # Errors
    /// [`Fault::ActionAmbiguous`] if only some would.
    pub(super) fn names_action(&self) -> Result<bool, Fault> {
        match self.may_name_action() {
            true if self.bare != (0, self.text.len()) => Err(Fault::ActionAmbiguous(NAME_WRAPPED)),
            named => Ok(named),
        }
    }
}

fn is_action(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"action") || name.eq_ignore_ascii_case(b"a")
}

fn bare_range(text: &[u8]) -> (usize, usize) {
    let is_path = |octet: &u8| matches!(octet, b'/' | b'\\' | b'?');
    let end = text.iter().rposition(|octet| *octet != b' ' && !is_path(octet)).map_or(0, |last| last + 1);
    let path = text[..end].iter().rposition(is_path).map_or(0, |slash| slash + 1);
    let blanks = text[path..end].iter().take_while(|octet| **octet == b' ').count();
    (path + blanks, end)
}

/// Decodes what is validly encoded and keeps the rest.
pub(super) fn decode_leniently(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (octet, taken) = decode_octet(&text[at..]).unwrap_or((text[at], 1));
        decoded.push(octet);
        at += taken;
    }
    decoded
}

/// What some servers take for an ASCII letter when they compare (its upper or lower case is one in some locale: i
/// without a dot and with one, the long s, the Kelvin sign), or for a blank when they trim. A server that compares by
/// Unicode's rules would find `action` in `actıon`.
fn passes_for_ascii(letter: char) -> bool {
    ascii_twin(letter).is_some()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{feff}')
        || (!letter.is_ascii() && letter.is_whitespace())
}

const fn ascii_twin(letter: char) -> Option<char> {
    match letter {
        '\u{131}' | '\u{130}' => Some('i'),
        '\u{17f}' => Some('s'),
        '\u{212a}' => Some('k'),
        _ => None,
    }
}

const _: () = assert!(ACTION_NAME_BYTES_MAX == 64, "a text below says so");

// What the client is told.
const NAME_ENCODING: &str = "A parameter's name is not validly percent-encoded. Encode a percent sign as %25.";
const NAME_CONTROL: &str = "A parameter's name holds a control character. Remove it.";
const NAME_NOT_UTF8: &str = "A parameter's name is not UTF-8. Encode it as UTF-8.";
const NAME_FOLDS: &str =
    "A parameter's name holds a letter or blank that some servers take for an ASCII one. Use the ASCII one.";
const NAME_TWICE_ENCODED: &str =
    "The name of the action's parameter is percent-encoded twice. Encode it once, or not at all.";
const NAME_WRAPPED: &str = "Blanks or a path stand around the name of the action's parameter. Write /action=NAME.";
const VALUE_ENCODING: &str = "The action's name is not validly percent-encoded.";
const VALUE_CONTROL: &str = "The action's name holds a control character. Remove it.";
const VALUE_NOT_ASCII: &str = "The action's name holds letters outside ASCII, which no action has.";
const VALUE_SEPARATOR: &str =
    "The action's name holds a separator, an encoded one perhaps. Separate parameters by a plain &.";
const VALUE_BLANK: &str = "The action's name begins or ends with a blank. Remove it.";
const VALUE_LONG: &str = "The action's name is longer than 64 octets, which no action's is.";
