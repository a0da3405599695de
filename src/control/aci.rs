//! The DAH dialect of the admin side: actions, engines and XML instead of paths, names and JSON.
//!
//! Whoever scripted a DAH finds the same actions: `EngineManagement`, `DAHReadQueue`, `DAHFlushQueue` where clients come
//! in, and these and the service actions on the admin address. They are the orders of [`admin`](super::admin), read
//! and answered otherwise; nothing is decided here. Scripts cut the answers with sed and grep: a child is one start
//! tag, `<engine id="N" host="…" …`, in this order.

mod service;
mod show;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use super::admin::Desk;
use super::order::{ChildVerb, NotAnOrder, Refused};
use crate::action::{Asked, Parameters};
use crate::http::aci::{Element, Format, Trouble, envelope, error_envelope};
use crate::http::http_date;
use crate::limits::OWN_BODY_BYTES_MAX;
use crate::route::{Child, GroupTable};
use crate::sync::Arc;
use crate::time;
use crate::worker::own::Answer;

/// Which groups a request may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The one that it was sent to; service actions are not answered there.
    Group(usize),
    /// All: the admin side.
    All,
}

/// Why an action was not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    text: String,
}

/// What `EngineAction` asks for.
enum Engine {
    Show,
    /// An order, for each engine that is named.
    Order(ChildVerb),
    /// A new one.
    Add,
    /// Another address for one.
    Edit,
}

/// The data of an answer, or why there is none.
pub(super) type Outcome = Result<Vec<Element>, Refusal>;

/// Carries out an action; the data of its answer.
///
/// # Errors
/// Why not, for the client.
pub(super) async fn carry_out(
    desk: &Desk,
    action: &str,
    parameters: &Parameters,
    scope: Scope,
    may_order: bool,
    by: &str,
) -> Outcome {
    let view = &desk.view;
    let group = || group(desk, parameters, scope);
    let asker = Asker { desk, may_order, by };
    match action.to_ascii_lowercase().as_str() {
        "enginemanagement" => {
            let group = group()?;
            match engine_action(parameters)? {
                Engine::Show => {
                    desk.keep_primaries().await;
                    Ok(show::status(view, &group))
                }
                Engine::Add => {
                    let name = one(parameters, "EngineName")?.unwrap_or_default();
                    let (host, port) = (one(parameters, "EngineHost")?, one(parameters, "EnginePort")?);
                    let (Some(host), Some(port)) = (host, port) else {
                        return Err(Refusal::missing("EngineAdd needs EngineHost and EnginePort".to_owned()));
                    };
                    asker.place(&group, name, &ChildVerb::Add(address(host, port).into())).await
                }
                Engine::Edit => {
                    let [engine] = &*named(&group, parameters, &["EngineID"])? else {
                        return Err(Refusal::invalid("two engines cannot have one address: name one engine"));
                    };
                    let (host, port) = (one(parameters, "EngineHost")?, one(parameters, "EnginePort")?);
                    if host.is_none() && port.is_none() {
                        return Err(Refusal::missing("EngineEdit needs EngineHost, EnginePort or both".to_owned()));
                    }
                    let (host_now, port_now) = show::host_and_port(engine);
                    let edited = address(host.unwrap_or(&host_now), port.unwrap_or(&port_now));
                    asker.place(&group, &engine.name(), &ChildVerb::Edit(edited.into())).await
                }
                Engine::Order(verb) => {
                    let engines = named(&group, parameters, &["EngineID"])?;
                    if verb == ChildVerb::Primary && engines.len() > 1 {
                        return Err(Refusal::invalid("there is one primary: name one engine"));
                    }
                    asker.order(&group, &engines, &verb).await
                }
            }
        }
        "dahreadqueue" => {
            let group = group()?;
            let wanted = engines(&group, parameters, &["Engine", "EngineID"])?;
            Ok(show::queue(view, &group, wanted.as_deref()))
        }
        "dahflushqueue" => {
            let group = group()?;
            asker.order(&group, &named(&group, parameters, &["Engine", "EngineID"])?, &ChildVerb::Flush).await
        }
        other if scope == Scope::All => service::answer(desk, other, parameters).await?.ok_or_else(Refusal::unknown),
        _ => Err(Refusal::unknown()),
    }
}

/// Who orders, and at which desk.
struct Asker<'d> {
    desk: &'d Desk,
    may_order: bool,
    by: &'d str,
}

