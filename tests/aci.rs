//! Three ACI servers behind antiphon, on both drivers: reads go to one, changes to all in one order, whatever their
//! spelling; who misses a change gets it before anything new; what nobody can know is shown, and ended by the operator.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use support::aci::{AciServer, Event, Vanish, key};
use support::client::{Ask, Client, NoAnswer};
use support::message::{Request, Response};
use support::proxy::{GROUP, Proxy, Setup, text};
use support::{Driver, eventually, eventually_eq, for_each_driver};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three servers and a front.
struct World {
    children: [AciServer; 3],
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
            .probe("expect", "{ status = \"200\", body = \"*SUCCESS*\" }")
            // Nobody is slow for less than this, save where a test wants it.
            .group("write_deadline", text("25s"));
        let setup = NAMES.iter().zip(&children).fold(setup, |setup, (name, child)| setup.child(name, child.port()));
        let proxy = Proxy::start(&more(setup));
        for name in NAMES {
            proxy.wait_child_state(name, "up");
        }
        Self { children, proxy }
    }

    fn add(&self, user: &str) -> Result<Response, NoAnswer> {
        Ask::get(&format!("/action=UserAdd&UserName={user}")).at(self.proxy.port)
    }

    /// Adds a user, which has to succeed.
    #[track_caller]
    fn must_add(&self, user: &str) -> Response {
        let answer = self.add(user).unwrap_or_else(|why| panic!("UserAdd {user}: {why}"));
        assert_eq!(answer.status(), 200, "UserAdd {user}: {answer}");
        answer
    }

    #[track_caller]
    fn must_read(&self, text: &str) {
        let answer = Ask::get(&format!("/action=Query&Text={text}")).at(self.proxy.port);
        let answer = answer.unwrap_or_else(|why| panic!("Query {text}: {why}"));
        assert_eq!(answer.status(), 200, "Query {text}: {answer}");
    }

    /// The users that a child has added, in order.
    fn users(&self, child: usize) -> Vec<String> {
        self.children[child].changes().iter().map(user).collect()
    }

    /// All have the same changes, soon if not now.
    #[track_caller]
    fn assert_identical(&self) {
        eventually_eq("three identical children", &true, || {
            let [first, second, third] = [0, 1, 2].map(|child| self.children[child].changes());
            let keys = |changes: &[Request]| changes.iter().map(key).collect::<Vec<_>>();
            keys(&first) == keys(&second) && keys(&second) == keys(&third)
        });
    }

    /// Stops a child. Whoever next asks something of it notices: an idle child is not probed for a minute.
    #[track_caller]
    fn stop(&mut self, child: usize) {
        self.children[child].stop();
        eventually(&format!("{} is down", NAMES[child]), || {
            let _ = Ask::get("/action=Query&Text=notice").at(self.proxy.port);
            (self.proxy.child_state(NAMES[child]) == "down").then_some(())
        });
    }

    /// Reads until a child has served one.
    #[track_caller]
    fn wait_for_a_read_at(&self, child: usize) {
        let before = self.children[child].reads().len();
        eventually(&format!("a read at {}", NAMES[child]), || {
            self.must_read("again");
            (self.children[child].reads().len() > before).then_some(())
        });
    }

    fn command(&self, words: &[&str]) -> String {
        let ran = self.proxy.command(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.text());
        ran.stdout
    }
}

/// The user that a `UserAdd` names.
fn user(request: &Request) -> String {
    let text = [request.head.target.as_slice(), b"\n", &request.body].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let at = text.find("user.").unwrap_or_else(|| panic!("no user in {text}"));
    text[at..].chars().take_while(|letter| letter.is_ascii_alphanumeric() || ".-".contains(*letter)).collect()
}

// === reads ===

