//! How good are the policies' choices in the real proxy? Latencies of all of them over the same children and schedule,
//! through the real binary, on loopback.
//!
//! Run by `perf/balance`, which says what the variables are. Children do not burn CPU: each has so many slots, a line
//! before them, a speed and a script of pauses (`world.rs`), works out when an action ends there, and answers then. The
//! client sends on a fixed schedule whatever comes back (open loop), and measures from the moment at which it meant to
//! send: what a slow answer holds up is counted. One seed, so one schedule, for every policy of a round; rounds are
//! interleaved, and each run has a fresh proxy.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; this is its client and its children"
)]

#[allow(dead_code, reason = "shared with the simulation")]
mod world;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use world::{Arrivals, Scenario, Server, letters, servers};

const POLICIES: [&str; 5] = ["predictive", "least_conn", "p2c", "peak_ewma", "prequal"];
/// The simulated world's first second is empty.
const EMPTY: u64 = 1_000_000_000;

struct Plan {
    binary: PathBuf,
    /// Actions that are counted, and seconds of those before them that are not.
    actions: usize,
    warm_up_s: f64,
    rounds: u64,
    loads: Vec<f64>,
    /// How many times longer everything takes than in the simulation.
    scale: f64,
    slots_given: bool,
    /// What 100 % is, as a share of the children's arithmetic capacity.
    calibration: f64,
}

/// Latencies of one run, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    short_p99: f64,
    errors: f64,
    /// The second half's mean over the first's: much above 1, the load was more than could be served.
    growth: f64,
}

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    let loads: String = variable("LOADS", "70 85".to_owned());
    let mut plan = Plan {
        binary: variable("BINARY", PathBuf::from(env!("CARGO_BIN_EXE_antiphon"))),
        actions: variable("ACTIONS", 40_000),
        warm_up_s: variable("WARM_UP", 10.0),
        rounds: variable("ROUNDS", 5),
        loads: loads.split_whitespace().filter_map(|load| load.parse().ok()).map(|load: f64| load / 100.0).collect(),
        scale: variable("SCALE", 4.0),
        slots_given: variable("SLOTS", "learnt".to_owned()) == "given",
        calibration: 1.0,
    };
    if variable("CALIBRATE", 0) == 1 {
        match calibrate(&mut plan) {
            Ok(()) => {}
            Err(error) => return fail(&error),
        }
    }
    let mut report = String::new();
    _ = writeln!(
        report,
        "{} actions a run after {} s of warm-up, {} rounds, everything {} times as long as simulated, slots {}, 100 % is {:.3} of the children's capacity.\n",
        plan.actions,
        plan.warm_up_s,
        plan.rounds,
        plan.scale,
        if plan.slots_given { "given" } else { "learnt" },
        plan.calibration
    );
    let mut panels = Vec::new();
    for load in plan.loads.clone() {
        let mut results = vec![Vec::new(); POLICIES.len()];
        for round in 0..plan.rounds {
            for turn in 0..POLICIES.len() {
                // Each round begins with another policy.
                let which = (turn + round as usize) % POLICIES.len();
                match run(&plan, POLICIES[which], load, round + 1, plan.actions) {
                    Ok(figures) => {
                        eprintln!("load {:.0} % round {} {}: {figures:.2?}", load * 100.0, round + 1, POLICIES[which]);
                        results[which].push(figures);
                    }
                    Err(error) => return fail(&error),
                }
            }
        }
        table(&mut report, load, &results);
        panels.push((load, results));
    }
    println!("{report}");
    if let Ok(path) = std::env::var("PLOT")
        && let Err(error) = fs::write(path, plot(&panels))
    {
        return fail(&error);
    }
    ExitCode::SUCCESS
}

fn fail(error: &io::Error) -> ExitCode {
    eprintln!("loopback: {error}");
    ExitCode::FAILURE
}

/// Finds the highest load at which `least_conn` still keeps up, and makes that 100 %.
fn calibrate(plan: &mut Plan) -> io::Result<()> {
    for step in 0..10 {
        plan.calibration = 1.0 - 0.025 * f64::from(step);
        let figures = run(plan, "least_conn", 1.0, 99, plan.actions / 2)?;
        eprintln!("calibration {:.3}: {figures:.2?}", plan.calibration);
        if figures.growth < 1.5 {
            return Ok(());
        }
    }
    Err(io::Error::other("least_conn keeps up with nothing: is this machine busy?"))
}

// === one run ===

