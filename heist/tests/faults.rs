//! Bad input and bad luck: overflows, crashes, deadlocks, signals, exits,
//! panics. Each gives a clear message or keeps working; nothing hangs.
//!
//! Most of these end a process, so they run this binary again for one test with
//! `HEIST_TEST_CHILD` set. Two need a process without libtest's threads:
//! `examples/deadlock.rs` and `examples/panics.rs`.

mod common;

use common::{runtime, text, until, watched};
use heist::{PanicPolicy, Runtime, thread};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

// ---- processes -----------------------------------------------------------------------

/// How a process ended, and what it said.
struct Ended {
    status: std::process::ExitStatus,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    #[track_caller]
    fn assert_says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "no '{part}' in {self}");
        }
    }

    #[track_caller]
    fn assert_silent_about(&self, part: &str) {
        assert!(!self.stderr.contains(part), "'{part}' in {self}");
    }

    #[track_caller]
    fn assert_killed_by(&self, signal: libc::c_int) {
        assert_eq!(self.status.signal(), Some(signal), "{self}");
    }

    #[track_caller]
    fn assert_exit(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{self}");
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ended { status, stdout, stderr } = self;
        write!(f, "a process that ended with {status}:\n{stdout}\n--- stderr:\n{stderr}")
    }
}

/// Waits for a process, and kills it if it hangs.
fn finish(command: &mut Command, patience: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // One that hangs does not outlive this process either.
    // SAFETY: the closure makes one system call, without pointers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    let (over, wait) = mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        let hangs = wait.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: a system call without pointers; the child is not reaped
            // before this thread is told.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        hangs
    });
    let output = child.wait_with_output().unwrap();
    drop(over);
    let ended = Ended::of(output);
    assert!(!killer.join().unwrap(), "hung, and was killed: {ended}");
    ended
}

const PATIENCE: Duration = Duration::from_secs(60);

/// The command that runs one test of this file in a process of its own.
fn this_test(test: &str, case: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    child.env("HEIST_TEST_CHILD", test).env("HEIST_TEST_CASE", case);
    child.env_remove("HEISTDEBUG").env_remove("HEIST_MAX_PROCS").env("RUST_BACKTRACE", "0");
    child
}

/// In the process that [`this_test`] starts for this test: its case.
fn case_of(test: &str) -> Option<String> {
    if std::env::var("HEIST_TEST_CHILD").as_deref() != Ok(test) {
        return None;
    }
    // No core files: these processes are meant to crash.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    Some(std::env::var("HEIST_TEST_CASE").unwrap())
}

/// Runs a case of a test in a process of its own.
fn child(test: &str, case: &str) -> Ended {
    finish(&mut this_test(test, case), PATIENCE)
}

