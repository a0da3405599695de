//! Many at once: more than there are buffers, more than there may be connections, more than one answer under way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::peer::{
    Gate, Peer, Server, assert_same, behave, connect, connect_narrow, noise, ok, receive_all, receive_head, send,
};
use crate::support::client::{self, Ask, Client};
use crate::support::message;
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::scripted::{ANSWERS, accept_request, listen};
use crate::support::{Driver, eventually, for_each_driver, skip};
use crate::{assert_problem, plain, streaming};

/// More than the large buffers of a worker (`LARGE_BUFFERS`, 64).
const CROWD: usize = 80;
/// More than its small ones (`SMALL_BUFFERS`, 1,024).
const GREAT_CROWD: usize = 1_100;
/// More than a connection holds for its reader (`RECEIVED_BYTES_MAX`, 256 KiB).
const FLOOD: usize = 300 * 1024;

const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[track_caller]
fn assert_served(proxy: &Proxy, target: &str) {
    let answer = client::get(proxy.port, target).unwrap_or_else(|why| panic!("{target}: {why}"));
    assert_eq!((answer.status(), answer.field(ANSWERS).as_deref()), (200, Some(target)), "{answer}");
}

/// Sends back what it receives, to the end.
fn echo(peer: &mut Peer) -> Option<()> {
    loop {
        let count = peer.fill()?;
        let octets = peer.octets(count)?;
        peer.send(&octets)?;
    }
}

// === tunnels ===

#[test]
fn tunnels_that_nobody_reads_take_no_buffer_from_a_read() {
    let flood = Arc::new(noise(FLOOD));
    for_each_driver(|driver| {
        let floods = Arc::clone(&flood);
        let child = Server::start(move |peer| {
            loop {
                let head = peer.head()?;
                if head.fields.has("upgrade") {
                    peer.send(SWITCH)?;
                    peer.send(&floods)?;
                    return echo(peer);
                }
                peer.send(&ok(&head))?;
            }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        let tunnels: Vec<TcpStream> = (0..CROWD)
            .map(|_| {
                let tunnel = connect_narrow(proxy.port);
                send(&tunnel, UPGRADE);
                assert!(receive_head(&tunnel).starts_with(b"HTTP/1.1 101 "));
                tunnel
            })
            .collect();
        assert_served(&proxy, "/meanwhile");
        for (number, tunnel) in tunnels.iter().enumerate() {
            let mut received = vec![0; FLOOD];
            (&*tunnel).read_exact(&mut received).expect("what the child has sent");
            assert_same("the flood", &received, &flood);
            let said = format!("tunnel {number}");
            send(tunnel, said.as_bytes());
            let mut heard = vec![0; said.len()];
            (&*tunnel).read_exact(&mut heard).expect("the echo");
            assert_eq!(heard, said.as_bytes());
        }
        assert_served(&proxy, "/afterwards");
    });
}

/// Each side may stop sending first, and still hears the other.
#[test]
fn the_end_of_one_direction_of_a_tunnel_does_not_end_the_other() {
    for_each_driver(|driver| {
        let (told, hears) = mpsc::channel();
        let gate = Gate::closed();
        let at_gate = Arc::clone(&gate);
        let child = Server::start(move |peer| {
            let head = peer.head()?;
            peer.send(SWITCH)?;
            if head.target == b"/client-first" {
                let heard = peer.rest();
                // Long after the client's end.
                at_gate.pass();
                peer.send(b"the child's last words")?;
                told.send(heard).ok()
            } else {
                peer.send(b"the child's last words")?;
                peer.shut_write();
                told.send(peer.rest()).ok()
            }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        let open = |target: &str| {
            let tunnel = connect(proxy.port);
            let head = String::from_utf8_lossy(UPGRADE).replace("/chat", target);
            send(&tunnel, head.as_bytes());
            assert!(receive_head(&tunnel).starts_with(b"HTTP/1.1 101 "));
            tunnel
        };
        let patience = crate::support::PATIENCE;

        let tunnel = open("/client-first");
        send(&tunnel, b"the client's last words");
        tunnel.shutdown(Shutdown::Write).expect("a socket");
        gate.wait_waiting(1);
        gate.open();
        let (received, _) = receive_all(&tunnel);
        assert_eq!(received, b"the child's last words");
        assert_eq!(hears.recv_timeout(patience).expect("the child is content"), b"the client's last words");

        let tunnel = open("/child-first");
        let mut received = vec![0; 22];
        (&tunnel).read_exact(&mut received).expect("the child's words");
        assert_eq!(received, b"the child's last words");
        assert_eq!((&tunnel).read(&mut [0]).expect("an end"), 0, "the child's end comes through");
        send(&tunnel, b"the client's last words");
        tunnel.shutdown(Shutdown::Write).expect("a socket");
        assert_eq!(hears.recv_timeout(patience).expect("the child is content"), b"the client's last words");
        eventually("both tunnels are over", || (proxy.child("a")["in_flight"] == 0).then_some(()));
    });
}

// === answers that wait ===

/// Allows this process, and what it starts, so many descriptors; says why not where that cannot be.
fn allow_descriptors(count: u64) -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= count) {
        return true;
    }
    let raised = maximum.is_none_or(|maximum| maximum >= count)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum }).is_ok();
    if !raised {
        skip(&format!("{count} descriptors are not allowed here: ulimit -Hn {count}"));
    }
    raised
}

