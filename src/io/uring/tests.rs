//! The driver against the real kernel, over loopback. Where the host forbids io_uring, each test says so and passes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::*;
use crate::io::buffer::Sizes;
use crate::io::op::Piece;

/// A driver, and all that it has completed and the test has not yet looked at.
struct Rig {
    driver: UringDriver,
    buffers: Rc<Buffers>,
    seen: Vec<Completion>,
}

/// None, and a line saying so, where the host forbids io_uring.
fn rig_of(entries: u32, sizes: Sizes) -> Option<Rig> {
    let buffers = Buffers::new(sizes).expect("address space");
    match UringDriver::new(Rc::clone(&buffers), entries, Setup::candidates("")) {
        Ok(driver) => Some(Rig { driver, buffers, seen: Vec::new() }),
        Err(refusal) => {
            println!("SKIP: no io_uring here: {refusal:?}");
            None
        }
    }
}

fn rig() -> Option<Rig> {
    rig_of(64, tiny(8, 64))
}

fn tiny(buffers: usize, bytes: usize) -> Sizes {
    Sizes {
        small_buffers: buffers,
        small_buffer_bytes: bytes,
        small_lent: buffers,
        large_buffers: buffers,
        large_buffer_bytes: 4 * bytes,
        large_lent: buffers,
        spill_bytes_max: 1024,
    }
}

impl Rig {
    /// Turns until a completion of `token` is there, and takes it out. Those of others wait.
    fn next(&mut self, token: u64) -> Completion {
        let begin = time::now();
        loop {
            if let Some(index) = self.seen.iter().position(|completion| completion.token == Token(token)) {
                return self.seen.remove(index);
            }
            assert!(
                time::now().since(begin) < Duration::from_secs(20),
                "nothing came of {token}; there is {:?}",
                self.seen
            );
            self.driver.turn(Some(Duration::from_millis(100)), &mut self.seen).expect("the driver works");
        }
    }

    /// The last completion of `token`; what came before is dropped.
    fn last(&mut self, token: u64) -> Completion {
        loop {
            let completion = self.next(token);
            if !completion.more {
                return completion;
            }
        }
    }

    /// Receives on `token`, arming again whenever it ended, until there are `count` octets.
    fn read(&mut self, token: u64, socket: &Socket, count: usize) -> Vec<u8> {
        let mut octets = Vec::new();
        while octets.len() < count {
            let completion = self.next(token);
            if let Payload::Received(chunk) = completion.payload {
                assert_eq!(completion.result, Ok(chunk.len() as u32));
                octets.extend_from_slice(&chunk);
            }
            if !completion.more {
                self.receive(token, socket);
            }
        }
        octets
    }

    fn receive(&mut self, token: u64, socket: &Socket) {
        self.driver.submit(Token(token), Op::Receive { socket: Rc::clone(socket), group: Group::Small });
    }

    fn send(&mut self, token: u64, socket: &Socket, pieces: Pieces, wait: bool) {
        self.driver.submit(Token(token), Op::Send { socket: Rc::clone(socket), pieces, wait });
    }
}

fn pieces(list: impl IntoIterator<Item = Piece>) -> Pieces {
    let mut pieces = Pieces::new();
    list.into_iter().for_each(|piece| pieces.push(piece));
    pieces
}

fn pair() -> (Socket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    (Rc::new(ours.into()), theirs)
}

fn listen() -> (Socket, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    (Rc::new(listener.into()), address)
}

