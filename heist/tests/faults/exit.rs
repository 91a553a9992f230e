//! Exit and fork.

use crate::common::{runtime, until, watched};
use crate::process::{case_of, child};
use heist::thread;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

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