/// An example of this package, which cargo builds along with its tests.
fn example(name: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo test` builds it, `cargo test --test faults` alone does not \
         (cargo build -p heist --examples)",
        path.display()
    );
    let mut command = Command::new(path);
    command.env_remove("HEISTDEBUG").env_remove("HEIST_MAX_PROCS").env("RUST_BACKTRACE", "0");
    command
}

// ---- stack overflow and other faults -----------------------------------------------------

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
        let site = format!("faults.rs:{}:", said("line="));
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

// ---- deadlock and SIGQUIT ---------------------------------------------------------------------

const DEADLOCK: &str = "fatal error: all goroutines are asleep - deadlock!";

#[test]
fn a_deadlock_is_reported_with_all_goroutines_and_code_2() {
    let ended = finish(&mut example("deadlock"), PATIENCE);
    ended.assert_exit(2);
    assert!(ended.stderr.starts_with(DEADLOCK), "{ended}");
    ended.assert_says(&["'left' [park]:", "'right' [park]:", "[join]:", "created by goroutine"]);
    assert_eq!(ended.stderr.lines().filter(|l| l.starts_with("goroutine ")).count(), 3, "{ended}");
    assert!(ended.stderr.matches("deadlock.rs:").count() >= 6, "both sites of each: {ended}");

    let ended = finish(example("deadlock").arg("joined"), PATIENCE);
    ended.assert_exit(2);
    ended.assert_says(&[DEADLOCK, "'parked' [park]:", "'waits' [join]:"]);
}

#[test]
fn no_deadlock_is_reported_while_somebody_waits_for_the_network() {
    let ended = finish(example("deadlock").arg("network"), PATIENCE);
    assert!(ended.stdout.contains("rescued"), "{ended}");
}

#[test]
fn no_deadlock_is_reported_while_a_plain_thread_could_wake_somebody() {
    let ended = finish(example("deadlock").arg("rescued"), PATIENCE);
    ended.assert_exit(0);
    assert!(ended.stdout.contains("rescued"), "{ended}");
    ended.assert_silent_about("deadlock");
}

#[test]
fn a_deadlock_is_reported_when_the_last_other_thread_has_ended() {
    let ended = finish(example("deadlock").arg("late"), Duration::from_secs(10));
    ended.assert_exit(2);
    ended.assert_says(&[DEADLOCK, "'sleeper' [park]:"]);
}

/// A goroutine that blocks its thread, in a call that it declared or not, may wake
/// another one when it returns.
#[test]
fn no_deadlock_is_reported_while_a_goroutine_blocks_its_thread() {
    for call in ["blocked", "call"] {
        let ended = finish(example("deadlock").arg(call), PATIENCE);
        ended.assert_exit(0);
        assert!(ended.stdout.contains("rescued"), "{ended}");
        ended.assert_silent_about("deadlock");
    }
}

/// One that waits with its thread wakes nobody.
#[test]
fn a_deadlock_is_reported_beside_a_thread_that_waits_with_its_goroutine() {
    let ended = finish(example("deadlock").arg("locked"), PATIENCE);
    ended.assert_exit(2);
    ended.assert_says(&[DEADLOCK, "'locked' [park, locked to thread]:"]);
}

#[test]
fn no_deadlock_is_reported_under_libtest() {
    const TEST: &str = "no_deadlock_is_reported_under_libtest";
    if case_of(TEST).is_some() {
        // This thread and libtest's own are there, and could wake somebody.
        let runtime = runtime(2);
        let parked = runtime.go(|| thread::park());
        std::thread::sleep(Duration::from_millis(500));
        parked.thread().unpark();
        parked.join().unwrap();
        return;
    }
    let ended = child(TEST, "");
    ended.assert_exit(0);
    ended.assert_silent_about("deadlock");
}

#[test]
fn sigquit_prints_the_goroutines_and_exits_with_2() {
    const TEST: &str = "sigquit_prints_the_goroutines_and_exits_with_2";
    if let Some(case) = case_of(TEST) {
        let runtime = runtime(2);
        let asleep = Arc::new(AtomicBool::new(false));
        let says = asleep.clone();
        let named = runtime.run(move || {
            let sleep = move || {
                says.store(true, Ordering::SeqCst);
                thread::park();
            };
            thread::Builder::new().name("sleeper".into()).spawn(sleep).unwrap()
        });
        until(|| asleep.load(Ordering::SeqCst));
        until(|| heist::debug::dump().contains("[park]"));
        let (hogs, begun) = (if case == "busy" { 2 } else { 0 }, Arc::new(AtomicUsize::new(0)));
        for _ in 0..hogs {
            let begun = begun.clone();
            drop::<thread::JoinHandle<()>>(runtime.go(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                loop {
                    std::hint::spin_loop();
                }
            }));
        }
        until(|| begun.load(Ordering::SeqCst) == hogs);
        if case == "idle" {
            // Until all threads of the runtime sleep deeply.
            std::thread::sleep(Duration::from_millis(300));
        }
        println!("ready");
        named.join().unwrap();
        unreachable!("nobody wakes it");
    }
    for case in ["idle", "busy"] {
        let mut command = this_test(TEST, case);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A job in the background of a script inherits that the signal is ignored.
        // SAFETY: a system call without pointers.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGQUIT, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "it never was");
        // SAFETY: a system call without pointers, to a child that is not reaped.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGQUIT) };
        // The other end closes when the process ends.
        let rest = lines.map_while(Result::ok).collect::<String>();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let ended = Ended { status: child.wait().unwrap(), stdout: rest, stderr };
        ended.assert_exit(2);
        ended.assert_says(&["SIGQUIT", "'sleeper' [park]:", "faults.rs:"]);
        if case == "busy" {
            ended.assert_says(&["[running]"]);
        }
    }
}

#[test]
fn a_program_with_its_own_idea_of_sigquit_keeps_it() {
    const TEST: &str = "a_program_with_its_own_idea_of_sigquit_keeps_it";
    if case_of(TEST).is_some() {
        // SAFETY: to ignore a signal is always allowed.
        unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
        let runtime = runtime(1);
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGQUIT) };
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(runtime.run(|| 5), 5);
        return;
    }
    let ended = child(TEST, "");
    ended.assert_exit(0);
    ended.assert_silent_about("SIGQUIT");
}

// ---- exit and fork -------------------------------------------------------------------------------

#[test]
fn exit_inside_a_goroutine_keeps_its_code() {
    const TEST: &str = "exit_inside_a_goroutine_keeps_its_code";
    if let Some(case) = case_of(TEST) {
        let exit = || {
            // Others sleep, yield and wait meanwhile.
            drop(thread::spawn(|| thread::park()));
            drop(thread::spawn(|| until(|| false)));
            let exits = thread::spawn(|| {
                (0..10).for_each(|_| thread::yield_now());
                std::process::exit(7);
            });
            exits.join().unwrap()
        };
        watched(|| match case.as_str() {
            "1" => runtime(1).run(exit),
            "4" => runtime(4).run(exit),
            "main" => heist::run(|| std::process::exit(7)),
            _ => heist::run(exit),
        });
        unreachable!("it has ended");
    }
    for case in ["1", "4", "main", "default"] {
        let ended = child(TEST, case);
        ended.assert_exit(7);
        assert_eq!(ended.stderr, "", "{ended}");
    }
}

#[test]
fn goroutines_run_other_programs() {
    watched(|| {
        for procs in [1, 4] {
            runtime(procs).run(|| {
                thread::scope(|s| {
                    let handles: Vec<_> = (0..8)
                        .map(|i| {
                            s.spawn(move || {
                                let mut command = Command::new(std::env::current_exe().unwrap());
                                command.args(["--list", "--format=terse"]);
                                if i % 2 == 0 {
                                    // With this, std forks, and does not ask the
                                    // C library for more.
                                    // SAFETY: the closure does nothing.
                                    unsafe { command.pre_exec(|| Ok(())) };
                                }
                                command.output().unwrap()
                            })
                        })
                        .collect();
                    for handle in handles {
                        let output = handle.join().unwrap();
                        assert!(output.status.success());
                        let text = String::from_utf8(output.stdout).unwrap();
                        assert!(text.contains("goroutines_run_other_programs: test"), "{text}");
                    }
                });
                assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
            });
        }
    });
}

/// Forks; the child calls `f` and exits with its value. Returns the child's
/// code, or `None` if it hung and was killed.
fn in_a_fork(f: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child calls only what the test is about, then `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(f)).unwrap_or(101);
        // SAFETY: ends the process, whatever state it is in.
        unsafe { libc::_exit(code) };
    }
    for _ in 0..500 {
        let mut status = 0;
        // SAFETY: the pointer is to a live local, the child is this one's.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 => std::thread::sleep(Duration::from_millis(10)),
            _ => return Some(std::process::ExitStatus::from_raw(status).code().unwrap_or(-1)),
        }
    }
    // SAFETY: as above.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    None
}

