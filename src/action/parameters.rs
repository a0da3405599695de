//! The parameters of a request of the dialect `http`: those of its query, and of a form in its body. For built-in rules
//! that must know what a request asks of a path.
//!
//! Each is decoded once. What servers could read in more than one way is told as a doubt, not as a fault: the rule that
//! asks will not call such a request a read, and a change may be doubtful, for all children get the same octets.

use super::Asked;
use super::aci::keeps_ascii;
use super::form::{Pairs, decode_octet};
use super::params::word_and_params;
use crate::error::Fault;

/// How much of the parameters has been seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// All there are.
    All,
    /// All that is certain; another server may find others.
    Doubtful,
    /// The body must be there first.
    NeedBody,
    /// Those of the query; and there is a body of this type, in lower case, which is no form.
    Other(String, &'a [u8]),
}

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Query,
    Body,
}

/// Shows each parameter to `see`: where it stands, name, value (empty without one). Ends with the first fault.
pub(super) fn for_each<'a>(
    asked: &Asked<'a>,
    mut see: impl FnMut(Spot, &[u8], &[u8]) -> Result<(), Fault>,
) -> Result<Seen<'a>, Fault> {
    let query = asked.target.iter().position(|octet| *octet == b'?').map_or(&[][..], |mark| &asked.target[mark + 1..]);
    let mut certain = pairs(query, |name, value| see(Spot::Query, name, value))?;
    let Some(body) = asked.whole_body() else { return Ok(Seen::NeedBody) };
    if body.is_empty() {
        return Ok(if certain { Seen::All } else { Seen::Doubtful });
    }
    let is_plain = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"identity");
    let (kind, params) = word_and_params(asked.content_type.unwrap_or_default());
    certain &= !asked.repeated_type && asked.content_encoding.is_none_or(is_plain) && keeps_ascii(params);
    match kind.to_ascii_lowercase().as_slice() {
        // Without a type some servers take it for a form, and some do not look at it.
        b"" | b"application/x-www-form-urlencoded" => {
            certain &= pairs(body, |name, value| see(Spot::Body, name, value))?;
            Ok(if certain { Seen::All } else { Seen::Doubtful })
        }
        other if certain => Ok(Seen::Other(String::from_utf8_lossy(other).into_owned(), body)),
        _ => Ok(Seen::Doubtful),
    }
}

/// False if some of the text has two readings: an encoding that is none, or a semicolon, where some servers split.
fn pairs(text: &[u8], mut see: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<bool, Fault> {
    let mut certain = true;
    for pair in Pairs::of_query(text) {
        certain &= !pair.begins_doubtfully && !pair.ends_doubtfully;
        match (decoded(pair.name), decoded(pair.value.unwrap_or_default())) {
            (Some(name), Some(value)) => see(&name, &value)?,
            _ => certain = false,
        }
    }
    Ok(certain)
}

fn decoded(mut raw: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(raw.len());
    while !raw.is_empty() {
        let (octet, taken) = decode_octet(raw)?;
        text.push(octet);
        raw = &raw[taken..];
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str, kind: Option<&str>, body: Option<&str>) -> String {
        let mut asked = Asked::bare(b"POST", target.as_bytes());
        asked.content_type = kind.map(str::as_bytes);
        let asked = body.map_or(asked, |body| asked.with_body(body.as_bytes()));
        let mut text = String::new();
        let seen = for_each(&asked, |spot, name, value| {
            text += &format!("{spot:?} {}={} ", name.escape_ascii(), value.escape_ascii());
            Ok(())
        });
        text + &format!("{:?}", seen.expect("no fault"))
    }

    #[test]
    fn query_and_form() {
        let form = Some("application/x-www-form-urlencoded; charset=UTF-8");
        assert_eq!(read("/x?a=1&b=%3D+&c", None, None), "Query a=1 Query b==  Query c= All");
        assert_eq!(read("/x", form, Some("a=1\n2&b")), "Body a=1\\n2 Body b= All");
        assert_eq!(read("/x?y=2", None, Some("a=1")), "Query y=2 Body a=1 All");
        assert_eq!(read("/x?y=2;z=3", None, None), "Query y=2 Query z=3 Doubtful");
        assert_eq!(read("/x?y=%", None, None), "Doubtful");
        assert_eq!(
            read("/x", Some("application/x-www-form-urlencoded; charset=utf-7"), Some("a=1")),
            "Body a=1 Doubtful"
        );
        assert_eq!(read("/x", Some("Application/JSON"), Some("{}")), "Other(\"application/json\", [123, 125])");
        let mut asked = Asked::bare(b"POST", b"/x");
        asked.has_body = true;
        assert_eq!(for_each(&asked, |_, _, _| Ok(())), Ok(Seen::NeedBody));
        asked.content_encoding = Some(b"gzip");
        assert_eq!(for_each(&asked.with_body(b"\x1f"), |_, _, _| Ok(())), Ok(Seen::Doubtful));
    }
}
