//! Ports on 127.0.0.1 that nobody else uses.
//!
//! They are taken below the range that the kernel gives to outgoing connections and to port 0, so that only another
//! run of these suites can want the same; its walk through the range begins elsewhere. Every port is handed out once
//! in a process, and stays free for a server to be stopped and started again on it.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const FIRST: u64 = 10_500;
/// The kernel's own range begins at 32,768 by default.
const COUNT: u64 = 22_000;

/// A port that is free now and that no later call in this process returns.
///
/// # Panics
/// When none is free.
pub fn free() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        AtomicU64::new(u64::from(std::process::id()).wrapping_mul(2_654_435_761).wrapping_add(u64::from(now)))
    });
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + step % COUNT).expect("below 32,768");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
