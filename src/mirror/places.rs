//! Children that come and go, as lanes and the sequencer see them.

use super::durable::Mark;
use super::model::Model;
use super::testing::{
    Bell, Like, at_ms, change, group, group_from, kept_by, lane, live_change_with, next_but_probes, publish,
};
use super::*;
use crate::action::UnknownOutcome::{Idempotent, Once};
use crate::route::{Identity, Shown, Standing};

fn newcomer(name: &str) -> Identity {
    Identity { name: name.into(), host: "127.0.0.1:81".into(), aliases: Arc::default(), location: None }
}

/// A group, its sequencer, and its lanes, all children up.
fn world(like: Like) -> (Arc<MirrorGroup>, Sequencer, Vec<Lane>) {
    let (group, mut sequencer) = group(like);
    let mut lanes: Vec<_> = (0..like.children).map(|child| lane(&group, child)).collect();
    let _ = sequencer.step(at_ms(1));
    for lane in &mut lanes {
        assert!(matches!(next_but_probes(lane, true, at_ms(1)), Do::Wait { .. }));
    }
    (group, sequencer, lanes)
}

fn answer(lane: &mut Lane, ms: u64) {
    assert!(matches!(next_but_probes(lane, true, at_ms(ms)), Do::SendChange { .. }));
    lane.on_sent(at_ms(ms));
    lane.on_answered(at_ms(ms), 200, None);
}

#[test]
fn nobody_waits_for_a_child_that_was_removed() {
    let (group, mut sequencer, mut lanes) = world(Like::default());
    let (first, _one) = publish(&group, &mut sequencer, Once, at_ms(2));
    answer(&mut lanes[0], 2);
    answer(&mut lanes[1], 2);
    assert!(matches!(lanes[2].next(at_ms(2)), Do::SendChange { .. }));
    // In flight, and one more behind it.
    let (second, _two) = publish(&group, &mut sequencer, Idempotent, at_ms(3));
    assert!(group.table().vacate(2, at_ms(3)) && !group.is_left(2));
    assert!(matches!(lanes[2].next(at_ms(3)), Do::GiveUp));
    assert!(matches!(lanes[2].next(at_ms(3)), Do::Wait { until: Time::NEVER }));
    assert!(group.is_left(2));
    assert!(matches!(first.ended(2), Some((End::InDoubt, _))), "{first:?}");
    assert!(matches!(second.ended(2), Some((End::Queued, _))), "{second:?}");
    assert!(matches!(group.decide(&first, at_ms(3)), Decision::Answer { status: 200, .. }));
    // Nobody is to wait for it from now on; one that was numbered at the same moment ends too.
    let (third, _three) = publish(&group, &mut sequencer, Once, at_ms(4));
    assert_eq!(third.ticket().map(|ticket| ticket.awaited), Some([0, 1].into_iter().collect()));
    assert_eq!(group.table().primary(), 0);
}

#[test]
fn a_change_that_was_numbered_as_the_child_left_ends_too() {
    let (group, mut sequencer, mut lanes) = world(Like::default());
    let (line, _waiting) = change(&group, Once, b"", at_ms(2));
    // It leaves, and its lane is quicker than the sequencer that has counted it as live.
    let Like { children, .. } = Like::default();
    assert_eq!(group.table().occupants(), children);
    group.submit(0, &line).expect("room");
    let _ = sequencer.step(at_ms(2));
    group.table().vacate(1, at_ms(2));
    assert!(matches!(lanes[1].next(at_ms(2)), Do::Wait { .. }));
    assert!(line.ended(1).is_some(), "{line:?}");
    let (later, _waiting) = publish(&group, &mut sequencer, Once, at_ms(3));
    assert!(!later.awaits(1));
    assert!(matches!(lanes[1].next(at_ms(3)), Do::Wait { until: Time::NEVER }));
}

