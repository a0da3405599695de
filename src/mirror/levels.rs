//! The levels of acknowledgement through a whole group: a sequencer, lanes, clients. The rule itself is tested beside
//! `ack.rs`, what happens when anything happens by the simulation.

use std::time::Duration;

use super::testing::{Bell, Like, at_ms, change_with, group, lane, next_but_probes, publish};
use super::{Change, Class, Decision, Do, Lane, Level, MirrorGroup, Sequencer};
use crate::action::UnknownOutcome::{Idempotent, Once};
use crate::error::Fault;
use crate::probe::Failure;
use crate::route::{Admin, Standing};
use crate::sync::Arc;
use crate::time::Time;

const NOW: Time = Time::from_nanos(1_000_000_000);

fn durable() -> Like {
    Like { level: Level::Durable, ..Like::default() }
}

/// The children are away; their lanes notice.
fn all_away(group: &Arc<MirrorGroup>) -> Vec<Lane> {
    (0..3)
        .map(|child| {
            let mut lane = lane(group, child);
            group.table().children[child].set_admin(Admin::Offline, "", NOW);
            assert!(matches!(lane.next(NOW), Do::Wait { .. }));
            lane
        })
        .collect()
}

/// The child comes back and is asked; it answers what it is sent next.
fn answers(sequencer: &mut Sequencer, lane: &mut Lane, status: u16) -> Option<Arc<Change>> {
    let child = lane.child().index;
    sequencer.group().table().online(child, NOW);
    // It is due to be asked.
    let _ = sequencer.step(NOW);
    match next_but_probes(lane, true, NOW) {
        Do::SendChange { change, .. } => {
            lane.on_sent(NOW);
            lane.on_answered(NOW, status, None);
            Some(change)
        }
        _ => None,
    }
}

#[test]
fn under_durable_the_client_is_told_once_the_change_is_published() {
    let (group, mut sequencer) = group(durable());
    let bell = Arc::new(Bell::default());
    let (change, _waiting) = change_with(&group, Once, b"", NOW, bell.clone());
    group.submit(0, &change).expect("room");
    assert!(matches!(group.decide(&change, NOW), Decision::Wait { .. }));
    let _ = sequencer.step(NOW);
    assert_eq!(bell.rings(), 1, "the client's task is to look");
    assert_eq!(group.decide(&change, NOW), Decision::Accepted);
    assert_eq!(group.table().shared.floor(), 0, "no child has it: reads need not wait for one");
    let mut first = lane(&group, 0);
    answers(&mut sequencer, &mut first, 200).expect("it is sent");
    assert_eq!(group.table().shared.floor(), 1, "one shows it: no other may fall behind");
}

#[test]
fn under_durable_a_change_waits_for_children_that_are_all_away() {
    let (group, mut sequencer) = group(durable());
    let mut lanes = all_away(&group);
    let (change, _waiting) = publish(&group, &mut sequencer, Idempotent, NOW);
    assert_eq!(group.decide(&change, NOW), Decision::Accepted);
    assert!(change.ticket().is_some_and(|ticket| ticket.awaited.is_empty()));
    for lane in &mut lanes {
        assert!(answers(&mut sequencer, lane, 200).is_some_and(|sent| Arc::ptr_eq(&sent, &change)));
        let _ = next_but_probes(lane, true, NOW);
        assert!(lane.child().is_live(), "{}", lane.child().why().text);
    }
    assert_eq!(change.agreed(), Some(Class::Success));
}

/// Nobody was awaited: there are no votes to wait for, and none may wait for siblings that do not come back.
#[test]
fn what_nobody_was_awaited_for_is_judged_by_the_first_answer() {
    for (first, second, unlike) in [(404, 404, false), (404, 200, true), (200, 404, true), (500, 200, true)] {
        let (group, mut sequencer) = group(durable());
        let mut lanes = all_away(&group);
        let (change, _waiting) = publish(&group, &mut sequencer, Once, NOW);
        answers(&mut sequencer, &mut lanes[0], first).expect("it is sent");
        assert_eq!(change.agreed(), Some(Class::of(first)));
        let _ = next_but_probes(&mut lanes[0], true, NOW);
        assert!(lanes[0].child().is_live(), "{first}: goes on by itself");
        answers(&mut sequencer, &mut lanes[1], second).expect("it is sent");
        let _ = lanes[1].next(NOW);
        let diverged = lanes[1].child().standing() == Standing::Diverged;
        assert_eq!(diverged, unlike, "{first}, then {second}");
    }
}

