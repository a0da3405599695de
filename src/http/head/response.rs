//! A response's head: its status line, its fields, and what they mean together.
//!
//! A child's answer is judged as strictly as a client's request: an answer that two hops could end at different places
//! is none.

use std::mem::MaybeUninit;

use super::field::{self, Coding, Field, Flaw, Known, OptionsFlaw};
use super::{Found, Lines, span_in};
use crate::error::Fault;
use crate::http::{Framing, Span};
use crate::limits::{FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};

/// What the request was, as far as its answer's framing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerTo {
    /// It was a HEAD: no body follows, whatever the head says (RFC 9112 6.3).
    pub was_head: bool,
    /// It asked for an upgrade, so that 101 is an answer to it.
    pub wanted_upgrade: bool,
}

/// A response's head, as ranges of the buffer it was parsed from. Made to be used again, as
/// [`RequestHead`](super::RequestHead).
///
/// ```
/// use antiphon::http::{AnswerTo, Framing, ResponseHead};
///
/// let octets = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
/// let mut head = ResponseHead::new();
/// assert_eq!(head.parse(octets, AnswerTo::default()), Ok(true));
/// assert_eq!((head.status, head.framing), (200, Framing::Chunked));
/// ```
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// The status, 100 to 599.
    pub status: u16,
    /// 0 or 1: the minor version whose rules hold.
    pub minor: u8,
    /// Octets of the head in the buffer. The body begins there.
    pub head_len: usize,
    /// How the body ends. [`Framing::None`] where there can be none: to HEAD, and with 1xx, 204 and 304.
    pub framing: Framing,
    /// The length that the head names although no body follows: to HEAD, and with 304 (RFC 9110 8.6).
    pub length_without_body: Option<u64>,
    /// Whether the connection can carry another request once the body has been read.
    pub keep_alive: bool,
    /// The reason phrase; empty if there is none, or if it is not plain ASCII.
    pub reason: Span,
    /// The Upgrade field, where one belongs: with 101, and with 426 (RFC 9110 15.5.22).
    pub upgrade: Option<Span>,
    pub(in crate::http) fields: Vec<Field>,
    lines: Lines,
    way: Way,
}

/// How far a head has been read; as in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Attempt,
    Fallback,
    Done,
}

const NOT_HTTP: Fault =
    Fault::ChildHeadInvalid("The child's answer is not HTTP/1.x. Does its address belong to another service?");
const STATUS_LINE: Fault = Fault::ChildHeadInvalid(
    "The status line of the child's answer is not `HTTP/1.1 SP three digits SP reason` (RFC 9112 4).",
);
const ODD_LENGTH: Fault = framing("Content-Length of the child's answer is not a decimal number (RFC 9110 8.6).");

impl ResponseHead {
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

    /// Reads on, as [`RequestHead::parse`](super::RequestHead::parse) does. After an interim answer, clear and parse
    /// what follows it.
    ///
    /// # Errors
    /// Faults on the child's side; the connection to it cannot be used again.
    pub fn parse(&mut self, buf: &[u8], request: AnswerTo) -> Result<bool, Fault> {
        if self.way == Way::Done {
            return Ok(true);
        }
        if self.lines.count == 0 {
            // Something that is not HTTP is told at once, not when the child falls silent. Empty lines in front are
            // not passed over: RFC 9112 2.2 allows that to servers.
            let name = b"HTTP/";
            let length = buf.len().min(name.len());
            if buf[..length] != name[..length] {
                return Err(NOT_HTTP);
            }
        }
        match self.lines.search(buf, RESPONSE_HEAD_BYTES_MAX) {
            Found::End(end) => {
                if self.way == Way::Fallback || !self.attempt(buf, end)? {
                    self.fallback(buf)?;
                }
                self.head_len = end;
                self.interpret(buf, request)?;
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
                Err(Flaw::LineEnd.in_response())
            }
            Found::TooManyLines | Found::TooLarge => {
                self.fallback(buf)?;
                Err(Fault::ChildHeadTooLarge)
            }
        }
    }

