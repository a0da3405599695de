//! The last ACI requests of a worker, for `GetRequestLog`.
//!
//! A worker pushes, control looks. No lock, and nothing allocated once it runs: what falls out of the full queue is the
//! next entry to be written. Control takes the entries out when it looks, and keeps them here for its next look.
//!
//! Not a record of anything: what is cut off, pushed out or lost by a restart is gone. Requests are kept with their
//! credentials, in memory only; they are masked where they are shown.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;

use crate::action::{ActionName, Asked};
use crate::limits::REQUESTS_KEPT_MAX;
use crate::time::Time;

/// One request and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Empty where the request had none, or two readings.
    pub action: ActionName,
    /// Its parameters as they came, to be shown by [`masked`](crate::action::masked).
    pub text: Vec<u8>,
    /// The other end of its connection.
    pub client: IpAddr,
    /// When its head was waited for.
    pub began: Time,
    /// Until its answer was sent, or a fault was known.
    pub took: Duration,
    /// The HTTP status.
    pub status: u16,
}

/// The last [`REQUESTS_KEPT_MAX`] of one worker.
#[derive(Debug)]
pub struct Requests {
    /// Pushed by the worker.
    fresh: ArrayQueue<Box<Entry>>,
    /// What control has looked at already. Nobody else touches it.
    seen: ArrayQueue<Box<Entry>>,
}

/// What a serving task notes of its request.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// The request that is being served, if it is one of ours.
    open: Option<Box<Entry>>,
    /// To be written next.
    spare: Option<Box<Entry>>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { fresh: ArrayQueue::new(REQUESTS_KEPT_MAX), seen: ArrayQueue::new(REQUESTS_KEPT_MAX) }
    }
}

impl Requests {
    /// The last requests, the oldest first. For the control thread only: two that look at once would each see a part.
    #[must_use]
    pub fn look(&self) -> Vec<Entry> {
        // As many as there can be, and not for as long as new ones come.
        for _ in 0..REQUESTS_KEPT_MAX {
            let Some(entry) = self.fresh.pop() else { break };
            self.seen.force_push(entry);
        }
        let mut found = Vec::new();
        for _ in 0..self.seen.len() {
            let Some(entry) = self.seen.pop() else { break };
            found.push(Entry::clone(&entry));
            self.seen.force_push(entry);
        }
        found
    }

    fn push(&self, entry: Box<Entry>) -> Option<Box<Entry>> {
        self.fresh.force_push(entry)
    }
}

impl Note {
    /// Nothing of an earlier request is left.
    pub(crate) fn clear(&mut self) {
        if let Some(open) = self.open.take() {
            self.spare = Some(open);
        }
    }

    /// A request has come.
    pub(crate) fn open(&mut self, asked: &Asked<'_>, client: IpAddr, began: Time) {
        let mut entry = self.spare.take().unwrap_or_else(|| Box::new(Entry::empty()));
        entry.action = ActionName::EMPTY;
        entry.text.clear();
        asked.show_target(&mut entry.text);
        (entry.client, entry.began, entry.status) = (client, began, 0);
        self.open = Some(entry);
    }

    /// Its body has been read.
    pub(crate) fn body(&mut self, asked: &Asked<'_>) {
        if let Some(entry) = &mut self.open {
            asked.show_body(&mut entry.text);
        }
    }

    /// Its action is known.
    pub(crate) fn action(&mut self, name: ActionName) {
        if let Some(entry) = &mut self.open {
            entry.action = name;
        }
    }

    /// It was answered with this status.
    pub(crate) fn status(&mut self, status: u16) {
        if let Some(entry) = &mut self.open {
            entry.status = status;
        }
    }

    /// It is over.
    pub(crate) fn close(&mut self, requests: &Requests, now: Time) {
        if let Some(mut entry) = self.open.take() {
            entry.took = now.since(entry.began);
            self.spare = requests.push(entry);
        }
    }
}

impl Entry {
    const fn empty() -> Self {
        Self {
            action: ActionName::EMPTY,
            text: Vec::new(),
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            began: Time::ZERO,
            took: Duration::ZERO,
            status: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(note: &mut Note, requests: &Requests, number: usize) {
        let target = format!("/a=Query&n={number}");
        let asked = Asked::bare(b"GET", target.as_bytes());
        note.open(&asked, IpAddr::V4(Ipv4Addr::LOCALHOST), Time::from_nanos(number as u64));
        note.status(200);
        note.close(requests, Time::from_nanos(number as u64 + 7));
    }

    fn numbers(requests: &Requests) -> Vec<usize> {
        let number = |entry: Entry| {
            assert_eq!((entry.status, entry.took.as_nanos()), (200, 7));
            let text = String::from_utf8(entry.text).expect("text");
            text.trim_start_matches("a=Query&n=").parse().expect("a number")
        };
        requests.look().into_iter().map(number).collect()
    }

    /// Against a list: whatever is pushed, and whenever somebody looks, the last ones are there.
    #[test]
    fn the_last_ones_are_kept_across_looks() {
        let (requests, mut note) = (Requests::default(), Note::default());
        let mut pushed = 0;
        for (burst, looks) in [(0, 1), (1, 2), (30, 0), (30, 1), (60, 3), (1, 1), (250, 2), (99, 1), (2, 1)] {
            for _ in 0..burst {
                serve(&mut note, &requests, pushed);
                pushed += 1;
            }
            for _ in 0..looks {
                let kept: Vec<_> = (pushed.saturating_sub(REQUESTS_KEPT_MAX)..pushed).collect();
                assert_eq!(numbers(&requests), kept);
            }
        }
    }

    #[test]
    fn what_falls_out_is_written_anew() {
        let (requests, mut note) = (Requests::default(), Note::default());
        (0..REQUESTS_KEPT_MAX + 1).for_each(|number| serve(&mut note, &requests, number));
        let spare: *const Entry = &**note.spare.as_ref().expect("the first has fallen out");
        serve(&mut note, &requests, 7);
        let last = requests.fresh.into_iter().last().expect("just pushed");
        assert_eq!(&raw const *last, spare);
        note.clear();
        assert!(note.open.is_none());
    }
}
