//! The rules that hold between any two steps (`sched/README.md`, "What always
//! holds"), looked at from outside.
//!
//! | rule | when |
//! |---|---|
//! | a goroutine is in one queue at most, and runnable there | every step |
//! | a goroutine is run by one M at most, a P held by one at most, and not idle then | every step |
//! | the counters equal what they count | every step, while the lock is free |
//! | no queue has work in it all the while that a P is idle and nobody searches, once everybody who could mend it has taken [`PATIENCE`] steps | every step |
//! | every P is idle, or has a goroutine that blocks its thread in user code; in the second case sysmon will look | quiet moments |
//! | a goroutine that is runnable while every thread sleeps is in a queue, and no P is idle; if one is, the queue is the runnext of a P that is not | quiet moments |
//! | no event lies in a poller, unless a goroutine blocks its thread: then sysmon will look | quiet moments |
//! | nobody counts as searching, and as many goroutines live as are counted | quiet moments |
//!
//! Quiet moments are those in which every thread sleeps. A runnext is its owner's
//! until sysmon has seen it twice, so one whose owner blocks may lie there a while.
//!
//! Lock ranks are checked by the locks, transitions of goroutines by their state
//! word; a lost wake-up ends in a quiet moment, and a goroutine that never runs
//! in a run that does not end. What lies under a lock is looked at only while
//! the lock is free, so a rule may be seen broken a few steps late.

use crate::prim::atomic::Ordering;
use crate::prim::sim::{
    a_core_stands_still, a_wake_up_is_late, has_refused, running_threads, step_of, violate,
};
use crate::prim::thread;
use crate::sched::brief;
use crate::sched::g::G;
use crate::sched::g_pool;
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::protocol::g_state::Status;
use crate::sched::schedt::{self, Sched};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ptr;

/// Steps that each thread which runs may take before work that lies around is a
/// mistake: several times the longest way from a queue to a wake-up.
const PATIENCE: u64 = 600;

/// The same for sysmon, which queues goroutines itself, and wakes somebody for them.
/// Too few for a round, in which it would mend what others broke.
const WATCHER_PATIENCE: u64 = 60;

/// With many goroutines queued, not every step looks at all of them.
const QUEUED_PER_STEP: usize = 24;

#[derive(Default)]
struct Checker {
    /// Steps until the queues are looked at again.
    pause: usize,
    /// Where each goroutine was seen in this look.
    seen: HashMap<usize, Place>,
    /// While work lies in a queue of a scheduler: the threads that have run since, and
    /// how many steps each may have taken at the most until it does no longer.
    since: HashMap<(u16, Place), Vec<(usize, u64)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// Work that lies in a queue while a P is idle and nobody searches. Of each queue
    /// by itself: Ps that always have something, and always something else, run it.
    fn neglected(&mut self, sched: &'static Sched) {
        let nobody_comes = sched.idle.idle_ps() > 0
            && sched.idle.searching() == 0
            // Who has locked its thread starts no other: sysmon does, which was woken.
            && sched.in_place.load(Ordering::Relaxed) == 0
            // Somebody may wait, in many steps, for what a thread there holds.
            && !a_core_stands_still()
            // It may be the one who lets the world go on, with Ps in its hands.
            && !a_wake_up_is_late();
        if self.since.is_empty() && !nobody_comes {
            return;
        }
        let global = sched.runq_size.load(Ordering::Relaxed) > 0;
        let idle = sched.idle_runq_size.load(Ordering::Relaxed) > 0;
        // What is left to an owner that works is sysmon's to look after.
        let rings = sched.ps().map(|p| (Place::P(p.id), !p.runq.rings_empty() && !is_left(p)));
        for (place, work) in [(Place::Global, global), (Place::Idle, idle)].into_iter().chain(rings)
        {
            let queue = (sched.slot(), place);
            if !(nobody_comes && work) {
                self.since.remove(&queue);
            } else if !has_refused() && self.is_late(queue) {
                broken("work lies in a queue, a P is idle, and nobody searches");
            }
        }
    }

    /// Whether everybody who has run since the work of a queue was first seen to lie
    /// there has had its time. (If a thread was refused, sysmon will try again: that is
    /// the protocol.)
    fn is_late(&mut self, queue: (u16, Place)) -> bool {
        let since = self.since.entry(queue).or_default();
        running_threads(|thread, steps, watches| {
            if !since.iter().any(|(known, _)| *known == thread) {
                since.push((thread, steps + if watches { WATCHER_PATIENCE } else { PATIENCE }));
            }
        });
        let late =
            |(thread, most): &(usize, u64)| step_of(*thread).is_none_or(|steps| steps > *most);
        !since.is_empty() && since.iter().all(late)
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

/// Whether nobody was woken for the queue of a P, which somebody holds.
fn is_left(p: &P) -> bool {
    p.m().is_some() && brief::left(p).is_some()
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
    let mut queued = HashSet::new();
    let mut shared_work = shared.queued() + shared.idle_runq.len() > 0;
    shared.runq.each(|g| {
        queued.insert(g.id());
    });
    shared.idle_runq.each(|g| {
        queued.insert(g.id());
    });
    drop(shared);
    if threads == 0 || has_refused() || sched.stopping() {
        // It is being opened; or a thread was refused, and sysmon will try again; or
        // somebody who stops the world has some of the Ps, and looks for the others soon.
        return;
    }
    for p in sched.ps() {
        p.runq.each(|g| {
            queued.insert(g.id());
        });
        shared_work |= !p.runq.rings_empty() && !is_left(p);
    }
    if shared_work && idle > 0 {
        broken("a wake-up was lost: work lies in a queue, a P is idle, and every thread sleeps");
    }
    if blocked == 0 && sched.poll.has_events() {
        broken("a device is ready, every thread sleeps, and nobody looks");
    }
    if blocked > 0 && sched.sysmon.sleeps_deeply() {
        broken("a goroutine blocks its thread and has a P, and nobody looks after it");
    }
    let mut alive = 0;
    let looked = g_pool::try_each_used(|g| {
        if g.runtime() != sched.slot() {
            return;
        }
        alive += 1;
        if g.state.status() == Status::Runnable && (blocked == 0 || !queued.contains(&g.id())) {
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
