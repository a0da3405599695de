//! The one place where a fault becomes an answer: a problem document, or the envelope of ACI where the group speaks that.
//!
//! Faults of a head are HTTP's own: no group is known yet, and they are told as problem documents everywhere.

use serde_json::Value;

use crate::action::{Asked, Parameters};
use crate::error::Fault;
use crate::http::aci::{Element, Format, envelope};
use crate::http::{AciFault, Method, aci_fault_response, fault_response};
use crate::io::exec::Conn;
use crate::io::op::Piece;
use crate::limits::ACTION_NAME_BYTES_MAX;
use crate::worker::serve::{Desk, Next};
use crate::worker::{Told, Worker};

/// How an ACI client wants its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The action, as far as it can be told.
    pub(crate) action: String,
    /// The format.
    pub(crate) format: Format,
}

impl Wish {
    /// What a request says of it. It may be one that has two readings: then this is one of them.
    pub(crate) fn of(asked: &Asked<'_>) -> Self {
        let parameters = Parameters::of(asked);
        let value = |name| parameters.one(name).ok().flatten();
        let is_name = |text: &&str| {
            text.len() <= ACTION_NAME_BYTES_MAX
                && text.bytes().all(|o| o.is_ascii_alphanumeric() || b"_-.".contains(&o))
        };
        Self {
            action: value("action").or_else(|| value("a")).filter(is_name).unwrap_or_default().to_owned(),
            format: value("responseformat").and_then(Format::named).unwrap_or_default(),
        }
    }
}

/// What stands for an answer to a change that was too long to be kept: `Content-Type` and body.
pub(crate) fn answer_not_held(desk: &Desk, status: u16) -> (&'static str, Vec<u8>) {
    const TEXT: &str = "The change was carried out. The answer was too long to be held until then.";
    match &desk.wish {
        None => ("text/plain", format!("{TEXT}\n").into_bytes()),
        Some(Wish { action, format }) => {
            let is_success = (200..300).contains(&status);
            (format.content_type(), envelope(action, is_success, vec![Element::text("note", TEXT)], *format))
        }
    }
}

/// The answer to a change that is accepted and not waited for: `Content-Type` and body.
pub(crate) fn accepted(desk: &Desk, sequence: &str) -> (&'static str, Vec<u8>) {
    let url = &desk.change_url;
    match &desk.wish {
        None => {
            let told = serde_json::json!({ "sequence": sequence, "state": "accepted", "status_url": url });
            ("application/json", format!("{told}\n").into_bytes())
        }
        Some(Wish { action, format }) => {
            let told = [("state", "accepted"), ("sequence", sequence), ("status_url", url)];
            let told = told.map(|(name, text)| Element::text(name, text)).to_vec();
            (format.content_type(), envelope(action, true, told, *format))
        }
    }
}

/// Of a request whose head is still there.
fn wish_of_head(desk: &Desk) -> Wish {
    let octets = desk.request_bytes.as_slice();
    if octets.is_empty() {
        return Wish::default();
    }
    Wish::of(&Asked::bare(desk.request.method_name.of(octets), desk.request.path_and_query(octets)))
}

/// Turns a fault into an answer. The connection goes on only where the next octets are surely a request.
pub(crate) async fn refuse(worker: &Worker, desk: &mut Desk, client: &Conn, fault: Fault) -> Next {
    worker.stats.record_fault(fault);
    tracing::debug!(client = %client.peer(), code = fault.code(), text = fault.text(), "refused");
    if fault == Fault::ClientGone {
        return Next::Cut;
    }
    let head = &desk.request;
    let close = fault.closes() || !desk.body_read || !head.keep_alive || head.minor == 0 || worker.io.is_draining();
    let head_request = head.method == Method::Head;
    let sequence = desk.sequence_text();
    let fates = std::mem::take(&mut desk.fates);
    let date = worker.date();
    let mut extra: Vec<(&str, &[u8])> = vec![("Date", &date)];
    if let Some(text) = &sequence {
        extra.push(("Antiphon-Sequence", text.as_bytes()));
        extra.push(("Antiphon-Durability", desk.durability.as_bytes()));
        extra.push(("Antiphon-Children", fates.as_bytes()));
    }
    let missing = desk.missing.join(", ");
    if !missing.is_empty() {
        extra.push(("Antiphon-Missing", missing.as_bytes()));
    }
    let told = desk.counted_as.map_or(Told::Problem, |(group, _)| worker.settings.told[group]);
    let mut out = desk.vector();
    match told {
        Told::Problem => {
            let mut members = Vec::new();
            if let Some(text) = &sequence {
                members.push(("sequence", text.as_str().into()));
                members.push(("status_url", desk.change_url.as_str().into()));
            }
            if let Some(epoch) = desk.epoch {
                members.push(("epoch", epoch.into()));
            }
            if !desk.missing.is_empty() {
                members.push(("missing", desk.missing.iter().map(|name| Value::from(&**name)).collect()));
            }
            if !desk.ends.is_empty() {
                members.push(("children", std::mem::take(&mut desk.ends).into()));
            }
            fault_response(&mut out, fault, close, head_request, &extra, &members);
        }
        Told::Aci { as_200 } => {
            let wish = desk.wish.take().unwrap_or_else(|| wish_of_head(desk));
            let particulars = desk.particulars();
            let aci =
                AciFault { action: &wish.action, format: wish.format, as_200, date: &date, particulars: &particulars };
            aci_fault_response(&mut out, fault, &aci, close, head_request, &extra);
        }
    }
    let mut pieces = std::mem::take(&mut desk.pieces);
    pieces.push(Piece::Scratch(out));
    match client.send(pieces, worker.io.now() + worker.settings.timeouts.client_write).await {
        Ok(pieces) => {
            desk.recycle(pieces);
            if close { Next::Close } else { Next::Keep }
        }
        Err(_) => Next::Cut,
    }
}
