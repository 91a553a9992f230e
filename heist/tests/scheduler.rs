//! What the scheduler promises: parallelism, fairness, nobody forgotten. From
//! Go's scheduler tests as a list of behaviours, in our own words.

use heist::{Runtime, thread};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

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

/// Tests that keep all cores busy wait for each other: together they would
/// finish as well, but late.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Computes until something has happened: keeps its P.
fn spin_until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        std::hint::spin_loop();
    }
}

// ---- parallelism -----------------------------------------------------------------

/// One of `n` that pass a counter on, each without ever leaving its P.
fn pass_on(counter: &AtomicUsize, i: usize, n: usize, laps: usize) {
    for lap in 0..laps {
        spin_until(|| counter.load(Ordering::Acquire) == lap * n + i);
        counter.store(lap * n + i + 1, Ordering::Release);
    }
}

/// Laps: with more Ps than cores each pass may take the kernel a time slice.
const LAPS: [(usize, usize); 2] = [(2, 500), (4, 15)];

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter = Arc::new(AtomicUsize::new(0));
            // Spawned by one of them, which needs a P itself.
            runtime(n).run(|| {
                let others: Vec<_> = (1..n)
                    .map(|i| {
                        let counter = counter.clone();
                        thread::spawn(move || pass_on(&counter, i, n, laps))
                    })
                    .collect();
                pass_on(&counter, 0, n, laps);
                others.into_iter().for_each(|handle| handle.join().unwrap());
            });
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_when_each_spawns_the_next() {
    fn chain(counter: &'static AtomicUsize, i: usize, n: usize, laps: usize) {
        let next = (i + 1 < n).then(|| thread::spawn(move || chain(counter, i + 1, n, laps)));
        pass_on(counter, i, n, laps);
        if let Some(next) = next {
            next.join().unwrap();
        }
    }
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter: &'static AtomicUsize = Box::leak(Box::default());
            runtime(n).run(|| chain(counter, 0, n, laps));
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_when_they_come_from_outside() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let runtime = runtime(n);
            let counter = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..n)
                .map(|i| {
                    let counter = counter.clone();
                    runtime.go(move || pass_on(&counter, i, n, laps))
                })
                .collect();
            all.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_after_they_were_parked() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter = AtomicUsize::new(0);
            let counter = &counter;
            runtime(n).run(|| {
                thread::scope(|s| {
                    let others: Vec<_> = (1..n)
                        .map(|i| {
                            s.spawn(move || {
                                thread::park();
                                pass_on(counter, i, n, laps);
                            })
                        })
                        .collect();
                    others.iter().for_each(|handle| handle.thread().unpark());
                    pass_on(counter, 0, n, laps);
                });
            });
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn an_idle_p_steals_from_a_loaded_one() {
    let _alone = alone();
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            // A batch could be done before the second thread gets a core.
            while heist::runtime::stats().steals == 0 {
                thread::scope(|s| {
                    for _ in 0..200 {
                        s.spawn(|| (0..5000).for_each(|_| std::hint::spin_loop()));
                    }
                });
            }
        });
        let stats = runtime.stats();
        assert!(stats.stolen >= stats.steals, "{stats:?}");
    });
}

// ---- a runnext whose waker computes on ---------------------------------------------

/// A's side: makes B ready, through runnext, and computes until B has run.
fn wake_and_compute(b: &thread::Thread, asked: &AtomicUsize, answered: &AtomicUsize) {
    let n = asked.fetch_add(1, Ordering::SeqCst) + 1;
    b.unpark();
    spin_until(|| answered.load(Ordering::SeqCst) >= n);
}

/// B's side: answers until it has been asked `times`.
fn answer(asked: &AtomicUsize, answered: &AtomicUsize, a: Option<&thread::Thread>, times: usize) {
    while answered.load(Ordering::SeqCst) < times {
        if answered.load(Ordering::SeqCst) < asked.load(Ordering::SeqCst) {
            answered.fetch_add(1, Ordering::SeqCst);
            if let Some(a) = a {
                a.unpark();
            }
        } else {
            thread::park();
        }
    }
}

