//! The clients that ACI servers have, on both drivers: every form in which they write a request, to the octet, reaches
//! whom it must; what just misses one does not; answers of any kind come back as they were; and what the clients' own
//! retries, time limits and pools need is so.
//!
//! Requests are written here as those clients put them on the wire, which is told in their published code.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::aci::{AciServer, Vanish};
use support::client::{Ask, Client};
use support::message::{Request, Response};
use support::proxy::{Proxy, Setup, assert_says, text};
use support::scripted::{self, Scripted, Step};
use support::{Driver, PATIENCE, eventually, eventually_eq, for_each_driver, need, run_within};

/// What the Java and the Python client wait for an answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// Two servers and a front.
struct World {
    children: [AciServer; 2],
    proxy: Proxy,
}

impl World {
    fn start(driver: Driver) -> Self {
        Self::with(driver, |setup| setup)
    }

    fn with(driver: Driver, more: impl Fn(Setup) -> Setup) -> Self {
        let children = AciServer::several();
        let setup = Setup::new(driver, "aci", "idol")
            .probe("request", text("GET /action=GetPid"))
            .child("a", children[0].port())
            .child("b", children[1].port());
        let proxy = Proxy::start(&more(setup));
        proxy.wait_child_state("a", "up");
        proxy.wait_child_state("b", "up");
        Self { children, proxy }
    }

    /// How many reads and changes each child has seen.
    fn seen(&self) -> [(usize, usize); 2] {
        [0, 1].map(|child| (self.children[child].reads().len(), self.children[child].changes().len()))
    }

    /// What the children have been sent since, and by how many of them each was seen as a read or as a change.
    fn since(&self, before: [(usize, usize); 2]) -> Since {
        let new = |child: usize| {
            let (reads, changes) = before[child];
            (self.children[child].reads().split_off(reads), self.children[child].changes().split_off(changes))
        };
        let [(reads, changes), (more_reads, more_changes)] = [0, 1].map(new);
        Since { reads: [reads, more_reads].concat(), changes: [changes, more_changes].concat() }
    }
}

/// What the children have been sent.
struct Since {
    reads: Vec<Request>,
    changes: Vec<Request>,
}

// === every form ===

const URLENCODED: &str = "application/x-www-form-urlencoded";
const BOUNDARY: &str = "------------------------d74496d66958873e";

/// A request as octets: all but the target and the body is one client's habit.
#[derive(Clone, Debug)]
struct Wire {
    method: &'static str,
    target: String,
    fields: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl Wire {
    fn get(target: String) -> Self {
        Self { method: "GET", target, fields: Vec::new(), body: None }
    }

    fn with(method: &'static str, target: String, kind: &str, body: String) -> Self {
        let fields = if kind.is_empty() { Vec::new() } else { vec![("Content-Type", kind.to_owned())] };
        Self { method, target, fields, body: Some(body.into_bytes()) }
    }

    fn ask(&self) -> Ask<'_> {
        let ask = Ask { method: self.method, target: &self.target, fields: self.fields.clone(), body: None };
        self.body.iter().fold(ask, |ask, body| ask.body(body))
    }

    /// Target, body and type arrived as they were sent.
    #[track_caller]
    fn assert_came(&self, came: &Request) {
        assert_eq!(came.head.method, self.method, "{self:?}");
        assert_eq!(String::from_utf8_lossy(&came.head.target), self.target, "{self:?}");
        assert_eq!(came.body, self.body.clone().unwrap_or_default(), "{self:?}");
        for (name, value) in &self.fields {
            assert_eq!(came.head.fields.text(&name.to_ascii_lowercase()).as_ref(), Some(value), "{self:?}: {name}");
        }
    }
}

