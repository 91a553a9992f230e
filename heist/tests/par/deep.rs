//! Forks and scopes without a limit on their depth.

use super::pool;
use heist::par::{Scope, ScopeFifo, in_place_scope, join, scope, scope_fifo};

fn left(depth: u32) -> u32 {
    if depth == 0 { 0 } else { join(|| left(depth - 1), || ()).0 + 1 }
}

fn right(depth: u32) -> u32 {
    if depth == 0 { 0 } else { join(|| (), || right(depth - 1)).1 + 1 }
}

#[test]
fn a_million_nested_forks() {
    let depth = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    for procs in [1, 2] {
        let pool = pool(procs);
        assert_eq!(pool.install(|| left(depth)), depth);
        assert_eq!(pool.install(|| right(depth)), depth);
    }
    // On the default runtime, whose stacks are small.
    assert_eq!(left(depth), depth);
}

#[test]
fn a_panic_deep_down_comes_up() {
    fn down(depth: u32) {
        if depth == 0 {
            panic!("bottom");
        }
        join(|| down(depth - 1), || ());
    }
    let payload = std::panic::catch_unwind(|| pool(2).install(|| down(3_000))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"bottom"));
}

#[test]
fn a_fork_on_a_segment_of_the_users() {
    let pool = pool(2);
    let sum = pool.install(|| heist::stack::ensure(8 << 20, || super::fib(15)) + super::fib(15));
    assert_eq!(sum, 1220);
}

/// Bodies of scopes, on stacks of goroutines large and small and on that of a plain thread.
#[test]
fn a_hundred_thousand_nested_scopes() {
    fn down(depth: u32) -> u32 {
        if depth == 0 { 0 } else { scope(|s| spawn_and(s, || down(depth - 1))) + 1 }
    }
    fn down_fifo(depth: u32) -> u32 {
        let body = |s: &ScopeFifo<'_>| {
            s.spawn_fifo(|_| ());
            down_fifo(depth - 1)
        };
        if depth == 0 { 0 } else { scope_fifo(body) + 1 }
    }
    fn in_place(depth: u32) -> u32 {
        if depth == 0 { 0 } else { in_place_scope(|s| spawn_and(s, || in_place(depth - 1))) + 1 }
    }
    fn spawn_and(s: &Scope<'_>, body: impl FnOnce() -> u32) -> u32 {
        s.spawn(|_| ());
        body()
    }
    let depth = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    for procs in [1, 2] {
        let pool = pool(procs);
        assert_eq!(pool.install(|| down(depth)), depth);
        assert_eq!(pool.install(|| down_fifo(depth)), depth);
    }
    assert_eq!(down(depth), depth);
    assert_eq!(in_place(depth), depth);
}

#[test]
fn a_panic_comes_up_through_scopes() {
    fn down(depth: u32) {
        if depth == 0 {
            panic!("bottom");
        }
        in_place_scope(|s| {
            s.spawn(|_| ());
            down(depth - 1);
        });
    }
    let payload = std::panic::catch_unwind(|| pool(2).install(|| down(10_000))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"bottom"));
    let payload = std::panic::catch_unwind(|| down(10_000)).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"bottom"));
}
