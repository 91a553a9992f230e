//! Signals: stack overflow, SIGQUIT, preemption, and fork.
//!
//! Handlers allocate nothing and take no lock (debug builds check that: `lock::forbid`).
//! Each knows the handler that was
//! there before and passes on what is not ours.

use super::m;
use super::names;
use super::protocol::freeze::Epoch;
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::prim::os::{self, write_stderr};
use crate::stacks;
use std::io::Write;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::Once;

/// Installs the handlers, once in a process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in [(libc::SIGSEGV, &BEFORE_SEGV), (libc::SIGBUS, &BEFORE_BUS)] {
            let old = set_handler(signal, on_fault as *const () as usize, libc::SA_SIGINFO);
            before.store(Box::into_raw(Box::new(old)), Ordering::SeqCst);
        }
        // A program that has its own idea of SIGQUIT keeps it.
        if disposition(libc::SIGQUIT) == libc::SIG_DFL {
            set_handler(libc::SIGQUIT, on_quit as *const () as usize, libc::SA_RESTART);
        }
        find_system_code();
        let flags = libc::SA_SIGINFO | libc::SA_RESTART;
        let old = set_handler(PREEMPT, on_preempt as *const () as usize, flags);
        BEFORE_PREEMPT.store(Box::into_raw(Box::new(old)), Ordering::SeqCst);
        // SAFETY: the handlers are async-signal-safe: they change counters.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            )
        };
    });
}

/// The signal that stops a goroutine, as in Go: nobody uses it, debuggers can be
/// told to ignore it, and a program that gets one for nothing does not mind.
pub(crate) const PREEMPT: libc::c_int = libc::SIGURG;

static BEFORE_SEGV: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static BEFORE_BUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static BEFORE_PREEMPT: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Signals that a fault raises in the thread that has it: never masked, since the
/// kernel would kill the process.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Sets a handler that runs on the alternate stack; returns the old one.
fn set_handler(signal: libc::c_int, handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: zero is a valid `sigaction`, and all pointers are to live locals.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        let mut old = MaybeUninit::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags | libc::SA_ONSTACK;
        if signal == PREEMPT {
            // A thread that stands still runs no other handler on top of that.
            libc::sigfillset(&mut new.sa_mask);
            for fault in FAULTS {
                libc::sigdelset(&mut new.sa_mask, fault);
            }
        } else {
            libc::sigemptyset(&mut new.sa_mask);
        }
        libc::sigaction(signal, &new, old.as_mut_ptr());
        old.assume_init()
    }
}

fn disposition(signal: libc::c_int) -> usize {
    // SAFETY: a query; zero is a valid `sigaction`.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut old);
        old.sa_sigaction
    }
}

/// A fault: ours if it hit the guard page of the goroutine that runs here.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some(g) = m::current_g() {
        // SAFETY: the goroutine runs, on this thread.
        let limit = unsafe { g.frame() }.map(super::g::Frame::limit);
        if limit.is_some_and(|limit| stacks::in_guard(address, limit)) {
            report_overflow(g);
        }
    }
    pass_on(signal, info, context);
}

fn report_overflow(g: &'static super::g::G) -> ! {
    // No allocation: the heap may be what was interrupted.
    let mut text = [0u8; 1024];
    let mut rest = &mut text[..];
    let name = names::try_get(g.id());
    let _ = writeln!(
        rest,
        "\ngoroutine {} '{}' has overflowed its stack",
        g.id(),
        name.as_deref().unwrap_or("<unnamed>"),
    );
    if let Some(site) = g.site() {
        let _ = writeln!(rest, "created at {site}");
    }
    let _ = writeln!(
        rest,
        "fatal error: stack overflow: give it more (Builder::stack_size, \
         thread::Builder::stack_size),\n\tor wrap the recursion in heist::stack::ensure"
    );
    let left = rest.len();
    let used = text.len() - left;
    write_stderr(&text[..used]);
    std::process::abort()
}

/// Lets the handler from before decide about a signal that is not ours.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = match signal {
        libc::SIGSEGV => &BEFORE_SEGV,
        libc::SIGBUS => &BEFORE_BUS,
        _ => &BEFORE_PREEMPT,
    };
    // SAFETY: set once, never freed.
    let before = unsafe { before.load(Ordering::SeqCst).as_ref() };
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    match handler {
        // Whoever has no handler for it ignores it.
        libc::SIG_DFL | libc::SIG_IGN if signal == PREEMPT => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction runs again, and faults for good.
            // SAFETY: restoring the default is always allowed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0) => {
            // SAFETY: the flag says that this is its type.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag, this is its type.
            let handler: extern "C" fn(libc::c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

static DUMP: AtomicBool = AtomicBool::new(false);

/// SIGQUIT: some sysmon prints the dump.
extern "C" fn on_quit(_: libc::c_int) {
    let _no_locks = crate::prim::lock::forbid();
    DUMP.store(true, Ordering::SeqCst);
    super::schedt::all().for_each(|sched| sched.sysmon.poke());
}

/// Prints the dump that SIGQUIT asked for, and ends the process, as Go does.
pub(crate) fn dump_if_asked() {
    if DUMP.swap(false, Ordering::SeqCst) {
        write_stderr(b"SIGQUIT: quit\n\n");
        super::sysmon::dump();
        crate::prim::os::exit_now(2);
    }
}

/// What our own signals carry beside the number of the question.
const OURS: u64 = 0x6865_6973 << 32;

/// The value that goes with a signal of ours.
pub(crate) fn our_value(epoch: u32) -> u64 {
    OURS | u64::from(epoch)
}

/// A signal of ours on a simulated machine, which has no others. The code that it
/// interrupts is the scenario's, never the system's.
#[cfg(sim)]
pub(crate) fn on_simulated(value: u64) {
    super::freeze::answer(Epoch::from_word(value as u32), 0);
}

/// SIGURG: sysmon asks the thread to stand still, or somebody else means something.
extern "C" fn on_preempt(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno = os::errno();
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler; one that
    // was queued has a value.
    let value = unsafe {
        let queued = (*info).si_code == libc::SI_QUEUE;
        queued.then(|| (*info).si_value().sival_ptr as u64)
    };
    match value.filter(|value| value & !u64::from(u32::MAX) == OURS) {
        Some(value) => {
            let epoch = Epoch::from_word(value as u32);
            // SAFETY: the kernel passes the interrupted thread's context.
            super::freeze::answer(epoch, unsafe { program_counter(context.cast()) });
        }
        None => pass_on(signal, info, context),
    }
    os::set_errno(errno);
}

/// # Safety
///
/// `context` is what the kernel passed to a handler.
unsafe fn program_counter(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "x86_64")]
    return unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    // SAFETY: the caller's promise.
    #[cfg(target_arch = "aarch64")]
    return unsafe { (*context).uc_mcontext.pc as usize };
}

