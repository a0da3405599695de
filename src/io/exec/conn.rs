//! A connection as its task sees it: the handle, and the state behind it.
//!
//! The handle is owned by one task. Dropping it closes the connection; [`park_idle`](Conn::park_idle),
//! [`park_pooled`](Conn::park_pooled) and [`close_lingering`](Conn::close_lingering) hand it back to the executor. What
//! the state goes through stands in `receive`, `send` and `close`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Poll;

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrAny};

use super::receive::Receiving;
use super::send::Sending;
use super::{Io, State, TaskId};
use crate::io::buffer::{Chunk, Group};
use crate::io::op::{Pieces, Socket};
use crate::io::slab::Key;
use crate::io::wheel::TimerKey;
use crate::limits::STARVED_LOOK;
use crate::time::Time;

/// A connection, owned: what comes in is queued for the owner, within bounds; one send at a time goes out.
///
/// Dropped, it is shut in both directions at once, its operations are cancelled, and its descriptor is closed after
/// the last of them has completed.
pub struct Conn {
    pub(super) io: Io,
    pub(super) key: Key,
    /// It has been handed back to the executor: dropping the handle does nothing more.
    pub(super) released: bool,
}

/// Names a connection; never used for a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) Key);

/// What a receive came to.
#[derive(Debug)]
pub enum Received {
    /// Octets, at least one.
    Data(Chunk),
    /// The peer has sent all that it will. Told again by each later receive.
    End,
    /// The connection is broken. Told again by each later receive.
    Failed(Errno),
    /// The time has come; nothing was lost, and the connection is as it was.
    TimedOut,
}

/// How receiving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer has sent all that it will; it may still receive.
    End,
    /// The connection is broken.
    Failed(Errno),
}

/// Why a send or a connect failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The time has come.
    TimedOut,
    /// The kernel said so.
    Failed(Errno),
}

/// Why a send failed. The connection can only be dropped then: nobody knows how much of it went.
pub type SendError = IoError;

/// The state of a connection, from its first operation to its last.
pub(super) struct ConnState {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    /// Looked up when first asked for.
    pub(super) local: Option<SocketAddr>,
    pub(super) tag: usize,
    pub(super) role: Role,
    /// It was accepted, not connected.
    pub(super) is_client: bool,
    /// Operations without their last completion. The slot stays until there are none.
    pub(super) operations: u32,

    /// Where octets go when it is armed next; equal to the group that it is armed on, or it is being re-armed.
    pub(super) group: Group,
    pub(super) receive: Receiving,
    /// More than the cap was queued; receiving starts again when half of that is gone.
    pub(super) paused: bool,
    /// Set once; nothing is received after it.
    pub(super) ended: Option<Ended>,
    /// What has come and was not taken. No chunk is empty.
    pub(super) queue: VecDeque<Chunk>,
    /// The octets of `queue`.
    pub(super) queued_bytes: usize,
    /// It stands in the list of connections with unread octets.
    pub(super) listed: bool,
    pub(super) receiver: Option<TaskId>,

    pub(super) send: Sending,
    pub(super) sender: Option<TaskId>,

    /// When an idle or lingering connection is closed.
    pub(super) deadline: Time,
    /// Its timer, which may stand earlier than `deadline`: it is moved on when it fires.
    pub(super) timer: Option<(Time, TimerKey)>,
}

/// Who looks after a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A future that waits for it to stand; the outcome, once it is there.
    Connecting(Option<Result<(), Errno>>),
    /// A task.
    Owned,
    /// Nobody: a client between requests.
    Idle,
    /// Nobody yet: a client with octets, in the queue for a task.
    Arrived,
    /// A pool: a child's connection between requests. Whether something came that should not have.
    Pooled { disturbed: bool },
    /// Nobody: it is read, so that the peer gets what was sent, and closed. `bytes_left` of reading.
    Lingering { bytes_left: usize, shut: bool },
    /// Nobody: it waits for its last completion.
    Closing,
}

// === impl ConnId ===

impl ConnId {
    /// A number for it in diagnostic lines.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0.as_u64()
    }
}

