//! Where the caller is.

use super::registry;
use crate::prim::atomic::Ordering;
use crate::prim::thread;
use crate::sched::forks;
use crate::sched::m::{self, Inside};
use crate::sched::mask::MAX_PROCS;
use crate::sched::park;
use crate::sched::schedt::Sched;
use std::cell::Cell;

/// What a yield did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// Others ran.
    Executed,
    /// There was nobody to run.
    Idle,
}

thread_local! {
    /// The pool that a plain thread counts as a part of (`use_current_thread`).
    static MEMBER: Cell<Option<(u16, u32)>> = const { Cell::new(None) };
    /// The number of the thread whose start or exit handler runs.
    static HANDLED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The pool that the calling plain thread is a part of, if that lives.
#[inline(never)] // it reads a thread-local: see `prim::thread::slot`
pub(super) fn member() -> Option<&'static Sched> {
    let (slot, life) = MEMBER.get()?;
    let sched = crate::sched::schedt::at(slot);
    (sched.life() == life && !sched.closing()).then_some(sched)
}

/// The calling plain thread becomes a part of a pool.
#[inline(never)] // as `member`
pub(super) fn become_member(sched: &'static Sched) {
    MEMBER.set(Some((sched.slot(), sched.life())));
}

/// The number of the pool's thread whose handler the calling plain thread runs.
#[inline(never)] // as `member`
fn handled() -> Option<usize> {
    HANDLED.get()
}

/// The calling plain thread begins to run a handler of the thread with that number, or ends it.
#[inline(never)] // as `member`
pub(super) fn set_handled(index: Option<usize>) {
    HANDLED.set(index);
}

/// The most threads that a pool can have.
///
/// ```
/// assert!(heist::par::max_num_threads() >= 1024);
/// ```
pub fn max_num_threads() -> usize {
    MAX_PROCS
}

/// Which P of its pool the caller runs on: less than
/// [`current_num_threads`](super::current_num_threads). `None` on a plain thread.
///
/// It is a hint, good for spreading things, and not a lock as a thread's number is with
/// rayon: a goroutine changes its P when it blocks and when it forks, and one that computes
/// for longer than its slice loses its P to another, which then has the same number.
///
/// ```
/// assert_eq!(heist::par::current_thread_index(), None);
/// assert!(heist::run(heist::par::current_thread_index).is_some());
/// ```
pub fn current_thread_index() -> Option<usize> {
    match m::current() {
        Some(_) => on_p(|inside| inside.p.id as usize),
        None => handled().or_else(|| member().map(|_| 0)),
    }
}

/// Asks, if the caller is a part of this pool.
pub(super) fn on<R>(sched: &'static Sched, ask: fn() -> Option<R>) -> Option<R> {
    let here = registry::is_inside(sched) || member().is_some_and(|own| std::ptr::eq(own, sched));
    here.then(ask)?
}

/// Whether goroutines are queued on the caller's P, or it has forked what nobody has begun.
/// `None` on a plain thread that is no part of a pool.
///
/// ```
/// assert_eq!(heist::par::current_thread_has_pending_tasks(), None);
/// let (pending, _) = heist::run(|| {
///     heist::par::join(heist::par::current_thread_has_pending_tasks, || ())
/// });
/// assert!(pending.is_some());
/// ```
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    match m::current() {
        Some(_) => on_p(has_local),
        None => member().map(|_| false),
    }
}

/// Lets others run, and says whether there was anybody. `None` on a plain thread that is no
/// part of a pool.
///
/// ```
/// use heist::par::Yield;
/// let pool = heist::par::ThreadPoolBuilder::new().num_threads(1).build()?;
/// pool.install(|| {
///     assert_eq!(heist::par::yield_now(), Some(Yield::Idle));
///     heist::par::spawn(|| ());
///     assert_eq!(heist::par::yield_now(), Some(Yield::Executed));
/// });
/// # Ok::<(), heist::par::ThreadPoolBuildError>(())
/// ```
pub fn yield_now() -> Option<Yield> {
    yield_to(true)
}

/// Lets those run that are queued on the caller's P, and says whether there was anybody.
/// `None` on a plain thread that is no part of a pool.
///
/// ```
/// assert_eq!(heist::par::yield_local(), None);
/// ```
pub fn yield_local() -> Option<Yield> {
    yield_to(false)
}

/// Whether the P has something to run beside the caller: a goroutine that yields shares what
/// it has forked.
fn has_local(inside: &Inside) -> bool {
    let forked =
        || inside.m.desk.is_open() && forks::own_list().is_some_and(|own| !own.forks.is_empty());
    !inside.p.runq.is_empty() || !inside.p.told.is_empty() || forked()
}

/// Yields, if there is somebody to run.
fn yield_to(global_counts: bool) -> Option<Yield> {
    if m::current().is_none() {
        return member().map(|_| {
            thread::yield_now();
            Yield::Idle
        });
    }
    /// A P looks at the global queue now and then only, so that one yield may come back at
    /// once. After so many it has looked there, and others were faster.
    const MOST: u32 = 256;
    let has_global = |at: &Inside| at.sched().runq_size.load(Ordering::Relaxed) != 0;
    for _ in 0..MOST {
        let (local, p, tick) = on_p(|at| (has_local(at), at.p.id, at.p.tick()))?;
        let some = local || global_counts && on_p(has_global)?;
        if !some {
            break;
        }
        park::yield_now();
        // Whoever yields is behind all that its P has; one from the global queue counts.
        let ran = |at: &Inside| at.p.id != p || at.p.tick().wrapping_sub(tick) > 1;
        if local || on_p(ran)? {
            return Some(Yield::Executed);
        }
    }
    Some(Yield::Idle)
}

/// Looks at the caller's P. `None` if the caller is no goroutine.
fn on_p<R>(look: impl FnOnce(&Inside) -> R) -> Option<R> {
    m::current_g()?;
    Inside::enter().map(|inside| look(&inside))
}
