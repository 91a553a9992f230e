//! The loom backend: the protocols of `sched::protocol` under a model checker.
//!
//! loom treats `SeqCst` accesses as acquire and release only; it does model
//! `fence(SeqCst)`. The protocols therefore state every store-load ordering
//! that they need as a fence, which is also what the native backend maps to
//! the cheapest instruction that gives it.

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// A full fence that directly follows an atomic read-modify-write.
    pub(crate) fn fence_after_rmw() {
        fence(Ordering::SeqCst);
    }

    /// The cheap half of an asymmetric fence pair.
    pub(crate) fn light_barrier() {
        fence(Ordering::SeqCst);
    }

    /// The cheap half of a pair whose other half may give up.
    pub(crate) fn trusting_barrier() {
        fence(Ordering::SeqCst);
    }

    /// The dear half of an asymmetric fence pair.
    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
pub(crate) mod cell {
    use loom::cell::UnsafeCell;

    /// Memory that is not atomic: loom fails a model that races on it.
    pub(crate) struct Plain<T>(UnsafeCell<T>);

    // SAFETY: races on the cell are what the models look for; loom reports one
    // before the access happens.
    unsafe impl<T: Send> Sync for Plain<T> {}

    impl<T: Copy> Plain<T> {
        pub(crate) fn new(value: T) -> Self {
            Plain(UnsafeCell::new(value))
        }

        pub(crate) fn get(&self) -> T {
            // SAFETY: loom has checked that nobody writes meanwhile.
            self.0.with(|p| unsafe { *p })
        }

        pub(crate) fn set(&self, value: T) {
            // SAFETY: loom has checked that nobody reads or writes meanwhile.
            self.0.with_mut(|p| unsafe { *p = value });
        }
    }
}

#[cfg(test)]
pub(crate) mod bed {
    use loom::sync::{Condvar, Mutex};

    /// Where a thread of a model sleeps until it is woken, once; if that never
    /// comes, loom reports a deadlock.
    pub(crate) struct Bed {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        woken: bool,
        abandoned: bool,
    }

    impl Bed {
        pub(crate) fn new() -> Self {
            Bed { state: Mutex::new(State::default()), changed: Condvar::new() }
        }

        pub(crate) fn sleep(&self) {
            let mut state = self.state.lock().unwrap();
            while !std::mem::take(&mut state.woken) {
                if state.abandoned {
                    drop(state);
                    panic!("nobody is left who could wake it");
                }
                state = self.changed.wait(state).unwrap();
            }
        }

        pub(crate) fn wake(&self) {
            self.state.lock().unwrap().woken = true;
            self.changed.notify_one();
        }

        /// Nobody will wake it any more. A model that must be seen to fail says so:
        /// after a deadlock loom has no thread on which the model's values could be
        /// dropped, and that ends the process.
        pub(crate) fn abandon(&self) {
            self.state.lock().unwrap().abandoned = true;
            self.changed.notify_one();
        }
    }
}

pub(crate) mod hint {
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }

    pub(crate) fn give_way() {
        loom::thread::yield_now();
    }

    pub(crate) fn prefetch<T>(_: *const T) {}
}
