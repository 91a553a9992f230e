//! The pool of free stacks.
//!
//! Last in, first out: the stack that was used last has its pages committed and
//! perhaps in the cache. (A P has a cache of its own before this one, of frames
//! on their stacks: `sched::frames`.) Stacks that lie in the pool for long have
//! their pages given back ([`trim`]); the mappings themselves are kept for the next
//! burst, since addresses are free and the kernel's work to make them is not.
//!
//! A new stack is that work: its guard page, the memory of its first page, and a system call and
//! a fault to ask for them. A P that finds the pool empty gets several, with one call for all
//! guards and one for all pages, once so many have been made that a few more do not count.
//! 100,000 goroutines that sleep, each on a new stack, took 2.4 µs of CPU time each, where one by
//! one they took 3.1. Most of what is left is the kernel's work for a page, whatever is beside
//! it: stacks of other sizes, and batches of 64 or 512, make hardly a difference to it.

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

/// Bytes at the top that a trimmed stack keeps: whole pages.
pub(super) fn keep() -> usize {
    map::page_size().max(4 << 10)
}

/// A stack that was used before.
pub(crate) struct Used {
    pub(crate) stack: Stack,
    /// What was left at its top ([`leave_all`]) is there.
    pub(crate) left: bool,
}

/// The top of a free stack. Whether something was left there is in its lowest bit.
#[derive(Clone, Copy)]
struct Top(usize);

impl Top {
    fn new(stack: &Stack, left: bool) -> Self {
        Top(stack.top | usize::from(left))
    }

    fn address(self) -> usize {
        self.0 & !1
    }

    fn used(self, class: Class) -> Used {
        Used { stack: Stack { top: self.address(), class }, left: self.0 & 1 != 0 }
    }
}

/// A free stack that has its pages.
struct Warm {
    top: Top,
    since: u64,
}

/// The free stacks of one class.
struct Shelf {
    /// In the order in which they came, the last one last.
    warm: VecDeque<Warm>,
    /// Those whose pages were given back.
    cold: Vec<Top>,
    /// The part of the newest slab that was never given out.
    fresh: std::ops::Range<usize>,
    /// Those that were, and for which the kernel refused a guard.
    bare: Vec<usize>,
    /// How many were given out that had never been before.
    cut: usize,
}

/// A stack, and whether it is yet to get its guard page.
struct Taken {
    stack: Stack,
    bare: bool,
}

impl Taken {
    /// Without the lock: a system call, in which a thread may have to wait for another that
    /// gets a page.
    fn guarded(self) -> Result<Stack, StackError> {
        let Taken { stack, bare } = self;
        if bare && let Err(error) = map::guard(stack.top - stack.class.size()) {
            SHELVES.lock()[stack.class.0 as usize].bare.push(stack.top);
            return Err(error);
        }
        Ok(stack)
    }
}

impl Shelf {
    const fn new() -> Self {
        Shelf { warm: VecDeque::new(), cold: Vec::new(), fresh: 0..0, bare: Vec::new(), cut: 0 }
    }

    /// One that was used before, and has its first page.
    fn used(&mut self) -> Option<Top> {
        self.warm.pop_back().map(|warm| warm.top).or_else(|| self.cold.pop())
    }

    fn take(&mut self, class: Class) -> Result<Taken, StackError> {
        if let Some(top) = self.used() {
            // The next one will be wanted soon, and was touched long ago.
            if let Some(top) = self.warm.back().map(|warm| warm.top).or(self.cold.last().copied()) {
                top.used(class).stack.prefetch();
            }
            return Ok(Taken { stack: top.used(class).stack, bare: false });
        }
        Ok(Taken { stack: Stack { top: self.cut(class)?, class }, bare: true })
    }

    /// The top of one that is yet to get its guard page.
    fn cut(&mut self, class: Class) -> Result<usize, StackError> {
        if let Some(top) = self.bare.pop() {
            return Ok(top);
        }
        if self.fresh.is_empty() {
            // As many as fit.
            let size = (SLAB / class.stride()).max(1) * class.stride();
            let low = map::reserve(size)?;
            self.fresh = low..low + size;
        }
        self.fresh.start += class.stride();
        self.cut += 1;
        Ok(self.fresh.start)
    }

