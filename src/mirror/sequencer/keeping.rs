//! The sequencer's part in what is kept: which marks go with a batch, what gives way where there is no room, and what is
//! let go.
//!
//! Changes and outcomes are committed at once; how far children have come goes with the next batch, or alone after a
//! moment: after a power cut it only decides how much is sent again.

use std::time::Duration;

use super::Sequencer;
use crate::error::Fault;
use crate::limits::{ACCOUNT_PAUSE, MARKS_PAUSE, RETENTION_LOOK, VERDICTS_MAX};
use crate::mirror::account::Accountant;
use crate::mirror::durable::{Journal, Mark, Verdict};
use crate::mirror::{Change, Class, MirrorGroup, OnFull, Retention};
use crate::route::{Child, ChildSet, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::{self, Time};

/// The journal, and what of the group is on record.
pub(super) struct Keeper {
    journal: Box<dyn Journal>,
    retention: Retention,
    applied: Vec<u64>,
    /// `None` of whoever has just come.
    standing: Vec<Option<Standing>>,
    /// The members on record, by name; empty where nobody stands.
    members: Vec<Box<str>>,
    /// Who came while we run, and was not attached since: the record knows nothing that it has confirmed, whatever was
    /// confirmed in its place before.
    came: ChildSet,
    /// [`GroupTable::moves`](crate::route::GroupTable::moves) as of the members on record.
    moves: u64,
    /// What the start has to put on record.
    first: Vec<Mark>,
    /// Octets of the changes that are numbered and not committed.
    waiting_bytes: u64,
    /// When marks that can wait are committed.
    due: Time,
    /// When the backlog is looked at again.
    look_at: Time,
    /// Changes up to here have been released.
    released: u64,
    accountant: Accountant,
    /// When the next account may be drawn up.
    account_at: Time,
    /// Something has been put on record since the last one.
    news: bool,
}

/// Marks of one batch, and who waits for them.
#[derive(Default)]
struct Batch {
    marks: Vec<Mark>,
    outcomes: Vec<Arc<Change>>,
    attaches: Vec<(usize, u64)>,
}

impl Keeper {
    pub(super) fn new(group: &MirrorGroup, journal: Box<dyn Journal>, retention: Retention, first: Vec<Mark>) -> Self {
        let children = &group.table.children;
        Self {
            journal,
            retention,
            applied: children.iter().map(|child| child.applied()).collect(),
            standing: children.iter().map(|child| Some(on_record(child.standing()))).collect(),
            members: group.table.members(),
            came: ChildSet::new(),
            moves: group.table.moves(),
            first,
            waiting_bytes: 0,
            due: Time::NEVER,
            look_at: Time::ZERO,
            released: 0,
            accountant: Accountant::new(children.len()),
            account_at: Time::ZERO,
            news: false,
        }
    }

    /// May one more change of so many octets be numbered?
    ///
    /// # Errors
    /// The fault to refuse it with.
    pub(super) fn admit(&mut self, group: &MirrorGroup, bytes: u64) -> Result<(), Fault> {
        if group.failed().is_some() {
            return Err(Fault::JournalFailed);
        }
        if let Err(full) = self.journal.room(self.waiting_bytes + bytes) {
            if self.retention.on_full == OnFull::DropChild {
                drop_furthest(group, &full.why);
            }
            return Err(Fault::JournalFull);
        }
        Ok(())
    }

    pub(super) fn on_numbered(&mut self, bytes: u64) {
        self.waiting_bytes += bytes;
    }

    /// Is a child owed more than is kept for it? Then it is dropped, or new changes are refused.
    pub(super) fn judge_backlog(&mut self, group: &MirrorGroup, now: Time) -> Result<(), Fault> {
        if now < self.look_at {
            return Ok(());
        }
        let mut verdict = Ok(());
        for child in group.table.children.iter().filter(|child| child.standing() != Standing::NeedsReseed) {
            let Some(why) = self.overdue(child) else { continue };
            match self.retention.on_full {
                OnFull::DropChild => drop_out(group, child.index, &why),
                OnFull::RejectWrites => verdict = Err(Fault::JournalFull),
            }
        }
        // While changes are refused each is an occasion to look: the child may have caught up.
        self.look_at = if verdict.is_ok() { now + RETENTION_LOOK } else { now };
        verdict
    }

    fn overdue(&self, child: &Child) -> Option<String> {
        let Retention { backlog_bytes_max, backlog_age_max, .. } = self.retention;
        let bytes = self.journal.bytes_after(child.applied());
        if bytes > backlog_bytes_max {
            return Some(format!(
                "is owed {bytes} octets of changes, more than backlog_bytes_max = {backlog_bytes_max}"
            ));
        }
        let age = self.journal.age_after(child.applied()).map(|then| time::unix_ms().saturating_sub(then));
        let age = Duration::from_millis(age?);
        (age > backlog_age_max).then(|| {
            format!(
                "is owed changes {} s old, more than backlog_age_max = {} s",
                age.as_secs(),
                backlog_age_max.as_secs()
            )
        })
    }

    /// What cannot wait.
    fn collect(&mut self, group: &MirrorGroup) -> Batch {
        let mut batch = Batch { marks: std::mem::take(&mut self.first), ..Batch::default() };
        if let Some(keeping) = group.keeping() {
            while let Some(change) = keeping.outcomes.pop() {
                batch.note_outcome(group, change);
            }
        }
        let moves = group.table.moves();
        if moves != std::mem::replace(&mut self.moves, moves) {
            // How far they had come who leave; and all of it before what is said of whoever has come.
            batch.marks.extend(self.collect_moved(group));
            batch.marks.push(Mark::Members(self.note_members(group)));
        }
        for child in &group.table.children {
            let index = child.index;
            if let Some(attached) = group.posts[index].attached.swap(None) {
                batch.note_attach(group, index, *attached, self.came.contains(index));
                self.came.remove(index);
            }
            let standing = on_record(child.standing());
            if self.standing[index].replace(standing) != Some(standing) {
                let why = child.why().text.into_owned();
                batch.marks.push(Mark::Standing { child: index, standing, why });
            }
        }
        batch
    }

    /// Who stands where now. Of whoever has come the standing is on record from the first: the name may be known, and
    /// say something else.
    fn note_members(&mut self, group: &MirrorGroup) -> Vec<Box<str>> {
        let members = group.table.members();
        for (index, name) in members.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if *name != self.members[index] {
                self.standing[index] = None;
                self.came.insert(index);
            }
        }
        self.members.clone_from(&members);
        members
    }

    /// Which children have moved since that was last on record. They count as recorded from here on.
    fn collect_moved(&mut self, group: &MirrorGroup) -> Option<Mark> {
        let mut moved = Vec::new();
        for (child, recorded) in group.table.children.iter().zip(&mut self.applied) {
            let applied = child.applied();
            if applied != std::mem::replace(recorded, applied) {
                moved.push((child.index, applied));
            }
        }
        (!moved.is_empty()).then_some(Mark::Applied(moved))
    }

    fn has_moved(&self, group: &MirrorGroup) -> bool {
        group.table.children.iter().zip(&self.applied).any(|(child, recorded)| child.applied() != *recorded)
    }

    /// Lets go what no child needs any more, as far as that is on record.
    fn release(&mut self, group: &MirrorGroup) {
        let pins =
            self.standing.iter().zip(&self.applied).filter(|(standing, _)| **standing != Some(Standing::NeedsReseed));
        let through = pins.map(|(_, applied)| *applied).min().unwrap_or_else(|| group.last_sequence());
        if through <= self.released {
            return;
        }
        self.released = through;
        self.journal.release(through);
        if let Some(past) = &group.past {
            past.verdicts().forget(through);
        }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.attaches.is_empty()
    }

    fn note_outcome(&mut self, group: &MirrorGroup, change: Arc<Change>) {
        let (sequence, Some(agreed), Some(past)) = (change.sequence(), change.agreed(), &group.past) else {
            return;
        };
        let condemned = change.answers().filter(|(_, class)| *class != agreed).map(|(child, _)| child).collect();
        let verdict = Verdict::Agreed(agreed);
        self.marks.push(Mark::Outcome { sequence, verdict, condemned });
        if agreed != Class::Success {
            let mut verdicts = past.verdicts();
            verdicts.except(sequence, verdict);
            if verdicts.exceptions() > VERDICTS_MAX {
                drop(verdicts);
                drop_furthest(group, "more refused changes than are remembered");
            }
        }
        self.outcomes.push(change);
    }

    fn note_attach(&mut self, group: &MirrorGroup, child: usize, (from, at): (u64, u64), is_new: bool) {
        if from != at
            && let Some(past) = &group.past
        {
            past.verdicts().attach(child, from, at);
        }
        let from = if is_new { 0 } else { from };
        if from != at {
            self.marks.push(Mark::Attach { child, from, at });
        }
        self.attaches.push((child, group.posts[child].attaches.load(Ordering::Relaxed)));
    }
}

