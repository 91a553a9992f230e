//! The table of heist and its peers on one problem.

use super::{Peer, Problem};
use crate::session::{Case, Rounds, Session};
use crate::stats::Summary;
use crate::table::Column::{Left, Right};
use crate::table::{Table, number, plural};

/// How to compare.
pub(super) struct Comparison {
    pub(super) title: String,
    pub(super) problem: &'static Problem,
    /// The size of the problem.
    pub(super) n: u64,
    /// What samples are divided by.
    pub(super) per: f64,
    pub(super) rounds: usize,
    /// The most that heist's median may be of the best peer's, with one worker
    /// and with more.
    pub(super) goals: Option<[f64; 2]>,
    /// Whether a round has so many samples that their tail means something.
    pub(super) tail: bool,
}

impl Comparison {
    /// Has it sampled, for each number of workers.
    pub(super) fn run(self, session: &mut Session) -> Table {
        let title = format!("{} ({})", self.title, plural(self.rounds, "round"));
        let mut columns = vec![Right("procs"), Left("peer"), Right("median"), Right("min")];
        columns.extend(self.tail.then_some(Right("p99")));
        columns.extend([Right("heist/peer"), Left("goal"), Left("")]);
        let mut table = Table::new(title, &columns);
        for procs in session.options.procs.clone() {
            self.run_with(procs, session, &mut table);
        }
        table
    }

    fn run_with(&self, procs: usize, session: &mut Session, table: &mut Table) {
        let case = |peer| Case { problem: self.problem.name.into(), peer, procs, n: self.n };
        let cases: Vec<Case> = self.problem.all_peers().into_iter().map(case).collect();
        let what = plural(procs, "proc");
        let results = session.interleave(&what, &cases, self.rounds);
        let lines: Vec<(Peer, Result<Summary, String>)> = cases
            .iter()
            .zip(results)
            .map(|(case, result)| (case.peer, self.sum_up(result)))
            .collect();
        let median =
            |line: &(Peer, Result<Summary, String>)| line.1.as_ref().ok().map(|s| s.median);
        let heist = lines.first().and_then(median);
        let best = lines[1..]
            .iter()
            .filter_map(|line| Some((line.0, median(line)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        for (i, (peer, line)) in lines.iter().enumerate() {
            let goal = self.goals.map(|goals| goals[usize::from(procs > 1)]);
            let mut cells = vec![if i == 0 { procs.to_string() } else { String::new() }];
            cells.push(peer.to_string());
            match line {
                Ok(summary) => {
                    cells.extend([number(summary.median), number(summary.min)]);
                    cells.extend(self.tail.then(|| number(summary.p99)));
                }
                Err(_) => cells.extend(vec![String::new(); if self.tail { 3 } else { 2 }]),
            }
            let last = match (peer, line, heist, best) {
                (_, Err(reason), ..) => [String::new(), String::new(), reason.clone()],
                (Peer::Heist, Ok(summary), _, Some((who, best))) => {
                    let ratio = summary.median / best;
                    let what = format!("{what}, heist / {who}, the best peer");
                    let word = session.judge(what, ratio, goal, ratio > 1.0);
                    let goal = goal.map_or(String::new(), |goal| format!("≤ {goal}"));
                    [format!("{ratio:.2}"), goal, format!("{word} (best peer: {who})")]
                }
                (peer, Ok(summary), Some(heist), _) if *peer != Peer::Heist => {
                    [format!("{:.2}", heist / summary.median), String::new(), String::new()]
                }
                _ => [const { String::new() }; 3],
            };
            cells.extend(last.map(|cell| cell.trim().to_owned()));
            table.rows.push(cells);
        }
    }

    fn sum_up(&self, rounds: Rounds) -> Result<Summary, String> {
        let samples: Vec<f64> =
            rounds?.into_iter().flatten().map(|sample| sample as f64 / self.per).collect();
        Summary::of(&samples).ok_or_else(|| "no samples".into())
    }
}
