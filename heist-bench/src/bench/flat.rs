//! What a goroutine costs when there are many of them: the same, it is hoped.

use super::gate::HeistGate;
use super::spawn_join::spawn_all;
use super::{Benchmark, Peer, Problem, Round};
use crate::session::{Case, Session};
use crate::stats::Summary;
use crate::table::Column::{Left, Right};
use crate::table::{Table, count, number, plural};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "flat",
    about: "heist only: ns per goroutine for a thousand up to a million",
    run,
};

pub(super) const PROBLEM: Problem =
    Problem { name: "flat", warm_up: true, peers: &[(Peer::Heist, heist)], go: false };

const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Goroutines in a round at least, so that a round of few is long enough.
const AT_LEAST: u64 = 100_000;

/// The most that the dearest size may cost of the cheapest.
const GOAL: f64 = 2.0;

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(9, 3);
    let title = format!("flat: heist, ns per goroutine ({})", plural(rounds, "round"));
    let columns = [
        Right("procs"),
        Right("goroutines"),
        Right("median"),
        Right("min"),
        Right("max/min"),
        Left("goal"),
        Left(""),
    ];
    let mut table = Table::new(title, &columns);
    for procs in session.options.procs.clone() {
        let case = |n| Case { problem: PROBLEM.name.into(), peer: Peer::Heist, procs, n };
        let what = plural(procs, "proc");
        let results = session.interleave(&what, &SIZES.map(case), rounds);
        let lines = SIZES.into_iter().zip(results).map(|(n, result)| {
            let rounds = result?;
            let samples: Vec<f64> =
                rounds.iter().flatten().map(|&nanos| nanos as f64 / n as f64).collect();
            Summary::of(&samples).ok_or_else(|| "no samples".to_owned())
        });
        let lines: Vec<Result<Summary, String>> = lines.collect();
        let medians = lines.iter().flatten().map(|summary| summary.median);
        let most = medians.clone().fold(0.0, f64::max);
        let least = medians.fold(f64::INFINITY, f64::min);
        for (i, (n, line)) in SIZES.into_iter().zip(&lines).enumerate() {
            let mut last = [const { String::new() }; 3];
            if i == 0 && lines.iter().all(Result::is_ok) {
                let ratio = most / least;
                let word = session.judge(format!("{what}, max/min"), ratio, Some(GOAL), false);
                last = [format!("{ratio:.2}"), format!("≤ {GOAL}"), word];
            }
            let numbers = match line {
                Ok(summary) => [number(summary.median), number(summary.min)],
                Err(reason) => {
                    last[2].clone_from(reason);
                    [const { String::new() }; 2]
                }
            };
            let procs = if i == 0 { procs.to_string() } else { String::new() };
            let cells = [vec![procs, count(n)], numbers.into(), last.into()].concat();
            table.rows.push(cells);
        }
    }
    table
}

/// `spawn_join` as often as makes a round, and the time of one.
fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let gate = HeistGate::new();
    let times = AT_LEAST.div_ceil(n).max(1);
    let round = move || (0..times).map(|_| spawn_all(n, gate)).sum::<u64>() / times;
    Box::new(move || vec![runtime.run(round)])
}
