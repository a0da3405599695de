//! antiphon ends, by order or by force, while changes are on their way.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::peer::{connect, reset, send};
use crate::place;
use crate::store::World;
use crate::support::client::{Ask, Client};
use crate::support::proxy::{Setup, Until, text};
use crate::support::{eventually, eventually_eq, for_each_driver};

fn patient(setup: Setup) -> Setup {
    setup.set("timeouts", "drain", text("60s"))
}

/// The client has its answer from the first child and is gone; the second still has to get ten changes.
#[test]
fn a_drain_ends_only_when_every_live_child_has_every_change() {
    const CHANGES: usize = 10;
    for_each_driver(|driver| {
        let mut world: World<2> = World::http(driver, |setup| patient(setup).group("ack", text("first")));
        world.stores[1].gate.close();
        for number in 0..CHANGES {
            let answer = world.must("POST", &format!("/{number}"));
            assert_eq!(place(&answer).1, number as u64 + 1);
        }
        world.stores[1].gate.wait_waiting(1);
        world.proxy.signal(Signal::TERM);
        let port = world.proxy.port;
        eventually("new clients are refused", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).err());
        // Long enough for an end that should not come.
        thread::sleep(Duration::from_millis(300));
        assert!(world.proxy.exit_status().is_none(), "ended while b lacks what was answered:\n{}", world.proxy.log());
        world.stores[1].gate.open();
        assert_eq!(world.proxy.wait_exit().code(), Some(0), "{}", world.proxy.log());
        let order: Vec<String> = (0..CHANGES).map(|number| format!("/{number}")).collect();
        assert_eq!([world.stores[0].targets(), world.stores[1].targets()], [order.clone(), order]);
    });
}

/// A change belongs to the children once it has its place, not to the client that asked for it.
#[test]
fn a_change_whose_client_is_gone_still_reaches_every_child_before_the_end() {
    for_each_driver(|driver| {
        let mut world: World<2> = World::http(driver, patient);
        world.stores[1].gate.close();
        let client = connect(world.proxy.port);
        send(&client, b"POST /orphan HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody");
        eventually_eq("a has it", &1, || world.stores[0].done().len());
        world.stores[1].gate.wait_waiting(1);
        reset(client);
        world.proxy.signal(Signal::TERM);
        let port = world.proxy.port;
        eventually("new clients are refused", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).err());
        world.stores[1].gate.open();
        assert_eq!(world.proxy.wait_exit().code(), Some(0), "{}", world.proxy.log());
        assert_eq!(world.stores[1].targets(), ["/orphan"]);
        world.assert_identical();
    });
}

/// Clients that are answered by nobody else come back as soon as it does.
#[test]
fn after_kill_9_under_load_it_serves_again_on_the_same_ports() {
    const CLIENTS: usize = 12;
    /// Answers before each kill, and after the last.
    const ANSWERS: usize = 120;
    for_each_driver(|driver| {
        let mut world: World<2> = World::http(driver, |setup| setup);
        let port = world.proxy.port;
        let (over, reads, changes) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (over, reads, changes) = (&over, &reads, &changes);
                scope.spawn(move || {
                    let mut number = 0;
                    while !over.load(Ordering::SeqCst) {
                        let Ok(mut connection) = Client::connect(port) else {
                            thread::sleep(Duration::from_millis(5));
                            continue;
                        };
                        // Until the connection ends.
                        while !over.load(Ordering::SeqCst) {
                            number += 1;
                            let target = format!("/{client}/{number}");
                            let ask = Ask::new(if number % 2 == 0 { "PUT" } else { "GET" }, &target);
                            match connection.ask(&ask) {
                                Ok(answer) if answer.status() == 200 && number % 2 == 0 => {
                                    changes.fetch_add(1, Ordering::SeqCst)
                                }
                                Ok(answer) if answer.status() == 200 => reads.fetch_add(1, Ordering::SeqCst),
                                Ok(_) => 0,
                                Err(_) => break,
                            };
                        }
                    }
                });
            }
            // The clients end whatever happens here.
            let _over = Over(&over);
            let goes_on = |when: &str| {
                for (kind, count) in [("reads", &reads), ("changes", &changes)] {
                    let wanted = count.load(Ordering::SeqCst) + ANSWERS;
                    eventually(&format!("{kind} are answered {when}"), || {
                        (count.load(Ordering::SeqCst) >= wanted).then_some(())
                    });
                }
            };
            goes_on("at first");
            for round in 1..=3 {
                world.proxy.kill();
                world.proxy.start_again(Until::Ready);
                goes_on(&format!("after kill {round}"));
            }
        });
        world.wait_up();
        world.must("PUT", "/at-last");
        for store in &world.stores {
            assert_eq!(store.targets().last().map(String::as_str), Some("/at-last"));
        }
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client that has noted where its change stands must not find another there.
#[test]
fn no_sequence_is_given_twice_by_a_restart() {
    for_each_driver(|driver| {
        let mut world: World<1> = World::http(driver, |setup| setup);
        let before = place(&world.must("POST", "/before"));
        world.proxy.kill();
        world.proxy.start_again(Until::Ready);
        world.wait_up();
        let after = place(&world.must("POST", "/after"));
        assert!(after > before, "{after:?} was given after {before:?}");
    });
}
