//! The admin side: what an operator asks and orders, over a unix socket and, where configured, a loopback address.
//!
//! One enum of commands; HTTP is its dialect here, the command line is another. Looking is GET, moving is POST. What an
//! order does is [`order`](super::order)'s.

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::book::Book;
use super::explain::{self, Question};
use super::front::View;
pub use super::order::ChildVerb;
use super::order::NotAnOrder;
use super::status::Status;
use super::{aci, metrics, queue};
use crate::sync::{Arc, AtomicBool, Ordering};

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

/// What the admin side works on.
#[derive(Clone)]
pub struct Desk {
    /// The front.
    pub view: Arc<View>,
    /// No new work is taken: `/readyz` says so first.
    pub draining: Arc<AtomicBool>,
    /// What was decided.
    pub book: Arc<Book>,
}

impl Desk {
    /// The front as of now. Which child leads is kept first: what an operator was told holds after a restart.
    pub async fn status(&self) -> Status {
        self.keep_primaries().await;
        Status::of(&self.view, self.draining.load(Ordering::Relaxed), self.book.is_kept())
    }

    /// Keeps what failover has decided by now. That it cannot be is told by who tries again.
    pub(super) async fn keep_primaries(&self) {
        self.book.note_primaries(&self.view);
        let _ = self.book.keep().await;
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
        // Reads go on, so whoever asks on their behalf is not sent away; who sends changes is told.
        let failed = routes.groups.iter().filter(|group| desk.view.mirrors[group.index].failed().is_some());
        let failed: Vec<_> = failed.map(|group| &*group.name).collect();
        if failed.is_empty() {
            return "ready\n".into_response();
        }
        return format!("ready for reads; no change is taken in: {} (journal failed)\n", failed.join(", "))
            .into_response();
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
        return desk.status().await.to_string().into_response();
    }
    axum::Json(desk.status().await).into_response()
}

async fn order(
    State(desk): State<Desk>,
    Path((name, verb)): Path<(String, String)>,
    value: Result<Query<Value>, QueryRejection>,
) -> Response {
    answer(&desk, None, &name, &verb, value).await
}

/// `?to=`: the value that `weight`, `add` and `edit` need.
#[derive(serde::Deserialize)]
struct Value {
    to: Option<String>,
}

async fn order_in_group(
    State(desk): State<Desk>,
    Path((group, name, verb)): Path<(String, String, String)>,
    value: Result<Query<Value>, QueryRejection>,
) -> Response {
    answer(&desk, Some(&group), &name, &verb, value).await
}

async fn answer(
    desk: &Desk,
    group: Option<&str>,
    name: &str,
    verb: &str,
    value: Result<Query<Value>, QueryRejection>,
) -> Response {
    let Ok(Query(value)) = value else {
        return (StatusCode::BAD_REQUEST, "an order takes one value: write `?to=` once\n").into_response();
    };
    let verb = match ChildVerb::named(verb, value.to.as_deref()) {
        Ok(verb) => verb,
        Err(wrong @ NotAnOrder::Word(_)) => return (StatusCode::NOT_FOUND, format!("{wrong}\n")).into_response(),
        Err(wrong @ (NotAnOrder::Weight | NotAnOrder::Address | NotAnOrder::Resolve)) => {
            return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response();
        }
    };
    match desk.order(group, name, &verb, "the admin side").await {
        Ok(done) => format!("{done}\n").into_response(),
        Err(refused) => (refused.status(), format!("{refused}\n")).into_response(),
    }
}
