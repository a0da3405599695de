//! A lane: the one task that sends changes and probes to one child.
//!
//! What to do next, and what an outcome means, is told by the state machine in [`Lane`]; here is only
//! the doing. At most one change is in flight. A probe has a connection of its own, so that it can be asked while a
//! change is under way, and so that it proves that the child takes new ones.
//!
//! The probe before a live change is another matter: the connection that it has proven becomes the one that changes go
//! on, and is watched until then.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use crate::crash;
use crate::http::body::Decoder;
use crate::http::{AnswerTo, ResponseHead};
use crate::io::exec::{Conn, Received};
use crate::io::op::{Piece, Pieces};
use crate::limits::{INTERIM_ANSWERS_MAX, PROBE_BODY_BYTES_MAX, SHORTAGE_PAUSE};
use crate::mirror::{Change, Charge, Do, Held, Lane};
use crate::probe::{Event as ProbeEvent, Failure, Request};
use crate::route::{GroupTable, Outcome};
use crate::sync::Arc;
use crate::time::Time;
use crate::worker::Worker;
use crate::worker::connect::{self, NoConnection};
use crate::worker::heads::{HeadBytes, NoHead};

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// How a delivery ended.
enum Delivery {
    /// Nothing left us.
    ConnectFailed(Failure),
    /// A whole answer came; the connection comes back if it can be used again.
    Answered { status: u16, held: Option<Held>, link: Option<Conn> },
    /// Octets left, and no whole answer came.
    Unanswered(Failure),
}

/// What woke the lane.
enum Event {
    Sent,
    Delivered(Delivery),
    Probed(Result<(), Failure>),
    Proved(Result<Conn, Failure>),
    /// A wake from outside or a deadline: look again.
    Look,
}

/// Runs the lane of one child until the worker ends.
pub(crate) async fn run(worker: Rc<Worker>, group: usize, child: usize) {
    let mirror = worker.mirrors[group].clone();
    let mut lane = Lane::new(mirror, child, worker.wake.clone());
    // The connection that changes go on.
    let mut link: Option<Conn> = None;
    let mut delivery: Option<Boxed<Delivery>> = None;
    let mut probe: Option<Boxed<Result<(), Failure>>> = None;
    let mut proof: Option<Boxed<Result<Conn, Failure>>> = None;
    let began_to_leave = Rc::new(Cell::new(false));
    loop {
        // A child that has closed it is not kept waiting for our half.
        link = link.filter(|conn| is_untouched(conn) && lane.child().is_at(conn.peer()) && !lane.child().is_vacant());
        if link.is_none() && lane.is_proven() {
            lane.on_proof_lost(worker.io.now());
        }
        let until = match lane.next(worker.io.now()) {
            Do::SendChange { change, fresh_connection, .. } => {
                began_to_leave.set(false);
                let link = link.take().filter(|_| !fresh_connection);
                let errand = Errand { worker: worker.clone(), group, child };
                delivery = Some(Box::pin(errand.deliver(link, change, began_to_leave.clone())));
                continue;
            }
            Do::Probe { expires, .. } => {
                let errand = Errand { worker: worker.clone(), group, child };
                probe = Some(Box::pin(errand.probe(expires)));
                continue;
            }
            Do::Prove { expires } => {
                link = None;
                let errand = Errand { worker: worker.clone(), group, child };
                proof = Some(Box::pin(errand.prove(expires)));
                continue;
            }
            Do::GiveUp => {
                delivery = None;
                continue;
            }
            Do::Wait { until } => until,
        };
        let event = poll_fn(|context| {
            if let Poll::Ready(delivered) = poll_option(&mut delivery, context) {
                return Poll::Ready(Event::Delivered(delivered));
            }
            if began_to_leave.take() {
                return Poll::Ready(Event::Sent);
            }
            if let Poll::Ready(result) = poll_option(&mut probe, context) {
                return Poll::Ready(Event::Probed(result));
            }
            if let Poll::Ready(result) = poll_option(&mut proof, context) {
                return Poll::Ready(Event::Proved(result));
            }
            if lane.is_proven()
                && let Some(conn) = &link
                && conn.poll_receive(Time::NEVER).is_ready()
            {
                // Whatever came, it is no answer.
                link = None;
                return Poll::Ready(Event::Look);
            }
            worker.io.poll_woken(until).map(|_| Event::Look)
        })
        .await;
        let now = worker.io.now();
        match event {
            Event::Sent => lane.on_sent(now),
            Event::Probed(result) => lane.on_probe(now, result),
            Event::Proved(result) => {
                let proved = result.map(|conn| link = Some(conn));
                lane.on_proved(now, proved);
            }
            Event::Look => {}
            Event::Delivered(delivered) => {
                if began_to_leave.take() {
                    lane.on_sent(now);
                }
                match delivered {
                    Delivery::ConnectFailed(why) => lane.on_connect_failed(now, why),
                    Delivery::Unanswered(why) => lane.on_unanswered(now, true, why),
                    Delivery::Answered { status, held, link: used } => {
                        crash::point("change.answered");
                        link = used;
                        // As good as an answer to a read: a child that takes changes need not be asked how it is.
                        let table = &worker.snapshot().groups[group];
                        lane.child().on_event(ProbeEvent::ReadAnswered, now, &table.probe);
                        lane.on_answered(now, status, held);
                    }
                }
            }
        }
    }
}

