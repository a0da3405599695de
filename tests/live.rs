//! Live changes on the real binary, on both drivers: every child takes one at the same time, or none does; who does not
//! answer like the others is shown, and ended by the operator. And groups that take changes only while complete.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::sync::Mutex;
use std::thread;

use support::aci::{AciServer, Vanish};
use support::client::{Ask, Client};
use support::message::{Request, Response};
use support::proxy::{Proxy, Setup, text};
use support::{Driver, eventually, eventually_eq, for_each_driver};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three servers and a front.
struct World {
    children: [AciServer; 3],
    proxy: Proxy,
}

impl World {
    fn start(driver: Driver) -> Self {
        // Nobody gets ready late because the machine is busy, save where a test wants it.
        Self::with(driver, |setup| setup.group("live_wait", text("5s")))
    }

    fn with(driver: Driver, more: impl Fn(Setup) -> Setup) -> Self {
        let children = AciServer::several();
        let setup = Setup::new(driver, "aci", "idol")
            .probe("request", text("GET /action=GetPid"))
            .probe("expect", "{ status = \"200\", body = \"*SUCCESS*\" }")
            .group("write_deadline", text("25s"));
        let setup = NAMES.iter().zip(&children).fold(setup, |setup, (name, child)| setup.child(name, child.port()));
        let proxy = Proxy::start(&more(setup));
        let world = Self { children, proxy };
        world.wait_all_up();
        world
    }

    fn wait_all_up(&self) {
        for name in NAMES {
            self.proxy.wait_child_state(name, "up");
        }
    }

    #[track_caller]
    fn ask(&self, target: &str) -> Response {
        Ask::get(target).at(self.proxy.port).unwrap_or_else(|why| panic!("{target}: {why}"))
    }

    #[track_caller]
    fn add(&self, id: &str) -> Response {
        self.ask(&format!("/action=UserAdd&UserName=id.{id}"))
    }

    #[track_caller]
    fn must_add(&self, id: &str) {
        let answer = self.add(id);
        assert_eq!(answer.status(), 200, "{id}: {answer}");
    }

    #[track_caller]
    fn live(&self, id: &str) -> Response {
        self.ask(&format!("/action=CategoryMove&Category=1&Parent=2&Note=id.{id}"))
    }

    #[track_caller]
    fn must_live(&self, id: &str) {
        let answer = self.live(id);
        assert_eq!(answer.status(), 200, "{id}: {answer}");
        assert!(answer.field("Antiphon-Sequence").is_some(), "{answer}");
    }

    /// Refused for the sake of these children, and carried out by none.
    #[track_caller]
    fn assert_refused(&self, answer: &Response, id: &str, missing: &[&str]) {
        assert_eq!(answer.status(), 503, "{answer}");
        says(answer, "<errorcode>NOT_QUEUEABLE</errorcode>");
        says(answer, &format!("Missing: {}.", missing.join(", ")));
        assert_eq!(answer.field("Antiphon-Missing"), Some(missing.join(", ")), "{answer}");
        assert!(answer.field("Antiphon-Sequence").is_none() && answer.field("Retry-After").is_some(), "{answer}");
        for (child, name) in NAMES.iter().enumerate() {
            assert!(!self.ids(child).contains(&id.to_owned()), "{id} was carried out by {name}");
        }
    }

    /// What a child has carried out, in order.
    fn ids(&self, child: usize) -> Vec<String> {
        self.children[child].changes().iter().map(id).collect()
    }

    #[track_caller]
    fn assert_identical(&self) {
        eventually_eq("three identical children", &true, || {
            let [first, second, third] = [0, 1, 2].map(|child| self.ids(child));
            first == second && second == third
        });
    }

    #[track_caller]
    fn command(&self, words: &[&str]) {
        let ran = self.proxy.command(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.text());
    }

    fn why(&self, name: &str) -> String {
        self.proxy.child(name)["why"].as_str().unwrap_or_default().to_owned()
    }
}

