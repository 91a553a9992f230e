//! Whose turn it is: safe points, strictness, fairness.

use super::common::{Hogs, watched};
use heist::{Builder, chan, go, no_preempt, runtime, sync, time};
use std::io::{Read, Write};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// One that calls the runtime in a loop, without ever having to wait, lets others
/// run on the only P: they stop it.
#[track_caller]
fn leaves_at<F: FnMut() + Send + 'static>(call: impl Fn() -> F) {
    let line = Location::caller().line();
    // Without a safe point its P is taken from it, soon after it was asked for. That may
    // happen to one that would have heeded the request, too, if the kernel lets sysmon
    // wait in the middle of asking; not each time.
    let leaves = || (0..10).any(|_| leaves_by_itself(call()));
    watched(|| assert!(leaves(), "line {line}: the P was taken each time"));
}

/// Whether it lets others run, and nobody had to take its P.
fn leaves_by_itself(mut call: impl FnMut() + Send + 'static) -> bool {
    Builder::new().max_procs(1).max_runners(0).build().unwrap().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicUsize::new(0));
        let (flag, count) = (stop.clone(), calls.clone());
        let busy = go(move || {
            while !flag.load(Ordering::Relaxed) {
                call();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..3 {
            heist::thread::yield_now();
        }
        let stats = runtime::stats();
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert!(calls.load(Ordering::Relaxed) > 0);
        stats.retakes == 0 && stats.freezes == 0
    })
}

#[test]
fn what_channels_can_do_at_once_is_a_safe_point() {
    leaves_at(|| {
        let (send, receive) = chan::bounded(1);
        move || {
            send.try_send(1).unwrap();
            assert_eq!(receive.try_recv().unwrap(), 1);
        }
    });
    leaves_at(|| {
        let (send, receive) = chan::unbounded();
        move || {
            send.send(1).unwrap();
            assert_eq!(receive.recv(), Ok(1));
        }
    });
    leaves_at(|| {
        let (send, receive) = chan::bounded(1);
        send.send(1).unwrap();
        move || {
            chan::select! {
                recv(receive) -> one => send.send(one.unwrap()).unwrap(),
                default => unreachable!(),
            }
        }
    });
    leaves_at(|| {
        let nothing = chan::never::<()>();
        move || assert!(nothing.try_recv().is_err())
    });
    leaves_at(|| {
        let (send, receive) = chan::bounded(2);
        send.send(1).unwrap();
        move || assert!(!send.is_empty() && !receive.is_full())
    });
    leaves_at(|| {
        let (send, receive) = chan::bounded(1);
        send.send(1).unwrap();
        move || {
            let mut select = chan::Select::new();
            select.recv(&receive);
            assert_eq!(select.try_ready(), Ok(0));
        }
    });
}

#[test]
fn locks_and_the_like_that_are_free_are_safe_points() {
    leaves_at(|| {
        let mutex = sync::Mutex::new(0);
        move || *mutex.lock().unwrap() += 1
    });
    leaves_at(|| {
        let mutex = sync::Mutex::new(0);
        move || *mutex.try_lock().unwrap() += 1
    });
    leaves_at(|| {
        let lock = sync::RwLock::new(0);
        move || assert_eq!(*lock.read().unwrap(), 0)
    });
    leaves_at(|| {
        let lock = sync::RwLock::new(0);
        move || *lock.write().unwrap() += 1
    });
    leaves_at(|| {
        let semaphore = sync::Semaphore::new(1);
        move || drop(semaphore.acquire())
    });
    leaves_at(|| {
        let semaphore = sync::Semaphore::new(1);
        move || assert_eq!(semaphore.available_permits(), 1)
    });
    leaves_at(|| || sync::Once::new().call_once(|| ()));
    leaves_at(|| {
        let barrier = sync::Barrier::new(1);
        move || assert!(barrier.wait().is_leader())
    });
    leaves_at(|| {
        let group = sync::WaitGroup::new();
        move || {
            group.add(1);
            group.done();
            group.wait();
        }
    });
    leaves_at(|| {
        let condvar = sync::Condvar::new();
        move || condvar.notify_one()
    });
}

#[test]
fn calls_about_others_and_the_time_are_safe_points() {
    // Also because whoever has started some hundreds lets them run.
    leaves_at(|| || drop(go(|| ())));
    leaves_at(|| || heist::thread::current().unpark());
    leaves_at(|| || time::sleep(Duration::ZERO));
    leaves_at(|| || assert!(time::Timer::after(Duration::from_secs(60), || ()).stop()));
    // Most of the time it is in no call, where its P would be taken.
    leaves_at(|| {
        || {
            (0..1000).for_each(|_| std::hint::spin_loop());
            assert_eq!(heist::syscall(|| 1), 1);
        }
    });
    leaves_at(|| {
        let (mut one, mut other) = heist::net::UnixStream::pair().unwrap();
        move || {
            one.write_all(b"x").unwrap();
            other.read_exact(&mut [0]).unwrap();
        }
    });
}

/// Whoever heeds a request waits behind all others of the runtime, and not only behind those
/// of its P.
#[test]
fn who_leaves_at_a_safe_point_goes_to_the_tail_of_the_global_queue() {
    let turns_of_others = || {
        let (turns, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        // They take turns on the P. Behind them alone it would come after one of each.
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (turns, stop) = (turns.clone(), stop.clone());
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        turns.fetch_add(1, Ordering::Relaxed);
                        heist::thread::yield_now();
                    }
                })
            })
            .collect();
        heist::thread::yield_now();
        let mutex = sync::Mutex::new(());
        let before = turns.load(Ordering::Relaxed);
        while turns.load(Ordering::Relaxed) == before {
            drop(mutex.lock());
        }
        let between = turns.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        (between, runtime::stats().retakes)
    };
    watched(|| {
        let mut seen = Vec::new();
        let run =
            || Builder::new().max_procs(1).max_runners(0).build().unwrap().run(turns_of_others);
        // As in `leaves_at`, not each time.
        let global = (0..10).any(|_| {
            seen.push(run());
            matches!(seen.last(), Some((3.., 0)))
        });
        assert!(global, "turns of others, and retakes: {seen:?}");
    });
}

