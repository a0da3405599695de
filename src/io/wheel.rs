//! The timer wheel: deadlines of tasks, idle connections and listeners, cheap to set, move and forget.
//!
//! Eight levels of 64 slots. A slot of the lowest level is one tick (about a millisecond); a slot of a higher level is
//! as long as the whole level below it. A timer stands in the slot of the highest digit, base 64, in which its tick
//! differs from the current one, and moves down when the time reaches that slot: setting, cancelling and firing cost
//! the same whatever the number of timers (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987).
//!
//! Not a clock: it is told the time. A timer never fires early, and up to one tick late.

use crate::io::slab::{Key, Slab};
use crate::time::Time;

/// Pending deadlines, each with a value that says what they are for.
#[derive(Debug)]
pub struct Wheel<T> {
    timers: Slab<Timer<T>>,
    levels: [Level; LEVELS],
    /// Every timer with a tick at or below this has fired.
    current: u64,
}

/// Names a timer until it fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerKey(Key);

#[derive(Debug)]
struct Timer<T> {
    value: T,
    /// The first tick that is not before the deadline, and above `current` when it was set.
    tick: u64,
    /// The neighbours in the list of the slot.
    next: Option<Key>,
    previous: Option<Key>,
    /// Where it stands.
    level: u8,
    slot: u8,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    /// Bit n: slot n is not empty. All bits are above the digit of `current` at this level.
    occupied: u64,
    heads: [Option<Key>; SLOTS],
}

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for every [`Time`], so that no deadline is too far to be set.
const LEVELS: usize = 8;
/// A tick is 2^20 ns, 1.05 ms: finer than any deadline we promise, coarse enough that timers share wake-ups.
const TICK_BITS: u32 = 20;
const _: () = assert!(SLOT_BITS as usize * LEVELS > (u64::BITS - TICK_BITS) as usize);

// === impl Wheel ===

impl<T> Wheel<T> {
    /// An empty wheel that stands at `now`.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self {
            timers: Slab::new(),
            levels: [Level { occupied: 0, heads: [None; SLOTS] }; LEVELS],
            current: tick_at_or_before(now),
        }
    }

    /// Timers pending.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.timers.len()
    }

    /// No timer is pending.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Sets a timer. One that is due already fires with the next tick.
    pub fn insert(&mut self, at: Time, value: T) -> TimerKey {
        let tick = tick_at_or_after(at).max(self.current + 1);
        let key = self.timers.insert(Timer { value, tick, next: None, previous: None, level: 0, slot: 0 });
        self.link(key);
        TimerKey(key)
    }

    /// Forgets a timer. `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        self.timers.find(key.0)?;
        self.unlink(key.0);
        self.timers.remove(key.0).map(|timer| timer.value)
    }

    /// Fires what is due at `now`, in the order of the ticks. Time that goes backwards fires nothing.
    pub fn expire(&mut self, now: Time, mut fire: impl FnMut(T)) {
        let until = tick_at_or_before(now);
        while let Some((level, slot, start)) = self.first_slot() {
            if start > until {
                break;
            }
            self.current = start;
            self.levels[level].occupied &= !(1 << slot);
            let mut head = self.levels[level].heads[slot].take();
            while let Some(key) = head {
                let timer = self.timers.find_mut(key).expect("a linked timer exists");
                head = timer.next.take();
                timer.previous = None;
                if timer.tick <= self.current {
                    let timer = self.timers.remove(key).expect("found above");
                    fire(timer.value);
                } else {
                    self.link(key);
                }
            }
        }
        self.current = self.current.max(until);
    }

    /// When [`expire`](Self::expire) should next be called: not after the first deadline's tick. May be earlier, when a
    /// far timer must move down a level.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.first_slot().map(|(_, _, start)| Time::from_nanos(start.saturating_mul(1 << TICK_BITS)))
    }

    /// The first slot with timers and the tick at which it begins. The lowest level that is not empty has it, as all
    /// of a level lies before the next slot of the level above.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros() as usize;
        let shift = SLOT_BITS * level as u32;
        let block = self.current >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((level, slot, block | ((slot as u64) << shift)))
    }

    fn link(&mut self, key: Key) {
        let timer = self.timers.find_mut(key).expect("a timer to link exists");
        debug_assert!(timer.tick > self.current, "what is due is fired, not linked");
        let level = (self.current ^ timer.tick).ilog2() / SLOT_BITS;
        let slot = (timer.tick >> (SLOT_BITS * level)) as usize % SLOTS;
        let level = level as usize;
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        {
            timer.level = level as u8;
            timer.slot = slot as u8;
        }
        let head = self.levels[level].heads[slot].replace(key);
        timer.next = head;
        timer.previous = None;
        if let Some(head) = head {
            self.timers.find_mut(head).expect("a linked timer exists").previous = Some(key);
        }
        self.levels[level].occupied |= 1 << slot;
    }

    fn unlink(&mut self, key: Key) {
        let timer = self.timers.find_mut(key).expect("a timer to unlink exists");
        let (next, previous) = (timer.next.take(), timer.previous.take());
        let (level, slot) = (usize::from(timer.level), usize::from(timer.slot));
        if let Some(next) = next {
            self.timers.find_mut(next).expect("a linked timer exists").previous = previous;
        }
        if let Some(previous) = previous {
            self.timers.find_mut(previous).expect("a linked timer exists").next = next;
        } else {
            self.levels[level].heads[slot] = next;
            if next.is_none() {
                self.levels[level].occupied &= !(1 << slot);
            }
        }
    }
}