impl Sequencer {
    /// Puts what is numbered on record, and publishes it. Returns when there is more to put on record.
    pub(super) fn commit(&mut self, now: Time) -> Time {
        let Some(keeper) = &mut self.keeper else {
            return self.attach_without_record();
        };
        if self.group.failed().is_some() {
            self.give_up();
            return Time::NEVER;
        }
        let mut batch = keeper.collect(&self.group);
        if self.numbered.is_empty() && batch.is_empty() {
            if !keeper.has_moved(&self.group) {
                return Time::NEVER;
            }
            if keeper.due == Time::NEVER {
                keeper.due = now + MARKS_PAUSE;
            }
            if now < keeper.due {
                return keeper.due;
            }
        }
        batch.marks.extend(keeper.collect_moved(&self.group));
        keeper.due = Time::NEVER;
        keeper.waiting_bytes = 0;
        if let Err(failed) = keeper.journal.commit(&batch.marks, self.numbered.make_contiguous()) {
            tracing::error!(group = %self.group.table.name, why = failed.why, "the journal has failed: no change is taken until a restart");
            self.group.fail(failed);
            self.give_up();
            return Time::NEVER;
        }
        keeper.accountant.on_batch(self.numbered.len());
        keeper.news = true;
        keeper.release(&self.group);
        let posts = &self.group.posts;
        for (child, ask) in batch.attaches {
            posts[child].attaches_recorded.store(ask, Ordering::Release);
        }
        for change in &batch.outcomes {
            change.set_recorded();
        }
        if !batch.outcomes.is_empty() {
            self.group.wake_lanes();
        }
        self.publish_all(now);
        Time::NEVER
    }

