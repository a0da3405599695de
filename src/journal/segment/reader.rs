//! Reading changes back, for a lane whose child is further behind than the ring reaches.
//!
//! A reader has file handles of its own and goes on where it stopped; to begin elsewhere it walks the headers of frames
//! from the nearest place that is remembered. It sees only what is durable. Several read at once; a segment that is
//! unlinked under one of them stays readable to it until it closes the file.

use std::collections::VecDeque;

use super::disk::File;
use super::shared::{Place, Segment, Shared};
use super::walk::{NoFrame, frame_header, frame_records};
use crate::journal::record::Record;
use crate::mirror::durable::{ReadError, Reader, Stored};
use crate::sync::Arc;

/// Makes readers of one journal.
#[derive(Clone)]
pub struct Readers {
    shared: Arc<Shared>,
}

struct SegmentReader {
    shared: Arc<Shared>,
    /// Where the next frame is looked for.
    at: Option<At>,
    /// Changes of the last frame that were not handed out, in order.
    rest: VecDeque<Stored>,
}

struct At {
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    position: u64,
    /// The first change at or behind `position`.
    sequence: u64,
}

impl Readers {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A reader; it opens files when it is first asked.
    #[must_use]
    pub fn reader(&self) -> Box<dyn Reader> {
        Box::new(SegmentReader { shared: Arc::clone(&self.shared), at: None, rest: VecDeque::new() })
    }
}

impl Reader for SegmentReader {
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError> {
        let mut found = Vec::new();
        let durable = self.shared.durable();
        if from == 0 || from > durable {
            return if from == 0 { Err(self.released()) } else { Ok(found) };
        }
        while self.rest.front().is_some_and(|change| change.sequence < from) {
            self.rest.pop_front();
        }
        if self.rest.front().is_none_or(|change| change.sequence != from) {
            self.rest.clear();
            self.seek(from)?;
        }
        let (mut next, mut bytes) = (from, 0);
        while next <= durable {
            if self.rest.is_empty() {
                self.fill(next)?;
            }
            let Some(change) = self.rest.front() else {
                break;
            };
            bytes += change.head.len() + change.body.len();
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            next += 1;
            found.extend(self.rest.pop_front());
        }
        Ok(found)
    }
}

impl SegmentReader {
    /// Goes to the segment that holds a change, and near it.
    fn seek(&mut self, from: u64) -> Result<(), ReadError> {
        let segment = self.shared.find(from).ok_or_else(|| self.released())?;
        let near = segment.place(from);
        if let Some(at) = &self.at
            && at.segment.ordinal == segment.ordinal
            && at.sequence <= from
            && at.position >= near.position
        {
            return Ok(());
        }
        self.at = Some(self.open(segment, near.position, near.sequence)?);
        Ok(())
    }

    fn open(&self, segment: Arc<Segment>, position: u64, sequence: u64) -> Result<At, ReadError> {
        match self.shared.disk.open(&segment.name) {
            Ok(file) => Ok(At { segment, file, position, sequence }),
            Err(_) if self.shared.oldest() > segment.first_sequence => Err(self.released()),
            Err(error) => Err(ReadError::Damaged { why: format!("{}: {error}", self.shared.disk.path(&segment.name)) }),
        }
    }

    /// Reads the frame that holds `next`, which is durable, and keeps its changes from there on.
    fn fill(&mut self, next: u64) -> Result<(), ReadError> {
        loop {
            let Some(at) = &mut self.at else {
                self.seek(next)?;
                continue;
            };
            let end = at.segment.end();
            if at.position >= end {
                let after = self.shared.after(at.segment.ordinal);
                let Some(segment) = after else {
                    let why = format!("change {next} is not behind octet {end}, where it should be");
                    return Err(damaged(&self.shared, &at.segment, &why));
                };
                if segment.first_sequence > next {
                    let why = format!("changes {next} to {} are missing at its end", segment.first_sequence - 1);
                    return Err(damaged(&self.shared, &at.segment, &why));
                }
                let start = segment.place(0);
                self.at = Some(self.open(segment, start.position, start.sequence)?);
                continue;
            }
            let header = frame_header(&*at.file, at.segment.salt, at.position, end);
            let header = header.map_err(|no| no_frame(&self.shared, &at.segment, at.position, end, &no))?;
            let place =
                Place { sequence: header.first_sequence, position: at.position, unix_ms: at.segment.created_ms };
            if header.changes > 0 {
                at.segment.remember(place);
            }
            let (position, last) = (at.position, header.next_sequence() - 1);
            if last >= next {
                let records = frame_records(&*at.file, &header);
                let records = records
                    .map_err(|no| no_frame(&self.shared, &at.segment, position, position + header.bytes(), &no))?;
                self.rest.extend(records.into_iter().filter_map(|record| match record {
                    Record::Change(change) if change.sequence >= next => Some(change),
                    _ => None,
                }));
            }
            at.position += header.bytes();
            at.sequence = last + 1;
            match self.rest.front().map(|change| change.sequence) {
                None => {}
                Some(sequence) if sequence == next => return Ok(()),
                Some(sequence) => {
                    self.rest.clear();
                    let why = format!("change {sequence} stands where {next} should");
                    return Err(damaged(&self.shared, &at.segment, &why));
                }
            }
        }
    }

    fn released(&self) -> ReadError {
        ReadError::Released { oldest: self.shared.oldest() }
    }
}

fn no_frame(shared: &Shared, segment: &Segment, from: u64, to: u64, no: &NoFrame) -> ReadError {
    damaged(shared, segment, &format!("octets {from} to {to}: {}", no.why()))
}

fn damaged(shared: &Shared, segment: &Segment, why: &str) -> ReadError {
    ReadError::Damaged { why: format!("{}: {why}", shared.disk.path(&segment.name)) }
}
