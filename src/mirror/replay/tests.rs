//! Every state of a lane times every event, stored in `table.txt` and compared; and some stories told whole.
//!
//! `ANTIPHON_BLESS=1 cargo test` writes the table anew: read the difference as you would read code.

use std::fmt::Write as _;

use bytes::Bytes;

use super::*;
use crate::action::UnknownOutcome::{Idempotent, Once};
use crate::mirror::change::Admission;
use crate::mirror::testing::{Bell, Like, at_ms, change_with, group, lane, live_change_with, next_but_probes, publish};
use crate::mirror::{Decision, End, Held, Resolve, Sequencer, Waiting};
use crate::probe::{Event, Failure};
use crate::route::{Admin, Shown};
use crate::sync::Ordering;

/// Child 2 of three, its lane, and what was published.
struct Stage {
    group: Arc<MirrorGroup>,
    sequencer: Sequencer,
    lane: Lane,
    now: Time,
    changes: Vec<(Arc<Change>, Arc<Waiting>)>,
}

impl Stage {
    fn new() -> Self {
        let (group, sequencer) = group(Like { slots: 32, ..Like::default() });
        let lane = lane(&group, 2);
        let mut stage = Self { group, sequencer, lane, now: at_ms(1_000), changes: Vec::new() };
        // The first probes, so that none is due by itself.
        let _ = stage.sequencer.step(stage.now);
        assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::Wait { .. }));
        stage
    }

    fn publish(&mut self, class: crate::action::UnknownOutcome) -> Arc<Change> {
        let (change, waiting) = publish(&self.group, &mut self.sequencer, class, self.now);
        self.changes.push((Arc::clone(&change), waiting));
        change
    }

    /// A live change comes to the head of the line, and the children begin to get ready.
    fn gather(&mut self) -> Arc<Change> {
        let (change, waiting) = live_change_with(&self.group, b"", self.now, Arc::new(Bell::default()));
        self.group.submit(0, &change).expect("room in the line");
        let _ = self.sequencer.step(self.now);
        self.changes.push((Arc::clone(&change), waiting));
        change
    }

    /// The siblings are ready for what gathers, if something does; the sequencer looks.
    fn siblings_are_ready(&mut self) {
        if let Some(gathering) = self.group.gate.load_full() {
            [0, 1].into_iter().for_each(|child| gathering.set_ready(child));
        }
        let _ = self.sequencer.step(self.now);
    }

    fn prove(&mut self) {
        assert!(matches!(self.lane.next(self.now), Do::Prove { .. }));
        self.lane.on_proved(self.now, Ok(()));
    }

    /// The child is ready, alone among its siblings.
    fn ready(&mut self) -> Arc<Change> {
        let change = self.gather();
        self.prove();
        change
    }

    /// It has its place in the order, and the lane has not looked since.
    fn bound(&mut self) -> Arc<Change> {
        let change = self.ready();
        self.siblings_are_ready();
        assert!(change.ticket().is_some());
        change
    }

    fn later(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// The siblings answer everything so.
    fn siblings(&self, status: u16) {
        for (change, _) in self.changes.iter().filter(|(change, _)| change.ticket().is_some()) {
            for sibling in [0, 1] {
                if change.ended(sibling).is_none() {
                    self.group.on_answer(change, sibling, status, Class::of(status), None, self.now);
                }
            }
        }
    }

    /// Publishes a probe, and answers it if the lane takes it.
    fn probe(&mut self, good: bool) -> bool {
        self.sequencer.publish_probe(2, self.now);
        let Do::Probe { .. } = self.lane.next(self.now) else {
            return false;
        };
        self.lane.on_probe(self.now, if good { Ok(()) } else { Err(Failure::AnswerTimeout) });
        true
    }

    /// What the lane says until it waits.
    fn says(&mut self) -> String {
        let mut said = String::new();
        loop {
            match self.lane.next(self.now) {
                Do::Wait { until: Time::NEVER } => said.push_str("wait"),
                Do::Wait { until } => {
                    let _ = write!(said, "wait {} ms", self.now.until(until).as_millis());
                }
                Do::GiveUp => {
                    said.push_str("give up, ");
                    continue;
                }
                Do::Probe { second_connection, .. } => {
                    said.push_str(if second_connection { "probe beside, " } else { "probe, " });
                    continue;
                }
                Do::Prove { expires } => {
                    let _ = write!(said, "prove within {} ms, ", self.now.until(expires).as_millis());
                    continue;
                }
                Do::SendChange { change, attempt, fresh_connection } => {
                    let fresh = if fresh_connection { " fresh" } else { "" };
                    let _ = write!(said, "send {} ({attempt}{fresh}), ", change.sequence());
                    continue;
                }
            }
            return said;
        }
    }

    fn shown(&self) -> String {
        let child = self.lane.child();
        let mut shown = format!("{} at {}", child.shown(), child.applied());
        if matches!(self.lane.standing, Standing::Diverged | Standing::NeedsReseed) {
            let _ = write!(shown, " \"{}\"", child.why().text);
        }
        for (change, _) in &self.changes {
            if let Some(Admission::Refused(fault, _)) = change.admission() {
                let _ = write!(shown, " refused {}", fault.code());
            }
            if let Some((end, _)) = change.ended(2) {
                let _ = write!(shown, " {}:{end:?}", change.sequence());
            }
        }
        shown
    }

    fn send_next(&mut self) {
        assert!(matches!(self.lane.next(self.now), Do::SendChange { .. }));
        self.lane.on_sent(self.now);
    }
}

