//! Who wins, who is told what, and when.

use super::*;
use Class::{Failed, Rejected, Success};

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

const DEADLINE: Duration = Duration::from_secs(5);

#[test]
fn a_status_has_a_class() {
    for (status, class) in
        [(200, Success), (201, Success), (304, Success), (400, Rejected), (404, Rejected), (409, Rejected)]
    {
        assert_eq!(Class::of(status), class, "{status}");
    }
    for status in [408, 425, 429, 500, 503, 507, 599, 101, 0, 999] {
        assert_eq!(Class::of(status), Failed, "{status}");
    }
}

#[test]
fn who_wins() {
    const NONE: Option<Class> = None;
    // Child 1 is primary.
    let cases: &[(&[(usize, Class)], Option<Class>, Option<Class>)] = &[
        // votes, winner under All, winner under First
        (&[], NONE, NONE),
        (&[(0, Success)], Some(Success), Some(Success)),
        (&[(0, Failed), (1, Failed), (2, Failed)], Some(Failed), Some(Failed)),
        (&[(0, Rejected), (1, Rejected), (2, Rejected)], Some(Rejected), Some(Rejected)),
        // A failure outvotes nobody.
        (&[(0, Success), (1, Failed), (2, Failed)], Some(Success), Some(Success)),
        (&[(0, Failed), (1, Failed), (2, Rejected)], Some(Rejected), Some(Rejected)),
        // The majority; under First a success has been told already.
        (&[(0, Success), (1, Rejected), (2, Rejected)], Some(Rejected), Some(Success)),
        (&[(0, Success), (1, Rejected), (2, Success)], Some(Success), Some(Success)),
        // Of two: the primary, or whoever comes first in the configuration.
        (&[(0, Success), (1, Rejected)], Some(Rejected), Some(Success)),
        (&[(0, Rejected), (1, Success)], Some(Success), Some(Success)),
        (&[(2, Success), (0, Rejected)], Some(Rejected), Some(Success)),
        (&[(0, Success), (2, Rejected)], Some(Success), Some(Success)),
        // A failed primary leads nobody.
        (&[(0, Success), (1, Failed), (2, Rejected)], Some(Success), Some(Success)),
    ];
    for (votes, all, first) in cases {
        let winner = |level| vote(level, 1, votes.iter().copied());
        for level in [Level::All, Level::AllOrRefuse, Level::Durable] {
            assert_eq!(winner(level), *all, "{level:?} {votes:?}");
        }
        assert_eq!(winner(Level::First), *first, "{votes:?}");
        assert_eq!(winner(Level::Quorum(1)), *first, "one is the first: {votes:?}");
        let successes = votes.iter().filter(|vote| vote.1 == Success).count();
        for count in 2..=3 {
            let wanted = if successes >= usize::from(count) { Some(Success) } else { *all };
            assert_eq!(winner(Level::Quorum(count)), wanted, "{count} of {votes:?}");
        }
    }
}

/// The client was told when the second had succeeded; the three that refused cannot change that.
#[test]
fn a_quorum_that_was_told_wins_against_a_majority() {
    let votes = [(0, Success), (1, Rejected), (2, Rejected), (3, Rejected), (4, Success)];
    assert_eq!(vote(Level::Quorum(2), 1, votes.into_iter()), Some(Success));
    assert_eq!(vote(Level::Quorum(3), 1, votes.into_iter()), Some(Rejected));
}

#[test]
fn only_a_child_slower_than_a_sibling_is_demoted() {
    assert_eq!(demotion_at(at(10), None, DEADLINE), Time::NEVER);
    // In time: the own deadline counts.
    assert_eq!(demotion_at(at(10), Some(at(11)), DEADLINE), at(15));
    // Both are slow: the second has a moment more.
    assert_eq!(demotion_at(at(10), Some(at(19)), DEADLINE), at(19) + CHANGE_GRACE);
}

/// Reports of children 0, 1, …: not sent, in flight since, or ended.
fn decide_for(
    level: Level,
    agreed: Option<Class>,
    children: &[(Option<u64>, Option<(End, u64)>)],
    now: u64,
) -> Decision {
    let report = |(child, (since, ended)): (usize, &(Option<u64>, Option<(End, u64)>))| Report {
        child,
        in_flight_since: since.map(at),
        ended: ended.map(|(end, seconds)| (end, at(seconds))),
    };
    decide(level, 1, agreed, children.iter().enumerate().map(report), at(0), DEADLINE, at(now))
}

const fn said(status: u16, seconds: u64) -> (Option<u64>, Option<(End, u64)>) {
    let end = End::Answered { status, class: Class::of(status) };
    (Some(0), Some((end, seconds)))
}

const fn ended(end: End) -> (Option<u64>, Option<(End, u64)>) {
    (Some(0), Some((end, 5)))
}

