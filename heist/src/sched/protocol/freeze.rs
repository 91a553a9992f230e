//! Stopping a thread where it is: sysmon asks, the thread's signal handler answers.
//!
//! | bits | value | meaning |
//! |---|---|---|
//! | 0–2 | `NONE` | nobody asks |
//! | | `ASKED` | sysmon has sent the signal, or is about to |
//! | | `FROZEN` | the handler waits |
//! | | `CALLED` | its turn has come: a P is on its way |
//! | | `LET_GO` | the handler may return, without a P |
//! | 3–31 | epoch | which question this is: a signal that comes late answers none |
//!
//! | from | to | by whom |
//! |---|---|---|
//! | none | asked, next epoch | sysmon |
//! | asked | none | the handler: not here; or sysmon: never mind |
//! | asked | frozen | the handler |
//! | frozen | called | the M that took it out of the queue |
//! | frozen | let go | sysmon; or the handler itself, which waits no longer |
//! | called, let go | none | the handler, on its way back; until then nothing is asked |
//!
//! Sysmon queues the thread when it has seen `FROZEN`. What is queued may be let go
//! meanwhile, also by itself: whoever takes it out of the queue has it only if it
//! changes `FROZEN` to `CALLED`, and the handler waits for the P then.

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::mutant::{Mutant, is};

const NONE: u32 = 0;
const ASKED: u32 = 1;
const FROZEN: u32 = 2;
const LET_GO: u32 = 3;
const CALLED: u32 = 4;
const STATE: u32 = 7;
const EPOCH: u32 = 8;

/// Which question a signal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u32);

impl Epoch {
    /// To send along with the signal.
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    pub(crate) fn from_word(word: u32) -> Epoch {
        Epoch(word & !STATE)
    }
}

/// What has become of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
    /// None yet.
    Open,
    /// The thread stands still.
    Frozen,
    /// It was at a place where it must not be stopped.
    Refused,
}

/// The word, one for each M.
#[derive(Debug)]
pub(crate) struct Freeze {
    word: AtomicU32,
}

impl Freeze {
    pub(crate) fn new() -> Self {
        Freeze { word: AtomicU32::new(NONE) }
    }

    /// sysmon asks; nobody else does. `None` if the handler of the last question has not
    /// returned: it was told to, but may not have been told by the kernel yet, and a new
    /// question in the place of that answer would be the last thing that it hears.
    #[must_use]
    pub(crate) fn ask(&self) -> Option<Epoch> {
        // Acquire: pairs with `thaw`.
        let word = self.word.load(Ordering::Acquire);
        if word & STATE != NONE && !is(Mutant::AskUnanswered) {
            return None;
        }
        let epoch = (word & !STATE).wrapping_add(EPOCH);
        // Not by compare-and-swap: nobody but the caller changes a word that says that
        // nobody asks.
        self.word.store(epoch | ASKED, Ordering::Release);
        Some(Epoch(epoch))
    }

    /// sysmon looks for the answer.
    pub(crate) fn answer(&self, epoch: Epoch) -> Answer {
        // Acquire: pairs with `freeze`; sysmon sees the goroutine as it stands.
        match self.word.load(Ordering::Acquire).wrapping_sub(epoch.0) {
            ASKED => Answer::Open,
            FROZEN => Answer::Frozen,
            _ => Answer::Refused,
        }
    }

    /// sysmon: whether the thread that has answered this question is still in its
    /// handler, also if it may leave.
    #[cfg(not(loom))]
    pub(crate) fn stands(&self, epoch: Epoch) -> bool {
        let word = self.word.load(Ordering::Relaxed).wrapping_sub(epoch.0);
        matches!(word, FROZEN | CALLED | LET_GO)
    }

    /// sysmon no longer wants it. False if the thread stands still already.
    #[must_use]
    pub(crate) fn withdraw(&self, epoch: Epoch) -> bool {
        self.settle(epoch, NONE) || self.answer(epoch) != Answer::Frozen
    }

    /// The handler: the goroutine stands still from now on. False if nobody asks
    /// any more.
    #[must_use]
    pub(crate) fn freeze(&self, epoch: Epoch) -> bool {
        self.settle(epoch, FROZEN)
    }

    /// The handler: not here.
    pub(crate) fn refuse(&self, epoch: Epoch) {
        // A question that is over needs no answer.
        let _ = self.settle(epoch, NONE);
    }

