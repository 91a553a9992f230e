//! Taking Ps from goroutines that do not come back to the runtime.
//!
//! sysmon looks at each P that has run the same goroutine since its last look (or, if its
//! last goroutine blocked its thread, any: such come in numbers). If it looks rarely, it looks
//! again soon at one that blocks: otherwise it would see none of many short calls twice.
//!
//! | its thread | loses its P |
//! |---|---|
//! | is in a declared call (`syscall`) | at this look, if somebody needs it; else after 10 ms |
//! | sleeps in the kernel: its CPU clock stands still | the same |
//! | computes, for 10 ms, and no P is idle, or its P was told to do something | when it does not heed the request to yield either |
//! | the same, and it forks | only if somebody other than a thief wants it |
//! | computes, for 0.1 ms, and a timer of its P is due soon | likewise when it has been asked; after 2.5 ms, if there may not be one more runner |
//!
//! No signal is sent and nothing is interrupted: the goroutine goes on on its
//! thread, without a P, and finds out at its next call of the runtime. While it
//! computes it is a *runner*. Runners are the kernel's to schedule, which does it
//! sooner and more fairly than we could, but there should not be many: past the
//! cap the one that has had most of its due is stopped (`freeze`, `account`).

use super::desk::Ask;
use super::find::SLICE;
use super::freeze::{self, Freezer};
use super::m::M;
use super::p::{P, run_between};
use super::schedt::Sched;
use super::{park, thieves, timers, wake};
use crate::prim::atomic::Ordering;
use crate::prim::latch;
use std::ptr;

/// How long a P whose thread blocks is left to it when nobody needs the P.
const UNNEEDED: u64 = 10_000_000;

/// How long a call that nobody declared may block a thread when there is no other to
/// take its P. Then it is an error, like a declared one (`wake::run_p`).
const LAST_THREAD: u64 = 1_000_000_000;

/// How soon it looks again at a P whose thread blocks: at the second look it loses the P.
/// Calls that are shorter as a rule are not worth one.
const GLANCE: u64 = 50_000;

/// What is left of a slice when a timer of the P is due soon. The
/// goroutine goes on without the P, so that this costs it little: its thread and the
/// sleeper's are the kernel's to schedule, which lets those that have slept through.
const URGENT: u64 = 100_000;

/// The same while as many compute without a P as may: another one is stopped for it, which
/// costs some tens of microseconds.
const URGENT_AT_CAP: u64 = SLICE / 4;

/// A P that has run so many goroutines since the last look is brisk: whoever runs there
/// now will not compute for long either, as a rule.
const BRISK: u32 = 16;

/// A P that was brisk in so many looks in a row is looked at half as often, and then half
/// as often again, three times at the most: a timer of one who suddenly computes there may
/// be up to a millisecond late.
const BRISK_LOOKS: u32 = 4;
const BRISK_MOST: u32 = 3;

/// How long a goroutine may run on without heeding a request to yield: of its
/// thread's own time, so that one whose thread the kernel has stopped, and that calls
/// the runtime as soon as it goes on, keeps its P.
const NOTICE: u64 = 50_000;

/// How long one is left alone that may not lose its P: it is in `no_preempt`, say, or
/// there are no more threads.
const PATIENCE: u64 = 1_000_000;

/// How long a goroutine may compute while only frozen ones wait for its P. They share
/// the machine fairly if a slice is of their own time; that of a thread which the kernel
/// hardly runs does not last for ever.
const AMONG_HOGS: u64 = 20 * SLICE;

/// How long an M may sleep inside of the runtime, or a P be on its way to one, before
/// frozen threads are let go: longer than a kernel with much to do lets a thread wait.
const STANDSTILL: u64 = 3 * SLICE;

/// How long after a frozen one was let go another is, while something stands still: at
/// first, and at the most. What stands still may be a thread that the kernel does not run
/// because too many compute, and whoever is let go is one more.
const RELEASE_FIRST: u64 = 1_000_000;
const RELEASE_LAST: u64 = 16_000_000;

