//! Exchanges that go wrong in the middle, and crowds of them: through the real binary, on both drivers, against children
//! that do what no good server does. Each story is named after the fault that it would show.
//!
//! The plain course of things, every time-out and every limit alone are in `http.rs`, and the octets of single messages
//! in `cases.rs`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

#[path = "exchange/answers.rs"]
mod answers;
#[path = "exchange/bodies.rs"]
mod bodies;
#[path = "exchange/crowds.rs"]
mod crowds;
#[path = "exchange/ends.rs"]
mod ends;
#[path = "exchange/peer.rs"]
mod peer;

use support::Driver;
use support::message::Response;
use support::proxy::Setup;

/// One child, `a`, of a group that speaks plain HTTP.
fn plain(driver: Driver, child: u16) -> Setup {
    Setup::new(driver, "http", "http").child("a", child)
}

/// The same, and every method is a read: bodies are streamed.
fn streaming(driver: Driver, child: u16) -> Setup {
    plain(driver, child).rule("method = [\"*\"]\npath = \"*\"\nclass = \"read\"")
}

/// A fault's answer: a problem document with this code.
#[track_caller]
fn assert_problem(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{answer}");
    assert!(answer.text().contains(&format!("\"code\":\"{code}\"")), "{answer}");
}
