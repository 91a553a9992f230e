//! One run: interleaves rounds, collects samples and verdicts.

use crate::bench::{self, Benchmark, Peer};
use crate::child::Sampler;
use crate::cli::Options;
use crate::golang::Program;
use crate::json::Json;
use crate::progress::Progress;
use crate::system;
use crate::table::plural;
use std::path::PathBuf;
use std::process::Command;

/// What one process measures.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) problem: String,
    pub(crate) peer: Peer,
    pub(crate) procs: usize,
    pub(crate) n: u64,
}

/// The samples of each round, or why there are none.
pub(crate) type Rounds = Result<Vec<Vec<u64>>, String>;

/// How a number compares with its goal.
#[derive(Debug)]
struct Verdict {
    benchmark: &'static str,
    what: String,
    value: f64,
    goal: Option<f64>,
    /// A peer did better, goal or not.
    lost: bool,
}

impl Verdict {
    fn missed(&self) -> bool {
        self.goal.is_some_and(|goal| self.value > goal)
    }
}

pub(crate) struct Session {
    pub(crate) options: Options,
    executable: PathBuf,
    go: Program,
    progress: Progress,
    benchmark: &'static str,
    records: Vec<(&'static str, Case, Rounds)>,
    verdicts: Vec<Verdict>,
    /// What went wrong with heist.
    failures: Vec<String>,
}

impl Session {
    pub(crate) fn new(options: Options, go: Program) -> Session {
        // Linux keeps this name valid even if the file is replaced meanwhile.
        let executable = PathBuf::from("/proc/self/exe");
        Session {
            options,
            executable: std::env::current_exe().unwrap_or(executable),
            go,
            progress: Progress::new(),
            benchmark: "",
            records: Vec::new(),
            verdicts: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// What runs where.
    pub(crate) fn headline(&self) -> String {
        let peers: Vec<String> = ["tokio", "may", "rayon"]
            .into_iter()
            .map(|name| format!("{name} {}", bench::version_of(name)))
            .collect();
        let quick = if self.options.quick { "\nquick run: take it as a hint" } else { "" };
        format!(
            "heist {} against {}, Go: {}\n{}{quick}",
            env!("CARGO_PKG_VERSION"),
            peers.join(", "),
            self.go.version(),
            system::describe(),
        )
    }

    pub(crate) fn benchmarks(&self) -> Vec<&'static Benchmark> {
        self.options.benchmarks.clone()
    }

    /// This program.
    pub(crate) fn executable(&self) -> &std::path::Path {
        &self.executable
    }

    /// A benchmark begins.
    pub(crate) fn begin(&mut self, i: usize, name: &'static str) {
        self.benchmark = name;
        let of = self.options.benchmarks.len();
        self.progress.heading(format!("[{}/{of}] {name}", i + 1));
    }

    /// A benchmark ends.
    pub(crate) fn end(&self) {
        self.progress.clear();
    }

    /// A value for a full run or one for a quick run.
    pub(crate) fn size(&self, full: u64, quick: u64) -> u64 {
        if self.options.quick { quick } else { full }
    }

    /// A number of rounds, unless the user wants another.
    pub(crate) fn rounds(&self, full: usize, quick: usize) -> usize {
        self.options.rounds.unwrap_or(if self.options.quick { quick } else { full })
    }

    /// Something happens that is not a sample.
    pub(crate) fn announce(&self, what: &str) {
        self.progress.group(what);
        self.progress.step(what);
    }

    /// Runs rounds of all cases in turn: A B C, A B C, and so on. A case that
    /// fails takes no further part.
    pub(crate) fn interleave(&mut self, group: &str, cases: &[Case], rounds: usize) -> Vec<Rounds> {
        self.progress.group(group);
        let mut samplers: Vec<Option<Sampler>> = Vec::new();
        let mut results: Vec<Rounds> = Vec::new();
        for case in cases {
            let sampler = if case.stays() {
                self.progress.step(&format!("{group}: {} warms up", self.label(case)));
                self.start(case).map(Some)
            } else {
                Ok(None)
            };
            results.push(sampler.as_ref().map(|_| Vec::new()).map_err(Clone::clone));
            samplers.push(sampler.unwrap_or_default());
        }
        for round in 1..=rounds {
            for ((case, sampler), result) in cases.iter().zip(&mut samplers).zip(&mut results) {
                let Ok(samples) = result else { continue };
                let label = self.label(case);
                self.progress.step(&format!("{group}: round {round} of {rounds}, {label}"));
                let answer = match sampler {
                    Some(sampler) => sampler.round(),
                    None => self.start(case).and_then(|mut sampler| sampler.round()),
                };
                match answer {
                    Ok(answer) => samples.push(answer),
                    Err(reason) => {
                        *sampler = None;
                        *result = Err(reason);
                    }
                }
            }
        }
        for (case, result) in cases.iter().zip(&results) {
            if let (Peer::Heist, Err(reason)) = (case.peer, result) {
                let (problem, procs, n) = (&case.problem, case.procs, case.n);
                self.fail(format!("__sample {problem} heist {procs} {n}: {reason}"));
            }
            self.records.push((self.benchmark, case.clone(), result.clone()));
        }
        results
    }

    /// What distinguishes a case from the others of its benchmark.
    fn label(&self, case: &Case) -> String {
        match case.problem == self.benchmark {
            true => case.peer.to_string(),
            false => case.problem.clone(),
        }
    }

    fn start(&self, case: &Case) -> Result<Sampler, String> {
        let (procs, n) = (case.procs.to_string(), case.n.to_string());
        let mut command = match case.peer {
            Peer::Go => {
                let mut command = Command::new(self.go.binary()?);
                command.args([&case.problem, &n]).env("GOMAXPROCS", &procs);
                command
            }
            peer => {
                let mut command = Command::new(&self.executable);
                command.args(["__sample", &case.problem, peer.name(), &procs, &n]);
                command
            }
        };
        // What the user has set for other programs is not what is measured.
        for variable in ["HEISTDEBUG", "HEIST_MAX_PROCS", "GODEBUG", "GOGC", "GOMEMLIMIT"] {
            command.env_remove(variable);
        }
        command.env(crate::load::PROGRAM, &self.executable);
        // The message of a panic is what is reported.
        command.env("RUST_BACKTRACE", "0");
        Sampler::start(command)
    }

    /// heist failed.
    pub(crate) fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    pub(crate) fn heist_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Notes how a number compares with its goal, and says it in a word or two.
    pub(crate) fn judge(
        &mut self,
        what: String,
        value: f64,
        goal: Option<f64>,
        lost: bool,
    ) -> String {
        let verdict = Verdict { benchmark: self.benchmark, what, value, goal, lost };
        let text = match (goal, verdict.missed(), lost) {
            (_, _, true) => "LOST",
            (_, true, false) => "MISSED",
            (Some(_), false, false) => "met",
            (None, ..) => "",
        };
        self.verdicts.push(verdict);
        text.to_owned()
    }

    /// What it comes down to.
    pub(crate) fn summary(&self) -> String {
        let goals: Vec<&Verdict> = self.verdicts.iter().filter(|v| v.goal.is_some()).collect();
        let met = goals.iter().filter(|v| !v.missed()).count();
        let mut text = match goals.len() {
            0 => "no goals among these".to_owned(),
            n => format!("{met} of {} met", plural(n, "goal")),
        };
        for v in &self.verdicts {
            let name = format!("{}, {}", v.benchmark, v.what);
            match v.goal {
                Some(goal) if v.missed() => {
                    let lost = if v.lost { "LOST" } else { "MISSED" };
                    text += &format!("\n  {lost}: {name}: {:.2}, goal at most {goal}", v.value);
                }
                Some(goal) if v.lost => {
                    let met = format!("goal at most {goal}: met");
                    text += &format!("\n  LOST: {name}: {:.2}, {met}", v.value);
                }
                None if v.lost => {
                    text += &format!("\n  LOST: {name}: {:.2} (no goal)", v.value);
                }
                _ => {}
            }
        }
        for failure in &self.failures {
            text += &format!("\n  FAILED: {failure}");
        }
        text
    }

    /// Everything that was measured.
    pub(crate) fn to_json(&self) -> String {
        let samples = self.records.iter().map(|(benchmark, case, result)| {
            let (rounds, failure) = match result {
                Ok(rounds) => (Json::List(rounds.iter().map(|r| numbers(r)).collect()), Json::Null),
                Err(reason) => (Json::List(Vec::new()), reason.as_str().into()),
            };
            Json::Object(vec![
                ("benchmark", (*benchmark).into()),
                ("problem", case.problem.as_str().into()),
                ("peer", case.peer.name().into()),
                ("procs", (case.procs as f64).into()),
                ("n", (case.n as f64).into()),
                ("rounds", rounds),
                ("failure", failure),
            ])
        });
        let verdicts = self.verdicts.iter().map(|v| {
            Json::Object(vec![
                ("benchmark", v.benchmark.into()),
                ("what", v.what.as_str().into()),
                ("value", v.value.into()),
                ("goal", v.goal.map_or(Json::Null, Json::from)),
                ("met", v.goal.map_or(Json::Null, |_| Json::Bool(!v.missed()))),
                ("lost", Json::Bool(v.lost)),
            ])
        });
        let failures = self.failures.iter().map(|failure| failure.as_str().into());
        let json = Json::Object(vec![
            ("machine", system::describe().as_str().into()),
            ("heist", env!("CARGO_PKG_VERSION").into()),
            ("go", self.go.version().into()),
            ("quick", Json::Bool(self.options.quick)),
            ("samples", Json::List(samples.collect())),
            ("verdicts", Json::List(verdicts.collect())),
            ("failures", Json::List(failures.collect())),
        ]);
        format!("{json}\n")
    }
}

impl Case {
    /// Whether its process stays for the next round.
    fn stays(&self) -> bool {
        bench::warms_up(&self.problem)
    }
}

fn numbers(samples: &[u64]) -> Json {
    Json::List(samples.iter().map(|&sample| Json::Number(sample as f64)).collect())
}
