//! What actions take, by class: a fixed table of averages.
//!
//! A class that has been seen seldom leans on a coarser one: a size on its action, an action on everything. The table
//! has a bound; where it is full a new class takes the place of one that was hardly ever used, or goes by the coarser
//! one. So a flood of made-up paths costs other classes nothing but the places of those that nobody uses.

use super::label::{Label, TEXT_WORDS};
use super::standing::F32;
use crate::limits::{COST_CLASS_LOOKS_MAX, COST_CLASSES_MAX};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What everything is taken to last before anything was seen, in microseconds.
const UNKNOWN_US: f64 = 1_000.0;
/// So many samples' worth of the coarser class stand beside a class's own.
const LEAN: f64 = 8.0;
/// An average follows the last samples with this gain at least.
const GAIN_MIN: f64 = 1.0 / 512.0;
/// With fewer samples than this, and not used for [`SELDOM_S`], a class may lose its place.
const FEW: u32 = 16;
const SELDOM_S: u32 = 60;
/// Whatever it has learnt.
const FORGOTTEN_S: u32 = 3_600;
/// The class of everything.
pub(super) const ALL: usize = 0;

/// The classes of one group.
#[derive(Debug)]
pub(super) struct Classes {
    classes: Box<[Class]>,
    /// Their names, for the operator. Written once, with the place.
    texts: Box<[[AtomicU64; TEXT_WORDS]]>,
}

/// One class: 32 octets.
#[derive(Debug, Default)]
struct Class {
    /// 0: nobody's place.
    key: AtomicU64,
    /// Samples, up to [`COUNT_MAX`].
    count: AtomicU32,
    mean_us: F32,
    /// Mean and variance of the natural logarithm of the microseconds.
    log_mean: F32,
    log_variance: F32,
    used_s: AtomicU32,
    /// The coarser class.
    parent: AtomicU32,
}

const _: () = assert!(size_of::<Class>() == 32);
const COUNT_MAX: u32 = 1 << 30;

/// What is expected of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) mean_us: f64,
    pub(super) log_mean: f64,
    /// Samples of the class itself.
    pub(super) count: u32,
}

/// A class as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    /// The action, or method and path, perhaps cut; with `(size n)` where its size matters. `*` is everything.
    pub name: String,
    /// Answers it was learnt from.
    pub samples: u32,
    /// What one takes on an average child, in microseconds.
    pub mean_us: f64,
    /// Half of them take less, in microseconds, if they are log-normal.
    pub median_us: f64,
}

impl Classes {
    pub(super) fn new() -> Self {
        Self {
            classes: (0..COST_CLASSES_MAX).map(|_| Class::default()).collect(),
            texts: (0..COST_CLASSES_MAX).map(|_| Default::default()).collect(),
        }
    }

    /// The place of this label's class, made if there is room; else that of the coarser one.
    pub(super) fn place(&self, label: &Label, now_s: u32) -> usize {
        if label.name == 0 {
            return ALL;
        }
        let key = label.key(label.size);
        if let Some(place) = self.find(key) {
            self.classes[place].touch(now_s);
            return place;
        }
        let by_name = self.entry(label.key(0), ALL, label, now_s);
        if label.size == 0 { by_name } else { self.entry(key, by_name, label, now_s) }
    }

    /// The place of this label's class, if it has one, else that of the coarser one.
    pub(super) fn known(&self, label: &Label) -> usize {
        if label.name == 0 {
            return ALL;
        }
        self.find(label.key(label.size)).or_else(|| self.find(label.key(0))).unwrap_or(ALL)
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.places(key).find(|place| self.classes[*place].key.load(Ordering::Relaxed) == key)
    }

    /// Where a key may be, in the order of looking.
    fn places(&self, key: u64) -> impl Iterator<Item = usize> {
        let first = (key >> 32) as usize;
        // The first place is everything's, so a look that falls there goes to the next.
        (0..COST_CLASS_LOOKS_MAX).map(move |look| ((first + look) % COST_CLASSES_MAX).max(1))
    }

