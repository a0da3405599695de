//! Every state times every event as a stored table, the flapping rule as a story, and the times of probes.

use super::*;

/// One line a state and event: options, state, event, then what [`step`] makes of it at 100 s. Regenerate by taking
/// the table that the failing test prints, and read the difference.
const TABLE: &str = include_str!("table.txt");

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn patient() -> Options {
    Options { fall: 2, rise: 2, ..Options::default() }
}

fn show(state: State) -> String {
    let seconds = |time: Time| time.since(Time::ZERO).as_secs();
    match state {
        State::Up { since, trial } => format!("up since {} trial {trial}", seconds(since)),
        State::Suspect { at, fails, attempts, trial } => {
            format!("suspect at {} fails {fails} attempts {attempts} trial {trial}", seconds(at))
        }
        State::Down { at, attempts, good, trial } => {
            format!("down at {} attempts {attempts} good {good} trial {trial}", seconds(at))
        }
    }
}

#[test]
fn every_state_times_every_event() {
    let states = [
        State::Up { since: at(0), trial: 0 },
        State::Up { since: at(41), trial: 1 },
        State::Up { since: at(40), trial: 1 },
        State::Up { since: at(99), trial: 3 },
        State::Suspect { at: at(98), fails: 0, attempts: 0, trial: 0 },
        State::Suspect { at: at(98), fails: 1, attempts: 0, trial: 1 },
        State::Suspect { at: at(98), fails: 1, attempts: 1, trial: 0 },
        State::Down { at: at(99), attempts: 0, good: 0, trial: 0 },
        State::Down { at: at(99), attempts: 1, good: 0, trial: 1 },
        State::Down { at: at(90), attempts: 31, good: 0, trial: 1 },
        State::Down { at: at(99), attempts: 1, good: 1, trial: 2 },
        State::Down { at: at(99), attempts: 1, good: 2, trial: 3 },
        State::Down { at: at(99), attempts: 1, good: 3, trial: 3 },
    ];
    let events = [
        ("read answered", Event::ReadAnswered),
        ("read refused", Event::ReadFailed(Failure::Refused)),
        ("read closed", Event::ReadFailed(Failure::Closed)),
        ("probe good", Event::ProbeGood),
        ("probe bad", Event::ProbeBad(Failure::Status(500))),
        ("online", Event::Online),
    ];
    let mut table = String::new();
    for (name, options) in [("1/1", Options::default()), ("2/2", patient())] {
        for state in states {
            for (word, event) in events {
                let (after, action) = step(state, event, at(100), &options);
                let after = if after == state { "same".to_owned() } else { show(after) };
                table += &format!("{name} | {} | {word} | {after} | {action:?}\n", show(state));
            }
        }
    }
    assert!(table == TABLE, "the table is now:\n{table}");
}

#[test]
fn failures_of_a_connect_bring_down_and_others_make_suspect() {
    use Failure::*;
    for (failure, kind) in [
        (Unresolved, Kind::Down),
        (Refused, Kind::Down),
        (ConnectTimeout, Kind::Down),
        (Closed, Kind::Suspect),
        (AnswerTimeout, Kind::Suspect),
        (Malformed, Kind::Suspect),
    ] {
        let (state, _) = step(State::new(), Event::ReadFailed(failure), at(1), &Options::default());
        assert_eq!(state.kind(), kind, "{failure}");
    }
}

#[test]
fn a_child_that_keeps_falling_needs_more_each_time() {
    let options = Options::default();
    let mut state = State::new();
    let mut now = at(1_000);
    let mut needed = Vec::new();
    for pause in [10, 10, 10, 10, 61, 10] {
        let action;
        (state, action) = step(state, Event::ProbeBad(Failure::Refused), now, &options);
        assert_eq!(action, Action::Fell);
        let mut good = 0;
        while state.kind() == Kind::Down {
            now = now + Duration::from_secs(1);
            good += 1;
            (state, _) = step(state, Event::ProbeGood, now, &options);
        }
        needed.push(good);
        now = now + Duration::from_secs(pause);
    }
    assert_eq!(needed, [1, 2, 4, 4, 4, 1], "after more than a minute up it is forgiven");
}

#[test]
fn a_word_holds_every_state() {
    let mut seed = 1;
    let mut below = |bound: u64| {
        seed += 1;
        crate::probe::mix(seed) % bound
    };
    for _ in 0..10_000 {
        let time = Time::from_nanos(below(1 << 44) * 1_000_000);
        let small = |x: u64| u8::try_from(x).unwrap();
        let (trial, fails, attempts, good) = (small(below(4)), small(below(16)), small(below(32)), small(below(16)));
        for state in [
            State::Up { since: time, trial },
            State::Suspect { at: time, fails, attempts, trial },
            State::Down { at: time, attempts, good, trial },
        ] {
            assert_eq!(State::from_word(state.to_word()), state);
        }
    }
}

#[test]
fn probes_of_a_child_that_is_down_back_off() {
    let options = Options { jitter_percent: 0, ..Options::default() };
    let (mut state, _) = step(State::new(), Event::ProbeBad(Failure::Closed), at(0), &options);
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..40 {
        let next = next_probe(state, Time::ZERO, &options, 1);
        waits.push(next.since(now).as_secs());
        now = next;
        (state, _) = step(state, Event::ProbeBad(Failure::Closed), now, &options);
    }
    assert_eq!(waits[..6], [1, 2, 4, 8, 10, 10]);
    assert_eq!(waits[39], 10);
}

#[test]
fn when_a_child_is_asked() {
    let options = Options { jitter_percent: 0, fall: 2, rise: 2, ..Options::default() };
    let next = |state, last_answer| next_probe(state, last_answer, &options, 1);
    // Nothing known: at once. An answer puts the probe off by `interval_up`.
    assert_eq!(next(State::new(), Time::ZERO), Time::ZERO);
    assert_eq!(next(State::new(), at(30)), at(90));
    assert_eq!(next(State::Up { since: at(50), trial: 1 }, at(30)), at(110));
    // A read failed: at once. Then a bad probe: after `interval_down`.
    let (suspect, action) = step(State::new(), Event::ReadFailed(Failure::Closed), at(30), &options);
    assert_eq!((next(suspect, at(29)), action), (at(30), Action::Ask));
    let (suspect, _) = step(suspect, Event::ProbeBad(Failure::Closed), at(31), &options);
    assert_eq!(next(suspect, at(29)), at(32));
    // The first of two good probes: the second is not far.
    let down = State::Down { at: at(40), attempts: 9, good: 0, trial: 1 };
    let (down, _) = step(down, Event::ProbeGood, at(50), &options);
    assert_eq!(next(down, at(50)), at(51));
    // The operator's word: at once.
    let (down, _) = step(down, Event::Online, at(60), &options);
    assert_eq!(next(down, at(50)), at(60));
}

#[test]
fn children_do_not_fall_into_step() {
    let options = Options { jitter_percent: 20, ..Options::default() };
    let down = State::Down { at: at(10), attempts: 1, good: 0, trial: 1 };
    let times: std::collections::BTreeSet<_> = (0..50).map(|seed| next_probe(down, at(0), &options, seed)).collect();
    assert!(times.len() > 40);
    assert!(times.iter().all(|time| (800..=1_200).contains(&time.since(at(10)).as_millis())));
}
