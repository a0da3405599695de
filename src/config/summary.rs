//! A configuration in a few lines, as `antiphon check` prints it: what is listened on, what goes where, who answers.

use std::fmt::Write as _;

use super::values::{Octets, Spelled};
use super::{Config, CursorSync, DriverChoice, Group, Keeping, Listener};
use crate::action::Dialect;
use crate::mirror::ack::Level;
use crate::route::{HostPattern, ReadGate};

impl Config {
    /// What this configuration amounts to, for people; ends with a line feed.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = String::new();
        self.summarize(&mut out).expect("a String takes everything");
        out
    }

    fn summarize(&self, out: &mut String) -> std::fmt::Result {
        for listener in &self.listeners {
            self.listener(out, listener)?;
        }
        for (index, group) in self.groups.iter().enumerate() {
            self.group(out, index, group)?;
        }
        let address = self.admin.address.map_or_else(String::new, |address| format!(" and {address}"));
        writeln!(out, "admin    {}{address}", self.admin.socket.display())?;
        let owns = |listener: &Listener| !listener.own.is_empty();
        if self.listeners.iter().any(owns) && self.groups.iter().any(|group| group.dialect == Dialect::Aci) {
            let clients: Vec<_> = self.admin.clients.iter().map(ToString::to_string).collect();
            let clients = if clients.is_empty() { "nobody".to_owned() } else { clients.join(", ") };
            writeln!(out, "         and EngineManagement and its like on the listeners, for {clients}")?;
        }
        let count = self.workers.count.map_or_else(|| "one a core".to_owned(), |count| count.to_string());
        let driver = match self.workers.driver {
            DriverChoice::Auto => "io_uring, or epoll where that is missing",
            DriverChoice::Uring => "io_uring",
            DriverChoice::Epoll => "epoll",
        };
        writeln!(out, "workers  {count}, {driver}")?;
        match &self.state {
            Some(state) => writeln!(out, "state    {}", state.directory.display()),
            None => writeln!(out, "state    none: a restart forgets what was ordered while antiphon ran"),
        }
    }

    fn listener(&self, out: &mut String, listener: &Listener) -> std::fmt::Result {
        let table = &listener.table;
        let mut lead = format!("listen   {}", listener.address);
        for route in &table.routes {
            match &route.host {
                HostPattern::Any => write!(out, "{lead}")?,
                HostPattern::Is(name) => write!(out, "{lead} {name}")?,
                HostPattern::Below(suffix) => write!(out, "{lead} *{suffix}")?,
            }
            if let Some(path) = &route.path {
                write!(out, " {path}")?;
            }
            writeln!(out, " -> group {}", self.groups[route.group].name)?;
            lead = " ".repeat(lead.len());
        }
        match table.default {
            Some(group) => writeln!(out, "{lead} -> group {}", self.groups[group].name),
            None => writeln!(out, "{lead} anything else -> 404"),
        }
    }

    fn group(&self, out: &mut String, index: usize, group: &Group) -> std::fmt::Result {
        let ack = match group.ack {
            Level::All => "all live children".to_owned(),
            Level::First => "the first child".to_owned(),
            Level::Quorum(count) => format!("{count} of {} children", group.children.len()),
            Level::Durable => "nobody: 202 once it has its place in the order".to_owned(),
            Level::AllOrRefuse => "all children, refused while one is away".to_owned(),
        };
        write!(
            out,
            "group    {}: dialect {}, rules {}, ",
            group.name,
            group.dialect.as_str(),
            group.rule_set.as_str()
        )?;
        writeln!(out, "policy {}, acknowledged by {ack}", group.policy)?;
        match group.read_gate {
            ReadGate::Strict => {}
            ReadGate::Bounded(behind) => writeln!(out, "         reads may miss the last {behind} changes")?,
            ReadGate::None => writeln!(out, "         reads may miss any number of changes")?,
        }
        let leads_here = |listener: &Listener| {
            listener.table.default == Some(index) || listener.table.routes.iter().any(|route| route.group == index)
        };
        if !self.listeners.iter().any(leads_here) {
            writeln!(out, "         no listener sends anything here")?;
        }
        let probe = &group.probe;
        let (up, down) = (Spelled(probe.interval_up), Spelled(probe.interval_down));
        writeln!(out, "         probe {}, every {up} when up and idle, {down} when down", probe.request)?;
        match &self.state {
            None => {
                let ring = Octets(self.limits.ring_bytes_max as u64);
                writeln!(out, "         changes are kept in memory only, the last {ring}; a restart loses them")?;
            }
            Some(state) => {
                let Keeping { backlog_bytes_max, backlog_age_max, on_full, cursor_sync } = group.keeping;
                let (all, one) = (Octets(state.journal_bytes_max), Octets(backlog_bytes_max));
                writeln!(
                    out,
                    "         changes are kept in a journal of at most {all}, for a child at most {one} and {}, then {}",
                    Spelled(backlog_age_max),
                    on_full.as_str()
                )?;
                if cursor_sync == CursorSync::Each {
                    writeln!(out, "         a change that may not be sent again waits for a sync for each child")?;
                }
            }
        }
        for (index, child) in group.children.iter().enumerate() {
            write!(out, "  child  {} {} weight {}", child.name, child.authority, child.weight)?;
            if !child.aliases.is_empty() {
                write!(out, " alias {}", child.aliases.join(", "))?;
            }
            if let Some(location) = &child.location {
                write!(out, " at {location}")?;
            }
            writeln!(out, "{}", if index == 0 { " (primary)" } else { "" })?;
        }
        Ok(())
    }
}
