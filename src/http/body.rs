//! Bodies: which octets are the message's own, and where it ends.
//!
//! [`Decoder`] takes octets as they come, cut anywhere, and hands out ranges of them: nothing is copied. [`ChunkHead`]
//! frames octets again for the next hop; what a chunk was on the way in is forgotten, so that no hop behind us sees
//! framing that we did not write.
//!
//! The grammar is that of RFC 9112 7.1 to the octet: CR LF and nothing else ends a line, a size is digits, an extension
//! is well formed, a trailer is a field. What is dropped (extensions, trailers) is bounded in sum.

use std::ops::Range;

use super::Framing;
use super::head::{Known, is_tchar};
use crate::error::Fault;
use crate::limits::{CHUNK_OVERHEAD_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX};

/// The end of a line, and of a chunk's data.
pub const CRLF: &[u8] = b"\r\n";
/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What one call of [`Decoder::step`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Octets of the input that are dealt with: framing and [`Step::data`]. What is behind them is to be given again,
    /// or, if [`Step::done`], belongs to the next message.
    pub consumed: usize,
    /// The body's own octets, within `consumed`. May be empty.
    pub data: Range<usize>,
    /// Whole or partial trailer lines, CR LF included, within `consumed`; checked as far as they go. Together those of
    /// all steps are the trailer section without its empty line. For a caller that passes trailers on.
    pub trailers: Range<usize>,
    /// The body has ended.
    pub done: bool,
}

/// Finds a body's octets. One for each message.
///
/// ```
/// use antiphon::http::{Decoder, Framing};
///
/// let octets = b"5\r\nhello\r\n0\r\n\r\nGET /next";
/// let mut decoder = Decoder::request(Framing::Chunked);
/// let step = decoder.step(octets).unwrap();
/// assert_eq!(&octets[step.data], b"hello");
/// assert!(step.done);
/// assert_eq!(&octets[step.consumed..], b"GET /next");
/// ```
#[derive(Debug)]
pub struct Decoder {
    state: State,
    from: Sender,
    /// Octets of extensions and trailers so far, at most [`CHUNK_OVERHEAD_BYTES_MAX`].
    overhead_bytes: usize,
    /// The name of the trailer that is being read, as far as it fits; longer ones are none that we know.
    name: [u8; NAME_BYTES_MAX],
    /// Octets of that name.
    name_len: usize,
}

/// The longest name of a trailer that is refused.
const NAME_BYTES_MAX: usize = 17;

/// Whose body it is, and so whose fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Client,
    Child,
}

/// What the decoder awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing more.
    Done,
    /// This many octets; not zero.
    Length(u64),
    /// Octets until the connection ends.
    UntilClose,
    /// Digits of a chunk's size, of which there were `digits`.
    Size {
        size: u64,
        digits: usize,
    },
    /// An extension of a chunk of this size.
    Extension {
        size: u64,
        at: Extension,
    },
    /// The LF of a size line.
    SizeLineFeed {
        size: u64,
    },
    /// This many octets of a chunk; not zero.
    Data(u64),
    /// The CR behind a chunk's data.
    DataReturn,
    /// The LF behind it.
    DataLineFeed,
    /// A trailer line, or the empty line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    /// The LF of a trailer line.
    TrailerLineFeed,
    /// The LF of the empty line.
    LastLineFeed,
}

/// What a chunk extension awaits (RFC 9112 7.1.1): `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// White space before a semicolon was seen: only that may follow, or `=` where there is no value yet.
    Gap {
        value_may_follow: bool,
    },
    /// The first octet of a name, or white space before it.
    NameStart,
    Name,
    /// The first octet of a value, or white space before it.
    ValueStart,
    Value,
    Quoted,
    /// The octet behind a backslash.
    QuotedPair,
    /// Behind the closing quote.
    QuotedEnd,
}

/// What may be wrong with a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Size,
    SizeTooLarge,
    Extension,
    LineEnd,
    Overhead,
    Trailer,
}

