//! The rules that hold between any two steps (`sched/README.md`, "What always
//! holds"), looked at from outside.
//!
//! | rule | when |
//! |---|---|
//! | a goroutine is in one queue at most, and runnable there | every step |
//! | a goroutine is run by one M at most, a P held by one at most, and not idle then | every step |
//! | the counters equal what they count | every step, while the lock is free |
//! | no work lies in a queue while a P is idle and nobody searches, once everybody who could mend it has taken [`PATIENCE`] steps | every step |
//! | no goroutine is runnable while every thread sleeps, unless some have a P and block in user code | quiet moments |
//! | all other Ps are idle, nobody counts as searching, and as many goroutines live as are counted | quiet moments |
//!
//! Lock ranks are checked by the locks, transitions of goroutines by their state
//! word; a lost wake-up ends in a quiet moment, and a goroutine that never runs
//! in a run that does not end. What lies under a lock is looked at only while
//! the lock is free, so a rule may be seen broken a few steps late.

use crate::prim::atomic::Ordering;
use crate::prim::sim::{running_threads, step_of, violate};
use crate::prim::thread;
use crate::sched::g::G;
use crate::sched::g_pool;
use crate::sched::m::M;
use crate::sched::protocol::g_state::Status;
use crate::sched::schedt::{self, Sched};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;

/// Steps that each thread which runs may take before work that lies around is a
/// mistake: several times the longest way from a queue to a wake-up.
const PATIENCE: u64 = 600;

/// With many goroutines queued, not every step looks at all of them.
const QUEUED_PER_STEP: usize = 24;

#[derive(Default)]
struct Checker {
    /// Steps until the queues are looked at again.
    pause: usize,
    /// Where each goroutine was seen in this look.
    seen: HashMap<usize, Place>,
    /// Since work lies around: the threads that ran then, and their steps.
    since: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    P(u32),
    Global,
    Idle,
}

thread_local! {
    static CHECKER: RefCell<Checker> = RefCell::default();
}

/// At every step.
pub(super) fn at_step() {
    let held = thread::held();
    CHECKER.with_borrow_mut(|checker| {
        for sched in schedt::all().filter(|sched| !sched.closing()) {
            checker.counters(sched);
            checker.queues(sched);
            checker.neglected(sched);
        }
    });
    thread::set_held(held);
}

/// When every thread sleeps.
pub(super) fn at_rest() {
    for sched in schedt::all().filter(|sched| !sched.closing()) {
        rest(sched);
    }
}

impl Checker {
    fn counters(&mut self, sched: &'static Sched) {
        let Some(shared) = sched.shared.try_lock() else { return };
        let idle = shared.idle_ps.len();
        if sched.idle.idle_ps() as usize != idle || sched.idle_mask.iter(1024).count() != idle {
            broken(&format!("{idle} Ps are idle, {} counted", sched.idle.idle_ps()));
        }
        let queued = (shared.queued(), shared.idle_runq.len());
        let counted =
            (sched.runq_size.load(Ordering::Relaxed), sched.idle_runq_size.load(Ordering::Relaxed));
        if queued != counted {
            broken(&format!("{queued:?} goroutines queued globally, {counted:?} counted"));
        }
        let searchers = shared.all_ms.iter().filter(|m| m.searching()).count();
        if (sched.idle.searching() as usize) < searchers {
            broken(&format!("{searchers} Ms search, {} counted", sched.idle.searching()));
        }
        for (i, m) in shared.all_ms.iter().enumerate() {
            let others = || shared.all_ms[..i].iter();
            if let Some(g) = m.curg()
                && others().any(|o| o.curg().is_some_and(|other| ptr::eq(other, g)))
            {
                broken(&format!("two Ms run {g:?}"));
            }
            if let Some(p) = m.holds() {
                if others().any(|o| o.holds().is_some_and(|other| ptr::eq(other, p))) {
                    broken(&format!("two Ms hold P{}", p.id));
                }
                if shared.idle_ps.iter().any(|idle| ptr::eq(*idle, p)) {
                    broken(&format!("P{} is idle and held by M{}", p.id, m.id));
                }
            }
        }
    }

