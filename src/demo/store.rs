//! A small key-value server, as the demo's children are: it speaks both dialects, and can be stopped and started again
//! with its state kept, as a server is that was rebooted.
//!
//! ```text
//! GET /kv/KEY · PUT /kv/KEY · DELETE /kv/KEY                     plain HTTP
//! /action=Get&Key=K · /action=Set&Key=K&Value=V · /action=GetPid  ACI
//! GET /dump                                                       all of its state, to be compared
//! ```
//!
//! Not a server for anything else: no persistence, no limits but a body's size.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};

use crate::limits::DEMO_BODY_BYTES_MAX;

/// Several stores in one thread.
pub(super) struct Stores {
    /// Where each listens; the same after a stop and a start.
    pub(super) addresses: Vec<SocketAddr>,
    orders: UnboundedSender<Order>,
}

enum Order {
    Stop(usize),
    Start(usize),
}

impl Stores {
    /// Starts `count` stores on free ports of 127.0.0.1.
    ///
    /// # Errors
    /// No port, or no thread.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let listeners: Vec<_> =
            (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
        let addresses: Vec<_> = listeners.iter().map(std::net::TcpListener::local_addr).collect::<io::Result<_>>()?;
        let (orders, received) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new()
            .name("demo-children".to_owned())
            .spawn(move || LocalSet::new().block_on(&runtime, run(listeners, received)))?;
        Ok(Self { addresses, orders })
    }

    /// Stops one: its port refuses connections, its open ones are reset, its state stays.
    pub(super) fn stop_one(&self, index: usize) {
        // The thread lives as long as this.
        let _ = self.orders.send(Order::Stop(index));
    }

    /// Starts it again.
    pub(super) fn start_one(&self, index: usize) {
        let _ = self.orders.send(Order::Start(index));
    }
}

async fn run(listeners: Vec<std::net::TcpListener>, mut orders: UnboundedReceiver<Order>) {
    let mut servers = Vec::new();
    for (index, listener) in listeners.into_iter().enumerate() {
        let Ok(address) = listener.local_addr() else { return };
        let store = Rc::new(RefCell::new(Store { name: name(index), ..Store::default() }));
        let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let Ok(listener) = listener else { return };
        let serving = spawn_local(accept(listener, store.clone()));
        servers.push((address, store, Some(serving)));
    }
    while let Some(order) = orders.recv().await {
        match order {
            Order::Stop(index) => drop(servers[index].2.take().map(|serving: JoinHandle<()>| serving.abort())),
            Order::Start(index) => {
                let (address, store, serving) = &mut servers[index];
                if serving.is_none()
                    && let Ok(listener) = TcpListener::bind(*address).await
                {
                    *serving = Some(spawn_local(accept(listener, store.clone())));
                }
            }
        }
    }
}

/// The demo's names of its children: a, b, c …
pub(super) fn name(index: usize) -> String {
    char::from(b'a' + u8::try_from(index % 26).unwrap_or(0)).to_string()
}

