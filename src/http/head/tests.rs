//! Heads: the two ways agree, work is linear, and what fields mean together.

use proptest::prelude::*;

use super::*;
use crate::error::Fault;
use crate::http::{Framing, Method};
use crate::limits::{FIELDS_MAX, REQUEST_HEAD_BYTES_MAX, TARGET_BYTES_MAX};

fn request(text: &str) -> Result<RequestHead, Fault> {
    let mut head = RequestHead::new();
    let complete = head.parse(text.as_bytes())?;
    assert!(complete, "{text:?}");
    Ok(head)
}

fn fault(text: &str) -> Fault {
    request(text).expect_err(text)
}

/// A GET with these further field lines.
fn with(lines: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n")
}

/// Everything that a request's head says.
fn told(head: &RequestHead, buf: &[u8]) -> String {
    let fields: Vec<_> = head.fields.iter().map(|f| (f.name.of(buf), f.value.of(buf), f.known, f.stops_here)).collect();
    format!(
        "{:?}",
        (
            (head.method, head.method_name, head.target, head.path_and_query(buf), head.minor, head.head_len),
            (head.framing, head.host, head.keep_alive, head.expect_continue, head.upgrade, head.te_trailers),
            head.min_sequence,
            fields,
        )
    )
}

/// Everything that a response's head says.
fn told_of_response(head: &ResponseHead, buf: &[u8]) -> String {
    let fields: Vec<_> = head.fields.iter().map(|f| (f.name.of(buf), f.value.of(buf), f.known, f.stops_here)).collect();
    format!(
        "{:?}",
        (
            (head.status, head.minor, head.head_len, head.framing, head.length_without_body),
            (head.keep_alive, head.reason.of(buf), head.upgrade),
            fields,
        )
    )
}

// === what fields mean together ===

#[test]
fn keep_alive_follows_the_version() {
    let keeps = |minor: u8, connection: &str| {
        request(&format!("GET / HTTP/1.{minor}\r\nHost: a\r\n{connection}\r\n")).expect("sound").keep_alive
    };
    assert!(keeps(1, ""));
    assert!(!keeps(1, "Connection: close\r\n"));
    assert!(!keeps(1, "Connection: keep-alive\r\nConnection: x, ,CLOSE\r\n"));
    assert!(!keeps(0, ""));
    assert!(keeps(0, "Connection: Keep-Alive\r\n"));
    assert!(!keeps(0, "Connection: keep-alive, close\r\n"));
    assert!(!keeps(0, "Proxy-Connection: keep-alive\r\n"));
}

#[test]
fn connection_is_a_list_of_tokens() {
    assert_eq!(fault(&with("Connection: a b\r\n")), Fault::ConnectionInvalid);
    assert_eq!(fault(&with("Connection: \"close\"\r\n")), Fault::ConnectionInvalid);
    assert_eq!(fault(&with("Connection: transfer-encoding\r\n")), Fault::ConnectionNamesFraming);
    let many = "x,".repeat(65);
    assert_eq!(fault(&with(&format!("Connection: {many}\r\n"))), Fault::ConnectionInvalid);
}

