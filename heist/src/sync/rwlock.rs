//! [`RwLock`]: data that many may read, or one may write.

use super::poison;
use super::raw_rwlock::RawRwLock;
use crate::sched::protocol::rwlock::Kind;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// A reader-writer lock around data, as `std::sync::RwLock`.
///
/// Neither side starves the other: a writer that waits keeps new readers out, and
/// a writer that leaves lets all readers in that have come meanwhile, before the
/// next writer. So whoever reads must not read again before it is done: a writer
/// may have come in between, and both would wait for each other.
///
/// ```
/// use heist::sync::RwLock;
///
/// let lock = RwLock::new(5);
/// {
///     let (one, two) = (lock.read().unwrap(), lock.try_read().unwrap());
///     assert_eq!(*one + *two, 10);
/// }
/// *lock.write().unwrap() += 1;
/// assert_eq!(*lock.read().unwrap(), 6);
/// ```
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    poison: poison::Flag,
    data: UnsafeCell<T>,
}

// SAFETY: the data goes wherever the lock goes.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: a writer reaches the data from any thread, so it must be `Send`;
// readers do so together, so it must be `Sync`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

// Poisoning tells of broken data.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

/// Reads the data of a [`RwLock`], and leaves it when dropped.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a> {
    /// Not the lock as a whole: a guard of a longer-lived type is one of a
    /// shorter-lived, which is not so of a lock.
    data: NonNull<T>,
    raw: &'a RawRwLock,
}

/// Writes the data of a [`RwLock`], and leaves it when dropped.
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a> {
    lock: &'a RwLock<T>,
    before: poison::Before,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives only shared access to the data.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: likewise.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

// The data cannot be changed through it, unless it can be through any reference.
impl<T: ?Sized + RefUnwindSafe> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized + RefUnwindSafe> RefUnwindSafe for RwLockReadGuard<'_, T> {}

impl<T> RwLock<T> {
    /// A free lock.
    #[inline]
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { raw: RawRwLock::new(), poison: poison::Flag::new(), data: UnsafeCell::new(value) }
    }

    /// The data, without the lock.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the data is in the error.
    pub fn into_inner(self) -> LockResult<T> {
        let data = self.data.into_inner();
        if self.poison.get() { Err(PoisonError::new(data)) } else { Ok(data) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until the caller may read.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the guard is in the error.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.raw.read(Location::caller());
        self.read_guard()
    }

    /// Reads if that is possible at once: nobody writes or waits to write.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not; `Poisoned`, with the guard, if the lock is
    /// poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        if self.raw.try_enter(Kind::Reader) {
            Ok(self.read_guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    /// Waits until the caller may write.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the guard is in the error.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.raw.write(Location::caller());
        self.write_guard()
    }

    /// Writes if nobody has the lock or waits for it.
    ///
    /// # Errors
    ///
    /// As [`try_read`](Self::try_read).
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        if self.raw.try_enter(Kind::Writer) {
            Ok(self.write_guard()?)
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    fn read_guard(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.poison.check(RwLockReadGuard::new(self))
    }

    fn write_guard(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let before = self.poison.enter();
        self.poison.check(RwLockWriteGuard { lock: self, before, not_send: PhantomData })
    }

    /// Whether a writer panicked.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poison.get()
    }

    /// The data is in order again.
    #[inline]
    pub fn clear_poison(&self) {
        self.poison.clear();
    }

    /// The data, to which the caller has the only reference.
    ///
    /// # Errors
    ///
    /// If the lock is poisoned; the reference is in the error.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = self.poison.get();
        let data = self.data.get_mut();
        if poisoned { Err(PoisonError::new(data)) } else { Ok(data) }
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("RwLock");
        // Not `try_read`: who formats lets nobody else run (see `park::poll_point`).
        if self.raw.try_enter_only(Kind::Reader) {
            let guard = self.read_guard().unwrap_or_else(PoisonError::into_inner);
            d.field("data", &&*guard);
        } else {
            d.field("data", &format_args!("<locked>"));
        }
        d.field("poisoned", &self.poison.get());
        d.finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// The writer becomes a reader; nobody else writes in between.
    ///
    /// ```
    /// use heist::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let lock = RwLock::new(0);
    /// let mut writer = lock.write().unwrap();
    /// *writer = 1;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!(*reader, *lock.read().unwrap());
    /// ```
    pub fn downgrade(s: Self) -> RwLockReadGuard<'a, T> {
        let writer = ManuallyDrop::new(s);
        let lock = writer.lock;
        lock.poison.leave(writer.before);
        lock.raw.downgrade();
        RwLockReadGuard::new(lock)
    }
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// The caller reads.
    fn new(lock: &'a RwLock<T>) -> Self {
        // SAFETY: a cell's contents are not at null.
        let data = unsafe { NonNull::new_unchecked(lock.data.get()) };
        RwLockReadGuard { data, raw: &lock.raw }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps writers out, and is borrowed.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard keeps all others out, and is borrowed.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed for writing.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.raw.leave_read();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.poison.leave(self.before);
        self.lock.raw.leave_write();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