#[test]
fn one_that_joins_goes_through_all_from_the_first() {
    let (group, mut sequencer, mut lanes) = world(Like::default());
    group.table().vacate(2, at_ms(2));
    assert!(matches!(lanes[2].next(at_ms(2)), Do::Wait { .. }) && group.is_left(2));
    let (_missed, _one) = publish(&group, &mut sequencer, Once, at_ms(3));
    group.table().occupy(2, newcomer("d"), Vec::new(), 100, at_ms(4));
    let child = group.table().children[2].clone();
    assert_eq!((child.shown(), &*child.name()), (Shown::NeedsReseed, "d"));
    // A word about the one before it changes nothing. The change was numbered just before the join.
    lanes[2].on_probe(at_ms(4), Ok(()));
    group.join(2);
    let _ = sequencer.step(at_ms(5));
    assert!(matches!(next_but_probes(&mut lanes[2], true, at_ms(5)), Do::SendChange { .. }), "it goes through all");
    lanes[2].on_sent(at_ms(5));
    lanes[2].on_answered(at_ms(5), 200, None);
    assert!(matches!(next_but_probes(&mut lanes[2], true, at_ms(5)), Do::Wait { .. }));
    assert_eq!((child.standing(), child.applied()), (Standing::Live, 1));
}

#[test]
fn whoever_comes_after_a_change_needs_an_attach() {
    let (group, mut sequencer, mut lanes) = world(Like::default());
    let (_known, _one) = publish(&group, &mut sequencer, Once, at_ms(2));
    answer(&mut lanes[2], 2);
    group.table().vacate(2, at_ms(3));
    let _ = lanes[2].next(at_ms(3));
    let (_missed, _two) = publish(&group, &mut sequencer, Once, at_ms(3));
    group.table().occupy(2, newcomer("d"), Vec::new(), 100, at_ms(4));
    group.join(2);
    let _ = sequencer.step(at_ms(5));
    assert!(matches!(next_but_probes(&mut lanes[2], true, at_ms(5)), Do::Wait { .. }));
    let child = &group.table().children[2];
    assert_eq!(child.shown(), Shown::NeedsReseed);
    group.attach(2);
    let _ = next_but_probes(&mut lanes[2], true, at_ms(6));
    let _ = sequencer.step(at_ms(6));
    let _ = next_but_probes(&mut lanes[2], true, at_ms(6));
    assert_eq!((child.standing(), child.applied()), (Standing::Live, 2));
}

#[test]
fn those_that_are_there_are_all() {
    for level in [Level::All, Level::AllOrRefuse] {
        let (group, mut sequencer, mut lanes) = world(Like { level, ..Like::default() });
        group.table().vacate(0, at_ms(2));
        let _ = lanes[0].next(at_ms(2));
        let (plain, _one) = publish(&group, &mut sequencer, Once, at_ms(3));
        assert!(plain.ticket().is_some(), "{level:?}: {plain:?}");
        lanes[1..].iter_mut().for_each(|lane| answer(lane, 3));
        let (live, _two) = live_change_with(&group, b"", at_ms(4), Arc::new(Bell::default()));
        group.submit(0, &live).expect("room");
        let _ = sequencer.step(at_ms(4));
        for lane in &mut lanes[1..] {
            assert!(matches!(next_but_probes(lane, true, at_ms(4)), Do::Prove { .. }));
            lane.on_proved(at_ms(4), Ok(()));
        }
        let _ = sequencer.step(at_ms(4));
        assert_eq!(live.ticket().map(|ticket| ticket.awaited), Some([1, 2].into_iter().collect()), "{live:?}");
        lanes[1..].iter_mut().for_each(|lane| answer(lane, 5));
        assert!(matches!(group.decide(&live, at_ms(5)), Decision::Answer { status: 200, .. }));
    }
}

#[test]
fn one_that_leaves_or_comes_while_they_get_ready_ends_that() {
    let (group, mut sequencer, mut lanes) = world(Like::default());
    let gather = |group: &MirrorGroup, sequencer: &mut Sequencer, ms: u64| {
        let (live, waiting) = live_change_with(group, b"", at_ms(ms), Arc::new(Bell::default()));
        group.submit(0, &live).expect("room");
        let _ = sequencer.step(at_ms(ms));
        (live, waiting)
    };
    let (live, _one) = gather(&group, &mut sequencer, 2);
    assert!(matches!(lanes[2].next(at_ms(2)), Do::Prove { .. }));
    group.table().vacate(2, at_ms(2));
    let _ = lanes[2].next(at_ms(2));
    assert!(live.ticket().is_none() && live.missing().contains(2), "{live:?}");
    let _ = sequencer.step(at_ms(2));
    let (live, _two) = gather(&group, &mut sequencer, 3);
    assert!(matches!(next_but_probes(&mut lanes[0], true, at_ms(3)), Do::Prove { .. }));
    group.table().occupy(2, newcomer("d"), Vec::new(), 100, at_ms(3));
    let _ = sequencer.step(at_ms(3));
    assert!(live.ticket().is_none() && live.missing().contains(2), "{live:?}");
}

