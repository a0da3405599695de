//! `peak_ewma`: of two candidates at random, the one whose average latency times what is in flight on it is less for
//! its weight, as in Finagle and linkerd. The average is `latency.rs`'s.

use super::Candidates;
use crate::route::chooser::Chooser;

/// The cheaper of two.
pub(super) fn pick(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let (one, other) = candidates.two(me);
    let cost = |index| {
        let child = candidates.child(index);
        child.latency.cost(child.load(), candidates.now) / f64::from(candidates.weight(index))
    };
    if cost(other) < cost(one) { other } else { one }
}
