//! A child that writes down which changes it was sent, in the order in which it took them. It outlives antiphon, and
//! goes on after a stop with what it has.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::peer::{Peer, Server};
use crate::support::message::Request;

/// What a target holds that is refused, by all alike.
pub(crate) const REFUSED: &str = "/refused/";

/// One child.
pub(crate) struct Recorder {
    port: u16,
    server: Option<Server>,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let taken = Arc::default();
        let server = Server::start(serving(&taken));
        Self { port: server.port(), server: Some(server), taken }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    pub(crate) fn start_again(&mut self) {
        if self.server.is_none() {
            self.server = Some(Server::start_again(self.port, serving(&self.taken)));
        }
    }

    /// Waits until nothing of what a killed antiphon has sent is still to come.
    pub(crate) fn drain(&self) {
        self.server.as_ref().expect("it runs").drain();
    }

    /// The changes it was sent, refused ones too.
    pub(crate) fn taken(&self) -> MutexGuard<'_, Vec<String>> {
        self.taken.lock().expect("no thread of this child has failed")
    }
}

fn serving(taken: &Arc<Mutex<Vec<String>>>) -> impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static {
    let taken = Arc::clone(taken);
    move |peer| {
        loop {
            let request = peer.request()?;
            peer.send(answer(&request, &taken).as_bytes())?;
        }
    }
}

fn answer(request: &Request, taken: &Mutex<Vec<String>>) -> String {
    let target = request.path();
    if is_change(request) {
        taken.lock().expect("no thread of this child has failed").push(target.clone());
    }
    let status = if target.contains(REFUSED) { "409 Conflict" } else { "200 OK" };
    format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\nSUCCESS")
}

/// Its own opinion: cruder than antiphon's, and independent of it.
fn is_change(request: &Request) -> bool {
    let path = request.path();
    ["UserAdd", "CategoryMove"].iter().any(|name| path.contains(name))
        || matches!(&*request.head.method, "PUT" | "POST")
}
