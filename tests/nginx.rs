//! Three real servers: nginx with WebDAV behind antiphon, on both drivers.
//!
//! GETs are spread. Changes by 16 clients at once leave three identical folders. A child that was away gets what it
//! missed before it serves one read, and nobody's read fails meanwhile.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use support::client::{Ask, Client, NoAnswer};
use support::message::Response;
use support::nginx::{self, CHILD, Nginx};
use support::proxy::{Proxy, Setup, text};
use support::tree::{self, Tree};
use support::{Driver, eventually, for_each_driver};

const CLIENTS: usize = 16;
/// Rounds of each client: every round changes its own folder and one that all share.
const ROUNDS: usize = 12;

struct Choir {
    children: Vec<Nginx>,
    proxy: Proxy,
}

impl Choir {
    fn start(program: &Path, driver: Driver) -> Self {
        let children: Vec<Nginx> = ["a", "b", "c"].iter().map(|name| Nginx::start(program, name)).collect();
        let setup = children
            .iter()
            .fold(Setup::new(driver, "http", "http"), |setup, child| setup.child(&child.name, child.port()));
        // A debug build on a loaded machine: nobody is slow for less than this.
        let setup = setup.group("write_deadline", text("20s")).set("workers", "count", "2");
        let proxy = Proxy::start(&setup);
        for child in &children {
            proxy.wait_child_state(&child.name, "up");
        }
        Self { children, proxy }
    }

    fn client(&self) -> Visitor {
        Visitor { port: self.proxy.port, connection: None }
    }

    fn assert_identical(&self) {
        let trees: Vec<Tree> = self.children.iter().map(Nginx::tree).collect();
        for (child, tree) in self.children.iter().zip(&trees).skip(1) {
            let differences = tree::differences(&trees[0], tree);
            assert!(
                differences.is_empty(),
                "{} differs from {}:\n{}\n{:#}",
                child.name,
                self.children[0].name,
                differences.join("\n"),
                self.proxy.status()
            );
        }
    }
}

/// A client that keeps its connection, and makes a new one when that has ended.
struct Visitor {
    port: u16,
    connection: Option<Client>,
}

impl Visitor {
    fn ask(&mut self, ask: &Ask<'_>) -> Result<Response, NoAnswer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Client::connect(self.port)?,
        };
        let answer = connection.ask(ask)?;
        let closes = answer.head.fields.list("connection").iter().any(|option| option == "close");
        self.connection = (!closes).then_some(connection);
        Ok(answer)
    }

    /// A change that has to succeed.
    #[track_caller]
    fn change(&mut self, ask: &Ask<'_>) {
        let answer = self.ask(ask).unwrap_or_else(|why| panic!("{} {}: {why}", ask.method, ask.target));
        assert!(matches!(answer.status(), 201 | 204), "{} {}: {answer}", ask.method, ask.target);
    }

    fn put(&mut self, path: &str, body: &str) {
        self.change(&Ask::new("PUT", path).body(body.as_bytes()));
    }

    fn mkcol(&mut self, path: &str) {
        self.change(&Ask::new("MKCOL", path));
    }

    fn delete(&mut self, path: &str) {
        self.change(&Ask::new("DELETE", path));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let destination = format!("http://127.0.0.1:{}{to}", self.port);
        self.change(&Ask::new("MOVE", from).field("Destination", destination));
    }
}

#[test]
fn gets_are_spread() {
    let Some(program) = nginx::program() else { return };
    for_each_driver(|driver| {
        let choir = Choir::start(&program, driver);
        choir.client().put("/page", "hello");
        let mut served: BTreeMap<String, usize> = BTreeMap::new();
        let mut client = choir.client();
        for _ in 0..60 {
            let answer = client.ask(&Ask::get("/page")).expect("an answer");
            assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
            *served.entry(answer.field(CHILD).expect("a child's answer")).or_default() += 1;
        }
        assert_eq!(served.keys().collect::<Vec<_>>(), ["a", "b", "c"], "{served:?}");
        choir.assert_identical();
    });
}

#[test]
fn sixteen_clients_leave_three_identical_trees() {
    let Some(program) = nginx::program() else { return };
    for_each_driver(|driver| {
        let choir = Choir::start(&program, driver);
        choir.client().mkcol("/shared/");
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let mut client = choir.client();
                scope.spawn(move || work(&mut client, number));
            }
        });
        choir.assert_identical();
        let tree = choir.children[0].tree();
        for number in 0..CLIENTS {
            assert_eq!(below(&tree, &format!("own{number}/")), expected(number), "the folder of client {number}");
        }
        // What all have fought for has one value, and somebody wrote it.
        for round in 0..ROUNDS {
            let content = tree[&format!("shared/{round}")].clone().expect("a file");
            let content = String::from_utf8(content).expect("text");
            assert!(content.starts_with(&format!("round {round} of ")), "{content}");
        }
    });
}

/// Makes folders, writes, renames and deletes in a folder of its own, and writes where all others do.
fn work(client: &mut Visitor, number: usize) {
    let own = format!("/own{number}");
    client.mkcol(&format!("{own}/"));
    for round in 0..ROUNDS {
        client.put(&format!("{own}/new"), &format!("{number}.{round}"));
        client.rename(&format!("{own}/new"), &format!("{own}/file{round}"));
        client.put(&format!("/shared/{round}"), &format!("round {round} of {number}"));
        if round % 3 == 0 {
            client.mkcol(&format!("{own}/folder{round}/"));
            client.put(&format!("{own}/folder{round}/deep/file"), "deep");
        }
        if round % 3 == 1 {
            client.delete(&format!("{own}/file{}", round - 1));
            client.delete(&format!("{own}/folder{}/", round - 1));
        }
    }
}

