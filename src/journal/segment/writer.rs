//! The journal as its sequencer writes it: one write and one sync a batch.
//!
//! A commit encodes marks, then changes, into frames in a reused buffer, writes it where the last frame ended, and syncs.
//! When the segment is full, what it got is synced and the next one begins, with a checkpoint, in the same commit.
//! Anything unexpected (an error, a short write) ends the journal for good: nothing is written or synced again, and
//! what is on the disk is found out by the next start.

use super::disk::{File, write_whole};
use super::shared::{Place, Segment, Shared};
use super::supply::Supply;
use crate::crash;
use crate::journal::record::{
    ALIGNMENT, ChangeRef, FRAME_HEADER_BYTES, FrameHeader, Previous, Record, SEGMENT_HEADER_BYTES, SegmentHeader,
    padded, put_change, put_checkpoint, put_epoch, put_mark, salted,
};
use crate::journal::state::State;
use crate::limits::{FRAME_BYTES_MAX, FRAME_RECORDS_MAX, JOURNAL_BUFFER_BYTES_MAX};
use crate::mirror::Change;
use crate::mirror::durable::{Journal, JournalFailed, JournalFull, Mark, SYNC_EDGES_US, Space};
use crate::sync::Arc;
use crate::time::now;

/// What every segment of this journal says.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) group: Box<str>,
    pub(super) mode: Box<str>,
    pub(super) segment_bytes: u64,
}

/// The record of a group's changes, open for writing.
pub struct Writer {
    shared: Arc<Shared>,
    identity: Identity,
    supply: Supply,
    segments_max: u64,
    /// All that is on record, once `commit` has returned.
    state: State,
    head: Head,
    /// Encoded and not written yet. Its first octet belongs at `head.written`.
    buffer: Vec<u8>,
    /// The frame that is being filled, at the end of the buffer.
    draft: Option<Draft>,
    /// A mark on its way into a frame.
    scratch: Vec<u8>,
    released: u64,
    trimmed: u64,
    syncs: Syncs,
    /// Given back last, when nothing of ours works in the directory any more.
    _lock: Box<dyn Send>,
}

/// The segment in use.
pub(super) struct Head {
    pub(super) file: Arc<dyn File>,
    pub(super) segment: Arc<Segment>,
    /// Written up to here ...
    pub(super) written: u64,
    /// ... and synced up to here.
    pub(super) synced: u64,
    /// Of the last frame's header.
    pub(super) last_crc: u32,
}

/// How long syncs took.
#[derive(Clone, Copy, Debug, Default)]
struct Syncs {
    us: u64,
    us_max: u64,
    buckets: [u64; SYNC_EDGES_US.len() + 1],
}

/// A frame without its header yet.
#[derive(Clone, Copy, Debug)]
struct Draft {
    /// Where in the buffer it begins.
    start: usize,
    records: u32,
    changes: u32,
    first_sequence: u64,
}

impl Syncs {
    fn on_sync(&mut self, us: u64) {
        self.us = self.us.saturating_add(us);
        self.us_max = self.us_max.max(us);
        self.buckets[SYNC_EDGES_US.partition_point(|edge| *edge < us)] += 1;
    }
}

// === impl Writer ===

impl Writer {
    /// A writer that goes on behind what was found.
    pub(super) fn resume(
        shared: Arc<Shared>,
        identity: Identity,
        supply: Supply,
        segments_max: u64,
        state: State,
        head: Head,
        lock: Box<dyn Send>,
    ) -> Self {
        let trimmed = shared.oldest() - 1;
        shared.set_names(&state.members);
        Self {
            shared,
            identity,
            supply,
            segments_max,
            state,
            head,
            buffer: Vec::new(),
            draft: None,
            scratch: Vec::new(),
            released: trimmed,
            trimmed,
            syncs: Syncs::default(),
            _lock: lock,
        }
    }

