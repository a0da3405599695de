//! Where a child is: the addresses its name leads to now, and which of them to connect to.
//!
//! Not resolving: control does that at start, on a period, and when [`Addresses::take_failed`] says that connecting
//! did not work. A child's identity is its name, never an address.

use std::net::SocketAddr;

use arc_swap::ArcSwap;

use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};

/// The addresses of one child. Shared by all threads.
#[derive(Debug)]
pub struct Addresses {
    /// In the resolver's order; empty while the name leads nowhere.
    list: ArcSwap<Vec<SocketAddr>>,
    /// The one in use, modulo the list's length.
    turn: AtomicUsize,
    /// A connect failed since control last looked.
    failed: AtomicBool,
}

impl Addresses {
    /// `list` may be empty.
    #[must_use]
    pub fn new(list: Vec<SocketAddr>) -> Self {
        Self { list: ArcSwap::from_pointee(list), turn: AtomicUsize::new(0), failed: AtomicBool::new(false) }
    }

    /// The address to connect to; `None` while the name leads nowhere.
    #[must_use]
    pub fn current(&self) -> Option<SocketAddr> {
        let list = self.list.load();
        let turn = self.turn.load(Ordering::Relaxed).checked_rem(list.len())?;
        list.get(turn).copied()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<SocketAddr>> {
        self.list.load_full()
    }

    /// Replaces the list; true if it differs from the one before. The address in use stays in use if it is still
    /// there.
    pub fn set(&self, list: Vec<SocketAddr>) -> bool {
        if **self.list.load() == list {
            return false;
        }
        let kept = self.current().and_then(|used| list.iter().position(|address| *address == used));
        self.list.store(Arc::new(list));
        // Between the two stores a reader may see the new list with the old turn: any of them is an address of the
        // child.
        self.turn.store(kept.unwrap_or(0), Ordering::Relaxed);
        true
    }

    /// Connecting to `address` did not work: the next one is used from now on. Several failures of the same address
    /// move on once.
    pub fn on_connect_failed(&self, address: SocketAddr) {
        let turn = self.turn.load(Ordering::Relaxed);
        let list = self.list.load();
        let used = turn.checked_rem(list.len()).and_then(|turn| list.get(turn));
        if used == Some(&address) {
            // Lost races have moved on already.
            let next = (turn + 1) % list.len();
            _ = self.turn.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Has a connect failed since this was last called? Then the name is worth resolving again.
    pub fn take_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) && self.failed.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    #[test]
    fn a_failed_address_gives_way_once() {
        let addresses = Addresses::new(vec![address(1), address(2), address(3)]);
        assert_eq!(addresses.current(), Some(address(1)));
        addresses.on_connect_failed(address(1));
        addresses.on_connect_failed(address(1)); // another connection that was on its way
        assert_eq!(addresses.current(), Some(address(2)));
        assert!(addresses.take_failed() && !addresses.take_failed());
        addresses.on_connect_failed(address(2));
        addresses.on_connect_failed(address(3));
        assert_eq!(addresses.current(), Some(address(1)));
    }

    #[test]
    fn a_name_may_lead_elsewhere_or_nowhere() {
        let addresses = Addresses::new(Vec::new());
        assert_eq!(addresses.current(), None);
        addresses.on_connect_failed(address(9));
        assert!(addresses.set(vec![address(1), address(2)]));
        addresses.on_connect_failed(address(1));
        assert!(addresses.set(vec![address(3), address(4), address(2)]));
        assert_eq!(addresses.current(), Some(address(2)), "what works stays in use");
        assert!(!addresses.set(vec![address(3), address(4), address(2)]));
        assert!(addresses.set(vec![address(5)]));
        assert_eq!(addresses.current(), Some(address(5)));
        assert!(addresses.set(Vec::new()));
        assert_eq!(addresses.current(), None);
    }
}
