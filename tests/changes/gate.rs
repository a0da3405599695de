//! Which reads wait, for what, and what they are told when it does not come.

use std::thread;

use crate::peer::{Server, behave};
use crate::store::World;
use crate::support::client::{Ask, Client};
use crate::support::message::Response;
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::{eventually, eventually_eq, for_each_driver};
use crate::{assert_problem, place};

const FIELD: &str = "Antiphon-Min-Sequence";

fn read_at_least(port: u16, target: &str, value: &str) -> Response {
    Ask::get(target).field(FIELD, value).at(port).unwrap_or_else(|why| panic!("{target}, {value}: {why}"))
}

fn count(proxy: &Proxy, metric: &str) -> u64 {
    let metrics = proxy.admin_get("/metrics").expect("an answer").text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("antiphon_{metric}_total{{group=\"g\"}} ")));
    line.unwrap_or_else(|| panic!("no {metric}: {metrics}")).parse().expect("a number")
}

#[test]
fn a_read_waits_for_the_change_that_it_names() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| {
            setup.group("ack", text("durable")).group("read_wait", text("1s")).group("policy", text("failover"))
        });
        world.stores[0].gate.close();
        let accepted = world.post("/held").expect("an answer");
        assert_eq!(accepted.status(), 202, "{accepted}");
        let sequence = accepted.field("Antiphon-Sequence").expect("a place");
        assert_eq!(world.read().expect("an answer").status(), 200, "who names nothing need not wait");
        // Until the change is there; each wait is bounded, and says so.
        let refused = read_at_least(world.proxy.port, "/x", &sequence);
        assert_problem(&refused, 503, "no_current_child");
        assert!(refused.field("Retry-After").is_some(), "{refused}");
        assert_eq!((count(&world.proxy, "reads_gated"), count(&world.proxy, "reads_gate_refused")), (1, 1));
        let reads = world.stores[0].reads();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                eventually("an answer", || {
                    let answer = read_at_least(world.proxy.port, "/x", &sequence);
                    (answer.status() == 200).then_some(answer)
                })
            });
            eventually("it waits", || (count(&world.proxy, "reads_gated") >= 2).then_some(()));
            assert_eq!(world.stores[0].reads(), reads, "read before the change");
            world.stores[0].gate.open();
            waiting.join().expect("an answer");
        });
        assert_eq!(world.stores[0].targets(), ["/held"]);
        assert_eq!(read_at_least(world.proxy.port, "/x", &sequence).status(), 200);
    });
}

/// Under every gate, and of several children only one that has come so far.
#[test]
fn a_read_that_names_a_change_goes_to_a_child_that_has_it() {
    for_each_driver(|driver| {
        for gate in ["none", "bounded", "strict"] {
            let world: World<2> = World::http(driver, |setup| {
                let setup = setup.group("ack", text("first")).group("read_gate", text(gate));
                if gate == "bounded" { setup.group("reads_behind_max", "1000") } else { setup }
            });
            world.stores[1].gate.close();
            let (epoch, _) = place(&world.must("POST", "/1"));
            let stale = world.reads_at(1) > 0;
            assert_eq!(stale, gate != "strict", "{gate}");
            let before = world.stores[1].reads();
            for _ in 0..8 {
                let answer = read_at_least(world.proxy.port, "/x", &format!("{epoch}:1"));
                assert_eq!(answer.status(), 200, "{gate}: {answer}");
            }
            assert_eq!(world.stores[1].reads(), before, "{gate}");
            // Nothing is asked of a child that every child has done.
            assert_eq!(read_at_least(world.proxy.port, "/x", &format!("{epoch}:0")).status(), 200);
            world.stores[1].gate.open();
        }
    });
}

#[test]
fn a_sequence_that_no_child_can_reach_is_told_at_once() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| setup.group("read_wait", text("30s")));
        let (epoch, _) = place(&world.must("POST", "/1"));
        for value in [format!("{epoch}:2"), format!("{}:1", epoch + 1), "1:0".to_owned()] {
            let answer = read_at_least(world.proxy.port, "/x", &value);
            assert_problem(&answer, 412, "min_sequence_unknown");
            assert!(answer.text().contains(&format!("\"epoch\":{epoch}")), "{answer}");
        }
        let mut client = Client::connect(world.proxy.port).expect("a connection");
        for value in ["", "1", "x", "1:2:3", "-1:2", &format!("{epoch}:1, {epoch}:1"), "99999999999999999999:1"] {
            let answer = client.ask(&Ask::get("/x").field(FIELD, value)).expect("an answer on the same connection");
            assert_problem(&answer, 400, "min_sequence_invalid");
        }
        let twice = Ask::get("/x").field(FIELD, format!("{epoch}:1")).field(FIELD, format!("{epoch}:1"));
        assert_problem(&client.ask(&twice).expect("an answer"), 400, "min_sequence_invalid");
        assert_eq!(world.stores[0].reads(), 0);
    });
}