type Case<T> = (&'static str, fn(&mut Stage) -> T);

const STATES: &[Case<()>] = &[
    ("idle", |_| {}),
    ("in flight, once", |stage| {
        stage.publish(Once);
        stage.send_next();
    }),
    ("in flight, idempotent", |stage| {
        stage.publish(Idempotent);
        stage.send_next();
    }),
    ("slow, once", |stage| {
        stage.publish(Once);
        stage.send_next();
        stage.siblings(200);
        stage.later(6);
        let _ = next_but_probes(&mut stage.lane, true, stage.now);
    }),
    ("pausing", |stage| {
        stage.publish(Idempotent);
        stage.send_next();
        stage.lane.on_answered(stage.now, 500, None);
    }),
    ("judging", |stage| {
        stage.publish(Once);
        stage.send_next();
        stage.lane.on_answered(stage.now, 404, None);
    }),
    ("held, nothing sent", |stage| {
        stage.publish(Once);
        assert!(matches!(stage.lane.next(stage.now), Do::SendChange { .. }));
        stage.lane.on_connect_failed(stage.now, Failure::Refused);
    }),
    ("held, in doubt", |stage| {
        stage.publish(Idempotent);
        stage.send_next();
        stage.lane.on_unanswered(stage.now, true, Failure::Malformed);
    }),
    ("replaying", |stage| {
        stage.lane.child().on_event(Event::ReadFailed(Failure::Refused), stage.now, &stage.group.table().probe);
        stage.publish(Once);
        stage.publish(Idempotent);
        stage.siblings(200);
        assert!(stage.probe(true));
        stage.send_next();
    }),
    ("diverged", |stage| {
        stage.publish(Once);
        stage.siblings(200);
        stage.send_next();
        stage.lane.on_answered(stage.now, 404, None);
    }),
    ("in doubt", |stage| {
        stage.publish(Once);
        stage.send_next();
        stage.lane.on_unanswered(stage.now, true, Failure::Malformed);
    }),
    ("in doubt with all", |stage| {
        stage.publish(Once);
        [0, 1].into_iter().for_each(|sibling| stage.group.child(sibling).set_doubt(Some(1)));
        stage.send_next();
        stage.lane.on_unanswered(stage.now, true, Failure::Malformed);
    }),
    ("needs reseed", |stage| {
        stage.publish(Once);
        stage.send_next();
        stage.lane.on_unanswered(stage.now, true, Failure::Malformed);
        stage.siblings(200);
    }),
    ("offline", |stage| {
        stage.lane.child().set_admin(Admin::Offline, "by the operator", stage.now);
        stage.publish(Idempotent);
        let _ = stage.lane.next(stage.now);
    }),
    ("gathering, draining", |stage| {
        stage.publish(Once);
        stage.send_next();
        stage.gather();
    }),
    ("gathering, asked", |stage| {
        stage.gather();
        assert!(matches!(stage.lane.next(stage.now), Do::Prove { .. }));
    }),
    ("gathering, ready", |stage| {
        stage.ready();
    }),
    ("bound", |stage| {
        stage.bound();
    }),
    ("live change in flight", |stage| {
        stage.bound();
        stage.send_next();
    }),
];

const EVENTS: &[Case<&'static str>] = &[
    ("nothing", |_| ""),
    ("a change", |stage| {
        stage.publish(Once);
        ""
    }),
    ("sent", |stage| {
        stage.lane.on_sent(stage.now);
        ""
    }),
    ("connect failed", |stage| {
        stage.lane.on_connect_failed(stage.now, Failure::Refused);
        ""
    }),
    ("answered 200", |stage| {
        stage.lane.on_answered(stage.now, 200, None);
        ""
    }),
    ("answered 405", |stage| {
        stage.lane.on_answered(stage.now, 405, None);
        ""
    }),
    ("answered 500", |stage| {
        stage.lane.on_answered(stage.now, 500, None);
        ""
    }),
    ("unanswered, nothing left", |stage| {
        stage.lane.on_unanswered(stage.now, false, Failure::Closed);
        ""
    }),
    ("unanswered, octets left", |stage| {
        stage.lane.on_unanswered(stage.now, true, Failure::Closed);
        ""
    }),
    ("probe good", |stage| if stage.probe(true) { "" } else { "(not asked) " }),
    ("probe bad", |stage| if stage.probe(false) { "" } else { "(not asked) " }),
    ("siblings answer 200", |stage| {
        stage.siblings(200);
        ""
    }),
    ("siblings answer 404", |stage| {
        stage.siblings(404);
        ""
    }),
    ("10 s later", |stage| {
        stage.later(10);
        ""
    }),
    ("siblings 200, 10 s later", |stage| {
        stage.siblings(200);
        stage.later(10);
        ""
    }),
    ("60 s later", |stage| {
        stage.later(60);
        ""
    }),
    ("overrun", |stage| {
        // The siblings are quick: the sequencer waits a deadline for this child, then no more.
        let child = stage.lane.child().clone();
        for sibling in [0, 1] {
            stage.group.child(sibling).confirm_applied(1_000);
        }
        for _ in 0..40 {
            let (change, waiting) = crate::mirror::testing::change(&stage.group, Once, b"", stage.now);
            stage.group.submit(0, &change).expect("room");
            let _ = stage.sequencer.step(stage.now);
            if change.ticket().is_none() {
                stage.later(6);
                let _ = stage.sequencer.step(stage.now);
            }
            drop(waiting);
        }
        assert!(child.applied() < 2);
        ""
    }),
    ("offline", |stage| {
        stage.lane.child().set_admin(Admin::Offline, "by the operator", stage.now);
        ""
    }),
    ("online", |stage| {
        stage.group.table().online(2, stage.now);
        ""
    }),
    ("resolved: applied", |stage| {
        stage.group.resolve(2, Resolve::Applied);
        ""
    }),
    ("resolved: lost", |stage| {
        stage.group.resolve(2, Resolve::Lost);
        ""
    }),
    ("attach", |stage| {
        stage.group.attach(2);
        ""
    }),
    ("a live change", |stage| {
        stage.gather();
        ""
    }),
    ("proof good, siblings ready", |stage| {
        stage.lane.on_proved(stage.now, Ok(()));
        stage.siblings_are_ready();
        ""
    }),
    ("proof bad", |stage| {
        stage.lane.on_proved(stage.now, Err(Failure::Closed));
        ""
    }),
    ("proven connection lost", |stage| {
        stage.lane.on_proof_lost(stage.now);
        ""
    }),
    ("falls for a reader", |stage| {
        stage.lane.child().on_event(Event::ReadFailed(Failure::Refused), stage.now, &stage.group.table().probe);
        ""
    }),
    ("live_wait is over", |stage| {
        stage.later(2);
        let _ = stage.sequencer.step(stage.now);
        ""
    }),
];

#[test]
fn every_state_times_every_event() {
    let mut table = String::new();
    for (state, enter) in STATES {
        let _ = writeln!(table, "{state}");
        for (event, happen) in EVENTS {
            let mut stage = Stage::new();
            enter(&mut stage);
            let note = happen(&mut stage);
            let says = stage.says();
            let _ = writeln!(table, "  {event:<26} {note}{says} -> {}", stage.shown());
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mirror/replay/table.txt");
    if std::env::var_os("ANTIPHON_BLESS").is_some() {
        std::fs::write(path, &table).expect("the table can be written");
    }
    let stored = std::fs::read_to_string(path).expect("the table is beside this file");
    for (line, (is, was)) in table.lines().zip(stored.lines()).enumerate() {
        assert_eq!(is, was, "line {} of {path}", line + 1);
    }
    assert_eq!(table.lines().count(), stored.lines().count(), "{path} has another length");
}

#[test]
fn what_was_missed_comes_before_what_is_new_and_before_reads() {
    let mut stage = Stage::new();
    let child = stage.lane.child().clone();
    child.on_event(Event::ReadFailed(Failure::Refused), stage.now, &stage.group.table().probe);
    for _ in 0..3 {
        stage.publish(Once);
    }
    stage.siblings(200);
    assert_eq!(stage.group.lag(2), 3);
    assert!(stage.probe(true));
    for sequence in 1..=5 {
        assert!(!child.is_live(), "before {sequence}");
        let Do::SendChange { change, .. } = next_but_probes(&mut stage.lane, true, stage.now) else {
            panic!("{sequence} is missing");
        };
        assert_eq!(change.sequence(), sequence);
        if sequence <= 2 {
            // New ones come meanwhile; they wait for it no longer.
            let new = stage.publish(Once);
            assert!(!new.awaits(2));
            stage.siblings(200);
        }
        if sequence == 3 {
            // Replayed what was missed, and a step from the head: the next change waits for it again.
            stage.lane.on_answered(stage.now, 200, None);
            assert!(matches!(stage.lane.next(stage.now), Do::SendChange { .. }));
            assert!(child.is_live() && child.applied() == 3);
            return;
        }
        stage.lane.on_answered(stage.now, 200, None);
    }
}

#[test]
fn applied_before_counts_on_a_second_send_only() {
    // On the first send 405 is a refusal.
    let mut stage = Stage::new();
    stage.publish(Idempotent);
    stage.siblings(200);
    stage.send_next();
    stage.lane.on_answered(stage.now, 405, None);
    assert_eq!(stage.lane.standing, Standing::Diverged);

    let mut stage = Stage::new();
    let change = stage.publish(Idempotent);
    stage.siblings(200);
    stage.send_next();
    stage.lane.on_unanswered(stage.now, true, Failure::AnswerTimeout);
    assert_eq!(change.ended(2).map(|end| end.0), Some(End::InDoubt));
    assert!(stage.probe(true));
    assert!(matches!(stage.lane.next(stage.now), Do::SendChange { attempt: 2, .. }));
    stage.lane.on_sent(stage.now);
    stage.lane.on_answered(stage.now, 405, None);
    let _ = stage.lane.next(stage.now);
    assert_eq!((stage.lane.child().applied(), stage.lane.standing), (1, Standing::Live));
}

#[test]
fn a_refusal_of_all_is_no_success_of_the_one_that_was_asked_twice() {
    // DELETE of what never was: the siblings say so at once, this child when it is asked again.
    let mut stage = Stage::new();
    let change = stage.publish(Idempotent);
    stage.send_next();
    stage.lane.on_unanswered(stage.now, true, Failure::AnswerTimeout);
    stage.siblings(405);
    assert_eq!(change.agreed(), Some(Class::Rejected));
    assert!(stage.probe(true));
    assert!(matches!(stage.lane.next(stage.now), Do::SendChange { attempt: 2, .. }));
    stage.lane.on_sent(stage.now);
    stage.lane.on_answered(stage.now, 405, None);
    let _ = stage.lane.next(stage.now);
    assert_eq!((stage.lane.child().applied(), stage.lane.standing), (1, Standing::Live));
}

/// A change in flight on a connection that ends, while the child is found down: its client is not left waiting.
#[test]
fn a_change_in_flight_on_a_child_that_fell_is_ended_for_its_client() {
    for octets_left in [true, false] {
        let mut stage = Stage::new();
        stage.publish(Idempotent);
        stage.send_next();
        stage.lane.on_answered(stage.now, 200, None);
        let change = stage.publish(Idempotent);
        stage.send_next();
        let options = stage.group.table().probe.clone();
        stage.lane.child().on_event(Event::ProbeBad(Failure::Refused), stage.now, &options);
        let _ = stage.lane.next(stage.now);
        stage.lane.on_unanswered(stage.now, octets_left, Failure::Closed);
        assert!(change.ended(2).is_some(), "octets left: {octets_left}");
    }
}

#[test]
fn a_late_answer_saves_a_slow_child() {
    let mut stage = Stage::new();
    let change = stage.publish(Once);
    stage.send_next();
    stage.siblings(200);
    stage.later(6);
    assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::Wait { .. }));
    assert_eq!(change.ended(2).map(|end| end.0), Some(End::Slow));
    assert!(matches!(stage.group.decide(&change, stage.now), Decision::Answer { .. }), "the client waits no longer");
    assert!(!stage.lane.child().is_live());
    stage.later(10);
    stage.lane.on_answered(stage.now, 200, None);
    assert!(stage.probe(true));
    let _ = stage.lane.next(stage.now);
    assert!(stage.lane.child().is_live() && stage.lane.child().applied() == 1);
}

#[test]
fn children_that_are_slow_together_stay_together() {
    let mut stage = Stage::new();
    let change = stage.publish(Once);
    stage.send_next();
    for sibling in [0, 1] {
        change.set_in_flight(sibling, stage.now);
    }
    // For ten minutes nobody answers; the client is told after a deadline, nobody is demoted.
    for second in 0..600 {
        stage.later(1);
        assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::Wait { .. }));
        assert!(change.ended(2).is_none(), "{second}");
        let decision = stage.group.decide(&change, stage.now);
        assert_eq!(decision == Decision::Pending, second >= 4, "{second}: {decision:?}");
    }
    stage.lane.on_answered(stage.now, 200, None);
    assert!(stage.lane.child().is_live() && stage.lane.child().applied() == 1);
}

