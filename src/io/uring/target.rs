//! How many empty buffers the kernel should have.
//!
//! It takes them first in, first out, so a thousand lent buffers are a thousand cold ones; too few end receives with
//! `ENOBUFS`. So: few at first, twice as many whenever a turn took more than half of them, slowly back when it was
//! long quiet.

/// The number for one group, told what happened in each turn.
#[derive(Debug)]
pub(super) struct Target {
    /// Between `least` and `most`.
    now: usize,
    least: usize,
    most: usize,
    /// The most that one turn took since the last look.
    peak: usize,
    /// Turns since the last look.
    turns: u32,
}

impl Target {
    /// Starts at `first`, which is also the least; never above `most`, the buffers there are.
    pub(super) fn new(first: usize, most: usize) -> Self {
        let least = first.clamp(1, most);
        Self { now: least, least, most, peak: 0, turns: 0 }
    }

    /// The number to lend after a turn in which the kernel used `taken`, and had none left if `ran_short`.
    pub(super) fn on_turn(&mut self, taken: usize, ran_short: bool) -> usize {
        self.peak = self.peak.max(taken);
        self.turns += 1;
        if ran_short || taken * 2 > self.now {
            self.now = (self.now * 2).min(self.most);
        }
        if self.turns == TURNS_BETWEEN_LOOKS {
            if self.peak * 4 < self.now {
                self.now = (self.now / 2).max(self.least);
            }
            self.peak = 0;
            self.turns = 0;
        }
        self.now
    }
}

/// A few milliseconds to a second, as the load is: long enough not to follow single bursts.
const TURNS_BETWEEN_LOOKS: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_at_once_and_shrinks_slowly() {
        let mut target = Target::new(4, 20);
        assert_eq!(target.on_turn(2, false), 4);
        assert_eq!(target.on_turn(3, false), 8);
        assert_eq!(target.on_turn(0, true), 16);
        assert_eq!(target.on_turn(16, true), 20, "no more than there are");
        for _ in 0..TURNS_BETWEEN_LOOKS {
            target.on_turn(4, false);
        }
        assert_eq!(target.on_turn(0, false), 20, "the peak was in this stretch");
        for _ in 0..3 * TURNS_BETWEEN_LOOKS {
            target.on_turn(0, false);
        }
        assert_eq!(target.on_turn(0, false), 4, "never below the first");
        assert_eq!(Target::new(99, 3).on_turn(0, false), 3);
    }
}
