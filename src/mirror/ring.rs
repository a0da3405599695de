//! The broadcast ring: one producer, any number of readers with cursors of their own, nobody waits for anybody.
//!
//! Not a queue (reading takes nothing out) and not a journal: what is overwritten is gone, and a reader that still
//! needed it is told so. Positions count entries, changes and probes alike; sequences count changes only.
//!
//! # Why it is right
//!
//! - *One producer*: [`Writer`] is not `Clone` and [`Writer::publish`] takes `&mut self`.
//! - A slot is an `ArcSwapOption`: a reader gets the whole entry that stands there or nothing, never half of one, and
//!   keeps what it got alive. So a reader can be overtaken, but not misled.
//! - An entry carries its position. `publish` stores the entry into its slot *before* it raises `head` (Release); a
//!   reader that sees `head` (Acquire) above its position therefore finds in the slot that entry or, if it was
//!   overtaken, a later one or none. Equal positions: the entry. Unequal or none: overrun. An overrun is final, because
//!   a position is published once.
//! - A reader that does not see a new `head` yet reads "not yet", and is woken after `publish`.
//!
//! # Memory
//!
//! Slots bound the count, `bytes_max` the octets: before an entry goes in, the oldest leave until the sum fits. The
//! newest entry always goes in, also if it alone is larger.

use std::fmt;

use arc_swap::ArcSwapOption;

use super::change::Change;
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};
use crate::time::Time;

/// What stands in the ring.
#[derive(Debug)]
pub struct Entry {
    /// The how-manieth entry this is, from 0.
    pub position: u64,
    /// The sequence of the last change at or before this position; 0 if there is none.
    pub through: u64,
    /// A change for all, or a probe for one.
    pub what: What,
}

/// The two kinds of entry.
#[derive(Debug)]
pub enum What {
    /// A numbered change: its ticket is set.
    Change(Arc<Change>),
    /// A question about one child's health. Without a sequence; worthless once expired.
    Probe {
        /// Index of the child in its group.
        child: usize,
        /// An answer that has not come by then is a bad one.
        expires: Time,
    },
}

impl Entry {
    /// The sequence of the last change before this position; 0 if there is none.
    #[must_use]
    pub const fn before(&self) -> u64 {
        match self.what {
            What::Change(_) => self.through - 1,
            What::Probe { .. } => self.through,
        }
    }

    /// What the entry counts against the ring's byte budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.what {
            What::Change(change) => ENTRY_BYTES + change.bytes(),
            What::Probe { .. } => ENTRY_BYTES,
        }
    }
}

/// The answer to a reader.
#[derive(Debug)]
pub enum Read {
    /// The entry at the position asked for.
    Entry(Arc<Entry>),
    /// Nothing has been published there yet: the reader is at the head.
    NotYet,
    /// It was there and has been taken out. It will not come back.
    Overrun,
}

/// The readers' half.
pub struct Ring {
    slots: Box<[ArcSwapOption<Entry>]>,
    /// The sequence of the last change before position 0.
    base: u64,
    bytes_max: usize,
    /// The position that is published next. Written by the producer only, after the slot.
    head: CachePadded<AtomicU64>,
    /// The oldest position that is still held; at most `head`, at least `head - slots`. For displays and forecasts.
    tail: CachePadded<AtomicU64>,
    /// Octets held.
    bytes: CachePadded<AtomicU64>,
}

/// The producer's half.
#[derive(Debug)]
pub struct Writer {
    ring: Arc<Ring>,
}

/// Makes a ring of `slots` entries and `bytes_max` octets.
///
/// # Panics
/// If `slots` is not a power of two.
#[must_use]
pub fn ring(slots: usize, bytes_max: usize) -> (Arc<Ring>, Writer) {
    ring_after(0, slots, bytes_max)
}

/// The same, where changes up to `base` were published before there was this ring.
pub(super) fn ring_after(base: u64, slots: usize, bytes_max: usize) -> (Arc<Ring>, Writer) {
    assert!(slots.is_power_of_two(), "a ring's slots are a power of two");
    let ring = Arc::new(Ring {
        slots: (0..slots).map(|_| ArcSwapOption::empty()).collect(),
        base,
        bytes_max,
        head: CachePadded::new(AtomicU64::new(0)),
        tail: CachePadded::new(AtomicU64::new(0)),
        bytes: CachePadded::new(AtomicU64::new(0)),
    });
    (Arc::clone(&ring), Writer { ring })
}

// === impl Ring ===

