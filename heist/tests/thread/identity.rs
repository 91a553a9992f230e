//! Identity.

use super::*;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// As std's is.
const fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
const _: () = unwind_safe::<thread::Thread>();

#[test]
fn a_goroutine_stays_itself_across_yields() {
    watched(|| {
        let runtime = runtime(4);
        runtime.run(|| {
            let handles: Vec<_> = (0..32)
                .map(|i| {
                    let name = format!("g{i}");
                    let named = thread::Builder::new().name(name.clone());
                    named
                        .spawn(move || {
                            let id = thread::current().id();
                            let goroutine = heist::runtime::goroutine_id();
                            for _ in 0..many(5000) {
                                thread::yield_now();
                                assert_eq!(thread::current().id(), id);
                                assert_eq!(heist::runtime::goroutine_id(), goroutine);
                            }
                            assert_eq!(thread::current().name(), Some(&*name));
                            id
                        })
                        .unwrap()
                })
                .collect();
            for handle in handles {
                let id = handle.thread().id();
                assert_eq!(handle.join().unwrap(), id);
            }
        });
    });
}

#[test]
fn ids_are_never_used_twice() {
    watched(|| {
        let ids = Mutex::new(HashSet::new());
        let take = |id| assert!(ids.lock().unwrap().insert(id), "{id:?} twice");
        let (one, four) = (runtime(1), runtime(4));
        take(thread::current().id());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| take(thread::current().id()));
            }
            for runtime in [&one, &four] {
                s.spawn(|| {
                    runtime.run(|| {
                        for _ in 0..many(100) {
                            let handles: Vec<_> = (0..100)
                                .map(|_| thread::spawn(|| thread::current().id()))
                                .collect();
                            for handle in handles {
                                take(handle.join().unwrap());
                            }
                        }
                    });
                });
            }
        });
        drop((one, four));
        // Nor by another runtime, later.
        take(runtime(1).run(|| thread::current().id()));
        assert_eq!(ids.lock().unwrap().len(), 1 + 3 + 2 * 100 * many(100) + 1);
    });
}

#[test]
fn a_plain_thread_is_itself() {
    watched(|| {
        let named = std::thread::Builder::new().name("plain".into());
        let handle = named.spawn(|| {
            let me = thread::current();
            assert_eq!(me.id(), thread::current().id());
            assert_eq!(me.name(), Some("plain"));
            assert_eq!(heist::runtime::goroutine_id(), None);
            // A goroutine that it runs is somebody else.
            assert_ne!(heist::run(|| thread::current().id()), me.id());
            me.id()
        });
        assert_ne!(handle.unwrap().join().unwrap(), thread::current().id());
    });
}

#[test]
fn available_parallelism_is_that_of_std() {
    let std = std::thread::available_parallelism().unwrap();
    assert_eq!(thread::available_parallelism().unwrap(), std);
    assert_eq!(heist::run(|| thread::available_parallelism().unwrap()), std);
}

#[test]
fn yield_now_lets_others_run_and_is_harmless_on_a_plain_thread() {
    watched(|| {
        thread::yield_now();
        runtime(1).run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..10 {
                let ran = ran.clone();
                drop(thread::spawn(move || ran.fetch_add(1, Ordering::SeqCst)));
            }
            thread::yield_now();
            assert_eq!(ran.load(Ordering::SeqCst), 10, "those that were runnable had their turn");
        });
    });
}

#[test]
fn panicking_is_true_for_the_goroutine_that_unwinds_and_for_no_other() {
    struct Ask(Arc<AtomicBool>, Arc<AtomicBool>);
    impl Drop for Ask {
        fn drop(&mut self) {
            assert!(thread::panicking());
            // Others run meanwhile, on the one P that there is.
            let other = thread::spawn(thread::panicking).join().unwrap();
            assert!(thread::panicking(), "still, after a wait");
            self.0.store(other, Ordering::SeqCst);
            self.1.store(true, Ordering::SeqCst);
        }
    }
    watched(|| {
        let runtime = runtime(1);
        let (other, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let ask = Ask(other.clone(), asked.clone());
        let unwound = runtime.go(move || {
            let _ask = ask;
            resume_unwind(Box::new(()))
        });
        assert!(unwound.join().is_err());
        assert!(asked.load(Ordering::SeqCst));
        assert!(!other.load(Ordering::SeqCst));
        let after = runtime.run(|| {
            let caught = catch_unwind(|| resume_unwind(Box::new(()))).is_err();
            (caught, thread::panicking())
        });
        assert_eq!(after, (true, false));
        assert!(!thread::panicking());
    });
}
