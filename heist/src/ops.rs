//! The scheduler's inner operations, for the table in `heist-bench`.
//!
//! Behind the feature `bench-internals`; not part of the API.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::lock::{Lock, Rank};
use crate::prim::note::Note;
use crate::prim::thread;
use crate::sched::m::{self, M};
use crate::sched::protocol::freeze::Answer;
use crate::sched::protocol::global_queue::GlobalQueue;
use crate::sched::protocol::idle::{Crew, Idle, Wake};
use crate::sched::protocol::run_queue::{CAPACITY, RunQueue};
use crate::sched::{park, signal};
use std::hint::{black_box, spin_loop};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// An operation: runs it so many times and returns the time.
pub type Op = fn(u64) -> Duration;

/// The operations, by the names that they have in Go's runtime where they are there.
pub const OPS: [(&str, Op); 15] = [
    ("runqput + runqget, shared", |n| put_get(n, false)),
    ("runqput + runqget, one P", |n| put_get(n, true)),
    ("runnext put + get, shared", |n| next_put_get(n, false)),
    ("runqputslow (overflow of 128)", overflow),
    ("globrunqget, one", global_one),
    ("globrunqget, batch of 128", global_batch),
    ("runqsteal of 4", |n| steal(n, 8)),
    ("runqsteal of 16", |n| steal(n, 32)),
    ("failed steal", failed_steal),
    ("wakep, somebody searches", wake_with_searcher),
    ("wake an M that sleeps (futex)", wake_sleeper),
    ("park and wake an M, round trip", park_and_wake),
    ("freeze a thread", |n| stop_and_go(n).0),
    ("thaw a thread", |n| stop_and_go(n).1),
    ("preemption at a safe point", preempt_at_safe_point),
];

static ITEMS: [u64; CAPACITY + 1] = [0; CAPACITY + 1];

fn time(n: u64, mut op: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        op();
    }
    start.elapsed()
}

fn put_get(n: u64, alone: bool) -> Duration {
    let queue: RunQueue<u64> = RunQueue::new(alone);
    time(n, || {
        let _ = black_box(queue.push(&ITEMS[0]));
        black_box(queue.pop());
    })
}

fn next_put_get(n: u64, alone: bool) -> Duration {
    let queue: RunQueue<u64> = RunQueue::new(alone);
    time(n, || {
        black_box(queue.put_next(&ITEMS[0]));
        black_box(queue.pop());
    })
}

/// Only the overflow is timed, not the filling.
fn overflow(n: u64) -> Duration {
    let queue: RunQueue<u64> = RunQueue::new(false);
    let global = Lock::new(Rank::Sched, GlobalQueue::new());
    (0..n)
        .map(|_| {
            while queue.push(&ITEMS[0]).is_ok() {}
            let start = Instant::now();
            if let Some(half) = queue.take_half() {
                global.lock().append(half.iter().chain([&ITEMS[CAPACITY]]));
            }
            let took = start.elapsed();
            global.lock().clear();
            took
        })
        .sum()
}

fn global_one(n: u64) -> Duration {
    let global = Lock::new(Rank::Sched, GlobalQueue::new());
    global.lock().append(std::iter::repeat_n(&ITEMS[0], n as usize));
    time(n, || {
        black_box(global.lock().pop());
    })
}

fn global_batch(n: u64) -> Duration {
    let queue: RunQueue<u64> = RunQueue::new(false);
    let global = Lock::new(Rank::Sched, GlobalQueue::new());
    (0..n)
        .map(|_| {
            global.lock().append(ITEMS.iter().take(CAPACITY / 2));
            let start = Instant::now();
            global.lock().take_batch(1, CAPACITY / 2, |item| {
                let _ = queue.push(item);
            });
            let took = start.elapsed();
            while queue.pop().is_some() {}
            took
        })
        .sum()
}

