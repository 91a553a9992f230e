//! Where this scheduler departs from Go's policy, so that the simulator can
//! compare the two (`SCALING.md`).
//!
//! In the shipped build every departure is a constant `true`, and nothing of Go's
//! side is left in the code.

/// A departure from Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Thieves read a bitmap of Ps that have something, and do not walk over all.
    Bitmap = 1,
    /// No wake-up for a runnext that its owner is predicted to run soon.
    Prediction = 2,
    /// The last searcher that finds work wakes another only if there is work in
    /// sight.
    QuietEnd = 4,
    /// A goroutine that yields goes to a ring of its P, not to the global queue.
    TwoRings = 8,
    /// The grace before a runnext is stolen is a spin, not a sleep.
    SpinGrace = 16,
    /// Who runs out of work visits a few victims before it counts as a searcher.
    QuickSteal = 32,
    /// Of many Ps, each takes from the global queue for several.
    Groups = 64,
    /// With many idle Ps, several searchers are woken at a time.
    Crew = 128,
    /// A searcher searches for a while before it goes to sleep, less often the more of
    /// them there are.
    Patience = 256,
    /// A thief visits victims that run near it first.
    Near = 512,
}

/// All departures.
#[cfg(sim)]
pub(crate) const HEIST: u32 = 1023;

/// Whether this departure is made.
#[cfg(not(sim))]
#[inline(always)]
pub(crate) const fn departs(_: Departure) -> bool {
    true
}

/// Whether this departure is made, in this run.
#[cfg(sim)]
pub(crate) fn departs(departure: Departure) -> bool {
    crate::prim::sim::knobs().0 & departure as u32 != 0
}
