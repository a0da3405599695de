//! One story a test, with exact faults, on the simulated driver.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use antiphon::io::buffer::{Buffers, Group, Sizes};
use antiphon::io::exec::{Conn, Ended, Io, IoError, Pooled, Received};
use antiphon::io::op::{Completion, Payload, Piece, Token};
use antiphon::limits::{
    ACCEPT_PAUSE_MIN, LINGER, LINGER_BYTES_MAX, RECEIVED_BYTES_MAX, RECEIVED_CHUNKS_MAX, TASKS_PARKED_MAX,
};
use antiphon::time::Time;
use rustix::io::Errno;

use crate::sim::{Chaos, End, Kind, Peer, Sim};
use crate::{Story, one, sizes, text};

const FRONT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const CHILD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 80);
const IDLE: Duration = Duration::from_secs(10);
/// A timer is up to one tick late.
const TICK: Duration = Duration::from_millis(2);

/// A worker on the simulation, with what its tasks tell.
struct World {
    sim: Sim,
    io: Io,
    buffers: Rc<Buffers>,
    story: Story,
}

impl World {
    fn new() -> Self {
        Self::with(Sizes::default())
    }

    fn with(sizes: Sizes) -> Self {
        let buffers = Buffers::new(sizes).expect("memory");
        let sim = Sim::new(1, Chaos::default(), &buffers);
        let io = Io::new(sim.driver(), Rc::clone(&buffers)).expect("an eventfd");
        Self { sim, io, buffers, story: Story::default() }
    }

    /// Listens, and tells of each client and what it says; hands the client on to `serve`.
    fn listen<F: Future<Output = ()> + 'static>(&self, serve: impl Fn(Conn, Story) -> F + 'static) {
        self.io.listen(self.sim.listener(FRONT), 7, IDLE);
        let serve = Rc::new(serve);
        let story = self.story.clone();
        self.io.on_need_task(move |io| {
            let (io, serve, story) = (io.clone(), Rc::clone(&serve), story.clone());
            io.clone().spawn(async move {
                while let Some(client) = io.next_client().await {
                    serve(client, story.clone()).await;
                }
                story.tell("no client");
            });
        });
    }

    fn settle(&self) {
        self.sim.settle(&self.io);
    }

    fn advance(&self, time: Duration) {
        self.sim.advance(&self.io, time);
    }

    fn dial(&self) -> Peer {
        let peer = self.sim.dial(FRONT);
        self.settle();
        peer
    }

    /// A connection to a child that the test plays, owned by the test.
    fn child(&self) -> (Rc<Conn>, Peer) {
        self.sim.serve(CHILD);
        let slot = Rc::new(RefCell::new(None));
        let (io, into) = (self.io.clone(), Rc::clone(&slot));
        self.io.spawn(async move {
            let conn = io.connect(CHILD, Time::NEVER).await.expect("the child accepts");
            *into.borrow_mut() = Some(conn);
        });
        self.settle();
        let conn = slot.take().expect("connected");
        (Rc::new(conn), self.sim.accepted(CHILD).expect("connected"))
    }

    /// Runs `task` as far as it goes.
    fn run(&self, task: impl Future<Output = ()> + 'static) {
        self.io.spawn(task);
        self.settle();
    }

    fn told(&self) -> Vec<String> {
        self.story.told()
    }

    /// Nothing is left of any connection.
    fn assert_clean(&self) {
        self.settle();
        let stats = self.io.stats();
        assert_eq!(stats.connections.value(), 0, "connections");
        assert_eq!(stats.clients.value(), 0, "clients");
        assert_eq!(stats.late_completions.value(), 0, "late completions");
        for group in Group::ALL {
            assert_eq!(self.buffers.free(group), self.buffers.count(group), "{group:?} buffers are free");
        }
        assert_eq!(self.buffers.spilled_bytes(), 0);
    }
}

fn say(received: &Received) -> String {
    match received {
        Received::Data(chunk) => format!("data {}", chunk.escape_ascii()),
        Received::End => "end".into(),
        Received::Failed(errno) => failed(*errno),
        Received::TimedOut => "timed out".into(),
    }
}

fn outcome<T>(outcome: Result<T, IoError>) -> String {
    match outcome {
        Ok(_) => "done".into(),
        Err(IoError::TimedOut) => "timed out".into(),
        Err(IoError::Failed(errno)) => failed(errno),
    }
}

fn failed(errno: Errno) -> String {
    format!("failed {}", errno.raw_os_error())
}

/// Takes everything up to the end; how many octets, and the end.
async fn read_all(conn: &Conn) -> (usize, String) {
    let mut bytes = 0;
    loop {
        match conn.receive(Time::NEVER).await {
            Received::Data(chunk) => bytes += chunk.len(),
            end => return (bytes, say(&end)),
        }
    }
}

// === clients and tasks ===

#[test]
fn an_idle_client_has_no_task_and_its_first_octets_take_one() {
    let world = World::new();
    world.listen(|client, story| async move {
        assert_eq!(client.tag(), 7);
        story.tell(say(&client.receive(Time::NEVER).await));
        client.send(text("pong"), Time::NEVER).await.expect("sent");
        let until = client.io().now() + IDLE;
        client.park_idle(until);
    });
    let peer = world.dial();
    assert_eq!(world.io.stats().tasks.value(), 0);
    assert_eq!(world.io.stats().clients.value(), 1);
    for _ in 0..3 {
        peer.send(b"ping");
        world.settle();
        assert_eq!(world.told(), ["data ping"]);
        assert_eq!(peer.received(), b"pong");
        assert_eq!(world.io.stats().tasks.value(), 1, "the same task serves again");
    }
    peer.finish();
    world.assert_clean();
    assert_eq!(world.told(), [""; 0], "an idle end takes no task");
}

