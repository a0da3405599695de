//! Chunks against a model, and each way in which a buffer changes hands.

use proptest::prelude::*;

use super::*;

fn tiny(small: usize, large: usize) -> Rc<Buffers> {
    let sizes = Sizes {
        small_buffers: small,
        small_buffer_bytes: 16,
        small_lent: small,
        large_buffers: large,
        large_buffer_bytes: 64,
        large_lent: large,
        spill_bytes_max: 40,
    };
    Buffers::new(sizes).expect("a few pages")
}

fn filled(buffers: &Rc<Buffers>, group: Group, text: &[u8]) -> Result<Chunk, Errno> {
    buffers.fill(group, |octets| {
        octets[..text.len()].copy_from_slice(text);
        Ok(text.len())
    })
}

#[test]
fn a_buffer_is_free_again_when_its_last_slice_goes() {
    let buffers = tiny(1, 1);
    let mut whole = filled(&buffers, Group::Small, b"hello world").unwrap();
    assert_eq!((buffers.free(Group::Small), buffers.is_scarce(Group::Small)), (0, true));
    assert_eq!(filled(&buffers, Group::Small, b"x").unwrap_err(), Errno::NOBUFS);

    let hello = whole.split_to(5);
    let world = whole.slice(1..6);
    let again = world.clone();
    assert_eq!((&*hello, &*whole, &*world), (&b"hello"[..], &b" world"[..], &b"world"[..]));
    drop((whole, hello, world));
    assert_eq!(buffers.free(Group::Small), 0);
    drop(again);
    assert_eq!((buffers.free(Group::Small), buffers.is_scarce(Group::Small)), (1, false));
    assert_eq!(&*filled(&buffers, Group::Small, b"next").unwrap(), b"next");
}

#[test]
fn the_buffer_given_back_last_is_used_first() {
    let buffers = tiny(4, 1);
    let first = filled(&buffers, Group::Small, b"1").unwrap();
    let second = filled(&buffers, Group::Small, b"2").unwrap();
    let hot = second.as_ptr();
    drop(first);
    drop(second);
    assert_eq!(filled(&buffers, Group::Small, b"3").unwrap().as_ptr(), hot);
}

#[test]
fn a_failed_empty_or_panicking_fill_keeps_no_buffer() {
    let buffers = tiny(1, 1);
    assert_eq!(buffers.fill(Group::Small, |_| Err(Errno::CONNRESET)).unwrap_err(), Errno::CONNRESET);
    let empty = buffers.fill(Group::Small, |_| Ok(0)).unwrap();
    assert!(empty.is_empty());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        buffers.fill(Group::Small, |octets| Ok(octets.len() + 1))
    }));
    assert!(panicked.is_err());
    assert_eq!(buffers.free(Group::Small), 1);
}

#[test]
fn empty_slices_pin_nothing() {
    let buffers = tiny(1, 1);
    let mut chunk = filled(&buffers, Group::Small, b"abc").unwrap();
    let nothing = chunk.slice(1..1);
    let all = chunk.split_to(3);
    assert!(chunk.is_empty() && nothing.is_empty());
    drop(all);
    assert_eq!(buffers.free(Group::Small), 1);
    assert!(Chunk::default().is_empty());
}

#[test]
fn a_fill_inside_a_fill_gets_another_buffer() {
    let buffers = tiny(2, 1);
    let mut inner = Chunk::empty();
    let outer = buffers.fill(Group::Small, |octets| {
        octets[0] = b'o';
        inner = filled(&buffers, Group::Small, b"i")?;
        Ok(1)
    });
    assert_eq!((&*outer.unwrap(), &*inner), (&b"o"[..], &b"i"[..]));
}

#[test]
fn spilled_copies_are_budgeted_and_pin_no_buffer() {
    let buffers = tiny(1, 1);
    let chunk = filled(&buffers, Group::Large, &[7; 30]).unwrap();
    assert_eq!(chunk.group(), Some(Group::Large));
    let copy = chunk.spill().expect("30 of 40");
    assert!(copy.is_spilled() && !chunk.is_spilled() && copy.group().is_none());
    assert_eq!(*copy, *chunk);
    assert!(chunk.spill().is_none(), "60 of 40");
    assert!(copy.spill().is_some_and(|same| same.as_ptr() == copy.as_ptr()));
    drop(chunk);
    assert_eq!((buffers.free(Group::Large), buffers.spilled_bytes(), buffers.copied_bytes()), (1, 30, 30));

    let part = copy.slice(3..5);
    drop(copy);
    assert_eq!((buffers.spilled_bytes(), &*part), (30, &[7, 7][..]));
    drop(part);
    assert_eq!(buffers.spilled_bytes(), 0);
}

