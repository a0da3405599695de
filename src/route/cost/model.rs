//! What all children of a group have in common, and how a choice and its end pass through it.

use std::cell::Cell;

use super::class::{ClassView, Classes};
use super::label::Label;
use super::learn::{SLOTS, SlotsLearnt};
use super::standing::{F32, Group, Standing};
use super::terms::{Way, latency_us};
use super::{Charge, Options};
use crate::sync::{AtomicU64, Ordering};
use crate::time::Time;

/// The group's part of the cost model. Outlives snapshots; shared by all workers.
#[derive(Debug)]
pub(in crate::route) struct Model {
    pub(super) classes: Classes,
    pub(super) slots: SlotsLearnt,
    /// The median of the children's error rates.
    pub(super) error_rate: F32,
    /// When the tick was done last, in nanoseconds.
    pub(super) ticked: AtomicU64,
}

/// What is predicted of an action before a child is chosen for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub(super) class: usize,
    /// What it takes on an average child that has nothing else to do, in microseconds.
    pub service_us: f64,
    /// Answers of its class that this was learnt from; with few, it leans on coarser classes.
    pub samples: u32,
}

/// What was true when an action was sent: what its answer is held against.
#[derive(Debug)]
pub(in crate::route) struct Dispatch {
    pub(super) class: usize,
    /// In flight on the child, with this one.
    pub(super) load: u32,
    /// Actions that had ended on the child.
    pub(super) ended: u64,
    pub(super) slots: u32,
    /// The slots are configured.
    pub(super) slots_given: bool,
    pub(super) predicted_us: f64,
    /// For one in eight: the latency by number of slots, not slowed.
    pub(super) by_slots: Option<[f32; SLOTS.len()]>,
    /// It counts as ended, since its answer came.
    pub(super) has_ended: Cell<bool>,
}

impl Model {
    /// What is predicted of an action of this kind.
    pub(in crate::route) fn predict(&self, label: &Label, now: Time) -> Prediction {
        let class = self.classes.place(label, (now.as_nanos() / 1_000_000_000) as u32);
        let expected = self.classes.expected(class);
        Prediction { class, service_us: expected.mean_us, samples: expected.count }
    }

    /// What the children have in common now.
    pub(in crate::route) fn group(&self, options: &Options) -> Group {
        Group {
            way: Way::new(self.slots.chosen(), false),
            error_rate: self.error_rate.load(),
            spill_us: options.spill.as_secs_f64() * 1e6,
            slow_start: options.slow_start,
        }
    }

    /// The action goes to this child: charges it, and keeps what was true. `watch_slots` for one in eight.
    pub(in crate::route) fn dispatch(
        &self,
        standing: &Standing,
        group: &Group,
        prediction: &Prediction,
        watch_slots: bool,
        now: Time,
    ) -> (Charge, Dispatch) {
        let service_us = prediction.service_us;
        let way = standing.way(group);
        let slots_given = standing.judged.slots.load(Ordering::Relaxed) > 0;
        let by_slots = (watch_slots && !slots_given).then(|| {
            let backlog = standing.load.backlog();
            SLOTS.map(|slots| latency_us(&backlog, Way::new(slots, way.shares), service_us) as f32)
        });
        let latency_us = standing.latency_us(standing.load.count(), way, service_us);
        standing.on_chosen(now);
        let ended = standing.learnt.ended.load(Ordering::Relaxed);
        let (charge, before) = standing.load.charge(Some(service_us));
        let dispatch = Dispatch {
            class: prediction.class,
            load: before.saturating_add(1),
            ended,
            slots: way.slots,
            slots_given,
            predicted_us: standing.judged.slowness.load() * latency_us,
            by_slots,
            has_ended: Cell::new(false),
        };
        (charge, dispatch)
    }

    /// What would be predicted of an action of this kind, and the class that it would be predicted by. Makes no class.
    pub(in crate::route) fn look_up(&self, label: &Label) -> (Prediction, Option<ClassView>) {
        let class = self.classes.known(label);
        let expected = self.classes.expected(class);
        let prediction = Prediction { class, service_us: expected.mean_us, samples: expected.count };
        (prediction, self.classes.view_of(class))
    }

    /// The classes that were learnt, everything first, then the most seen.
    pub(in crate::route) fn classes(&self) -> Vec<ClassView> {
        self.classes.view()
    }

    /// The learnt slots.
    pub(in crate::route) fn slots(&self) -> u32 {
        self.slots.chosen()
    }
}

impl Dispatch {
    pub(in crate::route) const fn load(&self) -> u32 {
        self.load
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            classes: Classes::new(),
            slots: SlotsLearnt::new(),
            error_rate: F32::default(),
            ticked: AtomicU64::new(0),
        }
    }
}
