//! Receiving: when a connection is armed, when it is not, and where its octets wait.
//!
//! One function decides, [`State::settle_receive`]; everything else notes facts and calls it. An armed receive goes on
//! by itself until the kernel ends it (the end, an error, no buffers, or because it likes to) or we do (too much
//! queued, another group). Ending it races with octets on their way: they are queued all the same, and nothing is
//! armed again before its last completion.

use rustix::io::Errno;

use super::conn::{Ended, Role};
use super::{Operation, State, Stats};
use crate::io::buffer::{Buffers, Chunk, Group};
use crate::io::op::{Op, Payload, Socket};
use crate::io::slab::Key;
use crate::limits::{RECEIVED_BYTES_MAX, RECEIVED_CHUNKS_MAX};

/// Where the armed receive of a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// Not armed.
    Off,
    /// Armed, on this group.
    Armed(Key, Group),
    /// Armed, and told to end; its last completion has not come.
    Ending(Key),
    /// Not armed: the group is empty. Stands in its list.
    Starved(Group),
}

// === impl State ===

impl State {
    /// Arms the receive if it should be and is not; ends it if it is and should not be.
    pub(super) fn settle_receive(&mut self, key: Key) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        let (wanted, group) = (conn.wants_octets(), conn.group);
        match conn.receive {
            Receiving::Off if wanted => {
                let socket = Socket::clone(&conn.socket);
                let operation = self.submit(Operation::Receive { conn: key }, Op::Receive { socket, group });
                self.owned(key).receive = Receiving::Armed(operation, group);
            }
            Receiving::Armed(operation, armed) if !wanted || armed != group => {
                conn.receive = Receiving::Ending(operation);
                self.cancel(Some(key), operation);
            }
            Receiving::Starved(starved) if !wanted || starved != group => {
                // Its place in the list means nothing any more.
                conn.receive = Receiving::Off;
                self.settle_receive(key);
            }
            _ => {}
        }
    }

    pub(super) fn on_received(&mut self, key: Key, result: Result<u32, Errno>, more: bool, payload: Payload) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        if !more {
            conn.receive = Receiving::Off;
        }
        match (result, payload) {
            (Ok(0), _) => conn.end(Ended::End),
            (Ok(_), Payload::Received(chunk)) => self.queue_received(key, chunk),
            (Ok(_), payload) => unreachable!("a receive gives octets, not {payload:?}"),
            (Err(Errno::NOBUFS), _) => {
                self.stats.starved.add(1);
                if !more && conn.wants_octets() {
                    let group = conn.group;
                    conn.receive = Receiving::Starved(group);
                    self.starved[Self::group_index(group)].push_back(key);
                }
            }
            // Ours, or a signal's: armed again if that is still wanted.
            (Err(Errno::CANCELED | Errno::INTR), _) => {}
            (Err(errno), _) => conn.end(Ended::Failed(errno)),
        }
        self.settle_receive(key);
        self.on_receive_event(key);
    }

    /// The connection has octets, or has ended: tells whoever looks after it.
    fn on_receive_event(&mut self, key: Key) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        let (silent, ended) = (conn.queue.is_empty(), conn.ended.is_some());
        match conn.role {
            Role::Owned if !silent || ended => {
                if let Some(task) = conn.receiver.take() {
                    self.tasks.wake(task);
                }
            }
            Role::Idle if !silent => self.arrive(key),
            // Nothing was asked, so nobody need be told.
            Role::Idle if ended => self.close(key),
            Role::Pooled { .. } if !silent || ended => self.on_disturbed(key),
            Role::Lingering { .. } => self.step_linger(key),
            _ => {}
        }
    }

    fn queue_received(&mut self, key: Key, chunk: Chunk) {
        let Some(conn) = self.conns.find_mut(key) else { return };
        match &mut conn.role {
            Role::Closing => return,
            Role::Lingering { bytes_left, .. } => {
                *bytes_left = bytes_left.saturating_sub(chunk.len());
                return;
            }
            _ => {}
        }
        if chunk.is_empty() {
            return;
        }
        conn.queued_bytes += chunk.len();
        conn.queue.push_back(chunk);
        let full = conn.queued_bytes > RECEIVED_BYTES_MAX || conn.queue.len() > RECEIVED_CHUNKS_MAX;
        if full && !conn.paused {
            conn.paused = true;
            self.stats.paused.add(1);
        }
        self.list_unread(key);
    }

    /// The next octets for the owner.
    pub(super) fn take_received(&mut self, key: Key) -> Option<Chunk> {
        let conn = self.owned(key);
        let chunk = conn.queue.pop_front()?;
        conn.queued_bytes -= chunk.len();
        let half_empty = conn.queued_bytes < RECEIVED_BYTES_MAX / 2 && conn.queue.len() < RECEIVED_CHUNKS_MAX / 2;
        if conn.paused && half_empty {
            conn.paused = false;
            self.settle_receive(key);
        }
        Some(chunk)
    }

    pub(super) fn put_back(&mut self, key: Key, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        let conn = self.owned(key);
        conn.queued_bytes += chunk.len();
        conn.queue.push_front(chunk);
        self.list_unread(key);
    }

    pub(super) fn use_group(&mut self, key: Key, group: Group) {
        self.owned(key).group = group;
        self.settle_receive(key);
    }

    fn list_unread(&mut self, key: Key) {
        let conn = self.owned(key);
        if !conn.listed {
            conn.listed = true;
            self.unread.push(key);
        }
    }

    /// Copies octets that their tasks have had a turn to take out of scarce buffers, and arms again those who wait for
    /// buffers, once there are enough of them that it is worth it.
    pub(super) fn relieve_buffers(&mut self) {
        let Self { unread, conns, buffers, stats, .. } = self;
        let scarce = Group::ALL.iter().any(|&group| buffers.is_scarce(group));
        unread.retain(|&key| {
            let Some(conn) = conns.find_mut(key) else { return false };
            if scarce {
                for chunk in &mut conn.queue {
                    spill_if_scarce(chunk, buffers, stats);
                }
            }
            conn.listed = !conn.queue.is_empty();
            conn.listed
        });
        for group in Group::ALL {
            let index = Self::group_index(group);
            if self.starved[index].is_empty() || self.buffers.is_scarce(group) {
                continue;
            }
            // One buffer each; the others wait for the next turn.
            for _ in 0..self.buffers.free(group) {
                let Some(key) = self.starved[index].pop_front() else { break };
                if let Some(conn) = self.conns.find_mut(key)
                    && conn.receive == Receiving::Starved(group)
                {
                    conn.receive = Receiving::Off;
                    self.settle_receive(key);
                }
            }
        }
    }
}

// === impl ConnState ===

impl super::conn::ConnState {
    /// Octets may come.
    fn wants_octets(&self) -> bool {
        self.ended.is_none() && !self.paused && !matches!(self.role, Role::Closing | Role::Connecting(_))
    }

    fn end(&mut self, ended: Ended) {
        self.ended.get_or_insert(ended);
    }
}

/// Replaces a chunk by a copy that pins no buffer, if its group is scarce (still: one copy may be enough) and the
/// budget allows it.
pub(super) fn spill_if_scarce(chunk: &mut Chunk, buffers: &Buffers, stats: &Stats) {
    if !chunk.group().is_some_and(|group| buffers.is_scarce(group)) {
        return;
    }
    match chunk.spill() {
        Some(copy) => {
            stats.spills.add(1);
            *chunk = copy;
        }
        None => stats.spills_refused.add(1),
    }
}
