//! `[group.NAME]`. Its children are read by `child.rs`, its rules by `rule.rs`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::error::{Problems, Wrong};
use super::keeping::keeping;
use super::settings::{TIMEOUT, WAIT, child_timeouts};
use super::table::Table;
use super::values::{duration, integer, name, word};
use super::{AciErrors, Group, child, cost, probe, rule};
use crate::action::{Class, Dialect, RuleSet, Rules};
use crate::limits::{CHANGE_DEADLINE, CHILDREN_MAX};
use crate::mirror::ack::Level;
use crate::route::{ChildTimeouts, Policy, ReadGate};

/// As in the specification of acknowledgements: half of what clients that give up after 10 s wait.
const WRITE_DEADLINE_DEFAULT: Duration = Duration::from_secs(5);
/// Every other change waits so long behind a live one whose children do not get ready: a moment, not a time-out.
const LIVE_WAIT_DEFAULT: Duration = Duration::from_secs(2);
const LIVE_WAIT: RangeInclusive<Duration> = Duration::from_millis(1)..=CHANGE_DEADLINE;
/// A read that comes with a change's acknowledgement must not fail because of one slow confirmation.
const READ_WAIT_DEFAULT: Duration = Duration::from_millis(100);

/// A child may be this many changes behind what was answered, at most: more is a slip, not a wish.
const READS_BEHIND: RangeInclusive<u64> = 1..=1_000_000;

/// One group, over the children's time-outs of `[timeouts]`. `None` only with a problem reported.
pub(super) fn group(
    name_found: &Spanned<&str>,
    mut table: Table<'_>,
    timeouts: ChildTimeouts,
    listeners: &[Spanned<SocketAddr>],
    has_state: bool,
    problems: &mut Problems,
) -> Option<Group> {
    let group_name = name(name_found.get_ref()).map_err(|wrong| problems.push(name_found.span(), wrong)).ok();
    let title = format!("group.{}", name_found.get_ref());

    let found = table.optional(problems, "dialect", word("dialects", Dialect::ALL, Dialect::as_str, &[]));
    if found.is_none() && !table.is_open("dialect") {
        // Rules and probes are judged by the dialect: in a wrong one all of them would be wrong.
        return None;
    }
    let dialect = found.map_or(Dialect::Http, Spanned::into_inner);
    let rule_set = rule_set(&mut table, dialect, problems);
    let unknown = table.or(problems, "unknown", Class::Change, rule::class);
    let own_rules = table.tables(problems, "rule", &format!("[[{title}.rule]]"));
    let rules_written = own_rules.iter().map(Table::written).collect();
    let own_rules = rule::rules(own_rules, dialect, problems);
    let rules = Rules::new(dialect, rule_set, own_rules, unknown)
        .map_err(|error| {
            let help = "join rules by patterns: `action = \"Reindex*\"`, `path = \"/items/*\"`";
            problems.push(table.span(), Wrong::new(error.to_string(), help));
        })
        .ok();

    let policies = word("policies", &Policy::ALL, Policy::name, &[]);
    let policy = table.or(problems, "policy", Policy::default(), policies);
    let acks = word("acknowledgements", &Level::ALL, Level::as_str, &[]);
    let mut ack = table.or(problems, "ack", Level::default(), acks);
    let quorum = quorum(&mut table, ack, problems);
    let write_deadline = table.or(problems, "write_deadline", WRITE_DEADLINE_DEFAULT, duration(TIMEOUT));
    let live_wait = table.or(problems, "live_wait", LIVE_WAIT_DEFAULT, duration(LIVE_WAIT));
    let read_gate = read_gate(&mut table, problems);
    let keeping = keeping(&mut table, has_state, problems);
    let read_wait = table.or(problems, "read_wait", READ_WAIT_DEFAULT, duration(WAIT));

    let aci_errors = if dialect == Dialect::Aci {
        let ways = word("ways", AciErrors::ALL, AciErrors::as_str, &[]);
        table.or(problems, "aci_errors", AciErrors::default(), ways)
    } else {
        let message = "`aci_errors` is of the dialect \"aci\", and this group speaks \"http\"";
        table.misfit(problems, "aci_errors", message, "remove it: errors are problem documents (RFC 9457) here");
        AciErrors::default()
    };

    let cost_table = table.table(problems, "cost", format!("[{title}.cost]"));
    let cost = cost::cost(cost_table, dialect, problems);
    let probe_table = table.table(problems, "probe", format!("[{title}.probe]"));
    let probe = probe::options(probe_table, dialect, problems);
    let mut own = timeouts;
    if let Some(mut table) = table.table(problems, "timeouts", format!("[{title}.timeouts]")) {
        own = child_timeouts(&mut table, timeouts, problems);
        for key in ["request_head", "request_body", "request_body_rate_min", "keep_alive", "client_write", "drain"] {
            let message = format!("`{key}` concerns clients, and they are not a group's");
            table.misfit(problems, key, &message, "move it to [timeouts]");
        }
        table.finish(problems);
    }

    let child_tables = table.tables(problems, "child", &format!("[[{title}.child]]"));
    let children = child::children(child_tables, &table, dialect, listeners, problems);
    if let Level::Quorum(count) = &mut ack {
        *count = match quorum {
            Some(found) if *found.get_ref() > children.len() as u64 && !children.is_empty() => {
                let message = format!("this group has {} children", children.len());
                problems.push(found.span(), Wrong::new(message, "no more can answer: lower the number"));
                1
            }
            Some(found) => found.into_inner() as u16,
            // More than half: any two quorums have a child in common.
            None => (children.len() / 2 + 1) as u16,
        };
    }
    table.not_yet(problems, "verify", "remove it; compare the children by other means until then");
    table.finish(problems);
    Some(Group {
        name: group_name?.into(),
        dialect,
        rule_set,
        rules: Arc::new(rules?),
        rules_written,
        unknown,
        policy,
        ack,
        write_deadline,
        live_wait,
        read_gate,
        keeping,
        read_wait,
        places: child::places(children.len()),
        primary: 0,
        children,
        probe,
        timeouts: own,
        cost,
        aci_errors,
    })
}

