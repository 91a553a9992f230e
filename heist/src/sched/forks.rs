//! Fork-join: the open forks of goroutines.
//!
//! A fork is a record in the frame of `par::join`, or of a loop whose rest is one
//! (`par::piece`), in a list that belongs to the goroutine (`protocol::forks`). To fork, a
//! goroutine looks at the desk of its M (`sched::desk`), links the record, runs the first
//! branch, unlinks the record and runs the second: plain loads and stores, and two
//! comparisons. Everything else is rare:
//!
//! | when | what |
//! |---|---|
//! | the first fork since an M resumed the goroutine | the desk is set up ([`approach`]); if a P is idle, the oldest fork is shared (`sched::branches`) |
//! | somebody asked (`sched::thieves`) | the oldest fork is shared at the next fork |
//! | the goroutine parks, yields or waits with its thread | all its forks are shared |
//! | it neither forks nor leaves, and somebody is idle, or that lasts; or it has lost its P | the oldest fork is raided |
//! | the stack is short | the fork goes on on another segment |
//!
//! `par/README.md` has the arguments: why the bound holds, why branches may block on
//! each other, and what memory is needed.

use super::desk::Before;
use super::g::G;
use super::m::{self, Inside};
use super::park;
use super::protocol::forks::{Forks, Link, Unlinked, Unset};
use super::schedt::Sched;
use super::{branches, brief, netpoll, timers};
use crate::context;
use crate::prim::atomic::{AtomicU32, Ordering, fence_after_rmw, keep};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::prim::thread;
use std::any::Any;
use std::cell::Cell;
use std::ptr;

/// The list of a goroutine, in memory that is never freed. In lines of its own: each
/// fork writes to it, and two goroutines that fork on two cores would take the line
/// from each other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct List {
    pub(crate) forks: Forks,
    /// Whose it is: the slot of a runtime and 1, or 0. Changes with the list's latch.
    pub(super) runtime: AtomicU32,
    /// What is measured, while something is (see `par::measure`). The goroutine's.
    pub(crate) meter: Cell<*mut ()>,
}

// SAFETY: `meter` is touched only by the goroutine that the list is attached to.
unsafe impl Sync for List {}

static FREE: Lock<Vec<&'static List>> = Lock::new(Rank::Leaf, Vec::new());

/// A list that belongs to a frame.
pub(crate) struct Attached(pub(super) &'static List);

impl Attached {
    fn new(sched: &Sched) -> Self {
        let free = FREE.lock().pop();
        let list = free.unwrap_or_else(|| {
            keep(Box::leak(Box::new(List {
                forks: Forks::new(),
                runtime: AtomicU32::new(0),
                meter: Cell::new(ptr::null_mut()),
            })))
        });
        let runtime = u32::from(sched.slot()) + 1;
        list.forks.with_latch(|| list.runtime.store(runtime, Ordering::Relaxed));
        Attached(list)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let list = self.0;
        list.forks.with_latch(|| list.runtime.store(0, Ordering::Relaxed));
        FREE.lock().push(list);
    }
}

/// What is done with a second branch.
pub(crate) enum Order {
    /// Nothing yet: it was claimed, with the list's latch, by a call for its forker, which
    /// does not run meanwhile.
    Claimed,
    /// The same by a raider: its forker may run.
    Raided,
    /// By another goroutine than the one that forked.
    Run,
    /// Not at all: the runtime shuts down.
    Cancel(Box<dyn Any + Send>),
}

/// A fork: the first field of what `par::join` or `par::piece` keeps in its frame.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record {
    link: Link,
    /// Runs the second branch on another goroutine and leaves its outcome in the
    /// frame; before that it is told that the branch was claimed, by whoever claims it, on
    /// that one's stack and with the list's latch. Does not unwind.
    pub(super) run: unsafe fn(*const Record, Order),
    /// The branch, once the fork is claimed.
    pub(super) branch: Unset<G>,
    /// The list that it is linked into. Here and not in a variable of `join`: that would be
    /// in a register that every call of the recursion saves and restores, also at the
    /// leaves, which do not fork.
    list: Unset<Forks>,
}

impl Record {
    #[inline(always)]
    pub(crate) fn new(run: unsafe fn(*const Record, Order)) -> Self {
        let (link, branch) = (Link::new(), Unset::new());
        Record { link, run, branch, list: Unset::new() }
    }

    /// Links the fork.
    ///
    /// # Safety
    ///
    /// As [`Forks::link`].
    #[inline(always)]
    pub(crate) unsafe fn link_to(&self, forks: &'static Forks) {
        // Relaxed: only the goroutine that forks looks there.
        self.list.store(ptr::from_ref(forks).cast_mut(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { forks.link(&self.link) };
    }

    /// Unlinks the fork.
    ///
    /// # Safety
    ///
    /// It is linked, and the newest of its list.
    #[inline(always)]
    pub(crate) unsafe fn unlink(&self) -> Unlinked {
        // SAFETY: stored by `link_to`, from a `&'static`.
        let forks = unsafe { &*self.list.load(Ordering::Relaxed) };
        forks.unlink(&self.link)
    }

    /// Waits until nobody claims of the fork's list any more, and calls `f` before
    /// anybody else does.
    ///
    /// # Safety
    ///
    /// It is linked.
    pub(crate) unsafe fn with_latch<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: as in `unlink`.
        unsafe { &*self.list.load(Ordering::Relaxed) }.with_latch(f)
    }
}

/// The forks of the calling goroutine, if it can fork right here and has nothing else
/// to do first.
#[inline(always)]
pub(crate) fn at_once(here: usize) -> Option<&'static Forks> {
    let m = m::current()?;
    Some(&m.desk.list_for(here)?.forks)
}

