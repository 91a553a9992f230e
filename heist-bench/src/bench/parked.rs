//! Memory of tasks that wait.

use super::{Benchmark, Peer, Problem, Round};
use crate::session::{Case, Rounds, Session};
use crate::stats::Summary;
use crate::system::{self, Memory};
use crate::table::Column::{Left, Right};
use crate::table::{Table, count, plural};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "parked",
    about: "resident bytes per parked task, for 100,000 and for a million",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "parked",
    warm_up: false,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// The most resident bytes for a goroutine of heist.
const GOAL: f64 = 4600.0;

/// Rather more than any peer takes for a task, to know if the machine has it.
const ENOUGH: u64 = 10 << 10;

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(3, 1).min(3);
    let procs = session.options.procs[0];
    let title = format!(
        "parked: bytes per parked task, {} ({})",
        plural(procs, "proc"),
        plural(rounds, "round")
    );
    let mut table = memory_table(title);
    let sizes: &[u64] = if session.options.quick { &[100_000] } else { &[100_000, 1_000_000] };
    for &n in sizes {
        if system::available() < n * ENOUGH {
            let need =
                format!("skipped: needs {} GiB of free memory", (n * ENOUGH).div_ceil(1 << 30));
            table.row([count(n), "all".into(), String::new(), String::new(), String::new(), need]);
            continue;
        }
        let rounds = if n > 100_000 { 1 } else { rounds };
        memory_rows(session, &mut table, &PROBLEM, procs, n, rounds, GOAL);
    }
    if sizes.len() > 1 && rounds > 1 {
        table.note("a million in one round only: it takes seconds and varies little");
    }
    table.note("tables: page tables (VmPTE), which the resident set does not contain");
    table
}

/// A table for [`memory_rows`].
pub(super) fn memory_table(title: String) -> Table {
    let columns =
        [Right("tasks"), Left("peer"), Right("resident"), Right("tables"), Left("goal"), Left("")];
    Table::new(title, &columns)
}

/// Rows of memory per task for all peers, and heist's verdict.
pub(super) fn memory_rows(
    session: &mut Session,
    table: &mut Table,
    problem: &Problem,
    procs: usize,
    n: u64,
    rounds: usize,
    goal: f64,
) {
    let case = |peer| Case { problem: problem.name.into(), peer, procs, n };
    let cases: Vec<Case> = problem.all_peers().into_iter().map(case).collect();
    let what = format!("{} tasks", count(n));
    let results = session.interleave(&what, &cases, rounds);
    for (i, (case, result)) in cases.iter().zip(&results).enumerate() {
        let tasks = if i == 0 { count(n) } else { String::new() };
        let bytes = |column| median(result, column).map(|bytes| bytes / n as f64);
        let cell = |column| bytes(column).map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let (goal, last) = match (case.peer, bytes(0), result) {
            (_, _, Err(reason)) => (String::new(), reason.clone()),
            (Peer::Heist, Some(bytes), _) => {
                let what = format!("{what}, bytes");
                let word = session.judge(what, bytes, Some(goal), false);
                (format!("≤ {goal}"), word)
            }
            _ => (String::new(), String::new()),
        };
        table.row([tasks, case.peer.to_string(), cell(0), cell(1), goal, last]);
    }
}

/// The median over rounds of one of their numbers.
fn median(rounds: &Rounds, column: usize) -> Option<f64> {
    let rounds = rounds.as_ref().ok()?;
    let samples: Vec<f64> =
        rounds.iter().filter_map(|round| round.get(column)).map(|&bytes| bytes as f64).collect();
    Some(Summary::of(&samples)?.median)
}

/// How many tasks have got as far as to wait.
#[derive(Default)]
pub(super) struct Waiting(AtomicU64);

impl Waiting {
    pub(super) fn new() -> &'static Waiting {
        Box::leak(Box::default())
    }

    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for `n`, and a little longer: the last ones count before they wait.
    fn reach(&self, n: u64) {
        while self.0.load(Ordering::Relaxed) < n {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(50));
    }
}

/// A round: the growth while `park_all` spawns `n` tasks and all of them wait.
pub(super) fn growth(
    waiting: &'static Waiting,
    n: u64,
    mut park_all: impl FnMut() + 'static,
) -> Round {
    Box::new(move || {
        let before = Memory::now();
        park_all();
        waiting.reach(n);
        Memory::now().since(before)
    })
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let waiting = Waiting::new();
    runtime.run(|| ());
    growth(waiting, n, move || {
        runtime.run(|| {
            for _ in 0..n {
                drop(heist::go(|| {
                    waiting.one_more();
                    loop {
                        heist::thread::park();
                    }
                }));
            }
        });
    })
}

/// Each task awaits a `Notify` that all share.
fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let (waiting, notify) = (Waiting::new(), super::gate::notify());
    super::on_tokio(&runtime, async {});
    growth(waiting, n, move || {
        super::on_tokio(&runtime, async move {
            for _ in 0..n {
                drop(tokio::spawn(async {
                    waiting.one_more();
                    notify.notified().await;
                }));
            }
        });
    })
}

fn may(procs: usize, n: u64) -> Round {
    super::may_must_hold(n);
    super::set_up_may(procs);
    let waiting = Waiting::new();
    super::on_may(|| ());
    growth(waiting, n, move || {
        super::on_may(move || {
            for _ in 0..n {
                drop(may::go!(|| {
                    waiting.one_more();
                    loop {
                        may::coroutine::park();
                    }
                }));
            }
        });
    })
}
