//! `spawn`: closures that nobody waits for.

use super::registry::{self, Alive};
use crate::sched::jobs::{Entry, Job, NextOf, Runner};
use crate::sched::m::Inside;
use crate::sched::p::P;
use crate::sched::park;
use crate::sched::schedt::Sched;
use crate::sched::spawn::{self as sched_spawn, Options};
use std::panic::Location;

/// Runs a closure some time, on the pool of the caller; on a plain thread, on the
/// default runtime. Nobody waits for it: [`scope`](super::scope()) and
/// [`join`](super::join()) do.
///
/// On the P where it was spawned the closure that was spawned last runs first;
/// thieves take the oldest.
///
/// A panic goes to the pool's
/// [`panic_handler`](super::ThreadPoolBuilder::panic_handler); without one the process
/// aborts, as in rayon. [`heist::go`](crate::go) has a handle to ask for it instead.
///
/// ```
/// let (sender, receiver) = heist::chan::bounded(1);
/// heist::par::spawn(move || sender.send(6 * 7).unwrap());
/// assert_eq!(receiver.recv(), Ok(42));
/// ```
///
/// Nobody waits for it, so it cannot borrow:
///
/// ```compile_fail,E0373
/// let number = 7;
/// heist::par::spawn(|| println!("{number}"));
/// ```
#[track_caller]
pub fn spawn<F: FnOnce() + Send + 'static>(f: F) {
    spawn_on(registry::current(), f, Location::caller());
}

/// As [`spawn`]; of the closures that are spawned this way on one P, the first runs
/// first.
///
/// ```
/// let (sender, receiver) = heist::chan::unbounded();
/// heist::Builder::new().max_procs(1).build().unwrap().run(move || {
///     for i in 0..3 {
///         let sender = sender.clone();
///         heist::par::spawn_fifo(move || sender.send(i).unwrap());
///     }
///     drop(sender);
///     assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
/// });
/// ```
#[track_caller]
pub fn spawn_fifo<F: FnOnce() + Send + 'static>(f: F) {
    spawn_fifo_on(registry::current(), f, Location::caller());
}

pub(super) fn spawn_on<F: FnOnce() + Send + 'static>(
    sched: &'static Sched,
    f: F,
    site: &'static Location<'static>,
) {
    let alive = Alive::on(sched);
    push(sched, Entry::Job(Box::new(move || alive.run(f))), site);
}

pub(super) fn spawn_fifo_on<F: FnOnce() + Send + 'static>(
    sched: &'static Sched,
    f: F,
    site: &'static Location<'static>,
) {
    let alive = Alive::on(sched);
    let job: Job = Box::new(move || alive.run(f));
    let Some(home) = home_on(sched) else { return inject(sched, job, site) };
    let fifo = home.jobs.fifo();
    fifo.push(job);
    push(sched, Entry::Next(fifo), site);
}

/// The caller's P, if that is one of the runtime's. The caller is not inside of the
/// runtime any more when this returns: a job that is refused is dropped, and its
/// destructor is anybody's code.
fn home_on(sched: &'static Sched) -> Option<&'static P> {
    let inside = Inside::enter()?;
    registry::is_inside(sched).then(|| inside.p.get())
}

/// Leaves a job on the caller's P, if that is one of the runtime's.
pub(super) fn push(sched: &'static Sched, entry: Entry, site: &'static Location<'static>) {
    let Some(home) = home_on(sched) else {
        return match entry {
            Entry::Job(job) => inject(sched, job, site),
            Entry::Next(fifo) => {
                let next = NextOf::new(fifo);
                inject(sched, Box::new(move || next.run()), site);
            }
        };
    };
    home.jobs.push(entry);
    let runner = Runner::of(home);
    // SAFETY: a job is 'static, or its scope waits for its end.
    let spawned = unsafe { sched_spawn::spawn(move || runner.run(), site, || sched) };
    match spawned {
        Ok(g) => crate::thread::join::forget(g),
        // The runner is gone, and a job with it.
        Err(error) => failed(&error),
    }
}

/// Queues a job from outside, first in, first out.
fn inject(sched: &'static Sched, job: Job, site: &'static Location<'static>) {
    // SAFETY: as in `push`.
    match unsafe { sched_spawn::spawn_on(sched, job, Options::default(), site) } {
        Ok(g) => crate::thread::join::forget(g),
        Err(error) => failed(&error),
    }
}

/// Nothing can be spawned. A goroutine that a shutdown unwinds must not panic.
pub(super) fn failed(error: &sched_spawn::SpawnError) {
    if !crate::thread::panicking() {
        park::unwind_if_closing();
        panic!("failed to spawn: {error}");
    }
}

/// How many closures the pool of the caller runs at a time; on a plain thread that is part
/// of none, the default runtime.
///
/// ```
/// let pool = heist::par::ThreadPoolBuilder::new().num_threads(3).build()?;
/// assert_eq!(pool.install(heist::par::current_num_threads), 3);
/// # Ok::<(), heist::par::ThreadPoolBuildError>(())
/// ```
pub fn current_num_threads() -> usize {
    registry::current().procs() as usize
}
