//! A client: octets out, answers in, nothing forgiven.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::PATIENCE;
use super::message::{self, Response};

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens.
    Connect(std::io::Error),
    /// The connection ended before the answer did; what came of it.
    Cut(Vec<u8>),
    /// Nothing within the give-up limit; what came so far.
    Silent(Vec<u8>),
    /// Not HTTP as it should be.
    Unlawful(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(out, "no connection: {error}"),
            Self::Cut(octets) => write!(out, "cut off after `{}`", String::from_utf8_lossy(octets)),
            Self::Silent(octets) => write!(out, "silent after `{}`", String::from_utf8_lossy(octets)),
            Self::Unlawful(why) => write!(out, "not lawful: {why}"),
        }
    }
}

/// A socket of either kind.
trait Stream: Read + Write + fmt::Debug + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// One connection, kept alive.
#[derive(Debug)]
pub struct Client {
    stream: Box<dyn Stream>,
    /// Received and not yet part of an answer.
    octets: Vec<u8>,
    ended: bool,
    host: String,
}

impl Client {
    /// Connects to 127.0.0.1.
    pub fn connect(port: u16) -> Result<Self, NoAnswer> {
        Self::connect_within(port, PATIENCE)
    }

    /// Connects; waits at most `limit` for each arrival.
    pub fn connect_within(port: u16, limit: Duration) -> Result<Self, NoAnswer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(NoAnswer::Connect)?;
        let set = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(limit)))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map_err(NoAnswer::Connect)?;
        Ok(Self { stream: Box::new(stream), octets: Vec::new(), ended: false, host: address.to_string() })
    }

    /// Connects to 127.0.0.1 from another address of this machine.
    pub fn connect_from(source: Ipv4Addr, port: u16) -> Result<Self, NoAnswer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(NoAnswer::Connect)?;
        let connected = socket
            .bind(&SocketAddr::from((source, 0)).into())
            .and_then(|()| socket.connect(&address.into()))
            .and_then(|()| socket.set_read_timeout(Some(PATIENCE)));
        connected.map_err(NoAnswer::Connect)?;
        let stream = TcpStream::from(socket);
        Ok(Self { stream: Box::new(stream), octets: Vec::new(), ended: false, host: address.to_string() })
    }

    /// Connects to a Unix socket.
    pub fn connect_unix(path: &Path) -> Result<Self, NoAnswer> {
        let stream = UnixStream::connect(path).map_err(NoAnswer::Connect)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(NoAnswer::Connect)?;
        Ok(Self { stream: Box::new(stream), octets: Vec::new(), ended: false, host: "localhost".into() })
    }

    /// Sends octets as they are.
    pub fn send(&mut self, octets: &[u8]) -> Result<(), NoAnswer> {
        self.stream.write_all(octets).map_err(|_| NoAnswer::Cut(self.octets.clone()))
    }

    /// Reads the next final answer. `to_head`: to a HEAD, so without a body.
    pub fn answer(&mut self, to_head: bool) -> Result<Response, NoAnswer> {
        loop {
            if let Some(response) = self.whole_answer(to_head).map_err(NoAnswer::Unlawful)? {
                return Ok(response);
            }
            if self.ended {
                return Err(NoAnswer::Cut(self.octets.clone()));
            }
            self.fill()?;
        }
    }

    /// Takes the next final answer, and the interim ones before it, if it has come to its end.
    fn whole_answer(&mut self, to_head: bool) -> Result<Option<Response>, String> {
        let mut at = 0;
        while let Some(head) = message::response_head(&self.octets[at..], to_head) {
            let head = head?;
            at += head.octets.len();
            if head.is_interim() {
                continue;
            }
            let body = message::body(head.framing, &self.octets[at..], self.ended)?;
            if !body.whole {
                return Ok(None);
            }
            let used = at + body.used;
            let response = Response { head, body: body.data.into_owned(), whole: true };
            self.octets.drain(..used);
            return Ok(Some(response));
        }
        Ok(None)
    }

    /// The next interim answer's status, such as 100; it is taken.
    pub fn interim(&mut self) -> Result<u16, NoAnswer> {
        loop {
            if let Some(head) = message::response_head(&self.octets, false) {
                let head = head.map_err(NoAnswer::Unlawful)?;
                self.octets.drain(..head.octets.len());
                return Ok(head.status);
            }
            if self.ended {
                return Err(NoAnswer::Cut(self.octets.clone()));
            }
            self.fill()?;
        }
    }

    /// Reads this many octets, whatever they are.
    pub fn octets(&mut self, count: usize) -> Result<Vec<u8>, NoAnswer> {
        while self.octets.len() < count {
            if self.ended {
                return Err(NoAnswer::Cut(self.octets.clone()));
            }
            self.fill()?;
        }
        Ok(self.octets.drain(..count).collect())
    }

    /// One request, one answer.
    pub fn ask(&mut self, request: &Ask<'_>) -> Result<Response, NoAnswer> {
        self.send(&request.octets(&self.host))?;
        self.answer(request.method == "HEAD")
    }

    /// Whether the other side closes; reads what it still sends.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        let begun = std::time::Instant::now();
        while !self.ended && begun.elapsed() < limit {
            if self.fill().is_err() {
                break;
            }
        }
        self.ended
    }

    fn fill(&mut self) -> Result<(), NoAnswer> {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.octets.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(NoAnswer::Silent(self.octets.clone()));
            }
            Err(_) => self.ended = true,
        }
        Ok(())
    }
}

/// A request, said shortly.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub fields: Vec<(&'a str, String)>,
    pub body: Option<&'a [u8]>,
}

impl<'a> Ask<'a> {
    pub const fn new(method: &'a str, target: &'a str) -> Self {
        Self { method, target, fields: Vec::new(), body: None }
    }

    pub const fn get(target: &'a str) -> Self {
        Self::new("GET", target)
    }

    #[must_use]
    pub fn field(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    #[must_use]
    pub const fn body(mut self, body: &'a [u8]) -> Self {
        self.body = Some(body);
        self
    }

    /// The request as octets, for a host.
    pub fn octets(&self, host: &str) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.target);
        for (name, value) in &self.fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = self.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        [text.as_bytes(), self.body.unwrap_or_default()].concat()
    }

    /// Asks on a connection of its own.
    pub fn at(&self, port: u16) -> Result<Response, NoAnswer> {
        Client::connect(port)?.ask(self)
    }
}

/// GET on a connection of its own.
pub fn get(port: u16, target: &str) -> Result<Response, NoAnswer> {
    Ask::get(target).at(port)
}
