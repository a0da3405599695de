//! A child that is a closure: what it does with a connection stands in the test that needs it. Also gates that tests
//! and children meet at, and a raw client that can end a connection in every way there is.
//!
//! [`Scripted`](crate::support::scripted) plays a list of steps once; this one decides anew for every connection and
//! every request, and may wait for the test. Both read with the same strict reader.
#![allow(dead_code, reason = "each suite uses its own part")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::support::client::{Ask, Client};
use crate::support::message::{self, Framing, Request, RequestHead};
use crate::support::scripted::{self, ANSWERS};
use crate::support::{PATIENCE, eventually};

#[derive(Default)]
struct Shared {
    heads: Mutex<Vec<RequestHead>>,
    requests: Mutex<Vec<Request>>,
    stop: AtomicBool,
    /// Connections that have been accepted and have not ended.
    open: AtomicUsize,
}

/// A running child. Dropping it ends its connections, save those that wait at a gate.
pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// One connection of a child, in its own thread.
pub(crate) struct Peer {
    stream: TcpStream,
    /// Received, and not yet part of a request that is over.
    unread: Vec<u8>,
    shared: Arc<Shared>,
    /// Before each time that it receives.
    pause: Duration,
}

// === impl Server ===

impl Server {
    /// Calls `serve` for every connection, in a thread of its own; the connection ends when it returns.
    pub(crate) fn start(serve: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static) -> Self {
        let (listener, port) = scripted::listen();
        Self::start_on(listener, port, serve)
    }

    /// On a port that another has had before.
    pub(crate) fn start_again(port: u16, serve: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static) -> Self {
        let listener = eventually("the port is free again", || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        Self::start_on(listener, port, serve)
    }

    fn start_on(
        listener: TcpListener,
        port: u16,
        serve: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let serve = Arc::new(serve);
        let listening = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if its.stop.load(Ordering::SeqCst) {
                    return;
                }
                let (serve, shared) = (Arc::clone(&serve), Arc::clone(&its));
                shared.open.fetch_add(1, Ordering::SeqCst);
                let connection = move || {
                    let open = Arc::clone(&shared);
                    let set = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_read_timeout(Some(Duration::from_millis(50))))
                        .and_then(|()| stream.set_write_timeout(Some(PATIENCE * 2)));
                    if set.is_ok() {
                        let _ = serve(&mut Peer { stream, unread: Vec::new(), shared, pause: Duration::ZERO });
                    }
                    open.open.fetch_sub(1, Ordering::SeqCst);
                };
                // Hundreds of these may stand at once.
                Builder::new().stack_size(256 * 1024).spawn(connection).expect("a thread for a connection");
            }
        });
        Self { port, shared, listening: Some(listening) }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Waits until all that a client which has ended had sent is done with: nothing of it comes after what is sent next.
    #[track_caller]
    pub(crate) fn drain(&self) {
        // Connections are accepted in order: before this one all of that client's were.
        let mut last = Client::connect(self.port).expect("a child that runs");
        last.ask(&Ask::get("/health")).expect("a child that answers");
        eventually("no connection but this", || (self.shared.open.load(Ordering::SeqCst) == 1).then_some(()));
    }

    /// Complete requests, in the order of their ends.
    pub(crate) fn requests(&self) -> Vec<Request> {
        guard(&self.shared.requests).clone()
    }

    /// Heads, also of requests that never became complete, in the order of their coming.
    pub(crate) fn heads(&self) -> Vec<RequestHead> {
        guard(&self.shared.heads).clone()
    }

    /// The targets of all heads.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.heads().iter().map(target).collect()
    }

    /// Waits until this many heads have come.
    #[track_caller]
    pub(crate) fn wait_heads(&self, count: usize) {
        eventually(&format!("{count} requests"), || (guard(&self.shared.heads).len() >= count).then_some(()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A head's target as text.
pub(crate) fn target(head: &RequestHead) -> String {
    String::from_utf8_lossy(&head.target).into_owned()
}

// === impl Peer ===

/// `None` throughout: the connection has ended, or the test has.
impl Peer {
    /// The next head; its body is still to come.
    pub(crate) fn head(&mut self) -> Option<RequestHead> {
        loop {
            if let Some(head) = message::request_head(&self.unread) {
                let head = head.unwrap_or_else(|unlawful| panic!("antiphon sent {unlawful}"));
                self.unread.drain(..head.octets.len());
                guard(&self.shared.heads).push(head.clone());
                return Some(head);
            }
            self.fill()?;
        }
    }

    /// The body that belongs to a head which has come.
    pub(crate) fn body(&mut self, head: RequestHead) -> Option<Request> {
        loop {
            // antiphon sends no request before the last is answered, so this is the end; and looking for it is cheap.
            let may_be_whole = head.framing != Framing::Chunked || self.unread.ends_with(b"0\r\n\r\n");
            if may_be_whole {
                let body = message::body(head.framing, &self.unread, false);
                let body = body.unwrap_or_else(|unlawful| panic!("antiphon sent {unlawful}"));
                if body.whole {
                    let used = body.used;
                    let request = Request { head, body: body.data.into_owned() };
                    self.unread.drain(..used);
                    guard(&self.shared.requests).push(request.clone());
                    return Some(request);
                }
            }
            self.fill()?;
        }
    }

    /// The next whole request.
    pub(crate) fn request(&mut self) -> Option<Request> {
        let head = self.head()?;
        self.body(head)
    }

    /// This many octets, whatever they are.
    pub(crate) fn octets(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Some(self.unread.drain(..count).collect())
    }

    /// All octets until the other side's end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill().is_some() {}
        std::mem::take(&mut self.unread)
    }

    /// Octets, whether they are right or wrong.
    pub(crate) fn send(&mut self, octets: &[u8]) -> Option<()> {
        self.stream.write_all(octets).ok()
    }

    /// Nothing more is sent; receiving goes on.
    pub(crate) fn shut_write(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends it with a reset.
    pub(crate) fn reset(&mut self) -> Option<()> {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        None
    }

    /// Takes few octets at a time from now on, with a pause before each.
    pub(crate) fn slow_down(&mut self, pause: Duration) {
        let _ = SockRef::from(&self.stream).set_recv_buffer_size(64 * 1024);
        self.pause = pause;
    }

    /// Receives once; how many octets have come and wait.
    pub(crate) fn fill(&mut self) -> Option<usize> {
        let mut buffer = [0; 32 * 1024];
        thread::sleep(self.pause);
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return None;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => {
                    self.unread.extend_from_slice(&buffer[..count]);
                    return Some(self.unread.len());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                }
                Err(_) => return None,
            }
        }
    }
}

/// The answer that names what it answers, `ok` as its body.
pub(crate) fn ok(head: &RequestHead) -> Vec<u8> {
    let body = if head.method == "HEAD" { "" } else { "ok" };
    format!("HTTP/1.1 200 OK\r\n{ANSWERS}: {}\r\nContent-Length: 2\r\n\r\n{body}", target(head)).into_bytes()
}

/// A child without faults: answers every request with [`ok`].
pub(crate) fn behave(peer: &mut Peer) -> Option<()> {
    loop {
        let request = peer.request()?;
        peer.send(&ok(&request.head))?;
    }
}

// === gates ===

/// What children wait at until the test lets them go on.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed one.
    pub(crate) fn closed() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn open(&self) {
        guard(&self.state).open = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        guard(&self.state).open = false;
    }

    /// Waits until it is open. Not for ever: a test may have failed.
    pub(crate) fn pass(&self) {
        let mut state = guard(&self.state);
        state.waiting += 1;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, PATIENCE * 3, |state| !state.open)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.waiting -= 1;
    }

    /// Waits until this many stand before it.
    #[track_caller]
    pub(crate) fn wait_waiting(&self, count: usize) {
        eventually(&format!("{count} at the gate"), || (guard(&self.state).waiting == count).then_some(()));
    }
}

