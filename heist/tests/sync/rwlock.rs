//! Readers and writers.

use super::*;
use heist::sync::RwLockReadGuard;
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// As with std, a guard is as safe as a reference to the data.
const _: () = {
    trait Otherwise {
        const IS_SAFE: bool = false;
    }
    struct Kind<T>(PhantomData<T>);
    impl<T: UnwindSafe + RefUnwindSafe> Kind<T> {
        const IS_SAFE: bool = true;
    }
    impl<T> Otherwise for Kind<T> {}
    assert!(Kind::<RwLockReadGuard<'_, i32>>::IS_SAFE);
    assert!(!Kind::<RwLockReadGuard<'_, Cell<i32>>>::IS_SAFE);
};

/// Go's hammer: never a writer beside anybody, never more than all readers.
fn hammer(procs: usize, readers: usize, rounds: usize) {
    const WRITER: usize = 10_000;
    let (lock, activity) = (RwLock::new(()), AtomicUsize::new(0));
    watched(|| {
        runtime(procs).run(|| {
            let enter = |who: usize| {
                let now = activity.fetch_add(who, Ordering::SeqCst) + who;
                assert!(now == WRITER || now <= readers, "{now}");
                if now.is_multiple_of(3) {
                    thread::yield_now();
                }
                activity.fetch_sub(who, Ordering::SeqCst);
            };
            all(readers + 2, |i| {
                for round in 0..rounds {
                    if i < 2 {
                        let _writer = lock.write().unwrap();
                        enter(WRITER);
                    } else if round % 3 == 0 {
                        if let Ok(_reader) = lock.try_read() {
                            enter(1);
                        }
                    } else {
                        let _reader = lock.read().unwrap();
                        enter(1);
                    }
                }
            });
        });
    });
    assert_eq!(activity.load(Ordering::SeqCst), 0);
}

#[test]
fn readers_and_writers_keep_apart() {
    for procs in [1, 4, 10] {
        for readers in [1, 3, 10] {
            hammer(procs, readers, many(2000));
        }
    }
}

#[test]
fn readers_share() {
    everywhere(|| {
        let lock = RwLock::new(1);
        let mine = lock.read().unwrap();
        assert_eq!(all(5, |_| *lock.read().unwrap()), [1; 5]);
        assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        drop(mine);
        *lock.try_write().unwrap() = 2;
        let writing = lock.write().unwrap();
        assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
        assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        drop(writing);
        assert_eq!(lock.into_inner().unwrap(), 2);
    });
}

#[test]
fn a_waiting_writer_keeps_new_readers_out_and_gets_its_turn() {
    everywhere(|| {
        let (lock, wrote) = (RwLock::new(0), AtomicBool::new(false));
        thread::scope(|s| {
            let reader = lock.read().unwrap();
            s.spawn(|| {
                *lock.write().unwrap() = 1;
                wrote.store(true, Ordering::SeqCst);
            });
            // It waits: from now on nobody may come in.
            until(|| lock.try_read().is_err());
            let late = s.spawn(|| *lock.read().unwrap());
            assert!(!wrote.load(Ordering::SeqCst));
            assert_eq!(*reader, 0);
            drop(reader);
            assert_eq!(late.join().unwrap(), 1, "the writer came first");
        });
    });
}

#[test]
fn readers_that_never_stop_do_not_starve_a_writer() {
    watched(|| {
        runtime(2).run(|| {
            let (lock, stop) = (RwLock::new(()), AtomicBool::new(false));
            thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        while !stop.load(Ordering::SeqCst) {
                            let _reader = lock.read();
                            thread::yield_now();
                        }
                    });
                }
                (0..100).for_each(|_| drop(lock.write()));
                stop.store(true, Ordering::SeqCst);
            });
        });
    });
}

#[test]
fn a_downgraded_writer_is_a_reader_and_nobody_wrote_in_between() {
    for procs in [1, 4] {
        watched(|| {
            runtime(procs).run(|| {
                let lock = RwLock::new(0);
                all(10, |_| {
                    for _ in 0..many(500) {
                        let mut writer = lock.write().unwrap();
                        *writer += 1;
                        let mine = *writer;
                        let reader = RwLockWriteGuard::downgrade(writer);
                        thread::yield_now();
                        assert_eq!(*reader, mine);
                    }
                });
                assert_eq!(*lock.read().unwrap(), 10 * many(500));
            });
        });
    }
}

#[test]
fn a_downgrade_lets_waiting_readers_in() {
    everywhere(|| {
        let lock = RwLock::new(1);
        let (come, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|s| {
            let writer = lock.write().unwrap();
            for _ in 0..5 {
                s.spawn(|| {
                    come.fetch_add(1, Ordering::SeqCst);
                    drop(lock.read());
                    read.fetch_add(1, Ordering::SeqCst);
                });
            }
            until(|| come.load(Ordering::SeqCst) == 5);
            let _reader = RwLockWriteGuard::downgrade(writer);
            until(|| read.load(Ordering::SeqCst) == 5);
        });
    });
}

#[test]
fn only_writers_poison() {
    everywhere(|| {
        let mut lock = RwLock::new(1);
        thread::scope(|s| {
            let reader = s.spawn(|| {
                let _reader = lock.read();
                panic!("while it reads");
            });
            assert!(reader.join().is_err());
            assert!(!lock.is_poisoned());
            let writer = s.spawn(|| {
                let _writer = lock.write();
                panic!("while it writes");
            });
            assert!(writer.join().is_err());
        });
        assert!(lock.is_poisoned() && lock.read().is_err() && lock.write().is_err());
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(lock.get_mut().is_err());
        lock.clear_poison();
        assert_eq!(*lock.read().unwrap(), 1);
    });
}

#[test]
fn a_guard_of_a_longer_life_is_one_of_a_shorter() {
    fn both<'a>(_: heist::sync::RwLockReadGuard<'_, &'a i32>, _: &'a i32) {}
    let long = 5;
    let lock = RwLock::new(&long);
    {
        let short = 6;
        both(lock.read().unwrap(), &short);
    }
    assert_eq!(**lock.read().unwrap(), 5);
}

#[test]
fn unsized_data() {
    let lock: &RwLock<[i32]> = &RwLock::new([1, 2, 3]);
    lock.write().unwrap()[1] = 5;
    assert_eq!(&*lock.read().unwrap(), [1, 5, 3]);
}

#[test]
fn a_second_release_is_a_panic_that_says_why() {
    fn drop_twice<G>(guard: G) {
        // SAFETY: not at all sound, which is what is tested: both are dropped.
        let copy = unsafe { std::ptr::read(&guard) };
        drop(guard);
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(copy))).unwrap_err();
        assert!(text(&*panicked).contains("unlock of unlocked rwlock"));
    }
    everywhere(|| {
        let lock = RwLock::new(());
        drop_twice(lock.write().unwrap());
        drop_twice(lock.read().unwrap());
        drop(lock.read().unwrap());
        drop(lock.write().unwrap());
    });
}
