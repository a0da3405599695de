//! The parameters of an ACI request, for what we answer ourselves: every pair of target and body, decoded.
//!
//! For requests that [`Rules::classify`](super::Rules::classify) has found to have one reading, or for the parts of
//! others that decide nothing (in which format a fault is told): so it forgives, where the reader of actions does not.

use super::form::{Pairs, decode_octet};
use super::params::word_and_params;
use super::{Asked, multipart};
use crate::limits::OWN_BODY_BYTES_MAX;

/// Names and values, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

/// A name that came twice, with two values: which of them is meant?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated;

impl Parameters {
    /// All of the target, and of the body where that is a form, has been read, and is at most
    /// [`OWN_BODY_BYTES_MAX`]: nothing that is ours is longer, and the rest is not copied.
    #[must_use]
    pub fn of(asked: &Asked<'_>) -> Self {
        let mut found = Self::default();
        let mark = asked.target.iter().position(|octet| *octet == b'?');
        let (path, query) = asked.target.split_at(mark.unwrap_or(asked.target.len()));
        found.take(Pairs::of_path(path.strip_prefix(b"/").unwrap_or(path), false));
        found.take(Pairs::of_query(query.strip_prefix(b"?").unwrap_or(query)));
        let Some(body) = asked.body.filter(|body| body.len() <= OWN_BODY_BYTES_MAX) else { return found };
        let (kind, params) = word_and_params(asked.content_type.unwrap_or_default());
        if kind.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
            if let Ok(boundary) = multipart::boundary(params) {
                let keep = |part: multipart::Part<'_>| {
                    found.0.push((text(part.name), text(part.content)));
                    Ok(())
                };
                // What was read before a fault is read.
                let _ = multipart::for_each_part(body, boundary, keep);
            }
        } else {
            found.take(Pairs::of_body(body));
        }
        found
    }

    /// The value of a parameter, by its name in any case; `None` if it did not come.
    ///
    /// # Errors
    /// It came with two values.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Repeated> {
        let mut values = self.0.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &**value);
        let first = values.next();
        if values.any(|value| Some(value) != first) { Err(Repeated) } else { Ok(first) }
    }

    fn take(&mut self, pairs: Pairs<'_>) {
        self.0.extend(pairs.filter_map(|pair| Some((decoded(pair.name), decoded(pair.value?)))));
    }
}

/// The number that a parameter of the target, or of a form in the body, has; its name in any case, and as it stands.
/// For guesses only: of two it takes the first. Allocates nothing.
#[must_use]
pub fn numeric_parameter(asked: &Asked<'_>, name: &str) -> Option<u64> {
    let mark = asked.target.iter().position(|octet| *octet == b'?');
    let (path, query) = asked.target.split_at(mark.unwrap_or(asked.target.len()));
    let body = asked.body.filter(|body| body.len() <= OWN_BODY_BYTES_MAX).unwrap_or_default();
    let pairs = Pairs::of_path(path.strip_prefix(b"/").unwrap_or(path), false)
        .chain(Pairs::of_query(query.strip_prefix(b"?").unwrap_or(query)))
        .chain(Pairs::of_body(body));
    let mut values = pairs.filter(|pair| pair.name.eq_ignore_ascii_case(name.as_bytes()));
    std::str::from_utf8(values.next()?.value?).ok()?.parse().ok()
}

fn decoded(octets: &[u8]) -> String {
    let mut plain = Vec::with_capacity(octets.len());
    let mut at = 0;
    while at < octets.len() {
        let (octet, taken) = decode_octet(&octets[at..]).unwrap_or((octets[at], 1));
        plain.push(octet);
        at += taken;
    }
    text(&plain)
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_request_is_read() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"EngineID\"\r\n\r\n1,2\r\n--b--\r\n";
        let multipart =
            Asked { content_type: Some(b"multipart/form-data; boundary=b"), ..Asked::bare(b"POST", b"/a=x") };
        let plain = Asked { content_type: Some(b"text/plain"), ..Asked::bare(b"POST", b"/?a=x") };
        for asked in [
            Asked::bare(b"GET", b"/action=x&engineid=1,2"),
            Asked::bare(b"GET", b"/?EngineID=1%2C2&Action=x"),
            Asked::bare(b"GET", b"/a=x?%45ngineID=1,2"),
            plain.with_body(b"EngineID=1,2&b=c"),
            plain.with_body(b"b=c\r\nEngineID=1,2\r\n"),
            multipart.with_body(body),
        ] {
            let found = Parameters::of(&asked);
            assert_eq!(found.one("engineid"), Ok(Some("1,2")), "{found:?}");
            assert_eq!(found.one("engine"), Ok(None));
        }
    }

    #[test]
    fn two_values_are_none() {
        let found = Parameters::of(&Asked::bare(b"GET", b"/a=x&n=1&N=2&m=1&m=1"));
        assert_eq!((found.one("n"), found.one("m")), (Err(Repeated), Ok(Some("1"))));
    }
}
