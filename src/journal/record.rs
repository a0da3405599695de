//! The format of the journal's files, version 1, octet by octet; and what we assume of the disk. Pure: octets in, values out.
//!
//! Not the files (the folder `segment` has them) and not what the records amount to ([`state`](super::state)). All
//! numbers are little-endian. What is called *zero* must be zero, so that a later version can give it a meaning.
//!
//! # A directory
//!
//! ```text
//! lock                            held (flock) by whoever writes
//! 00000000000000000007.segment    named by its ordinal; ordinals have no gap
//! children                        the children's slots, 64 octets each
//! ```
//!
//! # A segment
//!
//! A file of a fixed size, filled with zeros before it is used: a header of 512 octets, then frames, each at a multiple
//! of 8, then zeros. The segment in use is the last that has a header; files behind it are spare. A frame holds what was
//! handed in together, or a part of it; a change never lies in two.
//!
//! ```text
//! segment header                            frame header
//!   0  8  "ANTIPHON"                          0  4  "aphF"
//!   8  4  version, 1                          4  4  CRC of octets 8..64, salted
//!  12  4  CRC of octets 0..12, 16..512        8  4  length of the payload, a multiple of 8
//!  16  8  ordinal                            12  4  records in it
//!  24  8  salt, random                       16  4  changes among them
//!  32  8  created, ms since 1970             20  4  CRC of the payload, salted
//!  40  8  epoch                              24  8  salt of the segment
//!  48  8  sequence of the first change       32  8  sequence of its first change, or of the next that comes
//!  56  8  salt of the segment before         40  8  durable_upto: what lies before this position is durable
//!  64  8  where its frames end               48  8  its own position
//!  72  4  CRC of its last frame's header     56  8  epoch
//!  76  4  zero                               64     payload: records, then zeros to a multiple of 8
//!  80  8  size of this file
//!  88  1  length of the group's name        record
//!  89  1  length of the mode                  0  4  length of what follows its header
//!  90 64  group, then zeros                   4  1  kind
//! 154 32  mode (the dialect), then zeros      5  3  zero
//! 186     zeros to 512                        8     by kind
//! ```
//!
//! Group and mode are empty where a repair began the journal and no header was left to tell them: then any will do.
//!
//! A CRC is CRC-32C (Castagnoli). *Salted*: the eight octets of the segment's salt come first. So no frame of another
//! segment, and none that a client has put into a body, is ever taken for one of this segment.
//!
//! # Records
//!
//! A *text* is its length (2), then UTF-8. A *place* (2) is an index among the members that were told last.
//!
//! ```text
//! kind            content
//! 1 change        sequence 8, numbered at 8 (ms since 1970), flags 1 (1 live, 2 has a key), unknown_outcome 1
//!                 (0 once, 1 idempotent, 2 conditional, 3 key, 4 probe, 5 cooperative), on_unknown 1 (0 hold,
//!                 1 resend, 2 assume), zero 1, count of `applied` 2, zero 2, length of the head 4, of the body 4; then
//!                 `applied` 2 each, name (text), with flag 2 the key (length 2, octets, digest 32), head, body
//! 2 outcome       sequence 8, verdict 1 (0 success, 1 rejected, 2 failed, 3 withdrawn), zero 1, count 2, places of the
//!                 condemned 2 each
//! 3 standing      place 2, standing 1 (0 live, 1 replaying, 2 diverged, 3 needs_reseed), zero 1, why (text)
//! 4 attach        place 2, zero 6, from 8, at 8
//! 5 applied       count 2, then place 2, sequence 8 each
//! 6 members       count 2, then names (text); an empty one is a vacant place
//! 7 epoch         epoch 8, its first sequence 8, the last sequence of the one before 8
//! 8 checkpoint    epoch 8, its first sequence 8, last sequence 8; members as in 6; count 4 of children, each a name
//!                 (text), applied 8, attached 8, standing 1, why (text); count 4 of exceptions, each a sequence 8,
//!                 verdict 1; count 4 of kept ranges, each after 8, through 8; count 4 of live changes, 8 each
//! ```
//!
//! The first record of a segment is a checkpoint: all that the segments before amount to. So a start reads the last
//! segment only, and the oldest can be unlinked without a look into it.
//!
//! # What we assume of the disk
//!
//! - What was written and then synced (`fdatasync`, no error) is there after a power cut, and stays as it is. Where it
//!   does not, a CRC tells.
//! - What was written and not synced may be there, be missing, or be there in parts of 512 octets, in any order. Octets
//!   that nobody wrote do not change.
//! - After a failed sync nothing is known of what was written since the last good one.
//! - A file's name is durable once its directory is synced; an unlinked name may come back until then.
//!
//! # Torn or damaged
//!
//! A frame that does not hold (a CRC, its position, its salt) ends the record. It is a torn write, and cut away, only if
//! it is in the last segment, and no frame of this segment that holds lies behind it and says (`durable_upto`) that it
//! was durable. Then nobody relied on it: its commit had not returned. What lies behind it belongs to the same write.
//! The rest of the file is zeroed and synced before anything is written again, or a later crash might revive it.
//! Anything else is damage: it is named, and nothing is cut.
//!
//! In a segment that is not the last, frames end exactly where the next header says.

