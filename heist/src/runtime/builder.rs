//! Setting up a runtime, and why one could not be.

use super::{PanicPolicy, Runtime};
use crate::obs;
use crate::prim::env;
use crate::prim::thread::usable_cpus;
use crate::sched::mask::MAX_PROCS;
use crate::sched::schedt::{Config, Sched};
use crate::sched::{signal, sysmon, wake};
use crate::stacks::Class;
use std::fmt;
use std::io;
use std::time::Duration;

/// Sets up a [`Runtime`].
///
/// ```
/// let runtime = heist::Builder::new().max_procs(2).stack_size(64 << 10).build()?;
/// assert_eq!(runtime.run(|| heist::runtime::max_procs()), 2);
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `build`"]
pub struct Builder {
    procs: Option<usize>,
    stack_size: Option<usize>,
    thread_name: String,
    max_threads: usize,
    max_runners: Option<usize>,
    idle_thread: Duration,
    shutdown: Duration,
    panic: PanicPolicy,
    seed: Option<u64>,
    tls_guard: bool,
    reserved: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A builder with the defaults that each method names.
    pub fn new() -> Self {
        Builder {
            procs: None,
            stack_size: None,
            thread_name: "heist".into(),
            max_threads: 10_000,
            max_runners: None,
            idle_thread: Duration::from_secs(10),
            shutdown: Duration::from_secs(1),
            panic: PanicPolicy::Isolate,
            seed: None,
            tls_guard: false,
            reserved: 0,
        }
    }

    /// How many goroutines run at the same time: the number of Ps. By default
    /// what the environment variable `HEIST_MAX_PROCS` says, else the number of
    /// CPUs that this process may run on; if its cgroups have a quota for CPU time, no
    /// more than that, rounded up, but two if there are two (Go's rule).
    pub fn max_procs(mut self, procs: usize) -> Self {
        self.procs = Some(procs);
        self
    }

