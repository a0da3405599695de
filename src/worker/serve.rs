//! The straight line of a client's connection: head → action → read or change → reply → next.
//!
//! A task serves one request of one connection after another. Between requests a connection has no task: it is parked
//! with its receive armed, and the next octet takes a task from the worker's free list. This file is the list of steps;
//! each step is a call into another file.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use crate::action::{Asked, Class, Decision, Token, Verdict};
use crate::error::Fault;
use crate::http::{Framing, RequestHead, ResponseHead};
use crate::io::buffer::Group;
use crate::io::exec::Conn;
use crate::io::op::Pieces;
use crate::limits::{HEAD_VECTOR_KEPT_MAX, LARGE_BODY_BYTES};
use crate::mirror::{Change, End, Ticket};
use crate::route::cost::Label;
use crate::route::{ChildSet, GroupTable, Policy};
use crate::sync::Arc;
use crate::time::Time;
use crate::worker::Worker;
use crate::worker::fault::Wish;
use crate::worker::heads::{HeadBytes, NoHead};
use crate::worker::held::Held;
use crate::worker::relay::Pump;
use crate::worker::requests::Note;
use crate::worker::stats::Kind;
use crate::worker::{Told, change, fault, held, own, read, reserved};

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
    /// How an ACI client wants its faults told, once that had to be found out while the request was there.
    pub(crate) wish: Option<Wish>,
    /// The place in the order of the change being served, once it has one.
    pub(crate) ticket: Option<(u64, u64)>,
    /// How far the promise for it goes, as `Antiphon-Durability` tells it.
    pub(crate) durability: &'static str,
    /// What became of it at each child, as `Antiphon-Children` tells it.
    pub(crate) fates: String,
    /// Where the client can ask what became of it, once it has its place.
    pub(crate) change_url: String,
    /// The group's epoch, where the client has named a place that is not in it.
    pub(crate) epoch: Option<u64>,
    /// The names of the children for whose sake the change is refused.
    pub(crate) missing: Vec<Arc<str>>,
    /// The request, for those who look at the last ones.
    pub(crate) note: Note,
    /// What there is to say of a token whose issuer is not known here.
    pub(crate) stranger: String,
    /// What became of a live change at each child, where they are not alike: its status, or why there is none.
    pub(crate) ends: serde_json::Map<String, serde_json::Value>,
}

impl Desk {
    fn clear(&mut self) {
        self.scratch.retain(|vector| vector.capacity() <= HEAD_VECTOR_KEPT_MAX);
        self.request_bytes.shrink();
        self.response_bytes.shrink();
        self.counted_as = None;
        self.wish = None;
        self.request.clear();
        self.request_bytes.clear();
        self.response_bytes.clear();
        self.body_read = false;
        self.ticket = None;
        self.fates.clear();
        self.change_url.clear();
        self.epoch = None;
        self.missing.clear();
        self.stranger.clear();
        self.note.clear();
        self.ends.clear();
    }

    /// An empty vector, usually one that was used before.
    pub(crate) fn vector(&mut self) -> Vec<u8> {
        self.scratch.pop().unwrap_or_default()
    }

    /// Takes back what a send has given back.
    pub(crate) fn recycle(&mut self, mut pieces: Pieces) {
        pieces.recycle(|vector| self.keep(vector));
        self.pieces = pieces;
    }

    /// Takes back what a pump has used.
    pub(crate) fn take_back(&mut self, pump: Pump) {
        let (pieces, spare) = pump.into_parts();
        spare.into_iter().for_each(|vector| self.keep(vector));
        self.recycle(pieces);
    }

    fn keep(&mut self, vector: Vec<u8>) {
        if self.scratch.len() < SCRATCH_KEPT_MAX {
            self.scratch.push(vector);
        }
    }

    /// The sequence of the change, as `Antiphon-Sequence` tells it.
    pub(crate) fn sequence_text(&self) -> Option<String> {
        self.ticket.map(|(epoch, sequence)| format!("{epoch}:{sequence}"))
    }

