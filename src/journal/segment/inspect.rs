//! Walking a whole journal, to show or to check it. Reads only, takes no lock, and knows no configuration.
//!
//! Where something is damaged it is named, and the walk goes on with the next frame that holds. A write that was not
//! finished, at the end of the last segment, is no damage: the next start cuts it away.

use std::io;
use std::path::Path;

use super::disk::directory::Directory;
use super::disk::{Disk, File};
use super::recover::{Found, check_unused, io_error, recover};
use super::shared::{file_name, ordinal_of};
use super::slots::{self, Told};
use super::walk::{NoFrame, behind, frame_header, frame_records, next_frame, segment_header};
use super::{OpenError, Options, Start};
use crate::journal::record::{FrameHeader, PAYLOAD_BROKEN, Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::journal::state::State;
use crate::sync::Arc;

/// What a walk has seen.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The segments with a header, by ordinal.
    pub segments: Vec<Segment>,
    /// Files that hold nothing.
    pub spares: u64,
    /// What is damaged, in the order of the record.
    pub damage: Vec<Damage>,
    /// A last write that was not finished: the file, and its octets.
    pub torn: Option<(String, u64, u64)>,
    /// What the record amounts to, up to the first damage. `None` if not even its beginning can be read.
    pub state: Option<State>,
    /// The last change that can be read, be it behind damage.
    pub last_seen: u64,
    /// Why the next start refuses it, if it does, for any configuration.
    pub refusal: Option<OpenError>,
    pub(super) slots: Vec<Told>,
}

/// One segment.
#[derive(Debug)]
pub struct Segment {
    /// Its header.
    pub header: SegmentHeader,
    /// Frames that hold.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Changes among these.
    pub changes: u64,
    /// Where the frames end.
    pub end: u64,
}

/// Octets of a file that are not what they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Of the segment.
    pub ordinal: u64,
    /// The file.
    pub path: String,
    /// Where it begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// What is wrong.
    pub why: String,
}

/// The directory of a journal that is there.
///
/// # Errors
/// There is none.
pub fn directory(path: &Path) -> Result<Arc<dyn Disk>, OpenError> {
    let named = |error| OpenError::Io { path: path.display().to_string(), error };
    let directory = Directory::existing(path.to_owned()).map_err(named)?;
    // The slots alone: all segments are gone.
    let is_ours = |name: &String| ordinal_of(name).is_some() || name == slots::NAME;
    if !directory.list().map_err(named)?.iter().any(is_ours) {
        let error = io::Error::new(io::ErrorKind::NotFound, "there is no journal here (it would be DIRECTORY/GROUP)");
        return Err(named(error));
    }
    Ok(Arc::new(directory))
}

/// Walks all of it; `on_frame` is shown each frame that holds.
///
/// # Errors
/// A file cannot be opened or read.
pub fn inspect(
    disk: &dyn Disk,
    mut on_frame: impl FnMut(&SegmentHeader, &FrameHeader, &[Record]),
) -> Result<Inspection, OpenError> {
    // The slots first: a running antiphon writes a slot when what it speaks of is on record.
    let told = slots::read(disk).map_err(|error| io_error(disk, slots::NAME, error))?;
    let mut seen = Inspection { slots: told, ..Inspection::default() };
    let names = disk.list().map_err(|error| io_error(disk, "", error))?;
    let mut ordinals: Vec<u64> = names.iter().filter_map(|name| ordinal_of(name)).collect();
    ordinals.sort_unstable();
    let mut files = Vec::with_capacity(ordinals.len());
    for ordinal in ordinals {
        let name = file_name(ordinal);
        let file = disk.open(&name).map_err(|error| io_error(disk, &name, error))?;
        let header = match segment_header(&*file) {
            Err(NoFrame::Io(error)) => return Err(io_error(disk, &name, error)),
            Err(NoFrame::Bad(bad)) => Err(bad),
            Ok(header) => Ok(header),
        };
        files.push((ordinal, name, file, header));
    }
    // Behind the last header, files are spare.
    let used = files.iter().rposition(|(.., header)| header.is_ok()).map_or(0, |at| at + 1);
    for at in 0..files.len() {
        let (ordinal, name, file, header) = &files[at];
        match header {
            Ok(header) => {
                let next = files[..used].get(at + 1).and_then(|(.., next)| next.as_ref().ok());
                seen.walk(disk, file, header, next, at + 1 == used, &mut on_frame)?;
            }
            Err(bad) if at >= used && check_unused(disk, name, &**file, *bad).is_ok() => seen.spares += 1,
            Err(bad) => seen.damaged(disk, *ordinal, 0, SEGMENT_HEADER_BYTES as u64, bad.0),
        }
    }
    seen.refusal = start(disk, &seen).err();
    Ok(seen)
}

