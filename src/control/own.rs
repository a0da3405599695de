//! What workers are told where a client asks for an action of ours: who may ask, and the answer in the DAH dialect.
//!
//! Workers leave their questions; they are answered on the control thread, each by a task, for an order may have to wait
//! until it is durable. So there are at most as many of them as there are clients.

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::aci::{self, Refusal, Scope};
use super::admin::Desk;
use super::book::Book;
use super::front::View;
use crate::config::{self, AciErrors, Config};
use crate::limits::OWN_QUESTIONS_MAX;
use crate::mirror::Wake;
use crate::sync::{Arc, AtomicBool};
use crate::worker::own::{Doubt, Own, Promise, Question};

/// Where clients' orders are taken. Made before the workers, opened when the front stands; questions that come earlier
/// wait.
pub(super) struct Counter {
    line: Sender<Asked>,
    clerk: Arc<Clerk>,
}

/// The questions that wait.
pub(super) struct Waiting {
    line: Receiver<Asked>,
    clerk: Arc<Clerk>,
}

/// A question, and whom to tell the answer.
struct Asked {
    question: Question,
    promise: Arc<Promise>,
    origin: Arc<dyn Wake>,
}

/// Who answers, but for the desk that it is done at.
struct Clerk {
    admin: config::Admin,
    /// One a group: errors travel with 200.
    as_200: Vec<bool>,
}

impl Counter {
    pub(super) fn new(config: &Config) -> (Self, Waiting) {
        let as_200 = config.groups.iter().map(|group| group.aci_errors == AciErrors::Envelope).collect();
        let (line, waiting) = channel(OWN_QUESTIONS_MAX);
        let clerk = Arc::new(Clerk { admin: config.admin.clone(), as_200 });
        (Self { line, clerk: clerk.clone() }, Waiting { line: waiting, clerk })
    }
}

impl Waiting {
    /// The front stands: questions are answered from now on, on this thread's task set.
    pub(super) fn open(mut self, view: &Arc<View>, book: &Arc<Book>) {
        let desk = Desk { view: view.clone(), draining: Arc::new(AtomicBool::new(false)), book: book.clone() };
        tokio::task::spawn_local(async move {
            while let Some(asked) = self.line.recv().await {
                let (clerk, desk) = (self.clerk.clone(), desk.clone());
                tokio::task::spawn_local(async move { clerk.answer(&desk, asked).await });
            }
        });
    }
}

impl Own for Counter {
    fn ask(&self, question: Question, origin: Arc<dyn Wake>) -> Arc<Promise> {
        let promise = Arc::new(Promise::default());
        let asked = Asked { question, promise: promise.clone(), origin };
        if let Err(full) = self.line.try_send(asked) {
            let question = full.into_inner().question;
            self.clerk.tell(&question, Err(Refusal::busy()), &promise);
        }
        promise
    }
}

impl Clerk {
    async fn answer(&self, desk: &Desk, asked: Asked) {
        let Asked { question, promise, origin } = asked;
        let outcome = match self.admit(&question) {
            Ok(()) => {
                let by = format!("{} by {}", question.client, question.action);
                let scope = Scope::Group(question.group);
                aci::carry_out(desk, &question.action, &question.parameters, scope, true, &by).await
            }
            Err(refusal) => Err(refusal),
        };
        self.tell(&question, outcome, &promise);
        origin.wake();
    }

    fn admit(&self, question: &Question) -> Result<(), Refusal> {
        if !self.admin.allows(question.client) {
            let client = question.client;
            return Err(Refusal::forbidden(format!(
                "{client} is not in [admin] admin_clients, whose clients alone may ask this"
            )));
        }
        match question.doubt {
            Some(Doubt::Page) => {
                Err(Refusal::forbidden("a page in a browser asked this: use a client of your own".to_owned()))
            }
            Some(Doubt::Proxy) => {
                let text = "a proxy passed this on, so that it is not known who asks: ask antiphon itself";
                Err(Refusal::forbidden(text.to_owned()))
            }
            None => Ok(()),
        }
    }

    fn tell(&self, question: &Question, outcome: aci::Outcome, promise: &Promise) {
        let as_200 = self.as_200.get(question.group).copied().unwrap_or(false);
        promise.keep(aci::answer(&question.action, &question.parameters, outcome, &question.date, as_200));
    }
}
