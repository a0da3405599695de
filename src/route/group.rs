//! A group as a snapshot holds it, and the words that its snapshots share.
//!
//! Not the changes of the group: those are [`mirror`](crate::mirror)'s. Of them only the *floor* is here, because
//! reads are chosen by it.

use std::net::SocketAddr;
use std::time::Duration;

use super::budget::RetryBudget;
use super::child::{Admin, Child, Identity, InFlight, Standing};
use super::cost::{self, Label};
use super::health::Step;
use super::policy::{self, Policy};
use crate::action::Rules;
use crate::probe::{self, Event, Failure};
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};
use crate::time::Time;

/// One group: what is configured of it. Immutable.
#[derive(Debug)]
pub struct GroupTable {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// Where it stands in [`RouteTable::groups`](super::RouteTable::groups).
    pub index: usize,
    /// Every place, the vacant ones too: in the order of the configuration, and then those that may be taken while we
    /// run. [`Child::index`] is the place here. Whoever walks over children wants [`occupied`](Self::occupied).
    pub children: Vec<Arc<Child>>,
    /// How the child of a read is chosen.
    pub policy: Policy,
    /// How requests are classified.
    pub rules: Arc<Rules>,
    /// How the children are probed.
    pub probe: probe::Options,
    /// How long a child may take.
    pub timeouts: ChildTimeouts,
    /// What an operator may set of the cost model.
    pub cost: cost::Options,
    /// How far behind a child may be that serves reads.
    pub read_gate: ReadGate,
    /// What outlives this snapshot.
    pub shared: Arc<GroupShared>,
}

/// How far behind a child may be, and serve reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadGate {
    /// Not at all behind what clients were told ([`GroupShared::floor`]).
    #[default]
    Strict,
    /// At most so many changes behind that.
    Bounded(u64),
    /// As far as it likes. Only a child that is being sent what it missed while it was away serves none.
    None,
}

/// The time-outs of the child side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildTimeouts {
    /// Until a TCP connection stands.
    pub connect: Duration,
    /// From the end of the request until the answer's head is whole; then 504 and the child is suspect.
    pub response_head: Duration,
    /// Without an octet of the answer's body.
    pub response_body: Duration,
    /// Without an octet in either direction after an Upgrade.
    pub tunnel_idle: Duration,
}

/// Why a child that was added is not used.
pub(crate) const NOT_ATTACHED: &str = "added by the operator: copy a good child's data to it, then attach it";

/// What the snapshots of one group share.
#[derive(Debug, Default)]
pub struct GroupShared {
    /// What reads may retry.
    pub retries: RetryBudget,
    pub(super) cost: cost::Model,
    /// Index of the primary in the low half, how often the role has moved in the high one: a role that moved away and
    /// back is not the same role.
    primary: CachePadded<AtomicU64>,
    floor: CachePadded<AtomicU64>,
    /// How often somebody has come to a place, or left one.
    moves: AtomicU64,
}

/// How a read ended, as far as it says something about the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer came; its head had this status.
    Answered(u16),
    /// None came.
    Failed(Failure),
}

impl ReadGate {
    /// All of them, as an operator chooses among them; how far is a key of its own.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Bounded(1), Self::None];

    /// The word for it in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Bounded(_) => "bounded",
            Self::None => "none",
        }
    }
}

impl GroupTable {
    /// The sequence that a child has to have applied to serve a read.
    #[must_use]
    pub fn read_floor(&self) -> u64 {
        match self.read_gate {
            ReadGate::Strict => self.shared.floor(),
            ReadGate::Bounded(behind) => self.shared.floor().saturating_sub(behind),
            ReadGate::None => 0,
        }
    }

    /// Tells how a read on the child with this index ended; `latency` runs from the request's end to the answer's
    /// head. Feeds health, the average and the counters. The caller does what [`Step::action`] says.
    ///
    /// Not for reads that say nothing about the child: the client went away first, a *reused* connection ended without
    /// an answer, or we could not even try (no descriptor left).
    pub fn observe(&self, index: usize, outcome: Outcome, latency: Duration, now: Time) -> Step {
        let child = &self.children[index];
        let event = match outcome {
            Outcome::Answered(status) => {
                if status >= 500 {
                    child.counters.server_errors.fetch_add(1, Ordering::Relaxed);
                    child.latency.on_failure(latency, now);
                } else {
                    child.latency.on_answer(latency, now);
                }
                Event::ReadAnswered
            }
            Outcome::Failed(failure) => {
                child.counters.failures.fetch_add(1, Ordering::Relaxed);
                child.latency.on_failure(latency, now);
                Event::ReadFailed(failure)
            }
        };
        self.on_event(index, event, now)
    }

