//! Many entries in order: a heap of those that are due next, and buckets for the rest.
//!
//! A heap of a hundred thousand lies in no near cache, and each entry goes down all of it
//! and up again. So once there are some, an entry that is due in a later bucket, half a
//! millisecond or more from now, is only appended there. A bucket that is next is sorted, at
//! once, which takes a third of the time that its entries would take in a heap, one by one.
//! The heap is for those that come when their bucket is open, or are due beyond the last
//! one, and for all while they are few.
//!
//! The earliest of all is always in the heap or in the open bucket: whoever takes from them
//! makes sure of that ([`Crowd::settle`]).

use super::heap::{Entry, Heap};
use super::steps;
use crate::prim::hint;

/// The time that a bucket covers, as a power of two: about half a millisecond.
const SPAN: u32 = 19;

/// Buckets: for a quarter of a second.
const BUCKETS: u64 = 512;

/// While there are fewer, the heap takes all that comes.
const SMALL: usize = 256;

/// The parts that a bucket with many entries is sorted in: 8 µs each.
const PARTS: usize = 64;

/// What a bucket has room for at first.
const FIRST: usize = 32;

/// No bucket.
const NONE: u64 = u64::MAX;

/// The number of the bucket of a moment.
#[inline(always)]
const fn bucket(when: u64) -> u64 {
    when >> SPAN
}

/// The buckets of those that are due later, from `from` on.
#[derive(Debug)]
struct Later<T> {
    /// Those of a bucket are in the vector with its number, modulo [`BUCKETS`].
    buckets: Vec<Vec<Entry<T>>>,
    /// A bit for each that is not empty.
    filled: [u64; (BUCKETS / 64) as usize],
    /// The lowest that may be filled.
    from: u64,
    /// The lowest that is, or [`NONE`].
    first: u64,
    len: usize,
    /// The memory of the bucket that was open last, for the next one that is filled.
    spare: Vec<Entry<T>>,
}

impl<T> Later<T> {
    const fn new() -> Self {
        let filled = [0; (BUCKETS / 64) as usize];
        Later { buckets: Vec::new(), filled, from: 0, first: NONE, len: 0, spare: Vec::new() }
    }

    fn push(&mut self, entry: Entry<T>) {
        if self.buckets.is_empty() {
            self.buckets.resize_with(BUCKETS as usize, Vec::new);
        }
        let number = bucket(entry.when);
        let at = number % BUCKETS;
        let entries = &mut self.buckets[at as usize];
        if entries.capacity() == 0 {
            *entries = std::mem::take(&mut self.spare);
            entries.reserve(FIRST);
        }
        entries.push(entry);
        // For the next one there, which comes when others have been everywhere else.
        hint::prefetch_to_write(entries.as_ptr_range().end);
        self.filled[at as usize / 64] |= 1 << (at % 64);
        self.first = self.first.min(number);
        self.len += 1;
    }

    /// Takes the lowest that is filled.
    fn take_first(&mut self) -> Vec<Entry<T>> {
        let at = (self.first % BUCKETS) as usize;
        self.from = self.first + 1;
        self.filled[at / 64] &= !(1 << (at % 64));
        let entries = std::mem::take(&mut self.buckets[at]);
        self.len -= entries.len();
        self.find_first();
        entries
    }

    fn find_first(&mut self) {
        let from = self.from;
        let filled = |word: u64| self.filled[((from / 64 + word) % (BUCKETS / 64)) as usize];
        // The first word twice: what is left of it comes last.
        let words = (0..=BUCKETS / 64).inspect(|_| steps::step()).map(|word| match word {
            0 => filled(0) >> (from % 64) << (from % 64),
            last if last == BUCKETS / 64 => filled(0) & ((1 << (from % 64)) - 1),
            word => filled(word),
        });
        let found = words.enumerate().find(|(_, filled)| *filled != 0);
        self.first = found.map_or(NONE, |(word, filled)| {
            (from / 64 + word as u64) * 64 + u64::from(filled.trailing_zeros())
        });
    }

    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        if self.len == 0 {
            return;
        }
        for (at, entries) in self.buckets.iter_mut().enumerate() {
            steps::step();
            entries.retain(|entry| keep(&entry.item));
            if entries.is_empty() {
                *entries = Vec::new();
                self.filled[at / 64] &= !(1 << (at % 64));
            }
        }
        self.len = self.buckets.iter().map(Vec::len).sum();
        self.find_first();
    }
}