// === impl ConnState ===

impl ConnState {
    /// It is not armed, because there is no free buffer.
    const fn is_starved(&self) -> bool {
        matches!(self.receive, Receiving::Starved(_))
    }

    pub(super) fn new(socket: Socket, peer: SocketAddr, role: Role, group: Group) -> Self {
        Self {
            socket,
            peer,
            local: None,
            tag: 0,
            role,
            is_client: false,
            operations: 0,
            group,
            receive: Receiving::Off,
            paused: false,
            ended: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            listed: false,
            receiver: None,
            send: Sending::Idle,
            sender: None,
            deadline: Time::NEVER,
            timer: None,
        }
    }
}

// === impl State ===

impl State {
    /// Takes a connection into the table.
    pub(super) fn open(&mut self, conn: ConnState) -> Key {
        if conn.is_client {
            self.stats.clients.add(1);
        }
        let key = self.conns.insert(conn);
        self.stats.connections.set(self.conns.len() as u64);
        key
    }

    /// The connection behind a handle.
    pub(super) fn owned(&mut self, key: Key) -> &mut ConnState {
        self.conns.find_mut(key).expect("a handle keeps its connection")
    }
}

// === impl Conn ===

impl Conn {
    pub(super) const fn new(io: Io, key: Key) -> Self {
        Self { io, key, released: false }
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> ConnId {
        ConnId(self.key)
    }

    /// The executor that it lives on.
    #[must_use]
    pub const fn io(&self) -> &Io {
        &self.io
    }

    /// The other end. IPv4 addresses are given as such, also on a socket for both. Unspecified, port 0, if it was gone
    /// before it could be asked for.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.io.state().owned(self.key).peer
    }

