//! Goroutines that do not stop.

use super::*;

const LEFT_BEHIND: &str = "left behind";

#[test]
fn a_goroutine_that_refuses_to_unwind_is_left_behind_and_reported() {
    if let Some(output) = in_a_process() {
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
    if let Some(output) = in_a_process() {
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
    struct Endless(Arc<AtomicBool>);
    impl Drop for Endless {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
    if let Some(output) = in_a_process() {
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
