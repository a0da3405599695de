//! How long does choosing a child take, with the count of what is in flight up and down, for each policy and size of
//! group?
//!
//! One thread, everything in cache: the floor of the cost. In a server, what other cores write of a child must be
//! fetched, too. The predictive policy's budget is 120 ns at 8 children: `predictive` with all children idle,
//! `predictive_labelled` with the class looked up, `predictive_full` with more in flight on each child than it has slots.

use std::hint::black_box;
use std::time::Duration;

use antiphon::action::{Class, Dialect, RuleSet, Rules};
use antiphon::probe;
use antiphon::route::cost::{self, Label};
use antiphon::route::{
    Child, ChildSet, ChildTimeouts, Chooser, GroupShared, GroupTable, Outcome, Policy, ReadGate, select,
};
use antiphon::sync::Arc;
use antiphon::time::Time;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn group(policy: Policy, count: usize) -> GroupTable {
    let second = Duration::from_secs(1);
    let child = |index: usize| Arc::new(Child::new(&format!("c{index}"), index, "127.0.0.1:80", 100, None));
    let group = GroupTable {
        name: "g".into(),
        index: 0,
        children: (0..count).map(child).collect(),
        policy,
        rules: Arc::new(Rules::new(Dialect::Http, RuleSet::Http, Vec::new(), Class::Change).expect("a built-in set")),
        probe: probe::Options::default(),
        timeouts: ChildTimeouts { connect: second, response_head: second, response_body: second, tunnel_idle: second },
        cost: cost::Options::default(),
        read_gate: ReadGate::default(),
        shared: Arc::new(GroupShared::new()),
    };
    for index in 0..count {
        group.observe(index, Outcome::Answered(200), Duration::from_micros(200), Time::from_nanos(1));
    }
    group
}

fn bench(criterion: &mut Criterion) {
    let mut benchmark = criterion.benchmark_group("select");
    benchmark.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1));
    for policy in Policy::ALL {
        for count in [3, 8, 64] {
            let group = group(policy, count);
            let mut me = Chooser::new(1);
            let (tried, now) = (ChildSet::new(), Time::from_nanos(1_000_000));
            benchmark.bench_function(BenchmarkId::new(policy.name(), count), |bencher| {
                bencher.iter(|| {
                    select(black_box(&group), &mut me, &Label::NONE, &tried, 0, now).map(|choice| choice.index)
                });
            });
        }
    }
    for count in [3, 8, 16, 64] {
        let group = group(Policy::Predictive, count);
        let mut me = Chooser::new(1);
        let (tried, now) = (ChildSet::new(), Time::from_nanos(1_000_000));
        let label = Label::of_path(b"GET", b"/items/17", Some(4_000));
        // As at steady state: the class is known.
        for _ in 0..2_000 {
            let choice = select(&group, &mut me, &label, &tried, 0, now).expect("a child is up");
            group.observe_choice(&choice.in_flight, Outcome::Answered(200), Duration::from_micros(200), now);
        }
        let mut choose = move || select(black_box(&group), &mut me, black_box(&label), &tried, 0, now);
        benchmark.bench_function(BenchmarkId::new("predictive_labelled", count), |bencher| {
            bencher.iter(|| choose().map(|choice| choice.index));
        });
        let held: Vec<_> = (0..6 * count).map(|_| choose()).collect();
        benchmark.bench_function(BenchmarkId::new("predictive_full", count), |bencher| {
            bencher.iter(|| choose().map(|choice| choice.index));
        });
        drop(held);
    }
    benchmark.bench_function("label", |bencher| {
        bencher.iter(|| Label::of_path(black_box(b"GET"), black_box(b"/items/17?x=y"), Some(4_000)));
    });
    benchmark.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
