//! What every policy promises, run for each of them; then what each promises alone.

use std::time::Duration;

use super::*;
use crate::route::testing::{at, group};
use crate::route::{Outcome, Shown};
use crate::sync::AtomicUsize;

fn none() -> ChildSet {
    ChildSet::new()
}

fn chooser() -> Chooser {
    Chooser::new(1)
}

/// How often each child is chosen in `rounds` reads that end at once.
fn spread(group: &GroupTable, rounds: usize) -> Vec<usize> {
    let mut me = chooser();
    let mut counts = vec![0; group.children.len()];
    for _ in 0..rounds {
        counts[select(group, &mut me, &Label::NONE, &none(), 0, at(3)).unwrap().index] += 1;
    }
    counts
}

/// The names of the children chosen in order, each read ending at once.
fn story(group: &GroupTable, me: &mut Chooser, reads: usize) -> String {
    (0..reads).map(|_| select(group, me, &Label::NONE, &none(), 0, at(3)).unwrap().child().name().to_string()).collect()
}

// === all of them ===

/// A plain model of eligibility: the first list that is not empty is what may be chosen.
fn allowed(group: &GroupTable, tried: &ChildSet, floor: u64) -> Result<Vec<usize>, NoChoice> {
    let current = |child: &Child| child.applied() >= floor;
    let able = |shown: Shown| {
        let fits = |child: &&Arc<Child>| child.shown() == shown && current(child);
        group.children.iter().filter(fits).map(|child| child.index).collect::<Vec<_>>()
    };
    let (up, suspect) = (able(Shown::Up), able(Shown::Suspect));
    let untried = |list: &[usize]| list.iter().copied().filter(|i| !tried.contains(*i)).collect::<Vec<_>>();
    let (last, weighty): (Vec<_>, Vec<_>) = up.iter().partition(|i| group.children[**i].weight() == 0);
    for list in [&weighty, &last, &suspect] {
        let list = untried(list);
        if !list.is_empty() {
            return Ok(list);
        }
    }
    let answers = |child: &Arc<Child>| matches!(child.shown(), Shown::Up | Shown::Suspect);
    // A child that is sent what it missed counts as answering whether it is suspect or not.
    let replays = |child: &Arc<Child>| child.shown() == Shown::Replaying;
    Err(if !up.is_empty() || !suspect.is_empty() {
        NoChoice::AllTried
    } else if group.children.iter().any(|child| answers(child) || replays(child)) {
        NoChoice::NoneCurrent
    } else {
        NoChoice::AllDown
    })
}

#[test]
fn only_candidates_are_chosen_in_any_world() {
    let mut dice = Chooser::new(42);
    let mut outcomes = [0; 4];
    for round in 0..4_000 {
        let policy = Policy::ALL[round % Policy::ALL.len()];
        let count = [1, 2, 3, 8, 64, 65, 130][dice.below(7)];
        let weights: Vec<u32> = (0..count).map(|_| [0, 1, 100, 10_000][dice.below(4)]).collect();
        let group = group(policy, &weights);
        // From worlds where all is well to worlds where nearly nothing is.
        let trouble = dice.below(5);
        let mut tried = none();
        let mut held = Vec::new();
        for (index, child) in group.children.iter().enumerate() {
            for _ in 0..trouble {
                match dice.below(10) {
                    0 | 1 => group.kill(index),
                    2 => group.doubt(index),
                    3 => child.set_standing(Standing::Replaying, "", at(1)),
                    4 => child.set_standing(Standing::Diverged, "", at(1)),
                    5 => child.set_standing(Standing::NeedsReseed, "", at(1)),
                    6 => _ = child.set_admin([Admin::Offline, Admin::Draining][dice.below(2)], "", at(1)),
                    7 => _ = tried.insert(index),
                    _ => child.confirm_applied(dice.below(3) as u64),
                }
            }
            held.extend((0..dice.below(3)).map(|_| InFlight::new(Arc::clone(child))));
        }
        let mut me = Chooser::new(round as u64);
        for floor in 0..2 {
            let expected = allowed(&group, &tried, floor);
            let chosen = select(&group, &mut me, &Label::NONE, &tried, floor, at(2)).map(|choice| choice.index);
            match (&expected, chosen) {
                (Ok(list), Ok(index)) => assert!(list.contains(&index), "{policy}: {index} is not of {list:?}"),
                (Err(expected), Err(none)) => assert_eq!(none, *expected, "{policy}"),
                (expected, chosen) => panic!("{policy}: {chosen:?}, but {expected:?} is right"),
            }
            outcomes[chosen.map_or_else(|none| none as usize, |_| 3)] += 1;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 100), "the worlds are too alike: {outcomes:?}");
}

