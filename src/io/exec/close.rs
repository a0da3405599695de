//! Closing: at once, or after the peer has had time to read. Also the deadlines of connections without a task.
//!
//! A descriptor is closed by dropping the last [`Socket`](crate::io::op::Socket), and each operation holds one: so the
//! number cannot be given to another connection while the kernel may still complete something on this one. To close
//! is therefore to shut and to cancel; the slot goes with the last completion.

use std::time::Duration;

use rustix::net::Shutdown;
use rustix::net::sockopt::set_socket_linger;

use super::conn::Role;
use super::receive::Receiving;
use super::send::Sending;
use super::{State, Timed};
use crate::io::slab::Key;
use crate::limits::{LINGER, LINGER_BYTES_MAX};
use crate::time::Time;

// === impl State ===

impl State {
    /// Shuts the connection, cancels what is under way, and frees it with the last completion.
    pub(super) fn close(&mut self, key: Key) {
        if let Some(conn) = self.conns.find(key) {
            // Ends what is armed, whatever becomes of the cancel. It fails if the peer was faster.
            let _shut = rustix::net::shutdown(&conn.socket, Shutdown::Both);
        }
        self.cancel_all(key);
    }

    /// As [`close`](Self::close), but the peer gets a reset. For that the socket must not be shut: it would tell the
    /// peer of a proper end first.
    pub(super) fn reset(&mut self, key: Key) {
        let _set = set_socket_linger(&self.owned(key).socket, Some(Duration::ZERO));
        self.cancel_all(key);
    }

    fn cancel_all(&mut self, key: Key) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        let role = std::mem::replace(&mut conn.role, Role::Closing);
        match role {
            Role::Closing => return,
            Role::Lingering { .. } => {}
            _ => self.closing += 1,
        }
        conn.queue.clear();
        conn.queued_bytes = 0;
        conn.receiver = None;
        conn.sender = None;
        let sending = match conn.send {
            Sending::Connecting(operation) | Sending::InFlight(operation) | Sending::GivenUp(operation) => {
                Some(operation)
            }
            Sending::Idle | Sending::Done(_) | Sending::Failed(_) => None,
        };
        let timer = conn.timer.take();
        if let Some((_, timer)) = timer {
            self.wheel.cancel(timer);
        }
        self.settle_receive(key);
        if let Some(operation) = sending
            && self.operations.find(operation).is_some()
        {
            self.cancel(Some(key), operation);
        }
        self.close_if_done(key);
    }

    /// Frees a closing connection whose last operation has completed.
    pub(super) fn close_if_done(&mut self, key: Key) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        if conn.role != Role::Closing || conn.operations > 0 {
            return;
        }
        debug_assert!(!matches!(conn.receive, Receiving::Armed(..) | Receiving::Ending(_)), "an operation is missing");
        let is_client = conn.is_client;
        self.conns.remove(key);
        self.closing -= 1;
        if is_client {
            self.stats.clients.set(self.stats.clients.value() - 1);
        }
        self.stats.connections.set(self.conns.len() as u64);
        self.settle_accepts();
    }

    /// Begins to linger.
    pub(super) fn linger(&mut self, key: Key) {
        let deadline = self.now + LINGER;
        let conn = self.owned(key);
        assert!(!matches!(conn.send, Sending::GivenUp(_)), "a send was given up: drop or reset the connection");
        conn.role = Role::Lingering { bytes_left: LINGER_BYTES_MAX, shut: false };
        conn.queue.clear();
        conn.queued_bytes = 0;
        conn.paused = false;
        conn.receiver = None;
        conn.sender = None;
        self.closing += 1;
        self.settle_receive(key);
        self.set_deadline(key, deadline);
        self.step_linger(key);
    }

    /// Something has happened to a lingering connection: goes on to the next step, if it is time.
    pub(super) fn step_linger(&mut self, key: Key) {
        let conn = self.owned(key);
        let Role::Lingering { bytes_left, shut } = conn.role else { return };
        match conn.send {
            Sending::InFlight(_) => return,
            Sending::Connecting(_) => unreachable!("nobody has a handle before it stands"),
            Sending::Failed(_) | Sending::GivenUp(_) => {
                self.close(key);
                return;
            }
            Sending::Idle | Sending::Done(_) => {}
        }
        if !shut {
            conn.role = Role::Lingering { bytes_left, shut: true };
            let _shut = rustix::net::shutdown(&conn.socket, Shutdown::Write);
        }
        if conn.ended.is_some() || bytes_left == 0 {
            self.close(key);
        }
    }

    /// When the connection is closed if nothing happens. The timer is only moved if it would be late: one that fires
    /// early is moved on then, which spares moving it with each request.
    pub(super) fn set_deadline(&mut self, key: Key, deadline: Time) {
        let conn = self.owned(key);
        conn.deadline = deadline;
        if deadline == Time::NEVER || conn.timer.is_some_and(|(at, _)| at <= deadline) {
            return;
        }
        let before = conn.timer.take();
        if let Some((_, timer)) = before {
            self.wheel.cancel(timer);
        }
        let timer = self.wheel.insert(deadline, Timed::Conn(key));
        self.owned(key).timer = Some((deadline, timer));
    }

    pub(super) fn on_conn_timer(&mut self, key: Key) {
        let now = self.now;
        let Some(conn) = self.conns.find_mut(key) else { return };
        conn.timer = None;
        let deadline = conn.deadline;
        if deadline > now {
            self.set_deadline(key, deadline);
            return;
        }
        match conn.role {
            Role::Idle => {
                self.stats.idle_timeouts.add(1);
                self.close(key);
            }
            Role::Lingering { .. } => self.close(key),
            _ => {}
        }
    }
}
