//! `predictive`: the candidate on which the action costs least. What it costs is the model's ([`cost`](crate::route::cost)).
//!
//! All candidates are looked at, up to [`COST_SCAN_MAX`]; of more, [`COST_SAMPLE`] at random. The look begins at
//! another candidate each time, so that equals take turns.

use super::Candidates;
use crate::limits::{COST_IDLE_MAX, COST_SAMPLE, COST_SCAN_MAX};
use crate::route::child::{Child, InFlight};
use crate::route::chooser::Chooser;
use crate::route::cost::{Label, Prediction, Terms};
use crate::route::group::GroupTable;
use crate::sync::Arc;
use crate::time::Time;

/// One in so many choices is watched for the number of slots.
const WATCH_EVERY: usize = 8;

/// The cheapest candidate, charged with the action.
pub(super) fn choose(candidates: &Candidates<'_>, me: &mut Chooser, label: &Label) -> InFlight {
    let group = candidates.group;
    let model = &group.shared.cost;
    let prediction = model.predict(label, candidates.now);
    let (index, terms) = cheapest(candidates, me, &prediction);
    let child = &group.children[index];
    let watched = me.below(WATCH_EVERY) == 0;
    let (charge, dispatch) = model.dispatch(child.cost(), &terms, &prediction, watched, candidates.now);
    InFlight::charged(Arc::clone(child), charge, dispatch)
}

/// This child, whatever it costs, charged with the action: a change goes to every child.
pub(in crate::route) fn dispatch(group: &GroupTable, child: &Arc<Child>, label: &Label, now: Time) -> InFlight {
    let model = &group.shared.cost;
    let prediction = model.predict(label, now);
    let terms = terms(group, child, &prediction, now);
    let (charge, dispatch) = model.dispatch(child.cost(), &terms, &prediction, false, now);
    InFlight::charged(Arc::clone(child), charge, dispatch)
}

/// What an action of which this is predicted would cost on a child.
pub(super) fn terms(group: &GroupTable, child: &Child, prediction: &Prediction, now: Time) -> Terms {
    let model = &group.shared.cost;
    model.terms(child.cost(), &model.group(&group.cost), child.weight().max(1), prediction, now)
}

/// The cheapest candidate, or one that nobody has chosen for long: what is known of it may not be true any more.
fn cheapest(candidates: &Candidates<'_>, me: &mut Chooser, prediction: &Prediction) -> (usize, Terms) {
    let model = &candidates.group.shared.cost;
    let common = model.group(&candidates.group.cost);
    let mut best: Option<(usize, Terms, f64)> = None;
    // True ends the look.
    let mut look = |index: usize| {
        let standing = candidates.child(index).cost();
        let terms = model.terms(standing, &common, candidates.weight(index), prediction, candidates.now);
        let cost_us = terms.cost_us();
        let is_forgotten =
            terms.in_flight == 0 && !standing.is_away() && standing.claim_idle(COST_IDLE_MAX, candidates.now);
        if is_forgotten || best.as_ref().is_none_or(|(_, _, least)| cost_us < *least) {
            best = Some((index, terms, cost_us));
        }
        is_forgotten
    };
    let count = candidates.set.len();
    if count > COST_SCAN_MAX {
        let mut nth = |_| candidates.set.nth(me.below(count)).expect("a number below the count");
        _ = (0..COST_SAMPLE).map(&mut nth).any(&mut look);
    } else {
        let mut list = [0_usize; COST_SCAN_MAX];
        for (slot, index) in list.iter_mut().zip(candidates.set.iter()) {
            *slot = index;
        }
        let (before, after) = list[..count].split_at(me.next_choice() % count);
        _ = after.iter().chain(before).copied().any(&mut look);
    }
    let (index, terms, _) = best.expect("candidates are never none");
    (index, terms)
}
