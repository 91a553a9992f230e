//! The words of a mutex: who holds it, and what its release must look at.
//!
//! `owner` is 0, or the word of the holder. It is taken by a compare-and-swap and
//! given back by a plain store: half the price of two read-modify-writes.
//!
//! | bit of `flags` | meaning |
//! |---|---|
//! | `ATTENTION` | a release must look at the queue |
//! | `WOKEN` | a contender from the queue is awake: no need to wake another |
//! | `QUEUED` | the queue is not empty |
//! | `STARVING` | somebody has waited too long: the mutex is handed over in order |
//!
//! Two modes, as in Go. *Normal*: the mutex is free as soon as it is released,
//! and one waiter is woken to compete for it with those who come by; whoever
//! already runs wins, which is fast. *Starving*: the release makes the first
//! waiter the owner, and those who come by queue behind the others.
//!
//! # No wake-up is lost
//!
//! All but `WOKEN` and `ATTENTION` change only with the queue's lock held, and
//! `ATTENTION` is cleared only so. While somebody is queued, somebody else is
//! *responsible*: the one who has `WOKEN`, or, with `ATTENTION`, the next release.
//!
//! The one who has `WOKEN` is awake until it gets the mutex, and then sets
//! `ATTENTION` and is the next release itself; or until it sets `ATTENTION` as
//! everybody else does ([`raise`](MutexWord::raise)): sets the bit, passes the
//! heavy half of an asymmetric fence, and looks at `owner` once more.
//!
//! A release stores 0 to `owner`, passes the light half, and loads `flags`. If
//! its store came after the heavy half, so did its load, and it sees the bit. If
//! not, the one who raised sees that the mutex is free, and takes it, or another
//! does, after the heavy half, whose release sees the bit. Whoever queues because
//! it found `ATTENTION` set, by one who is still in its fence, relies on that one:
//! it stays awake until it has the mutex, or until there is an owner whose release
//! sees the bit.

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering, heavy_barrier, light_barrier};
use std::num::NonZeroUsize;

const ATTENTION: u32 = 1 << 0;
const WOKEN: u32 = 1 << 1;
const QUEUED: u32 = 1 << 2;
const STARVING: u32 = 1 << 3;

/// What a release has done, and what is left to do.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Release {
    /// The mutex is free.
    Done,
    /// It is free: look whom to wake, with the queue's lock held, by
    /// [`begin_wake`](MutexWord::begin_wake).
    Wake,
    /// It is still held: lock the queue, and then hand it over if it is
    /// [`starving`](MutexWord::is_starving), or else [`free`](MutexWord::free) it
    /// and go on as with `Wake`.
    Look,
    /// Nobody held it.
    NotLocked,
}

/// What somebody who wants to queue does.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Enqueue {
    /// It queues; then it sleeps until it is woken.
    Queued,
    /// The mutex is free: it tries again.
    Free,
    /// Nobody is responsible for the queue: it releases the queue's lock,
    /// [raises](MutexWord::raise) attention, and tries again.
    Raise,
}

/// The words.
#[derive(Debug)]
pub(crate) struct MutexWord {
    owner: AtomicUsize,
    flags: AtomicU32,
}

