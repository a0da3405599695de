//! The configuration: text in, a [`Config`] that cannot be wrong out.
//!
//! Pure: no file is read here, no name resolved, no socket opened. Everything that can be judged from the text alone
//! is judged here and reported at once, each with its line and a caret ([`ConfigErrors`]); what only the machine can
//! say (a port in use, a name that does not resolve) is told by whoever finds it.
//!
//! A key that does nothing in this version is refused, never ignored. Text is read by `table.rs`, values by
//! `values.rs`, errors are drawn by `error.rs`; the members of this folder each read one section.

mod child;
mod cost;
mod decisions;
mod dump;
mod error;
mod group;
mod keeping;
mod listen;
mod probe;
mod rule;
mod settings;
mod summary;
mod table;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use toml::de::DeTable;

use self::error::{Problems, Wrong};
use self::table::Table;
use crate::action::{Class, Dialect, RuleSet, Rules, words};
use crate::limits::GROUPS_MAX;
use crate::mirror::OnFull;
use crate::mirror::ack::Level;
use crate::probe::Options;
use crate::route::{ChildTimeouts, ListenerTable, Policy, ReadGate};

pub use self::child::Clash;
pub use self::decisions::{ChildDecisions, Decisions, GroupDecisions};
pub use self::error::{ConfigError, ConfigErrors};
pub use cost::Cost;

/// Where the administration socket is, unless the configuration says otherwise.
pub const ADMIN_SOCKET_DEFAULT: &str = "/run/antiphon/admin.sock";

/// All of a configuration, valid by construction: at least one listener, one group, and a child in each group; every
/// index holds, every bound of `limits.rs` is kept.
#[derive(Debug)]
pub struct Config {
    /// What we listen on, in the order of the file; never empty, addresses differ.
    pub listeners: Vec<Listener>,
    /// The groups, in the order of the file; never empty, names differ.
    pub groups: Vec<Group>,
    /// `[admin]`.
    pub admin: Admin,
    /// `[workers]`.
    pub workers: Workers,
    /// `[timeouts]` that concern clients. Those that concern children are in each group.
    pub timeouts: ClientTimeouts,
    /// `[limits]`.
    pub limits: Limits,
    /// `[log]`.
    pub log: Log,
    /// `[state]`; `None` keeps nothing over a restart.
    pub state: Option<State>,
}

