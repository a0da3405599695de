//! The set `idol`: every group of actions, hits and near misses.

use super::*;

/// Group, what changes, what reads. `*` in a name was one in the documents: two names of each stand for it.
const GROUPS: &[(&str, &str, &str)] = &[
    (
        "Category",
        "Activate Build Copy Create Delete DeleteTraining ImportFromCluster ImportFromTopic ImportFromXML Replace \
         SetPermissions SetTNW SetTraining SyncCatDRE",
        "ExportToXML Find GetDetails GetHierDetails GetTNW GetTraining Query SuggestFromCategory SuggestFromText",
    ),
    ("User", "Add Copy Delete Edit", "Read ReadAgentList ReadUserList Security"),
    (
        "Role",
        "Add AddPrivilege AddRoleToRole AddUserToRole Delete DeletePrivilege RemovePrivilegeFromRole \
         RemoveRoleFromRole RemoveUserFromRole SetPrivilegeForRole",
        "DoesUserHavePrivilege GetChildRoleList GetRolePrivilegeValueList IsRoleInRole UserGetRoleList",
    ),
    ("Agent", "Add Copy Delete Edit Retrain", "GetResults Read"),
    ("Profile", "Clear Edit User", "GetResults Read"),
    (
        "",
        "ClusterSnapshot ClusterSGDataGen TaxonomyGenerate ScheduleDelete ExecuteSchedule TemplateUpload \
         TemplateDelete Import Index TokenManagement",
        "Query Suggest SuggestOnText GetContent List TermExpand TermGetBest GetTagNames GetTagValues \
         GetQueryTagValues Highlight Summarize DetectLanguage Export TemplateList Security",
    ),
    (
        "",
        "",
        "GetStatus GetVersion GetPid GetLicenseInfo GetRequestLog Help LanguageSettings GetChildren ThreadStatus \
         ShowPermissions IndexerGetStatus",
    ),
];

/// Asks with `unknown = refuse`, so that a miss shows.
fn class_of(name: &str) -> Class {
    let rules = Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), Class::Refuse).expect("rules");
    let target = format!("/action={name}&x=y");
    let decision = decided(&rules, &asked("GET", &target, None, None)).expect("one reading");
    assert_eq!(decision.origin == Origin::Unknown, decision.class == Class::Refuse, "{name}");
    if decision.class == Class::Read {
        assert!(decision.rule.safe(), "{name}: built-in reads may be sent again");
    } else {
        assert_eq!(decision.rule.unknown_outcome(), UnknownOutcome::Once, "{name}");
    }
    decision.class
}

#[test]
fn every_group() {
    for (group, changes, reads) in GROUPS {
        for (names, class) in [(changes, Class::Change), (reads, Class::Read)] {
            for name in names.split_whitespace().map(|name| format!("{group}{name}")) {
                for spelling in [name.clone(), name.to_lowercase(), name.to_uppercase()] {
                    assert_eq!(class_of(&spelling), class, "{spelling}");
                }
                // None of these is a name that we know, but what a star stands for may be shorter.
                let is_starred = ["Suggest", "Term", "GetTag"].iter().any(|prefix| name.contains(prefix));
                if !is_starred {
                    assert_eq!(class_of(&name[..name.len() - 1]), Class::Refuse, "{name} without its last letter");
                }
                assert_eq!(class_of(&format!("x{name}")), Class::Refuse, "x{name}");
            }
        }
    }
}

/// The other way around: no rule is for a name that the table above does not have.
#[test]
fn every_rule_is_for_a_name_of_the_table() {
    let others = ["CategoryMove", "CategorySetDetails", "QueueInfo", "UserSecurity", "TemplateShow"].map(str::to_owned);
    let names = GROUPS.iter().flat_map(|(group, changes, reads)| {
        changes.split_whitespace().chain(reads.split_whitespace()).map(move |name| format!("{group}{name}"))
    });
    let names: Vec<String> = names.chain(others).collect();
    for rule in idol().list() {
        let pattern = rule.name().split(' ').next().expect("a word");
        let fits = |name: &String| match pattern.split_once('*') {
            Some((before, behind)) => name.starts_with(before) && name.ends_with(behind),
            None => name == pattern,
        };
        assert!(names.iter().any(fits), "{rule}");
    }
}

#[test]
fn near_misses() {
    for name in ["CategoryMoves", "CategorySetDetail", "UserAdds", "UserReads", "GetStatu", "Queries", "RoleGetLists"] {
        assert_eq!(class_of(name), Class::Refuse, "{name}");
    }
    assert_eq!(get(&idol(), "/action=FooBar"), "change");
}

#[test]
fn changes_that_cannot_wait() {
    assert_eq!(class_of("CategoryMove"), Class::LiveChange);
    assert_eq!(class_of("categorysetdetails"), Class::LiveChange);
}

