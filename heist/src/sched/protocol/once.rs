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

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The run that is under way has ended.
    NotRunning,
    /// Some run has ended, also one that has not begun.
    CompleteOrPoisoned,
    /// It is done.
    Complete,
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
    /// that has come.
    pub(crate) fn enqueue(&self, until: Until) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let over = match until {
                Until::NotRunning => word & STATE != RUNNING,
                Until::CompleteOrPoisoned => matches!(word & STATE, COMPLETE | POISONED),
                Until::Complete => word & STATE == COMPLETE,
            };
            if over {
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
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use loom::sync::{Arc, Mutex};

    struct World {
        word: OnceWord,
        queue: Mutex<Vec<usize>>,
        beds: Vec<Bed>,
        value: Plain<u32>,
    }

    fn word_of(i: usize) -> NonZeroUsize {
        NonZeroUsize::new(16 * (i + 1)).unwrap()
    }

    impl World {
        fn new(threads: usize) -> Arc<World> {
            Arc::new(World {
                word: OnceWord::new(),
                queue: Mutex::new(Vec::new()),
                beds: (0..threads).map(|_| Bed::new()).collect(),
                value: Plain::new(0),
            })
        }

        fn finish(&self, outcome: Outcome) {
            if self.word.finish(outcome) {
                let all = std::mem::take(&mut *self.queue.lock().unwrap());
                all.into_iter().for_each(|one| self.beds[one].wake());
            }
        }

        fn sleep(&self, me: usize, until: Until) {
            let mut queue = self.queue.lock().unwrap();
            if self.word.enqueue(until) {
                queue.push(me);
                drop(queue);
                self.beds[me].sleep();
            }
        }

        /// One who needs it done; the first run panics, if `fails`. Returns how
        /// often it ran it.
        fn call(&self, me: usize, fails: bool) -> u32 {
            let mut runs = 0;
            loop {
                match self.word.begin(word_of(me), true) {
                    Begin::Run { poisoned } => {
                        runs += 1;
                        self.value.set(self.value.get() + 1);
                        let panics = fails && !poisoned;
                        self.finish(if panics { Outcome::Poisoned } else { Outcome::Complete });
                    }
                    Begin::Complete => {
                        assert_eq!(self.value.get(), 1 + u32::from(fails));
                        return runs;
                    }
                    Begin::Wait => self.sleep(me, Until::NotRunning),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn check(fails: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let world = World::new(3);
            let caller = {
                let world = world.clone();
                loom::thread::spawn(move || world.call(1, fails))
            };
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    while !world.word.is_complete() {
                        world.sleep(2, Until::Complete);
                    }
                    assert_eq!(world.value.get(), 1 + u32::from(fails));
                })
            };
            let runs = world.call(0, fails) + caller.join().unwrap();
            waiter.join().unwrap();
            assert_eq!(runs, 1 + u32::from(fails));
            assert!(world.queue.lock().unwrap().is_empty(), "nobody is left behind");
        });
    }

    #[test]
    fn one_runs_and_the_others_see_it() {
        check(false);
    }

    #[test]
    fn a_run_that_panics_is_followed_by_another() {
        check(true);
    }

    /// `Once::wait` against a run that panics, and no other follows: it hears of it.
    #[test]
    fn a_waiter_hears_of_a_run_that_panics() {
        loom::model(|| {
            let world = World::new(2);
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    while !world.word.is_poisoned() {
                        world.sleep(1, Until::CompleteOrPoisoned);
                    }
                })
            };
            assert_eq!(world.word.begin(word_of(0), false), Begin::Run { poisoned: false });
            world.finish(Outcome::Poisoned);
            waiter.join().unwrap();
        });
    }
}
