//! What the writer, the readers and the slots of one journal share: which segments there are, how far they are durable,
//! and whether it has failed.
//!
//! The writer alone adds and takes away. `end` of a segment is raised before `durable` (Release); a reader that sees
//! `durable` (Acquire) at or past its change finds it before the end that it then reads.

use std::collections::VecDeque;

use arc_swap::ArcSwap;

use super::disk::Disk;
use super::slots::name_hash;
use crate::journal::record::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::limits::PLACE_SPACING;
use crate::mirror::durable::JournalFailed;
use crate::sync::{Arc, AtomicU64, OnceLock, Ordering};

pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    /// By ordinal, without a gap; never empty.
    segments: ArcSwap<VecDeque<Arc<Segment>>>,
    /// The last change that is durable.
    durable: AtomicU64,
    /// A hash of the name at each place, for the slots.
    name_hashes: ArcSwap<Vec<u64>>,
    failed: OnceLock<String>,
}

/// One segment with a header.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) ordinal: u64,
    pub(super) name: String,
    pub(super) salt: u64,
    pub(super) created_ms: u64,
    /// Of its first change, or of the next that comes.
    pub(super) first_sequence: u64,
    /// Octets of the file.
    pub(super) bytes: u64,
    /// Frames end here, as far as they are durable.
    end: AtomicU64,
    /// Ascending, and [`PLACE_SPACING`] apart: so their count is bounded by the segment's size.
    places: ArcSwap<Vec<Place>>,
}

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of its first change, or of the next that comes.
    pub(super) sequence: u64,
    pub(super) position: u64,
    /// When it was written, or earlier.
    pub(super) unix_ms: u64,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(disk: Arc<dyn Disk>, segments: VecDeque<Arc<Segment>>, durable: u64) -> Self {
        let durable = AtomicU64::new(durable);
        Self {
            disk,
            segments: ArcSwap::from_pointee(segments),
            durable,
            name_hashes: ArcSwap::default(),
            failed: OnceLock::new(),
        }
    }

    /// The last change that is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn set_durable(&self, sequence: u64) {
        self.durable.store(sequence, Ordering::Release);
    }

    /// A hash of the name at a place; of no name where nobody is known to stand.
    pub(super) fn name_hash(&self, place: usize) -> u64 {
        self.name_hashes.load().get(place).copied().unwrap_or_else(|| name_hash(""))
    }

    /// Who stands where from now on.
    pub(super) fn set_names(&self, names: &[Box<str>]) {
        self.name_hashes.store(Arc::new(names.iter().map(|name| name_hash(name)).collect()));
    }

    /// The segment that holds a change, if it is on record.
    pub(super) fn find(&self, sequence: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.load();
        let after = segments.partition_point(|segment| segment.first_sequence <= sequence);
        segments.get(after.checked_sub(1)?).cloned()
    }

    /// The segment behind one.
    pub(super) fn after(&self, ordinal: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.load();
        segments.get(segments.partition_point(|segment| segment.ordinal <= ordinal)).cloned()
    }

    #[cfg(test)]
    pub(super) fn find_ordinal(&self, ordinal: u64) -> Option<Arc<Segment>> {
        self.after(ordinal - 1).filter(|segment| segment.ordinal == ordinal)
    }

    /// The segment in use.
    pub(super) fn last(&self) -> Arc<Segment> {
        Arc::clone(self.segments.load().back().expect("a journal has a segment in use"))
    }

    /// The writer alone calls this, and `trim`.
    pub(super) fn push(&self, segment: Arc<Segment>) {
        let mut segments = (**self.segments.load()).clone();
        segments.push_back(segment);
        self.segments.store(Arc::new(segments));
    }

    /// Takes away the segments of which nothing after `through` is left, but for the last; their names.
    pub(super) fn trim(&self, through: u64) -> Vec<String> {
        let segments = self.segments.load();
        let goes = |next: &&Arc<Segment>| next.first_sequence <= through.saturating_add(1);
        let count = segments.iter().skip(1).take_while(goes).count();
        if count > 0 {
            self.segments.store(Arc::new(segments.iter().skip(count).cloned().collect()));
        }
        segments.iter().take(count).map(|segment| segment.name.clone()).collect()
    }

    /// The oldest change that is on record, or will be.
    pub(super) fn oldest(&self) -> u64 {
        self.segments.load().front().map_or(1, |segment| segment.first_sequence)
    }

    pub(super) fn count(&self) -> usize {
        self.segments.load().len()
    }

    /// Octets of the frames after a change, about.
    pub(super) fn bytes_after(&self, sequence: u64) -> u64 {
        if sequence >= self.durable() {
            return 0;
        }
        let segments = self.segments.load();
        let next = sequence + 1;
        let mut bytes = 0;
        for segment in segments.iter().rev() {
            let end = segment.end();
            if segment.first_sequence <= next {
                return bytes + end.saturating_sub(segment.place(next).position);
            }
            bytes += end.saturating_sub(SEGMENT_HEADER_BYTES as u64);
        }
        bytes
    }

    /// Nothing can be relied on any more. The first reason is kept.
    pub(super) fn fail(&self, why: String) -> JournalFailed {
        JournalFailed { why: self.failed.get_or_init(|| why).clone() }
    }

    pub(super) fn failed(&self) -> Option<JournalFailed> {
        self.failed.get().map(|why| JournalFailed { why: why.clone() })
    }
}

// === impl Segment ===

impl Segment {
    /// The segment of a header; its frames end at `end`.
    pub(super) fn new(header: &SegmentHeader, end: u64) -> Self {
        Self {
            ordinal: header.ordinal,
            name: file_name(header.ordinal),
            salt: header.salt,
            created_ms: header.created_ms,
            first_sequence: header.first_sequence,
            bytes: header.bytes,
            end: AtomicU64::new(end),
            places: ArcSwap::default(),
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn set_end(&self, position: u64) {
        self.end.store(position, Ordering::Release);
    }

    /// The last place that is remembered at or before the frame of a change.
    pub(super) fn place(&self, sequence: u64) -> Place {
        let places = self.places.load();
        let after = places.partition_point(|place| place.sequence <= sequence);
        let start =
            Place { sequence: self.first_sequence, position: SEGMENT_HEADER_BYTES as u64, unix_ms: self.created_ms };
        after.checked_sub(1).map_or(start, |at| places[at])
    }

    /// Remembers a place, if it is far from those that are remembered.
    pub(super) fn remember(&self, place: Place) {
        let slot = |places: &Vec<Place>| {
            let at = places.partition_point(|other| other.position < place.position);
            let far =
                |other: Option<&Place>| other.is_none_or(|it| it.position.abs_diff(place.position) >= PLACE_SPACING);
            let before = at.checked_sub(1).and_then(|before| places.get(before));
            (place.position >= PLACE_SPACING && far(before) && far(places.get(at))).then_some(at)
        };
        if slot(&self.places.load()).is_none() {
            return;
        }
        // The writer and several readers may come here at once.
        self.places.rcu(|places| {
            let mut places = (**places).clone();
            if let Some(at) = slot(&places) {
                places.insert(at, place);
            }
            places
        });
    }
}

pub(super) fn file_name(ordinal: u64) -> String {
    format!("{ordinal:020}.segment")
}

/// The ordinal of a segment's file.
pub(super) fn ordinal_of(name: &str) -> Option<u64> {
    let ordinal = name.strip_suffix(".segment")?.parse().ok()?;
    (ordinal > 0 && file_name(ordinal) == name).then_some(ordinal)
}
