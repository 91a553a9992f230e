//! Waiting with the thread: when a goroutine cannot leave it.
//!
//! A goroutine that is unwinding must not change threads (std counts panics per
//! thread), and one that is pinned may not. So its M waits with it, and its P
//! goes to another M. When it is made ready it is queued like any other, and
//! the M that finds it hands its own P over (`exec::hand_over`).

use super::branches;
use super::g::{G, flag};
use super::m::{M, Packed};
use super::p::{Held, P};
use super::protocol::g_state::{Park, Status};
use super::schedt::Sched;
use super::shared::Shared;
use super::wake;
use crate::context::Resume;
use crate::prim::atomic::{Ordering, fence, heavy_barrier};
use crate::prim::lock::Guard;
use crate::prim::mutant::{Mutant, is};
use crate::prim::thread;
use std::ptr;
use std::time::Duration;

/// Counts an M that waits with its goroutine: it runs nothing else.
pub(crate) struct InPlace(&'static Sched);

impl InPlace {
    pub(crate) fn new(sched: &'static Sched) -> Self {
        sched.in_place.fetch_add(1, Ordering::SeqCst);
        InPlace(sched)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.0.in_place.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether all Ms of a runtime that closes have ended, or wait in place, and will go on
/// without a P. Both are counted at one moment: with the lock the threads do not change.
pub(crate) fn all_wait(sched: &'static Sched) -> bool {
    let shared = sched.shared.lock();
    shared.threads <= sched.in_place.load(Ordering::SeqCst)
}

/// Whether no M of a runtime that closes has a goroutine in hand that it took out of a queue,
/// or will. Less than [`all_wait`]: one may be in user code, and wait there for the caller.
///
/// An M takes something only after it has looked whether the runtime closes, with a P: in the
/// scheduler's loop, which runs nobody, or inside of the runtime (`heir`). So one that runs
/// somebody and is outside, or has no P, has nothing, and looks before it does: the barrier
/// pairs with that of `Lease::enter`, and with the fence where a P was brought
/// ([`wait_for_p`]).
fn nobody_has_any(sched: &'static Sched) -> bool {
    heavy_barrier();
    let shared = sched.shared.lock();
    let has_ended = |m: &M| shared.free_ms.iter().any(|free| ptr::eq(*free, m));
    let is_away = |m: &M| m.curg().is_some() && (!m.lease.inside() || m.p().is_none());
    shared.closed && shared.all_ms.iter().all(|m| is_away(m) || has_ended(m))
}

/// Parks the calling goroutine and its M. Says whether it is to unwind, since the
/// runtime closes.
#[cold]
pub(crate) fn park(inside: Packed, g: &'static G) -> Resume {
    let inside = inside.unpack();
    branches::share_all(&inside, g);
    let resumed = park_here(inside.m, g, || {
        let p = inside.m.release_p();
        wake::handoff_p(inside.m.sched, p);
    });
    drop(inside);
    resumed
}

/// As [`park`], for an M that has no P. It may have one afterwards.
pub(crate) fn park_without_p(m: &'static M, g: &'static G) -> Resume {
    branches::share_all_without_p(m, g);
    let resumed = park_here(m, g, || {});
    m.lease.leave();
    resumed
}

fn park_here(m: &'static M, g: &'static G, give_p_up: impl FnOnce()) -> Resume {
    let pinned_before = pin(g, m);
    let resumed = match g.state.park() {
        Park::Notified => Resume::Run,
        Park::Parked => {
            let waiting = InPlace::new(m.sched);
            give_p_up();
            wait_for_p(m, g, waiting)
        }
    };
    // One that is to unwind was taken out of its wait for that, and runs.
    if resumed == Resume::Run {
        g.state.become_(Status::Running);
    }
    unpin(g, pinned_before);
    resumed
}

/// Lets others run while the goroutine stays on its thread: another M runs its P,
/// and it gets one back in its turn. Says whether it is to unwind, since the
/// runtime closes.
#[cold]
pub(crate) fn yield_now(inside: Packed, g: &'static G) -> Resume {
    let inside = inside.unpack();
    let (m, sched) = (inside.m, inside.sched());
    if sched.closing() && !thread::panicking() {
        return Resume::Unwind;
    }
    // First: what it waits for may be one of them.
    branches::share_all(&inside, g);
    if inside.p.runq.is_empty() && sched.runq_size.load(Ordering::Relaxed) == 0 {
        drop(inside);
        thread::yield_now();
        return Resume::Run;
    }
    g.note_no_wait();
    wait_in_queue(m, g, || {
        let queued = sched.put_global([g]);
        if queued {
            wake::start_m(sched, m.release_p(), false);
        }
        queued
    });
    drop(inside);
    Resume::Run
}

/// As [`yield_now`], for an M that has no P.
pub(crate) fn yield_without_p(m: &'static M, g: &'static G) -> Resume {
    branches::share_all_without_p(m, g);
    g.note_no_wait();
    let regained = regain_p(m);
    m.lease.leave();
    if regained {
        return Resume::Run;
    }
    // Nobody schedules any more. It cannot go back: it is told here, unless it
    // unwinds already.
    if !thread::panicking() {
        return Resume::Unwind;
    }
    // It may look for what somebody does who must be unwound first: it counts as waiting.
    pause_in_shutdown(SHORT_PAUSE);
    Resume::Run
}

/// Gets a P for an M that has lost its own while its goroutine was in user
/// code: that one if it is idle, another idle one, or one in its turn. False if the
/// runtime closes.
#[cold]
pub(crate) fn regain_p(m: &'static M) -> bool {
    let Some(g) = m.goes_on_without_p() else { return false };
    let sched = m.sched;
    if sched.closing() {
        return false;
    }
    {
        let mut shared = sched.shared.lock();
        if shared.closed {
            return false;
        }
        // With the lock: see `nobody_has_any`.
        if let Some(p) = take_own_or_idle(m, &mut shared) {
            m.acquire_p(p);
            return true;
        }
    }
    wait_in_queue(m, g, || {
        let mut shared = sched.shared.lock();
        if shared.closed {
            return false;
        }
        // A P that went idle since would not see what is queued now.
        if let Some(p) = take_own_or_idle(m, &mut shared) {
            m.acquire_p(p);
            return false;
        }
        sched.put_global_locked(&mut shared, [g]);
        true
    });
    m.p().is_some()
}

/// An idle P, the one that the M had before if that is one: what it has cached there
/// is still warm, and its timers and stacks are there.
fn take_own_or_idle(m: &'static M, shared: &mut Guard<'_, Shared>) -> Option<&'static P> {
    let sched = m.sched;
    let own = m.last_p().filter(|p| sched.idle_mask.contains(p.id));
    own.filter(|p| sched.take_this_idle_p(shared, p)).or_else(|| sched.take_idle_p(shared))
}

/// Waits with the thread while the goroutine is queued, which `queue` does, unless
/// it says no.
fn wait_in_queue(m: &'static M, g: &'static G, queue: impl FnOnce() -> bool) {
    let pinned_before = pin(g, m);
    g.state.leave_with_thread(Status::Runnable);
    if queue() {
        // It is runnable, so it is not told to unwind.
        let (Resume::Run | Resume::Unwind) = wait_for_p(m, g, InPlace::new(m.sched));
    }
    g.state.run_with_thread(Status::Runnable);
    unpin(g, pinned_before);
}

/// Sleeps until another M hands its P over.
///
/// When the runtime closes, one that is queued may be in the hands of an M already, which
/// looks at it and brings its P: it goes on by itself only when no such M is left, so that
/// nobody comes for a goroutine that has gone on, has ended, or is another by then.
fn wait_for_p(m: &'static M, g: &'static G, waiting: InPlace) -> Resume {
    while !m.acquire_next_p() {
        if !m.sched.closing() {
            m.note.watch(m.patience);
            m.note.sleep();
            continue;
        }
        // Nobody schedules any more. What was woken goes on without a P.
        let runnable = g.state.status() == Status::Runnable;
        if runnable && (nobody_has_any(m.sched) || is(Mutant::GoOnInHand)) {
            return Resume::Run;
        }
        // What unwinds already waits for its wake-up, and shutdown gives up on it if none
        // comes. All others are told to.
        if is_told(g) && g.state.claim_waiting() {
            return Resume::Unwind;
        }
        m.note.sleep_for(Duration::from_millis(1));
    }
    // First: those who unwind begin when all wait, and empty the queues of their Ps.
    drop(waiting);
    fence(Ordering::SeqCst);
    // A P that comes now is nobody's.
    if m.sched.closing() {
        m.release_p();
    }
    Resume::Run
}

/// Whether a goroutine that waits with its thread is told when its runtime closes: unless it
/// unwinds already. But if it waits until some moment it is told as well, since there are
/// no timers any more (`park::park_for_a_time`).
fn is_told(g: &'static G) -> bool {
    // SAFETY: the goroutine is the caller, which waits with its thread.
    !thread::panicking() || unsafe { g.frame() }.is_some_and(|frame| frame.ext.timed.get())
}

/// A park of a goroutine that cannot leave its thread, which has no P and gets
/// none: the runtime closes. What it waits for may be on a goroutine that shutdown
/// unwinds once all threads have stopped, so the thread counts as waiting.
pub(crate) fn park_in_shutdown(m: &'static M, g: &'static G) -> Resume {
    let waiting = (!m.is_ghost()).then(|| InPlace::new(m.sched));
    loop {
        thread::yield_now();
        if waiting.is_some() {
            m.note.sleep_for(Duration::from_millis(1));
        }
        if g.state.take_notified() {
            return Resume::Run;
        }
        if is_told(g) {
            return Resume::Unwind;
        }
    }
}

/// What a yield is in a runtime that closes, in nanoseconds.
const SHORT_PAUSE: u64 = 100_000;

/// A moment, of at most so many nanoseconds, in which a goroutine that unwinds while its
/// runtime closes waits for something: with its thread, which counts as waiting.
pub(crate) fn pause_in_shutdown(most: u64) {
    thread::yield_now();
    let Some(m) = super::m::current() else { return };
    let waiting = (!m.is_ghost()).then(|| InPlace::new(m.sched));
    m.note.sleep_for(Duration::from_nanos(most.min(1_000_000)));
    drop(waiting);
}

/// Ties a goroutine that runs on `m` to it. Returns whether it was tied before.
/// Safe to call from a signal handler.
pub(crate) fn pin(g: &'static G, m: &'static M) -> bool {
    let before = g.has(flag::PINNED);
    // SAFETY: the goroutine runs, on this thread.
    if let Some(frame) = unsafe { g.frame() } {
        frame.ext.pinned.set(Some(m));
    }
    g.set(flag::PINNED, true);
    before
}

pub(crate) fn unpin(g: &'static G, pinned_before: bool) {
    g.set(flag::PINNED, pinned_before);
}

/// The M of a goroutine that waits with its thread.
pub(crate) fn pinned_to(g: &'static G) -> Option<&'static M> {
    // SAFETY: it waits with its thread, so it does not end.
    unsafe { g.frame() }.and_then(|frame| frame.ext.pinned.get())
}

/// Empties the queue of a P that nobody holds.
pub(crate) fn drain(p: &'static P) -> Vec<&'static G> {
    // SAFETY: the caller took the P from its M, or is the only thread left.
    let p = unsafe { Held::new(p) };
    let mut queued = Vec::new();
    for _ in 0..2 {
        while let Some(popped) = p.runq.pop() {
            queued.push(popped.item);
        }
        p.runq.turn();
    }
    super::brief::popped(p);
    queued
}