#[track_caller]
fn says(answer: &Response, text: &str) {
    assert!(answer.text().contains(text), "{text}: {answer}");
}

fn id(request: &Request) -> String {
    let text = String::from_utf8_lossy(&request.head.target).into_owned();
    let at = text.find("id.").unwrap_or_else(|| panic!("no id in {text}"));
    text[at + 3..].to_owned()
}

#[test]
fn all_take_it_in_one_order_with_the_changes_around_it() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let acknowledged = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..6 {
                let (world, acknowledged) = (&world, &acknowledged);
                scope.spawn(move || {
                    let mut connection = Client::connect(world.proxy.port).expect("a connection");
                    for number in 0..if client < 4 { 25 } else { 6 } {
                        let id = format!("{client}-{number}");
                        let action = if client < 4 { "UserAdd" } else { "CategorySetDetails" };
                        let target = format!("/action={action}&X=id.{id}");
                        let answer = connection.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{target}: {why}"));
                        assert_eq!(answer.status(), 200, "{target}: {answer}");
                        let sequence = answer.field("Antiphon-Sequence").expect("the place in the order");
                        let (_, number) = sequence.split_once(':').expect("epoch and number");
                        let number: u64 = number.parse().expect("a sequence");
                        acknowledged.lock().expect("all clients are well").push((number, id));
                    }
                });
            }
        });
        let mut order = acknowledged.into_inner().expect("all clients are well");
        order.sort();
        let ids: Vec<String> = order.into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), 4 * 25 + 2 * 6);
        for (child, name) in NAMES.iter().enumerate() {
            assert_eq!(world.ids(child), ids, "the order at {name}");
        }
    });
}

#[test]
fn it_goes_on_the_connection_that_has_just_answered_a_probe() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        world.must_add("before");
        world.must_live("live");
        world.must_add("after");
        for (child, name) in world.children.iter().zip(NAMES) {
            let exchanges = child.exchanges();
            let (connection, _) = exchanges.iter().find(|(_, action)| action == "categorymove").expect("it has it");
            let on_it: Vec<&str> =
                exchanges.iter().filter(|(its, _)| its == connection).map(|(_, action)| action.as_str()).collect();
            assert_eq!(on_it[..2], ["getpid", "categorymove"], "{name}: {exchanges:?}");
        }
    });
}

#[test]
fn while_a_child_is_away_it_is_refused_by_name_and_nobody_runs_it() {
    for_each_driver(|driver| {
        let mut world = World::start(driver);
        // Offline by the operator: one, then two.
        world.command(&["child", "offline", "b"]);
        world.assert_refused(&world.live("offline"), "offline", &["b"]);
        world.command(&["child", "offline", "c"]);
        world.assert_refused(&world.live("offline"), "offline", &["b", "c"]);
        world.must_add("meanwhile");
        for name in ["b", "c"] {
            world.command(&["child", "online", name]);
        }
        world.wait_all_up();
        world.must_live("online");

        // Stopped, and not noticed: the proof finds it out. Then it is known to be down.
        world.children[1].stop();
        world.assert_refused(&world.live("stopped"), "stopped", &["b"]);
        world.proxy.wait_child_state("b", "down");
        world.assert_refused(&world.live("down"), "down", &["b"]);
        world.must_add("missed");

        // Back, and held up while it is sent what it missed.
        world.children[1].close_gate();
        world.children[1].start_again();
        eventually("it is sent what it missed", || (world.children[1].waiting() == 1).then_some(()));
        world.proxy.wait_child_state("b", "replaying");
        world.assert_refused(&world.live("replaying"), "replaying", &["b"]);
        world.children[1].open_gate();
        world.wait_all_up();
        world.must_live("whole");
        world.assert_identical();
        assert_eq!(world.ids(1), ["meanwhile", "online", "missed", "whole"]);
    });
}

