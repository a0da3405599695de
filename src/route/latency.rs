//! What a child's answers take: a peak-sensitive moving average, for `peak_ewma`.
//!
//! Rises at once, falls slowly: a slow answer replaces the average, a fast one pulls at it with a weight that grows
//! with the time since the last ([Finagle's peak EWMA]). So a child that turns slow loses traffic with its first slow
//! answer, and is tried again as the memory of it fades.
//!
//! Racing workers may overwrite each other's sample: a lost one costs nothing but itself.
//!
//! [Finagle's peak EWMA]: https://twitter.github.io/finagle/guide/Clients.html#power-of-two-choices-p2c-peak-ewma

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::time::Time;

/// How fast the past fades: after this long it counts 1/e.
const MEMORY: Duration = Duration::from_secs(10);
/// An average never falls below this, so that what is in flight still tells children apart.
const FLOOR_US: f64 = 10.0;
/// A failure counts as this many times the average, up to [`FAILURE_US_MAX`]: a child that fails fast must not look
/// fast, and one error among many answers must not send all traffic away for a minute.
const FAILURE_FACTOR: f64 = 10.0;
/// What a failure counts as at most, and the first sample if it is one.
const FAILURE_US_MAX: f64 = 1_000_000.0;
/// What a child without any answer yet counts as once something is in flight on it: it is tried, with one at a time.
const UNKNOWN_US: f64 = 1_000_000.0;

/// A moving average of one child's latency. Shared by all workers.
#[derive(Debug)]
pub(super) struct Latency {
    /// Microseconds, the bits of an `f64`; 0 before the first sample.
    average: AtomicU64,
    /// Of the last sample, in nanoseconds.
    stamp: AtomicU64,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self { average: AtomicU64::new(0), stamp: AtomicU64::new(0) }
    }

    /// An answer took this long.
    pub(super) fn on_answer(&self, latency: Duration, now: Time) {
        self.sample(latency.as_secs_f64() * 1e6, now);
    }

    /// There was no answer, or one that says the child failed.
    pub(super) fn on_failure(&self, latency: Duration, now: Time) {
        let average = self.average_us(now);
        let counts_as = if average > 0.0 { (average * FAILURE_FACTOR).min(FAILURE_US_MAX) } else { FAILURE_US_MAX };
        self.sample((latency.as_secs_f64() * 1e6).max(counts_as), now);
    }

    /// The average at `now`, in microseconds; 0 before the first sample.
    pub(super) fn average_us(&self, now: Time) -> f64 {
        let average = f64::from_bits(self.average.load(Ordering::Relaxed));
        if average == 0.0 {
            return 0.0;
        }
        let age = now.since(Time::from_nanos(self.stamp.load(Ordering::Relaxed)));
        (average * fade(age)).max(FLOOR_US)
    }

    /// What one more request on the child would cost, with so many in flight. Only to be compared.
    pub(super) fn cost(&self, in_flight: u32, now: Time) -> f64 {
        let average = self.average_us(now);
        if average > 0.0 {
            average * f64::from(in_flight.saturating_add(1))
        } else if in_flight == 0 {
            0.0
        } else {
            UNKNOWN_US * f64::from(in_flight)
        }
    }

    fn sample(&self, sample_us: f64, now: Time) {
        let sample_us = sample_us.max(FLOOR_US);
        let last = Time::from_nanos(self.stamp.swap(now.as_nanos(), Ordering::Relaxed));
        let average = f64::from_bits(self.average.load(Ordering::Relaxed));
        let next = if sample_us >= average {
            sample_us
        } else {
            let keep = fade(now.since(last));
            average * keep + sample_us * (1.0 - keep)
        };
        self.average.store(next.to_bits(), Ordering::Relaxed);
    }
}

/// What is left of a memory after `age`.
fn fade(age: Duration) -> f64 {
    (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn it_rises_at_once_and_falls_slowly() {
        let latency = Latency::new();
        let start = Time::ZERO + ms(1);
        latency.on_answer(ms(1), start);
        latency.on_answer(ms(100), start + ms(1));
        assert_eq!(latency.average_us(start + ms(1)), 100_000.0);
        latency.on_answer(ms(1), start + ms(2));
        assert!(latency.average_us(start + ms(2)) > 99_000.0);
        for k in 0..60_000 {
            latency.on_answer(ms(1), start + ms(k));
        }
        let calm = latency.average_us(start + ms(60_000));
        assert!((1_000.0..2_000.0).contains(&calm), "{calm}");
    }

    #[test]
    fn a_failing_child_is_not_a_fast_one() {
        let (fast, failing) = (Latency::new(), Latency::new());
        fast.on_answer(ms(20), Time::ZERO);
        failing.on_failure(ms(0), Time::ZERO);
        assert!(failing.cost(0, Time::ZERO) > fast.cost(10, Time::ZERO));
        // One error among answers is dear, many in a row are as dear as the first of all.
        let before = fast.average_us(Time::ZERO);
        fast.on_failure(ms(0), Time::ZERO);
        assert_eq!(fast.average_us(Time::ZERO), 10.0 * before);
        fast.on_failure(ms(0), Time::ZERO);
        assert_eq!(fast.average_us(Time::ZERO), FAILURE_US_MAX);
    }

    #[test]
    fn a_new_child_is_tried_with_one_request_at_a_time() {
        let (known, new) = (Latency::new(), Latency::new());
        known.on_answer(ms(5), Time::ZERO);
        assert!(new.cost(0, Time::ZERO) < known.cost(0, Time::ZERO));
        assert!(new.cost(1, Time::ZERO) > known.cost(100, Time::ZERO));
    }
}
