//! When it pays to stay awake for a lock.

use crate::prim::hint;
use crate::sched::m::Inside;
use crate::sched::protocol::g_state::Status;
use crate::sched::waiter::Waiter;
use std::num::NonZeroUsize;

/// How often somebody looks again, and how long in between: as in Go.
const ROUNDS: u32 = 4;
const PAUSES: u32 = 30;

/// A bounded wait for an owner that runs.
#[derive(Default)]
pub(super) struct Spin {
    rounds: u32,
}

impl Spin {
    /// Waits a moment. False, at once, if that does not pay: it has waited long
    /// enough, the owner does not run, or others could run here meanwhile.
    #[inline]
    pub(super) fn once(&mut self, owner: usize) -> bool {
        if self.rounds >= ROUNDS || !owner_runs(owner) || others_could_run() {
            return false;
        }
        self.rounds += 1;
        (0..PAUSES).for_each(|_| hint::spin_loop());
        true
    }
}

/// Whether an owner, a word of [`Waiter`], runs. Of a plain thread nobody knows;
/// most do.
fn owner_runs(owner: usize) -> bool {
    let Some(word) = NonZeroUsize::new(owner) else { return true };
    Waiter::from_word(word).status().is_none_or(|status| status == Status::Running)
}

/// Whether spinning keeps another goroutine from running, the owner perhaps.
fn others_could_run() -> bool {
    match Inside::enter() {
        None => false,
        Some(inside) => inside.sched().procs() == 1 || !inside.p.runq.is_empty(),
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};
    use crate::{Builder, go, no_preempt, thread};
    use std::sync::Arc;

    fn me() -> usize {
        Waiter::current().word().get()
    }

    fn spins(owner: usize) -> bool {
        Spin::default().once(owner)
    }

    /// Keeps the other P of two busy while `f` runs.
    fn beside_a_hog<T>(f: impl FnOnce() -> T) -> T {
        let (runs, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (begun, end) = (runs.clone(), stop.clone());
        let hog = go(move || {
            no_preempt(|| {
                begun.store(true, Ordering::SeqCst);
                while !end.load(Ordering::SeqCst) {
                    hint::spin_loop();
                }
            });
        });
        // Not here: that would be the end of it.
        no_preempt(|| {
            while !runs.load(Ordering::SeqCst) {
                hint::spin_loop();
            }
        });
        let value = no_preempt(f);
        stop.store(true, Ordering::SeqCst);
        hog.join().unwrap();
        value
    }

    #[test]
    fn four_times_for_an_owner_that_runs() {
        Builder::new().max_procs(2).build().unwrap().run(|| {
            let rounds = beside_a_hog(|| {
                let mut spin = Spin::default();
                (0..10).filter(|_| spin.once(me())).count()
            });
            assert_eq!(rounds, 4);
        });
    }

    #[test]
    fn not_for_an_owner_that_waits() {
        Builder::new().max_procs(2).build().unwrap().run(|| {
            let owner = Arc::new(AtomicUsize::new(0));
            let its = owner.clone();
            let waits = go(move || {
                its.store(me(), Ordering::SeqCst);
                thread::park();
            });
            let its = || NonZeroUsize::new(owner.load(Ordering::SeqCst));
            let status = || its().and_then(|word| Waiter::from_word(word).status());
            while status() != Some(Status::Waiting) {
                thread::yield_now();
            }
            assert!(!beside_a_hog(|| spins(owner.load(Ordering::SeqCst))));
            waits.thread().unpark();
            waits.join().unwrap();
        });
    }

    #[test]
    fn not_while_others_could_run_here() {
        Builder::new().max_procs(2).build().unwrap().run(|| {
            let (other, spun) = beside_a_hog(|| (go(|| ()), spins(me())));
            assert!(!spun, "somebody is queued");
            other.join().unwrap();
        });
        Builder::new().max_procs(1).build().unwrap().run(|| assert!(!spins(me()), "the only P"));
    }
}
