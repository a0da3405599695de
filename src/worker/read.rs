//! A read: one child, its connection, the request forward and the answer back.
//!
//! The request's body and the answer may move at the same time, since a child may answer before it has read all. A
//! further child is tried only while nothing of an answer has come and the request can be sent again: no octet of a
//! streamed body has been taken from the client, and the method or the rule says that twice is as good as once
//! (RFC 9110 9.2.2). A connect that failed sent nothing, so it may always be followed by another.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::error::Fault;
use crate::http::body::Decoder;
use crate::http::{AnswerTo, Framing, Method, Span, ToChild, ToClient, forward};
use crate::io::exec::{Conn, Ended};
use crate::io::op::{Piece, Pieces};
use crate::limits::{HUNG_LOOK, INTERIM_ANSWERS_MAX};
use crate::mirror::place;
use crate::probe::{Action, Failure, Kind};
use crate::route::cost::Label;
use crate::route::{self, ChildSet, Choice, GroupTable, NoChoice, Outcome, Step};
use crate::time::Time;
use crate::worker::Worker;
use crate::worker::connect::{self, NoConnection};
use crate::worker::heads::NoHead;
use crate::worker::held::Held;
use crate::worker::pool::ChildKey;
use crate::worker::relay::{Broken, Encoding, Pace, Pump};
use crate::worker::serve::{Answered, Desk, Next};
use crate::worker::tunnel;

/// How soon a read that waits for a child to catch up looks again; doubled at each look. A change takes a child about
/// this long.
const CATCH_UP_LOOK: Duration = Duration::from_millis(1);

/// An attempt that brought no answer.
struct Failed {
    fault: Fault,
    /// Whether the request may go out once more.
    again: Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// Not without harm.
    No,
    /// A reused connection was found closed: the same child may be asked on a new one.
    Same,
    /// Nothing was sent.
    Unsent,
    /// Something may have been carried out, and twice is as good as once.
    Repeatable,
}

impl Failed {
    const fn for_good(fault: Fault) -> Self {
        Self { fault, again: Again::No }
    }
}

/// What is known of a read before a child is chosen.
pub(crate) struct Wanted {
    /// Its kind, for the cost model.
    pub(crate) label: Label,
    /// Its body, if it has been received already.
    pub(crate) held: Option<Held>,
    /// The child that alone can answer it.
    pub(crate) issuer: Option<usize>,
    /// It may go out twice.
    pub(crate) repeatable: bool,
}

/// Has one child answer.
///
/// # Errors
/// The fault to answer with; nothing has been sent to the client.
pub(crate) async fn read(
    worker: &Worker,
    desk: &mut Desk,
    client: &Conn,
    group: &GroupTable,
    wanted: Wanted,
) -> Result<Answered, Fault> {
    let Wanted { label, held, issuer, repeatable } = wanted;
    let asked = match desk.request.min_sequence {
        None => 0,
        Some(span) => asked_floor(worker, desk, group, span)?,
    };
    group.shared.retries.deposit();
    let mut tried = ChildSet::new();
    let mut failed: Option<Fault> = None;
    loop {
        let choice = match choose(worker, group, &label, asked, issuer, &tried).await {
            Ok(choice) => choice,
            Err(fault) => return Err(failed.unwrap_or(fault)),
        };
        let child = choice.index;
        // What may reach an issuer only once does not go on a connection that may have ended.
        let fresh = issuer.is_some() && !repeatable;
        let mut attempt = Attempt { worker, client, group, choice, held: held.as_ref(), repeatable, fresh };
        let mut end = attempt.run(desk).await;
        if matches!(end, Err(Failed { again: Again::Same, .. })) {
            worker.stats.groups[group.index].retries.bump();
            attempt.fresh = true;
            end = attempt.run(desk).await;
        }
        let Failed { fault, again } = match end {
            Ok(answered) => return Ok(answered),
            Err(failed) => failed,
        };
        tracing::debug!(child = %group.children[child].name(), code = fault.code(), ?again, "attempt failed");
        if issuer.is_some() {
            // There is nobody else to ask.
            return Err(if again == Again::Unsent { Fault::IssuerAway } else { fault });
        }
        let granted = match again {
            Again::No | Again::Same => false,
            Again::Unsent => true,
            Again::Repeatable => group.shared.retries.try_withdraw(),
        };
        if !granted {
            return Err(fault);
        }
        // Where every child has refused the connection, the group is down: that is what the client is told.
        if fault != Fault::ChildConnect {
            failed = Some(fault);
        }
        worker.stats.groups[group.index].retries.bump();
        tried.insert(child);
    }
}

