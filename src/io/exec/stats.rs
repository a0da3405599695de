//! What a worker counts about its connections and its driver, for `/metrics` and `/status`.
//!
//! Counted by one thread, read by any: relaxed loads and stores, no locked instruction. The numbers of one moment
//! need not fit each other.

use crate::sync::{AtomicU64, Ordering};

/// The counters of one executor.
#[derive(Debug, Default)]
pub struct Stats {
    /// Turns of the loop: calls of the driver.
    pub turns: Counter,
    /// Completions dispatched.
    pub completions: Counter,
    /// Completions whose operation was gone: a driver's mistake, survived.
    pub late_completions: Counter,
    /// Receives that ended because their group of buffers was empty.
    pub starved: Counter,
    /// Receives stopped because too much was queued on their connection.
    pub paused: Counter,
    /// Chunks copied out of scarce buffers.
    pub spills: Counter,
    /// Chunks that should have been copied, when the spill budget was used up.
    pub spills_refused: Counter,
    /// Connections accepted.
    pub accepted: Counter,
    /// Accepts that failed (no descriptors or memory, or the client gave up).
    pub accept_failures: Counter,
    /// Connections accepted and closed at once: too many, or draining.
    pub accept_refused: Counter,
    /// Connects that succeeded.
    pub connects: Counter,
    /// Connects that failed, timed out or were given up.
    pub connect_failures: Counter,
    /// Idle clients closed at their deadline.
    pub idle_timeouts: Counter,
    /// Connections now, clients and children, until the last operation on each has completed.
    pub connections: Counter,
    /// Clients among them.
    pub clients: Counter,
    /// Tasks now.
    pub tasks: Counter,
}

/// A number that one thread changes and any may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

// === impl Counter ===

impl Counter {
    /// The number now.
    #[must_use]
    pub fn value(&self) -> u64 {
        // Relaxed: a number by itself, nothing is published with it.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, more: u64) {
        self.set(self.value().wrapping_add(more));
    }

    pub(super) fn set(&self, number: u64) {
        // Relaxed: as above. There is one writer, so a load and a store lose nothing.
        self.0.store(number, Ordering::Relaxed);
    }
}