impl Decoder {
    /// For a client's body.
    ///
    /// # Panics
    /// If `framing` is [`Framing::UntilClose`], which requests do not have (RFC 9112 6.3).
    #[must_use]
    pub const fn request(framing: Framing) -> Self {
        assert!(!matches!(framing, Framing::UntilClose));
        Self::new(framing, Sender::Client)
    }

    /// For a child's body.
    #[must_use]
    pub const fn response(framing: Framing) -> Self {
        Self::new(framing, Sender::Child)
    }

    const fn new(framing: Framing, from: Sender) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, from, overhead_bytes: 0, name: [0; NAME_BYTES_MAX], name_len: 0 }
    }

    /// Whether the body has ended.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Octets still to come, where the length is known from the head.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Takes note of octets of the body that went by without being shown to [`Decoder::step`] (spliced ones).
    ///
    /// # Panics
    /// If more than [`Decoder::left`] went by, or it is not known.
    pub const fn pass(&mut self, octets: u64) {
        let State::Length(left) = self.state else {
            assert!(octets == 0, "only a body of known length is passed by");
            return;
        };
        assert!(octets <= left, "more octets than the body has");
        self.state = if octets == left { State::Done } else { State::Length(left - octets) };
    }

    /// Looks at the next octets: framing, then data as far as one range of it goes, then framing behind it. Call again
    /// with what was not consumed; a call that consumes nothing needs more input, or is done.
    ///
    /// # Errors
    /// The rule that the framing breaks. The connection cannot be used again, nor can the decoder.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Fault> {
        let mut step = Step::default();
        match self.state {
            State::Done => {}
            State::UntilClose => {
                step.data = 0..input.len();
                step.consumed = input.len();
            }
            State::Length(left) => {
                let taken = at_most(left, input.len());
                step.data = 0..taken;
                step.consumed = taken;
                self.pass(taken as u64);
            }
            _ => self.step_chunks(input, &mut step).map_err(|flaw| flaw.fault(self.from))?,
        }
        step.done = self.is_done();
        Ok(step)
    }

    /// The connection ended.
    ///
    /// # Errors
    /// If the body has not: it is incomplete, and nobody may take it for whole (RFC 9112 8).
    pub const fn end_of_input(&mut self) -> Result<(), Fault> {
        match (self.state, self.from) {
            (State::Done, _) => Ok(()),
            (State::UntilClose, _) => {
                self.state = State::Done;
                Ok(())
            }
            (_, Sender::Client) => Err(Fault::BodyCutShort),
            (_, Sender::Child) => Err(Fault::ChildBodyCutShort),
        }
    }

    fn step_chunks(&mut self, input: &[u8], step: &mut Step) -> Result<(), Flaw> {
        let mut seen_data = false;
        let mut trailers = None;
        while let Some(octet) = input.get(step.consumed).copied() {
            if let State::Data(left) = self.state {
                if seen_data {
                    break;
                }
                seen_data = true;
                let taken = at_most(left, input.len() - step.consumed);
                step.data = step.consumed..step.consumed + taken;
                step.consumed = step.data.end;
                let left = left - taken as u64;
                self.state = if left == 0 { State::DataReturn } else { State::Data(left) };
                continue;
            }
            let before = self.state;
            self.state = self.on_framing(octet)?;
            if before.is_trailer() && self.state != State::LastLineFeed {
                let start = *trailers.get_or_insert(step.consumed);
                step.trailers = start..step.consumed + 1;
            }
            step.consumed += 1;
            if self.state == State::Done {
                break;
            }
        }
        Ok(())
    }

    /// One octet that is not data.
    fn on_framing(&mut self, octet: u8) -> Result<State, Flaw> {
        match self.state {
            State::Size { size, digits } => self.on_size(size, digits, octet),
            State::Extension { size, at } => {
                self.count_overhead()?;
                on_extension(size, at, octet)
            }
            State::SizeLineFeed { size } => match (octet, size) {
                (b'\n', 0) => Ok(State::TrailerStart),
                (b'\n', size) => Ok(State::Data(size)),
                _ => Err(Flaw::LineEnd),
            },
            State::DataReturn if octet == b'\r' => Ok(State::DataLineFeed),
            State::DataLineFeed if octet == b'\n' => Ok(State::Size { size: 0, digits: 0 }),
            State::DataReturn | State::DataLineFeed => Err(Flaw::LineEnd),
            State::TrailerStart if octet == b'\r' => Ok(State::LastLineFeed),
            State::TrailerStart => {
                self.name_len = 0;
                self.on_trailer_name(octet)
            }
            State::TrailerName => self.on_trailer_name(octet),
            State::TrailerValue => {
                self.count_overhead()?;
                match octet {
                    b'\r' => Ok(State::TrailerLineFeed),
                    // RFC 9110 5.5
                    b'\t' | b' '..=0x7e | 0x80.. => Ok(State::TrailerValue),
                    _ => Err(Flaw::Trailer),
                }
            }
            State::TrailerLineFeed if octet == b'\n' => Ok(State::TrailerStart),
            State::LastLineFeed if octet == b'\n' => Ok(State::Done),
            State::TrailerLineFeed | State::LastLineFeed => Err(Flaw::LineEnd),
            State::Done | State::Length(_) | State::UntilClose | State::Data(_) => {
                unreachable!("not a state of framing")
            }
        }
    }

    /// RFC 9112 7.1: `chunk-size = 1*HEXDIG`.
    fn on_size(&mut self, size: u64, digits: usize, octet: u8) -> Result<State, Flaw> {
        let digit = match octet {
            b'0'..=b'9' => octet - b'0',
            b'a'..=b'f' => octet - b'a' + 10,
            b'A'..=b'F' => octet - b'A' + 10,
            _ if digits == 0 => return Err(Flaw::Size),
            b'\r' => return Ok(State::SizeLineFeed { size }),
            b';' => {
                self.count_overhead()?;
                return Ok(State::Extension { size, at: Extension::NameStart });
            }
            b' ' | b'\t' => {
                self.count_overhead()?;
                return Ok(State::Extension { size, at: Extension::Gap { value_may_follow: false } });
            }
            b'\n' => return Err(Flaw::LineEnd),
            _ => return Err(Flaw::Size),
        };
        if digits == CHUNK_SIZE_DIGITS_MAX {
            return Err(Flaw::SizeTooLarge);
        }
        // Sixteen digits fill the 64 bits and cannot wrap them.
        Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
    }

    fn on_trailer_name(&mut self, octet: u8) -> Result<State, Flaw> {
        self.count_overhead()?;
        if is_tchar(octet) {
            if let Some(place) = self.name.get_mut(self.name_len) {
                *place = octet;
            }
            self.name_len += 1;
            return Ok(State::TrailerName);
        }
        // Also a name that is empty, a space before the colon, and a folded line (RFC 9112 5.1, 5.2).
        if octet != b':' || self.name_len == 0 {
            return Err(Flaw::Trailer);
        }
        match self.name.get(..self.name_len) {
            Some(name) if is_forbidden(name) => Err(Flaw::Trailer),
            _ => Ok(State::TrailerValue),
        }
    }

    const fn count_overhead(&mut self) -> Result<(), Flaw> {
        if self.overhead_bytes == CHUNK_OVERHEAD_BYTES_MAX {
            return Err(Flaw::Overhead);
        }
        self.overhead_bytes += 1;
        Ok(())
    }
}

