//! Fork-join: Fibonacci, an unbalanced tree, quicksort. Everybody forks at every call,
//! without a grain size; the plain recursion is what it costs not to fork. With more workers
//! it is cut by hand into as many equal shares: what the machine gives.
//!
//! tokio and Go have a task for each fork and take dozens of times as long. They do a
//! part of the work, and their samples are scaled to the whole.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK_FIB: Benchmark = Benchmark {
    name: "fib",
    about: "ns per fork of Fibonacci, forking at every call",
    run: run_fib,
};

pub(super) const BENCHMARK_TREE: Benchmark = Benchmark {
    name: "tree",
    about: "ns per node of an unbalanced tree of 3.9 million nodes",
    run: run_tree,
};

pub(super) const BENCHMARK_SORT: Benchmark =
    Benchmark { name: "quicksort", about: "ms for quicksort of ten million", run: run_sort };

pub(super) const PROBLEM_FIB: Problem = Problem {
    name: "fib",
    warm_up: true,
    peers: &[
        (Peer::Heist, fib::heist),
        (Peer::Rayon, fib::rayon),
        (Peer::Tokio, fib::tokio),
        (Peer::Plain, fib::plain),
    ],
    go: true,
};

pub(super) const PROBLEM_TREE: Problem = Problem {
    name: "tree",
    warm_up: true,
    peers: &[
        (Peer::Heist, tree::heist),
        (Peer::Rayon, tree::rayon),
        (Peer::Tokio, tree::tokio),
        (Peer::Plain, tree::plain),
    ],
    go: true,
};

pub(super) const PROBLEM_SORT: Problem = Problem {
    name: "quicksort",
    warm_up: true,
    peers: &[(Peer::Heist, sort::heist), (Peer::Rayon, sort::rayon), (Peer::Plain, sort::plain)],
    go: false,
};

/// What two Ps take at most of what one does: a speed-up of 1.9.
const GROWTH: f64 = 1.0 / 1.9;

fn run_fib(session: &mut Session) -> Table {
    let forks = fib::forks_of(session.size(33, 27) as u32);
    let title = format!("fib: ns per fork, {} forks", count(forks));
    let rounds = session.rounds(9, 3);
    let goal = Goal::Of(Peer::Rayon, 0.35);
    let mut comparison = Comparison::new(title, &PROBLEM_FIB, forks, rounds, forks as f64, goal);
    comparison.growth = Some(GROWTH);
    let mut table = comparison.run(session);
    table.note("tokio and Go do a part of it, and their samples are scaled");
    table
}

fn run_tree(session: &mut Session) -> Table {
    let nodes = session.size(3_900_000, 390_000);
    let title = format!("tree: ns per node, {} nodes", count(nodes));
    let rounds = session.rounds(9, 3);
    let goal = Goal::Of(Peer::Rayon, 0.5);
    let mut comparison = Comparison::new(title, &PROBLEM_TREE, nodes, rounds, nodes as f64, goal);
    comparison.growth = Some(GROWTH);
    let mut table = comparison.run(session);
    table.note("tokio and Go do a part of it, and their samples are scaled");
    table
}

fn run_sort(session: &mut Session) -> Table {
    let n = session.size(10_000_000, 1_000_000);
    let title = format!("quicksort: ms for {}", count(n));
    let rounds = session.rounds(15, 3);
    let goal = Goal::Of(Peer::Rayon, 0.97);
    Comparison::new(title, &PROBLEM_SORT, n, rounds, 1e6, goal).run(session)
}

/// What those who need a task for each fork do less: so many times fewer nodes.
const LESS: u64 = 16;

/// What a branch of a tokio task returns.
type Pinned = std::pin::Pin<Box<dyn Future<Output = u64> + Send>>;

/// The second branch of a fork of tokio's.
async fn join_task(task: tokio::task::JoinHandle<u64>) -> u64 {
    task.await.unwrap_or_else(|error| panic!("a branch failed: {error}"))
}

