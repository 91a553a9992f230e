//! What the threads of a pool are set up with: those that come later have it, too.

use super::common::in_a_process;
use super::pool;
use heist::par::ThreadPoolBuilder;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    static SET: Cell<bool> = const { Cell::new(false) };
}

/// Longer than a slice: others run on further threads meanwhile.
fn compute() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(30) {
        std::hint::spin_loop();
    }
}

/// What a number of closures that compute find on their thread, before and after.
fn looks(pool: &heist::par::ThreadPool) -> usize {
    let found = AtomicUsize::new(0);
    pool.scope(|s| {
        for _ in 0..12 {
            s.spawn(|_| {
                // Within one call: a goroutine may come back on another thread.
                found.fetch_add(usize::from(SET.get()), Ordering::Relaxed);
                compute();
            });
        }
    });
    found.into_inner()
}

#[test]
fn handlers_are_called_on_threads_that_come_later() {
    let pool = ThreadPoolBuilder::new()
        .num_threads(2)
        .start_handler(|index| {
            assert!(index < 2);
            assert_eq!(heist::par::current_thread_index(), Some(index));
            SET.set(true);
        })
        .exit_handler(|index| assert!(index < 2 && SET.replace(false)))
        .build()
        .unwrap();
    assert_eq!(looks(&pool), 12);
}

#[test]
fn a_scoped_pool_wraps_threads_that_come_later() {
    let inside = AtomicUsize::new(0);
    let looks = ThreadPoolBuilder::new().num_threads(2).build_scoped(
        |thread| {
            inside.fetch_add(1, Ordering::Relaxed);
            SET.set(true);
            thread.run();
            SET.set(false);
            inside.fetch_sub(1, Ordering::Relaxed);
        },
        looks,
    );
    assert_eq!(looks.unwrap(), 12);
    assert_eq!(inside.into_inner(), 0, "nobody uses it any more");
}

/// One that does not run is no thread less, and no P is lost.
#[test]
fn a_wrapper_that_does_not_run_its_thread() {
    let calls = AtomicUsize::new(0);
    let sum = ThreadPoolBuilder::new().num_threads(2).build_scoped(
        |thread| match calls.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => thread.run(),
            _ => drop(thread),
        },
        |pool| {
            looks(pool);
            pool.install(|| 7)
        },
    );
    assert_eq!(sum.unwrap(), 7);
}

/// Set-up by broadcast: each of the Ps that are told something has a thread of its own.
#[test]
fn a_broadcast_goes_to_different_threads() {
    let pool = pool(2);
    let by_one = |_| {
        let told = (0..100).map(|_| pool.broadcast(|_| std::thread::current().id()));
        told.filter(|ids| ids[0] == ids[1]).count()
    };
    // If the kernel lets one wait that was told, another does its work: not each time.
    let tries: Vec<usize> = (0..20).map(by_one).take_while(|same| *same >= 10).collect();
    assert!(tries.len() < 20, "{tries:?} of 100 were run by one thread");
}

/// What they say is what has happened.
#[test]
fn yields_say_whether_somebody_ran() {
    use heist::par::{self, Yield};
    let pool = pool(1);
    pool.install(|| {
        // From outside: it is in the global queue. It may run before the yield, if the kernel
        // keeps us waiting: not each time.
        let executed = (0..20).filter(|_| {
            let (queued, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
            let job = ran.clone();
            std::thread::scope(|s| {
                s.spawn(|| {
                    pool.spawn(move || job.store(1, Ordering::Relaxed));
                    queued.store(1, Ordering::Relaxed);
                });
                while queued.load(Ordering::Relaxed) == 0 {
                    std::hint::spin_loop();
                }
                let before = ran.load(Ordering::Relaxed);
                let executed = par::yield_now() == Some(Yield::Executed) && before == 0;
                assert!(!executed || ran.load(Ordering::Relaxed) == 1, "it has not run");
                executed
            })
        });
        assert_ne!(executed.count(), 0);
        let told = |_| {
            let ran = Arc::new(AtomicUsize::new(0));
            let job = ran.clone();
            par::spawn_broadcast(move |_| _ = job.fetch_add(1, Ordering::Relaxed));
            let executed = par::yield_local() == Some(Yield::Executed);
            executed && ran.load(Ordering::Relaxed) == 1
        };
        assert!((0..20).any(told));
        let forked = |_| par::join(par::current_thread_has_pending_tasks, || ()).0 == Some(true);
        assert!((0..20).any(forked));
        assert_eq!(par::yield_now(), Some(Yield::Idle));
        assert_eq!(par::current_thread_has_pending_tasks(), Some(false));
    });
}

#[test]
fn a_member_is_asked_like_one_of_the_pool() {
    use heist::par::{self, Yield};
    std::thread::spawn(|| {
        let pool = ThreadPoolBuilder::new().num_threads(2).use_current_thread().build().unwrap();
        assert_eq!(par::yield_now(), Some(Yield::Idle));
        assert_eq!(par::yield_local(), Some(Yield::Idle));
        assert_eq!(par::current_thread_has_pending_tasks(), Some(false));
        drop(pool);
        assert_eq!(par::yield_now(), None);
    })
    .join()
    .unwrap();
}

/// The pool that plain threads use without having built one is as rayon's.
#[test]
fn the_default_pool_is_as_rayons() {
    fn deep(levels: u32) -> u32 {
        let frame = std::hint::black_box([1u8; 1000]);
        if levels == 0 { 0 } else { deep(levels - 1) + u32::from(frame[0]) }
    }
    if let Some(output) = in_a_process() {
        return assert!(output.status.success(), "{output:?}");
    }
    // SAFETY: nobody else looks at the environment of this process now.
    unsafe { std::env::set_var("RAYON_NUM_THREADS", "3") };
    assert_eq!(heist::par::current_num_threads(), 3);
    assert_eq!(heist::par::join(|| deep(500), || deep(500)), (500, 500));
}
