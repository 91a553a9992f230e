//! [`Barrier`]: several wait for each other.

use super::queue::{Wait, WaitQueue, Waited};
use crate::sched::g::WaitReason;
use crate::sched::park;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};

/// A barrier, as `std::sync::Barrier`: whoever comes waits until all are there.
///
/// ```
/// use heist::sync::{Arc, Barrier};
///
/// let barrier = Arc::new(Barrier::new(10));
/// let tasks: Vec<_> = (0..10)
///     .map(|_| {
///         let barrier = Arc::clone(&barrier);
///         heist::go(move || barrier.wait().is_leader())
///     })
///     .collect();
/// let leaders = tasks.into_iter().map(|task| task.join().unwrap());
/// assert_eq!(leaders.filter(|leads| *leads).count(), 1);
/// ```
pub struct Barrier {
    /// How many are there.
    queue: WaitQueue<Round>,
    needed: usize,
}

/// What [`Barrier::wait`] says when all are there.
pub struct BarrierWaitResult(bool);

/// How many have come, and how often all have met.
struct Round {
    arrived: usize,
    number: usize,
}

impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

impl Barrier {
    /// A barrier for so many. For none, as for one, nobody waits.
    #[inline]
    #[must_use]
    pub const fn new(n: usize) -> Barrier {
        Barrier { queue: WaitQueue::new(Round { arrived: 0, number: 0 }), needed: n }
    }

    /// Waits until all are there; then the barrier is as new. The one who came
    /// last is the leader.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let mut queue = self.queue.lock();
        if queue.arrived + 1 >= self.needed {
            queue.arrived = 0;
            queue.number = queue.number.wrapping_add(1);
            let others = queue.pop_all(0);
            drop(queue);
            drop(others);
            park::safe_point();
            return BarrierWaitResult(true);
        }
        queue.arrived += 1;
        let number = queue.number;
        let wait = Wait::new(WaitReason::Barrier, Location::caller());
        if let Waited::Expired(mut queue) | Waited::Unwind(mut queue) = queue.wait(0, wait, || ()) {
            // The others may have met meanwhile, and counted it.
            if queue.number == number {
                queue.arrived -= 1;
            }
            drop(queue);
            park::unwind();
        }
        BarrierWaitResult(false)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl BarrierWaitResult {
    /// Whether the caller is the one of its round that leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.is_leader()).finish()
    }
}
