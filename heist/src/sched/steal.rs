//! Taking work from other Ps.
//!
//! Four rounds over the Ps that offer something, each in a random order, as the
//! seeds have it. A thief looks at the bitmap of offers, one word for 64 Ps,
//! and visits only Ps whose bit is set: at many Ps an empty scan costs a few
//! loads, not a walk. In the last round it takes also a runnext, after a grace.

use super::g::G;
use super::mask::WORD;
use super::p::{Held, P};
use super::schedt::Sched;
use super::steal_order::StealOrder;
use crate::prim::atomic::Ordering;
use crate::prim::{clock, hint};

const ROUNDS: usize = 4;

/// A runnext that its owner is about to run is left to it for this long.
const GRACE: u64 = 3_000;

/// Steals for `thief`, whose own rings are empty.
pub(crate) fn steal(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    for round in 0..ROUNDS {
        let last = round + 1 == ROUNDS;
        if let Some(g) = one_round(sched, thief, last) {
            thief.counters.steals.bump();
            thief.counters.stolen.add(1 + thief.runq.len() as u64);
            if !thief.runq.rings_empty() {
                super::wake::offer(sched, thief);
            }
            return Some(g);
        }
    }
    thief.counters.failed_steals.bump();
    None
}

fn one_round(sched: &'static Sched, thief: Held, last: bool) -> Option<&'static G> {
    for p in victims(sched, thief) {
        if sched.closing() {
            return None;
        }
        if let Some(g) = p.runq.steal_into(&thief.runq) {
            return Some(g);
        }
        if last && let Some(g) = steal_next(p) {
            return Some(g);
        }
    }
    None
}

/// The Ps that offer something, each once, in a random order.
fn victims(sched: &'static Sched, thief: Held) -> impl Iterator<Item = &'static P> {
    let procs = sched.procs() as usize;
    let seed = thief.random(sched);
    let words = procs.div_ceil(WORD) as u32;
    StealOrder::over(words).start(seed).flat_map(move |word| {
        let offers = sched.offers.word(word as usize);
        let first = word * WORD as u32;
        let here = if offers == 0 { 1 } else { (procs as u32 - first).min(WORD as u32) };
        StealOrder::over(here)
            .start(seed >> 8)
            .filter(move |bit| offers & (1 << bit) != 0)
            .map(move |bit| first + bit)
            .filter(move |id| *id != thief.id)
            .map(move |id| sched.p(id))
    })
}

/// Takes a runnext that stays: its owner computes on.
fn steal_next(p: &'static P) -> Option<&'static G> {
    let seen = p.runq.peek_next()?;
    // A spin and not a sleep: the shortest sleep is many times the grace.
    let until = clock::now() + GRACE;
    while clock::now() < until {
        hint::spin_loop();
        if p.runq.peek_next() != Some(seen) {
            return None;
        }
    }
    let g = p.runq.steal_next(seen)?;
    // Teaches the goroutine that runs there (see `wake`).
    p.late.store(true, Ordering::Relaxed);
    Some(g)
}

/// Whether any P has something to take.
pub(crate) fn anything_offered(sched: &Sched) -> bool {
    let words = (sched.procs() as usize).div_ceil(WORD);
    (0..words).any(|word| {
        let mut offers = sched.offers.word(word);
        while offers != 0 {
            let bit = offers.trailing_zeros();
            // A bit may be stale: thieves were there, the owner has not looked.
            if !sched.p(word as u32 * WORD as u32 + bit).runq.is_empty() {
                return true;
            }
            offers &= offers - 1;
        }
        false
    })
}
