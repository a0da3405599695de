//! Sending: one send in flight on a connection, repeated until all of it has gone.
//!
//! The first attempt takes what fits into the socket at once. Only what is left then waits, and pins its buffers
//! while it does: unless they are scarce, when it is copied out of them first. The next send may begin when the owner
//! has taken the outcome of this one, so octets cannot overtake each other.

use std::task::Poll;

use rustix::io::Errno;

use super::conn::{Conn, IoError, Role, SendError};
use super::receive::spill_if_scarce;
use super::{Operation, State};
use crate::io::op::{Op, Payload, Piece, Pieces, Socket};
use crate::io::slab::Key;
use crate::time::Time;

/// Where the send of a connection stands.
#[derive(Debug)]
pub(super) enum Sending {
    /// The driver connects the socket.
    Connecting(Key),
    /// None was begun, or its outcome was taken.
    Idle,
    /// The driver has it.
    InFlight(Key),
    /// All has gone.
    Done(Pieces),
    /// It failed. Final.
    Failed(Errno),
    /// The owner gave it up; the driver may still have it. Final.
    GivenUp(Key),
}

// === impl State ===

impl State {
    pub(super) fn begin_send(&mut self, key: Key, pieces: Pieces) {
        let conn = self.owned(key);
        Conn::assert_at_rest(conn);
        debug_assert!(conn.role == Role::Owned, "only an owner sends");
        if pieces.is_empty() {
            conn.send = Sending::Done(pieces);
        } else {
            self.submit_send(key, pieces, false);
        }
    }

    fn submit_send(&mut self, key: Key, pieces: Pieces, wait: bool) {
        let socket = Socket::clone(&self.owned(key).socket);
        let operation = self.submit(Operation::Send { conn: key, wait }, Op::Send { socket, pieces, wait });
        self.owned(key).send = Sending::InFlight(operation);
    }

    /// The outcome for the owner; pending if it is not there.
    pub(super) fn take_sent(&mut self, key: Key, until: Time) -> Poll<Result<Pieces, SendError>> {
        let now = self.now;
        let conn = self.owned(key);
        match std::mem::replace(&mut conn.send, Sending::Idle) {
            Sending::Done(pieces) => Poll::Ready(Ok(pieces)),
            Sending::InFlight(operation) if until <= now => {
                conn.send = Sending::GivenUp(operation);
                Poll::Ready(Err(IoError::TimedOut))
            }
            Sending::InFlight(operation) => {
                conn.send = Sending::InFlight(operation);
                Poll::Pending
            }
            Sending::Failed(errno) => {
                conn.send = Sending::Failed(errno);
                Poll::Ready(Err(IoError::Failed(errno)))
            }
            Sending::GivenUp(operation) => {
                conn.send = Sending::GivenUp(operation);
                Poll::Ready(Err(IoError::TimedOut))
            }
            Sending::Idle | Sending::Connecting(_) => panic!("the outcome of a send that was not begun"),
        }
    }

    pub(super) fn on_sent(&mut self, key: Key, wait: bool, result: Result<u32, Errno>, payload: Payload) {
        let Payload::Sent(mut pieces) = payload else { unreachable!("a send gives its pieces back") };
        let Some(conn) = self.conns.find_mut(key) else { return };
        if conn.role == Role::Closing || matches!(conn.send, Sending::GivenUp(_)) {
            // Nobody will ask, and no more of it may go.
            return;
        }
        let sent = match result {
            Ok(sent) => sent as usize,
            // Nothing fitted, or a signal came first.
            Err(Errno::AGAIN) if !wait => 0,
            Err(Errno::INTR) => 0,
            Err(errno) => {
                conn.send = Sending::Failed(errno);
                self.on_send_event(key);
                return;
            }
        };
        pieces.advance(sent);
        if pieces.is_empty() {
            conn.send = Sending::Done(pieces);
            self.on_send_event(key);
        } else if wait && result == Ok(0) {
            // A kernel that waits and then sends nothing would do so for ever.
            conn.send = Sending::Failed(Errno::IO);
            self.on_send_event(key);
        } else {
            // What is about to wait for a slow peer must not pin scarce buffers.
            for piece in pieces.pending_mut() {
                if let Piece::Chunk(chunk) = piece {
                    spill_if_scarce(chunk, &self.buffers, &self.stats);
                }
            }
            self.submit_send(key, pieces, true);
        }
    }

    fn on_send_event(&mut self, key: Key) {
        let conn = self.owned(key);
        match conn.role {
            Role::Lingering { .. } => self.step_linger(key),
            _ => {
                if let Some(task) = conn.sender.take() {
                    self.tasks.wake(task);
                }
            }
        }
    }
}
