//! SIGURG stops goroutines. Others may have a use for it, too.

use super::common::{Hogs, in_a_process, stderr, until, watched};
use heist::{Builder, go, runtime, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn handle_sigurg() {
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGURG, count as *const () as libc::sighandler_t) };
}

/// Runs the rest of the test in a process of its own.
macro_rules! alone {
    () => {
        if let Some(output) = in_a_process() {
            return assert!(output.status.success(), "{}", stderr(&output));
        }
    };
}

#[test]
fn a_handler_from_before_gets_what_is_not_ours() {
    alone!();
    handle_sigurg();
    watched(|| {
        Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
            let hogs = Hogs::start(4, || ());
            while runtime::stats().freezes < 20 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
            assert_eq!(CALLS.load(Ordering::Relaxed), 0, "ours are not passed on");
            for sent in 1..=3 {
                // SAFETY: there is a handler for it.
                unsafe { libc::raise(libc::SIGURG) };
                assert_eq!(CALLS.load(Ordering::Relaxed), sent);
            }
        });
    });
}

/// One that is told more than the number of the signal is told all that the kernel said.
#[test]
fn a_handler_from_before_gets_the_details() {
    extern "C" fn count_queued(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel's, for one that was queued.
        let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr as usize) };
        if signal == libc::SIGURG && code == libc::SI_QUEUE && value == 77 && !context.is_null() {
            CALLS.fetch_add(1, Ordering::Relaxed);
        } else {
            CALLS.fetch_add(1000, Ordering::Relaxed);
        }
    }
    alone!();
    // SAFETY: zero is a valid `sigaction`, and the handler only reads and counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count_queued as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()), 0);
    }
    watched(|| {
        some_are_stopped(|| {
            assert_eq!(CALLS.load(Ordering::Relaxed), 0, "ours are not passed on");
            for sent in 1..=3 {
                let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(77) };
                // SAFETY: there is a handler for it.
                unsafe { libc::sigqueue(libc::getpid(), libc::SIGURG, value) };
                // Whichever thread it hits.
                until(|| CALLS.load(Ordering::Relaxed) >= sent);
                assert_eq!(CALLS.load(Ordering::Relaxed), sent);
            }
        });
    });
}

/// A process that ignores the signal has goroutines stopped by it, and ignores others.
#[test]
fn a_signal_that_was_ignored_before_still_is() {
    alone!();
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) };
    watched(|| {
        some_are_stopped(|| {
            for _ in 0..3 {
                // SAFETY: sends a signal that nobody minds.
                assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
            }
            // It was not mistaken for a reason to forget about ours.
            let before = runtime::stats().freezes;
            let hogs = Hogs::start(4, || ());
            while runtime::stats().freezes < before + 10 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
        });
    });
}

/// Calls `then` when some goroutines have been stopped by the signal.
fn some_are_stopped(then: fn()) {
    Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
        let hogs = Hogs::start(4, || ());
        while runtime::stats().freezes < 20 {
            time::sleep(Duration::from_millis(1));
        }
        hogs.stop();
        then();
    });
}

#[test]
fn nobody_starves_if_the_handler_is_replaced() {
    alone!();
    watched(|| {
        Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
            handle_sigurg();
            let hogs = Hogs::start(4, || ());
            let mut rounds = 0;
            // So often sysmon has tried to stop one, in vain.
            while rounds < 20 || CALLS.load(Ordering::Relaxed) < 3 {
                time::sleep(Duration::from_millis(1));
                go(|| ()).join().unwrap();
                rounds += 1;
            }
            assert_eq!(runtime::stats().freezes, 0);
            hogs.stop();
        });
    });
}

#[test]
fn nobody_starves_if_the_signal_is_masked() {
    alone!();
    watched(|| {
        Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
            let hogs = Hogs::start(4, || {
                // SAFETY: a set that is filled before it is used.
                unsafe {
                    let mut set = std::mem::MaybeUninit::uninit();
                    libc::sigemptyset(set.as_mut_ptr());
                    libc::sigaddset(set.as_mut_ptr(), libc::SIGURG);
                    libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
                }
            });
            let (mut rounds, mut sent) = (0, false);
            while rounds < 20 || !sent {
                time::sleep(Duration::from_millis(1));
                go(|| ()).join().unwrap();
                rounds += 1;
                // It stays pending: nobody lifts the mask.
                sent = sent || some_thread_has_sigurg_pending();
            }
            assert_eq!(runtime::stats().freezes, 0);
            hogs.stop();
        });
    });
}

