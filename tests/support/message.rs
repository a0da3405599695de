//! HTTP/1.1 messages as a strict reader sees them, with the octets kept.
//!
//! This is the judge on both sides of the proxy, so it shares nothing with it: no leniency, no normalising, one small
//! function a rule. What is not plainly lawful is an error with a word why.

use std::borrow::Cow;
use std::fmt;

/// The fields of a head, in order, names as they came, values without the white space round them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, Vec<u8>)>);

impl Fields {
    /// All values of a name, whatever its case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }

    /// The only value of a name; `None` too where there are several.
    pub fn one<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        let mut all = self.all(name);
        let first = all.next();
        if all.next().is_some() { None } else { first }
    }

    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The first value of a name as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.all(name).next().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// The members of a name's comma lists, in lower case.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.all(name)
            .flat_map(|value| value.split(|octet| *octet == b','))
            .map(|member| String::from_utf8_lossy(member).trim().to_ascii_lowercase())
            .filter(|member| !member.is_empty())
            .collect()
    }
}

/// Where a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
    /// No message any more: what follows a 101.
    Tunnel,
}

/// A request's head.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The octets, empty line included.
    pub octets: Vec<u8>,
    pub method: String,
    pub target: Vec<u8>,
    pub version: String,
    pub fields: Fields,
    pub framing: Framing,
}

/// A whole request.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: RequestHead,
    /// Decoded.
    pub body: Vec<u8>,
}

impl Request {
    pub fn path(&self) -> String {
        String::from_utf8_lossy(&self.head.target).into_owned()
    }
}

/// A response's head.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    pub octets: Vec<u8>,
    pub version: String,
    pub status: u16,
    pub fields: Fields,
    pub framing: Framing,
}

impl ResponseHead {
    /// 1xx, save the 101 that ends HTTP.
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// A response, whole or as far as it came.
#[derive(Clone, Debug)]
pub struct Response {
    pub head: ResponseHead,
    /// Decoded.
    pub body: Vec<u8>,
    /// Its end was seen.
    pub whole: bool,
}

impl Response {
    pub const fn status(&self) -> u16 {
        self.head.status
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn field(&self, name: &str) -> Option<String> {
        self.head.fields.text(name)
    }
}

impl fmt::Display for Response {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(400)];
        write!(out, "{}{}", String::from_utf8_lossy(&self.head.octets), String::from_utf8_lossy(shown))
    }
}

/// Why octets are not a message.
pub type Unlawful = String;

/// Where the first head ends, past its empty line.
fn head_end(octets: &[u8]) -> Option<usize> {
    octets.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The lines of a head that has an end, without the empty one.
fn lines(head: &[u8]) -> Result<Vec<&[u8]>, Unlawful> {
    let inner = &head[..head.len() - 4];
    let mut lines = Vec::new();
    let mut rest = inner;
    while let Some(at) = rest.windows(2).position(|window| window == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    if lines.iter().any(|line| line.iter().any(|octet| matches!(octet, b'\r' | b'\n' | 0))) {
        return Err("a bare CR, bare LF or NUL in the head".into());
    }
    Ok(lines)
}

fn is_token(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|octet| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet))
}

fn fields(lines: &[&[u8]]) -> Result<Fields, Unlawful> {
    let mut fields = Fields::default();
    for line in lines {
        let said = String::from_utf8_lossy(line).into_owned();
        let at = line.iter().position(|octet| *octet == b':').ok_or_else(|| format!("no colon in `{said}`"))?;
        let (name, value) = (&line[..at], &line[at + 1..]);
        if !is_token(name) {
            return Err(format!("not a field name in `{said}`"));
        }
        if value.iter().any(|octet| (*octet < b' ' && *octet != b'\t') || *octet == 0x7f) {
            return Err(format!("a control character in `{said}`"));
        }
        let from = value.iter().position(|octet| !b" \t".contains(octet)).unwrap_or(value.len());
        let to = value.iter().rposition(|octet| !b" \t".contains(octet)).map_or(from, |last| last + 1);
        fields.0.push((String::from_utf8_lossy(name).into_owned(), value[from..to].to_vec()));
    }
    Ok(fields)
}

