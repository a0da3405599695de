//! The whole family in a small world: a sequencer, three lanes, toy children that fail in every way, clients, readers,
//! an operator who also takes children out and puts new ones in. Every seed is one story; everybody moves only when woken or when the time has come that they named, so
//! that a wake which is missing shows.
//!
//! What must hold, always:
//!
//! - first deliveries at a child form the group's order without a hole, unless the operator attached it;
//! - a repeated delivery stands next to its first; one that may not be repeated is not;
//! - a child that may serve reads has everything that any client was told had succeeded;
//! - a child says that it applied nothing which it did not, save what all refused;
//! - a live change is sent to each child at most once, to all that are awaited or to the child's shame, and to none at all
//!   if its client was refused; children that go on behind it have all carried it out, or none has.
//!
//! Half of the stories have a journal, and in these the process is killed at any moment, the power is cut, commits fail;
//! then also:
//!
//! - whatever a client was told of is on record, and no child was sent what is not;
//! - a child goes on where it was; only a power cut makes it be sent again what it had, and nothing that may not be.
//!
//! At the end, when all is well again: every client was told something, all children are live and the same.
//!
//! `ANTIPHON_SEEDS=5000` tells more stories. One that fails prints its seed, and `ANTIPHON_SEED` begins with it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::durable::Reader as _;
use super::model::Model;
use super::testing::{Bell, Like, at_ms, change_with, group_from, kept_by, live_change_with};
use super::{Change, Class, Decision, Do, End, Lane, Level, MirrorGroup, Resolve, Sequencer, Waiting};
use crate::action::UnknownOutcome;
use crate::error::Fault;
use crate::probe::{Action, Failure};
use crate::route::{Admin, Identity, Outcome, Standing};
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

