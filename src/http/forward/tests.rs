//! Heads for the next hop: golden ones for each rule, and the property that what we write reads as what we read.

use proptest::prelude::*;

use super::*;
use crate::http::AnswerTo;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn to_child() -> ToChild<'static> {
    ToChild {
        target_suffix: "",
        peer: PEER,
        tls: false,
        framing: Framing::None,
        fallback_host: "child:80",
        via: true,
        expect: false,
        upgrade: false,
        close: false,
    }
}

fn to_client() -> ToClient<'static> {
    ToClient { client_minor: 1, framing: Framing::None, close: false, keep_alive_10: false, date: None, extra: &[] }
}

fn request(text: &[u8]) -> RequestHead {
    let mut head = RequestHead::new();
    assert_eq!(head.parse(text), Ok(true), "{}", text.escape_ascii());
    head
}

fn forwarded(text: &str, how: &ToChild<'_>) -> String {
    let mut out = Vec::new();
    request_head(&mut out, text.as_bytes(), &request(text.as_bytes()), how);
    String::from_utf8(out).expect("these heads are text")
}

/// The lines of a forwarded GET with these lines, without those that every one has.
fn lines_of(lines: &str, how: &ToChild<'_>) -> Vec<String> {
    forwarded(&format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n"), how)
        .lines()
        .skip(2)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

fn answered(text: &str, request: AnswerTo, how: &ToClient<'_>) -> String {
    let mut head = ResponseHead::new();
    assert_eq!(head.parse(text.as_bytes(), request), Ok(true));
    let mut out = Vec::new();
    response_head(&mut out, text.as_bytes(), &head, how);
    String::from_utf8(out).expect("these heads are text")
}

#[test]
fn a_plain_request() {
    assert_eq!(
        forwarded(
            "GET http://a.test:81/x?%2f=%2F HTTP/1.1\r\nX-A:  b \r\nhost: a.test:81\r\nx-e:\r\n\r\n",
            &to_child()
        ),
        "GET /x?%2f=%2F HTTP/1.1\r\n\
         Host: a.test:81\r\n\
         X-A: b\r\n\
         x-e: \r\n\
         X-Forwarded-For: 192.0.2.7\r\n\
         X-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: a.test:81\r\n\
         Forwarded: for=192.0.2.7;proto=http;host=\"a.test:81\"\r\n\
         Via: 1.1 antiphon\r\n\
         \r\n"
    );
}

#[test]
fn an_old_request_without_host() {
    let how = ToChild { framing: Framing::Length(3), close: true, via: false, tls: true, ..to_child() };
    assert_eq!(
        forwarded("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: x\r\n\r\n", &how),
        "POST / HTTP/1.1\r\n\
         Host: child:80\r\n\
         Connection: close\r\n\
         Content-Length: 3\r\n\
         X-Forwarded-For: 192.0.2.7\r\n\
         X-Forwarded-Proto: https\r\n\
         Forwarded: for=192.0.2.7;proto=https\r\n\
         \r\n"
    );
}

#[test]
fn fields_of_one_hop_stop_here() {
    let how = ToChild { via: false, ..to_child() };
    let own = lines_of("", &how);
    let sent = "Connection: X-Hop, close, TE, X-Two\r\nX-Two: 2\r\nX-Hop: s\r\nx-hop: t\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
                TE: gzip\r\nTrailer: X-Sum\r\nUpgrade: x\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nExpect: 100-continue\r\n\
                Antiphon-Min-Sequence: 1:2\r\nX-Real-IP: 9.9.9.9\r\nX_Forwarded_For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n";
    assert_eq!(lines_of(sent, &how), own);
}

#[test]
fn fields_that_we_rely_on_stay() {
    let sent = "Connection: Authorization, If-Match, X-Forwarded-For, Via, Date\r\nAuthorization: a\r\nIf-Match: \"b\"\r\nDate: c\r\n\
                X-Forwarded-For: 10.0.0.1\r\nVia: 1.0 fred\r\n";
    let lines = lines_of(sent, &to_child());
    for line in [
        "Authorization: a",
        "If-Match: \"b\"",
        "Date: c",
        "X-Forwarded-For: 10.0.0.1, 192.0.2.7",
        "Via: 1.0 fred, 1.1 antiphon",
    ] {
        assert!(lines.iter().any(|ours| ours == line), "{line}: {lines:?}");
    }
}

#[test]
fn lists_stand_on_one_line_and_end_with_ours() {
    let sent = "X-Forwarded-For: 1.1.1.1\r\nForwarded: for=a;proto=b\r\nX-Forwarded-For: , \r\nX-Forwarded-For: 2.2.2.2, 3.3.3.3\r\n\
                Forwarded: for=\"open\r\nForwarded: for=\"_\\\"x\"\r\nVia: 1.0 a\r\nVia: 1.1 b (c)\r\n";
    assert_eq!(
        lines_of(sent, &to_child()),
        [
            "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: a.test",
            "Forwarded: for=a;proto=b, for=\"_\\\"x\", for=192.0.2.7;proto=http;host=a.test",
            "Via: 1.0 a, 1.1 b (c), 1.1 antiphon",
        ]
    );
}

#[test]
fn ipv6_peers_are_quoted_where_they_must_be() {
    let how = ToChild { peer: "2001:db8::1".parse().expect("an address"), via: false, ..to_child() };
    let lines = lines_of("", &how);
    assert_eq!(lines[0], "X-Forwarded-For: 2001:db8::1");
    assert_eq!(lines[3], "Forwarded: for=\"[2001:db8::1]\";proto=http;host=a.test");
    let mapped = ToChild { peer: "::ffff:192.0.2.7".parse().expect("an address"), ..how };
    assert_eq!(lines_of("", &mapped)[0], "X-Forwarded-For: 192.0.2.7");
}

#[test]
fn an_upgrade_passes_only_if_wanted() {
    let sent = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    let how = ToChild { upgrade: true, via: false, ..to_child() };
    assert_eq!(lines_of(sent, &how)[..3], ["Sec-WebSocket-Version: 13", "Connection: upgrade", "Upgrade: websocket"]);
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    assert_eq!(lines_of(h2c, &how), lines_of("", &how));
    assert_eq!(lines_of(sent, &ToChild { upgrade: false, ..how })[1], "X-Forwarded-For: 192.0.2.7");
}

#[test]
fn expect_and_te_are_made_anew() {
    let how = ToChild { expect: true, framing: Framing::Chunked, via: false, ..to_child() };
    let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nTE: trailers, gzip\r\nConnection: TE\r\n\r\n";
    let out = forwarded(text, &how);
    assert!(
        out.contains("\r\nConnection: te\r\nTE: trailers\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n"),
        "{out}"
    );
}

#[test]
fn a_plain_answer() {
    let text = "HTTP/1.0 200 Fine\r\nConnection: X-Int\r\nX-Int: s\r\nKeep-Alive: timeout=3\r\nTrailer: a\r\nVia: 1.1 x\r\nSet-Cookie: a=b\r\n\
                Set-Cookie: c=d\r\nContent-Length: 2\r\n\r\nok";
    let extra: &[(&str, &[u8])] = &[("Antiphon-Sequence", b"1:2")];
    let how = ToClient { framing: Framing::Length(2), extra, date: Some(b"now"), ..to_client() };
    assert_eq!(
        answered(text, AnswerTo::default(), &how),
        "HTTP/1.1 200 Fine\r\nVia: 1.1 x\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nDate: now\r\nAntiphon-Sequence: 1:2\r\nContent-Length: 2\r\n\r\n"
    );
}

#[test]
fn an_answer_without_reason_gets_the_usual_one() {
    for line in ["HTTP/1.1 404", "HTTP/1.1 404 ", "HTTP/1.1 404 \u{e4}"] {
        let out = answered(
            &format!("{line}\r\nDate: then\r\n\r\n"),
            AnswerTo::default(),
            &ToClient { date: Some(b"now"), ..to_client() },
        );
        assert_eq!(out, "HTTP/1.1 404 Not Found\r\nDate: then\r\n\r\n");
    }
}

#[test]
fn lengths_pass_where_no_body_follows() {
    let head = AnswerTo { was_head: true, wanted_upgrade: false };
    let out = answered("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", head, &to_client());
    assert_eq!(out, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    let out = answered("HTTP/1.1 304 \r\nContent-Length: 7\r\n\r\n", AnswerTo::default(), &to_client());
    assert_eq!(out, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
    let out = answered("HTTP/1.1 204 \r\nContent-Length: 7\r\n\r\n", AnswerTo::default(), &to_client());
    assert_eq!(out, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn answers_to_old_clients() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let how = ToClient { client_minor: 0, keep_alive_10: true, framing: Framing::Length(0), ..to_client() };
    let keeps = answered(ok, AnswerTo::default(), &how);
    assert_eq!(keeps, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
    let closes = answered(ok, AnswerTo::default(), &ToClient { close: true, ..how });
    assert_eq!(closes, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_switch_of_protocols_is_told() {
    let wanted = AnswerTo { was_head: false, wanted_upgrade: true };
    let text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-A: b\r\n\r\n";
    let how = ToClient { date: Some(b"now"), ..to_client() };
    assert_eq!(
        answered(text, wanted, &how),
        "HTTP/1.1 101 Switching Protocols\r\nX-A: b\r\nDate: now\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
}

// === what we write reads as what we read ===

/// Lines that a sound request may have.
fn field_line() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z][A-Za-z0-9-]{0,12}: ?[!-~]{0,10}",
        proptest::sample::select(vec![
            "X-Hop: 1",
            "Connection: X-Hop",
            "Connection: close",
            "Keep-Alive: a",
            "X-Forwarded-For: 1.1.1.1",
            "Via: 1.0 a",
            "Forwarded: for=x",
            "Cookie: a=b",
            "X-Real-IP: 1",
            "Expect: 100-continue",
            "TE: trailers",
            "X_Real_IP: 1",
        ])
        .prop_map(str::to_owned),
    ]
    .prop_filter("fields that frame are given apart", |line| {
        let name = line.split(':').next().unwrap_or_default();
        !matches!(
            Known::named(name.as_bytes()),
            Known::Host | Known::ContentLength | Known::TransferEncoding | Known::Upgrade
        )
    })
    .prop_filter("Connection is given apart", |line| {
        line.starts_with("Connection: X-Hop")
            || line.starts_with("Connection: close")
            || !line.to_ascii_lowercase().starts_with("connection")
    })
    .prop_filter("Expect is given apart", |line| {
        line.starts_with("Expect: 100") || !line.to_ascii_lowercase().starts_with("expect")
    })
}

/// The fields that must arrive: neither known nor named in Connection.
fn end_to_end(fields: &[crate::http::head::Field], buf: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields
        .iter()
        .filter(|field| matches!(field.known, Known::Other | Known::Date) && !field.stops_here)
        .map(|field| (field.name.of(buf).to_vec(), field.value.of(buf).to_vec()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_forwarded_request_reads_as_the_one_that_came(
        method in "[A-Z]{1,8}",
        target in "(http://a\\.test)?/[!-\"$-~]{0,20}",
        lines in proptest::collection::vec(field_line(), 0..10),
        framing_line in proptest::sample::select(vec![("", Framing::None), ("Content-Length: 7\r\n", Framing::Length(7)), ("Transfer-Encoding: chunked\r\n", Framing::Chunked)]),
    ) {
        prop_assume!(method != "CONNECT" && method != "TRACE");
        let fields = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n{fields}{}\r\n", framing_line.0);
        let buf = text.as_bytes();
        let came = request(buf);
        let mut out = Vec::new();
        request_head(&mut out, buf, &came, &ToChild { framing: came.framing, ..to_child() });
        let sent = request(&out);

        prop_assert_eq!(sent.head_len, out.len());
        prop_assert_eq!(sent.method_name.of(&out), method.as_bytes());
        prop_assert_eq!(sent.target.of(&out), came.path_and_query(buf));
        prop_assert_eq!(sent.framing, framing_line.1);
        prop_assert_eq!(sent.host.map(|span| span.of(&out)), Some(b"a.test".as_slice()));
        prop_assert_eq!(end_to_end(&sent.fields, &out), end_to_end(&came.fields, buf));
        let peer = PEER.to_string();
        prop_assert!(sent.field(&out, "x-forwarded-for").is_some_and(|value| value.ends_with(peer.as_bytes())));
        for once in [Known::XForwardedFor, Known::Forwarded, Known::Via, Known::XForwardedProto, Known::XForwardedHost] {
            prop_assert_eq!(sent.fields.iter().filter(|field| field.known == once).count(), 1);
        }
        for never in [Known::KeepAlive, Known::XRealIp, Known::Expect, Known::Lookalike] {
            prop_assert!(sent.fields.iter().all(|field| field.known != never));
        }
    }

    #[test]
    fn a_forwarded_answer_reads_as_the_one_that_came(
        status in 200_u16..600,
        lines in proptest::collection::vec(field_line(), 0..10),
        framing_line in proptest::sample::select(vec![("Content-Length: 7\r\n", Framing::Length(7)), ("Transfer-Encoding: chunked\r\n", Framing::Chunked)]),
    ) {
        prop_assume!(status != 204 && status != 304);
        let fields = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let text = format!("HTTP/1.1 {status} reason\r\n{fields}{}\r\n", framing_line.0);
        let buf = text.as_bytes();
        let mut came = ResponseHead::new();
        prop_assert_eq!(came.parse(buf, AnswerTo::default()), Ok(true));
        let mut out = Vec::new();
        response_head(&mut out, buf, &came, &ToClient { framing: came.framing, ..to_client() });
        let mut sent = ResponseHead::new();
        prop_assert_eq!(sent.parse(&out, AnswerTo::default()), Ok(true));
        prop_assert_eq!(sent.head_len, out.len());
        prop_assert_eq!(sent.status, status);
        prop_assert_eq!(sent.reason.of(&out), b"reason");
        prop_assert_eq!(sent.framing, framing_line.1);
        prop_assert!(sent.keep_alive);
        prop_assert_eq!(end_to_end(&sent.fields, &out), end_to_end(&came.fields, buf));
    }
}
