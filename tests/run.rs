//! Running it: what it refuses at start and in which words, what hostile octets do, and what signals do.
//!
//! Refusals are judged by their substance: the figure found, the figure needed, the line to change.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};
use support::aci::AciServer;
use support::client::{self, Ask, Client};
use support::host;
use support::proxy::{ANTIPHON, GROUP, Proxy, Refusal, Setup, Until, antiphon, assert_says, text};
use support::scripted::{Scripted, accept_request, listen};
use support::{Driver, PATIENCE, Ran, TempDir, eventually, for_each_driver, need, ports, run_within, skip};

/// The exit code for what the configuration can cure.
const EXIT_CONFIG: i32 = 78;

fn plain(driver: Driver, child: u16) -> Setup {
    Setup::new(driver, "http", "http").child("a", child)
}

#[track_caller]
fn refusal(setup: &Setup) -> Refusal {
    match Proxy::attempt(setup, Until::Answering) {
        Ok(proxy) => panic!("it started:\n{}", proxy.log()),
        Err(refusal) => refusal,
    }
}

// === the configuration ===

#[test]
fn a_wrong_configuration_is_shown_with_its_lines() {
    let dir = TempDir::new("config");
    let text = "[[listen]]\naddress = \"127.0.0.1:99999\"\ngroup = \"kv\"\n\n[group.kv]\ncolour = \"blue\"\n\n\
                [[group.kv.child]]\nname = \"a\"\naddress = \"127.0.0.1:9100\"\n";
    let path = dir.write("wrong.toml", text);
    let path = path.to_string_lossy();
    for verb in ["run", "check"] {
        let ran = antiphon(&[verb, "-c", &path]);
        assert_eq!(ran.code, Some(EXIT_CONFIG), "{verb}: {}", ran.text());
        // Both mistakes at once, each with its file, line and a caret under the place.
        assert_says(&ran.stderr, &["2 errors", "wrong.toml:2:", "127.0.0.1:99999", "wrong.toml:6:", "colour", "^"]);
    }
}

#[test]
fn a_configuration_that_is_not_there_is_told() {
    for verb in ["run", "check"] {
        let ran = antiphon(&[verb, "-c", "/nonexistent/antiphon.toml"]);
        assert_eq!(ran.code, Some(EXIT_CONFIG), "{}", ran.text());
        assert_says(&ran.stderr, &["/nonexistent/antiphon.toml", "No such file", "-c FILE"]);
    }
}

#[test]
fn a_good_configuration_is_checked_and_classifies() {
    let dir = TempDir::new("config");
    let setup = Setup::new(Driver::Epoll, "aci", "idol").child("a", 9100).child("b", 9101);
    let path = dir.write("good.toml", &setup.toml(9060, 9062, &dir.join("admin.sock").to_string_lossy()));
    let path = path.to_string_lossy();
    let ran = antiphon(&["check", "-c", &path]);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    let ask = |request: &str| antiphon(&["check", "-c", &path, "--classify", request]);
    for (request, class) in [
        ("GET /action=Query&Text=x", "read"),
        ("GET /action=UserAdd&UserName=x", "change"),
        ("GET /a=Wobble", "change"),
    ] {
        let ran = ask(request);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        assert!(ran.stdout.lines().any(|line| line.starts_with("class") && line.ends_with(class)), "{}", ran.stdout);
        for word in ["rule", "reason"] {
            assert!(ran.stdout.lines().any(|line| line.starts_with(word)), "no {word} in:\n{}", ran.stdout);
        }
    }
    assert_says(&ask("GET /action=Query&action=UserAdd").text(), &["400", "action_ambiguous"]);
    for nothing in ["garbage", "GET", ""] {
        let ran = ask(nothing);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.text());
        assert_says(&ran.stderr, &["no request: write METHOD TARGET"]);
    }
}

