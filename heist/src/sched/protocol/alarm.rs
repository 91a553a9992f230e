//! The word of an alarm: a function that the clock calls, later, perhaps again.
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | `SET` | an entry in some heap of timers is to ring |
//! | 1 | `DROPPED` | the handle is gone: nobody sets or stops it any more |
//! | 2 | `LOST` | the function panicked: there is none to call |
//! | 3–17 | pending | how often it is to be called; one goroutine does so |
//! | 18–63 | number | how often it was set, in all lives of the alarm |
//!
//! Alarms are in memory that is never freed, and are used again. An entry of a heap
//! has the number that the alarm was set with; one that comes late, since it was
//! stopped or set again, finds another number and changes nothing. So an entry need
//! not be taken out of its heap, and nobody counts references: at any moment the word
//! tells who is left, and who is the last one frees the alarm ([`Last`]).
//!
//! | who | is left while |
//! |---|---|
//! | the handle | not `DROPPED` |
//! | the entry | `SET` |
//! | the goroutine that calls | pending is not 0 |

use crate::prim::atomic::{AtomicU64, Ordering};

const SET: u64 = 1;
const DROPPED: u64 = 1 << 1;
const LOST: u64 = 1 << 2;
const ONCE: u64 = 1 << 3;
const PENDING: u64 = 0x7fff << 3;
const NUMBER: u64 = 1 << 18;
const FLAGS: u64 = NUMBER - 1;

/// What an entry does whose time has come.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ring {
    /// Starts the goroutine that calls.
    Call,
    /// Nothing: it was stopped, or set again, or somebody calls once more for it.
    Nothing,
    /// Frees the alarm.
    Last(Last),
}

/// What the goroutine does that has called once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Called {
    /// Calls again.
    Again,
    /// Ends.
    Rest,
    /// Ends, and frees the alarm.
    Last(Last),
}

/// Who has this has the alarm alone.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Last {
    /// Whether the function is still there.
    pub(crate) holds_function: bool,
}

/// The word.
#[derive(Debug)]
pub(crate) struct AlarmWord(AtomicU64);

impl AlarmWord {
    pub(crate) fn new() -> Self {
        AlarmWord(AtomicU64::new(0))
    }

    /// Begins a life: sets an alarm that the caller has alone. Returns the number.
    #[inline(always)]
    pub(crate) fn begin(&self) -> u64 {
        let next = (self.0.load(Ordering::Relaxed) | FLAGS).wrapping_add(1);
        // Relaxed: whatever publishes the number orders this store too.
        self.0.store(next | SET, Ordering::Relaxed);
        next
    }

    /// The handle sets it anew; returns the number.
    pub(crate) fn set(&self) -> u64 {
        let mut number = 0;
        let _ = self.change(|word| {
            number = (word | FLAGS).wrapping_add(1);
            Some(number | word & FLAGS | SET)
        });
        number
    }

    /// The handle stops it. Whether it was set.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.change(|word| (word & SET != 0).then_some(word & !SET)).is_ok()
    }

    /// Whether it is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) & SET != 0
    }

    /// Whether it is still set with this number.
    pub(crate) fn is_set_with(&self, number: u64) -> bool {
        is_set_with(self.0.load(Ordering::Relaxed), number)
    }

    /// The time of this number has come.
    pub(crate) fn ring(&self, number: u64) -> Ring {
        let rung = self.change(|word| {
            let enough = word & LOST != 0 || word & PENDING == PENDING;
            let more = if enough { 0 } else { ONCE };
            is_set_with(word, number).then_some((word & !SET) + more)
        });
        match rung {
            Err(_) => Ring::Nothing,
            Ok((before, _)) if before & (LOST | PENDING) == 0 => Ring::Call,
            Ok((_, after)) => last(after).map_or(Ring::Nothing, Ring::Last),
        }
    }

    /// The time of this number will not come: its runtime has ended.
    pub(crate) fn cancel(&self, number: u64) -> Option<Last> {
        let cancelled = self.change(|word| is_set_with(word, number).then_some(word & !SET));
        cancelled.ok().and_then(|(_, after)| last(after))
    }

    /// The goroutine has called once.
    pub(crate) fn called(&self) -> Called {
        match self.change(|word| Some(word - ONCE)) {
            Ok((_, after)) if after & PENDING != 0 => Called::Again,
            Ok((_, after)) | Err(after) => last(after).map_or(Called::Rest, Called::Last),
        }
    }

    /// The goroutine will not call: it was stopped before it began, or
    /// (`function_lost`) the function panicked.
    pub(crate) fn give_up(&self, function_lost: bool) -> Option<Last> {
        let lost = if function_lost { LOST } else { 0 };
        let gave_up = self.change(|word| Some(word & !PENDING | lost));
        gave_up.ok().and_then(|(_, after)| last(after))
    }

    /// The handle goes away.
    #[inline]
    pub(crate) fn drop_handle(&self) -> Option<Last> {
        // Nobody else is left, and nobody else can come: only the handle sets it.
        // Acquire: pairs with the release of who left.
        let word = self.0.load(Ordering::Acquire);
        if let Some(last) = last(word | DROPPED) {
            return Some(last);
        }
        self.change(|word| Some(word | DROPPED)).ok().and_then(|(_, after)| last(after))
    }

    /// Ends the alarm's life. By the last one.
    #[inline]
    pub(crate) fn end(&self) {
        // Relaxed: the pool orders the next life after this one.
        self.0.store(self.0.load(Ordering::Relaxed) & !FLAGS, Ordering::Relaxed);
    }

    /// Changes the word, and returns what it was and what it is; or what it is, if
    /// there is nothing to change.
    #[inline(always)]
    fn change(&self, mut to: impl FnMut(u64) -> Option<u64>) -> Result<(u64, u64), u64> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let Some(next) = to(word) else { return Err(word) };
            // AcqRel: whoever frees the alarm, or calls, sees what the others did
            // before they left, or set it.
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok((word, next)),
                Err(now) => word = now,
            }
        }
    }
}

