//! A child: what is configured of it, and the words that all threads share about it.
//!
//! It is a *place* in its group, and who stands there may change: control adds, moves and removes children while we run.
//! A place where nobody stands is *vacant*: it is in nobody's set, and is not shown.
//!
//! Three things decide whether it serves reads, each with one author: its *health* (whether it answers: whoever saw
//! something), its *standing* (whether its data is current: its lane), and what the *operator* wants. They are kept
//! apart, so that no author can undo another's word, and shown as one ([`Shown`]).
//!
//! Orderings. `applied` is released by the lane after the child has answered, and acquired by readers; a stale value
//! is a lower one, which only keeps a read away. A standing is released by the lane before anything that relies on it
//! (the change that is answered without this child raises the floor later). Counters are relaxed: they publish
//! nothing.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::address::Addresses;
use super::at_load::AtLoad;
use super::cost::{self, Charge, Dispatch};
use super::health::{Health, Step};
use super::latency::Latency;
use crate::limits::WEIGHT_MAX;
use crate::probe::{self, Event, Kind, Options};
use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, CachePadded, Ordering};
use crate::time::Time;

/// A server behind us. Outlives snapshots: a new one points to the same children.
#[derive(Debug)]
pub struct Child {
    /// Where it stands in its group.
    pub index: usize,
    /// Who stands there; of a vacant place, who did.
    identity: ArcSwap<Identity>,
    /// Where its name leads now.
    pub addresses: Addresses,
    /// What is counted of it: written by every request, so on a line of its own.
    pub counters: CachePadded<Counters>,
    /// What [`select`](super::select()) reads, on one line.
    gate: CachePadded<Gate>,
    pub(super) latency: CachePadded<Latency>,
    pub(super) at_load: CachePadded<AtLoad>,
    cost: cost::Standing,
    /// The last reason that each author gave.
    health_why: ArcSwap<Why>,
    standing_why: ArcSwap<Why>,
    admin_why: ArcSwap<Why>,
}

/// Who a child is. Replaced whole, by control alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What it is called, whatever its address.
    pub name: Arc<str>,
    /// As configured, `host:port`.
    pub host: Arc<str>,
    /// What else it calls itself in its tokens, spelled as `host`.
    pub aliases: Arc<[Box<str>]>,
    /// Where it stands in the world, for the operator.
    pub location: Option<Arc<str>>,
}

/// Written seldom, read by every choice.
#[derive(Debug)]
struct Gate {
    health: Health,
    applied: AtomicU64,
    /// The change that nobody knows whether it has applied, and that holds up what comes after it; 0 if none.
    doubt: AtomicU64,
    weight: AtomicU32,
    standing: AtomicU8,
    admin: AtomicU8,
    /// Its address has been another one since we started: connections may be left that lead there.
    moved: AtomicBool,
}

/// Whether a child's data is current: its lane's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It has every change it should have, and takes new ones.
    Live,
    /// It is being sent what it missed.
    Replaying,
    /// It answered a change unlike its siblings.
    Diverged,
    /// What it missed is gone, or nobody knows whether it has applied a change.
    NeedsReseed,
}

/// What the operator wants of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Admin {
    /// It serves.
    Online,
    /// No reads, no probes; changes wait.
    Offline,
    /// No new reads; those in flight end.
    Draining,
    /// Nobody is to stand in this place: no reads, no probes, no changes.
    Vacant,
}

/// A child's state as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// It serves reads and takes changes.
    Up,
    /// It did not answer something; a probe is to decide.
    Suspect,
    /// It does not answer.
    Down,
    /// It answers, and is sent what it missed.
    Replaying,
    /// It answered a change unlike its siblings.
    Diverged,
    /// It must be made identical again by hand, then attached.
    NeedsReseed,
    /// The operator lets it run dry.
    Draining,
    /// The operator took it out.
    Offline,
}

/// Why a child is as it is shown, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// For the operator; empty where there is nothing to say.
    pub text: Cow<'static, str>,
    /// Since when.
    pub since: Time,
}

/// What is counted of a child, since the process began. Relaxed; each only rises (but what is in flight).
#[derive(Debug, Default)]
pub struct Counters {
    /// Of what is in flight, changes: [`InFlight`] alone writes it.
    changes: AtomicU32,
    /// Reads sent to it ([`select`](super::select())), retries included.
    pub requests: AtomicU64,
    /// Of these, not answered.
    pub failures: AtomicU64,
    /// Of these, answered with 5xx.
    pub server_errors: AtomicU64,
    /// Probes answered as expected.
    pub probes_good: AtomicU64,
    /// Probes not answered so.
    pub probes_bad: AtomicU64,
    /// Times it went down.
    pub falls: AtomicU64,
}

