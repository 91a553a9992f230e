//! The scheduler under load, on fewer and on more Ps than there are cores: no
//! goroutine is lost, none runs twice.

mod common;

use common::*;
use heist::{Runtime, thread};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const PROCS: [usize; 5] = [1, 2, 4, 8, 64];

/// Goroutines for each number of Ps.
const TASKS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

/// Calls `f` with a runtime for each number of Ps, and checks that nothing is
/// left over.
fn on_each(seed: u64, f: impl Fn(&Runtime, u64)) {
    watched(|| {
        for procs in PROCS {
            let seed = seed.wrapping_mul(procs as u64 + 1);
            let runtime = heist::Builder::new().max_procs(procs).seed(seed).build().unwrap();
            f(&runtime, seed);
            // Whoever is detached may still be at its last step.
            while runtime.num_goroutines() != 0 {
                std::thread::yield_now();
            }
            let stats = runtime.stats();
            assert_eq!(stats.spawned, stats.finished, "{procs} Ps, seed {seed}");
            // A thread that the kernel keeps waiting, for memory for instance, loses its P
            // to another.
            let retaken = stats.retakes as usize;
            assert!(stats.threads <= 4 * procs + 4 + retaken, "{procs} Ps: {stats:?}");
        }
    });
}

/// Random numbers that a test can repeat.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// How often each of many goroutines ran.
struct Runs(Vec<AtomicU8>);

impl Runs {
    fn new(n: usize) -> Arc<Runs> {
        Arc::new(Runs((0..n).map(|_| AtomicU8::new(0)).collect()))
    }

    fn ran(&self, i: usize) {
        self.0[i].fetch_add(1, Ordering::Relaxed);
    }

    fn assert_once(&self) {
        let wrong = self.0.iter().position(|runs| runs.load(Ordering::SeqCst) != 1);
        if let Some(i) = wrong {
            panic!("goroutine {i} ran {} times", self.0[i].load(Ordering::SeqCst));
        }
    }
}

/// A node of a tree in which every goroutine waits for its children.
fn tree(nodes: usize, fan: usize) -> usize {
    if nodes <= 1 {
        return nodes;
    }
    let below = nodes - 1;
    let share = |i| below / fan + usize::from(i < below % fan);
    let children: Vec<_> = (0..fan)
        .filter(|i| share(*i) > 0)
        .map(|i| {
            let share = share(i);
            thread::spawn(move || tree(share, fan))
        })
        .collect();
    1 + children.into_iter().map(|child| child.join().unwrap()).sum::<usize>()
}

#[test]
fn a_tree_of_spawns_and_joins_adds_up() {
    on_each(1, |runtime, _| {
        for fan in [2, 3, 17] {
            assert_eq!(runtime.run(|| tree(TASKS / 3, fan)), TASKS / 3, "fan {fan}");
        }
    });
}

#[test]
fn a_comb_of_spawns_that_only_the_last_answers_adds_up() {
    fn comb(n: usize) -> usize {
        if n == 0 { 0 } else { 1 + thread::spawn(move || comb(n - 1)).join().unwrap() }
    }
    // All of them sleep at the same time: their stacks are all in use.
    on_each(2, |runtime, _| assert_eq!(runtime.run(|| comb(TASKS / 20)), TASKS / 20));
}

#[test]
fn every_goroutine_of_a_flood_runs_exactly_once() {
    on_each(3, |runtime, _| {
        let runs = Runs::new(TASKS);
        runtime.run(|| {
            for i in 0..TASKS {
                let runs = runs.clone();
                drop(thread::spawn(move || runs.ran(i)));
            }
        });
        while runtime.num_goroutines() != 0 {
            std::thread::yield_now();
        }
        runs.assert_once();
    });
}

#[test]
fn every_goroutine_from_several_threads_runs_exactly_once() {
    const THREADS: usize = 4;
    on_each(4, |runtime, seed| {
        let runs = Runs::new(TASKS);
        std::thread::scope(|s| {
            for t in 0..THREADS {
                let runs = &runs;
                s.spawn(move || {
                    let mut random = Random::new(seed + t as u64);
                    let mut handles = VecDeque::new();
                    for i in (t..TASKS).step_by(THREADS) {
                        let (runs, yields) = (runs.clone(), random.below(3));
                        handles.push_back(runtime.go(move || {
                            (0..yields).for_each(|_| thread::yield_now());
                            runs.ran(i);
                        }));
                        // Some are joined soon, some late, some never.
                        if random.below(4) == 0
                            && let Some(handle) = handles.pop_front()
                        {
                            match random.below(2) {
                                0 => handle.join().unwrap(),
                                _ => drop(handle),
                            }
                        }
                    }
                    handles.into_iter().for_each(|handle| handle.join().unwrap());
                });
            }
        });
        while runtime.num_goroutines() != 0 {
            std::thread::yield_now();
        }
        runs.assert_once();
    });
}

