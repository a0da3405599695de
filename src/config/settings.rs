//! The sections that are about the process and not about a group: `[admin]`, `[workers]`, `[timeouts]`, `[limits]`,
//! `[log]`, `[state]`.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Range, RangeInclusive};
use std::path::{Component, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::table::Table;
use super::values::{Judged, Octets, boolean, duration, integer, list, plain, size, socket_address, text, word};
use super::{
    ADMIN_SOCKET_DEFAULT, Admin, ClientTimeouts, DriverChoice, Limits, Log, LogFormat, LogLevel, State, Workers,
};
use crate::limits;
use crate::route::ChildTimeouts;

/// A Unix socket's path must fit `sun_path` with its NUL (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// What a time-out may be: zero would end everything.
pub(super) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=limits::DURATION_MAX;
/// What a wait may be: zero is "not at all".
pub(super) const WAIT: RangeInclusive<Duration> = Duration::ZERO..=limits::DURATION_MAX;

impl Default for Admin {
    fn default() -> Self {
        let loopback = [IpAddr::from([127, 0, 0, 0]), Ipv6Addr::LOCALHOST.into()];
        let clients = loopback.into_iter().zip([8, 128]).map(|(address, length)| IpNet::new_assert(address, length));
        let socket = PathBuf::from(ADMIN_SOCKET_DEFAULT);
        Self { socket, socket_named: false, address: None, clients: clients.collect() }
    }
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            // Enough for a slow line, short enough that ten thousand idle attackers free their slots soon (HAProxy's
            // documentation advises 5 to 10 s for http-request; nginx waits 60 s).
            request_head: Duration::from_secs(10),
            request_body: Duration::from_secs(30),
            // A 1 MiB upload must not take longer than 35 minutes; dial-up is faster.
            request_body_rate_min: 500,
            // Longer than the load balancers and browsers in front of us keep theirs, nginx: 75 s.
            keep_alive: Duration::from_secs(60),
            client_write: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            action_bytes_max: limits::ACTION_BYTES_MAX,
            action_bytes_in_flight_max: limits::ACTION_BYTES_IN_FLIGHT_MAX,
            answer_held_max: limits::ANSWER_HELD_MAX,
            ring_bytes_max: limits::RING_BYTES_MAX,
            spill_bytes_max: limits::SPILL_BYTES_MAX,
            connections_max: limits::CONNECTIONS_MAX,
        }
    }
}

/// The time-outs of the child side, where the file names none.
pub(super) fn child_timeouts_default() -> ChildTimeouts {
    ChildTimeouts {
        // Children stand near. A client that gives up after 10 s must still see the second and third child tried.
        connect: Duration::from_secs(2),
        response_head: Duration::from_secs(60),
        response_body: Duration::from_secs(30),
        tunnel_idle: Duration::from_secs(3600),
    }
}

/// `[admin]`. A remote address is refused unless it is asked for twice: the commands have no authentication.
/// Given with the place of the address.
pub(super) fn admin(mut table: Table<'_>, problems: &mut Problems) -> (Admin, Option<Range<usize>>) {
    let mut admin = Admin::default();
    if let Some(socket) = table.optional(problems, "socket", plain) {
        let path = *socket.get_ref();
        if !path.starts_with('/') || path.len() > SOCKET_PATH_BYTES_MAX {
            let message = format!("{path:?} is not an absolute path of at most {SOCKET_PATH_BYTES_MAX} octets");
            problems.push(socket.span(), Wrong::new(message, format!("the default is \"{ADMIN_SOCKET_DEFAULT}\"")));
        }
        admin.socket = PathBuf::from(path);
        admin.socket_named = true;
    }
    let address = table.optional(problems, "address", socket_address);
    let allow_remote = table.or(problems, "allow_remote", false, boolean);
    let place = address.as_ref().map(Spanned::span);
    if let Some(address) = address {
        if !address.get_ref().ip().is_loopback() && !allow_remote {
            let message = format!(
                "{} can be reached from other machines, and the commands ask nobody who they are",
                address.get_ref()
            );
            let help = format!("write \"127.0.0.1:{}\", or add `allow_remote = true`", address.get_ref().port());
            problems.push(address.span(), Wrong::new(message, help));
        }
        admin.address = Some(address.into_inner());
    }
    admin.clients = table.or(problems, "admin_clients", admin.clients, list(network));
    table.finish(problems);
    (admin, place)
}

