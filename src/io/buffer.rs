//! The memory that octets are received into, and counted slices of it that are sent on without a copy.
//!
//! A worker has two groups of buffers of one size each: many small ones for clients, few large and hot ones for
//! children. A [`Chunk`] is a slice of one buffer; the buffer is free again when its last chunk goes. This file does
//! not decide who may hold how much: it counts ([`Buffers::is_scarce`]), and copies a chunk out of its buffer where
//! the caller asks ([`Chunk::spill`]). Nothing here leaves its thread.
//!
//! # Why the `unsafe` is sound
//!
//! 1. **The memory stays.** A group is one anonymous mapping: page-aligned, readable, writable, zeroed by the kernel
//!    (so every octet is initialised), never moved, unmapped only when [`Buffers`] is dropped. Whoever can reach an
//!    octet owns an `Rc<Buffers>`: each chunk through its `Hold`, and the driver that lends buffers to the kernel.
//! 2. **Buffers are disjoint.** Buffer `id` is the octets from `index * buffer_bytes` on, `buffer_bytes` of them,
//!    within its group's mapping; ids count through both groups.
//! 3. **Each buffer is in exactly one state**, told by `uses[id]`:
//!
//!    | state | `uses` | who may touch the octets | how it is left |
//!    |---|---|---|---|
//!    | free | 0, and its id is on the free list | nobody | [`Buffers::fill`], `Buffers::lend` |
//!    | filling | 1, its `Hold` is inside `fill` | the closure, through the only `&mut` | chunk made, or `Hold` dropped |
//!    | lent | `LENT` | the kernel | `Buffers::hand_back`, called once the kernel has let go of it |
//!    | held | number of its `Hold`s | its chunks, reading | last `Hold` dropped |
//!
//!    Only `fill` makes a `&mut`, and no chunk of that buffer exists then; a chunk only makes `&`, while the buffer is
//!    held, and it cannot become free, filling or lent before that chunk is gone. So no reader meets a writer.
//! 4. **The kernel writes lent buffers only.** It learns an address from a `LendingRing` entry, made by `lend`, and
//!    takes each entry once; the completion that names the buffer ends its use. A driver that goes away ends all use
//!    first, or leaks its `Rc<Buffers>` (`Drop` in `uring.rs`).
//! 5. **A chunk stays within what was filled**: `at` and `len` are made from a checked length, and only ever shrink.
//! 6. **A spilled copy** is a boxed slice that nobody writes after it was made, owned by an `Rc` in each of its chunks.
//! 7. **One thread.** `Rc`, `Cell` and raw pointers keep all of this from being sent or shared, so counts need no
//!    atomics.
//!
//! Trap: octets after the filled part of a buffer are what an earlier connection received. `fill` shows them to its
//! closure and to nobody else.
// One of the two files that may: memory that the kernel writes cannot be described to the compiler.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::{Deref, Range};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::io::Errno;

use crate::limits::{
    LARGE_BUFFER_BYTES, LARGE_BUFFERS, LARGE_BUFFERS_LENT, SMALL_BUFFER_BYTES, SMALL_BUFFERS, SMALL_BUFFERS_LENT,
    SPILL_BYTES_MAX,
};

/// Which buffers a receive uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Many small ones: clients, whose heads are short and who are idle most of the time.
    Small,
    /// Few large ones, kept hot: children's answers, and clients that send long bodies.
    Large,
}

impl Group {
    /// Both groups.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];
}

/// How many buffers of which size a worker has. [`Default`] is what `limits` says; tests use tiny ones.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of small buffers, at least 1 and at most 32,768.
    pub small_buffers: usize,
    /// Octets of a small buffer, at least 1.
    pub small_buffer_bytes: usize,
    /// Small buffers lent to the kernel at the start; more on demand.
    pub small_lent: usize,
    /// Number of large buffers, at least 1 and at most 32,767.
    pub large_buffers: usize,
    /// Octets of a large buffer, at least 1.
    pub large_buffer_bytes: usize,
    /// Large buffers lent to the kernel at the start; more on demand.
    pub large_lent: usize,
    /// Octets of spilled copies at one time.
    pub spill_bytes_max: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            small_buffers: SMALL_BUFFERS,
            small_buffer_bytes: SMALL_BUFFER_BYTES,
            small_lent: SMALL_BUFFERS_LENT,
            large_buffers: LARGE_BUFFERS,
            large_buffer_bytes: LARGE_BUFFER_BYTES,
            large_lent: LARGE_BUFFERS_LENT,
            spill_bytes_max: SPILL_BYTES_MAX,
        }
    }
}

