//! Timers that call a function.

use super::{Duration, Instant};
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::runtime;
use crate::sched::timers::{self, Alarm, Armed, Due};
use crate::thread;
use std::fmt;
use std::sync::Arc;

/// Calls a function once, later, on a goroutine of its own: Go's `AfterFunc`.
///
/// Dropping the handle lets the timer run; [`stop`](Self::stop) ends it. After
/// [`stop`](Self::stop) or [`reset`](Self::reset) returns, the time that was set
/// before does not come any more; a call that has begun goes on. Calls of one
/// timer follow each other and never overlap; after one that panics there are no
/// more.
///
/// ```
/// use heist::time::{Duration, Timer};
/// use std::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// let timer = Timer::after(Duration::from_millis(1), move || sender.send("now").unwrap());
/// assert_eq!(receiver.recv(), Ok("now"));
/// assert!(!timer.stop(), "too late");
/// assert!(!timer.reset(Duration::from_millis(1)), "and once more");
/// assert_eq!(receiver.recv(), Ok("now"));
/// ```
#[must_use = "the timer runs on by itself; keep it to stop it, or say `drop` if that is meant"]
pub struct Timer {
    shared: Arc<dyn Resettable>,
}

impl Timer {
    /// Calls `f` after so long. If that is [`Duration::MAX`] or near it: never.
    #[track_caller]
    pub fn after<F: FnMut() + Send + 'static>(duration: Duration, f: F) -> Timer {
        Timer::at_clock(clock::after(duration), f)
    }

    /// Calls `f` when the moment has come.
    #[track_caller]
    pub fn at<F: FnMut() + Send + 'static>(deadline: Instant, f: F) -> Timer {
        Timer::at_clock(clock::at(deadline), f)
    }

    fn at_clock<F: FnMut() + Send + 'static>(when: u64, f: F) -> Timer {
        let timer = Timer {
            shared: Arc::new(Shared {
                word: AtomicU64::new(0),
                place: AtomicU64::new(0),
                calls: Lock::new(
                    Rank::Leaf,
                    Calls { f: Some(f), coming: 0, missed: 0, dropped: false },
                ),
            }),
        };
        timer.set(when);
        timer
    }

    /// Stops the timer. Returns whether that kept it from calling: false if its
    /// time has come already, or it was stopped before.
    ///
    /// ```
    /// use heist::time::{Duration, Timer};
    ///
    /// let timer = Timer::after(Duration::from_secs(60), || unreachable!());
    /// assert!(timer.stop());
    /// assert!(!timer.stop());
    /// ```
    pub fn stop(&self) -> bool {
        let stopped = self.shared.head().unset();
        if stopped {
            self.shared.head().place().disarm();
        }
        stopped
    }

    /// Sets the timer to call so long from now, whether it has called, was
    /// stopped, or is still to call. Returns what [`stop`](Self::stop) would
    /// have.
    #[track_caller]
    pub fn reset(&self, duration: Duration) -> bool {
        let stopped = self.stop();
        self.set(clock::after(duration));
        stopped
    }

    /// Whether it is set and its time has not come.
    ///
    /// ```
    /// use heist::time::{Duration, Timer};
    ///
    /// let timer = Timer::after(Duration::from_secs(60), || ());
    /// assert!(timer.is_set());
    /// timer.stop();
    /// assert!(!timer.is_set());
    /// ```
    pub fn is_set(&self) -> bool {
        self.shared.head().word.load(Ordering::Acquire) & SET != 0
    }

    fn set(&self, when: u64) {
        let head = self.shared.head();
        let number = head.set();
        let due = Due::Call(self.shared.clone().alarm(), number);
        match timers::arm_anywhere(runtime::current_sched(), due, when) {
            Some(armed) => head.place.store(armed.word(), Ordering::Relaxed),
            // The runtime has shut down: nothing is called any more.
            None => {
                head.unset();
            }
        }
    }
}

