//! What operators, and failover, have decided while antiphon ran: text to [`Decisions`] and back, and what they make of a
//! configuration.
//!
//! Not the file (that is control's), and not a second configuration: here is only what *differs* from the file. A
//! decision that the file has come to agree with is none. What cannot be understood is refused, with its line, as in a
//! configuration: a child that was taken out must not come back because of a typing error.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigErrors, Problems, Wrong};
use super::table::{Table, key_written, quoted};
use super::values::{Judged, boolean, host_port, integer, name, plain, text, word};
use super::{Child, Config, Group, Wanted};
use crate::limits::{CHILDREN_MAX, WEIGHT_MAX};
use crate::mirror::ack::Level;

/// The one format there is.
const FORMAT: u64 = 1;

const HEADER: &str = "\
# What was decided while antiphon ran: by operators, and by failover. antiphon writes this file anew with each decision.
# To undo a decision, order the opposite (`antiphon child …`), or stop antiphon and take its lines out. To undo all of
# them, stop antiphon and remove the file. `antiphon check` shows them beside the configuration.
";

/// What was decided, by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// By the names of groups.
    pub groups: BTreeMap<String, GroupDecisions>,
}

/// What was decided of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDecisions {
    /// The primary, where it is not the first child of the file.
    pub primary: Option<String>,
    /// By the names of children.
    pub children: BTreeMap<String, ChildDecisions>,
}

/// What was decided of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildDecisions {
    /// The file does not have it: it was added, in this place.
    pub added: Option<usize>,
    /// The file has it, and it was removed.
    pub removed: bool,
    /// Where it is: always of one that was added, else where it differs from the file.
    pub address: Option<String>,
    /// Its share of reads.
    pub weight: Option<u32>,
    /// What is wanted of it: not `online`.
    pub wanted: Option<Wanted>,
    /// It was added and has not been attached yet.
    pub needs_reseed: bool,
}

// === impl Decisions ===

impl Decisions {
    /// Reads what [`Display`] writes. `file` is what errors call it.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its line.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        let mut problems = Problems::default();
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let help = "antiphon wrote this file: was it edited, or cut short? without it, nothing is decided";
            problems.push(error.span().unwrap_or(0..0), Wrong::new(format!("not TOML: {}", error.message()), help));
        }
        if !problems.is_empty() {
            return Err(problems.into_errors(file, text));
        }
        let decisions = Self::read(Table::new("the file", document.get_ref(), 0..0), &mut problems);
        if problems.is_empty() { Ok(decisions) } else { Err(problems.into_errors(file, text)) }
    }

    fn read(mut file: Table<'_>, problems: &mut Problems) -> Self {
        let advice = "was it cut short, or written by hand? add `format = 1`";
        file.required(problems, "format", advice, |value| {
            let found = integer(0..=u64::MAX)(value)?;
            let help = "this file is from a later version of antiphon: run that one, or remove the file";
            if found == FORMAT { Ok(()) } else { Err(Wrong::new(format!("format {found} is not known"), help)) }
        });
        let groups = file.table(problems, "group", "[group]").map(|table| table.named(problems)).unwrap_or_default();
        let groups = groups.into_iter().map(|(name, table)| (name.get_ref().to_string(), group(table, problems)));
        let decisions = Self { groups: groups.collect() };
        file.finish(problems);
        decisions
    }

    /// What was decided of this child, to be changed.
    pub fn child_mut(&mut self, group: &str, child: &str) -> &mut ChildDecisions {
        self.group_mut(group).children.entry(child.to_owned()).or_default()
    }

    /// What was decided of this group, to be changed.
    pub fn group_mut(&mut self, group: &str) -> &mut GroupDecisions {
        self.groups.entry(group.to_owned()).or_default()
    }

    /// Forgets what is no decision: entries that say nothing.
    pub fn tidy(&mut self) {
        for group in self.groups.values_mut() {
            group.children.retain(|_, child| *child != ChildDecisions::default());
        }
        self.groups.retain(|_, group| *group != GroupDecisions::default());
    }

    /// Changes `config` to what was decided. What does not fit it any more is forgotten here and told: one line each.
    pub fn apply(&mut self, config: &mut Config) -> Vec<String> {
        let mut told = Vec::new();
        let listeners: Vec<_> = config.listeners.iter().map(|listener| listener.address).collect();
        self.groups.retain(|name, _| {
            let known = config.groups.iter().any(|group| *group.name == **name);
            if !known {
                told.push(format!(
                    "the configuration has no group {name:?} any more: what was decided of it is ignored"
                ));
            }
            known
        });
        for group in &mut config.groups {
            if let Some(decided) = self.groups.get_mut(&*group.name) {
                decided.apply(group, &listeners, &mut told);
            }
        }
        self.tidy();
        told
    }

    /// One line a decision, for people: what the file says and what holds. `config` is as the file has it.
    #[must_use]
    pub fn against(&self, config: &Config) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, decided) in &self.groups {
            let group = config.groups.iter().find(|group| *group.name == **name);
            if let (Some(group), Some(primary)) = (group, &decided.primary) {
                lines.push(format!("group {name}: primary {primary}, not {}", group.children[0].name));
            }
            for (child, decided) in &decided.children {
                let filed = group.and_then(|group| group.children.iter().find(|filed| *filed.name == **child));
                decided.against(&format!("child {name}/{child}"), filed, &mut lines);
            }
        }
        lines
    }
}

