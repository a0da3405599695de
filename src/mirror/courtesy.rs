//! Letting a child that returns catch up, where changes come as fast as children can take them.
//!
//! Every lane has one change in flight. Where writers keep all of them busy, a child that is sent what it missed gets no
//! nearer: its siblings take new changes as fast as it takes old ones. So, while a child is replaying, the sequencer
//! numbers at most one new change for every [`CHANGES_EACH`] that this child confirms; what waits stays in the
//! submission queues. A slow child must not hold the others for long: it gets this help for a bounded time a return,
//! and not at all while it confirms nothing. Where changes come seldom nobody notices, since what is not used is saved
//! up, to [`SAVED_MAX`].

use std::time::Duration;

use crate::route::{Child, Shown};
use crate::sync::Arc;
use crate::time::Time;

/// Confirmations of a returning child that a new change costs.
const CHANGES_EACH: u64 = 2;
/// New changes that may be numbered at once after a quiet time.
const SAVED_MAX: u64 = 16;

/// What the sequencer remembers of each child's return.
#[derive(Debug)]
pub(super) struct Courtesy {
    help: Duration,
    children: Box<[Option<Help>]>,
}

#[derive(Clone, Copy, Debug)]
struct Help {
    since: Time,
    applied: u64,
    /// Confirmations that no new change has used.
    saved: u64,
    /// When it last confirmed one.
    moved: Time,
}

impl Courtesy {
    /// `help` is how long a child is helped after its return.
    pub(super) fn new(children: usize, help: Duration) -> Self {
        Self { help, children: vec![None; children].into() }
    }

    /// May a new change be numbered now? If so, the returning children are charged with it.
    pub(super) fn admits(&mut self, children: &[Arc<Child>], now: Time) -> bool {
        let mut admits = true;
        for (help, child) in self.children.iter_mut().zip(children) {
            if child.shown() != Shown::Replaying {
                *help = None;
                continue;
            }
            let applied = child.applied();
            let help = help.get_or_insert(Help { since: now, applied, saved: SAVED_MAX * CHANGES_EACH, moved: now });
            if applied > help.applied {
                help.saved = (help.saved + applied - help.applied).min(SAVED_MAX * CHANGES_EACH);
                help.applied = applied;
                help.moved = now;
            }
            admits &= help.saved >= CHANGES_EACH || !help.is_due(self.help, now);
        }
        if admits {
            for help in self.children.iter_mut().flatten() {
                help.saved = help.saved.saturating_sub(CHANGES_EACH);
            }
        }
        admits
    }
}

impl Help {
    /// Others wait for this child: it has just come back, and gets on.
    fn is_due(&self, help: Duration, now: Time) -> bool {
        now < self.since + help && now < self.moved + help / 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CATCH_UP_HELP;
    use crate::probe::{Event, Options};
    use crate::route::Standing;

    fn replaying() -> Arc<Child> {
        let child = Arc::new(Child::new("a", 0, "127.0.0.1:1", 100, None));
        child.on_event(Event::ProbeGood, Time::ZERO, &Options::default());
        child.set_standing(Standing::Replaying, "", Time::ZERO);
        child
    }

    /// How many of 100 looks, a millisecond apart, admit a change while the child confirms `each` a look.
    fn admitted(child: &Arc<Child>, courtesy: &mut Courtesy, from_ms: u64, each: u64) -> u64 {
        (0..100)
            .filter(|look| {
                child.confirm_applied(child.applied() + each);
                let now = Time::ZERO + Duration::from_millis(from_ms + look);
                courtesy.admits(std::slice::from_ref(child), now)
            })
            .count() as u64
    }

    #[test]
    fn a_child_that_gets_on_gains_on_the_others() {
        let child = replaying();
        let mut courtesy = Courtesy::new(1, CATCH_UP_HELP);
        let first = admitted(&child, &mut courtesy, 0, 1);
        assert!((50..=50 + SAVED_MAX).contains(&first), "{first}");
        assert_eq!(admitted(&child, &mut courtesy, 100, 1), 50);
    }

    #[test]
    fn a_child_that_stands_still_holds_nobody_for_long() {
        let child = replaying();
        let mut courtesy = Courtesy::new(1, CATCH_UP_HELP);
        admitted(&child, &mut courtesy, 0, 0);
        let later = CATCH_UP_HELP.as_millis() as u64 / 20;
        assert_eq!(admitted(&child, &mut courtesy, later, 0), 100);
    }

    #[test]
    fn help_ends_even_if_the_child_never_gets_there() {
        let child = replaying();
        let mut courtesy = Courtesy::new(1, CATCH_UP_HELP);
        admitted(&child, &mut courtesy, 0, 1);
        let later = CATCH_UP_HELP.as_millis() as u64;
        assert_eq!(admitted(&child, &mut courtesy, later, 1), 100);
    }

    #[test]
    fn a_live_child_needs_none() {
        let child = replaying();
        child.set_standing(Standing::Live, "", Time::ZERO);
        assert_eq!(admitted(&child, &mut Courtesy::new(1, CATCH_UP_HELP), 0, 0), 100);
    }
}