impl Config {
    /// Judges a configuration. `file` is what errors call it; nothing is read from there.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file: if the text is not TOML, the errors of the syntax,
    /// otherwise those of keys and values.
    ///
    /// ```
    /// # use antiphon::config::Config;
    /// let text = r#"
    ///     [[listen]]
    ///     address = "127.0.0.1:9060"
    ///     group = "kv"
    ///     [[group.kv.child]]
    ///     name = "a"
    ///     address = "127.0.0.1:9100"
    /// "#;
    /// let config = Config::parse(text, "antiphon.toml").expect("a good configuration");
    /// assert_eq!(&*config.groups[0].children[0].authority, "127.0.0.1:9100");
    ///
    /// let errors = Config::parse(&text.replace("group =", "grup ="), "antiphon.toml").expect_err("a bad one");
    /// assert!(errors.to_string().contains("help: did you mean \"group\"?"));
    /// ```
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        let mut problems = Problems::default();
        // A byte order mark is what some editors put before UTF-8; TOML has no word on it.
        let unmarked = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let (document, errors) = DeTable::parse_recoverable(unmarked);
        for error in errors {
            let help = "see https://toml.io: strings stand in quotes, tables are [name], arrays of tables [[name]]";
            problems.push(error.span().unwrap_or(0..0), Wrong::new(format!("not TOML: {}", error.message()), help));
        }
        if !problems.is_empty() {
            return Err(problems.into_errors(file, unmarked));
        }
        let config = Self::read(Table::new("the file", document.get_ref(), 0..0), &mut problems);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            // Without a configuration there is a problem: whoever gives None has reported one.
            _ => Err(problems.into_errors(file, unmarked)),
        }
    }

    /// `None` only with a problem reported.
    fn read(mut file: Table<'_>, problems: &mut Problems) -> Option<Self> {
        let has_state = file.find("state").is_some();
        let admin = file.table(problems, "admin", "[admin]");
        let admin = admin.map(|table| settings::admin(table, problems));
        let workers = file.table(problems, "workers", "[workers]");
        let workers = workers.map(|table| settings::workers(table, problems));
        let timeouts = file.table(problems, "timeouts", "[timeouts]");
        let (timeouts, child_timeouts) =
            timeouts.map_or_else(settings::timeouts_default, |table| settings::timeouts(table, problems));
        let limits = file.table(problems, "limits", "[limits]");
        let limits = limits.map(|table| settings::limits(table, has_state, problems));
        let log = file.table(problems, "log", "[log]");
        let log = log.map(|table| settings::log(table, problems));

        let no_group = file.is_open("group");
        let groups = file.table(problems, "group", "[group]");
        let groups = groups.map(|table| table.named(problems)).unwrap_or_default();
        let names: Vec<&str> = groups.iter().map(|(name, _)| *name.get_ref()).collect();
        let listen = file.tables(problems, "listen", "[[listen]]");
        if listen.is_empty() && file.is_open("listen") {
            let help = "add [[listen]] with `address = \"0.0.0.0:9060\"` and `group = \"NAME\"`";
            problems.push(file.span(), Wrong::new("nothing is listened on", help));
        }
        let (listeners, addresses) = listen::listeners(listen, &names, problems);
        if groups.is_empty() && no_group {
            let help = "add [[group.NAME.child]] with `name = \"a\"` and `address = \"10.0.0.1:9100\"`";
            problems.push(file.span(), Wrong::new("there is no group", help));
        }
        if let Some((name, _)) = groups.get(GROUPS_MAX) {
            let wrong = Wrong::new(format!("more than {GROUPS_MAX} groups"), "run several instances of antiphon");
            problems.push(name.span(), wrong);
        }
        let groups = groups
            .into_iter()
            .take(GROUPS_MAX)
            .map(|(name, table)| group::group(&name, table, child_timeouts, &addresses, has_state, problems))
            .collect::<Vec<_>>();
        if let Some((place, address)) = admin.as_ref().and_then(|(admin, place)| Some((place.clone()?, admin.address?)))
        {
            listen::clash(&toml::Spanned::new(place, address), &addresses, problems);
        }

        let state = file.table(problems, "state", "[state]");
        let state = state.and_then(|table| settings::state(table, problems));
        for key in ["pair", "front", "fronts"] {
            file.not_yet(problems, key, "remove it; this instance is the only front until then");
        }
        file.finish(problems);
        Some(Self {
            listeners,
            groups: groups.into_iter().collect::<Option<_>>()?,
            admin: admin.map(|(admin, _)| admin).unwrap_or_default(),
            workers: workers.unwrap_or_default(),
            timeouts,
            limits: limits.unwrap_or_default(),
            log: log.unwrap_or_default(),
            state,
        })
    }
}

/// One `[[listen]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where to listen.
    pub address: SocketAddr,
    /// Only for `[::]`: IPv4 has a listener of its own on this port, so this one must not take it
    /// (`IPV6_V6ONLY`). Otherwise `[::]` serves both.
    pub v6_only: bool,
    /// What goes where: each `[[listen.route]]` in the order of the file, then `group`. Never empty, and no route is
    /// covered by one before it.
    pub table: ListenerTable,
    /// The actions that antiphon itself answers here, for clients in [`Admin::clients`] and groups of the dialect
    /// `aci`.
    pub own: Vec<OwnAction>,
}

words! {
    /// What `[[listen]] own` can name.
    OwnAction {
        /// Shows the children and decides about them.
        EngineManagement = "EngineManagement",
        /// Shows what each child has missed.
        DahReadQueue = "DAHReadQueue",
        /// Drops what a child has missed.
        DahFlushQueue = "DAHFlushQueue",
    }
}