    /// The first segment of a journal that has none; or one in which an epoch begins.
    pub(super) fn begin(
        disk_file: (u64, Arc<dyn File>),
        identity: &Identity,
        previous: Previous,
        state: &State,
        salt: u64,
        now_ms: u64,
    ) -> (Head, Vec<u8>) {
        let (ordinal, file) = disk_file;
        let header = SegmentHeader {
            ordinal,
            salt,
            created_ms: now_ms,
            epoch: state.epoch,
            first_sequence: state.last + 1,
            previous,
            bytes: identity.segment_bytes,
            group: identity.group.clone(),
            mode: identity.mode.clone(),
        };
        let segment = Arc::new(Segment::new(&header, SEGMENT_HEADER_BYTES as u64));
        let head = Head { file, segment, written: 0, synced: 0, last_crc: 0 };
        (head, header.encode().to_vec())
    }

    /// Marks and an epoch's beginning that a start puts on record.
    pub(super) fn commit_start(&mut self, epoch: Option<(u64, u64, u64)>, marks: &[Mark]) -> Result<(), JournalFailed> {
        if let Some((epoch, first, ended)) = epoch {
            self.scratch.clear();
            put_epoch(&mut self.scratch, epoch, first, ended);
            let record = std::mem::take(&mut self.scratch);
            self.append(record.len(), 0, |out| out.extend_from_slice(&record))?;
            self.scratch = record;
            let record = Record::Epoch { epoch, first, ended };
            self.state.on_record(&record).map_err(|bad| self.fail(bad.0))?;
        }
        self.commit_refs(marks, [])
    }

    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    /// As [`Journal::commit`], with changes as they are written; they are numbered, and dated, already.
    ///
    /// # Errors
    /// As there.
    pub fn commit_refs<'a>(
        &mut self,
        marks: &[Mark],
        changes: impl IntoIterator<Item = ChangeRef<'a>>,
    ) -> Result<(), JournalFailed> {
        if let Some(failed) = self.shared.failed() {
            return Err(failed);
        }
        for mark in marks {
            let mut record = std::mem::take(&mut self.scratch);
            record.clear();
            put_mark(&mut record, mark);
            self.append(record.len(), 0, |out| out.extend_from_slice(&record))?;
            self.scratch = record;
            self.state.on_mark(mark).map_err(|bad| self.fail(bad.0))?;
            if let Mark::Members(names) = mark {
                self.shared.set_names(names);
            }
        }
        for change in changes {
            self.append(change.bytes(), 1, |out| put_change(out, &change))?;
            if self.draft.is_some_and(|draft| draft.changes == 1) {
                self.remember(change.sequence, change.unix_ms);
            }
            self.state.on_change(change.sequence, change.live).map_err(|bad| self.fail(bad.0))?;
        }
        self.close();
        self.flush()?;
        if !marks.is_empty() {
            crash::point("journal.marks");
        }
        // Nothing was handed in: nothing is written, and nothing is synced.
        self.sync()?;
        self.shared.set_durable(self.state.last);
        self.state.prune(self.trimmed);
        self.trim();
        self.supply.top_up();
        Ok(())
    }

    /// Where the frames of the segment in use end.
    #[cfg(test)]
    pub(super) fn end(&self) -> u64 {
        self.head.synced
    }

    /// Puts a record of `bytes` octets into a frame; a segment that is too full for it is left.
    fn append(&mut self, bytes: usize, changes: u32, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), JournalFailed> {
        let full = |draft: Draft, held: usize| {
            draft.records as usize >= FRAME_RECORDS_MAX || held - draft.start + bytes > FRAME_BYTES_MAX
        };
        if self.draft.is_some_and(|draft| full(draft, self.buffer.len())) {
            self.close();
            if self.buffer.len() >= JOURNAL_BUFFER_BYTES_MAX {
                self.flush()?;
            }
        }
        if !self.fits(bytes) {
            self.rotate()?;
            if !self.fits(bytes) {
                return Err(self.fail("a record is larger than a segment"));
            }
        }
        let next = self.state.last + 1;
        let buffer = &mut self.buffer;
        let draft = self.draft.get_or_insert_with(|| {
            let start = buffer.len();
            buffer.resize(start + FRAME_HEADER_BYTES, 0);
            Draft { start, records: 0, changes: 0, first_sequence: next }
        });
        draft.records += 1;
        draft.changes += changes;
        put(buffer);
        Ok(())
    }

    /// Is there room in the segment for a record of so many octets?
    fn fits(&self, bytes: usize) -> bool {
        let header = if self.draft.is_some() { 0 } else { FRAME_HEADER_BYTES };
        self.position() + (header + bytes + ALIGNMENT) as u64 <= self.head.segment.bytes
    }

    /// Where the next octet of the buffer comes to lie.
    fn position(&self) -> u64 {
        self.head.written + self.buffer.len() as u64
    }

    /// Ends the frame that is being filled.
    fn close(&mut self) {
        let Some(draft) = self.draft.take() else {
            return;
        };
        let payload = draft.start + FRAME_HEADER_BYTES;
        self.buffer.resize(payload + padded(self.buffer.len() - payload), 0);
        let salt = self.head.segment.salt;
        let header = FrameHeader {
            length: u32::try_from(self.buffer.len() - payload).expect("a frame fits a segment"),
            records: draft.records,
            changes: draft.changes,
            payload_crc: salted(salt, &self.buffer[payload..]),
            salt,
            first_sequence: draft.first_sequence,
            durable_upto: self.head.synced,
            position: self.head.written + draft.start as u64,
            epoch: self.state.epoch,
        };
        let octets = header.encode();
        self.buffer[draft.start..payload].copy_from_slice(&octets);
        self.head.last_crc = header.crc();
    }

    /// Writes what is encoded.
    fn flush(&mut self) -> Result<(), JournalFailed> {
        debug_assert!(self.draft.is_none(), "only whole frames are written");
        if self.buffer.is_empty() {
            return Ok(());
        }
        crash::point("journal.append");
        if let Err(error) = write_whole(&*self.head.file, &self.buffer, self.head.written) {
            return Err(self.fail_file("written", &error));
        }
        crash::point("journal.written");
        self.head.written += self.buffer.len() as u64;
        self.buffer.clear();
        // A batch of large changes should not cost its memory for ever.
        self.buffer.shrink_to(JOURNAL_BUFFER_BYTES_MAX);
        Ok(())
    }

    /// Makes what is written durable, and lets readers see it.
    fn sync(&mut self) -> Result<(), JournalFailed> {
        if self.head.synced == self.head.written {
            return Ok(());
        }
        let start = now();
        let done = self.head.file.sync_data();
        let took = u64::try_from(now().since(start).as_micros()).unwrap_or(u64::MAX);
        self.syncs.on_sync(took);
        if let Err(error) = done {
            return Err(self.fail_file("synced", &error));
        }
        crash::point("journal.synced");
        self.head.synced = self.head.written;
        self.head.segment.set_end(self.head.synced);
        Ok(())
    }

    /// Goes on in the next segment.
    fn rotate(&mut self) -> Result<(), JournalFailed> {
        self.close();
        self.flush()?;
        self.sync()?;
        crash::point("segment.full");
        let file = match self.supply.take() {
            Ok(file) => file,
            Err(why) => return Err(self.fail(&why)),
        };
        let previous = Previous { salt: self.head.segment.salt, end: self.head.synced, crc: self.head.last_crc };
        let disk = &self.shared.disk;
        let (head, octets) = Self::begin(file, &self.identity, previous, &self.state, disk.random(), disk.unix_ms());
        self.head = head;
        self.begin_buffer(octets);
        if self.position() > self.head.segment.bytes / 2 {
            return Err(self.fail("what is known of the children does not fit a segment's beginning"));
        }
        self.shared.push(Arc::clone(&self.head.segment));
        crash::point("segment.begun");
        Ok(())
    }

    /// Opens a segment's first frame with the checkpoint.
    pub(super) fn begin_buffer(&mut self, header: Vec<u8>) {
        self.buffer.extend_from_slice(&header);
        let start = self.buffer.len();
        self.buffer.resize(start + FRAME_HEADER_BYTES, 0);
        put_checkpoint(&mut self.buffer, &self.state);
        self.draft = Some(Draft { start, records: 1, changes: 0, first_sequence: self.state.last + 1 });
    }

    /// For readers: where the frame that is being filled begins.
    fn remember(&self, sequence: u64, unix_ms: u64) {
        if let Some(draft) = self.draft {
            let position = self.head.written + draft.start as u64;
            self.head.segment.remember(Place { sequence, position, unix_ms });
        }
    }

    /// Lets go of segments that nobody needs: neither by the sequencer's word nor, after a power cut, by the record's.
    fn trim(&mut self) {
        let through = self.released.min(self.state.needed_after());
        let gone = self.shared.trim(through);
        self.trimmed = self.shared.oldest() - 1;
        self.supply.unlink(gone);
    }

    fn fail_file(&self, what: &str, error: &std::io::Error) -> JournalFailed {
        let path = self.shared.disk.path(&self.head.segment.name);
        let (from, to) = (self.head.synced, self.position());
        self.fail(&format!("{path} could not be {what} (octets {from} to {to}): {error}"))
    }

    fn fail(&self, why: &str) -> JournalFailed {
        self.shared.fail(format!("{why}; restart antiphon, which finds out what is on record"))
    }

    /// Segments that a batch of so many octets may need beside the one in use.
    fn needs(&self, bytes: u64) -> u64 {
        let size = self.identity.segment_bytes;
        // Records have a hundred octets beside what is counted here; a frame's end leaves some unused.
        let about = bytes + bytes / 4 + size / 64;
        if self.head.written + about <= self.head.segment.bytes { 0 } else { about.div_ceil(size / 2) }
    }
}

