//! Running a goroutine: the loop of an M.

use super::find::{self, find_runnable};
use super::g::{Frame, G, flag};
use super::m::{Inside, M};
use super::p::Held;
use super::policy::{Departure, departs};
use super::protocol::g_state::{Park, Status};
use super::protocol::join::Finish;
use super::schedt::{PanicPolicy, Sched};
use super::task::Ended;
use super::waiter::Waiter;
use super::{branches, brief, heir, locked, names, nap, wake};
use crate::context::{self, Resume, Suspend};
use crate::prim::atomic::{Ordering, fence};
use crate::prim::clock;
use crate::prim::fatal::fatal;
use crate::prim::mutant::{Mutant, is};
use crate::stacks::StackError;
use std::ptr::NonNull;
use std::time::Duration;

/// Runs goroutines until the runtime closes. Begins with a P, ends without.
pub(crate) fn run_loop(m: &'static M) {
    m.held().begin();
    while let Some(next) = find_runnable(m) {
        if !execute(m, next.g, next.inherit_time) {
            return;
        }
    }
}

/// Runs a goroutine until it leaves. Returns false when the thread is to end.
#[inline]
fn execute(m: &'static M, g: &'static G, inherit_time: bool) -> bool {
    if g.has(flag::PINNED) {
        return hand_over(m, g);
    }
    let p = m.held();
    if !inherit_time {
        p.tick_up();
        p.end_streak();
    }
    if !g.has_frame() {
        if let Err(error) = prepare(p, g) {
            no_stack(m, g, &error);
            return true;
        }
        if m.sched.no_stack_since.load(Ordering::Relaxed) != 0 {
            m.sched.no_stack_since.store(0, Ordering::Relaxed);
        }
    }
    g.state.become_(Status::Running);
    m.set_curg(Some(g));
    m.lease.leave();
    let asked = resume(g);
    // On the M's own stack again. The goroutine entered the runtime before it
    // left; its M has a P, though perhaps not the one of before, or has noticed
    // that it has none. And the goroutine may be an heir of the one that was
    // resumed.
    let Some(g) = m.curg() else { fatal!("a goroutine that is nobody left its stack") };
    m.set_curg(None);
    if m.desk.is_open() {
        branches::left(m, g, asked);
    }
    if m.p().is_none() {
        return without_p(m, g, asked);
    }
    let p = m.held();
    // What goroutines mostly do, and in a hurry: not by way of a table.
    if asked == Some(Suspend::Park) {
        park(m, p, g);
        return true;
    }
    match asked {
        Some(Suspend::Park) => unreachable!("asked above"),
        Some(Suspend::Sleep) => {
            nap::begin(p, g);
            park(m, p, g);
        }
        Some(Suspend::Yield) => {
            g.state.become_(Status::Runnable);
            requeue(m.sched, p, g);
        }
        Some(Suspend::Preempt) => {
            g.state.become_(Status::Runnable);
            requeue_preempted(m, g);
        }
        Some(Suspend::Done) if g.has(flag::PINNED) => return end_locked(m, g),
        Some(Suspend::Done) => end(m.sched, p, g),
        None => fatal!("a frame ended under its goroutine"),
    }
    true
}

#[inline(always)]
fn park(m: &'static M, p: Held, g: &'static G) {
    p.own().left.set(Some(g));
    if g.state.park() == Park::Notified {
        requeue_woken(m, p, g);
    }
}

#[inline(always)]
fn resume(g: &'static G) -> Option<Suspend> {
    // SAFETY: this M took the goroutine out of a queue: it alone has it, and it
    // has a frame.
    unsafe {
        match g.frame() {
            Some(frame) => frame.resume(Resume::Run),
            None => fatal!("a goroutine without a stack was resumed"),
        }
    }
}

/// Gives a goroutine its stack, on its first run.
#[inline]
fn prepare(p: Held, g: &'static G) -> Result<(), StackError> {
    start_on(p.own().frames.take()?, g);
    Ok(())
}

/// Gives a goroutine the frame that it will run on.
#[inline]
pub(crate) fn start_on(frame: NonNull<Frame>, g: &'static G) {
    // SAFETY: the caller has the frame, which is new or done.
    unsafe { frame.as_ref() }.set_argument(std::ptr::from_ref(g).cast());
    g.set_frame(Some(frame));
}

/// A frame for goroutines.
pub(crate) fn new_frame(stack: crate::stacks::Stack) -> NonNull<Frame> {
    // SAFETY: `body` runs on any thread with a G of its own, which `start_on`
    // sets, and does not unwind.
    unsafe { context::create(stack, |g| body(g)) }
}

/// What runs on a stack: a goroutine, and its heirs.
///
/// # Safety
///
/// `argument` is the G, which runs.
#[inline(always)]
unsafe fn body(argument: *const ()) {
    // SAFETY: the caller's promise; Gs are never unmapped.
    let mut g: &'static G = unsafe { &*argument.cast() };
    loop {
        live(g);
        match heir_of(g) {
            Some(heir) => g = heir,
            None => return,
        }
    }
}

