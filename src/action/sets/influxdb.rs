//! The set `influxdb`: the HTTP API of InfluxDB 1.x, and what its version 1.8 and 2 share of the second one.
//!
//! - `/query` reads if every statement of `q` is SELECT without INTO, SHOW or EXPLAIN ([`influxql`](crate::action)); what
//!   cannot be read with certainty is a change. `q` named twice, in target and body too, is refused. KILL QUERY is
//!   refused: its number means another query to every child. So is a change that depends on `now()`: a child that was
//!   away would carry it out at another time.
//! - A write goes to all if every point has a timestamp, and may be sent again, for the same point twice is one. Where a
//!   point has none, every child would add the time of its own clock: refused with `server_time`. So is an encoded body,
//!   which cannot be looked at. An operator who knows better writes a rule for `/write` of his own: it comes first.
//! - Flux (`/api/v2/query`) reads if the words that write (`to`, `import` for the packages that can) stand nowhere in it.
//!
//! Not seen from here: continuous queries and the ends of retention policies run by each child's own clock.

use crate::action::influxql::{self, Effect};
use crate::action::parameters::{self, Seen, Spot};
use crate::action::rules::{Rule, RuleError, Told};
use crate::action::{Asked, Class, UnknownOutcome};
use crate::error::Fault;

const WRITES: &[&str] = &["/write", "/api/v2/write"];

pub(super) fn rules() -> Result<Vec<Rule>, RuleError> {
    let asking = &["GET", "HEAD", "POST"];
    let read = |methods: &[&str], path| Ok(Rule::http(methods, path, Class::Read)?.with_safe(true));
    let mut rules = vec![
        read(asking, "/query")?.when_told("that reads", reads)?,
        Rule::http(asking, "/query", Class::Refuse)?.when_told("that kills a query", is_local)?,
        Rule::http(asking, "/query", Class::Refuse)?
            .when_told("that changes by now()", goes_by_clock)?
            .with_refusal(Fault::ServerTime),
        Rule::http(asking, "/query", Class::Change)?,
    ];
    for path in WRITES {
        let timed = Rule::http(&["POST"], path, Class::Change)?.when_told("with timestamps", has_timestamps)?;
        rules.push(timed.with_unknown_outcome(UnknownOutcome::Idempotent));
        rules.push(Rule::http(&["POST"], path, Class::Refuse)?.with_refusal(Fault::ServerTime));
    }
    rules.push(read(&["POST"], "/api/v2/query")?.when_told("that reads", flux_reads)?);
    // Samples of Prometheus have a timestamp each.
    let samples = Rule::http(&["POST"], "/api/v1/prom/write", Class::Change)?;
    rules.push(samples.with_unknown_outcome(UnknownOutcome::Idempotent));
    rules.push(read(&["POST"], "/api/v1/prom/read")?);
    for path in ["/ping", "/status", "/health", "/ready", "/metrics", "/debug/*"] {
        rules.push(read(&["GET", "HEAD"], path)?);
    }
    rules.push(read(&["OPTIONS"], "*")?);
    rules.push(Rule::http(&["POST", "PUT", "PATCH", "DELETE"], "*", Class::Change)?);
    Ok(rules)
}

// === /query ===

fn reads(asked: &Asked<'_>) -> Result<Told, Fault> {
    told(asked, Effect::Reads)
}

fn is_local(asked: &Asked<'_>) -> Result<Told, Fault> {
    told(asked, Effect::Local)
}

fn goes_by_clock(asked: &Asked<'_>) -> Result<Told, Fault> {
    told(asked, Effect::ChangesByClock)
}

fn told(asked: &Asked<'_>, wanted: Effect) -> Result<Told, Fault> {
    let mut effect = None;
    let seen = parameters::for_each(asked, |spot, name, value| {
        // The server tells `q` from `Q`; another one may not.
        if !name.eq_ignore_ascii_case(b"q") {
            return Ok(());
        }
        match effect.replace((spot, influxql::effect(value))) {
            None => Ok(()),
            Some((Spot::Query, _)) if spot == Spot::Body => Err(Fault::ActionAmbiguous(IN_BOTH)),
            Some(_) => Err(Fault::ActionAmbiguous(TWICE)),
        }
    })?;
    Ok(match (seen, effect) {
        (Seen::NeedBody, _) => Told::NeedBody,
        (Seen::All, Some((_, effect))) if effect == wanted => Told::Yes,
        // What is refused is refused wherever it may be found.
        (Seen::Doubtful | Seen::Other(..), Some((_, effect))) if effect == wanted && effect != Effect::Reads => {
            Told::Yes
        }
        _ => Told::No,
    })
}

