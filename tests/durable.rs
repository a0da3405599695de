//! What was acknowledged is never lost, on the real binary and on both drivers: antiphon is killed, at named places and
//! at random instants, while clients write; its children, which outlive it, have kept every request they were sent.
//!
//! What must hold after every start is in `durable/checks.rs`. Power cuts are `perf/powercut`'s: they need a file system
//! of their own. `ANTIPHON_KILLS` is the number of random kills (30), `ANTIPHON_SEED` seeds them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

#[path = "durable/checks.rs"]
mod checks;
#[path = "durable/kills.rs"]
mod kills;
#[path = "exchange/peer.rs"]
mod peer;
#[path = "durable/points.rs"]
mod points;
#[path = "durable/recorder.rs"]
mod recorder;
#[path = "durable/world.rs"]
mod world;
#[path = "durable/writers.rs"]
mod writers;
