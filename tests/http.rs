//! HTTP/1.1 through the real binary, beyond the cases: every named time-out with its error, bodies of many buffers,
//! many connections at once, tunnels, routes, and that nothing leaks.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use socket2::{Domain, SockRef, Socket, Type};
use support::client::{self, Ask, Client, NoAnswer};
use support::message::Response;
use support::proxy::{Proxy, Setup, text};
use support::scripted::{ANSWERS, Scripted, Step, accept_request, listen};
use support::{Driver, PATIENCE, eventually, for_each_driver};

/// Short enough to be waited for.
const SHORT: &str = "\"300ms\"";

fn plain(driver: Driver, child: u16) -> Setup {
    Setup::new(driver, "http", "http").child("a", child)
}

/// A group whose every method is a read, so that bodies are streamed.
fn streaming(driver: Driver, child: u16) -> Setup {
    plain(driver, child).rule("method = [\"*\"]\npath = \"*\"\nclass = \"read\"")
}

/// An error of the proxy's own: a problem document (RFC 9457) with this code.
#[track_caller]
fn assert_problem(answer: &Response, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{answer}");
    assert_eq!(answer.field("Content-Type").as_deref(), Some("application/problem+json"), "{answer}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((&problem["status"], &problem["code"]), (&status.into(), &code.into()), "{answer}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{answer}");
    assert!(answer.field("Proxy-Status").is_some_and(|field| field.starts_with("antiphon; error=")), "{answer}");
}

// === every named time-out ===

#[test]
fn request_head_ends_a_head_that_does_not_come() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "request_head", SHORT));
        let mut client = Client::connect(proxy.port).expect("a connection");
        client.send(b"GET /page HTTP/1.1\r\nHost: a.t").expect("sent");
        assert_problem(&client.answer(false).expect("an answer"), 408, "head_timeout");
        assert!(client.is_closed_within(PATIENCE));
        assert!(child.records().is_empty());
    });
}

#[test]
fn request_body_ends_a_body_that_does_not_come() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let short = plain(driver, child.port()).set("timeouts", "request_body", SHORT);
        // As a change, which is read whole before any child sees it, and as a read, which is streamed.
        let streamed = short.clone().rule("method = [\"*\"]\npath = \"*\"\nclass = \"read\"");
        for setup in [short, streamed] {
            let proxy = Proxy::start(&setup);
            let mut client = Client::connect(proxy.port).expect("a connection");
            client.send(b"PUT /page HTTP/1.1\r\nHost: a.test\r\nContent-Length: 50\r\n\r\nhalf").expect("sent");
            assert_problem(&client.answer(false).expect("an answer"), 408, "body_timeout");
            assert!(client.is_closed_within(PATIENCE));
            assert!(child.records().iter().all(|record| record.requests.is_empty()), "a child took it for whole");
        }
    });
}

#[test]
fn keep_alive_closes_an_idle_client_without_a_word() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "keep_alive", SHORT));
        let mut client = Client::connect(proxy.port).expect("a connection");
        assert_eq!(client.ask(&Ask::get("/page")).expect("an answer").status(), 200);
        assert!(matches!(client.answer(false), Err(NoAnswer::Cut(octets)) if octets.is_empty()));
    });
}

#[test]
fn connect_gives_up_a_child_that_takes_no_connection() {
    for_each_driver(|driver| {
        // A listener whose queue is full: the kernel lets further attempts wait.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, support::ports::free()));
        socket.bind(&address.into()).and_then(|()| socket.listen(0)).expect("a listener");
        let proxy_setup = plain(driver, address.port()).group("policy", text("round_robin"));
        let short = format!("group.{}.timeouts", support::proxy::GROUP);
        let proxy = Proxy::start(&proxy_setup.set(&short, "connect", SHORT));
        let full: Vec<Socket> = (0..4)
            .map(|_| {
                let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
                client.set_nonblocking(true).expect("a socket");
                let _ = client.connect(&address.into());
                client
            })
            .collect();
        let answer = client::get(proxy.port, "/page").expect("an answer");
        assert_problem(&answer, 504, "child_connect_timeout");
        drop(full);
    });
}

