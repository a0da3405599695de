//! The driver on io_uring: one instance a worker, entered once a turn, multishot wherever the kernel can.
//!
//! It decides nothing: what ended is reported, and armed again or given up above. What the host must allow, and what
//! to tell an operator where it does not, is `host.rs`.
//!
//! # Why the `unsafe` is sound
//!
//! 1. **An operation owns all that the kernel may touch for it**: its socket (so that the number cannot name another
//!    file), the octets it sends, the message header and the pieces' table, the address. All of it lies in the
//!    operation's `Held`, put into `Ops` *before* the kernel can see the entry and taken out when the completion
//!    without `more` has been seen. Cancelling does not take it out.
//! 2. **What is pointed to does not move**: `Outgoing` and `RawAddress` are boxed, so a growing table moves only
//!    the pointer to them; octets of pieces lie on the heap, in a buffer, or in the program.
//! 3. **Receives write into lent buffers only** (`buffer.rs`, step 4). The completion that names a buffer ends the
//!    kernel's use of it.
//! 4. **A descriptor in the success of an accept is new and nobody's**: it becomes an `OwnedFd` at once, also where
//!    the accept had been cancelled meanwhile.
//! 5. **Everything outlives the kernel's use.** Closing an io_uring instance ends its operations *later*, on a kernel
//!    thread; so `Drop` cancels them all, waits for their completions and only then lets the fields go. If the kernel
//!    does not answer in time, the table, the lending rings and the buffers are leaked: memory lost is better than
//!    memory written after it was given away.
//! 6. **One thread**: `Rc` keeps the driver on the thread that made it, which `SINGLE_ISSUER` asks for, and
//!    `DEFER_TASKRUN` lets nothing happen outside of `enter`.
//!
//! Traps met: `submitter()` makes a new `Submitter` each time, so a ring descriptor registered through one is lost
//! (we register none); a multishot operation may end without `more` at any time; a close does not end a pending
//! receive; `MSG_WAITALL` on a send means "all of it".
// One of the two files that may: the kernel reads and writes through addresses that the compiler cannot follow.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use self::address::RawAddress;
use self::ops::{NO_OPERATION, Ops};
use self::setup::{build, refused};
use self::target::Target;
use crate::io::buffer::{Buffers, Chunk, Group, LendingRing};
use crate::io::op::{Completion, Driver, Op, Payload, Pieces, Socket, Token};
use crate::limits::SEND_PIECES_MAX;
use crate::time::{self, Time};

mod address;
mod ops;
mod setup;
mod target;

pub use self::setup::{Setup, SetupError, locked_bytes, probe};

/// A [`Driver`] on an io_uring instance.
pub struct UringDriver {
    ring: IoUring,
    setup: Setup,
    /// Entries that found the submission queue full, in order.
    backlog: VecDeque<squeue::Entry>,
    state: State,
}

// === impl UringDriver ===

impl UringDriver {
    /// Sets up an instance with `entries` submissions (a power of two) on the calling thread, the only one that may
    /// use it, and registers both groups of `buffers`.
    ///
    /// # Errors
    /// The host does not allow it, or not now: see `host.rs` for what each number means.
    pub fn new(buffers: Rc<Buffers>, entries: u32, candidates: &[Setup]) -> Result<Self, SetupError> {
        let (ring, setup) = build(entries, candidates)?;
        let mut lending = Vec::new();
        for group in Group::ALL {
            let lent = LendingRing::new(&buffers, group).map_err(refused)?;
            // SAFETY: step 5: the driver keeps the ring's memory, which has that many entries, until the kernel has
            // let go of it; should this function fail, nothing was submitted that could take from it.
            let registered = unsafe {
                ring.submitter().register_buf_ring_with_flags(lent.address(), lent.entries(), group_id(group), 0)
            };
            registered.map_err(refused)?;
            let first = match group {
                Group::Small => buffers.sizes().small_lent,
                Group::Large => buffers.sizes().large_lent,
            };
            let target = Target::new(first, buffers.count(group));
            lending.push(Lending { group, ring: lent, target, taken: 0, ran_short: false });
        }
        let state = State { ops: Ops::default(), lending, buffers, spare: Vec::new(), ready: Vec::new(), strays: 0 };
        Ok(Self { ring, setup, backlog: VecDeque::new(), state })
    }

    /// How the instance was set up.
    #[must_use]
    pub const fn setup(&self) -> Setup {
        self.setup
    }

    /// Completions that named no operation under way. Anything but 0 is a fault, in the kernel or here.
    #[must_use]
    pub const fn strays(&self) -> u64 {
        self.state.strays
    }

