//! A goroutine that has ended leaves its stack to the next one.
//!
//! If the goroutine at the head of the ring has never run, it needs a stack, and the
//! one that just ended is still on one, warm and empty. So it begins right there:
//! the scheduler's loop would switch away from that stack, keep it, take it again
//! and switch back. Short goroutines that were spawned in a row take a quarter fewer instructions.
//!
//! What the scheduler's loop looks after between two goroutines (the global queue,
//! timers, a runnext and its slice) it still looks after: whoever finds a runnext, or
//! the 61st tick, or anything else than a new goroutine, goes back to it.

use super::exec;
use super::find::GLOBAL_EVERY;
use super::g::{Frame, G, flag};
use super::m::M;
use super::p::Held;
use super::protocol::g_state::Status;

/// Ends `g`, whose body has returned, and begins its heir: the caller, on the
/// stack that was `g`'s, runs it. `None` if there is none, and `g` is as it was.
#[inline(always)]
pub(crate) fn inherit(m: &'static M, p: Held, g: &'static G) -> Option<&'static G> {
    // One that has locked its thread takes it along, and one that has forked has
    // something to clear up.
    if m.desk.is_open()
        || p.tick().is_multiple_of(GLOBAL_EVERY)
        || m.sched.halts()
        || g.has(flag::PINNED)
    {
        return None;
    }
    // SAFETY: the goroutine runs, on its own stack.
    if !unsafe { g.frame() }.is_some_and(|frame| p.own().frames.are_like(frame)) {
        return None;
    }
    let heir = p.runq.pop_if(|next| !next.has_frame())?;
    let frame = exec::take_frame(g);
    // SAFETY: the frame is the caller's, who has done with it what `g` wanted.
    unsafe { Frame::clear(frame) };
    // Nobody runs here while the end of `g` wakes others.
    m.set_curg(None);
    exec::conclude(m.sched, p, g);
    exec::start_on(frame, heir);
    p.tick_up();
    p.end_streak();
    heir.state.become_(Status::Running);
    m.set_curg(Some(heir));
    Some(heir)
}