struct World {
    random: Random,
    now: Time,
    like: Like,
    model: Option<Model>,
    reader_bell: Arc<Bell>,
    /// Live changes on record that nobody was sent when the process was killed: nobody will be.
    withdrawn: BTreeSet<u64>,
    /// Delivered to each child before the last power cut: these may come again.
    cut_at: Vec<u64>,
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

/// What the stories together must have shown.
#[derive(Debug, Default)]
struct Seen {
    answered: usize,
    refused: usize,
    pending: usize,
    unknown: usize,
    no_child: usize,
    resends: usize,
    given_up: usize,
    diverged: usize,
    reseeds: usize,
    replays: usize,
    reads: usize,
    overruns: usize,
    /// Live changes that all answered alike; that not all did; that were refused; rows of such as were not sent.
    together: usize,
    partial: usize,
    not_queueable: usize,
    missed: usize,
    /// Changes that were refused because their group takes them only when complete.
    incomplete: usize,
    /// Doubts that the operator looked into.
    doubts: usize,
    /// Times that the process was killed, or the power cut; children in doubt after that; batches read of the past;
    /// changes that could not be put on record, or for which there was no room.
    kills: usize,
    cuts: usize,
    in_doubt: usize,
    past: usize,
    unrecorded: usize,
    full: usize,
    /// Changes that were taken before anybody had them; of these, while no child was there; and such as too few carried
    /// out for their quorum.
    accepted: usize,
    for_later: usize,
    too_few: usize,
    removed: usize,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
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
    fn new(seed: u64) -> Self {
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
        let model = (random.below(2) == 0).then(|| Model::new(like.children));
        let (sequencer_bell, reader_bell) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let durable = model.as_ref().map(|model| kept_by(model, false, reader_bell.clone()));
        let (group, sequencer) = group_from(like, sequencer_bell.clone(), durable);
        Self {
            now: at_ms(1_000),
            like,
            model,
            reader_bell,
            withdrawn: BTreeSet::new(),
            cut_at: vec![0; like.children],
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
    fn crash(&mut self, power_cut: bool) {
        let Some(model) = self.model.clone() else { return };
        for sequence in &self.told {
            assert!(*sequence <= model.last(), "{sequence} was told and is not on record");
        }
        self.sequencer_bell = Arc::new(Bell::default());
        let durable = kept_by(&model, power_cut, self.reader_bell.clone());
        let resumed_live = durable.resume.live.clone();
        for (child, resumed) in durable.resume.children.iter().enumerate() {
            let toy = &mut self.toys[child];
            if power_cut {
                self.cut_at[child] = toy.delivered;
            } else if resumed.standing == Standing::Live {
                let knows = resumed.applied <= toy.delivered && toy.delivered <= resumed.begun;
                assert!(knows, "{child} had {}, and {resumed:?} is known of it", toy.delivered);
            }
            self.seen.in_doubt += usize::from(resumed.begun > resumed.applied);
        }
        let (group, sequencer) = group_from(self.like, self.sequencer_bell.clone(), Some(durable));
        (self.group, self.sequencer) = (group, sequencer);
        (self.sequencer_heard, self.sequencer_at) = (0, Time::ZERO);
        for child in 0..self.lines.len() {
            self.lines[child] = Lines::new(&self.group, child);
        }
        for sequence in resumed_live {
            let was_sent = self.live_sent.iter().any(|change| change.sequence() == sequence);
            if !was_sent && !power_cut {
                self.withdrawn.insert(sequence);
            }
        }
        self.clients.clear();
        model.set_full(false);
        self.attached = self.group.table().shared.floor();
        self.seen.kills += usize::from(!power_cut);
        self.seen.cuts += usize::from(power_cut);
    }

    /// Hands the lanes what they want of the past, in small portions.
    fn bring(&mut self) -> bool {
        let Some(model) = &mut self.model else { return false };
        let wanted: Vec<_> = self.group.wanted().collect();
        for (child, from) in &wanted {
            let found = model.read(*from, 1 + self.random.below(4) as usize);
            self.seen.past += usize::from(found.is_ok());
            self.group.bring(*child, *from, found);
        }
        !wanted.is_empty()
    }

    /// One moment: something happens in the world, then everybody who has a reason moves until nobody has.
    fn turn(&mut self) {
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
            if self.sequencer_bell.rings() != self.sequencer_heard || self.now >= self.sequencer_at {
                self.sequencer_heard = self.sequencer_bell.rings();
                self.sequencer_at = self.sequencer.step(self.now).max(self.now + Duration::from_nanos(1));
                moved = true;
            }
            moved |= self.bring();
            for child in 0..self.lines.len() {
                moved |= self.run_lane(child);
            }
            moved |= self.run_clients();
            if !moved {
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
                    let delivery = Delivery { at: self.now + Duration::from_millis(delay), fate, expires };
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
                    let delivery = Delivery { at: self.now + Duration::from_millis(delay), fate, expires };
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
        if reaches {
            let again = toy.delivered == sequence || sequence <= self.cut_at[child];
            let next = (toy.delivered + 1..).find(|next| !self.withdrawn.contains(next));
            assert!(again || next == Some(sequence), "child {child} got {sequence} after {}", toy.delivered);
            if again {
                self.seen.resends += 1;
            }
            toy.delivered = toy.delivered.max(sequence);
            if !change.may_repeat() {
                assert!(toy.once_delivered.insert(sequence), "{sequence} was delivered to {child} twice");
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
        let delivery = Delivery { at: self.now + Duration::from_millis(delay), fate, expires: Time::NEVER };
        assert!(self.lines[child].change.replace(delivery).is_none(), "one change in flight");
    }

    /// Hands the lanes what has arrived.
    fn deliver(&mut self) {
        for line in &mut self.lines {
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
                    Fate::Answered(status) => line.lane.on_answered(self.now, status, None),
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
        let body: &[u8] = if self.random.chance(10) { b"refused" } else { b"taken" };
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
                let (on_record, full) = (self.random.chance(50), self.random.chance(50));
                match &self.model {
                    Some(model) if self.random.chance(30) => model.fail_next(on_record),
                    Some(model) => model.set_full(full),
                    None => {}
                }
            }
            606..640 if self.group.failed().is_some() => self.crash(false),
            640..642 if self.group.table().vacate(child, self.now) => {
                self.group.notice(child);
                self.seen.removed += 1;
            }
            642..660 => self.add(child),
            _ => {}
        }
    }

    fn online(&mut self, child: usize) {
        self.group.table().online(child, self.now);
        self.group.notice(child);
    }

    /// A server without data takes a vacant place.
    fn add(&mut self, child: usize) {
        let table = self.group.table();
        if !table.children[child].is_vacant() || !self.group.is_left(child) {
            return;
        }
        let identity =
            Identity { name: "new".into(), host: "127.0.0.1:81".into(), aliases: Arc::default(), location: None };
        table.occupy(child, identity, Vec::new(), 100, self.now);
        self.toys[child] = Toy { running: true, missing: self.told.clone(), ..Toy::default() };
        self.group.join(child);
    }

    /// The operator looks after children that cannot help themselves: copies a sibling's data and attaches.
    fn operate(&mut self) {
        let group = Arc::clone(&self.group);
        let children = &group.table().children;
        for child in children {
            // He looks at the server.
            let Some(sequence) = child.doubt() else { continue };
            let toy = &mut self.toys[child.index];
            let applied = toy.applied.contains(&sequence);
            if !applied {
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
            assert!(!why.is_empty(), "an operator is told why");
            self.toys[child].applied.clone_from(&truth);
            self.toys[child].missing = self.told.difference(&truth).copied().collect();
            self.toys[child].delivered = last;
            self.group.attach(child);
            self.attached = last;
            // The lane takes it before anything else is numbered: the operator keeps writers away meanwhile.
            assert!(self.run_lane(child));
        }
    }

    /// Any child that `select` could choose has all that any client was told; where no client is told anything, all that
    /// any child has shown.
    fn read(&mut self) {
        let floor = self.group.table().shared.floor();
        if self.group.level() == Level::Durable {
            let shown = self.group.table().children.iter().map(|child| child.applied()).max().unwrap_or(0);
            assert!(floor.max(self.attached) >= shown, "{shown} can be read, and the floor is {floor}");
        }
        for (child, toy) in self.group.table().children.iter().zip(&self.toys) {
            if child.is_live() && child.applied() >= floor {
                self.seen.reads += 1;
                assert!(toy.missing.is_empty(), "{} serves reads without {:?}", child.name(), toy.missing);
            }
        }
    }

    fn check(&self) {
        for (child, toy) in self.group.table().children.iter().zip(&self.toys) {
            if matches!(child.standing(), Standing::Live | Standing::Replaying) {
                let lacks = toy.missing.first().is_some_and(|first| *first <= child.applied());
                assert!(!lacks, "{} says more than it did", child.name());
            }
            assert!(child.applied() <= self.group.last_sequence());
        }
        for sequence in self.live_sent.iter().rev().take(20).map(|change| change.sequence()) {
            let behind = self.group.table().children.iter().zip(&self.toys);
            let behind = behind.filter(|(child, _)| child.is_live() && child.applied() >= sequence);
            let mut ran = behind.map(|(_, toy)| toy.applied.contains(&sequence));
            let first = ran.next();
            assert!(ran.all(|it| Some(it) == first), "live change {sequence}: not all that go on have it");
        }
    }

    /// All is well again. They must find together.
    fn heal(&mut self) {
        self.faults = false;
        if self.model.is_some() {
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
            assert!(self.told.is_subset(&toy.applied));
            assert!(toy.applied.is_disjoint(&self.refused));
        }
    }
}

fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn whatever_happens_they_stay_the_same() {
    let first: u64 = number_from("ANTIPHON_SEED", 0);
    let mut seen = Seen::default();
    for seed in first..first + number_from("ANTIPHON_SEEDS", 40) {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.turn();
        }
        world.heal();
        let its = world.seen;
        seen.answered += its.answered;
        seen.refused += its.refused;
        seen.pending += its.pending;
        seen.unknown += its.unknown;
        seen.no_child += its.no_child;
        seen.resends += its.resends;
        seen.given_up += its.given_up;
        seen.diverged += its.diverged;
        seen.reseeds += its.reseeds;
        seen.replays += its.replays;
        seen.reads += its.reads;
        seen.overruns += its.overruns;
        seen.together += its.together;
        seen.partial += its.partial;
        seen.not_queueable += its.not_queueable;
        seen.missed += its.missed;
        seen.incomplete += its.incomplete;
        seen.doubts += its.doubts;
        seen.kills += its.kills;
        seen.cuts += its.cuts;
        seen.in_doubt += its.in_doubt;
        seen.past += its.past;
        seen.unrecorded += its.unrecorded;
        seen.full += its.full;
        seen.accepted += its.accepted;
        seen.for_later += its.for_later;
        seen.too_few += its.too_few;
        seen.removed += its.removed;
    }
    println!("{seen:?}");
    let Seen {
        answered,
        refused,
        pending,
        unknown,
        no_child,
        resends,
        given_up,
        diverged,
        reseeds,
        replays,
        reads,
        overruns,
        together,
        partial,
        not_queueable,
        missed,
        incomplete,
        doubts,
        kills,
        cuts,
        in_doubt,
        past,
        unrecorded,
        full,
        accepted,
        for_later,
        too_few,
        removed,
    } = seen;
    for (what, count) in [
        ("answered", answered),
        ("refused", refused),
        ("pending", pending),
        ("unknown", unknown),
        ("no child", no_child),
        ("resends", resends),
        ("given up", given_up),
        ("diverged", diverged),
        ("reseeds", reseeds),
        ("replays", replays),
        ("reads", reads),
        ("overruns", overruns),
        ("together", together),
        ("partial", partial),
        ("not queueable", not_queueable),
        ("missed", missed),
        ("incomplete", incomplete),
        ("doubts", doubts),
        ("kills", kills),
        ("cuts", cuts),
        ("in doubt", in_doubt),
        ("past", past),
        ("unrecorded", unrecorded),
        ("full", full),
        ("accepted", accepted),
        ("accepted for later", for_later),
        ("too few for a quorum", too_few),
        ("removed", removed),
    ] {
        assert!(count > 0, "the stories never showed: {what}");
    }
}
