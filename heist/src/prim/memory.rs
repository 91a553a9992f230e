//! Advice about many ranges of memory at once. On a simulated machine it is the same.

use std::io;

/// Gives this process the same advice about all of `ranges`, in one system call. Returns for
/// how many bytes it was taken: those of the first ranges.
///
/// # Safety
///
/// The ranges are the caller's, to do with as the advice says.
pub(crate) unsafe fn advise_all(ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
    /// Since Linux 6.14: whoever calls. A process may give itself any advice.
    const PIDFD_SELF_THREAD: libc::c_int = -10_000;
    // Not libc's own: glibc has it since 2.36 only.
    // SAFETY: the caller's promise; the array is as long as it says.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF_THREAD,
            ranges.as_ptr(),
            ranges.len(),
            advice,
            0,
        )
    };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}
