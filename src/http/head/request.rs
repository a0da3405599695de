//! A request's head: its line, its fields, and what they mean together.
//!
//! A [`RequestHead`] that [`RequestHead::parse`] has called complete is sound: its framing is decided, it has at most
//! one host, and none of its octets reads differently at another hop. What it means to *us* (route, class) is not
//! decided here.

use std::mem::MaybeUninit;

use super::field::{self, Coding, Field, Flaw, Known, OptionsFlaw, is_tchar, is_token, list};
use super::host::is_host;
use super::{Found, Lines, span_in};
use crate::error::Fault;
use crate::http::{Framing, Method, Span};
use crate::limits::{FIELDS_MAX, REQUEST_HEAD_BYTES_MAX, TARGET_BYTES_MAX};

/// A request's head, as ranges of the buffer it was parsed from. Made to be used again: [`RequestHead::clear`] keeps
/// the memory of the fields.
///
/// ```
/// use antiphon::http::{Framing, RequestHead};
///
/// let octets = b"POST /items HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
/// let mut head = RequestHead::new();
/// assert_eq!(head.parse(&octets[..10]), Ok(false));
/// assert_eq!(head.parse(octets), Ok(true));
/// assert_eq!(head.framing, Framing::Length(5));
/// assert_eq!(&octets[head.head_len..], b"hello");
/// ```
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method's octets.
    pub method_name: Span,
    /// The whole target, as it came.
    pub target: Span,
    /// 0 or 1: the minor version whose rules hold. Higher ones are treated as 1 (RFC 9110 2.5).
    pub minor: u8,
    /// Octets of the head in the buffer, empty lines in front of it included. The body begins there.
    pub head_len: usize,
    /// How the body ends. Never [`Framing::UntilClose`].
    pub framing: Framing,
    /// The host, with its port where one was given: the target's if it holds one, else the Host field's. `None`
    /// only in HTTP/1.0.
    pub host: Option<Span>,
    /// Whether the client may send another request on the connection (RFC 9112 9.3).
    pub keep_alive: bool,
    /// The client holds its body back until it sees `100 Continue` or a final answer (RFC 9110 10.1.1).
    pub expect_continue: bool,
    /// The protocols of a wanted upgrade (RFC 9110 7.8). Set only where a tunnel may be opened by a 101: a GET of
    /// HTTP/1.1 without a body, and no `h2c` among the protocols, which would leave every rule here behind.
    pub upgrade: Option<Span>,
    /// The client takes trailers (RFC 9110 10.1.4).
    pub te_trailers: bool,
    /// The value of Antiphon-Min-Sequence: how far the child that answers must have come. Empty, and thus no sequence,
    /// where the field came more than once.
    pub min_sequence: Option<Span>,
    /// The part of the target that is sent on.
    path: Path,
    pub(in crate::http) fields: Vec<Field>,
    lines: Lines,
    way: Way,
}

/// The origin-form of the target.
#[derive(Clone, Copy, Debug, Default)]
enum Path {
    /// These octets of it.
    At(Span),
    /// It was an absolute URI without a path (RFC 9112 3.2.1).
    #[default]
    Root,
    /// `OPTIONS` of an absolute URI without a path means the server (RFC 9112 3.2.4).
    Asterisk,
}

/// How far a head has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Not at all: if it is whole now, one pass of httparse will do.
    #[default]
    Attempt,
    /// Line by line.
    Fallback,
    /// To its end.
    Done,
}

