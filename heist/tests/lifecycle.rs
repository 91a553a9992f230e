//! The life of a runtime: what `run` returns, what dropping it does to its
//! goroutines and to those who wait for them, and that nothing stays behind.

use heist::{Runtime, thread};
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Counts the bytes that are allocated and not freed, for the test of leaks.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs a test; one that hangs ends the process and says where everybody is.
fn watched<T>(test: impl FnOnce() -> T) -> T {
    let (over, wait) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "{name} hangs. Goroutines:\n");
            let _ = stderr.write_all(heist::debug::dump().as_bytes());
            std::process::abort();
        }
    });
    let value = test();
    drop(over);
    value
}

/// Runs a test of this file in a process of its own. `None` in that process.
fn in_a_process(test: &str) -> Option<Output> {
    if std::env::var("HEIST_TEST_CHILD").as_deref() == Ok(test) {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Some(child.env("HEIST_TEST_CHILD", test).output().unwrap())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn runtime(procs: usize) -> Runtime {
    heist::Builder::new().max_procs(procs).build().unwrap()
}

/// Waits for something, on a goroutine or on a plain thread.
fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("neither &str nor String")
}

/// Counts values that live and values that were dropped.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drops {
    fn value(&self) -> Droplet {
        Droplet(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Droplet(Arc<AtomicUsize>);

impl Drop for Droplet {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Goroutines that sleep for ever, with a droplet each on their stacks.
fn sleepers(runtime: &Runtime, n: usize, drops: &Drops) -> Vec<thread::JoinHandle<()>> {
    let asleep = Arc::new(AtomicUsize::new(0));
    let handles = (0..n)
        .map(|_| {
            let (droplet, asleep) = (drops.value(), asleep.clone());
            runtime.go(move || {
                let _droplet = droplet;
                asleep.fetch_add(1, Ordering::SeqCst);
                loop {
                    thread::park();
                }
            })
        })
        .collect();
    until(|| asleep.load(Ordering::SeqCst) == n);
    handles
}

fn is_stopped<T>(joined: thread::Result<T>) -> bool {
    joined.is_err_and(|payload| text(&*payload).contains("shut down"))
}

// ---- run ---------------------------------------------------------------------------

#[test]
fn run_returns_its_value_while_others_are_parked() {
    watched(|| {
        let (runtime, drops) = (runtime(2), Drops::default());
        let handles = sleepers(&runtime, 10, &drops);
        let borrowed = String::from("borrowed");
        assert_eq!(runtime.run(|| borrowed.len()), 8);
        assert_eq!(runtime.num_goroutines(), 10);
        assert_eq!(drops.count(), 0, "they go on sleeping");
        assert_eq!(runtime.run(|| thread::spawn(|| 5).join().unwrap()), 5);
        drop(runtime);
        assert_eq!(drops.count(), 10);
        assert!(handles.into_iter().all(|handle| is_stopped(handle.join())));
    });
}

#[test]
fn a_panic_comes_out_of_run_with_its_payload_and_the_runtime_goes_on() {
    #[derive(Debug, PartialEq)]
    struct Custom(u32);
    watched(|| {
        let runtime = runtime(1);
        for _ in 0..3 {
            let panic = catch_unwind(AssertUnwindSafe(|| runtime.run(|| panic_any(Custom(7)))));
            assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(7));
            let panic = catch_unwind(AssertUnwindSafe(|| runtime.run(|| panic!("with a text"))));
            assert_eq!(text(&*panic.unwrap_err()), "with a text");
            assert_eq!(runtime.run(|| 5), 5);
        }
        let panic = catch_unwind(|| heist::run(|| panic_any(Custom(8))));
        assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(8));
        // Through two runs, one inside the other.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.run(|| heist::run(|| panic_any(Custom(9))));
        }));
        assert_eq!(*panic.unwrap_err().downcast::<Custom>().unwrap(), Custom(9));
    });
}

// ---- what dropping does to goroutines ---------------------------------------------------

#[test]
fn dropping_a_runtime_unwinds_those_that_sleep() {
    watched(|| {
        for procs in [1, 2, 8] {
            let (runtime, drops) = (runtime(procs), Drops::default());
            let handles = sleepers(&runtime, 100, &drops);
            drop(runtime);
            assert_eq!(drops.count(), 100);
            assert!(handles.iter().all(|handle| handle.is_finished()));
            assert!(handles.into_iter().all(|handle| is_stopped(handle.join())));
        }
    });
}

