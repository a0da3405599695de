//! One case: the client's steps, the child's script, what is expected, and what was seen.

#![allow(unreachable_pub, reason = "a module of a test crate, not of a library")]

use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::checks;
use crate::support::Driver;
use crate::support::client::Ask;
use crate::support::message::{self, Received, Request};
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::scripted::{AFTERWARDS, Record, Scripted, Step};
use crate::wire::{End, Wire, octets_of, script_of};

/// How long nothing may happen before a case that looks right is believed: what must *not* come has had its chance.
const QUIET: Duration = Duration::from_millis(300);
/// How long a case may take to look right once its last step is done.
const GIVE_UP: Duration = Duration::from_secs(15);
/// The children: AC has both.
const NAMES: [&str; 2] = ["a", "b"];
/// How much a proxy may grow for a client that reads nothing of 50 MB: the worker's buffers, touched for the first
/// time, and what one connection may hold.
const GROWTH_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// A line of `http.jsonl`. A field that is not known here fails the suite: nothing is passed over in silence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    pub group: String,
    pub what: String,
    pub send: Vec<Value>,
    #[serde(default)]
    pub upstream: Vec<Value>,
    pub expect: Expect,
    pub why: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    r#ref: Vec<String>,
    /// What others did.
    #[serde(default)]
    pub observed: Value,
    /// Limits that the case needs; those of [`setup`] are within them.
    #[serde(default)]
    pub note: String,
}

/// What must come of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub accept: Vec<String>,
    pub max_upstream_requests: usize,
    #[serde(default)]
    pub client_conn: Option<String>,
    #[serde(default)]
    pub upstream_conn: Option<String>,
    #[serde(default)]
    pub forwarded: Vec<String>,
    #[serde(default)]
    pub response: Vec<String>,
}

impl Case {
    /// The octets of all steps, as if sent in one piece.
    fn sent(&self) -> Vec<u8> {
        self.send.iter().flat_map(|step| octets_of(step).unwrap_or_default()).collect()
    }

    /// The same without pauses and cuts, if it has such a step.
    fn unsplit(&self) -> Option<Self> {
        let is_split = self.send.iter().any(|step| step.get("split").is_some());
        is_split.then(|| {
            let sent: String = self.sent().into_iter().map(char::from).collect();
            Self { send: vec![Value::String(sent)], ..self.clone() }
        })
    }

    /// The target of the first request.
    pub fn target(&self) -> Vec<u8> {
        self.sent().split(|octet| *octet == b' ').nth(1).unwrap_or_default().to_vec()
    }

    /// How long its own pauses are.
    pub fn pauses_ms(&self) -> u64 {
        let pause = |step: &Value| step.get("wait_ms").or_else(|| step.get("no_read_ms")).and_then(Value::as_u64);
        self.send.iter().filter_map(pause).sum()
    }
}

/// All there is to look at.
#[derive(Debug)]
pub struct Seen {
    /// What the client received, in octets.
    pub octets: Vec<u8>,
    /// The same, read strictly.
    pub received: Received,
    pub end: Option<End>,
    /// For each child, its connections.
    pub children: Vec<Vec<Record>>,
    /// The target of the first request, as sent.
    pub target: Vec<u8>,
    /// What came of the same request in one piece, where the case cuts it up.
    pub unsplit: Option<Box<Self>>,
    /// How much the proxy's own memory grew while the client read nothing.
    pub grown_bytes: u64,
}

impl Seen {
    /// Complete requests of the case that a child has.
    pub fn requests_of(&self, child: usize) -> Vec<&Request> {
        self.children[child].iter().flat_map(Record::case_requests).collect()
    }

    /// Complete requests of the case that any child has.
    pub fn requests(&self) -> Vec<&Request> {
        self.children.iter().flatten().flat_map(Record::case_requests).collect()
    }

    /// The connection that played the script.
    pub fn scripted(&self) -> Option<&Record> {
        self.children.iter().flatten().find(|record| record.scripted)
    }

    /// What became of it, in the words of `accept`.
    pub fn outcome(&self, group: &str) -> String {
        let Some(first) = self.received.finals.first() else {
            return if self.end.is_some() && self.octets.is_empty() { "close".into() } else { "nothing".into() };
        };
        let status = first.status();
        let by_child = self.children.iter().flatten().any(|record| record.statuses.contains(&status));
        if !by_child {
            return status.to_string();
        }
        if group != "AC" {
            return "forward".into();
        }
        let counts: Vec<usize> = (0..self.children.len()).map(|child| self.requests_of(child).len()).collect();
        match counts.as_slice() {
            counts if counts.iter().sum::<usize>() == 1 => "read".into(),
            counts if counts.iter().all(|count| *count == 1) => "broadcast".into(),
            counts => format!("requests at the children: {counts:?}"),
        }
    }

