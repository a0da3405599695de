//! What is known of one child: what is in flight on it, what a choice reads, what is learnt from its answers.
//!
//! Three lines of memory, by who writes them how often: every request (`load`), once in a while (`judged`, read by
//! every choice), every answer (`learnt`, read by nobody who chooses).

use std::time::Duration;

use super::cell::Load;
use super::terms::{ERROR_US, Factors, Terms, Way, harm_us, latency_us};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering};
use crate::time::Time;

/// A child that has come back counts as this many times dearer at first, on top of once.
const START_EXTRA: f64 = 3.0;
/// Answers it gave while it was calm, after which it is one like the others.
const START_SAMPLES: u32 = 64;
/// One error is chance, two are not: a rate counts from above what one leaves. Where answers take a tenth of a
/// millisecond, a single error that counted would keep a child out for half a minute.
const ERRORS_CHANCE: f64 = super::learn::ERROR_GAIN;
/// What a child was chosen last for is noted to this exactness: a busy child's line is then read, not written.
const CHOSEN_NOTED_EVERY_NS: u64 = 1_000_000_000;

/// A number that one thread stores and others read: no sum, so a lost race is a lost sample.
#[derive(Debug, Default)]
pub(super) struct F32(AtomicU32);

impl F32 {
    #[inline]
    pub(super) fn load(&self) -> f64 {
        f64::from(f32::from_bits(self.0.load(Ordering::Relaxed)))
    }

    pub(super) fn store(&self, value: f64) {
        self.0.store((value as f32).to_bits(), Ordering::Relaxed);
    }

    /// Moves it towards `value` by this share of the way.
    pub(super) fn follow(&self, value: f64, gain: f64) {
        let now = self.load();
        self.store(now + gain * (value - now));
    }
}

/// What the cost model keeps of a child. Outlives snapshots.
#[derive(Debug)]
pub(in crate::route) struct Standing {
    pub(in crate::route) load: CachePadded<Load>,
    pub(super) judged: CachePadded<Judged>,
    pub(super) learnt: CachePadded<Learnt>,
}

/// Read by every choice.
#[derive(Debug)]
pub(super) struct Judged {
    /// Times the group's median.
    pub(super) slowness: F32,
    /// Share of its answers that were errors, lately.
    pub(super) error_rate: F32,
    /// To connect, lately, in microseconds.
    pub(super) rtt_us: F32,
    /// Configured; 0: the group's learnt ones.
    pub(super) slots: AtomicU32,
    /// In another location than the front.
    away: AtomicBool,
    /// Works on all at once.
    pub(super) shares: AtomicBool,
    /// When it came back, in nanoseconds; 0: it was always there, or has been back for long.
    pub(super) returned: AtomicU64,
    /// When it was chosen last, in nanoseconds, to [`CHOSEN_NOTED_EVERY_NS`].
    chosen: AtomicU64,
}

/// Written by answers.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// Actions that have ended.
    pub(super) ended: AtomicU64,
    /// Natural logarithm of the slowness.
    pub(super) log_slowness: F32,
    /// Share of actions that overtook the line before them.
    pub(super) overtaking: F32,
    /// A load that only 15 % of the actions meet or go below.
    pub(super) calm_load: F32,
    /// When the slowness was last taught, in nanoseconds.
    pub(super) taught: AtomicU64,
    /// Calm answers since it came back, up to [`START_SAMPLES`].
    pub(super) calm_answers: AtomicU32,
    /// Mean of |ln(seen / predicted)|.
    pub(super) error: F32,
    /// The last answer's.
    pub(super) seen_us: F32,
    pub(super) predicted_us: F32,
}

