//! What the records of a journal amount to: the fold that a start reads, a checkpoint holds and `commit` keeps current.
//!
//! Pure, and no format: [`record`](super::record) writes it. A child is its *name* here; marks say places, and which
//! name stands at a place is told by the members on record before them. So a configuration may change its order.
//!
//! What grows with time is cut off below the *floor*: what every child that may still be sent something has confirmed.
//! A child that needs a reseed is sent nothing from the record, and a name that is no longer configured pins nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Bad, Record};
use crate::limits::{CHILDREN_MAX, FORMER_CHILDREN_MAX, KEPT_RANGES_MAX};
use crate::mirror::ack::Class;
use crate::mirror::durable::{Mark, Verdict};
use crate::route::Standing;

/// All that is known after a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What sequences belong to.
    pub epoch: u64,
    /// The sequence of the epoch's first change.
    pub epoch_first: u64,
    /// The last change; 0 if there is none.
    pub last: u64,
    /// Which name stands at which place; empty where none does.
    pub members: Vec<Box<str>>,
    /// By name. Every member is here, and former ones.
    pub children: BTreeMap<Box<str>, Known>,
    /// Changes above the floor for which something else than plain success has won.
    pub exceptions: BTreeMap<u64, Verdict>,
    /// Ranges `(after, through]` that children had confirmed before they were attached anew, or forgotten; ascending,
    /// apart and not empty.
    pub kept: Vec<(u64, u64)>,
    /// Live changes above the floor.
    pub live: BTreeSet<u64>,
}

/// What is known of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// It has confirmed everything up to here, or counts as if it had.
    pub applied: u64,
    /// At most `applied`. It has confirmed itself what came after this.
    pub attached: u64,
    /// Never `Replaying`: that is `Live` here.
    pub standing: Standing,
    /// For the operator.
    pub why: String,
}

// === impl State ===

impl State {
    /// What a journal begins with.
    #[must_use]
    pub fn first(epoch: u64, members: Vec<Box<str>>) -> Self {
        let children = members.iter().filter(|name| !name.is_empty()).map(|name| (name.clone(), Known::default()));
        Self { epoch, epoch_first: 1, children: children.collect(), members, ..Self::default() }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// It does not follow from what was there before.
    pub fn on_record(&mut self, record: &Record) -> Result<(), Bad> {
        match record {
            Record::Change(change) => self.on_change(change.sequence, change.live),
            Record::Mark(mark) => self.on_mark(mark),
            Record::Epoch { epoch, first, .. } => {
                if *epoch < self.epoch || *first != self.last + 1 {
                    return Err(Bad("an epoch does not follow the one before"));
                }
                (self.epoch, self.epoch_first) = (*epoch, *first);
                Ok(())
            }
            Record::Checkpoint(_) => Err(Bad("a checkpoint stands where none belongs")),
        }
    }

    /// Takes the next change.
    ///
    /// # Errors
    /// It is not the next.
    pub fn on_change(&mut self, sequence: u64, live: bool) -> Result<(), Bad> {
        if sequence != self.last + 1 {
            return Err(Bad("a change is not the next in order"));
        }
        self.last = sequence;
        if live {
            self.live.insert(sequence);
        }
        Ok(())
    }

    /// Takes the next mark.
    ///
    /// # Errors
    /// It speaks of a place that the group does not have, or of a change that is not on record.
    pub fn on_mark(&mut self, mark: &Mark) -> Result<(), Bad> {
        const AHEAD: Bad = Bad("a mark speaks of a change that is not on record");
        let last = self.last;
        match mark {
            Mark::Outcome { sequence, verdict, condemned } => {
                if *sequence > last {
                    return Err(AHEAD);
                }
                if *verdict != Verdict::Agreed(Class::Success) {
                    self.exceptions.insert(*sequence, *verdict);
                }
                for place in condemned {
                    let Some(child) = self.child(*place)? else { continue };
                    if child.standing != Standing::NeedsReseed {
                        child.standing = Standing::Diverged;
                        child.why = format!("it did not answer change {sequence} as the others did");
                    }
                }
            }
            Mark::Standing { child, standing, why } => {
                let Some(child) = self.child(*child)? else { return Ok(()) };
                child.standing = if *standing == Standing::Replaying { Standing::Live } else { *standing };
                child.why.clone_from(why);
            }
            Mark::Attach { child, from, at } => {
                if from > at || *at > last {
                    return Err(AHEAD);
                }
                let Some(child) = self.child(*child)? else { return Ok(()) };
                // Of one that came back under its name the record may know more.
                let confirmed = (child.attached, child.applied.max(*from));
                // What it had been told when it was told last; the operator's word ends that.
                *child = Known { applied: *at, attached: *at, ..Known::default() };
                self.keep(confirmed);
            }
            Mark::Applied(moved) => {
                for (place, applied) in moved {
                    if *applied > last {
                        return Err(AHEAD);
                    }
                    let Some(child) = self.child(*place)? else { continue };
                    child.applied = child.applied.max(*applied);
                }
            }
            Mark::Members(names) => {
                check_members(names)?;
                for name in names.iter().filter(|name| !name.is_empty()) {
                    self.children.entry(name.clone()).or_default();
                }
                self.members.clone_from(names);
                self.forget();
            }
        }
        Ok(())
    }

    /// Drops what nobody can ask for any more: what is at or below the floor, and what is no longer on record because
    /// it was `released`.
    pub fn prune(&mut self, released: u64) {
        let floor = self.floor(|standing| standing != Standing::NeedsReseed).max(released);
        while self.exceptions.first_key_value().is_some_and(|(sequence, _)| *sequence <= floor) {
            self.exceptions.pop_first();
        }
        while self.live.first().is_some_and(|sequence| *sequence <= floor) {
            self.live.pop_first();
        }
        self.kept.retain(|(_, through)| *through > floor);
    }

    /// What every member that may still be sent something from the record has confirmed, as far as the record says.
    #[must_use]
    pub fn needed_after(&self) -> u64 {
        self.floor(|standing| standing == Standing::Live)
    }

    /// Ranges of changes that some child has confirmed in its place.
    #[must_use]
    pub fn judged(&self) -> Vec<(u64, u64)> {
        let own = self.children.values().map(|child| (child.attached, child.applied));
        merged(self.kept.iter().copied().chain(own))
    }

    /// What is known of the member at a place.
    #[must_use]
    pub fn member(&self, place: usize) -> Option<&Known> {
        self.children.get(self.members.get(place)?)
    }

    /// Octets of a checkpoint of it, at most.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        let members: usize = self.members.iter().map(|name| 2 + name.len()).sum();
        let children: usize = self.children.iter().map(|(name, child)| 21 + name.len() + child.why.len()).sum();
        let tables = 9 * self.exceptions.len() + 16 * self.kept.len() + 8 * self.live.len();
        (128 + members + children + tables) as u64
    }

