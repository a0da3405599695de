//! A front: one process's listeners, workers, sequencer and groups, put together from a configuration.
//!
//! This is where a [`Config`] becomes threads. What runs beside them (the admin side, names, signals) is
//! [`control`](super)'s; the demo starts a front without it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;

use arc_swap::ArcSwap;
use socket2::{Domain, Protocol, Socket, Type};

use super::book::Book;
use super::error::StartError;
use super::keep;
use super::names;
use super::own::Counter;
use crate::action::Dialect;
use crate::config::{self, AciErrors, Config, OwnAction, Wanted};
use crate::crash;
use crate::io::buffer::Sizes;
use crate::io::exec::Stats;
use crate::io::host;
use crate::limits::{
    BIND_LOOKS_MAX, BIND_PAUSE, CATCH_UP_HELP, CONNECTIONS_MIN, LISTEN_BACKLOG, RING_SLOTS, SUBMISSIONS_MAX,
};
use crate::mirror::durable::Reader;
use crate::mirror::{self, Budget, MirrorGroup, Sequencer, Wake};
use crate::route::{Admin, Child, ChildTimeouts, GroupShared, GroupTable, NOT_ATTACHED, RouteTable, Standing};
use crate::sync::Arc;
use crate::time::{self, Time};
use crate::worker::past::{self, PastThread};
use crate::worker::sequencer::{self, SequencerThread, ThreadWake};
use crate::worker::stats::WorkerStats;
use crate::worker::{self, Common, Handle, Settings, Setup, SpawnError, Stop, Told};

/// What the admin side sees and moves of a front. Shared with the threads; everything in it is atomic.
pub struct View {
    /// When the front started.
    pub started: Time,
    /// The snapshot that workers look up.
    pub routes: Arc<ArcSwap<RouteTable>>,
    /// The groups' changes, in the order of the configuration.
    pub mirrors: Vec<Arc<MirrorGroup>>,
    /// What each worker's executor counts.
    pub io: Vec<Arc<Stats>>,
    /// What each worker counts.
    pub stats: Vec<Arc<WorkerStats>>,
    /// Memory of bodies that are held whole.
    pub budget: Arc<Budget>,
    /// The groups as configured: what the snapshot does not hold.
    pub groups: Vec<GroupView>,
    /// Where clients come in.
    pub listeners: Vec<SocketAddr>,
    /// Where the admin side is, over TCP.
    pub admin: Option<SocketAddr>,
    /// The driver of the workers.
    pub driver: &'static str,
    /// How that was set up.
    pub detail: String,
    /// Why it, or that of another worker, is not the better one, with the cure.
    pub fallback: Option<String>,
}

/// What an operator is told of a group beside its children.
pub struct GroupView {
    /// `"aci"` or `"http"`.
    pub dialect: String,
    /// `"all"`, `"first"` …
    pub ack: &'static str,
}

/// Why a child that the operator took out is so.
pub(super) const OFFLINE: &str = "offline by the operator";
/// Why a child that the operator lets run dry is so.
pub(super) const DRAINING: &str = "draining by the operator";

/// A running front.
pub struct Front {
    /// For the admin side.
    pub view: Arc<View>,
    workers: Vec<Handle>,
    threads: Threads,
    stop: Arc<Stop>,
}