#[test]
fn dropping_a_runtime_unwinds_those_that_yield_for_ever() {
    watched(|| {
        for procs in [1, 4] {
            let (runtime, drops) = (runtime(procs), Drops::default());
            let turns = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..50)
                .map(|_| {
                    let (droplet, turns) = (drops.value(), turns.clone());
                    runtime.go(move || {
                        let _droplet = droplet;
                        loop {
                            turns.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            until(|| turns.load(Ordering::SeqCst) > 500);
            drop(runtime);
            assert_eq!(drops.count(), 50);
            assert!(
                handles.into_iter().all(|handle: thread::JoinHandle<()>| handle.join().is_err())
            );
        }
    });
}

#[test]
fn dropping_a_runtime_unwinds_those_that_wait_for_each_other() {
    watched(|| {
        let (runtime, drops) = (runtime(2), Drops::default());
        let first = sleepers(&runtime, 1, &drops).pop().unwrap();
        // A chain of joins: the last one waits for the one that never ends.
        let last = (0..50).fold(first, |before, _| {
            let droplet = drops.value();
            runtime.go(move || {
                let _droplet = droplet;
                before.join().unwrap();
            })
        });
        until(|| heist::debug::dump().matches("[join]").count() >= 50);
        drop(runtime);
        assert_eq!(drops.count(), 51);
        assert!(last.join().is_err());
    });
}

#[test]
fn dropping_a_runtime_unwinds_scopes_with_what_they_borrow() {
    watched(|| {
        for procs in [1, 2] {
            let (runtime, drops) = (runtime(procs), Drops::default());
            let asleep = Arc::new(AtomicUsize::new(0));
            let owner = {
                let (drops, asleep) = (drops.clone(), asleep.clone());
                runtime.go(move || {
                    // On this stack; the others look at it as they unwind.
                    let shared = Mutex::new(vec![0usize; 10]);
                    struct Writes<'a>(&'a Mutex<Vec<usize>>, usize, #[allow(dead_code)] Droplet);
                    impl Drop for Writes<'_> {
                        fn drop(&mut self) {
                            self.0.lock().unwrap()[self.1] += 1;
                        }
                    }
                    struct Checks<'a>(&'a Mutex<Vec<usize>>, #[allow(dead_code)] Droplet);
                    impl Drop for Checks<'_> {
                        fn drop(&mut self) {
                            assert_eq!(*self.0.lock().unwrap(), [1; 10]);
                        }
                    }
                    let _checks = Checks(&shared, drops.value());
                    thread::scope(|s| {
                        for i in 0..10 {
                            let writes = Writes(&shared, i, drops.value());
                            let asleep = &asleep;
                            s.spawn(move || {
                                let _writes = writes;
                                asleep.fetch_add(1, Ordering::SeqCst);
                                loop {
                                    thread::park();
                                }
                            });
                        }
                    });
                })
            };
            until(|| asleep.load(Ordering::SeqCst) == 10);
            drop(runtime);
            assert_eq!(drops.count(), 11);
            assert!(owner.join().is_err());
        }
    });
}

#[test]
fn dropping_a_runtime_unwinds_those_that_sleep_on_a_segment() {
    fn deep(n: u32, drops: &Drops, asleep: &AtomicBool) {
        heist::stack::ensure(64 << 10, || {
            let _droplet = drops.value();
            if n > 0 {
                return deep(n - 1, drops, asleep);
            }
            asleep.store(true, Ordering::SeqCst);
            loop {
                thread::park();
            }
        });
    }
    watched(|| {
        let (runtime, drops) = (runtime(1), Drops::default());
        let asleep = Arc::new(AtomicBool::new(false));
        let handle = {
            let (drops, asleep) = (drops.clone(), asleep.clone());
            runtime.go(move || deep(100, &drops, &asleep))
        };
        until(|| asleep.load(Ordering::SeqCst));
        drop(runtime);
        assert_eq!(drops.count(), 101);
        assert!(handle.join().is_err());
    });
}

/// Computes until its runtime closes: then nothing can be spawned any more.
fn compute_until_closed() -> std::io::Error {
    loop {
        match thread::Builder::new().name("probe".into()).spawn(|| ()) {
            Ok(handle) => drop(handle),
            Err(error) => return error,
        }
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}

#[test]
fn dropping_a_runtime_drops_closures_that_never_ran() {
    watched(|| {
        let (runtime, drops) = (runtime(1), Drops::default());
        let (ran, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let says = begun.clone();
        // The one P is taken until the end.
        let hog = runtime.go(move || {
            says.store(true, Ordering::SeqCst);
            compute_until_closed().to_string()
        });
        until(|| begun.load(Ordering::SeqCst));
        let spawn = |i: usize| {
            let (droplet, ran) = (drops.value(), ran.clone());
            let body = move || {
                let _droplet = droplet;
                ran.fetch_add(1, Ordering::SeqCst);
            };
            match i % 2 {
                0 => runtime.go(body),
                // Too large for the control block.
                _ => {
                    let ballast = [i; 100];
                    runtime.go(move || {
                        body();
                        assert_eq!(ballast, [i; 100]);
                    })
                }
            }
        };
        let mut handles: Vec<_> = (0..100).map(spawn).collect();
        // Half of them are detached.
        handles.truncate(50);
        drop(runtime);
        assert_eq!(drops.count(), 100, "each closure is dropped once");
        let stopped = handles.into_iter().filter(|h| h.is_finished()).map(|h| h.join());
        let stopped = stopped.filter(|joined| joined.is_err()).count();
        assert!(stopped > 0, "all of them ran");
        assert!(ran.load(Ordering::SeqCst) + stopped <= 100);
        assert!(hog.join().unwrap().contains("shut down"));
    });
}

#[test]
fn idle_goroutines_are_stopped_like_all_others() {
    watched(|| {
        let (runtime, drops) = (runtime(1), Drops::default());
        let (asleep, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let spawn = |sleep: Arc<AtomicBool>| {
            let droplet = drops.value();
            runtime.run(|| {
                heist::go_idle(move || {
                    let _droplet = droplet;
                    sleep.store(true, Ordering::SeqCst);
                    thread::park();
                })
            })
        };
        let parked = spawn(asleep.clone());
        until(|| asleep.load(Ordering::SeqCst));
        let says = begun.clone();
        let hog = runtime.go(move || {
            says.store(true, Ordering::SeqCst);
            compute_until_closed()
        });
        until(|| begun.load(Ordering::SeqCst));
        drop(runtime);
        assert!(is_stopped(parked.join()));
        assert!(hog.join().is_ok());
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_result_that_was_there_outlives_its_runtime() {
    watched(|| {
        let (runtime, drops) = (runtime(2), Drops::default());
        let (kept, dropped) = (drops.value(), drops.value());
        let kept = runtime.go(move || (kept, "kept"));
        let dropped = runtime.go(move || dropped);
        let panicked = runtime.go(|| resume_unwind(Box::new("payload")));
        until(|| kept.is_finished() && dropped.is_finished() && panicked.is_finished());
        drop(runtime);
        assert_eq!(drops.count(), 0);
        drop(dropped);
        assert_eq!(drops.count(), 1);
        assert_eq!(kept.join().unwrap().1, "kept");
        assert_eq!(drops.count(), 2);
        let panicked: thread::Result<()> = panicked.join();
        assert_eq!(text(&*panicked.unwrap_err()), "payload");
    });
}

#[test]
fn handles_of_a_dropped_runtime_are_harmless() {
    watched(|| {
        let (old, drops) = (runtime(2), Drops::default());
        let handles = sleepers(&old, 20, &drops);
        let threads: Vec<_> = handles.iter().map(|handle| handle.thread().clone()).collect();
        drop(old);
        // Another one takes its place, and perhaps its memory.
        let new = runtime(2);
        let others = sleepers(&new, 20, &drops);
        threads.iter().for_each(thread::Thread::unpark);
        assert!(handles.into_iter().all(|handle| is_stopped(handle.join())));
        assert_eq!(new.run(|| 5), 5);
        assert!(others.iter().all(|handle| !handle.is_finished()));
        assert_eq!(drops.count(), 20);
        drop(new);
        assert_eq!(drops.count(), 40);
    });
}

// ---- who waits elsewhere ------------------------------------------------------------------

#[test]
fn those_who_join_from_elsewhere_get_an_error() {
    watched(|| {
        let (doomed, other, drops) = (runtime(2), runtime(1), Drops::default());
        let mut handles = sleepers(&doomed, 20, &drops);
        let on_threads: Vec<_> = handles
            .split_off(10)
            .into_iter()
            .map(|handle| std::thread::spawn(move || is_stopped(handle.join())))
            .collect();
        let on_goroutines: Vec<_> =
            handles.into_iter().map(|handle| other.go(move || is_stopped(handle.join()))).collect();
        until(|| heist::debug::dump().matches("[join]").count() >= 10);
        drop(doomed);
        assert!(on_threads.into_iter().all(|handle| handle.join().unwrap()));
        assert!(on_goroutines.into_iter().all(|handle| handle.join().unwrap()));
        assert_eq!(drops.count(), 20);
    });
}

#[test]
fn unparks_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 100 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 3), Drops::default());
            let handles = sleepers(&runtime, 20, &drops);
            let threads: Vec<_> = handles.iter().map(|handle| handle.thread().clone()).collect();
            let over = AtomicBool::new(false);
            std::thread::scope(|s| {
                s.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        threads.iter().for_each(thread::Thread::unpark);
                    }
                });
                (0..i * 10).for_each(|_| std::hint::spin_loop());
                drop(runtime);
                assert_eq!(drops.count(), 20);
                over.store(true, Ordering::SeqCst);
            });
            assert!(handles.into_iter().all(|handle| handle.join().is_err()));
        }
    });
}

