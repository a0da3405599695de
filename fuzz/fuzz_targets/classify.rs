//! Telling what a request is, for any octets at all.
//!
//! Invariants:
//! 1. Nothing panics, and work is bounded: both dialects, with and without rules that ask for paths.
//! 2. With its body given, a request is decided or refused; the body is never asked for again.
//! 3. What the target alone decides or refuses, a body does not turn into a read.
//! 4. Only faults of the client's side come out, with status 400.
//! 5. The name is short, in lower case, ASCII; a read of the built-in set has one.
//! 6. What differs only in the case of ASCII letters is classed alike (`aci`).
#![no_main]

use std::sync::LazyLock;

use antiphon::action::{Asked, Class, Decision, Dialect, Origin, Rule, RuleSet, Rules, Verdict};
use antiphon::error::{Fault, Side};
use libfuzzer_sys::fuzz_target;

static ACI: LazyLock<Rules> =
    LazyLock::new(|| Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), Class::Change).expect("rules"));

static HTTP: LazyLock<Rules> = LazyLock::new(|| {
    let rules = vec![
        Rule::http(&["POST"], "/*search*x*", Class::Read).expect("rule"),
        Rule::http(&["*"], "/admin/*", Class::Refuse).expect("rule"),
    ];
    Rules::new(Dialect::Http, RuleSet::Http, rules, Class::Change).expect("rules")
});

/// `None`: the body is asked for.
fn decided<'r>(rules: &'r Rules, asked: &Asked<'_>) -> Option<Result<Decision<'r>, Fault>> {
    match rules.classify(asked) {
        Ok(Verdict::NeedBody) => None,
        Ok(Verdict::Decided(decision)) => {
            let name = decision.name.as_str();
            assert!(name.len() <= 64 && name.bytes().all(|octet| (0x20..0x7f).contains(&octet)));
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(decision.class != Class::Read || decision.origin == Origin::Unknown || !name.is_empty());
            assert!(!decision.to_string().is_empty());
            Some(Ok(decision))
        }
        Err(fault) => {
            assert_eq!((fault.side(), fault.status()), (Side::Client, 400));
            Some(Err(fault))
        }
    }
}

fuzz_target!(|data: &[u8]| {
    // Pieces are told apart by an octet that is refused wherever it would matter.
    let mut pieces = data.splitn(5, |octet| *octet == 0xfe);
    let [method, target, kind, coding] = [(); 4].map(|()| pieces.next().unwrap_or_default());
    let body = pieces.next();
    for rules in [&*ACI, &*HTTP] {
        let mut asked = Asked::bare(method, target);
        asked.content_type = (!kind.is_empty()).then_some(kind);
        asked.content_encoding = (!coding.is_empty()).then_some(coding);
        let without = decided(rules, &asked).expect("there is no body to ask for");
        let Some(body) = body else { continue };
        asked.has_body = true;
        let by_head = decided(rules, &asked);
        let whole = decided(rules, &asked.with_body(body)).expect("the body is there");
        match by_head {
            Some(by_head) => assert_eq!(by_head.map(|d| d.class), whole.map(|d| d.class)),
            None => assert!(!(without.is_err() && whole.is_ok()), "a body heals nothing"),
        }
        if let (Ok(without), Ok(whole)) = (&without, &whole) {
            assert!(whole.class != Class::Read || without.class == Class::Read || without.origin == Origin::Unknown);
        }
        if rules.dialect() == Dialect::Aci {
            let upper = target.to_ascii_uppercase();
            let mut other = asked;
            other.target = &upper;
            assert_eq!(decided(rules, &other.with_body(body)).expect("whole").map(|d| d.class), whole.map(|d| d.class));
        }
    }
});
