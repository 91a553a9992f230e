//! What a fork looks at first, and what those write there who want a branch.
//!
//! One word of the M, the guard, answers four questions of a fork with one comparison: is
//! the stack short, has the M resumed another goroutine since, does somebody ask for a
//! branch, is something measured? (`par/README.md`)

use super::forks::List;
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::ptr::{self, NonNull};

/// Nobody's stack pointer is at or above these.
const SPECIAL: usize = usize::MAX - 2;
/// Somebody wants to know whether there is a fork within a certain time.
const PROBED: usize = SPECIAL;
/// The desk is not set up for the goroutine, or has to be set up anew.
const UNSET: usize = usize::MAX - 1;
/// Somebody asks for a branch.
const ASKED: usize = usize::MAX;

/// What a fork looks at first. One for each M, since Ms are never freed: thieves
/// write there.
#[derive(Debug)]
pub(crate) struct Desk {
    /// A fork whose record is below this address has something else to do first.
    /// It is the goroutine's stack limit and some, [`UNSET`], [`PROBED`], or [`ASKED`].
    /// Written by the M's thread, and by those who ask.
    guard: AtomicUsize,
    /// The forks of the goroutine that the guard is set up for.
    forks: AtomicPtr<List>,
    /// The goroutine has forked since it was resumed. Written by the M's thread.
    open: AtomicBool,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Desk {
            guard: AtomicUsize::new(UNSET),
            forks: AtomicPtr::new(ptr::null_mut()),
            open: AtomicBool::new(false),
        }
    }

    /// Whether the goroutine has forked since it was resumed.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The list, if a fork whose record is at `here` may go into it at once.
    #[inline(always)]
    pub(super) fn list_for(&self, here: usize) -> Option<&'static List> {
        if here < self.guard.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: a guard that is an address means that the list is the goroutine's, and
        // not null.
        Some(unsafe { NonNull::new_unchecked(self.forks.load(Ordering::Relaxed)).as_ref() })
    }

    /// The goroutine has looked at everything, and forks into this list down to that address.
    pub(super) fn set_up(&self, list: &'static List, limit: usize) -> Before {
        self.forks.store(ptr::from_ref(list).cast_mut(), Ordering::Release);
        let guard = self.guard.swap(limit, Ordering::Relaxed);
        if !self.is_open() {
            self.open.store(true, Ordering::Relaxed);
            return Before::Closed;
        }
        match guard {
            ASKED => Before::Asked,
            UNSET => Before::Unset,
            _ => Before::Unasked,
        }
    }

    /// The goroutine has left its stack.
    pub(super) fn close(&self) {
        self.guard.store(UNSET, Ordering::Relaxed);
        self.open.store(false, Ordering::Relaxed);
    }

    /// The next fork sets the desk up anew. One that was asked for a branch does so anyway,
    /// and must not forget it: whoever asked may be asleep.
    pub(super) fn measure_anew(&self) {
        let guard = self.guard.load(Ordering::Relaxed);
        if guard < SPECIAL {
            // Relaxed: as in `ask`. If it fails, somebody has asked meanwhile.
            let (set, unset) = (Ordering::Relaxed, Ordering::Relaxed);
            let _asked = self.guard.compare_exchange(guard, UNSET, set, unset);
        }
    }

    /// Asks for a branch.
    pub(super) fn ask(&self) -> Ask {
        let guard = self.guard.load(Ordering::Relaxed);
        match guard {
            ASKED => Ask::Before,
            UNSET => Ask::Nobody,
            _ => self.mark(guard, ASKED),
        }
    }

    /// Asks for a sign of life. The next fork gives it, and shares nothing: nobody is idle.
    pub(super) fn probe(&self) -> Ask {
        let guard = self.guard.load(Ordering::Relaxed);
        match guard {
            ASKED | PROBED => Ask::Before,
            UNSET => Ask::Nobody,
            _ => self.mark(guard, PROBED),
        }
    }

    fn mark(&self, guard: usize, with: usize) -> Ask {
        // Relaxed: a flag. If the desk changes meanwhile, nobody is asked.
        match self.guard.compare_exchange(guard, with, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ask::Asked,
            Err(_) => Ask::Nobody,
        }
    }

    /// The list of the goroutine that was asked, or probed, and has not answered.
    pub(super) fn silent(&self) -> Option<&'static List> {
        if !matches!(self.guard.load(Ordering::Relaxed), ASKED | PROBED) {
            return None;
        }
        // SAFETY: null or a leaked list.
        unsafe { self.forks.load(Ordering::Acquire).as_ref() }
    }
}

/// What a fork that sets the desk up finds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Before {
    /// It is the goroutine's first fork since it was resumed.
    Closed,
    Unset,
    /// Somebody asked for a branch.
    Asked,
    Unasked,
}

/// How a question was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Ask {
    /// The goroutine does not fork, or there is none.
    Nobody,
    /// It will answer at its next fork.
    Asked,
    /// Somebody else has asked, and it has not answered.
    Before,
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;

    /// Whoever asked may sleep: the question stays until a fork answers it.
    #[test]
    fn another_segment_does_not_forget_a_question() {
        let desk = Desk::new();
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Nobody, "nobody forks");
        desk.guard.store(0x1000, Ordering::Relaxed);
        assert_eq!(desk.ask(), Ask::Asked);
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Before, "still asked");
        desk.guard.store(0x1000, Ordering::Relaxed);
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Nobody, "to be set up anew");
    }

    #[test]
    fn a_probe_is_no_question_and_hides_none() {
        let desk = Desk::new();
        assert_eq!(desk.probe(), Ask::Nobody, "nobody forks");
        desk.guard.store(0x1000, Ordering::Relaxed);
        assert_eq!(desk.probe(), Ask::Asked);
        assert_eq!(desk.probe(), Ask::Before, "no fork since");
        assert_ne!(desk.guard.load(Ordering::Relaxed), ASKED);
        assert_eq!(desk.ask(), Ask::Asked);
        assert_eq!(desk.probe(), Ask::Before);
        assert_eq!(desk.guard.load(Ordering::Relaxed), ASKED, "still asked");
    }
}