#[test]
fn the_gate_of_an_aci_group_answers_in_its_envelope() {
    for_each_driver(|driver| {
        let world: World<1> = World::aci(driver, |setup| setup);
        let answer = Ask::get("/action=UserAdd&UserName=x").at(world.proxy.port).expect("an answer");
        let (epoch, _) = place(&answer);
        let query = |value: &str| read_at_least(world.proxy.port, "/action=Query&Text=x", value);
        assert_eq!(query(&format!("{epoch}:1")).status(), 200);
        for (value, status, code) in
            [(format!("{epoch}:2"), 412, "MIN_SEQUENCE_UNKNOWN"), ("1".to_owned(), 400, "MIN_SEQUENCE_INVALID")]
        {
            let answer = query(&value);
            assert_eq!(answer.status(), status, "{answer}");
            assert!(answer.text().contains(code), "{answer}");
            assert!(answer.text().contains("<autnresponse"), "{answer}");
        }
        assert!(query(&format!("{epoch}:2")).text().contains(&epoch.to_string()), "the present epoch is named");
    });
}

#[test]
fn the_field_is_for_us_and_not_for_children() {
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let proxy = Proxy::start(&Setup::new(driver, "http", "http").child("a", child.port()));
        proxy.wait_child_state("a", "up");
        let answer = Ask::new("POST", "/1").field(FIELD, "not:looked:at").at(proxy.port).expect("an answer");
        let sequence = answer.field("Antiphon-Sequence").expect("a place");
        for (name, value) in
            [(FIELD, &*sequence), ("antiphon_min_sequence", "x:y"), ("ANTIPHON-MIN-SEQUENCE", &sequence)]
        {
            let ask = Ask::get("/x").field(name, value).field("Connection", FIELD);
            assert_eq!(ask.at(proxy.port).expect("an answer").status(), 200, "{name}");
        }
        let heads = child.heads();
        assert_eq!(heads.len(), 4);
        for head in heads {
            let text = String::from_utf8_lossy(&head.octets).to_ascii_lowercase();
            assert!(!text.contains("min-sequence") && !text.contains("min_sequence"), "{text}");
        }
    });
}

#[test]
fn under_bounded_a_child_serves_reads_until_it_is_further_behind() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| {
            setup.group("ack", text("first")).group("read_gate", text("bounded")).group("reads_behind_max", "2")
        });
        world.stores[1].gate.close();
        for number in 1..=2 {
            world.must("POST", &format!("/{number}"));
            assert!(world.reads_at(1) > 0, "{number} behind");
        }
        world.must("POST", "/3");
        assert_eq!(world.reads_at(1), 0, "three behind");
        world.stores[1].gate.open();
        eventually("b serves reads again", || (world.reads_at(1) > 0).then_some(()));
        world.assert_identical();
    });
}

#[test]
fn under_none_a_child_serves_reads_however_slow_it_is() {
    for_each_driver(|driver| {
        let world: World<2> =
            World::http(driver, |setup| setup.group("ack", text("first")).group("read_gate", text("none")));
        world.stores[1].gate.close();
        for number in 0..20 {
            world.must("POST", &format!("/{number}"));
        }
        assert!(world.reads_at(1) > 0);
        assert!(world.stores[1].done().is_empty());
        world.stores[1].gate.open();
        world.assert_identical();
    });
}

/// No client was told of an outcome; but one may have read it.
#[test]
fn under_durable_no_read_goes_behind_what_a_child_has_shown() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("ack", text("durable")));
        world.stores[1].gate.close();
        let accepted = world.post("/1").expect("an answer");
        assert_eq!(accepted.status(), 202, "{accepted}");
        let applied = || world.proxy.child("a")["applied"].as_u64();
        eventually_eq("a has it", &Some(1), applied);
        assert_eq!(world.reads_at(1), 0);
        world.stores[1].gate.open();
        eventually("b serves reads again", || (world.reads_at(1) > 0).then_some(()));
    });
}
