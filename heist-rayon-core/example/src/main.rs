//! A program that knows only rayon, on heist.
//!
//! Nothing here names heist but what shows that it is there: the patch in `Cargo.toml` does it.

use rayon::prelude::*;

fn main() {
    let on_goroutines = rayon::broadcast(|_| heist::runtime::goroutine_id().is_some());
    assert!(on_goroutines.into_iter().all(|is| is), "the patch of rayon-core is not in use");

    let limit = 2_000_000u64;
    let primes = (2..limit).into_par_iter().filter(|n| is_prime(*n)).count();
    println!("{primes} primes below {limit}");
    assert_eq!(primes, 148_933);

    let mut words: Vec<String> = (0..200_000u64).map(|n| (n * 7919 % 200_003).to_string()).collect();
    words.par_sort_unstable();
    println!("first of {} sorted words: {:?}", words.len(), &words[..3]);
    assert!(words.is_sorted());

    // An item that waits for another one would stop a thread of rayon's.
    let (sender, receiver) = heist::chan::bounded(0);
    let sum: u64 = [1u64, 2]
        .par_iter()
        .map(|n| match n {
            1 => receiver.recv().unwrap(),
            _ => sender.send(40).map(|()| 2).unwrap(),
        })
        .sum();
    println!("items that talk to each other: {sum}");
    assert_eq!(sum, 42);

    let stats = rayon::broadcast(|_| heist::runtime::stats()).pop().unwrap();
    println!("heist's scheduler ran {} goroutines for that", stats.finished);
}

fn is_prime(n: u64) -> bool {
    (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}
