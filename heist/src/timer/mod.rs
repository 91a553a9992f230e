//! What is due when: the timers of one P.
//!
//! A heap (and buckets, for those of a crowd that are due later: `crowd.rs`) under a latch,
//! which its P takes most of the time and whoever steals from it now and then, and beside it
//! the moment of the earliest entry, which anybody reads without the latch.
//!
//! Entries are deleted lazily. Most deadlines never come: the wait ends first,
//! and taking its entry out of the middle of a heap would cost more than all the
//! rest. Whoever waits no longer just says so ([`Timers::note_dead`]); the entry
//! comes out when its time has come, or when a quarter of the heap is dead. What
//! an entry means, and whether it is dead, is its owner's to know: this module
//! knows no goroutines.

mod crowd;
mod heap;

/// What the heap and the buckets do in loops, counted in tests: how it grows with the number
/// of timers is a matter of counts, not of times.
mod steps {
    #[cfg(test)]
    thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// One more.
    #[inline(always)]
    pub(super) fn step() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    /// How many `f` takes on this thread.
    #[cfg(test)]
    pub(super) fn count(f: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        f();
        STEPS.get() - before
    }
}

use crate::prim::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::prim::latch::Latch;
use crowd::Crowd;

/// No entry is due, ever.
pub(crate) const NEVER: u64 = u64::MAX;

/// A heap smaller than this is not searched for dead entries.
const SMALL: usize = 64;

/// Where an entry went.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Added {
    /// It is the earliest.
    Earliest,
    /// Behind an earlier one.
    Later,
}

/// The timers.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    heap: Latch<Crowd<T>>,
    /// When the earliest entry is due. Written under the latch.
    next: AtomicU64,
    /// Entries that nobody waits for any more, as far as it is known.
    dead: AtomicUsize,
}

impl<T: Copy> Timers<T> {
    pub(crate) fn new() -> Self {
        Timers {
            heap: Latch::new(Crowd::new()),
            next: AtomicU64::new(NEVER),
            dead: AtomicUsize::new(0),
        }
    }

