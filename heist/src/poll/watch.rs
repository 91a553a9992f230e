//! Whether whoever is going to wait in the poller looks again and again for a while first.
//!
//! A client that sends one request after the other wakes the server for each, if that
//! sleeps: a few microseconds of both. A server that is idle often, for moments, is not what
//! all wait for: its clients are, and it spares them the wake-ups if it looks instead. One
//! that is seldom idle had better save its own time, and so had one that is idle for long.
//!
//! Nobody knows what comes, but the last waits tell: most are as long as those before them.
//! So a wait begins with looking while more of the last ones were over soon than not, and it
//! costs about what sleeping and waking up do when that was in vain.

use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long one who would wait looks before it does: about what it costs all to put a thread
/// to sleep and to wake it, as in `sched::find`.
pub(super) const WATCH: u64 = 20_000;

/// Whoever was busy for longer before it waits is seldom idle.
const BUSY: u64 = 10 * WATCH;

/// So many more waits that were over soon than others are enough; more are not counted.
const ENOUGH: u32 = 16;
const MOST: u32 = 2 * ENOUGH;

/// How the last waits were. A guess, so every access is relaxed, and none a
/// read-modify-write: one at a time waits.
#[derive(Debug)]
pub(super) struct Watch {
    short: AtomicU32,
    /// When the last one was over.
    over: AtomicU64,
    /// When the last one began that began with looking in vain.
    begun: AtomicU64,
}

impl Watch {
    pub(super) const fn new() -> Watch {
        let (short, over, begun) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Watch { short, over, begun }
    }

    /// Whether the next wait is likely to be one that is worth it.
    pub(super) fn is_worth_it(&self) -> bool {
        self.short.load(Ordering::Relaxed) >= ENOUGH
    }

    /// Who has looked since `begin` has seen nothing, and is going to wait.
    pub(super) fn note_vain(&self, begin: u64) {
        self.begun.store(begin, Ordering::Relaxed);
    }

    /// When the present wait began: now, unless it began with looking in vain. What was noted
    /// long ago is that of another one, which something else has ended.
    pub(super) fn begun(&self, now: u64) -> u64 {
        let begun = self.begun.load(Ordering::Relaxed);
        if now.saturating_sub(begun) < 2 * WATCH { begun } else { now }
    }

    /// There was a wait, from one moment to another.
    pub(super) fn note(&self, begin: u64, end: u64) {
        let busy = begin.saturating_sub(self.over.load(Ordering::Relaxed));
        let is_short = end.saturating_sub(begin) < WATCH && busy < BUSY;
        let short = self.short.load(Ordering::Relaxed);
        let short = if is_short { (short + 1).min(MOST) } else { short.saturating_sub(1) };
        self.short.store(short, Ordering::Relaxed);
        self.over.store(end, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after waits that took so long, each after so long.
    fn after(waits: impl IntoIterator<Item = (u64, u64)>) -> bool {
        let (watch, mut now) = (Watch::new(), 0);
        for (busy, nanos) in waits {
            watch.note(now + busy, now + busy + nanos);
            now += busy + nanos;
        }
        watch.is_worth_it()
    }

    const SHORT: (u64, u64) = (5_000, 10_000);
    const LONG: (u64, u64) = (5_000, WATCH);

    #[test]
    fn who_waits_for_long_does_not_watch() {
        assert!(!after([]), "nothing is known");
        assert!(!after([LONG; 1000]));
        assert!(!after([SHORT; 15]), "not enough");
        assert!(!after((0..1000).map(|i| if i % 2 == 0 { SHORT } else { LONG })), "as often");
    }

    #[test]
    fn who_is_seldom_idle_does_not_watch() {
        assert!(!after([(BUSY, 10_000); 1000]));
        assert!(after([(BUSY - 1, 10_000); 1000]));
    }

    #[test]
    fn who_is_needed_again_at_once_watches_until_it_is_not() {
        assert!(after([SHORT; 16]));
        assert!(after((0..1000).map(|i| if i % 4 == 3 { LONG } else { SHORT })), "mostly");
        assert!(after([SHORT; 1000].into_iter().chain([LONG; 16])));
        assert!(!after([SHORT; 1000].into_iter().chain([LONG; 17])), "soon forgotten");
    }

    #[test]
    fn a_wait_counts_from_the_first_look_on() {
        let (watch, now) = (Watch::new(), 1_000_000);
        assert_eq!(watch.begun(now), now, "it did not look");
        watch.note_vain(now);
        assert_eq!(watch.begun(now + WATCH + 1), now);
        let later = now + 2 * WATCH;
        assert_eq!(watch.begun(later), later, "there was something else to do");
    }
}
