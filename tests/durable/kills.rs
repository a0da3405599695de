//! Killed at random instants under load, while one child comes and goes.

use std::time::Duration;

use crate::recorder::Recorder;
use crate::support::proxy::{Proxy, Setup, text};
use crate::support::{Driver, for_each_driver};
use crate::world::World;
use crate::writers::Kind;

const WRITERS: usize = 8;
/// Kills, on both drivers and in all ways of running together.
const KILLS: u64 = 30;

/// One way of running.
struct Way {
    name: &'static str,
    dialect: &'static str,
    kinds: &'static [Kind],
    body_bytes: usize,
    more: fn(Setup) -> Setup,
}

const WAYS: [Way; 5] = [
    Way { name: "all", dialect: "http", kinds: &Kind::HTTP, body_bytes: 300, more: |setup| setup },
    Way {
        name: "durable",
        dialect: "http",
        kinds: &Kind::SAFE,
        body_bytes: 300,
        more: |setup| setup.group("ack", text("durable")),
    },
    Way {
        name: "first",
        dialect: "http",
        kinds: &Kind::HTTP,
        body_bytes: 300,
        more: |setup| setup.group("ack", text("first")),
    },
    Way { name: "live", dialect: "aci", kinds: &Kind::ACI, body_bytes: 0, more: |setup| setup },
    Way {
        name: "drop_child",
        dialect: "http",
        kinds: &Kind::HTTP,
        // A child that is away for thirty of them is given up.
        body_bytes: 32 * 1024,
        more: |setup| setup.group("on_full", text("drop_child")).group("backlog_bytes_max", text("1MiB")),
    },
];

/// xorshift64*: instants need no more.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number"))
}

#[test]
fn nothing_acknowledged_is_lost_whenever_it_is_killed() {
    let kills = number("ANTIPHON_KILLS", KILLS);
    let seed = number("ANTIPHON_SEED", u64::from(std::process::id()));
    println!("ANTIPHON_KILLS={kills} ANTIPHON_SEED={seed}");
    for_each_driver(|driver| {
        for (index, way) in WAYS.iter().enumerate() {
            let share = kills.div_ceil(2 * WAYS.len() as u64);
            play(driver, way, seed.wrapping_add(index as u64).max(1), share);
        }
    });
}

fn play(driver: Driver, way: &Way, seed: u64, kills: u64) {
    let mut random = Random(seed);
    let mut world = World::start(driver, way.dialect, way.more);
    for kill in 0..kills {
        world.story = format!("{driver:?}, {}, ANTIPHON_SEED={seed}, kill {kill}", way.name);
        let body = vec![b'x'; way.body_bytes];
        world.write_while(WRITERS, way.kinds, &body, |proxy, children| trouble(&mut random, proxy, children));
        world.start_again();
        world.settle();
        world.follow_accepted();
        world.check();
    }
}

/// One child comes and goes; then antiphon is killed, and the child may be away at that moment.
fn trouble(random: &mut Random, proxy: &mut Proxy, children: &mut [Recorder; 3]) {
    let child = random.below(3) as usize;
    for _ in 0..random.below(4) {
        pause(random);
        children[child].stop();
        pause(random);
        if random.below(3) > 0 {
            children[child].start_again();
        }
    }
    pause(random);
    proxy.kill();
}

/// The instants are what is random here: nothing is waited for.
fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(random.below(60)));
}