#[test]
fn a_child_that_dies_on_it_has_diverged_and_the_client_is_told_of_each() {
    for_each_driver(|driver| {
        for vanish in [Vanish::BeforeApplying, Vanish::AfterApplying] {
            let world = World::start(driver);
            world.must_add("before");
            world.children[1].vanish_once(vanish);
            let answer = world.live("torn");
            assert_eq!(answer.status(), 502, "{answer}");
            says(&answer, "<errorcode>PARTIAL</errorcode>");
            says(&answer, "a: 200, b: no answer, c: 200.");
            assert!(answer.field("Antiphon-Sequence").is_some_and(|sequence| sequence.ends_with(":2")), "{answer}");
            world.proxy.wait_child_state("b", "diverged");
            assert!(world.why("b").contains("did not answer live change 2 (categorymove)"), "{}", world.why("b"));
            let had = world.ids(1).len();

            world.assert_refused(&world.live("refused"), "refused", &["b"]);
            world.must_add("without-b");
            assert_eq!(world.ids(1).len(), had, "nothing is sent to it");
            world.command(&["child", "attach", "b"]);
            world.wait_all_up();
            world.must_live("again");
            assert_eq!(world.ids(1).len(), had + 1, "the torn one is not sent again");
            assert_eq!(world.ids(1).last().map(String::as_str), Some("again"));
            assert_eq!(world.ids(0), ["before", "torn", "without-b", "again"]);
        }
    });
}

#[test]
fn who_answers_unlike_its_siblings_has_diverged_and_all_alike_is_the_answer() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        world.children[2].fail(&[500]);
        let answer = world.live("unlike");
        assert_eq!(answer.status(), 502, "{answer}");
        says(&answer, "a: 200, b: 200, c: 500.");
        world.proxy.wait_child_state("c", "diverged");
        world.command(&["child", "attach", "c"]);
        world.wait_all_up();

        for child in &world.children {
            child.fail(&[409]);
        }
        let answer = world.live("nobody");
        let second = answer.field("Antiphon-Sequence").is_some_and(|sequence| sequence.ends_with(":2"));
        assert!(answer.status() == 409 && second, "{answer}");
        for name in NAMES {
            assert_eq!(world.proxy.child_state(name), "up");
        }
        world.must_live("all");
    });
}

#[test]
fn a_child_that_does_not_answer_the_probe_holds_the_others_up_for_live_wait_at_most() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("live_wait", text("500ms")));
        world.children[1].mute_probes(true);
        let (answer, adds) = thread::scope(|scope| {
            let live = scope.spawn(|| world.live("silent"));
            let adds: Vec<_> = (0..4)
                .map(|number| {
                    scope.spawn({
                        let world = &world;
                        move || world.add(&format!("held-{number}"))
                    })
                })
                .collect();
            let adds: Vec<u16> = adds.into_iter().map(|add| add.join().expect("an answer").status()).collect();
            (live.join().expect("an answer"), adds)
        });
        assert_eq!(adds, [200; 4], "the others go on, b too");
        world.assert_refused(&answer, "silent", &["b"]);
        says(&answer, "live_wait");
        // An ordinary probe follows, which has its own time, and judges.
        world.proxy.wait_child_state("b", "down");
        world.children[1].mute_probes(false);
        world.wait_all_up();
        world.must_live("heard");
        world.assert_identical();
    });
}

#[test]
fn under_all_or_refuse_every_change_needs_every_child() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("ack", text("all_or_refuse")));
        assert_eq!(world.proxy.status()["groups"][0]["ack"], "all_or_refuse");
        world.must_add("whole");
        world.command(&["child", "offline", "c"]);
        world.assert_refused(&world.add("torn"), "torn", &["c"]);
        world.command(&["child", "online", "c"]);
        world.wait_all_up();
        world.must_add("whole-again");
        world.assert_identical();
    });
}

#[test]
fn a_rule_makes_any_action_a_live_change() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.rule("action = \"UserAdd\"\nclass = \"live_change\""));
        world.must_add("all");
        world.command(&["child", "offline", "a"]);
        world.assert_refused(&world.add("one-away"), "one-away", &["a"]);
    });
}
