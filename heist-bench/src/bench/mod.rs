//! The benchmarks.
//!
//! A *problem* is what a sampling process solves again and again, once for each
//! peer that can; a *benchmark* is what the command line names: it has problems
//! sampled and makes a table of the answers.

mod blockers;
mod buffered;
mod burst;
pub(crate) mod callgrind;
mod compare;
mod connections;
mod echo;
mod flat;
mod forks;
mod gate;
mod http;
mod idle;
mod lateness;
mod many;
mod mutex;
mod ops;
mod parked;
mod pingpong;
mod ring;
mod select;
mod skynet;
mod sleep;
mod spawn_join;
mod spawn_join_handles;
mod spawned;
mod timer;
mod wake;
mod yields;

use crate::session::Session;
use crate::system;
use crate::table::{Table, count};
use std::fmt;
use std::sync::LazyLock;
use std::time::Instant;

/// What the command line names.
#[derive(Debug)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&mut Session) -> Table,
}

/// All of them, in the order in which they run.
pub(crate) const BENCHMARKS: &[Benchmark] = &[
    spawn_join::BENCHMARK,
    spawn_join_handles::BENCHMARK,
    yields::BENCHMARK,
    burst::BENCHMARK,
    parked::BENCHMARK,
    spawned::BENCHMARK,
    flat::BENCHMARK,
    pingpong::BENCHMARK,
    pingpong::BENCHMARK_LOCKED,
    buffered::BENCHMARK,
    many::BENCHMARK,
    ring::BENCHMARK,
    select::BENCHMARK,
    select::BENCHMARK_UNBUFFERED,
    mutex::BENCHMARK,
    sleep::BENCHMARK,
    timer::BENCHMARK,
    wake::BENCHMARK_BUSY,
    wake::BENCHMARK_ELSEWHERE,
    wake::BENCHMARK_WAITING,
    lateness::BENCHMARK,
    lateness::BENCHMARK_WORK,
    lateness::BENCHMARK_SHARE,
    blockers::BENCHMARK,
    blockers::BENCHMARK_UNDECLARED,
    blockers::BENCHMARK_TICKER,
    idle::BENCHMARK,
    skynet::BENCHMARK,
    echo::BENCHMARK,
    connections::BENCHMARK,
    http::BENCHMARK,
    http::BENCHMARK_PIPELINED,
    forks::BENCHMARK_FIB,
    forks::BENCHMARK_TREE,
    forks::BENCHMARK_SORT,
    ops::BENCHMARK,
    callgrind::BENCHMARK,
];