#[test]
fn parameters_turn_a_query_into_a_change() {
    let rules = idol();
    for action in [
        "Query",
        "Suggest",
        "SuggestOnText",
        "GetContent",
        "List",
        "GetQueryTagValues",
        "CategoryQuery",
        "CategorySuggestFromText",
        "AgentGetResults",
        "ProfileGetResults",
    ] {
        for parameter in ["Delete", "delete=false", "STATE=x", "StoreState=true", "%53toreState=true", "Delete=%00"] {
            assert_eq!(get(&rules, &format!("/action={action}&Text=x&{parameter}")), "change", "{action} {parameter}");
            assert_eq!(get(&rules, &format!("/?{parameter}&a={action}")), "change", "{action} {parameter}");
            let body = format!("x=y&{parameter}");
            let split = asked("POST", "/action=Query", None, Some(body.as_bytes()));
            assert_eq!(word(&rules, &split), "change", "{parameter}");
        }
        for parameter in ["Deleted=1", "StateID=x", "StoreStates=true", "Text=Delete", "Text=x%26Delete=1"] {
            assert_eq!(get(&rules, &format!("/action={action}&{parameter}")), "read", "{action} {parameter}");
        }
    }
    // Found by one reading only, and then the stronger class.
    assert_eq!(get(&rules, "/action=Query&Text=x;Delete=1"), "change");
    assert_eq!(get(&rules, "/action=Query&Text=what?Delete=1"), "change");
    let part = b"--B\r\nContent-Disposition: form-data; name=\"delete\"\r\n\r\n1\r\n--B--\r\n";
    let split = asked("POST", "/action=Query", Some("multipart/form-data; boundary=B"), Some(part));
    assert_eq!(word(&rules, &split), "change");
    // `State` filters a queue's entries there.
    assert_eq!(get(&rules, "/action=QueueInfo&QueueName=x&QueueAction=getStatus&State=finished"), "read");
    assert_eq!(get(&rules, "/action=UserRead&Delete=1"), "read");
}

#[test]
fn a_queue_is_changed_by_whoever_issued_the_token_only() {
    let rules = idol();
    let token = "Token=MTAuMi4xMDUuMzQ6MTIzNDpGRVRDSDoxNDAyOTU3MzY4";
    let issuer: Result<_, &str> = Ok(Some("10.2.105.34:1234".to_owned()));
    let found = |asked: &Asked<'_>| {
        let decision = decided(&rules, asked).expect("one reading");
        assert_eq!(decision.class, Class::Read, "{asked:?}");
        let token = decision.token(asked).map(|token| token.map(|token| token.issuer.into())).map_err(Fault::code);
        (decision.rule.issuer_only(), decision.rule.safe(), token)
    };
    // Whether it only looks, and is thus safe to send again.
    for (parameters, looks) in [
        ("QueueName=x", true),
        ("QueueName=x&QueueAction=GETSTATUS", true),
        ("QueueName=x&QueueAction=%67etStatus", true),
        ("queueaction=progress&QueueName=x", true),
        ("QueueAction=queuestatus&State=finished&MaxResults=6", true),
        ("QueueAction=getActionParameters", true),
        ("QueueAction=cancel", false),
        ("QueueAction=Pause", false),
        ("QueueAction=resume", false),
        ("QueueAction=changePriority", false),
        ("QueueAction=duplicate", false),
        ("QueueAction=somethingNew", false),
        ("QueueAction=getStatus&QueueAction=cancel", false),
        ("QueueAction=getStatus;cancel", false),
        ("QueueAction", false),
        ("QueueAction=", false),
        ("QueueAction=getStatus%00", false),
    ] {
        let without = format!("/action=QueueInfo&{parameters}");
        let missing = if looks { Ok(None) } else { Err("token_missing") };
        assert_eq!(found(&asked("GET", &without, None, None)), (!looks, looks, missing), "{without}");
        let (before, behind) = (format!("/?{token}&a=queueinfo&{parameters}"), format!("{without}&{token}"));
        let body = format!("{parameters}&{token}");
        let lines = body.replace('&', "\r\n");
        for asked in [
            asked("GET", &before, None, None),
            asked("GET", &behind, None, None),
            asked("POST", "/a=QueueInfo", None, Some(body.as_bytes())),
            asked("POST", "/?a=QueueInfo", Some("text/plain"), Some(lines.as_bytes())),
        ] {
            assert_eq!(found(&asked), (!looks, looks, issuer.clone()), "{asked:?}");
        }
    }
    let part = |name: &str, text: &str| format!("--B\r\nContent-Disposition: form-data; name={name}\r\n\r\n{text}\r\n");
    let token = token.replace("Token=", "");
    let body = part("QueueAction", "progress") + &part("token", &token) + "--B--";
    let parts = asked("POST", "/a=QueueInfo", Some("multipart/form-data; boundary=B"), Some(body.as_bytes()));
    assert_eq!(found(&parts), (false, true, issuer.clone()));
    for (target, code) in [
        (format!("/action=QueueInfo&Token={}", &token[1..]), "token_invalid"),
        (format!("/action=QueueInfo&Token={token},{token}"), "token_invalid"),
        (format!("/action=QueueInfo&Token={token}&token=x"), "action_ambiguous"),
    ] {
        assert_eq!(found(&asked("GET", &target, None, None)).2, Err(code), "{target}");
    }
    // Encoded, or given twice with one value.
    for target in [
        format!("/action=QueueInfo&Token=%4dTAu{}", &token[4..]),
        format!("/action=QueueInfo&Token={token}&TOKEN={token}"),
    ] {
        assert_eq!(found(&asked("GET", &target, None, None)).2, issuer, "{target}");
    }
    // Elsewhere a parameter of this name is the children's affair.
    let query = format!("/action=Query&Token={token}");
    assert_eq!(found(&asked("GET", &query, None, None)), (false, true, Ok(None)));
    let long = vec![b'x'; crate::limits::OWN_BODY_BYTES_MAX + 1];
    assert_eq!(found(&asked("POST", "/a=QueueInfo", None, Some(&long))).2, Err("body_too_large"));
    let text = explain(&rules, &format!("/action=QueueInfo&QueueAction=cancel&Token={token}")).expect("one reading");
    assert!(text.ends_with("to      the child that issued its token, 10.2.105.34:1234, and never twice\n"), "{text}");
    assert_eq!(explain(&rules, "/action=QueueInfo&QueueAction=cancel").err(), Some(Fault::TokenMissing));
}

