//! What the tests of this family share: a group with its sequencer, changes, and wakes that count.

use std::time::Duration;

use bytes::Bytes;

use super::model::Model;
use super::{
    Budget, Change, Do, Durable, Lane, Level, MirrorGroup, OnFull, OnUnknown, Order, Retention, Sequencer, Setup,
    Waiting, Wake,
};
use crate::action::UnknownOutcome;
use crate::probe::Failure;
use crate::route::{GroupTable, Policy, testing};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::Time;

/// Counts how often it was woken.
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicU64);

impl Bell {
    pub(super) fn rings(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn at_ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// What a test's group is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Like {
    pub(super) children: usize,
    pub(super) level: Level,
    pub(super) slots: usize,
    pub(super) bytes: usize,
}

impl Default for Like {
    fn default() -> Self {
        Self { children: 3, level: Level::All, slots: 64, bytes: 1 << 20 }
    }
}

pub(super) fn group(like: Like) -> (Arc<MirrorGroup>, Sequencer) {
    group_with(like, Arc::new(Bell::default()))
}

/// The same, with the wake of its sequencer's thread.
pub(super) fn group_with(like: Like, sequencer: Arc<dyn Wake>) -> (Arc<MirrorGroup>, Sequencer) {
    group_from(like, sequencer, None)
}

/// The same, with what keeps its changes.
pub(super) fn group_from(
    like: Like,
    sequencer: Arc<dyn Wake>,
    durable: Option<Durable>,
) -> (Arc<MirrorGroup>, Sequencer) {
    let table = testing::group(Policy::RoundRobin, &vec![100; like.children]);
    group_on(Arc::new(table), like, sequencer, durable)
}

/// The same, with these children.
pub(super) fn group_on(
    table: Arc<GroupTable>,
    like: Like,
    sequencer: Arc<dyn Wake>,
    durable: Option<Durable>,
) -> (Arc<MirrorGroup>, Sequencer) {
    MirrorGroup::new(Setup {
        table,
        epoch: 1,
        level: like.level,
        deadline: Duration::from_secs(5),
        live_wait: Duration::from_secs(2),
        workers: 2,
        submissions_max: 8,
        ring_slots: like.slots,
        ring_bytes_max: like.bytes,
        catch_up_help: Duration::ZERO,
        sequencer,
        durable,
    })
}

/// What keeps a group's changes, as `model` does; after a power cut, if there was one.
pub(super) fn kept_by(model: &Model, power_cut: bool, reader: Arc<dyn Wake>) -> Durable {
    Durable {
        journal: Box::new(model.clone()),
        slots: Arc::new(model.clone()),
        resume: model.resume(power_cut),
        reader,
        sync_each: false,
        retention: Retention {
            backlog_bytes_max: u64::MAX,
            backlog_age_max: Duration::MAX,
            on_full: OnFull::RejectWrites,
        },
    }
}

/// A change with `body`. MKCOL's rule: 405 on a re-send means "applied before".
pub(super) fn change(
    group: &MirrorGroup,
    unknown_outcome: UnknownOutcome,
    body: &[u8],
    now: Time,
) -> (Arc<Change>, Arc<Waiting>) {
    change_with(group, unknown_outcome, body, now, Arc::new(Bell::default()))
}

/// The same, with the wake of its client's task.
pub(super) fn change_with(
    group: &MirrorGroup,
    unknown_outcome: UnknownOutcome,
    body: &[u8],
    now: Time,
    origin: Arc<dyn Wake>,
) -> (Arc<Change>, Arc<Waiting>) {
    Change::new(order(group, unknown_outcome, body, now), origin)
}

/// A live change.
pub(super) fn live_change_with(
    group: &MirrorGroup,
    body: &[u8],
    now: Time,
    origin: Arc<dyn Wake>,
) -> (Arc<Change>, Arc<Waiting>) {
    Change::new(Order { live: true, ..order(group, UnknownOutcome::Once, body, now) }, origin)
}

fn order(group: &MirrorGroup, unknown_outcome: UnknownOutcome, body: &[u8], now: Time) -> Order {
    Order {
        head: Bytes::from_static(b"POST / HTTP/1.1\r\n\r\n"),
        body: Bytes::copy_from_slice(body),
        unknown_outcome,
        applied: Arc::new([405]),
        name: "test".into(),
        live: false,
        on_unknown: OnUnknown::default(),
        key: None,
        children: group.table().children.len(),
        submitted: now,
        charge: Budget::new(1 << 30).charge(body.len()).expect("room"),
    }
}

/// Submits a change and lets the sequencer number it.
pub(super) fn publish(
    group: &MirrorGroup,
    sequencer: &mut Sequencer,
    unknown_outcome: UnknownOutcome,
    now: Time,
) -> (Arc<Change>, Arc<Waiting>) {
    let (change, waiting) = change(group, unknown_outcome, b"body", now);
    group.submit(0, &change).expect("room in the line");
    let _ = sequencer.step(now);
    (change, waiting)
}

/// The lane of `child`.
pub(super) fn lane(group: &Arc<MirrorGroup>, child: usize) -> Lane {
    Lane::new(Arc::clone(group), child, Arc::new(Bell::default()))
}

/// Answers the probes that the lane wants now, and gives back what it wants then.
pub(super) fn next_but_probes(lane: &mut Lane, good: bool, now: Time) -> Do {
    loop {
        match lane.next(now) {
            Do::Probe { .. } => lane.on_probe(now, if good { Ok(()) } else { Err(Failure::AnswerTimeout) }),
            other => return other,
        }
    }
}
