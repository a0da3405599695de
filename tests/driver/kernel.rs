//! One suite on both drivers of the kernel: the executor must not be able to tell them apart.
//!
//! The far ends are plain blocking sockets on threads of their own. Each test ends by asserting that nothing is left.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use antiphon::io::buffer::{Buffers, Group, Sizes};
use antiphon::io::exec::{Conn, Ended, Io, IoError, Received};
use antiphon::io::op::{Piece, Pieces};
use antiphon::io::{DriverChoice, open};
use antiphon::limits::{RECEIVED_BYTES_MAX, SEND_PIECES_MAX};
use antiphon::time::Time;
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};

use crate::{one, sizes, text};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const IDLE: Duration = Duration::from_secs(3600);
/// Only a hang lasts so long.
const HANG: Duration = Duration::from_secs(60);

/// An executor on a driver of the kernel.
struct Rig {
    io: Io,
    buffers: Rc<Buffers>,
}

/// Runs a test on each driver of this host.
fn on_each_driver(sizes: Sizes, test: impl Fn(&Rig)) {
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        match open(choice, sizes) {
            Ok(opened) => {
                let io = Io::new(opened.driver, Rc::clone(&opened.buffers)).expect("an eventfd");
                println!("on {}", io.driver_name());
                let rig = Rig { io, buffers: opened.buffers };
                test(&rig);
                rig.assert_clean();
            }
            Err(refusal) => {
                assert!(std::env::var("ANTIPHON_TEST_ALL").as_deref() != Ok("1"), "{refusal}");
                println!("SKIP: {refusal}");
            }
        }
    }
}

impl Rig {
    /// Runs a task to its end, and whatever else there is meanwhile.
    fn block_on<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> T {
        let slot = Rc::new(std::cell::RefCell::new(None));
        let into = Rc::clone(&slot);
        self.io.spawn(async move {
            let result = task.await;
            *into.borrow_mut() = Some(result);
        });
        self.turn_until(|| slot.borrow().is_some());
        slot.take().expect("just seen")
    }

    fn turn_until(&self, done: impl Fn() -> bool) {
        let (io, over) = (self.io.clone(), Rc::new(std::cell::Cell::new(false)));
        let seen = Rc::clone(&over);
        self.io.spawn(async move {
            let until = io.now() + HANG;
            // Tasks run at the beginning of a turn: without this, what they did would be seen at the end of the next.
            while !seen.get() {
                io.sleep_until(io.now() + Duration::from_millis(1)).await;
                assert!(io.now() < until, "the test hangs: {:?} {:?}", io.stats(), io.buffers());
            }
        });
        while !done() {
            self.io.turn().expect("a working driver");
        }
        over.set(true);
    }

    /// Listens and serves each client with `serve`.
    fn listen<F: Future<Output = ()> + 'static>(&self, serve: impl Fn(Conn) -> F + 'static) -> SocketAddr {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let address = listener.local_addr().expect("bound");
        self.io.listen(listener.into(), 9, IDLE);
        self.serve(serve);
        address
    }

    fn serve<F: Future<Output = ()> + 'static>(&self, serve: impl Fn(Conn) -> F + 'static) {
        let serve = Rc::new(serve);
        self.io.on_need_task(move |io| {
            let (io, serve) = (io.clone(), Rc::clone(&serve));
            io.clone().spawn(async move {
                while let Some(client) = io.next_client().await {
                    serve(client).await;
                }
            });
        });
    }

    /// Waits for a thread without ceasing to turn.
    fn join<T: Send + 'static>(&self, thread: thread::JoinHandle<T>) -> T {
        while !thread.is_finished() {
            let io = self.io.clone();
            self.block_on(async move { io.sleep_until(io.now() + Duration::from_millis(1)).await });
        }
        thread.join().expect("the far end is content")
    }

    /// A connection to a listener of the test.
    fn connect(&self, listener: &TcpListener) -> (Conn, TcpStream) {
        let (io, address) = (self.io.clone(), listener.local_addr().expect("bound"));
        let conn = self.block_on(async move { io.connect(address, Time::NEVER).await.expect("somebody listens") });
        (conn, listener.accept().expect("connected").0)
    }

    fn assert_clean(&self) {
        self.io.drain();
        let stats = Arc::clone(self.io.stats());
        self.turn_until(|| stats.connections.value() == 0);
        assert_eq!((stats.clients.value(), stats.late_completions.value()), (0, 0));
        for group in Group::ALL {
            assert_eq!(self.buffers.free(group), self.buffers.count(group), "{group:?} buffers");
        }
        assert_eq!(self.buffers.spilled_bytes(), 0);
        self.io.stop(Time::ZERO);
        self.io.run().expect("a working driver");
    }
}

