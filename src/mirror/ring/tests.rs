//! The ring against a model, and its twin with a lock against the same: random operations, then threads.

#![expect(clippy::disallowed_types, reason = "the twin is the ring with a lock")]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::action::UnknownOutcome;
use crate::mirror::testing;

/// What both implementations can do.
trait Broadcast: Send + Sync {
    fn publish(&mut self, through: u64, what: What) -> u64;
    fn reader(&self) -> Box<dyn Reader>;
}

trait Reader: Send {
    fn read(&self, position: u64) -> Read;
    fn tail(&self) -> u64;
}

impl Broadcast for Writer {
    fn publish(&mut self, through: u64, what: What) -> u64 {
        Self::publish(self, through, what)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Arc::clone(self.ring()))
    }
}

impl Reader for Arc<Ring> {
    fn read(&self, position: u64) -> Read {
        Ring::read(self, position)
    }

    fn tail(&self) -> u64 {
        Ring::tail(self)
    }
}

/// The twin: a queue under a lock.
struct Locked {
    slots: usize,
    bytes_max: usize,
    queue: Arc<Mutex<VecDeque<Arc<Entry>>>>,
    head: u64,
}

impl Broadcast for Locked {
    fn publish(&mut self, through: u64, what: What) -> u64 {
        let entry = Arc::new(Entry { position: self.head, through, what });
        self.head += 1;
        let mut queue = self.queue.lock().unwrap();
        queue.push_back(entry);
        let bytes = |queue: &VecDeque<Arc<Entry>>| queue.iter().map(|entry| entry.bytes()).sum::<usize>();
        while queue.len() > self.slots || queue.len() > 1 && bytes(&queue) > self.bytes_max {
            queue.pop_front();
        }
        self.head - 1
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Arc::clone(&self.queue))
    }
}

impl Reader for Arc<Mutex<VecDeque<Arc<Entry>>>> {
    fn read(&self, position: u64) -> Read {
        let queue = self.lock().unwrap();
        match (queue.front(), queue.back()) {
            (Some(first), _) if position < first.position => Read::Overrun,
            (Some(first), Some(last)) if position <= last.position => {
                Read::Entry(Arc::clone(&queue[(position - first.position) as usize]))
            }
            _ => Read::NotYet,
        }
    }

    fn tail(&self) -> u64 {
        self.lock().unwrap().front().map_or(0, |first| first.position)
    }
}

fn both(slots: usize, bytes_max: usize) -> [Box<dyn Broadcast>; 2] {
    let queue = Arc::new(Mutex::new(VecDeque::new()));
    [Box::new(ring(slots, bytes_max).1), Box::new(Locked { slots, bytes_max, queue, head: 0 })]
}

fn change(body_bytes: usize) -> What {
    let (group, _) = testing::group(testing::Like { children: 1, ..testing::Like::default() });
    What::Change(testing::change(&group, UnknownOutcome::Once, &vec![0; body_bytes], Time::ZERO).0)
}

fn probe(child: usize) -> What {
    What::Probe { child, expires: Time::NEVER }
}

/// What the ring holds, by the definition: the longest run of newest entries that fits, and always the newest.
fn kept_from(sizes: &[usize], slots: usize, bytes_max: usize) -> usize {
    let mut from = sizes.len();
    let mut bytes = 0;
    while from > 0 && sizes.len() - from < slots && (bytes + sizes[from - 1] <= bytes_max || from == sizes.len()) {
        from -= 1;
        bytes += sizes[from];
    }
    from
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_holds_the_newest_that_fit(
        slots in (0_u32..5).prop_map(|bits| 1_usize << bits),
        bytes_max in 0_usize..8_000,
        bodies in prop::collection::vec(prop::option::of(0_usize..3_000), 0..60),
    ) {
        for mut ring in both(slots, bytes_max) {
            let reader = ring.reader();
            let mut sizes = Vec::new();
            for body in &bodies {
                let what = body.map_or_else(|| probe(0), change);
                let position = sizes.len() as u64;
                sizes.push(Entry { position, through: 0, what: probe(0) }.bytes());
                if let What::Change(change) = &what {
                    *sizes.last_mut().unwrap() = ENTRY_BYTES + change.bytes();
                }
                prop_assert_eq!(ring.publish(position, what), position);
                let kept = kept_from(&sizes, slots, bytes_max) as u64;
                prop_assert_eq!(reader.tail(), kept);
                for at in 0..position + 3 {
                    match reader.read(at) {
                        Read::Overrun => prop_assert!(at < kept),
                        Read::NotYet => prop_assert!(at > position),
                        Read::Entry(entry) => prop_assert!(at >= kept && entry.position == at && entry.through == at),
                    }
                }
            }
        }
    }

    #[test]
    fn a_change_is_found_by_its_sequence_as_long_as_it_is_held(
        slots in (0_u32..5).prop_map(|bits| 1_usize << bits),
        first in 0_u64..3,
        changes in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let (ring, mut writer) = ring(slots, usize::MAX);
        let mut through = first * 1_000;
        for is_change in changes {
            through += u64::from(is_change);
            writer.publish(through, if is_change { change(0) } else { probe(0) });
        }
        for sequence in (first * 1_000).saturating_sub(2)..through + 3 {
            let by_looking = (ring.tail()..ring.head()).find(|at| match ring.read(*at) {
                Read::Entry(entry) => matches!(entry.what, What::Change(_)) && entry.through == sequence,
                Read::NotYet | Read::Overrun => panic!("a hole"),
            });
            prop_assert_eq!(ring.find(sequence), by_looking);
        }
    }

    #[test]
    fn its_count_of_octets_is_exact_and_its_forecast_true(
        bodies in prop::collection::vec(0_usize..3_000, 1..60),
    ) {
        let (ring, mut writer) = ring(8, 6_000);
        for body in bodies {
            let what = change(body);
            let bytes = Entry { position: 0, through: 0, what: change(body) }.bytes() as u64;
            let forecast = writer.tail_after(bytes);
            writer.publish(0, what);
            prop_assert_eq!(ring.tail(), forecast);
            let held = (ring.tail()..ring.head()).map(|at| match ring.read(at) {
                Read::Entry(entry) => entry.bytes() as u64,
                Read::NotYet | Read::Overrun => panic!("a hole"),
            });
            prop_assert_eq!(ring.bytes(), held.sum::<u64>());
        }
    }
}

