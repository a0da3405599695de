//! Journals on both disks: what was committed is there after a start, and readable.

use std::path::PathBuf;
use std::time::Duration;

use super::disk::simulated::Simulated;
use super::*;
use crate::action::UnknownOutcome;
use crate::journal::record::ChangeRef;
use crate::mirror::ack::Class;
use crate::mirror::durable::{ClientKey, Journal as _, JournalFull, OnUnknown, ReadError, Stored, Verdict};
use crate::mirror::{Budget, Change, MirrorGroup, Order, Setup, Wake};
use crate::time::Time;

/// A directory that goes when the test does.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("antiphon-journal-{}-{name}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// Small segments, so that few changes fill one.
pub(super) fn options() -> Options {
    Options {
        segment_bytes: 8 * 1024,
        bytes_max: 1024 * 1024,
        reserve_bytes: 16 * 1024,
        force: true,
        epoch_if_new: 7,
        ..Options::new(PathBuf::from("/simulated"), "kv", "http", names(&["a", "b", "c"]))
    }
}

/// A change like no other of another sequence.
pub(super) fn stored(sequence: u64, body_bytes: usize) -> Stored {
    let body: Vec<u8> = (0..body_bytes).map(|at| (at as u64 * 31 + sequence * 7) as u8).collect();
    let key = (sequence % 3 == 1).then(|| {
        Arc::new(ClientKey { text: format!("key-{sequence}").into_bytes().into(), digest: [sequence as u8; 32] })
    });
    Stored {
        sequence,
        head: format!("PUT /items/{sequence} HTTP/1.1\r\nContent-Length: {body_bytes}\r\n\r\n").into(),
        body: body.into(),
        unknown_outcome: if sequence.is_multiple_of(2) { UnknownOutcome::Once } else { UnknownOutcome::Idempotent },
        on_unknown: if sequence.is_multiple_of(5) { OnUnknown::Assume } else { OnUnknown::Hold },
        applied: if sequence.is_multiple_of(4) { Arc::new([404, 410]) } else { Arc::new([]) },
        name: "put".into(),
        live: sequence.is_multiple_of(10),
        unix_ms: 1_700_000_000_000 + sequence,
        key,
    }
}

pub(super) fn commit(writer: &mut Writer, marks: &[Mark], changes: &[Stored]) -> Result<(), JournalFailed> {
    writer.commit_refs(marks, changes.iter().map(ChangeRef::from))
}