fn in_thread<T: Send + 'static>(far_end: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(far_end)
}

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(HANG)).expect("a time");
    stream.set_write_timeout(Some(HANG)).expect("a time");
    stream
}

/// Octets that tell where they belong.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place ^ (place >> 8) ^ (place >> 16)) as u8).collect()
}

/// Everything up to the end, and the end.
async fn read_all(conn: &Conn) -> (Vec<u8>, Result<(), Errno>) {
    let mut all = Vec::new();
    loop {
        match conn.receive(Time::NEVER).await {
            Received::Data(chunk) => all.extend_from_slice(&chunk),
            Received::End => return (all, Ok(())),
            Received::Failed(errno) => return (all, Err(errno)),
            Received::TimedOut => unreachable!("never"),
        }
    }
}

/// Sends back what comes, without copying it, until the end.
async fn echo(conn: &Conn) {
    while let Received::Data(chunk) = conn.receive(Time::NEVER).await {
        conn.send(one(Piece::Chunk(chunk)), Time::NEVER).await.expect("sent");
    }
}

#[test]
fn a_client_is_served_again_and_again() {
    on_each_driver(Sizes::default(), |rig| {
        let address = rig.listen(|client| async move {
            assert_eq!(client.tag(), 9);
            let Received::Data(chunk) = client.receive(Time::NEVER).await else { return };
            let mut answer = text("re: ");
            answer.push(Piece::Chunk(chunk));
            let ends = format!(" {} {}", client.peer(), client.local());
            answer.push(Piece::Scratch(ends.into_bytes()));
            client.send(answer, Time::NEVER).await.expect("sent");
            let until = client.io().now() + IDLE;
            client.park_idle(until);
        });
        rig.join(in_thread(move || {
            let mut stream = dial(address);
            let expected = format!("re: ping {} {address}", stream.local_addr().expect("connected"));
            for _ in 0..100 {
                stream.write_all(b"ping").expect("sent");
                let mut answer = vec![0; expected.len()];
                stream.read_exact(&mut answer).expect("an answer");
                assert_eq!(String::from_utf8_lossy(&answer), expected);
            }
        }));
        assert_eq!(rig.io.stats().accepted.value(), 1);
    });
}

#[test]
fn an_ipv4_client_of_a_socket_for_both_has_an_ipv4_address() {
    on_each_driver(Sizes::default(), |rig| {
        let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
            println!("SKIP: no IPv6 here");
            return;
        };
        let port = listener.local_addr().expect("bound").port();
        rig.io.listen(listener.into(), 0, IDLE);
        rig.serve(|client| async move {
            assert!(client.peer().is_ipv4() && client.local().is_ipv4());
            echo(&client).await;
        });
        rig.join(in_thread(move || {
            let mut stream = dial((Ipv4Addr::LOCALHOST, port).into());
            stream.write_all(b"x").expect("sent");
            stream.read_exact(&mut [0]).expect("echoed");
        }));
    });
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    on_each_driver(Sizes::default(), |rig| {
        let address = rig.listen(|client| async move {
            let (all, end) = read_all(&client).await;
            assert_eq!((all.as_slice(), end), (b"question".as_slice(), Ok(())));
            assert_eq!(client.ended(), Some(Ended::End));
            client.send(text("answer"), Time::NEVER).await.expect("sent");
        });
        rig.join(in_thread(move || {
            let mut stream = dial(address);
            stream.write_all(b"question").expect("sent");
            stream.shutdown(Shutdown::Write).expect("shut");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert_eq!(answer, "answer");
        }));
    });
}

#[test]
fn we_can_shut_our_side_first() {
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, mut far) = rig.connect(&listener);
        let thread = in_thread(move || {
            let mut question = String::new();
            far.read_to_string(&mut question).expect("a question and its end");
            far.write_all(question.to_uppercase().as_bytes()).expect("sent");
        });
        let all = rig.block_on(async move {
            conn.send(text("question"), Time::NEVER).await.expect("sent");
            conn.shut_write();
            read_all(&conn).await
        });
        assert_eq!(all, (b"QUESTION".to_vec(), Ok(())));
        rig.join(thread);
    });
}

