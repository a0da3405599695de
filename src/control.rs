//! The control thread: everything that is not on a request's line.
//!
//! It starts the front, resolves names, serves the admin side, hears signals, and ends it all. Its code is plain tokio;
//! it runs on tokio-uring where io_uring works and is wanted, else on tokio's own runtime. tokio-uring's operations
//! are used for nothing that may be given up half-way: it has no cancellation.

mod account;
pub mod aci;
pub mod admin;
pub mod book;
pub mod client;
mod error;
pub mod explain;
pub mod front;
mod keep;
mod listen;
pub mod metrics;
pub mod names;
pub mod order;
mod own;
pub mod queue;
pub mod state;
pub mod status;
mod watch;

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use admin::{ChildName, ChildVerb, Command};
pub use book::{Book, Filed};
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

async fn serve(mut config: Config, source: ConfigSource) -> Result<(), StartError> {
    let mut signals = Signals::new()?;
    let book = open_book(&mut config).await?;
    let mut admin = listen::Admin::bind(&config.admin)?;
    let front = Front::start(&config, &book).await?;
    let desk = Desk { view: front.view.clone(), draining: Arc::new(AtomicBool::new(false)), book };
    admin.serve(&desk);
    announce(&desk, &config, &source);
    let (watched, book) = (desk.view.clone(), desk.book.clone());
    tokio::task::spawn_local(async move {
        tokio::join!(names::watch(&watched), watch::watch(&watched), book::follow(&book, &watched))
    });
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
    desk.book.note_primaries(&desk.view);
    if let Err(error) = desk.book.keep().await {
        tracing::error!(%error, "what was decided cannot be written: the next start does not know it");
    }
    let outcome = front.join().map_err(StartError::Worker);
    drop(admin);
    tracing::info!("ended");
    outcome
}

/// Takes the state directory, and changes the configuration to what was decided before. First of all, before anything
/// that a second instance could disturb; the directory is held as long as the book is.
async fn open_book(config: &mut Config) -> Result<Arc<Book>, StartError> {
    let Some(state) = config.state.clone() else { return Ok(Book::forgetful(config)) };
    let home = Home::open(&state.directory).await?;
    state::refuse_abandoned(&state.directory, &config.groups)?;
    let mut decisions = state::read_decisions(&state.directory)?;
    let filed = Filed::of(config);
    for line in decisions.apply(config) {
        tracing::warn!("{line}");
    }
    Ok(Book::new(filed, decisions, Some(home)))
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
    let kept = status::changes_kept(view);
    if config.state.is_some() {
        tracing::info!("changes are kept {kept}");
    } else {
        tracing::warn!("changes are kept {kept}");
    }
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