/// One action in flight on a child: charged when made; when dropped, exactly what was charged is taken away. Not
/// `Clone`: so, exactly once, however it ends.
#[must_use = "dropping it ends the action that it counts"]
#[derive(Debug)]
pub struct InFlight {
    child: Arc<Child>,
    /// In flight on the child when it began, itself included.
    load: u32,
    /// Taken by the drop.
    charge: Option<Charge>,
    /// What the answer is held against, where costs are predicted.
    dispatch: Option<Dispatch>,
    is_change: bool,
}

impl Child {
    /// A child that is online, live, without a reason to doubt it, and without an address until
    /// [`set_addresses`](Self::set_addresses).
    #[must_use]
    pub fn new(name: &str, index: usize, host: &str, weight: u32, location: Option<&str>) -> Self {
        let nothing = || ArcSwap::from_pointee(Why { text: Cow::Borrowed(""), since: Time::ZERO });
        let (name, host, location) = (name.into(), host.into(), location.map(Arc::from));
        let identity = Identity { name, host, aliases: Arc::new([]), location };
        Self {
            index,
            identity: ArcSwap::from_pointee(identity),
            addresses: Addresses::new(Vec::new()),
            counters: CachePadded::default(),
            gate: CachePadded::new(Gate {
                health: Health::new(),
                applied: AtomicU64::new(0),
                doubt: AtomicU64::new(0),
                weight: AtomicU32::new(weight.min(WEIGHT_MAX)),
                standing: AtomicU8::new(Standing::Live as u8),
                admin: AtomicU8::new(Admin::Online as u8),
                moved: AtomicBool::new(false),
            }),
            latency: CachePadded::new(Latency::new()),
            at_load: CachePadded::default(),
            cost: cost::Standing::new(),
            health_why: nothing(),
            standing_why: nothing(),
            admin_why: nothing(),
        }
    }

    /// A place where nobody stands yet.
    #[must_use]
    pub fn vacant(index: usize) -> Self {
        let child = Self::new("", index, "", 0, None);
        child.gate.standing.store(Standing::NeedsReseed as u8, Ordering::Relaxed);
        child.gate.admin.store(Admin::Vacant as u8, Ordering::Relaxed);
        child
    }

    // --- who it is

