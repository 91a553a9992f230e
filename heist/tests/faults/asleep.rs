//! Deadlock and SIGQUIT.

use crate::common::{runtime, until};
use crate::process::{Ended, PATIENCE, case_of, child, example, finish, this_test};
use heist::thread;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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
fn no_deadlock_is_reported_while_somebody_sleeps_for_ever() {
    let mut child = example("deadlock").arg("centuries").spawn().unwrap();
    // The report would come within 200 ms.
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_deadlock_is_reported_if_a_stopped_ticker_is_all_that_is_waited_for() {
    let ended = finish(example("deadlock").arg("stopped"), PATIENCE);
    ended.assert_exit(2);
    ended.assert_says(&[DEADLOCK, "[sleep]:", "deadlock.rs:"]);
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
        ended.assert_says(&["SIGQUIT", "'sleeper' [park]:", "asleep.rs:"]);
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
