//! The word of a one-time initialization.
//!
//! | bits | meaning |
//! |---|---|
//! | 1–2 | `NEW`, `POISONED` (the last try panicked), `RUNNING` or `COMPLETE` |
//! | 3 `QUEUED` | somebody waits for the end |
//! | the rest | while it is `RUNNING`, the word of whoever runs it |
//!
//! `QUEUED` is set with the queue's lock held, in a step that sees that the end
//! has not come, and whoever brings the end exchanges the whole word: it sees the
//! bit, and finds the waiter in the queue once it has the lock.

use crate::prim::atomic::{AtomicUsize, Ordering};
use std::num::NonZeroUsize;

const NEW: usize = 0;
const POISONED: usize = 1 << 1;
const RUNNING: usize = 2 << 1;
const COMPLETE: usize = 3 << 1;
const STATE: usize = 3 << 1;
const QUEUED: usize = 1 << 3;
const OWNER: usize = !(STATE | QUEUED);

/// What somebody who needs it done does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Begin {
    /// Run it, and then [`finish`](OnceWord::finish).
    Run {
        /// The last try panicked.
        poisoned: bool,
    },
    /// Nothing: it is done.
    Complete,
    /// The last try panicked, and the caller minds.
    Poisoned,
    /// Wait until somebody else has run it.
    Wait,
    /// The caller itself is running it, and would wait for itself.
    Recursive,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// For good.
    Complete,
    /// It panicked.
    Poisoned,
    /// As if it had not begun.
    New,
}

/// The word.
#[derive(Debug)]
pub(crate) struct OnceWord {
    word: AtomicUsize,
}

impl OnceWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        OnceWord { word: AtomicUsize::new(NEW) }
    }

    #[cfg(not(loom))]
    pub(crate) const fn completed() -> Self {
        OnceWord { word: AtomicUsize::new(COMPLETE) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        OnceWord { word: AtomicUsize::new(NEW) }
    }

    /// Whether it is done; then what it did is visible.
    #[inline(always)]
    pub(crate) fn is_complete(&self) -> bool {
        // Acquire: pairs with the release in `finish`.
        self.word.load(Ordering::Acquire) == COMPLETE
    }

    /// How it ended last, if nobody can be running it.
    #[cfg(not(loom))]
    pub(crate) fn outcome(&mut self) -> Outcome {
        match *self.word.get_mut() & STATE {
            COMPLETE => Outcome::Complete,
            POISONED => Outcome::Poisoned,
            _ => Outcome::New,
        }
    }

    /// `me` needs it done.
    pub(crate) fn begin(&self, me: NonZeroUsize, ignore_poison: bool) -> Begin {
        // Acquire: as in `is_complete`, and what a run that panicked left is
        // visible to the next.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let poisoned = word & STATE == POISONED;
            match word & STATE {
                COMPLETE => return Begin::Complete,
                POISONED if !ignore_poison => return Begin::Poisoned,
                RUNNING if word & OWNER == me.get() => return Begin::Recursive,
                RUNNING => return Begin::Wait,
                _ => {}
            }
            let running = me.get() | RUNNING | word & QUEUED;
            match self.word.compare_exchange_weak(
                word,
                running,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Begin::Run { poisoned },
                Err(now) => word = now,
            }
        }
    }

    /// Whoever runs it is done. Returns whether all who wait must be woken.
    #[must_use]
    pub(crate) fn finish(&self, outcome: Outcome) -> bool {
        let word = match outcome {
            Outcome::Complete => COMPLETE,
            Outcome::Poisoned => POISONED,
            Outcome::New => NEW,
        };
        // Release: pairs with the acquires above.
        self.word.swap(word, Ordering::Release) & QUEUED != 0
    }

    /// With the queue's lock: somebody is going to queue until the end. False if
    /// that has come. `for_run`: only a run that is under way is waited for,
    /// otherwise also one that has not begun.
    pub(crate) fn enqueue(&self, for_run: bool) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & STATE == COMPLETE || (for_run && word & STATE != RUNNING) {
                return false;
            }
            match self.word.compare_exchange_weak(
                word,
                word | QUEUED,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether the last try panicked, and no other has begun.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.word.load(Ordering::Acquire) & STATE == POISONED
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::{Arc, Mutex};

    struct World {
        word: OnceWord,
        /// The queue: how many wait, and how many were woken.
        queue: Mutex<(u32, u32)>,
        value: Plain<u32>,
    }

    fn word_of(i: usize) -> NonZeroUsize {
        NonZeroUsize::new(16 * i).unwrap()
    }

    /// One who needs it done. Returns whether it ran it.
    fn contend(world: &World, me: usize) -> bool {
        loop {
            match world.word.begin(word_of(me), false) {
                Begin::Run { poisoned } => {
                    assert!(!poisoned);
                    world.value.set(world.value.get() + 1);
                    if world.word.finish(Outcome::Complete) {
                        let mut queue = world.queue.lock().unwrap();
                        queue.1 += queue.0;
                        queue.0 = 0;
                    }
                    return true;
                }
                Begin::Complete => {
                    assert_eq!(world.value.get(), 1, "it sees what the run did");
                    return false;
                }
                Begin::Wait => {
                    let mut queue = world.queue.lock().unwrap();
                    if world.word.enqueue(true) {
                        queue.0 += 1;
                        drop(queue);
                        while world.queue.lock().unwrap().1 == 0 {
                            loom::thread::yield_now();
                        }
                        world.queue.lock().unwrap().1 -= 1;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn one_runs_and_the_others_see_it() {
        loom::model(|| {
            let world = Arc::new(World {
                word: OnceWord::new(),
                queue: Mutex::new((0, 0)),
                value: Plain::new(0),
            });
            let others: Vec<_> = (2..4)
                .map(|me| {
                    let world = world.clone();
                    loom::thread::spawn(move || contend(&world, me))
                })
                .collect();
            let mut ran = u32::from(contend(&world, 1));
            for other in others {
                ran += u32::from(other.join().unwrap());
            }
            assert_eq!(ran, 1);
            assert_eq!(*world.queue.lock().unwrap(), (0, 0), "nobody is left behind");
        });
    }
}