#[test]
fn a_query_reaches_one_child() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        for number in 0..30 {
            world.must_read(&format!("q{number}"));
        }
        let reads: Vec<Vec<String>> =
            world.children.iter().map(|child| child.reads().iter().map(Request::path).collect()).collect();
        for number in 0..30 {
            let target = format!("/action=Query&Text=q{number}");
            let count = reads.iter().flatten().filter(|path| **path == target).count();
            assert_eq!(count, 1, "{target}");
        }
        assert!(reads.iter().all(|paths| !paths.is_empty()), "spread over all: {reads:?}");
        assert!(world.children.iter().all(|child| child.changes().is_empty()));
    });
}

// === changes: spellings and order ===

const BOUNDARY: &str = "----antiphon7MA4YWxk";

/// A form that carries `fields`, in the words of RFC 7578.
fn multipart(fields: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    fields.iter().map(part).collect::<String>() + &format!("--{BOUNDARY}--\r\n")
}

/// A `UserAdd` of a user in every form that clients in the field use: method, target, content type, body.
fn spellings(user: &str) -> Vec<(&'static str, String, Option<String>, String)> {
    let urlencoded = || Some("application/x-www-form-urlencoded".to_owned());
    let multi = || Some(format!("multipart/form-data; boundary={BOUNDARY}"));
    let plain = || Some("text/plain".to_owned());
    vec![
        // Parameters as the path, under the long and the short name, in any case.
        ("GET", format!("/action=UserAdd&UserName={user}"), None, String::new()),
        ("GET", format!("/a=useradd&username={user}"), None, String::new()),
        ("GET", format!("/ACTION=USERADD&UserName={user}"), None, String::new()),
        ("GET", format!("/UserName={user}&a=UserAdd"), None, String::new()),
        // As a query.
        ("GET", format!("/?Action=UserAdd&UserName={user}"), None, String::new()),
        // Percent-encoded letters.
        ("GET", format!("/%61ction=User%41dd&UserName={user}"), None, String::new()),
        // As a form: declared as one, as plain text, one parameter a line, or not declared.
        ("POST", "/".into(), urlencoded(), format!("action=UserAdd&UserName={user}")),
        ("POST", "/".into(), plain(), format!("Action=UserAdd&UserName={user}")),
        ("POST", "/".into(), plain(), format!("action=UserAdd\r\nUserName={user}\r\n")),
        ("POST", "/".into(), urlencoded(), format!("action=UserAdd\rUserName={user}\r")),
        ("POST", "/".into(), None, format!("action=UserAdd&UserName={user}")),
        // Divided between target and body.
        ("POST", "/a=UserAdd&ResponseFormat=simplejson".into(), urlencoded(), format!("UserName={user}")),
        ("POST", "/a=UserAdd".into(), multi(), multipart(&[("UserName", user), ("responseformat", "simplejson")])),
        ("POST", "/?Action=UserAdd".into(), multi(), multipart(&[("UserName", user), ("Field", "1"), ("Field", "2")])),
        ("POST", "/".into(), multi(), multipart(&[("action", "UserAdd"), ("UserName", user)])),
        // GET with a body.
        ("GET", "/a=UserAdd".into(), urlencoded(), format!("UserName={user}")),
        ("GET", "/".into(), urlencoded(), format!("a=UserAdd&UserName={user}")),
    ]
}