fn some_thread_has_sigurg_pending() -> bool {
    let pending = |status: String| {
        let set = status.lines().find_map(|line| line.strip_prefix("SigPnd:"))?;
        let set = u64::from_str_radix(set.trim(), 16).ok()?;
        Some(set >> (libc::SIGURG - 1) & 1 != 0)
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .any(|status| pending(status).unwrap_or(false))
}

/// Those who block their thread are found by their clock, and those who compute are let
/// go on while they are few: no signal is sent for either.
#[test]
fn a_p_is_taken_without_a_signal() {
    const ALL: usize = 16;
    alone!();
    watched(|| {
        let builder = Builder::new().max_procs(1).max_runners(ALL);
        builder.build().unwrap().run(|| {
            handle_sigurg();
            let here = Arc::new(std::sync::Barrier::new(ALL));
            let all: Vec<_> = (0..ALL)
                .map(|_| {
                    let here = here.clone();
                    go(move || {
                        here.wait();
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            // All but the last had blocked the only P.
            assert!(runtime::stats().retakes >= ALL as u64 - 1);
            let hogs = Hogs::start(4, || ());
            let before = runtime::stats().retakes;
            while runtime::stats().retakes < before + 4 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
            assert_eq!(runtime::stats().freezes, 0);
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    });
}

/// As many as may compute without a P do.
#[test]
fn nobody_is_stopped_at_the_cap() {
    watched(|| {
        Builder::new().max_procs(2).build().unwrap().run(|| {
            let hogs = Hogs::start(2, || ());
            // Two that want a P all the time: the hogs lose theirs.
            let stop = hogs.flag();
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let stop = stop.clone();
                    go(move || {
                        while !stop.load(Ordering::Relaxed) {
                            heist::thread::yield_now();
                        }
                    })
                })
                .collect();
            until(|| runtime::stats().retakes >= 2);
            // Ten times as long as it takes to stop one.
            for _ in 0..50 {
                time::sleep(Duration::from_millis(1));
            }
            assert_eq!(runtime::stats().freezes, 0);
            hogs.stop();
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    });
}

/// What a goroutine has in its registers is what it had before it was stopped.
#[test]
fn registers_survive() {
    watched(|| {
        Builder::new().max_procs(2).max_runners(0).build().unwrap().run(|| {
            let next = Arc::new(AtomicU32::new(0));
            let hogs = Hogs::start(8, move || {
                let seed = next.fetch_add(1, Ordering::Relaxed) % 4;
                check_state(seed);
            });
            // One that panics ends, and then there may be too few to be stopped.
            while runtime::stats().freezes < 100 && hogs.running() == 8 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
        });
    });
}

/// Whoever stops the goroutine in here leaves all of it as it was.
pub(super) fn check_state(seed: u32) {
    // None that a futex would set.
    let number = 1000 + seed as libc::c_int;
    set_errno(number);
    set_rounding(seed);
    check_vectors(seed);
    check_registers(u64::from(seed));
    check_wide_registers(u64::from(seed));
    assert_eq!(rounding(), if cfg!(target_arch = "x86_64") { [seed; 2] } else { [0; 2] });
    set_rounding(0);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(number));
}

fn set_errno(number: libc::c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Sums of whole numbers, in as many vector registers as the compiler likes.
fn check_vectors(seed: u32) {
    let mut sums = [f64::from(seed); 16];
    for round in 0..20_000u32 {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += f64::from(round % 3) + lane as f64;
        }
    }
    for (lane, sum) in sums.iter().enumerate() {
        // 20,000 rounds: 6,667 zeros, 6,667 ones, 6,666 twos.
        let right = f64::from(seed) + 19_999.0 + 20_000.0 * lane as f64;
        assert_eq!(sum.to_bits(), right.to_bits());
    }
}

/// All vector registers have what was put into them, after a few milliseconds in which
/// nothing touches them: as wide as the machine has them (AVX), or 128 bits.
#[cfg(target_arch = "x86_64")]
fn check_registers(seed: u64) {
    use std::arch::asm;
    let put: [[u64; 4]; 16] =
        std::array::from_fn(|i| std::array::from_fn(|j| seed << 32 | (i * 4 + j) as u64));
    let mut got = [[0u64; 4]; 16];
    let wide = is_x86_feature_detected!("avx");
    /// Loads the registers, counts down, stores them.
    macro_rules! keep {
        ($load:literal, $store:literal, $name:literal, $after:literal, $($i:literal)*) => {
            asm!(
                $(concat!($load, " ", $name, $i, ", [{put} + 32*", $i, "]"),)*
                "2: dec {count}",
                "jnz 2b",
                $(concat!($store, " [{got} + 32*", $i, "], ", $name, $i),)*
                $after,
                put = in(reg) put.as_ptr(),
                got = in(reg) got.as_mut_ptr(),
                count = inout(reg) 5_000_000u64 => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            )
        };
    }
    // SAFETY: reads and writes the two arrays, with instructions that the machine has.
    unsafe {
        if wide {
            keep!("vmovups", "vmovups", "ymm", "vzeroupper", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        } else {
            keep!("movups", "movups", "xmm", "", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
    let width = if wide { 4 } else { 2 };
    for (put, got) in put.iter().zip(&got) {
        assert_eq!(put[..width], got[..width]);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn check_registers(_: u64) {}

/// The same of the 32 registers of 512 bits and a mask, if the machine has them.
#[cfg(target_arch = "x86_64")]
fn check_wide_registers(seed: u64) {
    use std::arch::asm;
    if !is_x86_feature_detected!("avx512f") {
        return;
    }
    let put: [[u64; 8]; 32] =
        std::array::from_fn(|i| std::array::from_fn(|j| seed << 32 | (i * 8 + j) as u64));
    let mut got = [[0u64; 8]; 32];
    let mask = 0xa5a0 | seed as u32 & 3;
    let mut mask_got: u32;
    macro_rules! keep {
        ($($i:literal)*) => {
            asm!(
                "kmovw k5, {mask:e}",
                $(concat!("vmovdqu64 zmm", $i, ", [{put} + 64*", $i, "]"),)*
                "2: dec {count}",
                "jnz 2b",
                $(concat!("vmovdqu64 [{got} + 64*", $i, "], zmm", $i),)*
                "kmovw {mask:e}, k5",
                "vzeroupper",
                put = in(reg) put.as_ptr(),
                got = in(reg) got.as_mut_ptr(),
                mask = inout(reg) mask => mask_got,
                count = inout(reg) 5_000_000u64 => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                // The others, and k5, are nobody's in code that is not compiled for them.
                options(nostack),
            )
        };
    }
    // SAFETY: reads and writes the two arrays, with instructions that the machine has.
    unsafe {
        keep!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
              16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    }
    assert_eq!((put, mask), (got, mask_got));
}

#[cfg(not(target_arch = "x86_64"))]
fn check_wide_registers(_: u64) {}

/// The direction of rounding in the control words of SSE and of the x87.
#[cfg(target_arch = "x86_64")]
fn rounding() -> [u32; 2] {
    let (mut mxcsr, mut x87) = (0u32, 0u16);
    // SAFETY: stores two registers to live locals.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr);
        std::arch::asm!("fnstcw [{}]", in(reg) &raw mut x87);
    }
    [mxcsr >> 13 & 3, u32::from(x87 >> 10 & 3)]
}

/// Sums of whole numbers come out the same in each direction.
#[cfg(target_arch = "x86_64")]
fn set_rounding(direction: u32) {
    let (mxcsr, x87) = (0x1f80 | direction << 13, 0x037f | (direction << 10) as u16);
    // SAFETY: all exceptions stay masked; only the direction of rounding changes.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr);
        std::arch::asm!("fldcw [{}]", in(reg) &raw const x87);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn rounding() -> [u32; 2] {
    [0; 2]
}

#[cfg(not(target_arch = "x86_64"))]
fn set_rounding(_: u32) {}

/// What the kernel says of a thread: which signals it blocks.
fn blocked(task: &std::path::Path) -> Option<u64> {
    let status = std::fs::read_to_string(task.join("status")).ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

fn has(set: u64, signal: libc::c_int) -> bool {
    set >> (signal - 1) & 1 != 0
}

/// While a thread stands still it runs no handler of the program's: all signals are
/// masked there but those that a fault raises. They come when it goes on.
#[test]
fn a_thread_that_stands_still_runs_no_other_handler() {
    static NESTED: AtomicUsize = AtomicUsize::new(0);
    /// Counts its calls, and those on top of a handler of ours, where that is masked.
    extern "C" fn note(_: libc::c_int) {
        // SAFETY: asks only; the set is filled before it is read.
        let masked = unsafe {
            let mut set = std::mem::MaybeUninit::uninit();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), libc::SIGURG) == 1
        };
        NESTED.fetch_add(usize::from(masked), Ordering::SeqCst);
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    const MASKED: [libc::c_int; 9] = [
        libc::SIGURG,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGALRM,
        libc::SIGPROF,
        libc::SIGCHLD,
    ];
    const FAULTS: [libc::c_int; 5] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    alone!();
    // SAFETY: the handler asks and counts.
    unsafe { libc::signal(libc::SIGUSR1, note as *const () as libc::sighandler_t) };
    watched(|| {
        let sent = Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
            let hogs = Hogs::start(4, || ());
            let (mut seen, mut sent) = (0, 0);
            while seen < 50 {
                time::sleep(Duration::from_millis(1));
                let tasks = std::fs::read_dir("/proc/self/task").unwrap();
                for task in tasks.filter_map(|task| Some(task.ok()?.path())) {
                    // In our handler it is masked.
                    let Some(set) = blocked(&task).filter(|set| has(*set, libc::SIGURG)) else {
                        continue;
                    };
                    if has(set, libc::SIGSEGV) {
                        // A thread that is being made: the C library masks all of them.
                        continue;
                    }
                    seen += 1;
                    assert_eq!(MASKED.map(|signal| has(set, signal)), [true; 9], "{set:x}");
                    assert_eq!(FAULTS.map(|signal| has(set, signal)), [false; 5], "{set:x}");
                    let id: i32 = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
                    // SAFETY: there is a handler for it.
                    let rc = unsafe {
                        libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1)
                    };
                    sent += usize::from(rc == 0);
                }
            }
            hogs.stop();
            sent
        });
        // Those that came while another was pending are one.
        let calls = CALLS.load(Ordering::SeqCst);
        assert!((1..=sent).contains(&calls), "{calls} of {sent}");
        assert_eq!(NESTED.load(Ordering::SeqCst), 0, "a handler ran on top of ours");
    });
}
