//! Scopes: closures that borrow, and end before the scope does.

use super::broadcast::BroadcastContext;
use super::measure::Deferred;
use super::registry;
use super::spawn::push;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::lock::{Lock, Rank};
use crate::runtime;
use crate::sched::branches::{self, is_shutdown};
use crate::sched::forks;
use crate::sched::g::WaitReason;
use crate::sched::jobs::{Entry, Fifo, Job};
use crate::sched::schedt::Sched;
use crate::sched::waiter::Waiter;
use crate::stack;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Where closures that borrow are spawned; see [`scope`].
pub struct Scope<'scope> {
    base: Base,
    /// Invariant over 'scope, which must outlive what is spawned.
    marker: Marker<'scope, Scope<'scope>>,
}

/// As [`Scope`], first in, first out; see [`scope_fifo`].
pub struct ScopeFifo<'scope> {
    base: Base,
    /// A queue for each P.
    fifos: Vec<Arc<Fifo>>,
    marker: Marker<'scope, ScopeFifo<'scope>>,
}

type Marker<'scope, S> = PhantomData<Box<dyn FnOnce(&S) + Send + Sync + 'scope>>;

/// Calls `op` with a scope, in which closures that borrow from outside of it can be
/// spawned, and returns when all of them have ended.
///
/// Those that were spawned last run first, where they were spawned. On a plain thread
/// all of it runs on the default runtime, and the thread waits.
///
/// ```
/// let mut counts = [0; 3];
/// heist::par::scope(|s| {
///     for (i, count) in counts.iter_mut().enumerate() {
///         s.spawn(move |_| *count = i);
///     }
/// });
/// assert_eq!(counts, [0, 1, 2]);
/// ```
///
/// What is spawned cannot borrow what ends with `op`:
///
/// ```compile_fail,E0373
/// heist::par::scope(|s| {
///     let local = 7;
///     s.spawn(|_| println!("{local}"));
/// });
/// ```
///
/// nor what somebody else changes meanwhile, and the scope does not leave its closure:
///
/// ```compile_fail,E0499
/// let mut numbers = vec![1, 2];
/// heist::par::scope(|s| {
///     s.spawn(|_| numbers.push(3));
///     s.spawn(|_| numbers.push(4));
/// });
/// ```
///
/// ```compile_fail
/// let mut kept = None;
/// heist::par::scope(|s| kept = Some(s));
/// kept.unwrap().spawn(|_| ());
/// ```
///
/// # Panics
///
/// With the first panic of `op` or of a closure; all of them have ended by then.
#[track_caller]
pub fn scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R + Send,
    R: Send,
{
    inside(Location::caller(), move || in_place_scope(op))
}

/// As [`scope`]; of what a P's goroutines spawn in it, the first runs first.
///
/// ```
/// let sum = std::sync::atomic::AtomicU32::new(0);
/// heist::par::scope_fifo(|s| {
///     for i in 0..10 {
///         let sum = &sum;
///         s.spawn_fifo(move |_| drop(sum.fetch_add(i, std::sync::atomic::Ordering::Relaxed)));
///     }
/// });
/// assert_eq!(sum.into_inner(), 45);
/// ```
#[track_caller]
pub fn scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R + Send,
    R: Send,
{
    inside(Location::caller(), move || in_place_scope_fifo(op))
}

/// As [`scope`], but `op` runs where it is called, also on a plain thread.
///
/// ```
/// let here = std::thread::current().id();
/// heist::par::in_place_scope(|s| {
///     s.spawn(|_| ());
///     assert_eq!(std::thread::current().id(), here);
/// });
/// ```
#[track_caller]
pub fn in_place_scope<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    in_place_scope_on(registry::current(), op)
}

/// As [`scope_fifo`], but `op` runs where it is called.
///
/// ```
/// let length = heist::par::in_place_scope_fifo(|s| {
///     s.spawn_fifo(|s| s.spawn_fifo(|_| ()));
///     3
/// });
/// assert_eq!(length, 3);
/// ```
#[track_caller]
pub fn in_place_scope_fifo<'scope, OP, R>(op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    in_place_scope_fifo_on(registry::current(), op)
}

#[track_caller]
pub(super) fn in_place_scope_on<'scope, OP, R>(sched: &'static Sched, op: OP) -> R
where
    OP: FnOnce(&Scope<'scope>) -> R,
{
    let site = Location::caller();
    with_room(size_of::<OP>(), move || {
        let scope = Scope { base: Base::new(sched), marker: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| op(&scope)));
        scope.base.complete(result, true, site)
    })
}

