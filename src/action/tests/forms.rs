//! Every form in which clients name an action, and every spelling that has two readings.

use super::*;

const URLENCODED: Option<&str> = Some("application/x-www-form-urlencoded");
const TEXT: Option<&str> = Some("text/plain");
const MULTIPART: Option<&str> = Some("multipart/form-data; boundary=B");

fn part(name: &str, content: &str) -> String {
    format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

/// Method, target, type and body, with `ACTION` where the action goes, and where it is named.
type Form = (&'static str, &'static str, Option<&'static str>, Option<String>, Place);

fn forms() -> Vec<Form> {
    let parts = |list: &[(&str, &str)]| {
        Some(list.iter().map(|(name, content)| part(name, content)).collect::<String>() + "--B--\r\n")
    };
    let text = |body: &str| Some(body.to_owned());
    vec![
        ("GET", "/action=ACTION&Text=x", None, None, Place::Target),
        ("GET", "/Text=x&ACTION=ACTION", None, None, Place::Target),
        ("GET", "/a=ACTION", None, None, Place::Target),
        ("GET", "/?Action=ACTION&Text=a+b", None, None, Place::Target),
        ("GET", "/?Text=a?b&A=ACTION", None, None, Place::Target),
        ("HEAD", "/action=ACTION", None, None, Place::Target),
        ("POST", "/", URLENCODED, text("action=ACTION&Text=x"), Place::Form),
        ("POST", "/", TEXT, text("Text=x&Action=ACTION"), Place::Form),
        ("POST", "/", Some("text/plain; charset=UTF-8"), text("Action=ACTION&Text=x"), Place::Form),
        ("POST", "/", None, text("action=ACTION"), Place::Form),
        ("POST", "/a=ACTION&ResponseFormat=json", URLENCODED, text("Text=x&y=z"), Place::Target),
        ("POST", "/ResponseFormat=json", URLENCODED, text("Text=x&a=ACTION"), Place::Form),
        ("POST", "/a=ACTION", MULTIPART, parts(&[("responseformat", "simplejson")]), Place::Target),
        ("POST", "/?Action=ACTION", MULTIPART, parts(&[("Data", "a\r\nb"), ("Data", "\0&action=x")]), Place::Target),
        ("POST", "/", MULTIPART, parts(&[("Text", "x"), ("action", "ACTION"), ("y", "")]), Place::Part),
        ("POST", "/", Some("Multipart/Form-Data; boundary=\"B\""), parts(&[("A", "ACTION")]), Place::Part),
        ("POST", "/", TEXT, text("Text=x\r\naction=ACTION\r\n"), Place::Form),
        ("POST", "/", TEXT, text("action=ACTION\rText=x"), Place::Form),
        ("POST", "/", URLENCODED, text("action=ACTION\nText=x\n"), Place::Form),
        ("GET", "/", URLENCODED, text("action=ACTION&Text=x"), Place::Form),
        ("GET", "/a=ACTION", URLENCODED, text("Text=x"), Place::Target),
        ("POST", "/a=ACTION", URLENCODED, text(""), Place::Target),
    ]
}

#[test]
fn every_form_of_a_read_a_change_and_a_live_change() {
    let rules = idol();
    for (method, target, content_type, body, place) in forms() {
        for (name, class) in [("Query", Class::Read), ("UserAdd", Class::Change), ("CategoryMove", Class::LiveChange)] {
            for name in [name.to_owned(), name.to_uppercase()] {
                let target = target.replace("=ACTION", &format!("={name}"));
                let body = body.as_ref().map(|body| body.replace("ACTION", &name));
                let mut asked = asked(method, &target, content_type, body.as_deref().map(str::as_bytes));
                let decision = decided(&rules, &asked).expect("one reading");
                assert_eq!(decision.class, class, "{asked:?}");
                assert_eq!(decision.reason, Reason::Action(place), "{asked:?}");
                assert_eq!(decision.name.as_str(), name.to_lowercase());
                if asked.body.take().is_some() {
                    assert!(matches!(rules.classify(&asked), Ok(Verdict::NeedBody)), "{asked:?}");
                }
            }
        }
    }
}

#[test]
fn encoded_once_is_plain() {
    let rules = idol();
    for (target, outcome) in [
        ("/%61ction=UserAdd", "change"),
        ("/%41%43tion=User%41dd", "change"),
        ("/action=Quer%79&Text=a%2Fb%2fc%7e", "read"),
        ("/%61=%51%75%65%72%79", "read"),
        ("/?action=Query&Text=action%3DUserAdd", "read"),
        ("/?action=Query&Text=x%26action=UserAdd", "read"),
        ("/action=Query&Text=%", "read"),
        ("/action=Query&Text=\u{e9}%ff%00", "read"),
        ("/action=Category+Set+Details", "change"),
        ("/action=Category%20SetDetails", "change"),
        ("/action=Query&Reference=http://x/a.b&y=a/../b", "action_ambiguous"),
        ("/?action=Query&Reference=http://x/a=1/../b", "read"),
    ] {
        assert_eq!(get(&rules, target), outcome, "{target}");
    }
}

#[test]
fn no_action_follows_the_setting() {
    for unknown in [Class::Change, Class::Read, Class::Refuse] {
        let rules = Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), unknown).expect("rules");
        for target in ["/", "*", "", "/index.html", "/x/y?z", "/?", "/actions=x", "/ab=Query", "/static/a", "/=Query"] {
            assert_eq!(get(&rules, target), unknown.as_str(), "{target}");
        }
        let opaque = asked("POST", "/", Some("application/json"), Some(b"{\"x\":\"a\"}\r\na\r\n\xff=1\r\n%=1"));
        assert_eq!(word(&rules, &opaque), unknown.as_str());
        let mut waiting = opaque;
        waiting.body = None;
        assert!(matches!(rules.classify(&waiting), Ok(Verdict::NeedBody)), "the body may name one");
        // An action that reads, by a method that a server may act on.
        for method in ["PUT", "DELETE", "MOVE", "get"] {
            assert_eq!(word(&rules, &asked(method, "/action=Query", None, None)), unknown.as_str(), "{method}");
        }
        let mut overridden = asked("POST", "/action=Query", None, None);
        overridden.method_override = Some(b"DELETE");
        assert_eq!(word(&rules, &overridden), unknown.as_str());
    }
    assert_eq!(word(&idol(), &asked("PUT", "/action=UserAdd", None, None)), "change");
    assert_eq!(word(&idol(), &asked("PUT", "/action=CategoryMove", None, None)), "live_change");
}

