//! Clients between requests, and the tasks between clients.
//!
//! An idle client is a slot with an armed receive. When octets come it joins the arrivals, and the task that was parked
//! last takes it; if none is parked, a new one is asked for. Who ends or breaks while idle is closed without a task.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::conn::{Conn, Role};
use super::{Io, State, TaskId};
use crate::io::buffer::Group;
use crate::io::slab::Key;
use crate::limits::TASKS_PARKED_MAX;
use crate::time::Time;

/// Arrivals and parked tasks.
#[derive(Default)]
pub(super) struct Clients {
    /// Clients with octets, first come first served.
    arrivals: VecDeque<Key>,
    /// Tasks that wait for a client, the last to come on top.
    parked: Vec<TaskId>,
    /// Arrivals for which no task was parked and none was yet made.
    pub(super) tasks_needed: usize,
}

/// Waits for a client: see [`Io::next_client`].
pub struct NextClient {
    io: Io,
    /// The task that waits.
    task: Option<TaskId>,
}

// === impl Io ===

impl Io {
    /// The next client with octets waiting. `None`: enough tasks wait already, or the worker stops; the task should
    /// end. One at a time in a task.
    pub fn next_client(&self) -> NextClient {
        NextClient { io: self.clone(), task: None }
    }

    /// What to do when a client has octets and no task is parked: spawn one that calls
    /// [`next_client`](Self::next_client).
    pub fn on_need_task(&self, spawn: impl Fn(&Self) + 'static) {
        *self.0.need_task.borrow_mut() = Some(Rc::new(spawn));
    }
}

// === impl NextClient ===

impl Future for NextClient {
    type Output = Option<Conn>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Conn>> {
        let io = self.io.clone();
        let task = io.current_task();
        let mut state = io.state();
        if let Some(key) = state.clients.arrivals.pop_front() {
            state.owned(key).role = Role::Owned;
            self.task = None;
            state.unpark(task);
            drop(state);
            return Poll::Ready(Some(Conn::new(io, key)));
        }
        if state.stop_at.is_some() {
            self.task = None;
            state.unpark(task);
            return Poll::Ready(None);
        }
        if !state.tasks.current_mut(task).parked {
            if state.clients.parked.len() >= TASKS_PARKED_MAX {
                self.task = None;
                return Poll::Ready(None);
            }
            state.tasks.current_mut(task).parked = true;
            state.clients.parked.push(task);
            self.task = Some(task);
        }
        Poll::Pending
    }
}

impl Drop for NextClient {
    fn drop(&mut self) {
        let Some(task) = self.task else { return };
        let mut state = self.io.state();
        if !state.unpark(task) && !state.clients.arrivals.is_empty() {
            // It was woken for a client and did not take it.
            state.find_server();
        }
    }
}

// === impl Conn ===

impl Conn {
    /// Gives a client back until its next octets come: none within `until` and it is closed silently. If octets are
    /// queued already it is ready again at once.
    ///
    /// # Panics
    /// When a send is in flight, its outcome was not taken, or it failed; when it is not a client.
    pub fn park_idle(mut self, until: Time) {
        self.released = true;
        self.io.state().park_idle(self.key, until);
    }
}

// === impl State ===

impl State {
    fn park_idle(&mut self, key: Key, until: Time) {
        let draining = self.draining;
        let conn = self.owned(key);
        assert!(conn.is_client, "only clients are parked idle");
        Conn::assert_at_rest(conn);
        conn.role = Role::Idle;
        conn.receiver = None;
        conn.sender = None;
        conn.group = Group::Small;
        let (silent, ended) = (conn.queue.is_empty(), conn.ended.is_some());
        if !silent {
            self.arrive(key);
        } else if ended || draining {
            self.close(key);
        } else {
            self.set_deadline(key, until);
        }
        self.settle_receive(key);
    }

    /// An idle client has octets.
    pub(super) fn arrive(&mut self, key: Key) {
        let conn = self.owned(key);
        conn.role = Role::Arrived;
        conn.deadline = Time::NEVER;
        self.clients.arrivals.push_back(key);
        self.find_server();
    }

    /// Wakes the task that was parked last, or asks for one.
    fn find_server(&mut self) {
        if let Some(task) = self.clients.parked.pop() {
            self.tasks.find_mut(task).expect("a parked task has not ended").parked = false;
            self.tasks.wake(task);
        } else {
            self.clients.tasks_needed += 1;
        }
    }

    /// Takes a task from the stack. Whether it stood there.
    fn unpark(&mut self, task: TaskId) -> bool {
        let Some(found) = self.tasks.find_mut(task) else { return false };
        if !std::mem::take(&mut found.parked) {
            return false;
        }
        self.clients.parked.retain(|&parked| parked != task);
        true
    }

    /// Wakes every parked task, to end.
    pub(super) fn unpark_all(&mut self) {
        while let Some(task) = self.clients.parked.pop() {
            self.tasks.find_mut(task).expect("a parked task has not ended").parked = false;
            self.tasks.wake(task);
        }
    }

    pub(super) fn close_idle_clients(&mut self) {
        let idle: Vec<Key> = self.conns.keys().collect();
        for key in idle {
            if self.owned(key).role == Role::Idle {
                self.close(key);
            }
        }
    }
}