impl State {
    const fn is_trailer(self) -> bool {
        matches!(self, Self::TrailerStart | Self::TrailerName | Self::TrailerValue | Self::TrailerLineFeed)
    }
}

impl Flaw {
    const fn fault(self, from: Sender) -> Fault {
        match (from, self) {
            (Sender::Client, Self::Size) => Fault::ChunkSizeInvalid,
            (Sender::Client, Self::SizeTooLarge) => Fault::ChunkSizeTooLarge,
            (Sender::Client, Self::Extension) => Fault::ChunkExtensionInvalid,
            (Sender::Client, Self::LineEnd) => Fault::ChunkLineEndInvalid,
            (Sender::Client, Self::Overhead) => Fault::ChunkOverheadTooLarge,
            (Sender::Client, Self::Trailer) => Fault::TrailerInvalid,
            (Sender::Child, flaw) => Fault::ChildFraming(match flaw {
                Self::Size => "A chunk of the child's answer does not begin with its size (RFC 9112 7.1).",
                Self::SizeTooLarge => {
                    "A chunk's size in the child's answer has more than sixteen digits (RFC 9112 7.1)."
                }
                Self::Extension => "A chunk extension in the child's answer is malformed (RFC 9112 7.1.1).",
                Self::LineEnd => "A line or chunk of the child's answer does not end in CR LF (RFC 9112 7.1).",
                Self::Overhead => "The chunk extensions and trailers of the child's answer are too large.",
                Self::Trailer => "The trailer section of the child's answer is malformed (RFC 9112 7.1.2).",
            }),
        }
    }
}