#[test]
fn two_readings_in_the_target() {
    let rules = idol();
    for target in [
        "/action=Query&action=UserAdd",
        "/action=Query&action=Query",
        "/action=Query&a=Query",
        "/a=Query&A=UserAdd",
        "/action=Query?action=UserAdd",
        "/action=Query&x=y?action=UserAdd",
        "/?action=Query&%61ction=UserAdd",
        "/action=Query?Text=x",
        "/action=Query?",
        "/action=Query;x",
        "/x;action=Query",
        "/action=Query&Text=x;action=UserAdd",
        "/action=Query;action=UserAdd",
        "/x/../action=UserAdd",
        "/x/%2e%2E/action=UserAdd",
        "/x%2F..%2Faction=UserAdd",
        "/x=1\\..\\action=UserAdd",
        "/x/..;/action=UserAdd",
        "/action=Query/..",
        "/x/action=UserAdd",
        "//action=UserAdd",
        "/%2Faction=UserAdd",
        "/./action=UserAdd",
        "/%3Faction=UserAdd",
        "/??action=UserAdd",
        "/+action=UserAdd",
        "/action%20=UserAdd",
        "/action+=UserAdd",
        "/x\\a=UserAdd",
        "/%2561ction=CategorySetDetails",
        "/act%2569on=UserAdd",
        "/action=Query&%2561=UserAdd",
        "/act%00ion=UserAdd",
        "/action%00=UserAdd",
        "/action=Query&%00=x",
        "/action=Query&x%0aaction=UserAdd",
        "/act%ion=UserAdd",
        "/action=Query&x%=1",
        "/action=Query&x%f=1",
        "/action=Query&%ff=1",
        "/action=Query&%c0%afaction=1",
        "/act%C4%B1on=UserAdd",
        "/act\u{131}on=UserAdd",
        "/action=Query&%C5%BFtate=x",
        "/%C2%A0action=UserAdd",
        "/%EF%BB%BFaction=UserAdd",
        "/action=CategorySetDetails%00.Query",
        "/action=UserAdd%0d",
        "/action=User%Add",
        "/action=Query%",
        "/action=%ff",
        "/action=U\u{17f}erAdd",
        "/action=Qu\u{e9}ry",
        "/action=Query%26action=UserAdd",
        "/action=%2551uery",
        "/action=Query=UserAdd",
        "/action=Query%3F",
        "/action=+UserAdd",
        "/action=UserAdd+",
        "/action=UserAdd%20",
        "/action=Query#&action=UserAdd",
        "/#/action=UserAdd",
        &format!("/action={}", "x".repeat(65)),
    ] {
        assert_eq!(get(&rules, target), "action_ambiguous", "{target}");
    }
    assert_eq!(get(&rules, &format!("/action={}", "x".repeat(64))), "change");
}

