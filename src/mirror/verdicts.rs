//! What has won for changes whose own table is gone: a lane that replays from the record is judged by it.
//!
//! Success is not written down change by change. A child goes on behind a change only when it has carried it out, or
//! when it refused it and that refusal won and is on record. So a change that some child has passed, and for which no
//! exception is known, was a success. A child that was attached has passed nothing before that place: it was copied.

use std::collections::BTreeMap;

use super::durable::{Mark, Resume, Verdict};
use crate::mirror::Class;

/// Exceptions, and which changes somebody has passed.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// Not plain success.
    exceptions: BTreeMap<u64, Verdict>,
    /// `(after, through]` of what was passed by children that were attached since; ascending, apart.
    judged: Vec<(u64, u64)>,
    /// Where each child was attached last; 0 if it never was.
    attached: Vec<u64>,
}

impl Verdicts {
    /// What the record says, and what is to be added to it: a live change that nobody was sent when antiphon was stopped
    /// is for nobody, since it is for all at the same time.
    pub(super) fn resumed(resume: &Resume) -> (Self, Vec<Mark>) {
        let mut verdicts = Self::new(resume);
        let mut marks = Vec::new();
        for sequence in &resume.live {
            let was_sent = resume.children.iter().any(|child| child.attached < *sequence && *sequence <= child.begun);
            if !was_sent && verdicts.of(*sequence, |child| resume.children[child].applied).is_none() {
                verdicts.except(*sequence, Verdict::Withdrawn);
                let verdict = Verdict::Withdrawn;
                marks.push(Mark::Outcome { sequence: *sequence, verdict, condemned: Vec::new() });
            }
        }
        (verdicts, marks)
    }

    fn new(resume: &Resume) -> Self {
        let mut verdicts = Self {
            exceptions: resume.exceptions.iter().copied().collect(),
            judged: Vec::new(),
            attached: resume.children.iter().map(|child| child.attached).collect(),
        };
        for (after, through) in &resume.judged {
            verdicts.judge(*after, *through);
        }
        verdicts
    }

    /// What has won for this change; `None` if nobody has passed it. `applied` is how far each child has come.
    pub(super) fn of(&self, sequence: u64, applied: impl Fn(usize) -> u64) -> Option<Verdict> {
        if let Some(verdict) = self.exceptions.get(&sequence) {
            return Some(*verdict);
        }
        let by_some = || {
            let mut children = self.attached.iter().enumerate();
            children.any(|(child, attached)| *attached < sequence && sequence <= applied(child))
        };
        let is_judged =
            self.judged.iter().any(|(after, through)| *after < sequence && sequence <= *through) || by_some();
        is_judged.then_some(Verdict::Agreed(Class::Success))
    }

    pub(super) fn except(&mut self, sequence: u64, verdict: Verdict) {
        self.exceptions.insert(sequence, verdict);
    }

    /// A child that had passed everything up to `from` is what its siblings are as of `at`.
    pub(super) fn attach(&mut self, child: usize, from: u64, at: u64) {
        let before = std::mem::replace(&mut self.attached[child], at);
        self.judge(before, from);
    }

    /// Nobody will ask for changes up to `through` again.
    pub(super) fn forget(&mut self, through: u64) {
        self.exceptions = self.exceptions.split_off(&(through + 1));
        self.judged.retain(|range| range.1 > through);
    }

    /// How many exceptions are kept.
    pub(super) fn exceptions(&self) -> usize {
        self.exceptions.len()
    }

    fn judge(&mut self, after: u64, through: u64) {
        if after >= through {
            return;
        }
        let (mut low, mut high) = (after, through);
        self.judged.retain(|range| {
            let apart = range.1 < low || range.0 > high;
            if !apart {
                (low, high) = (low.min(range.0), high.max(range.1));
            }
            apart
        });
        let place = self.judged.partition_point(|range| range.0 < low);
        self.judged.insert(place, (low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::super::durable::ResumedChild;
    use super::*;
    use crate::route::Standing;

    const SUCCESS: Option<Verdict> = Some(Verdict::Agreed(Class::Success));

    fn verdicts(children: usize) -> Verdicts {
        let child = ResumedChild { applied: 0, begun: 0, attached: 0, standing: Standing::Live, why: String::new() };
        Verdicts::new(&Resume { children: vec![child; children], ..Resume::default() })
    }

    #[test]
    fn what_one_has_passed_was_a_success_unless_it_is_an_exception() {
        let mut verdicts = verdicts(2);
        let refused = Verdict::Agreed(Class::Rejected);
        verdicts.except(2, refused);
        let applied = |child: usize| [3, 0][child];
        let seen: Vec<_> = (1..=4).map(|sequence| verdicts.of(sequence, applied)).collect();
        assert_eq!(seen, [SUCCESS, Some(refused), SUCCESS, None]);
    }

    #[test]
    fn one_that_was_attached_says_nothing_of_what_it_was_not_sent() {
        let mut verdicts = verdicts(2);
        // It had passed 3, and was copied as of 8 while nobody had passed 4 to 8.
        verdicts.attach(0, 3, 8);
        let applied = |child: usize| [9, 1][child];
        let seen: Vec<_> = [1, 3, 4, 8, 9].map(|sequence| verdicts.of(sequence, applied)).into();
        assert_eq!(seen, [SUCCESS, SUCCESS, None, None, SUCCESS]);
    }

    #[test]
    fn a_live_change_that_nobody_was_sent_is_for_nobody() {
        let child =
            |applied, begun| ResumedChild { applied, begun, attached: 0, standing: Standing::Live, why: String::new() };
        let resumed = |second: ResumedChild| {
            let children = vec![child(4, 4), second];
            Verdicts::resumed(&Resume { last: 5, live: vec![5], children, ..Resume::default() })
        };
        let (verdicts, marks) = resumed(child(4, 4));
        assert_eq!(verdicts.of(5, |_| 4), Some(Verdict::Withdrawn));
        let verdict = Verdict::Withdrawn;
        assert_eq!(marks, [Mark::Outcome { sequence: 5, verdict, condemned: Vec::new() }]);
        // One that was being sent it may have it.
        let (verdicts, marks) = resumed(child(4, 5));
        assert_eq!((verdicts.of(5, |_| 4), marks), (None, Vec::new()));
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut verdicts = verdicts(1);
        for (after, through) in [(0, 2), (6, 8), (2, 4), (5, 5), (3, 7)] {
            verdicts.judge(after, through);
        }
        assert_eq!(verdicts.judged, [(0, 8)]);
        verdicts.forget(8);
        assert!(verdicts.judged.is_empty());
    }
}
