//! std's `sync`, for goroutines.
//!
//! A program that says `use heist::sync` instead of `use std::sync` gets the same
//! types with the same behaviour, poisoning included; what waits is a goroutine,
//! which parks, or a plain OS thread, which blocks, or both with each other.
//!
//! Beyond std's there are Go's [`WaitGroup`], a [`Semaphore`], and [`Context`].
//!
//! | file | what |
//! |---|---|
//! | `mutex.rs`, `raw_mutex.rs`, `spin.rs` | [`Mutex`]: the data; the lock; when to spin |
//! | `rwlock.rs`, `raw_rwlock.rs` | [`RwLock`] |
//! | `reentrant.rs` | the lock of the standard streams |
//! | `condvar.rs` | [`Condvar`] |
//! | `barrier.rs` | [`Barrier`] |
//! | `once.rs`, `once_lock.rs`, `lazy_lock.rs` | [`Once`], [`OnceLock`], [`LazyLock`] |
//! | `wait_group.rs`, `semaphore.rs`, `context.rs` | [`WaitGroup`], [`Semaphore`], [`Context`] |
//! | `mpsc.rs` | [`mpsc`], std's channels |
//! | `poison.rs` | who panicked with a lock |
//! | `queue.rs` | the one queue that all of them wait in |
//!
//! Nothing here allocates but what says so: [`WaitGroup`], [`Context`], [`mpsc`].
//!
//! # Panics and shutdown
//!
//! A lock is poisoned when a guard is dropped by a panic, as in std. The unwinding
//! of goroutines by a runtime that shuts down counts as one: the data may be
//! half-changed.
//!
//! ```
//! use heist::sync::{Arc, Mutex};
//!
//! let total = Arc::new(Mutex::new(0));
//! let tasks: Vec<_> = (1..=100)
//!     .map(|i| {
//!         let total = Arc::clone(&total);
//!         heist::go(move || *total.lock().unwrap() += i)
//!     })
//!     .collect();
//! tasks.into_iter().for_each(|task| task.join().unwrap());
//! assert_eq!(*total.lock().unwrap(), 5050);
//! ```

mod barrier;
mod condvar;
mod context;
#[allow(unsafe_code)] // named file: the function or its value, in one place
mod lazy_lock;
pub mod mpsc;
#[allow(unsafe_code)] // named file: the data behind the lock
mod mutex;
mod once;
#[allow(unsafe_code)] // named file: the value, once it is there
mod once_lock;
mod poison;
#[allow(unsafe_code)] // named file: records on the stacks of those who wait
mod queue;
mod raw_mutex;
mod raw_rwlock;
#[cfg(not(sim))]
pub(crate) mod reentrant;
#[allow(unsafe_code)] // named file: the data behind the lock
mod rwlock;
mod semaphore;
mod spin;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use context::{AfterFunc, CancelFunc, Context, ContextError};
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
#[allow(deprecated)]
pub use once::ONCE_INIT;
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use wait_group::WaitGroup;
// What does not block is std's own, and mixes with code that uses std.
pub use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult, Weak, atomic};
