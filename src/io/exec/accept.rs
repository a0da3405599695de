//! Accepting: armed while there is room, with a pause where the process has run out of something.
//!
//! A listener that fails for want of descriptors or memory would fail again at once and for as long as the want lasts:
//! it is armed again after a pause that doubles. What fails for one connection (it was gone before we came) says
//! nothing about the next, and is armed again at once.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use socket2::SockRef;

use super::conn::{ConnState, Role, peer_address};
use super::{Io, Operation, State, Timed};
use crate::io::buffer::Group;
use crate::io::op::{Op, Payload, Socket};
use crate::io::slab::Key;
use crate::limits::{ACCEPT_PAUSE_MAX, ACCEPT_PAUSE_MIN, CLIENT_UNSENT_BYTES_MAX};

/// A listening socket and its armed accept.
pub(super) struct Listener {
    /// Gone when we have stopped listening.
    socket: Option<Socket>,
    tag: usize,
    first_byte_within: Duration,
    accept: Accept,
    /// How long the next pause will be.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accept {
    Off,
    Armed(Key),
    /// Armed, and told to end.
    Ending(Key),
    /// Off until its timer fires.
    Paused,
}

// === impl Io ===

impl Io {
    /// Accepts connections on a listening socket. Each is a client that is idle until its first octets come, has `tag`,
    /// and is closed silently if none come within `first_byte_within`.
    pub fn listen(&self, listener: OwnedFd, tag: usize, first_byte_within: Duration) {
        let mut state = self.state();
        state.listeners.push(Listener {
            socket: Some(Socket::new(listener)),
            tag,
            first_byte_within,
            accept: Accept::Off,
            pause: ACCEPT_PAUSE_MIN,
        });
        state.settle_accepts();
    }

    /// Stops accepting and closes the listening sockets. Connections that are accepted before this takes effect are
    /// served.
    pub fn stop_listening(&self) {
        let mut state = self.state();
        for listener in &mut state.listeners {
            listener.socket = None;
        }
        state.settle_accepts();
    }
}

// === impl State ===

impl State {
    /// Arms what should be armed and ends what should not.
    pub(super) fn settle_accepts(&mut self) {
        let room = self.conns.len() < self.connections_max - (self.connections_max / 8).max(1);
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            match (listener.accept, &listener.socket) {
                (Accept::Off, Some(socket)) if room => {
                    let op = Op::Accept { listener: Socket::clone(socket) };
                    let operation = self.submit(Operation::Accept { listener: index }, op);
                    self.listeners[index].accept = Accept::Armed(operation);
                }
                (Accept::Armed(operation), socket) if !room || socket.is_none() => {
                    listener.accept = Accept::Ending(operation);
                    self.cancel(None, operation);
                }
                _ => {}
            }
        }
    }

    pub(super) fn on_accept(&mut self, index: usize, result: Result<u32, Errno>, more: bool, payload: Payload) {
        let listener = &mut self.listeners[index];
        if !more {
            listener.accept = Accept::Off;
        }
        match (result, payload) {
            (Ok(_), Payload::Accepted(socket)) => {
                listener.pause = ACCEPT_PAUSE_MIN;
                self.admit(index, socket);
            }
            (Ok(_), payload) => unreachable!("an accept gives a socket, not {payload:?}"),
            (Err(Errno::CANCELED | Errno::INTR), _) => {}
            (Err(errno), _) => {
                self.stats.accept_failures.add(1);
                if !more && !concerns_one_connection(errno) {
                    self.pause_accept(index, errno);
                }
            }
        }
        self.settle_accepts();
    }

    fn pause_accept(&mut self, index: usize, errno: Errno) {
        let listener = &mut self.listeners[index];
        if listener.socket.is_none() {
            return;
        }
        let pause = listener.pause;
        listener.pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
        listener.accept = Accept::Paused;
        self.wheel.insert(self.now + pause, Timed::Listener(index));
        tracing::warn!(
            error = %std::io::Error::from(errno),
            pause_ms = pause.as_millis(),
            open = self.conns.len(),
            "cannot accept connections; trying again after a pause (if descriptors are short, raise LimitNOFILE)"
        );
    }

    pub(super) fn on_listener_timer(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        if listener.accept == Accept::Paused {
            listener.accept = Accept::Off;
        }
        self.settle_accepts();
    }

    /// A new client, if there is room for one.
    fn admit(&mut self, index: usize, socket: OwnedFd) {
        // As in `settle_accepts`: a burst may complete before the listener has heard that there is no room.
        if self.draining || self.conns.len() >= self.connections_max - (self.connections_max / 8).max(1) {
            self.stats.accept_refused.add(1);
            return;
        }
        self.stats.accepted.add(1);
        // Answers go out whole, so there is nothing to gain from waiting. Not every socket has it.
        let _set = set_tcp_nodelay(&socket, true);
        let _set = SockRef::from(&socket).set_tcp_notsent_lowat(CLIENT_UNSENT_BYTES_MAX);
        let socket = Socket::new(socket);
        let peer = peer_address(&socket);
        let mut conn = ConnState::new(socket, peer, Role::Idle, Group::Small);
        let listener = &self.listeners[index];
        conn.tag = listener.tag;
        conn.is_client = true;
        let deadline = self.now + listener.first_byte_within;
        let key = self.open(conn);
        self.set_deadline(key, deadline);
        self.settle_receive(key);
    }
}

/// Errors that accept(2) reports of the connection it would have returned, not of the listener.
fn concerns_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::PERM
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::TIMEDOUT
    )
}