impl Front {
    /// Binds, resolves the children's names, opens drivers, starts the threads. `config` is what holds, with all that was
    /// decided; `book` takes what is decided from now on.
    ///
    /// To be called on a local task set of tokio: what clients ask of antiphon itself is answered there.
    ///
    /// # Errors
    /// What was found, what is needed, and what to change; nothing is left running.
    pub async fn start(config: &Config, book: &Arc<Book>) -> Result<Self, StartError> {
        let count = config.workers.count.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let connections_max = fit_descriptors(config, count)?;
        let mut bound = bind_all(config, count).await?;
        let groups: Vec<_> = config.groups.iter().enumerate().map(|(index, group)| table(index, group)).collect();
        names::resolve_all(&groups).await;
        let (mirrors, threads) = mirror_all(config, &groups, count)?;
        let listeners = config.listeners.iter().map(|listener| listener.table.clone()).collect();
        let routes = Arc::new(ArcSwap::from_pointee(RouteTable::new(listeners, groups)));
        let stop = Arc::new(Stop::default());
        let (own, questions) = Counter::new(config);
        let own = Arc::new(own);
        // The rings keep their changes' bodies until newer ones push them out: what is in flight comes on top.
        let rings = config.groups.len().saturating_mul(config.limits.ring_bytes_max);
        let budget = Budget::new(config.limits.action_bytes_in_flight_max.saturating_add(rings));
        let common = Common {
            routes: routes.clone(),
            mirrors: mirrors.clone(),
            budget: budget.clone(),
            workers: count,
            settings: Settings {
                timeouts: config.timeouts,
                limits: config::Limits { connections_max, ..config.limits },
                read_wait: config.groups.iter().map(|group| group.read_wait).collect(),
                told: config.groups.iter().map(told).collect(),
                own: config.listeners.iter().map(|listener| lower(&listener.own)).collect(),
            },
            stop: stop.clone(),
            own,
        };
        let threads = threads.start()?;
        let mut workers: Vec<Handle> = Vec::with_capacity(count);
        let mut stats = Vec::with_capacity(count);
        for (index, listeners) in bound.drain(..).enumerate() {
            let counted = Arc::new(WorkerStats::new(config.groups.len()));
            stats.push(counted.clone());
            let buffers = Sizes { spill_bytes_max: config.limits.spill_bytes_max, ..Sizes::default() };
            let driver = config.workers.driver.into();
            let setup = Setup { index, listeners, driver, buffers, stats: counted };
            match worker::spawn(setup, common.clone()) {
                Ok(handle) => workers.push(handle),
                Err(error) => {
                    stop.halt();
                    workers.iter().for_each(Handle::wake);
                    threads.stop();
                    return Err(match error {
                        SpawnError::Driver(error) => StartError::Driver(error.to_string()),
                        SpawnError::Thread(error) => StartError::Thread(error),
                    });
                }
            }
        }
        let first = workers.first().ok_or_else(|| StartError::Thread(io::ErrorKind::InvalidInput.into()))?;
        let view = Arc::new(View {
            started: time::now(),
            routes,
            mirrors,
            io: workers.iter().map(|worker| worker.io.clone()).collect(),
            stats,
            budget,
            groups: config.groups.iter().map(group_view).collect(),
            listeners: config.listeners.iter().map(|listener| listener.address).collect(),
            admin: config.admin.address,
            driver: first.driver,
            detail: first.detail.clone(),
            fallback: workers.iter().find_map(|worker| worker.fallback.clone()),
        });
        questions.open(&view, book);
        Ok(Self { view, workers, threads, stop })
    }

    /// Takes no more connections; what is under way goes on, until [`halt`](Self::halt).
    pub fn drain(&self) {
        self.stop.drain();
        self.workers.iter().for_each(Handle::wake);
    }

    /// After [`drain`](Self::drain): every client has gone, and every child that is live has every change.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let mirrors = &self.view.mirrors;
        let even = |mirror: &Arc<MirrorGroup>| {
            // One that is in doubt waits for the operator, not for us.
            mirror.table().occupied().all(|child| !child.takes_changes() || mirror.lag(child.index) == 0)
        };
        self.stop.draining() == self.workers.len()
            && self.view.io.iter().all(|io| io.clients.value() == 0)
            && mirrors.iter().all(even)
    }

    /// Cuts everything.
    pub fn halt(&self) {
        self.stop.halt();
        self.workers.iter().for_each(Handle::wake);
    }

    /// Have all workers ended?
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(Handle::is_finished)
    }

    /// Has any worker ended? Where nobody stopped it, that is a failure of the whole front.
    #[must_use]
    pub fn has_lost_a_worker(&self) -> bool {
        self.workers.iter().any(Handle::is_finished)
    }

    /// Waits until all threads have ended.
    ///
    /// # Errors
    /// The first worker that ended with an error.
    pub fn join(self) -> io::Result<()> {
        // All are waited for, whatever the first of them says.
        let ended: Vec<_> = self.workers.into_iter().map(Handle::join).collect();
        self.threads.stop();
        ended.into_iter().collect()
    }
}

