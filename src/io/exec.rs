//! The executor of a worker: tasks above, operations below, connections between.
//!
//! One thread. A [`turn`](Io::turn) runs the tasks that are ready, hands the driver what they asked for, waits for
//! completions or the next deadline, and notes what has come: which makes tasks ready. The driver decides nothing, so
//! all that is the same whatever the kernel offers stands here: when to receive and when to stop, what to do with
//! a send that came back short, which descriptor may be closed.
//!
//! Rules that hold throughout:
//!
//! - **What the kernel may touch belongs to the operation.** A task that ends, or a future that is dropped, leaves its
//!   operations here. A connection's descriptor is closed after the last completion of the last operation on it.
//! - **Names carry a generation** ([`slab`](crate::io::slab)), so that a late completion meets nothing, and is dropped
//!   with what it carries.
//! - **A given-up send ends its connection**: nobody knows how much of it went. The connection can only be dropped.
//! - **Receiving belongs to the connection**, not to whoever waits for it: giving up a wait loses nothing.
//! - **An idle client has no task.** Its first octets take one that is parked (the last to be parked: its memory is
//!   warm), or ask for a new one.
//! - **Receiving stops and starts with what is queued** ([`RECEIVED_BYTES_MAX`](crate::limits::RECEIVED_BYTES_MAX)), and
//!   octets that nobody takes while their buffers are scarce are copied out of them.
//!
//! Each part has its file: `task`, `conn` (the handle), `receive`, `send`, `close`, `accept`, `client` (idle ones),
//! `child` (connects and pooled ones), `wake`, `stats`. What a [`Conn`] promises is told there.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use crate::io::buffer::{Buffers, Group};
use crate::io::op::{Completion, Driver, Op, Token};
use crate::io::slab::{Key, Slab};
use crate::io::wheel::Wheel;
use crate::limits::CONNECTIONS_MAX;
use crate::sync::Arc;
use crate::time::Time;

mod accept;
mod child;
mod client;
mod close;
mod conn;
mod receive;
mod send;
mod stats;
mod task;
mod wake;

pub use child::{Connect, Pooled};
pub use client::NextClient;
pub use conn::{Conn, ConnId, Ended, IoError, Received, SendError};
pub use stats::{Counter, Stats};
pub use task::TaskId;
pub use wake::WakeHandle;

/// The executor of one worker. Cheap to clone; stays on its thread.
///
/// ```ignore
/// let io = Io::new(driver, buffers)?;
/// io.listen(listener, 0, Duration::from_secs(10));
/// io.on_need_task(|io| { let io = io.clone(); io.clone().spawn(async move {
///     while let Some(client) = io.next_client().await { serve(client).await; }
/// }); });
/// io.run()?;
/// ```
#[derive(Clone)]
pub struct Io(Rc<Core>);

struct Core {
    /// The time stamp of this turn.
    now: Cell<Time>,
    /// The task that is being polled.
    current: Cell<Option<TaskId>>,
    driver_name: &'static str,
    buffers: Rc<Buffers>,
    stats: Arc<Stats>,
    /// Makes a serving task.
    need_task: RefCell<Option<NeedTask>>,
    /// Borrowed for the length of one call, never while a task is polled or the hook is called.
    state: RefCell<State>,
}

type NeedTask = Rc<dyn Fn(&Io)>;

struct State {
    // The driver goes first: an io_uring is closed before anything it may touch is freed.
    driver: Box<dyn Driver>,
    now: Time,
    buffers: Rc<Buffers>,
    stats: Arc<Stats>,
    tasks: Tasks,
    /// Tasks that gave their turn away.
    yielded: Vec<TaskId>,
    wakes: wake::Wakes,
    wheel: Wheel<Timed>,
    /// Whose operation a token names, until its last completion.
    operations: Slab<Operation>,
    conns: Slab<conn::ConnState>,
    /// Connections that this worker may have; the descriptors of the process are shared among the workers.
    connections_max: usize,
    listeners: Vec<accept::Listener>,
    clients: client::Clients,
    children: child::Children,
    /// Connections that wait for buffers, by group, longest first. Some may have gone, or be armed again.
    starved: [VecDeque<Key>; 2],
    /// Connections with octets that their task has not taken, each once.
    unread: Vec<Key>,
    /// Connections that linger or wait for their last completion.
    closing: usize,
    /// No new clients, and no idle ones.
    draining: bool,
    /// When to return from [`Io::run`], though tasks remain.
    stop_at: Option<Time>,
    /// The driver cannot go on.
    broken: Option<Errno>,
    /// Used again each turn.
    completions: Vec<Completion>,
    expired: Vec<Timed>,
}

