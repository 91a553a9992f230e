//! Waiting with the thread: when a goroutine cannot leave it.
//!
//! A goroutine that is unwinding must not change threads (std counts panics per
//! thread), and one that is pinned may not. So its M waits with it, and its P
//! goes to another M. When it is made ready it is queued like any other, and
//! the M that finds it hands its own P over (`exec::hand_over`).

use super::forks;
use super::g::{G, flag};
use super::m::{Inside, M};
use super::p::{Held, P};
use super::protocol::g_state::{Park, Status};
use super::schedt::Sched;
use super::wake;
use crate::prim::atomic::Ordering;
use crate::prim::thread;
use std::time::Duration;

/// Counts an M that waits with its goroutine: it runs nothing else.
struct InPlace(&'static Sched);

impl InPlace {
    fn new(sched: &'static Sched) -> Self {
        sched.in_place.fetch_add(1, Ordering::SeqCst);
        InPlace(sched)
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.0.in_place.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Parks the calling goroutine and its M.
#[cold]
pub(crate) fn park(inside: Inside, g: &'static G) {
    let m = inside.m;
    forks::share_all(&inside, g);
    let pinned_before = pin(g, m);
    match g.state.park() {
        Park::Notified => g.state.become_(Status::Running),
        Park::Parked => {
            let waiting = InPlace::new(m.sched);
            let p = m.release_p();
            wake::handoff_p(m.sched, p);
            wait_for_p(m, g);
            drop(waiting);
        }
    }
    unpin(g, pinned_before);
    drop(inside);
}

/// Lets others run while the goroutine stays on its thread: another M runs its P,
/// and it gets one back in its turn.
#[cold]
pub(crate) fn yield_now(inside: Inside, g: &'static G) {
    let (m, sched) = (inside.m, inside.sched());
    if inside.p.runq.is_empty() && sched.runq_size.load(Ordering::Relaxed) == 0 {
        drop(inside);
        return thread::yield_now();
    }
    forks::share_all(&inside, g);
    let pinned_before = pin(g, m);
    g.note_no_wait();
    g.state.become_(Status::Runnable);
    if sched.put_global([g]) {
        let waiting = InPlace::new(sched);
        let p = m.release_p();
        wake::start_m(sched, p, false);
        wait_for_p(m, g);
        drop(waiting);
    } else {
        g.state.become_(Status::Running);
    }
    unpin(g, pinned_before);
    drop(inside);
}

/// Gets a P for an M that has lost its own while its goroutine was in user
/// code: an idle one, or in its turn. False if the runtime closes.
#[cold]
pub(crate) fn regain_p(m: &'static M) -> bool {
    let sched = m.sched;
    let Some(g) = m.curg() else { return false };
    if sched.closing() {
        return false;
    }
    let idle = sched.take_idle_p(&mut sched.shared.lock());
    if let Some(p) = idle {
        m.acquire_p(p);
        return true;
    }
    let pinned_before = pin(g, m);
    g.state.become_(Status::Runnable);
    if sched.put_global([g]) {
        let waiting = InPlace::new(sched);
        wait_for_p(m, g);
        drop(waiting);
    } else {
        g.state.become_(Status::Running);
    }
    unpin(g, pinned_before);
    m.p().is_some()
}

/// Sleeps until another M hands its P over.
fn wait_for_p(m: &'static M, g: &'static G) {
    while !m.acquire_next_p() {
        if m.sched.closing() && m.p().is_none() {
            // Nobody schedules any more. Unwinding goes on without a P once the
            // wake-up has come; shutdown gives up on us if it does not.
            if g.state.status() == Status::Runnable {
                break;
            }
            m.note.sleep_for(Duration::from_millis(1));
        } else {
            m.note.sleep();
        }
    }
    g.state.become_(Status::Running);
}

fn pin(g: &'static G, m: &'static M) -> bool {
    let before = g.has(flag::PINNED);
    // SAFETY: the goroutine runs, on this thread.
    if let Some(frame) = unsafe { g.frame() } {
        frame.ext.pinned.set(Some(m));
    }
    g.set(flag::PINNED, true);
    before
}

fn unpin(g: &'static G, pinned_before: bool) {
    g.set(flag::PINNED, pinned_before);
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
    queued
}