impl Journal for Writer {
    fn room(&mut self, bytes: u64) -> Result<(), JournalFull> {
        if let Some(failed) = self.shared.failed() {
            return Err(JournalFull { why: failed.why });
        }
        let size = self.identity.segment_bytes;
        if self.state.checkpoint_bytes() > size / 4 {
            let (count, why) =
                (self.state.exceptions.len(), "changes that were refused are remembered for children that are away");
            return Err(JournalFull { why: format!("{count} {why}, which is as much as a segment's beginning holds") });
        }
        let needs = self.needs(bytes);
        let used = self.shared.count() as u64;
        // Also where there is room in a segment that marks have begun beyond the limit: what is left of it is theirs.
        if used + needs > self.segments_max {
            let (bytes, max) = (used * size, self.segments_max * size);
            return Err(JournalFull {
                why: format!("the journal has {bytes} octets of at most {max} (journal_bytes_max)"),
            });
        }
        if needs == 0 {
            self.supply.top_up();
            // Where marks have begun to use the reserve, what is left of its segment is theirs.
            return match self.supply.refused().filter(|_| !self.supply.has_reserve()) {
                Some(why) => Err(JournalFull { why: why.to_owned() }),
                None => Ok(()),
            };
        }
        self.supply.ensure(usize::try_from(needs).unwrap_or(usize::MAX)).map_err(|why| JournalFull { why })
    }