#[test]
fn each_child_is_tried_once_then_none() {
    for policy in Policy::ALL {
        let group = group(policy, &[100, 0, 50, 1, 100]);
        group.kill(2);
        group.doubt(4);
        let (mut me, mut tried, mut order) = (chooser(), none(), Vec::new());
        let end = loop {
            match select(&group, &mut me, &Label::NONE, &tried, 0, at(2)) {
                Ok(choice) => {
                    assert!(tried.insert(choice.index), "{policy}: {} twice", choice.index);
                    order.push(choice.index);
                }
                Err(end) => break end,
            }
        };
        assert_eq!(end, NoChoice::AllTried, "{policy}");
        // First those with a weight, then the last resort, then the suspect one.
        assert_eq!(order[2..], [1, 4], "{policy}: {order:?}");
        order.sort_unstable();
        assert_eq!(order, [0, 1, 3, 4], "{policy}");
    }
}

#[test]
fn one_child_or_none() {
    for policy in Policy::ALL {
        let lone = group(policy, &[0]);
        assert_eq!(spread(&lone, 10), [10], "{policy}");
        lone.kill(0);
        assert_eq!(
            select(&lone, &mut chooser(), &Label::NONE, &none(), 0, at(3)).unwrap_err(),
            NoChoice::AllDown,
            "{policy}"
        );

        let group = group(policy, &[100; 5]);
        for index in [0, 1, 2, 4] {
            group.kill(index);
        }
        assert_eq!(spread(&group, 10), [0, 0, 0, 10, 0], "{policy}");
        group.kill(3);
        let one = select(&group, &mut chooser(), &Label::NONE, &none(), 0, at(3));
        assert_eq!(one.unwrap_err(), NoChoice::AllDown, "{policy}");
        group.revive(1);
        assert_eq!(spread(&group, 10), [0, 10, 0, 0, 0], "{policy}");
    }
}

#[test]
fn behind_the_floor_is_not_down() {
    for policy in Policy::ALL {
        let group = group(policy, &[100, 100]);
        group.children[1].confirm_applied(5);
        let mut me = chooser();
        assert_eq!(select(&group, &mut me, &Label::NONE, &none(), 5, at(3)).unwrap().index, 1, "{policy}");
        assert_eq!(
            select(&group, &mut me, &Label::NONE, &none(), 6, at(3)).unwrap_err(),
            NoChoice::NoneCurrent,
            "{policy}"
        );
        group.kill(0);
        group.kill(1);
        assert_eq!(
            select(&group, &mut me, &Label::NONE, &none(), 6, at(3)).unwrap_err(),
            NoChoice::AllDown,
            "{policy}"
        );
    }
}

#[test]
fn equals_share() {
    for policy in Policy::ALL {
        for count in [2, 3, 8] {
            let group = group(policy, &vec![100; count]);
            let rounds = 1_000 * count;
            let counts = spread(&group, rounds);
            if policy == Policy::Failover {
                assert_eq!(counts[0], rounds);
            } else {
                assert!(counts.iter().all(|n| (850..1_150).contains(n)), "{policy}: {counts:?}");
            }
        }
    }
}

#[test]
fn weight_0_is_the_last_resort() {
    for policy in Policy::ALL {
        let group = group(policy, &[0, 100, 0, 100]);
        let counts = spread(&group, 200);
        assert_eq!((counts[0], counts[2]), (0, 0), "{policy}: {counts:?}");
        group.kill(1);
        group.kill(3);
        let counts = spread(&group, 200);
        assert_eq!((counts[1], counts[3]), (0, 0), "{policy}: {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 200);
        group.revive(3);
        assert_eq!(spread(&group, 200), [0, 0, 0, 200], "{policy}");
        // The operator changes his mind while it runs.
        group.children[3].set_weight(0);
        group.children[0].set_weight(1);
        assert_eq!(spread(&group, 200), [200, 0, 0, 0], "{policy}");
    }
}

#[test]
fn what_is_in_flight_returns_to_nothing() {
    for policy in Policy::ALL {
        let group = group(policy, &[100, 50, 0, 100]);
        let chosen = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for worker in 0..3_usize {
                let (group, chosen) = (&group, &chosen);
                scope.spawn(move || {
                    let mut me = Chooser::new(worker as u64);
                    let mut held = Vec::new();
                    for k in 0..3_000 {
                        match k % 100 {
                            30 => group.kill(worker),
                            60 => group.revive(worker),
                            90 => _ = group.set_primary(k % 4),
                            _ => {}
                        }
                        let mut tried = none();
                        while let Ok(choice) = select(group, &mut me, &Label::NONE, &tried, 0, at(3)) {
                            chosen.fetch_add(1, Ordering::Relaxed);
                            tried.insert(choice.index);
                            held.push(choice);
                            if k % 3 != 0 {
                                break;
                            }
                        }
                        if held.len() > 50 {
                            // Ends come in any order.
                            drop(held.swap_remove(k % 50));
                            held.truncate(20);
                        }
                    }
                });
            }
        });
        assert!(group.children.iter().all(|child| child.in_flight() == 0), "{policy}");
        let counted: u64 = group.children.iter().map(|child| child.counters.requests.load(Ordering::Relaxed)).sum();
        assert_eq!(counted, chosen.into_inner() as u64, "{policy}");
    }
}

