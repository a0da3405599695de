//! Keeping the children of a group identical: every change goes to every child, in one order.
//!
//! ```text
//! client's task ── submit ──> queue of its worker ──> Sequencer ── publish ──> Ring ──> a Lane a child ──> child
//!        ^                                                                                     │
//!        └──────────────── decide <── the change's table of outcomes <─────────────────────────┘
//! ```
//!
//! [`MirrorGroup`] is what the threads share. The [`Sequencer`] is the one producer of the [`Ring`]; a [`Lane`] is one
//! child's state machine; [`ack`] decides for the client. All of it is pure but for the atomics that carry words from
//! one thread to another: nothing here sends, waits or reads a clock.
//!
//! A live change is numbered only when all lanes are ready for it (`mirror/gate.rs`): all children are sent it, or none.
//!
//! # What is kept where
//!
//! Without a journal, in memory only: a restart forgets the ring, and what a child had not been sent by then is lost to
//! it. With one ([`durable`]), the sequencer commits a batch before it publishes it, a lane that is behind the ring reads
//! the past (`past.rs`), and what has won for a change is on record before a child that refused it goes on (`record.rs`).
//!
//! # Who waits for whom
//!
//! The ring waits for nobody. The *sequencer* does, before it numbers a change that would push an entry out of the ring
//! which a live child has yet to get: otherwise a burst of large bodies would cost every child its place. It waits for
//! the deadline of a change at most where another live child is further (one slow child delays the others once, and
//! then needs a reseed), and as long as it takes where none is (then the submission queues fill, and clients are told
//! `overloaded`). Children that are down are not waited for (where all are, nothing is taken that none of them could be
//! sent any more); one that replays gets help for a while
//! (`courtesy.rs`), so that it catches up although writers never pause.

mod account;
pub mod ack;
mod budget;
mod change;
mod courtesy;
pub mod durable;
mod fate;
mod gate;
#[cfg(test)]
mod levels;
#[cfg(test)]
mod model;
mod past;
#[cfg(test)]
mod places;
mod record;
mod replay;
mod ring;
mod sequencer;
#[cfg(test)]
pub(crate) mod simulation;
#[cfg(test)]
mod testing;
mod verdicts;

use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam::queue::ArrayQueue;

pub use account::{Account, Backlog, Pace};
pub use ack::{Class, Decision, End, Level};
pub use budget::{Budget, Charge};
pub use change::{Change, Held, Order, Ticket, Waiting};
pub use durable::{ClientKey, OnUnknown};
pub use fate::{Fate, State, Trace, place};
pub use replay::{Do, Lane};
use ring::ring_after;
pub use ring::{ENTRY_BYTES, Entry, Read, Ring, What, Writer, ring};
pub use sequencer::Sequencer;

use self::account::Refusals;
use self::change::Admission;
use self::durable::{Journal, Resume, Slots};
use self::gate::Gathering;
use self::past::{Found, Past};
use self::record::resume_children;
use self::verdicts::Verdicts;
use crate::error::Fault;
use crate::limits::{CHANGE_PATIENCE, CHILDREN_MAX};
use crate::route::{Child, ChildSet, GroupTable};
use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU64, CachePadded, OnceLock, Ordering};
use crate::time::Time;

/// Something on another thread that can be woken. Waking twice before it looks is waking once.
pub trait Wake: Send + Sync {
    /// Makes it look, soon. Does not block.
    fn wake(&self);
}

/// What a [`MirrorGroup`] is made of.
pub struct Setup {
    /// The children, their probes, the floor of their reads.
    pub table: Arc<GroupTable>,
    /// What sequences belong to: never the same for two starts, since without a journal each begins at 1.
    pub epoch: u64,
    /// Whose answers a client waits for.
    pub level: Level,
    /// From the moment a change is on its way to a child until it counts as slow.
    pub deadline: Duration,
    /// How long newer changes are held back at most while the children get ready for a live one.
    pub live_wait: Duration,
    /// Workers, each with a submission queue.
    pub workers: usize,
    /// Changes that wait for the sequencer, a worker.
    pub submissions_max: usize,
    /// Slots of the ring, a power of two.
    pub ring_slots: usize,
    /// Octets of the entries in the ring.
    pub ring_bytes_max: usize,
    /// How long a child that returns is helped to catch up; zero for not at all.
    pub catch_up_help: Duration,
    /// Makes the group's sequencer [`step`](Sequencer::step).
    pub sequencer: Arc<dyn Wake>,
    /// What keeps the changes, if anything does.
    pub durable: Option<Durable>,
}

