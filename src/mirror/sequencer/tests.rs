//! Numbering, refusing, probing, and waiting for room.

use std::time::Duration;

use super::*;
use crate::action::UnknownOutcome::Once;
use crate::limits::CHANGE_PATIENCE;
use crate::mirror::model::Model;
use crate::mirror::testing::{Bell, Like, at_ms, change, group, group_from, kept_by, live_change_with, publish};
use crate::mirror::{Decision, Ring};
use crate::probe::{Event, Failure};
use crate::route::{Admin, Standing};

/// A group whose children have just been asked.
fn asked(like: Like) -> (Arc<MirrorGroup>, Sequencer) {
    let (group, mut sequencer) = group(like);
    let _ = sequencer.step(at_ms(1_000));
    for child in &group.table().children {
        child.on_event(Event::ProbeGood, at_ms(1_000), &group.table().probe);
    }
    (group, sequencer)
}

fn sequences(ring: &Ring) -> Vec<u64> {
    (ring.tail()..ring.head())
        .filter_map(|position| match ring.read(position) {
            Read::Entry(entry) => match &entry.what {
                What::Change(change) => Some(change.sequence()),
                What::Probe { .. } => None,
            },
            Read::NotYet | Read::Overrun => panic!("a hole"),
        })
        .collect()
}

fn probes(ring: &Ring) -> Vec<usize> {
    (ring.tail()..ring.head())
        .filter_map(|position| match ring.read(position) {
            Read::Entry(entry) => match entry.what {
                What::Probe { child, .. } => Some(child),
                What::Change(_) => None,
            },
            Read::NotYet | Read::Overrun => panic!("a hole"),
        })
        .collect()
}

#[test]
fn workers_take_turns_and_the_order_has_no_hole() {
    let (group, mut sequencer) = group(Like::default());
    let now = at_ms(1);
    let submit = |worker| {
        let (change, waiting) = change(&group, Once, b"", now);
        group.submit(worker, &change).expect("room");
        (change, waiting)
    };
    let busy: Vec<_> = (0..6).map(|_| submit(0)).collect();
    let quiet = submit(1);
    let _ = sequencer.step(now);
    let of = |(change, _): &(Arc<Change>, _)| change.ticket().map(|ticket| (ticket.epoch, ticket.sequence));
    assert_eq!(of(&quiet), Some((1, 2)), "one worker's line holds no other up");
    assert_eq!(busy.iter().map(of).collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7].map(|sequence| Some((1, sequence))));
    assert_eq!(sequences(group.ring()), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(group.last_sequence(), 7);
    assert_eq!(busy[0].0.ticket().map(ToString::to_string).as_deref(), Some("1:1"));
}

#[test]
fn a_full_line_is_overload() {
    let (group, mut sequencer) = group(Like::default());
    let submit = || group.submit(1, &change(&group, Once, b"", at_ms(1)).0);
    for _ in 0..8 {
        submit().expect("room");
    }
    assert_eq!(submit(), Err(Fault::Overloaded));
    let _ = sequencer.step(at_ms(1));
    submit().expect("room again");
}

#[test]
fn it_awaits_those_that_are_live_and_refuses_where_none_is() {
    let (group, mut sequencer) = group(Like { children: 4, ..Like::default() });
    let now = at_ms(1);
    let children = &group.table().children;
    children[0].set_admin(Admin::Draining, "", now);
    children[1].set_standing(Standing::Replaying, "", now);
    children[2].on_event(Event::ReadFailed(Failure::Refused), now, &group.table().probe);
    let (numbered, _waiting) = publish(&group, &mut sequencer, Once, now);
    let ticket = numbered.ticket().expect("numbered");
    assert_eq!(ticket.awaited.iter().collect::<Vec<_>>(), [3]);

    children[3].set_standing(Standing::Diverged, "", now);
    let (refused, _waiting) = publish(&group, &mut sequencer, Once, now);
    assert_eq!(group.decide(&refused, now), Decision::Refused(Fault::NoChild));
    assert_eq!((refused.ticket(), group.last_sequence()), (None, 1), "it leaves nothing behind");
}

