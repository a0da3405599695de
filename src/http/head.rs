//! Heads: the lines up to the first empty one, read once and then no longer doubted.
//!
//! This file finds the lines; `field` knows single fields and the lists in them, `host` the names of
//! servers, `request` and `response` the two kinds of head. Bodies are not looked at.
//!
//! A head takes one of two ways, which accept the same octets (a test and a fuzz target hold them together):
//!
//! - *attempt*: a head that arrived in one piece goes through httparse with every lenient switch off;
//! - *fallback*: a head that arrives in pieces, or that httparse refuses, is read line by line as its lines become
//!   complete. It names the rule that is broken, and it knows minor versions above 1.
//!
//! In both the verdict is that of the first bad line, so it does not depend on where the octets were cut. Every octet
//! is looked at a fixed number of times, however many pieces it came in: `Lines` remembers where it stood.

mod field;
mod host;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use request::RequestHead;
pub use response::{AnswerTo, ResponseHead};

#[cfg(test)]
pub(super) use field::Field;
pub(super) use field::{Known, is_tchar, is_token, list};

use std::ops::Range;

use crate::limits::{EMPTY_LINES_MAX, FIELDS_MAX};

/// What a search for the end of a head found. Lines before [`Lines::complete`] are whole in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The head ends behind this many octets of the buffer.
    End(usize),
    /// More octets are needed.
    More,
    /// The next line ends in a LF without CR.
    BareLineFeed,
    /// More lines than [`FIELDS_MAX`] allows.
    TooManyLines,
    /// No end within the limit of octets.
    TooLarge,
}

/// Finds the lines of a head in a buffer that grows, and remembers where it stood.
#[derive(Debug, Default)]
struct Lines {
    /// The start line's first octet: behind the empty lines that were passed over.
    start: usize,
    /// Octets up to here have been searched for LF.
    scanned: usize,
    /// The first octet behind the last whole line. `start <= complete <= scanned` once the search began.
    complete: usize,
    /// Whole lines so far, the start line included.
    count: usize,
    /// Lines up to here have been read by the fallback. `start <= read <= complete`.
    read: usize,
    /// Octets that any step has looked at, so that a test can see that work is linear.
    #[cfg(test)]
    looked_at: usize,
}

impl Lines {
    /// Passes over empty lines in front. `None`: more octets are needed; else whether the start line may follow.
    fn pass_empty(&mut self, buf: &[u8]) -> Option<bool> {
        debug_assert_eq!(self.count, 0);
        loop {
            match buf[self.start..] {
                [] | [b'\r'] => return None,
                [b'\r', b'\n', ..] if self.start / 2 < EMPTY_LINES_MAX => {
                    self.start += 2;
                    self.scanned = self.start;
                    self.complete = self.start;
                    self.read = self.start;
                }
                [b'\r', b'\n', ..] => return Some(false),
                _ => return Some(true),
            }
        }
    }

    /// Searches on, in at most `bytes_max` octets behind the empty lines.
    fn search(&mut self, buf: &[u8], bytes_max: usize) -> Found {
        let limit = self.start + bytes_max;
        let window = &buf[..buf.len().min(limit)];
        while let Some(offset) = find_line_feed(&window[self.scanned..]) {
            let at = self.scanned + offset;
            self.look(at + 1 - self.scanned);
            self.scanned = at + 1;
            if at == self.complete || window[at - 1] != b'\r' {
                return Found::BareLineFeed;
            }
            if at == self.complete + 1 {
                return Found::End(at + 1);
            }
            if self.count > FIELDS_MAX {
                return Found::TooManyLines;
            }
            self.count += 1;
            self.complete = at + 1;
        }
        self.look(window.len() - self.scanned);
        self.scanned = window.len();
        if window.len() == limit { Found::TooLarge } else { Found::More }
    }

    /// The next whole line that the fallback has not read, without its CR LF.
    fn next(&mut self, buf: &[u8]) -> Option<Range<usize>> {
        if self.read == self.complete {
            return None;
        }
        let rest = &buf[self.read..self.complete];
        let length = find_line_feed(rest).expect("whole lines end in LF") + 1;
        let line = self.read..self.read + length - 2;
        self.read += length;
        self.look(length);
        Some(line)
    }

    /// Counts work, for a test.
    fn look(&mut self, octets: usize) {
        #[cfg(test)]
        {
            self.looked_at += octets;
        }
        let _ = octets;
    }
}

/// The position of the first LF. Eight octets at a time: this is the one step that every octet of a head passes
/// outside httparse.
fn find_line_feed(octets: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    const LINE_FEEDS: u64 = ONES * b'\n' as u64;

    let (words, rest) = octets.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // The lowest set bit is exact: a borrow can only raise false hits above a true one.
        let difference = u64::from_le_bytes(*word) ^ LINE_FEEDS;
        let hits = difference.wrapping_sub(ONES) & !difference & HIGHS;
        if hits != 0 {
            return Some(index * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let offset = words.len() * 8;
    rest.iter().position(|octet| *octet == b'\n').map(|at| offset + at)
}

/// Where `part`, which httparse cut out of `buf`, stands in it, moved by `offset`.
fn span_in(buf: &[u8], part: &[u8], offset: usize) -> super::Span {
    let start = part.as_ptr() as usize - buf.as_ptr() as usize + offset;
    super::Span::new(start, start + part.len())
}
