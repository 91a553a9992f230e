//! Measuring a workload on a machine.

use super::Rng;
use super::child::{self, End};
use super::probe::Probe;
use super::workload::{self, Workload};
use crate::Builder;
use crate::prim::sim::{
    self, Chooser, Config, Costs, Faults, HERE, Hooks, METAL, Topology, TopologyError,
};
use crate::sched::policy;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How the scheduler decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As Go has it: a walk over all Ps, wake-ups always, yielded
    /// goroutines to the global queue.
    Go,
    /// As it ships.
    Heist,
    /// As it ships, but one departure from Go is not made.
    Without(&'static str),
}

const DEPARTURES: [(&str, policy::Departure); 10] = [
    ("bitmap", policy::Departure::Bitmap),
    ("prediction", policy::Departure::Prediction),
    ("quiet-end", policy::Departure::QuietEnd),
    ("two-rings", policy::Departure::TwoRings),
    ("spin-grace", policy::Departure::SpinGrace),
    ("quick-steal", policy::Departure::QuickSteal),
    ("groups", policy::Departure::Groups),
    ("crew", policy::Departure::Crew),
    ("patience", policy::Departure::Patience),
    ("near", policy::Departure::Near),
];

impl Policy {
    fn knobs(self) -> u32 {
        match self {
            Policy::Go => 0,
            Policy::Heist => policy::HEIST,
            Policy::Without(name) => DEPARTURES
                .iter()
                .filter(|(departure, _)| *departure == name)
                .fold(policy::HEIST, |knobs, (_, departure)| knobs & !(*departure as u32)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Go => f.write_str("go"),
            Policy::Heist => f.write_str("heist"),
            Policy::Without(name) => write!(f, "no-{name}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let without = |name: &str| {
            let departure = DEPARTURES.iter().find(|(departure, _)| *departure == name)?;
            Some(Policy::Without(departure.0))
        };
        match name {
            "go" => Ok(Policy::Go),
            "heist" => Ok(Policy::Heist),
            _ => name.strip_prefix("no-").and_then(without).ok_or_else(|| {
                let all: Vec<String> =
                    DEPARTURES.iter().map(|(name, _)| format!("no-{name}")).collect();
                format!(
                    "there is no policy '{name}'; there are: go, heist, and heist without one of \
                     its departures from Go: {}",
                    all.join(", ")
                )
            }),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    workload: Workload,
    topology: Topology,
    shape: String,
    costs: CostTable,
    policy: Policy,
    seed: u64,
    scale: usize,
}

/// What operations cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostTable {
    /// As measured where this was written: a virtual machine.
    #[default]
    Here,
    /// As on a server without virtualization.
    Metal,
}

impl CostTable {
    fn table(self) -> Costs {
        match self {
            CostTable::Here => HERE,
            CostTable::Metal => METAL,
        }
    }
}

impl FromStr for CostTable {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "here" => Ok(CostTable::Here),
            "metal" => Ok(CostTable::Metal),
            _ => Err(format!("there is no table of costs '{name}'; there are: here, metal")),
        }
    }
}

/// A plan that cannot be.
#[derive(Debug)]
pub struct PlanError(TopologyError);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// A workload on a machine of so many cores and such a shape. `scale` says
    /// how much there is to do: tasks of 1 µs for each core.
    ///
    /// # Errors
    ///
    /// If there is no such machine.
    pub fn new(
        workload: Workload,
        (cores, shape): (usize, &str),
        policy: Policy,
        seed: u64,
        scale: usize,
    ) -> Result<Plan, PlanError> {
        let topology = Topology::new(cores, shape).map_err(PlanError)?;
        let costs = CostTable::default();
        let (shape, scale) = (shape.to_owned(), scale.max(16));
        Ok(Plan { workload, topology, shape, costs, policy, seed, scale })
    }

    /// The same with other costs.
    #[must_use]
    pub fn with_costs(self, costs: CostTable) -> Plan {
        Plan { costs, ..self }
    }

