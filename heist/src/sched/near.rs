//! Which Ps run near each other.
//!
//! What is stolen takes its cache lines along: the ring's, and those of each goroutine. From
//! another core of the same last-level cache they come in a third of the time that they
//! need from another node. So a P says where it runs, when it has nothing to do and every
//! 61st tick, and its thieves look at those of their own cache and of their own node
//! first.
//!
//! Only at a few of them, and not always. A group that has little left would fight for its
//! last pieces while another has plenty: so after a search that brought one goroutine, or
//! none, the next one begins anywhere. And so does one search in eight, so that each victim
//! keeps a probability of at least `c / P` to be the first. It is an order, nothing else: whoever
//! goes to sleep looks at all Ps, wherever they are.
//!
//! On a machine with one last-level cache there is nothing of this but a test for a null
//! pointer in a search.

use super::mask::{MAX_PROCS, Mask, WORD};
use super::p::Held;
use super::policy::{Departure, departs};
use super::schedt::Sched;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::place::{Place, Shape};
use std::sync::OnceLock;

/// One search in so many begins anywhere.
const FAR: u32 = 8;

/// How many victims of the own cache, and then of the own node, come first.
pub(super) const FIRST: [usize; 2] = [2, 1];

const WORDS: usize = MAX_PROCS / WORD;

/// Where the Ps of a runtime run, if it has many and they can be far from each other.
#[derive(Debug)]
pub(crate) struct Near(OnceLock<Places>);

/// The Ps by their places.
#[derive(Debug)]
pub(super) struct Places {
    shape: &'static Shape,
    caches: Box<[Members]>,
    nodes: Box<[Members]>,
}

/// The Ps at a place. Written when one moves, which is seldom: so all words together.
#[derive(Debug)]
#[repr(align(128))]
struct Members([AtomicU64; WORDS]);

impl Members {
    fn new() -> Members {
        Members([const { AtomicU64::new(0) }; WORDS])
    }

