//! One question: what does the broadcast ring cost a change? Publishing (once, by the sequencer) and reading (once a
//! lane), with the entries of small changes, in a ring that is full and so pushes one out for each that comes in.
//!
//! `cargo bench --bench ring`. The reader runs alone; what several threads do to each other is the stress test's matter.

use std::hint::black_box;
use std::sync::Arc;

use antiphon::action::UnknownOutcome;
use antiphon::limits::{RING_BYTES_MAX, RING_SLOTS};
use antiphon::mirror::{Budget, Change, OnUnknown, Order, Read, Wake, What, ring};
use antiphon::time::Time;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

fn change(body: &Bytes) -> Arc<Change> {
    let order = Order {
        head: Bytes::from_static(b"PUT /items/1 HTTP/1.1\r\nHost: search\r\nContent-Length: 512\r\n\r\n"),
        body: body.clone(),
        unknown_outcome: UnknownOutcome::Idempotent,
        applied: Arc::new([]),
        name: "put".into(),
        live: false,
        on_unknown: OnUnknown::default(),
        key: None,
        children: 3,
        submitted: Time::ZERO,
        charge: Budget::new(body.len()).charge(body.len()).expect("room for one"),
    };
    Change::new(order, Arc::new(Nobody)).0
}

fn bench(c: &mut Criterion) {
    let body = Bytes::from(vec![b'x'; 512]);
    let one = change(&body);

    let (_, mut writer) = ring(RING_SLOTS, RING_BYTES_MAX);
    let mut sequence = 0;
    c.bench_function("ring/publish", |b| {
        b.iter(|| {
            sequence += 1;
            writer.publish(sequence, What::Change(Arc::clone(&one)))
        });
    });

    let (reader, mut writer) = ring(RING_SLOTS, RING_BYTES_MAX);
    for sequence in 1..=RING_SLOTS as u64 {
        writer.publish(sequence, What::Change(change(&body)));
    }
    let mut position = 0;
    c.bench_function("ring/read", |b| {
        b.iter(|| {
            position = (position + 1) % RING_SLOTS as u64;
            black_box(reader.read(position))
        });
    });

    c.bench_function("ring/read at the head", |b| {
        b.iter(|| assert!(matches!(reader.read(black_box(RING_SLOTS as u64)), Read::NotYet)));
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
