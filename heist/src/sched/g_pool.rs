//! Where control blocks come from.
//!
//! Chunks of memory that are mapped once and kept: the first of 64 KiB, each
//! next one twice as large up to 4 MiB. From 2 MiB on they ask for huge pages:
//! a million goroutines spawned at once touch 128 MB of fresh memory, and a
//! fault for each 4 KiB of it would cost more than the spawning.
//!
//! Blocks are handed to Ps and taken back in batches, so that the lock is rare; a
//! P reuses the block that it freed last. Between them are shelves, one for every 16
//! Ps: at 256 Ps that begin to spawn together, each task of 1 µs waited as long for the
//! one lock. Free blocks are kept as pointers, not
//! linked through themselves, so that taking one does not wait for its memory.

use super::g::G;
use super::mask::MAX_PROCS;
use super::protocol::g_state::Status;
use crate::prim::atomic::{AtomicUsize, Ordering, keep};
use crate::prim::hint;
use crate::prim::lock::{Lock, Rank};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::io;
use std::ptr;

const FIRST_CHUNK: usize = 64 << 10;
const LAST_CHUNK: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Blocks that a P and the pool trade at a time.
const BATCH: usize = 128;

struct Pool {
    free: Vec<&'static G>,
    /// All blocks that were ever handed out, by chunk.
    chunks: Vec<&'static [G]>,
    /// How many blocks of the last chunk were handed out.
    used: usize,
}

static POOL: Lock<Pool> =
    Lock::new(Rank::Gs, Pool { free: Vec::new(), chunks: Vec::new(), used: 0 });

impl Pool {
    fn take(&mut self) -> io::Result<&'static G> {
        if let Some(g) = self.free.pop() {
            return Ok(g);
        }
        if self.chunks.last().is_none_or(|chunk| self.used == chunk.len()) {
            let size = (FIRST_CHUNK << self.chunks.len().min(6)).min(LAST_CHUNK);
            self.chunks.push(map_chunk(size)?);
            self.used = 0;
        }
        let chunk = self.chunks[self.chunks.len() - 1];
        self.used += 1;
        Ok(&chunk[self.used - 1])
    }
}

/// Maps a chunk of blocks, all in the state of zeroed memory: idle.
fn map_chunk(size: usize) -> io::Result<&'static [G]> {
    #[cfg(test)]
    crate::prim::fault::MAP.check()?;
    // Room to align a large chunk for huge pages; the rest is never touched.
    let spare = if size >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    // SAFETY: a new anonymous mapping where the kernel likes.
    let low = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size + spare,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if low == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let low = if spare == 0 { low } else { (low as usize).next_multiple_of(HUGE_PAGE) as *mut _ };
    if spare != 0 {
        // SAFETY: inside the new mapping. A kernel without huge pages refuses,
        // which changes nothing but speed.
        unsafe { libc::madvise(low, size, libc::MADV_HUGEPAGE) };
    }
    // SAFETY: page-aligned, never unmapped, and zero is a valid G (an idle one
    // with null pointers).
    Ok(keep(unsafe { std::slice::from_raw_parts(low.cast::<G>(), size / size_of::<G>()) }))
}

