//! The simulated machine against this one: the same programs on one and two Ps.

use heist_sim::sim::{Plan, Policy, Workload, measure};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Rounds of each measurement; the middle one counts.
const ROUNDS: usize = 9;

/// A program, as the simulator knows it and as it is run here; both say how many
/// nanoseconds one operation takes.
struct Program {
    workload: Workload,
    what: &'static str,
    here: fn(usize) -> f64,
}

const PROGRAMS: [Program; 4] = [
    Program { workload: Workload::Tasks(0), what: "a goroutine that does nothing", here: tasks },
    Program { workload: Workload::Yields, what: "a yield among ten for each P", here: yields },
    Program { workload: Workload::PingPong, what: "there and back of a pair", here: ping_pong },
    Program { workload: Workload::Forks, what: "a fork and a leaf of 1 µs", here: forks },
];

pub(super) fn run() -> Result<(), String> {
    println!("nanoseconds for one operation, here and on the simulated machine\n");
    println!("  {:<32} {:>2} {:>9} {:>9} {:>8}", "", "Ps", "here", "simulated", "off by");
    let mut ratios = Vec::new();
    for program in &PROGRAMS {
        for procs in [1, 2] {
            let here = measured_here(program, procs)?;
            let simulated = simulated(program, procs)?;
            println!(
                "  {:<32} {procs:>2} {here:>9.0} {simulated:>9.0} {:>+7.0} %",
                program.what,
                100.0 * (simulated / here - 1.0)
            );
            ratios.push((simulated / here).ln());
        }
    }
    // Half as long and twice as long are as far off.
    let farthest = ratios.iter().map(|ratio| ratio.abs()).fold(0.0, f64::max);
    let typical = ratios.iter().map(|ratio| ratio.abs()).sum::<f64>() / ratios.len() as f64;
    println!(
        "\noff by a factor of {:.2} as a rule (the geometric mean), of {:.2} at the most",
        typical.exp(),
        farthest.exp()
    );
    Ok(())
}

fn simulated(program: &Program, procs: usize) -> Result<f64, String> {
    let plan = Plan::new(program.workload, (procs, "flat"), Policy::Heist, 1, 2_000)
        .map_err(|error| error.to_string())?;
    let mut nanos = 0.0;
    measure([plan], 1, |_, m| {
        nanos = match program.workload {
            Workload::PingPong => m.latency[0],
            _ => 1_000.0 / m.throughput,
        };
    })
    .map_err(|error| error.to_string())?;
    Ok(nanos)
}

fn measured_here(program: &Program, procs: usize) -> Result<f64, String> {
    let runtime =
        heist::Builder::new().max_procs(procs).build().map_err(|error| error.to_string())?;
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| runtime.run(|| (program.here)(procs))).collect();
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 2])
}

/// Counts tasks without being what is measured: each heap has its own word.
struct Latch {
    left: AtomicUsize,
    all: Arc<(AtomicUsize, heist::thread::Thread)>,
}

impl Latch {
    fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && self.all.0.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.all.1.unpark();
        }
    }
}

fn wait(all: &(AtomicUsize, heist::thread::Thread)) {
    while all.0.load(Ordering::Acquire) > 0 {
        heist::thread::park();
    }
}

fn tasks(procs: usize) -> f64 {
    const HEAP: usize = 20_000;
    fn halve(mut n: usize, latch: Arc<Latch>) {
        while n > 1 {
            let (half, latch) = (n / 2, latch.clone());
            drop(heist::go(move || halve(half, latch)));
            n -= half;
        }
        latch.done();
    }
    let heaps = 2 * procs;
    let all = Arc::new((AtomicUsize::new(heaps), heist::thread::current()));
    let started = Instant::now();
    for _ in 0..heaps {
        let latch = Arc::new(Latch { left: AtomicUsize::new(HEAP), all: all.clone() });
        drop(heist::go(move || halve(HEAP, latch)));
    }
    wait(&all);
    started.elapsed().as_nanos() as f64 / (heaps * HEAP) as f64
}

fn yields(procs: usize) -> f64 {
    const YIELDS: usize = 10_000;
    let n = 10 * procs;
    let all = Arc::new((AtomicUsize::new(n), heist::thread::current()));
    let started = Instant::now();
    for _ in 0..n {
        let latch = Latch { left: AtomicUsize::new(1), all: all.clone() };
        drop(heist::go(move || {
            (0..YIELDS).for_each(|_| heist::thread::yield_now());
            latch.done();
        }));
    }
    wait(&all);
    started.elapsed().as_nanos() as f64 / (n * YIELDS) as f64
}

fn forks(procs: usize) -> f64 {
    /// As long as a leaf of the simulated one computes.
    const LEAF: u128 = 1_000;
    fn tree(n: usize) {
        if n == 1 {
            let begun = Instant::now();
            while begun.elapsed().as_nanos() < LEAF {}
        } else {
            heist::par::join(|| tree(n / 2), || tree(n - n / 2));
        }
    }
    let n = 4_000 * procs;
    let started = Instant::now();
    tree(n);
    started.elapsed().as_nanos() as f64 / n as f64
}

fn ping_pong(_: usize) -> f64 {
    const ROUNDS: usize = 20_000;
    fn wait_for(sent: &AtomicUsize, value: usize) {
        while sent.load(Ordering::Acquire) < value {
            heist::thread::park();
        }
    }
    let sent = Arc::new(AtomicUsize::new(0));
    let (me, theirs) = (heist::thread::current(), sent.clone());
    let pong = heist::go(move || {
        for round in 0..ROUNDS {
            wait_for(&theirs, 2 * round + 1);
            theirs.store(2 * round + 2, Ordering::Release);
            me.unpark();
        }
    });
    let started = Instant::now();
    for round in 0..ROUNDS {
        sent.store(2 * round + 1, Ordering::Release);
        pong.thread().unpark();
        wait_for(&sent, 2 * round + 2);
    }
    let nanos = started.elapsed().as_nanos() as f64 / ROUNDS as f64;
    let _ = pong.join();
    nanos
}
