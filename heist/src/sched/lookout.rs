//! How sysmon looks out for timers that are late.
//!
//! It wakes up when the next one would be, in case that its P computes. In a crowd of timers
//! somebody sees to them, and it would wake up for each: if it has done so in vain, again and
//! again in a short time, it gives them longer.

use super::gather::WAIT;
use super::timers::LATE;

#[derive(Default)]
pub(super) struct Lookout {
    /// How much longer than [`LATE`] it waits.
    pub(super) extra: u64,
    /// It is to wake up for a timer.
    pub(super) wakes: bool,
    /// When it last did so in vain.
    vain: u64,
}

impl Lookout {
    /// The longest that it waits for timers of a crowd.
    const MOST: u64 = 950_000;

    /// It has looked.
    pub(super) fn note(&mut self, now: u64, any_late: bool) {
        let in_vain = std::mem::take(&mut self.wakes) && !any_late;
        let soon = now - self.vain < WAIT + 2 * (LATE + self.extra);
        if in_vain && soon {
            self.extra = (2 * self.extra + LATE / 2).min(Self::MOST);
        } else if in_vain || any_late {
            self.extra = 0;
        }
        if in_vain {
            self.vain = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It wakes up for a timer then, and finds it late or not.
    fn wakes_up(lookout: &mut Lookout, now: u64, any_late: bool) -> u64 {
        lookout.wakes = true;
        lookout.note(now, any_late);
        lookout.extra
    }

    #[test]
    fn in_a_crowd_it_gives_timers_longer() {
        let lookout = &mut Lookout::default();
        let mut now = 1_000_000_000;
        assert_eq!(wakes_up(lookout, now, false), 0, "once");
        let extras = (0..8).map(|_| {
            now += LATE + lookout.extra;
            wakes_up(lookout, now, false)
        });
        let halves: Vec<u64> = extras.map(|extra| extra / (LATE / 2)).collect();
        assert_eq!(halves, [1, 3, 7, 15, 31, 38, 38, 38], "up to a millisecond with `LATE`");
        assert_eq!(wakes_up(lookout, now + 1, true), 0, "one was late");
    }

    #[test]
    fn others_are_looked_out_for_at_once() {
        let lookout = &mut Lookout::default();
        for i in 1..10 {
            assert_eq!(wakes_up(lookout, i * 1_000_000_000, false), 0, "far apart");
        }
        lookout.extra = LATE;
        lookout.note(9_000_000_001, false);
        assert_eq!(lookout.extra, LATE, "it has not woken up for a timer");
    }
}