#[test]
fn spawns_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 100 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 3), Drops::default());
            let spawned = Arc::new(AtomicUsize::new(0));
            // Each spawns and detaches until it is refused.
            let spawners: Vec<_> = (0..3)
                .map(|_| {
                    let (drops, spawned) = (drops.clone(), spawned.clone());
                    runtime.go(move || {
                        loop {
                            let droplet = drops.value();
                            spawned.fetch_add(1, Ordering::SeqCst);
                            let builder = thread::Builder::new();
                            match builder.spawn(move || drop(droplet)) {
                                Ok(handle) => drop(handle),
                                Err(error) => return error.to_string(),
                            }
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            until(|| spawned.load(Ordering::SeqCst) > 10 + i);
            drop(runtime);
            assert_eq!(drops.count(), spawned.load(Ordering::SeqCst), "round {i}");
            for handle in spawners {
                // Refused, or unwound at its yield.
                if let Ok(error) = handle.join() {
                    assert!(error.contains("shut down"), "{error}");
                }
            }
        }
    });
}

#[test]
fn ends_of_goroutines_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 200 } else { 1000 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 4), Drops::default());
            let handles: Vec<_> = (0..50)
                .map(|n| {
                    let droplet = drops.value();
                    let handle = runtime.go(move || {
                        if n % 3 == 0 {
                            thread::yield_now();
                        }
                        droplet
                    });
                    // Some are detached, some kept.
                    if n % 2 == 0 {
                        Some(handle)
                    } else {
                        drop::<thread::JoinHandle<_>>(handle);
                        None
                    }
                })
                .collect();
            (0..i * 5).for_each(|_| std::hint::spin_loop());
            drop(runtime);
            handles.into_iter().flatten().for_each(|handle| drop(handle.join()));
            assert_eq!(drops.count(), 50, "round {i}");
        }
    });
}

