//! The routing table: listener, host and path to a group. First match wins.
//!
//! Routing is not access control: a path is compared octet by octet as it came, so `/%61` is not `/a`.

use super::group::GroupTable;
use crate::sync::Arc;

/// What goes where: an immutable snapshot, swapped whole by control.
#[derive(Debug)]
pub struct RouteTable {
    /// In the order of the configuration.
    pub listeners: Vec<ListenerTable>,
    /// In the order of the configuration; [`GroupTable::index`] is the place here.
    pub groups: Vec<Arc<GroupTable>>,
}

/// The routes of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTable {
    /// Tried in order.
    pub routes: Vec<Route>,
    /// The group of a request that no route takes; an index in [`RouteTable::groups`].
    pub default: Option<usize>,
}

/// One route: requests with this host and path go to this group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The host it is for.
    pub host: HostPattern,
    /// Path prefix, whole segments: `/kv` is for `/kv` and `/kv/a`, not for `/kvx`; `/kv/` for what is below it only.
    /// `None` is any path.
    pub path: Option<Box<str>>,
    /// An index in [`RouteTable::groups`].
    pub group: usize,
}

/// Which hosts a route is for. Names are compared without regard to case (RFC 9110 4.2.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host, and requests without one.
    Any,
    /// This host.
    Is(Box<str>),
    /// Every host that ends so; begins with a dot. `.example.com` is for `a.b.example.com`, not for `example.com`.
    Below(Box<str>),
}

impl RouteTable {
    /// # Panics
    /// If a route or a listener's default names no group, or a group or child is not at its index: our own mistake.
    #[must_use]
    pub fn new(listeners: Vec<ListenerTable>, groups: Vec<Arc<GroupTable>>) -> Self {
        for (index, group) in groups.iter().enumerate() {
            assert_eq!(group.index, index, "a group is at its index");
            assert!(group.occupied().next().is_some(), "a group has a child");
            assert!(group.children.iter().enumerate().all(|(i, child)| child.index == i), "a child is at its index");
        }
        for listener in &listeners {
            let named = listener.routes.iter().map(|route| route.group).chain(listener.default);
            assert!(named.max().is_none_or(|group| group < groups.len()), "a route leads to a group");
        }
        Self { listeners, groups }
    }

    /// The group of a request: `host` is the Host field or the target's authority, with or without a port; `path` the
    /// target in origin form, with or without a query.
    #[must_use]
    pub fn route(&self, listener: usize, host: Option<&[u8]>, path: &[u8]) -> Option<&Arc<GroupTable>> {
        let listener = self.listeners.get(listener)?;
        let host = host.map_or(&b""[..], without_port);
        let path = path.split(|octet| *octet == b'?').next().unwrap_or_default();
        let found = listener.routes.iter().find(|route| route.fits(host, path));
        self.groups.get(found.map_or(listener.default, |route| Some(route.group))?)
    }
}

impl ListenerTable {
    /// The groups that requests can come to from here. One that several routes lead to comes several times.
    pub fn groups(&self) -> impl Iterator<Item = usize> + '_ {
        self.routes.iter().map(|route| route.group).chain(self.default)
    }

    /// The group, where all requests that come to one come to the same.
    #[must_use]
    pub fn only_group(&self) -> Option<usize> {
        let mut groups = self.groups();
        let first = groups.next()?;
        groups.all(|group| group == first).then_some(first)
    }
}

impl Route {
    /// Is it for this host (without a port) and path (without a query)?
    fn fits(&self, host: &[u8], path: &[u8]) -> bool {
        self.host.fits(host) && self.path.as_ref().is_none_or(|prefix| is_below(path, prefix.as_bytes()))
    }
}

impl HostPattern {
    /// From the text of a configuration: `example.com`, or `*.example.com`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.strip_prefix('*') {
            Some("") => Self::Any,
            Some(suffix) => Self::Below(suffix.into()),
            None => Self::Is(text.into()),
        }
    }

    fn fits(&self, host: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Is(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            Self::Below(suffix) => host
                .len()
                .checked_sub(suffix.len())
                .is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(suffix.as_bytes())),
        }
    }
}

/// `host` without its port and without the root's dot. An IPv6 address keeps its brackets.
fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|octet| *octet == b':');
    let bracket = host.iter().rposition(|octet| *octet == b']');
    let name = match colon {
        Some(colon) if bracket.is_none_or(|bracket| bracket < colon) => &host[..colon],
        _ => host,
    };
    name.strip_suffix(b".").unwrap_or(name)
}

/// Is `path` equal to `prefix`, or below it by whole segments?
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.is_empty() || prefix.ends_with(b"/"))
}

#[cfg(test)]
mod tests;