/// What keeps a group's changes.
pub struct Durable {
    /// The record.
    pub journal: Box<dyn Journal>,
    /// How far each child has come.
    pub slots: Arc<dyn Slots>,
    /// What was on record.
    pub resume: Resume,
    /// Makes the group's reader of the past look at [`MirrorGroup::wanted`].
    pub reader: Arc<dyn Wake>,
    /// A change that may not be sent again is on record as begun before it is sent, for good.
    pub sync_each: bool,
    /// What happens where the record is full, or a child has fallen too far behind.
    pub retention: Retention,
}

/// How much of the past is kept for a child that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Octets on record that one child may be behind.
    pub backlog_bytes_max: u64,
    /// How old the oldest change may be that one child is owed.
    pub backlog_age_max: Duration,
    /// Beyond it, and where the record is full.
    pub on_full: OnFull,
}

/// What gives way where the record is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// New changes are refused, until the child has caught up or the operator has given it up.
    #[default]
    RejectWrites,
    /// The child that is furthest behind: it needs a reseed.
    DropChild,
}

impl OnFull {
    /// All of them, as an operator chooses among them.
    pub const ALL: [Self; 2] = [Self::RejectWrites, Self::DropChild];

    /// The word for it in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RejectWrites => "reject_writes",
            Self::DropChild => "drop_child",
        }
    }
}

/// A group's changes, as all threads share them.
pub struct MirrorGroup {
    table: Arc<GroupTable>,
    epoch: u64,
    level: Level,
    deadline: Duration,
    live_wait: Duration,
    ring: Arc<Ring>,
    /// What the lanes get ready for, if anything. Written by the sequencer.
    gate: ArcSwapOption<Gathering>,
    /// One a worker.
    submissions: Box<[ArrayQueue<Arc<Change>>]>,
    /// One a child.
    posts: Box<[CachePadded<Post>]>,
    sequencer: Arc<dyn Wake>,
    /// The sequence that was published last. Written by the sequencer.
    published: CachePadded<AtomicU64>,
    /// What is behind the ring; without a journal there is nothing.
    past: Option<Past>,
    keeping: Option<Keeping>,
}

/// What the threads share of what keeps the changes.
struct Keeping {
    slots: Arc<dyn Slots>,
    reader: Arc<dyn Wake>,
    sync_each: bool,
    /// Where each child stood at the start.
    resume: Box<[durable::ResumedChild]>,
    /// Changes of which the record is to say what has won.
    outcomes: ArrayQueue<Arc<Change>>,
    /// Why nothing can be relied on any more.
    failed: OnceLock<String>,
    refusals: Refusals,
    /// Written by the sequencer.
    account: ArcSwap<Account>,
}

/// What others leave for a child's lane, and it for the sequencer.
#[derive(Default)]
struct Post {
    wake: OnceLock<Arc<dyn Wake>>,
    /// The operator says that the child is identical again.
    attach: AtomicBool,
    /// The operator gives up what the child has missed.
    flush: AtomicBool,
    /// When a probe expires that did not fit the ring: nanoseconds, plus one; 0: there is none.
    probe: AtomicU64,
    /// The child is new, and the group has had no change yet: it begins as its siblings did.
    join: AtomicBool,
    /// The lane's own word: it works for a child. False in a vacant place once all is ended there.
    serves: AtomicBool,
    /// A change has been judged against this child.
    condemned: ArcSwapOption<Condemned>,
    /// What the operator says of the change that the child is in doubt about.
    resolve: AtomicU8,
    /// It is owed more than is kept: why, for the operator.
    dropped: ArcSwapOption<String>,
    /// The lane was attached: what it had confirmed, and what it counts as having confirmed.
    attached: ArcSwapOption<(u64, u64)>,
    /// Attaches that were asked for, and those that are on record.
    attaches: AtomicU64,
    attaches_recorded: AtomicU64,
    /// The change that the lane wants of the past; 0 if none.
    wanted: AtomicU64,
    /// What was found of it, from which change on.
    found: ArcSwapOption<(u64, Found)>,
}