impl MutexWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        MutexWord { owner: AtomicUsize::new(0), flags: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        MutexWord { owner: AtomicUsize::new(0), flags: AtomicU32::new(0) }
    }

    /// Takes the mutex if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self, me: NonZeroUsize) -> Result<(), usize> {
        // Acquire: pairs with the release of whoever held it last.
        let taken = self.owner.compare_exchange(0, me.get(), Ordering::Acquire, Ordering::Relaxed);
        taken.map(|_| ())
    }

    /// The caller, who has `WOKEN`, has taken the mutex: it is responsible for
    /// the others by its release.
    pub(crate) fn woken_has_locked(&self) {
        self.change(|flags| (flags & !WOKEN) | if flags & QUEUED != 0 { ATTENTION } else { 0 });
    }

    /// The owner gives the mutex back.
    #[inline(always)]
    pub(crate) fn release(&self) -> Release {
        // Relaxed: only the caller, as the owner, changes the word.
        if self.owner.load(Ordering::Relaxed) == 0 {
            return Release::NotLocked;
        }
        if self.flags.load(Ordering::Relaxed) & ATTENTION != 0 {
            return Release::Look;
        }
        // Release: pairs with the acquire of whoever takes it next.
        self.owner.store(0, Ordering::Release);
        // Pairs with the heavy barrier in `raise`.
        light_barrier();
        if self.flags.load(Ordering::Relaxed) & ATTENTION != 0 {
            return Release::Wake;
        }
        Release::Done
    }

    /// By the owner: whether it came before somebody who was woken, and who may be
    /// waiting for its turn to run.
    #[inline(always)]
    pub(crate) fn is_contended(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & WOKEN != 0
    }

    /// With the queue's lock, by the owner: it wants to queue behind the others, and
    /// to release the mutex then. False if there is nobody to give way to.
    pub(crate) fn give_way(&self) -> bool {
        self.change(|flags| if flags & WOKEN != 0 { flags | QUEUED } else { flags }) & WOKEN != 0
    }

    /// Makes the next release look at the queue. `woken`: `WOKEN` is the caller's,
    /// and is given up.
    pub(crate) fn raise(&self, woken: bool) {
        self.change(|flags| (flags & !if woken { WOKEN } else { 0 }) | ATTENTION);
        // Pairs with the light one in `release`.
        heavy_barrier();
    }

    /// With the queue's lock: the caller wants to queue. `starving`: and has waited
    /// too long.
    pub(crate) fn enqueue(&self, starving: bool) -> Enqueue {
        if self.owner.load(Ordering::Relaxed) == 0 {
            return Enqueue::Free;
        }
        let queued = QUEUED | if starving { STARVING | ATTENTION } else { 0 };
        let mut flags = self.flags.load(Ordering::Relaxed);
        loop {
            // Whoever starves makes the next release hand over, for which
            // somebody else's `WOKEN` is not enough.
            let responsible = if starving { ATTENTION } else { ATTENTION | WOKEN };
            if flags & responsible == 0 {
                return Enqueue::Raise;
            }
            // Relaxed: the queue's lock orders what those who look at it read.
            match self.flags.compare_exchange_weak(
                flags,
                flags | queued,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Enqueue::Queued,
                Err(now) => flags = now,
            }
        }
    }

    /// With the queue's lock: the caller has left the queue and was not woken.
    pub(crate) fn left(&self, more: bool) {
        if !more {
            self.flags.fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
    }

    /// With the queue's lock, by the owner: whether to hand over.
    pub(crate) fn is_starving(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & STARVING != 0
    }

    /// With the queue's lock, by the owner: the mutex is free.
    pub(crate) fn free(&self) {
        // Release: as in `release`.
        self.owner.store(0, Ordering::Release);
    }

    /// With the queue's lock, of a mutex that the caller has given back: whether
    /// to take somebody out of the queue and wake it. Then
    /// [`end_wake`](Self::end_wake) follows; otherwise somebody is awake already.
    pub(crate) fn begin_wake(&self) -> bool {
        self.change(|flags| if flags & WOKEN != 0 { flags & !ATTENTION } else { flags }) & WOKEN
            == 0
    }

    /// With the queue's lock: whether there was somebody, who has `WOKEN` from now
    /// on, and whether more are queued.
    pub(crate) fn end_wake(&self, some: bool, more: bool) {
        self.change(|flags| {
            let keep = flags & if more { QUEUED | STARVING } else { 0 };
            keep | if some { WOKEN } else { 0 }
        });
    }

    /// With the queue's lock, by the owner: `next`, out of the queue, is the owner
    /// now; nobody is if there was none. `more` are queued, and `starving` says
    /// whether the mode stays.
    pub(crate) fn hand_over(&self, next: Option<NonZeroUsize>, more: bool, starving: bool) {
        self.change(|flags| {
            let mode = if starving { STARVING } else { 0 };
            (flags & WOKEN) | if more { QUEUED | ATTENTION | mode } else { 0 }
        });
        // Release: pairs with the acquire in `is_owned_by`.
        self.owner.store(next.map_or(0, NonZeroUsize::get), Ordering::Release);
    }

    /// Whether the caller, who was woken, has been made the owner.
    #[inline]
    pub(crate) fn is_owned_by(&self, me: NonZeroUsize) -> bool {
        // Acquire: pairs with the release in `hand_over`.
        self.owner.load(Ordering::Acquire) == me.get()
    }

    /// Who holds it, as of some recent moment.
    #[inline]
    pub(crate) fn owner(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.owner.load(Ordering::Relaxed))
    }

    /// Changes the flags in one step. Returns what they were.
    fn change(&self, to: impl Fn(u32) -> u32) -> u32 {
        // Relaxed: what they stand for is ordered by the queue's lock, by `owner`
        // and by the barriers.
        let mut flags = self.flags.load(Ordering::Relaxed);
        loop {
            match self.flags.compare_exchange_weak(
                flags,
                to(flags),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(before) => return before,
                Err(now) => flags = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use loom::sync::{Arc, Mutex};
    use std::collections::VecDeque;

    struct World {
        word: MutexWord,
        queue: Mutex<VecDeque<usize>>,
        beds: Vec<Bed>,
        data: Plain<u32>,
    }

    fn word_of(i: usize) -> NonZeroUsize {
        NonZeroUsize::new(i + 1).unwrap()
    }

    impl World {
        fn new(threads: usize) -> Arc<World> {
            Arc::new(World {
                word: MutexWord::new(),
                queue: Mutex::new(VecDeque::new()),
                beds: (0..threads).map(|_| Bed::new()).collect(),
                data: Plain::new(0),
            })
        }

        /// `RawMutex::lock`; whoever was woken in vain starves, if `starves`.
        /// Whoever comes before one that was woken gives way, once.
        fn lock(&self, me: usize, starves: bool) {
            let (mut woken, mut starving, mut gave_way) = (false, false, false);
            loop {
                if self.word.try_lock(word_of(me)).is_ok() {
                    if woken {
                        self.word.woken_has_locked();
                    } else if !gave_way && self.word.is_contended() {
                        gave_way = true;
                        let mut queue = self.queue.lock().unwrap();
                        if self.word.give_way() {
                            queue.push_back(me);
                            drop(queue);
                            self.unlock();
                            self.beds[me].sleep();
                            if self.word.is_owned_by(word_of(me)) {
                                return;
                            }
                            woken = true;
                            continue;
                        }
                    }
                    return;
                }
                if woken {
                    self.word.raise(true);
                    woken = false;
                }
                let mut queue = self.queue.lock().unwrap();
                match self.word.enqueue(starving) {
                    Enqueue::Queued => {}
                    Enqueue::Free => {
                        drop(queue);
                        loom::thread::yield_now();
                        continue;
                    }
                    Enqueue::Raise => {
                        drop(queue);
                        self.word.raise(false);
                        continue;
                    }
                }
                if starving {
                    queue.push_front(me)
                } else {
                    queue.push_back(me)
                }
                drop(queue);
                self.beds[me].sleep();
                if self.word.is_owned_by(word_of(me)) {
                    return;
                }
                woken = true;
                starving = starves;
            }
        }

        /// `RawMutex::unlock`.
        fn unlock(&self) {
            let held = match self.word.release() {
                Release::Done => return,
                Release::NotLocked => panic!("not locked"),
                Release::Wake => false,
                Release::Look => true,
            };
            let mut queue = self.queue.lock().unwrap();
            let first = if held && self.word.is_starving() {
                let first = queue.pop_front();
                self.word.hand_over(first.map(word_of), !queue.is_empty(), true);
                first
            } else {
                if held {
                    self.word.free();
                }
                if !self.word.begin_wake() {
                    return;
                }
                let first = queue.pop_front();
                self.word.end_wake(first.is_some(), !queue.is_empty());
                first
            };
            drop(queue);
            if let Some(first) = first {
                self.beds[first].wake();
            }
        }

        fn add_one(&self, me: usize, starves: bool) {
            self.lock(me, starves);
            self.data.set(self.data.get() + 1);
            self.unlock();
        }
    }

    /// `threads` lock so often each, and every one of them comes to its end.
    fn contend(threads: usize, rounds: usize, starves: bool, preemptions: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(move || {
            let world = World::new(threads);
            let others: Vec<_> = (1..threads)
                .map(|me| {
                    let world = world.clone();
                    loom::thread::spawn(move || {
                        (0..rounds).for_each(|_| world.add_one(me, starves));
                    })
                })
                .collect();
            (0..rounds).for_each(|_| world.add_one(0, starves));
            others.into_iter().for_each(|other| other.join().unwrap());
            world.lock(0, starves);
            assert_eq!(world.data.get() as usize, threads * rounds);
            assert!(world.queue.lock().unwrap().is_empty());
        });
    }

    #[test]
    fn two_contend() {
        contend(2, 2, false, 4);
    }

    #[test]
    fn three_contend() {
        contend(3, 1, false, 3);
    }

    #[test]
    fn three_contend_and_starve() {
        contend(3, 1, true, 3);
    }

    #[test]
    fn two_contend_and_starve() {
        contend(2, 2, true, 4);
    }

    /// A waiter that leaves the queue while the mutex is released.
    #[test]
    fn release_against_a_waiter_that_leaves() {
        loom::model(|| {
            let world = World::new(2);
            world.lock(0, false);
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.word.raise(false);
                    let mut queue = world.queue.lock().unwrap();
                    if world.word.enqueue(false) != Enqueue::Queued {
                        return;
                    }
                    queue.push_back(1);
                    drop(queue);
                    let mut queue = world.queue.lock().unwrap();
                    if queue.pop_front().is_some() {
                        world.word.left(!queue.is_empty());
                        return;
                    }
                    drop(queue);
                    // It was taken out: it goes on as one that was woken.
                    world.beds[1].sleep();
                    if world.word.try_lock(word_of(1)).is_ok() {
                        world.word.woken_has_locked();
                        world.unlock();
                    } else {
                        panic!("nobody else has it");
                    }
                })
            };
            world.unlock();
            waiter.join().unwrap();
            world.lock(0, false);
            world.unlock();
            assert_eq!(world.word.flags.load(Ordering::Relaxed) & (QUEUED | WOKEN), 0);
        });
    }
}
