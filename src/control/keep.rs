//! The journals of a front: opened at its start, one a group, in the state directory.
//!
//! Not the journal itself ([`journal`](crate::journal)): here it is given what the configuration says, and its parts find
//! their threads.

use super::error::StartError;
use crate::config::{Config, CursorSync, Group};
use crate::journal::segment::{self, Options};
use crate::limits::{SEGMENT_BYTES, SEGMENT_CHANGES_MIN};
use crate::mirror::durable::Reader;
use crate::mirror::{Durable, Retention, Wake};
use crate::route::GroupTable;
use crate::sync::Arc;
use crate::time;
use crate::worker::sequencer::ThreadWake;

/// What keeps one group's changes, and what reads them back.
pub(super) struct Kept {
    pub(super) durable: Durable,
    pub(super) reader: Box<dyn Reader>,
    /// Wakes the thread that reads.
    pub(super) wake: Arc<ThreadWake>,
}

/// Opens the journal of a group, if there is a state directory. Blocks, for as long as a start has to read.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(super) fn open(config: &Config, group: &Group, table: &GroupTable) -> Result<Option<Kept>, StartError> {
    let Some(state) = &config.state else { return Ok(None) };
    let segment_bytes = segment_bytes(config.limits.action_bytes_max as u64);
    let mut options = Options::new(state.directory.clone(), &group.name, &group.dialect.to_string(), table.members());
    options.segment_bytes = segment_bytes;
    options.bytes_max = state.journal_bytes_max;
    options.cursor_sync_each = group.keeping.cursor_sync == CursorSync::Each;
    options.force = state.any_file_system;
    options.epoch_if_new = time::unix_ms();
    let opened = segment::open(&options).map_err(|error| StartError::Journal { group: group.name.clone(), error })?;
    let wake = ThreadWake::new();
    let reader: Arc<dyn Wake> = wake.clone();
    let durable = Durable {
        journal: Box::new(opened.journal),
        slots: opened.slots,
        resume: opened.resume,
        reader,
        sync_each: options.cursor_sync_each,
        retention: Retention {
            backlog_bytes_max: group.keeping.backlog_bytes_max,
            backlog_age_max: group.keeping.backlog_age_max,
            on_full: group.keeping.on_full,
        },
    };
    Ok(Some(Kept { durable, reader: opened.readers.reader(), wake }))
}

/// Segments hold several of the largest changes, so that little of each is left over.
fn segment_bytes(action_bytes_max: u64) -> u64 {
    SEGMENT_BYTES.max((SEGMENT_CHANGES_MIN * action_bytes_max).next_multiple_of(SEGMENT_BYTES))
}