    /// Counts a change as in flight on a child, for as long as it is predicted to take.
    pub fn dispatch_change(&self, index: usize, name: &str, head: &[u8], body_bytes: u64, now: Time) -> InFlight {
        let label = match self.policy {
            Policy::Predictive => Label::of_change(self.rules.dialect(), name, head, body_bytes),
            _ => Label::NONE,
        };
        self.dispatch(&self.children[index], &label, now).of_change()
    }

    /// Counts an action as in flight on a child that nobody had to choose.
    pub(super) fn dispatch(&self, child: &Arc<Child>, label: &Label, now: Time) -> InFlight {
        match self.policy {
            Policy::Predictive => policy::predictive::dispatch(self, child, label, now),
            _ => InFlight::new(Arc::clone(child)),
        }
    }

    /// As [`observe`](Self::observe), for a read or change that was chosen here or announced by
    /// [`dispatch_change`](Self::dispatch_change): teaches the cost model, too.
    pub fn observe_choice(&self, in_flight: &InFlight, outcome: Outcome, latency: Duration, now: Time) -> Step {
        self.learn(in_flight, outcome, latency, now);
        self.observe(in_flight.child().index, outcome, latency, now)
    }

    /// Teaches what `predictive` or `prequal` chooses by, and only that.
    pub fn learn(&self, in_flight: &InFlight, outcome: Outcome, latency: Duration, now: Time) {
        if self.policy == Policy::Prequal {
            let at_load = &in_flight.child().at_load;
            match outcome {
                Outcome::Answered(status) if status < 500 => at_load.on_answer(in_flight.load(), latency, now),
                _ => at_load.on_failure(in_flight.load(), latency, now),
            }
        }
        if let Some(dispatch) = in_flight.dispatch() {
            let model = &self.shared.cost;
            model.on_end(in_flight.child().cost(), dispatch, outcome, latency, now);
            model.tick(&self.children, now);
        }
    }

    /// A read's answer, which had been observed as begun, broke off.
    pub fn observe_break(&self, in_flight: &InFlight, failure: Failure, now: Time) -> Step {
        if in_flight.dispatch().is_some() {
            self.shared.cost.on_break(in_flight.child().cost());
        }
        self.on_event(in_flight.child().index, Event::ReadFailed(failure), now)
    }

    /// Tells how a probe of the child with this index ended.
    pub fn on_probe(&self, index: usize, result: Result<(), Failure>, now: Time) -> Step {
        let event = match result {
            Ok(()) => Event::ProbeGood,
            Err(failure) => Event::ProbeBad(failure),
        };
        self.on_event(index, event, now)
    }

    /// The operator wants the child online: it is probed at once, and serves reads after a good probe. Its lane
    /// replays what it missed.
    pub fn online(&self, index: usize, now: Time) -> Step {
        let child = &self.children[index];
        if child.admin() == Admin::Online {
            let state = child.health().state();
            return Step { before: state, after: state, action: probe::Action::None };
        }
        let step = self.on_event(index, Event::Online, now);
        child.set_admin(Admin::Online, "online by the operator", now);
        step
    }

    /// The children, in the order of their places.
    pub fn occupied(&self) -> impl Iterator<Item = &Arc<Child>> + Clone {
        self.children.iter().filter(|child| !child.is_vacant())
    }

    /// How many they are; never 0.
    #[must_use]
    pub fn occupants(&self) -> usize {
        self.occupied().count()
    }

    /// Puts a child in a vacant place that its lane has left
    /// ([`MirrorGroup::is_left`](crate::mirror::MirrorGroup::is_left)). It is not used until a probe is good, and not sent
    /// any change before its lane is told how to begin. Control alone calls this.
    ///
    /// # Panics
    /// If somebody stands there.
    pub fn occupy(&self, index: usize, identity: Identity, addresses: Vec<SocketAddr>, weight: u32, now: Time) {
        let child = &self.children[index];
        assert!(child.is_vacant(), "somebody stands there");
        child.set_identity(identity, addresses);
        child.set_weight(weight);
        child.counters.restart();
        // What the one before has answered says nothing of this one.
        self.on_event(index, Event::Online, now);
        child.set_standing(Standing::NeedsReseed, NOT_ATTACHED, now);
        child.set_admin(Admin::Online, "added by the operator", now);
        self.shared.moves.fetch_add(1, Ordering::Release);
    }

