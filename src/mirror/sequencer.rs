//! The sequencer's pure step: takes changes out of the submission queues, numbers them, publishes them; publishes
//! probes when they are due. One a group; [`worker::sequencer`](crate::worker::sequencer) is the thread that steps.
//!
//! Numbering and publishing are two functions with a line of changes between them: what is published is numbered, and
//! with a journal *durable* too (`keeping.rs`). All that was submitted while one batch was being written is the next.
//!
//! A live change is numbered only when every lane is ready for it; until then nothing is ([`gate`](super::gate)).

mod keeping;

use std::collections::VecDeque;
use std::time::Duration;

use self::keeping::Keeper;

use super::change::Admission;
use super::courtesy::Courtesy;
use super::durable::{Journal, Mark};
use super::gate::{AWAY, Gathering, INCOMPLETE, LATE, LEFT};
use super::{Change, ENTRY_BYTES, Level, MirrorGroup, Read, Retention, Ticket, What, Writer};
use crate::crash;
use crate::error::Fault;
use crate::limits::{SEQUENCER_BATCH, SEQUENCER_STALL_TICK, SEQUENCER_TICK};
use crate::route::{ChildSet, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// Numbers a group's changes. The one producer of its ring.
pub struct Sequencer {
    group: Arc<MirrorGroup>,
    writer: Writer,
    /// The worker whose queue is looked at first.
    turn: usize,
    /// Taken from its queue and not yet numbered: there was no room.
    waiting: Option<Arc<Change>>,
    /// Since when there was none.
    stalled_since: Option<Time>,
    courtesy: Courtesy,
    /// The live change that the lanes get ready for. What the group's gate says.
    gathering: Option<Arc<Gathering>>,
    /// Numbered and not yet published, in order.
    numbered: VecDeque<Arc<Change>>,
    /// The sequence that was given last.
    given: u64,
    /// The sequence that was published last.
    published: u64,
    /// The journal, if there is one.
    keeper: Option<Keeper>,
}

/// What became of a change that was to be numbered.
enum Numbering {
    Numbered,
    Refused,
    Gathers,
    NoRoom { until: Time },
}

impl Sequencer {
    /// `first` is what the journal has to know at once.
    pub(super) fn new(
        group: Arc<MirrorGroup>,
        writer: Writer,
        catch_up_help: Duration,
        journal: Option<(Box<dyn Journal>, Retention)>,
        first: Vec<Mark>,
    ) -> Self {
        let courtesy = Courtesy::new(group.table.children.len(), catch_up_help);
        let keeper = journal.map(|(journal, retention)| Keeper::new(&group, journal, retention, first));
        let published = group.last_sequence();
        Self {
            group,
            keeper,
            writer,
            turn: 0,
            waiting: None,
            stalled_since: None,
            courtesy,
            gathering: None,
            numbered: VecDeque::new(),
            given: published,
            published,
        }
    }

    /// The group whose changes it numbers.
    #[must_use]
    pub fn group(&self) -> &Arc<MirrorGroup> {
        &self.group
    }

    /// Does all that is to be done now. Returns when it is to be called next, unless it is woken first; a moment that
    /// has passed means at once.
    #[must_use]
    pub fn step(&mut self, now: Time) -> Time {
        let before = self.published;
        let again = self.number_all(now);
        let again = again.min(self.commit(now)).min(self.show(now));
        if self.published != before {
            self.group.wake_lanes();
        }
        again.min(self.publish_probes(now))
    }

    /// Numbers what waits, workers in turn, up to a batch.
    fn number_all(&mut self, now: Time) -> Time {
        for _ in 0..SEQUENCER_BATCH {
            if let Some(until) = self.gather(now) {
                return until;
            }
            let Some(change) = self.waiting.take().or_else(|| self.take_submission()) else {
                return Time::NEVER;
            };
            match self.number(&change, now) {
                Numbering::Numbered | Numbering::Refused | Numbering::Gathers => {}
                Numbering::NoRoom { until } => {
                    self.waiting = Some(change);
                    return until;
                }
            }
        }
        now
    }

    fn take_submission(&mut self) -> Option<Arc<Change>> {
        let queues = &self.group.submissions;
        let first = self.turn;
        let found = (0..queues.len()).map(|i| (first + i) % queues.len()).find_map(|i| Some((i, queues[i].pop()?)));
        let (from, change) = found?;
        self.turn = (from + 1) % queues.len();
        Some(change)
    }

    fn number(&mut self, change: &Arc<Change>, now: Time) -> Numbering {
        let awaited = self.live();
        if awaited.is_empty() && self.group.level == Level::Durable && !change.live {
            return self.number_for_later(change, now);
        }
        let needs_all = change.live || self.group.level == Level::AllOrRefuse;
        if awaited.is_empty() || (needs_all && awaited.len() < self.group.table.occupants()) {
            // At once, and without a sequence: nothing stays behind that the client was not told of.
            self.stalled_since = None;
            let is_in_doubt = self.group.table.children.iter().any(|child| child.is_live());
            let fault = match (needs_all, change.live) {
                // Live, and yet none takes it.
                (false, _) if is_in_doubt => Fault::OutcomeUnknown,
                (false, _) => Fault::NoChild,
                (true, true) => Fault::NotQueueable(AWAY),
                (true, false) => Fault::NotQueueable(INCOMPLETE),
            };
            self.group.refuse(change, fault, if needs_all { self.away() } else { ChildSet::new() });
            return Numbering::Refused;
        }
        if change.live {
            if !self.numbered.is_empty() {
                // Not on record yet, and so not in the ring: a lane would take itself for drained, and prove a connection
                // that the change before this one then goes on.
                return Numbering::NoRoom { until: now };
            }
            let gathering = Gathering::new(Arc::clone(change), awaited, now + self.group.live_wait);
            self.group.gate.store(Some(Arc::clone(&gathering)));
            self.gathering = Some(gathering);
            self.group.wake_lanes();
            return Numbering::Gathers;
        }
        if let Err(fault) = self.admit_to_journal(change, now) {
            self.group.refuse(change, fault, ChildSet::new());
            return Numbering::Refused;
        }
        if let Some(until) = self.no_room(&awaited, ENTRY_BYTES + change.bytes(), now) {
            return Numbering::NoRoom { until };
        }
        if !self.courtesy.admits(&self.group.table.children, now) {
            return Numbering::NoRoom { until: now + SEQUENCER_STALL_TICK };
        }
        self.admit(change, awaited, now)
    }

    /// Gives a place to a change that nobody can carry out now, as long as a child is left that will: one that comes back
    /// by itself, and that would still find everything that it has missed.
    fn number_for_later(&mut self, change: &Arc<Change>, now: Time) -> Numbering {
        self.stalled_since = None;
        let left = self.leaves_nobody(ENTRY_BYTES + change.bytes()).map_or(Ok(()), Err);
        if let Err(fault) = left.and_then(|()| self.admit_to_journal(change, now)) {
            self.group.refuse(change, fault, ChildSet::new());
            return Numbering::Refused;
        }
        self.admit(change, ChildSet::new(), now)
    }

    /// Would `bytes` more octets in the ring leave no child that can still be sent all that it lacks? Why, if so.
    fn leaves_nobody(&self, bytes: usize) -> Option<Fault> {
        let children = self.group.table.children.iter();
        let mut returning =
            children.filter(|child| matches!(child.standing(), Standing::Live | Standing::Replaying)).peekable();
        if returning.peek().is_none() {
            return Some(Fault::NoChild);
        }
        if self.keeper.is_some() {
            // What leaves the ring is read from the journal.
            return None;
        }
        let lost = match self.group.ring.read(self.writer.tail_after(bytes as u64)) {
            Read::Entry(oldest) => oldest.before(),
            Read::NotYet | Read::Overrun => self.published,
        };
        returning.all(|child| child.applied() < lost).then_some(Fault::Overloaded)
    }

    /// Looks how the lanes get ready. Returns until when to wait for them; `None` where nothing gathers any more.
    fn gather(&mut self, now: Time) -> Option<Time> {
        let gathering = Arc::clone(self.gathering.as_ref()?);
        let change = &gathering.change;
        let (away, unready) = (self.away(), gathering.unready());
        if !gathering.is_open() {
            // A lane has withdrawn, or the client.
        } else if !away.is_empty() {
            self.group.refuse(change, Fault::NotQueueable(LEFT), away);
        } else if unready.is_empty()
            && let Err(fault) = self.admit_to_journal(change, now)
        {
            self.group.refuse(change, fault, ChildSet::new());
        } else if unready.is_empty() {
            // All have drained, so that there is room in the ring. A lane that withdraws at this moment is first, or too late.
            self.admit(change, gathering.awaited, now);
        } else if now >= gathering.deadline {
            self.group.refuse(change, Fault::NotQueueable(LATE), unready);
        } else {
            return Some(gathering.deadline);
        }
        self.group.gate.store(None);
        self.gathering = None;
        None
    }

    /// Gives the change its place in the order and publishes it.
    fn admit(&mut self, change: &Arc<Change>, awaited: ChildSet, now: Time) -> Numbering {
        let group = &self.group;
        let sequence = self.given + 1;
        let primary = group.table.settle_primary();
        if !change.admit(Admission::Numbered(Ticket { epoch: group.epoch(), sequence, awaited, primary })) {
            // Its client has given up waiting, or a lane has withdrawn: the sequence goes to the next.
            return Numbering::Refused;
        }
        self.given = sequence;
        self.numbered.push_back(Arc::clone(change));
        match &mut self.keeper {
            Some(keeper) => keeper.on_numbered(change.bytes() as u64),
            // What stands between numbering and publishing would count against the room of the next.
            None => self.publish_all(now),
        }
        Numbering::Numbered
    }

    fn admit_to_journal(&mut self, change: &Change, now: Time) -> Result<(), Fault> {
        let Some(keeper) = &mut self.keeper else {
            return Ok(());
        };
        let bytes = change.bytes() as u64;
        let admitted = keeper.judge_backlog(&self.group, now).and_then(|()| keeper.admit(&self.group, bytes));
        if let (Err(fault), Some(keeping)) = (&admitted, self.group.keeping()) {
            keeping.refusals.on_refused(fault);
        }
        admitted
    }

    /// Until when to wait before `bytes` more octets are published: they would push something out of the ring that a
    /// live child has yet to get. `None`: go on.
    fn no_room(&mut self, live: &ChildSet, bytes: usize, now: Time) -> Option<Time> {
        if self.keeper.is_some() {
            // What is pushed out is read from the journal.
            return None;
        }
        let losers = self.losers(live, bytes);
        if losers == 0 {
            self.stalled_since = None;
            return None;
        }
        let since = *self.stalled_since.get_or_insert(now);
        if losers < live.len() && now >= since + self.group.deadline {
            // Slower than another by this much: it is on its own.
            return None;
        }
        Some(now + SEQUENCER_STALL_TICK)
    }

    /// How many of `live` have yet to get what `bytes` more octets would push out of the ring.
    fn losers(&self, live: &ChildSet, bytes: usize) -> usize {
        let ring = &self.group.ring;
        let tail = self.writer.tail_after(bytes as u64);
        if tail == ring.tail() {
            return 0;
        }
        let lost = ring.through(tail).expect("what is about to be pushed out is there");
        live.iter().filter(|child| self.group.child(*child).applied() < lost).count()
    }

    fn live(&self) -> ChildSet {
        let children = self.group.table.children.iter();
        children.filter(|child| child.takes_changes()).map(|child| child.index).collect()
    }

    fn away(&self) -> ChildSet {
        let children = self.group.table.occupied();
        children.filter(|child| !child.takes_changes()).map(|child| child.index).collect()
    }

    /// Publishes what is numbered.
    fn publish_all(&mut self, now: Time) {
        while let Some(change) = self.numbered.pop_front() {
            let sequence = change.sequence();
            assert_eq!(sequence, self.published + 1, "the order has no hole");
            self.published = sequence;
            self.publish(ENTRY_BYTES + change.bytes(), What::Change(Arc::clone(&change)), now);
            // Release: see `MirrorGroup::last_sequence`. Who sees it finds the change in the ring, or that it has left.
            self.group.published.store(sequence, Ordering::Release);
            crash::point("change.published");
            if self.group.level == Level::Durable {
                change.wake_origin();
            }
        }
    }

    fn publish(&mut self, bytes: usize, what: What, now: Time) {
        let ring = &self.group.ring;
        for position in ring.tail()..self.writer.tail_after(bytes as u64) {
            // Its lane cannot say any more that somebody waits for it in vain.
            if let Read::Entry(entry) = ring.read(position)
                && let What::Change(change) = &entry.what
            {
                self.group.end_open(change, now);
                if let Some(past) = &self.group.past {
                    past.on_leaving(change);
                }
            }
        }
        self.writer.publish(self.published, what);
    }

    /// Publishes the probes that are due. Returns when the next one is.
    fn publish_probes(&mut self, now: Time) -> Time {
        let group = Arc::clone(&self.group);
        let options = &group.table.probe;
        let seed = group.table.index as u64;
        let mut next = now + SEQUENCER_TICK;
        for child in &group.table.children {
            let Some(due) = child.next_probe(options, seed) else {
                continue;
            };
            if now < due {
                next = next.min(due);
            } else if self.keeper.is_none() && self.losers(&self.live(), ENTRY_BYTES) > 0 {
                next = next.min(now + SEQUENCER_STALL_TICK);
            } else if child.claim_probe(now, options, seed) {
                if self.live().is_empty() && self.leaves_nobody(ENTRY_BYTES).is_some() {
                    // It would push out what all of them wait for, and they may be away for long.
                    self.group.ask(child.index, now + options.timeout);
                } else {
                    self.publish_probe(child.index, now);
                }
            }
        }
        next
    }

    pub(super) fn publish_probe(&mut self, child: usize, now: Time) {
        let expires = now + self.group.table.probe.timeout;
        self.publish(ENTRY_BYTES, What::Probe { child, expires }, now);
        self.group.wake_lane(child);
    }
}

impl std::fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequencer").field("group", &self.group).field("given", &self.given).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
