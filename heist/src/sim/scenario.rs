//! Small programs for the machine to run in as many orders as it can.
//!
//! Each checks its own result; the rules of `check` hold at every step of it.

mod devices;
mod forks;
mod preempt;
mod resize;
mod sync;

use super::Rng;
use crate::prim::atomic::AtomicU32;
use crate::prim::mutex::Mutex;
use crate::prim::sim::work;
use crate::prim::{clock, hint, thread as os};
use crate::{Builder, Runtime, chan, go, go_idle, thread, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A program: its name, and what it does with a runtime of so many Ps.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) body: fn(&Rng, usize),
}

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "spawn-join", body: spawn_join },
    Scenario { name: "tree", body: tree },
    Scenario { name: "flood", body: flood },
    Scenario { name: "ping-pong", body: ping_pong },
    Scenario { name: "yield", body: yields },
    Scenario { name: "wake-and-yield", body: wake_and_yield },
    Scenario { name: "inject", body: inject },
    Scenario { name: "lock-and-yield", body: lock_and_yield },
    Scenario { name: "alone", body: alone },
    Scenario { name: "bursts", body: bursts },
    Scenario { name: "shutdown", body: shut_down },
    Scenario { name: "idle-priority", body: idle_priority },
    Scenario { name: "scope", body: scope },
    Scenario { name: "two-runtimes", body: two_runtimes },
    Scenario { name: "unwind", body: unwind },
    Scenario { name: "timers", body: timers },
    Scenario { name: "channels", body: channels },
    Scenario { name: "hogs", body: preempt::hogs },
    Scenario { name: "calls", body: preempt::calls },
    Scenario { name: "freeze", body: preempt::freeze },
    Scenario { name: "late", body: preempt::late },
    Scenario { name: "resize", body: resize::resize },
    Scenario { name: "forks", body: forks::tree },
    Scenario { name: "forks-that-wait", body: forks::that_wait },
    Scenario { name: "forks-and-hogs", body: forks::and_hogs },
    Scenario { name: "locks", body: sync::locks },
    Scenario { name: "condvar", body: sync::condvar },
    Scenario { name: "select", body: sync::select },
    Scenario { name: "sync", body: sync::the_rest },
    Scenario { name: "devices", body: devices::readers },
    Scenario { name: "devices-outside", body: devices::outside },
    Scenario { name: "devices-closing", body: devices::closing },
    Scenario { name: "devices-two-runtimes", body: devices::two_runtimes },
];

fn runtime(rng: &Rng, procs: usize) -> Runtime {
    build(builder(rng, procs))
}

fn builder(rng: &Rng, procs: usize) -> Builder {
    Builder::new()
        .max_procs(procs)
        .seed(u64::from(rng.next()))
        // Longer than any stall, delay or slice of the machine.
        .shutdown_timeout(Duration::from_secs(3600))
}

fn build(builder: Builder) -> Runtime {
    builder.build().unwrap_or_else(|error| match error {
        // The machine refuses threads now and then, the first one too.
        crate::BuildError::Thread(_) => super::explore::skip(),
        error => panic!("{error}"),
    })
}

/// User code: sometimes none, sometimes a while.
fn compute(n: u32) {
    match n % 4 {
        0 => {}
        1 => work(u64::from(n % 500)),
        _ => work(u64::from(n % 5_000)),
    }
}

