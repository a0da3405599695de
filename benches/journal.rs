//! One question: what does the journal cost a change, beside the write and the sync? Encoding changes of 512 octets,
//! reading them back out of a frame, and the write of a child's slot (a real file, page cache).
//!
//! `cargo bench --bench journal`. What a commit takes with its sync is the disk's matter, not this file's.

use std::hint::black_box;

use antiphon::action::UnknownOutcome;
use antiphon::journal::record::{ChangeRef, FrameHeader, padded, put_change, salted};
use antiphon::journal::segment::{Options, open};
use antiphon::mirror::durable::{OnUnknown, Slot};
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Changes of a batch.
const BATCH: u64 = 64;

fn change(sequence: u64, body: &[u8]) -> ChangeRef<'_> {
    ChangeRef {
        sequence,
        unix_ms: 1_700_000_000_000,
        head: b"PUT /items/1 HTTP/1.1\r\nHost: search\r\nContent-Length: 512\r\n\r\n",
        body,
        unknown_outcome: UnknownOutcome::Idempotent,
        on_unknown: OnUnknown::Hold,
        applied: &[],
        name: "put",
        live: false,
        key: None,
    }
}

fn encode(out: &mut Vec<u8>, body: &[u8]) -> FrameHeader {
    out.clear();
    for sequence in 1..=BATCH {
        put_change(out, &change(sequence, body));
    }
    out.resize(padded(out.len()), 0);
    FrameHeader {
        length: out.len() as u32,
        records: BATCH as u32,
        changes: BATCH as u32,
        payload_crc: salted(7, out),
        salt: 7,
        first_sequence: 1,
        ..FrameHeader::default()
    }
}

fn bench(c: &mut Criterion) {
    let body = vec![b'x'; 512];
    let mut group = c.benchmark_group("journal");
    group.throughput(Throughput::Elements(BATCH));
    let mut out = Vec::new();
    group.bench_function("encode 64 changes of 512 octets, with their checksum", |b| {
        b.iter(|| black_box(encode(&mut out, black_box(&body)).encode()));
    });
    let header = encode(&mut out, &body);
    let payload = Bytes::from(out.clone());
    group.bench_function("read 64 changes of 512 octets, with their checksum", |b| {
        b.iter(|| header.records(black_box(&payload)).expect("as written"));
    });
    group.throughput(Throughput::Elements(1));
    let directory = std::env::temp_dir().join(format!("antiphon-bench-{}", std::process::id()));
    let options = Options {
        segment_bytes: 64 * 1024,
        reserve_bytes: 0,
        force: true,
        ..Options::new(directory.clone(), "bench", "http", vec!["a".into()])
    };
    let opened = open(&options).expect("a journal");
    let mut applied = 0;
    group.bench_function("write a slot", |b| {
        b.iter(|| {
            applied += 1;
            opened.slots.put(0, Slot { applied, begun: applied + 1 }, false).expect("a disk that works");
        });
    });
    group.finish();
    drop(opened);
    _ = std::fs::remove_dir_all(directory);
}

criterion_group!(benches, bench);
criterion_main!(benches);