/// The buffers of one worker. Shared by `Rc` with the driver and with every chunk.
pub struct Buffers {
    small: Pool,
    large: Pool,
    /// The state of each buffer, by id: step 3 of the header.
    uses: Box<[Cell<u32>]>,
    sizes: Sizes,
    /// Octets in spilled copies now. At most `sizes.spill_bytes_max`.
    spilled_bytes: Cell<usize>,
    /// Octets ever copied by [`copy`](Self::copy).
    copied_bytes: Cell<u64>,
}

/// A counted, read-only slice of a buffer, of a spilled copy, or of nothing. An empty chunk holds no buffer.
#[derive(Clone)]
pub struct Chunk {
    at: NonNull<u8>,
    /// Octets from `at` on; 0 exactly where `owner` is `Nobody`.
    len: usize,
    owner: Owner,
}

// === impl Buffers ===

impl Buffers {
    /// Maps the memory. It costs nothing until it is touched.
    ///
    /// # Errors
    /// The kernel has no address space for us (a container's limit, `RLIMIT_AS`).
    ///
    /// # Panics
    /// When `sizes` is outside the bounds told there.
    pub fn new(sizes: Sizes) -> io::Result<Rc<Self>> {
        assert!((1..=LENDABLE_MAX).contains(&sizes.small_buffers), "between 1 and 32,768 small buffers");
        assert!((1..LENDABLE_MAX).contains(&sizes.large_buffers), "between 1 and 32,767 large buffers");
        let buffers = sizes.small_buffers + sizes.large_buffers;
        Ok(Rc::new(Self {
            small: Pool::new(0, sizes.small_buffers, sizes.small_buffer_bytes)?,
            large: Pool::new(sizes.small_buffers, sizes.large_buffers, sizes.large_buffer_bytes)?,
            uses: vec![Cell::new(FREE); buffers].into_boxed_slice(),
            sizes,
            spilled_bytes: Cell::new(0),
            copied_bytes: Cell::new(0),
        }))
    }

    /// Takes a free buffer (the one given back last), lets `write` put octets at its start, and returns them. The
    /// buffer is free again if `write` fails, panics or writes nothing; nothing written gives an empty chunk.
    ///
    /// What `write` finds in the slice is left over from earlier uses.
    ///
    /// # Errors
    /// `ENOBUFS` if the group has no free buffer (`write` is not called then); whatever `write` returns.
    ///
    /// # Panics
    /// When `write` says that it wrote more than it was given.
    pub fn fill(
        self: &Rc<Self>,
        group: Group,
        write: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Chunk, Errno> {
        let id = self.pool(group).take_free().ok_or(Errno::NOBUFS)?;
        let hold = self.hold(id, FREE);
        let (at, bytes) = self.place(id);
        // SAFETY: steps 1 and 2: `bytes` initialised octets at `at`, alive while `hold` is; step 3: this buffer was
        // free until the line above and has no chunk yet, so this is the only reference.
        let octets = unsafe { slice::from_raw_parts_mut(at.as_ptr(), bytes) };
        let filled = write(octets)?;
        Ok(Chunk::of_buffer(hold, filled))
    }

    /// A copy of `octets` on the heap, within the spill budget; `None` if they do not fit it. Empty gives an empty
    /// chunk.
    #[must_use]
    pub fn copy(self: &Rc<Self>, octets: &[u8]) -> Option<Chunk> {
        if octets.is_empty() {
            return Some(Chunk::empty());
        }
        let spilled_bytes = self.spilled_bytes.get().checked_add(octets.len())?;
        if spilled_bytes > self.sizes.spill_bytes_max {
            return None;
        }
        self.spilled_bytes.set(spilled_bytes);
        self.copied_bytes.set(self.copied_bytes.get() + octets.len() as u64);
        let spilled = Rc::new(Spilled { octets: octets.into(), buffers: Rc::clone(self) });
        let at = NonNull::from(&*spilled.octets).cast();
        Some(Chunk { at, len: octets.len(), owner: Owner::Heap(spilled) })
    }

    /// The sizes it was made with.
    #[must_use]
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Buffers of the group.
    #[must_use]
    pub fn count(&self, group: Group) -> usize {
        self.pool(group).count
    }

    /// Octets of one buffer of the group.
    #[must_use]
    pub fn buffer_bytes(&self, group: Group) -> usize {
        self.pool(group).buffer_bytes
    }

    /// Buffers of the group that no chunk holds: on the free list, or lent to the kernel and still empty.
    #[must_use]
    pub fn free(&self, group: Group) -> usize {
        let pool = self.pool(group);
        pool.count - pool.held.get()
    }

    /// Less than a quarter of the group is free: octets that wait for a slow peer should be spilled, and no receive
    /// that ended with `ENOBUFS` should be armed again.
    #[must_use]
    pub fn is_scarce(&self, group: Group) -> bool {
        self.free(group) * 4 < self.count(group)
    }

    /// Octets in spilled copies now.
    #[must_use]
    pub fn spilled_bytes(&self) -> usize {
        self.spilled_bytes.get()
    }

    /// Octets ever copied out of buffers.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.get()
    }