    // Relaxed, all of them: which Ps are near is a hint.
    fn word(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    fn insert(&self, id: u32) {
        self.0[id as usize / WORD].fetch_or(1 << (id as usize % WORD), Ordering::Relaxed);
    }

    fn remove(&self, id: u32) {
        self.0[id as usize / WORD].fetch_and(!(1 << (id as usize % WORD)), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Near {
    pub(crate) const fn new() -> Near {
        Near(OnceLock::new())
    }

    /// Many Ps are going to run.
    pub(crate) fn prepare(&self) {
        let shape = Shape::of_machine();
        if shape.caches() > 1 && departs(Departure::Near) {
            self.0.get_or_init(|| Places::new(shape));
        }
    }

    /// A runtime begins: nobody runs anywhere.
    pub(crate) fn clear(&self) {
        if let Some(places) = self.0.get() {
            places.caches.iter().chain(&places.nodes).for_each(Members::clear);
        }
    }
}

impl Places {
    pub(super) fn new(shape: &'static Shape) -> Places {
        let members = |n: usize| (0..n).map(|_| Members::new()).collect();
        Places { shape, caches: members(shape.caches()), nodes: members(shape.nodes()) }
    }

    /// The Ps of a cache, and those of its node.
    fn around(&self, place: Place) -> impl Iterator<Item = &Members> {
        let cache = self.caches.get(usize::from(place.cache));
        cache.into_iter().chain(self.nodes.get(usize::from(place.node)))
    }

    fn settle(&self, p: Held) -> Place {
        let (here, before) = (self.shape.here(), p.own().place.get());
        if before != Some(here) {
            p.own().place.set(Some(here));
            self.moves(p.id, before, here);
        }
        here
    }

    #[cold]
    pub(super) fn moves(&self, p: u32, before: Option<Place>, here: Place) {
        if let Some(before) = before {
            self.around(before).for_each(|members| members.remove(p));
        }
        self.around(here).for_each(|members| members.insert(p));
    }

    /// A few of those that offer something: of a cache, then of its node.
    pub(super) fn first(
        &self,
        here: Place,
        offers: &Mask,
        procs: u32,
        thief: u32,
        seed: u32,
    ) -> First {
        let mut first = First::default();
        if anywhere(seed) {
            return first;
        }
        let words = (procs as usize).div_ceil(WORD);
        for (members, more) in self.around(here).zip(FIRST) {
            let most = first.len + more;
            for i in 0..words {
                let word = (seed as usize + i) % words;
                // Mostly none are: then the word of offers, which is everybody's, is not
                // read.
                let members = members.word(word);
                if members != 0 && first.len < most {
                    first.add(word, members & offers.word(word), thief, seed >> 8, most);
                }
            }
        }
        first
    }
}

/// Whether a search with this random number begins anywhere.
pub(super) fn anywhere(seed: u32) -> bool {
    (seed >> 16).is_multiple_of(FAR)
}

/// A P notes where it runs.
pub(crate) fn settle(sched: &Sched, p: Held) {
    if let Some(places) = sched.near.0.get() {
        places.settle(p);
    }
}

/// The victims that a thief visits before all others, of those that offer something.
/// None after a search that brought one goroutine at most: there is little left here.
#[inline]
pub(super) fn first(sched: &Sched, thief: Held, seed: u32) -> First {
    let Some(places) = sched.near.0.get() else { return First::default() };
    let here = places.settle(thief);
    if thief.own().scant.replace(false) {
        return First::default();
    }
    places.first(here, &sched.offers, sched.procs(), thief.id, seed)
}

/// A few Ps, each once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct First {
    ids: [u32; FIRST[0] + FIRST[1]],
    len: usize,
}

impl First {
    /// Adds Ps of a word, from a random one on, until there are so many.
    fn add(&mut self, word: usize, bits: u64, thief: u32, seed: u32, most: usize) {
        let base = (word * WORD) as u32;
        let begin = if bits == 0 { 0 } else { seed % bits.count_ones() };
        let before = lowest(bits, begin);
        let id = |bit: u32| base + bit;
        for p in each(bits & !before).chain(each(before)).map(id) {
            if self.len == most {
                return;
            }
            if p != thief && !self.contains(p) {
                self.ids[self.len] = p;
                self.len += 1;
            }
        }
    }

    #[inline]
    pub(super) fn contains(&self, id: u32) -> bool {
        self.ids[..self.len].contains(&id)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        self.ids.into_iter().take(self.len)
    }
}

/// So many of the bits that are set, the lowest ones.
fn lowest(bits: u64, n: u32) -> u64 {
    let rest = (0..n).fold(bits, |rest, _| rest & rest.wrapping_sub(1));
    bits & !rest
}

/// The bits that are set.
fn each(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::*;

    #[test]
    fn a_p_that_moves_is_near_others_then() {
        let shape = Shape::new(&[(0, 0), (1, 0), (2, 1)]);
        let places = Places::new(Box::leak(Box::new(shape)));
        let [a, b, c] = [(0, 0), (1, 0), (2, 1)].map(|(cache, node)| Place { cache, node });
        let offers = Mask::new();
        offers.insert(70);
        let near = |here, thief| {
            let first = places.first(here, &offers, 128, thief, 1 << 16);
            first.contains(70)
        };
        assert!(!near(a, 1), "nobody knows where it is");
        places.moves(70, None, a);
        assert!(near(a, 1) && near(b, 1) && !near(c, 1));
        assert!(!near(a, 70), "not for itself");
        places.moves(70, Some(a), c);
        assert!(!near(a, 1) && !near(b, 1) && near(c, 1));
        offers.remove(70);
        assert!(!near(c, 1), "it has nothing");
    }

    #[test]
    fn bits_are_taken_apart() {
        assert_eq!((lowest(0b1011_0100, 0), lowest(0b1011_0100, 2)), (0, 0b1_0100));
        assert_eq!((lowest(u64::MAX, 64), lowest(1, 5)), (u64::MAX, 1));
        assert_eq!(each(1 << 63 | 5).collect::<Vec<_>>(), [0, 2, 63]);
    }
}