/// Everything that can be left out is left out.
#[test]
fn a_minimal_configuration_starts() {
    let _host = host::shared();
    let child = Scripted::start(Vec::new());
    let dir = TempDir::new("minimal");
    let port = ports::free();
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:{port}\"\ngroup = \"kv\"\n[group.kv]\n\
         [[group.kv.child]]\nname = \"a\"\naddress = \"127.0.0.1:{}\"\n[admin]\nsocket = \"{}\"\n",
        child.port(),
        dir.join("admin.sock").display()
    );
    let config = dir.write("antiphon.toml", &config);
    let log = fs::File::create(dir.join("log")).expect("a log file");
    let mut process =
        Command::new(ANTIPHON).arg("run").arg("-c").arg(&config).stderr(log).spawn().expect("antiphon starts");
    let said = || fs::read_to_string(dir.join("log")).unwrap_or_default();
    let begun = Instant::now();
    let served = loop {
        let answer = client::get(port, "/page");
        if answer.as_ref().is_ok_and(|answer| answer.status() == 200) || begun.elapsed() > PATIENCE {
            break answer;
        }
        if let Some(status) = process.try_wait().expect("our own child process") {
            panic!("it ended with {status}:\n{}", said());
        }
        thread::sleep(Duration::from_millis(10));
    };
    let _ = process.kill();
    let _ = process.wait();
    assert!(served.is_ok_and(|answer| answer.text() == "ok"), "{}", said());
}

#[test]
fn the_version_tells_whether_io_uring_works() {
    let _host = host::shared();
    let ran = antiphon(&["--version"]);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    assert_says(&ran.stdout, &["antiphon 0.", "io_uring"]);
}

// === what is taken, and what is missing ===

#[test]
fn a_port_in_use_is_named() {
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let (_taken, port) = listen();
        let address = format!("127.0.0.1:{port}");
        for (data, admin) in [(port, ports::free()), (ports::free(), port)] {
            let refusal = Proxy::attempt_on(&plain(driver, child.port()), Until::Answering, data, admin);
            let refusal = refusal.expect_err("it cannot start");
            assert_eq!(refusal.code, Some(EXIT_CONFIG), "{refusal}");
            assert_says(&refusal.said, &[&address, "in use", "`address`"]);
        }
    });
}

/// Two of them over the same children would each have an order of its own, and the kernel would share the port out.
#[test]
fn a_second_antiphon_on_the_same_port_is_refused() {
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let setup = plain(driver, child.port());
        let first = Proxy::start(&setup);
        let second = Proxy::attempt_on(&setup, Until::Answering, first.port, ports::free());
        let refusal = second.expect_err("it cannot start");
        assert_eq!(refusal.code, Some(EXIT_CONFIG), "{refusal}");
        assert_says(&refusal.said, &[&format!("127.0.0.1:{}", first.port), "in use"]);
        assert_eq!(client::get(first.port, "/page").expect("the first goes on").status(), 200);
    });
}

#[test]
fn a_missing_child_does_not_keep_it_from_starting() {
    for_each_driver(|driver| {
        let port = ports::free();
        let proxy = Proxy::start_until(&plain(driver, port), Until::Answering);
        proxy.wait_child_state("a", "down");
        let ready = proxy.admin_get("/readyz").expect("an answer");
        assert_eq!(ready.status(), 503);
        assert!(ready.text().contains(GROUP), "the group is named: {ready}");
        let answer = client::get(proxy.port, "/page").expect("an answer");
        assert_eq!(answer.status(), 503, "{answer}");
        assert!(answer.field("Retry-After").is_some(), "{answer}");
        // It comes at last.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        proxy.wait_child_state("a", "up");
        assert_eq!(proxy.admin_get("/readyz").expect("an answer").status(), 200);
        drop(listener);
    });
}

// === what the host refuses ===

/// Switches io_uring off for the host, and back when it is dropped.
struct UringOff {
    before: String,
}

const URING_SETTING: &str = "/proc/sys/kernel/io_uring_disabled";

impl UringOff {
    fn set() -> Option<Self> {
        let before = fs::read_to_string(URING_SETTING).ok()?;
        fs::write(URING_SETTING, "2").ok()?;
        Some(Self { before })
    }
}

