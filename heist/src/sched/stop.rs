//! Stopping the world, and functions that every P calls.
//!
//! The world is stopped when somebody has all Ps: no goroutine is scheduled, and
//! whatever belongs to a P is the stopper's. Ps are collected
//!
//! 1. from the list of idle ones;
//! 2. from goroutines in user code, which go on without (`protocol::lease`): no
//!    signal, and nobody is waited for;
//! 3. from Ms in the runtime, which see the order before their next goroutine.
//!
//! Whoever goes to user code or makes a P idle meanwhile is found in the next round,
//! 100 µs later at the latest.
//!
//! While the world stands, wake-ups find no idle P, and whoever needs one waits in
//! the global queue. When it goes on, one M searches for all that has come.

use super::in_place;
use super::m::M;
use super::p::{Held, P};
use super::schedt::{Sched, halt};
use super::{find, wake};
use crate::prim::atomic::{Ordering, fence};
use crate::prim::hint;
use crate::prim::mutant::{Mutant, is};
use std::ptr;
use std::time::Duration;

const AGAIN: Duration = Duration::from_micros(100);

/// Why the world is stopped. Reports say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Somebody has called `set_max_procs`.
    SetMaxProcs,
    /// The process may use another number of CPUs.
    CpuLimit,
}

impl Reason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::SetMaxProcs => "set_max_procs",
            Reason::CpuLimit => "the CPU limit has changed",
        }
    }
}

/// What an M finds at a safe point.
pub(crate) enum Halt {
    /// It has done what it was to do.
    GoOn,
    /// It has another P, perhaps.
    LookAgain,
    /// The thread is to end; it has no P.
    End,
}

