//! Memory that is never freed, by number: what a token in the kernel's hands leads
//! to exists, however late the event comes.

use crate::prim::atomic::{AtomicPtr, Ordering, keep};
use crate::prim::lock::{Lock, Rank};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::OnceLock;

/// Entries of the first chunk; each next one has twice as many.
const FIRST: usize = 64;
const CHUNKS: usize = 26;

/// Entries of `T`, handed out and taken back.
pub(crate) struct Table<T: 'static> {
    chunks: [OnceLock<&'static [T]>; CHUNKS],
    free: Lock<Free>,
    make: fn(u32) -> T,
}

struct Free {
    /// Those that were given back; the last one is handed out first.
    numbers: Vec<u32>,
    /// How many there are.
    len: u32,
}

impl<T: Sync> Table<T> {
    /// `make` makes the entry with a number.
    pub(crate) const fn new(make: fn(u32) -> T) -> Self {
        Table {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Lock::new(Rank::Leaf, Free { numbers: Vec::new(), len: 0 }),
            make,
        }
    }

    /// The chunk of an entry, and where it is there.
    fn place(number: u32) -> (usize, usize) {
        let chunk = (number as usize / FIRST + 1).ilog2() as usize;
        (chunk, number as usize - FIRST * ((1 << chunk) - 1))
    }

    /// The entry with a number, if there ever was one.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&'static T> {
        let (chunk, at) = Self::place(number);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// Hands an entry out that nobody has.
    pub(crate) fn take(&self) -> &'static T {
        let number = {
            let mut free = self.free.lock();
            free.numbers.pop().unwrap_or_else(|| {
                free.len += 1;
                free.len - 1
            })
        };
        let (chunk, at) = Self::place(number);
        &self.chunks[chunk].get_or_init(|| self.make_chunk(chunk))[at]
    }

    fn make_chunk(&self, chunk: usize) -> &'static [T] {
        let first = FIRST * ((1 << chunk) - 1);
        let all = (first..first + (FIRST << chunk)).map(|number| (self.make)(number as u32));
        keep(Vec::leak(all.collect()))
    }

    /// Takes an entry back.
    pub(crate) fn put(&self, number: u32) {
        self.free.lock().numbers.push(number);
    }

    /// How many entries are in somebody's hands.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        let free = self.free.lock();
        free.len as usize - free.numbers.len()
    }

    /// All entries that were ever handed out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        let len = self.free.lock().len as usize;
        self.chunks.iter().filter_map(|chunk| chunk.get().copied()).flatten().take(len)
    }
}

/// Where an entry is noted, or none: a pointer, since whoever makes a call reads it twice,
/// and its number would have to be looked up.
pub(crate) struct Noted<T: 'static>(AtomicPtr<T>);

impl<T> fmt::Debug for Noted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noted").finish_non_exhaustive()
    }
}

// A panic leaves a pointer that is noted, or none. What it leads to is nobody's alone:
// others see it whatever happens to this one.
impl<T> UnwindSafe for Noted<T> {}
impl<T> RefUnwindSafe for Noted<T> {}

impl<T: Sync> Default for Noted<T> {
    fn default() -> Self {
        Noted::none()
    }
}

impl<T: Sync> Noted<T> {
    pub(crate) const fn none() -> Self {
        Noted(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Acquire: pairs with the release in `set_first`.
        // SAFETY: `set_first` puts only `&'static T` there.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Notes `entry`, unless another is noted already: that one.
    pub(crate) fn set_first(&self, entry: &'static T) -> Option<&'static T> {
        let new = ptr::from_ref(entry).cast_mut();
        let none = ptr::null_mut();
        self.0.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire).err()?;
        self.get()
    }

    /// By its owner alone: nobody calls.
    pub(crate) fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_noted() {
        static ENTRIES: [u32; 2] = [1, 2];
        let noted = Noted::none();
        assert_eq!(noted.get(), None);
        assert_eq!(noted.set_first(&ENTRIES[0]), None);
        assert_eq!(noted.set_first(&ENTRIES[1]), Some(&1));
        assert_eq!(noted.get(), Some(&1));
        noted.clear();
        assert_eq!(noted.get(), None);
    }

    #[test]
    fn each_number_has_one_place() {
        let table = Table::new(|number| number);
        let taken: Vec<u32> = (0..1000).map(|_| *table.take()).collect();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        assert!(taken.iter().all(|n| table.get(*n) == Some(n)));
        assert_eq!(table.get(u32::MAX), None);
        assert_eq!(table.iter().count(), 1000);
        table.put(7);
        table.put(9);
        assert_eq!(table.taken(), 998);
        assert_eq!((*table.take(), *table.take(), *table.take()), (9, 7, 1000));
        assert_eq!(table.taken(), 1001);
    }
}
