//! Bodies: whose child goes away in the middle, at the limit, and between peers of unequal speed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::peer::{
    Server, assert_same, behave, connect, connect_narrow, in_chunks, noise, ok, peak_resident_bytes, receive_all, send,
};
use crate::support::client::{Ask, Client, get};
use crate::support::message::{self, Received};
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::scripted::ANSWERS;
use crate::support::{Driver, PATIENCE, eventually, for_each_driver};
use crate::{assert_problem, plain, streaming};

// === a child that goes away under a body ===

/// How much of a request the child takes before it closes the connection that it was reused on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Head,
    Part,
}

/// How the client's octets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Come {
    AtOnce,
    /// The head, and the rest when the child has it.
    HeadFirst,
    /// Head and half of the body, and the rest when the child has that.
    Half,
}

const DECOY: &str = "GET /decoy HTTP/1.1\r\nHost: a.test\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[test]
fn a_body_whose_child_went_away_is_not_parsed_as_requests() {
    for_each_driver(|driver| {
        for takes in [Takes::Head, Takes::Part] {
            for come in [Come::AtOnce, Come::HeadFirst, Come::Half] {
                for method in ["POST", "PUT"] {
                    body_without_a_child(driver, takes, come, method);
                }
            }
        }
    });
}

fn body_without_a_child(driver: Driver, takes: Takes, come: Come, method: &str) {
    let said = format!("{method}, {come:?}, the child takes {takes:?}");
    let closed = Arc::new(AtomicUsize::new(0));
    let closing = Arc::clone(&closed);
    let child = Server::start(move |peer| {
        let first = peer.request()?;
        peer.send(&ok(&first.head))?;
        // The second request of its first connection meets the end.
        let head = peer.head()?;
        if first.head.target == b"/warm" {
            if takes == Takes::Part && come != Come::HeadFirst {
                peer.octets(10)?;
            }
            closing.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        peer.body(head.clone())?;
        peer.send(&ok(&head))?;
        behave(peer)
    });
    let proxy = Proxy::start(&streaming(driver, child.port()));
    let stream = connect(proxy.port);
    let mut client = Client::connect(proxy.port).expect("a connection");
    assert_eq!(client.ask(&Ask::get("/warm")).expect("an answer").status(), 200);
    let head = format!("{method} /upload HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = format!("{:x}\r\n{DECOY}\r\n{:x}\r\n{DECOY}\r\n0\r\n\r\n", DECOY.len(), DECOY.len());
    let (first, rest) = match come {
        Come::AtOnce => (head + &body + NEXT, String::new()),
        Come::HeadFirst => (head, body + NEXT),
        Come::Half => (head + &body[..50], body[50..].to_owned() + NEXT),
    };
    send(&stream, first.as_bytes());
    eventually(&format!("{said}: the child closes"), || (closed.load(Ordering::SeqCst) == 1).then_some(()));
    // Only a body of which nothing was taken can be sent once more, and only by a method that may be repeated.
    let again = come == Come::HeadFirst && method == "PUT";
    if again {
        child.wait_heads(3);
    }
    let _ = (&stream).write_all(rest.as_bytes());
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let (octets, _) = receive_all(&stream);
    let Received { finals, rest, unlawful, .. } = message::received(&octets, false, true);
    assert!(unlawful.is_none() && rest.is_empty(), "{said}: {unlawful:?}");
    let upload = finals.first().unwrap_or_else(|| panic!("{said}: no answer"));
    if again {
        assert_eq!(upload.status(), 200, "{said}: {upload}");
    } else if upload.status() != 200 {
        assert_problem(upload, 502, "child_closed");
    }
    // Either the next request is answered as such, or the client was told that it is not.
    if upload.head.fields.list("connection").contains(&"close".to_owned()) {
        assert_eq!(finals.len(), 1, "{said}");
    } else {
        assert_eq!(finals.len(), 2, "{said}");
        assert_eq!(finals[1].field(ANSWERS).as_deref(), Some("/next"), "{said}");
    }
    let targets = child.targets();
    assert!(
        targets.iter().all(|target| ["/warm", "/upload", "/next"].contains(&target.as_str())),
        "{said}: {targets:?}"
    );
    for request in child.requests().iter().filter(|request| request.path() == "/upload") {
        assert_eq!(request.body, [DECOY, DECOY].concat().as_bytes(), "{said}: a body that is not the client's");
    }
    assert_eq!(get(proxy.port, "/after").expect("an answer").status(), 200, "{said}");
}

// === limits ===

/// Framing and heads are not part of a body; one octet more is.
#[test]
fn a_body_of_exactly_the_limit_is_taken_and_no_octet_more() {
    const LIMIT: usize = 64 * 1024;
    for_each_driver(|driver| {
        let child = Server::start(behave);
        let small = |setup: Setup| {
            setup.set("limits", "body_bytes_max", text("64KiB")).set("limits", "action_bytes_max", text("64KiB"))
        };
        for setup in [small(plain(driver, child.port())), small(streaming(driver, child.port()))] {
            let proxy = Proxy::start(&setup);
            let ask = |framing: &str, body: &[u8]| {
                let mut client = Client::connect(proxy.port).expect("a connection");
                let head = format!("PUT /limit HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n\r\n");
                client.send(head.as_bytes()).expect("sent");
                // Who has refused it may not take it all.
                let _ = client.send(body);
                client.answer(false).unwrap_or_else(|why| panic!("{framing}: {why}"))
            };
            for size in [LIMIT, LIMIT + 1] {
                let body = noise(size);
                let length = format!("Content-Length: {size}");
                let answers = [
                    ask(&length, &body),
                    ask("Transfer-Encoding: chunked", &in_chunks(&body, 1000)),
                    // The last octet comes in a chunk of its own.
                    ask("Transfer-Encoding: chunked", &in_chunks(&body, LIMIT)),
                ];
                for answer in &answers {
                    if size == LIMIT {
                        assert_eq!(answer.status(), 200, "{answer}");
                    } else {
                        assert_problem(answer, 413, "body_too_large");
                    }
                }
            }
            // One that asks first is refused before it has sent anything.
            let mut client = Client::connect(proxy.port).expect("a connection");
            let head = format!(
                "PUT /limit HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                LIMIT + 1
            );
            client.send(head.as_bytes()).expect("sent");
            assert_eq!(client.interim().expect("an answer"), 413);
            assert_eq!(get(proxy.port, "/after").expect("an answer").status(), 200);
        }
        let whole = child.requests();
        assert!(whole.iter().all(|request| request.body.len() <= LIMIT), "a child took more than the limit");
        assert_eq!(whole.iter().filter(|request| request.body.len() == LIMIT).count(), 6);
    });
}

// === unequal speeds ===

const LARGE: usize = 8 * 1024 * 1024;
/// Of each kind at once: together they are more than may be heaped up.
const OF_EACH: usize = 3;
const GROWTH_MAX: u64 = 64 * 1024 * 1024;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    UpLength,
    UpChunked,
    DownLength,
    DownChunked,
    DownUntilClose,
}

const KINDS: [Kind; 5] = [Kind::UpLength, Kind::UpChunked, Kind::DownLength, Kind::DownChunked, Kind::DownUntilClose];

/// One side is fast, the other slow; neither may make antiphon hold what is between them.
#[test]
fn a_body_between_unequal_peers_is_not_heaped_up() {
    let body = Arc::new(noise(LARGE));
    let chunked = Arc::new(in_chunks(&body, 50_001));
    for_each_driver(|driver| {
        let (its, its_chunked) = (Arc::clone(&body), Arc::clone(&chunked));
        let child = Server::start(move |peer| {
            loop {
                let head = peer.head()?;
                let slow_child = head.fields.text("x-slow").as_deref() == Some("child");
                peer.slow_down(if slow_child { PAUSE } else { Duration::ZERO });
                let mut say = |framing: &str, octets: &[u8]| {
                    peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n").as_bytes())?;
                    for piece in octets.chunks(if slow_child { 16 * 1024 } else { LARGE }) {
                        peer.send(piece)?;
                        if slow_child {
                            thread::sleep(PAUSE);
                        }
                    }
                    Some(())
                };
                match head.target.as_slice() {
                    b"/DownLength" => say(&format!("Content-Length: {LARGE}\r\n"), &its)?,
                    b"/DownChunked" => say("Transfer-Encoding: chunked\r\n", &its_chunked)?,
                    b"/DownUntilClose" => return say("", &its),
                    _ => {
                        let request = peer.body(head)?;
                        assert_same("up", &request.body, &its);
                        peer.send(&ok(&request.head))?;
                    }
                }
            }
        });
        // Slow is not too slow here.
        let setup = ["request_body", "response_head", "response_body", "client_write"]
            .iter()
            .fold(streaming(driver, child.port()), |setup, key| setup.set("timeouts", key, text("120s")));
        let proxy = Proxy::start(&setup);
        assert_eq!(Ask::new("PUT", "/warm").body(&body).at(proxy.port).expect("an answer").status(), 200);
        let before = peak_resident_bytes(proxy.pid());
        thread::scope(|scope| {
            for kind in KINDS {
                for number in 0..OF_EACH {
                    let (proxy, body, chunked) = (&proxy, &body, &chunked);
                    // Mostly the one who receives is slow: that is when something could heap up.
                    let slow_sender = number == 0;
                    scope.spawn(move || exchange(proxy.port, kind, slow_sender, body, chunked));
                }
            }
        });
        let growth = peak_resident_bytes(proxy.pid()).saturating_sub(before);
        eprintln!("GROWTH {} KiB", growth / 1024);
        assert!(growth < GROWTH_MAX, "grew by {} KiB on {}", growth / 1024, driver.key());
        eventually("nothing is under way", || (proxy.child("a")["in_flight"] == 0).then_some(()));
    });
}

fn exchange(port: u16, kind: Kind, slow_sender: bool, body: &[u8], chunked: &[u8]) {
    let up = matches!(kind, Kind::UpLength | Kind::UpChunked);
    let slow_client = up == slow_sender;
    let stream = if slow_client { connect_narrow(port) } else { connect(port) };
    // Twenty of these share two cores with whatever else runs.
    stream.set_read_timeout(Some(PATIENCE * 4)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE * 4)).expect("a socket");
    let slow = if slow_client { "client" } else { "child" };
    let (method, framing, octets) = match kind {
        Kind::UpLength => ("PUT", format!("Content-Length: {LARGE}\r\n"), body),
        Kind::UpChunked => ("PUT", "Transfer-Encoding: chunked\r\n".to_owned(), chunked),
        _ => ("GET", String::new(), &[][..]),
    };
    let head =
        format!("{method} /{kind:?} HTTP/1.1\r\nHost: a.test\r\nX-Slow: {slow}\r\nConnection: close\r\n{framing}\r\n");
    send(&stream, head.as_bytes());
    for piece in octets.chunks(if slow_client { 16 * 1024 } else { LARGE }) {
        send(&stream, piece);
        if slow_client {
            thread::sleep(PAUSE);
        }
    }
    let octets = if slow_client && !up { receive_slowly(&stream) } else { receive_all(&stream).0 };
    let received = message::received(&octets, false, true);
    let answer = received.finals.first().unwrap_or_else(|| panic!("{kind:?}: no answer"));
    assert!(answer.status() == 200 && answer.whole, "{kind:?}, slow {slow}: {answer}");
    if up {
        assert_eq!(answer.text(), "ok");
    } else {
        assert_same(&format!("{kind:?}, slow {slow}"), &answer.body, body);
    }
}

fn receive_slowly(mut stream: &TcpStream) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).expect("antiphon goes on") {
            0 => return octets,
            count => octets.extend_from_slice(&buffer[..count]),
        }
        thread::sleep(PAUSE);
    }
}