impl Drop for UringOff {
    fn drop(&mut self) {
        fs::write(URING_SETTING, self.before.trim()).expect("io_uring is allowed again");
    }
}

#[test]
fn no_io_uring_by_sysctl() {
    let _host = host::alone();
    let child = Scripted::start(Vec::new());
    let Some(off) = UringOff::set() else {
        return skip("kernel.io_uring_disabled cannot be written here: needs root, and Linux 6.6 or later");
    };
    assert_no_uring(&plain(Driver::Uring, child.port()).alone(), &["kernel.io_uring_disabled = 2", "set it to 0"]);
    let version = antiphon(&["--version"]);
    drop(off);
    assert_says(&version.stdout, &["kernel.io_uring_disabled = 2"]);
}

/// `strace` has the kernel answer as a seccomp profile would, so no filter need be compiled.
#[test]
fn no_io_uring_by_seccomp() {
    let Some(strace) = need("strace") else { return };
    if !support::uring_works() {
        return;
    }
    let child = Scripted::start(Vec::new());
    for errno in ["EPERM", "ENOSYS"] {
        let inject = format!("--inject=io_uring_setup:error={errno}");
        // -D: antiphon stays our own child process, and the tracer stands aside.
        let setup = plain(Driver::Uring, child.port())
            .under(&strace, &["-D", "-f", "-qq", "-e", "trace=io_uring_setup", "-o", "/dev/null", &inject]);
        assert_no_uring(&setup, &["seccomp", "io_uring_setup", "io_uring_enter", "io_uring_register"]);
    }
}

/// Where io_uring is demanded the start is refused with the cause and the cure; else it runs on epoll, and says the
/// same in its log and in `/status`.
#[track_caller]
fn assert_no_uring(setup: &Setup, parts: &[&str]) {
    let refusal = refusal(setup);
    assert_eq!(refusal.code, Some(EXIT_CONFIG), "{refusal}");
    assert_says(&refusal.said, parts);
    assert_says(&refusal.said, &["driver = \"auto\""]);
    let proxy = Proxy::start(&setup.clone().set("workers", "driver", text("auto")));
    let status = proxy.status();
    assert_eq!(status["driver"], "epoll", "{status:#}");
    assert_says(status["driver_fallback"].as_str().unwrap_or_default(), parts);
    assert_says(&proxy.log(), parts);
    assert_eq!(client::get(proxy.port, "/page").expect("it serves").status(), 200);
}

#[test]
fn too_few_descriptors_are_told_with_both_figures() {
    let Some(prlimit) = need("prlimit") else { return };
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let setup = plain(driver, child.port()).under(&prlimit, &["--nofile=100:100"]);
        let refusal = refusal(&setup);
        assert_eq!(refusal.code, Some(EXIT_CONFIG), "{refusal}");
        assert_says(&refusal.said, &["100", "needed", "LimitNOFILE="]);
        let needed = figure_before(&refusal.said, "file descriptors are needed");
        assert!(needed > 100, "more than it has: {refusal}");
        // With what it asks for, it starts, and serves as many as then can come.
        let limit = format!("--nofile={needed}:{needed}");
        let proxy = Proxy::start(&plain(driver, child.port()).under(&prlimit, &[&limit]));
        assert_eq!(client::get(proxy.port, "/page").expect("it serves").status(), 200);
    });
}

fn figure_before(said: &str, words: &str) -> u64 {
    let at = said.find(words).unwrap_or_else(|| panic!("no `{words}` in: {said}"));
    let figure = said[..at].trim_end().rsplit(|letter: char| !letter.is_ascii_digit()).next();
    figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("no figure before `{words}` in: {said}"))
}

