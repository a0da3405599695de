//! A child that speaks ACI: it answers `autnresponse`, applies what changes it, and keeps every change with all its
//! octets, in order. It can be stopped and started again on its port with what it knows, be made slow, and vanish in
//! the middle of a change.
//!
//! How it finds the action is its own: percent-decode everything, then look for the names it knows. Cruder than the
//! proxy's reader, and independent of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::message::{self, Request};
use super::{PATIENCE, eventually, scripted};

/// Actions that change this server. The longer of two names that begin alike comes first.
const CHANGES: &[&str] =
    &["useradd", "userdelete", "useredit", "categorycreate", "categorysetdetails", "categorymove", "roleadd"];
/// Actions that it answers, and that leave it as it is. A `QueueAction` looks like an action, so its own comes first.
const READS: &[&str] = &["queueinfo", "getpid", "getstatus", "userread", "query", "list", ASYNCHRONOUS];
/// The read that it answers with a token.
const ASYNCHRONOUS: &str = "summarize";

/// One thing that happened, in the order in which it did.
#[derive(Clone, Debug)]
pub enum Event {
    Change(Request),
    Read(Request),
    Probe,
}

/// When a server vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vanish {
    BeforeApplying,
    AfterApplying,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    /// For the next change only.
    vanish: Option<Vanish>,
    /// A status instead of an answer, for the next changes.
    failures: Vec<u16>,
    /// Changes wait at this gate before they are applied.
    gated: bool,
    /// Changes that wait there.
    waiting: usize,
    /// What its tokens say of its address, if that is not where it listens.
    advertised: Option<String>,
    /// The tokens that it has given out.
    tokens: Vec<String>,
    /// Every read and change waits so long before its answer.
    pause: Duration,
    /// Probes are read and not answered.
    mute: bool,
    /// Connections so far.
    connections: u64,
    /// Every request: the number of its connection, and the action.
    exchanges: Vec<(u64, String)>,
    /// Connections to be cut when it stops.
    streams: Vec<TcpStream>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    gate: Condvar,
    down: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of this child has failed")
    }
}

/// A running, or stopped, server.
#[derive(Debug)]
pub struct AciServer {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl AciServer {
    pub fn start() -> Self {
        let (listener, port) = scripted::listen();
        let shared = Arc::new(Shared::default());
        let listening = Some(listen_on(listener, &shared));
        Self { port, shared, listening }
    }

    /// As many as there are names.
    pub fn several<const COUNT: usize>() -> [Self; COUNT] {
        std::array::from_fn(|_| Self::start())
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Closes the listener and every connection. What it knows stays.
    pub fn stop(&mut self) {
        self.shared.down.store(true, Ordering::SeqCst);
        self.shared.gate.notify_all();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listening) = self.listening.take() {
            listening.join().expect("the listener's thread");
        }
        for stream in self.shared.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// On the same port, with what it knew.
    pub fn start_again(&mut self) {
        assert!(self.listening.is_none(), "it runs");
        let port = self.port;
        let listener = eventually("the port is free again", || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        self.shared.down.store(false, Ordering::SeqCst);
        self.listening = Some(listen_on(listener, &self.shared));
    }

    /// Everything, in order.
    pub fn events(&self) -> Vec<Event> {
        self.shared.state().events.clone()
    }

    /// The changes it has applied, in order.
    pub fn changes(&self) -> Vec<Request> {
        let change = |event: &Event| if let Event::Change(request) = event { Some(request.clone()) } else { None };
        self.shared.state().events.iter().filter_map(change).collect()
    }

    /// The reads it has answered.
    pub fn reads(&self) -> Vec<Request> {
        let read = |event: &Event| if let Event::Read(request) = event { Some(request.clone()) } else { None };
        self.shared.state().events.iter().filter_map(read).collect()
    }

    pub fn probes(&self) -> usize {
        self.shared.state().events.iter().filter(|event| matches!(event, Event::Probe)).count()
    }

    /// The next change is not answered: the connection ends instead.
    pub fn vanish_once(&self, when: Vanish) {
        self.shared.state().vanish = Some(when);
    }

    /// The next changes are not applied, and answered with these statuses.
    pub fn fail(&self, statuses: &[u16]) {
        self.shared.state().failures = statuses.iter().rev().copied().collect();
    }

    /// Changes wait until [`open_gate`](Self::open_gate).
    pub fn close_gate(&self) {
        self.shared.state().gated = true;
    }

    pub fn open_gate(&self) {
        self.shared.state().gated = false;
        self.shared.gate.notify_all();
    }

    /// Changes that have come and wait at the gate.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting
    }

    /// Its tokens name this address from now on.
    pub fn advertise(&self, address: &str) {
        self.shared.state().advertised = Some(address.to_owned());
    }

    /// The tokens that it has given out.
    pub fn tokens(&self) -> Vec<String> {
        self.shared.state().tokens.clone()
    }

    /// Probes are not answered until this is called with false.
    pub fn mute_probes(&self, mute: bool) {
        self.shared.state().mute = mute;
        self.shared.gate.notify_all();
    }

    /// Every request that has come: the number of its connection, and its action in small letters.
    pub fn exchanges(&self) -> Vec<(u64, String)> {
        self.shared.state().exchanges.clone()
    }

    /// Every answer but a probe's takes so long.
    pub fn pause(&self, pause: Duration) {
        self.shared.state().pause = pause;
    }
}

impl Drop for AciServer {
    fn drop(&mut self) {
        if self.listening.is_some() {
            self.stop();
        }
    }
}

/// What makes two changes the same on all children: everything but the head's forwarding fields.
pub fn key(request: &Request) -> (String, String, Option<String>, Vec<u8>) {
    (request.head.method.clone(), request.path(), request.head.fields.text("content-type"), request.body.clone())
}

fn listen_on(listener: TcpListener, shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut state = shared.state();
            if shared.down.load(Ordering::SeqCst) {
                return;
            }
            state.streams.retain(|stream| stream.peer_addr().is_ok());
            state.streams.extend(stream.try_clone());
            drop(state);
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve(stream, &shared));
        }
    })
}

