//! The end of a runtime while goroutines are in every kind of situation: each
//! is unwound, everything it owned is dropped once, and nobody waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Aborts the process if a test hangs.
fn watchdog(name: &'static str) -> impl Drop {
    struct Stop(std::sync::mpsc::Sender<()>);
    impl Drop for Stop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (stop, stopped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        if stopped.recv_timeout(Duration::from_secs(60)).is_err() {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    Stop(stop)
}

fn runtime(procs: usize) -> heist::Runtime {
    let patient = Duration::from_secs(30);
    heist::Builder::new().max_procs(procs).shutdown_timeout(patient).build().unwrap()
}

/// Counts how often it is dropped.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drops {
    fn one(&self) -> OneDrop {
        OneDrop(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct OneDrop(Arc<AtomicUsize>);

impl Drop for OneDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Spins until `n` have arrived, on goroutines of the runtime.
fn wait_for(arrived: &Drops, n: usize) {
    while arrived.count() < n {
        heist::thread::yield_now();
    }
}

#[test]
fn parked_goroutines_are_unwound_and_drop_what_they_own() {
    let _watch = watchdog("parked");
    for procs in [1, 2, 8] {
        let (drops, arrived) = (Drops::default(), Drops::default());
        let runtime = runtime(procs);
        let handles: Vec<_> = runtime.run(|| {
            let handles = (0..100)
                .map(|_| {
                    let (owned, here) = (drops.one(), arrived.one());
                    heist::go(move || {
                        let _owned = owned;
                        drop(here);
                        heist::thread::park();
                    })
                })
                .collect();
            wait_for(&arrived, 100);
            handles
        });
        drop(runtime);
        assert_eq!(drops.count(), 100);
        for handle in handles {
            let payload = handle.join().unwrap_err();
            let text = payload.downcast_ref::<&str>().unwrap();
            assert!(text.contains("runtime shut down"), "{text}");
        }
    }
}

#[test]
fn closures_that_never_ran_are_dropped_and_never_run() {
    let _watch = watchdog("never ran");
    let drops = Drops::default();
    let ran = Drops::default();
    let runtime = runtime(1);
    let handles: Vec<_> = runtime.run(|| {
        (0..50)
            .map(|i| {
                let (owned, here) = (drops.one(), ran.one());
                let body = move || {
                    let _owned = owned;
                    drop(here);
                };
                // Half of them with a stack of their own, which they have
                // before they run.
                if i % 2 == 0 {
                    heist::thread::Builder::new().stack_size(300 << 10).spawn(body).unwrap()
                } else {
                    heist::go(body)
                }
            })
            .collect()
    });
    // On one P, none can have run before the spawner returned; some may since.
    drop(runtime);
    assert_eq!(drops.count(), 50);
    assert_eq!(ran.count(), 50, "dropped with the closure, or by it");
    let ended = handles.into_iter().filter(|h| h.is_finished()).count();
    assert_eq!(ended, 50);
}

/// The wake-up and the shutdown race for the same goroutine.
#[test]
fn a_goroutine_woken_but_not_yet_run_ends() {
    let _watch = watchdog("woken");
    for _ in 0..200 {
        let drops = Drops::default();
        let runtime = runtime(1);
        runtime.run(|| {
            let arrived = Drops::default();
            let (owned, here) = (drops.one(), arrived.one());
            let sleeper = heist::go(move || {
                let _owned = owned;
                drop(here);
                heist::thread::park();
                heist::thread::park();
            });
            wait_for(&arrived, 1);
            sleeper.thread().unpark();
        });
        drop(runtime);
        assert_eq!(drops.count(), 1);
    }
}

#[test]
fn joiners_and_joined_are_unwound_together() {
    let _watch = watchdog("joiners");
    for _ in 0..50 {
        let drops = Drops::default();
        let runtime = runtime(2);
        runtime.run(|| {
            let arrived = Drops::default();
            for _ in 0..10 {
                let (a, b, here) = (drops.one(), drops.one(), arrived.one());
                drop(heist::go(move || {
                    let _a = a;
                    let inner = heist::go(move || {
                        let _b = b;
                        drop(here);
                        heist::thread::park();
                    });
                    let _ = inner.join();
                }));
            }
            wait_for(&arrived, 10);
        });
        drop(runtime);
        assert_eq!(drops.count(), 20);
    }
}

/// The owner of a scope may not be unwound while its children borrow from it.
#[test]
fn a_scope_outlives_its_children() {
    let _watch = watchdog("scope");
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let runtime = runtime(2);
    runtime.run(|| {
        let arrived = Drops::default();
        let here = arrived.one();
        let order = order.clone();
        drop(heist::go(move || {
            struct Says(Arc<std::sync::Mutex<Vec<&'static str>>>, &'static str);
            impl Drop for Says {
                fn drop(&mut self) {
                    self.0.lock().unwrap().push(self.1);
                }
            }
            let _owner = Says(order.clone(), "owner");
            let borrowed = String::from("borrowed");
            heist::thread::scope(|s| {
                s.spawn(|| {
                    let _child = Says(order.clone(), "child");
                    drop(here);
                    heist::thread::park();
                    // Still there, however the park ended.
                    assert_eq!(borrowed, "borrowed");
                });
            });
        }));
        wait_for(&arrived, 1);
    });
    drop(runtime);
    assert_eq!(*order.lock().unwrap(), ["child", "owner"]);
}

/// A pool whose drop wakes its worker and waits for it.
#[test]
fn a_destructor_that_joins_its_worker_comes_to_an_end() {
    let _watch = watchdog("pool");
    struct Pool(Option<heist::thread::JoinHandle<()>>);
    impl Drop for Pool {
        fn drop(&mut self) {
            if let Some(worker) = self.0.take() {
                worker.thread().unpark();
                let _ = worker.join();
            }
        }
    }
    let drops = Drops::default();
    let runtime = runtime(2);
    runtime.run(|| {
        let arrived = Drops::default();
        let (owned, here) = (drops.one(), arrived.one());
        drop(heist::go(move || {
            let _owned = owned;
            let _pool = Pool(Some(heist::go(heist::thread::park)));
            drop(here);
            heist::thread::park();
        }));
        wait_for(&arrived, 1);
    });
    drop(runtime);
    assert_eq!(drops.count(), 1);
}

/// Spawning while a shutdown unwinds: an error, and no abort.
#[test]
fn a_destructor_may_spawn_and_is_refused() {
    let _watch = watchdog("spawn in drop");
    struct Spawns(Arc<AtomicUsize>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            if heist::go(|| ()).join().is_err() {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            if heist::thread::Builder::new().spawn(|| ()).is_err() {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            if heist::thread::scope(|s| s.spawn(|| ()).join()).is_err() {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let refused = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(1);
    runtime.run(|| {
        let arrived = Drops::default();
        let (spawns, here) = (Spawns(refused.clone()), arrived.one());
        drop(heist::go(move || {
            let _spawns = spawns;
            drop(here);
            heist::thread::park();
        }));
        wait_for(&arrived, 1);
    });
    drop(runtime);
    assert_eq!(refused.load(Ordering::SeqCst), 3);
}

/// A panicking goroutine waits in a destructor for one that only a shutdown
/// ends.
#[test]
fn a_goroutine_that_waits_in_place_ends() {
    let _watch = watchdog("in place");
    struct Joins(Option<heist::thread::JoinHandle<()>>);
    impl Drop for Joins {
        fn drop(&mut self) {
            let _ = self.0.take().unwrap().join();
        }
    }
    let runtime = runtime(2);
    let panicked = runtime.run(|| {
        let arrived = Drops::default();
        let here = arrived.one();
        let other = heist::go(heist::thread::park);
        let panicked = heist::go(move || {
            let _joins = Joins(Some(other));
            drop(here);
            std::panic::panic_any("on purpose");
        });
        wait_for(&arrived, 1);
        panicked
    });
    drop(runtime);
    let payload = panicked.join().unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
}

/// A goroutine that lost its P waits when the runtime closes, and is woken before anybody
/// unwinds it.
#[test]
fn one_that_is_woken_without_a_p_while_the_runtime_closes_ends() {
    let _watch = watchdog("woken without a P");
    for round in 0..20u64 {
        let runtime = runtime(1);
        let (send, receive) = heist::chan::bounded::<u64>(0);
        let waits = runtime.go(move || {
            // Undeclared: its P is taken meanwhile.
            std::thread::sleep(std::time::Duration::from_millis(20));
            receive.recv()
        });
        let sender = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(20_000 + 100 * round));
            let _ = send.send_timeout(7, std::time::Duration::from_millis(200));
        });
        std::thread::sleep(std::time::Duration::from_millis(15));
        drop(runtime);
        let _ = waits.join();
        sender.join().unwrap();
    }
}

/// On one P: a destructor yields until another goroutine has run.
#[test]
fn yielding_while_unwinding_lets_others_run() {
    let _watch = watchdog("yield");
    struct Waits(Arc<AtomicUsize>);
    impl Drop for Waits {
        fn drop(&mut self) {
            while self.0.load(Ordering::SeqCst) == 0 {
                heist::thread::yield_now();
            }
        }
    }
    let runtime = runtime(1);
    runtime.run(|| {
        let flag = Arc::new(AtomicUsize::new(0));
        let waits = Waits(flag.clone());
        let panics = heist::go(move || {
            let _waits = waits;
            let setter = heist::go(move || flag.store(1, Ordering::SeqCst));
            drop(setter);
            std::panic::panic_any(());
        });
        assert!(panics.join().is_err());
    });
}

/// A goroutine of one runtime drops another while the first one ends, too.
#[test]
fn a_runtime_dropped_inside_of_a_dying_one() {
    let _watch = watchdog("nested");
    for _ in 0..20 {
        let (outer, inner) = (runtime(2), runtime(2));
        let arrived = Drops::default();
        let here = arrived.one();
        drop(outer.go(move || {
            inner.run(|| drop(heist::go(heist::thread::park)));
            drop(here);
            drop(inner);
            heist::thread::park();
        }));
        outer.run(|| wait_for(&arrived, 1));
        drop(outer);
    }
}

/// A destructor of a thread-local, which runs when much is gone already, joins.
#[test]
fn joining_from_a_destructor_of_a_thread_local() {
    let _watch = watchdog("thread-local");
    struct Joins;
    impl Drop for Joins {
        fn drop(&mut self) {
            assert_eq!(heist::go(|| 5).join().unwrap(), 5);
        }
    }
    thread_local! { static JOINS: Joins = const { Joins }; }
    let thread = std::thread::spawn(|| {
        JOINS.with(|_| ());
        assert_eq!(heist::go(|| 4).join().unwrap(), 4);
    });
    thread.join().unwrap();
}

#[test]
fn a_panic_under_the_shutdown_policy_ends_the_run() {
    let _watch = watchdog("policy");
    let runtime = heist::Builder::new()
        .max_procs(2)
        .panic_policy(heist::PanicPolicy::ShutDown)
        .build()
        .unwrap();
    let drops = Drops::default();
    let result = catch_unwind(AssertUnwindSafe(|| {
        runtime.run(|| {
            let _owned = drops.one();
            drop(heist::go(|| std::panic::panic_any(7)));
            heist::thread::park();
        })
    }));
    let payload = result.unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.contains("shut down by a panic in goroutine"), "{text}");
    assert_eq!(drops.count(), 1);
}