/// What sysmon saw of a P the last time.
#[derive(Clone, Copy, Default)]
struct Seen {
    m: Option<&'static M>,
    steps: (u32, u32),
    /// When this goroutine was seen here first.
    since: u64,
    /// The CPU clock of its thread at that first look, if it was read.
    began: Option<u64>,
    /// The CPU clock of its thread, if it was read at the last look.
    cpu: Option<u64>,
    /// The CPU clock of its thread when the goroutine was asked to yield.
    asked: Option<u64>,
    /// How many looks in a row found that many had run.
    brisk: u32,
    /// The P was taken from one that blocked its thread, and that is the last that was
    /// seen of it: the next one may be like that one.
    again: bool,
}

/// sysmon's eye on the Ps.
pub(crate) struct Retaker {
    sched: &'static Sched,
    seen: Vec<Seen>,
    freezer: Freezer,
    /// When it last looked.
    last: u64,
    /// How often somebody had waited too long at a latch, at the last look.
    stuck: u32,
    /// When a frozen one was last let go because something stood still.
    released: u64,
    /// How long until the next one is.
    release_wait: u64,
    /// Something stood still at this look.
    stands: bool,
}

/// What a look found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looked {
    /// There was something to do.
    pub(crate) acted: bool,
    /// When there will be, at the latest.
    pub(crate) next: Option<u64>,
    /// How many Ps are with a goroutine that computes, as it did at the last look.
    pub(crate) computing: u32,
}

impl Looked {
    /// There will be something to do then.
    fn again_at(&mut self, then: u64) {
        self.next = Some(self.next.map_or(then, |next| next.min(then)));
    }
}

/// How the thread of a goroutine that keeps its P is.
#[derive(PartialEq, Eq)]
enum Thread {
    Computes,
    Blocks,
}

impl Retaker {
    pub(crate) fn new(sched: &'static Sched) -> Self {
        let (freezer, stuck) = (Freezer::new(sched), latch::stuck());
        Retaker {
            sched,
            seen: Vec::new(),
            freezer,
            last: 0,
            stuck,
            released: 0,
            release_wait: RELEASE_FIRST,
            stands: false,
        }
    }

    /// Looks at all Ps.
    pub(crate) fn look(&mut self, now: u64) -> Looked {
        self.seen.resize(self.sched.procs() as usize, Seen::default());
        let mut looked = Looked::default();
        let mut pending = false;
        for i in 0..self.seen.len() {
            let p = self.sched.p(i as u32);
            self.look_at(i, p, now, &mut looked);
            pending |= self.seen[i].asked.is_some();
        }
        if !self.sched.closing() {
            park::set_requests(self.sched, pending);
        }
        let stuck = latch::stuck();
        if std::mem::replace(&mut self.stuck, stuck) != stuck {
            self.let_one_go(now, &mut looked);
        }
        if !std::mem::take(&mut self.stands) {
            self.release_wait = RELEASE_FIRST;
        }
        if self.sched.evicted.swap(false, Ordering::SeqCst) {
            self.freezer.watch_evicted(now);
        }
        self.last = now;
        looked.acted |= self.freezer.look(now);
        looked.next = [looked.next, self.freezer.next()].into_iter().flatten().min();
        looked
    }

