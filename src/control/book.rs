//! The book of decisions: what operators and failover have decided since the file was written, in memory, and durable
//! where there is a state directory.
//!
//! Whoever carries out an order notes it here and then waits until it is kept; what is noted meanwhile goes with the same
//! write. Not what the decisions do: that is in the atomics of children by the time they are noted.

use std::io;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
use tokio::time::interval;

use super::front::View;
use super::state::Home;
use crate::config::{ChildDecisions, Config, Decisions};
use crate::limits::{BOOK_RETRY, WATCH_LOOK};
use crate::route::GroupTable;
use crate::sync::Arc;
use crate::time::{Time, now};

/// What was decided.
#[derive(Debug)]
pub struct Book {
    filed: Filed,
    /// Replaced on the control thread alone.
    noted: ArcSwap<Noted>,
    shelf: Option<Arc<Shelf>>,
}

/// What the configuration says of each group's children, in its order: what a decision differs from.
#[derive(Debug, Default)]
pub struct Filed(Vec<Vec<FiledChild>>);

/// One child as the configuration has it.
#[derive(Debug)]
pub struct FiledChild {
    name: Box<str>,
    authority: Box<str>,
    weight: u32,
}

#[derive(Clone, Debug, Default)]
struct Noted {
    decisions: Decisions,
    /// Counts the times that they changed.
    version: u64,
}

/// Where the decisions are kept.
#[derive(Debug)]
struct Shelf {
    home: Home,
    /// The version that is durable. Held while it is written, so that an older one never replaces a newer.
    kept: Arc<Mutex<u64>>,
}

// === impl Filed ===

impl Filed {
    /// As `config` has it before anything decided is applied.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let child = |child: &crate::config::Child| FiledChild {
            name: child.name.clone(),
            authority: child.authority.clone(),
            weight: child.weight,
        };
        Self(config.groups.iter().map(|group| group.children.iter().map(child).collect()).collect())
    }

    /// How many children the configuration has in this group.
    #[must_use]
    pub fn count(&self, group: usize) -> usize {
        self.0.get(group).map_or(0, Vec::len)
    }

    /// A child of the configuration and its place.
    #[must_use]
    pub fn find(&self, group: usize, child: &str) -> Option<(usize, &FiledChild)> {
        self.0.get(group)?.iter().enumerate().find(|(_, filed)| *filed.name == *child)
    }
}

// === impl FiledChild ===

impl FiledChild {
    /// Its share of reads.
    #[must_use]
    pub const fn weight(&self) -> u32 {
        self.weight
    }
}

// === impl Book ===

impl Book {
    /// The book of a front whose configuration is `filed`, where `decisions` have been applied to it. Without a home it
    /// forgets with the process.
    pub(super) fn new(filed: Filed, decisions: Decisions, home: Option<Home>) -> Arc<Self> {
        let shelf = home.map(|home| Arc::new(Shelf { home, kept: Arc::default() }));
        Arc::new(Self { filed, noted: ArcSwap::from_pointee(Noted { decisions, version: 0 }), shelf })
    }

    /// The book of a front that keeps nothing.
    #[must_use]
    pub fn forgetful(config: &Config) -> Arc<Self> {
        Self::new(Filed::of(config), Decisions::default(), None)
    }

    /// Does it survive a restart?
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.shelf.is_some()
    }

    /// What the configuration says.
    #[must_use]
    pub const fn filed(&self) -> &Filed {
        &self.filed
    }

    /// Notes what was decided of a child. What the configuration says itself is no decision.
    pub(super) fn note_child(&self, group: &GroupTable, child: &str, decide: impl FnOnce(&mut ChildDecisions)) {
        self.note(|decisions| {
            let decided = decisions.child_mut(&group.name, child);
            decide(decided);
            if let Some((_, filed)) = self.filed.find(group.index, child) {
                decided.added = None;
                decided.address = decided.address.take().filter(|address| **address != *filed.authority);
                decided.weight = decided.weight.filter(|weight| *weight != filed.weight);
            }
        });
    }

    /// Notes that a child is not there any more.
    pub(super) fn note_removed(&self, group: &GroupTable, child: &str) {
        let removed = self.filed.find(group.index, child).is_some();
        self.note_child(group, child, |decided| *decided = ChildDecisions { removed, ..ChildDecisions::default() });
        self.note_primary(group);
    }

    /// Notes which child leads, an operator's choice or failover's: only where it is not the first.
    pub(super) fn note_primary(&self, group: &GroupTable) {
        let primary = group.primary();
        let leads = group.occupied().next().is_none_or(|first| first.index == primary);
        let child = &group.children[primary];
        if child.is_vacant() {
            // It is moving on.
            return;
        }
        let name = (!leads).then(|| child.name().to_string());
        // Asked ten times a second, and hardly ever news.
        if self.noted.load().decisions.groups.get(&*group.name).and_then(|known| known.primary.as_ref())
            == name.as_ref()
        {
            return;
        }
        self.note(|decisions| decisions.group_mut(&group.name).primary = name);
    }

    /// Notes every group's primary: failover moves it without a word to anybody.
    pub(super) fn note_primaries(&self, view: &View) {
        if self.is_kept() {
            view.routes.load_full().groups.iter().for_each(|group| self.note_primary(group));
        }
    }

    fn note(&self, decide: impl FnOnce(&mut Decisions)) {
        let before = self.noted.load_full();
        let mut noted = Noted::clone(&before);
        decide(&mut noted.decisions);
        noted.decisions.tidy();
        if noted.decisions != before.decisions {
            noted.version += 1;
            self.noted.store(Arc::new(noted));
        }
    }

    /// Returns when all that was noted before is durable; at once where nothing is kept, or nothing was noted.
    ///
    /// # Errors
    /// It could not be written; it is tried again with the next call.
    pub async fn keep(&self) -> io::Result<()> {
        let Some(shelf) = &self.shelf else { return Ok(()) };
        if self.noted.load().version == 0 {
            return Ok(());
        }
        let mut kept = shelf.kept.clone().lock_owned().await;
        let noted = self.noted.load_full();
        if *kept == noted.version {
            return Ok(());
        }
        let shelf = shelf.clone();
        // In a thread that may wait for a disk, and to its end, whoever still waits for it.
        let written = tokio::task::spawn_blocking(move || {
            shelf.home.write_decisions(&noted.decisions)?;
            *kept = noted.version;
            Ok(())
        });
        written.await.map_err(io::Error::other)?
    }
}

/// Keeps what failover decides, and what could not be kept at once; never ends.
pub(super) async fn follow(book: &Book, view: &View) {
    let mut look = interval(WATCH_LOOK);
    let mut again = Time::ZERO;
    loop {
        look.tick().await;
        book.note_primaries(view);
        if now() < again {
            continue;
        }
        if let Err(error) = book.keep().await {
            again = now() + BOOK_RETRY;
            let again_s = Duration::as_secs(&BOOK_RETRY);
            tracing::error!(%error, again_s, "what was decided cannot be written: a restart forgets it; trying again");
        }
    }
}
