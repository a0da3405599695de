//! What an operator can order of a child, and what comes of it. Whoever brings an order (HTTP, the DAH dialect, the
//! command line) reads it and tells the answer; here it is carried out.
//!
//! An order takes effect at once. What a restart is to find again is noted in the [book](super::book), and the answer
//! waits until it is durable. All of it runs on the control thread, so that two orders never meet half-way: each looks,
//! moves and notes without waiting in between. Each leaves a line in the log with where it came from.

use std::fmt;

use axum::http::StatusCode;

use super::admin::Desk;
use super::front::{DRAINING, OFFLINE};
use super::names::look_up;
use super::until;
use crate::action::Dialect;
use crate::config::{self, ChildDecisions, Clash, Wanted};
use crate::limits::{LEAVE_WAIT, SPARE_PLACES, WEIGHT_MAX};
use crate::mirror::Resolve;
use crate::route::{Admin, Child, GroupTable, Identity, Policy, Shown, Standing};
use crate::sync::Arc;
use crate::time;

/// What can be ordered of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildVerb {
    /// No reads, no probes; changes wait for it.
    Offline,
    /// It is used again, after it has been sent what it missed.
    Online,
    /// No new reads; those in flight end. Changes wait for it.
    Drain,
    /// It leads its group.
    Primary,
    /// The operator's word that it is identical to its siblings again.
    Attach,
    /// Its share of reads, at most [`WEIGHT_MAX`].
    Weight(u32),
    /// It is asked now how it is.
    Probe,
    /// What it missed is dropped: it needs a reseed.
    Flush,
    /// What became of the change that it is in doubt about.
    Resolve(Resolve),
    /// It is new, at this `host:port`.
    Add(Box<str>),
    /// It is at this `host:port` now.
    Edit(Box<str>),
    /// It is not one of its group any more.
    Remove,
}

impl ChildVerb {
    /// All words, in the order of the help text.
    pub const NAMES: [&'static str; 12] = [
        "offline", "online", "drain", "primary", "attach", "weight", "probe", "flush", "resolve", "add", "edit",
        "remove",
    ];

    /// The order that a word names. A weight and an address come as a value beside it, which the others do not have.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn named(word: &str, value: Option<&str>) -> Result<Self, NotAnOrder> {
        let verb = match word {
            "offline" => Self::Offline,
            "online" => Self::Online,
            "primary" => Self::Primary,
            "attach" => Self::Attach,
            "probe" => Self::Probe,
            "flush" => Self::Flush,
            "drain" => Self::Drain,
            "remove" => Self::Remove,
            "add" => Self::Add(value.ok_or(NotAnOrder::Address)?.into()),
            "edit" => Self::Edit(value.ok_or(NotAnOrder::Address)?.into()),
            "weight" => {
                let weight = value.and_then(|value| value.parse().ok()).filter(|weight| *weight <= WEIGHT_MAX);
                return weight.map(Self::Weight).ok_or(NotAnOrder::Weight);
            }
            "resolve" => return value.and_then(Resolve::named).map(Self::Resolve).ok_or(NotAnOrder::Resolve),
            other => return Err(NotAnOrder::Word(other.to_owned())),
        };
        Ok(verb)
    }

    /// The word for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Online => "online",
            Self::Primary => "primary",
            Self::Attach => "attach",
            Self::Weight(_) => "weight",
            Self::Probe => "probe",
            Self::Flush => "flush",
            Self::Drain => "drain",
            Self::Resolve(_) => "resolve",
            Self::Add(_) => "add",
            Self::Edit(_) => "edit",
            Self::Remove => "remove",
        }
    }

    /// The value beside the word, if it has one.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        match self {
            Self::Weight(weight) => Some(weight.to_string()),
            Self::Resolve(resolve) => Some(resolve.as_str().to_owned()),
            Self::Add(address) | Self::Edit(address) => Some(address.to_string()),
            _ => None,
        }
    }

    /// Is it something that a restart is to find again?
    const fn decides(&self) -> bool {
        !matches!(self, Self::Attach | Self::Probe | Self::Flush | Self::Resolve(_))
    }
}

