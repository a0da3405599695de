//! `/explain`: what an action would cost on each child now, which child it would get, and what was learnt so far.
//!
//! Nothing is chosen or sent. The same text for a terminal and, as JSON, for programs.

use std::fmt::{self, Write as _};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::admin::Desk;
use crate::action::{Class, HOW_WRITTEN, Verdict, Written};
use crate::route::cost::{ClassView, Label};
use crate::route::{GroupTable, Judged, NoChoice, Policy};
use crate::sync::Arc;
use crate::time;

/// What is asked: a request on one line, as for `check --classify`; of one group, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Question {
    /// `METHOD target [body]`; without a method it is a GET.
    pub request: String,
    /// Only this group.
    pub group: Option<String>,
}

/// What a group's model says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// As asked.
    pub request: String,
    /// The group.
    pub group: String,
    /// How its reads are spread.
    pub policy: String,
    /// `read`, `change`, ...; or why the request is refused.
    pub class: String,
    /// Where costs are predicted and the request is taken: the rest.
    pub costs: Option<Costs>,
}

/// The model's figures, in microseconds where a name says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The class that the prediction comes from.
    pub kind: Option<Kind>,
    /// What it takes on an average child that has nothing else to do.
    pub service_us: f64,
    /// Learnt; for children without `slots` of their own.
    pub slots: u32,
    /// The child that a read would get now.
    pub chosen: Option<String>,
    /// Why there is none.
    pub none: Option<String>,
    /// In the order of the configuration.
    pub children: Vec<ChildCost>,
    /// What was learnt, the most seen first.
    pub learnt: Vec<Kind>,
}

/// A learnt class of actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// `GET /items/*`, `query (size 2)`; `*` is everything.
    pub name: String,
    /// Answers it was learnt from.
    pub samples: u32,
    /// Mean service.
    pub mean_us: f64,
    /// Half take less.
    pub median_us: f64,
}

/// One child's cost and its terms: (latency + harm) × slowness × weight × start, + way, errors, spill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildCost {
    /// Its name.
    pub name: String,
    /// As in `status`.
    pub state: String,
    /// It may be chosen now.
    pub candidate: bool,
    /// Everything in flight on it, changes too.
    pub in_flight: u32,
    /// Actions it serves at once.
    pub slots: u32,
    /// It works on all at once.
    pub shares: bool,
    /// The cost: the least is chosen.
    pub cost_us: f64,
    /// Of the latency, the wait before the service.
    pub wait_us: f64,
    /// Wait and service.
    pub latency_us: f64,
    /// What it does to later ones.
    pub harm_us: f64,
    /// Times the median child.
    pub slowness: f64,
    /// 100 by its weight.
    pub weight_factor: f64,
    /// Above 1 for a while after its return.
    pub start_factor: f64,
    /// The way there.
    pub rtt_us: f64,
    /// For errors above the median child's.
    pub errors_us: f64,
    /// For another location.
    pub spill_us: f64,
    /// How long the answer would take.
    pub predicted_us: f64,
    /// The last answer: what was predicted, and what was seen; 0 before the first.
    pub last_predicted_us: f64,
    /// See there.
    pub last_seen_us: f64,
    /// By what factor predictions are off, in the geometric mean.
    pub error_ratio: f64,
}

