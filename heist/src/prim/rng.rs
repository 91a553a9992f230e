//! Random numbers for victims and for the seeds of other generators.

use std::cell::Cell;

/// A small generator (xorshift64*, Marsaglia 2003, multiplier by Vigna 2014):
/// scattering thieves needs speed and a known seed, not unpredictability.
#[derive(Debug)]
pub(crate) struct Rng {
    state: Cell<u64>,
}

impl Rng {
    /// A generator; equal seeds give equal numbers.
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64's finaliser spreads consecutive seeds; zero is the one
        // state that the generator never leaves.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng { state: Cell::new((z ^ (z >> 31)) | 1) }
    }

    /// Starts anew from a seed.
    pub(crate) fn reseed(&self, seed: u64) {
        self.state.set(Rng::new(seed).state.get());
    }

    /// The next number.
    pub(crate) fn next(&self) -> u32 {
        let mut x = self.state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// Random bits, from a generator of the calling thread's own.
///
/// Never inlined: see `thread::slot`.
#[inline(never)]
pub(crate) fn of_thread() -> u64 {
    if cfg!(sim) {
        // Simulated threads share a real one, which outlives their run.
        return super::env::entropy();
    }
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = super::env::entropy() | 1;
        }
        // As in `Rng::next`.
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn equal_seeds_give_equal_numbers_and_others_do_not() {
        let take = |seed| {
            let rng = Rng::new(seed);
            (0..8).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        assert_ne!(take(0), vec![0; 8]);
    }
}
