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
        use super::atomic::{AtomicU32, Ordering};
        /// The thread that reports.
        static DYING: AtomicU32 = AtomicU32::new(0);
        let me = super::thread::OsThread::current().id();
        let say = || super::os::write_stderr(format!("fatal error: {message}\n").as_bytes());
        match DYING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                say();
                REPORT.get().inspect(|report| report());
            }
            // A second failure, in the report itself, must not report again.
            Err(first) if first == me => say(),
            // Another thread's, of the same cause as a rule: the first one's report goes on.
            Err(_) => std::thread::sleep(std::time::Duration::from_secs(1)),
        }
        std::process::abort()
    }
}

/// [`die`] with a format string.
macro_rules! fatal {
    ($($arg:tt)*) => { $crate::prim::fatal::die(format_args!($($arg)*)) };
}
pub(crate) use fatal;