/// A network, or one address.
fn network(value: &DeValue<'_>) -> Judged<IpNet> {
    let found = text(value)?;
    let one = || found.parse::<IpAddr>().map(IpNet::from);
    found.parse::<IpNet>().or_else(|_| one()).map_err(|_| {
        let help = "write \"10.0.0.0/8\", \"2001:db8::/32\" or one address: \"10.0.0.7\"";
        Wrong::new(format!("{found:?} is not a network"), help)
    })
}

/// `[workers]`.
pub(super) fn workers(mut table: Table<'_>, problems: &mut Problems) -> Workers {
    let count = table.or(problems, "count", 0, integer(0..=limits::WORKERS_MAX as u64));
    let driver =
        table.or(problems, "driver", DriverChoice::Auto, word("drivers", DriverChoice::ALL, DriverChoice::as_str, &[]));
    table.finish(problems);
    Workers { count: usize::try_from(count).ok().filter(|count| *count > 0), driver }
}

/// `[timeouts]`: the client side, and what the groups start from.
pub(super) fn timeouts(mut table: Table<'_>, problems: &mut Problems) -> (ClientTimeouts, ChildTimeouts) {
    let default = ClientTimeouts::default();
    let client = ClientTimeouts {
        request_head: table.or(problems, "request_head", default.request_head, duration(TIMEOUT)),
        request_body: table.or(problems, "request_body", default.request_body, duration(TIMEOUT)),
        request_body_rate_min: table.or(
            problems,
            "request_body_rate_min",
            default.request_body_rate_min,
            size(0..=limits::BUDGET_BYTES_MAX),
        ),
        keep_alive: table.or(problems, "keep_alive", default.keep_alive, duration(TIMEOUT)),
        client_write: table.or(problems, "client_write", default.client_write, duration(TIMEOUT)),
        drain: table.or(problems, "drain", default.drain, duration(WAIT)),
    };
    let child = child_timeouts(&mut table, child_timeouts_default(), problems);
    table.finish(problems);
    (client, child)
}

/// What [`timeouts`] gives for a file without that section.
pub(super) fn timeouts_default() -> (ClientTimeouts, ChildTimeouts) {
    (ClientTimeouts::default(), child_timeouts_default())
}

/// The keys of [`ChildTimeouts`] over `default`; the caller finishes the table.
pub(super) fn child_timeouts(table: &mut Table<'_>, default: ChildTimeouts, problems: &mut Problems) -> ChildTimeouts {
    ChildTimeouts {
        connect: table.or(problems, "connect", default.connect, duration(TIMEOUT)),
        response_head: table.or(problems, "response_head", default.response_head, duration(TIMEOUT)),
        response_body: table.or(problems, "response_body", default.response_body, duration(TIMEOUT)),
        tunnel_idle: table.or(problems, "tunnel_idle", default.tunnel_idle, duration(TIMEOUT)),
    }
}