#[test]
fn a_change_whose_client_has_given_up_gets_no_sequence() {
    let (group, mut sequencer) = group(Like::default());
    let (change, _waiting) = change(&group, Once, b"", at_ms(1));
    group.submit(0, &change).expect("room");
    let late = at_ms(1) + CHANGE_PATIENCE;
    assert_eq!(group.decide(&change, at_ms(1)), Decision::Wait { until: late });
    assert_eq!(group.decide(&change, late), Decision::Refused(Fault::Overloaded));
    let _ = sequencer.step(late);
    assert_eq!((change.ticket(), group.last_sequence()), (None, 0));
    let (next, _waiting) = publish(&group, &mut sequencer, Once, late);
    assert_eq!(next.ticket().map(|ticket| ticket.sequence), Some(1));
}

#[test]
fn probes_are_published_when_due_and_once() {
    let (group, mut sequencer) = group(Like::default());
    let options = &group.table().probe;
    let mut now = at_ms(1_000);
    assert_eq!(sequencer.step(now), now + SEQUENCER_TICK);
    assert_eq!(probes(group.ring()), [0, 1, 2], "a child that never answered is asked");
    let _ = sequencer.step(now + Duration::from_millis(1));
    assert_eq!(group.ring().head(), 3, "not twice while one is pending");

    // One answers, one does not, one is taken out.
    let children = &group.table().children;
    children[0].on_event(Event::ProbeGood, now, options);
    children[1].on_event(Event::ProbeBad(Failure::Refused), now, options);
    children[2].set_admin(Admin::Offline, "", now);
    now = now + Duration::from_millis(900);
    assert_eq!(sequencer.step(now), at_ms(2_000), "the one that is down is due in a second");
    assert_eq!(group.ring().head(), 3);
    now = at_ms(2_000);
    let _ = sequencer.step(now);
    assert_eq!(probes(group.ring())[3..], [1]);
    // No report: asked again when it must be lost.
    let _ = sequencer.step(now + options.timeout + Duration::from_secs(1));
    assert_eq!(probes(group.ring())[3..], [1, 1]);
}

#[test]
fn a_live_child_is_not_overrun_while_no_other_is_further() {
    let (group, mut sequencer) = asked(Like { slots: 4, ..Like::default() });
    let mut now = at_ms(1_000);
    let ring = group.ring();
    let published: Vec<_> = (0..6).map(|_| publish(&group, &mut sequencer, Once, now)).collect();
    assert_eq!(group.last_sequence(), 4, "a fifth would push the first out");
    for _ in 0..100 {
        now = now + Duration::from_secs(1);
        assert!(sequencer.step(now) <= now + SEQUENCER_STALL_TICK);
    }
    assert_eq!(sequences(ring), [1, 2, 3, 4], "all are slow: it waits for as long as it takes");
    // All three get the first: one more has room.
    for child in &group.table().children {
        child.confirm_applied(1);
    }
    let _ = sequencer.step(now);
    assert_eq!(sequences(ring), [2, 3, 4, 5]);
    assert!(published[5].0.ticket().is_none());

    // Now one is ahead. It waits a deadline for the others, and ends the wait of whoever waits for them.
    group.table().children[0].confirm_applied(5);
    let _ = sequencer.step(now);
    now = now + Duration::from_millis(4_999);
    let _ = sequencer.step(now);
    assert_eq!(group.last_sequence(), 5);
    now = now + Duration::from_millis(1);
    let _ = sequencer.step(now);
    assert_eq!(sequences(ring), [3, 4, 5, 6]);
    let ended = |child| published[1].0.ended(child).map(|end| end.0);
    assert_eq!(ended(2), Some(crate::mirror::End::Slow));
    assert_eq!(published[2].0.ended(2), None);
}

#[test]
fn children_that_are_away_are_not_waited_for() {
    let (group, mut sequencer) = asked(Like { slots: 4, ..Like::default() });
    let now = at_ms(1_000);
    let children = &group.table().children;
    children[1].set_standing(Standing::Replaying, "", now);
    children[2].on_event(Event::ReadFailed(Failure::Refused), now, &group.table().probe);
    for sequence in 1..20 {
        let (change, _waiting) = publish(&group, &mut sequencer, Once, now);
        assert_eq!(change.ticket().map(|ticket| ticket.sequence), Some(sequence));
        children[0].confirm_applied(sequence);
    }
    assert_eq!(group.lag(1), 19);
}

