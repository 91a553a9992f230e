//! Setting a pool up.

use super::here;
use super::pool::ThreadPool;
use super::registry::{PanicHandler, Registry, ThreadHandler};
use super::wrapped::{Relief, Wrapped};
use crate::prim::{env, thread};
use crate::runtime::{self, BuildError};
use crate::sched::m;
use crate::sched::mask::MAX_PROCS;
use crate::sched::schedt::Sched;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The stack that the goroutines of a pool have unless it says otherwise, in bytes: as
/// much as std's threads. It is address space; memory comes as it is touched.
const STACK: usize = (2 << 20) - (16 << 10);

/// The stack of a pool's thread, whose goroutines have their own.
const THREAD_STACK: usize = 256 << 10;

/// Sets up a [`ThreadPool`], with rayon's names.
///
/// ```
/// let pool = heist::par::ThreadPoolBuilder::new()
///     .num_threads(2)
///     .thread_name(|index| format!("worker-{index}"))
///     .build()?;
/// assert_eq!(pool.current_num_threads(), 2);
/// # Ok::<(), heist::par::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPoolBuilder<S = DefaultSpawn> {
    num_threads: usize,
    use_current_thread: bool,
    panic_handler: Option<Box<PanicHandler>>,
    thread_name: Option<Box<dyn FnMut(usize) -> String>>,
    stack_size: Option<usize>,
    start_handler: Option<Box<ThreadHandler>>,
    exit_handler: Option<Box<ThreadHandler>>,
    spawn_handler: S,
    breadth_first: bool,
}

impl Default for ThreadPoolBuilder {
    fn default() -> Self {
        ThreadPoolBuilder {
            num_threads: 0,
            use_current_thread: false,
            panic_handler: None,
            thread_name: None,
            stack_size: None,
            start_handler: None,
            exit_handler: None,
            spawn_handler: DefaultSpawn,
            breadth_first: false,
        }
    }
}

impl ThreadPoolBuilder {
    /// A builder with the defaults that each method names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a pool whose threads, also those that come [later](Self::start_handler), run
    /// inside of `wrapper`, which must call [`ThreadBuilder::run`]; calls `with_pool` with it, and returns when its threads
    /// have ended. What the threads see may borrow.
    ///
    /// ```
    /// let greeting = String::from("hello");
    /// let length = heist::par::ThreadPoolBuilder::new().num_threads(1).build_scoped(
    ///     |thread| {
    ///         assert_eq!(greeting, "hello");
    ///         thread.run();
    ///     },
    ///     |pool| pool.install(|| greeting.len()),
    /// )?;
    /// assert_eq!(length, 5);
    /// # Ok::<(), heist::par::ThreadPoolBuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_scoped<W, F, R>(self, wrapper: W, with_pool: F) -> Result<R, ThreadPoolBuildError>
    where
        W: Fn(ThreadBuilder) + Sync,
        F: FnOnce(&ThreadPool) -> R,
    {
        let wrapper = &wrapper;
        Wrapped::during(wrapper, |wrapped| {
            thread::scope(|scope| {
                let spawn = |builder: ThreadBuilder| {
                    let mut named = thread::Builder::new();
                    if let Some(name) = builder.name() {
                        named = named.name(name.to_owned());
                    }
                    named.spawn_scoped(scope, move || wrapper(builder)).map(drop)
                };
                let registry = self.spawn_handler(spawn).start(Some(wrapped))?;
                Ok(with_pool(&ThreadPool::of(registry)))
            })
        })
    }
}

impl<S> ThreadPoolBuilder<S> {
    /// How many closures run at a time; 0, the default, means what the environment
    /// variable `RAYON_NUM_THREADS` says, else the number of CPUs.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// The calling thread counts as a part of the pool, its first, and one thread less
    /// is started. It does not run goroutines: what it calls on the pool runs there,
    /// while it waits; and if it is the only one, the pool has a thread of its own.
    ///
    /// In rayon the thread runs what others have spawned whenever it waits inside of the
    /// pool. Here that would be on top of frames that it cannot leave: what blocks there
    /// would keep the thread from going on when what it waits for is done, which is the
    /// trouble that goroutines are meant to end.
    pub fn use_current_thread(mut self) -> Self {
        self.use_current_thread = true;
        self
    }