#[test]
fn a_peer_that_resets_fails_the_receive_and_the_send() {
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, far) = rig.connect(&listener);
        SockRef::from(&far).set_linger(Some(Duration::ZERO)).expect("set");
        drop(far);
        rig.block_on(async move {
            assert_eq!(read_all(&conn).await.1, Err(Errno::CONNRESET));
            assert_eq!(read_all(&conn).await.1, Err(Errno::CONNRESET), "told again");
            let sent = conn.send(text("x"), Time::NEVER).await;
            assert!(matches!(sent, Err(IoError::Failed(Errno::PIPE | Errno::CONNRESET))));
        });
    });
}

#[test]
fn a_dropped_connection_ends_and_a_reset_one_breaks() {
    on_each_driver(Sizes::default(), |rig| {
        for reset in [false, true] {
            let listener = TcpListener::bind(LOOPBACK).expect("loopback");
            let (conn, mut far) = rig.connect(&listener);
            rig.block_on(async move {
                conn.send(text("half an ans"), Time::NEVER).await.expect("sent");
                if reset { conn.reset() } else { drop(conn) }
            });
            let seen = rig.join(in_thread(move || {
                far.set_read_timeout(Some(HANG)).expect("a time");
                far.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
            }));
            assert_eq!(seen, if reset { Err(ErrorKind::ConnectionReset) } else { Ok(11) });
        }
    });
}

#[test]
fn a_connect_is_refused_or_gives_up() {
    on_each_driver(Sizes::default(), |rig| {
        let nobody = TcpListener::bind(LOOPBACK).expect("loopback").local_addr().expect("bound");
        let io = rig.io.clone();
        let refused = rig.block_on(async move { io.connect(nobody, Time::NEVER).await.map(drop) });
        assert_eq!(refused, Err(IoError::Failed(Errno::CONNREFUSED)));

        // A listener that accepts nobody answers no more when its backlog is full.
        let deaf = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        deaf.bind(&LOOPBACK.into()).expect("loopback");
        deaf.listen(0).expect("listens");
        let address = deaf.local_addr().expect("bound").as_socket().expect("TCP");
        let io = rig.io.clone();
        let gave_up = rig.block_on(async move {
            let mut kept = Vec::new();
            for _ in 0..16 {
                match io.connect(address, io.now() + Duration::from_millis(20)).await {
                    Ok(conn) => kept.push(conn),
                    Err(error) => return Some(error),
                }
            }
            None
        });
        assert_eq!(gave_up, Some(IoError::TimedOut));
    });
}

#[test]
fn megabytes_arrive_whole_though_receiving_stops_and_starts() {
    const BYTES: usize = 16 * RECEIVED_BYTES_MAX;
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, mut far) = rig.connect(&listener);
        let thread = in_thread(move || far.write_all(&pattern(BYTES)).expect("sent"));
        let stats = Arc::clone(rig.io.stats());
        rig.turn_until(|| stats.paused.value() > 0);
        let (all, end) = rig.block_on(async move { read_all(&conn).await });
        assert!(all == pattern(BYTES) && end == Ok(()));
        rig.join(thread);
    });
}