    /// Remembers the place in the order for whatever answer comes.
    pub(crate) fn note_ticket(&mut self, ticket: &Ticket, durability: &'static str) {
        self.ticket = Some((ticket.epoch, ticket.sequence));
        self.durability = durability;
    }

    /// Remembers the children for whose sake the change is refused.
    pub(crate) fn note_missing(&mut self, group: &GroupTable, missing: &ChildSet) {
        self.missing = missing.iter().map(|child| group.children[child].name()).collect();
    }

    /// The child that issued a token.
    ///
    /// # Errors
    /// None of the group's; what to do about it is remembered.
    fn issuer(&mut self, group: &GroupTable, token: &Token) -> Result<usize, Fault> {
        group.issuer(&token.issuer).ok_or_else(|| {
            let (address, name) = (&token.issuer, &group.name);
            self.stranger = format!(
                "It names {address}. If that is one of the children, add alias = [\"{address}\"] to its \
                 [[group.{name}.child]]."
            );
            Fault::TokenUnknown
        })
    }

    /// Remembers the child that alone could have answered.
    fn note_issuer(&mut self, group: &GroupTable, issuer: Option<usize>, fault: Fault) {
        if fault == Fault::IssuerAway {
            self.note_missing(group, &issuer.into_iter().collect());
        }
    }

    /// Remembers what became of the change at each child.
    pub(crate) fn note_ends(&mut self, group: &GroupTable, change: &Change) {
        for child in group.occupied() {
            let end = match change.ended(child.index) {
                Some((End::Answered { status, .. }, _)) => status.into(),
                Some((End::Missed | End::Queued, _)) => "not sent".into(),
                Some((End::Slow | End::InDoubt | End::Unknowable, _)) | None => "no answer".into(),
            };
            self.ends.insert(child.name().to_string(), end);
        }
    }

    /// Whose a token is, which children are missing, or what became of the change at each, in words; empty where there is
    /// nothing of it.
    pub(crate) fn particulars(&self) -> String {
        if !self.stranger.is_empty() {
            return self.stranger.clone();
        }
        if !self.missing.is_empty() {
            return format!("Missing: {}.", self.missing.join(", "));
        }
        let end = |(name, end): (&String, &serde_json::Value)| match end.as_str() {
            Some(text) => format!("{name}: {text}"),
            None => format!("{name}: {end}"),
        };
        if let Some(epoch) = self.epoch {
            return format!("The epoch is {epoch}.");
        }
        let ends: Vec<_> = self.ends.iter().map(end).collect();
        if ends.is_empty() { String::new() } else { format!("{}.", ends.join(", ")) }
    }
}

/// Heads written for one exchange: to the child, an interim answer, the answer.
const SCRATCH_KEPT_MAX: usize = 4;

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
            Ok(next) => {
                desk.note.close(&worker.stats.requests, worker.io.now());
                return next;
            }
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
    desk.note.status(fault.status());
    desk.note.close(&worker.stats.requests, worker.io.now());
    fault::refuse(worker, desk, client, fault).await
}

async fn head(worker: &Worker, desk: &mut Desk, client: &Conn, began: Time) -> Result<(), NoHead> {
    let until = began + worker.settings.timeouts.request_head;
    let Desk { request, request_bytes, .. } = desk;
    poll_fn(|_| request_bytes.poll(client, until, |octets| Ok(request.parse(octets)?.then_some(request.head_len))))
        .await
}

