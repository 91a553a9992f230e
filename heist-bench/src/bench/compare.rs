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
    /// The most that heist may take with more workers of what it takes with one, which
    /// are then measured by turns.
    pub(super) growth: Option<f64>,
    /// A round has so many samples that their tail means something, and what it may be.
    pub(super) tail: Option<Goal>,
    /// `plain` does the least that one thread can do: with a goal below that, the table
    /// says so.
    pub(super) floor: bool,
    /// The least that the first measure can be, whoever it is, in the unit of the table: the
    /// same.
    pub(super) least: Option<f64>,
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

/// Of what threads that share nothing gain, heist may leave so much: 0.98 of their speed-up.
const LEFT: f64 = 1.0 / 0.98;

/// What was sampled with one number of workers.
struct Sampled {
    procs: usize,
    peers: Vec<(Peer, Rounds)>,
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
            floor: false,
            least: None,
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
        // What is compared with each other is measured by turns.
        let groups: Vec<&[usize]> = match self.growth {
            Some(_) if !procs.is_empty() => vec![&procs],
            _ => procs.chunks(1).collect(),
        };
        let mut sampled = Vec::new();
        for group in groups {
            sampled.extend(self.run_with(group, session, &mut table));
        }
        if procs.is_empty() {
            table.note(format!("left out: it needs {}", plural(self.fewest_procs, "proc")));
        }
        if let Some(most) = self.growth {
            self.judge_growth(most, &sampled, session, &mut table);
        }
        table
    }

    /// What more workers take of what one does.
    fn judge_growth(
        &self,
        most: f64,
        sampled: &[Sampled],
        session: &mut Session,
        table: &mut Table,
    ) {
        let Some((one, more)) = sampled.split_first().filter(|(one, _)| one.procs == 1) else {
            return;
        };
        for more in more {
            let what = format!("heist, {} / 1 proc", plural(more.procs, "proc"));
            let Some(heist) = self.growth_of(Peer::Heist, one, more) else { continue };
            let word = session.judge(what.clone(), heist, Some(most), false);
            table.note(format!("{what}: {heist:.3}, goal ≤ {most:.3}: {word}"));
            // What the machine itself gives: its CPUs may share more than it says.
            let Some(plain) = self.growth_of(Peer::Plain, one, more) else { continue };
            let value = heist / plain;
            let word = session.judge(format!("{what}, by plain's"), value, Some(LEFT), false);
            let text = format!("plain, cut by hand: {plain:.3}; heist's by that: {value:.3}");
            table.note(format!("{text}, goal ≤ {LEFT:.2}: {word}"));
        }
    }

    /// The median of what more workers take in a round of what one takes in the same round:
    /// whatever slows the machine down for a while slows both.
    fn growth_of(&self, peer: Peer, one: &Sampled, more: &Sampled) -> Option<f64> {
        let rounds = |sampled: &Sampled| -> Option<Vec<f64>> {
            let (_, rounds) = sampled.peers.iter().find(|(who, _)| *who == peer)?;
            let rounds = rounds.as_ref().ok()?;
            rounds.iter().map(|round| Some(self.sum_up_round(round)?.median)).collect()
        };
        let (one, more) = (rounds(one)?, rounds(more)?);
        let ratios: Vec<f64> = more.iter().zip(&one).map(|(more, one)| more / one).collect();
        Some(Summary::of(&ratios)?.median)
    }

    /// A round of the first measure.
    fn sum_up_round(&self, round: &[u64]) -> Option<Summary> {
        let samples = round.iter().step_by(self.measures.len());
        Summary::of(&samples.map(|&sample| sample as f64).collect::<Vec<_>>())
    }

    fn names_measures(&self) -> bool {
        self.measures.len() > 1
    }

    /// With so many workers, by turns.
    fn run_with(&self, procs: &[usize], session: &mut Session, table: &mut Table) -> Vec<Sampled> {
        let problem = &self.problem.name;
        let case = |peer, procs| Case { problem: (*problem).into(), peer, procs, n: self.n };
        let peers = self.problem.all_peers();
        let of = |&procs: &usize| peers.iter().map(move |&peer| case(peer, procs));
        let cases: Vec<Case> = procs.iter().flat_map(of).collect();
        let numbers: Vec<String> = procs.iter().map(usize::to_string).collect();
        let most = procs.last().copied().unwrap_or(1);
        let group = plural(most, "proc").replace(&most.to_string(), &numbers.join(" and "));
        let mut results = session.interleave(&group, &cases, self.rounds).into_iter();
        let mut sampled = Vec::new();
        for &procs in procs {
            let these = peers.iter().copied().zip(results.by_ref()).collect();
            let one = Sampled { procs, peers: these };
            self.tell(&one, session, table);
            sampled.push(one);
        }
        sampled
    }

    /// The rows of one number of workers.
    fn tell(&self, sampled: &Sampled, session: &mut Session, table: &mut Table) {
        let procs = sampled.procs;
        for (i, measure) in self.measures.iter().enumerate() {
            let line = |(peer, rounds): &(Peer, Rounds)| (*peer, self.sum_up(rounds, i));
            let lines: Vec<Line> = sampled.peers.iter().map(line).collect();
            let procs_cell = if i == 0 { procs.to_string() } else { String::new() };
            let verdict = judge(session, procs, measure, &lines);
            self.add_rows(table, procs_cell, measure, &lines, &verdict);
            let bound = if self.floor { bound(&lines, procs) } else { None };
            let least = self.least.filter(|_| i == 0).map(Bound::for_all);
            for bound in bound.into_iter().chain(least) {
                if let Some(note) = bound.note(procs, measure, &lines) {
                    table.note(note);
                }
            }
            if let Some(goal @ (Goal::Of(..) | Goal::OfBest(_) | Goal::AtMost(_))) = self.tail {
                let p99 = |summary: Summary| Summary { median: summary.p99, ..summary };
                let tails: Vec<Line> =
                    lines.into_iter().map(|(who, line)| (who, line.map(p99))).collect();
                let [ratio, text, word] =
                    judge(session, procs, &Measure { name: "p99", goal, ..*measure }, &tails);
                if !text.is_empty() {
                    let procs = plural(procs, "proc");
                    let of_bound = |bound: f64| format!(" ({:.2} of plain's)", bound);
                    let bound = of_plain(&tails).map_or(String::new(), of_bound);
                    table.note(format!("{procs}, p99: {ratio}{bound}, goal {text}: {word}"));
                }
            }
        }
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

/// Less than which nobody takes.
struct Bound {
    who: String,
    least: f64,
    whose: &'static str,
}

/// The least of what the peers take that are bounds.
fn bound(lines: &[Line], procs: usize) -> Option<Bound> {
    let bounds = lines.iter().filter(|line| line.0.is_bound());
    let (who, least) = bounds
        .filter_map(|line| Some((line.0, median(line)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    // Of servers with more threads it is no bound.
    let whose = if procs > 1 { "of one thread" } else { "here" };
    Some(Bound { who: who.to_string(), least, whose })
}

impl Bound {
    fn for_all(least: f64) -> Bound {
        Bound { who: format!("the least, {least},"), least, whose: "here" }
    }

    /// What it takes of what the best peer does, if that is more than heist may.
    fn note(&self, procs: usize, measure: &Measure, lines: &[Line]) -> Option<String> {
        let Goal::OfBest(goals) = measure.goal else { return None };
        let most = goals[usize::from(procs > 1)];
        let best = lines
            .iter()
            .filter(|line| line.0 != Peer::Heist && !line.0.is_bound())
            .filter_map(median)
            .min_by(f64::total_cmp)?;
        let floor = self.least / best;
        if floor <= most {
            return None;
        }
        let name = if measure.name.is_empty() { "" } else { ", " }.to_owned() + measure.name;
        let Bound { who, whose, .. } = self;
        let what = format!("{}{name}: {who} takes {floor:.2}", plural(procs, "proc"));
        Some(format!("{what} of what the best peer does, so {most} is out of reach {whose}"))
    }
}

/// heist's, by the bound.
fn of_plain(lines: &[Line]) -> Option<f64> {
    let plain = lines.iter().find(|line| line.0 == Peer::Plain).and_then(median)?;
    Some(heist(lines)? / plain)
}

/// The last cells of heist's line: the ratio to the best peer, the goal, and how
/// that went.
fn judge(session: &mut Session, procs: usize, measure: &Measure, lines: &[Line]) -> [String; 3] {
    let Some(heist) = heist(lines) else { return [const { String::new() }; 3] };
    let peers = || lines.iter().filter(|line| line.0 != Peer::Heist);
    // A bound is nobody to lose to.
    let peers = || peers().filter(|line| !line.0.is_bound());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(peer: Peer, median: f64) -> Line {
        (peer, Summary::of(&[median]).ok_or_else(String::new))
    }

    #[test]
    fn a_goal_below_the_floor_is_told() {
        let measure = Measure { name: "ns", per: 1.0, goal: Goal::OfBest([0.5, 0.9]) };
        let others = [line(Peer::Heist, 10.0), line(Peer::Tokio, 10.0), line(Peer::May, 20.0)];
        let note = |procs, plain| {
            let lines: Vec<Line> =
                others.iter().cloned().chain([line(Peer::Plain, plain)]).collect();
            bound(&lines, procs)?.note(procs, &measure, &lines)
        };
        assert_eq!(note(2, 9.0), None);
        assert!(note(2, 9.5).is_some_and(|text| text.contains("2 procs, ns: plain takes 0.95")));
        assert!(note(2, 9.5).is_some_and(|text| text.ends_with("out of reach of one thread")));
        assert!(note(1, 6.0).is_some_and(|text| text.ends_with("so 0.5 is out of reach here")));
        assert!(bound(&others, 2).is_none(), "nothing is known");
        assert_eq!(Bound::for_all(5.0).note(1, &measure, &others), None);
        let text = Bound::for_all(6.0).note(1, &measure, &others);
        assert!(text.is_some_and(|text| text.contains("1 proc, ns: the least, 6, takes 0.60")));
    }
}
