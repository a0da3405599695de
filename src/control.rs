//! The control thread: everything that is not on a request's line.
//!
//! It starts the front, resolves names, serves the admin side, hears signals, and ends it all. Its code is plain tokio;
//! it runs on tokio-uring where io_uring works and is wanted, else on tokio's own runtime. tokio-uring's operations
//! are used for nothing that may be given up half-way: it has no cancellation.

pub mod aci;
pub mod admin;
pub mod client;
mod error;
pub mod explain;
pub mod front;
mod listen;
pub mod metrics;
pub mod names;
mod own;
pub mod queue;
mod state;
pub mod status;
mod watch;

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use admin::{ChildName, ChildVerb, Command};
pub use error::StartError;
pub use explain::Question;
pub use front::Front;

use self::admin::Desk;
use self::state::Home;
use crate::config::{Config, DriverChoice};
use crate::limits::{FRONT_LOOK, HALT_WAIT};
use crate::sync::{Arc, AtomicBool, Ordering};

/// Where the configuration came from: for messages.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The file.
    pub path: PathBuf,
}

/// Runs a front until a signal ends it. Blocks.
///
/// TERM drains, a second TERM or an INT cuts what is left.
///
/// # Errors
/// Why it did not start, or what ended it.
pub fn run(config: Config, source: ConfigSource) -> Result<(), StartError> {
    on_runtime(config.workers.driver, serve(config, source))
}

/// Runs a future on the control thread's runtime.
///
/// # Errors
/// The runtime could not be made, or what the future returns.
pub fn on_runtime<T>(
    driver: DriverChoice,
    future: impl Future<Output = Result<T, StartError>>,
) -> Result<T, StartError> {
    // tokio-uring panics where io_uring is refused: ask first.
    if driver != DriverChoice::Epoll
        && crate::io::host::uring_available().is_ok()
        && let Ok(runtime) = tokio_uring::Runtime::new(&tokio_uring::builder())
    {
        return runtime.block_on(future);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

async fn serve(config: Config, source: ConfigSource) -> Result<(), StartError> {
    let mut signals = Signals::new()?;
    // Before anything that a second instance could disturb; held until the end.
    let _home = match &config.state {
        Some(state) => Some(Home::open(&state.directory).await?),
        None => None,
    };
    let mut admin = listen::Admin::bind(&config.admin)?;
    let front = Front::start(&config).await?;
    let desk = Desk { view: front.view.clone(), draining: Arc::new(AtomicBool::new(false)) };
    admin.serve(&desk);
    announce(&desk, &config, &source);
    let watched = desk.view.clone();
    tokio::task::spawn_local(async move { tokio::join!(names::watch(&watched), watch::watch(&watched)) });
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    let asked = tokio::select! {
        ask = signals.next() => Some(ask),
        () = until(|| front.has_lost_a_worker()) => None,
    };
    desk.draining.store(true, Ordering::Relaxed);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    if asked == Some(Ask::Term) {
        let within = config.timeouts.drain;
        tracing::info!(within_s = within.as_secs(), "draining: a second TERM, or INT, cuts what is left");
        front.drain();
        tokio::select! {
            () = until(|| front.is_drained()) => {}
            () = tokio::time::sleep(within) => tracing::warn!("the time to drain is over: what is left is cut"),
            _ = signals.next() => {}
        }
    }
    front.halt();
    if tokio::time::timeout(HALT_WAIT, until(|| front.is_finished())).await.is_err() {
        // Its thread cannot be ended from here; the process can.
        return Err(StartError::Worker(io::Error::other("a worker does not end")));
    }
    watch::tell_who_is_behind(&desk.view);
    let outcome = front.join().map_err(StartError::Worker);
    drop(admin);
    tracing::info!("ended");
    outcome
}

/// The lines that every start leaves: what runs, on what, and what is not kept.
fn announce(desk: &Desk, config: &Config, source: &ConfigSource) {
    let view = &desk.view;
    let listeners: Vec<_> = view.listeners.iter().map(ToString::to_string).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %source.path.display(),
        driver = view.driver,
        setup = view.detail,
        workers = view.stats.len(),
        listen = listeners.join(", "),
        groups = config.groups.len(),
        "antiphon runs"
    );
    if let Some(why) = &view.fallback {
        tracing::warn!(why, "io_uring is not used");
    }
    tracing::warn!("changes are kept {}", status::CHANGES_KEPT);
}

struct Signals {
    term: Signal,
    int: Signal,
    /// Heard only so that they do not end us, as they would by default.
    hup: Signal,
    usr1: Signal,
}

impl Signals {
    fn new() -> Result<Self, StartError> {
        let hear = |kind| signal(kind).map_err(StartError::Thread);
        Ok(Self {
            term: hear(SignalKind::terminate())?,
            int: hear(SignalKind::interrupt())?,
            hup: hear(SignalKind::hangup())?,
            usr1: hear(SignalKind::user_defined1())?,
        })
    }

    /// The next that ends us.
    async fn next(&mut self) -> Ask {
        loop {
            tokio::select! {
                _ = self.term.recv() => return Ask::Term,
                _ = self.int.recv() => return Ask::Int,
                _ = self.hup.recv() => tracing::warn!("HUP is ignored: to read the configuration anew, restart"),
                _ = self.usr1.recv() => tracing::warn!("USR1 is ignored: lines go to stderr"),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Term,
    Int,
}

/// Returns when `come` says so.
async fn until(come: impl Fn() -> bool) {
    while !come() {
        tokio::time::sleep(FRONT_LOOK).await;
    }
}
