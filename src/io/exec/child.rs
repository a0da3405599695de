//! Connections that we make: connecting, and lying idle in a pool.
//!
//! A pooled connection stays armed. Whatever comes on it disturbs it: the end, which must take it out of the pool
//! before anybody sends on it, or octets that nobody asked for, which make it useless.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay, set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::conn::{Conn, ConnId, ConnState, IoError, Role, UNKNOWN_ADDRESS, local_address};
use super::send::Sending;
use super::{Io, Operation, State, TaskId};
use crate::io::buffer::Group;
use crate::io::op::{Op, Socket};
use crate::io::slab::Key;
use crate::limits::{CONNECTIONS_MAX, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, SILENCE_MAX};
use crate::time::Time;

/// News of pooled connections.
#[derive(Default)]
pub(super) struct Children {
    /// Pooled connections on which something came, oldest first.
    disturbed: VecDeque<ConnId>,
    /// The task that wants to know.
    keeper: Option<TaskId>,
}

/// Waits for a connection to stand: see [`Io::connect`]. Dropped, it gives up.
pub struct Connect {
    io: Io,
    address: SocketAddr,
    until: Time,
    attempt: Option<Key>,
}

/// A child's connection between requests: owned by a pool. Dropped, it is closed.
#[derive(Debug)]
pub struct Pooled {
    conn: Conn,
    idle_since: Time,
}

// === impl Io ===

impl Io {
    /// Connects to a child. The connection receives into large buffers.
    ///
    /// Resolves to [`IoError::TimedOut`] at `until`; to [`IoError::Failed`] with the kernel's error, with `EMFILE` where
    /// this worker has as many connections as it may, and with `ECONNREFUSED` where the kernel connected the socket to
    /// itself (nobody listens on a port of the range that local ports are taken from).
    pub fn connect(&self, address: SocketAddr, until: Time) -> Connect {
        Connect { io: self.clone(), address, until, attempt: None }
    }

    /// The next pooled connection that was disturbed: take it out of the pool. For one task.
    pub fn idle_closed(&self) -> impl Future<Output = ConnId> + use<> {
        let io = self.clone();
        std::future::poll_fn(move |_| {
            let mut state = io.state();
            if let Some(conn) = state.children.disturbed.pop_front() {
                return Poll::Ready(conn);
            }
            state.children.keeper = Some(io.current_task());
            Poll::Pending
        })
    }
}

// === impl Connect ===

impl Future for Connect {
    type Output = Result<Conn, IoError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let io = self.io.clone();
        let mut state = io.state();
        let key = match self.attempt {
            Some(key) => key,
            None if self.until <= state.now => return Poll::Ready(Err(IoError::TimedOut)),
            None => match state.begin_connect(self.address) {
                Ok(key) => *self.attempt.insert(key),
                Err(errno) => {
                    state.stats.connect_failures.add(1);
                    return Poll::Ready(Err(IoError::Failed(errno)));
                }
            },
        };
        let role = state.owned(key).role;
        let outcome = match role {
            Role::Connecting(Some(outcome)) => outcome.map_err(IoError::Failed),
            _ if self.until <= state.now => Err(IoError::TimedOut),
            _ => {
                let task = io.current_task();
                state.owned(key).sender = Some(task);
                state.tasks.current_mut(task).wait_until(self.until);
                return Poll::Pending;
            }
        };
        self.attempt = None;
        Poll::Ready(match outcome {
            Ok(()) => {
                state.stats.connects.add(1);
                state.owned(key).role = Role::Owned;
                state.settle_receive(key);
                drop(state);
                Ok(Conn::new(io, key))
            }
            Err(error) => {
                state.stats.connect_failures.add(1);
                state.close(key);
                Err(error)
            }
        })
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if let Some(key) = self.attempt {
            let mut state = self.io.state();
            state.stats.connect_failures.add(1);
            state.close(key);
        }
    }
}

// === impl Conn, Pooled ===

impl Conn {
    /// Gives a child's connection to a pool.
    ///
    /// # Panics
    /// When a send is in flight, its outcome was not taken, or it failed.
    #[must_use]
    pub fn park_pooled(self) -> Pooled {
        let idle_since = self.io.now();
        self.io.state().park_pooled(self.key);
        Pooled { conn: self, idle_since }
    }
}

impl Pooled {
    /// Its name, as [`Io::idle_closed`] tells it.
    #[must_use]
    pub const fn id(&self) -> ConnId {
        self.conn.id()
    }

    /// When it was given to the pool.
    #[must_use]
    pub const fn idle_since(&self) -> Time {
        self.idle_since
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.conn.peer()
    }

    /// Takes it out for a request; `None`, and closed, if it was disturbed.
    #[must_use]
    pub fn take(self) -> Option<Conn> {
        {
            let mut state = self.conn.io.state();
            let conn = state.owned(self.conn.key);
            if conn.role != (Role::Pooled { disturbed: false }) {
                return None;
            }
            conn.role = Role::Owned;
        }
        Some(self.conn)
    }
}

// === impl State ===

impl State {
    fn begin_connect(&mut self, address: SocketAddr) -> Result<Key, Errno> {
        if self.conns.len() >= self.connections_max {
            return Err(Errno::MFILE);
        }
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // As for clients: requests go out whole.
        let _set = set_tcp_nodelay(&socket, true);
        let _set = watch_for_silence(&socket);
        let socket = Socket::new(socket);
        let role = Role::Connecting(None);
        let key = self.open(ConnState::new(Socket::clone(&socket), address, role, Group::Large));
        let operation = self.submit(Operation::Connect { conn: key }, Op::Connect { socket, address });
        self.owned(key).send = Sending::Connecting(operation);
        Ok(key)
    }

    pub(super) fn on_connected(&mut self, key: Key, result: Result<u32, Errno>) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        if conn.role != Role::Connecting(None) {
            return;
        }
        let mut outcome = result.map(drop);
        if outcome.is_ok() {
            let local = local_address(&conn.socket);
            conn.local = Some(local);
            if local == conn.peer && local != UNKNOWN_ADDRESS {
                outcome = Err(Errno::CONNREFUSED);
            }
        }
        conn.role = Role::Connecting(Some(outcome));
        conn.send = Sending::Idle;
        if let Some(task) = conn.sender.take() {
            self.tasks.wake(task);
        }
    }

    fn park_pooled(&mut self, key: Key) {
        let conn = self.owned(key);
        Conn::assert_at_rest(conn);
        conn.receiver = None;
        conn.sender = None;
        conn.role = Role::Pooled { disturbed: false };
        if !conn.queue.is_empty() || conn.ended.is_some() {
            self.on_disturbed(key);
        }
    }

    /// Something came on a pooled connection.
    pub(super) fn on_disturbed(&mut self, key: Key) {
        let conn = self.owned(key);
        if conn.role != (Role::Pooled { disturbed: false }) {
            return;
        }
        conn.role = Role::Pooled { disturbed: true };
        // Bounded also where nobody keeps the pool: `Pooled::take` finds out by itself.
        if self.children.disturbed.len() >= CONNECTIONS_MAX {
            self.children.disturbed.pop_front();
        }
        self.children.disturbed.push_back(ConnId(key));
        if let Some(keeper) = self.children.keeper.take() {
            self.tasks.wake(keeper);
        }
    }
}

/// A host that vanishes says nothing, and a change under way waits for its answer without a time-out: the kernel asks
/// for signs of life, and breaks the connection when none come.
fn watch_for_silence(socket: &OwnedFd) -> rustix::io::Result<()> {
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    let silence_ms = u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(socket, silence_ms)
}
