//! Groups for tests: children by weight, and short words for what happens to them.

use std::time::Duration;

use super::{Child, ChildTimeouts, GroupShared, GroupTable, Outcome, Policy, ReadGate, cost};
use crate::action::{Class, Dialect, RuleSet, Rules};
use crate::probe::{self, Failure};
use crate::sync::Arc;
use crate::time::Time;

/// A group of children `a`, `b`, … (`c26` and on after `z`), all of them live and up, with these weights.
pub(crate) fn group(policy: Policy, weights: &[u32]) -> GroupTable {
    let child = |(index, weight): (usize, &u32)| {
        let name = ('a'..='z').nth(index).map_or_else(|| format!("c{index}"), String::from);
        Arc::new(Child::new(&name, index, "127.0.0.1:80", *weight, None))
    };
    group_of(policy, weights.iter().enumerate().map(child).collect())
}

/// A group of these children.
pub(crate) fn group_of(policy: Policy, children: Vec<Arc<Child>>) -> GroupTable {
    let second = Duration::from_secs(1);
    GroupTable {
        name: "g".into(),
        index: 0,
        children,
        policy,
        rules: Arc::new(Rules::new(Dialect::Http, RuleSet::Http, Vec::new(), Class::Change).expect("a built-in set")),
        probe: probe::Options { jitter_percent: 0, ..probe::Options::default() },
        timeouts: ChildTimeouts { connect: second, response_head: second, response_body: second, tunnel_idle: second },
        cost: cost::Options::default(),
        read_gate: ReadGate::default(),
        shared: Arc::new(GroupShared::new()),
    }
}

/// This many seconds after the beginning.
pub(crate) fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

impl GroupTable {
    /// The child stops answering.
    pub(crate) fn kill(&self, index: usize) {
        self.on_probe(index, Err(Failure::Refused), at(1));
    }

    /// A read on it was not answered: it is suspect.
    pub(crate) fn doubt(&self, index: usize) {
        self.observe(index, Outcome::Failed(Failure::Closed), Duration::ZERO, at(1));
    }

    /// It answers its probes again, however many are needed.
    pub(crate) fn revive(&self, index: usize) {
        for _ in 0..probe::GOOD_PROBES_MAX {
            self.on_probe(index, Ok(()), at(2));
        }
    }
}