    /// Takes a free buffer for the kernel to fill: its id, its address and its length.
    fn lend(&self, group: Group) -> Option<(u16, NonNull<u8>, usize)> {
        let id = self.pool(group).take_free()?;
        let uses = self.uses[usize::from(id)].replace(LENT);
        assert_eq!(uses, FREE, "a buffer on the free list was in use");
        let (at, bytes) = self.place(id);
        Some((id, at, bytes))
    }

    /// The kernel has given a lent buffer back, with its first `filled` octets written. With none, the buffer is free
    /// and the chunk empty.
    ///
    /// # Safety
    /// The kernel will not touch the buffer again: a completion named it, or the driver that lent it is gone.
    ///
    /// # Panics
    /// When the buffer was not lent, or is smaller than `filled`.
    pub(super) unsafe fn hand_back(self: &Rc<Self>, id: u16, filled: usize) -> Chunk {
        Chunk::of_buffer(self.hold(id, LENT), filled)
    }

    /// Moves a buffer from the state `from` to held, by one.
    fn hold(self: &Rc<Self>, id: u16, from: u32) -> Hold {
        let uses = self.uses[usize::from(id)].replace(1);
        assert_eq!(uses, from, "a buffer in two states");
        let pool = self.pool_of(id);
        pool.held.set(pool.held.get() + 1);
        Hold { buffers: Rc::clone(self), id }
    }

    /// Where the octets of a buffer are, and how many.
    fn place(&self, id: u16) -> (NonNull<u8>, usize) {
        let pool = self.pool_of(id);
        let index = usize::from(id) - pool.first;
        assert!(index < pool.count, "no such buffer");
        // SAFETY: step 2: `index < count`, so the offset lies within the mapping of `count * buffer_bytes`.
        let at = unsafe { pool.memory.base.add(index * pool.buffer_bytes) };
        (at, pool.buffer_bytes)
    }

    fn pool(&self, group: Group) -> &Pool {
        match group {
            Group::Small => &self.small,
            Group::Large => &self.large,
        }
    }

    fn pool_of(&self, id: u16) -> &Pool {
        self.pool(self.group_of(id))
    }

    /// The group of a buffer.
    pub(super) fn group_of(&self, id: u16) -> Group {
        if usize::from(id) < self.large.first { Group::Small } else { Group::Large }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers")
            .field("small_free", &self.free(Group::Small))
            .field("large_free", &self.free(Group::Large))
            .field("spilled_bytes", &self.spilled_bytes())
            .finish_non_exhaustive()
    }
}

// === impl Chunk ===

impl Chunk {
    /// No octets.
    #[must_use]
    pub const fn empty() -> Self {
        Self { at: NonNull::dangling(), len: 0, owner: Owner::Nobody }
    }

