//! A head for the next hop: what passes, what stops here, what we add.
//!
//! Written in one pass into a scratch that the caller uses again; allocates only while that grows. The body is not
//! touched: its framing is the caller's ([`ToChild::framing`], [`ToClient::framing`]), whatever it was on the way in.
//!
//! # To a child
//!
//! - The request line is `method SP path-and-query SP HTTP/1.1`, the target's octets as they came. One Host: the
//!   target's where it was absolute.
//! - Fields of one hop stop here: Connection and what it names (with the exceptions told at `STAYS` in
//!   `head/field.rs`), Keep-Alive, Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade, HTTP2-Settings, Expect.
//!   Upgrade, `TE: trailers` and Expect are made anew where the caller wants them.
//! - Antiphon-Min-Sequence is for us, and stops here.
//! - The peer's address is told in X-Forwarded-For and Forwarded (RFC 7239). Clients are not trusted: what they
//!   sent in these is kept in order, *in front of* the address that we saw, on a single line, so that its last member is
//!   always ours. X-Forwarded-Proto and X-Forwarded-Host are overwritten and X-Real-IP is dropped.
//! - Names that spell one of these with `_` are dropped (see `Known::Lookalike`).
//! - We add ourselves to Via (RFC 9110 7.6.3).
//!
//! # To a client
//!
//! Fields of one hop stop here likewise. Via is *not* added: a gateway may leave it out of answers (RFC 9110 7.6.3),
//! and it would tell outsiders what stands in front. What the child wrote passes.

use std::io::Write as _;
use std::net::IpAddr;

use super::head::{Known, RequestHead, ResponseHead, is_token, list};
use super::reply::reason_phrase;
use super::{CRLF, Framing, Span};

/// Our name in Via, Forwarded and Proxy-Status.
pub(super) const OUR_NAME: &str = "antiphon";

/// About what our own fields need, so that the scratch grows once.
const ADDED_BYTES: usize = 512;

/// How a request goes to a child.
#[derive(Clone, Copy, Debug)]
pub struct ToChild<'a> {
    /// The address that the client connected from.
    pub peer: IpAddr,
    /// Whether it did so over TLS.
    pub tls: bool,
    /// How the body will be framed.
    pub framing: Framing,
    /// What is appended to the target. It must be well formed there.
    pub target_suffix: &'a str,
    /// Host for a request that has none (HTTP/1.0).
    pub fallback_host: &'a str,
    /// Whether to add ourselves to Via.
    pub via: bool,
    /// Whether to ask for `100 Continue`.
    pub expect: bool,
    /// Whether to ask for the upgrade that the client wants, if it wants one.
    pub upgrade: bool,
    /// Whether to announce that this is the connection's last request.
    pub close: bool,
}

/// How an answer goes to a client.
#[derive(Clone, Copy, Debug)]
pub struct ToClient<'a> {
    /// The minor version of its request.
    pub client_minor: u8,
    /// How the body will be framed. With [`Framing::UntilClose`] the connection must close.
    pub framing: Framing,
    /// Whether to announce that the connection closes.
    pub close: bool,
    /// Whether an HTTP/1.0 client asked to keep the connection, and we do.
    pub keep_alive_10: bool,
    /// The date now, for an answer that has none (RFC 9110 6.6.1); see [`http_date`](super::http_date).
    pub date: Option<&'a [u8]>,
    /// Fields to add. They must be well formed.
    pub extra: &'a [(&'a str, &'a [u8])],
}

