//! A worker: one core's thread, with a driver, its listeners, its connections and its share of the lanes.
//!
//! Nothing in a worker is shared but what its header in `lib.rs` lists: the snapshot it looks up, the submission queue
//! it fills, the ring its lanes read, and the atomics of children. Each file here is a step or a part of a step:
//! [`serve`] is the list of steps.

mod change;
mod heads;
mod held;
mod lane;
mod pool;
mod read;
mod relay;
pub mod sequencer;
mod serve;
pub mod stats;
mod tunnel;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use arc_swap::{ArcSwap, Cache};

use crate::config::{ClientTimeouts, Limits};
use crate::io::buffer::Sizes;
use crate::io::exec::{Io, WakeHandle};
use crate::io::{self as driver, DriverChoice};
use crate::limits::{DRAIN_LOOK, KEEPER_INTERVAL};
use crate::mirror::{Budget, MirrorGroup, Wake};
use crate::route::{Chooser, RouteTable};
use crate::sync::{Arc, AtomicU8, AtomicU64, Ordering};
use crate::time::Time;
use crate::worker::pool::Pool;
use crate::worker::relay::Pace;
use crate::worker::stats::WorkerStats;

/// What every worker of a process has in common.
#[derive(Clone)]
pub struct Common {
    /// The snapshot that control swaps.
    pub routes: Arc<ArcSwap<RouteTable>>,
    /// The mirror groups, in the order of the configuration.
    pub mirrors: Vec<Arc<MirrorGroup>>,
    /// Memory of bodies that are held whole.
    pub budget: Arc<Budget>,
    /// Workers in all: lane *i* lives on worker *i* mod this.
    pub workers: usize,
    /// Time-outs and limits of the client side.
    pub settings: Settings,
    /// How control ends the workers.
    pub stop: Arc<Stop>,
}

/// Time-outs and limits that do not change while a worker runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The client side's time-outs.
    pub timeouts: ClientTimeouts,
    /// Sizes.
    pub limits: Limits,
    /// One a group: how long a read waits for a child that is current.
    pub read_wait: Arc<[Duration]>,
}

impl Settings {
    /// How fast a request's body must come, and be taken by a child.
    pub(crate) const fn request_pace(&self) -> Pace {
        Pace {
            source: self.timeouts.request_body,
            rate_min: self.timeouts.request_body_rate_min,
            sink: self.timeouts.request_body,
        }
    }
}

/// What is one worker's own.
pub struct Setup {
    /// 0 to `workers` − 1.
    pub index: usize,
    /// Bound and listening sockets; the place of each is its listener's index in the configuration.
    pub listeners: Vec<OwnedFd>,
    /// Its driver, opened in the worker's thread: an io_uring belongs to the thread that made it.
    pub driver: DriverChoice,
    /// The buffers of its driver.
    pub buffers: Sizes,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
}

/// Tells the workers to end.
#[derive(Debug, Default)]
pub struct Stop {
    phase: AtomicU8,
    /// Nanoseconds of the moment when what is still under way is cut.
    deadline: AtomicU64,
}

const RUN: u8 = 0;
const DRAIN: u8 = 1;
const HALT: u8 = 2;

impl Stop {
    /// Take no more connections, end what is under way until `deadline`. Wake the workers afterwards.
    pub fn drain(&self, deadline: Time) {
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        // Release: who sees the phase sees the deadline.
        self.phase.fetch_max(DRAIN, Ordering::Release);
    }

    /// Cut everything now. Wake the workers afterwards.
    pub fn halt(&self) {
        self.phase.store(HALT, Ordering::Release);
    }

    fn now(&self) -> (u8, Time) {
        let phase = self.phase.load(Ordering::Acquire);
        (phase, Time::from_nanos(self.deadline.load(Ordering::Relaxed)))
    }
}

/// A running worker, as control holds it.
pub struct Handle {
    thread: JoinHandle<io::Result<()>>,
    wake: WakeHandle,
    /// `"io_uring"` or `"epoll"`.
    pub driver: &'static str,
    /// How it was set up.
    pub detail: String,
    /// Why it is not the better driver, with the cure.
    pub fallback: Option<String>,
}

impl Handle {
    /// Makes the worker look at [`Stop`].
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// Has the worker's thread ended?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the worker.
    ///
    /// # Errors
    /// What ended it, where that was not [`Stop`].
    pub fn join(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the worker panicked")))
    }
}

/// The routing table as a worker's tasks share it. Behind an `Rc`, so that a request counts it without an atomic that
/// all cores would pull at.
pub(crate) struct Snapshot(Arc<RouteTable>);

impl std::ops::Deref for Snapshot {
    type Target = RouteTable;

    fn deref(&self) -> &RouteTable {
        &self.0
    }
}

/// Everything a task of a worker can reach.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) io: Io,
    pub(crate) mirrors: Vec<Arc<MirrorGroup>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) settings: Settings,
    pub(crate) stats: Arc<WorkerStats>,
    /// Wakes this worker; given to whatever its tasks wait for.
    pub(crate) wake: Arc<dyn Wake>,
    pub(crate) pool: Pool,
    /// Lanes with a change on its way: a clean stop waits for them.
    pub(crate) busy_lanes: Cell<usize>,
    pub(crate) chooser: RefCell<Chooser>,
    routes: RefCell<Cache<Arc<ArcSwap<RouteTable>>, Arc<RouteTable>>>,
    /// The snapshot of this turn.
    snapshot: RefCell<Rc<Snapshot>>,
    snapshot_turn: Cell<Time>,
}