#[test]
fn a_goroutine_that_forks_goes_on_and_so_does_its_child() {
    const TEST: &str = "a_goroutine_that_forks_goes_on_and_so_does_its_child";
    if case_of(TEST).is_some() {
        watched(|| {
            for procs in [1, 2] {
                let codes = runtime(procs).run(|| {
                    let others: Vec<_> =
                        (0..10).map(|_| thread::spawn(|| thread::park())).collect();
                    let codes: Vec<_> = (0..5).map(|i| in_a_fork(|| 30 + i)).collect();
                    others.iter().for_each(|handle| handle.thread().unpark());
                    others.into_iter().for_each(|handle| handle.join().unwrap());
                    codes
                });
                assert_eq!(codes, (30..35).map(Some).collect::<Vec<_>>());
            }
        });
        return;
    }
    child(TEST, "").assert_exit(0);
}

/// The threads are gone in the child: whoever uses heist there gets an answer
/// or an error, and does not wait for ever.
#[test]
fn heist_in_a_forked_process_works_or_says_that_it_does_not() {
    const TEST: &str = "heist_in_a_forked_process_works_or_says_that_it_does_not";
    let works = || if heist::run(|| heist::go(|| 5).join().unwrap()) == 5 { 0 } else { 1 };
    if let Some(case) = case_of(TEST) {
        let code = match case.as_str() {
            // The default runtime has not started in the parent.
            "before the first use" => {
                assert_eq!(runtime(1).run(|| 5), 5);
                in_a_fork(works)
            }
            "after the first use" => {
                assert_eq!(heist::run(|| 5), 5);
                in_a_fork(works)
            }
            _ => runtime(2).run(|| in_a_fork(works)),
        };
        // A panic's code, since that is what an error is here, or success.
        assert!(matches!(code, Some(0 | 101)), "{code:?}");
        return;
    }
    for case in ["before the first use", "after the first use", "in a goroutine"] {
        let ended = child(TEST, case);
        assert!(ended.status.success(), "{case}: {ended}");
    }
}

// ---- much of it ---------------------------------------------------------------------------------------

