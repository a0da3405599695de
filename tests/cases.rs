//! 136 byte-exact exchanges with the real binary: lengths, codings, chunks, lines, request lines, limits, upgrades,
//! hop-by-hop fields, bad answers, connections, and which actions are reads.
//!
//! The cases are data (`cases/http.jsonl`); how one is played is in `cases/story.rs` and `cases/wire.rs`, and what its
//! sentences mean in `cases/checks.rs`. Every case has a proxy and children of its own, and runs on every driver. After
//! each, the next client must be served.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

#[path = "cases/checks.rs"]
mod checks;
#[path = "cases/story.rs"]
mod story;
#[path = "cases/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use story::Case;
use support::{Driver, for_each_driver};

/// Cases that we think wrong, each with the reason. They are played all the same, and must still fail.
const DISPUTED: &[(&str, &str)] = &[];

/// Cases played at once. They mostly wait.
const AT_ONCE: usize = 12;

#[test]
fn the_136_cases() {
    let cases = cases();
    assert_eq!(cases.len(), 136);
    for_each_driver(|driver| {
        let wrong = wrong(&cases, driver);
        assert!(
            wrong.is_empty(),
            "{} of {} cases are wrong on {}:\n{}",
            wrong.len(),
            cases.len(),
            driver.key(),
            wrong.join("\n")
        );
    });
}

/// Every sentence of the cases has its check, and every check its sentence.
#[test]
fn no_sentence_is_passed_over() {
    let cases = cases();
    let said = |list: fn(&Case) -> &[String]| cases.iter().flat_map(list).map(String::as_str).collect::<BTreeSet<_>>();
    let checked =
        |table: &[(&'static str, checks::Check)]| table.iter().map(|(prose, _)| *prose).collect::<BTreeSet<_>>();
    assert_eq!(said(|case| &case.expect.forwarded), checked(checks::FORWARDED));
    assert_eq!(said(|case| &case.expect.response), checked(checks::RESPONSE));
}

fn cases() -> Vec<Case> {
    let lines = include_str!("cases/http.jsonl").lines().enumerate();
    lines
        .map(|(index, line)| serde_json::from_str(line).unwrap_or_else(|error| panic!("line {}: {error}", index + 1)))
        .collect()
}

/// Plays all, several at once; a paragraph for each that is not as it should be.
fn wrong(cases: &[Case], driver: Driver) -> Vec<String> {
    // Those that wait longest begin first. `ANTIPHON_TEST_CASE` plays those whose name holds it.
    let wanted = std::env::var("ANTIPHON_TEST_CASE").unwrap_or_default();
    let mut order: Vec<&Case> = cases.iter().filter(|case| case.id.contains(&wanted)).collect();
    order.sort_by_key(|case| std::cmp::Reverse(case.pauses_ms()));
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(paragraph) = judge(case, driver) {
                        wrong.lock().expect("no player fails with it").push((case.id.clone(), paragraph));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().expect("all players are done");
    wrong.sort();
    wrong.into_iter().map(|(_, paragraph)| paragraph).collect()
}

fn judge(case: &Case, driver: Driver) -> Option<String> {
    let disputed = DISPUTED.iter().find(|(id, _)| *id == case.id);
    let played = catch_unwind(AssertUnwindSafe(|| story::run(case, driver)));
    match (played, disputed) {
        (Ok(Ok(_)), None) | (Ok(Err(_)), Some(_)) => None,
        (Ok(Ok(_)), Some((id, reason))) => Some(format!("{id} passes, and is disputed: {reason}")),
        (Ok(Err(why)), None) => {
            let Case { id, what, why: reason, observed, .. } = case;
            Some(format!("{id} ({what}; because {reason})\n    {why}    others: {observed}"))
        }
        (Err(panic), _) => {
            let said = panic.downcast_ref::<String>().map_or("a panic without words", String::as_str);
            Some(format!("{} ({})\n    {said}", case.id, case.what))
        }
    }
}
