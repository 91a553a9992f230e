//! [`Mutex`]: data that one at a time may touch.

use super::poison;
use super::raw_mutex::RawMutex;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// A mutual exclusion lock around data, as `std::sync::Mutex`.
///
/// A goroutine that waits for it parks; its thread runs others. Whoever runs
/// already may take a free mutex before those who wait, which is fast; when
/// somebody has waited for a millisecond, the mutex is handed over in order of
/// arrival until that is made up for.
///
/// Locking a mutex that the caller holds panics instead of waiting forever.
///
/// ```
/// use heist::sync::{Arc, Mutex};
///
/// let data = Arc::new(Mutex::new(Vec::new()));
/// let tasks: Vec<_> = (0..10)
///     .map(|i| {
///         let data = Arc::clone(&data);
///         heist::go(move || data.lock().unwrap().push(i))
///     })
///     .collect();
/// tasks.into_iter().for_each(|task| task.join().unwrap());
/// assert_eq!(data.lock().unwrap().len(), 10);
/// ```
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    poison: poison::Flag,
    data: UnsafeCell<T>,
}

// SAFETY: the data goes wherever the mutex goes.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: one at a time reaches the data, from any thread, so it must be `Send`;
// never two at once, so it need not be `Sync`.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

// Poisoning tells of broken data.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

/// Holds a [`Mutex`], and releases it when dropped.
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized + 'a> {
    lock: &'a Mutex<T>,
    before: poison::Before,
    /// The holder is known by who it is: another must not release it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives only shared access to the data.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// A free mutex.
    ///
    /// ```
    /// static COUNT: heist::sync::Mutex<u32> = heist::sync::Mutex::new(0);
    /// *COUNT.lock().unwrap() += 1;
    /// ```
    #[inline]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new(), poison: poison::Flag::new(), data: UnsafeCell::new(value) }
    }

    /// The data, without the mutex.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned; the data is in the error.
    pub fn into_inner(self) -> LockResult<T> {
        let data = self.data.into_inner();
        if self.poison.get() { Err(PoisonError::new(data)) } else { Ok(data) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is the caller's.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned; the guard is in the error.
    ///
    /// # Panics
    ///
    /// If the caller holds it already.
    ///
    /// ```
    /// let mutex = heist::sync::Mutex::new(1);
    /// *mutex.lock().unwrap() = 2;
    /// assert_eq!(*mutex.lock().unwrap(), 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.raw.lock(Location::caller());
        self.guard()
    }

    /// Takes the mutex if nobody has it.
    ///
    /// In a loop it lets other goroutines run now and then.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if somebody has it; `Poisoned`, with the guard, if it is
    /// poisoned.
    ///
    /// ```
    /// let mutex = heist::sync::Mutex::new(0);
    /// let held = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_err());
    /// # drop(held);
    /// ```
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.raw.try_lock() { Ok(self.guard()?) } else { Err(TryLockError::WouldBlock) }
    }

    /// The caller has the lock.
    #[inline]
    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        let before = self.poison.enter();
        self.poison.check(MutexGuard { lock: self, before, not_send: PhantomData })
    }

    /// The id of the goroutine that holds the mutex, as of some recent moment, for
    /// diagnosis. `None` if it is free, or held by a plain thread.
    ///
    /// ```
    /// heist::run(|| {
    ///     let mutex = heist::sync::Mutex::new(());
    ///     assert_eq!(mutex.holder(), None);
    ///     let _held = mutex.lock();
    ///     assert_eq!(mutex.holder(), heist::runtime::goroutine_id());
    /// });
    /// ```
    pub fn holder(&self) -> Option<u64> {
        self.raw.owner()?.goroutine_id()
    }

    /// Whether somebody panicked while it held the mutex.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// The data is in order again.
    ///
    /// ```
    /// use heist::sync::Mutex;
    ///
    /// let mutex = Mutex::new(1);
    /// let panicked = std::panic::catch_unwind(|| {
    ///     let _held = mutex.lock();
    ///     panic!("while it is held");
    /// });
    /// assert!(panicked.is_err() && mutex.is_poisoned());
    /// mutex.clear_poison();
    /// assert!(mutex.lock().is_ok());
    /// ```
    #[inline]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// The data, to which the caller has the only reference.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned; the reference is in the error.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = self.poison.get();
        let data = self.data.get_mut();
        if poisoned { Err(PoisonError::new(data)) } else { Ok(data) }
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("Mutex");
        // Not `try_lock`: who formats lets nobody else run (see `park::poll_point`).
        if self.raw.try_lock_only() {
            let guard = self.guard().unwrap_or_else(PoisonError::into_inner);
            d.field("data", &&*guard);
        } else {
            d.field("data", &"<locked>");
        }
        d.field("poisoned", &self.poison.get());
        d.finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The lock of a guard, and its poison.
    pub(super) fn parts(&self) -> (&'a RawMutex, &'a poison::Flag) {
        (&self.lock.raw, &self.lock.poison)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, and is borrowed.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed for writing.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.leave(self.before);
        self.lock.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