impl RequestHead {
    /// An empty head. Allocates when the first fields come.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was parsed and keeps the memory.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Reads on. `Ok(true)`: the head is complete. `Ok(false)`: call again with the same octets and more behind
    /// them; what was looked at is not looked at again. Never looks behind the head's end.
    ///
    /// # Errors
    /// The fault of the first line that breaks a rule, as soon as that line is whole; then of the lines together.
    /// Where the octets were cut makes no difference. After an error only [`RequestHead::clear`] makes sense.
    pub fn parse(&mut self, buf: &[u8]) -> Result<bool, Fault> {
        if self.way == Way::Done {
            return Ok(true);
        }
        if self.lines.count == 0 {
            match self.lines.pass_empty(buf) {
                None => return Ok(false),
                Some(false) => return Err(Fault::EmptyLinesBefore),
                Some(true) => judge_first_octet(buf[self.lines.start])?,
            }
        }
        match self.lines.search(buf, REQUEST_HEAD_BYTES_MAX) {
            Found::End(end) => {
                if self.way == Way::Fallback || !self.attempt(buf, end)? {
                    self.fallback(buf)?;
                }
                self.head_len = end;
                self.interpret(buf)?;
                self.way = Way::Done;
                Ok(true)
            }
            Found::More => {
                // Without a whole line there is nothing to judge, and httparse may still get it all at once.
                if self.lines.count > 0 {
                    self.fallback(buf)?;
                }
                Ok(false)
            }
            Found::BareLineFeed => {
                self.fallback(buf)?;
                Err(Fault::LineEndBare)
            }
            Found::TooManyLines => {
                self.fallback(buf)?;
                Err(Fault::TooManyFields)
            }
            Found::TooLarge => {
                self.fallback(buf)?;
                // RFC 9110 15.5.15: an overlong target has a status of its own.
                Err(if self.lines.count == 0 { Fault::TargetTooLong } else { Fault::HeadTooLarge })
            }
        }
    }

