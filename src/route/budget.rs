//! The retry budget of a group: retries are a share of the traffic, so that an outage is not made worse by them.
//!
//! Tokens, no clock: each request deposits [`RETRY_PERCENT`], each retry takes 100. What is saved up is bounded; a
//! group begins with all of it, so that the reads in flight on a child that dies can all go to another.

use crate::limits::{RETRY_PERCENT, RETRY_SAVED_MAX};
use crate::sync::{AtomicU64, Ordering};

/// What one retry costs.
const RETRY: u64 = 100;
const FULL: u64 = RETRY_SAVED_MAX as u64 * RETRY;

/// How many retries a group may still make. Shared by all workers.
#[derive(Debug)]
pub struct RetryBudget {
    /// Hundredths of a retry.
    saved: AtomicU64,
}

impl RetryBudget {
    /// A full budget.
    #[must_use]
    pub fn new() -> Self {
        Self { saved: AtomicU64::new(FULL) }
    }

    /// A request was sent. When the budget is full this is one load.
    pub fn deposit(&self) {
        let saved = self.saved.load(Ordering::Relaxed);
        if saved < FULL {
            // Racing workers may pass the bound by a deposit each: no matter.
            self.saved.fetch_add(RETRY_PERCENT.into(), Ordering::Relaxed);
        }
    }

    /// Takes the right to one retry; false if there is none.
    #[must_use]
    pub fn try_withdraw(&self) -> bool {
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(RETRY)).is_ok()
    }

    /// Retries that could be made now.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.saved.load(Ordering::Relaxed) / RETRY
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_traffic() {
        let budget = RetryBudget::new();
        let mut retries = 0_usize;
        while budget.try_withdraw() {
            retries += 1;
        }
        assert_eq!(retries, RETRY_SAVED_MAX as usize);
        // Everything fails: of a thousand requests, one in five is tried again.
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.try_withdraw());
        }
        assert_eq!(retries, 10 * u32::from(RETRY_PERCENT));
        // A quiet time does not save up more than the bound.
        for _ in 0..1_000_000 {
            budget.deposit();
        }
        assert_eq!(budget.left(), u64::from(RETRY_SAVED_MAX));
    }
}
