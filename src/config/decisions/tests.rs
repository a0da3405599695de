//! What decisions make of a configuration, and that their text is the same decisions.

use super::*;

fn config(children: &[(&str, u16)]) -> Config {
    let mut text = "[[listen]]\naddress = \"0.0.0.0:9060\"\ngroup = \"g\"\n[group.g]\n".to_owned();
    for (name, port) in children {
        write!(text, "[[group.g.child]]\nname = \"{name}\"\naddress = \"10.0.0.1:{port}\"\n").expect("a String");
    }
    Config::parse(&text, "test").expect("a good configuration")
}

fn decisions(decide: impl FnOnce(&mut GroupDecisions)) -> Decisions {
    let mut decisions = Decisions::default();
    decide(decisions.group_mut("g"));
    decisions
}

fn child(decide: impl FnOnce(&mut ChildDecisions)) -> ChildDecisions {
    let mut child = ChildDecisions::default();
    decide(&mut child);
    child
}

/// The children as they stand, by place.
fn places(config: &Config) -> Vec<(usize, &str, &str)> {
    config.groups[0].children.iter().map(|child| (child.place, &*child.name, &*child.authority)).collect()
}

#[test]
fn the_text_is_the_decisions() {
    // Every combination of what can be decided, under names that need quotes.
    let mut decisions = Decisions::default();
    let mut number = 0;
    for added in [None, Some(7)] {
        for address in [None, Some("[2001:db8::1]:80".to_owned()), Some("a.example:81".to_owned())] {
            for (removed, weight) in [(false, None), (true, None), (false, Some(0)), (false, Some(10_000))] {
                for wanted in [None, Some(Wanted::Offline), Some(Wanted::Draining)] {
                    if added.is_some() && (removed || address.is_none()) {
                        continue;
                    }
                    number += 1;
                    let address = address.clone();
                    let made =
                        ChildDecisions { added, removed, address, weight, wanted, needs_reseed: number % 2 == 0 };
                    let group = if number % 3 == 0 { "a.b" } else { "g-1" };
                    *decisions.child_mut(group, &format!("c.{number}")) = made;
                }
            }
        }
    }
    decisions.group_mut("a.b").primary = Some("c.3".to_owned());
    decisions.tidy();
    let text = decisions.to_string();
    assert!(text.starts_with("# What was decided"));
    assert_eq!(Decisions::parse(&text, "operator.toml"), Ok(decisions), "{text}");
    assert_eq!(Decisions::parse(&Decisions::default().to_string(), ""), Ok(Decisions::default()));
}

#[test]
fn no_cut_of_the_text_panics_or_brings_a_child_back() {
    let made = decisions(|group| {
        group.children.insert("a".into(), child(|child| child.removed = true));
        group.children.insert("z".into(), child(|child| (child.added, child.address) = (Some(3), Some("b:1".into()))));
    });
    let text = made.to_string();
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        // A cut at the end of a table cannot be told from a shorter file; that is why it takes its name when it is whole.
        if let Ok(cut) = Decisions::parse(&text[..end], "cut") {
            assert!(cut.groups.values().all(|group| group.children.len() <= 2));
        }
    }
}

#[test]
fn what_was_decided_is_applied_and_told() {
    let filed = config(&[("a", 1), ("b", 2), ("c", 3)]);
    let mut made = decisions(|group| {
        group.primary = Some("d".into());
        group.children.insert("a".into(), child(|child| child.removed = true));
        group.children.insert("b".into(), child(|child| child.address = Some("10.0.0.9:2".into())));
        group
            .children
            .insert("c".into(), child(|child| (child.weight, child.wanted) = (Some(7), Some(Wanted::Offline))));
        group.children.insert(
            "d".into(),
            child(|child| {
                (child.added, child.address) = (Some(5), Some("10.0.0.1:4".into()));
                child.needs_reseed = true;
            }),
        );
    });
    let before = made.clone();
    let mut now = config(&[("a", 1), ("b", 2), ("c", 3)]);
    assert_eq!(made.apply(&mut now), Vec::<String>::new());
    assert_eq!(made, before, "all of it holds");
    assert_eq!(places(&now), [(1, "b", "10.0.0.9:2"), (2, "c", "10.0.0.1:3"), (5, "d", "10.0.0.1:4")]);
    let group = &now.groups[0];
    assert_eq!((group.primary, group.places), (5, 19));
    assert_eq!((group.children[1].weight, group.children[1].ordered.wanted), (7, Wanted::Offline));
    assert!(group.children[2].ordered.needs_reseed);
    assert_eq!(
        made.against(&filed),
        [
            "group g: primary d, not a",
            "child g/a: removed",
            "child g/b: at 10.0.0.9:2, not 10.0.0.1:2",
            "child g/c: weight 7, not 100",
            "child g/c: offline",
            "child g/d: added at 10.0.0.1:4, engine 5",
            "child g/d: not attached yet",
        ]
    );
}