    /// The least stack that each goroutine can use, in bytes. Memory is
    /// committed as it is touched, so a large size costs address space only. By
    /// default 124 KiB, and 252 KiB with debug assertions.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// What the names of the runtime's threads begin with. By default `heist`,
    /// for `heist-m0` and so on.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// The most OS threads, by default 10,000. Each goroutine that blocks its
    /// thread needs one; past the limit the program ends with an error that
    /// says so.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = threads;
        self
    }

    /// How many goroutines that compute past their slice (10 ms; less, when a timer is
    /// late) may go on beside those that have a P, each on its thread, by default as many
    /// as there are Ps.
    /// The kernel shares the CPUs among them all. One more, and the one that has had most
    /// of its turn is stopped, by a signal, until the next one comes. With 0, no more than
    /// [`max_procs`](Self::max_procs) compute, give or take the moment that it takes
    /// to stop one.
    ///
    /// ```
    /// let strict = heist::Builder::new().max_procs(1).max_runners(0).build()?;
    /// let shared = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    /// let flag = shared.clone();
    /// strict.run(move || {
    ///     let hog = heist::go(move || while !flag.load(std::sync::atomic::Ordering::Relaxed) {});
    ///     heist::thread::yield_now(); // runs the hog, and comes back
    ///     shared.store(true, std::sync::atomic::Ordering::Relaxed);
    ///     hog.join().unwrap();
    /// });
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub fn max_runners(mut self, runners: usize) -> Self {
        self.max_runners = Some(runners);
        self
    }

    /// How long a thread that is not needed is kept, by default ten seconds.
    pub fn thread_keep_alive(mut self, time: Duration) -> Self {
        self.idle_thread = time;
        self
    }

    /// How long dropping the [`Runtime`] waits for goroutines that cannot be stopped, since
    /// they compute, block their threads or refuse to unwind ([`Runtime`] has the details),
    /// by default a second. Then they are left behind, and that is reported on standard
    /// error.
    pub fn shutdown_timeout(mut self, time: Duration) -> Self {
        self.shutdown = time;
        self
    }

    /// What a panic in a goroutine does, by default [`PanicPolicy::Isolate`].
    pub fn panic_policy(mut self, policy: PanicPolicy) -> Self {
        self.panic = policy;
        self
    }

    /// The seed of the random numbers that scatter thieves. By default a new
    /// one for each runtime.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether the stacks of goroutines are searched for references to thread-locals
    /// whenever they wait or yield. By default they are not.
    ///
    /// A goroutine that seems to have one, say since it waits while it has borrowed
    /// from a `thread_local!`, waits with its thread, as if it were [pinned](super::pin):
    /// what it holds stays good, and nobody else finds it borrowed. With debug
    /// assertions it is also reported on standard error, once for each place where
    /// goroutines are spawned. [`Stats`](super::Stats) counts the searches and what they found. The
    /// environment variable `HEISTDEBUG=tlsguard=1` (or `0`) decides for all runtimes.
    ///
    /// It costs a nanosecond for a few words of stack at each wait (`heist-bench ops` has
    /// a round trip with it beside one without). A word that only
    /// looks like a reference costs a thread; in builds without optimisation they are
    /// common. What it does not see: thread-locals of libraries that were loaded later
    /// or that use `pthread_key_create`, and what a thread-local only points to, such
    /// as a cloned `Rc`. [`pin`](super::pin) helps against all of them.
    ///
    /// ```
    /// let runtime = heist::Builder::new().tls_guard(true).build()?;
    /// runtime.run(|| heist::thread::yield_now());
    /// assert!(runtime.stats().tls_searches >= 1);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub fn tls_guard(mut self, on: bool) -> Self {
        self.tls_guard = on;
        self
    }

    /// The first Ps are there, but never run anything.
    #[cfg(not(sim))] // pools are not simulated
    pub(crate) fn reserve_procs(mut self, procs: usize) -> Self {
        self.reserved = procs;
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    ///
    /// If a value makes no sense, or the kernel has no thread or memory for it.
    pub fn build(self) -> Result<Runtime, BuildError> {
        self.build_hosted(0)
    }

    /// As [`build`](Self::build); so many threads come from the user.
    pub(crate) fn build_hosted(self, hosted: usize) -> Result<Runtime, BuildError> {
        let config = Config { hosted, ..self.config()? };
        sysmon::set_reports(obs::reports());
        signal::install();
        crate::panics::install_hook();
        let sched = Sched::open(config).ok_or(BuildError::TooMany)?;
        let runtime = Runtime { sched };
        #[cfg(not(sim))] // machines of the simulator do not run out of descriptors
        sched.poll.open_early();
        sysmon::start(sched).map_err(BuildError::Thread)?;
        // The first M starts now: a machine that has no thread for it says so
        // here and not at the first spawn.
        if hosted == 0 {
            wake::start_first(sched).map_err(BuildError::Thread)?;
        }
        Ok(runtime)
    }

    fn config(self) -> Result<Config, BuildError> {
        let variable = env::var("HEIST_MAX_PROCS").filter(|text| !text.is_empty());
        let follow_limit = self.procs.is_none() && variable.is_none();
        let procs = match self.procs {
            Some(procs) => procs,
            None => procs_from(variable.as_deref())?,
        };
        if procs == 0 || procs > MAX_PROCS {
            return Err(BuildError::Procs(procs));
        }
        if self.max_threads == 0 {
            return Err(BuildError::MaxThreads);
        }
        if self.thread_name.contains('\0') {
            return Err(BuildError::ThreadName);
        }
        let stack = match self.stack_size {
            None => Class::default_class(),
            Some(bytes) => {
                Class::for_usable(bytes).map_err(|error| BuildError::Stack(error.into()))?
            }
        };
        let debug = obs::Debug::from_env(env::var("HEISTDEBUG").as_deref());
        Ok(Config {
            procs,
            follow_limit,
            hosted: 0,
            reserved: self.reserved,
            stack,
            thread_name: self.thread_name,
            max_threads: self.max_threads,
            max_runners: self.max_runners,
            idle_thread: self.idle_thread,
            shutdown: self.shutdown,
            panic: self.panic,
            seed: self.seed.unwrap_or_else(env::entropy),
            trace: debug.schedtrace,
            trace_detail: debug.scheddetail,
            tls_guard: debug.tlsguard.unwrap_or(self.tls_guard),
        })
    }
}