    /// The origin-form of the target: the octets as they came, without scheme and host where it was an absolute URI.
    /// This is what routes and classes are decided by, and what is sent on. `*` for an `OPTIONS` of the server.
    #[must_use]
    pub fn path_and_query<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        match self.path {
            Path::At(span) => span.of(buf),
            Path::Root => b"/",
            Path::Asterisk => b"*",
        }
    }

    /// The value of the first field with this name, given in lower case.
    #[must_use]
    pub fn field<'b>(&self, buf: &'b [u8], name: &str) -> Option<&'b [u8]> {
        self.fields(buf).find(|(theirs, _)| theirs.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All fields, in order, as they came.
    pub fn fields<'b>(&self, buf: &'b [u8]) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        self.fields.iter().map(move |field| (field.name.of(buf), field.value.of(buf)))
    }

    /// The whole head by httparse. `Ok(false)`: it does not like it; the fallback will say why.
    fn attempt(&mut self, buf: &[u8], end: usize) -> Result<bool, Fault> {
        let start = self.lines.start;
        let octets = &buf[start..end];
        self.lines.look(octets.len());
        let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed =
            httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut request, octets, &mut slots);
        let (Ok(httparse::Status::Complete(length)), Some(method), Some(target), Some(minor)) =
            (parsed, request.method, request.path, request.version)
        else {
            return Ok(false);
        };
        if length != octets.len() {
            return Ok(false);
        }
        self.method_name = span_in(octets, method.as_bytes(), start);
        self.target = span_in(octets, target.as_bytes(), start);
        self.minor = minor;
        self.judge_request_line(buf)?;
        for header in request.headers.iter() {
            let name = span_in(octets, header.name.as_bytes(), start);
            let value = span_in(octets, header.value, start);
            self.fields.push(Field::new(buf, name, value));
        }
        Ok(true)
    }

    /// The lines that are whole and not yet read, one by one.
    fn fallback(&mut self, buf: &[u8]) -> Result<(), Fault> {
        // An attempt that fails has stored no field.
        self.way = Way::Fallback;
        while let Some(line) = self.lines.next(buf) {
            if line.start == self.lines.start {
                self.read_request_line(buf, line.start, line.end)?;
            } else {
                let field = field::read_line(buf, line).map_err(Flaw::in_request)?;
                self.fields.push(field);
            }
        }
        Ok(())
    }

    /// RFC 9112 3: `method SP request-target SP HTTP-version`, single spaces.
    fn read_request_line(&mut self, buf: &[u8], start: usize, end: usize) -> Result<(), Fault> {
        let line = &buf[start..end];
        if line.contains(&b'\r') {
            return Err(Fault::LineEndBare);
        }
        let space = |from: usize| line[from..].iter().position(|octet| *octet == b' ').map(|at| from + at);
        let method_end = space(0).unwrap_or(line.len());
        if !is_token(&line[..method_end]) {
            return Err(Fault::MethodInvalid);
        }
        let target_end = space((method_end + 1).min(line.len())).ok_or(Fault::RequestLineInvalid)?;
        let version = &line[target_end + 1..];
        if target_end == method_end + 1 || version.contains(&b' ') {
            return Err(Fault::RequestLineInvalid);
        }
        self.method_name = Span::new(start, start + method_end);
        self.target = Span::new(start + method_end + 1, start + target_end);
        self.minor = match version {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => (minor - b'0').min(1),
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                return Err(Fault::VersionUnsupported);
            }
            _ => return Err(Fault::VersionInvalid),
        };
        self.judge_request_line(buf)
    }

    /// The rules for a request line that is well formed.
    fn judge_request_line(&mut self, buf: &[u8]) -> Result<(), Fault> {
        self.method = Method::named(self.method_name.of(buf));
        match self.method {
            Method::Connect => return Err(Fault::MethodConnect),
            Method::Trace => return Err(Fault::MethodTrace),
            _ => {}
        }
        let target = self.target.of(buf);
        if target.len() > TARGET_BYTES_MAX {
            return Err(Fault::TargetTooLong);
        }
        // Of what RFC 3986 2 excludes, the visible characters pass: braces and bars are common in queries of search
        // servers, and they have one reading. What has several does not pass.
        // Folds that do not stop early go through vector registers.
        if target.iter().fold(false, |odd, octet| odd | !matches!(octet, 0x21..=0x7e)) {
            return Err(Fault::TargetInvalid);
        }
        if target.iter().fold(false, |found, octet| found | (*octet == b'#')) {
            return Err(Fault::TargetFragment);
        }
        self.path = match target {
            [b'/', ..] => Path::At(self.target),
            b"*" if self.method == Method::Options => Path::At(self.target),
            _ => self.read_absolute(buf)?,
        };
        Ok(())
    }

    /// RFC 9112 3.2.2: `http://host/path`. Sets the host.
    fn read_absolute(&mut self, buf: &[u8]) -> Result<Path, Fault> {
        let target = self.target.of(buf);
        let scheme = target.windows(3).position(|octets| octets == b"://").ok_or(Fault::TargetInvalid)?;
        let known = [b"http".as_slice(), b"https"];
        if !known.iter().any(|name| target[..scheme].eq_ignore_ascii_case(name)) {
            return Err(Fault::TargetInvalid);
        }
        let host = scheme + 3;
        let path =
            target[host..].iter().position(|octet| matches!(octet, b'/' | b'?')).map_or(target.len(), |at| host + at);
        // Also refuses user information (RFC 9110 4.2.4): `@` is in no host.
        if !is_host(&target[host..path]) {
            return Err(Fault::HostInvalid);
        }
        let start = self.target.start as usize;
        self.host = Some(Span::new(start + host, start + path));
        match target.get(path) {
            None if self.method == Method::Options => Ok(Path::Asterisk),
            None => Ok(Path::Root),
            Some(b'/') => Ok(Path::At(Span::new(start + path, start + target.len()))),
            // An empty path before a query: legal and unknown in practice. The origin-form would have to be made up.
            Some(_) => Err(Fault::TargetInvalid),
        }
    }

    /// What the fields mean together.
    fn interpret(&mut self, buf: &[u8]) -> Result<(), Fault> {
        let mut host_field = None;
        let mut length = None;
        let mut coding = None;
        let mut expects = false;
        let mut upgrade = None;
        let mut upgrades = 0;
        let mut wants_trailers = false;
        for field in &self.fields {
            let value = field.value.of(buf);
            match field.known {
                // RFC 9112 3.2
                Known::Host if host_field.is_some() => return Err(Fault::HostRepeated),
                Known::Host => host_field = Some(field.value),
                // RFC 9112 6.3: equal values could be merged; two fields are one too many for a sound client.
                Known::ContentLength if length.is_some() => return Err(Fault::ContentLengthTwice),
                Known::ContentLength => {
                    length = Some(field::content_length(value).ok_or(Fault::ContentLengthInvalid)?);
                }
                // RFC 9112 6.1: chunked may not be applied twice.
                Known::TransferEncoding if coding.is_some() => return Err(Fault::TransferEncodingInvalid),
                Known::TransferEncoding => coding = Some(field::transfer_coding(value)),
                Known::Expect if self.minor > 0 => {
                    // RFC 9110 10.1.1: from HTTP/1.0 it is ignored.
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(Fault::ExpectationUnknown);
                    }
                    expects = true;
                }
                Known::Upgrade => {
                    upgrade = Some(field.value);
                    upgrades += 1;
                }
                Known::AntiphonMinSequence => {
                    let is_first = self.min_sequence.is_none();
                    self.min_sequence = Some(if is_first { field.value } else { Span::default() });
                }
                Known::Te => wants_trailers |= list(value).any(|member| member.eq_ignore_ascii_case(b"trailers")),
                _ => {}
            }
        }
        self.judge_host(buf, host_field)?;
        self.framing = self.judge_framing(length, coding)?;

        let options = field::read_options(buf, &mut self.fields).map_err(|flaw| match flaw {
            OptionsFlaw::Invalid => Fault::ConnectionInvalid,
            OptionsFlaw::NamesFraming => Fault::ConnectionNamesFraming,
        })?;
        // RFC 9112 9.3
        self.keep_alive = !options.close && (self.minor > 0 || options.keep_alive);
        self.expect_continue = expects && !matches!(self.framing, Framing::None | Framing::Length(0));
        self.te_trailers = wants_trailers && options.te && self.minor > 0;
        // RFC 9110 7.8: named in Connection, and not from HTTP/1.0. A body would stand between the request and the
        // new protocol (CVE-2026-58055).
        let may_upgrade = options.upgrade
            && upgrades == 1
            && self.minor > 0
            && self.method == Method::Get
            && self.framing == Framing::None;
        self.upgrade = upgrade.filter(|span| may_upgrade && is_tunnel(span.of(buf)));
        Ok(())
    }

    /// RFC 9112 3.2: exactly one Host in HTTP/1.1, at most one in HTTP/1.0, and the target may not contradict it.
    fn judge_host(&mut self, buf: &[u8], field: Option<Span>) -> Result<(), Fault> {
        let Some(field) = field else {
            return if self.minor > 0 { Err(Fault::HostMissing) } else { Ok(()) };
        };
        let value = field.of(buf);
        if !is_host(value) {
            return Err(Fault::HostInvalid);
        }
        match self.host {
            // RFC 9112 3.2.2 lets the target win; a client that sends two hosts is refused instead (section 11.2
            // tells why).
            Some(target) if !target.of(buf).eq_ignore_ascii_case(value) => return Err(Fault::HostDiffers),
            Some(_) => {}
            None => self.host = Some(field),
        }
        Ok(())
    }

    /// RFC 9112 6.3, without the ways out that it leaves to lenient servers.
    fn judge_framing(&self, length: Option<u64>, coding: Option<Coding>) -> Result<Framing, Fault> {
        match (length, coding) {
            (_, Some(_)) if self.minor == 0 => Err(Fault::TransferEncodingInHttp10),
            (Some(_), Some(_)) => Err(Fault::ContentLengthAndTransferEncoding),
            (None, Some(Coding::Chunked)) => Ok(Framing::Chunked),
            (None, Some(Coding::Unknown)) => Err(Fault::TransferEncodingUnknown),
            (None, Some(Coding::Invalid)) => Err(Fault::TransferEncodingInvalid),
            (Some(length), None) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::None),
        }
    }
}

