//! The program: the allocator, where diagnostic lines go, and the command line.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use antiphon::cli;
use antiphon::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main(std::env::args_os(), start_log)
}

/// Diagnostic lines go to stderr: stdout is for what was asked for. Of the libraries only warnings.
fn start_log(log: Log) {
    let filter = EnvFilter::new(format!("warn,antiphon={}", log.level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal() && !no_color()).with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// The wish of <https://no-color.org>.
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}