/// The benchmark of that name.
pub(crate) fn named(name: &str) -> Option<&'static Benchmark> {
    BENCHMARKS.iter().find(|benchmark| benchmark.name == name)
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Heist,
    Tokio,
    May,
    Rayon,
    Threads,
    /// The least that must be done, without a scheduler: no peer, but what they cannot get
    /// below on this machine. The recursion without forks, say. A server has one thread,
    /// though (`plain.rs`): with more procs it is a bound of its CPU time only.
    Plain,
    /// `Plain` that never sleeps while it is measured, which costs a CPU: no server can answer
    /// sooner, so no load is answered more requests.
    Restless,
    Go,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Heist => "heist",
            Peer::Tokio => "tokio",
            Peer::May => "may",
            Peer::Rayon => "rayon",
            Peer::Threads => "threads",
            Peer::Plain => "plain",
            Peer::Restless => "restless",
            Peer::Go => "Go",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Peer> {
        use Peer::{Go, Heist, May, Plain, Rayon, Restless, Threads, Tokio};
        let all = [Heist, Tokio, May, Rayon, Threads, Plain, Restless, Go];
        all.into_iter().find(|peer| peer.name() == name)
    }

    /// Nobody to win or lose against.
    fn is_bound(self) -> bool {
        matches!(self, Peer::Plain | Peer::Restless)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs a round and returns its samples: nanoseconds, or bytes.
pub(crate) type Round = Box<dyn FnMut() -> Vec<u64>>;

/// Makes a peer's runtime with that many workers, for a problem of size `n`.
type Start = fn(procs: usize, n: u64) -> Round;

/// What a sampling process solves.
struct Problem {
    name: &'static str,
    /// Whether a first round is thrown away and the process then kept for
    /// further ones. What measures the growth of memory wants a new process.
    warm_up: bool,
    /// Who solves it in this program.
    peers: &'static [(Peer, Start)],
    /// Whether `go/main.go` solves it too.
    go: bool,
}

const PROBLEMS: &[&Problem] = &[
    &spawn_join::PROBLEM,
    &spawn_join_handles::PROBLEM,
    &yields::PROBLEM,
    &burst::PROBLEM,
    &parked::PROBLEM,
    &spawned::PROBLEM,
    &flat::PROBLEM,
    &pingpong::PROBLEM,
    &pingpong::PROBLEM_LOCKED,
    &buffered::PROBLEM,
    &many::PROBLEM,
    &ring::PROBLEM,
    &select::PROBLEM,
    &select::PROBLEM_UNBUFFERED,
    &mutex::PROBLEM,
    &sleep::PROBLEM,
    &timer::PROBLEM,
    &wake::PROBLEM_BUSY,
    &wake::PROBLEM_ELSEWHERE,
    &wake::PROBLEM_WAITING,
    &lateness::PROBLEM,
    &lateness::PROBLEM_WORK,
    &lateness::PROBLEM_SHARE,
    &blockers::PROBLEM,
    &blockers::PROBLEM_UNDECLARED,
    &blockers::PROBLEM_TICKER,
    &idle::PROBLEM,
    &skynet::PROBLEM,
    &echo::PROBLEM,
    &connections::PROBLEM,
    &http::PROBLEM,
    &forks::PROBLEM_FIB,
    &forks::PROBLEM_TREE,
    &forks::PROBLEM_SORT,
];

impl Problem {
    /// Everybody who solves it; heist is the first.
    fn all_peers(&self) -> Vec<Peer> {
        let go = self.go.then_some(Peer::Go);
        self.peers.iter().map(|&(peer, _)| peer).chain(go).collect()
    }
}

fn problem(name: &str) -> Option<&'static Problem> {
    PROBLEMS.iter().copied().find(|problem| problem.name == name)
}

/// Whether the problem's processes warm up and stay.
pub(crate) fn warms_up(name: &str) -> bool {
    problem(name).is_none_or(|problem| problem.warm_up)
}

/// Starts a peer on a problem, if it has that one.
pub(crate) fn open(name: &str, peer: Peer, procs: usize, n: u64) -> Option<Round> {
    if let Some(op) = ops::of_problem(name) {
        return (peer == Peer::Heist).then(|| ops::round(op, n));
    }
    let (_, start) = problem(name)?.peers.iter().find(|(one, _)| *one == peer)?;
    Some(start(procs, n))
}

/// A heist runtime.
fn heist_runtime(procs: usize) -> heist::Runtime {
    let runtime = heist::Builder::new().max_procs(procs).build();
    runtime.unwrap_or_else(|error| panic!("no heist runtime: {error}"))
}

/// A tokio runtime: the multi-thread one, also with one worker.
fn tokio_runtime(procs: usize) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(procs).build();
    runtime.unwrap_or_else(|error| panic!("no tokio runtime: {error}"))
}

/// The same with timers, which cost it something whenever it waits.
fn tokio_runtime_with_time(procs: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(procs).enable_time().build();
    runtime.unwrap_or_else(|error| panic!("no tokio runtime: {error}"))
}

/// The same with the network and without timers.
fn tokio_runtime_with_net(procs: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(procs).enable_io().build();
    runtime.unwrap_or_else(|error| panic!("no tokio runtime: {error}"))
}

