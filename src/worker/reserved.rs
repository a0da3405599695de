//! What antiphon itself serves where clients come in, below the reserved prefix `/.antiphon/`: what became of a change.
//!
//! Not the actions that it answers in place of a DAH ([`own`]). Nothing below the prefix, however it is encoded, ever
//! reaches a child, whatever a route says. All that is looked at is shared memory, at once and in bounded work.

use serde_json::{Map, Value, json};

use crate::error::Fault;
use crate::http::Method;
use crate::io::exec::Conn;
use crate::mirror::{Fate, State, place};
use crate::route::{Child, GroupTable, RouteTable};
use crate::sync::Arc;
use crate::worker::Worker;
use crate::worker::own::{self, Answer};
use crate::worker::serve::{Desk, Next};

/// Is the target below the reserved prefix? Percent-encoded as well, for a child reads it so (RFC 3986 6.2.2.2).
pub(crate) fn is_reserved(target: &[u8]) -> bool {
    let mut rest = target;
    let mut next = || {
        let (octet, length) = first_octet(rest)?;
        rest = &rest[length..];
        Some(octet)
    };
    PREFIX.iter().all(|wanted| next() == Some(*wanted)) && matches!(next(), None | Some(b'/' | b'?'))
}

/// What a target begins with, decoded, and how many octets say so.
fn first_octet(target: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| target.get(at).and_then(|octet| char::from(*octet).to_digit(16));
    match (target.first()?, digit(1), digit(2)) {
        (b'%', Some(high), Some(low)) => Some(((high * 16 + low) as u8, 3)),
        (octet, ..) => Some((*octet, 1)),
    }
}

/// Where a client can ask what became of the change at this place.
pub(crate) fn change_url(routes: &RouteTable, listener: usize, group: &GroupTable, sequence: &str) -> String {
    let is_plain = routes.listeners.get(listener).is_some_and(|table| table.only_group().is_some());
    let query = if is_plain { String::new() } else { format!("?group={}", group.name) };
    format!("/.antiphon/v1/changes/{sequence}{query}")
}

/// Answers.
///
/// # Errors
/// Nothing has this path, or it is read only; there is no such change.
pub(crate) async fn serve(worker: &Worker, desk: &mut Desk, client: &Conn, routes: &RouteTable) -> Result<Next, Fault> {
    let answer = answer(worker, desk, client.tag(), routes)?;
    Ok(own::send(worker, desk, client, answer).await)
}

fn answer(worker: &Worker, desk: &mut Desk, listener: usize, routes: &RouteTable) -> Result<Answer, Fault> {
    let target = desk.request.path_and_query(desk.request_bytes.as_slice());
    let (path, query) = match target.iter().position(|octet| *octet == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &b""[..]),
    };
    let text = path.strip_prefix(CHANGES).ok_or(Fault::OwnUnknown)?;
    if !matches!(desk.request.method, Method::Get | Method::Head) {
        return Err(Fault::OwnMethod);
    }
    let (epoch, sequence) = place(text).ok_or(Fault::ChangeUnknown(NO_PLACE))?;
    let group = group(routes, listener, query)?;
    let mirror = &worker.mirrors[group.index];
    let trace = mirror.trace(epoch, sequence).inspect_err(|_| desk.epoch = Some(mirror.epoch()))?;
    let child = |child: &Arc<Child>| {
        let fate = trace.children[child.index];
        let mut told = Map::from_iter([("state".to_owned(), fate.word().into())]);
        if let Fate::Answered { status, .. } = fate {
            told.insert("status".to_owned(), status.into());
        }
        (child.name().to_string(), Value::Object(told))
    };
    let children: Map<_, _> = group.occupied().map(child).collect();
    let mut told =
        json!({ "sequence": format!("{epoch}:{sequence}"), "state": trace.state.word(), "children": children });
    if trace.state == State::Forgotten {
        told["forgotten"] = true.into();
    }
    Ok(Answer { status: 200, content_type: "application/json", body: format!("{told}\n").into_bytes() })
}

/// The group that is asked about: the one that the query names, of those that this listener leads to; or the only one.
fn group<'t>(routes: &'t RouteTable, listener: usize, query: &[u8]) -> Result<&'t GroupTable, Fault> {
    let table = routes.listeners.get(listener).ok_or(Fault::NoRoute)?;
    let named = query.split(|octet| *octet == b'&').find_map(|pair| pair.strip_prefix(b"group="));
    let found = match named {
        Some(name) => table.groups().find(|group| routes.groups[*group].name.as_bytes() == name),
        None => table.only_group(),
    };
    found.map(|group| &*routes.groups[group]).ok_or(Fault::ChangeUnknown(match named {
        Some(_) => NO_GROUP,
        None => SEVERAL_GROUPS,
    }))
}

const PREFIX: &[u8] = b"/.antiphon";
const CHANGES: &[u8] = b"/.antiphon/v1/changes/";

// What the client is told.
const NO_PLACE: &str =
    "What follows `/.antiphon/v1/changes/` is not `EPOCH:NUMBER`, as the Antiphon-Sequence of a reply says it.";
const NO_GROUP: &str = "No group of this name takes requests here.";
const SEVERAL_GROUPS: &str = "Several groups take requests here, each with sequences of its own: add `?group=NAME`, as the Location of a reply does.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_below_the_prefix() {
        for target in ["/.antiphon", "/.antiphon/", "/.antiphon?x", "/.antiphon/v1/changes/1:2", "/.antiphon/other"] {
            assert!(is_reserved(target.as_bytes()), "{target}");
        }
        for target in ["/%2eantiphon/", "/%2Eantiphon", "/.%61ntipho%6e/x", "/.antiphon%2Fv1", "/.antiphon%3F"] {
            assert!(is_reserved(target.as_bytes()), "{target}");
        }
        for target in ["/", "*", "/antiphon/", "/.antiphonal", "/x/.antiphon/", "/%2Xantiphon/", "/%2", ""] {
            assert!(!is_reserved(target.as_bytes()), "{target}");
        }
    }
}
