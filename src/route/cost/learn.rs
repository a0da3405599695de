//! What an answer teaches, and what is put right now and then.
//!
//! Service is learnt from *calm* answers only, of actions that met a child with a free slot: the others waited, and a
//! wait that got into the means would be predicted twice. Slowness is kept as a logarithm, which heavy tails do not
//! move much and in which the classes' own errors cancel.

use std::time::Duration;

use super::model::{Dispatch, Model};
use super::standing::{F32, Standing};
use crate::probe::Failure;
use crate::route::child::Child;
use crate::route::group::Outcome;
use crate::sync::{Arc, AtomicU32, Ordering};
use crate::time::Time;

/// The numbers of slots among which the right one is sought.
pub(super) const SLOTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Where the search begins.
const SLOTS_START: usize = 2;
const SLOTS_GAIN: f64 = 1.0 / 256.0;
/// Only where the numbers make this much of a difference does an answer tell which is right.
const SLOTS_DIFFER: f32 = 1.6;
/// Another number must be better by this much.
const SLOTS_HYSTERESIS: f64 = 0.98;

const SLOWNESS_GAIN: f64 = 1.0 / 64.0;
/// One answer counts as at most so many times too slow or too fast, as a logarithm (20 times).
const SLOWNESS_STEP_MAX: f64 = 3.0;
const LOG_SLOWNESS: (f64, f64) = (-2.079_441_5, 4.158_883);
/// A class teaches slowness only once it has so many answers of its own: before, it is mostly guessed.
const SLOWNESS_SAMPLES_MIN: u32 = 8;
/// A child without an answer for this long is believed to be half as far from the median, and so on.
const SLOWNESS_FORGET: Duration = Duration::from_secs(10);

pub(super) const ERROR_GAIN: f64 = 1.0 / 16.0;
/// Errors fade to 1/e in this time.
const ERROR_MEMORY: Duration = Duration::from_secs(5);

/// Which share of the actions counts as having met a calm child, where its slots are not known.
const CALM_SHARE: f64 = 0.15;
const CALM_GAIN: f64 = 0.02;

const OVERTAKING_GAIN: f64 = 1.0 / 256.0;
/// Above it a child works on all at once; below the other it serves in a line.
const OVERTAKING: (f64, f64) = (0.08, 0.15);

const PREDICTION_GAIN: f64 = 1.0 / 64.0;

/// How often the median is put right.
const TICK: Duration = Duration::from_millis(100);

/// The number of slots that explains the answers best.
#[derive(Debug)]
pub(super) struct SlotsLearnt {
    /// Mean of |ln(seen / predicted)| for each of [`SLOTS`].
    errors: [F32; SLOTS.len()],
    /// An index in [`SLOTS`].
    chosen: AtomicU32,
}

impl SlotsLearnt {
    pub(super) fn new() -> Self {
        Self { errors: Default::default(), chosen: AtomicU32::new(SLOTS_START as u32) }
    }

    pub(super) fn chosen(&self) -> u32 {
        SLOTS[self.chosen.load(Ordering::Relaxed) as usize % SLOTS.len()]
    }

    fn teach(&self, seen_us: f64, by_slots: &[f32; SLOTS.len()]) {
        let (least, most) = by_slots.iter().fold((f32::MAX, 0.0_f32), |(a, b), us| (a.min(*us), b.max(*us)));
        if most <= least * SLOTS_DIFFER {
            return;
        }
        for (error, us) in self.errors.iter().zip(by_slots) {
            error.follow((seen_us / f64::from(us.max(1.0))).ln().abs(), SLOTS_GAIN);
        }
        let now = self.chosen.load(Ordering::Relaxed) as usize % SLOTS.len();
        let error = |i: usize| self.errors[i].load();
        let best = (0..SLOTS.len()).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(now);
        if error(best) < error(now) * SLOTS_HYSTERESIS {
            self.chosen.store(best as u32, Ordering::Relaxed);
        }
    }
}