#[test]
fn names_are_those_of_the_configuration() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert_eq!("Failover".parse::<Policy>(), Err(UnknownPolicy));
    assert!(UnknownPolicy.to_string().ends_with("peak_ewma, prequal, predictive"));
}

// === failover ===

#[test]
fn failover_is_sticky() {
    let group = group(Policy::Failover, &[100, 100, 100]);
    let me = &mut chooser();
    assert_eq!(story(&group, me, 3), "aaa");
    group.kill(0);
    assert_eq!(story(&group, me, 3), "bbb");
    group.revive(0);
    assert_eq!(story(&group, me, 3), "bbb", "it stays when the old one returns");
    group.kill(1);
    assert_eq!(story(&group, me, 3), "ccc", "the next in order, not the first");
    group.revive(1);
    group.kill(2);
    assert_eq!(story(&group, me, 3), "aaa", "after the last comes the first");
    group.revive(2);
    assert!(group.set_primary(2));
    assert_eq!(story(&group, me, 3), "ccc");
    assert_eq!(group.shared.primary_moves(), 4);
    // All gone: the role waits where it was.
    for index in 0..3 {
        group.kill(index);
    }
    assert_eq!(select(&group, me, &Label::NONE, &none(), 0, at(3)).unwrap_err(), NoChoice::AllDown);
    assert_eq!(group.settle_primary(), 2);
    group.revive(1);
    assert_eq!(story(&group, me, 1), "b");
}

#[test]
fn failover_keeps_the_role_through_a_moment() {
    let group = group(Policy::Failover, &[100, 100]);
    let me = &mut chooser();
    // This read has tried the primary, which is not known to be away.
    let tried: ChildSet = [0].into_iter().collect();
    assert_eq!(select(&group, me, &Label::NONE, &tried, 0, at(3)).unwrap().index, 1);
    // The primary is a change behind.
    group.children[1].confirm_applied(9);
    assert_eq!(select(&group, me, &Label::NONE, &none(), 9, at(3)).unwrap().index, 1);
    // It is suspect until its probe is back.
    group.doubt(0);
    assert_eq!(story(&group, me, 1), "b");
    group.on_probe(0, Ok(()), at(2));
    assert_eq!((story(&group, me, 1).as_str(), group.shared.primary_moves()), ("a", 0));
}

#[test]
fn failover_moves_on_for_every_way_of_being_away() {
    let ways: [fn(&GroupTable); 6] = [
        |group| group.kill(0),
        |group| group.children[0].set_standing(Standing::Replaying, "", at(1)),
        |group| group.children[0].set_standing(Standing::Diverged, "", at(1)),
        |group| group.children[0].set_standing(Standing::NeedsReseed, "", at(1)),
        |group| _ = group.children[0].set_admin(Admin::Draining, "", at(1)),
        |group| _ = group.children[0].set_admin(Admin::Offline, "", at(1)),
    ];
    for (i, away) in ways.into_iter().enumerate() {
        let group = group(Policy::Failover, &[100, 0, 100]);
        away(&group);
        assert_eq!(group.settle_primary(), 2, "way {i}: and not to the last resort");
    }
}

#[test]
fn failover_moves_once_however_many_see_it() {
    let group = group(Policy::Failover, &[100; 4]);
    for round in 0..200 {
        let primary = group.primary();
        group.kill(primary);
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let group = &group;
                scope.spawn(move || {
                    let choice = select(group, &mut Chooser::new(worker), &Label::NONE, &none(), 0, at(3)).unwrap();
                    assert_eq!(choice.index, (primary + 1) % 4);
                });
            }
        });
        assert_eq!(group.shared.primary_moves(), round + 1);
        group.revive(primary);
    }
}

