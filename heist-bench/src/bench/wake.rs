//! One task sends to another that waits, while nobody else has anything to do.
//! How long until that one has the message, if the sender goes on computing, and
//! if it waits?

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, clock_reading, now};
use crate::session::Session;
use crate::table::Table;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use rustix::thread::sched_getcpu;
use std::hint::spin_loop;
use std::sync::mpsc;
use std::time::Duration;

pub(super) const BENCHMARK_BUSY: Benchmark = Benchmark {
    name: "wake_busy",
    about: "latency from a send to its idle receiver; the sender computes on",
    run: run_busy,
};

pub(super) const BENCHMARK_ELSEWHERE: Benchmark = Benchmark {
    name: "wake_elsewhere",
    about: "wake_busy, of the messages that were received on another CPU than the sender's",
    run: run_elsewhere,
};

pub(super) const BENCHMARK_WAITING: Benchmark = Benchmark {
    name: "wake_waiting",
    about: "latency from a send to its idle receiver; the sender then waits",
    run: run_waiting,
};

pub(super) const PROBLEM_BUSY: Problem = Problem {
    name: "wake_busy",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, BUSY)),
        (Peer::Tokio, |procs, n| tokio(procs, n, BUSY)),
        (Peer::May, |procs, n| may(procs, n, BUSY)),
        (Peer::Threads, |procs, n| threads(procs, n, BUSY)),
    ],
    go: true,
};

pub(super) const PROBLEM_ELSEWHERE: Problem = Problem {
    name: "wake_elsewhere",
    warm_up: true,
    peers: &[(Peer::Heist, heist_elsewhere), (Peer::Threads, threads_elsewhere)],
    go: false,
};

pub(super) const PROBLEM_WAITING: Problem = Problem {
    name: "wake_waiting",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, WAITING)),
        (Peer::Tokio, |procs, n| tokio(procs, n, WAITING)),
        (Peer::May, |procs, n| may(procs, n, WAITING)),
        (Peer::Plain, |_, n| plain(n, WAITING)),
    ],
    go: true,
};

/// What a sender computes before and after it sends.
#[derive(Clone, Copy)]
struct Work {
    before: Duration,
    after: Duration,
}

/// The most nanoseconds that the median message of heist may take to a receiver
/// for whom the sender makes way.
const GOAL_WAITING: f64 = 60.0;

/// Long enough for who waits for the sender to stop to be told apart from who
/// does not. It is also the idleness before the next message.
const BUSY: Work = Work { before: Duration::ZERO, after: Duration::from_millis(5) };

/// The other workers find nothing to do meanwhile and go to sleep.
const WAITING: Work = Work { before: Duration::from_micros(50), after: Duration::ZERO };

fn run_busy(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let n = 30;
    let title = format!(
        "wake_busy: µs from a send to its receiver, the sender computes on for {} ms",
        BUSY.after.as_millis()
    );
    let goal = Goal::Of(Peer::Threads, 1.0);
    let mut comparison = Comparison::new(title, &PROBLEM_BUSY, n, rounds, 1000.0, goal);
    comparison.tail = Some(Goal::None);
    // With one there is nobody to run the receiver.
    comparison.fewest_procs = 2;
    comparison.run(session)
}

fn run_elsewhere(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = format!(
        "wake_elsewhere: µs from a send to a receiver on another CPU, the sender computes on for \
         {} ms",
        BUSY.after.as_millis()
    );
    let goal = Goal::Of(Peer::Threads, 1.0);
    let mut comparison = Comparison::new(title, &PROBLEM_ELSEWHERE, 30, rounds, 1000.0, goal);
    comparison.tail = Some(Goal::None);
    comparison.fewest_procs = 2;
    let mut table = comparison.run(session);
    table.note(
        "where a receiver wakes up is the kernel's to say: on the sender's CPU, whose place it \
         takes, it is there in a few µs",
    );
    table
}

fn run_waiting(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = format!(
        "wake_waiting: ns from a send to its receiver, the sender waits; {} µs of computing before",
        WAITING.before.as_micros()
    );
    let reading = clock_reading();
    let goal = Goal::AtMost((GOAL_WAITING + reading).round());
    let mut comparison = Comparison::new(title, &PROBLEM_WAITING, 500, rounds, 1.0, goal);
    comparison.tail = Some(Goal::None);
    let mut table = comparison.run(session);
    table.note(format!(
        "the goal is {GOAL_WAITING} ns and a reading of the clock, which takes {reading:.0} ns and \
         is in every line"
    ));
    table.note("plain: a loop on one thread that switches from one stack to the other");
    table
}

/// Computes.
fn compute(duration: Duration) {
    // Or nothing would be two readings of the clock, in a latency of about one.
    if duration.is_zero() {
        return;
    }
    let end = now() + duration.as_nanos() as u64;
    while now() < end {
        spin_loop();
    }
}

// The message is when it was sent; the answer is how long it took.

