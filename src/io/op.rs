//! The seam: operations go in, completions come out.
//!
//! This is all that the code above knows of the kernel, and all that a driver must do. A driver does not decide:
//! it neither retries, nor times, nor closes by itself. What an operation needs (descriptor, octets, buffers) is
//! moved into it and stays there until its last completion gives it back, so nothing the kernel may still read or
//! write can be freed, and a socket cannot be closed under a pending operation: every operation holds a [`Socket`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;

use crate::io::buffer::{Chunk, Group};
use crate::limits::SEND_PIECES_MAX;
use crate::time::Time;

/// A descriptor shared by the connection that owns it and the operations under way on it. The last one closes it.
pub type Socket = Rc<OwnedFd>;

/// Names an operation until its last completion. Chosen above the driver; carries a generation, so that a late
/// completion never meets a later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a driver is asked to do.
#[derive(Debug)]
pub enum Op {
    /// Accept connections until cancelled or failed: one completion with [`Payload::Accepted`] each. Accepted
    /// descriptors are close-on-exec and non-blocking where the driver needs that.
    Accept {
        /// A listening socket.
        listener: Socket,
    },
    /// Receive until cancelled, failed or ended: one completion with [`Payload::Received`] for each arrival, a
    /// result of 0 for the end. `ENOBUFS` ends it when the group is empty.
    Receive {
        /// A connected socket.
        socket: Socket,
        /// Where the octets go.
        group: Group,
    },
    /// Send the pieces in order. May complete short: the rest is the caller's to send again.
    Send {
        /// A connected socket.
        socket: Socket,
        /// What to send; comes back with [`Payload::Sent`], not advanced.
        pieces: Pieces,
        /// False: send only what fits now (`EAGAIN` if nothing does). True: wait until something, where the kernel
        /// can everything, is sent.
        wait: bool,
    },
    /// Connect. Completes when the connection stands or has failed.
    Connect {
        /// An unconnected socket.
        socket: Socket,
        /// Where to.
        address: SocketAddr,
    },
    /// Complete, again and again, whenever the descriptor (an eventfd) is readable. The driver empties it.
    Wake {
        /// An eventfd.
        eventfd: Socket,
    },
    /// End an armed or pending operation: that one completes with `ECANCELED` (or with what it had done), without
    /// `more`. The cancellation itself completes with 0, or `ENOENT` if there was nothing left to end.
    Cancel {
        /// The operation to end.
        target: Token,
    },
}

/// What came of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The operation.
    pub token: Token,
    /// Octets, or 0 where there is nothing to count.
    pub result: Result<u32, Errno>,
    /// Further completions follow; without it, this was the last.
    pub more: bool,
    /// What the operation gives back, or found.
    pub payload: Payload,
}

/// What a completion carries.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// A new connection.
    Accepted(OwnedFd),
    /// Octets that arrived.
    Received(Chunk),
    /// The pieces of a send, as they were given.
    Sent(Pieces),
}

/// An io_uring, an epoll instance, or a script: carries operations out.
pub trait Driver {
    /// Takes an operation. It may start at once or at the next [`turn`](Self::turn). Every operation completes at
    /// least once, and exactly once without `more`.
    fn submit(&mut self, token: Token, op: Op);

    /// Starts what was submitted, waits for a completion or until `wait` has passed (`None`: for ever), and appends
    /// all completions that are there. Returns early and empty-handed on a signal.
    ///
    /// # Errors
    /// The driver itself is broken; the worker cannot go on.
    fn turn(&mut self, wait: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()>;

    /// The time, read once a turn by the caller.
    fn now(&mut self) -> Time;

    /// `"io_uring"`, `"epoll"` or `"simulated"`.
    fn name(&self) -> &'static str;
}

/// One piece of a send.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Constant text.
    Static(&'static [u8]),
    /// Octets written for this send: a head. The vector is given back with the pieces, to be used again.
    Scratch(Vec<u8>),
    /// Received octets, sent from where they were received.
    Chunk(Chunk),
    /// Octets that others send too: a change.
    Shared(Bytes),
}

impl Piece {
    /// The octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Static(octets) => octets,
            Self::Scratch(octets) => octets,
            Self::Chunk(chunk) => chunk,
            Self::Shared(octets) => octets,
        }
    }
}

/// What one send consists of, at most [`SEND_PIECES_MAX`], and how much of it has gone.
#[derive(Debug, Default)]
pub struct Pieces {
    list: Vec<Piece>,
    /// Octets of the front pieces that have been sent. Less than the length of the first piece with octets left.
    skip: usize,
    /// Pieces wholly sent, kept so that their vectors can be used again. At most `list.len()`.
    first: usize,
}

impl Pieces {
    /// No pieces.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), skip: 0, first: 0 }
    }

    /// Adds a piece at the end; an empty one is dropped.
    ///
    /// # Panics
    /// When there are [`SEND_PIECES_MAX`] already: the caller must look at [`is_full`](Self::is_full).
    pub fn push(&mut self, piece: Piece) {
        if piece.as_slice().is_empty() {
            return;
        }
        assert!(!self.is_full(), "a send of more than {SEND_PIECES_MAX} pieces");
        self.list.push(piece);
    }

    /// No further piece may be pushed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.list.len() >= SEND_PIECES_MAX
    }

    /// Pieces, sent or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Nothing is left to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == self.list.len()
    }

    /// Octets left to send.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slices().map(<[u8]>::len).sum()
    }

    /// The octets left to send, in order; none of the slices is empty.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let skip = self.skip;
        self.list[self.first..].iter().enumerate().map(move |(index, piece)| {
            let octets = piece.as_slice();
            if index == 0 { &octets[skip..] } else { octets }
        })
    }

    /// Marks `sent` octets as gone, and lets go of the chunks that have gone with them.
    ///
    /// # Panics
    /// When that many were not left.
    pub fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let piece = &mut self.list[self.first];
            let left = piece.as_slice().len() - self.skip;
            if sent < left {
                self.skip += sent;
                return;
            }
            sent -= left;
            if !matches!(piece, Piece::Scratch(_)) {
                *piece = Piece::Static(&[]);
            }
            self.skip = 0;
            self.first += 1;
        }
    }

    /// The pieces not yet wholly sent, to be replaced in place by copies where buffers are scarce. A replacement
    /// must hold the same octets.
    pub fn pending_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.list[self.first..].iter_mut()
    }

    /// Empties it for the next send, and hands out its scratch vectors, empty, to be used again.
    pub fn recycle(&mut self, mut each: impl FnMut(Vec<u8>)) {
        for piece in self.list.drain(..) {
            if let Piece::Scratch(mut octets) = piece {
                octets.clear();
                each(octets);
            }
        }
        self.skip = 0;
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_over_piece_borders() {
        let mut pieces = Pieces::new();
        pieces.push(Piece::Static(b"abc"));
        pieces.push(Piece::Scratch(b"defg".to_vec()));
        pieces.push(Piece::Static(b""));
        pieces.push(Piece::Shared(Bytes::from_static(b"hi")));
        assert_eq!(pieces.len(), 9);
        pieces.advance(4);
        assert_eq!(pieces.slices().collect::<Vec<_>>(), [b"efg".as_slice(), b"hi"]);
        pieces.advance(5);
        assert!(pieces.is_empty());
        let mut scratch = Vec::new();
        pieces.recycle(|octets| scratch.push(octets));
        assert!(scratch.len() == 1 && scratch[0].is_empty() && scratch[0].capacity() >= 4);
        assert!(pieces.is_empty());
    }
}
