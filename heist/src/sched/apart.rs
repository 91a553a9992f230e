//! A thief runs on another CPU than the one that it is woken to help.
//!
//! The kernel wakes a thread where it slept, or where its waker runs, and looks for an idle
//! CPU if both are busy; but if the machine has been busy of late it does not look. A thief
//! is put behind its waker then, or in its place, and the two take turns for milliseconds
//! while another CPU sleeps: of 60 computations of 1.5 ms that forked after a pause, 29
//! were no faster on two CPUs than on one.
//!
//! So whoever wakes a thief while goroutines fork takes its own CPU out of the thief's mask
//! until that has woken up: four system calls of a third of a microsecond each, for a
//! wake-up that takes fifty. Who has more Ps than CPUs is not served by that.
//!
//! Only then. Branches are there to be computed, and their thief should have a CPU of its
//! own, whenever it gets there. A goroutine that was woken may be done in a microsecond,
//! and it is better off in its waker's place than on a CPU that must wake up first (a
//! receiver whose sender computes on began after 116 µs instead of 58).

use super::m::{self, M};
use super::thieves;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::thread;

/// The CPU that was taken out of an M's mask, and one; or 0.
///
/// Set before the M is given a P and read after: the delivery of the P orders the two.
#[derive(Debug)]
pub(crate) struct KeptOff(AtomicU32);

impl KeptOff {
    pub(crate) const fn new() -> Self {
        KeptOff(AtomicU32::new(0))
    }

    /// The M's thread is new, and has a mask of its own.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// An idle M is going to be given a P, to search with, and to be woken. If it may find a
/// branch, and the caller is an M, which goes on as a rule, it will run elsewhere.
pub(super) fn keep_off(thief: &M) {
    if !thieves::anybody(thief.sched) || thief.serves() || m::current().is_none() {
        return;
    }
    let Some(here) = thread::cpu() else { return };
    let cpus = thief.sched.procs() as usize;
    if thief.os_thread().leave_out(here, cpus) {
        thief.kept_off.0.store(here as u32 + 1, Ordering::Relaxed);
    }
}

/// The caller's M was given a P: it may run anywhere again.
#[inline]
pub(super) fn woke_up(m: &M) {
    let off = m.kept_off.0.load(Ordering::Relaxed);
    if off != 0 {
        m.kept_off.forget();
        m.os_thread().let_in(off as usize - 1);
    }
}