#[test]
fn a_child_that_shows_no_life_is_given_up_though_no_sibling_answers() {
    let mut stage = Stage::new();
    let change = stage.publish(Idempotent);
    stage.send_next();
    stage.later(299);
    assert!(matches!(next_but_probes(&mut stage.lane, false, stage.now), Do::Wait { .. }), "it may be busy");
    stage.later(1);
    assert!(matches!(next_but_probes(&mut stage.lane, false, stage.now), Do::GiveUp));
    assert_eq!(change.ended(2).map(|end| end.0), Some(End::InDoubt));
}

#[test]
fn an_idle_connection_that_had_ended_is_no_fault_of_the_child() {
    let mut stage = Stage::new();
    stage.publish(Idempotent);
    stage.send_next();
    stage.lane.on_answered(stage.now, 200, None);
    let change = stage.publish(Idempotent);
    stage.send_next();
    stage.lane.on_unanswered(stage.now, true, Failure::Closed);
    assert!(stage.lane.child().is_live());
    assert!(matches!(stage.lane.next(stage.now), Do::SendChange { attempt: 2, fresh_connection: true, .. }));
    assert!(change.ended(2).is_none());
    // A second time it is one.
    stage.lane.on_unanswered(stage.now, true, Failure::Closed);
    assert!(!stage.lane.child().is_live());
}

