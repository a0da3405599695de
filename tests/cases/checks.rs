//! What the cases say in prose, as code: one row for each sentence. A sentence without a row fails the suite, and so
//! does a row without a sentence.

#![allow(unreachable_pub, reason = "a module of a test crate, not of a library")]

use crate::story::Seen;
use crate::support::message::{Fields, Request, Response};
use crate::support::scripted::ANSWERS;

/// True when the sentence holds.
pub type Check = fn(&Seen) -> bool;

/// The check for a sentence of `forwarded`. It is asked only when a request was passed on.
pub fn forwarded(prose: &str) -> Option<Check> {
    find(FORWARDED, prose)
}

/// The check for a sentence of `response`.
pub fn response(prose: &str) -> Option<Check> {
    find(RESPONSE, prose)
}

fn find(table: &[(&str, Check)], prose: &str) -> Option<Check> {
    table.iter().find(|(row, _)| *row == prose).map(|(_, check)| *check)
}

/// Of octets passed on to a child.
pub const FORWARDED: &[(&str, Check)] = &[
    // === lengths, codings, chunks ===
    ("exactly one Content-Length, value 5", |seen| fields(seen).one("content-length") == Some(b"5")),
    ("body is hello", |seen| body(seen) == b"hello"),
    ("body hello", |seen| body(seen) == b"hello"),
    ("body hello, message complete", |seen| body(seen) == b"hello"),
    ("body hello once", |seen| seen.requests().len() == 1 && body(seen) == b"hello"),
    ("body is the ten digits", |seen| body(seen) == b"0123456789"),
    ("no Content-Length; Transfer-Encoding: chunked; empty body; /smuggled is not served", |seen| {
        !fields(seen).has("content-length")
            && fields(seen).list("transfer-encoding") == ["chunked"]
            && body(seen).is_empty()
            && seen.requests().iter().all(|request| request.path() != "/smuggled")
    }),
    ("one message, body hello, sent upstream with framing that HTTP/1.1 allows", |seen| {
        seen.requests().len() == 1 && body(seen) == b"hello"
    }),
    ("if forwarded: Transfer-Encoding still names gzip and chunked, body bytes unchanged", |seen| {
        fields(seen).list("transfer-encoding") == ["gzip", "chunked"] && body(seen) == b"hello"
    }),
    ("X-Sum not in the header section", |seen| seen.requests().iter().all(|one| !one.head.fields.has("x-sum"))),
    ("neither field acts on framing at any hop", |seen| {
        let later = seen.requests().into_iter().skip(1);
        body(seen) == b"hello" && later.into_iter().all(|one| one.path() == "/second" && one.body.is_empty())
    }),
    ("Content-Length: 40 still there", |seen| {
        fields(seen).one("content-length") == Some(b"40") && body(seen).len() == 40
    }),
    // === lines and fields ===
    ("no bare CR", |seen| {
        octets(seen).iter().all(|octets| {
            let behind = octets.iter().skip(1).chain([&b' ']);
            octets.iter().zip(behind).all(|(octet, next)| *octet != b'\r' || *next == b'\n')
        })
    }),
    ("no NUL", |seen| octets(seen).iter().all(|octets| !octets.contains(&0))),
    ("all line ends are CRLF", |seen| {
        octets(seen).iter().all(|octets| {
            let before = [&b' '].into_iter().chain(octets.iter());
            octets.iter().zip(before).all(|(octet, last)| *octet != b'\n' || *last == b'\r')
        })
    }),
    ("X-A on one line", |seen| {
        let value = fields(seen).one("x-a").unwrap_or_default();
        value.starts_with(b"one") && value.ends_with(b"two") && value[3..value.len() - 3].iter().all(|one| *one == b' ')
    }),
    ("X-A absent", |seen| !fields(seen).has("x-a")),
    ("X-A value octet for octet", |seen| fields(seen).one("x-a") == Some(b"caf\xc3\xa9 \xff")),
    ("X-A is b", |seen| fields(seen).one("x-a") == Some(b"b")),
    ("X-E present and empty", |seen| fields(seen).one("x-e") == Some(b"")),
    ("request line comes first", |seen| octets(seen).iter().all(|octets| octets.starts_with(b"GET /x HTTP/1.1\r\n"))),
    ("identical to the unsplit request", |seen| {
        // The unsplit request itself is judged without a twin.
        seen.unsplit.as_deref().is_none_or(|twin| {
            let shape = |seen: &Seen| first(seen).map(|one| (one.head.octets.clone(), one.body.clone()));
            shape(seen).is_some() && shape(seen) == shape(twin)
        })
    }),
    // === request line and Host ===
    ("Host is b.test", |seen| fields(seen).one("host") == Some(b"b.test")),
    ("Host: a.test still there", |seen| fields(seen).one("host") == Some(b"a.test")),
    ("has exactly one Host", |seen| fields(seen).one("host").is_some_and(|host| !host.is_empty())),
    ("version is HTTP/1.1", |seen| first(seen).is_some_and(|one| one.head.version == "HTTP/1.1")),
    ("unchanged, or without the fragment at every decision", |seen| {
        first(seen).is_some_and(|one| one.path() == "/a#b" || one.path() == "/a")
    }),
    ("method is PURGE", |seen| first(seen).is_some_and(|one| one.head.method == "PURGE")),
    ("target octet for octet", |seen| seen.requests().iter().all(|one| one.head.target == seen.target)),
    // === upgrades ===
    ("ping 0x00 0xff arrives unchanged", |seen| seen.scripted().is_some_and(|record| record.raw == b"ping\0\xff")),
    ("/second, if it is passed on, is a request of its own after the 200", |seen| {
        let requests: Vec<String> = seen.requests().iter().map(|one| one.path()).collect();
        let passed_on = octets(seen).iter().any(|octets| contains(octets, b"/second"));
        !passed_on || (requests == ["/x", "/second"] && seen.received.statuses() == [200, 200])
    }),
    ("no Upgrade: h2c", |seen| !fields(seen).list("upgrade").iter().any(|one| one == "h2c")),
    ("no HTTP2-Settings", |seen| {
        !fields(seen).has("http2-settings")
            && !fields(seen).list("connection").iter().any(|one| one == "http2-settings")
    }),
    ("no Upgrade field", |seen| !fields(seen).has("upgrade")),
    // === hop by hop, and who is asking ===
    ("no X-Hop", |seen| !fields(seen).has("x-hop")),
    ("X-Keep: 1", |seen| fields(seen).one("x-keep") == Some(b"1")),
    ("X-Forwarded-For present and ends in the real peer address", ends_in_the_peer),
    ("last address is the real peer", ends_in_the_peer),
    ("the last address of the last line is the real peer", ends_in_the_peer),
    ("none of the three keeps the client's value", |seen| {
        let kept = |name: &str, value: &str| fields(seen).list(name).iter().any(|one| one == value);
        !kept("x-forwarded-proto", "https") && !kept("x-forwarded-host", "evil.test") && !kept("x-real-ip", "9.9.9.9")
    }),
    ("no Keep-Alive", |seen| !fields(seen).has("keep-alive")),
    ("no Proxy-Connection", |seen| !fields(seen).has("proxy-connection")),
    ("no TE: gzip", |seen| !fields(seen).list("te").iter().any(|one| one == "gzip")),
    ("Via ends with this proxy after 1.0 fred (or Via adding is switched off by a documented option)", |seen| {
        let via = fields(seen).list("via");
        via.len() == 2 && via[0] == "1.0 fred" && via[1].starts_with("1.1 ")
    }),
];

