//! The real binary as a process: configured, started, watched, stopped.

use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::{self, Ask, Client, NoAnswer};
use super::host::{self, Host};
use super::message::Response;
use super::scripted::Scripted;
use super::{Driver, PATIENCE, Ran, TempDir, ports, run_within};

/// The program under test.
pub const ANTIPHON: &str = env!("CARGO_BIN_EXE_antiphon");

/// The only group of most configurations here.
pub const GROUP: &str = "g";

/// A configuration in the making: one listener, one group.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    sections: Vec<(String, Vec<(String, String)>)>,
    /// Name, port, and more lines of each.
    children: Vec<(String, u16, String)>,
    rules: Vec<String>,
    /// What antiphon is started by: `prlimit …`, `strace …`. Empty: by us.
    under: Vec<String>,
    /// The test has the host for itself, and changes it.
    alone: bool,
    /// More text at the end: other groups.
    tail: String,
    /// More lines of the listener, instead of its group.
    routes: Option<String>,
}

impl Setup {
    /// A group of a dialect with a built-in rule set, on one worker of a driver, children probed by a connect.
    pub fn new(driver: Driver, dialect: &str, rules: &str) -> Self {
        Self::default()
            .group("dialect", text(dialect))
            .group("rules", text(rules))
            .group("policy", text("round_robin"))
            .probe("request", text("tcp"))
            .probe("interval_down", text("100ms"))
            .probe("timeout", text("5s"))
            .set("workers", "count", "1")
            .set("workers", "driver", text(driver.key()))
            // Many of these run at once, also where few descriptors are allowed.
            .set("limits", "connections_max", "512")
            .set("log", "level", text(&std::env::var("ANTIPHON_TEST_LOG").unwrap_or_else(|_| "info".into())))
    }

    /// Adds a child, in order.
    #[must_use]
    pub fn child(mut self, name: &str, port: u16) -> Self {
        self.children.push((name.to_owned(), port, String::new()));
        self
    }

    /// Sets a key of the child that was added last; the value is TOML.
    #[must_use]
    pub fn of_child(mut self, key: &str, value: &str) -> Self {
        let lines = &mut self.children.last_mut().expect("a child").2;
        lines.push_str(&format!("{key} = {value}\n"));
        self
    }

    /// Adds a rule of the group: its keys and values as TOML lines.
    #[must_use]
    pub fn rule(mut self, lines: &str) -> Self {
        self.rules.push(lines.to_owned());
        self
    }

