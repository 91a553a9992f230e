//! Spawning and joining.

use super::{Result, Thread};
use crate::prim::fatal::fatal;
use crate::runtime;
use crate::sched::g::{G, WaitReason};
use crate::sched::m::Inside;
use crate::sched::park;
use crate::sched::protocol::join::{Detach, Wait};
use crate::sched::schedt::Sched;
use crate::sched::spawn::{self, Options, SpawnError};
use crate::sched::task::{self, Shutdown};
use crate::sched::waiter::Waiter;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

/// The right to wait for a goroutine and to have its value. Dropping it
/// detaches: the goroutine goes on by itself.
///
/// ```
/// let handle = heist::go(|| 6 * 7);
/// assert_eq!(handle.join().unwrap(), 42);
/// ```
pub struct JoinHandle<T> {
    g: &'static G,
    thread: Thread,
    marker: PhantomData<T>,
}

// SAFETY: as in std: the handle gives the value to whoever joins, and nothing
// else of it; values that are spawned are `Send`.
unsafe impl<T> Send for JoinHandle<T> {}
// SAFETY: through a shared reference there is only `thread` and `is_finished`.
unsafe impl<T> Sync for JoinHandle<T> {}
// The value is not in the handle.
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(super) fn new(g: &'static G, name: Option<Arc<str>>) -> Self {
        JoinHandle { g, thread: Thread::of(g, name), marker: PhantomData }
    }

    /// Waits for the goroutine to end, and returns its value, or the payload of
    /// the panic that ended it. One that was stopped, since its runtime shut down, is an
    /// error too, for those who do not end with it.
    ///
    /// # Panics
    ///
    /// If the goroutine is the caller itself, as in std.
    ///
    /// ```
    /// let panicked = heist::go(|| panic!("no luck")).join().unwrap_err();
    /// assert_eq!(panicked.downcast_ref::<&str>(), Some(&"no luck"));
    /// ```
    #[track_caller]
    pub fn join(self) -> Result<T> {
        if self.g.join.is_done() {
            park::safe_point();
        } else {
            self.wait(Location::caller());
        }
        self.take()
    }

    /// Whether the goroutine has ended, so that `join` does not wait. Every now and then a
    /// look in vain lets other goroutines run.
    pub fn is_finished(&self) -> bool {
        let done = self.g.join.is_done();
        if done {
            // Also who looks on, when the other one was stopped, ends with its runtime.
            park::wait_point();
        } else {
            park::poll_point();
        }
        done
    }

    /// The goroutine.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    fn wait(&self, site: &'static Location<'static>) {
        let waiter = Waiter::current();
        // The handle keeps the block: nobody else has it.
        assert!(
            waiter != Waiter::of(self.g),
            "deadlock: the goroutine that is to be joined at {site} is the caller itself, which \
             would wait for itself forever"
        );
        if self.g.join.wait(waiter.word()) == Wait::Done {
            return;
        }
        /// Withdraws when a shutdown unwinds the wait.
        struct Withdraw(&'static G, Waiter);
        impl Drop for Withdraw {
            fn drop(&mut self) {
                // Too late: the wake-up is on its way.
                if self.0.join.withdraw(self.1.word()) == Wait::Done {
                    self.1.absorb();
                }
            }
        }
        let withdraw = Withdraw(self.g, waiter);
        waiter.sleep(WaitReason::Join, site);
        std::mem::forget(withdraw);
        self.assert_done();
    }

    /// Like [`wait`](Self::wait), and not cut short by a shutdown.
    pub(super) fn wait_whatever_comes(&self, site: &'static Location<'static>) {
        let waiter = Waiter::current();
        if self.g.join.wait(waiter.word()) == Wait::Sleep {
            waiter.sleep_whatever_comes(WaitReason::Join, site);
        }
        self.assert_done();
    }

    /// A wake-up that was not ours would make us read what is not there.
    fn assert_done(&self) {
        if !self.g.join.is_done() {
            fatal!("a joiner was woken before goroutine {} had ended", self.g.id());
        }
    }

    /// The outcome of a goroutine that has ended, as it is.
    pub(super) fn take_raw(self) -> Result<T> {
        // SAFETY: it is done, so the block is the handle's, which is consumed.
        let outcome = unsafe { task::take_outcome(self.g) };
        task::free(self.g);
        drop_thread(self);
        outcome
    }

    fn take(self) -> Result<T> {
        self.take_raw().map_err(|payload| match payload.downcast::<Shutdown>() {
            Ok(_) => {
                park::unwind_if_closing();
                Box::new(STOPPED)
            }
            Err(payload) => payload,
        })
    }
}

/// What `join` says of a goroutine whose runtime has shut down.
pub(super) const STOPPED: &str = "the goroutine was stopped: its runtime shut down";

