//! A parameter that a change lacks, added once before it gets its place in the order: so that all children take the same
//! value where each would make up one of its own.
//!
//! What came is not encoded anew: the parameter is appended, to the form in the body if the action is named there and the
//! form is not written in lines, else to the target, which may share a request's parameters with any body. Chance comes
//! from outside: this is told a random number.

use super::form::decode_octet;
use crate::limits::INJECTED_DIGITS_MAX;

/// What a rule adds to the changes that it matches, unless they have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inject {
    /// As it is sent.
    pub parameter: Box<str>,
    /// Decimal digits of its value, 1 to [`INJECTED_DIGITS_MAX`]; the first is not 0.
    pub digits: u8,
}

/// What is added to one request, and where.
#[derive(Clone, Copy, Debug)]
pub struct Injection<'r> {
    /// What.
    pub inject: &'r Inject,
    /// Where.
    pub into: Into,
    /// What stands between it and what came.
    separator: &'static str,
}

/// Where a parameter is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// Behind the path and the query.
    Target,
    /// Behind the form in the body.
    Body,
}

impl<'r> Injection<'r> {
    /// `form`: the body, if the action is named in a form there.
    pub(super) fn new(inject: &'r Inject, target: &[u8], form: Option<&[u8]>) -> Self {
        match form {
            Some(body) if !body.iter().any(|octet| matches!(octet, b'\r' | b'\n')) => {
                Self { inject, into: Into::Body, separator: if body.ends_with(b"&") { "" } else { "&" } }
            }
            _ => Self { inject, into: Into::Target, separator: separator_behind(target) },
        }
    }

    /// What is to be appended. The same for the same number; numbers that are evenly spread give evenly spread values.
    #[must_use]
    pub fn text(&self, random: u128) -> String {
        let least = 10_u128.pow(u32::from(self.inject.digits) - 1);
        format!("{}{}={}", self.separator, self.inject.parameter, least + random % (9 * least))
    }
}

/// A path that holds parameters goes on with them; another gets a query.
fn separator_behind(target: &[u8]) -> &'static str {
    let has_pair = |mut path: &[u8]| {
        while !path.is_empty() {
            let (octet, taken) = decode_octet(path).unwrap_or((path[0], 1));
            if octet == b'=' {
                return true;
            }
            path = &path[taken..];
        }
        false
    };
    match target {
        [.., b'?' | b'&'] => "",
        _ if target.contains(&b'?') || has_pair(target) => "&",
        _ => "?",
    }
}

/// As the configuration writes it: `digits:18`.
pub(crate) fn digits(text: &str) -> Option<u8> {
    let number = text.strip_prefix("digits:")?;
    let count = number.parse().ok().filter(|_| !number.starts_with('+'))?;
    (1..=INJECTED_DIGITS_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_goes_and_how() {
        let inject = Inject { parameter: "Category".into(), digits: 3 };
        for (target, form, expected) in [
            ("/action=X", None, "/action=X&Category=107"),
            ("/action=X&", None, "/action=X&Category=107"),
            ("/?action=X", None, "/?action=X&Category=107"),
            ("/", None, "/?Category=107"),
            ("/?", None, "/?Category=107"),
            ("/ResponseFormat=json", None, "/ResponseFormat=json&Category=107"),
            ("/aci", None, "/aci?Category=107"),
            ("/a=b?c", None, "/a=b?c&Category=107"),
            ("/", Some("action=X"), "action=X&Category=107"),
            ("/", Some("action=X&"), "action=X&Category=107"),
            ("/", Some("action=X\r\nName=y"), "/?Category=107"),
        ] {
            let injection = Injection::new(&inject, target.as_bytes(), form.map(str::as_bytes));
            let came = if injection.into == Into::Body { form.expect("a body") } else { target };
            assert_eq!(format!("{came}{}", injection.text(907)), expected);
        }
    }

    #[test]
    fn as_many_digits_as_asked_for() {
        for digits in 1..=INJECTED_DIGITS_MAX {
            let inject = Inject { parameter: "x".into(), digits };
            for random in [0, 1, 10_u128.pow(18), u128::MAX] {
                let text = Injection::new(&inject, b"/?", None).text(random);
                let value = text.strip_prefix("x=").expect("the parameter");
                assert_eq!(value.len(), usize::from(digits));
                assert!(!value.starts_with('0'), "{value}");
            }
        }
        assert_eq!(digits("digits:18"), Some(18));
        for wrong in ["digits:0", "digits:19", "digits:", "digits:+1", "digits:-1", "18", "uuid"] {
            assert_eq!(digits(wrong), None, "{wrong}");
        }
    }
}