#[test]
fn an_action_without_a_name() {
    for target in ["/action=", "/action", "/?a", "/a&x=y", "/action=&Text=x"] {
        assert_eq!(get(&idol(), target), "action_missing", "{target}");
    }
}

#[test]
fn an_encrypted_action() {
    for target in ["/action=Encrypted&Data=x", "/?a=ENCRYPTED", "/a=%65ncrypted"] {
        assert_eq!(get(&idol(), target), "action_encrypted", "{target}");
    }
    assert_eq!(word(&idol(), &asked("POST", "/", TEXT, Some(b"Data=x&Action=Encrypted"))), "action_encrypted");
}

#[test]
fn two_readings_of_a_body() {
    let rules = idol();
    let many = |list: &[(&str, &str)]| list.iter().map(|(n, c)| part(n, c)).collect::<String>() + "--B--\r\n";
    let headed = |head: &str, content: &str| format!("--B\r\n{head}\r\n\r\n{content}\r\n--B--\r\n");
    let disposition = "Content-Disposition: form-data; name=action";
    for (target, content_type, body) in [
        ("/action=Query", URLENCODED, "action=CategorySetDetails".to_owned()),
        ("/action=Query", URLENCODED, "action=Query".into()),
        ("/action=Query", None, "a=UserAdd".into()),
        ("/action=UserAdd", TEXT, "Text=x\r\na=UserDelete".into()),
        ("/", TEXT, "action=Query\naction=UserAdd".into()),
        ("/", URLENCODED, "action=Query&Text=x;a=UserAdd".into()),
        ("/", URLENCODED, "?action=UserAdd".into()),
        ("/", URLENCODED, "/action=UserAdd".into()),
        ("/", TEXT, " action=UserAdd".into()),
        ("/", URLENCODED, "act%00ion=UserAdd".into()),
        ("/", URLENCODED, "action=UserAdd%00".into()),
        ("/", Some("text/plain; charset=utf-16"), "action=UserAdd".into()),
        ("/", Some("text/plain; charset=utf-7"), "action=UserAdd".into()),
        ("/", Some("text/plain; charset"), "action=UserAdd".into()),
        ("/", Some("text"), "action=UserAdd".into()),
        ("/", Some("text/plain, application/json"), "action=UserAdd".into()),
        ("/action=Query", Some("application/json"), "action=UserAdd".into()),
        ("/action=Query", Some("application/octet-stream"), "x=\0&a=UserAdd".into()),
        ("/", Some("application/json"), "action=Query".into()),
        ("/action=Query", Some("application/json"), "%ff=1\r\n\taction%00x=UserAdd".into()),
        ("/action=Query", Some("application/json"), "%\n%2561ction=UserAdd".into()),
        ("/action=Query", MULTIPART, many(&[("x", "y"), ("action", "UserAdd")])),
        ("/", MULTIPART, many(&[("action", "Query"), ("A", "UserAdd")])),
        ("/", MULTIPART, many(&[("%61ction", "UserAdd")])),
        ("/", MULTIPART, many(&[("%2561ction", "UserAdd")])),
        ("/", MULTIPART, many(&[(" action", "UserAdd")])),
        ("/", MULTIPART, many(&[("action", "User%41dd")])),
        ("/", MULTIPART, many(&[("action", "User+Add")])),
        ("/", MULTIPART, many(&[("action", "UserAdd\r\n")])),
        ("/", MULTIPART, headed(&format!("{disposition}; filename=x"), "UserAdd")),
        ("/", MULTIPART, headed(&format!("{disposition}\r\nContent-Transfer-Encoding: base64"), "VXNlckFkZA==")),
        ("/", MULTIPART, headed(&format!("{disposition}\r\nContent-Type: text/plain; charset=utf-16"), "UserAdd")),
        ("/", MULTIPART, headed(&format!("{disposition}\r\nContent-Type: application/json"), "UserAdd")),
        ("/action=Query", MULTIPART, String::new()),
        ("/action=Query", MULTIPART, "Text=x".into()),
        ("/action=Query", Some("multipart/form-data"), many(&[("x", "y")])),
        ("/action=Query", Some("multipart/form-data; boundary=C"), many(&[("x", "y")])),
    ] {
        let asked = asked("POST", target, content_type, Some(body.as_bytes()));
        assert_eq!(word(&rules, &asked), "action_ambiguous", "{target} {content_type:?} {}", body.escape_debug());
    }
    assert_eq!(word(&rules, &asked("POST", "/", MULTIPART, Some(many(&[("a", "")]).as_bytes()))), "action_missing");
}