fn part(name: &str, content: &str) -> String {
    format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

/// An action with a parameter in every form of a request.
fn forms(action: &str, rest: &str) -> Vec<Wire> {
    let (name, value) = rest.split_once('=').expect("a pair");
    let multi = format!("multipart/form-data; boundary={BOUNDARY}");
    let end = format!("--{BOUNDARY}--\r\n");
    let lower = action.to_lowercase();
    let encoded: String = action.bytes().map(|octet| format!("%{octet:02X}")).collect();
    let post = |target: &str, kind: &str, body: String| Wire::with("POST", target.to_owned(), kind, body);
    vec![
        // Documents and scripts: parameters as the path, long and short, in any case and order.
        Wire::get(format!("/action={action}&{rest}")),
        Wire::get(format!("/a={lower}&{rest}")),
        Wire::get(format!("/ACTION={}&{rest}", action.to_uppercase())),
        Wire::get(format!("/{rest}&A={action}")),
        Wire::get(format!("/%61ction={encoded}&{rest}")),
        // The Java client, by GET and by POST.
        Wire::get(format!("/?Action={action}&{rest}")),
        post("/", "text/plain; charset=UTF-8", format!("Action={action}&{rest}")),
        // The Python client: divided between path and form; a GET with a form.
        post(&format!("/a={action}&ResponseFormat=simplejson"), URLENCODED, rest.to_owned()),
        Wire::with("GET", format!("/a={action}&ResponseFormat=simplejson"), URLENCODED, rest.to_owned()),
        Wire::with("GET", "/".to_owned(), URLENCODED, format!("a={action}&{rest}")),
        // Shells: the same division with parts.
        post(&format!("/a={action}"), &multi, part(name, value) + &end),
        // The Java client with streams: the action in the query, a name that repeats.
        post(&format!("/?Action={action}"), &multi, part(name, value) + &part("f", "1") + &part("f", "2\r\n3") + &end),
        post("/", &multi, part("Action", action) + &part(name, value) + &end),
        // Forms, declared and not.
        post("/", URLENCODED, format!("{rest}&action={action}")),
        post("/", "", format!("a={lower}&{rest}")),
        // One pair a line.
        post("/", "text/plain", format!("action={action}\r\n{rest}\r\n")),
        post("/", "text/plain", format!("{rest}\raction={action}\r")),
        post("/", URLENCODED, format!("action={action}\n{rest}")),
    ]
}

/// Values whose octets a careless proxy would change.
const REST: &str = "UserName=a+b%20c%2fd%C3%A9";

#[test]
fn every_form_reaches_whom_it_must_as_it_came() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let mut kept = Client::connect_within(world.proxy.port, CLIENT_PATIENCE).expect("a connection");
        for (action, changes) in
            [("Query", false), ("UserAdd", true), ("CategoryMove", true), ("CategorySetDetails", true)]
        {
            for wire in forms(action, REST) {
                let before = world.seen();
                let answer = kept.ask(&wire.ask()).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!(answer.status(), 200, "{wire:?}: {answer}");
                assert_says(&answer.text(), &["<response>SUCCESS</response>"]);
                assert_eq!(answer.field("Antiphon-Sequence").is_some(), changes, "{wire:?}: {answer}");
                let since = world.since(before);
                let counts = if changes { (0, 2) } else { (1, 0) };
                assert_eq!((since.reads.len(), since.changes.len()), counts, "{wire:?}");
                since.reads.iter().chain(&since.changes).for_each(|came| wire.assert_came(came));
            }
        }
    });
}

/// A body whose length its client does not know when it begins, as of streams: the octets arrive, the chunks are ours.
#[test]
fn every_form_with_a_body_passes_in_chunks() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let mut kept = Client::connect_within(world.proxy.port, CLIENT_PATIENCE).expect("a connection");
        for (action, changes) in [("Query", false), ("UserAdd", true), ("CategoryMove", true)] {
            for wire in forms(action, REST) {
                let Some(body) = &wire.body else { continue };
                let mut octets = format!("{} {} HTTP/1.1\r\nHost: a.test\r\n", wire.method, wire.target).into_bytes();
                for (name, value) in &wire.fields {
                    octets.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                octets.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in body.chunks(7) {
                    octets.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    octets.extend_from_slice(piece);
                    octets.extend_from_slice(b"\r\n");
                }
                octets.extend_from_slice(b"0\r\n\r\n");
                let before = world.seen();
                kept.send(&octets).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                let answer = kept.answer(false).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!(answer.status(), 200, "{wire:?}: {answer}");
                let since = world.since(before);
                let counts = if changes { (0, 2) } else { (1, 0) };
                assert_eq!((since.reads.len(), since.changes.len()), counts, "{wire:?}");
                since.reads.iter().chain(&since.changes).for_each(|came| wire.assert_came(came));
            }
        }
    });
}

