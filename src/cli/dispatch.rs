//! What each word comes to: the calls into control and demo, and which exit code their answer is.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{ChildVerb, EXIT_CONFIG, LogArgs, QueueVerb, SocketArgs, check, complain, say};
use crate::config::{ADMIN_SOCKET_DEFAULT, Log, LogLevel};
use crate::control::{self, ChildVerb as Order, Command, ConfigSource};
use crate::demo::{self, DemoOptions};
use crate::io;

/// The version, and whether io_uring can be used here.
pub(super) fn version() -> String {
    format!("antiphon {}\n{}\n", env!("CARGO_PKG_VERSION"), io::describe())
}

/// `antiphon run`.
pub(super) fn run(path: &Path, log: LogArgs, start_log: fn(Log)) -> ExitCode {
    let config = match check::read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    start_log(log.over(config.log));
    match control::run(config, ConfigSource { path: path.to_owned() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            if error.is_configuration() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}

/// `antiphon demo`.
pub(super) fn demo(options: DemoOptions, log: LogArgs, start_log: fn(Log)) -> ExitCode {
    // The view is the demo's voice; lines would run through it.
    start_log(log.over(Log { level: LogLevel::Error, ..Log::default() }));
    demo::run(options)
}

/// `antiphon status`.
pub(super) fn status(socket: &SocketArgs) -> ExitCode {
    call(socket, &Command::Status)
}

/// `antiphon child …`.
pub(super) fn child(socket: &SocketArgs, verb: ChildVerb) -> ExitCode {
    let command = match verb {
        ChildVerb::Ls => Command::ChildList,
        ChildVerb::Offline(arg) => Command::Child(arg.child, Order::Offline),
        ChildVerb::Online(arg) => Command::Child(arg.child, Order::Online),
        ChildVerb::Drain(arg) => Command::Child(arg.child, Order::Drain),
        ChildVerb::Primary(arg) => Command::Child(arg.child, Order::Primary),
        ChildVerb::Attach(arg) => Command::Child(arg.child, Order::Attach),
        ChildVerb::Weight { child, weight } => Command::Child(child.child, Order::Weight(weight)),
        ChildVerb::Probe(arg) => Command::Child(arg.child, Order::Probe),
        ChildVerb::Resolve { child, how } => Command::Child(child.child, Order::Resolve(how)),
        ChildVerb::Flush(arg) => Command::Child(arg.child, Order::Flush),
        ChildVerb::Add(args) => Command::Child(args.child.child, Order::Add(args.address.into())),
        ChildVerb::Edit(args) => Command::Child(args.child.child, Order::Edit(args.address.into())),
        ChildVerb::Remove(arg) => Command::Child(arg.child, Order::Remove),
    };
    call(socket, &command)
}

/// `antiphon queue ls`.
pub(super) fn queue(socket: &SocketArgs, QueueVerb::Ls: QueueVerb) -> ExitCode {
    call(socket, &Command::QueueList)
}

/// Sends a command and prints what it brings.
pub(super) fn call(args: &SocketArgs, command: &Command) -> ExitCode {
    let socket = match socket(args) {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    match control::client::call(&socket, command) {
        Ok(reply) => {
            say(&reply.to_string());
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// The socket that is named, or that of the configuration that is named, or the default.
fn socket(args: &SocketArgs) -> Result<PathBuf, ExitCode> {
    match (&args.socket, &args.config) {
        (Some(socket), _) => Ok(socket.clone()),
        (None, Some(config)) => Ok(check::read(config)?.admin.socket),
        (None, None) => Ok(PathBuf::from(ADMIN_SOCKET_DEFAULT)),
    }
}
