//! The catalogue of odd requests and answers (`tests/cases/http.jsonl`), as far as heads and bodies decide: each case
//! has a stored verdict, the verdict is one that the case allows, and it is the same wherever the octets are cut.
//!
//! What needs connections and clocks (who closes, what is retried, what times out) is run against the whole proxy.

use serde_json::Value;

use super::{AnswerTo, Decoder, Framing, RequestHead, ResponseHead};
use crate::error::Fault;
use crate::limits::BODY_BYTES_MAX;

const CASES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http.jsonl"));

/// Of the longest script (an answer of 50 MB) only so much is played.
const REPEATS_MAX: u64 = 3_000_000;

struct Case {
    id: String,
    accept: Vec<String>,
    upstream_requests_max: u64,
    /// What the client sends.
    request: Vec<u8>,
    /// What the child sends, where the case scripts it.
    response: Vec<u8>,
}

fn cases() -> Vec<Case> {
    CASES
        .lines()
        .map(|line| {
            let case: Value = serde_json::from_str(line).expect("a case a line");
            let expect = &case["expect"];
            Case {
                id: case["id"].as_str().expect("an id").to_owned(),
                accept: expect["accept"]
                    .as_array()
                    .expect("outcomes")
                    .iter()
                    .map(|outcome| outcome.as_str().expect("an outcome").to_owned())
                    .collect(),
                upstream_requests_max: expect["max_upstream_requests"].as_u64().expect("a count"),
                request: octets(&case["send"]),
                response: octets(&case["upstream"]),
            }
        })
        .collect()
}

/// The octets of a script: strings, repeated strings, and strings that are sent an octet at a time.
fn octets(script: &Value) -> Vec<u8> {
    let latin = |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).expect("an octet")).collect();
    let mut all = Vec::new();
    for step in script.as_array().into_iter().flatten() {
        let text = step.as_str().or_else(|| step["rep"].as_str()).or_else(|| step["split"].as_str());
        let octets: Vec<u8> = text.map(latin).unwrap_or_default();
        let times = step["n"].as_u64().unwrap_or(1);
        for _ in 0..times.min(REPEATS_MAX) {
            all.extend_from_slice(&octets);
        }
    }
    all
}

/// `octets` in pieces that end at `cuts`, then the rest.
fn pieces<'o>(octets: &'o [u8], cuts: &[usize]) -> Vec<&'o [u8]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for cut in cuts {
        pieces.push(&octets[start..*cut]);
        start = *cut;
    }
    pieces.push(&octets[start..]);
    pieces
}

/// The messages of one connection, as text: what each is, or the fault that ends the reading.
#[derive(Default)]
struct Verdict(Vec<String>);

impl Verdict {
    fn fault(&mut self, fault: Fault) {
        self.0.push(format!("{} {}", fault.status(), fault.code()));
    }

    fn text(&self) -> String {
        self.0.join("; ")
    }
}

/// Reads a body from the front of `buf`. `None`: more octets are needed.
fn read_body(buf: &mut Vec<u8>, decoder: &mut Decoder, body: &mut Vec<u8>) -> Result<bool, Fault> {
    loop {
        let step = decoder.step(buf)?;
        body.extend_from_slice(&buf[step.data]);
        buf.drain(..step.consumed);
        if step.done || step.consumed == 0 {
            return Ok(step.done);
        }
    }
}

fn read_requests(pieces: &[&[u8]]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut buf = Vec::new();
    let mut head = RequestHead::new();
    let mut body: Option<(String, Decoder, Vec<u8>)> = None;
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            if let Some((text, decoder, octets)) = &mut body {
                match read_body(&mut buf, decoder, octets) {
                    Ok(true) => {
                        verdict.0.push(format!("{text} +{}", octets.len()));
                        body = None;
                        let ends = !head.keep_alive || head.upgrade.is_some();
                        head.clear();
                        if ends {
                            verdict.0.push("end".to_owned());
                            return verdict;
                        }
                    }
                    Ok(false) => break,
                    Err(fault) => {
                        verdict.fault(fault);
                        return verdict;
                    }
                }
            } else {
                match head.parse(&buf) {
                    Ok(true) => {
                        if matches!(head.framing, Framing::Length(length) if length > BODY_BYTES_MAX) {
                            verdict.fault(Fault::BodyTooLarge);
                            return verdict;
                        }
                        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
                        let method = text(head.method_name.of(&buf));
                        let target = text(head.path_and_query(&buf));
                        let upgrade =
                            head.upgrade.map_or_else(String::new, |span| format!(" upgrade {}", text(span.of(&buf))));
                        let expect = if head.expect_continue { " expect" } else { "" };
                        body = Some((
                            format!("{method} {target}{expect}{upgrade} {:?}", head.framing),
                            Decoder::request(head.framing),
                            Vec::new(),
                        ));
                        buf.drain(..head.head_len);
                    }
                    Ok(false) => break,
                    Err(fault) => {
                        verdict.fault(fault);
                        return verdict;
                    }
                }
            }
        }
    }
    if let Some((_, decoder, _)) = &mut body {
        if let Err(fault) = decoder.end_of_input() {
            verdict.fault(fault);
        }
    } else if !buf.is_empty() {
        verdict.0.push("unfinished head".to_owned());
    }
    verdict
}