/// Looks as a start does, whose configuration is the one on record.
fn start(disk: &dyn Disk, seen: &Inspection) -> Result<(), OpenError> {
    let (group, mode) = seen.identity();
    let Found { segments, tail, .. } = recover(disk, &group, &mode)?;
    let mut options = Options::new(disk.path("").into(), &group, &mode, Vec::new());
    let Some(tail) = tail else {
        return Start::first(&options, disk, &seen.slots).map(drop);
    };
    options.children.clone_from(&tail.state.members);
    let oldest = segments.front().map_or(1, |segment| segment.first_sequence);
    Start::of(&options, disk, &seen.slots, &tail.state, oldest).map(drop)
}

impl Inspection {
    /// Which group's it is, and what its changes are written in; empty if no header can be read.
    pub(super) fn identity(&self) -> (Box<str>, Box<str>) {
        let last = self.segments.last().map(|segment| &segment.header);
        last.map(|header| (header.group.clone(), header.mode.clone())).unwrap_or_default()
    }

    /// One segment.
    fn walk(
        &mut self,
        disk: &dyn Disk,
        file: &Arc<dyn File>,
        header: &SegmentHeader,
        next: Option<&SegmentHeader>,
        is_last: bool,
        on_frame: &mut impl FnMut(&SegmentHeader, &FrameHeader, &[Record]),
    ) -> Result<(), OpenError> {
        let name = file_name(header.ordinal);
        let failed = |error| io_error(disk, &name, error);
        // The one before has ended where this one says, unless it is not there any more.
        let limit = next.filter(|next| next.previous.salt == header.salt).map(|next| next.previous.end);
        let end = limit.unwrap_or(header.bytes);
        let mut segment = Segment { header: header.clone(), frames: 0, records: 0, changes: 0, end: 0 };
        let mut at = SEGMENT_HEADER_BYTES as u64;
        while at < end {
            let frame = frame_header(&**file, header.salt, at, end);
            let (bad, looks_torn) = match frame.and_then(|frame| Ok((frame, frame_records(&**file, &frame)?))) {
                Ok((frame, records)) => {
                    if let Err(why) = self.fold(&segment, &frame, &records) {
                        self.damaged(disk, header.ordinal, at, at + frame.bytes(), why);
                    }
                    segment.frames += 1;
                    segment.records += u64::from(frame.records);
                    segment.changes += u64::from(frame.changes);
                    self.last_seen = self.last_seen.max(frame.next_sequence() - 1);
                    on_frame(header, &frame, &records);
                    at += frame.bytes();
                    continue;
                }
                Err(NoFrame::Io(error)) => return Err(failed(error)),
                Err(NoFrame::Bad(bad)) => {
                    (bad, bad == PAYLOAD_BROKEN || frame_header(&**file, header.salt, at, end).is_err())
                }
            };
            if is_last {
                let behind = behind(&**file, Some(header.salt), at).map_err(failed)?;
                if behind.witness.is_none() && looks_torn {
                    let torn = behind.used_end > at;
                    self.torn = torn.then(|| (disk.path(&name), at, behind.used_end));
                    break;
                }
            }
            let next = next_frame(&**file, header.salt, at + 1).map_err(failed)?.filter(|next| *next < end);
            let to = next.or(limit).unwrap_or(end);
            self.damaged(disk, header.ordinal, at, to, bad.0);
            at = to;
        }
        segment.end = at;
        self.segments.push(segment);
        Ok(())
    }

    /// Has the records of a frame follow what was before; nothing does once something is damaged.
    fn fold(&mut self, segment: &Segment, frame: &FrameHeader, records: &[Record]) -> Result<(), &'static str> {
        if !self.damage.is_empty() {
            return Ok(());
        }
        let mut records = records.iter();
        if segment.frames == 0 {
            let Some(Record::Checkpoint(state)) = records.next() else {
                return Err("the segment does not begin with a checkpoint");
            };
            if self.state.as_ref().is_some_and(|before| before.last != state.last) {
                return Err("changes between this segment and the one before are missing");
            }
            self.state = Some((**state).clone());
        }
        let Some(state) = &mut self.state else {
            return Err("there is no checkpoint before this");
        };
        if frame.first_sequence != state.last + 1 {
            return Err("changes before this are missing");
        }
        records.try_for_each(|record| state.on_record(record)).map_err(|bad| bad.0)
    }

    fn damaged(&mut self, disk: &dyn Disk, ordinal: u64, from: u64, to: u64, why: &str) {
        let path = disk.path(&file_name(ordinal));
        self.damage.push(Damage { ordinal, path, from, to, why: why.to_owned() });
    }
}
