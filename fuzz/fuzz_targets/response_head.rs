//! Invariants of a response's head, whatever octets come:
//!
//! 1. Nothing panics.
//! 2. The verdict and all that the head says are the same in one piece, line by line, and cut at any one place.
//! 3. Octets behind the head make no difference.
//! 4. There is no body where RFC 9112 6.3 says so, and a connection whose answer ends with it is not kept.
//! 5. What is written for a client is a sound head with the same status and framing, and no field of one hop.

#![no_main]

use antiphon::error::{Fault, Side};
use antiphon::http::{AnswerTo, Framing, ResponseHead, ToClient, response_head};
use libfuzzer_sys::fuzz_target;

fn parse(pieces: &[&[u8]], request: AnswerTo) -> (Result<bool, Fault>, ResponseHead) {
    let mut head = ResponseHead::new();
    let mut verdict = Ok(false);
    for octets in pieces {
        verdict = head.parse(octets, request);
        if verdict != Ok(false) {
            break;
        }
    }
    (verdict, head)
}

fn told(head: &ResponseHead, buf: &[u8]) -> String {
    let fields: Vec<_> = head.fields(buf).collect();
    let line = (head.status, head.minor, head.head_len, head.reason.of(buf));
    let sense = (head.framing, head.length_without_body, head.keep_alive, head.upgrade);
    format!("{line:?} {sense:?} {fields:?}")
}

fuzz_target!(|data: &[u8]| {
    let Some(([flags, cut @ ..], octets)) = data.split_first_chunk::<3>() else { return };
    let cut = usize::from(u16::from_le_bytes(*cut)) % (octets.len() + 1);
    let request = AnswerTo { was_head: flags & 1 != 0, wanted_upgrade: flags & 2 != 0 };

    let (verdict, head) = parse(&[octets], request);
    if let Err(fault) = verdict {
        assert_eq!(fault.side(), Side::Child);
    }
    let (cut_verdict, cut_head) = parse(&[&octets[..cut], octets], request);
    assert_eq!(cut_verdict, verdict);
    let lines: Vec<&[u8]> = (1..=octets.len())
        .filter(|end| octets[end - 1] == b'\n' || *end == octets.len())
        .map(|end| &octets[..end])
        .collect();
    let (line_verdict, line_head) = parse(&lines, request);
    assert!(line_verdict == verdict || octets.is_empty());
    if verdict != Ok(true) {
        return;
    }
    assert_eq!(told(&cut_head, octets), told(&head, octets));
    assert_eq!(told(&line_head, octets), told(&head, octets));
    let (short_verdict, short_head) = parse(&[&octets[..head.head_len]], request);
    assert_eq!(short_verdict, Ok(true));
    assert_eq!(told(&short_head, octets), told(&head, octets));

    if request.was_head || head.status < 200 || matches!(head.status, 204 | 304) {
        assert_eq!(head.framing, Framing::None);
    } else {
        assert_ne!(head.framing, Framing::None);
    }
    assert!(!(head.framing == Framing::UntilClose && head.keep_alive));
    assert!(head.status != 101 || request.wanted_upgrade);

    let how = ToClient {
        client_minor: 1,
        framing: head.framing,
        close: !head.keep_alive,
        keep_alive_10: false,
        date: None,
        extra: &[],
    };
    let mut out = Vec::new();
    response_head(&mut out, octets, &head, &how);
    let (again, sent) = parse(&[&out], request);
    // What we add may lift a head above the limits.
    if again == Err(Fault::ChildHeadTooLarge) {
        return;
    }
    assert_eq!(again, Ok(true), "{}", out.escape_ascii());
    assert_eq!(sent.head_len, out.len());
    assert_eq!((sent.status, sent.framing), (head.status, head.framing));
    assert_eq!(sent.length_without_body, head.length_without_body);
    assert!(sent.keep_alive == head.keep_alive);
    for name in ["keep-alive", "proxy-connection", "te", "trailer", "http2-settings"] {
        assert!(sent.field(&out, name).is_none(), "{name}");
    }
});
