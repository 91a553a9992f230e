//! The local run queue of a P: runnext, and two rings.
//!
//! # runnext
//!
//! The goroutine that the running one made ready last; it runs next and
//! inherits the rest of the time slice. A second one kicks the first out to the
//! ring. It is in one of two slots. *Own* is the owner's, who reads and writes it
//! plainly: most runnexts run a moment later, and nobody else needs to see them.
//! (sysmon takes one that stays, when it has made sure that the owner is not in
//! the runtime: `protocol::lease`.) *Offered* is for one that a thief was woken
//! for; everybody exchanges it.
//!
//! # Why two rings
//!
//! A goroutine that yields goes behind everything that is runnable, the global
//! queue included; Go puts it on the global queue's tail, under the global
//! lock. Here it goes to a second ring, and when the first one is empty they
//! change places, after a batch from the global queue was added to it. The order
//! is the same up to one round, the lock is taken once a round instead of once
//! a yield, and thieves see both rings.
//!
//! Those that yield are queued again and again, and one that passes through the
//! global queue may go on on another P, with its stack's cache lines behind it. So
//! their ring has room for a thousand. What is *new* to the queue still finds it
//! full at 256, as in Go: that is the work that others should see. Those whose
//! time has come, or that the network has something for, come in numbers, and have room
//! for as many more: the older half that went to the global queue would be they, with
//! their stacks in the cache, behind all that was spawned.

use super::ring::{Batch, Full, Ring, SLOTS};
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::prim::mutant::{Mutant, is};
use crossbeam_utils::CachePadded;
use std::ptr;

pub(crate) use super::ring::CAPACITY;
#[cfg(not(loom))]
pub(crate) use super::ring::HALF;

/// A goroutine from the local queue.
#[derive(Debug)]
pub(crate) struct Popped<T: 'static> {
    /// The goroutine.
    pub(crate) item: &'static T,
    /// From runnext: it goes on in the time slice of the one before it.
    pub(crate) inherit_time: bool,
}

/// The local run queue.
pub(crate) struct RunQueue<T: 'static, const N: usize = SLOTS> {
    /// Runnext, the owner's.
    own: AtomicPtr<T>,
    /// Whether thieves can exist. Changed only while nobody uses the queue.
    alone: AtomicBool,
    /// Runnext, everybody's.
    offered: CachePadded<AtomicPtr<T>>,
    /// Which ring is the first one. Written by the owner, seldom; a hint for thieves,
    /// who must not touch the line of the owner's runnext.
    first: CachePadded<AtomicUsize>,
    rings: [Ring<T, N>; 2],
}

impl<T, const N: usize> RunQueue<T, N> {
    /// How many there may be of those that did not yield.
    const LIMIT: usize = if N < CAPACITY { N } else { CAPACITY };

    /// The same, with those that come in numbers.
    #[cfg(not(loom))]
    const LIMIT_DUE: usize = if N < 2 * CAPACITY { N } else { 2 * CAPACITY };

    /// An empty queue. `alone` says that there will be no thieves, which spares
    /// the owner its read-modify-writes.
    pub(crate) fn new(alone: bool) -> Self {
        RunQueue {
            own: AtomicPtr::new(ptr::null_mut()),
            offered: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            first: CachePadded::new(AtomicUsize::new(0)),
            alone: AtomicBool::new(alone),
            rings: [Ring::new(), Ring::new()],
        }
    }

    /// Says whether thieves can exist. Nobody uses the queue meanwhile.
    #[cfg(not(loom))]
    pub(crate) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// Whether there are no thieves.
    #[inline(always)]
    pub(crate) fn alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn first_ring(&self) -> &Ring<T, N> {
        &self.rings[self.first.load(Ordering::Relaxed) & 1]
    }

    #[inline(always)]
    fn second_ring(&self) -> &Ring<T, N> {
        &self.rings[(self.first.load(Ordering::Relaxed) & 1) ^ 1]
    }