impl Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}format = {FORMAT}")?;
        for (name, group) in &self.groups {
            let group_key = key_written(name);
            if let Some(primary) = &group.primary {
                writeln!(f, "\n[group.{group_key}]\nprimary = {}", quoted(primary))?;
            }
            for (name, child) in &group.children {
                writeln!(f, "\n[group.{group_key}.child.{}]\n{child}", key_written(name))?;
            }
        }
        Ok(())
    }
}

// === impl GroupDecisions ===

impl GroupDecisions {
    fn apply(&mut self, group: &mut Group, listeners: &[std::net::SocketAddr], told: &mut Vec<String>) {
        let group_name = group.name.clone();
        let of = |child: &str| format!("child {group_name}/{child}");
        // What the file has comes first, so that an added child gives way to it.
        let configured = group.children.len();
        self.children.retain(|name, decided| {
            let filed = group.children.iter().position(|child| *child.name == **name);
            match (filed, decided.added) {
                (Some(_), Some(_)) => {
                    told.push(format!("{}: the configuration has it now, and counts", of(name)));
                    (decided.added, decided.address) = (None, None);
                }
                (None, None) => {
                    told.push(format!(
                        "the configuration has no {} any more: what was decided of it is ignored",
                        of(name)
                    ));
                    return false;
                }
                (Some(_), None) | (None, Some(_)) => {}
            }
            let Some(index) = filed else { return true };
            if decided.removed {
                if group.children.len() == 1 {
                    told.push(format!("{} is the last one left: that it was removed is ignored", of(name)));
                    decided.removed = false;
                } else {
                    group.children.remove(index);
                    return true;
                }
            }
            if let Some(address) = decided.address.take() {
                decided.address = move_to(group, index, &address, listeners, told);
            }
            let child = &mut group.children[index];
            decided.weight = decided.weight.filter(|weight| *weight != child.weight);
            order(child, decided);
            true
        });
        let mut added: Vec<_> = self.children.iter_mut().filter(|(_, decided)| decided.added.is_some()).collect();
        added.sort_by_key(|(_, decided)| decided.added);
        for (name, decided) in added {
            *decided = add(group, configured, name, decided.clone(), listeners, told).unwrap_or_default();
        }
        group.children.sort_by_key(|child| child.place);
        let there = group.children.len();
        if let Level::Quorum(count) = &mut group.ack
            && usize::from(*count) > there
        {
            told.push(format!(
                "group {}: {there} children are left, too few for a quorum of {count}: {there} will do",
                group.name
            ));
            *count = there as u16;
        }
        let primary = self.primary.take();
        let found = primary.as_ref().map(|name| group.children.iter().find(|child| *child.name == **name));
        group.primary = group.children[0].place;
        match found {
            Some(Some(child)) if child.place != group.primary => {
                group.primary = child.place;
                self.primary = primary;
            }
            Some(None) => told.push(format!(
                "group {}: its primary {:?} is not there any more, and {:?} leads",
                group.name,
                primary.unwrap_or_default(),
                group.children[0].name
            )),
            _ => {}
        }
    }
}

