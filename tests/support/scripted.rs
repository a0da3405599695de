//! A child that plays a script, then behaves; and remembers every octet.
//!
//! The script is for the first connection on which an octet arrives (a probe by connect brings none). After it, and
//! on every other connection, each complete request is answered with 200 and `ok`. Requests that name [`AFTERWARDS`]
//! stand apart in the record: they are how a test looks whether the world is still in order.
//! An answer of this child's own names its request in [`ANSWERS`].

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::PATIENCE;
use super::message::{self, Request, RequestHead};

/// What the targets of requests hold that do not belong to the case.
pub const AFTERWARDS: &str = "afterwards";

/// The field that names the target which an answer is for.
pub const ANSWERS: &str = "X-Answers";

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// Wait for the next request's head.
    Head,
    /// Wait for the next request's end.
    Request,
    /// Wait for this many octets, whatever they are.
    Octets(usize),
    Send(Vec<u8>),
    Wait(Duration),
    Close,
    Reset,
}

/// What happened on one connection.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every octet received.
    pub octets: Vec<u8>,
    /// Complete requests, in order.
    pub requests: Vec<Request>,
    /// Heads, also of requests that never became complete.
    pub heads: Vec<RequestHead>,
    /// What was received by [`Step::Octets`].
    pub raw: Vec<u8>,
    /// Why what came is not HTTP.
    pub unlawful: Option<String>,
    /// It played the script.
    pub scripted: bool,
    /// The proxy has closed or reset it.
    pub closed_by_proxy: bool,
    /// We have closed it.
    pub closed_by_us: bool,
    /// Statuses sent.
    pub statuses: Vec<u16>,
}

impl Record {
    /// Complete requests that belong to the case.
    pub fn case_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| !request.path().contains(AFTERWARDS))
    }

    pub fn saw_afterwards(&self) -> bool {
        self.requests.iter().any(|request| request.path().contains(AFTERWARDS))
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// Taken by the first connection with an octet.
    script: Mutex<Option<Vec<Step>>>,
    records: Mutex<Vec<Record>>,
    stop: AtomicBool,
}

impl Shared {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().expect("no thread of this child has failed")
    }
}

/// A running child.
#[derive(Debug)]
pub struct Scripted {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts one with a script, which may be empty.
    pub fn start(script: Vec<Step>) -> Self {
        let (listener, port) = listen();
        let shared = Arc::new(Shared { script: Mutex::new(Some(script)), ..Shared::default() });
        let listening = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { port, shared, listening: Some(listening) }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What has happened so far, one record for each connection that brought an octet.
    pub fn records(&self) -> Vec<Record> {
        self.shared.records().iter().filter(|record| !record.octets.is_empty()).cloned().collect()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

/// A listener on a port that only we use.
pub fn listen() -> (TcpListener, u16) {
    loop {
        let port = super::ports::free();
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return (listener, port);
        }
    }
}

/// Accepts until a connection brings a request: probes by connect bring none.
pub fn accept_request(listener: &TcpListener) -> TcpStream {
    loop {
        let (stream, _) = listener.accept().expect("a connection of the proxy");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        if stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
            return stream;
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let index = {
                let mut records = shared.records();
                records.push(Record::default());
                records.len() - 1
            };
            let mut connection = Connection { stream, shared, index, unread: Vec::new(), begun: None };
            let ended = connection.serve();
            connection.note(|record| match ended {
                Ended::ByProxy => record.closed_by_proxy = true,
                Ended::ByUs => record.closed_by_us = true,
            });
        });
    }
}

/// How a connection ended.
enum Ended {
    ByProxy,
    ByUs,
}

/// One connection, in its own thread.
struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    index: usize,
    /// Received, and not yet part of a request that is over.
    unread: Vec<u8>,
    /// The request whose head has come and whose end has not been waited for.
    begun: Option<RequestHead>,
}

