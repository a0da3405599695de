//! The journal's files: opening what is there, and the parts that then work on it.
//!
//! [`open`] is the story of a start: the lock, what is found (`recover.rs`), what a crash has left is cleared away, the
//! children's names and slots are held against it, and only then is anything new put on record. What comes out is the
//! [`Writer`] for the sequencer, the [`Slots`] for the lanes, [`Readers`], and what is known ([`Resume`]).

pub mod disk;
pub mod inspect;
mod reader;
mod recover;
pub mod repair;
mod shared;
mod slots;
mod supply;
mod walk;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use reader::Readers;
pub use writer::Writer;

use self::disk::directory::Directory;
use self::disk::{Disk, rewrite, zero};
use self::recover::{Found, Tail, io_error, recover};
use self::shared::Shared;
use self::slots::{SlotFile, Told, name_hash};
use self::supply::Supply;
use self::writer::{Head, Identity};
use super::record::Previous;
use super::state::State;
use crate::crash;
use crate::limits::{JOURNAL_BYTES_MAX, JOURNAL_RESERVE_SEGMENTS, SEGMENT_BYTES};
use crate::mirror::durable::{JournalFailed, Mark, Resume, ResumedChild, Slot, Slots};
use crate::route::Standing;
use crate::sync::Arc;

/// What a group's journal is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The state directory; the journal has a directory of its group's name in it.
    pub directory: PathBuf,
    /// The group.
    pub group: Box<str>,
    /// What its actions are written in; a journal of another is refused.
    pub mode: Box<str>,
    /// The children, in the order of the configuration.
    pub children: Vec<Box<str>>,
    /// Octets of a segment that is made.
    pub segment_bytes: u64,
    /// What all segments may take, but for the reserve.
    pub bytes_max: u64,
    /// What is held back for marks on a full disk.
    pub reserve_bytes: u64,
    /// Every write of a slot is synced: also after a power cut it is known how far each child had come.
    pub cursor_sync_each: bool,
    /// Take a file system that forgets, or that does as it likes with a sync.
    pub force: bool,
    /// What sequences of a journal that begins now belong to.
    pub epoch_if_new: u64,
}

/// A journal that is ready.
pub struct Opened {
    /// For the sequencer: a [`Journal`](crate::mirror::durable::Journal).
    pub journal: Writer,
    /// For the lanes.
    pub slots: Arc<dyn Slots>,
    /// For lanes that are behind the ring.
    pub readers: Readers,
    /// What is known.
    pub resume: Resume,
}

/// Why a journal cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Somebody else writes it.
    #[error("{path} is in use by another process: one antiphon a journal")]
    Locked {
        /// The lock.
        path: String,
    },
    /// The system refused.
    #[error("{path}: {error}")]
    Io {
        /// The file or directory.
        path: String,
        /// What it said.
        error: io::Error,
    },
    /// The file system is none that keeps its word.
    #[error(
        "{path} is on {kind}, which loses what was synced or cannot say: choose a directory on a local disk, or set \
         `any_file_system = true` in [state] if that is meant"
    )]
    FileSystem {
        /// The directory.
        path: String,
        /// The file system.
        kind: &'static str,
    },
    /// It is another group's, of another dialect or version, or none of its children is configured.
    #[error("{path}: {why}")]
    Foreign {
        /// The file or directory.
        path: String,
        /// What does not fit, and what to do.
        why: String,
    },
    /// It is damaged.
    #[error(
        "{path}, octets {from} to {to}: {why}. Nothing has been changed. Look with `antiphon journal verify`; restore \
         the files, or cut there with `antiphon journal repair`"
    )]
    Damaged {
        /// The file.
        path: String,
        /// Where the damage begins.
        from: u64,
        /// Where it ends, as far as that is known.
        to: u64,
        /// What is wrong.
        why: String,
    },
    /// What children have confirmed or need is not on record: the files are older than the children, or some are gone.
    #[error(
        "{path}: {why}. The journal may have been restored from a backup, or files of it are missing: restore them, \
         or let `antiphon journal repair` mark the child for a reseed"
    )]
    Behind {
        /// The directory.
        path: String,
        /// The child and the figures.
        why: String,
    },
}