/// Of octets that the client received.
pub const RESPONSE: &[(&str, Check)] = &[
    // === how many, and which ===
    ("one answer", |seen| finals(seen).len() == 1 && all_whole(seen)),
    ("one 200", |seen| seen.received.statuses() == [200] && all_whole(seen)),
    ("200", |seen| seen.received.statuses() == [200] && all_whole(seen)),
    ("two 200", |seen| seen.received.statuses() == [200, 200] && all_whole(seen)),
    ("final 200", |seen| seen.received.statuses() == [200] && all_whole(seen)),
    ("two responses", |seen| finals(seen).len() == 2 && all_whole(seen)),
    ("three answers in order", |seen| {
        let answers: Vec<Option<String>> = finals(seen).iter().map(|answer| answer.field(ANSWERS)).collect();
        answers == ["/1", "/2", "/3"].map(|target| Some(target.to_owned())) && all_whole(seen)
    }),
    ("200 then 400", |seen| seen.received.statuses() == [200, 400] && all_whole(seen)),
    ("200 then 502 (or 200 only where the write was provably not processed)", |seen| {
        // This child has read the whole write before it closed, so nothing is proved.
        seen.received.statuses() == [200, 502] && all_whole(seen)
    }),
    ("304 then 200", |seen| seen.received.statuses() == [304, 200] && all_whole(seen)),
    ("403, one answer only", |seen| seen.received.statuses() == [403] && all_whole(seen)),
    ("413 with body big", |seen| seen.received.statuses() == [413] && all_whole(seen) && answer(seen) == b"big"),
    ("101, then pong 0xfe", |seen| seen.received.statuses() == [101] && answer(seen) == b"pong\xfe"),
    ("no second answer on this connection", |seen| finals(seen).len() <= 1 && !pretends_to_be_whole(seen)),
    ("second answer is not 666", |seen| {
        !contains(&seen.octets, b"666") && finals(seen).len() == 2 && finals(seen)[1].status() == 200
    }),
    ("no 666 ever seen", |seen| !contains(&seen.octets, b"666") && !finals(seen).is_empty()),
    ("no raw tunnel", |seen| !finals(seen).is_empty() && finals(seen).iter().all(|answer| answer.status() != 101)),
    // === heads ===
    ("no Transfer-Encoding", |seen| finals(seen).iter().all(|answer| !answer.head.fields.has("transfer-encoding"))),
    ("no Content-Length: 30", |seen| {
        finals(seen).iter().all(|answer| answer.head.fields.all("content-length").all(|value| value != b"30"))
    }),
    ("no X-Int", |seen| finals(seen).iter().all(|answer| !answer.head.fields.has("x-int"))),
    ("no Keep-Alive", |seen| finals(seen).iter().all(|answer| !answer.head.fields.has("keep-alive"))),
    ("no NUL, no bare CR", |seen| {
        let behind = seen.octets.iter().skip(1).chain([&b' ']);
        seen.octets.iter().zip(behind).all(|(octet, next)| *octet != 0 && (*octet != b'\r' || *next == b'\n'))
    }),
    // The reader of `message.rs` takes neither: what it could not read would stand in `unlawful`.
    ("no space before colon", |seen| seen.received.unlawful.is_none() && !contains(&seen.octets, b"X-A :")),
    ("well-formed status line", |seen| seen.received.unlawful.is_none() && finals(seen).len() == 1),
    // === bodies ===
    ("body hello", |seen| {
        finals(seen).first().is_some_and(|answer| answer.status() == 502 || (answer.body == b"hello" && answer.whole))
    }),
    ("no terminating chunk", |seen| !pretends_to_be_whole(seen)),
    ("204 without body and without Content-Length", |seen| {
        finals(seen).first().is_some_and(|answer| {
            answer.status() == 502 || (!answer.head.fields.has("content-length") && answer.body.is_empty())
        })
    }),
    ("two answers, the first with Content-Length: 1000 and no body", |seen| {
        finals(seen).len() == 2
            && finals(seen)[0].head.fields.one("content-length") == Some(b"1000")
            && finals(seen)[0].body.is_empty()
            && finals(seen)[1].body == b"ok"
    }),
];

