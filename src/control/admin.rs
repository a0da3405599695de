//! The admin side: what an operator asks and orders, over a unix socket and, where configured, a loopback address.
//!
//! One enum of commands; HTTP is its dialect here, the command line is another. Looking is GET, moving is POST. Each
//! order leaves a line in the log with where it came from.

use std::fmt;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::explain::{self, Question};
use super::front::View;
use super::status::Status;
use super::{aci, metrics, queue};
use crate::limits::WEIGHT_MAX;
use crate::route::{Admin, Policy, Shown, Standing};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::time;

/// What an operator can ask or order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The whole front.
    Status,
    /// The children only.
    ChildList,
    /// What each child has missed.
    QueueList,
    /// What an action would cost on each child.
    Explain(Question),
    /// An order about a child.
    Child(ChildName, ChildVerb),
}

/// A child as an operator names it: `NAME`, or `GROUP/NAME` where the name alone has two meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildName {
    /// Its group.
    pub group: Option<String>,
    /// Its name.
    pub name: String,
}

impl std::str::FromStr for ChildName {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let is_name =
            |part: &str| !part.is_empty() && part.bytes().all(|o| o.is_ascii_alphanumeric() || b"._-".contains(&o));
        let (group, name) = match text.split_once('/') {
            Some((group, name)) => (Some(group), name),
            None => (None, text),
        };
        if !is_name(name) || !group.is_none_or(is_name) {
            return Err(NotAName);
        }
        Ok(Self { group: group.map(str::to_owned), name: name.to_owned() })
    }
}

/// A text that can be nobody's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a child is NAME or GROUP/NAME; names are letters, digits, `.`, `_` and `-`")]
pub struct NotAName;

/// What can be ordered of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildVerb {
    /// No reads, no probes; changes wait for it.
    Offline,
    /// It is used again, after it has been sent what it missed.
    Online,
    /// It leads its group.
    Primary,
    /// The operator's word that it is identical to its siblings again.
    Attach,
    /// Its share of reads, at most [`WEIGHT_MAX`].
    Weight(u32),
    /// It is asked now how it is.
    Probe,
    /// What it missed is dropped: it needs a reseed.
    Flush,
}

impl ChildVerb {
    /// All words, in the order of the help text.
    pub const NAMES: [&'static str; 7] = ["offline", "online", "primary", "attach", "weight", "probe", "flush"];

    /// The order that a word names. A weight comes as a value beside it, which the others do not have.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn named(word: &str, value: Option<&str>) -> Result<Self, NotAnOrder> {
        let verb = match word {
            "offline" => Self::Offline,
            "online" => Self::Online,
            "primary" => Self::Primary,
            "attach" => Self::Attach,
            "probe" => Self::Probe,
            "flush" => Self::Flush,
            "weight" => {
                let weight = value.and_then(|value| value.parse().ok()).filter(|weight| *weight <= WEIGHT_MAX);
                return weight.map(Self::Weight).ok_or(NotAnOrder::Weight);
            }
            other => return Err(NotAnOrder::Word(other.to_owned())),
        };
        Ok(verb)
    }

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Online => "online",
            Self::Primary => "primary",
            Self::Attach => "attach",
            Self::Weight(_) => "weight",
            Self::Probe => "probe",
            Self::Flush => "flush",
        }
    }
}

impl fmt::Display for ChildVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Words that are no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnOrder {
    /// No such word.
    #[error("there is no order {0:?}; there are {names}", names = ChildVerb::NAMES.join(", "))]
    Word(String),
    /// A weight without a number, or with too large a one.
    #[error("a weight is a number from 0 to {WEIGHT_MAX}")]
    Weight,
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No group has such a child.
    #[error("there is no child {0:?}; `antiphon child ls` lists them")]
    NoSuchChild(String),
    /// More than one group has.
    #[error("several groups have a child {0:?}; say which: GROUP/{0}")]
    WhichGroup(String),
    /// The child is live: nothing is missing on it.
    #[error("{0:?} is {1} and has every change: there is nothing to attach")]
    NothingToAttach(String, Shown),
    /// The child is live: nothing waits for it.
    #[error("{0:?} is {1} and is sent every change: there is nothing to flush")]
    NothingToFlush(String, Shown),
    /// An offline child is not asked anything.
    #[error("{0:?} is offline: it is not probed until it is online")]
    NotProbed(String),
    /// There is no such group.
    #[error("there is no group {0:?}; `antiphon child ls` lists them")]
    NoSuchGroup(String),
}

