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
    pub(super) rounds: usize,
    /// What the samples of a round measure, in turn: with two measures, the
    /// first and the third sample are of the first, the second and the fourth
    /// of the second.
    pub(super) measures: Vec<Measure>,
    /// With fewer workers the problem makes no sense.
    pub(super) fewest_procs: usize,
    /// The most that heist's median with more workers may be of its median with
    /// one.
    pub(super) growth: Option<f64>,
    /// A round has so many samples that their tail means something, and what it may be.
    pub(super) tail: Option<Goal>,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// What distinguishes it from others of the same round; nothing if it is the
    /// only one.
    pub(super) name: &'static str,
    /// What samples are divided by.
    pub(super) per: f64,
    pub(super) goal: Goal,
}

/// The most that heist's median may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    None,
    /// Of the best peer's, with one worker and with more.
    OfBest([f64; 2]),
    /// Of that peer's, whoever is the best.
    Of(Peer, f64),
    /// In the unit of the table, whatever the peers need.
    AtMost(f64),
}

/// What a peer's samples of one measure come down to, or why there are none.
type Line = (Peer, Result<Summary, String>);

impl Comparison {
    /// One measure, any number of workers, no tail.
    pub(super) fn new(
        title: impl Into<String>,
        problem: &'static Problem,
        n: u64,
        rounds: usize,
        per: f64,
        goal: Goal,
    ) -> Comparison {
        Comparison {
            title: title.into(),
            problem,
            n,
            rounds,
            measures: vec![Measure { name: "", per, goal }],
            fewest_procs: 1,
            growth: None,
            tail: None,
        }
    }

    /// Has it sampled, for each number of workers.
    pub(super) fn run(self, session: &mut Session) -> Table {
        let title = format!("{} ({})", self.title, plural(self.rounds, "round"));
        let mut columns = vec![Right("procs")];
        columns.extend(self.names_measures().then_some(Left("what")));
        columns.extend([Left("peer"), Right("median"), Right("min")]);
        columns.extend(self.tail.map(|_| Right("p99")));
        columns.extend([Right("heist/peer"), Left("goal"), Left("")]);
        let mut table = Table::new(title, &columns);
        let mut procs = session.options.procs.clone();
        procs.retain(|&procs| procs >= self.fewest_procs);
        let mut medians = Vec::new();
        for &procs in &procs {
            medians.push((procs, self.run_with(procs, session, &mut table)));
        }
        if procs.is_empty() {
            table.note(format!("left out: it needs {}", plural(self.fewest_procs, "proc")));
        }
        if let (Some(most), Some(&(1, Some(one)))) = (self.growth, medians.first()) {
            for &(procs, more) in &medians[1..] {
                let Some(more) = more else { continue };
                let what = format!("heist, {} / 1 proc", plural(procs, "proc"));
                let word = session.judge(what.clone(), more / one, Some(most), false);
                table.note(format!("{what}: {:.2}, goal ≤ {most}: {word}", more / one));
            }
        }
        table
    }

    fn names_measures(&self) -> bool {
        self.measures.len() > 1
    }

    /// With that many workers; says what heist's median of the first measure is.
    fn run_with(&self, procs: usize, session: &mut Session, table: &mut Table) -> Option<f64> {
        let case = |peer| Case { problem: self.problem.name.into(), peer, procs, n: self.n };
        let cases: Vec<Case> = self.problem.all_peers().into_iter().map(case).collect();
        let results = session.interleave(&plural(procs, "proc"), &cases, self.rounds);
        let mut first = None;
        for (i, measure) in self.measures.iter().enumerate() {
            let lines: Vec<Line> = cases
                .iter()
                .zip(&results)
                .map(|(case, result)| (case.peer, self.sum_up(result, i)))
                .collect();
            let procs_cell = if i == 0 { procs.to_string() } else { String::new() };
            let verdict = judge(session, procs, measure, &lines);
            self.add_rows(table, procs_cell, measure, &lines, &verdict);
            if i == 0 {
                first = heist(&lines);
            }
            if let Some(goal @ (Goal::Of(..) | Goal::OfBest(_) | Goal::AtMost(_))) = self.tail {
                let p99 = |summary: Summary| Summary { median: summary.p99, ..summary };
                let tails: Vec<Line> =
                    lines.into_iter().map(|(who, line)| (who, line.map(p99))).collect();
                let [ratio, text, word] =
                    judge(session, procs, &Measure { name: "p99", goal, ..*measure }, &tails);
                if !text.is_empty() {
                    let procs = plural(procs, "proc");
                    table.note(format!("{procs}, p99: {ratio}, goal {text}: {word}"));
                }
            }
        }
        first
    }