    fn entry(&self, key: u64, parent: usize, label: &Label, now_s: u32) -> usize {
        // The first that may be taken; an empty one ends the search, for none is ever emptied again.
        let mut free = None;
        for place in self.places(key) {
            let class = &self.classes[place];
            let there = class.key.load(Ordering::Relaxed);
            if there == key {
                class.touch(now_s);
                return place;
            }
            if there == 0 {
                free = free.or(Some((place, 0)));
                break;
            }
            if free.is_none() && class.is_forgotten(now_s) {
                free = Some((place, there));
            }
        }
        let Some((place, there)) = free else { return parent };
        let class = &self.classes[place];
        match class.key.compare_exchange(there, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                class.count.store(0, Ordering::Relaxed);
                class.parent.store(parent as u32, Ordering::Relaxed);
                class.used_s.store(now_s, Ordering::Relaxed);
                for (word, told) in self.texts[place].iter().zip(label.text_words(parent != ALL)) {
                    word.store(told, Ordering::Relaxed);
                }
                place
            }
            Err(taken) if taken == key => place,
            Err(_) => parent,
        }
    }

    /// What the class at this place is expected to take.
    #[inline]
    pub(super) fn expected(&self, place: usize) -> Expected {
        let class = &self.classes[place];
        let count = class.count.load(Ordering::Relaxed);
        let (mean_us, log_mean) = (class.mean_us.load(), class.log_mean.load());
        if f64::from(count) >= 1.0 / GAIN_MIN {
            return Expected { mean_us, log_mean, count };
        }
        self.leaning(place, mean_us, log_mean, count)
    }

    /// A class that has few samples of its own.
    fn leaning(&self, place: usize, mean_us: f64, log_mean: f64, count: u32) -> Expected {
        let coarser = if place == ALL {
            Expected { mean_us: UNKNOWN_US, log_mean: UNKNOWN_US.ln(), count: 0 }
        } else {
            self.expected(self.parent(place))
        };
        let own = f64::from(count);
        let lean = |own_mean: f64, other: f64| (own * own_mean + LEAN * other) / (own + LEAN);
        Expected { mean_us: lean(mean_us, coarser.mean_us), log_mean: lean(log_mean, coarser.log_mean), count }
    }

    /// One of the class took this long on a child of slowness 1.
    pub(super) fn teach(&self, place: usize, us: f64) {
        let mut place = place;
        loop {
            self.classes[place].teach(us);
            if place == ALL {
                return;
            }
            place = self.parent(place);
        }
    }

    /// Makes every mean this many times as long.
    pub(super) fn scale(&self, factor: f64) {
        for class in self.classes.iter().filter(|class| class.count.load(Ordering::Relaxed) > 0) {
            class.mean_us.store(class.mean_us.load() * factor);
            class.log_mean.store(class.log_mean.load() + factor.ln());
        }
    }

    /// All that have samples, everything first, then the most seen.
    pub(super) fn view(&self) -> Vec<ClassView> {
        let mut list: Vec<ClassView> = (0..self.classes.len()).filter_map(|place| self.view_of(place)).collect();
        list.sort_by_key(|class| std::cmp::Reverse((class.name == "*", class.samples)));
        list
    }

    pub(super) fn view_of(&self, place: usize) -> Option<ClassView> {
        let class = &self.classes[place];
        let samples = class.count.load(Ordering::Relaxed);
        let name = match place {
            ALL => "*".to_owned(),
            _ => Label::text_of(&std::array::from_fn(|i| self.texts[place][i].load(Ordering::Relaxed))),
        };
        let median_us = class.log_mean.load().exp();
        (samples > 0).then(|| ClassView { name, samples, mean_us: class.mean_us.load(), median_us })
    }

    /// Always a lower place in the chain size, action, everything; bounded even if places were taken over meanwhile.
    fn parent(&self, place: usize) -> usize {
        let parent = self.classes[place].parent.load(Ordering::Relaxed) as usize;
        let is_coarser = parent == ALL || self.classes[parent].parent.load(Ordering::Relaxed) as usize == ALL;
        if is_coarser && parent != place { parent } else { ALL }
    }
}

impl Class {
    fn touch(&self, now_s: u32) {
        if self.used_s.load(Ordering::Relaxed) != now_s {
            self.used_s.store(now_s, Ordering::Relaxed);
        }
    }

