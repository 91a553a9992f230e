//! How long sysmon sleeps between two looks.
//!
//! 20 µs while there is something to do, or 0.1 ms while all Ps compute; after a millisecond
//! with nothing to do (50 rounds of 20 µs, as Go has it) twice as
//! long each time, up to 10 ms, or to 1 ms while some Ps are busy and some idle: then
//! somebody could run what a busy one keeps. If those that are busy have gone from
//! goroutine to goroutine at each of many looks, none of them keeps anything, and up to
//! 4 ms: on a virtual machine a look takes 30 µs, most of it for going to sleep and
//! waking up (a server that is busy with short requests: 3 % of its CPU time).

use std::time::Duration;

pub(super) const SHORT: Duration = Duration::from_micros(20);
/// While all Ps are with goroutines that compute. A round costs as much of a CPU as 20 µs
/// are, and a thread that has had its share of a CPU when it wakes up waits, however
/// short the slice that it asks for, until the kernel's tick interrupts whoever computes
/// there: for milliseconds.
const STEADY: Duration = Duration::from_micros(100);
/// While a P is idle that a busy one could do with, or that nobody polls for.
pub(super) const MEDIUM: Duration = Duration::from_millis(1);
/// The same when all that are busy move.
const RELAXED: Duration = Duration::from_millis(4);
pub(super) const LONG: Duration = Duration::from_millis(10);

/// Rounds of the shortest sleep with nothing to do before it sleeps longer. Longer ones count
/// for as many: with 50 of 0.1 ms each, a computation of 12 ms on both of two CPUs lost a
/// twentieth of them to sysmon.
const QUIET_ROUNDS: u32 = 50;

/// Rounds a millisecond apart in which all moved, before they are trusted to.
const SMOOTH_ROUNDS: u32 = 16;

/// What a round has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Something to do, and perhaps there is more soon.
    Acted,
    /// Nothing, or nothing that more looks would help.
    Quiet,
    /// Nothing, and each P that is busy has run many goroutines since the last one.
    Smooth,
    /// Nothing, and no P is busy at this moment: that says nothing of those that were, and
    /// will be soon.
    Idle,
}

/// What is to be known for the next sleep.
#[derive(Debug)]
pub(super) struct Backoff {
    /// Rounds since there was something to do.
    quiet: u32,
    /// Rounds since somebody did not move.
    smooth: u32,
    delay: Duration,
    /// How long it slept, in rounds of the shortest sleep.
    slept: u32,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Backoff { quiet: 0, smooth: 0, delay: SHORT, slept: 1 }
    }

    /// How long to sleep now. `half_idle`: some Ps are busy and others idle. `all_compute`: all
    /// are with goroutines that compute.
    pub(super) fn next(&mut self, half_idle: bool, all_compute: bool) -> Duration {
        if self.quiet > QUIET_ROUNDS {
            let most = if half_idle { self.most() } else { LONG };
            self.delay = (self.delay * 2).min(most);
        }
        let delay = if all_compute { self.delay.max(STEADY) } else { self.delay };
        self.slept = (delay.as_micros() / SHORT.as_micros()) as u32;
        delay
    }

    /// How long it sleeps at most while somebody could help.
    pub(super) fn most(&self) -> Duration {
        if self.smooth > SMOOTH_ROUNDS { RELAXED } else { MEDIUM }
    }

    /// A round is over.
    pub(super) fn note(&mut self, round: Round) {
        if round == Round::Acted {
            return *self = Backoff::new();
        }
        self.quiet = self.quiet.saturating_add(self.slept);
        match round {
            Round::Quiet => self.smooth = 0,
            Round::Smooth if self.delay >= MEDIUM => self.smooth = self.smooth.saturating_add(1),
            Round::Acted | Round::Smooth | Round::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sleeps of so many rounds with nothing to do, in microseconds.
    fn sleeps(backoff: &mut Backoff, rounds: usize, half_idle: bool) -> Vec<u128> {
        let mut round = || {
            let delay = backoff.next(half_idle, false).as_micros();
            backoff.note(Round::Quiet);
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
        backoff.note(Round::Acted);
        assert_eq!(sleeps(&mut backoff, 52, false)[50..], [20, 40], "from the beginning");
    }

    #[test]
    fn a_millisecond_is_as_long_while_all_compute() {
        let mut backoff = Backoff::new();
        let mut sleep = |all_compute| {
            let delay = backoff.next(false, all_compute).as_micros();
            backoff.note(Round::Quiet);
            delay
        };
        let sleeps: Vec<_> = (0..17).map(|_| sleep(true)).collect();
        assert_eq!(sleeps[..13], [100; 13]);
        assert_eq!(sleeps[13..], [160, 320, 640, 1_280]);
        assert_eq!(sleep(false), 2_560);
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

    #[test]
    fn longer_while_somebody_could_help_but_all_have_moved_for_long() {
        let mut backoff = Backoff::new();
        let mut sleep = |round| {
            let delay = backoff.next(true, false).as_micros();
            backoff.note(round);
            delay
        };
        let ramp: Vec<_> = (0..57).map(|_| sleep(Round::Smooth)).collect();
        assert_eq!(ramp[56], 1_000, "looks that are close together do not count");
        let smooth: Vec<_> = (0..20).map(|_| sleep(Round::Smooth)).collect();
        assert_eq!(smooth[..16], [1_000; 16]);
        assert_eq!(smooth[16..], [2_000, 4_000, 4_000, 4_000]);
        assert_eq!(sleep(Round::Quiet), 4_000);
        let again: Vec<_> = (0..18).map(|_| sleep(Round::Smooth)).collect();
        assert_eq!(again[..17], [1_000; 17], "one did not move");
        assert_eq!(again[17], 2_000);
        assert_eq!(sleep(Round::Idle), 4_000);
        assert_eq!(sleep(Round::Acted), 4_000, "nobody was busy for a moment");
        assert_eq!(sleep(Round::Smooth), 20);
    }
}
