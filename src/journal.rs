//! The journal: a group's changes and what became of them, in files that outlive us.
//!
//! It keeps what [`mirror::durable`](crate::mirror::durable) asks for. [`record`] is the format, octet by octet, and
//! [`state`] what records amount to; both are pure. [`segment`] touches the disk, behind a trait that tests can fault.

pub mod record;
pub mod segment;
pub mod state;