impl Options {
    /// The defaults, for a group of these children.
    #[must_use]
    pub fn new(directory: PathBuf, group: &str, mode: &str, children: Vec<Box<str>>) -> Self {
        Self {
            directory,
            group: group.into(),
            mode: mode.into(),
            children,
            segment_bytes: SEGMENT_BYTES,
            bytes_max: JOURNAL_BYTES_MAX,
            reserve_bytes: JOURNAL_RESERVE_SEGMENTS * SEGMENT_BYTES,
            cursor_sync_each: false,
            force: false,
            epoch_if_new: 1,
        }
    }
}

/// Opens the group's journal, or begins it. A thread of its own makes segments ahead.
///
/// # Errors
/// See [`OpenError`]. Nothing has been changed then, but for a directory that was made.
pub fn open(options: &Options) -> Result<Opened, OpenError> {
    let path = options.directory.join(&*options.group);
    let named = |error| OpenError::Io { path: path.display().to_string(), error };
    let directory = Directory::make(path.clone()).map_err(named)?;
    if let (false, Some(kind)) = (options.force, directory.doubtful_file_system().map_err(named)?) {
        return Err(OpenError::FileSystem { path: path.display().to_string(), kind });
    }
    open_on(options, Arc::new(directory), true)
}

/// The same on any disk, which is the group's directory. Without a thread, segments are made when they are asked for.
///
/// # Errors
/// See [`OpenError`].
pub fn open_on(options: &Options, disk: Arc<dyn Disk>, threaded: bool) -> Result<Opened, OpenError> {
    let lock = disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked { path: disk.path("lock") },
        _ => io_error(&*disk, "lock", error),
    })?;
    let Found { segments, tail, useless, next_ordinal } = recover(&*disk, &options.group, &options.mode)?;
    let told = slots::read(&*disk).map_err(|error| io_error(&*disk, slots::NAME, error))?;
    let start = match &tail {
        Some(tail) => {
            Start::of(options, &*disk, &told, &tail.state, segments.front().map_or(1, |it| it.first_sequence))?
        }
        None => Start::first(options, &*disk, &told)?,
    };
    // Until here nothing was changed.
    clear(&*disk, &useless, tail.as_ref())?;
    crash::point("start.recovered");

    let identity =
        Identity { group: options.group.clone(), mode: options.mode.clone(), segment_bytes: options.segment_bytes };
    let reserve = usize::try_from(options.reserve_bytes.div_ceil(options.segment_bytes)).unwrap_or(usize::MAX);
    let next_ordinal = tail.as_ref().map_or(next_ordinal, |tail| tail.header.ordinal + 1);
    let supply = Supply::new(Arc::clone(&disk), options.segment_bytes, next_ordinal, reserve, threaded);
    let mut supply = supply.map_err(|error| io_error(&*disk, "", error))?;
    let segments_max = (options.bytes_max / options.segment_bytes).max(2);
    let failed = |failed: JournalFailed| OpenError::Io { path: disk.path(""), error: io::Error::other(failed.why) };

    let (shared, mut writer) = match tail {
        Some(tail) => {
            let shared = Arc::new(Shared::new(Arc::clone(&disk), segments, tail.state.last));
            let head = Head {
                file: tail.file,
                segment: shared.last(),
                written: tail.end,
                synced: tail.end,
                last_crc: tail.last_crc,
            };
            let writer = Writer::resume(Arc::clone(&shared), identity, supply, segments_max, tail.state, head, lock);
            (shared, writer)
        }
        None => {
            slots::remove(&*disk).map_err(|error| io_error(&*disk, slots::NAME, error))?;
            let made =
                supply.take().map_err(|why| OpenError::Io { path: disk.path(""), error: io::Error::other(why) })?;
            let state = State::first(options.epoch_if_new, options.children.clone());
            let (head, header) =
                Writer::begin(made, &identity, Previous::default(), &state, disk.random(), disk.unix_ms());
            let segments = VecDeque::from([Arc::clone(&head.segment)]);
            let shared = Arc::new(Shared::new(Arc::clone(&disk), segments, 0));
            let mut writer = Writer::resume(Arc::clone(&shared), identity, supply, segments_max, state, head, lock);
            writer.begin_buffer(header);
            writer.commit_start(Some((options.epoch_if_new, 1, 0)), &[]).map_err(failed)?;
            (shared, writer)
        }
    };
    writer.commit_start(None, &start.marks).map_err(failed)?;
    let slots: Vec<Slot> =
        start.children.iter().map(|child| Slot { applied: child.applied, begun: child.begun }).collect();
    let epoch = writer.state().epoch;
    crash::point("start.marked");
    let file = SlotFile::make(Arc::clone(&shared), &slots, epoch, options.cursor_sync_each)
        .map_err(|error| io_error(&*disk, slots::NAME, error))?;
    let resume = resume(writer.state(), shared.oldest(), start.acknowledged, start.children);
    Ok(Opened { journal: writer, slots: Arc::new(file), readers: Readers::new(shared), resume })
}

