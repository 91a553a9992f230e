//! Goroutines that keep their OS thread, as users see them.

use crate::sched::locked;
use std::marker::PhantomData;

/// Keeps the calling goroutine on its OS thread, and everybody else off it, until
/// [`unlock_os_thread`] was called as often: Go's `runtime.LockOSThread`.
///
/// For what belongs to a thread and lasts: a C library with state of its own per
/// thread, a graphics context, a changed CPU mask, priority or namespace. A
/// goroutine that ends without unlocking ends its thread, so that nobody inherits
/// those. [`pin`] is the form with a guard, for what is undone in time.
///
/// While such a goroutine waits, its thread waits with it and another one runs its
/// P. So each of its waits costs what a wait of an OS thread costs (less if it is
/// short: the thread watches for some microseconds before it sleeps).
///
/// On a plain OS thread, which is nobody else's anyway, it does nothing.
///
/// ```
/// use heist::runtime::{lock_os_thread, unlock_os_thread};
///
/// heist::run(|| {
///     lock_os_thread();
///     let thread = std::thread::current().id();
///     heist::thread::sleep(std::time::Duration::from_millis(1));
///     assert_eq!(std::thread::current().id(), thread);
///     unlock_os_thread();
/// });
/// ```
pub fn lock_os_thread() {
    locked::lock();
}

/// Undoes one [`lock_os_thread`] of the calling goroutine. The last one lets it
/// leave its thread again. Without any it does nothing, as in Go.
///
/// ```
/// heist::run(heist::runtime::unlock_os_thread);
/// ```
pub fn unlock_os_thread() {
    locked::unlock();
}

/// Keeps the calling goroutine on its OS thread, and everybody else off it, while
/// the guard lives.
///
/// This is how something that came out of a `thread_local!` can be held across a
/// call that blocks. It counts like [`lock_os_thread`], and waits cost the same.
///
/// ```
/// use std::cell::RefCell;
///
/// thread_local! {
///     static SCRATCH: RefCell<Vec<u32>> = RefCell::default();
/// }
///
/// heist::run(|| {
///     let _here = heist::runtime::pin();
///     SCRATCH.with_borrow_mut(|scratch| {
///         scratch.push(1);
///         heist::thread::yield_now();
///         scratch.push(2);
///     });
/// });
/// ```
pub fn pin() -> Pinned {
    locked::lock();
    Pinned { here: PhantomData }
}

/// Keeps its goroutine on one OS thread; made by [`pin`].
#[derive(Debug)]
#[must_use = "the goroutine is pinned only while the guard lives"]
pub struct Pinned {
    /// It belongs to the goroutine that made it.
    here: PhantomData<*mut ()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        locked::unlock();
    }
}
