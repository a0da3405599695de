//! When a client's change is answered, with whose answer, and who is judged by whom. Pure: reports in, decision out.
//!
//! Not the bookkeeping (that is [`Change`](super::Change)'s table, written by the lanes) and not what a lane does about
//! its own child ([`Lane`](super::Lane)).
//!
//! # Judging
//!
//! An answer has a [`Class`]. The children that were awaited and have answered vote, once all awaited have answered or
//! were given up:
//!
//! - *Failed* has no vote where anybody else has one: a 5xx says that a child could not, not that nobody should.
//! - Under [`Level::First`] any success wins, under [`Level::Quorum`] that many: the client may have been told already.
//! - Otherwise the majority wins; a tie goes to the primary's class or, if it has not voted, to that of the first child
//!   in the configuration that has.
//!
//! Whoever answered otherwise than the winning class, before or later, has diverged. The answer that the client gets is
//! always one of the winning class, so that nothing a client was told is missing on a child that goes on.
//!
//! Where no awaited child has answered, or none was awaited (under [`Level::Durable`] a change is taken while no child is
//! live), the first answer that comes decides: a child that returned and refused must not wait for siblings that may
//! never return.
//!
//! # Waiting
//!
//! Under [`Level::All`] every awaited child has to end: answer, or be demoted by its own lane. A lane demotes its child
//! only when a sibling *has* answered ([`demotion_at`]). Where none has answered within the deadline, counted from the
//! moment the change was on its way to each, nobody is demoted and the client is told that the change is pending.
//!
//! Under [`Level::First`] and [`Level::Quorum`] the client is answered as soon as enough children have succeeded, and as
//! under [`Level::All`] where they have not: with the refusal that won, or with "pending". A success that too few share is
//! never told as one: the change stays in the order, and those that are away will be sent it.
//!
//! Under [`Level::Durable`] nobody is waited for: the client is told that the change is accepted as soon as it is
//! published, which is after it has become durable where something makes it so ([`accept`]). Children vote all the same.
//!
//! A live change is waited for as under [`Level::All`], whatever the group's level. Its client gets an ordinary answer
//! only if all answered alike ([`together`]).

use std::time::Duration;

use crate::error::Fault;
use crate::limits::{CHANGE_GRACE, CHANGE_PATIENCE};
use crate::time::Time;

/// Whose answers a client waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// All children that were live when the change was numbered.
    #[default]
    All,
    /// The first that succeeds.
    First,
    /// The first so many that succeed; at least 1. Fewer is not a success.
    Quorum(u16),
    /// None: the change has its place in the order, and that is what is told. Taken also while no child is live.
    Durable,
    /// All children of the group: while one is not live, nothing is numbered. Then as [`Level::All`].
    AllOrRefuse,
}

/// What an answer's status says about the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 2xx and 3xx: carried out. Also a status that the rule lists as "applied before", on a re-send.
    Success,
    /// 4xx: refused for what it is.
    Rejected,
    /// 5xx, and 408, 425, 429, which say "not now": the child could not.
    Failed,
}

/// How an awaited child's part in a change ended, as far as the client has to wait for it. Set once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It answered.
    Answered {
        /// The status as it came.
        status: u16,
        /// What it means here.
        class: Class,
    },
    /// It did not answer in time although a sibling did. It may answer yet.
    Slow,
    /// Nothing was sent: it stopped being live first. It will get the change when it returns.
    Queued,
    /// It was sent and not answered, and will be sent again.
    InDoubt,
    /// It was sent, not answered, and may not be sent again.
    Unknowable,
    /// Nothing was sent and nothing will be: a live change is for the connection that was proven, and that is gone.
    Missed,
}

/// What is known of one awaited child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Index of the child in its group.
    pub child: usize,
    /// Since when the change has been on its way to it.
    pub in_flight_since: Option<Time>,
    /// How and when it ended.
    pub ended: Option<(End, Time)>,
}

/// What the client's task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Ask again after a wake, and at `until`.
    Wait {
        /// When the decision may change without a wake.
        until: Time,
    },
    /// Answer with what this child answered.
    Answer {
        /// Index of the child in its group.
        child: usize,
        /// Its status.
        status: u16,
    },
    /// 202 with the sequence: the change has its place, and that is all that is waited for.
    Accepted,
    /// 504 with the sequence: the change is in order and will be carried out.
    Pending,
    /// 503 with the sequence: it was sent to all, answered by none, and may not be sent again.
    Unknown,
    /// 502 with the sequence and the end at each child: a live change, and they are not alike.
    Partial,
    /// 503 with the sequence: it could not be put on record. No child was sent it; after a restart it may turn out to be
    /// there, and is carried out then.
    Unrecorded,
    /// It never got a sequence, for this reason.
    Refused(Fault),
}

impl Level {
    /// All of them, as an operator chooses among them; how many a quorum is, is a key of its own.
    pub const ALL: [Self; 5] = [Self::All, Self::First, Self::Quorum(1), Self::Durable, Self::AllOrRefuse];

    /// The word for it in the configuration and in `/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::First => "first",
            Self::Quorum(_) => "quorum",
            Self::Durable => "durable",
            Self::AllOrRefuse => "all_or_refuse",
        }
    }

    /// How many successes are enough, whatever the other children say; `None` if all are heard.
    #[must_use]
    pub const fn enough(self) -> Option<usize> {
        match self {
            Self::First => Some(1),
            Self::Quorum(count) => Some(count as usize),
            Self::All | Self::AllOrRefuse | Self::Durable => None,
        }
    }
}

