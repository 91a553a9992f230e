//! The function that the threads of a scoped pool run inside of.
//!
//! A pool has further threads while some of its own block or compute for long. Those of a
//! scoped pool call the same function, which lives only until `build_scoped` returns: they say
//! that they are inside, and it waits for them.

use super::builder::ThreadBuilder;
use super::registry::Registry;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::sched::m::M;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The function, and who is inside of it.
pub(super) struct Wrapped {
    wrapper: *const (dyn Fn(ThreadBuilder) + Sync),
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Default)]
struct Inside {
    threads: usize,
    closed: bool,
}

// SAFETY: the function is `Sync`, and called only while it is there: see `during`.
unsafe impl Send for Wrapped {}
// SAFETY: as above.
unsafe impl Sync for Wrapped {}

impl Wrapped {
    /// Calls `f` with the function, and returns when nobody is inside of it any more.
    pub(super) fn during<R>(
        wrapper: &(dyn Fn(ThreadBuilder) + Sync),
        f: impl FnOnce(Arc<Wrapped>) -> R,
    ) -> R {
        /// Also if somebody panics.
        struct Close(Arc<Wrapped>);
        impl Drop for Close {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        type Pointer<'a> = *const (dyn Fn(ThreadBuilder) + Sync + 'a);
        // SAFETY: only the lifetime changes, of what is a pointer from here on. It is not
        // followed after `close`, and until then the reference is borrowed.
        let wrapper = unsafe { std::mem::transmute::<Pointer<'_>, Pointer<'static>>(wrapper) };
        let inside = Mutex::default();
        let close = Close(Arc::new(Wrapped { wrapper, inside, left: Condvar::new() }));
        f(close.0.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody calls the function any more.
    fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        while inside.threads != 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A further thread of the pool: calls [`M::main`], inside of the function if that is
    /// there.
    pub(super) fn relieve(&self, registry: Arc<Registry>, index: usize, m: &'static M) {
        let relief = Relief { m, begun: Arc::new(AtomicBool::new(false)) };
        let Some(_entered) = Entered::new(self) else {
            return registry.work(index, || relief.work());
        };
        let thread = ThreadBuilder::relief(registry, index, relief.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: it stays while we are inside.
            let wrapper = unsafe { &*self.wrapper };
            wrapper(thread);
        }));
        // The scheduler counts on the thread, also if the function has not called `run`.
        relief.work();
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
    }
}

/// A thread inside of the function.
struct Entered<'a>(&'a Wrapped);

impl<'a> Entered<'a> {
    fn new(wrapped: &'a Wrapped) -> Option<Self> {
        let mut inside = wrapped.lock();
        if inside.closed {
            return None;
        }
        inside.threads += 1;
        Some(Entered(wrapped))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.lock();
        inside.threads -= 1;
        drop(inside);
        self.0.left.notify_all();
    }
}

/// The work of a further thread, which is done once.
#[derive(Clone)]
pub(super) struct Relief {
    m: &'static M,
    begun: Arc<AtomicBool>,
}

impl Relief {
    pub(super) fn work(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.m.main();
        }
    }
}