    /// Whether another answer to the same request follows (RFC 9110 15.2). A 101 is none of these: it is the last
    /// answer in HTTP.
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
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
        let octets = &buf[..end];
        self.lines.look(octets.len());
        let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed =
            httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, octets, &mut slots);
        let (Ok(httparse::Status::Complete(length)), Some(minor), Some(status)) =
            (parsed, response.version, response.code)
        else {
            return Ok(false);
        };
        if length != octets.len() {
            return Ok(false);
        }
        self.minor = minor;
        self.status = status;
        // httparse gives a phrase that is not ASCII as "", which is not a part of the buffer.
        self.reason = match response.reason {
            Some(reason) if !reason.is_empty() => span_in(octets, reason.as_bytes(), 0),
            _ => Span::default(),
        };
        judge_status(status)?;
        for header in response.headers.iter() {
            let name = span_in(octets, header.name.as_bytes(), 0);
            let value = span_in(octets, header.value, 0);
            self.fields.push(Field::new(buf, name, value));
        }
        Ok(true)
    }

    /// The lines that are whole and not yet read, one by one.
    fn fallback(&mut self, buf: &[u8]) -> Result<(), Fault> {
        // An attempt that fails has stored no field.
        self.way = Way::Fallback;
        while let Some(line) = self.lines.next(buf) {
            if line.start == 0 {
                self.read_status_line(&buf[line])?;
            } else {
                let field = field::read_line(buf, line).map_err(Flaw::in_response)?;
                self.fields.push(field);
            }
        }
        Ok(())
    }

    /// RFC 9112 4: `HTTP-version SP status-code SP [ reason-phrase ]`; the second space may lack.
    fn read_status_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        if line.contains(&b'\r') {
            return Err(Flaw::LineEnd.in_response());
        }
        let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', rest @ ..] = line else {
            return Err(NOT_HTTP);
        };
        let [b' ', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = rest else {
            return Err(STATUS_LINE);
        };
        let reason = match rest {
            [] => &[],
            [b' ', reason @ ..] => reason,
            _ => return Err(STATUS_LINE),
        };
        if !reason.iter().all(|octet| matches!(octet, b'\t' | b' '..=0x7e | 0x80..)) {
            return Err(STATUS_LINE);
        }
        self.minor = (minor - b'0').min(1);
        self.status = [a, b, c].iter().fold(0, |status, digit| status * 10 + u16::from(*digit - b'0'));
        // obs-text has no reading that all hops share: the phrase is dropped, as httparse does.
        self.reason =
            if reason.is_ascii() { Span::new(line.len() - reason.len(), line.len()) } else { Span::default() };
        judge_status(self.status)
    }

    /// What the fields mean together (RFC 9112 6.3).
    fn interpret(&mut self, buf: &[u8], request: AnswerTo) -> Result<(), Fault> {
        let mut length = None;
        let mut coding = None;
        let mut upgrade = None;
        for field in &self.fields {
            let value = field.value.of(buf);
            match field.known {
                Known::ContentLength if length.is_some() => {
                    return Err(framing("The child's answer has several Content-Length fields (RFC 9112 6.3)."));
                }
                Known::ContentLength => {
                    length = Some(field::content_length(value).ok_or(ODD_LENGTH)?);
                }
                Known::TransferEncoding if coding.is_some() => {
                    return Err(framing("The child's answer has several Transfer-Encoding fields (RFC 9112 6.1)."));
                }
                Known::TransferEncoding => coding = Some(field::transfer_coding(value)),
                Known::Upgrade => upgrade = Some(field.value),
                _ => {}
            }
        }
        let options = field::read_options(buf, &mut self.fields).map_err(|flaw| match flaw {
            OptionsFlaw::Invalid => {
                Fault::ChildHeadInvalid("Connection in the child's answer is not a list of tokens (RFC 9110 7.6.1).")
            }
            OptionsFlaw::NamesFraming => {
                framing("Connection in the child's answer names a field that frames (RFC 9110 7.6.1).")
            }
        })?;
        let named = self.judge_framing(length, coding)?;
        if self.status == 101 {
            // RFC 9110 7.8, 15.2.2
            if !request.wanted_upgrade || !options.upgrade || upgrade.is_none() {
                return Err(Fault::ChildUnaskedUpgrade);
            }
        }
        self.upgrade = upgrade.filter(|_| matches!(self.status, 101 | 426));
        if self.status < 200 && named != Framing::UntilClose {
            return Err(framing("An interim answer of the child has framing fields (RFC 9112 6.1, RFC 9110 8.6)."));
        }
        let has_no_body = request.was_head || self.status < 200 || matches!(self.status, 204 | 304);
        self.framing = if has_no_body { Framing::None } else { named };
        self.length_without_body = length.filter(|_| has_no_body && self.status != 204);
        // A 204 that announces a body will have written one: what follows is not the next answer.
        let announces = self.status == 204 && !matches!(named, Framing::UntilClose | Framing::Length(0));
        self.keep_alive = !options.close
            && (self.minor > 0 || options.keep_alive)
            && self.framing != Framing::UntilClose
            && !announces;
        Ok(())
    }

    /// The framing that the fields name, whether or not there is a body.
    fn judge_framing(&self, length: Option<u64>, coding: Option<Coding>) -> Result<Framing, Fault> {
        match (length, coding) {
            (_, Some(_)) if self.minor == 0 => {
                Err(framing("The child's answer has Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1)."))
            }
            (Some(_), Some(_)) => {
                Err(framing("The child's answer has Content-Length and Transfer-Encoding (RFC 9112 6.1)."))
            }
            (None, Some(Coding::Chunked)) => Ok(Framing::Chunked),
            (None, Some(Coding::Unknown | Coding::Invalid)) => {
                Err(framing("Transfer-Encoding of the child's answer is not `chunked` alone (RFC 9112 6.1)."))
            }
            (Some(length), None) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::UntilClose),
        }
    }
}

const fn framing(why: &'static str) -> Fault {
    Fault::ChildFraming(why)
}

/// RFC 9110 15: three digits, of which the first is 1 to 5.
fn judge_status(status: u16) -> Result<(), Fault> {
    match status {
        100..=599 => Ok(()),
        _ => Err(Fault::ChildHeadInvalid("The status of the child's answer is not within 100 and 599 (RFC 9110 15).")),
    }
}

#[cfg(test)]
impl ResponseHead {
    /// Reads line by line from the start, as if the head had come in pieces.
    pub(super) fn without_attempt() -> Self {
        Self { way: Way::Fallback, ..Self::default() }
    }
}