#[test]
fn a_storm_of_yields_passes() {
    on_each(5, |runtime, seed| {
        let runs = Runs::new(TASKS / 10);
        runtime.run(|| {
            thread::scope(|s| {
                let mut random = Random::new(seed);
                for i in 0..TASKS / 10 {
                    let (runs, yields) = (&runs, random.below(20));
                    s.spawn(move || {
                        (0..yields).for_each(|_| thread::yield_now());
                        runs.ran(i);
                    });
                }
            });
        });
        runs.assert_once();
    });
}

/// A queue whose two ends park: a few lines of what users build from park.
struct Pipe {
    items: Mutex<VecDeque<usize>>,
    room: usize,
    reader: OnceLock<thread::Thread>,
    writers: Mutex<Vec<thread::Thread>>,
}

impl Pipe {
    fn new(room: usize) -> Arc<Pipe> {
        Arc::new(Pipe {
            items: Mutex::default(),
            room,
            reader: OnceLock::new(),
            writers: Mutex::default(),
        })
    }

    fn send(&self, item: usize) {
        loop {
            {
                let mut items = self.items.lock().unwrap();
                if items.len() < self.room {
                    items.push_back(item);
                    break;
                }
                self.writers.lock().unwrap().push(thread::current());
            }
            thread::park();
        }
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }

    fn receive(&self) -> usize {
        self.reader.get_or_init(thread::current);
        loop {
            if let Some(item) = self.items.lock().unwrap().pop_front() {
                let waiting = std::mem::take(&mut *self.writers.lock().unwrap());
                waiting.iter().for_each(thread::Thread::unpark);
                return item;
            }
            thread::park();
        }
    }
}

#[test]
fn parked_producers_and_consumers_lose_nothing() {
    const PRODUCERS: usize = 50;
    on_each(6, |runtime, _| {
        for room in [1, 64] {
            let items = TASKS / 4 / PRODUCERS;
            let pipe = Pipe::new(room);
            for producer in 0..PRODUCERS {
                let pipe = pipe.clone();
                drop(runtime.go(move || {
                    for i in 0..items {
                        pipe.send(producer * items + i);
                    }
                }));
            }
            let mut received =
                runtime.run(|| (0..PRODUCERS * items).map(|_| pipe.receive()).collect::<Vec<_>>());
            // Each producer's in its order, and all of them.
            let mut last = [None; PRODUCERS];
            for item in &received {
                let last = &mut last[item / items];
                assert!(*last < Some(*item), "{item} after {last:?}");
                *last = Some(*item);
            }
            received.sort_unstable();
            assert!(received.into_iter().eq(0..PRODUCERS * items));
        }
    });
}

#[test]
fn a_ring_of_goroutines_passes_its_tokens_round() {
    const MEMBERS: usize = 100;
    const TOKENS: usize = 10;
    on_each(7, |runtime, _| {
        let laps = TASKS / MEMBERS / TOKENS;
        let inboxes: Vec<AtomicUsize> = (0..MEMBERS).map(|_| AtomicUsize::new(0)).collect();
        let members: Vec<OnceLock<thread::Thread>> =
            (0..MEMBERS).map(|_| OnceLock::new()).collect();
        let passed = AtomicUsize::new(0);
        runtime.run(|| {
            thread::scope(|s| {
                for i in 0..MEMBERS {
                    let (inboxes, members, passed) = (&inboxes, &members, &passed);
                    let handle = s.spawn(move || {
                        for _ in 0..laps * TOKENS {
                            while inboxes[i].load(Ordering::Acquire) == 0 {
                                thread::park();
                            }
                            inboxes[i].fetch_sub(1, Ordering::AcqRel);
                            passed.fetch_add(1, Ordering::Relaxed);
                            let next = (i + 1) % MEMBERS;
                            inboxes[next].fetch_add(1, Ordering::AcqRel);
                            members[next].wait().unpark();
                        }
                    });
                    members[i].set(handle.thread().clone()).unwrap();
                }
                inboxes[0].fetch_add(TOKENS, Ordering::AcqRel);
                members[0].get().unwrap().unpark();
            });
        });
        assert_eq!(passed.load(Ordering::SeqCst), laps * TOKENS * MEMBERS);
    });
}

#[test]
fn nested_scopes_wait_for_all_below() {
    fn nest(depth: usize, fan: usize, leaves: &AtomicUsize) {
        if depth == 0 {
            leaves.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..fan {
                s.spawn(|| {
                    nest(depth - 1, fan, &before);
                    if depth.is_multiple_of(2) {
                        thread::yield_now();
                    }
                });
            }
        });
        // All below have been counted when the scope ends.
        assert_eq!(before.load(Ordering::SeqCst), fan.pow(depth as u32 - 1) * fan);
        leaves.fetch_add(before.into_inner(), Ordering::Relaxed);
    }
    on_each(8, |runtime, _| {
        let leaves = AtomicUsize::new(0);
        let depth = if cfg!(debug_assertions) { 6 } else { 8 };
        runtime.run(|| nest(depth, 4, &leaves));
        assert_eq!(leaves.into_inner(), 4usize.pow(depth as u32));
    });
}

