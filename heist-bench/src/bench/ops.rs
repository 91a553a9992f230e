//! What single operations of heist's scheduler cost.

use super::gate::HeistGate;
use super::{Benchmark, Peer, Round, heist_runtime};
use crate::session::{Case, Session};
use crate::stats::Summary;
use crate::table::Column::{Left, Right};
use crate::table::{Table, number, plural};
use heist::thread::{self, Thread};
use std::collections::HashMap;
use std::hint::{black_box, spin_loop};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "ops", about: "heist only: ns of single scheduler operations", run };

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) name: &'static str,
    about: &'static str,
    procs: usize,
    /// Does so many of them and says how long that took. It makes its own
    /// runtime and warms it up, neither of which counts.
    pub(super) run: fn(iterations: u64) -> Duration,
}

/// Those that the public interface reaches.
const PUBLIC: &[Op] = &[
    Op { name: "spawn", about: "spawn, run and finish, 100 at a time", procs: 1, run: spawn },
    Op {
        name: "spawn_join",
        about: "spawn one, which is the next to run, and join it",
        procs: 1,
        run: spawn_join,
    },
    Op { name: "yield_alone", about: "yield with nobody else there", procs: 1, run: yield_alone },
    Op { name: "yield", about: "yield to another that yields too", procs: 1, run: yield_to_other },
    Op {
        name: "park_unpark",
        about: "unpark another, park, be unparked: a round trip",
        procs: 1,
        run: |n| ping_pong(1, n),
    },
    Op { name: "park_unpark_2", about: "the same round trip", procs: 2, run: |n| ping_pong(2, n) },
    Op { name: "call", about: "a call that is not declared", procs: 1, run: bare_call },
    Op { name: "syscall", about: "the same, declared: entry and exit", procs: 1, run: syscall },
    Op {
        name: "blocking",
        about: "the same, but its P goes to another thread",
        procs: 1,
        run: blocking,
    },
    Op {
        name: "chan_trip",
        about: "a ball there and back over rendezvous channels",
        procs: 1,
        run: |n| over_channels(n, false),
    },
    Op {
        name: "chan_trip_guarded",
        about: "the same with Builder::tls_guard",
        procs: 1,
        run: |n| over_channels(n, true),
    },
    Op { name: "scope", about: "thread::scope with two goroutines in it", procs: 1, run: scope },
    Op {
        name: "foreign",
        about: "spawn from a foreign OS thread and join there",
        procs: 1,
        run: foreign,
    },
    Op {
        name: "wake_idle",
        about: "spawn after 1 ms of idleness and compute on, until it runs elsewhere",
        procs: 2,
        run: wake_idle,
    },
];

/// All of them: also those that heist exports for this table only, which need no
/// runtime.
fn all() -> Vec<Op> {
    let inner = |(name, run)| Op { name, about: "inside the scheduler", procs: 1, run };
    PUBLIC.iter().copied().chain(heist::ops::OPS.map(inner)).collect()
}

/// What the names of these problems begin with.
const PREFIX: &str = "ops:";

/// The operation that a problem of that name is about.
pub(super) fn of_problem(problem: &str) -> Option<Op> {
    named(problem.strip_prefix(PREFIX)?)
}

pub(super) fn named(name: &str) -> Option<Op> {
    all().into_iter().find(|op| op.name == name)
}

/// How long a round takes at least.
const LONG_ENOUGH: Duration = Duration::from_millis(15);