// === what the sentences speak of ===

fn first(seen: &Seen) -> Option<&Request> {
    seen.requests().into_iter().next()
}

fn fields(seen: &Seen) -> &Fields {
    static NONE: Fields = Fields(Vec::new());
    first(seen).map_or(&NONE, |request| &request.head.fields)
}

fn body(seen: &Seen) -> &[u8] {
    first(seen).map_or(b"no request", |request| &request.body)
}

/// Of every connection to a child.
fn octets(seen: &Seen) -> Vec<&[u8]> {
    seen.children.iter().flatten().map(|record| record.octets.as_slice()).collect()
}

fn finals(seen: &Seen) -> &[Response] {
    &seen.received.finals
}

fn answer(seen: &Seen) -> &[u8] {
    finals(seen).first().map_or(b"no answer", |answer| &answer.body)
}

fn all_whole(seen: &Seen) -> bool {
    finals(seen).iter().all(|answer| answer.whole)
}

/// A child's answer that was cut short looks whole to the client. (An error of the proxy's own is whole.)
fn pretends_to_be_whole(seen: &Seen) -> bool {
    finals(seen).iter().any(|answer| answer.status() == 200 && answer.whole)
}

fn ends_in_the_peer(seen: &Seen) -> bool {
    fields(seen).list("x-forwarded-for").last().is_some_and(|last| last == "127.0.0.1")
}

fn contains(octets: &[u8], part: &[u8]) -> bool {
    octets.windows(part.len()).any(|window| window == part)
}
