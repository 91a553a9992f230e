//! Loops over the chunks of a slice.

use super::par_for;
use std::slice;

/// Calls `f` with each chunk of a slice and its number, several at the same time. All
/// chunks have `size` items, but the last may have fewer. Calls may block, also on each other,
/// as those of [`par_for`].
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
    assert_ne!(size, 0, "chunk size must be non-zero");
    let whole = Whole { items: slice.as_mut_ptr(), count: slice.len() };
    par_for(0..slice.len().div_ceil(size), |i| {
        // SAFETY: each number comes once, and the slice is borrowed until all are done.
        f(i, unsafe { whole.chunk(i, size) });
    });
}

/// A slice whose chunks go to several goroutines.
struct Whole<T> {
    items: *mut T,
    count: usize,
}

// SAFETY: each item goes to one goroutine.
unsafe impl<T: Send> Sync for Whole<T> {}

impl<T> Whole<T> {
    /// # Safety
    ///
    /// The slice is the caller's, and nobody else has this chunk.
    #[allow(clippy::mut_from_ref)] // parts that do not overlap
    unsafe fn chunk(&self, i: usize, size: usize) -> &mut [T] {
        let start = i * size;
        let length = size.min(self.count - start);
        // SAFETY: within the slice, and the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.items.add(start), length) }
    }
}
