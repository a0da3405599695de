//! The administration side: what it shows, over TCP and over the Unix socket, and what an operator moves with
//! `antiphon child` and `antiphon status`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::thread;
use std::time::Duration;

use support::aci::AciServer;
use support::client::{self, Ask};
use support::proxy::{GROUP, Proxy, Setup, antiphon, assert_says, text};
use support::scripted::Scripted;
use support::{Driver, TempDir, eventually, for_each_driver};

fn plain(driver: Driver, child: u16) -> Setup {
    Setup::new(driver, "http", "http").child("a", child)
}

#[test]
fn the_administration_side_shows_how_it_is() {
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let proxy = Proxy::start(&plain(driver, child.port()));
        assert_eq!(client::get(proxy.port, "/page").expect("an answer").status(), 200);
        for path in ["/healthz", "/readyz", "/metrics", "/status"] {
            for answer in [proxy.admin_get(path), proxy.socket_get(path)] {
                let answer = answer.unwrap_or_else(|why| panic!("{path}: {why}"));
                assert_eq!(answer.status(), 200, "{path}: {answer}");
            }
        }
        assert_eq!(proxy.admin_get("/nothing").expect("an answer").status(), 404);
        // Not where clients come in: there it is a path like others.
        assert_eq!(client::get(proxy.port, "/status").expect("an answer").text(), "ok");
        let status = proxy.status();
        let name = if driver == Driver::Uring { "io_uring" } else { "epoll" };
        assert_eq!(status["driver"], name, "{status:#}");
        assert!(status["changes_kept"].as_str().is_some_and(|text| text.contains("memory")), "{status:#}");
        assert_eq!(status["groups"][0]["primary"], "a", "{status:#}");
        eventually("its counters", || {
            let metrics = proxy.admin_get("/metrics").expect("an answer").text();
            assert_exposition(&metrics);
            let served = metrics.lines().any(|line| {
                line.starts_with("antiphon_requests_total{") && line.contains("kind=\"read\"") && !line.ends_with(" 0")
            });
            served.then_some(())
        });
    });
}

/// Lines of the Prometheus text format: comments, or a name, labels and a number.
#[track_caller]
fn assert_exposition(metrics: &str) {
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("`{line}`"));
        assert!(value.parse::<f64>().is_ok(), "`{line}`");
        assert!(series.starts_with("antiphon_"), "`{line}`");
        assert_eq!(series.contains('{'), series.ends_with('}'), "`{line}`");
    }
    for name in ["antiphon_build_info", "antiphon_io_backend_info", "antiphon_child_state", "antiphon_requests_total"] {
        assert!(metrics.contains(name), "no {name} in:\n{metrics}");
    }
}

#[test]
fn orders_need_more_than_a_web_page_can_send() {
    let child = Scripted::start(Vec::new());
    let proxy = Proxy::start(&plain(Driver::Epoll, child.port()));
    let order = format!("/v1/children/{GROUP}/a/offline");
    let answer = Ask::new("POST", &order).body(b"").at(proxy.admin).expect("an answer");
    assert_eq!(answer.status(), 403, "{answer}");
    assert_eq!(proxy.child_state("a"), "up");
    let answer = Ask::new("POST", &order).field("Antiphon-Admin", "1").body(b"").at(proxy.admin).expect("an answer");
    assert_eq!(answer.status(), 200, "{answer}");
    assert_eq!(proxy.child_state("a"), "offline");
    for order in [format!("/v1/children/{GROUP}/a/weight?to=5&to=6"), "/v1/children/a/weight?to=5&to=6".to_owned()] {
        let answer =
            Ask::new("POST", &order).field("Antiphon-Admin", "1").body(b"").at(proxy.admin).expect("an answer");
        assert_eq!((answer.status(), answer.text().as_str()), (400, "an order takes one value: write `?to=` once\n"));
    }
}

