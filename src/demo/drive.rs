//! The demo's own traffic, its small HTTP client, and the comparison at the end.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

/// What the traffic came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Reads that were answered.
    pub(super) reads: Cell<u64>,
    /// Changes that were acknowledged.
    pub(super) changes: Cell<u64>,
    /// Reads that were not, or with a 5xx.
    pub(super) failed_reads: Cell<u64>,
    /// Changes that were not, or with a 5xx.
    pub(super) failed_changes: Cell<u64>,
    /// Set to end the traffic.
    pub(super) enough: Cell<bool>,
}

/// Where the front takes each dialect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doors {
    pub(super) http: SocketAddr,
    pub(super) aci: SocketAddr,
}

/// Readers and writers, until the tally says enough.
pub(super) fn traffic(doors: Doors, tally: &Rc<Tally>) -> Vec<tokio::task::JoinHandle<()>> {
    let mut tasks = Vec::new();
    for number in 0..8 {
        tasks.push(spawn_local(read(doors, number, tally.clone())));
    }
    for number in 0..4 {
        tasks.push(spawn_local(change(doors, number, tally.clone())));
    }
    tasks
}

async fn read(doors: Doors, number: u64, tally: Rc<Tally>) {
    let mut client = Client::default();
    let mut round = number;
    while !tally.enough.get() {
        round += 1;
        let key = round % KEYS;
        let outcome = if round.is_multiple_of(2) {
            client.send(doors.http, Method::GET, &format!("/kv/key-{key}"), "").await
        } else {
            client.send(doors.aci, Method::GET, &format!("/action=Get&Key=key-{key}"), "").await
        };
        let good = outcome.is_ok_and(|(status, _)| status < 500);
        count(if good { &tally.reads } else { &tally.failed_reads });
        tokio::time::sleep(PACE).await;
    }
}

async fn change(doors: Doors, number: u64, tally: Rc<Tally>) {
    let mut client = Client::default();
    let mut round = 0;
    while !tally.enough.get() {
        round += 1;
        let key = (round * 7 + number) % KEYS;
        let outcome = if round % 2 == 0 {
            client.send(doors.http, Method::PUT, &format!("/kv/key-{key}"), &format!("{number}.{round}")).await
        } else {
            let target = format!("/action=Set&Key=key-{key}&Value={number}.{round}");
            client.send(doors.aci, Method::GET, &target, "").await
        };
        let good = outcome.is_ok_and(|(status, _)| status < 500);
        count(if good { &tally.changes } else { &tally.failed_changes });
        tokio::time::sleep(PACE).await;
    }
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// The state of one store, asked directly.
pub(super) async fn dump(address: SocketAddr) -> Option<String> {
    let (status, text) = Client::default().send(address, Method::GET, "/dump", "").await.ok()?;
    (status == 200).then_some(text)
}

/// One connection after the other, kept as long as it lives.
#[derive(Default)]
struct Client {
    open: Option<(SocketAddr, SendRequest<Full<Bytes>>)>,
}

impl Client {
    async fn send(
        &mut self,
        address: SocketAddr,
        method: Method,
        target: &str,
        body: &str,
    ) -> Result<(u16, String), Box<dyn std::error::Error>> {
        let exchange = async {
            let request = Request::builder()
                .method(method)
                .uri(target)
                .header("host", address.to_string())
                .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
            let mut sender = match self.open.take() {
                Some((to, sender)) if to == address && sender.is_ready() => sender,
                _ => connect(address).await?,
            };
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let text = response.into_body().collect().await?.to_bytes();
            self.open = Some((address, sender));
            Ok((status, String::from_utf8_lossy(&text).into_owned()))
        };
        tokio::time::timeout(PATIENCE, exchange).await?
    }
}

async fn connect(address: SocketAddr) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    spawn_local(async move {
        // What breaks it, the sender is told as well.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Keys that the traffic reads and writes.
const KEYS: u64 = 50;
/// Between two requests of one of them: a demonstration, not a benchmark.
const PACE: Duration = Duration::from_millis(5);
/// An answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
