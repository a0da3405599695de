//! A world of children for the policies to choose in: no clock, no threads, no network; every run of a seed is the same.
//!
//! What chooses is the product's own code: `route::select`, its guard, and what it is told of answers. Only the children
//! are made up: each serves a number of actions at once from a line (*fifo*), or all at once (*ps*), at a speed that
//! follows a script of pauses and slow times. The same seed gives every policy the same arrivals, sizes and scripts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use antiphon::action::{Class, Dialect, RuleSet, Rules};
use antiphon::probe::{self, Failure};
use antiphon::route::cost::{self, Label};
use antiphon::route::{
    Child, ChildSet, ChildTimeouts, Choice, Chooser, GroupShared, GroupTable, Outcome, Policy, ReadGate, select,
};
use antiphon::sync::Arc;
use antiphon::time::Time;

/// How children serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// `slots` at once, the others in a line.
    Fifo,
    /// All at once; each as fast as alone up to `slots` of them.
    Shared,
}

/// What befalls a child.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Only what the script says.
    None,
    /// From the third tenth of the run on, for four tenths: every action fails at once.
    BlackHole,
    /// For two tenths it is down; then it is back, for five seconds at a fifth of its speed.
    Returns,
    /// For two tenths it is down; then it is back.
    Recovers,
}

/// A scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) discipline: Discipline,
    /// Of each child; 1 is nominal.
    pub(crate) speeds: Vec<f64>,
    pub(crate) slots: usize,
    /// Pauses of 50 to 150 ms every 4 s, half speed for a fifth of the time.
    pub(crate) varying: bool,
    /// The share of the capacity that is asked for.
    pub(crate) load: f64,
    /// Share, median in microseconds, sigma of the logarithm.
    pub(crate) classes: Vec<(f64, f64, f64)>,
    /// The policy is told the classes.
    pub(crate) labelled: bool,
    /// Each size is off by a factor from 1/noise to noise.
    pub(crate) noise: f64,
    /// For 50 ms of each 400, arrivals are this many times as frequent.
    pub(crate) burst: f64,
    pub(crate) fate: Fate,
    pub(crate) slots_given: bool,
    pub(crate) workers: usize,
}

impl Scenario {
    /// Eight unlike children, three unlike classes.
    pub(crate) fn new(name: &'static str, load: f64) -> Self {
        // A class's mean is its median times e^(sigma²/2).
        let class = |share: f64, mean_us: f64, sigma: f64| (share, mean_us / (sigma * sigma / 2.0).exp(), sigma);
        Self {
            name,
            discipline: Discipline::Fifo,
            speeds: vec![1.5, 1.25, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5],
            slots: 4,
            varying: true,
            load,
            classes: vec![class(0.9, 1_000.0, 0.5), class(0.09, 10_000.0, 0.7), class(0.01, 300_000.0, 0.7)],
            labelled: true,
            noise: 1.0,
            burst: 1.0,
            fate: Fate::None,
            slots_given: true,
            workers: 4,
        }
    }

    /// Two hundred classes whose shares follow Zipf's law and whose means have no order.
    #[must_use]
    pub(crate) fn with_many_classes(mut self) -> Self {
        let mut dice = Dice(77);
        let sum: f64 = (1..=200).map(|rank| 1.0 / f64::from(rank)).sum();
        self.classes =
            (1..=200).map(|rank| (1.0 / f64::from(rank) / sum, 500.0 * (1.5 * dice.normal()).exp(), 0.6)).collect();
        self
    }

    /// Everything takes this many times as long.
    #[must_use]
    pub(crate) fn slower(mut self, factor: f64) -> Self {
        self.classes.iter_mut().for_each(|class| class.1 *= factor);
        self
    }

    /// The mean of a class, in microseconds.
    pub(crate) fn class_mean_us(&self, class: usize) -> f64 {
        let (_, median, sigma) = self.classes[class];
        median * (sigma * sigma / 2.0).exp()
    }

    fn mean_us(&self) -> f64 {
        let mean = |(share, median, sigma): &(f64, f64, f64)| share * median * (sigma * sigma / 2.0).exp();
        self.classes.iter().map(mean).sum::<f64>() * self.noise_mean()
    }

    /// The mean of a factor whose logarithm is spread evenly.
    fn noise_mean(&self) -> f64 {
        if self.noise <= 1.0 { 1.0 } else { (self.noise - 1.0 / self.noise) / (2.0 * self.noise.ln()) }
    }

