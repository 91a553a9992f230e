//! Broadcasts: once on every P.

use super::registry::{self, Alive};
use super::scope::in_place_scope_on;
use crate::prim::lock::{Lock, Rank};
use crate::sched::jobs::Job;
use crate::sched::schedt::Sched;
use crate::sched::told;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// What a closure of a broadcast is told.
pub struct BroadcastContext<'a> {
    sched: &'static Sched,
    index: usize,
    /// Not for other threads, as in rayon.
    marker: PhantomData<&'a mut dyn Fn()>,
}

impl BroadcastContext<'_> {
    pub(super) fn new(sched: &'static Sched, index: usize) -> Self {
        BroadcastContext { sched, index, marker: PhantomData }
    }

    /// The P that the closure began on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn num_threads(&self) -> usize {
        self.sched.procs() as usize
    }
}

impl fmt::Debug for BroadcastContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastContext")
            .field("index", &self.index)
            .field("num_threads", &self.num_threads())
            .field("pool_id", &self.sched.slot())
            .finish()
    }
}

/// Calls `op` once on every P of the caller's pool, when that P has nothing else to do,
/// and returns the results in the order of the Ps.
///
/// ```
/// let indices = heist::par::broadcast(|context| context.index());
/// assert!(indices.into_iter().eq(0..heist::par::current_num_threads()));
/// ```
///
/// # Panics
///
/// With a panic of `op`; all calls have ended then.
#[track_caller]
pub fn broadcast<OP, R>(op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    broadcast_on(registry::current(), op)
}

/// As [`broadcast`], but nobody waits; a panic goes where that of
/// [`spawn`](super::spawn()) goes.
///
/// ```
/// let (sender, receiver) = heist::chan::unbounded();
/// heist::par::spawn_broadcast(move |context| sender.send(context.index()).unwrap());
/// assert_eq!(receiver.iter().count(), heist::par::current_num_threads());
/// ```
#[track_caller]
pub fn spawn_broadcast<OP>(op: OP)
where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    spawn_broadcast_on(registry::current(), op, Location::caller());
}

#[track_caller]
pub(super) fn broadcast_on<OP, R>(sched: &'static Sched, op: OP) -> Vec<R>
where
    OP: Fn(BroadcastContext<'_>) -> R + Sync,
    R: Send,
{
    let slots: Vec<_> = (0..sched.procs()).map(|_| Lock::new(Rank::Leaf, None)).collect();
    let (op, results) = (&op, &slots);
    in_place_scope_on(sched, move |scope| {
        scope.spawn_broadcast(move |_, context| {
            let index = context.index();
            let value = op(context);
            // There may be more Ps than a moment ago.
            if let Some(slot) = results.get(index) {
                *slot.lock() = Some(value);
            }
        });
    });
    slots.into_iter().filter_map(|slot| slot.lock().take()).collect()
}

pub(super) fn spawn_broadcast_on<OP>(
    sched: &'static Sched,
    op: OP,
    site: &'static Location<'static>,
) where
    OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
{
    let op = Arc::new(op);
    for index in 0..sched.procs() as usize {
        let (op, alive) = (op.clone(), Alive::on(sched));
        let job = Box::new(move || alive.run(|| op(BroadcastContext::new(sched, index))));
        send(sched, index, job, site);
    }
}

/// Leaves a job for a certain P.
pub(super) fn send(
    sched: &'static Sched,
    index: usize,
    job: Job,
    site: &'static Location<'static>,
) {
    // SAFETY: a job is 'static, or its scope waits for its end.
    let spawned = unsafe { told::spawn_at(sched, sched.p(index as u32), job, site) };
    match spawned {
        Ok(g) => crate::thread::join::forget(g),
        Err(error) => super::spawn::failed(&error),
    }
}
