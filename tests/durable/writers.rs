//! Clients that write until antiphon is gone, and remember what they were told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::recorder::REFUSED;
use crate::support::client::{Ask, Client, NoAnswer};
use crate::support::message::Response;

/// What is written: one name for a change, from client to child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// May be sent again.
    Idempotent,
    /// May not.
    Once,
    /// May be sent again, and every child refuses it.
    Refused,
    /// ACI: may not be sent again.
    Aci,
    /// ACI: all children take it at one time, or none.
    Live,
}

/// How often a client that waits for its answer looks whether antiphon is gone.
const LOOK: Duration = Duration::from_millis(200);

/// What clients were told of their changes.
#[derive(Default)]
pub(crate) struct Told {
    next: AtomicU64,
    answers: Mutex<Answers>,
}

#[derive(Default)]
pub(crate) struct Answers {
    /// Carried out.
    pub(crate) done: Vec<String>,
    /// Refused by the children.
    pub(crate) refused: Vec<String>,
    /// Accepted, with where to ask for what came of it.
    pub(crate) accepted: Vec<(String, String)>,
    /// Refused by antiphon, with the word that nothing was carried out.
    pub(crate) not_taken: Vec<String>,
}

impl Kind {
    pub(crate) const HTTP: [Self; 5] =
        [Self::Idempotent, Self::Once, Self::Idempotent, Self::Refused, Self::Idempotent];
    pub(crate) const SAFE: [Self; 2] = [Self::Idempotent, Self::Refused];
    pub(crate) const ACI: [Self; 3] = [Self::Aci, Self::Live, Self::Aci];

    const fn method(self) -> &'static str {
        match self {
            Self::Idempotent | Self::Refused => "PUT",
            Self::Once => "POST",
            Self::Aci | Self::Live => "GET",
        }
    }

    fn target(self, id: u64) -> String {
        match self {
            Self::Idempotent => format!("/put/{id}"),
            Self::Once => format!("/once/{id}"),
            Self::Refused => format!("{REFUSED}{id}"),
            Self::Aci => format!("/action=UserAdd&UserName=u{id}"),
            Self::Live => format!("/action=CategoryMove&Category=1&Parent=2&Note={id}"),
        }
    }
}

/// May a change with this target be sent a child only once?
pub(crate) fn is_once(target: &str) -> bool {
    target.starts_with("/once/") || target.starts_with("/action=")
}

impl Told {
    pub(crate) fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().expect("no client has failed")
    }

    /// Writes changes of these kinds in turn, until antiphon is gone.
    pub(crate) fn write_until(&self, gone: &AtomicBool, port: u16, kinds: &[Kind], body: &[u8]) {
        let mut kinds = kinds.iter().cycle();
        while !gone.load(Ordering::SeqCst) {
            let Ok(mut client) = Client::connect_within(port, LOOK) else { continue };
            while self.write(&mut client, *kinds.next().expect("a kind"), body, gone).is_ok() {}
        }
    }

    /// One change. Only what the client has read to its end counts.
    pub(crate) fn write(
        &self,
        client: &mut Client,
        kind: Kind,
        body: &[u8],
        gone: &AtomicBool,
    ) -> Result<Response, NoAnswer> {
        let target = kind.target(self.next.fetch_add(1, Ordering::Relaxed));
        let ask = Ask::new(kind.method(), &target);
        let mut answer = client.ask(&if kind.method() == "GET" { ask } else { ask.body(body) });
        // The kernel may take its time to close what a killed process had open.
        while matches!(answer, Err(NoAnswer::Silent(_))) && !gone.load(Ordering::SeqCst) {
            answer = client.answer(false);
        }
        let answer = answer?;
        let mut told = self.answers();
        match answer.status() {
            200 => told.done.push(target),
            202 => told.accepted.push((target, answer.field("Location").expect("where to ask"))),
            409 => told.refused.push(target),
            503 if answer.field("Antiphon-Sequence").is_none() => told.not_taken.push(target),
            // In doubt, partial or pending: it has its place, and nothing is promised.
            502..=504 => {}
            _ => panic!("{target}: {answer}"),
        }
        Ok(answer)
    }
}
