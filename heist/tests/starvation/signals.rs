//! SIGURG stops goroutines. Others may have a use for it, too.

use super::common::{Hogs, in_a_process, stderr, watched};
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

#[test]
fn nobody_starves_if_the_handler_is_replaced() {
    alone!();
    watched(|| {
        Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
            handle_sigurg();
            let hogs = Hogs::start(4, || ());
            for _ in 0..20 {
                time::sleep(Duration::from_millis(1));
                go(|| ()).join().unwrap();
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
            for _ in 0..20 {
                time::sleep(Duration::from_millis(1));
                go(|| ()).join().unwrap();
            }
            hogs.stop();
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
                set_rounding(seed);
                check_vectors(seed);
                check_registers(u64::from(seed));
                assert_eq!(rounding(), if cfg!(target_arch = "x86_64") { seed } else { 0 });
                set_rounding(0);
            });
            while runtime::stats().freezes < 100 {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
        });
    });
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

#[cfg(target_arch = "x86_64")]
fn rounding() -> u32 {
    let mut mxcsr = 0u32;
    // SAFETY: stores a register to a live local.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr) };
    mxcsr >> 13 & 3
}

/// Sums of whole numbers come out the same in each direction.
#[cfg(target_arch = "x86_64")]
fn set_rounding(direction: u32) {
    let mxcsr = 0x1f80 | direction << 13;
    // SAFETY: all exceptions stay masked; only the direction of rounding changes.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr) };
}

#[cfg(not(target_arch = "x86_64"))]
fn rounding() -> u32 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn set_rounding(_: u32) {}