mod checkpoint;
mod entry;
mod octets;

use bytes::Bytes;

pub use entry::{ChangeRef, Record, change_bytes, put_change, put_checkpoint, put_epoch, put_mark};

use self::octets::{Input, put_u32, put_u64};
use crate::limits::NAME_BYTES_MAX;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Octets of a segment's header: the smallest part of a disk that is written whole.
pub const SEGMENT_HEADER_BYTES: usize = 512;
/// Octets of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 64;
/// Frames begin at multiples of it.
pub const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: &[u8; 8] = b"ANTIPHON";
const FRAME_MAGIC: &[u8; 4] = b"aphF";
const MODE_BYTES_MAX: usize = 32;

/// Octets that are not what they should be, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad(pub &'static str);

/// How a segment opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its number, from 1.
    pub ordinal: u64,
    /// Goes into every CRC of its frames.
    pub salt: u64,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// The epoch it begins in.
    pub epoch: u64,
    /// The sequence of its first change.
    pub first_sequence: u64,
    /// Where the segment before ended.
    pub previous: Previous,
    /// Octets of the file.
    pub bytes: u64,
    /// The group's name.
    pub group: Box<str>,
    /// What its actions are written in.
    pub mode: Box<str>,
}

/// The end of a segment, as the next one tells it; all zero in the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Previous {
    /// Its salt.
    pub salt: u64,
    /// Where its frames end.
    pub end: u64,
    /// The CRC of its last frame's header.
    pub crc: u32,
}

/// How a frame opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameHeader {
    /// Octets of the payload.
    pub length: u32,
    /// Records in it.
    pub records: u32,
    /// Changes among them.
    pub changes: u32,
    /// Of the payload.
    pub payload_crc: u32,
    /// Of the segment.
    pub salt: u64,
    /// Of its first change, or of the next that comes.
    pub first_sequence: u64,
    /// What lies before this position of the segment was durable when this was written.
    pub durable_upto: u64,
    /// Where in the segment it lies.
    pub position: u64,
    /// The epoch of its changes.
    pub epoch: u64,
}

/// The header of a segment that another version of antiphon has written, whole.
pub const OTHER_VERSION: Bad =
    Bad("it is of another version of the format than 1, the one that this antiphon reads and writes");
/// A frame's payload that was not written whole, or has changed since.
pub const PAYLOAD_BROKEN: Bad = Bad("the checksum of the frame's payload is wrong");

// === impl SegmentHeader ===

impl SegmentHeader {
    /// The header's octets.
    ///
    /// # Panics
    /// If a name is longer than the configuration allows.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        assert!(self.group.len() <= NAME_BYTES_MAX && self.mode.len() <= MODE_BYTES_MAX, "names are bounded");
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(SEGMENT_MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, 0);
        for value in [self.ordinal, self.salt, self.created_ms, self.epoch, self.first_sequence] {
            put_u64(&mut out, value);
        }
        put_u64(&mut out, self.previous.salt);
        put_u64(&mut out, self.previous.end);
        put_u32(&mut out, self.previous.crc);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.bytes);
        out.push(self.group.len() as u8);
        out.push(self.mode.len() as u8);
        out.extend_from_slice(self.group.as_bytes());
        out.resize(90 + NAME_BYTES_MAX, 0);
        out.extend_from_slice(self.mode.as_bytes());
        let mut octets = [0; SEGMENT_HEADER_BYTES];
        octets[..out.len()].copy_from_slice(&out);
        let crc = Self::crc(&octets);
        octets[12..16].copy_from_slice(&crc.to_le_bytes());
        octets
    }

    /// Reads a header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(octets: &[u8]) -> Result<Self, Bad> {
        let octets: &[u8; SEGMENT_HEADER_BYTES] = octets.try_into().map_err(|_| Bad("the file is too short"))?;
        let mut input = Input::new(Bytes::copy_from_slice(octets));
        if input.array()? != *SEGMENT_MAGIC {
            return Err(Bad("it does not begin as a segment does"));
        }
        let version = input.u32()?;
        if input.u32()? != Self::crc(octets) {
            return Err(Bad("the checksum of the segment's header is wrong"));
        }
        if version != VERSION {
            return Err(OTHER_VERSION);
        }
        let [ordinal, salt, created_ms, epoch, first_sequence] =
            [input.u64()?, input.u64()?, input.u64()?, input.u64()?, input.u64()?];
        let previous = Previous { salt: input.u64()?, end: input.u64()?, crc: input.u32()? };
        input.zeros(4)?;
        let bytes = input.u64()?;
        let (group, mode) = (usize::from(input.u8()?), usize::from(input.u8()?));
        if group > NAME_BYTES_MAX || mode > MODE_BYTES_MAX {
            return Err(Bad("a name is too long"));
        }
        let group_name = input.text_of(group)?;
        input.zeros(NAME_BYTES_MAX - group)?;
        let mode_name = input.text_of(mode)?;
        input.zeros(input.len())?;
        Ok(Self {
            ordinal,
            salt,
            created_ms,
            epoch,
            first_sequence,
            previous,
            bytes,
            group: group_name,
            mode: mode_name,
        })
    }

    fn crc(octets: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&octets[..12]), &octets[16..])
    }
}