/// What was learnt of a child, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Actions in flight, reads and changes.
    pub in_flight: u32,
    /// Times the group's median.
    pub slowness: f64,
    /// Share of errors, lately.
    pub error_rate: f64,
    /// Works on all at once, and does not serve in a line.
    pub shares: bool,
    /// Share of actions that overtook the line before them.
    pub overtaking: f64,
    /// To connect, in microseconds; 0: not known.
    pub rtt_us: f64,
    /// By what factor a prediction is off in the mean (geometric); 1 is never.
    pub error_ratio: f64,
    /// The last answer: what was predicted for it, in microseconds; 0: none yet.
    pub last_predicted_us: f64,
    /// And what it took.
    pub last_seen_us: f64,
}

impl Standing {
    pub(in crate::route) fn new() -> Self {
        Self {
            load: CachePadded::new(Load::new()),
            judged: CachePadded::new(Judged {
                slowness: F32::default(),
                error_rate: F32::default(),
                rtt_us: F32::default(),
                slots: AtomicU32::new(0),
                away: AtomicBool::new(false),
                shares: AtomicBool::new(false),
                returned: AtomicU64::new(0),
                chosen: AtomicU64::new(0),
            }),
            learnt: CachePadded::default(),
        }
        .with_slowness_1()
    }

    fn with_slowness_1(self) -> Self {
        self.judged.slowness.store(1.0);
        self
    }

    /// How many it is configured to serve at once (0: to be learnt), and whether it is in another location.
    pub(in crate::route) fn configure(&self, slots: u32, away: bool) {
        self.judged.slots.store(slots, Ordering::Relaxed);
        self.judged.away.store(away, Ordering::Relaxed);
    }

    /// Another child stands here from now on: nothing is known of it. What is in flight is still charged.
    pub(in crate::route) fn forget(&self) {
        let (judged, learnt) = (&*self.judged, &*self.learnt);
        self.configure(0, false);
        judged.slowness.store(1.0);
        judged.shares.store(false, Ordering::Relaxed);
        let unknown = [&judged.error_rate, &judged.rtt_us, &learnt.log_slowness, &learnt.overtaking, &learnt.calm_load];
        let last = [&learnt.error, &learnt.seen_us, &learnt.predicted_us];
        unknown.into_iter().chain(last).for_each(|word| word.store(0.0));
    }