/// One `[group.NAME]`.
#[derive(Debug)]
pub struct Group {
    /// Letters, digits, `.`, `_`, `-`; at most 64.
    pub name: Box<str>,
    /// How actions are read from requests.
    pub dialect: Dialect,
    /// The built-in rules under the user's own.
    pub rule_set: RuleSet,
    /// The group's own rules, then the built-in set, then what an unknown action is.
    pub rules: Arc<Rules>,
    /// The group's own rules as the file has them, each as lines of TOML.
    pub rules_written: Vec<String>,
    /// What an action is that no rule knows.
    pub unknown: Class,
    /// How the child of a read is chosen.
    pub policy: Policy,
    /// When a change is answered.
    pub ack: Level,
    /// From the moment a change is in flight on a child until a child that has not answered is judged: demoted if a
    /// sibling has, else the client gets 504 `pending`.
    pub write_deadline: Duration,
    /// How long newer changes are held back at most while the children get ready for a live one.
    pub live_wait: Duration,
    /// How far behind a child may be that serves reads.
    pub read_gate: ReadGate,
    /// What is kept of changes, where there is a state directory.
    pub keeping: Keeping,
    /// How long a read waits for a child that the gate lets serve it, before 503.
    pub read_wait: Duration,
    /// The children, in the order of their places, which is that of the file. Never empty; names, addresses and places
    /// differ.
    pub children: Vec<Child>,
    /// How many places the group has: those of the children, and some for children that are added while we run. At most
    /// [`CHILDREN_MAX`](crate::limits::CHILDREN_MAX).
    pub places: usize,
    /// The place of the primary at the start: the first, unless it was decided otherwise.
    pub primary: usize,
    /// How children are probed.
    pub probe: Options,
    /// `[group.NAME.timeouts]` over `[timeouts]`.
    pub timeouts: ChildTimeouts,
    /// What the predictive policy is told.
    pub cost: Cost,
    /// With which status errors of our own travel in the dialect `aci`.
    pub aci_errors: AciErrors,
}

words! {
    /// `[group.NAME] aci_errors`.
    #[derive(Default)]
    AciErrors {
        /// With the HTTP status of the error.
        #[default]
        Status = "status",
        /// With 200: for clients that read no answer with another status, as the Java ACI client.
        Envelope = "envelope",
    }
}

/// One `[[group.NAME.child]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The child's identity: letters, digits, `.`, `_`, `-`; at most 64.
    pub name: Box<str>,
    /// As configured, `host:port`, IPv6 in brackets: what the operator is shown, and the Host field if a request has
    /// none.
    pub authority: Box<str>,
    /// What else it calls itself in its tokens (dialect `aci`), spelled as `authority`; no two children share one.
    pub aliases: Box<[Box<str>]>,
    /// Name or address to resolve, without brackets.
    pub host: Box<str>,
    /// Never 0.
    pub port: u16,
    /// Share of the reads, 0 to [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX); 0 is the last resort.
    pub weight: u32,
    /// Where it stands, for the operator and for `predictive`.
    pub location: Option<Box<str>>,
    /// How many actions it serves at once; 0: to be learnt.
    pub slots: u32,
    /// Its number in the group, from 0: an engine's ID. Below [`Group::places`].
    pub place: usize,
    /// What an operator has ordered of it that the file has no key for.
    pub ordered: Ordered,
}

/// What an operator has ordered of a child, beside what the file can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ordered {
    /// Whether it serves.
    pub wanted: Wanted,
    /// It was added while antiphon ran, and has not been attached yet.
    pub needs_reseed: bool,
}

words! {
    /// What an operator wants of a child.
    #[derive(Default)]
    Wanted {
        /// It serves.
        #[default]
        Online = "online",
        /// No reads, no probes; changes wait.
        Offline = "offline",
        /// No new reads; changes wait.
        Draining = "draining",
    }
}