/// Serves until aborted; the connections end with it.
async fn accept(listener: TcpListener, store: Rc<RefCell<Store>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let store = store.clone();
                let service = service_fn(move |request| answer(store.clone(), request));
                connections.spawn_local(async move {
                    // A connection that breaks is its peer's affair.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One server's state. What came by HTTP and what came by ACI are apart: they are two groups, with an order each.
#[derive(Debug, Default)]
struct Store {
    name: String,
    http: Kept,
    aci: Kept,
}

/// Values, and how many changes made them.
#[derive(Debug, Default)]
struct Kept {
    values: BTreeMap<String, Vec<u8>>,
    /// Changes applied.
    changes: u64,
    /// Depends on every change and on their order.
    digest: u64,
}

impl Kept {
    fn apply(&mut self, key: &str, value: Option<Vec<u8>>) -> bool {
        self.changes += 1;
        let octets = key.bytes().chain([0]).chain(value.iter().flatten().copied());
        self.digest = octets.fold(self.digest ^ self.changes, |hash, octet| {
            // FNV-1a: enough to tell orders apart, and easy to check by hand.
            (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        match value {
            Some(value) => self.values.insert(key.to_owned(), value).is_some(),
            None => self.values.remove(key).is_some(),
        }
    }

    fn dump(&self, out: &mut String) {
        // Writing to a String does not fail.
        let _ = writeln!(out, "changes {} digest {:016x}", self.changes, self.digest);
        for (key, value) in &self.values {
            let _ = writeln!(out, "{key} = {}", String::from_utf8_lossy(value));
        }
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(store: Rc<RefCell<Store>>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, DEMO_BODY_BYTES_MAX).collect().await else {
        return Ok(reply(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "too large\n"));
    };
    let body = body.to_bytes();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut store = store.borrow_mut();
    let mut answer = if target == "/dump" {
        let mut out = String::new();
        store.http.dump(&mut out);
        store.aci.dump(&mut out);
        reply(StatusCode::OK, "text/plain", out)
    } else if let Some(key) = target.strip_prefix("/kv/") {
        http(&mut store.http, &head.method, key, body)
    } else {
        aci(&mut store.aci, target)
    };
    if let Ok(name) = store.name.parse() {
        answer.headers_mut().insert("served-by", name);
    }
    Ok(answer)
}

fn http(kept: &mut Kept, method: &Method, key: &str, body: Bytes) -> Answer {
    match *method {
        Method::GET | Method::HEAD => match kept.values.get(key) {
            Some(value) => reply(StatusCode::OK, "text/plain", value.clone()),
            None => reply(StatusCode::NOT_FOUND, "text/plain", "no such key\n"),
        },
        Method::PUT => match kept.apply(key, Some(body.to_vec())) {
            true => reply(StatusCode::OK, "text/plain", "replaced\n"),
            false => reply(StatusCode::CREATED, "text/plain", "created\n"),
        },
        Method::DELETE => match kept.apply(key, None) {
            true => reply(StatusCode::OK, "text/plain", "deleted\n"),
            false => reply(StatusCode::NOT_FOUND, "text/plain", "no such key\n"),
        },
        _ => reply(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET, PUT or DELETE\n"),
    }
}

fn aci(kept: &mut Kept, target: &str) -> Answer {
    let parameters: Vec<(String, String)> = target
        .trim_start_matches(['/', '?'])
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name).to_lowercase(), decode(value)))
        .collect();
    let parameter = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let action = parameter("action").or_else(|| parameter("a")).unwrap_or_default().to_lowercase();
    let key = parameter("key").unwrap_or_default();
    let data = match action.as_str() {
        "getpid" => Some(format!("<pid>{}</pid>", std::process::id())),
        "get" => {
            kept.values.get(key).map(|value| format!("<value>{}</value>", escape(&String::from_utf8_lossy(value))))
        }
        "set" => {
            kept.apply(key, Some(parameter("value").unwrap_or_default().into()));
            Some(format!("<changes>{}</changes>", kept.changes))
        }
        "delete" => {
            kept.apply(key, None);
            Some(format!("<changes>{}</changes>", kept.changes))
        }
        _ => None,
    };
    let (response, data) = match data {
        Some(data) => ("SUCCESS", data),
        None => ("ERROR", "<error><errorstring>no such key or action</errorstring></error>".to_owned()),
    };
    let text = format!(
        "<?xml version='1.0' encoding='UTF-8'?>\n<autnresponse xmlns:autn='http://schemas.autonomy.com/aci/'>\
         <action>{}</action><response>{response}</response><responsedata>{data}</responsedata></autnresponse>\n",
        escape(&action.to_uppercase())
    );
    reply(StatusCode::OK, "text/xml", text)
}

fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(content_type));
    answer
}

fn decode(text: &str) -> String {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        match octet {
            b'+' => octets.push(b' '),
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                octets.push(u8::from_str_radix(&hex, 16).unwrap_or(b'%'));
            }
            other => octets.push(other),
        }
    }
    String::from_utf8_lossy(&octets).into_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
