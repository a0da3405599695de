//! What a probe asks: the text of the configuration as a method and a target.

use std::fmt;
use std::str::FromStr;

/// What is sent to a child to see whether it answers.
///
/// ```
/// use antiphon::probe::Request;
/// assert_eq!("tcp".parse(), Ok(Request::Tcp));
/// let ping: Request = "GET /action=GetPid".parse().unwrap();
/// assert_eq!(ping, Request::Http { method: "GET".into(), target: "/action=GetPid".into() });
/// assert_eq!(ping.to_string(), "GET /action=GetPid");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A connection that stands is answer enough. Nothing is sent.
    Tcp,
    /// One HTTP/1.1 request without a body.
    Http {
        /// `GET`, `HEAD` or `OPTIONS`: a probe must not change anything.
        method: Box<str>,
        /// Path and query, sent as it stands: begins with `/`, holds no space and no control character.
        target: Box<str>,
    },
}

/// Why a text is not a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Neither `tcp` nor a method and a target.
    Shape,
    /// The method may change something.
    Method,
    /// The target does not begin with `/`, or holds what a target cannot (RFC 9112 3.2).
    Target,
}

impl FromStr for Request {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        if text.eq_ignore_ascii_case("tcp") {
            return Ok(Self::Tcp);
        }
        let (method, target) = text.split_once(' ').ok_or(RequestError::Shape)?;
        if !matches!(method, "GET" | "HEAD" | "OPTIONS") {
            return Err(RequestError::Method);
        }
        if !target.starts_with('/') || !target.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'#') {
            return Err(RequestError::Target);
        }
        Ok(Self::Http { method: method.into(), target: target.into() })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Http { method, target } => write!(f, "{method} {target}"),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "a probe is \"tcp\", or a method and a target as in \"GET /health\"",
            Self::Method => "a probe's method is GET, HEAD or OPTIONS, in capitals: a probe must not change anything",
            Self::Target => {
                "a probe's target begins with \"/\" and holds no space, control character or \"#\"; percent-encode them"
            }
        })
    }
}

impl std::error::Error for RequestError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_probe_is_refused_with_its_reason() {
        for (text, error) in [
            ("", RequestError::Shape),
            ("GET", RequestError::Shape),
            ("/health", RequestError::Shape),
            ("POST /a", RequestError::Method),
            ("get /a", RequestError::Method),
            (" /a", RequestError::Method),
            ("GET  /a", RequestError::Target),
            ("GET /a b", RequestError::Target),
            ("GET /a\r\nX: y", RequestError::Target),
            ("GET /a#b", RequestError::Target),
            ("GET http://a/", RequestError::Target),
            ("GET /\u{e9}", RequestError::Target),
        ] {
            assert_eq!(text.parse::<Request>(), Err(error), "{text:?}");
        }
    }
}
