//! `antiphon check` and `antiphon dump-config`: a configuration judged, requests classified by it, and what was decided
//! beside it, with nothing started.
//!
//! Also where every other verb gets its configuration from ([`read`]).

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use super::{EXIT_CONFIG, complain, say};
use crate::action::{HOW_WRITTEN, Written, explain};
use crate::config::{Config, Decisions};
use crate::control::state;
use crate::limits::CONFIG_BYTES_MAX;

/// Reads and judges a configuration; what is wrong with it is told to stderr.
pub(super) fn read(path: &Path) -> Result<Config, ExitCode> {
    let refused = ExitCode::from(EXIT_CONFIG);
    let mut octets = Vec::new();
    let file = File::open(path).and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut octets));
    if let Err(error) = file {
        complain(format_args!("cannot read {}: {error}", path.display()));
        complain("help: name the configuration with -c FILE; `antiphon demo` needs none");
        return Err(refused);
    }
    if octets.len() as u64 > CONFIG_BYTES_MAX {
        complain(format_args!("{} has more than {CONFIG_BYTES_MAX} octets: no configuration of ours", path.display()));
        return Err(refused);
    }
    let text = String::from_utf8(octets).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|octet| *octet == b'\n').count();
        complain(format_args!("{}:{line}: error: not UTF-8", path.display()));
        complain("help: save the file as UTF-8");
        refused
    })?;
    Config::parse(&text, &path.to_string_lossy()).map_err(|errors| {
        let count = errors.errors().len();
        let plural = if count == 1 { "error" } else { "errors" };
        complain(format_args!("{count} {plural} in {}\n\n{errors}", path.display()));
        refused
    })
}

/// Prints what the configuration amounts to, or how it classifies `requests`.
pub(super) fn run(path: &Path, requests: &[String], group: Option<&str>) -> ExitCode {
    let config = match read(path) {
        Ok(config) => config,
        Err(code) => return code,
    };
    if requests.is_empty() {
        let decisions = match decisions(&config).and_then(|decisions| no_abandoned(&config).map(|()| decisions)) {
            Ok(decisions) => decisions,
            Err(code) => return code,
        };
        say(&config.summary());
        for line in decisions.against(&config) {
            say(&format!("decided  {line}\n"));
        }
        say(&format!("{} is good\n", path.display()));
        return ExitCode::SUCCESS;
    }
    if let Some(request) = requests.iter().find(|request| !Written::is_written(request)) {
        complain(format_args!("{request:?} is no request: {HOW_WRITTEN}"));
        return ExitCode::FAILURE;
    }
    let groups = || config.groups.iter().filter(|it| group.is_none_or(|name| *it.name == *name));
    if groups().next().is_none() {
        let names: Vec<&str> = config.groups.iter().map(|group| &*group.name).collect();
        complain(format_args!("no group is called {:?}; there are: {}", group.unwrap_or_default(), names.join(", ")));
        return ExitCode::FAILURE;
    }
    let mut out = String::new();
    for request in requests {
        for group in groups() {
            let verdict = explain(&group.rules, request).unwrap_or_else(|fault| {
                let (status, code, text) = (fault.status(), fault.code(), fault.text());
                format!("class   none: refused with {status} {code}\nreason  {text}\n")
            });
            write!(out, "{request}\ngroup   {}\n{verdict}\n", group.name).expect("a String takes everything");
        }
    }
    say(&out);
    ExitCode::SUCCESS
}

/// Prints the configuration with all that was decided, as a configuration.
pub(super) fn dump(path: &Path) -> ExitCode {
    let (mut config, mut decisions) = match read(path).and_then(|config| Ok((decisions(&config)?, config))) {
        Ok((decisions, config)) => (config, decisions),
        Err(code) => return code,
    };
    for line in decisions.apply(&mut config) {
        complain(line);
    }
    say(&config.dump());
    ExitCode::SUCCESS
}

/// What was decided while antiphon ran; nothing, where nothing is kept. What is wrong with it is told to stderr.
fn decisions(config: &Config) -> Result<Decisions, ExitCode> {
    let Some(state) = &config.state else { return Ok(Decisions::default()) };
    state::read_decisions(&state.directory).map_err(|error| {
        complain(error);
        ExitCode::from(EXIT_CONFIG)
    })
}

/// Is every journal in the state directory a configured group's? A start refuses otherwise.
fn no_abandoned(config: &Config) -> Result<(), ExitCode> {
    let Some(state) = &config.state else { return Ok(()) };
    state::refuse_abandoned(&state.directory, &config.groups).map_err(|error| {
        complain(error);
        ExitCode::from(EXIT_CONFIG)
    })
}
