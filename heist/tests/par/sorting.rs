//! Sorting, also by what is no order.

use super::pool;
use heist::par::{sort_unstable, sort_unstable_by, sort_unstable_by_key};
use std::cmp::Ordering::{self, Greater, Less};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{self, AtomicUsize};

const MANY: usize = 100_000;

fn numbers(seed: u64, range: u64) -> Vec<u64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 20) % range
    };
    (0..MANY).map(next).collect()
}

#[test]
fn sorts_like_std() {
    let pool = pool(3);
    let many = MANY as u64;
    let mut inputs = vec![
        numbers(1, u64::MAX),
        numbers(2, 3),
        numbers(3, 1000),
        vec![7; MANY],
        (0..many).collect(),
        (0..many).rev().collect(),
        (0..many / 2).chain((0..many / 2).rev()).collect(),
        (0..many).map(|i| i % 10).collect(),
        // All but a few are the largest.
        (0..many).map(|i| if i % 1000 == 0 { i } else { many }).collect(),
        (0..many).map(|i| if i % 1000 == 0 { many + i } else { many }).collect(),
        Vec::new(),
    ];
    // One that is out of place.
    inputs.push((0..many).map(|i| if i == many / 3 { many } else { i }).collect());
    for numbers in inputs {
        let mut expected = numbers.clone();
        expected.sort_unstable();
        let mut sorted = numbers.clone();
        pool.install(|| sort_unstable(&mut sorted));
        assert_eq!(sorted, expected);
        let mut reversed = numbers;
        pool.install(|| sort_unstable_by_key(&mut reversed, |number| std::cmp::Reverse(*number)));
        expected.reverse();
        assert_eq!(reversed, expected);
    }
}

/// An order that contradicts itself sorts nothing, but loses nothing and takes no longer: std's
/// selection took minutes.
#[test]
fn functions_that_are_no_order() {
    let calls = AtomicUsize::new(0);
    let random = |_: &f64, _: &f64| {
        let call = calls.fetch_add(1, atomic::Ordering::Relaxed);
        [Less, Ordering::Equal, Greater][(call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 3]
    };
    // The first calls decide whether the items count as sorted.
    let calls = AtomicUsize::new(0);
    let soon_less = |_: &f64, _: &f64| match calls.fetch_add(1, atomic::Ordering::Relaxed) {
        0 => Greater,
        _ => Less,
    };
    type Order<'a> = &'a (dyn Fn(&f64, &f64) -> Ordering + Sync);
    let orders: [(&str, Order<'_>); 8] = [
        ("less", &|_, _| Less),
        ("greater", &|_, _| Greater),
        ("random", &random),
        ("soon less", &soon_less),
        ("NaNs are less", &|a, b| a.partial_cmp(b).unwrap_or(Less)),
        ("NaNs are greater", &|a, b| a.partial_cmp(b).unwrap_or(Greater)),
        ("NaNs are equal to all", &|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal)),
        ("equals are less", &|a, b| if a <= b { Less } else { Greater }),
    ];
    let pool = pool(2);
    for nans_in in [2, 3, 100, usize::MAX] {
        let nan_at = |i: usize| i % nans_in == nans_in - 1;
        let input: Vec<f64> = numbers(5, 10_007)
            .iter()
            .enumerate()
            .map(|(i, number)| if nan_at(i) { f64::NAN } else { *number as f64 })
            .collect();
        let mut expected = input.clone();
        expected.sort_unstable_by(f64::total_cmp);
        for (name, order) in orders {
            calls.store(0, atomic::Ordering::Relaxed);
            let (mut output, compared) = (input.clone(), AtomicUsize::new(0));
            // Std's sort may say that it is no order.
            let _panic = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| {
                    sort_unstable_by(&mut output, |a, b| {
                        compared.fetch_add(1, atomic::Ordering::Relaxed);
                        order(a, b)
                    });
                });
            }));
            // n log n, and some.
            assert!(compared.into_inner() < 100 * MANY, "{name}");
            output.sort_unstable_by(f64::total_cmp);
            let bits = |numbers: &[f64]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&output), bits(&expected), "{name}");
        }
    }
}

/// Wherever it happens: while it samples, divides, or sorts a piece.
#[test]
fn a_comparison_that_panics_loses_nothing() {
    let pool = pool(2);
    let expected: Vec<String> = (0..MANY).map(|i| format!("{i:09}")).collect();
    let input: Vec<String> = (0..MANY).map(|i| expected[i * 7919 % MANY].clone()).collect();
    for at in [0, 1, 100, 500, 5_000, MANY, 2 * MANY, 3 * MANY, 10 * MANY] {
        let (mut output, compared) = (input.clone(), AtomicUsize::new(0));
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| {
                sort_unstable_by(&mut output, |a, b| {
                    assert_ne!(compared.fetch_add(1, atomic::Ordering::Relaxed), at, "compared");
                    a.cmp(b)
                });
            });
        }));
        assert!(result.is_err());
        output.sort_unstable();
        assert_eq!(output, expected);
    }
}

#[test]
fn values_without_a_size() {
    let mut nothings = vec![(); usize::MAX];
    pool(2).install(|| sort_unstable_by(&mut nothings, |(), ()| Less));
}
