//! Health: whether a child answers, as a pure state machine, and when to ask it next.
//!
//! Not whether its data is current: that is the lane's word (`route::Standing`); not what an operator decided
//! (`route::Admin`). No clock and no socket: the lane sends what [`Request`] says, [`judge`](Expect::judge)s the answer
//! and tells [`step`].
//!
//! The rules, which are DAH's with the words of other proxies:
//!
//! - A child goes *down* when it does not answer: after `fall` (1) failed connects or bad probes in a row.
//! - A read that was sent and never answered says less (the request may be the cause): the child becomes *suspect* and
//!   is asked at once. That probe decides.
//! - Only a good probe brings a child *up* from down. Reads that were on their way when it fell do not.
//! - A child that answers reads is not asked. One that had none for `interval_up` is.
//! - A child that is down is asked every `interval_down`, doubling up to `backoff_max`. Times are spread by `jitter`.
//! - A child that falls again within [`TRIAL`] of having come back needs twice the good probes it needed last time, at
//!   most [`GOOD_PROBES_MAX`], or `rise` if that is more.

mod expect;
mod jitter;
mod machine;
mod request;

use std::time::Duration;

pub use expect::{Expect, ExpectError, StatusPattern};
pub use jitter::mix;
pub use machine::{Action, Event, Failure, GOOD_PROBES_MAX, Kind, State, TRIAL, next_probe, step};
pub use request::{Request, RequestError};

/// How the children of a group are probed and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is asked.
    pub request: Request,
    /// What must be answered.
    pub expect: Expect,
    /// Failed connects or bad probes in a row that bring a child down. 1 to 15.
    pub fall: u8,
    /// Good probes in a row that bring it up. 1 to 15.
    pub rise: u8,
    /// Between probes of a child that is up and answered nothing meanwhile.
    pub interval_up: Duration,
    /// Until the first probe of a child that is down; doubles with each bad one.
    pub interval_down: Duration,
    /// A probe that is not answered by then is bad. Less than `interval_up`.
    pub timeout: Duration,
    /// What `interval_down` grows to, at most.
    pub backoff_max: Duration,
    /// Each interval is made longer or shorter by up to this many per cent, so that fronts and children do not fall
    /// into step. 0 to 50.
    pub jitter_percent: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request: Request::Tcp,
            expect: Expect::default(),
            fall: 1,
            rise: 1,
            interval_up: Duration::from_secs(60),
            interval_down: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            backoff_max: Duration::from_secs(10),
            jitter_percent: 10,
        }
    }
}
