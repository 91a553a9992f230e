//! One direction of a descriptor, reading or writing: who waits for it, and what has
//! happened to it.
//!
//! # The word
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `LOCKED` | somebody changes the list of those who wait: a few instructions |
//! | 1 | `WAITERS` | somebody waits |
//! | 2 | `EXPIRED` | the deadline has passed: calls fail until it is set anew |
//! | 3 | `CLOSED` | calls fail |
//! | 4 | `ENDED` | the end of the stream, an error or urgent data has been announced |
//! | 5–31 | `TICK` | counts events |
//!
//! Go has four states: nil, wait (somebody is about to wait), ready (an event came
//! while nobody waited), and the goroutine. Here `WAITERS` off is nil, `LOCKED` is
//! wait, and *ready is a count*: whoever wants to wait says which count it saw before
//! it tried, and does not wait if that has changed. A flag would stay behind after
//! each event that comes while nobody waits, and the next one to wait would find it,
//! try once more in vain and only then wait: one system call in vain for most
//! requests of a busy connection.
//!
//! # Why no event is lost
//!
//! A caller loads the word (`begin`), tries the call, and if that would block, waits
//! with what it loaded (`wait`). An event that comes after the call was tried
//! changes the count: if it changes it before `wait` locks the word, the caller tries
//! again; if after, it finds the caller in the list and wakes it. An event from
//! before the call was tried needs nobody: the call has seen what it told of. The
//! same holds for `EXPIRED` and `CLOSED`.
//!
//! A goroutine would have to be stopped between its call and its wait for exactly a
//! multiple of 2^27 events to be fooled by the count.
//!
//! # Short transfers
//!
//! A read from a stream that returns less than asked has emptied the buffer: until
//! the next event there is nothing to read, and trying would be in vain. `drained`
//! remembers the count at which that was so. Not so once `ENDED` is set, since the
//! end of the stream is announced once, perhaps together with the last bytes.

use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::prim::latch::Looks;
use crate::prim::mutant::{Mutant, is};

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

const LOCKED: u32 = 1;
const WAITERS: u32 = 2;
const EXPIRED: u32 = 4;
const CLOSED: u32 = 8;
const ENDED: u32 = 16;
const TICK: u32 = 32;
const TICKS: u32 = !(TICK - 1);

/// What makes a wait begin anew.
const NEWS: u32 = TICKS | EXPIRED | CLOSED;

/// What a caller has seen of a direction before it tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u32);

/// What a caller does first.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) enum Begin {
    /// Try the call.
    Try(Seen),
    /// Wait: the call would be in vain.
    Wait(Seen),
    /// The deadline has passed.
    Expired,
    /// The descriptor was closed.
    Closed,
}

/// What a caller does whose call would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wait {
    /// Sleep; it is in the list.
    Sleep,
    /// Something has happened: begin anew.
    Again,
}

/// Those who wait behind the first. Boxed: they are rarely there, and every descriptor
/// has two.
#[allow(clippy::box_collection)]
type More<W> = Option<Box<Vec<W>>>;

/// Those who were taken out of the list: the caller wakes each.
#[derive(Debug)]
#[must_use]
pub(crate) struct Woken<W> {
    first: Option<W>,
    more: More<W>,
}

impl<W> Woken<W> {
    const fn nobody() -> Self {
        Woken { first: None, more: None }
    }

    /// In the order in which they came.
    #[inline]
    pub(crate) fn each(self, mut wake: impl FnMut(W)) {
        if let Some(first) = self.first {
            wake(first);
        }
        if let Some(more) = self.more {
            more.into_iter().for_each(wake);
        }
    }
}

/// Those who wait. One at a time is the rule; goroutines that accept from the same
/// listener are the exception.
#[derive(Debug)]
struct List<W> {
    first: Option<W>,
    more: More<W>,
}

/// One direction. `W` is one who waits.
#[derive(Debug)]
pub(crate) struct Direction<W> {
    word: AtomicU32,
    /// The count at which there was nothing more, with the lowest bit set; or 0.
    drained: AtomicU32,
    /// How often a deadline was set. Written with `LOCKED`.
    deadlines: AtomicU64,
    /// With `LOCKED`.
    list: UnsafeCell<List<W>>,
    /// Held with `LOCKED`: in models those who find it locked wait here, since two who
    /// spin would keep each other busy for ever.
    #[cfg(loom)]
    turnstile: loom::sync::Mutex<()>,
}

