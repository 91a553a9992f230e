//! Atomics: each access is a step, and stores may reach others late.
//!
//! The memory model is that of x86 (`buffer`): what an ordering weaker than
//! that allows is loom's to find.

use super::machine::{step_at, with};
use super::record::Op;
use super::{buffer, machine};
use std::panic::Location;
pub(crate) use std::sync::atomic::Ordering;

/// A full fence.
#[track_caller]
pub(crate) fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        machine::step(Op::Fence, 0);
    }
}

/// A full fence that directly follows a read-modify-write: on x86, nothing.
pub(crate) fn fence_after_rmw() {}

/// The cheap half of an asymmetric fence pair: nothing, to the machine.
pub(crate) fn light_barrier() {}

/// As [`light_barrier`].
pub(crate) fn trusting_barrier() {}

/// Whether the dear half works for those who trust in it.
pub(crate) fn barriers_available() -> bool {
    true
}

/// The dear half: the stores of every thread arrive.
#[track_caller]
pub(crate) fn heavy_barrier() {
    machine::step(Op::Barrier, 0);
    with(|m| m.threads.iter_mut().for_each(|thread| thread.buffer.flush()));
}

/// Memory that is never freed: stores to it may wait in a buffer.
pub(crate) fn keep<T: ?Sized>(value: &'static T) -> &'static T {
    buffer::keep(std::ptr::from_ref(value).addr(), size_of_val(value));
    value
}

/// What the calling thread sees at an address before everybody does.
fn pending(address: usize) -> Option<u64> {
    with(|m| m.threads.get(m.current).and_then(|thread| thread.buffer.find(address))).flatten()
}

/// Whether a store was taken over by the calling thread's buffer.
fn buffered(address: usize, bytes: usize, value: u64, order: Ordering) -> bool {
    order != Ordering::SeqCst
        && with(|m| {
            let buffers = m.config.store_buffers && buffer::is_kept(address);
            if buffers {
                let current = m.current;
                m.threads[current].buffer.push(address, bytes, value);
            }
            buffers
        })
        .unwrap_or(false)
}

/// Before a store that everybody sees at once: those before it are seen, too.
fn settle() {
    with(|m| {
        let current = m.current;
        if let Some(thread) = m.threads.get_mut(current) {
            thread.buffer.flush();
        }
    });
}

/// What all atomics have. `$to` and `$from` turn a value into 64 bits and back.
macro_rules! common {
    ($value:ty, $to:expr, $from:expr) => {
        pub(crate) const fn new(value: $value) -> Self {
            Self { inner: Inner::new(value) }
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        #[track_caller]
        pub(crate) fn load(&self, _: Ordering) -> $value {
            step_at(Op::Load, self.address(), Location::caller());
            match pending(self.address()) {
                Some(bits) => $from(bits),
                None => self.inner.load(Ordering::SeqCst),
            }
        }

        #[track_caller]
        pub(crate) fn store(&self, value: $value, order: Ordering) {
            let op = if order == Ordering::SeqCst { Op::Update } else { Op::Store };
            step_at(op, self.address(), Location::caller());
            if !buffered(self.address(), size_of::<$value>(), $to(value), order) {
                settle();
                self.inner.store(value, Ordering::SeqCst);
            }
        }

        /// Nobody else has it: no step.
        pub(crate) fn get_mut(&mut self) -> &mut $value {
            settle();
            self.inner.get_mut()
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: $value, _: Ordering) -> $value {
            step_at(Op::Update, self.address(), Location::caller());
            self.inner.swap(value, Ordering::SeqCst)
        }

        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            _: Ordering,
            _: Ordering,
        ) -> Result<$value, $value> {
            step_at(Op::Update, self.address(), Location::caller());
            self.inner.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
        }

        #[track_caller]
        pub(crate) fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.compare_exchange(current, new, success, failure)
        }
    };
}

macro_rules! updates {
    ($value:ty, $($name:ident),+) => {
        $(
            #[track_caller]
            pub(crate) fn $name(&self, value: $value, _: Ordering) -> $value {
                step_at(Op::Update, self.address(), Location::caller());
                self.inner.$name(value, Ordering::SeqCst)
            }
        )+
    };
}

macro_rules! integer {
    ($name:ident, $module:ident, $value:ty) => {
        mod $module {
            use super::*;
            use std::sync::atomic::$name as Inner;

            /// An atomic whose accesses are steps.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub(crate) struct $name {
                inner: Inner,
            }

            #[allow(dead_code)] // heist does not use each of them in each type
            impl $name {
                common!($value, (|v: $value| v as u64), (|bits: u64| bits as $value));
                updates!($value, fetch_add, fetch_sub, fetch_or, fetch_and, fetch_xor, fetch_max);

                #[track_caller]
                pub(crate) fn fetch_update(
                    &self,
                    _: Ordering,
                    _: Ordering,
                    mut f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut now = self.load(Ordering::SeqCst);
                    while let Some(new) = f(now) {
                        match self.compare_exchange(now, new, Ordering::SeqCst, Ordering::SeqCst) {
                            Ok(before) => return Ok(before),
                            Err(other) => now = other,
                        }
                    }
                    Err(now)
                }
            }
        }
        pub(crate) use $module::$name;
    };
}

integer!(AtomicU8, u8_, u8);
integer!(AtomicU16, u16_, u16);
integer!(AtomicU32, u32_, u32);
integer!(AtomicU64, u64_, u64);
integer!(AtomicUsize, usize_, usize);

mod bool_ {
    use super::*;
    use std::sync::atomic::AtomicBool as Inner;

    /// An atomic whose accesses are steps.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct AtomicBool {
        inner: Inner,
    }

    #[allow(dead_code)] // as above
    impl AtomicBool {
        common!(bool, u64::from, (|bits: u64| bits != 0));
        updates!(bool, fetch_or, fetch_and);
    }
}
pub(crate) use bool_::AtomicBool;

mod ptr_ {
    use super::*;
    use std::sync::atomic::AtomicPtr as Inner;

    /// An atomic whose accesses are steps.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct AtomicPtr<T> {
        inner: Inner<T>,
    }

    #[allow(dead_code)] // as above
    impl<T> AtomicPtr<T> {
        common!(
            *mut T,
            (|p: *mut T| p.expose_provenance() as u64),
            (|bits: u64| std::ptr::with_exposed_provenance_mut::<T>(bits as usize))
        );
    }
}
pub(crate) use ptr_::AtomicPtr;