/// Ends a goroutine that has lived, if there is an heir for its stack. Otherwise that is for
/// the M to do, which goes on from here with a P.
///
/// A function of its own, for what it needs of the stack: the frame of [`body`] lies on it
/// as long as the goroutine lives, and is in no cache when that has waited among many.
#[inline(never)]
fn heir_of(g: &'static G) -> Option<&'static G> {
    let inside = Inside::enter()?;
    wake::learn(inside.p, g);
    let heir = heir::inherit(inside.m, inside.p, g);
    if heir.is_none() {
        // Into the runtime for good.
        std::mem::forget(inside);
    }
    heir
}

/// All that a goroutine does on its stack.
#[inline(always)]
fn live(g: &'static G) {
    let ended = if g.has(flag::DROPPING) {
        // SAFETY: set when the outcome was left with no handle to take it.
        unsafe { (g.task().drop_outcome)(g) };
        Ended::Quietly
    } else {
        // SAFETY: the first run, and the storage holds the closure.
        unsafe { (g.task().run)(g) }
    };
    // Values of `goroutine_local!` may have anything to drop, in any order.
    super::local::drop_all(g);
    if ended != Ended::Quietly {
        panicked(g);
    }
}

#[cold]
fn panicked(g: &'static G) {
    let sched = super::schedt::at(g.runtime());
    match sched.config().panic {
        PanicPolicy::Isolate => {}
        PanicPolicy::ShutDown => super::shutdown::begin_from_panic(sched),
        PanicPolicy::Abort => std::process::abort(),
    }
}

/// The goroutine's body has returned.
#[inline]
fn end(sched: &'static Sched, p: Held, g: &'static G) {
    p.own().frames.put(take_frame(g));
    conclude(sched, p, g);
}

/// The end of a goroutine that has no stack any more.
#[inline(always)]
pub(crate) fn conclude(sched: &'static Sched, p: Held, g: &'static G) {
    p.own().birth_score.set(g.score());
    // Before anybody knows that it is over: who has joined it does not find it
    // counted any more.
    p.counters.finished.bump();
    match bury(g) {
        Finish::HandleOwns => {}
        Finish::Wake(_) if is(Mutant::NoJoinWake) => {}
        Finish::Wake(waiter) => Waiter::from_word(waiter).wake(),
        Finish::Detached if g.has(flag::OUTCOME) => drop_outcome_later(sched, p, g),
        Finish::Detached => p.own().gs.put(g),
    }
}

/// A goroutine ended that was locked to its thread, which it may have changed in
/// ways that others must not see: the thread ends, too.
#[cold]
fn end_locked(m: &'static M, g: &'static G) -> bool {
    locked::forget(g);
    end(m.sched, m.held(), g);
    let p = m.release_p();
    wake::handoff_p(m.sched, p);
    false
}

/// Takes the frame of a goroutine that has ended.
#[inline(always)]
pub(crate) fn take_frame(g: &'static G) -> NonNull<Frame> {
    // SAFETY: the goroutine has ended and the caller alone has it.
    let frame = match unsafe { g.frame() } {
        Some(frame) => NonNull::from(frame),
        None => fatal!("a goroutine ended without a stack"),
    };
    g.set_frame(None);
    frame
}

/// The last steps on a goroutine without a stack. Afterwards the block belongs
/// to whom the answer says.
#[inline]
pub(crate) fn bury(g: &'static G) -> Finish {
    if g.has(flag::NAMED) {
        names::remove(g.id());
    }
    g.state.become_(Status::Dead);
    g.join.finish()
}

/// The handle went away between the result and the end. The result is the
/// user's to drop, and that code needs a goroutine to run on: this one, again.
#[cold]
fn drop_outcome_later(sched: &'static Sched, p: Held, g: &'static G) {
    g.set(flag::DROPPING, true);
    g.set(flag::OUTCOME, false);
    g.state.become_(Status::Runnable);
    // It has not finished after all.
    p.counters.finished.take_back();
    requeue(sched, p, g);
}

/// The end of a step of a goroutine whose M had lost its P by then. Returns false
/// when the thread is to end.
#[cold]
#[inline(never)]
fn without_p(m: &'static M, g: &'static G, asked: Option<Suspend>) -> bool {
    let sched = m.sched;
    match asked {
        Some(Suspend::Yield | Suspend::Preempt) => {
            g.state.become_(Status::Runnable);
            queue_without_p(sched, g);
        }
        Some(Suspend::Park) => match g.state.park() {
            Park::Parked => {}
            Park::Notified => queue_without_p(sched, g),
        },
        // It would have stayed on its thread.
        Some(Suspend::Sleep) => fatal!("a goroutine left to sleep without a P"),
        // Only a runtime that closes lets one end so: see `heir_of`.
        Some(Suspend::Done) => super::shutdown::end_without_p(sched, g),
        None => fatal!("a frame ended under its goroutine"),
    }
    if sched.closing() {
        return false;
    }
    find::take_p_for_work(m) || find::become_idle(m) && find::sleep_idle(m, 0)
}

/// If the runtime has closed, it is left as shutdown expects it.
fn queue_without_p(sched: &'static Sched, g: &'static G) {
    if g.has(flag::IDLE_PRIORITY) {
        wake::inject_idle(sched, sched.life(), g);
    } else {
        // No wake-up: this M looks for a P to run it with.
        let _ = sched.put_global([g]);
    }
}

/// Queues a goroutine that yielded, and wakes a thread for it if one is idle:
/// there is more to run than this P can.
#[inline]
fn requeue(sched: &'static Sched, p: Held, g: &'static G) {
    if g.has(flag::IDLE_PRIORITY) {
        return wake::inject_idle(sched, sched.life(), g);
    }
    if departs(Departure::TwoRings) {
        wake::put_yielded(sched, p, g);
    } else {
        let _ = sched.put_global([g]);
    }
    if p.own().gives_way.replace(false) {
        if brief::leave_to_owner(p) {
            return;
        }
    } else {
        brief::mixes(p);
    }
    // No fence if whoever goes before it is in the rings, too: see the README, "No wake-up is
    // lost" (20 that yield on two Ps: 10.5 ns each, and with a fence 14.9). A runnext is not,
    // nor is what the P was told: it would run, and this one lie in the core's store buffer
    // while the last who could take it finds the rings empty, and sleeps.
    let behind_another = p.runq.has_next() || !p.told.is_empty();
    if sched.idle.idle_ps() != 0 || behind_another && !p.runq.alone() && !is(Mutant::YieldUnseen) {
        fence(Ordering::SeqCst);
        wake::wake_p(sched);
    }
}

/// Queues a goroutine whose time is over.
#[cold]
fn requeue_preempted(m: &'static M, g: &'static G) {
    if g.has(flag::IDLE_PRIORITY) {
        wake::inject_idle(m.sched, m.sched.life(), g);
    } else {
        wake::inject(m.sched, m.sched.life(), g);
    }
}

/// Queues a goroutine whose waker came before it had parked.
#[cold]
fn requeue_woken(m: &'static M, p: Held, g: &'static G) {
    if g.has(flag::IDLE_PRIORITY) {
        return wake::inject_idle(m.sched, m.sched.life(), g);
    }
    wake::put_tail(m.sched, p, g);
    fence(Ordering::SeqCst);
    wake::wake_p(m.sched);
}

/// A goroutine that must run on another M: that M gets this one's P
/// (`startlockedm` in Go). Also if the runtime closes: it waits for that
/// (`in_place::wait_for_p`, `freeze::stand_still`).
#[cold]
fn hand_over(m: &'static M, g: &'static G) -> bool {
    let Some(target) = super::in_place::pinned_to(g) else {
        fatal!("a pinned goroutine without a thread")
    };
    let searched = m.searching();
    m.set_searching(false);
    // Its slice begins; sysmon goes by that.
    m.held().tick_up();
    // Looked at before it can go on.
    let frozen = g.state.status() == Status::Preempted;
    let p = m.release_p();
    let idle = if frozen {
        // It may hold anything, the lock of the allocator too: the P first.
        target.hand_over(p);
        find::become_idle(m)
    } else {
        // First, so that it is there when the goroutine waits again, soon as a rule,
        // and its P is handed on.
        let idle = find::become_idle(m);
        target.hand_over(p);
        idle
    };
    if searched {
        find::search_is_over(m.sched);
    }
    idle && find::sleep_idle(m, m.patience)
}

/// There is no memory for a stack. The goroutine goes to the end of the queue:
/// others may end and leave theirs.
#[cold]
fn no_stack(m: &'static M, g: &'static G, error: &StackError) {
    const PATIENCE: u64 = 10_000_000_000;
    let now = clock::now();
    let since = &m.sched.no_stack_since;
    match since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => crate::prim::os::write_stderr(
            format!("heist: a goroutine waits for memory: {error}\n").as_bytes(),
        ),
        // The time starts anew whenever some goroutine gets a stack.
        Err(then) if now.saturating_sub(then) > PATIENCE => {
            fatal!("no goroutine has got a stack for 10 s: {error}")
        }
        Err(_) => {}
    }
    if m.sched.put_global([g]) {
        m.note.sleep_for(Duration::from_millis(1));
    }
}

/// Runs a frame to its end once, for tests of what keeps frames.
#[cfg(test)]
pub(crate) fn run_nothing_on(frame: NonNull<Frame>) {
    let g: &'static G = super::g_pool::take().unwrap();
    g.init(super::g::Birth {
        id: 0,
        runtime: 0,
        parent: 0,
        flags: 0,
        site: std::panic::Location::caller(),
        task: super::task::TaskOf::<fn(), ()>::TASK,
    });
    // SAFETY: the block and the frame are this function's.
    unsafe {
        super::task::TaskOf::<fn(), ()>::emplace(g, || {});
        start_on(frame, g);
        assert_eq!(frame.as_ref().resume(Resume::Run), Some(Suspend::Done));
        (g.task().drop_outcome)(g);
    }
    g.set_frame(None);
    super::g_pool::put(g);
}