    fn commit(&mut self, marks: &[Mark], changes: &[Arc<Change>]) -> Result<(), JournalFailed> {
        let now_ms = self.shared.disk.unix_ms();
        // One without a ticket is not the next in order, and is found out as such.
        let sequence = |change: &Change| change.ticket().map_or(0, |ticket| ticket.sequence);
        self.commit_refs(marks, changes.iter().map(|change| ChangeRef::of(change, sequence(change), now_ms)))
    }

    fn release(&mut self, through: u64) {
        self.released = self.released.max(through);
        self.trim();
    }

    fn bytes_after(&self, sequence: u64) -> u64 {
        self.shared.bytes_after(sequence)
    }

    fn age_after(&self, sequence: u64) -> Option<u64> {
        if sequence >= self.state.last {
            return None;
        }
        let next = sequence + 1;
        self.shared.find(next.max(self.shared.oldest())).map(|segment| segment.place(next).unix_ms)
    }

    fn space(&self) -> Space {
        let size = self.identity.segment_bytes;
        let (segments, reserve) = (self.shared.count() as u64, self.supply.reserve() as u64);
        let ahead = self.supply.ready() as u64 - reserve;
        Space {
            bytes: (segments + ahead) * size,
            bytes_max: self.segments_max * size,
            segments,
            oldest: self.shared.oldest(),
            released: self.released,
            reserve: reserve * size,
            syncs: self.syncs.buckets.iter().sum(),
            sync_us: self.syncs.us,
            sync_us_max: self.syncs.us_max,
            sync_buckets: self.syncs.buckets,
        }
    }
}
