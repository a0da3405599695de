//! Where atomics and what is shared by threads come from.
//!
//! Code whose atomics meet another thread's takes them from here and not from the standard library, so that a model
//! checker can be put under all of it in one place. What loom runs takes them from `model`: its atomics live only
//! inside a model, so they cannot stand under everything at once.

pub use crossbeam::utils::CachePadded;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, OnceLock};

/// The atomics of what is model-checked: loom's in a test build with `--cfg antiphon_loom`, else the standard ones.
/// (`--cfg loom` itself changes tokio.) `RUSTFLAGS="--cfg antiphon_loom" cargo test --release --lib loom_` runs the
/// models, and only them.
pub(crate) mod model {
    #[cfg(all(test, antiphon_loom))]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    #[cfg(not(all(test, antiphon_loom)))]
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
