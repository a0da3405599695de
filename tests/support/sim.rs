//! The simulated driver: a network in memory, a clock that only moves when nothing else can, and faults on request.
//!
//! It keeps the promises of `op.rs` and no others: with [`Chaos`] it delays completions, lets those of different
//! operations overtake each other, cuts receives and sends short, and ends multishot operations for no reason. All of
//! it follows from a seed. It asserts what the executor owes a driver: tokens that are not used twice, at most one
//! receive and one send on a connection.
//!
//! The descriptors are real (the executor shuts, closes and sets options on them without asking the driver), but no
//! octet passes through them: the simulation reads off them what the executor did. A stand-still (nothing pending and
//! nothing to wait for) is an error of the turn, so that a test cannot hang.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::time::Duration;

use antiphon::io::buffer::{Buffers, Group};
use antiphon::io::exec::Io;
use antiphon::io::op::{Completion, Driver, Op, Payload, Pieces, Socket, Token};
use antiphon::time::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_linger;
use rustix::net::{SendFlags, send};

/// The simulated world. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sim(Rc<RefCell<World>>);

/// What may go otherwise than in the simplest kernel. The default: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos {
    /// Receives and sends move fewer octets than they could.
    pub(crate) short: bool,
    /// Completions of different operations come in any order.
    pub(crate) reorder: bool,
    /// Completions come up to so many nanoseconds late.
    pub(crate) late_nanos: u64,
    /// Multishot operations end now and then.
    pub(crate) ends: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Accept,
    Receive,
    Send,
    SendWait,
    Connect,
    Wake,
    Cancel,
}

/// An operation that was submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    pub(crate) group: Option<Group>,
}

/// How a direction of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Reset,
}

/// The far end of a connection, played by the test.
#[derive(Clone)]
pub(crate) struct Peer {
    sim: Sim,
    id: usize,
}

/// The driver that is given to the executor.
struct SimDriver(Sim);

struct World {
    now: Time,
    /// Time does not pass for the executor's own deadlines.
    frozen: bool,
    /// The next turn returns, so that the executor sees what time it is.
    advanced: bool,
    random: u64,
    chaos: Chaos,
    buffers: Rc<Buffers>,
    ends: Vec<Endpoint>,
    /// The endpoint behind each descriptor of the executor.
    of_fd: BTreeMap<RawFd, usize>,
    /// Where listeners of the executor listen.
    listening: BTreeMap<RawFd, SocketAddr>,
    /// Connections that wait to be accepted, by listening address. Present: somebody listens.
    backlog: BTreeMap<SocketAddr, VecDeque<usize>>,
    /// Addresses where connects get no answer.
    silent: Vec<SocketAddr>,
    pending: Vec<(Token, Pending)>,
    ready: Vec<(Time, Completion)>,
    /// Errors for the next operations of a kind.
    faults: VecDeque<(Kind, Errno)>,
    /// Operations of these kinds do not progress.
    held: Vec<Kind>,
    outruns: bool,
    submitted: Vec<Submitted>,
    /// Real sockets are connected to it, so that they can be shut.
    anchor: TcpListener,
}

#[derive(Debug)]
enum Pending {
    Accept(Socket),
    Receive(Socket, Group),
    Send(Socket, Pieces, Kind),
    Connect(Socket, SocketAddr),
    Wake(Socket),
}

/// One end of a connection.
struct Endpoint {
    far: usize,
    /// The executor's descriptor, once it has used it. Without: it is played by the test.
    socket: Option<Weak<OwnedFd>>,
    fd: Option<RawFd>,
    /// Octets that have come and were not taken.
    inbound: VecDeque<u8>,
    /// Octets that `inbound` can hold.
    window: usize,
    /// What comes after `inbound`.
    inbound_end: Option<End>,
    shut_write: bool,
    /// A close will reset.
    linger_zero: bool,
    closed: bool,
    /// Keep the executor's descriptor connected to something.
    _anchor_unix: Option<UnixStream>,
    _anchor_tcp: Option<TcpStream>,
}

// === impl Sim ===

impl Sim {
    pub(crate) fn new(seed: u64, chaos: Chaos, buffers: &Rc<Buffers>) -> Self {
        Self(Rc::new(RefCell::new(World {
            now: Time::ZERO + Duration::from_secs(1),
            frozen: false,
            advanced: false,
            random: seed,
            chaos,
            buffers: Rc::clone(buffers),
            ends: Vec::new(),
            of_fd: BTreeMap::new(),
            listening: BTreeMap::new(),
            backlog: BTreeMap::new(),
            silent: Vec::new(),
            pending: Vec::new(),
            ready: Vec::new(),
            faults: VecDeque::new(),
            held: Vec::new(),
            outruns: false,
            submitted: Vec::new(),
            anchor: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback"),
        })))
    }