    /// The octets from `range.start` to `range.end` of this one, sharing its memory.
    ///
    /// # Panics
    /// When the range is not within the chunk.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "a slice outside its chunk");
        if range.is_empty() {
            return Self::empty();
        }
        // SAFETY: step 5: `start` is within the octets that this chunk owns.
        let at = unsafe { self.at.add(range.start) };
        Self { at, len: range.len(), owner: self.owner.clone() }
    }

    /// Cuts off and returns the first `len` octets; the rest stays.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        let rest = self.slice(len..self.len);
        let mut front = std::mem::replace(self, rest);
        front.truncate(len);
        front
    }

    /// Drops the first `len` octets.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn advance(&mut self, len: usize) {
        drop(self.split_to(len));
    }

    /// Keeps the first `len` octets, or all if there are fewer.
    pub fn truncate(&mut self, len: usize) {
        if len == 0 {
            *self = Self::empty();
        } else if len < self.len {
            self.len = len;
        }
    }

    /// A copy of these octets that pins no buffer, within the worker's spill budget; `None` where that is used up.
    /// A chunk that pins none is returned as it is.
    #[must_use]
    pub fn spill(&self) -> Option<Self> {
        match &self.owner {
            Owner::Buffer(hold) => hold.buffers.copy(self),
            Owner::Heap(_) | Owner::Nobody => Some(self.clone()),
        }
    }

    /// It is (part of) a copy that [`spill`](Self::spill) made.
    #[must_use]
    pub const fn is_spilled(&self) -> bool {
        matches!(self.owner, Owner::Heap(_))
    }

    /// The group whose buffer it pins, if it pins one.
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        match &self.owner {
            Owner::Buffer(hold) => Some(hold.buffers.group_of(hold.id)),
            Owner::Heap(_) | Owner::Nobody => None,
        }
    }

    /// The first `filled` octets of a held buffer.
    fn of_buffer(hold: Hold, filled: usize) -> Self {
        let (at, bytes) = hold.buffers.place(hold.id);
        assert!(filled <= bytes, "{filled} octets in a buffer of {bytes}");
        if filled == 0 { Self::empty() } else { Self { at, len: filled, owner: Owner::Buffer(hold) } }
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::empty()
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: step 5: `len` octets from `at` are what was filled; steps 1, 3 and 6: they stay, initialised and
        // without a writer, while `owner` is alive, which is as long as the borrow of `self`. Without an owner `len`
        // is 0, and a dangling pointer will do.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self[..self.len.min(32)];
        let more = if shown.len() < self.len { "…" } else { "" };
        let spilled = if self.is_spilled() { ", spilled" } else { "" };
        write!(f, "Chunk({} octets{spilled}: \"{}{more}\")", self.len, shown.escape_ascii())
    }
}

// === what keeps a chunk's octets ===

#[derive(Clone)]
enum Owner {
    Nobody,
    Buffer(Hold),
    Heap(#[expect(dead_code, reason = "owned for its drop")] Rc<Spilled>),
}

/// One use of a held buffer. The last to go puts the buffer on the free list.
struct Hold {
    buffers: Rc<Buffers>,
    id: u16,
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        let uses = &self.buffers.uses[usize::from(self.id)];
        // Leaked clones must not count up to `LENT`, or round to `FREE`.
        assert!(uses.get() < LENT - 1, "too many uses of one buffer");
        uses.set(uses.get() + 1);
        Self { buffers: Rc::clone(&self.buffers), id: self.id }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let uses = &self.buffers.uses[usize::from(self.id)];
        uses.set(uses.get() - 1);
        if uses.get() == FREE {
            let pool = self.buffers.pool_of(self.id);
            pool.held.set(pool.held.get() - 1);
            pool.free.borrow_mut().push(self.id);
        }
    }
}

/// A spilled copy. Gives its part of the budget back when it goes.
struct Spilled {
    octets: Box<[u8]>,
    buffers: Rc<Buffers>,
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let spilled_bytes = &self.buffers.spilled_bytes;
        spilled_bytes.set(spilled_bytes.get() - self.octets.len());
    }
}

// === the memory of a group ===

struct Pool {
    memory: Region,
    /// Id of its first buffer.
    first: usize,
    count: usize,
    buffer_bytes: usize,
    /// Ids of the free buffers; the last to come is the first to go, because its octets are still in the cache.
    free: RefCell<Vec<u16>>,
    /// Buffers that chunks hold.
    held: Cell<usize>,
}

impl Pool {
    fn new(first: usize, count: usize, buffer_bytes: usize) -> io::Result<Self> {
        assert!(buffer_bytes > 0 && u32::try_from(buffer_bytes).is_ok(), "a buffer has 1 to 2^32 - 1 octets");
        let ids = first..first + count;
        let free = ids.rev().map(|id| u16::try_from(id).expect("at most 65,535 buffers")).collect();
        Ok(Self {
            memory: Region::new(count * buffer_bytes)?,
            first,
            count,
            buffer_bytes,
            free: RefCell::new(free),
            held: Cell::new(0),
        })
    }

    fn take_free(&self) -> Option<u16> {
        self.free.borrow_mut().pop()
    }
}

/// An anonymous mapping, on huge pages where it is large enough for one and the host allows it.
struct Region {
    /// Where the octets begin: on a page, and on a huge page if it spans one.
    base: NonNull<u8>,
    /// What was mapped, which may begin before `base`.
    mapped: NonNull<libc::c_void>,
    mapped_bytes: usize,
}

