//! Spawn and join.

use super::*;

#[test]
fn values_of_any_size_and_alignment_come_back() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(128))]
    struct Wide(u8);

    fn comes_back<T: Clone + PartialEq + std::fmt::Debug + Send + 'static>(value: T) {
        // The value is the closure's capture as well as its result.
        let sent = value.clone();
        assert_eq!(thread::spawn(move || sent).join().unwrap(), value);
        let sent = value.clone();
        let from_goroutine = heist::run(|| thread::spawn(move || sent).join().unwrap());
        assert_eq!(from_goroutine, value);
    }

    watched(|| {
        comes_back(());
        comes_back(true);
        comes_back(String::from("text"));
        comes_back(Box::new(7u128));
        comes_back(vec![1; 1000]);
        comes_back(Some(Err::<u8, _>("nested")));
        comes_back(Wide(3));
        comes_back([Wide(3); 5]);
        // Around what a control block holds itself.
        comes_back([1u64; 4]);
        comes_back([1u64; 5]);
        comes_back([1u64; 6]);
        comes_back([1u64; 7]);
        comes_back([1u8; 47]);
        comes_back([1u8; 48]);
        comes_back([1u8; 49]);
        comes_back([5u8; 10_000]);
    });
}

#[test]
fn a_panic_comes_back_with_its_payload() {
    #[derive(Debug, PartialEq)]
    struct Custom(u32, String);

    fn panics_with(f: impl FnOnce() + Send + 'static) -> Box<dyn Any + Send> {
        thread::spawn(f).join().unwrap_err()
    }

    let check = || {
        assert_eq!(panics_with(|| panic!("static")).downcast_ref(), Some(&"static"));
        let formatted = panics_with(|| panic!("{} of {}", std::hint::black_box(1), 2));
        assert_eq!(formatted.downcast_ref(), Some(&String::from("1 of 2")));
        let custom = panics_with(|| panic_any(Custom(7, "seven".into())));
        assert_eq!(*custom.downcast::<Custom>().unwrap(), Custom(7, "seven".into()));
        let resumed = panics_with(|| resume_unwind(Box::new(Custom(8, String::new()))));
        assert_eq!(*resumed.downcast::<Custom>().unwrap(), Custom(8, String::new()));
        let checked = panics_with(|| {
            let none: Option<u8> = std::hint::black_box(None);
            none.expect("nothing there");
        });
        assert_eq!(text(&*checked), "nothing there");
    };
    watched(|| {
        check();
        heist::run(check);
    });
}

#[test]
fn a_panic_leaves_the_runtime_and_the_next_goroutines_alone() {
    watched(|| {
        let runtime = runtime(1);
        for i in 0..100 {
            let broken = runtime.go(|| -> u32 { panic_any(1u8) });
            let whole = runtime.go(move || i);
            assert!(broken.join().is_err());
            assert_eq!(whole.join().unwrap(), i);
        }
        assert_eq!(runtime.run(|| 7), 7);
    });
}

#[test]
fn a_handle_can_be_joined_far_from_where_it_was_made() {
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        // On another goroutine, on one of another runtime, on a plain thread.
        let handle = one.go(|| 1);
        assert_eq!(one.run(move || handle.join().unwrap()), 1);
        let handle = one.go(|| 2);
        assert_eq!(two.run(move || handle.join().unwrap()), 2);
        let handle = one.run(|| thread::spawn(|| 3));
        assert_eq!(std::thread::spawn(move || handle.join().unwrap()).join().unwrap(), 3);
        // Before it ends: each waiter has to be woken.
        let gate = Arc::new(AtomicBool::new(false));
        let wait = |value| {
            let gate = gate.clone();
            one.go(move || {
                until(|| gate.load(Ordering::SeqCst));
                value
            })
        };
        let (a, b, c) = (wait(4), wait(5), wait(6));
        let a = one.go(move || a.join().unwrap());
        let b = two.go(move || b.join().unwrap());
        let c = std::thread::spawn(move || c.join().unwrap());
        gate.store(true, Ordering::SeqCst);
        assert_eq!((a.join().unwrap(), b.join().unwrap(), c.join().unwrap()), (4, 5, 6));
    });
}

