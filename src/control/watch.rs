//! One line for each change of a child's state, and, at the end, one for each child that has not had every change.
//!
//! The states have several authors (probes, reads, lanes, the operator). Here they are looked at from outside, so that
//! there is one place that tells, and no storm of equal lines: what comes and goes between two looks is not told.

use std::collections::HashMap;

use tokio::time::interval;

use super::front::View;
use crate::limits::WATCH_LOOK;
use crate::route::Shown;
use crate::sync::Arc;

/// Tells changes of state; never ends.
pub(super) async fn watch(view: &View) {
    let mut seen: HashMap<(usize, usize), (Arc<str>, Shown)> = HashMap::new();
    let mut look = interval(WATCH_LOOK);
    loop {
        look.tick().await;
        for group in &view.routes.load_full().groups {
            for child in group.occupied() {
                let now = child.shown();
                let before = seen.insert((group.index, child.index), (child.name(), now));
                // Whoever comes, be it to a place that another has left, has not been anything before.
                let before = before.filter(|(name, _)| *name == child.name()).map(|(_, before)| before);
                if before.unwrap_or(Shown::Up) != now {
                    let before = before.map_or("none", Shown::name);
                    let lag = view.mirrors[group.index].lag(child.index);
                    tell(&group.name, &child.name(), before, now, &child.why().text, lag);
                }
            }
        }
    }
}

fn tell(group: &str, child: &str, before: &str, now: Shown, why: &str, lag: u64) {
    match now {
        Shown::Diverged | Shown::NeedsReseed => tracing::error!(
            group, child, %before, %now, why, lag,
            "the child is out until it has been made identical: stop changes, copy a good child's data, then \
             `antiphon child attach {group}/{child}`"
        ),
        Shown::Down => tracing::warn!(group, child, %before, %now, why, lag, "the child is down"),
        _ => tracing::info!(group, child, %before, %now, why, lag, "the child has changed its state"),
    }
}

/// Tells which children end without changes that the others have: nobody knows it after this.
pub(super) fn tell_who_is_behind(view: &View) {
    for group in &view.routes.load_full().groups {
        let mirror = &view.mirrors[group.index];
        for child in group.occupied() {
            let lag = mirror.lag(child.index);
            if lag == 0 && !matches!(child.shown(), Shown::Diverged | Shown::NeedsReseed) {
                continue;
            }
            let (epoch, last) = (mirror.epoch(), mirror.last_sequence());
            if mirror.is_durable() {
                tracing::warn!(
                    group = &*group.name, child = &*child.name(), state = %child.shown(),
                    lacks = %format_args!("{lag} changes up to {epoch}:{last}"),
                    "the child is behind the others: the next start goes on from there"
                );
                continue;
            }
            tracing::error!(
                group = &*group.name, child = &*child.name(), state = %child.shown(),
                lacks = %format_args!("{lag} changes up to {epoch}:{last}"),
                "the child differs from the others, and the next start will not know: make it identical before"
            );
        }
    }
}
