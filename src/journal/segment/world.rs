//! The promise, told as stories: the simulation of `mirror/simulation.rs` (a network of toy children, clients, an
//! operator, a clock) over the real journal on a disk that stops at any operation, fails, fills up, loses and reorders
//! what was not synced.
//!
//! Files are small, so that segments begin and end, are let go, and use up the reserve all the time; children change
//! places and names from start to start. What must hold is said there, by its number.

use std::path::PathBuf;
use std::time::Duration;

use super::disk::simulated::{Fault, Op, Simulated};
use super::*;
use crate::mirror::durable::{ReadError, Reader, Stored};
use crate::mirror::simulation::{Random, Seen, Store, World, tell};
use crate::mirror::{Durable, OnFull, Retention, Wake};

/// The journal of one story.
struct Files {
    disk: Simulated,
    options: Options,
    retention: Retention,
    open: Option<(Readers, Box<dyn Reader>)>,
}

impl Files {
    fn new(random: &mut Random) -> Self {
        let segment_bytes = 8 * 1024;
        let options = Options {
            segment_bytes,
            bytes_max: segment_bytes * (4 + random.below(12)),
            reserve_bytes: segment_bytes * random.below(3),
            cursor_sync_each: random.chance(25),
            force: true,
            epoch_if_new: 1 + random.below(9),
            ..Options::new(PathBuf::from("/simulated"), "kv", "http", Vec::new())
        };
        let retention = Retention {
            backlog_bytes_max: if random.chance(50) { u64::MAX } else { 4096 + random.below(32 * 1024) },
            backlog_age_max: Duration::MAX,
            on_full: if random.chance(50) { OnFull::RejectWrites } else { OnFull::DropChild },
        };
        Self { disk: Simulated::new(random.below(u64::MAX)), options, retention, open: None }
    }

    fn shared(&self) -> &Shared {
        self.open.as_ref().expect("antiphon runs").0.shared()
    }
}

impl Store for Files {
    fn end(&mut self, power_cut: bool) {
        self.open = None;
        if power_cut {
            self.disk.cut_power();
        } else {
            self.disk.kill();
        }
    }

    fn start(&mut self, children: &[Box<str>], reader: Arc<dyn Wake>) -> Option<Durable> {
        self.options.children = children.to_vec();
        let ops = self.disk.ops();
        let opened = match open_on(&self.options, Arc::new(self.disk.clone()), false) {
            Ok(opened) => opened,
            Err(OpenError::Io { .. }) if self.disk.ops() > ops => return None,
            Err(error) => panic!("I1: what a crash leaves opens: {error}"),
        };
        let second = open_on(&self.options, Arc::new(self.disk.clone()), false);
        assert!(matches!(second, Err(OpenError::Locked { .. })), "I8: two write one journal");
        self.open = Some((opened.readers.clone(), opened.readers.reader()));
        Some(Durable {
            journal: Box::new(opened.journal),
            slots: opened.slots,
            resume: opened.resume,
            reader,
            sync_each: self.options.cursor_sync_each,
            retention: self.retention,
        })
    }

    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError> {
        let (_, reader) = self.open.as_mut().expect("antiphon runs");
        reader.read(from, bytes_max * 300)
    }

    fn disturb(&mut self, random: &mut Random) {
        let error = Fault::Error(io::ErrorKind::Other);
        match random.below(16) {
            0..6 => self.disk.stop_after(1 + random.below(30)),
            6 => self.disk.fail_next(Op::Sync, error),
            7 => self.disk.fail_next(Op::Write, Fault::Short),
            8 => self.disk.fail_next(Op::Write, Fault::Error(io::ErrorKind::StorageFull)),
            9 => self.disk.fail_next([Op::Create, Op::Allocate, Op::Rename][random.below(3) as usize], error),
            10 => self.disk.fail_next([Op::SyncDir, Op::Unlink][random.below(2) as usize], error),
            11..13 => self.disk.set_space(self.disk.used() + random.below(3) * self.options.segment_bytes),
            13 => self.disk.jump_clock(if random.chance(50) { 3_600_000 } else { -3_600_000 }),
            _ => self.disk.set_space(u64::MAX),
        }
    }

    fn disturb_start(&mut self, random: &mut Random) {
        if random.chance(25) {
            self.disk.stop_after(1 + random.below(40));
        } else if random.chance(5) {
            let op = [Op::Write, Op::Sync, Op::SyncDir, Op::Create][random.below(4) as usize];
            self.disk.fail_next(op, Fault::Error(io::ErrorKind::Other));
        }
        // An operator makes room before he starts it again.
        self.disk.set_space(u64::MAX);
    }

    fn calm(&mut self) {
        self.disk.set_space(u64::MAX);
    }

    fn is_stopped(&self) -> bool {
        self.disk.is_stopped()
    }

    fn knows_names(&self) -> bool {
        true
    }

    fn extent(&self) -> (u64, u64) {
        (self.shared().durable(), self.shared().oldest())
    }

    fn check_limits(&self) {
        let Options { segment_bytes, bytes_max, reserve_bytes, .. } = self.options;
        // Beside what is made ahead, and what is let go and not gone yet: marks are taken where changes are refused; and the
        // children's slots.
        let bytes = bytes_max + reserve_bytes + 3 * segment_bytes + 4096;
        let used = self.disk.used();
        assert!(
            used <= bytes || self.disk.is_stopped(),
            "I7: {used} octets of at most {bytes}: {:?}",
            self.disk.names()
        );
    }
}

/// Tells a share of the stories.
fn stories(first: u64) -> Seen {
    tell(first..first + 350, |seed| World::new(seed, |random| Some(Box::new(Files::new(random)))))
}

/// What these stories need not show: with a journal nobody is overrun; and a kill between the commit of a live change and
/// its first send is rare (`verdicts.rs` has a test of its own for it).
const ABSENT: &[&str] = &["overruns", "withdrawn"];

#[test]
fn the_promise_is_kept_whatever_happens_1() {
    stories(100_000).assert_all_but(ABSENT);
}

#[test]
fn the_promise_is_kept_whatever_happens_2() {
    stories(200_000).assert_all_but(ABSENT);
}

#[test]
fn the_promise_is_kept_whatever_happens_3() {
    stories(300_000).assert_all_but(ABSENT);
}
