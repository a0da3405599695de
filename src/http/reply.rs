//! Answers of our own: faults as problem documents, and what we serve ourselves.
//!
//! Which fault has which status is not decided here ([`Fault`] knows), nor whether the connection closes.

use std::io::Write as _;

use super::Framing;
use super::aci::{Format, Trouble, error_envelope};
use super::forward::{OUR_NAME, field, framing, status_line};
use crate::error::Fault;

/// The answer to a fault, appended to `out`: a problem document (RFC 9457) with the fault's code, Proxy-Status
/// (RFC 9209) and Retry-After. `extra` fields must be well formed. To an HTTP/1.0 client, `close`.
///
/// `{"type":"about:blank","title":"Bad Request","status":400,"code":"host_missing","detail":"…"}`
///
/// `members` are added to the document, for what differs from case to case.
///
/// Allocates: nobody is at steady state here.
pub fn fault_response(
    out: &mut Vec<u8>,
    fault: Fault,
    close: bool,
    head_request: bool,
    extra: &[(&str, &[u8])],
    members: &[(&str, serde_json::Value)],
) {
    let status = fault.status();
    let mut body = Vec::with_capacity(512);
    let (title, code) = (reason_phrase(status), fault.code());
    write!(
        body,
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{status},\"code\":\"{code}\",\"detail\":"
    )
    .and_then(|()| Ok(serde_json::to_writer(&mut body, fault.text())?))
    .expect("a Vec takes all octets, and a text is JSON");
    for (name, value) in members {
        write!(body, ",\"{name}\":{value}").expect("a Vec takes all octets");
    }
    body.extend_from_slice(b"}\n");

    let begin = begin(out, status, "application/problem+json", close, extra);
    finish_fault(begin, fault, &body, head_request);
}

/// How a fault is told to a client of the dialect `aci`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AciFault<'a> {
    /// The action as far as it is known.
    pub action: &'a str,
    /// As the request wanted it.
    pub format: Format,
    /// With the status 200: for clients that read no answer with another one.
    pub as_200: bool,
    /// The time of day ([`http_date`]).
    pub date: &'a [u8; 29],
    /// What differs from case to case, added to the description: which children, and what became of each.
    pub particulars: &'a str,
}

/// The answer to a fault in the envelope of ACI, appended to `out`; otherwise as [`fault_response`].
pub fn aci_fault_response(
    out: &mut Vec<u8>,
    fault: Fault,
    aci: &AciFault<'_>,
    close: bool,
    head_request: bool,
    extra: &[(&str, &[u8])],
) {
    let mut trouble = Trouble::of(fault);
    if !aci.particulars.is_empty() {
        trouble.description = format!("{} {}", aci.particulars, trouble.description).trim_end().to_owned().into();
    }
    let body = error_envelope(aci.action, &trouble, aci.date, aci.format);
    let status = if aci.as_200 { 200 } else { fault.status() };
    let begin = begin(out, status, aci.format.content_type(), close, extra);
    finish_fault(begin, fault, &body, head_request);
}

/// The fields that every answer to a fault has, and its body.
fn finish_fault(begin: &mut Vec<u8>, fault: Fault, body: &[u8], head_request: bool) {
    let error = format!("{OUR_NAME}; error={}", fault.proxy_status());
    field(begin, "Proxy-Status", error.as_bytes());
    // An answer to a fault says nothing about the resource (RFC 9110 15.1: some of these may be stored otherwise).
    field(begin, "Cache-Control", b"no-store");
    if let Some(seconds) = fault.retry_after_s() {
        field(begin, "Retry-After", seconds.to_string().as_bytes());
    }
    if fault.status() == 405 {
        // RFC 9110 15.5.6 requires it. What we refuse ourselves we refuse for every target, save our own.
        let all: &[u8] = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";
        field(begin, "Allow", if fault == Fault::OwnMethod { b"GET, HEAD" } else { all });
    }
    finish(begin, body, head_request);
}

