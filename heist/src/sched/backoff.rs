//! How long sysmon sleeps between two looks.
//!
//! 20 µs while there is something to do; after 50 rounds with nothing to do twice as
//! long each time, up to 10 ms, or to 1 ms while some Ps are busy and some idle: then
//! somebody could run what a busy one keeps.

use std::time::Duration;

pub(super) const SHORT: Duration = Duration::from_micros(20);
/// While a P is idle that a busy one could do with, or that nobody polls for.
pub(super) const MEDIUM: Duration = Duration::from_millis(1);
pub(super) const LONG: Duration = Duration::from_millis(10);

/// Rounds with nothing to do before it sleeps longer.
const QUIET_ROUNDS: u32 = 50;

/// What is to be known for the next sleep.
#[derive(Debug)]
pub(super) struct Backoff {
    /// Rounds since there was something to do.
    quiet: u32,
    delay: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { quiet: 0, delay: SHORT }
    }

    /// How long to sleep now. `half_idle`: some Ps are busy and others idle.
    pub(super) fn next(&mut self, half_idle: bool) -> Duration {
        if self.quiet > QUIET_ROUNDS {
            self.delay = (self.delay * 2).min(if half_idle { MEDIUM } else { LONG });
        }
        self.delay
    }

    /// A round is over. `acted`: there was something to do.
    pub(super) fn note(&mut self, acted: bool) {
        if acted {
            *self = Backoff::new();
        } else {
            self.quiet += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sleeps of so many rounds with nothing to do, in microseconds.
    fn sleeps(backoff: &mut Backoff, rounds: usize, half_idle: bool) -> Vec<u128> {
        let mut round = || {
            let delay = backoff.next(half_idle).as_micros();
            backoff.note(false);
            delay
        };
        (0..rounds).map(|_| round()).collect()
    }

    #[test]
    fn twice_as_long_each_time_when_nothing_is_to_do() {
        let mut backoff = Backoff::new();
        assert_eq!(sleeps(&mut backoff, 51, false), [20; 51]);
        let doubled = [40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_000, 10_000];
        assert_eq!(sleeps(&mut backoff, 10, false), doubled);
        backoff.note(true);
        assert_eq!(sleeps(&mut backoff, 52, false)[50..], [20, 40], "from the beginning");
    }

    #[test]
    fn no_longer_than_a_millisecond_while_somebody_could_help() {
        let mut backoff = Backoff::new();
        assert_eq!(
            sleeps(&mut backoff, 59, true)[51..],
            [40, 80, 160, 320, 640, 1_000, 1_000, 1_000]
        );
        assert_eq!(sleeps(&mut backoff, 5, false), [2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(sleeps(&mut backoff, 1, true), [1_000], "somebody goes idle");
    }
}