#[test]
fn the_task_that_parked_last_is_taken_first() {
    let world = World::new();
    let served = Rc::new(Cell::new(0));
    let count = Rc::clone(&served);
    world.listen(move |client, story| {
        let number = count.get() + 1;
        count.set(number);
        async move {
            let until = client.io().now() + IDLE;
            let Received::Data(octets) = client.receive(Time::NEVER).await else { return };
            story.tell(format!("{number}: {}", octets.escape_ascii()));
            client.io().sleep_until(client.io().now() + Duration::from_millis(octets.len() as u64)).await;
            client.park_idle(until);
        }
    });
    let (long, short) = (world.dial(), world.dial());
    long.send(&[b'l'; 100]);
    short.send(b"s");
    world.settle();
    assert_eq!(world.io.stats().tasks.value(), 2);
    world.advance(Duration::from_millis(1) + TICK);
    world.advance(Duration::from_millis(200));
    world.told();
    short.send(b"s");
    world.settle();
    world.advance(Duration::from_millis(1) + TICK);
    assert_eq!(served.get(), 3);
    assert_eq!(world.io.stats().tasks.value(), 2, "no task is made while one is parked");
}

#[test]
fn octets_queued_when_a_client_is_parked_make_it_ready_at_once() {
    let world = World::new();
    world.listen(|client, story| async move {
        let Received::Data(mut octets) = client.receive(Time::NEVER).await else { return };
        let first = octets.split_to(1);
        client.put_back(octets);
        story.tell(format!("{}", first.escape_ascii()));
        let until = client.io().now() + IDLE;
        client.park_idle(until);
    });
    let peer = world.dial();
    peer.send(b"abc");
    world.settle();
    assert_eq!(world.told(), ["a", "b", "c"]);
    peer.finish();
    world.assert_clean();
}

#[test]
fn a_client_that_never_sends_is_closed_silently() {
    let world = World::new();
    world.listen(|_, _| async { unreachable!("no task for a silent client") });
    let peer = world.dial();
    world.advance(IDLE - TICK);
    assert_eq!(peer.ended(), None);
    world.advance(TICK + TICK);
    assert_eq!(peer.ended(), Some(End::Fin));
    assert_eq!(peer.received(), b"");
    assert_eq!(world.io.stats().idle_timeouts.value(), 1);
    world.assert_clean();
}

#[test]
fn the_keep_alive_deadline_counts_from_the_last_park() {
    let world = World::new();
    world.listen(|client, _| async move {
        client.receive(Time::NEVER).await;
        let until = client.io().now() + IDLE;
        client.park_idle(until);
    });
    let peer = world.dial();
    for _ in 0..3 {
        world.advance(IDLE / 2);
        peer.send(b"x");
        world.settle();
    }
    world.advance(IDLE - TICK);
    assert_eq!(peer.ended(), None);
    world.advance(TICK + TICK);
    assert_eq!(peer.ended(), Some(End::Fin));
    world.assert_clean();
}

#[test]
fn a_busy_client_is_not_closed_at_its_idle_deadline() {
    let world = World::new();
    world.listen(|client, story| async move {
        client.receive(Time::NEVER).await;
        story.tell(say(&client.receive(client.io().now() + 10 * IDLE).await));
    });
    let peer = world.dial();
    peer.send(b"x");
    world.settle();
    world.advance(IDLE + IDLE);
    assert_eq!(peer.ended(), None);
    peer.send(b"y");
    world.settle();
    assert_eq!(world.told(), ["data y"]);
}

#[test]
fn a_task_that_gives_up_its_place_does_not_strand_a_client() {
    let world = World::new();
    let raced = Rc::new(Cell::new(false));
    world.io.listen(world.sim.listener(FRONT), 0, IDLE);
    let (io, give_up, story) = (world.io.clone(), Rc::clone(&raced), world.story.clone());
    // Parks, and gives up in the very poll in which it is woken for a client.
    let quitter = world.io.spawn(async move {
        let mut next = Box::pin(io.next_client());
        std::future::poll_fn(|cx| if give_up.get() { Poll::Ready(()) } else { next.as_mut().poll(cx).map(|_| ()) })
            .await;
        drop(next);
        story.tell("gave up");
    });
    world.settle();
    let (io, story) = (world.io.clone(), world.story.clone());
    world.io.on_need_task(move |_| {
        let (io, story) = (io.clone(), story.clone());
        io.clone().spawn(async move {
            let client = io.next_client().await.expect("a client");
            story.tell(say(&client.receive(Time::NEVER).await));
        });
    });
    raced.set(true);
    let peer = world.sim.dial(FRONT);
    peer.send(b"hello");
    world.io.wake_task(quitter);
    world.settle();
    assert_eq!(world.told(), ["gave up", "data hello"]);
    world.assert_clean();
}

#[test]
fn only_so_many_tasks_are_parked() {
    let world = World::new();
    for _ in 0..=TASKS_PARKED_MAX {
        let (io, story) = (world.io.clone(), world.story.clone());
        world.io.spawn(async move {
            assert!(io.next_client().await.is_none());
            story.tell("no client");
        });
    }
    world.settle();
    assert_eq!(world.told().len(), 1);
    world.io.stop(Time::NEVER);
    world.settle();
    assert_eq!(world.told().len(), TASKS_PARKED_MAX, "a stop ends the others");
}

// === receiving ===

#[test]
fn octets_then_the_end_and_the_end_is_told_again() {
    let world = World::new();
    world.listen(|client, story| async move {
        for _ in 0..3 {
            story.tell(say(&client.receive(Time::NEVER).await));
        }
    });
    let peer = world.dial();
    peer.send(b"last words");
    peer.finish();
    world.settle();
    assert_eq!(world.told(), ["data last words", "end", "end"]);
    world.assert_clean();
}