#[track_caller]
pub(super) fn in_place_scope_fifo_on<'scope, OP, R>(sched: &'static Sched, op: OP) -> R
where
    OP: FnOnce(&ScopeFifo<'scope>) -> R,
{
    let site = Location::caller();
    with_room(size_of::<OP>(), move || {
        let fifos = (0..sched.procs()).map(|_| Fifo::new()).collect();
        let scope = ScopeFifo { base: Base::new(sched), fifos, marker: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| op(&scope)));
        scope.base.complete(result, false, site)
    })
}

/// Calls `f`, which has captured so many bytes, where a fork would go on: here, or on another
/// segment if the stack is short. So the depth of nested scopes is limited by memory only.
fn with_room<R>(captured: usize, f: impl FnOnce() -> R) -> R {
    if forks::is_short() {
        return stack::on_segment(forks::segment(captured + size_of::<R>()), f);
    }
    f()
}

/// Calls `f` as a goroutine: the caller, if it is one.
pub(super) fn inside<R: Send>(site: &'static Location<'static>, f: impl FnOnce() -> R + Send) -> R {
    if runtime::goroutine_id().is_some() {
        return f();
    }
    runtime::run_on(registry::outside(), None, site, f)
}

impl<'scope> Scope<'scope> {
    /// Spawns a closure that may borrow from outside of the scope. It gets the scope,
    /// to spawn more.
    ///
    /// ```
    /// let words = ["a", "bc"];
    /// heist::par::scope(|s| s.spawn(|s| s.spawn(|_| assert_eq!(words.concat(), "abc"))));
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, body: F)
    where
        F: FnOnce(&Scope<'scope>) + Send + 'scope,
    {
        let this = SendPtr(self);
        let job = self.base.job(move || {
            // SAFETY: the scope waits for this job.
            body(unsafe { &*this.get() });
        });
        if let Some(job) = self.base.unless_measured(job) {
            push(self.base.sched, Entry::Job(job), Location::caller());
        }
    }

    /// Spawns a closure on every P of the pool.
    ///
    /// ```
    /// let count = std::sync::atomic::AtomicUsize::new(0);
    /// heist::par::scope(|s| {
    ///     s.spawn_broadcast(|_, _| {
    ///         count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ///     })
    /// });
    /// assert_eq!(count.into_inner(), heist::par::current_num_threads());
    /// ```
    #[track_caller]
    pub fn spawn_broadcast<F>(&self, body: F)
    where
        F: Fn(&Scope<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let this = SendPtr(self);
        // SAFETY: the scope waits for the jobs.
        self.base.broadcast(move |context| body(unsafe { &*this.get() }, context));
    }
}

impl<'scope> ScopeFifo<'scope> {
    /// Spawns a closure that may borrow from outside of the scope. It gets the scope,
    /// to spawn more.
    ///
    /// ```
    /// heist::par::scope_fifo(|s| s.spawn_fifo(|s| s.spawn_fifo(|_| ())));
    /// ```
    #[track_caller]
    pub fn spawn_fifo<F>(&self, body: F)
    where
        F: FnOnce(&ScopeFifo<'scope>) + Send + 'scope,
    {
        let this = SendPtr(self);
        let job = self.base.job(move || {
            // SAFETY: the scope waits for this job.
            body(unsafe { &*this.get() });
        });
        let Some(job) = self.base.unless_measured(job) else { return };
        let fifo = match super::current_thread_index() {
            // There may be more Ps than when the scope began.
            Some(index) if registry::is_inside(self.base.sched) => {
                &self.fifos[index % self.fifos.len()]
            }
            _ => &self.fifos[0],
        };
        fifo.push(job);
        push(self.base.sched, Entry::Next(fifo.clone()), Location::caller());
    }

    /// As [`Scope::spawn_broadcast`].
    ///
    /// ```
    /// heist::par::scope_fifo(|s| s.spawn_broadcast(|_, context| assert!(context.index() < 1024)));
    /// ```
    #[track_caller]
    pub fn spawn_broadcast<F>(&self, body: F)
    where
        F: Fn(&ScopeFifo<'scope>, BroadcastContext<'_>) + Send + Sync + 'scope,
    {
        let this = SendPtr(self);
        // SAFETY: the scope waits for the jobs.
        self.base.broadcast(move |context| body(unsafe { &*this.get() }, context));
    }
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("running", &self.base.running()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ScopeFifo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeFifo").field("running", &self.base.running()).finish_non_exhaustive()
    }
}

/// The address of a scope, for its jobs.
struct SendPtr<S>(*const S);

// SAFETY: the scope is shared by reference between its jobs; it is made of what is
// `Sync`, and the marker is `Sync` for the same reason.
unsafe impl<S: Sync> Send for SendPtr<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for SendPtr<S> {}

impl<S> SendPtr<S> {
    fn get(&self) -> *const S {
        self.0
    }
}

/// What both kinds of scope have. `Waiter` is an address of what is never freed.
struct Base {
    sched: &'static Sched,
    /// The scope itself and the jobs that have not ended.
    running: AtomicUsize,
    waiter: Waiter,
    panic: Lock<Option<Box<dyn Any + Send>>>,
    /// Its closures, if it is measured.
    deferred: Option<Deferred>,
}

/// A closure of a scope and what counts it off: dropped in this order, also if it never
/// runs. (What a closure captures is dropped in no particular order.)
struct Counted<F> {
    body: F,
    count_off: CountOff,
}

impl<F: FnOnce()> Counted<F> {
    fn run(self) {
        let Counted { body, mut count_off } = self;
        count_off.ran = true;
        count_off.base().run(body);
    }
}

/// Counts a job off its scope at the very end, however it ends.
struct CountOff {
    base: *const Base,
    /// Its closure was called.
    ran: bool,
}

// SAFETY: the base is `Sync`, and outlives the jobs.
unsafe impl Send for CountOff {}

impl CountOff {
    fn base(&self) -> &Base {
        // SAFETY: the scope waits for the count.
        unsafe { &*self.base }
    }
}

impl Drop for CountOff {
    fn drop(&mut self) {
        if !self.ran {
            // The runtime shuts down: the scope must not return as if all were done.
            self.base().panicked(branches::shutdown_payload());
        }
        // Before the count: the scope may be gone right afterwards.
        let waiter = self.base().waiter;
        if self.base().remove() {
            waiter.wake();
        }
    }
}

impl Base {
    fn new(sched: &'static Sched) -> Self {
        Base {
            sched,
            running: AtomicUsize::new(1),
            waiter: Waiter::current(),
            panic: Lock::new(Rank::Leaf, None),
            deferred: Deferred::new(),
        }
    }

