//! Goroutines that keep their OS thread.
//!
//! A goroutine that has locked its thread runs on no other, and nothing else runs
//! there: when it waits, its M waits with it (`in_place`), and when it ends with
//! the thread still locked, the thread ends (`exec::end_locked`), since it may have
//! changed what belongs to a thread.

use super::g::{Ext, G, flag};
use super::m::{self, M};

/// Runs `f` with what the calling goroutine keeps in its frame; `None` on a plain
/// thread, which is nobody else's anyway.
fn with_caller<R>(f: impl FnOnce(&'static M, &'static G, &Ext) -> R) -> Option<R> {
    let m = m::current()?;
    let g = m.curg()?;
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = unsafe { g.frame() }?;
    Some(f(m, g, &frame.ext))
}

/// The calling goroutine keeps its thread until it has called [`unlock`] as often.
pub(crate) fn lock() {
    with_caller(|m, g, ext| {
        ext.locks.set(ext.locks.get().saturating_add(1));
        ext.pinned.set(Some(m));
        g.set(flag::PINNED, true);
    });
}

/// Undoes one [`lock`], if there is one.
pub(crate) fn unlock() {
    with_caller(|_, g, ext| {
        let locks = ext.locks.get().saturating_sub(1);
        ext.locks.set(locks);
        g.set(flag::PINNED, locks > 0);
    });
}

/// Whether the calling goroutine has locked its thread.
pub(crate) fn is_locked() -> bool {
    with_caller(|_, _, ext| ext.locks.get() > 0) == Some(true)
}

/// Undoes all locks of a goroutine that has ended. By its M.
pub(crate) fn forget(g: &'static G) {
    // SAFETY: the caller has the goroutine, whose frame is not given away yet.
    if let Some(frame) = unsafe { g.frame() } {
        frame.ext.locks.set(0);
    }
    g.set(flag::PINNED, false);
}
