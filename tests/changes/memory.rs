//! What changes may hold: answers that wait for siblings, and bodies that wait for children.

use std::sync::Arc;
use std::thread;

use crate::peer::{assert_same, noise, peak_resident_bytes};
use crate::store::World;
use crate::support::client::Ask;
use crate::support::for_each_driver;
use crate::support::message::Response;
use crate::support::proxy::text;
use crate::{assert_problem, place};

const HELD_MAX: usize = 64 * 1024;

/// Far more than is held of them, and more than the threshold together.
#[test]
fn long_answers_to_changes_are_not_heaped_up() {
    const LONG: usize = 4 * 1024 * 1024;
    const AT_ONCE: usize = 24;
    const GROWTH_MAX: u64 = 64 * 1024 * 1024;
    let long = Arc::new(noise(LONG));
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.set("limits", "answer_held_max", text("64KiB")));
        world.must("POST", "/warm");
        let before = peak_resident_bytes(world.proxy.pid());
        for store in &world.stores {
            store.answer_with(&long);
        }
        // Held answers wait for the second child, all of them.
        world.stores[1].gate.close();
        thread::scope(|scope| {
            let asked: Vec<_> = (0..AT_ONCE)
                .map(|number| {
                    let world = &world;
                    scope.spawn(move || world.must("POST", &format!("/{number}")))
                })
                .collect();
            world.stores[1].gate.wait_waiting(1);
            world.stores[1].gate.open();
            for answer in asked {
                let answer = answer.join().expect("an answer");
                place(&answer);
                assert!(answer.body.len() < HELD_MAX, "a summary: {answer}");
            }
        });
        let growth = peak_resident_bytes(world.proxy.pid()).saturating_sub(before);
        eprintln!("GROWTH {} KiB", growth / 1024);
        assert!(growth < GROWTH_MAX, "grew by {} KiB on {}", growth / 1024, driver.key());
        world.assert_identical();
        world.wait_up();
    });
}

#[test]
fn an_answer_is_held_whole_up_to_its_limit_and_never_cut_in_the_middle() {
    for_each_driver(|driver| {
        let world: World<2> = World::http(driver, |setup| setup.set("limits", "answer_held_max", text("64KiB")));
        for (size, whole) in [(0, true), (1, true), (HELD_MAX - 1, true), (HELD_MAX, true), (HELD_MAX + 1, false)] {
            let body = Arc::new(noise(size));
            for store in &world.stores {
                store.answer_with(&body);
            }
            let answer = world.must("PUT", &format!("/{size}"));
            if whole {
                assert_same(&format!("an answer of {size}"), &answer.body, &body);
            } else {
                assert!(answer.text().contains("carried out"), "{answer}");
            }
        }
        world.assert_identical();
        world.wait_up();
    });
}

/// RFC 9110 6.6.1, as for every other answer.
#[test]
fn a_summary_in_place_of_a_long_answer_has_a_date() {
    for_each_driver(|driver| {
        let world: World<1> = World::http(driver, |setup| setup.set("limits", "answer_held_max", "0"));
        let answer = world.must("PUT", "/long");
        assert!(answer.text().contains("carried out"), "{answer}");
        assert!(answer.head.fields.one("date").is_some_and(|date| date.ends_with(b" GMT")), "{answer}");
    });
}

/// What does not fit is refused before anybody has it; when there is room again, changes are taken again.
#[test]
fn changes_beyond_their_memory_are_refused_and_not_half_carried_out() {
    const AT_ONCE: usize = 24;
    for_each_driver(|driver| {
        // A change and its head must fit each: 48 KiB under way, and as much in the ring.
        let world: World<2> = World::http(driver, |setup| {
            setup
                .set("limits", "action_bytes_max", text("16KiB"))
                .set("limits", "action_bytes_in_flight_max", text("48KiB"))
                .set("limits", "ring_bytes_max", text("48KiB"))
        });
        let body = noise(15 * 1024);
        let ask = |number: usize| -> Response {
            let target = format!("/{number}");
            let answer = Ask::new("POST", &target).body(&body).at(world.proxy.port);
            answer.unwrap_or_else(|why| panic!("{target}: {why}"))
        };
        world.stores[1].gate.close();
        let statuses: Vec<u16> = thread::scope(|scope| {
            let asked: Vec<_> = (0..AT_ONCE)
                .map(|number| {
                    scope.spawn({
                        let ask = &ask;
                        move || ask(number)
                    })
                })
                .collect();
            // Those that are refused are told at once, while the others wait.
            crate::support::eventually("some are refused", || asked.iter().any(|one| one.is_finished()).then_some(()));
            world.stores[1].gate.wait_waiting(1);
            world.stores[1].gate.open();
            asked
                .into_iter()
                .map(|one| {
                    let answer = one.join().expect("an answer");
                    if answer.status() != 200 {
                        assert_problem(&answer, 503, "change_memory");
                        assert!(answer.field("Antiphon-Sequence").is_none(), "{answer}");
                        assert!(answer.field("Retry-After").is_some(), "{answer}");
                    }
                    answer.status()
                })
                .collect()
        });
        let taken = statuses.iter().filter(|status| **status == 200).count();
        assert!(taken > 0 && taken < AT_ONCE, "{statuses:?}");
        world.assert_identical();
        assert_eq!(world.stores[0].done().len(), taken, "what was refused was not carried out");
        for number in 100..110 {
            let answer = ask(number);
            assert_eq!(answer.status(), 200, "{answer}");
        }
        world.assert_identical();
        world.wait_up();
    });
}