fn spawn_join(rng: &Rng, procs: usize) {
    let (n, salt) = (1 + rng.next() % 24, rng.next() >> 8);
    let sum = runtime(rng, procs).run(|| {
        let handles: Vec<_> = (0..n)
            .map(|i| {
                go(move || {
                    compute(salt + i * 7);
                    i
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or(1_000_000)).sum::<u32>()
    });
    assert_eq!(sum, n * (n - 1) / 2);
}

fn tree(rng: &Rng, procs: usize) {
    fn count(depth: u32, salt: u32) -> u32 {
        compute(salt);
        if depth == 0 {
            return 1;
        }
        let left = go(move || count(depth - 1, salt / 3 + 1));
        let right = count(depth - 1, salt / 2);
        left.join().unwrap_or(0) + right
    }
    let (depth, salt) = (2 + rng.next() % 4, rng.next());
    assert_eq!(runtime(rng, procs).run(|| count(depth, salt)), 1 << depth);
}

/// More than a ring has room for: spawned, and then woken, by one goroutine.
fn flood(rng: &Rng, procs: usize) {
    let n = 270 + rng.next() as usize % 60;
    let done = Arc::new(AtomicUsize::new(0));
    runtime(rng, procs).run(|| {
        let handles: Vec<_> = (0..n)
            .map(|_| {
                let done = done.clone();
                go(move || {
                    thread::park();
                    done.fetch_add(1, Ordering::Relaxed)
                })
            })
            .collect();
        handles.iter().for_each(|handle| handle.thread().unpark());
        handles.into_iter().for_each(|handle| drop(handle.join()));
    });
    assert_eq!(done.load(Ordering::Relaxed), n);
}

fn ping_pong(rng: &Rng, procs: usize) {
    let (pairs, rounds, salt) = (1 + rng.next() % 3, 2 + rng.next() % 6, rng.next() >> 4);
    runtime(rng, procs).run(|| {
        let pairs: Vec<_> = (0..pairs)
            .map(|i| {
                go(move || {
                    let turn = Arc::new(AtomicUsize::new(0));
                    let (me, theirs) = (thread::current(), turn.clone());
                    let pong = go(move || {
                        for round in 0..rounds as usize {
                            wait_for(&theirs, 2 * round + 1);
                            compute(salt + i);
                            theirs.store(2 * round + 2, Ordering::SeqCst);
                            me.unpark();
                        }
                    });
                    for round in 0..rounds as usize {
                        turn.store(2 * round + 1, Ordering::SeqCst);
                        pong.thread().unpark();
                        wait_for(&turn, 2 * round + 2);
                    }
                    pong.join().is_ok()
                })
            })
            .collect();
        assert!(pairs.into_iter().all(|pair| pair.join().unwrap_or(false)));
    });
}

fn wait_for(turn: &AtomicUsize, value: usize) {
    while turn.load(Ordering::SeqCst) < value {
        thread::park();
    }
}

fn yields(rng: &Rng, procs: usize) {
    let (n, rounds, salt) = (1 + rng.next() % 8, 1 + rng.next() % 8, rng.next() >> 4);
    runtime(rng, procs).run(|| {
        let handles: Vec<_> = (0..n)
            .map(|i| {
                go(move || {
                    for round in 0..rounds {
                        compute(salt + i + round);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| drop(handle.join()));
    });
}

/// Goroutines that wake one that computes, and give way to it: they are work for others
/// meanwhile.
fn wake_and_yield(rng: &Rng, procs: usize) {
    let (pairs, rounds, salt) = (1 + rng.next() % 3, 2 + rng.next() % 8, rng.next() >> 4);
    runtime(rng, procs).run(|| {
        let wakers: Vec<_> = (0..pairs)
            .map(|i| {
                go(move || {
                    let over = Arc::new(AtomicUsize::new(0));
                    let theirs = over.clone();
                    let other = go(move || {
                        while theirs.load(Ordering::SeqCst) == 0 {
                            thread::park();
                            compute(salt + i);
                        }
                    });
                    for round in 0..rounds {
                        other.thread().unpark();
                        thread::yield_now();
                        compute((salt >> 3) + round);
                    }
                    over.store(1, Ordering::SeqCst);
                    other.thread().unpark();
                    other.join().is_ok()
                })
            })
            .collect();
        assert!(wakers.into_iter().all(|waker| waker.join().unwrap_or(false)));
    });
}

/// Plain threads spawn and wait, and wake goroutines from outside.
fn inject(rng: &Rng, procs: usize) {
    let runtime = Arc::new(runtime(rng, procs));
    let (threads, each, salt) = (1 + rng.next() % 3, 1 + rng.next() % 6, rng.next() >> 4);
    let started: Vec<_> = (0..threads)
        .map(|t| {
            let runtime = runtime.clone();
            os::start(format!("outside-{t}"), 1 << 20, move || {
                for i in 0..each {
                    let sleeper = runtime.go(|| {
                        thread::park();
                        7
                    });
                    compute(salt + i + t);
                    sleeper.thread().unpark();
                    assert_eq!(sleeper.join().ok(), Some(7));
                }
            })
        })
        .collect();
    started.into_iter().flatten().for_each(|handle| drop(handle.join()));
    // The last of them may have been a thread's.
    drop(Arc::into_inner(runtime));
}

/// Plain threads, and the machine alone: one takes a lock and yields, over and over, until
/// others have had the lock.
fn lock_and_yield(rng: &Rng, threads: usize) {
    let (lock, had) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let (word, each) = (AtomicU32::new(0), 1 + rng.next() % 50);
    let wanting: Vec<_> = (0..threads)
        .flat_map(|t| {
            let (lock, had) = (lock.clone(), had.clone());
            os::start(format!("wants-{t}"), 1 << 20, move || {
                drop(lock.lock());
                had.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    while had.load(Ordering::Relaxed) < wanting.len() {
        let held = lock.lock();
        for _ in 0..each {
            let _ = word.load(Ordering::Relaxed);
        }
        drop(held);
        hint::give_way();
    }
    wanting.into_iter().for_each(|handle| drop(handle.join()));
}

/// The machine alone: the steps of the only thread take as long beside idle cores as they
/// would on one core.
fn alone(rng: &Rng, _: usize) {
    let (word, steps) = (AtomicU32::new(0), 100 + rng.next() % 1_000);
    let before = clock::now();
    for _ in 0..steps {
        let _ = word.load(Ordering::Relaxed);
    }
    let took = clock::now() - before;
    assert!(took >= 10 * u64::from(steps), "{steps} steps took {took} ns");
}

/// All sleep, then there is work at once.
fn bursts(rng: &Rng, procs: usize) {
    let runtime = runtime(rng, procs);
    for _ in 0..1 + rng.next() % 3 {
        let (n, salt) = (1 + rng.next() % 8, rng.next() >> 4);
        let handles: Vec<_> = (0..n).map(|i| runtime.go(move || compute(salt + i))).collect();
        handles.into_iter().for_each(|handle| drop(handle.join()));
        sleep(u64::from(rng.next() % 300_000));
    }
}

/// The calling virtual thread sleeps.
fn sleep(nanos: u64) {
    let until = clock::now() + nanos;
    while let Some(left) = until.checked_sub(clock::now()).filter(|left| *left > 0) {
        let never = crate::prim::futex::Futex::new(0);
        never.wait(0, Some(Duration::from_nanos(left)));
    }
}

/// A runtime is dropped over goroutines that park, yield and have not begun, some of them
/// with their threads.
fn shut_down(rng: &Rng, procs: usize) {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let n = 1 + rng.next() as usize % 12;
    let runtime = runtime(rng, procs);
    let mut spawned = 0;
    for i in 0..n {
        let count = Count(dropped.clone());
        let parks = (i + rng.next() as usize).is_multiple_of(2);
        let stays = rng.next().is_multiple_of(4);
        drop(runtime.go(move || {
            let _count = count;
            let _pin = stays.then(crate::runtime::pin);
            loop {
                if parks { thread::park() } else { thread::yield_now() }
            }
        }));
        spawned += 1;
    }
    sleep(u64::from(rng.next() % 50_000));
    drop(runtime);
    assert_eq!(dropped.load(Ordering::Relaxed), spawned, "each goroutine was unwound");
}

fn idle_priority(rng: &Rng, procs: usize) {
    let (n, salt) = (1 + rng.next() % 6, rng.next() >> 4);
    runtime(rng, procs).run(|| {
        let idle: Vec<_> = (0..n)
            .map(|i| {
                go_idle(move || {
                    compute(salt + i);
                    thread::yield_now();
                })
            })
            .collect();
        let busy: Vec<_> = (0..n).map(|i| go(move || compute(salt + i))).collect();
        busy.into_iter().chain(idle).for_each(|handle| drop(handle.join()));
    });
}

fn scope(rng: &Rng, procs: usize) {
    let (n, salt) = (1 + rng.next() % 8, rng.next() >> 4);
    let done = AtomicUsize::new(0);
    runtime(rng, procs).run(|| {
        thread::scope(|s| {
            for i in 0..n {
                let done = &done;
                s.spawn(move || {
                    compute(salt + i);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(done.load(Ordering::Relaxed), n as usize);
}

/// Goroutines of two runtimes wake each other.
fn two_runtimes(rng: &Rng, procs: usize) {
    let (here, there) = (runtime(rng, procs), runtime(rng, 1 + procs / 2));
    let rounds = 1 + rng.next() % 6;
    let salt = rng.next() >> 4;
    here.run(|| {
        for round in 0..rounds {
            let other = there.go(move || {
                thread::park();
                compute(salt + round);
                round
            });
            other.thread().unpark();
            assert_eq!(other.join().ok(), Some(round));
        }
    });
}

/// Goroutines end by unwinding, and whoever joins them hears of it.
fn unwind(rng: &Rng, procs: usize) {
    let n = 1 + rng.next() % 8;
    runtime(rng, procs).run(|| {
        let handles: Vec<_> = (0..n)
            .map(|i| {
                go(move || {
                    thread::yield_now();
                    if i % 2 == 0 {
                        // Without the hook, which would end the run.
                        std::panic::resume_unwind(Box::new(i));
                    }
                })
            })
            .collect();
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join().is_err(), i % 2 == 0);
        }
    });
}

/// Goroutines sleep, park for a while and are woken before or after, and timers
/// fire, or are stopped.
fn timers(rng: &Rng, procs: usize) {
    let (n, salt) = (1 + rng.next() % 6, rng.next() >> 4);
    let rings = Arc::new(AtomicUsize::new(0));
    let stopped = runtime(rng, procs).run(|| {
        let sleepers: Vec<_> = (0..n)
            .map(|i| {
                go(move || {
                    let nanos = u64::from((salt >> i) % 60_000);
                    let before = clock::now();
                    time::sleep(Duration::from_nanos(nanos));
                    assert!(clock::now() - before >= nanos, "it slept too short");
                    thread::park_timeout(Duration::from_nanos(nanos / 2));
                })
            })
            .collect();
        let set: Vec<_> = (0..n)
            .map(|i| {
                let rings = rings.clone();
                let after = Duration::from_nanos(u64::from((salt >> (i + 3)) % 40_000));
                time::Timer::after(after, move || {
                    rings.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        compute(salt);
        sleepers.iter().for_each(|sleeper| sleeper.thread().unpark());
        let stopped = set.iter().filter(|timer| timer.stop()).count();
        sleepers.into_iter().for_each(|sleeper| assert!(sleeper.join().is_ok()));
        // Those that were not stopped in time ring, or have.
        while rings.load(Ordering::Relaxed) + stopped < set.len() {
            time::sleep(Duration::from_micros(5));
        }
        stopped
    });
    assert_eq!(rings.load(Ordering::Relaxed) + stopped, n as usize);
}

/// Senders, receivers and those that select, on channels with and without room:
/// every message arrives once.
fn channels(rng: &Rng, procs: usize) {
    let (senders, receivers) = (1 + rng.next() as usize % 3, 1 + rng.next() as usize % 3);
    let (each, room, salt) =
        (1 + rng.next() as usize % 6, rng.next() as usize % 4, rng.next() >> 4);
    runtime(rng, procs).run(|| {
        let (one, from_one) = chan::bounded::<usize>(room);
        let (two, from_two) = chan::bounded::<usize>(1);
        let senders: Vec<_> = (0..senders)
            .map(|s| {
                let to = if s % 2 == 0 { one.clone() } else { two.clone() };
                go(move || {
                    for i in 0..each {
                        compute(salt + i as u32);
                        assert!(to.send(1).is_ok(), "somebody receives");
                    }
                })
            })
            .collect();
        drop((one, two));
        let receivers: Vec<_> = (0..receivers)
            .map(|_| {
                let (one, two) = (from_one.clone(), from_two.clone());
                go(move || {
                    let (mut sum, mut open) = (0, [true; 2]);
                    while open != [false; 2] {
                        let mut select = chan::Select::new();
                        let first = if open[0] { select.recv(&one) } else { usize::MAX };
                        if open[1] {
                            select.recv(&two);
                        }
                        let ready = select.select();
                        let which = usize::from(ready.index() != first);
                        match ready.recv(if which == 0 { &one } else { &two }) {
                            Ok(n) => sum += n,
                            Err(_) => open[which] = false,
                        }
                    }
                    sum
                })
            })
            .collect();
        let sent = senders.len() * each;
        senders.into_iter().for_each(|sender| assert!(sender.join().is_ok()));
        let received: usize = receivers.into_iter().map(|r| r.join().unwrap_or(0)).sum();
        assert_eq!(received, sent);
    });
}