    /// Owner: makes `item` runnext and returns the one that was.
    #[inline(always)]
    pub(crate) fn put_next(&self, item: &'static T) -> Option<&'static T> {
        let old = self.take_next();
        // Relaxed: for the owner; sysmon passes a barrier before it looks.
        self.own.store(ptr::from_ref(item).cast_mut(), Ordering::Relaxed);
        old
    }

    /// Owner: makes `item` runnext, for thieves too, and returns the one that was.
    /// A read-modify-write.
    pub(crate) fn put_next_offered(&self, item: &'static T) -> Option<&'static T> {
        let old = self.take_next();
        // Release: a thief that takes `item` sees it whole. The slot is empty.
        self.offered.swap(ptr::from_ref(item).cast_mut(), Ordering::AcqRel);
        old
    }

    /// Owner: adds at the tail.
    #[inline]
    pub(crate) fn push(&self, item: &'static T) -> Result<(), Full> {
        self.first_ring().push(item, Self::LIMIT)
    }

    /// Owner: adds one of many that were waited for at the tail.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn push_due(&self, item: &'static T) -> Result<(), Full> {
        self.first_ring().push(item, Self::LIMIT_DUE)
    }

    /// Owner: how many [`push_due`](Self::push_due) has room for.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn room_for_due(&self) -> usize {
        Self::LIMIT_DUE.saturating_sub(self.first_ring().len())
    }

    /// Owner: whether [`push`](Self::push) would fail.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.first_ring().len() >= Self::LIMIT
    }

    /// Owner: adds a goroutine that yielded: behind all that is queued now.
    #[inline]
    pub(crate) fn push_yielded(&self, item: &'static T) -> Result<(), Full> {
        self.second_ring().push(item, N)
    }

    /// Owner: the next one to run.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Popped<T>> {
        if let Some(item) = self.take_next() {
            return Some(Popped { item, inherit_time: true });
        }
        let item = self.first_ring().pop(self.alone())?;
        Some(Popped { item, inherit_time: false })
    }

    /// Owner: the next one to run, if it is not a runnext, and `suits`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn pop_if(&self, suits: impl Fn(&'static T) -> bool) -> Option<&'static T> {
        if self.has_next() { None } else { self.first_ring().pop_if(self.alone(), suits) }
    }

    /// Owner: takes runnext. At most one of the two slots is filled.
    #[inline(always)]
    fn take_next(&self) -> Option<&'static T> {
        let own = self.own.load(Ordering::Relaxed);
        if !own.is_null() {
            self.own.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: only `&'static T` are ever stored, and null.
            return unsafe { own.as_ref() };
        }
        // The load spares the exchange in the common case that it is empty.
        if self.offered.load(Ordering::Acquire).is_null() {
            return None;
        }
        self.take_offered()
    }

    #[cold]
    fn take_offered(&self) -> Option<&'static T> {
        let offered = if is(Mutant::TakeNextUnseen) {
            let offered = self.offered.load(Ordering::Acquire);
            self.offered.store(ptr::null_mut(), Ordering::Release);
            offered
        } else {
            self.offered.swap(ptr::null_mut(), Ordering::AcqRel)
        };
        // SAFETY: as in `take_next`.
        unsafe { offered.as_ref() }
    }

    /// Takes a runnext that was not offered from its owner.
    ///
    /// # Safety
    ///
    /// The owner does not use the queue meanwhile.
    #[cfg(not(loom))]
    pub(crate) unsafe fn take_own(&self, seen: NextUp<T>) -> Option<&'static T> {
        if !ptr::eq(self.own.load(Ordering::Acquire), seen.pointer) {
            return None;
        }
        self.own.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: as in `take_next`.
        unsafe { seen.pointer.as_ref() }
    }

    /// Owner: the one that yielded longest ago, before its turn.
    #[cfg(not(loom))]
    pub(crate) fn pop_yielded(&self) -> Option<&'static T> {
        self.second_ring().pop(self.alone())
    }

    /// Owner: the first ring is empty, and the yielded ones get their turn.
    #[inline]
    pub(crate) fn turn(&self) {
        self.first.store(self.first.load(Ordering::Relaxed) ^ 1, Ordering::Relaxed);
    }

    /// Owner: free slots in the ring of the yielded.
    #[inline]
    pub(crate) fn room_for_yielded(&self) -> usize {
        N - self.second_ring().len()
    }

    /// How many goroutines yielded and wait for [`turn`](Self::turn).
    #[inline]
    pub(crate) fn yielded(&self) -> usize {
        self.second_ring().len()
    }

    /// Owner: the older half of the first ring, for the global queue. `None` if
    /// thieves made room meanwhile.
    #[cold]
    pub(crate) fn take_half(&self) -> Option<Batch<T>> {
        self.first_ring().take(|len| len / 2)
    }

    /// Owner: the oldest of those that yielded, `of(how many there are)`.
    #[cfg(not(loom))]
    pub(crate) fn take_yielded(&self, of: impl FnOnce(usize) -> usize) -> Option<Batch<T>> {
        self.second_ring().take(of)
    }

    /// Thief: takes half of one of this queue's rings into `own`, the thief's.
    /// The thief's own rings are empty.
    pub(crate) fn steal_into(&self, own: &RunQueue<T, N>) -> Option<&'static T> {
        self.first_ring()
            .steal_into(own.first_ring())
            .or_else(|| self.second_ring().steal_into(own.first_ring()))
    }

    /// Anybody: the runnext of this moment that was not offered.
    #[cfg(not(loom))]
    pub(crate) fn peek_own(&self) -> Option<NextUp<T>> {
        NextUp::of(self.own.load(Ordering::Acquire))
    }

    /// Anybody: the runnext of this moment that was offered, to watch it or to
    /// steal it.
    #[inline]
    pub(crate) fn peek_offered(&self) -> Option<NextUp<T>> {
        NextUp::of(self.offered.load(Ordering::Acquire))
    }

    /// Thief: takes the runnext that was offered if it is still `seen`.
    pub(crate) fn steal_next(&self, seen: NextUp<T>) -> Option<&'static T> {
        self.offered
            .compare_exchange(seen.pointer, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            // SAFETY: not null, and as in `take_next`.
            .map(|item| unsafe { &*item })
    }

    /// Anybody: whether there is nothing to take.
    ///
    /// runnext first, with acquire: whoever published work exchanged runnext
    /// after filling the ring, or passed a full fence.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_next() && self.rings_empty()
    }

    /// Anybody: whether there is a runnext.
    #[inline(always)]
    pub(crate) fn has_next(&self) -> bool {
        [&self.own, &*self.offered].iter().any(|slot| !slot.load(Ordering::Acquire).is_null())
    }

    /// Anybody: whether both rings are empty.
    ///
    /// The first ring first. Its owner may have put one that yielded into the second, without
    /// a fence, and then have taken the last of the first: who sees that one gone sees the
    /// other.
    #[inline]
    pub(crate) fn rings_empty(&self) -> bool {
        // Which is first is read once: a turn between two readings would have it look at the
        // same ring twice.
        let first = self.first.load(Ordering::Relaxed) & 1;
        [first, first ^ 1].iter().all(|ring| self.rings[*ring].len() == 0)
    }

    /// Anybody: how many are in the rings, roughly.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn in_rings(&self) -> usize {
        self.rings.iter().map(Ring::len).sum()
    }

    /// The simulator, between two steps: all items, each where it is.
    #[cfg(sim)]
    pub(crate) fn each(&self, mut visit: impl FnMut(&'static T)) {
        for next in [&self.own, &*self.offered] {
            // SAFETY: as in `take_next`.
            unsafe { next.load(Ordering::Relaxed).as_ref() }.into_iter().for_each(&mut visit);
        }
        self.rings.iter().for_each(|ring| ring.each(&mut visit));
    }

    /// Anybody: how many there are, roughly.
    pub(crate) fn len(&self) -> usize {
        self.rings.iter().map(Ring::len).sum::<usize>() + usize::from(self.has_next())
    }
}

