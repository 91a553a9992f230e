//! Goroutines for Rust: plain blocking code, a million tasks, nobody starves.
//!
//! ```
//! let squares: Vec<u64> = heist::run(|| {
//!     let tasks: Vec<_> = (0..1000u64).map(|i| heist::go(move || i * i)).collect();
//!     tasks.into_iter().map(|task| task.join().unwrap()).collect()
//! });
//! assert_eq!(squares[999], 998_001);
//! ```
//!
//! A goroutine is a stack of its own and 128 bytes; the scheduler runs a few at
//! a time, as many as there are CPUs, on OS threads that it manages: Go's G, M
//! and P, with work stealing. [`go`] spawns one, [`run`] enters from `main`,
//! [`thread`] has std's whole thread API on goroutines, [`Builder`] makes a
//! [`Runtime`] of one's own.
//!
//! They talk by [`chan`] and [`sync`], sleep by [`time`], fork and join by [`par`], and
//! wait for the world by [`net`], [`io`], [`fs`], [`process`] and [`signal`].
//! [`runtime`] asks the scheduler and tells it, [`stack`] is for deep recursion, and
//! [`debug`] looks inside.
//!
//! # The one rule
//!
//! A goroutine that blocks may go on on another OS thread. So nothing that came
//! out of a `thread_local!` (a reference, a borrowed `RefCell`, a cloned handle
//! that is not `Send`) may live across a call into heist that can block or yield; [`go`]
//! is one of those. Use [`goroutine_local!`] for values that belong to a goroutine, or
//! [`runtime::pin`] while such a thing is held. The compiler cannot check this, and
//! may itself look a thread-local up once for the time before and after a call: keep
//! a function that uses one from being inlined into one that blocks.
//! [`Builder::tls_guard`] looks for mistakes at run time.
//!
//! # Nobody starves
//!
//! A goroutine that computes, or blocks its thread, loses its P to the others and
//! goes on where it is; [`syscall`], [`blocking`] and [`no_preempt`] say more about a
//! call than the scheduler can know.
//!
//! # The environment
//!
//! `HEIST_MAX_PROCS` is the number of Ps where a program does not say it.
//! `HEISTDEBUG=schedtrace=1000,scheddetail=1` prints what the scheduler does, every so
//! many milliseconds; `tlsguard=1` there searches for borrowed thread-locals. At SIGQUIT
//! all goroutines are listed.
//!
//! # Where it runs
//!
//! Linux on x86-64 and aarch64.

#![deny(unsafe_code)]
// Under loom only the protocols are built, without those who use them; the simulated
// machine has no descriptors.
#![cfg_attr(any(loom, sim), allow(dead_code))]

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!(
    "heist runs on 64-bit Linux on x86-64 and aarch64: it needs futex(2), membarrier(2) and a \
     context switch for the architecture"
);

pub mod chan;
mod poll;
mod prim;
mod sched;

#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: corosensei
mod context;
#[cfg(not(any(loom, sim)))]
pub mod fs;
#[cfg(not(any(loom, sim)))]
pub mod io;
#[cfg(not(loom))]
mod local;
#[cfg(not(any(loom, sim)))]
pub mod net;
#[cfg(not(loom))]
mod obs;
#[cfg(all(not(loom), any(test, feature = "bench-internals")))]
#[doc(hidden)]
pub mod ops;
#[cfg(not(any(loom, sim)))]
pub mod os;
#[cfg(not(loom))]
mod panics;
#[cfg(not(loom))]
pub mod par;
#[cfg(not(any(loom, sim)))]
pub mod process;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(any(loom, sim)))]
pub mod signal;
#[cfg(sim)]
pub mod sim;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: segments of the caller's stack
pub mod stack;
#[cfg(not(loom))]
mod stacks;
#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
mod timer;

#[cfg(not(loom))]
pub use crate::entry::{__private, blocking, debug, go, go_idle, no_preempt, run, syscall};
#[cfg(not(loom))]
pub use heist_macros::{main, test};
#[cfg(not(loom))]
pub use local::{AccessError, LocalKey};
#[cfg(not(loom))]
pub use runtime::{BuildError, Builder, PanicPolicy, Runtime};
#[cfg(not(loom))]
mod entry;

/// For tests that arm faults, and those that would run into them: one at a time.
#[cfg(all(test, not(loom)))]
fn tests_alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The README's program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