#[test]
fn requests_that_wait_for_a_child_take_no_buffer_from_another_group() {
    if !allow_descriptors(8_000) {
        return;
    }
    for_each_driver(|driver| {
        let (listener, port) = listen();
        let other = Server::start(behave);
        let groups = format!(
            "\n[group.other]\ndialect = \"http\"\n[[group.other.child]]\nname = \"o\"\naddress = \"127.0.0.1:{}\"\n",
            other.port()
        );
        let routes = "[[listen.route]]\nhost = \"other.test\"\ngroup = \"other\"\n[[listen.route]]\ngroup = \"g\"\n";
        let setup = plain(driver, port).routes(routes).tail(&groups);
        // The child's queue of connections is short, and its thread may be late.
        let setup = setup.set("limits", "connections_max", "3000").set("timeouts", "connect", text("30s"));
        let proxy = Proxy::start(&setup);
        thread::scope(|scope| {
            // Takes every request, and answers none before it has them all.
            let child = scope.spawn(|| {
                let held: Vec<(TcpStream, Vec<u8>)> = (0..GREAT_CROWD)
                    .map(|_| {
                        let stream = accept_request(&listener);
                        let head = receive_head(&stream);
                        (stream, head)
                    })
                    .collect();
                held
            });
            let clients: Vec<Client> = (0..GREAT_CROWD)
                .map(|number| {
                    let mut client = Client::connect(proxy.port).expect("a connection");
                    client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).expect("sent");
                    client
                })
                .collect();
            let held = child.join().expect("the child has all requests");
            assert_eq!(proxy.child("a")["in_flight"], GREAT_CROWD);
            let mut fresh = Client::connect(proxy.port).expect("a connection");
            for number in 0..10 {
                fresh
                    .send(format!("GET /fresh-{number} HTTP/1.1\r\nHost: other.test\r\n\r\n").as_bytes())
                    .expect("sent");
                let answer = fresh.answer(false).unwrap_or_else(|why| panic!("the fresh client: {why}"));
                assert_eq!(answer.field(ANSWERS), Some(format!("/fresh-{number}")));
            }
            for (mut stream, head) in held {
                let head = message::request_head(&head).expect("whole").expect("lawful");
                stream.write_all(&ok(&head)).expect("antiphon reads");
            }
            for (number, mut client) in clients.into_iter().enumerate() {
                let answer = client.answer(false).unwrap_or_else(|why| panic!("{number}: {why}"));
                assert_eq!((answer.status(), answer.field(ANSWERS)), (200, Some(format!("/{number}"))));
            }
        });
        eventually("none is under way", || (proxy.child("a")["in_flight"] == 0).then_some(()));
    });
}

