//! The decoder against a slow and plain reference, at random cuts.

use proptest::prelude::*;

use super::*;

/// A whole body: its data, its trailers, and how many octets it took.
type Whole = (Vec<u8>, Vec<u8>, usize);

/// A chunked body read the slow way: whole lines, split and split again. `None`: not complete, or not sound.
fn reference(mut input: &[u8]) -> Option<Whole> {
    fn line<'i>(input: &mut &'i [u8]) -> Option<&'i [u8]> {
        let end = input.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &input[..end];
        *input = &input[end + 2..];
        let is_clean = !line.contains(&b'\r') && !line.contains(&b'\n');
        is_clean.then_some(line)
    }

    let whole = input.len();
    let mut data = Vec::new();
    let mut overhead = 0;
    loop {
        let head = line(&mut input)?;
        let digits = head.iter().take_while(|octet| octet.is_ascii_hexdigit()).count();
        if digits == 0 || digits > 16 {
            return None;
        }
        let extension = &head[digits..];
        if !extension.is_empty() {
            // The CR that ends it is counted too, as the decoder counts it.
            overhead += extension.len() + 1;
        }
        if !extensions_are_sound(extension) || overhead > CHUNK_OVERHEAD_BYTES_MAX {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(&head[..digits]).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        data.extend_from_slice(input.get(..size)?);
        input = input.get(size..)?;
        input = input.strip_prefix(b"\r\n")?;
    }
    let mut trailers = Vec::new();
    loop {
        let field = line(&mut input)?;
        if field.is_empty() {
            return Some((data, trailers, whole - input.len()));
        }
        overhead += field.len() + 1;
        let colon = field.iter().position(|octet| *octet == b':')?;
        let (name, value) = field.split_at(colon);
        let is_text = |octet: &u8| *octet == b'\t' || (*octet >= b' ' && *octet != 0x7f);
        let is_token = !name.is_empty() && name.iter().all(|octet| is_tchar(*octet));
        if !is_token || !value.iter().all(is_text) || is_forbidden(name) || overhead > CHUNK_OVERHEAD_BYTES_MAX {
            return None;
        }
        trailers.extend_from_slice(field);
        trailers.extend_from_slice(CRLF);
    }
}

/// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`, by descent.
fn extensions_are_sound(mut rest: &[u8]) -> bool {
    fn blank(rest: &mut &[u8]) {
        while let [b' ' | b'\t', behind @ ..] = *rest {
            *rest = behind;
        }
    }
    fn token(rest: &mut &[u8]) -> bool {
        let length = rest.iter().take_while(|octet| is_tchar(**octet)).count();
        *rest = &rest[length..];
        length > 0
    }
    fn quoted(rest: &mut &[u8]) -> bool {
        let is_text = |octet: u8| octet == b'\t' || (octet >= b' ' && octet != 0x7f);
        while let [octet, behind @ ..] = *rest {
            *rest = behind;
            match octet {
                b'"' => return true,
                b'\\' => {
                    let [escaped, behind @ ..] = *rest else {
                        return false;
                    };
                    *rest = behind;
                    if !is_text(*escaped) {
                        return false;
                    }
                }
                octet if !is_text(*octet) => return false,
                _ => {}
            }
        }
        false
    }

    while !rest.is_empty() {
        blank(&mut rest);
        let Some(behind) = rest.strip_prefix(b";") else {
            return false;
        };
        rest = behind;
        blank(&mut rest);
        if !token(&mut rest) {
            return false;
        }
        let behind_name = rest;
        blank(&mut rest);
        let Some(value) = rest.strip_prefix(b"=") else {
            rest = behind_name;
            continue;
        };
        rest = value;
        blank(&mut rest);
        let sound = match rest.strip_prefix(b"\"") {
            Some(behind) => {
                rest = behind;
                quoted(&mut rest)
            }
            None => token(&mut rest),
        };
        if !sound {
            return false;
        }
    }
    true
}

/// Octets through a decoder in pieces: data, trailers and octets consumed, if the body was complete and sound.
fn decode(input: &[u8], cuts: &[usize], framing: Framing) -> Result<Option<Whole>, Fault> {
    let mut decoder = Decoder::response(framing);
    let (mut data, mut trailers, mut consumed) = (Vec::new(), Vec::new(), 0);
    let mut ends = cuts.to_vec();
    ends.push(input.len());
    for end in ends {
        while consumed < end && !decoder.is_done() {
            let piece = &input[consumed..end];
            let step = decoder.step(piece)?;
            assert!(step.consumed > 0, "input was there");
            assert!(step.data.end <= step.consumed && step.trailers.end <= step.consumed);
            assert_eq!(step.done, decoder.is_done());
            data.extend_from_slice(&piece[step.data]);
            trailers.extend_from_slice(&piece[step.trailers]);
            consumed += step.consumed;
        }
    }
    Ok(decoder.is_done().then_some((data, trailers, consumed)))
}

