//! Programs whose speed is measured on machines of many sizes.
//!
//! Each runs on as many Ps as the machine has cores, first to warm up (threads,
//! stacks, predictions) and then to be measured. What a task computes is virtual
//! time; everything else is what the scheduler does.

use super::Rng;
use super::probe::Probe;
use crate::prim::sim::{now, work};
use crate::{Runtime, go, par, thread, time};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A program to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A tree of goroutines, each of which computes 1 µs and spawns two.
    Tree,
    /// A tree of forks (`par::join`) over leaves of 1 µs.
    Forks,
    /// Independent tasks of so many nanoseconds, in heaps of unequal size that
    /// are handed out by splitting.
    Tasks(u32),
    /// Ten goroutines for each core that yield.
    Yields,
    /// One goroutine spawns tasks of 10 µs for all.
    Hot,
    /// Pairs of goroutines, one for every two cores, that wake each other.
    PingPong,
    /// All sleep, then there are four tasks of 5 µs for each core at once.
    Bursts,
    /// Tasks of 20 µs arrive at random, so many percent of what the machine can
    /// do, spawned by one goroutine for every 8 cores.
    Open(u32),
}

impl Workload {
    /// Those that a run without a choice measures.
    pub const ALL: [Workload; 10] = [
        Workload::Tasks(100),
        Workload::Tasks(1_000),
        Workload::Tasks(10_000),
        Workload::Yields,
        Workload::Tree,
        Workload::Forks,
        Workload::Hot,
        Workload::PingPong,
        Workload::Bursts,
        Workload::Open(70),
    ];

    /// How they are named on a command line.
    pub const NAMES: &str = "tree, forks, tasks-0us to tasks-1000us (such as tasks-0.1us), yields, \
                             hot, pingpong, bursts, open-50 to open-95";
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Tree => f.write_str("tree"),
            Workload::Forks => f.write_str("forks"),
            Workload::Tasks(nanos) => write!(f, "tasks-{}us", f64::from(*nanos) / 1000.0),
            Workload::Yields => f.write_str("yields"),
            Workload::Hot => f.write_str("hot"),
            Workload::PingPong => f.write_str("pingpong"),
            Workload::Bursts => f.write_str("bursts"),
            Workload::Open(load) => write!(f, "open-{load}"),
        }
    }
}

/// There is no such workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload(String);

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no workload '{}'; there are: {}", self.0, Workload::NAMES)
    }
}

impl std::error::Error for UnknownWorkload {}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownWorkload(name.to_owned());
        Ok(match name {
            "tree" => Workload::Tree,
            "forks" => Workload::Forks,
            "yields" => Workload::Yields,
            "hot" => Workload::Hot,
            "pingpong" => Workload::PingPong,
            "bursts" => Workload::Bursts,
            _ => match (name.strip_prefix("open-"), name.strip_prefix("tasks-")) {
                (Some(load), _) => {
                    let load = load.parse().ok().filter(|load| (50..=95).contains(load));
                    Workload::Open(load.ok_or_else(unknown)?)
                }
                (_, Some(size)) => {
                    let micros = size.strip_suffix("us").and_then(|size| size.parse::<f64>().ok());
                    let micros = micros.filter(|micros| (0.0..=1000.0).contains(micros));
                    Workload::Tasks((micros.ok_or_else(unknown)? * 1_000.0) as u32)
                }
                _ => return Err(unknown()),
            },
        })
    }
}

