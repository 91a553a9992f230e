//! A latch: the lock around a few instructions.
//!
//! For what many goroutines share and hold for some nanoseconds, such as the
//! state of a channel. Nobody sleeps at a latch. Who finds it taken waits a little
//! longer before each look, and if that lasts, because the kernel has stopped the
//! holder's thread, gives the CPU away.
//!
//! Whoever holds a latch runs no user code, does not block, and takes no other
//! lock; several latches only in the order of their addresses.
//!
//! # Bias
//!
//! Taking a lock is one atomic read-modify-write, which costs more than all that
//! a channel does under it (10 of 12 ns on the machine that this was written on).
//! Goroutines that talk to each other mostly run on one P, so most latches are
//! taken by the same thread over and over. Such a latch is *biased* to that
//! thread: it then enters with a plain store and a plain load, and another thread
//! that comes pays for the fence on both sides (an asymmetric pair:
//! membarrier(2), about 10 µs), takes the bias away, and doubles the number of
//! times in a row after which the latch is biased again. So the price of a bias
//! that was taken away is less than what it had saved or will save.
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `word` | `FREE`, `HELD` | held by a thread without the bias |
//! | `owner` | 0, a thread | who has the bias |
//! | `inside` | 0, 1 | the owner holds the latch, or looks whether it may |
//!
//! # Waiting
//!
//! Each look takes the cache line away from the holder, who needs it back for the next
//! message, and with it go the lines of what the latch guards: two threads that take
//! turns at every message pay for that at every message. One that stays away for a
//! microsecond or two lets the other do dozens in a row, and then does dozens itself. So
//! who waits looks half as often each time (eight goroutines that send and eight that
//! receive, on two CPUs: 130 ns a message if all look all the time, 28 so, and 12 on one).
//!
//! # Why only one holds it
//!
//! The owner: store `inside = 1`, light barrier, load `owner`; if that is the
//! owner, it holds the latch. Another: take `word`; if there is an owner, store
//! `owner = 0`, heavy barrier, wait until `inside` is 0; then it holds the latch.
//! The barriers forbid that both miss the other: the owner sees that it is none
//! any more, or the other sees it inside and waits. `owner` is written only with
//! `word` held, so others exclude each other.
//!
//! `inside` has one writer: an owner, or a former one, which looked when it was
//! the owner, was stopped by the kernel, and comes late, only to see that it is
//! none any more. Such a one would clear the `inside` of the next owner. So there
//! is no next owner before the former one has taken `word`: then it is past that.

use super::atomic::{AtomicU32, AtomicUsize, Ordering, heavy_barrier, light_barrier};
use super::hint;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How many pauses there are between two looks at most, some 4 µs here: with half as
/// many it takes a fifth longer, with more no less. Once there are so many, the CPU is given
/// away before each look.
#[cfg(not(loom))]
const PAUSES: u32 = 256;
/// A pause there is a look at all that the others may do.
#[cfg(loom)]
const PAUSES: u32 = 1;

/// After how many times in a row a latch is biased, at first: a bias that is
/// taken away costs about a thousand times what it saves each time.
const STREAK: u32 = 256;

/// Nobody: a thread that is none of the scheduler's gets no bias.
const NOBODY: usize = 0;

/// How a latch was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Taken {
    /// By its owner.
    Biased,
    /// By anybody.
    Word,
}

/// The words of a latch: all that taking it needs, whatever it guards.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Words {
    owner: AtomicUsize,
    inside: AtomicU32,
    word: AtomicU32,
    /// Who took `word` last, how often in a row, and how often it takes. Written
    /// with `word` held.
    last: AtomicUsize,
    streak: AtomicU32,
    needed: AtomicU32,
    /// Who had the bias and has not taken `word` since it lost it: it may still
    /// write `inside`. Written with `word` held.
    former: AtomicUsize,
    #[cfg(sim)]
    number: usize,
}