fn heist(procs: usize, n: u64, work: Work) -> Round {
    let runtime = super::heist_runtime(procs);
    let send_all = move || {
        let (message, messages) = heist::chan::bounded(1);
        let (answer, answers) = heist::chan::bounded(1);
        drop(heist::go(move || {
            for sent in messages {
                answer.send(now() - sent).expect("it is received");
            }
        }));
        let send = |_| {
            compute(work.before);
            message.send(now()).expect("it is received");
            compute(work.after);
            answers.recv().expect("it is answered")
        };
        (0..n).map(send).collect()
    };
    Box::new(move || runtime.run(send_all))
}

fn tokio(procs: usize, n: u64, work: Work) -> Round {
    let runtime = super::tokio_runtime(procs);
    let send_all = move || async move {
        let (message, mut messages) = tokio::sync::mpsc::channel(1);
        let (answer, mut answers) = tokio::sync::mpsc::channel(1);
        drop(tokio::spawn(async move {
            while let Some(sent) = messages.recv().await {
                answer.send(now() - sent).await.expect("it is received");
            }
        }));
        let mut latencies = Vec::new();
        for _ in 0..n {
            compute(work.before);
            message.send(now()).await.expect("it is received");
            compute(work.after);
            latencies.push(answers.recv().await.expect("it is answered"));
        }
        latencies
    };
    Box::new(move || super::on_tokio(&runtime, send_all()))
}

fn may(procs: usize, n: u64, work: Work) -> Round {
    super::set_up_may(procs);
    let send_all = move || {
        let (message, messages) = may::sync::spsc::channel();
        let (answer, answers) = may::sync::spsc::channel();
        drop(may::go!(move || {
            for sent in messages {
                answer.send(now() - sent).expect("it is received");
            }
        }));
        let send = |_| {
            compute(work.before);
            message.send(now()).expect("it is received");
            compute(work.after);
            answers.recv().expect("it is answered")
        };
        (0..n).map(send).collect()
    };
    Box::new(move || super::on_may(send_all))
}

/// Two stacks on one thread, and a loop that goes from the one to the other: what is left
/// without channels and without a choice of whom to run.
fn plain(n: u64, work: Work) -> Round {
    Box::new(move || {
        let mut sender = Coroutine::new(move |loop_: &Yielder<u64, u64>, _| -> Vec<u64> {
            let send = |_| {
                compute(work.before);
                let latency = loop_.suspend(now());
                compute(work.after);
                latency
            };
            (0..n).map(send).collect()
        });
        let mut receiver = Coroutine::new(|loop_: &Yielder<u64, u64>, mut sent: u64| {
            loop {
                sent = loop_.suspend(now() - sent);
            }
        });
        let mut latency = 0;
        loop {
            latency = match sender.resume(latency) {
                CoroutineResult::Yield(sent) => match receiver.resume(sent) {
                    CoroutineResult::Yield(latency) => latency,
                    CoroutineResult::Return(never) => never,
                },
                CoroutineResult::Return(latencies) => return latencies,
            };
        }
    })
}

/// A message that says when it was sent and where.
#[derive(Clone, Copy)]
struct Letter {
    sent: u64,
    cpu: usize,
}

impl Letter {
    fn now() -> Letter {
        Letter { cpu: sched_getcpu(), sent: now() }
    }

    /// How long it took, if it came to another CPU.
    fn elsewhere(self) -> Option<u64> {
        let latency = now() - self.sent;
        (sched_getcpu() != self.cpu).then_some(latency)
    }
}

/// `n` latencies of letters that came elsewhere, or fewer, if most do not.
fn letters(n: u64, mut send: impl FnMut() -> Option<u64>) -> Vec<u64> {
    (0..4 * n).filter_map(|_| send()).take(n as usize).collect()
}

fn heist_elsewhere(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let send_all = move || {
        let (letter, post) = heist::chan::bounded::<Letter>(1);
        let (answer, answers) = heist::chan::bounded(1);
        drop(heist::go(move || {
            for letter in post {
                answer.send(letter.elsewhere()).expect("it is received");
            }
        }));
        letters(n, || {
            letter.send(Letter::now()).expect("it is received");
            compute(BUSY.after);
            answers.recv().expect("it is answered")
        })
    };
    Box::new(move || runtime.run(send_all))
}

fn threads_elsewhere(procs: usize, n: u64) -> Round {
    let send_all = move || {
        let (letter, post) = mpsc::sync_channel::<Letter>(1);
        let (answer, answers) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for letter in post {
                answer.send(letter.elsewhere()).expect("it is received");
            }
        });
        letters(n, || {
            letter.send(Letter::now()).expect("it is received");
            compute(BUSY.after);
            answers.recv().expect("it is answered")
        })
    };
    Box::new(move || super::on_threads(procs, send_all))
}

/// OS threads and std's channels.
fn threads(procs: usize, n: u64, work: Work) -> Round {
    let send_all = move || {
        let (message, messages) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for sent in messages {
                answer.send(now() - sent).expect("it is received");
            }
        });
        let send = |_| {
            compute(work.before);
            message.send(now()).expect("it is received");
            compute(work.after);
            answers.recv().expect("it is answered")
        };
        (0..n).map(send).collect()
    };
    Box::new(move || super::on_threads(procs, send_all))
}