pub(super) fn read_all(readers: &Readers, from: u64) -> Vec<Stored> {
    let mut reader = readers.reader();
    let mut found: Vec<Stored> = Vec::new();
    loop {
        let next = found.last().map_or(from, |change| change.sequence + 1);
        let more = reader.read(next, 2000).expect("an undamaged journal");
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Runs a test on both disks; it is given what opens the journal.
fn on_both(name: &str, test: impl Fn(&dyn Fn(&Options) -> Result<Opened, OpenError>)) {
    let disk = Simulated::new(1);
    test(&|options| open_on(options, Arc::new(disk.clone()), false));
    let scratch = Scratch::new(name);
    test(&|options| open(&Options { directory: scratch.0.clone(), ..options.clone() }));
}

#[test]
fn a_first_start_knows_nothing_and_takes_what_comes() {
    on_both("first", |open| {
        let opened = open(&options()).expect("a new journal");
        assert_eq!((opened.resume.epoch, opened.resume.last, opened.resume.oldest), (7, 0, 1));
        assert_eq!(opened.resume.children.len(), 3);
        assert!(opened.resume.children.iter().all(|child| child.standing == Standing::Live && child.begun == 0));
        assert!(opened.readers.reader().read(1, 1000).expect("nothing yet").is_empty());
        assert!(matches!(open(&options()), Err(OpenError::Locked { .. })), "one process a journal");
    });
}

#[test]
fn what_was_committed_is_there_after_a_start_and_in_order() {
    on_both("round", |open| {
        let all: Vec<Stored> = (1..=200).map(|sequence| stored(sequence, (sequence % 50) as usize * 9)).collect();
        let mut opened = open(&options()).expect("a new journal");
        for batch in all.chunks(7) {
            opened.journal.room(1000).expect("room");
            commit(&mut opened.journal, &[], batch).expect("a disk that works");
        }
        assert!(opened.journal.space().segments > 3, "several segments: {:?}", opened.journal.space());
        assert_eq!(read_all(&opened.readers, 1), all);
        assert_eq!(read_all(&opened.readers, 150), all[149..]);
        drop(opened);
        let mut opened = open(&Options { epoch_if_new: 9, ..options() }).expect("what is there");
        assert_eq!((opened.resume.epoch, opened.resume.last, opened.resume.oldest), (7, 200, 1));
        assert_eq!(read_all(&opened.readers, 1), all);
        commit(&mut opened.journal, &[], &[stored(201, 5)]).expect("it goes on");
        assert_eq!(read_all(&opened.readers, 200), [stored(200, 0), stored(201, 5)]);
    });
}

#[test]
fn a_reader_that_waits_sees_what_comes() {
    on_both("waits", |open| {
        let mut opened = open(&options()).expect("a new journal");
        let mut reader = opened.readers.reader();
        for sequence in 1..=300 {
            assert!(reader.read(sequence, 1).expect("nothing yet").is_empty());
            commit(&mut opened.journal, &[], &[stored(sequence, 100)]).expect("a disk that works");
            assert_eq!(reader.read(sequence, 1).expect("it is there"), [stored(sequence, 100)]);
        }
        assert_eq!(reader.read(3, 1).expect("back"), [stored(3, 100)]);
    });
}

#[test]
fn marks_come_back_as_what_they_amount_to() {
    on_both("marks", |open| {
        let mut opened = open(&options()).expect("a new journal");
        let all: Vec<Stored> = (1..=20).map(|sequence| stored(sequence, 10)).collect();
        commit(&mut opened.journal, &[], &all).expect("a disk that works");
        let why = "it did not answer change 12 as the others did";
        let marks = [
            Mark::Applied(vec![(0, 15), (1, 12), (2, 8)]),
            Mark::Outcome { sequence: 12, verdict: Verdict::Agreed(Class::Rejected), condemned: vec![1] },
            Mark::Outcome { sequence: 7, verdict: Verdict::Agreed(Class::Failed), condemned: vec![] },
            Mark::Outcome { sequence: 20, verdict: Verdict::Withdrawn, condemned: vec![] },
        ];
        commit(&mut opened.journal, &marks, &[]).expect("a disk that works");
        opened.slots.put(0, Slot { applied: 16, begun: 17 }, false).expect("a slot");
        opened.slots.put(1, Slot { applied: 12, begun: 12 }, true).expect("a slot");
        opened.slots.put(2, Slot { applied: 8, begun: 9 }, false).expect("a slot");
        drop(opened);

        let opened = open(&options()).expect("what is there");
        let resume = &opened.resume;
        let places: Vec<_> = resume.children.iter().map(|child| (child.applied, child.begun, child.standing)).collect();
        assert_eq!(places, [(16, 17, Standing::Live), (12, 12, Standing::Diverged), (8, 9, Standing::Live)]);
        assert_eq!(resume.children[1].why, why);
        assert_eq!(resume.exceptions, [(12, Verdict::Agreed(Class::Rejected)), (20, Verdict::Withdrawn)]);
        assert_eq!(resume.judged, [(0, 16)]);
        assert_eq!(resume.live, [10, 20]);
        drop(opened);

        // Another order, a new child, one that is gone.
        let opened = open(&Options { children: names(&["c", "d", "a"]), ..options() }).expect("what is there");
        let places: Vec<_> =
            opened.resume.children.iter().map(|child| (child.applied, child.begun, child.standing)).collect();
        assert_eq!(places, [(8, 9, Standing::Live), (0, 20, Standing::NeedsReseed), (16, 17, Standing::Live)]);
        drop(opened);
        assert!(matches!(open(&Options { children: names(&["x"]), ..options() }), Err(OpenError::Foreign { .. })));
        assert!(matches!(open(&Options { mode: "aci".into(), ..options() }), Err(OpenError::Foreign { .. })));
    });
}

#[test]
fn places_are_left_and_taken_while_it_is_open() {
    on_both("places", |open| {
        let options = Options { children: names(&["a", "b", "", ""]), ..options() };
        let mut opened = open(&options).expect("a new journal");
        let all: Vec<Stored> = (1..=5).map(|sequence| stored(sequence, 10)).collect();
        commit(&mut opened.journal, &[], &all).expect("a disk that works");
        let marks = [
            Mark::Members(names(&["a", "", "c", ""])),
            // What is still said of `b` is late.
            Mark::Applied(vec![(0, 5), (1, 4)]),
            Mark::Attach { child: 2, from: 0, at: 3 },
        ];
        commit(&mut opened.journal, &marks, &[]).expect("a disk that works");
        opened.slots.put(2, Slot { applied: 4, begun: 5 }, false).expect("a slot");
        opened.slots.put(0, Slot { applied: 5, begun: 5 }, false).expect("a slot");
        drop(opened);
        let opened = open(&Options { children: names(&["c", "a", "", "d"]), ..options }).expect("what is there");
        let places: Vec<_> =
            opened.resume.children.iter().map(|child| (child.applied, child.begun, child.standing)).collect();
        let expected =
            [(4, 5, Standing::Live), (5, 5, Standing::Live), (5, 5, Standing::Live), (0, 5, Standing::NeedsReseed)];
        assert_eq!(places, expected);
        assert_eq!(opened.resume.children[0].attached, 3);
    });
}

#[test]
fn segments_are_large_enough_for_the_children() {
    let children: Vec<Box<str>> = (0..100).map(|child| format!("child-{child}").into()).collect();
    let error = open_on(&Options { children, ..options() }, Arc::new(Simulated::new(1)), false).err();
    assert!(error.expect("too small").to_string().contains("too small for 100 children"));
}

#[test]
fn what_is_released_is_gone_and_what_is_needed_stays() {
    on_both("release", |open| {
        let mut opened = open(&options()).expect("a new journal");
        for sequence in 1..=100 {
            commit(&mut opened.journal, &[], &[stored(sequence, 400)]).expect("a disk that works");
        }
        let before = opened.journal.space().segments;
        opened.journal.release(90);
        assert_eq!(opened.journal.space().segments, before, "no child has confirmed anything on record");
        commit(&mut opened.journal, &[Mark::Applied(vec![(0, 100), (1, 95), (2, 70)])], &[])
            .expect("a disk that works");
        let space = opened.journal.space();
        assert!(space.segments < before && (50..=71).contains(&space.oldest), "{space:?}");
        let released = ReadError::Released { oldest: space.oldest };
        assert_eq!(opened.readers.reader().read(1, 1), Err(released));
        assert_eq!(read_all(&opened.readers, 71).len(), 30);
        drop(opened);
        let opened = open(&options()).expect("what is there");
        assert_eq!((opened.resume.oldest, opened.resume.last), (space.oldest, 100));
    });
}

#[test]
fn a_change_is_on_record_as_it_was_handed_in() {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(&self) {}
    }
    let (group, mut sequencer) = MirrorGroup::new(Setup {
        table: Arc::new(crate::route::testing::group(crate::route::Policy::RoundRobin, &[100, 100, 100])),
        epoch: 7,
        level: crate::mirror::Level::All,
        deadline: Duration::from_secs(5),
        live_wait: Duration::from_secs(2),
        workers: 1,
        submissions_max: 8,
        ring_slots: 8,
        ring_bytes_max: 1 << 20,
        catch_up_help: Duration::ZERO,
        sequencer: Arc::new(Nobody),
        durable: None,
    });
    let expected = stored(1, 100);
    let order = Order {
        head: expected.head.clone(),
        body: expected.body.clone(),
        unknown_outcome: expected.unknown_outcome,
        applied: Arc::clone(&expected.applied),
        name: expected.name.clone(),
        live: expected.live,
        on_unknown: expected.on_unknown,
        key: expected.key.clone(),
        children: 3,
        submitted: Time::ZERO,
        charge: Budget::new(1000).charge(100).expect("room"),
    };
    let (change, _waiting) = Change::new(order, Arc::new(Nobody));
    let mut journal = open_on(&options(), Arc::new(Simulated::new(1)), false).expect("a disk that works").journal;
    let unnumbered = journal.commit(&[], &[Arc::clone(&change)]);
    assert!(unnumbered.is_err(), "it has no place in the order");

    let mut opened = open_on(&options(), Arc::new(Simulated::new(1)), false).expect("a disk that works");
    group.submit(0, &change).expect("room in the line");
    _ = sequencer.step(Time::ZERO);
    opened.journal.commit(&[], &[change]).expect("a disk that works");
    let unix_ms = 1_700_000_000_000;
    assert_eq!(read_all(&opened.readers, 1), [Stored { unix_ms, ..expected }]);
    assert_eq!((opened.journal.age_after(0), opened.journal.age_after(1)), (Some(unix_ms), None));
    assert!(opened.journal.bytes_after(0) > 100 && opened.journal.bytes_after(1) == 0);
}

mod crash;
mod damage;
mod faults;
