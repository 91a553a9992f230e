//! Mappings and guard pages.

use super::StackError;
use crate::prim::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::prim::{memory, probe};
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

/// How many pages [`guard_all`] and [`populate`] take at a time.
pub(super) const BATCH: usize = 16;

/// Whether the kernel advises many ranges in one call. Taken for granted until it refuses.
static BATCHES: AtomicBool = AtomicBool::new(true);

/// Whether [`guard_all`] and [`populate`] are worth their while: one system call for all pages.
pub(super) fn batches() -> bool {
    BATCHES.load(Ordering::Relaxed) && METHOD.load(Ordering::Relaxed) == LIGHT
}

/// Makes the pages at `lows` fault on any access. Returns for how many, the first ones; if the
/// kernel refuses even one, its error.
pub(super) fn guard_all(lows: &[usize]) -> Result<usize, StackError> {
    let mut done = advise_all(lows, MADV_GUARD_INSTALL);
    for low in &lows[done..] {
        match guard(*low) {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Gives memory to the pages at `lows`, if that can be done at once. It is cheaper than what
/// it spares: a fault at the first touch of each.
pub(super) fn populate(lows: &[usize]) {
    advise_all(lows, libc::MADV_POPULATE_WRITE);
}

/// Advises the pages at `lows`, which are the caller's, in one system call. Returns how many:
/// the first ones, and none where the kernel cannot do that.
fn advise_all(lows: &[usize], advice: libc::c_int) -> usize {
    if lows.len() < 2 || !batches() {
        return 0;
    }
    let range = |&low: &usize| libc::iovec { iov_base: low as *mut _, iov_len: page_size() };
    let mut ranges = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
    let n = lows.len().min(BATCH);
    ranges.iter_mut().zip(lows).for_each(|(slot, low)| *slot = range(low));
    // SAFETY: the pages are the caller's; nothing lives in those that get a guard, and the
    // others keep what they have.
    let advised = unsafe { memory::advise_all(&ranges[..n], advice) };
    advised.map_or_else(
        |error| {
            // Short of memory, it may do another time; anything else it will never do: it does
            // not know the call, the descriptor or the advice, or a filter is in the way.
            let passing = [libc::ENOMEM, libc::EAGAIN, libc::EINTR, libc::EFAULT];
            if !error.raw_os_error().is_some_and(|code| passing.contains(&code)) {
                BATCHES.store(false, Ordering::Relaxed);
            }
            0
        },
        |bytes| bytes / page_size(),
    )
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

    /// Whether the kernel finds a byte to read there.
    fn readable(address: usize) -> bool {
        use std::os::fd::AsRawFd;
        let (_read, write) = io::pipe().unwrap();
        // SAFETY: the kernel looks at the address for us.
        let rc = unsafe { libc::write(write.as_raw_fd(), address as *const _, 1) };
        rc == 1
    }

    fn resident(address: usize) -> bool {
        let mut page = 0;
        // SAFETY: the page is mapped, and there is a byte for the answer.
        assert_eq!(unsafe { libc::mincore(address as *mut _, page_size(), &mut page) }, 0);
        page & 1 == 1
    }

    /// One that cannot (`batched` is false) does the same one by one.
    fn guards_and_populates(batched: bool) {
        let (page, size) = (page_size(), 2 * page_size());
        let low = reserve(BATCH * size).unwrap();
        let lows: Vec<usize> = (0..BATCH).map(|i| low + i * size).collect();
        assert_eq!(guard_all(&lows).unwrap(), BATCH);
        let tops: Vec<usize> = lows.iter().map(|low| low + page).collect();
        populate(&tops);
        for (&low, &top) in lows.iter().zip(&tops) {
            assert_eq!(resident(top), batched);
            assert!(readable(top) && !readable(low));
        }
        unmap(low, BATCH * size);
    }

    #[test]
    fn guards_and_first_pages_come_in_batches_if_the_kernel_can() {
        let _alone = crate::tests_alone();
        // The first time it may find out that it cannot.
        let page = page_size();
        let low = reserve(2 * page).unwrap();
        assert_eq!(guard_all(&[low, low + page]).unwrap(), 2);
        unmap(low, 2 * page);
        guards_and_populates(batches());
        let could = BATCHES.swap(false, Ordering::Relaxed);
        guards_and_populates(false);
        BATCHES.store(could, Ordering::Relaxed);
    }

    #[test]
    fn a_call_that_the_kernel_does_not_know_is_made_once() {
        let _alone = crate::tests_alone();
        let could = BATCHES.load(Ordering::Relaxed);
        let page = page_size();
        let low = reserve(2 * page).unwrap();
        let lows = [low, low + page];
        assert_eq!(advise_all(&lows, 9_999), 0, "there is no such advice");
        assert!(!batches());
        assert_eq!(advise_all(&lows, libc::MADV_POPULATE_WRITE), 0);
        assert!(!resident(low) && !resident(low + page));
        BATCHES.store(could, Ordering::Relaxed);
        unmap(low, 2 * page);
    }

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