    /// Is what was read possible?
    pub(super) fn check(&self) -> Result<(), Bad> {
        check_members(&self.members)?;
        let known = self.members.iter().all(|name| name.is_empty() || self.children.contains_key(name));
        let placed = self.children.values().all(|child| child.attached <= child.applied && child.applied <= self.last);
        let ahead = [self.exceptions.keys().next_back(), self.live.last()];
        let behind = ahead.into_iter().flatten().all(|sequence| *sequence <= self.last);
        let kept = self.kept.iter().all(|(after, through)| after < through && *through <= self.last);
        let apart = self.kept.windows(2).all(|pair| pair[0].1 < pair[1].0);
        if known && placed && behind && kept && apart && (1..=self.last + 1).contains(&self.epoch_first) {
            Ok(())
        } else {
            Err(Bad("a checkpoint contradicts itself"))
        }
    }

    /// Who stands at a place; nobody, in a vacant one: what is still said of who stood there is late.
    fn child(&mut self, place: usize) -> Result<Option<&mut Known>, Bad> {
        match self.members.get(place) {
            Some(name) => Ok(self.children.get_mut(name)),
            None => Err(Bad("a mark speaks of a place that the group does not have")),
        }
    }

    fn floor(&self, pins: impl Fn(Standing) -> bool) -> u64 {
        let members = self.members.iter().filter_map(|name| self.children.get(name));
        members.filter(|child| pins(child.standing)).map(|child| child.applied).min().unwrap_or(self.last)
    }

    /// Keeps a range that a child has confirmed. The oldest go when there are too many: of what is not known to be
    /// judged nothing is assumed.
    fn keep(&mut self, range: (u64, u64)) {
        self.kept = merged(self.kept.iter().copied().chain([range]));
        let over = self.kept.len().saturating_sub(KEPT_RANGES_MAX);
        self.kept.drain(..over);
    }

    /// Forgets former children, where there are too many: those that had come least far.
    fn forget(&mut self) {
        let members: BTreeSet<&str> = self.members.iter().map(|name| &**name).collect();
        let mut former: Vec<(u64, Box<str>)> = self
            .children
            .iter()
            .filter(|(name, _)| !members.contains(&***name))
            .map(|(name, child)| (child.applied, name.clone()))
            .collect();
        let over = former.len().saturating_sub(FORMER_CHILDREN_MAX);
        former.sort_unstable();
        for (_, name) in &former[..over] {
            if let Some(child) = self.children.remove(name) {
                self.keep((child.attached, child.applied));
            }
        }
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { applied: 0, attached: 0, standing: Standing::Live, why: String::new() }
    }
}

