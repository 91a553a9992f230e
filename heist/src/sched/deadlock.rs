//! Whether everything sleeps for good: then the program says so and ends, as Go's do.

use super::m::HeistThread;
use super::{netpoll, schedt, sysmon, timers, waiter};
use crate::prim::atomic::Ordering;
use crate::prim::thread;

/// Reports a deadlock if there is one: goroutines sleep, all Ps are idle, and
/// every thread of the process is either ours or sleeps until a goroutine wakes
/// it. With any other thread around, which could wake one, it stays silent.
pub(super) fn check() {
    let Some(before) = asleep() else { return };
    let ours = HeistThread::count() as isize + waiter::sleeping_threads();
    if thread::count_in_process().is_none_or(|threads| threads as isize > ours) {
        return;
    }
    // The counts belong to different moments. If nothing has moved since the
    // first look, they are of one piece.
    if asleep() != Some(before) {
        return;
    }
    let text = "fatal error: all goroutines are asleep - deadlock!\n";
    crate::prim::os::write_stderr(text.as_bytes());
    sysmon::dump();
    crate::prim::os::exit_now(2);
}

/// How much all runtimes have done so far, if goroutines live and no P runs.
fn asleep() -> Option<u64> {
    let (mut alive, mut done) = (0, 0);
    for sched in schedt::all() {
        let shared = sched.shared.try_lock()?;
        if shared.closed {
            if shared.threads > 0 {
                return None; // it shuts down
            }
            continue;
        }
        if shared.idle_ps.len() < sched.usable_procs() || shared.queued() != 0 {
            return None;
        }
        // A thread that has lost its P computes, or sleeps in the kernel for
        // something that we know nothing of.
        if shared.threads > shared.idle_ms.len() + sched.in_place.load(Ordering::SeqCst) {
            return None;
        }
        drop(shared);
        if timers::any(sched) {
            return None;
        }
        alive += sched.goroutines();
        done += sched.ps().map(|p| u64::from(p.tick())).sum::<u64>();
        done += sched.foreign_spawned.load(Ordering::SeqCst);
    }
    // What one waits for from outside may come.
    (alive > 0 && !netpoll::anybody_waits()).then_some(done)
}