    /// How many new ones to make at a time: an eighth of what there is. Each gets its first page
    /// there and then, and a program with few goroutines should not pay for many.
    fn batch(&self, most: usize) -> usize {
        if map::batches() { (self.cut / 8).clamp(1, most.min(map::BATCH)) } else { 1 }
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
    let taken = SHELVES.lock()[class.0 as usize].take(class)?;
    taken.guarded()
}

/// A stack of a class; and if it was used before, as many more of those into `more` as there
/// are and it has room for. The one that was used last comes first. If it is new, `more` may get
/// new ones too. All of them with the lock taken once: many Ps that begin at once meet there.
pub(crate) fn acquire_some(class: Class, more: &mut [Option<Used>]) -> Result<Used, StackError> {
    let new = |stack| Used { stack, left: false };
    if class.size() >= SINGLE {
        return acquire(class).map(new);
    }
    let used = {
        let shelf = &mut SHELVES.lock()[class.0 as usize];
        shelf.used().inspect(|_| more.fill_with(|| shelf.used().map(|top| top.used(class))))
    };
    let Some(top) = used else { return make_some(class, more).map(new) };
    let first = top.used(class);
    // In a row and without the lock: the CPU looks up several pages at a time, but not
    // across a locked instruction.
    let all = || std::iter::once(&first).chain(more.iter().flatten()).map(|used| &used.stack);
    all().for_each(Stack::prefetch);
    all().for_each(|stack| probe::touch(stack.top - 1));
    Ok(first)
}

/// A new stack of a class, and perhaps some more of them into `more`, which is empty.
fn make_some(class: Class, more: &mut [Option<Used>]) -> Result<Stack, StackError> {
    let mut tops = [0; map::BATCH];
    let tops = {
        let shelf = &mut SHELVES.lock()[class.0 as usize];
        let n = shelf.batch(1 + more.len());
        tops[0] = shelf.cut(class)?;
        let mut len = 1;
        while len < n
            && let Ok(top) = shelf.cut(class)
        {
            tops[len] = top;
            len += 1;
        }
        &tops[..len]
    };
    // From here on without the lock, as in `Taken::guarded`.
    let mut lows = [0; map::BATCH];
    let lows = &mut lows[..tops.len()];
    lows.iter_mut().zip(tops).for_each(|(low, top)| *low = top - class.size());
    let guarded = map::guard_all(lows);
    let (tops, bare) = tops.split_at(*guarded.as_ref().unwrap_or(&0));
    if !bare.is_empty() {
        SHELVES.lock()[class.0 as usize].bare.extend(bare);
    }
    guarded?;
    lows.iter_mut().zip(tops).for_each(|(low, top)| *low = top - map::page_size());
    map::populate(&lows[..tops.len()]);
    tops.iter().for_each(|top| probe::touch(top - 1));
    for (slot, &top) in more.iter_mut().zip(&tops[1..]) {
        *slot = Some(Used { stack: Stack { top, class }, left: false });
    }
    Ok(Stack { top: tops[0], class })
}

/// Gives a stack back. Nothing on it is alive.
pub(crate) fn release(stack: Stack) {
    release_all([stack]);
}

/// Gives stacks back, the one that was used last at the end.
pub(crate) fn release_all(stacks: impl IntoIterator<Item = Stack>) {
    put_all(stacks, false);
}

/// The same, with something at the top of each that whoever gets it may use, or write over.
pub(crate) fn leave_all(stacks: impl IntoIterator<Item = Stack>) {
    put_all(stacks, true);
}

fn put_all(stacks: impl IntoIterator<Item = Stack>, left: bool) {
    let since = clock::now();
    let mut large = Vec::new();
    {
        let mut shelves = SHELVES.lock();
        for stack in stacks {
            if stack.class.size() >= SINGLE {
                large.push(stack);
            } else {
                let top = Top::new(&stack, left);
                shelves[stack.class.0 as usize].warm.push_back(Warm { top, since });
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
            let tops: Vec<Top> = {
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
                map::discard(top.address() - usable, usable - keep());
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
    fn what_is_left_on_a_stack_is_found_again() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(500 << 10).unwrap();
        let two = [0; 2].map(|_| acquire(class).unwrap());
        let [a, b] = two;
        leave_all([a]);
        trim_all();
        leave_all([b]);
        let mut more = [const { None }; 3];
        let first = acquire_some(class, &mut more).unwrap();
        let all: Vec<Used> = [Some(first)].into_iter().chain(more).flatten().collect();
        assert!(all.len() == 2 && all.iter().all(|used| used.left), "the cold one too");
        release_all(all.into_iter().map(|used| used.stack));
        let mut more = [const { None }; 1];
        let first = acquire_some(class, &mut more).unwrap();
        assert!(!first.left && more.iter().flatten().all(|used| !used.left), "used since");
        release_all([Some(first)].into_iter().chain(more).flatten().map(|used| used.stack));
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
        let all = [Some(first)].into_iter().chain(more).flatten();
        let all: Vec<Stack> = all.map(|used| used.stack).collect();
        let taken: Vec<usize> = all.iter().map(Stack::top).collect();
        assert_eq!(taken, [tops[2], tops[1], tops[0]], "the cold one last");
        let mut more = [const { None }; 5];
        let new = acquire_some(class, &mut more).unwrap();
        assert!(more.iter().all(Option::is_none), "one that is new comes alone");
        release_all(all.into_iter().chain([new.stack]));
    }

    #[test]
    fn new_ones_come_several_at_a_time_where_there_are_many() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(1 << 20).unwrap();
        let (mut all, mut most) = (Vec::new(), 0);
        for _ in 0..200 {
            let mut more = [const { None }; 2 * map::BATCH];
            let first = acquire_some(class, &mut more).unwrap();
            let before = all.len();
            all.extend([Some(first)].into_iter().chain(more).flatten().map(|used| used.stack));
            let spare = all.len() - before - 1;
            assert!(spare <= before / 8, "{spare} besides the one, with {before}");
            most = most.max(spare + 1);
        }
        assert_eq!(most, if map::batches() { map::BATCH } else { 1 });
        all.sort_unstable_by_key(Stack::top);
        assert!(all.windows(2).all(|two| two[0].top() + class.size() <= two[1].top()));
        release_all(all);
    }

    /// A CPU's tables have a place for a page by the low bits of its number, and a line in the
    /// caches has one by its address inside of the page.
    #[test]
    fn the_tops_of_neighbours_do_not_share_their_places() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(200 << 10).unwrap();
        let all: Vec<Stack> = (0..64).map(|_| acquire(class).unwrap()).collect();
        let different = |place: fn(&Stack) -> usize| {
            all.iter().map(place).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(different(|stack| stack.top() / map::page_size() % 64), 64);
        assert_eq!(different(Stack::colour), 16);
        release_all(all);
    }

    #[test]
    fn a_batch_ends_where_the_kernel_refuses_more() {
        let _alone = crate::tests_alone();
        let class = Class::for_usable(3 << 20).unwrap();
        let fits = SLAB / class.stride();
        let mut all = Vec::new();
        // To the end of a slab, with as many as make batches.
        while all.len() < 4 * fits {
            all.push(acquire(class).unwrap());
        }
        all.extend((0..fits - 1).map(|_| acquire(class).unwrap()));
        fault::MAP.arm(0, 2);
        let mut more = [const { None }; 3];
        let last = acquire_some(class, &mut more).unwrap();
        assert!(more.iter().all(Option::is_none), "the last of its slab");
        fault::MAP.arm(0, 1);
        assert!(acquire_some(class, &mut more).is_err());
        all.push(last.stack);
        let new = acquire_some(class, &mut more).unwrap();
        all.extend([Some(new)].into_iter().chain(more).flatten().map(|used| used.stack));
        release_all(all);
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