/// What a start knows of the children, and what of it is not on record yet.
struct Start {
    children: Vec<ResumedChild>,
    /// See [`Resume::acknowledged`].
    acknowledged: u64,
    marks: Vec<Mark>,
}

impl Start {
    /// Of a journal that begins. Children that had come further belonged to one that is gone.
    fn first(options: &Options, disk: &dyn Disk, told: &[Told]) -> Result<Self, OpenError> {
        if let Some(slot) = told.iter().find(|slot| slot.slot.begun > 0) {
            let why = format!("there are no segments, but a child has come to {}:{}", slot.epoch, slot.slot.applied);
            return Err(OpenError::Behind { path: disk.path(""), why });
        }
        // The smallest of what a segment begins with; it may grow to four times as much.
        let first = State::first(options.epoch_if_new, options.children.clone());
        if first.checkpoint_bytes() > options.segment_bytes / 16 {
            let (count, bytes) = (options.children.len(), options.segment_bytes);
            let why = format!("segments of {bytes} octets are too small for {count} children; make them larger");
            return Err(OpenError::Foreign { path: disk.path(""), why });
        }
        let child = ResumedChild::vacant(0);
        Ok(Self { children: vec![child; options.children.len()], acknowledged: 0, marks: Vec::new() })
    }

    /// Of a journal whose records amount to `state`.
    fn of(options: &Options, disk: &dyn Disk, told: &[Told], state: &State, oldest: u64) -> Result<Self, OpenError> {
        let behind = |why: String| OpenError::Behind { path: disk.path(""), why };
        if !options.children.iter().any(|name| state.children.contains_key(name)) && !state.children.is_empty() {
            let known: Vec<&str> = state.members.iter().map(|name| &**name).collect();
            let why = format!(
                "none of the configured children is on record (it knows {}): a child is known by its `name`, so give \
                 them back their names, or move the directory away and reseed the children",
                known.join(", ")
            );
            return Err(OpenError::Foreign { path: disk.path(""), why });
        }
        let boot_id = disk.boot_id();
        let mut moved = Vec::new();
        for (place, name) in state.members.iter().enumerate() {
            let (Some(known), hash) = (state.children.get(name), name_hash(name)) else {
                continue;
            };
            for slot in told.iter().filter(|slot| slot.name_hash == hash && slot.epoch >= state.epoch) {
                if slot.slot.begun > state.last || slot.epoch > state.epoch {
                    return Err(behind(format!(
                        "child `{name}` has come to {}:{} and may have been sent what follows up to {}, but the record \
                         ends at {}:{}",
                        slot.epoch, slot.slot.applied, slot.slot.begun, state.epoch, state.last
                    )));
                }
                if slot.slot.applied > known.applied {
                    moved.push((place, slot.slot.applied));
                }
            }
        }
        let mut marks = Vec::new();
        let mut after = state.clone();
        let mut put = |after: &mut State, mark: Mark| {
            after.on_mark(&mark).expect("marks of a start are made from the state");
            marks.push(mark);
        };
        if !moved.is_empty() {
            put(&mut after, Mark::Applied(moved));
        }
        if after.members != options.children {
            put(&mut after, Mark::Members(options.children.clone()));
        }
        let mut children = Vec::with_capacity(options.children.len());
        let mut is_whole_all = true;
        for (place, name) in options.children.iter().enumerate() {
            if name.is_empty() {
                children.push(ResumedChild::vacant(state.last));
                continue;
            }
            let was_member = state.members.contains(name);
            let known = after.children[name].clone();
            let is_new = !state.children.contains_key(name) && state.last > 0;
            let has_missed = known.standing == Standing::Live && known.applied + 1 < oldest;
            if is_new || (has_missed && !was_member) {
                let why = if is_new { "it is new in this group" } else { "it came back, and what it missed is gone" };
                let why = format!("{why}: make its data identical, then attach it");
                put(&mut after, Mark::Standing { child: place, standing: Standing::NeedsReseed, why });
            } else if has_missed {
                return Err(behind(format!(
                    "child `{name}` has confirmed {}, but the oldest change on record is {oldest}",
                    known.applied
                )));
            }
            let known = &after.children[name];
            // One that has moved to another place has left a slot behind.
            let own = told.iter().filter(|slot| slot.name_hash == name_hash(name) && slot.epoch == state.epoch);
            let slot = own.max_by_key(|slot| (slot.slot.applied, slot.slot.begun));
            let on_record = state.children.get(name).map_or(0, |known| known.applied);
            let is_whole = |slot: &&Told| {
                let same_boot = slot.boot_id == boot_id && boot_id != [0; 16];
                was_member && (slot.is_synced || same_boot) && slot.slot.applied >= on_record
            };
            let slot = slot.filter(is_whole);
            is_whole_all &= slot.is_some() || !was_member;
            let begun = slot.map_or(state.last, |slot| slot.slot.begun);
            children.push(ResumedChild {
                applied: known.applied,
                begun: begun.max(known.applied),
                attached: known.attached,
                standing: known.standing,
                why: known.why.clone(),
            });
        }
        let furthest = after.children.values().map(|child| child.applied).max().unwrap_or(0);
        Ok(Self { children, acknowledged: if is_whole_all { furthest } else { state.last }, marks })
    }
}

