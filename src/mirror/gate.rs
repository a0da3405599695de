//! The gate of live changes: how all children come to take one at the same time, or none does.
//!
//! Not the lanes' part in it (that is `replay/gathering.rs`) and not the judgement of answers ([`ack`](super::ack)).
//!
//! # The steps
//!
//! 1. *Gathering.* The sequencer finds a live change next in line. If a child is not live, it is refused. Otherwise the
//!    sequencer opens a [`Gathering`] and numbers nothing, neither this change nor a newer one. Each lane drains: it
//!    confirms all that was numbered before. Then it proves its child by a fresh probe on a new connection, keeps that
//!    connection, and says that it is ready.
//! 2. *Commit.* All are ready and live: the change gets its sequence and is published like any other. Each lane finds it
//!    next, and sends it on the connection that it has proven, whatever else has happened since.
//!
//! A gathering ends without a commit when a lane withdraws (its child is away, or the proof failed, or the proven
//! connection ended), when the sequencer sees that a child is not live any more, at the deadline, or when the client
//! gives up. Then nothing of the change was sent, and what was held back goes on.
//!
//! # Why it is all or none
//!
//! The change's *admission* is a cell that is set once, by whoever comes first. Commit sets it to a ticket; everybody
//! who ends the gathering otherwise sets it to a refusal. So a lane that withdraws either prevents the commit, or learns
//! that it comes too late: then its child lacks the change and says so ([`End::Missed`](super::End::Missed), diverged).
//! Nothing is sent without a ticket, and a change is published only after its ticket was set.
//!
//! A live change is never sent twice and never replayed: all lanes stood directly before it when it was numbered, so a
//! lane either sends it then or its child has diverged. An attach moves the cursor past it.
//!
//! # When there is a journal
//!
//! The change on record is the *intent*: it is there before any lane sends it. Each lane writes down that it begins, so
//! that a start knows who may have it: nobody, and the change is *withdrawn* for all (`verdicts.rs`); some, and those that
//! have not begun have diverged, as if they had gone away in the middle; all, and the doubt is shared (`doubting.rs`). A
//! child that ends its part unlike the others (*partial*) is on record as diverged.

use crate::mirror::Change;
use crate::route::ChildSet;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::time::Time;

/// A live change for which the lanes get ready.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) change: Arc<Change>,
    /// The sequencer waits no longer.
    pub(super) deadline: Time,
    /// All children of the group: each has to get ready.
    pub(super) awaited: ChildSet,
    /// One a place: its child has drained and proven its connection. Written by its lane.
    ready: Box<[AtomicBool]>,
}

impl Gathering {
    pub(super) fn new(change: Arc<Change>, awaited: ChildSet, deadline: Time) -> Arc<Self> {
        let places = awaited.iter().max().map_or(0, |last| last + 1);
        let ready = (0..places).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { change, deadline, awaited, ready })
    }

    /// Can it still be committed, or refused?
    pub(super) fn is_open(&self) -> bool {
        self.change.admission().is_none()
    }

    /// All must go on from here: the change has its place in the order.
    pub(super) fn is_committed(&self) -> bool {
        self.change.ticket().is_some()
    }

    pub(super) fn set_ready(&self, child: usize) {
        // Nobody waits for a child that came later; that it is there ends the gathering.
        if let Some(ready) = self.ready.get(child) {
            // Release: the sequencer that commits sees what the lane has confirmed before.
            ready.store(true, Ordering::Release);
        }
    }

    /// The children that are not ready.
    pub(super) fn unready(&self) -> ChildSet {
        self.awaited.iter().filter(|child| !self.ready[*child].load(Ordering::Acquire)).collect()
    }
}

// What the client is told.
pub(super) const AWAY: &str =
    "Every child must carry out this action at the same time, and one is away. Nothing was carried out.";
pub(super) const LEFT: &str = "Every child must carry out this action at the same time, and one went away while they got ready. Nothing was carried out.";
pub(super) const LATE: &str = "Every child must carry out this action at the same time, and one was not ready within `live_wait`. Nothing was carried out.";
pub(super) const INCOMPLETE: &str =
    "This group takes changes only while every child is up (`ack = \"all_or_refuse\"`). Nothing was carried out.";
