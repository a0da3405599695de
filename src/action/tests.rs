//! What all of the action's tests share: a request in a line, and its outcome in a word.

use super::*;
use crate::error::Fault;

mod cases;
mod conditions;
mod forms;
mod http;
mod idol;
mod servers;

fn idol() -> Rules {
    Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), Class::Change).expect("rules")
}

/// A set of the dialect `http` alone.
pub(super) fn set(set: RuleSet) -> Rules {
    Rules::new(Dialect::Http, set, Vec::new(), Class::Change).expect("rules")
}

/// A whole request: the body is given at once.
pub(super) fn asked<'a>(
    method: &'a str,
    target: &'a str,
    content_type: Option<&'a str>,
    body: Option<&'a [u8]>,
) -> Asked<'a> {
    let mut asked = Asked::bare(method.as_bytes(), target.as_bytes());
    asked.content_type = content_type.map(str::as_bytes);
    match body {
        Some(body) => asked.with_body(body),
        None => asked,
    }
}

pub(super) fn decided<'r>(rules: &'r Rules, asked: &Asked<'_>) -> Result<Decision<'r>, Fault> {
    match rules.classify(asked)? {
        Verdict::Decided(decision) => Ok(decision),
        Verdict::NeedBody => panic!("asks for a body that it has: {asked:?}"),
    }
}

/// The class, or the code of the fault.
fn word(rules: &Rules, asked: &Asked<'_>) -> &'static str {
    match decided(rules, asked) {
        Ok(decision) => decision.class.as_str(),
        Err(fault) => fault.code(),
    }
}

/// All that follows from the decision, in words: the code of the fault; `read safe`; `change idempotent 404`.
pub(super) fn outcome(rules: &Rules, asked: &Asked<'_>) -> String {
    match decided(rules, asked) {
        Err(fault) => fault.code().into(),
        Ok(Decision { class: Class::Refuse, rule, .. }) => rule.refusal().code().into(),
        Ok(Decision { class: Class::Read, rule, .. }) => format!("read{}", if rule.safe() { " safe" } else { "" }),
        Ok(decision) => {
            let applied: String = decision.applied().iter().map(|status| format!(" {status}")).collect();
            format!("{} {}{applied}", decision.class, decision.rule.unknown_outcome())
        }
    }
}

fn get(rules: &Rules, target: &str) -> &'static str {
    word(rules, &asked("GET", target, None, None))
}

#[test]
fn words_of_the_configuration() {
    for class in Class::ALL {
        assert_eq!(class.as_str().parse(), Ok(*class));
    }
    let error = "Read".parse::<Class>().expect_err("case matters");
    assert_eq!(error.to_string(), "expected one of \"read\", \"change\", \"live_change\", \"refuse\"");
    assert_eq!("idol".parse(), Ok(RuleSet::Idol));
    assert_eq!("once".parse(), Ok(UnknownOutcome::Once));
    assert_eq!("aci".parse(), Ok(Dialect::Aci));
}

#[test]
fn fields_that_matter() {
    let of = |fields: &[(&'static str, &'static str)]| {
        Asked::of(b"GET", b"/", true, fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    };
    let asked = of(&[("Host", "x"), ("CONTENT-Type", "text/plain"), ("content-encoding", "gzip")]);
    assert_eq!(asked.content_type, Some(&b"text/plain"[..]));
    assert_eq!(asked.content_encoding, Some(&b"gzip"[..]));
    assert!(!asked.repeated_type && asked.has_body && asked.body.is_none() && asked.method_override.is_none());
    assert!(of(&[("Content-Type", "a/b"), ("Content-Type", "a/b")]).repeated_type);
    assert_eq!(of(&[("X-HTTP-Method-Override", "PUT")]).method_override, Some(&b"PUT"[..]));
    assert_eq!(of(&[("X-Method-Override", "PUT"), ("X-HTTP-Method", "PUT")]).method_override, Some(&b"PUT"[..]));
    assert_eq!(of(&[("X-Method-Override", "PUT"), ("X-HTTP-Method", "GET")]).method_override, Some(&b""[..]));
}

#[test]
fn the_operators_rules_come_first_and_the_first_match_wins() {
    let rules = Rules::new(
        Dialect::Aci,
        RuleSet::Idol,
        vec![
            Rule::aci("ReindexNow", Class::LiveChange).expect("rule"),
            Rule::aci("reindex*", Class::Change)
                .expect("rule")
                .with_unknown_outcome(UnknownOutcome::Idempotent)
                .with_applied(&[409]),
            Rule::aci("Query", Class::Refuse).and_then(|rule| rule.when_parameter("Debug")).expect("rule"),
            Rule::aci("UserRead", Class::Change).expect("rule"),
        ],
        Class::Refuse,
    )
    .expect("rules");
    let origin = |target: &'static str| {
        let decision = decided(&rules, &asked("GET", target, None, None)).expect("one reading");
        (decision.class, decision.origin)
    };
    assert_eq!(origin("/action=ReindexNow"), (Class::LiveChange, Origin::User(1)));
    assert_eq!(origin("/action=REINDEXALL"), (Class::Change, Origin::User(2)));
    assert_eq!(origin("/action=Query&Text=x"), (Class::Read, Origin::Set(RuleSet::Idol)));
    assert_eq!(origin("/action=Query&debug"), (Class::Refuse, Origin::User(3)));
    assert_eq!(origin("/action=UserRead"), (Class::Change, Origin::User(4)));
    assert_eq!(origin("/action=Rein"), (Class::Refuse, Origin::Unknown));
    let asked = asked("GET", "/action=ReindexAll", None, None);
    let decision = decided(&rules, &asked).expect("one reading");
    assert_eq!(decision.rule.unknown_outcome(), UnknownOutcome::Idempotent);
    assert_eq!(&**decision.rule.applied(), [409]);
    assert_eq!(decision.name.as_str(), "reindexall");
    assert_eq!(
        decision.to_string(),
        "change: rule 2 of the configuration, reindex*; the action is named in the target"
    );
}