impl fmt::Display for ChildVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Words that are no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnOrder {
    /// No such word.
    #[error("there is no order {0:?}; there are {names}", names = ChildVerb::NAMES.join(", "))]
    Word(String),
    /// A weight without a number, or with too large a one.
    #[error("a weight is a number from 0 to {WEIGHT_MAX}")]
    Weight,
    /// A word that resolves nothing.
    #[error("a doubt is resolved as applied, lost or resend: write `?to=applied`")]
    Resolve,
    /// An address is missing.
    #[error("the address is missing: write `?to=HOST:PORT`")]
    Address,
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No group has such a child.
    #[error("there is no child {0:?}; `antiphon child ls` lists them")]
    NoSuchChild(String),
    /// More than one group has.
    #[error("several groups have a child {0:?}; say which: GROUP/{0}")]
    WhichGroup(String),
    /// The child is live: nothing is missing on it.
    #[error("{0:?} is {1} and has every change: there is nothing to attach")]
    NothingToAttach(String, Shown),
    /// The child is live: nothing waits for it.
    #[error("{0:?} is {1} and is sent every change: there is nothing to flush")]
    NothingToFlush(String, Shown),
    /// Nothing is to be resolved.
    #[error("{0:?} is in doubt about no change: there is nothing to resolve")]
    NotInDoubt(String),
    /// An offline child is not asked anything.
    #[error("{0:?} is offline: it is not probed until it is online")]
    NotProbed(String),
    /// There is no such group.
    #[error("there is no group {0:?}; `antiphon child ls` lists them")]
    NoSuchGroup(String),
    /// A new child is of one group.
    #[error("there are several groups; say which one gets the child: GROUP/{0}")]
    WhichGroupGets(String),
    /// The name or the address is none.
    #[error("{0}")]
    Wrong(String),
    /// The name leads nowhere.
    #[error("{0} leads nowhere: {1}; nothing was done")]
    Unresolved(Box<str>, String),
    /// It cannot stand beside the others.
    #[error("{0}: {help}", help = .0.help())]
    Clash(Clash),
    /// All places are taken.
    #[error(
        "group {0:?} has no place left: at most {SPARE_PLACES} children can be added to those of the configuration; write \
         them there, and restart"
    )]
    NoPlace(String),
    /// The lane has not left yet.
    #[error("the place of {0:?} is being left: what is in flight there has to end first; try again")]
    NotLeft(String),
    /// Without children there is no group.
    #[error("{0:?} is the last child of its group, and cannot be removed")]
    LastOne(String),
    /// It is done, and is not durable.
    #[error(
        "{0}, but that cannot be kept and a restart forgets it: {1}; make room for [state] directory, and order it again"
    )]
    NotKept(String, String),
}

impl Desk {
    /// Carries out an order; tells what was done, once it is durable. `by` is who gave it, for the log. A child that is
    /// added without a name is given one.
    ///
    /// # Errors
    /// The child cannot be told from the name, or is not in a state for the order; or it is done, and cannot be kept.
    pub async fn order(&self, group: Option<&str>, name: &str, verb: &ChildVerb, by: &str) -> Result<String, Refused> {
        let (table, child, done) = match verb {
            ChildVerb::Add(address) => self.add(group, name, address).await?,
            ChildVerb::Edit(address) => self.edit(group, name, address).await?,
            ChildVerb::Remove => self.remove(group, name)?,
            _ => self.decide(group, name, verb)?,
        };
        let name = child.name();
        tracing::info!(group = %table.name, child = %name, %verb, now = %child.shown(), by, "order of the operator");
        let done = format!("{}/{name} {done}", table.name);
        if let Err(error) = self.book.keep().await {
            return Err(Refused::NotKept(done, error.to_string()));
        }
        if *verb == ChildVerb::Remove {
            // So that who asked may stop the server. That it takes longer is nobody's fault but the host's.
            let mirror = &self.view.mirrors[table.index];
            let _ = tokio::time::timeout(LEAVE_WAIT, until(|| mirror.is_left(child.index))).await;
        }
        if *verb == ChildVerb::Attach {
            let mirror = &self.view.mirrors[table.index];
            let ask = mirror.attaches(child.index);
            let kept = tokio::time::timeout(LEAVE_WAIT, until(|| mirror.is_attached(child.index, ask))).await;
            if kept.is_err() {
                let why = mirror.failed().unwrap_or("the journal takes long").to_owned();
                return Err(Refused::NotKept(done, why));
            }
        }
        if verb.decides() && !self.book.is_kept() {
            return Ok(format!("{done}; a restart forgets it, for there is no [state]"));
        }
        Ok(done)
    }

