//! Many tasks under random faults, by seed: every octet arrives once and in order, and nothing is left behind.
//!
//! Set `ANTIPHON_SEED` to run one seed. A failure names its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use antiphon::io::buffer::{Buffers, Chunk, Group, Sizes};
use antiphon::io::exec::{Conn, Io, Received};
use antiphon::io::op::{Piece, Pieces};
use antiphon::time::Time;

use crate::sim::{Chaos, Sim};
use crate::{Story, sizes};

const FRONT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const CHILD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 80);
const IDLE: Duration = Duration::from_secs(3600);
const CLIENTS: usize = 6;
const REQUESTS: usize = 3;

#[test]
fn relayed_octets_arrive_once_and_in_order() {
    for seed in seeds() {
        let guard = NameSeed(seed);
        let chaos = Chaos {
            short: seed % 2 == 0,
            reorder: seed % 3 != 0,
            late_nanos: (seed % 5) * 100_000,
            ends: seed % 7 < 3,
        };
        // From plenty to starvation; a spill budget that is used up in some.
        let buffers = match seed % 4 {
            0 => Sizes::default(),
            1 => sizes(6, 6, 64),
            2 => sizes(12, 5, 33),
            _ => Sizes { spill_bytes_max: 4096, ..sizes(16, 16, 512) },
        };
        relay(seed, chaos, buffers);
        std::mem::forget(guard);
    }
}

/// Clients send requests of many sizes to a front, which relays them, piece by piece, to a child that sends each back
/// in a form of its own. All are tasks of one worker.
fn relay(seed: u64, chaos: Chaos, sizes: Sizes) {
    let buffers = Buffers::new(sizes).expect("memory");
    let sim = Sim::new(seed, chaos, &buffers);
    let io = Io::new(sim.driver(), Rc::clone(&buffers)).expect("an eventfd");
    let story = Story::default();
    io.listen(sim.listener(FRONT), 1, IDLE);
    io.listen(sim.listener(CHILD), 2, IDLE);
    io.on_need_task(|io| {
        let io = io.clone();
        io.clone().spawn(async move {
            while let Some(client) = io.next_client().await {
                match client.tag() {
                    1 => front(&io, client).await,
                    _ => child(client).await,
                }
            }
        });
    });
    for number in 0..CLIENTS {
        let (client_io, story) = (io.clone(), story.clone());
        io.spawn(async move {
            client(&client_io, number).await;
            story.tell("done");
            if story.0.borrow().len() == CLIENTS {
                client_io.stop(Time::NEVER);
            }
        });
    }
    io.run().unwrap_or_else(|error| panic!("{error}: told {}", story.told().len()));
    assert_eq!(story.told().len(), CLIENTS);
    sim.settle(&io);
    let stats = io.stats();
    assert_eq!((stats.connections.value(), stats.clients.value(), stats.tasks.value()), (0, 0, 0));
    assert_eq!(stats.late_completions.value(), 0);
    for group in Group::ALL {
        assert_eq!(buffers.free(group), buffers.count(group));
    }
    assert_eq!(buffers.spilled_bytes(), 0);
}

/// Sends requests on one connection, each after the answer to the one before.
async fn client(io: &Io, number: usize) {
    let conn = io.connect(FRONT, Time::NEVER).await.expect("the front listens");
    for request in 0..REQUESTS {
        let body: Vec<u8> = (0..request * 700 + number * 13).map(|n| (n * 7 + number + request) as u8).collect();
        let mut message = u32::try_from(body.len()).expect("small").to_be_bytes().to_vec();
        message.extend(&body);
        let mut pieces = Pieces::new();
        pieces.push(Piece::Scratch(message));
        conn.begin_send(pieces);
        let mut input = Input::new(&conn);
        let length = input.length().await.expect("an answer");
        assert_eq!(length, body.len());
        let mut answer = Vec::new();
        while answer.len() < length {
            let piece = input.some(length - answer.len()).await;
            answer.extend_from_slice(&piece);
        }
        assert!(answer.into_iter().eq(body.into_iter().map(|octet| octet ^ 0x55)), "the answer to request {request}");
        std::future::poll_fn(|_| conn.poll_sent(Time::NEVER)).await.expect("sent");
        input.put_back();
    }
    conn.close_lingering();
}

