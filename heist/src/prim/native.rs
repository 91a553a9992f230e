//! The native backend: Linux, std's atomics, and the few system calls that the
//! scheduler needs to sleep, to tell the time and to start threads.

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
        now().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The moment of an [`Instant`]; now, if it has passed.
    pub(crate) fn at(instant: Instant) -> u64 {
        after(instant.saturating_duration_since(Instant::now()))
    }
}

/// Threads and what belongs to one.
pub(crate) mod thread {
    use super::super::note::Seat;
    use std::cell::Cell;
    use std::io;
    use std::ptr;
    use std::sync::{Mutex, PoisonError};

    pub(crate) use super::super::os_thread::OsThread;
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) use std::thread::sleep;
    pub(crate) use std::thread::{Builder, scope};
    pub(crate) use std::thread::{JoinHandle, Thread, current};
    pub(crate) use std::thread::{available_parallelism, panicking, park, park_timeout, yield_now};

    /// The thread's slot, on x86-64: a thread-local word that is read by one
    /// instruction each time it is asked for.
    ///
    /// A goroutine can go on on another thread after any call that may block, and
    /// the compiler, which does not know that, would reuse the address of a
    /// `thread_local!` that it computed before the call. It knows nothing of this
    /// word, and the assembler code that reads it is volatile: each read says
    /// whose thread it is now.
    ///
    /// The model is initial-exec: the linker knows the word's offset from the
    /// thread pointer, or the loader writes it down once.
    #[cfg(target_arch = "x86_64")]
    mod own_slot {
        use std::arch::{asm, global_asm};

        // Another version of this library in the same program has another word.
        macro_rules! word {
            () => {
                concat!(
                    "heist_slot_",
                    env!("CARGO_PKG_VERSION_MAJOR"),
                    "_",
                    env!("CARGO_PKG_VERSION_MINOR"),
                    "_",
                    env!("CARGO_PKG_VERSION_PATCH")
                )
            };
        }

        global_asm!(
            ".pushsection .tbss,\"awT\",@nobits",
            ".balign 8",
            concat!(".globl ", word!()),
            concat!(".hidden ", word!()),
            concat!(".type ", word!(), ", @object"),
            concat!(".size ", word!(), ", 8"),
            concat!(word!(), ":"),
            ".zero 8",
            ".popsection",
        );

        #[inline(always)]
        pub(crate) fn slot() -> *const () {
            let value;
            // SAFETY: reads eight bytes of this thread's storage, which are
            // there from its start to its end. No memory is written.
            unsafe {
                asm!(
                    concat!("mov {0}, qword ptr [rip + ", word!(), "@GOTTPOFF]"),
                    "mov {0}, qword ptr fs:[{0}]",
                    out(reg) value,
                    options(nostack, preserves_flags, readonly)
                );
            }
            value
        }

        pub(crate) fn set_slot(value: *const ()) {
            // SAFETY: as in `slot`; nobody else writes the word.
            unsafe {
                asm!(
                    concat!("mov {0}, qword ptr [rip + ", word!(), "@GOTTPOFF]"),
                    "mov qword ptr fs:[{0}], {1}",
                    out(reg) _,
                    in(reg) value,
                    options(nostack, preserves_flags)
                );
            }
        }
    }

    /// The thread's slot, elsewhere.
    #[cfg(not(target_arch = "x86_64"))]
    mod own_slot {
        use std::cell::Cell;
        use std::ptr;

        thread_local! {
            static SLOT: Cell<*const ()> = const { Cell::new(ptr::null()) };
        }

        /// Never inlined: the compiler would reuse the address of the
        /// thread-local that it computed before a call that changed threads.
        #[inline(never)]
        pub(crate) fn slot() -> *const () {
            SLOT.with(Cell::get)
        }

        #[inline(never)]
        pub(crate) fn set_slot(value: *const ()) {
            SLOT.with(|slot| slot.set(value));
        }
    }

    /// What this thread carries: the scheduler keeps its M here. Looked up anew
    /// at each call, also in the middle of a function whose goroutine has moved
    /// to another thread.
    pub(crate) use own_slot::{set_slot, slot};

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
        // Some machines have more CPUs than a `cpu_set_t` has room for.
        let mut mask = vec![0u64; size_of::<libc::cpu_set_t>() / size_of::<u64>()];
        loop {
            let size = size_of_val(&*mask);
            // SAFETY: the kernel writes at most `size` bytes.
            let rc = unsafe { libc::sched_getaffinity(0, size, mask.as_mut_ptr().cast()) };
            if rc == 0 {
                return mask.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1);
            }
            let too_small = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            if !too_small || size > 1 << 20 {
                return 1;
            }
            mask.resize(2 * mask.len(), 0);
        }
    }

    /// How many OS threads this process has, if the kernel tells.
    pub(crate) fn count_in_process() -> Option<usize> {
        Some(std::fs::read_dir("/proc/self/task").ok()?.count())
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
