//! Which child gets a read: the routing table, the children's shared words, and [`select`].
//!
//! A [`RouteTable`] is an immutable snapshot: which group a request belongs to, and what is configured of its
//! children. Control swaps it; workers hold it through `arc_swap::Cache`. Whatever changes by itself (a child's health,
//! how far it has applied, what is in flight) is an atomic in a [`Child`] or a [`GroupShared`], which every snapshot
//! points to and which outlives them.
//!
//! Nothing here waits, sends or reads a clock. Who sets what: workers and lanes tell [`GroupTable::observe`] and
//! [`GroupTable::on_probe`] what they saw; lanes say how current a child is ([`Child::set_standing`],
//! [`Child::confirm_applied`]); control says what the operator wants ([`Child::set_admin`], [`Child::set_weight`],
//! [`GroupTable::set_primary`]), who stands in a place ([`GroupTable::occupy`], [`GroupTable::vacate`]) and where names
//! lead ([`Child::set_addresses`]).

mod address;
mod at_load;
mod budget;
mod child;
mod chooser;
pub mod cost;
mod group;
mod health;
pub mod issuer;
mod latency;
pub mod policy;
mod set;
mod table;
#[cfg(test)]
pub(crate) mod testing;

pub use address::Addresses;
pub use budget::RetryBudget;
pub use child::{Admin, Child, Counters, Identity, InFlight, Shown, Standing, Why};
pub use chooser::Chooser;
pub(crate) use group::NOT_ATTACHED;
pub use group::{ChildTimeouts, GroupShared, GroupTable, Outcome, ReadGate};
pub use health::{Health, Step};
pub use policy::{Choice, Explanation, Judged, NoChoice, Policy, select};
pub use set::ChildSet;
pub use table::{HostPattern, ListenerTable, Route, RouteTable};
