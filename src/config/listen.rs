//! `[[listen]]` and `[[listen.route]]`: where requests come in and which group they go to.

use std::net::{IpAddr, SocketAddr};

use toml::Spanned;
use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::table::Table;
use super::values::{Judged, did_you_mean, host_name, list, socket_address, text, word};
use super::{Listener, OwnAction};
use crate::limits::{LISTENERS_MAX, ROUTES_MAX};
use crate::route::{HostPattern, ListenerTable, Route};

const OWN_LATER: &[(&str, &str)] = &[("DiscoverFronts", "leave it out; this instance is the only front until then")];

/// Every `[[listen]]`, and their addresses with their places. `groups` are the groups' names by index.
pub(super) fn listeners(
    tables: Vec<Table<'_>>,
    groups: &[&str],
    problems: &mut Problems,
) -> (Vec<Listener>, Vec<Spanned<SocketAddr>>) {
    if let Some(table) = tables.get(LISTENERS_MAX) {
        let message = format!("more than {LISTENERS_MAX} listeners");
        problems.push(table.span(), Wrong::new(message, "serve several groups by routes of one listener"));
    }
    let mut listeners = Vec::new();
    let mut addresses: Vec<Spanned<SocketAddr>> = Vec::new();
    for table in tables.into_iter().take(LISTENERS_MAX) {
        let Some((address, table, own)) = listener(table, groups, problems) else { continue };
        clash(&address, &addresses, problems);
        listeners.push(Listener { address: *address.get_ref(), v6_only: false, table, own });
        addresses.push(address);
    }
    for index in 0..listeners.len() {
        let it = listeners[index].address;
        let wildcard = it.is_ipv6() && it.ip().is_unspecified();
        listeners[index].v6_only =
            wildcard && listeners.iter().any(|other| other.address.is_ipv4() && other.address.port() == it.port());
    }
    (listeners, addresses)
}

/// Refuses `address` where one of `others` has its port already, itself or by a wildcard.
pub(super) fn clash(address: &Spanned<SocketAddr>, others: &[Spanned<SocketAddr>], problems: &mut Problems) {
    let new = address.get_ref();
    let taken = others.iter().map(Spanned::get_ref).find(|other| {
        let covers = other.ip() == new.ip() || other.ip().is_unspecified() || new.ip().is_unspecified();
        other.port() == new.port() && other.is_ipv4() == new.is_ipv4() && covers
    });
    if let Some(taken) = taken {
        let message = format!("{new} is taken: {taken} is listened on already");
        problems.push(address.span(), Wrong::new(message, "choose another port, or use routes of one listener"));
    }
}

fn listener(
    mut table: Table<'_>,
    groups: &[&str],
    problems: &mut Problems,
) -> Option<(Spanned<SocketAddr>, ListenerTable, Vec<OwnAction>)> {
    let address = table.required(problems, "address", "add `address = \"0.0.0.0:9060\"`", socket_address);
    let route_tables = table.tables(problems, "route", "[[listen.route]]");
    if table.is_open("group") && table.is_open("route") {
        let advice = "add `group = \"NAME\"`, or a [[listen.route]] below it";
        problems.push(table.span(), Wrong::new("[[listen]] has neither `group` nor a route", advice));
    }
    if let Some(surplus) = route_tables.get(ROUTES_MAX) {
        problems.push(surplus.span(), Wrong::new(format!("more than {ROUTES_MAX} routes"), "use another listener"));
    }
    let routes = routes(route_tables, groups, problems);
    let group = table.optional(problems, "group", text);
    let default = group.and_then(|name| {
        if routes.iter().any(|route| route.host == HostPattern::Any && route.path.is_none()) {
            let message = "a route of this listener takes all requests already";
            problems.push(name.span(), Wrong::new(message, "remove `group` or that route"));
        }
        index_of(&name, groups, problems)
    });
    let owns = word("actions", OwnAction::ALL, OwnAction::as_str, OWN_LATER);
    let own = table.or(problems, "own", OwnAction::ALL.to_vec(), list(owns));
    let later = "this listener speaks plain HTTP; put a TLS terminator before it until then";
    table.not_yet(problems, "tls", later);
    table.not_yet(
        problems,
        "proxy_protocol",
        "remove it; the peer of the connection is taken for the client until then",
    );
    table.finish(problems);
    Some((address?, ListenerTable { routes, default }, own))
}