/// What the admin side works on.
#[derive(Clone)]
pub struct Desk {
    /// The front.
    pub view: Arc<View>,
    /// No new work is taken: `/readyz` says so first.
    pub draining: Arc<AtomicBool>,
}

impl Desk {
    /// The front as of now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.view, self.draining.load(Ordering::Relaxed))
    }

    /// Carries out an order; tells what was done. `by` is who gave it, for the log.
    ///
    /// # Errors
    /// The child cannot be told from the name, or is not in a state for the order.
    pub fn order(&self, group: Option<&str>, name: &str, verb: ChildVerb, by: &str) -> Result<String, Refused> {
        let routes = self.view.routes.load_full();
        if let Some(group) = group
            && !routes.groups.iter().any(|table| &*table.name == group)
        {
            return Err(Refused::NoSuchGroup(group.to_owned()));
        }
        let mut found = routes
            .groups
            .iter()
            .filter(|table| group.is_none_or(|group| &*table.name == group))
            .filter_map(|table| Some((table, table.child(name)?)));
        let (table, child) = found.next().ok_or_else(|| Refused::NoSuchChild(name.to_owned()))?;
        if found.next().is_some() {
            return Err(Refused::WhichGroup(name.to_owned()));
        }
        let mirror = &self.view.mirrors[table.index];
        let now = time::now();
        let before = child.shown();
        let done = match verb {
            ChildVerb::Offline if child.admin() == Admin::Offline => "was offline already",
            ChildVerb::Online if child.admin() == Admin::Online => "was online already",
            ChildVerb::Primary if table.primary() == child.index => "was the primary already",
            ChildVerb::Attach if child.standing() == Standing::Live => {
                return Err(Refused::NothingToAttach(name.to_owned(), before));
            }
            ChildVerb::Flush if child.standing() == Standing::Live => {
                return Err(Refused::NothingToFlush(name.to_owned(), before));
            }
            ChildVerb::Flush if child.standing() == Standing::NeedsReseed => {
                "needs a reseed already: nothing waits for it"
            }
            ChildVerb::Probe if child.admin() == Admin::Offline => return Err(Refused::NotProbed(name.to_owned())),
            ChildVerb::Weight(weight) if child.weight() == weight => "had that weight already",
            ChildVerb::Weight(weight) => {
                child.set_weight(weight);
                "has its new weight, until a restart"
            }
            ChildVerb::Probe => {
                child.health().want_probe();
                mirror.notice(child.index);
                "is being asked how it is"
            }
            ChildVerb::Flush => {
                mirror.flush(child.index);
                "is sent nothing of what it missed: it needs a reseed, and then an attach"
            }
            ChildVerb::Offline => {
                child.set_admin(Admin::Offline, "offline by the operator", now);
                mirror.notice(child.index);
                "is offline: no reads, no probes; changes wait for it"
            }
            ChildVerb::Online => {
                table.online(child.index, now);
                mirror.notice(child.index);
                "is online: it will be probed, sent what it missed, and then read from"
            }
            ChildVerb::Primary => {
                table.set_primary(child.index);
                match (table.policy, before) {
                    (Policy::Failover, Shown::Up) => "is the primary of its group",
                    (Policy::Failover, _) => "is the primary of its group until the next read finds it away",
                    _ => "is the primary of its group: its answers to changes are returned; reads follow the policy",
                }
            }
            ChildVerb::Attach => {
                mirror.attach(child.index);
                "is taken as identical as of now: once a probe is good it gets the next change, and reads"
            }
        };
        tracing::info!(group = %table.name, child = %child.name(), %verb, %before, by, "order of the operator");
        Ok(format!("{}/{} {done}", table.name, child.name()))
    }
}

