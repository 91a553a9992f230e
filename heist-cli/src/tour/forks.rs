//! Fork-join: a fork at every call, and few of them are ever shared.

use super::{Finding, Source, grouped, runtime};
use std::time::Instant;

const N: u32 = 27;
const PROCS: usize = 4;

/// Of so many work and span are measured, which takes each fork far longer.
const MEASURED: u32 = 18;

/// How deep forks nest, on stacks of 124 KiB.
const DEPTH: u32 = 200_000;

pub(super) fn visit() -> Finding {
    let runtime = runtime(PROCS);
    let before = runtime.stats().spawned;
    let start = Instant::now();
    let value = runtime.run(|| fib(N));
    let time = start.elapsed();
    let shared = runtime.stats().spawned - before - 1;
    let forks = forks_of(N);
    let depth = runtime.run(|| nest(DEPTH));
    // A branch that waits for the other one.
    let talked = runtime.run(|| {
        let (sender, receiver) = heist::chan::bounded(0);
        heist::par::join(move || receiver.recv() == Ok(7), move || sender.send(7).is_ok())
    });
    Finding {
        claim: format!(
            "{} forks, fewer than 1 in 100 shared; branches may wait for each other, and nest \
             {} deep",
            grouped(forks),
            grouped(DEPTH.into())
        ),
        holds: value == 196_418 && shared * 100 < forks && depth == DEPTH && talked == (true, true),
        measured: vec![
            format!(
                "fib({N}) on {PROCS} Ps: {:.1} ms, {:.1} ns per fork, branches shared: {}",
                time.as_secs_f64() * 1e3,
                time.as_nanos() as f64 / forks as f64,
                grouped(shared)
            ),
            format!("fib({MEASURED}): {}", heist::par::measure(|| fib(MEASURED)).1),
        ],
        source: Source {
            file: "heist/src/par/join.rs",
            text: include_str!("../../../heist/src/par/join.rs"),
            line: "fn fork<",
        },
    }
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = heist::par::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn forks_of(n: u32) -> u64 {
    (2..=n).fold((0, 0), |(before, last), _| (last, before + last + 1)).1
}

fn nest(depth: u32) -> u32 {
    if depth == 0 { 0 } else { heist::par::join(|| nest(depth - 1), || ()).0 + 1 }
}