#[test]
fn response_head_gives_up_a_child_that_does_not_begin() {
    for_each_driver(|driver| {
        let child = Scripted::start(vec![Step::Request, Step::Wait(PATIENCE)]);
        let setup = plain(driver, child.port()).set("timeouts", "response_head", SHORT);
        let proxy = Proxy::start(&setup);
        assert_problem(&client::get(proxy.port, "/page").expect("an answer"), 504, "child_head_timeout");
    });
}

#[test]
fn response_body_cuts_an_answer_that_does_not_go_on() {
    for_each_driver(|driver| {
        for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
            let part = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n").into_bytes();
            let child = Scripted::start(vec![Step::Request, Step::Send(part), Step::Wait(PATIENCE)]);
            let setup = plain(driver, child.port()).set("timeouts", "response_body", SHORT);
            let proxy = Proxy::start(&setup);
            // Begun and not ended: the client must see that.
            let answer = client::get(proxy.port, "/page");
            assert!(matches!(&answer, Err(NoAnswer::Cut(octets)) if octets.starts_with(b"HTTP/1.1 200")), "{answer:?}");
        }
    });
}

const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn tunnel_idle_closes_a_silent_tunnel_on_both_sides() {
    for_each_driver(|driver| {
        let child = Scripted::start(vec![Step::Head, Step::Send(SWITCH.to_vec()), Step::Octets(4), Step::Octets(1)]);
        let proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "tunnel_idle", SHORT));
        let mut client = Client::connect(proxy.port).expect("a connection");
        client.send(UPGRADE).expect("sent");
        assert_eq!(client.interim().expect("an answer"), 101);
        client.send(b"ping").expect("sent");
        assert!(client.is_closed_within(PATIENCE));
        eventually("the child's side is closed, too", || child.records()[0].closed_by_proxy.then_some(()));
        assert_eq!(child.records()[0].raw, b"ping");
    });
}

#[test]
fn drain_cuts_what_does_not_end() {
    for_each_driver(|driver| {
        let child = Scripted::start(vec![Step::Request, Step::Wait(PATIENCE)]);
        let mut proxy = Proxy::start(&plain(driver, child.port()).set("timeouts", "drain", SHORT));
        let mut client = Client::connect(proxy.port).expect("a connection");
        client.send(b"GET /never HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
        eventually("the child has it", || child.records().first().map(|record| record.requests.len() == 1));
        proxy.signal(Signal::TERM);
        assert_eq!(proxy.wait_exit().code(), Some(0), "{}", proxy.log());
        assert!(client.answer(false).is_err());
    });
}

// === bodies ===

/// Octets without a period that could hide a piece that is missing, doubled or exchanged.
fn octets(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    (0..count.div_ceil(4)).flat_map(|_| next()).take(count).collect()
}

fn in_chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[track_caller]
fn assert_same(what: &str, found: &[u8], wanted: &[u8]) {
    let differs = found.iter().zip(wanted).position(|(one, other)| one != other);
    assert!(found == wanted, "{what}: {} octets of {}, first difference at {differs:?}", found.len(), wanted.len());
}

#[test]
fn bodies_of_many_buffers_arrive_whole_both_ways() {
    for_each_driver(|driver| {
        // One octet each side of the buffers' borders, and far above them.
        for size in [1, 4095, 4096, 4097, 32_767, 32_768, 32_769, 65_536, 262_145, 5_000_000] {
            let body = octets(size);
            let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
            let down = [length.as_bytes(), &body].concat();
            let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            let down_chunked = [chunked, in_chunks(&body, 7001)].concat();
            let script = vec![Step::Request, Step::Send(down), Step::Request, Step::Send(down_chunked)];
            let child = Scripted::start(script);
            let proxy = Proxy::start(&streaming(driver, child.port()));
            let mut client = Client::connect(proxy.port).expect("a connection");
            let up = client.ask(&Ask::new("PUT", "/a").body(&body)).unwrap_or_else(|why| panic!("{size}: {why:.200}"));
            assert_same(&format!("{size} down"), &up.body, &body);
            client.send(b"PUT /b HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
            client.send(&in_chunks(&body, 5003)).expect("sent");
            let up = client.answer(false).unwrap_or_else(|why| panic!("{size}: {why:.200}"));
            assert_same(&format!("{size} down in chunks"), &up.body, &body);
            let requests = child.records().into_iter().flat_map(|record| record.requests).collect::<Vec<_>>();
            assert_eq!(requests.len(), 2);
            assert_same(&format!("{size} up"), &requests[0].body, &body);
            assert_same(&format!("{size} up in chunks"), &requests[1].body, &body);
        }
    });
}

#[test]
fn a_change_with_a_large_body_reaches_all_whole() {
    for_each_driver(|driver| {
        let body = octets(3_000_000);
        let children = [Scripted::start(Vec::new()), Scripted::start(Vec::new())];
        let proxy = Proxy::start(&plain(driver, children[0].port()).child("b", children[1].port()));
        proxy.wait_child_state("b", "up");
        let answer = Ask::new("PUT", "/a").body(&body).at(proxy.port).expect("an answer");
        assert_eq!(answer.status(), 200, "{answer}");
        for child in &children {
            let requests = child.records().into_iter().flat_map(|record| record.requests).collect::<Vec<_>>();
            assert_eq!(requests.len(), 1);
            assert_same("the change", &requests[0].body, &body);
        }
    });
}

/// A change is read whole before any child sees it, so it is the proxy that says "continue".
#[test]
fn a_change_is_asked_for_with_100() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let proxy = Proxy::start(&plain(driver, child.port()));
        let mut client = Client::connect(proxy.port).expect("a connection");
        client
            .send(b"PUT /page HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            .expect("sent");
        assert_eq!(client.interim().expect("an answer"), 100);
        assert!(child.records().is_empty(), "nobody sees a change without its body");
        client.send(b"hello").expect("sent");
        assert_eq!(client.answer(false).expect("an answer").status(), 200);
        assert_eq!(child.records()[0].requests[0].body, b"hello");
    });
}

