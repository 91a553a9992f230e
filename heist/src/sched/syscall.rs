//! Calls that may block the thread.
//!
//! *Optimistic* ([`syscall`]): most calls return at once, so the P stays, and the
//! lease of the M says that user code is in a call. Two plain stores; if it lasts,
//! sysmon takes the P (`retake`).
//!
//! *At once* ([`blocking`]): the P goes to another M before the call.
//!
//! On the way back, in both, an M without a P takes the one that it had if that is
//! idle, or another idle one; if there is none, its goroutine goes to the global queue
//! like one that yields, and the M to the idle ones.

use super::g::G;
use super::m::{self, Inside, M};
use super::protocol::g_state::Status;
use super::{branches, park, wake};
use crate::context::Resume;
use crate::prim::os;

/// Runs `f`, which may block, with the P at hand for whoever needs it.
#[inline]
pub(crate) fn syscall<T>(f: impl FnOnce() -> T) -> T {
    let Some(m) = m::current() else { return f() };
    // On an M's own stack, or in the middle of a runtime call.
    if m.curg().is_none() || m.lease.inside() {
        return f();
    }
    m.lease.declare(true);
    let _back = Back;
    f()
}

/// Runs `f`, which will block, without a P.
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    if m::current().is_none_or(|m| m.curg().is_none() || m.lease.inside()) {
        return f();
    }
    let Some(inside) = Inside::enter() else { return f() };
    let (m, Some(g)) = (inside.m, inside.g()) else { return f() };
    branches::share_all(&inside, g);
    g.state.leave_with_thread(Status::Syscall);
    let p = m.release_p();
    wake::handoff_p(m.sched, p);
    drop(inside);
    m.lease.declare(true);
    let _back = Back;
    f()
}

/// The way back, also of a call that panics.
struct Back;

impl Drop for Back {
    #[inline(always)]
    fn drop(&mut self) {
        // Looked up again: the call may have called the runtime, and moved.
        let Some(m) = m::current() else { return };
        m.lease.declare(false);
        if m.lease.is_over() {
            come_back(m);
        } else if park::is_anybody_asked() {
            let errno = os::errno();
            park::heed_request();
            os::set_errno(errno);
        }
    }
}

/// The P was taken, or given up. A short wait would cost less than what follows,
/// but Ps are busy when they are taken.
#[cold]
#[inline(never)]
fn come_back(m: &'static M) {
    // Whatever failed in the call, its reason is still to be read.
    let errno = os::errno();
    if let Some(g) = m.curg() {
        find_p(m, g);
    }
    os::set_errno(errno);
}

#[inline(always)]
fn find_p(m: &'static M, g: &'static G) {
    // With its thread, if it cannot leave it; also if a P is idle.
    if park::must_stay(g) || m.sched.idle.idle_ps() > 0 || m.sched.closing() {
        drop(Inside::enter());
        return;
    }
    // The caller has a value to return: not cut short by a shutdown, which stops
    // the goroutine at its next wait.
    let (Resume::Run | Resume::Unwind) = park::yield_whatever_comes();
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::atomic::{AtomicUsize, Ordering};
    use crate::prim::{hint, thread};
    use crate::sched::schedt::Sched;
    use std::sync::Arc;

    const PS: usize = 3;

    /// The P that the caller runs on.
    fn here() -> u32 {
        m::current().and_then(M::p).unwrap().id
    }

    /// Goroutines on all Ps, and the one on this P ends first: it is the one that has
    /// been idle for longest, and the last that an M would take that takes any.
    fn leave_first_of_all(runtime: &crate::Runtime, sched: &'static Sched, own: u32) {
        let there = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..PS)
            .map(|_| {
                let there = there.clone();
                runtime.go(move || {
                    crate::no_preempt(|| {
                        there.fetch_add(1, Ordering::SeqCst);
                        while there.load(Ordering::SeqCst) < PS {
                            hint::spin_loop();
                        }
                        while here() != own && !sched.idle_mask.contains(own) {
                            hint::spin_loop();
                        }
                    });
                })
            })
            .collect();
        all.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        while (sched.idle.idle_ps() as usize) < PS {
            thread::yield_now();
        }
    }

    #[test]
    fn back_to_its_own_p_if_that_is_idle() {
        let runtime = Arc::new(crate::Builder::new().max_procs(PS).build().unwrap());
        let others = runtime.clone();
        runtime.run(move || {
            for _ in 0..20 {
                let (own, sched) = (here(), m::current().unwrap().sched);
                blocking(|| {
                    let others = others.clone();
                    // Not a goroutine's business: it would need a P for that.
                    let other = std::thread::spawn(move || leave_first_of_all(&others, sched, own));
                    other.join().unwrap();
                });
                assert_eq!(here(), own);
            }
        });
    }
}
