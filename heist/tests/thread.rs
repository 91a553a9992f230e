//! `heist::thread` keeps the promises of `std::thread`'s documentation, on
//! goroutines and on plain OS threads; `goroutine_local!` and `heist::stack`
//! keep their own.

use heist::{Runtime, thread};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Fewer repetitions in a debug build, where each costs ten times as much.
const fn many(release: usize) -> usize {
    if cfg!(debug_assertions) { release / 10 } else { release }
}

/// Runs a test; one that hangs ends the process and says where everybody is.
fn watched<T>(test: impl FnOnce() -> T) -> T {
    let (over, wait) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        if wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "{name} hangs. Goroutines:\n");
            let _ = stderr.write_all(heist::debug::dump().as_bytes());
            std::process::abort();
        }
    });
    let value = test();
    drop(over);
    value
}

fn runtime(procs: usize) -> Runtime {
    heist::Builder::new().max_procs(procs).build().unwrap()
}

/// Yields until something has happened.
fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

/// Counts how often values of it are dropped.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicUsize>);

impl Drops {
    fn value(&self) -> Droplet {
        Droplet(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Droplet(Arc<AtomicUsize>);

impl Drop for Droplet {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("neither &str nor String")
}

// ---- spawn and join ---------------------------------------------------------

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

/// Recurses until at least `goal` bytes of stack are in use below `top`.
/// Returns the number of levels.
#[inline(never)]
fn dig(top: usize, goal: usize) -> usize {
    let mut page = [0u8; 2048];
    let here = std::hint::black_box(&mut page).as_ptr().addr();
    let below = if top.saturating_sub(here) >= goal { 0 } else { dig(top, goal) };
    // Used after the call, so that it cannot be a loop.
    page[below % page.len()] = 1;
    below + usize::from(std::hint::black_box(&page).contains(&1))
}

fn dig_from_here(goal: usize) -> usize {
    let top = 0u8;
    dig(std::hint::black_box(&raw const top).addr(), goal)
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

// ---- detached, and dropped exactly once ---------------------------------------

#[test]
fn a_dropped_handle_lets_its_goroutine_go_on() {
    let check = || {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let ran = ran.clone();
            drop(thread::spawn(move || {
                thread::yield_now();
                ran.fetch_add(1, Ordering::SeqCst);
            }));
        }
        until(|| ran.load(Ordering::SeqCst) == 100);
    };
    watched(|| {
        check();
        heist::run(check);
    });
}

/// What a goroutine may leave behind.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Small,
    Boxed,
    Panic,
    Slow,
}

const LEAVES: [Leaves; 4] = [Leaves::Small, Leaves::Boxed, Leaves::Panic, Leaves::Slow];

/// A result whose drop needs the scheduler.
struct Slow(#[allow(dead_code)] Droplet);

impl Drop for Slow {
    fn drop(&mut self) {
        thread::yield_now();
    }
}

/// A handle whatever it is of.
trait Handle: Send {
    fn join(self: Box<Self>);
    fn is_finished(&self) -> bool;
}

impl<T: Send> Handle for thread::JoinHandle<T> {
    fn join(self: Box<Self>) {
        drop((*self).join());
    }

    fn is_finished(&self) -> bool {
        thread::JoinHandle::is_finished(self)
    }
}

fn leaving(what: Leaves, drops: &Drops, runs_for: usize) -> Box<dyn Handle> {
    let droplet = drops.value();
    let run = move || (0..runs_for).for_each(|_| std::hint::spin_loop());
    match what {
        Leaves::Small => Box::new(thread::spawn(move || {
            run();
            droplet
        })),
        Leaves::Boxed => Box::new(thread::spawn(move || {
            run();
            (droplet, [0u8; 500])
        })),
        // Without a message: there are thousands.
        Leaves::Panic => Box::new(thread::spawn(move || {
            run();
            resume_unwind(Box::new(droplet))
        })),
        Leaves::Slow => Box::new(thread::spawn(move || {
            run();
            Slow(droplet)
        })),
    }
}

/// More Ps than cores: goroutines are interrupted anywhere.
const CROWDED: usize = 8;

/// Calls `f` on a runtime and ends it: then everything has been dropped that
/// ever will be.
fn on_a_runtime(procs: usize, f: impl FnOnce() + Send) {
    let runtime = runtime(procs);
    runtime.run(|| {
        f();
        until(|| heist::runtime::num_goroutines() == 1);
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_before_the_start() {
    watched(|| {
        for leaves in LEAVES {
            let drops = Drops::default();
            // One P: what is spawned starts when the spawner leaves.
            on_a_runtime(1, || (0..200).for_each(|_| drop(leaving(leaves, &drops, 0))));
            assert_eq!(drops.count(), 200, "{leaves:?}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_after_the_end() {
    watched(|| {
        for (procs, leaves) in [1, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..100 {
                    let handle = leaving(leaves, &drops, 0);
                    until(|| handle.is_finished());
                    assert_eq!(drops.count(), i, "{leaves:?}: the handle keeps it");
                    drop(handle);
                    assert_eq!(drops.count(), i + 1, "{leaves:?}: and drops it itself");
                }
            });
            assert_eq!(drops.count(), 100, "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_it_is_joined() {
    watched(|| {
        for (procs, leaves) in [1, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..many(2000) {
                    leaving(leaves, &drops, i % 50).join();
                    assert_eq!(drops.count(), i + 1, "{leaves:?}");
                }
            });
            assert_eq!(drops.count(), many(2000), "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_at_any_moment() {
    let repetitions = many(10_000);
    watched(|| {
        for (procs, leaves) in [1, 2, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..repetitions {
                    let handle = leaving(leaves, &drops, i % 97);
                    // Sweeps over the end of the goroutine on another P.
                    for _ in 0..i % 331 {
                        std::hint::spin_loop();
                    }
                    if i % 13 == 0 {
                        thread::yield_now();
                    }
                    drop(handle);
                }
            });
            assert_eq!(drops.count(), repetitions, "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_on_a_plain_thread() {
    let repetitions = many(10_000);
    watched(|| {
        for leaves in LEAVES {
            let drops = Drops::default();
            let (send, receive) = mpsc::channel::<Box<dyn Handle>>();
            let dropper = std::thread::spawn(move || {
                for (i, handle) in receive.into_iter().enumerate() {
                    match i % 3 {
                        0 => handle.join(),
                        _ => drop(handle),
                    }
                }
            });
            on_a_runtime(CROWDED, || {
                for i in 0..repetitions {
                    send.send(leaving(leaves, &drops, i % 97)).unwrap();
                }
                drop(send);
            });
            dropper.join().unwrap();
            assert_eq!(drops.count(), repetitions, "{leaves:?}");
        }
    });
}

#[test]
fn captures_are_dropped_when_the_goroutine_is_done_with_them() {
    watched(|| {
        let drops = Drops::default();
        let (kept, moved) = (drops.value(), drops.value());
        let handle = thread::spawn(move || {
            drop(moved);
            let _kept = &kept;
        });
        handle.join().unwrap();
        assert_eq!(drops.count(), 2);
        let unwound = drops.value();
        let handle = thread::spawn(move || {
            let _unwound = unwound;
            resume_unwind(Box::new(()))
        });
        assert!(handle.join().is_err());
        assert_eq!(drops.count(), 3);
    });
}

// ---- scope ---------------------------------------------------------------------

/// Each of these holds on a plain thread, on one P and on several.
fn everywhere(check: impl Fn() + Sync) {
    watched(|| {
        check();
        runtime(1).run(&check);
        runtime(4).run(&check);
    });
}

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

// ---- park and unpark -------------------------------------------------------------

#[test]
fn an_unpark_before_the_park_is_kept() {
    everywhere(|| {
        thread::current().unpark();
        thread::park();
        // Also for one that has not begun.
        let parker = thread::spawn(thread::park);
        parker.thread().unpark();
        parker.join().unwrap();
    });
}

#[test]
fn two_unparks_are_one_token() {
    watched(|| {
        // One P: what is spawned runs only when the spawner sleeps.
        runtime(1).run(|| {
            let me = thread::current();
            for _ in 0..100 {
                (0..3).for_each(|_| me.unpark());
                thread::park();
                let ran = Arc::new(AtomicBool::new(false));
                let waker = thread::spawn({
                    let (me, ran) = (me.clone(), ran.clone());
                    move || {
                        ran.store(true, Ordering::SeqCst);
                        me.unpark();
                    }
                });
                thread::park();
                assert!(ran.load(Ordering::SeqCst), "a second token was there");
                waker.join().unwrap();
            }
        });
    });
}

#[test]
fn unpark_of_an_ended_goroutine_reaches_nobody() {
    watched(|| {
        // One P, so that the blocks of the ended are used for the next ones.
        runtime(1).run(|| {
            let ended: Vec<thread::Thread> = (0..100)
                .map(|_| {
                    let handle = thread::spawn(|| ());
                    let thread = handle.thread().clone();
                    handle.join().unwrap();
                    thread
                })
                .collect();
            let woken = Arc::new(AtomicUsize::new(0));
            let parked: Vec<_> = (0..300)
                .map(|_| {
                    let woken = woken.clone();
                    thread::spawn(move || {
                        thread::park();
                        woken.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            // Once before they begin, then while they sleep.
            for _ in 0..10 {
                ended.iter().for_each(thread::Thread::unpark);
                thread::yield_now();
            }
            assert_eq!(woken.load(Ordering::SeqCst), 0);
            parked.iter().for_each(|handle| handle.thread().unpark());
            parked.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(woken.load(Ordering::SeqCst), 300);
        });
    });
}

#[test]
fn unparks_of_ended_goroutines_race_with_their_successors() {
    watched(|| {
        let runtime = runtime(4);
        let stop = AtomicBool::new(false);
        let targets: Mutex<Vec<thread::Thread>> = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let targets = targets.lock().unwrap().clone();
                        targets.iter().for_each(thread::Thread::unpark);
                    }
                });
            }
            for i in 0..many(20_000) {
                // It waits for a condition, as users of park must.
                let open = Arc::new(AtomicBool::new(false));
                let gate = open.clone();
                let handle = runtime.go(move || {
                    while !gate.load(Ordering::SeqCst) {
                        thread::park();
                    }
                    i
                });
                let thread = handle.thread().clone();
                {
                    let mut targets = targets.lock().unwrap();
                    if targets.len() > 20 {
                        targets.remove(0);
                    }
                    targets.push(thread.clone());
                }
                open.store(true, Ordering::SeqCst);
                thread.unpark();
                assert_eq!(handle.join().unwrap(), i);
            }
            stop.store(true, Ordering::SeqCst);
        });
    });
}

/// `turns` strictly alternating steps of two sides, each woken by the other.
struct PingPong {
    turn: AtomicUsize,
    turns: usize,
    sides: [std::sync::OnceLock<thread::Thread>; 2],
}

impl PingPong {
    fn new(turns: usize) -> Arc<PingPong> {
        Arc::new(PingPong { turn: AtomicUsize::new(0), turns, sides: Default::default() })
    }

    /// Both sides have said who they are before either begins.
    fn play(&self, side: usize) -> usize {
        let me = thread::current();
        self.sides[side].set(me).expect("a side is taken once");
        until(|| self.sides[1 - side].get().is_some());
        let other = self.sides[1 - side].get().unwrap();
        let mut steps = 0;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn >= self.turns {
                other.unpark();
                return steps;
            }
            if turn % 2 == side {
                steps += 1;
                self.turn.store(turn + 1, Ordering::Release);
                other.unpark();
            } else {
                thread::park();
            }
        }
    }
}

#[test]
fn goroutines_play_ping_pong_by_park_and_unpark() {
    const TURNS: usize = 200_000;
    watched(|| {
        for procs in [1, 2] {
            let runtime = runtime(procs);
            let game = PingPong::new(TURNS);
            let (ping, pong) = (game.clone(), game);
            let ping = runtime.go(move || ping.play(0));
            let pong = runtime.go(move || pong.play(1));
            assert_eq!(ping.join().unwrap() + pong.join().unwrap(), TURNS);
        }
    });
}

#[test]
fn a_goroutine_and_a_plain_thread_play_ping_pong() {
    let turns = many(20_000);
    watched(|| {
        let runtime = runtime(2);
        let game = PingPong::new(turns);
        let ping = game.clone();
        let ping = runtime.go(move || ping.play(0));
        let pong = std::thread::spawn(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), turns);
    });
}

#[test]
fn goroutines_of_two_runtimes_play_ping_pong() {
    let turns = many(20_000);
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        let game = PingPong::new(turns);
        let ping = game.clone();
        let ping = one.go(move || ping.play(0));
        let pong = two.go(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), turns);
    });
}

#[test]
fn plain_threads_park_and_unpark_each_other() {
    watched(|| {
        let game = PingPong::new(1000);
        let ping = game.clone();
        let ping = std::thread::spawn(move || ping.play(0));
        let pong = std::thread::spawn(move || game.play(1));
        assert_eq!(ping.join().unwrap() + pong.join().unwrap(), 1000);
    });
}

#[test]
fn many_unparkers_wake_one_parker_for_every_message() {
    watched(|| {
        for procs in [1, 4] {
            let runtime = runtime(procs);
            let (inbox, sent) = (AtomicUsize::new(0), many(20_000));
            let received = runtime.run(|| {
                let me = thread::current();
                thread::scope(|s| {
                    for _ in 0..4 {
                        let (me, inbox) = (&me, &inbox);
                        s.spawn(move || {
                            for i in 0..sent {
                                inbox.fetch_add(1, Ordering::Release);
                                me.unpark();
                                if i % 7 == 0 {
                                    thread::yield_now();
                                }
                            }
                        });
                    }
                    let mut received = 0;
                    while received < 4 * sent {
                        match inbox.swap(0, Ordering::Acquire) {
                            0 => thread::park(),
                            n => received += n,
                        }
                    }
                    received
                })
            });
            assert_eq!(received, 4 * sent);
        }
    });
}

// ---- identity ----------------------------------------------------------------------

#[test]
fn a_goroutine_stays_itself_across_yields() {
    watched(|| {
        let runtime = runtime(4);
        runtime.run(|| {
            let handles: Vec<_> = (0..32)
                .map(|i| {
                    let name = format!("g{i}");
                    let named = thread::Builder::new().name(name.clone());
                    named
                        .spawn(move || {
                            let id = thread::current().id();
                            let goroutine = heist::runtime::goroutine_id();
                            for _ in 0..many(5000) {
                                thread::yield_now();
                                assert_eq!(thread::current().id(), id);
                                assert_eq!(heist::runtime::goroutine_id(), goroutine);
                            }
                            assert_eq!(thread::current().name(), Some(&*name));
                            id
                        })
                        .unwrap()
                })
                .collect();
            for handle in handles {
                let id = handle.thread().id();
                assert_eq!(handle.join().unwrap(), id);
            }
        });
    });
}

#[test]
fn ids_are_never_used_twice() {
    watched(|| {
        let ids = Mutex::new(HashSet::new());
        let take = |id| assert!(ids.lock().unwrap().insert(id), "{id:?} twice");
        let (one, four) = (runtime(1), runtime(4));
        take(thread::current().id());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| take(thread::current().id()));
            }
            for runtime in [&one, &four] {
                s.spawn(|| {
                    runtime.run(|| {
                        for _ in 0..many(100) {
                            let handles: Vec<_> = (0..100)
                                .map(|_| thread::spawn(|| thread::current().id()))
                                .collect();
                            for handle in handles {
                                take(handle.join().unwrap());
                            }
                        }
                    });
                });
            }
        });
        drop((one, four));
        // Nor by another runtime, later.
        take(runtime(1).run(|| thread::current().id()));
        assert_eq!(ids.lock().unwrap().len(), 1 + 3 + 2 * 100 * many(100) + 1);
    });
}

#[test]
fn a_plain_thread_is_itself() {
    watched(|| {
        let named = std::thread::Builder::new().name("plain".into());
        let handle = named.spawn(|| {
            let me = thread::current();
            assert_eq!(me.id(), thread::current().id());
            assert_eq!(me.name(), Some("plain"));
            assert_eq!(heist::runtime::goroutine_id(), None);
            // A goroutine that it runs is somebody else.
            assert_ne!(heist::run(|| thread::current().id()), me.id());
            me.id()
        });
        assert_ne!(handle.unwrap().join().unwrap(), thread::current().id());
    });
}

#[test]
fn available_parallelism_is_that_of_std() {
    let std = std::thread::available_parallelism().unwrap();
    assert_eq!(thread::available_parallelism().unwrap(), std);
    assert_eq!(heist::run(|| thread::available_parallelism().unwrap()), std);
}

#[test]
fn yield_now_lets_others_run_and_is_harmless_on_a_plain_thread() {
    watched(|| {
        thread::yield_now();
        runtime(1).run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..10 {
                let ran = ran.clone();
                drop(thread::spawn(move || ran.fetch_add(1, Ordering::SeqCst)));
            }
            thread::yield_now();
            assert_eq!(ran.load(Ordering::SeqCst), 10, "those that were runnable had their turn");
        });
    });
}

#[test]
fn panicking_is_true_for_the_goroutine_that_unwinds_and_for_no_other() {
    struct Ask(Arc<AtomicBool>, Arc<AtomicBool>);
    impl Drop for Ask {
        fn drop(&mut self) {
            assert!(thread::panicking());
            // Others run meanwhile, on the one P that there is.
            let other = thread::spawn(thread::panicking).join().unwrap();
            assert!(thread::panicking(), "still, after a wait");
            self.0.store(other, Ordering::SeqCst);
            self.1.store(true, Ordering::SeqCst);
        }
    }
    watched(|| {
        let runtime = runtime(1);
        let (other, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let ask = Ask(other.clone(), asked.clone());
        let unwound = runtime.go(move || {
            let _ask = ask;
            resume_unwind(Box::new(()))
        });
        assert!(unwound.join().is_err());
        assert!(asked.load(Ordering::SeqCst));
        assert!(!other.load(Ordering::SeqCst));
        let after = runtime.run(|| {
            let caught = catch_unwind(|| resume_unwind(Box::new(()))).is_err();
            (caught, thread::panicking())
        });
        assert_eq!(after, (true, false));
        assert!(!thread::panicking());
    });
}

// ---- goroutine_local! -----------------------------------------------------------------

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
            assert!(
                ["value 6", "value 5", "error already destroyed"].contains(&&*log[0]),
                "{log:?}"
            );
            assert_eq!(log[1], "child 7");
        });
    }