/// The function is the user's, and so is what its drop does: it goes here, or on the
/// goroutine that calls it last. Entries of heaps outlive it; they are dropped with
/// locks held, and on threads of the scheduler.
impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.handle_is_dropped();
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}

/// The lowest bit of `word`: the timer is set. The others count how often it
/// was, so that an entry in a heap knows whether it is the last one.
const SET: u64 = 1;

/// What a timer's handle and its entry in a heap have in common.
struct Shared<F> {
    word: AtomicU64,
    /// On which P it was set last, to tell that it was stopped. Of several
    /// threads that set one timer, one may tell the wrong P: it only counts.
    place: AtomicU64,
    calls: Lock<Calls<F>>,
}

struct Calls<F> {
    /// Taken out while it is called.
    f: Option<F>,
    /// Goroutines that are going to call it and have not begun.
    coming: u32,
    /// How often its time came meanwhile.
    missed: u32,
    /// Nobody can set the timer again.
    dropped: bool,
}

/// The words of a timer, whatever it calls.
#[derive(Clone, Copy)]
struct Head<'a> {
    word: &'a AtomicU64,
    place: &'a AtomicU64,
}

impl Head<'_> {
    /// Sets the timer anew; returns the number of this time.
    fn set(self) -> u64 {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = (word | SET).wrapping_add(1) | SET;
            // AcqRel: what its owner did before is seen by the call.
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(now) => word = now,
            }
        }
    }

    /// Ends the present time, whatever its number. Whether it was set.
    fn unset(self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & SET != 0 && self.end(word)
    }

    /// Ends the time with this number. One wins, of those who stop the timer and
    /// the clock.
    fn end(self, number: u64) -> bool {
        self.word
            .compare_exchange(number, number & !SET, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn place(self) -> Armed {
        Armed::from_word(self.place.load(Ordering::Relaxed))
    }
}

/// A timer of any function.
trait Resettable: Alarm {
    fn head(&self) -> Head<'_>;
    fn alarm(self: Arc<Self>) -> Arc<dyn Alarm>;
    fn handle_is_dropped(&self);
}

impl<F: FnMut() + Send + 'static> Resettable for Shared<F> {
    fn head(&self) -> Head<'_> {
        Head { word: &self.word, place: &self.place }
    }

    fn alarm(self: Arc<Self>) -> Arc<dyn Alarm> {
        self
    }

    fn handle_is_dropped(&self) {
        let mut calls = self.calls.lock();
        calls.dropped = true;
        let f = if self.is_over(&calls) { calls.f.take() } else { None };
        drop(calls);
        drop(f);
    }
}

impl<F: FnMut() + Send + 'static> Alarm for Shared<F> {
    fn is_set(&self, number: u64) -> bool {
        self.word.load(Ordering::Relaxed) == number
    }

    fn ring(self: Arc<Self>, number: u64) {
        let mut calls = self.calls.lock();
        let ended = self.head().end(number);
        calls.coming += u32::from(ended);
        drop(calls);
        if ended {
            // A runtime that shuts down calls nothing any more.
            let _ = thread::Builder::new().spawn(move || self.call());
        }
    }
}

impl<F: FnMut()> Shared<F> {
    fn call(&self) {
        let Some(mut f) = self.begin() else { return };
        loop {
            f();
            let mut calls = self.calls.lock();
            if calls.missed == 0 {
                if !self.is_over(&calls) {
                    calls.f = Some(f);
                }
                return; // the lock is released before the function is dropped
            }
            calls.missed -= 1;
        }
    }

    /// Whether it is never called again.
    fn is_over(&self, calls: &Calls<F>) -> bool {
        calls.dropped && calls.coming == 0 && self.word.load(Ordering::Acquire) & SET == 0
    }

    /// The function, unless it is being called: then it is called once more.
    fn begin(&self) -> Option<F> {
        let mut calls = self.calls.lock();
        calls.coming -= 1;
        let f = calls.f.take();
        calls.missed += u32::from(f.is_none());
        f
    }
}
