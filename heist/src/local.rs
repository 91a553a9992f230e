//! `goroutine_local!`: a value for each goroutine.

use crate::sched::local;
use std::cell::{Cell, RefCell};
use std::fmt;

/// Declares values of which each goroutine has its own, as `thread_local!` does
/// for threads. They move with the goroutine and are dropped when it ends. A
/// plain OS thread has its own, too.
///
/// ```
/// use std::cell::Cell;
///
/// heist::goroutine_local! {
///     /// How often this goroutine was asked.
///     static ASKED: Cell<u32> = Cell::new(0);
///     pub static NAME: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
/// }
///
/// heist::run(|| {
///     ASKED.set(ASKED.get() + 1);
///     heist::thread::yield_now(); // perhaps on another thread now
///     assert_eq!(ASKED.get(), 1);
///     assert_eq!(heist::go(|| ASKED.get()).join().unwrap(), 0);
/// });
/// ```
#[macro_export]
macro_rules! goroutine_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = const $init:block; $($rest:tt)*) => {
        $crate::goroutine_local!($(#[$attr])* $vis static $name: $ty = const $init);
        $crate::goroutine_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = const $init:block) => {
        $(#[$attr])*
        $vis static $name: $crate::LocalKey<$ty> = {
            fn init() -> $ty {
                const INIT: $ty = $init;
                INIT
            }
            $crate::LocalKey::__new(init)
        };
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = $init:expr; $($rest:tt)*) => {
        $crate::goroutine_local!($(#[$attr])* $vis static $name: $ty = $init);
        $crate::goroutine_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::LocalKey<$ty> = {
            fn init() -> $ty {
                $init
            }
            $crate::LocalKey::__new(init)
        };
    };
}

/// A key to the value that each goroutine has of its own. See
/// [`goroutine_local!`].
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
    /// Makes keys of zero-sized nothing differ by address.
    _address: u8,
}

/// The goroutine ends and its values are gone.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessError;

impl fmt::Debug for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessError").finish()
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("already destroyed")
    }
}

impl std::error::Error for AccessError {}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn __new(init: fn() -> T) -> Self {
        LocalKey { init, _address: 0 }
    }

    fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The caller's value is `value`, if it has none; otherwise that comes back.
    fn init_with(&'static self, value: T) -> Option<T> {
        let mut value = Some(value);
        let init = || match value.take() {
            Some(value) => value,
            None => unreachable!("the function runs once"),
        };
        match local::get_or_init(self.key(), init) {
            Some(_) => value,
            None => gone(AccessError),
        }
    }

    /// Calls `f` with the caller's value, which is made at its first use.
    ///
    /// # Panics
    ///
    /// When the goroutine ends and has dropped the value, or is dropping it. Values are
    /// dropped one by one, the one made last first; the destructor of one may still use those
    /// that are left, and those of which dropping does nothing.
    pub fn with<F, R>(&'static self, f: F) -> R
    where
        F: FnOnce(&T) -> R,
    {
        match self.try_with(f) {
            Ok(result) => result,
            Err(error) => gone(error),
        }
    }

    /// Calls `f` with the caller's value.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with) panics.
    pub fn try_with<F, R>(&'static self, f: F) -> Result<R, AccessError>
    where
        F: FnOnce(&T) -> R,
    {
        let value = local::get_or_init(self.key(), self.init).ok_or(AccessError)?;
        Ok(f(&value))
    }
}

#[cold]
fn gone(error: AccessError) -> ! {
    panic!("cannot access a goroutine-local value during or after destruction: {error:?}")
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// Sets the caller's value. If it has none yet, this is its first one: that of the
    /// declaration is not made.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// heist::goroutine_local! {
    ///     static REQUEST: Cell<u64> = panic!("no request");
    /// }
    /// heist::run(|| {
    ///     REQUEST.set(7);
    ///     assert_eq!(REQUEST.get(), 7);
    /// });
    /// ```
    pub fn set(&'static self, value: T) {
        if let Some(cell) = self.init_with(Cell::new(value)) {
            self.with(|old| old.set(cell.into_inner()));
        }
    }

    /// A copy of the caller's value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the caller's value and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces the caller's value and returns the old one.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with a borrow of the caller's value.
    ///
    /// # Panics
    ///
    /// If it is mutably borrowed.
    pub fn with_borrow<F, R>(&'static self, f: F) -> R
    where
        F: FnOnce(&T) -> R,
    {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with a mutable borrow of the caller's value.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    pub fn with_borrow_mut<F, R>(&'static self, f: F) -> R
    where
        F: FnOnce(&mut T) -> R,
    {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the caller's value. If it has none yet, this is its first one: that of the
    /// declaration is not made.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    pub fn set(&'static self, value: T) {
        if let Some(cell) = self.init_with(RefCell::new(value)) {
            self.with(|old| *old.borrow_mut() = cell.into_inner());
        }
    }

    /// Takes the caller's value and leaves the default.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Replaces the caller's value and returns the old one.
    ///
    /// # Panics
    ///
    /// If it is borrowed.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}
