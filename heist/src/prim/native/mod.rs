//! The native backend: Linux, std's atomics, and the few system calls that the
//! scheduler needs to sleep, to tell the time and to start threads.

mod slot;
pub(crate) mod thread;
mod ticks;

/// Atomics and fences.
pub(crate) mod atomic {
    use std::sync::atomic::compiler_fence;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };

    /// A full fence that directly follows an atomic read-modify-write.
    ///
    /// On x86-64 a locked instruction is already a full fence, so only the
    /// compiler must be held back; elsewhere the fence is real.
    #[inline(always)]
    pub(crate) fn fence_after_rmw() {
        if cfg!(target_arch = "x86_64") {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The cheap half of an asymmetric fence pair: it orders the stores before
    /// it against the loads after it, as seen by a thread that calls
    /// [`heavy_barrier`].
    #[inline(always)]
    pub(crate) fn light_barrier() {
        compiler_fence(Ordering::SeqCst);
        if !super::membarrier::available() {
            fence(Ordering::SeqCst);
        }
    }

    /// As [`light_barrier`], for those whose other half gives up where
    /// [`barriers_available`] says no: it then need not fence.
    #[inline(always)]
    pub(crate) fn trusting_barrier() {
        compiler_fence(Ordering::SeqCst);
    }

    /// Whether [`heavy_barrier`] fences for the threads that only pass a
    /// [`trusting_barrier`].
    pub(crate) fn barriers_available() -> bool {
        super::membarrier::register();
        super::membarrier::available()
    }

    /// The dear half: every other thread of the process has passed a full fence
    /// somewhere between the call and the return.
    pub(crate) fn heavy_barrier() {
        fence(Ordering::SeqCst);
        // Whoever uses the light half may have seen that it is available.
        super::membarrier::register();
        super::membarrier::issue();
    }

    /// Says that memory with shared words in it is never freed: the simulator
    /// may let stores to it arrive late.
    #[inline(always)]
    pub(crate) fn keep<T: ?Sized>(value: &'static T) -> &'static T {
        value
    }
}

/// Mutual exclusion: std's, which sleeps on a futex.
pub(crate) mod mutex {
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

/// What only the simulator counts.
pub(crate) mod probe {
    /// A thief looks at a victim.
    #[inline(always)]
    pub(crate) fn victim() {}

    /// An M begins to search, or stops.
    #[inline(always)]
    pub(crate) fn searching(_on: bool) {}

    /// Memory that may be fresh is about to be used.
    #[inline(always)]
    pub(crate) fn touch(_address: usize) {}

    /// The pages of a range go back to the kernel.
    #[inline(always)]
    pub(crate) fn discard(_low: usize, _size: usize) {}
}

mod membarrier {
    use std::sync::atomic::{AtomicU8, Ordering};

    const UNKNOWN: u8 = 0;
    const AVAILABLE: u8 = 1;
    const MISSING: u8 = 2;

    /// Starts as "missing" for whoever asks before `register` ran: that side
    /// then pays for a real fence, which is always right.
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Announces to the kernel that this process uses expedited barriers.
    pub(super) fn register() {
        if STATE.load(Ordering::Relaxed) != UNKNOWN {
            return;
        }
        const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
        // SAFETY: membarrier takes no pointers; a kernel without it says so.
        let rc = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
        STATE.store(if rc == 0 { AVAILABLE } else { MISSING }, Ordering::SeqCst);
    }

    #[inline(always)]
    pub(super) fn available() -> bool {
        STATE.load(Ordering::Relaxed) == AVAILABLE
    }

    pub(super) fn issue() {
        const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
        if available() {
            // SAFETY: as above.
            let rc = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
            if rc != 0 {
                // A filter that was installed since: the other side has no fence.
                crate::prim::fatal::fatal!("membarrier(2) was allowed and is no longer");
            }
        }
    }
}

/// Spinning.
pub(crate) mod hint {
    pub(crate) use std::hint::spin_loop;
    /// Lets the kernel run another thread.
    pub(crate) use std::thread::yield_now as give_way;

    /// Asks for the cache line at `pointer`, and the next one, soon and in order to
    /// write there.
    #[inline(always)]
    pub(crate) fn prefetch_to_write<T>(pointer: *const T) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `prefetch`; a CPU without the instruction takes it for a
        // no-op.
        unsafe {
            std::arch::asm!("prefetchw [{0}]", "prefetchw [{0} + 64]", in(reg) pointer,
                options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `prefetch`.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{0}]", "prfm pstl1keep, [{0}, #64]", in(reg) pointer,
                options(nostack, preserves_flags, readonly));
        }
    }

    /// Asks for the cache line at `pointer`, and the next one, soon.
    #[inline(always)]
    pub(crate) fn prefetch<T>(pointer: *const T) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address is allowed: it never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(pointer.cast());
            _mm_prefetch::<_MM_HINT_T0>(pointer.cast::<i8>().wrapping_add(64));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", "prfm pldl1keep, [{0}, #64]", in(reg) pointer,
                options(nostack, preserves_flags, readonly));
        }
    }
}

/// Sleeping on a word of memory.
pub(crate) mod futex {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// A word that threads can sleep on.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Futex {
        word: AtomicU32,
    }

    impl Futex {
        pub(crate) const fn new(value: u32) -> Self {
            Futex { word: AtomicU32::new(value) }
        }

        #[inline]
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        /// Sleeps while the word equals `expected`. May return early, for any
        /// reason: the caller looks at the word again.
        pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
            let deadline = timeout.map(|t| libc::timespec {
                // Far beyond any deadline that a caller can tell from "never".
                tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX / 4),
                tv_nsec: t.subsec_nanos().into(),
            });
            let deadline = deadline.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the word outlives the call since we borrow it, and the
            // timeout is null or points to a live timespec. EAGAIN, EINTR and
            // ETIMEDOUT all mean "look again".
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    expected,
                    deadline,
                );
            }
        }

        /// Wakes one sleeper, if there is one. Safe to call from a signal
        /// handler.
        pub(crate) fn wake_one(&self) {
            // SAFETY: FUTEX_WAKE does not dereference the address.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.word.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                );
            }
        }
    }
}

