//! The parts of a multipart body (RFC 2046 5.1, RFC 7578), cut in the one way in which every parser cuts them.
//!
//! Knows nothing of actions. Whatever parsers are known to differ on is refused: text before the first boundary or
//! behind the last, line ends other than CRLF at a boundary or in a part's head, a boundary with something behind it,
//! a missing last boundary, a part without a name or with two, folded fields, a part that is itself multipart.

use super::params::{Params, is_token, word_and_params};
use crate::error::Fault;
use crate::limits::{MULTIPART_BOUNDARY_BYTES_MAX, MULTIPART_PART_HEAD_BYTES_MAX, MULTIPART_PARTS_MAX};

const _: () = assert!(MULTIPART_PARTS_MAX == 4096 && MULTIPART_PART_HEAD_BYTES_MAX == 4096, "the texts below say so");

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Its name, nothing decoded.
    pub(super) name: &'a [u8],
    pub(super) content: &'a [u8],
    /// It has a file name, a transfer encoding, or a type of its own: some servers would not take it for a parameter.
    pub(super) is_odd: bool,
}

/// The boundary that a content type's parameters name.
///
/// # Errors
/// [`Fault::ActionAmbiguous`] if there is none, more than one, or one that RFC 2046 5.1.1 does not allow.
pub(super) fn boundary<'a>(params: Params<'a>) -> Result<&'a [u8], Fault> {
    let mut found: Option<&'a [u8]> = None;
    for param in params {
        let (name, value) = param.map_err(|_| Fault::ActionAmbiguous(BOUNDARY))?;
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return Err(Fault::ActionAmbiguous(BOUNDARY));
        }
    }
    let is_valid = |text: &&[u8]| {
        (1..=MULTIPART_BOUNDARY_BYTES_MAX).contains(&text.len())
            && text.iter().all(|octet| octet.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(octet))
            && !text.ends_with(b" ")
    };
    found.filter(is_valid).ok_or(Fault::ActionAmbiguous(BOUNDARY))
}

/// Calls `each` with every part, in order. Work is linear in the body.
///
/// # Errors
/// [`Fault::ActionAmbiguous`] if the body can be cut in more than one way, and what `each` returns.
pub(super) fn for_each_part<'a>(
    body: &'a [u8],
    boundary: &[u8],
    mut each: impl FnMut(Part<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    // Some clients send an empty line first.
    let mut rest = body.strip_prefix(b"\r\n").unwrap_or(body);
    for _ in 0..=MULTIPART_PARTS_MAX {
        let after = after_boundary(rest, boundary).ok_or(Fault::ActionAmbiguous(FIRST))?;
        rest = match after {
            After::Part(text) => text,
            After::End(text) if text.iter().all(|octet| matches!(octet, b'\r' | b'\n')) => return Ok(()),
            After::End(_) => return Err(Fault::ActionAmbiguous(EPILOGUE)),
            After::Neither => return Err(Fault::ActionAmbiguous(BOUNDARY_LINE)),
        };
        let (mut part, content_on) = head(rest)?;
        let end = content_end(content_on, boundary)?;
        part.content = &content_on[..end];
        rest = &content_on[end + 2..];
        each(part)?;
    }
    Err(Fault::ActionAmbiguous(TOO_MANY))
}

/// What stands behind a boundary.
enum After<'a> {
    /// A part begins.
    Part(&'a [u8]),
    /// It was the last; this follows.
    End(&'a [u8]),
    /// Something that some parsers would take for a boundary, and some not.
    Neither,
}

/// `None` if `line` does not begin with the boundary.
fn after_boundary<'a>(line: &'a [u8], boundary: &[u8]) -> Option<After<'a>> {
    let rest = line.strip_prefix(b"--")?.strip_prefix(boundary)?;
    let (is_last, rest) = rest.strip_prefix(b"--").map_or((false, rest), |rest| (true, rest));
    let blanks = rest.iter().take_while(|octet| matches!(octet, b' ' | b'\t')).count();
    Some(match (&rest[blanks..], is_last) {
        ([b'\r', b'\n', next @ ..], false) => After::Part(next),
        ([b'\r', b'\n', next @ ..], true) => After::End(next),
        ([], true) => After::End(&[]),
        _ => After::Neither,
    })
}