#[test]
fn a_live_change_in_every_form_reaches_all_or_nobody() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let ran = world.proxy.command(&["child", "offline", "b"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        for action in ["CategoryMove", "CategorySetDetails"] {
            for wire in forms(action, REST) {
                let before = world.seen();
                let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!(answer.status(), 503, "{wire:?}: {answer}");
                let id = format!("ANTIPHON{}503", action.to_uppercase());
                assert_says(&answer.text(), &["NOT_QUEUEABLE", "Missing: b.", &id]);
                assert_eq!(world.seen(), before, "{wire:?}");
            }
        }
    });
}

/// Names that are no action's: each is a change, the safe side, where the action of that name reads, and where it takes
/// all children at once no more than a change.
#[test]
fn just_missed_in_every_form() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        // With a child away: a live change would be refused.
        let ran = world.proxy.command(&["child", "offline", "b"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        let mut sent = 0;
        for action in ["Queri", "xQuery", "Query2", "Category-Move", "CategoryMoves", "CategorySetDetail", "UserAd"] {
            for wire in forms(action, REST) {
                let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!(answer.status(), 200, "{wire:?}: {answer}");
                assert!(answer.field("Antiphon-Sequence").is_some(), "{wire:?}: {answer}");
                sent += 1;
            }
        }
        // A parameter that is nearly the one that changes something leaves a read a read.
        for rest in ["Deleted=true", "StateID=x", "StoreStates=true", "Restate=x"] {
            for wire in forms("Query", rest) {
                let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!((answer.status(), answer.field("Antiphon-Sequence")), (200, None), "{wire:?}: {answer}");
            }
        }
        for rest in ["Delete=true", "delete=false", "STATE=x", "StoreState=true"] {
            for wire in forms("Query", rest) {
                let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert!(answer.field("Antiphon-Sequence").is_some(), "{wire:?}: {answer}");
                sent += 1;
            }
        }
        let ran = world.proxy.command(&["child", "online", "b"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        world.proxy.wait_child_state("b", "up");
        // What these servers do not know they take for reads: here it counts that all of it came.
        let [_, (reads, changes)] = world.seen();
        assert_eq!(reads + changes, sent, "b has what it missed, and not one read");
    });
}

// === the Java client ===

/// Its streams: parts with a file's name and a type of their own.
#[test]
fn the_java_clients_streams_pass() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let stream = |number: u8| {
            let octets: Vec<u8> = (0..=255).cycle().skip(usize::from(number)).take(70_000).collect();
            let head = format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"Data\"; filename=\"Data\"\r\n\
                 Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            );
            [head.as_bytes(), &octets, b"\r\n"].concat()
        };
        let field = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"ResponseFormat\"\r\n\
             Content-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nxml\r\n"
        );
        let end = format!("--{BOUNDARY}--\r\n");
        let body = [field.as_bytes(), &stream(0), &stream(1), end.as_bytes()].concat();
        for (action, changes) in [("Query", false), ("TemplateUpload", true)] {
            let wire = Wire {
                method: "POST",
                target: format!("/?Action={action}"),
                fields: vec![
                    ("Content-Type", format!("multipart/form-data; charset=UTF-8; boundary={BOUNDARY}")),
                    ("User-Agent", "ACI API".to_owned()),
                ],
                body: Some(body.clone()),
            };
            let before = world.seen();
            let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{action}: {why}"));
            assert_eq!(answer.status(), 200, "{answer}");
            let since = world.since(before);
            assert_eq!(since.reads.len() + since.changes.len(), 1 + usize::from(changes));
            since.reads.iter().chain(&since.changes).for_each(|came| wire.assert_came(came));
        }
    });
}