fn unconnected(family: AddressFamily) -> Socket {
    Rc::new(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket"))
}

#[test]
fn a_client_and_a_server_on_one_driver_talk() {
    let Some(mut rig) = rig() else { return };
    let (listener, address) = listen();
    rig.driver.submit(Token(1), Op::Accept { listener });
    let mut sockets = Vec::new();
    for token in [10, 20] {
        let client = unconnected(AddressFamily::INET);
        rig.driver.submit(Token(token), Op::Connect { socket: Rc::clone(&client), address });
        assert_eq!(rig.next(token).result, Ok(0));
        let accepted = rig.next(1);
        let Payload::Accepted(server) = accepted.payload else { panic!("{accepted:?}") };
        assert!(accepted.more, "one accept for all clients");
        assert!(rustix::io::fcntl_getfd(&server).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        sockets.push((token, client, Rc::new(server)));
    }
    for (token, client, server) in &sockets {
        rig.receive(token + 1, server);
        rig.receive(token + 2, client);
        rig.send(token + 3, client, pieces([Piece::Static(b"ping "), Piece::Scratch(b"pong".to_vec())]), false);
        let sent = rig.next(token + 3);
        assert_eq!((sent.result, sent.more), (Ok(9), false));
        let Payload::Sent(mut given_back) = sent.payload else { panic!("the pieces come back") };
        assert_eq!(given_back.len(), 9, "not advanced");
        given_back.recycle(|octets| assert!(octets.is_empty()));

        let received = rig.next(token + 1);
        let Payload::Received(chunk) = received.payload else { panic!("{received:?}") };
        assert_eq!((received.result, received.more, &*chunk), (Ok(9), true, &b"ping pong"[..]));
        // What was received is what is sent, from the same buffer.
        rig.send(token + 4, server, pieces([Piece::Chunk(chunk)]), true);
        assert_eq!(rig.next(token + 4).result, Ok(9));
        assert_eq!(rig.read(token + 2, client, 9), b"ping pong");
    }
    assert_eq!(rig.driver.strays(), 0);
}

#[test]
fn ipv6_addresses_are_written_as_the_kernel_reads_them() {
    let Some(mut rig) = rig() else { return };
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        println!("SKIP: no IPv6 here");
        return;
    };
    let address = listener.local_addr().unwrap();
    let socket = unconnected(AddressFamily::INET6);
    rig.driver.submit(Token(1), Op::Connect { socket, address });
    assert_eq!(rig.next(1).result, Ok(0));
}

#[test]
fn a_refused_connect_says_so() {
    let Some(mut rig) = rig() else { return };
    let (listener, address) = listen();
    drop(listener);
    rig.driver.submit(Token(1), Op::Connect { socket: unconnected(AddressFamily::INET), address });
    let completion = rig.next(1);
    assert_eq!((completion.result, completion.more), (Err(Errno::CONNREFUSED), false));
}

#[test]
fn the_end_of_a_stream_ends_the_receive() {
    let Some(mut rig) = rig() else { return };
    let (socket, mut peer) = pair();
    rig.receive(1, &socket);
    peer.write_all(b"last words").unwrap();
    drop(peer);
    let words = rig.next(1);
    assert!(matches!(words.payload, Payload::Received(chunk) if &*chunk == b"last words"));
    assert!(words.more);
    let end = rig.next(1);
    assert_eq!((end.result, end.more), (Ok(0), false));
    assert_eq!((Rc::strong_count(&socket), rig.buffers.free(Group::Small)), (1, 8));
}

#[test]
fn without_a_buffer_a_receive_ends_and_can_be_armed_again() {
    let Some(mut rig) = rig_of(64, tiny(2, 4)) else { return };
    let (socket, mut peer) = pair();
    rig.receive(1, &socket);
    peer.write_all(b"abcdefghij").unwrap();
    let mut held = Vec::new();
    let ended = loop {
        let completion = rig.next(1);
        match completion.payload {
            Payload::Received(chunk) => held.push(chunk),
            _ => break completion,
        }
    };
    assert_eq!((ended.result, ended.more), (Err(Errno::NOBUFS), false));
    assert_eq!(held.iter().flat_map(|chunk| chunk.to_vec()).collect::<Vec<_>>(), b"abcdefgh");
    assert_eq!((rig.buffers.free(Group::Small), rig.buffers.is_scarce(Group::Small)), (0, true));

    rig.receive(1, &socket);
    assert_eq!(rig.next(1).result, Err(Errno::NOBUFS), "still none");
    held.clear();
    rig.receive(1, &socket);
    assert_eq!(rig.read(1, &socket, 2), b"ij");
}

#[test]
fn two_buffers_serve_a_thousand_messages() {
    let Some(mut rig) = rig_of(64, tiny(2, 16)) else { return };
    let (socket, mut peer) = pair();
    rig.receive(1, &socket);
    for number in 0..1000_u32 {
        peer.write_all(&number.to_be_bytes()).unwrap();
        assert_eq!(rig.read(1, &socket, 4), number.to_be_bytes());
    }
}

#[test]
fn few_lent_buffers_become_more_when_they_run_short() {
    let sizes = Sizes { small_lent: 1, ..tiny(8, 4) };
    let Some(mut rig) = rig_of(64, sizes) else { return };
    let (socket, mut peer) = pair();
    let mut ends = 0;
    for _ in 0..5 {
        peer.write_all(&[7; 32]).unwrap();
        rig.receive(1, &socket);
        let mut octets = 0;
        while octets < 32 {
            let completion = rig.next(1);
            octets += completion.result.unwrap_or(0);
            if !completion.more {
                ends += 1;
                rig.receive(1, &socket);
            }
        }
        rig.driver.submit(Token(2), Op::Cancel { target: Token(1) });
        rig.last(1);
        rig.next(2);
    }
    assert!(ends <= 3, "1, 2, 4, 8 lent: {ends} ends for want of buffers");
}

#[test]
fn cancelled_operations_end_and_give_back_what_they_held() {
    let Some(mut rig) = rig() else { return };
    let (socket, _peer) = pair();
    let (listener, _) = listen();
    rig.receive(1, &socket);
    rig.driver.submit(Token(2), Op::Accept { listener: Rc::clone(&listener) });
    rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
    assert!(rig.seen.is_empty());
    for (token, target) in [(3, 1), (4, 2), (5, 99)] {
        rig.driver.submit(Token(token), Op::Cancel { target: Token(target) });
    }
    for token in [1, 2] {
        let completion = rig.next(token);
        assert_eq!((completion.result, completion.more), (Err(Errno::CANCELED), false));
    }
    assert_eq!([3, 4, 5].map(|token| rig.next(token).result), [Ok(0), Ok(0), Err(Errno::NOENT)]);
    assert_eq!((Rc::strong_count(&socket), Rc::strong_count(&listener)), (1, 1));
    rig.driver.submit(Token(6), Op::Cancel { target: Token(1) });
    assert_eq!(rig.next(6).result, Err(Errno::NOENT), "it is over");
}

#[test]
fn nothing_is_lost_when_a_receive_is_cancelled_as_octets_arrive() {
    let Some(mut rig) = rig() else { return };
    let (socket, mut peer) = pair();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for round in 0..200_u8 {
        rig.receive(1, &socket);
        if round % 2 == 0 {
            rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
        }
        peer.write_all(&[round; 3]).unwrap();
        sent.extend([round; 3]);
        rig.driver.submit(Token(2), Op::Cancel { target: Token(1) });
        loop {
            let completion = rig.next(1);
            if let Payload::Received(chunk) = &completion.payload {
                received.extend_from_slice(chunk);
            }
            if !completion.more {
                break;
            }
        }
        rig.next(2);
    }
    rig.receive(1, &socket);
    let rest = rig.read(1, &socket, sent.len() - received.len());
    received.extend(rest);
    assert_eq!(received, sent);
}

#[test]
fn a_connection_accepted_as_its_accept_is_cancelled_is_handed_out_or_left() {
    let Some(mut rig) = rig() else { return };
    let (listener, address) = listen();
    for _ in 0..50 {
        rig.driver.submit(Token(1), Op::Accept { listener: Rc::clone(&listener) });
        rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        rig.driver.submit(Token(2), Op::Cancel { target: Token(1) });
        let mut server = None;
        loop {
            let completion = rig.next(1);
            if let Payload::Accepted(accepted) = completion.payload {
                server = Some(accepted);
            }
            if !completion.more {
                break;
            }
        }
        rig.next(2);
        if server.is_none() {
            rig.driver.submit(Token(1), Op::Accept { listener: Rc::clone(&listener) });
            let Payload::Accepted(accepted) = rig.next(1).payload else { panic!("it waited in the backlog") };
            server = Some(accepted);
            rig.driver.submit(Token(2), Op::Cancel { target: Token(1) });
            rig.last(1);
            rig.next(2);
        }
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server's end was ours alone, and is closed");
    }
}

#[test]
fn a_waiting_send_sends_it_all() {
    const PART: usize = 1 << 20;
    let Some(mut rig) = rig() else { return };
    let (listener, address) = listen();
    rig.driver.submit(Token(1), Op::Accept { listener });
    let reader = thread::spawn(move || {
        let mut octets = Vec::new();
        TcpStream::connect(address).unwrap().read_to_end(&mut octets).unwrap();
        octets
    });
    let Payload::Accepted(socket) = rig.next(1).payload else { panic!("a client") };
    let socket = Rc::new(socket);
    let parts: Vec<_> = (0..8_u8).map(|part| Bytes::from(vec![part; PART])).collect();
    rig.send(2, &socket, pieces(parts.iter().cloned().map(Piece::Shared)), true);
    assert_eq!(rig.next(2).result, Ok(8 * PART as u32));
    drop(socket);
    let octets = reader.join().unwrap();
    assert!(octets == parts.concat(), "{} octets, in order", octets.len());
    assert!(parts.iter().all(Bytes::is_unique), "given back");
}

#[test]
fn a_send_that_may_not_wait_sends_what_fits() {
    let Some(mut rig) = rig() else { return };
    let (socket, mut peer) = pair();
    let much = Bytes::from(vec![1; 4 << 20]);
    let both = || pieces([Piece::Shared(much.clone()), Piece::Static(b"tail")]);
    rig.send(1, &socket, both(), false);
    let sent = rig.next(1).result.expect("something fits") as usize;
    assert!(sent > 0 && sent < much.len());
    rig.send(1, &socket, both(), false);
    let full = rig.next(1);
    assert_eq!((full.result, full.more), (Err(Errno::AGAIN), false));
    assert!(matches!(full.payload, Payload::Sent(pieces) if pieces.len() == much.len() + 4));
    let mut taken = vec![0; sent];
    peer.read_exact(&mut taken).unwrap();
    assert!(much.is_unique());
}

#[test]
fn a_send_to_a_closed_peer_fails_without_a_signal() {
    let Some(mut rig) = rig() else { return };
    let (socket, peer) = pair();
    drop(peer);
    rig.send(1, &socket, pieces([Piece::Static(b"anyone?")]), true);
    let completion = rig.next(1);
    assert_eq!(completion.result, Err(Errno::PIPE));
    assert!(matches!(completion.payload, Payload::Sent(pieces) if pieces.len() == 7));
    rig.send(1, &socket, Pieces::new(), false);
    assert_eq!(rig.next(1).result, Ok(0), "nothing to send is sent at once");
}

#[test]
fn an_eventfd_wakes_from_another_thread_each_time() {
    let Some(mut rig) = rig() else { return };
    let ours = Rc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let theirs = rustix::io::dup(&*ours).unwrap();
    rig.driver.submit(Token(1), Op::Wake { eventfd: Rc::clone(&ours) });
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let waker = thread::spawn(move || {
        for () in gone {
            rustix::io::write(&theirs, &1_u64.to_ne_bytes()).unwrap();
        }
    });
    for _ in 0..100 {
        go.send(()).unwrap();
        let woken = rig.next(1);
        assert_eq!((woken.result, woken.more), (Ok(0), true));
    }
    drop(go);
    waker.join().unwrap();
    assert_eq!(rustix::io::read(&*ours, &mut [0; 8]), Err(Errno::AGAIN), "emptied");
}

#[test]
fn a_turn_ends_when_its_time_has_passed() {
    let Some(mut rig) = rig() else { return };
    let (socket, _peer) = pair();
    rig.receive(1, &socket);
    rig.driver.turn(Some(Duration::from_millis(5)), &mut rig.seen).unwrap();
    rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
    assert!(rig.seen.is_empty());
}

#[test]
fn more_operations_than_either_queue_holds_all_complete_once() {
    let Some(mut rig) = rig_of(2, tiny(8, 64)) else { return };
    let (socket, mut peer) = pair();
    for token in 0..100 {
        rig.send(token, &socket, pieces([Piece::Scratch(vec![token as u8])]), true);
    }
    // In the backlog when they are cancelled, and cancelled in order.
    let (idle, _idle_peer) = pair();
    rig.receive(1000, &idle);
    rig.driver.submit(Token(1001), Op::Cancel { target: Token(1000) });
    for token in 0..100 {
        assert_eq!(rig.next(token).result, Ok(1));
    }
    assert_eq!((rig.next(1000).result, rig.next(1001).result), (Err(Errno::CANCELED), Ok(0)));
    let mut octets = [0; 100];
    peer.read_exact(&mut octets).unwrap();
    octets.sort_unstable();
    assert!(octets.iter().copied().eq(0..100), "{octets:?}");
    rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
    assert!(rig.seen.is_empty());
}

#[test]
fn completions_that_overflow_the_queue_are_not_lost() {
    // Room for 4 completions, 8 of them in one turn and 24 octets behind them.
    let Some(mut rig) = rig_of(1, tiny(64, 4)) else { return };
    let mut pairs: Vec<_> = (0..8).map(|_| pair()).collect();
    for (token, (socket, _)) in pairs.iter().enumerate() {
        rig.receive(token as u64, socket);
        rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
    }
    for (_, peer) in &mut pairs {
        peer.write_all(b"0123456789ab").unwrap();
    }
    for (token, (socket, _)) in pairs.iter().enumerate() {
        assert_eq!(rig.read(token as u64, socket, 12), b"0123456789ab");
    }
}

#[test]
fn a_driver_dropped_with_operations_in_flight_waits_for_the_kernel_and_frees_all() {
    let Some(mut rig) = rig() else { return };
    let (idle, mut idle_peer) = pair();
    let (full, _full_peer) = pair();
    let (listener, _) = listen();
    let eventfd = Rc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let much = Bytes::from(vec![1; 4 << 20]);
    rig.receive(1, &idle);
    rig.driver.submit(Token(2), Op::Accept { listener: Rc::clone(&listener) });
    rig.driver.submit(Token(3), Op::Wake { eventfd: Rc::clone(&eventfd) });
    rig.send(4, &full, pieces([Piece::Shared(much.clone()), Piece::Static(b"!")]), true);
    rig.driver.turn(Some(Duration::ZERO), &mut rig.seen).unwrap();
    // These have not even been submitted.
    rig.send(5, &full, pieces([Piece::Shared(much.clone())]), true);
    let (late, _late_peer) = pair();
    rig.receive(6, &late);

    let Rig { driver, buffers, seen } = rig;
    drop((driver, seen));
    for socket in [&idle, &full, &listener, &eventfd, &late] {
        assert_eq!(Rc::strong_count(socket), 1, "the kernel's share is given back");
    }
    assert!(much.is_unique());
    assert_eq!(Rc::strong_count(&buffers), 1, "nothing was leaked");
    idle_peer.write_all(b"nobody listens").unwrap();
}

#[test]
fn dropped_with_a_full_backlog_nothing_is_left() {
    let Some(mut rig) = rig_of(2, tiny(8, 64)) else { return };
    let (socket, _peer) = pair();
    for token in 0..50 {
        rig.receive(token, &socket);
    }
    drop(rig);
    assert_eq!(Rc::strong_count(&socket), 1);
}

/// Runs itself once more in a process of its own, because the limit on descriptors is the process's.
#[test]
fn an_accept_without_descriptors_ends_and_can_be_armed_again() {
    const ALONE: &str = "ANTIPHON_TEST_ALONE";
    let name = "an_accept_without_descriptors_ends_and_can_be_armed_again";
    if std::env::var_os(ALONE).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let Some(mut rig) = rig() else { return };
    let (listener, address) = listen();
    let mut client = TcpStream::connect(address).unwrap();
    let before = getrlimit(Resource::Nofile);
    let lowest_free = rustix::io::dup(&*listener).unwrap();
    let scarce = rustix::process::Rlimit { current: Some(lowest_free.as_raw_fd() as u64), ..before };
    drop(lowest_free);
    setrlimit(Resource::Nofile, scarce).unwrap();
    rig.driver.submit(Token(1), Op::Accept { listener: Rc::clone(&listener) });
    let completion = rig.next(1);
    assert_eq!((completion.result, completion.more), (Err(Errno::MFILE), false));
    setrlimit(Resource::Nofile, before).unwrap();
    rig.driver.submit(Token(1), Op::Accept { listener });
    let Payload::Accepted(server) = rig.next(1).payload else { panic!("it waited in the backlog") };
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn plainer_setups_work_as_well() {
    for setup in [Setup::Deferred, Setup::Cooperative, Setup::Plain] {
        let buffers = Buffers::new(tiny(4, 16)).unwrap();
        let driver = match UringDriver::new(Rc::clone(&buffers), 8, &[setup]) {
            Ok(driver) => driver,
            Err(refusal) => {
                println!("SKIP: no io_uring here: {refusal:?}");
                return;
            }
        };
        assert_eq!(driver.setup(), setup);
        let mut rig = Rig { driver, buffers, seen: Vec::new() };
        let (socket, mut peer) = pair();
        rig.receive(1, &socket);
        peer.write_all(b"hello").unwrap();
        assert_eq!(rig.read(1, &socket, 5), b"hello");
    }
}

#[test]
fn deferred_task_work_is_avoided_where_it_breaks_accepts() {
    for (release, first) in [
        ("6.1.0-13-amd64", Setup::Deferred),
        ("6.6.9", Setup::Cooperative),
        ("6.7.4-arch1-1", Setup::Cooperative),
        ("6.7", Setup::Cooperative),
        ("6.60.1", Setup::Deferred),
        ("6.8.0", Setup::Deferred),
        ("", Setup::Deferred),
    ] {
        assert_eq!(Setup::candidates(release)[0], first, "{release}");
    }
}