#[test]
fn a_body_above_its_limit_is_refused() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let small = |setup: Setup| {
            setup.set("limits", "body_bytes_max", text("64KiB")).set("limits", "action_bytes_max", text("64KiB"))
        };
        for setup in [small(plain(driver, child.port())), small(streaming(driver, child.port()))] {
            let proxy = Proxy::start(&setup);
            let long = octets(65_537);
            let answer = Ask::new("PUT", "/page").body(&long).at(proxy.port).expect("an answer");
            assert_problem(&answer, 413, "body_too_large");
            // Without a declared length it is known only on the way.
            let mut client = Client::connect(proxy.port).expect("a connection");
            client.send(b"PUT /page HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
            let _ = client.send(&in_chunks(&long, 1000));
            assert_problem(&client.answer(false).expect("an answer"), 413, "body_too_large");
        }
        assert!(child.records().iter().all(|record| record.requests.is_empty()), "a child took a part for the whole");
    });
}

// === connections ===

#[test]
fn answers_go_to_those_who_asked() {
    for_each_driver(|driver| {
        let children = [Scripted::start(Vec::new()), Scripted::start(Vec::new())];
        let setup = plain(driver, children[0].port()).child("b", children[1].port()).set("workers", "count", "2");
        let proxy = Proxy::start(&setup);
        thread::scope(|scope| {
            for number in 0..64 {
                let port = proxy.port;
                scope.spawn(move || {
                    let mut client = Client::connect(port).expect("a connection");
                    for round in 0..10 {
                        let target = format!("/{number}/{round}");
                        let answer = client.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{target}: {why}"));
                        assert_eq!((answer.status(), answer.field(ANSWERS)), (200, Some(target)));
                    }
                });
            }
        });
    });
}

#[test]
fn a_hundred_requests_in_one_piece_are_answered_in_order() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let proxy = Proxy::start(&plain(driver, child.port()));
        let mut client = Client::connect(proxy.port).expect("a connection");
        let all: String = (0..100).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n")).collect();
        client.send(all.as_bytes()).expect("sent");
        for number in 0..100 {
            let answer = client.answer(false).unwrap_or_else(|why| panic!("{number}: {why}"));
            assert_eq!(answer.field(ANSWERS), Some(format!("/{number}")));
        }
    });
}