/// A pool of four connections and more threads than that, each waiting ten seconds at most: all are served on these four,
/// reads and changes mixed, errors in between; no connection is closed on them.
#[test]
fn a_pool_of_four_serves_many_threads() {
    const THREADS: usize = 12;
    const ROUNDS: usize = 10;
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("aci_errors", text("envelope")));
        let connect = || Client::connect_within(world.proxy.port, CLIENT_PATIENCE).expect("a connection");
        let pool = Mutex::new((0..4).map(|_| connect()).collect::<Vec<_>>());
        let free = std::sync::Condvar::new();
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (pool, free) = (&pool, &free);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let held = pool.lock().expect("all threads are well");
                        let mut held = free.wait_while(held, |pool| pool.is_empty()).expect("all threads are well");
                        let mut client = held.pop().expect("just waited for");
                        drop(held);
                        for (target, said) in [
                            (format!("/?Action=Query&Text={number}-{round}"), "SUCCESS"),
                            (format!("/?Action=UserAdd&UserName=user.{number}-{round}"), "SUCCESS"),
                            ("/?Action=Query&Action=Query".to_owned(), "ACTION_AMBIGUOUS"),
                            ("/?Action=QueueInfo&QueueAction=cancel".to_owned(), "TOKEN_MISSING"),
                        ] {
                            let answer = client.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{target}: {why}"));
                            assert_eq!(answer.status(), 200, "{target}: {answer}");
                            assert_says(&answer.text(), &[said]);
                        }
                        pool.lock().expect("all threads are well").push(client);
                        free.notify_one();
                    }
                });
            }
        });
        for child in &world.children {
            assert_eq!(child.changes().len(), THREADS * ROUNDS);
        }
        assert_eq!(pool.into_inner().expect("all threads are well").len(), 4);
    });
}

// === the Python client ===

