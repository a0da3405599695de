//! Receiving a body whole: for a change, and for a form that must be read to find the action.
//!
//! Copied once, into memory that the lanes share. Bounded for each body, and for all bodies of the worker together.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};

use crate::error::Fault;
use crate::http::body::Decoder;
use crate::http::{Framing, RequestHead};
use crate::io::buffer::Group;
use crate::io::exec::{Conn, Received};
use crate::io::op::{Piece, Pieces};
use crate::limits::LARGE_BODY_BYTES;
use crate::mirror::Charge;
use crate::worker::Worker;

/// What is set aside at first for a body: it grows as the octets come, so that a client cannot claim memory by
/// announcing a length.
const FIRST_BYTES: usize = 4 * 1024;

/// The interim answer that asks a client for its body (RFC 9110 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A body and its share of the memory set aside for bodies, given back when both are dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// The octets, decoded.
    pub(crate) body: Bytes,
    /// Their account.
    pub(crate) charge: Charge,
}

/// The account of a body that is not there, or not yet.
pub(crate) fn charge(worker: &Worker, bytes: usize) -> Result<Charge, Fault> {
    worker.budget.charge(bytes).ok_or(Fault::ChangeRejectedMemory)
}

/// Receives the request's body to its end.
///
/// # Errors
/// The fault to answer with; the rest of the body is then still to come.
pub(crate) async fn body(worker: &Worker, head: &RequestHead, client: &Conn) -> Result<Held, Fault> {
    let bytes_max = worker.settings.limits.action_bytes_max;
    let capacity = match head.framing {
        Framing::None => 0,
        Framing::Length(length) => match usize::try_from(length) {
            Ok(length) if length <= bytes_max => length.min(FIRST_BYTES),
            _ => return Err(Fault::BodyTooLarge),
        },
        Framing::Chunked | Framing::UntilClose => FIRST_BYTES,
    };
    if head.expect_continue && client.queued_bytes() == 0 {
        ask_for_it(worker, client).await?;
    }
    let mut charge = charge(worker, 0)?;
    let mut body = BytesMut::with_capacity(capacity);
    let mut decoder = Decoder::request(head.framing);
    let mut wide = false;
    let pace = worker.settings.request_pace();
    let began = worker.io.now();
    let mut progress = began;
    while !decoder.is_done() {
        let until = pace.source_deadline(began, progress, body.len() as u64);
        let chunk = match poll_fn(|_| client.poll_receive(until)).await {
            Received::Data(chunk) => chunk,
            Received::End => return Err(Fault::BodyCutShort),
            Received::Failed(_) => return Err(Fault::ClientGone),
            Received::TimedOut => return Err(Fault::BodyTimeout),
        };
        progress = worker.io.now();
        let mut at = 0;
        while at < chunk.len() && !decoder.is_done() {
            let step = decoder.step(&chunk[at..])?;
            let data = &chunk[at..][step.data.clone()];
            if body.len() + data.len() > bytes_max {
                return Err(Fault::BodyTooLarge);
            }
            if !charge.grow(data.len()) {
                return Err(Fault::ChangeRejectedMemory);
            }
            body.extend_from_slice(data);
            if !wide && body.len() as u64 > LARGE_BODY_BYTES {
                wide = true;
                client.use_group(Group::Large);
            }
            at += step.consumed;
        }
        if at < chunk.len() {
            client.put_back(chunk.slice(at..chunk.len()));
        }
    }
    Ok(Held { body: body.freeze(), charge })
}

async fn ask_for_it(worker: &Worker, client: &Conn) -> Result<(), Fault> {
    let mut pieces = Pieces::new();
    pieces.push(Piece::Static(CONTINUE));
    let until = worker.io.now() + worker.settings.timeouts.client_write;
    client.begin_send(pieces);
    match poll_fn(|_| client.poll_sent(until)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::ClientGone),
    }
}
