//! What happens one time only.

use super::*;
use heist::sync::OnceState;

#[test]
fn one_of_many_runs_it_and_all_see_it() {
    for procs in [1, 4, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                for _ in 0..many(200) {
                    let (once, runs) = (Once::new(), AtomicUsize::new(0));
                    all(10, |i| {
                        if i % 3 == 0 {
                            once.wait();
                        } else {
                            once.call_once(|| {
                                thread::yield_now();
                                runs.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                        assert_eq!(runs.load(Ordering::Relaxed), 1);
                        assert!(once.is_completed());
                    });
                }
            });
        });
    }
}

#[test]
fn a_panic_poisons_until_one_that_does_not_mind_succeeds() {
    everywhere(|| {
        let once = Once::new();
        let fails = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        fails(&|| once.call_once(|| panic!("no")));
        let waits: [&dyn Fn(); 2] = [&|| once.call_once(|| ()), &|| once.wait()];
        for wait in waits {
            let panicked = fails(wait);
            assert_eq!(text(&*panicked), "Once instance has previously been poisoned");
        }
        fails(&|| {
            once.call_once_force(|state: &OnceState| {
                assert!(state.is_poisoned());
                panic!("still no");
            });
        });
        thread::scope(|s| {
            s.spawn(|| {
                once.wait_force();
                assert!(once.is_completed(), "it was over too soon");
            });
            (0..10).for_each(|_| thread::yield_now());
            once.call_once_force(|state| assert!(state.is_poisoned()));
        });
        once.call_once(|| unreachable!());
        once.wait();
    });
}

#[test]
fn those_who_wait_hear_of_the_panic() {
    everywhere(|| {
        let once = Once::new();
        let waiting = AtomicUsize::new(0);
        thread::scope(|s| {
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    s.spawn(|| {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        once.wait();
                    })
                })
                .collect();
            let runner = s.spawn(|| {
                once.call_once(|| {
                    until(|| waiting.load(Ordering::SeqCst) == 3);
                    panic!("after all");
                });
            });
            assert!(runner.join().is_err());
            for waiter in waiters {
                let panicked = waiter.join().unwrap_err();
                assert_eq!(text(&*panicked), "Once instance has previously been poisoned");
            }
        });
    });
}

#[test]
fn a_run_that_comes_back_to_itself_panics() {
    everywhere(|| {
        let once = Once::new();
        let again = || once.call_once(|| once.call_once(|| ()));
        let panicked = catch_unwind(AssertUnwindSafe(again)).unwrap_err();
        assert!(text(&*panicked).contains("wait for itself"), "{}", text(&*panicked));
        static LAZY: LazyLock<u32> = LazyLock::new(|| *LAZY + 1);
        assert!(catch_unwind(|| *LAZY).is_err());
    });
}

#[test]
fn a_cell_is_set_once() {
    everywhere(|| {
        let mut cell = OnceLock::new();
        assert_eq!(cell.get(), None);
        assert_eq!(cell.get_mut(), None);
        assert_eq!(cell.take(), None);
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.set(2), Err(2));
        assert_eq!(*cell.get_or_init(|| unreachable!()), 1);
        *cell.get_mut().unwrap() = 3;
        assert_eq!((cell.clone(), cell.clone().into_inner()), (OnceLock::from(3), Some(3)));
        assert_eq!(cell.take(), Some(3));
        assert_eq!(cell, OnceLock::default());
        assert_eq!(*cell.get_or_init(|| 4), 4);
    });
}

#[test]
fn a_cell_whose_function_panics_stays_empty() {
    everywhere(|| {
        let cell = OnceLock::new();
        let init = || {
            cell.get_or_init(|| panic!("not yet"));
        };
        assert!(catch_unwind(AssertUnwindSafe(init)).is_err());
        assert_eq!(cell.get(), None);
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.wait(), &1);
    });
}

#[test]
fn many_who_set_a_cell_agree() {
    for procs in [1, 4] {
        watched(|| {
            runtime(procs).run(|| {
                for _ in 0..many(200) {
                    let cell = OnceLock::new();
                    let winners = all(8, |i| {
                        if i == 7 {
                            cell.wait();
                            return false;
                        }
                        cell.set(i).is_ok()
                    });
                    let winner = winners.iter().position(|won| *won).unwrap();
                    assert_eq!(cell.get(), Some(&winner));
                    assert_eq!(winners.iter().filter(|won| **won).count(), 1);
                }
            });
        });
    }
}

#[test]
fn values_are_dropped_once() {
    let drops = Drops::default();
    drop(OnceLock::from(drops.value()));
    let cell = OnceLock::new();
    assert!(cell.set(drops.value()).is_ok());
    drop(cell);
    assert_eq!(drops.count(), 2);
    let unused = LazyLock::<_, _>::new({
        let value = drops.value();
        move || value
    });
    drop(unused);
    assert_eq!(drops.count(), 3, "the function is dropped");
    let used = LazyLock::new(|| drops.value());
    LazyLock::force(&used);
    drop(used);
    assert_eq!(drops.count(), 4);
}

#[test]
fn a_lazy_value_is_made_once() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<String> = LazyLock::new(|| {
        RUNS.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        "made".to_owned()
    });
    everywhere(|| {
        assert_eq!(all(10, |_| LAZY.len()), [4; 10]);
    });
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    let mut lazy = LazyLock::new(|| 1);
    assert_eq!(LazyLock::get(&lazy), None);
    *lazy += 1;
    assert_eq!((LazyLock::get(&lazy), *lazy), (Some(&2), 2));
    assert_eq!(*LazyLock::<u32>::default(), 0);
}

#[test]
fn a_lazy_value_whose_function_panicked_stays_poisoned() {
    everywhere(|| {
        let lazy = LazyLock::<u32, _>::new(|| panic!("never"));
        assert!(catch_unwind(AssertUnwindSafe(|| *lazy)).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| *lazy)).is_err());
        assert_eq!(LazyLock::get(&lazy), None);
    });
}