/// `quorum`: how many, under `ack = "quorum"` only.
fn quorum(table: &mut Table<'_>, ack: Level, problems: &mut Problems) -> Option<Spanned<u64>> {
    if matches!(ack, Level::Quorum(_)) {
        return table.optional(problems, "quorum", integer(1..=CHILDREN_MAX as u64));
    }
    let message = format!("`quorum` is of `ack = \"quorum\"`, and here it is {:?}", ack.as_str());
    table.misfit(problems, "quorum", &message, "remove it, or write `ack = \"quorum\"`");
    None
}

/// `read_gate`, and `reads_behind_max` where it is bounded.
fn read_gate(table: &mut Table<'_>, problems: &mut Problems) -> ReadGate {
    let gates = word("gates", &ReadGate::ALL, ReadGate::as_str, &[]);
    let gate = table.or(problems, "read_gate", ReadGate::default(), gates);
    if let ReadGate::Bounded(_) = gate {
        let help = "add `reads_behind_max = 100`: how many changes a child may be behind and serve reads";
        let found = table.required(problems, "reads_behind_max", help, integer(READS_BEHIND));
        return ReadGate::Bounded(found.map_or(1, Spanned::into_inner));
    }
    let message = format!("`reads_behind_max` is of `read_gate = \"bounded\"`, and here it is {:?}", gate.as_str());
    table.misfit(problems, "reads_behind_max", &message, "remove it, or write `read_gate = \"bounded\"`");
    gate
}

/// `rules`: the dialect's own set unless another is named; a set of the other dialect is refused.
fn rule_set(table: &mut Table<'_>, dialect: Dialect, problems: &mut Problems) -> RuleSet {
    let own = match dialect {
        Dialect::Aci => RuleSet::Idol,
        Dialect::Http => RuleSet::Http,
    };
    let sets = word("rule sets", RuleSet::ALL, RuleSet::as_str, &[]);
    let Some(found) = table.optional(problems, "rules", sets) else { return own };
    match found.get_ref().dialect() {
        Some(other) if other != dialect => {
            let message = format!("this rule set does not read the dialect \"{dialect}\"");
            let help = format!("write `dialect = \"{other}\"`, or another rule set");
            problems.push(found.span(), Wrong::new(message, help));
            own
        }
        _ => found.into_inner(),
    }
}