/// Polls what there is; what has ended is taken away.
fn poll_option<T>(future: &mut Option<Boxed<T>>, context: &mut Context<'_>) -> Poll<T> {
    let Some(running) = future else { return Poll::Pending };
    let polled = running.as_mut().poll(context);
    if polled.is_ready() {
        *future = None;
    }
    polled
}

/// Nothing has happened to it since its last answer.
fn is_untouched(conn: &Conn) -> bool {
    conn.ended().is_none() && conn.queued_bytes() == 0
}

/// One thing to be done at one child.
struct Errand {
    worker: Rc<Worker>,
    group: usize,
    child: usize,
}

impl Errand {
    /// A connection, until `until`. Where our own descriptors or ports have run out, it is tried again: that is no
    /// fault of the child's.
    async fn connect(&self, group: &GroupTable, mut until: Time) -> Result<Conn, Failure> {
        let io = &self.worker.io;
        let within = io.now().until(until);
        loop {
            match connect::to_child(&self.worker, &group.children[self.child], until).await {
                Ok(conn) => return Ok(conn),
                Err(NoConnection::Child(failure)) => return Err(failure),
                Err(NoConnection::Shortage(errno)) => {
                    tracing::warn!(%errno, "no descriptor, port or memory for a lane's connection");
                    io.sleep_until(io.now() + SHORTAGE_PAUSE).await;
                    until = io.now() + within;
                }
            }
        }
    }

    /// Sends a change and receives its answer. `began_to_leave` is set when the first octet may have left.
    async fn deliver(self, link: Option<Conn>, change: Arc<Change>, began_to_leave: Rc<Cell<bool>>) -> Delivery {
        let io = &self.worker.io;
        let snapshot = self.worker.snapshot();
        let group = &snapshot.groups[self.group];
        let conn = match link {
            Some(conn) => conn,
            // It ended in this very moment.
            None if change.live => return Delivery::ConnectFailed(Failure::Closed),
            None => match self.connect(group, io.now() + group.timeouts.connect).await {
                Ok(conn) => conn,
                Err(why) => return Delivery::ConnectFailed(why),
            },
        };
        // From here on the child has it to do, beside its reads.
        let (began, body_bytes) = (io.now(), change.body.len() as u64);
        let in_flight = group.dispatch_change(self.child, &change.name, &change.head, body_bytes, began);
        let mut pieces = Pieces::new();
        pieces.push(Piece::Shared(change.head.clone()));
        pieces.push(Piece::Shared(change.body.clone()));
        began_to_leave.set(true);
        let hold_max = if change.wants_answer() { self.worker.settings.limits.answer_held_max } else { 0 };
        let to = AnswerTo { was_head: change.head.starts_with(b"HEAD "), wanted_upgrade: false };
        let answer = exchange(&conn, pieces, to, Time::NEVER, hold_max).await;
        let outcome = match &answer {
            Ok(answer) => Outcome::Answered(answer.status),
            Err(why) => Outcome::Failed(*why),
        };
        group.learn(&in_flight, outcome, io.now().since(began), io.now());
        match answer {
            Err(why) => Delivery::Unanswered(why),
            Ok(Answer { status, held, reusable }) => {
                let held = self.account(held);
                Delivery::Answered { status, held: Some(held), link: reusable.then_some(conn) }
            }
        }
    }

    /// Charges a held answer to the memory of bodies for as long as it is held; where that is full, only its head is
    /// kept.
    fn account(&self, mut held: Held) -> Held {
        if held.body.is_empty() {
            return held;
        }
        match self.worker.budget.charge(held.body.len()) {
            Some(charge) => held.body = Bytes::from_owner(Charged { octets: held.body, _charge: charge }),
            None => (held.body, held.cut) = (Bytes::new(), true),
        }
        held
    }

    /// Asks for the child's health, until `expires`.
    async fn probe(self, expires: Time) -> Result<(), Failure> {
        self.ask(expires).await.map(drop)
    }