#[test]
fn a_chunk_outlives_the_handle_to_its_buffers() {
    let buffers = tiny(1, 1);
    let chunk = filled(&buffers, Group::Small, b"still here").unwrap();
    let copy = chunk.spill().unwrap();
    drop(buffers);
    assert_eq!(*chunk, *copy);
}

#[test]
fn large_groups_stand_on_huge_pages() {
    let buffers = Buffers::new(Sizes::default()).unwrap();
    let chunk = filled(&buffers, Group::Large, b"x").unwrap();
    assert_eq!(chunk.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
    assert_eq!(chunk.as_ptr().addr() % 4096, 0);
}

/// The part of the kernel: takes the oldest entry of the ring, as it was published.
fn kernel_takes(ring: &LendingRing, head: &mut u16) -> Option<u16> {
    let base = ring.memory.base.cast::<BufRingEntry>();
    // SAFETY: the mapping begins with an initialised entry.
    let tail = unsafe { BufRingEntry::tail(base.as_ptr()) };
    // SAFETY: aligned, alive, and nobody writes it at this moment.
    if unsafe { tail.read() } == *head {
        return None;
    }
    // SAFETY: an index below `entries`.
    let entry = unsafe { base.add(usize::from(*head & (ring.entries - 1))) };
    *head = head.wrapping_add(1);
    // SAFETY: an initialised entry that nobody writes at this moment.
    Some(unsafe { entry.as_ref() }.bid())
}

#[test]
fn lent_buffers_come_back_filled_or_empty() {
    let buffers = tiny(3, 1);
    let mut ring = LendingRing::new(&buffers, Group::Small).unwrap();
    assert_eq!(ring.entries(), 4);
    ring.lend_up_to(&buffers, 2);
    assert_eq!((ring.lent(), buffers.free(Group::Small)), (2, 3));
    let mut head = 0;
    // Round the ring, and past 2^16 lends: the tail wraps.
    for turn in 0..70_000_u32 {
        let id = kernel_takes(&ring, &mut head).expect("one was lent");
        // SAFETY: taken from the ring, and this test, which stands for the kernel, does not touch it again.
        let chunk = unsafe { buffers.hand_back(id, (turn % 3) as usize) };
        ring.on_handed_back();
        assert_eq!(chunk.len() as u32, turn % 3);
        assert_eq!(buffers.free(Group::Small), if chunk.is_empty() { 3 } else { 2 });
        drop(chunk);
        ring.lend_up_to(&buffers, 2);
        assert_eq!(ring.lent(), 2);
    }
    ring.lend_up_to(&buffers, 99);
    assert_eq!(ring.lent(), 3, "no more than there are");
    assert_eq!(filled(&buffers, Group::Small, b"x").unwrap_err(), Errno::NOBUFS, "the kernel has them all");
}

/// What a program may do with chunks.
#[derive(Clone, Debug)]
enum Step {
    Fill(bool, Vec<u8>),
    Clone(usize),
    Slice(usize, usize, usize),
    SplitTo(usize, usize),
    Advance(usize, usize),
    Truncate(usize, usize),
    Spill(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0_usize..64;
    prop_oneof![
        (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..16))
            .prop_map(|(large, text)| Step::Fill(large, text)),
        number().prop_map(Step::Clone),
        (number(), number(), number()).prop_map(|(which, start, end)| Step::Slice(which, start, end)),
        (number(), number()).prop_map(|(which, len)| Step::SplitTo(which, len)),
        (number(), number()).prop_map(|(which, len)| Step::Advance(which, len)),
        (number(), number()).prop_map(|(which, len)| Step::Truncate(which, len)),
        number().prop_map(Step::Spill),
        number().prop_map(Step::Drop),
        number().prop_map(Step::Drop),
    ]
}

/// A chunk as the model sees it: its octets, and which fill or spill its memory came from.
#[derive(Clone)]
struct Model {
    octets: Vec<u8>,
    source: usize,
}

proptest! {
    #[test]
    fn chunks_behave_like_copies_with_counted_sources(steps in proptest::collection::vec(step(), 0..200)) {
        let buffers = tiny(3, 2);
        // Index into `sources` of each source: (group or spilled octets).
        let mut sources: Vec<Result<Group, usize>> = Vec::new();
        let mut chunks: Vec<(Chunk, Model)> = Vec::new();
        let pick = |which: usize, chunks: &[(Chunk, Model)]| (!chunks.is_empty()).then(|| which % chunks.len());
        for step in steps {
            let live = |sources: &[Result<Group, usize>], chunks: &[(Chunk, Model)], wanted: Group| {
                (0..sources.len())
                    .filter(|&source| sources[source] == Ok(wanted))
                    .filter(|&source| chunks.iter().any(|(_, m)| m.source == source && !m.octets.is_empty()))
                    .count()
            };
            let budget = |sources: &[Result<Group, usize>], chunks: &[(Chunk, Model)]| -> usize {
                (0..sources.len())
                    .filter(|&source| chunks.iter().any(|(_, m)| m.source == source && !m.octets.is_empty()))
                    .filter_map(|source| sources[source].err())
                    .sum()
            };
            match step {
                Step::Fill(large, text) => {
                    let group = if large { Group::Large } else { Group::Small };
                    let full = live(&sources, &chunks, group) == buffers.count(group);
                    let chunk = filled(&buffers, group, &text);
                    prop_assert_eq!(chunk.is_err(), full);
                    if let Ok(chunk) = chunk {
                        chunks.push((chunk, Model { octets: text, source: sources.len() }));
                        sources.push(Ok(group));
                    }
                }
                Step::Clone(which) => if let Some(i) = pick(which, &chunks) {
                    chunks.push(chunks[i].clone());
                },
                Step::Slice(which, a, b) => if let Some(i) = pick(which, &chunks) {
                    let len = chunks[i].0.len() + 1;
                    let (start, end) = ((a % len).min(b % len), (a % len).max(b % len));
                    let model = Model { octets: chunks[i].1.octets[start..end].to_vec(), source: chunks[i].1.source };
                    chunks.push((chunks[i].0.slice(start..end), model));
                },
                Step::SplitTo(which, n) => if let Some(i) = pick(which, &chunks) {
                    let n = n % (chunks[i].0.len() + 1);
                    let front = chunks[i].0.split_to(n);
                    let rest = chunks[i].1.octets.split_off(n);
                    let octets = std::mem::replace(&mut chunks[i].1.octets, rest);
                    let source = chunks[i].1.source;
                    chunks.push((front, Model { octets, source }));
                },
                Step::Advance(which, n) => if let Some(i) = pick(which, &chunks) {
                    let n = n % (chunks[i].0.len() + 1);
                    chunks[i].0.advance(n);
                    chunks[i].1.octets.drain(..n);
                },
                Step::Truncate(which, n) => if let Some(i) = pick(which, &chunks) {
                    chunks[i].0.truncate(n);
                    chunks[i].1.octets.truncate(n);
                },
                Step::Spill(which) => if let Some(i) = pick(which, &chunks) {
                    let (chunk, model) = chunks[i].clone();
                    let pins = chunk.group().is_some();
                    let fits = !pins || budget(&sources, &chunks) + chunk.len() <= 40;
                    let copy = chunk.spill();
                    prop_assert_eq!(copy.is_some(), fits);
                    if let Some(copy) = copy {
                        let source = if pins { sources.push(Err(copy.len())); sources.len() - 1 } else { model.source };
                        chunks.push((copy, Model { octets: model.octets, source }));
                    }
                },
                Step::Drop(which) => if let Some(i) = pick(which, &chunks) {
                    chunks.swap_remove(i);
                },
            }
            for (chunk, model) in &chunks {
                prop_assert_eq!(&**chunk, &model.octets[..]);
            }
            for group in Group::ALL {
                prop_assert_eq!(buffers.free(group), buffers.count(group) - live(&sources, &chunks, group));
            }
            prop_assert_eq!(buffers.spilled_bytes(), budget(&sources, &chunks));
        }
    }
}
