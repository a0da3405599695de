//! How exchanges end that nobody finishes: clients that go, children that do not answer, and who is asked next.

use std::net::ToSocketAddrs;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{
    Ended, Gate, Server, behave, connect, connect_narrow, noise, ok, receive_all, receive_head, reset, send,
};
use crate::support::client::{Ask, Client, NoAnswer, get};
use crate::support::message;
use crate::support::proxy::{GROUP, Proxy, Setup, Until, text};
use crate::support::scripted::ANSWERS;
use crate::support::{Driver, PATIENCE, TempDir, eventually, for_each_driver, need, run_within};
use crate::{assert_problem, plain, streaming};

/// Short enough to be waited for.
const SHORT: &str = "\"300ms\"";

// === clients that go ===

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

/// The child has the request, and has not begun to answer: the slot is free again at once.
#[test]
fn a_client_that_resets_before_its_answer_does_not_count_as_under_way() {
    for_each_driver(|driver| resets(driver, "GET /nothing HTTP/1.1\r\nHost: a.test\r\n\r\n", false));
}

#[test]
fn a_client_that_resets_within_its_body_does_not_count_as_under_way() {
    let half = "PUT /nothing HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nhalf";
    for_each_driver(|driver| resets(driver, half, false));
}

/// The child has begun to answer and says nothing more for now, as one does that tells events when there are any.
#[test]
fn a_client_that_resets_within_its_answer_does_not_count_as_under_way() {
    for_each_driver(|driver| resets(driver, "GET /half HTTP/1.1\r\nHost: a.test\r\n\r\n", true));
}

#[test]
fn a_client_that_resets_its_tunnel_does_not_count_as_under_way() {
    for_each_driver(|driver| resets(driver, &format!("GET /tunnel HTTP/1.1\r\nHost: a.test\r\n{UPGRADE}\r\n"), true));
}

/// Five clients ask, wait for the head of an answer where one comes, and reset.
fn resets(driver: Driver, request: &str, answer_begins: bool) {
    const CLIENTS: usize = 5;
    let gate = Gate::closed();
    let at_gate = Arc::clone(&gate);
    let child = Server::start(move |peer| {
        let head = peer.head()?;
        match head.target.as_slice() {
            b"/half" => peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?,
            b"/tunnel" => peer.send(format!("HTTP/1.1 101 Switching Protocols\r\n{UPGRADE}\r\n").as_bytes())?,
            b"/ok" => return peer.send(&ok(&head)),
            _ => {}
        }
        at_gate.pass();
        Some(())
    });
    let proxy = Proxy::start(&streaming(driver, child.port()).set("timeouts", "response_body", text("300s")));
    let streams: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let stream = connect(proxy.port);
            send(&stream, request.as_bytes());
            stream
        })
        .collect();
    child.wait_heads(CLIENTS);
    if answer_begins {
        streams.iter().for_each(|stream| drop(receive_head(stream)));
    }
    assert_eq!(proxy.child("a")["in_flight"], CLIENTS);
    streams.into_iter().for_each(reset);
    eventually("none is under way", || (proxy.child("a")["in_flight"] == 0).then_some(()));
    // None of that was the child's fault.
    let said = proxy.child("a");
    assert!(said["state"] == "up" && said["failures"] == 0, "{said:#}");
    assert_eq!(get(proxy.port, "/ok").expect("an answer").status(), 200);
    gate.open();
}

/// A client that has sent its last request may stop sending, and still waits for the answer.
#[test]
fn a_client_that_only_stops_sending_still_gets_its_answer() {
    for_each_driver(|driver| {
        let gate = Gate::closed();
        let at_gate = Arc::clone(&gate);
        let child = Server::start(move |peer| {
            let request = peer.request()?;
            at_gate.pass();
            peer.send(&ok(&request.head))
        });
        let proxy = Proxy::start(&streaming(driver, child.port()));
        let streams = [
            "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "PUT /2 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody",
        ]
        .map(|request| {
            let stream = connect(proxy.port);
            send(&stream, request.as_bytes());
            stream.shutdown(std::net::Shutdown::Write).expect("a socket");
            stream
        });
        gate.wait_waiting(2);
        gate.open();
        for (stream, target) in streams.iter().zip(["/1", "/2"]) {
            let (octets, _) = receive_all(stream);
            let received = message::received(&octets, false, true);
            assert_eq!(received.finals.first().and_then(|answer| answer.field(ANSWERS)).as_deref(), Some(target));
        }
    });
}

// === the next child ===

fn pair(driver: Driver, bad: &Server, good: &Server) -> Setup {
    Setup::new(driver, "http", "http")
        .rule("method = [\"POST\"]\npath = \"/search\"\nclass = \"read\"")
        .rule("method = [\"POST\"]\npath = \"/safe\"\nclass = \"read\"\nsafe = true")
        .group("policy", text("failover"))
        .child("a", bad.port())
        .child("b", good.port())
}

