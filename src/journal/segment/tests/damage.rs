//! Files that were changed behind our back: cut exactly, or refused with the file and the range; never believed.

use super::disk::simulated::Simulated;
use super::*;
use crate::journal::record::SEGMENT_HEADER_BYTES;

fn opened(disk: &Simulated) -> Result<Opened, OpenError> {
    open_on(&options(), Arc::new(disk.clone()), false)
}

/// A journal of so many changes, one a commit, that was closed; and where each commit ended in the last segment.
fn journal(changes: u64, body: usize) -> (Simulated, Vec<u64>) {
    let disk = Simulated::new(11);
    let mut journal = opened(&disk).expect("a disk that works");
    let mut ends = vec![];
    for sequence in 1..=changes {
        commit(&mut journal.journal, &[], &[stored(sequence, body)]).expect("a disk that works");
        ends.push(journal.journal.end());
    }
    drop(journal);
    disk.unlink(slots::NAME).expect("the slots, which would tell");
    (disk, ends)
}

/// What a start finds, where it takes the journal at all: how many changes, which are the first ones as they were.
fn found(disk: &Simulated, body: usize) -> Result<u64, OpenError> {
    let opened = opened(disk)?;
    let all = read_all(&opened.readers, 1);
    let expected: Vec<Stored> = (1..=opened.resume.last).map(|sequence| stored(sequence, body)).collect();
    assert_eq!(all, expected);
    Ok(opened.resume.last)
}

#[test]
fn any_octet_of_the_last_batch_cuts_it_off_whole() {
    const CHANGES: u64 = 6;
    let (disk, ends) = journal(CHANGES, 40);
    let name = shared::file_name(1);
    let (from, to) = (ends[4] as usize, ends[5] as usize);
    for at in from..to {
        for change in [0x01, 0x80, 0xff] {
            let copy = disk.copy();
            copy.edit(&name, |octets| octets[at] ^= change);
            assert_eq!(found(&copy, 40).expect("a torn tail"), CHANGES - 1, "octet {at}");
            let after = copy.content(&name);
            assert!(after[from..].iter().all(|octet| *octet == 0), "what was cut is zeroed");
        }
    }
    for at in from..to {
        let copy = disk.copy();
        copy.edit(&name, |octets| octets.truncate(at));
        assert_eq!(found(&copy, 40).expect("a torn tail"), CHANGES - 1, "cut at {at}");
        assert_eq!(copy.content(&name).len(), disk.content(&name).len(), "the file has its size again");
    }
}

#[test]
fn any_octet_before_the_last_batch_is_damage_and_is_named() {
    let (disk, ends) = journal(6, 40);
    let name = shared::file_name(1);
    let first_frame = SEGMENT_HEADER_BYTES;
    for at in 0..ends[4] as usize {
        let copy = disk.copy();
        copy.edit(&name, |octets| octets[at] ^= 0x10);
        let before = copy.content(&name);
        match found(&copy, 40).expect_err("damage") {
            OpenError::Damaged { path, from, to, .. } => {
                assert!(path.ends_with(&name));
                assert!((from..to.max(from + 1)).contains(&(at as u64)) || at < first_frame, "{at}: {from} to {to}");
            }
            // The version is within the header's checksum, but it is looked at when that holds only.
            other => panic!("octet {at}: {other}"),
        }
        assert_eq!(copy.content(&name), before, "nothing is changed");
    }
}

#[test]
fn any_octet_of_an_old_segment_is_damage_to_its_readers_and_stops_there() {
    let (disk, _) = journal(40, 400);
    let name = shared::file_name(2);
    let untouched = found(&disk.copy(), 400).expect("undamaged");
    assert_eq!(untouched, 40);
    let first = {
        let opened = opened(&disk.copy()).expect("undamaged");
        opened.readers.shared().find_ordinal(2).expect("a second segment")
    };
    for at in (0..first.end() as usize).step_by(7) {
        let copy = disk.copy();
        copy.edit(&name, |octets| octets[at] ^= 0x04);
        let opened = match opened(&copy) {
            Ok(opened) => opened,
            Err(OpenError::Damaged { path, .. }) => {
                assert!(path.ends_with(&name) || path.ends_with(&shared::file_name(3)), "{path}");
                assert!(at < SEGMENT_HEADER_BYTES, "a start looks at headers: {at}");
                continue;
            }
            Err(other) => panic!("octet {at}: {other}"),
        };
        let mut reader = opened.readers.reader();
        let mut next = 1;
        let why = loop {
            match reader.read(next, 1000) {
                Ok(changes) => {
                    for change in &changes {
                        assert_eq!(*change, stored(change.sequence, 400));
                    }
                    next = changes.last().expect("it is on record").sequence + 1;
                    assert!(next <= 41, "octet {at} is not seen");
                    // The checkpoint and frames without changes say nothing to a reader.
                    if next == 41 {
                        break None;
                    }
                }
                Err(ReadError::Damaged { why }) => break Some(why),
                Err(other) => panic!("{other:?}"),
            }
        };
        if let Some(why) = why {
            assert!(why.contains(&name) && why.contains("octets"), "{why}");
            assert!(matches!(reader.read(next, 1000), Err(ReadError::Damaged { .. })), "it stays there");
        }
    }
}

