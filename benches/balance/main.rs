//! How good are the policies' choices? Latencies of all of them over the same made-up children and arrivals, and the
//! ratios of `predictive` to each.
//!
//! `cargo bench --bench balance` runs the simulation; `perf/balance` runs it and the real thing. Deterministic: it says
//! nothing about this machine. Variables: ACTIONS (350000), SEEDS (2), SCENARIOS (part of a name; all), LOADS.

#[allow(dead_code, reason = "shared with the tests")]
mod world;

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

fn main() {
    let (actions, seeds): (usize, u64) = (variable("ACTIONS", 350_000), variable("SEEDS", 2));
    let wanted: String = variable("SCENARIOS", String::new());
    let loads: String = variable("LOADS", "50 70 85 95".to_owned());
    let loads: Vec<f64> = loads.split_whitespace().filter_map(|load| load.parse().ok()).collect();
    println!("{actions} actions, mean of {seeds} seeds; milliseconds, and predictive as a share of each rival\n");
    for load in loads {
        for scenario in scenarios(load / 100.0) {
            if wanted.is_empty() || wanted.split(',').any(|name| scenario.name == name) {
                table(&scenario, actions, seeds);
            }
        }
    }
}

fn table(scenario: &Scenario, actions: usize, seeds: u64) {
    println!("## {} at {:.0} %\n", scenario.name, scenario.load * 100.0);
    println!("| policy | mean | p50 | p99 | p99.9 | short p99 | errors | fated | mean, p99, p99.9, short |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let ours = mean(scenario, Chooses::Policy(Policy::Predictive, 0.0), actions, seeds);
    row("**predictive**", &ours, None);
    for (name, chooses) in RIVALS {
        // The oracle's knowledge is of lines.
        if chooses == Chooses::Oracle && (scenario.discipline != Discipline::Fifo || scenario.fate != Fate::None) {
            continue;
        }
        row(name, &mean(scenario, chooses, actions, seeds), Some(&ours));
    }
    println!();
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
