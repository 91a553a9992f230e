//! The pool of free stacks, and the cache of a P before it.
//!
//! Last in, first out everywhere: the stack that was used last has its pages
//! committed and perhaps in the cache. A P serves itself from its cache without
//! a lock; the pool trades with it in batches. Stacks that lie in the pool for
//! long have their pages given back ([`trim`]); the mappings themselves are kept
//! for the next burst, since addresses are free and the kernel's work to make
//! them is not.

use super::{Class, Stack, StackError, map};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use std::cell::{Cell, RefCell};

/// Bytes reserved at a time, for classes that fit.
const SLAB: usize = 64 << 20;

/// Stacks at least this large are mapped and unmapped one by one.
const SINGLE: usize = 32 << 20;

/// Stacks that a P keeps.
const CACHE: usize = 64;

/// How long a free stack may keep its pages.
const WARM: u64 = 1_000_000_000;

/// Bytes at the top that a trimmed stack keeps.
const KEEP: usize = 4 << 10;

struct Free {
    top: usize,
    since: u64,
    trimmed: bool,
}

/// The free stacks of one class.
struct Shelf {
    free: Vec<Free>,
    /// The part of the newest slab that was never given out.
    fresh: std::ops::Range<usize>,
}

impl Shelf {
    const fn new() -> Self {
        Shelf { free: Vec::new(), fresh: 0..0 }
    }

    fn take(&mut self, class: Class) -> Result<Stack, StackError> {
        if let Some(Free { top, .. }) = self.free.pop() {
            return Ok(Stack { top, class });
        }
        if self.fresh.is_empty() {
            let size = SLAB.max(class.size());
            let low = map::reserve(size)?;
            self.fresh = low..low + size;
        }
        map::guard(self.fresh.start)?;
        self.fresh.start += class.size();
        Ok(Stack { top: self.fresh.start, class })
    }
}

static SHELVES: Lock<[Shelf; 48]> = Lock::new(Rank::Stacks, [const { Shelf::new() }; 48]);

/// A stack of a class.
pub(crate) fn acquire(class: Class) -> Result<Stack, StackError> {
    if class.size() >= SINGLE {
        let low = map::reserve(class.size())?;
        map::guard(low).inspect_err(|_| map::unmap(low, class.size()))?;
        return Ok(Stack { top: low + class.size(), class });
    }
    SHELVES.lock()[class.0 as usize].take(class)
}

/// Gives a stack back. Nothing on it is alive.
pub(crate) fn release(stack: Stack) {
    if stack.class.size() >= SINGLE {
        map::unmap(stack.top - stack.class.size(), stack.class.size());
    } else {
        let since = clock::now();
        let free = Free { top: stack.top, since, trimmed: false };
        SHELVES.lock()[stack.class.0 as usize].free.push(free);
    }
}

/// Gives back the pages of stacks that have been free for a second. Called by
/// sysmon; the lock is not held around the system calls.
pub(crate) fn trim() {
    const BATCH: usize = 64;
    let now = clock::now();
    for class in 0..48u8 {
        loop {
            // Out of the pool while its pages go, so that nobody runs on it.
            let mut cold: Vec<Free> = {
                let shelf = &mut SHELVES.lock()[class as usize];
                let is_cold = |f: &mut Free| !f.trimmed && now.saturating_sub(f.since) > WARM;
                shelf.free.extract_if(.., is_cold).take(BATCH).collect()
            };
            if cold.is_empty() {
                break;
            }
            for free in &mut cold {
                let usable = Class(class).usable();
                map::discard(free.top - usable, usable - KEEP);
                free.trimmed = true;
            }
            // To the bottom: the warm ones are taken first.
            SHELVES.lock()[class as usize].free.splice(..0, cold);
        }
    }
}

/// The stacks that a P keeps for itself, all of one class.
pub(crate) struct Cache {
    class: Cell<Class>,
    free: RefCell<Vec<Stack>>,
}

impl Cache {
    pub(crate) fn new() -> Self {
        Cache { class: Cell::new(Class::default_class()), free: RefCell::new(Vec::new()) }
    }

    /// Empties the cache, which from now on keeps stacks of `class`.
    pub(crate) fn reset(&self, class: Class) {
        self.free.borrow_mut().drain(..).for_each(release);
        self.class.set(class);
    }

    /// A stack of the cache's class.
    #[inline]
    pub(crate) fn take(&self) -> Result<Stack, StackError> {
        if let Some(stack) = self.free.borrow_mut().pop() {
            return Ok(stack);
        }
        self.refill()
    }

    #[cold]
    fn refill(&self) -> Result<Stack, StackError> {
        let class = self.class.get();
        if class.size() >= SINGLE {
            return acquire(class);
        }
        let mut free = self.free.borrow_mut();
        let mut shelves = SHELVES.lock();
        let shelf = &mut shelves[class.0 as usize];
        let stack = shelf.take(class)?;
        // Only used ones in bulk: a fresh one costs a system call, and perhaps
        // nobody needs it.
        let from = shelf.free.len().saturating_sub(CACHE / 2 - 1);
        free.extend(shelf.free.drain(from..).map(|f| Stack { top: f.top, class }));
        Ok(stack)
    }

    /// Gives a stack back.
    #[inline]
    pub(crate) fn put(&self, stack: Stack) {
        if stack.class != self.class.get() || stack.class.size() >= SINGLE {
            return release(stack);
        }
        let mut free = self.free.borrow_mut();
        if free.len() >= CACHE {
            Self::spill(&mut free);
        }
        free.push(stack);
    }

    /// The half that was not used for longest goes to the pool.
    #[cold]
    fn spill(free: &mut Vec<Stack>) {
        let since = clock::now();
        let mut shelves = SHELVES.lock();
        for stack in free.drain(..CACHE / 2) {
            let free = Free { top: stack.top, since, trimmed: false };
            shelves[stack.class.0 as usize].free.push(free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::fault;

    #[test]
    fn the_last_one_back_is_the_first_one_out() {
        let class = Class::for_usable(40 << 10).unwrap();
        let (a, b) = (acquire(class).unwrap(), acquire(class).unwrap());
        let (top_a, top_b) = (a.top(), b.top());
        release(a);
        release(b);
        let again = acquire(class).unwrap();
        assert_eq!(again.top(), top_b);
        assert_ne!(again.top(), top_a);
        release(again);
    }

    #[test]
    fn a_cache_serves_and_spills() {
        let cache = Cache::new();
        cache.reset(Class::for_usable(70 << 10).unwrap());
        let stacks: Vec<Stack> = (0..3 * CACHE).map(|_| cache.take().unwrap()).collect();
        let mut tops: Vec<usize> = stacks.iter().map(Stack::top).collect();
        tops.sort_unstable();
        tops.dedup();
        assert_eq!(tops.len(), 3 * CACHE, "each stack is given out once");
        stacks.into_iter().for_each(|s| cache.put(s));
        assert!(cache.free.borrow().len() <= CACHE);
        cache.reset(Class::default_class());
        assert!(cache.free.borrow().is_empty());
    }

    #[test]
    fn a_refused_mapping_is_an_error_and_passes() {
        let class = Class::for_usable(SINGLE).unwrap();
        fault::MAP.arm(0, 1);
        // Another test may take the fault; either way it is taken once.
        let mut results = (0..2).map(|_| acquire(class)).collect::<Vec<_>>();
        assert!(results.pop().unwrap().map(release).is_ok());
        match results.pop().unwrap() {
            Ok(stack) => release(stack),
            Err(error) => assert!(error.to_string().contains("refused memory"), "{error}"),
        }
    }
}