    fn is_forgotten(&self, now_s: u32) -> bool {
        let age_s = now_s.saturating_sub(self.used_s.load(Ordering::Relaxed));
        age_s > FORGOTTEN_S || (age_s > SELDOM_S && self.count.load(Ordering::Relaxed) < FEW)
    }

    fn teach(&self, us: f64) {
        let us = us.max(1.0);
        let count = self.count.load(Ordering::Relaxed).min(COUNT_MAX - 1) + 1;
        let gain = (1.0 / f64::from(count)).max(GAIN_MIN);
        let (mean_us, log_mean, variance) = (self.mean_us.load(), self.log_mean.load(), self.log_variance.load());
        // The values of the place's last owner count for nothing: the first gain is 1.
        let off = us.ln() - log_mean;
        self.mean_us.store(mean_us + gain * (us - mean_us));
        self.log_mean.store(log_mean + gain * off);
        let variance = if count == 1 { 0.0 } else { variance + gain * (off * off * (1.0 - gain) - variance) };
        self.log_variance.store(variance);
        self.count.store(count, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(antiphon_loom)))]
mod tests {
    use super::*;

    fn path(text: &str) -> Label {
        Label::of_path(b"GET", text.as_bytes(), None)
    }

    #[test]
    fn a_new_class_leans_on_the_coarser_one() {
        let classes = Classes::new();
        assert_eq!(classes.expected(ALL).mean_us, UNKNOWN_US);
        let small = classes.place(&Label::of_action("query", Some(1)), 0);
        let large = classes.place(&Label::of_action("query", Some(1 << 12)), 0);
        assert_ne!(small, large);
        for _ in 0..2_000 {
            classes.teach(small, 100.0);
        }
        // The large one has nothing of its own: it is taken for its action's mean.
        assert!((classes.expected(large).mean_us - 100.0).abs() < 1.0, "{:?}", classes.expected(large));
        for _ in 0..8 {
            classes.teach(large, 1_100.0);
        }
        let mean = classes.expected(large).mean_us;
        assert!((500.0..800.0).contains(&mean), "half its own: {mean}");
    }

    #[test]
    fn one_bad_sample_moves_a_mean_by_its_gain_at_most() {
        let classes = Classes::new();
        let place = classes.place(&path("/a"), 0);
        for _ in 0..10_000 {
            classes.teach(place, 1_000.0);
        }
        classes.teach(place, 100_000.0);
        let mean = classes.expected(place).mean_us;
        assert!(mean <= 1_000.0 + 99_000.0 / 512.0 + 1.0, "{mean}");
    }

    #[test]
    fn a_flood_of_paths_is_bounded_and_spares_what_is_used() {
        let classes = Classes::new();
        let used = classes.place(&path("/used"), 0);
        for _ in 0..100 {
            classes.teach(used, 5_000.0);
        }
        for i in 0..1_000_000_u32 {
            // Letters, so that no part of the path is taken for an id.
            let name: String = i.to_string().bytes().map(|digit| char::from(digit - b'0' + b'g')).collect();
            let now_s = i / 1_000;
            let place = classes.place(&path(&format!("/{name}")), now_s);
            classes.teach(place, 50.0);
            if i % 1_000 == 0 {
                assert_eq!(classes.place(&path("/used"), now_s), used);
            }
        }
        assert_eq!(classes.classes.len(), COST_CLASSES_MAX);
        assert!((classes.expected(used).mean_us - 5_000.0).abs() < 1.0 + 0.08 * 5_000.0);
        // After the flood, a class that is used finds a place of its own again.
        let (late, name) = (10_000, path("/late"));
        let place = classes.place(&name, late);
        assert!(place != ALL && classes.place(&name, late) == place);
    }

    #[test]
    fn places_are_shown_by_name() {
        let classes = Classes::new();
        for label in [path("/items/17?x=1"), Label::of_action("query", Some(6)), Label::NONE] {
            classes.teach(classes.place(&label, 0), 2_000.0);
        }
        let names: Vec<_> = classes.view().into_iter().map(|class| class.name).collect();
        assert_eq!(names[0], "*");
        assert!(names.contains(&"GET /items/*".to_owned()), "{names:?}");
        assert!(names.contains(&"query".to_owned()) && names.contains(&"query (size 2)".to_owned()), "{names:?}");
    }
}
