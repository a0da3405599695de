//! The policies' choices in the simulated world of `benches/balance`: the targets that `predictive` is held to against
//! its rivals, and what it must learn of children that serve. Deterministic: a figure changes only with the code.
//!
//! The means' targets are those of the design. Its targets of the 99th percentile are held by the longer runs of
//! `perf/balance`: one action in a hundred is a long one here, so that in a short run the percentile jumps between
//! them.

#[path = "../benches/balance/world.rs"]
#[allow(dead_code, reason = "shared with the bench")]
mod world;

use antiphon::route::Policy;
use world::{Chooses, Discipline, Fate, Figures, Learnt, Scenario, run};

const PREDICTIVE: Chooses = Chooses::Policy(Policy::Predictive, 0.0);
const LEAST_CONN: Chooses = Chooses::Policy(Policy::LeastConn, 0.0);
const P2C: Chooses = Chooses::Policy(Policy::P2c, 0.0);
const PEAK_EWMA: Chooses = Chooses::Policy(Policy::PeakEwma, 0.0);
/// Prequal, tuned for these worlds.
const PREQUAL: Chooses = Chooses::Policy(Policy::Prequal, 0.3);

/// Enough for a mean to stand still.
const ACTIONS: usize = 60_000;
/// How much further off than its target a 99th percentile may be in a short run.
const P99_SLACK: f64 = 1.35;

fn figures(scenario: &Scenario, chooses: Chooses) -> Figures {
    run(scenario, chooses, ACTIONS, 1).0
}

/// Mean and p99 of `predictive` are at most these shares of each rival's, the latter with the slack of a short run.
#[track_caller]
fn assert_beats(scenario: &Scenario, targets: &[(&str, Chooses, f64, f64)]) {
    let ours = figures(scenario, PREDICTIVE);
    for (name, rival, mean, p99) in targets {
        let theirs = figures(scenario, *rival);
        let told = (ours.mean / theirs.mean, ours.p99 / theirs.p99);
        assert!(
            told.0 <= *mean && told.1 <= *p99 * P99_SLACK,
            "{} of {name}, at most {mean}, {p99}: {told:.2?}",
            scenario.name
        );
    }
}

// === the targets ===

#[test]
fn half_loaded() {
    let targets = [
        ("p2c", P2C, 0.78, 0.72),
        ("peak_ewma", PEAK_EWMA, 0.75, 0.70),
        ("prequal", PREQUAL, 1.0, 1.0),
        ("least_conn", LEAST_CONN, 0.90, 0.93),
    ];
    assert_beats(&Scenario::new("vary at 50 %", 0.50), &targets);
}

#[test]
fn well_loaded() {
    let targets = [
        ("p2c", P2C, 0.48, 0.42),
        ("peak_ewma", PEAK_EWMA, 0.48, 0.45),
        ("prequal", PREQUAL, 0.90, 0.85),
        ("least_conn", LEAST_CONN, 0.83, 0.76),
    ];
    assert_beats(&Scenario::new("vary at 70 %", 0.70), &targets);
}

#[test]
fn heavily_loaded() {
    let targets = [
        ("p2c", P2C, 0.25, 0.32),
        ("peak_ewma", PEAK_EWMA, 0.25, 0.32),
        ("prequal", PREQUAL, 0.45, 0.55),
        ("least_conn", LEAST_CONN, 0.45, 0.48),
        ("the oracle", Chooses::Oracle, 0.55, 1.2),
    ];
    let scenario = Scenario::new("vary at 85 %", 0.85);
    assert_beats(&scenario, &targets);
    let short = |chooses| figures(&scenario, chooses).short_p99;
    assert!(short(PREDICTIVE) <= 0.25 * short(P2C) && short(PREDICTIVE) <= 0.35 * short(LEAST_CONN));
}

#[test]
fn nearly_overloaded() {
    let targets = [
        ("p2c", P2C, 0.20, 0.35),
        ("peak_ewma", PEAK_EWMA, 0.20, 0.35),
        ("prequal", PREQUAL, 0.25, 0.45),
        ("least_conn", LEAST_CONN, 0.25, 0.45),
    ];
    assert_beats(&Scenario::new("vary at 95 %", 0.95), &targets);
}

#[test]
fn where_children_divide_their_time_nobody_gains_much() {
    let scenario = Scenario { discipline: Discipline::Shared, ..Scenario::new("varyps at 85 %", 0.85) };
    let targets =
        [("p2c", P2C, 0.83, 0.83), ("peak_ewma", PEAK_EWMA, 0.80, 0.80), ("least_conn", LEAST_CONN, 1.03, 1.04)];
    assert_beats(&scenario, &targets);
}

#[test]
fn sizes_that_cannot_be_told_cost_little() {
    let scenario = Scenario { noise: 4.0, ..Scenario::new("noise x4 at 85 %", 0.85) };
    assert_beats(&scenario, &[("p2c", P2C, 0.30, 0.40), ("least_conn", LEAST_CONN, 0.42, 0.48)]);
}