impl Ring {
    /// What stands at `position`. Costs two atomic loads and a reference count.
    #[must_use]
    pub fn read(&self, position: u64) -> Read {
        // Acquire pairs with the Release in `publish`: the slot is at least as new as this head.
        if position >= self.head.load(Ordering::Acquire) {
            return Read::NotYet;
        }
        match self.slot(position).load_full() {
            Some(entry) if entry.position == position => Read::Entry(entry),
            _ => Read::Overrun,
        }
    }

    /// The position that is published next: a reader that has confirmed everything stands here.
    #[must_use]
    pub fn head(&self) -> u64 {
        // Acquire: what is below it can be read.
        self.head.load(Ordering::Acquire)
    }

    /// The sequence of the last change before the first position.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// The oldest position that is still held. A forecast: it may have risen by the time it is used.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Octets held, as [`Entry::bytes`] counts them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // Relaxed: for display, and for the producer that wrote it.
        self.bytes.load(Ordering::Relaxed)
    }

    /// The sequence of the last change below `position`, if the entry there is still held. A reader that jumps to
    /// `position` has thereby passed all changes up to it.
    #[must_use]
    pub fn through(&self, position: u64) -> Option<u64> {
        let Some(before) = position.checked_sub(1) else {
            return Some(self.base);
        };
        match self.read(before) {
            Read::Entry(entry) => Some(entry.through),
            Read::NotYet | Read::Overrun => None,
        }
    }

    /// The position of the change with that sequence, if it is still held. Costs a [`read`](Self::read) for each
    /// halving of what is held; as with every position, it may be overrun by the time it is read.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<u64> {
        let (mut low, mut high) = (self.tail(), self.head());
        // `through` never falls. Below `low` it is less than `sequence`, or the entry is gone; from `high` on it is not
        // less. Probes carry the sequence of the change before them, so the first that has it is the change, if held.
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle) {
                Read::Entry(entry) if entry.through >= sequence => {
                    let is_it = entry.through == sequence && matches!(entry.what, What::Change(_));
                    found = is_it.then_some(middle);
                    high = middle;
                }
                Read::Entry(_) | Read::Overrun => low = middle + 1,
                Read::NotYet => high = middle,
            }
        }
        found
    }

    fn slot(&self, position: u64) -> &ArcSwapOption<Entry> {
        // The count of slots is a power of two; the cast keeps the low bits, which are all that matter.
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &self.slots.len())
            .field("tail", &self.tail())
            .field("head", &self.head())
            .field("bytes", &self.bytes())
            .finish()
    }
}

// === impl Writer ===

impl Writer {
    /// The readers' half.
    #[must_use]
    pub const fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Publishes `what` at the head and returns its position. `through` is the sequence of the last change, this one
    /// included. Old entries leave as needed; never blocks.
    pub fn publish(&mut self, through: u64, what: What) -> u64 {
        let ring = &*self.ring;
        // Relaxed: this thread wrote it.
        let position = ring.head.load(Ordering::Relaxed);
        let entry = Entry { position, through, what };
        let bytes = entry.bytes() as u64;
        let tail = self.tail_after(bytes);
        let mut held = ring.bytes.load(Ordering::Relaxed);
        for old in ring.tail.load(Ordering::Relaxed)..tail {
            // What leaves is dropped here, or by the last lane that still sends it.
            held -= ring.slot(old).swap(None).map_or(0, |entry| entry.bytes() as u64);
        }
        // Release: who reads this tail knows that what is below it is gone.
        ring.tail.store(tail, Ordering::Release);
        ring.bytes.store(held + bytes, Ordering::Relaxed);
        let before = ring.slot(position).swap(Some(Arc::new(entry)));
        assert!(before.is_none(), "a slot is emptied before it is used again");
        // Release pairs with the Acquire in `read`: the slot is written before the head says so.
        ring.head.store(position + 1, Ordering::Release);
        position
    }

    /// Where the tail will stand after an entry of `bytes` octets has been published: what is below it is lost.
    #[must_use]
    pub fn tail_after(&self, bytes: u64) -> u64 {
        let ring = &*self.ring;
        let head = ring.head.load(Ordering::Relaxed);
        let mut tail = ring.tail.load(Ordering::Relaxed);
        let mut held = ring.bytes.load(Ordering::Relaxed);
        let slots = ring.slots.len() as u64;
        while tail < head && (head + 1 - tail > slots || held + bytes > ring.bytes_max as u64) {
            held -= ring.slot(tail).load().as_ref().map_or(0, |entry| entry.bytes() as u64);
            tail += 1;
        }
        tail
    }
}

/// What an entry costs beside its head and body: the entry, the change's tables, their counts. An estimate, so that a
/// ring of small changes is bounded too.
pub const ENTRY_BYTES: usize = 512;

#[cfg(test)]
mod tests;
