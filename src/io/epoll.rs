//! The driver on epoll: emulates completions where io_uring is refused (most containers) or too old.
//!
//! Level-triggered, one registration for each descriptor with an operation pending, for what that operation waits for
//! and nothing else; without one the descriptor is not registered, as a hang-up cannot be masked. An event is one
//! attempt: one receive, a bounded number of accepts, one send. So a busy connection cannot starve the others: epoll
//! tells of it again, behind them.
//!
//! A send that need not wait is made when it is submitted; all else is made in [`turn`](Driver::turn). What completed
//! at once is handed out by the next turn, which then does not block. As the executor above asks for one receive and
//! one send of a connection at a time, there is at most one of each for a descriptor. Safe code: system calls through
//! rustix.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, accept_with, connect, recv, sendmsg, sockopt::socket_error,
};

use crate::io::buffer::{Buffers, Group};
use crate::io::op::{Completion, Driver, Op, Payload, Pieces, Socket, Token};
use crate::limits::{EPOLL_ACCEPTS_PER_EVENT, EPOLL_EVENTS_PER_TURN, SEND_PIECES_MAX};
use crate::time::{self, Time};

/// A [`Driver`] on an epoll instance.
pub struct EpollDriver {
    epoll: OwnedFd,
    buffers: Rc<Buffers>,
    /// What is pending, by descriptor: numbers are small and dense.
    watches: Vec<Watch>,
    /// The descriptor of each pending operation, for cancels.
    pending: HashMap<Token, RawFd>,
    /// What has completed since the last turn.
    finished: Vec<Completion>,
    /// Used again each turn.
    events: Vec<epoll::Event>,
}

/// A descriptor and what is pending on it.
#[derive(Debug)]
struct Watch {
    /// Keeps the descriptor open, and so its number ours, while something is pending.
    socket: Option<Socket>,
    reader: Option<(Token, Reader)>,
    writer: Option<(Token, Writer)>,
    /// What epoll has been told; empty: the descriptor is not registered.
    interest: epoll::EventFlags,
}

#[derive(Clone, Copy, Debug)]
enum Reader {
    Accept,
    Receive(Group),
    Wake,
}

#[derive(Debug)]
enum Writer {
    Send(Pieces),
    Connect,
}

// === impl EpollDriver ===

