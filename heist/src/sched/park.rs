//! Leaving a P: park, yield, and being made ready again.

use super::g::{G, WaitReason, flag};
use super::in_place;
use super::m::{self, Inside};
use super::protocol::g_state::Ready;
use super::schedt::Sched;
use super::task::Shutdown;
use super::wake;
use crate::context::{Resume, Suspend};
use crate::prim::fatal::fatal;
use crate::prim::{hint, thread};
use std::panic::Location;
use std::ptr;

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
    wake_or_order(g, suspend(inside, g, Suspend::Park))
}

/// A goroutine that is told to unwind while its wake-up is there has been woken.
#[inline(always)]
fn wake_or_order(g: &'static G, resumed: Resume) -> Resume {
    if resumed == Resume::Unwind && g.state.take_notified() {
        return Resume::Run;
    }
    resumed
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
    wake_or_order(g, leave(g, Suspend::Park))
}

/// Lets others run. The goroutine goes on when they have had their turn.
///
/// Inlined into the caller, like everything down to the switch: each frame
/// between the caller and the switch is returned from after it, and the CPU,
/// whose return predictor has seen other calls meanwhile, mispredicts each of
/// those returns (a yield went from 55 to 25 ns).
#[inline(always)]
pub(crate) fn yield_now() {
    if yield_whatever_comes() == Resume::Unwind {
        unwind();
    }
}

/// Like [`yield_now`], but returns also when the runtime shuts down.
#[inline(always)]
pub(crate) fn yield_whatever_comes() -> Resume {
    let Some(inside) = Inside::enter() else { return yield_without_p() };
    let Some(g) = inside.g() else { fatal!("yield outside of a goroutine") };
    if must_stay(g) {
        in_place::yield_now(inside, g);
        return Resume::Run;
    }
    g.note_no_wait();
    wake::learn(inside.p, g);
    suspend(inside, g, Suspend::Yield)
}

/// A yield of a plain thread, or in a shutdown. A goroutine that was woken there
/// goes on where it waited, and may never wait again: it goes back, and is told
/// to unwind.
#[cold]
fn yield_without_p() -> Resume {
    match m::current_g() {
        Some(g) if !must_stay(g) => {
            g.note_no_wait();
            leave(g, Suspend::Yield)
        }
        _ => {
            thread::yield_now();
            Resume::Run
        }
    }
}

/// How often a goroutine may look at something in vain before others get a turn.
const POLLS: u32 = 64;

/// A call that would have had to wait, and was told not to, has found nothing.
/// Goroutines that try again and again are to be stopped like those that wait:
/// every 64th such call on a P yields.
///
/// Never unwinds, since callers may hold what they tried to hand over: a runtime
/// that shuts down stops the goroutine at its next wait.
#[inline]
pub(crate) fn poll_point() {
    let Some(m) = m::current() else { return };
    if m.curg().is_none() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    let polls = &inside.p.own().polls;
    let left = polls.get();
    if left > 0 {
        polls.set(left - 1);
        return;
    }
    polls.set(POLLS - 1);
    drop(inside);
    yield_after_polls();
}

#[cold]
#[inline(never)]
fn yield_after_polls() {
    let _ = yield_whatever_comes();
}

/// Whether the goroutine cannot leave its thread: it is pinned, or it unwinds.
#[inline(always)]
pub(crate) fn must_stay(g: &'static G) -> bool {
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
pub(crate) fn unwind() -> ! {
    std::panic::resume_unwind(Box::new(Shutdown))
}

/// Makes a goroutine runnable. The one answer to its park.
#[inline]
pub(crate) fn ready(g: &'static G) {
    // Looked at before the goroutine is runnable: from then on a runtime that
    // shuts down may end it, and the block may be another's.
    let home = Home::of(g);
    match g.state.ready() {
        Ready::Deferred => {}
        Ready::Enqueue => home.enqueue(g),
    }
}

/// Where a goroutine is queued.
pub(crate) struct Home {
    sched: &'static Sched,
    /// The life of the scheduler that the goroutine belongs to.
    life: u32,
    idle_priority: bool,
}

impl Home {
    /// The home of a goroutine that cannot end meanwhile.
    #[inline]
    pub(crate) fn of(g: &'static G) -> Home {
        let sched = match m::current() {
            Some(m) if m.sched.slot() == g.runtime() => m.sched,
            _ => super::schedt::at(g.runtime()),
        };
        Home { sched, life: sched.life(), idle_priority: g.has(flag::IDLE_PRIORITY) }
    }

    /// Queues a runnable goroutine that nobody else has. If the runtime has
    /// closed since, it is left to those who close it.
    #[inline]
    pub(crate) fn enqueue(self, g: &'static G) {
        if self.idle_priority {
            return wake::inject_idle(self.sched, self.life, g);
        }
        if let Some(m) = m::current()
            && ptr::eq(m.sched, self.sched)
            && !self.sched.closing()
            && let Some(inside) = Inside::enter()
        {
            return wake::ready_next(inside.m, inside.p, g);
        }
        wake::inject(self.sched, self.life, g);
    }
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