#[test]
fn joins_on_other_runtimes_race_with_the_end_of_both() {
    let repetitions = if cfg!(debug_assertions) { 50 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (a, b, drops) = (runtime(1), runtime(2), Drops::default());
            let sleeping = sleepers(&a, 10, &drops);
            let joining: Vec<_> = sleeping
                .into_iter()
                .map(|handle| {
                    let droplet = drops.value();
                    b.go(move || {
                        let _droplet = droplet;
                        drop(handle.join());
                    })
                })
                .collect();
            let first = std::thread::spawn(move || drop(a));
            (0..i * 10).for_each(|_| std::hint::spin_loop());
            drop(b);
            first.join().unwrap();
            assert!(joining.iter().all(|handle| handle.is_finished()));
            drop(joining);
            assert_eq!(drops.count(), 20, "round {i}");
        }
    });
}

// ---- spawning into a runtime that ends -----------------------------------------------------------

#[test]
fn a_goroutine_that_outlives_its_runtime_cannot_spawn() {
    watched(|| {
        let (runtime, drops) = (runtime(1), Drops::default());
        let begun = Arc::new(AtomicBool::new(false));
        let (says, counts) = (begun.clone(), drops.clone());
        let late = runtime.go(move || {
            says.store(true, Ordering::SeqCst);
            let error = compute_until_closed();
            // Each way to spawn says so, and drops what it was given.
            let droplet = counts.value();
            let panic = catch_unwind(AssertUnwindSafe(|| {
                drop(heist::go(move || drop(droplet)));
            }));
            let panic = text(&*panic.unwrap_err()).to_owned();
            let droplet = counts.value();
            let idle = catch_unwind(AssertUnwindSafe(|| {
                drop(heist::go_idle(move || drop(droplet)));
            }));
            let scoped = thread::scope(|s| {
                let droplet = counts.value();
                let spawned = thread::Builder::new().spawn_scoped(s, move || drop(droplet));
                spawned.map(drop).map_err(|error| error.to_string())
            });
            let sized = thread::Builder::new().stack_size(1 << 20).spawn(|| ()).map(drop);
            (error.to_string(), panic, idle.is_err(), scoped, sized.is_err())
        });
        until(|| begun.load(Ordering::SeqCst));
        drop(runtime);
        let (error, panic, idle, scoped, sized) = late.join().unwrap();
        assert!(error.contains("shut down"), "{error}");
        assert!(panic.contains("failed to spawn") && panic.contains("shut down"), "{panic}");
        assert!(scoped.unwrap_err().contains("shut down"));
        assert!(idle && sized);
        assert_eq!(drops.count(), 3);
    });
}

