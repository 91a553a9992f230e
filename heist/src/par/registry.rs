//! What a pool has beside its scheduler.

#[cfg(not(sim))] // pools are not simulated
use super::builder::default_pool;
use super::here;
#[cfg(not(sim))]
use super::wrapped::Wrapped;
use crate::prim::atomic::{AtomicUsize, Ordering};
#[cfg(sim)]
use crate::runtime::default_sched as default_pool;
use crate::sched::branches::is_shutdown;
use crate::sched::m::{self, M};
use crate::sched::schedt::{Sched, Upstairs};
use crate::sched::shutdown;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(super) type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;
pub(super) type ThreadHandler = dyn Fn(usize) + Send + Sync;

/// The handlers of a pool, and how long it lives.
pub(super) struct Registry {
    pub(super) sched: &'static Sched,
    pub(super) panic_handler: Option<Box<PanicHandler>>,
    pub(super) start_handler: Option<Box<ThreadHandler>>,
    pub(super) exit_handler: Option<Box<ThreadHandler>>,
    /// The pool itself and what was spawned on it: when the last of them is gone, its
    /// threads end.
    alive: AtomicUsize,
    /// The numbers that its threads have.
    numbers: Range<usize>,
    /// How many the scheduler has started in the place of others that block or compute.
    more: AtomicUsize,
    /// What the threads of a scoped pool run inside of.
    #[cfg(not(sim))] // pools are not simulated
    pub(super) wrapped: Option<Arc<Wrapped>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("sched", &self.sched).finish_non_exhaustive()
    }
}

impl Registry {
    pub(super) fn new(sched: &'static Sched, numbers: Range<usize>) -> Self {
        Registry {
            sched,
            panic_handler: None,
            start_handler: None,
            exit_handler: None,
            alive: AtomicUsize::new(1),
            numbers,
            more: AtomicUsize::new(0),
            #[cfg(not(sim))]
            wrapped: None,
        }
    }

    /// From now on the threads that the scheduler starts are set up as the pool's are.
    pub(super) fn open(self) -> Arc<Self> {
        let registry = Arc::new(self);
        *registry.sched.upstairs.lock() = Some(registry.clone());
        registry
    }

    /// Works for the pool as the thread with that number, between its handlers.
    pub(super) fn work(&self, index: usize, work: impl FnOnce()) {
        self.call(self.start_handler.as_deref(), index);
        work();
        self.call(self.exit_handler.as_deref(), index);
    }

    /// One more that keeps the pool alive; false if it ends already.
    fn retain(&self) -> bool {
        let more = |alive: usize| (alive != 0).then(|| alive + 1);
        self.alive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One less that keeps the pool alive.
    pub(super) fn release(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The scheduler keeps no handlers that nobody can call any more.
            let upstairs = self.sched.upstairs.lock().take();
            drop(upstairs);
            shutdown::close_behind(self.sched);
        }
    }

    /// Calls the handler of a thread. A panic goes to the panic handler.
    fn call(&self, handler: Option<&ThreadHandler>, index: usize) {
        let Some(handler) = handler else { return };
        here::set_handled(Some(index));
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(index)));
        here::set_handled(None);
        if let Err(payload) = outcome {
            handle_panic(Some(self), payload);
        }
    }
}

/// A thread in the place of one that blocks or computes has the number of one of the pool's
/// own, and its set-up.
impl Upstairs for Registry {
    fn around(self: Arc<Self>, m: &'static M) {
        let more = self.more.fetch_add(1, Ordering::Relaxed);
        let index = self.numbers.start + more % self.numbers.len();
        #[cfg(not(sim))]
        if let Some(wrapped) = self.wrapped.clone() {
            return wrapped.relieve(self, index, m);
        }
        self.work(index, || m.main());
    }
}

/// Keeps a pool alive until what was spawned on it has ended.
pub(super) struct Alive(Option<Arc<Registry>>);

impl Alive {
    pub(super) fn on(sched: &'static Sched) -> Self {
        Alive(registry_of(sched).filter(|registry| registry.retain()))
    }

    /// Runs what was spawned.
    pub(super) fn run(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f))
            && !is_shutdown(&*payload)
        {
            handle_panic(self.0.as_deref(), payload);
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(registry) = &self.0 {
            registry.release();
        }
    }
}

/// The registry of a runtime, if it is a pool.
pub(super) fn registry_of(sched: &'static Sched) -> Option<Arc<Registry>> {
    let upstairs: Arc<dyn Any + Send + Sync> = sched.upstairs.lock().clone()?;
    upstairs.downcast().ok()
}

/// A panic that nobody waits for: the pool's handler has it; without one the process
/// aborts, as in rayon.
fn handle_panic(registry: Option<&Registry>, payload: Box<dyn Any + Send>) {
    let Some(handler) = registry.and_then(|registry| registry.panic_handler.as_ref()) else {
        crate::prim::fatal::fatal!(
            "a closure given to par::spawn panicked, and its pool has no panic_handler"
        );
    };
    if catch_unwind(AssertUnwindSafe(|| handler(payload))).is_err() {
        crate::prim::fatal::fatal!("the panic_handler of a pool panicked");
    }
}

/// The runtime that the caller is on. That of a plain thread is the pool that it counts as
/// a part of, or the default one.
pub(super) fn current() -> &'static Sched {
    m::current().map_or_else(outside, |m| m.sched)
}

/// The runtime that a caller goes to that is no goroutine.
pub(super) fn outside() -> &'static Sched {
    // A thread of a runtime's, in a handler, is a part of no other one.
    let member = if m::current().is_none() { here::member() } else { None };
    member.unwrap_or_else(default_pool)
}

/// Whether the caller is a goroutine of this runtime.
pub(super) fn is_inside(sched: &'static Sched) -> bool {
    m::current().is_some_and(|m| std::ptr::eq(m.sched, sched) && m.curg().is_some())
}