#[test]
fn a_user_add_in_each_spelling_reaches_all_in_one_order() {
    const CLIENTS: usize = 16;
    for_each_driver(|driver| {
        let world = World::start(driver);
        let acknowledged = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (world, acknowledged) = (&world, &acknowledged);
                scope.spawn(move || {
                    let mut connection = Client::connect(world.proxy.port).expect("a connection");
                    for number in 0..spellings("").len() {
                        let user = format!("user.{client}-{number}");
                        let (method, target, content_type, body) = spellings(&user).swap_remove(number);
                        let mut ask = Ask::new(method, &target);
                        ask = content_type.into_iter().fold(ask, |ask, value| ask.field("Content-Type", value));
                        if !body.is_empty() {
                            ask = ask.body(body.as_bytes());
                        }
                        let answer = connection.ask(&ask).unwrap_or_else(|why| panic!("{method} {target}: {why}"));
                        assert_eq!(answer.status(), 200, "{method} {target} {body:?}: {answer}");
                        assert!(answer.text().contains("<response>SUCCESS</response>"), "{answer}");
                        let sequence = answer.field("Antiphon-Sequence").expect("the place in the order");
                        acknowledged.lock().expect("all clients are well").push((place(&sequence), user));
                    }
                });
            }
        });
        // By the time of the last acknowledgement all three have everything, in the order that clients were told.
        let mut order = acknowledged.into_inner().expect("all clients are well");
        order.sort();
        let users: Vec<String> = order.into_iter().map(|(_, user)| user).collect();
        assert_eq!(users.len(), CLIENTS * spellings("").len());
        for (child, name) in NAMES.iter().enumerate() {
            assert_eq!(world.users(child), users, "the order at {name}");
        }
        let octets = |child: usize| {
            let octets = |request: Request| (request.head.octets, request.body);
            world.children[child].changes().into_iter().map(octets).collect::<Vec<_>>()
        };
        assert_eq!(octets(0), octets(1), "the same octets");
        assert_eq!(octets(0), octets(2), "the same octets");
    });
}

/// `Antiphon-Sequence: <epoch>:<n>` as numbers.
fn place(sequence: &str) -> (u64, u64) {
    let (epoch, number) = sequence.split_once(':').unwrap_or_else(|| panic!("`{sequence}`"));
    (epoch.parse().expect("an epoch"), number.parse().expect("a sequence"))
}

#[test]
fn ambiguous_spellings_are_refused_and_reach_nobody() {
    let form = "application/x-www-form-urlencoded";
    let ambiguous: &[(&str, &str, Option<&str>, &str)] = &[
        // The action twice, under one name or both.
        ("GET", "/action=Query&action=UserAdd&UserName=user.x", None, ""),
        ("GET", "/action=UserAdd&action=Query&UserName=user.x", None, ""),
        ("GET", "/action=Query&a=UserAdd&UserName=user.x", None, ""),
        ("GET", "/a=Query&%61=UserAdd", None, ""),
        ("GET", "/?action=Query&ACTION=UserAdd", None, ""),
        // In the target and in the body.
        ("POST", "/action=Query", Some(form), "action=UserAdd&UserName=user.x"),
        ("POST", "/action=Query", Some("text/plain"), "a=UserAdd&UserName=user.x"),
        ("GET", "/action=Query", Some(form), "action=UserAdd"),
        // Octets that end a name early for some readers, or that no reader agrees on.
        ("GET", "/action=UserAdd%00.Query", None, ""),
        ("GET", "/action=Query%00UserAdd", None, ""),
        ("GET", "/action=Query&action%00=UserAdd", None, ""),
        ("GET", "/action=User%4", None, ""),
        ("GET", "/action=%zzUserAdd", None, ""),
        // What cannot be read at all.
        ("GET", "/Action=Encrypted&Data=QVVUTjo", None, ""),
    ];
    for_each_driver(|driver| {
        let world = World::start(driver);
        for (method, target, content_type, body) in ambiguous {
            let mut ask = Ask::new(method, target);
            ask = content_type.iter().fold(ask, |ask, value| ask.field("Content-Type", *value));
            if !body.is_empty() {
                ask = ask.body(body.as_bytes());
            }
            let answer = ask.at(world.proxy.port).unwrap_or_else(|why| panic!("{method} {target}: {why}"));
            assert_eq!(answer.status(), 400, "{method} {target} {body:?}: {answer}");
            assert!(answer.text().contains("<errorcode>ACTION_"), "{answer}");
        }
        for child in &world.children {
            assert!(child.changes().is_empty() && child.reads().is_empty(), "{:?}", child.events());
        }
        world.must_read("afterwards");
        world.must_add("user.afterwards");
    });
}

// === children that were away ===