/// What the operator knows of a change that a child is in doubt about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Resolve {
    /// The child has carried it out.
    Applied = 1,
    /// It has not: it is sent it, as for the first time.
    Lost = 2,
    /// Nobody knows, and twice does no harm.
    Resend = 3,
}

impl Resolve {
    /// All of them, as an operator chooses among them.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Lost, Self::Resend];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Lost => "lost",
            Self::Resend => "resend",
        }
    }

    /// What a word means.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolve| resolve.as_str() == word)
    }
}

/// A child's answer was not the one that won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condemned {
    sequence: u64,
    class: Class,
    agreed: Class,
}

// === impl MirrorGroup ===

impl MirrorGroup {
    /// The group, and its sequencer, which is the ring's one producer.
    ///
    /// # Panics
    /// If there is no child or no worker, or if the ring's slots are not a power of two.
    #[must_use]
    pub fn new(setup: Setup) -> (Arc<Self>, Sequencer) {
        assert!(setup.workers > 0 && !setup.table.children.is_empty(), "a group has workers and children");
        let children = setup.table.children.len();
        let resume = setup.durable.as_ref().map(|durable| &durable.resume);
        let (epoch, last) = resume.map_or((setup.epoch, 0), |resume| (resume.epoch, resume.last));
        if let Some(resume) = resume {
            assert_eq!(resume.children.len(), children, "each child has a place on record");
            resume_children(&setup.table, resume);
        }
        let (ring, writer) = ring_after(last, setup.ring_slots, setup.ring_bytes_max);
        let (verdicts, withdrawn) = resume.map(Verdicts::resumed).unzip();
        let (past, withdrawn) = (verdicts.map(Past::new), withdrawn.unwrap_or_default());
        let (journal, keeping) = setup.durable.map_or((None, None), |durable| {
            let keeping = Keeping {
                slots: durable.slots,
                reader: durable.reader,
                sync_each: durable.sync_each,
                resume: durable.resume.children.into(),
                // A lane waits with a refusal until it is on record, and what condemns a child stops that lane: twice the
                // children is never full.
                outcomes: ArrayQueue::new(2 * CHILDREN_MAX),
                failed: OnceLock::new(),
                refusals: Refusals::default(),
                account: ArcSwap::default(),
            };
            (Some((durable.journal, durable.retention)), Some(keeping))
        });
        let group = Arc::new(Self {
            epoch,
            level: setup.level,
            deadline: setup.deadline,
            live_wait: setup.live_wait,
            ring,
            gate: ArcSwapOption::empty(),
            submissions: (0..setup.workers).map(|_| ArrayQueue::new(setup.submissions_max)).collect(),
            posts: setup.table.children.iter().map(|_| CachePadded::default()).collect(),
            sequencer: setup.sequencer,
            published: CachePadded::new(AtomicU64::new(last)),
            past,
            keeping,
            table: setup.table,
        });
        let sequencer = Sequencer::new(Arc::clone(&group), writer, setup.catch_up_help, journal, withdrawn);
        (group, sequencer)
    }

    /// Puts a change in line for its sequence. From then on its fate is [`decide`](Self::decide)'s to tell.
    ///
    /// # Errors
    /// [`Fault::Overloaded`] if the worker's line is full: nothing of the change will be carried out.
    pub fn submit(&self, worker: usize, change: &Arc<Change>) -> Result<(), Fault> {
        self.submissions[worker].push(Arc::clone(change)).map_err(|_| Fault::Overloaded)?;
        self.sequencer.wake();
        Ok(())
    }