impl Words {
    /// The order in which those who need several take them. By address; but a simulated
    /// run is to be the same again.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn order(&self) -> usize {
        #[cfg(sim)]
        return self.number;
        #[cfg(not(sim))]
        std::ptr::from_ref(self).addr()
    }

    fn new() -> Self {
        Words {
            #[cfg(sim)]
            number: super::env::serial(),
            owner: AtomicUsize::new(NOBODY),
            inside: AtomicU32::new(0),
            word: AtomicU32::new(FREE),
            last: AtomicUsize::new(NOBODY),
            streak: AtomicU32::new(0),
            needed: AtomicU32::new(STREAK),
            former: AtomicUsize::new(NOBODY),
        }
    }

    /// Takes the latch without a guard.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn acquire(&self) -> Taken {
        self.take(me())
    }

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// The caller has taken it without a guard, in this way, and not given back.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) unsafe fn release(&self, taken: Taken) {
        self.give_back(taken);
    }

    #[inline(always)]
    fn take(&self, me: usize) -> Taken {
        #[cfg(not(loom))]
        super::lock::check_allowed();
        // Relaxed: only this thread can have made itself the owner, and whether
        // it still is one is asked again below.
        if me != NOBODY && self.owner.load(Ordering::Relaxed) == me && self.enter(me) {
            return Taken::Biased;
        }
        if !self.try_take() {
            self.wait();
        }
        self.note(me);
        Taken::Word
    }

    #[inline(always)]
    fn give_back(&self, taken: Taken) {
        // Release: pairs with the acquire in `revoke`, and in `try_take`.
        match taken {
            Taken::Biased => self.inside.store(0, Ordering::Release),
            Taken::Word => self.word.store(FREE, Ordering::Release),
        }
    }

    /// The owner enters, if it still is the owner.
    #[inline(always)]
    fn enter(&self, me: usize) -> bool {
        self.inside.store(1, Ordering::Relaxed);
        light_barrier();
        // Pairs with the store and the heavy barrier in `revoke`. What others did
        // under the latch before it was biased, this thread has seen when it
        // took `word` to become the owner.
        if self.owner.load(Ordering::Relaxed) == me {
            return true;
        }
        self.inside.store(0, Ordering::Release);
        false
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the release in `give_back`.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// With `word`: looks after the bias.
    #[inline(always)]
    fn note(&self, me: usize) {
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.revoke();
        }
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
            self.streak.store(0, Ordering::Relaxed);
            // Whoever took the bias away came in between, so that a former owner
            // is never the last one.
            if self.former.load(Ordering::Relaxed) == me {
                self.former.store(NOBODY, Ordering::Relaxed);
            }
            return;
        }
        let streak = self.streak.load(Ordering::Relaxed) + 1;
        self.streak.store(streak, Ordering::Relaxed);
        if streak >= self.needed.load(Ordering::Relaxed) {
            self.bias(me);
        }
    }

    #[cold]
    fn bias(&self, me: usize) {
        self.streak.store(0, Ordering::Relaxed);
        if self.former.load(Ordering::Relaxed) != NOBODY {
            return;
        }
        // Relaxed: whoever takes `word` after this sees it; `me` may be NOBODY.
        self.owner.store(me, Ordering::Relaxed);
    }

    /// Takes the bias away from the owner, who may be inside.
    #[cold]
    #[inline(never)]
    fn revoke(&self) {
        self.former.store(self.owner.load(Ordering::Relaxed), Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Relaxed);
        heavy_barrier();
        let mut looks = Looks::new();
        // Acquire: pairs with the release in `give_back`.
        while self.inside.load(Ordering::Acquire) != 0 {
            looks.pause();
        }
        let needed = self.needed.load(Ordering::Relaxed);
        self.needed.store(needed.saturating_mul(2), Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut looks = Looks::new();
        loop {
            looks.pause();
            // A look leaves the holder a copy of the cache line, an attempt does not.
            if self.word.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
        }
    }
}

/// The looks of one who waits for a few instructions of another's, each after twice as many
/// pauses as the one before. Also for other words that are locked as latches are: whoever
/// waits too long says so here.
pub(crate) struct Looks {
    pauses: u32,
    /// How often the CPU was given away.
    gave_way: u32,
}