impl Worker {
    /// The routing table. Refreshed at most once a turn; a request keeps the one it began with.
    pub(crate) fn snapshot(&self) -> Rc<Snapshot> {
        let now = self.io.now();
        if self.snapshot_turn.replace(now) != now {
            let mut routes = self.routes.borrow_mut();
            let current = routes.load();
            let mut kept = self.snapshot.borrow_mut();
            if !Arc::ptr_eq(&kept.0, current) {
                *kept = Rc::new(Snapshot(current.clone()));
            }
        }
        self.snapshot.borrow().clone()
    }
}

impl Wake for WakeHandle {
    fn wake(&self) {
        Self::wake(self);
    }
}

/// Starts a worker's thread and waits until its driver stands.
///
/// # Errors
/// The driver could not be opened, or the thread not be made.
pub fn spawn(setup: Setup, common: Common) -> io::Result<Handle> {
    let (told, ready) = std::sync::mpsc::sync_channel(1);
    let thread = Builder::new().name(format!("worker-{}", setup.index)).spawn(move || {
        let opened = match driver::open(setup.driver, setup.buffers) {
            Ok(opened) => opened,
            Err(error) => {
                // The starter reports it; it has not gone away, for it waits for exactly this.
                let _ = told.send(Err(io::Error::other(error.to_string())));
                return Ok(());
            }
        };
        let detail = opened.detail.clone();
        let fallback = opened.fallback_reason.clone();
        let io = match Io::new(opened.driver, opened.buffers) {
            Ok(io) => io,
            Err(error) => {
                let _ = told.send(Err(error));
                return Ok(());
            }
        };
        let _ = told.send(Ok((io.wake_handle(), io.driver_name(), detail, fallback)));
        run(io, setup.index, setup.listeners, setup.stats, common)
    })?;
    let (wake, driver, detail, fallback) =
        ready.recv().map_err(|_| io::Error::other("the worker ended at its start"))??;
    Ok(Handle { thread, wake, driver, detail, fallback })
}

fn run(io: Io, index: usize, listeners: Vec<OwnedFd>, stats: Arc<WorkerStats>, common: Common) -> io::Result<()> {
    let Common { routes, mirrors, budget, workers, settings, stop } = common;
    io.limit_connections(settings.limits.connections_max);
    let mut cache = Cache::new(routes);
    let snapshot = cache.load().clone();
    let worker = Rc::new(Worker {
        index,
        wake: Arc::new(io.wake_handle()),
        io: io.clone(),
        mirrors,
        budget,
        settings,
        stats,
        pool: Pool::default(),
        busy_lanes: Cell::new(0),
        chooser: RefCell::new(Chooser::new(index as u64)),
        routes: RefCell::new(cache),
        snapshot: RefCell::new(Rc::new(Snapshot(snapshot.clone()))),
        snapshot_turn: Cell::new(Time::NEVER),
    });
    for (group, table) in snapshot.groups.iter().enumerate() {
        for child in (0..table.children.len()).filter(|child| child % workers == index) {
            io.spawn(lane::run(worker.clone(), group, child));
        }
    }
    io.spawn(watch_pool(worker.clone()));
    io.spawn(keep(worker.clone(), stop));
    let serving = worker.clone();
    io.on_need_task(move |io| {
        io.spawn(serve::serve_clients(serving.clone()));
    });
    for (tag, listener) in listeners.into_iter().enumerate() {
        io.listen(listener, tag, worker.settings.timeouts.keep_alive);
    }
    io.run()
}

/// Closes idle connections to children on which something happened.
async fn watch_pool(worker: Rc<Worker>) {
    loop {
        let id = worker.io.idle_closed().await;
        worker.pool.drop_broken(id);
    }
}

/// Once in a while: closes what has been idle for too long, shows the counts, and looks whether the end has come.
async fn keep(worker: Rc<Worker>, stop: Arc<Stop>) {
    let io = &worker.io;
    loop {
        let (phase, deadline) = stop.now();
        let wait = match phase {
            RUN => KEEPER_INTERVAL,
            DRAIN => {
                io.drain();
                let idle = io.stats().clients.value() == 0 && worker.busy_lanes.get() == 0;
                if idle || io.now() >= deadline {
                    return io.stop(io.now());
                }
                DRAIN_LOOK
            }
            _ => return io.stop(io.now()),
        };
        worker.pool.sweep(io.now());
        worker.show();
        io.woken(io.now() + wait).await;
    }
}

impl Worker {
    /// Copies what the executor counts to where control reads it.
    fn show(&self) {
        let (from, to) = (self.io.stats(), &self.stats);
        to.accepted.set(from.accepted.value());
        to.accept_failures.set(from.accept_failures.value());
        to.connections.set(from.connections.value());
        to.starved.set(from.starved.value());
        to.copied_bytes.set(self.io.buffers().copied_bytes());
        to.turns.set(from.turns.value());
    }
}

const _: () = assert!(DRAIN_LOOK.as_millis() < KEEPER_INTERVAL.as_millis());