#[test]
fn octets_then_the_reset_that_followed_them() {
    let world = World::new();
    world.listen(|client, story| async move {
        for _ in 0..3 {
            story.tell(say(&client.receive(Time::NEVER).await));
        }
    });
    let peer = world.dial();
    peer.send(b"x");
    peer.reset();
    world.settle();
    assert_eq!(world.told(), ["data x".into(), failed(Errno::CONNRESET), failed(Errno::CONNRESET)]);
    world.assert_clean();
}

#[test]
fn a_receive_that_times_out_loses_nothing() {
    let world = World::new();
    let (conn, peer) = world.child();
    let (story, io) = (world.story.clone(), world.io.clone());
    world.run(async move {
        story.tell(say(&conn.receive(io.now() + IDLE).await));
        story.tell(say(&conn.receive(Time::NEVER).await));
    });
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["timed out"]);
    peer.send(b"late");
    world.settle();
    assert_eq!(world.told(), ["data late"]);
}

#[test]
fn a_receive_that_ends_by_itself_is_armed_again() {
    let world = World::new();
    let (conn, peer) = world.child();
    let story = world.story.clone();
    for errno in [Errno::INTR, Errno::CANCELED] {
        world.sim.fail_next(Kind::Receive, errno);
    }
    conn.use_group(Group::Small);
    world.run(async move { story.tell(format!("{:?}", read_all(&conn).await)) });
    assert_eq!(world.sim.pending(Kind::Receive), 1);
    peer.send(b"abc");
    peer.finish();
    world.settle();
    assert_eq!(world.told(), ["(3, \"end\")"]);
    world.assert_clean();
}

#[test]
fn receiving_stops_above_the_cap_and_starts_again_below_half() {
    let world = World::new();
    let (conn, peer) = world.child();
    world.sim.submitted();
    peer.send(&vec![b'x'; RECEIVED_BYTES_MAX]);
    world.settle();
    assert_eq!(world.sim.pending(Kind::Receive), 1, "at the cap it is still armed");
    peer.send(b"y");
    world.settle();
    assert_eq!(world.sim.pending(Kind::Receive), 0, "above it is not");
    assert_eq!(world.io.stats().paused.value(), 1);
    peer.send(&vec![b'z'; 1000]);
    peer.finish();
    world.settle();
    assert_eq!(conn.queued_bytes(), RECEIVED_BYTES_MAX + 1);
    assert_eq!(conn.ended(), None, "the end waits behind what is not received");
    let taking = Rc::clone(&conn);
    world.run(async move {
        while taking.queued_bytes() >= RECEIVED_BYTES_MAX / 2 {
            assert!(matches!(taking.receive(Time::NEVER).await, Received::Data(_)));
        }
    });
    assert_eq!(conn.ended(), Some(Ended::End), "below half it is armed again");
    let story = world.story.clone();
    world.run(async move {
        let (bytes, end) = read_all(&conn).await;
        story.tell(format!("{} {end}", bytes < RECEIVED_BYTES_MAX / 2 + 1001));
    });
    assert_eq!(world.told(), ["true end"]);
    world.assert_clean();
}

#[test]
fn octets_that_come_after_the_cancel_are_kept() {
    let world = World::new();
    world.sim.outrun_cancels();
    let (conn, peer) = world.child();
    // One turn brings more than the cap: what comes after the octet that crosses it is queued too.
    peer.send(&vec![b'x'; 2 * RECEIVED_BYTES_MAX]);
    world.settle();
    assert_eq!(conn.queued_bytes(), 2 * RECEIVED_BYTES_MAX);
    assert_eq!(world.sim.pending(Kind::Receive), 0);
    peer.finish();
    let story = world.story.clone();
    world.run(async move { story.tell(format!("{:?}", read_all(&conn).await)) });
    assert_eq!(world.told(), [format!("({}, \"end\")", 2 * RECEIVED_BYTES_MAX)]);
    world.assert_clean();
}

#[test]
fn single_octets_are_bounded_by_their_number() {
    let world = World::new();
    let (conn, peer) = world.child();
    for _ in 0..=RECEIVED_CHUNKS_MAX {
        peer.send(b"x");
        world.settle();
    }
    assert_eq!(world.sim.pending(Kind::Receive), 0);
    peer.send(b"y");
    peer.finish();
    world.settle();
    assert_eq!(conn.queued_bytes(), RECEIVED_CHUNKS_MAX + 1);
    let story = world.story.clone();
    world.run(async move { story.tell(format!("{:?}", read_all(&conn).await)) });
    assert_eq!(world.told(), [format!("({}, \"end\")", RECEIVED_CHUNKS_MAX + 2)]);
    world.assert_clean();
}

#[test]
fn a_change_of_group_arms_again_after_the_last_completion() {
    let world = World::new();
    let (conn, peer) = world.child();
    world.sim.submitted();
    conn.use_group(Group::Small);
    conn.use_group(Group::Small);
    let submitted = world.sim.submitted();
    assert_eq!(submitted.iter().map(|op| op.kind).collect::<Vec<_>>(), [Kind::Cancel], "one cancel, nothing armed yet");
    peer.send(b"x");
    world.settle();
    let armed: Vec<_> = world.sim.submitted().iter().filter_map(|op| op.group).collect();
    assert_eq!(armed, [Group::Small]);
    assert_eq!(conn.queued_bytes(), 1);
}