#[test]
fn a_change_that_may_not_be_repeated_goes_on_a_fresh_connection() {
    let mut stage = Stage::new();
    let send = |stage: &mut Stage, class, wait_ms| {
        stage.publish(class);
        stage.now = stage.now + Duration::from_millis(wait_ms);
        let Do::SendChange { fresh_connection, .. } = stage.lane.next(stage.now) else {
            panic!("nothing to send");
        };
        stage.lane.on_sent(stage.now);
        stage.lane.on_answered(stage.now, 200, None);
        fresh_connection
    };
    assert!(send(&mut stage, Once, 0), "it has carried nothing yet");
    assert!(send(&mut stage, Once, 1), "a server may close right after its answer, and say nothing");
    assert!(send(&mut stage, Once, 1_000));
    assert!(!send(&mut stage, Idempotent, 3_000));
}

#[test]
fn what_fails_everywhere_is_tried_and_then_is_the_outcome() {
    let (group, mut sequencer) = group(Like::default());
    let mut lanes = [0, 1, 2].map(|child| lane(&group, child));
    let mut now = at_ms(1_000);
    let (change, waiting) = publish(&group, &mut sequencer, Idempotent, now);
    for attempt in 1..=3 {
        for lane in &mut lanes {
            let Do::SendChange { attempt: its, .. } = next_but_probes(lane, true, now) else {
                panic!("not sent the {attempt}. time");
            };
            assert_eq!(its, attempt);
            let held = Held { head: Bytes::from_static(b"HTTP/1.1 507 \r\n\r\n"), body: Bytes::new(), cut: false };
            lane.on_answered(now, 507, Some(held));
        }
        now = now + Duration::from_secs(1);
    }
    assert_eq!(group.decide(&change, now), Decision::Answer { child: 0, status: 507 });
    assert!(waiting.answer(0).is_some());
    assert_eq!(group.table().shared.floor(), 0, "a failure is nothing to read");
    for lane in &mut lanes {
        assert!(matches!(lane.next(now), Do::Wait { .. }));
        assert!(lane.child().is_live() && lane.child().applied() == 1, "all alike");
    }
}

