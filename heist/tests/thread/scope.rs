//! Scope.

use super::*;

#[test]
fn scoped_goroutines_borrow_and_mutate_what_is_outside() {
    everywhere(|| {
        let mut numbers = vec![1, 2, 3];
        let (mut sum, mut product) = (0, 0);
        let returned = thread::scope(|s| {
            s.spawn(|| sum = numbers.iter().sum());
            s.spawn(|| product = numbers.iter().product());
            "value of the scope"
        });
        assert_eq!((returned, sum, product), ("value of the scope", 6, 6));
        thread::scope(|s| {
            for number in &mut numbers {
                s.spawn(move || *number *= 10);
            }
        });
        assert_eq!(numbers, [10, 20, 30]);
    });
}

#[test]
fn a_scope_waits_for_goroutines_that_nobody_joins() {
    everywhere(|| {
        let ended = AtomicUsize::new(0);
        thread::scope(|s| {
            for i in 0..200 {
                let handle = s.spawn(|| {
                    (0..10).for_each(|_| thread::yield_now());
                    ended.fetch_add(1, Ordering::SeqCst);
                });
                if i % 2 == 0 {
                    drop(handle);
                } else {
                    std::mem::forget(handle);
                }
            }
        });
        assert_eq!(ended.load(Ordering::SeqCst), 200);
    });
}

#[test]
fn scopes_nest() {
    everywhere(|| {
        let total = AtomicUsize::new(0);
        thread::scope(|outer| {
            for _ in 0..4 {
                outer.spawn(|| {
                    let mut mine = [0; 4];
                    thread::scope(|inner| {
                        for (i, slot) in mine.iter_mut().enumerate() {
                            inner.spawn(move || *slot = i);
                        }
                    });
                    total.fetch_add(mine.iter().sum(), Ordering::SeqCst);
                });
            }
        });
        assert_eq!(total.load(Ordering::SeqCst), 4 * 6);
    });
}

#[test]
fn scoped_goroutines_spawn_more_into_their_scope() {
    fn split<'scope>(s: &'scope thread::Scope<'scope, '_>, hits: &'scope AtomicUsize, depth: u32) {
        hits.fetch_add(1, Ordering::SeqCst);
        if depth > 0 {
            s.spawn(move || split(s, hits, depth - 1));
            s.spawn(move || split(s, hits, depth - 1));
        }
    }
    everywhere(|| {
        let hits = AtomicUsize::new(0);
        thread::scope(|s| {
            let hits = &hits;
            s.spawn(move || split(s, hits, 7));
        });
        assert_eq!(hits.load(Ordering::SeqCst), (1 << 8) - 1);
    });
}

#[test]
fn a_panic_in_the_scope_closure_still_waits_for_all() {
    everywhere(|| {
        let ended = AtomicUsize::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|s| {
                for _ in 0..50 {
                    s.spawn(|| {
                        (0..10).for_each(|_| thread::yield_now());
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }
                panic_any("the closure's own");
            })
        }));
        assert_eq!(ended.load(Ordering::SeqCst), 50);
        assert_eq!(text(&*panic.unwrap_err()), "the closure's own");
    });
}

#[test]
fn an_unjoined_panic_makes_the_scope_panic_with_the_text_of_std() {
    everywhere(|| {
        let expected = catch_unwind(|| {
            std::thread::scope(|s| {
                s.spawn(|| resume_unwind(Box::new(())));
            })
        });
        let expected = expected.unwrap_err();
        assert_eq!(text(&*expected), "a scoped thread panicked");

        let others = AtomicUsize::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|s| {
                s.spawn(|| resume_unwind(Box::new("lost")));
                s.spawn(|| others.fetch_add(1, Ordering::SeqCst));
                "not returned"
            })
        }));
        assert_eq!(text(&*panic.unwrap_err()), text(&*expected));
        assert_eq!(others.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_joined_panic_does_not_make_the_scope_panic() {
    everywhere(|| {
        let value = thread::scope(|s| {
            let handle = s.spawn(|| -> u8 { resume_unwind(Box::new("caught")) });
            assert_eq!(text(&*handle.join().unwrap_err()), "caught");
            "fine"
        });
        assert_eq!(value, "fine");
    });
}

#[test]
fn the_panic_of_the_closure_comes_before_that_of_a_goroutine() {
    everywhere(|| {
        let panic = catch_unwind(|| {
            thread::scope(|s| {
                s.spawn(|| resume_unwind(Box::new("the goroutine's")));
                resume_unwind(Box::new("the closure's"))
            })
        });
        assert_eq!(text(&*panic.unwrap_err()), "the closure's");
    });
}

#[test]
fn scoped_results_may_borrow() {
    everywhere(|| {
        let words = [String::from("one"), String::from("three"), String::from("seven")];
        let longest: &str = thread::scope(|s| {
            let found = s.spawn(|| words.iter().max_by_key(|word| word.len()).unwrap().as_str());
            found.join().unwrap()
        });
        assert_eq!(longest, "seven");
    });
}

#[test]
fn scoped_results_that_borrow_are_dropped_inside_the_scope() {
    /// Touches what it borrows when it is dropped.
    struct Touch<'a>(&'a AtomicUsize);
    impl Drop for Touch<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    everywhere(|| {
        let touched = AtomicUsize::new(0);
        thread::scope(|s| {
            for i in 0..300 {
                let handle = s.spawn(|| Touch(&touched));
                match i % 3 {
                    0 => drop(handle),
                    1 => drop(handle.join()),
                    _ => {
                        until(|| handle.is_finished());
                        drop(handle);
                    }
                }
            }
        });
        assert_eq!(touched.load(Ordering::SeqCst), 300);
    });
}

#[test]
fn scoped_closures_and_results_are_dropped_exactly_once() {
    watched(|| {
        let runtime = runtime(CROWDED);
        let (closures, results) = (Drops::default(), Drops::default());
        let repetitions = many(5000);
        runtime.run(|| {
            for i in 0..repetitions {
                thread::scope(|s| {
                    let (capture, result) = (closures.value(), results.value());
                    let handle = s.spawn(move || {
                        let _capture = capture;
                        result
                    });
                    for _ in 0..i % 331 {
                        std::hint::spin_loop();
                    }
                    match i % 3 {
                        0 => drop(handle.join()),
                        _ => drop(handle),
                    }
                });
                assert_eq!((closures.count(), results.count()), (i + 1, i + 1));
            }
        });
    });
}

#[test]
fn a_scoped_handle_has_thread_name_and_is_finished() {
    everywhere(|| {
        let gate = AtomicBool::new(false);
        thread::scope(|s| {
            let named = thread::Builder::new().name("scoped".into());
            let handle = named
                .spawn_scoped(s, || {
                    until(|| gate.load(Ordering::SeqCst));
                    thread::current()
                })
                .unwrap();
            assert_eq!(handle.thread().name(), Some("scoped"));
            assert!(!handle.is_finished());
            gate.store(true, Ordering::SeqCst);
            until(|| handle.is_finished());
            let id = handle.thread().id();
            assert_eq!(handle.join().unwrap().id(), id);
        });
    });
}

#[test]
fn a_scope_is_shared_between_its_goroutines_and_its_closure() {
    everywhere(|| {
        // Handles cross goroutines of the same scope.
        let value = thread::scope(|s| {
            let inner = s.spawn(|| 20);
            let outer = s.spawn(move || inner.join().unwrap() + 1);
            outer.join().unwrap() * 2
        });
        assert_eq!(value, 42);
    });
}
