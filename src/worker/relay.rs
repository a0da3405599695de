//! Moving a body from one connection to the other, in the order it came and from where it was received.
//!
//! A [`Pump`] is one direction. It holds no octets of its own but the framing it adds: a chunk goes out as the slice
//! that came in. It sends one call at a time and gathers what has arrived meanwhile into the next, so a slow peer is
//! felt by the fast one through the receive cap of the connection. It is polled, not awaited, so that two directions
//! can run in one task. It decides nothing about what an ending means; its caller does.

use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::Fault;
use crate::http::body::{self, ChunkHead, Decoder};
use crate::io::buffer::{Chunk, Group};
use crate::io::exec::{Conn, Received, SendError};
use crate::io::op::{Piece, Pieces};
use crate::limits::{LARGE_BODY_BYTES, SEND_BYTES_MAX, SEND_PIECES_MAX};
use crate::time::Time;

/// Why a pump stopped before the body's end, and on whose side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The sending side broke the framing, or ended before the body's end.
    Framing(Fault),
    /// The connection that is read from failed.
    Source(Errno),
    /// Nothing, or too little, came in time.
    SourceSlow,
    /// The connection that is written to failed.
    Sink(Errno),
    /// Nothing was taken in time.
    SinkSlow,
}

/// How the body leaves us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As it is: a known length, or until the close.
    Plain,
    /// In chunks of our own.
    Chunked,
}

/// How long the two sides may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest silence of the source.
    pub(crate) source: Duration,
    /// Octets a second that the source must average once `source` has passed, so that a trickle is not served for
    /// ever. 0: only silence counts.
    pub(crate) rate_min: u64,
    /// The longest time for the sink to take one send (at most a few chunks).
    pub(crate) sink: Duration,
}

impl Pace {
    /// When a source that began at `began`, has sent `bytes` and was last heard at `progress`, is too slow.
    pub(crate) fn source_deadline(&self, began: Time, progress: Time, bytes: u64) -> Time {
        let silence = progress + self.source;
        if self.rate_min == 0 {
            return silence;
        }
        let earned = Duration::from_millis(bytes.saturating_mul(1000) / self.rate_min);
        silence.min(began + self.source + earned)
    }
}

/// One direction of an exchange.
#[derive(Debug)]
pub(crate) struct Pump {
    decoder: Decoder,
    encoding: Encoding,
    pace: Pace,
    /// What goes out next; while `sending`, it is with the connection and this is empty.
    pieces: Pieces,
    sending: bool,
    /// The decoder has seen the end, and all of it stands in `pieces` or has gone.
    ended: bool,
    began: Time,
    progress: Time,
    /// Octets of body that have come.
    bytes: u64,
    /// More octets of body than this are refused.
    bytes_max: u64,
    /// Something of the body has been taken from the source, if only its framing: it cannot be had again.
    touched: bool,
    /// The source is received from in large buffers.
    wide: bool,
    /// Trailer lines for the sink: `None` where it has not asked for them.
    trailers: Option<Vec<u8>>,
    /// It has come to its end, good or bad.
    over: bool,
    /// Octets of body in `pieces`, and how many of them end the gathering.
    gathered: usize,
    gather_max: usize,
    /// A send has been begun: the peer may have seen some of it.
    started: bool,
    /// Spare vectors for chunk heads.
    spare: Vec<Vec<u8>>,
}

impl Pump {
    /// A pump for the body that `decoder` recognizes. `pieces` goes out ahead of it: the head.
    pub(crate) fn new(decoder: Decoder, encoding: Encoding, pace: Pace, pieces: Pieces, now: Time) -> Self {
        let ended = decoder.is_done();
        Self {
            decoder,
            encoding,
            pace,
            pieces,
            sending: false,
            ended,
            began: now,
            progress: now,
            bytes: 0,
            bytes_max: u64::MAX,
            touched: false,
            wide: true,
            trailers: None,
            over: false,
            gathered: 0,
            gather_max: SEND_BYTES_MAX,
            started: false,
            spare: Vec::new(),
        }
    }

    /// For a client's body: more than `bytes_max` octets are refused, and a body that turns out to be long is received
    /// in large buffers from then on.
    pub(crate) fn limited_to(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self.wide = false;
        self
    }

    /// For a sink that has asked for trailers (RFC 9110 6.5): they are passed on behind the last chunk.
    pub(crate) fn with_trailers(mut self) -> Self {
        self.trailers = Some(Vec::new());
        self
    }

    /// Something of the body has been taken from the source.
    pub(crate) const fn is_touched(&self) -> bool {
        self.touched
    }

    /// Finished, or broken: it must not be polled again.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Everything has been received, and taken by the sink.
    pub(crate) fn is_finished(&self) -> bool {
        self.ended && !self.sending && self.pieces.is_empty()
    }

    /// Something has been given to the sink, which may have seen it.
    pub(crate) const fn has_started(&self) -> bool {
        self.started
    }

    /// The pieces and vectors of what was sent, to be used again.
    pub(crate) fn into_parts(self) -> (Pieces, Vec<Vec<u8>>) {
        (self.pieces, self.spare)
    }