fn check_members(names: &[Box<str>]) -> Result<(), Bad> {
    let mut seen = BTreeSet::new();
    let apart = names.iter().filter(|name| !name.is_empty()).all(|name| seen.insert(name));
    if apart && names.len() <= CHILDREN_MAX {
        Ok(())
    } else {
        Err(Bad("two members have one name, or there are too many"))
    }
}

/// Ranges `(after, through]` in ascending order, apart, without empty ones.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = ranges.filter(|(after, through)| after < through).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (after, through) in ranges {
        match merged.last_mut() {
            Some(before) if after <= before.1 => before.1 = before.1.max(through),
            _ => merged.push((after, through)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(changes: u64) -> State {
        let mut state = State::first(1, ["a", "b"].map(Into::into).to_vec());
        for sequence in 1..=changes {
            state.on_change(sequence, sequence % 10 == 0).expect("the next");
        }
        state
    }

    fn put(state: &mut State, mark: Mark) {
        state.on_mark(&mark).expect("a lawful mark");
        state.prune(0);
    }

    #[test]
    fn an_attach_keeps_what_was_confirmed_before() {
        let mut state = state(100);
        put(&mut state, Mark::Applied(vec![(0, 30), (1, 20)]));
        put(&mut state, Mark::Standing { child: 0, standing: Standing::NeedsReseed, why: "lost".to_owned() });
        assert_eq!(state.needed_after(), 20, "one that needs a reseed pins nothing");
        put(&mut state, Mark::Attach { child: 0, from: 30, at: 90 });
        put(&mut state, Mark::Applied(vec![(0, 95)]));
        assert_eq!(
            state.member(0).map(|child| (child.standing, child.applied, child.attached)),
            Some((Standing::Live, 95, 90))
        );
        assert_eq!(state.judged(), [(0, 30), (90, 95)]);
        put(&mut state, Mark::Applied(vec![(1, 40)]));
        assert_eq!((state.judged(), state.kept.len()), (vec![(0, 40), (90, 95)], 0));
    }

    #[test]
    fn what_all_have_confirmed_is_forgotten() {
        let mut state = state(50);
        for sequence in [5, 25, 45] {
            let verdict = Verdict::Agreed(Class::Rejected);
            put(&mut state, Mark::Outcome { sequence, verdict, condemned: vec![] });
        }
        put(&mut state, Mark::Outcome { sequence: 46, verdict: Verdict::Agreed(Class::Success), condemned: vec![1] });
        assert_eq!(state.member(1).map(|child| child.standing), Some(Standing::Diverged));
        put(&mut state, Mark::Applied(vec![(0, 50), (1, 30)]));
        assert_eq!(state.exceptions.keys().copied().collect::<Vec<_>>(), [45]);
        assert_eq!(state.live.iter().copied().collect::<Vec<_>>(), [40, 50]);
        state.prune(45);
        assert!(state.exceptions.is_empty(), "nor what is not on record any more");
    }

    #[test]
    fn a_child_is_its_name() {
        let mut state = state(50);
        put(&mut state, Mark::Applied(vec![(0, 50), (1, 30)]));
        put(&mut state, Mark::Members(["", "b", "c"].map(Into::into).to_vec()));
        put(&mut state, Mark::Applied(vec![(1, 40)]));
        assert_eq!(state.children["b"].applied, 40);
        assert_eq!(state.children["a"].applied, 50, "remembered");
        put(&mut state, Mark::Applied(vec![(0, 50)]));
        assert!(!state.children.contains_key(""), "nobody stands at a vacant place");
        assert!(state.on_mark(&Mark::Applied(vec![(3, 50)])).is_err(), "no place");
        assert!(state.on_mark(&Mark::Members(["b", "b"].map(Into::into).to_vec())).is_err());
        assert!(state.on_mark(&Mark::Applied(vec![(1, 51)])).is_err(), "ahead of the record");
    }

    #[test]
    fn former_children_and_kept_ranges_are_bounded() {
        let mut state = state(10_000);
        for round in 0..FORMER_CHILDREN_MAX as u64 + 50 {
            put(&mut state, Mark::Members(vec![format!("child-{round}").into()]));
            put(&mut state, Mark::Attach { child: 0, from: 0, at: 5000 + round * 3 });
            put(&mut state, Mark::Applied(vec![(0, 5000 + round * 3 + 1)]));
        }
        assert_eq!(state.children.len(), FORMER_CHILDREN_MAX + 1);
        for round in 0..KEPT_RANGES_MAX as u64 + 50 {
            state.keep((round * 3, round * 3 + 1));
        }
        assert_eq!(state.kept.len(), KEPT_RANGES_MAX);
        state.check().expect("lawful");
    }
}
