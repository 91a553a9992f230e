//! The seam to the machine.
//!
//! Every shared word, lock, futex, clock reading, thread start and random
//! number of heist goes through this module, so that the same scheduler source
//! runs on different machines, chosen by `cfg`:
//!
//! | backend | file | chosen by | what it is |
//! |---|---|---|---|
//! | native | `native/` | default | Linux: std's atomics, futex(2), membarrier(2) |
//! | loom | `model.rs` | `--cfg loom` | loom's atomics; explores every interleaving |
//! | sim | `sim/` | `--cfg sim` (the package `heist-sim`) | a deterministic machine of many virtual cores |
//!
//! What is *not* covered: memory mappings (`stacks::map`), which are the same on a
//! simulated machine, and the handlers of the kernel's signals (`sched::signal`), in
//! whose place `sim/signal.rs` has signals of its own.
//!
//! The test `layering` reads the sources and fails when a file above this
//! module names `std::sync::atomic`, `std::thread`, `libc::syscall` or
//! `clock_gettime`.

#[cfg(loom)]
#[allow(unsafe_code)] // named file: the models' plain memory
mod model;
#[cfg(not(any(loom, sim)))]
#[allow(unsafe_code)] // named files: system calls and the thread slot
mod native;
#[cfg(not(any(loom, sim)))]
#[allow(unsafe_code)] // named file: the kernel's view of a thread
mod os_thread;
#[cfg(sim)]
#[allow(unsafe_code)] // named files: the machine, its threads, buffers and locks
pub(crate) mod sim;

#[cfg(loom)]
pub(crate) use model::{atomic, hint};
#[cfg(all(loom, test))]
pub(crate) use model::{bed, cell};
#[cfg(not(any(loom, sim)))]
pub(crate) use native::{atomic, clock, env, futex, hint, mutex, os, probe, thread};
#[cfg(sim)]
pub(crate) use sim::{atomic, clock, env, epoll, futex, hint, mutex, os, probe, thread};

#[cfg(all(test, not(loom)))]
pub(crate) use native::fault;

#[cfg(not(any(loom, sim)))]
pub(crate) mod cpu_limit;
#[cfg(not(any(loom, sim)))]
#[allow(unsafe_code)] // named file: system calls
pub(crate) mod epoll;
pub(crate) mod fatal;
#[allow(unsafe_code)] // named file: the value behind a latch
pub(crate) mod latch;
#[cfg(not(loom))]
pub(crate) mod lock;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: a system call
pub(crate) mod memory;
pub(crate) mod mutant;
#[cfg(not(loom))]
pub(crate) mod note;
#[cfg(not(loom))]
pub(crate) mod place;
#[cfg(not(loom))]
pub(crate) mod rng;

/// The nanoseconds of a duration, or as many as the clock has: five centuries. The division
/// into seconds is std's, and 128 bits are slow.
#[cfg(not(loom))]
#[inline]
pub(crate) fn nanos(duration: std::time::Duration) -> u64 {
    let whole = duration.as_secs().checked_mul(1_000_000_000);
    whole.and_then(|whole| whole.checked_add(duration.subsec_nanos().into())).unwrap_or(u64::MAX)
}