// === /write ===

/// Every point of the body has a timestamp.
fn has_timestamps(asked: &Asked<'_>) -> Result<Told, Fault> {
    if asked.content_encoding.is_some_and(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(Fault::ActionAmbiguous(ENCODED));
    }
    Ok(match asked.whole_body() {
        None => Told::NeedBody,
        Some(body) if points_are_timed(body) => Told::Yes,
        Some(_) => Told::No,
    })
}

/// Whether a server finds a timestamp in every point that it accepts.
///
/// A point may hold line ends, in strings and behind backslashes, but it always ends where a line ends. So it is enough
/// that every line ends in a blank and digits: those are the point's timestamp, or stand in a string that is not closed or
/// in a value that is none, and then the server refuses the point. A comment may stand only where no string can be open.
fn points_are_timed(body: &[u8]) -> bool {
    let mut quoted = false;
    body.split(|octet| *octet == b'\n').all(|line| {
        let is_blank = |octet: &u8| matches!(octet, b' ' | b'\t' | 0);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let end = line.iter().rposition(|octet| *octet != b' ').map_or(0, |last| last + 1);
        let line = &line[..end];
        let is_comment = line.iter().find(|octet| !is_blank(octet)) == Some(&b'#');
        let is_passed_over = line.iter().all(is_blank) || (is_comment && !quoted);
        quoted |= line.contains(&b'"');
        is_passed_over || ends_in_timestamp(line)
    })
}

fn ends_in_timestamp(line: &[u8]) -> bool {
    let digits = line.iter().rev().take_while(|octet| octet.is_ascii_digit()).count();
    let rest = &line[..line.len() - digits];
    let rest = rest.strip_suffix(b"-").unwrap_or(rest);
    // An escaped blank belongs to what is before it.
    digits > 0 && rest.ends_with(b" ") && !rest.ends_with(b"\\ ")
}

// === /api/v2/query ===

/// Whether a text of Flux, by itself or in JSON, has none of the words that write: `to` and its kin, which is in reach
/// without an import, and `import` for all others. In JSON a word could hide behind an escape, and the language may be
/// another one.
fn flux_reads(asked: &Asked<'_>) -> Result<Told, Fault> {
    let seen = parameters::for_each(asked, |_, _, _| Ok(()))?;
    let (kind, text) = match seen {
        Seen::NeedBody => return Ok(Told::NeedBody),
        Seen::Other(kind, text) => (kind, text),
        Seen::All | Seen::Doubtful => return Ok(Told::No),
    };
    let is_flux = match kind.as_str() {
        "application/vnd.flux" => true,
        "application/json" => !text.windows(2).any(|pair| pair == b"\\u") && !holds(text, b"influxql"),
        _ => false,
    };
    let is_part = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'_';
    let mut words = text.split(|octet| !is_part(octet));
    // In JSON a line end is written as a backslash and an n, which would stand before the word.
    let writes = |word: &[u8]| {
        [word, word.strip_prefix(b"n").unwrap_or(word), word.strip_prefix(b"t").unwrap_or(word)]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(b"to") || word.eq_ignore_ascii_case(b"wideto"))
    };
    let reads = is_flux && text.is_ascii() && !holds(text, b"import") && !words.any(writes);
    Ok(if reads { Told::Yes } else { Told::No })
}

fn holds(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|piece| piece.eq_ignore_ascii_case(word))
}

// What the client is told.
const IN_BOTH: &str =
    "The query stands in the target and in the body, and servers differ on which holds. Send it once.";
