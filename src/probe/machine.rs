//! The health machine: [`step`] takes a state and an event to the next state, [`next_probe`] says when to ask.
//!
//! Neither reads a clock nor draws a random number. A state packs into one word, so that the threads that see a child's
//! answers can share it by compare-and-swap.

use std::fmt;
use std::time::Duration;

use super::Options;
use super::jitter::jittered;
use crate::time::Time;

/// For this long after it has come back a child is on trial: falling again doubles the good probes it needs next.
pub const TRIAL: Duration = Duration::from_secs(60);
/// Good probes a child on trial can be made to need, unless `rise` asks for more.
pub const GOOD_PROBES_MAX: u8 = 4;
/// Falls during trials that are counted: more than double [`GOOD_PROBES_MAX`] is never needed.
const TRIALS_MAX: u8 = 3;
/// Bad probes in a row that are counted: any `interval_down` has reached any `backoff_max` by then.
const ATTEMPTS_MAX: u8 = 31;
/// Failed connects and bad probes in a row that are counted.
const COUNT_MAX: u8 = 15;

/// Whether a child answers. Times are kept in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It answers, or was never asked.
    Up {
        /// When it became so.
        since: Time,
        /// Falls so far, the last of which was the one it came back from; 0 when it is not on trial.
        trial: u8,
    },
    /// Something was not answered, and `fall` is not reached: a probe decides.
    Suspect {
        /// The moment that the next probe's time counts from.
        at: Time,
        /// Failed connects and bad probes in a row. Below `fall`.
        fails: u8,
        /// Bad probes since then; 0: ask at once.
        attempts: u8,
        /// As in `Up`, judged at the moment when it was left.
        trial: u8,
    },
    /// It does not answer. Only good probes end this.
    Down {
        /// The moment that the next probe's time counts from.
        at: Time,
        /// Bad probes in a row, the fall counting as one; 0: ask at once.
        attempts: u8,
        /// Good probes in a row. Below what is needed.
        good: u8,
        /// Falls so far, this one counted; at least 1, except after [`Event::Online`].
        trial: u8,
    },
}

/// A [`State`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It answers.
    Up,
    /// A probe is to decide.
    Suspect,
    /// It does not answer.
    Down,
}

/// What was seen of a child, or said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of an answer to a read came, whatever its status.
    ReadAnswered,
    /// A read was not answered.
    ReadFailed(Failure),
    /// A probe was answered as expected.
    ProbeGood,
    /// It was not.
    ProbeBad(Failure),
    /// The operator put the child online again: what was known before is old.
    Online,
}

/// Why there was no answer, or none that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its name has no address now.
    Unresolved,
    /// The connection was refused, reset while it was made, or there is no way to the host.
    Refused,
    /// No connection within the time-out.
    ConnectTimeout,
    /// The connection ended before an answer. A *reused* connection that ends so says nothing: its end may have
    /// crossed our request. Such a read is not told to [`step`].
    Closed,
    /// No answer within the time-out.
    AnswerTimeout,
    /// The answer is not HTTP as we read it.
    Malformed,
    /// A probe's answer had this status, which is not an expected one.
    Status(u16),
    /// A probe's answer had a body that does not fit.
    Body,
}

/// What the caller of [`step`] has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Ask the child now: wake whoever publishes its probes.
    Ask,
    /// The child has gone down: its lane waits for a probe, its reads go elsewhere.
    Fell,
    /// The child has come up: its lane replays.
    Rose,
}

/// Takes `state` to the next one. Pure.
///
/// An event that says nothing new gives back an equal state, so that a child that answers costs its callers no write.
#[must_use]
pub fn step(state: State, event: Event, now: Time, options: &Options) -> (State, Action) {
    let now = whole_ms(now);
    if event == Event::Online {
        return (State::Down { at: now, attempts: 0, good: 0, trial: 0 }, Action::Ask);
    }
    match state {
        State::Up { since, trial } => {
            // Out of `Up`, a trial is over when it has lasted.
            let trial = if now.since(since) < TRIAL { trial } else { 0 };
            match event {
                Event::ReadAnswered | Event::ProbeGood | Event::Online => (state, Action::None),
                Event::ReadFailed(failure) => read_failed(0, failure, now, trial, options),
                Event::ProbeBad(_) => probe_bad(0, 0, now, trial, options),
            }
        }
        State::Suspect { fails, attempts, trial, .. } => match event {
            Event::ReadAnswered | Event::ProbeGood | Event::Online => (State::Up { since: now, trial }, Action::None),
            // Asked already.
            Event::ReadFailed(failure) if !failure.is_connect() && attempts == 0 => (state, Action::None),
            Event::ReadFailed(failure) => read_failed(fails, failure, now, trial, options),
            Event::ProbeBad(_) => probe_bad(fails, attempts, now, trial, options),
        },
        State::Down { attempts, good, trial, .. } => match event {
            Event::ReadAnswered | Event::ReadFailed(_) | Event::Online => (state, Action::None),
            Event::ProbeGood if good + 1 >= needed(trial, options) => (State::Up { since: now, trial }, Action::Rose),
            Event::ProbeGood => (State::Down { at: now, attempts: 1, good: good + 1, trial }, Action::None),
            Event::ProbeBad(_) => {
                let attempts = (attempts + 1).min(ATTEMPTS_MAX);
                (State::Down { at: now, attempts, good: 0, trial }, Action::None)
            }
        },
    }
}

