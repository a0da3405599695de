//! `antiphon demo`: three mirrored servers, the front and a live view in one process, without a configuration.
//!
//! It leaves nothing behind: servers and front listen on 127.0.0.1 and end with the process. With `--for` it proves
//! itself: it drives reads and changes, stops a server, brings it back, and compares all three.

mod drive;
mod store;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdin, stdout};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::sleep;

use self::drive::{Doors, Tally};
use self::store::Stores;
use crate::config::{Config, DriverChoice};
use crate::control::front::View;
use crate::control::status::Status;
use crate::control::{Book, Front, StartError, on_runtime};
use crate::time;

/// How the demo runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemoOptions {
    /// Drive traffic for this long, judge, and end; `None`: until interrupted.
    pub run_for: Option<Duration>,
    /// What moves octets.
    pub driver: DriverChoice,
}

/// Runs the demo; tells on standard output what happens.
#[must_use]
pub fn run(options: DemoOptions) -> ExitCode {
    match on_runtime(options.driver, demo(options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("antiphon: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(options: DemoOptions) -> Result<bool, StartError> {
    let stores = Stores::start(CHILDREN).map_err(StartError::Thread)?;
    let doors = Doors { http: free(HTTP_PORT)?, aci: free(ACI_PORT)? };
    let text = configuration(&stores.addresses, doors, options.driver);
    let config = Config::parse(&text, "demo").map_err(|errors| StartError::Driver(errors.to_string()))?;
    let book = Book::forgetful(&config);
    let front = Front::start(&config, &book).await?;
    say(&introduction(&front.view, &stores.addresses, doors));
    let good = match options.run_for {
        Some(span) => prove(&front.view, &stores, doors, span).await,
        None => {
            watch(&front.view, &stores).await;
            true
        }
    };
    front.halt();
    while !front.is_finished() {
        sleep(Duration::from_millis(5)).await;
    }
    front.join().map_err(StartError::Worker)?;
    Ok(good)
}

/// The usual port if it is free, else any.
fn free(port: u16) -> Result<SocketAddr, StartError> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let bound = TcpListener::bind(address).or_else(|_| TcpListener::bind(("127.0.0.1", 0)));
    bound.and_then(|listener| listener.local_addr()).map_err(|error| StartError::bind(address, error))
}

fn configuration(children: &[SocketAddr], doors: Doors, driver: DriverChoice) -> String {
    let driver = match driver {
        DriverChoice::Auto => "auto",
        DriverChoice::Uring => "uring",
        DriverChoice::Epoll => "epoll",
    };
    let mut text = format!("[workers]\ndriver = \"{driver}\"\n[timeouts]\ndrain = \"1s\"\n");
    for (group, dialect, door) in [("kv", "http", doors.http), ("aci", "aci", doors.aci)] {
        // Writing to a String does not fail.
        let _ = write!(text, "[[listen]]\naddress = \"{door}\"\ngroup = \"{group}\"\n");
        let _ = write!(text, "[group.{group}]\ndialect = \"{dialect}\"\n");
        for (index, address) in children.iter().enumerate() {
            let name = store::name(index);
            let _ = write!(text, "[[group.{group}.child]]\nname = \"{name}\"\naddress = \"{address}\"\n");
        }
        let _ = write!(
            text,
            "[group.{group}.probe]\ninterval_up = \"1s\"\ntimeout = \"500ms\"\ninterval_down = \"200ms\"\n"
        );
    }
    text.push_str("[[group.kv.rule]]\nmethod = [\"POST\"]\npath = \"*\"\nclass = \"refuse\"\n");
    // The store's own ACI actions, as an operator would teach them; `idol` knows GetPid.
    text.push_str("[[group.aci.rule]]\naction = \"Get\"\nclass = \"read\"\nsafe = true\n");
    text.push_str("[[group.aci.rule]]\naction = \"Set\"\nclass = \"change\"\nunknown_outcome = \"idempotent\"\n");
    text.push_str("[[group.aci.rule]]\naction = \"Delete\"\nclass = \"change\"\nunknown_outcome = \"idempotent\"\n");
    text
}

fn introduction(view: &View, children: &[SocketAddr], doors: Doors) -> String {
    let Doors { http, aci } = doors;
    let children: Vec<_> =
        children.iter().enumerate().map(|(index, address)| format!("{} {address}", store::name(index))).collect();
    let fallback = view.fallback.as_ref().map(|why| format!("  (not io_uring: {why})\n")).unwrap_or_default();
    format!(
        "antiphon demo: three mirrored key-value servers ({}) behind one front, on {}\n{fallback}\n\
         A change goes to all three, in one order; a read to one (`served-by` tells which):\n\n  \
         curl -i -X PUT -d hello http://{http}/kv/greeting\n  \
         curl -i http://{http}/kv/greeting\n  \
         curl -i -X DELETE http://{http}/kv/greeting\n\n\
         The same in the ACI dialect:\n\n  \
         curl -i 'http://{aci}/action=Set&Key=greeting&Value=hello'\n  \
         curl -i 'http://{aci}/action=Get&Key=greeting'\n",
        children.join(", "),
        view.driver,
    )
}

fn say(text: &str) {
    let mut out = stdout().lock();
    // Nobody may be reading any more; the exit code tells the outcome.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Shows the groups, redrawn in place in a terminal, until INT. A child's name typed in stops it or starts it again.
async fn watch(view: &View, stores: &Stores) {
    let redraw = stdout().is_terminal();
    let mut typed = stdin().is_terminal().then(typed_lines);
    if typed.is_some() {
        say("Type a, b or c and Enter to stop that server, and again to bring it back. Ctrl-C ends the demo.\n");
    }
    let mut stopped = [false; CHILDREN];
    // Lines that the view takes on the screen, and those that were typed below it.
    let mut drawn = 0;
    let mut shown = String::new();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let status = Status::of(view, false, false);
        if redraw {
            let text: String = status.groups.iter().map(|group| format!("{group}\n")).collect();
            let text = text.trim_end();
            // Up over what was drawn, and clear from there (ECMA-48: CUU, ED).
            let back = if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\x1b[J") };
            say(&format!("{back}{text}"));
            drawn = text.lines().count();
        } else if brief(&status) != shown {
            shown = brief(&status);
            say(&shown);
        }
        tokio::select! {
            _ = &mut interrupted => return,
            () = sleep(VIEW_PERIOD) => {}
            line = next_line(&mut typed) => match line {
                Some(line) => {
                    drawn += 1;
                    if let Some(index) = (0..CHILDREN).find(|index| store::name(*index) == line.trim()) {
                        say(&toggle(stores, &mut stopped[index], index));
                        drawn = 0;
                    }
                }
                None => typed = None,
            },
        }
    }
}

/// What is typed, line by line. By a thread that nobody waits for: a read of a terminal cannot be given up.
fn typed_lines() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn next_line(typed: &mut Option<UnboundedReceiver<String>>) -> Option<String> {
    match typed {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

/// Stops the server or starts it again; tells which.
fn toggle(stores: &Stores, stopped: &mut bool, index: usize) -> String {
    *stopped = !*stopped;
    let done = if *stopped { "stopped" } else { "started again" };
    if *stopped {
        stores.stop_one(index);
    } else {
        stores.start_one(index);
    }
    format!("Server {} is {done}.", store::name(index))
}

/// One line: each group's children with their states and, where they are behind, by how much.
fn brief(status: &Status) -> String {
    let group = |group: &crate::control::status::GroupStatus| {
        let children: Vec<_> = group
            .children
            .iter()
            .map(|child| match child.lag {
                0 => format!("{} {}", child.name, child.state),
                lag => format!("{} {} {lag} behind", child.name, child.state),
            })
            .collect();
        format!("{}: {}", group.name, children.join(", "))
    };
    status.groups.iter().map(group).collect::<Vec<_>>().join(" | ")
}

/// Drives traffic for `span`, in whose middle third one server is away, and judges.
async fn prove(view: &View, stores: &Stores, doors: Doors, span: Duration) -> bool {
    let tally = Rc::new(Tally::default());
    let tasks = drive::traffic(doors, &tally);
    say("Reads and changes run.");
    sleep(span / 3).await;
    say(&format!("{}\nServer b is stopped.", brief(&Status::of(view, false, false))));
    stores.stop_one(AWAY);
    sleep(span / 3).await;
    // What b has missed is replayed to it from the ring: nothing else can bring its cursor to the head again.
    let missed: u64 = view.mirrors.iter().map(|mirror| mirror.lag(AWAY)).sum();
    say(&format!(
        "{}\nServer b is started again; it has missed {missed} changes.",
        brief(&Status::of(view, false, false))
    ));
    stores.start_one(AWAY);
    sleep(span / 3).await;
    tally.enough.set(true);
    for task in tasks {
        // It ends by itself at its next look.
        let _ = task.await;
    }
    let caught_up = catch_up(view).await;
    say(&brief(&Status::of(view, false, false)));
    let mut dumps = Vec::new();
    for address in &stores.addresses {
        dumps.push(drive::dump(*address).await);
    }
    let identical = dumps.iter().all(|dump| dump.is_some() && *dump == dumps[0]);
    let replayed = if caught_up { missed } else { 0 };
    let Tally { reads, changes, failed_reads, failed_changes, .. } = &*tally;
    say(&format!(
        "{} reads ({} failed), {} changes ({} failed), {replayed} replayed to b; the three servers are {}.",
        reads.get(),
        failed_reads.get(),
        changes.get(),
        failed_changes.get(),
        if identical { "identical" } else { "NOT identical" },
    ));
    identical && replayed > 0
}

/// Waits until every child has confirmed every change; false if that takes too long.
async fn catch_up(view: &View) -> bool {
    let behind = || view.mirrors.iter().any(|mirror| (0..CHILDREN).any(|child| mirror.lag(child) > 0));
    let begun = time::now();
    while behind() {
        let waited = time::now().since(begun);
        if waited >= CATCH_UP {
            say(&format!("A server is still behind after {} s.", waited.as_secs()));
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

/// Servers of the demo.
const CHILDREN: usize = 3;
/// The one that is stopped.
const AWAY: usize = 1;
/// Where the front listens if nobody else does: IDOL's port for ACI, and one beside it.
const ACI_PORT: u16 = 9060;
const HTTP_PORT: u16 = 9080;
/// Between two looks of the view.
const VIEW_PERIOD: Duration = Duration::from_millis(500);
/// The longest wait for a server that was away.
const CATCH_UP: Duration = Duration::from_secs(30);
