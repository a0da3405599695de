//! `p2c`: of two candidates at random, the one with less in flight for its weight (Mitzenmacher: "The power of two
//! choices in randomized load balancing", 2001).

use super::Candidates;
use super::least::Load;
use crate::route::chooser::Chooser;

/// The less loaded of two.
pub(super) fn pick(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let (one, other) = candidates.two(me);
    // Of equals the first drawn, which is any of them.
    if Load::of(candidates, other).cmp(Load::of(candidates, one)).is_lt() { other } else { one }
}