/// `[limits]`. A change must fit everything it passes through.
pub(super) fn limits(mut table: Table<'_>, has_state: bool, problems: &mut Problems) -> Limits {
    let default = Limits::default();
    let mut budget = |key, least: u64, default: usize| {
        let found = table.optional(problems, key, size(least..=limits::BUDGET_BYTES_MAX))?;
        Some((found.span(), usize::try_from(*found.get_ref()).unwrap_or(default)))
    };
    let action = budget("action_bytes_max", 1, default.action_bytes_max);
    let in_flight = budget("action_bytes_in_flight_max", 1, default.action_bytes_in_flight_max);
    let answer = budget("answer_held_max", 0, default.answer_held_max);
    let ring = budget("ring_bytes_max", 1, default.ring_bytes_max);
    let spill = budget("spill_bytes_max", limits::RECEIVED_BYTES_MAX as u64, default.spill_bytes_max);

    let value = |found: &Option<(_, usize)>, default| found.as_ref().map_or(default, |(_, value)| *value);
    let limits = Limits {
        body_bytes_max: table.or(
            problems,
            "body_bytes_max",
            default.body_bytes_max,
            size(1..=limits::BODY_BYTES_HARD_MAX),
        ),
        action_bytes_max: value(&action, default.action_bytes_max),
        action_bytes_in_flight_max: value(&in_flight, default.action_bytes_in_flight_max),
        answer_held_max: value(&answer, default.answer_held_max),
        ring_bytes_max: value(&ring, default.ring_bytes_max),
        spill_bytes_max: value(&spill, default.spill_bytes_max),
        connections_max: table.or(
            problems,
            "connections_max",
            default.connections_max as u64,
            integer(16..=limits::CONNECTIONS_MAX as u64),
        ) as usize,
    };
    if let Some((span, octets)) = action.clone().filter(|_| has_state)
        && octets as u64 > limits::ACTION_BYTES_KEPT_MAX
    {
        let message = format!("a journal keeps changes of at most {}", Octets(limits::ACTION_BYTES_KEPT_MAX));
        problems.push(span, Wrong::new(message, "lower it: that is what [state] can keep"));
    }
    // Entry, head and all, must fit the ring.
    let entry_max = limits.action_bytes_max.saturating_add(limits::REQUEST_HEAD_BYTES_MAX);
    for (name, found, whole) in [
        ("ring_bytes_max", &ring, limits.ring_bytes_max),
        ("action_bytes_in_flight_max", &in_flight, limits.action_bytes_in_flight_max),
    ] {
        if entry_max > whole {
            // The key that the file sets is the one to point at; with both set, the budget.
            let span = found.as_ref().or(action.as_ref()).map_or_else(|| table.span(), |(span, _)| span.clone());
            let message = format!(
                "one change of `action_bytes_max` ({}) with its head does not fit `{name}` ({})",
                Octets(limits.action_bytes_max as u64),
                Octets(whole as u64)
            );
            let help = format!("set `{name}` to {} or more, or lower `action_bytes_max`", Octets(entry_max as u64));
            problems.push(span, Wrong::new(message, help));
        }
    }
    table.finish(problems);
    limits
}

/// `[log]`.
pub(super) fn log(mut table: Table<'_>, problems: &mut Problems) -> Log {
    let log = Log {
        level: table.or(problems, "level", LogLevel::default(), word("levels", LogLevel::ALL, LogLevel::as_str, &[])),
        format: table.or(
            problems,
            "format",
            LogFormat::default(),
            word("formats", LogFormat::ALL, LogFormat::as_str, &[]),
        ),
    };
    table.finish(problems);
    log
}

/// `[state]`. `None` only with a problem reported.
pub(super) fn state(mut table: Table<'_>, problems: &mut Problems) -> Option<State> {
    let directory = table.required(problems, "directory", "add `directory = \"/var/lib/antiphon\"`", plain);
    let journal_bytes = limits::JOURNAL_BYTES_MIN..=limits::JOURNAL_BYTES_HARD_MAX;
    let journal_bytes_max = table.or(problems, "journal_bytes_max", limits::JOURNAL_BYTES_MAX, size(journal_bytes));
    let any_file_system = table.or(problems, "any_file_system", false, boolean);
    table.finish(problems);
    let directory = directory?;
    let path = PathBuf::from(*directory.get_ref());
    let is_plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let is_ours = path.is_absolute() && path.parent().is_some() && is_plain;
    if !is_ours || directory.get_ref().len() > limits::STATE_PATH_BYTES_MAX {
        let message = format!(
            "{:?} is not an absolute path of a directory, without `..`, of at most {} octets",
            directory.get_ref(),
            limits::STATE_PATH_BYTES_MAX
        );
        let help = "write \"/var/lib/antiphon\": a directory of antiphon's own, whose parent exists";
        problems.push(directory.span(), Wrong::new(message, help));
        return None;
    }
    Some(State { directory: path, journal_bytes_max, any_file_system })
}