#[test]
fn a_slow_reader_does_not_starve_the_others() {
    // More than the kernel keeps for a connection.
    const BYTES: usize = 16 * 1024 * 1024;
    on_each_driver(sizes(16, 16, 4096), |rig| {
        let source = TcpListener::bind(LOOPBACK).expect("loopback");
        let from = source.local_addr().expect("bound");
        let address = rig.listen(move |client| async move {
            let Received::Data(request) = client.receive(Time::NEVER).await else { return };
            if &*request == b"quick" {
                client.send(one(Piece::Chunk(request)), Time::NEVER).await.expect("sent");
                return;
            }
            // Relays all that the source has, many pieces at a time.
            let child = client.io().connect(from, Time::NEVER).await.expect("the source listens");
            let mut open = true;
            while open {
                let mut pieces = Pieces::new();
                while open && !pieces.is_full() && (pieces.is_empty() || child.queued_bytes() > 0) {
                    match child.receive(Time::NEVER).await {
                        Received::Data(chunk) => pieces.push(Piece::Chunk(chunk)),
                        _ => open = false,
                    }
                }
                client.send(pieces, Time::NEVER).await.expect("sent");
            }
        });
        let writer = in_thread(move || source.accept().expect("a relay").0.write_all(&pattern(BYTES)).is_ok());
        let (stuck, proceed) = mpsc::channel();
        let slow = in_thread(move || {
            let mut stream = dial(address);
            stream.write_all(b"slow").expect("sent");
            proceed.recv().expect("told to read");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("all");
            all == pattern(BYTES)
        });
        // The relay can go no further: the slow one's socket and the cap are full.
        let stats = Arc::clone(rig.io.stats());
        rig.turn_until(|| stats.paused.value() > 0);
        rig.join(in_thread(move || {
            for _ in 0..50 {
                let mut stream = dial(address);
                stream.write_all(b"quick").expect("sent");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("an answer");
                assert_eq!(answer, "quick");
            }
        }));
        stuck.send(()).expect("it waits");
        assert!(rig.join(slow) && rig.join(writer));
    });
}

#[test]
fn who_finds_no_buffer_is_served_when_some_are_free() {
    on_each_driver(Sizes { spill_bytes_max: 0, ..sizes(8, 8, 64) }, |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (hog, mut hogged) = rig.connect(&listener);
        let (other, mut others) = rig.connect(&listener);
        hogged.write_all(&[b'x'; 8 * 64]).expect("sent");
        let full = || rig.buffers.free(Group::Large) == 0;
        rig.turn_until(full);
        others.write_all(b"starved").expect("sent");
        let stats = Arc::clone(rig.io.stats());
        rig.turn_until(|| stats.starved.value() > 0);
        rig.block_on(async move {
            let out_of_time = other.io().now();
            let waits = std::future::poll_fn(|_| Poll::Ready(other.poll_receive(out_of_time).is_pending())).await;
            assert!(waits, "that there is no buffer is not the peer's silence");
            let mut bytes = 0;
            while bytes < 8 * 64 {
                let Received::Data(chunk) = hog.receive(Time::NEVER).await else { panic!("512 octets") };
                bytes += chunk.len();
            }
            let Received::Data(chunk) = other.receive(Time::NEVER).await else { panic!("octets") };
            assert_eq!(&*chunk, b"starved");
        });
    });
}

