//! Invariants of the journal's format, whatever octets come:
//!
//! 1. Nothing panics, and no more is allocated than the octets can hold.
//! 2. A segment's or a frame's header that is read is written as the same octets.
//! 3. A payload whose checksum holds is its records or an error; the sequences of its changes have no gap.
//! 4. Records that are read are, written again and read again, the same records.
//! 5. What they amount to is a state or an error, and a checkpoint of it comes back.

#![no_main]

use antiphon::journal::record::{
    ALIGNMENT, ChangeRef, FRAME_HEADER_BYTES, FrameHeader, Record, SEGMENT_HEADER_BYTES, SegmentHeader, put_change,
    put_checkpoint, put_epoch, put_mark, salted,
};
use antiphon::journal::state::State;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

const SALT: u64 = 7;

/// A frame around a payload, whose checksums hold.
fn frame(payload: &[u8], records: u32, changes: u32, first_sequence: u64) -> (FrameHeader, Bytes) {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(ALIGNMENT), 0);
    let header = FrameHeader {
        length: payload.len() as u32,
        records,
        changes,
        payload_crc: salted(SALT, &payload),
        salt: SALT,
        first_sequence,
        ..FrameHeader::default()
    };
    (header, Bytes::from(payload))
}

fn put(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        match record {
            Record::Change(change) => put_change(&mut out, &ChangeRef::from(change)),
            Record::Mark(mark) => put_mark(&mut out, mark),
            Record::Epoch { epoch, first, ended } => put_epoch(&mut out, *epoch, *first, *ended),
            Record::Checkpoint(state) => put_checkpoint(&mut out, state),
        }
    }
    out
}

fuzz_target!(|data: &[u8]| {
    if let Some(octets) = data.first_chunk::<SEGMENT_HEADER_BYTES>()
        && let Ok(header) = SegmentHeader::decode(octets)
    {
        assert_eq!(header.encode(), *octets);
    }
    if let Some(octets) = data.first_chunk::<FRAME_HEADER_BYTES>()
        && let Ok(header) = FrameHeader::decode(octets)
    {
        assert_eq!(header.encode(), *octets);
        _ = header.records(&Bytes::copy_from_slice(&data[FRAME_HEADER_BYTES..]));
    }

    // The rest is a payload that somebody has signed.
    let Some(([records, changes, first], payload)) = data.split_first_chunk::<3>() else { return };
    let first = u64::from(*first) + 1;
    let (header, payload) = frame(payload, u32::from(*records), u32::from(*changes), first);
    let Ok(read) = header.records(&payload) else { return };
    let mut next = first;
    let mut state: Option<State> = None;
    for record in &read {
        if let Record::Change(change) = record {
            assert_eq!(change.sequence, next);
            next += 1;
        }
        match (&mut state, record) {
            (None, Record::Checkpoint(first)) => state = Some((**first).clone()),
            (Some(state), record) => _ = state.on_record(record),
            (None, _) => {}
        }
    }
    let (again, octets) = frame(&put(&read), header.records, header.changes, first);
    // What was longer than a writer makes it (a text, a key) is not written again.
    if octets.len() == payload.len() {
        assert_eq!(again.records(&octets).as_deref(), Ok(&read[..]));
    }
    if let Some(mut state) = state {
        state.prune(first);
        let (header, octets) = frame(&put(&[Record::Checkpoint(Box::new(state.clone()))]), 1, 0, 1);
        assert!(state.checkpoint_bytes() + 8 >= octets.len() as u64);
        assert_eq!(header.records(&octets), Ok(vec![Record::Checkpoint(Box::new(state))]));
    }
});
