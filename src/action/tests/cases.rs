//! The cases of group AC in `tests/cases/http.jsonl`, as far as they ask for a class; the rest of each is held against
//! the real binary.

use super::*;

#[test]
fn all_cases_of_the_group() {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http.jsonl"));
    let mut count = 0;
    for line in text.lines() {
        let case: serde_json::Value = serde_json::from_str(line).expect("a case a line");
        if case["group"] != "AC" {
            continue;
        }
        count += 1;
        let request: String =
            case["send"].as_array().expect("sends").iter().map(|piece| piece.as_str().expect("text")).collect();
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.split("\r\n");
        let mut words = lines.next().expect("a request line").split(' ');
        let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
        let fields = lines.map(|field| field.split_once(": ").expect("a field"));
        let asked = Asked::of(
            method.as_bytes(),
            target.as_bytes(),
            !body.is_empty(),
            fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let rules = idol();
        let outcome = match rules.classify(&asked) {
            Ok(Verdict::NeedBody) => decided(&rules, &asked.with_body(body.as_bytes())),
            Ok(Verdict::Decided(decision)) => Ok(decision),
            Err(fault) => Err(fault),
        };
        let outcome = match outcome {
            Ok(Decision { class: Class::Read, .. }) => "read".to_owned(),
            Ok(Decision { class: Class::Change | Class::LiveChange, .. }) => "broadcast".to_owned(),
            Ok(Decision { class: Class::Refuse, .. }) => "403".to_owned(),
            Err(fault) => fault.status().to_string(),
        };
        let accepted = case["expect"]["accept"].as_array().expect("a list");
        assert!(accepted.iter().any(|one| *one == *outcome), "{}: {outcome}, not {accepted:?}", case["id"]);
    }
    assert_eq!(count, 17);
}
