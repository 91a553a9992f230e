//! Sleeping.

use super::*;

#[test]
fn a_sleep_takes_as_long_as_it_says() {
    everywhere(|| {
        for duration in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(300), millis(3)]
        {
            let begin = Instant::now();
            time::sleep(duration);
            thread::sleep(duration);
            time::sleep_until(begin + 3 * duration);
            assert!(begin.elapsed() >= 3 * duration);
        }
        time::sleep_until(Instant::now());
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_time() {
    watched(|| {
        runtime(1).run(|| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let begin = Instant::now() + millis(20);
            let sleepers: Vec<_> = [7u32, 2, 9, 4, 1, 8, 3, 6, 5, 0]
                .map(|i| {
                    let order = order.clone();
                    thread::spawn(move || {
                        time::sleep_until(begin + i * millis(1));
                        order.lock().unwrap().push(i);
                    })
                })
                .into();
            sleepers.into_iter().for_each(|s| s.join().unwrap());
            assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        });
    });
}

#[test]
fn ten_thousand_sleepers_on_more_ps_than_cores() {
    watched(|| {
        runtime(8).run(|| {
            let awake = Arc::new(AtomicUsize::new(0));
            let begin = Instant::now();
            let sleepers: Vec<_> = (0..10_000u64)
                .map(|i| {
                    let awake = awake.clone();
                    thread::spawn(move || {
                        let duration = Duration::from_micros(i * 7919 % 50_000);
                        time::sleep(duration);
                        assert!(begin.elapsed() >= duration);
                        awake.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            sleepers.into_iter().for_each(|s| s.join().unwrap());
            assert_eq!(awake.load(Ordering::SeqCst), 10_000);
        });
    });
}

/// Some hundred timers in each millisecond, on two Ps that have nothing else to do: a thread
/// goes to sleep a few times in a millisecond, and not for each of them.
#[test]
fn a_crowd_of_sleepers_wakes_few_threads() {
    watched(|| {
        runtime(2).run(|| {
            let parks = || heist::runtime::stats().parks;
            let begin = Instant::now() + millis(100);
            let sleepers: Vec<_> = (0..20_000u64)
                .map(|i| {
                    let until = begin + Duration::from_nanos(i * 7919 % 20_000 * 5_000);
                    thread::spawn(move || time::sleep_until(until))
                })
                .collect();
            time::sleep_until(begin);
            let before = parks();
            sleepers.into_iter().for_each(|s| s.join().unwrap());
            let (took, parks) = (begin.elapsed(), parks() - before);
            assert!(parks < 10 * took.as_millis() as u64, "{parks} in {took:?}");
        });
    });
}

#[test]
fn a_sleep_of_centuries_does_not_overflow_and_ends_with_the_runtime() {
    watched(|| {
        let drops = Drops::default();
        for duration in [Duration::MAX, Duration::from_secs(u64::MAX), 1_000_000 * HOUR] {
            let runtime = runtime(2);
            let value = drops.value();
            runtime.run(move || {
                let asleep = thread::spawn(move || {
                    let _value = value;
                    time::sleep(duration);
                    unreachable!("it woke up");
                });
                time::sleep(millis(2));
                assert!(!asleep.is_finished());
            });
        }
        assert_eq!(drops.count(), 3);
    });
}

#[test]
fn a_short_sleep_gets_through_a_ping_pong_on_one_p() {
    watched(|| {
        runtime(1).run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let ping = thread::spawn({
                let over = over.clone();
                move || {
                    let me = thread::current();
                    let pong = thread::spawn({
                        let over = over.clone();
                        move || {
                            while !over.load(Ordering::SeqCst) {
                                me.unpark();
                                thread::park();
                            }
                            me.unpark();
                        }
                    });
                    while !over.load(Ordering::SeqCst) {
                        pong.thread().unpark();
                        thread::park();
                    }
                    pong.thread().unpark();
                    pong.join().unwrap();
                }
            });
            for _ in 0..100 {
                time::sleep(Duration::from_micros(1));
            }
            over.store(true, Ordering::SeqCst);
            ping.join().unwrap();
        });
    });
}

/// Its P computes; another one, which was idle, takes the timer.
#[test]
fn a_sleeper_wakes_while_its_p_computes() {
    watched(|| {
        runtime(2).run(|| {
            let woke = Arc::new(AtomicBool::new(false));
            let sleeper = thread::spawn({
                let woke = woke.clone();
                move || {
                    time::sleep(millis(5));
                    woke.store(true, Ordering::SeqCst);
                }
            });
            // Lets it fall asleep on this P, perhaps.
            thread::yield_now();
            while !woke.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            sleeper.join().unwrap();
        });
    });
}

#[test]
fn a_sleep_while_unwinding_is_a_sleep() {
    watched(|| {
        struct Slow;
        impl Drop for Slow {
            fn drop(&mut self) {
                let begin = Instant::now();
                time::sleep(millis(3));
                assert!(begin.elapsed() >= millis(3));
            }
        }
        let outcome = runtime(1).run(|| {
            let others = thread::spawn(|| time::sleep(millis(1)));
            let panics = thread::spawn(|| {
                let _slow = Slow;
                std::panic::resume_unwind(Box::new("meant"));
            });
            others.join().unwrap();
            panics.join()
        });
        assert_eq!(text(&*outcome.unwrap_err()), "meant");
    });
}

/// The P of a goroutine that waits with its thread goes idle, with a timer on it:
/// somebody looks after that.
#[test]
fn a_sleep_while_unwinding_ends_when_all_else_is_idle() {
    watched(|| {
        struct Slow(mpsc::Sender<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                // Longer than sysmon stays awake.
                time::sleep(millis(300));
                self.0.send(()).unwrap();
            }
        }
        let runtime = runtime(2);
        let (over, wait) = mpsc::channel();
        drop(runtime.go(move || {
            let _slow = Slow(over);
            std::panic::resume_unwind(Box::new("meant"));
        }));
        assert_eq!(wait.recv_timeout(Duration::from_secs(60)), Ok(()));
    });
}