#[test]
fn a_million_spawns_without_a_yield_all_run() {
    const MILLION: usize = 1_000_000;
    watched(|| {
        for procs in [1, 2] {
            let ran = Arc::new(AtomicUsize::new(0));
            let runtime = runtime(procs);
            runtime.run(|| {
                for _ in 0..MILLION {
                    let ran = ran.clone();
                    drop(thread::spawn(move || ran.fetch_add(1, Ordering::Relaxed)));
                }
                until(|| ran.load(Ordering::Relaxed) == MILLION);
            });
            assert_eq!(ran.load(Ordering::SeqCst), MILLION);
        }
    });
}

/// The result of a goroutine is there, and its local values are being dropped,
/// when its handle goes: nobody will ask for the result any more.
mod between_the_result_and_the_end {
    use super::*;

    static INSIDE: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    /// Holds its goroutine at its end.
    struct Holds;
    impl Drop for Holds {
        fn drop(&mut self) {
            INSIDE.store(true, Ordering::SeqCst);
            until(|| GO_ON.load(Ordering::SeqCst));
        }
    }

    heist::goroutine_local! {
        static HOLDS: Holds = Holds;
    }

    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            thread::yield_now();
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_handle_that_goes_leaves_a_result_that_is_dropped_once_and_counted_once() {
        watched(|| {
            for procs in [1, 2, 8] {
                INSIDE.store(false, Ordering::SeqCst);
                GO_ON.store(false, Ordering::SeqCst);
                DROPPED.store(0, Ordering::SeqCst);
                let runtime = runtime(procs);
                let handle = runtime.go(|| {
                    HOLDS.with(|_| ());
                    Counted
                });
                until(|| INSIDE.load(Ordering::SeqCst));
                assert!(!handle.is_finished());
                drop(handle);
                assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
                GO_ON.store(true, Ordering::SeqCst);
                until(|| DROPPED.load(Ordering::SeqCst) == 1 && runtime.num_goroutines() == 0);
                let stats = runtime.stats();
                assert_eq!((stats.spawned, stats.finished), (1, 1), "{procs} Ps");
                drop(runtime);
                assert_eq!(DROPPED.load(Ordering::SeqCst), 1, "{procs} Ps");
            }
        });
    }
}

#[test]
fn a_hundred_thousand_goroutines_sleep_at_the_same_time() {
    const MANY: usize = 100_000;
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            let asleep = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..MANY)
                .map(|i| {
                    let asleep = asleep.clone();
                    thread::spawn(move || {
                        asleep.fetch_add(1, Ordering::Relaxed);
                        thread::park();
                        i
                    })
                })
                .collect();
            until(|| asleep.load(Ordering::Relaxed) == MANY);
            assert_eq!(heist::runtime::num_goroutines(), MANY + 1);
            handles.iter().for_each(|handle| handle.thread().unpark());
            let sum: usize = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!(sum, MANY * (MANY - 1) / 2);
        });
    });
}

#[test]
fn memory_that_the_kernel_refuses_is_an_error() {
    const TEST: &str = "memory_that_the_kernel_refuses_is_an_error";
    if case_of(TEST).is_some() {
        watched(|| {
            let runtime = runtime(2);
            let limit = libc::rlimit { rlim_cur: 8 << 30, rlim_max: 8 << 30 };
            // SAFETY: the pointer is to a live local.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            runtime.run(|| {
                let large = thread::Builder::new().stack_size(16 << 30);
                let error = large.spawn(|| ()).map(drop).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
                assert!(error.to_string().contains("ulimit -v"), "{error}");
                let panic = catch_unwind(|| heist::stack::ensure(16 << 30, || ())).unwrap_err();
                assert!(text(&*panic).contains("ulimit -v"), "{}", text(&*panic));
                assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
            });
            let error = heist::Builder::new().stack_size(1 << 40).build().unwrap_err();
            assert!(error.to_string().contains("stack"), "{error}");
        });
        return;
    }
    child(TEST, "").assert_exit(0);
}

// ---- settings from outside -------------------------------------------------------------------------------

