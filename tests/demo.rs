//! `antiphon demo --for SECONDS`: it drives itself, stops a server, brings it back, and judges.

mod support;

use std::process::Command;

use support::PATIENCE;
use support::proxy::ANTIPHON;
use support::run_within;

#[test]
fn the_demo_proves_itself() {
    let ran = run_within(Command::new(ANTIPHON).args(["demo", "--for", "3"]), PATIENCE * 2);
    let text = ran.text();
    assert_eq!(ran.code, Some(0), "{text}");
    let verdict = ran.stdout.lines().find(|line| line.contains("replayed")).unwrap_or_else(|| panic!("{text}"));
    assert!(number_before(verdict, "replayed") > 0, "{verdict}");
    assert!(verdict.contains("identical") && !verdict.contains("NOT identical"), "{verdict}");
    assert!(number_before(verdict, "changes") > 0, "{verdict}");
    assert!(verdict.contains("reads (0 failed)"), "no read may fail: {verdict}");
    // What a newcomer is to type stands there.
    for line in ["curl -i -X PUT", "curl -i 'http://127.0.0.1:", "/action="] {
        assert!(text.contains(line), "no `{line}` in:\n{text}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert!(!text.contains('\x1b'), "control codes, and this is no terminal:\n{text}");
}

#[test]
fn a_demo_of_no_time_is_a_slip() {
    let ran = run_within(Command::new(ANTIPHON).args(["demo", "--for", "0"]), PATIENCE);
    assert_eq!(ran.code, Some(2), "{}", ran.text());
    assert!(ran.stderr.contains("seconds"), "{}", ran.text());
}

/// The number in front of the first such word.
fn number_before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|found| *found == word).unwrap_or_else(|| panic!("no `{word}` in: {line}"));
    words[at - 1].parse().unwrap_or_else(|_| panic!("no number before `{word}` in: {line}"))
}
