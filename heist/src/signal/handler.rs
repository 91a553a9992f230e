//! Handlers and dispositions.

use super::Signal;
use crate::prim::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;

/// What has come and was not taken: bit `n - 1` for signal `n`.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// The eventfd, once there is one; never closed.
static EVENTS: AtomicU32 = AtomicU32::new(NONE);

const NONE: u32 = u32::MAX;

fn events() -> libc::c_int {
    EVENTS.load(Ordering::SeqCst).cast_signed()
}

/// What we make of a signal.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Notify,
    Ignore,
}

/// What a signal does: a `sigaction`.
pub(super) struct Disposition(libc::sigaction);

impl Disposition {
    /// What it does now.
    pub(super) fn of(signal: Signal) -> io::Result<Disposition> {
        change(signal, ptr::null())
    }

    pub(super) fn is_ignore(&self) -> bool {
        self.0.sa_sigaction == libc::SIG_IGN
    }

    /// Whether it is as [`set`] makes it.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ignore() || self.0.sa_sigaction == on_signal as *const () as usize
    }
}

/// Catches a signal, on whatever thread it comes. Async-signal-safe: a bit, a write,
/// and `errno` as it was.
extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: errno of this thread; eight bytes of a live local. A full counter
    // (EAGAIN) has woken the reader long ago.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        PENDING.fetch_or(1 << (signal - 1), Ordering::SeqCst);
        let one = 1u64;
        libc::write(events(), (&raw const one).cast(), 8);
        *errno = before;
    }
}

/// Makes the eventfd.
pub(super) fn open() -> io::Result<()> {
    if EVENTS.load(Ordering::SeqCst) == NONE {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        EVENTS.store(fd.cast_unsigned(), Ordering::SeqCst);
    }
    Ok(())
}

/// Blocks the thread until a signal has come. A blocking descriptor, and not one of
/// the poller: no runtime needs to be there.
pub(super) fn wait() {
    let mut count = 0u64;
    // SAFETY: eight bytes of a live local. Whatever is returned, the caller looks at
    // the bits; an interrupted wait is one that found nothing.
    unsafe { libc::read(events(), (&raw mut count).cast(), 8) };
}

/// Takes what has come.
pub(super) fn take_pending() -> impl Iterator<Item = Signal> {
    let bits = PENDING.swap(0, Ordering::SeqCst);
    (1..=64).filter(move |n| bits >> (n - 1) & 1 == 1).map(Signal::from_raw)
}

/// Changes what a signal does; returns what it did.
pub(super) fn set(signal: Signal, wanted: Wanted) -> io::Result<Disposition> {
    // SAFETY: zero is a valid `sigaction`.
    let mut new: libc::sigaction = unsafe { mem::zeroed() };
    new.sa_sigaction = match wanted {
        Wanted::Notify => on_signal as *const () as usize,
        Wanted::Ignore => libc::SIG_IGN,
    };
    // On the alternate stack, since a goroutine's may be short; calls that it
    // interrupts go on.
    new.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    change(signal, &new)
}

/// Lets a signal do what it did. It was possible before, so it is now.
pub(super) fn put_back(signal: Signal, before: &Disposition) {
    let _ = change(signal, &before.0);
}

fn change(signal: Signal, new: *const libc::sigaction) -> io::Result<Disposition> {
    let mut old = MaybeUninit::zeroed();
    // SAFETY: null, or a live `sigaction` with a handler that is async-signal-safe or
    // was installed before; the old one goes to a live local, for which zero is valid.
    unsafe {
        if libc::sigaction(signal.as_raw(), new, old.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Disposition(old.assume_init()))
    }
}

/// Sends a signal to this thread: what it does, it has done on return.
pub(super) fn raise(signal: Signal) -> io::Result<()> {
    // SAFETY: takes no pointers.
    if unsafe { libc::raise(signal.as_raw()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