    /// Draws up the account for displays, if it is time. Returns when it is, where there will be news by then.
    pub(super) fn show(&mut self, now: Time) -> Time {
        let (Some(keeper), Some(keeping)) = (&mut self.keeper, self.group.keeping()) else {
            return Time::NEVER;
        };
        if now < keeper.account_at {
            return if keeper.news { keeper.account_at } else { Time::NEVER };
        }
        let account = keeper.accountant.draw_up(&self.group, &*keeper.journal, self.given, now);
        keeping.account.store(Arc::new(account));
        (keeper.account_at, keeper.news) = (now + ACCOUNT_PAUSE, false);
        Time::NEVER
    }

    /// The last words of a clean end: how far each child has come goes on record now, so that even a power cut after it
    /// leaves nothing in doubt.
    pub fn close(&mut self, now: Time) {
        if let Some(keeper) = &mut self.keeper {
            keeper.due = now;
        }
        self.commit(now);
    }

    /// What is numbered will not be published, and may be on record all the same.
    fn give_up(&mut self) {
        for change in self.numbered.drain(..) {
            change.set_unrecorded();
        }
    }

    /// Without a record, an attach is as good as it gets.
    fn attach_without_record(&self) -> Time {
        for post in &self.group.posts {
            if post.attached.swap(None).is_some() {
                post.attaches_recorded.store(post.attaches.load(Ordering::Relaxed), Ordering::Release);
            }
        }
        Time::NEVER
    }
}

/// Replaying is no standing on record: whoever was live and is behind, replays.
const fn on_record(standing: Standing) -> Standing {
    match standing {
        Standing::Live | Standing::Replaying => Standing::Live,
        Standing::Diverged => Standing::Diverged,
        Standing::NeedsReseed => Standing::NeedsReseed,
    }
}

/// Gives up the child that is furthest behind, if any is.
fn drop_furthest(group: &MirrorGroup, why: &str) {
    let children = group.table.children.iter().filter(|child| child.standing() != Standing::NeedsReseed);
    if let Some(child) = children.min_by_key(|child| child.applied()).filter(|child| group.lag(child.index) > 0) {
        drop_out(group, child.index, why);
    }
}

fn drop_out(group: &MirrorGroup, child: usize, why: &str) {
    group.posts[child].dropped.store(Some(Arc::new(why.to_owned())));
    group.wake_lane(child);
}
