//! A child's health as threads share it: the packed [`State`] and two moments beside it.
//!
//! The judgement is [`probe::step`]; this file only makes its transitions whole. Every thread that saw something of
//! the child calls [`Health::on`]; a lost race is a retry with the state that won. Nothing else is published by these
//! words, so they are relaxed, save that a transition releases what its thread did before.

use std::time::Duration;

use crate::probe::{self, Action, Event, Options, State};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::Time;

/// An answer is noted only when the last noted one is older than this: a busy child's word is then read by all cores
/// and written ten times a second. Far below any `interval_up`.
const NOTED_EVERY: Duration = Duration::from_millis(100);
/// On top of a probe's time-out, for the one that sends it to report: then the next may be asked for.
const REPORT_WITHIN: Duration = Duration::from_millis(500);

/// The health of one child. Shared by all threads.
#[derive(Debug)]
pub struct Health {
    /// [`State::to_word`].
    word: AtomicU64,
    /// When it last answered a read or a probe, to [`NOTED_EVERY`], in nanoseconds; 0 is never.
    answered: AtomicU64,
    /// Until then a probe is under way, in nanoseconds; 0 is none.
    asked: AtomicU64,
    /// The operator wants it asked now, due or not.
    wanted: AtomicBool,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state it met.
    pub before: State,
    /// The state it left; equal to `before` if it said nothing new.
    pub after: State,
    /// What the caller has to do.
    pub action: Action,
}

impl Health {
    /// A child that nothing is known of ([`State::new`]).
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(State::new().to_word()),
            answered: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
        }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> State {
        // Acquire: with the release in `on`, whoever sees a child up sees what was noted before it rose.
        State::from_word(self.word.load(Ordering::Acquire))
    }

    /// When the child last answered, to a tenth of a second; [`Time::ZERO`] if it never has.
    #[must_use]
    pub fn last_answer(&self) -> Time {
        Time::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    /// Tells what was seen. A child that is up and answers costs two loads.
    pub fn on(&self, event: Event, now: Time, options: &Options) -> Step {
        match event {
            Event::ReadAnswered => self.note_answer(now, NOTED_EVERY),
            Event::ProbeGood => self.note_answer(now, Duration::ZERO),
            Event::ReadFailed(_) | Event::ProbeBad(_) | Event::Online => {}
        }
        let mut word = self.word.load(Ordering::Acquire);
        let step = loop {
            let before = State::from_word(word);
            let (after, action) = probe::step(before, event, now, options);
            if after == before {
                break Step { before, after, action };
            }
            match self.word.compare_exchange_weak(word, after.to_word(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break Step { before, after, action },
                Err(now_there) => word = now_there,
            }
        };
        if matches!(event, Event::ProbeGood | Event::ProbeBad(_) | Event::Online) {
            self.asked.store(0, Ordering::Relaxed);
        }
        step
    }

    /// When to ask the child next; passed means now. While a probe is under way, when to give it up.
    #[must_use]
    pub fn next_probe(&self, options: &Options, seed: u64) -> Time {
        let due = self.due(options, seed);
        due.max(Time::from_nanos(self.asked.load(Ordering::Relaxed)))
    }

    /// Takes the task of asking the child now, if it is due: true for one caller only, until the probe has been
    /// reported ([`Event::ProbeGood`], [`Event::ProbeBad`]) or its time-out has passed with no report.
    pub fn claim_probe(&self, now: Time, options: &Options, seed: u64) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let due = self.due(options, seed);
        if now < due || now < Time::from_nanos(asked) {
            return false;
        }
        let until = now + options.timeout + REPORT_WITHIN;
        let claimed =
            self.asked.compare_exchange(asked, until.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if claimed {
            self.wanted.store(false, Ordering::Relaxed);
        }
        claimed
    }

    /// The child is due to be asked, whatever is known of it. Wake the sequencer afterwards.
    pub fn want_probe(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    fn due(&self, options: &Options, seed: u64) -> Time {
        if self.wanted.load(Ordering::Relaxed) {
            return Time::ZERO;
        }
        probe::next_probe(self.state(), self.last_answer(), options, seed)
    }

    fn note_answer(&self, now: Time, every: Duration) {
        let noted = Time::from_nanos(self.answered.load(Ordering::Relaxed));
        if noted == Time::ZERO || now.since(noted) > every {
            // 0 means never, also for an answer at the very first moment.
            self.answered.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Failure, Kind};

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_child_with_traffic_is_not_asked() {
        let (health, options) = (Health::new(), Options { jitter_percent: 0, ..Options::default() });
        assert!(health.claim_probe(at(0), &options, 1), "a child that never answered is asked at once");
        assert!(!health.claim_probe(at(1), &options, 1), "one asks");
        health.on(Event::ProbeGood, at(1), &options);
        for second in 1..200 {
            assert!(!health.claim_probe(at(second), &options, 1));
            health.on(Event::ReadAnswered, at(second), &options);
        }
        assert_eq!(health.next_probe(&options, 1), at(199 + 60));
        assert!(!health.claim_probe(at(258), &options, 1));
        assert!(health.claim_probe(at(259), &options, 1));
    }

    #[test]
    fn a_probe_that_is_never_reported_is_asked_again() {
        let (health, options) = (Health::new(), Options::default());
        assert!(health.claim_probe(at(0), &options, 1));
        assert!(!health.claim_probe(at(2), &options, 1));
        assert_eq!(health.next_probe(&options, 1), at(2) + REPORT_WITHIN);
        assert!(health.claim_probe(at(3), &options, 1));
    }

    #[test]
    fn an_operator_may_ask_at_any_time() {
        let (health, options) = (Health::new(), Options::default());
        health.on(Event::ProbeGood, at(1), &options);
        assert!(!health.claim_probe(at(2), &options, 1));
        health.want_probe();
        assert!(health.next_probe(&options, 1) <= at(2));
        assert!(health.claim_probe(at(2), &options, 1), "now");
        assert!(!health.claim_probe(at(2), &options, 1), "once");
        health.on(Event::ProbeGood, at(3), &options);
        assert!(!health.claim_probe(at(4), &options, 1));
    }

    #[test]
    fn threads_lose_no_fall_and_no_rise() {
        let (health, options) = (Health::new(), Options::default());
        let changes: u32 = std::thread::scope(|scope| {
            let hammer = |good: bool| {
                let (health, options) = (&health, &options);
                move || {
                    let event = if good { Event::ProbeGood } else { Event::ReadFailed(Failure::Refused) };
                    let wanted = if good { Action::Rose } else { Action::Fell };
                    // At one moment: no trial outlasts the test.
                    (0..20_000).filter(|_| health.on(event, at(1), options).action == wanted).count() as u32
                }
            };
            let falling = [scope.spawn(hammer(false)), scope.spawn(hammer(false))];
            let rising = [scope.spawn(hammer(true)), scope.spawn(hammer(true))];
            let falls: u32 = falling.map(|thread| thread.join().unwrap()).iter().sum();
            let rises: u32 = rising.map(|thread| thread.join().unwrap()).iter().sum();
            falls - rises
        });
        // They alternate, so they differ by whether it is down now.
        assert_eq!(changes, u32::from(health.state().kind() == Kind::Down));
    }
}