impl Connection {
    fn note<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        note(&mut self.shared.records()[self.index])
    }

    fn serve(&mut self) -> Ended {
        let _ = self.stream.set_nodelay(true);
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(50)));
        let _ = self.stream.set_write_timeout(Some(PATIENCE));
        match self.play() {
            Ok(()) => Ended::ByUs,
            Err(ended) => ended,
        }
    }

    fn play(&mut self) -> Result<(), Ended> {
        self.fill()?;
        let script = self.shared.script.lock().expect("no thread of this child has failed").take();
        let mut answered = false;
        if let Some(script) = script {
            self.note(|record| record.scripted = true);
            for step in script {
                match step {
                    Step::Head => {
                        self.head()?;
                        answered = false;
                    }
                    Step::Request => {
                        self.request()?;
                        answered = false;
                    }
                    Step::Octets(count) => self.raw(count)?,
                    Step::Send(octets) => {
                        answered |= self.begun.is_some() && statuses(&octets).iter().any(|status| *status >= 200);
                        self.send(&octets)?;
                    }
                    Step::Wait(time) => self.wait(time),
                    Step::Close => {
                        let _ = self.stream.shutdown(Shutdown::Both);
                        return Ok(());
                    }
                    Step::Reset => {
                        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
                        return Ok(());
                    }
                }
            }
        }
        if answered {
            // The script has answered from the head alone: the rest of that request gets no second answer.
            self.request()?;
        }
        loop {
            let target = self.request()?;
            self.send(format!("HTTP/1.1 200 OK\r\n{ANSWERS}: {target}\r\nContent-Length: 2\r\n\r\nok").as_bytes())?;
        }
    }

    /// Waits for octets. An end is the proxy's doing.
    fn fill(&mut self) -> Result<(), Ended> {
        let mut buffer = [0; 64 * 1024];
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(Ended::ByUs);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Ended::ByProxy),
                Ok(count) => {
                    self.unread.extend_from_slice(&buffer[..count]);
                    self.note(|record| record.octets.extend_from_slice(&buffer[..count]));
                    return Ok(());
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                }
                Err(_) => return Err(Ended::ByProxy),
            }
        }
    }

    /// Waits for a head, unless one has begun already.
    fn head(&mut self) -> Result<(), Ended> {
        if self.begun.is_some() {
            return Ok(());
        }
        loop {
            match message::request_head(&self.unread) {
                None => self.fill()?,
                Some(Err(unlawful)) => {
                    self.note(|record| record.unlawful = Some(unlawful));
                    return Err(Ended::ByUs);
                }
                Some(Ok(head)) => {
                    self.unread.drain(..head.octets.len());
                    self.note(|record| record.heads.push(head.clone()));
                    self.begun = Some(head);
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the end of the request whose head has come, or of the next; its target.
    fn request(&mut self) -> Result<String, Ended> {
        self.head()?;
        let head = self.begun.clone().expect("a head has come");
        loop {
            match message::body(head.framing, &self.unread, false) {
                Err(unlawful) => {
                    self.note(|record| record.unlawful = Some(unlawful));
                    return Err(Ended::ByUs);
                }
                Ok(body) if body.whole => {
                    let used = body.used;
                    let request = Request { head, body: body.data.into_owned() };
                    let target = request.path();
                    self.unread.drain(..used);
                    self.begun = None;
                    self.note(|record| record.requests.push(request));
                    return Ok(target);
                }
                Ok(_) => self.fill()?,
            }
        }
    }

    /// Waits for octets behind a request that has ended with its head.
    fn raw(&mut self, count: usize) -> Result<(), Ended> {
        if self.begun.is_some() {
            self.request()?;
        }
        while self.unread.len() < count {
            self.fill()?;
        }
        let octets: Vec<u8> = self.unread.drain(..count).collect();
        self.note(|record| record.raw.extend_from_slice(&octets));
        Ok(())
    }

    fn send(&mut self, octets: &[u8]) -> Result<(), Ended> {
        self.note(|record| record.statuses.extend(statuses(octets)));
        self.stream.write_all(octets).map_err(|_| Ended::ByProxy)
    }

    fn wait(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

/// The statuses of the answers in these octets; of what only looks like one, too.
fn statuses(octets: &[u8]) -> Vec<u16> {
    // Answers begin near the start: no need to search megabytes of body.
    let text = String::from_utf8_lossy(&octets[..octets.len().min(1000)]);
    text.split("HTTP/1.").skip(1).filter_map(|rest| rest.get(2..5)?.parse().ok()).collect()
}
