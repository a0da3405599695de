//! The whole family in a small world: a sequencer, three lanes, toy children that fail in every way, clients, readers,
//! an operator who also takes children out and puts new ones in, and what keeps the changes: nothing, the model journal
//! ([`Model`]), or the real one over a simulated disk (`journal/segment/world.rs`). Every seed is one story; everybody
//! moves only when woken or when the time has come that they named, so that a wake which is missing shows.
//!
//! What must hold, always, by its number; a message that fails begins with it:
//!
//! - I1: what a client was told the place of is on record after any crash;
//! - I2: first deliveries at a child form the group's order without a hole, unless the operator attached it, and one
//!   place is the same request at every child;
//! - I3: no child is sent what is not on record for good;
//! - I4: a child that may serve reads has everything that any client was told had succeeded;
//! - I5: a repeated delivery stands next to its first, save after a power cut; one that may not be repeated is not;
//! - I6: no client waits for a child that has had its deadline while a sibling has answered, nor for one that is away;
//! - I7: what antiphon keeps is within its limits;
//! - I8: an epoch does not go back, and all that is numbered in one life is of one;
//! - I9: what a child that is not given up has yet to get is on record;
//! - I10: no child counts as having confirmed what it has not answered.
//!
//! And: a live change is sent to each child at most once, to all that are awaited or to the child's shame, and to none at
//! all if its client was refused; children that go on behind it have all carried it out, or none has. A kill makes a
//! child be sent nothing again but the last; only a power cut does, and nothing that may not be.
//!
//! At the end, when all is well again: every client was told something, all children are live and the same.
//!
//! `ANTIPHON_SEEDS=5000` tells more stories in each test. One that fails prints its seed; `ANTIPHON_SEED` begins with it.

mod checks;
mod seen;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

pub(crate) use self::seen::Seen;
pub(crate) use self::store::Store;
use super::model::Model;
use super::testing::{Bell, Like, at_ms, change_with, group_on, live_change_with};
use super::{Change, Class, Decision, Do, End, Lane, Level, MirrorGroup, Resolve, Sequencer, Waiting};
use crate::action::UnknownOutcome;
use crate::error::Fault;
use crate::probe::{Action, Failure};
use crate::route::{Admin, Child, Identity, Outcome, Policy, Standing, testing};
use crate::sync::Arc;
use crate::time::Time;

/// A server that keeps the sequences it has applied.
#[derive(Debug, Default)]
struct Toy {
    running: bool,
    applied: BTreeSet<u64>,
    /// Told to a client as done, and not applied here.
    missing: BTreeSet<u64>,
    /// The last sequence whose octets came, and the highest before the operator's last attach.
    delivered: u64,
    once_delivered: BTreeSet<u64>,
    /// What came up to here before the power was cut, or while it was no member: it may come again.
    cut_at: u64,
    /// The last sequence that it has answered, or that an operator has vouched for.
    answered: u64,
}

/// What happens to one request, decided when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered(u16),
    NoConnection,
    /// The connection ended; nothing, or something, had left.
    Ended {
        octets_left: bool,
    },
    Never,
}

struct Delivery {
    /// Of the change; 0 for what is none.
    sequence: u64,
    at: Time,
    fate: Fate,
    expires: Time,
}

struct Lines {
    lane: Lane,
    bell: Arc<Bell>,
    heard: u64,
    wake_at: Time,
    change: Option<Delivery>,
    probe: Option<Delivery>,
    proof: Option<Delivery>,
}

struct Client {
    change: Arc<Change>,
    _waiting: Arc<Waiting>,
    bell: Arc<Bell>,
    heard: u64,
    look_at: Time,
}

