//! Ticks at regular intervals.

use super::{Duration, Instant};
use crate::prim::{clock, nanos};
use crate::sched::nap;
use std::panic::Location;

/// Ticks once a period: Go's `Ticker`.
///
/// A tick that nobody waited for is kept until somebody does; of several, only
/// one, and those after it come at the times that they would have had. To select
/// among ticks and other things there is [`chan::tick`](crate::chan::tick).
///
/// ```
/// use heist::time::{Duration, Instant, Ticker};
///
/// let begin = Instant::now();
/// let mut ticker = Ticker::new(Duration::from_millis(2));
/// for _ in 0..3 {
///     ticker.tick();
/// }
/// assert!(begin.elapsed() >= Duration::from_millis(6));
/// ```
#[derive(Debug)]
pub struct Ticker {
    /// `None`: later than the clock can tell, or not at all.
    next: Option<Instant>,
    stopped: bool,
    period: Duration,
}

impl Ticker {
    /// The first tick comes a period from now.
    ///
    /// # Panics
    ///
    /// If the period is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Ticker {
        assert!(!period.is_zero(), "a Ticker needs a period longer than zero");
        Ticker { next: clock::instant().checked_add(period), stopped: false, period }
    }

    /// Waits for the next tick, and returns the moment that it was due.
    #[track_caller]
    pub fn tick(&mut self) -> Instant {
        let Some(due) = self.next else { self.wait_for_ever(Location::caller()) };
        let left = due.saturating_duration_since(clock::instant());
        nap::sleep(nanos(left), Location::caller());
        self.next = after(due, self.period, clock::instant());
        due
    }

    /// Starts anew with another period: the next tick comes that long from now, and
    /// one that is due is forgotten.
    ///
    /// # Panics
    ///
    /// If the period is zero.
    ///
    /// ```
    /// use heist::time::{Duration, Ticker};
    ///
    /// let mut ticker = Ticker::new(Duration::from_secs(3600));
    /// ticker.reset(Duration::from_millis(1));
    /// ticker.tick();
    /// ```
    #[track_caller]
    pub fn reset(&mut self, period: Duration) {
        *self = Ticker::new(period);
    }

    /// No more ticks, also not one that is due: whoever waits for the next waits for
    /// ever, until a [`reset`](Self::reset). To be done with a ticker, just drop it.
    ///
    /// ```
    /// use heist::time::{self, Duration, Ticker};
    ///
    /// let mut ticker = Ticker::new(Duration::from_millis(1));
    /// ticker.tick();
    /// ticker.stop();
    /// assert!(time::timeout(Duration::from_millis(5), move || ticker.tick()).is_err());
    /// ```
    pub fn stop(&mut self) {
        (self.next, self.stopped) = (None, true);
    }

    /// A tick in centuries is waited for like any other, and is no deadlock.
    fn wait_for_ever(&self, place: &'static Location<'static>) -> ! {
        if self.stopped {
            super::sleep_for_ever(place);
        }
        loop {
            nap::sleep(u64::MAX, place);
        }
    }

    /// The time from tick to tick.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// Endless: each step waits for a tick.
impl Iterator for Ticker {
    type Item = Instant;

    #[track_caller]
    fn next(&mut self) -> Option<Instant> {
        Some(self.tick())
    }
}

/// The first tick after `now`, of those that come each period after `due`: those that were
/// missed are left out.
fn after(due: Instant, period: Duration, now: Instant) -> Option<Instant> {
    const SECOND: u128 = 1_000_000_000;
    let late = now.saturating_duration_since(due).as_nanos();
    let ahead = late - late % period.as_nanos();
    let ahead = Duration::new((ahead / SECOND) as u64, (ahead % SECOND) as u32);
    due.checked_add(ahead)?.checked_add(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_were_missed_are_left_out() {
        let (due, ns) = (clock::instant(), Duration::from_nanos);
        let after = |period, late| after(due, period, due + late).map(|tick| tick - due);
        assert_eq!(after(ns(10), ns(0)), Some(ns(10)));
        assert_eq!(after(ns(10), ns(9)), Some(ns(10)));
        assert_eq!(after(ns(10), ns(10)), Some(ns(20)));
        assert_eq!(after(ns(10), ns(25)), Some(ns(30)));
        let day = Duration::from_secs(86_400);
        assert_eq!(after(ns(1), day), Some(day + ns(1)), "more than 2³² of them");
        assert_eq!(after(day, ns(1)), Some(day));
        assert_eq!(after(Duration::MAX, ns(1)), None, "never");
    }
}
