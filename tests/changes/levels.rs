//! When a change is answered, level by level, what the reply says of the children, and what can be asked later.

use serde_json::{Value, json};

use crate::store::{Fate, World};
use crate::support::client::{Ask, Client};
use crate::support::message::Response;
use crate::support::proxy::text;
use crate::support::{eventually, eventually_eq, for_each_driver};
use crate::{assert_problem, place};

fn json_of(answer: &Response) -> Value {
    serde_json::from_str(&answer.text()).unwrap_or_else(|why| panic!("{why}: {answer}"))
}

/// What antiphon says became of a change.
#[track_caller]
fn told(port: u16, url: &str) -> Value {
    let answer = Ask::get(url).at(port).expect("an answer");
    assert_eq!(answer.status(), 200, "{answer}");
    assert_eq!(answer.field("Content-Type").as_deref(), Some("application/json"), "{answer}");
    assert_eq!(answer.field("Cache-Control").as_deref(), Some("no-store"), "{answer}");
    json_of(&answer)
}

#[track_caller]
fn children(answer: &Response) -> String {
    answer.field("Antiphon-Children").unwrap_or_else(|| panic!("which children had it? {answer}"))
}

// === durable ===

#[test]
fn a_durable_change_is_accepted_at_once_and_followed_to_its_end() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("ack", text("durable")));
        world.stores.iter().for_each(|store| store.gate.close());
        let mut client = Client::connect(world.proxy.port).expect("a connection");
        let answer = client.ask(&Ask::new("POST", "/later").body(b"x")).expect("an answer");
        assert_eq!(answer.status(), 202, "{answer}");
        let (epoch, sequence) = place(&answer);
        assert_eq!((sequence, children(&answer).as_str()), (1, "a=pending, b=pending"));
        let url = answer.field("Location").expect("where to ask");
        assert_eq!(url, format!("/.antiphon/v1/changes/{epoch}:1"));
        assert_eq!(
            json_of(&answer),
            json!({ "sequence": format!("{epoch}:1"), "state": "accepted", "status_url": url })
        );
        let pending = json!({ "state": "pending" });
        // The same connection goes on.
        let asked = client.ask(&Ask::get(&url)).expect("an answer");
        assert_eq!(
            json_of(&asked),
            json!({ "sequence": format!("{epoch}:1"), "state": "pending", "children": { "a": pending, "b": pending } })
        );
        let empty = Ask::new("HEAD", &url).at(world.proxy.port).expect("an answer");
        assert_eq!((empty.status(), empty.text().as_str()), (200, ""), "{empty}");
        world.stores.iter().for_each(|store| store.gate.open());
        let done = json!({ "state": "done", "status": 200 });
        eventually_eq(
            "it is done",
            &json!({ "sequence": format!("{epoch}:1"), "state": "done", "children": { "a": done, "b": done } }),
            || told(world.proxy.port, &url),
        );
        assert_eq!(world.stores[0].targets(), ["/later"]);
        world.assert_identical();
    });
}

#[test]
fn a_durable_change_waits_for_children_that_are_all_away() {
    for_each_driver(|driver| {
        let mut world: World<2> = World::http(driver, |setup| setup.group("ack", text("durable")));
        world.stop(0);
        world.stop(1);
        let mut urls = Vec::new();
        for number in 0..5 {
            let answer = world.post(&format!("/{number}")).expect("an answer");
            assert_eq!((answer.status(), children(&answer).as_str()), (202, "a=queued, b=queued"), "{answer}");
            urls.push(answer.field("Location").expect("where to ask"));
        }
        world.stores[1].start_again();
        world.proxy.wait_child_state("b", "up");
        for url in &urls {
            let told = told(world.proxy.port, url);
            assert_eq!((&told["state"], &told["children"]["b"]["status"]), (&json!("done"), &json!(200)), "{told}");
            assert_eq!(told["children"]["a"], json!({ "state": "queued" }), "{told}");
        }
        world.stores[0].start_again();
        world.wait_up();
        assert_eq!(world.stores[0].targets(), ["/0", "/1", "/2", "/3", "/4"]);
        world.assert_identical();
    });
}

/// What no child will ever be sent is not accepted.
#[test]
fn a_durable_change_is_refused_where_every_child_needs_the_operator() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| setup.group("ack", text("durable")));
        world.stores[0].fate([Fate::Lost]);
        let answer = world.post("/lost").expect("an answer");
        assert_eq!(answer.status(), 202, "{answer}");
        let url = answer.field("Location").expect("where to ask");
        eventually_eq("the state", &json!("unknown"), || told(world.proxy.port, &url)["state"].clone());
        assert_eq!(told(world.proxy.port, &url)["children"]["a"]["state"], json!("unknown"));
        // Only taken out can it be given up.
        for word in ["offline", "flush", "online"] {
            world.proxy.command(&["child", word, "a"]);
        }
        world.proxy.wait_child_state("a", "needs_reseed");
        assert_problem(&world.post("/next").expect("an answer"), 503, "no_child");
    });
}