impl Asker<'_> {
    /// The same order for each engine, in turn.
    async fn order(&self, group: &GroupTable, engines: &[Arc<Child>], verb: &ChildVerb) -> Outcome {
        let mut data = Vec::with_capacity(engines.len());
        for engine in engines {
            data.push(self.one(group, &engine.name(), verb).await?);
        }
        Ok(data)
    }

    /// An order after which an engine is where it was not; it is shown.
    async fn place(&self, group: &GroupTable, name: &str, verb: &ChildVerb) -> Outcome {
        let before: Vec<_> = group.occupied().map(|child| child.index).collect();
        let mut data = vec![self.one(group, name, verb).await?];
        let is_it = |child: &&Arc<Child>| match name {
            "" => !before.contains(&child.index),
            name => *child.identity().name == *name,
        };
        data.extend(group.occupied().find(is_it).map(|child| show::engine(child).listed()));
        Ok(data)
    }

    async fn one(&self, group: &GroupTable, name: &str, verb: &ChildVerb) -> Result<Element, Refusal> {
        if !self.may_order {
            return Err(Refusal::forbidden("orders need the field `Antiphon-Admin: 1` here".to_owned()));
        }
        let done = self.desk.order(Some(&group.name), name, verb, self.by).await?;
        Ok(Element::text("result", done).listed())
    }
}

/// As a configuration writes it: IPv6 addresses in brackets.
fn address(host: &str, port: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The answer, as the request wants it. `as_200`: errors too.
pub(super) fn answer(action: &str, parameters: &Parameters, outcome: Outcome, date: &[u8; 29], as_200: bool) -> Answer {
    let (format, outcome) = match parameters.one("ResponseFormat") {
        Ok(None) => (Format::Xml, outcome),
        // What was ordered has been carried out, so the answer is told in some way.
        Ok(Some(word)) => (Format::named(word).unwrap_or_default(), outcome),
        Err(_) => (Format::Xml, outcome),
    };
    let (status, body) = match outcome {
        Ok(data) => (StatusCode::OK, envelope(action, true, data, format)),
        Err(Refusal { status, code, text }) => {
            let description = "antiphon says this, not a server behind it.".into();
            let trouble = Trouble { number: status.as_u16(), text: &text, description, code: code.into() };
            (status, error_envelope(action, &trouble, date, format))
        }
    };
    let status = if as_200 { 200 } else { status.as_u16() };
    Answer { status, content_type: format.content_type(), body }
}

/// Answers on the admin side what no path there takes: actions; anything else is not found. On a guarded address
/// orders need the field that no page can send, as those of the other dialect do.
pub(super) async fn serve(desk: Desk, request: Request<Body>, guarded: bool) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, OWN_BODY_BYTES_MAX).collect().await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let body: Bytes = body.to_bytes();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let fields = head.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let asked = Asked::of(head.method.as_str().as_bytes(), target.as_bytes(), !body.is_empty(), fields);
    let asked = if body.is_empty() { asked } else { asked.with_body(&body) };
    let parameters = Parameters::of(&asked);
    let (long, short) = (parameters.one("action"), parameters.one("a"));
    let action = match (long, short) {
        (Ok(None), Ok(None)) => return (StatusCode::NOT_FOUND, "there is nothing here\n").into_response(),
        (Ok(Some(action)), Ok(None)) | (Ok(None), Ok(Some(action))) => Ok(action),
        _ => Err(Refusal::invalid("the action is named twice")),
    };
    let may_order = !guarded || has_the_field(&head.headers);
    let by = "the admin side";
    let name = *action.as_ref().unwrap_or(&"");
    let outcome = match action {
        Ok(name) => carry_out(&desk, name, &parameters, Scope::All, may_order, by).await,
        Err(refusal) => Err(refusal),
    };
    let name = if name.bytes().all(|octet| octet.is_ascii_alphanumeric()) { name } else { "" };
    let Answer { status, content_type, body } = answer(name, &parameters, outcome, &http_date(time::unix_s()), false);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, content_type)], body).into_response()
}

fn has_the_field(headers: &HeaderMap) -> bool {
    headers.contains_key("antiphon-admin")
}

/// The group that a request is about.
fn group(desk: &Desk, parameters: &Parameters, scope: Scope) -> Result<Arc<GroupTable>, Refusal> {
    let routes = desk.view.routes.load_full();
    let found = match (scope, one(parameters, "Group")?, &*routes.groups) {
        (Scope::Group(index), _, groups) => groups.get(index),
        (Scope::All, Some(name), groups) => groups.iter().find(|group| group.name.eq_ignore_ascii_case(name)),
        (Scope::All, None, [only]) => Some(only),
        (Scope::All, None, groups) => {
            let names: Vec<_> = groups.iter().map(|group| &*group.name).collect();
            return Err(Refusal::missing(format!("several groups: add Group={}", names.join(" or Group="))));
        }
    };
    found.cloned().ok_or_else(|| Refusal::invalid("there is no such group"))
}

