//! What `predictive` would choose, and why: the terms of each child's cost, without a choice being made.

use super::{NoChoice, candidates, predictive};
use crate::route::child::Shown;
use crate::route::cost::{ClassView, Label, Prediction, Seen, Terms};
use crate::route::group::GroupTable;
use crate::route::set::ChildSet;
use crate::time::Time;

/// What the model says about an action, as of now.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What is predicted of the action itself.
    pub prediction: Prediction,
    /// The class that this comes from; `None` before anything was learnt.
    pub class: Option<ClassView>,
    /// Actions a child is taken to serve at once, where that is not configured.
    pub slots: u32,
    /// In the order of the configuration.
    pub children: Vec<Judged>,
    /// The child with the least cost, of those that may be chosen; or why there is none.
    pub chosen: Result<usize, NoChoice>,
    /// Everything that was learnt of classes, the most seen first.
    pub classes: Vec<ClassView>,
}

/// One child.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its index in its group.
    pub index: usize,
    /// Its state.
    pub shown: Shown,
    /// It may be chosen for this read.
    pub is_candidate: bool,
    /// What the action would cost there.
    pub terms: Terms,
    /// What was learnt of it.
    pub seen: Seen,
}

impl GroupTable {
    /// What the cost model says about a read of this kind. Nothing is chosen, charged or learnt.
    #[must_use]
    pub fn explain(&self, label: &Label, now: Time) -> Explanation {
        let model = &self.shared.cost;
        let (prediction, class) = model.look_up(label);
        let found = candidates(self, &ChildSet::new(), self.read_floor());
        let set = found.unwrap_or_default();
        let judged = |index: usize| {
            let child = &self.children[index];
            Judged {
                index,
                shown: child.shown(),
                is_candidate: set.contains(index),
                terms: predictive::terms(self, child, &prediction, now),
                seen: child.cost().seen(),
            }
        };
        let children: Vec<_> = self.occupied().map(|child| judged(child.index)).collect();
        let cost = |child: &&Judged| child.terms.cost_us();
        let least = children
            .iter()
            .filter(|child| child.is_candidate)
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .map(|child| child.index);
        let chosen = found.map(|_| least.expect("candidates are never none"));
        Explanation { prediction, class, slots: model.slots(), children, chosen, classes: model.classes() }
    }
}
