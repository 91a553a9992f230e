//! Panics.

use crate::common::{runtime, text, until, watched};
use crate::line::Line;
use crate::process::{PATIENCE, case_of, child, example, finish, this_test};
use heist::{PanicPolicy, thread};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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