#[test]
fn rules_that_cannot_be() {
    let aci = || Rule::aci("x", Class::Read).expect("rule");
    let http = || Rule::http(&["GET"], "*", Class::Read).expect("rule");
    let new = |dialect, set, rules| Rules::new(dialect, set, rules, Class::Change).map(|_| ());
    assert_eq!(new(Dialect::Aci, RuleSet::Http, vec![]), Err(RuleError::Set(RuleSet::Http, Dialect::Http)));
    assert_eq!(new(Dialect::Http, RuleSet::None, vec![http(), aci()]), Err(RuleError::Dialect(2)));
    assert_eq!(new(Dialect::Aci, RuleSet::None, vec![http()]), Err(RuleError::Dialect(1)));
    let many = vec![aci(); crate::limits::RULES_MAX + 1];
    assert_eq!(new(Dialect::Aci, RuleSet::None, many), Err(RuleError::TooMany));
    let parameters = (0..=crate::limits::RULE_CONDITIONS_MAX)
        .map(|number| aci().when_parameter(&format!("p{number}")).expect("rule"))
        .collect();
    assert_eq!(new(Dialect::Aci, RuleSet::None, parameters), Err(RuleError::TooManyParameters));
    assert_eq!(Rule::aci("", Class::Read).err(), Some(RuleError::Pattern));
    for name in ["a&b", "ä", "a b ", "a+b", &"x".repeat(65)] {
        assert_eq!(Rule::aci(name, Class::Read).err(), Some(RuleError::Action), "{name}");
    }
    assert_eq!(Rule::http(&["post"], "*", Class::Read).err(), Some(RuleError::Method("post".into())));
    for path in ["items/*", "/items?x=*", "/items#x"] {
        assert_eq!(Rule::http(&["POST"], path, Class::Read).err(), Some(RuleError::Path), "{path}");
    }
    assert_eq!(http().when_parameter("x").err(), Some(RuleError::Dialect(0)));
    assert_eq!(aci().when_parameter("").err(), Some(RuleError::Parameter));
}

#[test]
fn explanations() {
    let text = |request| explain(&idol(), request);
    assert_eq!(
        text("GET /action=Query&Text=x").as_deref(),
        Ok(
            "class   read\naction  query\nrule    Query (built-in set idol)\nreason  the action is named in the target\n"
        )
    );
    assert_eq!(
        text("/action=Query&Delete=true").as_deref(),
        Ok("class   change\naction  query\nrule    Query with Delete or State or StoreState (built-in set idol)\n\
            reason  the action is named in the target\nunknown outcome  once\n")
    );
    assert_eq!(
        text("POST / Text=x\\r\\naction=UserAdd").as_deref(),
        Ok("class   change\naction  useradd\nrule    UserAdd (built-in set idol)\n\
            reason  the action is named in the form in the body\nunknown outcome  once\n")
    );
    assert_eq!(
        text("GET /index.html").as_deref(),
        Ok("class   change\naction  (none)\nrule    unknown (the setting `unknown`)\n\
            reason  the request names no action\nunknown outcome  once\n")
    );
    assert_eq!(text("/action=a&action=b").err().map(Fault::code), Some("action_ambiguous"));
    assert!(text("").is_ok() && text("GET").is_ok());
    let rules = Rules::new(Dialect::Http, RuleSet::Http, Vec::new(), Class::Change).expect("rules");
    assert_eq!(
        explain(&rules, "DELETE /x").as_deref(),
        Ok("class   change\naction  delete\nrule    DELETE (built-in set http)\nreason  by method and path\n\
            unknown outcome  idempotent (sent again, 404 or 410 means applied before)\n")
    );
}
