//! Three Apache httpd with mod_dav behind antiphon, on both drivers: every method of WebDAV that can be mirrored leaves
//! three identical trees with the same properties, also when a child was away meanwhile; what cannot be mirrored, a lock
//! or a change that depends on an entity tag, reaches none of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::path::Path;
use std::thread;

use support::apache::{self, Apache};
use support::client::{Ask, Client};
use support::message::Response;
use support::proxy::{Proxy, Setup, text};
use support::tree::{self, Tree};
use support::{Driver, eventually_eq, for_each_driver};

const CLIENTS: usize = 6;
const ROUNDS: usize = 8;

struct Choir {
    children: Vec<Apache>,
    proxy: Proxy,
}

impl Choir {
    fn start(program: &Path, driver: Driver) -> Self {
        Self::with(program, driver, |setup| setup)
    }

    fn with(program: &Path, driver: Driver, more: impl Fn(Setup) -> Setup) -> Self {
        let children: Vec<Apache> = ["a", "b", "c"].iter().map(|name| Apache::start(program, name)).collect();
        let setup = Setup::new(driver, "http", "webdav").group("write_deadline", text("20s"));
        let setup = children.iter().fold(setup, |setup, child| setup.child(&child.name, child.port()));
        let proxy = Proxy::start(&more(setup));
        let choir = Self { children, proxy };
        choir.wait_all_up();
        choir
    }

    fn wait_all_up(&self) {
        for child in &self.children {
            self.proxy.wait_child_state(&child.name, "up");
        }
    }

    fn ask(&self, ask: &Ask<'_>) -> Response {
        ask.at(self.proxy.port).unwrap_or_else(|why| panic!("{} {}: {why}", ask.method, ask.target))
    }

    fn trees(&self) -> Vec<Tree> {
        self.children.iter().map(Apache::tree).collect()
    }

    /// Soon if not now: a child that has just come back may still be a few changes behind, and serves no reads then.
    fn assert_identical(&self) {
        eventually_eq("differences between the trees", &Vec::new(), || {
            let trees = self.trees();
            trees.iter().flat_map(|tree| tree::differences(&trees[0], tree)).collect::<Vec<_>>()
        });
    }
}

/// A client with a connection of its own.
struct Visitor {
    port: u16,
    connection: Option<Client>,
}

impl Visitor {
    const fn new(port: u16) -> Self {
        Self { port, connection: None }
    }

    /// A change that has to succeed.
    #[track_caller]
    fn change(&mut self, ask: &Ask<'_>) {
        let mut connection =
            self.connection.take().unwrap_or_else(|| Client::connect(self.port).expect("a connection"));
        let answer = connection.ask(ask).unwrap_or_else(|why| panic!("{} {}: {why}", ask.method, ask.target));
        assert!(matches!(answer.status(), 201 | 204 | 207), "{} {}: {answer}", ask.method, ask.target);
        assert!(answer.field("Antiphon-Sequence").is_some(), "{answer}");
        let closes = answer.head.fields.list("connection").iter().any(|option| option == "close");
        self.connection = (!closes).then_some(connection);
    }

    fn put(&mut self, path: &str, body: &str) {
        self.change(&Ask::new("PUT", path).body(body.as_bytes()));
    }

    fn to(&mut self, method: &'static str, from: &str, to: &str) {
        let destination = format!("http://127.0.0.1:{}{to}", self.port);
        self.change(&Ask::new(method, from).field("Destination", destination));
    }

    fn set_property(&mut self, path: &str, value: &str) {
        let body = format!(
            "<?xml version=\"1.0\"?><propertyupdate xmlns=\"DAV:\" xmlns:x=\"urn:x\"><set><prop><x:colour>{value}\
             </x:colour></prop></set></propertyupdate>"
        );
        self.change(&Ask::new("PROPPATCH", path).field("Content-Type", "text/xml").body(body.as_bytes()));
    }

    /// Uses every method that changes, in a folder of its own, and writes where all others do.
    fn work(&mut self, number: usize, rounds: std::ops::Range<usize>) {
        for round in rounds {
            let folder = format!("/own{number}-{round}");
            self.change(&Ask::new("MKCOL", &format!("{folder}/")));
            self.put(&format!("{folder}/new"), &format!("{number}.{round}"));
            self.to("MOVE", &format!("{folder}/new"), &format!("{folder}/file"));
            self.to("COPY", &format!("{folder}/file"), &format!("{folder}/copy"));
            self.set_property(&format!("{folder}/file"), &format!("{number}.{round}"));
            self.put(&format!("/shared/{round}"), &format!("round {round} of {number}"));
            if round % 2 == 1 {
                self.change(&Ask::new("DELETE", &format!("{folder}/copy")));
                self.to("COPY", &format!("{folder}/"), &format!("{folder}-twin/"));
            }
        }
    }
}

/// The colour of a file, as a child itself tells it.
fn colour(child: &Apache, path: &str) -> Option<String> {
    let body = "<?xml version=\"1.0\"?><propfind xmlns=\"DAV:\" xmlns:x=\"urn:x\"><prop><x:colour/></prop></propfind>";
    let ask = Ask::new("PROPFIND", path).field("Depth", "0").field("Content-Type", "text/xml").body(body.as_bytes());
    let answer = ask.at(child.port()).expect("an answer");
    assert_eq!(answer.status(), 207, "{answer}");
    let text = answer.text();
    let value = text.split("colour>").nth(1)?.split('<').next()?;
    Some(value.to_owned())
}