#[test]
fn who_goes_on_with_a_success_that_does_not_win_is_told() {
    let mut stage = Stage::new();
    let change = stage.publish(Once);
    stage.send_next();
    stage.lane.on_answered(stage.now, 200, None);
    assert!(stage.lane.child().is_live());
    stage.siblings(404);
    let _ = stage.lane.next(stage.now);
    assert_eq!(stage.lane.standing, Standing::Diverged);
    assert_eq!(stage.lane.child().why().text, "carried out change 1, which its siblings refused");
    assert_eq!(stage.group.decide(&change, stage.now), Decision::Answer { child: 0, status: 404 });
    // The operator mends it; the old judgement does not come back.
    stage.group.attach(2);
    assert!(stage.probe(true));
    let _ = stage.lane.next(stage.now);
    assert!(stage.lane.child().is_live());
}

/// A client that reads the moment it is told: what its child says then.
#[derive(Debug)]
struct Reader(Arc<MirrorGroup>, crate::sync::AtomicU64);

impl Wake for Reader {
    fn wake(&self) {
        self.1.store(self.0.child(2).applied(), Ordering::Relaxed);
    }
}

#[test]
fn a_child_says_what_it_applied_before_the_client_is_told() {
    let mut stage = Stage::new();
    let reader = Arc::new(Reader(Arc::clone(&stage.group), crate::sync::AtomicU64::new(0)));
    let (change, _waiting) = change_with(&stage.group, Once, b"", stage.now, reader.clone());
    stage.group.submit(0, &change).expect("room");
    let _ = stage.sequencer.step(stage.now);
    stage.send_next();
    stage.lane.on_answered(stage.now, 200, None);
    assert_eq!(reader.1.load(Ordering::Relaxed), 1);
}

