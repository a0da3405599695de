//! The command line: its words, and what each comes to.
//!
//! Only words and exit codes are here. What a word does is one call in `cli/dispatch.rs`; what it checks without
//! starting anything is in `cli/check.rs`.
//!
//! Exit codes: 0 done; 1 failed; 2 the command line is wrong; 78 the configuration is wrong, or a start was refused for
//! a reason that the configuration or the operator can cure (`EX_CONFIG` of sysexits.h, so that a service manager does
//! not try again).

mod check;
mod dispatch;
mod explain;
mod journal;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{DriverChoice, Log, LogFormat, LogLevel};
use crate::control::ChildName;
use crate::demo::DemoOptions;
use crate::limits::WEIGHT_MAX;
use crate::mirror::Resolve;

/// Where the configuration is, unless `-c` says otherwise.
pub const CONFIG_DEFAULT: &str = "/etc/antiphon/antiphon.toml";

/// The exit code of a wrong configuration.
pub const EXIT_CONFIG: u8 = 78;
/// The exit code of a wrong command line.
const EXIT_USAGE: u8 = 2;

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed
  2   the command line is wrong
  78  the configuration is wrong, or the start was refused for what only it, or you, can cure

Try `antiphon demo`: three mirrored servers behind one front, no configuration needed.";

const SIGNALS: &str = "\
Signals:
  TERM  stop accepting, finish what is under way (at most [timeouts] drain), exit
  TERM again, INT  stop at once

Changes are kept in memory only: a restart loses what a child that is away has missed.";

const CLASSIFY: &str = "\
Examples:
  antiphon check -c antiphon.toml
  antiphon check -c antiphon.toml --classify 'GET /action=Query&Text=x'
  antiphon check -c antiphon.toml --classify 'POST /items/7' --classify '/items/7'
  antiphon check -c antiphon.toml --classify 'POST / action=UserAdd&UserName=x'";

/// The front door of a set of identical HTTP servers: each read to one, each change to all, in one order.
#[derive(Debug, Parser)]
#[command(name = "antiphon", disable_version_flag = true, arg_required_else_help = true, after_help = EXIT_CODES)]
struct CommandLine {
    /// Print the version, and whether io_uring can be used here and if not, why
    #[arg(short = 'V', long)]
    version: bool,

    #[command(flatten)]
    log: LogArgs,

    #[command(subcommand)]
    verb: Option<Verb>,
}

/// How diagnostic lines are written to stderr; these win over `[log]`.
#[derive(Debug, Clone, Copy, Args)]
struct LogArgs {
    /// error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<LogLevel>,

    /// text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the front until it is told to stop
    #[command(after_help = SIGNALS)]
    Run(ConfigArgs),

    /// Judge a configuration without starting anything
    ///
    /// Prints what it amounts to, and what was decided otherwise while antiphon ran, and exits 0; or every error in it with
    /// its line, and exits 78. It only reads: antiphon may run meanwhile.
    #[command(after_help = CLASSIFY)]
    Check(CheckArgs),

    /// Print the whole configuration as it holds: every key with its value, and what was decided while antiphon ran
    ///
    /// The output is a configuration again. What no key can say, such as a child that is offline, stands in comments.
    DumpConfig(ConfigArgs),

    /// Show three mirrored servers, a front and what it does, in this one process
    ///
    /// Needs no configuration and leaves nothing behind. Prints the `curl` lines to try.
    Demo(DemoArgs),

    /// Show what a running antiphon does: groups, children, who is behind
    Status(SocketArgs),

    /// List the children of a running antiphon, or decide about one
    Child(ChildArgs),

    /// Show what each child has missed
    Queue(QueueArgs),