    fn decide(&self, group: Option<&str>, name: &str, verb: &ChildVerb) -> Result<Done, Refused> {
        let (table, child) = self.find(group, name)?;
        let mirror = &self.view.mirrors[table.index];
        let now = time::now();
        let before = child.shown();
        let done = match *verb {
            ChildVerb::Drain if child.admin() == Admin::Draining => "was draining already",
            ChildVerb::Offline if child.admin() == Admin::Offline => "was offline already",
            ChildVerb::Online if child.admin() == Admin::Online => "was online already",
            ChildVerb::Primary if table.primary() == child.index => "was the primary already",
            ChildVerb::Attach if child.standing() == Standing::Live && child.doubt().is_none() => {
                return Err(Refused::NothingToAttach(name.to_owned(), before));
            }
            ChildVerb::Flush if child.standing() == Standing::Live => {
                return Err(Refused::NothingToFlush(name.to_owned(), before));
            }
            ChildVerb::Flush if child.standing() == Standing::NeedsReseed => {
                "needs a reseed already: nothing waits for it"
            }
            ChildVerb::Probe if child.admin() == Admin::Offline => return Err(Refused::NotProbed(name.to_owned())),
            ChildVerb::Weight(weight) if child.weight() == weight => "had that weight already",
            ChildVerb::Weight(weight) => {
                child.set_weight(weight);
                self.book.note_child(&table, name, |decided| decided.weight = Some(weight));
                "has its new weight"
            }
            ChildVerb::Resolve(_) if child.doubt().is_none() => return Err(Refused::NotInDoubt(name.to_owned())),
            ChildVerb::Resolve(resolve) => {
                mirror.resolve(child.index, resolve);
                match resolve {
                    Resolve::Applied => "counts as having carried it out, and goes on behind it",
                    Resolve::Lost => "is sent it as for the first time",
                    Resolve::Resend => "is sent it again",
                }
            }
            ChildVerb::Probe => {
                child.health().want_probe();
                mirror.notice(child.index);
                "is being asked how it is"
            }
            ChildVerb::Flush => {
                mirror.flush(child.index);
                "is sent nothing of what it missed: it needs a reseed, and then an attach"
            }
            ChildVerb::Offline => {
                child.set_admin(Admin::Offline, OFFLINE, now);
                mirror.notice(child.index);
                self.book.note_child(&table, name, |decided| decided.wanted = Some(Wanted::Offline));
                "is offline: no reads, no probes; changes wait for it"
            }
            ChildVerb::Online => {
                table.online(child.index, now);
                mirror.notice(child.index);
                self.book.note_child(&table, name, |decided| decided.wanted = None);
                match child.standing() {
                    Standing::Diverged | Standing::NeedsReseed => {
                        "is online: its data still has to be made identical, and then attached"
                    }
                    _ => "is online: it will be probed, sent what it missed, and then read from",
                }
            }
            ChildVerb::Drain => {
                child.set_admin(Admin::Draining, DRAINING, now);
                mirror.notice(child.index);
                self.book.note_child(&table, name, |decided| decided.wanted = Some(Wanted::Draining));
                "is draining: no new reads; changes wait for it"
            }
            ChildVerb::Primary => {
                table.set_primary(child.index);
                self.book.note_primary(&table);
                match (table.policy, before) {
                    (Policy::Failover, Shown::Up) => "is the primary of its group",
                    (Policy::Failover, _) => "is the primary of its group until the next read finds it away",
                    _ => "is the primary of its group: its answers to changes are returned; reads follow the policy",
                }
            }
            ChildVerb::Attach => {
                mirror.attach(child.index);
                self.book.note_child(&table, name, |decided| decided.needs_reseed = false);
                "is taken as identical as of now: once a probe is good it gets the next change, and reads"
            }
            ChildVerb::Add(_) | ChildVerb::Edit(_) | ChildVerb::Remove => unreachable!("carried out elsewhere"),
        };
        Ok((table, child, done.to_owned()))
    }

