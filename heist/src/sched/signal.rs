//! Signals: stack overflow, SIGQUIT, and fork.
//!
//! Handlers allocate nothing and take no lock. Each knows the handler that was
//! there before and passes on what is not ours.

use super::m;
use super::names;
use crate::prim::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::prim::os::write_stderr;
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
        // SAFETY: the handler is async-signal-safe: it stores a flag.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    });
}

static BEFORE_SEGV: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static BEFORE_BUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Sets a handler that runs on the alternate stack; returns the old one.
fn set_handler(signal: libc::c_int, handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: zero is a valid `sigaction`, and all pointers are to live locals.
    unsafe {
        let mut new: libc::sigaction = mem::zeroed();
        let mut old = MaybeUninit::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags | libc::SA_ONSTACK;
        libc::sigemptyset(&mut new.sa_mask);
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
         thread::Builder::stack_size), or wrap the recursion in heist::stack::ensure"
    );
    let left = rest.len();
    let used = text.len() - left;
    write_stderr(&text[..used]);
    std::process::abort()
}

/// Lets the handler from before decide about a fault.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = if signal == libc::SIGSEGV { &BEFORE_SEGV } else { &BEFORE_BUS };
    // SAFETY: set once, never freed.
    let before = unsafe { before.load(Ordering::SeqCst).as_ref() };
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    match handler {
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

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process was forked from one with a runtime: the threads are
/// gone, and so is what they ran.
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The alternate stack of an M, for the handlers.
pub(crate) struct AltStack {
    low: *mut libc::c_void,
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
            libc::sigaltstack(&new, ptr::null_mut());
            Some(AltStack { low })
        }
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        // SAFETY: the thread stops using the stack before it is unmapped.
        unsafe {
            let off = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: Self::SIZE,
            };
            libc::sigaltstack(&off, ptr::null_mut());
            libc::munmap(self.low, Self::SIZE);
        }
    }
}