/// A chunked body, mostly sound.
fn chunked() -> impl Strategy<Value = Vec<u8>> {
    let extension = proptest::sample::select(vec![
        "",
        "",
        "",
        ";a",
        ";a=b",
        "; a = b",
        " ;a",
        ";a=\"b;\\\"c\"",
        ";a;b=c",
        "\t; a\t=\t\"\"",
        ";",
        ";a=",
        ";a=\"b",
        " ",
        ";a b",
        ";a=b =c",
        ";a = b ;c",
        ";a =b",
    ]);
    let chunk = (proptest::collection::vec(any::<u8>(), 1..20), extension, any::<bool>()).prop_map(
        |(data, extension, upper)| {
            let size = if upper { format!("0{:X}", data.len()) } else { format!("{:x}", data.len()) };
            [size.as_bytes(), extension.as_bytes(), CRLF, &data, CRLF].concat()
        },
    );
    let trailers = proptest::sample::select(vec![
        "",
        "",
        "",
        "X-Sum: 1\r\n",
        "a:\r\nb: c\r\n",
        "Content-Length: 5\r\n",
        "content-length-long-name: 1\r\n",
        " a: b\r\n",
        "a : b\r\n",
        "a: \0\r\n",
        "a\r\n",
        "Host: x\r\n",
    ]);
    let edit = proptest::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>()));
    (proptest::collection::vec(chunk, 0..6), trailers, edit).prop_map(|(chunks, trailers, edit)| {
        let mut octets = [&chunks.concat(), b"0\r\n".as_slice(), trailers.as_bytes(), b"\r\nrest"].concat();
        if let Some((at, octet)) = edit {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decoder_and_reference_agree(octets in chunked(), mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(octets.len())).collect();
        cuts.sort_unstable();
        let decoded = decode(&octets, &cuts, Framing::Chunked);
        prop_assert_eq!(decoded.clone().ok().flatten(), reference(&octets), "{:?}", decoded);
        let each: Vec<usize> = (1..octets.len()).collect();
        prop_assert_eq!(decode(&octets, &each, Framing::Chunked), decoded);
    }

    #[test]
    fn our_own_chunks_are_read_back(data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..8)) {
        let mut octets = Vec::new();
        for piece in &data {
            octets.extend_from_slice(ChunkHead::new(piece.len()).as_bytes());
            octets.extend_from_slice(piece);
            octets.extend_from_slice(CRLF);
        }
        octets.extend_from_slice(LAST_CHUNK);
        let read = decode(&octets, &[], Framing::Chunked);
        prop_assert_eq!(read, Ok(Some((data.concat(), Vec::new(), octets.len()))));
    }

    #[test]
    fn a_length_takes_what_is_its_own(length in 0_u64..40, octets in proptest::collection::vec(any::<u8>(), 0..60)) {
        let whole = decode(&octets, &[], Framing::Length(length)).expect("no framing to break");
        let expected = (octets.len() as u64 >= length).then(|| (octets[..length as usize].to_vec(), Vec::new(), length as usize));
        prop_assert_eq!(whole, expected);
    }
}

#[test]
fn one_step_goes_from_framing_through_data_to_framing() {
    let octets = b"5\r\nhello\r\n0\r\nX-A: 1\r\n\r\nrest";
    let step = Decoder::request(Framing::Chunked).step(octets).expect("sound");
    assert_eq!(&octets[step.data], b"hello");
    assert_eq!(&octets[step.trailers], b"X-A: 1\r\n");
    assert_eq!(&octets[step.consumed..], b"rest");
    assert!(step.done);
}

#[test]
fn sizes_of_sixteen_digits_do_not_wrap() {
    let mut decoder = Decoder::request(Framing::Chunked);
    let step = decoder.step(b"ffffffffffffffff\r\nab").expect("sound");
    assert_eq!(step.data, 18..20);
    assert_eq!(decoder.state, State::Data(u64::MAX - 2));
    let seventeen = Decoder::request(Framing::Chunked).step(b"00000000000000005\r\n");
    assert_eq!(seventeen, Err(Fault::ChunkSizeTooLarge));
}

#[test]
fn overhead_is_bounded_to_the_octet() {
    let body = |octets: usize| [b"1;".as_slice(), &vec![b'e'; octets - 2], b"\r\nx\r\n0\r\n\r\n"].concat();
    let read = |octets: usize| decode(&body(octets), &[], Framing::Chunked);
    assert!(read(CHUNK_OVERHEAD_BYTES_MAX).is_ok());
    assert!(read(CHUNK_OVERHEAD_BYTES_MAX + 1).is_err());
}

#[test]
fn an_end_within_a_body_is_whose_fault_it_is() {
    let end = |mut decoder: Decoder| decoder.end_of_input();
    assert_eq!(end(Decoder::request(Framing::Length(1))), Err(Fault::BodyCutShort));
    assert_eq!(end(Decoder::request(Framing::Chunked)), Err(Fault::BodyCutShort));
    assert_eq!(end(Decoder::response(Framing::Length(1))), Err(Fault::ChildBodyCutShort));
    assert_eq!(end(Decoder::response(Framing::Chunked)), Err(Fault::ChildBodyCutShort));
    assert_eq!(end(Decoder::response(Framing::UntilClose)), Ok(()));
    assert_eq!(end(Decoder::response(Framing::None)), Ok(()));
}

#[test]
fn octets_that_were_spliced_are_counted() {
    let mut decoder = Decoder::response(Framing::Length(10));
    assert_eq!(decoder.left(), Some(10));
    decoder.pass(7);
    assert_eq!(decoder.left(), Some(3));
    assert_eq!(decoder.step(b"abcd").expect("sound").consumed, 3);
    assert!(decoder.is_done());
}

#[test]
fn chunk_heads() {
    assert_eq!(ChunkHead::new(1).as_bytes(), b"1\r\n");
    assert_eq!(ChunkHead::new(0x1f0).as_bytes(), b"1f0\r\n");
    assert_eq!(ChunkHead::new(usize::MAX).as_bytes(), b"ffffffffffffffff\r\n");
}
