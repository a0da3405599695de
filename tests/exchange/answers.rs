//! Answers: cut before their first octet, after an interim one, with and without dates and trailers, for old clients.

use std::sync::Arc;

use crate::peer::{Ended, Server, behave, connect, ok, receive_all, send, target};
use crate::support::client::{Ask, Client, get};
use crate::support::for_each_driver;
use crate::support::message::{self, Response};
use crate::support::proxy::Proxy;
use crate::support::scripted::ANSWERS;
use crate::{assert_problem, plain};

/// All that comes for one request on a connection of its own, and how that ended.
fn ask(proxy: &Proxy, request: &str) -> (Vec<u8>, Ended) {
    let stream = connect(proxy.port);
    send(&stream, request.as_bytes());
    receive_all(&stream)
}

// === cut ===

/// The client gets a 502 or sees the cut; never an answer that looks whole. An end is the only sign there is for one
/// that reads until the close, so a cut has to look otherwise.
#[test]
fn an_answer_without_its_body_is_never_taken_for_whole() {
    for_each_driver(|driver| {
        let child = Server::start(|peer| {
            let head = peer.head()?;
            let said = target(&head);
            let framing = match said.split('/').nth(2)? {
                "length" => "Content-Length: 10\r\n",
                "chunked" => "Transfer-Encoding: chunked\r\n",
                _ => "",
            };
            peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n").as_bytes())?;
            if said.contains("part") {
                peer.send(if framing.starts_with('T') { b"4\r\npart\r\n" } else { b"part" })?;
            }
            if said.contains("reset") { peer.reset() } else { None }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        for framing in ["length", "chunked", "close"] {
            for how in ["reset", "part-reset", "end", "part-end"] {
                // An end is the lawful end of a body that goes until the close.
                if framing == "close" && how.ends_with("end") {
                    continue;
                }
                for minor in [0, 1] {
                    let said = format!("HTTP/1.{minor}, {framing}, {how}");
                    let request = format!("GET /{how}/{framing} HTTP/1.{minor}\r\nHost: a.test\r\n\r\n");
                    let stream = connect(proxy.port);
                    send(&stream, request.as_bytes());
                    // To a 502 an HTTP/1.1 client may send another request: it is not the end that tells it.
                    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
                    let (octets, ended) = receive_all(&stream);
                    let received = message::received(&octets, false, ended == Ended::Closed);
                    assert!(received.unlawful.is_none(), "{said}: {:?}", received.unlawful);
                    match received.finals.first() {
                        // The head did not come through; the reset did.
                        None => assert_eq!(ended, Ended::Reset, "{said}"),
                        Some(answer) if answer.status() == 502 => assert!(answer.whole, "{said}: {answer}"),
                        Some(answer) => assert!(!answer.whole, "{said}: taken for whole: {answer}"),
                    }
                }
            }
        }
        proxy.wait_child_state("a", "up");
    });
}

/// An interim answer is an answer begun: the request may have been carried out in part.
#[test]
fn a_request_with_an_interim_answer_is_not_tried_again() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
    for_each_driver(|driver| {
        // On a new connection, and on one that was used before.
        for used in [false, true] {
            let child = Server::start(|peer| {
                loop {
                    let request = peer.request()?;
                    if request.path() == "/hinted" {
                        peer.send(HINTS.as_bytes())?;
                        return None;
                    }
                    peer.send(&ok(&request.head))?;
                }
            });
            let other = Server::start(behave);
            let setup = plain(driver, child.port()).child("b", other.port()).group("policy", "\"failover\"");
            let proxy = Proxy::start(&setup);
            if used {
                assert_eq!(get(proxy.port, "/first").expect("an answer").status(), 200);
            }
            let mut client = Client::connect(proxy.port).expect("a connection");
            client.send(b"GET /hinted HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
            assert_eq!(client.interim().expect("the hints"), 103);
            assert_problem(&client.answer(false).expect("an answer"), 502, "child_closed");
            let asked = |server: &Server| server.targets().iter().filter(|target| *target == "/hinted").count();
            assert_eq!((asked(&child), asked(&other)), (1, 0), "used before: {used}");
            // The connection goes on.
            assert_eq!(client.ask(&Ask::get("/next")).expect("an answer").status(), 200);
        }
    });
}

// === fields ===

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// RFC 9110 6.6.1: who forwards an answer without a date gives it one; every answer of ours has one.
#[test]
fn no_answer_goes_without_its_date_or_with_two() {
    for_each_driver(|driver| {
        let child = Server::start(|peer| {
            loop {
                let request = peer.request()?;
                let date = if request.path() == "/dated" { format!("date: {DATE}\r\n") } else { String::new() };
                match request.path().as_str() {
                    "/lost" => return None,
                    "/hinted" => peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")?,
                    _ => {}
                }
                let body = if request.head.method == "HEAD" { "" } else { "ok" };
                peer.send(format!("HTTP/1.1 200 OK\r\n{date}Content-Length: 2\r\n\r\n{body}").as_bytes())?;
            }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        let date_of = |answer: &Response| {
            let date = answer.head.fields.one("date").unwrap_or_else(|| panic!("none, or several: {answer}"));
            String::from_utf8_lossy(date).into_owned()
        };
        // PUT and POST are changes.
        for method in ["GET", "HEAD", "PUT", "POST"] {
            let dated = Ask::new(method, "/dated").at(proxy.port).expect("an answer");
            assert_eq!(date_of(&dated), DATE, "{method}: a child's own date is kept: {dated}");
            let undated = Ask::new(method, "/undated").at(proxy.port).expect("an answer");
            let date = date_of(&undated);
            assert!(date.len() == 29 && date.ends_with(" GMT") && date != DATE, "{method}: `{date}`");
            let hinted = Ask::new(method, "/hinted").at(proxy.port).expect("an answer");
            assert!(date_of(&hinted).ends_with(" GMT"), "{method}: {hinted}");
        }
        let lost = get(proxy.port, "/lost").expect("an answer");
        assert_problem(&lost, 502, "child_closed");
        assert!(date_of(&lost).ends_with(" GMT"));
        let mut client = Client::connect(proxy.port).expect("a connection");
        client.send(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let refused = client.answer(false).expect("an answer");
        assert_problem(&refused, 400, "host_missing");
        assert!(date_of(&refused).ends_with(" GMT"));
    });
}

/// RFC 9110 6.5.1: trailers are for those who asked for them; the body ends where it ended either way.
#[test]
fn trailers_neither_leak_nor_break_the_framing() {
    for_each_driver(|driver| {
        let child = Server::start(|peer| {
            loop {
                let request = peer.request()?;
                let asked = request.head.fields.list("te").contains(&"trailers".to_owned());
                let named = request.head.fields.list("connection").contains(&"te".to_owned());
                assert_eq!((asked, named), (request.path() == "/asked", request.path() == "/asked"));
                peer.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
                peer.send(b"0\r\nX-Sum: 532\r\nX-Other: a, b\r\n\r\n")?;
            }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        let asked = "GET /asked HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n";
        let (octets, _) = ask(&proxy, asked);
        let received = message::received(&octets, false, true);
        assert!(received.finals[0].whole && received.finals[0].text() == "hello", "{:?}", received);
        assert!(
            octets.ends_with(b"\r\n0\r\nX-Sum: 532\r\nX-Other: a, b\r\n\r\n"),
            "{}",
            String::from_utf8_lossy(&octets)
        );

        // Without the Connection option TE was not for us (RFC 9110 10.1.4); and some do not ask at all.
        for te in ["", "TE: trailers\r\n"] {
            let (octets, _) =
                ask(&proxy, &format!("GET /unasked HTTP/1.1\r\nHost: a.test\r\n{te}Connection: close\r\n\r\n"));
            let received = message::received(&octets, false, true);
            assert!(received.finals[0].whole && received.finals[0].text() == "hello", "{te}{received:?}");
            assert!(octets.ends_with(b"\r\n0\r\n\r\n"), "{te}{}", String::from_utf8_lossy(&octets));
        }
        let (octets, _) = ask(&proxy, "GET /unasked HTTP/1.0\r\n\r\n");
        assert!(octets.ends_with(b"\r\n\r\nhello"), "{}", String::from_utf8_lossy(&octets));

        // The connection serves the next request.
        let mut client = Client::connect(proxy.port).expect("a connection");
        for _ in 0..3 {
            let asked = Ask::get("/asked").field("TE", "trailers").field("Connection", "TE");
            assert_eq!(client.ask(&asked).expect("an answer").text(), "hello");
            assert_eq!(client.ask(&Ask::get("/unasked")).expect("an answer").text(), "hello");
        }
    });
}

// === HTTP/1.0 ===

/// Kept only where the client asked, and only behind an answer whose end it can tell.
#[test]
fn a_client_of_http_1_0_can_tell_where_each_answer_ends() {
    for_each_driver(|driver| {
        let body = Arc::new("hello".repeat(1000));
        let its = Arc::clone(&body);
        let child = Server::start(move |peer| {
            loop {
                let request = peer.request()?;
                let framing = match request.path().as_str() {
                    "/chunked" => "Transfer-Encoding: chunked\r\n".to_owned(),
                    "/close" => String::new(),
                    _ => format!("Content-Length: {}\r\n", its.len()),
                };
                let head = format!("HTTP/1.1 200 OK\r\n{ANSWERS}: {}\r\n{framing}\r\n", request.path());
                peer.send(head.as_bytes())?;
                match request.path().as_str() {
                    "/chunked" => peer.send(&crate::peer::in_chunks(its.as_bytes(), 700))?,
                    "/close" => {
                        peer.send(its.as_bytes())?;
                        return None;
                    }
                    _ => peer.send(its.as_bytes())?,
                }
            }
        });
        let proxy = Proxy::start(&plain(driver, child.port()));
        for last in ["/chunked", "/close"] {
            let keep = |target: &str| format!("GET {target} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
            // The fourth is not reached: the end of the third ends the connection.
            let all = keep("/1") + &keep("/2") + &keep(last) + &keep("/4");
            let (octets, _) = ask(&proxy, &all);
            let received = message::received(&octets, false, true);
            assert!(received.unlawful.is_none() && received.rest.is_empty(), "{received:?}");
            let answers: Vec<_> = received.finals.iter().map(|answer| answer.field(ANSWERS)).collect();
            assert_eq!(answers, ["/1", "/2", last].map(|target| Some(target.to_owned())));
            for (index, answer) in received.finals.iter().enumerate() {
                assert!(answer.whole && answer.text() == *body, "{}: {answer}", index + 1);
                assert!(!answer.head.fields.has("transfer-encoding"), "{answer}");
                let wanted = if index < 2 { "keep-alive" } else { "close" };
                assert_eq!(answer.head.fields.list("connection"), [wanted], "{answer}");
            }
        }
        // One that does not ask is not kept.
        let (octets, _) = ask(&proxy, "GET /1 HTTP/1.0\r\n\r\nGET /2 HTTP/1.0\r\n\r\n");
        assert_eq!(message::received(&octets, false, true).finals.len(), 1);
    });
}