/// Whose operation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Accept {
        listener: usize,
    },
    Wake,
    Receive {
        conn: Key,
    },
    Send {
        conn: Key,
        wait: bool,
    },
    Connect {
        conn: Key,
    },
    /// Of an operation of `conn`, or of a listener.
    Cancel {
        conn: Option<Key>,
    },
}

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timed {
    Task(TaskId),
    Conn(Key),
    Listener(usize),
}

use task::Tasks;

// === impl Io ===

impl Io {
    /// An executor on a driver, both with the same buffers.
    ///
    /// # Errors
    /// No descriptor is left for the eventfd with which other threads wake this one.
    pub fn new(mut driver: Box<dyn Driver>, buffers: Rc<Buffers>) -> io::Result<Self> {
        let now = driver.now();
        let driver_name = driver.name();
        let stats = Arc::new(Stats::default());
        let mut state = State {
            driver,
            now,
            buffers: Rc::clone(&buffers),
            stats: Arc::clone(&stats),
            tasks: Tasks::default(),
            yielded: Vec::new(),
            wakes: wake::Wakes::new()?,
            wheel: Wheel::new(now),
            operations: Slab::new(),
            conns: Slab::new(),
            connections_max: CONNECTIONS_MAX,
            listeners: Vec::new(),
            clients: client::Clients::default(),
            children: child::Children::default(),
            starved: [VecDeque::new(), VecDeque::new()],
            unread: Vec::new(),
            closing: 0,
            draining: false,
            stop_at: None,
            broken: None,
            completions: Vec::new(),
            expired: Vec::new(),
        };
        state.arm_wake();
        Ok(Self(Rc::new(Core {
            now: Cell::new(now),
            current: Cell::new(None),
            driver_name,
            buffers,
            stats,
            need_task: RefCell::new(None),
            state: RefCell::new(state),
        })))
    }

    /// The time stamp of this turn.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now.get()
    }

    /// `"io_uring"`, `"epoll"` or `"simulated"`.
    #[must_use]
    pub fn driver_name(&self) -> &'static str {
        self.0.driver_name
    }

    /// The counters; other threads may keep and read them.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.0.stats
    }

    /// The buffers of this worker.
    #[must_use]
    pub fn buffers(&self) -> &Rc<Buffers> {
        &self.0.buffers
    }

    /// Bounds the connections of this worker, clients and children together, by what the descriptors of the process
    /// allow. Accepting stops at seven eighths of it, so that the clients served can still reach children.
    ///
    /// # Panics
    /// When `max` is under 2 or over [`CONNECTIONS_MAX`].
    pub fn limit_connections(&self, max: usize) {
        assert!((2..=CONNECTIONS_MAX).contains(&max), "a bound of {max} connections");
        let mut state = self.state();
        state.connections_max = max;
        state.settle_accepts();
    }

    /// No new clients: stops listening, closes the clients that are idle, and each that becomes idle from now on with
    /// nothing queued.
    pub fn drain(&self) {
        self.stop_listening();
        let mut state = self.state();
        state.draining = true;
        state.close_idle_clients();
    }

    /// [`drain`](Self::drain) was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state().draining
    }

    /// Drains, and lets [`run`](Self::run) return when all tasks have ended and all closing connections are closed, or
    /// at `deadline` at the latest. Parked tasks get `None` from [`next_client`](Self::next_client).
    pub fn stop(&self, deadline: Time) {
        self.drain();
        let mut state = self.state();
        state.stop_at = Some(state.stop_at.map_or(deadline, |earlier| earlier.min(deadline)));
        state.unpark_all();
    }

    /// [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.state().stop_at.is_some()
    }

    /// Loops turns until [`stop`](Self::stop) has done its work. All tasks are gone when it returns.
    ///
    /// # Errors
    /// The driver is broken.
    pub fn run(&self) -> io::Result<()> {
        let result = loop {
            self.run_tasks();
            // Asked between the halves of a turn: those that just ran may have been the last.
            if self.state().is_done() {
                break Ok(());
            }
            if let Err(error) = self.drive() {
                break Err(error);
            }
        };
        // Tasks and the hook may hold this executor: without this they would keep each other for ever.
        self.drop_tasks();
        self.0.need_task.take();
        result
    }

    /// One turn: runs what is ready, waits for a completion or the next deadline, notes what has come.
    ///
    /// # Errors
    /// The driver is broken.
    pub fn turn(&self) -> io::Result<()> {
        self.run_tasks();
        self.drive()
    }

    /// The first half of a turn.
    fn run_tasks(&self) {
        self.call_need_task();
        self.run_ready();
    }

    /// The second half of a turn.
    fn drive(&self) -> io::Result<()> {
        let mut state = self.state();
        state.relieve_buffers();
        let wait = state.wait();
        let mut completions = std::mem::take(&mut state.completions);
        state.driver.turn(wait, &mut completions)?;
        let now = state.driver.now();
        state.now = now;
        self.0.now.set(now);
        state.stats.turns.add(1);
        state.stats.completions.add(completions.len() as u64);
        for completion in completions.drain(..) {
            state.dispatch(completion);
        }
        state.completions = completions;
        state.expire();
        let mut yielded = std::mem::take(&mut state.yielded);
        for task in yielded.drain(..) {
            state.tasks.wake(task);
        }
        state.yielded = yielded;
        state.broken.map_or(Ok(()), |errno| Err(errno.into()))
    }

    fn state(&self) -> RefMut<'_, State> {
        self.0.state.borrow_mut()
    }

    /// Makes the serving tasks that arrivals want.
    fn call_need_task(&self) {
        let needed = std::mem::take(&mut self.state().clients.tasks_needed);
        if needed == 0 {
            return;
        }
        let hook = self.0.need_task.borrow().clone();
        if let Some(hook) = hook {
            for _ in 0..needed {
                hook(self);
            }
        }
    }
}