// === impl FrameHeader ===

impl FrameHeader {
    /// The header's octets.
    #[must_use]
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES);
        out.extend_from_slice(FRAME_MAGIC);
        for value in [0, self.length, self.records, self.changes, self.payload_crc] {
            put_u32(&mut out, value);
        }
        for value in [self.salt, self.first_sequence, self.durable_upto, self.position, self.epoch] {
            put_u64(&mut out, value);
        }
        let crc = salted(self.salt, &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out.try_into().expect("fields of 64 octets")
    }

    /// Reads a header, of whatever segment and wherever it lies.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(octets: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, Bad> {
        if !octets.starts_with(FRAME_MAGIC) {
            return Err(Bad("no frame begins here"));
        }
        let u32_at = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(octets[at..at + 8].try_into().expect("eight"));
        let header = Self {
            length: u32_at(8),
            records: u32_at(12),
            changes: u32_at(16),
            payload_crc: u32_at(20),
            salt: u64_at(24),
            first_sequence: u64_at(32),
            durable_upto: u64_at(40),
            position: u64_at(48),
            epoch: u64_at(56),
        };
        if u32_at(4) != salted(header.salt, &octets[8..]) {
            return Err(Bad("the checksum of the frame's header is wrong"));
        }
        let whole = header.length as usize;
        let lawful = whole.is_multiple_of(ALIGNMENT)
            && header.changes <= header.records
            && header.records as usize <= whole / entry::RECORD_HEADER_BYTES
            && header.durable_upto <= header.position
            && header.first_sequence > 0
            && header.first_sequence.checked_add(u64::from(header.changes)).is_some();
        if lawful { Ok(header) } else { Err(Bad("the frame's header contradicts itself")) }
    }

    /// The CRC by which the next segment's header knows this frame.
    #[must_use]
    pub fn crc(&self) -> u32 {
        let octets = self.encode();
        u32::from_le_bytes(octets[4..8].try_into().expect("four"))
    }

    /// Octets of the whole frame.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + self.length as u64
    }

    /// The sequence that the next frame's first change has.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.first_sequence + self.changes as u64
    }

    /// The records of a payload.
    ///
    /// # Errors
    /// What is wrong with it. Records of a payload whose checksum holds are wrong only by our own mistake.
    pub fn records(&self, payload: &Bytes) -> Result<Vec<Record>, Bad> {
        if payload.len() != self.length as usize || salted(self.salt, payload) != self.payload_crc {
            return Err(PAYLOAD_BROKEN);
        }
        let mut input = Input::new(payload.clone());
        let mut next = self.first_sequence;
        // `decode` has held the count against the length.
        let mut records = Vec::with_capacity(self.records as usize);
        for _ in 0..self.records {
            let record = Record::decode(&mut input)?;
            if let Record::Change(change) = &record {
                if change.sequence != next {
                    return Err(Bad("a change is not the next in order"));
                }
                next += 1;
            }
            records.push(record);
        }
        if next != self.next_sequence() || input.len() >= ALIGNMENT {
            return Err(Bad("the frame does not hold what its header says"));
        }
        input.zeros(input.len())?;
        Ok(records)
    }
}

/// The CRC of octets behind their salt.
#[must_use]
pub fn salted(salt: u64, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), octets)
}

/// Octets of a payload that holds records of so many.
#[must_use]
pub const fn padded(records: usize) -> usize {
    records.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests;
