//! The dialect `http` and its set.

use super::*;

fn rules(user: Vec<Rule>) -> Rules {
    Rules::new(Dialect::Http, RuleSet::Http, user, Class::Change).expect("rules")
}

#[test]
fn every_method() {
    let rules = rules(Vec::new());
    for (method, class, outcome, applied) in [
        ("GET", "read", "once", &[][..]),
        ("HEAD", "read", "once", &[]),
        ("OPTIONS", "read", "once", &[]),
        ("PUT", "change", "idempotent", &[]),
        ("COPY", "change", "idempotent", &[]),
        ("DELETE", "change", "idempotent", &[404, 410]),
        ("MKCOL", "change", "idempotent", &[405]),
        ("MOVE", "change", "idempotent", &[404]),
        ("POST", "change", "once", &[]),
        ("PATCH", "change", "once", &[]),
        ("LOCK", "refuse", "once", &[]),
        ("UNLOCK", "refuse", "once", &[]),
        ("PROPPATCH", "change", "once", &[]),
        ("BREW", "change", "once", &[]),
        ("get", "change", "once", &[]),
        ("GETS", "change", "once", &[]),
    ] {
        for target in ["/", "/x/../%00?action=Query", "*", "//", "/%zz"] {
            let decision = decided(&rules, &asked(method, target, None, None)).expect("one reading");
            assert_eq!(decision.class.as_str(), class, "{method} {target}");
            assert_eq!(decision.rule.unknown_outcome().as_str(), outcome, "{method}");
            assert_eq!(&**decision.rule.applied(), applied, "{method}");
            assert_eq!(decision.rule.safe(), class == "read", "{method}");
        }
    }
}

#[test]
fn never_asks_for_the_body() {
    let mut asked = asked("POST", "/", Some("multipart/form-data"), None);
    asked.has_body = true;
    asked.repeated_type = true;
    assert!(matches!(rules(Vec::new()).classify(&asked), Ok(Verdict::Decided(_))));
}

#[test]
fn every_method_a_read_by_one_rule() {
    let rules = rules(vec![Rule::http(&["*"], "*", Class::Read).expect("rule")]);
    for method in ["GET", "POST", "LOCK", "BREW"] {
        assert_eq!(word(&rules, &asked(method, "/%00//..", None, None)), "read", "{method}");
    }
}

#[test]
fn a_path_with_two_readings_is_refused_where_they_differ() {
    let rules = rules(vec![
        Rule::http(&["POST"], "/search", Class::Read).expect("rule"),
        Rule::http(&["GET"], "/admin/*", Class::Change).expect("rule"),
        Rule::http(&["GET"], "/docs/*", Class::Read).expect("rule").with_safe(true),
    ]);
    for (request, outcome) in [
        ("POST /search?q=%2e%2e", "read"),
        ("POST /search/", "change"),
        ("GET /admin/flush", "change"),
        ("GET /admin", "read"),
        ("GET /administrator/x", "read"),
        ("GET /docs/a%2Fb;c/./d", "read"),
        ("GET /x?y=/admin/flush", "read"),
        ("GET /%61dmin/flush", "action_ambiguous"),
        ("GET /admin%2fflush", "action_ambiguous"),
        ("GET /x/../admin/flush", "action_ambiguous"),
        ("GET /x/%2e%2E/admin/flush", "action_ambiguous"),
        ("GET /x%2f..%2fadmin/flush", "action_ambiguous"),
        ("GET //admin/flush", "action_ambiguous"),
        ("GET /./admin/flush", "action_ambiguous"),
        ("GET /admin;x/flush", "action_ambiguous"),
        ("GET /x/..;/admin/flush", "action_ambiguous"),
        ("GET /x\\..\\admin/flush", "action_ambiguous"),
        ("GET /admin/../x", "action_ambiguous"),
        ("GET /docs/x%00", "action_ambiguous"),
        ("POST /se%61rch", "action_ambiguous"),
        ("POST /100%", "change"),
        ("PUT /x/../admin/flush", "change"),
    ] {
        let (method, target) = request.split_once(' ').expect("a request");
        assert_eq!(word(&rules, &asked(method, target, None, None)), outcome, "{request}");
    }
}

#[test]
fn a_field_that_asks_for_another_method() {
    let rules = rules(vec![Rule::http(&["POST"], "/search", Class::Read).expect("rule")]);
    let with = |method, target, other: &'static str| {
        let mut asked = asked(method, target, None, None);
        asked.method_override = Some(other.as_bytes());
        word(&rules, &asked)
    };
    assert_eq!(with("GET", "/x", "HEAD"), "read");
    assert_eq!(with("GET", "/x", "DELETE"), "action_ambiguous");
    assert_eq!(with("POST", "/search", "DELETE"), "action_ambiguous");
    assert_eq!(with("POST", "/search", "GET"), "action_ambiguous");
    assert_eq!(with("POST", "/x", "PATCH"), "change");
    assert_eq!(with("POST", "/x", ""), "change");
    assert_eq!(with("GET", "/x", ""), "action_ambiguous");
}
