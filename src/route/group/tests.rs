//! What workers, lanes and the operator say of a group, and what follows.

use std::time::Duration;

use super::*;
use crate::probe::{Action, Kind};
use crate::route::testing::{at, group};
use crate::route::{Shown, Standing};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_child_dies_and_returns() {
    let group = group(Policy::RoundRobin, &[100, 100]);
    let child = &group.children[0];
    // Its answers keep it up; a status says that it answers.
    group.observe(0, Outcome::Answered(200), MS, at(1));
    assert_eq!(group.observe(0, Outcome::Answered(500), MS, at(2)).action, Action::None);
    assert_eq!(child.shown(), Shown::Up);
    // One read is not answered: ask. The probe is refused: down.
    assert_eq!(group.observe(0, Outcome::Failed(Failure::Closed), MS, at(3)).action, Action::Ask);
    assert_eq!(child.shown(), Shown::Suspect);
    assert!(child.claim_probe(at(3), &group.probe, 1));
    assert_eq!(group.on_probe(0, Err(Failure::Refused), at(3)).action, Action::Fell);
    // A read that was on its way is answered: that does not bring it up. A probe does.
    group.observe(0, Outcome::Answered(200), MS, at(4));
    assert_eq!(child.shown(), Shown::Down);
    assert!(child.claim_probe(at(4), &group.probe, 1));
    assert_eq!(group.on_probe(0, Ok(()), at(4)).action, Action::Rose);
    assert_eq!(child.shown(), Shown::Up);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &child.counters;
    assert_eq!((count(&counters.failures), count(&counters.server_errors)), (1, 1));
    assert_eq!((count(&counters.probes_good), count(&counters.probes_bad), count(&counters.falls)), (1, 1, 1));
}

#[test]
fn a_late_answer_clears_a_suspicion() {
    let group = group(Policy::RoundRobin, &[100]);
    group.observe(0, Outcome::Failed(Failure::AnswerTimeout), MS, at(3));
    group.observe(0, Outcome::Answered(404), MS, at(4));
    assert_eq!(group.children[0].shown(), Shown::Up);
}

#[test]
fn online_means_probed_first() {
    let group = group(Policy::RoundRobin, &[100]);
    let child = &group.children[0];
    assert_eq!(group.online(0, at(1)).action, Action::None, "it is online already");
    child.set_admin(Admin::Offline, "by the operator", at(1));
    child.set_standing(Standing::Replaying, "changes wait", at(1));
    assert_eq!(group.online(0, at(9)).action, Action::Ask);
    assert_eq!((child.shown(), child.health().state().kind()), (Shown::Down, Kind::Down));
    assert_eq!(child.next_probe(&group.probe, 1), Some(at(9)));
    group.on_probe(0, Ok(()), at(9));
    assert_eq!(child.shown(), Shown::Replaying);
}

#[test]
fn the_floor_only_rises() {
    let shared = GroupShared::new();
    shared.raise_floor(9);
    shared.raise_floor(3);
    assert_eq!(shared.floor(), 9);
}

#[test]
fn the_primary_is_the_operators_under_every_policy() {
    let group = group(Policy::LeastConn, &[100, 100, 100]);
    assert_eq!(group.primary(), 0);
    assert!(group.set_primary(2) && group.set_primary(2) && !group.set_primary(3));
    assert_eq!((group.primary(), group.shared.primary_moves()), (2, 1));
    group.kill(2);
    assert_eq!(group.settle_primary(), 2, "only failover moves it");
    assert_eq!(group.child("c").map(|child| child.index), Some(2));
    assert!(group.child("d").is_none());
}

#[test]
fn a_gate_lets_children_be_behind_by_what_it_says() {
    let floor = |read_gate, answered| {
        let group = GroupTable { read_gate, ..group(Policy::RoundRobin, &[100]) };
        group.shared.raise_floor(answered);
        group.read_floor()
    };
    for (gate, answered, wanted) in [
        (ReadGate::Strict, 0, 0),
        (ReadGate::Strict, 7, 7),
        (ReadGate::Bounded(3), 2, 0),
        (ReadGate::Bounded(3), 7, 4),
        (ReadGate::Bounded(u64::MAX), 7, 0),
        (ReadGate::None, 7, 0),
    ] {
        assert_eq!(floor(gate, answered), wanted, "{gate:?} at {answered}");
    }
}
