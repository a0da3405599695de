//! One change on its way: what is sent, its ticket once it has one, and the table of what became of it at each child.
//!
//! Not the answers' octets: these belong to [`Waiting`], the client's half, so that they go when the client has been
//! answered and not when the ring forgets the change. Not a judge either: [`ack`](super::ack) is.
//!
//! # Who writes what
//!
//! Each cell is written once, by one: the admission by whoever is first (the sequencer; the client's task, which gives
//! up; of a live change any lane that withdraws before it is numbered), a child's row by its lane, `agreed` by whoever
//! first sees that all awaited children have ended. So any two threads that see a cell see the same. Of a change that
//! comes back from the record the admission, and `agreed` where the record tells it, are set from the start.
//!
//! Two threads that each write a cell and then read the other's must not miss each other: two lanes that end the last
//! two rows (one has to see that all have ended), and a lane that records an answer while another thread sets `agreed`
//! (one has to see that the child diverged). All of them write, then count up `version` (AcqRel), then read. Counts of
//! one word are ordered, and the later one sees all that was written before the earlier.

use std::fmt;
use std::sync::Weak;

use bytes::Bytes;

use super::Wake;
use super::ack::{Class, End, Level, Report, vote};
use super::budget::{Budget, Charge};
use super::durable::{ClientKey, OnUnknown, Stored, Verdict};
use crate::action::UnknownOutcome;
use crate::error::Fault;
use crate::route::ChildSet;
use crate::sync::{Arc, AtomicBool, AtomicU64, OnceLock, Ordering};
use crate::time::Time;

/// What a client's task hands in.
#[derive(Debug)]
pub struct Order {
    /// The whole request head, as children get it.
    pub head: Bytes,
    /// The whole body, unframed; the head declares its length.
    pub body: Bytes,
    /// What may be done when no answer comes.
    pub unknown_outcome: UnknownOutcome,
    /// Statuses that on a re-send mean "applied before".
    pub applied: Arc<[u16]>,
    /// The action's name, for messages.
    pub name: Box<str>,
    /// A live change: every child must take it now, or none does.
    pub live: bool,
    /// What ends a doubt that all children share.
    pub on_unknown: OnUnknown,
    /// By what a repeated request is known.
    pub key: Option<Arc<ClientKey>>,
    /// How many children the group has.
    pub children: usize,
    /// When the request was complete.
    pub submitted: Time,
    /// The memory of head and body.
    pub charge: Charge,
}

/// A change, shared by the ring, the lanes and the client's task.
pub struct Change {
    /// The whole request head, as children get it.
    pub head: Bytes,
    /// The whole body, unframed.
    pub body: Bytes,
    /// What may be done when no answer comes.
    pub unknown_outcome: UnknownOutcome,
    /// Statuses that on a re-send mean "applied before".
    pub applied: Arc<[u16]>,
    /// The action's name, for messages.
    pub name: Box<str>,
    /// A live change: it waits for no child and is sent to each at most once.
    pub live: bool,
    /// What ends a doubt that all children share.
    pub on_unknown: OnUnknown,
    /// By what a repeated request is known.
    pub key: Option<Arc<ClientKey>>,
    /// When the request was complete.
    pub submitted: Time,
    admission: OnceLock<Admission>,
    /// One a child.
    rows: Box<[Row]>,
    /// The class that won; set once all awaited children have ended and one has answered.
    agreed: OnceLock<Class>,
    /// Counts up between each write and the reading that follows it; see the header.
    version: AtomicU64,
    /// What has won is on record, where it has to be. Set by the sequencer.
    recorded: AtomicBool,
    /// It could not be put on record: nobody was sent it, and it may be there all the same.
    unrecorded: AtomicBool,
    /// Some child is in doubt about it: its lane wants to know of every answer.
    doubted: AtomicBool,
    /// Every child that could answer is in doubt about it.
    doubt_is_shared: AtomicBool,
    /// Nobody was sent it, and nobody will be.
    withdrawn: bool,
    waiting: Weak<Waiting>,
    _charge: Charge,
}

/// Proof of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Rises with every promotion.
    pub epoch: u64,
    /// The how-manieth change of the epoch, from 1.
    pub sequence: u64,
    /// The children that were live when it was numbered: those the client waits for.
    pub awaited: ChildSet,
    /// The child that led the group then: its answer is preferred, and it breaks a tie.
    pub primary: usize,
}

/// What a child answered, kept for the client.
#[derive(Clone, Debug)]
pub struct Held {
    /// The raw response head.
    pub head: Bytes,
    /// The body, unframed.
    pub body: Bytes,
    /// Was the body longer than what is held?
    pub cut: bool,
}

/// The client's half of a change. While it lives, answers are kept.
pub struct Waiting {
    answers: Box<[OnceLock<Held>]>,
    origin: Arc<dyn Wake>,
}

/// What became of the request for a sequence.
#[derive(Clone, Debug)]
pub(super) enum Admission {
    Numbered(Ticket),
    /// With the children for whose sake, if it was for some.
    Refused(Fault, ChildSet),
}