/// Drops a handle's parts but not its claim on the block.
fn drop_thread<T>(mut handle: JoinHandle<T>) {
    // SAFETY: dropped once: the handle itself is forgotten.
    unsafe { std::ptr::drop_in_place(&mut handle.thread) };
    std::mem::forget(handle);
}

/// Nobody asks for the outcome of a goroutine.
pub(crate) fn forget(g: &'static G) {
    if detach(g) == Detach::Done {
        task::forget_outcome(g);
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        if detach(self.g) == Detach::Done {
            task::forget_outcome(self.g);
        }
    }
}

#[inline]
fn detach(g: &'static G) -> Detach {
    if let Some(inside) = Inside::enter()
        && inside.sched().procs() == 1
        && inside.sched().slot() == g.runtime()
        && !inside.sched().closing()
    {
        // The caller holds the only P, and without one goroutines end only where a
        // runtime closes. (Should it begin to at this moment, and a goroutine without a
        // P end at the same, then what that returned is leaked.)
        // An exchange here would wait for the memory of a new goroutine, which
        // is in no cache when many are spawned: 15 ns of 100.
        return g.join.detach_alone();
    }
    g.join.detach()
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Spawns on a runtime.
    pub(crate) fn spawn_on<F>(
        sched: &'static Sched,
        f: F,
        options: Options,
        site: &'static Location<'static>,
    ) -> std::result::Result<Self, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let name = options.name.clone();
        // SAFETY: nothing is borrowed, and all is `Send`.
        let g = unsafe { spawn::spawn_on(sched, f, options, site) }?;
        Ok(JoinHandle::new(g, name))
    }
}

/// Spawns a goroutine: on the runtime of the caller if that is a goroutine, and
/// on the default runtime otherwise. See [`heist::go`](crate::go).
///
/// # Panics
///
/// If there is no memory for it; [`Builder::spawn`] returns an error instead. A goroutine
/// whose runtime shuts down is unwound here, as it is where it waits, which is no panic.
#[inline]
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: nothing is borrowed, and all is `Send`.
    let spawned = unsafe { spawn::spawn(f, Location::caller(), runtime::default_sched) };
    match spawned {
        Ok(g) => JoinHandle::new(g, None),
        Err(error) => not_spawned(&error, Location::caller()),
    }
}

/// What an infallible spawn does with an error.
#[cold]
#[track_caller]
pub(crate) fn not_spawned<T>(
    error: &SpawnError,
    site: &'static Location<'static>,
) -> JoinHandle<T> {
    if matches!(error, SpawnError::Closed)
        && super::panicking()
        && let Ok(g) = spawn::stillborn::<T>(site)
    {
        return JoinHandle::new(g, None);
    }
    failed(error)
}

#[cold]
#[track_caller]
pub(crate) fn failed(error: &SpawnError) -> ! {
    park::unwind_if_closing();
    panic!("failed to spawn goroutine: {error}")
}

/// Sets a goroutine up before it is spawned.
///
/// ```
/// let handle = heist::thread::Builder::new()
///     .name("deep".into())
///     .stack_size(4 << 20)
///     .spawn(|| heist::thread::current().name().map(str::len))?;
/// assert_eq!(handle.join().unwrap(), Some(4));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "must eventually spawn the goroutine"]
pub struct Builder {
    name: Option<Arc<str>>,
    stack_size: Option<usize>,
}

impl Builder {
    /// A goroutine without a name, with the runtime's stack size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names it, for reports and panics.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// The least stack that it can use, in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Spawns it.
    ///
    /// # Errors
    ///
    /// If its stack is too large, there is no memory for it, or the runtime has
    /// shut down.
    ///
    /// # Panics
    ///
    /// If the name has a NUL byte in it, as in std.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: nothing is borrowed.
        unsafe { self.spawn_unchecked(f) }
    }

    /// Spawns a goroutine whose closure borrows.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Safety
    ///
    /// As in std: the caller joins the goroutine before anything that `f` or
    /// its value borrows ends.
    #[track_caller]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let options = self.options();
        let name = options.name.clone();
        // SAFETY: the caller's promise.
        let g =
            unsafe { spawn::spawn_on(runtime::current_sched(), f, options, Location::caller()) }?;
        Ok(JoinHandle::new(g, name))
    }

    #[track_caller]
    pub(super) fn options(self) -> Options {
        if self.name.as_ref().is_some_and(|name| name.contains('\0')) {
            panic!("thread name may not contain interior null bytes");
        }
        Options { stack: self.stack_size, name: self.name, idle_priority: false }
    }
}

/// Spawns a goroutine of idle priority (see [`heist::go_idle`](crate::go_idle)).
#[track_caller]
pub(crate) fn spawn_idle<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let options = Options { idle_priority: true, ..Default::default() };
    JoinHandle::spawn_on(runtime::current_sched(), f, options, Location::caller())
        .unwrap_or_else(|error| not_spawned(&error, Location::caller()))
}