    /// The same child at another address. It is not used until a probe there is good. Control alone calls this.
    pub fn readdress(&self, index: usize, host: &str, addresses: Vec<SocketAddr>, now: Time) {
        let child = &self.children[index];
        let identity = Identity { host: host.into(), ..Identity::clone(&child.identity()) };
        child.set_identity(identity, addresses);
        self.on_event(index, Event::Online, now);
    }

    /// Nobody stands in this place from now on; its lane ends what is in flight and leaves. The role of
    /// the primary goes to the next that is live, or to the next at all. False, and nothing is done, for the last child.
    /// Control alone calls this.
    pub fn vacate(&self, index: usize, now: Time) -> bool {
        if self.occupied().all(|child| child.index == index) {
            return false;
        }
        self.children[index].set_admin(Admin::Vacant, "removed by the operator", now);
        self.shared.moves.fetch_add(1, Ordering::Release);
        while self.primary() == index {
            let after = |child: &&Arc<Child>| (child.index + self.children.len() - index) % self.children.len();
            let heir = self.occupied().min_by_key(|child| (!child.is_live(), after(child)));
            let Some(heir) = heir else { break };
            self.set_primary(heir.index);
        }
        true
    }

    /// The index of the primary: under `failover` the child that serves the reads, under every policy the one whose
    /// answer to a change is preferred. It may be away; under `failover`, only until the next read.
    #[must_use]
    pub fn primary(&self) -> usize {
        self.shared.primary().0.min(self.children.len() - 1)
    }

    /// The operator's choice of the primary. If that child is not available, the role moves on with the next read.
    /// False if there is no such child.
    pub fn set_primary(&self, index: usize) -> bool {
        if self.children.get(index).is_none_or(|child| child.is_vacant()) {
            return false;
        }
        loop {
            let (now, moves) = self.shared.primary();
            if now == index || self.shared.move_primary(now, moves, index) {
                return true;
            }
        }
    }

    /// Under `failover`: if the primary is away and another child is not, the role moves on. Reads do this by
    /// themselves; a group without reads needs somebody to ask (the sequencer, before it numbers). Returns the
    /// primary.
    pub fn settle_primary(&self) -> usize {
        if self.policy == Policy::Failover {
            policy::failover::settle(self);
        }
        self.primary()
    }

    /// How often somebody has come to a place of the group, or left one: the members are the same while it is.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.shared.moves.load(Ordering::Acquire)
    }

    /// Who stands at each place, by name; empty where nobody does.
    #[must_use]
    pub fn members(&self) -> Vec<Box<str>> {
        let name = |child: &Arc<Child>| if child.is_vacant() { "".into() } else { Box::from(&*child.name()) };
        self.children.iter().map(name).collect()
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Arc<Child>> {
        self.occupied().find(|child| &*child.identity().name == name)
    }

    fn on_event(&self, index: usize, event: Event, now: Time) -> Step {
        self.children[index].on_event(event, now, &self.probe)
    }
}

impl GroupShared {
    /// The first child is primary, nothing is answered yet, the budget is full.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The highest sequence whose change was answered with a final status: a child below it may not serve reads.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Raises the floor; called before the answer to the change goes out. A lower one than before changes nothing.
    pub fn raise_floor(&self, sequence: u64) {
        self.floor.fetch_max(sequence, Ordering::AcqRel);
    }

    /// How often the primary's role has moved.
    #[must_use]
    pub fn primary_moves(&self) -> u32 {
        self.primary().1
    }

    /// The primary's index, and how often the role has moved.
    pub(super) fn primary(&self) -> (usize, u32) {
        let word = self.primary.load(Ordering::Acquire);
        ((word & 0xffff_ffff) as usize, (word >> 32) as u32)
    }

    /// Moves the role from `from` to `to`, unless it has moved meanwhile.
    pub(super) fn move_primary(&self, from: usize, moves: u32, to: usize) -> bool {
        let word = |index: usize, moves: u32| index as u64 | u64::from(moves) << 32;
        let (old, new) = (word(from, moves), word(to, moves.wrapping_add(1)));
        self.primary.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests;