#[test]
fn destructors_at_the_end_cannot_spawn_and_may_yield() {
    struct Tries(Arc<Mutex<Vec<String>>>);
    impl Drop for Tries {
        fn drop(&mut self) {
            thread::yield_now();
            let outcome = match thread::Builder::new().spawn(|| ()) {
                Ok(_) => "spawned".to_owned(),
                Err(error) => error.to_string(),
            };
            // The token is there, so this does not wait.
            thread::current().unpark();
            thread::park();
            self.0.lock().unwrap().push(outcome);
        }
    }
    watched(|| {
        let (runtime, log) = (runtime(1), Arc::new(Mutex::new(Vec::new())));
        let asleep = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let (tries, asleep) = (Tries(log.clone()), asleep.clone());
            drop(runtime.go(move || {
                let _tries = tries;
                asleep.fetch_add(1, Ordering::SeqCst);
                thread::park();
            }));
        }
        until(|| asleep.load(Ordering::SeqCst) == 10);
        drop(runtime);
        let log = log.lock().unwrap();
        assert_eq!(log.len(), 10);
        assert!(log.iter().all(|outcome| outcome.contains("shut down")), "{log:?}");
    });
}

#[test]
fn a_destructor_at_the_end_may_join_a_goroutine_that_sleeps() {
    /// What a pool of workers does: its owner waits for them.
    struct Pool(Option<thread::JoinHandle<()>>, Arc<AtomicBool>);
    impl Drop for Pool {
        fn drop(&mut self) {
            let joined = self.0.take().unwrap().join();
            self.1.store(joined.is_err(), Ordering::SeqCst);
        }
    }
    if let Some(output) = in_a_process("a_destructor_at_the_end_may_join_a_goroutine_that_sleeps") {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        assert!(!stderr(&output).contains("left behind"), "{}", stderr(&output));
        return;
    }
    watched(|| {
        // They are unwound in some order: either way the owner's destructor has
        // its answer.
        for worker_first in [false, true] {
            let (runtime, drops) = (runtime(1), Drops::default());
            let droplet = drops.value();
            let worker = move || {
                let _droplet = droplet;
                loop {
                    thread::park();
                }
            };
            let (early, late) = match worker_first {
                true => (Some(runtime.go(worker)), None),
                false => (None, Some(worker)),
            };
            let (joined, asleep) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (says, sleeps) = (joined.clone(), asleep.clone());
            drop(runtime.go(move || {
                let worker = early.or_else(|| late.map(thread::spawn));
                let _pool = Pool(worker, says);
                sleeps.store(true, Ordering::SeqCst);
                loop {
                    thread::park();
                }
            }));
            until(|| asleep.load(Ordering::SeqCst));
            drop(runtime);
            assert!(joined.load(Ordering::SeqCst), "worker first: {worker_first}");
            assert_eq!(drops.count(), 1, "worker first: {worker_first}");
        }
    });
}

// ---- where a runtime is dropped --------------------------------------------------------------------

#[test]
fn a_runtime_can_be_dropped_by_one_of_its_own_goroutines() {
    watched(|| {
        for procs in [1, 4] {
            let (own, drops) = (Arc::new(runtime(procs)), Drops::default());
            let others = sleepers(&own, 20, &drops);
            let (last, send_on) = mpsc::channel::<Arc<Runtime>>();
            let dropper = own.go(move || {
                let mine = loop {
                    match send_on.try_recv() {
                        Ok(mine) => break mine,
                        Err(_) => thread::yield_now(),
                    }
                };
                drop(Arc::into_inner(mine).expect("the last one"));
                // It goes on until it blocks, and soon cannot spawn.
                compute_until_closed().to_string()
            });
            last.send(own).unwrap();
            assert!(dropper.join().unwrap().contains("shut down"));
            assert!(others.into_iter().all(|handle| is_stopped(handle.join())));
            assert_eq!(drops.count(), 20);
        }
    });
}

