//! One field of a head: its line, its name, the lists in its value.
//!
//! Not what fields mean together: that is for [`super::request`] and [`super::response`].

use std::ops::Range;

use crate::error::Fault;
use crate::http::Span;
use crate::limits::CONNECTION_OPTIONS_MAX;

/// A field of a head, as ranges of the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Field {
    pub(in crate::http) name: Span,
    /// Without white space around it (RFC 9112 5.1).
    pub(in crate::http) value: Span,
    pub(in crate::http) known: Known,
    /// `Connection` names it: it stops here (RFC 9110 7.6.1).
    pub(in crate::http) stops_here: bool,
}

impl Field {
    pub(super) fn new(buf: &[u8], name: Span, value: Span) -> Self {
        Self { name, value, known: Known::named(name.of(buf)), stops_here: false }
    }
}

/// The fields that we read, replace or drop. The rest is [`Known::Other`] and passes as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Known {
    Other,
    /// One of the names below with `_` for `-`. Servers that hand fields to programs as environment variables
    /// (RFC 3875 4.1.18) cannot tell the two apart, so a client could set what we overwrite: dropped in requests.
    Lookalike,
    AntiphonMinSequence,
    Connection,
    ContentLength,
    Date,
    Expect,
    Forwarded,
    Host,
    Http2Settings,
    KeepAlive,
    ProxyConnection,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Via,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    XRealIp,
}

impl Known {
    /// The field with this name, in any case (RFC 9110 5.1).
    pub(in crate::http) fn named(name: &[u8]) -> Self {
        let candidates: &[(&[u8], Self)] = match name.len() {
            2 => &[(b"te", Self::Te)],
            3 => &[(b"via", Self::Via)],
            4 => &[(b"host", Self::Host), (b"date", Self::Date)],
            6 => &[(b"expect", Self::Expect)],
            7 => &[(b"upgrade", Self::Upgrade), (b"trailer", Self::Trailer)],
            9 => &[(b"forwarded", Self::Forwarded), (b"x-real-ip", Self::XRealIp)],
            10 => &[(b"connection", Self::Connection), (b"keep-alive", Self::KeepAlive)],
            14 => &[(b"content-length", Self::ContentLength), (b"http2-settings", Self::Http2Settings)],
            15 => &[(b"x-forwarded-for", Self::XForwardedFor)],
            16 => &[(b"x-forwarded-host", Self::XForwardedHost), (b"proxy-connection", Self::ProxyConnection)],
            17 => &[(b"x-forwarded-proto", Self::XForwardedProto), (b"transfer-encoding", Self::TransferEncoding)],
            21 => &[(b"antiphon-min-sequence", Self::AntiphonMinSequence)],
            _ => return Self::Other,
        };
        for (candidate, known) in candidates {
            if name.eq_ignore_ascii_case(candidate) {
                return *known;
            }
        }
        let looks_like = |candidate: &[u8]| {
            name.iter()
                .zip(candidate)
                .all(|(ours, theirs)| ours.eq_ignore_ascii_case(theirs) || (*ours == b'_' && *theirs == b'-'))
        };
        if name.contains(&b'_') && candidates.iter().any(|(candidate, _)| looks_like(candidate)) {
            return Self::Lookalike;
        }
        Self::Other
    }
}

/// What is wrong with a field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A CR within the line.
    LineEnd,
    /// Begins with white space: a folded value (RFC 9112 5.2), or a line to hide in (2.2).
    Folded,
    /// No name, no colon, or a name that is not a token.
    Name,
    /// White space before the colon.
    SpaceBeforeColon,
    /// A control character in the value.
    Value,
}

impl Flaw {
    pub(super) const fn in_request(self) -> Fault {
        match self {
            Self::LineEnd => Fault::LineEndBare,
            Self::Folded => Fault::FieldFolded,
            Self::Name => Fault::FieldNameInvalid,
            Self::SpaceBeforeColon => Fault::FieldSpaceBeforeColon,
            Self::Value => Fault::FieldValueInvalid,
        }
    }

    pub(super) const fn in_response(self) -> Fault {
        Fault::ChildHeadInvalid(match self {
            Self::LineEnd => "A CR or LF stands alone in the head of the child's answer (RFC 9112 2.2).",
            Self::Folded => "A field line of the child's answer begins with white space (RFC 9112 5.2).",
            Self::Name => "A field line of the child's answer does not begin with a token and a colon (RFC 9112 5).",
            Self::SpaceBeforeColon => "White space stands before a field's colon in the child's answer (RFC 9112 5.1).",
            Self::Value => "A field of the child's answer holds a control character (RFC 9110 5.5).",
        })
    }
}