fn engine_action(parameters: &Parameters) -> Result<Engine, Refusal> {
    let word = one(parameters, "EngineAction")?
        .ok_or_else(|| Refusal::missing(format!("EngineAction is missing; there are {}", show::ENGINE_ACTIONS)))?;
    Ok(match word.to_ascii_lowercase().as_str() {
        "showstatus" => Engine::Show,
        "powerup" => Engine::Order(ChildVerb::Online),
        "powerdown" => Engine::Order(ChildVerb::Offline),
        // Older texts spell it in the plural.
        "setprimaryengine" | "setprimaryengines" => Engine::Order(ChildVerb::Primary),
        "ping" => Engine::Order(ChildVerb::Probe),
        "changeweight" => Engine::Order(ChildVerb::named("weight", one(parameters, "EngineWeight")?)?),
        "engineadd" => Engine::Add,
        "engineedit" => Engine::Edit,
        "engineremove" => Engine::Order(ChildVerb::Remove),
        _ => {
            return Err(Refusal::invalid(format!("there is no such EngineAction; there are {}", show::ENGINE_ACTIONS)));
        }
    })
}

/// The engines that a request names, at least one.
fn named(group: &GroupTable, parameters: &Parameters, by_id: &[&str]) -> Result<Vec<Arc<Child>>, Refusal> {
    engines(group, parameters, by_id)?
        .ok_or_else(|| Refusal::missing(format!("name the engine: {}=N, or EngineName=NAME", by_id.join("=N, "))))
}

/// The engines that a request names, by numbers or by names, each a list; all of them are there. `None`: it names none.
fn engines(group: &GroupTable, parameters: &Parameters, by_id: &[&str]) -> Result<Option<Vec<Arc<Child>>>, Refusal> {
    let find_id = |word: &str| {
        word.parse::<usize>().ok().and_then(|index| group.children.get(index)).filter(|child| !child.is_vacant())
    };
    let find_name = |word: &str| group.occupied().find(|child| child.identity().name.eq_ignore_ascii_case(word));
    let mut found: Vec<Arc<Child>> = Vec::new();
    let mut is_named = false;
    for (name, is_id) in by_id.iter().map(|name| (*name, true)).chain([("EngineName", false)]) {
        let Some(list) = one(parameters, name)? else { continue };
        is_named = true;
        for word in list.split(',').map(str::trim) {
            let child = if is_id { find_id(word) } else { find_name(word) };
            let child = child.ok_or_else(|| {
                Refusal::invalid(format!("{name}: there is no engine {word:?} in group {}", group.name))
            })?;
            if !found.iter().any(|other| other.index == child.index) {
                found.push(child.clone());
            }
        }
    }
    Ok(is_named.then_some(found))
}

/// A parameter that has one value; an empty one is none.
fn one<'p>(parameters: &'p Parameters, name: &str) -> Result<Option<&'p str>, Refusal> {
    let value = parameters.one(name).map_err(|_| Refusal::invalid(format!("{name} is given twice")))?;
    Ok(value.filter(|value| !value.is_empty()))
}

// === impl Refusal ===

impl Refusal {
    fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self { status, code, text: text.into() }
    }

    fn invalid(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ERRORPARAMINVALID", text)
    }

    fn missing(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ERRORPARAMMISSING", text)
    }

    fn unknown() -> Self {
        let text = "The requested action was not recognised";
        Self::new(StatusCode::NOT_FOUND, "ERRORNOTIMPLEMENTED", text)
    }

    /// Who asks may not.
    pub(super) fn forbidden(text: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, "ERRORFORBIDDEN", text)
    }

    /// Too many ask at once.
    pub(super) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ERRORBUSY", "too many ask antiphon itself: ask again")
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let code = match refused.status() {
            StatusCode::CONFLICT => "ERRORSTATE",
            StatusCode::INTERNAL_SERVER_ERROR => "ERRORNOTKEPT",
            _ => "ERRORPARAMINVALID",
        };
        Self::new(refused.status(), code, refused.to_string())
    }
}

impl From<NotAnOrder> for Refusal {
    fn from(wrong: NotAnOrder) -> Self {
        Self::invalid(format!("EngineWeight: {wrong}"))
    }
}
