//! Programs that know only rayon, on heist: oxipng, BLAKE3, and some lines of our own.
//!
//! Nothing here names heist but what shows that it is there: the patch in `Cargo.toml` does it.

use rayon::prelude::*;

fn main() {
    let on_goroutines = rayon::broadcast(|_| heist::runtime::goroutine_id().is_some());
    assert!(on_goroutines.into_iter().all(|is| is), "the patch of rayon-core is not in use");

    optimise_a_picture();
    hash_in_parallel();

    let limit = 2_000_000u64;
    let primes = (2..limit).into_par_iter().filter(|n| is_prime(*n)).count();
    println!("{primes} primes below {limit}");
    assert_eq!(primes, 148_933);

    let mut words: Vec<String> =
        (0..200_000u64).map(|n| (n * 7919 % 200_003).to_string()).collect();
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

/// oxipng tries its ways to filter and to compress a picture in parallel.
fn optimise_a_picture() {
    const SIDE: u32 = 256;
    let pixel = |i| [(i % SIDE ^ i / SIDE) as u8, (i / SIDE) as u8, (i % SIDE / 2) as u8];
    let picture: Vec<u8> = (0..SIDE * SIDE).flat_map(pixel).collect();
    let (bytes, colours) = (picture.len(), oxipng::ColorType::RGB { transparent_color: None });
    let raw = oxipng::RawImage::new(SIDE, SIDE, colours, oxipng::BitDepth::Eight, picture);
    let png = raw.and_then(|raw| raw.create_optimized_png(&oxipng::Options::from_preset(3)));
    let png = png.expect("a picture of that size");
    println!("oxipng made a picture of {bytes} bytes a PNG of {}", png.len());
    assert!(png.starts_with(b"\x89PNG") && png.len() < bytes / 10);
}

/// BLAKE3 hashes a tree of chunks by `join`.
fn hash_in_parallel() {
    let data: Vec<u8> =
        (0..32u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let hash = blake3::Hasher::new().update_rayon(&data).finalize();
    println!("BLAKE3 of {} MiB: {}", data.len() >> 20, &hash.to_hex()[..16]);
    assert_eq!(hash, blake3::hash(&data), "on one thread");
}

fn is_prime(n: u64) -> bool {
    (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}