/// Reads a part's head. Gives the part without its content, and everything behind the empty line.
fn head(text: &[u8]) -> Result<(Part<'_>, &[u8]), Fault> {
    let mut rest = text;
    let mut name = None;
    let mut is_odd = false;
    loop {
        let budget = MULTIPART_PART_HEAD_BYTES_MAX.saturating_sub(text.len() - rest.len());
        let end =
            rest.iter().take(budget).position(|octet| *octet == b'\n').ok_or(Fault::ActionAmbiguous(HEAD_LONG))?;
        let line = rest[..end].strip_suffix(b"\r").ok_or(Fault::ActionAmbiguous(HEAD))?;
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|octet| *octet == b':').ok_or(Fault::ActionAmbiguous(HEAD))?;
        let (field, value) = (&line[..colon], &line[colon + 1..]);
        if !is_token(field) || value.iter().any(|octet| octet.is_ascii_control() && *octet != b'\t') {
            return Err(Fault::ActionAmbiguous(HEAD));
        }
        if field.eq_ignore_ascii_case(b"content-disposition") {
            let (found, is_file) = disposition(value)?;
            is_odd |= is_file;
            if name.replace(found).is_some() {
                return Err(Fault::ActionAmbiguous(NAME));
            }
        } else if field.eq_ignore_ascii_case(b"content-type") {
            if value.trim_ascii().get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/")) {
                return Err(Fault::ActionAmbiguous(NESTED));
            }
            is_odd |= !is_plain_text(value);
        } else if field.eq_ignore_ascii_case(b"content-transfer-encoding") {
            is_odd = true;
        }
    }
    let name = name.ok_or(Fault::ActionAmbiguous(NAME))?;
    Ok((Part { name, content: &[], is_odd }, rest))
}

/// The name in a `Content-Disposition`, and whether it is a file's.
fn disposition(value: &[u8]) -> Result<(&[u8], bool), Fault> {
    let (_, params) = word_and_params(value);
    let mut found = None;
    let mut is_file = false;
    for param in params {
        let (key, value) = param.map_err(|_| Fault::ActionAmbiguous(NAME))?;
        if key.eq_ignore_ascii_case(b"name") {
            if found.replace(value).is_some() || value.contains(&b'\\') {
                return Err(Fault::ActionAmbiguous(NAME));
            }
        } else if key.eq_ignore_ascii_case(b"name*") || key.eq_ignore_ascii_case(b"name*0") {
            return Err(Fault::ActionAmbiguous(NAME));
        } else {
            is_file |= key.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"filename"));
        }
    }
    found.map(|name| (name, is_file)).ok_or(Fault::ActionAmbiguous(NAME))
}

/// A part's type that leaves its octets what they are: `text/plain`, in no charset or one that holds ASCII.
fn is_plain_text(value: &[u8]) -> bool {
    let (word, params) = word_and_params(value);
    word.eq_ignore_ascii_case(b"text/plain") && super::aci::keeps_ascii(params)
}

/// Where the content ends: the CRLF before the next boundary.
fn content_end(text: &[u8], boundary: &[u8]) -> Result<usize, Fault> {
    if after_boundary(text, boundary).is_some() {
        // A part without even its empty line's end: by RFC 2046 it has no body, others look for the next boundary.
        return Err(Fault::ActionAmbiguous(BOUNDARY_LINE));
    }
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|octet| matches!(octet, b'\r' | b'\n')) {
        let end = at + found;
        let is_crlf = text[end..].starts_with(b"\r\n");
        at = end + if is_crlf { 2 } else { 1 };
        // Lines do not overlap and a boundary holds no line end, so that all these comparisons together are linear.
        if after_boundary(&text[at..], boundary).is_some() {
            return if is_crlf { Ok(end) } else { Err(Fault::ActionAmbiguous(BOUNDARY_LINE)) };
        }
    }
    Err(Fault::ActionAmbiguous(CUT_SHORT))
}