#[test]
fn what_lies_behind_the_end_is_no_record() {
    // Anything, and a whole segment of before: its frames are right but for their salt.
    let (old, _) = journal(6, 40);
    let garbage: Vec<u8> = (0..4000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for tail in [garbage, old.content(&shared::file_name(1))[512..].to_vec()] {
        let disk = Simulated::new(77);
        let mut journal = opened(&disk).expect("a disk that works");
        commit(&mut journal.journal, &[], &[stored(1, 40)]).expect("a disk that works");
        let end = journal.journal.end() as usize;
        drop(journal);
        let name = shared::file_name(1);
        disk.edit(&name, |octets| {
            let length = tail.len().min(octets.len() - end);
            octets[end..end + length].copy_from_slice(&tail[..length]);
        });
        assert_eq!(found(&disk, 40).expect("a torn tail"), 1);
        assert!(disk.content(&name)[end..].iter().all(|octet| *octet == 0));
    }
}

#[test]
fn a_name_that_was_lost_is_a_file_that_is_not_there() {
    let (disk, _) = journal(40, 400);
    let count = disk.names().iter().filter(|name| name.ends_with(".segment")).count() as u64 - 3;
    for ordinal in 1..=count {
        let copy = disk.copy();
        copy.unlink(&shared::file_name(ordinal)).expect("a file");
        if ordinal == count {
            // The last one cannot be told from one that was never there; the slots can tell.
            assert!(found(&copy, 400).expect("the rest") < 40);
            continue;
        }
        let error = opened(&copy).err().expect("something is missing");
        assert!(matches!(error, OpenError::Behind { .. }), "{error}");
    }
}

#[test]
fn a_child_that_is_ahead_of_the_record_is_named() {
    let disk = Simulated::new(9);
    let mut journal = opened(&disk).expect("a disk that works");
    commit(&mut journal.journal, &[], &[stored(1, 40)]).expect("a disk that works");
    let backup = disk.copy();
    commit(&mut journal.journal, &[], &[stored(2, 40)]).expect("a disk that works");
    journal.slots.put(1, Slot { applied: 2, begun: 2 }, true).expect("a slot");
    drop(journal);
    let children = disk.content(slots::NAME);
    backup.kill();
    backup.edit(slots::NAME, |octets| *octets = children);
    let error = opened(&backup).err().expect("a backup").to_string();
    for word in ["`b`", "7:2", "7:1", "repair"] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn slots_from_before_a_power_cut_are_old() {
    for (sync_each, begun) in [(false, 5), (true, 3)] {
        let options = Options { cursor_sync_each: sync_each, ..options() };
        let disk = Simulated::new(9);
        let mut journal = open_on(&options, Arc::new(disk.clone()), false).expect("a disk that works");
        let all: Vec<Stored> = (1..=5).map(|sequence| stored(sequence, 1)).collect();
        commit(&mut journal.journal, &[], &all).expect("a disk that works");
        journal.slots.put(0, Slot { applied: 2, begun: 3 }, true).expect("a slot");
        disk.cut_power();
        drop(journal);
        let opened = open_on(&options, Arc::new(disk), false).expect("no damage");
        assert_eq!((opened.resume.children[0].applied, opened.resume.children[0].begun), (2, begun));
    }
}

#[test]
fn another_groups_or_versions_files_are_refused() {
    let (disk, _) = journal(3, 10);
    let other = Options { group: "other".into(), ..options() };
    let error = open_on(&other, Arc::new(disk.copy()), false).err().expect("another's").to_string();
    assert!(error.contains("`kv`") && error.contains("`other`"), "{error}");
    disk.edit(&shared::file_name(1), |octets| {
        octets[8] = 2;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&octets[..12]), &octets[16..512]);
        octets[12..16].copy_from_slice(&crc.to_le_bytes());
    });
    let error = opened(&disk).err().expect("of another version").to_string();
    assert!(error.contains("version"), "{error}");
}
