//! What we answer ourselves where clients come in: the actions of a listener's `own` list.
//!
//! What is asked and ordered is control's to know: a worker asks it by [`Own`], and is woken when control has answered in
//! its own thread. An order's answer may take as long as a disk does; meanwhile the worker serves others.

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;

use crate::action::{Asked, Parameters};
use crate::error::Fault;
use crate::http::{Method, own_response};
use crate::io::exec::Conn;
use crate::io::op::Piece;
use crate::limits::{OWN_BODY_BYTES_MAX, OWN_WAIT};
use crate::mirror::Wake;
use crate::route::GroupTable;
use crate::sync::{Arc, OnceLock};
use crate::worker::Worker;
use crate::worker::serve::{Desk, Next};

/// Answers what a listener's `own` list names. Must not block.
pub trait Own: Send + Sync {
    /// Takes a request. `origin` is woken when the promise is kept.
    fn ask(&self, question: Question, origin: Arc<dyn Wake>) -> Arc<Promise>;
}

/// An answer to come.
#[derive(Debug, Default)]
pub struct Promise(OnceLock<Answer>);

/// A request for an action of ours.
#[derive(Debug)]
pub struct Question {
    /// The index of the group that it was sent to.
    pub group: usize,
    /// The action, in lower case.
    pub action: String,
    /// Everything that the request carries.
    pub parameters: Parameters,
    /// The other end of the connection.
    pub client: IpAddr,
    /// Why that may not be who asks, if so.
    pub doubt: Option<Doubt>,
    /// The time of day, as [`http_date`](crate::http::http_date) writes it.
    pub date: [u8; 29],
}

/// Why the other end of a connection may not be who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A page in a browser sent it: the person there may know nothing of it.
    Page,
    /// A proxy passed it on.
    Proxy,
}

/// An answer of ours.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Promise {
    /// Keeps it; the first answer counts.
    pub fn keep(&self, answer: Answer) {
        let _ = self.0.set(answer);
    }
}

/// Has control answer. `None`: the action is not one of ours here.
///
/// # Errors
/// [`Fault::BodyTooLarge`], and [`Fault::Internal`] where control does not answer.
pub(crate) async fn ask(
    worker: &Worker,
    desk: &Desk,
    client: &Conn,
    group: &GroupTable,
    action: &str,
    asked: &Asked<'_>,
) -> Result<Option<Answer>, Fault> {
    if !worker.settings.own.get(client.tag()).is_some_and(|owns| owns.iter().any(|own| own == action)) {
        return Ok(None);
    }
    if asked.body.is_some_and(|body| body.len() > OWN_BODY_BYTES_MAX) {
        return Err(Fault::BodyTooLarge);
    }
    let octets = desk.request_bytes.as_slice();
    let question = Question {
        group: group.index,
        action: action.to_owned(),
        parameters: Parameters::of(asked),
        client: client.peer().ip(),
        doubt: desk.request.fields(octets).find_map(|(name, value)| doubt(name, value)),
        date: worker.date(),
    };
    let promise = worker.own.ask(question, worker.wake.clone());
    let until = worker.io.now() + OWN_WAIT;
    poll_fn(|_| {
        loop {
            if let Some(answer) = promise.0.get() {
                return Poll::Ready(Ok(Some(answer.clone())));
            }
            if worker.io.now() >= until {
                return Poll::Ready(Err(Fault::Internal));
            }
            if worker.io.poll_woken(until).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Sends an answer of ours.
pub(crate) async fn send(worker: &Worker, desk: &mut Desk, client: &Conn, answer: Answer) -> Next {
    let head = &desk.request;
    let close = !desk.body_read || !head.keep_alive || head.minor == 0 || worker.io.is_draining();
    let head_request = head.method == Method::Head;
    let date = worker.date();
    let extra: [(&str, &[u8]); 2] = [("Date", &date), ("Cache-Control", b"no-store")];
    let mut out = desk.vector();
    let Answer { status, content_type, body } = answer;
    own_response(&mut out, status, content_type, &body, close, head_request, &extra);
    let mut pieces = std::mem::take(&mut desk.pieces);
    pieces.push(Piece::Scratch(out));
    let sent = client.send(pieces, worker.io.now() + worker.settings.timeouts.client_write).await;
    match sent {
        Ok(pieces) => {
            desk.recycle(pieces);
            if close { Next::Close } else { Next::Keep }
        }
        Err(_) => Next::Cut,
    }
}

/// What a field says against the connection's other end. Browsers say of every request where it comes from
/// (`Sec-Fetch-Site`; `none` is what a person typed).
fn doubt(name: &[u8], value: &[u8]) -> Option<Doubt> {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    if is(b"sec-fetch-site") && value != b"none" || is(b"origin") {
        return Some(Doubt::Page);
    }
    (is(b"x-forwarded-for") || is(b"forwarded") || is(b"via")).then_some(Doubt::Proxy)
}