impl EpollDriver {
    /// An instance that receives into `buffers`.
    ///
    /// # Errors
    /// No descriptor is left, or the user has as many epoll instances as the kernel allows.
    pub fn new(buffers: Rc<Buffers>) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            buffers,
            watches: Vec::new(),
            pending: HashMap::new(),
            finished: Vec::new(),
            events: Vec::with_capacity(EPOLL_EVENTS_PER_TURN),
        })
    }

    fn watch(&mut self, socket: &Socket) -> &mut Watch {
        let index = index_of(socket.as_raw_fd());
        if self.watches.len() <= index {
            self.watches.resize_with(index + 1, Watch::new);
        }
        let watch = &mut self.watches[index];
        watch.socket.get_or_insert_with(|| Socket::clone(socket));
        watch
    }

    fn read(&mut self, token: Token, socket: &Socket, reader: Reader) {
        let watch = self.watch(socket);
        assert!(watch.reader.is_none(), "two receives on one descriptor");
        watch.reader = Some((token, reader));
        self.start(token, socket);
    }

    fn write(&mut self, token: Token, socket: &Socket, writer: Writer) {
        let watch = self.watch(socket);
        assert!(watch.writer.is_none(), "two sends on one descriptor");
        watch.writer = Some((token, writer));
        self.start(token, socket);
    }

    /// Registers an operation that waits.
    fn start(&mut self, token: Token, socket: &Socket) {
        let fd = socket.as_raw_fd();
        let before = self.pending.insert(token, fd);
        assert!(before.is_none(), "one token for two operations");
        if let Err(errno) = self.settle(fd) {
            self.finish(fd, token, Err(errno));
        }
    }

    /// Tells epoll what the operations on a descriptor wait for.
    fn settle(&mut self, fd: RawFd) -> Result<(), Errno> {
        let watch = &mut self.watches[index_of(fd)];
        let Some(socket) = &watch.socket else { return Ok(()) };
        let mut wanted = epoll::EventFlags::empty();
        if watch.reader.is_some() {
            wanted |= epoll::EventFlags::IN;
        }
        if watch.writer.is_some() {
            wanted |= epoll::EventFlags::OUT;
        }
        let result = if wanted == watch.interest {
            Ok(())
        } else if wanted.is_empty() {
            epoll::delete(&self.epoll, socket)
        } else {
            let data = epoll::EventData::new_u64(index_of(fd) as u64);
            if watch.interest.is_empty() {
                epoll::add(&self.epoll, socket, data, wanted)
            } else {
                epoll::modify(&self.epoll, socket, data, wanted)
            }
        };
        if result.is_ok() || wanted.is_empty() {
            watch.interest = wanted;
        }
        if wanted.is_empty() {
            watch.socket = None;
        }
        result
    }

    /// The last completion of a pending operation; a send gives its pieces back.
    fn finish(&mut self, fd: RawFd, token: Token, result: Result<u32, Errno>) {
        self.pending.remove(&token);
        let watch = &mut self.watches[index_of(fd)];
        let mut payload = Payload::None;
        if watch.reader.take_if(|(reader, _)| *reader == token).is_none()
            && let Some((_, Writer::Send(pieces))) = watch.writer.take_if(|(writer, _)| *writer == token)
        {
            payload = Payload::Sent(pieces);
        }
        // Waiting for less does not fail on a descriptor that is registered.
        let _settled = self.settle(fd);
        self.finished.push(Completion { token, result, more: false, payload });
    }

    /// A completion of an operation that goes on.
    fn report(&mut self, token: Token, payload: Payload, count: u32) {
        self.finished.push(Completion { token, result: Ok(count), more: true, payload });
    }

    fn on_event(&mut self, index: usize, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;

        let Some(watch) = self.watches.get(index) else { return };
        let Some(socket) = watch.socket.clone() else { return };
        let (reader, writer) = (watch.reader, watch.writer.is_some());
        if let Some((token, reader)) = reader
            && flags.intersects(Flags::IN | Flags::HUP | Flags::ERR)
        {
            match reader {
                Reader::Accept => self.attempt_accept(token, &socket),
                Reader::Receive(group) => self.attempt_receive(token, &socket, group),
                Reader::Wake => self.attempt_wake(token, &socket),
            }
        }
        if writer && flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR) {
            self.attempt_write(&socket);
        }
    }

    fn attempt_accept(&mut self, token: Token, listener: &Socket) {
        for _ in 0..EPOLL_ACCEPTS_PER_EVENT {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.report(token, Payload::Accepted(socket), 0),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(errno) => return self.finish(listener.as_raw_fd(), token, Err(errno)),
            }
        }
    }

    fn attempt_receive(&mut self, token: Token, socket: &Socket, group: Group) {
        let received = self.buffers.fill(group, |octets| {
            let (received, _) = recv(socket, octets, RecvFlags::DONTWAIT)?;
            Ok(received)
        });
        match received {
            Ok(chunk) if chunk.is_empty() => self.finish(socket.as_raw_fd(), token, Ok(0)),
            Ok(chunk) => {
                let count = count_of(chunk.len());
                self.report(token, Payload::Received(chunk), count);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.finish(socket.as_raw_fd(), token, Err(errno)),
        }
    }

    fn attempt_wake(&mut self, token: Token, eventfd: &Socket) {
        let mut count = [0; 8];
        match rustix::io::read(eventfd, &mut count) {
            Ok(_) => self.report(token, Payload::None, 0),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.finish(eventfd.as_raw_fd(), token, Err(errno)),
        }
    }

    fn attempt_write(&mut self, socket: &Socket) {
        let fd = socket.as_raw_fd();
        let Some((token, writer)) = &self.watches[index_of(fd)].writer else { return };
        let token = *token;
        let result = match writer {
            Writer::Send(pieces) => match send_now(socket, pieces) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                result => result,
            },
            Writer::Connect => match socket_error(socket) {
                Ok(Ok(())) => Ok(0),
                Ok(Err(errno)) | Err(errno) => Err(errno),
            },
        };
        self.finish(fd, token, result);
    }

    fn connect(&mut self, token: Token, socket: &Socket, address: std::net::SocketAddr) {
        let started = ioctl_fionbio(socket, true).and_then(|()| connect(socket, &address));
        match started {
            // A connect that a signal interrupts goes on (connect(2)).
            Err(Errno::INPROGRESS | Errno::INTR) => self.write(token, socket, Writer::Connect),
            result => {
                let result = result.map(|()| 0);
                self.finished.push(Completion { token, result, more: false, payload: Payload::None });
            }
        }
    }

    fn cancel(&mut self, token: Token, target: Token) {
        let found = self.pending.get(&target).copied();
        if let Some(fd) = found {
            self.finish(fd, target, Err(Errno::CANCELED));
        }
        let result = if found.is_some() { Ok(0) } else { Err(Errno::NOENT) };
        self.finished.push(Completion { token, result, more: false, payload: Payload::None });
    }
}