/// The code of the C library, the dynamic linker and the vDSO: as pairs of
/// addresses, zero at the end. Written once, before any goroutine runs.
static SYSTEM_CODE: [[AtomicUsize; 2]; 16] = [const { [const { AtomicUsize::new(0) }; 2] }; 16];

/// Whether an address is in code that takes locks which everybody needs: malloc's,
/// the linker's.
pub(crate) fn in_system_code(pc: usize) -> bool {
    SYSTEM_CODE.iter().any(|[start, end]| {
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
    })
}

fn find_system_code() {
    let mut found = 0usize;
    // SAFETY: the callback is called with valid information, and `found` outlives
    // the call.
    unsafe { libc::dl_iterate_phdr(Some(note_object), (&raw mut found).cast()) };
}

/// Notes the code of one loaded object, if it is one of the system's.
///
/// # Safety
///
/// Called by `dl_iterate_phdr`, with a `usize` as its data.
unsafe extern "C" fn note_object(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut libc::c_void,
) -> libc::c_int {
    const NAMES: [&[u8]; 5] = [b"libc.so", b"libpthread", b"ld-linux", b"ld-musl", b"linux-vdso"];
    // SAFETY: the caller's promise: the name is a string, the headers an array.
    let (name, headers, base, found) = unsafe {
        let info = &*info;
        (
            std::ffi::CStr::from_ptr(info.dlpi_name).to_bytes(),
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            info.dlpi_addr as usize,
            &mut *data.cast::<usize>(),
        )
    };
    let file = name.rsplit(|c| *c == b'/').next().unwrap_or(name);
    if !NAMES.iter().any(|system| file.starts_with(system)) {
        return 0;
    }
    let code = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0;
    for header in headers.iter().filter(code) {
        let Some([start, end]) = SYSTEM_CODE.get(*found) else { return 1 };
        let low = base + header.p_vaddr as usize;
        start.store(low, Ordering::Relaxed);
        end.store(low + header.p_memsz as usize, Ordering::Relaxed);
        *found += 1;
    }
    0
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// How many threads are in the middle of a fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);

extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether no thread should be stopped now: the child of a fork has only the
/// thread that forked, and whatever the others held stays held there.
pub(crate) fn forking() -> bool {
    FORKING.load(Ordering::SeqCst) != 0 || forked()
}

/// Whether this process was forked from one with a runtime: the threads are
/// gone, and so is what they ran.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The alternate stack of an M, for the handlers.
pub(crate) struct AltStack {
    low: *mut libc::c_void,
    /// What the thread had before, which it gets back.
    before: libc::stack_t,
}

impl AltStack {
    /// Room for a handler and its report, on top of what the kernel stores.
    const SIZE: usize = 64 << 10;

    /// Gives the calling thread an alternate stack. Without memory it keeps the
    /// one that std gave it.
    pub(crate) fn install() -> Option<AltStack> {
        if cfg!(sim) {
            return None; // virtual threads share one real thread, and its stack
        }
        // SAFETY: a new mapping, and a `stack_t` that describes it.
        unsafe {
            let low = libc::mmap(
                ptr::null_mut(),
                Self::SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if low == libc::MAP_FAILED {
                return None;
            }
            let new = libc::stack_t { ss_sp: low, ss_flags: 0, ss_size: Self::SIZE };
            let mut before = std::mem::zeroed();
            libc::sigaltstack(&new, &mut before);
            Some(AltStack { low, before })
        }
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: the thread stops using the stack before it is unmapped.
        unsafe {
            libc::sigaltstack(&self.before, ptr::null_mut());
            libc::munmap(self.low, Self::SIZE);
        }
    }
}

#[cfg(all(test, target_env = "gnu", not(any(loom, sim))))]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_system_is_known() {
        install();
        // The last one is the linker's.
        for name in [c"malloc", c"dlopen", c"clock_gettime", c"__tls_get_addr"] {
            // SAFETY: looks a name up.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            assert!(in_system_code(address), "{name:?} is at {address:#x}");
        }
        // The vDSO is one segment, from its header on.
        // SAFETY: a query.
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        assert!(vdso == 0 || in_system_code(vdso), "{vdso:#x}");
        for own in [install as *const () as usize, find_system_code as *const () as usize, 0] {
            assert!(!in_system_code(own), "{own:#x}");
        }
    }
}