    /// The same, and keeps the connection. A child that closes each connection after its answer is connected to again:
    /// this is as near as one comes to it.
    async fn prove(self, expires: Time) -> Result<Conn, Failure> {
        if let Some(conn) = self.ask(expires).await? {
            return Ok(conn);
        }
        let snapshot = self.worker.snapshot();
        self.connect(&snapshot.groups[self.group], expires).await
    }

    /// Asks for the child's health on a new connection, which comes back if it can be used again.
    async fn ask(&self, expires: Time) -> Result<Option<Conn>, Failure> {
        let snapshot = self.worker.snapshot();
        let group = &snapshot.groups[self.group];
        let io = &self.worker.io;
        let within = io.now().until(expires);
        let conn = self.connect(group, expires).await?;
        // Where we had to wait for a descriptor of our own, the child's time begins only now.
        let expires = if io.now() < expires { expires } else { io.now() + within };
        let Request::Http { method, target } = &group.probe.request else { return Ok(Some(conn)) };
        let host = group.children[self.child].host();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: antiphon-probe\r\n\r\n");
        let mut pieces = Pieces::new();
        pieces.push(Piece::Scratch(head.into_bytes()));
        let to = AnswerTo { was_head: &**method == "HEAD", wanted_upgrade: false };
        let answer = exchange(&conn, pieces, to, expires, PROBE_BODY_BYTES_MAX).await?;
        group.probe.expect.judge(answer.status, &answer.held.body)?;
        Ok(answer.reusable.then_some(conn))
    }
}

/// Octets with their account.
struct Charged {
    octets: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

/// A whole answer.
struct Answer {
    status: u16,
    held: Held,
    reusable: bool,
}

/// Sends a request and receives the answer to it, of whose body at most `hold_max` octets are kept.
async fn exchange(conn: &Conn, pieces: Pieces, to: AnswerTo, until: Time, hold_max: usize) -> Result<Answer, Failure> {
    conn.begin_send(pieces);
    let mut sent: Option<bool> = None;
    let mut head = ResponseHead::default();
    let mut octets = HeadBytes::default();
    for _ in 0..=INTERIM_ANSWERS_MAX {
        octets.clear();
        head.clear();
        poll_fn(|_| {
            // A failed send may be followed by an answer that says why: the answer decides.
            note_sent(conn, until, &mut sent);
            octets.poll(conn, until, |octets| Ok(head.parse(octets, to)?.then_some(head.head_len)))
        })
        .await
        .map_err(|end| match end {
            NoHead::Refused(_) => Failure::Malformed,
            NoHead::TimedOut { .. } => Failure::AnswerTimeout,
            NoHead::Ended | NoHead::CutShort | NoHead::Failed(_) => Failure::Closed,
        })?;
        if !head.is_interim() {
            let kept = Bytes::copy_from_slice(octets.as_slice());
            octets.clear();
            let mut decoder = Decoder::response(head.framing);
            let (body, cut) = poll_body(conn, &mut decoder, until, hold_max).await?;
            note_sent(conn, until, &mut sent);
            let reusable = sent == Some(true) && head.keep_alive && is_untouched(conn);
            return Ok(Answer { status: head.status, held: Held { head: kept, body, cut }, reusable });
        }
    }
    Err(Failure::Malformed)
}

/// Asks how the send fares, until it is known.
fn note_sent(conn: &Conn, until: Time, sent: &mut Option<bool>) {
    if sent.is_none()
        && let Poll::Ready(outcome) = conn.poll_sent(until)
    {
        *sent = Some(outcome.is_ok());
        crash::point("change.sent");
    }
}

/// The answer's body: what is kept of it, and whether that is not all.
async fn poll_body(conn: &Conn, decoder: &mut Decoder, until: Time, hold_max: usize) -> Result<(Bytes, bool), Failure> {
    let mut body = BytesMut::new();
    let mut cut = false;
    while !decoder.is_done() {
        match conn.receive(until).await {
            Received::Data(chunk) => {
                let mut at = 0;
                while at < chunk.len() && !decoder.is_done() {
                    let step = decoder.step(&chunk[at..]).map_err(|_| Failure::Malformed)?;
                    let data = &chunk[at..][step.data.clone()];
                    let room = hold_max - body.len();
                    cut |= data.len() > room;
                    body.extend_from_slice(&data[..data.len().min(room)]);
                    at += step.consumed;
                }
                if at < chunk.len() {
                    conn.put_back(chunk.slice(at..chunk.len()));
                }
            }
            Received::End => {
                decoder.end_of_input().map_err(|_| Failure::Closed)?;
                break;
            }
            Received::Failed(_) => return Err(Failure::Closed),
            Received::TimedOut => return Err(Failure::AnswerTimeout),
        }
    }
    Ok((body.freeze(), cut))
}
