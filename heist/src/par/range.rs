//! Loops over ranges and slices that divide themselves.
//!
//! A range is halved by [`join`] until a piece is small enough to run in one go. How
//! small is found out on the way: pieces begin with one item, and the next ones are
//! twice as large while a piece takes less than a few microseconds, half as large when
//! it takes much more. So a fork costs next to nothing beside its piece, nobody waits
//! long for a share, and there is no grain size to choose. All upper halves are open
//! forks meanwhile: whoever is idle takes the largest.

use super::join;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::clock;
use std::ops::Range;

/// How long a piece should take, in nanoseconds: a thousand forks.
const PIECE: u64 = 4_000;

/// How many items are run in one go.
struct Grain(AtomicUsize);

impl Grain {
    fn new() -> Self {
        Grain(AtomicUsize::new(1))
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs a piece of so many items, and learns from it.
    fn run<R>(&self, items: usize, piece: impl FnOnce() -> R) -> R {
        let begin = clock::now();
        let result = piece();
        let took = clock::now() - begin;
        // Relaxed: a hint. Pieces that end meanwhile may overwrite each other's.
        if took < PIECE / 2 && items >= self.get() / 2 {
            self.0.store(items.saturating_mul(2), Ordering::Relaxed);
        } else if took > PIECE * 4 {
            self.0.store((items / 2).max(1), Ordering::Relaxed);
        }
        result
    }
}

/// Calls `f` with every number of a range, several at the same time.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// let sum = AtomicUsize::new(0);
/// heist::par::par_for(0..1000, |i| {
///     sum.fetch_add(i, Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 499_500);
/// ```
///
/// # Panics
///
/// With the panic of a call. No call is running then; some may not have been made.
pub fn par_for<F>(range: Range<usize>, f: F)
where
    F: Fn(usize) + Sync,
{
    map_reduce(range, || (), f, |(), ()| ());
}

/// Maps every number of a range and reduces the values to one, several at the same
/// time. Values are reduced with their neighbours, in order; `identity` changes no value
/// that it is reduced with.
///
/// ```
/// let squares = heist::par::map_reduce(0..100, || 0, |i| i * i, |a, b| a + b);
/// assert_eq!(squares, 328_350);
/// ```
///
/// # Panics
///
/// As [`par_for`].
pub fn map_reduce<T, I, M, R>(range: Range<usize>, identity: I, map: M, reduce: R) -> T
where
    T: Send,
    I: Fn() -> T + Sync,
    M: Fn(usize) -> T + Sync,
    R: Fn(T, T) -> T + Sync,
{
    fn divide<T, I, M, R>(range: Range<usize>, grain: &Grain, with: &(I, M, R)) -> T
    where
        T: Send,
        I: Fn() -> T + Sync,
        M: Fn(usize) -> T + Sync,
        R: Fn(T, T) -> T + Sync,
    {
        let (identity, map, reduce) = with;
        if range.len() <= grain.get() {
            return grain
                .run(range.len(), || range.fold(identity(), |value, i| reduce(value, map(i))));
        }
        let middle = range.start + range.len() / 2;
        let (low, high) = (range.start..middle, middle..range.end);
        let (a, b) = join(|| divide(low, grain, with), || divide(high, grain, with));
        reduce(a, b)
    }
    if range.is_empty() {
        return identity();
    }
    divide(range, &Grain::new(), &(identity, map, reduce))
}

/// Calls `f` with each chunk of a slice and its number, several at the same time. All
/// chunks have `size` items, but the last may have fewer.
///
/// ```
/// let longest = std::sync::Mutex::new(0);
/// heist::par::par_chunks(&[1, 2, 3, 4, 5], 2, |_, chunk| {
///     let mut longest = longest.lock().unwrap();
///     *longest = chunk.len().max(*longest);
/// });
/// assert_eq!(longest.into_inner().unwrap(), 2);
/// ```
///
/// # Panics
///
/// If `size` is zero, and as [`par_for`].
pub fn par_chunks<T, F>(slice: &[T], size: usize, f: F)
where
    T: Sync,
    F: Fn(usize, &[T]) + Sync,
{
    assert_ne!(size, 0, "chunk size must be non-zero");
    par_for(0..slice.len().div_ceil(size), |i| {
        let start = i * size;
        f(i, &slice[start..start + size.min(slice.len() - start)]);
    });
}

/// As [`par_chunks`], with chunks that can be changed.
///
/// ```
/// let mut numbers = [0; 5];
/// heist::par::par_chunks_mut(&mut numbers, 2, |i, chunk| chunk.fill(i));
/// assert_eq!(numbers, [0, 0, 1, 1, 2]);
/// ```
///
/// # Panics
///
/// As [`par_chunks`].
pub fn par_chunks_mut<T, F>(slice: &mut [T], size: usize, f: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    fn divide<T: Send, F: Fn(usize, &mut [T]) + Sync>(
        slice: &mut [T],
        first: usize,
        size: usize,
        grain: &Grain,
        f: &F,
    ) {
        let chunks = slice.len().div_ceil(size);
        if chunks <= grain.get() {
            return grain.run(chunks, || {
                for (i, chunk) in slice.chunks_mut(size).enumerate() {
                    f(first + i, chunk);
                }
            });
        }
        let middle = chunks / 2;
        let (low, high) = slice.split_at_mut(middle * size);
        join(
            || divide(low, first, size, grain, f),
            || divide(high, first + middle, size, grain, f),
        );
    }
    assert_ne!(size, 0, "chunk size must be non-zero");
    if !slice.is_empty() {
        divide(slice, 0, size, &Grain::new(), &f);
    }
}