fn procs_from(variable: Option<&str>) -> Result<usize, BuildError> {
    match variable {
        None => Ok(usable_cpus().min(MAX_PROCS)),
        Some(text) => {
            let procs = text.trim().parse().ok().filter(|procs| (1..=MAX_PROCS).contains(procs));
            procs.ok_or_else(|| BuildError::Variable(text.to_owned()))
        }
    }
}

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of Ps is zero or absurd.
    Procs(usize),
    /// `HEIST_MAX_PROCS` is not a number, or zero or absurd.
    Variable(String),
    /// The stack size is absurd.
    Stack(io::Error),
    /// The limit on threads leaves none.
    MaxThreads,
    /// The name of the threads has a NUL byte in it.
    ThreadName,
    /// The kernel refused a thread.
    Thread(io::Error),
    /// There are 4,096 runtimes already.
    TooMany,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Procs(n) => {
                write!(f, "max_procs is {n}; it must be at least 1 and at most {MAX_PROCS}")
            }
            BuildError::Variable(text) => write!(
                f,
                "HEIST_MAX_PROCS is '{text}'; it must be a number from 1 to {MAX_PROCS}, or unset"
            ),
            BuildError::Stack(error) => error.fmt(f),
            BuildError::MaxThreads => f.write_str("max_threads is 0; it must be at least 1"),
            BuildError::ThreadName => f.write_str("thread_name must not contain NUL"),
            BuildError::Thread(error) => write!(
                f,
                "the kernel refused a thread ({error}); raise the limits (ulimit -u, the \
                 cgroup's pids.max) or free memory"
            ),
            BuildError::TooMany => {
                f.write_str("there are 4096 runtimes already; drop some or share one")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Stack(error) | BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::fault;

    #[test]
    fn what_makes_no_sense_is_an_error_that_says_what_to_do() {
        let build = |builder: Builder| builder.build().unwrap_err().to_string();
        assert!(build(Builder::new().max_procs(0)).contains("at least 1"));
        assert!(build(Builder::new().max_procs(MAX_PROCS + 1)).contains("at most 1024"));
        assert!(build(Builder::new().max_threads(0)).contains("at least 1"));
        assert!(build(Builder::new().thread_name("a\0b")).contains("NUL"));
        for size in [1 << 40, isize::MAX as usize, usize::MAX] {
            assert!(build(Builder::new().stack_size(size)).contains("smaller stack_size"));
        }
        assert!(procs_from(Some("many")).unwrap_err().to_string().contains("'many'"));
        assert_eq!(procs_from(Some(" 3 ")).unwrap(), 3);
    }

    #[test]
    fn a_refused_first_thread_is_an_error() {
        let _alone = crate::tests_alone();
        fault::THREAD_START.arm(0, 1);
        let error = Builder::new().max_procs(1).build().unwrap_err();
        assert!(error.to_string().contains("refused a thread"), "{error}");
        fault::THREAD_START.arm(1, 1);
        let error = Builder::new().max_procs(1).build().unwrap_err();
        assert!(error.to_string().contains("ulimit -u"), "{error}");
        assert_eq!(Builder::new().max_procs(1).build().unwrap().run(|| 7), 7);
    }

    #[test]
    fn a_refused_later_thread_stops_nobody() {
        let _alone = crate::tests_alone();
        let runtime = Builder::new().max_procs(4).build().unwrap();
        fault::THREAD_START.arm(0, 3);
        let sum: u64 = runtime.run(|| {
            let handles: Vec<_> = (0..1000u64).map(|i| crate::go(move || i)).collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum()
        });
        fault::THREAD_START.arm(0, 0);
        assert_eq!(sum, 499_500);
    }

    #[test]
    fn refused_memory_for_stacks_delays_and_loses_nothing() {
        let _alone = crate::tests_alone();
        // Control blocks are mapped, too: they are there when stacks are refused.
        Builder::new().build().unwrap().run(|| crate::go(|| ()).join().unwrap());
        let runtime = Builder::new().max_procs(2).stack_size(300 << 10).build().unwrap();
        fault::MAP.arm(0, 5);
        assert_eq!(runtime.run(|| crate::go(|| 5).join().unwrap()), 5);
        fault::MAP.arm(0, 0);
    }
}
