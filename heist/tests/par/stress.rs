//! More Ps than cores, and everything at once.

use super::{fib, pool};
use heist::par::{join, par_for, scope};

#[test]
fn many_ps_on_few_cores() {
    let n = if cfg!(debug_assertions) { 18 } else { 24 };
    let expected = fib(n);
    for procs in [3, 8, 32] {
        let pool = pool(procs);
        for _ in 0..5 {
            assert_eq!(pool.install(|| fib(n)), expected);
        }
    }
}

/// Forks among goroutines that come and go, block and yield.
#[test]
fn forks_beside_goroutines() {
    let runtime = heist::Builder::new().max_procs(4).build().unwrap();
    runtime.run(|| {
        let (sender, receiver) = heist::chan::bounded(1);
        let talkers: Vec<_> = (0..4)
            .map(|_| {
                let (sender, receiver) = (sender.clone(), receiver.clone());
                heist::go(move || {
                    for i in 0..200 {
                        sender.send(i).unwrap();
                        heist::thread::yield_now();
                        receiver.recv().unwrap();
                    }
                })
            })
            .collect();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                heist::go(|| {
                    for _ in 0..20 {
                        join(
                            || {
                                heist::thread::yield_now();
                                fib(12)
                            },
                            || scope(|s| s.spawn(|_| par_for(0..50, |_| assert_eq!(fib(5), 5)))),
                        );
                    }
                })
            })
            .collect();
        for handle in talkers.into_iter().chain(workers) {
            handle.join().unwrap();
        }
    });
}

/// Plain threads that fork at the same time, on one pool.
#[test]
fn plain_threads_share_the_default_runtime() {
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(fib(12), 144);
                }
            });
        }
    });
}