    fn add_rows(
        &self,
        table: &mut Table,
        mut procs_cell: String,
        measure: &Measure,
        lines: &[Line],
        verdict: &[String; 3],
    ) {
        let mut name = measure.name.to_owned();
        let (heist, is_first) = (heist(lines), !procs_cell.is_empty());
        for line in lines {
            let mut cells = vec![std::mem::take(&mut procs_cell)];
            cells.extend(self.names_measures().then(|| std::mem::take(&mut name)));
            cells.push(line.0.to_string());
            match &line.1 {
                Ok(summary) => {
                    cells.extend([number(summary.median), number(summary.min)]);
                    cells.extend(self.tail.map(|_| number(summary.p99)));
                }
                Err(_) => {
                    cells.extend(vec![String::new(); if self.tail.is_some() { 3 } else { 2 }])
                }
            }
            cells.extend(match (line, heist) {
                // Once is enough if there are more measures.
                ((_, Err(reason)), _) => {
                    let reason = if is_first { reason.clone() } else { String::new() };
                    [String::new(), String::new(), reason]
                }
                ((Peer::Heist, Ok(_)), _) => verdict.clone(),
                ((_, Ok(summary)), Some(heist)) => {
                    [format!("{:.2}", heist / summary.median), String::new(), String::new()]
                }
                _ => [const { String::new() }; 3],
            });
            table.rows.push(cells);
        }
    }

    fn sum_up(&self, rounds: &Rounds, measure: usize) -> Result<Summary, String> {
        let per = self.measures[measure].per;
        let samples: Vec<f64> = rounds
            .as_ref()
            .map_err(Clone::clone)?
            .iter()
            .flat_map(|round| round.iter().skip(measure).step_by(self.measures.len()))
            .map(|&sample| sample as f64 / per)
            .collect();
        Summary::of(&samples).ok_or_else(|| "no samples".into())
    }
}

fn median(line: &Line) -> Option<f64> {
    line.1.as_ref().ok().map(|summary| summary.median)
}

fn heist(lines: &[Line]) -> Option<f64> {
    lines.iter().find(|line| line.0 == Peer::Heist).and_then(median)
}

/// The last cells of heist's line: the ratio to the best peer, the goal, and how
/// that went.
fn judge(session: &mut Session, procs: usize, measure: &Measure, lines: &[Line]) -> [String; 3] {
    let Some(heist) = heist(lines) else { return [const { String::new() }; 3] };
    let peers = || lines.iter().filter(|line| line.0 != Peer::Heist);
    // What does not fork is a bound, and nobody to lose to.
    let peers = || peers().filter(|line| line.0 != Peer::Plain);
    let others = || peers().filter_map(|line| Some((line.0, median(line)?)));
    let best = others().min_by(|a, b| a.1.total_cmp(&b.1));
    let lost = best.is_some_and(|(_, best)| heist > best);
    let ratio = best.map_or(String::new(), |(_, best)| format!("{:.2}", heist / best));
    let best_name = best.map_or(String::new(), |(who, _)| format!(" (best peer: {who})"));
    let mut context = plural(procs, "proc");
    if !measure.name.is_empty() {
        context += &format!(", {}", measure.name);
    }
    let (value, goal, what, text) = match (measure.goal, best) {
        (Goal::AtMost(most), _) => {
            (heist, Some(most), format!("{context}, heist"), format!("≤ {most} absolute"))
        }
        (Goal::Of(peer, most), _) => {
            let Some((_, theirs)) = others().find(|(who, _)| *who == peer) else {
                let missing = format!("no {peer} to judge by");
                return [ratio, format!("≤ {most} of {peer}"), missing + &best_name];
            };
            let what = format!("{context}, heist / {peer}");
            (heist / theirs, Some(most), what, format!("≤ {most} of {peer}"))
        }
        (Goal::OfBest(_) | Goal::None, None) => return [const { String::new() }; 3],
        (Goal::OfBest(goals), Some((who, best))) => {
            let most = goals[usize::from(procs > 1)];
            let what = format!("{context}, heist / {who}, the best peer");
            (heist / best, Some(most), what, format!("≤ {most}"))
        }
        (Goal::None, Some((who, best))) => {
            let what = format!("{context}, heist / {who}, the best peer");
            (heist / best, None, what, String::new())
        }
    };
    let word = session.judge(what, value, goal, lost);
    [ratio, text, format!("{word}{best_name}").trim().to_owned()]
}
