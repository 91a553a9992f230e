//! Looking inside.

use super::*;

/// The part of the dump about the goroutine of a name.
fn entry_of(name: &str) -> String {
    let dump = heist::debug::dump();
    let quoted = format!("'{name}'");
    let mut entries = dump.split("\n\n").filter(|entry| entry.contains(&quoted));
    let entry = entries.next().unwrap_or_else(|| panic!("no {name} in:\n{dump}"));
    assert!(entries.next().is_none(), "{name} twice in:\n{dump}");
    entry.trim().to_owned()
}

fn spawn_named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> (thread::JoinHandle<T>, u32) {
    let line = line!() + 1;
    (thread::Builder::new().name(name.into()).spawn(f).unwrap(), line)
}

#[test]
fn the_dump_shows_name_state_reason_and_both_sites() {
    watched(|| {
        runtime(1).run(|| {
            let me = heist::runtime::goroutine_id().unwrap();
            let (parked, spawned_at) = spawn_named("dump-parked", || thread::park());
            let parked_at = spawned_at_line_of_park();
            let (runnable, _) = spawn_named("dump-runnable", || entry_of("dump-runnable"));
            let entry = entry_of("dump-runnable");
            assert!(entry.contains("[runnable]"), "{entry}");
            let running = runnable.join().unwrap();
            assert!(running.contains("[running]"), "{running}");

            // The others have had their turn: they wait.
            until(|| entry_of("dump-parked").contains("[park]"));
            let entry = entry_of("dump-parked");
            let lines: Vec<&str> = entry.lines().collect();
            let id = lines[0].strip_prefix("goroutine ").and_then(|rest| rest.split(' ').next());
            assert!(id.is_some_and(|id| id.parse::<u64>().is_ok()), "{entry}");
            assert!(lines[0].ends_with(" 'dump-parked' [park]:"), "{entry}");
            assert!(lines[1].starts_with('\t'), "{entry}");
            assert!(lines[1].contains(&format!("inside.rs:{parked_at}:")), "{entry}");
            assert_eq!(lines[2], format!("created by goroutine {me}"), "{entry}");
            assert!(lines[3].contains(&format!("inside.rs:{spawned_at}:")), "{entry}");

            let wake = parked.thread().clone();
            let (joiner, _) = spawn_named("dump-joiner", move || parked.join().unwrap());
            until(|| entry_of("dump-joiner").contains("[join]"));
            wake.unpark();
            joiner.join().unwrap();
            let dump = heist::debug::dump();
            assert!(!dump.contains("'dump-parked'"), "it has ended:\n{dump}");
        });
        let runtime = runtime(1);
        let outside = runtime.go(heist::debug::dump);
        let id = format!("{:?}", outside.thread().id());
        let id: String = id.chars().filter(char::is_ascii_digit).collect();
        let dump = outside.join().unwrap();
        let entry = dump.split("\n\n").find(|entry| entry.starts_with(&format!("goroutine {id} ")));
        assert!(entry.is_some_and(|e| e.contains("created by a plain thread")), "{dump}");
    });
}

/// The line in the test above on which its goroutine parks.
fn spawned_at_line_of_park() -> u32 {
    let source = include_str!("inside.rs");
    let park = "spawn_named(\"dump-parked\", || thread::park())";
    1 + source.lines().position(|line| line.contains(park)).unwrap() as u32
}

#[test]
fn the_dump_says_who_held_the_mutex_that_one_waits_for() {
    watched(|| {
        runtime(2).run(|| {
            let me = heist::runtime::goroutine_id().unwrap();
            let mutex = Arc::new(heist::sync::Mutex::new(()));
            let guard = mutex.lock().unwrap();
            let (waiter, _) = spawn_named("dump-contender", {
                let mutex = mutex.clone();
                move || drop(mutex.lock().unwrap())
            });
            let state = format!("[sync.Mutex.Lock, it was held by goroutine {me}]:");
            until(|| entry_of("dump-contender").contains(&state));
            drop(guard);
            waiter.join().unwrap();
        });
    });
}

#[test]
fn the_dump_says_who_has_idle_priority() {
    watched(|| {
        runtime(1).run(|| {
            let idle = heist::go_idle(|| ());
            let id = format!("{:?}", idle.thread().id());
            let id: String = id.chars().filter(char::is_ascii_digit).collect();
            let dump = heist::debug::dump();
            let line = dump.lines().find(|l| l.starts_with(&format!("goroutine {id} ")));
            assert_eq!(line, Some(&*format!("goroutine {id} [runnable, idle priority]:")));
            idle.join().unwrap();
        });
    });
}

#[test]
fn the_goroutine_count_equals_the_dump() {
    if let Some(output) = in_a_process() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{stderr}", output.status);
        return;
    }
    let listed = || heist::debug::dump().lines().filter(|l| l.starts_with("goroutine ")).count();
    watched(|| {
        for procs in [1, 2, 4] {
            let runtime = runtime(procs);
            assert_eq!((runtime.num_goroutines(), listed()), (0, 0));
            let gate = Arc::new(AtomicBool::new(false));
            let parked: Vec<_> = (0..300)
                .map(|i| {
                    let gate = gate.clone();
                    let wait = move || {
                        while !gate.load(Ordering::SeqCst) {
                            thread::park();
                        }
                    };
                    let name = format!("n{i}");
                    runtime.run(move || match i % 3 {
                        0 => thread::Builder::new().name(name).spawn(wait).unwrap(),
                        1 => heist::go_idle(wait),
                        _ => thread::spawn(wait),
                    })
                })
                .collect();
            while heist::debug::dump().matches("[park").count() < 300 {
                std::thread::yield_now();
            }
            assert_eq!((runtime.num_goroutines(), listed()), (300, 300));
            // One more, which asks.
            runtime.run(|| {
                let (alive, listed) = (heist::runtime::num_goroutines(), listed());
                assert_eq!((alive, listed), (301, 301));
            });
            // Ended ones whose handles live are not alive.
            let (handles, rest) = {
                let mut parked = parked;
                let rest = parked.split_off(100);
                (parked, rest)
            };
            gate.store(true, Ordering::SeqCst);
            handles.iter().for_each(|handle| handle.thread().unpark());
            while handles.iter().any(|handle| !handle.is_finished()) {
                std::thread::yield_now();
            }
            assert_eq!((runtime.num_goroutines(), listed()), (200, 200));
            rest.iter().for_each(|handle| handle.thread().unpark());
            rest.into_iter().chain(handles).for_each(|handle| handle.join().unwrap());
            assert_eq!((runtime.num_goroutines(), listed()), (0, 0));
        }
    });
}
