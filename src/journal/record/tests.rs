//! The format: what is written is read back, and nothing else is ever taken for it.

use proptest::prelude::*;

use super::*;
use crate::action::UnknownOutcome;
use crate::journal::state::{Known, State};
use crate::mirror::ack::Class;
use crate::mirror::durable::{ClientKey, Mark, OnUnknown, Stored, Verdict};
use crate::route::Standing;
use crate::sync::Arc;

/// A frame of these records at a position, as the writer makes it.
fn frame(records: &[Record], salt: u64, position: u64, first_sequence: u64) -> (FrameHeader, Vec<u8>) {
    let mut payload = Vec::new();
    for record in records {
        match record {
            Record::Change(change) => {
                let (before, change) = (payload.len(), ChangeRef::from(change));
                put_change(&mut payload, &change);
                assert_eq!(payload.len() - before, change.bytes());
            }
            Record::Mark(mark) => put_mark(&mut payload, mark),
            Record::Epoch { epoch, first, ended } => put_epoch(&mut payload, *epoch, *first, *ended),
            Record::Checkpoint(state) => {
                let before = payload.len();
                put_checkpoint(&mut payload, state);
                assert!((payload.len() - before) as u64 <= state.checkpoint_bytes());
            }
        }
    }
    payload.resize(padded(payload.len()), 0);
    let changes = records.iter().filter(|record| matches!(record, Record::Change(_))).count();
    let header = FrameHeader {
        length: payload.len() as u32,
        records: records.len() as u32,
        changes: changes as u32,
        payload_crc: salted(salt, &payload),
        salt,
        first_sequence,
        durable_upto: position / 2,
        position,
        epoch: 3,
    };
    (header, payload)
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Agreed(Class::Success)),
        Just(Verdict::Agreed(Class::Rejected)),
        Just(Verdict::Agreed(Class::Failed)),
        Just(Verdict::Withdrawn),
    ]
}

fn standings() -> impl Strategy<Value = Standing> {
    prop_oneof![Just(Standing::Live), Just(Standing::Replaying), Just(Standing::Diverged), Just(Standing::NeedsReseed)]
}

fn texts() -> impl Strategy<Value = String> {
    "[a-zé ]{0,30}"
}

fn marks() -> impl Strategy<Value = Mark> {
    let place = 0..1024usize;
    prop_oneof![
        (any::<u64>(), verdicts(), prop::collection::vec(place.clone(), 0..5))
            .prop_map(|(sequence, verdict, condemned)| Mark::Outcome { sequence, verdict, condemned }),
        (place.clone(), standings(), texts()).prop_map(|(child, standing, why)| Mark::Standing {
            child,
            standing,
            why
        }),
        (place.clone(), any::<u64>(), any::<u64>()).prop_map(|(child, from, at)| Mark::Attach { child, from, at }),
        prop::collection::vec((place, any::<u64>()), 0..6).prop_map(Mark::Applied),
        prop::collection::vec(texts().prop_map(Into::into), 0..6).prop_map(Mark::Members),
    ]
}

fn changes() -> impl Strategy<Value = Stored> {
    let octets = |max| prop::collection::vec(any::<u8>(), 0..max);
    let unknown = prop::sample::select(UnknownOutcome::ALL);
    let on_unknown = prop_oneof![Just(OnUnknown::Hold), Just(OnUnknown::Resend), Just(OnUnknown::Assume)];
    let key = prop::option::of((octets(255), any::<[u8; 32]>()));
    let applied = prop::collection::vec(100..600u16, 0..4);
    let rest = (any::<bool>(), any::<u64>(), key, texts(), applied);
    (octets(200), octets(300), unknown, on_unknown, rest).prop_map(
        |(head, body, unknown_outcome, on_unknown, (live, unix_ms, key, name, applied))| Stored {
            sequence: 0,
            head: head.into(),
            body: body.into(),
            unknown_outcome,
            on_unknown,
            applied: applied.into(),
            name: name.into(),
            live,
            unix_ms,
            key: key.map(|(text, digest)| Arc::new(ClientKey { text: text.into(), digest })),
        },
    )
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let one = prop_oneof![marks().prop_map(Record::Mark), changes().prop_map(Record::Change)];
    prop::collection::vec(one, 1..8).prop_map(|mut records| {
        let mut next = FIRST;
        for record in &mut records {
            if let Record::Change(change) = record {
                change.sequence = next;
                next += 1;
            }
        }
        records
    })
}

const FIRST: u64 = 41;

