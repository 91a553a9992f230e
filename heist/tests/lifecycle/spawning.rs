//! Spawning into a runtime that ends.

use super::*;

#[test]
fn a_goroutine_that_outlives_its_runtime_cannot_spawn() {
    watched(|| {
        let (runtime, drops) = (runtime(1), Drops::default());
        let begun = Arc::new(AtomicBool::new(false));
        let (says, counts) = (begun.clone(), drops.clone());
        let late = runtime.go(move || {
            says.store(true, Ordering::SeqCst);
            let error = compute_until_closed();
            // Each way to spawn says so or unwinds, and drops what it was given.
            let droplet = counts.value();
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                drop(heist::go(move || drop(droplet)));
            }));
            let droplet = counts.value();
            let idle = catch_unwind(AssertUnwindSafe(|| {
                drop(heist::go_idle(move || drop(droplet)));
            }));
            // The order to unwind has no text: it is no panic.
            let silent = [unwound, idle].map(|unwound| {
                let payload = unwound.unwrap_err();
                !payload.is::<String>() && !payload.is::<&str>()
            });
            let scoped = thread::scope(|s| {
                let droplet = counts.value();
                let spawned = thread::Builder::new().spawn_scoped(s, move || drop(droplet));
                spawned.map(drop).map_err(|error| error.to_string())
            });
            let sized = thread::Builder::new().stack_size(1 << 20).spawn(|| ()).map(drop);
            (error.to_string(), silent, scoped, sized.is_err())
        });
        until(|| begun.load(Ordering::SeqCst));
        drop(runtime);
        let (error, silent, scoped, sized) = late.join().unwrap();
        assert!(error.contains("shut down"), "{error}");
        assert!(scoped.unwrap_err().contains("shut down"));
        assert_eq!((silent, sized), ([true; 2], true));
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
    if let Some(output) = in_a_process() {
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
