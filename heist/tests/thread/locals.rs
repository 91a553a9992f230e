//! Goroutine_local!.

use super::*;

heist::goroutine_local! {
    static COUNTER: Cell<u64> = Cell::new(100);
    static PLACE: Cell<&'static str> = const { Cell::new("nowhere") };
    static WORDS: RefCell<Vec<String>> = RefCell::new(vec!["first".to_owned()]);
    static BARE: String = String::from("not a cell");
}

#[test]
fn each_goroutine_and_each_plain_thread_has_its_own_value() {
    watched(|| {
        COUNTER.set(1);
        let inside = || {
            assert_eq!(COUNTER.get(), 100, "a new one, whatever ran here before");
            COUNTER.set(COUNTER.get() + 1);
            COUNTER.get()
        };
        assert_eq!(std::thread::spawn(inside).join().unwrap(), 101);
        runtime(1).run(|| {
            // The same blocks, stacks and thread again and again.
            for _ in 0..50 {
                assert_eq!(thread::spawn(inside).join().unwrap(), 101);
            }
            assert_eq!(inside(), 101);
        });
        assert_eq!(COUNTER.get(), 1);
    });
}

#[test]
fn a_local_value_moves_with_its_goroutine() {
    watched(|| {
        let runtime = runtime(4);
        let yields = many(3000);
        runtime.run(|| {
            thread::scope(|s| {
                for i in 0..64 {
                    s.spawn(move || {
                        COUNTER.set(i * 1_000_000);
                        for step in 1..=yields as u64 {
                            COUNTER.set(COUNTER.get() + 1);
                            thread::yield_now();
                            assert_eq!(COUNTER.get(), i * 1_000_000 + step);
                        }
                    });
                }
            });
        });
    });
}

#[test]
fn a_local_value_can_be_borrowed_across_a_yield() {
    watched(|| {
        runtime(4).run(|| {
            thread::scope(|s| {
                for i in 0..64 {
                    s.spawn(move || {
                        WORDS.with_borrow_mut(|words| {
                            for step in 0..many(1000) {
                                words.push(format!("{i}.{step}"));
                                thread::yield_now();
                            }
                        });
                        WORDS.with_borrow(|words| {
                            assert_eq!(words.len(), 1 + many(1000));
                            let mine = format!("{i}.");
                            assert!(words[1..].iter().all(|word| word.starts_with(&mine)));
                        });
                    });
                }
            });
        });
    });
}

#[test]
fn cells_and_refcells_have_the_short_forms_of_std() {
    let check = || {
        assert_eq!(PLACE.get(), "nowhere");
        PLACE.set("here");
        assert_eq!(PLACE.replace("there"), "here");
        assert_eq!(PLACE.take(), "there");
        assert_eq!(PLACE.get(), "");

        assert_eq!(WORDS.with_borrow(Vec::len), 1);
        WORDS.with_borrow_mut(|words| words.push("second".into()));
        assert_eq!(WORDS.take(), ["first", "second"]);
        WORDS.set(vec!["third".into()]);
        assert_eq!(WORDS.replace(Vec::new()), ["third"]);
        assert!(WORDS.with_borrow(Vec::is_empty));

        assert_eq!(BARE.with(String::len), 10);
        assert_eq!(BARE.try_with(|text| text.len()), Ok(10));
    };
    watched(|| {
        std::thread::spawn(check).join().unwrap();
        heist::run(check);
    });
}

#[test]
fn a_borrowed_local_value_panics_when_borrowed_again() {
    watched(|| {
        let twice = thread::spawn(|| {
            WORDS.with_borrow_mut(|_| catch_unwind(|| WORDS.with_borrow(Vec::len)).is_err())
        });
        assert!(twice.join().unwrap());
    });
}

mod dropped_at_the_end {
    use super::*;

    static MADE: AtomicU64 = AtomicU64::new(0);
    static DROPPED: AtomicU64 = AtomicU64::new(0);

    struct Own;

    impl Own {
        fn new() -> Own {
            MADE.fetch_add(1, Ordering::SeqCst);
            Own
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    heist::goroutine_local! {
        static OWN: Own = Own::new();
    }

    #[test]
    fn local_values_are_made_at_the_first_use_and_dropped_before_join_returns() {
        watched(|| {
            let runtime = runtime(4);
            let counts = || (MADE.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst));
            runtime.run(|| {
                thread::spawn(|| ()).join().unwrap();
                assert_eq!(counts(), (0, 0), "not used, not made");
                for i in 1..=200 {
                    let handle = thread::spawn(|| {
                        OWN.with(|_| thread::yield_now());
                        OWN.with(|_| ());
                    });
                    handle.join().unwrap();
                    assert_eq!(counts(), (i, i));
                }
                let panicked = thread::spawn(|| OWN.with(|_| resume_unwind(Box::new(()))));
                assert!(panicked.join().is_err());
                assert_eq!(counts(), (201, 201), "also after a panic");
            });
            std::thread::spawn(|| OWN.with(|_| ())).join().unwrap();
            assert_eq!(counts(), (202, 202), "also on a plain thread");
            // Parked for ever, then shut down.
            let parked = runtime.go(|| {
                OWN.with(|_| ());
                thread::park();
            });
            until(|| counts().0 == 203);
            drop(runtime);
            assert!(parked.join().is_err());
            assert_eq!(counts(), (203, 203), "also when its runtime ends");
        });
    }
}

mod destructors {
    use super::*;

    static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn log(text: String) {
        LOG.lock().unwrap().push(text);
    }

