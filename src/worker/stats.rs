//! What one worker counts. Written by that worker alone, read by control when somebody asks.
//!
//! Plain relaxed loads and stores: there is one writer, and a reader that sees a count a moment late is right enough.

use std::time::Duration;

use crate::error::Fault;
use crate::mirror::Decision;
use crate::sync::{AtomicU64, Ordering};
use crate::worker::requests::Requests;

/// A count with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one. Only the owning worker may.
    pub fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`. Only the owning worker may.
    pub fn add(&self, n: u64) {
        // One writer: no read-modify-write needed, so no locked instruction on the request's line.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the value: for figures that are kept elsewhere in the worker and shown here.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper edges of the duration buckets, in microseconds; one more bucket takes the rest.
pub const DURATION_EDGES_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

/// Durations by bucket.
#[derive(Debug, Default)]
pub struct Durations {
    /// One a bucket of [`DURATION_EDGES_US`], and one for what is longer.
    pub buckets: [Count; DURATION_EDGES_US.len() + 1],
    /// Sum in microseconds.
    pub sum_us: Count,
}

impl Durations {
    fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = DURATION_EDGES_US.partition_point(|edge| *edge < us);
        self.buckets[bucket].bump();
        self.sum_us.add(us);
    }
}

/// What became of a request, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One child answered, or should have.
    Read = 0,
    /// It went to every child, or should have.
    Change = 1,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Read, Self::Change];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Change => "change",
        }
    }
}

/// What the client of a change was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What a child answered.
    Answered = 0,
    /// That it has its place in the order.
    Accepted = 1,
    /// That it has its place, and is not acknowledged as `ack` wants it.
    Pending = 2,
    /// That nobody can say whether it was carried out.
    Unknown = 3,
    /// That children answered a live change differently.
    Partial = 4,
    /// That nothing was carried out.
    Refused = 5,
}

impl Told {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Answered, Self::Accepted, Self::Pending, Self::Unknown, Self::Partial, Self::Refused];

    /// As metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Accepted => "accepted",
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Partial => "partial",
            Self::Refused => "refused",
        }
    }
}

/// Counts of one group at one worker.
#[derive(Debug, Default)]
pub struct GroupStats {
    /// Answers sent, by kind and by the first digit of the status (index 0 holds what is not 1 to 5).
    pub answers: [[Count; 6]; Kind::ALL.len()],
    /// From the head's arrival to the last octet of the answer, by kind.
    pub durations: [Durations; Kind::ALL.len()],
    /// Reads sent to a further child, or again to the same.
    pub retries: Count,
    /// Answers that had begun and were cut, by the child or by the client.
    pub cut: Count,
    /// Changes, by what their clients were told.
    pub changes: [Count; Told::ALL.len()],
    /// Reads that waited at the gate for a child that had come far enough.
    pub gate_waits: Count,
    /// Of these, refused in the end.
    pub gate_refusals: Count,
}

impl GroupStats {
    /// Counts what a change came to.
    pub fn record_change(&self, decision: &Decision) {
        let told = match decision {
            Decision::Answer { .. } => Told::Answered,
            Decision::Accepted => Told::Accepted,
            Decision::Pending => Told::Pending,
            Decision::Unknown | Decision::Unrecorded => Told::Unknown,
            Decision::Partial => Told::Partial,
            Decision::Refused(_) => Told::Refused,
            Decision::Wait { .. } => return,
        };
        self.changes[told as usize].bump();
    }

    /// Counts one answer.
    pub fn record(&self, kind: Kind, status: u16, took: Duration) {
        let digit = usize::from(status / 100);
        let digit = if digit < 6 { digit } else { 0 };
        self.answers[kind as usize][digit].bump();
        self.durations[kind as usize].record(took);
    }
}

/// Counts of one worker.
#[derive(Debug)]
pub struct WorkerStats {
    /// One a group, in the order of the configuration.
    pub groups: Box<[GroupStats]>,
    /// Requests that we refused or failed, in the order of [`Fault::ALL`].
    faults: [Count; Fault::ALL.len()],
    /// Octets of bodies copied in user space because buffers were scarce.
    pub copied_bytes: Count,
    /// The last ACI requests.
    pub requests: Requests,
}

impl WorkerStats {
    /// All zero, for this many groups.
    #[must_use]
    pub fn new(groups: usize) -> Self {
        Self {
            groups: (0..groups).map(|_| GroupStats::default()).collect(),
            faults: std::array::from_fn(|_| Count::default()),
            copied_bytes: Count::default(),
            requests: Requests::default(),
        }
    }

    /// Counts a request that ended in `fault`.
    pub fn record_fault(&self, fault: Fault) {
        let index = Fault::ALL.iter().position(|one| one.code() == fault.code());
        if let Some(index) = index {
            self.faults[index].bump();
        }
    }

    /// How often each fault was counted: its code and the count, only what is not zero.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Fault::ALL.iter().zip(&self.faults).map(|(fault, count)| (fault.code(), count.value())).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_in_the_bucket_that_ends_at_or_after_it() {
        let stats = GroupStats::default();
        stats.record(Kind::Read, 200, Duration::from_micros(100));
        stats.record(Kind::Read, 200, Duration::from_micros(101));
        stats.record(Kind::Read, 999, Duration::from_secs(3600));
        let durations = &stats.durations[Kind::Read as usize];
        assert_eq!(durations.buckets[0].value(), 1);
        assert_eq!(durations.buckets[1].value(), 1);
        assert_eq!(durations.buckets[DURATION_EDGES_US.len()].value(), 1);
        assert_eq!(stats.answers[Kind::Read as usize][2].value(), 2);
        assert_eq!(stats.answers[Kind::Read as usize][0].value(), 1);
    }

    #[test]
    fn faults_are_counted_by_code() {
        let stats = WorkerStats::new(1);
        stats.record_fault(Fault::ChildFraming("one"));
        stats.record_fault(Fault::ChildFraming("two"));
        assert_eq!(stats.faults().collect::<Vec<_>>(), [("child_framing", 2)]);
    }
}