    /// When the earliest entry is due, or [`NEVER`].
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        // Relaxed: a hint for its P; those who sleep by it say how they make
        // sure (see `sched::timers`).
        self.next.load(Ordering::Relaxed)
    }

    /// How many are due at `by`, and when the last of them is (0 if there is none); or that of
    /// those that it has seen, once there are more than `N`.
    pub(crate) fn count_due<const N: usize>(&self, by: u64) -> (usize, u64) {
        self.heap.lock().count_due::<N>(by)
    }

    /// How many entries there are, dead ones too.
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().len()
    }

    /// Adds an entry. If there are many dead ones, drops those that are not
    /// `alive` first.
    #[inline(always)]
    pub(crate) fn add(&self, when: u64, item: T, alive: impl FnMut(&T) -> bool) -> Added {
        let mut heap = self.heap.lock();
        if heap.len() >= SMALL && self.dead.load(Ordering::Relaxed) > heap.len() / 4 {
            self.bury(&mut heap, alive);
        }
        heap.push(when, item);
        self.publish(&heap)
    }

    #[cold]
    #[inline(never)]
    fn bury(&self, heap: &mut Crowd<T>, alive: impl FnMut(&T) -> bool) {
        self.dead.store(0, Ordering::Relaxed);
        heap.retain(alive);
    }

    /// Says that one of the entries is dead. An estimate: of several who say so at a
    /// time, one may go unheard, which costs less than a read-modify-write for each.
    #[inline]
    pub(crate) fn note_dead(&self) {
        self.dead.store(self.dead.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes at most `limit` entries that are due at `now`, earliest first.
    pub(crate) fn take_due(&self, now: u64, limit: usize, due: &mut Vec<T>) {
        if self.next() > now {
            return;
        }
        let mut heap = self.heap.lock();
        due.extend(std::iter::from_fn(|| heap.pop_due(now)).take(limit));
        let _ = self.publish(&heap);
    }

    /// Drops the earliest entries if they are dead.
    pub(crate) fn drop_first_dead(&self, alive: impl FnMut(&T) -> bool) {
        let mut heap = self.heap.lock();
        heap.drop_first_dead(alive);
        let _ = self.publish(&heap);
    }

    /// Drops the dead entries.
    pub(crate) fn sweep(&self, alive: impl FnMut(&T) -> bool) {
        if self.dead.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let mut heap = self.heap.lock();
        heap.retain(alive);
        let _ = self.publish(&heap);
    }

    /// Takes all entries: when and what.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = (u64, T)> + use<T> {
        let mut heap = self.heap.lock();
        let all = heap.take_all();
        self.dead.store(0, Ordering::Relaxed);
        let _ = self.publish(&heap);
        all
    }

    #[inline(always)]
    fn publish(&self, heap: &Crowd<T>) -> Added {
        let next = heap.first().unwrap_or(NEVER);
        // Only holders of the latch write it, and the store is dear.
        if next == self.next.load(Ordering::Relaxed) {
            return Added::Later;
        }
        // SeqCst: see `next`.
        self.next.store(next, Ordering::SeqCst);
        Added::Earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_entries_go_when_they_are_many() {
        let timers = Timers::new();
        for i in 0..10_000u64 {
            let _ = timers.add(1_000_000 + i, i, |i| i % 100 == 0);
            if i % 100 != 0 {
                timers.note_dead();
            }
        }
        assert!(timers.len() < 400, "{} are left", timers.len());
        assert_eq!(timers.next(), 1_000_000);
        timers.sweep(|_| false);
        assert_eq!((timers.len(), timers.next()), (0, NEVER));
    }

    /// Sleepers: `n` timers of 1 to 200 ms are set in 100 ms, and each is taken in its time.
    fn sleep(n: u64) {
        let timers = Timers::new();
        let (mut due, mut taken) = (Vec::new(), 0);
        for i in 0..n {
            let now = (1 << 40) + i * 100_000_000 / n;
            let _ = timers.add(now + (1 + i % 200) * 1_000_000, i, |_| true);
            timers.take_due(now, 64, &mut due);
            taken += due.drain(..).count();
        }
        while timers.next() != NEVER {
            timers.take_due(timers.next() + 100_000, 64, &mut due);
            taken += due.drain(..).count();
        }
        assert_eq!(taken as u64, n);
    }

    /// Deadlines that do not come: `n` timers of a minute, of which all but the last
    /// thousand are dead.
    fn cancel(n: u64) {
        let timers = Timers::new();
        for i in 0..n {
            let _ = timers.add((1 << 40) + i * 1_000 + 60_000_000_000, i, |item| {
                steps::step();
                item + 1_000 > i
            });
            if i >= 1_000 {
                timers.note_dead();
            }
        }
        assert!(timers.len() < 2_000, "{}", timers.len());
    }

    /// Twice as many take about twice as much: less than three times.
    #[test]
    fn the_work_grows_with_their_number_and_hardly_faster() {
        for (what, work) in [("sleepers", sleep as fn(u64)), ("deadlines that do not come", cancel)]
        {
            for n in [10_000, 50_000, 200_000] {
                let (once, twice) = (steps::count(|| work(n)), steps::count(|| work(2 * n)));
                assert!(
                    twice < 3 * once,
                    "{what}: {once} steps for {n}, {twice} for two times that"
                );
                // And it does count them.
                assert!((n..50 * n).contains(&once), "{what}: {once} steps for {n}");
            }
        }
    }

    #[test]
    fn due_entries_come_in_batches() {
        let timers = Timers::new();
        for i in 0..10u64 {
            let added = timers.add(i, i, |_| true);
            assert_eq!(added == Added::Earliest, i == 0);
        }
        let mut due = Vec::new();
        timers.take_due(7, 5, &mut due);
        assert_eq!(due, [0, 1, 2, 3, 4]);
        timers.take_due(7, 5, &mut due);
        assert_eq!(due, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(timers.next(), 8);
        assert_eq!(timers.take_all().count(), 2);
    }
}