#[test]
fn a_goroutine_made_ready_runs_elsewhere_while_its_waker_computes() {
    const TIMES: usize = 50;
    let _alone = alone();
    watched(|| {
        let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let runtime = runtime(2);
        runtime.run(|| {
            thread::scope(|s| {
                let b = s.spawn(|| answer(&asked, &answered, None, TIMES));
                for _ in 0..TIMES {
                    wake_and_compute(b.thread(), &asked, &answered);
                }
            });
        });
        assert_eq!(answered.load(Ordering::SeqCst), TIMES);
    });
}

#[test]
fn a_goroutine_made_ready_runs_elsewhere_even_if_its_waker_never_computed_before() {
    const QUICK: usize = 1000;
    let _alone = alone();
    watched(|| {
        let runtime = runtime(2);
        for _ in 0..5 {
            let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
            runtime.run(|| {
                let a = thread::current();
                thread::scope(|s| {
                    let b = s.spawn(|| answer(&asked, &answered, Some(&a), QUICK + 1));
                    // A thousand times, the waker leaves at once.
                    for n in 1..=QUICK {
                        asked.fetch_add(1, Ordering::SeqCst);
                        b.thread().unpark();
                        while answered.load(Ordering::SeqCst) < n {
                            thread::park();
                        }
                    }
                    wake_and_compute(b.thread(), &asked, &answered);
                });
            });
            assert_eq!(answered.load(Ordering::SeqCst), QUICK + 1);
        }
    });
}

#[test]
fn a_spawned_goroutine_runs_elsewhere_while_its_spawner_computes() {
    let _alone = alone();
    watched(|| {
        runtime(2).run(|| {
            for round in 0..50 {
                // Spawners that leave at once teach that no help is needed.
                for _ in 0..round * 4 {
                    thread::spawn(|| ()).join().unwrap();
                }
                let ran = Arc::new(AtomicBool::new(false));
                let child = thread::spawn({
                    let ran = ran.clone();
                    move || ran.store(true, Ordering::SeqCst)
                });
                spin_until(|| ran.load(Ordering::SeqCst));
                child.join().unwrap();
            }
        });
    });
}

// ---- fairness --------------------------------------------------------------------------

#[test]
fn a_poller_that_yields_lets_a_sender_through() {
    watched(|| {
        for procs in [1, 2] {
            let runtime = runtime(procs);
            runtime.run(|| {
                for round in 0..200 {
                    let sent = Arc::new(AtomicBool::new(false));
                    let poll = {
                        let sent = sent.clone();
                        move || until(|| sent.load(Ordering::SeqCst))
                    };
                    let send = move || sent.store(true, Ordering::SeqCst);
                    let (first, second) = if round % 2 == 0 {
                        (thread::spawn(poll), thread::spawn(send))
                    } else {
                        let second = thread::spawn(send);
                        (second, thread::spawn(poll))
                    };
                    first.join().unwrap();
                    second.join().unwrap();
                }
            });
            // The sender may be outside.
            let sent = Arc::new(AtomicBool::new(false));
            let seen = sent.clone();
            let poller = runtime.go(move || until(|| seen.load(Ordering::SeqCst)));
            sent.store(true, Ordering::SeqCst);
            poller.join().unwrap();
        }
    });
}

/// Two goroutines that wake each other until they are told to stop. Counts the
/// turns.
#[derive(Clone, Default)]
struct Pair {
    turns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sides: Arc<[OnceLock<thread::Thread>; 2]>,
}

impl Pair {
    fn start(&self) -> [thread::JoinHandle<()>; 2] {
        [0, 1].map(|side| {
            let pair = self.clone();
            thread::spawn(move || pair.play(side))
        })
    }

