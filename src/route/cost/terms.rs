//! The formulas: numbers in, microseconds out.
//!
//! A child is taken for a server with `slots` places and a line before them (*queue mode*), or, where that was seen to
//! be wrong, for one that works on all at once (*share mode*).

use super::cell::{BUCKETS, Backlog};

/// How much of its own service an action does to those behind it, when the child is exactly full. Below 1 short
/// actions wait behind long ones; above 4 nothing changes much any more.
pub(super) const HARM: f64 = 2.0;
/// Where the harm's curve goes on as a line: a power would send a burst away from all children alike.
const HARM_LINEAR_FROM: f64 = 2.0;
/// What an error rate of 1 costs, in microseconds: a second.
pub(super) const ERROR_US: f64 = 1e6;

/// What a cost is multiplied by and what is added to it: all that does not depend on what is in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::route) struct Factors {
    /// 1 is the group's median.
    pub(in crate::route) slowness: f64,
    /// 1 for a weight of 100.
    pub(in crate::route) weight: f64,
    /// 1 but for a while after its return.
    pub(in crate::route) start: f64,
    /// Errors above the group's median, in microseconds.
    pub(in crate::route) errors_us: f64,
    /// For another location, in microseconds.
    pub(in crate::route) spill_us: f64,
    /// The round trip, in microseconds.
    pub(in crate::route) rtt_us: f64,
}

impl Factors {
    /// The cost of what takes this long and does this much harm.
    #[inline]
    pub(in crate::route) fn cost_us(&self, latency_us: f64, harm_us: f64) -> f64 {
        let factors = self.slowness * self.weight * self.start;
        factors * (latency_us + harm_us) + self.rtt_us + self.errors_us + self.spill_us
    }
}

/// How a child serves.
#[derive(Clone, Copy, Debug)]
pub(in crate::route) struct Way {
    /// At least 1.
    pub(in crate::route) slots: u32,
    /// 1 / `slots`: a division a child would be half of a look.
    pub(in crate::route) by_slots: f64,
    /// Works on all at once.
    pub(in crate::route) shares: bool,
}

impl Way {
    pub(in crate::route) fn new(slots: u32, shares: bool) -> Self {
        Self { slots, by_slots: 1.0 / f64::from(slots), shares }
    }
}

/// What a choice would cost on one child, and of what that is made. Microseconds, unless a name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// In flight there now.
    pub in_flight: u32,
    /// Actions it is taken to serve at once.
    pub slots: u32,
    /// It works on all at once, so that nobody waits and all are slowed.
    pub shares: bool,
    /// Until a slot is free, and the service; by itself, not yet slowed.
    pub latency_us: f64,
    /// The service alone.
    pub service_us: f64,
    /// What it does to those that come after it.
    pub harm_us: f64,
    /// Factor: how slow the child is, 1 is the group's median.
    pub slowness: f64,
    /// Factor: 100 by weight.
    pub weight_factor: f64,
    /// Factor: above 1 for a while after its return.
    pub start_factor: f64,
    /// For recent errors.
    pub errors_us: f64,
    /// For being in another location.
    pub spill_us: f64,
    /// For the way there.
    pub rtt_us: f64,
}

impl Terms {
    /// What an action of `service_us` costs.
    pub(in crate::route) fn of(backlog: &Backlog, way: Way, factors: &Factors, service_us: f64) -> Self {
        Self {
            in_flight: backlog.count,
            slots: way.slots,
            shares: way.shares,
            latency_us: latency_us(backlog, way, service_us),
            service_us,
            harm_us: harm_us(backlog.count, way, service_us),
            slowness: factors.slowness,
            weight_factor: factors.weight,
            start_factor: factors.start,
            errors_us: factors.errors_us,
            spill_us: factors.spill_us,
            rtt_us: factors.rtt_us,
        }
    }

    /// The cost. Children are compared by it.
    #[must_use]
    pub fn cost_us(&self) -> f64 {
        let factors = Factors {
            slowness: self.slowness,
            weight: self.weight_factor,
            start: self.start_factor,
            errors_us: self.errors_us,
            spill_us: self.spill_us,
            rtt_us: self.rtt_us,
        };
        factors.cost_us(self.latency_us, self.harm_us)
    }

    /// How long the answer is expected to take.
    #[must_use]
    pub fn predicted_us(&self) -> f64 {
        self.slowness * self.latency_us
    }
}

/// How long an action of `service_us` takes on a child that is as fast as the median.
pub(super) fn latency_us(backlog: &Backlog, way: Way, service_us: f64) -> f64 {
    if !way.shares {
        return wait_us(backlog, way.slots) + service_us;
    }
    // Each of the others takes from it as long as both are there.
    let others = |b: usize| (backlog.sums_us[b] as f64).min(f64::from(backlog.counts[b]) * service_us);
    let all: f64 = (0..BUCKETS).map(others).sum();
    service_us.max((service_us + all) / f64::from(way.slots))
}

/// When a slot gets free, if all that is there drains in parallel: the level up to which `slots` servers have worked off
/// each remaining time. Exact for equal times in a bucket, else above it.
pub(super) fn wait_us(backlog: &Backlog, slots: u32) -> f64 {
    if backlog.count < slots {
        return 0.0;
    }
    let (mut below_us, mut above) = (0_u64, backlog.count);
    for (b, count) in backlog.counts.iter().enumerate() {
        below_us += backlog.sums_us[b];
        above = above.saturating_sub(*count);
        if above >= slots {
            continue;
        }
        let level = below_us as f64 / f64::from(slots - above);
        let next = (b + 1..BUCKETS).find(|next| backlog.counts[*next] > 0);
        let fits = |next: usize| level <= backlog.sums_us[next] as f64 / f64::from(backlog.counts[next]);
        if next.is_none_or(fits) {
            return level;
        }
    }
    below_us as f64 / f64::from(slots)
}

/// What an action does to those that come after it.
#[inline]
pub(super) fn harm_us(in_flight: u32, way: Way, service_us: f64) -> f64 {
    HARM * service_us * harm(f64::from(in_flight.saturating_add(1)) * way.by_slots)
}

/// The harm's curve over how full the child will be. It never gets flat: the fuller of two children is always the dearer.
#[inline]
fn harm(full: f64) -> f64 {
    if full <= HARM_LINEAR_FROM {
        full * full.sqrt()
    } else {
        HARM_LINEAR_FROM * HARM_LINEAR_FROM.sqrt() + (full - HARM_LINEAR_FROM)
    }
}

#[cfg(all(test, not(antiphon_loom)))]
mod tests;
