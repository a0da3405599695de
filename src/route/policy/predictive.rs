//! `predictive`: the candidate on which the action costs least. What it costs is the model's ([`cost`](crate::route::cost)).
//!
//! All candidates are looked at, up to [`COST_SCAN_MAX`]; of more, [`COST_SAMPLE`] at random. The look begins at
//! another candidate each time, so that equals take turns.

use super::Candidates;
use crate::limits::{COST_IDLE_MAX, COST_SAMPLE, COST_SCAN_MAX};
use crate::route::child::{Child, InFlight};
use crate::route::chooser::Chooser;
use crate::route::cost::{Group, Label, Prediction, Terms};
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
    let common = model.group(&group.cost);
    let index = cheapest(candidates, me, &common, prediction.service_us);
    let watched = me.below(WATCH_EVERY) == 0;
    charge(group, &group.children[index], &common, &prediction, watched, candidates.now)
}

fn charge(
    group: &GroupTable,
    child: &Arc<Child>,
    common: &Group,
    prediction: &Prediction,
    watched: bool,
    now: Time,
) -> InFlight {
    let (charge, dispatch) = group.shared.cost.dispatch(child.cost(), common, prediction, watched, now);
    InFlight::charged(Arc::clone(child), charge, dispatch)
}

/// This child, whatever it costs, charged with the action: a change goes to every child.
pub(in crate::route) fn dispatch(group: &GroupTable, child: &Arc<Child>, label: &Label, now: Time) -> InFlight {
    let model = &group.shared.cost;
    charge(group, child, &model.group(&group.cost), &model.predict(label, now), false, now)
}

/// What an action of which this is predicted would cost on a child.
pub(super) fn terms(group: &GroupTable, child: &Child, prediction: &Prediction, now: Time) -> Terms {
    let common = group.shared.cost.group(&group.cost);
    child.cost().terms(&common, child.weight().max(1), prediction.service_us, now)
}

/// The cheapest candidate, or one that nobody has chosen for long: what is known of it may not be true any more.
fn cheapest(candidates: &Candidates<'_>, me: &mut Chooser, common: &Group, service_us: f64) -> usize {
    let (set, now) = (&candidates.set, candidates.now);
    let count = set.len();
    let sampled = count > COST_SCAN_MAX;
    let mut next = set.nth(me.next_rank(count)).expect("a number below the count");
    let (mut best, mut least) = (next, f64::INFINITY);
    for _ in 0..if sampled { COST_SAMPLE } else { count } {
        let index = if sampled { set.nth(me.below(count)) } else { set.around(next) };
        let index = index.expect("candidates are never none");
        next = index + 1;
        let standing = candidates.child(index).cost();
        if standing.claim_idle(COST_IDLE_MAX, now) {
            return index;
        }
        let cost_us = standing.cost_us(common, candidates.weight(index), service_us, now);
        if cost_us < least {
            (best, least) = (index, cost_us);
        }
    }
    best
}