/// Sorts the entries of a bucket, the earliest last.
///
/// They are laid out by the time first, in [`PARTS`] parts, of which each is sorted. Most have
/// a handful then: 200,000 sleepers on one P took 2 % less CPU time by it.
fn sort<T: Copy>(entries: &mut Vec<Entry<T>>, table: &mut Vec<Entry<T>>) {
    let latest_first = |one: &Entry<T>, other: &Entry<T>| {
        steps::step();
        other.when.cmp(&one.when)
    };
    if entries.len() < 2 * PARTS {
        return entries.sort_unstable_by(latest_first);
    }
    // All are of one bucket, whose number is in the higher bits. The latest part comes first.
    let part = |entry: &Entry<T>| {
        steps::step();
        PARTS - 1 - (entry.when >> (SPAN - PARTS.ilog2())) as usize % PARTS
    };
    let mut ends = [0; PARTS];
    entries.iter().for_each(|entry| ends[part(entry)] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let mut begins = ends;
    // Only for their number: each is written over.
    table.clear();
    table.extend_from_slice(entries);
    for entry in entries.iter() {
        let begin = &mut begins[part(entry)];
        *begin -= 1;
        table[*begin] = *entry;
    }
    for (begin, end) in begins.into_iter().zip(ends) {
        table[begin..end].sort_unstable_by(latest_first);
    }
    std::mem::swap(entries, table);
}

/// Entries, the earliest first.
#[derive(Debug)]
pub(super) struct Crowd<T> {
    near: Heap<T>,
    /// The bucket that was next, the earliest at the end.
    open: Vec<Entry<T>>,
    later: Later<T>,
    /// Room to sort a bucket in.
    table: Vec<Entry<T>>,
}

impl<T: Copy> Crowd<T> {
    pub(super) const fn new() -> Self {
        Crowd { near: Heap::new(), open: Vec::new(), later: Later::new(), table: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.near.len() + self.open.len() + self.later.len
    }

    /// When the earliest is due.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u64> {
        match (self.near.first(), self.open.last()) {
            (Some(near), Some(open)) => Some(near.min(open.when)),
            (near, open) => near.or(open.map(|open| open.when)),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, when: u64, item: T) {
        if self.len() < SMALL || !self.push_later(when, item) {
            self.near.push(when, item);
        }
    }

    /// Adds it to its bucket, if that is a later one.
    #[inline(never)]
    fn push_later(&mut self, when: u64, item: T) -> bool {
        let next = self.first().map_or(0, bucket) + 1;
        if self.later.len == 0 {
            // Not before what is open: that stays in order.
            let opened = self.open.first().map_or(0, |last| bucket(last.when) + 1);
            self.later.from = next.max(opened);
        }
        let from = self.later.from;
        let later = (from.max(next)..from + BUCKETS).contains(&bucket(when));
        if later {
            self.later.push(Entry { when, item });
        }
        later
    }

    /// Opens those that may have entries before all that are near.
    #[inline(always)]
    fn settle(&mut self) {
        while self.later.first != NONE
            && self.first().is_none_or(|first| bucket(first) >= self.later.first)
        {
            self.open_first();
        }
    }

    /// Opens the lowest of the buckets.
    #[inline(never)]
    fn open_first(&mut self) {
        let mut entries = self.later.take_first();
        sort(&mut entries, &mut self.table);
        // What is left of those that were opened before is due before all of it.
        self.open.iter().for_each(|_| steps::step());
        entries.append(&mut self.open);
        self.later.spare = std::mem::replace(&mut self.open, entries);
    }

    /// How many are due at `by`, and when the last of them is (0 if there is none); or that of
    /// those that it has seen, once there are more than `N`.
    pub(super) fn count_due<const N: usize>(&mut self, by: u64) -> (usize, u64) {
        while self.later.first <= bucket(by) {
            self.open_first();
        }
        let not_due = self.open.partition_point(|entry| entry.when > by);
        let (near, last) = self.near.count_due::<N>(by);
        let last = self.open.get(not_due).map_or(last, |entry| entry.when.max(last));
        (near + self.open.len() - not_due, last)
    }

    /// Drops the earliest while they are not `alive`.
    pub(super) fn drop_first_dead(&mut self, mut alive: impl FnMut(&T) -> bool) {
        loop {
            let before = self.len();
            self.near.drop_first_dead(&mut alive);
            while self.open.pop_if(|first| !alive(&first.item)).is_some() {}
            if self.len() == before {
                return;
            }
            self.settle();
        }
    }

    /// Takes the earliest, if it is due at `now`.
    #[inline]
    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        let near = self.near.first().unwrap_or(u64::MAX);
        let item = match self.open.pop_if(|first| first.when <= near && first.when <= now) {
            Some(first) => first.item,
            None => self.near.pop_due(now)?,
        };
        self.settle();
        Some(item)
    }

    /// Keeps those entries only, in linear time.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.near.retain(&mut keep);
        self.open.retain(|entry| keep(&entry.item));
        self.later.retain(keep);
        self.settle();
    }

    /// Empties it: when and what.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        let later = std::mem::replace(&mut self.later, Later::new()).buckets.into_iter().flatten();
        let open = std::mem::take(&mut self.open).into_iter();
        self.near.take_all().chain(open.chain(later).map(|entry| (entry.when, entry.item)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::prim::rng::Rng;

    /// A moment up to twice as far from `now` as there are buckets.
    fn some_time(rng: &Rng, now: u64) -> u64 {
        now + (u64::from(rng.next()) << 32 | u64::from(rng.next())) % ((2 * BUCKETS) << SPAN)
    }

    const MS: u64 = 1_000_000;

    /// A bucket is open, all others are empty, and somebody comes who is due before it.
    #[test]
    fn one_that_is_due_before_an_open_bucket() {
        let mut crowd = Crowd::new();
        (0..SMALL).for_each(|_| crowd.push(MS, 0));
        (0..300).for_each(|_| crowd.push(200 * MS, 200));
        (0..SMALL).for_each(|_| assert_eq!(crowd.pop_due(2 * MS), Some(0)));
        crowd.push(2 * MS, 2);
        crowd.push(50 * MS, 50);
        let order: Vec<i32> = std::iter::from_fn(|| crowd.pop_due(u64::MAX)).take(3).collect();
        assert_eq!(order, [2, 50, 200]);
    }

    /// What is not due yet does not count.
    #[test]
    fn the_last_of_those_that_are_due() {
        let mut crowd = Crowd::new();
        (0..SMALL).for_each(|_| crowd.push(MS, ()));
        (0..100).for_each(|_| crowd.push(10 * MS, ()));
        (0..SMALL).for_each(|_| assert!(crowd.pop_due(MS).is_some()));
        crowd.push(10_000 * MS, ());
        assert_eq!(crowd.count_due::<16>(11 * MS), (100, 10 * MS));
    }

    #[test]
    fn comes_out_in_order_while_the_time_goes_on() {
        for seed in 0..10 {
            let (rng, mut crowd, mut all) = (Rng::new(seed), Crowd::new(), Vec::new());
            let mut now = u64::from(rng.next()) << 20;
            for step in 0..6_000 {
                if step % 3_000 < 2_500 {
                    let when = some_time(&rng, now);
                    crowd.push(when, when);
                    all.insert(all.partition_point(|other| *other > when), when);
                } else {
                    now = some_time(&rng, now).min(now + (1 << SPAN));
                    while let Some(when) = crowd.pop_due(now) {
                        assert_eq!(all.pop(), Some(when));
                        assert!(when <= now);
                    }
                }
                assert_eq!((crowd.len(), crowd.first()), (all.len(), all.last().copied()));
            }
            assert!(!all.is_empty() && crowd.later.len > 0);
            let mut rest: Vec<u64> = std::iter::from_fn(|| crowd.pop_due(u64::MAX)).collect();
            rest.reverse();
            assert_eq!(rest, all);
        }
    }

    /// Also if all of them are in one part, or most.
    #[test]
    fn a_bucket_is_sorted_whatever_its_entries() {
        let rng = Rng::new(7);
        for (count, spread) in
            [(1, 1), (127, SPAN), (128, SPAN), (1_000, SPAN), (1_000, 9), (999, 0)]
        {
            let (base, mut table) = (5 << SPAN, vec![Entry { when: 1, item: 1 }]);
            let when = |_| base + u64::from(rng.next()) % (1u64 << spread);
            let mut entries: Vec<_> =
                (0..count).map(when).map(|when| Entry { when, item: when }).collect();
            let mut expected: Vec<u64> = entries.iter().map(|entry| entry.when).collect();
            sort(&mut entries, &mut table);
            expected.sort_unstable_by(|one, other| other.cmp(one));
            assert!(entries.iter().all(|entry| entry.when == entry.item));
            assert_eq!(entries.iter().map(|entry| entry.when).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_large_crowd_has_a_small_heap() {
        let mut crowd = Crowd::new();
        let spread = BUCKETS << SPAN;
        (0..100_000).for_each(|i| crowd.push((i * 7_919) % 100_000 * (spread / 100_000), i));
        assert_eq!(crowd.len(), 100_000);
        assert!(crowd.near.len() < 2 * SMALL, "{}", crowd.near.len());
    }

    #[test]
    fn what_is_kept_and_what_is_left_are_whole() {
        let (rng, mut crowd) = (Rng::new(3), Crowd::new());
        let mut all: Vec<u64> = (0..5_000).map(|_| some_time(&rng, 1 << 40)).collect();
        all.iter().for_each(|when| crowd.push(*when, *when));
        all.sort_unstable();
        let dead = all[all.len() / 2];
        crowd.drop_first_dead(|when| *when > dead);
        all.retain(|when| *when > dead);
        assert_eq!((crowd.len(), crowd.first()), (all.len(), Some(all[0])));
        crowd.retain(|when| when % 3 == 0);
        all.retain(|when| when % 3 == 0);
        assert_eq!((crowd.len(), crowd.first()), (all.len(), Some(all[0])));
        let mut left: Vec<(u64, u64)> = crowd.take_all().collect();
        left.sort_unstable();
        assert_eq!(left, all.iter().map(|when| (*when, *when)).collect::<Vec<_>>());
        assert_eq!((crowd.len(), crowd.first()), (0, None));
    }

    #[test]
    fn those_in_later_buckets_are_counted_too() {
        let mut crowd = Crowd::new();
        (0..2_000u64).for_each(|i| crowd.push(i << 15, i));
        assert!(crowd.later.len > 0);
        assert_eq!(crowd.count_due::<1_500>(1_000 << 15), (1_001, 1_000 << 15));
        assert_eq!(crowd.first(), Some(0));
    }
}