#[test]
fn what_the_client_is_told() {
    let open = (Some(2), None);
    let in_line = (None, None);
    let all = |agreed, children: &[_], now| decide_for(Level::All, agreed, children, now);
    let first = |agreed, children: &[_], now| decide_for(Level::First, agreed, children, now);

    // The primary's answer, or else the first of the winning class.
    let done = [said(201, 1), said(204, 3), said(200, 2)];
    assert_eq!(all(Some(Success), &done, 3), Decision::Answer { child: 1, status: 204 });
    let done = [said(201, 3), said(500, 1), said(200, 2)];
    assert_eq!(all(Some(Success), &done, 3), Decision::Answer { child: 2, status: 200 });
    let done = [said(201, 3), said(404, 1), said(409, 2)];
    assert_eq!(all(Some(Rejected), &done, 3), Decision::Answer { child: 1, status: 404 });

    // One is open: wait for it, however long it stands in line, as its lane will end it.
    let one_open = [said(201, 1), said(204, 1), open];
    assert_eq!(all(None, &one_open, 6), Decision::Wait { until: at(60) });
    assert_eq!(all(None, &one_open, 60), Decision::Pending);
    assert_eq!(first(None, &one_open, 1), Decision::Answer { child: 1, status: 204 });
    assert_eq!(first(None, &[said(404, 1), said(200, 2), open], 2), Decision::Answer { child: 1, status: 200 });
    assert_eq!(first(None, &[said(404, 1), said(404, 1), open], 2), Decision::Wait { until: at(60) });
    assert_eq!(first(Some(Rejected), &[said(404, 2), said(404, 1)], 2), Decision::Answer { child: 1, status: 404 });

    // None has answered: pending, once each has had its deadline.
    assert_eq!(all(None, &[open, (Some(4), None)], 3), Decision::Wait { until: at(9) });
    assert_eq!(all(None, &[open, (Some(4), None)], 9), Decision::Pending);
    assert_eq!(all(None, &[open, in_line], 9), Decision::Wait { until: at(14) });
    assert_eq!(all(None, &[open, in_line], 59), Decision::Wait { until: at(60) });

    // All ended, none answered.
    assert_eq!(all(None, &[ended(End::Queued), ended(End::Unknowable)], 9), Decision::Pending);
    assert_eq!(all(None, &[ended(End::InDoubt)], 9), Decision::Pending);
    assert_eq!(all(None, &[ended(End::Unknowable), ended(End::Unknowable)], 9), Decision::Unknown);

    // Demoted and answered.
    let slow = [said(200, 1), ended(End::Slow), ended(End::Unknowable)];
    assert_eq!(all(Some(Success), &slow, 9), Decision::Answer { child: 0, status: 200 });
}

/// Each level at each state of three children of whom the second leads; who has ended has.
#[test]
fn what_each_level_tells() {
    use Decision::{Answer, Pending, Unknown, Wait};
    let open = (Some(2), None);
    let away = ended(End::Queued);
    let of = |child, status| Answer { child, status };
    let wait = Wait { until: at(60) };
    // Children; who has won; all, first, quorum of 2, quorum of 3.
    type Row<'a> = (&'a [(Option<u64>, Option<(End, u64)>)], Option<Class>, [Decision; 4]);
    let table: &[Row<'_>] = &[
        (&[open, open, open], None, [Wait { until: at(7) }; 4]),
        (&[said(201, 1), open, open], None, [wait, of(0, 201), wait, wait]),
        (&[said(201, 1), open, said(200, 2)], None, [wait, of(0, 201), of(0, 201), wait]),
        (&[said(201, 1), said(204, 3), open], None, [wait, of(1, 204), of(1, 204), wait]),
        (&[said(201, 1), said(204, 3), said(200, 2)], Some(Success), [of(1, 204); 4]),
        // One is away, or was too slow: a quorum of all is not reached, and the change stays in the order.
        (&[said(201, 1), said(204, 3), away], Some(Success), [of(1, 204), of(1, 204), of(1, 204), Pending]),
        (&[said(201, 1), ended(End::Slow), away], Some(Success), [of(0, 201), of(0, 201), Pending, Pending]),
        // Failed at the others: carried out, and by too few.
        (&[said(201, 1), said(500, 3), said(500, 2)], Some(Success), [of(0, 201), of(0, 201), Pending, Pending]),
        // Refused: by all, by most, by most and carried out by one.
        (&[said(404, 1), said(409, 3), said(404, 2)], Some(Rejected), [of(1, 409); 4]),
        (&[said(404, 1), open, open], None, [wait; 4]),
        (&[said(404, 1), ended(End::Slow), away], Some(Rejected), [of(0, 404); 4]),
        (&[said(404, 1), said(200, 3), said(404, 2)], Some(Rejected), [of(0, 404), of(1, 200), of(0, 404), of(0, 404)]),
        // Failed everywhere.
        (&[said(500, 1), said(503, 3), said(500, 2)], Some(Failed), [of(1, 503); 4]),
        // Nobody answered.
        (&[away, ended(End::InDoubt), ended(End::Slow)], None, [Pending; 4]),
        (&[ended(End::Unknowable), ended(End::Unknowable), ended(End::Unknowable)], None, [Unknown; 4]),
        // Who is away is not among the awaited.
        (&[said(201, 1), said(204, 3)], Some(Success), [of(1, 204), of(1, 204), of(1, 204), Pending]),
    ];
    for (children, agreed, told) in table {
        for (level, told) in [Level::All, Level::First, Level::Quorum(2), Level::Quorum(3)].into_iter().zip(told) {
            // Under `first` and a quorum that is reached another class may have won only if nobody was told.
            let agreed = if level.enough().is_some() && matches!(told, Answer { status: 200..=299, .. }) {
                agreed.map(|_| Success)
            } else {
                *agreed
            };
            assert_eq!(decide_for(level, agreed, children, 3), *told, "{level:?} {children:?}");
        }
        assert_eq!(
            decide_for(Level::AllOrRefuse, *agreed, children, 3),
            decide_for(Level::All, *agreed, children, 3),
            "{children:?}"
        );
    }
}

#[test]
fn what_is_durable_is_accepted_once_it_is_published() {
    assert_eq!(accept(false, at(0), at(1)), Decision::Wait { until: at(60) });
    assert_eq!(accept(true, at(0), at(1)), Decision::Accepted);
    assert_eq!(accept(false, at(0), at(60)), Decision::Pending);
    assert_eq!(accept(true, at(0), at(60)), Decision::Accepted);
}
