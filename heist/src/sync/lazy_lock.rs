//! [`LazyLock`]: a value that is made when it is first used.

use super::once::Once;
use crate::sched::protocol::once::Outcome;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A value made by the first one to use it, as `std::sync::LazyLock`. Others who
/// come meanwhile wait.
///
/// ```
/// use heist::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|i| i * i).collect());
/// assert_eq!(SQUARES[9], 81);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    /// Touched by the run of `once`, and by all, for reading, when that is
    /// complete.
    data: UnsafeCell<Data<T, F>>,
}

enum Data<T, F> {
    Function(F),
    /// The function runs, or has panicked.
    Neither,
    Value(T),
}

// SAFETY: whoever shares it may get a reference to the value; it may be the one
// who makes it, and thus sends the function and the value. Nobody gets a
// reference to the function.
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// A value that `f` is going to make.
    #[inline]
    pub const fn new(f: F) -> LazyLock<T, F> {
        LazyLock { once: Once::new(), data: UnsafeCell::new(Data::Function(f)) }
    }

    /// The value. The same as using it.
    ///
    /// # Panics
    ///
    /// If the function panics, has panicked before, or uses the value itself.
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        if !this.once.is_completed() {
            this.init();
        }
        match Self::get(this) {
            Some(value) => value,
            None => unreachable!("a completed value is there"),
        }
    }

    #[cold]
    #[track_caller]
    fn init(&self) {
        self.once.call_once_force(|state| {
            if state.is_poisoned() {
                poisoned();
            }
            // SAFETY: one runs this at a time, none has completed, and nobody
            // else touches the data before one has.
            let Data::Function(f) =
                std::mem::replace(unsafe { &mut *self.data.get() }, Data::Neither)
            else {
                poisoned()
            };
            let value = f();
            // SAFETY: as above. There is nothing in it to drop.
            unsafe { *self.data.get() = Data::Value(value) };
        });
    }

    /// The value, for the caller that has the only reference.
    ///
    /// # Panics
    ///
    /// As [`force`](Self::force).
    ///
    /// ```
    /// use heist::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| 92);
    /// *LazyLock::force_mut(&mut lazy) = 44;
    /// assert_eq!(*lazy, 44);
    /// ```
    #[inline]
    #[track_caller]
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        Self::force(this);
        match this.data.get_mut() {
            Data::Value(value) => value,
            _ => unreachable!("a completed value is there"),
        }
    }
}

impl<T, F> LazyLock<T, F> {
    /// The value, if it has been made.
    #[inline]
    pub fn get(this: &LazyLock<T, F>) -> Option<&T> {
        if !this.once.is_completed() {
            return None;
        }
        // SAFETY: complete, so nobody writes to it while it is shared.
        match unsafe { &*this.data.get() } {
            Data::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The value, if it has been made, for the caller that has the only
    /// reference.
    #[inline]
    pub fn get_mut(this: &mut LazyLock<T, F>) -> Option<&mut T> {
        match (this.once.outcome(), this.data.get_mut()) {
            (Outcome::Complete, Data::Value(value)) => Some(value),
            _ => None,
        }
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    panic!("LazyLock instance has previously been poisoned")
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        LazyLock::force_mut(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("LazyLock");
        match LazyLock::get(self) {
            Some(value) => d.field(value),
            None => d.field(&format_args!("<uninit>")),
        };
        d.finish()
    }
}