/// A round of a sampling process: the time of `n`, from as many as take long
/// enough.
pub(super) fn round(op: Op, n: u64) -> Round {
    let mut iterations = 1;
    while iterations < 1 << 40 {
        let begin = Instant::now();
        (op.run)(iterations);
        if begin.elapsed() >= LONG_ENOUGH {
            break;
        }
        iterations *= 2;
    }
    let per = move |time: Duration| time.as_nanos() as f64 / iterations as f64;
    Box::new(move || vec![(per((op.run)(iterations)) * n as f64) as u64])
}

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(15, 5);
    let title = format!("ops: heist, ns per operation ({})", plural(rounds, "round"));
    let columns = [Left("operation"), Right("procs"), Right("median"), Right("min"), Left("")];
    let mut table = Table::new(title, &columns);
    let ops = all();
    let case = |op: &Op| Case {
        problem: format!("{PREFIX}{}", op.name),
        peer: Peer::Heist,
        procs: op.procs,
        n: 1000,
    };
    let cases: Vec<Case> = ops.iter().map(case).collect();
    let results = session.interleave("all operations", &cases, rounds);
    let mut medians = HashMap::new();
    for ((op, case), result) in ops.iter().zip(cases).zip(results) {
        let per = |nanos: u64| nanos as f64 / case.n as f64;
        let samples = result.map(|rounds| rounds.into_iter().flatten().map(per).collect());
        let [median, min, last] = match samples.map(|samples: Vec<f64>| Summary::of(&samples)) {
            Ok(Some(s)) => {
                medians.insert(op.name, s.median);
                [number(s.median), number(s.min), op.about.to_owned()]
            }
            Ok(None) => [String::new(), String::new(), "no samples".into()],
            Err(reason) => [String::new(), String::new(), reason],
        };
        table.row([op.name.to_owned(), op.procs.to_string(), median, min, last]);
    }
    if let (Some(bare), Some(declared)) = (medians.get("call"), medians.get("syscall")) {
        let (what, over) = ("a declared call over a bare one, ns", declared - bare);
        let word = session.judge(what.into(), over, Some(DECLARED), false);
        table.note(format!("{what}: {over:.1}, goal ≤ {DECLARED}: {word}"));
    }
    let trips = (medians.get("chan_trip"), medians.get("chan_trip_guarded"));
    if let (Some(plain), Some(guarded)) = trips {
        let ratio = guarded / plain;
        let is = if ratio < GUARDED { "under" } else { "not under" };
        table.note(format!(
            "the guard of thread-locals: {ratio:.3} of a round trip without; it would be the \
             default under {GUARDED}: it is {is} that"
        ));
    }
    table
}

/// The most nanoseconds that declaring a call may cost.
const DECLARED: f64 = 10.0;

/// The guard of thread-locals is on by default if a round trip with it takes less than
/// this much of one without.
const GUARDED: f64 = 1.05;

/// How many operations warm up. Not a share of what is measured: the count of
/// instructions relies on a constant.
const WARM_UP: u64 = 1000;

/// Runs `work` on a goroutine of a new runtime: once to warm up, once for good.
fn measure<W>(procs: usize, iterations: u64, work: W) -> Duration
where
    W: Fn(u64) + Send + Sync,
{
    heist_runtime(procs).run(|| {
        work(WARM_UP);
        let begin = Instant::now();
        work(iterations);
        begin.elapsed()
    })
}

fn spawn(iterations: u64) -> Duration {
    const BATCH: u64 = 100;
    let gate = HeistGate::new();
    measure(1, iterations, |n| {
        for batch in super::batches(n, BATCH) {
            gate.close_for_me(batch);
            for _ in 0..batch {
                drop(heist::go(|| gate.done()));
            }
            gate.wait();
        }
    })
}

fn spawn_join(iterations: u64) -> Duration {
    measure(1, iterations, |n| {
        for i in 0..n {
            let same = heist::go(move || i).join();
            assert_eq!(same.ok(), Some(i));
        }
    })
}

fn yield_alone(iterations: u64) -> Duration {
    measure(1, iterations, |n| (0..n).for_each(|_| thread::yield_now()))
}

fn syscall(iterations: u64) -> Duration {
    measure(1, iterations, |n| (0..n).for_each(|i| _ = heist::syscall(|| black_box(i))))
}

/// What [`syscall`] does, without saying so.
fn bare_call(iterations: u64) -> Duration {
    measure(1, iterations, |n| (0..n).for_each(|i| _ = black_box(|| black_box(i))()))
}

