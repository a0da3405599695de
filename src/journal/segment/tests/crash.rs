//! Lives that end at any disk operation, by a kill or a power cut, and go on; held against the simplest thing that could
//! be right: what was acknowledged, and what was tried.

use std::collections::BTreeMap;

use super::*;
use crate::mirror::durable::Verdict;

const CHILDREN: usize = 3;

/// What must be so after any crash, as far as that is known.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The last change that was acknowledged, and the last that was tried.
    last: (u64, u64),
    children: [ChildModel; CHILDREN],
    /// Outcomes that were acknowledged.
    exceptions: BTreeMap<u64, Verdict>,
    released: u64,
}

#[derive(Clone, Debug)]
struct ChildModel {
    /// What is on record for good that it has confirmed ...
    recorded: u64,
    /// ... what its lane has put into its slot ...
    put: u64,
    /// ... and what it may count as having confirmed.
    highest: u64,
    /// What it may have been sent.
    begun: u64,
    /// The standing on record, and one that was tried.
    standing: (Standing, Standing),
}

impl Default for ChildModel {
    fn default() -> Self {
        Self { recorded: 0, put: 0, highest: 0, begun: 0, standing: (Standing::Live, Standing::Live) }
    }
}

/// One journal's life.
struct Life {
    disk: Simulated,
    opened: Option<Opened>,
    model: Model,
    /// Has the power been cut since it was open last? If not, the kernel has kept the slots.
    power_was_cut: bool,
    chance: u64,
}

/// The disk has stopped.
struct Stopped;

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            disk: Simulated::new(seed),
            opened: None,
            model: Model::default(),
            power_was_cut: false,
            chance: seed ^ 0x5eed,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        // A linear congruence; the low bits are the worst.
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % bound
    }

    fn open(&mut self) -> Result<(), Stopped> {
        match open_on(&options(), Arc::new(self.disk.clone()), false) {
            Ok(opened) => {
                self.opened = Some(opened);
                Ok(())
            }
            Err(error) if self.disk.is_stopped() => {
                assert!(matches!(error, OpenError::Io { .. }), "{error}");
                Err(Stopped)
            }
            Err(error) => panic!("a crash does no damage: {error}"),
        }
    }

    /// Something happens.
    fn step(&mut self) -> Result<(), Stopped> {
        match self.below(12) {
            0..=5 => {
                let changes = self.below(6) + u64::from(self.below(8) == 0) * 20;
                self.commit(changes)
            }
            6..=8 => self.lane(),
            9 => {
                let lowest = self.model.children.iter().map(|child| child.put).min().unwrap_or(0);
                self.model.released = self.model.released.max(lowest);
                self.opened.as_mut().expect("open").journal.release(lowest);
                if self.disk.is_stopped() { Err(Stopped) } else { Ok(()) }
            }
            10 => self.decide(),
            _ => {
                // A clean end.
                self.opened = None;
                self.open()?;
                self.check();
                Ok(())
            }
        }
    }

    fn commit(&mut self, count: u64) -> Result<(), Stopped> {
        let first = self.model.last.0 + 1;
        let changes: Vec<Stored> = (first..first + count).map(|sequence| stored(sequence, size(sequence))).collect();
        let mut marks = vec![];
        let moved: Vec<(usize, u64)> =
            self.model.children.iter().enumerate().map(|(place, child)| (place, child.put)).collect();
        if self.below(2) == 0 {
            marks.push(Mark::Applied(moved.clone()));
        }
        let mut outcome = None;
        if self.below(4) == 0 && first > 1 {
            let sequence = 1 + self.below(first - 1);
            let verdict = Verdict::Agreed(Class::Rejected);
            outcome = Some((sequence, verdict));
            marks.push(Mark::Outcome { sequence, verdict, condemned: vec![] });
        }
        self.model.last.1 = first + count - 1;
        self.put(&marks, &changes)?;
        self.model.last.0 = self.model.last.1;
        self.model.exceptions.extend(outcome);
        if let Some(Mark::Applied(_)) = marks.first() {
            for (place, applied) in moved {
                self.model.children[place].recorded = self.model.children[place].recorded.max(applied);
            }
        }
        Ok(())
    }

    fn put(&mut self, marks: &[Mark], changes: &[Stored]) -> Result<(), Stopped> {
        let done = commit(&mut self.opened.as_mut().expect("open").journal, marks, changes);
        match done {
            Ok(()) => Ok(()),
            Err(_) if self.disk.is_stopped() => Err(Stopped),
            Err(failed) => panic!("the disk works: {failed:?}"),
        }
    }

    /// A child confirms, and is sent the next.
    fn lane(&mut self) -> Result<(), Stopped> {
        let place = self.below(CHILDREN as u64) as usize;
        let sync = self.below(4) == 0;
        let last = self.model.last.0;
        let child = &mut self.model.children[place];
        let applied = (child.put + 2).min(last);
        let slot = Slot { applied, begun: (applied + 1).min(last).max(child.begun) };
        child.highest = child.highest.max(applied);
        match self.opened.as_ref().expect("open").slots.put(place, slot, sync) {
            Ok(()) => {
                (child.put, child.begun) = (applied, slot.begun);
                Ok(())
            }
            Err(_) if self.disk.is_stopped() => Err(Stopped),
            Err(failed) => panic!("the disk works: {failed:?}"),
        }
    }

    /// A child loses its place, or is attached again.
    fn decide(&mut self) -> Result<(), Stopped> {
        let place = self.below(CHILDREN as u64) as usize;
        let (at, child) = (self.model.last.0, &mut self.model.children[place]);
        let mark = if child.standing.0 == Standing::NeedsReseed {
            (child.standing.1, child.highest) = (Standing::Live, at);
            Mark::Attach { child: place, from: child.put, at }
        } else {
            child.standing.1 = Standing::NeedsReseed;
            Mark::Standing { child: place, standing: Standing::NeedsReseed, why: "a test".to_owned() }
        };
        let is_attach = matches!(mark, Mark::Attach { .. });
        self.put(&[mark], &[])?;
        let child = &mut self.model.children[place];
        child.standing.0 = child.standing.1;
        if is_attach {
            (child.recorded, child.put) = (at, at);
            child.begun = child.begun.max(at);
        }
        Ok(())
    }

    /// Whether a crash, after which the journal is open again, has left what it must.
    fn check(&mut self) {
        let opened = self.opened.as_ref().expect("open");
        let (model, resume) = (&self.model, &opened.resume);
        assert!((model.last.0..=model.last.1).contains(&resume.last), "{} is not within {:?}", resume.last, model.last);
        let read = read_all(&opened.readers, resume.oldest);
        let expected: Vec<Stored> =
            (resume.oldest..=resume.last).map(|sequence| stored(sequence, size(sequence))).collect();
        assert_eq!(read, expected, "changes {} to {}", resume.oldest, resume.last);
        assert!(resume.oldest <= model.released + 1, "nothing is trimmed that was not released");
        let furthest = model.children.iter().map(|child| child.put).max().unwrap_or(0);
        assert!(
            resume.acknowledged >= furthest && resume.acknowledged <= resume.last,
            "{} of {furthest}",
            resume.acknowledged
        );
        let floor = resume.children.iter().map(|child| child.applied).min().unwrap_or(0);
        for (place, (child, was)) in resume.children.iter().zip(&model.children).enumerate() {
            let applied = if self.power_was_cut { was.recorded } else { was.recorded.max(was.put) }..=was.highest;
            assert!(applied.contains(&child.applied), "child {place}: {child:?} and {was:?}");
            assert!(child.begun >= was.begun.min(resume.last), "child {place}: {child:?} and {was:?}");
            assert!([was.standing.0, was.standing.1].contains(&child.standing), "child {place}: {child:?} and {was:?}");
            if child.standing == Standing::Live {
                assert!(child.applied + 1 >= resume.oldest, "child {place} needs what is gone: {child:?}");
            }
            let judged =
                resume.judged.iter().any(|(after, through)| *after <= child.attached && child.applied <= *through);
            assert!(judged || child.attached == child.applied, "{child:?} within {:?}", resume.judged);
        }
        let pinned = resume.children.iter().filter(|child| child.standing != Standing::NeedsReseed);
        let lowest = pinned.map(|child| child.applied).min().unwrap_or(resume.last).max(floor).max(resume.oldest - 1);
        let known: BTreeMap<u64, Verdict> = resume.exceptions.iter().copied().collect();
        for (sequence, verdict) in model.exceptions.range(lowest + 1..) {
            assert_eq!(known.get(sequence), Some(verdict), "the outcome of {sequence} is lost");
        }
        let live: Vec<u64> = (lowest + 1..=resume.last).filter(|sequence| sequence.is_multiple_of(10)).collect();
        assert!(resume.live.ends_with(&live), "{:?} ends with {live:?}", resume.live);
        // What is there now is what counts.
        self.power_was_cut = false;
        self.model.last = (resume.last, resume.last);
        for (child, was) in resume.children.iter().zip(&mut self.model.children) {
            *was = ChildModel {
                recorded: child.applied,
                put: child.applied,
                highest: child.applied,
                begun: child.begun,
                standing: (child.standing, child.standing),
            };
        }
    }

    fn crash(&mut self, power: bool) {
        // The old life's handles die with it.
        if power {
            self.disk.cut_power();
        } else {
            self.disk.kill();
        }
        self.power_was_cut |= power;
        self.opened = None;
    }

    /// Lives until the disk stops, or for so many steps.
    fn live(&mut self, steps: u64) -> Result<(), Stopped> {
        if self.opened.is_none() {
            self.open()?;
            self.check();
        }
        for _ in 0..steps {
            self.step()?;
        }
        Ok(())
    }
}

