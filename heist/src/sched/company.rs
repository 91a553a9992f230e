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
//! what came of it, and if those who run wait for a marked part of their time and get no
//! more done than one does alone, nobody is woken for a while; twice as long each time that
//! an attempt ends like that, and half as long after company of that length that does not.
//!
//! *And get no more done*: on CPUs that other programs keep busy, one thread waits as long
//! as two, and two get twice the share. Waiting does not tell that from a client whom the
//! kernel has put on the CPU of the one that answers it: alone it waits for half of its
//! time as well, and in company a little longer. That is why goroutines are counted.
//! (Compared by what they wait, a server that was put there once kept its company ever
//! after: one of three that were traced under wrk.)
//!
//! What one gets done alone is known from when it last was, and may be another matter
//! since. So company that is there for that reason alone is left off now and then, for as
//! long as it takes to count again; more and more rarely while that changes nothing.
//!
//! All of this is a guess about speed. A goroutine that computes is no reason to wait:
//! sysmon wakes somebody for those behind it, whatever was learned.

use super::m::M;
use super::p::run_between;
use super::schedt::Sched;
use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long those who run are watched, at least; and one that is left alone, which is
/// the usual case and in no hurry.
const WINDOW: u64 = 5_000_000;
const LONG_WINDOW: u64 = 20_000_000;

/// What was counted longer ago than this says nothing about now.
const STALE: u64 = 10 * WINDOW;

/// How much of its time one who has company may wait for a CPU in any case, of a thousand.
/// Three threads that are always able to run and share two CPUs wait 333; one that has a CPU
/// to itself 10, for sysmon and the kernel's own.
const MARKED: u64 = 60;

/// Those who wait longer must get so many times as much done as one alone, in quarters:
/// more than what one window differs from the next by chance.
const WORTH: u64 = 5;

/// After so many windows of company for that reason one is alone: at first, and after many
/// such times. For as long as it takes to be so from the begin of a window to its end.
const FIRST_TERM: u32 = 8;
const LAST_TERM: u32 = 256;
const RECOUNT_PAUSE: u64 = 4 * LONG_WINDOW;

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

/// What the threads of a runtime have run and waited for a CPU, each, and its Ps have run,
/// until some moment.
#[derive(Debug, Default)]
struct Counted {
    at: u64,
    threads: Vec<Option<(u64, u64)>>,
    steps: Vec<(u32, u32)>,
}

/// What came of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    /// How much of the time in which they could run the threads have waited, of a thousand.
    waited: u64,
    /// How many goroutines were run in a second.
    done: u64,
    /// How long it was, in nanoseconds.
    time: u64,
}

impl Counted {
    fn now(sched: &'static Sched, ms: &[&'static M], at: u64) -> Counted {
        let count = |m: &&'static M| m.os_thread().ran_and_waited();
        let threads = ms.iter().map(count).collect();
        Counted { at, threads, steps: sched.ps().map(|p| p.steps()).collect() }
    }

    /// `None` if nobody ran.
    fn since(&self, before: &Counted) -> Option<Came> {
        let (mut ran, mut waited) = (0, 0);
        for (now, before) in self.threads.iter().zip(&before.threads) {
            if let (Some(now), Some(before)) = (now, before) {
                ran += now.0.saturating_sub(before.0);
                waited += now.1.saturating_sub(before.1);
            }
        }
        let both = before.steps.iter().zip(&self.steps);
        let done: u64 = both.map(|(before, now)| u64::from(run_between(*before, *now))).sum();
        let time = self.at.saturating_sub(before.at);
        Some(Came {
            waited: (waited * 1000).checked_div(ran + waited)?,
            done: (done * 1_000_000_000).checked_div(time)?,
            time,
        })
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
    /// How many goroutines one runs in a second that is alone; 0 if that is not known.
    alone: u64,
    /// How many windows of company there were that only this speaks for.
    busy: u32,
    /// How many there may be.
    term: u32,
    /// The window before was one of being alone, from its begin to its end.
    settled: bool,
    /// The next pause.
    pause: u64,
    /// How long there was company that is welcome, since that changed last, in nanoseconds.
    good: u64,
}

impl Judge {
    pub(crate) fn new() -> Judge {
        let (term, pause) = (FIRST_TERM, FIRST_PAUSE);
        let verdict = Verdict { alone: 0, busy: 0, term, settled: false, pause, good: 0 };
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
        let before = std::mem::replace(&mut self.before, Counted::now(sched, &ms, now));
        if now.saturating_sub(before.at) > STALE {
            return;
        }
        if let Some(came) = self.before.since(&before) {
            let was_alone = company.is_alone(before.at);
            if let Some(pause) = self.verdict.hear(was_alone, shared, came) {
                company.alone_until.store(now.saturating_add(pause), Ordering::Relaxed);
            }
        }
    }
}

