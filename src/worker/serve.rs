//! The straight line of a client's connection: head → action → read or change → reply → next.
//!
//! A task serves one request of one connection after another. Between requests a connection has no task: it is parked
//! with its receive armed, and the next octet takes a task from the worker's free list. This file is the list of steps
//! and the one place where a fault becomes an answer; each step is a call into another file.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use crate::action::{Asked, Class, Verdict};
use crate::error::Fault;
use crate::http::{Framing, Method, RequestHead, ResponseHead, fault_response};
use crate::io::buffer::Group;
use crate::io::exec::Conn;
use crate::io::op::{Piece, Pieces};
use crate::limits::{HEAD_VECTOR_KEPT_MAX, LARGE_BODY_BYTES};
use crate::mirror::Ticket;
use crate::route::GroupTable;
use crate::time::Time;
use crate::worker::Worker;
use crate::worker::heads::{HeadBytes, NoHead};
use crate::worker::held::Held;
use crate::worker::stats::Kind;
use crate::worker::{change, held, read};

/// What a serving task keeps from request to request, so that it allocates nothing at steady state.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// The request's head, and its octets.
    pub(crate) request: RequestHead,
    pub(crate) request_bytes: HeadBytes,
    /// The answer's head, and its octets.
    pub(crate) response: ResponseHead,
    pub(crate) response_bytes: HeadBytes,
    /// Vectors for the next heads to be written.
    pub(crate) scratch: Vec<Vec<u8>>,
    /// For the next send.
    pub(crate) pieces: Pieces,
    /// The request's body has been received to its end, so that what follows it is a request.
    pub(crate) body_read: bool,
    /// The group and kind that the answer is counted under, once they are known.
    pub(crate) counted_as: Option<(usize, Kind)>,
    /// The place in the order of the change being served, once it has one.
    pub(crate) ticket: Option<(u64, u64)>,
}

impl Desk {
    fn clear(&mut self) {
        self.scratch.retain(|vector| vector.capacity() <= HEAD_VECTOR_KEPT_MAX);
        self.request_bytes.shrink();
        self.response_bytes.shrink();
        self.counted_as = None;
        self.request.clear();
        self.request_bytes.clear();
        self.response_bytes.clear();
        self.body_read = false;
        self.ticket = None;
    }

    /// An empty vector, usually one that was used before.
    pub(crate) fn vector(&mut self) -> Vec<u8> {
        self.scratch.pop().unwrap_or_default()
    }

    /// Takes back what a send has given back.
    pub(crate) fn recycle(&mut self, mut pieces: Pieces) {
        while self.scratch.len() < 4
            && let Some(vector) = pieces.recycle()
        {
            self.scratch.push(vector);
        }
        pieces.recycle();
        self.pieces = pieces;
    }

    /// The sequence of the change, as `Antiphon-Sequence` tells it.
    pub(crate) fn sequence_text(&self) -> Option<String> {
        self.ticket.map(|(epoch, sequence)| format!("{epoch}:{sequence}"))
    }

    /// Remembers the place in the order for whatever answer comes.
    pub(crate) fn note_ticket(&mut self, ticket: &Ticket) {
        self.ticket = Some((ticket.epoch, ticket.sequence));
    }
}

/// What becomes of the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It may bring another request.
    Keep,
    /// Our last octets are under way; nothing more is answered.
    Close,
    /// An answer had begun and cannot be ended: the client must see that, or it is gone.
    Cut,
}

/// An exchange that came to an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The status that the client was sent.
    pub(crate) status: u16,
    /// What becomes of the connection.
    pub(crate) next: Next,
}

/// Serves clients, one after another, until the worker needs this task no more.
pub(crate) async fn serve_clients(worker: Rc<Worker>) {
    let mut desk = Desk::default();
    while let Some(client) = worker.io.next_client().await {
        serve(&worker, &mut desk, client).await;
        desk.clear();
    }
}

async fn serve(worker: &Worker, desk: &mut Desk, client: Conn) {
    loop {
        match exchange(worker, desk, &client).await {
            Next::Keep if client.queued_bytes() > 0 => {}
            Next::Keep => {
                client.use_group(Group::Small);
                return client.park_idle(worker.io.now() + worker.settings.timeouts.keep_alive);
            }
            Next::Close => return client.close_lingering(),
            Next::Cut => return client.reset(),
        }
    }
}