    fn play(&self, side: u64) {
        let (mine, others) = (&self.sides[side as usize], &self.sides[1 - side as usize]);
        mine.set(thread::current()).expect("a side is taken once");
        until(|| others.get().is_some());
        let other = others.get().unwrap();
        while !self.stop.load(Ordering::Relaxed) {
            let turn = self.turns.load(Ordering::Acquire);
            if turn % 2 == side {
                self.turns.store(turn + 1, Ordering::Release);
                other.unpark();
            } else {
                thread::park();
            }
        }
        other.unpark();
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

#[test]
fn two_pairs_of_ping_pongs_share_one_p() {
    let _alone = alone();
    watched(|| {
        let runtime = runtime(1);
        let (hog, light) = (Pair::default(), Pair::default());
        let (hogs, lights) = (hog.clone(), light.clone());
        // The hogs are there first, and keep the P through runnext.
        let hogs = runtime.run(move || hogs.start());
        while hog.turns() < 1000 {
            std::thread::yield_now();
        }
        let lights = runtime.run(move || lights.start());
        while light.turns() == 0 {
            std::thread::yield_now();
        }
        let before = (hog.turns(), light.turns());
        std::thread::sleep(Duration::from_millis(400));
        let after = (hog.turns(), light.turns());
        hog.stop();
        light.stop();
        hogs.into_iter().chain(lights).for_each(|handle| handle.join().unwrap());
        let (hog, light) = (after.0 - before.0, after.1 - before.1);
        assert!(hog <= 20 * light && light <= 20 * hog, "hog {hog}, light {light}");
    });
}

/// Starts `n` goroutines that yield. Returns how often each had when the first
/// had done so `yields` times, in ascending order.
fn yielders(procs: usize, n: usize, yields: usize) -> Vec<usize> {
    let done: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
    let (started, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let seen = Mutex::new(Vec::new());
    runtime(procs).run(|| {
        thread::scope(|s| {
            for mine in &done {
                s.spawn(|| {
                    started.fetch_add(1, Ordering::SeqCst);
                    until(|| started.load(Ordering::SeqCst) == n);
                    while !over.load(Ordering::Relaxed) {
                        let times = mine.fetch_add(1, Ordering::Relaxed) + 1;
                        if times == yields && !over.swap(true, Ordering::SeqCst) {
                            let all = done.iter().map(|n| n.load(Ordering::Relaxed));
                            seen.lock().unwrap().extend(all);
                        }
                        thread::yield_now();
                    }
                });
            }
        });
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    seen
}

#[test]
fn yields_are_fair_on_one_p() {
    watched(|| {
        let slowest = yielders(1, 1000, 200)[0];
        assert!(slowest * 2 >= 200, "one had yielded 200 times, another {slowest}");
    });
}

#[test]
fn yields_are_fair_on_four_ps() {
    let _alone = alone();
    watched(|| {
        // Long enough for the kernel to be fair to the four threads.
        let yields = if cfg!(debug_assertions) { 2000 } else { 15_000 };
        let done = yielders(4, 1000, yields);
        let (slowest, tenth) = (done[0], done[100]);
        assert!(slowest * 12 >= yields, "one had yielded {yields} times, another {slowest}");
        assert!(tenth * 5 >= yields, "one had yielded {yields} times, a hundred {tenth} or less");
    });
}

/// Counts itself, spawns one like itself, then one that does nothing. That one
/// comes next, and the other goes to the end of the local queue, which is so
/// never empty if there are a few of these.
fn family(ticks: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    ticks.fetch_add(1, Ordering::SeqCst);
    if !stop.load(Ordering::SeqCst) {
        drop(thread::spawn(move || family(ticks, stop)));
        drop(thread::spawn(|| ()));
    }
}

/// What keeps the one P busy while others ask for it.
fn keep_busy(how: &str, stop: &Arc<AtomicBool>) {
    fn respawn(stop: Arc<AtomicBool>) {
        if !stop.load(Ordering::SeqCst) {
            drop(thread::spawn(move || respawn(stop)));
        }
    }
    let yielders = |n| {
        for _ in 0..n {
            let stop = stop.clone();
            drop(thread::spawn(move || until(|| stop.load(Ordering::SeqCst))));
        }
    };
    match how {
        "a pair" => {
            let pair = Pair { stop: stop.clone(), ..Pair::default() };
            pair.start().into_iter().for_each(drop);
        }
        "a yielder" => yielders(1),
        "many yielders" => yielders(300),
        "a respawning goroutine" => respawn(stop.clone()),
        other => unreachable!("{other}"),
    }
}

const BUSY: [&str; 4] = ["a pair", "a yielder", "many yielders", "a respawning goroutine"];

#[test]
fn goroutines_from_outside_are_not_starved_by_those_inside() {
    let _alone = alone();
    watched(|| {
        for how in BUSY {
            let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
            runtime.run(|| keep_busy(how, &stop));
            for i in 0..20 {
                assert_eq!(runtime.go(move || i).join().unwrap(), i, "{how}");
            }
            // Several at once, which yield themselves.
            let together: Vec<_> =
                (0..50).map(|_| runtime.go(|| (0..5).for_each(|_| thread::yield_now()))).collect();
            together.into_iter().for_each(|handle| handle.join().unwrap());
            stop.store(true, Ordering::SeqCst);
        }
    });
}

#[test]
fn goroutines_from_inside_are_not_starved_by_a_pair_or_by_yielders() {
    let _alone = alone();
    watched(|| {
        for how in BUSY {
            let stop = Arc::new(AtomicBool::new(false));
            runtime(1).run(|| {
                keep_busy(how, &stop);
                for i in 0..10 {
                    assert_eq!(thread::spawn(move || i).join().unwrap(), i, "{how}");
                }
                let together: Vec<_> = (0..50)
                    .map(|_| thread::spawn(|| (0..5).for_each(|_| thread::yield_now())))
                    .collect();
                together.into_iter().for_each(|handle| handle.join().unwrap());
                stop.store(true, Ordering::SeqCst);
            });
        }
    });
}

#[test]
fn the_global_queue_comes_before_the_local_one_once_in_61_times() {
    const ASKED: usize = 101;
    let _alone = alone();
    watched(|| {
        let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
        let ticks = Arc::new(AtomicUsize::new(0));
        runtime.run(|| (0..3).for_each(|_| family(ticks.clone(), stop.clone())));
        while ticks.load(Ordering::SeqCst) < 1000 {
            std::thread::yield_now();
        }
        let mut waits: Vec<usize> = (0..ASKED)
            .map(|_| {
                let clock = ticks.clone();
                let before = ticks.load(Ordering::SeqCst);
                let ran = runtime.go(move || clock.load(Ordering::SeqCst));
                ran.join().unwrap() - before
            })
            .collect();
        stop.store(true, Ordering::SeqCst);
        // The median: now and then the kernel interrupts whoever asks. And some
        // ticks pass while it asks.
        waits.sort_unstable();
        let median = waits[ASKED / 2];
        assert!(median < 5 * 61, "half of them waited for more than {median} others");
    });
}

#[test]
fn a_goroutine_that_yields_is_not_starved_by_a_local_queue_that_is_never_empty() {
    const ENOUGH: usize = 200_000;
    let _alone = alone();
    watched(|| {
        let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
        let ticks = Arc::new(AtomicUsize::new(0));
        let yielder = runtime.run(|| {
            (0..3).for_each(|_| family(ticks.clone(), stop.clone()));
            thread::spawn(|| (0..5).for_each(|_| thread::yield_now()))
        });
        while !yielder.is_finished() && ticks.load(Ordering::SeqCst) < ENOUGH {
            std::thread::yield_now();
        }
        let finished = yielder.is_finished();
        stop.store(true, Ordering::SeqCst);
        yielder.join().unwrap();
        assert!(finished, "{ENOUGH} others ran, and it did not get through five yields");
    });
}

#[test]
fn a_goroutine_of_idle_priority_is_starved_by_a_local_queue_that_is_never_empty() {
    const ENOUGH: usize = 10_000;
    let _alone = alone();
    watched(|| {
        let (runtime, stop) = (runtime(1), Arc::new(AtomicBool::new(false)));
        let ticks = Arc::new(AtomicUsize::new(0));
        let idle = runtime.run(|| {
            (0..3).for_each(|_| family(ticks.clone(), stop.clone()));
            heist::go_idle(|| ())
        });
        while ticks.load(Ordering::SeqCst) < ENOUGH {
            std::thread::yield_now();
        }
        assert!(!idle.is_finished(), "it ran before {ENOUGH} others");
        stop.store(true, Ordering::SeqCst);
        idle.join().unwrap();
    });
}

// ---- idle priority -------------------------------------------------------------------------

#[test]
fn an_idle_goroutine_runs_only_when_nothing_else_can() {
    const YIELDS: usize = 1000;
    watched(|| {
        runtime(1).run(|| {
            let steps = Arc::new(AtomicUsize::new(0));
            let seen = steps.clone();
            let idle = heist::go_idle(move || seen.load(Ordering::SeqCst));
            let busy: Vec<_> = (0..3)
                .map(|_| {
                    let steps = steps.clone();
                    thread::spawn(move || {
                        for _ in 0..YIELDS {
                            steps.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            // This one is always runnable, too.
            until(|| busy.iter().all(|handle| handle.is_finished()));
            assert!(!idle.is_finished());
            assert_eq!(idle.join().unwrap(), 3 * YIELDS);
        });
    });
}

#[test]
fn an_idle_goroutine_that_yields_waits_until_nothing_else_can_run_again() {
    watched(|| {
        runtime(1).run(|| {
            let idle = heist::go_idle(|| {
                for _ in 0..20 {
                    let steps = Arc::new(AtomicUsize::new(0));
                    let counted = steps.clone();
                    let normal = thread::spawn(move || {
                        for _ in 0..100 {
                            counted.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                        }
                    });
                    thread::yield_now();
                    assert_eq!(steps.load(Ordering::SeqCst), 100);
                    normal.join().unwrap();
                }
            });
            idle.join().unwrap();
        });
    });
}

#[test]
fn an_idle_goroutine_that_is_unparked_waits_until_nothing_else_can_run() {
    watched(|| {
        runtime(1).run(|| {
            let steps = Arc::new(AtomicUsize::new(0));
            let asleep = Arc::new(AtomicBool::new(false));
            let (seen, says) = (steps.clone(), asleep.clone());
            let idle = heist::go_idle(move || {
                says.store(true, Ordering::SeqCst);
                thread::park();
                seen.load(Ordering::SeqCst)
            });
            let waker = idle.thread().clone();
            let normal = thread::spawn(move || {
                waker.unpark();
                for _ in 0..100 {
                    steps.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                }
            });
            // Both wait now: the normal one ran first, then the idle one began.
            normal.join().unwrap();
            assert_eq!(idle.join().unwrap(), 100);
            assert!(asleep.load(Ordering::SeqCst));

            // And once more with the park before the unpark.
            let steps = Arc::new(AtomicUsize::new(0));
            let asleep = Arc::new(AtomicBool::new(false));
            let (seen, says) = (steps.clone(), asleep.clone());
            let idle = heist::go_idle(move || {
                says.store(true, Ordering::SeqCst);
                thread::park();
                seen.load(Ordering::SeqCst)
            });
            // The idle one runs when all normal ones sleep: one that a plain
            // thread wakes when it has seen it asleep.
            let main = thread::current();
            let seen_asleep = asleep.clone();
            let outside = std::thread::spawn(move || {
                while !seen_asleep.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                main.unpark();
            });
            while !asleep.load(Ordering::SeqCst) {
                thread::park();
            }
            idle.thread().unpark();
            for _ in 0..100 {
                steps.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
            }
            assert_eq!(idle.join().unwrap(), 100);
            outside.join().unwrap();
        });
    });
}

#[test]
fn an_idle_goroutine_runs_on_an_idle_p() {
    let _alone = alone();
    watched(|| {
        runtime(2).run(|| {
            for _ in 0..20 {
                let ran = Arc::new(AtomicBool::new(false));
                let idle = heist::go_idle({
                    let ran = ran.clone();
                    move || ran.store(true, Ordering::SeqCst)
                });
                spin_until(|| ran.load(Ordering::SeqCst));
                idle.join().unwrap();
            }
        });
    });
}

#[test]
fn many_idle_goroutines_all_run() {
    watched(|| {
        for procs in [1, 4] {
            let ran = Arc::new(AtomicUsize::new(0));
            runtime(procs).run(|| {
                let idle: Vec<_> = (0..500)
                    .map(|_| {
                        let ran = ran.clone();
                        heist::go_idle(move || {
                            thread::yield_now();
                            ran.fetch_add(1, Ordering::SeqCst);
                        })
                    })
                    .collect();
                idle.into_iter().for_each(|handle| handle.join().unwrap());
            });
            assert_eq!(ran.load(Ordering::SeqCst), 500);
        }
        // From a plain thread too.
        assert_eq!(heist::go_idle(|| 7).join().unwrap(), 7);
    });
}

// ---- several runtimes, and threads that are not ours --------------------------------------------

#[test]
fn plain_threads_spawn_onto_a_runtime() {
    const THREADS: usize = 4;
    const EACH: usize = 2000;
    watched(|| {
        for procs in [1, 2, 4] {
            let runtime = runtime(procs);
            let sum = AtomicUsize::new(0);
            std::thread::scope(|s| {
                for t in 0..THREADS {
                    let (runtime, sum) = (&runtime, &sum);
                    s.spawn(move || {
                        let handles: Vec<_> =
                            (0..EACH).map(|i| runtime.go(move || t * EACH + i)).collect();
                        for handle in handles {
                            sum.fetch_add(handle.join().unwrap(), Ordering::SeqCst);
                        }
                    });
                }
            });
            let n = THREADS * EACH;
            assert_eq!(sum.load(Ordering::SeqCst), n * (n - 1) / 2);
            assert_eq!(runtime.num_goroutines(), 0);
            assert_eq!(runtime.stats().spawned, n as u64);
        }
    });
}

#[test]
fn a_message_goes_round_two_runtimes_and_a_plain_thread() {
    const LAPS: usize = 2000;
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        let place = Arc::new(AtomicUsize::new(0));
        let members: Arc<[OnceLock<thread::Thread>; 4]> = Arc::default();
        let member = |i: usize| {
            let (place, members) = (place.clone(), members.clone());
            move || {
                members[i].set(thread::current()).unwrap();
                until(|| members.iter().all(|member| member.get().is_some()));
                let next = members[(i + 1) % 4].get().unwrap();
                for lap in 0..LAPS {
                    while place.load(Ordering::Acquire) != lap * 4 + i {
                        thread::park();
                    }
                    place.fetch_add(1, Ordering::Release);
                    next.unpark();
                }
            }
        };
        let goroutines = [one.go(member(0)), two.go(member(1)), two.go(member(3))];
        std::thread::spawn(member(2)).join().unwrap();
        goroutines.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(place.load(Ordering::SeqCst), 4 * LAPS);
    });
}

#[test]
fn a_goroutine_belongs_to_the_runtime_that_it_was_spawned_on() {
    watched(|| {
        let (three, five) = (runtime(3), runtime(5));
        let procs = heist::runtime::max_procs;
        assert_eq!((three.max_procs(), five.max_procs()), (3, 5));
        assert_eq!(three.run(procs), 3);
        assert_eq!(three.go(procs).join().unwrap(), 3);
        assert_eq!(three.run(|| thread::spawn(procs).join().unwrap()), 3);
        assert_eq!(three.run(|| thread::scope(|s| s.spawn(procs).join().unwrap())), 3);
        assert_eq!(three.run(|| heist::go_idle(procs).join().unwrap()), 3);
        // Across: it is the runtime that is named, not the caller's.
        three.run(|| {
            assert_eq!(five.run(procs), 5);
            assert_eq!(five.go(procs).join().unwrap(), 5);
            assert_eq!(procs(), 3);
        });
        let default = heist::run(procs);
        assert_eq!(three.run(|| heist::run(procs)), default);
        assert_eq!(heist::go(procs).join().unwrap(), default);
    });
}

#[test]
fn the_number_of_ps_is_what_was_asked_for() {
    for procs in [1, 2, 3, 64, 1024] {
        let runtime = runtime(procs);
        assert_eq!(runtime.max_procs(), procs);
        assert_eq!(runtime.run(heist::runtime::max_procs), procs);
    }
    for procs in [0, 1025, usize::MAX] {
        let error = heist::Builder::new().max_procs(procs).build().unwrap_err();
        assert!(error.to_string().contains(&procs.to_string()), "{error}");
    }
}

#[test]
fn a_run_inside_a_run_waits_for_the_inner_one() {
    watched(|| {
        let (one, two) = (runtime(1), runtime(1));
        let value = one.run(|| two.run(|| one.run(|| two.run(|| heist::run(|| 1) + 1) + 1) + 1));
        assert_eq!(value, 4);
    });
}

#[test]
fn plain_threads_run_on_one_runtime_at_the_same_time() {
    watched(|| {
        let runtime = runtime(2);
        let barrier = Barrier::new(8);
        std::thread::scope(|s| {
            for i in 0..8 {
                let (runtime, barrier) = (&runtime, &barrier);
                s.spawn(move || {
                    barrier.wait();
                    for n in 0..200 {
                        assert_eq!(runtime.run(|| i * 1000 + n), i * 1000 + n);
                    }
                });
            }
        });
        assert_eq!(runtime.num_goroutines(), 0);
    });
}

#[test]
fn what_is_spawned_is_what_ends() {
    watched(|| {
        let runtime = runtime(4);
        runtime.run(|| {
            let handles: Vec<_> = (0..3000).map(|i| thread::spawn(move || i)).collect();
            handles.into_iter().for_each(|handle| assert!(handle.join().is_ok()));
        });
        let stats = runtime.stats();
        assert_eq!((stats.spawned, stats.finished), (3001, 3001));
        assert_eq!(runtime.num_goroutines(), 0);
    });
}

// ---- looking inside ----------------------------------------------------------------------------------

/// The part of the dump about the goroutine of a name.
fn entry_of(name: &str) -> String {
    let dump = heist::debug::dump();
    let quoted = format!("'{name}'");
    let mut entries = dump.split("\n\n").filter(|entry| entry.contains(&quoted));
    let entry = entries.next().unwrap_or_else(|| panic!("no {name} in:\n{dump}"));
    assert!(entries.next().is_none(), "{name} twice in:\n{dump}");
    entry.trim().to_owned()
}

fn spawn_named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> (thread::JoinHandle<T>, u32) {
    let line = line!() + 1;
    (thread::Builder::new().name(name.into()).spawn(f).unwrap(), line)
}

#[test]
fn the_dump_shows_name_state_reason_and_both_sites() {
    watched(|| {
        runtime(1).run(|| {
            let me = heist::runtime::goroutine_id().unwrap();
            let (parked, spawned_at) = spawn_named("dump-parked", || thread::park());
            let parked_at = spawned_at_line_of_park();
            let (runnable, _) = spawn_named("dump-runnable", || entry_of("dump-runnable"));
            let entry = entry_of("dump-runnable");
            assert!(entry.contains("[runnable]"), "{entry}");
            let running = runnable.join().unwrap();
            assert!(running.contains("[running]"), "{running}");

            // The others have had their turn: they wait.
            until(|| entry_of("dump-parked").contains("[park]"));
            let entry = entry_of("dump-parked");
            let lines: Vec<&str> = entry.lines().collect();
            let id = lines[0].strip_prefix("goroutine ").and_then(|rest| rest.split(' ').next());
            assert!(id.is_some_and(|id| id.parse::<u64>().is_ok()), "{entry}");
            assert!(lines[0].ends_with(" 'dump-parked' [park]:"), "{entry}");
            assert!(lines[1].starts_with('\t'), "{entry}");
            assert!(lines[1].contains(&format!("scheduler.rs:{parked_at}:")), "{entry}");
            assert_eq!(lines[2], format!("created by goroutine {me}"), "{entry}");
            assert!(lines[3].contains(&format!("scheduler.rs:{spawned_at}:")), "{entry}");

            let wake = parked.thread().clone();
            let (joiner, _) = spawn_named("dump-joiner", move || parked.join().unwrap());
            until(|| entry_of("dump-joiner").contains("[join]"));
            wake.unpark();
            joiner.join().unwrap();
            let dump = heist::debug::dump();
            assert!(!dump.contains("'dump-parked'"), "it has ended:\n{dump}");
        });
        let runtime = runtime(1);
        let outside = runtime.go(|| heist::debug::dump());
        let id = format!("{:?}", outside.thread().id());
        let id: String = id.chars().filter(char::is_ascii_digit).collect();
        let dump = outside.join().unwrap();
        let entry = dump.split("\n\n").find(|entry| entry.starts_with(&format!("goroutine {id} ")));
        assert!(entry.is_some_and(|e| e.contains("created by a plain thread")), "{dump}");
    });
}

/// The line in the test above on which its goroutine parks.
fn spawned_at_line_of_park() -> u32 {
    let source = include_str!("scheduler.rs");
    let park = "spawn_named(\"dump-parked\", || thread::park())";
    1 + source.lines().position(|line| line.contains(park)).unwrap() as u32
}

#[test]
fn the_dump_says_who_has_idle_priority() {
    watched(|| {
        runtime(1).run(|| {
            let idle = heist::go_idle(|| ());
            let id = format!("{:?}", idle.thread().id());
            let id: String = id.chars().filter(char::is_ascii_digit).collect();
            let dump = heist::debug::dump();
            let line = dump.lines().find(|l| l.starts_with(&format!("goroutine {id} ")));
            assert_eq!(line, Some(&*format!("goroutine {id} [runnable, idle priority]:")));
            idle.join().unwrap();
        });
    });
}

/// Runs a test of this file in a process of its own. `None` in that process.
fn in_a_process(test: &str) -> Option<std::process::Output> {
    if std::env::var("HEIST_TEST_CHILD").as_deref() == Ok(test) {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Some(child.env("HEIST_TEST_CHILD", test).output().unwrap())
}

#[test]
fn the_goroutine_count_equals_the_dump() {
    if let Some(output) = in_a_process("the_goroutine_count_equals_the_dump") {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{stderr}", output.status);
        return;
    }
    let listed = || heist::debug::dump().lines().filter(|l| l.starts_with("goroutine ")).count();
    watched(|| {
        for procs in [1, 2, 4] {
            let runtime = runtime(procs);
            assert_eq!((runtime.num_goroutines(), listed()), (0, 0));
            let gate = Arc::new(AtomicBool::new(false));
            let parked: Vec<_> = (0..300)
                .map(|i| {
                    let gate = gate.clone();
                    let wait = move || {
                        while !gate.load(Ordering::SeqCst) {
                            thread::park();
                        }
                    };
                    let name = format!("n{i}");
                    runtime.run(move || match i % 3 {
                        0 => thread::Builder::new().name(name).spawn(wait).unwrap(),
                        1 => heist::go_idle(wait),
                        _ => thread::spawn(wait),
                    })
                })
                .collect();
            while heist::debug::dump().matches("[park").count() < 300 {
                std::thread::yield_now();
            }
            assert_eq!((runtime.num_goroutines(), listed()), (300, 300));
            // One more, which asks.
            runtime.run(|| {
                let (alive, listed) = (heist::runtime::num_goroutines(), listed());
                assert_eq!((alive, listed), (301, 301));
            });
            // Ended ones whose handles live are not alive.
            let (handles, rest) = {
                let mut parked = parked;
                let rest = parked.split_off(100);
                (parked, rest)
            };
            gate.store(true, Ordering::SeqCst);
            handles.iter().for_each(|handle| handle.thread().unpark());
            while handles.iter().any(|handle| !handle.is_finished()) {
                std::thread::yield_now();
            }
            assert_eq!((runtime.num_goroutines(), listed()), (200, 200));
            rest.iter().for_each(|handle| handle.thread().unpark());
            rest.into_iter().chain(handles).for_each(|handle| handle.join().unwrap());
            assert_eq!((runtime.num_goroutines(), listed()), (0, 0));
        }
    });
}