// What the client is told.
const BOUNDARY: &str = "The multipart type has no boundary, two of them, or one that RFC 2046 5.1.1 does not allow.";
const FIRST: &str = "The multipart body does not begin with its boundary.";
const BOUNDARY_LINE: &str = "A multipart boundary is not a line of its own that ends with CRLF.";
const EPILOGUE: &str = "Text follows the last multipart boundary. Remove it.";
const HEAD: &str = "The head of a multipart part is not a list of fields that end with CRLF.";
const HEAD_LONG: &str = "The head of a multipart part does not end within 4096 octets.";
const NAME: &str = "A multipart part has no name, two of them, or one that can be read in two ways.";
const NESTED: &str = "A multipart part is itself multipart. Send its parts one by one.";
const CUT_SHORT: &str = "The multipart body ends before its last boundary.";
const TOO_MANY: &str = "The multipart body has more than 4096 parts.";

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
        let mut parts = Vec::new();
        for_each_part(body, b"B", |part| {
            let mark = if part.is_odd { "!" } else { "" };
            parts.push((format!("{mark}{}", part.name.escape_ascii()), part.content.escape_ascii().to_string()));
            Ok(())
        })?;
        Ok(parts)
    }

    #[test]
    fn cuts_what_clients_send() {
        let body =
            b"--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--B\r\ncontent-disposition: form-data; \
            name=y; filename=\"C:\\a;b.txt\"\r\nContent-Type: text/plain\r\n\r\n\r\n-\r\n--\r\n\r\n--B--\r\n";
        assert_eq!(cut(body), Ok(vec![("x".into(), "1".into()), ("!y".into(), "\\r\\n-\\r\\n--\\r\\n".into())]));
        assert_eq!(
            cut(b"\r\n--B \t\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--B--").map(|p| p.len()),
            Ok(1)
        );
        assert_eq!(cut(b"--B--\r\n"), Ok(vec![]));
        for (kind, odd) in [
            ("Content-Type: text/plain; charset=utf-8", false),
            ("Content-Type: text/plain; charset=utf-16", true),
            ("Content-Type: application/json", true),
            ("Content-Transfer-Encoding: base64", true),
        ] {
            let body = format!("--B\r\n{kind}\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--B--");
            assert_eq!(cut(body.as_bytes()).map(|p| p[0].0.starts_with('!')), Ok(odd), "{kind}");
        }
    }

    #[test]
    fn refuses_what_parsers_differ_on() {
        let of = |head: &str, rest: &str| format!("--B\r\nContent-Disposition: form-data; name=x{head}\r\n\r\n{rest}");
        let long = format!("\r\nX: {}", "y".repeat(MULTIPART_PART_HEAD_BYTES_MAX));
        for (body, why) in [
            (String::new(), FIRST),
            ("preamble\r\n--B--".into(), FIRST),
            ("--C--".into(), FIRST),
            ("--BB\r\n".into(), BOUNDARY_LINE),
            ("--B\n".into(), BOUNDARY_LINE),
            ("--B--\r\nx".into(), EPILOGUE),
            ("--B--x".into(), BOUNDARY_LINE),
            ("--B\r\n".into(), HEAD_LONG),
            (of(&long, "1\r\n--B--"), HEAD_LONG),
            (of("", "1"), CUT_SHORT),
            (of("", "1\r\n--B"), BOUNDARY_LINE),
            (of("", "1\n--B--"), BOUNDARY_LINE),
            (of("", "1\r--B--"), BOUNDARY_LINE),
            (of("", "1\r\n--BC\r\n"), BOUNDARY_LINE),
            (of("", "--B--"), BOUNDARY_LINE),
            (of("; name=y", "1\r\n--B--"), NAME),
            (of("; name*=utf-8''y", "1\r\n--B--"), NAME),
            (of("; filename=\"a; name=y\"", "1\r\n--B--"), NAME),
            (of("\r\nContent-Disposition: form-data; name=y", "1\r\n--B--"), NAME),
            (of("\r\n folded", "1\r\n--B--"), HEAD),
            (of("\nX: y", "1\r\n--B--"), HEAD),
            (of("\r\nX : y", "1\r\n--B--"), HEAD),
            (of("\r\nX: \0", "1\r\n--B--"), HEAD),
            (of("\r\nContent-Type: multipart/mixed; boundary=C", "1\r\n--B--"), NESTED),
            ("--B\r\nContent-Type: text/plain\r\n\r\n1\r\n--B--".into(), NAME),
        ] {
            assert_eq!(cut(body.as_bytes()), Err(Fault::ActionAmbiguous(why)), "{}", body.escape_debug());
        }
        let part = of("", "1\r\n");
        assert_eq!(
            cut((part.repeat(MULTIPART_PARTS_MAX + 1) + "--B--").as_bytes()),
            Err(Fault::ActionAmbiguous(TOO_MANY))
        );
    }

    #[test]
    fn boundaries() {
        let of = |value: &'static str| boundary(word_and_params(value.as_bytes()).1);
        assert_eq!(of("multipart/form-data; boundary=----WebKit1"), Ok(&b"----WebKit1"[..]));
        assert_eq!(of("multipart/form-data; charset=utf-8; BOUNDARY=\"a b\""), Ok(&b"a b"[..]));
        for value in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=a; boundary=a",
            "multipart/form-data; boundary=a, boundary=b",
            "multipart/form-data; boundary=1234567890123456789012345678901234567890123456789012345678901234567890x",
        ] {
            assert_eq!(of(value), Err(Fault::ActionAmbiguous(BOUNDARY)), "{value}");
        }
    }
}