/// One story.
pub(crate) struct World {
    random: Random,
    now: Time,
    like: Like,
    store: Option<Box<dyn Store>>,
    /// Who stands at each place, or stood there last.
    names: Vec<Box<str>>,
    /// Names that were given.
    named: u64,
    /// Children that were taken out.
    former: Vec<(Box<str>, Toy)>,
    reader_bell: Arc<Bell>,
    /// Live changes on record that nobody was sent when the process was killed: nobody will be.
    withdrawn: BTreeSet<u64>,
    /// The highest place that a client was told of, or a child was sent.
    promised: u64,
    /// What came with each sequence that any child was sent.
    bodies: BTreeMap<u64, Bytes>,
    /// Changes so far.
    submitted: u64,
    group: Arc<MirrorGroup>,
    sequencer: Sequencer,
    sequencer_bell: Arc<Bell>,
    sequencer_heard: u64,
    sequencer_at: Time,
    toys: Vec<Toy>,
    lines: Vec<Lines>,
    clients: Vec<Client>,
    /// Sequences that a client was told had succeeded.
    told: BTreeSet<u64>,
    /// Sequences that every child refuses.
    refused: BTreeSet<u64>,
    /// Live changes that were sent to somebody.
    live_sent: Vec<Arc<Change>>,
    /// The last sequence at an attach: a child that is attached has not shown what it is said to have.
    attached: u64,
    faults: bool,
    seen: Seen,
}

/// Chance, from a seed.
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

impl Lines {
    fn new(group: &Arc<MirrorGroup>, child: usize) -> Self {
        let bell = Arc::new(Bell::default());
        let lane = Lane::new(Arc::clone(group), child, bell.clone());
        Self { lane, bell, heard: 0, wake_at: Time::ZERO, change: None, probe: None, proof: None }
    }
}

impl World {
    /// The story of a seed, with what `keep` makes of its chances.
    pub(crate) fn new(seed: u64, keep: impl FnOnce(&mut Random) -> Option<Box<dyn Store>>) -> Self {
        let mut random = Random(seed);
        let like = Like {
            children: 3,
            level: match random.below(9) {
                0..2 => Level::All,
                2..4 => Level::First,
                4 => Level::Quorum(2),
                5 => Level::Quorum(3),
                6..8 => Level::Durable,
                _ => Level::AllOrRefuse,
            },
            // Small enough to be overrun by a child that is away.
            slots: 1 << (4 + random.below(6)),
            bytes: 1 << 20,
        };
        let mut store = keep(&mut random);
        let names: Vec<Box<str>> = ["a", "b", "c"].map(Into::into).into();
        let (sequencer_bell, reader_bell) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let durable = store.as_mut().map(|store| store.start(&names, reader_bell.clone()).expect("a disk that works"));
        let (group, sequencer) = group_on(table_of(&names), like, sequencer_bell.clone(), durable);
        Self {
            now: at_ms(1_000),
            like,
            store,
            names,
            named: 0,
            former: Vec::new(),
            reader_bell,
            withdrawn: BTreeSet::new(),
            promised: 0,
            bodies: BTreeMap::new(),
            submitted: 0,
            sequencer,
            sequencer_bell,
            sequencer_heard: 0,
            sequencer_at: Time::ZERO,
            toys: (0..like.children).map(|_| Toy { running: true, ..Toy::default() }).collect(),
            lines: (0..like.children).map(|child| Lines::new(&group, child)).collect(),
            clients: Vec::new(),
            told: BTreeSet::new(),
            refused: BTreeSet::new(),
            live_sent: Vec::new(),
            attached: 0,
            faults: true,
            seen: Seen::default(),
            group,
            random,
        }
    }

