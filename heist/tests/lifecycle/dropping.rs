//! What dropping does to goroutines.

use super::*;

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

/// An order to unwind is no panic: whoever waits for others, or would spawn more, is
/// unwound without a word, and has no error to make a panic of.
#[test]
fn dropping_a_runtime_prints_nothing() {
    use heist::{chan, par, process::Command, time};
    const LONG: Duration = Duration::from_secs(1000);
    if let Some(output) = in_a_process() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said, "");
        return;
    }
    /// A channel whose sender waits for ever.
    fn of_a_stuck_one() -> chan::Receiver<u8> {
        let (s, r) = chan::unbounded();
        drop(heist::go(move || {
            let _s = s;
            thread::park();
        }));
        r
    }
    let waiters: [fn(); 9] = [
        || assert_eq!(of_a_stuck_one().recv(), Ok(1)),
        || assert_eq!(of_a_stuck_one().iter().next(), Some(1)),
        || {
            let r = of_a_stuck_one();
            chan::select! { recv(r) -> message => assert_eq!(message, Ok(1)) }
        },
        || thread::scope(|s| drop(s.spawn(thread::park))),
        || thread::scope(|s| s.spawn(thread::park).join()).unwrap(),
        || thread::scope(|s| s.spawn(|| heist::go(thread::park).join().unwrap()).join()).unwrap(),
        || heist::go(thread::park).join().unwrap(),
        || time::timeout(LONG, thread::park).unwrap(),
        || drop(Command::new("sleep").arg("1").output().unwrap()),
    ];
    let spawners: [fn(); 8] = [
        || heist::go(|| ()).join().unwrap(),
        || heist::go_idle(|| ()).join().unwrap(),
        || {
            let mut ran = None;
            thread::scope(|s| drop(s.spawn(|| ran = Some(()))));
            ran.expect("the scope has returned");
        },
        || time::timeout(LONG, || ()).unwrap(),
        || par::spawn(|| ()),
        || drop(par::broadcast(|context| context.index())),
        || assert_eq!(par::join(thread::yield_now, thread::yield_now), ((), ())),
        || drop(Command::new("true").output().unwrap()),
    ];
    watched(|| {
        for round in 0..20 {
            let runtime = runtime(1 + round % 3);
            waiters.iter().for_each(|&wait| drop(runtime.go(wait)));
            for &spawn in &spawners {
                drop(runtime.go(move || {
                    loop {
                        spawn();
                    }
                }));
            }
            std::thread::sleep(Duration::from_millis(5));
            drop(runtime);
        }
    });
}