/// Finds out what is asked and by which rule, and has it done.
async fn action(worker: &Worker, desk: &mut Desk, client: &Conn, began: Time) -> Result<Next, Fault> {
    let has_body = !matches!(desk.request.framing, Framing::None | Framing::Length(0));
    if has_body && worker.is_short_of_small_buffers() {
        // The head outlives the wait for the body.
        desk.request_bytes.unpin();
    }
    let snapshot = worker.snapshot();
    let octets = desk.request_bytes.as_slice();
    let head = &desk.request;
    desk.body_read = !has_body;
    let target = head.path_and_query(octets);
    if reserved::is_reserved(target) {
        return reserved::serve(worker, desk, client, &snapshot).await;
    }
    let host = head.host.map(|span| span.of(octets));
    let group: &GroupTable = snapshot.route(client.tag(), host, target).ok_or(Fault::NoRoute)?;
    desk.counted_as = Some((group.index, Kind::Read));
    if matches!(head.framing, Framing::Length(length) if length > LARGE_BODY_BYTES) {
        client.use_group(Group::Large);
    }
    if matches!(head.framing, Framing::Length(length) if length > worker.settings.limits.body_bytes_max) {
        return Err(Fault::BodyTooLarge);
    }
    let mut asked = Asked::of(head.method_name.of(octets), target, has_body, head.fields(octets));
    let is_aci = worker.settings.told[group.index] != Told::Problem;
    if is_aci {
        desk.note.open(&asked, client.peer().ip(), began);
    }
    let mut body: Option<Held> = None;
    let decision = match group.rules.classify(&asked)? {
        Verdict::Decided(decision) => decision,
        Verdict::NeedBody => {
            let whole = body.insert(held::body(worker, head, client).await?);
            desk.body_read = true;
            asked = asked.with_body(&whole.body);
            desk.note.body(&asked);
            if is_aci {
                desk.wish = Some(Wish::of(&asked));
            }
            match group.rules.classify(&asked)? {
                Verdict::Decided(decision) => decision,
                Verdict::NeedBody => return Err(Fault::Internal),
            }
        }
    };
    desk.note.action(decision.name);
    if is_aci && decision.class != Class::Read && desk.wish.is_none() {
        // The head of a change is gone when a fault may have to be told.
        desk.wish = Some(Wish::of(&asked));
    }
    if is_aci && let Some(answer) = own::ask(worker, desk, client, group, decision.name.as_str(), &asked).await? {
        desk.note.status(answer.status);
        return Ok(own::send(worker, desk, client, answer).await);
    }
    let token = decision.token(&asked)?;
    let stats = &worker.stats.groups[group.index];
    let kind = match decision.class {
        Class::Read | Class::Refuse => Kind::Read,
        Class::Change | Class::LiveChange => Kind::Change,
    };
    desk.counted_as = Some((group.index, kind));
    let answered = match decision.class {
        Class::Refuse => return Err(decision.rule.refusal()),
        Class::Read => {
            let label = label(group, &decision, &asked, head.framing);
            let issuer = token.map(|token| desk.issuer(group, &token)).transpose()?;
            let once = decision.rule.issuer_only();
            let again = !once && (decision.rule.safe() || desk.request.method.is_idempotent());
            let wanted = read::Wanted { label, held: body, issuer, repeatable: again };
            let answered = read::read(worker, desk, client, group, wanted).await;
            answered.inspect_err(|fault| desk.note_issuer(group, issuer, *fault))?
        }
        Class::Change | Class::LiveChange => {
            change::change(worker, desk, client, &snapshot, group, &decision, body).await?
        }
    };
    desk.note.status(answered.status);
    let took = if answered.status == 101 { Duration::ZERO } else { worker.io.now().since(began) };
    stats.record(kind, answered.status, took);
    if answered.next == Next::Cut {
        stats.cut.bump();
    }
    Ok(answered.next)
}

/// The kind of a read, where costs are predicted.
fn label(group: &GroupTable, decision: &Decision<'_>, asked: &Asked<'_>, framing: Framing) -> Label {
    if group.policy != Policy::Predictive {
        return Label::NONE;
    }
    let body_bytes = match (asked.body, framing) {
        (Some(body), _) => body.len() as u64,
        (None, Framing::Length(length)) => length,
        (None, _) => 0,
    };
    Label::of(group.rules.dialect(), decision, asked, group.cost.size_parameter.as_deref(), body_bytes)
}
