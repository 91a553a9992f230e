//! Fairness.

use super::*;

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
        let yields = if cfg!(debug_assertions) { 2000 } else { 20_000 };
        let done = yielders(4, 1000, yields);
        let (slowest, tenth) = (done[0], done[100]);
        assert!(slowest * 6 >= yields, "one had yielded {yields} times, another {slowest}");
        assert!(tenth * 4 >= yields, "one had yielded {yields} times, a hundred {tenth} or less");
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
