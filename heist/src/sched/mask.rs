//! A set of Ps, one bit each.

use crate::prim::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// The most Ps that a runtime can have.
pub(crate) const MAX_PROCS: usize = 1024;

/// Ps in a word of a mask.
pub(crate) const WORD: usize = 64;

/// The set.
///
/// Each word has a cache line of its own: with all of them in two lines, a thousand
/// Ps that come and go are two queues of five hundred cores.
#[derive(Debug)]
pub(crate) struct Mask {
    words: [CachePadded<AtomicU64>; MAX_PROCS / WORD],
}

impl Mask {
    pub(crate) fn new() -> Self {
        Mask { words: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))) }
    }

    #[inline]
    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.word(id as usize / WORD) & (1 << (id as usize % WORD)) != 0
    }

    /// Adds a P. A full fence, like every read-modify-write of this set.
    pub(crate) fn insert(&self, id: u32) {
        self.words[id as usize / WORD].fetch_or(1 << (id as usize % WORD), Ordering::SeqCst);
    }

    /// Takes a P out. False if it was not in.
    pub(crate) fn remove(&self, id: u32) -> bool {
        let bit = 1 << (id as usize % WORD);
        self.words[id as usize / WORD].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// The members, one word of them after the other.
    pub(crate) fn iter(&self, procs: u32) -> impl Iterator<Item = u32> {
        self.iter_from(0, procs)
    }

    /// The members, the word of a certain P first, and in each word the bits from
    /// its place on.
    pub(crate) fn iter_from(&self, id: u32, procs: u32) -> impl Iterator<Item = u32> {
        let words = (procs as usize).div_ceil(WORD);
        let (start, turn) = (id as usize / WORD, id % WORD as u32);
        (0..words).flat_map(move |i| {
            let word = (start + i) % words;
            let mut bits = self.word(word).rotate_right(turn);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some((word * WORD) as u32 + (bit + turn) % WORD as u32)
            })
        })
    }

    /// Whether it has a member.
    pub(crate) fn any(&self, procs: u32) -> bool {
        (0..(procs as usize).div_ceil(WORD)).any(|word| self.word(word) != 0)
    }

    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go() {
        let mask = Mask::new();
        for id in [0, 1, 63, 64, 1023] {
            assert!(!mask.contains(id));
            mask.insert(id);
            assert!(mask.contains(id));
        }
        assert_eq!(mask.word(0), 1 | 2 | 1 << 63);
        assert_eq!(mask.iter(1024).collect::<Vec<_>>(), [0, 1, 63, 64, 1023]);
        assert_eq!(mask.iter_from(1, 1024).collect::<Vec<_>>(), [1, 63, 0, 64, 1023]);
        assert_eq!(mask.iter_from(70, 1024).collect::<Vec<_>>(), [64, 1023, 63, 0, 1]);
        assert!(mask.remove(1) && !mask.remove(1));
        assert_eq!(mask.word(0), 1 | 1 << 63);
        assert!(mask.any(1024));
        mask.clear();
        assert!(!mask.contains(1023) && !mask.any(1024));
    }
}
