//! The end of a process whose scheduler is in an impossible state.

use std::fmt;

/// What a fatal error prints after its message: set once by the layer that
/// knows the scheduler's state.
#[cfg(not(loom))]
#[cfg_attr(sim, allow(dead_code))] // the simulator has a report of its own
static REPORT: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Sets what [`die`] prints after its message. The first caller wins.
#[cfg(not(loom))]
pub(crate) fn set_report(report: fn()) {
    REPORT.get_or_init(|| report);
}

/// Reports an impossible state with the scheduler's state, and aborts.
///
/// The scheduler cannot recover from a broken invariant: going on would run a
/// goroutine twice or lose one.
#[cold]
#[inline(never)]
pub(crate) fn die(message: fmt::Arguments<'_>) -> ! {
    #[cfg(loom)]
    panic!("fatal error: {message}");
    #[cfg(sim)]
    super::sim::violate(&format!("fatal error: {message}"));
    #[cfg(not(any(loom, sim)))]
    {
        use super::atomic::{AtomicBool, Ordering};
        static DYING: AtomicBool = AtomicBool::new(false);
        super::os::write_stderr(format!("fatal error: {message}\n").as_bytes());
        // A second failure, in the report itself, must not report again.
        if !DYING.swap(true, Ordering::SeqCst)
            && let Some(report) = REPORT.get()
        {
            report();
        }
        std::process::abort()
    }
}

/// [`die`] with a format string.
macro_rules! fatal {
    ($($arg:tt)*) => { $crate::prim::fatal::die(format_args!($($arg)*)) };
}
pub(crate) use fatal;