#[test]
fn what_cannot_be_read_is_refused_before_it_is_sent() {
    let rules = idol();
    let head = |change: fn(&mut Asked<'_>)| {
        let mut head = asked("POST", "/action=Query", URLENCODED, None);
        head.has_body = true;
        change(&mut head);
        match rules.classify(&head) {
            Ok(Verdict::NeedBody) => "need_body",
            Ok(Verdict::Decided(decision)) => decision.class.as_str(),
            Err(fault) => fault.code(),
        }
    };
    assert_eq!(head(|_| ()), "need_body");
    assert_eq!(head(|head| head.content_encoding = Some(b" Identity")), "need_body");
    assert_eq!(head(|head| head.content_encoding = Some(b"gzip")), "action_ambiguous");
    assert_eq!(head(|head| head.content_encoding = Some(b"identity, gzip")), "action_ambiguous");
    assert_eq!(head(|head| head.repeated_type = true), "action_ambiguous");
    assert_eq!(head(|head| head.content_type = Some(b"multipart/form-data")), "action_ambiguous");
    // A change with a body that is no form: opaque, encoded or not.
    let opaque = |head: &mut Asked<'_>| {
        head.target = b"/action=Index";
        head.content_type = Some(b"application/octet-stream");
        head.content_encoding = Some(b"gzip");
    };
    assert_eq!(head(opaque), "change");
    // The token may stand in the body.
    assert_eq!(head(|head| head.target = b"/action=QueueInfo&QueueAction=cancel"), "need_body");
    assert_eq!(head(|head| head.target = b"/action=Query&a=b"), "action_ambiguous");
}
