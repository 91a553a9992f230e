//! Stacks.

use super::*;

/// Recursion through `ensure`.
fn count(n: u32) -> u64 {
    heist::stack::ensure(8 << 10, || if n == 0 { 0 } else { 1 + count(n - 1) })
}

#[test]
fn a_recursion_through_ensure_goes_a_million_deep() {
    watched(|| {
        assert_eq!(runtime(1).run(|| count(1_000_000)), 1_000_000);
    });
}

#[test]
fn a_recursion_through_ensure_goes_deep_on_a_plain_thread() {
    watched(|| {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        assert_eq!(small.spawn(|| count(100_000)).unwrap().join().unwrap(), 100_000);
    });
}

#[test]
fn goroutines_yield_and_park_on_their_segments() {
    fn deep(n: u32, other: &thread::Thread) -> u32 {
        heist::stack::ensure(16 << 10, || {
            if n.is_multiple_of(100) {
                thread::yield_now();
                thread::current().unpark();
                thread::park();
                other.unpark();
            }
            if n == 0 { 0 } else { 1 + deep(n - 1, other) }
        })
    }
    watched(|| {
        runtime(4).run(|| {
            let other = &thread::current();
            thread::scope(|s| {
                let handles: Vec<_> =
                    (0..16).map(|_| s.spawn(move || deep(many(30_000) as u32, other))).collect();
                for handle in handles {
                    assert_eq!(handle.join().unwrap() as usize, many(30_000));
                }
            });
        });
    });
}

#[test]
fn a_panic_crosses_segments_and_drops_what_is_on_them() {
    fn deep(n: u32, drops: &Drops) {
        heist::stack::ensure(32 << 10, || {
            let _droplet = drops.value();
            if n == 0 {
                resume_unwind(Box::new("from the depth"));
            }
            deep(n - 1, drops);
        });
    }
    let check = || {
        let drops = Drops::default();
        for i in 1..=3 {
            let panic = catch_unwind(AssertUnwindSafe(|| deep(5000, &drops))).unwrap_err();
            assert_eq!(text(&*panic), "from the depth");
            assert_eq!(drops.count(), i * 5001);
        }
        // The stack is what it was.
        assert_eq!(count(1000), 1000);
    };
    watched(|| {
        runtime(2).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn ensure_gives_what_it_was_asked_for() {
    let check = || {
        for bytes in [1, 1 << 10, 100 << 10, 1 << 20, 40 << 20] {
            let left = heist::stack::ensure(bytes, heist::stack::remaining);
            // Less than a page goes to the call itself.
            assert!(left + 4096 >= bytes, "{left} of {bytes}");
            let used = bytes.saturating_sub(8 << 10);
            assert!(heist::stack::ensure(bytes, || dig_from_here(used)) >= 1);
        }
    };
    watched(|| {
        runtime(2).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn an_absurd_ensure_panics_and_leaves_the_stack_usable() {
    let check = || {
        let panic = catch_unwind(|| heist::stack::ensure(usize::MAX, || 1)).unwrap_err();
        assert!(text(&*panic).contains("stack"), "{}", text(&*panic));
        assert_eq!(heist::stack::ensure(1 << 20, || 2), 2);
    };
    watched(|| {
        runtime(1).run(check);
        std::thread::spawn(check).join().unwrap();
    });
}

#[test]
fn remaining_shrinks_with_use_and_comes_back() {
    #[inline(never)]
    fn below() -> usize {
        let mut block = [0u8; 16 << 10];
        std::hint::black_box(&mut block);
        let left = heist::stack::remaining();
        std::hint::black_box(&mut block);
        left
    }
    let check = || {
        let before = heist::stack::remaining();
        let deeper = below();
        let after = heist::stack::remaining();
        assert!(before >= deeper + (16 << 10), "{before}, then {deeper}");
        assert!(before.abs_diff(after) < 4096, "{before}, then {after}");
    };
    watched(|| {
        runtime(1).run(|| {
            let left = heist::stack::remaining();
            assert!(left <= heist::runtime::DEFAULT_STACK_SIZE, "{left}");
            assert!(left >= heist::runtime::DEFAULT_STACK_SIZE / 2, "{left}");
            check();
            heist::stack::ensure(1 << 20, check);
            check();
        });
        let known = std::thread::Builder::new().stack_size(1 << 20);
        let on_thread = known.spawn(move || {
            let left = heist::stack::remaining();
            // The C library may give it a larger one that it had left over.
            assert!((512 << 10..32 << 20).contains(&left), "{left}");
            check();
        });
        on_thread.unwrap().join().unwrap();
    });
}
