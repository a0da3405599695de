//! Spreading: how a seed becomes a length of time, the same one each time.

use std::time::Duration;

/// `interval`, made longer or shorter by up to `percent` (at most 50) of it; `seed` decides where in that range.
pub(super) fn jittered(interval: Duration, percent: u8, seed: u64) -> Duration {
    let percent = u64::from(percent.min(50));
    let permille = 1_000 - 10 * percent + mix(seed) % (20 * percent + 1);
    let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
    Duration::from_nanos(micros.saturating_mul(permille))
}

/// Spreads the bits of `x` over all of a word: the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable
/// pseudorandom number generators", 2014). Equal in, equal out; not for secrets.
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_in_its_range_and_uses_it() {
        let second = Duration::from_secs(1);
        let all: Vec<_> = (0..1_000).map(|seed| jittered(second, 20, seed)).collect();
        assert!(all.iter().all(|one| (800..=1_200).contains(&one.as_millis())));
        assert!(all.iter().any(|one| one.as_millis() < 820) && all.iter().any(|one| one.as_millis() > 1_180));
        assert_eq!(jittered(second, 20, 7), jittered(second, 20, 7));
        assert_eq!(jittered(second, 0, 7), second);
        assert!(jittered(Duration::MAX, 50, 1) > Duration::from_secs(1_000_000));
    }
}