    /// antiphon ends without a word, and is started again. What was under way to the children has arrived, or has not.
    fn crash(&mut self, mut power_cut: bool) {
        let Some(mut store) = self.store.take() else { return };
        let epoch = self.group.epoch();
        self.clients.clear();
        let children = self.reconfigure(store.knows_names());
        self.sequencer_bell = Arc::new(Bell::default());
        let mut cut_now = power_cut;
        let durable = loop {
            store.end(cut_now);
            if self.faults {
                store.disturb_start(&mut self.random);
            }
            match store.start(&children, self.reader_bell.clone()) {
                Some(durable) => break durable,
                None => {
                    self.seen.starts_cut += 1;
                    cut_now = self.random.chance(50);
                    power_cut |= cut_now;
                }
            }
        };
        let resume = durable.resume.clone();
        assert!(
            self.promised <= resume.last,
            "I1, I3: {} was told or sent, and {} is on record",
            self.promised,
            resume.last
        );
        assert!(epoch <= resume.epoch, "I8: epoch {} follows {epoch}", resume.epoch);
        for (child, resumed) in resume.children.iter().enumerate().filter(|(child, _)| !children[*child].is_empty()) {
            let toy = &mut self.toys[child];
            if power_cut {
                toy.cut_at = toy.delivered;
            } else if resumed.standing == Standing::Live && toy.cut_at < toy.delivered {
                assert!(
                    toy.delivered <= resumed.begun,
                    "I5: {child} had {}, and {resumed:?} is known of it",
                    toy.delivered
                );
            }
            let is_unknown = resumed.standing == Standing::NeedsReseed && !store.knows_names();
            let counts = if is_unknown { 0 } else { resumed.applied };
            let unanswered = (toy.answered + 1..=counts).find(|sequence| !self.withdrawn.contains(sequence));
            assert_eq!(
                unanswered, None,
                "I10: {child} answered up to {}, and {resumed:?} is known of it",
                toy.answered
            );
            self.seen.in_doubt += usize::from(resumed.begun > resumed.applied);
        }
        for sequence in &resume.live {
            let was_sent = self.live_sent.iter().any(|change| change.sequence() == *sequence);
            let may_have_been =
                resume.children.iter().any(|child| child.attached < *sequence && *sequence <= child.begun);
            if !was_sent && !may_have_been && self.withdrawn.insert(*sequence) {
                self.seen.withdrawn += 1;
            }
        }
        let (group, sequencer) = group_on(table_of(&children), self.like, self.sequencer_bell.clone(), Some(durable));
        (self.group, self.sequencer, self.store) = (group, sequencer, Some(store));
        (self.sequencer_heard, self.sequencer_at) = (0, Time::ZERO);
        for child in 0..self.lines.len() {
            self.lines[child] = Lines::new(&self.group, child);
        }
        self.attached = self.group.table().shared.floor();
        self.seen.kills += usize::from(!power_cut);
        self.seen.cuts += usize::from(power_cut);
    }

    /// The children with which antiphon is started again. Where a child is its name, they may stand in another order,
    /// and others may have taken the places of those that were taken out.
    fn reconfigure(&mut self, knows_names: bool) -> Vec<Box<str>> {
        if !knows_names {
            return self.names.clone();
        }
        let mut members = self.group.table().members();
        if self.random.chance(20) {
            let (one, other) = (self.random.below(3) as usize, self.random.below(3) as usize);
            members.swap(one, other);
            self.names.swap(one, other);
            self.toys.swap(one, other);
            self.seen.reordered += usize::from(one != other);
        }
        for (child, name) in members.iter_mut().enumerate() {
            if name.is_empty() && self.random.chance(60) {
                *name = self.newcomer(child);
            }
        }
        members
    }

    /// A server takes a vacant place: one that was there before, as it was, or one without data.
    fn newcomer(&mut self, child: usize) -> Box<str> {
        let (name, toy) = if !self.former.is_empty() && self.random.chance(50) {
            let which = self.random.below(self.former.len() as u64) as usize;
            let (name, mut toy) = self.former.swap_remove(which);
            toy.cut_at = toy.delivered;
            toy.running = true;
            toy.missing = self.told.difference(&toy.applied).copied().collect();
            self.seen.came_back += 1;
            (name, toy)
        } else {
            self.named += 1;
            let toy = Toy { running: true, missing: self.told.clone(), ..Toy::default() };
            (format!("new-{}", self.named).into(), toy)
        };
        let gone = std::mem::replace(&mut self.toys[child], toy);
        self.former.push((std::mem::replace(&mut self.names[child], name.clone()), gone));
        name
    }

    /// Hands the lanes what they want of the past, in small portions.
    fn bring(&mut self) -> bool {
        let Some(store) = &mut self.store else { return false };
        let wanted: Vec<_> = self.group.wanted().collect();
        for (child, from) in &wanted {
            let found = store.read(*from, 1 + self.random.below(4) as usize);
            self.seen.past += usize::from(found.is_ok());
            self.group.bring(*child, *from, found);
        }
        !wanted.is_empty()
    }