#[test]
fn joins_in_any_order_get_their_own_values() {
    watched(|| {
        let runtime = runtime(4);
        runtime.run(|| {
            let mut handles: Vec<_> =
                (0..1000usize).map(|i| (i, thread::spawn(move || i))).collect();
            handles.reverse();
            let (even, odd): (Vec<_>, Vec<_>) = handles.into_iter().partition(|(i, _)| i % 2 == 0);
            for (i, handle) in odd.into_iter().chain(even) {
                assert_eq!(handle.join().unwrap(), i);
            }
        });
    });
}

#[test]
fn is_finished_turns_true_and_join_then_has_the_value() {
    let check = || {
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let handle = thread::spawn(move || {
            until(|| opened.load(Ordering::SeqCst));
            "done"
        });
        assert!(!handle.is_finished());
        gate.store(true, Ordering::SeqCst);
        until(|| handle.is_finished());
        assert!(handle.is_finished(), "it stays so");
        assert_eq!(handle.join().unwrap(), "done");
    };
    watched(|| {
        check();
        heist::run(check);
        let panicked = thread::spawn(|| panic_any(1));
        until(|| panicked.is_finished());
        assert!(panicked.join().is_err());
    });
}

/// As std's: the value is elsewhere.
#[test]
fn handles_can_be_moved_whatever_the_value_is() {
    fn is_unpin<T: Unpin>() {}
    is_unpin::<thread::JoinHandle<std::marker::PhantomPinned>>();
    is_unpin::<thread::ScopedJoinHandle<'static, std::marker::PhantomPinned>>();
}

#[test]
fn a_handle_knows_the_goroutine_that_it_is_of() {
    watched(|| {
        let handle = thread::Builder::new().name("me".into()).spawn(thread::current).unwrap();
        let outside = handle.thread().clone();
        let inside = handle.join().unwrap();
        assert_eq!(outside.id(), inside.id());
        assert_eq!((outside.name(), inside.name()), (Some("me"), Some("me")));
        assert!(format!("{outside:?}").contains("me"), "{outside:?}");
    });
}

#[test]
fn names_are_kept_as_given_and_absent_when_not() {
    let check = || {
        for name in ["", "a", "with spaces", "grüße 🦀", &"long".repeat(2500)] {
            let expected = name.to_owned();
            let handle = thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    assert_eq!(thread::current().name(), Some(&*expected));
                    thread::yield_now();
                    assert_eq!(thread::current().name(), Some(&*expected));
                })
                .unwrap();
            assert_eq!(handle.thread().name(), Some(name));
            handle.join().unwrap();
        }
        let unnamed = thread::spawn(|| thread::current().name().map(str::to_owned));
        assert_eq!(unnamed.thread().name(), None);
        assert_eq!(unnamed.join().unwrap(), None);
    };
    watched(|| {
        check();
        heist::run(check);
    });
}

#[test]
fn a_nul_in_a_name_panics_with_the_text_of_std() {
    const TEXT: &str = "thread name may not contain interior null bytes";
    let builder = || thread::Builder::new().name("nu\0l".into());
    watched(|| {
        // std's, which goes on with where the byte is.
        let std = std::thread::Builder::new().name("nu\0l".into());
        let panic = catch_unwind(AssertUnwindSafe(|| drop(std.spawn(|| ())))).unwrap_err();
        assert!(text(&*panic).starts_with(TEXT), "{}", text(&*panic));

        let panic = catch_unwind(|| drop(builder().spawn(|| ()))).unwrap_err();
        assert_eq!(text(&*panic), TEXT);
        let panic = catch_unwind(|| heist::run(|| drop(builder().spawn(|| ())))).unwrap_err();
        assert_eq!(text(&*panic), TEXT);
        let panic = catch_unwind(|| {
            thread::scope(|s| drop(builder().spawn_scoped(s, || ())));
        });
        assert_eq!(text(&*panic.unwrap_err()), TEXT);
    });
}

#[test]
fn an_absurd_stack_size_is_an_error_and_the_closure_is_dropped() {
    const ABSURD: [usize; 4] = [1 << 40, isize::MAX as usize, usize::MAX - 1, usize::MAX];
    let check = || {
        for size in ABSURD {
            let drops = Drops::default();
            let droplet = drops.value();
            let spawned = thread::Builder::new().stack_size(size).spawn(move || drop(droplet));
            let error = spawned.map(drop).unwrap_err();
            assert!(error.to_string().contains("stack"), "{size}: {error}");
            assert_eq!(drops.count(), 1);

            let scoped = thread::scope(|s| {
                let droplet = drops.value();
                let builder = thread::Builder::new().stack_size(size).name("absurd".into());
                builder.spawn_scoped(s, move || drop(droplet)).map(drop)
            });
            assert!(scoped.is_err(), "{size}");
            assert_eq!(drops.count(), 2);
        }
    };
    watched(|| {
        check();
        heist::run(check);
        // And nothing is the worse for it.
        assert_eq!(heist::run(|| 5), 5);
    });
}

