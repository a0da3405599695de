//! `/status`: the front as an operator wants to see it, as JSON, and as lines for a terminal.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::{JournalStatus, Owed};
use super::front::View;
use crate::mirror::Level;
use crate::route::{Child, GroupTable, ReadGate};
use crate::sync::Ordering;
use crate::time::{self, Time};

/// The whole front. The names of the fields are an interface: scripts read them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of antiphon.
    pub version: String,
    /// `ready` or `draining`.
    pub state: String,
    /// Since the start.
    pub uptime_s: u64,
    /// `io_uring` or `epoll`.
    pub driver: String,
    /// Why it is not io_uring, and the cure.
    pub driver_fallback: Option<String>,
    /// Worker threads.
    pub workers: usize,
    /// Where clients come in.
    pub listeners: Vec<String>,
    /// What a restart does to changes that a child has missed.
    pub changes_kept: String,
    /// What it does to what an operator has ordered.
    pub orders_kept: String,
    /// In the order of the configuration.
    pub groups: Vec<GroupStatus>,
}

/// One group.
#[derive(Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// `aci` or `http`.
    pub dialect: String,
    /// How the child of a read is chosen.
    pub policy: String,
    /// When a change is answered.
    pub ack: String,
    /// How many a quorum is, where `ack` is one.
    pub quorum: Option<usize>,
    /// How far behind a child may be that serves reads.
    pub read_gate: String,
    /// How many changes that is, where it is bounded.
    pub reads_behind_max: Option<u64>,
    /// The child that leads.
    pub primary: String,
    /// The epoch of the sequences.
    pub epoch: u64,
    /// The sequence given last.
    pub sequence: u64,
    /// Reads are served only by children at or past this sequence, or behind it by what `read_gate` allows: the last one
    /// that a client was told of as carried out; under `durable`, that any child has applied. (A change that was refused by all raises nothing.)
    pub acknowledged: u64,
    /// Octets of the changes in memory.
    pub ring_bytes: u64,
    /// What is kept of the changes; `null` without `[state]`.
    pub journal: Option<JournalStatus>,
    /// In the order of the configuration.
    pub children: Vec<ChildStatus>,
}

/// One child.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChildStatus {
    /// Its name.
    pub name: String,
    /// As configured.
    pub host: String,
    /// Where that leads now.
    pub address: Option<String>,
    /// up, suspect, down, replaying, diverged, needs_reseed, draining, offline.
    pub state: String,
    /// What brought it there; empty where there is nothing to say.
    pub why: String,
    /// How long it has been so.
    pub since_s: u64,
    /// Its share of reads.
    pub weight: u32,
    /// Where it stands.
    pub location: Option<String>,
    /// The last change it has confirmed.
    pub applied: u64,
    /// Changes it has not confirmed.
    pub lag: u64,
    /// What these are on record; `null` without `[state]`.
    pub owed: Option<Owed>,
    /// The change that it may have carried out or not, and that may not be sent again.
    pub doubt: Option<u64>,
    /// Reads under way.
    pub in_flight: u32,
    /// Reads sent to it.
    pub requests: u64,
    /// Of these, not answered.
    pub failures: u64,
    /// Times it went down.
    pub falls: u64,
}

/// Said at start, in `/status` and in the README.
const IN_MEMORY: &str = "in memory only: a restart of antiphon forgets the changes that a child has missed";
const IN_JOURNALS: &str = "in a journal: a restart of antiphon finds them again";
/// What a restart does to orders, with a state directory.
const ORDERS_KEPT: &str = "in [state] directory: a restart finds them again";
/// And without.
const ORDERS_FORGOTTEN: &str = "nowhere, for there is no [state]: a restart forgets them";

/// What a restart does to changes that a child has missed: all groups have a journal, or none has.
#[must_use]
pub fn changes_kept(view: &View) -> &'static str {
    if view.mirrors.iter().all(|mirror| mirror.is_durable()) { IN_JOURNALS } else { IN_MEMORY }
}

impl Status {
    /// The front as of now.
    #[must_use]
    pub fn of(view: &View, draining: bool, decisions_kept: bool) -> Self {
        let now = time::now();
        let routes = view.routes.load_full();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: if draining { "draining" } else { "ready" }.to_owned(),
            uptime_s: now.since(view.started).as_secs(),
            driver: view.driver.to_owned(),
            driver_fallback: view.fallback.clone(),
            workers: view.stats.len(),
            listeners: view.listeners.iter().map(ToString::to_string).collect(),
            changes_kept: changes_kept(view).to_owned(),
            orders_kept: if decisions_kept { ORDERS_KEPT } else { ORDERS_FORGOTTEN }.to_owned(),
            groups: routes.groups.iter().map(|group| GroupStatus::of(view, group, now)).collect(),
        }
    }
}

