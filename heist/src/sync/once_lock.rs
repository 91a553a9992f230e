//! [`OnceLock`]: a value that is set one time only.

use super::once::Once;
use crate::sched::protocol::once::Outcome;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// A cell that can be written to only once, as `std::sync::OnceLock`.
///
/// ```
/// use heist::sync::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert!(NAME.get().is_none());
/// assert_eq!(NAME.get_or_init(|| "heist".to_owned()), "heist");
/// assert_eq!(NAME.set("another".to_owned()), Err("another".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written by the run of `once`; there and never changed again when that is
    /// complete.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: whoever shares it may get a reference to the value, or be the one who
// puts it there and thus send it.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: the value goes wherever the cell goes.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// A cell without a value.
    #[inline]
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(None) }
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.once.is_completed() {
            return None;
        }
        // SAFETY: complete, so nobody writes to it while it is shared.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// The value, if it is there, for the caller that has the only reference.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Waits until the value is there.
    ///
    /// ```
    /// use heist::sync::{Arc, OnceLock};
    ///
    /// let cell = Arc::new(OnceLock::new());
    /// let setter = Arc::clone(&cell);
    /// let _ = heist::go(move || setter.set(92));
    /// assert_eq!(*cell.wait(), 92);
    /// ```
    #[inline]
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.value()
    }

    /// Sets the value, if there is none.
    ///
    /// # Errors
    ///
    /// If there is one; what was to be set is in the error.
    #[inline]
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            None => unreachable!("the function runs once"),
        });
        value.map_or(Ok(()), Err)
    }

    /// The value, made by `f` if there is none. Of several who come at the same
    /// time one runs its function, and the others wait. If it panics, the cell
    /// stays without a value, and another runs its own.
    ///
    /// # Panics
    ///
    /// If `f` does, or comes here again.
    #[inline]
    #[track_caller]
    pub fn get_or_init<F>(&self, f: F) -> &T
    where
        F: FnOnce() -> T,
    {
        if !self.once.is_completed() {
            self.init(f);
        }
        self.value()
    }

    #[cold]
    #[track_caller]
    fn init(&self, f: impl FnOnce() -> T) {
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: one function runs at a time, and none has completed; nobody
            // reads before one has.
            unsafe { *self.value.get() = Some(value) };
        });
    }

    #[inline]
    fn value(&self) -> &T {
        match self.get() {
            Some(value) => value,
            None => unreachable!("a completed cell has a value"),
        }
    }

    /// The value, if there is one, without the cell.
    #[inline]
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// Takes the value out, and the cell is as new.
    ///
    /// ```
    /// let mut cell = heist::sync::OnceLock::from(1);
    /// assert_eq!((cell.take(), cell.take()), (Some(1), None));
    /// ```
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        match self.once.outcome() {
            Outcome::Complete => std::mem::take(self).into_inner(),
            Outcome::New | Outcome::Poisoned => None,
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => d.field(value),
            None => d.field(&format_args!("<uninit>")),
        };
        d.finish()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get().cloned().map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        OnceLock { once: Once::completed(), value: UnsafeCell::new(Some(value)) }
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}
