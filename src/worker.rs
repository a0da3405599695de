//! A worker: one core's thread, with a driver, its listeners, its connections and its share of the lanes.
//!
//! Nothing in a worker is shared but what its header in `lib.rs` lists: the snapshot it looks up, the submission queue
//! it fills, the ring its lanes read, and the atomics of children. Each file here is a step or a part of a step:
//! `serve.rs` is the list of steps.

mod change;
mod connect;
mod fault;
mod heads;
mod held;
mod lane;
pub mod own;
pub mod past;
mod pool;
mod read;
mod relay;
pub mod requests;
mod reserved;
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
use crate::http::http_date;
use crate::io::buffer::{Group, Sizes};
use crate::io::exec::{Io, Stats, WakeHandle};
use crate::io::{self as driver, DriverChoice};
use crate::limits::KEEPER_INTERVAL;
use crate::mirror::{Budget, MirrorGroup, Wake};
use crate::route::{Chooser, RouteTable};
use crate::sync::{Arc, AtomicU8, AtomicUsize, Ordering};
use crate::time::{self, Time};
use crate::worker::own::Own;
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
    /// Who answers the actions of [`Settings::own`].
    pub own: Arc<dyn Own>,
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
    /// One a group: how a fault is told to its clients.
    pub told: Arc<[Told]>,
    /// One a listener: the actions, in lower case, that we answer ourselves in groups of the dialect `aci`.
    pub own: Arc<[Vec<String>]>,
}

/// How a fault is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// As a problem document (RFC 9457).
    Problem,
    /// In the envelope of ACI.
    Aci {
        /// With the status 200.
        as_200: bool,
    },
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
    /// Workers that take no more connections: what they count of clients only falls.
    draining: AtomicUsize,
}

const RUN: u8 = 0;
const DRAIN: u8 = 1;
const HALT: u8 = 2;

impl Stop {
    /// Take no more connections, and end what is under way. Wake the workers afterwards.
    pub fn drain(&self) {
        self.phase.fetch_max(DRAIN, Ordering::AcqRel);
    }

    /// Cut everything now. Wake the workers afterwards.
    pub fn halt(&self) {
        self.phase.store(HALT, Ordering::Release);
    }

    /// How many workers have stopped accepting.
    pub fn draining(&self) -> usize {
        // Acquire pairs with the worker's Release: its counts are as of then, or newer.
        self.draining.load(Ordering::Acquire)
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }
}

/// A running worker, as control holds it.
pub struct Handle {
    thread: JoinHandle<io::Result<()>>,
    wake: WakeHandle,
    /// What its executor counts.
    pub io: Arc<Stats>,
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

/// Why a worker did not start.
#[derive(Debug)]
pub enum SpawnError {
    /// Its driver could not be opened.
    Driver(driver::OpenError),
    /// The host gave no thread, or no eventfd for it.
    Thread(io::Error),
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
    pub(crate) own: Arc<dyn Own>,
    pub(crate) pool: Pool,
    /// The `Date` field's value, and when it is to be written anew.
    date: Cell<([u8; 29], Time)>,
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

    /// Less than half of the buffers for clients are free: what would hold one for long is copied.
    pub(crate) fn is_short_of_small_buffers(&self) -> bool {
        let buffers = self.io.buffers();
        buffers.free(Group::Small) * 2 < buffers.count(Group::Small)
    }

    /// The time of day for `Date` (RFC 9110 6.6.1). The clock is read at most once a second.
    pub(crate) fn date(&self) -> [u8; 29] {
        let (date, until) = self.date.get();
        let now = self.io.now();
        if now < until {
            return date;
        }
        let date = http_date(time::unix_s());
        self.date.set((date, now + Duration::from_secs(1)));
        date
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
pub fn spawn(setup: Setup, common: Common) -> Result<Handle, SpawnError> {
    let (told, ready) = std::sync::mpsc::sync_channel(1);
    let thread = Builder::new().name(format!("worker-{}", setup.index)).spawn(move || {
        let opened = match driver::open(setup.driver, setup.buffers) {
            Ok(opened) => opened,
            Err(error) => {
                // The starter reports it; it has not gone away, for it waits for exactly this.
                let _ = told.send(Err(SpawnError::Driver(error)));
                return Ok(());
            }
        };
        let detail = opened.detail.clone();
        let fallback = opened.fallback_reason.clone();
        let io = match Io::new(opened.driver, opened.buffers) {
            Ok(io) => io,
            Err(error) => {
                let _ = told.send(Err(SpawnError::Thread(error)));
                return Ok(());
            }
        };
        let _ = told.send(Ok((io.wake_handle(), io.stats().clone(), io.driver_name(), detail, fallback)));
        run(io, setup.index, setup.listeners, setup.stats, common)
    });
    let thread = thread.map_err(SpawnError::Thread)?;
    let lost = |_| SpawnError::Thread(io::Error::other("the worker ended at its start"));
    let (wake, io, driver, detail, fallback) = ready.recv().map_err(lost)??;
    Ok(Handle { thread, wake, io, driver, detail, fallback })
}

fn run(io: Io, index: usize, listeners: Vec<OwnedFd>, stats: Arc<WorkerStats>, common: Common) -> io::Result<()> {
    let Common { routes, mirrors, budget, workers, settings, stop, own } = common;
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
        own,
        pool: Pool::default(),
        date: Cell::new((http_date(0), Time::ZERO)),
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

/// Once in a while: closes what has been idle for too long, and looks whether the end has come.
async fn keep(worker: Rc<Worker>, stop: Arc<Stop>) {
    let io = &worker.io;
    let mut due = io.now();
    loop {
        // The worker is woken for every outcome of a change; these looks are not for each of them.
        if io.now() >= due {
            due = io.now() + KEEPER_INTERVAL;
            worker.pool.sweep(io.now());
            worker.stats.copied_bytes.set(io.buffers().copied_bytes());
        }
        match stop.phase() {
            RUN => {}
            DRAIN if io.is_draining() => {}
            DRAIN => {
                io.drain();
                stop.draining.fetch_add(1, Ordering::Release);
            }
            _ => return io.stop(io.now()),
        }
        io.woken(due).await;
    }
}