    /// The source's last octets came, or the sink's last were taken.
    pub(crate) const fn progress(&self) -> Time {
        self.progress
    }

    /// Goes on as far as it can. `Ready(Ok)` once, when [`is_finished`](Self::is_finished).
    ///
    /// Octets behind the body's end are put back on `from`.
    pub(crate) fn poll(&mut self, from: &Conn, to: &Conn, now: Time) -> Poll<Result<(), Broken>> {
        let polled = self.go_on(from, to, now);
        self.over = polled.is_ready();
        polled
    }

    fn go_on(&mut self, from: &Conn, to: &Conn, now: Time) -> Poll<Result<(), Broken>> {
        loop {
            if self.sending {
                match to.poll_sent(self.progress + self.pace.sink) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(mut pieces)) => {
                        pieces.recycle(|octets| self.spare.push(octets));
                        self.pieces = pieces;
                        self.sending = false;
                        self.progress = now;
                    }
                    Poll::Ready(Err(SendError::TimedOut)) => return Poll::Ready(Err(Broken::SinkSlow)),
                    Poll::Ready(Err(SendError::Failed(errno))) => return Poll::Ready(Err(Broken::Sink(errno))),
                }
            }
            self.gather(from, now)?;
            if self.pieces.is_empty() {
                return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            to.begin_send(std::mem::take(&mut self.pieces));
            self.sending = true;
            self.gathered = 0;
            self.started = true;
            self.progress = now;
        }
    }

    /// Takes what has arrived, as far as one send holds it.
    fn gather(&mut self, from: &Conn, now: Time) -> Result<(), Broken> {
        let scarce = from.io().buffers().is_scarce(Group::Large);
        self.gather_max = if scarce { 1 } else { SEND_BYTES_MAX };
        while !self.ended && self.room() {
            match from.poll_receive(self.source_deadline()) {
                Poll::Pending => break,
                Poll::Ready(Received::Data(chunk)) => {
                    self.progress = now;
                    self.take(from, chunk)?;
                }
                Poll::Ready(Received::End) => {
                    self.decoder.end_of_input().map_err(Broken::Framing)?;
                    self.end();
                }
                Poll::Ready(Received::Failed(errno)) => return Err(Broken::Source(errno)),
                Poll::Ready(Received::TimedOut) => {
                    // Octets that are on their way out keep a silent source alive: the sink is the slow one.
                    if self.pieces.is_empty() {
                        return Err(Broken::SourceSlow);
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Decodes one chunk into pieces; the surplus behind the body's end goes back to where it came from.
    fn take(&mut self, from: &Conn, mut chunk: Chunk) -> Result<(), Broken> {
        while !chunk.is_empty() {
            self.touched = true;
            let step = self.decoder.step(&chunk).map_err(Broken::Framing)?;
            if let Some(trailers) = &mut self.trailers {
                trailers.extend_from_slice(&chunk[step.trailers.clone()]);
            }
            if !step.data.is_empty() {
                self.bytes += step.data.len() as u64;
                self.gathered += step.data.len();
                if self.bytes > self.bytes_max {
                    return Err(Broken::Framing(Fault::BodyTooLarge));
                }
                if !self.wide && self.bytes > LARGE_BODY_BYTES {
                    self.wide = true;
                    from.use_group(Group::Large);
                }
                self.push(chunk.slice(step.data.clone()));
            }
            let rest = chunk.len() - step.consumed;
            if step.done {
                self.end();
                if rest > 0 {
                    from.put_back(chunk.slice(step.consumed..chunk.len()));
                }
                return Ok(());
            }
            if rest == 0 {
                return Ok(());
            }
            chunk = chunk.slice(step.consumed..chunk.len());
            if !self.room() {
                from.put_back(chunk);
                return Ok(());
            }
        }
        Ok(())
    }

    fn push(&mut self, data: Chunk) {
        match self.encoding {
            Encoding::Plain => self.pieces.push(Piece::Chunk(data)),
            Encoding::Chunked => {
                let mut head = self.spare.pop().unwrap_or_default();
                head.extend_from_slice(ChunkHead::new(data.len()).as_bytes());
                self.pieces.push(Piece::Scratch(head));
                self.pieces.push(Piece::Chunk(data));
                self.pieces.push(Piece::Static(body::CRLF));
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        if self.encoding == Encoding::Plain {
            return;
        }
        match self.trailers.take() {
            Some(trailers) if !trailers.is_empty() => {
                self.pieces.push(Piece::Static(b"0\r\n"));
                self.pieces.push(Piece::Scratch(trailers));
                self.pieces.push(Piece::Static(body::CRLF));
            }
            _ => self.pieces.push(Piece::Static(body::LAST_CHUNK)),
        }
    }

    /// One more chunk with its framing, and the last chunk, still fit one send. While buffers are scarce a send takes
    /// one chunk: what a slow peer has not taken pins as little as it can.
    fn room(&self) -> bool {
        if self.gathered >= self.gather_max {
            return false;
        }
        self.pieces.count() + 6 < SEND_PIECES_MAX
    }

    fn source_deadline(&self) -> Time {
        self.pace.source_deadline(self.began, self.progress, self.bytes)
    }
}
