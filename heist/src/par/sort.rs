//! Sorting in parallel.
//!
//! A slice is divided at its median, which std's selection finds in linear time, and both
//! halves are sorted at the same time: exact halves, whatever the values are, and nothing
//! but safe code. Pieces that are small, or many, are left to std's sort.

use super::{current_num_threads, join};
use std::cmp::Ordering;

/// Not worth dividing.
const SMALL: usize = 4096;

/// How many pieces there are for each P, so that all end at about the same time.
const PIECES: usize = 4;

/// Sorts a slice, several pieces at the same time. Equal values may change places, as in
/// [`slice::sort_unstable`]. A comparison may block, but not on another one of the same sort:
/// those of a piece come one after the other.
///
/// ```
/// let mut numbers: Vec<u32> = (0..10_000).map(|i| i * 7919 % 10_007).collect();
/// heist::par::sort_unstable(&mut numbers);
/// assert!(numbers.is_sorted());
/// ```
pub fn sort_unstable<T: Ord + Send>(slice: &mut [T]) {
    sort_unstable_by(slice, T::cmp);
}

/// As [`sort_unstable`], by what a function says.
///
/// ```
/// let mut words = ["bb", "a", "ccc"];
/// heist::par::sort_unstable_by(&mut words, |a, b| b.len().cmp(&a.len()));
/// assert_eq!(words, ["ccc", "bb", "a"]);
/// ```
pub fn sort_unstable_by<T, F>(slice: &mut [T], compare: F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    fn divide<T: Send>(
        slice: &mut [T],
        small: usize,
        compare: &(impl Fn(&T, &T) -> Ordering + Sync),
    ) {
        if slice.len() <= small {
            return slice.sort_unstable_by(compare);
        }
        let middle = slice.len() / 2;
        slice.select_nth_unstable_by(middle, compare);
        let (low, high) = slice.split_at_mut(middle);
        join(|| divide(low, small, compare), || divide(&mut high[1..], small, compare));
    }
    let procs = current_num_threads();
    let pieces = if procs == 1 { 1 } else { procs * PIECES };
    divide(slice, (slice.len() / pieces).max(SMALL), &compare);
}

/// As [`sort_unstable`], by a key.
///
/// ```
/// let mut numbers = [-3, 1, 2];
/// heist::par::sort_unstable_by_key(&mut numbers, |n: &i32| n.abs());
/// assert_eq!(numbers, [1, 2, -3]);
/// ```
pub fn sort_unstable_by_key<T, K, F>(slice: &mut [T], key: F)
where
    T: Send,
    K: Ord,
    F: Fn(&T) -> K + Sync,
{
    sort_unstable_by(slice, |a, b| key(a).cmp(&key(b)));
}
