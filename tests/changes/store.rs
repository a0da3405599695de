//! Servers that keep what they are told, as a map and as a list; whose next answers a test can choose; and some of them
//! behind antiphon.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::peer::{Gate, Peer, Server};
use crate::support::client::{Ask, NoAnswer};
use crate::support::message::{Request, Response};
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::scripted::ANSWERS;
use crate::support::{Driver, eventually, eventually_eq};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// What becomes of a change that would otherwise be applied and answered with 200.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// Not applied; this status.
    Refused(u16),
    /// Not applied, and the connection ends.
    Lost,
    /// Applied, and the connection ends.
    AppliedAndLost,
}

/// One change: method, target, body.
pub(crate) type Done = (String, String, Vec<u8>);

#[derive(Default)]
struct State {
    /// Everything applied, in order; what was sent twice stands here twice.
    done: Vec<Done>,
    /// What follows from it, where all changes are PUT: twice is as good as once.
    map: BTreeMap<String, Vec<u8>>,
    /// Of the next changes.
    fates: VecDeque<Fate>,
    /// The targets of reads.
    reads: Vec<String>,
    /// Sent with every answer to a change.
    answer: Arc<Vec<u8>>,
}

/// A server. It goes on after [`stop`](Self::stop) with what it knows.
pub(crate) struct Store {
    port: u16,
    server: Option<Server>,
    state: Arc<Mutex<State>>,
    /// Changes wait here before they are applied.
    pub(crate) gate: Arc<Gate>,
}

impl Store {
    pub(crate) fn start() -> Self {
        let (state, gate) = (Arc::new(Mutex::new(State::default())), Gate::closed());
        gate.open();
        state.lock().expect("new").answer = Arc::new(b"ok".to_vec());
        let server = Server::start(serving(&state, &gate));
        Self { port: server.port(), server: Some(server), state, gate }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of this child has failed")
    }

    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    pub(crate) fn start_again(&mut self) {
        self.server = Some(Server::start_again(self.port, serving(&self.state, &self.gate)));
    }

    pub(crate) fn done(&self) -> Vec<Done> {
        self.state().done.clone()
    }

    /// The targets of what it has applied, in order.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.state().done.iter().map(|done| done.1.clone()).collect()
    }

    pub(crate) fn map(&self) -> BTreeMap<String, Vec<u8>> {
        self.state().map.clone()
    }

    pub(crate) fn reads(&self) -> usize {
        self.state().reads.len()
    }

    pub(crate) fn fate(&self, fates: impl IntoIterator<Item = Fate>) {
        self.state().fates.extend(fates);
    }

    /// The body of every answer to a change from now on.
    pub(crate) fn answer_with(&self, body: &Arc<Vec<u8>>) {
        self.state().answer = Arc::clone(body);
    }
}

fn serving(state: &Arc<Mutex<State>>, gate: &Arc<Gate>) -> impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static {
    let (state, gate) = (Arc::clone(state), Arc::clone(gate));
    move |peer| {
        loop {
            let request = peer.request()?;
            act(peer, &request, &state, &gate)?;
        }
    }
}

/// Whether a request changes this server. Its own opinion: cruder than antiphon's, and independent of it.
fn is_change(request: &Request) -> bool {
    let path = request.path();
    let named = ["UserAdd", "CategoryMove", "CategorySetDetails"].iter().any(|name| path.contains(name));
    named || !matches!(request.head.method.as_str(), "GET" | "HEAD" | "OPTIONS")
}

