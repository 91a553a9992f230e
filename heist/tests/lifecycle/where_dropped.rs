//! Where a runtime is dropped.

use super::*;

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
    if let Some(output) = in_a_process() {
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