#[test]
fn without_classes_it_is_not_worse() {
    let scenario = Scenario { labelled: false, ..Scenario::new("unlabelled at 85 %", 0.85) };
    assert_beats(&scenario, &[("p2c", P2C, 0.60, 0.67), ("least_conn", LEAST_CONN, 0.97, 1.0)]);
}

#[test]
fn many_classes_and_bursts_and_learnt_slots() {
    let many = Scenario::new("200 classes at 85 %", 0.85).with_many_classes();
    assert_beats(&many, &[("p2c", P2C, 0.7, 0.7), ("least_conn", LEAST_CONN, 0.95, 0.95)]);
    let bursts = Scenario { burst: 2.2, ..Scenario::new("bursts at 85 %", 0.85) };
    assert_beats(&bursts, &[("p2c", P2C, 0.35, 0.45), ("least_conn", LEAST_CONN, 0.55, 0.6)]);
    let learnt = Scenario { slots_given: false, ..Scenario::new("learnt slots at 85 %", 0.85) };
    assert_beats(&learnt, &[("p2c", P2C, 0.3, 0.4), ("least_conn", LEAST_CONN, 0.5, 0.6)]);
}

#[test]
fn a_black_hole_draws_no_traffic() {
    let scenario = Scenario { fate: Fate::BlackHole, ..Scenario::new("black hole at 70 %", 0.70) };
    let (ours, theirs) = (figures(&scenario, PREDICTIVE), figures(&scenario, LEAST_CONN));
    assert!(ours.errors <= 0.002, "{ours:?}");
    assert!(theirs.errors > 0.1, "least_conn falls into it: {theirs:?}");
}

// === what is learnt of children that serve ===

fn learnt(scenario: &Scenario) -> (Figures, Learnt) {
    run(scenario, PREDICTIVE, ACTIONS, 2)
}

#[test]
fn means_are_learnt_under_load() {
    for load in [0.5, 0.7, 0.9] {
        // Slots given: the slowness of eight equal children is noise around 1.
        let scenario = Scenario { speeds: vec![1.0; 8], varying: false, ..Scenario::new("equal children", load) };
        let (_, learnt) = learnt(&scenario);
        for class in 0..2 {
            let (told, meant) = (learnt.means_us[class], scenario.class_mean_us(class));
            assert!((told / meant - 1.0).abs() < 0.1, "class {class} at {load}: {told:.0} for {meant:.0}");
        }
        assert!(learnt.slowness.iter().all(|slowness| (0.8..1.25).contains(slowness)), "{learnt:?}");
    }
}

#[test]
fn speeds_are_learnt_under_load() {
    let scenario = Scenario { varying: false, ..Scenario::new("het", 0.7) };
    let (_, learnt) = learnt(&scenario);
    for (speed, slowness) in scenario.speeds.iter().zip(&learnt.slowness) {
        assert!((0.75..1.35).contains(&(speed * slowness)), "{learnt:?}");
    }
}

#[test]
fn a_line_is_told_from_a_crowd() {
    for (discipline, shares) in [(Discipline::Fifo, false), (Discipline::Shared, true)] {
        let scenario = Scenario { discipline, ..Scenario::new("vary", 0.95) };
        let (_, learnt) = learnt(&scenario);
        let told = learnt.shares.iter().filter(|told| **told == shares).count();
        assert!(told >= 6, "{discipline:?}: {learnt:?}");
        assert!(shares || told == 8, "a line is never taken for a crowd: {learnt:?}");
    }
}

#[test]
fn slots_are_learnt() {
    for slots in [1, 4, 16] {
        let scenario = Scenario { slots, slots_given: false, ..Scenario::new("learnt slots", 0.9) };
        let (_, learnt) = learnt(&scenario);
        let off = f64::from(learnt.slots) / slots as f64;
        assert!((0.5..=4.0).contains(&off), "{slots} slots: {}", learnt.slots);
    }
}

#[test]
fn a_child_that_recovers_gets_its_share_again() {
    let scenario = Scenario {
        fate: Fate::Recovers,
        speeds: vec![1.0; 8],
        varying: false,
        // One kind: a few very long actions would decide about the share of a short time.
        classes: vec![(1.0, 50_000.0, 0.5)],
        ..Scenario::new("recovers", 0.85)
    };
    let (figures, _) = learnt(&scenario);
    assert!((figures.share_before / 0.125 - 1.0).abs() < 0.1, "{figures:?}");
    assert!((figures.share_after / 0.125 - 1.0).abs() < 0.1, "{figures:?}");
}

#[test]
fn a_run_of_a_seed_is_always_the_same() {
    let scenario = Scenario::new("vary at 85 %", 0.85);
    assert_eq!(run(&scenario, PREDICTIVE, 5_000, 3).0, run(&scenario, PREDICTIVE, 5_000, 3).0);
}
