//! What a journal's files hold, found out at a start: which segments there are, where the last ends, and what all of it
//! amounts to. Reads only; [`open`](super::open) acts on it.
//!
//! The rule for what is torn and what is damaged is in the header of [`record`](crate::journal::record).

use std::collections::VecDeque;
use std::io;

use super::OpenError;
use super::disk::{Disk, File, read_full};
use super::shared::{Segment, file_name, ordinal_of};
use super::walk::{Behind, NoFrame, behind, frame_header, frame_records, segment_header};
use crate::journal::record::{Bad, OTHER_VERSION, PAYLOAD_BROKEN, Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::journal::state::State;
use crate::sync::Arc;

/// What there is.
pub(super) struct Found {
    /// By ordinal, without a gap; empty if there is no journal yet.
    pub(super) segments: VecDeque<Arc<Segment>>,
    /// What the records amount to, and where they end; `None` if there is no journal yet.
    pub(super) tail: Option<Tail>,
    /// Files that hold nothing: made ahead, or a first write that never became durable. And what is left of a release.
    pub(super) useless: Vec<String>,
    /// No file has an ordinal from here on, once the useless ones are gone.
    pub(super) next_ordinal: u64,
}

/// The segment in use.
pub(super) struct Tail {
    pub(super) file: Arc<dyn File>,
    pub(super) header: SegmentHeader,
    pub(super) state: State,
    /// Where its frames end.
    pub(super) end: u64,
    /// Of the last frame's header.
    pub(super) last_crc: u32,
    /// What lies before this was durable when the last frame was written. What comes behind may never have been synced,
    /// or in vain.
    pub(super) durable_upto: u64,
    /// Behind the end there are octets up to here that are to be zeroed.
    pub(super) torn_to: Option<u64>,
    /// The file is shorter than its header says.
    pub(super) is_short: bool,
}

/// Looks at all files.
pub(super) fn recover(disk: &dyn Disk, group: &str, mode: &str) -> Result<Found, OpenError> {
    let names = disk.list().map_err(|error| io_error(disk, "", error))?;
    let mut ordinals: Vec<u64> = names.iter().filter_map(|name| ordinal_of(name)).collect();
    ordinals.sort_unstable();
    let next_ordinal = ordinals.last().map_or(1, |last| last + 1);
    let mut useless = Vec::new();
    let mut files = Vec::new();
    for ordinal in &ordinals {
        let name = file_name(*ordinal);
        let file = disk.open(&name).map_err(|error| io_error(disk, &name, error))?;
        let header = match segment_header(&*file) {
            Err(NoFrame::Io(error)) => return Err(io_error(disk, &name, error)),
            Err(NoFrame::Bad(OTHER_VERSION)) => return Err(foreign(disk, &name, OTHER_VERSION.0)),
            Err(NoFrame::Bad(bad)) => Err(bad),
            Ok(header) => Ok(header),
        };
        files.push((name, file, header));
    }
    let mut must_end = None;
    let tail = loop {
        let Some((name, file, header)) = files.last() else {
            break None;
        };
        let found = match header {
            Ok(header) => {
                check_identity(disk, name, header, group, mode)?;
                tail_of(disk, name, file, header, must_end)?
            }
            Err(bad) => {
                check_unused(disk, name, &**file, *bad)?;
                None
            }
        };
        if let Some(tail) = found {
            break Some(tail);
        }
        // The segment before had been synced when this one was begun.
        must_end = header.as_ref().ok().map(|header| header.previous.end).or(must_end);
        useless.extend(files.pop().map(|(name, ..)| name));
    };
    // What lies before a gap was released: names go in order, but not durably so. That nothing is missed is checked
    // against what the children need.
    let gap = |pair: &[(String, _, _)]| ordinal_of(&pair[0].0).map(|it| it + 1) != ordinal_of(&pair[1].0);
    let released = files.windows(2).rposition(gap).map_or(0, |at| at + 1);
    useless.extend(files.drain(..released).map(|(name, ..)| name));
    let segments = chain(disk, &files, tail.as_ref().map_or(0, |tail| tail.end), group, mode)?;
    Ok(Found { segments, tail, useless, next_ordinal })
}

/// The segments in their order, each held against the next.
fn chain(
    disk: &dyn Disk,
    files: &[(String, Arc<dyn File>, Result<SegmentHeader, Bad>)],
    tail_end: u64,
    group: &str,
    mode: &str,
) -> Result<VecDeque<Arc<Segment>>, OpenError> {
    let mut segments = VecDeque::with_capacity(files.len());
    for (at, (name, _, header)) in files.iter().enumerate() {
        let header_end = SEGMENT_HEADER_BYTES as u64;
        let header = header.as_ref().map_err(|bad| damaged(disk, name, 0, header_end, bad.0))?;
        check_identity(disk, name, header, group, mode)?;
        let end = match files.get(at + 1) {
            None => tail_end,
            Some((next, _, next_header)) => {
                let next_header = next_header.as_ref().map_err(|bad| damaged(disk, next, 0, header_end, bad.0))?;
                let follows = next_header.previous.salt == header.salt
                    && (header_end..=header.bytes).contains(&next_header.previous.end)
                    && next_header.first_sequence >= header.first_sequence;
                if !follows {
                    let why = format!("it does not follow {name}, which has been replaced or changed");
                    return Err(damaged(disk, next, 0, header_end, &why));
                }
                next_header.previous.end
            }
        };
        segments.push_back(Arc::new(Segment::new(header, end)));
    }
    Ok(segments)
}

/// Reads the segment in use; `None` if its first write never became durable.
fn tail_of(
    disk: &dyn Disk,
    name: &str,
    file: &Arc<dyn File>,
    header: &SegmentHeader,
    must_end: Option<u64>,
) -> Result<Option<Tail>, OpenError> {
    let mut end = SEGMENT_HEADER_BYTES as u64;
    let mut state: Option<State> = None;
    let (mut last_crc, mut durable_upto) = (0, 0);
    // Why no frame begins there, and whether a write that was not finished can look like that: a record that is wrong
    // although its checksum holds can not.
    let (bad, looks_torn) = loop {
        let frame = match frame_header(&**file, header.salt, end, header.bytes) {
            Ok(frame) => frame,
            Err(NoFrame::Io(error)) => return Err(io_error(disk, name, error)),
            Err(NoFrame::Bad(bad)) => break (bad, true),
        };
        let records = match frame_records(&**file, &frame) {
            Ok(records) => records,
            Err(NoFrame::Io(error)) => return Err(io_error(disk, name, error)),
            Err(NoFrame::Bad(bad)) => break (bad, bad == PAYLOAD_BROKEN),
        };
        let wrong = |bad: Bad| damaged(disk, name, end, end + frame.bytes(), bad.0);
        let mut records = records.into_iter();
        if state.is_none() {
            let Some(Record::Checkpoint(first)) = records.next() else {
                return Err(wrong(Bad("the segment does not begin with a checkpoint")));
            };
            if first.last + 1 != header.first_sequence {
                return Err(wrong(Bad("the checkpoint is not of the change before the segment's first")));
            }
            state = Some(*first);
        }
        for record in records {
            state.as_mut().expect("set above").on_record(&record).map_err(wrong)?;
        }
        (last_crc, durable_upto) = (frame.crc(), frame.durable_upto);
        end += frame.bytes();
    };
    let Behind { used_end, witness } =
        behind(&**file, Some(header.salt), end).map_err(|error| io_error(disk, name, error))?;
    if let Some(witness) = witness {
        return Err(damaged(disk, name, end, witness, bad.0));
    }
    if let Some(must_end) = must_end.filter(|must_end| *must_end > end) {
        return Err(damaged(disk, name, end, must_end, bad.0));
    }
    let is_torn = used_end > end;
    if !looks_torn {
        return Err(damaged(disk, name, end, used_end, bad.0));
    }
    let Some(state) = state else {
        return Ok(None);
    };
    let bytes = file.bytes().map_err(|error| io_error(disk, name, error))?;
    Ok(Some(Tail {
        file: Arc::clone(file),
        header: header.clone(),
        state,
        end,
        last_crc,
        durable_upto,
        torn_to: is_torn.then_some(used_end),
        is_short: bytes < header.bytes,
    }))
}

/// A file without a header, behind all others, was made ahead, or its first write never became durable.
pub(super) fn check_unused(disk: &dyn Disk, name: &str, file: &dyn File, bad: Bad) -> Result<(), OpenError> {
    let mut first = vec![0; 4096];
    let read = read_full(file, &mut first, 0).map_err(|error| io_error(disk, name, error))?;
    if first[..read].iter().all(|octet| *octet == 0) {
        return Ok(());
    }
    let start = SEGMENT_HEADER_BYTES as u64;
    let behind = behind(file, None, start).map_err(|error| io_error(disk, name, error))?;
    match behind.witness {
        None => Ok(()),
        Some(_) => Err(damaged(disk, name, 0, start, bad.0)),
    }
}

fn check_identity(
    disk: &dyn Disk,
    name: &str,
    header: &SegmentHeader,
    group: &str,
    mode: &str,
) -> Result<(), OpenError> {
    // A journal that a repair began although no header could be read says neither.
    if !header.group.is_empty() && *header.group != *group {
        let why =
            format!("it belongs to the group `{}`, not to `{group}`; give each group its own directory", header.group);
        return Err(foreign(disk, name, &why));
    }
    if !header.mode.is_empty() && *header.mode != *mode {
        let why = format!(
            "its changes are in the dialect `{}`, and the group is configured with `{mode}`: configure `{}` again, or \
             move the directory away and reseed the children",
            header.mode, header.mode
        );
        return Err(foreign(disk, name, &why));
    }
    if file_name(header.ordinal) != name {
        let why = format!("it is the segment {}, renamed", file_name(header.ordinal));
        return Err(damaged(disk, name, 0, SEGMENT_HEADER_BYTES as u64, &why));
    }
    Ok(())
}

pub(super) fn io_error(disk: &dyn Disk, name: &str, error: io::Error) -> OpenError {
    OpenError::Io { path: disk.path(name), error }
}

pub(super) fn damaged(disk: &dyn Disk, name: &str, from: u64, to: u64, why: &str) -> OpenError {
    OpenError::Damaged { path: disk.path(name), from, to, why: why.to_owned() }
}

fn foreign(disk: &dyn Disk, name: &str, why: &str) -> OpenError {
    OpenError::Foreign { path: disk.path(name), why: why.to_owned() }
}