#[test]
fn a_refusal_waits_for_siblings_with_patience_and_no_longer() {
    let mut stage = Stage::new();
    let change = stage.publish(Once);
    stage.send_next();
    stage.lane.on_answered(stage.now, 404, None);
    let Do::Wait { until } = stage.lane.next(stage.now) else {
        panic!("it waits");
    };
    stage.now = until;
    let _ = next_but_probes(&mut stage.lane, true, stage.now);
    assert_eq!((change.agreed(), stage.lane.child().applied()), (Some(Class::Rejected), 1));
}

#[test]
fn a_probe_that_brings_a_child_back_brings_its_backlog_first() {
    let mut stage = Stage::new();
    stage.sequencer.publish_probe(2, stage.now);
    assert!(matches!(stage.lane.next(stage.now), Do::Probe { .. }));
    // While it is asked it falls for a reader, and misses a change; the lane has not looked since.
    stage.lane.child().on_event(Event::ReadFailed(Failure::Refused), stage.now, &stage.group.table().probe);
    let missed = stage.publish(Once);
    assert!(!missed.awaits(2));
    stage.lane.on_probe(stage.now, Ok(()));
    assert_eq!(stage.lane.child().shown(), Shown::Replaying);
    stage.send_next();
    assert!(!stage.lane.child().is_live());
    stage.lane.on_answered(stage.now, 200, None);
    let _ = stage.lane.next(stage.now);
    assert!(stage.lane.child().is_live());
}