#[test]
fn starved_receives_wait_until_a_quarter_is_free() {
    let world = World::with(Sizes { spill_bytes_max: 0, ..sizes(8, 8, 16) });
    let (hog, hogged) = world.child();
    let (other, others) = world.child();
    hogged.send(&[b'x'; 8 * 16]);
    world.settle();
    assert_eq!(world.buffers.free(Group::Large), 0);
    others.send(b"starved");
    world.settle();
    assert_eq!(world.io.stats().starved.value(), 1);
    world.sim.submitted();
    let story = world.story.clone();
    let (first, rest) = (Rc::clone(&hog), Rc::clone(&hog));
    world.run(async move {
        first.receive(Time::NEVER).await;
    });
    assert_eq!(world.buffers.free(Group::Large), 1);
    assert_eq!(world.sim.submitted().len(), 0, "one of eight is not enough: no tight loop");
    world.run(async move {
        rest.receive(Time::NEVER).await;
        story.tell(say(&other.receive(Time::NEVER).await));
    });
    assert_eq!(world.told(), ["data starved"]);
    drop(hog);
    world.assert_clean();
}

#[test]
fn octets_nobody_takes_are_copied_out_of_scarce_buffers() {
    let world = World::with(sizes(8, 8, 16));
    let (hog, hogged) = world.child();
    let (other, others) = world.child();
    hogged.send(&[b'x'; 8 * 16]);
    others.send(b"served");
    world.settle();
    assert!(!world.buffers.is_scarce(Group::Large), "enough was copied, and nobody starves");
    assert_eq!(world.sim.pending(Kind::Receive), 2);
    let story = world.story.clone();
    hogged.finish();
    world.run(async move {
        story.tell(say(&other.receive(Time::NEVER).await));
        story.tell(format!("{:?}", read_all(&hog).await));
    });
    assert_eq!(world.told(), ["data served", "(128, \"end\")"]);
    world.assert_clean();
}

#[test]
fn a_starved_connection_that_is_closed_leaves_the_line() {
    let world = World::with(Sizes { spill_bytes_max: 0, ..sizes(8, 4, 16) });
    let (hog, hogged) = world.child();
    let (other, others) = world.child();
    hogged.send(&[b'x'; 4 * 16]);
    world.settle();
    others.send(b"starved");
    world.settle();
    assert_eq!(world.io.stats().starved.value(), 1);
    drop(other);
    world.settle();
    assert_eq!(world.io.stats().connections.value(), 1);
    drop(hog);
    world.assert_clean();
}

// === sending ===

#[test]
fn a_short_send_is_finished_before_it_is_done() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.set_window(4);
    world.sim.submitted();
    let story = world.story.clone();
    world.run(async move {
        let mut pieces = text("head ");
        pieces.push(Piece::Static(b"body"));
        conn.send(pieces, Time::NEVER).await.expect("sent");
        story.tell("sent");
        conn.send(text("!"), Time::NEVER).await.expect("sent");
    });
    let mut got = Vec::new();
    let mut turns = 0;
    while got.len() < 10 {
        assert!(turns < 10);
        turns += 1;
        assert_eq!(world.told().len(), usize::from(got.len() >= 5), "not done while octets are left");
        got.extend(peer.received());
        world.settle();
    }
    assert_eq!(got, b"head body!");
    let kinds: Vec<_> = world.sim.submitted().iter().map(|op| op.kind).collect();
    assert_eq!(
        kinds[..3],
        [Kind::Send, Kind::SendWait, Kind::SendWait],
        "the first attempt does not wait, the rest do"
    );
    drop(peer);
}

#[test]
fn a_send_that_waits_pins_no_scarce_buffer() {
    let world = World::with(sizes(8, 8, 16));
    let (from, source) = world.child();
    let (to, sink) = world.child();
    sink.set_window(0);
    source.send(&[b'x'; 7 * 16]);
    let story = world.story.clone();
    let sending = Rc::clone(&to);
    world.run(async move {
        let mut pieces = antiphon::io::op::Pieces::new();
        for _ in 0..7 {
            let Received::Data(chunk) = from.receive(Time::NEVER).await else { panic!("seven chunks") };
            pieces.push(Piece::Chunk(chunk));
        }
        sending.send(pieces, Time::NEVER).await.expect("sent");
        story.tell("sent");
    });
    assert!(!world.buffers.is_scarce(Group::Large));
    assert_eq!(world.buffers.spilled_bytes(), 16, "no more is copied than must be");
    sink.set_window(1000);
    world.settle();
    assert_eq!(world.told(), ["sent"]);
    assert_eq!(sink.received(), [b'x'; 7 * 16]);
    drop(to);
    world.assert_clean();
}

#[test]
fn a_failed_send_says_so_each_time() {
    let world = World::new();
    let (conn, peer) = world.child();
    let story = world.story.clone();
    world.sim.fail_next(Kind::Send, Errno::INTR);
    world.sim.fail_next(Kind::SendWait, Errno::INTR);
    world.sim.fail_next(Kind::SendWait, Errno::NETDOWN);
    world.run(async move {
        let sent = conn.send(text("x"), Time::NEVER).await;
        story.tell(outcome(sent));
        let again = std::future::poll_fn(|_| conn.poll_sent(Time::NEVER)).await;
        assert_eq!(again.map(drop), Err(IoError::Failed(Errno::NETDOWN)));
    });
    assert_eq!(world.told(), [failed(Errno::NETDOWN)]);
    assert_eq!(peer.ended(), Some(End::Fin));
    world.assert_clean();
}

