//! What a child's answers take, by how much was in flight on it: running medians, for `prequal`.
//!
//! Prequal's servers tell their probes the median latency of what they served lately at about the load that they have
//! now. We see all that a child serves, so we keep these medians ourselves, and every look is a fresh probe.
//!
//! Racing workers may overwrite each other's sample: a lost one costs nothing but itself.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Time;

/// Loads 1, 2, 3, 4, 5-6, 7-8, 9-12, 13-16, ... and all above.
const STEPS: usize = 16;
/// How far a sample moves a median, as a share of it.
const STEP: f32 = 0.05;
/// A child that fails fast must not look fast: a failure counts as so many medians, up to a second.
const FAILURE_FACTOR: f32 = 10.0;
const FAILURE_US_MAX: f32 = 1e6;
/// What a child without an answer yet counts as when something is in flight on it.
const UNKNOWN_US: f32 = 1e6;
/// What is known of a child that gets nothing fades to 1/e in this time, so that it is tried again.
const MEMORY: Duration = Duration::from_secs(10);

/// The medians of one child. Shared by all workers.
#[derive(Debug, Default)]
pub(super) struct AtLoad {
    /// Microseconds, the bits of an `f32`; 0 before the first sample.
    medians: [AtomicU32; STEPS],
    /// Of the last sample, in nanoseconds.
    stamp: AtomicU64,
}

impl AtLoad {
    /// An answer took this long, with so much in flight at its beginning, itself included.
    pub(super) fn on_answer(&self, load: u32, latency: Duration, now: Time) {
        self.sample(load, latency.as_micros() as f32, now);
    }

    /// There was no answer, or one that says the child failed.
    pub(super) fn on_failure(&self, load: u32, latency: Duration, now: Time) {
        let median = self.nearest(load);
        let counts_as = if median > 0.0 { (median * FAILURE_FACTOR).min(FAILURE_US_MAX) } else { FAILURE_US_MAX };
        let word = &self.medians[step_of(load)];
        word.store((latency.as_micros() as f32).max(counts_as).to_bits(), Ordering::Relaxed);
        self.stamp.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// What an answer takes with so much in flight, in microseconds.
    pub(super) fn median_us(&self, load: u32, now: Time) -> f32 {
        match self.nearest(load) {
            0.0 if load > 1 => UNKNOWN_US,
            median => {
                let age = now.since(Time::from_nanos(self.stamp.load(Ordering::Relaxed)));
                // Among busy children this is 1, and no exponential is worth that.
                let fade = if age < MEMORY / 100 { 1.0 } else { (-age.as_secs_f32() / MEMORY.as_secs_f32()).exp() };
                median * fade
            }
        }
    }

    /// The median at this load, else at the nearest lower one that is known, else at the nearest higher one.
    fn nearest(&self, load: u32) -> f32 {
        let at = |step: usize| f32::from_bits(self.medians[step].load(Ordering::Relaxed));
        let step = step_of(load);
        (0..=step).rev().chain(step + 1..STEPS).map(at).find(|median| *median > 0.0).unwrap_or(0.0)
    }

    fn sample(&self, load: u32, us: f32, now: Time) {
        let us = us.max(1.0);
        let word = &self.medians[step_of(load)];
        let median = f32::from_bits(word.load(Ordering::Relaxed));
        let next = match median {
            0.0 => us,
            _ if us > median => (median * (1.0 + STEP)).min(us),
            _ => (median / (1.0 + STEP)).max(us),
        };
        word.store(next.to_bits(), Ordering::Relaxed);
        self.stamp.store(now.as_nanos(), Ordering::Relaxed);
    }
}

/// Two steps for each doubling.
fn step_of(load: u32) -> usize {
    let load = load.max(1);
    if load <= 2 {
        return load as usize - 1;
    }
    // The highest power of two below it, and whether it is in the upper half of what follows.
    let power = (load - 1).ilog2();
    let upper = (load - 1) >> (power - 1) & 1;
    ((2 * power + upper) as usize).min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1);

    #[test]
    fn loads_have_two_steps_for_each_doubling() {
        let ends: Vec<_> = (2..600).filter(|load| step_of(load - 1) != step_of(*load)).collect();
        assert_eq!(ends, [2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193]);
    }

    #[test]
    fn a_median_is_no_mean() {
        let at_load = AtLoad::default();
        for i in 0..2_000 {
            let ms = if i % 10 == 0 { 300 } else { 1 };
            at_load.on_answer(4, Duration::from_millis(ms), NOW);
        }
        let median = at_load.median_us(4, NOW);
        assert!((900.0..1_500.0).contains(&median), "{median}");
    }

    #[test]
    fn what_is_not_known_is_taken_from_the_nearest_load() {
        let at_load = AtLoad::default();
        assert_eq!(at_load.median_us(1, NOW), 0.0, "tried first");
        assert_eq!(at_load.median_us(2, NOW), UNKNOWN_US, "with one at a time");
        at_load.on_answer(2, Duration::from_millis(2), NOW);
        at_load.on_answer(9, Duration::from_millis(9), NOW);
        assert_eq!([1, 2, 8, 10, 4_000].map(|load| at_load.median_us(load, NOW)), [2e3, 2e3, 2e3, 9e3, 9e3]);
        let later = NOW + MEMORY;
        assert!(at_load.median_us(10, later) < 4e3, "it fades");
    }

    #[test]
    fn a_failing_child_is_not_a_fast_one() {
        let at_load = AtLoad::default();
        at_load.on_failure(1, Duration::ZERO, NOW);
        assert_eq!(at_load.median_us(1, NOW), FAILURE_US_MAX);
        at_load.on_answer(3, Duration::from_millis(1), NOW);
        at_load.on_failure(3, Duration::ZERO, NOW);
        assert_eq!(at_load.median_us(3, NOW), 10_000.0);
    }
}
