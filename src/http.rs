//! HTTP/1.1 as we take it and as we write it: octets in, decisions out.
//!
//! - [`head`] turns the octets of a head into a [`RequestHead`] or [`ResponseHead`], which has decided its framing;
//! - [`body`] cuts the octets of a body out of that framing;
//! - [`forward`] writes a head for the next hop, [`reply`] writes answers of our own, [`aci`] what ACI clients expect
//!   in them.
//!
//! Nothing here waits, allocates at steady state, or reads a clock. What we refuse we refuse with the rule's name
//! ([`Fault`](crate::error::Fault)); what we accept has one reading only, and that reading is what we send.
//!
//! All positions are ranges of the caller's buffer, so that heads carry no lifetime and can be used again.

pub mod aci;
pub mod body;
pub mod forward;
pub mod head;
pub mod reply;
#[cfg(test)]
mod tests;

pub use body::{CRLF, ChunkHead, Decoder, LAST_CHUNK, Step};
pub use forward::{ToChild, ToClient, request_head, response_head};
pub use head::{AnswerTo, RequestHead, ResponseHead};
pub use reply::{AciFault, aci_fault_response, fault_response, http_date, own_response, reason_phrase};

/// A range of octets in the buffer that a head was parsed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first octet.
    pub start: u32,
    /// Behind the last octet.
    pub end: u32,
}

impl Span {
    /// The range from `start` to `end` of a buffer.
    ///
    /// # Panics
    /// If a position does not fit 32 bits; heads are bounded far below.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let narrow = |at: usize| u32::try_from(at).expect("heads are bounded by limits.rs");
        Self { start: narrow(start), end: narrow(end) }
    }

    /// The octets, in the buffer that the head was parsed from.
    ///
    /// # Panics
    /// If `buf` is shorter than that buffer.
    #[must_use]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// How many octets.
    #[must_use]
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A request method (RFC 9110 9). Methods are case-sensitive: `get` is [`Method::Other`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    #[default]
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `PATCH` (RFC 5789)
    Patch,
    /// `TRACE`; never accepted
    Trace,
    /// `CONNECT`; never accepted
    Connect,
    /// Any other token; the octets are in [`RequestHead::method_name`].
    Other,
}

impl Method {
    /// The method with this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }

    /// Whether the method asks for no change (RFC 9110 9.2.1).
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether sending it twice is meant to do what sending it once does (RFC 9110 9.2.2).
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

/// How the end of a body is found (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// This many octets.
    Length(u64),
    /// Chunks, ended by one of size zero.
    Chunked,
    /// All until the connection ends. Answers only.
    UntilClose,
}