#[test]
fn a_large_stack_can_be_used_to_its_depth() {
    let check = || {
        let deep = thread::Builder::new().stack_size(64 << 20);
        let levels = deep.spawn(|| dig_from_here(40 << 20)).unwrap().join().unwrap();
        assert!(levels > 1000, "{levels}");
        thread::scope(|s| {
            let deep = thread::Builder::new().stack_size(8 << 20).name("deep".into());
            let handle = deep.spawn_scoped(s, || dig_from_here(7 << 20)).unwrap();
            assert!(handle.join().unwrap() > 100);
        });
    };
    watched(|| {
        check();
        heist::run(check);
    });
}

#[test]
fn every_legal_stack_size_is_there_to_its_last_page() {
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            for size in (14..24).flat_map(|power| [(1 << power) + 1, (1 << power) + 12_345]) {
                // What is asked for, less a little for the call itself.
                let goal = size - (12 << 10);
                let built = thread::Builder::new().stack_size(size);
                assert!(built.spawn(move || dig_from_here(goal)).unwrap().join().is_ok());
            }
            for tiny in [0, 1, 4095, 4096] {
                let built = thread::Builder::new().stack_size(tiny);
                assert_eq!(built.spawn(move || tiny).unwrap().join().unwrap(), tiny);
            }
        });
    });
}

#[test]
fn a_runtime_with_a_stack_size_gives_it_to_all_its_goroutines() {
    watched(|| {
        let runtime = heist::Builder::new().max_procs(2).stack_size(6 << 20).build().unwrap();
        runtime.run(|| {
            assert!(dig_from_here(5 << 20) > 100);
            let handles: Vec<_> =
                (0..4).map(|_| thread::spawn(|| dig_from_here(5 << 20))).collect();
            handles.into_iter().for_each(|handle| assert!(handle.join().unwrap() > 100));
        });
    });
}

#[test]
fn spawn_unchecked_may_borrow_until_it_is_joined() {
    watched(|| {
        let mut numbers = vec![1, 2, 3];
        // SAFETY: joined in the next statement, while `numbers` is borrowed.
        let handle = unsafe { thread::Builder::new().spawn_unchecked(|| numbers.push(4)) };
        handle.unwrap().join().unwrap();
        assert_eq!(numbers, [1, 2, 3, 4]);
    });
}

#[test]
fn the_handles_have_the_auto_traits_of_std() {
    fn is<T: Send + Sync + std::fmt::Debug + Unpin>() {}
    is::<thread::JoinHandle<u8>>();
    // As in std, whatever the result is.
    is::<thread::JoinHandle<Cell<u8>>>();
    is::<thread::ScopedJoinHandle<'static, Cell<u8>>>();
    is::<thread::Scope<'static, 'static>>();
    is::<thread::Thread>();
    is::<thread::ThreadId>();
    let shown = format!("{:?}", thread::spawn(|| ()));
    assert!(shown.contains("JoinHandle"), "{shown}");
}

/// Go's `go` is a statement, and std's `spawn` may be one: whoever does not want the handle
/// need not say so.
#[test]
#[deny(unused_must_use)]
fn a_handle_that_is_not_wanted_needs_no_word() {
    watched(|| {
        let (sender, receiver) = mpsc::channel();
        let other = sender.clone();
        heist::go(move || sender.send(1).unwrap());
        thread::spawn(move || other.send(2).unwrap());
        assert_eq!(receiver.iter().sum::<i32>(), 3);
    });
}

#[test]
fn joining_oneself_panics() {
    watched(|| {
        runtime(2).run(|| {
            let (s, r) = heist::chan::bounded::<thread::JoinHandle<u32>>(0);
            let (to, from) = heist::chan::bounded(1);
            let itself = thread::spawn(move || {
                let itself = r.recv().unwrap();
                let joined = catch_unwind(AssertUnwindSafe(|| itself.join().map_err(drop)));
                to.send(*joined.unwrap_err().downcast::<String>().unwrap()).unwrap();
                7
            });
            s.send(itself).unwrap();
            let text = from.recv().unwrap();
            assert!(text.starts_with("deadlock: the goroutine that is to be joined"), "{text}");
        });
    });
}