/// A function that every P calls once.
pub(crate) type SafePoint = fn(&'static Sched, Held);

/// Before the next goroutine: there is an order for the M.
#[cold]
#[inline(never)]
pub(crate) fn at_safe_point(m: &'static M) -> Halt {
    let sched = m.sched;
    if sched.closing() {
        // Whatever is queued on the P; shutdown collects it.
        stop_searching(m);
        m.release_p();
        return Halt::End;
    }
    call_safe_point(sched, m.held());
    if !sched.stopping() {
        return Halt::GoOn;
    }
    stop_searching(m);
    let p = m.release_p();
    let stays = {
        let mut shared = sched.shared.lock();
        // Asked again with the lock: the world may go on already.
        let stopping = sched.stopping() && !shared.closed;
        if stopping {
            shared.stopped.push(p);
            shared.idle_ms.push(m);
        }
        !stopping
    };
    if stays {
        m.acquire_p(p);
        return Halt::LookAgain;
    }
    sched.stopped.wake();
    if find::sleep_idle(m, 0) { Halt::LookAgain } else { Halt::End }
}

fn stop_searching(m: &'static M) {
    if m.searching() {
        m.set_searching(false);
        // Whoever looks for work does so when the world goes on.
        let _ = m.sched.idle.found();
    }
}

fn call_safe_point(sched: &'static Sched, p: Held) {
    // Acquire and release: whoever waits for all of them sees what they did. Cleared
    // last, or it would go on while one is still at it, or has yet to ask what to call.
    if p.safe_point.load(Ordering::Acquire) {
        let f = *sched.safe_point.lock();
        if let Some(f) = f {
            f(sched, p);
        }
        p.safe_point.store(false, Ordering::Release);
    }
}

/// Calls `f` for each P, where it is: on an idle one or one whose goroutine is in
/// user code, here; on the others by their M, before its next goroutine. `f` is
/// short and takes no lock below the scheduler's.
pub(crate) fn on_each_p(sched: &'static Sched, f: SafePoint) {
    let _alone = sched.taking.lock();
    *sched.safe_point.lock() = Some(f);
    sched.usable_ps().for_each(|p| p.safe_point.store(true, Ordering::Relaxed));
    sched.set_halt(halt::SAFE_POINT, true);
    while !sched.closing() && sched.usable_ps().any(|p| p.safe_point.load(Ordering::Acquire)) {
        call_for_idle(sched);
        for m in sched.ps().filter_map(P::m) {
            m.lease.borrow(|| {
                if let Some(p) = m.p() {
                    // SAFETY: borrowed from its M, which is in user code.
                    call_safe_point(sched, unsafe { Held::new(p) });
                }
            });
        }
        hint::give_way();
    }
    sched.set_halt(halt::SAFE_POINT, false);
    *sched.safe_point.lock() = None;
}

fn call_for_idle(sched: &'static Sched) {
    let shared = sched.shared.lock();
    for p in &shared.idle_ps {
        // SAFETY: idle, and it stays so while the lock is held.
        call_safe_point(sched, unsafe { Held::new(p) });
    }
}

/// Stops the world, calls `f` with all Ps, and lets it go on. `None` if the runtime
/// closes. Not from an M with a P: it waits for all of them.
pub(crate) fn stop_the_world<T>(
    sched: &'static Sched,
    reason: Reason,
    f: impl FnOnce(&World) -> T,
) -> Option<T> {
    let _alone = sched.taking.lock();
    *sched.stopped_for.lock() = Some(reason);
    sched.stopped.clear();
    sched.set_halt(halt::STOPPING, true);
    let world = collect(sched);
    let value = world.as_ref().map(f);
    sched.set_halt(halt::STOPPING, false);
    *sched.stopped_for.lock() = None;
    if let Some(world) = world {
        world.go_on();
    }
    value
}

/// All Ps of a runtime, stopped.
pub(crate) struct World {
    sched: &'static Sched,
    ps: Vec<&'static P>,
}

fn collect(sched: &'static Sched) -> Option<World> {
    let mut ps: Vec<&'static P> = Vec::with_capacity(sched.procs() as usize);
    loop {
        {
            let mut shared = sched.shared.lock();
            if shared.closed {
                return None;
            }
            while let Some(p) = sched.take_idle_p(&mut shared) {
                ps.push(p);
            }
            ps.append(&mut shared.stopped);
        }
        for m in sched.ps().filter_map(P::m) {
            if let Some(p) = m.lease.retake(|| m.p()) {
                p.set_m(None);
                ps.push(p);
                sched.evicted.store(true, Ordering::SeqCst);
            }
        }
        if ps.len() == sched.usable_procs() {
            return Some(World { sched, ps });
        }
        sched.stopped.sleep_for(AGAIN);
    }
}

impl World {
    /// Changes the number of Ps. Those that go leave their goroutines to the global
    /// queue and their timers to the first P.
    pub(crate) fn resize(&self, procs: u32) {
        let sched = self.sched;
        let before = sched.procs();
        sched.set_procs(procs);
        let class = sched.config().stack;
        for id in before..procs {
            // SAFETY: the world stands, and nobody else has it.
            unsafe { Held::new(sched.p(id)) }.flush(class);
        }
        for p in self.ps.iter().filter(|p| p.id >= procs) {
            if !is(Mutant::ForgetQueue) {
                let queued = in_place::drain(p);
                // Refused by a runtime that closes: shutdown finds them by their state.
                let _ = sched.put_global(queued);
            }
            p.told.to_global(sched);
            if !is(Mutant::ForgetTimers) {
                super::timers::move_all(sched, p, sched.p(0));
            }
            // SAFETY: the world stands, and nobody else has it.
            let p = unsafe { Held::new(p) };
            wake::withdraw_offer(sched, p);
            p.flush(class);
            sched.next_offers.remove(p.id);
        }
    }

    fn go_on(self) {
        let sched = self.sched;
        let procs = sched.procs();
        // Those that are new have done nothing yet.
        let is_new = |p: &&'static P| !self.ps.iter().any(|old| ptr::eq(*old, *p));
        let all: Vec<&'static P> =
            sched.usable_ps().filter(is_new).chain(self.ps.iter().copied()).collect();
        for p in all.into_iter().filter(|p| p.id < procs) {
            let mut shared = sched.shared.lock();
            // With the lock: see `told`.
            if p.runq.is_empty() && p.told.is_empty() {
                sched.put_idle_p(&mut shared, p);
            } else {
                drop(shared);
                wake::start_m(sched, p, false);
            }
        }
        // Whatever was published meanwhile woke nobody.
        fence(Ordering::SeqCst);
        wake::wake_p(sched);
    }
}

/// Another number of Ps. Returns how many there were; `None` if the runtime closes.
/// One that has reserved some, a pool that the user's own threads belong to, keeps
/// its number.
pub(crate) fn set_procs(sched: &'static Sched, procs: u32, reason: Reason) -> Option<u32> {
    super::syscall::blocking(|| {
        sched.note_cpus(procs);
        stop_the_world(sched, reason, |world| {
            let before = sched.procs();
            if procs != before && sched.reserved() == 0 {
                world.resize(procs);
            }
            before
        })
    })
}

/// Gives away what the Ps have cached.
pub(crate) fn flush(sched: &'static Sched, p: Held) {
    p.flush(sched.config().stack);
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::atomic::{AtomicBool, AtomicU32};
    use std::sync::Arc;

    const PS: usize = 4;

    /// One that computes, one that yields, one in a call; and a P that is idle.
    fn beside_others(f: impl FnOnce(&'static Sched)) {
        let runtime = crate::Builder::new().max_procs(PS).build().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (others, sched) = runtime.run(|| {
            let again = |f: fn()| {
                let over = over.clone();
                crate::go(move || {
                    while !over.load(Ordering::Relaxed) {
                        f();
                    }
                })
            };
            let call = || crate::syscall(|| std::thread::sleep(Duration::from_millis(1)));
            let all: [fn(); 3] = [std::hint::spin_loop, crate::thread::yield_now, call];
            (all.map(again), super::super::m::current().unwrap().sched)
        });
        f(sched);
        over.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    }

    #[test]
    fn while_the_world_stands_no_p_runs_anything_and_reports_say_why() {
        beside_others(|sched| {
            for _ in 0..100 {
                let steps = || sched.ps().map(P::steps).collect::<Vec<_>>();
                // Judged afterwards: a world that stands would not see a panic.
                let stood = stop_the_world(sched, Reason::CpuLimit, |world| {
                    let (all, before) = (world.ps.len(), steps());
                    std::thread::sleep(Duration::from_micros(200));
                    let nobody = sched.ps().all(|p| p.m().is_none());
                    (all, nobody, before == steps(), *sched.stopped_for.lock())
                });
                assert_eq!(stood, Some((PS, true, true, Some(Reason::CpuLimit))));
                assert_eq!(*sched.stopped_for.lock(), None);
            }
        });
    }

    #[test]
    fn every_p_calls_the_function_once() {
        static CALLS: [AtomicU32; PS] = [const { AtomicU32::new(0) }; PS];
        let count: SafePoint = |_, p| {
            CALLS[p.id as usize].fetch_add(1, Ordering::Relaxed);
        };
        beside_others(|sched| {
            for round in 1..=100 {
                on_each_p(sched, count);
                let calls = CALLS.each_ref().map(|calls| calls.load(Ordering::Relaxed));
                assert_eq!(calls, [round; PS]);
            }
        });
    }
}