/// A runnext that was seen; compared by address only.
pub(crate) struct NextUp<T> {
    pointer: *mut T,
}

impl<T> NextUp<T> {
    #[inline(always)]
    fn of(pointer: *mut T) -> Option<Self> {
        (!pointer.is_null()).then_some(NextUp { pointer })
    }
}

impl<T> Clone for NextUp<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for NextUp<T> {}
impl<T> PartialEq for NextUp<T> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.pointer, other.pointer)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64 as Counter;

    fn items(n: usize) -> &'static [u64] {
        Box::leak((0..n as u64).collect::<Vec<_>>().into_boxed_slice())
    }

    #[test]
    fn order_is_kept_at_every_size() {
        let items = items(CAPACITY);
        for alone in [true, false] {
            let queue: RunQueue<u64> = RunQueue::new(alone);
            for size in 0..=CAPACITY {
                items[..size].iter().for_each(|i| queue.push(i).unwrap());
                assert_eq!(queue.len(), size);
                let out: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|p| *p.item).collect();
                assert_eq!(out, items[..size]);
            }
        }
    }

    #[test]
    fn a_full_ring_says_so_and_gives_half() {
        let items = items(CAPACITY + 1);
        let queue: RunQueue<u64> = RunQueue::new(false);
        items[..CAPACITY].iter().for_each(|i| queue.push(i).unwrap());
        assert!(queue.push(&items[CAPACITY]).is_err());
        let half: Vec<u64> = queue.take_half().unwrap().iter().copied().collect();
        assert_eq!(half, items[..CAPACITY / 2]);
        assert_eq!(queue.len(), CAPACITY / 2);
    }

    #[test]
    fn the_ring_of_the_yielded_is_larger_but_moves_no_more_at_a_time() {
        let items = items(SLOTS + 1);
        let (queue, thief) = (RunQueue::<u64>::new(false), RunQueue::<u64>::new(false));
        items[..SLOTS].iter().for_each(|i| queue.push_yielded(i).unwrap());
        assert!(queue.push_yielded(&items[SLOTS]).is_err());
        assert_eq!(queue.take_yielded(|len| len).unwrap().iter().count(), HALF);
        queue.turn();
        assert!(queue.is_full() && queue.push(&items[0]).is_err());
        assert!(queue.steal_into(&thief).is_some());
        assert_eq!((queue.len(), thief.len()), (SLOTS - 2 * HALF, HALF - 1));
    }

    #[test]
    fn a_new_runnext_kicks_the_old_one_out() {
        let items = items(3);
        type Put = fn(&RunQueue<u64>, &'static u64) -> Option<&'static u64>;
        let puts: [Put; 2] = [RunQueue::put_next, RunQueue::put_next_offered];
        for (first, second) in puts.iter().flat_map(|a| puts.iter().map(move |b| (a, b))) {
            let queue: RunQueue<u64> = RunQueue::new(false);
            assert!(first(&queue, &items[0]).is_none());
            assert_eq!(second(&queue, &items[1]), Some(&items[0]));
            queue.push(&items[0]).unwrap();
            let first = queue.pop().unwrap();
            assert_eq!((*first.item, first.inherit_time), (1, true));
            let second = queue.pop().unwrap();
            assert_eq!((*second.item, second.inherit_time), (0, false));
            assert!(queue.pop().is_none() && queue.is_empty());
        }
    }

    #[test]
    fn the_yielded_come_after_the_turn() {
        let items = items(4);
        let queue: RunQueue<u64> = RunQueue::new(false);
        queue.push_yielded(&items[0]).unwrap();
        queue.push(&items[1]).unwrap();
        assert_eq!(*queue.pop().unwrap().item, 1);
        assert!(queue.pop().is_none());
        assert_eq!((queue.yielded(), queue.is_empty()), (1, false));
        queue.turn();
        assert_eq!(*queue.pop().unwrap().item, 0);
    }

    #[test]
    fn a_thief_takes_half_and_every_item_exactly_once() {
        let items = items(CAPACITY);
        for size in 0..=CAPACITY {
            let (victim, thief) = (RunQueue::<u64>::new(false), RunQueue::<u64>::new(false));
            items[..size].iter().for_each(|i| victim.push(i).unwrap());
            let first = victim.steal_into(&thief);
            assert_eq!(first.is_some(), size > 0);
            let stolen = thief.len() + usize::from(first.is_some());
            assert_eq!(stolen, size - size / 2, "half, rounded up");
            let mut seen: HashSet<u64> = first.into_iter().copied().collect();
            for queue in [&victim, &thief] {
                while let Some(popped) = queue.pop() {
                    assert!(seen.insert(*popped.item));
                }
            }
            assert_eq!(seen.len(), size);
        }
    }

    /// Go's TestRunqStealRace in spirit: owner and thieves at full speed, every
    /// item comes out once.
    #[test]
    fn owner_against_thieves() {
        const ROUNDS: usize = 2_000;
        const BATCH: usize = 200;
        let items = items(ROUNDS * BATCH);
        let taken: &[Counter] = Box::leak((0..items.len()).map(|_| Counter::new(0)).collect());
        let count = |item: &u64| {
            assert_eq!(taken[*item as usize].fetch_add(1, Ordering::Relaxed), 0);
        };
        let victim: RunQueue<u64> = RunQueue::new(false);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let own: RunQueue<u64> = RunQueue::new(false);
                    while !done.load(Ordering::Acquire) || !victim.is_empty() {
                        if let Some(item) = victim.steal_into(&own) {
                            count(item);
                        } else if let Some(item) =
                            victim.peek_offered().and_then(|seen| victim.steal_next(seen))
                        {
                            count(item);
                        }
                        while let Some(popped) = own.pop() {
                            count(popped.item);
                        }
                    }
                });
            }
            for (i, item) in items.iter().enumerate() {
                let mut item = match i % 6 {
                    0 => victim.put_next(item),
                    3 => victim.put_next_offered(item),
                    _ => Some(item),
                };
                while let Some(push) = item.take() {
                    if victim.push(push).is_err() {
                        item = Some(push);
                        if let Some(half) = victim.take_half() {
                            half.iter().for_each(count);
                        }
                    }
                }
                if i % 5 == 0
                    && let Some(popped) = victim.pop()
                {
                    count(popped.item);
                }
            }
            done.store(true, Ordering::Release);
        });
        while let Some(popped) = victim.pop() {
            count(popped.item);
        }
        assert!(taken.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }

    /// Never "empty" while one item is always queued (10^5 races, with and
    /// without runnext).
    #[test]
    fn never_empty_while_one_is_queued() {
        let items = items(2);
        let queue: RunQueue<u64> = RunQueue::new(false);
        let done = AtomicBool::new(false);
        queue.push(&items[0]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!queue.is_empty());
                }
            });
            for i in 0..100_000 {
                if i % 2 == 0 {
                    queue.push(&items[1]).unwrap();
                } else {
                    assert!(queue.put_next(&items[1]).is_none());
                }
                queue.pop().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::mutant::must_fail;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    static ITEMS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    struct Tally([AtomicU32; 8]);

    impl Tally {
        fn count(&self, item: &usize) {
            assert_eq!(self.0[*item].fetch_add(1, Ordering::Relaxed), 0, "taken twice");
        }
    }

    fn tally() -> Arc<Tally> {
        Arc::new(Tally(std::array::from_fn(|_| AtomicU32::new(0))))
    }

    type Queue = RunQueue<usize, 4>;

    /// The owner pushes, overflows and pops while two thieves steal.
    #[test]
    fn owner_with_overflow_against_two_thieves() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let victim = Arc::new(Queue::new(false));
            let taken = tally();
            let thieves: Vec<_> = (0..2)
                .map(|_| {
                    let (victim, taken) = (victim.clone(), taken.clone());
                    loom::thread::spawn(move || {
                        let own = Queue::new(false);
                        if let Some(item) = victim.steal_into(&own) {
                            taken.count(item);
                        }
                        while let Some(popped) = own.pop() {
                            taken.count(popped.item);
                        }
                    })
                })
                .collect();
            for item in &ITEMS[..5] {
                while victim.push(item).is_err() {
                    if let Some(half) = victim.take_half() {
                        half.iter().for_each(|i| taken.count(i));
                    }
                }
            }
            if let Some(popped) = victim.pop() {
                taken.count(popped.item);
            }
            thieves.into_iter().for_each(|t| t.join().unwrap());
            while let Some(popped) = victim.pop() {
                taken.count(popped.item);
            }
            for (i, n) in taken.0.iter().enumerate() {
                assert_eq!(n.load(Ordering::Relaxed), u32::from(i < 5), "item {i}");
            }
        });
    }

    fn thief_takes_half() {
        let victim = Arc::new(RunQueue::<usize, 8>::new(false));
        ITEMS[..6].iter().for_each(|item| assert!(victim.push(item).is_ok()));
        let thief = {
            let victim = victim.clone();
            loom::thread::spawn(move || {
                let own = RunQueue::<usize, 8>::new(false);
                usize::from(victim.steal_into(&own).is_some()) + own.len()
            })
        };
        assert_eq!(thief.join().unwrap(), 3);
        assert_eq!(victim.len(), 3);
    }

    #[test]
    fn a_thief_takes_half() {
        loom::model(thief_takes_half);
        must_fail(Mutant::StealTwoThirds, thief_takes_half);
    }

    /// runnext: the owner replaces and takes it while a thief steals it.
    #[test]
    fn runnext_against_a_thief() {
        loom::model(|| {
            let victim = Arc::new(Queue::new(false));
            let taken = tally();
            assert!(victim.put_next_offered(&ITEMS[0]).is_none());
            let thief = {
                let (victim, taken) = (victim.clone(), taken.clone());
                loom::thread::spawn(move || {
                    if let Some(seen) = victim.peek_offered()
                        && let Some(item) = victim.steal_next(seen)
                    {
                        taken.count(item);
                    }
                })
            };
            if let Some(kicked) = victim.put_next_offered(&ITEMS[1]) {
                taken.count(kicked);
            }
            if let Some(popped) = victim.pop() {
                taken.count(popped.item);
            }
            thief.join().unwrap();
            for n in &taken.0[..2] {
                assert_eq!(n.load(Ordering::Relaxed), 1);
            }
        });
    }
}
