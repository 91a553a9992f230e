//! A thief runs on another CPU than the one that it is woken to help.
//!
//! The kernel wakes a thread where it slept, or where its waker runs, and looks for an idle
//! CPU if both are busy; but if the machine has been busy of late it does not look. A thief
//! is put behind its waker then, or in its place, and the two take turns for milliseconds
//! while another CPU sleeps: of 60 computations of 1.5 ms that forked after a pause, 29
//! were no faster on two CPUs than on one.
//!
//! So whoever wakes a thief while goroutines fork takes its own CPU out of the thief's mask
//! until that has woken up: four system calls of a third of a microsecond each, two of them
//! with the scheduler's lock, for a wake-up that takes fifty. Who has more Ps than CPUs is
//! not served by that.
//!
//! Only where somebody forks. Branches are there to be computed, and their thief should have
//! a CPU of its own, whenever it gets there. A goroutine that was woken may be done in a
//! microsecond, and it is better off in its waker's place than on a CPU that must wake up
//! first (a receiver whose sender computes on began after 116 µs instead of 58).
//!
//! A thief in its waker's place must not wait for it: the waker, in the middle of the call
//! that woke the thief, goes on when the thief sleeps. So it says where it was, and a thief
//! that is there takes its runnext without a grace ([`displaces`]; the same receiver began
//! after 27 µs, 20 of which the thief spun for its waker to leave the runtime).
//!
//! sysmon looks after two things. The other CPU may be somebody else's for long: whoever
//! has not woken up after a while may do so anywhere. And the kernel takes a mask that was
//! set for the will of the user, and keeps to it when the process gets more CPUs: then the
//! Ms get the mask of sysmon's thread, which is never touched.

use super::m::{self, M};
use super::schedt::Sched;
use super::thieves;
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::thread::{self, Mask, OsThread};
use std::ptr;

/// How long a thief may be on its way to a CPU that is not its waker's. A CPU that sleeps
/// takes a tenth of a millisecond.
const PATIENCE: u64 = 300_000;

/// What an M's mask has been through. Hints about speed, so every access is relaxed but
/// for what is said.
#[derive(Debug)]
pub(crate) struct KeptOff {
    /// The CPU that was taken out, and one; or 0. Set before the M is given a P: the
    /// delivery of that orders it before the M's look. Who exchanges it puts the CPU back.
    cpu: AtomicU32,
    /// The mask was set at all since the thread began.
    ever: AtomicBool,
}

impl KeptOff {
    pub(crate) const fn new() -> Self {
        KeptOff { cpu: AtomicU32::new(0), ever: AtomicBool::new(false) }
    }

    /// The M's thread is new, and has a mask of its own.
    pub(crate) fn forget(&self) {
        self.cpu.store(0, Ordering::Relaxed);
        self.ever.store(false, Ordering::Relaxed);
    }
}

/// An idle M is going to be given a P, to search with, and to be woken. If it may find a
/// branch, and the caller is an M, which goes on as a rule, it will run elsewhere.
pub(super) fn keep_off(thief: &M) {
    let sched = thief.sched;
    if !thieves::anybody(sched) || thief.serves() || m::current().is_none() {
        return;
    }
    let Some(here) = thread::cpu() else { return };
    if thief.os_thread().leave_out(here, sched.procs() as usize) {
        thief.kept_off.ever.store(true, Ordering::Relaxed);
        thief.kept_off.cpu.store(here as u32 + 1, Ordering::Relaxed);
        sched.kept_off.store(thief.id + 1, Ordering::Relaxed);
    }
}

/// A thief is going to be woken: the caller, if it is an M, says where from.
pub(super) fn wakes_a_thief() {
    if let (Some(m), Some(here)) = (m::current(), thread::cpu()) {
        m.woke_at.store(here as u32 + 1, Ordering::Relaxed);
    }
}

/// Whether the calling thread is in the place of `waker`, which has woken a thief: in the
/// runtime, and not on a CPU.
pub(super) fn displaces(waker: &M) -> bool {
    waker.lease.inside()
        && thread::cpu()
            .is_some_and(|here| waker.woke_at.load(Ordering::Relaxed) == here as u32 + 1)
}

/// The caller's M was given a P: it may run anywhere again.
#[inline]
pub(super) fn woke_up(m: &M) {
    if m.kept_off.cpu.load(Ordering::Relaxed) != 0 {
        let_in(m);
    }
}

