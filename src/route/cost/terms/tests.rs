//! The formulas against what they stand for: the exact level, and the properties that a choice relies on.

use proptest::prelude::*;

use super::super::cell::bucket_of;
use super::*;

fn backlog(remaining_us: &[u32]) -> Backlog {
    let mut backlog = Backlog { count: remaining_us.len() as u32, ..Backlog::default() };
    for us in remaining_us {
        backlog.counts[bucket_of(*us)] += 1;
        backlog.sums_us[bucket_of(*us)] += u64::from(*us);
    }
    backlog
}

#[derive(Clone, Copy)]
struct Sight {
    backlog: Backlog,
    way: Way,
    factors: Factors,
}

fn sight(remaining_us: &[u32], slots: u32, shares: bool) -> Sight {
    let factors = Factors { slowness: 1.0, weight: 1.0, start: 1.0, errors_us: 0.0, spill_us: 0.0, rtt_us: 0.0 };
    Sight { backlog: backlog(remaining_us), way: Way::new(slots, shares), factors }
}

fn cost(sight: &Sight, service_us: f64) -> f64 {
    Terms::of(&sight.backlog, sight.way, &sight.factors, service_us).cost_us()
}

/// The least level at which a slot is free: the sum of what is below it is more than `slots` can hold.
fn exact_level_us(remaining_us: &[u32], slots: u32) -> f64 {
    let mut sorted = remaining_us.to_vec();
    sorted.sort_unstable();
    if sorted.len() < slots as usize {
        return 0.0;
    }
    let mut below = 0.0;
    for (i, us) in sorted.iter().enumerate() {
        let above = (sorted.len() - i) as f64;
        // With a level up to this remaining time: below + above × level = slots × level.
        if f64::from(slots) > above {
            let level = below / (f64::from(slots) - above);
            if level <= f64::from(*us) {
                return level;
            }
        }
        below += f64::from(*us);
    }
    below / f64::from(slots)
}

fn any_remaining() -> impl Strategy<Value = Vec<u32>> {
    // As work comes: mostly short, sometimes very long.
    let us = (0_u32..20).prop_flat_map(|power| (1_u32 << power)..(2_u32 << power));
    prop::collection::vec(us, 0..40)
}

fn any_sight() -> impl Strategy<Value = (Vec<u32>, u32, bool)> {
    (any_remaining(), 1_u32..20, any::<bool>())
}

#[test]
fn a_wait_by_hand() {
    // Two slots; of three equal actions one waits for half of the sum.
    assert_eq!(wait_us(&backlog(&[1_000, 1_000, 1_000]), 2), 1_500.0);
    // A slot is free.
    assert_eq!(wait_us(&backlog(&[1_000]), 2), 0.0);
    // One is held for long; the other is free when the two short ones are done.
    assert_eq!(wait_us(&backlog(&[100, 100, 500_000]), 2), 200.0);
    assert_eq!(wait_us(&backlog(&[3_600_000_000]), 1), 3.6e9);
    // Shared: three others and this one, two at a time.
    assert_eq!(latency_us(&backlog(&[1_000; 3]), Way::new(2, true), 1_000.0), 2_000.0);
}

#[test]
fn harm_is_a_curve_without_a_step() {
    assert_eq!((harm(0.25), harm(1.0)), (0.125, 1.0));
    let steps: Vec<_> = (0..4_000).map(|n| harm(f64::from(n) / 1_000.0)).collect();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] < 0.003));
}

#[test]
fn the_level_is_never_below_the_exact_one_and_seldom_far_above() {
    let mut dice = crate::route::Chooser::new(11);
    let mut ratios = Vec::new();
    for _ in 0..60_000 {
        let slots = 1 + dice.below(16) as u32;
        let count = slots as usize + dice.below(32);
        // From a quarter of the first bucket's end on: below it all is one, and the error at most that end.
        let any = |dice: &mut crate::route::Chooser| (64 << dice.below(14)) + dice.below(64) as u32;
        let remaining: Vec<u32> = (0..count).map(|_| any(&mut dice)).collect();
        let (exact, told) = (exact_level_us(&remaining, slots), wait_us(&backlog(&remaining), slots));
        assert!(told >= exact * (1.0 - 1e-9), "{told} below {exact}: {remaining:?} on {slots}");
        if exact > 0.0 {
            ratios.push(told / exact);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
    assert!(at(0.5) < 1.01 && at(0.99) < 1.7 && at(1.0) <= 3.0, "{} {} {}", at(0.5), at(0.99), at(1.0));
}

proptest! {
    #[test]
    fn one_more_action_never_makes_it_cheaper((remaining, slots, shares) in any_sight(), more in 1_u32..4_000_000, p in 1.0_f64..1e7) {
        let before = sight(&remaining, slots, shares);
        let mut fuller = remaining;
        fuller.push(more);
        let after = sight(&fuller, slots, shares);
        prop_assert!(cost(&after, p) >= cost(&before, p) * (1.0 - 1e-9), "{} then {}", cost(&before, p), cost(&after, p));
    }

    #[test]
    fn what_is_worse_never_costs_less((remaining, slots, shares) in any_sight(), p in 1.0_f64..1e7, by in 1.0_f64..10.0) {
        let fair = sight(&remaining, slots, shares);
        for factors in [
            Factors { slowness: by, ..fair.factors },
            Factors { weight: by, ..fair.factors },
            Factors { start: by, ..fair.factors },
            Factors { errors_us: by, ..fair.factors },
            Factors { spill_us: by, ..fair.factors },
            Factors { rtt_us: by, ..fair.factors },
        ] {
            let worse = Sight { factors, ..fair };
            prop_assert!(cost(&worse, p) >= cost(&fair, p));
        }
    }

    #[test]
    fn a_longer_action_does_not_prefer_the_fuller_child(remaining in any_remaining(), more in 1_u32..4_000_000, slots in 1_u32..20, p in 1.0_f64..1e6, longer in 1.0_f64..10.0) {
        let free = sight(&remaining, slots, false);
        let mut fuller = remaining;
        fuller.push(more);
        let full = sight(&fuller, slots, false);
        let gap = |p: f64| cost(&full, p) - cost(&free, p);
        prop_assert!(gap(p * longer) >= gap(p) * (1.0 - 1e-9) - 1e-6);
    }

    #[test]
    fn a_free_slot_beats_none(free in prop::collection::vec(1_u32..4_000_000, 0..8), full in prop::collection::vec(1_u32..4_000_000, 8..40), p in 1.0_f64..3.6e9) {
        // Of two equal children: one with a free slot, one without.
        prop_assert!(cost(&sight(&free, 8, false), p) < cost(&sight(&full, 8, false), p));
    }

    #[test]
    fn nothing_is_not_a_number(remaining in prop::collection::vec(any::<u32>(), 0..8), slots in 1_u32..1_000_000, shares in any::<bool>(), p in 0.0_f64..3.6e9) {
        let fair = sight(&remaining, slots, shares);
        let factors = Factors { slowness: 64.0, weight: 100.0, start: 4.0, ..fair.factors };
        let cost = cost(&Sight { factors, ..fair }, p);
        prop_assert!(cost.is_finite() && cost >= 0.0);
    }
}
