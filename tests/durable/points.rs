//! Killed at every named place.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicBool;

use antiphon::crash::POINTS;

use crate::support::client::Client;
use crate::support::proxy::Until;
use crate::support::{Driver, for_each_driver};
use crate::world::World;
use crate::writers::Kind;

const WRITERS: usize = 4;
/// A segment is full of these soon enough.
const LARGE: usize = 6 * 1024 * 1024;

#[test]
fn nothing_acknowledged_is_lost_wherever_it_is_killed() {
    for_each_driver(|driver| {
        let mut world = World::start(driver, "http", |setup| setup);
        for point in POINTS {
            for count in [1, 7] {
                // A start passes its points once, and a segment is filled once.
                if count == 1 || !(point.starts_with("start.") || point.starts_with("segment.")) {
                    play(&mut world, driver, point, count);
                }
            }
        }
    });
}

fn play(world: &mut World, driver: Driver, point: &str, count: u64) {
    world.story = format!("{driver:?}, killed at {point}:{count}");
    world.proxy.kill();
    world.drain();
    world.proxy.set_variable("ANTIPHON_CRASH", Some(&format!("{point}:{count}")));
    let started = world.proxy.attempt_again(Until::Ready);
    assert!(started || point.starts_with("start.") || point.starts_with("journal."), "{}", world.story);
    if started {
        let body = vec![b'x'; if point.starts_with("segment.") { LARGE } else { 100 }];
        world.write_while(WRITERS, &Kind::HTTP, &body, |proxy, _| _ = proxy.wait_exit());
    }
    let status = world.proxy.wait_exit();
    assert_eq!(status.signal(), Some(9), "{}: {status}", world.story);
    world.proxy.set_variable("ANTIPHON_CRASH", None);
    world.start_again();
    world.settle();
    let mut client = Client::connect(world.proxy.port).expect("a connection");
    for kind in Kind::HTTP {
        let answer = world.told.write(&mut client, kind, b"after", &AtomicBool::new(false)).expect("an answer");
        assert!(matches!(answer.status(), 200 | 409), "{}: {answer}", world.story);
    }
    world.settle();
    world.check();
}
