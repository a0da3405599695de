//! What the order of changes asks of whatever keeps it: the words that go on record, and what comes back at a start.
//!
//! Not the journal. That is [`journal`](crate::journal), which writes these words into files and reads them again; the
//! simulation keeps them on a disk that fails. Nothing here knows a format or a file.
//!
//! # What is on record, and when
//!
//! - A *change*, before any child is sent it, and before its client is told anything of it.
//! - Its *outcome*, where that is not plain success: before a child that refused it goes on behind it. So a refusal is
//!   never forgotten, and what nobody has refused was carried out by every child that has gone on.
//! - How far each child has come: in its [`Slot`] at once (kept by the kernel: a killed process loses nothing), and with
//!   the next batch for good (a power cut loses what came after it).
//! - Standings, attaches, members: with the next batch.
//!
//! # What is known at a start
//!
//! A child has confirmed everything up to `applied`, and may have carried out what comes next up to `begun`. Whether a
//! change was a success or a refusal is told by the exceptions and the judged ranges of [`Resume`].

use bytes::Bytes;

use super::ack::Class;
use super::change::Change;
pub use crate::action::OnUnknown;
use crate::action::UnknownOutcome;
use crate::route::Standing;
use crate::sync::Arc;

/// A change as it comes back from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its place in the order.
    pub sequence: u64,
    /// The whole request head, as children get it.
    pub head: Bytes,
    /// The whole body, unframed.
    pub body: Bytes,
    /// What may be done when no answer comes.
    pub unknown_outcome: UnknownOutcome,
    /// What ends a doubt that all children share.
    pub on_unknown: OnUnknown,
    /// Statuses that on a re-send mean "applied before".
    pub applied: Arc<[u16]>,
    /// The action's name, for messages.
    pub name: Box<str>,
    /// A live change.
    pub live: bool,
    /// When it was numbered, by the wall clock: milliseconds since 1970. For its age, never for a decision about order.
    pub unix_ms: u64,
    /// The client's key and the digest of its request, where it sent one.
    pub key: Option<Arc<ClientKey>>,
}

/// By what a repeated request is known (`Idempotency-Key`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// The key as it came.
    pub text: Box<[u8]>,
    /// Of method, target and body: the same key with another digest is another request.
    pub digest: [u8; 32],
}

/// What goes on record beside changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// What has won for this change, where it is not plain success.
    Outcome {
        /// The change.
        sequence: u64,
        /// What has won.
        verdict: Verdict,
        /// Children that had answered otherwise by then: diverged.
        condemned: Vec<usize>,
    },
    /// Whether a child's data is current, where that has changed for a reason that does not mend itself.
    Standing {
        /// Index of the child in its group.
        child: usize,
        /// Its standing.
        standing: Standing,
        /// For the operator.
        why: String,
    },
    /// The operator's word that a child is identical as of `at`; it had confirmed everything up to `from`.
    Attach {
        /// Index of the child in its group.
        child: usize,
        /// What it had confirmed.
        from: u64,
        /// What it counts as having confirmed.
        at: u64,
    },
    /// How far children have come; only those that have moved.
    Applied(Vec<(usize, u64)>),
    /// Which child stands at which place from now on, by name; an empty name is a vacant place.
    Members(Vec<Box<str>>),
}

/// What has won for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An answer of this class.
    Agreed(Class),
    /// Nobody was sent it and nobody will be: a live change that antiphon's own end came before.
    Withdrawn,
}

/// What is known at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// What sequences belong to.
    pub epoch: u64,
    /// The last change on record; 0 if there is none.
    pub last: u64,
    /// The oldest change that is still on record; `last + 1` if none is.
    pub oldest: u64,
    /// A client may have been told that changes up to here were carried out: what the furthest child has confirmed or,
    /// after a power cut, which may have lost such a confirmation, the last change. No read is served by a child before it.
    pub acknowledged: u64,
    /// Of each place in the group, in the order of the configuration.
    pub children: Vec<ResumedChild>,
    /// Changes for which something else than plain success has won, above what every child has confirmed.
    pub exceptions: Vec<(u64, Verdict)>,
    /// Ranges `(after, through]` of changes that some child has confirmed in its place, ascending and apart. What every
    /// child has confirmed may be left out.
    pub judged: Vec<(u64, u64)>,
    /// Live changes above what every child has confirmed.
    pub live: Vec<u64>,
}

