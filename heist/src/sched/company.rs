//! Whether another M is worth waking for what the network brings.
//!
//! Of the goroutines that one look at the network makes ready, an idle P could run half.
//! If there is a CPU for its M, all are done sooner. If there is none, because those who
//! sent the requests run there, say, the two Ms take turns, with each other and with
//! those whom they answer: each request waits longer and costs more (echo with its
//! load on two CPUs: a 99th percentile of 4 ms instead of 1, and more than twice the
//! context switches).
//!
//! Only the kernel knows which is the case, and it says so afterwards: it counts how
//! long a thread that could run has waited for a CPU. So somebody is woken, sysmon looks
//! what came of it, and if those who run wait markedly longer than one does alone,
//! nobody is woken for a while; twice as long each time that an attempt ends like that, and
//! half as long after one that does not.
//!
//! Compared with being alone, not with nothing: on CPUs that other programs keep busy,
//! one thread waits as long as two, and two get twice the share.
//!
//! All of this is a guess about speed. A goroutine that computes is no reason to wait:
//! sysmon wakes somebody for those behind it, whatever was learned.

use super::m::M;
use super::schedt::Sched;
use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long those who run are watched, at least; and one that is left alone, which is
/// the usual case and in no hurry.
const WINDOW: u64 = 5_000_000;
const LONG_WINDOW: u64 = 20_000_000;

/// What was counted longer ago than this says nothing about now.
const STALE: u64 = 10 * WINDOW;

/// How much more of its time one who has company may wait for a CPU, of a thousand.
/// Three threads that are always able to run and share two CPUs wait 333.
const MARKED: u64 = 150;

/// For how long nobody is woken after one attempt in vain, and after many. An attempt
/// takes about a window or two: so rarely that the 99th percentile does not see it.
const FIRST_PAUSE: u64 = 20_000_000;
const LAST_PAUSE: u64 = 2_000_000_000;

/// How many threads are asked about.
const MOST: usize = 8;

/// What a runtime has learned. A guess throughout, so every access is relaxed.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// Until then nobody is woken.
    alone_until: AtomicU64,
    /// How many batches were shared, and how many were not because of that.
    shared: AtomicU32,
    kept: AtomicU32,
}

impl Company {
    /// There is a batch that is worth sharing, if there is a CPU. Whether to wake
    /// somebody for it; `idle` says whether a P is idle.
    pub(crate) fn is_welcome(&self, now: u64, idle: bool) -> bool {
        let keep = idle && self.is_alone(now);
        let count = if keep { &self.kept } else { &self.shared };
        // No read-modify-write: that there are some is all that counts.
        count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        idle && !keep
    }

    /// Whether a batch was shared with those who are awake or woken, and sysmon has not
    /// judged yet what came of it.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.shared.load(Ordering::Relaxed) != 0
    }

    /// Whether nobody is to be woken for a batch at this moment.
    pub(crate) fn is_alone(&self, now: u64) -> bool {
        now < self.alone_until.load(Ordering::Relaxed)
    }
}

/// How long the threads of a runtime have run and waited for a CPU, each, at some moment.
#[derive(Debug, Default)]
struct Counted {
    at: u64,
    threads: Vec<Option<(u64, u64)>>,
}

impl Counted {
    fn now(ms: &[&'static M], at: u64) -> Counted {
        let count = |m: &&'static M| m.os_thread().ran_and_waited();
        Counted { at, threads: ms.iter().map(count).collect() }
    }

    /// How much of the time since `before` in which they could run they have waited,
    /// of a thousand.
    fn waited_since(&self, before: &Counted) -> Option<u64> {
        let (mut ran, mut waited) = (0, 0);
        for (now, before) in self.threads.iter().zip(&before.threads) {
            if let (Some(now), Some(before)) = (now, before) {
                ran += now.0.saturating_sub(before.0);
                waited += now.1.saturating_sub(before.1);
            }
        }
        (waited * 1000).checked_div(ran + waited)
    }
}

/// What sysmon keeps in order to judge.
#[derive(Debug)]
pub(crate) struct Judge {
    before: Counted,
    verdict: Verdict,
}

/// What the windows so far say.
#[derive(Debug)]
struct Verdict {
    /// How much one waits that is alone, of a thousand.
    alone: u64,
    /// The window before was one of being alone, from its begin to its end.
    settled: bool,
    /// The next pause.
    pause: u64,
}

impl Judge {
    pub(crate) fn new() -> Judge {
        let verdict = Verdict { alone: 0, settled: false, pause: FIRST_PAUSE };
        Judge { before: Counted::default(), verdict }
    }