/// Publishes `count` entries while `readers` threads follow. Each must see the entries in order without a gap, or be
/// told that it was overrun; at the end it must have reached the head.
fn stress(mut ring: Box<dyn Broadcast>, count: u64, readers: usize) -> u64 {
    // Something in the entry that depends on the position, written apart from it.
    let mark = |position: u64| position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|which| {
                let reader = ring.reader();
                scope.spawn(move || {
                    let (mut cursor, mut overruns) = (0, 0);
                    while cursor < count {
                        match reader.read(cursor) {
                            Read::Entry(entry) => {
                                assert_eq!((entry.position, entry.through), (cursor, mark(cursor)));
                                cursor += 1;
                                // Slow in different ways.
                                if which > 0 && cursor % (64 * which as u64) == 0 {
                                    thread::yield_now();
                                }
                            }
                            Read::NotYet => std::hint::spin_loop(),
                            Read::Overrun => {
                                assert!(matches!(reader.read(cursor), Read::Overrun), "an overrun is final");
                                overruns += 1;
                                cursor = reader.tail().max(cursor + 1);
                            }
                        }
                    }
                    overruns
                })
            })
            .collect();
        for position in 0..count {
            assert_eq!(ring.publish(mark(position), probe(0)), position);
            if position % 1_000 == 0 {
                thread::yield_now();
            }
        }
        threads.into_iter().map(|thread| thread.join().expect("no assertion failed")).sum()
    })
}

#[test]
fn threads_see_a_prefix_without_gaps_or_an_overrun() {
    for ring in both(256, usize::MAX) {
        stress(ring, 20_000, 3);
    }
    let mut overruns = 0;
    for ring in both(4, usize::MAX).into_iter().chain(both(256, 3 * ENTRY_BYTES)) {
        overruns += stress(ring, 20_000, 3);
    }
    assert!(overruns > 0, "the small rings were never overrun: the test shows nothing");
}

#[test]
fn what_is_found_while_others_publish_is_right_or_gone() {
    let (ring, mut writer) = ring(64, usize::MAX);
    let last = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut hits = 0;
            while ring.head() < 2 * last || hits == 0 {
                // Each change is followed by a probe.
                let newest = ring.head() / 2;
                let sequence = newest.saturating_sub(hits % 16);
                if let Some(position) = ring.find(sequence) {
                    assert_eq!(position, 2 * (sequence - 1));
                    hits += 1;
                }
            }
        });
        let change = change(0);
        for sequence in 1..=last {
            let What::Change(change) = &change else { panic!("it is one") };
            writer.publish(sequence, What::Change(Arc::clone(change)));
            writer.publish(sequence, probe(0));
        }
    });
}

#[test]
fn who_jumps_to_the_head_knows_how_far_it_has_come() {
    let (ring, mut writer) = ring(2, usize::MAX);
    assert_eq!(ring.through(0), Some(0));
    writer.publish(1, change(0));
    writer.publish(1, probe(0));
    writer.publish(2, change(0));
    assert_eq!((ring.through(3), ring.through(2), ring.through(1), ring.through(4)), (Some(2), Some(1), None, None));
    let Read::Entry(entry) = ring.read(2) else { panic!("it is there") };
    assert_eq!((entry.before(), entry.through), (1, 2));
}

#[test]
fn an_entry_larger_than_the_ring_goes_in_alone() {
    let (ring, mut writer) = ring(8, 1_000);
    writer.publish(1, change(100));
    writer.publish(2, change(5_000));
    assert_eq!((ring.tail(), ring.head()), (1, 2));
    writer.publish(3, change(1));
    assert_eq!((ring.tail(), ring.head()), (2, 3));
}