#[test]
fn what_the_file_says_itself_is_no_decision() {
    let mut made = decisions(|group| {
        group.primary = Some("a".into());
        group.children.insert("a".into(), child(|child| child.weight = Some(100)));
        group.children.insert("b".into(), child(|child| child.address = Some("10.0.0.1:2".into())));
    });
    let mut now = config(&[("a", 1), ("b", 2)]);
    assert_eq!(made.apply(&mut now), Vec::<String>::new());
    assert_eq!(made, Decisions::default());
}

#[test]
fn what_does_not_fit_is_told_once_and_forgotten() {
    let added = |place: usize, address: &str| {
        child(|child| (child.added, child.address) = (Some(place), Some(address.to_owned())))
    };
    let mut made = decisions(|group| {
        group.primary = Some("gone".into());
        // The file has it now; it stays what it was otherwise.
        group.children.insert("b".into(), ChildDecisions { weight: Some(3), ..added(4, "10.0.0.7:1") });
        group.children.insert("gone".into(), child(|child| child.wanted = Some(Wanted::Offline)));
        group.children.insert("twin".into(), added(5, "10.0.0.1:1"));
        group.children.insert("us".into(), added(6, "127.0.0.1:9060"));
        // Its place is a configured child's now.
        group.children.insert("placed".into(), added(1, "10.0.0.1:5"));
        group.children.insert("a".into(), child(|child| child.address = Some("10.0.0.1:2".into())));
    });
    made.group_mut("other").primary = Some("x".to_owned());
    let mut now = config(&[("a", 1), ("b", 2)]);
    let told = made.apply(&mut now);
    for part in [
        "no group \"other\" any more",
        "child g/b: the configuration has it now, and counts",
        "no child g/gone any more",
        "child g/twin, which was added, is left out: child \"a\" has this address already",
        "child g/us, which was added, is left out: this is our own listener",
        "child g/placed has another place now: engine 2, not 1",
        "child g/a cannot be at 10.0.0.1:2, where it was moved: child \"b\" has this address already; it is at 10.0.0.1:1",
        "its primary \"gone\" is not there any more, and \"a\" leads",
    ] {
        assert!(told.iter().any(|line| line.contains(part)), "no `{part}` in {told:#?}");
    }
    assert_eq!(told.len(), 8, "{told:#?}");
    assert_eq!(places(&now), [(0, "a", "10.0.0.1:1"), (1, "b", "10.0.0.1:2"), (2, "placed", "10.0.0.1:5")]);
    assert_eq!((now.groups[0].primary, now.groups[0].children[1].weight), (0, 3));
    let mut again = config(&[("a", 1), ("b", 2)]);
    assert_eq!(made.apply(&mut again), Vec::<String>::new(), "{made}");
    assert_eq!(places(&again), places(&now));
}

#[test]
fn the_last_child_stays() {
    let mut made = decisions(|group| {
        for name in ["a", "b"] {
            group.children.insert(name.into(), child(|child| child.removed = true));
        }
    });
    let mut now = config(&[("a", 1), ("b", 2)]);
    let told = made.apply(&mut now);
    assert!(told.len() == 1 && told[0].contains("child g/b is the last one left"), "{told:?}");
    assert_eq!(places(&now), [(1, "b", "10.0.0.1:2")]);
    // One that was added makes room for it, though it is judged later.
    assert_eq!(now.groups[0].primary, 1);
}