    /// Looks at what came of being alone, or of not being it.
    pub(crate) fn look(&mut self, sched: &'static Sched, now: u64) {
        let company = &sched.company;
        let least = if company.is_alone(now) { LONG_WINDOW } else { WINDOW };
        if now.saturating_sub(self.before.at) < least {
            return;
        }
        let shared = company.shared.load(Ordering::Relaxed) != 0;
        let kept = company.kept.load(Ordering::Relaxed) != 0;
        if !shared && !kept {
            return;
        }
        company.shared.store(0, Ordering::Relaxed);
        company.kept.store(0, Ordering::Relaxed);
        let ms: Vec<_> = sched.shared.lock().all_ms.iter().take(MOST).copied().collect();
        let before = std::mem::replace(&mut self.before, Counted::now(&ms, now));
        if now.saturating_sub(before.at) > STALE {
            return;
        }
        if let Some(waited) = self.before.waited_since(&before) {
            let was_alone = company.is_alone(before.at);
            if let Some(pause) = self.verdict.hear(was_alone, shared, waited) {
                company.alone_until.store(now.saturating_add(pause), Ordering::Relaxed);
            }
        }
    }
}

impl Verdict {
    /// A window in which those who ran have waited so much. Returns for how long nobody
    /// is to be woken from now on.
    #[must_use]
    fn hear(&mut self, was_alone: bool, shared: bool, waited: u64) -> Option<u64> {
        let settled = std::mem::replace(&mut self.settled, was_alone && !shared);
        if was_alone {
            // Those who were awake when it began go on for a while: it counts from the
            // second such window on.
            if settled && self.settled {
                self.alone = (self.alone + waited) / 2;
            }
            return None;
        }
        if !shared {
            return None;
        }
        if waited <= self.alone + MARKED {
            // Not at once what it was at first: where other programs come and go, one
            // window in which they were not there says little.
            self.pause = (self.pause / 2).max(FIRST_PAUSE);
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LAST_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        Judge::new().verdict
    }

    #[test]
    fn company_that_waits_is_not_woken_for_ever_longer() {
        let mut verdict = verdict();
        assert_eq!(verdict.hear(false, true, 300), Some(FIRST_PAUSE));
        assert_eq!(verdict.hear(true, true, 300), None, "those who were awake");
        assert_eq!(verdict.hear(true, false, 0), None);
        assert_eq!(verdict.hear(false, true, 300), Some(2 * FIRST_PAUSE));
        for _ in 0..20 {
            assert!(verdict.hear(false, true, 300).is_some());
        }
        assert_eq!(verdict.hear(false, true, 300), Some(LAST_PAUSE));
        assert_eq!(verdict.hear(false, true, 0), None, "there is a CPU");
        assert_eq!(verdict.hear(false, true, 300), Some(LAST_PAUSE / 2), "for a moment");
        for _ in 0..10 {
            assert_eq!(verdict.hear(false, true, 0), None);
        }
        assert_eq!(verdict.hear(false, true, 300), Some(FIRST_PAUSE));
    }

    #[test]
    fn who_waits_alone_as_well_may_have_company() {
        let mut verdict = verdict();
        assert!(verdict.hear(false, true, 500).is_some());
        for _ in 0..10 {
            assert_eq!(verdict.hear(true, false, 500), None);
        }
        assert_eq!(verdict.hear(false, true, 520), None, "twice the share");
    }

    #[test]
    fn a_window_in_which_company_leaves_does_not_count_as_alone() {
        let mut verdict = verdict();
        assert_eq!(verdict.hear(true, true, 900), None);
        assert_eq!(verdict.hear(true, false, 900), None, "the first one");
        assert_eq!(verdict.hear(true, false, 100), None);
        assert_eq!(verdict.alone, 50);
    }

    #[test]
    fn a_batch_is_kept_while_alone_and_only_then() {
        let company = Company::default();
        assert!(company.is_welcome(5, true));
        assert!(!company.is_welcome(5, false), "nobody is idle");
        company.alone_until.store(10, Ordering::Relaxed);
        assert!(!company.is_welcome(9, true));
        assert!(company.is_welcome(10, true));
        let count = |count: &AtomicU32| count.load(Ordering::Relaxed);
        assert_eq!((count(&company.shared), count(&company.kept)), (3, 1));
    }

    #[test]
    fn what_threads_have_waited_is_of_the_time_in_which_they_could_run() {
        let count = |threads: &[Option<(u64, u64)>]| Counted { at: 0, threads: threads.to_vec() };
        let before = count(&[Some((100, 50)), None, Some((7, 7))]);
        let now = count(&[Some((400, 150)), Some((9, 9)), None, Some((1, 1))]);
        assert_eq!(now.waited_since(&before), Some(250));
        assert_eq!(before.waited_since(&before), None, "nobody ran");
    }
}