#[test]
fn a_child_that_was_away_gets_what_it_missed_before_anything_new_and_before_reads() {
    for_each_driver(|driver| {
        let mut world = World::start(driver);
        world.must_add("user.before");
        world.stop(1);
        for number in 0..20 {
            world.must_add(&format!("user.missed-{number}"));
            world.must_read("meanwhile");
        }
        // It is back, and is held up at the first change that it missed.
        world.children[1].close_gate();
        world.children[1].start_again();
        eventually("the first missed change is on its way", || (world.children[1].waiting() == 1).then_some(()));
        world.proxy.wait_child_state("b", "replaying");
        let reads = world.children[1].reads().len();
        for number in 0..20 {
            world.must_read(&format!("held-{number}"));
            world.must_add(&format!("user.new-{number}"));
        }
        assert_eq!(world.children[1].reads().len(), reads, "a read at a child that is behind");
        assert_eq!(world.users(1), ["user.before"]);
        world.children[1].open_gate();
        world.proxy.wait_child_state("b", "up");
        world.wait_for_a_read_at(1);
        let events = world.children[1].events();
        let first_read = events.iter().skip_while(|event| !is_change(event, "user.missed-0"));
        let before_reads = first_read.take_while(|event| !matches!(event, Event::Read(_)));
        let added: Vec<String> = before_reads.filter_map(added).collect();
        let missed = (0..20).map(|number| format!("user.missed-{number}"));
        let new = (0..20).map(|number| format!("user.new-{number}"));
        assert_eq!(added, missed.chain(new).collect::<Vec<_>>());
        world.assert_identical();
    });
}

fn added(event: &Event) -> Option<String> {
    if let Event::Change(request) = event { Some(user(request)) } else { None }
}

fn is_change(event: &Event, user: &str) -> bool {
    added(event).is_some_and(|added| added == user)
}

#[test]
fn what_the_ring_no_longer_holds_makes_a_child_needs_reseed() {
    for_each_driver(|driver| {
        let small = |setup: Setup| {
            setup.set("limits", "action_bytes_max", text("1KiB")).set("limits", "ring_bytes_max", text("64KiB"))
        };
        let mut world = World::with(driver, small);
        world.stop(2);
        let padding = "x".repeat(900);
        for number in 0..150 {
            let body = format!("action=UserAdd&UserName=user.{number}&Padding={padding}");
            let answer = Ask::new("POST", "/").body(body.as_bytes()).at(world.proxy.port).expect("an answer");
            assert_eq!(answer.status(), 200, "{answer}");
        }
        world.children[2].start_again();
        world.proxy.wait_child_state("c", "needs_reseed");
        assert!(!world.proxy.child("c")["why"].as_str().unwrap_or_default().is_empty(), "{:#}", world.proxy.child("c"));
        assert!(world.users(2).is_empty(), "not one change of a history with a hole");
        let reads = world.children[2].reads().len();
        for number in 0..6 {
            world.must_read(&format!("elsewhere-{number}"));
        }
        assert_eq!(world.children[2].reads().len(), reads, "nothing is read from it");
        // The operator has copied a good child, and says so.
        assert!(world.command(&["child", "attach", "c"]).contains('c'));
        world.proxy.wait_child_state("c", "up");
        world.must_add("user.after");
        assert_eq!(world.users(2), ["user.after"]);
        world.wait_for_a_read_at(2);
    });
}

// === outcomes that nobody can know ===

