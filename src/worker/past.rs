//! A group's reader of the past: one thread, which reads the journal for lanes that are behind the ring.
//!
//! Not on a worker, since a disk may take its time; and not the sequencer, which new changes wait for. Lanes are served in
//! turn, a batch each, so that a child with a long backlog holds up no other.

use std::io;
use std::thread::{self, JoinHandle};

use super::sequencer::ThreadWake;
use crate::limits::PAST_BYTES;
use crate::mirror::MirrorGroup;
use crate::mirror::durable::Reader;
use crate::sync::Arc;
use crate::time::Time;

/// The running thread.
#[derive(Debug)]
pub struct PastThread {
    wake: Arc<ThreadWake>,
    handle: JoinHandle<()>,
}

/// Starts the thread; `wake` is the one that the group was made with.
///
/// # Errors
/// When the system refuses a thread.
pub fn spawn(group: Arc<MirrorGroup>, mut reader: Box<dyn Reader>, wake: &Arc<ThreadWake>) -> io::Result<PastThread> {
    let its = Arc::clone(wake);
    let serve = move || {
        its.run(|_| {
            let mut served = false;
            for (child, from) in group.wanted() {
                group.bring(child, from, reader.read(from, PAST_BYTES));
                served = true;
            }
            // More may have been asked for meanwhile.
            if served { Time::ZERO } else { Time::NEVER }
        });
    };
    let handle = thread::Builder::new().name("past".to_owned()).spawn(serve)?;
    Ok(PastThread { wake: Arc::clone(wake), handle })
}

impl PastThread {
    /// Lets the thread end and waits for it.
    pub fn stop(self) {
        self.wake.stop();
        if self.handle.join().is_err() {
            tracing::error!("the reader of a journal ended by a panic");
        }
    }
}
