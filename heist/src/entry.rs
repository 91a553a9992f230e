//! The front door: `go`, `run`, and what the attribute macros call.

use crate::runtime::{self, Builder};
use crate::sched::{park, syscall};
use crate::thread::{self, JoinHandle};
use std::panic::Location;

/// Spawns a goroutine, as Go's `go` does: on the runtime of the caller if that
/// is a goroutine, and on the default runtime, which starts at its first use,
/// otherwise.
///
/// It costs a few dozen nanoseconds and no stack until it runs. The handle can
/// be joined, or dropped to let the goroutine go its way.
///
/// ```
/// let answer = heist::go(|| 6 * 7);
/// assert_eq!(answer.join().unwrap(), 42);
/// ```
///
/// # Panics
///
/// If there is no memory for it; [`thread::Builder`] returns an error instead. A goroutine
/// whose runtime shuts down is unwound here, as it is where it waits, which is no panic.
#[inline]
#[track_caller]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    thread::spawn(f)
}

/// Spawns a goroutine of idle priority: it runs only when a P would otherwise
/// have nothing to do. When it yields or is made ready it waits for such a
/// moment again.
///
/// ```
/// heist::run(|| {
///     let background = heist::go_idle(|| "all quiet");
///     assert_eq!(background.join().unwrap(), "all quiet");
/// });
/// ```
///
/// # Panics
///
/// As [`go`].
#[track_caller]
pub fn go_idle<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    thread::spawn_idle(f)
}

/// Runs `f` as a goroutine of the default runtime and waits for its value. What
/// `f` borrows may live on the caller's stack.
///
/// ```
/// let words = ["plain", "blocking", "code"];
/// let longest = heist::run(|| words.iter().map(|word| word.len()).max());
/// assert_eq!(longest, Some(8));
/// ```
///
/// # Panics
///
/// With the panic of `f`, if it panics.
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    runtime::run_on(runtime::default_sched(), None, Location::caller(), f)
}

/// Runs a call that may block its OS thread: a read from a slow disk, a C library,
/// a lock that is not heist's.
///
/// It costs two stores. If the call returns soon, nothing else has happened; if it
/// lasts, another thread takes over the other goroutines. Calls that nobody
/// declares are found out, too, but later. Afterwards the goroutine may be on
/// another thread; `errno` is what the call left. Outside of goroutines, just runs
/// `f`.
///
/// ```
/// let text = heist::run(|| heist::syscall(|| std::fs::read_to_string("/proc/self/comm")));
/// assert!(!text.unwrap().is_empty());
/// ```
#[inline]
pub fn syscall<F: FnOnce() -> T, T>(f: F) -> T {
    syscall::syscall(f)
}

/// Runs a call that will block its OS thread for long, or compute for long: the
/// other goroutines are handed to another thread at once.
///
/// As [`syscall`], which is the better choice for calls that often return soon.
///
/// ```
/// use std::time::Duration;
/// heist::run(|| heist::blocking(|| std::thread::sleep(Duration::from_millis(1))));
/// ```
pub fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    syscall::blocking(f)
}

/// Runs `f` without preemption: however long it computes, the goroutine keeps its
/// P and is not stopped. What blocks still blocks, and others run meanwhile. When it
/// returns, others may run first if they have waited.
///
/// For code that must not be interrupted between two steps, such as a measurement.
/// It does not exclude other goroutines: those on other threads run on.
///
/// ```
/// let ticks = heist::run(|| heist::no_preempt(|| (0..1000u32).sum::<u32>()));
/// assert_eq!(ticks, 499_500);
/// ```
pub fn no_preempt<F: FnOnce() -> T, T>(f: F) -> T {
    park::no_preempt(f)
}

/// Go's tools for looking inside.
pub mod debug {
    /// All goroutines of the process as text: id, name, state, why and how long
    /// they wait, and where they were spawned.
    ///
    /// ```
    /// let dump = heist::run(heist::debug::dump);
    /// assert!(dump.contains("[running]"), "{dump}");
    /// ```
    pub fn dump() -> String {
        crate::obs::dump_to_string()
    }
}

/// For the attribute macros only.
#[doc(hidden)]
pub mod __private {
    use super::{Builder, Location, runtime};
    use crate::panics::Kept;

    /// The body of `#[heist::main]`.
    #[track_caller]
    pub fn main<T: Send>(max_procs: Option<usize>, f: impl FnOnce() -> T + Send) -> T {
        let builder = match max_procs {
            Some(procs) => Builder::new().max_procs(procs),
            None => Builder::new(),
        };
        let sched = runtime::default_with(builder.clone());
        if max_procs.is_none_or(|procs| procs == sched.procs() as usize) {
            return runtime::run_on(sched, Some("main".into()), Location::caller(), f);
        }
        // The default runtime had started with another number.
        let own = builder.build().unwrap_or_else(|error| panic!("cannot start a runtime: {error}"));
        own.run(f)
    }

    /// The body of `#[heist::test]`.
    #[track_caller]
    pub fn test<T: Send>(
        max_procs: Option<usize>,
        name: &'static str,
        f: impl FnOnce() -> T + Send,
    ) -> T {
        // The name as libtest prints it: without the crate.
        let name = name.split_once("::").map_or(name, |(_, rest)| rest);
        let kept = Kept::new();
        let f = || {
            kept.begin();
            f()
        };
        let Some(procs) = max_procs else {
            let sched = runtime::default_sched();
            return runtime::run_on(sched, Some(name.into()), Location::caller(), f);
        };
        let own = Builder::new()
            .max_procs(procs)
            .build()
            .unwrap_or_else(|error| panic!("cannot start a runtime: {error}"));
        own.run_named(name, Location::caller(), f)
    }
}