#[test]
fn a_runtime_can_be_dropped_by_a_goroutine_of_another() {
    watched(|| {
        // One P there: it is not kept waiting, others run on it meanwhile.
        let outer = runtime(1);
        for procs in [1, 4] {
            let (inner, drops) = (runtime(procs), Drops::default());
            let sleeping = sleepers(&inner, 20, &drops);
            let counted = drops.clone();
            let dropped = outer.run(|| {
                let dropper = thread::spawn(move || {
                    drop(inner);
                    counted.count()
                });
                assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
                dropper.join().unwrap()
            });
            assert_eq!(dropped, 20, "dropping waits until they have unwound");
            assert!(sleeping.into_iter().all(|handle| is_stopped(handle.join())));
        }
    });
}

#[test]
fn a_runtime_can_be_dropped_while_its_owner_panics() {
    watched(|| {
        let drops = Drops::default();
        let counted = drops.clone();
        let unwinding = std::thread::spawn(move || {
            let inner = runtime(2);
            drop::<Vec<_>>(sleepers(&inner, 10, &counted));
            resume_unwind(Box::new("the owner's panic"));
        });
        assert_eq!(text(&*unwinding.join().unwrap_err()), "the owner's panic");
        assert_eq!(drops.count(), 10);

        // On a goroutine, which then waits with its thread.
        let outer = runtime(1);
        let counted = drops.clone();
        let unwinding = outer.go(move || {
            let inner = runtime(2);
            drop::<Vec<_>>(sleepers(&inner, 10, &counted));
            resume_unwind(Box::new("the goroutine's panic"));
        });
        let unwinding: thread::Result<()> = unwinding.join();
        assert_eq!(text(&*unwinding.unwrap_err()), "the goroutine's panic");
        assert_eq!(drops.count(), 20);
        assert_eq!(outer.run(|| 5), 5);
    });
}

#[test]
fn runtimes_can_be_nested_in_each_others_goroutines() {
    fn nest(depth: usize, drops: &Drops) -> usize {
        if depth == 0 {
            return 0;
        }
        let inner = runtime(1);
        drop::<Vec<_>>(sleepers(&inner, 3, drops));
        1 + inner.run(|| nest(depth - 1, drops))
    }
    watched(|| {
        let drops = Drops::default();
        assert_eq!(nest(8, &drops), 8);
        assert_eq!(drops.count(), 24);
    });
}