    pub(crate) fn driver(&self) -> Box<dyn Driver> {
        Box::new(SimDriver(self.clone()))
    }

    /// A listening socket for the executor, known by `address`.
    pub(crate) fn listener(&self, address: SocketAddr) -> OwnedFd {
        let (socket, _) = UnixStream::pair().expect("a socket pair");
        let mut world = self.world();
        world.listening.insert(socket.as_raw_fd(), address);
        world.backlog.entry(address).or_default();
        socket.into()
    }

    /// A connection from outside to a listener.
    pub(crate) fn dial(&self, address: SocketAddr) -> Peer {
        let mut world = self.world();
        let (near, far) = world.pair();
        world.backlog.get_mut(&address).expect("somebody listens").push_back(far);
        Peer { sim: self.clone(), id: near }
    }

    /// The test listens at `address`; take the connections with [`accepted`](Self::accepted).
    pub(crate) fn serve(&self, address: SocketAddr) {
        self.world().backlog.entry(address).or_default();
    }

    /// The next connection to an address where the test listens.
    pub(crate) fn accepted(&self, address: SocketAddr) -> Option<Peer> {
        let id = self.world().backlog.get_mut(&address)?.pop_front()?;
        Some(Peer { sim: self.clone(), id })
    }

    /// Connects to `address` are not answered.
    pub(crate) fn silence(&self, address: SocketAddr) {
        self.world().silent.push(address);
    }

    /// The next operation of this kind fails so (and ends).
    pub(crate) fn fail_next(&self, kind: Kind, errno: Errno) {
        self.world().faults.push_back((kind, errno));
    }

    /// Operations of this kind do not progress. They can be cancelled.
    pub(crate) fn hold(&self, kind: Kind) {
        self.world().held.push(kind);
    }

    /// Held operations do what they can just as they are cancelled: the cancel comes too late.
    pub(crate) fn outrun_cancels(&self) {
        self.world().outruns = true;
    }

    /// A completion out of nowhere.
    pub(crate) fn inject(&self, completion: Completion) {
        let mut world = self.world();
        let now = world.now;
        world.ready.push((now, completion));
    }

    /// What was submitted since this was last asked.
    pub(crate) fn submitted(&self) -> Vec<Submitted> {
        std::mem::take(&mut self.world().submitted)
    }

    /// Operations under way, of a kind.
    pub(crate) fn pending(&self, kind: Kind) -> usize {
        self.world().pending.iter().filter(|(_, pending)| pending.kind() == kind).count()
    }

    /// Turns the executor until nothing is left to do but to wait for a deadline of its own.
    pub(crate) fn settle(&self, io: &Io) {
        self.world().frozen = true;
        let stopped = loop {
            if let Err(error) = io.turn() {
                break error;
            }
        };
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut, "{stopped}");
        self.world().frozen = false;
    }

    /// Lets time pass, and settles.
    pub(crate) fn advance(&self, io: &Io, time: Duration) {
        {
            let mut world = self.world();
            world.now = world.now + time;
            world.advanced = true;
        }
        self.settle(io);
    }

    pub(crate) fn now(&self) -> Time {
        self.world().now
    }

    fn world(&self) -> RefMut<'_, World> {
        self.0.borrow_mut()
    }
}

// === impl Peer ===

impl Peer {
    /// Sends, whatever the window.
    pub(crate) fn send(&self, octets: &[u8]) {
        let mut world = self.sim.world();
        let far = world.ends[self.id].far;
        world.ends[far].inbound.extend(octets);
    }

    /// Takes what has come.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.sim.world().ends[self.id].inbound.drain(..).collect()
    }

    /// How many octets may come before some are taken.
    pub(crate) fn set_window(&self, bytes: usize) {
        self.sim.world().ends[self.id].window = bytes;
    }

    /// How the other side ended, once all that came before is taken.
    pub(crate) fn ended(&self) -> Option<End> {
        let mut world = self.sim.world();
        world.sweep();
        let end = &world.ends[self.id];
        if end.inbound.is_empty() { end.inbound_end } else { None }
    }

    /// The other side's descriptor is closed.
    pub(crate) fn is_closed_by_other(&self) -> bool {
        let mut world = self.sim.world();
        world.sweep();
        world.ends[world.ends[self.id].far].closed
    }

    pub(crate) fn finish(&self) {
        self.sim.world().end(self.id, End::Fin);
    }

    pub(crate) fn reset(&self) {
        self.sim.world().end(self.id, End::Reset);
    }
}

