//! Running scenarios with many seeds.

use super::child::{self, End};
use super::scenario::{SCENARIOS, Scenario};
use super::{Rng, check};
use crate::prim::mutant::Mutant;
use crate::prim::sim::{self, Chooser, Config, Costs, Faults, HERE, Hooks, Topology};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// No run of a scenario takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// No run of a scenario takes as many steps.
const STEP_LIMIT: u64 = 3_000_000;

/// A run: a scenario and a seed, from which all follows, and perhaps a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    scenario: usize,
    seed: u64,
    mutant: Option<Mutant>,
}

impl Case {
    /// Scenario `name` with a seed. Without a name the seed chooses it.
    ///
    /// # Errors
    ///
    /// If there is no such scenario.
    pub fn new(name: Option<&str>, seed: u64) -> Result<Case, UnknownScenario> {
        let scenario = match name {
            None => seed as usize % SCENARIOS.len(),
            Some(name) => SCENARIOS
                .iter()
                .position(|scenario| scenario.name == name)
                .ok_or_else(|| UnknownScenario(name.to_owned()))?,
        };
        Ok(Case { scenario, seed, mutant: None })
    }

    /// The same run with a mistake in it.
    ///
    /// # Panics
    ///
    /// If there is no such mutant.
    #[must_use]
    pub fn with_mutant(self, name: &str) -> Case {
        let mutant = Mutant::SIMULATED.into_iter().find(|mutant| format!("{mutant:?}") == name);
        assert!(mutant.is_some(), "there is no mutant '{name}'");
        Case { mutant, ..self }
    }

    /// The name of its scenario.
    pub fn scenario(&self) -> &'static str {
        SCENARIOS[self.scenario].name
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// There is no such scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScenario(String);

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no scenario '{}'; there are: {}", self.0, scenarios().join(", "))
    }
}

impl std::error::Error for UnknownScenario {}

/// The names of the scenarios.
pub fn scenarios() -> Vec<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).collect()
}

/// The names of the mutants.
pub fn mutants() -> Vec<String> {
    Mutant::SIMULATED.iter().map(|mutant| format!("{mutant:?}")).collect()
}

/// A run in which a rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which run; it can be replayed.
    pub case: Case,
    /// What was broken, and the last steps.
    pub report: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { case, report } = self;
        write!(
            f,
            "scenario {}, seed {}: {report}\nagain: heist sim --scenario {} --seed {}",
            case.scenario(),
            case.seed,
            case.scenario(),
            case.seed
        )
    }
}

/// What runs did together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Runs that ended.
    pub runs: u64,
    /// Runs in which the machine refused the runtime its first threads.
    pub skipped: u64,
    /// Steps of all runs.
    pub steps: u64,
}

/// Runs cases, `parallel` at a time, until one fails.
///
/// # Errors
///
/// If the system has no process for a run.
pub fn explore(
    cases: impl IntoIterator<Item = Case>,
    parallel: usize,
    mut progress: impl FnMut(&Explored) -> ControlFlow<()>,
) -> io::Result<Result<Explored, Failure>> {
    let mut explored = Explored::default();
    let mut failure = None;
    child::each(cases, parallel, PATIENCE, run_one, |case, end| {
        let report = match end {
            End::Done(said) => {
                explored.runs += 1;
                match said.parse::<u64>() {
                    Ok(steps) => explored.steps += steps,
                    Err(_) => explored.skipped += 1,
                }
                return progress(&explored);
            }
            End::Failed(report) => report,
            End::Killed(signal) => format!("the process was killed by signal {signal}"),
            End::Hung => format!("the process did not end in {} s", PATIENCE.as_secs()),
        };
        failure = Some(Failure { case, report });
        ControlFlow::Break(())
    })?;
    Ok(failure.map_or(Ok(explored), Err))
}

/// Ends this run without a result.
pub(super) fn skip() -> ! {
    child::done("skipped")
}

/// In the child: one run. Says how many steps it took.
fn run_one(case: &Case) -> String {
    let rng = Rng::new(case.seed ^ 0x5eed);
    let config = config(case, &rng);
    let procs = size(case, &rng);
    let Scenario { body, .. } = SCENARIOS[case.scenario];
    let (counts, _) = sim::run(config, move || body(&rng, procs));
    counts.steps.to_string()
}

/// How many Ps, or cores. Few, since most mistakes need few, and those cost fewer steps;
/// but of every sixteenth seed as many as the rules for many begin with (`schedt::MANY`,
/// groups, crews, near victims).
fn size(case: &Case, rng: &Rng) -> usize {
    let (least, more) = if case.seed % 16 == 15 { (8, 17) } else { (1, 6) };
    least + rng.next() as usize % more
}

/// The machine that a seed stands for.
fn config(case: &Case, rng: &Rng) -> Config {
    let cores = size(case, rng);
    let chooser = match rng.next() % 3 {
        0 => Chooser::Random,
        _ => Chooser::Pct { changes: 1 + rng.next() % 8, length: 1 << (8 + rng.next() % 8) },
    };
    // Half of the runs are on a machine that works.
    let broken = rng.next().is_multiple_of(2);
    let fault = |often: u32| {
        let (on, rate) = (rng.next().is_multiple_of(2), rng.next());
        if broken && on { often + rate % (4 * often) } else { 0 }
    };
    let faults = Faults {
        spurious: fault(100),
        late: fault(2),
        stall: fault(500),
        refuse: fault(4),
        preempt: fault(20),
        jump: fault(300),
        deaf: fault(3),
    };
    let shape = match rng.next() % 3 {
        1 if cores > 1 => "cache=2",
        2 if cores > 2 => "cache=1,node=2",
        _ => "flat",
    };
    let topology = Topology::new(cores, shape);
    Config {
        seed: case.seed,
        topology: topology.unwrap_or_else(|error| panic!("{error}")),
        chooser,
        faults,
        // Slices that end within a run.
        costs: Costs { slice: 20_000, granularity: 5_000, ..HERE },
        store_buffers: !rng.next().is_multiple_of(4),
        step_limit: STEP_LIMIT,
        mutant: case.mutant,
        knobs: crate::sched::policy::HEIST,
        hooks: Hooks {
            step: Some(check::at_step),
            quiet: Some(check::at_rest),
            signal: Some(crate::sched::signal::on_simulated),
            violation: child::fail,
        },
    }
}