    /// Who it is now. For one look: not to be held across an await.
    #[must_use]
    pub fn identity(&self) -> Guard<Arc<Identity>> {
        self.identity.load()
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.identity.load().name)
    }

    /// As configured, `host:port`.
    #[must_use]
    pub fn host(&self) -> Arc<str> {
        Arc::clone(&self.identity.load().host)
    }

    /// Where it stands in the world, for the operator.
    #[must_use]
    pub fn location(&self) -> Option<Arc<str>> {
        self.identity.load().location.clone()
    }

    /// Does nobody stand here?
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.admin() == Admin::Vacant
    }

    /// Says who stands here from now on, and where; connections that lead elsewhere are not used again.
    pub(super) fn set_identity(&self, identity: Identity, addresses: Vec<SocketAddr>) {
        self.identity.store(Arc::new(identity));
        self.addresses.set(addresses);
        self.cost.forget();
        // Release, after the addresses: whoever sees it compares with the new ones.
        self.gate.moved.store(true, Ordering::Release);
    }

    /// May a connection to `peer` be used for it? Not asked of one whose address has always been the same: its name may
    /// lead to more addresses than it did when the connection was made.
    #[must_use]
    pub fn is_at(&self, peer: SocketAddr) -> bool {
        !self.gate.moved.load(Ordering::Acquire) || self.addresses.all().contains(&peer)
    }

    /// With further names by which its tokens call it, each `host:port`.
    #[must_use]
    pub fn with_aliases(self, aliases: Arc<[Box<str>]>) -> Self {
        let identity = Identity { aliases, ..Identity::clone(&self.identity()) };
        self.identity.store(Arc::new(identity));
        self
    }

    /// Does it call itself so in its tokens?
    #[must_use]
    pub fn is_known_as(&self, address: &str) -> bool {
        let identity = self.identity();
        *identity.host == *address || identity.aliases.iter().any(|alias| **alias == *address)
    }

    // --- what others say

    /// Where its name leads now; true if that is news. Empty: nowhere.
    pub fn set_addresses(&self, list: Vec<SocketAddr>) -> bool {
        self.addresses.set(list)
    }

    /// The address to connect to.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses.current()
    }

    /// The share of reads it gets; 0 is the last resort.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.gate.weight.load(Ordering::Relaxed)
    }

    /// Changes the weight; more than [`WEIGHT_MAX`] counts as that.
    pub fn set_weight(&self, weight: u32) {
        self.gate.weight.store(weight.min(WEIGHT_MAX), Ordering::Relaxed);
    }

    /// The lane's word.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.gate.standing.load(Ordering::Acquire) {
            0 => Standing::Live,
            1 => Standing::Replaying,
            2 => Standing::Diverged,
            _ => Standing::NeedsReseed,
        }
    }

    /// Says how current the child is, and why. Only its lane (or the sequencer in its name) calls this; before it has one,
    /// whoever puts it in its place.
    pub fn set_standing(&self, standing: Standing, why: impl Into<Cow<'static, str>>, now: Time) {
        self.standing_why.store(Arc::new(Why { text: why.into(), since: now }));
        self.gate.standing.store(standing as u8, Ordering::Release);
        if standing == Standing::Live {
            self.cost.on_return(now);
        }
    }

    /// What the operator wants.
    #[must_use]
    pub fn admin(&self) -> Admin {
        match self.gate.admin.load(Ordering::Acquire) {
            0 => Admin::Online,
            1 => Admin::Offline,
            2 => Admin::Draining,
            _ => Admin::Vacant,
        }
    }

    /// Says what the operator wants; gives back what he wanted before. A child that comes back from `Offline` is to be
    /// told [`Event::Online`] too ([`GroupTable::online`](super::GroupTable::online) does both).
    pub fn set_admin(&self, admin: Admin, why: impl Into<Cow<'static, str>>, now: Time) -> Admin {
        let before = self.admin();
        self.admin_why.store(Arc::new(Why { text: why.into(), since: now }));
        self.gate.admin.store(admin as u8, Ordering::Release);
        before
    }

    /// The highest sequence that it has applied, without a gap before it.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.gate.applied.load(Ordering::Acquire)
    }

    /// It has applied everything up to `sequence`. A lower one than before changes nothing.
    pub fn confirm_applied(&self, sequence: u64) {
        self.gate.applied.fetch_max(sequence, Ordering::AcqRel);
    }

    /// The change of which nobody knows whether it has applied it. It serves reads, and takes no change until that is
    /// resolved.
    #[must_use]
    pub fn doubt(&self) -> Option<u64> {
        Some(self.gate.doubt.load(Ordering::Acquire)).filter(|sequence| *sequence > 0)
    }

    /// Says which change it is in doubt about. Only its lane calls this.
    pub fn set_doubt(&self, sequence: Option<u64>) {
        self.gate.doubt.store(sequence.unwrap_or(0), Ordering::Release);
    }

    /// Does it take the next change: is it live, and in no doubt?
    #[must_use]
    pub fn takes_changes(&self) -> bool {
        self.is_live() && self.doubt().is_none()
    }

    /// Whether it answers.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.gate.health
    }

    /// Tells the health machine what was seen, keeps the reason of a change, and counts.
    pub fn on_event(&self, event: Event, now: Time, options: &Options) -> Step {
        match event {
            Event::ProbeGood => _ = self.counters.probes_good.fetch_add(1, Ordering::Relaxed),
            Event::ProbeBad(_) => _ = self.counters.probes_bad.fetch_add(1, Ordering::Relaxed),
            Event::ReadAnswered | Event::ReadFailed(_) | Event::Online => {}
        }
        let step = self.gate.health.on(event, now, options);
        if step.before.kind() != step.after.kind() {
            let text = match event {
                Event::ReadFailed(failure) => Cow::Owned(format!("a request: {failure}")),
                Event::ProbeBad(failure) => Cow::Owned(format!("a probe: {failure}")),
                Event::ProbeGood => Cow::Borrowed("a probe was answered"),
                Event::ReadAnswered => Cow::Borrowed("a request was answered"),
                Event::Online => Cow::Borrowed("online again: not probed yet"),
            };
            self.health_why.store(Arc::new(Why { text, since: now }));
            if step.before.kind() == Kind::Down && step.after.kind() == Kind::Up {
                self.cost.on_return(now);
            }
            if step.after.kind() == Kind::Down && event != Event::Online {
                self.counters.falls.fetch_add(1, Ordering::Relaxed);
            }
        }
        step
    }

    /// Is it asked how it is? An operator's offline means no probes.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        matches!(self.admin(), Admin::Online | Admin::Draining)
    }

    /// When to ask it next (passed: now); `None` while it is not asked.
    #[must_use]
    pub fn next_probe(&self, options: &Options, seed: u64) -> Option<Time> {
        self.is_probed().then(|| self.gate.health.next_probe(options, self.seed(seed)))
    }

    /// Takes the task of asking it now, if it is due ([`Health::claim_probe`]). False while it is not asked.
    pub fn claim_probe(&self, now: Time, options: &Options, seed: u64) -> bool {
        self.is_probed() && self.gate.health.claim_probe(now, options, self.seed(seed))
    }

    // --- what follows from it

    /// Does it take part in changes and reads: does it answer, is it current, does the operator want it?
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.shown() == Shown::Up
    }

    /// The state that an operator sees. The operator's own word comes first, then what he must mend, then what mends
    /// itself: a child that needs a reseed is shown so although it is down, too. A vacant place is not shown to anybody;
    /// it counts as offline.
    #[must_use]
    pub fn shown(&self) -> Shown {
        match (self.admin(), self.standing(), self.gate.health.state().kind()) {
            (Admin::Offline | Admin::Vacant, _, _) => Shown::Offline,
            (Admin::Draining, _, _) => Shown::Draining,
            (_, Standing::NeedsReseed, _) => Shown::NeedsReseed,
            (_, Standing::Diverged, _) => Shown::Diverged,
            (_, _, Kind::Down) => Shown::Down,
            (_, Standing::Replaying, _) => Shown::Replaying,
            (_, Standing::Live, Kind::Suspect) => Shown::Suspect,
            (_, Standing::Live, Kind::Up) => Shown::Up,
        }
    }

    /// The reason for what is shown, of the author who decided it.
    #[must_use]
    pub fn why(&self) -> Why {
        let author = match self.shown() {
            Shown::Offline | Shown::Draining => &self.admin_why,
            Shown::NeedsReseed | Shown::Diverged | Shown::Replaying => &self.standing_why,
            Shown::Down | Shown::Suspect => &self.health_why,
            // Up by all three: since the last of them.
            Shown::Up => [&self.admin_why, &self.standing_why, &self.health_why]
                .into_iter()
                .max_by_key(|why| why.load().since)
                .unwrap_or(&self.health_why),
        };
        Why::clone(&author.load())
    }

    /// Reads in flight on it.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.load().saturating_sub(self.counters.changes.load(Ordering::Relaxed))
    }

    /// Everything in flight on it, changes too.
    #[must_use]
    pub fn load(&self) -> u32 {
        self.cost.load.count()
    }

    /// How many actions it serves at once (0: to be learnt), and whether it is in another location than this front.
    pub fn configure_cost(&self, slots: u32, away: bool) {
        self.cost.configure(slots, away);
    }

    /// A connection to it took this long.
    pub fn note_connect(&self, took: Duration) {
        self.cost.on_connect(took);
    }

    pub(super) fn cost(&self) -> &cost::Standing {
        &self.cost
    }

    /// The peak-sensitive average of its answers, in microseconds; 0 before the first.
    #[must_use]
    pub fn latency_us(&self, now: Time) -> f64 {
        self.latency.average_us(now)
    }

    /// Jitter differs from child to child.
    fn seed(&self, seed: u64) -> u64 {
        seed ^ probe::mix(self.index as u64)
    }
}