/// However long it lasts.
#[test]
fn no_preempt_keeps_the_p() {
    watched(|| {
        Builder::new().max_procs(1).build().unwrap().run(|| {
            let others = Arc::new(AtomicUsize::new(0));
            let count = others.clone();
            let other = go(move || {
                for _ in 0..3 {
                    count.fetch_add(1, Ordering::Relaxed);
                    heist::thread::yield_now();
                }
            });
            let before = runtime::stats().retakes;
            no_preempt(|| {
                // Several slices of the thread's own time.
                let mut x = 1u64;
                for _ in 0..if cfg!(debug_assertions) { 5_000_000 } else { 100_000_000 } {
                    x = std::hint::black_box(x.rotate_left(7) ^ 0x9e37_79b9);
                }
                assert_eq!(others.load(Ordering::Relaxed), 0);
                assert_eq!(runtime::stats().retakes, before);
            });
            other.join().unwrap();
        });
    });
}

/// How many threads of this process with such a name run, or could.
pub(super) fn busy_threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter(|stat| {
            let (head, rest) = stat.rsplit_once(") ").unwrap_or((stat, ""));
            head.contains(name) && rest.starts_with('R')
        })
        .count()
}

const PROCS: usize = 2;
const HOGS: usize = 12;

/// Many hogs on few Ps: no more compute at a time than may, and all get their
/// share. Returns how many computed at a time, typically.
fn hogs_share(name: &str, runners: usize) -> Result<usize, String> {
    let run = || {
        let hogs = Hogs::start(HOGS, || {
            (0..1000).for_each(|i| {
                std::hint::black_box(i);
            });
        });
        let mut busy = Vec::new();
        let freezes = || runtime::stats().freezes as usize;
        while freezes() < 2 * HOGS {
            time::sleep(Duration::from_millis(1)); // all have had a turn
        }
        let before = hogs.work();
        while freezes() < 12 * HOGS || busy.len() < 20 {
            time::sleep(Duration::from_millis(5));
            busy.push(busy_threads(&format!("{name}-m")));
        }
        let mut work: Vec<usize> = hogs.work();
        work.iter_mut().zip(before).for_each(|(all, before)| *all -= before);
        hogs.stop();
        work.sort_unstable();
        busy.sort_unstable();
        // The one that looks is one of the busy ones; and one that is being stopped goes
        // on until the kernel runs it next.
        let typical = busy[busy.len() / 2];
        if typical > PROCS + runners + 2 {
            return Err(format!("{busy:?} threads compute on {PROCS} Ps beside {runners}"));
        }
        // Nobody starves. How equal the shares are shows after more turns
        // (`sched::freeze` has that test).
        if work[0] * 5 < work[HOGS / 2] || work[HOGS - 1] > work[HOGS / 2] * 5 {
            return Err(format!("{work:?} was done"));
        }
        Ok(typical)
    };
    let mut builder = Builder::new().max_procs(PROCS).thread_name(name);
    if runners != PROCS {
        builder = builder.max_runners(runners); // as many as Ps is the default
    }
    watched(|| builder.build().unwrap().run(run))
}

/// In strict mode fewer compute than if some may go on without a P.
fn strict_and_lax() -> Result<(), String> {
    let (strict, lax) = (hogs_share("strict", 0)?, hogs_share("lax", PROCS)?);
    if strict < lax { Ok(()) } else { Err(format!("{strict} in strict mode, {lax} otherwise")) }
}

/// Not each time: on a machine with much else to do, sysmon takes a thread that does not
/// get to run for one that waits for what a stopped one has, and lets some go.
#[test]
fn hogs_share_fairly() {
    let mut said = Vec::new();
    let fair = (0..5).any(|_| strict_and_lax().map_err(|why| said.push(why)).is_ok());
    assert!(fair, "{said:#?}");
}

/// Goroutines that wake each other inherit the slice of 10 ms, pair after pair; one whose time
/// has come does not wait for all of them. (It would take minutes.)
#[test]
fn a_sleeper_goes_before_pairs_that_wake_each_other() {
    const PAIRS: usize = 8;
    watched(|| {
        Builder::new().max_procs(1).build().unwrap().run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let pairs: Vec<_> = (0..PAIRS)
                .map(|_| {
                    let stop = stop.clone();
                    let (ball, hit) = chan::bounded(0);
                    let (back, returned) = chan::bounded(0);
                    let other = go(move || hit.iter().for_each(|()| back.send(()).unwrap()));
                    go(move || {
                        while !stop.load(Ordering::Relaxed) {
                            ball.send(()).unwrap();
                            returned.recv().unwrap();
                        }
                        drop(ball);
                        other.join().unwrap();
                    })
                })
                .collect();
            // Some alone, and some that are due together.
            for _ in 0..500 {
                time::sleep(Duration::from_micros(100));
            }
            let crowd = |_| go(|| (0..500).for_each(|_| time::sleep(Duration::from_micros(100))));
            let crowd: Vec<_> = (0..4).map(crowd).collect();
            crowd.into_iter().for_each(|one| one.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            pairs.into_iter().for_each(|pair| pair.join().unwrap());
        });
    });
}
