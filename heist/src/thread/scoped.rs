//! Goroutines that borrow: they end before the scope does.
//!
//! The scope waits inside of a function call, not in a destructor that could be
//! forgotten. It also cannot be cut short: a runtime that shuts down unwinds the
//! goroutines of a scope before it lets go of the one that waits for them.

use super::join::{STOPPED, failed};
use super::{Builder, JoinHandle, Result, Thread};
use crate::prim::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::prim::lock::{Lock, Rank};
use crate::runtime;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::schedt::Sched;
use crate::sched::spawn::{self, Options, SpawnError};
use crate::sched::task::{self, Shutdown};
use crate::sched::waiter::Waiter;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Where goroutines that borrow are spawned. See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<Data>,
    /// Invariant over 'scope: it must not shrink, or `spawn` would take what
    /// ends before the scope does.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

struct Data {
    running: AtomicUsize,
    panicked: AtomicBool,
    /// How many were stopped by a shutdown before their end, or before they began.
    stopped: AtomicUsize,
    /// Who waits for the last one to end.
    waiter: Waiter,
}

/// `running` starts with the scope itself, so that it drops to zero once.
const ITSELF: usize = 1;

impl Data {
    fn add(&self) {
        if self.running.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
            self.running.fetch_sub(1, Ordering::Relaxed);
            panic!("too many running threads in thread scope");
        }
    }

    /// One less. Whoever is last, the scope excepted, wakes the scope.
    fn remove(&self) -> bool {
        // Release: what the goroutine did happens before the scope returns.
        self.running.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Calls `f` with a scope in which goroutines may borrow from the caller, and
/// returns when they have all ended. The rules are those of [`std::thread::scope`].
///
/// ```
/// let mut numbers = vec![1, 2, 3];
/// let mut sum = 0;
/// heist::thread::scope(|s| {
///     s.spawn(|| sum = numbers.iter().sum());
/// });
/// numbers.push(sum);
/// assert_eq!(numbers, [1, 2, 3, 6]);
/// ```
///
/// # Panics
///
/// If a goroutine of the scope panicked and nobody joined it. A goroutine whose runtime
/// shuts down while it waits here is unwound, when those of the scope have been.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let waiter = Waiter::current();
    let data = Data {
        running: AtomicUsize::new(ITSELF),
        panicked: AtomicBool::new(false),
        stopped: AtomicUsize::new(0),
        waiter,
    };
    let scope = Scope { data: Arc::new(data), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if !scope.data.remove() {
        waiter.sleep_whatever_comes(WaitReason::Join, Location::caller());
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.data.panicked.load(Ordering::Relaxed) => {
            panic!("a scoped thread panicked")
        }
        // What they were to do is not done.
        Ok(_) if scope.data.stopped.load(Ordering::Relaxed) > 0 && !super::panicking() => {
            park::unwind_if_closing();
            panic!("{STOPPED}")
        }
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a goroutine that may borrow from outside of the scope.
    ///
    /// # Panics
    ///
    /// If there is no memory for it; [`Builder::spawn_scoped`] returns an error
    /// instead. As [`heist::go`](crate::go), it unwinds a goroutine whose runtime shuts
    /// down.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let site = Location::caller();
        match spawn_scoped(self, f, Options::default(), site) {
            Ok(handle) => handle,
            // A goroutine that a shutdown unwinds must not panic once more.
            Err(SpawnError::Closed)
                if super::panicking()
                    && let Ok(g) = spawn::stillborn::<()>(site) =>
            {
                ScopedJoinHandle::new(JoinHandle::new(g, None), Packet::new(self))
            }
            Err(error) => failed(&error),
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("num_running_threads", &(self.data.running.load(Ordering::Relaxed) - ITSELF))
            .field("a_thread_panicked", &self.data.panicked.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// Where a scoped goroutine leaves its result: shared with the handle, so that
/// whoever lets go last drops it, inside of the scope.
struct Packet<T> {
    result: Lock<Option<Result<T>>>,
    data: Arc<Data>,
}

impl<T> Packet<T> {
    fn new(scope: &Scope<'_, '_>) -> Arc<Self> {
        Arc::new(Packet { result: Lock::new(Rank::Leaf, None), data: scope.data.clone() })
    }
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        let result = self.result.lock().take();
        if matches!(result, Some(Err(_))) {
            // Nobody looked at it.
            self.data.panicked.store(true, Ordering::Relaxed);
        }
        task::drop_or_abort_with("a scoped goroutine's result", || drop(result));
    }
}

/// The right to wait for a scoped goroutine and to have its value.
///
/// ```
/// let text = String::from("borrowed");
/// let length = heist::thread::scope(|s| s.spawn(|| text.len()).join().unwrap());
/// assert_eq!(length, text.len());
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    packet: Arc<Packet<T>>,
    marker: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    fn new(handle: JoinHandle<()>, packet: Arc<Packet<T>>) -> Self {
        ScopedJoinHandle { handle, packet, marker: PhantomData }
    }

    /// Waits for the goroutine to end, and returns its value, or the payload of
    /// the panic that ended it.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let joined = self.handle.join();
        let result = self.packet.result.lock().take();
        match result {
            Some(result) => result,
            // It was stopped before it could leave one.
            None => {
                park::unwind_if_closing();
                Err(joined.err().unwrap_or_else(|| Box::new(STOPPED)))
            }
        }
    }

    /// Whether the goroutine has ended, so that `join` does not wait. Every now and then a
    /// look in vain lets other goroutines run.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The goroutine.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}

/// Counts a goroutine off its scope at the very end, however it ends.
struct CountOff {
    data: Arc<Data>,
    /// It has returned or panicked.
    ended: bool,
}

impl Drop for CountOff {
    fn drop(&mut self) {
        if !self.ended {
            // Before it is counted off, and so before the scope looks.
            self.data.stopped.fetch_add(1, Ordering::Relaxed);
        }
        if self.data.remove() {
            self.data.waiter.wake();
        }
    }
}

/// What a scoped goroutine runs. If it never does, the fields are dropped in
/// this order: what may borrow first, the count last.
struct Body<F, T> {
    f: F,
    packet: Arc<Packet<T>>,
    count_off: CountOff,
}

impl<F: FnOnce() -> T, T> Body<F, T> {
    fn run(self) {
        let Body { f, packet, mut count_off } = self;
        let result = catch_unwind(AssertUnwindSafe(f));
        count_off.ended = !matches!(&result, Err(payload) if payload.is::<Shutdown>());
        if count_off.ended {
            *packet.result.lock() = Some(result);
        }
        drop(packet);
        drop(count_off);
    }
}

impl Builder {
    /// Spawns a goroutine that may borrow from outside of `scope`.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    ///
    /// # Panics
    ///
    /// If the name has a NUL byte in it, as in std.
    ///
    /// ```
    /// let word = String::from("scoped");
    /// heist::thread::scope(|s| {
    ///     let named = heist::thread::Builder::new().name(word.clone());
    ///     let handle = named.spawn_scoped(s, || word.len())?;
    ///     assert_eq!(handle.thread().name(), Some("scoped"));
    ///     assert_eq!(handle.join().unwrap(), 6);
    ///     Ok::<(), std::io::Error>(())
    /// })
    /// # .unwrap()
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Ok(spawn_scoped(scope, f, self.options(), Location::caller())?)
    }
}

fn spawn_scoped<'scope, F, T>(
    scope: &'scope Scope<'scope, '_>,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> std::result::Result<ScopedJoinHandle<'scope, T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    let name = options.name.clone();
    let packet = Packet::new(scope);
    scope.data.add();
    let count_off = CountOff { data: scope.data.clone(), ended: false };
    let body = Body { f, packet: packet.clone(), count_off };
    let body = move || body.run();
    // SAFETY: `scope` waits for the count before anything that `f` borrows
    // ends; the closure is dropped, or has returned, before it is counted
    // off. All is `Send`.
    let spawned = unsafe { spawn::spawn_on(runtime::current_sched(), body, options, site) };
    if spawned.is_err() {
        // The caller hears of it: it is not one that the scope would miss.
        scope.data.stopped.fetch_sub(1, Ordering::Relaxed);
    }
    let g = spawned?;
    Ok(ScopedJoinHandle::new(JoinHandle::new(g, name), packet))
}

/// Runs a closure that borrows as a goroutine of `sched`, and waits for it.
pub(crate) fn call<F, T>(
    sched: &'static Sched,
    options: Options,
    site: &'static Location<'static>,
    f: F,
) -> std::result::Result<Result<T>, SpawnError>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let name = options.name.clone();
    // SAFETY: this function returns only when the goroutine has ended.
    let g = unsafe { spawn::spawn_on(sched, f, options, site) }?;
    let handle = JoinHandle::<T>::new(g, name);
    handle.wait_whatever_comes(site);
    Ok(handle.take_raw())
}