    fn settle(&self, epoch: Epoch, to: u32) -> bool {
        let (from, to) = (epoch.0 | ASKED, epoch.0 | to);
        // Release: what the handler did with the goroutine goes along.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whoever has taken the thread out of the queue: it gets a P. False if it
    /// stands still no longer.
    #[must_use]
    pub(crate) fn call(&self) -> bool {
        self.end_standing(CALLED)
    }

    /// The thread goes on without a P: sysmon, or the thread itself. False if it
    /// stands still no longer, or a P is on its way.
    pub(crate) fn let_go(&self) -> bool {
        self.end_standing(LET_GO)
    }

    fn end_standing(&self, to: u32) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let (from, to) = (word & !STATE | FROZEN, word & !STATE | to);
        // Acquire: pairs with `freeze`. Release: pairs with `is_let_go`. If there is
        // another question by now, the thread has moved since.
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The handler: whether it may return without a P.
    pub(crate) fn is_let_go(&self) -> bool {
        self.word.load(Ordering::Acquire) & STATE == LET_GO
    }

    /// The handler, on its way back.
    pub(crate) fn thaw(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !STATE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_late_signal_answers_nothing() {
        let word = Freeze::new();
        let first = word.ask().unwrap();
        assert_eq!(word.answer(first), Answer::Open);
        assert!(word.withdraw(first));
        assert!(!word.freeze(first), "withdrawn");
        let second = word.ask().unwrap();
        assert!(!word.freeze(first), "another question");
        word.refuse(first);
        assert_eq!(word.answer(second), Answer::Open);
        assert!(word.freeze(second));
        assert!(!word.withdraw(second), "it stands still");
        assert!(!word.is_let_go());
        assert!(word.let_go());
        assert!(word.is_let_go() && !word.call());
        assert_eq!(word.ask(), None, "its handler has not returned");
        word.thaw();
        assert!(!word.call(), "it runs");
        let third = word.ask().unwrap();
        assert!(word.freeze(third) && word.call());
        assert!(!word.let_go(), "a P is on its way");
        assert_eq!(word.ask(), None, "its handler has not returned");
        word.thaw();
        assert_ne!(word.ask().unwrap(), second);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use crate::prim::mutant::must_fail;
    use loom::sync::Arc;

    /// sysmon asks, and withdraws if it sees no answer; the handler freezes. Either
    /// the goroutine is sysmon's to queue, or it runs on: never both.
    #[test]
    fn an_answer_against_a_withdrawal() {
        loom::model(|| {
            let shared = Arc::new((Freeze::new(), Plain::new(0u32)));
            let epoch = shared.0.ask().unwrap();
            let handler = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.set(1);
                    let frozen = shared.0.freeze(epoch);
                    if !frozen {
                        shared.1.set(2); // runs on
                    }
                    frozen
                })
            };
            let stands = match shared.0.answer(epoch) {
                Answer::Frozen => true,
                Answer::Open => !shared.0.withdraw(epoch),
                Answer::Refused => false,
            };
            if stands {
                assert_eq!(shared.1.get(), 1, "seen as it stands");
            }
            assert_eq!(handler.join().unwrap(), stands);
        });
    }

    /// A thread that stands still is called, and has waited long enough: it gets the
    /// P, or it goes without, and whoever called it knows.
    #[test]
    fn a_call_against_impatience() {
        loom::model(|| {
            let shared = Arc::new((Freeze::new(), Plain::new(0u32)));
            let epoch = shared.0.ask().unwrap();
            shared.1.set(1);
            assert!(shared.0.freeze(epoch));
            let handler = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let gone = shared.0.let_go();
                    if gone {
                        shared.1.set(2); // runs on
                        shared.0.thaw();
                    }
                    gone
                })
            };
            let called = shared.0.call();
            if called {
                assert_eq!(shared.1.get(), 1, "it stands still");
            }
            assert_ne!(handler.join().unwrap(), called);
        });
    }

    /// A thread is let go, and asked again as soon as that can be: it has heard the
    /// first before the second.
    fn let_go_and_asked_again() {
        let word = Arc::new(Freeze::new());
        let first = word.ask().unwrap();
        assert!(word.freeze(first));
        let sysmon = {
            let word = word.clone();
            loom::thread::spawn(move || {
                assert!(word.let_go());
                word.ask()
            })
        };
        while !word.is_let_go() {
            loom::thread::yield_now();
        }
        word.thaw();
        if let Some(second) = sysmon.join().unwrap() {
            assert!(word.freeze(second), "heard");
        }
    }

    #[test]
    fn a_question_after_a_release() {
        loom::model(let_go_and_asked_again);
    }

    #[test]
    fn mistakes_are_seen() {
        must_fail(Mutant::AskUnanswered, let_go_and_asked_again);
    }
}