/// Runs a future as a task on a worker of tokio, and not on the calling thread.
fn on_tokio<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = runtime.spawn(future);
    runtime.block_on(task).unwrap_or_else(|error| panic!("a tokio task failed: {error}"))
}

/// Sets up may, whose workers belong to the process.
fn set_up_may(procs: usize) {
    may::config().set_workers(procs);
}

/// Checks that may can have `n` coroutines at a time. Each has a stack that is
/// mapped when it is spawned, with a guard page: two mappings.
///
/// # Panics
///
/// If the kernel does not allow as many.
fn may_must_hold(n: u64) {
    let limit = system::max_mappings();
    let (need, limit_text) = (count(2 * n), count(limit));
    assert!(
        2 * n < limit,
        "may needs {need} memory mappings; vm.max_map_count allows {limit_text}"
    );
}

/// Runs a closure as a coroutine of may.
fn on_may<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let coroutine = may::go!(f);
    coroutine.join().unwrap_or_else(|_| panic!("a coroutine of may panicked"))
}

/// A rayon pool.
fn rayon_pool(procs: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(procs).build();
    pool.unwrap_or_else(|error| panic!("no rayon pool: {error}"))
}

/// Runs a closure on an OS thread that may use as many CPUs, which goes for the
/// threads that it starts too.
fn on_threads<T: Send>(procs: usize, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            system::use_cpus(procs);
            f()
        });
        thread.join().unwrap_or_else(|_| panic!("a thread panicked"))
    })
}

/// `n` in parts of at most `size`.
fn batches(n: u64, size: u64) -> impl Iterator<Item = u64> {
    (0..n).step_by(size as usize).map(move |begin| size.min(n - begin))
}

/// Nanoseconds since the first call.
fn now() -> u64 {
    static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanos_since(*BASE)
}

/// Nanoseconds that [`now`] takes when nothing disturbs it.
fn clock_reading() -> f64 {
    const READINGS: u64 = 1000;
    let readings = || {
        let begin = now();
        for _ in 1..READINGS {
            std::hint::black_box(now());
        }
        now() - begin
    };
    let least = (0..100).map(|_| readings()).min().unwrap_or(0);
    least as f64 / READINGS as f64
}

/// Nanoseconds since then.
fn nanos_since(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}

/// The version of a crate that this program was built with.
pub(crate) fn version_of(name: &str) -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
    version.map_or("?", |version| version.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_begins_with_heist_and_is_found() {
        for problem in PROBLEMS {
            assert_eq!(problem.all_peers()[0], Peer::Heist, "{}", problem.name);
            assert!(super::problem(problem.name).is_some());
        }
        assert!(open("nothing", Peer::Heist, 1, 1).is_none());
    }

    #[test]
    fn names_are_unique() {
        for (i, benchmark) in BENCHMARKS.iter().enumerate() {
            assert!(BENCHMARKS[..i].iter().all(|other| other.name != benchmark.name));
        }
    }

    /// Small, in this one process, and with one worker: that of may cannot be
    /// set twice.
    #[test]
    fn every_peer_solves_every_problem() {
        // Those of servers start this program again for their load, which here is the
        // test program.
        let servers = ["echo", "connections", "http", "http_pipelined"];
        for problem in PROBLEMS.iter().filter(|problem| !servers.contains(&problem.name)) {
            for &(peer, start) in problem.peers {
                let samples = start(1, 64)();
                // With one proc there is no elsewhere.
                let some = !samples.is_empty() || problem.name == "wake_elsewhere";
                assert!(some, "{} {peer}", problem.name);
            }
        }
    }

    #[test]
    fn batches_add_up() {
        assert_eq!(batches(2500, 1000).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!(batches(1000, 1000).collect::<Vec<_>>(), [1000]);
        assert_eq!(batches(0, 1000).count(), 0);
    }

    #[test]
    fn versions_are_known() {
        for peer in ["tokio", "may", "rayon"] {
            assert!(version_of(peer).starts_with(|c: char| c.is_ascii_digit()), "{peer}");
        }
    }
}