    async fn add(&self, group: Option<&str>, name: &str, address: &str) -> Result<Done, Refused> {
        let table = self.group(group, name)?;
        let named = if name.is_empty() { "new" } else { name };
        let mut added = config::Child::parse(named, address).map_err(Refused::Wrong)?;
        let addresses = self.resolve(&added).await?;
        // Nothing is waited for from here on.
        let filed = self.book.filed();
        let mirror = &self.view.mirrors[table.index];
        let is_free = |place: &usize| table.children[*place].is_vacant() && mirror.is_left(*place);
        let before = filed.find(table.index, name);
        let place = match before {
            Some((place, _)) => Some(place),
            None => (filed.count(table.index)..table.children.len()).find(is_free),
        };
        let place = place.ok_or_else(|| Refused::NoPlace(table.name.to_string()))?;
        if name.is_empty() {
            let taken = |name: &str| table.child(name).is_some() || filed.find(table.index, name).is_some();
            let mut names = (place..).map(|number| format!("engine{number}"));
            added.name = names.find(|name| !taken(name)).unwrap_or_default().into();
        }
        self.beside(&table, &added, None)?;
        if !is_free(&place) {
            return Err(Refused::NotLeft(added.name.to_string()));
        }
        let child = table.children[place].clone();
        let weight = before.map_or(added.weight, |(_, filed)| filed.weight());
        // A child of the configuration that comes back stands where it stood, and goes by what it went by.
        let (location, aliases) = match before {
            Some(_) => (child.location(), child.identity().aliases.clone()),
            None => (None, Arc::default()),
        };
        let identity = Identity { name: (&*added.name).into(), host: (&*added.authority).into(), aliases, location };
        table.occupy(place, identity, addresses, weight, time::now());
        let needs_reseed = mirror.last_sequence() > 0;
        if needs_reseed {
            mirror.notice(place);
        } else {
            mirror.join(place);
        }
        self.book.note_child(&table, &added.name, |decided| {
            let address = Some(added.authority.to_string());
            *decided = ChildDecisions { added: Some(place), address, needs_reseed, ..ChildDecisions::default() };
        });
        let what = if table.rules.dialect() == Dialect::Aci { "engine" } else { "place" };
        let done = format!(
            "is {what} {place}, at {}: {}",
            added.authority,
            match needs_reseed {
                true => "it needs a reseed: copy a good child's data to it, then attach it",
                false => "no change has come yet, so it is taken as identical, and used once a probe is good",
            }
        );
        Ok((table, child, done))
    }

    async fn edit(&self, group: Option<&str>, name: &str, address: &str) -> Result<Done, Refused> {
        self.find(group, name)?;
        let moved = config::Child::parse(name, address).map_err(Refused::Wrong)?;
        let addresses = self.resolve(&moved).await?;
        let (table, child) = self.find(group, name)?;
        if *child.host() == *moved.authority {
            return Ok((table, child, "was there already".to_owned()));
        }
        self.beside(&table, &moved, Some(child.index))?;
        table.readdress(child.index, &moved.authority, addresses, time::now());
        self.view.mirrors[table.index].notice(child.index);
        let address = moved.authority.to_string();
        self.book.note_child(&table, name, |decided| decided.address = Some(address));
        let then = match matches!(child.standing(), Standing::Diverged | Standing::NeedsReseed) {
            true => "its data still has to be made identical, and then attached",
            false => {
                "it is taken for the same server, and used once a probe there is good. If it is another one, take it \
                 offline until it is identical"
            }
        };
        let done = format!("is at {}: {then}", moved.authority);
        Ok((table, child, done))
    }

