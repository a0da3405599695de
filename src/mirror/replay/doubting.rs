//! A child in doubt: a change that may not be sent again left for it, and no answer came; or antiphon itself was stopped
//! in between.
//!
//! If a sibling knows better (it has answered, or passed the change before), the child needs a reseed: it may lack what
//! the siblings have. If none does, as where antiphon was killed while the change was on its way to all, the children are
//! alike as far as anybody knows. Then the doubt is *shared*: they serve reads, take no change, and each is resolved: by
//! the rule (`on_unknown`), or by the operator, who can look.

use std::fmt::Display;

use super::{Lane, Tried, Work};
use crate::mirror::ack::{Class, End};
use crate::mirror::durable::{OnUnknown, Verdict};
use crate::mirror::{Change, Resolve};
use crate::probe::Kind;
use crate::route::{Admin, Child, Standing};
use crate::sync::{Arc, Ordering};
use crate::time::Time;

impl Lane {
    /// Nobody knows whether the child has carried out this change, and it may not be sent again.
    pub(super) fn doubt(&mut self, change: &Arc<Change>, cause: impl Display, now: Time) {
        change.set_doubted();
        self.group.on_end(change, self.child, End::Unknowable, now);
        self.child().set_doubt(Some(change.sequence()));
        // What the operator said before is about another change.
        self.group.posts[self.child].resolve.store(0, Ordering::Relaxed);
        let cause = format!("outcome of change {} ({}) unknown: {cause}", change.sequence(), change.name);
        self.work = Work::Doubting { change: Arc::clone(change), cause };
        self.judge_doubt(now);
    }

    /// Has a sibling, the rule or the operator ended the doubt?
    pub(super) fn judge_doubt(&mut self, now: Time) {
        let Work::Doubting { change, cause } = &self.work else {
            return;
        };
        let change = Arc::clone(change);
        if !matches!(self.standing, Standing::Live | Standing::Replaying) {
            // Its lane has ended for another reason.
            return self.end_doubt();
        }
        if !change.doubt_is_shared() {
            if self.siblings_know(&change) {
                let why = cause.clone();
                self.end_doubt();
                return self.stand(Standing::NeedsReseed, why, now);
            }
            if !self.all_doubt(&change) {
                return;
            }
            change.share_doubt();
            // The others look, too.
            self.group.wake_lanes();
        }
        if self.standing == Standing::Replaying && !self.hold {
            // As current as any.
            self.stand(Standing::Live, "", now);
        }
        let word = self.group.posts[self.child].resolve.swap(0, Ordering::Acquire);
        let resolved = match (word, change.on_unknown) {
            (word, _) if word == Resolve::Applied as u8 => Some(Resolve::Applied),
            (word, _) if word == Resolve::Lost as u8 => Some(Resolve::Lost),
            (word, _) if word == Resolve::Resend as u8 => Some(Resolve::Resend),
            // A live change is never sent twice, whatever a rule says.
            (_, OnUnknown::Resend) if !change.live => Some(Resolve::Resend),
            (_, OnUnknown::Assume) => Some(Resolve::Applied),
            _ => None,
        };
        match resolved {
            None => {}
            Some(Resolve::Applied) => {
                self.end_doubt();
                let sequence = change.sequence();
                self.confirm(sequence);
                self.group.on_answer(&change, self.child, 200, Class::Success, None, now);
                self.pass(sequence);
            }
            Some(how) => {
                self.end_doubt();
                self.tried = Tried { in_doubt: how == Resolve::Resend, resolved: true, ..Tried::default() };
            }
        }
    }

    fn end_doubt(&mut self) {
        self.child().set_doubt(None);
        self.work = Work::Idle;
        self.group.sequencer.wake();
    }

    /// Has any sibling answered the change, now or before antiphon was started?
    fn siblings_know(&self, change: &Change) -> bool {
        change.agreed().is_some() || change.answers().next().is_some() || {
            let applied = |child: usize| self.group.child(child).applied();
            let verdict = self.group.past.as_ref().and_then(|past| past.verdicts().of(change.sequence(), applied));
            matches!(verdict, Some(Verdict::Agreed(_)))
        }
    }

    /// Is every child that could answer in doubt about this change? One that is behind could answer it yet; one that is
    /// away, too, but nobody knows when.
    fn all_doubt(&self, change: &Change) -> bool {
        let children = self.group.table.children.iter();
        let mut able = children.filter(|child| matches!(child.standing(), Standing::Live | Standing::Replaying));
        let is_away = |child: &Child| child.admin() == Admin::Offline || child.health().state().kind() == Kind::Down;
        able.all(|child| child.doubt() == Some(change.sequence()) || is_away(child))
    }
}