impl Counters {
    /// Another child stands here: what was counted of the one before is not its own. What is in flight is left to those
    /// that count it.
    pub(super) fn restart(&self) {
        for counter in
            [&self.requests, &self.failures, &self.server_errors, &self.probes_good, &self.probes_bad, &self.falls]
        {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl InFlight {
    /// Counts one read more, of which nothing is predicted.
    pub fn new(child: Arc<Child>) -> Self {
        let (charge, before) = child.cost.load.charge(None);
        Self { child, load: before.saturating_add(1), charge: Some(charge), dispatch: None, is_change: false }
    }

    /// Holds what has been charged to the child.
    pub(super) fn charged(child: Arc<Child>, charge: Charge, dispatch: Dispatch) -> Self {
        let load = dispatch.load();
        Self { child, load, charge: Some(charge), dispatch: Some(dispatch), is_change: false }
    }

    /// It is a change.
    pub(super) fn of_change(mut self) -> Self {
        self.child.counters.changes.fetch_add(1, Ordering::Relaxed);
        self.is_change = true;
        self
    }

    /// The child it is in flight on.
    #[must_use]
    pub fn child(&self) -> &Arc<Child> {
        &self.child
    }

    /// In flight on the child when it began, itself included.
    pub(super) const fn load(&self) -> u32 {
        self.load
    }

    pub(super) fn dispatch(&self) -> Option<&Dispatch> {
        self.dispatch.as_ref()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let cost = &self.child.cost;
        if let Some(dispatch) = &self.dispatch {
            dispatch.end(cost);
        }
        if self.is_change {
            self.child.counters.changes.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(charge) = self.charge.take() {
            cost.load.discharge(charge);
        }
    }
}

impl Shown {
    /// All, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Up,
        Self::Suspect,
        Self::Down,
        Self::Replaying,
        Self::Diverged,
        Self::NeedsReseed,
        Self::Draining,
        Self::Offline,
    ];

    /// The word for it, in `/status`, metrics and on the terminal.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Replaying => "replaying",
            Self::Diverged => "diverged",
            Self::NeedsReseed => "needs_reseed",
            Self::Draining => "draining",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests;