/// The outer runtime ends while one of its goroutines waits for the end of an
/// inner one, which takes its time. The wake-up that then comes must not reach
/// anybody else.
#[test]
fn a_runtime_that_ends_while_its_goroutine_drops_another_wakes_nobody_wrongly() {
    const TEST: &str = "a_runtime_that_ends_while_its_goroutine_drops_another_wakes_nobody_wrongly";
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    watched(|| {
        for _ in 0..5 {
            let limited = |ms| {
                let builder = heist::Builder::new().max_procs(1);
                builder.shutdown_timeout(Duration::from_millis(ms)).build().unwrap()
            };
            let (outer, inner) = (limited(50), limited(30_000));
            let (begun, go_on) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (says, waits) = (begun.clone(), go_on.clone());
            let slow = inner.go(move || {
                says.store(true, Ordering::SeqCst);
                while !waits.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            until(|| begun.load(Ordering::SeqCst));
            let dropping = Arc::new(AtomicBool::new(false));
            let says = dropping.clone();
            let dropper = outer.go(move || {
                says.store(true, Ordering::SeqCst);
                drop(inner);
            });
            until(|| dropping.load(Ordering::SeqCst));
            until(|| heist::debug::dump().contains("[join]"));
            drop(outer);
            drop(dropper);
            // The block of the dropper is used again, by one of these.
            let (others, drops) = (runtime(2), Drops::default());
            let sleeping = sleepers(&others, 50, &drops);
            go_on.store(true, Ordering::SeqCst);
            slow.join().unwrap();
            others.run(|| (0..1000).for_each(|_| thread::yield_now()));
            drop(others);
            assert_eq!(drops.count(), 50);
            drop(sleeping);
        }
    });
}

// ---- goroutines that do not stop -------------------------------------------------------------------

const LEFT_BEHIND: &str = "left behind";

#[test]
fn a_goroutine_that_refuses_to_unwind_is_left_behind_and_reported() {
    const TEST: &str = "a_goroutine_that_refuses_to_unwind_is_left_behind_and_reported";
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        assert_eq!(stderr(&output).matches(LEFT_BEHIND).count(), 1, "{}", stderr(&output));
        return;
    }
    watched(|| {
        let builder =
            heist::Builder::new().max_procs(2).shutdown_timeout(Duration::from_millis(300));
        let (stubborn, drops) = (builder.build().unwrap(), Drops::default());
        let caught = Arc::new(AtomicUsize::new(0));
        let asleep = Arc::new(AtomicBool::new(false));
        let (catches, sleeps) = (caught.clone(), asleep.clone());
        drop(stubborn.go(move || {
            loop {
                sleeps.store(true, Ordering::SeqCst);
                if catch_unwind(thread::park).is_err() {
                    catches.fetch_add(1, Ordering::SeqCst);
                }
            }
        }));
        until(|| asleep.load(Ordering::SeqCst));
        let sleeping = sleepers(&stubborn, 5, &drops);
        drop(stubborn);
        assert!(caught.load(Ordering::SeqCst) >= 1);
        assert_eq!(drops.count(), 5, "the others are unwound all the same");
        assert!(sleeping.into_iter().all(|handle| is_stopped(handle.join())));

        // One that gives in at last is not left behind.
        let (slow, asleep) = (runtime(1), Arc::new(AtomicBool::new(false)));
        let sleeps = asleep.clone();
        let handle = slow.go(move || {
            sleeps.store(true, Ordering::SeqCst);
            (0..5).filter(|_| catch_unwind(thread::park).is_err()).count()
        });
        until(|| asleep.load(Ordering::SeqCst));
        drop(slow);
        assert_eq!(handle.join().unwrap(), 5);
        assert_eq!(runtime(1).run(|| 5), 5);
    });
}

#[test]
fn a_goroutine_that_computes_for_ever_is_left_behind_and_reported() {
    const TEST: &str = "a_goroutine_that_computes_for_ever_is_left_behind_and_reported";
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        let stderr = stderr(&output);
        assert!(stderr.contains(LEFT_BEHIND) && stderr.contains("shutdown_timeout"), "{stderr}");
        return;
    }
    watched(|| {
        for procs in [1, 2] {
            let timeout = Duration::from_millis(100);
            let builder = heist::Builder::new().max_procs(procs).shutdown_timeout(timeout);
            let runtime = builder.build().unwrap();
            let (begun, stop) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (says, stops) = (begun.clone(), stop.clone());
            let computes = runtime.go(move || {
                says.store(true, Ordering::SeqCst);
                while !stops.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                // In a runtime that is gone: nothing here may crash.
                let spawned = thread::Builder::new().spawn(|| ()).is_err();
                thread::yield_now();
                spawned
            });
            until(|| begun.load(Ordering::SeqCst));
            drop(runtime);
            assert!(!computes.is_finished());
            stop.store(true, Ordering::SeqCst);
            // It may end now, or be left where it is; it must not disturb.
            drop(computes);
            for i in 0..50 {
                assert_eq!(self::runtime(2).run(|| i), i);
            }
        }
    });
}

#[test]
fn a_destructor_that_never_returns_is_left_behind_and_reported() {
    const TEST: &str = "a_destructor_that_never_returns_is_left_behind_and_reported";
    struct Endless(Arc<AtomicBool>);
    impl Drop for Endless {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        assert!(stderr(&output).contains(LEFT_BEHIND), "{}", stderr(&output));
        return;
    }
    watched(|| {
        let timeout = Duration::from_millis(100);
        let runtime = heist::Builder::new().max_procs(1).shutdown_timeout(timeout).build().unwrap();
        let (asleep, dropping) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (sleeps, endless) = (asleep.clone(), Endless(dropping.clone()));
        drop(runtime.go(move || {
            let _endless = endless;
            sleeps.store(true, Ordering::SeqCst);
            thread::park();
        }));
        until(|| asleep.load(Ordering::SeqCst));
        drop(runtime);
        assert!(dropping.load(Ordering::SeqCst));
        assert_eq!(self::runtime(1).run(|| 5), 5);
    });
}

// ---- nothing stays behind -----------------------------------------------------------------------------