#[test]
fn a_kernel_that_waits_and_sends_nothing_is_not_asked_for_ever() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.set_window(0);
    let story = world.story.clone();
    world.sim.hold(Kind::SendWait);
    world.run(async move { story.tell(outcome(conn.send(text("x"), Time::NEVER).await)) });
    let waiting = world.sim.submitted().into_iter().rev().find(|op| op.kind == Kind::SendWait).expect("waits");
    world.sim.inject(Completion {
        token: waiting.token,
        result: Ok(0),
        more: false,
        payload: Payload::Sent(text("x")),
    });
    world.settle();
    assert_eq!(world.told(), [failed(Errno::IO)]);
}

#[test]
fn a_send_of_nothing_is_done_at_once() {
    let world = World::new();
    let (conn, _peer) = world.child();
    world.sim.submitted();
    let story = world.story.clone();
    world.run(async move {
        conn.send(antiphon::io::op::Pieces::new(), Time::NEVER).await.expect("sent");
        story.tell("sent");
    });
    assert_eq!(world.told(), ["sent"]);
    assert!(!world.sim.submitted().iter().any(|op| op.kind == Kind::Send));
}

#[test]
fn scratch_comes_back_with_the_pieces() {
    let world = World::new();
    let (conn, peer) = world.child();
    let story = world.story.clone();
    world.run(async move {
        let scratch = Vec::from(*b"head");
        let mut sent = conn.send(one(Piece::Scratch(scratch)), Time::NEVER).await.expect("sent");
        let mut kept = false;
        sent.recycle(|scratch| kept = scratch.capacity() >= 4);
        story.tell(format!("{kept}"));
    });
    assert_eq!(world.told(), ["true"]);
    assert_eq!(peer.received(), b"head");
}

#[test]
fn a_given_up_send_ends_its_connection() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.set_window(1);
    let (story, io) = (world.story.clone(), world.io.clone());
    world.run(async move {
        let sent = conn.send(text("xy"), io.now() + IDLE).await;
        story.tell(outcome(sent));
    });
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["timed out"]);
    assert_eq!(world.sim.pending(Kind::SendWait), 0, "cancelled");
    assert_eq!(peer.received(), b"x");
    assert_eq!(peer.ended(), Some(End::Fin));
    world.assert_clean();
}

#[test]
#[should_panic(expected = "is not used again")]
fn a_connection_with_a_given_up_send_cannot_send_again() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.set_window(0);
    let io = world.io.clone();
    world.run(async move {
        assert!(conn.send(text("x"), io.now() + IDLE).await.is_err());
        conn.begin_send(text("y"));
    });
    world.advance(IDLE + TICK);
}

#[test]
#[should_panic(expected = "is not used again")]
fn a_connection_with_a_given_up_send_cannot_be_parked() {
    let world = World::new();
    world.listen(|client, _| async move {
        assert!(client.send(text("x"), client.io().now() + IDLE).await.is_err());
        client.park_idle(Time::NEVER);
    });
    let peer = world.dial();
    peer.set_window(0);
    peer.send(b"x");
    world.settle();
    world.advance(IDLE + TICK);
}