/// What is known of the change at one child.
#[derive(Default)]
struct Row {
    /// Nanoseconds, plus one; 0: not yet. Written by the lane, again for each attempt before the first answer.
    in_flight_since: AtomicU64,
    /// How the client's wait for this child ended.
    ended: OnceLock<(End, Time)>,
    /// Its last word, which may come long after `ended`: status, class, when.
    answered: OnceLock<(u16, Class, Time)>,
}

// === impl Change ===

impl Change {
    /// A change that waits for its sequence, and the client's half of it. `origin` is woken when the decision about the
    /// answer may have changed.
    #[must_use]
    pub fn new(order: Order, origin: Arc<dyn Wake>) -> (Arc<Self>, Arc<Waiting>) {
        let answers = (0..order.children).map(|_| OnceLock::new()).collect();
        let waiting = Arc::new(Waiting { answers, origin });
        let change = Arc::new(Self {
            head: order.head,
            body: order.body,
            unknown_outcome: order.unknown_outcome,
            applied: order.applied,
            name: order.name,
            live: order.live,
            on_unknown: order.on_unknown,
            key: order.key,
            submitted: order.submitted,
            admission: OnceLock::new(),
            rows: (0..order.children).map(|_| Row::default()).collect(),
            agreed: OnceLock::new(),
            version: AtomicU64::new(0),
            recorded: AtomicBool::new(false),
            unrecorded: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            doubt_is_shared: AtomicBool::new(false),
            withdrawn: false,
            waiting: Arc::downgrade(&waiting),
            _charge: order.charge,
        });
        (change, waiting)
    }

    /// A change as it comes back from the record: awaited by nobody, and decided where `verdict` says so.
    pub(super) fn revived(stored: Stored, epoch: u64, children: usize, verdict: Option<Verdict>) -> Arc<Self> {
        let ticket = Ticket { epoch, sequence: stored.sequence, awaited: ChildSet::new(), primary: 0 };
        Arc::new(Self {
            head: stored.head,
            body: stored.body,
            unknown_outcome: stored.unknown_outcome,
            applied: stored.applied,
            name: stored.name,
            live: stored.live,
            on_unknown: stored.on_unknown,
            key: stored.key,
            submitted: Time::ZERO,
            admission: Admission::Numbered(ticket).into(),
            rows: (0..children).map(|_| Row::default()).collect(),
            agreed: match verdict {
                Some(Verdict::Agreed(class)) => class.into(),
                Some(Verdict::Withdrawn) | None => OnceLock::new(),
            },
            version: AtomicU64::new(0),
            recorded: AtomicBool::new(verdict.is_some()),
            unrecorded: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            doubt_is_shared: AtomicBool::new(false),
            withdrawn: verdict == Some(Verdict::Withdrawn),
            waiting: Weak::new(),
            // Bounded by what a lane reads ahead, not by the budget of those that arrive.
            _charge: Budget::none(),
        })
    }

    /// Its place in the order, once it has one.
    #[must_use]
    pub fn ticket(&self) -> Option<&Ticket> {
        match self.admission.get() {
            Some(Admission::Numbered(ticket)) => Some(ticket),
            Some(Admission::Refused(..)) | None => None,
        }
    }

    /// The children for whose sake it was refused.
    #[must_use]
    pub fn missing(&self) -> ChildSet {
        match self.admission.get() {
            Some(Admission::Refused(_, missing)) => *missing,
            Some(Admission::Numbered(_)) | None => ChildSet::new(),
        }
    }

