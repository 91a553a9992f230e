//! Timers that come in a crowd wait for each other.
//!
//! A thread that sleeps until the next timer and wakes up for it takes some 35 µs of CPU time
//! on a virtual machine. If timers come more often than that, it does nothing else, and one
//! for each P does so at the same time. So if more than [`CROWD`] are due within the
//! [`WAIT`] after the earliest, on whatever Ps, nobody who has nothing to run wakes up before
//! that time is over. Then one runs what is due, on all Ps, and says until when the rest waits.
//! (With many Ps it takes more, since more of them are awake and see to their own: tasks
//! that arrive by a clock keep 64 Ps busy at a rate at which two would be asleep.)
//!
//! A P that runs goroutines looks after its own timers all the same, so that its are as
//! punctual as ever. A few timers never wait for each other.

use super::schedt::Sched;
use super::timers::LATE;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::timer::{NEVER, Timers};

/// How long those may wait for each other that come in a crowd.
pub(crate) const WAIT: u64 = 400_000;

/// More than so many in that time are a crowd for two Ps: one every 6 µs.
const CROWD: usize = 64;

/// Until when they wait; in the past if there is no crowd.
///
/// One word for all Ps. Whoever writes it has just looked at the timers of all, so it is as good
/// as what another writes at the same time; who reads it too late looks too soon, and it is over
/// by itself. So relaxed is enough.
#[derive(Debug)]
pub(crate) struct Gathering {
    until: AtomicU64,
    /// There was no crowd, and nobody counts again before then: that takes a latch of each P.
    recount: AtomicU64,
}

/// How long that is.
const RECOUNT: u64 = WAIT / 8;

impl Gathering {
    pub(crate) fn new() -> Gathering {
        Gathering { until: AtomicU64::new(0), recount: AtomicU64::new(0) }
    }

    fn until(&self) -> u64 {
        self.until.load(Ordering::Relaxed)
    }

    /// When somebody idle is to look, of whose timers the earliest is due at `earliest`: when
    /// those of a crowd have gathered, unless it is due before them all.
    #[inline]
    pub(super) fn wanted(&self, earliest: u64) -> u64 {
        let until = self.until();
        if earliest < until.saturating_sub(WAIT) { earliest } else { earliest.max(until) }
    }

    /// Whether there was a crowd a moment ago.
    pub(super) fn is_crowded(&self, now: u64) -> bool {
        self.until() > now.saturating_sub(WAIT)
    }

    /// Whether timers wait for each other at `now`. Not if the earliest is late already: nobody
    /// has looked for a while.
    fn gather<'a, T: Copy + 'a, I: Iterator<Item = &'a Timers<T>>>(
        &self,
        now: u64,
        procs: u32,
        all: impl Fn() -> I,
    ) -> bool {
        let first = all().map(Timers::next).min().unwrap_or(NEVER);
        if self.until() > now && self.wanted(first) > now {
            return true;
        }
        if first > now.saturating_add(WAIT)
            || first <= now.saturating_sub(LATE)
            || self.recount.load(Ordering::Relaxed) > now
        {
            return false;
        }
        let crowd = CROWD * (procs as usize / 2).max(1);
        let Some(last) = last_of_more(crowd, all(), first + WAIT) else {
            self.recount.store(now + RECOUNT, Ordering::Relaxed);
            return false;
        };
        // Some are due all at once: no longer than until the last of them. Of others, more
        // come.
        let until = if last.saturating_sub(first) < WAIT / 8 { last } else { first + WAIT };
        self.until.store(until, Ordering::Relaxed);
        until > now
    }
}

/// Whether the timers of a runtime wait for each other, if the caller has nothing to run.
pub(super) fn gathers(sched: &'static Sched, now: u64) -> bool {
    let all = || sched.timer_mask.iter(sched.procs()).map(|id| &sched.p(id).timers);
    sched.gathering.gather(now, sched.procs(), all)
}