impl Looks {
    pub(crate) fn new() -> Self {
        Looks { pauses: 1, gave_way: 0 }
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        (0..self.pauses).for_each(|_| hint::spin_loop());
        if self.pauses < PAUSES {
            self.pauses *= 2;
            return;
        }
        self.gave_way += 1;
        #[cfg(not(loom))]
        if self.gave_way.is_multiple_of(STUCK_AFTER) {
            STUCK.fetch_add(1, Ordering::Relaxed);
        }
        hint::give_way();
    }
}

/// After how often somebody says that it waits too long, some milliseconds: a
/// holder that the kernel has stopped is back by then.
#[cfg(not(loom))]
const STUCK_AFTER: u32 = 400;

#[cfg(not(loom))]
static STUCK: AtomicU32 = AtomicU32::new(0);

/// How often somebody has waited too long at a latch. Its holder may have been
/// stopped on purpose, and whoever does that looks at this.
#[cfg(not(loom))]
pub(crate) fn stuck() -> u32 {
    STUCK.load(Ordering::Relaxed)
}

/// The calling thread, for the bias.
#[inline(always)]
fn me() -> usize {
    #[cfg(not(loom))]
    return super::thread::slot().addr();
    #[cfg(loom)]
    return NOBODY;
}

/// A value that one thread at a time sees.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Latch<T> {
    words: Words,
    /// Models of what uses latches do not spin: those who wait would keep each
    /// other busy forever.
    #[cfg(loom)]
    turnstile: loom::sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder touches the value, and holders come one after the
// other, each seeing what the last one did.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(crate) fn new(value: T) -> Self {
        Latch {
            words: Words::new(),
            #[cfg(loom)]
            turnstile: loom::sync::Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        #[cfg(loom)]
        let turnstile = self.turnstile.lock().unwrap();
        Held {
            latch: self,
            taken: self.words.take(me()),
            #[cfg(loom)]
            value: Some(self.value.get_mut()),
            #[cfg(loom)]
            _turnstile: turnstile,
        }
    }

    /// For whoever takes it without a guard.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// The value of a latch that was taken without a guard.
    ///
    /// # Safety
    ///
    /// The caller has the latch, and no other reference to the value.
    #[cfg(not(loom))]
    #[allow(clippy::mut_from_ref)] // that is what a latch is for
    #[inline]
    pub(crate) unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }
}

/// The right to the value of a [`Latch`].
pub(crate) struct Held<'a, T> {
    latch: &'a Latch<T>,
    taken: Taken,
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
    #[cfg(loom)]
    _turnstile: loom::sync::MutexGuard<'a, ()>,
}

