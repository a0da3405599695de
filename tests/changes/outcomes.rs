//! What becomes of a child that answers unlike its siblings, late, or not at all; and of the order.

use std::sync::Mutex;
use std::thread;

use crate::peer::{Server, ok};
use crate::store::{Fate, NAMES, World};
use crate::support::client::{Ask, Client};
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::{Driver, eventually, eventually_eq, for_each_driver};
use crate::{assert_problem, place};

// === the order ===

#[test]
fn sequences_are_the_order_at_every_child() {
    const CLIENTS: usize = 8;
    const EACH: usize = 25;
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.set("workers", "count", "2"));
        let told = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (world, told) = (&world, &told);
                scope.spawn(move || {
                    let mut connection = Client::connect(world.proxy.port).expect("a connection");
                    let mut last = (0, 0);
                    for number in 0..EACH {
                        let target = format!("/{client}/{number}");
                        let method = ["POST", "PUT", "DELETE", "PATCH"][number % 4];
                        let answer = connection.ask(&Ask::new(method, &target).body(target.as_bytes()));
                        let answer = answer.unwrap_or_else(|why| panic!("{target}: {why}"));
                        assert_eq!(answer.status(), 200, "{target}: {answer}");
                        let its = place(&answer);
                        assert!(its > last, "{target} after {last:?}: {answer}");
                        last = its;
                        told.lock().expect("all clients are well").push((its, target));
                    }
                });
            }
        });
        let mut told = told.into_inner().expect("all clients are well");
        told.sort();
        for (index, (place, target)) in told.iter().enumerate() {
            assert_eq!(place.1, index as u64 + 1, "{target}: a hole, or a sequence twice");
        }
        let order: Vec<String> = told.into_iter().map(|(_, target)| target).collect();
        for (store, name) in world.stores.iter().zip(NAMES) {
            eventually_eq(&format!("the order at {name}"), &order, || store.targets());
        }
    });
}

/// A child's refusal has its place, too; what antiphon refuses by itself has none.
#[test]
fn a_refusal_by_all_has_its_place_and_raises_no_alarm() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup);
        let before = place(&world.must("POST", "/before"));
        for store in &world.stores {
            store.fate([Fate::Refused(409)]);
        }
        let refused = world.post("/refused").expect("an answer");
        assert_eq!((refused.status(), refused.text().as_str()), (409, "no"), "{refused}");
        let after = place(&world.must("POST", "/after"));
        assert!(before < place(&refused) && place(&refused) < after);
        assert_eq!(world.stores[0].targets(), ["/before", "/after"]);
        world.assert_identical();
        world.wait_up();
        let lock = Ask::new("LOCK", "/x").at(world.proxy.port).expect("an answer");
        assert_problem(&lock, 501, "lock_refused");
        assert_eq!(lock.field("Antiphon-Sequence"), None, "{lock}");
    });
}

// === unlike the siblings ===

/// Nobody may read from a child that has not done what its siblings have, until the operator has seen to it.
#[test]
fn a_child_that_fails_what_its_siblings_did_serves_no_reads() {
    for_each_driver(|driver| {
        // A POST is tried once. A PUT may be repeated, and is, before the child is judged.
        for (method, failures) in [("POST", 1), ("PUT", 3)] {
            let world: World<3> = World::http(driver, |setup| setup);
            world.must(method, "/1");
            world.stores[1].fate(vec![Fate::Refused(500); failures]);
            let answer = world.must(method, "/2");
            assert_eq!(answer.text(), "ok", "the client gets the answer of those who did it");
            world.proxy.wait_child_state("b", "diverged");
            let said = world.proxy.child("b");
            assert!(said["why"].as_str().is_some_and(|why| why.contains('2')), "an operator is told which: {said:#}");
            assert_eq!(world.reads_at(1), 0, "{method}");
            world.must(method, "/3");
            assert_eq!(world.stores[1].targets(), ["/1"], "{method}: nothing new is sent to it");
            world.attach(1);
            world.must(method, "/4");
            assert_eq!(world.stores[1].targets(), ["/1", "/4"], "{method}");
            assert!(world.reads_at(1) > 0, "{method}");
        }
    });
}

/// Once is not yet unlike: the first 500 of a change that may be repeated is not the child's last word.
#[test]
fn a_child_that_fails_once_and_may_be_asked_again_stays() {
    for_each_driver(|driver| {
        let world: World<3> = World::http(driver, |setup| setup);
        world.stores[1].fate([Fate::Refused(503)]);
        world.must("PUT", "/1");
        world.must("PUT", "/2");
        world.assert_identical();
        world.wait_up();
        assert!(world.reads_at(1) > 0);
    });
}