/// `GET /explain?request=...&group=...`
pub(super) async fn serve(State(desk): State<Desk>, question: Result<Query<Question>, QueryRejection>) -> Response {
    let refused = |what: String| (StatusCode::BAD_REQUEST, what).into_response();
    let Ok(Query(question)) = question else {
        return refused(format!("say `request=` once, percent-encoded, and `group=` at most once: {HOW_WRITTEN}\n"));
    };
    if !Written::is_written(&question.request) {
        return refused(format!("{:?} is no request: {HOW_WRITTEN}\n", question.request));
    }
    match answers(&desk.view.routes.load().groups, &question) {
        Ok(answers) => axum::Json(answers).into_response(),
        Err(NoSuchGroup(name)) => {
            let text = format!("there is no group {name:?}; `antiphon child ls` lists them\n");
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}

#[derive(Debug)]
struct NoSuchGroup(String);

fn answers(groups: &[Arc<GroupTable>], question: &Question) -> Result<Vec<Answer>, NoSuchGroup> {
    let wanted = |group: &&Arc<GroupTable>| question.group.as_ref().is_none_or(|name| *group.name == **name);
    let answers: Vec<_> = groups.iter().filter(wanted).map(|group| answer(group, &question.request)).collect();
    match &question.group {
        Some(name) if answers.is_empty() => Err(NoSuchGroup(name.clone())),
        _ => Ok(answers),
    }
}

fn answer(group: &GroupTable, request: &str) -> Answer {
    let written = Written::read(request);
    let asked = written.asked();
    let mut answer = Answer {
        request: request.to_owned(),
        group: group.name.to_string(),
        policy: group.policy.to_string(),
        class: String::new(),
        costs: None,
    };
    let decision = match group.rules.classify(&asked) {
        Ok(Verdict::Decided(decision)) => decision,
        Ok(Verdict::NeedBody) => unreachable!("no body is missing"),
        Err(fault) => {
            answer.class = format!("none: refused with {} {}", fault.status(), fault.code());
            return answer;
        }
    };
    answer.class = decision.class.to_string();
    if group.policy != Policy::Predictive || decision.class == Class::Refuse {
        return answer;
    }
    let body_bytes = asked.body.map_or(0, |body| body.len() as u64);
    let label = match decision.class {
        // As a lane knows it.
        Class::Change | Class::LiveChange => {
            let head = [asked.method, asked.target].join(&b' ');
            Label::of_change(group.rules.dialect(), decision.name.as_str(), &head, body_bytes)
        }
        Class::Read | Class::Refuse => {
            Label::of(group.rules.dialect(), &decision, &asked, group.cost.size_parameter.as_deref(), body_bytes)
        }
    };
    answer.costs = Some(costs(group, &label, decision.class));
    answer
}

fn costs(group: &GroupTable, label: &Label, class: Class) -> Costs {
    let explanation = group.explain(label, time::now());
    let (chosen, none) = match (class, explanation.chosen) {
        (Class::Read, Ok(index)) => (Some(group.children[index].name().to_string()), None),
        (Class::Read, Err(NoChoice::NoneCurrent)) => (None, Some("no child that is up has every acknowledged change")),
        (Class::Read, Err(NoChoice::AllDown | NoChoice::AllTried)) => (None, Some("no child is up")),
        _ => (None, Some("a change goes to every child")),
    };
    Costs {
        kind: explanation.class.map(Kind::from),
        service_us: explanation.prediction.service_us,
        slots: explanation.slots,
        chosen,
        none: none.map(str::to_owned),
        children: explanation.children.iter().map(|child| ChildCost::of(group, child)).collect(),
        learnt: explanation.classes.into_iter().map(Kind::from).collect(),
    }
}

impl ChildCost {
    fn of(group: &GroupTable, child: &Judged) -> Self {
        let (terms, seen) = (&child.terms, &child.seen);
        Self {
            name: group.children[child.index].name().to_string(),
            state: child.shown.to_string(),
            candidate: child.is_candidate,
            in_flight: terms.in_flight,
            slots: terms.slots,
            shares: terms.shares,
            cost_us: terms.cost_us(),
            wait_us: terms.latency_us - terms.service_us,
            latency_us: terms.latency_us,
            harm_us: terms.harm_us,
            slowness: terms.slowness,
            weight_factor: terms.weight_factor,
            start_factor: terms.start_factor,
            rtt_us: terms.rtt_us,
            errors_us: terms.errors_us,
            spill_us: terms.spill_us,
            predicted_us: terms.predicted_us(),
            last_predicted_us: seen.last_predicted_us,
            last_seen_us: seen.last_seen_us,
            error_ratio: seen.error_ratio,
        }
    }
}

impl From<ClassView> for Kind {
    fn from(class: ClassView) -> Self {
        Self { name: class.name, samples: class.samples, mean_us: class.mean_us, median_us: class.median_us }
    }
}

/// Learnt classes that a terminal is shown.
const LEARNT_SHOWN: usize = 12;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\ngroup {}, policy {}: {}", self.request, self.group, self.policy, self.class)?;
        let Some(costs) = &self.costs else {
            if self.policy != Policy::Predictive.name() {
                writeln!(f, "  costs are predicted under `policy = \"predictive\"` only")?;
            }
            return Ok(());
        };
        match &costs.kind {
            Some(kind) => writeln!(
                f,
                "  predicted {} of service, from {} ({} answers)",
                us(costs.service_us),
                kind.name,
                kind.samples
            )?,
            None => writeln!(f, "  predicted {} of service: nothing was learnt yet", us(costs.service_us))?,
        }
        match (&costs.chosen, &costs.none) {
            (Some(name), _) => writeln!(f, "  a read would go to {name} now\n")?,
            (None, why) => writeln!(f, "  {}\n", why.as_deref().unwrap_or_default())?,
        }
        writeln!(
            f,
            "  {:<12} {:>9} = ({:>8} + {:>8} + {:>8}) × {:>5} + {:>8}  {:>9} {:>9} {:>9} {:>5}",
            "child", "cost", "wait", "service", "harm", "slow", "added", "in flight", "predicted", "seen", "off"
        )?;
        for child in &costs.children {
            child.line(f, costs.chosen.as_deref() == Some(&*child.name))?;
        }
        writeln!(f, "\n  learnt: {} slots a child; means of an average child:", costs.slots)?;
        for kind in costs.learnt.iter().take(LEARNT_SHOWN) {
            writeln!(f, "  {:<32} {:>9} from {} answers", kind.name, us(kind.mean_us), kind.samples)?;
        }
        match costs.learnt.len().saturating_sub(LEARNT_SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

impl ChildCost {
    fn line(&self, f: &mut fmt::Formatter<'_>, is_chosen: bool) -> fmt::Result {
        let mark = if is_chosen { '>' } else { ' ' };
        let service_us = self.latency_us - self.wait_us;
        let factor = self.slowness * self.weight_factor * self.start_factor;
        let added_us = self.rtt_us + self.errors_us + self.spill_us;
        let load = format!("{}/{}", self.in_flight, self.slots);
        write!(
            f,
            "{mark} {:<12} {:>9} = ({:>8} + {:>8} + {:>8}) × {factor:>5.2} + {:>8}  {load:>9} ",
            self.name,
            us(self.cost_us),
            us(self.wait_us),
            us(service_us),
            us(self.harm_us),
            us(added_us)
        )?;
        if self.last_seen_us > 0.0 {
            write!(f, "{:>9} {:>9} ×{:.2}", us(self.last_predicted_us), us(self.last_seen_us), self.error_ratio)?;
        } else {
            write!(f, "{:>9} {:>9} {:>5}", "-", "-", "-")?;
        }
        let mut notes = String::new();
        if !self.candidate {
            write!(notes, "  {}, not a candidate", self.state)?;
        }
        for (what, us_more) in [("errors", self.errors_us), ("elsewhere", self.spill_us)] {
            if us_more > 0.0 {
                write!(notes, "  {what}: {}", us(us_more))?;
            }
        }
        if self.start_factor > 1.0 {
            write!(notes, "  just back: ×{:.1}", self.start_factor)?;
        }
        if self.shares {
            notes.push_str("  works on all at once");
        }
        writeln!(f, "{notes}")
    }
}

/// Microseconds, as short as can be read.
fn us(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0}µs"),
        us if us < 1e6 => format!("{:.1}ms", us / 1e3),
        us => format!("{:.1}s", us / 1e6),
    }
}

impl Question {
    /// Path and query that ask it.
    pub(super) fn path(&self) -> String {
        let mut path = format!("/explain?request={}", encoded(&self.request));
        if let Some(group) = &self.group {
            path += &format!("&group={}", encoded(group));
        }
        path
    }
}

/// The answer as a terminal shows it.
pub(super) fn show(json: &str) -> Result<String, serde_json::Error> {
    let answers = serde_json::from_str::<Vec<Answer>>(json)?;
    Ok(answers.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Percent-encoded but for what is unreserved (RFC 3986 2.3).
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(3 * text.len());
    for octet in text.bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(octet)),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}
