//! Where the caller is.

use super::registry;
use crate::prim::atomic::Ordering;
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
        None => member().map(|_| 0),
    }
}

pub(super) fn index_on(sched: &'static Sched) -> Option<usize> {
    let here = registry::is_inside(sched) || member().is_some_and(|own| std::ptr::eq(own, sched));
    here.then(current_thread_index)?
}

/// Whether goroutines are queued on the caller's P. `None` on a plain thread.
///
/// ```
/// assert_eq!(heist::par::current_thread_has_pending_tasks(), None);
/// ```
pub fn current_thread_has_pending_tasks() -> Option<bool> {
    on_p(|inside| !inside.p.runq.is_empty())
}

/// Lets others run, and says whether there was anybody. `None` on a plain thread.
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
    let others = on_p(|inside| {
        let global = inside.sched().runq_size.load(Ordering::Relaxed) != 0;
        global || !inside.p.runq.is_empty() || !inside.p.told.is_empty() || has_forks(inside)
    })?;
    Some(yield_if(others))
}

/// Lets those run that are queued on the caller's P, and says whether there was anybody.
/// `None` on a plain thread.
///
/// ```
/// assert_eq!(heist::par::yield_local(), None);
/// ```
pub fn yield_local() -> Option<Yield> {
    let others = on_p(|inside| !inside.p.runq.is_empty() || has_forks(inside))?;
    Some(yield_if(others))
}

/// A goroutine that yields shares what it has forked.
fn has_forks(inside: &Inside) -> bool {
    inside.m.desk.is_open()
}

fn yield_if(others: bool) -> Yield {
    if !others {
        return Yield::Idle;
    }
    park::yield_now();
    Yield::Executed
}

/// Looks at the caller's P. `None` if the caller is no goroutine.
fn on_p<R>(look: impl FnOnce(&Inside) -> R) -> Option<R> {
    m::current_g()?;
    Inside::enter().map(|inside| look(&inside))
}