/// Time.
pub(crate) mod clock {
    pub(crate) use super::ticks::Pace;
    use crate::prim::nanos;
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    /// Nanoseconds on the monotonic clock.
    #[inline]
    pub(crate) fn now() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live timespec; CLOCK_MONOTONIC always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        // The monotonic clock starts at boot and is never negative.
        (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
    }

    /// The moment `after` from now, or the last one that there is.
    pub(crate) fn after(after: Duration) -> u64 {
        now().saturating_add(nanos(after))
    }

    /// Now, as an [`Instant`].
    #[inline]
    pub(crate) fn instant() -> Instant {
        Instant::now()
    }

    /// The moment of an [`Instant`], or a little later; some moment that has passed, if it has.
    pub(crate) fn at(instant: Instant) -> u64 {
        /// The same moment by both: they are the same clock, but for where it begins.
        static SAME: OnceLock<(Instant, u64)> = OnceLock::new();
        let (then, moment) = *SAME.get_or_init(same_moment);
        moment.saturating_add(nanos(instant.saturating_duration_since(then)))
    }

    /// A moment as an [`Instant`], and the one right after it on the clock; the closest of some
    /// tries, since the thread may be interrupted between the two.
    fn same_moment() -> (Instant, u64) {
        let tries = (0..16).map(|_| {
            let (then, moment) = (Instant::now(), now());
            (then.elapsed(), (then, moment))
        });
        let closest = tries.min_by_key(|(apart, _)| *apart);
        closest.map_or_else(|| (Instant::now(), now()), |(_, same)| same)
    }
}

/// The process.
pub(crate) mod os {
    /// Writes to standard error, unbuffered and without a lock: also from a
    /// signal handler, also when another thread holds the lock of `stderr`.
    pub(crate) fn write_stderr(mut text: &[u8]) {
        while !text.is_empty() {
            // SAFETY: the pointer and length come from a live slice.
            let n = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
            match usize::try_from(n) {
                Ok(written) if written > 0 => text = &text[written..],
                _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// A descriptor that becomes readable when a process has ended.
    pub(crate) fn pidfd_open(process: u32) -> std::io::Result<std::os::fd::OwnedFd> {
        use std::os::fd::FromRawFd;
        // SAFETY: takes no pointers; the descriptor that it returns is ours, and is
        // closed on exec.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, process, 0);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(std::os::fd::OwnedFd::from_raw_fd(fd as libc::c_int))
        }
    }

    /// The C library's error number, which belongs to the thread.
    ///
    /// Never inlined, as [`slot`](super::thread::slot).
    #[inline(never)]
    pub(crate) fn errno() -> i32 {
        // SAFETY: the location is this thread's, and always valid.
        unsafe { *libc::__errno_location() }
    }

    #[inline(never)]
    pub(crate) fn set_errno(errno: i32) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Ends the process at once, without running destructors or exit handlers:
    /// other threads are in an unknown state.
    pub(crate) fn exit_now(code: i32) -> ! {
        // SAFETY: _exit does not return and touches no memory of ours.
        unsafe { libc::_exit(code) }
    }
}

/// The environment that configures a runtime.
pub(crate) mod env {
    /// A variable's value, if it is set and is Unicode.
    pub(crate) fn var(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// Bits that differ from run to run: the seed of a runtime without one.
    pub(crate) fn entropy() -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u64(super::clock::now());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::clock;
    use std::time::Duration;

    #[test]
    fn an_instant_is_a_moment_of_the_clock() {
        let hour = Duration::from_secs(3600);
        for _ in 0..1000 {
            let before = clock::now();
            let moment = clock::at(clock::instant() + hour) - hour.as_nanos() as u64;
            assert!(moment >= before, "{} ns early", before - moment);
            // By as much as the closest of some readings were apart.
            let after = clock::now();
            assert!(moment < after + 100_000, "{} ns late", moment - after);
        }
        let now = clock::now();
        assert!(clock::at(clock::instant()) >= now);
        assert!(clock::at(clock::instant() - hour) <= clock::now(), "it has passed");
    }
}

/// Faults that tests inject: the machine refuses what it was asked for.
#[cfg(test)]
pub(crate) mod fault {
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A fault: skips some calls, then fails a number of them.
    pub(crate) struct Fault {
        skip: AtomicU64,
        fail: AtomicU64,
        errno: i32,
    }

    pub(crate) static THREAD_START: Fault = Fault::new(libc::EAGAIN);
    pub(crate) static MAP: Fault = Fault::new(libc::ENOMEM);

    impl Fault {
        const fn new(errno: i32) -> Self {
            Fault { skip: AtomicU64::new(0), fail: AtomicU64::new(0), errno }
        }

        /// After `skip` calls that pass, fails the next `fail` calls.
        pub(crate) fn arm(&self, skip: u64, fail: u64) {
            self.skip.store(skip, Ordering::SeqCst);
            self.fail.store(fail, Ordering::SeqCst);
        }

        pub(crate) fn check(&self) -> io::Result<()> {
            let took = |word: &AtomicU64| {
                word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
            };
            if took(&self.skip) || !took(&self.fail) {
                return Ok(());
            }
            Err(io::Error::from_raw_os_error(self.errno))
        }
    }
}
