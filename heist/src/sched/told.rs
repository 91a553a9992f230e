//! Goroutines that begin on a certain P: what `par::broadcast` sends to all of them.
//!
//! A P runs what it was told when its own queue is empty, before those who have yielded
//! there, and now and then when it is not. Why none is forgotten: whoever tells a P queues
//! the goroutine, then takes the scheduler's lock and looks whether the P is idle; a P
//! becomes idle with the lock, by one who has looked at this queue with it.

use super::g::{Birth, G, flag};
use super::g_pool;
use super::m;
use super::p::P;
use super::protocol::g_state::Status;
use super::schedt::{self, Sched};
use super::spawn::{Counted, SpawnError};
use super::task::TaskOf;
use super::wake;
use crate::prim::atomic::{AtomicUsize, Ordering, fence};
use crate::prim::lock::{Lock, Rank};
use std::collections::VecDeque;
use std::panic::Location;

/// The queue of a P.
pub(crate) struct Told {
    len: AtomicUsize,
    queue: Lock<VecDeque<&'static G>>,
}

impl Told {
    pub(crate) fn new() -> Self {
        Told { len: AtomicUsize::new(0), queue: Lock::new(Rank::Leaf, VecDeque::new()) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    fn push(&self, g: &'static G) {
        let mut queue = self.queue.lock();
        queue.push_back(g);
        self.len.store(queue.len(), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<&'static G> {
        if self.is_empty() { None } else { self.pop_one() }
    }

    #[cold]
    fn pop_one(&self) -> Option<&'static G> {
        let mut queue = self.queue.lock();
        let g = queue.pop_front();
        self.len.store(queue.len(), Ordering::SeqCst);
        g
    }

    /// The P is gone: others run what it was told.
    pub(crate) fn to_global(&self, sched: &'static Sched) {
        while let Some(g) = self.pop() {
            wake::inject(sched, sched.life(), g);
        }
    }

    /// Its goroutines are found by their state.
    pub(crate) fn clear(&self) {
        while self.pop().is_some() {}
    }
}

/// Spawns a goroutine that begins on `p`.
///
/// # Safety
///
/// As [`super::spawn::spawn`].
pub(crate) unsafe fn spawn_at<F: FnOnce() -> T, T>(
    sched: &'static Sched,
    p: &'static P,
    f: F,
    site: &'static Location<'static>,
) -> Result<&'static G, SpawnError> {
    let counted = Counted::new(sched);
    if sched.closing() {
        return Err(SpawnError::Closed);
    }
    let g = g_pool::take().map_err(SpawnError::Memory)?;
    g.init(Birth {
        id: schedt::reserve_ids(1),
        runtime: sched.slot(),
        parent: m::current_g().map_or(0, G::id),
        flags: wake::UNDECIDED << flag::SCORE_SHIFT,
        site,
        task: TaskOf::<F, T>::TASK,
    });
    // SAFETY: the block is free and ours.
    unsafe { TaskOf::<F, T>::emplace(g, f) };
    counted.stays();
    g.state.become_(Status::Runnable);
    if p.id < sched.reserved() {
        wake::inject(sched, sched.life(), g);
    } else {
        p.told.push(g);
        // Pairs with `set_procs`: whoever takes the P away sees the goroutine, or we
        // see that it is gone.
        fence(Ordering::SeqCst);
        if p.id >= sched.procs() {
            p.told.to_global(sched);
        }
        wake::wake_this(sched, p);
    }
    Ok(g)
}