fn read_responses(pieces: &[&[u8]], request: AnswerTo) -> Verdict {
    let mut verdict = Verdict::default();
    let mut buf = Vec::new();
    let mut head = ResponseHead::new();
    let mut body: Option<(String, Decoder, Vec<u8>)> = None;
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            if let Some((text, decoder, octets)) = &mut body {
                match read_body(&mut buf, decoder, octets) {
                    Ok(true) => {
                        verdict.0.push(format!("{text} +{}", octets.len()));
                        body = None;
                        let final_answer = !head.is_interim();
                        let keep_alive = head.keep_alive;
                        head.clear();
                        if final_answer {
                            // What follows was not asked for; the caller drops the connection.
                            verdict.0.push(if keep_alive { "keep" } else { "close" }.to_owned());
                            return verdict;
                        }
                    }
                    Ok(false) => break,
                    Err(fault) => {
                        verdict.fault(fault);
                        return verdict;
                    }
                }
            } else {
                match head.parse(&buf, request) {
                    Ok(true) => {
                        body = Some((
                            format!("{} {:?}", head.status, head.framing),
                            Decoder::response(head.framing),
                            Vec::new(),
                        ));
                        buf.drain(..head.head_len);
                    }
                    Ok(false) => break,
                    Err(fault) => {
                        verdict.fault(fault);
                        return verdict;
                    }
                }
            }
        }
    }
    match &mut body {
        Some((text, decoder, octets)) => match decoder.end_of_input() {
            Ok(()) => verdict.0.push(format!("{text} +{}", octets.len())),
            Err(fault) => verdict.fault(fault),
        },
        None => verdict.0.push("unfinished head".to_owned()),
    }
    verdict
}

fn answer_to(case: &Case) -> AnswerTo {
    let mut head = RequestHead::new();
    let sound = head.parse(&case.request) == Ok(true);
    assert!(sound, "{}: cases with scripted answers have sound requests", case.id);
    AnswerTo { was_head: head.method == super::Method::Head, wanted_upgrade: head.upgrade.is_some() }
}

/// Answers from children that no script gives: what the stub child sends then.
fn response_of(case: &Case) -> Option<&[u8]> {
    (!case.response.is_empty()).then_some(case.response.as_slice())
}

#[test]
fn each_request_has_its_stored_verdict() {
    let stored: Vec<(&str, &str)> = REQUESTS.lines().filter_map(|line| line.split_once(": ")).collect();
    let cases = cases();
    assert_eq!(stored.len(), cases.len());
    for (case, (id, verdict)) in cases.iter().zip(stored) {
        assert_eq!(case.id, id);
        assert_eq!(read_requests(&[&case.request]).text(), verdict, "{id}");
    }
}

#[test]
fn each_verdict_on_a_request_is_allowed() {
    for case in cases() {
        let verdict = read_requests(&[&case.request]);
        let faults = verdict
            .0
            .iter()
            .filter_map(|text| text.split_once(' '))
            .filter(|(status, _)| status.parse::<u16>().is_ok());
        let forwarded = verdict.0.iter().filter(|text| text.contains('+')).count() as u64;
        assert!(forwarded <= case.upstream_requests_max, "{}", case.id);
        let accepts = |outcome: &str| case.accept.iter().any(|accepted| accepted == outcome);
        let passes = ["forward", "read", "broadcast"].iter().any(|outcome| accepts(outcome));
        // What the whole proxy does: the clock ends a slow head or body; the class of an action may refuse it.
        let is_left_to_the_proxy =
            matches!(case.id.as_str(), "O-LM-04" | "O-LM-05" | "O-UP-10") || case.id.starts_with("O-RS-");
        let first_is_fault = faults.clone().count() > 0 && forwarded == 0;
        if is_left_to_the_proxy {
            continue;
        }
        if first_is_fault {
            let (status, _) = faults.clone().next().expect("one was counted");
            assert!(accepts(status) || accepts("close"), "{}: {status}", case.id);
        } else {
            assert!(passes && forwarded > 0, "{}: {}", case.id, verdict.text());
        }
    }
}