/// The admin interface over HTTP. `guarded`: on a TCP address, where a web page in the operator's browser could reach
/// it, orders need a field that no page can set without asking first.
pub fn router(desk: Desk, guarded: bool) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(|State(desk): State<Desk>| async move { metrics_answer(&desk) }))
        .route("/status", get(status))
        .route("/explain", get(explain::serve))
        .route("/v1/queue", get(|State(desk): State<Desk>| async move { axum::Json(queue::of(&desk.view)) }))
        .route("/v1/children/{group}/{name}/{verb}", post(order_in_group))
        .route("/v1/children/{name}/{verb}", post(order))
        .fallback(move |State(desk): State<Desk>, request: Request| aci::serve(desk, request, guarded))
        .with_state(desk);
    if guarded { router.layer(middleware::from_fn(guard)) } else { router }
}

/// Refuses what a browser may have been tricked into sending: orders without our field (another site's page cannot add
/// it without a preflight, which we do not answer), and hosts by name (DNS rebinding).
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let by_address = name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if !by_address {
        return (StatusCode::MISDIRECTED_REQUEST, "use the address, not a name, in the Host field\n").into_response();
    }
    let looks = request.method().is_safe();
    if !looks && !request.headers().contains_key("antiphon-admin") {
        return (StatusCode::FORBIDDEN, "orders need the field `Antiphon-Admin: 1`\n").into_response();
    }
    next.run(request).await
}

async fn readyz(State(desk): State<Desk>) -> Response {
    if desk.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    let routes = desk.view.routes.load_full();
    let dead: Vec<_> = routes
        .groups
        .iter()
        .filter(|group| !group.occupied().any(|child| child.is_live()))
        .map(|group| &*group.name)
        .collect();
    if dead.is_empty() {
        return "ready\n".into_response();
    }
    let text = format!("no child is up in: {}\n", dead.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

fn metrics_answer(desk: &Desk) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&desk.view)).into_response()
}

async fn status(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.starts_with("text/plain") {
        return desk.status().to_string().into_response();
    }
    axum::Json(desk.status()).into_response()
}

async fn order(
    State(desk): State<Desk>,
    Path((name, verb)): Path<(String, String)>,
    Query(value): Query<Value>,
) -> Response {
    answer(&desk, None, &name, &verb, value.to.as_deref())
}

/// `?to=`: the value that `weight` needs.
#[derive(serde::Deserialize)]
struct Value {
    to: Option<String>,
}

async fn order_in_group(
    State(desk): State<Desk>,
    Path((group, name, verb)): Path<(String, String, String)>,
    Query(value): Query<Value>,
) -> Response {
    answer(&desk, Some(&group), &name, &verb, value.to.as_deref())
}

fn answer(desk: &Desk, group: Option<&str>, name: &str, verb: &str, value: Option<&str>) -> Response {
    let verb = match ChildVerb::named(verb, value) {
        Ok(verb) => verb,
        Err(wrong @ NotAnOrder::Word(_)) => return (StatusCode::NOT_FOUND, format!("{wrong}\n")).into_response(),
        Err(wrong @ NotAnOrder::Weight) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    match desk.order(group, name, verb, "the admin side") {
        Ok(done) => format!("{done}\n").into_response(),
        Err(refused) => (refused.status(), format!("{refused}\n")).into_response(),
    }
}

impl Refused {
    /// The HTTP status for it.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchChild(_) | Self::NoSuchGroup(_) => StatusCode::NOT_FOUND,
            Self::WhichGroup(_) | Self::NothingToAttach(..) | Self::NothingToFlush(..) | Self::NotProbed(_) => {
                StatusCode::CONFLICT
            }
        }
    }
}
