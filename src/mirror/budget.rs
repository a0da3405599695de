//! Memory for bodies that are held whole: one budget for the process, charged while a body arrives and given back when
//! the last owner of the [`Charge`] lets go.
//!
//! Not an allocator and not exact: it counts octets of heads and bodies, not what holds them. A change owns its charge,
//! and the ring owns the change; so what the ring still holds is counted, and an entry that leaves it while a lane
//! sends it is counted until that lane is done.

use crate::limits::{ACTION_BYTES_IN_FLIGHT_MAX, RING_BYTES_MAX};
use crate::sync::{Arc, AtomicUsize, Ordering};

/// How many octets may be held at once.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    /// At most `bytes_max`.
    bytes: AtomicUsize,
}

impl Budget {
    /// A budget of `bytes_max` octets.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, bytes: AtomicUsize::new(0) })
    }

    /// Sets `bytes` octets aside; `None` if that many are not left.
    ///
    /// ```
    /// use antiphon::mirror::Budget;
    /// let budget = Budget::new(100);
    /// let mut charge = budget.charge(60).unwrap();
    /// assert!(budget.charge(41).is_none());
    /// assert!(charge.grow(40));
    /// drop(charge);
    /// assert_eq!(budget.bytes(), 0);
    /// ```
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.take(bytes).then(|| Charge { budget: Arc::clone(self), bytes })
    }

    /// The account of something that is bounded elsewhere.
    pub(super) fn none() -> Charge {
        Charge { budget: Self::new(0), bytes: 0 }
    }

    /// Octets set aside now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Relaxed: for display.
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        // Relaxed: a counter on its own; it publishes nothing.
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// Octets set aside; dropping it gives them back.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Sets `bytes` more aside; false, and nothing changed, if that many are not left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.budget.take(bytes);
        if grown {
            self.bytes += bytes;
        }
        grown
    }

    /// Octets set aside by this charge.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Relaxed: see `take`.
        let held = self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        assert!(held >= self.bytes, "more given back than was taken");
    }
}

// What rings keep for children that are away must leave room for changes that arrive.
const _: () = assert!(ACTION_BYTES_IN_FLIGHT_MAX >= 2 * RING_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Budget::new(10);
        let mut a = budget.charge(4).expect("room");
        let b = budget.charge(6).expect("room");
        assert!(budget.charge(1).is_none());
        assert!(!a.grow(1));
        assert_eq!((a.bytes(), budget.bytes()), (4, 10));
        drop(b);
        assert!(a.grow(6));
        assert!(budget.charge(usize::MAX).is_none(), "no overflow");
        drop(a);
        assert_eq!(budget.bytes(), 0);
    }
}
