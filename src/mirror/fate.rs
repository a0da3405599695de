//! What became of a change, as far as it is known: at each child, and in all.
//!
//! For people and for clients that ask later; nothing is decided by it. What the ring still holds is told by the change's
//! own table; of what it has let go, only how far each child has come.

use std::fmt::Write as _;

use super::ack::{Class, End};
use super::{Change, MirrorGroup, Read, What};
use crate::error::Fault;
use crate::limits::CHILDREN_TOLD_MAX;
use crate::route::Standing;

/// What became of a change at one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It answered.
    Answered {
        /// The status as it came.
        status: u16,
        /// What it means here.
        class: Class,
    },
    /// Its turn is now, or was expected to be: no answer yet.
    Pending,
    /// Not sent yet: the child was away.
    Queued,
    /// On its way for too long; a sibling has answered.
    Slow,
    /// Sent and not answered; it will be sent again.
    InDoubt,
    /// Sent and not answered; it may not be sent again.
    Unknown,
    /// Not sent, and never to be: a live change that the child missed.
    NotSent,
    /// It will not be sent: the child has answered another change unlike its siblings.
    Diverged,
    /// It will not be sent: the child lacks more than can be sent to it.
    NeedsReseed,
    /// The child has passed it; how it answered is not known (any more). So is what an operator has attached it behind.
    Confirmed,
    /// The child has not passed it.
    Unconfirmed,
}

/// What became of a change in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not known yet: children have still to answer.
    Pending,
    /// Carried out. Children that were away may still have to be sent it.
    Done,
    /// Refused by those that were asked.
    Refused,
    /// None that was asked could carry it out.
    Failed,
    /// None that was sent it answered, and none may be sent it again.
    Unknown,
    /// The ring holds it no more.
    Forgotten,
}

/// All that is known of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In all.
    pub state: State,
    /// At each child, in the order of the configuration.
    pub children: Vec<Fate>,
}

impl Fate {
    /// The word for it, where a status does not say more.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered { class: Class::Success, .. } => "done",
            Self::Answered { class: Class::Rejected, .. } => "refused",
            Self::Answered { class: Class::Failed, .. } => "failed",
            Self::Pending => "pending",
            Self::Queued => "queued",
            Self::Slow => "slow",
            Self::InDoubt => "in_doubt",
            Self::Unknown => "unknown",
            Self::NotSent => "not_sent",
            Self::Diverged => "diverged",
            Self::NeedsReseed => "needs_reseed",
            Self::Confirmed => "confirmed",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

impl State {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Forgotten => "forgotten",
        }
    }
}

impl MirrorGroup {
    /// What is known of the change with that sequence. Costs a look at the ring for each halving of it, and one at each
    /// child.
    ///
    /// # Errors
    /// [`Fault::ChangeUnknown`] if there is no such change, with why.
    pub fn trace(&self, epoch: u64, sequence: u64) -> Result<Trace, Fault> {
        if epoch != self.epoch {
            return Err(Fault::ChangeUnknown(OTHER_EPOCH));
        }
        if sequence == 0 || sequence > self.last_sequence() {
            return Err(Fault::ChangeUnknown(NOT_GIVEN));
        }
        let all = 0..self.table.children.len();
        if let Some(position) = self.ring.find(sequence)
            && let Read::Entry(entry) = self.ring.read(position)
            && let What::Change(change) = &entry.what
        {
            let children = all.map(|child| self.fate(change, child)).collect();
            return Ok(Trace { state: self.state(change), children });
        }
        let cursor = |child| if self.child(child).applied() >= sequence { Fate::Confirmed } else { Fate::Unconfirmed };
        Ok(Trace { state: State::Forgotten, children: all.map(cursor).collect() })
    }

    /// Checks a sequence that a client has from a reply and wants a child to have reached.
    ///
    /// # Errors
    /// [`Fault::MinSequenceUnknown`] if no child can ever reach it, with why.
    pub fn check_reachable(&self, epoch: u64, sequence: u64) -> Result<(), Fault> {
        if epoch != self.epoch {
            return Err(Fault::MinSequenceUnknown(OTHER_EPOCH_ASKED));
        }
        if sequence > self.last_sequence() {
            return Err(Fault::MinSequenceUnknown(NOT_GIVEN_ASKED));
        }
        Ok(())
    }