#[test]
fn heist_max_procs_sets_the_number_of_ps() {
    const TEST: &str = "heist_max_procs_sets_the_number_of_ps";
    if let Some(case) = case_of(TEST) {
        let expected = case.parse().unwrap();
        assert_eq!(heist::runtime::max_procs(), expected);
        assert_eq!(heist::run(heist::runtime::max_procs), expected);
        assert_eq!(Runtime::new().unwrap().max_procs(), expected);
        // What the program says itself comes first.
        assert_eq!(runtime(5).max_procs(), 5);
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    for (value, expected) in [("3", "3"), ("1", "1"), (" 64 ", "64"), ("", &cpus)] {
        let mut child = this_test(TEST, expected);
        let ended = finish(child.env("HEIST_MAX_PROCS", value), PATIENCE);
        assert!(ended.status.success(), "'{value}': {ended}");
    }
}

#[test]
fn a_bad_heist_max_procs_is_a_panic_that_says_what_is_wrong() {
    const TEST: &str = "a_bad_heist_max_procs_is_a_panic_that_says_what_is_wrong";
    if let Some(case) = case_of(TEST) {
        let error = Runtime::new().unwrap_err().to_string();
        assert!(error.contains("max_procs") || error.contains("HEIST_MAX_PROCS"), "{error}");
        assert!(error.contains(case.trim()), "{error}");
        // A program that says it itself does not look at the variable.
        assert_eq!(runtime(2).max_procs(), 2);
        heist::run(|| ());
        unreachable!("there is no such number of Ps");
    }
    for value in ["many", "-1", "0", "1025", "1.5", "99999999999999999999"] {
        let mut child = this_test(TEST, value);
        let ended = finish(child.env("HEIST_MAX_PROCS", value), PATIENCE);
        ended.assert_exit(101);
        ended.assert_says(&["cannot start the default runtime", value]);
        ended.assert_silent_about("internal error");
    }
}

/// A parser for lines: each step takes a piece off the front.
struct Line<'a>(&'a str);

impl Line<'_> {
    fn exactly(&mut self, text: &str) -> bool {
        self.0.strip_prefix(text).map(|rest| self.0 = rest).is_some()
    }

    fn number(&mut self) -> Option<u64> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        number.parse().ok()
    }

    /// `[ 1 2 3 ]`.
    fn list(&mut self) -> Option<Vec<u64>> {
        let mut items = Vec::new();
        if !self.exactly("[ ") {
            return None;
        }
        while !self.exactly("]") {
            items.push(self.number()?);
            if !self.exactly(" ") {
                return None;
            }
        }
        Some(items)
    }
}

/// The numbers of a schedtrace line, if it has Go's shape.
fn parse_schedtrace(line: &str) -> Option<(Vec<u64>, Vec<u64>, Vec<u64>)> {
    let mut line = Line(line);
    let mut numbers = Vec::new();
    for before in [
        "SCHED ",
        "ms: gomaxprocs=",
        " idleprocs=",
        " threads=",
        " spinningthreads=",
        " needspinning=",
        " idlethreads=",
        " runqueue=",
    ] {
        if !line.exactly(before) {
            return None;
        }
        numbers.push(line.number()?);
    }
    if !line.exactly(" ") {
        return None;
    }
    let queues = line.list()?;
    if !line.exactly(" schedticks=") {
        return None;
    }
    let ticks = line.list()?;
    line.0.is_empty().then_some((numbers, queues, ticks))
}

/// Something to see for a tenth of a second.
fn some_work(procs: usize) {
    let runtime = runtime(procs);
    let parked = runtime.go(|| thread::park());
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(150) {
        runtime.run(|| (0..100).for_each(|_| thread::yield_now()));
    }
    parked.thread().unpark();
    parked.join().unwrap();
}