impl Driver for EpollDriver {
    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Accept { listener } => match ioctl_fionbio(&listener, true) {
                Ok(()) => self.read(token, &listener, Reader::Accept),
                Err(errno) => {
                    self.finished.push(Completion { token, result: Err(errno), more: false, payload: Payload::None });
                }
            },
            Op::Receive { socket, group } => self.read(token, &socket, Reader::Receive(group)),
            Op::Send { socket, pieces, wait: true } => self.write(token, &socket, Writer::Send(pieces)),
            Op::Send { socket, pieces, wait: false } => {
                let result = send_now(&socket, &pieces);
                self.finished.push(Completion { token, result, more: false, payload: Payload::Sent(pieces) });
            }
            Op::Connect { socket, address } => self.connect(token, &socket, address),
            Op::Wake { eventfd } => match ioctl_fionbio(&eventfd, true) {
                Ok(()) => self.read(token, &eventfd, Reader::Wake),
                Err(errno) => {
                    self.finished.push(Completion { token, result: Err(errno), more: false, payload: Payload::None });
                }
            },
            Op::Cancel { target } => self.cancel(token, target),
        }
    }

    fn turn(&mut self, wait: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        let wait = if self.finished.is_empty() { wait } else { Some(Duration::ZERO) };
        // A time too long to be said is as good as for ever.
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            // The field is unaligned: copied, not borrowed.
            let (flags, data) = (event.flags, event.data);
            self.on_event(usize::try_from(data.u64()).expect("an index of ours"), flags);
        }
        self.events = events;
        completions.append(&mut self.finished);
        Ok(())
    }

    fn now(&mut self) -> Time {
        time::now()
    }

    fn name(&self) -> &'static str {
        "epoll"
    }
}

// === impl Watch ===

impl Watch {
    const fn new() -> Self {
        Self { socket: None, reader: None, writer: None, interest: epoll::EventFlags::empty() }
    }
}

/// Sends what fits into the socket.
fn send_now(socket: &Socket, pieces: &Pieces) -> Result<u32, Errno> {
    let mut slices = [IoSlice::new(&[]); SEND_PIECES_MAX];
    let mut count = 0;
    for (slot, octets) in slices.iter_mut().zip(pieces.slices()) {
        *slot = IoSlice::new(octets);
        count += 1;
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags).map(count_of)
}

fn index_of(fd: RawFd) -> usize {
    usize::try_from(fd).expect("an open descriptor is not negative")
}

/// Octets of one system call: the kernel moves less than 2 GiB at once.
fn count_of(octets: usize) -> u32 {
    u32::try_from(octets).expect("less than 2 GiB in one call")
}