/// If more than `many` are due at `by`: when the last of those is that it has seen.
fn last_of_more<'a, T: Copy + 'a>(
    many: usize,
    all: impl Iterator<Item = &'a Timers<T>>,
    by: u64,
) -> Option<u64> {
    let (mut count, mut last) = (0, 0);
    for timers in all.filter(|timers| timers.next() <= by) {
        let (some, last_of_some) = timers.count_due::<CROWD>(by);
        (count, last) = (count + some, last_of_some.max(last));
        if count > many {
            return Some(last);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 10_000_000;

    fn timers(due: impl IntoIterator<Item = u64>) -> Timers<()> {
        let timers = Timers::new();
        due.into_iter().for_each(|when| drop(timers.add(when, (), |()| true)));
        timers
    }

    /// Until when they wait, as seen from `now` on.
    fn until(of: &[Timers<()>], now: u64) -> Option<u64> {
        let gathering = Gathering::new();
        let gathers = gathering.gather(now, 2, || of.iter());
        assert_eq!(gathers, gathering.until() > now);
        assert_eq!(gathering.is_crowded(now), gathering.until() != 0);
        gathers.then_some(gathering.until())
    }

    fn each_microsecond(n: u64) -> impl Iterator<Item = u64> {
        (0..n).map(|i| NOW + 1_000 * i)
    }

    #[test]
    fn a_crowd_gathers_and_a_few_do_not() {
        let few = timers(each_microsecond(CROWD as u64));
        assert_eq!(until(&[few], NOW), None);
        let crowd = [timers(each_microsecond(CROWD as u64).chain([NOW + WAIT]))];
        assert_eq!(until(&crowd, NOW + LATE), None, "nobody looked");
        assert_eq!(until(&crowd, NOW - WAIT - 1), None, "there is time");
        assert_eq!(until(&crowd, NOW + 1_000), Some(NOW + WAIT));
        let at_once = [timers((0..2 * CROWD as u64).map(|_| NOW + 7_000))];
        assert_eq!(until(&at_once, NOW), Some(NOW + 7_000), "and no longer");
    }

    #[test]
    fn those_of_several_are_one_crowd() {
        let third = || each_microsecond(100).step_by(3);
        let mut all = vec![timers(third()), timers([NOW + 10 * WAIT])];
        assert_eq!(until(&all, NOW), None);
        all.push(timers(third().map(|when| when + 300_000)));
        assert_eq!(until(&all, NOW), Some(NOW + WAIT));
        assert!(!Gathering::new().gather(NOW, 4, || all.iter()), "for two, not for four");
    }

    /// It was not there when the others began to gather.
    #[test]
    fn one_that_is_due_before_the_crowd_does_not_wait_for_it() {
        let gathering = Gathering::new();
        let begin = NOW - WAIT / 2;
        let mut all = vec![timers(each_microsecond(300).chain([NOW + WAIT]))];
        assert!(gathering.gather(begin, 2, || all.iter()));
        assert_eq!(gathering.wanted(NOW), NOW + WAIT);
        all.push(timers([begin + 10_000]));
        assert_eq!(gathering.wanted(begin + 10_000), begin + 10_000);
        assert!(!gathering.gather(begin + 10_000 + LATE, 2, || all.iter()), "it is late");
        assert_eq!(gathering.wanted(NEVER), NEVER);
    }

    #[test]
    fn it_is_over_when_they_have_waited() {
        let (gathering, crowd) = (Gathering::new(), [timers(each_microsecond(300))]);
        assert!(gathering.gather(NOW, 2, || crowd.iter()));
        assert!(gathering.gather(NOW + WAIT - 1, 2, || crowd.iter()));
        assert!(!gathering.gather(NOW + WAIT, 2, || crowd.iter()), "they are late");
        assert!(gathering.is_crowded(NOW + WAIT) && !gathering.is_crowded(NOW + 2 * WAIT));
    }
}