    /// Show what an action would cost on each child now, which one it would get, and what was learnt
    Explain(explain::ExplainArgs),
    /// Look into a journal, check it, or cut it where it is damaged
    Journal(journal::JournalArgs),
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    config: PathBuf,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// Print the class of this request, the rule that decides it and the reason; may be repeated
    ///
    /// A request is written as METHOD TARGET BODY; without a method it is a GET, and the body may be left out.
    #[arg(long, value_name = "REQUEST")]
    classify: Vec<String>,

    /// Only by the rules of this group; all groups, if left out
    #[arg(long, value_name = "NAME", requires = "classify")]
    group: Option<String>,
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Drive it for so long, stop one child and bring it back, compare all three; exits 1 unless they are identical
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    run_for: Option<Duration>,

    /// What moves octets: auto, uring or epoll
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    driver: DriverChoice,
}

#[derive(Debug, Args)]
struct SocketArgs {
    /// The administration socket; that of the configuration, if left out
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// The configuration that names the socket; /run/antiphon/admin.sock, if left out too
    #[arg(short, long, global = true, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ChildArgs {
    #[command(flatten)]
    socket: SocketArgs,

    #[command(subcommand)]
    verb: ChildVerb,
}

#[derive(Debug, Subcommand)]
enum ChildVerb {
    /// List the children with their states
    Ls,
    /// Take a child out: no reads, no probes; changes wait for it
    Offline(ChildArg),
    /// Take it back: it gets what it missed, then reads
    Online(ChildArg),
    /// Let it run dry: no new reads; changes wait for it
    Drain(ChildArg),
    /// Make it the primary of its group
    Primary(ChildArg),
    /// Say that a child is identical to the others again, after it was `needs_reseed` or `diverged`
    ///
    /// Copy the data of a good child first: antiphon takes your word for it, and sends it what comes from now on.
    Attach(ChildArg),
    /// Change its share of reads; 0 is the last resort
    Weight {
        #[command(flatten)]
        child: ChildArg,
        /// 0 to 10000
        #[arg(value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(..=i64::from(WEIGHT_MAX)))]
        weight: u32,
    },
    /// Ask it now how it is
    Probe(ChildArg),
    /// Drop what it has missed: it is `needs_reseed` then, and comes back by `attach` only
    Flush(ChildArg),
    /// Say what became of the change that it is in doubt about
    ///
    /// `applied`: it has carried it out. `lost`: it has not, and is sent it. `resend`: nobody knows, and twice does no harm.
    Resolve {
        #[command(flatten)]
        child: ChildArg,
        /// applied, lost or resend
        #[arg(value_name = "HOW", value_parser = resolve)]
        how: Resolve,
    },
    /// Add a child to a group
    ///
    /// It is `needs_reseed`: copy the data of a good child to it, then `antiphon child attach`. While no change has come
    /// since the start, it is taken as identical, as the children of the configuration are.
    Add(PlaceArgs),
    /// Tell the new address of a child; it is taken for the same server
    Edit(PlaceArgs),
    /// Take a child out of its group for good: what it has missed is forgotten
    Remove(ChildArg),
}

#[derive(Debug, Args)]
struct PlaceArgs {
    #[command(flatten)]
    child: ChildArg,
    /// Where it is
    #[arg(value_name = "HOST:PORT")]
    address: String,
}

#[derive(Debug, Args)]
struct QueueArgs {
    #[command(flatten)]
    socket: SocketArgs,

    #[command(subcommand)]
    verb: QueueVerb,
}

#[derive(Debug, Subcommand)]
enum QueueVerb {
    /// List the children with what waits for them
    Ls,
}

#[derive(Debug, Args)]
struct ChildArg {
    /// The child, with its group where the name alone has two meanings
    #[arg(value_name = "[GROUP/]NAME")]
    child: ChildName,
}

