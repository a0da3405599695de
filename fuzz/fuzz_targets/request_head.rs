//! Invariants of a request's head, whatever octets come:
//!
//! 1. Nothing panics.
//! 2. The verdict and all that the head says are the same in one piece, line by line, and cut at any one place: the
//!    pass through httparse and the reading by lines accept the same heads.
//! 3. Octets behind the head make no difference.
//! 4. What is written for a child is a sound head with the same method, path, host and framing, with one Host and one
//!    line of each list of ours, and the peer's address last in it.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use antiphon::error::Fault;
use antiphon::http::{RequestHead, ToChild, request_head};
use libfuzzer_sys::fuzz_target;

fn parse(pieces: &[&[u8]]) -> (Result<bool, Fault>, RequestHead) {
    let mut head = RequestHead::new();
    let mut verdict = Ok(false);
    for octets in pieces {
        verdict = head.parse(octets);
        if verdict != Ok(false) {
            break;
        }
    }
    (verdict, head)
}

fn told(head: &RequestHead, buf: &[u8]) -> String {
    let fields: Vec<_> = head.fields(buf).collect();
    let line = (head.method, head.method_name, head.path_and_query(buf), head.minor, head.head_len);
    let sense = (head.framing, head.host, head.keep_alive, head.expect_continue, head.upgrade, head.te_trailers);
    format!("{line:?} {sense:?} {fields:?}")
}

fuzz_target!(|data: &[u8]| {
    let Some((cut, octets)) = data.split_first_chunk::<2>() else { return };
    let cut = usize::from(u16::from_le_bytes(*cut)) % (octets.len() + 1);

    let (verdict, head) = parse(&[octets]);
    let (cut_verdict, cut_head) = parse(&[&octets[..cut], octets]);
    assert_eq!(cut_verdict, verdict);
    let lines: Vec<&[u8]> = (1..=octets.len())
        .filter(|end| octets[end - 1] == b'\n' || *end == octets.len())
        .map(|end| &octets[..end])
        .collect();
    let (line_verdict, line_head) = parse(&lines);
    assert!(line_verdict == verdict || octets.is_empty());
    if verdict != Ok(true) {
        return;
    }
    assert_eq!(told(&cut_head, octets), told(&head, octets));
    assert_eq!(told(&line_head, octets), told(&head, octets));
    let (short_verdict, short_head) = parse(&[&octets[..head.head_len]]);
    assert_eq!(short_verdict, Ok(true));
    assert_eq!(told(&short_head, octets), told(&head, octets));

    let how = ToChild {
        target_suffix: "",
        peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        tls: false,
        framing: head.framing,
        fallback_host: "fallback",
        via: true,
        expect: head.expect_continue,
        upgrade: true,
        close: !head.keep_alive,
    };
    let mut out = Vec::new();
    request_head(&mut out, octets, &head, &how);
    // What we add may lift a head above the limits; that is then the child's to judge.
    let (again, sent) = parse(&[&out]);
    if matches!(again, Err(Fault::TooManyFields | Fault::HeadTooLarge)) {
        return;
    }
    assert_eq!(again, Ok(true), "{}", out.escape_ascii());
    assert_eq!(sent.head_len, out.len());
    assert_eq!(sent.method_name.of(&out), head.method_name.of(octets));
    assert_eq!(sent.path_and_query(&out), head.path_and_query(octets));
    assert_eq!(sent.framing, head.framing);
    assert_eq!(sent.keep_alive, head.keep_alive);
    assert_eq!(sent.upgrade.is_some(), head.upgrade.is_some());
    let host = head.host.map_or(b"fallback".as_slice(), |span| span.of(octets));
    assert_eq!(sent.host.map(|span| span.of(&out)), Some(host));
    for name in ["x-forwarded-for", "forwarded", "via", "x-forwarded-proto"] {
        let named = |theirs: &[u8]| theirs.eq_ignore_ascii_case(name.as_bytes());
        assert_eq!(sent.fields(&out).filter(|(theirs, _)| named(theirs)).count(), 1, "{name}");
    }
    assert!(sent.field(&out, "x-forwarded-for").is_some_and(|value| value.ends_with(b"192.0.2.7")));
    assert!(sent.field(&out, "x-real-ip").is_none());
});
