//! The order in which a thief visits its victims.
//!
//! A random start and a random stride that is coprime with the number of
//! places: each place is visited exactly once, and thieves that start together
//! scatter (Go's `stealOrder`).

use std::sync::OnceLock;

use super::mask::MAX_PROCS;

/// The strides for one number of places.
pub(crate) struct StealOrder {
    count: u32,
    coprimes: Box<[u32]>,
}

impl StealOrder {
    /// The order over `count` places.
    pub(crate) fn over(count: u32) -> &'static StealOrder {
        static ORDERS: [OnceLock<StealOrder>; MAX_PROCS + 1] =
            [const { OnceLock::new() }; MAX_PROCS + 1];
        ORDERS[count as usize].get_or_init(|| StealOrder {
            count,
            coprimes: (1..=count).filter(|&i| gcd(i, count) == 1).collect(),
        })
    }

    /// The places in the order that the random number `seed` chooses.
    #[inline]
    pub(crate) fn start(&'static self, seed: u32) -> impl Iterator<Item = u32> {
        let strides = self.coprimes.len() as u32;
        let mut position = seed % self.count;
        let stride = self.coprimes[(seed / self.count % strides) as usize];
        (0..self.count).map(move |_| {
            let here = position;
            position += stride;
            if position >= self.count {
                position -= self.count;
            }
            here
        })
    }
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_once_for_each_count_and_seed() {
        for count in 1..=MAX_PROCS as u32 {
            let order = StealOrder::over(count);
            // Every stride, and starts that differ.
            let strides = order.coprimes.len() as u32;
            let seeds = (0..strides.min(64)).map(|s| s * count + (s * 7) % count);
            for seed in seeds.chain([u32::MAX, 1 << 31]) {
                let mut seen = vec![false; count as usize];
                for place in order.start(seed) {
                    assert!(!std::mem::replace(&mut seen[place as usize], true));
                }
                assert!(seen.iter().all(|s| *s), "count {count}, seed {seed}");
            }
        }
    }

    #[test]
    fn starts_and_strides_differ_with_the_seed() {
        let order = StealOrder::over(8);
        let orders: std::collections::HashSet<Vec<u32>> =
            (0..32).map(|seed| order.start(seed).collect()).collect();
        assert_eq!(orders.len(), 32, "8 starts and 4 strides");
    }
}