fn run(plan: &Plan, policy: &str, load: f64, seed: u64, actions: usize) -> io::Result<Figures> {
    let scenario = Scenario::new("loopback", load * plan.calibration).slower(plan.scale);
    let rate = scenario.capacity() * scenario.load;
    let before = (rate * plan.warm_up_s) as usize;
    let duration = ((before + actions) as f64 / rate * 1e9) as u64;
    let mut arrivals = Arrivals::new(seed);
    let schedule: Vec<_> = (0..before + actions).map(|_| arrivals.next(&scenario)).collect();

    let listeners: Vec<_> =
        scenario.speeds.iter().map(|_| StdListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<_>>()?;
    let ports: Vec<u16> =
        listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<_>>()?;
    let (stop, stopped) = oneshot::channel();
    // The script begins with the schedule: the children are told when that is.
    let (start, started) = std::sync::mpsc::channel();
    let serving = {
        let servers = servers(&scenario, duration, (u64::MAX, u64::MAX), seed);
        thread::spawn(move || children(listeners, servers, &started, stopped))
    };
    let slots = if plan.slots_given { scenario.slots } else { 0 };
    let mut proxy = Proxy::start(&plan.binary, policy, &ports, slots)?;
    let origin = Instant::now();
    start.send(origin).map_err(io::Error::other)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.port));
    let latencies = client(address, origin, &schedule);
    proxy.stop();
    _ = stop.send(());
    serving.join().map_err(|_| io::Error::other("the children panicked"))??;
    figures(&latencies?, &schedule, before)
}

fn figures(latencies: &[Option<Duration>], schedule: &[world::Arrival], before: usize) -> io::Result<Figures> {
    let counted = || latencies.iter().zip(schedule).skip(before);
    let ms = |latency: &Duration| latency.as_secs_f64() * 1e3;
    let sorted = |short: bool| {
        let wanted = counted().filter(|(_, arrival)| !short || arrival.class == 0);
        let mut list: Vec<f64> = wanted.filter_map(|(latency, _)| latency.as_ref().map(ms)).collect();
        list.sort_by(f64::total_cmp);
        list
    };
    let (all, short) = (sorted(false), sorted(true));
    if all.len() < 100 || short.is_empty() {
        return Err(io::Error::other(format!("{} of {} actions were answered", all.len(), latencies.len() - before)));
    }
    let at = |list: &[f64], share: f64| list[((list.len() - 1) as f64 * share) as usize];
    let in_order: Vec<f64> = counted().filter_map(|(latency, _)| latency.as_ref().map(ms)).collect();
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (first, second) = in_order.split_at(in_order.len() / 2);
    Ok(Figures {
        mean: mean(&all),
        p50: at(&all, 0.5),
        p99: at(&all, 0.99),
        p999: at(&all, 0.999),
        short_p99: at(&short, 0.99),
        errors: 1.0 - all.len() as f64 / (latencies.len() - before) as f64,
        growth: mean(second) / mean(first),
    })
}

// === the children ===

fn children(
    listeners: Vec<StdListener>,
    servers: Vec<Server>,
    started: &std::sync::mpsc::Receiver<Instant>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the schedule begins there are probes of connects only, which the kernel answers.
    let origin = started.recv().map_err(io::Error::other)?;
    LocalSet::new().block_on(&runtime, async move {
        for (listener, server) in listeners.into_iter().zip(servers) {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let server = Rc::new(RefCell::new(server));
            tokio::task::spawn_local(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::task::spawn_local(serve(stream, server.clone(), origin));
                }
            });
        }
        _ = stopped.await;
        Ok(())
    })
}

async fn serve(mut stream: TcpStream, server: Rc<RefCell<Server>>, origin: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let target = request.split(|octet| *octet == b' ').nth(1).unwrap_or_default();
        let told = target.rsplit(|octet| *octet == b'=').next().unwrap_or_default();
        let work_us = std::str::from_utf8(told).ok().and_then(|us| us.parse().ok()).unwrap_or(0.0);
        let now = EMPTY + origin.elapsed().as_nanos() as u64;
        let end = server.borrow_mut().fifo_begin(now, work_us);
        tokio::time::sleep_until((origin + Duration::from_nanos(end - EMPTY)).into()).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}

// === the client ===

/// One latency an action, from the moment at which it was due; `None` where it was not answered with 200.
fn client(proxy: SocketAddr, origin: Instant, schedule: &[world::Arrival]) -> io::Result<Vec<Option<Duration>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let idle: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
        let mut asked = Vec::with_capacity(schedule.len());
        for arrival in schedule {
            let due = origin + Duration::from_nanos(arrival.at - EMPTY);
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
            }
            let (idle, target) = (idle.clone(), format!("/class-{}?us={:.0}", letters(arrival.class), arrival.work_us));
            asked.push(tokio::task::spawn_local(async move {
                let connection = idle.borrow_mut().pop();
                let answered = ask(proxy, connection, &target).await.ok()?;
                let latency = due.elapsed();
                idle.borrow_mut().push(answered);
                Some(latency)
            }));
        }
        let mut latencies = Vec::with_capacity(asked.len());
        for one in asked {
            latencies.push(one.await.map_err(io::Error::other)?);
        }
        Ok(latencies)
    })
}