fn act(peer: &mut Peer, request: &Request, state: &Mutex<State>, gate: &Gate) -> Option<()> {
    let state = || state.lock().expect("no thread of this child has failed");
    let path = request.path();
    if path == "/health" {
        return peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nSUCCESS");
    }
    let mut answer = Arc::new(b"ok".to_vec());
    if is_change(request) {
        gate.pass();
        let mut state = state();
        let fate = state.fates.pop_front();
        if !matches!(fate, Some(Fate::Refused(_) | Fate::Lost)) {
            state.done.push((request.head.method.clone(), path.clone(), request.body.clone()));
            state.map.insert(path.clone(), request.body.clone());
        }
        answer = Arc::clone(&state.answer);
        drop(state);
        match fate {
            None => {}
            Some(Fate::Refused(status)) => {
                return peer.send(format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nno").as_bytes());
            }
            Some(Fate::Lost | Fate::AppliedAndLost) => return None,
        }
    } else {
        state().reads.push(path.clone());
    }
    let length = answer.len();
    peer.send(format!("HTTP/1.1 200 OK\r\n{ANSWERS}: {path}\r\nContent-Length: {length}\r\n\r\n").as_bytes())?;
    if request.head.method == "HEAD" { Some(()) } else { peer.send(&answer) }
}

/// Some stores, and a front.
pub(crate) struct World<const COUNT: usize> {
    pub(crate) stores: [Store; COUNT],
    pub(crate) proxy: Proxy,
}

impl<const COUNT: usize> World<COUNT> {
    /// Plain HTTP, the built-in rules.
    pub(crate) fn http(driver: Driver, more: impl FnOnce(Setup) -> Setup) -> Self {
        Self::with(Setup::new(driver, "http", "http"), more)
    }

    /// ACI, the built-in rules.
    pub(crate) fn aci(driver: Driver, more: impl FnOnce(Setup) -> Setup) -> Self {
        Self::with(Setup::new(driver, "aci", "idol"), more)
    }

    fn with(setup: Setup, more: impl FnOnce(Setup) -> Setup) -> Self {
        let stores = std::array::from_fn(|_| Store::start());
        let setup = setup
            .probe("request", text("GET /health"))
            .probe("expect", "{ status = \"200\", body = \"*SUCCESS*\" }")
            // Nobody is slow for less than this, save where a test wants it.
            .group("write_deadline", text("25s"));
        let setup = NAMES.iter().zip(&stores).fold(setup, |setup, (name, store)| setup.child(name, store.port));
        let proxy = Proxy::start(&more(setup));
        let world = Self { stores, proxy };
        world.wait_up();
        world
    }

    /// All children are up.
    #[track_caller]
    pub(crate) fn wait_up(&self) {
        for name in &NAMES[..COUNT] {
            self.proxy.wait_child_state(name, "up");
        }
    }

    /// Stops a child; whoever asks something of it notices.
    #[track_caller]
    pub(crate) fn stop(&mut self, child: usize) {
        self.stores[child].stop();
        eventually(&format!("{} is down", NAMES[child]), || {
            let _ = self.read();
            (self.proxy.child_state(NAMES[child]) == "down").then_some(())
        });
    }

    pub(crate) fn post(&self, target: &str) -> Result<Response, NoAnswer> {
        Ask::new("POST", target).body(target.as_bytes()).at(self.proxy.port)
    }

    /// A change that has to succeed.
    #[track_caller]
    pub(crate) fn must(&self, method: &str, target: &str) -> Response {
        let answer = Ask::new(method, target).body(target.as_bytes()).at(self.proxy.port);
        let answer = answer.unwrap_or_else(|why| panic!("{method} {target}: {why}"));
        assert_eq!(answer.status(), 200, "{method} {target}: {answer}");
        answer
    }

    /// A change that is answered, and not with success.
    #[track_caller]
    pub(crate) fn must_not(&self, method: &str, target: &str) -> Response {
        let answer = Ask::new(method, target).body(target.as_bytes()).at(self.proxy.port);
        let answer = answer.unwrap_or_else(|why| panic!("{method} {target}: {why}"));
        assert!(answer.status() >= 400, "{method} {target}: {answer}");
        answer
    }

    /// A read in either dialect.
    pub(crate) fn read(&self) -> Result<Response, NoAnswer> {
        Ask::get("/action=Query&Text=x").at(self.proxy.port)
    }

    /// Reads from which a child gets its share, if it gets any.
    #[track_caller]
    pub(crate) fn reads_at(&self, child: usize) -> usize {
        let before = self.stores[child].reads();
        for _ in 0..4 * COUNT {
            let answer = self.read().unwrap_or_else(|why| panic!("a read: {why}"));
            assert_eq!(answer.status(), 200, "{answer}");
        }
        self.stores[child].reads() - before
    }

    /// All have done the same, soon if not now.
    #[track_caller]
    pub(crate) fn assert_identical(&self) {
        for store in &self.stores[1..] {
            eventually_eq("as the first child", &self.stores[0].done(), || store.done());
        }
    }

    /// `antiphon child attach`, and that it works.
    #[track_caller]
    pub(crate) fn attach(&self, child: usize) {
        let ran = self.proxy.command(&["child", "attach", NAMES[child]]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        self.proxy.wait_child_state(NAMES[child], "up");
    }
}