    /// What the client's task does about its change now. To be asked after each wake of its origin, and at the moment
    /// that [`Decision::Wait`] names.
    ///
    /// Raises the floor of reads before it lets a success be told. A rejection raises nothing: it left nothing to read.
    #[must_use]
    pub fn decide(&self, change: &Arc<Change>, now: Time) -> Decision {
        let ticket = match change.admission() {
            Some(Admission::Numbered(ticket)) => ticket,
            Some(Admission::Refused(fault, _)) => return Decision::Refused(*fault),
            None => {
                let until = change.submitted + CHANGE_PATIENCE;
                // Withdrawn, unless the sequencer has just taken it.
                if now >= until && change.admit(Admission::Refused(Fault::Overloaded, ChildSet::new())) {
                    // Children may be getting ready for it.
                    self.sequencer.wake();
                    return Decision::Refused(Fault::Overloaded);
                }
                return if now < until { Decision::Wait { until } } else { self.decide(change, now) };
            }
        };
        if change.is_unrecorded() {
            return Decision::Unrecorded;
        }
        if self.level_of(change) == Level::Durable {
            return ack::accept(self.last_sequence() >= ticket.sequence, change.submitted, now);
        }
        self.settle(change);
        let decision = loop {
            let agreed = change.agreed();
            let reports = change.reports();
            let level = self.level_of(change);
            let seen = ack::decide(level, ticket.primary, agreed, reports, change.submitted, self.deadline, now);
            let seen = if change.live { ack::together(seen, change.reports()) } else { seen };
            // A lane may have ended between the two looks, and nobody have said yet what has won: then all have
            // ended, nothing has been agreed, and the client would be told that its change is pending.
            self.settle(change);
            if change.agreed() == agreed {
                break seen;
            }
        };
        let is_told_success = match decision {
            Decision::Answer { child, .. } => {
                matches!(change.ended(child), Some((End::Answered { class: Class::Success, .. }, _)))
            }
            Decision::Partial => change.agreed() == Some(Class::Success),
            _ => false,
        };
        if is_told_success && self.failed().is_some() {
            // That a child has it may not be on record: after a restart others would be read that lack it.
            return Decision::Unknown;
        }
        if is_told_success {
            self.table.shared.raise_floor(ticket.sequence);
        }
        decision
    }

    /// The operator's word that `child` is identical to its siblings again, as of now: its lane goes on with the next
    /// change, once a probe is good. Does nothing for a child that is live. What [`is_attached`](Self::is_attached) wants.
    pub fn attach(&self, child: usize) -> u64 {
        let ask = self.posts[child].attaches.fetch_add(1, Ordering::Relaxed) + 1;
        // Release: what the operator did before is seen by the lane that takes this.
        self.posts[child].attach.store(true, Ordering::Release);
        self.notice(child);
        ask
    }

    /// The operator gives up what `child` has missed: its lane sends it nothing more, and it needs a reseed. Does nothing
    /// for a child that is live.
    pub fn flush(&self, child: usize) {
        self.posts[child].flush.store(true, Ordering::Relaxed);
        self.notice(child);
    }

    /// `child` was put in a vacant place of a group that has had no change yet, so it is what its siblings are: its lane
    /// goes through all changes from the first. Does nothing in a group that has had one.
    pub fn join(&self, child: usize) {
        self.posts[child].join.store(true, Ordering::Release);
        self.notice(child);
    }

    /// Has the lane left this place? Then another child may be put there.
    #[must_use]
    pub fn is_left(&self, child: usize) -> bool {
        // Acquire: what the lane did for the last child is done.
        !self.posts[child].serves.load(Ordering::Acquire)
    }

    /// Something that decides about `child` has changed elsewhere (what the operator wants of it, its health): its lane
    /// and the sequencer look.
    pub fn notice(&self, child: usize) {
        self.wake_lane(child);
        self.sequencer.wake();
    }

    /// Has the lane of `child` ask it how it is, without an entry in the ring.
    fn ask(&self, child: usize, expires: Time) {
        // Relaxed: the wake that follows orders it.
        self.posts[child].probe.store(expires.as_nanos().saturating_add(1), Ordering::Relaxed);
        self.wake_lane(child);
    }

