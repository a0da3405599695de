//! How the child of a read is chosen: who may be chosen at all, and the policies that choose among them.
//!
//! [`select`] finds the candidates, which is the same for every policy, and hands them to one. A policy is a function
//! `pick` in its own file and a line in [`Policy::ALL`] and in two matches here; it cannot pick a child that is no
//! candidate, and runs the suite its siblings run.
//!
//! A child is *eligible* for a read when its lane calls it live, the operator wants it, it has applied everything up to
//! the floor, and it answers. Of the eligible ones that this read has not tried, the candidates are the best kind there
//! is:
//!
//! 1. up, with a weight;
//! 2. up, with weight 0: the last resort, under every policy;
//! 3. suspect. It did not answer something a moment ago and a probe is on its way; a read may try it rather than fail.

mod explain;
pub mod failover;
mod least;
mod p2c;
mod peak_ewma;
pub(super) mod predictive;
mod prequal;
mod simple;

use std::fmt;
use std::str::FromStr;

pub use explain::{Explanation, Judged};

use super::child::{Admin, Child, InFlight, Standing};
use super::chooser::Chooser;
use super::cost::Label;
use super::group::GroupTable;
use super::set::ChildSet;
use crate::probe::Kind;
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// How the child of a read is chosen. The names are those of other proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// All to the primary. When it is away the next child becomes primary, and stays it when the old one returns.
    Failover,
    /// In turn, in the order of the configuration. Weights do not count (except 0).
    RoundRobin,
    /// In turn, in exact proportion to the weights, evenly mixed.
    Weighted,
    /// At random, in proportion to the weights.
    Random,
    /// The one with the least in flight for its weight; one of them at random.
    LeastConn,
    /// Of two at random, the one with less in flight for its weight.
    P2c,
    /// Of two at random, the one whose recent latency, times what is in flight on it, is less for its weight.
    PeakEwma,
    /// Those with more in flight than most are avoided; of the others, the one whose answers take least at its load.
    Prequal,
    /// The one on which the action costs least, by what is predicted of it and of what is in flight
    /// ([`cost`](super::cost)).
    #[default]
    Predictive,
}

/// A child for a read. Dropping it ends the read.
#[must_use = "dropping it ends the read that it counts"]
#[derive(Debug)]
pub struct Choice {
    /// The child's index in its group.
    pub index: usize,
    /// Counts the read.
    pub in_flight: InFlight,
}

/// Why no child can serve a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChoice {
    /// No child answers, or the operator or a divergence keeps those that do away.
    AllDown,
    /// Some answer, but have not applied all that was acknowledged: waiting helps.
    NoneCurrent,
    /// Some could serve it, and this read has tried each of them.
    AllTried,
}

/// The candidates of one read.
struct Candidates<'g> {
    group: &'g GroupTable,
    /// Never empty.
    set: ChildSet,
    now: Time,
}

/// Chooses the child of a read of this kind: one that is eligible at `floor` and not in `tried`. Counts the read as in
/// flight.
///
/// # Errors
/// If there is none; see [`NoChoice`].
pub fn select(
    group: &GroupTable,
    me: &mut Chooser,
    label: &Label,
    tried: &ChildSet,
    floor: u64,
    now: Time,
) -> Result<Choice, NoChoice> {
    let candidates = Candidates { group, set: candidates(group, tried, floor)?, now };
    let index = match group.policy {
        Policy::Failover => failover::pick(&candidates),
        Policy::RoundRobin => simple::round_robin(&candidates, me),
        Policy::Weighted => simple::weighted(&candidates, me),
        Policy::Random => simple::random(&candidates, me),
        Policy::LeastConn => least::pick(&candidates, me),
        Policy::P2c => p2c::pick(&candidates, me),
        Policy::PeakEwma => peak_ewma::pick(&candidates, me),
        Policy::Prequal => prequal::pick(&candidates, me),
        Policy::Predictive => return Ok(Choice::of(predictive::choose(&candidates, me, label))),
    };
    debug_assert!(candidates.set.contains(index), "a policy picks a candidate");
    Ok(Choice::of(InFlight::new(Arc::clone(&group.children[index]))))
}

