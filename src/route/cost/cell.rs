//! What is in flight on one child, in words that all workers add to and take from.
//!
//! A word is a count in its upper 20 bits over a sum of microseconds in its lower 44: one addition changes both, and no
//! reader sees one without the other. There is a word for all of it and one for each bucket of remaining work; a reader
//! may see the first a moment before the second. Whoever charges keeps what it charged ([`Charge`]) and takes away
//! exactly that. All of it is integers, so a child on which nothing is in flight has words that are 0.
//!
//! Orderings: all relaxed. The words publish nothing; they are sums, and additions of one word are never lost.

use crate::sync::model::{AtomicU64, Ordering};

/// Buckets of remaining work: up to 256 µs, 1, 4, 16, 64, 256 ms, and above.
pub(in crate::route) const BUCKETS: usize = 7;
/// Where a word's count begins.
const COUNT_SHIFT: u32 = 44;
const SUM_MASK: u64 = (1 << COUNT_SHIFT) - 1;
/// A charge is at most this, in microseconds (four minutes): then as many of the dearest as one address has ports fit
/// a sum. Beyond that words read wrong for as long as it lasts, and still come back to 0.
pub(in crate::route) const CHARGE_US_MAX: u32 = 1 << 28;
const _: () = assert!((CHARGE_US_MAX as u64) << 16 == 1 << COUNT_SHIFT);

/// The words of one child.
#[derive(Debug)]
pub(in crate::route) struct Load {
    total: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What one action was charged with. Neither `Clone` nor `Copy`: it is taken away once.
#[must_use = "what is charged must be taken away again"]
#[derive(Debug)]
pub(in crate::route) struct Charge {
    us: u32,
    /// [`BUCKETS`]: counted, but of unknown work.
    bucket: u8,
}

/// What is in flight on a child, as of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::route) struct Backlog {
    /// Actions.
    pub(in crate::route) count: u32,
    /// Those whose remaining work is known, by bucket.
    pub(in crate::route) counts: [u32; BUCKETS],
    /// Their work, in microseconds.
    pub(in crate::route) sums_us: [u64; BUCKETS],
}

// === impl Load ===

