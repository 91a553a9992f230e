//! Whoever waits: a goroutine parks, a plain OS thread sleeps.

use super::g::{G, WaitReason};
use super::m;
use super::park;
use crate::context::Resume;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::note::Note;
use crate::prim::thread;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::ptr;

/// One who waits, in a word: a G, or with the lowest bit set a thread's note.
/// Neither is ever freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter(NonZeroUsize);

const THREAD: usize = 1;

/// OS threads that sleep here until a goroutine wakes them (see
/// `sysmon::check_dead`).
static SLEEPING_THREADS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn sleeping_threads() -> isize {
    // Negative for a moment when a wake-up comes before its sleep.
    SLEEPING_THREADS.load(Ordering::SeqCst) as isize
}

impl Waiter {
    /// The caller.
    pub(crate) fn current() -> Waiter {
        let word = match m::current_g() {
            Some(g) => ptr::from_ref(g).expose_provenance(),
            None => ptr::from_ref(thread::note()).expose_provenance() | THREAD,
        };
        match NonZeroUsize::new(word) {
            Some(word) => Waiter(word),
            None => unreachable!("references are not null"),
        }
    }

    pub(crate) fn word(self) -> NonZeroUsize {
        self.0
    }

    /// The waiter that [`word`](Self::word) came from.
    pub(crate) fn from_word(word: NonZeroUsize) -> Waiter {
        Waiter(word)
    }

    /// The caller, whose waiter this is, sleeps until [`wake`](Self::wake).
    ///
    /// # Unwinding
    ///
    /// As [`park::park`].
    pub(crate) fn sleep(self, reason: WaitReason, site: &'static Location<'static>) {
        if self.0.get() & THREAD == 0 {
            return park::park(reason, site);
        }
        SLEEPING_THREADS.fetch_add(1, Ordering::SeqCst);
        self.note().sleep();
    }

    /// The note of a plain thread's waiter.
    fn note(self) -> &'static Note {
        let address = self.0.get() & !THREAD;
        // SAFETY: the word of a thread's waiter is the address of its note, and
        // notes are never freed.
        unsafe { &*ptr::with_exposed_provenance::<Note>(address) }
    }

    /// Like [`sleep`](Self::sleep), but returns only when it was woken: what it
    /// waits for borrows from its stack.
    pub(crate) fn sleep_whatever_comes(self, reason: WaitReason, site: &'static Location<'static>) {
        if self.0.get() & THREAD != 0 {
            return self.sleep(reason, site);
        }
        while park::park_whatever_comes(reason, site) == Resume::Unwind {}
    }

    /// Wakes the waiter: exactly once for each sleep.
    pub(crate) fn wake(self) {
        let address = self.0.get();
        if address & THREAD == 0 {
            // SAFETY: the word of a goroutine's waiter is the address of its G,
            // and Gs are never unmapped.
            park::ready(unsafe { &*ptr::with_exposed_provenance::<G>(address) });
        } else {
            // By the waker, so that a thread that was woken does not count as
            // asleep until it runs.
            SLEEPING_THREADS.fetch_sub(1, Ordering::SeqCst);
            self.note().wake();
        }
    }

    /// Waits for a wake-up that can no longer be withdrawn.
    pub(crate) fn absorb(self) {
        if self.0.get() & THREAD == 0 {
            park::absorb();
        } else {
            self.note().sleep();
        }
    }
}