#[test]
fn a_child_that_was_away_has_the_same_tree_and_properties() {
    let Some(program) = apache::program() else { return };
    for_each_driver(|driver| {
        let mut choir = Choir::start(&program, driver);
        let port = choir.proxy.port;
        Visitor::new(port).change(&Ask::new("MKCOL", "/shared/"));
        let crowd = |rounds: std::ops::Range<usize>| {
            thread::scope(|scope| {
                for number in 0..CLIENTS {
                    let rounds = rounds.clone();
                    scope.spawn(move || Visitor::new(port).work(number, rounds));
                }
            });
        };
        crowd(0..2);
        choir.children[1].stop();
        crowd(2..ROUNDS - 2);
        choir.proxy.wait_child_state("b", "down");
        // Comes back while more is written.
        thread::scope(|scope| {
            let writing = scope.spawn(|| crowd(ROUNDS - 2..ROUNDS));
            choir.children[1].start_again();
            writing.join().expect("the writers");
        });
        choir.wait_all_up();
        choir.assert_identical();
        let tree = choir.children[1].tree();
        for number in 0..CLIENTS {
            for round in 0..ROUNDS {
                let folder = format!("own{number}-{round}");
                let content = Some(format!("{number}.{round}").into_bytes());
                assert_eq!(tree.get(&format!("{folder}/file")), Some(&content), "{folder}");
                assert_eq!(tree.contains_key(&format!("{folder}/copy")), round % 2 == 0, "{folder}");
                assert_eq!(tree.get(&format!("{folder}-twin/file")), (round % 2 == 1).then_some(&content), "{folder}");
                for child in &choir.children {
                    let found = colour(child, &format!("/{folder}/file"));
                    assert_eq!(found, Some(format!("{number}.{round}")), "{folder} of {}", child.name);
                }
            }
        }
    });
}

#[test]
fn what_children_would_do_differently_reaches_none() {
    let Some(program) = apache::program() else { return };
    for_each_driver(|driver| {
        let choir = Choir::start(&program, driver);
        Visitor::new(choir.proxy.port).put("/page", "one");
        let before = choir.trees();
        let lock = "<?xml version=\"1.0\"?><lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope><locktype><write/>\
                    </locktype></lockinfo>";
        for (ask, status, code) in [
            (Ask::new("LOCK", "/page").field("Content-Type", "text/xml").body(lock.as_bytes()), 501, "lock_refused"),
            (Ask::new("UNLOCK", "/page").field("Lock-Token", "<urn:uuid:1>"), 501, "lock_refused"),
            (Ask::new("PUT", "/page").field("If-Match", "\"x\"").body(b"two"), 412, "conditional_change"),
            (Ask::new("PUT", "/page").field("If-None-Match", "\"x\"").body(b"two"), 412, "conditional_change"),
            (Ask::new("DELETE", "/page").field("If", "(<urn:uuid:1>)"), 412, "conditional_change"),
            (
                Ask::new("DELETE", "/page").field("If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT"),
                412,
                "conditional_change",
            ),
        ] {
            let answer = choir.ask(&ask);
            assert_eq!(answer.status(), status, "{} {answer}", ask.method);
            assert!(answer.text().contains(&format!("\"code\":\"{code}\"")), "{answer}");
            assert!(answer.field("Antiphon-Sequence").is_none(), "{answer}");
        }
        assert_eq!(choir.trees(), before);
        // On a read a condition is the child's affair.
        assert_eq!(choir.ask(&Ask::get("/page").field("If-None-Match", "*")).status(), 304);
        assert_eq!(choir.ask(&Ask::new("PROPFIND", "/page").field("Depth", "0")).status(), 207);
    });
}

/// Whether a thing exists is the same on all children: such a condition holds for all or for none.
#[test]
fn a_condition_on_existence_is_carried_out_alike() {
    let Some(program) = apache::program() else { return };
    for_each_driver(|driver| {
        let choir = Choir::start(&program, driver);
        let create = Ask::new("PUT", "/page").field("If-None-Match", "*").body(b"one");
        assert_eq!(choir.ask(&create).status(), 201);
        assert_eq!(choir.ask(&create.clone().body(b"two")).status(), 412);
        let replace = |path| Ask::new("PUT", path).field("If-Match", "*").body(b"three");
        assert_eq!(choir.ask(&replace("/page")).status(), 204);
        assert_eq!(choir.ask(&replace("/other")).status(), 412);
        let destination = format!("http://127.0.0.1:{}/page", choir.proxy.port);
        Visitor::new(choir.proxy.port).put("/second", "x");
        let copy = Ask::new("COPY", "/second").field("Destination", destination).field("Overwrite", "F");
        assert_eq!(choir.ask(&copy).status(), 412);
        choir.wait_all_up();
        choir.assert_identical();
        assert_eq!(choir.children[2].tree()["page"], Some(b"three".to_vec()));
    });
}

#[test]
fn a_rule_may_say_that_validators_are_the_same() {
    let Some(program) = apache::program() else { return };
    for_each_driver(|driver| {
        // Entity tags of the content alone would be the same; here the one that is sent fits none, on all children.
        let rule = "method = \"PUT\"\nclass = \"change\"\nunknown_outcome = \"idempotent\"\nvalidators = \"same\"";
        let choir = Choir::with(&program, driver, |setup| setup.rule(rule));
        Visitor::new(choir.proxy.port).put("/page", "one");
        let answer = choir.ask(&Ask::new("PUT", "/page").field("If-Match", "\"none\"").body(b"two"));
        assert_eq!(answer.status(), 412, "{answer}");
        assert!(answer.field("Antiphon-Sequence").is_some(), "it went to the children: {answer}");
        eventually_eq("all are up", &vec!["up".to_owned(); 3], || {
            ["a", "b", "c"].map(|name| choir.proxy.child_state(name)).to_vec()
        });
        choir.assert_identical();
    });
}