#[test]
fn each_answer_has_its_stored_verdict() {
    let stored: Vec<(&str, &str)> = RESPONSES.lines().filter_map(|line| line.split_once(": ")).collect();
    let cases = cases();
    let scripted: Vec<_> = cases.iter().filter_map(|case| Some((case, response_of(case)?))).collect();
    assert_eq!(stored.len(), scripted.len());
    for ((case, response), (id, verdict)) in scripted.into_iter().zip(stored) {
        assert_eq!(case.id, id);
        assert_eq!(read_responses(&[response], answer_to(case)).text(), verdict, "{id}");
    }
}

#[test]
fn the_verdict_does_not_depend_on_the_cuts() {
    /// Longer cases are cut an octet at a time in front, and not tried at each position.
    const EACH_CUT_MAX: usize = 1000;

    fn check(id: &str, octets: &[u8], read: impl Fn(&[&[u8]]) -> Verdict) {
        let whole = read(&[octets]).text();
        let each: Vec<usize> = (1..octets.len().min(70_000)).collect();
        assert_eq!(read(&pieces(octets, &each)).text(), whole, "{id}: an octet at a time");
        if octets.len() <= EACH_CUT_MAX {
            for cut in 1..octets.len() {
                assert_eq!(read(&pieces(octets, &[cut])).text(), whole, "{id}: cut at {cut}");
            }
        }
    }

    for case in cases() {
        check(&case.id, &case.request, read_requests);
        if let Some(response) = response_of(&case) {
            let request = answer_to(&case);
            check(&case.id, response, |pieces| read_responses(pieces, request));
        }
    }
}

/// What each request of the catalogue is read as; an answer's script may end the connection where `end` stands.
const REQUESTS: &str = "\
O-CL-01: 400 content_length_twice
O-CL-02: 400 content_length_twice
O-CL-03: 400 content_length_invalid
O-CL-04: 400 content_length_invalid
O-CL-05: 400 content_length_invalid
O-CL-06: 400 content_length_invalid
O-CL-07: 400 content_length_invalid
O-CL-08: 400 content_length_invalid
O-CL-09: 400 content_length_invalid
O-CL-10: 400 content_length_invalid
O-TE-01: 400 content_length_and_transfer_encoding
O-TE-02: 400 content_length_and_transfer_encoding
O-TE-03: 400 transfer_encoding_invalid
O-TE-04: 400 content_length_and_transfer_encoding
O-TE-05: 400 transfer_encoding_invalid
O-TE-06: 400 field_space_before_colon
O-TE-07: 400 field_value_invalid
O-TE-08: 400 transfer_encoding_in_http_1_0
O-TE-09: 400 content_length_and_transfer_encoding
O-TE-10: 400 transfer_encoding_invalid
O-TE-11: POST /x Chunked +5
O-TE-12: 501 transfer_encoding_unknown
O-CH-01: 400 chunk_size_invalid
O-CH-02: 400 chunk_size_too_large
O-CH-03: 400 chunk_line_end_invalid
O-CH-04: 400 chunk_line_end_invalid
O-CH-05: 400 chunk_line_end_invalid
O-CH-06: 400 chunk_line_end_invalid
O-CH-07: POST /x Chunked +5
O-CH-08: 413 chunk_overhead_too_large
O-CH-09: 400 chunk_size_invalid
O-CH-10: 400 chunk_size_invalid
O-CH-11: POST /x Chunked +5; GET /second None +0
O-CH-12: 400 trailer_invalid
O-CH-13: POST /x Chunked +10
O-CH-14: 400 chunk_size_invalid
O-LN-01: 400 line_end_bare
O-LN-02: 400 field_value_invalid
O-LN-03: 400 line_end_bare
O-LN-04: 400 field_folded
O-LN-05: 400 field_space_before_colon
O-LN-06: 400 field_name_invalid
O-LN-07: 400 field_name_invalid
O-LN-08: 400 field_name_invalid
O-LN-09: 400 field_folded
O-LN-10: 400 line_end_bare
O-LN-11: GET /x None +0
O-LN-12: GET /x None +0
O-LN-13: GET /x None +0
O-LN-14: POST /x Length(5) +5
O-RL-01: 400 host_missing
O-RL-02: 400 host_repeated
O-RL-03: 400 host_differs
O-RL-04: 400 request_line_invalid
O-RL-05: GET /x None +0; end
O-RL-06: GET /x None +0
O-RL-07: 505 version_unsupported
O-RL-08: GET /x None +0
O-RL-09: 400 request_line_invalid
O-RL-10: 400 target_fragment
O-RL-11: 400 method_invalid
O-RL-12: PURGE /x None +0
O-RL-13: 400 host_invalid
O-RL-14: 505 version_unsupported
O-LM-01: 431 head_too_large
O-LM-02: 431 too_many_fields
O-LM-03: 414 target_too_long
O-LM-04: unfinished head
O-LM-05: 400 body_cut_short
O-LM-06: GET /x None +0
O-LM-07: 413 body_too_large
O-UP-01: POST /x expect Length(5) +5
O-UP-02: POST /x expect Length(40) +40
O-UP-03: 417 expectation_unknown
O-UP-04: GET /x upgrade websocket None +0; end
O-UP-05: GET /x upgrade websocket None +0; end
O-UP-06: GET /x None +0
O-UP-07: 405 method_connect
O-UP-08: 405 method_trace
O-UP-09: GET /x None +0
O-UP-10: GET /x None +0
O-HH-01: GET /x None +0
O-HH-02: GET /x None +0; end
O-HH-03: 400 connection_names_framing
O-HH-04: 400 connection_names_framing
O-HH-05: GET /x None +0
O-HH-06: GET /x None +0
O-HH-07: GET /x None +0
O-HH-08: GET /x None +0
O-HH-09: GET /x None +0
O-HH-10: GET /x None +0
O-RS-01: GET /x None +0
O-RS-02: GET /x None +0
O-RS-03: GET /x None +0
O-RS-04: GET /x None +0
O-RS-05: GET /x None +0
O-RS-06: GET /x None +0
O-RS-07: GET /x None +0; GET /second None +0
O-RS-08: HEAD /x None +0; GET /second None +0
O-RS-09: HEAD /x None +0; GET /second None +0
O-RS-10: GET /x None +0
O-RS-11: GET /x None +0; GET /second None +0
O-RS-12: GET /x None +0
O-RS-13: GET /x None +0
O-RS-14: GET /x None +0
O-RS-15: GET /x None +0
O-RS-16: GET /x None +0
O-RS-17: GET /x None +0
O-CN-01: GET /1 None +0; GET /2 None +0; GET /3 None +0
O-CN-02: GET /1 None +0; 400 request_line_invalid
O-CN-03: GET /1 None +0; end
O-CN-04: GET /x None +0
O-CN-05: 400 body_cut_short
O-CN-06: POST /x Length(3000000) +3000000
O-CN-07: POST /x Length(40) +40
O-CN-08: GET /1 None +0; GET /2 None +0
O-CN-09: GET /1 None +0; POST /2 Length(5) +5
O-CN-10: 400 field_name_invalid
O-CN-11: GET /x None +0
O-AC-01: GET /action=Query&Text=x None +0
O-AC-02: GET /action=CategorySetDetails&Category=1 None +0
O-AC-03: GET /%61ction=CategorySetDetails&Category=1 None +0
O-AC-04: GET /action=Category%53etDetails&Category=1 None +0
O-AC-05: GET /ACTION=CATEGORYSETDETAILS&Category=1 None +0
O-AC-06: GET /a=CategorySetDetails&Category=1 None +0
O-AC-07: GET /?action=CategorySetDetails&Category=1 None +0
O-AC-08: GET /action=Query&action=CategorySetDetails None +0
O-AC-09: GET /action=Query&a=CategorySetDetails None +0
O-AC-10: POST / Length(36) +36
O-AC-11: POST /action=Query Length(25) +25
O-AC-12: GET /%2561ction=CategorySetDetails None +0
O-AC-13: GET /action=FooBar None +0
O-AC-14: GET /action=CategorySetDetails%00.Query None +0
O-AC-15: GET /x/../action=CategorySetDetails None +0
O-AC-16: GET /action=Category+SetDetails None +0
O-AC-17: GET /action=Query&Text=a%2Fb%2fc%7e None +0
";

