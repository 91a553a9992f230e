//! What a goroutine runs: its closure before, its result after.
//!
//! Both live in the 48 bytes of storage inside the control block when they fit,
//! and in a box otherwise, so that a typical spawn allocates nothing.

use super::g::{G, flag};
use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::{self, MaybeUninit};
use std::panic::{self, AssertUnwindSafe};

/// What `join` returns: the value, or the payload of the panic.
pub(crate) type Outcome<T> = Result<T, Box<dyn Any + Send + 'static>>;

const WORDS: usize = 6;

/// Room for a closure, then for a result.
#[repr(C, align(16))]
pub(crate) struct Storage(UnsafeCell<MaybeUninit<[u64; WORDS]>>);

// SAFETY: who may touch the storage is ordered by the goroutine's life: its
// spawner, its M, then whoever the join word gives it to. The closure and the
// result are `Send`, or never leave the thread that waits (see `spawn`).
unsafe impl Sync for Storage {}

impl Storage {
    const fn fits<V>() -> bool {
        size_of::<V>() <= size_of::<Self>() && align_of::<V>() <= align_of::<Self>()
    }

    /// Where a value is that fits.
    #[inline]
    pub(crate) fn slot<V>(&self) -> *mut V {
        const { assert!(Self::fits::<V>()) };
        self.0.get().cast()
    }

    /// Stores a value, boxed if it does not fit.
    ///
    /// # Safety
    ///
    /// The caller has the storage, and it holds nothing.
    #[inline]
    unsafe fn put<V>(&self, value: V) {
        if const { Self::fits::<V>() } {
            // SAFETY: large and aligned enough, and ours.
            unsafe { self.0.get().cast::<V>().write(value) };
        } else {
            // SAFETY: a pointer always fits.
            unsafe { self.0.get().cast::<Box<V>>().write(Box::new(value)) };
        }
    }

    /// Takes the value out.
    ///
    /// # Safety
    ///
    /// The caller has the storage, and it holds a `V`.
    #[inline]
    unsafe fn take<V>(&self) -> V {
        if const { Self::fits::<V>() } {
            // SAFETY: the caller's promise.
            unsafe { self.0.get().cast::<V>().read() }
        } else {
            // SAFETY: the caller's promise.
            *unsafe { self.0.get().cast::<Box<V>>().read() }
        }
    }
}

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
        let panicked = match &outcome {
            Ok(_) => false,
            Err(payload) => !payload.is::<Shutdown>(),
        };
        if g.join.is_detached() {
            // A result whose drop panics has no one to tell: as in std, abort.
            match outcome {
                Ok(value) => drop_or_abort(value),
                Err(payload) => drop_or_abort(payload),
            }
            return if panicked { Ended::PanickedUnseen } else { Ended::Quietly };
        }
        // SAFETY: the closure is out, so the storage is free again.
        unsafe { leave_outcome(g, outcome) };
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