/// A 500 says that a child could not, not that nobody should: the primary's, too.
#[test]
fn a_primary_that_fails_what_its_sibling_did_is_the_one_that_diverged() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup);
        world.stores[0].fate([Fate::Refused(500)]);
        assert_eq!(world.must("POST", "/1").text(), "ok");
        world.proxy.wait_child_state("a", "diverged");
        assert_eq!(world.proxy.child_state("b"), "up");
        assert_eq!(world.reads_at(0), 0);
        assert_eq!(world.must("POST", "/2").text(), "ok");
        assert_eq!(world.stores[1].targets(), ["/1", "/2"]);
    });
}

// === lost on the way back ===

/// Applied and not answered: sent again where twice is as good as once, and the child stays what its sibling is.
#[test]
fn an_idempotent_change_whose_answer_is_lost_makes_no_child_differ() {
    for_each_driver(|driver| {
        for fate in [Fate::AppliedAndLost, Fate::Lost] {
            // On the first connection, and on one that was used before.
            for used in [false, true] {
                let world: World<2> = World::http(driver, |setup| setup);
                if used {
                    world.must("PUT", "/used");
                }
                world.stores[1].fate([fate.clone()]);
                world.must("PUT", "/doubt");
                world.must("PUT", "/next");
                world.wait_up();
                eventually_eq("identical", &world.stores[0].map(), || world.stores[1].map());
                let at_b = world.stores[1].targets();
                let times = at_b.iter().filter(|target| *target == "/doubt").count();
                let wanted = if matches!(fate, Fate::Lost) { 1 } else { 2 };
                assert_eq!(times, wanted, "{fate:?}, used {used}: {at_b:?}");
                assert_eq!(at_b.last().map(String::as_str), Some("/next"), "nothing new before what is in doubt");
                assert!(world.reads_at(1) > 0);
            }
        }
    });
}

#[test]
fn a_post_whose_answer_is_lost_is_not_sent_again() {
    for_each_driver(|driver| {
        for (fate, applied) in [(Fate::AppliedAndLost, true), (Fate::Lost, false)] {
            let world: World<2> = World::http(driver, |setup| setup);
            world.must("POST", "/used");
            world.stores[1].fate([fate.clone()]);
            world.must("POST", "/doubt");
            world.proxy.wait_child_state("b", "needs_reseed");
            world.must("POST", "/next");
            let wanted: &[&str] = if applied { &["/used", "/doubt"] } else { &["/used"] };
            assert_eq!(world.stores[1].targets(), wanted, "{fate:?}");
            assert_eq!(world.reads_at(1), 0, "{fate:?}");
            world.attach(1);
            world.must("POST", "/again");
            assert_eq!(world.stores[1].targets().last().map(String::as_str), Some("/again"));
        }
    });
}

/// A server may close a connection after any answer, and need not say so before (RFC 9112 9.5). That is no change lost,
/// and no reason to call a child, or all of them, unknowable.
#[test]
fn a_connection_that_a_child_closed_after_an_answer_costs_no_change() {
    const CLIENTS: usize = 8;
    const EACH: usize = 25;
    for_each_driver(|driver| {
        let closing = || {
            Server::start(|peer| {
                let request = peer.request()?;
                peer.send(&ok(&request.head))
            })
        };
        let children = [closing(), closing()];
        let setup = Setup::new(driver, "http", "http").group("write_deadline", text("25s"));
        let proxy = Proxy::start(&setup.child("a", children[0].port()).child("b", children[1].port()));
        proxy.wait_child_state("b", "up");
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let proxy = &proxy;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let target = format!("/{client}/{number}");
                        let answer = Ask::new("POST", &target).body(b"x").at(proxy.port);
                        let answer = answer.unwrap_or_else(|why| panic!("{target}: {why}"));
                        assert_eq!(
                            answer.status(),
                            200,
                            "{target}: {answer}\n{:#}",
                            proxy.status()["groups"][0]["children"]
                        );
                    }
                });
            }
        });
        for (child, name) in children.iter().zip(NAMES) {
            assert_eq!(child.requests().len(), CLIENTS * EACH, "each once at {name}");
            assert_eq!(proxy.child_state(name), "up");
        }
    });
}