    /// Looks at another local value, and waits, when it is dropped.
    struct Curious;

    impl Drop for Curious {
        fn drop(&mut self) {
            // As in std: a value, or an error that says it is too late.
            match NEIGHBOUR.try_with(Cell::get) {
                Ok(value) => log(format!("value {value}")),
                Err(error) => log(format!("error {error}")),
            }
            thread::yield_now();
            log(format!("child {}", thread::spawn(|| 7).join().unwrap()));
        }
    }

    heist::goroutine_local! {
        static CURIOUS: Curious = Curious;
        static NEIGHBOUR: Cell<u32> = Cell::new(5);
    }

    #[test]
    fn destructors_of_local_values_may_use_others_and_wait() {
        watched(|| {
            runtime(1).run(|| {
                let handle = thread::spawn(|| {
                    NEIGHBOUR.set(6);
                    CURIOUS.with(|_| ());
                });
                handle.join().unwrap();
            });
            let log = LOG.lock().unwrap();
            assert_eq!(log.len(), 2, "{log:?}");
            assert_eq!(log[0], "value 6", "the one that it had, not a new one");
            assert_eq!(log[1], "child 7");
        });
    }

    static REBORN: AtomicUsize = AtomicUsize::new(0);

    /// Wants to make a new one of itself when it is dropped.
    struct Phoenix;

    impl Drop for Phoenix {
        fn drop(&mut self) {
            let again = PHOENIX.try_with(|_| ());
            REBORN.fetch_add(if again.is_ok() { 100 } else { 1 }, Ordering::SeqCst);
        }
    }

    heist::goroutine_local! {
        static PHOENIX: Phoenix = Phoenix;
    }

    #[test]
    fn a_value_is_not_made_again_in_its_own_destructor() {
        watched(|| {
            thread::spawn(|| PHOENIX.with(|_| ())).join().unwrap();
            assert_eq!(REBORN.load(Ordering::SeqCst), 1);
            std::thread::spawn(|| PHOENIX.with(|_| ())).join().unwrap();
            assert_eq!(REBORN.load(Ordering::SeqCst), 2, "also on a plain thread");
        });
    }

    /// Whom a destructor finds.
    static SEEN: Mutex<Vec<(u32, [Option<u32>; 3])>> = Mutex::new(Vec::new());

    struct Numbered(Cell<u32>);

    impl Numbered {
        fn of(key: &'static heist::LocalKey<Numbered>) -> Option<u32> {
            key.try_with(|numbered| numbered.0.get()).ok()
        }
    }

    impl Drop for Numbered {
        fn drop(&mut self) {
            let seen = [&ONE, &TWO, &LATE].map(Numbered::of);
            SEEN.lock().unwrap().push((self.0.get(), seen));
        }
    }

    heist::goroutine_local! {
        static ONE: Numbered = Numbered(Cell::new(0));
        static TWO: Numbered = Numbered(Cell::new(0));
        static LATE: Numbered = Numbered(Cell::new(3));
    }

    #[test]
    fn the_last_value_is_dropped_first_and_finds_those_that_are_left() {
        let body = || {
            ONE.with(|one| one.0.set(1));
            TWO.with(|two| two.0.set(2));
        };
        let expected = [
            (2, [Some(1), None, Some(3)]), // it has made the third
            (3, [Some(1), None, None]),
            (1, [None, None, None]),
        ];
        watched(move || {
            thread::spawn(body).join().unwrap();
            assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), expected);
            std::thread::spawn(body).join().unwrap();
            assert_eq!(*SEEN.lock().unwrap(), expected, "also on a plain thread");
        });
    }
}

/// Names and type parameters are those of std.
#[test]
fn a_key_can_be_written_as_a_key_of_std() {
    fn length(key: &'static thread::LocalKey<String>) -> Result<usize, thread::AccessError> {
        key.try_with::<_, usize>(|text| text.len())
    }
    watched(|| {
        assert_eq!(length(&BARE), Ok(10));
        assert_eq!(BARE.with::<fn(&String) -> usize, usize>(String::len), 10);
        assert_eq!(WORDS.with_borrow::<_, usize>(Vec::len), 1);
        WORDS.with_borrow_mut::<_, ()>(|words| words.clear());
    });
}

#[test]
fn a_value_that_is_set_first_is_not_made_by_its_declaration() {
    heist::goroutine_local! {
        static CELL: Cell<u32> = panic!("not set");
        static REFCELL: RefCell<Vec<u32>> = panic!("not set");
    }
    let set = || {
        assert!(catch_unwind(|| CELL.get()).is_err());
        CELL.set(1);
        CELL.set(2);
        assert_eq!(CELL.get(), 2);
        REFCELL.set(vec![1]);
        REFCELL.set(vec![2]);
        assert_eq!(REFCELL.take(), [2]);
        let borrowed = REFCELL.with_borrow(|_| catch_unwind(|| REFCELL.set(vec![3])));
        assert!(borrowed.is_err());
    };
    watched(move || {
        heist::run(set);
        std::thread::spawn(set).join().unwrap();
    });
}

#[test]
fn a_local_value_may_be_used_while_another_is_made() {
    heist::goroutine_local! {
        static BASE: Cell<u32> = Cell::new(40);
        static DERIVED: u32 = BASE.get() + 2;
    }
    watched(|| {
        let derived = || DERIVED.with(|value| *value);
        assert_eq!(heist::run(derived), 42);
        assert_eq!(
            heist::run(|| {
                BASE.set(1);
                derived()
            }),
            3
        );
    });
}
