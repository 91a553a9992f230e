//! `lock_os_thread`, `unlock_os_thread` and `pin`.

use crate::common::{Drops, runtime, text, until, watched};
use heist::runtime::{lock_os_thread, pin, unlock_os_thread};
use heist::{chan, thread};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn here() -> std::thread::ThreadId {
    std::thread::current().id()
}

/// Leaves the thread free for others, and gives them a reason to take it.
fn move_about() {
    let others: Vec<_> = (0..4).map(|_| heist::go(thread::yield_now)).collect();
    thread::yield_now();
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn locks_nest_and_hold_across_all_waits() {
    watched(|| {
        for procs in [1, 2, 4] {
            runtime(procs).run(|| {
                lock_os_thread();
                lock_os_thread();
                let thread = here();
                for round in 0..100 {
                    move_about();
                    if round % 10 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                    assert_eq!(here(), thread);
                }
                unlock_os_thread();
                move_about();
                assert_eq!(here(), thread, "one lock is left");
                unlock_os_thread();
                unlock_os_thread(); // one too many changes nothing
                lock_os_thread();
                let thread = here();
                move_about();
                assert_eq!(here(), thread, "the one too many was not a debt");
                unlock_os_thread();
            });
        }
    });
}

#[test]
fn nobody_else_runs_on_a_locked_thread() {
    watched(|| {
        runtime(2).run(|| {
            let seen = Arc::new(Mutex::new(HashSet::new()));
            let over = Arc::new(AtomicBool::new(false));
            let locked = {
                let over = over.clone();
                let (say, said) = chan::bounded(1);
                let handle = heist::go(move || {
                    lock_os_thread();
                    say.send(here()).unwrap();
                    until(|| over.load(Ordering::SeqCst));
                    move_about();
                    unlock_os_thread();
                });
                (said.recv().unwrap(), handle)
            };
            for _ in 0..20 {
                let seen = seen.clone();
                let others: Vec<_> = (0..50)
                    .map(|_| {
                        let seen = seen.clone();
                        heist::go(move || {
                            for _ in 0..3 {
                                seen.lock().unwrap().insert(here());
                                thread::yield_now();
                            }
                        })
                    })
                    .collect();
                others.into_iter().for_each(|other| other.join().unwrap());
            }
            assert!(!seen.lock().unwrap().contains(&locked.0));
            over.store(true, Ordering::SeqCst);
            locked.1.join().unwrap();
        });
    });
}

/// Counts the threads that have ended, by the destructors of a thread-local.
struct OnThreadEnd(Arc<AtomicUsize>);

impl Drop for OnThreadEnd {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static ON_END: RefCell<Option<OnThreadEnd>> = const { RefCell::new(None) };
}

fn count_the_end_of_this_thread(ends: &Arc<AtomicUsize>) {
    ON_END.set(Some(OnThreadEnd(ends.clone())));
}

#[test]
fn a_locked_goroutine_that_ends_ends_its_thread() {
    watched(|| {
        let runtime = runtime(2);
        let ends = Arc::new(AtomicUsize::new(0));
        for round in 1..=100 {
            let ends_there = ends.clone();
            drop(runtime.go(move || {
                lock_os_thread();
                count_the_end_of_this_thread(&ends_there);
            }));
            until(|| ends.load(Ordering::SeqCst) == round);
        }
        assert_eq!(runtime.run(|| 7), 7);
        let unlocked = ends.clone();
        runtime.run(move || {
            lock_os_thread();
            count_the_end_of_this_thread(&unlocked);
            unlock_os_thread();
        });
        assert!(runtime.stats().threads < 20, "{:?}", runtime.stats());
        assert_eq!(ends.load(Ordering::SeqCst), 100, "an unlocked one leaves its thread");
    });
}

#[test]
fn a_locked_goroutine_that_panics_ends_its_thread() {
    watched(|| {
        let runtime = runtime(2);
        let (pinned, locked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (pinned_ends, locked_ends) = (pinned.clone(), locked.clone());
        let with_guard = runtime.go(move || {
            let _here = pin();
            count_the_end_of_this_thread(&pinned_ends);
            panic!("on purpose, pinned");
        });
        let payload = with_guard.join().unwrap_err();
        assert_eq!(text(&*payload), "on purpose, pinned");
        let without = runtime.go(move || {
            lock_os_thread();
            // Perhaps it is that thread, which does not end because of that one.
            std::mem::forget(ON_END.take());
            count_the_end_of_this_thread(&locked_ends);
            panic!("on purpose, locked");
        });
        assert!(without.join().is_err());
        until(|| locked.load(Ordering::SeqCst) == 1);
        assert_eq!(runtime.run(|| 7), 7);
        assert_eq!(pinned.load(Ordering::SeqCst), 0, "the guard was dropped before the end");
    });
}

#[test]
fn a_pin_holds_while_it_lives() {
    watched(|| {
        thread_local! {
            static LOCAL: RefCell<u32> = const { RefCell::new(0) };
        }
        runtime(4).run(|| {
            let goroutines: Vec<_> = (0..16)
                .map(|_| {
                    heist::go(|| {
                        for _ in 0..20 {
                            let _here = pin();
                            LOCAL.with_borrow_mut(|local| {
                                let before = *local;
                                *local += 1;
                                move_about();
                                assert_eq!(*local, before + 1);
                            });
                        }
                    })
                })
                .collect();
            goroutines.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}

#[test]
fn a_plain_thread_may_call_them() {
    lock_os_thread();
    unlock_os_thread();
    unlock_os_thread();
    drop(pin());
}

#[test]
fn a_locked_and_a_free_goroutine_play() {
    watched(|| {
        for procs in [1, 2] {
            runtime(procs).run(|| {
                let (ping, pings) = chan::bounded(0);
                let (pong, pongs) = chan::bounded(0);
                let partner = heist::go(move || {
                    for ball in pings {
                        pong.send(ball).unwrap();
                    }
                });
                let _here = pin();
                let thread = here();
                for ball in 0..1000 {
                    ping.send(ball).unwrap();
                    assert_eq!(pongs.recv(), Ok(ball));
                    assert_eq!(here(), thread);
                }
                drop(ping);
                partner.join().unwrap();
            });
        }
    });
}

#[test]
fn the_dump_shows_who_is_locked() {
    watched(|| {
        runtime(2).run(|| {
            let (go_on, wait) = chan::bounded::<()>(0);
            let locked = thread::Builder::new().name("locked one".into());
            let locked = locked
                .spawn(move || {
                    let _here = pin();
                    let _ = wait.recv();
                })
                .unwrap();
            let line = |dump: &str| {
                dump.lines().find(|line| line.contains("'locked one'")).unwrap_or("").to_owned()
            };
            until(|| line(&heist::debug::dump()).contains("chan receive"));
            let line = line(&heist::debug::dump());
            assert!(line.contains("[chan receive, locked to thread]"), "{line}");
            drop(go_on);
            locked.join().unwrap();
        });
    });
}

/// Whatever they wait for, a shutdown unwinds them, on their threads.
#[test]
fn a_shutdown_unwinds_locked_goroutines() {
    struct SameThread(std::thread::ThreadId, #[allow(dead_code)] crate::common::Droplet);
    impl Drop for SameThread {
        fn drop(&mut self) {
            assert_eq!(here(), self.0);
        }
    }
    watched(|| {
        for round in 0..20 {
            let drops = Drops::default();
            let started = Arc::new(AtomicUsize::new(0));
            let runtime = heist::Builder::new()
                .max_procs(1 + round % 3)
                .shutdown_timeout(Duration::from_secs(60))
                .build()
                .unwrap();
            let (keep, never) = chan::bounded::<()>(0);
            let wait: [fn(&chan::Receiver<()>); 5] = [
                |never| _ = never.recv(),
                |_| thread::sleep(Duration::from_secs(1000)),
                |never| {
                    let never = never.clone();
                    let _ = heist::go(move || never.recv()).join();
                },
                |never| {
                    // A scope waits, whatever comes, for goroutines that end.
                    thread::scope(|s| {
                        s.spawn(|| never.recv());
                    });
                },
                |_| {
                    loop {
                        thread::yield_now();
                    }
                },
            ];
            for wait in wait {
                let (value, started, never) = (drops.value(), started.clone(), never.clone());
                drop(runtime.go(move || {
                    lock_os_thread();
                    let _value = SameThread(here(), value);
                    started.fetch_add(1, Ordering::SeqCst);
                    wait(&never);
                }));
            }
            until(|| started.load(Ordering::SeqCst) == 5);
            drop(runtime);
            assert_eq!(drops.count(), 5);
            drop(keep);
        }
    });
}

/// A locked goroutine may have changed what new threads would inherit.
#[test]
fn threads_are_not_started_from_a_locked_one() {
    fn cpus(set: Option<usize>) -> usize {
        // SAFETY: zero is an empty set, and the pointers are to a live one.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            if let Some(cpu) = set {
                libc::CPU_SET(cpu, &mut mask);
                libc::sched_setaffinity(0, size_of_val(&mask), &mask);
            }
            libc::sched_getaffinity(0, size_of_val(&mask), &mut mask);
            libc::CPU_COUNT(&mask) as usize
        }
    }
    fn first() -> usize {
        // SAFETY: as above.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&mask), &mut mask);
            (0..1024).find(|cpu| libc::CPU_ISSET(*cpu, &mask)).unwrap()
        }
    }
    watched(|| {
        let all = cpus(None);
        if all == 1 {
            return; // there is nothing to tell them apart by
        }
        let runtime = runtime(4);
        let (say, said) = chan::unbounded();
        drop(runtime.go(move || {
            lock_os_thread();
            assert_eq!(cpus(Some(first())), 1);
            // The first M is this one: all others are started now.
            let others: Vec<_> = (0..8)
                .map(|_| {
                    let say = say.clone();
                    heist::go(move || {
                        for _ in 0..50 {
                            say.send(cpus(None)).unwrap();
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            others.into_iter().for_each(|other| other.join().unwrap());
        }));
        let seen: HashSet<usize> = said.iter().collect();
        assert_eq!(seen, HashSet::from([all]));
    });
}