/// Without CAP_IPC_LOCK an instance is charged to the user's locked memory.
#[test]
fn too_little_locked_memory_is_told_with_both_figures() {
    let _host = host::shared();
    let (Some(setpriv), Some(prlimit)) = (need("setpriv"), need("prlimit")) else { return };
    if !geteuid().is_root() {
        return skip("only root can start it as another user");
    }
    if !support::uring_works() {
        return;
    }
    let child = Scripted::start(Vec::new());
    // The build's folder may be closed to others.
    let dir = TempDir::new("program");
    let program = dir.join("antiphon");
    fs::copy(ANTIPHON, &program).expect("a copy of the program");
    let config = plain(Driver::Uring, child.port());
    let prlimit = prlimit.to_string_lossy().into_owned();
    let as_nobody = |setup: &Setup, locked: &str| {
        let words = ["--reuid=65534", "--regid=65534", "--clear-groups", &prlimit, locked];
        attempt_as_nobody(setup, &setpriv, &words, &program)
    };
    let ran = as_nobody(&config, "--memlock=4096:4096");
    assert_eq!(ran.code, Some(EXIT_CONFIG), "{}", ran.text());
    assert_says(&ran.stderr, &["locked memory", "4 KiB", "each worker takes", "LimitMEMLOCK=", "driver = \"auto\""]);
    assert!(figure_before(&ran.stderr, "KiB: allow") > 4, "{}", ran.text());
}

/// Runs it to its end under `words`.
fn attempt_as_nobody(setup: &Setup, first: &Path, words: &[&str], program: &Path) -> Ran {
    let dir = TempDir::new("nobody");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our own folder");
    let socket = dir.join("admin.sock");
    let config = dir.write("antiphon.toml", &setup.toml(ports::free(), ports::free(), &socket.to_string_lossy()));
    run_within(Command::new(first).args(words).arg(program).arg("run").arg("-c").arg(config), PATIENCE)
}

// === hostile octets ===

#[test]
fn hostile_octets_do_no_harm() {
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let mut proxy = Proxy::start(&plain(driver, child.port()));
        let seed = std::env::var("ANTIPHON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_u64);
        println!("ANTIPHON_SEED={seed}");
        let mut random = Random(seed);
        for round in 0..300 {
            let octets = hostile(&mut random);
            let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)) else {
                panic!("round {round}: nobody listens any more:\n{}", proxy.log());
            };
            let _ = stream.write_all(&octets);
            if random.below(2) == 0 {
                // Gone with a reset, whatever is under way.
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        }
        assert!(proxy.exit_status().is_none(), "{}", proxy.log());
        assert_eq!(client::get(proxy.port, "/page").expect("it serves").status(), 200);
        // And on the administration side.
        for _ in 0..50 {
            if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.admin)) {
                let _ = stream.write_all(&hostile(&mut random));
            }
        }
        assert_eq!(proxy.admin_get("/healthz").expect("it answers").status(), 200);
        proxy.wait_child_state("a", "up");
    });
}

/// Octets without sense, or a request with some of its octets changed, cut or doubled.
fn hostile(random: &mut Random) -> Vec<u8> {
    if random.below(3) == 0 {
        return (0..random.below(4000)).map(|_| random.octet()).collect();
    }
    let requests: [&[u8]; 4] = [
        b"GET /page HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n\r\n",
        b"POST /page HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
        b"PUT /page HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /page HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00",
    ];
    let mut octets = requests[random.below(requests.len())].repeat(1 + random.below(3));
    for _ in 0..=random.below(4) {
        let at = random.below(octets.len());
        match random.below(4) {
            0 => octets[at] = random.octet(),
            1 => octets.truncate(at.max(1)),
            2 => octets.insert(at, random.octet()),
            _ => {
                let tail = octets[at..].to_vec();
                octets.extend(tail);
            }
        }
    }
    octets
}

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 32) % bound as u64).expect("below a usize")
    }

    fn octet(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }
}

// === signals ===

