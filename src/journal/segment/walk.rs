//! Walking the frames of one segment's file, and what lies behind the last that holds.
//!
//! Reads only. What a damaged place means is decided by [`recover`](mod@super::recover) for the segment in use and by
//! whoever reads for the others.

use std::io;

use bytes::Bytes;

use super::disk::{File, read_full};
use crate::journal::record::{ALIGNMENT, Bad, FRAME_HEADER_BYTES, FrameHeader, PAYLOAD_BROKEN, Record, SegmentHeader};

/// Why there is no frame.
#[derive(Debug)]
pub(super) enum NoFrame {
    /// The octets there are not a frame of this segment.
    Bad(Bad),
    /// The file could not be read.
    Io(io::Error),
}

/// What lies behind a place at which frames end.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// Where the last octet that is not zero ends; 0 if all are zero.
    pub(super) used_end: u64,
    /// A frame that holds and says that the place was durable when it was written.
    pub(super) witness: Option<u64>,
}

/// Reads the header of the frame at `position`; `limit` is where frames must have ended.
pub(super) fn frame_header(file: &dyn File, salt: u64, position: u64, limit: u64) -> Result<FrameHeader, NoFrame> {
    let mut octets = [0; FRAME_HEADER_BYTES];
    if position + FRAME_HEADER_BYTES as u64 > limit {
        return Err(NoFrame::Bad(Bad("no frame begins here")));
    }
    if read_full(file, &mut octets, position).map_err(NoFrame::Io)? < octets.len() {
        return Err(NoFrame::Bad(Bad("the file ends here")));
    }
    let header = FrameHeader::decode(&octets).map_err(NoFrame::Bad)?;
    if header.salt != salt || header.position != position {
        return Err(NoFrame::Bad(Bad("a frame of another place begins here")));
    }
    if position + header.bytes() > limit {
        return Err(NoFrame::Bad(Bad("the frame is longer than what is left")));
    }
    Ok(header)
}

/// Reads the payload of a frame and takes it apart.
pub(super) fn frame_records(file: &dyn File, header: &FrameHeader) -> Result<Vec<Record>, NoFrame> {
    let mut payload = vec![0; header.length as usize];
    let read = read_full(file, &mut payload, header.position + FRAME_HEADER_BYTES as u64).map_err(NoFrame::Io)?;
    if read < payload.len() {
        return Err(NoFrame::Bad(PAYLOAD_BROKEN));
    }
    header.records(&Bytes::from(payload)).map_err(NoFrame::Bad)
}

/// The header of a segment's file.
pub(super) fn segment_header(file: &dyn File) -> Result<SegmentHeader, NoFrame> {
    let mut octets = [0; crate::journal::record::SEGMENT_HEADER_BYTES];
    let read = read_full(file, &mut octets, 0).map_err(NoFrame::Io)?;
    SegmentHeader::decode(&octets[..read]).map_err(NoFrame::Bad)
}

/// Looks at all that lies behind `position`, to the end of the file. `salt` is that of the segment; without one, frames
/// of any salt count.
pub(super) fn behind(file: &dyn File, salt: Option<u64>, position: u64) -> io::Result<Behind> {
    let mut witness = None;
    let used_end = scan(file, position, |header| {
        if salt.is_none_or(|salt| header.salt == salt) && header.durable_upto > position {
            witness.get_or_insert(header.position);
        }
        true
    })?;
    Ok(Behind { used_end, witness })
}

/// The next place from `position` on at which a frame of this segment may begin.
pub(super) fn next_frame(file: &dyn File, salt: u64, position: u64) -> io::Result<Option<u64>> {
    let mut found = None;
    scan(file, position, |header| {
        if header.salt == salt {
            found = Some(header.position);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// Shows all headers from `position` on that hold and lie where they say, until one is enough; where the last octet ends
/// that is not zero.
fn scan(file: &dyn File, position: u64, mut on_header: impl FnMut(&FrameHeader) -> bool) -> io::Result<u64> {
    const PIECE: usize = 64 * 1024;
    static ZEROS: [u8; PIECE + FRAME_HEADER_BYTES] = [0; PIECE + FRAME_HEADER_BYTES];
    let mut used_end = 0;
    // The end of the piece before stays at the front, so that a header across two pieces is seen.
    let mut held: Vec<u8> = Vec::with_capacity(PIECE + FRAME_HEADER_BYTES);
    let mut at = position;
    loop {
        let kept = held.len();
        held.resize(kept + PIECE, 0);
        let read = read_full(file, &mut held[kept..], at + kept as u64)?;
        held.truncate(kept + read);
        // Most of a segment that has just begun: compared whole, for a start should not take a second over it.
        let is_blank = held == ZEROS[..held.len()];
        if is_blank {
            // Nothing begins here but what might at the very end.
        } else if let Some(last) = held.iter().rposition(|octet| *octet != 0) {
            used_end = at + last as u64 + 1;
        }
        let mut offset = 0;
        while let Some(octets) = held[offset..].first_chunk::<FRAME_HEADER_BYTES>() {
            if !is_blank
                && let Ok(header) = FrameHeader::decode(octets)
                && header.position == at + offset as u64
                && !on_header(&header)
            {
                return Ok(used_end);
            }
            offset += ALIGNMENT;
        }
        if read < PIECE {
            return Ok(used_end);
        }
        held.drain(..offset);
        at += offset as u64;
    }
}

impl NoFrame {
    /// Says what is wrong, in a message that names the place.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Bad(bad) => bad.0.to_owned(),
            Self::Io(error) => format!("it cannot be read: {error}"),
        }
    }
}