#[test]
fn nothing_is_left_open_of_connections_that_have_ended() {
    for_each_driver(|driver| {
        let child = Scripted::start(Vec::new());
        let proxy = Proxy::start(&plain(driver, child.port()));
        assert_eq!(client::get(proxy.port, "/first").expect("an answer").status(), 200);
        let before = proxy.descriptors();
        for number in 0..300 {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).expect("it listens");
            match number % 4 {
                // An exchange, half a head, nothing, and a reset with an answer under way.
                0 => drop(client::get(proxy.port, "/whole").expect("an answer")),
                1 => drop(stream.write_all(b"GET /ha")),
                2 => {}
                _ => {
                    let _ = stream.write_all(b"GET /reset HTTP/1.1\r\nHost: a.test\r\n\r\n");
                    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                }
            }
        }
        // What is pooled for the child is let go, too, after a while.
        eventually("as many descriptors as before", || (proxy.descriptors() <= before).then_some(()));
    });
}

// === tunnels ===

#[test]
fn a_tunnel_carries_any_octets_both_ways_at_once() {
    for_each_driver(|driver| {
        let (listener, port) = listen();
        let proxy = Proxy::start(&plain(driver, port));
        let (up, down) = (octets(1_500_000), octets(2_000_003));
        thread::scope(|scope| {
            let child = scope.spawn(|| {
                let mut stream = accept_request(&listener);
                let head = read_head(&mut stream);
                assert!(head.starts_with(b"GET /chat HTTP/1.1\r\n"));
                stream.write_all(SWITCH).expect("the proxy reads");
                exchange(&stream, &down, &up);
                // The client closes; that comes through as an end, too.
                assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
            });
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
            stream.write_all(UPGRADE).expect("sent");
            assert!(read_head(&mut stream).starts_with(b"HTTP/1.1 101 "));
            exchange(&stream, &up, &down);
            drop(stream);
            child.join().expect("the child is content");
        });
    });
}

fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet).expect("a head");
        head.extend(octet);
    }
    head
}

/// Sends and receives at once.
fn exchange(stream: &TcpStream, out: &[u8], wanted: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            stream.write_all(out).expect("the proxy reads");
        });
        let mut received = vec![0; wanted.len()];
        let mut stream = stream;
        stream.read_exact(&mut received).expect("all of it");
        assert_same("through the tunnel", &received, wanted);
    });
}

// === routes ===

#[test]
fn hosts_and_paths_lead_to_groups() {
    for_each_driver(|driver| {
        let children = [Scripted::start(Vec::new()), Scripted::start(Vec::new())];
        let other = format!(
            "\n[group.other]\ndialect = \"http\"\n[[group.other.child]]\nname = \"o\"\naddress = \"127.0.0.1:{}\"\n",
            children[1].port()
        );
        let routes = "[[listen.route]]\nhost = \"other.test\"\ngroup = \"other\"\n\
                      [[listen.route]]\npath = \"/kv\"\ngroup = \"g\"\n";
        let proxy = Proxy::start(&plain(driver, children[0].port()).routes(routes).tail(&other));
        let ask = |host: &str, target: &str| {
            let mut client = Client::connect(proxy.port).expect("a connection");
            client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).expect("sent");
            client.answer(false).expect("an answer")
        };
        assert_eq!(ask("any.test", "/kv/1").status(), 200);
        assert_eq!(ask("OTHER.test:80", "/2").status(), 200);
        assert_problem(&ask("any.test", "/kvx"), 404, "no_route");
        let served = |child: &Scripted| {
            child.records().iter().flat_map(|record| &record.requests).map(|one| one.path()).collect::<Vec<_>>()
        };
        assert_eq!(served(&children[0]), ["/kv/1"]);
        assert_eq!(served(&children[1]), ["/2"]);
    });
}

// === retries ===

#[test]
fn a_read_is_tried_again_elsewhere_when_a_child_closes() {
    for_each_driver(|driver| {
        let bad = Scripted::start(vec![Step::Head, Step::Close]);
        let good = Scripted::start(Vec::new());
        let setup = plain(driver, bad.port()).child("b", good.port()).group("policy", text("failover"));
        let proxy = Proxy::start(&setup);
        let answer = client::get(proxy.port, "/page").expect("an answer");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
        assert_eq!(bad.records().len(), 1, "it was asked");
    });
}