impl Verdict {
    /// What came of a window. Returns for how long nobody is to be woken from now on.
    #[must_use]
    fn hear(&mut self, was_alone: bool, shared: bool, came: Came) -> Option<u64> {
        let settled = std::mem::replace(&mut self.settled, was_alone && !shared);
        if was_alone {
            // Those who were awake when it began go on for a while: it counts from the
            // second such window on.
            if settled && self.settled {
                let before = if self.alone == 0 { came.done } else { self.alone };
                self.alone = (before + came.done) / 2;
            }
            return None;
        }
        if !shared {
            return None;
        }
        let has_cpu = came.waited <= MARKED;
        if has_cpu {
            self.busy = 0;
        } else if self.alone == 0 || came.done * 4 < self.alone * WORTH {
            (self.busy, self.term) = (0, FIRST_TERM);
            let pause = self.pause;
            (self.pause, self.good) = ((pause * 2).min(LAST_PAUSE), 0);
            return Some(pause);
        }
        // Not at once what it was at first: where other programs come and go, windows in
        // which they were not there say little, as do those in which hardly anything was
        // shared.
        self.good += came.time;
        if self.good >= self.pause {
            (self.pause, self.good) = ((self.pause / 2).max(FIRST_PAUSE), 0);
        }
        self.busy += u32::from(!has_cpu);
        if self.busy < self.term {
            return None;
        }
        (self.busy, self.term) = (0, (self.term * 2).min(LAST_TERM));
        Some(RECOUNT_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> Verdict {
        Judge::new().verdict
    }

    fn came(waited: u64, done: u64) -> Came {
        Came { waited, done, time: FIRST_PAUSE / 2 }
    }

    #[test]
    fn company_that_waits_is_not_woken_for_ever_longer() {
        let mut verdict = verdict();
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(FIRST_PAUSE));
        assert_eq!(verdict.hear(true, true, came(300, 9)), None, "those who were awake");
        assert_eq!(verdict.hear(true, false, came(0, 9)), None);
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(2 * FIRST_PAUSE));
        for _ in 0..20 {
            assert!(verdict.hear(false, true, came(300, 9)).is_some());
        }
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(LAST_PAUSE));
        let long = Came { time: LAST_PAUSE / 2, ..came(0, 9) };
        assert_eq!(verdict.hear(false, true, long), None, "there is a CPU");
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(LAST_PAUSE), "for a moment");
        for _ in 0..2 {
            assert_eq!(verdict.hear(false, true, long), None);
        }
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(LAST_PAUSE / 2), "for long");
        for _ in 0..10 {
            assert_eq!(verdict.hear(false, true, long), None);
        }
        assert_eq!(verdict.hear(false, true, came(300, 9)), Some(FIRST_PAUSE));
    }

    /// One that knows what one gets done alone, which waits for half of its time.
    fn settled(done: u64) -> Verdict {
        let mut verdict = verdict();
        assert!(verdict.hear(false, true, came(500, done)).is_some());
        for _ in 0..10 {
            assert_eq!(verdict.hear(true, false, came(500, done)), None);
        }
        assert_eq!(verdict.alone, done);
        verdict
    }

    #[test]
    fn who_waits_alone_as_well_may_have_company_that_gets_more_done() {
        assert_eq!(settled(1000).hear(false, true, came(520, 2000)), None, "twice the share");
        let mut beside_its_client = settled(1000);
        assert!(beside_its_client.hear(false, true, came(520, 1050)).is_some());
    }

    #[test]
    fn what_one_gets_done_alone_is_counted_again_when_it_was_long_ago() {
        let mut verdict = settled(1000);
        for term in [8, 16, 32, 64, 128, 256, 256] {
            for _ in 1..term {
                assert_eq!(verdict.hear(false, true, came(400, 5000)), None, "more to do");
            }
            assert_eq!(verdict.hear(false, true, came(400, 5000)), Some(RECOUNT_PAUSE));
        }
        for _ in 0..20 {
            assert_eq!(verdict.hear(true, false, came(0, 5000)), None);
        }
        assert!(verdict.hear(false, true, came(400, 5000)).is_some(), "as much as one alone");
    }

    #[test]
    fn company_that_has_a_cpu_is_not_left_off() {
        let mut verdict = settled(1000);
        for _ in 0..2 * LAST_TERM {
            assert_eq!(verdict.hear(false, true, came(50, 1000)), None);
        }
    }

    #[test]
    fn a_window_in_which_company_leaves_does_not_count_as_alone() {
        let mut verdict = verdict();
        assert_eq!(verdict.hear(true, true, came(0, 900)), None);
        assert_eq!(verdict.hear(true, false, came(0, 900)), None, "the first one");
        assert_eq!(verdict.alone, 0);
        assert_eq!(verdict.hear(true, false, came(0, 100)), None);
        assert_eq!(verdict.alone, 100);
        assert_eq!(verdict.hear(true, false, came(0, 200)), None);
        assert_eq!(verdict.alone, 150);
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
        let count = |at, threads: &[Option<(u64, u64)>], steps: &[(u32, u32)]| Counted {
            at,
            threads: threads.to_vec(),
            steps: steps.to_vec(),
        };
        let before = count(0, &[Some((100, 50)), None, Some((7, 7))], &[(5, 0), (8, 2)]);
        let threads = [Some((400, 150)), Some((9, 9)), None, Some((1, 1))];
        let now = count(1_000_000, &threads, &[(35, 0), (8, 12), (99, 0)]);
        let came = Came { waited: 250, done: 40_000, time: 1_000_000 };
        assert_eq!(now.since(&before), Some(came), "a P more says nothing");
        assert_eq!(before.since(&before), None, "nobody ran");
    }
}