#[test]
fn term_lets_a_read_under_way_end() {
    for_each_driver(|driver| {
        let (listener, port) = listen();
        let mut proxy = Proxy::start(&plain(driver, port).set("timeouts", "drain", text("25s")));
        let mut idle = Client::connect(proxy.port).expect("a connection");
        thread::scope(|scope| {
            let answer = scope.spawn({
                let port = proxy.port;
                move || client::get(port, "/slow")
            });
            let mut child = accept_request(&listener);
            proxy.signal(Signal::TERM);
            // Those who come now are not let in; those who wait for nothing are sent away.
            eventually("new clients are refused", || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).err());
            assert!(idle.is_closed_within(PATIENCE), "an idle connection stays open");
            assert!(!answer.is_finished());
            child.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").expect("the proxy still reads");
            let answer = answer.join().expect("a client").unwrap_or_else(|why| panic!("{why}\n{}", proxy.log()));
            assert_eq!((answer.status(), answer.text().as_str()), (200, "late"));
        });
        assert_eq!(proxy.wait_exit().code(), Some(0), "{}", proxy.log());
        assert!(!proxy.dir.join("admin.sock").exists(), "the socket's file is left behind");
    });
}

#[test]
fn term_lets_a_change_under_way_end() {
    for_each_driver(|driver| {
        let children = AciServer::several::<2>();
        let setup = Setup::new(driver, "aci", "idol").child("a", children[0].port()).child("b", children[1].port());
        let setup = setup.set("timeouts", "drain", text("25s")).group("write_deadline", text("25s"));
        let mut proxy = Proxy::start(&setup);
        proxy.wait_child_state("b", "up");
        children[1].close_gate();
        thread::scope(|scope| {
            let answer = scope.spawn({
                let port = proxy.port;
                move || client::get(port, "/action=UserAdd&UserName=x")
            });
            eventually("it is on its way", || (children[1].waiting() == 1).then_some(()));
            proxy.signal(Signal::TERM);
            eventually("new clients are refused", || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).err());
            children[1].open_gate();
            let answer = answer.join().expect("a client").unwrap_or_else(|why| panic!("{why}\n{}", proxy.log()));
            assert_eq!(answer.status(), 200, "{answer}");
        });
        assert_eq!(proxy.wait_exit().code(), Some(0), "{}", proxy.log());
        assert!(children.iter().all(|child| child.changes().len() == 1));
    });
}

#[test]
fn a_second_term_or_an_int_stops_at_once() {
    for_each_driver(|driver| {
        for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::TERM, Signal::INT], &[Signal::INT]] {
            let (listener, port) = listen();
            // Longer than anybody waits here.
            let mut proxy = Proxy::start(&plain(driver, port).set("timeouts", "drain", text("1h")));
            let mut client = Client::connect(proxy.port).expect("a connection");
            client.send(b"GET /never HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("sent");
            let _child = accept_request(&listener);
            for (index, signal) in signals.iter().enumerate() {
                proxy.signal(*signal);
                if index + 1 < signals.len() {
                    // It has heard the first before the second comes.
                    eventually("it drains", || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).err());
                    assert!(proxy.exit_status().is_none(), "{}", proxy.log());
                }
            }
            let status = proxy.wait_exit();
            assert!(status.signal().is_none(), "it ends by itself: {status}");
            assert!(client.answer(false).is_err(), "nothing was answered");
        }
    });
}

#[test]
fn after_kill_9_it_starts_again_on_the_same_ports() {
    let child = Scripted::start(Vec::new());
    for_each_driver(|driver| {
        let mut proxy = Proxy::start(&plain(driver, child.port()));
        for _ in 0..3 {
            let mut held: Vec<Client> = (0..8).map(|_| Client::connect(proxy.port).expect("a connection")).collect();
            for client in &mut held {
                assert_eq!(client.ask(&Ask::get("/page")).expect("an answer").status(), 200);
            }
            proxy.kill();
            proxy.start_again(Until::Ready);
            assert_eq!(client::get(proxy.port, "/page").expect("an answer").status(), 200);
            assert_eq!(proxy.socket_get("/healthz").expect("the socket was replaced").status(), 200);
        }
    });
}
