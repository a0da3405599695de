//! How good are the policies' choices? Latencies of all of them over the same made-up children and arrivals, and the
//! ratios of `predictive` to each.
//!
//! `cargo bench --bench balance` runs the simulation; `perf/balance` runs it and the real thing. Deterministic: it says
//! nothing about this machine. Variables: ACTIONS (350000), SEEDS (2), SCENARIOS (part of a name; all), LOADS.

#[allow(dead_code, reason = "shared with the tests")]
mod world;

use std::process::ExitCode;

use antiphon::route::Policy;
use world::{Chooses, Discipline, Fate, Figures, Scenario, run};

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn scenarios(load: f64) -> Vec<Scenario> {
    let named = |name| Scenario::new(name, load);
    vec![
        named("vary"),
        Scenario { varying: false, ..named("het") },
        Scenario { discipline: Discipline::Shared, ..named("varyps") },
        Scenario { slots_given: false, ..named("learnt slots") },
        named("200 classes").with_many_classes(),
        Scenario { burst: 2.2, ..named("bursts") },
        Scenario { noise: 4.0, ..named("noise x4") },
        Scenario { labelled: false, ..named("unlabelled") },
        Scenario { fate: Fate::BlackHole, ..named("black hole") },
        Scenario { fate: Fate::Returns, ..named("returning") },
    ]
}

const RIVALS: [(&str, Chooses); 9] = [
    ("round_robin", Chooses::Policy(Policy::RoundRobin, 0.0)),
    ("least_conn", Chooses::Policy(Policy::LeastConn, 0.0)),
    ("p2c", Chooses::Policy(Policy::P2c, 0.0)),
    ("peak_ewma", Chooses::Policy(Policy::PeakEwma, 0.0)),
    ("prequal .84", Chooses::Policy(Policy::Prequal, 0.84)),
    ("prequal .6", Chooses::Policy(Policy::Prequal, 0.6)),
    ("prequal .3", Chooses::Policy(Policy::Prequal, 0.3)),
    ("prequal 0", Chooses::Policy(Policy::Prequal, 0.0)),
    ("oracle", Chooses::Oracle),
];

/// The design's targets: scenario, load, rival, mean, p99; predictive is at most these shares of the rival's.
const TARGETS: [(&str, f64, &str, f64, f64); 28] = [
    ("vary", 50.0, "p2c", 0.78, 0.72),
    ("vary", 50.0, "peak_ewma", 0.75, 0.70),
    ("vary", 50.0, "least_conn", 0.90, 0.93),
    ("vary", 50.0, "oracle", 1.12, 1.30),
    ("vary", 70.0, "p2c", 0.48, 0.42),
    ("vary", 70.0, "peak_ewma", 0.48, 0.45),
    ("vary", 70.0, "least_conn", 0.83, 0.76),
    ("vary", 70.0, "oracle", 1.02, 1.12),
    ("vary", 85.0, "p2c", 0.25, 0.32),
    ("vary", 85.0, "peak_ewma", 0.25, 0.32),
    ("vary", 85.0, "least_conn", 0.45, 0.48),
    ("vary", 85.0, "oracle", 0.55, 0.72),
    ("vary", 95.0, "p2c", 0.20, 0.35),
    ("vary", 95.0, "peak_ewma", 0.20, 0.35),
    ("vary", 95.0, "least_conn", 0.25, 0.45),
    ("vary", 95.0, "oracle", 0.35, 0.65),
    ("vary", 50.0, "prequal tuned", 0.93, 0.90),
    ("vary", 70.0, "prequal tuned", 0.78, 0.72),
    ("vary", 85.0, "prequal tuned", 0.45, 0.50),
    ("vary", 95.0, "prequal tuned", 0.25, 0.45),
    ("varyps", 85.0, "p2c", 0.83, 0.83),
    ("varyps", 85.0, "peak_ewma", 0.80, 0.80),
    ("varyps", 85.0, "prequal tuned", 0.98, 0.97),
    ("varyps", 85.0, "least_conn", 1.03, 1.04),
    ("noise x4", 85.0, "p2c", 0.30, 0.40),
    ("noise x4", 85.0, "least_conn", 0.40, 0.48),
    ("unlabelled", 85.0, "p2c", 0.60, 0.65),
    ("unlabelled", 85.0, "least_conn", 0.97, 1.0),
];
/// With fewer actions a percentile says too little to miss a target by.
const ACTIONS_MIN: usize = 300_000;