/// Raises the limit of descriptors to what the connections need; where the host forbids that, fewer connections have
/// to do. Returns how many a worker may have.
fn fit_descriptors(config: &Config, workers: usize) -> Result<usize, StartError> {
    let wanted = config.limits.connections_max;
    let (all, listeners) = (workers as u64, config.listeners.len() as u64);
    let needed = |each: usize| host::needed_fds(all, listeners, all * each as u64);
    let Err(refusal) = host::ensure_fds(needed(wanted)) else { return Ok(wanted) };
    let limit = host::ensure_fds(refusal.limit).map_err(StartError::Limits)?;
    let fits = usize::try_from(host::connections_within(limit, all, listeners) / all).unwrap_or(wanted);
    let least = CONNECTIONS_MIN.min(wanted);
    if fits < least {
        return Err(StartError::Limits(host::TooFewFds { limit, needed: needed(least) }));
    }
    tracing::debug!(
        limit,
        connections_each = fits,
        "RLIMIT_NOFILE allows fewer connections than [limits] connections_max: LimitNOFILE={} would do",
        needed(wanted)
    );
    Ok(fits)
}

/// One set of listening sockets a worker, all bound before any thread starts.
async fn bind_all(config: &Config, workers: usize) -> Result<Vec<Vec<OwnedFd>>, StartError> {
    for listener in &config.listeners {
        // SO_REUSEPORT would let two processes of one user share a port without a word: ask without it first.
        let mut looks = 0;
        while let Err(error) = listen(listener, false) {
            // The kernel closes the listeners of a killed process only when its io_uring has been taken down, which
            // it does in its own time.
            if error.kind() != io::ErrorKind::AddrInUse || looks == BIND_LOOKS_MAX {
                return Err(StartError::bind(listener.address, error));
            }
            looks += 1;
            tokio::time::sleep(BIND_PAUSE).await;
        }
    }
    let one_set = || {
        let bound = config.listeners.iter().map(|listener| {
            listen(listener, true).map(OwnedFd::from).map_err(|error| StartError::bind(listener.address, error))
        });
        bound.collect()
    };
    (0..workers).map(|_| one_set()).collect()
}

fn listen(listener: &config::Listener, shared: bool) -> io::Result<Socket> {
    let address = listener.address;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(listener.v6_only)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket)
}

fn table(index: usize, group: &config::Group) -> Arc<GroupTable> {
    let mut children: Vec<_> = (0..group.places).map(Child::vacant).collect();
    for child in &group.children {
        children[child.place] = self::child(child);
        children[child.place].configure_cost(child.slots, group.cost.is_away(child.location.as_deref()));
    }
    let table = GroupTable {
        name: group.name.clone(),
        index,
        children: children.into_iter().map(Arc::new).collect(),
        policy: group.policy,
        rules: group.rules.clone(),
        probe: group.probe.clone(),
        timeouts: ChildTimeouts {
            connect: group.timeouts.connect,
            response_head: group.timeouts.response_head,
            response_body: group.timeouts.response_body,
            tunnel_idle: group.timeouts.tunnel_idle,
        },
        cost: group.cost.options.clone(),
        read_gate: group.read_gate,
        shared: Arc::new(GroupShared::new()),
    };
    table.set_primary(group.primary);
    Arc::new(table)
}

/// A child as it stands at the start: what was ordered before holds.
fn child(config: &config::Child) -> Child {
    let now = time::now();
    let child = Child::new(&config.name, config.place, &config.authority, config.weight, config.location.as_deref())
        .with_aliases(config.aliases.clone().into());
    match config.ordered.wanted {
        Wanted::Online => {}
        Wanted::Offline => _ = child.set_admin(Admin::Offline, OFFLINE, now),
        Wanted::Draining => _ = child.set_admin(Admin::Draining, DRAINING, now),
    }
    if config.ordered.needs_reseed {
        child.set_standing(Standing::NeedsReseed, NOT_ATTACHED, now);
    }
    child
}

/// The threads of the groups, not started yet.
#[derive(Default)]
struct Resting {
    /// One a group with a journal, and one for all others.
    sequencers: Vec<(Vec<Sequencer>, Arc<ThreadWake>)>,
    readers: Vec<(Arc<MirrorGroup>, Box<dyn Reader>, Arc<ThreadWake>)>,
}