    fn queues(&mut self, sched: &'static Sched) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        self.seen.clear();
        let seen = &mut self.seen;
        for p in sched.ps() {
            p.runq.each(|g| note(seen, g, Place::P(p.id)));
        }
        if let Some(shared) = sched.shared.try_lock() {
            shared.runq.each(|g| note(seen, g, Place::Global));
            shared.idle_runq.each(|g| note(seen, g, Place::Idle));
        }
        self.pause = self.seen.len() / QUEUED_PER_STEP;
    }

    /// Work that lies in a queue while a P is idle and nobody searches.
    fn neglected(&mut self, sched: &'static Sched) {
        let waits = sched.idle.idle_ps() > 0
            && sched.idle.searching() == 0
            && (sched.runq_size.load(Ordering::Relaxed) > 0
                || sched.idle_runq_size.load(Ordering::Relaxed) > 0
                || sched.ps().any(|p| !p.runq.rings_empty()));
        if !waits {
            self.since.clear();
            return;
        }
        if self.since.is_empty() {
            let since = &mut self.since;
            let refused = running_threads(|thread, steps| since.push((thread, steps)));
            if refused {
                // sysmon will try again: that is the protocol.
                self.since.clear();
            }
            return;
        }
        let patient = |(thread, then): &(usize, u64)| {
            step_of(*thread).is_none_or(|now| now - then > PATIENCE)
        };
        if self.since.iter().all(patient) {
            broken("work lies in a queue, a P is idle, and nobody searches");
        }
    }
}

/// Reports a broken rule, with the scheduler's state if nobody is changing it.
fn broken(rule: &str) -> ! {
    let trace = crate::obs::reports().trace;
    for sched in schedt::all() {
        if sched.shared.try_lock().is_some() {
            trace(sched, true);
        }
    }
    violate(rule)
}

fn note(seen: &mut HashMap<usize, Place>, g: &'static G, place: Place) {
    if let Some(other) = seen.insert(ptr::from_ref(g).addr(), place) {
        broken(&format!("{g:?} is queued twice: {other:?} and {place:?}"));
    }
    let status = g.state.status();
    if status != Status::Runnable {
        broken(&format!("{g:?} is queued ({place:?}) and {status:?}"));
    }
}

/// What holds when everybody sleeps.
fn rest(sched: &'static Sched) {
    let Some(shared) = sched.shared.try_lock() else {
        broken("every thread sleeps, and one of them has the scheduler's lock")
    };
    let (idle, threads) = (shared.idle_ps.len(), shared.threads);
    // Those whose goroutine blocks the thread have theirs until sysmon takes it.
    let blocked = |m: &&&M| m.holds().is_some() && !m.lease.inside();
    let blocked = shared.all_ms.iter().filter(blocked).count();
    drop(shared);
    if threads == 0 || running_threads(|_, _| {}) {
        // It is being opened; or a thread was refused, and sysmon will try again.
        return;
    }
    let mut alive = 0;
    let looked = g_pool::try_each_used(|g| {
        if g.runtime() != sched.slot() {
            return;
        }
        alive += 1;
        if g.state.status() == Status::Runnable && blocked == 0 {
            broken(&format!("a wake-up was lost: {g:?} is runnable, and every thread sleeps"));
        }
    });
    if !looked {
        broken("every thread sleeps, and one of them has the lock of the control blocks");
    }
    if sched.idle.searching() != 0 {
        broken(&format!("every thread sleeps, and {} search", sched.idle.searching()));
    }
    if idle + blocked != sched.procs() as usize {
        broken(&format!("every thread sleeps, and only {idle} Ps are idle"));
    }
    if alive != sched.goroutines() {
        broken(&format!("{alive} goroutines live, {} counted", sched.goroutines()));
    }
}