/// Moves a configured child; what of that is still a decision.
fn move_to(
    group: &mut Group,
    index: usize,
    address: &str,
    listeners: &[std::net::SocketAddr],
    told: &mut Vec<String>,
) -> Option<String> {
    let child = &group.children[index];
    if *child.authority == *address {
        return None;
    }
    let others = group.children.iter().filter(|other| other.place != child.place);
    let moved = Child::parse(&child.name, address).and_then(|moved| {
        let others = others.flat_map(Child::goes_by);
        moved.beside(others, listeners.iter().copied()).map(|()| moved).map_err(|clash| clash.to_string())
    });
    match moved {
        Ok(moved) => {
            group.children[index].moved_to(moved);
            Some(address.to_owned())
        }
        Err(why) => {
            let (group, name, kept) = (&group.name, &child.name, &child.authority);
            told.push(format!(
                "child {group}/{name} cannot be at {address}, where it was moved: {why}; it is at {kept}"
            ));
            None
        }
    }
}

/// Adds a child that the file does not have; what of that still holds.
fn add(
    group: &mut Group,
    configured: usize,
    name: &str,
    mut decided: ChildDecisions,
    listeners: &[std::net::SocketAddr],
    told: &mut Vec<String>,
) -> Option<ChildDecisions> {
    let wanted = decided.added.unwrap_or_default();
    let is_free = |place: &usize| *place >= configured && group.children.iter().all(|child| child.place != *place);
    let place = Some(wanted).filter(is_free).or_else(|| (configured..CHILDREN_MAX).find(is_free));
    let added = Child::parse(name, decided.address.as_deref().unwrap_or_default()).and_then(|added| {
        let others = group.children.iter().flat_map(Child::goes_by);
        added.beside(others, listeners.iter().copied()).map(|()| added).map_err(|clash| clash.to_string())
    });
    let (place, mut added) = match (place, added) {
        (Some(place), Ok(added)) => (place, added),
        (place, added) => {
            let why = added.err().unwrap_or_else(|| format!("there are {CHILDREN_MAX} already"));
            debug_assert!(place.is_some() || why.ends_with("already"));
            told.push(format!("child {}/{name}, which was added, is left out: {why}", group.name));
            return None;
        }
    };
    if place != wanted {
        told.push(format!("child {}/{name} has another place now: engine {place}, not {wanted}", group.name));
    }
    decided.added = Some(place);
    decided.weight = decided.weight.filter(|weight| *weight != added.weight);
    added.place = place;
    order(&mut added, &decided);
    group.places = group.places.max(place + 1);
    group.children.push(added);
    Some(decided)
}

fn order(child: &mut Child, decided: &ChildDecisions) {
    child.weight = decided.weight.unwrap_or(child.weight);
    child.ordered.wanted = decided.wanted.unwrap_or_default();
    child.ordered.needs_reseed = decided.needs_reseed;
}

// === impl ChildDecisions ===

