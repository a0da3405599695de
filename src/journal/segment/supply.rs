//! Segments made ahead, and old ones taken away: what would make a commit wait.
//!
//! A file is made whole before it is used: its blocks allocated, filled with zeros, synced, its name synced. So a write
//! into it needs no space and changes nothing but its own octets. The last files in line are the *reserve*: when the
//! disk is full, changes do not get them, and marks do.
//!
//! With a thread it works beside the journal; without one, which tests want, in its calls.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::disk::{Disk, File, zero};
use super::shared::file_name;
use crate::limits::SEGMENT_RETRY;
use crate::sync::Arc;
use crate::time::{Time, now};

/// A file with its ordinal.
pub(super) type Made = (u64, Arc<dyn File>);

pub(super) struct Supply {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// By ordinal, without a gap.
    ready: VecDeque<Made>,
    /// The ordinal that is made next, or is being made.
    next: u64,
    /// How many are to be ready: one, and the reserve.
    want: usize,
    keeper: Option<Keeper>,
    /// Why the last could not be made, and when it was tried.
    refused: Option<(String, Time)>,
}

struct Keeper {
    /// `None` once it is to end.
    tasks: Option<Sender<Task>>,
    made: Receiver<io::Result<Made>>,
    is_making: bool,
    thread: Option<JoinHandle<()>>,
}

enum Task {
    Make(u64),
    Unlink(Vec<String>),
}

impl Supply {
    /// The next segment to be made is `next`; `reserve` are held back.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        next: u64,
        reserve: usize,
        threaded: bool,
    ) -> io::Result<Self> {
        let keeper = if threaded { Some(Keeper::start(Arc::clone(&disk), segment_bytes)?) } else { None };
        Ok(Self { disk, segment_bytes, ready: VecDeque::new(), next, want: 1 + reserve, keeper, refused: None })
    }

    /// Files that are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Of the reserve, as far as it is there.
    pub(super) fn reserve(&self) -> usize {
        self.ready.len().min(self.want - 1)
    }

    /// Is the reserve whole?
    pub(super) fn has_reserve(&self) -> bool {
        self.reserve() == self.want - 1
    }

    /// Why the last could not be made, if it could not.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_ref().map(|(why, _)| why.as_str())
    }

    /// Sees that files are made ahead. Does not wait if there is a thread.
    pub(super) fn top_up(&mut self) {
        while let Some(made) = self.keeper.as_mut().and_then(Keeper::poll) {
            self.on_made(made);
        }
        while self.ready.len() < self.want && self.may_try() {
            match &mut self.keeper {
                Some(keeper) => {
                    keeper.ask(Task::Make(self.next));
                    return;
                }
                None => {
                    let made = make(&*self.disk, self.next, self.segment_bytes);
                    let refused = made.is_err();
                    self.on_made(made);
                    if refused {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until `count` files are ready beside the reserve.
    pub(super) fn ensure(&mut self, count: usize) -> Result<(), String> {
        let enough = self.want - 1 + count;
        let want = std::mem::replace(&mut self.want, enough);
        let done = loop {
            self.top_up();
            if self.ready.len() >= enough {
                break Ok(());
            }
            if !self.wait() {
                break Err(self.refused().unwrap_or("no segment could be made").to_owned());
            }
        };
        self.want = want;
        done
    }

    /// The next file, from the reserve if need be.
    pub(super) fn take(&mut self) -> Result<Made, String> {
        loop {
            self.top_up();
            if let Some(made) = self.ready.pop_front() {
                return Ok(made);
            }
            if !self.wait() {
                return Err(self.refused().unwrap_or("no segment could be made").to_owned());
            }
        }
    }

    /// Takes files away.
    pub(super) fn unlink(&mut self, names: Vec<String>) {
        match &mut self.keeper {
            _ if names.is_empty() => {}
            Some(keeper) => keeper.send(Task::Unlink(names)),
            None => unlink(&*self.disk, &names),
        }
    }

    /// Waits for what is being made; false if nothing is.
    fn wait(&mut self) -> bool {
        match self.keeper.as_mut().and_then(Keeper::wait) {
            Some(made) => {
                self.on_made(made);
                true
            }
            None => false,
        }
    }

    fn on_made(&mut self, made: io::Result<Made>) {
        match made {
            Ok(made) => {
                debug_assert_eq!(made.0, self.next);
                self.next += 1;
                self.ready.push_back(made);
                self.refused = None;
            }
            Err(error) => {
                let path = self.disk.path(&file_name(self.next));
                self.refused = Some((format!("{path} cannot be made: {error}"), now()));
            }
        }
    }

    /// With a thread a refusal holds for a while; without one each call tries once.
    fn may_try(&self) -> bool {
        match &self.keeper {
            Some(keeper) if keeper.is_making => false,
            Some(_) => self.refused.as_ref().is_none_or(|(_, at)| now().since(*at) >= SEGMENT_RETRY),
            None => true,
        }
    }
}

impl Keeper {
    fn start(disk: Arc<dyn Disk>, segment_bytes: u64) -> io::Result<Self> {
        let (tasks, inbox) = channel();
        let (outbox, made) = channel();
        let thread = std::thread::Builder::new().name("journal-keeper".to_owned()).spawn(move || {
            while let Ok(task) = inbox.recv() {
                match task {
                    Task::Make(ordinal) => {
                        if outbox.send(make(&*disk, ordinal, segment_bytes)).is_err() {
                            return;
                        }
                    }
                    Task::Unlink(names) => unlink(&*disk, &names),
                }
            }
        })?;
        Ok(Self { tasks: Some(tasks), made, is_making: false, thread: Some(thread) })
    }

    fn ask(&mut self, task: Task) {
        self.is_making = true;
        self.send(task);
    }

    fn send(&self, task: Task) {
        // The thread ends with us and not before.
        _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    fn poll(&mut self) -> Option<io::Result<Made>> {
        let made = self.made.try_recv().ok()?;
        self.is_making = false;
        Some(made)
    }

    fn wait(&mut self) -> Option<io::Result<Made>> {
        if !self.is_making {
            return None;
        }
        let made = self.made.recv().ok();
        self.is_making = false;
        made
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tasks = None;
        // Nothing may work in the directory once its lock is given back.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Makes the file of a segment. What is left of one that could not be made is taken away again.
pub(super) fn make(disk: &dyn Disk, ordinal: u64, bytes: u64) -> io::Result<Made> {
    let name = file_name(ordinal);
    let file = disk.create(&name)?;
    let filled = file.allocate(bytes).and_then(|()| zero(&*file, 0, bytes));
    let synced = filled.and_then(|()| file.sync_data()).and_then(|()| disk.sync_dir());
    match synced {
        Ok(()) => Ok((ordinal, file)),
        Err(error) => {
            _ = disk.unlink(&name);
            Err(error)
        }
    }
}

fn unlink(disk: &dyn Disk, names: &[String]) {
    for name in names {
        if let Err(error) = disk.unlink(name) {
            tracing::warn!(file = disk.path(name), %error, "an old segment of the journal cannot be taken away");
        }
    }
}
