//! What is told of a change: while it is under way, afterwards, and when only the cursors know.

use super::*;
use crate::action::UnknownOutcome::{Idempotent, Once};
use crate::mirror::testing::{Like, at_ms, group, lane, next_but_probes, publish};
use crate::mirror::{Do, Level};
use crate::probe::Failure;
use crate::time::Time;

const REFUSED: Fate = Fate::Answered { status: 404, class: Class::Rejected };
const DONE: Fate = Fate::Answered { status: 200, class: Class::Success };

#[test]
fn places_are_two_numbers_and_nothing_else() {
    assert_eq!(place(b"0:0"), Some((0, 0)));
    assert_eq!(place(b"18446744073709551615:1"), Some((u64::MAX, 1)));
    for odd in
        ["", ":", "1:", ":1", "1", "1:2:3", "1 :2", " 1:2", "1:2 ", "+1:2", "1:-2", "0x1:2", "1:18446744073709551616"]
    {
        assert_eq!(place(odd.as_bytes()), None, "{odd:?}");
    }
}

#[test]
fn it_is_told_while_it_is_under_way_and_when_it_is_over() {
    let (group, mut sequencer) = group(Like::default());
    let mut lanes: Vec<_> = (0..3).map(|child| lane(&group, child)).collect();
    let now = at_ms(1_000);
    let (change, _waiting) = publish(&group, &mut sequencer, Once, now);
    assert_eq!(group.trace(1, 1), Ok(Trace { state: State::Pending, children: vec![Fate::Pending; 3] }));
    assert_eq!(group.fates(&change), "a=pending, b=pending, c=pending");
    for (lane, status) in lanes.iter_mut().zip([Some(200), Some(404), None]) {
        let Do::SendChange { .. } = next_but_probes(lane, true, now) else { panic!("it is to be sent") };
        match status {
            Some(status) => lane.on_answered(now, status, None),
            None => lane.on_unanswered(now, true, Failure::Closed),
        }
    }
    // The primary, who breaks the tie, carried it out.
    let children = vec![DONE, REFUSED, Fate::Unknown];
    assert_eq!(group.trace(1, 1), Ok(Trace { state: State::Done, children }));
    assert_eq!(group.fates(&change), "a=200, b=404, c=unknown");
    // The two others will never be sent the next one.
    let _ = lanes[1].next(now);
    publish(&group, &mut sequencer, Once, now);
    let children = vec![Fate::Pending, Fate::Diverged, Fate::NeedsReseed];
    assert_eq!(group.trace(1, 2), Ok(Trace { state: State::Pending, children }));
}

#[test]
fn what_no_change_has_is_refused_and_says_why() {
    let (group, mut sequencer) = group(Like::default());
    publish(&group, &mut sequencer, Once, at_ms(1));
    for (epoch, sequence, why) in [(1, 0, NOT_GIVEN), (1, 2, NOT_GIVEN), (2, 1, OTHER_EPOCH), (0, 1, OTHER_EPOCH)] {
        assert_eq!(group.trace(epoch, sequence), Err(Fault::ChangeUnknown(why)), "{epoch}:{sequence}");
    }
    assert_eq!(group.check_reachable(1, 0), Ok(()), "every child has come so far");
    assert_eq!(group.check_reachable(1, 1), Ok(()));
    assert_eq!(group.check_reachable(1, 2), Err(Fault::MinSequenceUnknown(NOT_GIVEN_ASKED)));
    assert_eq!(group.check_reachable(2, 1), Err(Fault::MinSequenceUnknown(OTHER_EPOCH_ASKED)));
}

#[test]
fn of_what_the_ring_has_let_go_the_cursors_tell() {
    let (group, mut sequencer) = group(Like { slots: 4, level: Level::First, ..Like::default() });
    let mut first = lane(&group, 0);
    for number in 1..=6 {
        let now = at_ms(number * 10_000);
        publish(&group, &mut sequencer, Idempotent, now);
        // The sequencer waits for those that stand still, for a while.
        let _ = sequencer.step(at_ms(number * 10_000 + 9_000));
        if let Do::SendChange { .. } = next_but_probes(&mut first, true, now) {
            first.on_answered(now, 200, None);
        }
    }
    assert!(group.ring().tail() > 0, "nothing has left the ring: the test shows nothing");
    let children = vec![Fate::Confirmed, Fate::Unconfirmed, Fate::Unconfirmed];
    assert_eq!(group.trace(1, 1), Ok(Trace { state: State::Forgotten, children }));
}

#[test]
fn many_children_are_told_as_counts() {
    let count = CHILDREN_TOLD_MAX + 1;
    let (group, mut sequencer) = group(Like { children: count, level: Level::First, ..Like::default() });
    let mut lanes: Vec<_> = (0..2).map(|child| lane(&group, child)).collect();
    let (change, _waiting) = publish(&group, &mut sequencer, Once, Time::ZERO);
    for lane in &mut lanes {
        let Do::SendChange { .. } = next_but_probes(lane, true, Time::ZERO) else { panic!("it is to be sent") };
        lane.on_answered(Time::ZERO, 201, None);
    }
    assert_eq!(group.fates(&change), "children=17, done=2, pending=15");
}