// === impl State ===

impl State {
    /// Gives an operation to the driver.
    fn submit(&mut self, operation: Operation, op: Op) -> Key {
        let key = self.operations.insert(operation);
        if let Some(conn) = operation.conn()
            && let Some(conn) = self.conns.find_mut(conn)
        {
            conn.operations += 1;
        }
        self.driver.submit(Token(key.as_u64()), op);
        key
    }

    fn cancel(&mut self, conn: Option<Key>, target: Key) {
        self.submit(Operation::Cancel { conn }, Op::Cancel { target: Token(target.as_u64()) });
    }

    fn arm_wake(&mut self) {
        let op = self.wakes.operation();
        self.submit(Operation::Wake, op);
    }

    fn dispatch(&mut self, completion: Completion) {
        let Completion { token, result, more, payload } = completion;
        let key = Key::from_u64(token.0);
        let found = if more { self.operations.find(key).copied() } else { self.operations.remove(key) };
        let Some(operation) = found else {
            // What it carries is dropped: an accepted descriptor closes, a buffer is free again.
            self.stats.late_completions.add(1);
            return;
        };
        if !more
            && let Some(conn) = operation.conn()
            && let Some(conn) = self.conns.find_mut(conn)
        {
            conn.operations -= 1;
        }
        match operation {
            Operation::Accept { listener } => self.on_accept(listener, result, more, payload),
            Operation::Wake => match result {
                Ok(_) | Err(Errno::INTR) => {
                    self.on_wake();
                    if !more {
                        self.arm_wake();
                    }
                }
                Err(errno) => self.broken = Some(errno),
            },
            Operation::Receive { conn } => self.on_received(conn, result, more, payload),
            Operation::Send { conn, wait } => self.on_sent(conn, wait, result, payload),
            Operation::Connect { conn } => self.on_connected(conn, result),
            Operation::Cancel { .. } => {}
        }
        if let Some(conn) = operation.conn() {
            self.close_if_done(conn);
        }
    }

    fn expire(&mut self) {
        let mut expired = std::mem::take(&mut self.expired);
        self.wheel.expire(self.now, |timed| expired.push(timed));
        for timed in expired.drain(..) {
            match timed {
                Timed::Task(task) => self.on_task_timer(task),
                Timed::Conn(conn) => self.on_conn_timer(conn),
                Timed::Listener(listener) => self.on_listener_timer(listener),
            }
        }
        self.expired = expired;
    }

    /// How long the driver may wait.
    fn wait(&self) -> Option<Duration> {
        if self.tasks.has_ready() || !self.yielded.is_empty() || self.clients.tasks_needed > 0 {
            return Some(Duration::ZERO);
        }
        let next = self.wheel.next().into_iter().chain(self.stop_at).min()?;
        Some(self.now.until(next))
    }

    fn is_done(&self) -> bool {
        self.stop_at.is_some_and(|deadline| deadline <= self.now || (self.tasks.len() == 0 && self.closing == 0))
    }

    /// A group's place in arrays of both.
    const fn group_index(group: Group) -> usize {
        match group {
            Group::Small => 0,
            Group::Large => 1,
        }
    }
}

impl Operation {
    const fn conn(self) -> Option<Key> {
        match self {
            Self::Accept { .. } | Self::Wake => None,
            Self::Receive { conn } | Self::Send { conn, .. } | Self::Connect { conn } => Some(conn),
            Self::Cancel { conn } => conn,
        }
    }
}