impl Class {
    /// What a child did with a change, in a message.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Success => "carried out",
            Self::Rejected => "refused",
            Self::Failed => "failed",
        }
    }

    /// The class of a status, where no rule says otherwise.
    #[must_use]
    pub const fn of(status: u16) -> Self {
        match status {
            200..=399 => Self::Success,
            408 | 425 | 429 => Self::Failed,
            400..=499 => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

/// The class that wins among `votes` (child, class); `None` if nobody votes.
#[must_use]
pub fn vote(level: Level, primary: usize, votes: impl Iterator<Item = (usize, Class)> + Clone) -> Option<Class> {
    let count = |class| votes.clone().filter(|vote| vote.1 == class).count();
    let (successes, rejections) = (count(Class::Success), count(Class::Rejected));
    if successes == 0 && rejections == 0 {
        return votes.clone().next().map(|_| Class::Failed);
    }
    if level.enough().is_some_and(|enough| successes >= enough) {
        return Some(Class::Success);
    }
    if successes != rejections {
        return Some(if successes > rejections { Class::Success } else { Class::Rejected });
    }
    let mut leaders = votes.filter(|vote| vote.1 != Class::Failed);
    let first = leaders.clone().min_by_key(|vote| vote.0);
    leaders.find(|vote| vote.0 == primary).or(first).map(|vote| vote.1)
}

/// When a child that has not answered is demoted: never while no sibling has answered; else at its own deadline, and
/// not before the sibling's answer is [`CHANGE_GRACE`] old, so that children which are slow together stay together.
#[must_use]
pub fn demotion_at(in_flight_since: Time, sibling_answered_at: Option<Time>, deadline: Duration) -> Time {
    match sibling_answered_at {
        Some(at) => (in_flight_since + deadline).max(at + CHANGE_GRACE),
        None => Time::NEVER,
    }
}

/// Decides for the client. `agreed` is the class that has won, once one has; `reports` are those of the awaited
/// children, in any order; `submitted` is when the client's change was complete.
#[must_use]
pub fn decide(
    level: Level,
    primary: usize,
    agreed: Option<Class>,
    reports: impl Iterator<Item = Report> + Clone,
    submitted: Time,
    deadline: Duration,
    now: Time,
) -> Decision {
    let answered = |class: Class| {
        reports.clone().filter_map(move |report| match report.ended {
            Some((End::Answered { status, class: its }, at)) if its == class => Some((report.child, status, at)),
            _ => None,
        })
    };
    let best = |class: Class| {
        let of_primary = answered(class).find(|answer| answer.0 == primary);
        let (child, status, _) = of_primary.or_else(|| answered(class).min_by_key(|answer| (answer.2, answer.0)))?;
        Some(Decision::Answer { child, status })
    };
    if level.enough().is_some_and(|enough| answered(Class::Success).count() >= enough)
        && let Some(answer) = best(Class::Success)
    {
        return answer;
    }
    let mut open = reports.clone().filter(|report| report.ended.is_none()).peekable();
    if open.peek().is_none() {
        // A success that was enough has been told above; one that was not is none.
        let told = agreed.filter(|class| *class != Class::Success || level.enough().is_none());
        if let Some(answer) = told.and_then(best) {
            return answer;
        }
        let lost = |report: Report| matches!(report.ended, Some((End::Unknowable, _)));
        return if reports.clone().all(lost) { Decision::Unknown } else { Decision::Pending };
    }
    let patience = submitted + CHANGE_PATIENCE;
    let anybody = reports.clone().any(|report| matches!(report.ended, Some((End::Answered { .. }, _))));
    // Where somebody has answered, the lanes of the others end them: by an answer, or by demotion.
    let until = if anybody {
        patience
    } else {
        // One that still stands in line has its whole deadline before it.
        let each = open.map(|report| report.in_flight_since.unwrap_or(now) + deadline);
        each.max().unwrap_or(patience).min(patience)
    };
    if now >= until { Decision::Pending } else { Decision::Wait { until } }
}

/// Decides for the client under [`Level::Durable`].
#[must_use]
pub fn accept(is_published: bool, submitted: Time, now: Time) -> Decision {
    let until = submitted + CHANGE_PATIENCE;
    match is_published {
        true => Decision::Accepted,
        false if now < until => Decision::Wait { until },
        false => Decision::Pending,
    }
}

/// What [`decide`] says of a live change, which has no better answer than that of all: once all have ended, one that
/// ended unlike the others is told.
#[must_use]
pub fn together(decision: Decision, mut reports: impl Iterator<Item = Report>) -> Decision {
    if matches!(decision, Decision::Wait { .. } | Decision::Refused(_)) {
        return decision;
    }
    let class_of = |report: Report| match report.ended {
        None => None,
        Some((End::Answered { class, .. }, _)) => Some(Some(class)),
        Some(_) => Some(None),
    };
    let Some(first) = reports.next().and_then(class_of) else {
        return decision;
    };
    let mut alike = first.is_some();
    for report in reports {
        match class_of(report) {
            None => return decision,
            class => alike &= class == Some(first),
        }
    }
    if alike { decision } else { Decision::Partial }
}

#[cfg(test)]
mod tests;
