//! A change: admitted with its body whole, numbered by the sequencer, delivered by the lanes, acknowledged here.
//!
//! This task only waits. What the client is told is decided by [`crate::mirror::ack`] from the outcomes that the lanes
//! store; the change goes on to every child whether or not the client is still there.

use std::future::poll_fn;
use std::task::Poll;

use crate::action::{self, Into};
use crate::crash;
use crate::error::Fault;
use crate::http::{AnswerTo, Framing, Method, ToChild, ToClient, forward, reply};
use crate::io::exec::Conn;
use crate::io::op::{Piece, Pieces};
use crate::mirror::{self, Change, Decision, Order};
use crate::route::{GroupTable, RouteTable};
use crate::worker::held::{self, Held};
use crate::worker::serve::{Answered, Desk, Next};
use crate::worker::{Told, Worker, fault, reserved};

/// Has every child carry it out. `held` is the body if it has been received already.
///
/// # Errors
/// The fault to answer with. Where the change has its place in the order, `desk.ticket` tells it.
pub(crate) async fn change(
    worker: &Worker,
    desk: &mut Desk,
    client: &Conn,
    routes: &RouteTable,
    group: &GroupTable,
    action: &action::Decision<'_>,
    held: Option<Held>,
) -> Result<Answered, Fault> {
    let Held { mut body, mut charge } = match held {
        Some(held) => held,
        None => held::body(worker, &desk.request, client).await?,
    };
    desk.body_read = true;
    let mut target_suffix = String::new();
    if let Some(injection) = &action.injection {
        let text = injection.text(random()?);
        match injection.into {
            Into::Target => target_suffix = text,
            Into::Body if !charge.grow(text.len()) => return Err(Fault::ChangeRejectedMemory),
            Into::Body => body = [&body, text.as_bytes()].concat().into(),
        }
    }
    let framing = match desk.request.framing {
        Framing::None => Framing::None,
        _ => Framing::Length(body.len() as u64),
    };
    let mut head = Vec::with_capacity(desk.request.head_len + 256);
    let fallback_host = group.children[group.primary()].host();
    let how = ToChild {
        peer: client.peer().ip(),
        tls: false,
        framing,
        target_suffix: &target_suffix,
        fallback_host: &fallback_host,
        via: true,
        expect: false,
        upgrade: false,
        close: false,
    };
    forward::request_head(&mut head, desk.request_bytes.as_slice(), &desk.request, &how);
    // What is left of the head is numbers: its buffer goes back before the wait.
    desk.request_bytes.clear();
    if !charge.grow(head.len()) {
        return Err(Fault::ChangeRejectedMemory);
    }
    let order = Order {
        head: head.into(),
        body,
        unknown_outcome: action.rule.unknown_outcome(),
        applied: action.applied(),
        name: action.name.as_str().into(),
        live: action.class == action::Class::LiveChange,
        on_unknown: action.rule.on_unknown(),
        key: None,
        children: group.children.len(),
        submitted: worker.io.now(),
        charge,
    };
    let (change, waiting) = Change::new(order, worker.wake.clone());
    let mirror = &worker.mirrors[group.index];
    mirror.submit(worker.index, &change)?;
    let decision = poll_fn(|_| {
        loop {
            match mirror.decide(&change, worker.io.now()) {
                Decision::Wait { until } => match worker.io.poll_woken(until) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(_) => {}
                },
                decided => return Poll::Ready(decided),
            }
        }
    })
    .await;
    if let Some(ticket) = change.ticket() {
        desk.note_ticket(ticket, mirror.durability());
        desk.fates = mirror.fates(&change);
        desk.change_url = reserved::change_url(routes, client.tag(), group, &ticket.to_string());
    }
    worker.stats.groups[group.index].record_change(&decision);
    match decision {
        Decision::Accepted => accepted(worker, desk, client, group).await,
        Decision::Answer { child, status } => answer(worker, desk, client, waiting.answer(child), status).await,
        Decision::Pending => Err(Fault::ChangePending),
        Decision::Unknown => Err(Fault::OutcomeUnknown),
        Decision::Unrecorded => Err(Fault::JournalFailed),
        Decision::Partial => {
            desk.note_ends(group, &change);
            Err(Fault::Partial)
        }
        Decision::Refused(fault) => {
            desk.note_missing(group, &change.missing());
            Err(fault)
        }
        Decision::Wait { .. } => Err(Fault::Internal),
    }
}

