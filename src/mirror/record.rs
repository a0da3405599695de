//! What lanes and operators leave for the record, and what they may know of it.
//!
//! Not the writing, which is the sequencer's ([`Sequencer`](super::Sequencer)) and the journal's.

use super::durable::{JournalFailed, Resume, Slot};
use super::{Change, Class, Keeping, MirrorGroup, Resolve};
use crate::route::{GroupTable, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::Time;

/// Has the children stand where they stood when the record ended.
pub(super) fn resume_children(table: &GroupTable, resume: &Resume) {
    table.shared.raise_floor(resume.acknowledged);
    for (child, resumed) in table.children.iter().zip(&resume.children) {
        if child.is_vacant() {
            continue;
        }
        child.confirm_applied(resumed.applied);
        let is_behind = resumed.applied < resume.last || resumed.begun > resumed.applied;
        match resumed.standing {
            Standing::Diverged | Standing::NeedsReseed => {
                child.set_standing(resumed.standing, resumed.why.clone(), Time::ZERO);
            }
            Standing::Live | Standing::Replaying if is_behind => {
                let why = "was behind when antiphon started: waits for a good probe";
                child.set_standing(Standing::Replaying, why, Time::ZERO);
            }
            // The record knows of an attach what the configuration cannot.
            Standing::Live | Standing::Replaying => child.set_standing(Standing::Live, "", Time::ZERO),
        }
    }
}

impl MirrorGroup {
    /// Are changes kept beyond the process?
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        self.keeping.is_some()
    }

    /// Why nothing can be put on record any more, if that is so: no change is taken until a restart.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.keeping.as_ref()?.failed.get().map(String::as_str)
    }

    /// How far its promise goes, in a word: what a reply and `/status` say.
    #[must_use]
    pub const fn durability(&self) -> &'static str {
        if self.is_durable() { "journal" } else { "memory" }
    }

    /// How often `child` was to be attached, for [`is_attached`](Self::is_attached).
    #[must_use]
    pub fn attaches(&self, child: usize) -> u64 {
        self.posts[child].attaches.load(Ordering::Relaxed)
    }

    /// Has the attach been carried out, and is it on record? `ask` is what [`attach`](Self::attach) gave.
    #[must_use]
    pub fn is_attached(&self, child: usize, ask: u64) -> bool {
        self.posts[child].attaches_recorded.load(Ordering::Acquire) >= ask
    }

    /// The operator's word about the change that `child` is in doubt about. Does nothing where it is in none.
    pub fn resolve(&self, child: usize, word: Resolve) {
        // Release: what the operator did before is done when the lane takes this.
        self.posts[child].resolve.store(word as u8, Ordering::Release);
        self.notice(child);
    }

    pub(super) const fn keeping(&self) -> Option<&Keeping> {
        self.keeping.as_ref()
    }

    /// Has what won for this change been put on record, where it has to be?
    pub(super) fn is_recorded(&self, change: &Change) -> bool {
        self.keeping.is_none() || change.is_recorded()
    }

    /// What has won is to be put on record, if it is not plain success of all.
    pub(super) fn record_outcome(&self, change: &Arc<Change>, agreed: Class) {
        let Some(keeping) = &self.keeping else {
            return;
        };
        if agreed == Class::Success && change.answers().all(|(_, class)| class == agreed) {
            return;
        }
        // Its bound says why it is never full; and if it were, the lanes that wait for it would wait, not forget.
        let queued = keeping.outcomes.push(Arc::clone(change));
        debug_assert!(queued.is_ok(), "the line of outcomes has room");
        self.sequencer.wake();
    }

    /// Writes down how far `child` has come. False if that failed: then nothing more may be sent.
    #[must_use]
    pub(super) fn put_slot(&self, child: usize, slot: Slot, once: bool) -> bool {
        let Some(keeping) = &self.keeping else {
            return true;
        };
        match keeping.slots.put(child, slot, once && keeping.sync_each) {
            Ok(()) => true,
            Err(failed) => {
                self.fail(failed);
                false
            }
        }
    }

    /// Nothing can be relied on any more.
    pub(super) fn fail(&self, failed: JournalFailed) {
        if let Some(keeping) = &self.keeping
            && keeping.failed.set(failed.why).is_ok()
        {
            self.sequencer.wake();
        }
    }
}