/// What the next runtime finds is what the first one found, whatever the last
/// one went through.
#[test]
fn a_new_runtime_inherits_no_flood_from_an_old_one() {
    const TEST: &str = "a_new_runtime_inherits_no_flood_from_an_old_one";
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    let spawn_ten = || {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let ran = ran.clone();
            drop(thread::spawn(move || ran.fetch_add(1, Ordering::SeqCst)));
        }
        ran.load(Ordering::SeqCst)
    };
    watched(|| {
        assert_eq!(runtime(1).run(spawn_ten), 0, "ten spawns do not make their spawner yield");
        runtime(1).run(|| {
            // Fills the queue by spawning, and at the end by waking.
            let parked: Vec<_> = (0..300).map(|_| thread::spawn(thread::park)).collect();
            until(|| heist::debug::dump().matches("[park]").count() == 300);
            parked.iter().for_each(|handle| handle.thread().unpark());
            parked.into_iter().for_each(drop);
        });
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(runtime(1).run(spawn_ten), 0, "nor do they on a runtime that comes later");
    });
}

/// Threads, mappings, resident bytes, allocated bytes.
fn footprint() -> [isize; 4] {
    let lines = |path: &str| std::fs::read_to_string(path).unwrap().lines().count() as isize;
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as isize;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: isize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    [threads, lines("/proc/self/maps"), pages * 4096, ALLOCATED.load(Ordering::SeqCst)]
}

/// A short life: some of everything.
fn live_and_die(i: usize) {
    let runtime = runtime([1, 2, 4][i % 3]);
    let value = runtime.run(|| {
        let children: Vec<_> = (0..4).map(|n| thread::spawn(move || n)).collect();
        let named = thread::Builder::new().name(format!("named {i}")).stack_size(40 << 10);
        drop(named.spawn(thread::yield_now).unwrap());
        drop(heist::go_idle(|| ()));
        children.into_iter().map(|child| child.join().unwrap()).sum::<usize>()
    });
    assert_eq!(value, 6);
    let panicked = runtime.go(|| resume_unwind(Box::new(String::from("payload"))));
    let parked: Vec<_> = (0..3)
        .map(|n| {
            runtime.go(move || {
                let _kept = vec![n; 100];
                thread::park();
            })
        })
        .collect();
    if i % 2 == 0 {
        let panicked: thread::Result<()> = panicked.join();
        assert!(panicked.is_err());
    }
    if i % 3 == 0 {
        parked[0].thread().unpark();
    }
    if i % 5 == 0 {
        drop(runtime);
        parked.into_iter().for_each(|handle| drop(handle.join()));
    }
}

#[test]
fn thousands_of_runtimes_leave_no_thread_mapping_or_memory_behind() {
    const TEST: &str = "thousands_of_runtimes_leave_no_thread_mapping_or_memory_behind";
    const RUNTIMES: usize = if cfg!(debug_assertions) { 1000 } else { 10_000 };
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    watched(|| {
        // What is made once and kept for the next one is there after some.
        (0..RUNTIMES / 10).for_each(live_and_die);
        let before = footprint();
        (0..RUNTIMES).for_each(live_and_die);
        // A thread that has been joined is a moment longer in the kernel's list.
        until(|| footprint()[0] <= before[0]);
        let after = footprint();
        let [threads, mappings, resident, allocated] = [0, 1, 2, 3].map(|i| after[i] - before[i]);
        let text = format!("after {RUNTIMES} runtimes: {before:?} became {after:?}");
        assert_eq!(threads, 0, "{text}");
        assert!(mappings < 50, "{text}");
        assert!(resident < 8 << 20, "{text}");
        // A few vectors may have grown.
        assert!(allocated < 16 << 10, "{text}");
        assert_eq!(heist::debug::dump(), "");
    });
}

#[test]
fn a_runtime_dropped_by_its_own_goroutine_leaves_no_thread_behind() {
    const TEST: &str = "a_runtime_dropped_by_its_own_goroutine_leaves_no_thread_behind";
    if let Some(output) = in_a_process(TEST) {
        assert!(output.status.success(), "{}\n{}", output.status, stderr(&output));
        return;
    }
    watched(|| {
        let before = footprint()[0];
        for i in 0..100 {
            let (own, drops) = (runtime(1 + i % 3), Drops::default());
            drop::<Vec<_>>(sleepers(&own, 3, &drops));
            let (give, take) = mpsc::channel::<Runtime>();
            let dropper = own.go(move || {
                let mine = loop {
                    match take.try_recv() {
                        Ok(mine) => break mine,
                        Err(_) => thread::yield_now(),
                    }
                };
                drop(mine);
            });
            give.send(own).unwrap();
            dropper.join().unwrap();
            until(|| drops.count() == 3);
        }
        until(|| footprint()[0] <= before);
    });
}