#[test]
fn the_operator_takes_a_child_out_and_back_and_makes_it_primary() {
    for_each_driver(|driver| {
        let children = AciServer::several::<2>();
        let setup = Setup::new(driver, "aci", "idol")
            .group("policy", text("failover"))
            .probe("request", text("GET /action=GetPid"))
            .child("a", children[0].port())
            .child("b", children[1].port());
        let proxy = Proxy::start(&setup);
        proxy.wait_child_state("b", "up");
        let order = |words: &[&str]| {
            let ran = proxy.command(&[&["child"], words].concat());
            assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.text());
            ran.stdout
        };
        let read = || assert_eq!(client::get(proxy.port, "/action=Query&Text=x").expect("an answer").status(), 200);
        let add = |user: &str| {
            let answer = client::get(proxy.port, &format!("/action=UserAdd&UserName={user}")).expect("an answer");
            assert_eq!(answer.status(), 200, "{answer}");
        };
        read();
        assert_eq!((children[0].reads().len(), children[1].reads().len()), (1, 0), "reads go to the primary");

        order(&["primary", "b"]);
        assert_eq!(proxy.status()["groups"][0]["primary"], "b");
        read();
        assert_eq!(children[1].reads().len(), 1, "reads go to the new primary");

        order(&["offline", "b"]);
        proxy.wait_child_state("b", "offline");
        let probes = children[1].probes();
        read();
        add("while-away");
        assert_eq!(children[1].reads().len(), 1, "no reads");
        assert!(children[1].changes().is_empty(), "no changes");
        assert!(order(&["ls"]).contains("offline"));
        // A sibling's down interval is 100 ms: probes of an offline child would show by now.
        thread::sleep(Duration::from_millis(500));
        assert!(children[1].probes() <= probes + 1, "no probes, save one that was under way");

        order(&["online", "b"]);
        proxy.wait_child_state("b", "up");
        eventually("it has what it missed", || (children[1].changes().len() == 1).then_some(()));
        add("when-back");
        assert_eq!(children[1].changes().len(), 2);

        let ran = proxy.command(&["child", "offline", "nobody"]);
        assert_eq!(ran.code, Some(1), "{}", ran.text());
        assert_says(&ran.stderr, &["nobody", "child ls"]);
        let ran = proxy.command(&["status"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        assert_says(&ran.stdout, &[GROUP, "a", "b", "up"]);
    });
}

#[test]
fn a_command_without_a_running_antiphon_says_so() {
    let dir = TempDir::new("nobody");
    let socket = dir.join("admin.sock");
    let ran = antiphon(&["status", "--socket", &socket.to_string_lossy()]);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert_says(&ran.stderr, &[&socket.to_string_lossy(), "is it running?"]);
}

/// The primary dies, the next child leads, and goes on leading when the first returns.
#[test]
fn failover_is_sticky() {
    for_each_driver(|driver| {
        let mut children = AciServer::several::<2>();
        let setup = Setup::new(driver, "aci", "idol").group("policy", text("failover"));
        let setup = setup.child("a", children[0].port()).child("b", children[1].port());
        let proxy = Proxy::start(&setup);
        proxy.wait_child_state("a", "up");
        proxy.wait_child_state("b", "up");
        let read = || client::get(proxy.port, "/action=Query&Text=x").expect("an answer").status();
        assert_eq!(read(), 200);
        assert_eq!(children[0].reads().len(), 1);
        children[0].stop();
        // The first may meet the dead connection: it is tried again on the other child.
        assert_eq!(read(), 200);
        eventually("b leads", || (proxy.status()["groups"][0]["primary"] == "b").then_some(()));
        children[0].start_again();
        proxy.wait_child_state("a", "up");
        for _ in 0..5 {
            assert_eq!(read(), 200);
        }
        assert_eq!(children[0].reads().len(), 1, "the first does not take over by itself");
        assert_eq!(proxy.status()["groups"][0]["primary"], "b");
    });
}

/// The value of a series, by the beginning of its name and all of these labels.
fn series(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| {
        line.split_once('{').is_some_and(|(its, _)| its == name) && labels.iter().all(|label| line.contains(label))
    };
    metrics.lines().find(is_it)?.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn what_a_child_lacks_and_what_is_kept_for_it_is_shown() {
    let children = AciServer::several::<2>();
    let dir = TempDir::new("admin-journal");
    let setup = Setup::new(Driver::Epoll, "aci", "idol")
        .probe("request", text("GET /action=GetPid"))
        .child("a", children[0].port())
        .child("b", children[1].port())
        .set("state", "directory", text(&dir.join("antiphon").to_string_lossy()));
    let proxy = Proxy::start(&setup);
    ["a", "b"].iter().for_each(|child| proxy.wait_child_state(child, "up"));
    let order = |words: &[&str]| {
        let ran = proxy.command(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.text());
        ran.stdout
    };
    order(&["child", "offline", "b"]);
    proxy.wait_child_state("b", "offline");
    for user in 0..5 {
        let answer = client::get(proxy.port, &format!("/action=UserAdd&UserName=u{user}")).expect("an answer");
        assert_eq!(answer.status(), 200, "{answer}");
    }
    eventually("what b lacks", || {
        let group = proxy.status()["groups"][0].clone();
        let (journal, b) = (&group["journal"], &group["children"][1]);
        let is_shown = b["lag"] == 5 && b["owed"]["bytes"].as_u64() > Some(0) && journal["pinned_by"] == "b";
        let is_kept = journal["given"] == 5 && journal["durable"] == 5 && journal["batch_changes"] == 5;
        (is_shown && is_kept && journal["failed"].is_null() && b["owed"]["oldest_age_s"].is_u64()).then_some(())
    });
    assert_says(&order(&["status"]), &["journal: ", "changes 1 to 5", "what b lacks is kept", "lacks "]);
    assert_says(&order(&["queue", "ls"]), &["what b lacks is kept", " old)"]);
    let metrics = proxy.admin_get("/metrics").expect("an answer").text();
    assert_exposition(&metrics);
    let (a, b) = ("child=\"a\"", "child=\"b\"");
    assert_eq!(series(&metrics, "antiphon_journal_pinned", &[a]), Some(0.0), "{metrics}");
    assert_eq!(series(&metrics, "antiphon_journal_pinned", &[b]), Some(1.0), "{metrics}");
    assert!(series(&metrics, "antiphon_replay_pending_bytes", &[b]) > Some(0.0), "{metrics}");
    assert_eq!(series(&metrics, "antiphon_journal_failed", &[]), Some(0.0), "{metrics}");
    assert_eq!(series(&metrics, "antiphon_journal_changes_total", &[]), Some(5.0), "{metrics}");
    let syncs = series(&metrics, "antiphon_journal_sync_seconds_count", &[]);
    assert!(
        syncs > Some(0.0) && syncs == series(&metrics, "antiphon_journal_sync_seconds_bucket", &["+Inf"]),
        "{metrics}"
    );

    order(&["child", "online", "b"]);
    proxy.wait_child_state("b", "up");
    eventually("that nobody lacks anything", || {
        let group = proxy.status()["groups"][0].clone();
        let b = &group["children"][1];
        (b["lag"] == 0 && b["owed"]["bytes"] == 0 && group["journal"]["pinned_by"].is_null()).then_some(())
    });
    assert_eq!(proxy.admin_get("/readyz").expect("an answer").text(), "ready\n");
}