#[test]
fn uploads_that_stall_take_no_buffer_from_a_read() {
    for_each_driver(|driver| {
        let child = Server::start(|peer| {
            loop {
                let head = peer.head()?;
                let request = peer.body(head)?;
                peer.send(&ok(&request.head))?;
            }
        });
        let setup = plain(driver, child.port()).set("limits", "connections_max", "3000");
        let proxy = Proxy::start(&setup.set("timeouts", "request_body", text("120s")));
        // A change is held until its body is whole.
        let stalled: Vec<TcpStream> = (0..GREAT_CROWD)
            .map(|number| {
                let stream = connect(proxy.port);
                let head = format!("PUT /{number} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\nabc");
                send(&stream, head.as_bytes());
                stream
            })
            .collect();
        for number in 0..10 {
            assert_served(&proxy, &format!("/meanwhile-{number}"));
        }
        for stream in stalled.iter().take(10) {
            send(stream, &[b'd'; 997]);
            assert!(receive_head(stream).starts_with(b"HTTP/1.1 200 "));
        }
    });
}

/// A client that takes nothing is its own fault: neither other clients nor any child pay for it.
#[test]
fn answers_that_nobody_takes_neither_starve_reads_nor_blame_the_child() {
    let body = Arc::new(noise(4 * 1024 * 1024));
    for_each_driver(|driver| {
        let its = Arc::clone(&body);
        let child = Server::start(move |peer| {
            loop {
                let head = peer.head()?;
                if !head.target.starts_with(b"/large") {
                    peer.send(&ok(&head))?;
                    continue;
                }
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", its.len()).as_bytes())?;
                peer.send(&its)?;
            }
        });
        // Long after this the child would be blamed, if it were.
        let setup = plain(driver, child.port()).set("timeouts", "response_body", text("500ms"));
        let setup = setup.set("limits", "connections_max", "3000");
        let proxy = Proxy::start(&setup.set("timeouts", "response_head", text("2s")));
        let silent: Vec<TcpStream> = (0..3 * CROWD)
            .map(|_| {
                let stream = connect_narrow(proxy.port);
                send(&stream, b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
                stream
            })
            .collect();
        for stream in &silent {
            assert!(receive_head(stream).starts_with(b"HTTP/1.1 200 "));
        }
        for number in 0..20 {
            assert_served(&proxy, &format!("/meanwhile-{number}"));
            thread::sleep(Duration::from_millis(100));
        }
        let child = proxy.child("a");
        assert_eq!((&child["state"], &child["failures"], &child["falls"]), (&"up".into(), &0.into(), &0.into()));
    });
}

#[test]
fn answers_that_stop_half_way_take_no_buffer_from_a_read() {
    // Within one buffer, and more than any connection holds for its reader.
    for size in [2_000, 2 * FLOOD] {
        let body = Arc::new(noise(size));
        for_each_driver(|driver| {
            let gate = Gate::closed();
            let (at_gate, its) = (Arc::clone(&gate), Arc::clone(&body));
            let child = Server::start(move |peer| {
                loop {
                    let head = peer.head()?;
                    if !head.target.starts_with(b"/drip") {
                        peer.send(&ok(&head))?;
                        continue;
                    }
                    let (first, second) = its.split_at(size / 2);
                    peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes())?;
                    peer.send(first)?;
                    at_gate.pass();
                    peer.send(second)?;
                }
            });
            let proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "response_body", text("60s")));
            let drips: Vec<TcpStream> = (0..CROWD)
                .map(|number| {
                    let drip = connect_narrow(proxy.port);
                    let close = "Connection: close\r\n";
                    send(&drip, format!("GET /drip/{number} HTTP/1.1\r\nHost: a.test\r\n{close}\r\n").as_bytes());
                    drip
                })
                .collect();
            gate.wait_waiting(CROWD);
            assert_served(&proxy, "/meanwhile");
            gate.open();
            for drip in &drips {
                let (octets, _) = receive_all(drip);
                let received = message::received(&octets, false, true);
                assert!(received.finals[0].whole, "{}", received.finals[0]);
                assert_same("an answer", &received.finals[0].body, &body);
            }
        });
    }
}

// === as many as there may be ===

/// As many as there may be, clients and children together: the smallest that a configuration may name.
const FEW: usize = 16;
/// Seven eighths of them are for clients.
const LET_IN: usize = 14;