/// The sequence that the client wants its read to see (`Antiphon-Min-Sequence`).
fn asked_floor(worker: &Worker, desk: &mut Desk, group: &GroupTable, span: Span) -> Result<u64, Fault> {
    let (epoch, sequence) = place(span.of(desk.request_bytes.as_slice())).ok_or(Fault::MinSequenceInvalid)?;
    let mirror = &worker.mirrors[group.index];
    mirror.check_reachable(epoch, sequence).inspect_err(|_| desk.epoch = Some(mirror.epoch()))?;
    Ok(sequence)
}

/// Chooses a child, or takes the only one that can answer; waits at most `read_wait` for one that is up to apply what the
/// gate wants, and what the client `asked`.
async fn choose(
    worker: &Worker,
    group: &GroupTable,
    label: &Label,
    asked: u64,
    issuer: Option<usize>,
    tried: &ChildSet,
) -> Result<Choice, Fault> {
    let stats = &worker.stats.groups[group.index];
    let until = worker.io.now() + worker.settings.read_wait[group.index];
    let mut pause = CATCH_UP_LOOK;
    loop {
        let now = worker.io.now();
        let floor = group.read_floor().max(asked);
        let choice = match issuer {
            Some(index) => route::issuer::only(group, index, label, floor, now),
            None => route::select(group, &mut worker.chooser.borrow_mut(), label, tried, floor, now),
        };
        match choice {
            Ok(choice) => return Ok(choice),
            Err(NoChoice::NoneCurrent) if now < until => {}
            Err(_) if issuer.is_some() => return Err(Fault::IssuerAway),
            Err(NoChoice::NoneCurrent) => {
                stats.gate_refusals.bump();
                return Err(Fault::NoCurrentChild);
            }
            Err(NoChoice::AllDown | NoChoice::AllTried) => return Err(Fault::NoChild),
        }
        if pause == CATCH_UP_LOOK {
            stats.gate_waits.bump();
        }
        worker.io.sleep_until((now + pause).min(until)).await;
        pause *= 2;
    }
}

/// One request to one child.
struct Attempt<'a> {
    worker: &'a Worker,
    client: &'a Conn,
    group: &'a GroupTable,
    choice: Choice,
    held: Option<&'a Held>,
    repeatable: bool,
    /// Do not use an idle connection.
    fresh: bool,
}

/// Why there is no head of an answer.
enum HeadEnd {
    /// The child's doing.
    Child(NoHead),
    /// The child was found down by others, while it still owed its answer.
    ChildDown,
    /// The client's body was at fault.
    Client(Fault),
    /// The client is not there any more.
    ClientGone,
}