impl ChildDecisions {
    fn against(&self, child: &str, filed: Option<&Child>, lines: &mut Vec<String>) {
        let not = |filed: Option<String>| filed.map_or_else(String::new, |filed| format!(", not {filed}"));
        if self.removed {
            lines.push(format!("{child}: removed"));
        }
        if let (Some(place), Some(address)) = (self.added, &self.address) {
            lines.push(format!("{child}: added at {address}, engine {place}"));
        } else if let Some(address) = &self.address {
            lines.push(format!("{child}: at {address}{}", not(filed.map(|filed| filed.authority.to_string()))));
        }
        if let Some(weight) = self.weight {
            lines.push(format!("{child}: weight {weight}{}", not(filed.map(|filed| filed.weight.to_string()))));
        }
        if let Some(wanted) = self.wanted {
            lines.push(format!("{child}: {}", wanted.as_str()));
        }
        if self.needs_reseed {
            lines.push(format!("{child}: not attached yet"));
        }
    }
}

impl Display for ChildDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = String::new();
        if let Some(place) = self.added {
            writeln!(lines, "added = {place}")?;
        }
        if self.removed {
            writeln!(lines, "removed = true")?;
        }
        if let Some(address) = &self.address {
            writeln!(lines, "address = {}", quoted(address))?;
        }
        if let Some(weight) = self.weight {
            writeln!(lines, "weight = {weight}")?;
        }
        if let Some(wanted) = self.wanted {
            writeln!(lines, "state = {}", quoted(wanted.as_str()))?;
        }
        if self.needs_reseed {
            writeln!(lines, "needs_reseed = true")?;
        }
        f.write_str(lines.trim_end())
    }
}

fn group(mut table: Table<'_>, problems: &mut Problems) -> GroupDecisions {
    let primary = table.optional(problems, "primary", plain).map(|name| (*name.get_ref()).to_owned());
    let title = table.title().trim_end_matches(']').to_owned();
    let children = table.table(problems, "child", format!("{title}.child]"));
    let children = children.map(|table| table.named(problems)).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (child_name, table) in children {
        if let Err(wrong) = name(child_name.get_ref()) {
            problems.push(child_name.span(), wrong);
        }
        found.insert(child_name.get_ref().to_string(), child_decisions(table, problems));
    }
    table.finish(problems);
    GroupDecisions { primary, children: found }
}

fn child_decisions(mut table: Table<'_>, problems: &mut Problems) -> ChildDecisions {
    let added = table.optional(problems, "added", integer(0..=CHILDREN_MAX as u64 - 1));
    let removed = table.or(problems, "removed", false, boolean);
    let address = table.optional(problems, "address", address);
    if let Some(added) = &added {
        if removed {
            problems.push(added.span(), Wrong::new("it cannot be added and removed", "take all its lines out"));
        }
        if address.is_none() && table.is_open("address") {
            let help = "add `address = \"10.0.0.1:9100\"`, or take all its lines out";
            problems.push(table.span(), Wrong::new("a child that was added has an address", help));
        }
    }
    let wanted = word("states", Wanted::ALL, Wanted::as_str, &[]);
    let decisions = ChildDecisions {
        added: added.map(|place| *place.get_ref() as usize),
        removed,
        address: address.map(Spanned::into_inner),
        weight: table
            .optional(problems, "weight", integer(0..=u64::from(WEIGHT_MAX)))
            .map(|weight| *weight.get_ref() as u32),
        wanted: table
            .optional(problems, "state", wanted)
            .map(Spanned::into_inner)
            .filter(|wanted| *wanted != Wanted::Online),
        needs_reseed: table.or(problems, "needs_reseed", false, boolean),
    };
    table.finish(problems);
    decisions
}

/// An address in its canonical spelling.
fn address(value: &DeValue<'_>) -> Judged<String> {
    host_port(value)?;
    let found = text(value)?;
    // Judged a line above; the name does not matter.
    Ok(Child::parse("a", found).map_or_else(|_| found.to_owned(), |child| child.authority.into()))
}

#[cfg(test)]
mod tests;