/// It asks again, up to three times, whatever it asked: what failed before it was carried out is carried out once, and a
/// change that it asks for twice is carried out twice on every child alike.
#[test]
fn a_client_that_asks_again_finds_the_children_alike() {
    for_each_driver(|driver| {
        let mut world = World::start(driver);
        let add =
            Wire::with("POST", "/a=UserAdd&ResponseFormat=simplejson".into(), URLENCODED, "UserName=user.1".into());
        let retry = |world: &World, wire: &Wire| -> Response {
            let mut answer = wire.ask().at(world.proxy.port);
            for _ in 0..3 {
                if answer.as_ref().is_ok_and(|answer| answer.status() == 200) {
                    break;
                }
                answer = wire.ask().at(world.proxy.port);
            }
            answer.unwrap_or_else(|why| panic!("{wire:?}: {why}"))
        };
        // An answer that is lost on its way: the first child is found wanting, and the second answers.
        world.children[0].vanish_once(Vanish::AfterApplying);
        assert_eq!(retry(&world, &add).status(), 200);
        world.proxy.wait_child_state("a", "needs_reseed");
        assert_eq!(retry(&world, &add).status(), 200);
        assert_eq!(world.children[1].changes().len(), 2, "asked for twice, carried out twice");
        let ran = world.proxy.command(&["child", "attach", "a"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        world.proxy.wait_child_state("a", "up");
        // Nobody there: each try is refused at once, in a form that it reads, and nothing is left behind.
        world.children[0].stop();
        world.children[1].stop();
        let query = Wire::with("GET", "/a=Query&ResponseFormat=simplejson".into(), URLENCODED, "Text=x".into());
        eventually("both are down", || {
            let _ = query.ask().at(world.proxy.port);
            (world.proxy.child_state("a") == "down" && world.proxy.child_state("b") == "down").then_some(())
        });
        for wire in [&query, &add] {
            let answer = retry(&world, wire);
            assert_eq!(answer.status(), 503, "{answer}");
            let value: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer}"));
            assert_eq!(value["autnresponse"]["response"], "ERROR", "{answer}");
            assert_eq!(value["autnresponse"]["responsedata"]["error"]["errorcode"], "NO_CHILD", "{answer}");
        }
        for child in &mut world.children {
            child.start_again();
        }
        world.proxy.wait_child_state("a", "up");
        world.proxy.wait_child_state("b", "up");
        assert_eq!(retry(&world, &query).status(), 200);
        let counts = world.seen().map(|(_, changes)| changes);
        assert_eq!(retry(&world, &add).status(), 200);
        assert_eq!(
            world.seen().map(|(_, changes)| changes),
            counts.map(|count| count + 1),
            "no refused one came later"
        );
    });
}

// === shells ===

/// `curl` as in the vendor's scripts and tutorials.
#[test]
fn shells_are_served() {
    let Some(curl) = need("curl") else { return };
    for_each_driver(|driver| {
        let world = World::start(driver);
        let base = format!("http://127.0.0.1:{}", world.proxy.port);
        let run = |arguments: &[&str]| {
            let ran =
                run_within(Command::new(&curl).args(["-s", "-S", "-f", "--noproxy", "*"]).args(arguments), PATIENCE);
            assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.text());
            assert_says(&ran.stdout, &["<response>SUCCESS</response>"]);
        };
        let (query, add) = (format!("{base}/a=query"), format!("{base}/a=UserAdd"));
        for (arguments, counts) in [
            (vec![&*query, "-F", "responseformat=xml", "-F", "text=a b"], (1, 0)),
            (vec![&*add, "-F", "UserName=user.f", "-F", "Field=1", "-F", "Field=2"], (0, 2)),
            (vec![&*query, "-d", "text=x&responseformat=xml"], (1, 0)),
            (vec![&*add, "--data-urlencode", "UserName=user d/é"], (0, 2)),
            (vec![&*base, "-F", "a=UserAdd", "-F", "UserName=user.a"], (0, 2)),
            (vec!["-G", &*base, "-d", "a=query", "--data-urlencode", "text=a b"], (1, 0)),
            (vec!["-X", "GET", &*query, "-d", "text=x"], (1, 0)),
            // A body that is announced first.
            (vec![&*add, "-H", "Expect: 100-continue", "-F", "UserName=user.e"], (0, 2)),
            (vec!["--compressed", &*query], (1, 0)),
            (vec!["--http1.0", &*query], (1, 0)),
        ] {
            let before = world.seen();
            run(&arguments);
            let since = world.since(before);
            assert_eq!((since.reads.len(), since.changes.len()), counts, "{arguments:?}");
        }
        // A script sees by curl's own exit code that we refused: what is named twice, and what `-G` makes of a path that
        // is the parameters, for to some servers the action is then `query?text=x`.
        for arguments in [vec![&*format!("{base}/a=query&action=query")], vec!["-G", &*query, "-d", "text=x"]] {
            let mut command = Command::new(&curl);
            let ran = run_within(command.args(["-s", "-S", "-f", "--noproxy", "*"]).args(&arguments), PATIENCE);
            assert_eq!(ran.code, Some(22), "{arguments:?}: {}", ran.text());
        }
    });
}

// === what cannot be read ===

/// As the C client can be told to send it: nobody knows what it asks, so nobody is sent it.
#[test]
fn deflated_requests_are_refused() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let before = world.seen();
        for target in ["/", "/a=Query", "/?action=UserAdd"] {
            for coding in ["deflate", "gzip", "identity, gzip"] {
                let body = b"\x78\x9c\x03\0\0\0\0\x01";
                let ask = Ask::new("POST", target).field("Content-Type", URLENCODED);
                let ask = ask.field("Content-Encoding", coding).body(body);
                let answer = ask.at(world.proxy.port).unwrap_or_else(|why| panic!("{target} {coding}: {why}"));
                assert_eq!(answer.status(), 400, "{target} {coding}: {answer}");
                assert_says(&answer.text(), &["ACTION_AMBIGUOUS", "Send it without Content-Encoding"]);
            }
        }
        assert_eq!(world.seen(), before, "nobody was sent any of it");
    });
}