/// What a goroutine of the mix does, beside counting itself.
fn step(random: &mut Random, left: usize) {
    match random.below(8) {
        0 => thread::yield_now(),
        1 => {
            thread::current().unpark();
            thread::park();
        }
        2 if left > 0 => assert_eq!(thread::spawn(|| 1).join().unwrap(), 1),
        3 => drop(thread::spawn(thread::yield_now)),
        4 => {
            let mut value = 0;
            thread::scope(|s| {
                s.spawn(|| value = 7);
            });
            assert_eq!(value, 7);
        }
        5 => drop(heist::go_idle(|| ())),
        6 => heist::stack::ensure(300 << 10, thread::yield_now),
        _ => (0..random.below(200)).for_each(|_| std::hint::spin_loop()),
    }
}

/// One in so many goroutines panics.
const PANICS: u64 = 16;

#[test]
fn a_mix_of_everything_with_panics_loses_nothing() {
    const SEEDS: u64 = 3;
    for seed in 0..SEEDS {
        on_each(100 + seed, |runtime, seed| {
            let tasks = TASKS / 4 / SEEDS as usize;
            let runs = Runs::new(tasks);
            std::thread::scope(|s| {
                for t in 0..4 {
                    let runs = runs.clone();
                    s.spawn(move || {
                        let mine = (t..tasks).step_by(4);
                        let handles: Vec<_> = mine
                            .map(|i| {
                                let runs = runs.clone();
                                let mut random = Random::new(seed ^ i as u64);
                                let fails = random.below(PANICS) == 0;
                                let handle = runtime.go(move || {
                                    (0..3).for_each(|left| step(&mut random, left));
                                    runs.ran(i);
                                    if fails {
                                        // No message: there are thousands.
                                        resume_unwind(Box::new(i));
                                    }
                                    i
                                });
                                (i, fails, handle)
                            })
                            .collect();
                        for (i, fails, handle) in handles {
                            match handle.join() {
                                Ok(value) => assert_eq!((value, fails), (i, false)),
                                Err(payload) => {
                                    let payload = payload.downcast::<usize>().unwrap();
                                    assert_eq!((*payload, fails), (i, true));
                                }
                            }
                        }
                    });
                }
            });
            runs.assert_once();
        });
    }
}

#[test]
fn short_lived_threads_come_and_go() {
    watched(|| {
        // Threads that are not needed end at once; each blocked unwinding needs
        // one more.
        let runtime =
            heist::Builder::new().max_procs(2).thread_keep_alive(Duration::ZERO).build().unwrap();
        /// Waits for another goroutine while it unwinds, so with its thread.
        struct Waits;
        impl Drop for Waits {
            fn drop(&mut self) {
                assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
            }
        }
        for _ in 0..TASKS / 1000 {
            let unwinding: Vec<_> = (0..5)
                .map(|_| {
                    runtime.go(|| {
                        let _waits = Waits;
                        resume_unwind(Box::new("unwound"))
                    })
                })
                .collect();
            for handle in unwinding {
                let payload: Result<(), _> = handle.join();
                assert_eq!(payload.unwrap_err().downcast_ref(), Some(&"unwound"));
            }
        }
        // No more than the Ps need are kept.
        while runtime.stats().threads > 2 {
            std::thread::yield_now();
        }
        assert_eq!(runtime.run(|| 7), 7);
    });
}

#[test]
fn runtimes_at_the_same_time_do_not_mix_their_goroutines() {
    watched(|| {
        let runtimes: Vec<_> =
            (1..=6).map(|procs| heist::Builder::new().max_procs(procs).build().unwrap()).collect();
        std::thread::scope(|s| {
            for runtime in &runtimes {
                s.spawn(move || {
                    let procs = runtime.max_procs();
                    let runs = Runs::new(TASKS / 10);
                    runtime.run(|| {
                        thread::scope(|s| {
                            for i in 0..TASKS / 10 {
                                let runs = &runs;
                                s.spawn(move || {
                                    if i % 8 == 0 {
                                        thread::yield_now();
                                    }
                                    assert_eq!(heist::runtime::max_procs(), procs);
                                    runs.ran(i);
                                });
                            }
                        });
                    });
                    runs.assert_once();
                });
            }
        });
        for runtime in &runtimes {
            assert_eq!(runtime.stats().spawned, 1 + TASKS as u64 / 10);
        }
    });
}
