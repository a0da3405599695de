//! The one switch between the standard library's atomics and loom's.
//!
//! Code whose atomics meet another thread's takes them from here, so that `--cfg antiphon_loom` can put a model
//! checker under it. (A plain `--cfg loom` would change tokio too.)

pub use crossbeam::utils::CachePadded;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, OnceLock};
