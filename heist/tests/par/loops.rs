//! Ranges, chunks, measuring.

use super::common::watched;
use super::pool;
use heist::par::{map_reduce, measure, par_chunks, par_chunks_mut, par_for};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_number_once() {
    for procs in [1, 4] {
        let counts: Vec<_> = (0..10_000).map(|_| AtomicUsize::new(0)).collect();
        pool(procs).install(|| {
            par_for(0..counts.len(), |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            par_for(5..5, |_| unreachable!());
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn values_are_reduced_in_order() {
    let text =
        pool(3).install(|| map_reduce(0..1000, String::new, |i| i.to_string(), |a, b| a + &b));
    let expected: String = (0..1000).map(|i| i.to_string()).collect();
    assert_eq!(text, expected);
}

#[test]
fn chunks_are_numbered() {
    let mut numbers = vec![0usize; 1003];
    par_chunks_mut(&mut numbers, 10, |i, chunk| chunk.fill(i));
    assert!(numbers.iter().enumerate().all(|(at, i)| at / 10 == *i));
    let sum = AtomicUsize::new(0);
    par_chunks(&numbers, 7, |_, chunk| {
        sum.fetch_add(chunk.iter().sum(), Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), numbers.iter().sum());
}

/// Items of a loop that wait for each other, in the first piece and in one of many items,
/// for the next and for the last.
#[test]
fn a_loop_whose_items_block() {
    watched(|| {
        for (procs, at) in [(1, 0), (1, 500), (2, 0), (2, 500), (2, 998)] {
            for other in [at + 1, 999] {
                let (sender, receiver) = heist::chan::bounded(0);
                let item = |i| match i {
                    _ if i == at => assert_eq!(receiver.recv(), Ok(3)),
                    _ if i == other => sender.send(3).unwrap(),
                    _ => {}
                };
                pool(procs).install(|| par_for(0..1000, item));
                let mut chunks = [0; 2000];
                pool(procs).install(|| par_chunks_mut(&mut chunks, 2, |i, _| item(i)));
            }
        }
    });
}

/// The same with threads that block where nobody sees it, and that compute: the rest is raided.
#[test]
fn a_loop_whose_items_block_their_threads() {
    watched(|| {
        for blocks in [true, false] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (receiver, flag) = (Mutex::new(receiver), AtomicUsize::new(0));
            let counts: Vec<_> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
            pool(2).install(|| {
                par_for(0..1000, |i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                    match i {
                        500 if blocks => receiver.lock().unwrap().recv().unwrap(),
                        501 if blocks => sender.send(()).unwrap(),
                        500 => {
                            while flag.load(Ordering::Relaxed) == 0 {
                                std::hint::spin_loop();
                            }
                        }
                        501 => flag.store(1, Ordering::Relaxed),
                        _ => {}
                    }
                });
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    });
}

/// Every item parks: the rest is shared each time, and comes back or is another's.
#[test]
fn a_loop_whose_items_all_park() {
    watched(|| {
        for procs in [1, 3] {
            let text = pool(procs).install(|| {
                let map = |i: usize| {
                    if i >= 500 {
                        heist::thread::yield_now();
                    }
                    i.to_string()
                };
                map_reduce(0..1000, String::new, map, |a, b| a + &b)
            });
            assert_eq!(text, (0..1000).map(|i| i.to_string()).collect::<String>());
        }
    });
}

/// An item panics while another goroutine has the rest.
#[test]
fn a_panic_in_a_loop_waits_for_the_rest() {
    watched(|| {
        for procs in [1, 2] {
            let (sender, receiver) = heist::chan::bounded(0);
            let after = AtomicUsize::new(0);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool(procs).install(|| {
                    par_for(0..1000, |i| match i {
                        500 => {
                            receiver.recv().unwrap();
                            panic!("item");
                        }
                        501 => sender.send(()).unwrap(),
                        502.. => drop(after.fetch_add(1, Ordering::Relaxed)),
                        _ => {}
                    });
                });
            }));
            assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"item"));
            let ended = after.load(Ordering::Relaxed);
            std::thread::yield_now();
            assert_eq!(after.load(Ordering::Relaxed), ended, "no call is running");
        }
    });
}

/// What is on one branch only is work, but not span.
#[test]
fn work_and_span_of_a_tree() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return (0..200_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
        }
        let (a, b) = heist::par::join(|| tree(depth - 1), || tree(depth - 1));
        a ^ b
    }
    let (_, measured) = measure(|| tree(5));
    assert_eq!(measured.forks, 31);
    assert!(measured.span < measured.work && measured.span < measured.burdened_span);
    assert!(measured.burdened_parallelism() < measured.parallelism(), "{measured}");
    let (_, serial) = measure(|| tree(0));
    assert!(serial.advice(8).contains("no forks"));
    assert!(serial.to_string().contains("parallelism 1.0"), "{serial}");
}