/// `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The Unix socket that `antiphon status` and `antiphon child` speak to.
    pub socket: PathBuf,
    /// The file names the socket. Where it does not, a default that cannot be bound is worth a warning, not a refusal.
    pub socket_named: bool,
    /// TCP address of `/healthz`, `/readyz`, `/metrics`, `/status` and the commands; loopback unless
    /// `allow_remote = true`.
    pub address: Option<SocketAddr>,
    /// Networks whose clients may ask for `own` actions on data listeners; loopback by default.
    pub clients: Vec<IpNet>,
}

impl Admin {
    /// May a client with this address ask for `own` actions? An IPv4 address is one also where it comes as IPv6.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.clients.iter().any(|network| network.contains(&client))
    }
}

/// `[workers]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Workers {
    /// Threads; `None` is one a core.
    pub count: Option<usize>,
    /// What moves octets.
    pub driver: DriverChoice,
}

words! {
    /// `[workers] driver`.
    #[derive(Default)]
    DriverChoice {
        /// io_uring where it works, else epoll.
        #[default]
        Auto = "auto",
        /// io_uring, or refuse to start.
        Uring = "uring",
        /// epoll.
        Epoll = "epoll",
    }
}

/// The time-outs of the client side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From a request's first octet (or the accept) until its head is whole; then 408 and the connection closes.
    pub request_head: Duration,
    /// Without an octet of the body; then 408.
    pub request_body: Duration,
    /// Octets a second that a body must average once `request_body` has passed: a client that drips one octet before
    /// each time-out is not served for ever. 0 switches it off.
    pub request_body_rate_min: u64,
    /// Between requests on one connection; then it is closed without a word.
    pub keep_alive: Duration,
    /// While a client takes none of the octets we have for it; then it is reset.
    pub client_write: Duration,
    /// What is under way at a stop may still end; then it is cut.
    pub drain: Duration,
}

/// `[limits]`: what an operator may change of `limits.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A request body that is streamed to a child; larger is 413.
    pub body_bytes_max: u64,
    /// A body that is held whole (a change, a form); larger is 413.
    pub action_bytes_max: usize,
    /// Bodies held whole by all workers at once; beyond it changes get 503.
    pub action_bytes_in_flight_max: usize,
    /// Of the primary's answer to a change, held until the acknowledgement.
    pub answer_held_max: usize,
    /// Octets of the entries in one group's ring: how much a child may miss and still be replayed to.
    pub ring_bytes_max: usize,
    /// Octets copied out of scarce receive buffers for slow peers, one worker.
    pub spill_bytes_max: usize,
    /// Connections of one worker, clients and children together.
    pub connections_max: usize,
}

/// `[state]`: what a restart finds again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The directory of all that is kept; absolute, never `/`. Ours alone: a second instance is refused.
    pub directory: PathBuf,
    /// Octets of one group's journal.
    pub journal_bytes_max: u64,
    /// Take a file system that forgets what was synced, such as tmpfs.
    pub any_file_system: bool,
}

/// What a group keeps of its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// When it is known for good how far a child has come.
    pub cursor_sync: CursorSync,
    /// Octets on record that one child may be behind.
    pub backlog_bytes_max: u64,
    /// How old the oldest change may be that one child is owed.
    pub backlog_age_max: Duration,
    /// Beyond it, and where the journal is full.
    pub on_full: OnFull,
}

words! {
    /// `[group.NAME] cursor_sync`.
    #[derive(Default)]
    CursorSync {
        /// With the next batch of changes: after a power cut what was confirmed since then is in doubt.
        #[default]
        Batch = "batch",
        /// Before a change is sent that may not be sent again: costs a sync of the disk for each child.
        Each = "each",
    }
}

/// `[log]`; the command line wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log {
    /// Diagnostic lines at this level and above.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
}

words! {
    /// `[log] level`.
    #[derive(Default)]
    LogLevel {
        /// What failed.
        Error = "error",
        /// And what looks wrong.
        Warn = "warn",
        /// And what changed.
        #[default]
        Info = "info",
        /// And why.
        Debug = "debug",
        /// And every step.
        Trace = "trace",
    }
}

words! {
    /// `[log] format`.
    #[derive(Default)]
    LogFormat {
        /// For people.
        #[default]
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}
