//! Memory for stacks: reserved in large mappings, given out hot, given back
//! cold.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | size classes, the [`Stack`] handle, what can go wrong |
//! | `map.rs` | mappings and guard pages |
//! | `pool.rs` | the process-wide pool |
//!
//! # Sizes
//!
//! A stack is a power of two, its guard page included; a page lies between it and the next
//! ([`Class::stride`]). Pages are committed by the kernel as they are touched (the first, of
//! which each needs some, perhaps in a [batch](acquire_some) with others), so a size is an
//! address range, not memory: a parked goroutine that called little keeps one page, whatever
//! its size. The range costs its share of a page table though (a table of 4 KiB covers 2 MiB),
//! which is why the default is not larger:
//!
//! | size | table share | stacks in 128 TiB |
//! |---|---|---|
//! | 64 KiB | 136 bytes | 2^31 |
//! | **128 KiB** (release) | 264 bytes | 2^30 |
//! | 256 KiB | 520 bytes | 2^29 |
//! | **1 MiB** (debug assertions) | 2 KiB | 2^27 |
//!
//! A panic and its unwinding need about 12 KiB, and unoptimised code, where every
//! temporary has its own slot, several times what optimised code does. 128 KiB
//! with optimisations and 1 MiB without are ten and eighty times that; it is a
//! choice, not a measurement of what programs use. (crossbeam's tests send a message
//! of 32 KiB, of which unoptimised code has more than a dozen copies on the stack.)
//! Whoever recurses deeply calls `heist::stack::ensure` or asks for a size.

#[allow(unsafe_code)] // named file: mmap, madvise, mprotect
mod map;
mod pool;

pub(crate) use pool::{
    Used, WARM, acquire, acquire_some, leave_all, release, release_all, trim, trim_all,
};

use crate::prim::hint;
use std::fmt;
use std::io;

/// The default size of a goroutine's stack, in bytes, its guard page included.
pub(crate) const DEFAULT_SIZE: usize = if cfg!(debug_assertions) { 1 << 20 } else { 128 << 10 };

/// The smallest stack: room for a panic and its report.
const MIN_SIZE: usize = 16 << 10;

/// The largest: an eighth of a percent of the address space each is absurd
/// already, and sums of sizes stay far from overflow.
const MAX_SIZE: usize = 1 << 37;

/// A size class: the base-two logarithm of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// The class whose stacks leave at least `bytes` to the goroutine.
    pub(crate) fn for_usable(bytes: usize) -> Result<Class, StackError> {
        let page = map::page_size();
        if bytes > MAX_SIZE - page {
            return Err(StackError::TooLarge { requested: bytes });
        }
        let size = (bytes + page).max(MIN_SIZE).max(4 * page).next_power_of_two();
        Ok(Class(size.trailing_zeros() as u8))
    }

    /// The default class.
    pub(crate) fn default_class() -> Class {
        Class(DEFAULT_SIZE.max(4 * map::page_size()).trailing_zeros() as u8)
    }

    /// Bytes of a stack, guard included.
    pub(crate) fn size(self) -> usize {
        1 << self.0
    }

    /// Bytes that the goroutine can use.
    pub(crate) fn usable(self) -> usize {
        self.size() - map::page_size()
    }

    /// From the top of one to that of the next, in a mapping of many.
    ///
    /// A page more than their size. The tables of a CPU have a place for a page by the low bits
    /// of its number, and the lines of the page table, which are memory too, likewise one in
    /// the caches. With a power of two between them the tops of all stacks would share a few
    /// of those: a loop that goes over 200,000 stacks in batches, and touches five lines of
    /// each, took 36 ns for each then, and takes 25.
    fn stride(self) -> usize {
        self.size() + map::page_size()
    }
}

/// A stack: exclusive use of an address range with a guard page below it.
#[derive(Debug)]
#[must_use = "a stack that is dropped is never used again: release it"]
pub(crate) struct Stack {
    /// The high end: where execution starts.
    top: usize,
    class: Class,
}

