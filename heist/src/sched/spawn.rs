//! Bringing a goroutine into the world.

use super::exec;
use super::g::{Birth, G, flag};
use super::g_pool;
use super::m::{self, Inside};
use super::protocol::g_state::Status;
use super::protocol::join::Finish;
use super::schedt::Sched;
use super::task::TaskOf;
use super::{names, park, wake};
use crate::prim::atomic::Ordering;
use crate::stacks::{self, Class, StackError};
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;

/// Why a goroutine could not be spawned.
#[derive(Debug)]
pub(crate) enum SpawnError {
    /// The runtime shuts down or has shut down.
    Closed,
    /// There is no stack of the size that was asked for.
    Stack(StackError),
    /// There is no memory for a control block.
    Memory(io::Error),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::Closed => {
                f.write_str("the runtime has shut down; keep the Runtime alive while it is used")
            }
            SpawnError::Stack(error) => error.fmt(f),
            SpawnError::Memory(error) => {
                write!(f, "no memory for another goroutine ({error}); wait for some to end")
            }
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SpawnError::Closed => None,
            SpawnError::Stack(error) => Some(error),
            SpawnError::Memory(error) => Some(error),
        }
    }
}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> io::Error {
        match error {
            SpawnError::Closed => io::Error::other(error),
            SpawnError::Stack(error) => error.into(),
            SpawnError::Memory(_) => io::Error::new(io::ErrorKind::OutOfMemory, error),
        }
    }
}

/// What a spawner may ask for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// A stack of another size than the runtime's.
    pub(crate) stack: Option<usize>,
    pub(crate) name: Option<Arc<str>>,
    /// Runs only when a P would go idle.
    pub(crate) idle_priority: bool,
}

/// Spawns on the runtime of the calling goroutine; on a plain thread, on the
/// one that `elsewhere` names.
///
/// # Safety
///
/// What `f` borrows outlives the goroutine, or the caller waits for its end.
/// `f` and its result may go to another thread.
#[inline(always)]
pub(crate) unsafe fn spawn<F: FnOnce() -> T, T>(
    f: F,
    site: &'static Location<'static>,
    elsewhere: impl FnOnce() -> &'static Sched,
) -> Result<&'static G, SpawnError> {
    park::safe_point();
    match Inside::enter() {
        // SAFETY: the caller's promise.
        Some(inside) => unsafe { spawn_inside(inside, f, site) },
        None => {
            let sched = m::current().map_or_else(elsewhere, |m| m.sched);
            // SAFETY: the caller's promise.
            unsafe { spawn_on(sched, f, Options::default(), site) }
        }
    }
}

/// The fast path: no lock, no allocation, one atomic read-modify-write (the
/// exchange of runnext).
///
/// # Safety
///
/// As [`spawn`].
#[inline(always)]
unsafe fn spawn_inside<F: FnOnce() -> T, T>(
    inside: Inside,
    f: F,
    site: &'static Location<'static>,
) -> Result<&'static G, SpawnError> {
    let p = inside.p;
    // If it is refused, what `f` has captured is dropped, which may block: outside.
    if inside.sched().closing() {
        drop(inside);
        return Err(SpawnError::Closed);
    }
    let g = match p.own().gs.take() {
        Ok(g) => g,
        Err(error) => {
            drop(inside);
            return Err(SpawnError::Memory(error));
        }
    };
    g.init(Birth {
        id: p.next_id(),
        runtime: inside.sched().slot(),
        parent: inside.g().map_or(0, G::id),
        flags: p.own().birth_score.get() << flag::SCORE_SHIFT,
        site,
        task: TaskOf::<F, T>::TASK,
    });
    // SAFETY: the block is free and ours.
    unsafe { TaskOf::<F, T>::emplace(g, f) };
    g.state.become_(Status::Runnable);
    p.counters.spawned.bump();
    wake::ready_next(inside.m, p, g);
    if p.runq.is_full() {
        give_way(inside);
    }
    Ok(g)
}