/// Twice is as good as once for a GET, and for what a rule calls safe. Nobody said so of a POST.
#[test]
fn a_post_is_not_tried_on_a_second_child() {
    for_each_driver(|driver| {
        for (method, target, body, tried_again) in [
            ("GET", "/page", None, true),
            ("HEAD", "/page", None, true),
            ("POST", "/search", None, false),
            ("POST", "/search", Some("body"), false),
            ("POST", "/safe", None, true),
            // Of a streamed body, what was taken cannot be had again.
            ("POST", "/safe", Some("body"), false),
        ] {
            let said = format!("{method} {target} {body:?}");
            let bad = Server::start(|peer| peer.request().map(drop));
            let good = Server::start(behave);
            let proxy = Proxy::start(&pair(driver, &bad, &good));
            let ask = Ask { body: body.map(str::as_bytes), ..Ask::new(method, target) };
            let answer = ask.at(proxy.port).unwrap_or_else(|why| panic!("{said}: {why}"));
            if tried_again {
                assert_eq!((answer.status(), answer.field(ANSWERS).as_deref()), (200, Some(target)), "{said}");
            } else {
                assert_problem(&answer, 502, "child_closed");
            }
            assert_eq!(bad.targets(), [target], "{said}");
            assert_eq!(good.targets().len(), usize::from(tried_again), "{said}");
        }
    });
}

/// Nothing was sent where no connection stood: then anything may be tried elsewhere.
#[test]
fn a_child_that_takes_no_connection_costs_no_request() {
    for_each_driver(|driver| {
        let good = Server::start(behave);
        for target in ["/search", "/page"] {
            let bad = Server::start(behave);
            let proxy = Proxy::start(&pair(driver, &bad, &good));
            proxy.wait_child_state("a", "up");
            drop(bad);
            let method = if target == "/search" { "POST" } else { "GET" };
            let body: Option<&[u8]> = (target == "/search").then_some(b"body");
            let answer = Ask { body, ..Ask::new(method, target) }.at(proxy.port).expect("an answer");
            assert_eq!((answer.status(), answer.field(ANSWERS).as_deref()), (200, Some(target)), "{answer}");
        }
    });
}

/// A server may close an idle connection at any moment: that is no failure of the request which meets it, or of the
/// child.
#[test]
fn an_idle_connection_that_the_child_closed_costs_no_request() {
    for_each_driver(|driver| {
        // Closed after each answer, without having said so.
        let child = Server::start(|peer| {
            let request = peer.request()?;
            peer.send(&ok(&request.head))
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        let mut client = Client::connect(proxy.port).expect("a connection");
        for number in 0..200 {
            let target = format!("/{number}");
            let answer = client.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{target}: {why}"));
            assert_eq!((answer.status(), answer.field(ANSWERS)), (200, Some(target)), "{answer}");
        }
        let said = proxy.child("a");
        assert!(said["state"] == "up" && said["failures"] == 0, "{said:#}");
        assert_eq!(child.requests().len(), 200, "each once");
    });
}

// === several addresses of one child ===

/// The name that is made to lead to two addresses, where we may.
const TWOFOLD: &str = "twofold.test";

/// Whether what `getent ahosts` says begins with the address where nobody listens, and goes on with the other.
fn leads_to_both(said: &str) -> bool {
    let first = said.lines().next().unwrap_or_default();
    first.starts_with("::1 ") && said.contains("127.0.0.1 ")
}

/// Nobody listens on the first address of its name; the second answers.
#[test]
fn a_child_is_not_lost_with_the_first_of_its_addresses() {
    let dir = TempDir::new("hosts");
    let local: Vec<_> = ("localhost", 80).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let by_itself = local.first().is_some_and(std::net::SocketAddr::is_ipv6) && local.iter().any(|one| one.is_ipv4());
    // Where `localhost` is one address only, a name of our own: in a mount namespace with another /etc/hosts.
    let hosts = dir.write("hosts", &format!("127.0.0.1 localhost\n::1 {TWOFOLD}\n127.0.0.1 {TWOFOLD}\n"));
    let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let words = ["--mount", "sh", "-c", &script, "sh"];
    let under = if by_itself { None } else { need("unshare") };
    let name = if by_itself { "localhost" } else { TWOFOLD };
    if !by_itself {
        let Some(unshare) = &under else { return };
        let ran = run_within(Command::new(unshare).args(words).args(["getent", "ahosts", TWOFOLD]), PATIENCE);
        if !leads_to_both(&ran.stdout) {
            eprintln!("no name leads to ::1 and 127.0.0.1 here: {}", ran.text());
            return;
        }
    }
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let address = format!("\n[[group.{GROUP}.child]]\nname = \"a\"\naddress = \"{name}:{}\"\n", child.port());
        let mut setup = Setup::new(driver, "http", "http").tail(&address);
        if let Some(unshare) = &under {
            setup = setup.under(unshare, &words);
        }
        let proxy = Proxy::start(&setup);
        for number in 0..20 {
            let target = format!("/{number}");
            let answer = get(proxy.port, &target).expect("an answer");
            assert_eq!((answer.status(), answer.field(ANSWERS)), (200, Some(target)), "{answer}");
        }
        let put = Ask::new("PUT", "/change").body(b"body").at(proxy.port).expect("an answer");
        assert_eq!(put.status(), 200, "{put}");
        let said = proxy.child("a");
        assert_eq!(said["address"], format!("127.0.0.1:{}", child.port()), "{said:#}");
        assert!(said["state"] == "up" && said["falls"] == 0, "{said:#}");
    });
}