// === raw clients ===

/// A connection to antiphon, with time-outs.
pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("antiphon listens");
    prepare(&stream);
    stream
}

/// A connection that holds few octets on its way.
pub(crate) fn connect_narrow(port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // Before the connect: the window is agreed on there. Below the largest segment of the loopback device (64 KiB) the
    // kernel's timers would set the pace.
    let bytes = 64 * 1024;
    socket.set_recv_buffer_size(bytes).and_then(|()| socket.set_send_buffer_size(bytes)).expect("a socket");
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("antiphon listens");
    let stream = TcpStream::from(socket);
    prepare(&stream);
    stream
}

fn prepare(stream: &TcpStream) {
    let set = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    set.expect("a socket");
}

/// Sends and expects that antiphon takes it.
#[track_caller]
pub(crate) fn send(mut stream: &TcpStream, octets: &[u8]) {
    stream.write_all(octets).expect("antiphon reads");
}

/// Receives up to the end of a head and not an octet more.
#[track_caller]
pub(crate) fn receive_head(mut stream: &TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream
            .read_exact(&mut octet)
            .unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&head)));
        head.extend(octet);
    }
    head
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Reset,
}

/// Receives until the end.
#[track_caller]
pub(crate) fn receive_all(mut stream: &TcpStream) -> (Vec<u8>, Ended) {
    let mut octets = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (octets, Ended::Closed),
            Ok(count) => octets.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return (octets, Ended::Reset);
            }
            Err(error) => panic!("{error} after {} octets: {:.400}", octets.len(), String::from_utf8_lossy(&octets)),
        }
    }
}

/// Ends it with a reset.
pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}

// === octets, memory, descriptors ===

/// Octets without a period that could hide a piece that is missing, doubled or exchanged.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    (0..count.div_ceil(4)).flat_map(|_| next()).take(count).collect()
}

/// A body in chunks of this size.
pub(crate) fn in_chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + body.len() / size * 10 + 16);
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[track_caller]
pub(crate) fn assert_same(what: &str, found: &[u8], wanted: &[u8]) {
    let differs = found.iter().zip(wanted).position(|(one, other)| one != other);
    assert!(found == wanted, "{what}: {} octets of {}, first difference at {differs:?}", found.len(), wanted.len());
}

/// The most memory that a process has had resident, octets.
pub(crate) fn peak_resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