/// One octet of an extension.
fn on_extension(size: u64, at: Extension, octet: u8) -> Result<State, Flaw> {
    use Extension::{Gap, Name, NameStart, Quoted, QuotedEnd, QuotedPair, Value, ValueStart};

    let is_blank = matches!(octet, b' ' | b'\t');
    let next = match (at, octet) {
        (Name | Value | QuotedEnd, b'\r') => return Ok(State::SizeLineFeed { size }),
        (_, b'\n') if !matches!(at, Quoted | QuotedPair) => return Err(Flaw::LineEnd),
        (NameStart | ValueStart, _) if is_blank => at,
        (NameStart | Name, _) if is_tchar(octet) => Name,
        (ValueStart | Value, _) if is_tchar(octet) => Value,
        (ValueStart, b'"') | (QuotedPair, b'\t' | b' '..=0x7e | 0x80..) => Quoted,
        (Quoted, b'"') => QuotedEnd,
        (Quoted, b'\\') => QuotedPair,
        // RFC 9110 5.6.4: qdtext and obs-text; controls end the message, so that no hop can see a line end in here.
        (Quoted, b'\t' | b' '..=0x7e | 0x80..) => Quoted,
        (Name | Gap { value_may_follow: true }, b'=') => ValueStart,
        (Name | Value | QuotedEnd | Gap { .. }, b';') => NameStart,
        (Name, _) if is_blank => Gap { value_may_follow: true },
        (Value | QuotedEnd, _) if is_blank => Gap { value_may_follow: false },
        (Gap { .. }, _) if is_blank => at,
        _ => return Err(Flaw::Extension),
    };
    Ok(State::Extension { size, at: next })
}

/// Fields that may not come behind a body (RFC 9110 6.5.1): they frame, route, or speak to one hop. Others are harmless
/// where they are dropped, and the receiver's to judge where they are not.
fn is_forbidden(name: &[u8]) -> bool {
    matches!(
        Known::named(name),
        Known::Connection
            | Known::ContentLength
            | Known::Expect
            | Known::Forwarded
            | Known::Host
            | Known::KeepAlive
            | Known::Lookalike
            | Known::ProxyConnection
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::XForwardedFor
            | Known::XForwardedHost
            | Known::XForwardedProto
            | Known::XRealIp
    )
}

/// The smaller of what is left and what is there.
fn at_most(left: u64, available: usize) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}

/// The line in front of a chunk: its size in hexadecimal, CR LF. Behind the data goes [`CRLF`].
///
/// ```
/// use antiphon::http::ChunkHead;
///
/// assert_eq!(ChunkHead::new(5).as_bytes(), b"5\r\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    octets: [u8; CHUNK_SIZE_DIGITS_MAX + 2],
    start: usize,
}

impl ChunkHead {
    /// The line for a chunk of `size` octets.
    ///
    /// # Panics
    /// If `size` is zero: that would end the body, for which there is [`LAST_CHUNK`].
    #[must_use]
    pub const fn new(size: usize) -> Self {
        assert!(size > 0);
        let mut octets = [0; CHUNK_SIZE_DIGITS_MAX + 2];
        let mut start = CHUNK_SIZE_DIGITS_MAX;
        octets[start] = b'\r';
        octets[start + 1] = b'\n';
        let mut rest = size;
        while rest > 0 {
            start -= 1;
            octets[start] = b"0123456789abcdef"[rest & 0xf];
            rest >>= 4;
        }
        Self { octets, start }
    }

    /// The octets to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets[self.start..]
    }
}

#[cfg(test)]
mod tests;
