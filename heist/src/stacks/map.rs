//! Mappings and guard pages.

use super::StackError;
use crate::prim::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::prim::probe;
use std::io;
use std::ptr;

/// The size of a page.
pub(super) fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions; the page size always exists.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// Reserves `size` bytes; nothing is committed. Returns the low end.
pub(super) fn reserve(size: usize) -> Result<usize, StackError> {
    #[cfg(test)]
    crate::prim::fault::MAP.check().map_err(StackError::Map)?;
    // NORESERVE: a million stacks are an address range, not a promise of memory.
    // SAFETY: a new anonymous mapping at an address that the kernel chooses.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(StackError::Map(io::Error::last_os_error()));
    }
    // A huge page would commit 2 MiB at the first touch of any stack in it.
    // Failure means that the kernel has no huge pages: as wanted.
    // SAFETY: the range is the mapping that was just made.
    unsafe { libc::madvise(address, size, libc::MADV_NOHUGEPAGE) };
    Ok(address as usize)
}

/// Gives an address range back for good.
pub(super) fn unmap(low: usize, size: usize) {
    // SAFETY: the caller owns the range, which `reserve` returned, and nothing
    // lives in it any more.
    let rc = unsafe { libc::munmap(low as *mut _, size) };
    probe::discard(low, size);
    debug_assert_eq!(rc, 0, "munmap of our own mapping");
}

/// Gives the pages of a range back; they read as zero when touched again.
pub(super) fn discard(low: usize, size: usize) {
    // SAFETY: the caller owns the range and nothing in it is alive. Guard pages
    // survive this.
    unsafe { libc::madvise(low as *mut _, size, libc::MADV_DONTNEED) };
    probe::discard(low, size);
}

/// Since Linux 6.13: a guard without a mapping of its own.
const MADV_GUARD_INSTALL: libc::c_int = 102;

const LIGHT: u8 = 0;
const PROTECT: u8 = 1;

/// How guards are made: the light way until the kernel says that it has none.
static METHOD: AtomicU8 = AtomicU8::new(LIGHT);

/// Makes the page at `low` fault on any access.
pub(super) fn guard(low: usize) -> Result<(), StackError> {
    if METHOD.load(Ordering::Relaxed) == LIGHT {
        // SAFETY: the page is the caller's and nothing lives in it.
        let rc = unsafe { libc::madvise(low as *mut _, page_size(), MADV_GUARD_INSTALL) };
        if rc == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(StackError::Guard(error));
        }
        METHOD.store(PROTECT, Ordering::Relaxed);
    }
    protect(low)
}

fn protect(low: usize) -> Result<(), StackError> {
    // SAFETY: as above.
    match unsafe { libc::mprotect(low as *mut _, page_size(), libc::PROT_NONE) } {
        0 => Ok(()),
        _ => Err(StackError::Guard(io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child, since the limit belongs to the process: guards by mprotect
    /// until the kernel has no mapping left.
    #[test]
    fn the_mapping_limit_is_an_error_that_names_it() {
        if std::env::var_os("HEIST_TEST_MAP_LIMIT").is_none() {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "stacks::map::tests::the_mapping_limit_is_an_error_that_names_it",
                ])
                .env("HEIST_TEST_MAP_LIMIT", "1")
                .status()
                .unwrap();
            assert!(status.success());
            return;
        }
        let limit: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count")
            .map_or(65_530, |text| text.trim().parse().unwrap_or(65_530));
        if limit > 1 << 20 {
            return; // a machine that has raised it would map for minutes
        }
        METHOD.store(PROTECT, Ordering::Relaxed);
        let size = 2 * page_size();
        let low = reserve(size * limit).unwrap();
        let error = (0..limit).find_map(|i| guard(low + i * size).err()).expect("the limit");
        assert!(error.to_string().contains("vm.max_map_count"), "{error}");
        unmap(low, size * limit);
    }
}
