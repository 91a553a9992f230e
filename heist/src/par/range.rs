//! Loops over ranges that divide themselves.
//!
//! A range is halved by [`join`] until a [piece] is small enough to run in one go. How
//! small is found out on the way: pieces begin with one item, and the next ones are
//! twice as large while a piece takes less than a few microseconds, half as large when
//! it takes much more. So a fork costs next to nothing beside its piece, nobody waits
//! long for a share, and there is no grain size to choose. All upper halves are open
//! forks meanwhile: whoever is idle takes the largest. So is what is left of a piece.

use super::{join, piece};
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

/// Calls `f` with every number of a range, once, several at the same time.
///
/// A call may block, also on another one of the same loop: the numbers that have not been
/// begun are for others as soon as somebody is idle or the caller waits. For loops over
/// numbers that the compiler should vectorise, give [`par_chunks`](super::par_chunks) a few
/// thousand items at a time.
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
/// that it is reduced with. `map` may block as a call of [`par_for`] may; `reduce` may, too,
/// but not on a value that it is to be given.
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
            return grain.run(range.len(), || {
                let fold = |value, i| reduce(value, map(i));
                let rest = |range| divide(range, grain, with);
                piece::run(range, identity(), &fold, &rest, reduce)
            });
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