// === time-outs that other suites do not name ===

/// `client_write`: what is meant for a client that does not read is not kept for ever.
#[test]
fn a_client_that_does_not_read_is_cut() {
    let body = Arc::new(noise(4 * 1024 * 1024));
    for_each_driver(|driver| {
        let its = Arc::clone(&body);
        let child = Server::start(move |peer| {
            peer.request()?;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", its.len()).as_bytes())?;
            peer.send(&its)
        });
        let proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "client_write", SHORT));
        let stream = connect_narrow(proxy.port);
        send(&stream, b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n");
        child.wait_heads(1);
        eventually("it is given up", || (proxy.child("a")["in_flight"] == 0).then_some(()));
        let (octets, ended) = receive_all(&stream);
        assert!(octets.len() < body.len() && ended == Ended::Reset, "{} octets, {ended:?}", octets.len());
        let said = proxy.child("a");
        assert!(said["state"] == "up" && said["failures"] == 0, "the child has done nothing wrong: {said:#}");
    });
}

/// `request_body_rate_min`: never silent for long, and never done.
#[test]
fn a_body_that_trickles_is_not_waited_for() {
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let short = |setup: Setup| {
            setup.set("timeouts", "request_body", text("500ms")).set(
                "timeouts",
                "request_body_rate_min",
                text("100KiB"),
            )
        };
        // As a change, which is read whole, and as a read, which is streamed.
        for setup in [short(plain(driver, child.port())), short(streaming(driver, child.port()))] {
            let proxy = Proxy::start(&setup);
            let mut client = Client::connect_within(proxy.port, Duration::from_millis(20)).expect("a connection");
            client.send(b"PUT /trickle HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n").expect("sent");
            let begun = Instant::now();
            let answer = loop {
                assert!(begun.elapsed() < PATIENCE, "served for ever");
                let _ = client.send(b"x");
                match client.answer(false) {
                    Err(NoAnswer::Silent(_)) => {}
                    other => break other.unwrap_or_else(|why| panic!("{why}")),
                }
            };
            assert_problem(&answer, 408, "body_timeout");
        }
        assert!(child.requests().is_empty(), "a child took it for whole");
    });
}

/// A child that neither reads a long body nor answers: the end must come from somewhere.
#[test]
fn an_upload_that_the_child_does_not_read_ends() {
    let body = noise(8 * 1024 * 1024);
    for_each_driver(|driver| {
        let gate = Gate::closed();
        let at_gate = Arc::clone(&gate);
        let child = Server::start(move |peer| {
            peer.slow_down(Duration::ZERO);
            peer.head()?;
            at_gate.pass();
            Some(())
        });
        let setup = streaming(driver, child.port()).set("timeouts", "request_body", SHORT).set(
            "timeouts",
            "response_head",
            SHORT,
        );
        let proxy = Proxy::start(&setup);
        let stream = connect(proxy.port);
        thread::scope(|scope| {
            scope.spawn(|| {
                let head = format!("PUT /long HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len());
                send(&stream, head.as_bytes());
                // Nobody has to take it all.
                let _ = std::io::Write::write_all(&mut &stream, &body);
            });
            let head = receive_head(&stream);
            assert!(head.starts_with(b"HTTP/1.1 504 "), "{}", String::from_utf8_lossy(&head));
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        gate.open();
        eventually("none is under way", || (proxy.child("a")["in_flight"] == 0).then_some(()));
    });
}

/// `keep_alive` is for a connection without a request; the first octet of one begins `request_head`.
#[test]
fn half_a_head_on_a_kept_connection_is_told_and_not_dropped() {
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let setup = plain(driver, child.port()).set("timeouts", "keep_alive", text("60s"));
        let proxy = Proxy::start_until(&setup.set("timeouts", "request_head", SHORT), Until::Ready);
        let mut client = Client::connect(proxy.port).expect("a connection");
        assert_eq!(client.ask(&Ask::get("/whole")).expect("an answer").status(), 200);
        client.send(b"GET /ha").expect("sent");
        assert_problem(&client.answer(false).expect("an answer"), 408, "head_timeout");
        assert!(client.is_closed_within(PATIENCE));
        assert_eq!(child.targets(), ["/whole"]);
    });
}
