//! Records: what a frame's payload is made of, to octets and back.

use bytes::Bytes;

use super::Bad;
use super::octets::{Input, clip, put_count, put_text, put_u16, put_u32, put_u64};
use crate::action::UnknownOutcome;
use crate::journal::state::State;
use crate::limits::{CHANGE_NAME_BYTES_MAX, CLIENT_KEY_BYTES_MAX, WHY_BYTES_MAX};
use crate::mirror::Change;
use crate::mirror::ack::Class;
use crate::mirror::durable::{ClientKey, Mark, OnUnknown, Stored, Verdict};
use crate::route::Standing;
use crate::sync::Arc;

/// Octets of a record's header.
pub(super) const RECORD_HEADER_BYTES: usize = 8;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change.
    Change(Stored),
    /// What goes on record beside changes.
    Mark(Mark),
    /// An epoch begins.
    Epoch {
        /// The epoch.
        epoch: u64,
        /// The sequence of its first change.
        first: u64,
        /// The last sequence of the epoch before.
        ended: u64,
    },
    /// All that the segments before amount to.
    Checkpoint(Box<State>),
}

/// A change as it is written, borrowed from where it is.
#[derive(Clone, Copy, Debug)]
pub struct ChangeRef<'a> {
    /// Its place in the order.
    pub sequence: u64,
    /// When it was numbered: milliseconds since 1970.
    pub unix_ms: u64,
    /// The whole request head.
    pub head: &'a [u8],
    /// The whole body.
    pub body: &'a [u8],
    /// What may be done when no answer comes.
    pub unknown_outcome: UnknownOutcome,
    /// What ends a doubt that all children share.
    pub on_unknown: OnUnknown,
    /// Statuses that on a re-send mean "applied before".
    pub applied: &'a [u16],
    /// The action's name; longer than [`CHANGE_NAME_BYTES_MAX`] it is cut.
    pub name: &'a str,
    /// A live change.
    pub live: bool,
    /// The client's key.
    pub key: Option<&'a ClientKey>,
}

// === impl ChangeRef ===

impl<'a> ChangeRef<'a> {
    /// What is written of a change that is about to be numbered `sequence`.
    #[must_use]
    pub fn of(change: &'a Change, sequence: u64, unix_ms: u64) -> Self {
        Self {
            sequence,
            unix_ms,
            head: &change.head,
            body: &change.body,
            unknown_outcome: change.unknown_outcome,
            on_unknown: change.on_unknown,
            applied: &change.applied,
            name: &change.name,
            live: change.live,
            key: change.key.as_deref(),
        }
    }

    /// Octets of its record.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let key = self.key.map_or(0, |key| 2 + key.text.len() + key.digest.len());
        let name = clip(self.name, CHANGE_NAME_BYTES_MAX).len();
        RECORD_HEADER_BYTES
            + CHANGE_FIXED_BYTES
            + 2 * self.applied.len()
            + 2
            + name
            + key
            + self.head.len()
            + self.body.len()
    }
}

impl<'a> From<&'a Stored> for ChangeRef<'a> {
    fn from(stored: &'a Stored) -> Self {
        Self {
            sequence: stored.sequence,
            unix_ms: stored.unix_ms,
            head: &stored.head,
            body: &stored.body,
            unknown_outcome: stored.unknown_outcome,
            on_unknown: stored.on_unknown,
            applied: &stored.applied,
            name: &stored.name,
            live: stored.live,
            key: stored.key.as_deref(),
        }
    }
}

// === writing ===

/// Appends a change. Copies its head and body: the only copy that the journal makes.
///
/// # Panics
/// If a part of it is above what admission allows.
pub fn put_change(out: &mut Vec<u8>, change: &ChangeRef<'_>) {
    let start = begin(out, CHANGE);
    put_u64(out, change.sequence);
    put_u64(out, change.unix_ms);
    let key_flag = if change.key.is_some() { FLAG_KEY } else { 0 };
    out.push(if change.live { FLAG_LIVE | key_flag } else { key_flag });
    out.push(match change.unknown_outcome {
        UnknownOutcome::Once => 0,
        UnknownOutcome::Idempotent => 1,
        UnknownOutcome::Conditional => 2,
        UnknownOutcome::Key => 3,
        UnknownOutcome::Probe => 4,
        UnknownOutcome::Cooperative => 5,
    });
    out.push(match change.on_unknown {
        OnUnknown::Hold => 0,
        OnUnknown::Resend => 1,
        OnUnknown::Assume => 2,
    });
    out.push(0);
    put_u16(out, u16::try_from(change.applied.len()).expect("there are fewer statuses"));
    put_u16(out, 0);
    put_count(out, change.head.len());
    put_count(out, change.body.len());
    for status in change.applied {
        put_u16(out, *status);
    }
    put_text(out, change.name, CHANGE_NAME_BYTES_MAX);
    if let Some(key) = change.key {
        assert!(key.text.len() <= CLIENT_KEY_BYTES_MAX, "admission bounds the key");
        put_u16(out, key.text.len() as u16);
        out.extend_from_slice(&key.text);
        out.extend_from_slice(&key.digest);
    }
    out.extend_from_slice(change.head);
    out.extend_from_slice(change.body);
    finish(out, start);
    debug_assert_eq!(out.len() - start, change.bytes());
}

