//! What is kept of a group's changes, as an operator wants to see it: in `/status`, `queue ls` and `/metrics`.
//!
//! The figures are the sequencer's ([`Account`]), a moment old, and are made to agree here with
//! what is known exactly: a child that has caught up since lacks nothing.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::status::Span;
use crate::mirror::{Account, MirrorGroup};
use crate::route::{Child, Standing};
use crate::time;

/// A group's journal. The names of the fields are an interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Why nothing can be put on record any more: no change is taken until a restart, reads go on.
    pub failed: Option<String>,
    /// The sequence that was given last ...
    pub given: u64,
    /// ... and the last that is on record for good.
    pub durable: u64,
    /// The oldest change on record.
    pub oldest: u64,
    /// Changes up to here need not be kept.
    pub released: u64,
    /// The child that is furthest behind: what it lacks has to be kept. `null` where none lacks anything.
    pub pinned_by: Option<String>,
    /// Files.
    pub segments: u64,
    /// Their octets ...
    pub bytes: u64,
    /// ... and what these may be at most.
    pub bytes_max: u64,
    /// Octets of the reserve that is left for outcomes on a full disk.
    pub reserve_bytes: u64,
    /// Batches of changes put on record since the start; one sync is one or several of them.
    pub batches: u64,
    /// Changes in them.
    pub batch_changes: u64,
    /// Syncs since the start.
    pub syncs: u64,
    /// Their mean, microseconds.
    pub sync_us_mean: u64,
    /// The longest, microseconds.
    pub sync_us_max: u64,
    /// Changes refused since the start because there was no room (`journal_full`).
    pub refused_full: u64,
    /// And because it had failed (`journal_failed`).
    pub refused_failed: u64,
}

/// What a child lacks, in a group with a journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Owed {
    /// Octets on record of the changes that it has not confirmed, about.
    pub bytes: u64,
    /// How long ago the oldest of them was numbered, about.
    pub oldest_age_s: Option<u64>,
    /// While it replays: changes that it confirms in a second.
    pub replay_per_s: Option<f64>,
    /// And until it is at the head, if both, it and the writers, go on as they do.
    pub replay_left_s: Option<u64>,
}

impl JournalStatus {
    /// `None` for a group that has no journal.
    pub(super) fn of(mirror: &MirrorGroup) -> Option<Self> {
        let account = mirror.account()?;
        let (durable, space) = (mirror.last_sequence(), account.space);
        Some(Self {
            failed: mirror.failed().map(str::to_owned),
            given: account.given.max(durable),
            durable,
            oldest: space.oldest,
            released: space.released,
            pinned_by: pinned_by(mirror, &account).map(|child| child.name().to_string()),
            segments: space.segments,
            bytes: space.bytes,
            bytes_max: space.bytes_max,
            reserve_bytes: space.reserve,
            batches: account.batches,
            batch_changes: account.changes,
            syncs: space.syncs,
            sync_us_mean: space.sync_us.checked_div(space.syncs).unwrap_or_default(),
            sync_us_max: space.sync_us_max,
            refused_full: mirror.refused_full(),
            refused_failed: mirror.refused_failed(),
        })
    }
}

/// The child that is behind and was furthest behind when the account was drawn up.
pub(super) fn pinned_by<'a>(mirror: &'a MirrorGroup, account: &Account) -> Option<&'a Child> {
    let child = &**mirror.table().children.get(account.pinned_by?)?;
    (mirror.lag(child.index) > 0 && !child.is_vacant()).then_some(child)
}

impl Owed {
    /// `None` for a group that has no journal.
    pub(super) fn of(mirror: &MirrorGroup, child: &Child) -> Option<Self> {
        let account = mirror.account()?;
        let backlog = account.backlogs.get(child.index).copied().unwrap_or_default();
        if mirror.lag(child.index) == 0 || child.standing() == Standing::NeedsReseed {
            return Some(Self::default());
        }
        let pace = backlog.pace.filter(|_| child.standing() == Standing::Replaying);
        Some(Self {
            bytes: backlog.bytes,
            oldest_age_s: backlog.oldest_unix_ms.map(|then| time::unix_ms().saturating_sub(then) / 1000),
            replay_per_s: pace.map(|pace| pace.per_s),
            replay_left_s: pace.and_then(|pace| pace.left_s),
        })
    }
}

impl fmt::Display for JournalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.failed {
            writeln!(f, "  JOURNAL FAILED, no change is taken, reads go on: {why}")?;
        }
        let Self { segments, bytes, bytes_max, oldest, durable, .. } = self;
        write!(f, "  journal: {} of {} in {segments} segments", Octets(*bytes), Octets(*bytes_max))?;
        if oldest <= durable {
            write!(f, ", changes {oldest} to {durable}")?;
        }
        match &self.pinned_by {
            Some(child) => writeln!(f, "; what {child} lacks is kept"),
            None => writeln!(f),
        }?;
        if self.refused_full + self.refused_failed > 0 {
            let (full, failed) = (self.refused_full, self.refused_failed);
            writeln!(f, "  changes refused: {full} journal_full, {failed} journal_failed")?;
        }
        Ok(())
    }
}

/// `12 KiB, 3m old, 480/s, 2m left`.
impl fmt::Display for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Octets(self.bytes))?;
        if let Some(age) = self.oldest_age_s {
            write!(f, ", {} old", Span(Duration::from_secs(age)))?;
        }
        if let Some(pace) = self.replay_per_s {
            write!(f, ", {pace:.0}/s")?;
            match self.replay_left_s {
                Some(left) => write!(f, ", {} left", Span(Duration::from_secs(left)))?,
                None => write!(f, ", gains nothing")?,
            }
        }
        Ok(())
    }
}

/// Octets in their largest unit.
struct Octets(u64);

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            octets @ ..=9_999 => write!(f, "{octets} B"),
            octets @ ..=10_239_999 => write!(f, "{} KiB", octets >> 10),
            octets @ ..=10_485_759_999 => write!(f, "{} MiB", octets >> 20),
            octets => write!(f, "{} GiB", octets >> 30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_lacks_is_one_line() {
        let owed =
            |replay_per_s, replay_left_s| Owed { bytes: 3 << 20, oldest_age_s: Some(600), replay_per_s, replay_left_s };
        assert_eq!(owed(None, None).to_string(), "3072 KiB, 10m old");
        assert_eq!(owed(Some(480.4), Some(60)).to_string(), "3072 KiB, 10m old, 480/s, 60s left");
        assert_eq!(owed(Some(0.0), None).to_string(), "3072 KiB, 10m old, 0/s, gains nothing");
        assert_eq!(Owed::default().to_string(), "0 B");
    }
}
