//! Ticks at regular intervals.

use super::{Duration, Instant};
use crate::prim::clock;
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
        super::sleep_until_clock(crate::prim::clock::at(due), Location::caller());
        let late = clock::instant().saturating_duration_since(due).as_nanos();
        let missed = u32::try_from(late / self.period.as_nanos()).unwrap_or(u32::MAX);
        self.next = self
            .period
            .checked_mul(missed.saturating_add(1))
            .and_then(|ahead| due.checked_add(ahead));
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
            super::sleep_until_clock(u64::MAX, place);
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
