//! Who ends a wait: one winner of many.
//!
//! A goroutine in a select waits at several channels and perhaps for the clock,
//! and each of them may want to wake it at the same moment. The word counts the
//! waits of its owner and says how the present one stands; whoever changes it
//! from `OPEN` has won, and only the winner wakes.
//!
//! | bits | meaning |
//! |---|---|
//! | 0–1 | `OPEN`, `CLAIMED` (a waker has won), `EXPIRED` (the clock has), `CLOSED` (the owner gave up) |
//! | 2–63 | the number of the wait |
//!
//! The word is in memory that is never freed, and numbers are never used again,
//! so whoever comes late, with the number of a wait that is over, changes
//! nothing: a timer need not be taken out of its heap before its sleeper goes
//! on.

use crate::prim::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 0;
const CLAIMED: u64 = 1;
const EXPIRED: u64 = 2;
const CLOSED: u64 = 3;
const STATE: u64 = 3;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum End {
    /// A waker has won, and wakes or has woken the owner.
    Claimed,
    /// The clock has, and wakes or has woken the owner.
    Expired,
}

/// The number of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(u64);

/// The word, wherever it is kept; a zero is as good as any to begin with.
/// Methods that say "owner" are for the one who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnWord<'a>(pub(crate) &'a AtomicU64);

impl TurnWord<'_> {
    /// Owner: begins a wait.
    #[inline]
    pub(crate) fn begin(self) -> Number {
        let number = (self.0.load(Ordering::Relaxed) | STATE) + 1;
        // Relaxed: nobody knows the number yet; whatever publishes it orders
        // this store too.
        self.0.store(number | OPEN, Ordering::Relaxed);
        Number(number)
    }

    /// Owner: the wait that has begun last.
    pub(crate) fn present(self) -> Number {
        Number(self.0.load(Ordering::Relaxed) & !STATE)
    }

    /// A waker wants to end the wait. If it has won, it wakes the owner, once.
    #[inline]
    pub(crate) fn claim(self, number: Number) -> bool {
        self.end(number, CLAIMED)
    }

    /// The clock wants to.
    pub(crate) fn expire(self, number: Number) -> bool {
        self.end(number, EXPIRED)
    }

    /// Owner: gives up. If that fails somebody has won, and wakes.
    pub(crate) fn close(self, number: Number) -> bool {
        self.end(number, CLOSED)
    }

    /// Whether the wait has not ended.
    pub(crate) fn is_open(self, number: Number) -> bool {
        self.0.load(Ordering::Relaxed) == number.0 | OPEN
    }

    /// Owner, after its wake-up: who won.
    pub(crate) fn end_of(self, number: Number) -> End {
        // Acquire: pairs with the release in `end`.
        let word = self.0.load(Ordering::Acquire);
        debug_assert_eq!(word & !STATE, number.0);
        if word & STATE == EXPIRED { End::Expired } else { End::Claimed }
    }

    #[inline]
    fn end(self, number: Number, how: u64) -> bool {
        // AcqRel: the winner sees what the owner wrote before it waited, and
        // the owner what the winner wrote before it won.
        self.0
            .compare_exchange(number.0 | OPEN, number.0 | how, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_wins_and_the_late_change_nothing() {
        let word = AtomicU64::new(0);
        let word = TurnWord(&word);
        let first = word.begin();
        assert!(word.is_open(first));
        assert!(word.claim(first));
        assert!(!word.claim(first) && !word.expire(first) && !word.close(first));
        assert_eq!(word.end_of(first), End::Claimed);
        let second = word.begin();
        assert_ne!(first, second);
        assert!(!word.claim(first), "a wait that is over");
        assert!(word.is_open(second));
        assert!(word.expire(second));
        assert_eq!(word.end_of(second), End::Expired);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::g_state::{GState, Ready, Status};
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    /// A waker and the clock against each other, and against an owner who gives
    /// up: exactly one of them wins, and the owner sees what the waker wrote.
    #[test]
    fn waker_against_clock_against_giving_up() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), Plain::new(0u32)));
            let number = TurnWord(&shared.0).begin();
            let waker = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let won = TurnWord(&shared.0).claim(number);
                    if won {
                        shared.1.set(1);
                    }
                    won
                })
            };
            let clock = {
                let shared = shared.clone();
                loom::thread::spawn(move || TurnWord(&shared.0).expire(number))
            };
            let closed = TurnWord(&shared.0).close(number);
            let (claimed, expired) = (waker.join().unwrap(), clock.join().unwrap());
            assert_eq!([closed, claimed, expired].iter().filter(|won| **won).count(), 1);
            assert_eq!(shared.1.get(), u32::from(claimed));
        });
    }

    /// A waker of one wait that comes in the next one does not end it.
    #[test]
    fn a_late_waker_leaves_the_next_wait_alone() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), GState::new()));
            shared.1.become_(Status::Runnable);
            shared.1.become_(Status::Running);
            let first = TurnWord(&shared.0).begin();
            let late = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    TurnWord(&shared.0).claim(first) && shared.1.ready() == Ready::Deferred
                })
            };
            let gave_up = TurnWord(&shared.0).close(first);
            if !gave_up {
                // The wake-up is owed, and is taken before the next wait.
                while !shared.1.take_notified() {
                    loom::thread::yield_now();
                }
            }
            let second = TurnWord(&shared.0).begin();
            assert_eq!(late.join().unwrap(), !gave_up);
            assert!(TurnWord(&shared.0).is_open(second));
            assert!(!shared.1.take_notified());
        });
    }

    /// A condition with two who wait, the first of whom gives up by the clock: one
    /// notification ends one wait, the second if it comes too late for the first.
    #[test]
    fn a_notification_goes_to_one_who_still_waits() {
        loom::model(|| {
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let numbers = [TurnWord(&words[0]).begin(), TurnWord(&words[1]).begin()];
            let queue = Arc::new(loom::sync::Mutex::new(vec![1, 0]));
            let notifier = {
                let (words, queue) = (words.clone(), queue.clone());
                loom::thread::spawn(move || {
                    let mut queue = queue.lock().unwrap();
                    while let Some(first) = queue.pop() {
                        if TurnWord(&words[first]).claim(numbers[first]) {
                            return Some(first);
                        }
                    }
                    None
                })
            };
            let gave_up = TurnWord(&words[0]).expire(numbers[0]);
            if gave_up {
                queue.lock().unwrap().retain(|waiter| *waiter != 0);
            }
            let woken = notifier.join().unwrap();
            assert_eq!(woken, Some(usize::from(gave_up)));
            let left: &[usize] = if gave_up { &[] } else { &[1] };
            assert_eq!(*queue.lock().unwrap(), left, "nobody is left behind but the second");
        });
    }
}