/// Runs a workload on a runtime with as many Ps as there are cores. `scale` says
/// how much of it there is.
pub(super) fn run(workload: Workload, runtime: &Runtime, scale: usize, rng: &Rng, probe: &Probe) {
    let cores = runtime.max_procs();
    match workload {
        Workload::Tree => {
            let depth = (cores * scale).ilog2();
            runtime.run(|| tree(depth, probe.clone()));
        }
        Workload::Forks => {
            let n = cores * scale;
            probe.expect(n);
            runtime.run(|| forks(n, probe));
        }
        Workload::Tasks(nanos) => {
            // So that all sizes take about as long.
            let n = cores * scale * 1_000 / (nanos as usize).clamp(500, 10_000);
            let seed = u64::from(rng.next());
            runtime.run(|| heaps(n, u64::from(nanos), cores, seed, &probe.clone()));
        }
        Workload::Yields => runtime.run(|| yields(10 * cores, scale / 4, probe)),
        Workload::Hot => runtime.run(|| hot(cores * scale / 4, probe.clone())),
        Workload::PingPong => runtime.run(|| ping_pong(cores.div_ceil(2), scale / 2, probe)),
        Workload::Bursts => bursts(runtime, cores, (scale / 16).max(4), probe),
        Workload::Open(load) => {
            let seed = u64::from(rng.next());
            runtime.run(|| open(cores, load, scale / 4, seed, probe));
        }
    }
}

/// Ends the wait of a goroutine when the last of many has called it.
#[derive(Clone)]
struct Latch(Arc<(AtomicUsize, thread::Thread)>);

impl Latch {
    /// For the calling goroutine.
    fn new(n: usize) -> Latch {
        Latch(Arc::new((AtomicUsize::new(n), thread::current())))
    }

    fn done(&self) {
        if self.0.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.1.unpark();
        }
    }

    fn wait(&self) {
        while self.0.0.load(Ordering::Relaxed) > 0 {
            thread::park();
        }
    }
}

fn task(nanos: u64, probe: &Probe, latch: &Latch) {
    work(nanos);
    probe.task(nanos);
    latch.done();
}

fn tree(depth: u32, probe: Probe) {
    fn grow(depth: u32, probe: Probe, latch: Latch) {
        if depth > 0 {
            for _ in 0..2 {
                let (probe, latch) = (probe.clone(), latch.clone());
                drop(go(move || grow(depth - 1, probe, latch)));
            }
        }
        task(1_000, &probe, &latch);
    }
    let latch = Latch::new((2 << depth) - 1);
    probe.expect((2 << depth) - 1);
    grow(depth, probe, latch.clone());
    latch.wait();
}

fn forks(n: usize, probe: &Probe) {
    if n == 1 {
        work(1_000);
        probe.task(1_000);
    } else {
        par::join(|| forks(n / 2, probe), || forks(n - n / 2, probe));
    }
}

/// Heaps of tasks of random size, two for each core. None is begun before all
/// cores have had the time to wake up one after the other, so that what is
/// measured is a machine at work.
fn heaps(n: usize, nanos: u64, cores: usize, seed: u64, probe: &Probe) {
    // Each goroutine gives half of its tasks away until it has one.
    fn halve(mut n: usize, nanos: u64, probe: Probe, latch: Latch) {
        while n > 1 {
            let half = n / 2;
            let (probe, latch) = (probe.clone(), latch.clone());
            drop(go(move || halve(half, nanos, probe, latch)));
            n -= half;
        }
        task(nanos, &probe, &latch);
    }
    let rng = Rng::new(seed);
    let weights: Vec<u64> = (0..2 * cores).map(|_| 1 + u64::from(rng.next() % 1_000)).collect();
    let sum: u64 = weights.iter().sum();
    let sizes: Vec<usize> =
        weights.iter().map(|weight| (n as u64 * weight / sum).max(1) as usize).collect();
    let n = sizes.iter().sum();
    let latch = Latch::new(n);
    probe.expect(n);
    let begin = now() + 60_000 * cores as u64;
    for size in sizes {
        let (probe, latch) = (probe.clone(), latch.clone());
        drop(go(move || {
            wait_busily(begin);
            halve(size, nanos, probe, latch);
        }));
    }
    latch.wait();
}

/// Computes until then, in slices that are too short to be preempted.
fn wait_busily(until: u64) {
    while now() < until {
        work((until - now()).min(1_000_000));
        thread::yield_now();
    }
}