/// What [`work`] leaves.
fn expected(number: usize) -> Tree {
    let mut tree = Tree::new();
    for round in 0..ROUNDS {
        if round % 3 != 0 || round + 1 == ROUNDS {
            tree.insert(format!("file{round}"), Some(format!("{number}.{round}").into_bytes()));
        }
        if round % 3 == 0 && round + 1 == ROUNDS {
            tree.insert(format!("folder{round}"), None);
            tree.insert(format!("folder{round}/deep"), None);
            tree.insert(format!("folder{round}/deep/file"), Some(b"deep".to_vec()));
        }
    }
    tree
}

fn below(tree: &Tree, folder: &str) -> Tree {
    let strip = |(path, content): (&String, &Option<Vec<u8>>)| {
        path.strip_prefix(folder).map(|path| (path.to_owned(), content.clone()))
    };
    tree.iter().filter_map(strip).collect()
}

/// Writers count up in files of their own; readers may never see a number lower than one that was acknowledged before
/// they asked, whoever answers. So the first read that the returned child serves proves that it had everything by then.
#[test]
fn a_child_that_returns_has_everything_before_it_serves_one_read() {
    let Some(program) = nginx::program() else { return };
    for_each_driver(|driver| {
        let mut choir = Choir::start(&program, driver);
        let port = choir.proxy.port;
        let files: Vec<AtomicU64> = (0..6).map(|_| AtomicU64::new(0)).collect();
        for file in 0..files.len() {
            choir.client().put(&format!("/count{file}"), "0");
        }
        let world = World { port, files, ..World::default() };
        thread::scope(|scope| {
            // Whatever goes wrong here must stop the others, or the test would wait for them for ever.
            let _stop = StopAtEnd(&world.stop);
            for file in 0..world.files.len() {
                let world = &world;
                scope.spawn(move || world.write(file));
            }
            for reader in 0..4 {
                let world = &world;
                scope.spawn(move || world.read(reader));
            }
            world.allow_writes(60);
            world.wait_for_writes();
            world.served.wait_for("b", 1);
            // It goes, and comes back, in the middle of writes.
            world.allow_writes(120);
            choir.children[1].stop();
            choir.proxy.wait_child_state("b", "down");
            world.wait_for_writes();
            world.served.wait_for("a", 20);
            world.allow_writes(120);
            choir.children[1].start_again();
            world.served.wait_for("b", 20);
            world.wait_for_writes();
        });
        for child in &choir.children {
            choir.proxy.wait_child_state(&child.name, "up");
        }
        choir.assert_identical();
        let tree = choir.children[1].tree();
        for (file, count) in world.files.iter().enumerate() {
            let last = count.load(Ordering::SeqCst).to_string().into_bytes();
            assert_eq!(tree[&format!("count{file}")], Some(last), "the last acknowledged value of file {file}");
        }
    });
}

/// What writers and readers share.
#[derive(Default)]
struct World {
    port: u16,
    /// For each file the number that was acknowledged last.
    files: Vec<AtomicU64>,
    stop: AtomicBool,
    /// Writes that may still begin. Bounded, so that what a child misses stays within the ring.
    allowed: AtomicUsize,
    /// Writes that are allowed or under way.
    open: AtomicUsize,
    served: Served,
}

/// Reads served, by child: a, b, c.
#[derive(Default)]
struct Served([AtomicUsize; 3]);

impl Served {
    fn count(&self, child: &str) -> &AtomicUsize {
        let index = ["a", "b", "c"].iter().position(|name| *name == child).expect("a child of this group");
        &self.0[index]
    }

    fn of(&self, child: &str) -> usize {
        self.count(child).load(Ordering::SeqCst)
    }

    fn wait_for(&self, child: &str, more: usize) {
        let wanted = self.of(child) + more;
        eventually(&format!("{more} more reads served by {child}"), || (self.of(child) >= wanted).then_some(()));
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn allow_writes(&self, count: usize) {
        self.open.fetch_add(count, Ordering::SeqCst);
        self.allowed.fetch_add(count, Ordering::SeqCst);
    }

    /// Until every write that was allowed has been acknowledged.
    fn wait_for_writes(&self) {
        eventually("the writes", || {
            assert!(!self.is_over(), "a client has failed");
            (self.open.load(Ordering::SeqCst) == 0).then_some(())
        });
    }

    fn write(&self, file: usize) {
        let _stop = StopAtEnd(&self.stop);
        let mut client = Visitor { port: self.port, connection: None };
        let mut number = 0;
        while !self.is_over() {
            let taken = self.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if taken.is_err() {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            number += 1;
            client.put(&format!("/count{file}"), &number.to_string());
            self.files[file].store(number, Ordering::SeqCst);
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn read(&self, reader: usize) {
        let _stop = StopAtEnd(&self.stop);
        let mut client = Visitor { port: self.port, connection: None };
        let mut turn = reader;
        while !self.is_over() {
            let file = turn % self.files.len();
            turn += 1;
            let acknowledged = self.files[file].load(Ordering::SeqCst);
            let answer =
                client.ask(&Ask::get(&format!("/count{file}"))).unwrap_or_else(|why| panic!("a read failed: {why}"));
            assert_eq!(answer.status(), 200, "a read failed: {answer}");
            let child = answer.field(CHILD).expect("a child's answer");
            let number: u64 = answer.text().parse().expect("a number");
            assert!(
                number >= acknowledged,
                "{child} serves {number} of file {file} after {acknowledged} was acknowledged"
            );
            self.served.count(&child).fetch_add(1, Ordering::SeqCst);
            // Load, not a race for the processor.
            thread::sleep(Duration::from_millis(1));
        }
    }
}
