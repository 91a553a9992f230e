//! The identity of a goroutine and the token of `thread::park`, in one word.
//!
//! | bits | meaning |
//! |---|---|
//! | 0–1 | `EMPTY`, `UNPARKED` (the token is there) or `PARKED` |
//! | 2–63 | the goroutine's id |
//!
//! One word, so that whoever unparks by a handle that has outlived its goroutine
//! sees in the same step that the block is another's: ids are never reused.

use crate::prim::atomic::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const UNPARKED: u64 = 1;
const PARKED: u64 = 2;
const TOKEN: u64 = 3;

/// What a goroutine that wants to park does.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Parking {
    /// Sleep; whoever unparks will make it ready.
    Sleep,
    /// The token was there, and is taken.
    Token,
}

/// What one that gives up its park does.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Withdraw {
    /// Nobody will wake it.
    Done,
    /// Somebody is about to.
    TooLate,
}

/// What somebody who unparks does.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Unpark {
    /// Make the goroutine ready.
    Ready,
    /// Nothing: the token is kept for its next park, or it is gone.
    Nothing,
}

/// The word.
#[derive(Debug)]
pub(crate) struct Ticket {
    word: AtomicU64,
}

impl Ticket {
    #[cfg(all(loom, test))]
    pub(crate) fn new(id: u64) -> Self {
        Ticket { word: AtomicU64::new(id << 2) }
    }

    /// A new goroutine in the block.
    #[inline(always)]
    pub(crate) fn reset(&self, id: u64) {
        // Relaxed: the block is not shared yet, but for handles of goroutines
        // before. Their exchange in `unpark` reads the word's last value, as
        // every read-modify-write does: it is over before this store, or sees
        // the new id and does nothing. (loom does not keep a store and an
        // exchange of two threads in one order, so there is no model of it;
        // `tests/thread/` has a stress test.)
        self.word.store(id << 2 | EMPTY, Ordering::Relaxed);
    }

    /// The goroutine's id.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> 2
    }

    /// The goroutine itself wants to park.
    pub(crate) fn park(&self) -> Parking {
        let id = self.word.load(Ordering::Relaxed) & !TOKEN;
        // Acquire on failure: pairs with the release in `unpark`. Release: what
        // the goroutine did is seen by whoever makes it ready.
        match self.word.compare_exchange(
            id | EMPTY,
            id | PARKED,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Parking::Sleep,
            Err(_) => {
                // Only UNPARKED is possible: nobody else parks this goroutine.
                self.word.swap(id | EMPTY, Ordering::Acquire);
                Parking::Token
            }
        }
    }

    /// The goroutine no longer wants to.
    pub(crate) fn withdraw(&self) -> Withdraw {
        let id = self.word.load(Ordering::Relaxed) & !TOKEN;
        match self.word.swap(id | EMPTY, Ordering::AcqRel) & TOKEN {
            PARKED => Withdraw::Done,
            _ => Withdraw::TooLate,
        }
    }

    /// The clock ends the park of the goroutine `id`. Returns whether it is to be
    /// made ready: nobody else has done it, and it has not gone away.
    #[cfg(not(loom))]
    pub(crate) fn expire(&self, id: u64) -> bool {
        let id = id << 2;
        // Orderings as in `unpark`.
        self.word
            .compare_exchange(id | PARKED, id | EMPTY, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The goroutine was made ready: what its waker did before is visible.
    pub(crate) fn woken(&self) {
        self.word.load(Ordering::Acquire);
    }

    /// Somebody unparks the goroutine `id`.
    pub(crate) fn unpark(&self, id: u64) -> Unpark {
        let id = id << 2;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & !TOKEN != id {
                return Unpark::Nothing; // it has ended, and the block is another's
            }
            let (to, answer) = match word & TOKEN {
                PARKED => (id | EMPTY, Unpark::Ready),
                _ => (id | UNPARKED, Unpark::Nothing),
            };
            // Release: pairs with `park`, also when the token is there already.
            match self.word.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::g_state::{GState, Park, Ready, Status};
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    struct World {
        ticket: Ticket,
        state: GState,
        message: Plain<u32>,
    }

    /// One unpark against one park: the goroutine goes on exactly once, and sees
    /// what was done before it was unparked.
    #[test]
    fn unpark_against_park() {
        loom::model(|| {
            let world = Arc::new(World {
                ticket: Ticket::new(7),
                state: GState::new(),
                message: Plain::new(0),
            });
            world.state.become_(Status::Runnable);
            world.state.become_(Status::Running);
            let waker = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.message.set(1);
                    match world.ticket.unpark(7) {
                        Unpark::Ready => world.state.ready() == Ready::Enqueue,
                        Unpark::Nothing => false,
                    }
                })
            };
            let goes_on_by_itself = match world.ticket.park() {
                Parking::Token => true,
                Parking::Sleep => world.state.park() == Park::Notified,
            };
            if goes_on_by_itself {
                world.ticket.woken();
                assert_eq!(world.message.get(), 1);
            }
            let queued = waker.join().unwrap();
            assert!(goes_on_by_itself ^ queued, "it goes on exactly once");
        });
    }

    /// A park that is given up while somebody unparks.
    #[test]
    fn unpark_against_a_park_given_up() {
        loom::model(|| {
            let ticket = Arc::new(Ticket::new(7));
            assert_eq!(ticket.park(), Parking::Sleep);
            let waker = {
                let ticket = ticket.clone();
                loom::thread::spawn(move || ticket.unpark(7) == Unpark::Ready)
            };
            let promised = ticket.withdraw() == Withdraw::TooLate;
            assert_eq!(waker.join().unwrap(), promised, "a wake-up comes exactly if promised");
        });
    }
}