    /// Our end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        let mut state = self.io.state();
        let conn = state.owned(self.key);
        if let Some(local) = conn.local {
            return local;
        }
        let local = local_address(&conn.socket);
        conn.local = Some(local);
        local
    }

    /// What its listener was given; 0 for a connection to a child.
    #[must_use]
    pub fn tag(&self) -> usize {
        self.io.state().owned(self.key).tag
    }

    /// Takes the next octets. Without any, notes the current task for when some come, and for `until`.
    ///
    /// # Panics
    /// Outside a task, if it has to wait.
    pub fn poll_receive(&self, until: Time) -> Poll<Received> {
        let mut state = self.io.state();
        if let Some(chunk) = state.take_received(self.key) {
            return Poll::Ready(Received::Data(chunk));
        }
        let ended = state.owned(self.key).ended;
        match ended {
            Some(Ended::End) => Poll::Ready(Received::End),
            Some(Ended::Failed(errno)) => Poll::Ready(Received::Failed(errno)),
            // What we have no buffer for is not the peer's silence.
            None if until <= state.now && !state.owned(self.key).is_starved() => Poll::Ready(Received::TimedOut),
            None => {
                let task = self.io.current_task();
                let until = if until > state.now { until } else { state.now + STARVED_LOOK };
                state.owned(self.key).receiver = Some(task);
                state.tasks.current_mut(task).wait_until(until);
                Poll::Pending
            }
        }
    }

    /// Waits for the next octets, the end, or `until`. Giving up the wait loses nothing.
    pub async fn receive(&self, until: Time) -> Received {
        std::future::poll_fn(|_| self.poll_receive(until)).await
    }

    /// Puts octets back to the front of the queue: what was taken beyond a message's end.
    pub fn put_back(&self, chunk: Chunk) {
        self.io.state().put_back(self.key, chunk);
    }

    /// Octets received and not taken.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.io.state().owned(self.key).queued_bytes
    }

    /// Has receiving ended? Told though octets are still queued; not seen while so many are queued that receiving has
    /// stopped. Otherwise notes the current task.
    ///
    /// # Panics
    /// Outside a task, if it has to wait.
    pub fn poll_ended(&self) -> Poll<Ended> {
        let mut state = self.io.state();
        let conn = state.owned(self.key);
        if let Some(ended) = conn.ended {
            return Poll::Ready(ended);
        }
        conn.receiver = Some(self.io.current_task());
        Poll::Pending
    }

    /// How receiving ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.io.state().owned(self.key).ended
    }

    /// Receives into the other group of buffers from now on. What is on its way may still come in the old one.
    pub fn use_group(&self, group: Group) {
        self.io.state().use_group(self.key, group);
    }

    /// Starts a send. What does not go at once is sent again until all has gone, and copied out of buffers that are
    /// scarce.
    ///
    /// # Panics
    /// When a send is in flight or its outcome was not taken, or one was given up.
    pub fn begin_send(&self, pieces: Pieces) {
        self.io.state().begin_send(self.key, pieces);
    }

    /// A send is in flight, or its outcome was not taken.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        matches!(self.io.state().owned(self.key).send, Sending::InFlight(_) | Sending::Done(_))
    }

    /// The outcome of the send: the pieces, all gone, to be used again. Until it is there, notes the current task.
    ///
    /// # Errors
    /// The connection broke, or `until` has come: then the send is given up and the connection can only be dropped.
    ///
    /// # Panics
    /// When no send was begun; outside a task, if it has to wait.
    pub fn poll_sent(&self, until: Time) -> Poll<Result<Pieces, SendError>> {
        let mut state = self.io.state();
        match state.take_sent(self.key, until) {
            Poll::Pending => {
                let task = self.io.current_task();
                state.owned(self.key).sender = Some(task);
                state.tasks.current_mut(task).wait_until(until);
                Poll::Pending
            }
            ready @ Poll::Ready(_) => ready,
        }
    }

    /// Sends all of the pieces and gives them back to be used again. As [`begin_send`](Self::begin_send) and
    /// [`poll_sent`](Self::poll_sent).
    ///
    /// # Errors
    /// As [`poll_sent`](Self::poll_sent).
    pub async fn send(&self, pieces: Pieces, until: Time) -> Result<Pieces, SendError> {
        self.begin_send(pieces);
        std::future::poll_fn(|_| self.poll_sent(until)).await
    }

    /// Tells the peer that nothing more will be sent; receiving goes on.
    ///
    /// # Panics
    /// When a send is in flight.
    pub fn shut_write(&self) {
        let mut state = self.io.state();
        let conn = state.owned(self.key);
        assert!(!matches!(conn.send, Sending::InFlight(_)), "a send is in flight");
        // Fails only where the connection is gone already, which receiving tells.
        let _shut = rustix::net::shutdown(&conn.socket, Shutdown::Write);
    }

    /// Closes it so that the peer gets what was sent: a send in flight is finished, then the sending side is shut, and
    /// what still comes is read and dropped until the peer closes or [`LINGER`](crate::limits::LINGER) has passed
    /// (RFC 9112 9.6). Needs no task.
    pub fn close_lingering(mut self) {
        self.released = true;
        self.io.state().linger(self.key);
    }

    /// Closes it at once with a reset: the peer learns that an answer without a length was cut.
    pub fn reset(mut self) {
        self.released = true;
        self.io.state().reset(self.key);
    }

    /// Nothing is under way that its next user would meet.
    pub(super) fn assert_at_rest(conn: &ConnState) {
        assert!(matches!(conn.send, Sending::Idle), "a connection with an unfinished or failed send is not used again");
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.released {
            self.io.state().close(self.key);
        }
    }
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Conn").field(&self.key).finish()
    }
}

/// Who is at the other end of an accepted socket.
pub(super) fn peer_address(socket: &Socket) -> SocketAddr {
    rustix::net::getpeername(socket).ok().flatten().map_or(UNKNOWN_ADDRESS, plain_address)
}

pub(super) fn local_address(socket: &Socket) -> SocketAddr {
    rustix::net::getsockname(socket).map_or(UNKNOWN_ADDRESS, plain_address)
}

fn plain_address(address: SocketAddrAny) -> SocketAddr {
    SocketAddr::try_from(address)
        .map_or(UNKNOWN_ADDRESS, |address| SocketAddr::new(address.ip().to_canonical(), address.port()))
}

pub(super) const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