#[test]
fn a_durable_change_of_an_aci_group_is_accepted_in_its_envelope() {
    for_each_driver(|driver| {
        for (errors, status) in [("status", 202), ("envelope", 200)] {
            let world: World<1> =
                World::aci(driver, |setup| setup.group("ack", text("durable")).group("aci_errors", text(errors)));
            let answer = Ask::get("/action=UserAdd&UserName=x").at(world.proxy.port).expect("an answer");
            let url = answer.field("Location").expect("where to ask");
            assert_eq!(answer.status(), status, "{answer}");
            place(&answer);
            for part in ["<action>USERADD</action>", "<response>SUCCESS</response>", &format!("<status_url>{url}<")] {
                assert!(answer.text().contains(part), "{part}: {answer}");
            }
            let answer = Ask::get("/action=UserAdd&UserName=y&ResponseFormat=simplejson").at(world.proxy.port);
            let answer = answer.expect("an answer");
            let data = &json_of(&answer)["autnresponse"]["responsedata"];
            assert_eq!(data["state"], "accepted", "{answer}");
            eventually("it is done", || {
                (told(world.proxy.port, data["status_url"].as_str()?)["state"] == "done").then_some(())
            });
        }
    });
}

// === first, all, quorum ===

#[test]
fn under_first_the_reply_says_who_had_it() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("ack", text("first")));
        world.stores[1].gate.close();
        let answer = world.must("POST", "/1");
        assert_eq!(children(&answer), "a=200, b=pending");
        let (epoch, sequence) = place(&answer);
        let url = format!("/.antiphon/v1/changes/{epoch}:{sequence}");
        assert_eq!(told(world.proxy.port, &url)["state"], "done", "the client was told");
        world.stores[1].gate.open();
        eventually_eq("b too", &json!(200), || told(world.proxy.port, &url)["children"]["b"]["status"].clone());
    });
}

#[test]
fn under_all_the_reply_says_who_refused_and_who_was_away() {
    for_each_driver(|driver| {
        let mut world: World<3> = World::http(driver, |setup| setup);
        assert_eq!(children(&world.must("POST", "/1")), "a=200, b=200, c=200");
        world.stop(2);
        world.stores[1].fate([Fate::Refused(500)]);
        assert_eq!(children(&world.must("POST", "/2")), "a=200, b=500, c=queued");
        world.proxy.wait_child_state("b", "diverged");
        assert_eq!(children(&world.must("POST", "/3")), "a=200, b=diverged, c=queued");
    });
}

#[test]
fn a_quorum_is_enough_with_a_child_away_and_fewer_is_pending() {
    for_each_driver(|driver| {
        let mut world: World<3> = World::http(driver, |setup| setup.group("ack", text("quorum")).group("quorum", "2"));
        world.must("PUT", "/0");
        world.stop(2);
        assert_eq!(children(&world.must("PUT", "/1")), "a=200, b=200, c=queued");
        world.stop(1);
        let answer = world.must_not("PUT", "/2");
        assert_problem(&answer, 504, "pending");
        let (epoch, sequence) = place(&answer);
        assert_eq!(children(&answer), "a=200, b=queued, c=queued");
        let url = format!("/.antiphon/v1/changes/{epoch}:{sequence}");
        let problem = json_of(&answer);
        assert_eq!(
            (&problem["sequence"], &problem["status_url"]),
            (&json!(format!("{epoch}:{sequence}")), &json!(url))
        );
        world.stores[1].start_again();
        world.stores[2].start_again();
        world.wait_up();
        let told = told(world.proxy.port, &url);
        assert_eq!(told["state"], "done", "{told}");
        for name in ["a", "b", "c"] {
            assert_eq!(told["children"][name], json!({ "state": "done", "status": 200 }), "{told}");
        }
        assert_eq!(world.stores[2].targets(), ["/0", "/1", "/2"]);
        world.assert_identical();
    });
}

/// It does not wait for the third, and the third catches up.
#[test]
fn a_quorum_does_not_wait_for_the_slowest() {
    for_each_driver(|driver| {
        let world: World<3> = World::http(driver, |setup| setup.group("ack", text("quorum")));
        world.stores[0].gate.close();
        let answer = world.must("POST", "/1");
        assert_eq!(children(&answer), "a=pending, b=200, c=200");
        world.stores[0].gate.open();
        eventually_eq("a has it too", &vec!["/1".to_owned()], || world.stores[0].targets());
        world.assert_identical();
        world.wait_up();
    });
}

