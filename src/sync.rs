//! Where atomics and what is shared by threads come from.
//!
//! Code whose atomics meet another thread's takes them from here and not from the standard library, so that a model
//! checker can be put under all of it in one place. None is yet.

pub use crossbeam::utils::CachePadded;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, OnceLock};
