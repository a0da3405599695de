//! How other threads wake a worker: an eventfd, written at most once between two turns.
//!
//! A wake carries nothing. Whoever wakes has put what it has to say elsewhere first (a queue, a slot, a snapshot);
//! the worker's tasks look there when they are woken. Relies on the driver to watch and empty the eventfd.

use std::os::fd::OwnedFd;
use std::task::Poll;

use rustix::event::{EventfdFlags, eventfd};

use super::{Io, State, TaskId};
use crate::io::op::{Op, Socket};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::time::Time;

/// Wakes one worker, from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WakeHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    eventfd: OwnedFd,
    /// The eventfd has been written and the worker has not yet seen it.
    pending: AtomicBool,
}

/// The worker's side.
#[derive(Debug)]
pub(super) struct Wakes {
    eventfd: Socket,
    handle: WakeHandle,
    /// Wakes seen so far. A task that has taken fewer is ready.
    count: u64,
    /// Tasks to queue at the next one, each once.
    waiting: Vec<TaskId>,
}

// === impl WakeHandle ===

impl WakeHandle {
    /// The worker's tasks that wait for a wake will run, and see what was written before this call.
    pub fn wake(&self) {
        // AcqRel: pairs with the swap in `on_wake`. If we find `true`, the worker's later swap reads a value that
        // comes after ours, so what we wrote before is seen by the tasks it queues then.
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            // It can only fail with EAGAIN, at 2^64 - 2 writes that nobody read: then it is readable all the same.
            let _written = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

// === impl Wakes ===

impl Wakes {
    pub(super) fn new() -> std::io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = rustix::io::fcntl_dupfd_cloexec(&eventfd, 0)?;
        let handle = WakeHandle(Arc::new(Shared { eventfd: theirs, pending: AtomicBool::new(false) }));
        Ok(Self { eventfd: Socket::new(eventfd), handle, count: 0, waiting: Vec::new() })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A task has ended without having been woken.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.waiting.retain(|&waiting| waiting != task);
    }

    pub(super) fn handle(&self) -> WakeHandle {
        self.handle.clone()
    }

    pub(super) fn operation(&self) -> Op {
        Op::Wake { eventfd: Socket::clone(&self.eventfd) }
    }
}

// === impl State ===

impl State {
    /// The driver has emptied the eventfd.
    pub(super) fn on_wake(&mut self) {
        // Cleared before the tasks look, so that whoever comes after writes again. AcqRel: see `WakeHandle::wake`.
        self.wakes.handle.0.pending.swap(false, Ordering::AcqRel);
        self.wakes.count += 1;
        let mut waiting = std::mem::take(&mut self.wakes.waiting);
        for task in waiting.drain(..) {
            if let Some(task) = self.tasks.find_mut(task) {
                task.waits_for_wake = false;
            }
            self.tasks.wake(task);
        }
        self.wakes.waiting = waiting;
    }
}

// === impl Io ===

impl Io {
    /// A handle with which any thread wakes this worker.
    #[must_use]
    pub fn wake_handle(&self) -> WakeHandle {
        self.state().wakes.handle()
    }

    /// Ready with `true` if the worker was woken since this was last ready in this task (or since the task began);
    /// with `false` at `until`.
    ///
    /// # Panics
    /// Outside a task.
    pub fn poll_woken(&self, until: Time) -> Poll<bool> {
        let task = self.current_task();
        let mut state = self.state();
        let State { tasks, wakes, .. } = &mut *state;
        let this = tasks.current_mut(task);
        if this.wakes_seen != wakes.count {
            this.wakes_seen = wakes.count;
            return Poll::Ready(true);
        }
        if until <= self.now() {
            return Poll::Ready(false);
        }
        if !this.waits_for_wake {
            this.waits_for_wake = true;
            wakes.waiting.push(task);
        }
        this.wait_until(until);
        Poll::Pending
    }

    /// Waits for a wake: `true`, or until the time comes: `false`. See [`poll_woken`](Self::poll_woken).
    pub fn woken(&self, until: Time) -> impl Future<Output = bool> + use<> {
        let io = self.clone();
        std::future::poll_fn(move |_| io.poll_woken(until))
    }
}