fn yields(n: usize, rounds: usize, probe: &Probe) {
    let latch = Latch::new(n);
    probe.expect(n * rounds);
    for _ in 0..n {
        let (latch, probe) = (latch.clone(), probe.clone());
        drop(go(move || {
            for _ in 0..rounds {
                thread::yield_now();
                probe.task(0);
            }
            latch.done();
        }));
    }
    latch.wait();
}

fn hot(n: usize, probe: Probe) {
    let latch = Latch::new(n);
    probe.expect(n);
    for _ in 0..n {
        let (probe, latch, spawned) = (probe.clone(), latch.clone(), now());
        drop(go(move || {
            probe.latency(now() - spawned);
            task(10_000, &probe, &latch);
        }));
    }
    latch.wait();
}

fn ping_pong(pairs: usize, rounds: usize, probe: &Probe) {
    let latch = Latch::new(pairs);
    probe.expect(2 * pairs * rounds);
    for _ in 0..pairs {
        let (latch, probe) = (latch.clone(), probe.clone());
        drop(go(move || {
            let sent = Arc::new(AtomicUsize::new(0));
            let (me, theirs, pong_probe) = (thread::current(), sent.clone(), probe.clone());
            let pong = go(move || {
                for round in 0..rounds {
                    wait_for(&theirs, 2 * round + 1);
                    pong_probe.task(0);
                    theirs.store(2 * round + 2, Ordering::Relaxed);
                    me.unpark();
                }
            });
            for round in 0..rounds {
                let before = now();
                sent.store(2 * round + 1, Ordering::Relaxed);
                pong.thread().unpark();
                wait_for(&sent, 2 * round + 2);
                probe.latency(now() - before);
                probe.task(0);
            }
            latch.done();
        }));
    }
    latch.wait();
}

fn wait_for(sent: &AtomicUsize, value: usize) {
    while sent.load(Ordering::Relaxed) < value {
        thread::park();
    }
}

fn bursts(runtime: &Runtime, cores: usize, rounds: usize, probe: &Probe) {
    for _ in 0..rounds {
        runtime.run(|| {
            let n = 4 * cores;
            let latch = Latch::new(n);
            // Long enough for all others to go to sleep.
            time::sleep(Duration::from_micros(300));
            probe.expect_from_rest(n);
            let begun = now();
            for _ in 0..n {
                let (latch, probe) = (latch.clone(), probe.clone());
                drop(go(move || {
                    probe.latency(now() - begun);
                    task(5_000, &probe, &latch);
                }));
            }
            latch.wait();
        });
    }
}

/// Work of 20 µs arrives at `load` percent of what the cores can do.
fn open(cores: usize, load: u32, each: usize, seed: u64, probe: &Probe) {
    const TASK: f64 = 20_000.0;
    const SOURCES: usize = 8;
    let sources = cores.div_ceil(SOURCES);
    let gap = TASK * sources as f64 / (cores as f64 * f64::from(load) / 100.0);
    let n = each * cores.min(SOURCES);
    let latch = Latch::new(sources * n);
    probe.expect(sources * n);
    for source in 0..sources as u64 {
        let (latch, probe) = (latch.clone(), probe.clone());
        let rng = Rng::new(seed ^ source << 32);
        drop(go(move || {
            let mut next = now() as f64;
            for _ in 0..n {
                // Exponential gaps: arrivals that know nothing of each other.
                let uniform = (f64::from(rng.next()) + 1.0) / (f64::from(u32::MAX) + 2.0);
                next -= gap * uniform.ln();
                let ahead = next - now() as f64;
                if ahead > 0.0 {
                    time::sleep(Duration::from_nanos(ahead as u64));
                }
                let (latch, probe, spawned) = (latch.clone(), probe.clone(), now());
                drop(go(move || {
                    probe.latency(now() - spawned);
                    task(TASK as u64, &probe, &latch);
                }));
            }
        }));
    }
    latch.wait();
}
