//! Changes that depend on something: what all children have alike, and what each has made for itself.

use super::*;

fn with<'a>(method: &'a str, fields: &[(&'a str, &'a str)]) -> Asked<'a> {
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Asked::of(method.as_bytes(), b"/x", false, fields)
}

#[test]
fn validators_refuse_a_change_and_existence_does_not() {
    let rules = set(RuleSet::Webdav);
    for (method, field, value, expected) in [
        ("PUT", "If-Match", "\"a\"", "conditional_change"),
        ("PUT", "if-match", "W/\"a\", \"b\"", "conditional_change"),
        ("PUT", "If-Match", "*", "change idempotent 412"),
        ("PUT", "If-None-Match", " * ", "change idempotent 412"),
        ("PUT", "If-None-Match", "\"a\"", "conditional_change"),
        ("PUT", "If-None-Match", "*, \"a\"", "conditional_change"),
        ("PUT", "If-None-Match", "", "conditional_change"),
        ("PUT", "If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT", "conditional_change"),
        ("PUT", "If", "(<urn:uuid:1>)", "conditional_change"),
        ("DELETE", "If-Schedule-Tag-Match", "\"a\"", "conditional_change"),
        ("DELETE", "If-Match", "*", "change idempotent 404 410 412"),
        ("COPY", "Overwrite", "F", "change idempotent 412"),
        ("COPY", "Overwrite", "T", "change idempotent"),
        // RFC 9110 13.1.3: ignored with any method but GET and HEAD; 13.1.5: with Range alone.
        ("PUT", "If-Modified-Since", "Sat, 29 Oct 1994 19:43:31 GMT", "change idempotent"),
        ("PUT", "If-Range", "\"a\"", "change idempotent"),
        ("PUT", "If-Matches", "\"a\"", "change idempotent"),
        ("GET", "If-Match", "\"a\"", "read safe"),
        ("GET", "If-None-Match", "\"a\"", "read safe"),
        ("GET", "If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT", "read safe"),
        ("PROPFIND", "If", "(<urn:uuid:1>)", "read safe"),
        ("LOCK", "If", "(<urn:uuid:1>)", "lock_refused"),
    ] {
        assert_eq!(outcome(&rules, &with(method, &[(field, value)])), expected, "{method} {field}: {value}");
    }
    let both = with("PUT", &[("If-Match", "\"a\""), ("If-Match", "*")]);
    assert_eq!(outcome(&rules, &both), "conditional_change");
    assert_eq!(Fault::ConditionalChange.status(), 412);
}

#[test]
fn a_rule_may_say_that_validators_are_the_same() {
    let rule = Rule::http(&["PUT"], "/x", Class::Change).expect("rule");
    let rule = rule.with_unknown_outcome(UnknownOutcome::Idempotent).with_validators(Validators::Same);
    let rules = Rules::new(Dialect::Http, RuleSet::Webdav, vec![rule], Class::Change).expect("rules");
    assert_eq!(outcome(&rules, &with("PUT", &[("If-Match", "\"a\"")])), "change idempotent 412");
    assert_eq!(outcome(&rules, &with("DELETE", &[("If-Match", "\"a\"")])), "conditional_change");
}

#[test]
fn in_the_other_dialect_too() {
    let fields = [(&b"If-Match"[..], &b"\"a\""[..])];
    for (target, expected) in [(&b"/action=UserAdd"[..], "conditional_change"), (b"/action=Query", "read safe")] {
        assert_eq!(outcome(&idol(), &Asked::of(b"GET", target, false, fields.into_iter())), expected);
    }
}
