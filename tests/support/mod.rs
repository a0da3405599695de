//! What the suites that run the real binary share: the proxy as a process, the servers that stand behind it, a client
//! that believes nothing.
//!
//! Everything listens on 127.0.0.1, on ports of its own; what a value has started ends when the value is dropped.
//! Blocking sockets and threads throughout: what is tested is another process, so nothing here needs to be clever.
//! No check depends on a rate or a duration. A wait is a give-up limit ([`PATIENCE`]) after which the test fails with
//! what it saw.
//!
//! Environment: `ANTIPHON_TEST_DRIVER=uring|epoll` runs one driver only; `ANTIPHON_TEST_ALL=1` makes whatever would be
//! skipped fail; `ANTIPHON_TEST_CASE=O-CH` plays only the cases whose name holds that; `ANTIPHON_TEST_LOG=debug` has the
//! proxy say more, of which a failed test shows the end; `ANTIPHON_SEED` seeds what is random.
#![allow(dead_code, reason = "each suite uses its own part")]
#![allow(unreachable_pub, reason = "a module of test crates, not of a library")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; these wait for another process"
)]
#![allow(missing_docs, reason = "names and the headers of the files say it")]

pub mod aci;
pub mod apache;
pub mod client;
pub mod host;
pub mod influxdb;
pub mod message;
pub mod nginx;
pub mod ports;
pub mod proxy;
pub mod scripted;
pub mod tree;

use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before the test gives it up. Generous: a loaded machine with two cores and a debug
/// build must never meet it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What moves octets in the proxy: `[workers] driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Uring,
    Epoll,
}

impl Driver {
    /// As the configuration spells it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// Runs `story` on every driver that works here, or on the one that `ANTIPHON_TEST_DRIVER` names.
pub fn for_each_driver(story: impl Fn(Driver)) {
    let wanted = std::env::var("ANTIPHON_TEST_DRIVER").ok();
    for driver in [Driver::Uring, Driver::Epoll] {
        if wanted.as_deref().is_some_and(|key| key != driver.key()) {
            continue;
        }
        if driver == Driver::Uring && !uring_works() {
            continue;
        }
        story(driver);
    }
}

/// Whether io_uring can be had here; says so once if not.
pub fn uring_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        let refusal = proxy::uring_refusal();
        if let Some(said) = &refusal {
            skip(&format!("io_uring is refused here: {said}"));
        }
        refusal.is_none()
    })
}

/// A program that a test needs beside the proxy; `None`, and a line that says what to install, where it is missing.
///
/// # Panics
/// When it is missing and `ANTIPHON_TEST_ALL=1`.
pub fn need(program: &str) -> Option<PathBuf> {
    let package = match program {
        "setpriv" | "prlimit" => "util-linux",
        "influxd" => "influxdb",
        other => other,
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps daemons in sbin, which is not on every user's path.
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file());
    if found.is_none() {
        skip(&format!("apt-get install {package}"));
    }
    found
}

/// Says that something is not tested, past the test runner's capture.
///
/// # Panics
/// When `ANTIPHON_TEST_ALL=1`: then nothing may be left out.
pub fn skip(why: &str) {
    let test = thread::current().name().unwrap_or("?").to_owned();
    let line = format!("SKIP: {why} ({test})\n");
    assert!(std::env::var_os("ANTIPHON_TEST_ALL").is_none_or(|value| value != "1"), "{line}");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Asks again until there is an answer.
///
/// # Panics
/// When there is none within [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "gave up waiting: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Asks again until it is as wanted; fails with what it was at last.
#[track_caller]
pub fn eventually_eq<T: PartialEq + Debug>(what: &str, wanted: &T, mut ask: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let found = ask();
        if found == *wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "gave up waiting: {what}\n wanted {wanted:?}\n  found {found:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// A new folder, readable by every user: some tests run the proxy as another one.
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("antiphon-{label}-{}-{count}", std::process::id()));
        // A folder of a test that was killed, whose process number has come round again.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).expect("a file for the test");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What a program that ran to its end left behind.
#[derive(Debug)]
pub struct Ran {
    /// `None`: ended by a signal, or by us after [`PATIENCE`].
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Both outputs, for messages and searches.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs a program to its end, at most `limit`, then kills it.
pub fn run_within(command: &mut Command, limit: Duration) -> Ran {
    let output = TempDir::new("output");
    let (stdout, stderr) = (output.join("stdout"), output.join("stderr"));
    let file = |path: &Path| fs::File::create(path).expect("a file for the output");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file(&stdout))
        .stderr(file(&stderr))
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own child process") {
            break Some(status);
        }
        if begun.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    Ran { code: status.and_then(|status| status.code()), stdout: text(&stdout), stderr: text(&stderr) }
}