    fn look_at(&mut self, i: usize, p: &'static P, now: u64, looked: &mut Looked) {
        let since_last = now - self.last;
        let seen = &mut self.seen[i];
        let (m, steps) = (p.m(), p.steps());
        let same_m = m.map(ptr::from_ref) == seen.m.map(ptr::from_ref);
        let same = same_m && seen.steps == steps && seen.since != 0;
        if m.is_none() && same && !self.sched.idle_mask.contains(p.id) {
            // On its way. A thread that is to begin with it may not get to that: std
            // allocates first.
            if now - seen.since > STANDSTILL && p.id >= self.sched.reserved() {
                self.let_one_go(now, looked);
            }
            return;
        }
        let crowded = self.sched.idle.idle_ps() == 0 && self.sched.idle.searching() == 0;
        let needed = crowded || !p.runq.is_empty();
        let Some(m) = m.filter(|_| same) else {
            // Read at once if it will be wanted: the next look knows then.
            let cpu = m.filter(|_| needed).and_then(|m| m.os_thread().cpu_time());
            let again = std::mem::take(&mut seen.again) && needed;
            let ran = run_between(seen.steps, steps);
            let brisk = if same_m && ran >= BRISK { seen.brisk.saturating_add(1) } else { 0 };
            // As long as a call that is worth a P, on the average; and it looks rarely.
            let take_long = u64::from(ran) * GLANCE < since_last && since_last > 2 * GLANCE;
            *seen = Seen { m, steps, since: now, began: cpu, cpu, brisk, ..Seen::default() };
            // Those of a crowd are not looked out for one by one.
            if crowded && m.is_some() && !self.sched.gathering.is_crowded(now) {
                // If it is still the same then, it computes.
                let pause = URGENT << (brisk / BRISK_LOOKS).min(BRISK_MOST);
                looked.again_at(timers::ahead_of_next(p).max(now + pause));
            }
            let Some(m) = m.filter(|m| !m.lease.inside()) else { return };
            if again {
                // Many that block come one after the other: no second look at each.
                if m.os_thread().is_blocked() && self.has_thread() {
                    looked.acted |= self.retake(m, p, steps, now, Thread::Blocks);
                }
            } else if needed && take_long && (m.lease.in_call() || m.os_thread().is_blocked()) {
                looked.again_at(now + GLANCE);
            }
            return;
        };
        if m.lease.inside() {
            // It keeps its P. If it sleeps there, somebody has what it wants.
            if now - seen.since > STANDSTILL && m.os_thread().is_blocked() {
                self.let_one_go(now, looked);
            }
            return;
        }
        let kept = now - seen.since;
        if (needed || kept >= UNNEEDED) && thread_of(m, seen) == Thread::Blocks {
            if m.lease.in_call() || kept >= LAST_THREAD || self.has_thread() {
                looked.acted |= self.retake(m, p, steps, now, Thread::Blocks);
            }
            return;
        }
        looked.computing += 1;
        let (mut end, mut urgent) = (seen.since + SLICE, false);
        if crowded {
            let mut soon = timers::ahead_of_next(p);
            if soon <= now {
                // Most deadlines are for nothing, and those are not worth a P.
                timers::drop_dead_first(p);
                soon = timers::ahead_of_next(p);
            }
            let least = if self.freezer.has_room() { URGENT } else { URGENT_AT_CAP };
            soon = soon.max(seen.since + least);
            (end, urgent) = (end.min(soon), soon <= now);
        }
        // What a P was told to do nobody else may begin.
        let wanted = crowded || !p.told.is_empty();
        if now < end {
            looked.again_at(end);
        } else if urgent
            || wanted
                && (kept >= AMONG_HOGS || !hogs_only(self.sched, p) || had_its_slice(m, seen))
                && (!m.desk.is_open() || somebody_may_want(self.sched, p, now))
        {
            self.end_slice(i, m, p, now, looked);
        }
    }

    /// A goroutine has computed for a whole slice, and others may want its P.
    fn end_slice(&mut self, i: usize, m: &'static M, p: &'static P, now: u64, looked: &mut Looked) {
        if m.desk.is_open() {
            // One that forks makes no other calls: it looks up at its next fork.
            let (Ask::Nobody | Ask::Asked | Ask::Before) = m.desk.ask();
        }
        let Seen { asked, steps, .. } = self.seen[i];
        match asked {
            None => {
                m.preempt.store(true, Ordering::Relaxed);
                self.seen[i].asked = m.os_thread().cpu_time();
                // Its thread will have run for so long, and not sooner: sysmon has used some
                // of the time.
                looked.again_at(now + NOTICE + NOTICE / 2);
            }
            Some(asked) if ran_since(m, asked) < NOTICE || self.freezer.is_behind() => {
                looked.again_at(now + NOTICE);
            }
            Some(_) if !self.may_compute_on(m) => looked.again_at(now + PATIENCE),
            Some(_) => looked.acted |= self.retake(m, p, steps, now, Thread::Computes),
        }
    }

    /// Whether the goroutine of an M may go on without its P. It needs its thread even if
    /// it is stopped: if there are no more, it keeps the P.
    fn may_compute_on(&self, m: &'static M) -> bool {
        !m.curg().is_some_and(park::may_not_be_preempted) && self.has_thread()
    }