/// A number that nobody can guess: an id made of it must not meet another one.
fn random() -> Result<u128, Fault> {
    let mut octets = [0; 16];
    match rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(u128::from_ne_bytes(octets)),
        _ => Err(Fault::Internal),
    }
}

/// Sends the held answer of one child, with the change's place in the order.
async fn answer(
    worker: &Worker,
    desk: &mut Desk,
    client: &Conn,
    held: Option<&mirror::Held>,
    status: u16,
) -> Result<Answered, Fault> {
    let close = !desk.request.keep_alive || worker.io.is_draining();
    let head_request = desk.request.method == Method::Head;
    let sequence = desk.sequence_text().unwrap_or_default();
    // Every reply says how far its promise goes.
    let fates = std::mem::take(&mut desk.fates);
    let extra = [
        ("Antiphon-Sequence", sequence.as_bytes()),
        ("Antiphon-Durability", desk.durability.as_bytes()),
        ("Antiphon-Children", fates.as_bytes()),
    ];
    let date = worker.date();
    let mut out = desk.vector();
    let mut pieces = std::mem::take(&mut desk.pieces);
    let to = AnswerTo { was_head: head_request, wanted_upgrade: false };
    desk.response.clear();
    match held {
        Some(held) if !held.cut && matches!(desk.response.parse(&held.head, to), Ok(true)) => {
            let framing = match desk.response.framing {
                Framing::Chunked | Framing::UntilClose | Framing::Length(_) if !head_request => {
                    Framing::Length(held.body.len() as u64)
                }
                none => none,
            };
            let how = ToClient {
                client_minor: desk.request.minor,
                framing,
                close,
                keep_alive_10: !close && desk.request.minor == 0,
                date: Some(&date),
                extra: &extra,
            };
            forward::response_head(&mut out, &held.head, &desk.response, &how);
            pieces.push(Piece::Scratch(out));
            pieces.push(Piece::Shared(held.body.clone()));
        }
        _ => {
            let (kind, text) = fault::answer_not_held(desk, status);
            let extra = [extra[0], extra[1], extra[2], ("Date", &date[..])];
            reply::own_response(&mut out, status, kind, &text, close, head_request, &extra);
            pieces.push(Piece::Scratch(out));
        }
    }
    Ok(Answered { status, next: send(worker, desk, client, pieces, close).await })
}

/// Tells that the change has its place in the order, and where to ask for what comes of it.
async fn accepted(worker: &Worker, desk: &mut Desk, client: &Conn, group: &GroupTable) -> Result<Answered, Fault> {
    let close = !desk.request.keep_alive || desk.request.minor == 0 || worker.io.is_draining();
    let head_request = desk.request.method == Method::Head;
    let sequence = desk.sequence_text().unwrap_or_default();
    let (kind, text) = fault::accepted(desk, &sequence);
    let status = match worker.settings.told[group.index] {
        // For clients that read no answer with another one.
        Told::Aci { as_200: true } => 200,
        Told::Aci { .. } | Told::Problem => 202,
    };
    let date = worker.date();
    let extra = [
        ("Antiphon-Sequence", sequence.as_bytes()),
        ("Antiphon-Durability", desk.durability.as_bytes()),
        ("Antiphon-Children", desk.fates.as_bytes()),
        ("Location", desk.change_url.as_bytes()),
        ("Cache-Control", b"no-store"),
        ("Date", &date[..]),
    ];
    let mut out = desk.scratch.pop().unwrap_or_default();
    reply::own_response(&mut out, status, kind, &text, close, head_request, &extra);
    let mut pieces = std::mem::take(&mut desk.pieces);
    pieces.push(Piece::Scratch(out));
    Ok(Answered { status, next: send(worker, desk, client, pieces, close).await })
}

async fn send(worker: &Worker, desk: &mut Desk, client: &Conn, pieces: Pieces, close: bool) -> Next {
    crash::point("client.answer");
    match client.send(pieces, worker.io.now() + worker.settings.timeouts.client_write).await {
        Ok(pieces) => {
            desk.recycle(pieces);
            if close { Next::Close } else { Next::Keep }
        }
        Err(_) => Next::Cut,
    }
}
