//! Named places at which a test ends the process as `kill -9` does: what is left then must be enough to go on from.
//!
//! Not for failures that are handled, and nothing in a release: without debug assertions a point is an empty function.
//! `ANTIPHON_CRASH=NAME:COUNT` in the environment kills the process when it passes that point for the COUNTth time.
//! `tests/durable.rs` goes through [`POINTS`].

/// All of them, in the order in which a change meets them.
pub const POINTS: [&str; 14] = [
    "start.recovered",
    "start.marked",
    "start.opened",
    "journal.append",
    "journal.written",
    "journal.marks",
    "journal.synced",
    "segment.full",
    "segment.begun",
    "change.published",
    "slot.write",
    "change.sent",
    "change.answered",
    "client.answer",
];

/// Passes a point of [`POINTS`].
#[inline]
pub fn point(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::pass(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod armed {
    use super::POINTS;
    use crate::sync::{AtomicU64, OnceLock, Ordering};

    /// The point that kills, and how often it may still be passed.
    struct Armed {
        name: String,
        left: AtomicU64,
    }

    pub(super) fn pass(name: &'static str) {
        debug_assert!(POINTS.contains(&name), "`{name}` is on the list");
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        let Some(armed) = ARMED.get_or_init(armed) else { return };
        // Relaxed: a count, which orders nothing.
        if armed.name == name && armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // It comes to the process at once, to this thread perhaps a moment later: it must do nothing more.
            loop {
                std::thread::park();
            }
        }
    }

    /// What the environment asks for; nothing where it is not as it should be.
    fn armed() -> Option<Armed> {
        let asked = std::env::var("ANTIPHON_CRASH").ok()?;
        let (name, count) = asked.split_once(':')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        Some(Armed { name: name.to_owned(), left: AtomicU64::new(count) })
    }
}
