//! Condition variables.

use super::*;

#[test]
fn a_notification_wakes_one() {
    everywhere(|| {
        let (mutex, condvar) = (Mutex::new(0), Condvar::new());
        condvar.notify_one();
        condvar.notify_all();
        thread::scope(|s| {
            s.spawn(|| {
                let mut guard = mutex.lock().unwrap();
                while *guard == 0 {
                    guard = condvar.wait(guard).unwrap();
                }
                *guard += 1;
            });
            *mutex.lock().unwrap() = 1;
            condvar.notify_one();
            until(|| *mutex.lock().unwrap() == 2);
        });
    });
}

/// Waits in the order of a line of numbers.
struct Line {
    state: Mutex<(usize, Vec<usize>)>,
    arrived: Condvar,
    go: Condvar,
}

#[test]
fn those_who_wait_are_woken_in_order() {
    const N: usize = 50;
    watched(|| {
        for procs in [1, 4] {
            let line = Arc::new(Line {
                state: Mutex::new((0, Vec::new())),
                arrived: Condvar::new(),
                go: Condvar::new(),
            });
            runtime(procs).run(|| {
                let mut tasks = Vec::new();
                for i in 0..N {
                    let line = Arc::clone(&line);
                    tasks.push(thread::spawn({
                        let line = Arc::clone(&line);
                        move || {
                            let mut state = line.state.lock().unwrap();
                            state.0 += 1;
                            line.arrived.notify_one();
                            state = line.go.wait(state).unwrap();
                            state.1.push(i);
                            line.arrived.notify_one();
                        }
                    }));
                    // The next one comes when this one waits.
                    let state = line.state.lock().unwrap();
                    drop(line.arrived.wait_while(state, |state| state.0 <= i).unwrap());
                }
                for i in 0..N {
                    line.go.notify_one();
                    let state = line.state.lock().unwrap();
                    drop(line.arrived.wait_while(state, |state| state.1.len() <= i).unwrap());
                }
                tasks.into_iter().for_each(|task| task.join().unwrap());
            });
            let woken = &line.state.lock().unwrap().1;
            assert_eq!(*woken, (0..N).collect::<Vec<_>>());
        }
    });
}

#[test]
fn notify_all_wakes_all_who_wait() {
    everywhere(|| {
        let (state, condvar) = (Mutex::new((0, false)), Condvar::new());
        thread::scope(|s| {
            for _ in 0..20 {
                s.spawn(|| {
                    let mut guard = state.lock().unwrap();
                    guard.0 += 1;
                    drop(condvar.wait_while(guard, |state| !state.1).unwrap());
                    state.lock().unwrap().0 -= 1;
                });
            }
            until(|| state.lock().unwrap().0 == 20);
            state.lock().unwrap().1 = true;
            condvar.notify_all();
        });
        assert_eq!(state.lock().unwrap().0, 0);
    });
}

#[test]
fn a_wait_times_out() {
    everywhere(|| {
        let (mutex, condvar) = (Mutex::new(7), Condvar::new());
        for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(2)] {
            let begin = Instant::now();
            let (guard, result) = condvar.wait_timeout(mutex.lock().unwrap(), timeout).unwrap();
            assert!(result.timed_out() && *guard == 7);
            assert!(begin.elapsed() >= timeout);
        }
        // Nobody is left in the queue: a notification now is not for the dead.
        condvar.notify_one();
        let (guard, result) = condvar
            .wait_timeout_while(mutex.lock().unwrap(), Duration::from_millis(1), |_| true)
            .unwrap();
        assert!(result.timed_out());
        let (_guard, result) =
            condvar.wait_timeout_while(guard, Duration::ZERO, |_| false).unwrap();
        assert!(!result.timed_out(), "the condition comes before the clock");
        #[allow(deprecated)]
        let (_guard, notified) = condvar.wait_timeout_ms(_guard, 1).unwrap();
        assert!(!notified);
    });
}

#[test]
fn a_wait_of_centuries_ends_with_its_notification() {
    everywhere(|| {
        let (ready, condvar) = (Mutex::new(false), Condvar::new());
        thread::scope(|s| {
            let guard = ready.lock().unwrap();
            s.spawn(|| {
                *ready.lock().unwrap() = true;
                condvar.notify_one();
            });
            let (guard, result) =
                condvar.wait_timeout_while(guard, Duration::MAX, |ready| !*ready).unwrap();
            assert!(*guard && !result.timed_out());
        });
    });
}

/// Notifications and timeouts that race: each notification ends one wait that did
/// not time out, or finds nobody.
#[test]
fn a_notification_is_not_lost_to_one_who_gives_up() {
    watched(|| {
        for procs in [1, 2, CROWDED] {
            runtime(procs).run(|| {
                let (tokens, condvar) = (Mutex::new(0usize), Condvar::new());
                let total = many(5000);
                thread::scope(|s| {
                    for i in 0..4 {
                        let (tokens, condvar) = (&tokens, &condvar);
                        s.spawn(move || {
                            for round in 0..total {
                                let mut guard = tokens.lock().unwrap();
                                while *guard == 0 {
                                    // Some give up all the time.
                                    let nanos =
                                        if i % 2 == 0 { round as u64 % 3000 } else { u64::MAX };
                                    let timeout = Duration::from_nanos(nanos);
                                    guard = condvar.wait_timeout(guard, timeout).unwrap().0;
                                }
                                *guard -= 1;
                            }
                        });
                    }
                    s.spawn(|| {
                        for i in 0..4 * total {
                            *tokens.lock().unwrap() += 1;
                            condvar.notify_one();
                            if i % 64 == 0 {
                                thread::yield_now();
                            }
                        }
                    });
                });
                assert_eq!(*tokens.lock().unwrap(), 0);
            });
        }
    });
}

#[test]
fn it_serves_two_mutexes() {
    everywhere(|| {
        let (one, two, condvar) = (Mutex::new(1), Mutex::new(2), Condvar::new());
        let short = Duration::from_millis(1);
        let (one, _) = condvar.wait_timeout(one.lock().unwrap(), short).unwrap();
        let (two, _) = condvar.wait_timeout(two.lock().unwrap(), short).unwrap();
        assert_eq!(*one + *two, 3);
    });
}

#[test]
fn a_mutex_poisoned_meanwhile_is_told() {
    everywhere(|| {
        let (mutex, condvar) = (Mutex::new(false), Condvar::new());
        thread::scope(|s| {
            let guard = mutex.lock().unwrap();
            let bad = s.spawn(|| {
                let mut guard = mutex.lock().unwrap();
                *guard = true;
                condvar.notify_one();
                panic!("with the mutex");
            });
            let guard = condvar.wait(guard).unwrap_err().into_inner();
            assert!(*guard);
            drop(guard);
            assert!(bad.join().is_err());
        });
    });
}