    /// Actions a second that all children together can do.
    pub(crate) fn capacity(&self) -> f64 {
        // Of four seconds 100 ms are paused, and a fifth of the rest is at half speed.
        let available = if self.varying { 0.975 * 0.9 } else { 1.0 };
        self.speeds.iter().sum::<f64>() * self.slots as f64 * available / (self.mean_us() / 1e6)
    }
}

/// What a run showed, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// p99 of the first class.
    pub(crate) short_p99: f64,
    /// Share of the actions that failed.
    pub(crate) errors: f64,
    /// Share of the actions that went to the child with a fate: before it, from its beginning on, and from 15 s after
    /// its end on.
    pub(crate) share_before: f64,
    pub(crate) fated_share: f64,
    pub(crate) share_after: f64,
}

/// What the model had learnt at the end.
#[derive(Clone, Debug)]
pub(crate) struct Learnt {
    pub(crate) slots: u32,
    /// By child.
    pub(crate) slowness: Vec<f64>,
    pub(crate) shares: Vec<bool>,
    /// By class, in microseconds.
    pub(crate) means_us: Vec<f64>,
}

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Chooses {
    /// The product, with this share of cold children for Prequal.
    Policy(Policy, f32),
    /// One that knows every size and the future, and takes the child on which the action will end first. Fifo only.
    Oracle,
}

/// Runs `actions` of a scenario; the first tenth is not counted.
pub(crate) fn run(scenario: &Scenario, chooses: Chooses, actions: usize, seed: u64) -> (Figures, Learnt) {
    let mut world = World::new(scenario, chooses, actions, seed);
    let mut arrivals = Arrivals::new(seed);
    for number in 0..actions {
        let arrival = arrivals.next(scenario);
        world.until(arrival.at);
        world.arrive(number, arrival);
    }
    world.until(u64::MAX);
    let learnt = world.learnt();
    (world.figures(), learnt)
}

/// One action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// In nanoseconds; the first second is empty.
    pub(crate) at: u64,
    pub(crate) class: usize,
    /// What it takes at speed 1.
    pub(crate) work_us: f64,
}

/// The actions of a run, in order.
pub(crate) struct Arrivals {
    dice: Dice,
    /// Of sizes: apart, so that scenarios with one seed have the same.
    sizes: Dice,
    now: f64,
}

impl Arrivals {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice(seed ^ 0xa11), sizes: Dice(seed ^ 0x517e), now: 1e9 }
    }

    pub(crate) fn next(&mut self, scenario: &Scenario) -> Arrival {
        // A burst takes 50 ms of 400; between bursts it is quieter, so that the load is as told.
        let in_burst = scenario.burst > 1.0 && (self.now as u64) % 400_000_000 < 50_000_000;
        let factor = match (scenario.burst > 1.0, in_burst) {
            (false, _) => 1.0,
            (true, true) => scenario.burst,
            (true, false) => (400.0 - 50.0 * scenario.burst) / 350.0,
        };
        let rate = scenario.capacity() * scenario.load * factor;
        self.now += -self.dice.unit().ln() / rate * 1e9;
        let mut pick = self.sizes.unit();
        let mut class = scenario.classes.len() - 1;
        for (i, (share, ..)) in scenario.classes.iter().enumerate() {
            if pick <= *share {
                class = i;
                break;
            }
            pick -= share;
        }
        let (_, median, sigma) = scenario.classes[class];
        let noise = ((2.0 * self.sizes.unit() - 1.0) * scenario.noise.ln()).exp();
        Arrival { at: self.now as u64, class, work_us: median * (sigma * self.sizes.normal()).exp() * noise }
    }
}

/// A child's true state.
pub(crate) struct Server {
    /// From each of these moments on, this speed.
    script: Vec<(u64, f64)>,
    /// Where in the script we are.
    at: usize,
    /// Fifo: when each slot is free.
    free: Vec<u64>,
    /// Shared: the work that each served action has had, and when that was true.
    served: f64,
    since: u64,
    /// Shared: at which `served` each action ends.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Shared: which `End` event is true.
    generation: u64,
}

struct Running {
    choice: Option<Choice>,
    child: usize,
    class: usize,
    began: u64,
    counted: bool,
}

/// An event: when, in which order, what.
type Event = (u64, u64, What);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    End { action: usize },
    Fails { action: usize },
    SharedEnd { child: usize, generation: u64 },
}