impl Load {
    pub(in crate::route) fn new() -> Self {
        Self { total: AtomicU64::new(0), buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// One more action, of this much work (`None` if nobody has predicted it); and how many there were before.
    pub(in crate::route) fn charge(&self, us: Option<f64>) -> (Charge, u32) {
        let charge = match us {
            // A cast from a float saturates, and takes what is no number for 0.
            Some(us) => {
                let us = (us as u32).min(CHARGE_US_MAX);
                Charge { us, bucket: bucket_of(us) as u8 }
            }
            None => Charge { us: 0, bucket: BUCKETS as u8 },
        };
        let before = self.total.fetch_add(charge.word(), Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(usize::from(charge.bucket)) {
            bucket.fetch_add(charge.word(), Ordering::Relaxed);
        }
        (charge, count_of(before))
    }

    /// Takes away what was charged.
    #[expect(clippy::needless_pass_by_value, reason = "it is spent")]
    pub(in crate::route) fn discharge(&self, charge: Charge) {
        if let Some(bucket) = self.buckets.get(usize::from(charge.bucket)) {
            bucket.fetch_sub(charge.word(), Ordering::Relaxed);
        }
        let before = self.total.fetch_sub(charge.word(), Ordering::Relaxed);
        debug_assert!(before >= charge.word(), "an action ended that never began");
    }

    /// Actions in flight.
    #[inline]
    pub(in crate::route) fn count(&self) -> u32 {
        count_of(self.total.load(Ordering::Relaxed))
    }

    /// All of it.
    pub(in crate::route) fn backlog(&self) -> Backlog {
        let words: [u64; BUCKETS] = std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed));
        Backlog { count: self.count(), counts: words.map(count_of), sums_us: words.map(|word| word & SUM_MASK) }
    }

    /// Is every word 0?
    #[cfg(test)]
    pub(in crate::route) fn is_idle(&self) -> bool {
        std::iter::once(&self.total).chain(&self.buckets).all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

impl Charge {
    const fn word(&self) -> u64 {
        1 << COUNT_SHIFT | self.us as u64
    }
}

const fn count_of(word: u64) -> u32 {
    (word >> COUNT_SHIFT) as u32
}

/// The bucket of this much work: each is four times the one before.
pub(in crate::route) const fn bucket_of(us: u32) -> usize {
    let bits = u32::BITS - us.leading_zeros();
    let bucket = bits.saturating_sub(7) as usize / 2;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

#[cfg(all(test, not(antiphon_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_grow_by_four() {
        let ends: Vec<_> = (1..300_000).filter(|us| bucket_of(us - 1) != bucket_of(*us)).collect();
        assert_eq!(ends, [256, 1024, 4096, 16384, 65536, 262_144]);
        assert_eq!((bucket_of(0), bucket_of(u32::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_million_actions_fit_and_come_back_to_nothing() {
        let load = Load::new();
        let held: Vec<_> = (0..(1 << 20) - 1).map(|_| load.charge(Some(1e6)).0).collect();
        assert_eq!(load.count(), (1 << 20) - 1);
        let backlog = load.backlog();
        assert_eq!(backlog.sums_us[6], 1_000_000 * ((1 << 20) - 1));
        held.into_iter().for_each(|charge| load.discharge(charge));
        assert!(load.is_idle());
    }

    #[test]
    fn what_does_not_fit_still_comes_back_to_nothing() {
        let load = Load::new();
        let held: Vec<_> = (0..1 << 17).map(|_| load.charge(Some(f64::INFINITY)).0).collect();
        held.into_iter().for_each(|charge| load.discharge(charge));
        assert!(load.is_idle());
        let odd = [f64::NAN, -1.0, 0.0, 1e300].map(|us| load.charge(Some(us)).0);
        odd.into_iter().for_each(|charge| load.discharge(charge));
        assert!(load.is_idle());
    }

    proptest! {
        #[test]
        fn words_are_the_sums_of_what_is_held(steps in prop::collection::vec((any::<bool>(), 0_u32..400_000), 1..200)) {
            let load = Load::new();
            let mut held = Vec::new();
            for (begins, us) in steps {
                if begins || held.is_empty() {
                    held.push((us, load.charge(Some(f64::from(us))).0));
                } else {
                    let (_, charge) = held.swap_remove(us as usize % held.len());
                    load.discharge(charge);
                }
                let backlog = load.backlog();
                prop_assert_eq!(backlog.count as usize, held.len());
                for bucket in 0..BUCKETS {
                    let here: Vec<_> = held.iter().filter(|(us, _)| bucket_of(*us) == bucket).collect();
                    prop_assert_eq!(backlog.counts[bucket] as usize, here.len());
                    prop_assert_eq!(backlog.sums_us[bucket], here.iter().map(|(us, _)| u64::from(*us)).sum::<u64>());
                }
            }
            held.into_iter().for_each(|(_, charge)| load.discharge(charge));
            prop_assert!(load.is_idle());
        }
    }
}

#[cfg(all(test, antiphon_loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn whatever_meets_whatever_idle_is_zero() {
        loom::model(|| {
            let load = loom::sync::Arc::new(Load::new());
            let other = load.clone();
            let thread = loom::thread::spawn(move || {
                let charge = other.charge(Some(300.0)).0;
                assert!(other.count() >= 1);
                other.discharge(charge);
            });
            let first = load.charge(Some(100.0)).0;
            let second = load.charge(None).0;
            load.discharge(first);
            assert!((1..=2).contains(&load.count()));
            load.discharge(second);
            thread.join().unwrap();
            assert!(load.is_idle());
        });
    }

    #[test]
    fn a_reader_never_sees_a_count_below_what_is_held() {
        loom::model(|| {
            let load = loom::sync::Arc::new(Load::new());
            let held = load.charge(Some(5_000.0)).0;
            let other = load.clone();
            let thread = loom::thread::spawn(move || other.discharge(other.charge(Some(5_000.0)).0));
            let backlog = load.backlog();
            assert!(backlog.count >= 1 && backlog.counts[3] >= 1 && backlog.sums_us[3] >= 5_000);
            thread.join().unwrap();
            load.discharge(held);
            assert!(load.is_idle());
        });
    }
}