impl ResumedChild {
    /// Nobody, who needs nothing from the record.
    const fn vacant(last: u64) -> Self {
        Self { applied: last, begun: last, attached: last, standing: Standing::Live, why: String::new() }
    }
}

fn resume(state: &State, oldest: u64, acknowledged: u64, children: Vec<ResumedChild>) -> Resume {
    Resume {
        epoch: state.epoch,
        last: state.last,
        oldest,
        acknowledged,
        children,
        exceptions: state.exceptions.iter().map(|(sequence, verdict)| (*sequence, *verdict)).collect(),
        judged: state.judged(),
        live: state.live.iter().copied().collect(),
    }
}

/// Clears away what a crash has left, for good, before anything is written: it might come back after the next one.
fn clear(disk: &dyn Disk, useless: &[String], tail: Option<&Tail>) -> Result<(), OpenError> {
    for name in useless {
        disk.unlink(name).map_err(|error| io_error(disk, name, error))?;
    }
    disk.sync_dir().map_err(|error| io_error(disk, "", error))?;
    let Some(tail) = tail else {
        return Ok(());
    };
    let name = shared::file_name(tail.header.ordinal);
    if let Some(to) = tail.torn_to {
        tracing::warn!(
            file = disk.path(&name),
            from = tail.end,
            to,
            "the last write to the journal was not finished, and nobody was told of it: it is cut away"
        );
    }
    let to = if tail.is_short { tail.header.bytes } else { tail.torn_to.unwrap_or(tail.end) };
    let allocated = if tail.is_short { tail.file.allocate(tail.header.bytes) } else { Ok(()) };
    // What the last write left is taken for good from here on, so it has to be: whoever wrote it may have been killed
    // before the sync, or after one that failed.
    let rewritten = allocated.and_then(|()| rewrite(&*tail.file, tail.durable_upto, tail.end));
    let zeroed = rewritten.and_then(|()| zero(&*tail.file, tail.end, to));
    zeroed.and_then(|()| tail.file.sync_data()).map_err(|error| io_error(disk, &name, error))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
