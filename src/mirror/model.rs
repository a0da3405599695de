//! A journal in memory, as the tests of this family use it: the simplest structure that could be right. It outlives the
//! group that writes to it, so that a test can end the process, or the power, and begin again from what is left.
//!
//! What is kept at once (slots) is lost by a power cut, what is committed is not. A commit can be made to fail; the batch
//! is then on record, or not.

#![expect(clippy::disallowed_types, reason = "a test's own")]

use std::sync::{Mutex, MutexGuard};

use super::Change;
use super::durable::{
    Journal, JournalFailed, JournalFull, Mark, ReadError, Reader, Resume, ResumedChild, Slot, Slots, Space, Stored,
    Verdict,
};
use crate::route::Standing;
use crate::sync::Arc;

/// What is on record.
#[derive(Debug, Default)]
struct Kept {
    changes: Vec<Stored>,
    marks: Vec<Mark>,
    /// Changes up to here are gone.
    released: u64,
    children: Vec<ResumedChild>,
    judged: Vec<(u64, u64)>,
    exceptions: Vec<(u64, Verdict)>,
    slots: Vec<Slot>,
    failed: bool,
    /// The last life ended with the power.
    was_cut: bool,
    /// How the next commit fails: the batch is on record all the same, or not.
    fails: Option<bool>,
    full: bool,
    /// Slots cannot be written.
    slots_fail: bool,
}

/// A handle on it; all of them are one journal.
#[derive(Clone, Debug)]
pub(super) struct Model(Arc<Mutex<Kept>>);

impl Model {
    pub(super) fn new(children: usize) -> Self {
        let child = ResumedChild { applied: 0, begun: 0, attached: 0, standing: Standing::Live, why: String::new() };
        let slots = vec![Slot { applied: 0, begun: 0 }; children];
        Self(Arc::new(Mutex::new(Kept { children: vec![child; children], slots, ..Kept::default() })))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no test panicked within")
    }

    /// What a start finds. After a power cut nothing is known of what was under way.
    pub(super) fn resume(&self, power_cut: bool) -> Resume {
        let mut kept = self.kept();
        kept.failed = false;
        kept.fails = None;
        let last = kept.last();
        for child in 0..kept.children.len() {
            let slot = match power_cut {
                false => kept.slots[child],
                true => Slot { applied: kept.children[child].applied, begun: last },
            };
            assert!(slot.begun <= last, "no child was sent what is not on record");
            // An attach whose mark was lost has not happened: what the slot says then is not to be believed.
            let resumed = &mut kept.children[child];
            if resumed.standing == Standing::Live {
                (resumed.applied, resumed.begun) = (slot.applied, slot.begun);
            }
            kept.slots[child] = Slot { applied: kept.children[child].applied, begun: kept.children[child].begun };
        }
        Resume {
            epoch: 1,
            last,
            oldest: kept.released + 1,
            acknowledged: match power_cut {
                false => kept.children.iter().map(|child| child.applied).max().unwrap_or(0),
                true => last,
            },
            children: kept.children.clone(),
            exceptions: kept.exceptions.clone(),
            judged: kept.judged.clone(),
            live: kept.changes.iter().filter(|change| change.live).map(|change| change.sequence).collect(),
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.kept().last()
    }

    /// The oldest change that is left, or the next.
    pub(super) fn oldest(&self) -> u64 {
        self.kept().released + 1
    }

    pub(super) fn end_life(&self, power_cut: bool) {
        self.kept().was_cut = power_cut;
    }

    pub(super) fn was_cut(&self) -> bool {
        self.kept().was_cut
    }

    /// The next commit fails; its batch is on record all the same, or not.
    pub(super) fn fail_next(&self, on_record: bool) {
        self.kept().fails = Some(on_record);
    }

    /// All marks so far.
    pub(super) fn marks(&self) -> Vec<Mark> {
        self.kept().marks.clone()
    }

    /// No slot can be written from now on.
    pub(super) fn fail_slots(&self) {
        self.kept().slots_fail = true;
    }

    /// There is no room for changes, or there is again.
    pub(super) fn set_full(&self, full: bool) {
        self.kept().full = full;
    }
}

impl Kept {
    fn last(&self) -> u64 {
        self.changes.last().map_or(self.released, |change| change.sequence)
    }