    /// Hands an entry to the kernel at the next turn, after those before it.
    fn push(&mut self, key: u64, entry: squeue::Entry) {
        let entry = entry.user_data(key);
        if self.backlog.is_empty() {
            // SAFETY: steps 1 and 2: `key` is in the table (or is no operation and points nowhere), and holds,
            // unmoving, all that the entry points to.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Moves what found the queue full into it, entering the kernel to make room.
    fn push_backlog(&mut self) -> io::Result<()> {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`, which put it here: its operation is still in the table.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_ok() {
                self.backlog.pop_front();
            } else if !self.enter(Some(Duration::ZERO))? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Submits what is queued, and waits for a completion as long as `wait` says. False if the kernel wants its
    /// completions taken, or its memory back, before it goes on.
    fn enter(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let (submitter, mut submissions, completions) = self.ring.split();
        submissions.sync();
        let to_submit = u32::try_from(submissions.len()).expect("the queue's length is a u32");
        let want = u32::from(completions.is_empty() && wait != Some(Duration::ZERO));
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let timeout = wait.map(|wait| Timespec::from(wait.min(WAIT_MAX)));
        let mut args = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            args = args.timespec(timeout);
        }
        // SAFETY: `args` is what `EXT_ARG` says it is and lives through the call; steps 1 and 2 for what the entries
        // point to.
        let entered = unsafe { submitter.enter(to_submit, want, flags.bits(), Some(&args)) };
        match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
            // Fewer than `to_submit` is no error: the rest goes with the next call.
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR), _)) => Ok(true),
            Err((Some(Errno::AGAIN | Errno::BUSY), _)) => Ok(false),
            Err((_, error)) => Err(error),
        }
    }

    /// Appends the completions that are there.
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            completions.extend(self.state.on_completion(&entry));
        }
    }

    /// Ends all operations and waits for their last completions: step 5. False if the kernel did not answer.
    fn end_all(&mut self) -> bool {
        for entry in self.backlog.drain(..) {
            self.state.ops.remove(entry.get_user_data());
        }
        let mut given_back = Vec::new();
        for _ in 0..ENDING_ROUNDS_MAX {
            if self.state.ops.is_empty() {
                return true;
            }
            self.backlog.clear();
            self.push(NO_OPERATION, opcode::AsyncCancel2::new(CancelBuilder::any()).build());
            if self.enter(Some(ENDING_ROUND)).is_err() {
                return false;
            }
            self.reap(&mut given_back);
            given_back.clear();
        }
        self.state.ops.is_empty()
    }
}

impl Driver for UringDriver {
    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Accept { listener } => {
                let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
                let key = self.state.ops.insert(token, Held::Accept { _listener: listener });
                self.push(key, entry);
            }
            Op::Receive { socket, group } => {
                let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), group_id(group)).build();
                let key = self.state.ops.insert(token, Held::Receive { _socket: socket, group });
                self.push(key, entry);
            }
            Op::Send { pieces, .. } if pieces.is_empty() => self.state.answer(token, Ok(0), Payload::Sent(pieces)),
            Op::Send { socket, pieces, wait } => {
                let fd = Fd(socket.as_raw_fd());
                let outgoing = self.state.outgoing(pieces);
                let key = self.state.ops.insert(token, Held::Send { _socket: socket, outgoing });
                if let Some((_, Held::Send { outgoing, .. })) = self.state.ops.find(key) {
                    let entry = outgoing.entry(fd, wait);
                    self.push(key, entry);
                }
            }
            Op::Connect { socket, address } => {
                let address = Box::new(RawAddress::from(address));
                let (at, len) = address.pointer();
                let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), at, len).build();
                let key = self.state.ops.insert(token, Held::Connect { _socket: socket, _address: address });
                self.push(key, entry);
            }
            Op::Wake { eventfd } => {
                // It is read once for each readiness, which may be over by then: that read must not wait.
                if let Err(errno) = rustix::io::ioctl_fionbio(&*eventfd, true) {
                    return self.state.answer(token, Err(errno), Payload::None);
                }
                let entry = opcode::PollAdd::new(Fd(eventfd.as_raw_fd()), POLLIN).multi(true).build();
                let key = self.state.ops.insert(token, Held::Wake { eventfd });
                self.push(key, entry);
            }
            Op::Cancel { target } => match self.state.ops.key_of(target) {
                None => self.state.answer(token, Err(Errno::NOENT), Payload::None),
                Some(target) => {
                    let key = self.state.ops.insert(token, Held::Cancel);
                    self.push(key, opcode::AsyncCancel::new(target).build());
                }
            },
        }
    }

    fn turn(&mut self, wait: Option<Duration>, completions: &mut Vec<Completion>) -> io::Result<()> {
        let before = completions.len();
        self.state.lend();
        completions.append(&mut self.state.ready);
        self.push_backlog()?;
        let idle = completions.len() == before && self.backlog.is_empty();
        let went_on = self.enter(if idle { wait } else { Some(Duration::ZERO) })?;
        self.reap(completions);
        for _ in 0..OVERFLOW_ROUNDS_MAX {
            // What did not fit the completion queue waits in the kernel until it is entered again.
            if !self.ring.submission().cq_overflow() {
                break;
            }
            self.enter(Some(Duration::ZERO))?;
            self.reap(completions);
        }
        if !went_on && completions.len() == before {
            // The kernel is out of memory for us, and has nothing that we could take off it: do not turn in circles.
            #[expect(clippy::disallowed_methods, reason = "there is no event to wait for: the kernel has no memory")]
            thread::sleep(OUT_OF_MEMORY_PAUSE);
        }
        Ok(())
    }

    fn now(&mut self) -> Time {
        time::now()
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        if !self.end_all() {
            // Step 5.
            mem::forget(mem::take(&mut self.state.ops));
            mem::forget(mem::take(&mut self.state.lending));
            mem::forget(Rc::clone(&self.state.buffers));
        }
    }
}

impl fmt::Debug for UringDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringDriver").field("setup", &self.setup).finish_non_exhaustive()
    }
}

/// What the kernel calls a group of buffers.
const fn group_id(group: Group) -> u16 {
    match group {
        Group::Small => 0,
        Group::Large => 1,
    }
}

// === the operations ===

/// All of the driver but the queues, so that completions can be handled while they are being read.
struct State {
    ops: Ops<Held>,
    /// One for each group, by its id.
    lending: Vec<Lending>,
    buffers: Rc<Buffers>,
    /// Empty ones, to be used again. At most [`SPARE_MAX`].
    #[expect(clippy::vec_box, reason = "the box is what is used again")]
    spare: Vec<Box<Outgoing>>,
    /// Completions of operations that the kernel never saw.
    ready: Vec<Completion>,
    strays: u64,
}

/// The buffers of one group that the kernel has.
struct Lending {
    group: Group,
    ring: LendingRing,
    target: Target,
    /// Buffers that came back since the last turn.
    taken: usize,
    /// A receive ended with `ENOBUFS` since the last turn.
    ran_short: bool,
}

/// What an operation holds: step 1.
enum Held {
    Accept { _listener: Socket },
    Receive { _socket: Socket, group: Group },
    Send { _socket: Socket, outgoing: Box<Outgoing> },
    Connect { _socket: Socket, _address: Box<RawAddress> },
    Wake { eventfd: Socket },
    Cancel,
}

impl State {
    /// Completes an operation without the kernel.
    fn answer(&mut self, token: Token, result: Result<u32, Errno>, payload: Payload) {
        self.ready.push(Completion { token, result, more: false, payload });
    }

    /// Lends the kernel what it may need for a turn; the buffers given back last go first.
    fn lend(&mut self) {
        for lending in &mut self.lending {
            let target = lending.target.on_turn(lending.taken, lending.ran_short);
            lending.taken = 0;
            lending.ran_short = false;
            lending.ring.lend_up_to(&self.buffers, target);
        }
    }

    /// A place for a send that does not move.
    fn outgoing(&mut self, pieces: Pieces) -> Box<Outgoing> {
        let mut outgoing = self.spare.pop().unwrap_or_default();
        outgoing.pieces = pieces;
        outgoing
    }

    /// What a completion of the kernel means to the caller.
    fn on_completion(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let key = entry.user_data();
        let more = cqueue::more(entry.flags());
        let result = u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()));
        // First of all, whatever else is wrong: the kernel may name a buffer with an error or an end, too.
        let chunk = cqueue::buffer_select(entry.flags()).map(|id| self.take_back(id, result.unwrap_or(0)));
        if key == NO_OPERATION {
            return None;
        }
        let Some((token, held)) = self.ops.find(key) else {
            self.strays += 1;
            return None;
        };
        let (result, mut payload) = match held {
            Held::Accept { .. } => match result {
                Ok(_) => {
                    // SAFETY: step 4: the non-negative result of an accept.
                    let accepted = unsafe { OwnedFd::from_raw_fd(entry.result()) };
                    (Ok(0), Payload::Accepted(accepted))
                }
                Err(errno) => (Err(errno), Payload::None),
            },
            Held::Receive { group, .. } => {
                if result == Err(Errno::NOBUFS) {
                    self.lending[usize::from(group_id(*group))].ran_short = true;
                }
                match (result, chunk) {
                    (Ok(0) | Err(_), _) => (result, Payload::None),
                    (Ok(_), Some(chunk)) => (result, Payload::Received(chunk)),
                    // Octets that went nowhere: the kernel has broken its word, so the connection is broken.
                    (Ok(_), None) => (Err(Errno::IO), Payload::None),
                }
            }
            Held::Wake { eventfd } => {
                // One read empties it. Nothing to read: an earlier one took what this readiness was for.
                let _emptied = result.is_ok() && rustix::io::read(&**eventfd, &mut [0; 8]).is_ok();
                (result.map(|_events| 0), Payload::None)
            }
            Held::Send { .. } => (result, Payload::None),
            Held::Connect { .. } => (result.map(|_| 0), Payload::None),
            // EALREADY: it is completing as we speak.
            Held::Cancel if result == Err(Errno::ALREADY) => (Ok(0), Payload::None),
            Held::Cancel => (result.map(|_ended| 0), Payload::None),
        };
        if !more && let Some(Held::Send { mut outgoing, .. }) = self.ops.remove(key) {
            payload = Payload::Sent(mem::take(&mut outgoing.pieces));
            if self.spare.len() < SPARE_MAX {
                self.spare.push(outgoing);
            }
        }
        Some(Completion { token, result, more, payload })
    }

    /// A completion has named a buffer.
    fn take_back(&mut self, id: u16, filled: u32) -> Chunk {
        // SAFETY: step 3: the kernel names a buffer once, and is done with it then.
        let chunk = unsafe { self.buffers.hand_back(id, filled as usize) };
        let lending = &mut self.lending[usize::from(group_id(self.buffers.group_of(id)))];
        debug_assert_eq!(lending.group, self.buffers.group_of(id), "in the order of their ids");
        lending.ring.on_handed_back();
        lending.taken += 1;
        chunk
    }
}

/// A send: what goes out, and the tables that describe it to the kernel. Boxed while the kernel may look at it.
struct Outgoing {
    pieces: Pieces,
    /// Where the pieces' octets are. Valid while `pieces` is what it was made from.
    table: Vec<libc::iovec>,
    /// Refers to `table`.
    header: libc::msghdr,
}

impl Outgoing {
    /// Describes the pieces. The entry points into `self`, which must not move or change until its completion.
    fn entry(&mut self, fd: Fd, wait: bool) -> squeue::Entry {
        let flags = libc::MSG_NOSIGNAL | if wait { libc::MSG_WAITALL } else { libc::MSG_DONTWAIT };
        self.table.clear();
        for octets in self.pieces.slices() {
            // The kernel only reads them, whatever the type says.
            let iov_base = octets.as_ptr().cast_mut().cast();
            self.table.push(libc::iovec { iov_base, iov_len: octets.len() });
        }
        debug_assert!(self.table.len() <= SEND_PIECES_MAX);
        if let [only] = self.table[..] {
            // A send of more than 2 GiB completes short anyway.
            let len = u32::try_from(only.iov_len).unwrap_or(i32::MAX as u32);
            return opcode::Send::new(fd, only.iov_base.cast(), len).flags(flags).build();
        }
        self.header.msg_iov = self.table.as_mut_ptr();
        self.header.msg_iovlen = self.table.len() as _;
        opcode::SendMsg::new(fd, &raw const self.header).flags(flags.cast_unsigned()).build()
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        // SAFETY: a C structure of integers and pointers, for which zeros are valid (and mean: no name, no control
        // data, no pieces).
        let header = unsafe { mem::zeroed() };
        Self { pieces: Pieces::new(), table: Vec::new(), header }
    }
}

// === constants ===

/// The kernel's seconds are signed; a turn may end early.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const POLLIN: u32 = libc::POLLIN as u32;
/// Tables of pieces kept for the next send: more than this are in flight only when peers are slow.
const SPARE_MAX: usize = 256;
/// The completion queue is emptied at most so often a turn, so that a flood cannot keep a worker in one.
const OVERFLOW_ROUNDS_MAX: usize = 16;
/// Pause when the kernel has no memory for a request.
const OUT_OF_MEMORY_PAUSE: Duration = Duration::from_millis(1);
/// A driver that goes away waits so often, so long each, for the kernel to end what it cancelled: microseconds are
/// the rule, two seconds the end of patience.
const ENDING_ROUNDS_MAX: usize = 40;
const ENDING_ROUND: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