/// Reads one field line without its CR LF: the fallback of httparse, and its twin.
pub(super) fn read_line(buf: &[u8], line: Range<usize>) -> Result<Field, Flaw> {
    let start = line.start;
    let octets = &buf[line.clone()];
    if octets.contains(&b'\r') {
        return Err(Flaw::LineEnd);
    }
    if matches!(octets.first(), Some(b' ' | b'\t')) {
        return Err(Flaw::Folded);
    }
    let name_len = octets.iter().take_while(|octet| is_tchar(**octet)).count();
    if name_len == 0 {
        return Err(Flaw::Name);
    }
    let behind = &octets[name_len..];
    if !behind.starts_with(b":") {
        // RFC 9112 5.1: white space here hid Transfer-Encoding from one of two hops.
        let colon = behind.trim_ascii_start().starts_with(b":");
        return Err(if colon { Flaw::SpaceBeforeColon } else { Flaw::Name });
    }
    let value = Span::new(start + name_len + 1, line.end);
    let value = trim(buf, value);
    // RFC 9110 5.5: VCHAR, SP, HTAB, obs-text.
    let is_text = |octet: &u8| matches!(octet, b'\t' | b' '..=0x7e | 0x80..);
    if !value.of(buf).iter().all(is_text) {
        return Err(Flaw::Value);
    }
    Ok(Field::new(buf, Span::new(start, start + name_len), value))
}

/// `span` without optional white space at its ends (RFC 9110 5.6.3: SP and HTAB only).
fn trim(buf: &[u8], span: Span) -> Span {
    let octets = span.of(buf);
    let is_content = |octet: &u8| !matches!(octet, b' ' | b'\t');
    let Some(first) = octets.iter().position(is_content) else {
        return Span { start: span.start, end: span.start };
    };
    let last = octets.iter().rposition(is_content).expect("one was found from the other end");
    let start = span.start as usize;
    Span::new(start + first, start + last + 1)
}

/// Whether an octet may stand in a token (RFC 9110 5.6.2).
pub(in crate::http) const fn is_tchar(octet: u8) -> bool {
    matches!(
        octet,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
            | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
    )
}

/// Whether `octets` are a token (RFC 9110 5.6.2).
pub(in crate::http) fn is_token(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|octet| is_tchar(*octet))
}

/// The members of a comma-separated list without white space around them; empty ones are passed over
/// (RFC 9110 5.6.1.2). Only for lists whose members hold no quoted strings.
pub(in crate::http) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// A Content-Length value: digits only, 64 bits (RFC 9110 8.6). `None` also for lists, signs and white space inside,
/// all of which some hop reads as another number.
pub(super) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |length, octet| {
        let digit = octet.is_ascii_digit().then(|| u64::from(octet - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

/// What a single Transfer-Encoding line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// `chunked` alone: the one that we take.
    Chunked,
    /// Well formed, framed by a final `chunked` or not at all, with codings that we do not know.
    Unknown,
    /// Malformed, with parameters, or with `chunked` anywhere but once at the end.
    Invalid,
}

/// Reads a Transfer-Encoding value (RFC 9112 6.1). Empty list members are refused here, unlike elsewhere: hops
/// are known to differ on them.
pub(super) fn transfer_coding(value: &[u8]) -> Coding {
    let is_chunked = |member: &[u8]| member.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Coding::Chunked;
    }
    let members = || value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
    let count = members().count();
    for (index, member) in members().enumerate() {
        if !is_token(member) || (is_chunked(member) && index + 1 < count) {
            return Coding::Invalid;
        }
    }
    Coding::Unknown
}

/// What the `Connection` lines of a head say, all together (RFC 9110 7.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) te: bool,
}

/// Why `Connection` lines are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionsFlaw {
    /// Not a list of tokens, or more of them than [`CONNECTION_OPTIONS_MAX`].
    Invalid,
    /// Host, Content-Length or Transfer-Encoding is named: a hop that obeyed would change what the message is
    /// (CVE-2022-45059).
    NamesFraming,
}