/// The longer branch is the span, whichever it is.
#[test]
fn work_and_span_of_branches_of_different_length() {
    let long = || {
        (0..2_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
    };
    type Measure<'a> = &'a dyn Fn() -> heist::par::Measured;
    let first = || measure(|| heist::par::join(long, || ())).1;
    let second = || measure(|| heist::par::join(|| (), long)).1;
    let nested = || measure(|| heist::par::join(|| heist::par::join(long, || ()), || ())).1;
    let all: [Measure<'_>; 3] = [&first, &second, &nested];
    for lopsided in all {
        // A thread may lose its CPU in the short branch, but not each time.
        let found: Vec<_> = (0..5).map(|_| lopsided().parallelism()).collect();
        assert!(found.iter().any(|parallelism| *parallelism < 1.5), "{found:?}");
        assert!(found.iter().all(|parallelism| *parallelism >= 1.0), "{found:?}");
    }
}

#[test]
fn a_panic_ends_a_measurement() {
    heist::run(|| {
        let result =
            std::panic::catch_unwind(|| measure(|| heist::par::join(|| (), || panic!("measured"))));
        assert!(result.is_err());
        assert_eq!(super::fib(15), 610, "forks go on as before");
    });
}

/// A measurement within another one hides nothing from it.
#[test]
fn a_measurement_within_another() {
    let compute = || {
        (0..200_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
    };
    let ((_, inner), outer) = measure(|| measure(|| heist::par::join(compute, compute)));
    assert_eq!((inner.forks, outer.forks), (1, 1));
    assert!(inner.span < inner.work && outer.span < outer.work, "{inner}, {outer}");
    assert!(inner.span <= outer.span && inner.work <= outer.work, "{inner}, {outer}");
    let burden = |measured: heist::par::Measured| measured.burdened_span - measured.span;
    assert_eq!(burden(inner), burden(outer), "{inner}, {outer}");

    // In a branch, and in a scope that began outside of it and ends there.
    let ((a, b), outer) = measure(|| {
        heist::par::scope(|s| {
            let spawn = || {
                compute();
                s.spawn(move |_| compute());
            };
            heist::par::join(|| measure(compute).1, || measure(spawn).1)
        })
    });
    assert_eq!((a.forks, b.forks, outer.forks), (0, 1, 2));
    // Some hundreds of nanoseconds are between the parts.
    assert!(a.work + b.work < outer.work, "{a}, {b}, {outer}");
    assert!(b.span < outer.span && outer.span < outer.work, "{a}, {b}, {outer}");

    // One that panics ends only itself.
    let (result, outer) = measure(|| {
        let inner = || measure(|| heist::par::join(compute, || panic!("measured")));
        let result = std::panic::catch_unwind(inner).is_err();
        heist::par::join(compute, compute);
        result
    });
    assert!(result && outer.forks == 2 && outer.span < outer.work, "{outer}");
}

/// The closures of scopes count from where they were spawned, and run in their order.
#[test]
fn work_and_span_of_scopes() {
    fn compute() -> u64 {
        (0..200_000u64).fold(0, |a, b| std::hint::black_box(a ^ b))
    }
    let order = std::sync::Mutex::new(Vec::new());
    let say = |number| {
        compute();
        order.lock().unwrap().push(number);
    };
    let ((), newest) = measure(|| {
        heist::par::scope(|s| {
            for i in 0..4 {
                s.spawn(move |s| {
                    say(i);
                    s.spawn(move |_| say(i + 4));
                });
            }
            assert!(order.lock().unwrap().is_empty(), "later");
        });
    });
    assert_eq!(order.lock().unwrap().split_off(0), [3, 7, 2, 6, 1, 5, 0, 4]);
    assert_eq!(newest.forks, 8);
    assert!(newest.span < newest.work, "{newest}");
    // Two spawns are on the longest chain, and each has its burden.
    assert!(newest.burdened_span - newest.span >= std::time::Duration::from_micros(20));
    let ((), oldest) = measure(|| {
        heist::par::scope_fifo(|s| {
            for i in 0..4 {
                s.spawn_fifo(move |_| say(i));
            }
        });
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(oldest.forks, 4);
}

/// A loop is made of forks, so it is measured as they are.
#[test]
fn work_and_span_of_a_loop() {
    let item = |i: usize| {
        std::hint::black_box((0..20_000).fold(i, |a, b| std::hint::black_box(a ^ b)));
    };
    let ((), measured) = measure(|| par_for(0..64, item));
    assert!(measured.forks > 0 && measured.span < measured.work, "{measured}");
}

/// As many levels as would not fit on one stack.
#[test]
fn nested_scopes_are_measured_however_deep() {
    fn down(depth: u64) {
        if depth > 0 {
            heist::par::scope(|s| s.spawn(move |_| down(depth - 1)));
        }
    }
    let depth = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    assert_eq!(measure(|| down(depth)).1.forks, depth);
}

#[test]
fn a_panic_comes_out_of_a_measured_scope() {
    let ran = std::sync::atomic::AtomicUsize::new(0);
    let count = || {
        ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let measured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        measure(|| {
            heist::par::scope(|s| {
                s.spawn(|_| count());
                s.spawn(|_| panic!("measured"));
                s.spawn(|_| count());
            });
        })
    }));
    assert!(measured.is_err());
    assert_eq!(ran.into_inner(), 2, "the others run");
}

/// Whoever takes a branch has a small stack itself, and that of the branch is large. (Not
/// optimised: the compiler takes minutes for values of that size.)
#[cfg(debug_assertions)]
#[test]
fn values_that_only_the_stacks_of_goroutines_hold() {
    const LARGE: usize = 25_000; // of eight bytes
    const ITEMS: usize = 1000;
    let runtime = heist::Builder::new().max_procs(2).stack_size(64 << 20).build().unwrap();
    let sum = runtime.run(|| {
        let of = |item| [item as u64; LARGE];
        let add = |one: [u64; LARGE], other: [u64; LARGE]| [one[7] + other[LARGE - 7]; LARGE];
        heist::par::map_reduce(0..ITEMS, || [0; LARGE], of, add)[LARGE / 2]
    });
    assert_eq!(sum, (0..ITEMS as u64).sum());
}