// === impl SimDriver ===

impl Driver for SimDriver {
    fn submit(&mut self, token: Token, op: Op) {
        self.0.world().submit(token, op);
    }

    fn turn(&mut self, wait: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.0.world().turn(wait, completions)
    }

    fn now(&mut self) -> Time {
        self.0.now()
    }

    fn name(&self) -> &'static str {
        "simulated"
    }
}

// === impl World ===

impl World {
    fn submit(&mut self, token: Token, op: Op) {
        let known = self.pending.iter().any(|(pending, _)| *pending == token)
            || self.ready.iter().any(|(_, completion)| completion.token == token);
        assert!(!known, "a token is used twice");
        let (kind, pending) = match op {
            Op::Accept { listener } => (Kind::Accept, Pending::Accept(listener)),
            Op::Receive { socket, group } => {
                self.learn(&socket);
                (Kind::Receive, Pending::Receive(socket, group))
            }
            Op::Send { socket, pieces, wait } => {
                self.learn(&socket);
                let kind = if wait { Kind::SendWait } else { Kind::Send };
                (kind, Pending::Send(socket, pieces, kind))
            }
            Op::Connect { socket, address } => (Kind::Connect, Pending::Connect(socket, address)),
            Op::Wake { eventfd } => (Kind::Wake, Pending::Wake(eventfd)),
            Op::Cancel { target } => {
                self.submitted.push(Submitted { token, kind: Kind::Cancel, group: None });
                let result = match self.pending.iter().position(|(pending, _)| *pending == target) {
                    Some(place) => {
                        let (target, pending) = self.pending.remove(place);
                        if !self.outruns || self.pump_one(target, &pending) {
                            self.last(target, Err(Errno::CANCELED), pending.into_payload());
                        }
                        Ok(0)
                    }
                    None => Err(Errno::NOENT),
                };
                self.last(token, result, Payload::None);
                return;
            }
        };
        let group = if let Pending::Receive(_, group) = &pending { Some(*group) } else { None };
        self.submitted.push(Submitted { token, kind, group });
        if let Pending::Receive(socket, _) | Pending::Send(socket, ..) = &pending {
            let same = |other: &Pending| match (other, &pending) {
                (Pending::Receive(other, _), Pending::Receive(..)) | (Pending::Send(other, ..), Pending::Send(..)) => {
                    other.as_raw_fd() == socket.as_raw_fd()
                }
                _ => false,
            };
            assert!(!self.pending.iter().any(|(_, other)| same(other)), "two of {kind:?} on one connection");
        }
        if let Some(place) = self.faults.iter().position(|&(faulty, _)| faulty == kind) {
            let (_, errno) = self.faults.remove(place).expect("found");
            self.last(token, Err(errno), pending.into_payload());
        } else if kind == Kind::Send && !self.held.contains(&Kind::Send) {
            let Pending::Send(socket, pieces, _) = pending else { unreachable!() };
            let result = self.send_now(&socket, &pieces);
            self.last(token, result, Payload::Sent(pieces));
        } else {
            self.pending.push((token, pending));
        }
    }

    fn turn(&mut self, wait: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        let until = wait.filter(|wait| !self.frozen || wait.is_zero()).map(|wait| self.now + wait);
        // The executor acts between turns only.
        self.sweep();
        loop {
            self.pump();
            if self.deliver(completions) || std::mem::take(&mut self.advanced) {
                return Ok(());
            }
            let next = self.ready.iter().map(|(at, _)| *at).min();
            match (next, until) {
                (Some(next), until) if until.is_none_or(|until| next <= until) => self.now = next,
                (_, Some(until)) => {
                    self.now = until;
                    return Ok(());
                }
                (_, None) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the simulation stands still")),
            }
        }
    }

    /// Hands out what is due. Those of one operation keep their order.
    fn deliver(&mut self, completions: &mut Vec<Completion>) -> bool {
        let now = self.now;
        let mut due: Vec<Completion> = self.ready.extract_if(.., |(at, _)| *at <= now).map(|(_, due)| due).collect();
        let any = !due.is_empty();
        while !due.is_empty() {
            let pick = if self.chaos.reorder { self.below(due.len()) } else { 0 };
            let token = due[pick].token;
            let first = due.iter().position(|completion| completion.token == token).expect("picked");
            completions.push(due.remove(first));
        }
        any
    }