#[test]
fn a_child_that_is_found_overrun_is_waited_for_no_longer() {
    let (group, mut sequencer, mut lanes) = world(Like { slots: 4, ..Like::default() });
    for ms in 2..6 {
        let (_change, _waiting) = publish(&group, &mut sequencer, Idempotent, at_ms(ms));
        lanes[..2].iter_mut().for_each(|lane| answer(lane, ms));
    }
    let (last, _waiting) = publish(&group, &mut sequencer, Idempotent, at_ms(6));
    assert!(last.ticket().is_none(), "it would push out what the third child has yet to get");
    let _ = sequencer.step(at_ms(10_000));
    lanes[..2].iter_mut().for_each(|lane| answer(lane, 10_000));
    assert!(last.awaits(2) && last.ended(2).is_none());
    // One look is all that it takes: nothing else may come that wakes the lane.
    assert!(matches!(next_but_probes(&mut lanes[2], true, at_ms(10_000)), Do::Wait { .. }));
    assert_eq!(group.table().children[2].standing(), Standing::NeedsReseed);
    assert!(matches!(last.ended(2), Some((End::Queued, _))), "{last:?}");
}

#[test]
fn nobody_is_told_of_what_a_child_confirmed_and_could_not_be_written_down() {
    let model = Model::new(3);
    let durable = kept_by(&model, false, Arc::new(Bell::default()));
    let (group, mut sequencer) = group_from(Like::default(), Arc::new(Bell::default()), Some(durable));
    let mut lanes: Vec<_> = (0..3).map(|child| lane(&group, child)).collect();
    let _ = sequencer.step(at_ms(1));
    let (change, _waiting) = publish(&group, &mut sequencer, Idempotent, at_ms(2));
    for lane in &mut lanes {
        assert!(matches!(next_but_probes(lane, true, at_ms(2)), Do::SendChange { .. }));
        lane.on_sent(at_ms(2));
    }
    model.fail_slots();
    lanes.iter_mut().for_each(|lane| lane.on_answered(at_ms(3), 200, None));
    // It would be told of, and after a restart a child that is in doubt about it would be read.
    assert_eq!(group.decide(&change, at_ms(3)), Decision::Unknown);
    assert_eq!((group.table().shared.floor(), group.table().children[0].applied()), (0, 0));
    assert_eq!(model.resume(false).acknowledged, 0);
}

#[test]
fn whoever_comes_while_we_run_is_on_record_as_nobody_that_was_there() {
    let model = Model::new(3);
    let durable = kept_by(&model, false, Arc::new(Bell::default()));
    let (group, mut sequencer) = group_from(Like::default(), Arc::new(Bell::default()), Some(durable));
    let mut lanes: Vec<_> = (0..3).map(|child| lane(&group, child)).collect();
    let _ = sequencer.step(at_ms(1));
    let (_change, _waiting) = publish(&group, &mut sequencer, Idempotent, at_ms(2));
    lanes.iter_mut().for_each(|lane| answer(lane, 2));
    group.table().vacate(2, at_ms(3));
    let _ = (lanes[2].next(at_ms(3)), sequencer.step(at_ms(3)));
    group.table().occupy(2, newcomer("d"), Vec::new(), 100, at_ms(4));
    let _ = (lanes[2].next(at_ms(4)), sequencer.step(at_ms(4)));
    let said = model.marks();
    let comes = said.iter().rposition(|mark| matches!(mark, Mark::Members(names) if &*names[2] == "d"));
    let after = &said[comes.expect("its name is on record")..];
    let needs = |mark: &Mark| matches!(mark, Mark::Standing { child: 2, standing: Standing::NeedsReseed, .. });
    assert!(after.iter().any(needs), "the name may be known, and say something else: {after:?}");
    // Where the one before was current, the attach is on record all the same.
    group.attach(2);
    let _ = (lanes[2].next(at_ms(5)), sequencer.step(at_ms(5)));
    assert!(model.marks().contains(&Mark::Attach { child: 2, from: 0, at: 1 }), "{:?}", model.marks());
}