impl GroupStatus {
    fn of(view: &View, group: &GroupTable, now: Time) -> Self {
        let mirror = &view.mirrors[group.index];
        Self {
            name: group.name.to_string(),
            dialect: view.groups[group.index].dialect.clone(),
            policy: group.policy.to_string(),
            ack: view.groups[group.index].ack.to_owned(),
            quorum: match view.mirrors[group.index].level() {
                Level::Quorum(count) => Some(usize::from(count)),
                _ => None,
            },
            read_gate: group.read_gate.as_str().to_owned(),
            reads_behind_max: match group.read_gate {
                ReadGate::Bounded(behind) => Some(behind),
                ReadGate::Strict | ReadGate::None => None,
            },
            primary: group.children[group.primary()].name().to_string(),
            epoch: mirror.epoch(),
            sequence: mirror.last_sequence(),
            acknowledged: group.shared.floor(),
            ring_bytes: mirror.ring().bytes(),
            journal: JournalStatus::of(mirror),
            children: group.occupied().map(|child| ChildStatus::of(view, group, child, now)).collect(),
        }
    }
}

impl ChildStatus {
    fn of(view: &View, group: &GroupTable, child: &Child, now: Time) -> Self {
        let why = child.why();
        let mirror = &view.mirrors[group.index];
        let counted = |counter: &crate::sync::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            name: child.name().to_string(),
            host: child.host().to_string(),
            address: child.address().map(|address| address.to_string()),
            state: child.shown().name().to_owned(),
            why: why.text.into_owned(),
            since_s: now.since(why.since).as_secs(),
            weight: child.weight(),
            location: child.location().as_deref().map(str::to_owned),
            applied: child.applied(),
            lag: mirror.lag(child.index),
            owed: Owed::of(mirror, child),
            doubt: child.doubt(),
            in_flight: child.in_flight(),
            requests: counted(&child.counters.requests),
            failures: counted(&child.counters.failures),
            falls: counted(&child.counters.falls),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up = Span(Duration::from_secs(self.uptime_s));
        writeln!(f, "antiphon {}: {} for {up}, {} workers on {}", self.version, self.state, self.workers, self.driver)?;
        if let Some(why) = &self.driver_fallback {
            writeln!(f, "  not io_uring: {why}")?;
        }
        writeln!(f, "  listening on {}", self.listeners.join(", "))?;
        writeln!(f, "  changes are kept {}", self.changes_kept)?;
        writeln!(f, "  orders are kept {}", self.orders_kept)?;
        self.groups.iter().try_for_each(|group| write!(f, "\n{group}"))
    }
}

impl fmt::Display for GroupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dialect, policy, ack, primary, epoch, sequence, acknowledged, .. } = self;
        let quorum = self.quorum.map_or_else(String::new, |count| format!(" of {count}"));
        writeln!(f, "group {name}: dialect {dialect}, policy {policy}, ack {ack}{quorum}, primary {primary}")?;
        match (&*self.read_gate, self.reads_behind_max) {
            ("none", _) => writeln!(f, "  last change {epoch}:{sequence}; reads may miss any of them")?,
            (_, None) => {
                writeln!(f, "  last change {epoch}:{sequence}; every read sees {epoch}:{acknowledged} at least")?
            }
            (_, Some(behind)) => {
                let seen = acknowledged.saturating_sub(behind);
                writeln!(f, "  last change {epoch}:{sequence}; every read sees {epoch}:{seen} at least")?;
            }
        }
        if let Some(journal) = &self.journal {
            write!(f, "{journal}")?;
        }
        let mut table = String::new();
        writeln!(table, "  child          state            for       lag     reads    failed  why")?;
        for child in &self.children {
            let ChildStatus { name, state, lag, requests, failures, why, .. } = child;
            let since = Span(Duration::from_secs(child.since_s)).to_string();
            writeln!(table, "  {name:<14} {state:<13} {since:>6} {lag:>9} {requests:>9} {failures:>9}  {why}")?;
            if let Some(sequence) = child.doubt {
                writeln!(table, "  {:<14} in doubt about change {sequence}: `antiphon child resolve {name} …`", "")?;
            }
            if let Some(owed) = child.owed.as_ref().filter(|owed| *lag > 0 && owed.bytes > 0) {
                writeln!(table, "  {:<14} lacks {owed}", "")?;
            }
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A time span in its largest unit: 42s, 7m, 3h, 12d.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            s @ 0..=119 => write!(f, "{s}s"),
            s @ 120..=7199 => write!(f, "{}m", s / 60),
            s @ 7200..=172_799 => write!(f, "{}h", s / 3600),
            s => write!(f, "{}d", s / 86400),
        }
    }
}