#[test]
fn octets_are_room_too() {
    let (group, mut sequencer) = asked(Like { bytes: 10_000, ..Like::default() });
    let now = at_ms(1_000);
    let submit = || {
        let (change, waiting) = change(&group, Once, &[0; 4_000], now);
        group.submit(0, &change).expect("room in the line");
        (change, waiting)
    };
    let changes: Vec<_> = (0..3).map(|_| submit()).collect();
    let _ = sequencer.step(now);
    assert_eq!(group.last_sequence(), 2);
    for child in &group.table().children {
        child.confirm_applied(1);
    }
    let _ = sequencer.step(now);
    assert_eq!(changes[2].0.ticket().map(|ticket| ticket.sequence), Some(3));
}

#[test]
fn under_all_or_refuse_a_change_needs_every_child() {
    let (group, mut sequencer) = group(Like { level: Level::AllOrRefuse, ..Like::default() });
    let now = at_ms(1);
    let (numbered, _waiting) = publish(&group, &mut sequencer, Once, now);
    assert_eq!(numbered.ticket().map(|ticket| ticket.awaited.len()), Some(3));
    group.table().children[0].set_admin(Admin::Offline, "", now);
    group.table().children[2].set_standing(Standing::Replaying, "", now);
    let (refused, _waiting) = publish(&group, &mut sequencer, Once, now);
    let decision = group.decide(&refused, now);
    assert!(matches!(decision, Decision::Refused(Fault::NotQueueable(_))), "{decision:?}");
    assert_eq!(refused.missing().iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(group.last_sequence(), 1, "it leaves nothing behind");
}

#[test]
fn a_client_that_gives_up_ends_what_gathers() {
    let (group, mut sequencer) = asked(Like::default());
    let now = at_ms(1_000);
    let (live, _waiting) = live_change_with(&group, b"", now, Arc::new(Bell::default()));
    group.submit(0, &live).expect("room");
    let _ = sequencer.step(now);
    let late = now + CHANGE_PATIENCE;
    assert_eq!(group.decide(&live, late), Decision::Refused(Fault::Overloaded));
    let (next, _waiting) = publish(&group, &mut sequencer, Once, late);
    assert_eq!(next.ticket().map(|ticket| ticket.sequence), Some(1));
}

#[test]
fn a_clean_end_leaves_nothing_in_doubt() {
    let model = Model::new(3);
    let reader = Arc::new(Bell::default());
    let durable = kept_by(&model, false, reader);
    let (group, mut sequencer) = group_from(Like::default(), Arc::new(Bell::default()), Some(durable));
    publish(&group, &mut sequencer, Once, at_ms(1_000));
    (0..3).for_each(|child| group.child(child).confirm_applied(1));
    assert_eq!(model.resume(true).children[0].begun, 1, "what was confirmed just now is not on record yet");
    sequencer.close(at_ms(1_000));
    let resumed = model.resume(true);
    assert!(resumed.children.iter().all(|child| (child.applied, child.begun) == (1, 1)), "{resumed:?}");
}

#[test]
fn children_get_ready_for_a_live_change_only_when_what_came_before_it_is_published() {
    let model = Model::new(3);
    let durable = kept_by(&model, false, Arc::new(Bell::default()));
    let (group, mut sequencer) = group_from(Like::default(), Arc::new(Bell::default()), Some(durable));
    let now = at_ms(1_000);
    let (before, _waiting) = change(&group, Once, b"", now);
    let (live, _waiting_too) = live_change_with(&group, b"", now, Arc::new(Bell::default()));
    group.submit(0, &before).expect("room in the line");
    group.submit(0, &live).expect("room in the line");
    let again = sequencer.step(now);
    assert!(group.gate.load().is_none(), "a lane that looks now has not been told of the first");
    assert_eq!((group.last_sequence(), again), (1, now), "it is published, and the next step is at once");
    let _ = sequencer.step(now);
    assert!(group.gate.load().is_some());
}

#[test]
fn a_live_change_needs_room_on_record_like_any_other() {
    let model = Model::new(3);
    let durable = kept_by(&model, false, Arc::new(Bell::default()));
    let (group, mut sequencer) = group_from(Like::default(), Arc::new(Bell::default()), Some(durable));
    let now = at_ms(1_000);
    let (live, _waiting) = live_change_with(&group, b"", now, Arc::new(Bell::default()));
    group.submit(0, &live).expect("room in the line");
    let _ = sequencer.step(now);
    let gathering = group.gate.load_full().expect("they get ready");
    (0..3).for_each(|child| gathering.set_ready(child));
    model.set_full(true);
    let _ = sequencer.step(now);
    assert_eq!(group.decide(&live, now), Decision::Refused(Fault::JournalFull));
}