/// Runs what the command line says. `arguments` begin with the program's name; `start_log` is called at most once,
/// before the first diagnostic line.
pub fn main(arguments: impl IntoIterator<Item = OsString>, start_log: fn(Log)) -> ExitCode {
    let line = match CommandLine::try_parse_from(arguments) {
        Ok(line) => line,
        Err(error) => {
            // Help is no error, and a terminal that went away is nobody's.
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            _ = error.print();
            return ExitCode::from(code);
        }
    };
    if line.version {
        say(&dispatch::version());
        return ExitCode::SUCCESS;
    }
    match line.verb {
        Some(Verb::Run(args)) => dispatch::run(&args.config, line.log, start_log),
        Some(Verb::Check(args)) => check::run(&args.config.config, &args.classify, args.group.as_deref()),
        Some(Verb::DumpConfig(args)) => check::dump(&args.config),
        Some(Verb::Demo(args)) => {
            dispatch::demo(DemoOptions { run_for: args.run_for, driver: args.driver }, line.log, start_log)
        }
        Some(Verb::Status(args)) => dispatch::status(&args),
        Some(Verb::Child(args)) => dispatch::child(&args.socket, args.verb),
        Some(Verb::Queue(args)) => dispatch::queue(&args.socket, args.verb),
        Some(Verb::Explain(args)) => explain::run(args),
        Some(Verb::Journal(args)) => journal::run(&args),
        None => {
            complain("there is no command; try `antiphon --help`");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

impl LogArgs {
    /// These over what the configuration says.
    fn over(self, log: Log) -> Log {
        Log { level: self.log_level.unwrap_or(log.level), format: self.log_format.unwrap_or(log.format) }
    }
}

/// Writes to stdout. A reader that went away (`| head`) is no error.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes what went wrong to stderr.
fn complain(what: impl std::fmt::Display) {
    _ = writeln!(std::io::stderr(), "antiphon: {what}");
}

/// Seconds on the command line, at least one; a demo of a day is a slip.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("write whole seconds, 1 to 86400".to_owned()),
    }
}

/// How a doubt is resolved.
fn resolve(word: &str) -> Result<Resolve, &'static str> {
    Resolve::named(word).ok_or("write applied, lost or resend")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<CommandLine, clap::error::ErrorKind> {
        CommandLine::try_parse_from(line.split(' ')).map_err(|error| error.kind())
    }

    #[test]
    fn the_words_hold_together() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn words_are_taken() {
        for line in [
            "antiphon -V",
            "antiphon --version",
            "antiphon run -c a.toml --log-level debug",
            "antiphon --log-format json run",
            "antiphon check --config a.toml --classify /a --classify /b --group kv",
            "antiphon demo --for 5",
            "antiphon status --socket /tmp/s",
            "antiphon child ls",
            "antiphon child --socket /tmp/s offline kv/a",
            "antiphon child offline a --socket /tmp/s",
            "antiphon child attach a -c a.toml",
            "antiphon child weight g/a 0",
            "antiphon child probe a",
            "antiphon child flush a",
            "antiphon child drain a",
            "antiphon child add g/c 10.0.0.3:9100 --socket /tmp/s",
            "antiphon child edit c 10.0.0.3:9101",
            "antiphon child remove g/c",
            "antiphon dump-config -c a.toml",
            "antiphon queue ls --socket /tmp/s",
            "antiphon explain -c a.toml /action=Query",
            "antiphon explain --group kv /items/7",
            "antiphon journal verify /var/lib/antiphon/kv",
            "antiphon journal dump /var/lib/antiphon/kv --from 7 --bodies",
            "antiphon journal repair /var/lib/antiphon/kv --yes",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn and_others_are_not() {
        for line in [
            "antiphon",
            "antiphon start",
            "antiphon run --log-level loud",
            "antiphon demo --for 0",
            "antiphon check --group kv",
            "antiphon child",
            "antiphon child offline",
            "antiphon child weight a",
            "antiphon child weight a 10001",
            "antiphon child add c",
            "antiphon child add a/b/c 10.0.0.3:9100",
            "antiphon child remove",
            "antiphon queue",
            "antiphon explain",
            "antiphon journal",
            "antiphon journal verify",
            "antiphon status --socket /a -c b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