impl Stack {
    /// The high end.
    pub(crate) fn top(&self) -> usize {
        self.top
    }

    /// The lowest usable address; the guard page lies below.
    pub(crate) fn limit(&self) -> usize {
        self.top - self.class.usable()
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// From where on up it keeps its pages, however long it lies in the pool.
    pub(crate) fn keeps_from(&self) -> usize {
        self.top - pool::keep()
    }

    /// Asks for the lines at its top, where execution starts, and as far down as a goroutine
    /// gets that soon waits for something: what a write finds in no cache, the next locked
    /// instruction waits for.
    pub(crate) fn prefetch(&self) {
        // The last lines of what lies at the top are for what few goroutines do.
        const FROM: usize = 128;
        const DOWN_TO: usize = 768;
        let top = self.top - self.colour();
        let lines = (top - DOWN_TO..top - FROM).step_by(128);
        lines.for_each(|line| hint::prefetch_to_write(line as *const u8));
    }

    /// How far below the top execution should start.
    ///
    /// All tops begin a page, so without this the hot lines of all stacks would share a few
    /// cache sets (a thousand goroutines that yielded took about a fifth longer). Less than
    /// half a page, so that a parked goroutine still fits into one.
    pub(crate) fn colour(&self) -> usize {
        const COLOURS: usize = 16;
        // The stacks of a mapping have all colours in turn: see `stride`.
        (self.top >> map::page_size().trailing_zeros()) % COLOURS * 128
    }
}

/// Whether an address lies in the guard page below `limit`.
pub(crate) fn in_guard(address: usize, limit: usize) -> bool {
    (limit - map::page_size()..limit).contains(&address)
}

/// Why there is no stack.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum StackError {
    /// More than any address space has room for.
    TooLarge {
        /// The size that was asked for.
        requested: usize,
    },
    /// The kernel refused the address range.
    Map(io::Error),
    /// The kernel refused the guard page.
    Guard(io::Error),
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StackError::TooLarge { requested } => write!(
                f,
                "a stack of {requested} bytes is larger than the limit of {MAX_SIZE}; \
                 choose a smaller stack_size"
            ),
            StackError::Map(error) => write!(
                f,
                "the kernel refused memory for stacks ({error}); raise the limit on address \
                 space (ulimit -v, vm.overcommit_memory) or use a smaller stack_size"
            ),
            StackError::Guard(error) => write!(
                f,
                "the kernel refused a stack's guard page ({error}); before Linux 6.13 each \
                 one needs two memory mappings: raise vm.max_map_count (sysctl -w \
                 vm.max_map_count=1048576) or run fewer goroutines at a time"
            ),
        }
    }
}

impl std::error::Error for StackError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StackError::TooLarge { .. } => None,
            StackError::Map(error) | StackError::Guard(error) => Some(error),
        }
    }
}

impl From<StackError> for io::Error {
    fn from(error: StackError) -> io::Error {
        let kind = match error {
            StackError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            StackError::Map(_) | StackError::Guard(_) => io::ErrorKind::OutOfMemory,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_leaves_what_was_asked_for() {
        for bytes in [0, 1, 4096, 16 << 10, (128 << 10) - 4096, 128 << 10, 1 << 20, 1 << 30] {
            let class = Class::for_usable(bytes).unwrap();
            assert!(class.usable() >= bytes, "{bytes}: {class:?}");
            assert!(class.size() <= (2 * (bytes + 8192)).max(MIN_SIZE), "{bytes}: {class:?}");
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        for bytes in [MAX_SIZE, isize::MAX as usize, usize::MAX] {
            let error = Class::for_usable(bytes).unwrap_err();
            assert!(error.to_string().contains("smaller stack_size"), "{error}");
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_guard_is_below_the_limit() {
        let _alone = crate::tests_alone();
        let stack = acquire(Class::default_class()).unwrap();
        assert!(in_guard(stack.limit() - 1, stack.limit()));
        assert!(!in_guard(stack.limit(), stack.limit()));
        release(stack);
    }
}