    /// In the form of `observed`.
    pub fn summary(&self) -> String {
        let statuses: Vec<String> = self
            .received
            .interim
            .iter()
            .map(|head| head.status)
            .chain(self.received.statuses())
            .map(|status| status.to_string())
            .collect();
        let statuses = if statuses.is_empty() { "no answer".into() } else { statuses.join(",") };
        let end = match self.end {
            None => "open",
            Some(End::Closed | End::ResetByProxy) => "closed",
            Some(End::ResetByUs) => "client reset",
        };
        let most = (0..self.children.len()).map(|child| self.requests_of(child).len()).max().unwrap_or(0);
        format!("{statuses}; {end}; {most} upstream")
    }

    /// What is not as the case wants it, so far.
    fn problems(&self, case: &Case) -> Vec<String> {
        let mut problems = Vec::new();
        let outcome = self.outcome(&case.group);
        let outcomes: Vec<&str> = case.expect.accept.iter().map(String::as_str).collect();
        if !outcomes.contains(&outcome.as_str()) {
            problems.push(format!("outcome {outcome}, not one of {outcomes:?}"));
        }
        for child in 0..self.children.len() {
            let count = self.requests_of(child).len();
            if count > case.expect.max_upstream_requests {
                problems.push(format!("{count} requests at child {child}"));
            }
            if case.group == "AC" && outcome.starts_with('4') && count > 0 {
                problems.push(format!("refused, and yet at child {child}"));
            }
        }
        match case.expect.client_conn.as_deref() {
            Some("close") if self.end.is_none() => problems.push("the client's connection is open".into()),
            Some("keep") if self.end.is_some() => problems.push("the client's connection is closed".into()),
            None | Some("close" | "keep") => {}
            Some(other) => problems.push(format!("client_conn `{other}` is not known here")),
        }
        if !self.requests().is_empty() {
            for prose in &case.expect.forwarded {
                if !checks::forwarded(prose).is_some_and(|check| check(self)) {
                    problems.push(format!("forwarded: not `{prose}`"));
                }
            }
        }
        for prose in &case.expect.response {
            if !checks::response(prose).is_some_and(|check| check(self)) {
                problems.push(format!("response: not `{prose}`"));
            }
        }
        if case.note.contains("growth of resident memory") && self.grown_bytes > GROWTH_BYTES_MAX {
            problems.push(format!("the proxy grew by {} octets", self.grown_bytes));
        }
        if let Some(unlawful) = &self.received.unlawful {
            problems.push(format!("the client cannot read its answer: {unlawful}"));
        }
        if !self.received.rest.is_empty() {
            problems.push(format!("behind the answers: `{}`", String::from_utf8_lossy(&self.received.rest)));
        }
        for record in self.children.iter().flatten() {
            if let Some(unlawful) = &record.unlawful {
                problems.push(format!("a child cannot read its request: {unlawful}"));
            }
        }
        problems
    }

    /// For the report of a failure.
    fn show(&self) -> String {
        let short = |octets: &[u8]| octets[..octets.len().min(600)].escape_ascii().to_string();
        let mut text = format!("    client: {} [{}]\n", self.summary(), short(&self.octets));
        for (index, records) in self.children.iter().enumerate() {
            for record in records {
                text.push_str(&format!(
                    "    child {index}: scripted {}, closed by proxy {}, by us {} [{}]\n",
                    record.scripted,
                    record.closed_by_proxy,
                    record.closed_by_us,
                    short(&record.octets)
                ));
            }
        }
        text
    }
}

/// The configuration of a case.
pub fn setup(driver: Driver, group: &str, ports: &[u16]) -> Setup {
    let mut setup = if group == "AC" {
        Setup::new(driver, "aci", "idol")
    } else {
        Setup::new(driver, "http", "http").rule("method = [\"*\"]\npath = \"*\"\nclass = \"read\"")
    };
    for (name, port) in NAMES.iter().zip(ports) {
        setup = setup.child(name, *port);
    }
    setup
        .set("timeouts", "request_head", text("2s"))
        .set("timeouts", "request_body", text("2s"))
        .set("timeouts", "client_write", text("2s"))
        .set("limits", "body_bytes_max", text("64MiB"))
}

/// Plays a case and judges it.
///
/// # Errors
/// What was wrong, and what was seen.
pub fn run(case: &Case, driver: Driver) -> Result<Seen, String> {
    let unsplit = match case.unsplit() {
        None => None,
        Some(whole) => Some(Box::new(play(&whole, driver, None)?)),
    };
    play(case, driver, unsplit)
}