    /// Octets of head and body.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// May it be sent again when it is not known whether it was carried out?
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        !self.live && matches!(self.unknown_outcome, UnknownOutcome::Idempotent)
    }

    /// Is there a client that an answer should be kept for? If not, its octets need not be held.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        self.waiting.strong_count() > 0
    }

    /// The class that won among the children, once one has.
    #[must_use]
    pub fn agreed(&self) -> Option<Class> {
        self.agreed.get().copied()
    }

    /// How the client's wait for `child` ended, and when.
    #[must_use]
    pub fn ended(&self, child: usize) -> Option<(End, Time)> {
        self.rows[child].ended.get().copied()
    }

    /// Is what has won on record? Only a change that somebody refused has to wait for it.
    pub(super) fn is_recorded(&self) -> bool {
        // Acquire pairs with `set_recorded`.
        self.recorded.load(Ordering::Acquire)
    }

    pub(super) fn set_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// Could it not be put on record?
    pub(super) fn is_unrecorded(&self) -> bool {
        self.unrecorded.load(Ordering::Acquire)
    }

    pub(super) fn set_unrecorded(&self) {
        self.unrecorded.store(true, Ordering::Release);
        self.wake_origin();
    }

    /// Is some child in doubt about it? To be asked after an answer was counted (`settle`); set before the doubt is.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    pub(super) fn set_doubted(&self) {
        self.doubted.store(true, Ordering::Release);
    }

    /// Is every child that could answer in doubt about it? Then what one of them turns out to have done says nothing of
    /// the others: each has to be resolved.
    pub(super) fn doubt_is_shared(&self) -> bool {
        self.doubt_is_shared.load(Ordering::Acquire)
    }

    pub(super) fn share_doubt(&self) {
        self.doubt_is_shared.store(true, Ordering::Release);
    }

    pub(super) const fn is_withdrawn(&self) -> bool {
        self.withdrawn
    }

    /// The child's last word, if it has one.
    pub(super) fn last_word(&self, child: usize) -> Option<(u16, Class)> {
        self.rows[child].answered.get().map(|(status, class, _)| (*status, *class))
    }

    /// Is it on its way to the child, or has it been?
    pub(super) fn was_sent(&self, child: usize) -> bool {
        self.rows[child].in_flight_since.load(Ordering::Relaxed) != 0
    }

    pub(super) fn sequence(&self) -> u64 {
        self.ticket().expect("a change in the ring is numbered").sequence
    }

    pub(super) fn awaits(&self, child: usize) -> bool {
        self.ticket().is_some_and(|ticket| ticket.awaited.contains(child))
    }

    pub(super) fn admission(&self) -> Option<&Admission> {
        self.admission.get()
    }

    /// False if it was admitted, refused or withdrawn before.
    pub(super) fn admit(&self, admission: Admission) -> bool {
        self.admission.set(admission).is_ok()
    }

    pub(super) fn set_in_flight(&self, child: usize, now: Time) {
        // Relaxed: a hint for the deadline, read by the client's task at its next look.
        self.rows[child].in_flight_since.store(now.as_nanos().saturating_add(1), Ordering::Relaxed);
    }

    /// Ends the client's wait for `child`, if nothing has yet.
    pub(super) fn end(&self, child: usize, end: End, now: Time) {
        let _ = self.rows[child].ended.set((end, now));
    }

    /// The child's last word.
    pub(super) fn answer(&self, child: usize, status: u16, class: Class, held: Option<Held>, now: Time) {
        if let (Some(held), Some(waiting)) = (held, self.waiting.upgrade()) {
            let _ = waiting.answers[child].set(held);
        }
        let _ = self.rows[child].answered.set((status, class, now));
        self.end(child, End::Answered { status, class }, now);
    }

    /// Tells the client's task to look.
    pub(super) fn wake_origin(&self) {
        if let Some(waiting) = self.waiting.upgrade() {
            waiting.origin.wake();
        }
    }

    /// When the first of the others answered.
    pub(super) fn sibling_answered_at(&self, child: usize) -> Option<Time> {
        let others = self.rows.iter().enumerate().filter(|(other, _)| *other != child);
        others.filter_map(|(_, row)| Some(row.answered.get()?.2)).min()
    }

    /// Sets `agreed` if it can be known: all awaited children have ended, and one, awaited or not, has answered. True
    /// if this call has set it.
    pub(super) fn settle(&self, level: Level) -> bool {
        let Some(ticket) = self.ticket() else {
            return false;
        };
        // Whoever ends a row comes here: of two that end at the same moment, the one that counts second sees both.
        self.version.fetch_add(1, Ordering::AcqRel);
        if self.agreed.get().is_some() || ticket.awaited.iter().any(|child| self.ended(child).is_none()) {
            return false;
        }
        let awaited = self.reports().filter_map(|report| match report.ended {
            Some((End::Answered { class, .. }, _)) => Some((report.child, class)),
            _ => None,
        });
        let late = self.answers();
        let agreed = vote(level, ticket.primary, awaited).or_else(|| vote(level, ticket.primary, late));
        let set = agreed.is_some_and(|class| self.agreed.set(class).is_ok());
        if set {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        set
    }

    /// The children that have answered, with the class of their last word.
    pub(super) fn answers(&self) -> impl Iterator<Item = (usize, Class)> + Clone + '_ {
        self.rows.iter().enumerate().filter_map(|(child, row)| Some((child, row.answered.get()?.1)))
    }

    /// The reports of the awaited children.
    pub(super) fn reports(&self) -> impl Iterator<Item = Report> + Clone + '_ {
        let awaited = self.ticket().map(|ticket| &ticket.awaited);
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(child, _)| awaited.is_some_and(|set| set.contains(*child))).map(|(child, row)| Report {
            child,
            in_flight_since: match row.in_flight_since.load(Ordering::Relaxed) {
                0 => None,
                nanos => Some(Time::from_nanos(nanos - 1)),
            },
            ended: row.ended.get().copied(),
        })
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change")
            .field("name", &self.name)
            .field("admission", &self.admission.get())
            .field("agreed", &self.agreed.get())
            .finish_non_exhaustive()
    }
}

// === impl Ticket ===

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

// === impl Waiting ===

impl Waiting {
    /// What `child` answered, if it has and its answer was kept.
    #[must_use]
    pub fn answer(&self, child: usize) -> Option<&Held> {
        self.answers.get(child)?.get()
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("children", &self.answers.len()).finish_non_exhaustive()
    }
}
