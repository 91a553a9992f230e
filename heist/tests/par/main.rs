//! Fork-join: what `heist::par` promises.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod bound;
mod deep;
mod loops;
mod others;
mod panics;
mod pools;
mod scopes;
mod set_up;
mod silent;
mod sorting;
mod stress;

/// A pool with so many Ps.
fn pool(procs: usize) -> heist::par::ThreadPool {
    heist::par::ThreadPoolBuilder::new().num_threads(procs).build().unwrap()
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = heist::par::join(|| fib(n - 1), || fib(n - 2));
    a + b
}