/// One child at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedChild {
    /// It has confirmed everything up to here.
    pub applied: u64,
    /// It may have been sent what comes next, up to here; at least `applied`.
    pub begun: u64,
    /// Where it was attached last: it has carried out itself what came after this.
    pub attached: u64,
    /// Its standing on record; [`Standing::Live`] also says "was replaying".
    pub standing: Standing,
    /// For the operator; empty where there is nothing to say.
    pub why: String,
}

/// How far a child has come, as its lane writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// It has confirmed everything up to here.
    pub applied: u64,
    /// It is being sent what comes next, up to here; `applied` if nothing is under way.
    pub begun: u64,
}

/// It cannot be relied on any more: nothing is acknowledged until a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFailed {
    /// What was tried, on which file, and how it ended.
    pub why: String,
}

/// Why nothing more can be taken, for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFull {
    /// The limit that was met, with its figures.
    pub why: String,
}

/// The record of a group's changes, as its sequencer writes it. One thread has it.
pub trait Journal: Send {
    /// May changes of so many octets in all (heads, bodies, names) be committed now? Marks always may.
    ///
    /// # Errors
    /// Which limit forbids it.
    fn room(&mut self, bytes: u64) -> Result<(), JournalFull>;

    /// Puts these on record, for good: marks first, then changes, which are numbered without a gap. Blocks until they are
    /// durable.
    ///
    /// # Errors
    /// None of them may be relied on, and some may be on record all the same. Every later call fails too.
    fn commit(&mut self, marks: &[Mark], changes: &[Arc<Change>]) -> Result<(), JournalFailed>;

    /// Nobody needs changes up to `through` any more.
    fn release(&mut self, through: u64);

    /// Octets on record of the changes after `sequence`, about.
    fn bytes_after(&self, sequence: u64) -> u64;

    /// When the change after `sequence` was numbered, about: milliseconds since 1970. `None` if there is none.
    fn age_after(&self, sequence: u64) -> Option<u64>;

    /// For displays.
    fn space(&self) -> Space;
}

/// What a journal takes and may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Octets of its files.
    pub bytes: u64,
    /// What they may be at most.
    pub bytes_max: u64,
    /// Its files.
    pub segments: u64,
    /// The oldest change on record.
    pub oldest: u64,
    /// Changes up to here are released.
    pub released: u64,
    /// Octets of the reserve that keeps outcomes writable on a full disk, as far as it is still there.
    pub reserve: u64,
    /// Syncs made.
    pub syncs: u64,
    /// Time spent in them, microseconds.
    pub sync_us: u64,
    /// The longest of them, microseconds.
    pub sync_us_max: u64,
    /// How many took up to each of [`SYNC_EDGES_US`], and not up to the one before; the last: longer than all.
    pub sync_buckets: [u64; SYNC_EDGES_US.len() + 1],
}

/// Upper edges of the buckets in which syncs are counted, microseconds: a disk with its own battery takes tens, a good one
/// hundreds, a disk that turns tens of thousands.
pub const SYNC_EDGES_US: [u64; 11] = [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 25_000, 100_000, 1_000_000];

/// The children's slots. Lanes write each its own, from their workers' threads.
pub trait Slots: Send + Sync {
    /// Writes the slot of `child`; with `sync` for good, else so that only a power cut can lose it. A few microseconds
    /// without `sync`.
    ///
    /// # Errors
    /// The journal has failed.
    fn put(&self, child: usize, slot: Slot, sync: bool) -> Result<(), JournalFailed>;
}

/// What a reader of the record finds.
pub trait Reader: Send {
    /// Changes from `from` on, in order and without a gap: at least one, if it is on record; about `bytes_max` octets.
    /// Empty if `from` is not durable yet.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError>;
}

/// Why a change cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It was released: nobody needed it. The oldest on record is told.
    Released {
        /// The oldest change on record.
        oldest: u64,
    },
    /// It is damaged, or cannot be read.
    Damaged {
        /// The file, the range and what is wrong with it.
        why: String,
    },
}