#[test]
fn an_unknown_outcome_makes_a_child_needs_reseed_until_the_operator_attaches_it() {
    for_each_driver(|driver| {
        for vanish in [Vanish::BeforeApplying, Vanish::AfterApplying] {
            let world = World::start(driver);
            world.children[1].vanish_once(vanish);
            world.must_add("user.doubt");
            world.proxy.wait_child_state("b", "needs_reseed");
            let why = world.proxy.child("b")["why"].as_str().unwrap_or_default().to_owned();
            assert!(!why.is_empty(), "an operator is told why");
            let had = world.users(1);
            assert_eq!(had.len(), usize::from(vanish == Vanish::AfterApplying));
            for number in 0..10 {
                world.must_add(&format!("user.without-{number}"));
                world.must_read("without-b");
            }
            assert_eq!(world.users(1), had, "nothing is sent to it");
            assert!(world.children[1].reads().is_empty(), "nothing is read from it");
            assert!(world.command(&["child", "ls"]).contains("needs_reseed"));
            // A child that needs a reseed stays so, however often it is seen to be well.
            assert!(world.command(&["child", "online", "b"]).contains('b'));
            world.must_add("user.still-without");
            assert_eq!(world.proxy.child_state("b"), "needs_reseed");
            world.command(&["child", "attach", "b"]);
            world.proxy.wait_child_state("b", "up");
            world.must_add("user.with-b-again");
            assert_eq!(world.users(1).last().map(String::as_str), Some("user.with-b-again"));
            assert_eq!(world.users(1).len(), had.len() + 1, "what it was attached past is not sent");
            world.wait_for_a_read_at(1);
        }
    });
}

#[test]
fn an_idempotent_change_is_sent_again() {
    for_each_driver(|driver| {
        let rule = "action = \"UserAdd\"\nclass = \"change\"\nunknown_outcome = \"idempotent\"";
        let world = World::with(driver, |setup| setup.rule(rule));
        world.must_add("user.one");
        world.children[1].vanish_once(Vanish::AfterApplying);
        world.must_add("user.two");
        world.proxy.wait_child_state("b", "up");
        world.must_add("user.three");
        assert_eq!(world.users(1), ["user.one", "user.two", "user.two", "user.three"], "b has it twice");
        assert_eq!(world.users(0), ["user.one", "user.two", "user.three"]);
    });
}

#[test]
fn a_child_that_answers_unlike_its_siblings_has_diverged() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        world.children[2].fail(&[409]);
        world.must_add("user.refused-by-one");
        world.proxy.wait_child_state("c", "diverged");
        world.must_add("user.next");
        assert!(world.users(2).is_empty());
        world.command(&["child", "attach", "c"]);
        world.proxy.wait_child_state("c", "up");
        world.must_add("user.all-again");
        assert_eq!(world.users(2), ["user.all-again"]);
    });
}

#[test]
fn a_change_that_all_refuse_is_refused() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        for child in &world.children {
            child.fail(&[409]);
        }
        let answer = world.add("user.nobody-wants").expect("an answer");
        assert_eq!(answer.status(), 409, "{answer}");
        world.must_add("user.next");
        for name in NAMES {
            assert_eq!(world.proxy.child_state(name), "up");
        }
        world.assert_identical();
    });
}

// === acknowledgement ===

#[test]
fn ack_all_waits_for_every_live_child() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        world.children[1].close_gate();
        thread::scope(|scope| {
            let adding = scope.spawn(|| world.must_add("user.slow"));
            eventually("two have it, one waits", || {
                let done = world.users(0).len() == 1 && world.users(2).len() == 1 && world.children[1].waiting() == 1;
                done.then_some(())
            });
            // Long enough for an answer that should not come.
            thread::sleep(Duration::from_millis(200));
            assert!(!adding.is_finished(), "answered before b has it");
            world.children[1].open_gate();
            adding.join().expect("an answer");
        });
        assert_eq!(world.users(1), ["user.slow"]);
    });
}

#[test]
fn ack_first_answers_with_the_first() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("ack", text("first")));
        world.children[0].close_gate();
        world.children[2].close_gate();
        world.must_add("user.quick");
        assert_eq!(world.users(1), ["user.quick"]);
        // The others get it all the same, and reads wait for them.
        for child in [0, 2] {
            world.children[child].open_gate();
        }
        world.assert_identical();
    });
}

#[test]
fn a_child_slower_than_its_siblings_is_not_waited_for_and_catches_up() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("write_deadline", text("200ms")));
        world.children[1].close_gate();
        world.must_add("user.slow");
        assert_ne!(world.proxy.child_state("b"), "up", "{:#}", world.proxy.child("b"));
        world.must_add("user.next");
        world.children[1].open_gate();
        world.proxy.wait_child_state("b", "up");
        world.assert_identical();
        assert_eq!(world.users(1), ["user.slow", "user.next"], "each once");
    });
}

