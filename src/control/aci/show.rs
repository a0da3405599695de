//! Children in the words of a DAH: `ShowStatus`, `DAHReadQueue`, and what other answers say of them.

use crate::control::front::View;
use crate::control::queue;
use crate::http::aci::Element;
use crate::route::{Child, GroupTable, Shown};
use crate::sync::Arc;
use crate::time;

/// For messages.
pub(super) const ENGINE_ACTIONS: &str =
    "ShowStatus, PowerUp, PowerDown, ChangeWeight, SetPrimaryEngine, Ping, EngineAdd, EngineEdit and EngineRemove";

/// `ShowStatus`: a group and every child of it.
pub(super) fn status(view: &View, group: &GroupTable) -> Vec<Element> {
    let now = time::now();
    let engine = |child: &Arc<Child>| {
        let why = child.why();
        engine(child)
            .with("weight", child.weight().to_string())
            .with("lag", view.mirrors[group.index].lag(child.index).to_string())
            .with("since", now.since(why.since).as_secs().to_string())
            .with("why", why.text)
            .listed()
    };
    let mut data = vec![
        Element::text("group", &*group.name),
        Element::text("policy", group.policy.to_string()),
        Element::text("primary_engine", group.primary().to_string()),
    ];
    data.extend(group.occupied().map(engine));
    data
}

/// `DAHReadQueue`: what waits for the children that are wanted, or for all.
pub(super) fn queue(view: &View, group: &GroupTable, wanted: Option<&[Arc<Child>]>) -> Vec<Element> {
    let queue = queue::of_group(view, group);
    let mut data = vec![
        Element::text("group", &*group.name),
        Element::text("epoch", queue.epoch.to_string()),
        Element::text("last_sequence", queue.sequence.to_string()),
    ];
    let is_wanted =
        |child: &Arc<Child>| wanted.is_none_or(|wanted| wanted.iter().any(|other| other.index == child.index));
    for (child, pending) in group.occupied().zip(queue.children).filter(|(child, _)| is_wanted(child)) {
        let mut engine = engine(child).with("lag", pending.lag.to_string()).with("cursor", pending.cursor.to_string());
        if let Some(first) = pending.first_pending {
            engine = engine.with("first_pending", first.to_string());
        }
        if let Some(action) = pending.first_action {
            engine = engine.with("first_action", action);
        }
        data.push(engine.listed());
    }
    data
}

/// A child. The order of the first attributes is an interface: scripts cut it with sed and grep.
pub(super) fn engine(child: &Child) -> Element {
    let (host, port) = host_and_port(child);
    Element::text("engine", "")
        .with("id", child.index.to_string())
        .with("host", host)
        .with("port", port)
        .with("name", &*child.name())
        .with("status", dah_status(child.shown()))
        .with("state", child.shown().name())
}

/// Host and port as configured.
pub(super) fn host_and_port(child: &Child) -> (String, String) {
    let host = child.host();
    let (host, port) = host.rsplit_once(':').unwrap_or((&host, ""));
    (host.to_owned(), port.to_owned())
}

/// A DAH knows three states: it serves, it is away, or the operator took it out.
const fn dah_status(shown: Shown) -> &'static str {
    match shown {
        Shown::Up | Shown::Suspect | Shown::Draining => "online",
        Shown::Down | Shown::Replaying | Shown::Diverged | Shown::NeedsReseed => "down",
        Shown::Offline => "offline",
    }
}