#[test]
fn one_that_fell_and_came_back_is_not_waited_for() {
    let mut stage = Stage::new();
    stage.publish(Idempotent);
    stage.send_next();
    stage.later(10);
    assert!(matches!(next_but_probes(&mut stage.lane, false, stage.now), Do::Wait { .. }));
    stage.later(60);
    assert!(matches!(next_but_probes(&mut stage.lane, false, stage.now), Do::Wait { .. }), "silent, but so are all");
    assert!(stage.probe(true));
    stage.later(1);
    assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::GiveUp));
}

#[test]
fn probes_alone_overrun_nobody() {
    let mut stage = Stage::new();
    for child in [0, 1] {
        for _ in 0..100 {
            stage.sequencer.publish_probe(child, stage.now);
        }
    }
    assert!(stage.group.ring().tail() > stage.lane.cursor);
    stage.publish(Once);
    assert!(matches!(stage.lane.next(stage.now), Do::SendChange { .. }));
}

#[test]
fn a_live_change_waits_for_all_and_holds_back_what_is_newer() {
    let mut stage = Stage::new();
    stage.publish(Once);
    stage.send_next();
    let live = stage.gather();
    let newer = stage.publish(Once);
    stage.siblings_are_ready();
    assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::Wait { .. }), "it drains first");
    stage.lane.on_answered(stage.now, 200, None);
    stage.prove();
    assert_eq!((live.ticket(), newer.ticket()), (None, None), "the sequencer has not looked");
    let _ = stage.sequencer.step(stage.now);
    let sequence = |change: &Change| change.ticket().map(|ticket| ticket.sequence);
    assert_eq!((sequence(&live), sequence(&newer)), (Some(2), Some(3)));
    let Do::SendChange { change, fresh_connection: false, .. } = stage.lane.next(stage.now) else {
        panic!("on the connection that it has proven");
    };
    assert!(change.live);
}

#[test]
fn one_child_that_is_not_live_is_named_and_nobody_gets_ready() {
    for away in [Shown::Offline, Shown::Draining, Shown::Suspect, Shown::Replaying, Shown::Diverged] {
        let mut stage = Stage::new();
        let (child, now) = (Arc::clone(&stage.group.table().children[1]), stage.now);
        match away {
            Shown::Offline => _ = child.set_admin(Admin::Offline, "", now),
            Shown::Draining => _ = child.set_admin(Admin::Draining, "", now),
            Shown::Suspect => {
                child.on_event(Event::ReadFailed(Failure::AnswerTimeout), now, &stage.group.table().probe);
            }
            Shown::Replaying => child.set_standing(Standing::Replaying, "", now),
            _ => child.set_standing(Standing::Diverged, "", now),
        }
        assert_eq!(child.shown(), away);
        let live = stage.gather();
        let Decision::Refused(fault) = stage.group.decide(&live, now) else {
            panic!("{away}: not refused");
        };
        assert_eq!((fault.code(), live.missing().iter().collect::<Vec<_>>()), ("not_queueable", vec![1]), "{away}");
        assert!(matches!(stage.lane.next(now), Do::Wait { .. }));
        assert_eq!(stage.group.last_sequence(), 0);
    }
}

