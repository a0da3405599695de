//! `[[group.NAME.child]]`, and a child that an operator names while we run: judged alike.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::table::Table;
use super::values::{HostPort, Judged, host_port, integer, name, plain, text};
use super::{Child, Ordered};
use crate::action::Dialect;
use crate::limits::{ALIASES_MAX, CHILDREN_MAX, SLOTS_MAX, SPARE_PLACES, WEIGHT_MAX};

/// A child's weight unless it has one: hundredths of an ordinary child read well.
const WEIGHT_DEFAULT: u64 = 100;

/// Why a child cannot stand beside others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Clash {
    /// Its name is taken.
    #[error("this group has a child {0:?} already")]
    Name(String),
    /// Its address is taken.
    #[error("child {0:?} has this address already")]
    Address(String),
    /// It would be antiphon itself.
    #[error("this is our own listener {0}")]
    Ourselves(SocketAddr),
}

/// The children of a group, in the order of the file.
pub(super) fn children(
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
        let Some((mut child, places)) = child(table, dialect, problems) else { continue };
        let others = || children.iter().map(|other| (&*other.name, &*other.authority));
        let listeners = || listeners.iter().map(|listener| *listener.get_ref());
        let span = places.address.clone();
        // The name, the address and the listener are three things to mend.
        let name = others().any(|(name, _)| name == &*child.name).then(|| Clash::Name(child.name.to_string()));
        let address = child.twin(others()).or_else(|| child.listener(listeners()));
        for (clash, place) in [(name, places.name), (address, places.address)] {
            if let Some(clash) = clash {
                problems.push(place, Wrong::new(clash.to_string(), clash.help()));
            }
        }
        if let Some((name, alias)) = children.iter().find_map(|other| shared_name(&child, other)) {
            let message = format!("child {name:?} goes by {alias} already");
            let help = "a token that names it could belong to either child: give each names of its own";
            problems.push(places.alias.unwrap_or(span), Wrong::new(message, help));
        }
        child.place = children.len();
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
    let aliases = alias.map_or_else(Box::default, |alias| alias.into_inner().iter().map(authority).collect());
    let child = Child { weight: weight as u32, location, slots: slots as u32, aliases, ..Child::at(name?, address) };
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

/// How many places a group has that begins with so many children.
pub(super) const fn places(children: usize) -> usize {
    let wanted = children + SPARE_PLACES;
    if wanted < CHILDREN_MAX { wanted } else { CHILDREN_MAX }
}

// === impl Child ===

impl Child {
    /// A child as an operator names it: with the default weight, in the first place.
    ///
    /// # Errors
    /// What is wrong with the name or the address, and what to write.
    ///
    /// ```
    /// # use antiphon::config::Child;
    /// let child = Child::parse("c", "[0:0::1]:9100").expect("a child");
    /// assert_eq!(&*child.authority, "[::1]:9100");
    /// assert!(Child::parse("c", "http://c/").expect_err("a URL").contains("where a host and a port belong"));
    /// ```
    pub fn parse(child: &str, address: &str) -> Result<Self, String> {
        let told = |Wrong { message, help }: Wrong| format!("{message}: {help}");
        let name = name(child).map_err(told)?;
        let address = host_port(&DeValue::String(address.into())).map_err(told)?;
        Ok(Self::at(name, address))
    }

    fn at(name: &str, address: HostPort) -> Self {
        Self {
            name: name.into(),
            authority: authority(&address),
            aliases: Box::default(),
            host: address.host.into(),
            port: address.port,
            weight: WEIGHT_DEFAULT as u32,
            location: None,
            slots: 0,
            place: 0,
            ordered: Ordered::default(),
        }
    }

    /// The same child at the address of another.
    pub(super) fn moved_to(&mut self, other: Self) {
        (self.authority, self.host, self.port) = (other.authority, other.host, other.port);
    }

    /// What others must not be called or be at: its name, with each address that it goes by.
    pub fn goes_by(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        [&self.authority].into_iter().chain(&self.aliases).map(|address| (&*self.name, &**address))
    }

    /// Why it cannot stand beside these, given by name and each address that they [go by](Self::goes_by), behind these
    /// listeners.
    ///
    /// # Errors
    /// The first reason.
    pub fn beside<'o>(
        &self,
        others: impl Iterator<Item = (&'o str, &'o str)> + Clone,
        listeners: impl Iterator<Item = SocketAddr>,
    ) -> Result<(), Clash> {
        let name = others.clone().any(|(name, _)| name == &*self.name).then(|| Clash::Name(self.name.to_string()));
        name.or_else(|| self.twin(others)).or_else(|| self.listener(listeners)).map_or(Ok(()), Err)
    }

    fn twin<'o>(&self, mut others: impl Iterator<Item = (&'o str, &'o str)>) -> Option<Clash> {
        others.find(|(_, authority)| *authority == &*self.authority).map(|(name, _)| Clash::Address(name.to_owned()))
    }

    fn listener(&self, mut listeners: impl Iterator<Item = SocketAddr>) -> Option<Clash> {
        listeners.find(|listener| is_self(self, *listener)).map(Clash::Ourselves)
    }
}

// === impl Clash ===

impl Clash {
    /// What to do about it.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Name(_) => "give each child a name of its own",
            Self::Address(_) => "every change would reach that server twice",
            Self::Ourselves(_) => "name the server behind us, not antiphon itself",
        }
    }
}
