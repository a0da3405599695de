//! What workers, lanes and the operator say of a group, and what follows.

use std::time::Duration;

use super::*;
use crate::probe::{Action, Kind};
use crate::route::testing::{at, group};
use crate::route::{ChildSet, Chooser, Shown, Standing, select};

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
fn a_vacant_place_is_in_nobodys_set() {
    for policy in Policy::ALL {
        let group = group(policy, &[100, 100, 100]);
        let mut me = Chooser::new(1);
        assert!(group.set_primary(1) && group.vacate(1, at(1)));
        assert_eq!(group.primary(), 2, "{policy}: the next that is live");
        assert_eq!((group.occupants(), group.child("b").is_none(), group.set_primary(1)), (2, true, false));
        let child = &group.children[1];
        assert!(!child.is_live() && child.next_probe(&group.probe, 1).is_none());
        assert!(!child.claim_probe(at(999), &group.probe, 1));
        for _ in 0..20 {
            let chosen = select(&group, &mut me, &Label::NONE, &ChildSet::new(), 0, at(2)).expect("two are there");
            assert_ne!(chosen.index, 1, "{policy}");
        }
        group.kill(2);
        assert!(group.vacate(2, at(3)) && group.primary() == 0, "{policy}");
        assert!(!group.vacate(0, at(3)) && group.children[0].is_live(), "{policy}: the last one stays");
    }
}

#[test]
fn a_newcomer_is_asked_first_and_needs_a_reseed() {
    let group = group(Policy::RoundRobin, &[100, 100]);
    let child = &group.children[1];
    let old = SocketAddr::from(([127, 0, 0, 1], 80));
    let new = SocketAddr::from(([127, 0, 0, 1], 81));
    child.set_addresses(vec![old]);
    assert!(child.is_at(new), "it has always been where its name leads");
    group.observe(1, Outcome::Answered(200), MS, at(1));
    group.kill(1);
    assert!(group.vacate(1, at(2)));
    let identity = Identity { name: "n".into(), host: "127.0.0.1:81".into(), aliases: Arc::default(), location: None };
    group.occupy(1, identity, vec![new], 7, at(3));
    assert_eq!((&*child.name(), &*child.host(), child.weight(), child.address()), ("n", "127.0.0.1:81", 7, Some(new)));
    assert_eq!((child.shown(), child.health().state().kind()), (Shown::NeedsReseed, Kind::Down));
    assert_eq!(child.counters.falls.load(Ordering::Relaxed), 0);
    assert_eq!(child.next_probe(&group.probe, 1), Some(at(3)), "at once");
    assert!(child.is_at(new) && !child.is_at(old));
    // It is moved: asked again before it is used.
    group.on_probe(1, Ok(()), at(4));
    child.set_standing(Standing::Live, "", at(4));
    assert_eq!(child.shown(), Shown::Up);
    group.readdress(1, "127.0.0.1:80", vec![old], at(5));
    assert_eq!((child.shown(), &*child.name(), child.is_at(new)), (Shown::Down, "n", false));
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