    /// Names the threads.
    pub fn thread_name<F: FnMut(usize) -> String + 'static>(mut self, name: F) -> Self {
        self.thread_name = Some(Box::new(name));
        self
    }

    /// The least stack that a goroutine of the pool can use, by default 2 MiB. Forks go
    /// on on further segments when it is short, whatever its size.
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// Has the panics of what was [spawned](super::spawn()). By default they abort the
    /// process.
    pub fn panic_handler<H>(mut self, handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.panic_handler = Some(Box::new(handler));
        self
    }

    /// Called on each thread of the pool when it starts, with its number.
    ///
    /// While a closure computes for more than some milliseconds, or blocks its thread, others
    /// run on a further thread. That is set up in the same way, with the number of one of the
    /// pool's own.
    pub fn start_handler<H: Fn(usize) + Send + Sync + 'static>(mut self, handler: H) -> Self {
        self.start_handler = Some(Box::new(handler));
        self
    }

    /// Called on each thread of the pool when it ends, with its number.
    pub fn exit_handler<H: Fn(usize) + Send + Sync + 'static>(mut self, handler: H) -> Self {
        self.exit_handler = Some(Box::new(handler));
        self
    }

    /// Starts the pool's threads with a function of the user's, which must see to it
    /// that [`ThreadBuilder::run`] is called on a new thread. The function need not live
    /// longer than this call, so threads that come [later](Self::start_handler) are heist's,
    /// between the same handlers.
    ///
    /// ```
    /// let pool = heist::par::ThreadPoolBuilder::new()
    ///     .num_threads(2)
    ///     .spawn_handler(|thread| {
    ///         std::thread::spawn(|| thread.run());
    ///         Ok(())
    ///     })
    ///     .build()?;
    /// assert_eq!(pool.install(|| 7), 7);
    /// # Ok::<(), heist::par::ThreadPoolBuildError>(())
    /// ```
    pub fn spawn_handler<F>(self, spawn: F) -> ThreadPoolBuilder<CustomSpawn<F>>
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        ThreadPoolBuilder {
            spawn_handler: CustomSpawn(spawn),
            num_threads: self.num_threads,
            use_current_thread: self.use_current_thread,
            panic_handler: self.panic_handler,
            thread_name: self.thread_name,
            stack_size: self.stack_size,
            start_handler: self.start_handler,
            exit_handler: self.exit_handler,
            breadth_first: self.breadth_first,
        }
    }

    /// Accepted for rayon's sake: thieves always take the oldest.
    #[deprecated(note = "use `scope_fifo` and `spawn_fifo` for similar effect")]
    pub fn breadth_first(mut self) -> Self {
        self.breadth_first = true;
        self
    }

    fn threads(&self) -> usize {
        let wanted = match self.num_threads {
            0 => threads_by_env()
                .unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get())),
            n => n,
        };
        wanted.min(MAX_PROCS)
    }
}

/// How many threads rayon's variables ask for.
fn threads_by_env() -> Option<usize> {
    let number = |name| env::var(name).and_then(|text: String| text.parse::<usize>().ok());
    let number = number("RAYON_NUM_THREADS").or_else(|| number("RAYON_RS_NUM_CPUS"))?;
    (number != 0).then_some(number)
}

/// The default runtime, for plain threads that fork. If this is what starts it, it is as
/// rayon's pool would be: with the stacks of threads, and as many Ps as rayon's variables say.
pub(super) fn default_pool() -> &'static Sched {
    if runtime::default_is_set() {
        return runtime::default_sched();
    }
    let builder = runtime::Builder::new().stack_size(STACK);
    runtime::default_with(match threads_by_env() {
        Some(threads) => builder.max_procs(threads.min(MAX_PROCS)),
        None => builder,
    })
}

impl<S: ThreadSpawn> ThreadPoolBuilder<S> {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// If a thread or memory is refused, or the thread that
    /// [is to be used](Self::use_current_thread) is part of a pool.
    pub fn build(self) -> Result<ThreadPool, ThreadPoolBuildError> {
        self.start(None).map(ThreadPool::of)
    }

