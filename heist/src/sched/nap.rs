//! Sleeping: a wait that nothing but the clock ends.
//!
//! The sleeper says for how long, and leaves its stack. Its M, on a stack of its own, reads
//! the clock and sets the timer, as Go's does. So nothing that a goroutine does in order to
//! sleep goes deeper on its stack than the switch: of 200,000 that sleep, none has its stack
//! in a cache, and each line of it that need not come saves some 15 ns when it falls asleep,
//! and again when it goes on.

use super::g::{G, WaitReason};
use super::m::Inside;
use super::p::Held;
use super::waiter::{Slept, Turn, Waiter};
use super::{park, timers, wake};
use crate::context::{Resume, Suspend};
use crate::prim::clock;
use std::panic::Location;

/// Sleeps for so many nanoseconds: the caller's goroutine, or thread.
#[inline(always)] // as `park::yield_now`
pub(crate) fn sleep(nanos: u64, site: &'static Location<'static>) {
    let Some(inside) = Inside::enter() else { return sleep_here(nanos, site) };
    // If there is a guard of thread-locals, that is asked there, once.
    let leaves = |g: &&'static G| !park::must_stay(g) && !inside.m.tls.is_guarded();
    let Some(g) = inside.g().filter(leaves) else {
        drop(inside);
        return sleep_here(nanos, site);
    };
    // Nobody takes the P before the M has read it: the goroutine is inside.
    inside.p.own().nap.set(nanos);
    g.note_wait(WaitReason::Sleep, inside.p.now(), site);
    wake::learn(inside.p, g);
    if park::suspend(inside, g, Suspend::Sleep) == Resume::Unwind {
        told_to_unwind(g);
    }
}

/// A plain thread, or a goroutine that stays on its thread.
#[cold]
#[inline(never)]
fn sleep_here(nanos: u64, site: &'static Location<'static>) {
    let when = clock::now().saturating_add(nanos);
    match Waiter::current().begin().sleep(Some(when), WaitReason::Sleep, site) {
        Slept::Unwind => park::unwind(),
        Slept::Expired | Slept::Woken => {}
    }
}

/// The runtime closes. Unwinds, unless the time had come already: the next wait will.
#[cold]
#[inline(never)]
fn told_to_unwind(g: &'static G) {
    // A timer that is set still goes with all the others.
    if Turn::present(g).woken_to_unwind() == Slept::Unwind {
        park::unwind();
    }
}

/// Sets the timer of a goroutine that has left its stack to sleep, and is the caller's.
pub(crate) fn begin(p: Held, g: &'static G) {
    let own = p.own();
    let (now, nanos) = (own.pace.now(), own.nap.get());
    p.note_now(now);
    // For no time: it is due already, by a clock that may be a little behind this one.
    let when = if nanos == 0 { now.saturating_sub(1_000) } else { now.saturating_add(nanos) };
    timers::arm_wait(p, g, g.turn().begin(), when);
}
