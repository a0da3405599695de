//! What the cost model promises, whatever happens: nothing is lost, nobody starves, nothing drifts or overflows.
//!
//! Promises that need children which serve (learning under load, telling a line from a crowd) are tested in
//! `tests/balance.rs`, those of the formulas beside them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use arc_swap::ArcSwap;
use proptest::prelude::*;

use super::*;
use crate::probe::Failure;
use crate::route::testing::{at, group};
use crate::route::{ChildSet, Choice, Chooser, GroupTable, NoChoice, Outcome, Policy, select};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::time::Time;

const MS: Duration = Duration::from_millis(1);

fn path(text: &str) -> Label {
    Label::of_path(b"GET", text.as_bytes(), None)
}

fn choose(group: &GroupTable, me: &mut Chooser, label: &Label, now: Time) -> Choice {
    select(group, me, label, &ChildSet::new(), 0, now).expect("a child is up")
}

fn answer(group: &GroupTable, choice: &Choice, took: Duration, now: Time) {
    group.observe_choice(&choice.in_flight, Outcome::Answered(200), took, now);
}

#[track_caller]
fn assert_idle(group: &GroupTable) {
    for child in &group.children {
        assert!(child.cost().load.is_idle(), "{}: {:?}", child.name(), child.cost().load);
        assert_eq!((child.load(), child.in_flight()), (0, 0));
    }
}

fn slowness(group: &GroupTable, index: usize) -> f64 {
    group.children[index].cost().seen().slowness
}

// === conservation ===

/// What may happen to an action.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u8),
    Change(u8),
    Answer(u8, u16, u32),
    Break(u8),
    Abort(u8),
    Panic(u8),
    Down(u8),
    Up(u8),
    Pass(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Read),
        1 => any::<u8>().prop_map(Step::Change),
        3 => (any::<u8>(), prop::sample::select(vec![200_u16, 404, 503]), any::<u32>()).prop_map(|(a, b, c)| Step::Answer(a, b, c)),
        1 => any::<u8>().prop_map(Step::Break),
        1 => any::<u8>().prop_map(Step::Abort),
        1 => any::<u8>().prop_map(Step::Panic),
        1 => any::<u8>().prop_map(Step::Down),
        1 => any::<u8>().prop_map(Step::Up),
        1 => any::<u16>().prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_idle_is_zero(steps in prop::collection::vec(any_step(), 0..200)) {
        let group = group(Policy::Predictive, &[100, 50, 1, 100]);
        let (mut me, mut now, mut held) = (Chooser::new(1), at(1), Vec::new());
        for step in steps {
            match step {
                Step::Read(kind) => {
                    let label = path(["/a", "/b", "/c"][usize::from(kind) % 3]);
                    if let Ok(choice) = select(&group, &mut me, &label, &ChildSet::new(), 0, now) {
                        held.push(choice.in_flight);
                    }
                }
                Step::Change(child) => {
                    held.push(group.dispatch_change(usize::from(child) % 4, "PUT", b"PUT /x HTTP/1.1\r\n\r\n", 9, now));
                }
                Step::Answer(which, status, us) if !held.is_empty() => {
                    let in_flight = held.swap_remove(usize::from(which) % held.len());
                    group.observe_choice(&in_flight, Outcome::Answered(status), Duration::from_micros(us.into()), now);
                }
                Step::Break(which) if !held.is_empty() => {
                    let in_flight = held.swap_remove(usize::from(which) % held.len());
                    group.observe_break(&in_flight, Failure::Closed, now);
                }
                Step::Abort(which) if !held.is_empty() => drop(held.swap_remove(usize::from(which) % held.len())),
                Step::Panic(which) if !held.is_empty() => {
                    let in_flight = held.swap_remove(usize::from(which) % held.len());
                    let unwound = catch_unwind(AssertUnwindSafe(move || {
                        let _in_flight = in_flight;
                        std::panic::resume_unwind(Box::new(()));
                    }));
                    prop_assert!(unwound.is_err());
                }
                Step::Down(child) => group.kill(usize::from(child) % 4),
                Step::Up(child) => group.revive(usize::from(child) % 4),
                Step::Pass(ms) => now = now + Duration::from_millis(ms.into()),
                Step::Answer(..) | Step::Break(_) | Step::Abort(_) | Step::Panic(_) => {}
            }
            let count: u32 = group.children.iter().map(|child| child.load()).sum();
            prop_assert_eq!(count as usize, held.len());
            for child in &group.children {
                let seen = child.cost().seen();
                prop_assert!(seen.slowness.is_finite() && (0.12..=64.1).contains(&seen.slowness));
                prop_assert!((0.0..=1.0).contains(&seen.error_rate));
            }
        }
        held.clear();
        assert_idle(&group);
    }
}