#[test]
fn a_quorum_that_refuses_is_the_answer() {
    for_each_driver(|driver| {
        let world: World<3> = World::http(driver, |setup| setup.group("ack", text("quorum")));
        for store in &world.stores {
            store.fate([Fate::Refused(409)]);
        }
        let answer = world.post("/1").expect("an answer");
        assert_eq!((answer.status(), children(&answer).as_str()), (409, "a=409, b=409, c=409"), "{answer}");
        let (epoch, sequence) = place(&answer);
        assert_eq!(told(world.proxy.port, &format!("/.antiphon/v1/changes/{epoch}:{sequence}"))["state"], "refused");
        world.wait_up();
    });
}

// === asked later ===

#[test]
fn what_is_below_the_reserved_prefix_is_ours() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| setup);
        let (epoch, _) = place(&world.must("POST", "/1"));
        let ask = |method: &'static str, path: &str| Ask::new(method, path).at(world.proxy.port).expect("an answer");
        for path in
            ["/.antiphon", "/.antiphon/", "/.antiphon/v1/changes", "/.antiphon/v2/changes/1:1", "/.antiphon/x?y"]
        {
            assert_problem(&ask("GET", path), 404, "own_unknown");
            assert_problem(&ask("PUT", path), 404, "own_unknown");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = ask(method, &format!("/.antiphon/v1/changes/{epoch}:1"));
            assert_problem(&answer, 405, "own_method");
            assert_eq!(answer.field("Allow").as_deref(), Some("GET, HEAD"), "{answer}");
        }
        for odd in [
            "",
            "1",
            "x:1",
            &format!("{epoch}:+1"),
            &format!("{epoch}:1/"),
            &format!("{epoch}:0"),
            &format!("{epoch}:2"),
        ] {
            assert_problem(&ask("GET", &format!("/.antiphon/v1/changes/{odd}")), 404, "change_unknown");
        }
        let other = ask("GET", "/.antiphon/v1/changes/7:1");
        assert_problem(&other, 404, "change_unknown");
        assert_eq!(json_of(&other)["epoch"], json!(epoch), "{other}");
        assert_eq!(world.stores[0].targets(), ["/1"], "nothing of it reached a child");
        assert_eq!(world.stores[0].reads(), 0);
    });
}

#[test]
fn of_a_change_that_memory_has_let_go_the_cursors_tell() {
    for_each_driver(|driver| {
        let mut world: World<2> = World::http(driver, |setup| {
            setup.set("limits", "action_bytes_max", text("16KiB")).set("limits", "ring_bytes_max", text("64KiB"))
        });
        world.stop(1);
        let (epoch, _) = place(&world.must("POST", "/first"));
        let body = vec![b'x'; 16 * 1024];
        for _ in 0..6 {
            let answer = Ask::new("POST", "/large").body(&body).at(world.proxy.port).expect("an answer");
            assert_eq!(answer.status(), 200, "{answer}");
        }
        assert_eq!(
            told(world.proxy.port, &format!("/.antiphon/v1/changes/{epoch}:1")),
            json!({
                "sequence": format!("{epoch}:1"), "state": "forgotten", "forgotten": true,
                "children": { "a": { "state": "confirmed" }, "b": { "state": "unconfirmed" } },
            })
        );
    });
}

#[test]
fn where_a_listener_leads_to_several_groups_the_group_is_named() {
    for_each_driver(|driver| {
        let routes = "[[listen.route]]\npath = \"/h\"\ngroup = \"h\"\n[[listen.route]]\ngroup = \"g\"\n";
        let other: World<1> = World::http(driver, |setup| setup);
        let tail = format!(
            "\n[group.h]\nack = \"durable\"\n[[group.h.child]]\nname = \"only\"\naddress = \"127.0.0.1:{}\"\n",
            other.proxy.port
        );
        let world: World<1> = World::http(driver, |setup| setup.routes(routes).tail(&tail));
        world.must("POST", "/in-g");
        let answer =
            eventually("the other group is up", || world.post("/h/x").ok().filter(|answer| answer.status() == 202));
        let (epoch, sequence) = place(&answer);
        let url = answer.field("Location").expect("where to ask");
        assert_eq!(url, format!("/.antiphon/v1/changes/{epoch}:{sequence}?group=h"));
        eventually("it is done", || (told(world.proxy.port, &url)["state"] == "done").then_some(()));
        assert!(told(world.proxy.port, &url)["children"]["only"].is_object());
        for query in ["", "?group=", "?group=x", "?Group=h"] {
            let asked = format!("/.antiphon/v1/changes/{epoch}:{sequence}{query}");
            assert_problem(&Ask::get(&asked).at(world.proxy.port).expect("an answer"), 404, "change_unknown");
        }
    });
}

#[test]
fn changes_are_counted_by_what_was_told() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| setup.group("ack", text("durable")));
        world.post("/1").expect("an answer");
        world.post("/2").expect("an answer");
        let metrics = world.proxy.admin_get("/metrics").expect("an answer").text();
        let line = "antiphon_changes_total{group=\"g\",ack=\"durable\",result=\"accepted\"} 2";
        assert!(metrics.contains(line), "{line}\n{metrics}");
    });
}
