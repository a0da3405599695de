//! Disks that fail, and files that were changed behind our back.

use super::disk::simulated::{Fault, Op};
use super::*;

fn opened(disk: &Simulated) -> Opened {
    open_on(&options(), Arc::new(disk.clone()), false).expect("a disk that works")
}

#[test]
fn after_an_error_nothing_is_written_synced_or_acknowledged() {
    for (op, fault) in [
        (Op::Sync, Fault::Error(io::ErrorKind::Other)),
        (Op::Write, Fault::Error(io::ErrorKind::StorageFull)),
        (Op::Write, Fault::Short),
    ] {
        let disk = Simulated::new(3);
        let mut journal = opened(&disk);
        commit(&mut journal.journal, &[], &[stored(1, 100)]).expect("a disk that works");
        let name = shared::file_name(1);
        disk.fail_next(op, fault);
        let failed = commit(&mut journal.journal, &[], &[stored(2, 100)]).expect_err("a disk that failed");
        assert!(failed.why.contains(&name) && failed.why.contains("restart"), "{}", failed.why);
        let (syncs, ops) = (disk.syncs(&name), disk.ops());
        // The disk works again. Nobody knows what the error has cost.
        assert_eq!(commit(&mut journal.journal, &[], &[stored(2, 100)]), Err(failed.clone()));
        assert_eq!(journal.journal.room(1), Err(JournalFull { why: failed.why }));
        assert_eq!((disk.syncs(&name), disk.ops()), (syncs, ops));
        assert!(journal.readers.reader().read(2, 1).expect("it is not durable").is_empty());
        drop(journal);
        let again = opened(&disk);
        assert!([1, 2].contains(&again.resume.last));
    }
}

#[test]
fn a_slot_that_cannot_be_written_ends_the_journal() {
    let disk = Simulated::new(3);
    let mut journal = opened(&disk);
    disk.fail_next(Op::Write, Fault::Error(io::ErrorKind::Other));
    assert!(journal.slots.put(0, Slot { applied: 0, begun: 0 }, false).is_err());
    assert!(commit(&mut journal.journal, &[], &[stored(1, 1)]).is_err());
}

#[test]
fn a_full_disk_refuses_changes_takes_marks_and_goes_on_by_itself() {
    let disk = Simulated::new(4);
    let mut journal = opened(&disk);
    journal.journal.room(100).expect("room");
    let space = journal.journal.space();
    assert_eq!((space.segments, space.reserve), (1, 16 * 1024));
    disk.set_space(0);
    let mut sequence = 0;
    let full = loop {
        match journal.journal.room(500) {
            Ok(()) => {
                sequence += 1;
                commit(&mut journal.journal, &[], &[stored(sequence, 400)]).expect("what has room is taken");
            }
            Err(full) => break full,
        }
    };
    assert!(full.why.contains("cannot be made"), "{}", full.why);
    assert_eq!(journal.journal.space().reserve, 16 * 1024, "changes leave the reserve alone");
    for round in 0..50 {
        let why = "x".repeat(100);
        let mark = Mark::Standing { child: 0, standing: Standing::Diverged, why: format!("{round} {why}") };
        commit(&mut journal.journal, &[mark], &[]).expect("marks are taken");
    }
    assert!(journal.journal.space().reserve < 16 * 1024, "marks have used some of it");
    assert!(journal.journal.room(500).is_err());
    disk.set_space(u64::MAX);
    journal.journal.room(500).expect("it goes on");
    assert_eq!(journal.journal.space().reserve, 16 * 1024, "and the reserve is made anew");
    commit(&mut journal.journal, &[], &[stored(sequence + 1, 400)]).expect("it goes on");
    assert_eq!(read_all(&journal.readers, 1).len() as u64, sequence + 1);
}

/// A journal of four segments without room for more, and its last change.
fn full(seed: u64) -> (Opened, u64) {
    let disk = Simulated::new(seed);
    let options = Options { bytes_max: 4 * 8 * 1024, ..options() };
    let mut journal = open_on(&options, Arc::new(disk), false).expect("a disk that works");
    let mut sequence = 0;
    while journal.journal.room(500).is_ok() {
        sequence += 1;
        commit(&mut journal.journal, &[], &[stored(sequence, 400)]).expect("what has room is taken");
    }
    (journal, sequence)
}

#[test]
fn bytes_max_is_kept() {
    let (mut journal, sequence) = full(5);
    assert_eq!(journal.journal.space().segments, 4);
    let all = vec![(0, sequence), (1, sequence), (2, sequence)];
    commit(&mut journal.journal, &[Mark::Applied(all)], &[]).expect("marks are taken");
    journal.journal.release(sequence);
    journal.journal.room(500).expect("there is room again");
}

/// Marks may begin a segment beyond the limit; it is no room for changes.
#[test]
fn a_segment_that_marks_begin_beyond_the_limit_takes_no_changes() {
    let (mut journal, _) = full(6);
    while journal.journal.space().segments < 5 {
        let mark = Mark::Standing { child: 0, standing: Standing::Diverged, why: "x".repeat(100) };
        commit(&mut journal.journal, &[mark], &[]).expect("marks are taken");
    }
    let full = journal.journal.room(500).expect_err("what is left of it is for marks");
    assert!(full.why.contains("journal_bytes_max"), "{}", full.why);
}