    /// One moment: something happens in the world, then everybody who has a reason moves until nobody has.
    pub(crate) fn turn(&mut self) {
        let pause = match self.random.below(100) {
            0..60 => self.random.below(5),
            60..95 => self.random.below(200),
            _ => self.random.below(3_000),
        };
        self.now = self.now + Duration::from_millis(pause);
        if self.faults {
            self.fault();
        }
        self.deliver();
        self.settle();
        self.read();
        self.check();
    }

    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "they wake each other without end");
            let mut moved = false;
            let is_busy = self.random.chance(20);
            if !is_busy && (self.sequencer_bell.rings() != self.sequencer_heard || self.now >= self.sequencer_at) {
                self.sequencer_heard = self.sequencer_bell.rings();
                self.sequencer_at = self.sequencer.step(self.now).max(self.now + Duration::from_nanos(1));
                moved = true;
            }
            moved |= self.bring();
            for child in 0..self.lines.len() {
                moved |= self.run_lane(child);
            }
            moved |= self.run_clients();
            if !moved && !is_busy {
                return;
            }
        }
    }

    fn run_lane(&mut self, child: usize) -> bool {
        let line = &mut self.lines[child];
        if line.bell.rings() == line.heard && self.now < line.wake_at {
            return false;
        }
        line.heard = line.bell.rings();
        loop {
            // The connection ends at any moment, also between the commit and the lane's look at it.
            if self.lines[child].lane.is_proven() && self.faults && self.random.below(40) == 0 {
                self.lines[child].lane.on_proof_lost(self.now);
            }
            match self.lines[child].lane.next(self.now) {
                Do::Wait { until } => {
                    self.lines[child].wake_at = until.max(self.now + Duration::from_nanos(1));
                    return true;
                }
                Do::GiveUp => {
                    assert!(self.lines[child].change.take().is_some(), "only what is in flight can be given up");
                    self.seen.given_up += 1;
                }
                Do::Probe { expires, .. } => {
                    let good = self.toys[child].running && !(self.faults && self.random.chance(5));
                    let fate = if good { Fate::Answered(200) } else { Fate::NoConnection };
                    let delay = self.random.below(300);
                    let at = self.now + Duration::from_millis(delay);
                    let delivery = Delivery { sequence: 0, at, fate, expires };
                    // One of a child that was removed is dropped for that of the next.
                    self.lines[child].probe = Some(delivery);
                }
                Do::Prove { expires } => {
                    let fate = match self.random.below(100) {
                        _ if !self.toys[child].running => Fate::NoConnection,
                        0..3 if self.faults => Fate::Never,
                        3..6 if self.faults => Fate::NoConnection,
                        _ => Fate::Answered(200),
                    };
                    let delay = self.random.below(300);
                    let at = self.now + Duration::from_millis(delay);
                    let delivery = Delivery { sequence: 0, at, fate, expires };
                    self.lines[child].proof = Some(delivery);
                }
                Do::SendChange { change, attempt, .. } => self.send(child, &change, attempt),
            }
        }
    }

    fn send(&mut self, child: usize, change: &Arc<Change>, attempt: u32) {
        let ticket = change.ticket().expect("numbered");
        let sequence = ticket.sequence;
        let refuses = change.body.starts_with(b"refused");
        if refuses {
            self.refused.insert(sequence);
        }
        let honest = if refuses { 404 } else { 200 };
        let toy = &mut self.toys[child];
        let mut applies = !refuses;
        let mut delay = self.random.below(40);
        let fate = if !toy.running {
            applies = false;
            Fate::NoConnection
        } else if !self.faults {
            Fate::Answered(honest)
        } else {
            // A live change meets every fate; there are few of them.
            match self.random.below(if change.live { 400 } else { 4_000 }) {
                // Answer lost, or the child died before it applied.
                0..15 => Fate::Ended { octets_left: true },
                15..30 => {
                    applies = false;
                    Fate::Ended { octets_left: true }
                }
                30..45 => {
                    applies = false;
                    Fate::Ended { octets_left: false }
                }
                45..60 => {
                    applies = false;
                    Fate::NoConnection
                }
                // Slow, or for ever.
                60..75 => {
                    delay = 4_000 + self.random.below(12_000);
                    Fate::Answered(honest)
                }
                75..80 => Fate::Never,
                // Alone in its opinion.
                80..95 => {
                    applies = false;
                    Fate::Answered(500)
                }
                95..98 => {
                    applies = false;
                    Fate::Answered(409)
                }
                _ => Fate::Answered(honest),
            }
        };
        let reaches = !matches!(fate, Fate::NoConnection | Fate::Ended { octets_left: false });
        if let Some(store) = &self.store {
            let durable = store.extent().0;
            assert!(sequence <= durable, "I3: {child} is sent {sequence}, and {durable} is on record");
        }
        assert_eq!(ticket.epoch, self.group.epoch(), "I8: {sequence} is of another epoch");
        if reaches {
            self.promised = self.promised.max(sequence);
            let body = self.bodies.entry(sequence).or_insert_with(|| change.body.clone());
            assert_eq!(*body, change.body, "I2: {sequence} is not the same request at {child}");
            let again = toy.delivered == sequence || sequence <= toy.cut_at;
            let next = (toy.delivered + 1..).find(|next| !self.withdrawn.contains(next));
            assert!(again || next == Some(sequence), "I2, I5: {child} got {sequence} after {}", toy.delivered);
            if again {
                self.seen.resends += 1;
            }
            toy.delivered = toy.delivered.max(sequence);
            if !change.may_repeat() {
                assert!(toy.once_delivered.insert(sequence), "I5: {sequence} was delivered to {child} twice");
            }
            if applies {
                toy.applied.insert(sequence);
                toy.missing.remove(&sequence);
            }
            if !ticket.awaited.contains(child) {
                self.seen.replays += 1;
            }
        }
        if change.live {
            assert!(attempt == 1 && ticket.awaited.contains(child), "{sequence} is for all, and sent once");
            if reaches {
                self.live_sent.push(Arc::clone(change));
            }
        }
        assert!(attempt >= 1);
        if reaches {
            self.lines[child].lane.on_sent(self.now);
        }
        let at = self.now + Duration::from_millis(delay);
        let delivery = Delivery { sequence, at, fate, expires: Time::NEVER };
        assert!(self.lines[child].change.replace(delivery).is_none(), "one change in flight");
    }

    /// Hands the lanes what has arrived.
    fn deliver(&mut self) {
        for (line, toy) in self.lines.iter_mut().zip(&mut self.toys) {
            let due = |delivery: &mut Delivery| self.now >= delivery.at || self.now >= delivery.expires;
            if let Some(probe) = line.probe.take_if(due) {
                let good = matches!(probe.fate, Fate::Answered(_)) && self.now < probe.expires;
                line.lane.on_probe(self.now, if good { Ok(()) } else { Err(Failure::AnswerTimeout) });
                line.wake_at = self.now;
            }
            if let Some(proof) = line.proof.take_if(due) {
                let result = match proof.fate {
                    Fate::Answered(_) if self.now < proof.expires => Ok(()),
                    Fate::NoConnection => Err(Failure::Refused),
                    _ => Err(Failure::AnswerTimeout),
                };
                line.lane.on_proved(self.now, result);
                line.wake_at = self.now;
            }
            if let Some(change) = line.change.take_if(|change| change.fate != Fate::Never && due(change)) {
                match change.fate {
                    Fate::Answered(status) => {
                        toy.answered = toy.answered.max(change.sequence);
                        line.lane.on_answered(self.now, status, None);
                    }
                    Fate::NoConnection => line.lane.on_connect_failed(self.now, Failure::Refused),
                    Fate::Ended { octets_left } => line.lane.on_unanswered(self.now, octets_left, Failure::Closed),
                    Fate::Never => unreachable!("filtered"),
                }
                line.wake_at = self.now;
            }
        }
    }

    fn run_clients(&mut self) -> bool {
        let mut moved = false;
        let mut i = 0;
        while i < self.clients.len() {
            let client = &mut self.clients[i];
            if client.bell.rings() == client.heard && self.now < client.look_at {
                i += 1;
                continue;
            }
            moved = true;
            client.heard = client.bell.rings();
            let decision = self.group.decide(&client.change, self.now);
            let sequence = client.change.ticket().map_or(0, |ticket| ticket.sequence);
            if !matches!(decision, Decision::Wait { .. } | Decision::Unrecorded | Decision::Refused(_)) {
                self.promised = self.promised.max(sequence);
            }
            match decision {
                Decision::Wait { until } => {
                    assert!(until > self.now);
                    client.look_at = until;
                    i += 1;
                    continue;
                }
                Decision::Answer { status: 200, .. } => {
                    assert!(self.group.table().shared.floor() >= sequence);
                    self.told.insert(sequence);
                    for toy in &mut self.toys {
                        if !toy.applied.contains(&sequence) {
                            toy.missing.insert(sequence);
                        }
                    }
                    self.seen.answered += 1;
                    self.seen.together += usize::from(client.change.live);
                }
                Decision::Answer { .. } => self.seen.refused += 1,
                Decision::Partial => {
                    assert!(client.change.live);
                    self.seen.partial += 1;
                    let missed = |child: &usize| matches!(client.change.ended(*child), Some((End::Missed, _)));
                    self.seen.missed += (0..3).filter(missed).count();
                    if client.change.agreed() == Some(Class::Success) {
                        self.told.insert(sequence);
                        for toy in self.toys.iter_mut().filter(|toy| !toy.applied.contains(&sequence)) {
                            toy.missing.insert(sequence);
                        }
                    }
                }
                Decision::Unrecorded => {
                    assert!(self.group.failed().is_some());
                    self.seen.unrecorded += 1;
                }
                Decision::Accepted => {
                    assert_eq!(self.group.level(), Level::Durable);
                    let ticket = client.change.ticket().expect("numbered");
                    assert!(self.group.ring().through(self.group.ring().head()) >= Some(sequence), "published");
                    self.seen.accepted += 1;
                    self.seen.for_later += usize::from(ticket.awaited.is_empty());
                }
                Decision::Pending => {
                    self.seen.pending += 1;
                    self.seen.too_few += usize::from(client.change.agreed() == Some(Class::Success));
                }
                Decision::Unknown => self.seen.unknown += 1,
                Decision::Refused(fault) => {
                    assert!(client.change.ticket().is_none());
                    match fault {
                        Fault::NotQueueable(_) => {
                            assert!(!client.change.missing().is_empty(), "it says for whose sake");
                            let change = &client.change;
                            let is_sent = self.live_sent.iter().any(|sent| Arc::ptr_eq(sent, change));
                            assert!(!is_sent, "refused, and sent all the same");
                            self.seen.not_queueable += usize::from(change.live);
                            self.seen.incomplete += usize::from(!change.live);
                        }
                        Fault::JournalFull => self.seen.full += 1,
                        _ => self.seen.no_child += 1,
                    }
                }
            }
            self.clients.swap_remove(i);
        }
        moved
    }

    fn submit(&mut self) {
        let class = if self.random.chance(70) { UnknownOutcome::Idempotent } else { UnknownOutcome::Once };
        let word = if self.random.chance(10) { "refused" } else { "taken" };
        self.submitted += 1;
        // Some of them large enough to fill the record's files unevenly.
        let length = if self.store.is_some() { [0, 0, 90, 700][self.random.below(4) as usize] } else { 0 };
        let body = format!("{word} {:length$}", self.submitted);
        let body = body.as_bytes();
        let bell = Arc::new(Bell::default());
        let (change, waiting) = if self.random.chance(8) {
            live_change_with(&self.group, body, self.now, bell.clone())
        } else {
            change_with(&self.group, class, body, self.now, bell.clone())
        };
        let worker = self.random.below(2) as usize;
        if self.group.submit(worker, &change).is_ok() {
            self.clients.push(Client { change, _waiting: waiting, bell, heard: 0, look_at: self.now });
        }
    }

    fn fault(&mut self) {
        let child = self.random.below(3) as usize;
        match self.random.below(1_000) {
            0..400 => (0..=self.random.below(4)).for_each(|_| self.submit()),
            400..405 => self.toys[child].running = false,
            405..470 => self.toys[child].running = true,
            // Nobody can be told to go or come who is not there.
            470..500 if self.group.table().children[child].is_vacant() => {}
            470..472 => {
                self.group.table().children[child].set_admin(Admin::Offline, "by the operator", self.now);
                self.group.notice(child);
            }
            472..500 => self.online(child),
            500..520 => {
                // A read that fails, or one that is answered.
                let running = self.toys[child].running;
                let outcome = if running { Outcome::Answered(200) } else { Outcome::Failed(Failure::Refused) };
                let step = self.group.table().observe(child, outcome, Duration::from_millis(1), self.now);
                if step.action != Action::None {
                    self.group.notice(child);
                }
            }
            520..600 => self.operate(),
            600..603 => self.crash(false),
            603 => self.crash(true),
            604..606 => {
                if let Some(store) = &mut self.store {
                    store.disturb(&mut self.random);
                }
            }
            700..712 if self.store.as_ref().is_some_and(|store| store.knows_names()) => {
                if let Some(store) = &mut self.store {
                    store.disturb(&mut self.random);
                }
            }
            606..640 if self.is_dead() => {
                let power_cut = self.random.chance(30);
                self.crash(power_cut);
            }
            640..642 if !self.is_dead() && self.group.table().vacate(child, self.now) => {
                self.group.notice(child);
                self.seen.removed += 1;
            }
            642..660 if !self.is_dead() => self.add(child),
            _ => {}
        }
    }

    /// Does antiphon take nothing any more until it is started again?
    fn is_dead(&self) -> bool {
        self.group.failed().is_some() || self.store.as_ref().is_some_and(|store| store.is_stopped())
    }

    fn online(&mut self, child: usize) {
        self.group.table().online(child, self.now);
        self.group.notice(child);
    }

    /// A server takes a vacant place while antiphon runs.
    fn add(&mut self, child: usize) {
        let table = Arc::clone(self.group.table());
        if !table.children[child].is_vacant() || !self.group.is_left(child) {
            return;
        }
        let name = self.newcomer(child);
        let (name, host) = (&*name, "127.0.0.1:81".into());
        let identity = Identity { name: name.into(), host, aliases: Arc::default(), location: None };
        table.occupy(child, identity, Vec::new(), 100, self.now);
        if self.group.last_sequence() == 0 {
            self.group.join(child);
        } else {
            self.group.notice(child);
        }
    }

    /// The operator looks after children that cannot help themselves: copies a sibling's data and attaches.
    fn operate(&mut self) {
        if self.is_dead() {
            return;
        }
        let group = Arc::clone(&self.group);
        let children = &group.table().children;
        for child in children {
            // He looks at the server.
            let Some(sequence) = child.doubt() else { continue };
            let toy = &mut self.toys[child.index];
            let applied = toy.applied.contains(&sequence);
            if applied {
                toy.answered = toy.answered.max(sequence);
            } else {
                toy.once_delivered.remove(&sequence);
            }
            self.seen.doubts += 1;
            group.resolve(child.index, if applied { Resolve::Applied } else { Resolve::Lost });
        }
        let lost = |child: usize| {
            let standing = children[child].standing();
            !children[child].is_vacant() && matches!(standing, Standing::Diverged | Standing::NeedsReseed)
        };
        let last = group.last_sequence();
        let whole = (0..3).find(|child| children[*child].is_live() && children[*child].applied() == last);
        let source = whole.or_else(|| {
            // All are lost: whatever the operator chooses is the truth now.
            let all_lost = (0..3).all(|child| children[child].is_vacant() || lost(child));
            let there = |child: &usize| !children[*child].is_vacant();
            all_lost.then(|| (0..3).filter(there).max_by_key(|child| self.toys[*child].applied.len()).unwrap_or(0))
        });
        let Some(source) = source else {
            return;
        };
        let all = whole.is_none();
        let truth = self.toys[source].applied.clone();
        if all {
            // What was told and is not in the truth is the operator's loss; he knows that it was `once` or diverged.
            self.told.retain(|sequence| truth.contains(sequence));
            self.toys.iter_mut().for_each(|toy| toy.missing.retain(|sequence| truth.contains(sequence)));
        }
        for child in (0..3).filter(|child| lost(*child)) {
            let why = children[child].why().text.into_owned();
            self.seen.diverged += usize::from(children[child].standing() == Standing::Diverged);
            self.seen.reseeds += usize::from(children[child].standing() == Standing::NeedsReseed);
            self.seen.overruns += usize::from(why.contains("memory"));
            self.seen.dropped += usize::from(why.contains("is owed") || why.contains("of at most"));
            assert!(!why.is_empty(), "an operator is told why");
            assert!(!why.contains("not kept any more"), "I9: {child} {why}");
            self.toys[child].applied.clone_from(&truth);
            self.toys[child].missing = self.told.difference(&truth).copied().collect();
            self.toys[child].delivered = last;
            self.toys[child].answered = last;
            self.group.attach(child);
            self.attached = last;
            // The lane takes it before anything else is numbered: the operator keeps writers away meanwhile.
            assert!(self.run_lane(child));
        }
    }

    /// All is well again. They must find together.
    pub(crate) fn heal(&mut self) -> Seen {
        self.faults = false;
        if let Some(store) = &mut self.store {
            store.calm();
            self.crash(false);
        }
        for child in 0..3 {
            self.toys[child].running = true;
            // Its lane has left by then.
            self.settle();
            self.add(child);
            self.online(child);
        }
        let well = |world: &Self| {
            let children = &world.group.table().children;
            let last = world.group.last_sequence();
            world.clients.is_empty() && children.iter().all(|child| child.is_live() && child.applied() == last)
        };
        for _ in 0..6_000 {
            if well(self) {
                break;
            }
            self.turn();
            self.operate();
        }
        let shown: Vec<_> =
            self.group.table().children.iter().map(|child| (child.shown(), child.why(), child.applied())).collect();
        assert!(
            well(self),
            "never well again: {shown:?}, {} clients, {:#?}",
            self.clients.len(),
            self.lines.iter().map(|line| &line.lane).collect::<Vec<_>>()
        );
        for toy in &self.toys {
            assert_eq!(toy.applied, self.toys[0].applied, "the children differ");
            assert!(self.told.is_subset(&toy.applied), "I1: what was told is nowhere");
            assert!(toy.applied.is_disjoint(&self.refused));
        }
        std::mem::take(&mut self.seen)
    }
}