/// The framing that the fields state; `None` where they state nothing (RFC 9112 6.3).
fn stated_framing(fields: &Fields) -> Result<Option<Framing>, Unlawful> {
    let lengths: Vec<&[u8]> = fields.all("content-length").collect();
    let codings: Vec<&[u8]> = fields.all("transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) => {
            let digits =
                std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse().ok()).ok_or("an odd Content-Length")?;
            Ok(Some(Framing::Length(length)))
        }
        ([], _) => {
            // Other codings may stand before it: they change what the data means, not where it ends.
            let members = fields.list("transfer-encoding");
            let last = members.iter().position(|member| member == "chunked");
            if last.is_some_and(|at| at + 1 == members.len()) {
                Ok(Some(Framing::Chunked))
            } else {
                Err("a Transfer-Encoding without one `chunked` at its end".into())
            }
        }
        (_, []) => Err("several Content-Length lines".into()),
        _ => Err("Content-Length and Transfer-Encoding together".into()),
    }
}

/// Reads a request's head; `None` while it has no end.
pub fn request_head(octets: &[u8]) -> Option<Result<RequestHead, Unlawful>> {
    let end = head_end(octets)?;
    Some(lawful_request_head(&octets[..end]))
}

fn lawful_request_head(octets: &[u8]) -> Result<RequestHead, Unlawful> {
    let lines = lines(octets)?;
    let parts: Vec<&[u8]> = lines[0].split(|octet| *octet == b' ').collect();
    let [method, target, version] = parts.as_slice() else {
        return Err(format!("not a request line: `{}`", String::from_utf8_lossy(lines[0])));
    };
    if !is_token(method) || target.is_empty() || target.iter().any(|octet| !octet.is_ascii_graphic()) {
        return Err(format!("not a request line: `{}`", String::from_utf8_lossy(lines[0])));
    }
    if *version != b"HTTP/1.1" && *version != b"HTTP/1.0" {
        return Err(format!("version `{}`", String::from_utf8_lossy(version)));
    }
    let fields = fields(&lines[1..])?;
    let framing = stated_framing(&fields)?.unwrap_or(Framing::None);
    Ok(RequestHead {
        octets: octets.to_vec(),
        method: String::from_utf8_lossy(method).into_owned(),
        target: target.to_vec(),
        version: String::from_utf8_lossy(version).into_owned(),
        fields,
        framing,
    })
}

/// Reads a response's head; `None` while it has no end.
pub fn response_head(octets: &[u8], to_head: bool) -> Option<Result<ResponseHead, Unlawful>> {
    let end = head_end(octets)?;
    Some(lawful_response_head(&octets[..end], to_head))
}

fn lawful_response_head(octets: &[u8], to_head: bool) -> Result<ResponseHead, Unlawful> {
    let lines = lines(octets)?;
    let line = String::from_utf8_lossy(lines[0]).into_owned();
    let unlawful = || format!("not a status line: `{line}`");
    let mut parts = line.splitn(3, ' ');
    let version = parts.next().filter(|version| matches!(*version, "HTTP/1.1" | "HTTP/1.0")).ok_or_else(unlawful)?;
    let status = parts.next().filter(|status| status.len() == 3).ok_or_else(unlawful)?;
    // The space stands even where the reason is empty (RFC 9112 4).
    parts.next().ok_or_else(unlawful)?;
    let status: u16 = status.parse().ok().filter(|status| (100..600).contains(status)).ok_or_else(unlawful)?;
    let fields = fields(&lines[1..])?;
    let stated = stated_framing(&fields)?;
    let framing = match status {
        101 => Framing::Tunnel,
        100..=199 | 204 => {
            if stated.is_some() {
                return Err(format!("a framing field in a {status}"));
            }
            Framing::None
        }
        304 => Framing::None,
        _ if to_head => Framing::None,
        _ => stated.unwrap_or(Framing::UntilClose),
    };
    Ok(ResponseHead { octets: octets.to_vec(), version: version.to_owned(), status, fields, framing })
}

