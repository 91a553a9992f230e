//! The bound on sharing, by counts.

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

/// With one P there is nobody to share with.
#[test]
fn one_p_shares_nothing() {
    let pool = pool(1);
    assert_eq!(pool.install(|| fib(20)), 6765);
    assert_eq!(pool.stats().spawned, 1, "the goroutine of install");
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