/// The children as they are configured.
fn table_of(names: &[Box<str>]) -> Arc<crate::route::GroupTable> {
    let child = |index: usize| match &*names[index] {
        "" => Child::vacant(index),
        name => Child::new(name, index, "127.0.0.1:80", 100, None),
    };
    let children = (0..names.len()).map(|index| Arc::new(child(index))).collect();
    Arc::new(testing::group_of(Policy::RoundRobin, children))
}

/// Tells the stories of these seeds, or of as many as `ANTIPHON_SEEDS` says. One in twenty is long.
pub(crate) fn tell(seeds: Range<u64>, world: impl Fn(u64) -> World) -> Seen {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("ANTIPHON_SEED").unwrap_or(seeds.start);
    let count = number("ANTIPHON_SEEDS").unwrap_or(seeds.end - seeds.start);
    let mut seen = Seen::default();
    for seed in first..first + count {
        println!("seed {seed}");
        let mut world = world(seed);
        for _ in 0..if seed.is_multiple_of(20) { 1_500 } else { 200 } {
            world.turn();
        }
        seen.add(&world.heal());
    }
    seen
}

/// What only the real journal shows.
const ON_FILES: &[&str] = &["starts_cut", "reordered", "came_back", "trimmed", "dropped"];

#[test]
fn whatever_happens_they_stay_the_same_in_memory() {
    let absent = ["kills", "cuts", "in_doubt", "past", "unrecorded", "full", "withdrawn"];
    tell(0..500, |seed| World::new(seed, |_| None)).assert_all_but(&[&absent, ON_FILES].concat());
}

#[test]
fn whatever_happens_they_stay_the_same_with_a_journal() {
    let model = |_: &mut Random| Some(Box::new(Model::new(3)) as Box<dyn Store>);
    tell(10_000..10_500, |seed| World::new(seed, model))
        .assert_all_but(&[&["overruns", "withdrawn"], ON_FILES].concat());
}