/// A connection that begins with something else (TLS, say) is told so at once, not when its head times out.
fn judge_first_octet(octet: u8) -> Result<(), Fault> {
    match octet {
        b'\r' | b'\n' => Err(Fault::LineEndBare),
        octet if is_tchar(octet) => Ok(()),
        _ => Err(Fault::MethodInvalid),
    }
}

/// Whether the protocols of an Upgrade field may be asked of a child: tokens with an optional version, none of them
/// HTTP.
fn is_tunnel(value: &[u8]) -> bool {
    let mut members = list(value).peekable();
    members.peek().is_some()
        && members.all(|member| {
            let mut parts = member.splitn(2, |octet| *octet == b'/');
            let name = parts.next().unwrap_or_default();
            let is_http = [b"h2c".as_slice(), b"h2", b"http"].iter().any(|http| name.eq_ignore_ascii_case(http));
            is_token(name) && !is_http && parts.next().is_none_or(is_token)
        })
}

#[cfg(test)]
impl RequestHead {
    /// Octets looked at so far, by any step.
    pub(super) fn looked_at(&self) -> usize {
        self.lines.looked_at
    }

    /// Reads line by line from the start, as if the head had come in pieces.
    pub(super) fn without_attempt() -> Self {
        Self { way: Way::Fallback, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels() {
        for good in ["websocket", "WebSocket", "foo/1.2", "a, b"] {
            assert!(is_tunnel(good.as_bytes()), "{good:?}");
        }
        for bad in ["", "h2c", "H2C", "websocket, h2c", "HTTP/2.0", "a b", "a/", "h2"] {
            assert!(!is_tunnel(bad.as_bytes()), "{bad:?}");
        }
    }
}
