//! A configuration as text again: every key with the value that holds, such that it is read as the same configuration.
//!
//! What an operator has decided and the file has no key for (a child that is offline, a primary that is not the first)
//! stands there as a comment.

use std::fmt::Write as _;

use super::table::{key_written, quoted};
use super::values::{Octets, Spelled};
use super::{Child, Config, Cost, Group, Keeping, Listener, Wanted};
use crate::action::Dialect;
use crate::mirror::Level;
use crate::probe::Request;
use crate::route::{ChildTimeouts, HostPattern, ReadGate};

/// Text that grows by tables and keys.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(format_args!("{line}\n")).expect("a String takes everything");
    }

    fn table(&mut self, header: std::fmt::Arguments<'_>) {
        self.line(format_args!("{}{header}", if self.0.is_empty() { "" } else { "\n" }));
    }

    /// A value that is written without quotes: numbers, truths, lists.
    fn bare(&mut self, key: &str, value: impl std::fmt::Display) {
        self.line(format_args!("{key} = {value}"));
    }

    fn string(&mut self, key: &str, value: impl std::fmt::Display) {
        self.bare(key, quoted(&value.to_string()));
    }

    fn strings(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: Vec<_> = values.map(|value| quoted(&value)).collect();
        self.bare(key, format_args!("[{}]", values.join(", ")));
    }
}

impl Config {
    /// All of it, in the file's format; ends with a line feed.
    ///
    /// ```
    /// # use antiphon::config::Config;
    /// let text = "[[listen]]\naddress = \"127.0.0.1:9060\"\ngroup = \"kv\"\n\
    ///             [[group.kv.child]]\nname = \"a\"\naddress = \"127.0.0.1:9100\"\n";
    /// let dump = Config::parse(text, "antiphon.toml").expect("a good one").dump();
    /// assert!(dump.contains("read_wait = \"100ms\""));
    /// assert_eq!(Config::parse(&dump, "dump").expect("a good one too").dump(), dump);
    /// ```
    #[must_use]
    pub fn dump(&self) -> String {
        let mut out = Text::default();
        for listener in &self.listeners {
            self.dump_listener(&mut out, listener);
        }
        for group in &self.groups {
            dump_group(&mut out, group, self.state.is_some());
        }
        self.dump_settings(&mut out);
        out.0
    }

    fn dump_listener(&self, out: &mut Text, listener: &Listener) {
        out.table(format_args!("[[listen]]"));
        out.string("address", listener.address);
        if let Some(group) = listener.table.default {
            out.string("group", &self.groups[group].name);
        }
        out.strings("own", listener.own.iter().map(|own| own.as_str().to_owned()));
        for route in &listener.table.routes {
            out.table(format_args!("[[listen.route]]"));
            match &route.host {
                HostPattern::Any => out.string("host", "*"),
                HostPattern::Is(name) => out.string("host", name),
                HostPattern::Below(suffix) => out.string("host", format_args!("*{suffix}")),
            }
            out.string("path", route.path.as_deref().unwrap_or("/"));
            out.string("group", &self.groups[route.group].name);
        }
    }

    fn dump_settings(&self, out: &mut Text) {
        let timeouts = &self.timeouts;
        out.table(format_args!("[timeouts]"));
        out.string("request_head", Spelled(timeouts.request_head));
        out.string("request_body", Spelled(timeouts.request_body));
        out.bare("request_body_rate_min", timeouts.request_body_rate_min);
        out.string("keep_alive", Spelled(timeouts.keep_alive));
        out.string("client_write", Spelled(timeouts.client_write));
        out.string("drain", Spelled(timeouts.drain));

        let limits = &self.limits;
        out.table(format_args!("[limits]"));
        out.string("body_bytes_max", Octets(limits.body_bytes_max));
        for (key, octets) in [
            ("action_bytes_max", limits.action_bytes_max),
            ("action_bytes_in_flight_max", limits.action_bytes_in_flight_max),
            ("answer_held_max", limits.answer_held_max),
            ("ring_bytes_max", limits.ring_bytes_max),
            ("spill_bytes_max", limits.spill_bytes_max),
        ] {
            out.string(key, Octets(octets as u64));
        }
        out.bare("connections_max", limits.connections_max);

        out.table(format_args!("[admin]"));
        // Named, it would have to be had: a default that cannot be is left out with a warning.
        out.string(if self.admin.socket_named { "socket" } else { "# socket" }, self.admin.socket.display());
        if let Some(address) = self.admin.address {
            out.string("address", address);
            out.bare("allow_remote", !address.ip().is_loopback());
        }
        out.strings("admin_clients", self.admin.clients.iter().map(ToString::to_string));

        out.table(format_args!("[workers]"));
        out.bare("count", self.workers.count.unwrap_or(0));
        out.string("driver", self.workers.driver.as_str());

        out.table(format_args!("[log]"));
        out.string("level", self.log.level.as_str());
        out.string("format", self.log.format.as_str());

        if let Some(state) = &self.state {
            out.table(format_args!("[state]"));
            out.string("directory", state.directory.display());
            out.string("journal_bytes_max", Octets(state.journal_bytes_max));
            out.bare("any_file_system", state.any_file_system);
        }
    }
}

