//! Invariants of a body's framing, whatever octets come:
//!
//! 1. Nothing panics, and a step that is given octets consumes some, ends the body, or refuses it.
//! 2. The data, the end and the fault are the same in one piece, cut at any one place, and an octet at a time.
//! 3. Ranges lie within what was consumed; a body of known length has exactly that many octets.
//! 4. The data framed in our own chunks decodes to the same data.
//! 5. Octets behind the end make no difference.

#![no_main]

use antiphon::error::Fault;
use antiphon::http::{CRLF, ChunkHead, Decoder, Framing, LAST_CHUNK};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Default, PartialEq, Eq)]
struct Body {
    data: Vec<u8>,
    trailers: Vec<u8>,
    consumed: usize,
    done: bool,
    fault: Option<Fault>,
}

fn decode(octets: &[u8], ends: &[usize], framing: Framing) -> Body {
    let mut decoder = Decoder::request(framing);
    let mut body = Body::default();
    for end in ends {
        while body.consumed < *end && !decoder.is_done() {
            let piece = &octets[body.consumed..*end];
            let step = match decoder.step(piece) {
                Ok(step) => step,
                Err(fault) => {
                    // How far it had come within the piece is not told.
                    return Body { fault: Some(fault), ..Body::default() };
                }
            };
            assert!(step.consumed > 0);
            assert!(step.consumed <= piece.len());
            assert!(step.data.start <= step.data.end && step.data.end <= step.consumed);
            assert!(step.trailers.start <= step.trailers.end && step.trailers.end <= step.consumed);
            body.data.extend_from_slice(&piece[step.data]);
            body.trailers.extend_from_slice(&piece[step.trailers]);
            body.consumed += step.consumed;
        }
    }
    body.done = decoder.is_done();
    assert_eq!(decoder.end_of_input().is_ok(), body.done);
    body
}

fuzz_target!(|data: &[u8]| {
    let Some(([kind, cut @ ..], octets)) = data.split_first_chunk::<3>() else { return };
    let cut = usize::from(u16::from_le_bytes(*cut)) % (octets.len() + 1);
    let framing = match kind % 8 {
        0 => Framing::None,
        1 => Framing::Length(u64::from(*kind)),
        _ => Framing::Chunked,
    };

    let whole = decode(octets, &[octets.len()], framing);
    assert_eq!(decode(octets, &[cut, octets.len()], framing), whole);
    let each: Vec<usize> = (1..=octets.len()).collect();
    assert_eq!(decode(octets, &each, framing), whole);
    if let (Framing::Length(length), true) = (framing, whole.done) {
        assert_eq!(whole.data.len() as u64, length);
    }
    if !whole.done {
        return;
    }
    assert_eq!(decode(&octets[..whole.consumed], &[whole.consumed], framing), whole);

    let mut ours = Vec::new();
    for piece in whole.data.chunks(7) {
        ours.extend_from_slice(ChunkHead::new(piece.len()).as_bytes());
        ours.extend_from_slice(piece);
        ours.extend_from_slice(CRLF);
    }
    ours.extend_from_slice(LAST_CHUNK);
    let again = decode(&ours, &[ours.len()], Framing::Chunked);
    assert_eq!((again.data, again.consumed, again.done), (whole.data, ours.len(), true));
});