#[test]
fn swaps_under_load_lose_nothing() {
    let first = group(Policy::Predictive, &[100; 8]);
    let (children, shared) = (first.children.clone(), first.shared.clone());
    let table = ArcSwap::from_pointee(first);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (table, over) = (&table, &over);
            scope.spawn(move || {
                let (mut me, mut held, mut round) = (Chooser::new(worker), Vec::new(), 0_u64);
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    let group = table.load_full();
                    let now = at(1) + Duration::from_micros(10 * round);
                    let choice = choose(&group, &mut me, &path("/a"), now);
                    held.push((group, choice));
                    if held.len() > 40 {
                        // A request keeps the snapshot that it began with.
                        let (group, choice) = held.swap_remove((round % 40) as usize);
                        answer(&group, &choice, 2 * MS, now);
                    }
                }
            });
        }
        for round in 0..10_000 {
            // Every second snapshot lacks the last child, as after an order to take it out.
            let count = 8 - round % 2;
            let next = GroupTable {
                children: children[..count].to_vec(),
                shared: shared.clone(),
                ..group(Policy::Predictive, &[100; 8])
            };
            table.store(Arc::new(next));
        }
        over.store(true, Ordering::Relaxed);
    });
    let all = GroupTable { children, shared, ..group(Policy::Predictive, &[100; 8]) };
    assert_idle(&all);
    let class = all.explain(&path("/a"), at(2)).class.expect("it was learnt");
    assert!(class.samples > 0 && class.name == "GET /a", "{class:?}");
}

// === fairness ===

#[test]
fn equals_get_equal_shares() {
    let group = group(Policy::Predictive, &[100; 8]);
    let (mut me, mut counts, mut held) = (Chooser::new(3), [0_u32; 8], std::collections::VecDeque::new());
    for _ in 0..100_000 {
        let choice = choose(&group, &mut me, &path("/a"), at(3));
        counts[choice.index] += 1;
        held.push_back(choice);
        if held.len() > 20 {
            held.pop_front();
        }
    }
    assert!(counts.iter().all(|count| (12_375..=12_625).contains(count)), "{counts:?}");
}