/// Relays one request and its answer without copying, then parks the client.
async fn front(io: &Io, client: Conn) {
    let child = io.connect(CHILD, Time::NEVER).await.expect("the child listens");
    if relay_message(&client, &child).await && relay_message(&child, &client).await {
        let until = io.now() + IDLE;
        client.park_idle(until);
    }
    child.close_lingering();
}

async fn relay_message(from: &Conn, to: &Conn) -> bool {
    let mut input = Input::new(from);
    let Some(mut left) = input.length().await else { return false };
    let mut pieces = Pieces::new();
    pieces.push(Piece::Scratch(u32::try_from(left).expect("small").to_be_bytes().to_vec()));
    loop {
        while left > 0 && !pieces.is_full() && (pieces.is_empty() || from.queued_bytes() > 0 || input.has_rest()) {
            let piece = input.some(left).await;
            left -= piece.len();
            pieces.push(Piece::Chunk(piece));
        }
        pieces = to.send(pieces, Time::NEVER).await.expect("sent");
        pieces.recycle(drop);
        if left == 0 {
            input.put_back();
            return true;
        }
    }
}

/// Answers each message with its octets changed.
async fn child(conn: Conn) {
    let mut input = Input::new(&conn);
    while let Some(mut left) = input.length().await {
        let mut answer = u32::try_from(left).expect("small").to_be_bytes().to_vec();
        while left > 0 {
            let piece = input.some(left).await;
            left -= piece.len();
            answer.extend(piece.iter().map(|octet| octet ^ 0x55));
        }
        let mut pieces = Pieces::new();
        pieces.push(Piece::Scratch(answer));
        conn.send(pieces, Time::NEVER).await.expect("sent");
    }
    drop(input);
    conn.close_lingering();
}

/// Cuts a connection's octets as messages want them.
struct Input<'c> {
    conn: &'c Conn,
    rest: Chunk,
}

impl<'c> Input<'c> {
    fn new(conn: &'c Conn) -> Self {
        Self { conn, rest: Chunk::empty() }
    }

    fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Gives what was received beyond the message back to the connection.
    fn put_back(self) {
        self.conn.put_back(self.rest);
    }

    /// The length that begins a message; `None` at the end.
    async fn length(&mut self) -> Option<usize> {
        let mut length = Vec::new();
        while length.len() < 4 {
            if self.rest.is_empty() {
                match self.conn.receive(Time::NEVER).await {
                    Received::Data(chunk) => self.rest = chunk,
                    _ => return None,
                }
            }
            let wanted = (4 - length.len()).min(self.rest.len());
            length.extend_from_slice(&self.rest.split_to(wanted));
        }
        Some(u32::from_be_bytes(length.try_into().expect("four")) as usize)
    }

    /// At least one octet and at most `most`.
    async fn some(&mut self, most: usize) -> Chunk {
        if self.rest.is_empty() {
            match self.conn.receive(Time::NEVER).await {
                Received::Data(chunk) => self.rest = chunk,
                other => panic!("octets were promised: {other:?}"),
            }
        }
        let wanted = most.min(self.rest.len());
        self.rest.split_to(wanted)
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    let one = std::env::var("ANTIPHON_SEED").ok().and_then(|seed| seed.parse().ok());
    let (first, count) = one.map_or((0, 42), |seed| (seed, 1));
    first..first + count
}

/// Names the seed when a test panics.
struct NameSeed(u64);

impl Drop for NameSeed {
    fn drop(&mut self) {
        eprintln!("ANTIPHON_SEED={}", self.0);
    }
}