/// The threads of the groups.
struct Threads {
    sequencers: Vec<SequencerThread>,
    readers: Vec<PastThread>,
}

impl Resting {
    fn start(self) -> Result<Threads, StartError> {
        let mut threads = Threads { sequencers: Vec::new(), readers: Vec::new() };
        for (sequencers, wake) in self.sequencers {
            match sequencer::spawn(sequencers, &wake) {
                Ok(thread) => threads.sequencers.push(thread),
                Err(error) => return Err(threads.refused(error)),
            }
        }
        for (group, reader, wake) in self.readers {
            match past::spawn(group, reader, &wake) {
                Ok(thread) => threads.readers.push(thread),
                Err(error) => return Err(threads.refused(error)),
            }
        }
        Ok(threads)
    }
}

impl Threads {
    fn refused(self, error: io::Error) -> StartError {
        self.stop();
        StartError::Thread(error)
    }

    fn stop(self) {
        self.sequencers.into_iter().for_each(SequencerThread::stop);
        self.readers.into_iter().for_each(PastThread::stop);
    }
}

/// The groups' changes, with their journals where there is a state directory.
fn mirror_all(
    config: &Config,
    groups: &[Arc<GroupTable>],
    workers: usize,
) -> Result<(Vec<Arc<MirrorGroup>>, Resting), StartError> {
    let mut threads = Resting::default();
    let mut mirrors = Vec::with_capacity(groups.len());
    let (mut together, shared) = (Vec::new(), ThreadWake::new());
    for (group, table) in config.groups.iter().zip(groups) {
        let kept = keep::open(config, group, table)?;
        let wake = if kept.is_some() { ThreadWake::new() } else { shared.clone() };
        let mut setup = mirror_setup(config, group, table, workers, &wake);
        let reader = kept.map(|kept| {
            setup.durable = Some(kept.durable);
            (kept.reader, kept.wake)
        });
        crash::point("start.opened");
        let (mirror, sequencer) = MirrorGroup::new(setup);
        match reader {
            Some((reader, reader_wake)) => {
                threads.sequencers.push((vec![sequencer], wake));
                threads.readers.push((mirror.clone(), reader, reader_wake));
            }
            None => together.push(sequencer),
        }
        mirrors.push(mirror);
    }
    if !together.is_empty() {
        threads.sequencers.push((together, shared));
    }
    Ok((mirrors, threads))
}

fn mirror_setup(
    config: &Config,
    group: &config::Group,
    table: &Arc<GroupTable>,
    workers: usize,
    wake: &Arc<ThreadWake>,
) -> mirror::Setup {
    let sequencer: Arc<dyn Wake> = wake.clone();
    mirror::Setup {
        table: table.clone(),
        // The wall clock is past every earlier start's; two starts in one millisecond there are not.
        epoch: time::unix_ms(),
        level: group.ack,
        deadline: group.write_deadline,
        live_wait: group.live_wait,
        workers,
        submissions_max: SUBMISSIONS_MAX,
        ring_slots: RING_SLOTS,
        ring_bytes_max: config.limits.ring_bytes_max,
        catch_up_help: CATCH_UP_HELP,
        sequencer,
        durable: None,
    }
}

fn lower(actions: &[OwnAction]) -> Vec<String> {
    actions.iter().map(|action| action.as_str().to_ascii_lowercase()).collect()
}

fn told(group: &config::Group) -> Told {
    match group.dialect {
        Dialect::Http => Told::Problem,
        Dialect::Aci => Told::Aci { as_200: group.aci_errors == AciErrors::Envelope },
    }
}

fn group_view(group: &config::Group) -> GroupView {
    GroupView { dialect: group.dialect.to_string(), ack: group.ack.as_str() }
}

impl From<config::DriverChoice> for crate::io::DriverChoice {
    fn from(choice: config::DriverChoice) -> Self {
        match choice {
            config::DriverChoice::Auto => Self::Auto,
            config::DriverChoice::Uring => Self::Uring,
            config::DriverChoice::Epoll => Self::Epoll,
        }
    }
}
