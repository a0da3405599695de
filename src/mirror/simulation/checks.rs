//! What is looked at after each moment of a story.

use super::{End, Level, Standing, World};
use std::time::Duration;

impl World {
    /// Any child that `select` could choose has all that any client was told; where no client is told anything, all that
    /// any child has shown.
    pub(super) fn read(&mut self) {
        let floor = self.group.table().shared.floor();
        if self.group.level() == Level::Durable {
            let shown = self.group.table().children.iter().map(|child| child.applied()).max().unwrap_or(0);
            assert!(floor.max(self.attached) >= shown, "I4: {shown} can be read, and the floor is {floor}");
        }
        for (child, toy) in self.group.table().children.iter().zip(&self.toys) {
            if child.is_live() && child.applied() >= floor {
                self.seen.reads += 1;
                assert!(toy.missing.is_empty(), "I4: {} serves reads without {:?}", child.name(), toy.missing);
            }
        }
    }

    pub(super) fn check(&mut self) {
        for (child, toy) in self.group.table().children.iter().zip(&self.toys) {
            if matches!(child.standing(), Standing::Live | Standing::Replaying) {
                let lacks = toy.missing.first().is_some_and(|first| *first <= child.applied());
                assert!(!lacks, "I10: {} says more than it did", child.name());
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
        self.check_waits();
        self.check_record();
    }

    /// Nobody waits for a child that has had its time while a sibling has answered, nor for one that is away.
    fn check_waits(&self) {
        for change in self.clients.iter().map(|client| &client.change).filter(|change| !change.live) {
            let answered_at = change.reports().filter_map(|report| match report.ended {
                Some((End::Answered { .. }, at)) => Some(at),
                _ => None,
            });
            let answered_at = answered_at.min();
            for report in change.reports().filter(|report| report.ended.is_none()) {
                let child = &self.group.table().children[report.child];
                let (sequence, name) = (change.sequence(), child.name());
                // What is in flight has its time, whatever else is known of the child.
                let on_its_way = self.lines[report.child].change.as_ref().is_some_and(|it| it.sequence == sequence);
                let may_answer = child.standing() == Standing::Live || on_its_way;
                assert!(
                    may_answer,
                    "I6: a client waits with {sequence} for {name}, which is away: {:?}",
                    self.lines[report.child].lane
                );
                if let (Some(since), Some(at)) = (report.in_flight_since, answered_at) {
                    let is_late = self.now >= since.max(at) + DEADLINE + WAKE;
                    assert!(!is_late, "I6: a client waits with {sequence} for {name}, which has had its time");
                }
            }
        }
    }

    fn check_record(&mut self) {
        let Some(store) = &self.store else { return };
        store.check_limits();
        let (durable, oldest) = store.extent();
        assert!(self.group.last_sequence() <= durable, "I3: published before it was on record");
        if self.is_dead() {
            // Nothing is sent any more, and nothing let go.
            return;
        }
        for child in self.group.table().occupied() {
            // Diverged ends by an attach only.
            let is_owed = matches!(child.standing(), Standing::Live | Standing::Replaying);
            let next = child.applied() + 1;
            assert!(
                !is_owed || next >= oldest,
                "I9: {} needs {next}, the oldest on record is {oldest}: {:?} {:?}",
                child.name(),
                child.standing(),
                child.why()
            );
        }
        self.seen.trimmed = self.seen.trimmed.max(oldest as usize - 1);
    }
}

/// Of a change, as the tests' groups have it.
const DEADLINE: Duration = Duration::from_secs(5);
/// What a lane may take to look whether a sibling has answered.
const WAKE: Duration = Duration::from_millis(200);