async fn exchange(worker: &Worker, desk: &mut Desk, client: &Conn) -> Next {
    let began = worker.io.now();
    desk.clear();
    let fault = match head(worker, desk, client, began).await {
        Ok(()) => match action(worker, desk, client, began).await {
            Ok(next) => return next,
            Err(fault) => fault,
        },
        Err(NoHead::Refused(fault)) => fault,
        Err(NoHead::TimedOut { begun: true }) => Fault::HeadTimeout,
        Err(NoHead::Ended | NoHead::CutShort | NoHead::TimedOut { begun: false }) => return Next::Close,
        Err(NoHead::Failed(_)) => return Next::Cut,
    };
    if let Some((group, kind)) = desk.counted_as {
        worker.stats.groups[group].record(kind, fault.status(), worker.io.now().since(began));
    }
    refuse(worker, desk, client, fault).await
}

async fn head(worker: &Worker, desk: &mut Desk, client: &Conn, began: Time) -> Result<(), NoHead> {
    let until = began + worker.settings.timeouts.request_head;
    let Desk { request, request_bytes, .. } = desk;
    poll_fn(|_| request_bytes.poll(client, until, |octets| Ok(request.parse(octets)?.then_some(request.head_len))))
        .await
}

/// Finds out what is asked and by which rule, and has it done.
async fn action(worker: &Worker, desk: &mut Desk, client: &Conn, began: Time) -> Result<Next, Fault> {
    let snapshot = worker.snapshot();
    let octets = desk.request_bytes.as_slice();
    let head = &desk.request;
    desk.body_read = matches!(head.framing, Framing::None | Framing::Length(0));
    let target = head.path_and_query(octets);
    let host = head.host.map(|span| span.of(octets));
    let group: &GroupTable = snapshot.route(client.tag(), host, target).ok_or(Fault::NoRoute)?;
    desk.counted_as = Some((group.index, Kind::Read));
    if matches!(head.framing, Framing::Length(length) if length > LARGE_BODY_BYTES) {
        client.use_group(Group::Large);
    }
    if matches!(head.framing, Framing::Length(length) if length > worker.settings.limits.body_bytes_max) {
        return Err(Fault::BodyTooLarge);
    }
    let has_body = !desk.body_read;
    let asked = Asked::of(head.method_name.of(octets), target, has_body, head.fields(octets));
    let mut body: Option<Held> = None;
    let decision = match group.rules.classify(&asked)? {
        Verdict::Decided(decision) => decision,
        Verdict::NeedBody => {
            let whole = body.insert(held::body(worker, head, client).await?);
            desk.body_read = true;
            match group.rules.classify(&asked.with_body(&whole.body))? {
                Verdict::Decided(decision) => decision,
                Verdict::NeedBody => return Err(Fault::Internal),
            }
        }
    };
    let stats = &worker.stats.groups[group.index];
    let (kind, answered) = match decision.class {
        Class::Refuse => return Err(decision.rule.refusal()),
        Class::Read => {
            let again = decision.rule.safe() || desk.request.method.is_idempotent();
            (Kind::Read, read::read(worker, desk, client, group, body, again).await?)
        }
        Class::LiveChange if !group.children.iter().all(|child| child.is_live()) => {
            desk.counted_as = Some((group.index, Kind::Change));
            return Err(Fault::NotQueueable);
        }
        Class::Change | Class::LiveChange => {
            desk.counted_as = Some((group.index, Kind::Change));
            (Kind::Change, change::change(worker, desk, client, group, &decision, body).await?)
        }
    };
    let took = if answered.status == 101 { Duration::ZERO } else { worker.io.now().since(began) };
    stats.record(kind, answered.status, took);
    if answered.next == Next::Cut {
        stats.cut.bump();
    }
    Ok(answered.next)
}

/// Turns a fault into an answer. The connection goes on only where the next octets are surely a request.
async fn refuse(worker: &Worker, desk: &mut Desk, client: &Conn, fault: Fault) -> Next {
    worker.stats.record_fault(fault);
    tracing::debug!(client = %client.peer(), code = fault.code(), text = fault.text(), "refused");
    if fault == Fault::ClientGone {
        return Next::Cut;
    }
    let head = &desk.request;
    let close = fault.closes() || !desk.body_read || !head.keep_alive || head.minor == 0 || worker.io.is_draining();
    let head_request = head.method == Method::Head;
    let sequence = desk.sequence_text();
    let date = worker.date();
    let mut extra: Vec<(&str, &[u8])> = vec![("Date", &date)];
    if let Some(text) = &sequence {
        extra.push(("Antiphon-Sequence", text.as_bytes()));
    }
    let mut out = desk.vector();
    fault_response(&mut out, fault, close, head_request, &extra);
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