/// Half of a ring of `len`.
fn steal(n: u64, len: usize) -> Duration {
    let (victim, thief) = (RunQueue::<u64>::new(false), RunQueue::<u64>::new(false));
    (0..n)
        .map(|_| {
            ITEMS[..len].iter().for_each(|item| {
                let _ = victim.push(item);
            });
            let start = Instant::now();
            black_box(victim.steal_into(&thief));
            let took = start.elapsed();
            while thief.pop().is_some() {}
            while victim.pop().is_some() {}
            took
        })
        .sum()
}

fn failed_steal(n: u64) -> Duration {
    let (victim, thief) = (RunQueue::<u64>::new(false), RunQueue::<u64>::new(false));
    time(n, || {
        black_box(victim.steal_into(&thief));
    })
}

fn wake_with_searcher(n: u64) -> Duration {
    let idle = Idle::new(Crew::SIXTEENTH);
    idle.p_goes_idle();
    idle.search();
    time(n, || assert_eq!(black_box(idle.claim_wake()), Wake::Nobody))
}

/// The waker's share of a wake-up.
fn wake_sleeper(n: u64) -> Duration {
    let (there, back) = (Note::new(), Note::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..n {
                there.sleep();
                back.wake();
            }
        });
        (0..n)
            .map(|_| {
                // Until the other one sleeps in the kernel.
                thread::sleep(Duration::from_micros(100));
                let start = Instant::now();
                there.wake();
                let took = start.elapsed();
                back.sleep();
                took
            })
            .sum()
    })
}

fn park_and_wake(n: u64) -> Duration {
    let (there, back) = (Note::new(), Note::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..n {
                there.sleep();
                back.wake();
            }
        });
        time(n, || {
            there.wake();
            back.sleep();
        })
    })
}

/// From the question to the answer of a goroutine that computes without a P, by signal,
/// and from the order to go on until it does: how long each took, in all.
fn stop_and_go(n: u64) -> (Duration, Duration) {
    // So many runners that sysmon itself stops nobody.
    let builder = crate::Builder::new().max_procs(1).max_runners(usize::MAX);
    let runtime = builder.build().unwrap_or_else(|error| panic!("no runtime: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    let here = Arc::new(OnceLock::new());
    let hog = {
        let (stop, here) = (stop.clone(), here.clone());
        runtime.go(move || {
            here.get_or_init(m::current);
            while !stop.load(Ordering::Relaxed) {
                spin_loop();
            }
        })
    };
    let m: &'static M = loop {
        // It has lost its P: after a slice.
        match here.get().copied().flatten().filter(|m| m.lease.is_over()) {
            Some(m) => break m,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let (mut freezing, mut thawing) = (Duration::ZERO, Duration::ZERO);
    let mut done = 0;
    while done < n {
        let start = Instant::now();
        let Some(epoch) = m.freeze.ask() else { continue };
        m.os_thread().interrupt(signal::PREEMPT, signal::our_value(epoch.word()));
        let answer = loop {
            match m.freeze.answer(epoch) {
                Answer::Open => spin_loop(),
                answer => break answer,
            }
        };
        if answer != Answer::Frozen {
            continue; // it was at a place where it must not stop
        }
        freezing += start.elapsed();
        // Until it sleeps in the kernel.
        thread::sleep(Duration::from_micros(100));
        let start = Instant::now();
        if m.freeze.let_go() {
            m.note.wake();
        }
        while m.freeze.stands(epoch) {
            spin_loop();
        }
        thawing += start.elapsed();
        done += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let _ = hog.join();
    (freezing, thawing)
}

/// A goroutine that is asked to leave, and does at its next call of the runtime: to the
/// global queue and back, since nobody else is there.
fn preempt_at_safe_point(n: u64) -> Duration {
    let runtime = crate::Builder::new().max_procs(1).build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).run(|| {
        time(n, || {
            if let Some(m) = m::current() {
                park::set_requests(m.sched, true);
                m.preempt.store(true, Ordering::Relaxed);
            }
            park::safe_point();
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_operation_runs() {
        for (_, op) in super::OPS {
            op(10);
        }
    }
}