#[test]
fn hosts_and_targets_agree() {
    let host = |text: &str| {
        let head = request(text).expect("sound");
        let host = head.host.map(|span| String::from_utf8_lossy(span.of(text.as_bytes())).into_owned());
        let path = String::from_utf8_lossy(head.path_and_query(text.as_bytes())).into_owned();
        (host.unwrap_or_default(), path)
    };
    let pair = |host: &str, path: &str| (host.to_owned(), path.to_owned());
    assert_eq!(host("GET http://A.test:80/x?y HTTP/1.1\r\nHost: a.test:80\r\n\r\n"), pair("A.test:80", "/x?y"));
    assert_eq!(host("GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n"), pair("a", "/"));
    assert_eq!(host("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n"), pair("a", "*"));
    assert_eq!(host("OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), pair("[::1]:80", "*"));
    assert_eq!(host("GET http://a/x HTTP/1.0\r\n\r\n"), pair("a", "/x"));
    assert_eq!(host("GET / HTTP/1.0\r\n\r\n"), pair("", "/"));

    let refused = |line: &str| fault(&format!("{line}\r\nHost: a\r\n\r\n"));
    assert_eq!(refused("GET * HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET x HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET a:80 HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET ftp://a/ HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET http://a?x HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET http:///x HTTP/1.1"), Fault::HostInvalid);
    assert_eq!(refused("GET http://u@a/ HTTP/1.1"), Fault::HostInvalid);
    assert_eq!(refused("GET http://b/ HTTP/1.1"), Fault::HostDiffers);
    assert_eq!(refused("GET /\u{e4} HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(refused("GET /\x7f HTTP/1.1"), Fault::TargetInvalid);
    assert_eq!(fault("GET / HTTP/1.1\r\nHost:\r\n\r\n"), Fault::HostInvalid);
}

#[test]
fn request_lines() {
    let refused = |line: &str| fault(&format!("{line}\r\nHost: a\r\n\r\n"));
    assert_eq!(refused("GET  / HTTP/1.1"), Fault::RequestLineInvalid);
    assert_eq!(refused("GET /  HTTP/1.1"), Fault::RequestLineInvalid);
    assert_eq!(refused("GET / HTTP/1.1 "), Fault::RequestLineInvalid);
    assert_eq!(refused(" GET / HTTP/1.1"), Fault::MethodInvalid);
    assert_eq!(refused("GET\t/\tHTTP/1.1"), Fault::MethodInvalid);
    assert_eq!(refused("GET / http/1.1"), Fault::VersionInvalid);
    assert_eq!(refused("GET / HTTP/1.10"), Fault::VersionInvalid);
    assert_eq!(refused("GET / HTTP/3.0"), Fault::VersionUnsupported);
    assert_eq!(refused("GET /"), Fault::RequestLineInvalid);
    assert_eq!(refused("GET"), Fault::RequestLineInvalid);
    assert_eq!(refused("GET "), Fault::RequestLineInvalid);
    let head = request("get / HTTP/1.7\r\nHost: a\r\n\r\n").expect("sound");
    assert_eq!((head.method, head.minor), (Method::Other, 1));
}

#[test]
fn at_most_two_empty_lines_are_passed_over() {
    let lines = |count: usize| format!("{}GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n".repeat(count));
    for count in 0..=2 {
        let text = lines(count);
        assert_eq!(request(&text).expect("sound").head_len, text.len());
    }
    assert_eq!(fault(&lines(3)), Fault::EmptyLinesBefore);
    assert_eq!(fault("\n"), Fault::LineEndBare);
    assert_eq!(fault("\rX"), Fault::LineEndBare);
}

#[test]
fn what_is_not_http_is_told_at_the_first_octet() {
    assert_eq!(fault("\x16\x03\x01"), Fault::MethodInvalid);
    let mut head = ResponseHead::new();
    assert!(head.parse(b"SSH-", AnswerTo::default()).is_err());
}

#[test]
fn expectations() {
    let expects = |version: &str, lines: &str| {
        request(&format!("POST / {version}\r\nHost: a\r\n{lines}\r\n")).map(|head| head.expect_continue)
    };
    assert_eq!(expects("HTTP/1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n"), Ok(true));
    assert_eq!(expects("HTTP/1.1", "Expect: 100-continue\r\n"), Ok(false));
    assert_eq!(expects("HTTP/1.0", "Expect: 100-continue\r\nContent-Length: 1\r\n"), Ok(false));
    assert_eq!(expects("HTTP/1.0", "Expect: x\r\n"), Ok(false));
    assert_eq!(expects("HTTP/1.1", "Expect: 100-continue, x\r\n"), Err(Fault::ExpectationUnknown));
}

#[test]
fn upgrades_need_a_get_without_body() {
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let wanted = |text: &str| request(text).expect("sound").upgrade.is_some();
    assert!(wanted(&with(upgrade)));
    assert!(!wanted(&with(&format!("{upgrade}Content-Length: 0\r\n"))));
    assert!(!wanted(&with(&format!("{upgrade}Upgrade: b\r\n"))));
    assert!(!wanted(&with("Upgrade: websocket\r\n")));
    assert!(!wanted(&format!("POST / HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n")));
    assert!(!wanted(&format!("GET / HTTP/1.0\r\nHost: a\r\n{upgrade}\r\n")));
}

#[test]
fn trailers_are_wanted_only_if_connection_says_te() {
    let wants = |lines: &str| request(&with(lines)).expect("sound").te_trailers;
    assert!(wants("TE: gzip, Trailers\r\nConnection: TE\r\n"));
    assert!(!wants("TE: trailers\r\n"));
    assert!(!wants("TE: gzip\r\nConnection: te\r\n"));
}

#[test]
fn an_answer_to_upgrade_must_switch_soundly() {
    let wanted = AnswerTo { was_head: false, wanted_upgrade: true };
    let parse = |text: &str| ResponseHead::new().parse(text.as_bytes(), wanted);
    assert_eq!(parse("HTTP/1.1 101 \r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), Ok(true));
    assert_eq!(parse("HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n"), Err(Fault::ChildUnaskedUpgrade));
    assert_eq!(parse("HTTP/1.1 101 \r\nConnection: upgrade\r\n\r\n"), Err(Fault::ChildUnaskedUpgrade));
}

#[test]
fn framing_of_answers() {
    let framing = |text: &str, was_head: bool| {
        let mut head = ResponseHead::new();
        head.parse(text.as_bytes(), AnswerTo { was_head, wanted_upgrade: false }).map(|complete| {
            assert!(complete);
            (head.framing, head.length_without_body, head.keep_alive)
        })
    };
    let ok = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
    assert_eq!(framing(&ok(""), false), Ok((Framing::UntilClose, None, false)));
    assert_eq!(framing(&ok("Content-Length: 0\r\n"), false), Ok((Framing::Length(0), None, true)));
    assert_eq!(framing(&ok("Content-Length: 7\r\n"), true), Ok((Framing::None, Some(7), true)));
    assert_eq!(framing(&ok("Transfer-Encoding: chunked\r\n"), true), Ok((Framing::None, None, true)));
    assert_eq!(
        framing(&ok("Content-Length: 1\r\nConnection: close\r\n"), false),
        Ok((Framing::Length(1), None, false))
    );
    assert_eq!(framing("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", false), Ok((Framing::Length(1), None, false)));
    assert_eq!(framing("HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n", false), Ok((Framing::None, Some(9), true)));
    assert_eq!(
        framing("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", false),
        Ok((Framing::None, None, false))
    );
    for refused in [
        ok("Content-Length: 1\r\nContent-Length: 1\r\n"),
        ok("Content-Length: 1, 1\r\n"),
        ok("Transfer-Encoding: gzip, chunked\r\n"),
        ok("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ok("Connection: content-length\r\nContent-Length: 1\r\n"),
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "HTTP/1.1 103 Early\r\nContent-Length: 1\r\n\r\n".to_owned(),
    ] {
        assert!(matches!(framing(&refused, false), Err(Fault::ChildFraming(_))), "{refused:?}");
    }
    for refused in [
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 600 x\r\n\r\n",
        "HTTP/1.1 20 x\r\n\r\n",
        "HTTP/2.0 200 x\r\n\r\n",
        "HTTP/1.1  200 x\r\n\r\n",
    ] {
        assert!(matches!(framing(refused, false), Err(Fault::ChildHeadInvalid(_))), "{refused:?}");
    }
}

// === limits ===

#[test]
fn limits_hold_to_the_octet() {
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(length - 1));
    assert!(request(&target(TARGET_BYTES_MAX)).is_ok());
    assert_eq!(fault(&target(TARGET_BYTES_MAX + 1)), Fault::TargetTooLong);

    let fields = |count: usize| with(&"a: b\r\n".repeat(count - 1));
    assert!(request(&fields(FIELDS_MAX)).is_ok());
    assert_eq!(fault(&fields(FIELDS_MAX + 1)), Fault::TooManyFields);

    let filled = |length: usize| with(&format!("a: {}\r\n", "b".repeat(length - with("a: \r\n").len())));
    let largest = filled(REQUEST_HEAD_BYTES_MAX);
    assert_eq!(largest.len(), REQUEST_HEAD_BYTES_MAX);
    assert!(request(&largest).is_ok());
    assert_eq!(fault(&filled(REQUEST_HEAD_BYTES_MAX + 1)), Fault::HeadTooLarge);
}

#[test]
fn work_is_linear_however_the_octets_are_cut() {
    let long_line = with(&format!("a: {}\r\n", "b".repeat(REQUEST_HEAD_BYTES_MAX - 100)));
    let many_lines = with(&format!("a: {}\r\n", "b".repeat(240)).repeat(FIELDS_MAX - 1));
    for text in [long_line, many_lines] {
        let octets = text.as_bytes();
        for piece in [1, 2, 7, 100, 4096, octets.len()] {
            let mut head = RequestHead::new();
            let mut arrived = 0;
            while arrived < octets.len() {
                arrived = (arrived + piece).min(octets.len());
                assert_eq!(head.parse(&octets[..arrived]), Ok(arrived == octets.len()));
            }
            assert!(head.looked_at() <= 3 * octets.len(), "{} octets looked at", head.looked_at());
        }
    }
}

#[test]
fn line_feeds_are_found_at_every_offset() {
    for length in 0..40 {
        for at in 0..length {
            let mut octets = vec![b'\x0b'; length];
            octets[at] = b'\n';
            octets[length - 1] = b'\n';
            assert_eq!(find_line_feed(&octets), Some(at));
        }
        assert_eq!(find_line_feed(&vec![b'\x0b'; length]), None);
        assert_eq!(find_line_feed(&vec![0x8a; length]), None);
    }
}

// === the two ways ===

/// Pieces that heads are made of, sound and odd.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let texts: Vec<&'static [u8]> = vec![
        b"GET",
        b"POST",
        b"get",
        b" ",
        b"  ",
        b"/",
        b"/x?y=z",
        b"http://a/x",
        b"*",
        b"#",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b" HTTP/1.9\r\n",
        b" HTTP/2.0\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b"Host: a\r\n",
        b"Host: b\r\n",
        b"X-A: b\r\n",
        b"X-A : b\r\n",
        b" folded\r\n",
        b"X-A:\t b \t\r\n",
        b"X-A:\r\n",
        b":",
        b"\0",
        b"\xff",
        b"Content-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close, X-A\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\n",
        b"Connection: upgrade, te\r\n",
        b"TE: trailers\r\n",
        b"X_A: 1\r\n",
        b"X(: 1\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1 204 \xe4\r\n",
        b"HTTP/1.4 101 x\r\n",
        b"HTTP/1.1 2000 OK\r\n",
    ];
    prop_oneof![
        9 => proptest::sample::select(texts).prop_map(<[u8]>::to_vec),
        1 => any::<Vec<u8>>().prop_map(|mut octets| { octets.truncate(4); octets }),
    ]
}

fn requestish() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just(b"GET /x HTTP/1.1\r\nHost: a\r\n".to_vec()),
        1 => Just(b"GET /x HTTP/1.9\r\nHost: a\r\n".to_vec()),
        2 => Just(Vec::new()),
    ];
    (line, proptest::collection::vec(piece(), 0..12))
        .prop_map(|(line, pieces)| [line, pieces.concat(), b"\r\n\r\n".to_vec()].concat())
}

fn responseish() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => Just(b"HTTP/1.1 200 OK\r\n".to_vec()),
        1 => Just(b"HTTP/1.9 404\r\n".to_vec()),
        1 => Just(b"HTTP/1.0 304 Not \xe4\r\n".to_vec()),
        2 => Just(Vec::new()),
    ];
    (line, proptest::collection::vec(piece(), 0..12))
        .prop_map(|(line, pieces)| [line, pieces.concat(), b"\r\n\r\n".to_vec()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn attempt_and_fallback_agree_on_requests(octets in requestish(), cut in any::<prop::sample::Index>()) {
        let mut attempt = RequestHead::new();
        let verdict = attempt.parse(&octets);
        let mut fallback = RequestHead::without_attempt();
        prop_assert_eq!(fallback.parse(&octets), verdict);
        let mut cut_once = RequestHead::new();
        let first = cut_once.parse(&octets[..cut.index(octets.len())]);
        let in_pieces = if first == Ok(false) { cut_once.parse(&octets) } else { first };
        prop_assert_eq!(in_pieces, verdict);
        if verdict == Ok(true) {
            prop_assert_eq!(told(&fallback, &octets), told(&attempt, &octets));
            prop_assert_eq!(told(&cut_once, &octets), told(&attempt, &octets));
        }
    }

    #[test]
    fn attempt_and_fallback_agree_on_responses(octets in responseish(), cut in any::<prop::sample::Index>(), was_head: bool) {
        let request = AnswerTo { was_head, wanted_upgrade: true };
        let mut attempt = ResponseHead::new();
        let verdict = attempt.parse(&octets, request);
        let mut fallback = ResponseHead::without_attempt();
        prop_assert_eq!(fallback.parse(&octets, request), verdict);
        let mut cut_once = ResponseHead::new();
        let first = cut_once.parse(&octets[..cut.index(octets.len())], request);
        let in_pieces = if first == Ok(false) { cut_once.parse(&octets, request) } else { first };
        prop_assert_eq!(in_pieces, verdict);
        if verdict == Ok(true) {
            prop_assert_eq!(told_of_response(&fallback, &octets), told_of_response(&attempt, &octets));
            prop_assert_eq!(told_of_response(&cut_once, &octets), told_of_response(&attempt, &octets));
        }
    }

    #[test]
    fn a_head_used_again_remembers_nothing(first in requestish(), second in requestish()) {
        let mut used = RequestHead::new();
        let _ = used.parse(&first);
        used.clear();
        let mut fresh = RequestHead::new();
        prop_assert_eq!(used.parse(&second), fresh.parse(&second));
        prop_assert_eq!(told(&used, &second), told(&fresh, &second));
    }
}

#[test]
fn the_sequence_that_a_read_must_see_is_found_and_never_two() {
    let found = |lines: &str| {
        let text = with(lines);
        let head = request(&text).expect("a head");
        head.min_sequence.map(|span| String::from_utf8_lossy(span.of(text.as_bytes())).into_owned())
    };
    assert_eq!(found(""), None);
    assert_eq!(found("Antiphon-Min-Sequence: 3:4\r\n").as_deref(), Some("3:4"));
    // Naming it in Connection does not take it away.
    assert_eq!(found("Connection: antiphon-min-sequence\r\nantiphon-min-sequence:3:4 \r\n").as_deref(), Some("3:4"));
    assert_eq!(found("Antiphon-Min-Sequence: 3:4\r\nANTIPHON-MIN-SEQUENCE: 3:4\r\n").as_deref(), Some(""));
    assert_eq!(found("Antiphon_Min_Sequence: 3:4\r\n"), None);
}
