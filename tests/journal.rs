//! `antiphon journal` on real directories, and a stored journal of version 1 of the format.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use antiphon::action::UnknownOutcome;
use antiphon::journal::record::ChangeRef;
use antiphon::journal::segment::{OpenError, Opened, Options, open};
use antiphon::mirror::ack::Class;
use antiphon::mirror::durable::{ClientKey, Journal as _, Mark, OnUnknown, Slot, Stored, Verdict};
use antiphon::route::Standing;
use support::proxy::{antiphon, assert_says};
use support::{Ran, TempDir};

fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// Small segments, so that few changes fill one. A test's directory may be on a tmpfs.
fn options(directory: &Path) -> Options {
    Options {
        segment_bytes: 8 * 1024,
        reserve_bytes: 8 * 1024,
        force: true,
        epoch_if_new: 7,
        ..Options::new(directory.to_owned(), "kv", "http", names(&["a", "b"]))
    }
}

fn change(sequence: u64) -> Stored {
    Stored {
        sequence,
        head: format!("PUT /items/{sequence} HTTP/1.1\r\n\r\n").into(),
        body: vec![b'x'; 600].into(),
        unknown_outcome: UnknownOutcome::Idempotent,
        on_unknown: OnUnknown::Hold,
        applied: [409].into(),
        name: "put".into(),
        live: sequence == 3,
        unix_ms: 1_700_000_000_000 + sequence,
        key: (sequence == 2).then(|| ClientKey { text: (*b"once-2").into(), digest: [2; 32] }.into()),
    }
}

/// A journal of 30 changes in several segments; child `a` has confirmed all, `b` ten.
fn journal(directory: &Path) {
    let mut opened = open(&options(directory)).expect("a new journal");
    for sequence in 1..=30 {
        put(&mut opened, &[], &[change(sequence)]);
    }
    let outcome = Mark::Outcome { sequence: 12, verdict: Verdict::Agreed(Class::Rejected), condemned: Vec::new() };
    put(&mut opened, &[outcome, Mark::Applied(vec![(0, 30), (1, 10)])], &[]);
    opened.slots.put(0, Slot { applied: 30, begun: 30 }, false).expect("a slot");
    opened.slots.put(1, Slot { applied: 10, begun: 11 }, false).expect("a slot");
}

fn put(opened: &mut Opened, marks: &[Mark], changes: &[Stored]) {
    opened.journal.commit_refs(marks, changes.iter().map(ChangeRef::from)).expect("a disk that works");
}

fn read(opened: &Opened) -> Vec<Stored> {
    opened.readers.reader().read(opened.resume.oldest, usize::MAX).expect("no damage")
}

fn verb(words: &[&str], directory: &Path) -> Ran {
    let path = directory.join("kv");
    let mut all = vec!["journal", words[0], path.to_str().expect("a plain path")];
    all.extend(&words[1..]);
    antiphon(&all)
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("kv")).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("0000")))
        .filter(|path| fs::read(path).expect("a file")[0] != 0)
        .collect();
    found.sort();
    found
}

/// Turns one bit.
fn damage(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut octet = [0];
    file.read_exact_at(&mut octet, at).expect("an octet");
    octet[0] ^= 1;
    file.write_all_at(&octet, at).expect("an octet");
}