/// Nobody answers: then nobody knows, and the client is told so and not that it failed.
#[test]
fn a_post_that_every_child_lost_is_told_as_unknown() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup);
        for store in &world.stores {
            store.fate([Fate::AppliedAndLost]);
        }
        let answer = world.post("/doubt").expect("an answer");
        assert_problem(&answer, 503, "outcome_unknown");
        assert!(answer.field("Antiphon-Sequence").is_some(), "{answer}");
        // None is better than another: they serve reads, and take no change until somebody has looked.
        for name in &NAMES[..2] {
            world.proxy.wait_child_state(name, "up");
        }
        assert_problem(&world.post("/next").expect("an answer"), 503, "outcome_unknown");
        for name in &NAMES[..2] {
            assert_eq!(world.proxy.child(name)["doubt"], 1, "`status` names the doubt");
            let said = world.proxy.command(&["status"]).stdout;
            assert!(said.contains(&format!("in doubt about change 1: `antiphon child resolve {name}")), "{said}");
            let ran = world.proxy.command(&["child", "resolve", name, "applied"]);
            assert!(ran.stdout.contains("carried it out"), "{ran:?}");
        }
        world.must("POST", "/again");
        world.assert_identical();
    });
}

/// The operator has looked, and one of them has it.
#[test]
fn a_change_that_one_child_has_lost_is_sent_to_it_alone() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup);
        world.stores[0].fate([Fate::AppliedAndLost]);
        world.stores[1].fate([Fate::Lost]);
        assert_problem(&world.post("/doubt").expect("an answer"), 503, "outcome_unknown");
        for (name, word) in [("a", "applied"), ("b", "lost")] {
            world.proxy.wait_child_state(name, "up");
            let ran = world.proxy.command(&["child", "resolve", name, word]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        world.must("POST", "/again");
        world.assert_identical();
    });
}

#[test]
fn a_rule_can_end_a_doubt() {
    for_each_driver(|driver| {
        for (word, fate) in [("assume", Fate::AppliedAndLost), ("resend", Fate::Lost)] {
            let rule = format!("method = \"POST\"\npath = \"/*\"\nclass = \"change\"\non_unknown = \"{word}\"\n");
            let world: World<2> = World::http(driver, |setup| setup.rule(&rule));
            for store in &world.stores {
                store.fate([fate.clone()]);
            }
            let _ = world.post("/doubt").expect("an answer");
            for name in &NAMES[..2] {
                world.proxy.wait_child_state(name, "up");
            }
            eventually("the next is taken", || world.post("/again").ok().filter(|answer| answer.status() == 200));
            world.assert_identical();
        }
    });
}

/// What the operator says where nothing is in doubt.
#[test]
fn there_is_nothing_to_resolve() {
    let world: World<2> = World::http(Driver::Epoll, |setup| setup);
    world.must("POST", "/one");
    let refused = world.proxy.command(&["child", "resolve", "a", "applied"]);
    assert!(refused.stderr.contains("in doubt about no change"), "{refused:?}");
}

// === late ===

#[test]
fn a_slow_child_does_not_hold_its_siblings_up() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("write_deadline", text("200ms")));
        world.must("POST", "/0");
        world.stores[1].gate.close();
        world.must("POST", "/1");
        assert_ne!(world.proxy.child_state("b"), "up");
        for number in 2..6 {
            world.must("POST", &format!("/{number}"));
        }
        assert_eq!(world.reads_at(1), 0, "it has not applied what was answered");
        assert_eq!(world.stores[1].targets(), ["/0"]);
        world.stores[1].gate.open();
        world.proxy.wait_child_state("b", "up");
        world.assert_identical();
        assert_eq!(
            world.stores[1].targets(),
            (0..6).map(|number| format!("/{number}")).collect::<Vec<_>>(),
            "each once"
        );
        assert!(world.reads_at(1) > 0);
    });
}

/// It will be carried out; the client is told where it stands, and not to send it again.
#[test]
fn a_change_that_nobody_answered_in_time_is_pending_with_its_place() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("write_deadline", text("200ms")));
        world.stores.iter().for_each(|store| store.gate.close());
        let answer = world.post("/late").expect("an answer");
        assert_problem(&answer, 504, "pending");
        assert!(answer.field("Antiphon-Sequence").is_some_and(|place| place.ends_with(":1")), "{answer}");
        world.stores.iter().for_each(|store| store.gate.open());
        world.wait_up();
        let next = world.must("POST", "/next");
        assert_eq!(place(&next).1, 2);
        assert_eq!(world.stores[0].targets(), ["/late", "/next"], "each once");
        world.assert_identical();
    });
}

/// How far the promise goes matters most where a promise is all that the client gets.
#[test]
fn a_reply_that_promises_a_change_says_how_durable_it_is() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.group("write_deadline", text("200ms")));
        world.stores.iter().for_each(|store| store.gate.close());
        let answer = world.post("/late").expect("an answer");
        assert_problem(&answer, 504, "pending");
        world.stores.iter().for_each(|store| store.gate.open());
        place(&answer);
    });
}