#[test]
fn both_directions_at_once_in_one_task() {
    let world = World::new();
    world.listen(|client, story| async move {
        client.begin_send(text("welcome"));
        let mut open = (true, true);
        std::future::poll_fn(|_| {
            while open.0
                && let Poll::Ready(received) = client.poll_receive(Time::NEVER)
            {
                story.tell(say(&received));
                open.0 = matches!(received, Received::Data(_));
            }
            if open.1
                && let Poll::Ready(sent) = client.poll_sent(Time::NEVER)
            {
                story.tell(format!("sent {}", sent.is_ok()));
                open.1 = false;
            }
            if open == (false, false) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    let peer = world.dial();
    peer.set_window(3);
    peer.send(b"a");
    world.settle();
    peer.finish();
    world.settle();
    assert_eq!(world.told(), ["data a", "end"]);
    assert_eq!(peer.received(), b"wel");
    peer.set_window(100);
    world.settle();
    assert_eq!(world.told(), ["sent true"]);
    assert_eq!(peer.received(), b"come");
    world.assert_clean();
}

// === closing ===

#[test]
fn a_connection_is_closed_after_its_last_completion() {
    let world = World::new();
    let (conn, peer) = world.child();
    world.sim.hold(Kind::Receive);
    drop(conn);
    // The cancel has been submitted, its outcome not yet been seen: the descriptor must be open still.
    assert_eq!(world.io.stats().connections.value(), 1);
    assert!(!peer.is_closed_by_other());
    assert_eq!(peer.ended(), Some(End::Fin), "shut at once, though");
    world.settle();
    assert!(peer.is_closed_by_other());
    world.assert_clean();
}

#[test]
fn a_task_that_ends_leaves_its_send_to_the_driver() {
    let world = World::with(sizes(8, 8, 16));
    let (conn, peer) = world.child();
    peer.set_window(0);
    peer.send(b"octets");
    let sending = Rc::clone(&conn);
    world.run(async move {
        let Received::Data(chunk) = sending.receive(Time::NEVER).await else { panic!("octets") };
        sending.begin_send(one(Piece::Chunk(chunk)));
    });
    assert_eq!(world.sim.pending(Kind::SendWait), 1);
    world.sim.hold(Kind::SendWait);
    drop(conn);
    assert_eq!(world.buffers.free(Group::Large), 7, "the kernel may still read it");
    world.settle();
    world.assert_clean();
}

#[test]
fn octets_that_come_while_it_closes_are_dropped() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.send(b"on their way");
    drop(conn);
    world.assert_clean();
    drop(peer);
}

#[test]
fn a_reset_is_a_reset() {
    let world = World::new();
    let (conn, peer) = world.child();
    let conn = Rc::into_inner(conn).expect("the only one");
    conn.reset();
    world.settle();
    assert_eq!(peer.ended(), Some(End::Reset));
    world.assert_clean();
}

#[test]
fn lingering_reads_until_the_peer_has_closed() {
    let world = World::new();
    world.listen(|client, _| async move {
        client.receive(Time::NEVER).await;
        client.send(text("400"), Time::NEVER).await.expect("sent");
        client.close_lingering();
    });
    let peer = world.dial();
    peer.send(b"nonsense");
    world.settle();
    peer.send(b"more nonsense");
    world.settle();
    assert_eq!(peer.received(), b"400");
    assert_eq!(peer.ended(), Some(End::Fin), "no reset, although it has sent what nobody reads");
    assert_eq!(world.io.stats().clients.value(), 1);
    peer.finish();
    world.assert_clean();
}

#[test]
fn lingering_finishes_the_send_in_flight() {
    let world = World::new();
    world.listen(|client, _| async move {
        client.receive(Time::NEVER).await;
        client.begin_send(text("goodbye"));
        client.close_lingering();
    });
    let peer = world.dial();
    peer.set_window(4);
    peer.send(b"x");
    peer.finish();
    world.settle();
    assert_eq!(peer.received(), b"good");
    world.settle();
    assert_eq!(peer.received(), b"bye");
    assert_eq!(peer.ended(), Some(End::Fin));
    world.assert_clean();
}

#[test]
fn lingering_ends_in_time_and_by_size() {
    let world = World::new();
    world.listen(|client, _| async move {
        client.receive(Time::NEVER).await;
        client.close_lingering();
    });
    let (slow, endless) = (world.dial(), world.dial());
    for peer in [&slow, &endless] {
        peer.send(b"x");
    }
    world.settle();
    for _ in 0..=LINGER_BYTES_MAX / (1024 * 1024) {
        endless.send(&vec![b'x'; 1024 * 1024]);
        world.settle();
    }
    assert!(endless.is_closed_by_other());
    assert!(!slow.is_closed_by_other());
    world.advance(LINGER + TICK);
    assert!(slow.is_closed_by_other());
    world.assert_clean();
}

// === children ===

#[test]
fn a_connect_reports_what_the_kernel_says() {
    let world = World::new();
    let (io, story) = (world.io.clone(), world.story.clone());
    world.run(async move {
        story.tell(outcome(io.connect(CHILD, Time::NEVER).await));
        story.tell(outcome(io.connect(CHILD, Time::ZERO).await));
    });
    assert_eq!(world.told(), [failed(Errno::CONNREFUSED), "timed out".into()]);
    assert_eq!(world.io.stats().connect_failures.value(), 1);
    world.assert_clean();
}

#[test]
fn a_connect_that_is_given_up_is_closed() {
    let world = World::new();
    world.sim.silence(CHILD);
    let (io, story) = (world.io.clone(), world.story.clone());
    world.run(async move {
        let mut dropped = Box::pin(io.connect(CHILD, Time::NEVER));
        std::future::poll_fn(|cx| {
            assert!(dropped.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(dropped);
        story.tell(outcome(io.connect(CHILD, io.now() + IDLE).await));
    });
    assert_eq!(world.sim.pending(Kind::Connect), 1, "the dropped one is cancelled");
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["timed out"]);
    world.assert_clean();
}

#[test]
fn a_connect_that_succeeds_as_it_is_given_up_is_closed() {
    let world = World::new();
    world.sim.serve(CHILD);
    world.sim.hold(Kind::Connect);
    let (io, story) = (world.io.clone(), world.story.clone());
    world.run(async move { story.tell(outcome(io.connect(CHILD, io.now() + IDLE).await)) });
    world.sim.outrun_cancels();
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["timed out"]);
    let peer = world.sim.accepted(CHILD).expect("the connection stood");
    assert!(peer.is_closed_by_other());
    world.assert_clean();
}

#[test]
fn a_pooled_connection_that_was_disturbed_is_not_taken() {
    let world = World::new();
    let pool: Rc<RefCell<Vec<Pooled>>> = Rc::default();
    let mut peers = Vec::new();
    for _ in 0..4 {
        let (conn, peer) = world.child();
        pool.borrow_mut().push(Rc::into_inner(conn).expect("the only one").park_pooled());
        peers.push(peer);
    }
    let names: Vec<_> = pool.borrow().iter().map(Pooled::id).collect();
    let (io, story) = (world.io.clone(), world.story.clone());
    let keeper = world.io.spawn(async move {
        loop {
            let id = io.idle_closed().await;
            story.tell(format!("{}", names.iter().position(|name| *name == id).expect("ours")));
        }
    });
    world.settle();
    peers[2].finish();
    world.settle();
    peers[0].send(b"unasked");
    world.settle();
    peers[3].reset();
    world.settle();
    assert_eq!(world.told(), ["2", "0", "3"]);
    let taken: Vec<bool> = pool.take().into_iter().map(|pooled| pooled.take().is_some()).collect();
    assert_eq!(taken, [false, true, false, false]);
    world.io.wake_task(keeper);
    world.assert_clean();
}

#[test]
fn what_came_before_a_connection_is_pooled_disturbs_it() {
    let world = World::new();
    let (conn, peer) = world.child();
    peer.send(b"a second answer");
    world.settle();
    let pooled = Rc::into_inner(conn).expect("the only one").park_pooled();
    assert!(pooled.take().is_none());
    world.assert_clean();
}

// === accepting ===

#[test]
fn accepting_pauses_when_descriptors_run_out() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
        let world = World::new();
        world.sim.fail_next(Kind::Accept, errno);
        world.sim.fail_next(Kind::Accept, errno);
        world.listen(|client, story| async move { story.tell(say(&client.receive(Time::NEVER).await)) });
        let peer = world.dial();
        peer.send(b"x");
        world.settle();
        assert_eq!(world.sim.pending(Kind::Accept), 0, "no tight loop");
        world.advance(ACCEPT_PAUSE_MIN + TICK);
        assert_eq!(world.io.stats().accept_failures.value(), 2);
        world.advance(ACCEPT_PAUSE_MIN + TICK);
        assert_eq!(world.sim.pending(Kind::Accept), 0, "the second pause is twice as long");
        world.advance(ACCEPT_PAUSE_MIN + TICK);
        assert_eq!(world.sim.pending(Kind::Accept), 1);
        assert_eq!(world.told(), ["data x"]);
    }
}

#[test]
fn an_aborted_connection_does_not_pause_accepting() {
    let world = World::new();
    for errno in [Errno::CONNABORTED, Errno::PERM, Errno::NETUNREACH, Errno::INTR] {
        world.sim.fail_next(Kind::Accept, errno);
    }
    world.listen(|client, story| async move { story.tell(say(&client.receive(Time::NEVER).await)) });
    let peer = world.dial();
    peer.send(b"x");
    world.settle();
    assert_eq!(world.told(), ["data x"]);
    assert_eq!(world.io.stats().accept_failures.value(), 3, "a signal is no failure");
}

#[test]
fn accepting_stops_at_the_bound_and_starts_again_below_it() {
    let world = World::new();
    world.io.limit_connections(8);
    world.listen(|_, _| async {});
    let peers: Vec<Peer> = (0..7).map(|_| world.dial()).collect();
    assert_eq!(world.io.stats().clients.value(), 7);
    assert_eq!(world.sim.pending(Kind::Accept), 0);
    let last = world.dial();
    assert_eq!(world.io.stats().clients.value(), 7);
    let (child, _child_peer) = world.child();
    assert_eq!(world.io.stats().connections.value(), 8, "children may use the rest");
    let (io, story) = (world.io.clone(), world.story.clone());
    world.run(async move { story.tell(outcome(io.connect(CHILD, Time::NEVER).await)) });
    assert_eq!(world.told(), [failed(Errno::MFILE)]);
    drop(child);
    peers[0].finish();
    world.settle();
    assert_eq!(world.io.stats().clients.value(), 7, "the one that waited");
    assert_eq!(world.io.stats().accept_refused.value(), 0);
    for peer in peers.iter().chain([&last]) {
        peer.finish();
    }
    world.assert_clean();
    assert_eq!(world.sim.pending(Kind::Accept), 1);
}

#[test]
fn a_burst_beyond_the_bound_is_closed_at_once() {
    let world = World::new();
    world.io.limit_connections(4);
    let peers: Vec<Peer> = {
        world.io.listen(world.sim.listener(FRONT), 0, IDLE);
        (0..10).map(|_| world.sim.dial(FRONT)).collect()
    };
    world.settle();
    let stats = world.io.stats();
    assert_eq!(stats.clients.value() + stats.accept_refused.value(), 10);
    assert!(stats.clients.value() <= 4);
    for peer in &peers {
        peer.finish();
    }
    world.assert_clean();
}

#[test]
fn a_connection_accepted_as_listening_stops_is_served_or_closed() {
    for drain in [false, true] {
        let world = World::new();
        world.listen(|client, story| async move { story.tell(say(&client.receive(Time::NEVER).await)) });
        world.settle();
        world.sim.outrun_cancels();
        let peer = world.sim.dial(FRONT);
        peer.send(b"x");
        if drain {
            world.io.drain();
        } else {
            world.io.stop_listening();
        }
        world.settle();
        assert_eq!(world.told().len(), usize::from(!drain));
        assert_eq!(world.io.stats().accept_refused.value(), u64::from(drain));
        assert_eq!(world.io.stats().accepted.value(), u64::from(!drain));
    }
}

#[test]
fn a_drain_closes_idle_clients_and_lets_the_others_finish() {
    let world = World::new();
    world.listen(|client, story| async move {
        while let Received::Data(octets) = client.receive(Time::NEVER).await {
            if &*octets == b"done" {
                story.tell("served");
                return client.park_idle(Time::NEVER);
            }
        }
    });
    let (idle, busy) = (world.dial(), world.dial());
    busy.send(b"begin");
    world.settle();
    world.io.drain();
    world.settle();
    assert_eq!(idle.ended(), Some(End::Fin));
    assert_eq!(busy.ended(), None);
    busy.send(b"done");
    world.settle();
    assert_eq!(world.told(), ["served"]);
    assert_eq!(busy.ended(), Some(End::Fin));
    world.assert_clean();
}

#[test]
fn a_stop_returns_when_all_is_done_or_at_its_deadline() {
    for stuck in [false, true] {
        let world = World::new();
        world.listen(move |client, story| async move {
            client.receive(Time::NEVER).await;
            if stuck {
                client.receive(Time::NEVER).await;
            }
            story.tell("answered");
            client.begin_send(text("bye"));
            client.close_lingering();
        });
        let peer = world.dial();
        peer.send(b"x");
        world.settle();
        let deadline = world.io.now() + IDLE;
        world.io.stop(deadline);
        world.io.run().expect("runs");
        assert_eq!(world.io.now() < deadline, !stuck);
        assert_eq!(world.io.stats().tasks.value(), 0, "none outlives the run");
        assert_eq!(peer.received(), if stuck { b"".as_slice() } else { b"bye" });
    }
}

#[test]
fn a_run_returns_in_the_turn_in_which_the_last_task_ends() {
    let world = World::new();
    let (io, story) = (world.io.clone(), world.story.clone());
    world.io.spawn(async move {
        io.stop(Time::NEVER);
        story.tell("stopped");
    });
    // Otherwise the simulation would stand still.
    world.io.run().expect("runs");
    assert_eq!(world.told(), ["stopped"]);
}

// === tasks, timers, wakes ===

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    let world = World::new();
    for millis in [30_u64, 10, 20, 0] {
        let (io, story) = (world.io.clone(), world.story.clone());
        world.io.spawn(async move {
            io.sleep_until(io.now() + Duration::from_millis(millis)).await;
            story.tell(millis.to_string());
        });
    }
    world.settle();
    assert_eq!(world.told(), ["0"]);
    for expected in ["10", "20", "30"] {
        world.advance(Duration::from_millis(10) + TICK);
        assert_eq!(world.told(), [expected]);
    }
}

#[test]
fn a_deadline_that_is_not_asked_for_again_does_not_end_a_later_wait() {
    let world = World::new();
    let (conn, peer) = world.child();
    let (io, story) = (world.io.clone(), world.story.clone());
    world.run(async move {
        story.tell(say(&conn.receive(io.now() + IDLE).await));
        story.tell(say(&conn.receive(io.now() + 3 * IDLE).await));
    });
    peer.send(b"x");
    world.settle();
    world.advance(IDLE + TICK);
    world.advance(IDLE);
    assert_eq!(world.told(), ["data x"]);
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["timed out"]);
}

