//! The word of a mutex: who holds it, and what its release must do.
//!
//! | bits | meaning |
//! |---|---|
//! | the rest | the owner's word ([`OWNER_ALIGN`] says which bits it leaves free), or 0 |
//! | 1 `STARVING` | a waiter has waited too long: the mutex is handed over in order |
//! | 2 `QUEUED` | the queue is not empty |
//! | 3 `WOKEN` | somebody who wants the mutex is awake: no need to wake another |
//!
//! `QUEUED` and `STARVING` change only with the queue's lock held, so that they
//! agree with the queue. `WOKEN` belongs to one contender at a time, who gives it
//! up in the same step in which it takes the mutex or goes to sleep again.
//!
//! Two modes, as in Go. *Normal*: the mutex is free as soon as it is released,
//! and one waiter is woken to compete for it with those who come by; whoever
//! already runs wins, which is fast. *Starving*: the release makes the first
//! waiter the owner, and those who come by queue behind the others.
//!
//! No wake-up is lost: a waiter sets `QUEUED` in a step in which the mutex has an
//! owner, so that owner's release comes later and sees it. The release then
//! leaves a `WOKEN` contender behind. It takes the mutex, and its own release
//! sees `QUEUED`; or it goes back to sleep, by a step that sees an owner again.

use crate::prim::atomic::{AtomicUsize, Ordering};
use std::num::NonZeroUsize;

const STARVING: usize = 1 << 1;
const QUEUED: usize = 1 << 2;
const WOKEN: usize = 1 << 3;
const FLAGS: usize = STARVING | QUEUED | WOKEN;

/// The alignment that makes an address, with or without its lowest bit set, the
/// word of an owner.
pub(crate) const OWNER_ALIGN: usize = 16;

/// What a contender has seen.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Attempt {
    /// It has the mutex now.
    Locked,
    /// This owner has it.
    Held {
        /// Who.
        owner: usize,
        /// In starvation mode: competing is in vain.
        starving: bool,
    },
}

/// What a release has done, and what is left to do.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Release {
    /// The mutex is free.
    Done,
    /// It is free, and somebody who is awake wants it.
    Contended,
    /// It is free: wake the first waiter, and say so with
    /// [`popped`](MutexWord::popped).
    Wake,
    /// It is still held: give it to the first waiter by
    /// [`hand_over`](MutexWord::hand_over).
    HandOver,
    /// Nobody held it.
    NotLocked,
}

/// The word.
#[derive(Debug)]
pub(crate) struct MutexWord {
    word: AtomicUsize,
}

impl MutexWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        MutexWord { word: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        MutexWord { word: AtomicUsize::new(0) }
    }

    /// Takes a mutex that nobody holds or wants.
    #[inline(always)]
    pub(crate) fn lock_fast(&self, me: NonZeroUsize) -> bool {
        debug_assert_eq!(me.get() & FLAGS, 0);
        // Acquire: pairs with the release of whoever held it last.
        self.word.compare_exchange(0, me.get(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases one that nobody else wants. False: [`release`](Self::release) it.
    #[inline(always)]
    pub(crate) fn unlock_fast(&self) -> bool {
        // Relaxed: only the caller, as the owner, changes the owner's bits.
        let word = self.word.load(Ordering::Relaxed);
        // Release: pairs with the acquire of whoever takes it next.
        word != 0
            && word & FLAGS == 0
            && self.word.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex if it is free. `woken`: `WOKEN` is the caller's.
    #[inline]
    pub(crate) fn attempt(&self, me: NonZeroUsize, woken: bool) -> Attempt {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let owner = word & !FLAGS;
            if owner != 0 {
                return Attempt::Held { owner, starving: word & STARVING != 0 };
            }
            let mine = (word | me.get()) & !(if woken { WOKEN } else { 0 });
            // Acquire: as in `lock_fast`.
            match self.word.compare_exchange_weak(word, mine, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Attempt::Locked,
                Err(now) => word = now,
            }
        }
    }

    /// A contender that stays awake for a while says so, that no other is woken
    /// meanwhile. Returns whether `WOKEN` is its own now.
    pub(crate) fn stay_awake(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // Relaxed: it guards nothing by itself.
        word & FLAGS == QUEUED
            && word & !FLAGS != 0
            && self
                .word
                .compare_exchange(word, word | WOKEN, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// With the queue's lock: the caller is going to queue. False if the mutex is
    /// free, and should be tried again.
    pub(crate) fn enqueue(&self, woken: bool, starving: bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & !FLAGS == 0 {
                return false;
            }
            let queued = (word & !(if woken { WOKEN } else { 0 }))
                | QUEUED
                | if starving { STARVING } else { 0 };
            // Relaxed: the queue's lock orders what the releaser reads.
            match self.word.compare_exchange_weak(
                word,
                queued,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// With the queue's lock: the caller has left the queue and was not woken.
    pub(crate) fn left(&self, more: bool) {
        if !more {
            self.word.fetch_and(!(QUEUED | STARVING), Ordering::Relaxed);
        }
    }

    /// The owner releases a mutex that others may want.
    #[inline]
    pub(crate) fn release(&self) -> Release {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & !FLAGS == 0 {
                return Release::NotLocked;
            }
            let (free, answer) = match word & FLAGS {
                flags if flags & STARVING != 0 => return Release::HandOver,
                QUEUED => (QUEUED | WOKEN, Release::Wake),
                flags if flags & WOKEN != 0 => (flags, Release::Contended),
                flags => (flags, Release::Done),
            };
            // Release: pairs with the acquire in `attempt`.
            match self.word.compare_exchange_weak(word, free, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }

    /// With the queue's lock, after [`Release::Wake`]: whether there was somebody
    /// to wake, who then has `WOKEN`, and whether more are queued.
    pub(crate) fn popped(&self, some: bool, more: bool) {
        let keep = if some { WOKEN } else { 0 } | if more { QUEUED } else { 0 };
        if keep != WOKEN | QUEUED {
            self.word.fetch_and(!(WOKEN | QUEUED) | keep, Ordering::Relaxed);
        }
    }

    /// With the queue's lock, after [`Release::HandOver`]: `next`, out of the
    /// queue, is the owner now; nobody is if there was none. `more` are queued,
    /// and `starving` says whether the mode stays.
    pub(crate) fn hand_over(&self, next: Option<NonZeroUsize>, more: bool, starving: bool) {
        let flags = match more {
            true if starving => QUEUED | STARVING,
            true => QUEUED,
            false => 0,
        };
        // Nobody else changes a word with an owner, in this mode and without the
        // lock. Release: pairs with the acquire in `is_owned_by`.
        self.word.store(next.map_or(0, NonZeroUsize::get) | flags, Ordering::Release);
    }

    /// Whether the caller, who was woken, has been made the owner.
    #[inline]
    pub(crate) fn is_owned_by(&self, me: NonZeroUsize) -> bool {
        // Acquire: pairs with the release in `hand_over`.
        self.word.load(Ordering::Acquire) & !FLAGS == me.get()
    }

    /// Who holds it, as of some recent moment.
    pub(crate) fn owner(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.word.load(Ordering::Relaxed) & !FLAGS)
    }
}