const fn tick_at_or_before(time: Time) -> u64 {
    time.as_nanos() >> TICK_BITS
}

const fn tick_at_or_after(time: Time) -> u64 {
    let nanos = time.as_nanos();
    (nanos >> TICK_BITS) + if nanos.trailing_zeros() >= TICK_BITS { 0 } else { 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TICK_NANOS: u64 = 1 << TICK_BITS;

    #[derive(Clone, Debug)]
    enum Step {
        Insert {
            after_nanos: u64,
        },
        Cancel {
            which: usize,
        },
        Expire {
            after_nanos: u64,
        },
        /// Goes to where the wheel itself asks to be called.
        ExpireNext,
    }

    /// Nanoseconds of every magnitude, often on a border of a slot.
    fn nanos() -> impl Strategy<Value = u64> {
        (0..56_u32, any::<u64>(), 0..3_u64).prop_map(|(bits, random, off)| {
            let random = random & ((1 << bits) - 1);
            if off == 2 { random } else { (random & !(TICK_NANOS - 1)) + off }
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => nanos().prop_map(|after_nanos| Step::Insert { after_nanos }),
            1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
            1 => nanos().prop_map(|after_nanos| Step::Expire { after_nanos }),
            2 => Just(Step::ExpireNext),
        ]
    }

    proptest! {
        /// The wheel against an ordered map from tick to timers.
        #[test]
        fn fires_as_an_ordered_map_would(start in nanos(), steps in prop::collection::vec(step(), 1..120)) {
            let mut now = start;
            let mut wheel = Wheel::new(Time::from_nanos(now));
            let mut model: BTreeMap<(u64, u32), TimerKey> = BTreeMap::new();
            let mut next_value = 0;
            for step in steps {
                match step {
                    Step::Insert { after_nanos } => {
                        let at = now.saturating_add(after_nanos);
                        let key = wheel.insert(Time::from_nanos(at), next_value);
                        let tick = at.div_ceil(TICK_NANOS).max(now / TICK_NANOS + 1);
                        model.insert((tick, next_value), key);
                        next_value += 1;
                    }
                    Step::Cancel { which } => {
                        if model.is_empty() {
                            continue;
                        }
                        let (&(tick, value), &key) = model.iter().nth(which % model.len()).expect("within");
                        prop_assert_eq!(wheel.cancel(key), Some(value));
                        prop_assert_eq!(wheel.cancel(key), None);
                        model.remove(&(tick, value));
                    }
                    Step::Expire { after_nanos } => now = now.saturating_add(after_nanos),
                    Step::ExpireNext => {
                        let first = model.keys().next().map(|&(tick, _)| tick.saturating_mul(TICK_NANOS));
                        let next = wheel.next().map(Time::as_nanos);
                        prop_assert_eq!(next.is_some(), first.is_some());
                        prop_assert!(next <= first, "not after the first deadline");
                        now = now.max(next.unwrap_or(now));
                    }
                }
                let mut fired: Vec<(u64, u32)> = Vec::new();
                let due: Vec<(u64, u32)> =
                    model.keys().copied().take_while(|&(tick, _)| tick <= now / TICK_NANOS).collect();
                wheel.expire(Time::from_nanos(now), |value| fired.push((0, value)));
                for (fired, due) in fired.iter_mut().zip(&due) {
                    fired.0 = due.0; // in the order of the ticks; within a tick any order
                }
                fired.sort_unstable();
                prop_assert_eq!(&fired, &due);
                for key in due {
                    let timer = model.remove(&key).expect("was due");
                    prop_assert_eq!(wheel.cancel(timer), None);
                }
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }

    #[test]
    fn a_deadline_is_never_early_and_at_most_a_tick_late() {
        let mut wheel = Wheel::new(Time::ZERO);
        wheel.insert(Time::from_nanos(TICK_NANOS + 1), ());
        let mut fired = 0;
        wheel.expire(Time::from_nanos(TICK_NANOS + 1), |()| fired += 1);
        assert_eq!(fired, 0);
        wheel.expire(Time::from_nanos(2 * TICK_NANOS), |()| fired += 1);
        assert_eq!(fired, 1);
    }

    #[test]
    fn never_can_be_set() {
        let mut wheel = Wheel::new(Time::ZERO);
        let key = wheel.insert(Time::NEVER, "never");
        wheel.expire(Time::from_nanos(u64::MAX - 1), |_| panic!("fired"));
        assert_eq!(wheel.cancel(key), Some("never"));
        assert!(wheel.is_empty());
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_is_due_already_fires_with_the_next_tick() {
        let mut wheel = Wheel::new(Time::from_nanos(100 * TICK_NANOS));
        wheel.insert(Time::ZERO, ());
        assert_eq!(wheel.next(), Some(Time::from_nanos(101 * TICK_NANOS)));
        let mut fired = 0;
        wheel.expire(Time::from_nanos(101 * TICK_NANOS), |()| fired += 1);
        assert_eq!(fired, 1);
    }
}