proptest! {
    #[test]
    fn what_is_written_is_read_back(records in records(), salt: u64, position in 0..1_000_000u64) {
        let (header, payload) = frame(&records, salt, position, FIRST);
        let read = FrameHeader::decode(&header.encode()).expect("as written");
        prop_assert_eq!(read, header);
        prop_assert_eq!(read.crc(), header.crc());
        prop_assert_eq!(read.records(&Bytes::from(payload)).expect("as written"), records);
    }

    #[test]
    fn no_octet_may_differ(records in records(), salt: u64, at: prop::sample::Index, flip in 1..=255u8) {
        let (header, payload) = frame(&records, salt, 512, FIRST);
        let mut octets = header.encode().to_vec();
        octets.extend_from_slice(&payload);
        let at = at.index(octets.len());
        octets[at] ^= flip;
        let (header, payload) = octets.split_first_chunk().expect("a header");
        let read = FrameHeader::decode(header).and_then(|header| header.records(&Bytes::copy_from_slice(payload)));
        // The salt tells segments apart; whoever reads compares it.
        prop_assert!(read.is_err(), "octet {at} may differ");
    }

    /// What a checksum does not catch: any octets in a payload whose checksum holds.
    #[test]
    fn any_payload_is_records_or_an_error(payload in prop::collection::vec(any::<u8>(), 0..400), count in 0..4u32) {
        let mut payload = payload;
        payload.resize(padded(payload.len()), 0);
        let header = FrameHeader {
            length: payload.len() as u32,
            records: count,
            payload_crc: salted(1, &payload),
            salt: 1,
            first_sequence: FIRST,
            ..FrameHeader::default()
        };
        _ = header.records(&Bytes::from(payload));
    }
}

#[test]
fn a_checkpoint_comes_back() {
    let mut state = State::first(7, ["a", "", "b"].map(Into::into).to_vec());
    state.last = 90;
    let child = Known { applied: 80, attached: 70, standing: Standing::Diverged, why: "it differs".to_owned() };
    state.children.insert("former".into(), child);
    state.exceptions = [(12, Verdict::Withdrawn), (90, Verdict::Agreed(Class::Failed))].into();
    state.kept = vec![(1, 5), (9, 60)];
    state.live = [33, 44].into();
    let records = [Record::Checkpoint(Box::new(state)), Record::Epoch { epoch: 8, first: 91, ended: 90 }];
    let (header, payload) = frame(&records, 5, 512, 91);
    assert_eq!(header.records(&Bytes::from(payload)).expect("as written"), records);
}

#[test]
fn a_segments_header_comes_back_and_no_octet_may_differ() {
    let header = SegmentHeader {
        ordinal: 4,
        salt: 0x0123_4567_89ab_cdef,
        created_ms: 1_700_000_000_123,
        epoch: 7,
        first_sequence: 1001,
        previous: Previous { salt: 99, end: 8000, crc: 0xdead_beef },
        bytes: 64 * 1024 * 1024,
        group: "search".into(),
        mode: "aci".into(),
    };
    let octets = header.encode();
    assert_eq!(SegmentHeader::decode(&octets), Ok(header));
    for at in 0..octets.len() {
        let mut other = octets;
        other[at] ^= 0x40;
        assert!(SegmentHeader::decode(&other).is_err(), "octet {at}");
        assert!(SegmentHeader::decode(&octets[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn long_texts_are_cut_where_a_character_begins() {
    let why = "é".repeat(2000);
    let mut payload = Vec::new();
    put_mark(&mut payload, &Mark::Standing { child: 1, standing: Standing::Live, why });
    assert!(payload.len() < 1100);
    let mut input = Input::new(Bytes::from(payload));
    let Ok(Record::Mark(Mark::Standing { why, .. })) = Record::decode(&mut input) else { panic!("a standing") };
    assert_eq!(why, "é".repeat(512));
}

#[test]
fn a_change_that_is_allowed_fits_a_segment() {
    for segment_bytes in [crate::limits::SEGMENT_BYTES_MIN, crate::limits::SEGMENT_BYTES] {
        let body = vec![0; change_bytes(segment_bytes) as usize];
        let key = ClientKey { text: vec![0; 255].into(), digest: [0; 32] };
        let applied: Vec<u16> = (100..600).collect();
        let name = "x".repeat(5000);
        let change = ChangeRef {
            sequence: 1,
            unix_ms: 0,
            head: &[],
            body: &body,
            unknown_outcome: UnknownOutcome::Once,
            on_unknown: OnUnknown::Hold,
            applied: &applied,
            name: &name,
            live: false,
            key: Some(&key),
        };
        assert!((FRAME_HEADER_BYTES + change.bytes()) as u64 <= segment_bytes / 2);
    }
}