#[test]
fn a_task_that_yields_lets_others_go_first() {
    let world = World::new();
    for name in ["a", "b"] {
        let (io, story) = (world.io.clone(), world.story.clone());
        world.io.spawn(async move {
            for step in 0..3 {
                story.tell(format!("{name}{step}"));
                io.yield_now().await;
            }
        });
    }
    world.settle();
    assert_eq!(world.told(), ["a0", "b0", "a1", "b1", "a2", "b2"]);
}

#[test]
fn tasks_hand_things_to_each_other() {
    let world = World::new();
    let slot: Rc<Cell<Option<&str>>> = Rc::default();
    let (story, from) = (world.story.clone(), Rc::clone(&slot));
    let taker = world.io.spawn(async move {
        let thing = std::future::poll_fn(|_| from.take().map_or(Poll::Pending, Poll::Ready)).await;
        story.tell(thing);
    });
    world.settle();
    let io = world.io.clone();
    world.run(async move {
        slot.set(Some("a thing"));
        io.wake_task(taker);
        io.wake_task(taker);
    });
    assert_eq!(world.told(), ["a thing"]);
    world.io.wake_task(taker);
    world.settle();
}

#[test]
fn a_wake_is_never_lost() {
    let world = World::new();
    let handle = world.io.wake_handle();
    let (io, story) = (world.io.clone(), world.story.clone());
    world.io.spawn(async move {
        loop {
            let woken = io.woken(io.now() + IDLE).await;
            story.tell(format!("{woken}"));
        }
    });
    handle.wake(); // before the task has looked at all
    world.settle();
    assert_eq!(world.told(), ["true"]);
    for _ in 0..3 {
        handle.wake();
        handle.wake();
        world.settle();
        assert_eq!(world.told(), ["true"], "two wakes between turns are one");
    }
    world.advance(IDLE + TICK);
    assert_eq!(world.told(), ["false"]);
    handle.wake();
    world.settle();
    assert_eq!(world.told(), ["true"]);
}