#[cold]
fn let_in(m: &M) {
    let off = m.kept_off.cpu.swap(0, Ordering::Relaxed);
    let (relaxed, id) = (Ordering::Relaxed, m.id + 1);
    let _ = m.sched.kept_off.compare_exchange(id, 0, relaxed, relaxed);
    if off != 0 {
        m.os_thread().let_in(off as usize - 1);
    }
}

/// What sysmon knows of this.
pub(super) struct Watcher {
    /// The number of the M that was kept off last and has not woken up, and one; or 0.
    last: u32,
    /// When it was first seen.
    since: u64,
    /// sysmon's mask, which is the process's.
    mask: Option<Mask>,
}

impl Watcher {
    /// On sysmon's thread.
    pub(super) fn new() -> Self {
        Watcher { last: 0, since: 0, mask: OsThread::current().mask() }
    }

    /// Whoever has not woken up for long may do so anywhere.
    pub(super) fn look(&mut self, sched: &'static Sched, now: u64) {
        let last = sched.kept_off.load(Ordering::Relaxed);
        if last != self.last {
            (self.last, self.since) = (last, now);
        }
        if last != 0 && now - self.since > PATIENCE {
            let m = sched.shared.lock().all_ms.get(last as usize - 1).copied();
            m.into_iter().for_each(let_in);
        }
    }

    /// If the process may use other CPUs than before, so may the Ms.
    pub(super) fn follow(&mut self, sched: &'static Sched) {
        let mask = OsThread::current().mask();
        if mask == self.mask {
            return;
        }
        if let Some(mask) = &mask {
            let shared = sched.shared.lock();
            // With the lock: a thread that ends is among the free ones before.
            let is_free = |m: &M| shared.free_ms.iter().any(|free| ptr::eq(*free, m));
            let ours = |m: &&&M| m.kept_off.ever.load(Ordering::Relaxed) && !m.serves();
            let all = shared.all_ms.iter().filter(ours).filter(|m| !is_free(m));
            for m in all {
                // Refused if none of those is left: it stays where it is.
                let _ = m.os_thread().set_mask(mask);
            }
        }
        self.mask = mask;
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::{Builder, par};
    use std::time::Duration;

    fn fib(n: u32) -> u64 {
        if n < 2 {
            return n.into();
        }
        let (a, b) = par::join(|| fib(n - 1), || fib(n - 2));
        a + b
    }

    #[test]
    fn a_thief_is_kept_off_and_let_in_again() {
        let runtime = Builder::new().max_procs(2).build().unwrap();
        let sched = runtime.run(|| m::current().unwrap().sched);
        let all = OsThread::current().mask().unwrap();
        if all.count() < 2 {
            return; // nowhere else to go
        }
        let thief = loop {
            runtime.run(|| assert_eq!(fib(16), 987));
            let was = |m: &&&M| m.kept_off.ever.load(Ordering::Relaxed);
            if let Some(m) = sched.shared.lock().all_ms.iter().find(was) {
                break *m;
            }
            // They fall asleep.
            std::thread::sleep(Duration::from_millis(1));
        };
        while thief.os_thread().mask().unwrap() != all {
            std::thread::yield_now();
        }
        assert_eq!(thief.kept_off.cpu.load(Ordering::Relaxed), 0);

        // One that has not woken up for long, in sysmon's eyes.
        let mut watcher = Watcher::new();
        assert!(thief.os_thread().leave_out(thread::cpu().unwrap(), 2));
        thief.kept_off.cpu.store(thread::cpu().unwrap() as u32 + 1, Ordering::Relaxed);
        sched.kept_off.store(thief.id + 1, Ordering::Relaxed);
        watcher.look(sched, 1_000_000);
        watcher.look(sched, 1_000_000 + PATIENCE);
        assert_ne!(thief.kept_off.cpu.load(Ordering::Relaxed), 0, "not for long enough");
        watcher.look(sched, 1_000_001 + PATIENCE);
        assert_eq!(thief.kept_off.cpu.load(Ordering::Relaxed), 0);

        // Another mask than the process has had so far.
        assert!(thief.os_thread().leave_out(0, 2));
        watcher.follow(sched);
        assert_ne!(thief.os_thread().mask().unwrap(), all, "nothing has changed");
        watcher.mask = None;
        watcher.follow(sched);
        assert_eq!(thief.os_thread().mask().unwrap(), all);
    }
}