#[test]
fn encrypted_requests_are_refused_in_every_form() {
    for_each_driver(|driver| {
        for (way, status) in [("status", 400), ("envelope", 200)] {
            let world = World::with(driver, |setup| setup.group("aci_errors", text(way)));
            let before = world.seen();
            for wire in forms("Encrypted", "Data=MTAwfEFVVE46x%2FQ%3D") {
                let answer = wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}"));
                assert_eq!(answer.status(), status, "{wire:?}: {answer}");
                assert_says(&answer.text(), &["ACTION_ENCRYPTED", "Send it to the child itself"]);
            }
            assert_eq!(world.seen(), before, "nobody was sent any of it");
        }
    });
}

// === answers ===

/// A child whose answers are kept ready.
struct Answering {
    port: u16,
    answers: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
}

impl Answering {
    fn start() -> Self {
        let (listener, port) = scripted::listen();
        let (answers, stop) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicBool>::default());
        let (ready, ended) = (Arc::clone(&answers), Arc::clone(&stop));
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let ready = Arc::clone(&ready);
                thread::spawn(move || {
                    let mut request = Vec::new();
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        request.extend_from_slice(&buffer[..count]);
                        if !request.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        request.clear();
                        let answer = ready.lock().expect("all threads are well").clone();
                        if stream.write_all(&answer).is_err() {
                            return;
                        }
                        let head = answer.get(..200).unwrap_or(&answer);
                        if String::from_utf8_lossy(head).contains("Connection: close") {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, answers, stop }
    }

    fn answer(&self, octets: Vec<u8>) {
        *self.answers.lock().expect("all threads are well") = octets;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Octets of no meaning, the same for the same seed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Images, archives, compressed answers and encrypted ones: type, coding and every octet are the child's, for a read and
/// for a change, whatever frames them.
#[test]
fn answers_of_any_type_and_coding_pass_untouched() {
    let xml = b"<?xml version='1.0' encoding='UTF-8' ?>\n<autnresponse><action>QUERY</action></autnresponse>".to_vec();
    // gzip and deflate of nothing, written out: no octet of them is looked at, so any other would do.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0".to_vec();
    let deflate = b"\x78\x9c\x03\0\0\0\0\x01".to_vec();
    let cases: Vec<(&str, &[(&str, &str)], Vec<u8>)> = vec![
        ("text/xml", &[], xml.clone()),
        ("text/xml;charset=ISO-8859-1", &[], b"<a>\xe9</a>".to_vec()),
        ("text/xml", &[("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")], gzip),
        ("text/xml; charset=utf-8", &[("Content-Encoding", "deflate")], deflate),
        ("text/xml", &[("Content-Encoding", "gzip")], noise(300_000, 1)),
        ("application/json", &[], b"{\"autnresponse\":{}}".to_vec()),
        ("image/png", &[("Content-Disposition", "inline; filename=\"a.png\"")], noise(70_001, 2)),
        ("application/zip", &[("ETag", "\"a-gzip\"")], noise(5, 3)),
        ("application/octet-stream", &[("AUTN-Content-Type", "text/xml")], noise(1, 4)),
        ("text/html", &[], Vec::new()),
        ("", &[], xml),
    ];
    for_each_driver(|driver| {
        let children = [Answering::start(), Answering::start()];
        let setup = Setup::new(driver, "aci", "idol").child("a", children[0].port).child("b", children[1].port);
        let proxy = Proxy::start(&setup);
        let mut kept = Client::connect_within(proxy.port, CLIENT_PATIENCE).expect("a connection");
        for (kind, fields, body) in &cases {
            for framing in ["length", "chunked", "close"] {
                let mut head = "HTTP/1.1 200 OK\r\n".to_owned();
                if !kind.is_empty() {
                    head += &format!("Content-Type: {kind}\r\n");
                }
                for (name, value) in *fields {
                    head += &format!("{name}: {value}\r\n");
                }
                let framed = match framing {
                    "length" => [format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat(),
                    "chunked" => {
                        let chunk =
                            |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                        let chunks = body.chunks(40_000).flat_map(chunk).collect::<Vec<_>>();
                        [b"Transfer-Encoding: chunked\r\n\r\n", &chunks[..], b"0\r\n\r\n"].concat()
                    }
                    _ => [b"Connection: close\r\n\r\n", &body[..]].concat(),
                };
                for child in &children {
                    child.answer([head.as_bytes(), &framed].concat());
                }
                for target in ["/?Action=Query&Text=x", "/?Action=UserAdd&UserName=x"] {
                    let ask = Ask::get(target).field("Accept-Encoding", "gzip, deflate");
                    let what = format!("{target} {kind} {framing}");
                    let answer = kept.ask(&ask).unwrap_or_else(|why| panic!("{what}: {why}"));
                    assert_eq!(answer.status(), 200, "{what}");
                    assert!(answer.body == *body, "{what}: {} octets of {}", answer.body.len(), body.len());
                    assert_eq!(answer.field("Content-Type").unwrap_or_default(), *kind, "{what}");
                    for (name, value) in *fields {
                        assert_eq!(answer.field(name).as_deref(), Some(*value), "{what}");
                    }
                    assert_eq!(answer.field("Content-Encoding").is_some(), head.contains("Content-Encoding"), "{what}");
                }
            }
        }
    });
}

// === time ===

/// What we wait for ourselves, with the defaults, ends before a client that waits ten seconds gives up: a change that a
/// child does not answer, also behind a live one whose children do not get ready; a read at a child that takes no
/// connection, and at the next; a connection of its pool that it has not used for as long as such pools keep one.
#[test]
fn the_defaults_fit_clients_that_wait_ten_seconds() {
    let text = "[[listen]]\naddress = \"127.0.0.1:9060\"\ngroup = \"g\"\n[group.g]\ndialect = \"aci\"\n\
                [[group.g.child]]\nname = \"a\"\naddress = \"127.0.0.1:9100\"\n";
    let config = antiphon::config::Config::parse(text, "defaults").expect("the least there can be");
    let group = &config.groups[0];
    assert!(group.live_wait + group.write_deadline + antiphon::limits::CHANGE_GRACE < CLIENT_PATIENCE);
    assert!(group.read_wait + 2 * group.timeouts.connect < CLIENT_PATIENCE);
    assert!(config.timeouts.keep_alive > CLIENT_PATIENCE && config.timeouts.request_body > CLIENT_PATIENCE);
}

/// A change that one child does not answer is acknowledged, one that nobody answers is told as pending, and carried out
/// once. The client's connection goes on through both.
#[test]
fn a_client_of_a_slow_group_is_answered_and_keeps_its_connection() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("write_deadline", text("200ms")));
        let mut client = Client::connect_within(world.proxy.port, CLIENT_PATIENCE).expect("a connection");
        let mut add = |user: &str| {
            let target = format!("/?Action=UserAdd&UserName={user}");
            let answer = client.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{user}: {why}"));
            (answer.status(), answer)
        };
        world.children[1].close_gate();
        let (status, answer) = add("user.one");
        assert_eq!(status, 200, "{answer}");
        world.children[1].open_gate();
        world.proxy.wait_child_state("b", "up");
        world.children.iter().for_each(AciServer::close_gate);
        let (status, answer) = add("user.two");
        assert_eq!(status, 504, "{answer}");
        assert_says(&answer.text(), &["<errorcode>PENDING</errorcode>"]);
        world.children.iter().for_each(AciServer::open_gate);
        for child in &world.children {
            eventually_eq("both, each once", &2, || child.changes().len());
        }
        let (status, answer) = add("user.three");
        assert_eq!(status, 200, "{answer}");
    });
}

