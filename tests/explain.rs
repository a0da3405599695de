//! `antiphon explain` and `/explain`: what an action would cost on each child, and what was learnt of real answers.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use serde_json::Value;
use support::aci::AciServer;
use support::client::{self, Ask, Client};
use support::proxy::{Proxy, Setup, assert_says, text};
use support::{Driver, eventually, for_each_driver};

const QUERY: &str = "/action=Query&Text=x&MaxResults=10";
const ASKED: &str = "/explain?request=%2Faction%3DQuery%26Text%3Dx%26MaxResults%3D10&group=g";

fn setup(driver: Driver, children: &[AciServer]) -> Setup {
    let setup = Setup::new(driver, "aci", "idol").group("policy", text("predictive"));
    ["a", "b", "c"].into_iter().zip(children).fold(setup, |setup, (name, child)| setup.child(name, child.port()))
}

/// What `/explain` says of the one group, as a value.
fn explained(proxy: &Proxy, path: &str) -> Value {
    let answer = proxy.admin_get(path).expect("an answer");
    assert_eq!(answer.status(), 200, "{answer}");
    serde_json::from_slice::<Value>(&answer.body).expect("JSON")[0].take()
}

#[test]
fn what_was_learnt_is_explained() {
    let children = AciServer::several::<3>();
    for_each_driver(|driver| {
        let proxy = Proxy::start(&setup(driver, &children));
        let before = explained(&proxy, ASKED);
        assert_eq!(before["costs"]["kind"], Value::Null, "{before:#}");
        let reads = 30;
        for _ in 0..reads {
            assert_eq!(client::get(proxy.port, QUERY).expect("an answer").status(), 200);
        }
        let added = client::get(proxy.port, "/action=UserAdd&UserName=x").expect("an answer");
        assert_eq!(added.status(), 200, "{added}");
        let after = explained(&proxy, ASKED);
        assert_eq!(after["class"], "read", "{after:#}");
        let costs = &after["costs"];
        assert_eq!(costs["kind"]["name"], "query (size 2)", "{after:#}");
        assert!((1..=reads).contains(&costs["kind"]["samples"].as_i64().expect("a number")), "{after:#}");
        let children = costs["children"].as_array().expect("a list");
        let names: Vec<_> = children.iter().map(|child| child["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["a", "b", "c"], "{after:#}");
        assert!(names.contains(&costs["chosen"].as_str().expect("a name")), "{after:#}");
        assert!(children.iter().any(|child| child["last_seen_us"].as_f64() > Some(0.0)), "{after:#}");
        // The change was learnt under a class of its own, from each child.
        let learnt = costs["learnt"].as_array().expect("a list");
        assert!(learnt.iter().any(|kind| kind["name"] == "useradd"), "{after:#}");

        // The same on the terminal, over the socket that the configuration names.
        let ran = proxy.command(&["explain", QUERY]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        assert_says(
            &ran.stdout,
            &["policy predictive: read", "query (size 2)", "a read would go to ", "> ", "useradd"],
        );
        let ran = proxy.command(&["explain", "/action=UserAdd&UserName=y"]);
        assert_says(&ran.stdout, &["change", "a change goes to every child"]);
        let ran = proxy.command(&["explain", "/action=Query&action=UserAdd"]);
        assert_says(&ran.stdout, &["refused with 400 action_ambiguous"]);
        let ran = proxy.command(&["explain", "--group", "nothing", QUERY]);
        assert_eq!(ran.code, Some(1), "{}", ran.text());
        assert_says(&ran.stderr, &["no group \"nothing\""]);

        let metrics = proxy.admin_get("/metrics").expect("an answer").text();
        for name in ["antiphon_child_predicted_cost_seconds", "antiphon_child_cost_error_ratio"] {
            let series = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
            assert_eq!(series, 3, "{name}: {metrics}");
        }
    });
}

#[test]
fn a_child_that_is_down_is_no_candidate() {
    for_each_driver(|driver| {
        let mut children = AciServer::several::<3>();
        let setup = setup(driver, &children).set("group.g.cost", "slow_start", text("15m"));
        let proxy = Proxy::start(&setup);
        children[1].stop();
        // A read finds out, and is answered by another child.
        eventually("b is found down", || {
            assert_eq!(client::get(proxy.port, QUERY).expect("an answer").status(), 200);
            (proxy.child_state("b") == "down").then_some(())
        });
        let told = explained(&proxy, ASKED);
        let costs = &told["costs"];
        assert_eq!(costs["children"][1]["candidate"], false, "{told:#}");
        assert_ne!(costs["chosen"], "b", "{told:#}");
        let ran = proxy.command(&["explain", QUERY]);
        assert_says(&ran.stdout, &["down, not a candidate"]);
        children[1].start_again();
        proxy.wait_child_state("b", "up");
        let told = explained(&proxy, ASKED);
        assert_eq!(told["costs"]["children"][1]["candidate"], true, "{told:#}");
        assert!(told["costs"]["children"][1]["start_factor"].as_f64() > Some(1.0), "just back: {told:#}");
    });
}

#[test]
fn nothing_is_left_of_clients_that_went_away() {
    let children = AciServer::several::<3>();
    for_each_driver(|driver| {
        let proxy = Proxy::start(&setup(driver, &children));
        children.iter().for_each(AciServer::close_gate);
        let mut gone = Vec::new();
        for number in 0..4 {
            let mut client = Client::connect(proxy.port).expect("a connection");
            let target = format!("/action=UserAdd&UserName=gone{number}");
            client.send(&Ask::get(&target).octets("g")).expect("sent");
            gone.push(client);
        }
        let load = |name: usize| explained(&proxy, ASKED)["costs"]["children"][name]["in_flight"].as_u64();
        // One at a time is under way on each child: their lanes'.
        eventually("a change on each child", || (0..3).all(|child| load(child) == Some(1)).then_some(()));
        drop(gone);
        children.iter().for_each(AciServer::open_gate);
        eventually("nothing in flight", || (0..3).all(|child| load(child) == Some(0)).then_some(()));
    });
}

#[test]
fn other_policies_predict_nothing() {
    let children = AciServer::several::<1>();
    let proxy = Proxy::start(&setup(Driver::Epoll, &children).group("policy", text("least_conn")));
    let ran = proxy.command(&["explain", QUERY]);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    assert_says(&ran.stdout, &["policy least_conn: read", "under `policy = \"predictive\"` only"]);
    for nothing in ["", "garbage"] {
        let ran = proxy.command(&["explain", nothing]);
        assert_eq!(ran.code, Some(1), "{}", ran.text());
        assert_says(&ran.stderr, &["no request: write METHOD TARGET"]);
    }
    for query in ["", "?request=/a&request=/b"] {
        let answer = proxy.socket_get(&format!("/explain{query}")).expect("an answer");
        assert_eq!(answer.status(), 400, "{answer}");
        let text = answer.text();
        assert!(text.starts_with("say `request=` once") && text.ends_with('\n'), "{text:?}");
    }
}