fn few_connections(driver: Driver, child: u16) -> Setup {
    let routes = "[[listen.route]]\npath = \"/kv\"\ngroup = \"g\"\n";
    plain(driver, child)
        .routes(routes)
        .set("limits", "connections_max", FEW.to_string())
        .set("timeouts", "request_head", text("60s"))
        // Asked again and again, so that its fall would be seen.
        .probe("interval_up", text("200ms"))
        .probe("timeout", text("150ms"))
}

/// Those who come at once are not all let in: who has been must still reach a child.
#[test]
fn a_burst_of_clients_leaves_connections_for_children() {
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let proxy = Proxy::start(&few_connections(driver, child.port()));
        // Half a head each. What is not let in, the kernel keeps.
        let mut clients: Vec<Client> = (0..2 * FEW)
            .map(|number| {
                let mut client = Client::connect(proxy.port).expect("a connection");
                client.send(format!("GET /kv/{number} HTTP/1.1\r\nHo").as_bytes()).expect("sent");
                client
            })
            .collect();
        clients[0].send(b"st: a.test\r\n\r\n").expect("sent");
        let answer = clients[0].answer(false).unwrap_or_else(|why| panic!("the first that was let in: {why}"));
        assert_eq!((answer.status(), answer.field(ANSWERS).as_deref()), (200, Some("/kv/0")), "{answer}");
        drop(clients);
        eventually("served again", || (Ask::get("/kv/again").at(proxy.port).ok()?.status() == 200).then_some(()));
    });
}

/// The last two connections are in use, and none is left for a probe: that says nothing about the child.
#[test]
fn our_own_want_of_connections_takes_no_child_down() {
    for_each_driver(|driver| {
        let gate = Gate::closed();
        let at_gate = Arc::clone(&gate);
        let child = Server::start(move |peer| {
            loop {
                let request = peer.request()?;
                at_gate.pass();
                peer.send(&ok(&request.head))?;
            }
        });
        let proxy = Proxy::start(&few_connections(driver, child.port()));
        // One after the other, so that exactly so many are let in: each has an answer of antiphon's own.
        let mut clients: Vec<Client> = (0..LET_IN)
            .map(|_| {
                let mut client = Client::connect(proxy.port).expect("a connection");
                assert_problem(&client.ask(&Ask::get("/none")).expect("an answer"), 404, "no_route");
                client
            })
            .collect();
        for client in &mut clients {
            client.send(b"GET /kv/1 HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        }
        gate.wait_waiting(FEW - LET_IN);
        // Longer than several probes. Where all is well nothing happens.
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(50));
            let child = proxy.child("a");
            assert!(child["state"] == "up" && child["falls"] == 0, "{child:#}");
        }
        gate.open();
        let statuses: Vec<u16> = clients
            .iter_mut()
            .map(|client| {
                let answer = client.answer(false).unwrap_or_else(|why| panic!("one that was let in: {why}"));
                if answer.status() != 200 {
                    assert_problem(&answer, 503, "overloaded");
                }
                answer.status()
            })
            .collect();
        assert!(statuses.iter().filter(|status| **status == 200).count() >= FEW - LET_IN, "{statuses:?}");
        drop(clients);
        eventually("served again", || (Ask::get("/kv/again").at(proxy.port).ok()?.status() == 200).then_some(()));
        let child = proxy.child("a");
        assert!(child["state"] == "up" && child["falls"] == 0, "{child:#}");
    });
}

/// The same for a change: it is in order, and goes out when there is a connection for it.
#[test]
fn a_change_that_finds_no_connection_of_ours_is_not_the_fault_of_the_child() {
    for_each_driver(|driver| {
        let gate = Gate::closed();
        let at_gate = Arc::clone(&gate);
        let child = Server::start(move |peer| {
            loop {
                let request = peer.request()?;
                if request.head.method == "GET" {
                    at_gate.pass();
                }
                peer.send(&ok(&request.head))?;
            }
        });
        // Probes are too rare to meddle.
        let setup = few_connections(driver, child.port()).probe("interval_up", text("60s"));
        let proxy = Proxy::start(&setup.set("timeouts", "connect", text("300ms")));
        let mut clients: Vec<Client> = (0..LET_IN)
            .map(|_| {
                let mut client = Client::connect(proxy.port).expect("a connection");
                assert_problem(&client.ask(&Ask::get("/none")).expect("an answer"), 404, "no_route");
                client
            })
            .collect();
        for client in &mut clients[..FEW - LET_IN] {
            client.send(b"GET /kv/1 HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        }
        gate.wait_waiting(FEW - LET_IN);
        clients[LET_IN - 1]
            .send(b"POST /kv/change HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody")
            .expect("sent");
        // Longer than the lane tries.
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(50));
            let child = proxy.child("a");
            assert!(child["state"] != "down" && child["falls"] == 0, "{child:#}");
        }
        gate.open();
        let answer = clients[LET_IN - 1].answer(false).unwrap_or_else(|why| panic!("the change: {why}"));
        assert!(matches!(answer.status(), 200 | 504), "{answer}");
        drop(clients);
        proxy.wait_child_state("a", "up");
        eventually("the child has it", || child.targets().contains(&"/kv/change".to_owned()).then_some(()));
        assert_eq!(proxy.child("a")["falls"], 0);
    });
}

