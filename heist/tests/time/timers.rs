//! Timers that call a function.

use super::*;

fn counter() -> (Arc<AtomicUsize>, impl FnMut() + Send + 'static) {
    let calls = Arc::new(AtomicUsize::new(0));
    let call = calls.clone();
    (calls, move || {
        call.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn a_timer_calls_once_on_a_goroutine() {
    everywhere(|| {
        let (sender, receiver) = mpsc::channel();
        let begin = Instant::now();
        drop(Timer::after(millis(2), move || {
            sender.send((begin.elapsed(), heist::runtime::goroutine_id())).unwrap();
        }));
        // A plain channel: the thread blocks, and the timer comes all the same.
        if heist::runtime::max_procs() > 1 {
            let (elapsed, goroutine) = receiver.recv().unwrap();
            assert!(elapsed >= millis(2));
            assert!(goroutine.is_some());
        }
    });
}

#[test]
fn what_was_stopped_is_not_called() {
    everywhere(|| {
        let (calls, call) = counter();
        let timer = Timer::after(millis(3), call);
        assert!(timer.is_set());
        assert!(timer.stop());
        assert!(!timer.stop() && !timer.is_set());
        time::sleep(millis(6));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        assert_eq!(format!("{timer:?}"), "Timer { is_set: false, .. }");
    });
}

#[test]
fn a_reset_replaces_the_time() {
    everywhere(|| {
        let (calls, call) = counter();
        let timer = Timer::after(HOUR, call);
        assert!(timer.reset(millis(1)), "it was set");
        until(|| calls.load(Ordering::SeqCst) == 1);
        assert!(!timer.reset(millis(2)), "it had called");
        assert!(timer.reset(HOUR));
        time::sleep(millis(5));
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the hour is not over");
        assert!(timer.stop());
    });
}

#[test]
fn resets_against_the_clock_call_as_often_as_they_say() {
    watched(|| {
        runtime(8).run(|| {
            let (calls, call) = counter();
            let timer = Timer::after(Duration::from_micros(20), call);
            let mut missed = 0;
            for i in 0..3000 {
                if !timer.reset(Duration::from_micros(i % 40)) {
                    missed += 1;
                }
                if i % 7 == 0 {
                    thread::yield_now();
                }
            }
            // The last one comes, too.
            until(|| !timer.is_set());
            until(|| calls.load(Ordering::SeqCst) == missed + 1);
            time::sleep(millis(2));
            assert_eq!(calls.load(Ordering::SeqCst), missed + 1);
        });
    });
}

/// A stop that comes too late says so exactly if the call comes.
#[test]
fn what_could_not_be_stopped_is_called() {
    watched(|| {
        runtime(CROWDED).run(|| {
            let outcomes = [false, true].map(|early| {
                let tries = (0..many(2000) as u64).map(|i| {
                    let (sender, receiver) = mpsc::channel();
                    let in_time =
                        if early { millis(60_000) } else { Duration::from_micros(i % 60) };
                    let timer = Timer::after(in_time, move || sender.send(i).unwrap());
                    match i % 9 {
                        // Its time comes first.
                        0 if !early => until(|| !timer.is_set()),
                        0 | 3 | 6 => thread::yield_now(),
                        _ => {}
                    }
                    let stopped = timer.stop();
                    // Then nobody is left who could send.
                    drop(timer);
                    match stopped {
                        true => assert_eq!(receiver.recv(), Err(mpsc::RecvError)),
                        false => assert_eq!(receiver.recv(), Ok(i)),
                    }
                    stopped
                });
                tries.filter(|stopped| *stopped).count()
            });
            assert!(outcomes[0] < many(2000), "none of them came in time");
            assert_eq!(outcomes[1], many(2000));
        });
    });
}

/// Timers that are set anew into the past, again and again, are due each time.
#[test]
fn timers_that_are_set_into_the_past_fire() {
    everywhere(|| {
        let (calls, mut owed) = (Arc::new(AtomicUsize::new(0)), 0);
        let timers: Vec<Timer> = (0..many(1000))
            .map(|_| {
                let calls = calls.clone();
                Timer::after(HOUR, move || {
                    calls.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        for _ in 0..10 {
            for timer in &timers {
                // Each time that was not stopped by the next one is a call.
                owed += usize::from(!timer.reset(Duration::ZERO));
            }
        }
        until(|| timers.iter().all(|timer| !timer.is_set()));
        until(|| calls.load(Ordering::SeqCst) == owed + timers.len());
        time::sleep(millis(1));
        assert_eq!(calls.load(Ordering::SeqCst), owed + timers.len());
    });
}

/// Whatever is done with a timer and in which order: each setting is either stopped, by a
/// stop or by the next one, or it is one call.
#[test]
fn random_resets() {
    watched(|| {
        runtime(CROWDED).run(|| {
            for seed in 1..=100_u64 {
                let (calls, call) = counter();
                let timer = Timer::after(HOUR, call);
                let (mut random, mut set, mut owed) = (seed, true, 0);
                for _ in 0..20 {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(seed | 1);
                    let stopped = match random >> 60 {
                        0..4 => timer.stop(),
                        4..8 => timer.reset(HOUR),
                        _ => timer.reset(Duration::from_micros(random >> 32 & 63)),
                    };
                    assert!(set || !stopped, "there was nothing to stop");
                    owed += usize::from(set && !stopped);
                    set = random >> 60 >= 4;
                }
                owed += usize::from(!timer.reset(Duration::ZERO) && set) + 1;
                until(|| calls.load(Ordering::SeqCst) == owed);
                drop(timer);
                time::sleep(Duration::from_micros(100));
                assert_eq!(calls.load(Ordering::SeqCst), owed);
            }
        });
    });
}

#[test]
fn calls_of_one_timer_do_not_overlap() {
    watched(|| {
        runtime(4).run(|| {
            let (calls, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let timer = Timer::after(Duration::ZERO, {
                let (calls, inside) = (calls.clone(), inside.clone());
                move || {
                    assert!(!inside.swap(true, Ordering::SeqCst), "they overlap");
                    time::sleep(millis(2));
                    inside.store(false, Ordering::SeqCst);
                    calls.fetch_add(1, Ordering::SeqCst);
                }
            });
            for _ in 0..4 {
                until(|| !timer.is_set());
                timer.reset(Duration::ZERO);
            }
            until(|| calls.load(Ordering::SeqCst) == 5);
        });
    });
}

#[test]
fn timers_that_are_stopped_leave_nothing() {
    watched(|| {
        runtime(2).run(|| {
            let drops = Drops::default();
            for _ in 0..100_000 {
                let value = drops.value();
                let timer = Timer::after(HOUR, move || {
                    let _ = &value;
                });
                assert!(timer.stop());
            }
            // Dead entries are dropped as others come.
            assert!(drops.count() > 99_000, "{} are gone", drops.count());
        });
    });
}

#[test]
fn timers_end_with_their_runtime() {
    watched(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        let value = drops.value();
        let timer = runtime.run(move || {
            Timer::after(HOUR, move || {
                let _ = &value;
            })
        });
        drop(runtime);
        drop(timer);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_timer_of_a_plain_thread_fires_while_all_sleep() {
    watched(|| {
        for _ in 0..20 {
            let (sender, receiver) = mpsc::channel();
            let timer = Timer::after(millis(1), move || sender.send(()).unwrap());
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(()));
            assert!(!timer.is_set());
        }
    });
}

#[test]
fn a_ticker_ticks_and_forgets_what_was_missed() {
    everywhere(|| {
        let begin = Instant::now();
        let mut ticker = time::Ticker::new(millis(2));
        let ticks: Vec<Instant> = ticker.by_ref().take(3).collect();
        assert!(ticks[0] >= begin + millis(2));
        assert!(begin.elapsed() >= millis(6));
        assert!(ticks.windows(2).all(|pair| pair[1] >= pair[0] + millis(2)));
        time::sleep(millis(10));
        let kept = ticker.tick();
        assert!(ticker.tick() > kept + millis(2), "of those that were missed one is kept");
        ticker.reset(HOUR);
        assert_eq!(ticker.period(), HOUR);
        assert_eq!(
            time::timeout(millis(5), move || ticker.tick()).unwrap_err().to_string(),
            "deadline has elapsed"
        );
        assert_eq!(time::Ticker::new(Duration::MAX).period(), Duration::MAX);
    });
}

/// Neither the tick that was due nor a later one.
#[test]
fn a_ticker_that_was_stopped_does_not_tick_before_it_is_reset() {
    everywhere(|| {
        let mut ticker = time::Ticker::new(millis(1));
        time::sleep(millis(3)); // a tick is due
        ticker.stop();
        assert!(time::timeout(millis(6), move || ticker.tick()).is_err());

        let mut ticker = time::Ticker::new(millis(1));
        ticker.stop();
        let begin = Instant::now();
        ticker.reset(millis(4));
        assert!(ticker.tick() >= begin + millis(4));
        ticker.stop(); // none is due
        assert!(time::timeout(millis(6), move || ticker.tick()).is_err());
    });
}

#[test]
#[should_panic(expected = "longer than zero")]
fn a_ticker_without_a_period_is_refused() {
    let _ = time::Ticker::new(Duration::ZERO);
}

/// What a stopped timer would have called is dropped with its handle, by whoever
/// drops that, and not later by the scheduler.
#[test]
fn what_a_timer_calls_is_dropped_with_its_handle() {
    struct Arms;
    impl Drop for Arms {
        fn drop(&mut self) {
            // Takes the scheduler's locks.
            Timer::after(HOUR, || ()).stop();
        }
    }
    everywhere(|| {
        for _ in 0..400 {
            let (arms, drops) = (Arms, Drops::default());
            let value = drops.value();
            let timer = Timer::after(HOUR, move || {
                let _ = (&arms, &value);
            });
            assert!(timer.stop());
            drop(timer);
            assert_eq!(drops.count(), 1);
        }
    });
}
