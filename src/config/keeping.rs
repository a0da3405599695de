//! What a group keeps of its changes, and for how long: keys that mean something only with `[state]`.

use super::error::Problems;
use super::settings::TIMEOUT;
use super::table::Table;
use super::values::{duration, size, word};
use super::{CursorSync, Keeping};
use crate::limits::{BACKLOG_AGE_MAX, BACKLOG_BYTES_MAX, BUDGET_BYTES_MAX};
use crate::mirror::OnFull;

impl Default for Keeping {
    fn default() -> Self {
        Self {
            cursor_sync: CursorSync::Batch,
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            backlog_age_max: BACKLOG_AGE_MAX,
            on_full: OnFull::RejectWrites,
        }
    }
}

/// The keys of a group; without `[state]` they are refused.
pub(super) fn keeping(table: &mut Table<'_>, has_state: bool, problems: &mut Problems) -> Keeping {
    let default = Keeping::default();
    if !has_state {
        for key in ["cursor_sync", "backlog_bytes_max", "backlog_age_max", "on_full"] {
            let message = format!("`{key}` is about the journal, and without [state] there is none");
            table.misfit(problems, key, &message, "add [state] with `directory = \"/var/lib/antiphon\"`, or remove it");
        }
        return default;
    }
    let syncs = word("ways", CursorSync::ALL, CursorSync::as_str, &[]);
    let fulls = word("ways", &OnFull::ALL, OnFull::as_str, &[]);
    Keeping {
        cursor_sync: table.or(problems, "cursor_sync", default.cursor_sync, syncs),
        backlog_bytes_max: table.or(
            problems,
            "backlog_bytes_max",
            default.backlog_bytes_max,
            size(1024 * 1024..=16 * BUDGET_BYTES_MAX),
        ),
        backlog_age_max: table.or(problems, "backlog_age_max", default.backlog_age_max, duration(TIMEOUT)),
        on_full: table.or(problems, "on_full", default.on_full, fulls),
    }
}
