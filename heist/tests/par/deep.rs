//! Forks without a limit on their depth.

use super::pool;
use heist::par::join;

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
