//! Changes that go wrong, through the real binary, on both drivers: refused, rejected by one, slow, lost on their way
//! back, too large, and under way when antiphon itself ends. Each story is named after the fault that it would show.
//!
//! That changes reach all children in one order, whatever their spelling, and how a child comes back, is in `aci.rs`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

#[path = "changes/classes.rs"]
mod classes;
#[path = "changes/ends.rs"]
mod ends;
#[path = "changes/gate.rs"]
mod gate;
#[path = "changes/levels.rs"]
mod levels;
#[path = "changes/memory.rs"]
mod memory;
#[path = "changes/outcomes.rs"]
mod outcomes;
#[path = "exchange/peer.rs"]
mod peer;
#[path = "changes/store.rs"]
mod store;

use support::message::Response;

/// A fault's answer: a problem document, or the envelope of ACI, with this code.
#[track_caller]
fn assert_problem(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{answer}");
    let in_envelope = format!("<errorcode>{}</errorcode>", code.to_ascii_uppercase());
    let says = |part: &str| answer.text().contains(part);
    assert!(says(&format!("\"code\":\"{code}\"")) || says(&in_envelope), "{answer}");
}

/// What every reply to a change says that has its place in the order: the place, and how far the promise goes.
#[track_caller]
fn place(answer: &Response) -> (u64, u64) {
    assert_eq!(answer.field("Antiphon-Durability").as_deref(), Some("memory"), "{answer}");
    let sequence = answer.field("Antiphon-Sequence").unwrap_or_else(|| panic!("no place in the order: {answer}"));
    let (epoch, number) = sequence.split_once(':').unwrap_or_else(|| panic!("`{sequence}`"));
    (epoch.parse().expect("an epoch"), number.parse().expect("a sequence"))
}
