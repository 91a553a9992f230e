//! The stack that a goroutine runs on.

use crate::context;
use crate::prim::thread;
use crate::sched::{forks, m};
use crate::stacks::StackError;

/// Calls `f` with at least `bytes` of stack: here if there is as much left, and
/// on a further segment, chained to this stack, otherwise.
///
/// A recursion that calls it at every level, with more than a level needs, has
/// no limit but memory. When enough is left it costs a comparison. On a plain
/// OS thread, whose stack heist does not manage, the segment is made the same
/// way, but a goroutine-only facility such as parking still blocks the thread.
///
/// ```
/// fn depth(n: u32) -> u32 {
///     heist::stack::ensure(16 << 10, || if n == 0 { 0 } else { 1 + depth(n - 1) })
/// }
/// assert_eq!(heist::run(|| depth(100_000)), 100_000);
/// ```
///
/// # Panics
///
/// If there is no memory for the segment.
#[inline]
pub fn ensure<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    if remaining() >= bytes { f() } else { on_segment(bytes, f) }
}

/// How much stack is left to the caller, in bytes, roughly. On a goroutine, of
/// the segment in use; on a plain OS thread, what it has left of its own.
///
/// ```
/// let left = heist::run(heist::stack::remaining);
/// assert!(left > 64 << 10 && left < 1 << 20);
/// ```
#[inline]
pub fn remaining() -> usize {
    context::stack_pointer().saturating_sub(limit())
}

#[inline(never)] // after a switch it may be another thread
fn limit() -> usize {
    match m::current_g() {
        // SAFETY: the goroutine runs, and it is the caller.
        Some(g) => unsafe { g.frame() }.map_or(0, crate::sched::g::Frame::limit),
        None => thread::stack_limit(),
    }
}

#[cold]
#[inline(never)]
pub(crate) fn on_segment<R, F: FnOnce() -> R>(bytes: usize, f: F) -> R {
    /// Forks measure the stack that is in use.
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            forks::refresh();
        }
    }
    let Some(g) = m::current_g() else {
        return context::on_thread_segment(bytes, f)
            .unwrap_or_else(|(_, error)| no_segment(&error));
    };
    // SAFETY: the goroutine runs, and it is the caller.
    let Some(frame) = (unsafe { g.frame() }) else {
        unreachable!("a goroutine runs without a stack")
    };
    let _left = Left;
    let entered = || {
        forks::refresh();
        f()
    };
    // SAFETY: as above.
    unsafe { frame.on_segment(bytes, entered) }.unwrap_or_else(|(_, error)| no_segment(&error))
}

fn no_segment<R>(error: &StackError) -> R {
    panic!("no stack segment: {error}")
}