    /// Sets a key of a section; the value is TOML.
    #[must_use]
    pub fn set(mut self, section: &str, key: &str, value: impl Into<String>) -> Self {
        let at = self.sections.iter().position(|(name, _)| name == section).unwrap_or_else(|| {
            self.sections.push((section.to_owned(), Vec::new()));
            self.sections.len() - 1
        });
        let keys = &mut self.sections[at].1;
        keys.retain(|(other, _)| other != key);
        keys.push((key.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn group(self, key: &str, value: impl Into<String>) -> Self {
        self.set(&format!("group.{GROUP}"), key, value)
    }

    #[must_use]
    pub fn probe(self, key: &str, value: impl Into<String>) -> Self {
        self.set(&format!("group.{GROUP}.probe"), key, value)
    }

    /// Has another program start it, which must become it or be its parent.
    #[must_use]
    pub fn under(mut self, program: &Path, arguments: &[&str]) -> Self {
        self.under = vec![program.to_string_lossy().into_owned()];
        self.under.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Adds text at the end: other groups.
    #[must_use]
    pub fn tail(mut self, text: &str) -> Self {
        self.tail.push_str(text);
        self
    }

    /// Routes of the listener, as TOML, instead of all to the one group.
    #[must_use]
    pub fn routes(mut self, text: &str) -> Self {
        self.routes = Some(text.to_owned());
        self
    }

    /// For a test that has the host for itself.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// The text for these addresses.
    pub fn toml(&self, port: u16, admin: u16, socket: &str) -> String {
        let mut out = format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\n");
        match &self.routes {
            None => out.push_str(&format!("group = \"{GROUP}\"\n")),
            Some(routes) => out.push_str(routes),
        }
        let own = self.clone().set("admin", "address", text(&format!("127.0.0.1:{admin}"))).set(
            "admin",
            "socket",
            text(socket),
        );
        for (section, keys) in &own.sections {
            let _ = writeln!(out, "\n[{section}]");
            for (key, value) in keys {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        for (name, port, more) in &self.children {
            let _ =
                writeln!(out, "\n[[group.{GROUP}.child]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n{more}");
        }
        for lines in &self.rules {
            let _ = writeln!(out, "\n[[group.{GROUP}.rule]]\n{lines}");
        }
        out + &self.tail
    }
}

/// A TOML string.
pub fn text(value: &str) -> String {
    format!("\"{value}\"")
}

/// When a start is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// `/readyz` says 200.
    Ready,
    /// The administration address answers, whatever it says.
    Answering,
}

/// A start that came to nothing.
#[derive(Debug)]
pub struct Refusal {
    /// `None` where it had to be killed, for it neither started nor ended.
    pub code: Option<i32>,
    /// All it said, without its configuration.
    pub said: String,
    config: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exit code {:?}\n{}\n--- its configuration\n{}", self.code, self.said, self.config)
    }
}

/// A running antiphon.
#[derive(Debug)]
pub struct Proxy {
    /// Clients come here.
    pub port: u16,
    /// `/status` and the rest.
    pub admin: u16,
    pub dir: TempDir,
    under: Vec<String>,
    /// What it is started with beside our own environment.
    environment: Vec<(String, String)>,
    process: Child,
    exit: Option<ExitStatus>,
    _host: Option<Host>,
}

impl Proxy {
    /// Starts one and waits until it is ready.
    ///
    /// # Panics
    /// When it does not get there; with what it said.
    #[track_caller]
    pub fn start(setup: &Setup) -> Self {
        Self::start_until(setup, Until::Ready)
    }

    #[track_caller]
    pub fn start_until(setup: &Setup, until: Until) -> Self {
        Self::attempt(setup, until).unwrap_or_else(|refusal| panic!("antiphon did not start: {refusal}"))
    }

    /// Starts one, or tells why not.
    pub fn attempt(setup: &Setup, until: Until) -> Result<Self, Refusal> {
        let first = Self::attempt_on(setup, until, ports::free(), ports::free());
        match first {
            // Somebody was quicker than we were with that port.
            Err(refusal) if refusal.said.contains("in use") => {
                Self::attempt_on(setup, until, ports::free(), ports::free())
            }
            other => other,
        }
    }

    /// Starts one on these ports, or tells why not.
    pub fn attempt_on(setup: &Setup, until: Until, port: u16, admin: u16) -> Result<Self, Refusal> {
        let dir = TempDir::new("proxy");
        // For tests that start it as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our own folder");
        let config = setup.toml(port, admin, &dir.join("admin.sock").to_string_lossy());
        dir.write("antiphon.toml", &config);
        let host = (!setup.alone).then(host::shared);
        let process = spawn(&dir, &setup.under, &[]);
        let (under, environment) = (setup.under.clone(), Vec::new());
        let mut proxy = Self { port, admin, dir, under, environment, process, exit: None, _host: host };
        if proxy.comes_up(until) {
            return Ok(proxy);
        }
        let code = proxy.exit_status().and_then(|status| status.code());
        Err(Refusal { code, said: proxy.log(), config })
    }

    fn comes_up(&mut self, until: Until) -> bool {
        let begun = Instant::now();
        while self.exit_status().is_none() && begun.elapsed() < PATIENCE {
            // Not longer: who listens there may be somebody else, who never answers.
            let asked = Client::connect_within(self.admin, Duration::from_secs(2));
            let status = asked.and_then(|mut client| client.ask(&Ask::get("/readyz"))).map(|answer| answer.status());
            match (until, status) {
                (_, Ok(200)) | (Until::Answering, Ok(_)) => return true,
                _ => thread::sleep(Duration::from_millis(10)),
            }
        }
        false
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("antiphon.toml")
    }

    /// All it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("stderr")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.process.try_wait().expect("our own child process");
        }
        self.exit
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a process number");
        // One that has just ended is not an error.
        let _ = kill_process(pid, signal);
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.exit_status() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("still running after {PATIENCE:?}:\n{}", self.log());
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.wait_exit();
        assert!(status.signal() == Some(9) || status.code().is_some(), "{status}");
    }

    /// Starts it again after its end, on the same configuration and ports.
    #[track_caller]
    pub fn start_again(&mut self, until: Until) {
        assert!(self.attempt_again(until), "antiphon did not start again:\n{}", self.log());
    }

    /// The same, where it may end before it has started; whether it has.
    #[track_caller]
    pub fn attempt_again(&mut self, until: Until) -> bool {
        assert!(self.exit_status().is_some(), "it still runs");
        self.process = spawn(&self.dir, &self.under, &self.environment);
        self.exit = None;
        self.comes_up(until)
    }

    /// A variable of its environment from its next start on; `None` takes it away.
    pub fn set_variable(&mut self, name: &str, value: Option<&str>) {
        self.environment.retain(|(other, _)| other != name);
        self.environment.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// GET on the administration address.
    pub fn admin_get(&self, path: &str) -> Result<Response, NoAnswer> {
        client::get(self.admin, path)
    }

    /// GET on the administration socket.
    pub fn socket_get(&self, path: &str) -> Result<Response, NoAnswer> {
        Client::connect_unix(&self.dir.join("admin.sock"))?.ask(&Ask::get(path))
    }

    /// `/status` as a value.
    #[track_caller]
    pub fn status(&self) -> Value {
        let answer = self.admin_get("/status").unwrap_or_else(|why| panic!("/status: {why}\n{}", self.log()));
        assert_eq!(answer.status(), 200, "/status: {answer}");
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("/status: {error}\n{answer}"))
    }

    /// What `/status` says of a child of the group.
    #[track_caller]
    pub fn child(&self, name: &str) -> Value {
        let status = self.status();
        let named = |list: &Value, name: &str| {
            list.as_array()
                .and_then(|list| list.iter().find(|one| one["name"] == name).cloned())
                .unwrap_or_else(|| panic!("no `{name}` in /status: {status:#}"))
        };
        named(&named(&status["groups"], GROUP)["children"], name)
    }

    /// What an operator sees of a child: `up`, `down`, `replaying`, …
    #[track_caller]
    pub fn child_state(&self, name: &str) -> String {
        self.child(name)["state"].as_str().unwrap_or_else(|| panic!("no state in {:#}", self.child(name))).to_owned()
    }

    #[track_caller]
    pub fn wait_child_state(&self, name: &str, wanted: &str) {
        super::eventually_eq(&format!("child {name}"), &wanted.to_owned(), || self.child_state(name));
    }

    /// Runs `antiphon WORDS… -c CONFIG` beside it.
    pub fn command(&self, words: &[&str]) -> Ran {
        run_within(Command::new(ANTIPHON).args(words).arg("-c").arg(self.config()), PATIENCE)
    }

    /// Descriptors that it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).map_or(0, Iterator::count)
    }

    /// Resident memory of its own, octets.
    pub fn resident_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log();
        if thread::panicking() {
            let from = log.len().saturating_sub(4000);
            eprintln!("--- antiphon's last lines\n{}", String::from_utf8_lossy(&log.as_bytes()[from..]));
        } else {
            assert!(!log.contains("panicked at"), "antiphon panicked:\n{log}");
        }
    }
}

fn spawn(dir: &TempDir, under: &[String], environment: &[(String, String)]) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("stderr")).expect("a log file");
    let mut words = under.iter().map(String::as_str).chain([ANTIPHON]);
    let mut command = Command::new(words.next().expect("one at least"));
    command.args(words).arg("run").arg("-c").arg(dir.join("antiphon.toml"));
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
    command.spawn().unwrap_or_else(|error| panic!("{ANTIPHON}: {error}"))
}

/// Runs `antiphon WORDS…` to its end.
pub fn antiphon(words: &[&str]) -> Ran {
    run_within(Command::new(ANTIPHON).args(words), PATIENCE)
}

/// A message says all of this, and nothing panicked.
#[track_caller]
pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

/// What antiphon says where io_uring cannot be had; `None` where it can.
pub fn uring_refusal() -> Option<String> {
    let child = Scripted::start(Vec::new());
    let setup = Setup::new(Driver::Uring, "http", "http").child("a", child.port());
    let said = Proxy::attempt(&setup, Until::Answering).err()?.said;
    said.lines().find(|line| line.contains("io_uring")).map(str::to_owned)
}
