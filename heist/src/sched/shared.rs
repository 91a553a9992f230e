//! What the scheduler's lock protects: the global queue, and the lists of idle Ps and Ms.

use super::g::G;
use super::m::M;
use super::p::P;
use super::protocol::global_queue::GlobalQueue;
use super::schedt::Sched;
use super::timers::Keeper;
use crate::prim::atomic::Ordering;
use crate::prim::fatal::fatal;
use crate::prim::lock::Guard;
use std::collections::VecDeque;
use std::ptr;

/// What the scheduler's lock protects.
pub(crate) struct Shared {
    /// The global run queue.
    pub(crate) runq: GlobalQueue<G>,
    /// Ms whose goroutine was stopped on its thread, in the order of that. Apart
    /// from the others, so that they are never in the ring of a P that does not
    /// move: one of them may hold what it waits for. Some may run again
    /// ([`pop_frozen`](Self::pop_frozen)).
    pub(crate) frozen: VecDeque<&'static M>,
    /// Goroutines that run only when a P would go idle.
    pub(crate) idle_runq: GlobalQueue<G>,
    /// Last in, first out: the P that went idle last has warm caches.
    pub(crate) idle_ps: Vec<&'static P>,
    /// Last in, first out, so that the others can end.
    pub(crate) idle_ms: Vec<&'static M>,
    /// Ms whose thread has ended.
    pub(crate) free_ms: Vec<&'static M>,
    /// The idle M that looks after the timers, if there are any.
    pub(crate) keeper: Option<Keeper>,
    /// The idle M that waits in the poller, if there is anything to wait for.
    pub(crate) poller: Option<&'static M>,
    /// Ps that Ms have given up because the world is to stop.
    pub(crate) stopped: Vec<&'static P>,
    /// Every M ever made.
    pub(crate) all_ms: Vec<&'static M>,
    /// Ms with a thread.
    pub(crate) threads: usize,
    /// Threads of the user's that are to come (see [`M::serve`]).
    pub(crate) expected: usize,
    /// Nothing is queued any more.
    pub(crate) closed: bool,
}

impl Shared {
    /// How many goroutines are in the global queue, the frozen ones included.
    pub(crate) fn queued(&self) -> usize {
        self.runq.len() + self.frozen.len()
    }

    /// Takes the goroutine that was stopped first, of those that still stand still.
    pub(crate) fn pop_frozen(&mut self) -> Option<&'static G> {
        while let Some(m) = self.frozen.pop_front() {
            if m.freeze.call() {
                return m.curg();
            }
        }
        None
    }

    /// Ms that cannot run another goroutine: theirs blocks the thread, waits with it,
    /// or computes, without a P.
    pub(crate) fn stuck(&self) -> usize {
        let stuck = |m: &&&M| m.curg().is_some() && m.lease.is_over() && !m.is_given_p();
        self.all_ms.iter().filter(stuck).count()
    }

    /// Takes the M that went idle last. The one in the poller and the keeper of the
    /// timers stay, if there is another.
    pub(crate) fn take_idle_m(&mut self) -> Option<&'static M> {
        let at = self.next_idle_m()?;
        let m = self.idle_ms.remove(at);
        self.leave_offices(m);
        Some(m)
    }

    /// Takes the M that has been idle longest, whatever its office: those of several Ps that
    /// are told something have a thread each, also if the first is done at once.
    pub(crate) fn take_rested_m(&mut self) -> Option<&'static M> {
        let m = *self.idle_ms.first()?;
        self.idle_ms.remove(0);
        self.leave_offices(m);
        Some(m)
    }

    /// The place of the one that is taken next.
    fn next_idle_m(&self) -> Option<usize> {
        let last = |free: &dyn Fn(&M) -> bool| self.idle_ms.iter().rposition(|m| free(m));
        last(&|m| !self.keeps(m) && !self.polls(m))
            .or_else(|| last(&|m| !self.polls(m)))
            .or(self.idle_ms.len().checked_sub(1))
    }

    /// The M that is taken next is not to wait for a CPU: it gets a P with a timer that is
    /// due soon. With the lock: its thread does not end meanwhile, and its number is its own.
    pub(crate) fn hurry_idle_m(&self) {
        if let Some(at) = self.next_idle_m() {
            self.idle_ms[at].keep_time();
        }
    }

    /// Whether it is the keeper of the timers.
    pub(crate) fn keeps(&self, m: &M) -> bool {
        self.keeper.is_some_and(|keeper| ptr::eq(keeper.m, m))
    }

    /// Whether it is the one that waits in the poller.
    pub(crate) fn polls(&self, m: &M) -> bool {
        self.poller.is_some_and(|poller| ptr::eq(poller, m))
    }

    /// An M is not idle any more.
    pub(crate) fn leave_offices(&mut self, m: &M) {
        if self.keeps(m) {
            self.keeper = None;
        }
        if self.polls(m) {
            self.poller = None;
        }
    }
}

/// The idle Ps. Who changes their number tells all who look at it without the lock.
impl Sched {
    /// Makes a P idle.
    pub(crate) fn put_idle_p(&self, shared: &mut Guard<'_, Shared>, p: &'static P) {
        if !p.runq.is_empty() {
            fatal!("pidleput: P{} has non-empty run queue", p.id);
        }
        p.set_m(None);
        p.rested.store(true, Ordering::Relaxed);
        shared.idle_ps.push(p);
        self.idle_mask.insert(p.id);
        self.idle.p_goes_idle();
        if shared.idle_ps.len() == 1 && self.procs() > 1 {
            self.sysmon.notice_idle();
        }
    }

    /// Takes a certain P, for an M. False if it is not idle.
    pub(crate) fn take_this_idle_p(&self, shared: &mut Guard<'_, Shared>, p: &'static P) -> bool {
        // From the end: it was given up a moment ago, if it is there.
        let Some(at) = shared.idle_ps.iter().rposition(|idle| ptr::eq(*idle, p)) else {
            return false;
        };
        shared.idle_ps.remove(at);
        self.idle_mask.remove(p.id);
        self.idle.p_leaves_idle();
        self.sysmon.notice_activity();
        true
    }

    /// Takes an idle P, for an M.
    pub(crate) fn take_idle_p(&self, shared: &mut Guard<'_, Shared>) -> Option<&'static P> {
        let p = shared.idle_ps.pop()?;
        self.idle_mask.remove(p.id);
        self.idle.p_leaves_idle();
        self.sysmon.notice_activity();
        Some(p)
    }
}
