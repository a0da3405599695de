//! Numbers and strings as octets, little-endian: the two ends of every record. Nothing here knows a record.
//!
//! Decoding takes what is there or says [`Bad`]; it never panics, and allocates no more than its input holds.

use bytes::Bytes;

use super::Bad;

/// Octets being read.
#[derive(Clone, Debug)]
pub(super) struct Input {
    rest: Bytes,
}

impl Input {
    pub(super) const fn new(octets: Bytes) -> Self {
        Self { rest: octets }
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// The next octets, shared with the input.
    pub(super) fn bytes(&mut self, length: usize) -> Result<Bytes, Bad> {
        if length > self.rest.len() {
            return Err(Bad("it ends early"));
        }
        Ok(self.rest.split_to(length))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let octets = self.bytes(N)?;
        Ok(octets[..].try_into().expect("as many as were asked for"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Bad> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Bad> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Bad> {
        self.array().map(u64::from_le_bytes)
    }

    /// Octets that say nothing yet.
    pub(super) fn zeros(&mut self, length: usize) -> Result<(), Bad> {
        let octets = self.bytes(length)?;
        if octets.iter().all(|octet| *octet == 0) { Ok(()) } else { Err(Bad("octets that must be zero are not")) }
    }

    /// A text behind its length of 16 bits.
    pub(super) fn text(&mut self) -> Result<Box<str>, Bad> {
        let length = self.u16()?;
        self.text_of(usize::from(length))
    }

    pub(super) fn text_of(&mut self, length: usize) -> Result<Box<str>, Bad> {
        let octets = self.bytes(length)?;
        std::str::from_utf8(&octets).map(Into::into).map_err(|_| Bad("a text is not UTF-8"))
    }

    /// A count of 32 bits, of items of at least `each` octets: no more than the rest can hold.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, Bad> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / each { Err(Bad("a count is larger than what follows")) } else { Ok(count) }
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Result<(), Bad> {
        if self.rest.is_empty() { Ok(()) } else { Err(Bad("it is longer than what it holds")) }
    }
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// A text behind its length of 16 bits, cut to `max` octets where a character begins.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let text = clip(text, max);
    put_u16(out, u16::try_from(text.len()).expect("no limit of a text is above 16 bits"));
    out.extend_from_slice(text.as_bytes());
}

/// At most `max` octets of a text, cut where a character begins.
pub(super) fn clip(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// A count that the format gives 32 bits.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u32(out, u32::try_from(count).expect("no table has as many"));
}