    /// The children, probes and floor of the group.
    #[must_use]
    pub fn table(&self) -> &Arc<GroupTable> {
        &self.table
    }

    /// The epoch that sequences belong to.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The sequence of the change that was published last; 0 before the first. With a journal, it is on record.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        // Acquire pairs with the sequencer's Release: no child is seen ahead of it.
        self.published.load(Ordering::Acquire)
    }

    /// Whose answers clients wait for.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Changes that `child` has not confirmed.
    #[must_use]
    pub fn lag(&self, child: usize) -> u64 {
        self.last_sequence().saturating_sub(self.table.children[child].applied())
    }

    /// The ring: for displays.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How long newer changes are held back for a live one, at most.
    #[must_use]
    pub const fn live_wait(&self) -> Duration {
        self.live_wait
    }

    /// Whose answers the client of this change waits for.
    fn level_of(&self, change: &Change) -> Level {
        if change.live { Level::All } else { self.level }
    }

    /// Nothing of the change will be carried out, for the sake of these children. False if that was decided before, one
    /// way or the other.
    fn refuse(&self, change: &Change, fault: Fault, missing: ChildSet) -> bool {
        let refused = change.admit(Admission::Refused(fault, missing));
        if refused {
            change.wake_origin();
        }
        refused
    }

    /// `child` has applied everything up to `sequence`.
    fn confirm(&self, child: usize, sequence: u64) {
        self.child(child).confirm_applied(sequence);
        if self.level == Level::Durable {
            // No client is told of an outcome: what any child shows is what no other may fall behind.
            self.table.shared.raise_floor(sequence);
        }
    }

    fn child(&self, child: usize) -> &Child {
        &self.table.children[child]
    }

    fn wake_lane(&self, child: usize) {
        if let Some(wake) = self.posts[child].wake.get() {
            wake.wake();
        }
    }

    fn wake_lanes(&self) {
        for child in 0..self.posts.len() {
            self.wake_lane(child);
        }
    }

    /// The child's last word about the change.
    fn on_answer(&self, change: &Arc<Change>, child: usize, status: u16, class: Class, held: Option<Held>, now: Time) {
        change.answer(child, status, class, held, now);
        self.settle(change);
        change.wake_origin();
        if change.is_doubted() {
            self.wake_lanes();
        }
    }

    /// The client need not wait for the child any more.
    fn on_end(&self, change: &Arc<Change>, child: usize, end: End, now: Time) {
        change.end(child, end, now);
        self.settle(change);
        change.wake_origin();
    }

    /// Nobody need wait for those that have not ended.
    fn end_open(&self, change: &Arc<Change>, now: Time) {
        for report in change.reports().filter(|report| report.ended.is_none()) {
            self.on_end(change, report.child, End::Slow, now);
        }
    }

    /// Sets what has won, if that is known now, and tells the lanes of children that answered otherwise. A lane whose
    /// answer comes later, or at the same moment, sees what has won and judges itself.
    fn settle(&self, change: &Arc<Change>) {
        if !change.settle(self.level_of(change)) {
            return;
        }
        let Some(agreed) = change.agreed() else {
            return;
        };
        self.record_outcome(change, agreed);
        for (child, class) in change.answers() {
            if class != agreed {
                let new = Arc::new(Condemned { sequence: change.sequence(), class, agreed });
                // The latest stays: one that the operator's attach has made void must not hide one that counts.
                self.posts[child].condemned.rcu(|old| match old {
                    Some(old) if old.sequence >= new.sequence => Some(Arc::clone(old)),
                    _ => Some(Arc::clone(&new)),
                });
            }
            // A success has gone on unless it was condemned; the others wait to be judged.
            if class != agreed || class != Class::Success {
                self.wake_lane(child);
            }
        }
    }
}

impl std::fmt::Debug for MirrorGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorGroup")
            .field("name", &self.table.name)
            .field("numbered", &self.last_sequence())
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