    fn fold(&mut self, mark: &Mark) {
        match mark {
            Mark::Outcome { sequence, verdict, condemned } => {
                if *verdict != Verdict::Agreed(super::Class::Success) {
                    self.exceptions.push((*sequence, *verdict));
                }
                for child in condemned {
                    self.children[*child].standing = Standing::Diverged;
                    self.children[*child].why = format!("answered change {sequence} unlike its siblings");
                }
            }
            Mark::Standing { child, standing, why } => {
                self.children[*child].standing = *standing;
                self.children[*child].why.clone_from(why);
            }
            Mark::Attach { child, from, at } => {
                let child = &mut self.children[*child];
                self.judged.push((child.attached, *from));
                *child = ResumedChild {
                    applied: *at,
                    begun: *at,
                    attached: *at,
                    standing: Standing::Live,
                    why: String::new(),
                };
            }
            Mark::Applied(moved) => {
                for (child, applied) in moved {
                    let child = &mut self.children[*child];
                    child.applied = child.applied.max(*applied);
                }
            }
            Mark::Members(_) => {}
        }
    }

    fn put(&mut self, change: &Change) {
        let ticket = change.ticket().expect("numbered");
        assert_eq!(ticket.sequence, self.last() + 1, "no hole, nothing twice");
        self.changes.push(Stored {
            sequence: ticket.sequence,
            head: change.head.clone(),
            body: change.body.clone(),
            unknown_outcome: change.unknown_outcome,
            on_unknown: change.on_unknown,
            applied: Arc::clone(&change.applied),
            name: change.name.clone(),
            live: change.live,
            unix_ms: 0,
            key: change.key.clone(),
        });
    }
}

impl Journal for Model {
    fn room(&mut self, _: u64) -> Result<(), JournalFull> {
        if self.kept().full { Err(JournalFull { why: "the test says so".to_owned() }) } else { Ok(()) }
    }

    fn commit(&mut self, marks: &[Mark], changes: &[Arc<Change>]) -> Result<(), JournalFailed> {
        let mut kept = self.kept();
        assert!(!kept.failed, "nothing is written to a journal that has failed");
        let fails = kept.fails.take();
        if fails != Some(false) {
            marks.iter().for_each(|mark| kept.fold(mark));
            kept.marks.extend_from_slice(marks);
            changes.iter().for_each(|change| kept.put(change));
        }
        if fails.is_some() {
            kept.failed = true;
            return Err(JournalFailed { why: "the test says so".to_owned() });
        }
        Ok(())
    }

    fn release(&mut self, through: u64) {
        let mut kept = self.kept();
        kept.released = kept.released.max(through);
        kept.changes.retain(|change| change.sequence > through);
        kept.exceptions.retain(|(sequence, _)| *sequence > through);
    }

    fn bytes_after(&self, _: u64) -> u64 {
        0
    }

    fn age_after(&self, _: u64) -> Option<u64> {
        None
    }

    fn space(&self) -> Space {
        Space::default()
    }
}

impl Slots for Model {
    fn put(&self, child: usize, slot: Slot, _: bool) -> Result<(), JournalFailed> {
        let mut kept = self.kept();
        assert!(slot.begun <= kept.last(), "no child is sent what is not on record");
        if kept.slots_fail {
            return Err(JournalFailed { why: "the test says so".to_owned() });
        }
        kept.slots[child] = slot;
        Ok(())
    }
}

impl Reader for Model {
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError> {
        let kept = self.kept();
        if from <= kept.released {
            return Err(ReadError::Released { oldest: kept.released + 1 });
        }
        Ok(kept.changes.iter().filter(|change| change.sequence >= from).take(bytes_max).cloned().collect())
    }
}