impl Attempt<'_> {
    fn key(&self) -> ChildKey {
        ChildKey { group: self.group.index, child: self.choice.index }
    }

    /// Tells what was seen of the child: once for each request.
    fn observe(&self, outcome: Outcome, latency: Duration) {
        self.act(self.group.observe_choice(&self.choice.in_flight, outcome, latency, self.worker.io.now()));
    }

    /// Tells that an answer which has been observed as begun did not end.
    fn observe_break(&self, failure: Failure) {
        let now = self.worker.io.now();
        self.act(self.group.observe_break(&self.choice.in_flight, failure, now));
    }

    /// Where what was seen calls for a probe, or for a look of the child's lane, asks for it.
    fn act(&self, step: Step) {
        if step.action == Action::None {
            return;
        }
        let (before, after) = (step.before.kind(), step.after.kind());
        tracing::debug!(child = %self.choice.child().name(), ?before, ?after, "a read has changed its health");
        self.worker.mirrors[self.group.index].notice(self.choice.index);
    }

    async fn run(&self, desk: &mut Desk) -> Result<Answered, Failed> {
        if self.worker.is_short_of_small_buffers() {
            desk.request_bytes.unpin();
        }
        let (child, reused) = self.connection().await?;
        let began = self.worker.io.now();
        let mut up = self.request(desk, began);
        let mut interims = 0;
        loop {
            let head = self.await_head(desk, &child, &mut up, began, interims).await;
            head.map_err(|end| self.judge(end, &up, reused, interims))?;
            let status = desk.response.status;
            if status == 101 || !desk.response.is_interim() {
                let waited = self.worker.io.now().since(up.progress().max(began));
                self.observe(Outcome::Answered(status), waited);
                break;
            }
            interims += 1;
            if interims > INTERIM_ANSWERS_MAX {
                self.observe(Outcome::Failed(Failure::Malformed), Duration::ZERO);
                return Err(Failed::for_good(Fault::ChildInterimsTooMany));
            }
            self.relay_interim(desk).await?;
        }
        if desk.response.status == 101 {
            return Ok(self.tunnel(desk, child).await);
        }
        self.relay_answer(desk, child, up).await
    }

    /// An idle connection to the child, or a new one; and whether it was used before.
    async fn connection(&self) -> Result<(Conn, bool), Failed> {
        let now = self.worker.io.now();
        if !self.fresh
            && let Some(conn) = self.worker.pool.take(self.key(), now)
            && self.choice.child().is_at(conn.peer())
        {
            return Ok((conn, true));
        }
        let within = self.group.timeouts.connect;
        match connect::to_child(self.worker, self.choice.child(), now + within).await {
            Ok(conn) => {
                self.choice.child().note_connect(self.worker.io.now().since(now));
                Ok((conn, false))
            }
            Err(NoConnection::Shortage(errno)) => {
                tracing::warn!(%errno, "no descriptor, port or memory for a connection to a child");
                Err(Failed::for_good(Fault::Overloaded))
            }
            Err(NoConnection::Child(failure)) => {
                self.worker.pool.forget(self.key());
                self.observe(Outcome::Failed(failure), self.worker.io.now().since(now));
                let fault = match failure {
                    Failure::ConnectTimeout => Fault::ChildConnectTimeout,
                    _ => Fault::ChildConnect,
                };
                Err(Failed { fault, again: Again::Unsent })
            }
        }
    }

    /// The request on its way: its head, then its body.
    fn request(&self, desk: &mut Desk, now: Time) -> Pump {
        let framing = match self.held {
            Some(held) => Framing::Length(held.body.len() as u64),
            None => desk.request.framing,
        };
        let mut out = desk.vector();
        let identity = desk.request.host.is_none().then(|| self.choice.child().identity());
        let how = ToChild {
            target_suffix: "",
            peer: self.client.peer().ip(),
            tls: false,
            framing,
            fallback_host: identity.as_ref().map_or("", |identity| &*identity.host),
            via: true,
            expect: desk.request.expect_continue && self.held.is_none(),
            upgrade: desk.request.upgrade.is_some(),
            close: false,
        };
        forward::request_head(&mut out, desk.request_bytes.as_slice(), &desk.request, &how);
        let mut pieces = std::mem::take(&mut desk.pieces);
        pieces.push(Piece::Scratch(out));
        if let Some(held) = self.held {
            pieces.push(Piece::Shared(held.body.clone()));
        }
        let to_come = if self.held.is_some() { Framing::None } else { desk.request.framing };
        let encoding = if to_come == Framing::Chunked { Encoding::Chunked } else { Encoding::Plain };
        Pump::new(Decoder::request(to_come), encoding, self.worker.settings.request_pace(), pieces, now)
            .limited_to(self.worker.settings.limits.body_bytes_max)
    }

    /// Moves the request while waiting for the next head of an answer.
    async fn await_head(
        &self,
        desk: &mut Desk,
        child: &Conn,
        up: &mut Pump,
        began: Time,
        interims: usize,
    ) -> Result<(), HeadEnd> {
        let wait = self.group.timeouts.response_head;
        desk.response_bytes.clear();
        desk.response.clear();
        let Desk { request, response, response_bytes, .. } = desk;
        let to = AnswerTo { was_head: request.method == Method::Head, wanted_upgrade: request.upgrade.is_some() };
        poll_fn(|_| {
            let now = self.worker.io.now();
            if !up.is_over() {
                match up.poll(self.client, child, now) {
                    // The child may have said why before it closed, or stopped reading: its answer counts.
                    Poll::Pending | Poll::Ready(Ok(()) | Err(Broken::Sink(_) | Broken::SinkSlow)) => {}
                    Poll::Ready(Err(Broken::Framing(fault))) => return Poll::Ready(Err(HeadEnd::Client(fault))),
                    Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Err(HeadEnd::ClientGone)),
                    // A client that waits for the child's 100 is not slow: the child is.
                    Poll::Ready(Err(Broken::SourceSlow))
                        if request.expect_continue && interims == 0 && !up.is_touched() =>
                    {
                        return Poll::Ready(Err(HeadEnd::Child(NoHead::TimedOut { begun: false })));
                    }
                    Poll::Ready(Err(Broken::SourceSlow)) => {
                        return Poll::Ready(Err(HeadEnd::Client(Fault::BodyTimeout)));
                    }
                }
            }
            // The end of a client's octets is not its end: it may wait for the answer. A reset is.
            if let Poll::Ready(Ended::Failed(_)) = self.client.poll_ended() {
                return Poll::Ready(Err(HeadEnd::ClientGone));
            }
            let until = if up.is_over() { up.progress().max(began) + wait } else { Time::NEVER };
            let parse = |octets: &[u8]| Ok(response.parse(octets, to)?.then_some(response.head_len));
            let polled = response_bytes.poll(child, until.min(now + HUNG_LOOK), parse);
            // Nobody wakes us when a probe finds the child down: we look, now and then.
            let resendable = self.repeatable && interims == 0 && !up.is_touched();
            if polled.is_pending() && resendable && self.choice.child().health().state().kind() == Kind::Down {
                return Poll::Ready(Err(HeadEnd::ChildDown));
            }
            polled.map_err(HeadEnd::Child)
        })
        .await
    }

    /// What an attempt without an answer comes to.
    fn judge(&self, end: HeadEnd, up: &Pump, reused: bool, interims: usize) -> Failed {
        let waited = self.worker.io.now().since(up.progress());
        let end = match end {
            HeadEnd::ClientGone => return Failed::for_good(Fault::ClientGone),
            HeadEnd::Client(fault) => return Failed::for_good(fault),
            // Known already: nothing to observe.
            HeadEnd::ChildDown => return Failed { fault: Fault::ChildHeadTimeout, again: Again::Repeatable },
            HeadEnd::Child(end) => end,
        };
        let (fault, failure, closed) = match end {
            NoHead::Refused(fault) => (fault, Failure::Malformed, false),
            NoHead::TimedOut { .. } => (Fault::ChildHeadTimeout, Failure::AnswerTimeout, false),
            NoHead::Ended | NoHead::Failed(_) => (Fault::ChildClosed, Failure::Closed, true),
            NoHead::CutShort => (Fault::ChildClosed, Failure::Closed, false),
        };
        // An interim answer is an answer begun.
        let nothing_came = closed && interims == 0;
        let resendable = self.repeatable && !up.is_touched() && nothing_came;
        // A server may close an idle connection at any moment; that says nothing about its health (RFC 9112 9.5).
        let stale = nothing_came && reused;
        if !stale {
            self.observe(Outcome::Failed(failure), waited);
        }
        let again = match (resendable, stale) {
            (true, true) => Again::Same,
            (true, false) => Again::Repeatable,
            (false, _) => Again::No,
        };
        Failed { fault, again }
    }

    /// Passes a 1xx on to a client that can read it; 100 only to one that waits for it.
    async fn relay_interim(&self, desk: &mut Desk) -> Result<(), Failed> {
        let wanted = desk.request.minor > 0 && (desk.response.status != 100 || desk.request.expect_continue);
        if !wanted {
            return Ok(());
        }
        let pieces = self.answer_head(desk, Framing::None, false);
        let until = self.worker.io.now() + self.worker.settings.timeouts.client_write;
        match self.client.send(pieces, until).await {
            Ok(pieces) => {
                desk.recycle(pieces);
                Ok(())
            }
            Err(_) => Err(Failed::for_good(Fault::ClientGone)),
        }
    }

    /// The answer's head as the client gets it. The child's octets are given back: nobody reads them again.
    fn answer_head(&self, desk: &mut Desk, framing: Framing, close: bool) -> Pieces {
        let mut out = desk.vector();
        let date = self.worker.date();
        let how = ToClient {
            client_minor: desk.request.minor,
            framing,
            close,
            keep_alive_10: !close && desk.request.minor == 0,
            date: (!desk.response.is_interim()).then_some(&date[..]),
            extra: &[],
        };
        forward::response_head(&mut out, desk.response_bytes.as_slice(), &desk.response, &how);
        desk.response_bytes.clear();
        let mut pieces = std::mem::take(&mut desk.pieces);
        pieces.push(Piece::Scratch(out));
        pieces
    }

    /// Passes the final answer on, and what is left of the request's body the other way.
    async fn relay_answer(&self, desk: &mut Desk, child: Conn, mut up: Pump) -> Result<Answered, Failed> {
        let status = desk.response.status;
        let framing = desk.response.framing;
        let http10 = desk.request.minor == 0;
        // An end that only the close can tell, for a client that cannot read chunks.
        let ends_by_close = http10 && matches!(framing, Framing::Chunked | Framing::UntilClose);
        let close = !desk.request.keep_alive || ends_by_close || !up.is_finished() || self.worker.io.is_draining();
        let (sent_framing, encoding) = match framing {
            Framing::Chunked | Framing::UntilClose if !http10 => (Framing::Chunked, Encoding::Chunked),
            Framing::Chunked | Framing::UntilClose => (Framing::UntilClose, Encoding::Plain),
            known => (known, Encoding::Plain),
        };
        let pieces = self.answer_head(desk, sent_framing, close);
        let timeouts = &self.worker.settings.timeouts;
        let pace = Pace { source: self.group.timeouts.response_body, rate_min: 0, sink: timeouts.client_write };
        let mut down = Pump::new(Decoder::response(framing), encoding, pace, pieces, self.worker.io.now());
        if desk.request.te_trailers {
            down = down.with_trailers();
        }
        let ended = poll_fn(|_| {
            let now = self.worker.io.now();
            // How the rest of the request fares matters no more to this answer, only to the connections.
            let _ = (!up.is_over()).then(|| up.poll(self.client, &child, now));
            let polled = down.poll(&child, self.client, now);
            if polled.is_pending()
                && let Poll::Ready(Ended::Failed(errno)) = self.client.poll_ended()
            {
                return Poll::Ready(Err(Broken::Sink(errno)));
            }
            polled
        })
        .await;
        if let Err(broken) = ended {
            return self.cut(broken, &down, status);
        }
        let whole = up.is_finished();
        let reusable = whole && desk.response.keep_alive && framing != Framing::UntilClose;
        desk.take_back(up);
        desk.take_back(down);
        if reusable {
            self.worker.pool.put(self.key(), child);
        }
        Ok(Answered { status, next: if close || !whole { Next::Close } else { Next::Keep } })
    }

    /// An answer that did not come to its end. The client must see that: by a fault if it has seen nothing yet, else
    /// by its connection's end.
    fn cut(&self, broken: Broken, down: &Pump, status: u16) -> Result<Answered, Failed> {
        let (fault, failure) = match broken {
            Broken::Framing(fault) => (fault, Some(Failure::Malformed)),
            Broken::Source(_) => (Fault::ChildBodyCutShort, Some(Failure::Closed)),
            Broken::SourceSlow => (Fault::ChildBodyTimeout, Some(Failure::AnswerTimeout)),
            Broken::Sink(_) | Broken::SinkSlow => (Fault::ClientGone, None),
        };
        if let Some(failure) = failure {
            self.observe_break(failure);
        }
        if !down.has_started() {
            return Err(Failed::for_good(fault));
        }
        tracing::debug!(child = %self.choice.child().name(), code = fault.code(), "answer cut");
        self.worker.stats.record_fault(fault);
        Ok(Answered { status, next: Next::Cut })
    }

    /// After a 101 octets pass both ways (RFC 9110 7.8).
    async fn tunnel(&self, desk: &mut Desk, child: Conn) -> Answered {
        let status = desk.response.status;
        let head = self.answer_head(desk, Framing::None, false);
        // It may last for hours: it pins no buffer, and is not counted as a duration.
        desk.request_bytes.clear();
        // Rare, and its state is large: not a part of every serving task.
        let next = Box::pin(tunnel::run(self.worker, self.group, self.client, &child, head)).await;
        Answered { status, next }
    }
}