impl<T> Held<'_, T> {
    #[cfg(not(loom))]
    #[inline(always)]
    fn value(&self) -> *mut T {
        self.latch.value.get()
    }

    #[cfg(loom)]
    fn value(&self) -> *mut T {
        match &self.value {
            // SAFETY: the latch is held.
            Some(value) => unsafe { value.deref() },
            None => unreachable!("taken by drop alone"),
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the latch is held.
        unsafe { &*self.value() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the latch is held.
        unsafe { &mut *self.value() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take());
        self.latch.words.give_back(self.taken);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let latch = Latch::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *latch.lock() += 1));
            }
        });
        assert_eq!(*latch.lock(), 40_000);
    }

    /// A thread that has the bias against threads that take it away, with and
    /// without a guard.
    #[test]
    fn one_at_a_time_with_bias() {
        let words = Words::new();
        let (mut count, rounds) = (0u64, 20_000);
        let shared = &raw mut count as usize;
        let add = |me: usize| {
            let taken = words.take(me);
            let count = std::ptr::with_exposed_provenance_mut::<u64>(shared);
            // SAFETY: whoever has taken the latch has the number.
            unsafe { *count += 1 };
            words.give_back(taken);
            taken == Taken::Biased
        };
        std::thread::scope(|scope| {
            for me in 1..4 {
                scope.spawn(move || (0..rounds).for_each(|_| _ = add(me)));
            }
        });
        // Those that had the bias are seen to be past it.
        [1, 2, 3, 1, 2, 3].into_iter().for_each(|me| _ = add(me));
        words.needed.store(2, Ordering::Relaxed);
        let biased = (0..rounds).filter(|_| add(9)).count();
        assert!(biased > 0, "alone, a thread gets the bias");
        assert_eq!(count, 4 * rounds + 6);
    }

    #[test]
    fn looks_get_rarer_and_the_cpu_is_given_away_at_last() {
        let mut looks = Looks::new();
        let pauses: Vec<u32> = (0..9)
            .map(|_| {
                let pauses = looks.pauses;
                looks.pause();
                assert_eq!(looks.gave_way, u32::from(pauses == PAUSES));
                pauses
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, PAUSES]);
    }

    #[test]
    fn a_bias_is_hard_to_get_back() {
        let words = Words::new();
        let often = |me, times: u32| {
            (0..times).map(|_| words.take(me)).for_each(|taken| words.give_back(taken));
        };
        often(1, STREAK);
        assert_eq!(words.owner.load(Ordering::Relaxed), NOBODY);
        often(1, 1);
        assert_eq!(words.owner.load(Ordering::Relaxed), 1);
        often(2, 1);
        assert_eq!(words.owner.load(Ordering::Relaxed), NOBODY);
        often(1, 2 * STREAK);
        assert_eq!(words.owner.load(Ordering::Relaxed), NOBODY);
        often(1, 1);
        assert_eq!(words.owner.load(Ordering::Relaxed), 1);
    }

    /// A thread that looked when it was the owner may come to enter at any time.
    #[test]
    fn no_bias_for_others_while_a_former_owner_may_come_late() {
        let words = Words::new();
        let often = |me, times: u32| {
            (0..times).map(|_| words.take(me)).for_each(|taken| words.give_back(taken));
        };
        often(1, STREAK + 1);
        assert_eq!(words.owner.load(Ordering::Relaxed), 1);
        often(2, 10 * STREAK);
        assert_eq!(words.owner.load(Ordering::Relaxed), NOBODY);
        assert!(!words.enter(1));
        often(1, 1);
        often(2, 2 * STREAK + 1);
        assert_eq!(words.owner.load(Ordering::Relaxed), 2);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    /// Without the looks of `wait`: a model's may be stale for ever.
    fn add(shared: &(Words, Plain<u32>), me: usize) {
        let words = &shared.0;
        let taken = if words.owner.load(Ordering::Relaxed) == me && words.enter(me) {
            Taken::Biased
        } else {
            while !words.try_take() {
                loom::thread::yield_now();
            }
            words.note(me);
            Taken::Word
        };
        shared.1.set(shared.1.get() + 1);
        words.give_back(taken);
    }

    fn two_threads(owner: usize, needed: u32) {
        loom::model(move || {
            let shared = Arc::new((Words::new(), Plain::new(0)));
            shared.0.owner.store(owner, Ordering::Relaxed);
            shared.0.needed.store(needed, Ordering::Relaxed);
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || add(&shared, 2))
            };
            add(&shared, 1);
            add(&shared, 1);
            other.join().unwrap();
            assert_eq!(shared.1.get(), 3);
        });
    }

    #[test]
    fn without_bias() {
        two_threads(NOBODY, STREAK);
    }

    #[test]
    fn the_owner_against_one_who_takes_the_bias() {
        two_threads(1, STREAK);
    }

    #[test]
    fn a_bias_that_comes_and_goes() {
        two_threads(NOBODY, 1);
    }

    /// One that was the owner when it looked comes to enter when another, alone
    /// for long, is inside.
    #[test]
    fn a_former_owner_that_comes_late() {
        loom::model(|| {
            let shared = Arc::new((Words::new(), Plain::new(0)));
            shared.0.last.store(1, Ordering::Relaxed);
            shared.0.owner.store(1, Ordering::Relaxed);
            shared.0.needed.store(1, Ordering::Relaxed);
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || (0..4).for_each(|_| add(&shared, 2)))
            };
            add(&shared, 1);
            other.join().unwrap();
            assert_eq!(shared.1.get(), 5);
        });
    }
}
