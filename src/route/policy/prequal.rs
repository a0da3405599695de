//! `prequal`: children with more in flight than most are *hot* and avoided; of the cold ones, the one whose answers take
//! least at its load (Wydrowski et al., "Load is not what you should balance", NSDI 2024).
//!
//! Prequal probes servers and keeps a pool of the replies. Here all that a child serves passes through us, so what is
//! in flight is known at once and latency is what we saw (`at_load.rs`): the pool is the candidates themselves, or as
//! many of them at random as Prequal keeps.

use super::Candidates;
use crate::route::chooser::Chooser;

/// Replies that Prequal keeps.
const POOL: usize = 16;

/// The coldest, or the fastest of the cold.
pub(super) fn pick(candidates: &Candidates<'_>, me: &mut Chooser) -> usize {
    let count = candidates.set.len();
    let mut pool = [(0_usize, 0.0_f32); POOL];
    let pool = &mut pool[..count.min(POOL)];
    // Turned, so that equals take turns.
    let turn = me.next_rank(count);
    for (i, entry) in pool.iter_mut().enumerate() {
        let nth = if count <= POOL { (turn + i) % count } else { me.below(count) };
        let index = candidates.set.nth(nth).expect("a number below the count");
        *entry = (index, candidates.child(index).load() as f32 / candidates.weight(index) as f32);
    }
    let mut loads = [0.0_f32; POOL];
    let loads = &mut loads[..pool.len()];
    loads.iter_mut().zip(&*pool).for_each(|(load, entry)| *load = entry.1);
    loads.sort_unstable_by(f32::total_cmp);
    let at = (candidates.group.cost.prequal_quantile * (loads.len() - 1) as f32) as usize;
    let hot_above = loads[at.min(loads.len() - 1)];
    let latency = |index: usize| {
        let child = candidates.child(index);
        child.at_load.median_us(child.load() + 1, candidates.now) / candidates.weight(index) as f32
    };
    // The least loaded one is never hot, so there always is a cold one.
    let cold = pool.iter().filter(|(_, load)| *load <= hot_above).map(|(index, _)| (*index, latency(*index)));
    let best = cold.reduce(|best, other| if other.1 < best.1 { other } else { best });
    best.expect("the least loaded one is cold").0
}
