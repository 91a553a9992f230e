//! Goroutines that compute and never call the runtime.

use super::common::watched;
use super::turns::busy_threads;
use heist::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use heist::{Builder, chan, go, runtime, thread, time};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

fn on(procs: usize, main: impl FnOnce() + Send) {
    watched(|| Builder::new().max_procs(procs).build().unwrap().run(main));
}

/// Runs `hog` on one P, which ends when the flag is set, and sees that others run.
fn others_run_beside(hog: impl FnOnce(Arc<AtomicBool>) + Send + 'static) {
    on(1, || {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let hog = go(move || hog(flag));
        let (send, receive) = chan::bounded(0);
        let other = go(move || {
            for i in 0..100 {
                send.send(i).unwrap();
            }
        });
        assert_eq!(receive.iter().count(), 100);
        other.join().unwrap();
        time::sleep(Duration::from_millis(1));
        stop.store(true, Ordering::SeqCst);
        hog.join().unwrap();
    });
}

#[test]
fn an_empty_loop_does_not_stop_others() {
    others_run_beside(|stop| while !stop.load(Ordering::Relaxed) {});
}

#[test]
fn a_loop_in_registers_does_not_stop_others() {
    others_run_beside(|stop| {
        let mut x = 1u64;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                x = x.rotate_left(7) ^ 0x9e37_79b9;
            }
        }
        black_box(x);
    });
}

#[test]
fn a_loop_of_calls_does_not_stop_others() {
    #[inline(never)]
    fn fib(n: u32) -> u64 {
        if n < 2 { 1 } else { fib(n - 1) + fib(n - 2) }
    }
    others_run_beside(|stop| {
        while !stop.load(Ordering::Relaxed) {
            black_box(fib(black_box(15)));
        }
    });
}

#[test]
fn as_many_hogs_as_there_are_ps_and_one_more() {
    for procs in [1, 2, 4] {
        on(procs, || {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..=procs)
                .map(|_| {
                    let stop = stop.clone();
                    go(move || while !stop.load(Ordering::Relaxed) {})
                })
                .collect();
            for _ in 0..10 {
                time::sleep(Duration::from_millis(2));
                thread::yield_now();
            }
            assert!(runtime::stats().retakes > 0, "{:?}", runtime::stats());
            stop.store(true, Ordering::SeqCst);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
        });
    }
}

/// Far more than may compute at a time: all of them get on, and those that do not
/// run are stopped. Returns how many threads computed at a time, once most were stopped.
fn a_hundred_hogs(procs: usize) -> usize {
    const HOGS: usize = 100;
    let run = || {
        let stop = Arc::new(AtomicBool::new(false));
        let done: Arc<Vec<AtomicU64>> = Arc::new((0..HOGS).map(|_| AtomicU64::new(0)).collect());
        let hogs: Vec<_> = (0..HOGS)
            .map(|i| {
                let (stop, done) = (stop.clone(), done.clone());
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        done[i].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // As long as it takes for each to have had several turns.
        let mut busy = Vec::new();
        while done.iter().any(|n| n.load(Ordering::Relaxed) == 0)
            || runtime::stats().freezes < 3 * HOGS as u64
        {
            time::sleep(Duration::from_millis(10));
            busy.push(busy_threads("hundred-m"));
        }
        stop.store(true, Ordering::SeqCst);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        let end = busy.len() / 2;
        busy[end..].sort_unstable();
        busy[end + (busy.len() - end) / 2]
    };
    let builder = Builder::new().max_procs(procs).thread_name("hundred");
    watched(|| builder.build().unwrap().run(run))
}

/// Those with a P, as many without one, and at most as many that are to stop when the kernel
/// runs them next: no more are made to before. Not each time: see `turns::hogs_share_fairly`.
#[test]
fn a_hundred_hogs_share_and_stay_within_the_cap() {
    let mut seen = Vec::new();
    let within = (0..5).any(|_| {
        seen.push(a_hundred_hogs(2));
        seen.last() <= Some(&(2 + 2 + 2))
    });
    assert!(within, "{seen:?} threads computed at a time");
}