/// Sizes that fill segments of 8 KiB unevenly.
fn size(sequence: u64) -> usize {
    [10, 700, 0, 130, 1800, 60][(sequence % 6) as usize]
}

#[test]
fn a_life_may_end_at_any_operation() {
    const STEPS: u64 = 24;
    for seed in [1, 2] {
        let mut whole = Life::new(seed);
        assert!(whole.live(STEPS).is_ok());
        let ops = whole.disk.ops();
        assert!(ops > 60, "the life is worth ending: {ops}");
        for stop in 1..=ops {
            for power in [false, true] {
                println!("seed {seed}, operation {stop}, power {power}");
                let mut life = Life::new(seed);
                life.disk.stop_after(stop);
                let ended = life.live(STEPS).is_err();
                assert!(ended || stop == ops, "seed {seed}, operation {stop}");
                life.crash(power);
                let again = life.live(5).is_ok();
                assert!(again, "seed {seed}, operation {stop}, power {power}");
                life.crash(!power);
                assert!(life.live(0).is_ok());
            }
        }
    }
}

#[test]
fn lives_with_many_crashes() {
    for seed in 100..140 {
        println!("seed {seed}");
        let mut life = Life::new(seed);
        for _ in 0..12 {
            let stop = 1 + life.below(120);
            life.disk.stop_after(stop);
            // A crash may come while it recovers, too.
            _ = life.live(30);
            let power = life.below(2) == 0;
            life.crash(power);
        }
        assert!(life.live(20).is_ok());
    }
}