/// A body as far as it is there.
#[derive(Debug)]
pub struct Body<'a> {
    /// Decoded.
    pub data: Cow<'a, [u8]>,
    /// Octets that belong to it, framing included.
    pub used: usize,
    pub whole: bool,
}

/// Reads a body. `ended`: nothing follows `octets`.
pub fn body(framing: Framing, octets: &[u8], ended: bool) -> Result<Body<'_>, Unlawful> {
    let plain = |used: usize, whole: bool| Body { data: Cow::Borrowed(&octets[..used]), used, whole };
    match framing {
        Framing::None => Ok(plain(0, true)),
        Framing::Tunnel | Framing::UntilClose => Ok(plain(octets.len(), ended)),
        Framing::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            Ok(plain(length.min(octets.len()), length <= octets.len()))
        }
        Framing::Chunked => chunked(octets),
    }
}

fn chunked(octets: &[u8]) -> Result<Body<'_>, Unlawful> {
    let mut data = Vec::new();
    let mut at = 0;
    let mut whole = false;
    while let Some(length) = octets[at..].windows(2).position(|window| window == b"\r\n") {
        let line = &octets[at..at + length];
        let size = std::str::from_utf8(line).ok().filter(|line| line.bytes().all(|octet| octet.is_ascii_hexdigit()));
        let size = size.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let size = size.ok_or_else(|| format!("chunk line `{}`", String::from_utf8_lossy(line)))?;
        let from = at + length + 2;
        if size == 0 {
            // Trailers, if any, end with an empty line like a head; without any there is only that line.
            if octets[from..].starts_with(b"\r\n") {
                at = from + 2;
                whole = true;
            } else if let Some(end) = head_end(&octets[from..]) {
                fields(&lines(&octets[from..from + end])?)?;
                at = from + end;
                whole = true;
            }
            break;
        }
        let Some(chunk) = octets[from..].get(..size) else {
            data.extend_from_slice(&octets[from..]);
            at = octets.len();
            break;
        };
        data.extend_from_slice(chunk);
        match octets.get(from + size..from + size + 2) {
            None => {
                at = octets.len();
                break;
            }
            Some(b"\r\n") => at = from + size + 2,
            Some(_) => return Err("no CRLF behind a chunk".into()),
        }
    }
    Ok(Body { data: Cow::Owned(data), used: at, whole })
}

/// All that a client received on one connection.
#[derive(Debug, Default)]
pub struct Received {
    /// 1xx, in order.
    pub interim: Vec<ResponseHead>,
    /// Final answers, in order; the last may be unfinished.
    pub finals: Vec<Response>,
    /// Octets behind the last answer that are not a head yet.
    pub rest: Vec<u8>,
    /// What a strict client stumbles over.
    pub unlawful: Option<Unlawful>,
}

impl Received {
    pub fn statuses(&self) -> Vec<u16> {
        self.finals.iter().map(Response::status).collect()
    }
}

/// Reads a client's side of a connection. `head_first`: the first request was a HEAD. `ended`: the proxy has closed.
pub fn received(octets: &[u8], head_first: bool, ended: bool) -> Received {
    let mut received = Received::default();
    let mut at = 0;
    while at < octets.len() {
        let to_head = head_first && received.finals.is_empty();
        let head = match response_head(&octets[at..], to_head) {
            None => break,
            Some(Err(unlawful)) => {
                received.unlawful = Some(unlawful);
                break;
            }
            Some(Ok(head)) => head,
        };
        at += head.octets.len();
        if head.is_interim() {
            received.interim.push(head);
            continue;
        }
        match body(head.framing, &octets[at..], ended) {
            Err(unlawful) => {
                received.unlawful = Some(unlawful);
                break;
            }
            Ok(body) => {
                at += body.used;
                let whole = body.whole;
                received.finals.push(Response { head, body: body.data.into_owned(), whole });
                if !whole {
                    return received;
                }
            }
        }
    }
    received.rest = octets[at..].to_vec();
    received
}
