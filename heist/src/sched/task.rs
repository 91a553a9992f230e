//! What a goroutine runs: its closure before, its result after.
//!
//! Both live in the storage inside the control block when they fit, and in a box
//! otherwise, so that a typical spawn allocates nothing.

use super::g::{G, flag};
use super::g_pool;
use super::m::Inside;
use std::any::Any;
use std::mem;
use std::panic::{self, AssertUnwindSafe};

/// What `join` returns: the value, or the payload of the panic.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send + 'static>>;

/// The functions of one kind of goroutine.
pub(crate) struct Task {
    /// Calls the closure in the storage and leaves the outcome there, if
    /// anybody may still ask for it. Returns whether it panicked. Does not
    /// unwind.
    pub(crate) run: unsafe fn(&'static G) -> Ended,
    /// Drops a closure that never ran and leaves `Err(payload)` as its outcome.
    pub(crate) cancel: unsafe fn(&'static G, Box<dyn Any + Send>),
    /// Drops an outcome that nobody asked for.
    pub(crate) drop_outcome: unsafe fn(&'static G),
}

/// How a closure ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It returned, or was unwound by a shutdown.
    Quietly,
    /// It panicked; nobody can ask for the payload.
    PanickedUnseen,
    /// It panicked; the payload waits for `join`.
    Panicked,
}

/// The task of closures `F` with result `T`.
pub(crate) struct TaskOf<F, T>(std::marker::PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> TaskOf<F, T> {
    pub(crate) const TASK: &'static Task =
        &Task { run: Self::run, cancel: Self::cancel, drop_outcome: Self::drop_outcome };

    /// Stores the closure of a new goroutine.
    ///
    /// # Safety
    ///
    /// The caller has the block, and its storage holds nothing.
    #[inline(always)]
    pub(crate) unsafe fn emplace(g: &'static G, f: F) {
        // SAFETY: the caller's promise.
        unsafe { g.storage.put(f) };
    }

    /// # Safety
    ///
    /// Called once, by the goroutine, whose storage holds an `F`.
    unsafe fn run(g: &'static G) -> Ended {
        // SAFETY: the caller's promise.
        let f = unsafe { g.storage.take::<F>() };
        // Whether the closure is unwind safe is the joiner's concern, as in
        // std: it sees the panic.
        let outcome: Outcome<T> = panic::catch_unwind(AssertUnwindSafe(f));
        match outcome {
            // A result whose drop panics has no one to tell: as in std, abort.
            Ok(value) if g.join.is_detached() => drop_or_abort(value),
            // SAFETY: the closure is out, so the storage is free again.
            Ok(value) => unsafe { leave_outcome::<T>(g, Ok(value)) },
            // SAFETY: the same.
            Err(payload) => return unsafe { Self::unwound(g, payload) },
        }
        Ended::Quietly
    }

    /// The closure panicked, or a shutdown has unwound it.
    ///
    /// Elsewhere than `run`, as all that is not needed there: whatever a goroutine waits
    /// for, the frame of `run` lies above it on its stack.
    ///
    /// # Safety
    ///
    /// The caller has the block, whose storage holds nothing.
    #[cold]
    #[inline(never)]
    unsafe fn unwound(g: &'static G, payload: Box<dyn Any + Send>) -> Ended {
        let panicked = !payload.is::<Shutdown>();
        if g.join.is_detached() {
            drop_or_abort(payload);
            return if panicked { Ended::PanickedUnseen } else { Ended::Quietly };
        }
        // SAFETY: the caller's promise.
        unsafe { leave_outcome::<T>(g, Err(payload)) };
        if panicked { Ended::Panicked } else { Ended::Quietly }
    }

    /// # Safety
    ///
    /// The caller has the block, whose storage holds an `F`.
    unsafe fn cancel(g: &'static G, payload: Box<dyn Any + Send>) {
        // SAFETY: the caller's promise.
        let f = unsafe { g.storage.take::<F>() };
        drop_or_abort(f);
        // SAFETY: free again.
        unsafe { leave_outcome::<T>(g, Err(payload)) };
    }

    /// # Safety
    ///
    /// The caller has the block, whose storage holds an outcome.
    unsafe fn drop_outcome(g: &'static G) {
        g.set(flag::OUTCOME, false);
        // SAFETY: the caller's promise.
        drop_or_abort(unsafe { g.storage.take::<Outcome<T>>() });
    }
}

/// Leaves an outcome in a block.
///
/// # Safety
///
/// The caller has the block, whose storage holds nothing.
pub(crate) unsafe fn leave_outcome<T>(g: &'static G, outcome: Outcome<T>) {
    // SAFETY: the caller's promise.
    unsafe { g.storage.put(outcome) };
    g.set(flag::OUTCOME, true);
}

/// Takes the outcome of a finished goroutine out.
///
/// # Safety
///
/// The caller has the block, whose storage holds an `Outcome<T>`.
pub(crate) unsafe fn take_outcome<T>(g: &'static G) -> Outcome<T> {
    g.set(flag::OUTCOME, false);
    // SAFETY: the caller's promise.
    unsafe { g.storage.take::<Outcome<T>>() }
}

/// Drops the outcome of a finished goroutine that nobody asked for, and frees the
/// block. The caller has what was the handle.
#[cold]
pub(crate) fn forget_outcome(g: &'static G) {
    if g.has(flag::OUTCOME) {
        // SAFETY: it is done, so the block and the outcome in it are the handle's.
        unsafe { (g.task().drop_outcome)(g) };
    }
    free(g);
}

/// Gives the block of a finished goroutine back.
pub(crate) fn free(g: &'static G) {
    match Inside::enter() {
        Some(inside) => inside.p.own().gs.put(g),
        None => g_pool::put(g),
    }
}

/// Drops a value of the user's where a panic has nowhere to go.
fn drop_or_abort<V>(value: V) {
    if !mem::needs_drop::<V>() {
        return;
    }
    drop_or_abort_with("a goroutine's closure or result", || drop(value));
}

/// Calls a destructor of the user's where a panic has nowhere to go. A shutdown
/// that unwinds it while it waits is no panic.
pub(crate) fn drop_or_abort_with(what: &str, drop: impl FnOnce()) {
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(drop))
        && !payload.is::<Shutdown>()
    {
        crate::prim::fatal::fatal!("{what} panicked on drop");
    }
}

/// The payload that unwinds a goroutine when its runtime shuts down, and the
/// error that `join` returns for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shutdown;