    /// It serves again.
    pub(in crate::route) fn on_return(&self, now: Time) {
        self.learnt.calm_answers.store(0, Ordering::Relaxed);
        self.judged.returned.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// A connection to it took this long.
    pub(in crate::route) fn on_connect(&self, took: Duration) {
        let (rtt_us, took_us) = (&self.judged.rtt_us, took.as_secs_f64() * 1e6);
        let before = rtt_us.load();
        // The way is never shorter than the shortest: what is more was waiting.
        rtt_us.follow(took_us, if before == 0.0 || took_us < before { 1.0 } else { 1.0 / 8.0 });
    }

    /// Notes that it is chosen now.
    pub(in crate::route) fn on_chosen(&self, now: Time) {
        let chosen = self.judged.chosen.load(Ordering::Relaxed);
        if now.as_nanos().saturating_sub(chosen) >= CHOSEN_NOTED_EVERY_NS {
            self.judged.chosen.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Has it been chosen by nobody for this long, and does it have nothing to do? True for one caller, who then
    /// chooses it.
    #[inline]
    pub(in crate::route) fn claim_idle(&self, after: Duration, now: Time) -> bool {
        let chosen = self.judged.chosen.load(Ordering::Relaxed);
        now.as_nanos().saturating_sub(chosen) > after.as_nanos() as u64 && self.claim(chosen, now)
    }

    #[cold]
    fn claim(&self, chosen: u64, now: Time) -> bool {
        let free = self.load.count() == 0 && !self.judged.away.load(Ordering::Relaxed);
        let judged = &*self.judged;
        free && judged.chosen.compare_exchange(chosen, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// What an action of `service_us` would cost here. As [`terms`](Self::terms) has it, without keeping the terms.
    #[inline]
    pub(in crate::route) fn cost_us(&self, group: &Group, weight: u32, service_us: f64, now: Time) -> f64 {
        let way = self.way(group);
        let count = self.load.count();
        let latency_us = self.latency_us(count, way, service_us);
        self.factors(group, weight, now).cost_us(latency_us, harm_us(count, way, service_us))
    }

    /// How long it takes here, with so many in flight, if the child is as fast as the median.
    #[inline]
    pub(super) fn latency_us(&self, count: u32, way: Way, service_us: f64) -> f64 {
        // With a free slot nobody waits: no need to look at the buckets.
        if count < way.slots && !way.shares { service_us } else { latency_us(&self.load.backlog(), way, service_us) }
    }

    /// What it would cost, and of what that is made.
    pub(in crate::route) fn terms(&self, group: &Group, weight: u32, service_us: f64, now: Time) -> Terms {
        Terms::of(&self.load.backlog(), self.way(group), &self.factors(group, weight, now), service_us)
    }

    #[inline]
    pub(super) fn way(&self, group: &Group) -> Way {
        let configured = self.judged.slots.load(Ordering::Relaxed);
        let shares = self.judged.shares.load(Ordering::Relaxed);
        if configured > 0 { Way::new(configured, shares) } else { Way { shares, ..group.way } }
    }

    #[inline]
    fn factors(&self, group: &Group, weight: u32, now: Time) -> Factors {
        let judged = &*self.judged;
        let returned = judged.returned.load(Ordering::Relaxed);
        let is_away = judged.away.load(Ordering::Relaxed);
        Factors {
            slowness: judged.slowness.load(),
            weight: if weight == 100 { 1.0 } else { 100.0 / f64::from(weight) },
            start: if returned == 0 { 1.0 } else { self.start_factor(returned, group.slow_start, now) },
            errors_us: (judged.error_rate.load() - group.error_rate - ERRORS_CHANCE).max(0.0) * ERROR_US,
            spill_us: if is_away { group.spill_us } else { 0.0 },
            // At home the way is a part of what an answer takes, and a single slow connect would count for as long as
            // the connections live.
            rtt_us: if is_away { judged.rtt_us.load() } else { 0.0 },
        }
    }

    fn start_factor(&self, returned: u64, over: Duration, now: Time) -> f64 {
        let age = now.since(Time::from_nanos(returned));
        if age >= over || self.learnt.calm_answers.load(Ordering::Relaxed) >= START_SAMPLES {
            self.judged.returned.store(0, Ordering::Relaxed);
            return 1.0;
        }
        1.0 + START_EXTRA * (1.0 - age.as_secs_f64() / over.as_secs_f64())
    }

    pub(super) fn on_calm_answer(&self) {
        let count = &self.learnt.calm_answers;
        let before = count.load(Ordering::Relaxed);
        if before < START_SAMPLES {
            count.store(before + 1, Ordering::Relaxed);
        }
    }

    pub(in crate::route) fn seen(&self) -> Seen {
        let (judged, learnt) = (&*self.judged, &*self.learnt);
        Seen {
            in_flight: self.load.count(),
            slowness: judged.slowness.load(),
            error_rate: judged.error_rate.load(),
            shares: judged.shares.load(Ordering::Relaxed),
            overtaking: learnt.overtaking.load(),
            rtt_us: judged.rtt_us.load(),
            error_ratio: learnt.error.load().exp(),
            last_predicted_us: learnt.predicted_us.load(),
            last_seen_us: learnt.seen_us.load(),
        }
    }
}

/// What all children of a group have in common, as of one choice.
#[derive(Clone, Copy, Debug)]
pub(in crate::route) struct Group {
    /// With the learnt slots.
    pub(super) way: Way,
    /// The median of the children's error rates: only what is above it counts.
    pub(in crate::route) error_rate: f64,
    pub(in crate::route) spill_us: f64,
    pub(in crate::route) slow_start: Duration,
}
