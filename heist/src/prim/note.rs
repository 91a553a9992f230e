//! A note: one thread sleeps until another wakes it, once.
//!
//! Go's `note`: a one-shot event over a futex. A wake-up before the
//! sleep is kept, so that there is no order in which one is lost.

use super::atomic::{AtomicU64, Ordering};
use super::clock;
use super::futex::Futex;
use super::hint;
use super::mutant::{Mutant, is};
use std::time::Duration;

const EMPTY: u32 = 0;
const ASLEEP: u32 = 1;
const SIGNALLED: u32 = 2;
/// Its owner sleeps elsewhere, where only the bell reaches it.
const ELSEWHERE: u32 = 3;

/// What wakes the owner of a note that sleeps elsewhere.
pub(crate) trait Bell: Sync {
    /// Ends the owner's sleep, also one that has not quite begun.
    fn ring(&self);
}

/// A one-shot event, reset by its sleeper.
pub(crate) struct Note {
    state: Futex,
    bell: Option<&'static dyn Bell>,
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Note").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Note {
    pub(crate) const fn new() -> Self {
        Note { state: Futex::new(EMPTY), bell: None }
    }

    /// A note whose owner may also sleep where `bell` reaches it: in the poller, say,
    /// which waits for the network and for this note at the same time.
    pub(crate) const fn with_bell(bell: &'static dyn Bell) -> Self {
        Note { state: Futex::new(EMPTY), bell: Some(bell) }
    }

    /// The owner sleeps elsewhere: in `sleep`, which the bell ends. Returns whether
    /// the signal came, before or meanwhile.
    pub(crate) fn sleep_elsewhere(&self, sleep: impl FnOnce()) -> bool {
        debug_assert!(self.bell.is_some());
        let word = self.state.word();
        // Acquire: as in `sleep_until`.
        if word.compare_exchange(EMPTY, ELSEWHERE, Ordering::Acquire, Ordering::Acquire).is_ok() {
            sleep();
        }
        word.swap(EMPTY, Ordering::Acquire) == SIGNALLED
    }

    /// Sleeps until [`wake`](Self::wake), and takes the signal.
    ///
    /// Only one thread sleeps on a note: its owner.
    pub(crate) fn sleep(&self) {
        let woken = self.sleep_until(None);
        debug_assert!(woken);
    }

    /// Like [`sleep`](Self::sleep), for at most `timeout`. Returns whether the
    /// signal came.
    pub(crate) fn sleep_for(&self, timeout: Duration) -> bool {
        let timeout = crate::prim::nanos(timeout);
        self.sleep_until(Some(clock::now().saturating_add(timeout)))
    }

    /// Like [`sleep`](Self::sleep), until a moment on the monotonic clock.
    pub(crate) fn sleep_until(&self, deadline: Option<u64>) -> bool {
        let word = self.state.word();
        // Acquire: pairs with the release in `wake`; what the waker wrote
        // before it is visible to the woken.
        if word.compare_exchange(EMPTY, ASLEEP, Ordering::Acquire, Ordering::Acquire).is_ok() {
            loop {
                let left = match deadline {
                    None => None,
                    Some(deadline) => match deadline.checked_sub(clock::now()) {
                        None | Some(0) => break,
                        Some(left) => Some(Duration::from_nanos(left)),
                    },
                };
                self.state.wait(ASLEEP, left);
                if word.load(Ordering::Acquire) == SIGNALLED {
                    break;
                }
            }
        }
        word.swap(EMPTY, Ordering::Acquire) == SIGNALLED
    }

    /// Spins until there is a signal, which stays, or `nanos` are over: for a
    /// sleeper that expects to be woken sooner than a sleep would last. Its waker
    /// spares the system call then.
    pub(crate) fn watch(&self, nanos: u64) {
        /// Readings of the word for one of the clock.
        const LOOKS: u32 = 64;
        if nanos == 0 {
            return;
        }
        let until = clock::now().saturating_add(nanos);
        loop {
            for _ in 0..LOOKS {
                if self.state.word().load(Ordering::Relaxed) == SIGNALLED {
                    return;
                }
                hint::spin_loop();
            }
            if clock::now() >= until {
                return;
            }
        }
    }

    /// Forgets a signal that nobody took. By the sleeper.
    pub(crate) fn clear(&self) {
        self.state.word().store(EMPTY, Ordering::Relaxed);
    }

    /// Wakes the sleeper, or the next one to come. The system call is made only
    /// if somebody sleeps. Safe to call from a signal handler.
    /// (A note with a bell is not for signal handlers.)
    pub(crate) fn wake(&self) {
        match self.state.word().swap(SIGNALLED, Ordering::Release) {
            ASLEEP if !is(Mutant::NoFutexWake) => self.state.wake_one(),
            ELSEWHERE => {
                if let Some(bell) = self.bell {
                    bell.ring();
                }
            }
            _ => {}
        }
    }
}

/// Where a plain thread sleeps when it waits for a goroutine.
///
/// Aligned, so that the low bits of its address can say other things, and alone
/// in its cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Seat {
    pub(crate) note: Note,
    /// Says who ends the present wait; for the protocol that knows how.
    pub(crate) turn: AtomicU64,
}

impl Seat {
    pub(crate) const fn new() -> Self {
        Seat { note: Note::new(), turn: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_is_kept() {
        let note = Note::new();
        note.wake();
        note.wake();
        note.sleep();
        assert!(!note.sleep_for(Duration::from_millis(1)), "one signal, one sleep");
    }

    #[test]
    fn a_watcher_sees_the_signal_and_leaves_it() {
        let note = Note::new();
        note.watch(1_000);
        note.wake();
        note.watch(u64::MAX);
        note.sleep();
        assert!(!note.sleep_for(Duration::from_millis(1)));
    }

    #[test]
    fn a_sleeper_elsewhere_is_rung() {
        struct Count(AtomicU64);
        impl Bell for Count {
            fn ring(&self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let bell: &'static Count = Box::leak(Box::new(Count(AtomicU64::new(0))));
        let note = Note::with_bell(bell);
        assert!(note.sleep_elsewhere(|| note.wake()));
        assert_eq!(bell.0.load(Ordering::SeqCst), 1);
        note.wake();
        assert!(note.sleep_elsewhere(|| unreachable!("the signal was there")));
        assert!(!note.sleep_elsewhere(|| ()));
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "it rings for sleepers only");
    }

    #[test]
    fn a_sleeper_is_woken() {
        let note = Note::new();
        std::thread::scope(|s| {
            for _ in 0..100 {
                let waker = s.spawn(|| note.wake());
                note.sleep();
                waker.join().unwrap();
            }
        });
    }
}