/// Serves a connection until its end, ours or the other's.
fn serve(mut stream: TcpStream, shared: &Shared) {
    let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE * 4)));
    let mut unread = Vec::new();
    let connection = {
        let mut state = shared.state();
        state.connections += 1;
        state.connections
    };
    let port = stream.local_addr().map_or(0, |address| address.port());
    while set.is_ok() {
        let Some(request) = next_request(&mut stream, &mut unread) else { break };
        let answer = act(&request, connection, port, shared);
        let Some(answer) = answer.filter(|_| !shared.down.load(Ordering::SeqCst)) else { break };
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn next_request(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Request> {
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(head) = message::request_head(unread) {
            let head = head.ok()?;
            let from = head.octets.len();
            let body = message::body(head.framing, &unread[from..], false).ok()?;
            if body.whole {
                let used = from + body.used;
                let request = Request { head, body: body.data.into_owned() };
                unread.drain(..used);
                return Some(request);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => unread.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Carries a request out; the answer, or `None` to vanish.
fn act(request: &Request, connection: u64, port: u16, shared: &Shared) -> Option<Vec<u8>> {
    let action = action(request);
    let mut state = shared.state();
    state.exchanges.push((connection, action.clone()));
    if action == "getpid" {
        state.events.push(Event::Probe);
        let mute = |state: &mut State| state.mute && !shared.down.load(Ordering::SeqCst);
        drop(shared.gate.wait_while(state, mute).expect("no thread of this child has failed"));
        return Some(answer(200, &action, "<pid>1</pid>"));
    }
    if !CHANGES.contains(&action.as_str()) {
        state.events.push(Event::Read(request.clone()));
        let text = decoded(&[request.head.target.as_slice(), b"\n", &request.body].concat());
        let data = match action.as_str() {
            ASYNCHRONOUS => {
                let address = state.advertised.clone().unwrap_or_else(|| format!("127.0.0.1:{port}"));
                let token = base64(format!("{address}:SUMMARIZE:{}", state.tokens.len() + 1).as_bytes());
                state.tokens.push(token.clone());
                format!("<token>{token}</token>")
            }
            "queueinfo" => {
                let known = state.tokens.iter().filter(|token| text.contains(*token));
                known.map(|token| format!("<action><token>{token}</token></action>")).collect()
            }
            _ => format!("<changes>{}</changes>", count_changes(&state)),
        };
        let pause = state.pause;
        drop(state);
        thread::sleep(pause);
        return Some(answer(200, &action, &data));
    }
    state.waiting += 1;
    let open = |state: &mut State| state.gated && !shared.down.load(Ordering::SeqCst);
    let mut state = shared.gate.wait_while(state, open).expect("no thread of this child has failed");
    state.waiting -= 1;
    if shared.down.load(Ordering::SeqCst) {
        return None;
    }
    if let Some(status) = state.failures.pop() {
        return Some(answer(status, &action, ""));
    }
    let vanish = state.vanish.take();
    if vanish == Some(Vanish::BeforeApplying) {
        return None;
    }
    state.events.push(Event::Change(request.clone()));
    let (pause, uid) = (state.pause, count_changes(&state));
    drop(state);
    if vanish == Some(Vanish::AfterApplying) {
        return None;
    }
    thread::sleep(pause);
    Some(answer(200, &action, &format!("<uid>{uid}</uid>")))
}

/// The standard alphabet, padded (RFC 4648 4).
pub fn base64(plain: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        let letter = |at: usize| match at <= three.len() {
            true => char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    plain.chunks(3).map(group).collect()
}

fn count_changes(state: &State) -> usize {
    state.events.iter().filter(|event| matches!(event, Event::Change(_))).count()
}

/// The action of a request; `unknown` where it has none that we know.
fn action(request: &Request) -> String {
    let text = [request.head.target.as_slice(), b"\n", &request.body].concat();
    let text = decoded(&text).to_ascii_lowercase();
    // A name stands behind `action=` or `a=`, or in a part of that name after its empty line.
    let follows = |name: &str| {
        ["action=", "a=", "name=\"action\"\r\n\r\n", "name=\"a\"\r\n\r\n"]
            .iter()
            .any(|before| text.contains(&format!("{before}{name}")))
    };
    CHANGES
        .iter()
        .chain(READS)
        .find(|name| follows(name))
        .map_or_else(|| "unknown".to_owned(), |name| (*name).to_owned())
}

fn decoded(octets: &[u8]) -> String {
    let mut text = Vec::with_capacity(octets.len());
    let mut rest = octets;
    while let Some((first, tail)) = rest.split_first() {
        let digits = if *first == b'%' { tail.get(..2).and_then(|two| std::str::from_utf8(two).ok()) } else { None };
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(octet) => {
                text.push(octet);
                rest = &tail[2..];
            }
            None => {
                text.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn answer(status: u16, action: &str, data: &str) -> Vec<u8> {
    let response = if status == 200 { "SUCCESS" } else { "ERROR" };
    let body = format!(
        "<?xml version='1.0' encoding='UTF-8' ?>\n<autnresponse xmlns:autn='http://schemas.autonomy.com/aci/'>\
         <action>{}</action><response>{response}</response><responsedata>{data}</responsedata></autnresponse>",
        action.to_ascii_uppercase()
    );
    let length = body.len();
    format!("HTTP/1.1 {status} Answer\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