// === the others ===

#[test]
fn round_robin_goes_in_order_and_skips_evenly() {
    let group = group(Policy::RoundRobin, &[100; 4]);
    let me = &mut chooser();
    let start = story(&group, me, 1).into_bytes()[0];
    let turn: String = (1..9).map(|k| char::from(b'a' + (start - b'a' + k) % 4)).collect();
    assert_eq!(story(&group, me, 8), turn);
    group.kill(1);
    let counts = spread(&group, 300);
    assert_eq!(counts, [100, 0, 100, 100], "its share is not its neighbour's");
}

#[test]
fn weighted_is_exact_and_smooth() {
    let group = group(Policy::Weighted, &[5, 1, 1]);
    assert_eq!(story(&group, &mut chooser(), 14), "aabacaaaabacaa");
    group.children[0].set_weight(1);
    assert_eq!(spread(&group, 300), [100; 3]);
    // Out and in again: no flood for what it was owed.
    let me = &mut chooser();
    story(&group, me, 2);
    group.kill(1);
    story(&group, me, 1_000);
    group.revive(1);
    let back = story(&group, me, 30);
    assert!((9..=12).contains(&back.matches('b').count()), "{back}");
}

#[test]
fn random_is_in_proportion() {
    let counts = spread(&group(Policy::Random, &[300, 100, 0]), 8_000);
    assert!((5_700..6_300).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
}

#[test]
fn least_conn_levels_what_is_in_flight() {
    let group = group(Policy::LeastConn, &[300, 100]);
    let me = &mut chooser();
    let held: Vec<_> = (0..400).map(|_| select(&group, me, &Label::NONE, &none(), 0, at(3)).unwrap()).collect();
    let in_flight: Vec<_> = group.children.iter().map(|child| child.in_flight()).collect();
    assert!((299..=301).contains(&in_flight[0]), "{in_flight:?}");
    drop(held);
    // Whoever is busier is not chosen.
    let busy: Vec<_> = (0..4).map(|_| InFlight::new(Arc::clone(&group.children[0]))).collect();
    assert_eq!(story(&group, me, 10), "bbbbbbbbbb");
    drop(busy);
}

#[test]
fn p2c_never_takes_the_busiest() {
    let group = group(Policy::P2c, &[100; 4]);
    let _busy = InFlight::new(Arc::clone(&group.children[2]));
    let counts = spread(&group, 3_000);
    assert_eq!(counts[2], 0, "there is always another in the draw: {counts:?}");
    assert!([0, 1, 3].iter().all(|i| (850..1_150).contains(&counts[*i])), "{counts:?}");
}

#[test]
fn peak_ewma_leaves_a_slow_child_and_a_failing_one() {
    let group = group(Policy::PeakEwma, &[100; 3]);
    let ms = Duration::from_millis;
    for (index, latency) in [(0, 2), (1, 2), (2, 200)] {
        group.observe(index, Outcome::Answered(200), ms(latency), at(3));
    }
    let counts = spread(&group, 3_000);
    assert_eq!(counts[2], 0, "slow: {counts:?}");
    group.observe(1, Outcome::Answered(503), ms(0), at(3));
    let counts = spread(&group, 3_000);
    assert!(counts[0] > counts[1] && counts[0] > 1_900, "fast, but with errors: {counts:?}");
}

#[test]
fn prequal_avoids_the_hot_and_prefers_the_fast() {
    let group = group(Policy::Prequal, &[100; 4]);
    let me = &mut chooser();
    let ms = Duration::from_millis;
    let answer = |index: usize, latency| {
        let in_flight = InFlight::new(Arc::clone(&group.children[index]));
        group.observe_choice(&in_flight, Outcome::Answered(200), latency, at(3));
    };
    for (index, latency) in [(0, 5), (1, 1), (2, 5), (3, 5)] {
        answer(index, ms(latency));
    }
    assert_eq!(story(&group, me, 4), "bbbb", "all are cold, one is fast");
    let busy: Vec<_> = (0..3).map(|_| InFlight::new(Arc::clone(&group.children[1]))).collect();
    assert!(!story(&group, me, 20).contains('b'), "fast, but hot");
    drop(busy);
    let failed = InFlight::new(Arc::clone(&group.children[1]));
    group.observe_choice(&failed, Outcome::Answered(503), Duration::ZERO, at(3));
    drop(failed);
    assert!(!story(&group, me, 20).contains('b'), "fast at failing");
}