/// Every block that is in use, roughly: for reports, and for shutdown, when
/// nothing is spawned any more.
pub(crate) fn each_used(mut visit: impl FnMut(&'static G)) {
    let (chunks, used) = {
        let pool = POOL.lock();
        (pool.chunks.clone(), pool.used)
    };
    each(&chunks, used, &mut visit);
}

/// Like [`each_used`], from a process that is about to die: gives up if
/// somebody has the lock.
pub(crate) fn try_each_used(mut visit: impl FnMut(&'static G)) -> bool {
    let Some((chunks, used)) = POOL.try_lock().map(|pool| (pool.chunks.clone(), pool.used)) else {
        return false;
    };
    each(&chunks, used, &mut visit);
    true
}

fn each(chunks: &[&'static [G]], used: usize, visit: &mut dyn FnMut(&'static G)) {
    let last = chunks.len().wrapping_sub(1);
    for (i, &chunk) in chunks.iter().enumerate() {
        let chunk = if i == last { &chunk[..used] } else { chunk };
        chunk
            .iter()
            .filter(|g| !matches!(g.state.status(), Status::Idle | Status::Dead))
            .for_each(&mut *visit);
    }
}

/// A block for a spawner without a P.
pub(crate) fn take() -> io::Result<&'static G> {
    POOL.lock().take()
}

/// Takes a block back from somebody without a P.
pub(crate) fn put(g: &'static G) {
    POOL.lock().free.push(g);
}

/// Free blocks that some neighbouring Ps share.
struct Shelf {
    free: Vec<&'static G>,
    /// How many batches it took from the pool the last time: twice as many the next
    /// time, so that a small program stays small and a large one comes seldom.
    batches: usize,
}

/// Ps that share a shelf.
const NEIGHBOURS: usize = 16;

/// The most batches that a shelf takes from the pool at a time, and that it keeps when
/// more come back.
const MOST: usize = 4;

static SHELVES: [CachePadded<Lock<Shelf>>; MAX_PROCS / NEIGHBOURS] =
    [const { CachePadded::new(Lock::new(Rank::Shelf, Shelf { free: Vec::new(), batches: 0 })) };
        MAX_PROCS / NEIGHBOURS];

impl Shelf {
    /// A batch, or a part of one, never empty; the one to be used first at the end.
    fn take(&mut self) -> io::Result<Vec<&'static G>> {
        if self.free.is_empty() {
            self.batches = (2 * self.batches).clamp(1, MOST);
            let mut pool = POOL.lock();
            self.free.push(pool.take()?);
            let more = std::iter::from_fn(|| pool.take().ok()).take(self.batches * BATCH - 1);
            self.free.extend(more);
            // So that they come out in order of address.
            self.free.reverse();
        }
        Ok(self.free.split_off(self.free.len().saturating_sub(BATCH)))
    }

    fn put(&mut self, blocks: impl Iterator<Item = &'static G>) {
        // First, so that a shelf never grows beyond that and one cache.
        if self.free.len() > MOST * BATCH {
            let surplus = self.free.len() - MOST * BATCH / 2;
            POOL.lock().free.extend(self.free.drain(..surplus));
        }
        self.free.extend(blocks);
    }
}

/// Blocks that a P keeps.
const CACHE: usize = 4 * BATCH;

/// The free blocks of a P, last in, first out.
pub(crate) struct Cache {
    shelf: &'static Lock<Shelf>,
    /// Atomic for reports; written by the holder of the P only.
    len: AtomicUsize,
    free: [Cell<Option<&'static G>>; CACHE],
}

impl Cache {
    /// For the P with this number.
    pub(crate) fn new(p: u32) -> Self {
        let shelf = &SHELVES[p as usize / NEIGHBOURS % SHELVES.len()];
        Cache { shelf, len: AtomicUsize::new(0), free: [const { Cell::new(None) }; CACHE] }
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn take(&self) -> io::Result<&'static G> {
        let len = self.len();
        if len > 0
            && let Some(g) = self.free[(len - 1) % CACHE].get()
        {
            self.set_len(len - 1);
            // Those that are next may have been freed by another P; the exchange
            // of runnext would wait for their memory.
            if let Some(later) = self.free[len.wrapping_sub(4) % CACHE].get() {
                hint::prefetch_to_write(later);
            }
            return Ok(g);
        }
        self.refill()
    }

    #[cold]
    fn refill(&self) -> io::Result<&'static G> {
        let batch = self.shelf.lock().take()?;
        for (cell, g) in self.free.iter().zip(&batch) {
            cell.set(Some(g));
        }
        self.set_len(batch.len());
        self.take()
    }

    #[inline]
    pub(crate) fn put(&self, g: &'static G) {
        let len = self.len();
        if len == CACHE {
            return self.put_slowly(g);
        }
        self.free[len % CACHE].set(Some(g));
        self.set_len(len + 1);
    }

    #[cold]
    fn put_slowly(&self, g: &'static G) {
        self.spill(BATCH);
        self.put(g);
    }

    /// The `n` that were not used for longest go to the pool.
    fn spill(&self, n: usize) {
        self.shelf.lock().put(self.free[..n].iter().filter_map(Cell::get));
        let left = self.len() - n;
        for i in 0..left {
            self.free[i].set(self.free[n + i].get());
        }
        self.set_len(left);
    }

    /// Gives everything back.
    pub(crate) fn flush(&self) {
        self.spill(self.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_gives_the_last_one_back_first_and_spills() {
        let _alone = crate::tests_alone();
        let cache = Cache::new(0);
        let gs: Vec<&G> = (0..5 * BATCH).map(|_| cache.take().unwrap()).collect();
        let mut addresses: Vec<usize> = gs.iter().map(|g| ptr::from_ref(*g).addr()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), gs.len(), "each block is given out once");
        gs.iter().for_each(|g| cache.put(g));
        assert!(cache.len() <= CACHE);
        assert!(ptr::eq(cache.take().unwrap(), gs[gs.len() - 1]));
        cache.put(gs[gs.len() - 1]);
        cache.flush();
        assert_eq!(cache.len(), 0);
    }
}
