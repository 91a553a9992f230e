//! What the command line asks for.

use heist_sim::sim::{Case, CostTable, Plan, Policy, Workload};
use std::path::PathBuf;

/// The options of `heist sim`.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) workloads: Vec<Workload>,
    pub(super) cores: Vec<usize>,
    pub(super) topologies: Vec<String>,
    pub(super) policies: Vec<Policy>,
    pub(super) costs: CostTable,
    pub(super) seed: Option<u64>,
    pub(super) scale: usize,
    pub(super) out: PathBuf,
    pub(super) scenario: Option<String>,
    pub(super) places: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workloads: vec![
                Workload::Tasks(1_000),
                Workload::Yields,
                Workload::PingPong,
                Workload::Bursts,
                Workload::Open(70),
            ],
            cores: vec![2, 16, 64],
            topologies: vec!["flat".into()],
            policies: vec![Policy::Go, Policy::Heist],
            costs: CostTable::Here,
            seed: None,
            scale: 200,
            out: "target/sim".into(),
            scenario: None,
            places: false,
        }
    }
}

impl Options {
    /// Reads the options; what makes no sense is an error that says what does.
    pub(super) fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(name) = args.next() {
            let (name, inline) = match name.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value)),
                _ => (name.clone(), None),
            };
            let value = match inline {
                Some(value) => value.to_owned(),
                None if KNOWN.contains(&name.as_str()) => {
                    args.next().ok_or_else(|| format!("{name} needs a value"))?
                }
                None => String::new(),
            };
            options.set(&name, &value)?;
        }
        options.check()?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "--workload" if value == "all" => self.workloads = Workload::ALL.to_vec(),
            "--workload" => {
                self.workloads = list(value, |w| w.parse().map_err(|e| format!("{e}")))?;
            }
            "--cores" => {
                let number = |text: &str| {
                    let error = || format!("--cores: '{text}' is no number of cores (1 to 1024)");
                    text.parse().map_err(|_| error())
                };
                self.cores = list(value, number)?;
            }
            "--topology" => self.topologies = topologies(value),
            "--policy" => self.policies = list(value, |policy| policy.parse())?,
            "--costs" => self.costs = value.parse()?,
            "--seed" => self.seed = Some(seed(value)?),
            "--scale" => {
                let scale = value.parse().ok().filter(|scale| (16..=100_000).contains(scale));
                self.scale =
                    scale.ok_or_else(|| format!("--scale: '{value}' is not 16 to 100000"))?;
            }
            "--out" => self.out = value.into(),
            "--places" => self.places = true,
            "--scenario" => self.scenario = Some(value.to_owned()),
            unknown => return Err(format!("there is no option '{unknown}'")),
        }
        Ok(())
    }

    /// Machines that cannot be are said before anything runs.
    fn check(&self) -> Result<(), String> {
        self.plans().map(|_| ())?;
        if let Some(scenario) = &self.scenario {
            Case::new(Some(scenario), 0).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Everything that is to be measured.
    pub(super) fn plans(&self) -> Result<Vec<Plan>, String> {
        let mut plans = Vec::new();
        for (workload, shape) in self.tables() {
            for cores in &self.cores {
                for policy in &self.policies {
                    let seed = self.seed.unwrap_or(1);
                    let plan = Plan::new(workload, (*cores, shape), *policy, seed, self.scale)
                        .map_err(|error| error.to_string())?;
                    plans.push(plan.with_costs(self.costs));
                }
            }
        }
        Ok(plans)
    }

    /// What has a table and a chart of its own: each workload on each shape of machine.
    pub(super) fn tables(&self) -> impl Iterator<Item = (Workload, &str)> {
        self.workloads.iter().flat_map(|workload| {
            self.topologies.iter().map(move |shape| (*workload, shape.as_str()))
        })
    }
}

const KNOWN: [&str; 9] = [
    "--workload",
    "--cores",
    "--topology",
    "--policy",
    "--costs",
    "--seed",
    "--scale",
    "--out",
    "--scenario",
];

fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(str::trim).map(item).collect()
}

/// Shapes of machines: what comes after a comma is another one, unless it is the second
/// half of `cache=N,node=M`.
fn topologies(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        match all.last_mut() {
            Some(last) if part.starts_with("node=") => *last = format!("{last},{part}"),
            _ => all.push(part.to_owned()),
        }
    }
    all
}

/// A seed, in decimal or, after 0x, in hexadecimal.
fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number
        .map_err(|_| format!("--seed: '{text}' is no seed: a number below 2^64, or 0x and digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_makes_sense_is_read() {
        let options =
            parse("--workload tree,open-95 --cores=2,1024 --topology numa --policy go,no-bitmap --seed 0xff")
                .unwrap();
        assert_eq!(options.workloads, [Workload::Tree, Workload::Open(95)]);
        assert_eq!(options.cores, [2, 1024]);
        assert_eq!(options.policies, [Policy::Go, Policy::Without("bitmap")]);
        assert_eq!(options.seed, Some(255));
        assert_eq!(options.plans().unwrap().len(), 8);
        assert_eq!(parse("").unwrap().workloads.len(), 5);
        let options = parse("--topology flat,cache=8,node=16,numa --cores 64").unwrap();
        assert_eq!(options.topologies, ["flat", "cache=8,node=16", "numa"]);
        assert_eq!(options.plans().unwrap().len(), 30);
    }

    #[test]
    fn what_makes_none_is_an_error_that_lists_what_does() {
        for (text, says) in [
            ("--cores 0", "1 to 1024 cores, not 0"),
            ("--cores 2048", "1 to 1024 cores, not 2048"),
            ("--cores many", "'many' is no number of cores"),
            ("--topology ring", "flat (one cache), caches"),
            ("--topology cache=0", "'cache=0' is no topology"),
            ("--topology cache=8,node=12 --cores 64", "M a multiple of N"),
            ("--workload sort", "there are: tree, forks, tasks-0us"),
            ("--workload open-20", "open-50 to open-95"),
            ("--policy tokio", "there are: go, heist"),
            ("--seed x", "'x' is no seed"),
            ("--seed -1", "'-1' is no seed"),
            ("--scale 0", "not 16 to 100000"),
            ("--costs free", "there are: here, metal"),
            ("--scenario nothing", "there are: spawn-join"),
            ("--fast", "there is no option '--fast'"),
            ("--seed", "--seed needs a value"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