#[test]
fn a_child_that_does_not_prove_itself_holds_nobody_up_for_longer_than_live_wait() {
    let mut stage = Stage::new();
    let live = stage.gather();
    assert!(matches!(stage.lane.next(stage.now), Do::Prove { .. }));
    let newer = stage.publish(Once);
    stage.siblings_are_ready();
    assert!(newer.ticket().is_none());
    stage.later(2);
    let _ = stage.sequencer.step(stage.now);
    assert_eq!(live.missing().iter().collect::<Vec<_>>(), [2]);
    assert_eq!(newer.ticket().map(|ticket| ticket.sequence), Some(1));
    // What gathers no more cannot be joined any more.
    stage.lane.on_proved(stage.now, Ok(()));
    assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::SendChange { change, .. } if !change.live));
}

#[test]
fn a_lane_that_withdraws_is_before_the_commit_or_too_late() {
    // Before: nobody runs it.
    let mut stage = Stage::new();
    let live = stage.ready();
    stage.lane.on_proof_lost(stage.now);
    stage.siblings_are_ready();
    assert_eq!((live.ticket(), live.missing().contains(2)), (None, true));
    assert!(stage.lane.child().is_live());
    // Too late: the others run it, so that this child lacks it.
    let mut stage = Stage::new();
    let live = stage.bound();
    stage.lane.on_proof_lost(stage.now);
    assert!(matches!(next_but_probes(&mut stage.lane, true, stage.now), Do::Wait { .. }));
    assert_eq!(stage.lane.child().why().text, "lacks live change 1 (test): it went away before it was sent");
    stage.siblings(200);
    assert_eq!(stage.group.decide(&live, stage.now), Decision::Partial);
    assert_eq!(stage.group.table().shared.floor(), 1, "what the client is told, it can read");
}

#[test]
fn a_live_change_is_answered_for_all_or_told_in_parts() {
    let outcomes: &[(u16, u16, Option<u16>)] = &[
        // The siblings, this child, what the client is told.
        (200, 200, Some(200)),
        (404, 404, Some(404)),
        (500, 500, Some(500)),
        (200, 404, None),
        (404, 200, None),
        (200, 500, None),
    ];
    for (siblings, own, told) in outcomes {
        let mut stage = Stage::new();
        let live = stage.bound();
        stage.send_next();
        stage.siblings(*siblings);
        assert!(matches!(stage.group.decide(&live, stage.now), Decision::Wait { .. }), "for all, whoever has answered");
        stage.lane.on_answered(stage.now, *own, None);
        let _ = stage.lane.next(stage.now);
        let expected = told.map_or(Decision::Partial, |status| Decision::Answer { child: 0, status });
        assert_eq!(stage.group.decide(&live, stage.now), expected, "{siblings} {own}");
        let standing = if told.is_some() { Standing::Live } else { Standing::Diverged };
        assert_eq!(stage.lane.standing, standing, "{siblings} {own}");
    }
}

/// What the operator flushes is gone, also what is under way; nothing more is sent until he says that the child is
/// identical again. A live child has nothing to flush.
#[test]
fn a_flushed_child_needs_a_reseed() {
    let mut stage = Stage::new();
    stage.group.flush(2);
    stage.says();
    assert_eq!(stage.lane.child().standing(), Standing::Live);

    stage.publish(Idempotent);
    stage.says();
    stage.lane.on_unanswered(stage.now, true, Failure::Closed);
    assert!(stage.probe(true));
    stage.publish(Once);
    assert!(stage.says().contains("send"), "it is on its way again");
    stage.group.flush(2);
    assert!(stage.says().starts_with("give up"), "and is dropped");
    assert_eq!(stage.lane.child().standing(), Standing::NeedsReseed);
    assert!(stage.lane.child().why().text.contains("flushed by the operator: 2 changes"));
    stage.later(60);
    stage.probe(true);
    stage.publish(Once);
    assert!(!stage.says().contains("send"));
    assert_eq!(stage.lane.child().applied(), 0);

    stage.group.attach(2);
    stage.later(2);
    stage.says();
    stage.lane.on_probe(stage.now, Ok(()));
    stage.says();
    assert_eq!((stage.lane.child().standing(), stage.lane.child().applied()), (Standing::Live, 3));
}