const TWICE: &str = "The request has several parameters q, and servers differ on which holds. Send one.";
const ENCODED: &str = "The points are encoded, so that it cannot be seen whether each has a timestamp. Send them without \
    Content-Encoding, or have the operator add a rule for the path.";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::action::RuleSet;
    use crate::action::tests::{asked, outcome, set};

    const FORM: Option<&str> = Some("application/x-www-form-urlencoded");

    fn of(request: &str, kind: Option<&str>, body: Option<&str>) -> String {
        let (method, target) = request.split_once(' ').expect("a request");
        outcome(&set(RuleSet::Influxdb), &asked(method, target, kind, body.map(str::as_bytes)))
    }

    #[test]
    fn every_rule_and_what_just_misses_it() {
        for (request, expected) in [
            ("GET /query?db=x&q=SELECT+*+FROM+cpu", "read safe"),
            ("POST /query?db=x&q=SHOW%20DATABASES%3BSHOW+QUERIES", "read safe"),
            ("HEAD /query?q=SHOW+DATABASES", "read safe"),
            ("GET /query?q=SELECT+*+INTO+y+FROM+cpu", "change once"),
            ("GET /query?q=SHOW+DATABASES%3BDROP+DATABASE+x", "change once"),
            ("GET /query?q=SHOW+DATABASES;DROP+DATABASE+x", "change once"),
            ("GET /query?q=SHOW+DATABASES;", "change once"),
            ("GET /query?q=SHOW+DATABASES%", "change once"),
            ("GET /query?Q=SHOW+DATABASES", "read safe"),
            ("GET /query?q=", "change once"),
            ("GET /query", "change once"),
            ("GET /query?db=x", "change once"),
            ("PUT /query?q=SHOW+DATABASES", "change once"),
            ("GET /query/?q=SHOW+DATABASES", "change once"),
            ("GET /queries?q=SHOW+DATABASES", "change once"),
            ("GET /%71uery?q=SHOW+DATABASES", "action_ambiguous"),
            ("GET /x/../query?q=SHOW+DATABASES", "action_ambiguous"),
            ("GET /query?q=SHOW+DATABASES&q=DROP+DATABASE+x", "action_ambiguous"),
            ("GET /query?q=SHOW+DATABASES&%71=SHOW+DATABASES", "action_ambiguous"),
            ("GET /query?q=SHOW+DATABASES&Q=SHOW+DATABASES", "action_ambiguous"),
            ("POST /query?q=KILL+QUERY+7", "action_refused"),
            ("POST /query?q=DELETE+FROM+x+WHERE+time+<+now()", "server_time"),
            ("GET /query?q=SELECT+*+FROM+x+WHERE+time+<+now()", "read safe"),
            ("GET /ping", "read safe"),
            ("HEAD /ping?wait_for_leader=1s", "read safe"),
            ("POST /ping", "change once"),
            ("GET /pings", "change once"),
            ("GET /health", "read safe"),
            ("GET /ready", "read safe"),
            ("GET /status", "read safe"),
            ("GET /metrics", "read safe"),
            ("GET /metrics/x", "change once"),
            ("GET /debug/vars", "read safe"),
            ("GET /debug", "change once"),
            ("POST /debug/vars", "change once"),
            ("OPTIONS /write", "read safe"),
            ("GET /write", "change once"),
            ("POST /api/v1/prom/write", "change idempotent"),
            ("POST /api/v1/prom/read", "read safe"),
            ("POST /api/v1/prom/reads", "change once"),
            ("POST /api/v2/delete", "change once"),
            ("DELETE /api/v2/buckets/1", "change once"),
        ] {
            assert_eq!(of(request, None, None), expected, "{request}");
        }
    }

    #[test]
    fn a_query_in_the_body() {
        for (request, kind, body, expected) in [
            ("POST /query", FORM, "db=x&q=SHOW+DATABASES", "read safe"),
            ("POST /query", None, "q=SHOW+DATABASES", "read safe"),
            ("POST /query?db=x", FORM, "q=SELECT a\nFROM x", "read safe"),
            ("POST /query?db=x", FORM, "q=SELECT a\nINTO y FROM x", "change once"),
            ("POST /query", FORM, "q=CREATE+DATABASE+x", "change once"),
            ("POST /query?q=SHOW+DATABASES", FORM, "q=SHOW+DATABASES", "action_ambiguous"),
            ("POST /query?q=SHOW+DATABASES", FORM, "db=x", "read safe"),
            ("POST /query?q=SHOW+DATABASES", Some("text/plain"), "q=DROP+DATABASE+x", "change once"),
            ("POST /query", Some("multipart/form-data; boundary=B"), "--B", "change once"),
            ("POST /query?q=KILL+QUERY+1", Some("text/plain"), "x", "action_refused"),
            ("GET /query?q=SHOW+DATABASES", FORM, "q=DROP+DATABASE+x", "action_ambiguous"),
        ] {
            assert_eq!(of(request, kind, Some(body)), expected, "{request} {body}");
        }
    }

    #[test]
    fn points() {
        for (body, expected) in [
            ("cpu,host=a value=1 1600000000000000000", "change idempotent"),
            ("cpu value=1 1\ncpu value=2 -2\r\n\n# a comment\n  # one\ncpu value=\"x y\" 3 \n", "change idempotent"),
            ("cpu value=\"x\ny\" 3", "server_time"),
            ("cpu value=\"x 1\ny\" 3", "change idempotent"),
            ("cpu value=1", "server_time"),
            ("cpu value=1 1\ncpu value=2", "server_time"),
            ("cpu value=\"a 1\n# b\"", "server_time"),
            ("cpu value=\"a 12\"", "server_time"),
            ("cpu value=a\\ 12", "server_time"),
            ("cpu value=1 12x", "server_time"),
            ("cpu value=1\t12", "server_time"),
            ("cpu value=1 -", "server_time"),
            ("cpu value=12", "server_time"),
            ("", "change idempotent"),
        ] {
            for path in ["/write?db=x&precision=s", "/api/v2/write?bucket=x"] {
                assert_eq!(of(&format!("POST {path}"), None, Some(body)), expected, "{body:?}");
            }
        }
        let rules = set(RuleSet::Influxdb);
        let mut packed = asked("POST", "/write", None, Some(b"\x1f\x8b"));
        packed.content_encoding = Some(b"gzip");
        assert_eq!(outcome(&rules, &packed), "action_ambiguous");
    }

    #[test]
    fn flux() {
        let text = Some("application/vnd.flux");
        let json = Some("application/json; charset=utf-8");
        for (kind, body, expected) in [
            (text, "from(bucket: \"x\") |> range(start: -1h)", "read safe"),
            (json, "{\"query\": \"from(bucket:\\\"x\\\")\\n|> range(start: -1h)\", \"type\": \"flux\"}", "read safe"),
            (text, "from(bucket: \"x\") |> to(bucket: \"y\")", "change once"),
            (text, "import \"experimental\" from(bucket: \"x\")", "change once"),
            (json, "{\"query\": \"from(bucket:\\\"x\\\")|>\\nto(bucket:\\\"y\\\")\"}", "change once"),
            (json, "{\"query\": \"from(bucket:\\\"x\\\")|>\\u0074o(bucket:\\\"y\\\")\"}", "change once"),
            (json, "{\"query\": \"DROP DATABASE x\", \"type\": \"influxql\"}", "change once"),
            (Some("application/vnd.influxql"), "SHOW DATABASES", "change once"),
            (FORM, "query=x", "change once"),
        ] {
            assert_eq!(of("POST /api/v2/query", kind, Some(body)), expected, "{body}");
        }
    }

    /// How a server finds its points and their timestamps, after `ParsePointsWithPrecision` of InfluxDB 1.x. Points that
    /// it would refuse may come out either way.
    fn untimed_point(body: &[u8]) -> bool {
        let mut at = 0;
        while at < body.len() {
            let (mut quoted, mut fields, mut equals, mut commas) = (false, false, 0, 0);
            let start = at;
            while at < body.len() {
                let octet = body[at];
                if octet == b'\\' && at + 2 < body.len() {
                    at += 2;
                    continue;
                }
                fields |= octet == b' ';
                if fields && !quoted && octet == b'=' {
                    equals += 1;
                } else if fields && !quoted && octet == b',' {
                    commas += 1;
                } else if fields && octet == b'"' && equals > commas {
                    quoted = !quoted;
                } else if octet == b'\n' && !quoted {
                    break;
                }
                at += 1;
            }
            let point = &body[start..at];
            at += 1;
            let from = point.iter().take_while(|octet| matches!(octet, b' ' | b'\t' | 0)).count();
            let point = &point[from..];
            if point.is_empty() || point[0] == b'#' || quoted {
                continue;
            }
            // Key, fields, time: split at blanks that are neither escaped nor in a string.
            let (mut words, mut quoted, mut escaped, mut word) = (Vec::new(), false, false, Vec::new());
            for &octet in point {
                match octet {
                    b'"' if !escaped && !words.is_empty() => quoted = !quoted,
                    b' ' if !escaped && !quoted => {
                        words.push(std::mem::take(&mut word));
                        continue;
                    }
                    _ => {}
                }
                escaped = octet == b'\\' && !escaped;
                word.push(octet);
            }
            words.push(word);
            words.retain(|word| !word.is_empty());
            let is_field = |text: &[u8]| {
                let value = text.splitn(2, |octet| *octet == b'=').nth(1).unwrap_or_default();
                let is_string = value.len() > 1 && value.starts_with(b"\"") && value.ends_with(b"\"");
                is_string || (!value.is_empty() && value.iter().all(u8::is_ascii_digit))
            };
            if words.len() == 2 && is_field(&words[1]) {
                return true;
            }
        }
        false
    }

    proptest! {
        #[test]
        fn no_point_without_a_timestamp_goes_through(body in "(m f=|[m\"# \n\\\\=,1x]){0,24}") {
            prop_assert!(!(points_are_timed(body.as_bytes()) && untimed_point(body.as_bytes())), "{body:?}");
        }
    }
}