/// `LOCKED` is set, and what the word was before.
#[must_use]
struct Locked<'a> {
    word: u32,
    #[cfg(loom)]
    _turnstile: loom::sync::MutexGuard<'a, ()>,
    #[cfg(not(loom))]
    marker: std::marker::PhantomData<&'a ()>,
}

// SAFETY: the list is touched by whoever has set `LOCKED`; those who wait go from
// one thread to another.
unsafe impl<W: Send> Sync for Direction<W> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<W: Send> Send for Direction<W> {}

impl<W: Copy + PartialEq> Direction<W> {
    pub(crate) fn new() -> Self {
        Direction {
            word: AtomicU32::new(0),
            drained: AtomicU32::new(0),
            deadlines: AtomicU64::new(0),
            list: UnsafeCell::new(List { first: None, more: None }),
            #[cfg(loom)]
            turnstile: loom::sync::Mutex::new(()),
        }
    }

    /// A caller is about to try.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Begin {
        // Acquire: pairs with the releases of those who tick: what an event tells of
        // is there for the call that follows.
        let word = self.word.load(Ordering::Acquire);
        if word & (EXPIRED | CLOSED) != 0 {
            return if word & CLOSED != 0 { Begin::Closed } else { Begin::Expired };
        }
        // Relaxed: it says that there was nothing at some moment of this count, which
        // holds until the count changes.
        if word & ENDED == 0 && self.drained.load(Ordering::Relaxed) == word & TICKS | 1 {
            return Begin::Wait(Seen(word));
        }
        Begin::Try(Seen(word))
    }

    /// The call has transferred less than it was asked to: there is no more.
    #[inline(always)]
    pub(crate) fn note_drained(&self, seen: Seen) {
        let mut seen = seen.0;
        if is(Mutant::DrainedLater) {
            seen = self.word.load(Ordering::Relaxed);
        }
        self.drained.store(seen & TICKS | 1, Ordering::Relaxed);
    }

    /// The call would block. If nothing has happened since `seen`, `waiter` is in the
    /// list from now on.
    #[inline]
    pub(crate) fn wait(&self, seen: Seen, waiter: W) -> Wait {
        let news = if is(Mutant::IgnoreEvent) { NEWS & !TICKS } else { NEWS };
        let mut looks = Looks::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if (word ^ seen.0) & news != 0 {
                return Wait::Again;
            }
            if let Some(locked) = self.try_lock(word, &mut looks) {
                self.with_list(|list| match list.first {
                    None => list.first = Some(waiter),
                    Some(_) => list.more.get_or_insert_default().push(waiter),
                });
                self.unlock(locked, word | WAITERS);
                return Wait::Sleep;
            }
        }
    }

    /// A waiter that nobody has woken, and nobody will, is no longer interested.
    #[cold]
    pub(crate) fn leave(&self, waiter: W) {
        let locked = self.lock();
        let word = locked.word;
        let empty = self.with_list(|list| {
            if list.first == Some(waiter) {
                list.first = None;
            } else if let Some(more) = &mut list.more {
                more.retain(|other| *other != waiter);
            }
            if list.first.is_none() {
                // The next in line becomes the first.
                list.first =
                    list.more.as_mut().and_then(|more| (!more.is_empty()).then(|| more.remove(0)));
            }
            list.first.is_none()
        });
        self.unlock(locked, if empty { word & !WAITERS } else { word });
    }

    /// An event has come. `ended`: see `ENDED`.
    #[inline]
    pub(crate) fn ready(&self, ended: bool) -> Woken<W> {
        let ended = if ended { ENDED } else { 0 };
        let mut looks = Looks::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & (WAITERS | LOCKED) == 0 {
                // Release: pairs with the acquire in `begin`.
                let next = word.wrapping_add(TICK) | ended;
                let changed = self.word.compare_exchange_weak(
                    word,
                    next,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                if changed.is_ok() {
                    return Woken::nobody();
                }
            } else if let Some(locked) = self.try_lock(word, &mut looks) {
                let woken = self.take_all();
                self.unlock(locked, (word & !WAITERS).wrapping_add(TICK) | ended);
                return woken;
            }
        }
    }

    /// Whether the end, an error or urgent data has been announced.
    pub(crate) fn has_ended(&self) -> bool {
        // Relaxed: who overlooks it does not wait, since the count has changed.
        self.word.load(Ordering::Relaxed) & ENDED != 0
    }

    /// A deadline is set, which has passed already if `passed`, or there is none any
    /// more. Returns its number, for [`expire`](Self::expire), and whom to wake.
    pub(crate) fn set_deadline(&self, passed: bool) -> (u64, Woken<W>) {
        let locked = self.lock();
        let word = locked.word;
        let number = self.deadlines.load(Ordering::Relaxed) + 1;
        self.deadlines.store(number, Ordering::Relaxed);
        if passed {
            let woken = self.take_all();
            self.unlock(locked, word & !WAITERS | EXPIRED);
            (number, woken)
        } else {
            // Those who wait go on waiting, for the new one.
            self.unlock(locked, word & !EXPIRED);
            (number, Woken::nobody())
        }
    }

    /// The deadline with this number has come. Nothing happens if another was set
    /// since.
    pub(crate) fn expire(&self, number: u64) -> Woken<W> {
        let locked = self.lock();
        let word = locked.word;
        if self.deadlines.load(Ordering::Relaxed) != number && !is(Mutant::AnyDeadline) {
            self.unlock(locked, word);
            return Woken::nobody();
        }
        let woken = if is(Mutant::ExpireListed) {
            self.with_list(|list| Woken { first: list.first, more: None })
        } else {
            self.take_all()
        };
        self.unlock(locked, word & !WAITERS | EXPIRED);
        woken
    }

    /// Whether the deadline with this number is the last that was set.
    pub(crate) fn is_deadline(&self, number: u64) -> bool {
        self.deadlines.load(Ordering::Relaxed) == number
    }

    /// Calls fail from now on.
    pub(crate) fn close(&self) -> Woken<W> {
        let locked = self.lock();
        let word = locked.word;
        let woken = self.take_all();
        let closed = if is(Mutant::ForgetClosed) { 0 } else { CLOSED };
        self.unlock(locked, word & !WAITERS | closed);
        woken
    }

    /// For another descriptor. Nobody waits and nobody calls; a late event or a late
    /// deadline of the one before may still come, which does no harm: the count goes
    /// on, and so do the deadlines' numbers.
    pub(crate) fn reset(&self) {
        let locked = self.lock();
        let word = locked.word;
        self.deadlines.store(self.deadlines.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
        let woken = self.take_all();
        debug_assert!(woken.first.is_none(), "somebody waits for a descriptor that is gone");
        self.unlock(locked, (word & TICKS).wrapping_add(TICK));
    }

    /// Whether somebody waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Takes the lock if the word still is `word`; waits a little if not.
    #[inline(always)]
    fn try_lock(&self, word: u32, looks: &mut Looks) -> Option<Locked<'_>> {
        #[cfg(loom)]
        let _turnstile = self.turnstile.lock().unwrap();
        // Acquire: pairs with the release in `unlock`.
        if word & LOCKED == 0
            && self
                .word
                .compare_exchange_weak(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return Some(Locked {
                word,
                #[cfg(loom)]
                _turnstile,
                #[cfg(not(loom))]
                marker: std::marker::PhantomData,
            });
        }
        looks.pause();
        None
    }

    fn lock(&self) -> Locked<'_> {
        let mut looks = Looks::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if let Some(locked) = self.try_lock(word, &mut looks) {
                return locked;
            }
        }
    }

    /// Nobody but the holder changes a locked word, so this is a plain store.
    #[inline(always)]
    fn unlock(&self, locked: Locked<'_>, word: u32) {
        debug_assert_eq!(word & LOCKED, 0);
        self.word.store(word, Ordering::Release);
        drop(locked);
    }

    #[inline(always)]
    fn take_all(&self) -> Woken<W> {
        self.with_list(|list| Woken { first: list.first.take(), more: list.more.take() })
    }

    #[inline(always)]
    fn with_list<R>(&self, f: impl FnOnce(&mut List<W>) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: the caller has set `LOCKED`, so it alone touches the list.
        return f(unsafe { &mut *self.list.get() });
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.list.with_mut(|list| f(unsafe { &mut *list }));
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::prim::latch;

    fn seen(direction: &Direction<u32>) -> Seen {
        match direction.begin() {
            Begin::Try(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn all(woken: Woken<u32>) -> Vec<u32> {
        let mut all = Vec::new();
        woken.each(|w| all.push(w));
        all
    }

    #[test]
    fn an_event_between_the_call_and_the_wait_is_seen() {
        let direction = Direction::new();
        let before = seen(&direction);
        assert_eq!(all(direction.ready(false)), []);
        assert_eq!(direction.wait(before, 1), Wait::Again);
        assert_eq!(direction.wait(seen(&direction), 1), Wait::Sleep);
        assert!(direction.has_waiters());
        assert_eq!(all(direction.ready(false)), [1]);
        assert!(!direction.has_waiters());
    }

    /// sysmon lets frozen goroutines go then: one of them may have the lock.
    #[test]
    fn who_waits_too_long_for_the_lock_says_so() {
        let (direction, before) = (Direction::<u32>::new(), latch::stuck());
        std::thread::scope(|scope| {
            let locked = direction.lock();
            let other = scope.spawn(|| direction.leave(1));
            while latch::stuck() == before {
                std::thread::yield_now();
            }
            let word = locked.word;
            direction.unlock(locked, word);
            other.join().unwrap();
        });
    }

    #[test]
    fn an_event_that_nobody_waited_for_costs_no_second_try() {
        let direction = Direction::new();
        assert_eq!(all(direction.ready(false)), []);
        assert_eq!(direction.wait(seen(&direction), 1), Wait::Sleep);
    }

    #[test]
    fn several_wait_and_some_leave() {
        let direction = Direction::new();
        for waiter in 1..=4 {
            assert_eq!(direction.wait(seen(&direction), waiter), Wait::Sleep);
        }
        direction.leave(1);
        direction.leave(3);
        direction.leave(7);
        assert_eq!(all(direction.ready(false)), [2, 4]);
        assert_eq!(direction.wait(seen(&direction), 5), Wait::Sleep);
        direction.leave(5);
        assert!(!direction.has_waiters());
    }

    #[test]
    fn deadlines_expire_by_their_number() {
        let direction = Direction::new();
        let (first, woken) = direction.set_deadline(false);
        assert_eq!(all(woken), []);
        assert_eq!(direction.wait(seen(&direction), 1), Wait::Sleep);
        let (second, woken) = direction.set_deadline(false);
        assert_eq!(all(woken), []);
        assert_eq!(all(direction.expire(first)), [], "another was set since");
        assert!(direction.is_deadline(second) && !direction.is_deadline(first));
        assert_eq!(all(direction.expire(second)), [1]);
        assert!(matches!(direction.begin(), Begin::Expired));
        let _ = direction.set_deadline(false);
        let before = seen(&direction);
        assert_eq!(all(direction.set_deadline(true).1), []);
        assert_eq!(direction.wait(before, 1), Wait::Again);
        assert!(matches!(direction.begin(), Begin::Expired));
    }

    #[test]
    fn a_closed_one_stays_closed_until_it_is_another() {
        let direction = Direction::new();
        assert_eq!(direction.wait(seen(&direction), 1), Wait::Sleep);
        assert_eq!(all(direction.close()), [1]);
        assert!(matches!(direction.begin(), Begin::Closed));
        assert_eq!(all(direction.ready(true)), []);
        assert!(matches!(direction.begin(), Begin::Closed));
        direction.reset();
        assert_eq!(direction.wait(seen(&direction), 1), Wait::Sleep);
    }

    #[test]
    fn a_short_transfer_spares_the_next_try_until_the_next_event() {
        let direction = Direction::<u32>::new();
        direction.note_drained(seen(&direction));
        assert!(matches!(direction.begin(), Begin::Wait(_)));
        assert_eq!(all(direction.ready(false)), []);
        direction.note_drained(seen(&direction));
        assert!(matches!(direction.begin(), Begin::Wait(_)));
        // The end of a stream is told once.
        assert_eq!(all(direction.ready(true)), []);
        direction.note_drained(seen(&direction));
        assert!(matches!(direction.begin(), Begin::Try(_)));
    }
}