struct World<'s> {
    scenario: &'s Scenario,
    chooses: Chooses,
    group: GroupTable,
    choosers: Vec<Chooser>,
    labels: Vec<Label>,
    servers: Vec<Server>,
    running: Vec<Running>,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    actions: usize,
    /// By class, in nanoseconds.
    latencies: Vec<Vec<u64>>,
    failed: usize,
    counted: usize,
    /// Before a fate, from then on, and long after it: to the child that has it, and to all.
    fated: [(usize, usize); 3],
    /// When fate begins and ends, in nanoseconds.
    fate: (u64, u64),
    is_down: bool,
}

/// The child that has a fate.
const FATED: usize = 2;

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario, chooses: Chooses, actions: usize, seed: u64) -> Self {
        let duration = (actions as f64 / (scenario.capacity() * scenario.load) * 1e9) as u64;
        let tenth = duration / 10;
        let fate = match scenario.fate {
            Fate::None => (u64::MAX, u64::MAX),
            Fate::BlackHole => (1_000_000_000 + 3 * tenth, 1_000_000_000 + 7 * tenth),
            Fate::Returns | Fate::Recovers => (1_000_000_000 + 3 * tenth, 1_000_000_000 + 5 * tenth),
        };
        let servers = servers(scenario, duration, fate, seed);
        let label = |class: usize| match scenario.labelled {
            true => Label::of_path(b"GET", format!("/class-{}", letters(class)).as_bytes(), None),
            false => Label::of_path(b"GET", b"/", None),
        };
        Self {
            scenario,
            chooses,
            group: group(scenario, chooses),
            choosers: (0..scenario.workers as u64).map(|worker| Chooser::new(seed ^ worker)).collect(),
            labels: (0..scenario.classes.len()).map(label).collect(),
            servers,
            running: Vec::with_capacity(actions),
            events: BinaryHeap::new(),
            order: 0,
            actions,
            latencies: vec![Vec::new(); scenario.classes.len()],
            failed: 0,
            counted: 0,
            fated: [(0, 0); 3],
            fate,
            is_down: false,
        }
    }

    fn push(&mut self, at: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
    }

    /// Everything that happens before `at`.
    fn until(&mut self, at: u64) {
        while let Some(Reverse((when, _, what))) = self.events.peek().copied() {
            if when > at {
                return;
            }
            self.events.pop();
            match what {
                What::End { action } => self.end(action, when, true),
                What::Fails { action } => self.end(action, when, false),
                What::SharedEnd { child, generation } => {
                    if self.servers[child].generation == generation {
                        let action = self.servers[child].shared_end(when, self.scenario.slots);
                        self.end(action, when, true);
                        self.plan_shared(child, when);
                    }
                }
            }
        }
    }

    fn arrive(&mut self, number: usize, arrival: Arrival) {
        self.meet_fate(arrival.at);
        let (now, worker) = (Time::from_nanos(arrival.at), number % self.choosers.len());
        let counted = number >= self.actions / 10;
        let choice = match self.chooses {
            Chooses::Oracle => None,
            Chooses::Policy(..) => {
                let me = &mut self.choosers[worker];
                Some(
                    select(&self.group, me, &self.labels[arrival.class], &ChildSet::new(), 0, now)
                        .expect("a child is up"),
                )
            }
        };
        let child = match &choice {
            Some(choice) => choice.index,
            None => (0..self.servers.len())
                .min_by_key(|child| self.servers[*child].fifo_end(arrival.at, arrival.work_us).1)
                .expect("there are children"),
        };
        let long_after = arrival.at >= self.fate.1.saturating_add(15_000_000_000);
        for (counts, then) in
            self.fated.iter_mut().zip([arrival.at < self.fate.0, arrival.at >= self.fate.0, long_after])
        {
            if then && counted {
                counts.0 += usize::from(child == FATED);
                counts.1 += 1;
            }
        }
        self.running.push(Running { choice, child, class: arrival.class, began: arrival.at, counted });
        if self.scenario.fate == Fate::BlackHole
            && child == FATED
            && arrival.at >= self.fate.0
            && arrival.at < self.fate.1
        {
            return self.push(arrival.at + 100_000, What::Fails { action: number });
        }
        match self.scenario.discipline {
            Discipline::Fifo => {
                let end = self.servers[child].fifo_begin(arrival.at, arrival.work_us);
                self.push(end, What::End { action: number });
            }
            Discipline::Shared => {
                self.servers[child].shared_begin(arrival.at, self.scenario.slots, number, arrival.work_us);
                self.plan_shared(child, arrival.at);
            }
        }
    }

    /// The fated child goes down, or comes back.
    fn meet_fate(&mut self, now: u64) {
        if !matches!(self.scenario.fate, Fate::Returns | Fate::Recovers) {
            return;
        }
        let should_be_down = now >= self.fate.0 && now < self.fate.1;
        while self.is_down != should_be_down {
            let result = if should_be_down { Err(Failure::Refused) } else { Ok(()) };
            self.is_down = should_be_down;
            for _ in 0..probe::GOOD_PROBES_MAX {
                self.group.on_probe(FATED, result, Time::from_nanos(now));
            }
        }
    }

    fn plan_shared(&mut self, child: usize, now: u64) {
        if let Some((at, generation)) = self.servers[child].next_shared_end(now, self.scenario.slots) {
            self.push(at, What::SharedEnd { child, generation });
        }
    }

    fn end(&mut self, action: usize, now: u64, good: bool) {
        let running = &mut self.running[action];
        let took = now - running.began;
        if let Some(choice) = running.choice.take() {
            let outcome = Outcome::Answered(if good { 200 } else { 503 });
            self.group.observe_choice(&choice.in_flight, outcome, Duration::from_nanos(took), Time::from_nanos(now));
        }
        if running.counted {
            self.counted += 1;
            if good {
                self.latencies[running.class].push(took);
            } else {
                self.failed += 1;
            }
        }
        debug_assert!(running.child < self.servers.len());
    }

    fn learnt(&self) -> Learnt {
        let now = Time::from_nanos(1);
        let told = self.group.explain(&self.labels[0], now);
        let mean = |label| self.group.explain(label, now).prediction.service_us;
        Learnt {
            slots: told.slots,
            slowness: told.children.iter().map(|child| child.seen.slowness).collect(),
            shares: told.children.iter().map(|child| child.seen.shares).collect(),
            means_us: self.labels.iter().map(mean).collect(),
        }
    }

    fn figures(self) -> Figures {
        let share = |when: usize| self.fated[when].0 as f64 / self.fated[when].1.max(1) as f64;
        for child in &self.group.children {
            assert_eq!(child.load(), 0, "all that began has ended");
        }
        let us = |sorted: &[u64], share: f64| {
            sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(0) as f64 / 1e3
        };
        let mut first = self.latencies[0].clone();
        first.sort_unstable();
        let mut all: Vec<u64> = self.latencies.into_iter().flatten().collect();
        all.sort_unstable();
        Figures {
            mean: all.iter().sum::<u64>() as f64 / all.len() as f64 / 1e3,
            p50: us(&all, 0.5),
            p99: us(&all, 0.99),
            p999: us(&all, 0.999),
            short_p99: us(&first, 0.99),
            errors: self.failed as f64 / self.counted.max(1) as f64,
            share_before: share(0),
            fated_share: share(1),
            share_after: share(2),
        }
    }
}