/// End-to-end fields that stay although `Connection` names them. RFC 9110 7.6.1 forbids a sender to name such
/// fields; a client who does wants us to take away what a child decides by:
/// who asks, on which condition, for what, and whether it was asked before.
///
/// The fields that we write ourselves (X-Forwarded-For and the like) need no place here: ours are written after
/// the client's have been dropped, and the values that clients sent in them stay in front of ours.
const STAYS: [&[u8]; 19] = [
    // Who asks.
    b"authorization",
    b"cookie",
    b"proxy-authorization",
    // On which condition: without it a conditional change is an unconditional one.
    b"if",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"range",
    // For what: the class of an action is taken from these, and WebDAV's targets.
    b"content-encoding",
    b"content-type",
    b"content-range",
    b"depth",
    b"destination",
    b"overwrite",
    b"x-http-method-override",
    // Whether it was asked before, and how fresh the answer must be.
    b"cache-control",
    b"idempotency-key",
];

/// Reads all `Connection` lines and marks the fields that they name.
pub(super) fn read_options(buf: &[u8], fields: &mut [Field]) -> Result<Options, OptionsFlaw> {
    let mut options = Options::default();
    let mut count = 0;
    for index in 0..fields.len() {
        if fields[index].known != Known::Connection {
            continue;
        }
        for option in list(fields[index].value.of(buf)) {
            count += 1;
            if count > CONNECTION_OPTIONS_MAX || !is_token(option) {
                return Err(OptionsFlaw::Invalid);
            }
            read_option(buf, fields, option, &mut options)?;
        }
    }
    Ok(options)
}

fn read_option(buf: &[u8], fields: &mut [Field], option: &[u8], options: &mut Options) -> Result<(), OptionsFlaw> {
    let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
    if is(b"close") {
        options.close = true;
        return Ok(());
    }
    if is(b"keep-alive") {
        options.keep_alive = true;
        return Ok(());
    }
    match Known::named(option) {
        Known::Host | Known::ContentLength | Known::TransferEncoding => return Err(OptionsFlaw::NamesFraming),
        Known::Upgrade => options.upgrade = true,
        Known::Te => options.te = true,
        Known::Other if !STAYS.iter().any(|name| is(name)) => {
            for field in fields.iter_mut() {
                field.stops_here |= field.name.len() == option.len() && is(field.name.of(buf));
            }
        }
        // What we know we keep, replace or drop by its own rule.
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!(content_length(b"0"), Some(0));
        assert_eq!(content_length(b"18446744073709551615"), Some(u64::MAX));
        for odd in ["", "+5", "-5", "5, 5", "5,5", "1 2", "0x5", "5abc", "18446744073709551616", "5\t"] {
            assert_eq!(content_length(odd.as_bytes()), None, "{odd:?}");
        }
    }

    #[test]
    fn codings() {
        assert_eq!(transfer_coding(b"CHUNKED"), Coding::Chunked);
        for unknown in ["xchunked", "identity", "gzip, chunked", "gzip"] {
            assert_eq!(transfer_coding(unknown.as_bytes()), Coding::Unknown, "{unknown:?}");
        }
        for invalid in ["", ",chunked", "chunked,", "chunked, chunked", "chunked;x=1", "chunked, identity", "a b"] {
            assert_eq!(transfer_coding(invalid.as_bytes()), Coding::Invalid, "{invalid:?}");
        }
    }

    #[test]
    fn names_spelled_with_underscores_are_lookalikes() {
        assert_eq!(Known::named(b"Content-Length"), Known::ContentLength);
        assert_eq!(Known::named(b"Content_Length"), Known::Lookalike);
        assert_eq!(Known::named(b"x_forwarded-for"), Known::Lookalike);
        assert_eq!(Known::named(b"some_thing_else"), Known::Other);
    }

    #[test]
    fn the_flaw_of_a_line_is_named() {
        let flaw = |line: &str| read_line(line.as_bytes(), 0..line.len()).map(|_| ()).unwrap_err();
        assert_eq!(flaw("a: b\rc"), Flaw::LineEnd);
        assert_eq!(flaw(" a: b"), Flaw::Folded);
        assert_eq!(flaw(": b"), Flaw::Name);
        assert_eq!(flaw("a b"), Flaw::Name);
        assert_eq!(flaw("a"), Flaw::Name);
        assert_eq!(flaw("a(: b"), Flaw::Name);
        assert_eq!(flaw("a\t : b"), Flaw::SpaceBeforeColon);
        assert_eq!(flaw("a: b\0"), Flaw::Value);
        assert_eq!(flaw("a:\x0bb"), Flaw::Value);
        assert_eq!(flaw("a: b\x7f"), Flaw::Value);
    }
}
