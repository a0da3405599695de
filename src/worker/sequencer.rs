//! The sequencer's thread, which steps the [`Sequencer`] of one or more groups.
//!
//! Not the steps themselves ([`mirror::Sequencer`](crate::mirror::Sequencer) is pure). One thread is enough for all groups
//! without a journal: a step costs a few microseconds, and a group is bound by its children long before that. A group
//! with one has a thread of its own, which waits for its disk.
//!
//! # Waking
//!
//! [`ThreadWake`] sets a flag and unparks; the thread clears the flag *before* it steps, so that what was submitted
//! before the flag was set is seen by that step, and what comes after sets it again. `unpark` leaves a token, so a wake
//! between the look at the flag and the parking is not lost either.

use std::io;
use std::thread::{self, JoinHandle, Thread};

use crate::mirror::{Sequencer, Wake};
use crate::sync::{Arc, AtomicBool, OnceLock, Ordering};
use crate::time::{Time, now};

/// Wakes a thread that works off what others leave for it. Made before the groups, which keep it; the thread is made
/// after them.
#[derive(Debug, Default)]
pub struct ThreadWake {
    /// There is something to do.
    woken: AtomicBool,
    stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

/// The running thread. Dropping it does not stop it; [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct SequencerThread {
    wake: Arc<ThreadWake>,
    handle: JoinHandle<()>,
}

impl ThreadWake {
    /// One that nobody listens to yet: what it is told before is done when the thread begins.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Lets the thread end, after the step that it is in.
    pub(super) fn stop(&self) {
        // Release is in `wake`, which the thread acquires.
        self.stopped.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Calls `step` after each wake, and at the moment that it names, until [`stop`](Self::stop).
    ///
    /// # Panics
    /// If another thread listens to this wake.
    pub(super) fn run(&self, mut step: impl FnMut(Time) -> Time) {
        assert!(self.thread.set(thread::current()).is_ok(), "one thread listens to a wake");
        loop {
            // Acquire: see `wake`.
            self.woken.swap(false, Ordering::AcqRel);
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let pause = {
                let next = step(now());
                now().until(next)
            };
            if !pause.is_zero() && !self.woken.load(Ordering::Acquire) {
                thread::park_timeout(pause);
            }
        }
    }
}

impl Wake for ThreadWake {
    fn wake(&self) {
        // AcqRel: Release gives the thread what was submitted. Only the first of several wakes pays for the call.
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Starts the thread. `wake` is the one that all the groups were made with.
///
/// # Errors
/// When the system refuses a thread.
///
/// # Panics
/// If `wake` has a thread already.
pub fn spawn(mut sequencers: Vec<Sequencer>, wake: &Arc<ThreadWake>) -> io::Result<SequencerThread> {
    let its = Arc::clone(wake);
    let serve = move || {
        its.run(|at| sequencers.iter_mut().map(|sequencer| sequencer.step(at)).min().unwrap_or(Time::NEVER));
        // The workers have ended: nothing moves any more.
        sequencers.iter_mut().for_each(|sequencer| sequencer.close(now()));
    };
    let handle = thread::Builder::new().name("sequencer".to_owned()).spawn(serve)?;
    Ok(SequencerThread { wake: Arc::clone(wake), handle })
}

impl SequencerThread {
    /// Lets the thread end and waits for it. What is still in the submission queues is not numbered.
    pub fn stop(self) {
        self.wake.stop();
        if self.handle.join().is_err() {
            tracing::error!("the sequencer's thread ended by a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::action::UnknownOutcome;
    use crate::mirror::{Budget, Change, Level, MirrorGroup, OnUnknown, Order, Setup};
    use crate::route::{Policy, testing};

    fn group(wake: &Arc<ThreadWake>) -> (Arc<MirrorGroup>, Sequencer) {
        MirrorGroup::new(Setup {
            table: Arc::new(testing::group(Policy::RoundRobin, &[1, 1])),
            epoch: 1,
            level: Level::All,
            deadline: Duration::from_secs(5),
            live_wait: Duration::from_secs(2),
            workers: 4,
            submissions_max: 1024,
            ring_slots: 4096,
            ring_bytes_max: 1 << 20,
            catch_up_help: Duration::ZERO,
            sequencer: wake.clone(),
            durable: None,
        })
    }

    /// Tells the test's thread.
    struct Told(mpsc::Sender<()>);

    impl Wake for Told {
        fn wake(&self) {
            let _ = self.0.send(());
        }
    }

    fn change(group: &MirrorGroup, origin: Arc<dyn Wake>) -> (Arc<Change>, Arc<crate::mirror::Waiting>) {
        let order = Order {
            head: Bytes::new(),
            body: Bytes::new(),
            unknown_outcome: UnknownOutcome::Once,
            applied: Arc::new([]),
            name: "test".into(),
            live: false,
            on_unknown: OnUnknown::default(),
            key: None,
            children: group.table().children.len(),
            submitted: now(),
            charge: Budget::new(0).charge(0).expect("nothing fits"),
        };
        Change::new(order, origin)
    }

    #[test]
    fn one_thread_serves_all_groups_and_misses_no_wake() {
        let wake = ThreadWake::new();
        let (first, first_sequencer) = group(&wake);
        let (second, second_sequencer) = group(&wake);
        // A lane that is woken by what is published.
        let (sender, published) = mpsc::channel();
        let lanes = [&first, &second]
            .map(|group| crate::mirror::Lane::new(Arc::clone(group), 0, Arc::new(Told(sender.clone()))));
        let early = change(&first, Arc::new(Told(sender.clone())));
        first.submit(0, &early.0).expect("room");
        let thread = spawn(vec![first_sequencer, second_sequencer], &wake).expect("a thread");
        let submitters: Vec<_> = (0..4)
            .map(|worker| {
                let (first, second, sender) = (Arc::clone(&first), Arc::clone(&second), sender.clone());
                thread::spawn(move || {
                    for group in (0..400).map(|i| if i % 2 == 0 { &first } else { &second }) {
                        let (change, _waiting) = change(group, Arc::new(Told(sender.clone())));
                        while group.submit(worker, &change).is_err() {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for submitter in submitters {
            submitter.join().expect("no panic");
        }
        // Every wake is answered by news, until all is numbered. Nobody polls: a lost wake would end this by the
        // sequencer's tick at the earliest, many times over.
        while first.last_sequence() + second.last_sequence() < 1 + 4 * 400 {
            published.recv().expect("somebody is left to tell");
        }
        thread.stop();
        assert_eq!((first.ring().head() >= 801, second.ring().head() >= 800), (true, true));
        drop(lanes);
    }

    #[test]
    fn it_stops_while_it_sleeps() {
        let wake = ThreadWake::new();
        let (_group, sequencer) = group(&wake);
        let thread = spawn(vec![sequencer], &wake).expect("a thread");
        thread.stop();
        // Without a group it sleeps for ever.
        let wake = ThreadWake::new();
        spawn(Vec::new(), &wake).expect("a thread").stop();
    }
}