impl Server {
    fn new(scenario: &Scenario, child: usize, duration: u64, fate: (u64, u64), dice: &mut Dice) -> Self {
        let speed = scenario.speeds[child];
        // Changes of two factors over time, then multiplied.
        let mut changes: Vec<(u64, usize, f64)> = Vec::new();
        if scenario.varying {
            let mut at = (dice.unit() * 4e9) as u64;
            while at < duration {
                let length = 50_000_000 + (dice.unit() * 1e8) as u64;
                changes.extend([(at, 0, 0.0), (at + length, 0, 1.0)]);
                at += 4_000_000_000;
            }
            let mut at = (dice.unit() * 5e9) as u64;
            while at < duration {
                changes.extend([(at, 1, 0.5), (at + 1_000_000_000, 1, 1.0)]);
                at += 1_000_000_000 + (-dice.unit().ln() * 4e9) as u64;
            }
        }
        if scenario.fate == Fate::Returns && child == FATED {
            changes.extend([(fate.1, 2, 0.2), (fate.1 + 5_000_000_000, 2, 1.0)]);
        }
        changes.sort_by_key(|change| change.0);
        let mut factors = [1.0; 3];
        let mut script = vec![(0, speed)];
        for (at, which, factor) in changes {
            factors[which] = factor;
            script.push((at, speed * factors.iter().product::<f64>()));
        }
        Self {
            script,
            at: 0,
            free: vec![0; scenario.slots],
            served: 0.0,
            since: 0,
            ends: BinaryHeap::new(),
            generation: 0,
        }
    }

