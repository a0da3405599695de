//! A case's steps, carried out: the client's one connection, and the words of scripts as data.

#![allow(unreachable_pub, reason = "a module of a test crate, not of a library")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::support::PATIENCE;
use crate::support::message;
use crate::support::scripted::Step;

/// How long an `until` waits.
const UNTIL: Duration = Duration::from_secs(10);

/// How a client's connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    ResetByProxy,
    ResetByUs,
}

/// The case's one client connection.
pub struct Wire {
    /// `None` once we have reset it.
    stream: Option<TcpStream>,
    /// All that was received.
    pub octets: Vec<u8>,
    pub end: Option<End>,
}

impl Wire {
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the proxy listens");
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).expect("a socket");
        Self { stream: Some(stream), octets: Vec::new(), end: None }
    }

    /// Does one step. A connection that has ended takes no more. `meanwhile` is called while nothing is read.
    pub fn step(&mut self, step: &Value, mut meanwhile: impl FnMut()) {
        let number = |key: &str| step.get(key).and_then(Value::as_u64);
        if let Some(split) = step.get("split") {
            for octet in latin1(split.as_str().expect("a string")) {
                self.pump(&[octet], UNTIL, |_| true);
                thread::sleep(Duration::from_millis(1));
            }
        } else if let Some(octets) = octets_of(step) {
            self.pump(&octets, PATIENCE, |_| true);
        } else if let Some(ms) = number("wait_ms") {
            self.pump(&[], Duration::from_millis(ms), |_| false);
        } else if let Some(ms) = number("no_read_ms") {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(ms) {
                meanwhile();
                thread::sleep(Duration::from_millis(50));
            }
        } else if let Some(until) = step.get("until") {
            let until = until.as_str().expect("a string");
            self.pump(&[], UNTIL, |wire| wire.has_answer(until));
        } else if step.get("half_close").is_some() {
            if let Some(stream) = &self.stream {
                let _ = stream.shutdown(Shutdown::Write);
            }
        } else if step.get("reset").is_some() {
            if let Some(stream) = self.stream.take() {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
            }
            self.end = Some(End::ResetByUs);
        } else {
            panic!("a step that is not known here: {step}");
        }
    }

    /// `100`, `101`: that status, or a final one, which ends the wait as well. `response`: a final one.
    fn has_answer(&self, until: &str) -> bool {
        let received = message::received(&self.octets, false, false);
        let interim = received.interim.iter().any(|head| head.status.to_string() == until);
        assert!(matches!(until, "100" | "101" | "response"), "until `{until}` is not known here");
        interim || !received.finals.is_empty() || received.unlawful.is_some()
    }

    /// Sends `out` and receives, until all is sent and `done`, or `limit`, or the end.
    pub fn pump(&mut self, out: &[u8], limit: Duration, done: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        let mut out = out;
        loop {
            if out.is_empty() && done(self) {
                return;
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            let Some(stream) = self.stream.as_ref().filter(|_| self.end.is_none()) else {
                // Ended: nothing more can come, and waiting would only be waiting.
                thread::sleep(left.min(Duration::from_millis(20)));
                return;
            };
            let flags = if out.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let wait = Timespec::try_from(left.min(Duration::from_millis(100))).expect("a short time");
            let mut polled = [PollFd::new(stream, flags)];
            let _ = poll(&mut polled, Some(&wait));
            let ready = polled[0].revents();
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.receive();
            }
            if ready.contains(PollFlags::OUT) && self.end.is_none() {
                out = self.send(out);
            }
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; 64 * 1024];
        let Some(stream) = self.stream.as_mut() else { return };
        match stream.read(&mut buffer) {
            Ok(0) => self.end = Some(End::Closed),
            Ok(count) => self.octets.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.end = Some(End::ResetByProxy),
        }
    }

    /// Sends what fits; the rest.
    fn send<'a>(&mut self, out: &'a [u8]) -> &'a [u8] {
        let Some(stream) = self.stream.as_mut() else { return &[] };
        match stream.write(out) {
            Ok(count) => &out[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => out,
            // Closed for sending: what was answered before may still be read.
            Err(_) => &[],
        }
    }
}

// === steps as octets ===

/// One character U+0000 to U+00FF is one octet.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).expect("a character up to U+00FF")).collect()
}

/// The octets of a step that sends.
pub fn octets_of(step: &Value) -> Option<Vec<u8>> {
    if let Some(text) = step.as_str().or_else(|| step.get("split").and_then(Value::as_str)) {
        return Some(latin1(text));
    }
    let unit = latin1(step.get("rep")?.as_str()?);
    let count = usize::try_from(step.get("n")?.as_u64()?).ok()?;
    Some(unit.repeat(count))
}

/// A step of the child's script.
pub fn script_of(step: &Value) -> Vec<Step> {
    if let Some(octets) = octets_of(step) {
        return vec![Step::Send(octets)];
    }
    if let Some(what) = step.get("recv").and_then(Value::as_str) {
        return match what {
            "head" => vec![Step::Head],
            "request" => vec![Step::Request],
            "head_then_close" => vec![Step::Head, Step::Close],
            "request_then_close" => vec![Step::Request, Step::Close],
            other => panic!("recv `{other}` is not known here"),
        };
    }
    let number = |key: &str| step.get(key).and_then(Value::as_u64);
    if let Some(count) = number("recv_bytes") {
        return vec![Step::Octets(usize::try_from(count).expect("few"))];
    }
    if let Some(ms) = number("wait_ms") {
        return vec![Step::Wait(Duration::from_millis(ms))];
    }
    if step.get("close").is_some() {
        return vec![Step::Close];
    }
    if step.get("reset").is_some() {
        return vec![Step::Reset];
    }
    panic!("a step that is not known here: {step}");
}