impl Model {
    /// An action's answer came, or did not; `latency` is from the request's end to the answer's head.
    pub(in crate::route) fn on_end(
        &self,
        standing: &Standing,
        dispatch: &Dispatch,
        outcome: Outcome,
        latency: Duration,
        now: Time,
    ) {
        let (judged, learnt) = (&*standing.judged, &*standing.learnt);
        let us = (latency.as_secs_f64() * 1e6).max(1.0);
        let ended = dispatch.end(standing);
        let failed = !matches!(outcome, Outcome::Answered(status) if status < 500);
        if failed {
            judged.error_rate.follow(1.0, ERROR_GAIN);
            // The time that a failure took says nothing of the service, save that one which never came is longer.
            let expected_us = self.classes.expected(dispatch.class).mean_us;
            if outcome == Outcome::Failed(Failure::AnswerTimeout) && us > expected_us {
                self.classes.teach(dispatch.class, us);
            }
            return;
        }
        if judged.error_rate.load() > 0.0 {
            judged.error_rate.follow(0.0, ERROR_GAIN);
        }
        learnt.error.follow((us / dispatch.predicted_us.max(1.0)).ln().abs(), PREDICTION_GAIN);
        learnt.seen_us.store(us);
        learnt.predicted_us.store(dispatch.predicted_us);
        let is_calm = {
            let load = f64::from(dispatch.load);
            let calm_load = learn_calm_load(&learnt.calm_load, load);
            load <= if dispatch.slots_given { f64::from(dispatch.slots) } else { calm_load }
        };
        let slowness = judged.slowness.load();
        if is_calm {
            let expected = self.classes.expected(dispatch.class);
            self.classes.teach(dispatch.class, us / slowness);
            if expected.count >= SLOWNESS_SAMPLES_MIN {
                let off = (us.ln() - expected.log_mean).clamp(-SLOWNESS_STEP_MAX, SLOWNESS_STEP_MAX);
                learnt.log_slowness.follow(off, SLOWNESS_GAIN);
                standing.show_slowness();
                learnt.taught.store(now.as_nanos(), Ordering::Relaxed);
            }
            standing.on_calm_answer();
        }
        if let Some(by_slots) = &dispatch.by_slots {
            self.slots.teach(us / slowness, by_slots);
        }
        // Of a line of `before` at `slots` places, this many had to end before it could begin.
        let before = dispatch.load - 1;
        if before > dispatch.slots {
            let overtook = ended.wrapping_sub(dispatch.ended) < u64::from(before - dispatch.slots + 1);
            learnt.overtaking.follow(f64::from(u8::from(overtook)), OVERTAKING_GAIN);
            let (queues, shares) = OVERTAKING;
            let overtaking = learnt.overtaking.load();
            let was = judged.shares.load(Ordering::Relaxed);
            let is = overtaking > if was { queues } else { shares };
            if is != was {
                judged.shares.store(is, Ordering::Relaxed);
            }
        }
    }

    /// An answer that had begun well broke off.
    pub(in crate::route) fn on_break(&self, standing: &Standing) {
        standing.judged.error_rate.follow(1.0, ERROR_GAIN);
    }

    /// At most every [`TICK`], by whoever comes first: keeps the median child at slowness 1, and lets old errors and
    /// old slowness fade.
    pub(in crate::route) fn tick(&self, children: &[Arc<Child>], now: Time) {
        let ticked = self.ticked.load(Ordering::Relaxed);
        let since = now.since(Time::from_nanos(ticked));
        if since < TICK {
            return;
        }
        let mine = self.ticked.compare_exchange(ticked, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_err() || ticked == 0 {
            return;
        }
        let standings = || children.iter().filter(|child| !child.is_vacant()).map(|child| child.cost());
        let shift = median(standings().map(|standing| standing.learnt.log_slowness.load())) / 10.0;
        if shift.abs() > 1e-4 {
            // What the children lose, the classes gain: no prediction changes.
            self.classes.scale(shift.exp());
        }
        let fade = (-since.as_secs_f64() / ERROR_MEMORY.as_secs_f64()).exp();
        for standing in standings() {
            let (judged, learnt) = (&*standing.judged, &*standing.learnt);
            let taught = Time::from_nanos(learnt.taught.load(Ordering::Relaxed));
            let forget = match now.since(taught) >= SLOWNESS_FORGET {
                true => 0.5_f64.powf(since.as_secs_f64() / SLOWNESS_FORGET.as_secs_f64()),
                false => 1.0,
            };
            let shift = if shift.abs() > 1e-4 { shift } else { 0.0 };
            let log_slowness = learnt.log_slowness.load();
            if shift != 0.0 || (forget < 1.0 && log_slowness != 0.0) {
                learnt.log_slowness.store((log_slowness - shift) * forget);
                standing.show_slowness();
            }
            let error_rate = judged.error_rate.load();
            if error_rate > 0.0 {
                judged.error_rate.store(if error_rate < 1e-4 { 0.0 } else { error_rate * fade });
            }
        }
        self.error_rate.store(median(standings().map(|standing| standing.judged.error_rate.load())));
    }
}

impl Standing {
    fn show_slowness(&self) {
        let log = self.learnt.log_slowness.load().clamp(LOG_SLOWNESS.0, LOG_SLOWNESS.1);
        self.judged.slowness.store(log.exp());
    }
}

impl Dispatch {
    /// It counts as ended from now on; tells how many have.
    pub(in crate::route) fn end(&self, standing: &Standing) -> u64 {
        let ended = &standing.learnt.ended;
        if self.has_ended.replace(true) {
            return ended.load(Ordering::Relaxed);
        }
        // Without itself.
        ended.fetch_add(1, Ordering::Relaxed)
    }
}

/// Follows the load that [`CALM_SHARE`] of the actions meet or go below; gives it back, at least 1.
fn learn_calm_load(kept: &F32, load: f64) -> f64 {
    let before = kept.load();
    let step = CALM_GAIN * before;
    let after = match before {
        0.0 => load,
        _ if load <= before => before - step * (1.0 - CALM_SHARE),
        _ => before + step * CALM_SHARE,
    };
    let after = after.clamp(1.0, f64::from(1 << 20));
    kept.store(after);
    after.round()
}

/// The middle one, or the mean of the two; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    (sorted[last / 2] + sorted[last - last / 2]) / 2.0
}
