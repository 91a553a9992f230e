//! Goroutines and plain threads, and goroutines of two runtimes, with each other.

use super::*;

#[test]
fn goroutines_and_threads_share_a_mutex() {
    watched(|| {
        runtime(4).run(|| {
            let (counter, rounds) = (Mutex::new(0), many(10_000));
            all_mixed(8, |_| (0..rounds).for_each(|_| *counter.lock().unwrap() += 1));
            assert_eq!(*counter.lock().unwrap(), 8 * rounds);
        });
    });
}

#[test]
fn goroutines_and_threads_share_a_reader_writer_lock() {
    watched(|| {
        runtime(4).run(|| {
            let (lock, rounds) = (RwLock::new((0, 0)), many(3000));
            all_mixed(8, |i| {
                for round in 0..rounds {
                    if (i + round) % 4 == 0 {
                        let mut pair = lock.write().unwrap();
                        pair.0 += 1;
                        pair.1 += 1;
                    } else {
                        let pair = lock.read().unwrap();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        });
    });
}

#[test]
fn goroutines_and_threads_play_ping_pong_on_a_condition() {
    watched(|| {
        runtime(2).run(|| {
            let (turn, changed, rounds) = (Mutex::new(0), Condvar::new(), many(3000));
            all_mixed(2, |i| {
                for _ in 0..rounds {
                    let turn = turn.lock().unwrap();
                    let mut turn = changed.wait_while(turn, |turn| *turn % 2 != i).unwrap();
                    *turn += 1;
                    changed.notify_one();
                }
            });
            assert_eq!(*turn.lock().unwrap(), 2 * rounds);
        });
    });
}

#[test]
fn goroutines_and_threads_meet_at_a_barrier() {
    watched(|| {
        runtime(4).run(|| {
            let barrier = Barrier::new(6);
            let leaders = AtomicUsize::new(0);
            all_mixed(6, |_| {
                for _ in 0..many(500) {
                    leaders.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::SeqCst);
                }
            });
            assert_eq!(leaders.load(Ordering::SeqCst), many(500));
        });
    });
}

#[test]
fn goroutines_of_two_runtimes_share_everything() {
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        let (counter, semaphore) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(2)));
        let group = WaitGroup::new();
        for i in 0..20 {
            let (counter, semaphore) = (Arc::clone(&counter), Arc::clone(&semaphore));
            let done = group.clone();
            group.add(1);
            let body = move || {
                for _ in 0..many(500) {
                    let _permit = semaphore.acquire();
                    *counter.lock().unwrap() += 1;
                }
                done.done();
            };
            let _ = if i % 2 == 0 { one.go(body) } else { two.go(body) };
        }
        group.wait();
        assert_eq!(*counter.lock().unwrap(), 20 * many(500));
    });
}
