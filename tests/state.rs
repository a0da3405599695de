//! The state directory and what is kept in it, with the real binary: who may have it, what a kill and a stop leave, and
//! children that come, move and go while antiphon runs.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::proxy::{Proxy, Refusal, Setup, Until, assert_says, text};
use support::scripted::Scripted;
use support::{Driver, TempDir};

/// The exit code for what the configuration can cure.
const EXIT_CONFIG: i32 = 78;

fn on(setup: Setup, directory: &Path) -> Setup {
    setup.set("state", "directory", text(&directory.to_string_lossy()))
}

fn plain(child: u16) -> Setup {
    Setup::new(Driver::Epoll, "http", "http").child("a", child)
}

#[track_caller]
fn refusal(setup: &Setup) -> Refusal {
    match Proxy::attempt(setup, Until::Answering) {
        Ok(proxy) => panic!("it started:\n{}", proxy.log()),
        Err(refusal) => refusal,
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

// === the directory ===

#[test]
fn one_antiphon_at_a_time_has_the_directory() {
    let child = Scripted::start(Vec::new());
    let dir = TempDir::new("state");
    let directory = dir.join("antiphon");
    let setup = on(plain(child.port()), &directory);
    let mut first = Proxy::start(&setup);
    assert_eq!((mode(&directory), mode(&directory.join("lock"))), (0o700, 0o600));
    let second = refusal(&setup);
    assert_eq!(second.code, Some(EXIT_CONFIG), "{second}");
    let process = format!("(process {})", first.pid());
    assert_says(&second.said, &["another antiphon", &process, &directory.to_string_lossy(), "stop that one"]);
    // What is killed holds nothing.
    first.kill();
    let _third = Proxy::start(&setup);
}

#[test]
fn a_directory_that_cannot_be_used_is_told() {
    let child = Scripted::start(Vec::new());
    let dir = TempDir::new("state");
    let file = dir.write("file", "");
    for (directory, parts) in [
        (dir.join("no").join("where"), ["No such file", "its parent directory does not exist"]),
        (file.clone(), ["not a directory", "change [state] directory"]),
        (file.join("below"), ["Not a directory", "change [state] directory"]),
    ] {
        let refused = refusal(&on(plain(child.port()), &directory));
        assert_eq!(refused.code, Some(EXIT_CONFIG), "{refused}");
        assert_says(&refused.said, &parts);
    }
}