#[test]
fn where_no_child_answers_in_time_the_change_is_pending_and_nobody_is_blamed() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("write_deadline", text("200ms")));
        for child in &world.children {
            child.close_gate();
        }
        let answer = world.add("user.pending").expect("an answer");
        assert_eq!(answer.status(), 504, "{answer}");
        assert!(answer.text().contains("<errorcode>PENDING</errorcode>"), "{answer}");
        assert!(answer.field("Antiphon-Sequence").is_some(), "{answer}");
        for child in &world.children {
            child.open_gate();
        }
        eventually_eq("all have it", &[1, 1, 1], || [0, 1, 2].map(|child| world.users(child).len()));
        for name in NAMES {
            world.proxy.wait_child_state(name, "up");
        }
    });
}

// === nobody there ===

#[test]
fn all_children_down_is_told_at_once() {
    for_each_driver(|driver| {
        let mut world = World::start(driver);
        for child in 0..3 {
            world.stop(child);
        }
        for target in ["/action=Query&Text=x", "/action=UserAdd&UserName=user.x"] {
            let answer = Ask::get(target).at(world.proxy.port).expect("an answer");
            assert_eq!(answer.status(), 503, "{target}: {answer}");
            assert!(answer.field("Retry-After").is_some(), "{target}: {answer}");
            assert_eq!(answer.field("Content-Type").as_deref(), Some("text/xml;charset=utf-8"), "{target}");
            assert!(answer.text().contains("<errorcode>NO_CHILD</errorcode>"), "{target}: {answer}");
        }
        assert_eq!(world.proxy.admin_get("/readyz").expect("an answer").status(), 503);
        for child in &mut world.children {
            child.start_again();
        }
        for name in NAMES {
            world.proxy.wait_child_state(name, "up");
        }
        assert_eq!(world.proxy.admin_get("/readyz").expect("an answer").status(), 200);
        world.must_add("user.all-back");
        world.assert_identical();
        assert_eq!(world.proxy.status()["groups"][0]["name"], GROUP);
    });
}

/// The id that each server would make up is made once, and is the same for all.
#[test]
fn a_created_category_has_one_id_everywhere() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let form = "application/x-www-form-urlencoded";
        let part = "--B\r\nContent-Disposition: form-data; name=\"action\"\r\n\r\nCategoryCreate\r\n--B--\r\n";
        let asks = [
            Ask::get("/action=CategoryCreate&Name=x"),
            Ask::get("/?action=CategoryCreate&Name=x"),
            Ask::new("POST", "/").field("Content-Type", form).body(b"action=CategoryCreate&Name=x"),
            Ask::new("POST", "/").field("Content-Type", "text/plain").body(b"action=CategoryCreate\r\nName=x"),
            Ask::new("POST", "/").field("Content-Type", "multipart/form-data; boundary=B").body(part.as_bytes()),
            Ask::get("/action=CategoryCreate&Category=5"),
        ];
        for ask in &asks {
            let answer = ask.at(world.proxy.port).unwrap_or_else(|why| panic!("{}: {why}", ask.target));
            assert_eq!(answer.status(), 200, "{answer}");
        }
        world.assert_identical();
        let mut ids: Vec<String> = world.children[2]
            .changes()
            .iter()
            .map(|change| {
                let (_, target, _, body) = key(change);
                let text = format!("{target}\n{}", String::from_utf8_lossy(&body));
                let (_, id) = text.split_once("Category=").unwrap_or_else(|| panic!("no id in {text}"));
                id.chars().take_while(char::is_ascii_digit).collect()
            })
            .collect();
        assert_eq!(ids.pop().as_deref(), Some("5"), "the client's own id stays");
        assert!(ids.len() == 5 && ids.iter().all(|id| id.len() == 18), "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 5, "each request has another id: {ids:?}");
    });
}
