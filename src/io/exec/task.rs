//! Tasks: futures of one thread, run when something they wait for has happened.
//!
//! There are no wakers. While a task is polled its id stands in [`Core`](super::Core), and whatever it waits for (a
//! connection, a wake, a deadline) notes that id. A task may be polled without need, so futures of this executor say
//! `Pending` again; a future from elsewhere, which counts on its waker, is never woken here.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Io, State, Timed};
use crate::io::slab::{Key, Slab};
use crate::io::wheel::TimerKey;
use crate::limits::TASK_ROUNDS_MAX;
use crate::time::Time;

/// Names a task; of one that has ended, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(Key);

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What the executor knows of a task.
pub(super) struct Task {
    /// Away while it is polled.
    future: Option<TaskFuture>,
    /// It stands in the run queue.
    queued: bool,
    /// It stands in the stack of tasks without a client.
    pub(super) parked: bool,
    /// It stands in the list of tasks to queue at the next wake.
    pub(super) waits_for_wake: bool,
    /// Wakes it has been told of.
    pub(super) wakes_seen: u64,
    /// The earliest deadline that it asked for when last polled.
    deadline: Time,
    /// Its timer, which may stand earlier than `deadline`: it is moved on when it fires.
    timer: Option<(Time, TimerKey)>,
}

/// All tasks of a worker and which of them to run.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: Slab<Task>,
    ready: VecDeque<TaskId>,
}

// === impl Task ===

impl Task {
    /// The task wants to be polled at `until`, whatever else happens.
    pub(super) fn wait_until(&mut self, until: Time) {
        self.deadline = self.deadline.min(until);
    }
}

// === impl Tasks ===

impl Tasks {
    pub(super) const fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn find_mut(&mut self, task: TaskId) -> Option<&mut Task> {
        self.tasks.find_mut(task.0)
    }

    /// The task that is being polled.
    pub(super) fn current_mut(&mut self, task: TaskId) -> &mut Task {
        self.tasks.find_mut(task.0).expect("a task outlives its polling")
    }

    /// Queues the task, once. Nothing happens if it has ended.
    pub(super) fn wake(&mut self, task: TaskId) {
        if let Some(found) = self.tasks.find_mut(task.0)
            && !found.queued
        {
            found.queued = true;
            self.ready.push_back(task);
        }
    }
}

// === impl State ===

impl State {
    /// The timer of a task has fired.
    pub(super) fn on_task_timer(&mut self, task: TaskId) {
        let Some(found) = self.tasks.find_mut(task) else { return };
        found.timer = None;
        if found.deadline <= self.now {
            self.tasks.wake(task);
        } else {
            self.settle_task_timer(task);
        }
    }

    /// Makes sure that the timer stands at the deadline or before it.
    fn settle_task_timer(&mut self, task: TaskId) {
        let Some(found) = self.tasks.find_mut(task) else { return };
        if found.deadline == Time::NEVER || found.timer.is_some_and(|(at, _)| at <= found.deadline) {
            return;
        }
        if let Some((_, key)) = found.timer.take() {
            self.wheel.cancel(key);
        }
        found.timer = Some((found.deadline, self.wheel.insert(found.deadline, Timed::Task(task))));
    }
}

// === impl Io ===

impl Io {
    /// Starts a task. It is first polled in this turn or the next.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        let future: TaskFuture = Box::pin(task);
        let mut state = self.state();
        let wakes_seen = state.wakes.count();
        let id = TaskId(state.tasks.tasks.insert(Task {
            future: Some(future),
            queued: false,
            parked: false,
            waits_for_wake: false,
            wakes_seen,
            deadline: Time::NEVER,
            timer: None,
        }));
        state.tasks.wake(id);
        self.stats().tasks.set(state.tasks.len() as u64);
        id
    }

    /// The task that is being polled.
    ///
    /// # Panics
    /// Outside a task.
    #[must_use]
    pub fn current_task(&self) -> TaskId {
        self.0.current.get().expect("called outside a task of this executor")
    }

    /// Queues a task of this worker, so that it looks again at what it waits for: how tasks of one worker hand things
    /// to each other. Nothing happens if it has ended.
    pub fn wake_task(&self, task: TaskId) {
        self.state().tasks.wake(task);
    }

    /// Lets the other tasks, and then the driver, have their turn.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let io = self.clone();
        let mut turn = None;
        std::future::poll_fn(move |_| {
            let now = io.stats().turns.value();
            if *turn.get_or_insert(now) != now {
                return Poll::Ready(());
            }
            let task = io.current_task();
            io.state().yielded.push(task);
            Poll::Pending
        })
    }

    /// Ready when the time has come.
    ///
    /// # Panics
    /// Outside a task.
    pub fn poll_sleep(&self, at: Time) -> Poll<()> {
        if at <= self.now() {
            return Poll::Ready(());
        }
        let task = self.current_task();
        self.state().tasks.current_mut(task).wait_until(at);
        Poll::Pending
    }

    /// Waits for the time: not earlier, and about a millisecond later at most if the worker is not busy.
    pub fn sleep_until(&self, at: Time) -> impl Future<Output = ()> + use<> {
        let io = self.clone();
        std::future::poll_fn(move |_| io.poll_sleep(at))
    }

    /// Runs the tasks that are ready, and those they make ready, for a bounded number of rounds.
    pub(super) fn run_ready(&self) {
        for _ in 0..TASK_ROUNDS_MAX {
            let ready = self.state().tasks.ready.len();
            if ready == 0 {
                return;
            }
            for _ in 0..ready {
                let next = self.state().tasks.ready.pop_front();
                if let Some(task) = next {
                    self.run_task(task);
                }
            }
        }
    }

    fn run_task(&self, task: TaskId) {
        let future = {
            let mut state = self.state();
            let Some(found) = state.tasks.find_mut(task) else { return };
            found.queued = false;
            found.deadline = Time::NEVER;
            found.future.take()
        };
        let Some(mut future) = future else { return };
        self.0.current.set(Some(task));
        let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.0.current.set(None);
        match poll {
            Poll::Pending => {
                let mut state = self.state();
                state.tasks.current_mut(task).future = Some(future);
                state.settle_task_timer(task);
            }
            Poll::Ready(()) => {
                // Its connections close here, and need the state for it.
                drop(future);
                self.forget_task(task);
            }
        }
    }

    fn forget_task(&self, task: TaskId) {
        let mut state = self.state();
        if let Some(ended) = state.tasks.tasks.remove(task.0) {
            if let Some((_, timer)) = ended.timer {
                state.wheel.cancel(timer);
            }
            if ended.waits_for_wake {
                state.wakes.forget(task);
            }
        }
        self.stats().tasks.set(state.tasks.len() as u64);
    }

    /// Drops every task. Those that a drop spawns too.
    pub(super) fn drop_tasks(&self) {
        loop {
            let next = self.state().tasks.tasks.keys().next().map(TaskId);
            let Some(task) = next else { return };
            let future = self.state().tasks.current_mut(task).future.take();
            drop(future);
            self.forget_task(task);
        }
    }
}