    fn remove(&self, group: Option<&str>, name: &str) -> Result<Done, Refused> {
        let (table, child) = self.find(group, name)?;
        if !table.vacate(child.index, time::now()) {
            return Err(Refused::LastOne(name.to_owned()));
        }
        self.view.mirrors[table.index].notice(child.index);
        self.book.note_removed(&table, name);
        Ok((table, child, "is removed: nothing new is sent to it".to_owned()))
    }

    async fn resolve(&self, child: &config::Child) -> Result<Vec<std::net::SocketAddr>, Refused> {
        look_up(&child.authority).await.map_err(|why| Refused::Unresolved(child.authority.clone(), why))
    }

    /// May it stand beside the others? `place` is its own, if it has one.
    fn beside(&self, table: &GroupTable, child: &config::Child, place: Option<usize>) -> Result<(), Refused> {
        let others: Vec<_> =
            table.occupied().filter(|other| Some(other.index) != place).map(|other| other.identity().clone()).collect();
        let others = others.iter().flat_map(|other| {
            let aliases = other.aliases.iter().map(|alias| &**alias);
            aliases.chain([&*other.host]).map(|address| (&*other.name, address))
        });
        child.beside(others, self.view.listeners.iter().copied()).map_err(Refused::Clash)
    }

    /// The group of that name; without one, the only one.
    fn group(&self, group: Option<&str>, child: &str) -> Result<Arc<GroupTable>, Refused> {
        let groups = &self.view.routes.load_full().groups;
        match (group, &**groups) {
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(Refused::WhichGroupGets(child.to_owned())),
            (Some(name), groups) => {
                let found = groups.iter().find(|table| *table.name == *name);
                found.cloned().ok_or_else(|| Refused::NoSuchGroup(name.to_owned()))
            }
        }
    }

    fn find(&self, group: Option<&str>, name: &str) -> Result<(Arc<GroupTable>, Arc<Child>), Refused> {
        let routes = self.view.routes.load_full();
        if let Some(group) = group
            && !routes.groups.iter().any(|table| &*table.name == group)
        {
            return Err(Refused::NoSuchGroup(group.to_owned()));
        }
        let mut found = routes
            .groups
            .iter()
            .filter(|table| group.is_none_or(|group| &*table.name == group))
            .filter_map(|table| Some((table, table.child(name)?)));
        let (table, child) = found.next().ok_or_else(|| Refused::NoSuchChild(name.to_owned()))?;
        if found.next().is_some() {
            return Err(Refused::WhichGroup(name.to_owned()));
        }
        Ok((table.clone(), child.clone()))
    }
}

/// An order that was carried out: on which child, and what was done in words that follow its name.
type Done = (Arc<GroupTable>, Arc<Child>, String);

impl Refused {
    /// The HTTP status for it.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchChild(_) | Self::NoSuchGroup(_) => StatusCode::NOT_FOUND,
            Self::Wrong(_) | Self::Unresolved(..) | Self::WhichGroupGets(_) => StatusCode::BAD_REQUEST,
            Self::WhichGroup(_)
            | Self::NothingToAttach(..)
            | Self::NothingToFlush(..)
            | Self::NotInDoubt(_)
            | Self::NotProbed(_)
            | Self::Clash(_)
            | Self::NoPlace(_)
            | Self::NotLeft(_)
            | Self::LastOne(_) => StatusCode::CONFLICT,
            Self::NotKept(..) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