fn main() -> ExitCode {
    let (actions, seeds): (usize, u64) = (variable("ACTIONS", 350_000), variable("SEEDS", 2));
    let wanted: String = variable("SCENARIOS", String::new());
    let loads: String = variable("LOADS", "50 70 85 95".to_owned());
    let loads: Vec<f64> = loads.split_whitespace().filter_map(|load| load.parse().ok()).collect();
    println!("{actions} actions, mean of {seeds} seeds; milliseconds, and predictive as a share of each rival\n");
    let mut missed = Vec::new();
    for load in loads {
        for scenario in scenarios(load / 100.0) {
            if wanted.is_empty() || wanted.split(',').any(|name| scenario.name == name) {
                missed.extend(table(&scenario, actions, seeds));
            }
        }
    }
    if !missed.is_empty() {
        println!("Targets missed:\n");
        missed.iter().for_each(|line| println!("- {line}"));
        if actions >= ACTIONS_MIN {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Prints the scenario's table; gives back the targets that it misses.
fn table(scenario: &Scenario, actions: usize, seeds: u64) -> Vec<String> {
    println!("## {} at {:.0} %\n", scenario.name, scenario.load * 100.0);
    println!("| policy | mean | p50 | p99 | p99.9 | short p99 | errors | fated | mean, p99, p99.9, short |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let ours = mean(scenario, Chooses::Policy(Policy::Predictive, 0.0), actions, seeds);
    row("**predictive**", &ours, None);
    let mut results = Vec::new();
    for (name, chooses) in RIVALS {
        // The oracle's knowledge is of lines.
        if chooses == Chooses::Oracle && (scenario.discipline != Discipline::Fifo || scenario.fate != Fate::None) {
            continue;
        }
        let theirs = mean(scenario, chooses, actions, seeds);
        row(name, &theirs, Some(&ours));
        results.push((name, theirs));
    }
    println!();
    // Tuned: for each figure the best of its settings.
    let tuned = |of: fn(&Figures) -> f64| {
        let settings = results.iter().filter(|(name, _)| name.starts_with("prequal") && *name != "prequal .84");
        settings.map(|(_, figures)| of(figures)).fold(f64::INFINITY, f64::min)
    };
    results.push(("prequal tuned", Figures { mean: tuned(|f| f.mean), p99: tuned(|f| f.p99), ..Figures::default() }));
    let load = scenario.load * 100.0;
    let mut missed = Vec::new();
    for (name, at, rival, mean, p99) in TARGETS {
        let Some((_, theirs)) = results.iter().find(|(name, _)| *name == rival) else { continue };
        let told = (ours.mean / theirs.mean, ours.p99 / theirs.p99);
        if name == scenario.name && (at - load).abs() < 0.1 && (told.0 > mean || told.1 > p99) {
            missed.push(format!("{name} at {at} %, {rival}: {:.2}, {:.2}; at most {mean}, {p99}", told.0, told.1));
        }
    }
    missed
}

fn mean(scenario: &Scenario, chooses: Chooses, actions: usize, seeds: u64) -> Figures {
    let mut sum = Figures::default();
    for seed in 1..=seeds {
        let (one, _) = run(scenario, chooses, actions, seed);
        let share = 1.0 / seeds as f64;
        sum.mean += share * one.mean;
        sum.p50 += share * one.p50;
        sum.p99 += share * one.p99;
        sum.p999 += share * one.p999;
        sum.short_p99 += share * one.short_p99;
        sum.errors += share * one.errors;
        sum.fated_share += share * one.fated_share;
    }
    sum
}

fn row(name: &str, it: &Figures, ours: Option<&Figures>) {
    let ratios = ours.map_or_else(String::new, |ours| {
        let ratio = |of: fn(&Figures) -> f64| format!("{:.2}", of(ours) / of(it));
        format!("{}, {}, {}, {}", ratio(|f| f.mean), ratio(|f| f.p99), ratio(|f| f.p999), ratio(|f| f.short_p99))
    });
    println!(
        "| {name} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} | {:.2} % | {:.1} % | {ratios} |",
        it.mean / 1e3,
        it.p50 / 1e3,
        it.p99 / 1e3,
        it.p999 / 1e3,
        it.short_p99 / 1e3,
        it.errors * 100.0,
        it.fated_share * 100.0
    );
}
