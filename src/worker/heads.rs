//! Receiving a head: in place where it comes whole, copied out where it comes in parts.
//!
//! A head in one chunk, the usual case, is parsed and kept where the kernel put it. As soon as a head turns out to be
//! incomplete its octets are copied, so that a slow peer pins no receive buffer; and a head that has to outlive a wait
//! is copied when half of the buffers are in use ([`HeadBytes::unpin`]). What follows the head goes back to its
//! connection.

use std::task::Poll;

use rustix::io::Errno;

use crate::error::Fault;
use crate::io::buffer::Chunk;
use crate::io::exec::{Conn, Received};
use crate::limits::HEAD_VECTOR_KEPT_MAX;
use crate::time::Time;

/// The octets of one head. Reused from request to request; at most the head limits of `limits.rs` large.
#[derive(Debug, Default)]
pub(crate) struct HeadBytes {
    whole: Option<Chunk>,
    copied: Vec<u8>,
}

/// Why no head came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// The peer ended before its first octet.
    Ended,
    /// The peer ended within the head.
    CutShort,
    /// The connection failed.
    Failed(Errno),
    /// The deadline passed; `begun` tells whether any octet had come.
    TimedOut {
        /// At least one octet had come.
        begun: bool,
    },
    /// The octets are not a head that we take.
    Refused(Fault),
}

impl HeadBytes {
    /// The head's octets.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.whole.as_deref().unwrap_or(&self.copied)
    }

    /// Forgets the head; gives a chunk back to its buffer.
    pub(crate) fn clear(&mut self) {
        self.whole = None;
        self.copied.clear();
    }

    /// Copies the head out of its receive buffer, where it still is in one: for a head that outlives the next wait
    /// while buffers are few.
    pub(crate) fn unpin(&mut self) {
        if let Some(whole) = self.whole.take() {
            self.copied.extend_from_slice(&whole);
        }
    }

    /// Gives back memory that one large head has claimed.
    pub(crate) fn shrink(&mut self) {
        if self.copied.capacity() > HEAD_VECTOR_KEPT_MAX {
            self.copied = Vec::new();
        }
    }

    /// Receives until `parse` tells the head's length in octets. Begin with an empty `self`.
    pub(crate) fn poll(
        &mut self,
        conn: &Conn,
        until: Time,
        mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, Fault>,
    ) -> Poll<Result<(), NoHead>> {
        loop {
            let begun = !self.copied.is_empty();
            match conn.poll_receive(until) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Received::Data(chunk)) => {
                    if self.take(conn, chunk, &mut parse).map_err(NoHead::Refused)? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(Received::End) => {
                    return Poll::Ready(Err(if begun { NoHead::CutShort } else { NoHead::Ended }));
                }
                Poll::Ready(Received::Failed(errno)) => return Poll::Ready(Err(NoHead::Failed(errno))),
                Poll::Ready(Received::TimedOut) => return Poll::Ready(Err(NoHead::TimedOut { begun })),
            }
        }
    }

    /// Adds a chunk; true when the head is whole.
    fn take(
        &mut self,
        conn: &Conn,
        chunk: Chunk,
        parse: &mut impl FnMut(&[u8]) -> Result<Option<usize>, Fault>,
    ) -> Result<bool, Fault> {
        if self.copied.is_empty() {
            if let Some(len) = parse(&chunk)? {
                if len < chunk.len() {
                    conn.put_back(chunk.slice(len..chunk.len()));
                }
                self.whole = Some(chunk.slice(0..len));
                return Ok(true);
            }
            self.copied.extend_from_slice(&chunk);
            return Ok(false);
        }
        self.copied.extend_from_slice(&chunk);
        let Some(len) = parse(&self.copied)? else { return Ok(false) };
        // The head was not whole before this chunk, so all that follows it stands in this chunk.
        let surplus = self.copied.len() - len;
        if surplus > 0 {
            conn.put_back(chunk.slice(chunk.len() - surplus..chunk.len()));
            self.copied.truncate(len);
        }
        Ok(true)
    }
}