/// An answer of our own, appended to `out`. `extra` fields must be well formed. To an HTTP/1.0 client, `close`.
pub fn own_response(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    body: &[u8],
    close: bool,
    head_request: bool,
    extra: &[(&str, &[u8])],
) {
    let begin = begin(out, status, content_type, close, extra);
    finish(begin, body, head_request);
}

fn begin<'v>(
    out: &'v mut Vec<u8>,
    status: u16,
    content_type: &str,
    close: bool,
    extra: &[(&str, &[u8])],
) -> &'v mut Vec<u8> {
    status_line(out, status, b"");
    field(out, "Content-Type", content_type.as_bytes());
    for (name, value) in extra {
        field(out, name, value);
    }
    if close {
        field(out, "Connection", b"close");
    }
    out
}

fn finish(out: &mut Vec<u8>, body: &[u8], head_request: bool) {
    framing(out, Framing::Length(body.len() as u64));
    out.extend_from_slice(b"\r\n");
    if !head_request {
        out.extend_from_slice(body);
    }
}

/// The usual reason phrase of a status (RFC 9110 15 and the registry it refers to); empty for one without.
#[must_use]
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// A moment as fields write it (RFC 9110 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. `unix_s` counts seconds since
/// 1970, before the year 10000.
#[must_use]
pub fn http_date(unix_s: u64) -> [u8; 29] {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

    let days = unix_s / 86_400;
    let second = unix_s % 86_400;
    // Years are counted from March, so that the leap day is a year's last, and in eras of 400 years, which are alike:
    // 146,097 days each. 719,468 days lie between 1 March of year 0 and 1970.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March have 31, 30, 31, 30, 31 days and again: 153 in five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);

    let mut text = [0; 29];
    write!(
        text.as_mut_slice(),
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
    .expect("the text has 29 octets until the year 10000");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{AnswerTo, ResponseHead};

    #[test]
    fn dates() {
        let date = |unix_s| String::from_utf8(http_date(unix_s).to_vec()).unwrap();
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(date(951_868_800), "Wed, 01 Mar 2000 00:00:00 GMT");
        assert_eq!(date(1_735_689_599), "Tue, 31 Dec 2024 23:59:59 GMT");
        assert_eq!(date(253_402_300_799), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn every_fault_has_a_sound_answer() {
        for fault in Fault::ALL {
            for head_request in [false, true] {
                let mut out = Vec::new();
                fault_response(
                    &mut out,
                    *fault,
                    true,
                    head_request,
                    &[("Date", &http_date(0))],
                    &[("more", "\"".into())],
                );
                let mut head = ResponseHead::new();
                let request = AnswerTo { was_head: head_request, wanted_upgrade: false };
                assert_eq!(head.parse(&out, request), Ok(true));
                assert_eq!(head.status, fault.status());
                assert!(!head.keep_alive);
                let body = &out[head.head_len..];
                if head_request {
                    assert!(body.is_empty());
                    continue;
                }
                assert_eq!(head.framing, Framing::Length(body.len() as u64));
                let problem: serde_json::Value = serde_json::from_slice(body).unwrap();
                assert_eq!(problem["code"], fault.code());
                assert_eq!(problem["detail"], fault.text());
                assert_eq!(problem["more"], "\"");
                assert_eq!(problem["status"], fault.status());
                assert_eq!(head.field(&out, "retry-after").is_some(), fault.status() == 503);
                assert_eq!(head.field(&out, "allow").is_some(), fault.status() == 405);
            }
        }
    }

    #[test]
    fn an_answer_of_ours_is_an_answer() {
        let mut out = Vec::new();
        own_response(&mut out, 200, "text/plain", b"ok\n", false, false, &[("X-A", b"1")]);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: 1\r\nContent-Length: 3\r\n\r\nok\n");
    }
}