#[test]
fn a_good_journal_is_verified_and_dumped() {
    let directory = TempDir::new("journal-good");
    journal(directory.path());
    let said = verb(&["verify"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_says(
        &said.stdout,
        &["segment 1: changes 1 to", "epoch 7, last change 30", "child b: live, confirmed 10", "no damage"],
    );

    let said = verb(&["dump"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_says(
        &said.stdout,
        &[
            "1:512 checkpoint epoch=7 last=0",
            "epoch 7 first=1 ended=0",
            "change 2 \"put\" idempotent key=\"once-2\" at=1700000000002 head=25 body=600 \"PUT /items/2 HTTP/1.1\"",
            "change 3 \"put\" idempotent live",
            "outcome 12 rejected condemned=[]",
            "applied #0=30 #1=10",
        ],
    );
    assert!(!said.stdout.contains("xxxx"), "bodies are told by their length");
    let said = verb(&["dump", "--from", "30", "--bodies"], directory.path());
    assert_says(&said.stdout, &["change 30", "xxxx", "applied #0=30"]);
    assert!(!said.stdout.contains("change 29"), "{}", said.stdout);

    let said = verb(&["repair"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_says(&said.stdout, &["nothing is wrong"]);
}

#[test]
fn its_files_are_its_owners() {
    let directory = TempDir::new("journal-modes");
    journal(directory.path());
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&directory.join("kv")), 0o700);
    for entry in fs::read_dir(directory.join("kv")).expect("a directory") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn damage_is_named_cut_when_asked_for_and_then_the_journal_opens_again() {
    let directory = TempDir::new("journal-damaged");
    journal(directory.path());
    let second = segments(directory.path())[1].clone();
    let name = second.file_name().expect("a name").to_string_lossy().into_owned();
    damage(&second, 3000);

    let said = verb(&["verify"], directory.path());
    assert_eq!(said.code, Some(1), "{}", said.text());
    assert_says(&said.stdout, &["DAMAGED", &name, "octets", "checksum", "repair"]);
    let said = verb(&["dump"], directory.path());
    assert_eq!(said.code, Some(1));
    assert_says(&said.stdout, &["change 1 ", "change 30 "]);
    assert_says(&said.stderr, &[&name, "octets"]);

    let said = verb(&["repair"], directory.path());
    assert_eq!(said.code, Some(1), "{}", said.text());
    assert_says(&said.stdout, &["epoch 8 begins with", "child a needs a reseed", "nothing has been changed"]);
    let said = verb(&["verify"], directory.path());
    assert_eq!(said.code, Some(1), "nothing has been changed: {}", said.text());

    let held = open(&options(directory.path())).expect("a start looks at the last segment");
    let said = verb(&["repair", "--yes"], directory.path());
    assert_eq!(said.code, Some(1));
    assert_says(&said.stderr, &["in use by another process"]);
    drop(held);

    let said = verb(&["repair", "--yes"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_says(&said.stdout, &["child a needs a reseed", "what was cut is in", "cut-"]);
    assert!(!said.stdout.contains("child b needs"), "b had not come so far: {}", said.stdout);

    let opened = open(&options(directory.path())).expect("it is whole again");
    let kept = opened.resume.last;
    assert!((10..30).contains(&kept) && opened.resume.epoch == 8, "{:?}", opened.resume);
    assert_eq!(read(&opened), (1..=kept).map(change).collect::<Vec<_>>());
    let standings: Vec<Standing> = opened.resume.children.iter().map(|child| child.standing).collect();
    assert_eq!(standings, [Standing::NeedsReseed, Standing::Live]);
    assert_eq!((opened.resume.children[1].applied, opened.resume.children[1].begun), (10, 11));
    drop(opened);
    let said = verb(&["verify"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
}

#[test]
fn a_restored_backup_is_refused_and_repaired() {
    let directory = TempDir::new("journal-backup");
    let backup = TempDir::new("journal-backup-copy");
    journal(directory.path());
    fs::create_dir(backup.join("kv")).expect("a directory");
    for path in segments(directory.path()) {
        fs::copy(&path, backup.join("kv").join(path.file_name().expect("a name"))).expect("a copy");
    }
    let mut opened = open(&options(directory.path())).expect("what is there");
    put(&mut opened, &[], &[change(31), change(32)]);
    opened.slots.put(0, Slot { applied: 32, begun: 32 }, false).expect("a slot");
    drop(opened);
    fs::copy(directory.join("kv").join("children"), backup.join("kv").join("children")).expect("a copy");

    let error = open(&options(backup.path())).err().expect("a child is ahead");
    assert!(matches!(error, OpenError::Behind { .. }), "{error}");
    assert_says(&error.to_string(), &["`a`", "7:32", "7:30", "antiphon journal repair"]);
    let said = verb(&["repair", "--yes"], backup.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_says(&said.stdout, &["kept: changes up to 30; epoch 8 begins with 31", "child a needs a reseed"]);
    let opened = open(&options(backup.path())).expect("it is whole again");
    assert_eq!((opened.resume.last, opened.resume.epoch), (30, 8));
    assert_eq!(opened.resume.children[1].standing, Standing::Live);
}

/// What the start says of it, and that `verify` says the same.
#[track_caller]
fn assert_refused(directory: &Path, parts: &[&str]) {
    let refusal = open(&options(directory)).err().expect("it is refused").to_string();
    assert_says(&refusal, parts);
    let said = verb(&["verify"], directory);
    assert_eq!(said.code, Some(1), "{}", said.text());
    let relative = refusal.replace("//", "/");
    assert_says(&said.stdout.replace("//", "/"), &["the next start refuses it", &relative]);
    assert!(!said.stdout.contains("no damage"), "{}", said.stdout);
}

fn truncate(path: &Path, bytes: u64) {
    fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("cut short");
}

#[test]
fn verify_finds_what_a_start_refuses() {
    let gone = TempDir::new("journal-gone");
    journal(gone.path());
    for first in &segments(gone.path())[..2] {
        fs::remove_file(first).expect("it was there");
    }
    assert_refused(gone.path(), &["child `b` has confirmed 10, but the oldest change on record is"]);
    for bytes in [0, 3000] {
        let short = TempDir::new("journal-short");
        journal(short.path());
        truncate(segments(short.path()).last().expect("a segment"), bytes);
        assert_refused(short.path(), &["may have been sent what follows up to 30, but the record ends at 7:"]);
    }
}

#[test]
fn where_nothing_can_be_kept_another_journal_begins_in_which_every_child_needs_a_reseed() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 3] = [
        ("a damaged header", |directory| damage(&segments(directory)[0], 20)),
        ("all emptied", |directory| segments(directory).iter().for_each(|path| truncate(path, 0))),
        ("all gone", |directory| {
            for entry in fs::read_dir(directory.join("kv")).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.extension().is_some() {
                    fs::remove_file(path).expect("it was there");
                }
            }
        }),
    ];
    for (harm, harmed) in harms {
        let directory = TempDir::new("journal-anew");
        journal(directory.path());
        harmed(directory.path());
        assert_refused(directory.path(), &[]);
        let said = verb(&["repair"], directory.path());
        assert_eq!(said.code, Some(1), "{harm}: {}", said.text());
        assert_says(&said.stdout, &["kept: nothing", "every child needs a reseed", "nothing has been changed"]);
        assert_refused(directory.path(), &[]);

        let said = verb(&["repair", "--yes"], directory.path());
        assert_eq!(said.code, Some(0), "{harm}: {}", said.text());
        assert_says(&said.stdout, &["what was cut is in", "-children", "attach a child whose data is good first"]);
        for word in ["verify", "repair"] {
            let said = verb(&[word], directory.path());
            assert_eq!(said.code, Some(0), "{harm}: {}", said.text());
        }
        let mut opened = open(&options(directory.path())).expect("another journal");
        assert!(opened.resume.last == 30 && opened.resume.epoch > 7, "{harm}: {:?}", opened.resume);
        assert!(opened.resume.children.iter().all(|child| child.standing == Standing::NeedsReseed), "{harm}");
        put(&mut opened, &[Mark::Attach { child: 0, from: 0, at: 30 }], &[change(31)]);
        drop(opened);
        let opened = open(&options(directory.path())).expect("it goes on");
        let standings: Vec<Standing> = opened.resume.children.iter().map(|child| child.standing).collect();
        assert_eq!(standings, [Standing::Live, Standing::NeedsReseed], "{harm}");
        assert_eq!(read(&opened), [change(31)], "{harm}");
    }
}

#[test]
fn what_is_no_journal_is_said_so() {
    let directory = TempDir::new("journal-none");
    fs::create_dir(directory.join("kv")).expect("a directory");
    for word in ["verify", "dump", "repair"] {
        let said = verb(&[word], directory.path());
        assert_eq!(said.code, Some(1));
        assert_says(&said.stderr, &["no journal here", "DIRECTORY/GROUP"]);
        let said = verb(&[word], &directory.join("nowhere"));
        assert_eq!(said.code, Some(1));
        assert_says(&said.stderr, &["nowhere"]);
    }
}

/// Written once, by the first antiphon that had a journal. It has to be readable as long as version 1 is.
#[test]
fn a_journal_of_version_1_is_read() {
    let directory = TempDir::new("journal-v1");
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/journal/v1");
    fs::create_dir(directory.join("kv")).expect("a directory");
    for entry in fs::read_dir(stored.join("kv")).expect("the stored journal") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), directory.join("kv").join(entry.file_name())).expect("a copy");
    }
    let said = verb(&["dump"], directory.path());
    assert_eq!(said.code, Some(0), "{}", said.text());
    assert_eq!(said.stdout, fs::read_to_string(stored.join("dump.txt")).expect("what it says"));

    let opened = open(&options(directory.path())).expect("it is read");
    assert_eq!((opened.resume.epoch, opened.resume.last, opened.resume.oldest), (7, 30, 1));
    assert_eq!(opened.resume.exceptions, [(12, Verdict::Agreed(Class::Rejected))]);
    assert_eq!(opened.resume.judged, [(0, 30)]);
    let applied: Vec<u64> = opened.resume.children.iter().map(|child| child.applied).collect();
    assert_eq!(applied, [30, 10]);
    assert_eq!(read(&opened), (1..=30).map(change).collect::<Vec<_>>());
}

/// A journal is made ahead, and let go of, by a thread beside it.
#[test]
fn a_long_life_on_a_real_disk_takes_what_it_may_and_no_more() {
    let directory = TempDir::new("journal-long");
    let options = Options { bytes_max: 64 * 1024, ..options(directory.path()) };
    let mut opened = open(&options).expect("a new journal");
    for sequence in 1..=400 {
        opened.journal.room(700).expect("what was released makes room");
        put(&mut opened, &[Mark::Applied(vec![(0, sequence - 1), (1, sequence - 1)])], &[change(sequence)]);
        opened.journal.release(sequence - 1);
    }
    let space = opened.journal.space();
    assert!(space.bytes <= 64 * 1024 && space.segments <= 3 && space.oldest > 380, "{space:?}");
    // One a commit and the start's; one more where a commit goes on in the next segment.
    assert!((401..=460).contains(&space.syncs), "{space:?}");
    drop(opened);
    let count = fs::read_dir(directory.join("kv")).expect("a directory").count();
    assert!(count <= 8, "old files are gone: {count}");
}
