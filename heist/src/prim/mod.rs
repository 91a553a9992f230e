//! The seam to the machine.
//!
//! Every shared word, lock, futex, clock reading, thread start and random
//! number of heist goes through this module, so that the same scheduler source
//! runs on different machines, chosen by `cfg`:
//!
//! | backend | file | chosen by | what it is |
//! |---|---|---|---|
//! | native | `native.rs` | default | Linux: std's atomics, futex(2), membarrier(2) |
//! | loom | `model.rs` | `--cfg loom` | loom's atomics; explores every interleaving |
//!
//! A third one, a deterministic simulator, has its place here too: it provides
//! the same names and nothing above this module changes. What is *not* covered:
//! memory mappings and signals (`stack`, `sched::signal`), which have no meaning
//! on a simulated machine.
//!
//! The test `layering` reads the sources and fails when a file above this
//! module names `std::sync::atomic`, `std::thread` or `libc::syscall`.

#[cfg(loom)]
#[allow(unsafe_code)] // named file: the models' plain memory
mod model;
#[cfg(not(loom))]
#[allow(unsafe_code)] // named file: system calls and the thread slot
mod native;

#[cfg(loom)]
pub(crate) use model::{atomic, hint};
#[cfg(all(loom, test))]
pub(crate) use model::{bed, cell};
#[cfg(not(loom))]
pub(crate) use native::{atomic, clock, env, futex, hint, os, thread};

#[cfg(all(test, not(loom)))]
pub(crate) use native::fault;

pub(crate) mod fatal;
#[allow(unsafe_code)] // named file: the value behind a latch
pub(crate) mod latch;
#[cfg(not(loom))]
pub(crate) mod lock;
#[cfg(not(loom))]
pub(crate) mod note;
#[cfg(not(loom))]
pub(crate) mod rng;
