//! Stack overflow and other faults.

use crate::common::{runtime, until};
use crate::process::{case_of, child};
use heist::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Recurses until the stack is over.
#[inline(never)]
#[allow(unconditional_recursion)]
fn endless(n: u64) -> u64 {
    let block = std::hint::black_box([n; 32]);
    // Used after the call, so that it cannot be a loop.
    endless(n + 1) + std::hint::black_box(block)[0]
}

/// Spawns it, to begin when the gate opens. Returns the line of the spawn too.
fn spawn_endless(
    builder: thread::Builder,
    gate: Arc<AtomicBool>,
) -> (thread::JoinHandle<u64>, u32) {
    let body = move || {
        until(|| gate.load(Ordering::SeqCst));
        endless(0)
    };
    let line = line!() + 1;
    (builder.spawn(body).unwrap(), line)
}

#[test]
fn an_overflow_aborts_with_the_goroutine_its_origin_and_advice() {
    const TEST: &str = "an_overflow_aborts_with_the_goroutine_its_origin_and_advice";
    if let Some(case) = case_of(TEST) {
        let run = || {
            let builder = match case.as_str() {
                "unnamed" => thread::Builder::new(),
                "large" => thread::Builder::new().name("deep".into()).stack_size(20 << 20),
                _ => thread::Builder::new().name("deep".into()),
            };
            let gate = Arc::new(AtomicBool::new(false));
            let (handle, line) = spawn_endless(builder, gate.clone());
            println!("line={line};");
            let shown = format!("{:?}", handle.thread().id());
            let id: String = shown.chars().filter(char::is_ascii_digit).collect();
            println!("id={id};");
            gate.store(true, Ordering::SeqCst);
            handle.join()
        };
        let _ = match case.as_str() {
            "one P" => runtime(1).run(run),
            "four Ps" => runtime(4).run(run),
            _ => heist::run(run),
        };
        unreachable!("it recursed without end");
    }
    for case in ["default", "one P", "four Ps", "unnamed", "large"] {
        let ended = child(TEST, case);
        ended.assert_killed_by(libc::SIGABRT);
        let said = |key: &str| {
            let (_, rest) = ended.stdout.split_once(key).unwrap_or_else(|| panic!("{ended}"));
            rest.split_once(';').unwrap().0.to_owned()
        };
        let name = if case == "unnamed" { "'<unnamed>'" } else { "'deep'" };
        let goroutine = format!("goroutine {} {name} has overflowed its stack", said("id="));
        let site = format!("stack.rs:{}:", said("line="));
        let advice = ["stack overflow", "stack_size", "heist::stack::ensure"];
        ended.assert_says(&[&goroutine, &site]);
        ended.assert_says(&advice);
    }
}

#[test]
fn an_overflow_on_a_segment_is_reported_too() {
    const TEST: &str = "an_overflow_on_a_segment_is_reported_too";
    if case_of(TEST).is_some() {
        runtime(1).run(|| heist::stack::ensure(1 << 20, || endless(0)));
        unreachable!("it recursed without end");
    }
    let ended = child(TEST, "");
    ended.assert_killed_by(libc::SIGABRT);
    ended.assert_says(&["has overflowed its stack", "goroutine "]);
}

#[test]
fn an_overflow_of_a_plain_thread_is_still_reported_by_std() {
    const TEST: &str = "an_overflow_of_a_plain_thread_is_still_reported_by_std";
    if case_of(TEST).is_some() {
        assert_eq!(heist::run(|| 5), 5);
        let named = std::thread::Builder::new().name("plain".into());
        let _ = named.spawn(|| endless(0)).unwrap().join();
        unreachable!("it recursed without end");
    }
    let ended = child(TEST, "");
    ended.assert_killed_by(libc::SIGABRT);
    ended.assert_says(&["thread 'plain'", "has overflowed its stack"]);
    ended.assert_silent_about("goroutine");
}

#[test]
fn a_segmentation_fault_elsewhere_is_one() {
    const TEST: &str = "a_segmentation_fault_elsewhere_is_one";
    if let Some(case) = case_of(TEST) {
        let fault = || {
            let bad = std::hint::black_box(0x10 as *const u64);
            // SAFETY: none: the fault is what is tested.
            unsafe { bad.read_volatile() }
        };
        match case.as_str() {
            "goroutine" => runtime(1).run(fault),
            _ => {
                assert_eq!(heist::run(|| 5), 5);
                fault()
            }
        };
        unreachable!("there is nothing at that address");
    }
    for case in ["goroutine", "plain thread"] {
        let ended = child(TEST, case);
        ended.assert_killed_by(libc::SIGSEGV);
        ended.assert_silent_about("overflow");
    }
}

fn say_and_exit(text: &str, code: i32) -> ! {
    // SAFETY: both calls are async-signal-safe, and the text is alive.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(code)
    }
}

extern "C" fn plain_handler(signal: libc::c_int) {
    say_and_exit("the program's own handler\n", 40 + i32::from(signal == libc::SIGSEGV));
}

extern "C" fn handler_with_address(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _: *mut libc::c_void,
) {
    // SAFETY: the kernel's siginfo, passed on as it was.
    let address = unsafe { (*info).si_addr() } as usize;
    let good = signal == libc::SIGSEGV && address == 0x10;
    say_and_exit("the program's own handler\n", 50 + i32::from(good));
}

#[test]
fn a_fault_that_is_not_ours_goes_to_the_handler_from_before() {
    const TEST: &str = "a_fault_that_is_not_ours_goes_to_the_handler_from_before";
    if let Some(case) = case_of(TEST) {
        // SAFETY: zero is a valid `sigaction`, the handlers are of the types
        // that the flags say, and the pointers are to live locals.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if case.contains("address") {
                action.sa_sigaction = handler_with_address as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
            } else {
                action.sa_sigaction = plain_handler as *const () as usize;
            }
            action.sa_flags |= libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
        }
        if case.contains("overflow") {
            runtime(1).run(|| endless(0));
        }
        runtime(1).run(|| {
            let bad = std::hint::black_box(0x10 as *const u64);
            // SAFETY: none: the fault is what is tested.
            unsafe { bad.read_volatile() }
        });
        unreachable!("there is nothing at that address");
    }
    for (case, code) in [("plain", 41), ("with address", 51)] {
        let ended = child(TEST, case);
        ended.assert_exit(code);
        ended.assert_says(&["the program's own handler"]);
        ended.assert_silent_about("overflow");
    }
    // A goroutine's overflow is ours all the same.
    let ended = child(TEST, "plain, overflow");
    ended.assert_killed_by(libc::SIGABRT);
    ended.assert_says(&["has overflowed its stack"]);
    ended.assert_silent_about("own handler");
}
