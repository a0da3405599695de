//! What a probe's answer must be: a list of statuses and a pattern for the body.

use std::fmt;
use std::str::FromStr;

use super::Failure;

/// What counts as a good answer to a probe. The default is any 2xx or 3xx status, as in HAProxy and nginx plus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// One of these must fit; never empty.
    status: Vec<StatusPattern>,
    /// All of the body, as far as it was kept, must fit this: `*` stands for any octets, also none.
    body: Option<Box<str>>,
}

/// One status, or a whole class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPattern {
    /// Exactly this one.
    Is(u16),
    /// `2xx` is `Class(2)`.
    Class(u8),
}

/// A list of statuses that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectError;

impl Expect {
    /// `status` is `"200"`, `"2xx"` or a list with commas, `"2xx, 304"`; `body` a pattern in which `*` stands for any
    /// octets.
    ///
    /// # Errors
    /// If an item of the list is neither a status from 100 to 599 nor `1xx` to `5xx`.
    ///
    /// ```
    /// use antiphon::probe::Expect;
    /// let expect = Expect::parse("200", Some("*SUCCESS*"))?;
    /// assert!(expect.judge(200, b"<response>SUCCESS</response>").is_ok());
    /// assert!(expect.judge(200, b"<response>ERROR</response>").is_err());
    /// # Ok::<(), antiphon::probe::ExpectError>(())
    /// ```
    pub fn parse(status: &str, body: Option<&str>) -> Result<Self, ExpectError> {
        let status = status.split(',').map(|item| item.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Self { status, body: body.map(Box::from) })
    }

    /// The statuses that are good, as [`parse`](Self::parse) takes them.
    #[must_use]
    pub fn statuses(&self) -> String {
        let word = |pattern: &StatusPattern| match pattern {
            StatusPattern::Is(status) => status.to_string(),
            StatusPattern::Class(class) => format!("{class}xx"),
        };
        self.status.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    /// The pattern of the body, if it matters.
    #[must_use]
    pub fn body(&self) -> Option<&str> {
        self.body.as_deref()
    }

    /// Must the lane keep the body of the answer?
    #[must_use]
    pub const fn wants_body(&self) -> bool {
        self.body.is_some()
    }

    /// Judges an answer. `body_prefix` is the body, or as much of it as the lane keeps
    /// ([`PROBE_BODY_BYTES_MAX`](crate::limits::PROBE_BODY_BYTES_MAX)): of a longer one only the beginning is judged,
    /// so a pattern for it should end with `*`.
    ///
    /// # Errors
    /// What the answer did not fit.
    pub fn judge(&self, status: u16, body_prefix: &[u8]) -> Result<(), Failure> {
        if !self.status.iter().any(|pattern| pattern.fits(status)) {
            return Err(Failure::Status(status));
        }
        if self.body.as_ref().is_some_and(|pattern| !glob(pattern.as_bytes(), body_prefix)) {
            return Err(Failure::Body);
        }
        Ok(())
    }
}

impl Default for Expect {
    fn default() -> Self {
        Self { status: vec![StatusPattern::Class(2), StatusPattern::Class(3)], body: None }
    }
}

impl StatusPattern {
    const fn fits(self, status: u16) -> bool {
        match self {
            Self::Is(one) => status == one,
            Self::Class(class) => status / 100 == class as u16,
        }
    }
}

impl FromStr for StatusPattern {
    type Err = ExpectError;

    fn from_str(text: &str) -> Result<Self, ExpectError> {
        match text.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => Ok(Self::Class(class - b'0')),
            [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                let digit = |octet: &u8| u16::from(octet - b'0');
                Ok(Self::Is(digit(a) * 100 + digit(b) * 10 + digit(c)))
            }
            _ => Err(ExpectError),
        }
    }
}

impl fmt::Display for ExpectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an expected status is one as \"200\", a class as \"2xx\", or a list of them as \"2xx, 304\"")
    }
}

impl std::error::Error for ExpectError {}

/// Does all of `text` fit `pattern`, in which `*` stands for any octets? Octets are compared as they are. At most
/// `pattern × text` steps: only the last `*` is ever gone back to.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(octet) if *octet == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (p, t) = (after, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|octet| *octet == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let expect = Expect::parse("2xx, 304,418", None).unwrap();
        for good in [200, 204, 299, 304, 418] {
            assert_eq!(expect.judge(good, b"anything"), Ok(()));
        }
        for bad in [100, 199, 300, 305, 404, 500] {
            assert_eq!(expect.judge(bad, b""), Err(Failure::Status(bad)));
        }
        assert!(Expect::default().judge(301, b"").is_ok() && !Expect::default().wants_body());
        for text in ["", "20", "2x", "6xx", "0xx", "600", "099", "200,", "200 204", "+20", "2000"] {
            assert_eq!(Expect::parse(text, None), Err(ExpectError), "{text:?}");
        }
    }

    #[test]
    fn bodies() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("*b*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab*ab", "abab", false),
            ("a**b", "ab", true),
            ("*SUCCESS*", "<r>ERROR</r>", false),
            ("Success", "success", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), fits, "{pattern:?} {text:?}");
        }
        // Many stars against a body that almost fits: the bound on the steps holds.
        let pattern = "*a".repeat(500) + "b";
        assert!(!glob(pattern.as_bytes(), &vec![b'a'; 60_000]));
    }
}