#[inline(always)]
fn is_set_with(word: u64, number: u64) -> bool {
    word & !FLAGS == number && word & SET != 0
}

/// Whether nobody is left.
#[inline(always)]
fn last(word: u64) -> Option<Last> {
    let left = word & (SET | PENDING) != 0 || word & DROPPED == 0;
    (!left).then_some(Last { holds_function: word & LOST == 0 })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WHOLE: Last = Last { holds_function: true };

    #[test]
    fn one_life() {
        let word = AlarmWord::new();
        let first = word.begin();
        assert!(word.is_set() && word.is_set_with(first));
        let second = word.set();
        assert_eq!(word.ring(first), Ring::Nothing, "it was set again");
        assert_eq!(word.ring(second), Ring::Call);
        assert!(!word.stop(), "too late");
        let third = word.set();
        assert_eq!(word.ring(third), Ring::Nothing, "the goroutine calls twice");
        assert_eq!(word.called(), Called::Again);
        assert_eq!(word.called(), Called::Rest);
        assert!(!word.is_set());
        assert_eq!(word.drop_handle(), Some(WHOLE));
        word.end();
        assert_ne!(word.begin(), third, "numbers are not used again");
    }

    #[test]
    fn the_last_one_frees() {
        let word = AlarmWord::new();
        let number = word.begin();
        assert_eq!(word.drop_handle(), None, "it is set");
        assert_eq!(word.ring(number), Ring::Call);
        assert_eq!(word.called(), Called::Last(WHOLE));
        word.end();

        let number = word.begin();
        assert_eq!(word.drop_handle(), None);
        assert_eq!(word.cancel(number), Some(WHOLE));
        assert_eq!(word.cancel(number), None);
        word.end();

        let number = word.begin();
        assert_eq!(word.ring(number), Ring::Call);
        assert_eq!(word.drop_handle(), None, "a goroutine is going to call");
        assert_eq!(word.give_up(true), Some(Last { holds_function: false }));
        word.end();

        let number = word.begin();
        assert_eq!(word.ring(number), Ring::Call);
        assert_eq!(word.give_up(true), None, "the handle is left");
        let number = {
            assert!(!word.is_set_with(number));
            word.set()
        };
        assert_eq!(word.drop_handle(), None);
        assert_eq!(word.ring(number), Ring::Last(Last { holds_function: false }));
    }

    #[test]
    fn calls_that_nobody_can_catch_up_with_are_forgotten() {
        let word = AlarmWord::new();
        let mut number = word.begin();
        assert_eq!(word.ring(number), Ring::Call);
        for _ in 0..1 << 16 {
            number = word.set();
            assert_eq!(word.ring(number), Ring::Nothing);
        }
        let again = std::iter::from_fn(|| (word.called() == Called::Again).then_some(()));
        assert_eq!(again.count(), (1 << 15) - 2);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    /// An alarm, and what whoever has it alone may touch.
    struct Alarm {
        word: AlarmWord,
        function: Plain<u32>,
        freed: Plain<bool>,
    }

    impl Alarm {
        fn free(&self, _: Last) {
            assert!(!self.freed.get(), "freed twice");
            self.freed.set(true);
            self.function.set(99);
        }

        /// The entry rings, and what it starts calls, on one thread.
        fn expire(&self, number: u64) {
            match self.word.ring(number) {
                Ring::Nothing => {}
                Ring::Last(last) => self.free(last),
                Ring::Call => loop {
                    self.function.set(self.function.get() + 1);
                    match self.word.called() {
                        Called::Again => {}
                        Called::Rest => return,
                        Called::Last(last) => return self.free(last),
                    }
                },
            }
        }
    }

    fn alarm() -> (Arc<Alarm>, u64) {
        let alarm =
            Alarm { word: AlarmWord::new(), function: Plain::new(0), freed: Plain::new(false) };
        let number = alarm.word.begin();
        (Arc::new(alarm), number)
    }

    /// Stop and drop against the clock: the function is called or it was stopped,
    /// and one of them frees the alarm.
    #[test]
    fn stop_and_drop_against_expiry() {
        loom::model(|| {
            let (alarm, number) = alarm();
            let clock = {
                let alarm = alarm.clone();
                loom::thread::spawn(move || alarm.expire(number))
            };
            let stopped = alarm.word.stop();
            if let Some(last) = alarm.word.drop_handle() {
                assert_eq!(alarm.function.get(), u32::from(!stopped));
                alarm.free(last);
            }
            clock.join().unwrap();
            assert!(alarm.freed.get(), "nobody has freed it");
        });
    }

    /// A reset against the clock, which then comes again: two calls never overlap,
    /// and each time that was not stopped is one.
    #[test]
    fn reset_against_expiry() {
        loom::model(|| {
            let (alarm, number) = alarm();
            let clock = {
                let alarm = alarm.clone();
                loom::thread::spawn(move || alarm.expire(number))
            };
            let stopped = alarm.word.stop();
            let again = alarm.word.set();
            let late = {
                let alarm = alarm.clone();
                loom::thread::spawn(move || alarm.expire(again))
            };
            clock.join().unwrap();
            late.join().unwrap();
            assert_eq!(alarm.function.get(), 2 - u32::from(stopped));
            assert!(alarm.word.drop_handle().is_some());
        });
    }
}
