//! The pool of free stacks.
//!
//! Last in, first out: the stack that was used last has its pages committed and
//! perhaps in the cache. (A P has a cache of its own before this one, of frames
//! on their stacks: `sched::frames`.) Stacks that lie in the pool for long have
//! their pages given back ([`trim`]); the mappings themselves are kept for the next
//! burst, since addresses are free and the kernel's work to make them is not.

use super::{Class, Stack, StackError, map};
use crate::prim::lock::{Lock, Rank};
use crate::prim::{clock, probe};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes reserved at a time, for classes that fit.
const SLAB: usize = 64 << 20;

/// Stacks at least this large are mapped and unmapped one by one.
const SINGLE: usize = 32 << 20;

/// How long a free stack may keep its pages.
pub(crate) const WARM: Duration = Duration::from_secs(1);

/// Bytes at the top that a trimmed stack keeps.
const KEEP: usize = 4 << 10;

/// A free stack that has its pages.
struct Warm {
    top: usize,
    since: u64,
}

/// The free stacks of one class.
struct Shelf {
    /// In the order in which they came, the last one last.
    warm: VecDeque<Warm>,
    /// The tops of those whose pages were given back.
    cold: Vec<usize>,
    /// The part of the newest slab that was never given out.
    fresh: std::ops::Range<usize>,
}

impl Shelf {
    const fn new() -> Self {
        Shelf { warm: VecDeque::new(), cold: Vec::new(), fresh: 0..0 }
    }

    /// The top of one that was used before, and has its first page.
    fn used(&mut self) -> Option<usize> {
        self.warm.pop_back().map(|warm| warm.top).or_else(|| self.cold.pop())
    }

    fn take(&mut self, class: Class) -> Result<Stack, StackError> {
        if let Some(top) = self.used() {
            // The next one will be wanted soon, and was touched long ago.
            if let Some(top) = self.warm.back().map(|warm| warm.top).or(self.cold.last().copied()) {
                Stack { top, class }.prefetch();
            }
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
    let stack = find(class)?;
    // Its first page is.
    probe::touch(stack.top - 1);
    Ok(stack)
}

fn find(class: Class) -> Result<Stack, StackError> {
    if class.size() >= SINGLE {
        let low = map::reserve(class.size())?;
        map::guard(low).inspect_err(|_| map::unmap(low, class.size()))?;
        return Ok(Stack { top: low + class.size(), class });
    }
    SHELVES.lock()[class.0 as usize].take(class)
}

/// A stack of a class; and if it was used before, as many more of those into `more` as there
/// are and it has room for. The one that was used last comes first. All of them with the lock
/// taken once: many Ps that begin at once meet there.
pub(crate) fn acquire_some(class: Class, more: &mut [Option<Stack>]) -> Result<Stack, StackError> {
    if class.size() >= SINGLE {
        return acquire(class);
    }
    let first = {
        let shelf = &mut SHELVES.lock()[class.0 as usize];
        match shelf.used() {
            Some(top) => {
                more.fill_with(|| shelf.used().map(|top| Stack { top, class }));
                Stack { top, class }
            }
            None => shelf.take(class)?,
        }
    };
    // In a row and without the lock: the CPU looks up several pages at a time, but not
    // across a locked instruction.
    let all = || std::iter::once(&first).chain(more.iter().flatten());
    all().for_each(Stack::prefetch);
    all().for_each(|stack| probe::touch(stack.top - 1));
    Ok(first)
}

/// Gives a stack back. Nothing on it is alive.
pub(crate) fn release(stack: Stack) {
    release_all([stack]);
}

/// Gives stacks back, the one that was used last at the end.
pub(crate) fn release_all(stacks: impl IntoIterator<Item = Stack>) {
    let since = clock::now();
    let mut large = Vec::new();
    {
        let mut shelves = SHELVES.lock();
        for stack in stacks {
            if stack.class.size() >= SINGLE {
                large.push(stack);
            } else {
                shelves[stack.class.0 as usize].warm.push_back(Warm { top: stack.top, since });
            }
        }
    }
    for stack in large {
        map::unmap(stack.top - stack.class.size(), stack.class.size());
    }
}

/// Gives back the pages of stacks that have been free for a second. Called by
/// sysmon.
pub(crate) fn trim() {
    trim_free_for(WARM.as_nanos() as u64);
}

/// Gives back the pages of all stacks that are free.
pub(crate) fn trim_all() {
    trim_free_for(0);
}

/// The lock is not held around the system calls.
fn trim_free_for(least: u64) {
    const BATCH: usize = 64;
    let now = clock::now();
    for class in 0..48u8 {
        loop {
            // Out of the pool while its pages go, so that nobody runs on it.
            let tops: Vec<usize> = {
                let shelf = &mut SHELVES.lock()[class as usize];
                let long = |warm: &Warm| now.saturating_sub(warm.since) >= least;
                let n = shelf.warm.iter().take(BATCH).take_while(|warm| long(warm)).count();
                shelf.warm.drain(..n).map(|warm| warm.top).collect()
            };
            if tops.is_empty() {
                break;
            }
            for top in &tops {
                let usable = Class(class).usable();
                map::discard(top - usable, usable - KEEP);
            }
            SHELVES.lock()[class as usize].cold.extend(tops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::fault;

    #[test]
    fn the_last_one_back_is_the_first_one_out() {
        let _alone = crate::tests_alone();
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
    fn used_ones_are_taken_several_at_a_time() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(50 << 10).unwrap();
        let three = [0; 3].map(|_| acquire(class).unwrap());
        let tops: Vec<usize> = three.iter().map(Stack::top).collect();
        let [a, b, c] = three;
        release(a);
        trim_all();
        release_all([b, c]);
        let mut more = [const { None }; 5];
        let first = acquire_some(class, &mut more).unwrap();
        let all: Vec<Stack> = [Some(first)].into_iter().chain(more).flatten().collect();
        let taken: Vec<usize> = all.iter().map(Stack::top).collect();
        assert_eq!(taken, [tops[2], tops[1], tops[0]], "the cold one last");
        let mut more = [const { None }; 5];
        let new = acquire_some(class, &mut more).unwrap();
        assert!(more.iter().all(Option::is_none), "one that is new comes alone");
        release_all(all.into_iter().chain([new]));
    }

    #[test]
    fn a_refused_mapping_is_an_error_and_passes() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(SINGLE).unwrap();
        fault::MAP.arm(0, 1);
        let error = acquire(class).unwrap_err();
        assert!(error.to_string().contains("refused memory"), "{error}");
        release(acquire(class).unwrap());
    }
}