#[test]
fn workers_do_not_herd() {
    const WORKERS: u32 = 4;
    for count in [2_usize, 5, 8] {
        let group = group(Policy::Predictive, &vec![100; count]);
        let each = 500 * count as u32;
        let held: Vec<_> = std::thread::scope(|scope| {
            let pick = |worker: u32| {
                let group = &group;
                move || {
                    let mut me = Chooser::new(worker.into());
                    (0..each).map(|_| choose(group, &mut me, &path("/a"), at(3))).collect::<Vec<_>>()
                }
            };
            let threads: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(pick(worker))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let fair = WORKERS * each / count as u32;
        for child in &group.children {
            assert!(child.load() < fair + WORKERS, "{count} children: {} of {fair}", child.load());
        }
        drop(held);
        assert_idle(&group);
    }
}

#[test]
fn no_child_starves_whatever_was_learnt_of_it() {
    for (slow, errors) in [(20.0, false), (1_000.0, false), (1.0, true)] {
        let group = group(Policy::Predictive, &[100; 4]);
        let mut me = Chooser::new(1);
        // Child 3 was slow, or failed, for long.
        for k in 0..4_000 {
            let now = at(1) + k * MS;
            let choice = choose(&group, &mut me, &path("/a"), now);
            match (choice.index, errors) {
                (3, true) => _ = group.observe_choice(&choice.in_flight, Outcome::Answered(503), MS, now),
                (3, false) => answer(&group, &choice, MS.mul_f64(slow), now),
                _ => answer(&group, &choice, MS, now),
            }
        }
        // Now it is well: one action a second for each child, and within 30 s it gets one.
        let chosen = (0..120).position(|k| {
            let now = at(5) + k * 250 * MS;
            let choice = choose(&group, &mut me, &path("/a"), now);
            answer(&group, &choice, MS, now);
            choice.index == 3
        });
        assert!(chosen.is_some(), "slow {slow}, errors {errors}");
    }
}

// === learning ===

#[test]
fn slowness_follows_a_child_that_turns_slow() {
    let group = group(Policy::Predictive, &[100; 3]);
    let serve = |from: u32, factor: f64, replies: u32| {
        for k in from..from + replies {
            let now = at(1) + k * MS;
            for index in 0..3 {
                // A change, for it goes to all.
                let in_flight = group.dispatch_change(index, "GET", b"GET /a HTTP/1.1", 0, now);
                let took = if index == 2 { (4 * MS).mul_f64(factor) } else { 4 * MS };
                group.learn(&in_flight, Outcome::Answered(200), took, now);
            }
        }
    };
    serve(0, 1.0, 300);
    assert!((0.9..1.1).contains(&slowness(&group, 2)), "{}", slowness(&group, 2));
    serve(300, 2.0, 150);
    assert!((1.6..2.4).contains(&slowness(&group, 2)), "{}", slowness(&group, 2));
}

#[test]
fn a_day_brings_no_drift() {
    let group = group(Policy::Predictive, &[100; 3]);
    let mut me = Chooser::new(1);
    let mut dice = Chooser::new(2);
    // Once a second some; children of speeds 1, 1 and 2.
    for second in 0..24 * 3_600 {
        let now = at(1 + second);
        let held: Vec<_> = (0..1 + dice.below(3)).map(|_| choose(&group, &mut me, &path("/a"), now)).collect();
        for choice in &held {
            let us = 2_000 + dice.below(4_000) as u64;
            answer(&group, choice, Duration::from_micros(if choice.index == 2 { us / 2 } else { us }), now);
        }
    }
    let mut all: Vec<_> = (0..3).map(|index| slowness(&group, index).ln()).collect();
    all.sort_by(f64::total_cmp);
    assert!(all[1].abs() < 0.05, "{all:?}");
    let class = group.explain(&path("/a"), at(1)).class.expect("it was learnt");
    assert!((1_800.0..4_400.0).contains(&class.mean_us), "{class:?}");
}

#[test]
fn errors_never_make_a_child_cheaper() {
    let group = group(Policy::Predictive, &[100; 4]);
    let mut me = Chooser::new(1);
    let cost = |index: usize| group.explain(&path("/a"), at(4)).children[index].terms.cost_us();
    for k in 0..200 {
        let choice = choose(&group, &mut me, &path("/a"), at(1) + k * MS);
        answer(&group, &choice, MS, at(1) + k * MS);
    }
    let mut before = cost(0);
    for outcome in [
        Outcome::Answered(500),
        Outcome::Answered(503),
        Outcome::Failed(Failure::Closed),
        Outcome::Failed(Failure::AnswerTimeout),
        Outcome::Failed(Failure::Refused),
    ] {
        let in_flight = group.dispatch_change(0, "GET", b"GET /a HTTP/1.1", 0, at(2));
        group.learn(&in_flight, outcome, Duration::from_micros(1), at(2));
        drop(in_flight);
        assert!(cost(0) >= before, "{outcome:?}: {before} then {}", cost(0));
        before = cost(0);
    }
    assert!(cost(1) + 100_000.0 < before, "after some, a tenth of a second and more");
    // All fail alike: nobody is avoided.
    for _ in 0..3 {
        for index in 0..4 {
            for _ in 0..100 {
                let in_flight = group.dispatch_change(index, "GET", b"GET /a HTTP/1.1", 0, at(3));
                group.learn(&in_flight, Outcome::Answered(500), MS, at(3));
            }
        }
        let in_flight = group.dispatch_change(0, "GET", b"GET /a HTTP/1.1", 0, at(4));
        group.learn(&in_flight, Outcome::Answered(500), MS, at(4));
    }
    let errors_us: Vec<_> =
        group.explain(&path("/a"), at(4)).children.iter().map(|child| child.terms.errors_us).collect();
    assert!(errors_us.iter().all(|us| *us < 0.2e6), "{errors_us:?}");
}

#[test]
fn one_error_is_chance() {
    let group = group(Policy::Predictive, &[100; 2]);
    let fail = || {
        let in_flight = group.dispatch_change(0, "GET", b"GET /a HTTP/1.1", 0, at(1));
        group.learn(&in_flight, Outcome::Answered(500), MS, at(1));
    };
    let errors_us = || group.explain(&Label::NONE, at(1)).children[0].terms.errors_us;
    fail();
    assert_eq!(errors_us(), 0.0);
    fail();
    assert!(errors_us() > 50_000.0, "{}", errors_us());
}

#[test]
fn the_way_counts_only_to_another_location() {
    let group = group(Policy::Predictive, &[100; 2]);
    for child in &group.children {
        child.note_connect(80 * MS);
        child.note_connect(40 * MS);
        child.note_connect(48 * MS);
    }
    group.children[1].configure_cost(0, true);
    let told: Vec<_> = group.explain(&Label::NONE, at(1)).children.iter().map(|child| child.terms.rtt_us).collect();
    assert_eq!(told, [0.0, 41_000.0], "the shortest, and a little of what is longer");
}

#[test]
fn a_time_out_teaches_that_it_takes_longer() {
    let group = group(Policy::Predictive, &[100]);
    let mut me = Chooser::new(1);
    for k in 0..100 {
        let choice = choose(&group, &mut me, &path("/a"), at(1) + k * MS);
        answer(&group, &choice, MS, at(1) + k * MS);
    }
    let mean = || group.explain(&path("/a"), at(2)).class.expect("learnt").mean_us;
    let before = mean();
    let choice = choose(&group, &mut me, &path("/a"), at(2));
    group.observe_choice(&choice.in_flight, Outcome::Failed(Failure::AnswerTimeout), 100 * MS, at(2));
    let after = mean();
    assert!(after > before && after <= before + 100_000.0 / 101.0, "{before} then {after}");
}

// === what an operator says ===

#[test]
fn another_location_costs_more_and_is_used_when_it_pays() {
    let group = group(Policy::Predictive, &[100, 100]);
    group.children[1].configure_cost(0, true);
    let (mut me, label) = (Chooser::new(1), path("/a"));
    let mut held = Vec::new();
    let first = (0..1_000).position(|_| {
        held.push(choose(&group, &mut me, &label, at(3)));
        held.last().expect("just chosen").index == 1
    });
    assert!(first.is_some_and(|count| count >= 4), "not before the near one is full: {first:?}");
    drop(held);
    // However long nobody has gone there: only that it pays is a reason.
    assert!((0..50).all(|k| choose(&group, &mut me, &label, at(100 + 10 * k)).index == 0));
    assert_idle(&group);
}

#[test]
fn a_child_that_comes_back_is_dear_for_a_while() {
    let group = group(Policy::Predictive, &[100, 100]);
    let factor = |now| group.explain(&Label::NONE, now).children[1].terms.start_factor;
    assert_eq!(factor(at(1)), 1.0, "not at the beginning");
    group.kill(1);
    group.revive(1);
    assert_eq!((factor(at(2)), factor(at(7)), factor(at(12))), (4.0, 2.5, 1.0));
    // Sooner, once it has proved itself.
    group.kill(1);
    group.revive(1);
    let mut me = Chooser::new(1);
    let mut held = vec![choose(&group, &mut me, &Label::NONE, at(3))];
    for _ in 0..400 {
        let choice = choose(&group, &mut me, &Label::NONE, at(3));
        if choice.index == 1 {
            answer(&group, &choice, MS, at(3));
        } else if held.len() < 12 {
            held.push(choice);
        }
    }
    assert_eq!(factor(at(3)), 1.0);
}

#[test]
fn weights_are_factors() {
    let group = group(Policy::Predictive, &[200, 100, 50]);
    let told: Vec<_> =
        group.explain(&Label::NONE, at(1)).children.iter().map(|child| child.terms.weight_factor).collect();
    assert_eq!(told, [0.5, 1.0, 2.0]);
    let mut me = Chooser::new(1);
    let held: Vec<_> = (0..350).map(|_| choose(&group, &mut me, &Label::NONE, at(1))).collect();
    let loads: Vec<_> = group.children.iter().map(|child| child.load()).collect();
    assert!(loads[0] > loads[1] && loads[1] > loads[2] && loads[2] > 0, "{loads:?}");
    drop(held);
}

#[test]
fn a_change_is_charged_where_it_goes() {
    for policy in Policy::ALL {
        let group = group(policy, &[100, 100]);
        let change = group.dispatch_change(0, "PUT", b"PUT /x HTTP/1.1\r\n", 10, at(1));
        assert_eq!((group.children[0].load(), group.children[0].in_flight()), (1, 0), "no read");
        if matches!(policy, Policy::LeastConn | Policy::Predictive | Policy::Prequal) {
            let mut me = Chooser::new(1);
            assert!((0..20).all(|_| choose(&group, &mut me, &Label::NONE, at(1)).index == 1), "{policy}");
        }
        drop(change);
        assert_idle(&group);
    }
}

// === nonsense ===

#[test]
fn extremes_are_numbers() {
    let hour = Duration::from_secs(3_600);
    for (count, slots, took) in [(1, 1, Duration::ZERO), (1, 1, hour), (2, 65_536, hour), (17, 1, hour)] {
        let group = group(Policy::Predictive, &vec![1; count]);
        group.children.iter().for_each(|child| child.configure_cost(slots, false));
        let mut me = Chooser::new(1);
        let mut held = Vec::new();
        for k in 0..3_000_u32 {
            // The clock steps back, too.
            let now = if k % 7 == 0 { at(1) } else { at(1) + k * MS };
            held.push(choose(&group, &mut me, &path("/a"), now));
            if k % 3 == 0 {
                answer(&group, &held.swap_remove(k as usize / 2 % held.len()), took, now);
            }
            if k % 500 == 0 {
                let told = group.explain(&path("/a"), now);
                assert!(told.children.iter().all(|child| child.terms.cost_us().is_finite()), "{told:?}");
            }
        }
        held.clear();
        assert_idle(&group);
        let late = Time::NEVER;
        answer(&group, &choose(&group, &mut me, &path("/a"), late), hour, late);
        assert!(group.explain(&path("/a"), late).children[0].terms.cost_us().is_finite());
    }
}

#[test]
fn a_million_in_flight_are_counted() {
    let group = group(Policy::Predictive, &[100]);
    let mut me = Chooser::new(1);
    let held: Vec<_> = (0..(1 << 20) - 1).map(|_| choose(&group, &mut me, &path("/a"), at(1))).collect();
    assert_eq!(group.children[0].load(), (1 << 20) - 1);
    assert!(group.explain(&path("/a"), at(1)).children[0].terms.cost_us().is_finite());
    drop(held);
    assert_idle(&group);
}

#[test]
fn all_down_is_all_down() {
    let group = group(Policy::Predictive, &[100; 3]);
    (0..3).for_each(|index| group.kill(index));
    let none = select(&group, &mut Chooser::new(1), &path("/a"), &ChildSet::new(), 0, at(3));
    assert_eq!(none.unwrap_err(), NoChoice::AllDown);
    let told = group.explain(&path("/a"), at(3));
    assert!(told.chosen.is_err() && told.children.iter().all(|child| !child.is_candidate));
    assert_idle(&group);
}
