//! What `perf/changes` is driven with: writers that wait for each answer, a child that answers after a while, and syncs.
//!
//! Plain threads and blocking sockets: at most a few hundred connections, and nothing of antiphon in it, so that both
//! sides of a comparison meet the same. Needs nothing but the standard library.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a program of its own, for measurements, that never runs inside antiphon"
)]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "\
drive child PORT MICROSECONDS              answers everything with 200 after so long, one at a time on each connection
drive write PORT WRITERS SECONDS KIND [MAX [PAUSE_US]]
                                           KIND: http | etcd; ends after MAX changes at the latest; each writer pauses
                                           prints: changes, seconds, p50 and p99 in microseconds
drive sync FILE SECONDS                    writes 1 KiB and syncs, over and over; prints: syncs, seconds, p50, p99";

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["child", port, micros] => child(port, micros),
        ["write", port, writers, seconds, kind] => write(port, writers, seconds, kind, "0", "0"),
        ["write", port, writers, seconds, kind, max] => write(port, writers, seconds, kind, max, "0"),
        ["write", port, writers, seconds, kind, max, pause] => write(port, writers, seconds, kind, max, pause),
        ["sync", file, seconds] => sync(file, seconds),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drive: {error}");
            ExitCode::FAILURE
        }
    }
}

// === the child ===

fn child(port: &str, micros: &str) -> Done {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse()?))?;
    let pause = Duration::from_micros(micros.parse()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || serve(stream, pause));
    }
    Ok(())
}

fn serve(mut stream: TcpStream, pause: Duration) -> Done {
    stream.set_nodelay(true)?;
    let mut octets = Vec::new();
    while receive(&mut stream, &mut octets)? {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
    Ok(())
}

/// One whole message with a Content-Length, or none of it. False at the end.
fn receive(stream: &mut TcpStream, octets: &mut Vec<u8>) -> Done<bool> {
    octets.clear();
    let mut chunk = [0; 4096];
    loop {
        if let Some(head) = octets.windows(4).position(|four| four == b"\r\n\r\n")
            && octets.len() >= head + 4 + body_bytes(&octets[..head])?
        {
            return Ok(true);
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(false),
            count => octets.extend_from_slice(&chunk[..count]),
        }
    }
}

fn body_bytes(head: &[u8]) -> Done<usize> {
    let head = std::str::from_utf8(head)?;
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(length.map_or(Ok(0), |(_, value)| value.trim().parse())?)
}

// === the writers ===

fn write(port: &str, writers: &str, seconds: &str, kind: &str, max: &str, pause: &str) -> Done {
    let port: u16 = port.parse()?;
    let span = Duration::from_secs_f64(seconds.parse()?);
    let max = match max.parse()? {
        0 => u64::MAX,
        max => max,
    };
    let pause = Duration::from_micros(pause.parse()?);
    let request = match kind {
        "http" => {
            let body = "x".repeat(512);
            format!("PUT /items/1 HTTP/1.1\r\nHost: c\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
        "etcd" => {
            // Base64 of 512 octets, under one key.
            let body = format!("{{\"key\":\"aXRlbTE=\",\"value\":\"{}eA==\"}}", "eHh4".repeat(170));
            let length = body.len();
            format!("POST /v3/kv/put HTTP/1.1\r\nHost: c\r\nContent-Length: {length}\r\n\r\n{body}")
        }
        _ => return Err(USAGE.into()),
    };
    let request: Arc<str> = request.into();
    let (stop, given) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let streams: Vec<_> =
        (0..writers.parse()?).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port))).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let threads: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let (request, stop, given) = (request.clone(), stop.clone(), given.clone());
            thread::spawn(move || {
                writer(
                    stream,
                    &request,
                    || {
                        !stop.load(Ordering::Relaxed)
                            && began.elapsed() < span
                            && given.fetch_add(1, Ordering::Relaxed) < max
                    },
                    pause,
                )
                .inspect_err(|_| stop.store(true, Ordering::Relaxed))
            })
        })
        .collect();
    let mut took = Vec::new();
    for thread in threads {
        took.extend(thread.join().map_err(|_| "a writer panicked")??);
    }
    tell(took, began.elapsed());
    Ok(())
}

fn writer(mut stream: TcpStream, request: &str, goes_on: impl Fn() -> bool, pause: Duration) -> Done<Vec<u32>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let (mut took, mut octets) = (Vec::new(), Vec::new());
    while goes_on() {
        let began = Instant::now();
        stream.write_all(request.as_bytes())?;
        if !receive(&mut stream, &mut octets)? {
            return Err("the connection was closed".into());
        }
        if !octets.starts_with(b"HTTP/1.1 20") {
            return Err(format!("not accepted: {}", String::from_utf8_lossy(&octets)).into());
        }
        took.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    Ok(took)
}

// === the disk ===

fn sync(path: &str, seconds: &str) -> Done {
    let span = Duration::from_secs_f64(seconds.parse()?);
    let file = File::options().create(true).write(true).truncate(true).open(path)?;
    file.write_all_at(&vec![0; 1 << 20], 0)?;
    file.sync_all()?;
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        let at = (took.len() as u64 % 1024) << 10;
        let start = Instant::now();
        file.write_all_at(&[1; 1024], at)?;
        file.sync_data()?;
        took.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    tell(took, began.elapsed());
    Ok(())
}

fn tell(mut took: Vec<u32>, span: Duration) {
    took.sort_unstable();
    let at = |quantile: f64| took.get((took.len() as f64 * quantile) as usize).copied().unwrap_or(0);
    println!("{} {:.3} {} {}", took.len(), span.as_secs_f64(), at(0.5), at(0.99));
}