async fn ask(proxy: SocketAddr, connection: Option<TcpStream>, target: &str) -> io::Result<TcpStream> {
    let mut stream = match connection {
        Some(stream) => stream,
        None => TcpStream::connect(proxy).await?,
    };
    stream.set_nodelay(true)?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: loopback\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    // The answer's two octets of body are its end.
    while !answer.ends_with(b"\r\n\r\nok") {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > 4_096 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if answer.starts_with(b"HTTP/1.1 200 ") { Ok(stream) } else { Err(io::ErrorKind::InvalidData.into()) }
}

// === the proxy ===

struct Proxy {
    process: Child,
    port: u16,
    directory: PathBuf,
}

impl Proxy {
    fn start(binary: &Path, policy: &str, children: &[u16], slots: usize) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("antiphon-balance-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let port = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut text = format!(
            "[[listen]]\naddress = \"127.0.0.1:{port}\"\ngroup = \"g\"\n[group.g]\npolicy = \"{policy}\"\n\
             [admin]\nsocket = \"{}\"\n[workers]\ncount = {}\n[log]\nlevel = \"error\"\n",
            directory.join("admin.sock").display(),
            variable("WORKERS", 1),
        );
        for (index, child) in children.iter().enumerate() {
            _ = writeln!(
                text,
                "[[group.g.child]]\nname = \"c{index}\"\naddress = \"127.0.0.1:{child}\"\nslots = {slots}"
            );
        }
        let file = directory.join("antiphon.toml");
        fs::write(&file, text)?;
        let mut process = Command::new(binary).arg("run").arg("-c").arg(&file).stdin(Stdio::null()).spawn()?;
        for _ in 0..1_000 {
            if std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self { process, port, directory });
            }
            if process.try_wait()?.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        _ = process.kill();
        Err(io::Error::other("antiphon did not start"))
    }

    fn stop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

// === what it shows ===

/// Median, least and most.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    ((sorted[last / 2] + sorted[last - last / 2]) / 2.0, sorted[0], sorted[last])
}

fn table(out: &mut String, load: f64, results: &[Vec<Figures>]) {
    _ = writeln!(out, "## {:.0} % of what least_conn can carry\n", load * 100.0);
    _ = writeln!(
        out,
        "Milliseconds: median of the rounds. Ratios of predictive to it, paired within a round: median [least, most].\n"
    );
    _ = writeln!(
        out,
        "| policy | mean | p50 | p99 | p99.9 | short p99 | errors | mean ratio | p99 ratio | p99.9 ratio | short p99 ratio |"
    );
    _ = writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|");
    for (policy, rounds) in POLICIES.iter().zip(results) {
        let median = |of: fn(&Figures) -> f64| spread(rounds.iter().map(of)).0;
        _ = write!(
            out,
            "| {policy} | {:.1} | {:.1} | {:.0} | {:.0} | {:.1} | {:.2} % |",
            median(|f| f.mean),
            median(|f| f.p50),
            median(|f| f.p99),
            median(|f| f.p999),
            median(|f| f.short_p99),
            median(|f| f.errors) * 100.0
        );
        let ratios: [fn(&Figures) -> f64; 4] = [|f| f.mean, |f| f.p99, |f| f.p999, |f| f.short_p99];
        for of in ratios {
            if *policy == POLICIES[0] {
                _ = write!(out, " |");
            } else {
                let (median, least, most) = spread(results[0].iter().zip(rounds).map(|(ours, it)| of(ours) / of(it)));
                _ = write!(out, " {median:.2} [{least:.2}, {most:.2}] |");
            }
        }
        _ = writeln!(out);
    }
    _ = writeln!(out);
}

/// Bars of the means, one panel a load.
fn plot(panels: &[(f64, Vec<Vec<Figures>>)]) -> String {
    const BAR: f64 = 22.0;
    let height_of = |count: usize| 46.0 + count as f64 * (BAR + 6.0);
    let panel_height = height_of(POLICIES.len());
    let height = 30.0 + panels.len() as f64 * panel_height;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"15\">Mean latency by policy, same children, same schedule; line: least and most of the rounds</text>\n"
    );
    for (number, (load, results)) in panels.iter().enumerate() {
        let top = 30.0 + number as f64 * panel_height;
        let spreads: Vec<_> = results.iter().map(|rounds| spread(rounds.iter().map(|f| f.mean))).collect();
        let widest = spreads.iter().map(|spread| spread.2).fold(1e-9, f64::max);
        let x = |ms: f64| 110.0 + ms / widest * 430.0;
        _ = writeln!(svg, "<text x=\"10\" y=\"{}\">at {:.0} % load</text>", top + 24.0, load * 100.0);
        for (row, (policy, (median, least, most))) in POLICIES.iter().zip(spreads).enumerate() {
            let y = top + 34.0 + row as f64 * (BAR + 6.0);
            let colour = if row == 0 { "#2b6cb0" } else { "#a0aec0" };
            _ = writeln!(svg, "<text x=\"100\" y=\"{}\" text-anchor=\"end\">{policy}</text>", y + 16.0);
            _ = writeln!(
                svg,
                "<rect x=\"110\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>",
                x(median) - 110.0
            );
            _ = writeln!(
                svg,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{m}\" y2=\"{m}\" stroke=\"black\"/>",
                x(least),
                x(most),
                m = y + BAR / 2.0
            );
            _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{median:.1} ms</text>", x(most) + 6.0, y + 16.0);
        }
    }
    svg + "</svg>\n"
}
