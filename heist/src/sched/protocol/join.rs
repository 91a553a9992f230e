//! The word between a goroutine and its join handle.
//!
//! | value | meaning | who frees the control block |
//! |---|---|---|
//! | `EMPTY` | runs, handle alive, nobody waits | – |
//! | `DONE` | finished, the result is in the block | the handle |
//! | `DETACHED` | the handle is gone | the goroutine, at its end |
//! | other | runs, and this waiter sleeps until it ends | – |
//!
//! One handle, one goroutine: each side makes at most one final move, and the
//! one that comes second frees the block.

use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::fatal::fatal;
use std::num::NonZeroUsize;

const EMPTY: usize = 0;
const DONE: usize = 1;
const DETACHED: usize = 2;

/// What the goroutine's M does at its end.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Finish {
    /// The handle owns the block now: do not touch it again.
    HandleOwns,
    /// As above, and this waiter sleeps: wake it.
    Wake(NonZeroUsize),
    /// No handle is left: drop the result and free the block.
    Detached,
}

/// What a handle does when it is dropped.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Detach {
    /// The goroutine frees the block at its end.
    GoroutineOwns,
    /// It has ended: drop the result and free the block.
    Done,
}

/// What a joiner does after it asked to wait.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wait {
    /// Sleep; the end of the goroutine will wake the waiter.
    Sleep,
    /// It has ended: take the result.
    Done,
}

/// The word.
#[derive(Debug)]
pub(crate) struct JoinWord {
    word: AtomicUsize,
}

impl JoinWord {
    #[cfg(all(loom, test))]
    pub(crate) fn new() -> Self {
        JoinWord { word: AtomicUsize::new(EMPTY) }
    }

    /// Prepares the word of a block that is about to be spawned.
    #[inline]
    pub(crate) fn reset(&self) {
        // Relaxed: the block is not shared yet.
        self.word.store(EMPTY, Ordering::Relaxed);
    }

    /// The goroutine has ended and its result, if anybody wants it, is written.
    #[inline]
    pub(crate) fn finish(&self) -> Finish {
        // A detached word never changes again, so no read-modify-write is
        // needed. Acquire: pairs with `detach`.
        if self.is_detached() {
            return Finish::Detached;
        }
        // Release: pairs with the acquire in `is_done` and `wait`; the result
        // is visible to whoever sees DONE. Acquire: pairs with `detach`.
        match self.word.swap(DONE, Ordering::AcqRel) {
            EMPTY => Finish::HandleOwns,
            DETACHED => {
                // The block may run once more, to drop its result, and will
                // finish again.
                self.word.store(DETACHED, Ordering::Relaxed);
                Finish::Detached
            }
            DONE => fatal!("a goroutine finished twice"),
            waiter => match NonZeroUsize::new(waiter) {
                Some(waiter) => Finish::Wake(waiter),
                None => Finish::HandleOwns,
            },
        }
    }

    /// Whether the handle is gone, so that nobody wants the result.
    #[inline]
    pub(crate) fn is_detached(&self) -> bool {
        self.word.load(Ordering::Acquire) == DETACHED
    }

    /// Whether the goroutine has ended.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.word.load(Ordering::Acquire) == DONE
    }

    /// The handle goes away, or stops waiting.
    #[inline]
    pub(crate) fn detach(&self) -> Detach {
        // Release: what the handle did happens before the block is freed.
        // Acquire: pairs with `finish`, to drop the result. If it is done, the
        // block is the handle's and the word of no further use.
        match self.word.swap(DETACHED, Ordering::AcqRel) {
            DONE => Detach::Done,
            _ => Detach::GoroutineOwns,
        }
    }

    /// Like [`detach`](Self::detach), by a caller that holds the only P: nobody
    /// can finish a goroutine meanwhile, so no read-modify-write is needed.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn detach_alone(&self) -> Detach {
        if self.word.load(Ordering::Acquire) == DONE {
            return Detach::Done;
        }
        self.word.store(DETACHED, Ordering::Relaxed);
        Detach::GoroutineOwns
    }

    /// A waiter no longer wants to sleep. `Done` if the goroutine has ended, and
    /// is waking the waiter.
    pub(crate) fn withdraw(&self, waiter: NonZeroUsize) -> Wait {
        let asleep = waiter.get();
        match self.word.compare_exchange(asleep, EMPTY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Wait::Sleep,
            Err(_) => Wait::Done,
        }
    }

    /// The owner of the handle wants to sleep until the end.
    pub(crate) fn wait(&self, waiter: NonZeroUsize) -> Wait {
        debug_assert!(waiter.get() > DETACHED);
        // Release: the waiter is complete before the goroutine's end finds it.
        match self.word.compare_exchange(EMPTY, waiter.get(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Wait::Sleep,
            Err(DONE) => Wait::Done,
            Err(word) => fatal!("join of a handle in state {word:#x}"),
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    struct Block {
        word: JoinWord,
        result: Plain<u32>,
        freed: AtomicU32,
    }

    impl Block {
        fn new() -> Arc<Self> {
            Arc::new(Block {
                word: JoinWord::new(),
                result: Plain::new(0),
                freed: AtomicU32::new(0),
            })
        }

        /// The goroutine's end.
        fn end(&self) -> Option<NonZeroUsize> {
            self.result.set(7);
            match self.word.finish() {
                Finish::HandleOwns => None,
                Finish::Wake(waiter) => Some(waiter),
                Finish::Detached => {
                    self.free();
                    None
                }
            }
        }

        fn free(&self) {
            self.result.set(0);
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed once");
        }
    }

    #[test]
    fn finish_against_detach() {
        loom::model(|| {
            let block = Block::new();
            let end = {
                let block = block.clone();
                loom::thread::spawn(move || assert_eq!(block.end(), None))
            };
            match block.word.detach() {
                Detach::GoroutineOwns => {}
                Detach::Done => block.free(),
            }
            end.join().unwrap();
            assert_eq!(block.freed.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn finish_against_join() {
        loom::model(|| {
            let block = Block::new();
            let waiter = NonZeroUsize::new(64).unwrap();
            let end = {
                let block = block.clone();
                loom::thread::spawn(move || block.end())
            };
            let slept = match block.word.wait(waiter) {
                Wait::Sleep => true,
                Wait::Done => {
                    assert_eq!(block.result.get(), 7);
                    false
                }
            };
            let woken = end.join().unwrap();
            assert_eq!(woken, slept.then_some(waiter), "woken exactly if it slept");
            assert!(block.word.is_done());
        });
    }

    /// A joiner that is cancelled while the goroutine ends.
    #[test]
    fn finish_against_a_join_given_up() {
        loom::model(|| {
            let block = Block::new();
            let end = {
                let block = block.clone();
                loom::thread::spawn(move || {
                    block.end();
                })
            };
            let waiter = NonZeroUsize::new(64).unwrap();
            if block.word.wait(waiter) == Wait::Sleep {
                let _ = block.word.withdraw(waiter);
                match block.word.detach() {
                    Detach::GoroutineOwns => {}
                    Detach::Done => block.free(),
                }
                end.join().unwrap();
                assert_eq!(block.freed.load(Ordering::Relaxed), 1);
            }
        });
    }
}