    /// The job, unless the scope is measured and has it run at its end.
    fn unless_measured(&self, job: Job) -> Option<Job> {
        match &self.deferred {
            Some(deferred) => deferred.keep(job).err(),
            None => Some(job),
        }
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed) - 1
    }

    /// One less; true for the last.
    fn remove(&self) -> bool {
        // Release: what the job did happens before the scope returns. Acquire: the
        // last one has seen what all did.
        self.running.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn count_on(&self) -> CountOff {
        self.running.fetch_add(1, Ordering::Relaxed);
        CountOff { base: self, ran: false }
    }

    fn job<'scope>(&self, body: impl FnOnce() + Send + 'scope) -> Job {
        let counted = Counted { body, count_off: self.count_on() };
        // By a call, so that the closure captures it whole.
        let job: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || counted.run());
        // SAFETY: 'scope outlives the scope, which waits until the job has been
        // counted off: then the closure is gone.
        unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Job>(job) }
    }

    fn broadcast<'scope>(&self, body: impl Fn(BroadcastContext<'_>) + Send + Sync + 'scope) {
        let (body, sched) = (Arc::new(body), self.sched);
        for index in 0..sched.procs() as usize {
            let body = body.clone();
            let job = self.job(move || body(BroadcastContext::new(sched, index)));
            super::broadcast::send(sched, index, job, Location::caller());
        }
    }

    fn run(&self, body: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            self.panicked(payload);
        }
    }

    /// The first panic is kept.
    fn panicked(&self, payload: Box<dyn Any + Send>) {
        let mut panic = self.panic.lock();
        let surplus = match &*panic {
            // A panic says more than an order to unwind.
            Some(first) if !is_shutdown(&**first) => Some(payload),
            _ => panic.replace(payload),
        };
        drop(panic);
        std::mem::forget(surplus);
    }

    fn complete<R>(
        &self,
        result: Result<R, Box<dyn Any + Send>>,
        newest_first: bool,
        site: &'static Location<'static>,
    ) -> R {
        match (&self.deferred, &result) {
            (Some(deferred), Err(payload)) if is_shutdown(&**payload) => deferred.forget(),
            (Some(deferred), _) => deferred.run(newest_first),
            (None, _) => {}
        }
        let value = match result {
            Ok(value) => Some(value),
            Err(payload) => {
                self.panicked(payload);
                None
            }
        };
        if !self.remove() {
            // Not cut short: the jobs borrow.
            self.waiter.sleep_whatever_comes(WaitReason::Join, site);
        }
        let panic = self.panic.lock().take();
        match (panic, value) {
            (None, Some(value)) => value,
            (Some(payload), value) => {
                drop(value);
                resume_unwind(payload)
            }
            (None, None) => unreachable!("there is a value or a panic"),
        }
    }
}
