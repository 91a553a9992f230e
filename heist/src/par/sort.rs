//! Sorting in parallel.
//!
//! A slice is divided at a value that is about its median, and both sides are sorted at the
//! same time. Pieces that are small, or many, are left to std's sort. So is what does not
//! divide well: an order that contradicts itself must not cost more than one that does not.
//! (Std's selection, which finds the median itself, takes more than n² comparisons then.)
//!
//! Items are moved by swaps only, so that a comparison that panics loses none.

use super::{current_num_threads, join};
use std::cmp::Ordering;
use std::ops::Range;

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
///
/// # Panics
///
/// With the panic of a comparison; and perhaps, as [`slice::sort_unstable_by`], if the
/// function contradicts itself. The slice holds the same items then, in any order.
pub fn sort_unstable_by<T, F>(slice: &mut [T], compare: F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    let procs = current_num_threads();
    let small = (slice.len() / (procs * PIECES)).max(SMALL);
    // Std looks for items that are in order, or the other way round, in all of a slice only.
    // Values without a size it leaves alone.
    let left_to_std = procs == 1 || slice.len() <= small || size_of::<T>() == 0;
    if left_to_std || is_run(slice, &compare) {
        return slice.sort_unstable_by(compare);
    }
    divide(slice, small, BAD_DIVISIONS, &compare);
}

/// Whether the items are in order, or all in the opposite one.
fn is_run<T>(slice: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> bool {
    let descends = |a: &T, b: &T| compare(a, b) == Ordering::Greater;
    match slice {
        [a, b, ..] if descends(a, b) => slice.is_sorted_by(descends),
        _ => slice.is_sorted_by(|a, b| !descends(a, b)),
    }
}

/// Sorts a slice in pieces of at most `small` items, or as a whole after so many more
/// divisions with next to nothing on one side. With a pivot from many samples there are none
/// of those, but for an order that contradicts itself.
fn divide<T, F>(slice: &mut [T], small: usize, bad_divisions: u32, compare: &F)
where
    T: Send,
    F: Fn(&T, &T) -> Ordering + Sync,
{
    if slice.len() <= small || bad_divisions == 0 {
        return slice.sort_unstable_by(compare);
    }
    let is_less = |a: &T, b: &T| compare(a, b) == Ordering::Less;
    let little = slice.len() / 8;
    slice.swap(0, about_median(slice, 0..slice.len(), SAMPLING, &is_less));
    let Some((pivot, others)) = slice.split_first_mut() else { return };
    let less = partition(others, |item| is_less(item, pivot));
    // Perhaps there are many that equal the pivot. They are in their place.
    let equal = match less < little {
        true => partition(&mut others[less..], |item| !is_less(pivot, item)),
        false => 0,
    };
    slice.swap(0, less);
    let (low, high) = slice.split_at_mut(less);
    let high = &mut high[1 + equal..];
    let is_bad = low.len().min(high.len()) + equal < little;
    let bad_divisions = bad_divisions - u32::from(is_bad);
    join(
        || divide(low, small, bad_divisions, compare),
        || divide(high, small, bad_divisions, compare),
    );
}

const BAD_DIVISIONS: u32 = 3;

/// Three samples to this power: 243, whose median of medians is off by a thirtieth, about.
const SAMPLING: u32 = 5;

/// The index of an item of a range that is about the median: the median of those of the
/// three thirds.
fn about_median<T>(
    slice: &[T],
    range: Range<usize>,
    sampling: u32,
    is_less: &impl Fn(&T, &T) -> bool,
) -> usize {
    let Range { start, end } = range;
    let third = (end - start) / 3;
    if sampling == 0 || third == 0 {
        return start + (end - start) / 2;
    }
    let of = |range| about_median(slice, range, sampling - 1, is_less);
    let [a, b, c] =
        [of(start..start + third), of(start + third..end - third), of(end - third..end)];
    let is_less = |i: usize, j: usize| is_less(&slice[i], &slice[j]);
    let rises = is_less(a, b);
    if is_less(b, c) == rises {
        b
    } else if is_less(a, c) == rises {
        c
    } else {
        a
    }
}

/// Puts the items that go to the left there, and returns how many. One swap for each item
/// instead of one for those in the wrong place: the latter needs a branch that nobody can
/// predict, and takes three times as long.
fn partition<T>(slice: &mut [T], goes_left: impl Fn(&T) -> bool) -> usize {
    let mut left = 0;
    for i in 0..slice.len() {
        let more = usize::from(goes_left(&slice[i]));
        slice.swap(i, left);
        left += more;
    }
    left
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
