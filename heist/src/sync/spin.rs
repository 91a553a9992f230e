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
