//! The cost model of `predictive`: what one more action on a child would cost, in predicted microseconds.
//!
//! Cost is time: the wait behind the work that is predicted to be there already, the action's own predicted service,
//! and the *harm*, what it will do to those that come after it; all of this times how slow the child has proved to be
//! (`terms`). What is predicted comes from what was seen: each action has a class (`label`), each class a mean
//! (`class`), each child a slowness, an error rate and a way of serving (`learn`).
//!
//! Not here: who may be chosen at all, and the choice (`policy`). Nothing here waits or reads a clock, takes a lock or
//! allocates, save the tables of a group when it is made.
//!
//! Where it lives: a `Child` has a `Standing` (what is in flight, and what is known of the child), the group's shared
//! part a `Model` (the classes and what all children have in common). Both outlive a snapshot, so nothing that is
//! charged or learnt is lost by a swap. A read carries its `Dispatch`: what was true when it was sent.
//!
//! Writers race, on purpose. What is in flight is exact (`cell`). What is learnt is an average: a sample that two
//! threads overwrite is one sample less, and no average depends on one.

mod cell;
mod class;
mod label;
mod learn;
mod model;
mod standing;
mod terms;

use std::time::Duration;

pub(super) use cell::Charge;
pub use class::ClassView;
pub use label::Label;
pub use model::Prediction;
pub(super) use model::{Dispatch, Model};
pub use standing::Seen;
pub(super) use standing::{Group, Standing};
pub use terms::Terms;

/// What an operator may set of the model, for a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The number in a request that tells how large its answer will be, as `MaxResults`: its class is by its size.
    pub size_parameter: Option<Box<str>>,
    /// What it costs to leave the front's own location, beside the connection's measured round trip.
    pub spill: Duration,
    /// For how long a child that has just come back counts as dearer, less and less.
    pub slow_start: Duration,
    /// `prequal`: the share of children that count as cold.
    pub prequal_quantile: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            size_parameter: None,
            spill: Duration::from_millis(5),
            slow_start: Duration::from_secs(10),
            // As published.
            prequal_quantile: 0.84,
        }
    }
}

#[cfg(all(test, not(antiphon_loom)))]
mod tests;