/// The queue of new goroutines is full. The spawner lets them run: they are still
/// in the cache, which those of a spawner that goes on to a million are not (each
/// costs a third less this way, and a few hundred blocks do for all of them). Go lets
/// it run to the end of its slice of 10 ms.
#[cold]
#[inline(never)]
fn give_way(inside: Inside) {
    let stays = inside.g().is_none_or(park::must_stay);
    drop(inside);
    if !stays {
        // Not cut short: the caller has yet to make the handle.
        let _ = park::yield_whatever_comes();
    }
}

/// A goroutine that never was: its handle says that the runtime has shut down.
/// For those that spawn while a shutdown unwinds them, where a panic would abort
/// the process.
pub(crate) fn stillborn<T>(site: &'static Location<'static>) -> Result<&'static G, SpawnError> {
    let g = g_pool::take().map_err(SpawnError::Memory)?;
    g.init(Birth {
        id: super::schedt::reserve_ids(1),
        runtime: 0,
        parent: m::current_g().map_or(0, G::id),
        flags: 0,
        site,
        task: TaskOf::<fn() -> T, T>::TASK,
    });
    // SAFETY: the block is free and ours, and holds nothing.
    unsafe { super::task::leave_outcome::<T>(g, Err(Box::new(super::task::Shutdown))) };
    match g.join.finish() {
        Finish::HandleOwns => Ok(g),
        Finish::Wake(_) | Finish::Detached => unreachable!("the word was new"),
    }
}

/// Spawns on a given runtime, from anywhere, with options.
///
/// # Safety
///
/// As [`spawn`].
pub(crate) unsafe fn spawn_on<F: FnOnce() -> T, T>(
    sched: &'static Sched,
    f: F,
    options: Options,
    site: &'static Location<'static>,
) -> Result<&'static G, SpawnError> {
    let counted = Counted::new(sched);
    // With the count: a shutdown that is not seen here sees that somebody is on the way.
    if sched.closing() {
        return Err(SpawnError::Closed);
    }
    // A size of its own is mapped now, so that a failure is an error and not a
    // goroutine that never runs.
    let stack = match options.stack.map(Class::for_usable) {
        None => None,
        Some(class) => {
            let stack = class.and_then(stacks::acquire).map_err(SpawnError::Stack)?;
            Some(stack)
        }
    };
    let g = match g_pool::take() {
        Ok(g) => g,
        Err(error) => {
            stack.into_iter().for_each(stacks::release);
            return Err(SpawnError::Memory(error));
        }
    };
    let mut flags = wake::UNDECIDED << flag::SCORE_SHIFT;
    flags |= if options.idle_priority { flag::IDLE_PRIORITY } else { 0 };
    flags |= if options.name.is_some() { flag::NAMED } else { 0 };
    let id = super::schedt::reserve_ids(1);
    g.init(Birth {
        id,
        runtime: sched.slot(),
        parent: m::current_g().map_or(0, G::id),
        flags,
        site,
        task: TaskOf::<F, T>::TASK,
    });
    if let Some(name) = options.name {
        names::insert(id, name);
    }
    // SAFETY: the block is free and ours.
    unsafe { TaskOf::<F, T>::emplace(g, f) };
    if let Some(stack) = stack {
        exec::start_on(exec::new_frame(stack), g);
    }
    let home = park::Home::of(g);
    counted.stays();
    g.state.become_(Status::Runnable);
    home.enqueue(g);
    Ok(g)
}

/// A goroutine that is about to be spawned by somebody without a P counts among the
/// runtime's, so that a shutdown waits for it.
pub(crate) struct Counted(&'static Sched);

impl Counted {
    pub(crate) fn new(sched: &'static Sched) -> Self {
        sched.foreign_spawned.fetch_add(1, Ordering::SeqCst);
        Counted(sched)
    }

    /// It was spawned.
    pub(crate) fn stays(self) {
        std::mem::forget(self);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.foreign_spawned.fetch_sub(1, Ordering::SeqCst);
    }
}