    /// What became of a numbered change at `child`.
    #[must_use]
    pub fn fate(&self, change: &Change, child: usize) -> Fate {
        if let Some((status, class)) = change.last_word(child) {
            return Fate::Answered { status, class };
        }
        let its = self.child(child);
        match change.ended(child) {
            Some((End::Missed, _)) => return Fate::NotSent,
            Some((End::Unknowable, _)) => return Fate::Unknown,
            _ if change.ticket().is_some_and(|ticket| its.applied() >= ticket.sequence) => return Fate::Confirmed,
            _ => {}
        }
        match (its.standing(), change.ended(child)) {
            (Standing::Diverged, _) => Fate::Diverged,
            (Standing::NeedsReseed, _) => Fate::NeedsReseed,
            (_, Some((End::Slow, _))) => Fate::Slow,
            (_, Some((End::InDoubt, _))) => Fate::InDoubt,
            (_, Some((End::Answered { status, class }, _))) => Fate::Answered { status, class },
            (_, Some((End::Queued, _))) => Fate::Queued,
            (_, _) if change.awaits(child) || change.was_sent(child) => Fate::Pending,
            (_, _) => Fate::Queued,
        }
    }

    /// What became of a numbered change at the children, as a field of the reply says it: `a=200, b=200, c=queued`; where
    /// there are many, how many of each: `children=40, done=39, queued=1`.
    #[must_use]
    pub fn fates(&self, change: &Change) -> String {
        let mut text = String::new();
        let children = self.table.occupied();
        let total = self.table.occupants();
        if total <= CHILDREN_TOLD_MAX {
            for child in children {
                let lead = if text.is_empty() { "" } else { ", " };
                let written = match self.fate(change, child.index) {
                    Fate::Answered { status, .. } => write!(text, "{lead}{}={status}", child.name()),
                    other => write!(text, "{lead}{}={}", child.name(), other.word()),
                };
                written.expect("a String takes everything");
            }
            return text;
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for child in children {
            let word = self.fate(change, child.index).word();
            match counts.iter_mut().find(|count| count.0 == word) {
                Some(count) => count.1 += 1,
                None => counts.push((word, 1)),
            }
        }
        write!(text, "children={total}").expect("a String takes everything");
        for (word, count) in counts {
            write!(text, ", {word}={count}").expect("a String takes everything");
        }
        text
    }

    fn state(&self, change: &Change) -> State {
        let successes = change.answers().filter(|answer| answer.1 == Class::Success && change.awaits(answer.0)).count();
        let enough = self.level_of(change).enough().is_some_and(|enough| successes >= enough);
        match change.agreed() {
            _ if enough => State::Done,
            Some(Class::Success) => State::Done,
            Some(Class::Rejected) => State::Refused,
            Some(Class::Failed) => State::Failed,
            None => {
                let mut children = self.table.occupied().map(|child| self.fate(change, child.index));
                if children.all(|fate| matches!(fate, Fate::Unknown | Fate::NotSent)) {
                    State::Unknown
                } else {
                    State::Pending
                }
            }
        }
    }
}

/// Reads `EPOCH:NUMBER`, as [`Ticket`](super::Ticket) is written: decimal digits only.
///
/// ```
/// use antiphon::mirror::place;
/// assert_eq!(place(b"17:4"), Some((17, 4)));
/// assert_eq!(place(b"17:+4"), None);
/// ```
#[must_use]
pub fn place(text: &[u8]) -> Option<(u64, u64)> {
    let colon = text.iter().position(|octet| *octet == b':')?;
    Some((number(&text[..colon])?, number(&text[colon + 1..])?))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, octet| {
        let digit = octet.is_ascii_digit().then(|| u64::from(octet - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

// What the client is told.
const OTHER_EPOCH: &str = "This sequence belongs to another epoch than the group's present one: what became of the change is not known here any more.";
const NOT_GIVEN: &str = "No change of this group has this sequence yet.";
const OTHER_EPOCH_ASKED: &str = "Antiphon-Min-Sequence names another epoch than the group's present one, so no child can be known to have come so far. Read without it, or with the sequence of a newer reply.";
const NOT_GIVEN_ASKED: &str = "Antiphon-Min-Sequence names a sequence that no change of this group has yet. Send what the reply to a change said.";

#[cfg(test)]
mod tests;
