//! `[group.NAME]` with its children.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::settings::{TIMEOUT, WAIT, child_timeouts};
use super::table::Table;
use super::values::{HostPort, Judged, duration, host_port, integer, name, plain, text, word};
use super::{AciErrors, Child, Group, cost, probe, rule};
use crate::action::{Class, Dialect, RuleSet, Rules};
use crate::limits::{ALIASES_MAX, CHANGE_DEADLINE, CHILDREN_MAX, SLOTS_MAX, WEIGHT_MAX};
use crate::mirror::ack::Level;
use crate::route::{ChildTimeouts, Policy, ReadGate};

/// A child's weight unless it has one: hundredths of an ordinary child read well.
const WEIGHT_DEFAULT: u64 = 100;
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
    let children = children(child_tables, &table, dialect, listeners, problems);
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
        policy,
        ack,
        write_deadline,
        live_wait,
        read_gate,
        read_wait,
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

fn children(
    tables: Vec<Table<'_>>,
    group: &Table<'_>,
    dialect: Dialect,
    listeners: &[Spanned<SocketAddr>],
    problems: &mut Problems,
) -> Vec<Child> {
    if tables.is_empty() {
        let message = format!("{} has no child", group.title());
        let title = group.title().trim_matches(['[', ']']);
        let help = format!("add [[{title}.child]] with `name = \"a\"` and `address = \"10.0.0.1:9100\"`");
        problems.push(group.span(), Wrong::new(message, help));
    }
    if let Some(surplus) = tables.get(CHILDREN_MAX) {
        problems.push(surplus.span(), Wrong::new(format!("more than {CHILDREN_MAX} children"), "divide the group"));
    }
    let mut children: Vec<Child> = Vec::with_capacity(tables.len());
    for table in tables.into_iter().take(CHILDREN_MAX) {
        let Some((child, places)) = child(table, dialect, problems) else { continue };
        if children.iter().any(|other| other.name == child.name) {
            let message = format!("this group has a child {:?} already", child.name);
            problems.push(places.name, Wrong::new(message, "give each child a name of its own"));
        }
        if let Some(twin) = children.iter().find(|other| other.host == child.host && other.port == child.port) {
            let message = format!("child {:?} has this address already", twin.name);
            problems.push(places.address.clone(), Wrong::new(message, "every change would reach that server twice"));
        }
        if let Some((name, alias)) = children.iter().find_map(|other| shared_name(&child, other)) {
            let message = format!("child {name:?} goes by {alias} already");
            let help = "a token that names it could belong to either child: give each names of its own";
            problems.push(places.alias.unwrap_or_else(|| places.address.clone()), Wrong::new(message, help));
        }
        if let Some(own) = listeners.iter().find(|own| is_self(&child, *own.get_ref())) {
            let message = format!("this is our own listener {}", own.get_ref());
            problems.push(places.address, Wrong::new(message, "name the server behind us, not antiphon itself"));
        }
        children.push(child);
    }
    children
}

/// Where a child's keys are.
struct Places {
    name: Range<usize>,
    address: Range<usize>,
    alias: Option<Range<usize>>,
}

fn child(mut table: Table<'_>, dialect: Dialect, problems: &mut Problems) -> Option<(Child, Places)> {
    let found = table.required(problems, "name", "add `name = \"a\"`", text);
    let name =
        found.as_ref().and_then(|found| name(found.get_ref()).map_err(|wrong| problems.push(found.span(), wrong)).ok());
    let address = table.required(problems, "address", "add `address = \"10.0.0.1:9100\"`", host_port);
    let weight = table.or(problems, "weight", WEIGHT_DEFAULT, integer(0..=u64::from(WEIGHT_MAX)));
    let location = table.optional(problems, "location", plain).map(|location| (*location.get_ref()).into());
    let slots = table.or(problems, "slots", 0, integer(0..=u64::from(SLOTS_MAX)));
    let alias = match dialect {
        Dialect::Aci => table.optional(problems, "alias", aliases),
        Dialect::Http => {
            let message = "`alias` is of the dialect \"aci\", and this group speaks \"http\"";
            table.misfit(problems, "alias", message, "remove it: there are no tokens here");
            None
        }
    };
    table.finish(problems);
    let (address, places) = {
        let address = address?;
        let places = Places { name: found?.span(), address: address.span(), alias: alias.as_ref().map(Spanned::span) };
        (address.into_inner(), places)
    };
    let child = Child {
        name: name?.into(),
        authority: authority(&address),
        aliases: alias.map_or_else(Box::default, |alias| alias.into_inner().iter().map(authority).collect()),
        host: address.host.into(),
        port: address.port,
        weight: weight as u32,
        location,
        slots: slots as u32,
    };
    Some((child, places))
}

/// `alias`: what a child is called in its tokens beside its address.
fn aliases(value: &DeValue<'_>) -> Judged<Vec<HostPort>> {
    let array = value.as_array().filter(|array| array.len() <= ALIASES_MAX).ok_or_else(|| {
        let message = format!("not an array of at most {ALIASES_MAX} names");
        Wrong::new(message, "write alias = [\"10.2.105.34:1234\"]: the addresses that the child puts into its tokens")
    })?;
    array.iter().map(|item| host_port(item.get_ref())).collect()
}

/// As the operator is shown it: IPv6 in brackets.
fn authority(address: &HostPort) -> Box<str> {
    match address {
        HostPort { host, port } if host.contains(':') => format!("[{host}]:{port}").into(),
        HostPort { host, port } => format!("{host}:{port}").into(),
    }
}

/// The other child's name, and by what both go in tokens, if there is such a thing: an alias of one, for two addresses
/// that are equal have been reported.
fn shared_name<'c>(child: &'c Child, other: &'c Child) -> Option<(&'c str, &'c str)> {
    let mine = || child.aliases.iter().chain([&child.authority]);
    let found = mine().find(|name| other.aliases.contains(name));
    let found = found.or_else(|| child.aliases.iter().find(|name| **name == other.authority));
    found.map(|name| (&*other.name, &**name))
}

/// Is this child one of our listeners? Only what the text tells: names are not resolved, save `localhost`.
fn is_self(child: &Child, listener: SocketAddr) -> bool {
    let local = match child.host.parse::<IpAddr>() {
        Ok(address) => address == listener.ip() || (listener.ip().is_unspecified() && address.is_loopback()),
        Err(_) => &*child.host == "localhost" && (listener.ip().is_unspecified() || listener.ip().is_loopback()),
    };
    local && child.port == listener.port()
}
