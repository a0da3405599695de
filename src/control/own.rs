//! What workers are told where a client asks for an action of ours: who may ask, and the answer in the DAH dialect.

use super::aci::{self, Refusal, Scope};
use super::admin::Desk;
use super::front::View;
use crate::config::{self, AciErrors, Config};
use crate::sync::{Arc, AtomicBool, OnceLock};
use crate::worker::own::{Answer, Doubt, Own, Question};

/// Where clients' orders are taken. Made before the workers, opened when the front stands.
pub(super) struct Counter {
    desk: OnceLock<Desk>,
    admin: config::Admin,
    /// One a group: errors travel with 200.
    as_200: Vec<bool>,
}

impl Counter {
    pub(super) fn new(config: &Config) -> Self {
        let as_200 = config.groups.iter().map(|group| group.aci_errors == AciErrors::Envelope).collect();
        Self { desk: OnceLock::new(), admin: config.admin.clone(), as_200 }
    }

    /// The front stands.
    pub(super) fn open(&self, view: &Arc<View>) {
        // A second front of one configuration has a counter of its own.
        let _ = self.desk.set(Desk { view: view.clone(), draining: Arc::new(AtomicBool::new(false)) });
    }

    fn admit(&self, question: &Question<'_>) -> Result<&Desk, Refusal> {
        if !self.admin.allows(question.client) {
            let client = question.client;
            return Err(Refusal::forbidden(format!(
                "{client} is not in [admin] admin_clients, whose clients alone may ask this"
            )));
        }
        match question.doubt {
            Some(Doubt::Page) => {
                return Err(Refusal::forbidden("a page in a browser asked this: use a client of your own".to_owned()));
            }
            Some(Doubt::Proxy) => {
                let text = "a proxy passed this on, so that it is not known who asks: ask antiphon itself";
                return Err(Refusal::forbidden(text.to_owned()));
            }
            None => {}
        }
        self.desk.get().ok_or_else(Refusal::starting)
    }
}

impl Own for Counter {
    fn answer(&self, question: &Question<'_>) -> Answer {
        let as_200 = self.as_200.get(question.group).copied().unwrap_or(false);
        let by = format!("{} by {}", question.client, question.action);
        let outcome = self.admit(question).and_then(|desk| {
            aci::carry_out(desk, question.action, question.parameters, Scope::Group(question.group), true, &by)
        });
        aci::answer(question.action, question.parameters, outcome, question.date, as_200)
    }
}