    /// Somebody waits for something, perhaps for what a frozen one holds: the oldest
    /// goes on. If it was not the one, another does, a little later: each of them is one
    /// more to compute.
    fn let_one_go(&mut self, now: u64, looked: &mut Looked) {
        self.stands = true;
        if now - self.released >= self.release_wait && freeze::let_oldest_go(self.sched) {
            self.released = now;
            self.release_wait = (2 * self.release_wait).min(RELEASE_LAST);
            looked.acted = true;
        }
    }

    /// Whether there is a thread for a P, or can be.
    fn has_thread(&self) -> bool {
        let limit = self.sched.config().max_threads;
        let shared = self.sched.shared.lock();
        shared.threads < limit || !shared.idle_ms.is_empty()
    }

    /// Takes the P, if the goroutine is still the one that was looked at, and gives
    /// it to another M.
    fn retake(
        &mut self,
        m: &'static M,
        p: &'static P,
        steps: (u32, u32),
        now: u64,
        why: Thread,
    ) -> bool {
        if self.sched.closing() {
            return false;
        }
        let still = || {
            let its = m.p().filter(|its| ptr::eq(*its, p) && p.steps() == steps)?;
            m.curg().map(|g| (its, g))
        };
        let Some((p, g)) = m.lease.retake(still) else { return false };
        p.set_m(None);
        m.preempt.store(false, Ordering::Relaxed);
        self.sched.preemption.retakes.bump();
        m.keep_time_no_more();
        let seen = self.seen[p.id as usize].began;
        self.freezer.watch(m, g, now, why == Thread::Computes, seen);
        let again = why == Thread::Blocks;
        self.seen[p.id as usize] = Seen { steps, since: now, again, ..Seen::default() };
        if timers::ahead_of_next(p) <= now {
            self.sched.shared.lock().hurry_idle_m();
        }
        thieves::share_of_loser(self.sched, m);
        wake::handoff_p(self.sched, p);
        true
    }
}

/// Whether those who wait for a P compute as well, as far as is known.
fn hogs_only(sched: &'static Sched, p: &'static P) -> bool {
    let frozen = sched.frozen_size.load(Ordering::Relaxed);
    frozen > 0 && p.runq.is_empty() && sched.runq_size.load(Ordering::Relaxed) == frozen
}

/// Whether anybody but thieves has a use for the P of a goroutine that forks. If not it
/// keeps it: it has branches for whoever is idle, so an idle P would be filled with one of
/// those, and one more thread would compute than there are Ps. Others lose theirs all the
/// same, so that whatever comes next finds one at once; here sysmon sees it come.
fn somebody_may_want(sched: &'static Sched, p: &'static P, now: u64) -> bool {
    !p.runq.is_empty()
        || !p.told.is_empty()
        || sched.runq_size.load(Ordering::Relaxed) != 0
        || sched.poll.is_wanted()
        || timers::wanted(sched) <= now
}

/// Whether the thread of an M has run for a whole slice since its goroutine was seen, or for
/// as much of one as it is owed.
fn had_its_slice(m: &'static M, seen: &Seen) -> bool {
    let end = m.curg().and_then(|g| m.account.end_of_slice(g.id(), seen.began));
    end.is_none_or(|end| m.os_thread().cpu_time().is_none_or(|cpu| cpu >= end))
}

/// How long the thread of an M has run since its CPU clock said `then`.
fn ran_since(m: &'static M, then: u64) -> u64 {
    m.os_thread().cpu_time().map_or(u64::MAX, |now| now.saturating_sub(then))
}

/// A thread whose CPU clock stands still does not run: it blocks, or the kernel
/// runs others in its place. The kernel knows which.
fn thread_of(m: &'static M, seen: &mut Seen) -> Thread {
    if m.lease.in_call() {
        return Thread::Blocks;
    }
    let cpu = m.os_thread().cpu_time();
    if cpu.is_some() && std::mem::replace(&mut seen.cpu, cpu) == cpu && m.os_thread().is_blocked() {
        return Thread::Blocks;
    }
    Thread::Computes
}