/// Every form in which a category is created without an id, and what makes it one that has it.
#[test]
fn a_category_gets_an_id_once() {
    const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
    const PARTS: Option<&str> = Some("multipart/form-data; boundary=B");
    let part = |name: &str, text: &str| {
        format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n--B--\r\n")
    };
    let (create, name) = (part("action", "CategoryCreate"), part("Name", "x"));
    let rules = idol();
    for (target, content_type, body, added) in [
        ("/action=CategoryCreate&Name=x", None, None, "/action=CategoryCreate&Name=x&Category=100000000000000007"),
        ("/?a=categorycreate", None, None, "/?a=categorycreate&Category=100000000000000007"),
        ("/", FORM, Some("action=CategoryCreate"), "action=CategoryCreate&Category=100000000000000007"),
        ("/", Some("text/plain"), Some("action=CategoryCreate\r\nName=x"), "/?Category=100000000000000007"),
        ("/a=CategoryCreate", FORM, Some("Name=x"), "/a=CategoryCreate&Category=100000000000000007"),
        ("/", PARTS, Some(create.as_str()), "/?Category=100000000000000007"),
        ("/a=CategoryCreate", PARTS, Some(name.as_str()), "/a=CategoryCreate&Category=100000000000000007"),
        ("/a=CategoryCreate", Some("application/json"), Some("{}"), "/a=CategoryCreate&Category=100000000000000007"),
        // It has one, or it is another action.
        ("/action=CategoryCreate&Category=5", None, None, ""),
        ("/action=CategoryCreate&cat%65gory=5", None, None, ""),
        ("/a=CategoryCreate", FORM, Some("CATEGORY=5"), ""),
        ("/Category=5", FORM, Some("action=CategoryCreate"), ""),
        ("/action=CategoryCreates", None, None, ""),
        ("/action=CategoryDelete", None, None, ""),
    ] {
        let asked = asked("POST", target, content_type, body.map(str::as_bytes));
        let decision = decided(&rules, &asked).expect("one reading");
        assert_eq!(decision.class, Class::Change);
        let found = decision.injection.map_or(String::new(), |injection| {
            let came = if injection.into == Into::Body { body.expect("a body") } else { target };
            format!("{came}{}", injection.text(7))
        });
        assert_eq!(found, added, "{target} {body:?}");
        if !added.is_empty() && !added.starts_with('/') {
            let again = super::asked("POST", target, content_type, Some(added.as_bytes()));
            assert!(decided(&rules, &again).expect("one reading").injection.is_none(), "{added}");
        }
    }
    let decision = explain(&rules, "/action=CategoryCreate").expect("one reading");
    assert!(decision.contains("injects  Category with 18 random digits, in the target\n"), "{decision}");
    let inject = Inject { parameter: "a b".into(), digits: 1 };
    let rule = Rule::aci("x", Class::Change).expect("rule");
    assert_eq!(rule.with_inject(inject.clone()).err(), Some(RuleError::Parameter));
    let rule = Rule::http(&["PUT"], "*", Class::Change).expect("rule");
    assert_eq!(rule.with_inject(inject).err(), Some(RuleError::Dialect(0)));
}