/// What a fork that could not go on at once does.
#[derive(Debug)]
#[must_use]
pub(crate) enum Approach {
    /// Fork, and if so, share the oldest fork.
    Fork(&'static List, bool),
    /// The caller is no goroutine.
    Outside,
    /// Go on on another segment of the stack.
    Deep,
    /// Run both branches one after the other: the runtime closes.
    Serial,
    /// Run both branches one after the other and measure them.
    Metered(&'static List),
}

/// The rare part of a fork: before its record, at address `here`, is linked.
///
/// It must not unwind: the caller's second branch is bytes meanwhile, which nobody would drop.
/// So an order to unwind that comes while it yields is left to the next wait
/// (`park::heed_request`), and what is called here calls nobody's code but the runtime's.
#[cold]
#[inline(never)]
pub(crate) fn approach(here: usize) -> Approach {
    let Some(m) = m::current() else { return Approach::Outside };
    let Some(g) = m.curg() else { return Approach::Serial };
    // SAFETY: the goroutine runs, and it is the caller.
    let Some(frame) = (unsafe { g.frame() }) else { return Approach::Serial };
    let limit = frame.limit() + reserve(frame.class().usable());
    if here < limit {
        return Approach::Deep;
    }
    let Some(list) = own_list() else { return Approach::Serial };
    if !list.meter.get().is_null() {
        return Approach::Metered(list);
    }
    let Some(inside) = Inside::enter() else { return Approach::Serial };
    let sched = inside.sched();
    if sched.closing() {
        return Approach::Serial;
    }
    // The only safe point of a goroutine that does nothing but fork.
    if inside.m.preempt.load(Ordering::Relaxed) && !park::may_not_be_preempted(g) {
        if somebody_waits(&inside) {
            drop(inside);
            park::heed_request();
            return approach(here);
        }
        // It has the P for another slice: its branches are its own work, and better done
        // in their order.
        inside.m.preempt.store(false, Ordering::Relaxed);
        inside.p.tick_up();
    }
    let before = inside.m.desk.set_up(list, limit);
    if before == Before::Closed {
        sched.forking.fetch_add(1, Ordering::SeqCst);
    }
    let share = match before {
        Before::Asked => true,
        Before::Unasked => false,
        Before::Closed | Before::Unset => {
            // An M that goes to sleep counts its P as idle, fences, and asks those who
            // fork: it sees this one, or is seen here.
            fence_after_rmw();
            sched.idle.idle_ps() != 0
        }
    };
    // Something to steal is there already: it will do for whoever asked, unless it is left
    // to this P.
    let to_steal = !inside.p.runq.rings_empty() && brief::left(&inside.p).is_none();
    Approach::Fork(list, share && !to_steal)
}

/// Whether there is something to run on the caller's P that is no branch. Runs the timers
/// that are due, and looks at the network.
fn somebody_waits(inside: &Inside) -> bool {
    let (sched, p) = (inside.sched(), inside.p);
    timers::run_due(sched, p);
    netpoll::look_if_late(sched, p, clock::now());
    if let Some(g) = p.runq.pop_if(|g| !branches::is_branch(g)) {
        // It is the first, and stays it.
        let _none = p.runq.put_next(g);
    }
    sched.runq_size.load(Ordering::Relaxed) != 0
        || p.runq.peek_own().is_some()
        || p.runq.peek_offered().is_some()
}

/// The list of the calling goroutine.
pub(crate) fn own_list() -> Option<&'static List> {
    let m = m::current()?;
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = unsafe { m.curg()?.frame() }?;
    Some(frame.ext.forks.get_or_init(|| Attached::new(m.sched)).0)
}

/// The list of the calling goroutine, if that is being measured.
pub(crate) fn metered() -> Option<&'static List> {
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = unsafe { m::current_g()?.frame() }?;
    let list = frame.ext.forks.get()?.0;
    (!list.meter.get().is_null()).then_some(list)
}

/// How much stack a fork leaves to the branches that do not fork, of so much.
fn reserve(usable: usize) -> usize {
    (usable / 2).min(MOST_RESERVED)
}

const MOST_RESERVED: usize = 256 << 10;

/// Whether the caller has less stack left than a fork leaves to its branches.
#[inline(never)] // after a switch it may be another thread
pub(crate) fn is_short() -> bool {
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = m::current_g().and_then(|g| unsafe { g.frame() });
    let limit = match frame {
        Some(frame) => frame.limit() + reserve(frame.class().usable()),
        None => thread::stack_limit().saturating_add(MOST_RESERVED),
    };
    context::stack_pointer() < limit
}

/// How large a segment is that a fork or a scope goes on on, with so many bytes of arguments
/// and results.
pub(crate) fn segment(passed: usize) -> usize {
    // Frames may hold several copies of what is passed by value: with those the new segment
    // must not be short again.
    const COPIES: usize = 8;
    SEGMENT + COPIES * passed
}

const SEGMENT: usize = 1 << 20;

/// The calling goroutine goes on on another segment: forks measure anew.
pub(crate) fn refresh() {
    if let Some(m) = m::current() {
        m.desk.measure_anew();
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::sched::netpoll::tests::looks_meanwhile;

    #[test]
    fn a_p_that_only_forks_looks_at_the_network() {
        let looks =
            |_: &u32| looks_meanwhile(|_| assert!(!somebody_waits(&Inside::enter().unwrap())));
        assert!((0..20).filter(looks).count() > 10);
    }
}