/// As the benchmark `pingpong`.
fn over_channels(iterations: u64, guard: bool) -> Duration {
    let runtime = heist::Builder::new().max_procs(1).tls_guard(guard).build();
    let work = |n: u64| {
        let (ping, pings) = heist::chan::bounded(0);
        let (pong, pongs) = heist::chan::bounded(0);
        let partner = heist::go(move || {
            for ball in pings {
                pong.send(ball).expect("it is received");
            }
        });
        for ball in 0..n {
            ping.send(ball).expect("it is received");
            assert_eq!(pongs.recv(), Ok(ball));
        }
        drop(ping);
        partner.join().expect("it only plays");
    };
    runtime.expect("a runtime").run(|| {
        work(WARM_UP);
        let begin = Instant::now();
        work(iterations);
        begin.elapsed()
    })
}

fn blocking(iterations: u64) -> Duration {
    measure(1, iterations, |n| (0..n).for_each(|i| _ = heist::blocking(|| black_box(i))))
}

/// Both yield, so half of the yields are each one's.
fn yield_to_other(iterations: u64) -> Duration {
    measure(1, iterations, |n| {
        let other = heist::go(move || (0..n / 2).for_each(|_| thread::yield_now()));
        (0..n.div_ceil(2)).for_each(|_| thread::yield_now());
        other.join().expect("no panic");
    })
}

/// Two goroutines that pass a number back and forth.
struct Court {
    /// Even: the ball is on the first one's side.
    hits: AtomicU64,
    first: OnceLock<Thread>,
}

impl Court {
    /// Waits for the ball to have been hit so often.
    fn wait_for(&self, hits: u64) {
        while self.hits.load(Ordering::Acquire) < hits {
            thread::park();
        }
    }

    fn hit(&self, to: &Thread) {
        self.hits.fetch_add(1, Ordering::AcqRel);
        to.unpark();
    }
}

fn ping_pong(procs: usize, iterations: u64) -> Duration {
    measure(procs, iterations, |n| {
        let court = Court { hits: AtomicU64::new(0), first: OnceLock::new() };
        thread::scope(|scope| {
            let first = court.first.get_or_init(thread::current);
            let court = &court;
            let second = scope.spawn(move || {
                for i in 0..n {
                    court.wait_for(2 * i + 1);
                    court.hit(first);
                }
            });
            for i in 0..n {
                court.hit(second.thread());
                court.wait_for(2 * i + 2);
            }
        });
    })
}

fn scope(iterations: u64) -> Duration {
    measure(1, iterations, |n| {
        for i in 0..n {
            let (mut a, mut b) = (0, 0);
            thread::scope(|scope| {
                scope.spawn(|| a = i);
                scope.spawn(|| b = i);
            });
            assert_eq!(a + b, 2 * i);
        }
    })
}

fn foreign(iterations: u64) -> Duration {
    let runtime = heist_runtime(1);
    let work = |n: u64| {
        for i in 0..n {
            assert_eq!(runtime.go(move || i).join().ok(), Some(i));
        }
    };
    work(WARM_UP / 10);
    let begin = Instant::now();
    work(iterations);
    begin.elapsed()
}

/// The sum of the times from spawn to start.
fn wake_idle(iterations: u64) -> Duration {
    let runtime = heist_runtime(2);
    let latency = || {
        std::thread::sleep(Duration::from_millis(1));
        runtime.run(|| {
            let begin = Instant::now();
            let other = heist::go(move || begin.elapsed());
            // A computation that others cannot interrupt, but not for ever: if
            // nobody took the other one in all that time, it runs here.
            while !other.is_finished() && begin.elapsed() < Duration::from_millis(100) {
                spin_loop();
            }
            other.join().expect("no panic")
        })
    };
    let latencies = |n: u64| (0..n).map(|_| latency()).sum();
    let _warm_up: Duration = latencies(WARM_UP / 100);
    latencies(iterations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_do_what_they_count() {
        for op in all() {
            assert!((op.run)(10) > Duration::ZERO, "{}", op.name);
            assert!(of_problem(&format!("{PREFIX}{}", op.name)).is_some());
        }
        assert!(of_problem("spawn").is_none());
    }
}