/// Appends the head for a child to `out`: of `head`, which was parsed from `buf`.
pub fn request_head(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, how: &ToChild<'_>) {
    out.reserve(head.head_len + ADDED_BYTES);
    out.extend_from_slice(head.method_name.of(buf));
    out.push(b' ');
    out.extend_from_slice(head.path_and_query(buf));
    out.extend_from_slice(how.target_suffix.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = head.host.map(|span| span.of(buf));
    field(out, "Host", host.unwrap_or(how.fallback_host.as_bytes()));

    let mut chains = Chains::default();
    for line in &head.fields {
        match line.known {
            Known::Other | Known::Date if !line.stops_here => copy(out, buf, line.name, line.value),
            Known::Via if how.via => chains.via = true,
            Known::Via => copy(out, buf, line.name, line.value),
            Known::XForwardedFor => chains.x_forwarded_for = true,
            Known::Forwarded => chains.forwarded = true,
            _ => {}
        }
    }

    let upgrade = head.upgrade.filter(|_| how.upgrade).map(|span| span.of(buf));
    connection(out, &[(how.close, "close"), (upgrade.is_some(), "upgrade"), (head.te_trailers, "te")]);
    if let Some(protocols) = upgrade {
        field(out, "Upgrade", protocols);
    }
    if head.te_trailers {
        field(out, "TE", b"trailers");
    }
    if how.expect {
        field(out, "Expect", b"100-continue");
    }
    framing(out, how.framing);
    identity(out, buf, head, how, &chains, host);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head for a client to `out`: of `head`, which was parsed from `buf`.
pub fn response_head(out: &mut Vec<u8>, buf: &[u8], head: &ResponseHead, how: &ToClient<'_>) {
    out.reserve(head.head_len + ADDED_BYTES);
    status_line(out, head.status, head.reason.of(buf));
    let mut date = how.date.filter(|_| !head.is_interim());
    for line in &head.fields {
        match line.known {
            Known::Connection
            | Known::ContentLength
            | Known::Http2Settings
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade => {}
            _ if line.stops_here => {}
            known => {
                if known == Known::Date {
                    date = None;
                }
                copy(out, buf, line.name, line.value);
            }
        }
    }
    if let Some(date) = date {
        field(out, "Date", date);
    }
    for (name, value) in how.extra {
        field(out, name, value);
    }
    let keep_alive = how.client_minor == 0 && how.keep_alive_10 && !how.close;
    connection(out, &[(how.close, "close"), (keep_alive, "keep-alive"), (head.upgrade.is_some(), "upgrade")]);
    if let Some(protocols) = head.upgrade {
        field(out, "Upgrade", protocols.of(buf));
    }
    match head.length_without_body {
        // RFC 9110 8.6: to HEAD, and with 304, the length that a body would have.
        Some(length) => framing(out, Framing::Length(length)),
        None => framing(out, how.framing),
    }
    out.extend_from_slice(b"\r\n");
}

/// Which lists the client has begun that we end.
#[derive(Default)]
struct Chains {
    via: bool,
    x_forwarded_for: bool,
    forwarded: bool,
}

/// Who asked, and through whom. Each list stands on one line and ends with our own member.
fn identity(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &RequestHead,
    how: &ToChild<'_>,
    chains: &Chains,
    host: Option<&[u8]>,
) {
    // An IPv4 client of an IPv6 socket is told by the address that it has.
    let peer = how.peer.to_canonical();
    let proto: &[u8] = if how.tls { b"https" } else { b"http" };

    out.extend_from_slice(b"X-Forwarded-For: ");
    if chains.x_forwarded_for {
        chain(out, buf, head, Known::XForwardedFor, |_| true);
    }
    address(out, peer);
    for part in [b"\r\nX-Forwarded-Proto: ", proto, b"\r\n"] {
        out.extend_from_slice(part);
    }
    if let Some(host) = host {
        field(out, "X-Forwarded-Host", host);
    }

    out.extend_from_slice(b"Forwarded: ");
    if chains.forwarded {
        // A quote left open would swallow our own element.
        chain(out, buf, head, Known::Forwarded, is_quoted_soundly);
    }
    // RFC 7239 6: an IPv6 address in brackets, and so quoted.
    let (open, shut): (&[u8], &[u8]) = if peer.is_ipv6() { (b"for=\"[", b"]\"") } else { (b"for=", b"") };
    out.extend_from_slice(open);
    address(out, peer);
    for part in [shut, b";proto=", proto] {
        out.extend_from_slice(part);
    }
    if let Some(host) = host {
        // RFC 7239 4: a token or a quoted string. A host that we accept holds neither quote nor backslash.
        let quote: &[u8] = if is_token(host) { b"" } else { b"\"" };
        for part in [b";host=", quote, host, quote] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");

    if how.via {
        out.extend_from_slice(b"Via: ");
        if chains.via {
            chain(out, buf, head, Known::Via, |_| true);
        }
        // The version is that of the message as we got it.
        for part in [b"1.", [b'0' + head.minor].as_slice(), b" ", OUR_NAME.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

/// The values that the client sent in all lines of a list, in order, each followed by `", "`.
fn chain(out: &mut Vec<u8>, buf: &[u8], head: &RequestHead, known: Known, is_sound: impl Fn(&[u8]) -> bool) {
    for line in head.fields.iter().filter(|line| line.known == known) {
        let value = line.value.of(buf);
        // A value of commas alone has no member to keep.
        if list(value).next().is_some() && is_sound(value) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
}

/// Whether all quoted strings of a value are closed (RFC 9110 5.6.4).
fn is_quoted_soundly(value: &[u8]) -> bool {
    let mut octets = value.iter();
    let mut quoted = false;
    while let Some(octet) = octets.next() {
        match octet {
            b'"' => quoted = !quoted,
            b'\\' if quoted && octets.next().is_none() => return false,
            _ => {}
        }
    }
    !quoted
}

/// The one Connection line, if any option holds.
fn connection(out: &mut Vec<u8>, options: &[(bool, &str)]) {
    let mut lead: &[u8] = b"Connection: ";
    for (_, option) in options.iter().filter(|(holds, _)| *holds) {
        out.extend_from_slice(lead);
        out.extend_from_slice(option.as_bytes());
        lead = b", ";
    }
    if lead == b", " {
        out.extend_from_slice(b"\r\n");
    }
}

/// The one line that frames the body, if any does.
pub(super) fn framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            decimal(out, length);
            out.extend_from_slice(CRLF);
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

/// `HTTP/1.1 SP status SP reason`, with the usual phrase where there is none.
pub(super) fn status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    let usual = reason_phrase(status).as_bytes();
    out.extend_from_slice(if reason.is_empty() { usual } else { reason });
    out.extend_from_slice(b"\r\n");
}

/// One field.
pub(super) fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// One field as it came, with the white space that we would write.
fn copy(out: &mut Vec<u8>, buf: &[u8], name: Span, value: Span) {
    for part in [name.of(buf), b": ", value.of(buf), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// An address as text. The formatter of the standard library took a third of the time of a small head.
fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                decimal(out, u64::from(octet));
            }
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("a Vec takes all octets"),
    }
}

/// A number in decimal digits.
pub(super) fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests;