/// How good a candidate a child is; less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Up,
    LastResort,
    Suspect,
}

/// A child's rank, or why it has none.
fn rank(child: &Child, floor: u64) -> Result<Rank, NoChoice> {
    let kind = child.health().state().kind();
    if kind == Kind::Down || child.admin() != Admin::Online {
        return Err(NoChoice::AllDown);
    }
    match child.standing() {
        Standing::Live if child.applied() >= floor => Ok(match kind {
            Kind::Up if child.weight() > 0 => Rank::Up,
            Kind::Up => Rank::LastResort,
            Kind::Suspect | Kind::Down => Rank::Suspect,
        }),
        Standing::Live | Standing::Replaying => Err(NoChoice::NoneCurrent),
        Standing::Diverged | Standing::NeedsReseed => Err(NoChoice::AllDown),
    }
}

/// The children of the best rank that there is among the eligible ones not in `tried`.
fn candidates(group: &GroupTable, tried: &ChildSet, floor: u64) -> Result<ChildSet, NoChoice> {
    let mut set = ChildSet::new();
    let mut best = None;
    let mut none = NoChoice::AllDown;
    for (index, child) in group.children.iter().enumerate() {
        match rank(child, floor) {
            Ok(_) if tried.contains(index) => none = NoChoice::AllTried,
            Ok(rank) if best.is_none_or(|best| rank < best) => {
                best = Some(rank);
                set.clear();
                set.insert(index);
            }
            Ok(rank) if best == Some(rank) => _ = set.insert(index),
            Err(NoChoice::NoneCurrent) if none == NoChoice::AllDown => none = NoChoice::NoneCurrent,
            Ok(_) | Err(_) => {}
        }
    }
    if best.is_some() { Ok(set) } else { Err(none) }
}

impl Candidates<'_> {
    fn child(&self, index: usize) -> &Child {
        &self.group.children[index]
    }

    /// The weight to divide by: candidates are all of weight 0, or none is; or they are suspect, and it matters little.
    fn weight(&self, index: usize) -> u32 {
        self.child(index).weight().max(1)
    }

    /// Two candidates at random; twice the same only if there is no other.
    fn two(&self, me: &mut Chooser) -> (usize, usize) {
        let count = self.set.len();
        let first = me.below(count);
        let second = if count == 1 { first } else { (first + 1 + me.below(count - 1)) % count };
        let nth = |n| self.set.nth(n).expect("a number below the count");
        (nth(first), nth(second))
    }
}

impl Choice {
    fn of(in_flight: InFlight) -> Self {
        let child = in_flight.child();
        child.counters.requests.fetch_add(1, Ordering::Relaxed);
        Self { index: child.index, in_flight }
    }

    /// The child.
    #[must_use]
    pub fn child(&self) -> &Arc<Child> {
        self.in_flight.child()
    }
}

impl Policy {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Failover,
        Self::RoundRobin,
        Self::Weighted,
        Self::Random,
        Self::LeastConn,
        Self::P2c,
        Self::PeakEwma,
        Self::Prequal,
        Self::Predictive,
    ];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failover => "failover",
            Self::RoundRobin => "round_robin",
            Self::Weighted => "weighted",
            Self::Random => "random",
            Self::LeastConn => "least_conn",
            Self::P2c => "p2c",
            Self::PeakEwma => "peak_ewma",
            Self::Prequal => "prequal",
            Self::Predictive => "predictive",
        }
    }
}

/// A name that no policy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no policy of this name; there are ")?;
        for (i, policy) in Policy::ALL.into_iter().enumerate() {
            write!(f, "{}{policy}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod contract;