#[test]
fn a_wake_reaches_every_task_that_waits() {
    let world = World::new();
    for name in ["a", "b"] {
        let (io, story) = (world.io.clone(), world.story.clone());
        world.io.spawn(async move {
            assert!(io.woken(Time::NEVER).await);
            story.tell(name);
        });
    }
    world.settle();
    world.io.wake_handle().wake();
    world.settle();
    assert_eq!(world.told(), ["a", "b"]);
}

// === what a driver might do ===

#[test]
fn a_completion_for_something_gone_is_dropped() {
    let world = World::with(sizes(8, 8, 16));
    let (conn, peer) = world.child();
    let old = world.sim.submitted().iter().find(|op| op.kind == Kind::Receive).expect("armed").token;
    drop(conn);
    world.settle();
    // Another connection in the same slots, and then completions for the generation before it, of every kind.
    let (conn, _peer) = world.child();
    let chunk = |octets: &'static [u8]| {
        world.buffers.fill(Group::Large, |buffer| {
            buffer[..octets.len()].copy_from_slice(octets);
            Ok(octets.len())
        })
    };
    let payloads = [
        (Ok(3), Payload::Received(chunk(b"old").expect("free"))),
        (Ok(0), Payload::None),
        (Err(Errno::NOBUFS), Payload::None),
        (Ok(1), Payload::Sent(text("x"))),
        (Ok(0), Payload::Accepted(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket").into())),
    ];
    let count = payloads.len() as u64;
    for (result, payload) in payloads {
        world.sim.inject(Completion { token: old, result, more: false, payload });
        let foreign = Token(old.0 ^ 0x7000_0000_0000_0000);
        world.sim.inject(Completion { token: foreign, result: Ok(0), more: true, payload: Payload::None });
    }
    world.settle();
    assert_eq!(world.io.stats().late_completions.value(), 2 * count);
    assert_eq!((conn.queued_bytes(), conn.ended()), (0, None), "the successor is untouched");
    assert_eq!(world.buffers.free(Group::Large), 8);
    assert!(peer.is_closed_by_other());
}

#[test]
fn a_broken_driver_ends_the_run() {
    let world = World::new();
    let token = world.sim.submitted().iter().find(|op| op.kind == Kind::Wake).expect("armed").token;
    world.sim.inject(Completion { token, result: Err(Errno::BADF), more: true, payload: Payload::None });
    assert!(world.io.run().is_err());
}
