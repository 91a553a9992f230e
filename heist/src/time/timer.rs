//! Timers that call a function.

use super::{Duration, Instant};
use crate::prim::{clock, nanos};
use crate::runtime;
use crate::sched::alarm::{Alarm, When};
use crate::sched::park;
use std::fmt;

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
    alarm: &'static Alarm,
}

impl Timer {
    /// Calls `f` after so long. If that is [`Duration::MAX`] or near it: never.
    #[track_caller]
    pub fn after<F: FnMut() + Send + 'static>(duration: Duration, f: F) -> Timer {
        Timer::start(When::After(nanos(duration)), f)
    }

    /// Calls `f` when the moment has come.
    #[track_caller]
    pub fn at<F: FnMut() + Send + 'static>(deadline: Instant, f: F) -> Timer {
        Timer::start(When::At(clock::at(deadline)), f)
    }

    fn start<F: FnMut() + Send + 'static>(when: When, f: F) -> Timer {
        let timer = Timer { alarm: Alarm::start(f, when, runtime::current_sched) };
        park::safe_point();
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
        let stopped = self.alarm.stop();
        park::safe_point();
        stopped
    }

    /// Sets the timer to call so long from now, whether it has called, was
    /// stopped, or is still to call. Returns what [`stop`](Self::stop) would
    /// have.
    #[track_caller]
    pub fn reset(&self, duration: Duration) -> bool {
        let stopped = self.alarm.stop();
        self.alarm.set(When::After(nanos(duration)), runtime::current_sched);
        park::safe_point();
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
        self.alarm.is_set()
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        self.alarm.drop_handle();
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}
