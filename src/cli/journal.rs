//! `antiphon journal`: a group's record as files, without a running antiphon.
//!
//! Prints; what is looked at and changed is in [`segment::inspect`](crate::journal::segment::inspect) and
//! [`segment::repair`](crate::journal::segment::repair).

use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{complain, say};
use crate::journal::record::Record;
use crate::journal::segment::OpenError;
use crate::journal::segment::inspect::{Inspection, directory, inspect};
use crate::journal::segment::repair::{self, Repair};
use crate::mirror::ack::Class;
use crate::mirror::durable::{Mark, Stored, Verdict};
use crate::route::Standing;

#[derive(Debug, Args)]
pub(super) struct JournalArgs {
    #[command(subcommand)]
    verb: JournalVerb,
}

#[derive(Debug, Subcommand)]
enum JournalVerb {
    /// Read all of it and name what is damaged; exits 1 if anything is
    Verify(JournalArg),
    /// Print its records, one a line
    Dump {
        #[command(flatten)]
        journal: JournalArg,
        /// Only from this change on
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        from: u64,
        /// Heads and bodies too, not only their lengths
        #[arg(long)]
        bodies: bool,
    },
    /// Cut it at the first damage, or say what that would do
    ///
    /// What is cut is kept in files beside it. The epoch rises; children that may have come further than what is kept
    /// need a reseed. Stop antiphon first.
    Repair {
        #[command(flatten)]
        journal: JournalArg,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct JournalArg {
    /// The group's directory in the state directory: `/var/lib/antiphon/search`
    #[arg(value_name = "DIRECTORY/GROUP")]
    directory: PathBuf,
}

pub(super) fn run(args: &JournalArgs) -> ExitCode {
    let done = match &args.verb {
        JournalVerb::Verify(journal) => verify(&journal.directory),
        JournalVerb::Dump { journal, from, bodies } => dump(&journal.directory, *from, *bodies),
        JournalVerb::Repair { journal, yes } => mend(&journal.directory, *yes),
    };
    done.unwrap_or_else(|error| {
        complain(error);
        ExitCode::FAILURE
    })
}

fn verify(path: &Path) -> Result<ExitCode, OpenError> {
    let seen = inspect(&*directory(path)?, |_, _, _| {})?;
    say(&report(&seen));
    Ok(if seen.damage.is_empty() && seen.refusal.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a walk has seen, for an operator.
fn report(seen: &Inspection) -> String {
    let mut out = String::new();
    for segment in &seen.segments {
        let header = &segment.header;
        let through = header.first_sequence + segment.changes;
        let changes = match segment.changes {
            0 => format!("no change before {}", header.first_sequence),
            _ => format!("changes {} to {}", header.first_sequence, through - 1),
        };
        _ = writeln!(
            out,
            "segment {}: {changes}, {} records in {} frames, {} of {} octets",
            header.ordinal, segment.records, segment.frames, segment.end, header.bytes
        );
    }
    _ = writeln!(out, "spare segments: {}", seen.spares);
    if let Some(state) = &seen.state {
        _ = writeln!(out, "epoch {}, last change {}", state.epoch, state.last);
        for name in state.members.iter().filter(|name| !name.is_empty()) {
            let child = &state.children[name];
            _ = writeln!(out, "child {name}: {}, confirmed {}", word(child.standing), child.applied);
        }
    }
    if let Some((path, from, to)) = &seen.torn {
        _ = writeln!(
            out,
            "{path}, octets {from} to {to}: the last write was not finished, and nobody was told of it. The next start \
             cuts it away"
        );
    }
    for damage in &seen.damage {
        _ = writeln!(out, "DAMAGED {}, octets {} to {}: {}", damage.path, damage.from, damage.to, damage.why);
    }
    match &seen.refusal {
        Some(refusal) => _ = writeln!(out, "the next start refuses it: {refusal}"),
        None if seen.damage.is_empty() => out.push_str("no damage\n"),
        None => out.push_str("see `antiphon journal repair --help`\n"),
    }
    out
}

fn dump(path: &Path, from: u64, bodies: bool) -> Result<ExitCode, OpenError> {
    // A reader that went away (`| head`) is no error.
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut is_read = true;
    let seen = inspect(&*directory(path)?, |header, frame, records| {
        for record in records {
            let is_before = matches!(record, Record::Change(change) if change.sequence < from);
            if !is_read || is_before || frame.next_sequence() <= from {
                continue;
            }
            let line = line(record, bodies);
            is_read &= writeln!(out, "{}:{} {line}", header.ordinal, frame.position).is_ok();
        }
    })?;
    _ = out.flush();
    for damage in &seen.damage {
        complain(format_args!("{}, octets {} to {}: {}", damage.path, damage.from, damage.to, damage.why));
    }
    Ok(if seen.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A record as a line.
fn line(record: &Record, bodies: bool) -> String {
    match record {
        Record::Change(change) => change_line(change, bodies),
        Record::Mark(mark) => match mark {
            Mark::Outcome { sequence, verdict, condemned } => {
                format!("outcome {sequence} {} condemned={condemned:?}", verdict_word(*verdict))
            }
            Mark::Standing { child, standing, why } => format!("standing #{child} {} {why:?}", word(*standing)),
            Mark::Attach { child, from, at } => format!("attach #{child} from={from} at={at}"),
            Mark::Applied(moved) => {
                let moved: Vec<String> = moved.iter().map(|(child, applied)| format!("#{child}={applied}")).collect();
                format!("applied {}", moved.join(" "))
            }
            Mark::Members(names) => format!("members {names:?}"),
        },
        Record::Epoch { epoch, first, ended } => format!("epoch {epoch} first={first} ended={ended}"),
        Record::Checkpoint(state) => {
            let (children, exceptions) = (state.children.len(), state.exceptions.len());
            format!(
                "checkpoint epoch={} last={} members={:?} children={children} exceptions={exceptions}",
                state.epoch, state.last, state.members
            )
        }
    }
}

fn change_line(change: &Stored, bodies: bool) -> String {
    let live = if change.live { " live" } else { "" };
    let key = match &change.key {
        Some(key) => format!(" key={:?}", key.text.escape_ascii().to_string()),
        None => String::new(),
    };
    let first = change.head.split(|octet| *octet == b'\r' || *octet == b'\n').next().unwrap_or_default();
    let (head, body) = (change.head.len(), change.body.len());
    let mut line = format!(
        "change {} {:?} {}{live}{key} at={} head={head} body={body} {:?}",
        change.sequence,
        change.name,
        change.unknown_outcome,
        change.unix_ms,
        first.escape_ascii().to_string()
    );
    if bodies {
        _ = write!(line, " {:?} {:?}", change.head.escape_ascii().to_string(), change.body.escape_ascii().to_string());
    }
    line
}

fn mend(path: &Path, yes: bool) -> Result<ExitCode, OpenError> {
    let disk = directory(path)?;
    let done = if yes { repair::repair(&disk)? } else { repair::plan(&*disk)? };
    let Some(repair) = done else {
        say("nothing is wrong with it, nothing has been changed\n");
        return Ok(ExitCode::SUCCESS);
    };
    say(&repair_report(&repair, yes));
    Ok(if yes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn repair_report(repair: &Repair, done: bool) -> String {
    let mut out = String::new();
    if let Some(cut) = &repair.cut {
        _ = writeln!(out, "damaged: {}, octets {} to {}: {}", cut.path, cut.from, cut.to, cut.why);
    }
    let (kept, epoch, next) = (repair.kept, repair.epoch, repair.kept + 1);
    if repair.anew {
        _ = writeln!(
            out,
            "kept: nothing; another journal begins, epoch {epoch} with change {next}, and every child needs a reseed"
        );
    } else {
        _ = writeln!(out, "kept: changes up to {kept}; epoch {epoch} begins with {next}");
    }
    if repair.last_seen > repair.kept {
        _ = writeln!(out, "cut: changes {} to {}", repair.kept + 1, repair.last_seen);
    }
    for (name, why) in &repair.reseed {
        _ = writeln!(out, "child {name} needs a reseed: {why}");
    }
    for path in &repair.moved {
        _ = writeln!(out, "what was cut is in {path}");
    }
    out.push_str(if done && repair.anew {
        "done; after the start attach a child whose data is good first (`antiphon child attach`), then make the others \
         identical to it and attach them\n"
    } else if done {
        "done; after the start make such children identical and attach them (`antiphon child attach`)\n"
    } else {
        "nothing has been changed: stop antiphon and say --yes to do this\n"
    });
    out
}

const fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Live => "live",
        Standing::Replaying => "replaying",
        Standing::Diverged => "diverged",
        Standing::NeedsReseed => "needs_reseed",
    }
}

const fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agreed(Class::Success) => "success",
        Verdict::Agreed(Class::Rejected) => "rejected",
        Verdict::Agreed(Class::Failed) => "failed",
        Verdict::Withdrawn => "withdrawn",
    }
}
