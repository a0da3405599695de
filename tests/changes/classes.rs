//! Changes by methods and actions that are easily taken for something else.

use crate::assert_problem;
use crate::place;
use crate::store::{NAMES, World};
use crate::support::aci::AciServer;
use crate::support::client::{Ask, Client};
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::{eventually, eventually_eq, for_each_driver};

/// It says what GET would do, and in ACI that is a change. No body follows, whatever length is told.
#[test]
fn a_change_by_head_neither_hangs_nor_takes_children_down() {
    for_each_driver(|driver| {
        let world: World<2> = World::aci(driver, |setup| setup);
        let mut client = Client::connect(world.proxy.port).expect("a connection");
        for number in 0..5 {
            let target = format!("/action=UserAdd&UserName=h{number}");
            let answer = client.ask(&Ask::new("HEAD", &target)).unwrap_or_else(|why| panic!("{target}: {why}"));
            assert_eq!(answer.status(), 200, "{answer}");
            place(&answer);
            // The same connection goes on: nothing came that could be taken for a body.
            let answer = client.ask(&Ask::get("/action=Query&Text=x")).expect("an answer");
            assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "{answer}");
        }
        world.assert_identical();
        assert_eq!(world.stores[0].done().len(), 5);
        world.wait_up();
    });
}

/// A server that answers HEAD with a body breaks its own connection, not the order of changes.
#[test]
fn a_child_that_answers_head_with_a_body_is_not_mistaken() {
    for_each_driver(|driver| {
        let children = AciServer::several::<2>();
        let setup = NAMES.iter().zip(&children).fold(
            Setup::new(driver, "aci", "idol")
                .probe("request", text("GET /action=GetPid"))
                .group("write_deadline", text("25s")),
            |setup, (name, child)| setup.child(name, child.port()),
        );
        let proxy = Proxy::start(&setup);
        for name in &NAMES[..2] {
            proxy.wait_child_state(name, "up");
        }
        for number in 0..3 {
            for method in ["HEAD", "GET"] {
                let target = format!("/action=UserAdd&UserName={method}-{number}");
                let answer = Ask::new(method, &target).at(proxy.port).unwrap_or_else(|why| panic!("{target}: {why}"));
                assert_eq!(answer.status(), 200, "{answer}");
            }
        }
        let targets = |child: &AciServer| child.changes().iter().map(|change| change.path()).collect::<Vec<_>>();
        assert_eq!(targets(&children[0]).len(), 6);
        eventually_eq("identical", &targets(&children[0]), || targets(&children[1]));
        for name in &NAMES[..2] {
            let child = proxy.child(name);
            assert!(child["state"] == "up" && child["falls"] == 0, "{child:#}");
        }
    });
}

/// It names things by ids that a child which was away may not know: now at all, or not at all.
#[test]
fn a_live_change_is_not_queued_for_a_child_that_is_away() {
    for_each_driver(|driver| {
        let mut world: World<2> = World::aci(driver, |setup| setup);
        let live = ["/action=CategoryMove&Category=1&Parent=2", "/action=CategorySetDetails&Category=1"];
        world.stop(1);
        for target in live {
            let answer = Ask::get(target).at(world.proxy.port).expect("an answer");
            assert_problem(&answer, 503, "not_queueable");
            assert_eq!(answer.field("Antiphon-Sequence"), None, "{answer}");
        }
        assert!(world.stores[0].done().is_empty(), "{:?}", world.stores[0].targets());
        // An ordinary one waits for the child.
        assert_eq!(Ask::get("/action=UserAdd&UserName=x").at(world.proxy.port).expect("an answer").status(), 200);
        world.stores[1].start_again();
        world.wait_up();
        for target in live {
            let answer = Ask::get(target).at(world.proxy.port).expect("an answer");
            assert_eq!(answer.status(), 200, "{answer}");
            place(&answer);
        }
        world.assert_identical();
        assert_eq!(world.stores[1].targets(), ["/action=UserAdd&UserName=x", live[0], live[1]]);
        // One that the operator has taken out is away, too.
        let command = |words: &[&str]| assert_eq!(world.proxy.command(words).code, Some(0));
        command(&["child", "offline", "b"]);
        world.proxy.wait_child_state("b", "offline");
        assert_problem(&Ask::get(live[0]).at(world.proxy.port).expect("an answer"), 503, "not_queueable");
        command(&["child", "online", "b"]);
        eventually("all may be moved again", || {
            (Ask::get(live[0]).at(world.proxy.port).ok()?.status() == 200).then_some(())
        });
        world.assert_identical();
        world.wait_up();
    });
}
