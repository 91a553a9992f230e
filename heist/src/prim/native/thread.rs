//! Threads and what belongs to one.

use super::super::note::Seat;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::{Mutex, PoisonError};

pub(crate) use super::super::os_thread::{Mask, OsThread, Pace};
#[cfg(any(test, feature = "bench-internals"))]
pub(crate) use std::thread::sleep;
pub(crate) use std::thread::{Builder, scope};
pub(crate) use std::thread::{JoinHandle, Thread, current};
pub(crate) use std::thread::{available_parallelism, panicking, park, park_timeout, yield_now};

/// What this thread carries: the scheduler keeps its M here. Looked up anew
/// at each call, also in the middle of a function whose goroutine has moved
/// to another thread.
pub(crate) use super::slot::{set_slot, slot};

/// This thread's seat. Never freed, only reused, so that a late waker finds
/// one. Never inlined, like all that reads a thread-local here: callers that
/// block would keep the address of one thread's for another (see [`slot`]).
#[inline(never)]
pub(crate) fn seat() -> &'static Seat {
    static FREE: Mutex<Vec<&'static Seat>> = Mutex::new(Vec::new());

    struct Mine(&'static Seat);
    impl Drop for Mine {
        fn drop(&mut self) {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }
    thread_local! {
        static MINE: Mine = Mine({
            // Plain threads take part in what needs barriers, too.
            super::membarrier::register();
            let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
            free.unwrap_or_else(|| Box::leak(Box::new(Seat::new())))
        });
    }
    thread_local! {
        static LATE: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    }
    // A thread that is past its destructors gets one for good: always the same,
    // since a mutex knows its owner by it.
    MINE.try_with(|mine| mine.0).unwrap_or_else(|_| {
        let seat = LATE.get().unwrap_or_else(|| Box::leak(Box::new(Seat::new())));
        LATE.set(Some(seat));
        seat
    })
}

/// Starts an OS thread.
pub(crate) fn start(
    name: String,
    stack_size: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    #[cfg(test)]
    super::fault::THREAD_START.check()?;
    super::membarrier::register();
    std::thread::Builder::new().name(name).stack_size(stack_size).spawn(body)
}

/// Makes the timed sleeps of this thread end on time: by default the kernel
/// may delay each by 50 µs, to save power.
pub(crate) fn sleep_precisely() {
    // SAFETY: takes no pointers. If it fails, sleeps are less precise.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

thread_local! {
    /// The lowest usable address of the stack in use, once it is known.
    static STACK_LIMIT: Cell<usize> = const { Cell::new(0) };
}

/// The lowest usable address of this thread's stack, or of the segment that
/// it runs on.
#[inline(never)]
pub(crate) fn stack_limit() -> usize {
    let known = STACK_LIMIT.with(Cell::get);
    if known != 0 {
        return known;
    }
    let limit = ask_for_stack_limit();
    STACK_LIMIT.with(|cell| cell.set(limit));
    limit
}

/// Says that this thread goes on on another segment; returns the limit of
/// before.
#[inline(never)]
pub(crate) fn set_stack_limit(limit: usize) -> usize {
    let before = stack_limit();
    STACK_LIMIT.with(|cell| cell.set(limit));
    before
}

fn ask_for_stack_limit() -> usize {
    let mut low = ptr::null_mut();
    let (mut size, mut guard) = (0, 0);
    // SAFETY: the attributes are initialised by `pthread_getattr_np` and
    // destroyed afterwards; all pointers are to live locals.
    unsafe {
        let mut attributes = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 1; // unknown: as if there were always enough
        }
        libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_getguardsize(&attributes, &mut guard);
        libc::pthread_attr_destroy(&mut attributes);
    }
    low as usize + guard
}

/// Where this thread's own memory lies: its thread-locals, from the first
/// address to behind the last, in at most two blocks. `first_frame` is some
/// address in the first function of the thread that is ours.
///
/// The blocks of the program and of the libraries that it was started with lie
/// together, beside what the thread pointer points to; in between there is
/// room for some that are loaded later. The second block is that of the library
/// that heist itself is in, if that was loaded later and found no room there.
pub(crate) fn tls_bounds(first_frame: usize) -> [(usize, usize); 2] {
    /// Blocks that are further away than this are not beside it.
    const NEAR: usize = 1 << 20;
    struct Found {
        pointer: usize,
        slot: usize,
        near: (usize, usize),
        own: (usize, usize),
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the linker passes a valid description, and what it was given.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
        let low = info.dlpi_tls_data as usize;
        if low == 0 {
            return 0; // it has none, or this thread has not used it
        }
        for i in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: as many headers as it says.
            let header = unsafe { &*info.dlpi_phdr.add(i) };
            if header.p_type != libc::PT_TLS {
                continue;
            }
            let block = (low, low + header.p_memsz as usize);
            if low.abs_diff(found.pointer) < NEAR {
                found.near = (found.near.0.min(block.0), found.near.1.max(block.1));
            } else if (block.0..block.1).contains(&found.slot) {
                found.own = block;
            }
        }
        0
    }
    let pointer = thread_pointer();
    // Some thread-local of this library.
    let slot = STACK_LIMIT.with(|cell| ptr::from_ref(cell) as usize);
    let near = (pointer, pointer + size_of::<usize>());
    let mut found = Found { pointer, slot, near, own: (0, 0) };
    // SAFETY: `visit` gets a pointer to what it expects, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    // On x86-64 they lie between the thread's first frame and its pointer, and
    // so does the room for more.
    if cfg!(target_arch = "x86_64") && pointer.wrapping_sub(first_frame) < NEAR {
        found.near.0 = found.near.0.min(first_frame);
    }
    [found.near, found.own]
}

/// What tells the thread's memory from that of others.
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register, and on x86-64 the word that it points to,
    // which the ABI says is its own address.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, fs:0", out(reg) pointer,
            options(readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer,
            options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// How many Ps a runtime should have that was not told.
pub(crate) fn usable_cpus() -> usize {
    crate::prim::cpu_limit::CpuLimit::find().procs()
}

/// How many CPUs are in this thread's mask, which is its process's as a rule; one
/// at least.
pub(crate) fn affinity() -> usize {
    OsThread::current().mask().map_or(1, |mask| mask.count().max(1))
}

/// The CPU that this thread runs on, now. The C library reads it from memory that the
/// kernel keeps up to date (rseq), or asks the vDSO.
#[inline]
pub(crate) fn cpu() -> Option<usize> {
    // SAFETY: takes nothing, and touches nothing of ours.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// How many OS threads this process has, if the kernel tells.
pub(crate) fn count_in_process() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
