//! Pools: runtimes of their own.

use super::broadcast::{BroadcastContext, broadcast_on, spawn_broadcast_on};
#[allow(deprecated)]
use super::builder::Configuration;
use super::builder::ThreadPoolBuildError;
use super::here::{self, Yield};
use super::registry::{self, Registry};
use super::scope::{Scope, ScopeFifo, in_place_scope_fifo_on, in_place_scope_on};
use super::spawn::{spawn_fifo_on, spawn_on};
use crate::runtime;
use crate::sched::schedt::Sched;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A pool: a runtime with its own Ps and threads.
///
/// Dropping it lets what was spawned on it end, behind the caller's back.
///
/// ```
/// let pool = heist::par::ThreadPoolBuilder::new().num_threads(2).build()?;
/// let (a, b) = pool.join(|| 6, || 7);
/// assert_eq!(a * b, 42);
/// # Ok::<(), heist::par::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPool {
    registry: Arc<Registry>,
}

impl ThreadPool {
    pub(super) fn of(registry: Arc<Registry>) -> Self {
        ThreadPool { registry }
    }

    fn sched(&self) -> &'static Sched {
        self.registry.sched
    }

    /// As [`ThreadPoolBuilder::build`](super::ThreadPoolBuilder::build).
    ///
    /// # Errors
    ///
    /// As there.
    #[deprecated(note = "Use `ThreadPoolBuilder::build`")]
    #[allow(deprecated)]
    pub fn new(configuration: Configuration) -> Result<ThreadPool, Box<dyn Error>> {
        configuration.build()
    }

    /// Calls `op` on the pool and waits for it: a goroutine parks, a plain thread
    /// blocks. On a goroutine of this pool it is a plain call.
    ///
    /// It runs on another thread, so what it borrows and returns must be able to go there:
    ///
    /// ```compile_fail,E0277
    /// let pool = heist::par::ThreadPoolBuilder::new().build().unwrap();
    /// let shared = std::rc::Rc::new(7);
    /// pool.install(|| println!("{shared}"));
    /// ```
    ///
    /// # Panics
    ///
    /// With the panic of `op`.
    #[track_caller]
    pub fn install<OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce() -> R + Send,
        R: Send,
    {
        if registry::is_inside(self.sched()) {
            return op();
        }
        runtime::run_on(self.sched(), None, Location::caller(), op)
    }

    /// [`broadcast`](super::broadcast()) on this pool.
    #[track_caller]
    pub fn broadcast<OP, R>(&self, op: OP) -> Vec<R>
    where
        OP: Fn(BroadcastContext<'_>) -> R + Sync,
        R: Send,
    {
        broadcast_on(self.sched(), op)
    }

    /// The number of its Ps.
    pub fn current_num_threads(&self) -> usize {
        self.sched().procs() as usize
    }

    /// [`current_thread_index`](super::current_thread_index), if the caller is on this
    /// pool.
    pub fn current_thread_index(&self) -> Option<usize> {
        here::on(self.sched(), here::current_thread_index)
    }

    /// [`current_thread_has_pending_tasks`](super::current_thread_has_pending_tasks), if
    /// the caller is on this pool.
    pub fn current_thread_has_pending_tasks(&self) -> Option<bool> {
        here::on(self.sched(), here::current_thread_has_pending_tasks)
    }

    /// [`join`](super::join()) on this pool.
    #[track_caller]
    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        self.install(|| super::join(a, b))
    }

    /// [`scope`](super::scope()) on this pool.
    #[track_caller]
    pub fn scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| super::scope(op))
    }

    /// [`scope_fifo`](super::scope_fifo) on this pool.
    #[track_caller]
    pub fn scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
        R: Send,
    {
        self.install(|| super::scope_fifo(op))
    }

    /// [`in_place_scope`](super::in_place_scope) whose closures run on this pool.
    #[track_caller]
    pub fn in_place_scope<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&Scope<'scope>) -> R,
    {
        in_place_scope_on(self.sched(), op)
    }

    /// [`in_place_scope_fifo`](super::in_place_scope_fifo) whose closures run on this
    /// pool.
    #[track_caller]
    pub fn in_place_scope_fifo<'scope, OP, R>(&self, op: OP) -> R
    where
        OP: FnOnce(&ScopeFifo<'scope>) -> R,
    {
        in_place_scope_fifo_on(self.sched(), op)
    }

    /// [`spawn`](super::spawn()) on this pool.
    #[track_caller]
    pub fn spawn<OP: FnOnce() + Send + 'static>(&self, op: OP) {
        spawn_on(self.sched(), op, Location::caller());
    }

    /// [`spawn_fifo`](super::spawn_fifo) on this pool.
    #[track_caller]
    pub fn spawn_fifo<OP: FnOnce() + Send + 'static>(&self, op: OP) {
        spawn_fifo_on(self.sched(), op, Location::caller());
    }

    /// [`spawn_broadcast`](super::spawn_broadcast) on this pool.
    #[track_caller]
    pub fn spawn_broadcast<OP>(&self, op: OP)
    where
        OP: Fn(BroadcastContext<'_>) + Send + Sync + 'static,
    {
        spawn_broadcast_on(self.sched(), op, Location::caller());
    }

    /// [`yield_now`](super::yield_now), if the caller is on this pool.
    pub fn yield_now(&self) -> Option<Yield> {
        here::on(self.sched(), here::yield_now)
    }

    /// [`yield_local`](super::yield_local), if the caller is on this pool.
    pub fn yield_local(&self) -> Option<Yield> {
        here::on(self.sched(), here::yield_local)
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> runtime::Stats {
        crate::obs::stats(self.sched())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.registry.release();
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("num_threads", &self.current_num_threads())
            .field("id", &self.sched().slot())
            .finish()
    }
}

/// So that `?` works in functions that do I/O; the error is the cause of the other one.
impl From<ThreadPoolBuildError> for std::io::Error {
    fn from(error: ThreadPoolBuildError) -> Self {
        std::io::Error::other(error)
    }
}