#[test]
fn both_directions_of_a_tunnel() {
    const BYTES: usize = 2 * 1024 * 1024;
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let to = listener.local_addr().expect("bound");
        let far = in_thread(move || {
            let (mut stream, _) = listener.accept().expect("a tunnel");
            let mut back = stream.try_clone().expect("a descriptor");
            let writer = thread::spawn(move || {
                back.write_all(&pattern(BYTES)).expect("sent");
                back.shutdown(Shutdown::Write).expect("shut");
            });
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("all");
            writer.join().expect("written");
            all == pattern(BYTES)
        });
        let address = rig.listen(move |client| async move {
            let child = client.io().connect(to, Time::NEVER).await.expect("the far end listens");
            let mut ways = [Way::new(&client, &child), Way::new(&child, &client)];
            std::future::poll_fn(|_| {
                let open = ways.iter_mut().filter_map(|way| way.poll().is_pending().then_some(())).count();
                if open == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        let near = in_thread(move || {
            let mut stream = dial(address);
            let mut back = stream.try_clone().expect("a descriptor");
            let writer = thread::spawn(move || {
                for piece in pattern(BYTES).chunks(10_007) {
                    back.write_all(piece).expect("sent");
                }
                back.shutdown(Shutdown::Write).expect("shut");
            });
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("all");
            writer.join().expect("written");
            all == pattern(BYTES)
        });
        assert!(rig.join(near) && rig.join(far));
    });
}

/// One direction of a tunnel.
struct Way<'c> {
    from: &'c Conn,
    to: &'c Conn,
    done: bool,
}

impl<'c> Way<'c> {
    const fn new(from: &'c Conn, to: &'c Conn) -> Self {
        Self { from, to, done: false }
    }

    fn poll(&mut self) -> Poll<()> {
        while !self.done {
            if self.to.is_sending() {
                let Poll::Ready(sent) = self.to.poll_sent(Time::NEVER) else { return Poll::Pending };
                sent.expect("sent");
            }
            let Poll::Ready(received) = self.from.poll_receive(Time::NEVER) else { return Poll::Pending };
            match received {
                Received::Data(chunk) => self.to.begin_send(one(Piece::Chunk(chunk))),
                _ => {
                    self.to.shut_write();
                    self.done = true;
                }
            }
        }
        Poll::Ready(())
    }
}

#[test]
fn an_upload_moves_to_the_large_group() {
    const BYTES: usize = 1024 * 1024;
    on_each_driver(Sizes::default(), |rig| {
        let address = rig.listen(|client| async move {
            let Received::Data(first) = client.receive(Time::NEVER).await else { panic!("octets") };
            assert_eq!(first.group(), Some(Group::Small));
            let mut all = first.to_vec();
            client.use_group(Group::Large);
            let mut large = false;
            while all.len() < BYTES {
                let Received::Data(chunk) = client.receive(Time::NEVER).await else { panic!("octets") };
                large |= chunk.group() == Some(Group::Large);
                all.extend_from_slice(&chunk);
            }
            assert!(large && all == pattern(BYTES));
            client.send(text("thanks"), Time::NEVER).await.expect("sent");
            let until = client.io().now() + IDLE;
            client.park_idle(until);
        });
        rig.join(in_thread(move || {
            let mut stream = dial(address);
            for _ in 0..2 {
                stream.write_all(&pattern(BYTES)).expect("sent");
                stream.read_exact(&mut [0; 6]).expect("an answer");
            }
        }));
    });
}

#[test]
fn as_many_pieces_as_there_may_be_go_in_one_send() {
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, mut far) = rig.connect(&listener);
        let thread = in_thread(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).expect("all");
            all == pattern(SEND_PIECES_MAX * 9000)
        });
        rig.block_on(async move {
            let mut pieces = Pieces::new();
            for piece in pattern(SEND_PIECES_MAX * 9000).chunks(9000) {
                pieces.push(Piece::Scratch(piece.to_vec()));
            }
            assert!(pieces.is_full());
            conn.send(pieces, Time::NEVER).await.expect("sent");
        });
        assert!(rig.join(thread));
    });
}

#[test]
fn a_peer_that_still_sends_gets_the_answer_of_a_lingering_close() {
    on_each_driver(Sizes::default(), |rig| {
        let address = rig.listen(|client| async move {
            client.receive(Time::NEVER).await;
            client.begin_send(text("413 too much"));
            client.close_lingering();
        });
        rig.join(in_thread(move || {
            let mut stream = dial(address);
            stream.write_all(&pattern(4 * 1024 * 1024)).expect("sent, though nobody wants it");
            stream.shutdown(Shutdown::Write).expect("shut");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("no reset");
            assert_eq!(answer, "413 too much");
        }));
    });
}

#[test]
fn a_send_that_is_given_up_closes_its_connection() {
    on_each_driver(sizes(16, 16, 4096), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, far) = rig.connect(&listener);
        rig.block_on(async move {
            let endless = vec![b'x'; 32 * 1024 * 1024];
            let sent = conn.send(one(Piece::Scratch(endless)), conn.io().now() + Duration::from_millis(20)).await;
            assert_eq!(sent.map(drop), Err(IoError::TimedOut));
        });
        let stats = Arc::clone(rig.io.stats());
        rig.turn_until(|| stats.connections.value() == 0);
        drop(far);
    });
}

#[test]
fn an_idle_client_is_closed_at_its_deadline() {
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let address = listener.local_addr().expect("bound");
        rig.io.listen(listener.into(), 0, Duration::from_millis(20));
        rig.serve(|_| async { unreachable!("it never sends") });
        rig.join(in_thread(move || assert_eq!(dial(address).read(&mut [0]).expect("an end"), 0)));
        assert_eq!(rig.io.stats().idle_timeouts.value(), 1);
    });
}

#[test]
fn a_pooled_connection_that_the_child_closes_is_told_and_not_taken() {
    on_each_driver(Sizes::default(), |rig| {
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (closed, far) = rig.connect(&listener);
        let (kept, _kept_far) = rig.connect(&listener);
        let (closed, kept) = (closed.park_pooled(), kept.park_pooled());
        drop(far);
        let io = rig.io.clone();
        let told = rig.block_on(async move { io.idle_closed().await });
        assert_eq!(told, closed.id());
        assert!(closed.take().is_none());
        assert!(kept.take().is_some());
    });
}