    /// When this much work is done that begins now, with this share of the speed.
    fn done(&self, from: u64, work_us: f64, share: f64) -> u64 {
        let mut left = work_us * 1e3;
        let mut now = from;
        // The script is walked from where the past ends.
        let mut at = self.at + self.script[self.at..].partition_point(|(when, _)| *when <= now) - 1;
        loop {
            let speed = self.script[at].1 * share;
            let until = self.script.get(at + 1).map_or(u64::MAX, |next| next.0);
            let possible = (until - now) as f64 * speed;
            if possible >= left && speed > 0.0 {
                return now + (left / speed).ceil() as u64;
            }
            left -= possible;
            now = until;
            at += 1;
        }
    }

    /// The work, in nanoseconds at speed 1, that is done from `since` to `now`.
    fn work_between(&mut self, since: u64, now: u64) -> f64 {
        while self.script.get(self.at + 1).is_some_and(|next| next.0 <= since) {
            self.at += 1;
        }
        let (mut at, mut from, mut work) = (self.at, since, 0.0);
        while from < now {
            let until = self.script.get(at + 1).map_or(u64::MAX, |next| next.0).min(now);
            work += (until - from) as f64 * self.script[at].1;
            from = until;
            at += 1;
        }
        work
    }

    /// The slot that an action would get, and when it would end.
    pub(crate) fn fifo_end(&self, now: u64, work_us: f64) -> (usize, u64) {
        let (slot, free) = self.free.iter().copied().enumerate().min_by_key(|(_, free)| *free).expect("a slot");
        (slot, self.done(free.max(now), work_us, 1.0))
    }

    /// Takes the slot; tells when the action will end.
    pub(crate) fn fifo_begin(&mut self, now: u64, work_us: f64) -> u64 {
        let (slot, end) = self.fifo_end(now, work_us);
        self.free[slot] = end;
        end
    }

    fn share(&self, slots: usize) -> f64 {
        (slots as f64 / self.ends.len().max(1) as f64).min(1.0)
    }

    fn advance(&mut self, now: u64, slots: usize) {
        let share = self.share(slots);
        let work = self.work_between(self.since, now);
        self.served += work * share;
        self.since = now;
    }

    fn shared_begin(&mut self, now: u64, slots: usize, action: usize, work_us: f64) {
        self.advance(now, slots);
        self.ends.push(Reverse(((self.served + work_us * 1e3) as u64, action)));
    }

    fn shared_end(&mut self, now: u64, slots: usize) -> usize {
        self.advance(now, slots);
        let Reverse((end, action)) = self.ends.pop().expect("an action ends");
        self.served = self.served.max(end as f64);
        action
    }

    fn next_shared_end(&mut self, now: u64, slots: usize) -> Option<(u64, u64)> {
        self.generation += 1;
        let Reverse((end, _)) = self.ends.peek()?;
        let left_us = (*end as f64 - self.served).max(0.0) / 1e3;
        Some((self.done(now, left_us, self.share(slots)), self.generation))
    }
}

/// The children of a scenario, with their scripts for so many nanoseconds; fate begins and ends at these.
pub(crate) fn servers(scenario: &Scenario, duration: u64, fate: (u64, u64), seed: u64) -> Vec<Server> {
    let mut dice = Dice(seed ^ 0x5c2);
    let script = duration + 60_000_000_000;
    (0..scenario.speeds.len()).map(|child| Server::new(scenario, child, script, fate, &mut dice)).collect()
}

fn group(scenario: &Scenario, chooses: Chooses) -> GroupTable {
    let (policy, quantile) = match chooses {
        Chooses::Policy(policy, quantile) => (policy, quantile),
        Chooses::Oracle => (Policy::RoundRobin, 0.0),
    };
    let second = Duration::from_secs(1);
    let child = |index: usize| {
        let child = Child::new(&format!("c{index}"), index, "127.0.0.1:80", 100, None);
        child.configure_cost(if scenario.slots_given { scenario.slots as u32 } else { 0 }, false);
        Arc::new(child)
    };
    GroupTable {
        name: "g".into(),
        index: 0,
        children: (0..scenario.speeds.len()).map(child).collect(),
        policy,
        rules: Arc::new(Rules::new(Dialect::Http, RuleSet::Http, Vec::new(), Class::Change).expect("a built-in set")),
        probe: probe::Options::default(),
        timeouts: ChildTimeouts { connect: second, response_head: second, response_body: second, tunnel_idle: second },
        read_gate: ReadGate::default(),
        cost: cost::Options { prequal_quantile: quantile, ..cost::Options::default() },
        shared: Arc::new(GroupShared::new()),
    }
}

/// A name without digits, so that it is not taken for an id.
pub(crate) fn letters(number: usize) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'g')).collect()
}

/// Random numbers: SplitMix64.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0, up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, variance 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}