    /// The workload.
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// The number of cores.
    pub fn cores(&self) -> usize {
        self.topology.cores()
    }

    /// The shape of the machine, as it was asked for.
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

/// What was measured, per task where that makes sense.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Cores that computed tasks, of all, while the machine was busy.
    pub efficiency: f64,
    /// Tasks in a microsecond of virtual time.
    pub throughput: f64,
    /// Nanoseconds from ready to running: half, 99 %, 99.9 % are shorter.
    pub latency: [f64; 3],
    /// Victims that thieves looked at.
    pub probes: f64,
    /// Victims looked at in a search.
    pub probes_per_search: f64,
    /// Nanoseconds of a search.
    pub search: f64,
    /// Cache lines that came from another core.
    pub transfers: f64,
    /// The same by distance: of the same last-level cache, from another one of the
    /// same node, from another node.
    pub transfers_by: [f64; 3],
    /// First touches of pages.
    pub page_faults: f64,
    /// Futex calls that woke somebody.
    pub wakes: f64,
    /// Nanoseconds that locks were waited for.
    pub lock_wait: f64,
    /// Share of all cores' time that was spent searching.
    pub searching: f64,
    /// Virtual nanoseconds from begin to end.
    pub time: f64,
    /// Primitive operations simulated in a second of real time.
    pub speed: f64,
    /// The places in the sources that waited longest for lines from other cores, and how
    /// many nanoseconds.
    pub transfers_at: Vec<(String, f64)>,
    /// The places that waited longest for locks, and how many nanoseconds.
    pub waits_at: Vec<(String, f64)>,
}

const FIELDS: usize = 18;

impl Measured {
    fn fields(&self) -> [f64; FIELDS] {
        let [half, most, nearly_all] = self.latency;
        let [cache, node, remote] = self.transfers_by;
        [
            self.efficiency,
            self.throughput,
            half,
            most,
            nearly_all,
            self.probes,
            self.probes_per_search,
            self.search,
            self.transfers,
            cache,
            node,
            remote,
            self.page_faults,
            self.wakes,
            self.lock_wait,
            self.searching,
            self.time,
            self.speed,
        ]
    }

    fn to_text(&self) -> String {
        let numbers = self.fields().map(|field| format!("{field}")).join(" ");
        let line = |kind: char, (place, n): &(String, f64)| format!("\n{kind} {n} {place}");
        let transfers = self.transfers_at.iter().map(|at| line('t', at));
        let waits = self.waits_at.iter().map(|at| line('w', at));
        transfers.chain(waits).fold(numbers, |text, line| text + &line)
    }

    fn from_text(text: &str) -> Option<Measured> {
        let mut lines = text.lines();
        let numbers: Vec<f64> =
            lines.next()?.split(' ').map_while(|field| field.parse().ok()).collect();
        let (mut transfers_at, mut waits_at) = (Vec::new(), Vec::new());
        for line in lines {
            let mut fields = line.split(' ');
            let list = if fields.next()? == "t" { &mut transfers_at } else { &mut waits_at };
            let n = fields.next()?.parse().ok()?;
            list.push((fields.next()?.to_owned(), n));
        }
        let fields: [f64; FIELDS] = numbers.try_into().ok()?;
        let [efficiency, throughput, half, most, nearly_all, rest @ ..] = fields;
        let [
            probes,
            probes_per_search,
            search,
            transfers,
            cache,
            node,
            remote,
            page_faults,
            wakes,
            lock_wait,
            searching,
            time,
            speed,
        ] = rest;
        Some(Measured {
            efficiency,
            throughput,
            latency: [half, most, nearly_all],
            probes,
            probes_per_search,
            search,
            transfers,
            transfers_by: [cache, node, remote],
            page_faults,
            wakes,
            lock_wait,
            searching,
            time,
            speed,
            transfers_at,
            waits_at,
        })
    }
}