#[test]
fn schedtrace_prints_lines_of_gos_shape() {
    const TEST: &str = "schedtrace_prints_lines_of_gos_shape";
    if case_of(TEST).is_some() {
        return watched(|| some_work(3));
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", "schedtrace=10"), PATIENCE);
    ended.assert_exit(0);
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert!(lines.len() >= 2, "{ended}");
    let mut last = 0;
    for line in lines {
        let parsed = parse_schedtrace(line);
        let (numbers, queues, ticks) = parsed.unwrap_or_else(|| panic!("not its shape: {line}"));
        let [at, procs, idle, threads, spinning, need, idle_threads, _] = numbers[..] else {
            panic!("eight numbers: {line}");
        };
        assert!(at >= last, "the time goes on: {line}");
        last = at;
        assert_eq!((procs, queues.len(), ticks.len()), (3, 3, 3), "{line}");
        assert!(idle <= procs && spinning <= procs && need <= 1, "{line}");
        assert!(idle_threads < threads, "sysmon is one of them: {line}");
    }
    ended.assert_silent_about("  P0:");
}

#[test]
fn scheddetail_prints_a_line_for_each_p_m_and_g() {
    const TEST: &str = "scheddetail_prints_a_line_for_each_p_m_and_g";
    if case_of(TEST).is_some() {
        return watched(|| some_work(2));
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", "schedtrace=10,scheddetail=1"), PATIENCE);
    ended.assert_exit(0);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with("SCHED ")).collect();
    assert!(starts.len() >= 2, "{ended}");
    let fields = |line: &str, names: &[&str]| {
        let rest = line.split_once(": ").map_or("", |(_, rest)| rest);
        names.iter().all(|name| rest.contains(&format!("{name}=")))
    };
    let mut parked = 0;
    for pair in starts.windows(2) {
        let block = &lines[pair[0] + 1..pair[1]];
        let of = |letter: char| {
            block.iter().filter(move |line| {
                let mut parse = Line(line);
                parse.exactly(&format!("  {letter}")) && parse.number().is_some()
            })
        };
        let p = ["status", "schedtick", "syscalltick", "m", "runqsize", "gfreecnt", "timerslen"];
        assert_eq!(of('P').count(), 2, "{block:?}");
        assert!(of('P').all(|line| fields(line, &p)), "{block:?}");
        let m = ["p", "curg", "spinning", "blocked", "lockedg"];
        assert!(of('M').count() >= 1, "{block:?}");
        assert!(of('M').all(|line| fields(line, &m)), "{block:?}");
        assert!(of('G').all(|line| fields(line, &["status", "m", "lockedm"])), "{block:?}");
        parked += of('G').filter(|line| line.contains("status=4(park)")).count();
    }
    assert!(parked >= 1, "one was parked all the time: {ended}");
}

#[test]
fn an_unknown_heistdebug_switch_is_named_and_nothing_stops() {
    const TEST: &str = "an_unknown_heistdebug_switch_is_named_and_nothing_stops";
    if case_of(TEST).is_some() {
        assert_eq!(heist::run(|| 5), 5);
        return;
    }
    for value in ["gctrace=1", "schedtrace=fast", "scheddetail"] {
        let mut child = this_test(TEST, "");
        let ended = finish(child.env("HEISTDEBUG", value), PATIENCE);
        ended.assert_exit(0);
        ended.assert_says(&["HEISTDEBUG", &format!("'{value}'"), "schedtrace="]);
    }
    let mut child = this_test(TEST, "");
    let ended = finish(child.env("HEISTDEBUG", ""), PATIENCE);
    ended.assert_silent_about("HEISTDEBUG");
}

// ---- panics --------------------------------------------------------------------------------------------------

/// Whether a line is `goroutine 'name' (id) panicked at file:line:col:`.
fn is_report(line: &str, name: &str, file: &str) -> bool {
    let mut line = Line(line);
    line.exactly(&format!("goroutine '{name}' ("))
        && line.number().is_some()
        && line.exactly(&format!(") panicked at {file}:"))
        && line.number().is_some()
        && line.exactly(":")
        && line.number().is_some()
        && line.0 == ":"
}

#[test]
fn an_unjoined_panic_is_reported_as_std_does_with_the_goroutine() {
    let ended = finish(&mut example("panics"), PATIENCE);
    ended.assert_exit(0);
    assert!(ended.stdout.contains("done"), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let at = |name: &str| {
        let file = "heist/examples/panics.rs";
        let at = lines.iter().position(|line| is_report(line, name, file));
        at.unwrap_or_else(|| panic!("no report about '{name}' in {ended}"))
    };
    assert_eq!(lines[at("worker") + 1], "out of cookies", "{ended}");
    assert_eq!(lines[at("<unnamed>") + 1], "Box<dyn Any>", "{ended}");
    // A plain thread's panic is std's business.
    ended.assert_says(&["thread 'plain'", "not a goroutine"]);
    assert_eq!(ended.stderr.matches("panicked at").count(), 3, "once each: {ended}");
}

#[test]
fn a_hook_of_the_programs_own_is_called_instead() {
    for case in ["own-hook", "late-hook"] {
        let ended = finish(example("panics").arg(case), PATIENCE);
        ended.assert_exit(0);
        ended.assert_says(&["own hook: Some(\"out of cookies\")", "own hook: None"]);
        assert_eq!(ended.stderr.matches("own hook").count(), 3, "{ended}");
        ended.assert_silent_about("panicked at");
    }
}

#[test]
fn under_the_policy_shut_down_a_panic_ends_the_runtime_and_run_panics() {
    const TEST: &str = "under_the_policy_shut_down_a_panic_ends_the_runtime_and_run_panics";
    struct Says(&'static str);
    impl Drop for Says {
        fn drop(&mut self) {
            println!("dropped {}", self.0);
        }
    }
    if let Some(case) = case_of(TEST) {
        watched(|| {
            let builder = heist::Builder::new().panic_policy(PanicPolicy::ShutDown);
            let builder = builder.shutdown_timeout(Duration::from_secs(20));
            let runtime = builder.max_procs(if case == "one P" { 1 } else { 4 }).build().unwrap();
            assert_eq!(runtime.run(|| thread::spawn(|| 5).join().unwrap()), 5);
            let sleeper = runtime.go(|| {
                let _says = Says("sleeper");
                thread::park();
            });
            let panic = catch_unwind(AssertUnwindSafe(|| {
                runtime.run(|| {
                    let _says = Says("main");
                    // Whoever yields and whoever waits is stopped.
                    drop(thread::spawn(|| {
                        let _says = Says("yielder");
                        until(|| false);
                    }));
                    thread::yield_now();
                    let panics = thread::spawn(|| panic_any("the fatal one"));
                    match case.as_str() {
                        "joined" => drop(panics.join()),
                        _ => drop(panics),
                    }
                    loop {
                        thread::park();
                    }
                })
            }));
            let panic = panic.unwrap_err();
            assert!(text(&*panic).contains("shut down by a panic"), "{}", text(&*panic));
            assert!(text(&*panic).contains("goroutine"), "{}", text(&*panic));
            // It takes nothing any more.
            let refused = catch_unwind(AssertUnwindSafe(|| drop(runtime.go(|| ()))));
            assert!(text(&*refused.unwrap_err()).contains("shut down"));
            drop(runtime);
            assert!(sleeper.join().is_err());
            println!("the end");
        });
        return;
    }
    for case in ["one P", "four Ps", "joined"] {
        let ended = child(TEST, case);
        ended.assert_exit(0);
        for part in ["dropped main", "dropped yielder", "dropped sleeper", "the end"] {
            assert!(ended.stdout.contains(part), "no '{part}': {ended}");
        }
        ended.assert_says(&["the fatal one"]);
        ended.assert_silent_about("left behind");
    }
}

#[test]
fn under_the_policy_shut_down_a_panic_of_run_itself_is_what_comes_out() {
    watched(|| {
        let runtime =
            heist::Builder::new().max_procs(1).panic_policy(PanicPolicy::ShutDown).build().unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.run(|| resume_unwind(Box::new("its own")));
        }));
        assert_eq!(text(&*panic.unwrap_err()), "its own");
    });
}