/// A pooled connection of the client's to us lives on while the children's to us end: it never sees why.
#[test]
fn a_childs_closed_connection_is_not_the_clients() {
    for_each_driver(|driver| {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: 2\r\n\r\nok".to_vec();
        // It closes behind its first answer, without having said so, as idle servers do.
        let child = Scripted::start(vec![Step::Request, Step::Send(answer), Step::Close]);
        let proxy = Proxy::start(&Setup::new(driver, "aci", "idol").child("a", child.port()));
        let mut client = Client::connect_within(proxy.port, CLIENT_PATIENCE).expect("a connection");
        for number in 0..5 {
            let target = format!("/?Action=Query&Text={number}");
            let answer = client.ask(&Ask::get(&target)).unwrap_or_else(|why| panic!("{target}: {why}"));
            assert_eq!(answer.status(), 200, "{answer}");
        }
        let requests: usize = child.records().iter().map(|record| record.requests.len()).sum();
        assert_eq!(requests, 5);
    });
}

// === the last requests ===

#[test]
fn the_last_requests_are_shown_without_credentials() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let log = |more: &str| {
            let answer = world.proxy.admin_get(&format!("/action=GetRequestLog{more}")).expect("an answer");
            assert_eq!(answer.status(), 200, "{answer}");
            let text = answer.text();
            let entries: Vec<String> = text.split("<logentry>").skip(1).map(str::to_owned).collect();
            entries
        };
        assert!(log("").is_empty());
        let ask =
            |wire: &Wire| wire.ask().at(world.proxy.port).unwrap_or_else(|why| panic!("{wire:?}: {why}")).status();
        assert_eq!(ask(&Wire::get("/action=Query&Text=a+b&SecurityInfo=abc%3D".into())), 200);
        let add = "UserName=user.x&Password=swordfish;more".to_owned();
        assert_eq!(ask(&Wire::with("POST", "/a=UserAdd".into(), URLENCODED, add)), 200);
        assert_eq!(ask(&Wire::get("/action=Query&action=List".into())), 400);
        assert_eq!(ask(&Wire::get("/action=EngineManagement&EngineAction=ShowStatus".into())), 200);
        // A request is over, and shown, a moment after its answer has been sent.
        let entries = eventually("all four", || Some(log("")).filter(|entries| entries.len() >= 4));
        for (entry, parts) in entries.iter().zip([
            ["<autn:action>QUERY</autn:action>", "action=Query&amp;Text=a+b&amp;SecurityInfo=****<", ">success<"],
            ["<autn:action>USERADD</autn:action>", "a=UserAdd&amp;UserName=user.x&amp;Password=****<", ">success<"],
            ["<autn:action/>", "action=Query&amp;action=List<", "<autn:status>error</autn:status>"],
            ["<autn:action>ENGINEMANAGEMENT</autn:action>", "EngineAction=ShowStatus<", "<httpstatus>200</httpstatus>"],
        ]) {
            assert_says(entry, &parts);
            assert_says(entry, &["<autn:client>127.0.0.1</autn:client>", "<autn:thread>0</autn:thread>"]);
            let duration = entry.split("<autn:duration>").nth(1).and_then(|rest| rest.split('<').next()).expect("one");
            let number = duration.strip_suffix(" ms").expect("milliseconds");
            assert!(number.parse::<f64>().is_ok() && number.split('.').nth(1).is_some_and(|two| two.len() == 2));
            let time = entry.split("<autn:time>").nth(1).and_then(|rest| rest.split('<').next()).expect("one");
            let shape: String = time.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
            assert_eq!((&shape[..3], &shape[6..]), ("99 ", " 99 99:99:99"), "{entry}");
        }
        assert_eq!(entries.len(), 4, "{entries:?}");
        let [last] = &log("&Tail=1")[..] else { panic!("one") };
        assert_says(last, &["ENGINEMANAGEMENT"]);
        for number in 0..120 {
            assert_eq!(ask(&Wire::get(format!("/action=Query&Text=number-{number}"))), 200);
        }
        let entries = eventually("the last one", || {
            Some(log("&Tail=1000")).filter(|entries| entries.last().is_some_and(|last| last.contains("number-119<")))
        });
        assert_eq!(entries.len(), 100);
        assert_says(&entries[0], &["number-20<"]);
        let wrong = world.proxy.admin_get("/action=GetRequestLog&Tail=0").expect("an answer");
        assert_eq!(wrong.status(), 400, "{wrong}");
        // Where clients come in it is the children's action, as for every other client.
        assert_says(&Ask::get("/action=GetRequestLog").at(world.proxy.port).expect("an answer").text(), &["UNKNOWN"]);
    });
}