/// Appends a mark.
pub fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    let start;
    match mark {
        Mark::Outcome { sequence, verdict, condemned } => {
            start = begin(out, OUTCOME);
            put_u64(out, *sequence);
            out.push(verdict_code(*verdict));
            out.push(0);
            put_place(out, condemned.len());
            for child in condemned {
                put_place(out, *child);
            }
        }
        Mark::Standing { child, standing, why } => {
            start = begin(out, STANDING);
            put_place(out, *child);
            out.push(standing_code(*standing));
            out.push(0);
            put_text(out, why, WHY_BYTES_MAX);
        }
        Mark::Attach { child, from, at } => {
            start = begin(out, ATTACH);
            put_place(out, *child);
            out.extend_from_slice(&[0; 6]);
            put_u64(out, *from);
            put_u64(out, *at);
        }
        Mark::Applied(moved) => {
            start = begin(out, APPLIED);
            put_place(out, moved.len());
            for (child, sequence) in moved {
                put_place(out, *child);
                put_u64(out, *sequence);
            }
        }
        Mark::Members(names) => {
            start = begin(out, MEMBERS);
            put_members(out, names);
        }
    }
    finish(out, start);
}

/// Appends the beginning of an epoch.
pub fn put_epoch(out: &mut Vec<u8>, epoch: u64, first: u64, ended: u64) {
    let start = begin(out, EPOCH);
    for value in [epoch, first, ended] {
        put_u64(out, value);
    }
    finish(out, start);
}

/// Appends a checkpoint.
pub fn put_checkpoint(out: &mut Vec<u8>, state: &State) {
    let start = begin(out, CHECKPOINT);
    state.encode(out);
    finish(out, start);
}

pub(super) fn put_members(out: &mut Vec<u8>, names: &[Box<str>]) {
    put_place(out, names.len());
    for name in names {
        put_text(out, name, usize::from(u16::MAX));
    }
}

pub(super) const fn verdict_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Agreed(Class::Success) => 0,
        Verdict::Agreed(Class::Rejected) => 1,
        Verdict::Agreed(Class::Failed) => 2,
        Verdict::Withdrawn => 3,
    }
}

pub(super) const fn standing_code(standing: Standing) -> u8 {
    match standing {
        Standing::Live => 0,
        Standing::Replaying => 1,
        Standing::Diverged => 2,
        Standing::NeedsReseed => 3,
    }
}

fn put_place(out: &mut Vec<u8>, place: usize) {
    put_u16(out, u16::try_from(place).expect("a group has no more children than CHILDREN_MAX"));
}

/// Leaves room for a record's header.
fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let start = out.len();
    put_u32(out, 0);
    out.extend_from_slice(&[kind, 0, 0, 0]);
    start
}

/// Fills in the length.
fn finish(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start - RECORD_HEADER_BYTES).expect("a record fits a segment");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

// === reading ===

impl Record {
    /// Takes the next record.
    pub(super) fn decode(input: &mut Input) -> Result<Self, Bad> {
        let length = input.u32()? as usize;
        let kind = input.u8()?;
        input.zeros(3)?;
        let mut content = Input::new(input.bytes(length)?);
        let record = match kind {
            CHANGE => Self::Change(change(&mut content)?),
            OUTCOME => Self::Mark(outcome(&mut content)?),
            STANDING => {
                let (child, standing) = (place(&mut content)?, standing(&mut content)?);
                content.zeros(1)?;
                Self::Mark(Mark::Standing { child, standing, why: content.text()?.into() })
            }
            ATTACH => {
                let child = place(&mut content)?;
                content.zeros(6)?;
                Self::Mark(Mark::Attach { child, from: content.u64()?, at: content.u64()? })
            }
            APPLIED => {
                let count = content.u16()?;
                let moved = (0..count).map(|_| Ok((place(&mut content)?, content.u64()?)));
                Self::Mark(Mark::Applied(moved.collect::<Result<_, Bad>>()?))
            }
            MEMBERS => Self::Mark(Mark::Members(members(&mut content)?)),
            EPOCH => Self::Epoch { epoch: content.u64()?, first: content.u64()?, ended: content.u64()? },
            CHECKPOINT => Self::Checkpoint(Box::new(State::decode(&mut content)?)),
            _ => return Err(Bad("a record is of a kind that this antiphon does not know")),
        };
        content.end()?;
        Ok(record)
    }
}