impl Region {
    fn new(bytes: usize) -> io::Result<Self> {
        let huge = bytes >= HUGE_PAGE_BYTES;
        let mapped_bytes = if huge { bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES } else { bytes };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping wherever the kernel likes touches no memory of ours.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(mapped).expect("the kernel maps nothing at 0 unasked");
        let mut base = mapped.cast::<u8>();
        if huge {
            // SAFETY: at most `HUGE_PAGE_BYTES - 1` octets on, and the mapping is longer than that.
            base = unsafe { base.add(base.align_offset(HUGE_PAGE_BYTES)) };
            let huge_bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
            // SAFETY: advice about memory that is ours; it changes no octet. Refused advice is no loss.
            let _advised = unsafe { libc::madvise(base.as_ptr().cast(), huge_bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { base, mapped, mapped_bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; step 1: no pointer into it is used after this.
        let failed = unsafe { libc::munmap(self.mapped.as_ptr(), self.mapped_bytes) };
        debug_assert_eq!(failed, 0, "munmap of a mapping of ours");
    }
}

// === buffers lent to the kernel ===

/// The ring of free buffers that an io_uring instance takes from (`IORING_REGISTER_PBUF_RING`). We write entries and
/// the tail; the kernel only reads it.
pub(super) struct LendingRing {
    memory: Region,
    group: Group,
    /// A power of two, not less than the buffers of the group: it cannot be full.
    entries: u16,
    /// Buffers ever lent, modulo 2^16.
    tail: u16,
    /// Buffers in the ring, or taken by the kernel and not yet named by a completion.
    lent: usize,
}

impl LendingRing {
    /// An empty ring, not yet registered. The driver keeps it until the kernel has closed the io_uring instance.
    pub(super) fn new(buffers: &Buffers, group: Group) -> io::Result<Self> {
        let entries = buffers.count(group).next_power_of_two();
        let memory = Region::new(entries * size_of::<BufRingEntry>())?;
        let entries = u16::try_from(entries).expect("at most 32,768 buffers in a group");
        Ok(Self { memory, group, entries, tail: 0, lent: 0 })
    }

    /// The ring's address, as the kernel wants it.
    pub(super) fn address(&self) -> u64 {
        self.memory.base.as_ptr().expose_provenance() as u64
    }

    /// Number of entries, a power of two.
    pub(super) const fn entries(&self) -> u16 {
        self.entries
    }

    /// Buffers that the kernel has now.
    #[cfg(test)]
    pub(super) const fn lent(&self) -> usize {
        self.lent
    }

    /// A completion has named one of the buffers: the kernel has one less.
    pub(super) const fn on_handed_back(&mut self) {
        self.lent -= 1;
    }

    /// Lends free buffers until the kernel has `target`, or none is free.
    pub(super) fn lend_up_to(&mut self, buffers: &Buffers, target: usize) {
        let before = self.tail;
        let ring = self.memory.base.cast::<BufRingEntry>();
        while self.lent < target
            && let Some((id, at, bytes)) = buffers.lend(self.group)
        {
            let index = usize::from(self.tail & (self.entries - 1));
            // SAFETY: `index < entries`, and the mapping has that many entries.
            let mut entry = unsafe { ring.add(index) };
            // SAFETY: an initialised entry within the mapping; the kernel, its only other reader, has taken it: it
            // has fewer than `entries` buffers. The tail, which lies in the unused part of entry 0, is not written
            // through this reference.
            let entry = unsafe { entry.as_mut() };
            entry.set_addr(at.as_ptr().expose_provenance() as u64);
            entry.set_len(u32::try_from(bytes).expect("checked in Pool::new"));
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            self.lent += 1;
        }
        if self.tail != before {
            // SAFETY: the mapping begins with an initialised entry, of which the tail is a part.
            let tail = unsafe { BufRingEntry::tail(ring.as_ptr()) };
            // SAFETY: aligned and within the mapping; the kernel reads it as an atomic too.
            let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
            // Release: pairs with the kernel's acquire of the tail, so that it sees the entries written above.
            tail.store(self.tail, Ordering::Release);
        }
    }
}

// === constants ===

/// On the free list.
const FREE: u32 = 0;
/// The kernel has it.
const LENT: u32 = u32::MAX;
/// The kernel's bound on a ring of provided buffers.
const LENDABLE_MAX: usize = 32_768;
/// Of x86-64, and of aarch64 with 4 KiB pages; elsewhere the advice just does less.
const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests;
