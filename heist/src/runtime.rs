//! Runtimes: how they are built, entered and asked about.

use crate::obs;
use crate::prim::atomic::Ordering;
use crate::sched::mask::MAX_PROCS;
use crate::sched::schedt::Sched;
use crate::sched::{m, shutdown, signal, spawn, stop};
use crate::stacks;
use crate::thread::{JoinHandle, join};
use std::panic::Location;
use std::sync::OnceLock;

mod builder;
mod lock_thread;

pub use crate::obs::Stats;
pub use crate::sched::schedt::PanicPolicy;
pub use builder::{BuildError, Builder};
pub use lock_thread::{Pinned, lock_os_thread, pin, unlock_os_thread};

/// A scheduler with its own Ps and threads.
///
/// Most programs need none of their own: [`heist::go`](crate::go) starts the
/// default one at its first use. Dropping a runtime stops it: goroutines that
/// are parked are unwound (their destructors run, and whoever joins them from outside gets an
/// error) without a word, no thread stays behind. The others are unwound at their next call that
/// waits, looks at something in vain (`try_recv`, say), or yields; of those that might wait
/// and need not, such as the lock of a free mutex, a goroutine has some sixty more.
///
/// A goroutine that makes no such call cannot be stopped. It computes, or blocks its
/// thread; it does nothing but what never waits (starts timers, notifies, cancels, forks) or
/// what the kernel does while the thread waits (files, [`heist::syscall`](crate::syscall),
/// [`heist::blocking`](crate::blocking)); or it catches the unwinding time and again. It is left behind, with its thread, when the
/// [`shutdown_timeout`](Builder::shutdown_timeout) is over.
///
/// ```
/// let runtime = heist::Builder::new().max_procs(1).build()?;
/// let sum: u32 = runtime.run(|| {
///     let parts: Vec<_> = (0..4u32).map(|i| heist::go(move || i * i)).collect();
///     parts.into_iter().map(|part| part.join().unwrap()).sum()
/// });
/// assert_eq!(sum, 14);
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    sched: &'static Sched,
}

impl Runtime {
    /// A runtime with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> Result<Runtime, BuildError> {
        Builder::new().build()
    }

    /// Runs `f` as a goroutine of this runtime and waits for its value. Other
    /// goroutines may still be there when it returns.
    ///
    /// # Panics
    ///
    /// With the panic of `f`, if it panics.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        run_on(self.sched, None, Location::caller(), f)
    }

    pub(crate) fn run_named<F, T>(&self, name: &str, site: &'static Location<'static>, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        run_on(self.sched, Some(name.into()), site, f)
    }

    /// Spawns a goroutine on this runtime, from anywhere.
    ///
    /// # Panics
    ///
    /// If there is no memory for it; [`thread::Builder`](crate::thread::Builder)
    /// returns an error instead.
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        JoinHandle::spawn_on(self.sched, f, spawn::Options::default(), Location::caller())
            .unwrap_or_else(|error| join::not_spawned(&error, Location::caller()))
    }

    /// The number of this runtime's Ps.
    pub fn max_procs(&self) -> usize {
        self.sched.procs() as usize
    }

    /// Changes the number of Ps; see [`set_max_procs`].
    ///
    /// # Panics
    ///
    /// If `procs` is 0 or more than 1,024.
    #[track_caller]
    pub fn set_max_procs(&self, procs: usize) -> usize {
        resize(self.sched, procs)
    }

    /// The number of this runtime's goroutines that live.
    pub fn num_goroutines(&self) -> usize {
        self.sched.goroutines()
    }

    /// What this runtime has done so far.
    pub fn stats(&self) -> Stats {
        obs::stats(self.sched)
    }
}

#[cfg(not(sim))] // pools are not simulated
impl Runtime {
    /// Its scheduler; whoever takes it ends it.
    pub(crate) fn into_sched(self) -> &'static Sched {
        let sched = self.sched;
        std::mem::forget(self);
        sched
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        shutdown::close(self.sched);
    }
}

/// Runs `f` as a goroutine and waits for it.
#[track_caller]
pub(crate) fn run_on<F, T>(
    sched: &'static Sched,
    name: Option<std::sync::Arc<str>>,
    site: &'static Location<'static>,
    f: F,
) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let options = spawn::Options { name, ..Default::default() };
    match crate::thread::scoped::call(sched, options, site, f) {
        Ok(Ok(value)) => value,
        Ok(Err(payload)) => match sched.fatal_panic_of(&payload) {
            Some(id) => panic!("the runtime was shut down by a panic in goroutine {id}"),
            None => std::panic::resume_unwind(payload),
        },
        Err(error) => join::failed(&error),
    }
}

