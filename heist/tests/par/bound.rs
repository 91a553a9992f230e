//! The bound on sharing, by counts.

use super::common::in_a_process;
use super::{fib, pool};

/// A computation whose span is short is shared a few times, however many forks it has:
/// thieves take the oldest, so each share is a large part of what is left.
#[test]
fn shares_are_few() {
    for procs in [2, 4, 8] {
        let pool = pool(procs);
        let n = if cfg!(debug_assertions) { 22 } else { 27 };
        assert!(pool.install(|| fib(n)) > 0);
        let stats = pool.stats();
        // Forks: fib(22) has 28,656 of them. The span is n forks; P times that is the
        // expected number of steals up to a constant.
        let bound = 64 * procs as u64 * u64::from(n);
        assert!(stats.spawned < bound, "{} branches were shared by {procs} Ps", stats.spawned);
    }
}

/// The same for a tree without balance, by steals: with more Ps than cores, and again and
/// again. A steal takes a branch that was shared, and there are O(P·T∞) of them.
#[test]
fn steals_are_few_in_an_unbalanced_tree() {
    /// The value of a tree, and its depth.
    fn walk(nodes: u64, seed: u64) -> (u64, u64) {
        if nodes == 0 {
            return (0, 0);
        }
        let hash = (seed ^ nodes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let left = (nodes - 1) * (hash >> 57) / 128;
        let right = nodes - 1 - left;
        let (a, b) = heist::par::join(|| walk(left, hash), || walk(right, !hash));
        (a.0 + b.0 + 1, a.1.max(b.1) + 1)
    }
    let nodes = if cfg!(debug_assertions) { 20_000 } else { 400_000 };
    for procs in [2, 8] {
        let pool = pool(procs);
        for round in 1..=10 {
            let before = pool.stats();
            let (counted, depth) = pool.install(|| walk(nodes, round));
            assert_eq!(counted, nodes);
            let stats = pool.stats();
            let (shared, steals) = (stats.spawned - before.spawned, stats.steals - before.steals);
            let bound = 64 * procs as u64 * depth;
            assert!(shared < bound, "{shared} shares of depth {depth} on {procs} Ps");
            // Whoever waits for a branch is woken when it has ended, and may be stolen, too.
            assert!(steals <= 4 * shared, "{steals} steals for {shared} shares");
        }
    }
}

/// With one P there is nobody to share with.
#[test]
fn one_p_shares_nothing() {
    let pool = pool(1);
    assert_eq!(pool.install(|| fib(20)), 6765);
    assert_eq!(pool.stats().spawned, 1, "the goroutine of install");
}

/// Nor does one that goes on for long: sysmon wants to hear from it now and then, and a fork
/// is answer enough. (A thread that does not run for 0.1 s does not answer, hence five tries.)
#[test]
fn one_p_shares_nothing_for_long() {
    let nothing_shared = || {
        let pool = pool(1);
        pool.install(|| {
            let begin = std::time::Instant::now();
            while begin.elapsed().as_millis() < 350 {
                assert_eq!(fib(15), 610);
            }
        });
        pool.stats().spawned == 1
    };
    assert!((0..5).any(|_| nothing_shared()));
}

/// Nobody searches, asks or beats once all is done.
#[test]
fn an_idle_pool_does_nothing() {
    let pool = pool(2);
    assert_eq!(pool.install(|| fib(20)), 6765);
    heist::time::sleep(std::time::Duration::from_millis(300));
    let before = pool.stats();
    heist::time::sleep(std::time::Duration::from_millis(300));
    assert_eq!(pool.stats(), before);
}

/// And no thread of it is switched to: it costs no CPU time at all. In a process of its
/// own, where there are no other threads to count.
#[test]
fn an_idle_pool_switches_no_threads() {
    if let Some(output) = in_a_process() {
        assert!(output.status.success(), "{}", super::common::stderr(&output));
        return;
    }
    /// Context switches of all threads but the caller's.
    fn switches() -> u64 {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let others = tasks.filter(|task| task.file_name() != own.file_name());
        // A thread may end meanwhile.
        let texts = others.filter_map(|task| std::fs::read_to_string(task.join("status")).ok());
        let lines: Vec<String> =
            texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let counts = lines.iter().filter(|line| line.contains("ctxt_switches"));
        counts.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
    }
    let pool = pool(2);
    assert_eq!(pool.install(|| fib(20)), 6765);
    // Once all have gone to sleep, whenever that is on a busy machine, nothing moves.
    let quiet = (0..50).any(|_| {
        let before = switches();
        std::thread::sleep(std::time::Duration::from_millis(400));
        switches() == before
    });
    assert!(quiet, "threads of an idle pool wake up");
    drop(pool);
}