#[test]
fn under_the_policy_abort_a_panic_ends_the_process_after_its_message() {
    const TEST: &str = "under_the_policy_abort_a_panic_ends_the_process_after_its_message";
    if let Some(case) = case_of(TEST) {
        let builder = heist::Builder::new().panic_policy(PanicPolicy::Abort).max_procs(2);
        let runtime = builder.build().unwrap();
        // A panic that is caught ends nothing.
        runtime.run(|| assert!(catch_unwind(|| panic!("caught")).is_err()));
        println!("before");
        let panics = runtime.go(|| panic!("the last words"));
        match case.as_str() {
            "joined" => drop(panics.join()),
            _ => drop(panics),
        }
        std::thread::sleep(PATIENCE);
        unreachable!("it has ended");
    }
    for case in ["joined", "detached"] {
        let ended = child(TEST, case);
        ended.assert_killed_by(libc::SIGABRT);
        assert!(ended.stdout.contains("before"), "{ended}");
        ended.assert_says(&["the last words"]);
    }
}

#[test]
fn a_destructor_that_blocks_while_unwinding_lets_others_run() {
    /// Waits in every way there is: how many have, and the steps that somebody
    /// else takes meanwhile.
    struct Waits(Arc<AtomicUsize>, Arc<AtomicUsize>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(thread::panicking());
            let before = self.1.load(Ordering::SeqCst);
            let me = thread::current();
            // Another goroutine must run, and take its time, on the only P.
            let others = thread::spawn(move || {
                (0..10).for_each(|_| thread::yield_now());
                me.unpark();
                "ran"
            });
            thread::park();
            thread::yield_now();
            assert_eq!(others.join().unwrap(), "ran");
            let mut borrowed = 0;
            thread::scope(|s| {
                s.spawn(|| borrowed = 7);
            });
            assert_eq!(borrowed, 7);
            assert_eq!(thread::current().name(), Some("unwinding"));
            while self.1.load(Ordering::SeqCst) == before {
                thread::spawn(thread::yield_now).join().unwrap();
            }
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    watched(|| {
        for procs in [1, 2] {
            let runtime = runtime(procs);
            let waited = Arc::new(AtomicUsize::new(0));
            let steps = Arc::new(AtomicUsize::new(0));
            runtime.run(|| {
                let background = {
                    let (steps, waited) = (steps.clone(), waited.clone());
                    thread::spawn(move || {
                        until(|| {
                            steps.fetch_add(1, Ordering::SeqCst);
                            waited.load(Ordering::SeqCst) == 20
                        });
                    })
                };
                let unwinding: Vec<_> = (0..20)
                    .map(|_| {
                        let waits = Waits(waited.clone(), steps.clone());
                        let named = thread::Builder::new().name("unwinding".into());
                        named
                            .spawn(move || {
                                let _waits = waits;
                                resume_unwind(Box::new("payload"))
                            })
                            .unwrap()
                    })
                    .collect();
                for handle in unwinding {
                    let joined: thread::Result<()> = handle.join();
                    assert_eq!(text(&*joined.unwrap_err()), "payload");
                }
                background.join().unwrap();
            });
            assert_eq!(waited.load(Ordering::SeqCst), 20);
        }
    });
}

#[test]
fn a_destructor_that_yields_while_unwinding_lets_others_run() {
    const TEST: &str = "a_destructor_that_yields_while_unwinding_lets_others_run";
    struct Polls(Arc<AtomicBool>);
    impl Drop for Polls {
        fn drop(&mut self) {
            until(|| self.0.load(Ordering::SeqCst));
        }
    }
    if let Some(case) = case_of(TEST) {
        runtime(case.parse().unwrap()).run(|| {
            let sent = Arc::new(AtomicBool::new(false));
            let polls = Polls(sent.clone());
            let unwinding = thread::spawn(move || {
                let _polls = polls;
                resume_unwind(Box::new(()))
            });
            let sender = thread::spawn(move || {
                (0..10).for_each(|_| thread::yield_now());
                sent.store(true, Ordering::SeqCst);
            });
            let unwinding: thread::Result<()> = unwinding.join();
            assert!(unwinding.is_err());
            sender.join().unwrap();
        });
        return;
    }
    for procs in ["2", "1"] {
        finish(&mut this_test(TEST, procs), Duration::from_secs(10)).assert_exit(0);
    }
}

#[test]
fn too_many_threads_end_the_program_with_a_message() {
    const TEST: &str = "too_many_threads_end_the_program_with_a_message";
    /// Keeps its thread: a goroutine that unwinds does not leave it.
    struct Stays;
    impl Drop for Stays {
        fn drop(&mut self) {
            loop {
                thread::park();
            }
        }
    }
    if case_of(TEST).is_some() {
        let runtime = heist::Builder::new().max_procs(1).max_threads(4).build().unwrap();
        runtime.run(|| {
            for _ in 0..10 {
                drop(thread::spawn(|| {
                    let _stays = Stays;
                    resume_unwind(Box::new(()))
                }));
            }
            loop {
                thread::yield_now();
            }
        });
    }
    let ended = child(TEST, "");
    ended.assert_killed_by(libc::SIGABRT);
    ended.assert_says(&["4-thread limit", "max_threads"]);
}

#[test]
fn a_limit_of_fewer_threads_than_ps_is_no_end_for_goroutines_that_do_not_block() {
    const TEST: &str =
        "a_limit_of_fewer_threads_than_ps_is_no_end_for_goroutines_that_do_not_block";
    if case_of(TEST).is_some() {
        let built = heist::Builder::new().max_procs(4).max_threads(2).build();
        // An error that says so would be good as well.
        if let Ok(runtime) = built {
            let sum: u64 = watched(|| {
                runtime.run(|| {
                    let handles: Vec<_> = (0..10_000u64)
                        .map(|i| {
                            thread::spawn(move || {
                                thread::yield_now();
                                i
                            })
                        })
                        .collect();
                    handles.into_iter().map(|handle| handle.join().unwrap()).sum()
                })
            });
            assert_eq!(sum, 49_995_000);
        }
        return;
    }
    child(TEST, "").assert_exit(0);
}

#[test]
fn a_panic_where_nobody_can_catch_it_is_a_clear_end() {
    const TEST: &str = "a_panic_where_nobody_can_catch_it_is_a_clear_end";
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    heist::goroutine_local! {
        static BAD: Bad = Bad;
    }
    if let Some(case) = case_of(TEST) {
        let runtime = runtime(1);
        match case.as_str() {
            "a result" => drop(runtime.go(|| {
                thread::yield_now();
                Bad
            })),
            "a local value" => drop(runtime.go(|| BAD.with(|_| ()))),
            "an unwinding" => drop(runtime.go(|| {
                let _bad = Bad;
                resume_unwind(Box::new(()))
            })),
            "a scoped result" => runtime.run(|| thread::scope(|s| drop(s.spawn(|| Bad)))),
            other => unreachable!("{other}"),
        }
        std::thread::sleep(PATIENCE);
        unreachable!("it has ended");
    }
    for case in ["a result", "a local value", "an unwinding", "a scoped result"] {
        let ended = child(TEST, case);
        ended.assert_killed_by(libc::SIGABRT);
        ended.assert_says(&["in a destructor"]);
    }
}