#[test]
fn under_durable_nothing_is_taken_that_no_child_would_get() {
    // Every child waits for the operator.
    let (all_lost, mut sequencer) = group(durable());
    for child in &all_lost.table().children {
        child.set_standing(Standing::NeedsReseed, "", NOW);
    }
    let (change, _waiting) = publish(&all_lost, &mut sequencer, Once, NOW);
    assert_eq!(all_lost.decide(&change, NOW), Decision::Refused(Fault::NoChild));

    // All are away, and there is room for no more without losing what was accepted.
    let (group, mut sequencer) = group(Like { slots: 8, ..durable() });
    let mut lanes = all_away(&group);
    let room = 8 - group.ring().head();
    for _ in 0..room {
        let (change, _waiting) = publish(&group, &mut sequencer, Once, NOW);
        assert_eq!(group.decide(&change, NOW), Decision::Accepted);
    }
    let (change, _waiting) = publish(&group, &mut sequencer, Once, NOW);
    assert_eq!(group.decide(&change, NOW), Decision::Refused(Fault::Overloaded));
    assert_eq!(group.last_sequence(), room);
    // However often they are asked in vain, what is to be sent is there when one is back.
    for seconds in 1..100 {
        let later = NOW + Duration::from_secs(seconds);
        group.table().online(1, NOW);
        let _ = sequencer.step(later);
        assert!(matches!(next_but_probes(&mut lanes[1], false, later), Do::Wait { .. }));
    }
    for _ in 0..room {
        answers(&mut sequencer, &mut lanes[0], 200).expect("all that was accepted is there");
    }
    let _ = next_but_probes(&mut lanes[0], true, NOW);
    assert!(lanes[0].child().is_live());
}

#[test]
fn a_live_change_needs_every_child_under_durable_too() {
    let (group, mut sequencer) = group(durable());
    let _lanes = all_away(&group);
    let (live, _waiting) = super::testing::live_change_with(&group, b"", NOW, Arc::new(Bell::default()));
    group.submit(0, &live).expect("room");
    let _ = sequencer.step(NOW);
    assert!(matches!(group.decide(&live, NOW), Decision::Refused(Fault::NotQueueable(_))));
}

#[test]
fn a_quorum_answers_when_so_many_have_succeeded_and_raises_the_floor() {
    let (group, mut sequencer) = group(Like { level: Level::Quorum(2), ..Like::default() });
    let mut lanes: Vec<_> = (0..3).map(|child| lane(&group, child)).collect();
    let (change, _waiting) = publish(&group, &mut sequencer, Once, NOW);
    answers(&mut sequencer, &mut lanes[2], 201).expect("it is sent");
    assert!(matches!(group.decide(&change, NOW), Decision::Wait { .. }));
    assert_eq!(group.table().shared.floor(), 0);
    answers(&mut sequencer, &mut lanes[1], 200).expect("it is sent");
    assert_eq!(group.decide(&change, NOW), Decision::Answer { child: 1, status: 200 });
    assert_eq!(group.table().shared.floor(), 1);
    // What comes later is judged by what was told.
    answers(&mut sequencer, &mut lanes[0], 404).expect("it is sent");
    assert_eq!(change.agreed(), Some(Class::Success));
    let _ = lanes[0].next(NOW);
    assert_eq!(lanes[0].child().standing(), Standing::Diverged);
}

#[test]
fn a_quorum_that_is_not_reached_is_pending_and_never_a_success() {
    let (group, mut sequencer) = group(Like { level: Level::Quorum(3), ..Like::default() });
    let mut lanes: Vec<_> = (0..3).map(|child| lane(&group, child)).collect();
    let (change, _waiting) = publish(&group, &mut sequencer, Idempotent, NOW);
    answers(&mut sequencer, &mut lanes[0], 200).expect("it is sent");
    answers(&mut sequencer, &mut lanes[1], 200).expect("it is sent");
    let Do::SendChange { .. } = next_but_probes(&mut lanes[2], true, NOW) else { panic!("it is to be sent") };
    lanes[2].on_connect_failed(NOW, Failure::Refused);
    assert_eq!(group.decide(&change, NOW), Decision::Pending);
    assert_eq!(group.table().shared.floor(), 0, "nobody was told");
    // It stays in the order: the third has it when it is back.
    sequencer.publish_probe(2, NOW);
    let later = at_ms(1_000) + Duration::from_millis(500);
    let Do::SendChange { change: again, .. } = next_but_probes(&mut lanes[2], true, later) else { panic!("not sent") };
    assert!(Arc::ptr_eq(&again, &change));
}