fn play(case: &Case, driver: Driver, unsplit: Option<Box<Seen>>) -> Result<Seen, String> {
    let script: Vec<Step> = case.upstream.iter().flat_map(script_of).collect();
    let count = if case.group == "AC" { 2 } else { 1 };
    let children: Vec<Scripted> = (0..count).map(|_| Scripted::start(script.clone())).collect();
    let ports: Vec<u16> = children.iter().map(Scripted::port).collect();
    let proxy = Proxy::start(&setup(driver, &case.group, &ports));
    for name in NAMES.iter().take(count) {
        proxy.wait_child_state(name, "up");
    }
    let before = proxy.resident_bytes();
    let mut peak = before;
    let mut wire = Wire::connect(proxy.port);
    for step in &case.send {
        wire.step(step, || peak = peak.max(proxy.resident_bytes()));
    }
    let grown_bytes = peak - before;
    let head_first = case.sent().starts_with(b"HEAD ");
    let look = |wire: &Wire| Seen {
        received: message::received(&wire.octets, head_first, wire.end.is_some()),
        octets: wire.octets.clone(),
        end: wire.end,
        children: children.iter().map(Scripted::records).collect(),
        target: case.target(),
        unsplit: None,
        grown_bytes,
    };
    let mut unsplit = unsplit;
    let begun = Instant::now();
    let mut quiet_since = Instant::now();
    let mut known = (0, 0);
    let mut seen = loop {
        wire.pump(&[], Duration::from_millis(20), |_| false);
        let mut seen = look(&wire);
        seen.unsplit = unsplit.take();
        let came = (seen.octets.len(), seen.children.iter().flatten().map(|record| record.octets.len()).sum::<usize>());
        if came != known {
            known = came;
            quiet_since = Instant::now();
        }
        let problems = seen.problems(case);
        if problems.is_empty() && quiet_since.elapsed() >= QUIET {
            break seen;
        }
        if begun.elapsed() >= GIVE_UP {
            return Err(format!("{}\n{}", problems.join("\n    "), seen.show()));
        }
        unsplit = seen.unsplit;
    };
    let after = afterwards(case, &proxy, wire, &children);
    seen.children = children.iter().map(Scripted::records).collect();
    after.map_err(|why| format!("{why}\n{}", seen.show()))?;
    Ok(seen)
}

/// Whatever the case did, the next client is served: on the same connection if that is kept, else on a new one, and
/// not over a child's connection that should be closed.
fn afterwards(case: &Case, proxy: &Proxy, wire: Wire, children: &[Scripted]) -> Result<(), String> {
    let keep = case.expect.client_conn.as_deref() == Some("keep");
    let target = if case.group == "AC" { format!("/action=Query&Text={AFTERWARDS}") } else { format!("/{AFTERWARDS}") };
    let ask = Ask::get(&target);
    if keep {
        let mut wire = wire;
        let from = wire.octets.len();
        wire.pump(&ask.octets("a.test"), GIVE_UP, |wire| !statuses(&wire.octets[from..]).is_empty());
        let statuses = statuses(&wire.octets[from..]);
        if statuses != [200] {
            return Err(format!("the kept connection answers {statuses:?}"));
        }
    } else {
        drop(wire);
        // A child that the case has put down is back after a probe.
        let begun = Instant::now();
        loop {
            let answer = ask.at(proxy.port).map(|answer| answer.status());
            if matches!(answer, Ok(200)) {
                break;
            }
            if begun.elapsed() >= GIVE_UP {
                return Err(format!("the next client is not served: {answer:?}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    match case.expect.upstream_conn.as_deref() {
        None => Ok(()),
        Some("close") => closes(children),
        Some(other) => Err(format!("upstream_conn `{other}` is not known here")),
    }
}

/// The connection that played the script was not used again by the client that came afterwards (an idle one would have
/// been), and ends.
fn closes(children: &[Scripted]) -> Result<(), String> {
    let scripted = || children.iter().flat_map(Scripted::records).find(|record| record.scripted);
    if scripted().is_some_and(|record| record.saw_afterwards()) {
        return Err("a connection to a child that should be closed is used again".into());
    }
    let begun = Instant::now();
    while scripted().is_some_and(|record| !record.closed_by_proxy && !record.closed_by_us) {
        if begun.elapsed() >= GIVE_UP {
            return Err("the child's connection stays open".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn statuses(octets: &[u8]) -> Vec<u16> {
    let received = message::received(octets, false, false);
    received.finals.iter().filter(|answer| answer.whole).map(|answer| answer.status()).collect()
}