    /// Lets every pending operation do what it can.
    fn pump(&mut self) {
        for (token, pending) in std::mem::take(&mut self.pending) {
            if self.held.contains(&pending.kind()) {
                self.pending.push((token, pending));
                continue;
            }
            if let Pending::Send(socket, pieces, kind) = &pending {
                match self.send_now(socket, pieces) {
                    Err(Errno::AGAIN) if *kind == Kind::SendWait => self.pending.push((token, pending)),
                    result => self.last(token, result, pending.into_payload()),
                }
            } else if self.pump_one(token, &pending) {
                self.pending.push((token, pending));
            }
        }
    }

    /// Whether the operation goes on.
    fn pump_one(&mut self, token: Token, pending: &Pending) -> bool {
        match pending {
            Pending::Accept(listener) => self.pump_accept(token, listener.as_raw_fd()),
            Pending::Receive(socket, group) => self.pump_receive(token, socket.as_raw_fd(), *group),
            Pending::Connect(socket, address) => self.pump_connect(token, socket, *address),
            Pending::Wake(eventfd) => {
                if rustix::io::read(eventfd, &mut [0; 8]).is_ok() {
                    self.report(token, Payload::None, 0, true);
                }
                true
            }
            Pending::Send(..) => true,
        }
    }

    fn pump_accept(&mut self, token: Token, listener: RawFd) -> bool {
        let address = self.listening[&listener];
        while let Some(id) = self.backlog.get_mut(&address).and_then(VecDeque::pop_front) {
            let (theirs, ours) = UnixStream::pair().expect("a socket pair");
            self.bind(id, theirs.as_raw_fd());
            self.ends[id]._anchor_unix = Some(ours);
            let more = self.goes_on();
            if !self.report(token, Payload::Accepted(theirs.into()), 0, more) {
                return false;
            }
        }
        true
    }

    fn pump_receive(&mut self, token: Token, fd: RawFd, group: Group) -> bool {
        let id = self.of_fd[&fd];
        loop {
            let waiting = self.ends[id].inbound.len();
            if waiting == 0 {
                return match self.ends[id].inbound_end {
                    None => true,
                    Some(End::Fin) => self.finish(token, Ok(0)),
                    Some(End::Reset) => self.finish(token, Err(Errno::CONNRESET)),
                };
            }
            let cut = if self.chaos.short { 1 + self.below(waiting) } else { waiting };
            let inbound = &mut self.ends[id].inbound;
            let filled = self.buffers.fill(group, |octets| {
                let count = cut.min(octets.len());
                for (octet, came) in octets.iter_mut().zip(inbound.drain(..count)) {
                    *octet = came;
                }
                Ok(count)
            });
            match filled {
                Err(errno) => return self.finish(token, Err(errno)),
                Ok(chunk) => {
                    let count = u32::try_from(chunk.len()).expect("small");
                    let more = self.goes_on();
                    if !self.report(token, Payload::Received(chunk), count, more) {
                        return false;
                    }
                }
            }
        }
    }

    fn pump_connect(&mut self, token: Token, socket: &Socket, address: SocketAddr) -> bool {
        if self.silent.contains(&address) {
            return true;
        }
        if !self.backlog.contains_key(&address) {
            return self.finish(token, Err(Errno::CONNREFUSED));
        }
        rustix::net::connect(socket, &self.anchor.local_addr().expect("bound")).expect("loopback");
        let (ours, _) = self.anchor.accept().expect("loopback");
        let (near, far) = self.pair();
        self.bind(near, socket.as_raw_fd());
        self.ends[near]._anchor_tcp = Some(ours);
        self.learn(socket);
        self.backlog.get_mut(&address).expect("looked up").push_back(far);
        self.finish(token, Ok(0))
    }

    fn send_now(&mut self, socket: &Socket, pieces: &Pieces) -> Result<u32, Errno> {
        let id = self.of_fd[&socket.as_raw_fd()];
        let far = self.ends[id].far;
        if self.ends[id].shut_write || self.ends[far].closed {
            return Err(Errno::PIPE);
        }
        if self.ends[id].inbound_end == Some(End::Reset) {
            return Err(Errno::CONNRESET);
        }
        if pieces.is_empty() {
            return Ok(0);
        }
        let room = self.ends[far].window.saturating_sub(self.ends[far].inbound.len()).min(pieces.len());
        if room == 0 {
            return Err(Errno::AGAIN);
        }
        let count = if self.chaos.short { 1 + self.below(room) } else { room };
        self.ends[far].inbound.extend(pieces.slices().flatten().take(count));
        Ok(u32::try_from(count).expect("small"))
    }

