//! Leaving a P: park, yield, and being made ready again.

use super::g::{G, WaitReason, flag};
use super::in_place;
use super::m::{self, Inside};
use super::protocol::g_state::Ready;
use super::task::Shutdown;
use super::wake;
use crate::context::{Resume, Suspend};
use crate::prim::fatal::fatal;
use crate::prim::{hint, thread};
use std::panic::Location;

/// Puts the calling goroutine to sleep. The caller has made it known to exactly
/// one waker, who calls [`ready`] exactly once, before or after.
///
/// # Unwinding
///
/// Panics with a private payload when the runtime shuts down. A caller whose
/// waker may still come must then withdraw, and if it is too late for that,
/// [`absorb`] the wake-up.
#[inline(always)] // as `yield_now`
pub(crate) fn park(reason: WaitReason, site: &'static Location<'static>) {
    if park_whatever_comes(reason, site) == Resume::Unwind {
        unwind();
    }
}

/// Like [`park`], for waits that must not be cut short: returns also when the
/// runtime shuts down and wants the goroutine to unwind, and the caller, whose
/// waker may still come, parks again.
#[inline(always)] // as `yield_now`
pub(crate) fn park_whatever_comes(reason: WaitReason, site: &'static Location<'static>) -> Resume {
    let Some(inside) = Inside::enter() else { return park_in_shutdown() };
    let Some(g) = inside.g() else { fatal!("park outside of a goroutine") };
    if g.state.take_notified() {
        return Resume::Run;
    }
    g.note_wait(reason, inside.p.own().now.get(), site);
    if must_stay(g) {
        in_place::park(inside, g);
        return Resume::Run;
    }
    wake::learn(inside.p, g);
    suspend(inside, g, Suspend::Park)
}

/// A park on a thread that has no P and gets none: shutdown runs goroutines one
/// after the other. Those that unwind must not leave their thread and wait with
/// it; others go back, so that what they wait for can come.
#[cold]
fn park_in_shutdown() -> Resume {
    let Some(g) = m::current_g() else { fatal!("park outside of a goroutine") };
    if g.state.take_notified() {
        return Resume::Run;
    }
    if thread::panicking() {
        while !g.state.take_notified() {
            thread::yield_now();
        }
        return Resume::Run;
    }
    leave(g, Suspend::Park)
}

/// Lets others run. The goroutine goes on when they have had their turn.
///
/// Inlined into the caller, like everything down to the switch: each frame
/// between the caller and the switch is returned from after it, and the CPU,
/// whose return predictor has seen other calls meanwhile, mispredicts each of
/// those returns (about 7 ns).
#[inline(always)]
pub(crate) fn yield_now() {
    let Some(inside) = Inside::enter() else { return thread::yield_now() };
    let Some(g) = inside.g() else { fatal!("yield outside of a goroutine") };
    if must_stay(g) {
        // On its thread it stays; the P is not worth handing over for a moment.
        drop(inside);
        return thread::yield_now();
    }
    wake::learn(inside.p, g);
    if suspend(inside, g, Suspend::Yield) == Resume::Unwind {
        unwind();
    }
}

/// Whether the goroutine cannot leave its thread: it is pinned, or it unwinds.
#[inline(always)]
fn must_stay(g: &'static G) -> bool {
    g.has(flag::PINNED) || thread::panicking()
}

/// Leaves the stack. On return the goroutine may be on another thread: `inside`
/// is gone, and everything else is looked up anew.
#[inline(always)]
fn suspend(inside: Inside, g: &'static G, how: Suspend) -> Resume {
    // The scheduler loop, which this goes to, leaves the runtime.
    std::mem::forget(inside);
    leave(g, how)
}

#[inline(always)]
fn leave(g: &'static G, how: Suspend) -> Resume {
    // SAFETY: the goroutine runs, on its own stack.
    unsafe {
        match g.frame() {
            Some(frame) => frame.suspend(how),
            None => fatal!("a goroutine runs without a stack"),
        }
    }
}

/// Unwinds the calling goroutine to its root, without a panic message.
#[cold]
fn unwind() -> ! {
    std::panic::resume_unwind(Box::new(Shutdown))
}

/// Makes a goroutine runnable. The one answer to its park.
#[inline]
pub(crate) fn ready(g: &'static G) {
    match g.state.ready() {
        Ready::Deferred => {}
        Ready::Enqueue => enqueue(g),
    }
}

/// Queues a runnable goroutine that nobody else has.
#[inline]
pub(crate) fn enqueue(g: &'static G) {
    if g.has(flag::IDLE_PRIORITY) {
        return wake::inject_idle(super::schedt::at(g.runtime()), g);
    }
    match m::current() {
        Some(m) if m.sched.slot() == g.runtime() && !m.sched.closing() => {
            if let Some(inside) = Inside::enter() {
                return inside.ready_next(g);
            }
        }
        _ => {}
    }
    wake::inject(super::schedt::at(g.runtime()), g);
}

/// Waits for a wake-up that is on its way to the calling goroutine, which no
/// longer wants it: its waker has been chosen and cannot be stopped.
pub(crate) fn absorb() {
    if let Some(g) = m::current_g() {
        while !g.state.take_notified() {
            hint::spin_loop();
            thread::yield_now();
        }
    }
}