/// The routes in the order of the file. One that an earlier one covers would never be taken, and is refused.
fn routes(tables: Vec<Table<'_>>, groups: &[&str], problems: &mut Problems) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(tables.len());
    for mut table in tables.into_iter().take(ROUTES_MAX) {
        let before = problems.count();
        let host = table.or(problems, "host", HostPattern::Any, host_pattern);
        let path = table.or(problems, "path", None, path_prefix);
        let readable = before == problems.count();
        let group = table.required(problems, "group", "add `group = \"NAME\"`", text);
        let group = group.and_then(|group| index_of(&group, groups, problems));
        // An unknown group is reported; the route stays, so that those behind it are judged.
        let route = Route { host, path, group: group.unwrap_or_default() };
        if readable && routes.iter().any(|earlier| covers(earlier, &route)) {
            let advice = "move it up, or remove it: the first route that fits a request takes it";
            problems.push(table.span(), Wrong::new("a route before this one takes all its requests", advice));
        }
        table.finish(problems);
        if readable {
            routes.push(route);
        }
    }
    routes
}

/// Does `earlier` fit every request that `later` fits?
fn covers(earlier: &Route, later: &Route) -> bool {
    let host = match (&earlier.host, &later.host) {
        (HostPattern::Any, _) => true,
        (HostPattern::Is(a), HostPattern::Is(b)) => a == b,
        (HostPattern::Below(a), HostPattern::Is(b) | HostPattern::Below(b)) => b.ends_with(&**a),
        _ => false,
    };
    let path = match (&earlier.path, &later.path) {
        (None, _) => true,
        (Some(a), Some(b)) => {
            b.strip_prefix(&**a).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || a.ends_with('/'))
        }
        _ => false,
    };
    host && path
}

fn index_of(name: &Spanned<&str>, groups: &[&str], problems: &mut Problems) -> Option<usize> {
    let index = groups.iter().position(|group| group == name.get_ref());
    if index.is_none() {
        let mut help = did_you_mean(name.get_ref(), groups);
        if help.is_empty() {
            help = match groups {
                [] => "write [group.NAME] with its children".to_owned(),
                some => format!("groups of this file: {}", some.join(", ")),
            };
        }
        problems.push(name.span(), Wrong::new(format!("no group is called {:?}", name.get_ref()), help));
    }
    index
}

/// A host without a port, `*.name` for all names below it; `*` alone is any.
fn host_pattern(value: &DeValue<'_>) -> Judged<HostPattern> {
    let found = text(value)?;
    let name = found.strip_prefix("*.").unwrap_or(found);
    let address = || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if found == "*" || host_name(name).is_some() || (name == found && address()) {
        return Ok(HostPattern::new(&found.trim_end_matches('.').to_ascii_lowercase()));
    }
    let message = format!("{found:?} is not a host");
    Err(Wrong::new(message, "write a name without a port, \"kv.example\", or \"*.example\" for all below it"))
}

/// A path prefix of whole segments; `/` alone is any.
fn path_prefix(value: &DeValue<'_>) -> Judged<Option<Box<str>>> {
    let found = text(value)?;
    let fits = |octet: u8| octet.is_ascii_graphic() && !matches!(octet, b'*' | b'?' | b'#');
    if !found.starts_with('/') || !found.bytes().all(fits) {
        let message = format!("{found:?} is not a path prefix");
        let help = "write the first segments of a path, \"/kv\": it holds for /kv and all below it, without a `*`";
        return Err(Wrong::new(message, help));
    }
    Ok((found != "/").then(|| found.into()))
}