/// Cuts a problem by hand: for each thread parts that are as much work as those of the
/// others. For one thread it stays whole.
fn cut<T>(
    threads: usize,
    whole: T,
    divide: fn(&T) -> Vec<T>,
    work: impl Fn(&T) -> u64,
) -> Vec<Vec<T>> {
    const LEVELS: usize = 8;
    if threads == 1 {
        return vec![vec![whole]];
    }
    let mut parts = vec![whole];
    for _ in 0..LEVELS {
        parts = parts.iter().flat_map(divide).collect();
    }
    parts.sort_by_key(|part| std::cmp::Reverse(work(part)));
    let mut shares: Vec<(u64, Vec<T>)> = (0..threads).map(|_| (0, Vec::new())).collect();
    for part in parts {
        let Some(least) = shares.iter_mut().min_by_key(|share| share.0) else { break };
        least.0 += work(&part);
        least.1.push(part);
    }
    shares.into_iter().map(|share| share.1).collect()
}

/// Solves each share on a thread of its own, and sums up. They begin together, when all of
/// them run, and say nothing to each other until the end: no scheduler gets more out of the
/// machine. The time is that from the first's begin to the last's end.
fn on_each<T: Sync>(shares: &[Vec<T>], solve: impl Fn(&T) -> u64 + Sync) -> (u64, u64) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let there = AtomicUsize::new(0);
    let run = |share: &Vec<T>| {
        there.fetch_add(1, Ordering::SeqCst);
        while there.load(Ordering::SeqCst) < shares.len() {
            std::hint::spin_loop();
        }
        let begin = super::now();
        let value = share.iter().map(&solve).fold(0, u64::wrapping_add);
        (value, begin, super::now())
    };
    let run = &run;
    let done: Vec<(u64, u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares.iter().map(|share| scope.spawn(move || run(share))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| panic!("a thread panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let value = done.iter().fold(0, |total: u64, one| total.wrapping_add(one.0));
    let begin = done.iter().map(|one| one.1).min().unwrap_or(0);
    let end = done.iter().map(|one| one.2).max().unwrap_or(0);
    (value, end - begin)
}

mod fib {
    use super::*;

    /// And so much less in the argument of Fibonacci, which is about as much.
    const LESS: u32 = 6;

    /// How many forks the Fibonacci number of `n` takes.
    pub(super) fn forks_of(n: u32) -> u64 {
        (2..=n).fold((0, 0), |(before, last), _| (last, before + last + 1)).1
    }

    /// The largest argument that takes at most so many.
    fn argument(forks: u64) -> u32 {
        (0..).take_while(|n| forks_of(*n) <= forks).last().unwrap_or(0)
    }

    pub(super) fn heist(procs: usize, forks: u64) -> Round {
        fn fib(n: u32) -> u64 {
            if n < 2 {
                return n.into();
            }
            let (a, b) = heist::par::join(|| fib(n - 1), || fib(n - 2));
            a + b
        }
        let (runtime, n) = (super::super::heist_runtime(procs), argument(forks));
        Box::new(move || vec![runtime.run(|| time(|| fib(n), serial(n)))])
    }

    pub(super) fn rayon(procs: usize, forks: u64) -> Round {
        fn fib(n: u32) -> u64 {
            if n < 2 {
                return n.into();
            }
            let (a, b) = rayon::join(|| fib(n - 1), || fib(n - 2));
            a + b
        }
        let (pool, n) = (super::super::rayon_pool(procs), argument(forks));
        Box::new(move || vec![pool.install(|| time(|| fib(n), serial(n)))])
    }

    pub(super) fn tokio(procs: usize, forks: u64) -> Round {
        fn fib(n: u32) -> Pinned {
            Box::pin(async move {
                if n < 2 {
                    return n.into();
                }
                let b = tokio::spawn(fib(n - 2));
                fib(n - 1).await + join_task(b).await
            })
        }
        let (runtime, n) = (super::super::tokio_runtime(procs), argument(forks));
        let part = n.saturating_sub(LESS).max(2);
        Box::new(move || {
            let solve = || super::super::on_tokio(&runtime, fib(part));
            vec![time(solve, serial(part)) * forks_of(n).max(1) / forks_of(part)]
        })
    }

    pub(super) fn plain(procs: usize, forks: u64) -> Round {
        fn fib(n: u32) -> u64 {
            if n < 2 { n.into() } else { fib(n - 1) + fib(n - 2) }
        }
        fn divide(&n: &u32) -> Vec<u32> {
            if n < 2 { vec![n] } else { vec![n - 1, n - 2] }
        }
        let n = argument(forks);
        let parts = cut(procs, n, divide, |&n| forks_of(n) + 1);
        Box::new(move || {
            let (value, took) = on_each(&parts, |&n| fib(std::hint::black_box(n)));
            assert_eq!(value, serial(n));
            vec![took]
        })
    }

    fn serial(n: u32) -> u64 {
        (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
    }
}

mod tree {
    use super::*;

    /// A node with that many nodes in its tree: its value, and how many go to the left.
    fn node(nodes: u64, seed: u64) -> (u64, u64) {
        let hash = (seed ^ nodes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash, (nodes - 1) * (hash >> 57) / 128)
    }

    fn sum(nodes: u64, seed: u64) -> u64 {
        if nodes == 0 {
            return 0;
        }
        let (value, left) = node(nodes, seed);
        let (a, b) = (sum(left, value), sum(nodes - 1 - left, !value));
        a.wrapping_add(b).wrapping_add(value)
    }

    pub(super) fn heist(procs: usize, nodes: u64) -> Round {
        fn walk(nodes: u64, seed: u64) -> u64 {
            if nodes == 0 {
                return 0;
            }
            let (value, left) = node(nodes, seed);
            let (a, b) = heist::par::join(|| walk(left, value), || walk(nodes - 1 - left, !value));
            a.wrapping_add(b).wrapping_add(value)
        }
        let (runtime, expected) = (super::super::heist_runtime(procs), sum(nodes, 1));
        Box::new(move || vec![runtime.run(|| time(|| walk(nodes, 1), expected))])
    }

    pub(super) fn rayon(procs: usize, nodes: u64) -> Round {
        fn walk(nodes: u64, seed: u64) -> u64 {
            if nodes == 0 {
                return 0;
            }
            let (value, left) = node(nodes, seed);
            let (a, b) = rayon::join(|| walk(left, value), || walk(nodes - 1 - left, !value));
            a.wrapping_add(b).wrapping_add(value)
        }
        let (pool, expected) = (super::super::rayon_pool(procs), sum(nodes, 1));
        Box::new(move || vec![pool.install(|| time(|| walk(nodes, 1), expected))])
    }

    pub(super) fn tokio(procs: usize, nodes: u64) -> Round {
        fn walk(nodes: u64, seed: u64) -> Pinned {
            Box::pin(async move {
                if nodes == 0 {
                    return 0;
                }
                let (value, left) = node(nodes, seed);
                let b = tokio::spawn(walk(nodes - 1 - left, !value));
                let a = walk(left, value).await;
                a.wrapping_add(join_task(b).await).wrapping_add(value)
            })
        }
        let part = (nodes / LESS).max(1);
        let (runtime, expected) = (super::super::tokio_runtime(procs), sum(part, 1));
        Box::new(move || {
            let solve = || super::super::on_tokio(&runtime, walk(part, 1));
            vec![time(solve, expected) * nodes / part]
        })
    }

    pub(super) fn plain(procs: usize, nodes: u64) -> Round {
        fn divide(&(nodes, seed): &(u64, u64)) -> Vec<(u64, u64)> {
            if nodes == 0 {
                return Vec::new();
            }
            let (value, left) = node(nodes, seed);
            vec![(left, value), (nodes - 1 - left, !value)]
        }
        let parts = cut(procs, (nodes, 1), divide, |part| part.0 + 1);
        let all = parts.iter().flatten();
        let expected = all.fold(0u64, |total, part| total.wrapping_add(sum(part.0, part.1)));
        Box::new(move || {
            let solve = |part: &(u64, u64)| sum(std::hint::black_box(part.0), part.1);
            let (value, took) = on_each(&parts, solve);
            assert_eq!(value, expected);
            vec![took]
        })
    }
}

mod sort {
    use super::*;

    /// Left to std.
    const SMALL: usize = 64;

    fn numbers(n: u64) -> Vec<u32> {
        let mut state = 7u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        (0..n).map(next).collect()
    }

    /// Divides at the median of three, which is then in its place.
    fn partition(slice: &mut [u32]) -> usize {
        let last = slice.len() - 1;
        let middle = last / 2;
        if slice[middle] < slice[0] {
            slice.swap(middle, 0);
        }
        if slice[last] < slice[0] {
            slice.swap(last, 0);
        }
        if slice[middle] < slice[last] {
            slice.swap(middle, last);
        }
        let pivot = slice[last];
        let at = divide(&mut slice[..last], pivot);
        slice.swap(at, last);
        at
    }

    /// Those that are less than the pivot come first: how many they are.
    #[inline]
    fn divide(slice: &mut [u32], pivot: u32) -> usize {
        let mut at = 0;
        for i in 0..slice.len() {
            // Without a branch that is taken every other time.
            let value = slice[i];
            slice.swap(i, at);
            at += usize::from(value < pivot);
        }
        at
    }

    fn sorted(n: u64, mut sort: impl FnMut(&mut [u32]) + 'static) -> Round {
        let unsorted = numbers(n);
        // The same memory in each round, touched before: no faults while the clock runs.
        let mut numbers = unsorted.clone();
        Box::new(move || {
            numbers.copy_from_slice(&unsorted);
            let begin = Instant::now();
            sort(&mut numbers);
            let took = nanos_since(begin);
            assert!(numbers.is_sorted());
            vec![took]
        })
    }

    pub(super) fn heist(procs: usize, n: u64) -> Round {
        fn quicksort(slice: &mut [u32]) {
            if slice.len() <= SMALL {
                return slice.sort_unstable();
            }
            let pivot = partition(slice);
            let (low, high) = slice.split_at_mut(pivot);
            heist::par::join(|| quicksort(low), || quicksort(&mut high[1..]));
        }
        let runtime = super::super::heist_runtime(procs);
        sorted(n, move |numbers| runtime.run(|| quicksort(numbers)))
    }

    pub(super) fn rayon(procs: usize, n: u64) -> Round {
        fn quicksort(slice: &mut [u32]) {
            if slice.len() <= SMALL {
                return slice.sort_unstable();
            }
            let pivot = partition(slice);
            let (low, high) = slice.split_at_mut(pivot);
            rayon::join(|| quicksort(low), || quicksort(&mut high[1..]));
        }
        let pool = super::super::rayon_pool(procs);
        sorted(n, move |numbers| pool.install(|| quicksort(numbers)))
    }

    /// With more workers it is divided at what is known to be in the middle, and the halves
    /// are sorted by threads of their own.
    pub(super) fn plain(procs: usize, n: u64) -> Round {
        fn quicksort(slice: &mut [u32]) {
            if slice.len() <= SMALL {
                return slice.sort_unstable();
            }
            let pivot = partition(slice);
            let (low, high) = slice.split_at_mut(pivot);
            quicksort(low);
            quicksort(&mut high[1..]);
        }
        fn on_threads(slice: &mut [u32], expected: &[u32], threads: usize) {
            if threads == 1 {
                return quicksort(slice);
            }
            let middle = divide(slice, expected[expected.len() / 2]);
            let (low, high) = slice.split_at_mut(middle);
            let (expected_low, expected_high) = expected.split_at(middle);
            std::thread::scope(|scope| {
                scope.spawn(|| on_threads(low, expected_low, threads / 2));
                on_threads(high, expected_high, threads - threads / 2);
            });
        }
        let mut expected = numbers(n);
        expected.sort_unstable();
        sorted(n, move |numbers| on_threads(numbers, &expected, procs))
    }
}

fn time(f: impl FnOnce() -> u64, expected: u64) -> u64 {
    let begin = Instant::now();
    let value = f();
    let took = nanos_since(begin);
    assert_eq!(value, expected);
    took
}