#[test]
fn many_short_connections_leave_nothing_behind() {
    const CONNECTIONS: usize = 400;
    on_each_driver(sizes(32, 32, 256), |rig| {
        let address = rig.listen(|client| async move {
            let Received::Data(request) = client.receive(Time::NEVER).await else { return };
            let how = request[0];
            client.send(one(Piece::Chunk(request)), Time::NEVER).await.expect("sent");
            match how % 3 {
                0 => drop(client),
                1 => client.close_lingering(),
                _ => {
                    let until = client.io().now() + IDLE;
                    client.park_idle(until);
                }
            }
        });
        let io = rig.io.clone();
        rig.block_on(async move {
            for number in 0..CONNECTIONS {
                let conn = io.connect(address, Time::NEVER).await.expect("we listen");
                let request = [number as u8, (number >> 8) as u8];
                conn.send(one(Piece::Scratch(request.to_vec())), Time::NEVER).await.expect("sent");
                let mut answer = Vec::new();
                while answer.len() < 2 {
                    let Received::Data(chunk) = conn.receive(Time::NEVER).await else { panic!("an answer") };
                    answer.extend_from_slice(&chunk);
                }
                assert_eq!(answer, request, "each its own");
                if number % 5 == 0 {
                    conn.reset();
                }
            }
        });
        assert_eq!(rig.io.stats().accepted.value(), CONNECTIONS as u64);
    });
}

#[test]
fn another_thread_wakes_a_worker() {
    const ITEMS: usize = 1000;
    on_each_driver(Sizes::default(), |rig| {
        let (fill, queue) = mpsc::channel();
        let handle = rig.io.wake_handle();
        let thread = in_thread(move || {
            for item in 0..ITEMS {
                fill.send(item).expect("taken");
                handle.wake();
                if item % 7 == 0 {
                    thread::yield_now();
                }
            }
        });
        let io = rig.io.clone();
        let seen = rig.block_on(async move {
            let mut seen = Vec::new();
            while seen.len() < ITEMS {
                assert!(io.woken(Time::NEVER).await);
                seen.extend(queue.try_iter());
            }
            seen
        });
        assert!(seen.into_iter().eq(0..ITEMS));
        thread.join().expect("no panic");
    });
}

#[test]
fn nobody_can_connect_once_listening_has_stopped() {
    on_each_driver(Sizes::default(), |rig| {
        let address = rig.listen(|client| async move { echo(&client).await });
        let thread = in_thread(move || {
            let mut stream = dial(address);
            stream.write_all(b"x").expect("sent");
            stream.read_exact(&mut [0]).expect("echoed");
            stream
        });
        let mut stream = rig.join(thread);
        rig.io.stop_listening();
        rig.join(in_thread(move || {
            while TcpStream::connect(address).is_ok() {
                thread::yield_now();
            }
            stream.write_all(b"y").expect("those who are in stay");
            stream.read_exact(&mut [0]).expect("echoed");
        }));
    });
}

#[test]
fn an_executor_dropped_with_connections_open_closes_them() {
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        let Ok(opened) = open(choice, Sizes::default()) else { continue };
        let rig = Rig {
            io: Io::new(opened.driver, Rc::clone(&opened.buffers)).expect("an eventfd"),
            buffers: opened.buffers,
        };
        let listener = TcpListener::bind(LOOPBACK).expect("loopback");
        let (conn, mut far) = rig.connect(&listener);
        rig.io.spawn(async move {
            echo(&conn).await;
        });
        far.write_all(b"x").expect("sent");
        far.set_nonblocking(true).expect("set");
        rig.turn_until(|| far.peek(&mut [0]).is_ok_and(|bytes| bytes > 0));
        far.set_nonblocking(false).expect("set");
        rig.io.stop(Time::ZERO);
        rig.io.run().expect("a working driver");
        drop(rig);
        far.set_read_timeout(Some(HANG)).expect("a time");
        assert_eq!(far.read_to_end(&mut Vec::new()).expect("an end"), 1);
    }
}