/// When the child is to be asked next; a moment that has passed means now.
///
/// `last_answer` is when it last answered a read or a probe, [`Time::ZERO`] if it never has: such a child is asked at
/// once. `seed` differs for each front and child, and decides where in the jitter the moment falls.
#[must_use]
pub fn next_probe(state: State, last_answer: Time, options: &Options, seed: u64) -> Time {
    let (from, interval) = match state {
        State::Up { since, .. } if last_answer == Time::ZERO => (since, Duration::ZERO),
        State::Up { since, .. } => (since.max(last_answer), options.interval_up),
        State::Suspect { at, attempts, .. } | State::Down { at, attempts, .. } => (at, back_off(attempts, options)),
    };
    from + jittered(interval, options.jitter_percent, seed ^ from.as_nanos())
}

impl State {
    /// A child that nothing is known of: up, and to be asked at once. So a front serves from its first moment.
    #[must_use]
    pub const fn new() -> Self {
        Self::Up { since: Time::ZERO, trial: 0 }
    }

    /// The state without its numbers.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Up { .. } => Kind::Up,
            Self::Suspect { .. } => Kind::Suspect,
            Self::Down { .. } => Kind::Down,
        }
    }

    /// The state in one word: two bits of kind, fifteen of numbers, one spare, 46 of milliseconds (two thousand years).
    #[must_use]
    pub fn to_word(self) -> u64 {
        let (kind, at, fails, attempts, good, trial) = match self {
            Self::Up { since, trial } => (0, since, 0, 0, 0, trial),
            Self::Suspect { at, fails, attempts, trial } => (1, at, fails, attempts, 0, trial),
            Self::Down { at, attempts, good, trial } => (2, at, 0, attempts, good, trial),
        };
        let low =
            kind | u64::from(trial) << 2 | u64::from(fails) << 4 | u64::from(good) << 8 | u64::from(attempts) << 12;
        low | (at.as_nanos() / 1_000_000) << 18
    }

    /// The state that [`to_word`](Self::to_word) packed.
    ///
    /// # Panics
    /// On a word that is none: our own mistake.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        let bits = |from: u32, count: u32| (word >> from & ((1 << count) - 1)) as u8;
        let at = Time::from_nanos((word >> 18) * 1_000_000);
        let (trial, fails, good, attempts) = (bits(2, 2), bits(4, 4), bits(8, 4), bits(12, 5));
        match bits(0, 2) {
            0 => Self::Up { since: at, trial },
            1 => Self::Suspect { at, fails, attempts, trial },
            2 => Self::Down { at, attempts, good, trial },
            kind => panic!("a health word of kind {kind}"),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl Failure {
    /// Was there no connection? Then the request cannot be the cause, nor has the child seen it.
    #[must_use]
    pub const fn is_connect(self) -> bool {
        matches!(self, Self::Unresolved | Self::Refused | Self::ConnectTimeout)
    }
}

impl fmt::Display for Failure {
    /// For the operator: what was seen, without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved => f.write_str("its name has no address"),
            Self::Refused => f.write_str("connection refused"),
            Self::ConnectTimeout => f.write_str("no connection within the time-out"),
            Self::Closed => f.write_str("connection closed before an answer"),
            Self::AnswerTimeout => f.write_str("no answer within the time-out"),
            Self::Malformed => f.write_str("the answer is not HTTP"),
            Self::Status(status) => write!(f, "answered with status {status}"),
            Self::Body => f.write_str("the answer's body is not the expected one"),
        }
    }
}

/// A read was not answered by a child that is not down.
fn read_failed(fails: u8, failure: Failure, now: Time, trial: u8, options: &Options) -> (State, Action) {
    if !failure.is_connect() {
        return (State::Suspect { at: now, fails, attempts: 0, trial }, Action::Ask);
    }
    let fails = (fails + 1).min(COUNT_MAX);
    if fails >= options.fall {
        return fall(now, trial);
    }
    (State::Suspect { at: now, fails, attempts: 0, trial }, Action::Ask)
}

/// A probe of a child that is not down was bad.
fn probe_bad(fails: u8, attempts: u8, now: Time, trial: u8, options: &Options) -> (State, Action) {
    let fails = (fails + 1).min(COUNT_MAX);
    if fails >= options.fall {
        return fall(now, trial);
    }
    let attempts = (attempts + 1).min(ATTEMPTS_MAX);
    (State::Suspect { at: now, fails, attempts, trial }, Action::None)
}

fn fall(now: Time, trial: u8) -> (State, Action) {
    let trial = (trial + 1).min(TRIALS_MAX);
    (State::Down { at: now, attempts: 1, good: 0, trial }, Action::Fell)
}

/// Good probes in a row that bring up a child with this many falls.
fn needed(trial: u8, options: &Options) -> u8 {
    let doubled = u32::from(options.rise) << trial.saturating_sub(1);
    let doubled = u8::try_from(doubled).unwrap_or(u8::MAX);
    doubled.min(GOOD_PROBES_MAX).max(options.rise).min(COUNT_MAX)
}

fn back_off(attempts: u8, options: &Options) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else { return Duration::ZERO };
    let factor = 1_u32.checked_shl(doublings.into()).unwrap_or(u32::MAX);
    options.interval_down.saturating_mul(factor).min(options.backoff_max.max(options.interval_down))
}

const fn whole_ms(time: Time) -> Time {
    Time::from_nanos(time.as_nanos() / 1_000_000 * 1_000_000)
}

#[cfg(test)]
mod tests;
