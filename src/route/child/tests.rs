//! What an operator is shown, as a table; and that what is in flight is counted once.

use std::time::Duration;

use super::*;
use crate::probe::Failure;

const HERE: Time = Time::from_nanos(5_000_000_000);

fn child() -> Arc<Child> {
    Arc::new(Child::new("a", 0, "a.example:80", 100, Some("berlin")))
}

#[test]
fn one_word_for_three_authors() {
    use {Admin::*, Standing::*};
    // Rows: the operator and the lane. Columns: up, suspect, down.
    let table = [
        (Online, Live, [Shown::Up, Shown::Suspect, Shown::Down]),
        (Online, Replaying, [Shown::Replaying, Shown::Replaying, Shown::Down]),
        (Online, Diverged, [Shown::Diverged; 3]),
        (Online, NeedsReseed, [Shown::NeedsReseed; 3]),
        (Draining, Live, [Shown::Draining; 3]),
        (Draining, Replaying, [Shown::Draining; 3]),
        (Draining, Diverged, [Shown::Draining; 3]),
        (Draining, NeedsReseed, [Shown::Draining; 3]),
        (Offline, Live, [Shown::Offline; 3]),
        (Offline, Replaying, [Shown::Offline; 3]),
        (Offline, Diverged, [Shown::Offline; 3]),
        (Offline, NeedsReseed, [Shown::Offline; 3]),
    ];
    let options = Options::default();
    for (admin, standing, shown) in table {
        let events = [Event::ReadAnswered, Event::ReadFailed(Failure::Closed), Event::ProbeBad(Failure::Refused)];
        for (event, shown) in events.into_iter().zip(shown) {
            let child = child();
            child.set_admin(admin, "", HERE);
            child.set_standing(standing, "", HERE);
            child.on_event(event, HERE, &options);
            assert_eq!((child.admin(), child.standing()), (admin, standing));
            assert_eq!(child.shown(), shown, "{admin:?} {standing:?} {event:?}");
            assert_eq!(child.is_live(), shown == Shown::Up);
        }
    }
}

#[test]
fn the_reason_is_that_of_the_author_who_decided() {
    let (child, options) = (child(), Options::default());
    let later = |seconds| HERE + Duration::from_secs(seconds);
    let why = || (child.shown().name(), child.why().text.into_owned(), child.why().since);
    assert_eq!(why(), ("up", String::new(), Time::ZERO));
    child.on_event(Event::ReadFailed(Failure::Closed), later(1), &options);
    assert_eq!(why(), ("suspect", "a request: connection closed before an answer".into(), later(1)));
    child.on_event(Event::ProbeBad(Failure::Status(503)), later(2), &options);
    assert_eq!(why(), ("down", "a probe: answered with status 503".into(), later(2)));
    child.on_event(Event::ProbeBad(Failure::AnswerTimeout), later(3), &options);
    assert_eq!(why().2, later(2), "still down, since then");
    child.set_standing(Standing::Replaying, "12 changes behind", later(4));
    assert_eq!(why().0, "down");
    child.on_event(Event::ProbeGood, later(5), &options);
    assert_eq!(why(), ("replaying", "12 changes behind".into(), later(4)));
    child.set_standing(Standing::Live, "caught up", later(6));
    assert_eq!(why(), ("up", "caught up".into(), later(6)));
    child.set_admin(Admin::Offline, "by the operator", later(7));
    assert_eq!(why(), ("offline", "by the operator".into(), later(7)));
    assert_eq!(child.counters.falls.load(Ordering::Relaxed), 1);
}

#[test]
fn offline_is_never_probed() {
    let (child, options) = (child(), Options::default());
    assert!(child.next_probe(&options, 1).is_some());
    child.set_admin(Admin::Offline, "", HERE);
    assert_eq!(child.next_probe(&options, 1), None);
    assert!(!child.claim_probe(HERE, &options, 1));
    child.set_admin(Admin::Draining, "", HERE);
    assert!(child.claim_probe(HERE, &options, 1));
}

#[test]
fn what_is_in_flight_is_counted_once_however_it_ends() {
    let child = child();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let child = &child;
            scope.spawn(move || {
                let mut held = Vec::new();
                for k in 0..20_000 {
                    held.push(InFlight::new(Arc::clone(child)));
                    if (k + thread) % 7 == 0 {
                        held.truncate(3);
                    }
                }
            });
        }
    });
    assert_eq!(child.in_flight(), 0);
    // A panic on the way is an end, too.
    let unwound = std::panic::catch_unwind(|| {
        let _held = InFlight::new(Arc::clone(&child));
        assert_eq!(child.in_flight(), 1);
        std::panic::resume_unwind(Box::new("a request's task"));
    });
    assert!(unwound.is_err());
    assert_eq!((child.in_flight(), Arc::strong_count(&child)), (0, 1));
}

#[test]
fn what_is_applied_only_rises() {
    let child = child();
    child.confirm_applied(7);
    child.confirm_applied(5);
    assert_eq!(child.applied(), 7);
    child.set_weight(u32::MAX);
    assert_eq!(child.weight(), WEIGHT_MAX);
}