static DEFAULT: OnceLock<Runtime> = OnceLock::new();

/// Whether there is a default runtime.
#[cfg(not(sim))] // pools are not simulated
pub(crate) fn default_is_set() -> bool {
    DEFAULT.get().is_some()
}

/// Makes a runtime the default one. False if there is one already.
#[cfg(not(sim))] // pools are not simulated
pub(crate) fn set_default(sched: &'static Sched) -> bool {
    match DEFAULT.set(Runtime { sched }) {
        Ok(()) => true,
        Err(runtime) => {
            std::mem::forget(runtime);
            false
        }
    }
}

/// The default runtime, started if need be.
pub(crate) fn default_sched() -> &'static Sched {
    default_with(Builder::new())
}

/// The default runtime, started from `builder` if it does not run yet.
pub(crate) fn default_with(builder: Builder) -> &'static Sched {
    if signal::forked() {
        panic!(
            "heist: this process was forked from one with a runtime, whose threads are gone; \
             only exec or exit from here"
        );
    }
    DEFAULT
        .get_or_init(|| {
            builder
                .build()
                .unwrap_or_else(|error| panic!("cannot start the default runtime: {error}"))
        })
        .sched
}

/// The scheduler of the calling goroutine, or the default one.
pub(crate) fn current_sched() -> &'static Sched {
    m::current().map_or_else(default_sched, |m| m.sched)
}

/// The number of Ps of the runtime that the caller is on; on a plain thread,
/// that of the default one.
///
/// ```
/// assert!(heist::run(heist::runtime::max_procs) >= 1);
/// ```
pub fn max_procs() -> usize {
    current_sched().procs() as usize
}

/// Changes the number of Ps of the runtime that the caller is on, or of the default
/// one, while it runs; returns what it was. Goroutines that wait for a P that goes
/// run on the others. From now on the number no longer follows the CPU limit.
///
/// ```
/// heist::run(|| {
///     let before = heist::runtime::set_max_procs(3);
///     assert_eq!(heist::runtime::max_procs(), 3);
///     heist::runtime::set_max_procs(before);
/// });
/// ```
///
/// # Panics
///
/// If `procs` is 0 or more than 1,024.
#[track_caller]
pub fn set_max_procs(procs: usize) -> usize {
    resize(current_sched(), procs)
}

#[track_caller]
fn resize(sched: &'static Sched, procs: usize) -> usize {
    assert!(
        (1..=MAX_PROCS).contains(&procs),
        "set_max_procs({procs}): there must be at least 1 P, and at most {MAX_PROCS}"
    );
    sched.follow_limit.store(false, Ordering::Relaxed);
    // One that closes keeps what it has.
    let before = stop::set_procs(sched, procs as u32, stop::Reason::SetMaxProcs);
    before.unwrap_or_else(|| sched.procs()) as usize
}

/// Gives memory that is kept for goroutines to come back to the kernel now, and
/// not when it has been idle for a while: the stacks that each P has at hand, and
/// those in the pool.
///
/// ```
/// heist::run(heist::runtime::release_memory);
/// ```
pub fn release_memory() {
    let sched = current_sched();
    crate::sched::syscall::blocking(|| stop::on_each_p(sched, stop::flush));
    stacks::trim_all();
}

/// The number of goroutines that live on the caller's runtime, the caller
/// included.
///
/// ```
/// heist::run(|| assert!(heist::runtime::num_goroutines() >= 1));
/// ```
pub fn num_goroutines() -> usize {
    current_sched().goroutines()
}

/// The id of the calling goroutine: unique in the process and never used again.
/// `None` on a plain thread.
///
/// ```
/// assert!(heist::run(heist::runtime::goroutine_id).is_some());
/// assert!(heist::runtime::goroutine_id().is_none());
/// ```
pub fn goroutine_id() -> Option<u64> {
    m::current_g().map(crate::sched::g::G::id)
}

/// The default size of a goroutine's stack, its guard page included.
pub const DEFAULT_STACK_SIZE: usize = stacks::DEFAULT_SIZE;

/// What the caller's runtime has done so far.
///
/// ```
/// let stats = heist::run(heist::runtime::stats);
/// assert!(stats.spawned >= 1);
/// ```
pub fn stats() -> Stats {
    obs::stats(current_sched())
}
