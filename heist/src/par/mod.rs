//! Fork-join on goroutines, with rayon-core's names.
//!
//! | | |
//! |---|---|
//! | [`join()`] | two closures, perhaps at the same time |
//! | [`par_for`], [`map_reduce`], [`par_chunks`], [`par_chunks_mut`], [`sort_unstable`] | over ranges and slices, without a grain size |
//! | [`scope()`], [`spawn()`] | any number of closures |
//! | [`broadcast()`] | once on every P |
//! | [`ThreadPool`] | a runtime with Ps of its own |
//! | [`measure`] | work, span and parallelism of a computation |
//!
//! All of it runs on the scheduler that runs goroutines. A closure may block, on
//! channels, mutexes, sockets, or another branch: others run meanwhile. Whoever waits
//! for a branch parks, and runs nobody else's on its stack, so a join with a mutex held
//! does not deadlock as it may in rayon.
//!
//! A plain thread forks on the default runtime. If that is what starts it, its goroutines have
//! stacks of 2 MiB, as threads do, and the variables `RAYON_NUM_THREADS` and
//! `RAYON_RS_NUM_CPUS` count:
//!
//! ```standalone_crate
//! fn deep(levels: u32) -> u32 {
//!     let frame = std::hint::black_box([1u8; 1000]);
//!     if levels == 0 { 0 } else { deep(levels - 1) + u32::from(frame[0]) }
//! }
//! assert_eq!(heist::par::join(|| deep(300), || ()).0, 300);
//! ```
//!
//! The package `heist-rayon-core` is this module under the name of `rayon-core`, so
//! that all of rayon's parallel iterators run on it.
//!
//! `par/README.md` in the sources says how it works and why.

#[allow(unsafe_code)] // named file: jobs that borrow
mod broadcast;
#[cfg(not(sim))]
mod builder;
#[allow(unsafe_code)] // named file: parts of a slice
mod chunks;
#[cfg_attr(sim, allow(dead_code))] // pools are not simulated
mod here;
#[allow(unsafe_code)] // named file: branches in frames
mod join;
#[allow(unsafe_code)] // named file: the meter of a goroutine
mod measure;
#[allow(unsafe_code)] // named file: as `join`
mod piece;
#[cfg(not(sim))]
mod pool;
mod range;
#[cfg_attr(sim, allow(dead_code))] // as `here`
mod registry;
#[allow(unsafe_code)] // named file: jobs that borrow
mod scope;
mod sort;
#[allow(unsafe_code)] // named file: jobs that borrow
mod spawn;
#[cfg(not(sim))]
#[allow(unsafe_code)] // named file: a function that borrows
mod wrapped;

pub use broadcast::{BroadcastContext, broadcast, spawn_broadcast};
#[cfg(not(sim))]
#[allow(deprecated)]
#[doc(hidden)]
pub use builder::{Configuration, initialize};
#[cfg(not(sim))]
pub use builder::{
    CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadPoolBuildError, ThreadPoolBuilder, ThreadSpawn,
};
pub use chunks::{par_chunks, par_chunks_mut};
pub use here::{
    Yield, current_thread_has_pending_tasks, current_thread_index, max_num_threads, yield_local,
    yield_now,
};
pub use join::{FnContext, join, join_context};
pub use measure::{Measured, measure};
#[cfg(not(sim))]
pub use pool::ThreadPool;
pub use range::{map_reduce, par_for};
pub use scope::{Scope, ScopeFifo, in_place_scope, in_place_scope_fifo, scope, scope_fifo};
pub use sort::{sort_unstable, sort_unstable_by, sort_unstable_by_key};
pub use spawn::{current_num_threads, spawn, spawn_fifo};