fn change(input: &mut Input) -> Result<Stored, Bad> {
    let (sequence, unix_ms) = (input.u64()?, input.u64()?);
    let flags = input.u8()?;
    if flags & !(FLAG_LIVE | FLAG_KEY) != 0 {
        return Err(Bad("a change has flags that this antiphon does not know"));
    }
    let unknown_outcome = match input.u8()? {
        0 => UnknownOutcome::Once,
        1 => UnknownOutcome::Idempotent,
        2 => UnknownOutcome::Conditional,
        3 => UnknownOutcome::Key,
        4 => UnknownOutcome::Probe,
        5 => UnknownOutcome::Cooperative,
        _ => return Err(Bad("a change's unknown_outcome is not one that this antiphon knows")),
    };
    let on_unknown = match input.u8()? {
        0 => OnUnknown::Hold,
        1 => OnUnknown::Resend,
        2 => OnUnknown::Assume,
        _ => return Err(Bad("a change's on_unknown is not one that this antiphon knows")),
    };
    input.zeros(1)?;
    let statuses = input.u16()?;
    input.zeros(2)?;
    let (head, body) = (input.u32()? as usize, input.u32()? as usize);
    let applied = (0..statuses).map(|_| input.u16()).collect::<Result<Vec<_>, Bad>>()?;
    let name = input.text()?;
    let key = if flags & FLAG_KEY == 0 { None } else { Some(Arc::new(key(input)?)) };
    Ok(Stored {
        sequence,
        head: input.bytes(head)?,
        body: input.bytes(body)?,
        unknown_outcome,
        on_unknown,
        applied: applied.into(),
        name,
        live: flags & FLAG_LIVE != 0,
        unix_ms,
        key,
    })
}

fn key(input: &mut Input) -> Result<ClientKey, Bad> {
    let length = input.u16()?;
    let text: Bytes = input.bytes(usize::from(length))?;
    Ok(ClientKey { text: text[..].into(), digest: input.array()? })
}

fn outcome(input: &mut Input) -> Result<Mark, Bad> {
    let (sequence, verdict) = (input.u64()?, verdict(input)?);
    input.zeros(1)?;
    let count = input.u16()?;
    let condemned = (0..count).map(|_| place(input)).collect::<Result<_, Bad>>()?;
    Ok(Mark::Outcome { sequence, verdict, condemned })
}

pub(super) fn members(input: &mut Input) -> Result<Vec<Box<str>>, Bad> {
    let count = input.u16()?;
    (0..count).map(|_| input.text()).collect()
}

pub(super) fn verdict(input: &mut Input) -> Result<Verdict, Bad> {
    Ok(match input.u8()? {
        0 => Verdict::Agreed(Class::Success),
        1 => Verdict::Agreed(Class::Rejected),
        2 => Verdict::Agreed(Class::Failed),
        3 => Verdict::Withdrawn,
        _ => return Err(Bad("a verdict is not one that this antiphon knows")),
    })
}

pub(super) fn standing(input: &mut Input) -> Result<Standing, Bad> {
    Ok(match input.u8()? {
        0 => Standing::Live,
        1 => Standing::Replaying,
        2 => Standing::Diverged,
        3 => Standing::NeedsReseed,
        _ => return Err(Bad("a standing is not one that this antiphon knows")),
    })
}

fn place(input: &mut Input) -> Result<usize, Bad> {
    input.u16().map(usize::from)
}

/// The most octets that head and body of one change may have in a journal whose segments are so large: with all else
/// that its record holds, and the checkpoint before it, it fits. The configuration is held against it, and so is
/// each change.
#[must_use]
pub const fn change_bytes(segment_bytes: u64) -> u64 {
    let fixed = (RECORD_HEADER_BYTES + CHANGE_FIXED_BYTES + 4 + 2 * STATUSES + 32) as u64;
    let names = (CHANGE_NAME_BYTES_MAX + CLIENT_KEY_BYTES_MAX) as u64;
    (segment_bytes / 2).saturating_sub(fixed + names + super::FRAME_HEADER_BYTES as u64)
}

const CHANGE: u8 = 1;
const OUTCOME: u8 = 2;
const STANDING: u8 = 3;
const ATTACH: u8 = 4;
const APPLIED: u8 = 5;
const MEMBERS: u8 = 6;
const EPOCH: u8 = 7;
const CHECKPOINT: u8 = 8;

const FLAG_LIVE: u8 = 1;
const FLAG_KEY: u8 = 2;

/// Octets of a change before what varies.
const CHANGE_FIXED_BYTES: usize = 32;
/// Statuses that `applied` may name: 100 to 599.
const STATUSES: usize = 500;
