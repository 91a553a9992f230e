//! What a pool has beside its scheduler.

use super::here;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::runtime;
use crate::sched::branches::is_shutdown;
use crate::sched::schedt::Sched;
use crate::sched::{m, shutdown};
use std::any::Any;
use std::fmt;
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
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("sched", &self.sched).finish_non_exhaustive()
    }
}

impl Registry {
    pub(super) fn new(
        sched: &'static Sched,
        panic_handler: Option<Box<PanicHandler>>,
        start_handler: Option<Box<ThreadHandler>>,
        exit_handler: Option<Box<ThreadHandler>>,
    ) -> Arc<Self> {
        let alive = AtomicUsize::new(1);
        let registry = Registry { sched, panic_handler, start_handler, exit_handler, alive };
        let registry = Arc::new(registry);
        *sched.upstairs.lock() = Some(registry.clone());
        registry
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
    pub(super) fn call(&self, handler: Option<&ThreadHandler>, index: usize) {
        if let Some(handler) = handler
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| handler(index)))
        {
            handle_panic(Some(self), payload);
        }
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
    let upstairs = sched.upstairs.lock().clone()?;
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
    member.unwrap_or_else(runtime::default_sched)
}

/// Whether the caller is a goroutine of this runtime.
pub(super) fn is_inside(sched: &'static Sched) -> bool {
    m::current().is_some_and(|m| std::ptr::eq(m.sched, sched) && m.curg().is_some())
}