fn dump_group(out: &mut Text, group: &Group, has_state: bool) {
    let name = key_written(&group.name);
    out.table(format_args!("[group.{name}]"));
    out.string("dialect", group.dialect);
    out.string("rules", group.rule_set.as_str());
    out.string("unknown", group.unknown.as_str());
    out.string("policy", group.policy);
    out.string("ack", group.ack.as_str());
    if let Level::Quorum(count) = group.ack {
        out.bare("quorum", count);
    }
    out.string("write_deadline", Spelled(group.write_deadline));
    out.string("live_wait", Spelled(group.live_wait));
    out.string("read_gate", group.read_gate.as_str());
    if let ReadGate::Bounded(behind) = group.read_gate {
        out.bare("reads_behind_max", behind);
    }
    out.string("read_wait", Spelled(group.read_wait));
    if has_state {
        let Keeping { cursor_sync, backlog_bytes_max, backlog_age_max, on_full } = group.keeping;
        out.string("cursor_sync", cursor_sync.as_str());
        out.string("backlog_bytes_max", Octets(backlog_bytes_max));
        out.string("backlog_age_max", Spelled(backlog_age_max));
        out.string("on_full", on_full.as_str());
    }
    if group.dialect == Dialect::Aci {
        out.string("aci_errors", group.aci_errors.as_str());
    }

    let probe = &group.probe;
    out.table(format_args!("[group.{name}.probe]"));
    out.string("request", &probe.request);
    if probe.request != Request::Tcp {
        let body = probe.expect.body().map_or_else(String::new, |body| format!(", body = {}", quoted(body)));
        out.bare("expect", format_args!("{{ status = {}{body} }}", quoted(&probe.expect.statuses())));
    }
    out.string("interval_up", Spelled(probe.interval_up));
    out.string("interval_down", Spelled(probe.interval_down));
    out.string("timeout", Spelled(probe.timeout));
    out.bare("fall", probe.fall);
    out.bare("rise", probe.rise);

    let ChildTimeouts { connect, response_head, response_body, tunnel_idle } = group.timeouts;
    out.table(format_args!("[group.{name}.timeouts]"));
    out.string("connect", Spelled(connect));
    out.string("response_head", Spelled(response_head));
    out.string("response_body", Spelled(response_body));
    out.string("tunnel_idle", Spelled(tunnel_idle));

    let Cost { options, location } = &group.cost;
    out.table(format_args!("[group.{name}.cost]"));
    if let Some(parameter) = &options.size_parameter {
        out.string("size_parameter", parameter);
    }
    if let Some(location) = location {
        out.string("location", location);
    }
    out.string("spill", Spelled(options.spill));
    out.string("slow_start", Spelled(options.slow_start));
    out.bare("prequal_quantile", options.prequal_quantile);

    for child in &group.children {
        dump_child(out, group, child);
    }
    for rule in &group.rules_written {
        out.table(format_args!("[[group.{name}.rule]]\n{}", rule.trim_end()));
    }
}

fn dump_child(out: &mut Text, group: &Group, child: &Child) {
    out.table(format_args!("[[group.{}.child]]", key_written(&group.name)));
    out.string("name", &child.name);
    out.string("address", &child.authority);
    out.bare("weight", child.weight);
    out.bare("slots", child.slots);
    if group.dialect == Dialect::Aci {
        out.strings("alias", child.aliases.iter().map(ToString::to_string));
    }
    if let Some(location) = &child.location {
        out.string("location", location);
    }
    if group.primary == child.place && child.place != group.children[0].place {
        out.line(format_args!("# decided while antiphon ran: the primary"));
    }
    if child.ordered.wanted != Wanted::Online {
        out.line(format_args!("# decided while antiphon ran: {}", child.ordered.wanted.as_str()));
    }
    if child.ordered.needs_reseed {
        out.line(format_args!("# added while antiphon ran, and not attached yet"));
    }
}