    /// Starts the pool and makes it the default runtime, which plain threads use and
    /// [`heist::go`](crate::go) does.
    ///
    /// ```standalone_crate
    /// use heist::par::{self, ThreadPoolBuilder};
    /// ThreadPoolBuilder::new().num_threads(3).build_global().unwrap();
    /// assert_eq!(par::current_num_threads(), 3);
    /// let again = ThreadPoolBuilder::new().build_global().unwrap_err();
    /// assert_eq!(again.to_string(), "The global thread pool has already been initialized.");
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and if there is a default runtime already: this was
    /// called before, or something ran on the default one.
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        let initialized = || ThreadPoolBuildError::of(Kind::GlobalPoolAlreadyInitialized);
        if runtime::default_is_set() {
            return Err(initialized());
        }
        let registry = self.start(None)?;
        if runtime::set_default(registry.sched) {
            return Ok(());
        }
        registry.release();
        Err(initialized())
    }

    fn start(
        mut self,
        wrapped: Option<Arc<Wrapped>>,
    ) -> Result<Arc<Registry>, ThreadPoolBuildError> {
        let threads = self.threads();
        if self.use_current_thread && (m::current().is_some() || here::member().is_some()) {
            return Err(ThreadPoolBuildError::of(Kind::CurrentThreadAlreadyInPool));
        }
        // The one that counts as the caller's stays unused, unless it is the only one.
        let reserved = usize::from(self.use_current_thread && threads > 1);
        let first = usize::from(self.use_current_thread);
        let hosted = threads - first;
        let sched = runtime::Builder::new()
            .max_procs(threads)
            .reserve_procs(reserved)
            .stack_size(self.stack_size.unwrap_or(STACK))
            .thread_name("heist-par")
            .build_hosted(hosted)?
            .into_sched();
        // The numbers of its threads. If the caller's is the only one, another has it.
        let mut registry = Registry::new(sched, first.min(threads - 1)..threads);
        registry.panic_handler = self.panic_handler.take();
        registry.start_handler = self.start_handler.take();
        registry.exit_handler = self.exit_handler.take();
        registry.wrapped = wrapped;
        let registry = registry.open();
        /// Ends the pool if a thread cannot be started, or a name panics.
        struct Failed<'a>(&'a Registry);
        impl Drop for Failed<'_> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        let failed = Failed(&registry);
        for index in first..threads {
            let name = self.thread_name.as_mut().map(|name| name(index));
            let work = Work::Serve(sched.life());
            let stack_size = self.stack_size;
            let registry = registry.clone();
            self.spawn_handler
                .spawn(ThreadBuilder { index, name, stack_size, work, registry })
                .map_err(|error| ThreadPoolBuildError::of(Kind::Io(error)))?;
        }
        if self.use_current_thread {
            here::become_member(sched);
        }
        std::mem::forget(failed);

        Ok(registry)
    }
}

impl<S> fmt::Debug for ThreadPoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closure = |set: bool| set.then_some(format_args!("<closure>"));
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("use_current_thread", &self.use_current_thread)
            .field("get_thread_name", &closure(self.thread_name.is_some()))
            .field("panic_handler", &closure(self.panic_handler.is_some()))
            .field("stack_size", &self.stack_size)
            .field("start_handler", &closure(self.start_handler.is_some()))
            .field("exit_handler", &closure(self.exit_handler.is_some()))
            .field("breadth_first", &self.breadth_first)
            .finish()
    }
}

/// A thread of a pool, before it runs.
pub struct ThreadBuilder {
    index: usize,
    name: Option<String>,
    stack_size: Option<usize>,
    work: Work,
    registry: Arc<Registry>,
}

/// What a thread is for.
enum Work {
    /// It belongs to this life of the scheduler.
    Serve(u32),
    /// The scheduler has started it for one that blocks or computes.
    Relieve(Relief),
}

impl ThreadBuilder {
    pub(super) fn relief(registry: Arc<Registry>, index: usize, relief: Relief) -> Self {
        let work = Work::Relieve(relief);
        ThreadBuilder { index, name: None, stack_size: None, work, registry }
    }

    /// Its number in the pool.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that the pool's builder has for it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The stack size that the pool's builder was given. It is that of goroutines,
    /// which have stacks of their own: the thread itself needs little.
    pub fn stack_size(&self) -> Option<usize> {
        self.stack_size
    }

    /// Works for the pool, on the calling thread, until it ends.
    pub fn run(self) {
        let ThreadBuilder { index, work, registry, .. } = self;
        registry.work(index, || match work {
            Work::Serve(life) => m::serve(registry.sched, life),
            Work::Relieve(relief) => relief.work(),
        });
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("pool", &self.registry.sched.slot())
            .field("index", &self.index)
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .finish()
    }
}

mod sealed {
    /// Not for others to implement.
    #[derive(Debug)]
    pub struct Token;
}

/// How threads are started: by default, or by a function of the user's. Only for this
/// module to implement.
pub trait ThreadSpawn {
    #[doc(hidden)]
    fn sealed(_: sealed::Token);

    /// Starts a thread that calls [`ThreadBuilder::run`].
    ///
    /// # Errors
    ///
    /// If it cannot.
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()>;
}

/// Threads are started by heist.
#[derive(Debug, Default)]
pub struct DefaultSpawn;

impl ThreadSpawn for DefaultSpawn {
    fn sealed(_: sealed::Token) {}

    fn spawn(&mut self, builder: ThreadBuilder) -> io::Result<()> {
        let name = builder.name().map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("heist-par-{}", builder.index()));
        thread::start(name, THREAD_STACK, move || builder.run()).map(drop)
    }
}

