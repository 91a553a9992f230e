//! heist's fork-join with the interface of rayon-core 1.13.
//!
//! With this in a program's `Cargo.toml`, rayon's parallel iterators, and every crate
//! that uses them, run on heist's scheduler:
//!
//! ```toml
//! [patch.crates-io]
//! rayon-core = { path = "heist-rayon-core" }
//! ```
//!
//! Everything here is [`heist::par`]; see there.

pub use heist::par::{
    BroadcastContext, FnContext, Scope, ScopeFifo, ThreadBuilder, ThreadPool, ThreadPoolBuildError,
    ThreadPoolBuilder, Yield, broadcast, current_num_threads, current_thread_has_pending_tasks,
    current_thread_index, in_place_scope, in_place_scope_fifo, join, join_context, max_num_threads,
    scope, scope_fifo, spawn, spawn_broadcast, spawn_fifo, yield_local, yield_now,
};

#[allow(deprecated)]
#[doc(hidden)]
pub use heist::par::{Configuration, initialize};