    /// A completion of an operation that goes on if `more`. Whether it does.
    fn report(&mut self, token: Token, payload: Payload, count: u32, more: bool) -> bool {
        self.complete(Completion { token, result: Ok(count), more, payload });
        more
    }

    fn finish(&mut self, token: Token, result: Result<u32, Errno>) -> bool {
        self.last(token, result, Payload::None);
        false
    }

    fn last(&mut self, token: Token, result: Result<u32, Errno>, payload: Payload) {
        self.complete(Completion { token, result, more: false, payload });
    }

    fn complete(&mut self, completion: Completion) {
        let late = self.chaos.late_nanos;
        let late = if late == 0 { 0 } else { self.random() % late };
        let earlier = self.ready.iter().filter(|(_, before)| before.token == completion.token).map(|(at, _)| *at).max();
        let at = (self.now + Duration::from_nanos(late)).max(earlier.unwrap_or(Time::ZERO));
        self.ready.push((at, completion));
    }

    fn pair(&mut self) -> (usize, usize) {
        let near = self.ends.len();
        self.ends.push(Endpoint::new(near + 1));
        self.ends.push(Endpoint::new(near));
        (near, near + 1)
    }

    /// The executor knows the endpoint by this descriptor; whoever had the number before has closed it.
    fn bind(&mut self, id: usize, fd: RawFd) {
        if let Some(before) = self.of_fd.insert(fd, id) {
            self.close(before);
        }
        self.ends[id].fd = Some(fd);
    }

    fn learn(&mut self, socket: &Socket) {
        let id = self.of_fd[&socket.as_raw_fd()];
        self.ends[id].socket.get_or_insert_with(|| Rc::downgrade(socket));
    }

    /// Reads off the descriptors what the executor has done to them.
    fn sweep(&mut self) {
        for id in 0..self.ends.len() {
            let Some(socket) = self.ends[id].socket.clone() else { continue };
            if self.ends[id].closed {
                continue;
            }
            let Some(socket) = socket.upgrade() else {
                if let Some(fd) = self.ends[id].fd
                    && self.of_fd.get(&fd) == Some(&id)
                {
                    self.of_fd.remove(&fd);
                }
                self.close(id);
                continue;
            };
            self.ends[id].linger_zero = socket_linger(&socket) == Ok(Some(Duration::ZERO));
            if !self.ends[id].shut_write && send(&socket, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                self.ends[id].shut_write = true;
                self.end(id, End::Fin);
            }
            if self.ends[id].inbound_end.is_some() {
                continue;
            }
            let mut hung_up = [PollFd::new(&socket, PollFlags::empty())];
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut hung_up, Some(&zero)).is_ok() && hung_up[0].revents().contains(PollFlags::HUP) {
                self.ends[id].inbound_end.get_or_insert(End::Fin);
            }
        }
    }

    fn close(&mut self, id: usize) {
        if self.ends[id].closed {
            return;
        }
        self.ends[id].closed = true;
        let unread = !self.ends[id].inbound.is_empty();
        let how = if self.ends[id].linger_zero || unread { End::Reset } else { End::Fin };
        self.end(id, how);
    }

    /// `id` sends no more.
    fn end(&mut self, id: usize, how: End) {
        let far = self.ends[id].far;
        let far = &mut self.ends[far];
        if how == End::Reset {
            far.inbound_end = Some(End::Reset);
        } else {
            far.inbound_end.get_or_insert(End::Fin);
        }
    }

    fn goes_on(&mut self) -> bool {
        !(self.chaos.ends && self.below(4) == 0)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random() % bound as u64).expect("below a usize")
    }

    /// splitmix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

// === impl Pending, Endpoint ===

impl Pending {
    fn kind(&self) -> Kind {
        match self {
            Self::Accept(_) => Kind::Accept,
            Self::Receive(..) => Kind::Receive,
            Self::Send(_, _, kind) => *kind,
            Self::Connect(..) => Kind::Connect,
            Self::Wake(_) => Kind::Wake,
        }
    }

    fn into_payload(self) -> Payload {
        if let Self::Send(_, pieces, _) = self { Payload::Sent(pieces) } else { Payload::None }
    }
}

impl Endpoint {
    fn new(far: usize) -> Self {
        Self {
            far,
            socket: None,
            fd: None,
            inbound: VecDeque::new(),
            window: 256 * 1024,
            inbound_end: None,
            shut_write: false,
            linger_zero: false,
            closed: false,
            _anchor_unix: None,
            _anchor_tcp: None,
        }
    }
}
