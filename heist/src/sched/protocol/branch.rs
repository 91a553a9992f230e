//! Who runs a second branch that was claimed.
//!
//! A claimed branch is in a run queue, as a goroutine without a stack. Whoever
//! takes it out of there runs it; unless the goroutine that forked it is done with
//! its first branch by then and takes it back.
//!
//! | value | meaning |
//! |---|---|
//! | `OPEN` | queued |
//! | `TAKEN` | it runs, or has run; the one that forked it waits for its end |
//! | `RECLAIMED` | the one that forked it runs it; whoever takes it out of the queue does nothing |
//!
//! The word is in the branch's control block, which both sides keep alive: the
//! side that lets go second frees it (`protocol::join`). The frame of the fork,
//! on the stack of whoever forked, is looked into only by the side that has the
//! branch, and stays until a taken branch has ended.

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::mutant::{Mutant, is};

const OPEN: u32 = 0;
const TAKEN: u32 = 1;
const RECLAIMED: u32 = 2;

/// What whoever takes the branch out of a queue finds.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Take {
    /// Run it.
    Run,
    /// It was reclaimed: do not look into the frame.
    Gone,
}

/// What whoever forked the branch finds.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Reclaim {
    /// Nobody runs it: the caller does, and lets go of the block.
    Mine,
    /// It runs: wait for its end.
    Taken,
}

/// The word.
#[derive(Debug)]
pub(crate) struct BranchWord {
    word: AtomicU32,
}

impl BranchWord {
    pub(crate) fn new() -> Self {
        BranchWord { word: AtomicU32::new(OPEN) }
    }

    /// Whoever has taken it out of a queue wants to run it.
    pub(crate) fn take(&self) -> Take {
        // Acquire: pairs with the release in `reclaim`, for what the block is used
        // for next. What is in the frame came through the queue.
        match self.word.compare_exchange(OPEN, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Take::Run,
            Err(_) => Take::Gone,
        }
    }

    /// Whoever forked it wants it back.
    pub(crate) fn reclaim(&self) -> Reclaim {
        if is(Mutant::ReclaimUnseen) {
            self.word.store(RECLAIMED, Ordering::Release);
            return Reclaim::Mine;
        }
        match self.word.compare_exchange(OPEN, RECLAIMED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Reclaim::Mine,
            Err(_) => Reclaim::Taken,
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::join::{Detach, Finish, JoinWord, Wait};
    use super::*;
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Count;
    use std::num::NonZeroUsize;

    /// A branch's block, and the frame that it points into.
    struct Shared {
        word: BranchWord,
        join: JoinWord,
        freed: Count,
        ran: Count,
        /// The frame: whether it is there, and the result.
        frame: Plain<(bool, u32)>,
        bed: Bed,
    }

    impl Shared {
        fn run(&self) {
            let (alive, _) = self.frame.get();
            assert!(alive, "the frame is there");
            self.ran.fetch_add(1, Ordering::Relaxed);
            self.frame.set((true, 7));
        }

        fn free(&self) {
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed once");
        }

        /// Whoever takes it out of the queue.
        fn dequeue(&self) {
            match self.word.take() {
                Take::Run => self.run(),
                Take::Gone => {}
            }
            match self.join.finish() {
                Finish::HandleOwns => {}
                Finish::Wake(_) => self.bed.wake(),
                Finish::Detached => self.free(),
            }
        }

        /// Whoever forked it, when its first branch is done.
        fn settle(&self) {
            match self.word.reclaim() {
                Reclaim::Mine => {
                    self.run();
                    if self.join.detach() == Detach::Done {
                        self.free();
                    }
                }
                Reclaim::Taken => {
                    if self.join.wait(NonZeroUsize::new(64).unwrap()) == Wait::Sleep {
                        self.bed.sleep();
                    }
                    self.free();
                }
            }
            assert_eq!(self.frame.get(), (true, 7), "the result is there");
            // The fork returns, and its frame is another's.
            self.frame.set((false, 0));
        }
    }

    #[test]
    fn reclaim_against_take_against_done() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                word: BranchWord::new(),
                join: JoinWord::new(),
                freed: Count::new(0),
                ran: Count::new(0),
                frame: Plain::new((true, 0)),
                bed: Bed::new(),
            });
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.dequeue())
            };
            shared.settle();
            other.join().unwrap();
            assert_eq!(shared.ran.load(Ordering::Relaxed), 1, "it ran once");
            assert_eq!(shared.freed.load(Ordering::Relaxed), 1, "its block was freed");
        });
    }
}