    static REBORN: AtomicUsize = AtomicUsize::new(0);

    /// Makes a new one of itself whenever it is dropped.
    struct Phoenix;

    impl Drop for Phoenix {
        fn drop(&mut self) {
            if REBORN.fetch_add(1, Ordering::SeqCst) < 10_000 {
                let _ = PHOENIX.try_with(|_| ());
            }
        }
    }

    heist::goroutine_local! {
        static PHOENIX: Phoenix = Phoenix;
    }

    #[test]
    fn a_value_that_is_reborn_in_its_own_destructor_does_not_keep_its_goroutine_alive() {
        watched(|| {
            let handle = thread::spawn(|| PHOENIX.with(|_| ()));
            handle.join().unwrap();
            // std humours five rounds; what matters is that it gives up.
            let reborn = REBORN.load(Ordering::SeqCst);
            assert!((1..10_000).contains(&reborn), "{reborn}");
        });
    }
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

// ---- stacks -------------------------------------------------------------------------------

/// Recursion through `ensure`.
fn count(n: u32) -> u64 {
    heist::stack::ensure(8 << 10, || if n == 0 { 0 } else { 1 + count(n - 1) })
}

#[test]
fn a_recursion_through_ensure_goes_a_million_deep() {
    watched(|| {
        assert_eq!(runtime(1).run(|| count(1_000_000)), 1_000_000);
    });
}

#[test]
fn a_recursion_through_ensure_goes_deep_on_a_plain_thread() {
    watched(|| {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        assert_eq!(small.spawn(|| count(100_000)).unwrap().join().unwrap(), 100_000);
    });
}

#[test]
fn goroutines_yield_and_park_on_their_segments() {
    fn deep(n: u32, other: &thread::Thread) -> u32 {
        heist::stack::ensure(16 << 10, || {
            if n.is_multiple_of(100) {
                thread::yield_now();
                thread::current().unpark();
                thread::park();
                other.unpark();
            }
            if n == 0 { 0 } else { 1 + deep(n - 1, other) }
        })
    }
    watched(|| {
        runtime(4).run(|| {
            let other = &thread::current();
            thread::scope(|s| {
                let handles: Vec<_> =
                    (0..16).map(|_| s.spawn(move || deep(many(30_000) as u32, other))).collect();
                for handle in handles {
                    assert_eq!(handle.join().unwrap() as usize, many(30_000));
                }
            });
        });
    });
}

#[test]
fn a_panic_crosses_segments_and_drops_what_is_on_them() {
    fn deep(n: u32, drops: &Drops) {
        heist::stack::ensure(32 << 10, || {
            let _droplet = drops.value();
            if n == 0 {
                resume_unwind(Box::new("from the depth"));
            }
            deep(n - 1, drops);
        });
    }
    let check = || {
        let drops = Drops::default();
        for i in 1..=3 {
            let panic = catch_unwind(AssertUnwindSafe(|| deep(5000, &drops))).unwrap_err();
            assert_eq!(text(&*panic), "from the depth");
            assert_eq!(drops.count(), i * 5001);
        }
        // The stack is what it was.
        assert_eq!(count(1000), 1000);
    };
    watched(|| {
        runtime(2).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn ensure_gives_what_it_was_asked_for() {
    let check = || {
        for bytes in [1, 1 << 10, 100 << 10, 1 << 20, 40 << 20] {
            let left = heist::stack::ensure(bytes, heist::stack::remaining);
            // Less than a page goes to the call itself.
            assert!(left + 4096 >= bytes, "{left} of {bytes}");
            let used = bytes.saturating_sub(8 << 10);
            assert!(heist::stack::ensure(bytes, || dig_from_here(used)) >= 1);
        }
    };
    watched(|| {
        runtime(2).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn an_absurd_ensure_panics_and_leaves_the_stack_usable() {
    let check = || {
        let panic = catch_unwind(|| heist::stack::ensure(usize::MAX, || 1)).unwrap_err();
        assert!(text(&*panic).contains("stack"), "{}", text(&*panic));
        assert_eq!(heist::stack::ensure(1 << 20, || 2), 2);
    };
    watched(|| {
        runtime(1).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn remaining_shrinks_with_use_and_comes_back() {
    #[inline(never)]
    fn below() -> usize {
        let mut block = [0u8; 16 << 10];
        std::hint::black_box(&mut block);
        let left = heist::stack::remaining();
        std::hint::black_box(&mut block);
        left
    }
    let check = || {
        let before = heist::stack::remaining();
        let deeper = below();
        let after = heist::stack::remaining();
        assert!(before >= deeper + (16 << 10), "{before}, then {deeper}");
        assert!(before.abs_diff(after) < 4096, "{before}, then {after}");
    };
    watched(|| {
        runtime(1).run(|| {
            let left = heist::stack::remaining();
            assert!(left <= heist::runtime::DEFAULT_STACK_SIZE, "{left}");
            assert!(left >= heist::runtime::DEFAULT_STACK_SIZE / 2, "{left}");
            check();
            heist::stack::ensure(1 << 20, check);
            check();
        });
        let known = std::thread::Builder::new().stack_size(1 << 20);
        let on_thread = known.spawn(move || {
            let left = heist::stack::remaining();
            // The C library may give it a larger one that it had left over.
            assert!((512 << 10..32 << 20).contains(&left), "{left}");
            check();
        });
        on_thread.unwrap().join().unwrap();
    });
}
