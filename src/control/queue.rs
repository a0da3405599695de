//! What each child has missed, as the admin side shows it: as JSON, as lines for a terminal, and in the DAH dialect.
//!
//! There is no queue to look into, only a cursor a child: what it has missed is what the ring, and the journal before it,
//! hold behind that.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::account::{Owed, pinned_by};
use super::front::View;
use crate::mirror::{MirrorGroup, Read, What};
use crate::route::GroupTable;

/// One group's cursors. The names of the fields are an interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct Queue {
    /// The group.
    pub group: String,
    /// The epoch of the sequences.
    pub epoch: u64,
    /// The sequence given last.
    pub sequence: u64,
    /// The child that is furthest behind, so that what it lacks is kept; absent without a journal.
    pub pinned_by: Option<String>,
    /// In the order of the configuration.
    pub children: Vec<Pending>,
}

/// What waits for one child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The child.
    pub name: String,
    /// As `/status` says it.
    pub state: String,
    /// The last change that it has confirmed.
    pub cursor: u64,
    /// Changes that it has not.
    pub lag: u64,
    /// What these are on record; absent without a journal.
    pub owed: Option<Owed>,
    /// The change that it is in doubt about.
    pub doubt: Option<u64>,
    /// The first of these.
    pub first_pending: Option<u64>,
    /// Its action; absent where it is not in memory any more.
    pub first_action: Option<String>,
}

/// All groups.
#[must_use]
pub fn of(view: &View) -> Vec<Queue> {
    view.routes.load_full().groups.iter().map(|group| of_group(view, group)).collect()
}

/// One group.
#[must_use]
pub fn of_group(view: &View, group: &GroupTable) -> Queue {
    let mirror = &view.mirrors[group.index];
    let children: Vec<_> = group
        .occupied()
        .map(|child| {
            // One look: a child that confirms meanwhile must not seem to be ahead.
            let (cursor, lag) = (child.applied(), mirror.lag(child.index));
            (child, cursor, lag, (lag > 0).then_some(cursor + 1))
        })
        .collect();
    let mut names: HashMap<u64, Option<String>> =
        children.iter().filter_map(|(.., first)| Some(((*first)?, None))).collect();
    name_all(mirror, &mut names);
    Queue {
        group: group.name.to_string(),
        epoch: mirror.epoch(),
        sequence: mirror.last_sequence(),
        pinned_by: mirror.account().and_then(|account| Some(pinned_by(mirror, &account)?.name().to_string())),
        children: children
            .into_iter()
            .map(|(child, cursor, lag, first_pending)| Pending {
                name: child.name().to_string(),
                state: child.shown().name().to_owned(),
                cursor,
                lag,
                owed: Owed::of(mirror, child),
                doubt: child.doubt(),
                first_pending,
                first_action: first_pending.and_then(|first| names.get(&first).cloned().flatten()),
            })
            .collect(),
    }
}

/// Finds the actions of these sequences; one walk through the ring, which is bounded, and only if there are any.
fn name_all(mirror: &MirrorGroup, names: &mut HashMap<u64, Option<String>>) {
    let ring = mirror.ring();
    let mut left = names.len();
    for position in ring.tail()..ring.head() {
        if left == 0 {
            return;
        }
        if let Read::Entry(entry) = ring.read(position)
            && let What::Change(change) = &entry.what
            && let Some(name) = names.get_mut(&entry.through)
        {
            *name = Some(change.name.to_string());
            left -= 1;
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}: last change {}:{}", self.group, self.epoch, self.sequence)?;
        match &self.pinned_by {
            Some(child) => writeln!(f, "; what {child} lacks is kept")?,
            None => writeln!(f)?,
        }
        writeln!(f, "  child          state            cursor       lag  first pending")?;
        for Pending { name, state, cursor, lag, owed, doubt, first_pending, first_action } in &self.children {
            let first = first_pending.map_or_else(|| "-".to_owned(), |first| first.to_string());
            let action = first_action.as_deref().unwrap_or_default();
            let line = format!("  {name:<14} {state:<13} {cursor:>9} {lag:>9}  {first} {action}");
            write!(f, "{}", line.trim_end())?;
            if doubt.is_some() {
                write!(f, " in doubt")?;
            }
            match owed.as_ref().filter(|owed| *lag > 0 && owed.bytes > 0) {
                Some(owed) => writeln!(f, "  ({owed})")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