/// What each scripted answer is read as.
const RESPONSES: &str = "\
O-RL-06: 200 Chunked +5; keep
O-LM-06: 502 child_body_cut_short
O-UP-01: 100 None +0; 200 Length(2) +2; keep
O-UP-02: 403 Length(2) +2; keep
O-UP-04: 101 None +0; keep
O-UP-05: 200 Length(2) +2; keep
O-UP-10: 502 child_unasked_upgrade
O-HH-09: 200 Length(2) +2; keep
O-RS-01: 502 child_framing
O-RS-02: 502 child_framing
O-RS-03: 502 child_body_cut_short
O-RS-04: 502 child_body_cut_short
O-RS-05: 200 UntilClose +5
O-RS-06: 204 None +0; close
O-RS-07: 304 None +0; keep
O-RS-08: 200 None +0; keep
O-RS-09: 200 None +0; keep
O-RS-10: 103 None +0; 200 Length(2) +2; keep
O-RS-11: 200 Length(2) +2; keep
O-RS-12: 502 child_head_invalid
O-RS-13: 502 child_head_invalid
O-RS-14: 502 child_head_too_large
O-RS-15: 502 child_head_invalid
O-RS-16: 502 child_head_invalid
O-RS-17: 200 Length(2) +2; keep
O-CN-06: 413 Length(3) +3; close
O-CN-07: 200 Length(2) +2; keep
O-CN-08: 200 Length(2) +2; keep
O-CN-09: 200 Length(2) +2; keep
O-CN-11: 502 child_body_cut_short
";