// === one behind the other ===

/// A change is answered by another thread than a read, and later; a body ends where it ends.
#[test]
fn pipelined_reads_and_changes_are_answered_in_order() {
    const COUNT: usize = 200;
    for_each_driver(|driver| pipeline(driver, COUNT));
}

fn pipeline(driver: Driver, count: usize) {
    let child = Server::start(behave);
    let proxy = Proxy::start(&streaming_posts(driver, child.port()));
    let mut client = Client::connect(proxy.port).expect("a connection");
    // What looks like a request in a body is none.
    let decoy = "GET /decoy HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let request = |number: usize| {
        let length = decoy.len();
        match number % 4 {
            0 | 1 => format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            2 => format!("PUT /{number} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{decoy}"),
            _ => format!(
                "POST /{number} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{decoy}\r\n0\r\n\r\n"
            ),
        }
    };
    let all: String = (0..count).map(request).collect();
    client.send(all.as_bytes()).expect("sent");
    for number in 0..count {
        let answer = client.answer(false).unwrap_or_else(|why| panic!("{number}: {why}"));
        assert_eq!((answer.status(), answer.field(ANSWERS)), (200, Some(format!("/{number}"))), "{answer}");
    }
    assert_eq!(child.targets(), (0..count).map(|number| format!("/{number}")).collect::<Vec<_>>());
}

/// POST is a read, and streamed; PUT is a change.
fn streaming_posts(driver: Driver, child: u16) -> Setup {
    plain(driver, child).rule("method = [\"POST\"]\npath = \"*\"\nclass = \"read\"")
}

/// A connection is not bound to the group of its first request.
#[test]
fn requests_of_one_connection_go_to_their_own_groups() {
    for_each_driver(|driver| {
        let children = [Server::start(behave), Server::start(behave)];
        let other = format!(
            "\n[group.other]\ndialect = \"http\"\n[[group.other.child]]\nname = \"o\"\naddress = \"127.0.0.1:{}\"\n",
            children[1].port()
        );
        let routes = "[[listen.route]]\nhost = \"other.test\"\npath = \"/kv\"\ngroup = \"other\"\n\
                      [[listen.route]]\nhost = \"a.test\"\ngroup = \"g\"\n";
        let proxy = Proxy::start(&streaming(driver, children[0].port()).routes(routes).tail(&other));
        let mut client = Client::connect(proxy.port).expect("a connection");
        let asked =
            [("a.test", "/1", 200), ("other.test", "/kv/2", 200), ("other.test", "/3", 404), ("a.test", "/4", 200)];
        let heads = asked.map(|(host, target, _)| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        for _ in 0..2 {
            client.send(heads.concat().as_bytes()).expect("sent");
            for (_, target, status) in asked {
                let answer = client.answer(false).unwrap_or_else(|why| panic!("{target}: {why}"));
                assert_eq!(answer.status(), status, "{target}: {answer}");
                if status == 404 {
                    assert_problem(&answer, 404, "no_route");
                } else {
                    assert_eq!(answer.field(ANSWERS).as_deref(), Some(target));
                }
            }
        }
        assert_eq!(children[0].targets(), ["/1", "/4", "/1", "/4"]);
        assert_eq!(children[1].targets(), ["/kv/2", "/kv/2"]);
    });
}