/// Threads are started by a function of the user's.
#[derive(Debug)]
pub struct CustomSpawn<F>(F);

impl<F: FnMut(ThreadBuilder) -> io::Result<()>> ThreadSpawn for CustomSpawn<F> {
    fn sealed(_: sealed::Token) {}

    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        (self.0)(thread)
    }
}

/// Why a pool could not be built.
#[derive(Debug)]
pub struct ThreadPoolBuildError {
    kind: Kind,
}

impl ThreadPoolBuildError {
    fn of(kind: Kind) -> Self {
        ThreadPoolBuildError { kind }
    }
}

#[derive(Debug)]
enum Kind {
    GlobalPoolAlreadyInitialized,
    CurrentThreadAlreadyInPool,
    Io(io::Error),
    Runtime(BuildError),
}

impl From<BuildError> for ThreadPoolBuildError {
    fn from(error: BuildError) -> Self {
        ThreadPoolBuildError::of(Kind::Runtime(error))
    }
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::GlobalPoolAlreadyInitialized => f.write_str(INITIALIZED),
            Kind::CurrentThreadAlreadyInPool => f.write_str(IN_POOL),
            Kind::Io(error) => error.fmt(f),
            Kind::Runtime(error) => error.fmt(f),
        }
    }
}

const INITIALIZED: &str = "The global thread pool has already been initialized.";
const IN_POOL: &str = "The current thread is already part of another thread pool.";

impl Error for ThreadPoolBuildError {
    #[allow(deprecated)] // what rayon still answers
    fn description(&self) -> &str {
        match &self.kind {
            Kind::GlobalPoolAlreadyInitialized => INITIALIZED,
            Kind::CurrentThreadAlreadyInPool => IN_POOL,
            Kind::Io(error) => error.description(),
            Kind::Runtime(_) => "the runtime of a pool could not be started",
        }
    }

    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::GlobalPoolAlreadyInitialized | Kind::CurrentThreadAlreadyInPool => None,
            Kind::Io(error) => Some(error),
            Kind::Runtime(error) => Some(error),
        }
    }
}

/// rayon's older builder.
#[deprecated(note = "Use `ThreadPoolBuilder`")]
#[derive(Default)]
pub struct Configuration {
    builder: ThreadPoolBuilder,
}

#[allow(deprecated)]
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.builder.fmt(f)
    }
}

#[allow(deprecated)]
impl Configuration {
    /// As [`ThreadPoolBuilder::new`].
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`ThreadPoolBuilder::build`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn build(self) -> Result<ThreadPool, Box<dyn Error>> {
        self.builder.build().map_err(Box::from)
    }

    fn with(self, change: impl FnOnce(ThreadPoolBuilder) -> ThreadPoolBuilder) -> Self {
        Configuration { builder: change(self.builder) }
    }

    /// As [`ThreadPoolBuilder::thread_name`].
    pub fn thread_name<F: FnMut(usize) -> String + 'static>(self, name: F) -> Self {
        self.with(|builder| builder.thread_name(name))
    }

    /// As [`ThreadPoolBuilder::num_threads`].
    pub fn num_threads(self, num_threads: usize) -> Self {
        self.with(|builder| builder.num_threads(num_threads))
    }

    /// As [`ThreadPoolBuilder::panic_handler`].
    pub fn panic_handler<H>(self, handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.with(|builder| builder.panic_handler(handler))
    }

    /// As [`ThreadPoolBuilder::stack_size`].
    pub fn stack_size(self, stack_size: usize) -> Self {
        self.with(|builder| builder.stack_size(stack_size))
    }

    /// As [`ThreadPoolBuilder::breadth_first`].
    pub fn breadth_first(self) -> Self {
        self.with(ThreadPoolBuilder::breadth_first)
    }

    /// As [`ThreadPoolBuilder::start_handler`].
    pub fn start_handler<H: Fn(usize) + Send + Sync + 'static>(self, handler: H) -> Self {
        self.with(|builder| builder.start_handler(handler))
    }

    /// As [`ThreadPoolBuilder::exit_handler`].
    pub fn exit_handler<H: Fn(usize) + Send + Sync + 'static>(self, handler: H) -> Self {
        self.with(|builder| builder.exit_handler(handler))
    }
}

/// As [`ThreadPoolBuilder::build_global`].
///
/// # Errors
///
/// As there.
#[deprecated(note = "use `ThreadPoolBuilder::build_global`")]
#[allow(deprecated)]
pub fn initialize(configuration: Configuration) -> Result<(), Box<dyn Error>> {
    configuration.builder.build_global().map_err(Box::from)
}