/// How long a measurement may take, in real time.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Measures plans, `parallel` at a time, and tells each result.
///
/// # Errors
///
/// If the system has no process for it, or a run fails.
pub fn measure(
    plans: impl IntoIterator<Item = Plan>,
    parallel: usize,
    mut measured: impl FnMut(&Plan, Measured),
) -> io::Result<()> {
    let mut failure = None;
    child::each(plans, parallel, PATIENCE, run_one, |plan, end| {
        let (workload, cores) = (plan.workload, plan.cores());
        match end {
            End::Done(text) => match Measured::from_text(&text) {
                Some(result) => {
                    measured(&plan, result);
                    return ControlFlow::Continue(());
                }
                None => failure = Some(format!("{workload} on {cores} cores: no result")),
            },
            End::Failed(report) => failure = Some(format!("{workload} on {cores} cores: {report}")),
            other => failure = Some(format!("{workload} on {cores} cores: {other:?}")),
        }
        ControlFlow::Break(())
    })?;
    failure.map_or(Ok(()), |failure| Err(io::Error::other(failure)))
}

/// In the child.
fn run_one(plan: &Plan) -> String {
    let config = Config {
        seed: plan.seed,
        topology: plan.topology,
        chooser: Chooser::Timed,
        faults: Faults::default(),
        costs: plan.costs.table(),
        store_buffers: false,
        step_limit: u64::MAX,
        mutant: None,
        knobs: plan.policy.knobs(),
        hooks: Hooks {
            step: None,
            quiet: None,
            signal: Some(crate::sched::signal::on_simulated),
            violation: child::fail,
        },
    };
    let result = Rc::new(RefCell::new(Measured::default()));
    let (plan, answer, started) = (plan.clone(), result.clone(), Instant::now());
    let (counts, _) = sim::run(config, move || *answer.borrow_mut() = measured(&plan));
    let mut result = result.take();
    result.speed = counts.steps as f64 / started.elapsed().as_secs_f64();
    result.to_text()
}

/// The first places of a list, and what there was for each task.
fn places(all: Vec<(String, u64)>, tasks: f64) -> Vec<(String, f64)> {
    const SHOWN: usize = 8;
    all.into_iter().take(SHOWN).map(|(place, n)| (place, n as f64 / tasks)).collect()
}

/// On the machine.
fn measured(plan: &Plan) -> Measured {
    let runtime = Builder::new()
        .max_procs(plan.cores())
        .seed(plan.seed)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let (probe, rng) = (Probe::default(), Rng::new(plan.seed));
    workload::run(plan.workload, &runtime, plan.scale / 4, &rng, &probe);
    probe.begin();
    workload::run(plan.workload, &runtime, plan.scale, &rng, &probe);
    let noted = probe.end();
    let mut latencies = noted.latencies;
    latencies.sort_unstable();
    let part = |share: f64| {
        let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().max(1) - 1);
        latencies.get(index).copied().unwrap_or(0) as f64
    };
    let (counts, cores) = (noted.counts, plan.cores() as f64);
    let tasks = noted.counted.max(1) as f64;
    let per_search = |n: u64| n as f64 / counts.searches.max(1) as f64;
    Measured {
        efficiency: noted.work as f64 / (noted.time as f64 * cores),
        throughput: noted.tasks as f64 * 1_000.0 / noted.time as f64,
        latency: [part(0.5), part(0.99), part(0.999)],
        probes: counts.probes as f64 / tasks,
        probes_per_search: per_search(counts.probes),
        search: per_search(counts.searching),
        transfers: counts.transfers.iter().sum::<u64>() as f64 / tasks,
        transfers_by: counts.transfers.map(|n| n as f64 / tasks),
        page_faults: noted.page_faults,
        wakes: counts.futex_wakes as f64 / tasks,
        lock_wait: counts.lock_wait as f64 / tasks,
        searching: counts.searching as f64 / (noted.total as f64 * cores),
        time: noted.total as f64,
        speed: 0.0,
        transfers_at: places(noted.transfers_at, tasks),
        waits_at: places(noted.waits_at, tasks),
    }
}
