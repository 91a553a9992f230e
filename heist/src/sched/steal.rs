//! Taking work from other Ps.
//!
//! Four rounds over the Ps that offer something, each in a random order, as the
//! seeds have it. A thief looks at the bitmap of offers, one word for 64 Ps,
//! and visits only Ps whose bit is set: at many Ps an empty scan costs a few
//! loads, not a walk. A few that run near it come first (`near`). Queues that are left to
//! their owners are passed over (`brief`). In the last round it takes also a runnext, after a
//! grace.

use super::apart;
use super::brief;
use super::g::G;
use super::m::M;
use super::mask::{Mask, WORD};
use super::near::{self, First};
use super::p::{Held, P};
use super::policy::{Departure, departs};
use super::schedt::Sched;
use super::steal_order::StealOrder;
use super::timers;
use super::wake::LATE;
use crate::prim::atomic::{Ordering, fence};
use crate::prim::mutant::{Mutant, is};
use crate::prim::note::Note;
use crate::prim::{clock, hint, probe};
use std::time::Duration;

const ROUNDS: usize = 4;

/// A runnext that its owner is about to run is left to it for this long: from when it
/// is out of the runtime again, since waking the thief takes longer than what follows
/// (counted from the look, a goroutine that was late once was late ever after).
const GRACE: u64 = 3_000;

/// The same if the goroutine that runs there was late the last time. Not nothing:
/// one that has changed its ways would never be seen to leave in time.
const GRACE_IF_LATE: u64 = 300;

/// An owner that stays in the runtime for longer than this has lost its CPU there.
const INSIDE_AT_MOST: u64 = 20_000;

/// What Go's sleep of 3 µs takes: Linux adds 50 µs to save power.
const GOS_GRACE: Duration = Duration::from_micros(53);

/// How many victims an M visits before it counts as a searcher.
const QUICK: usize = 8;

/// Steals for `thief`, whose own rings are empty and whose M does not count as a
/// searcher, from one of the first few victims. At many Ps nearly all thieves get by
/// with this, and it writes no word that all share: the count of searchers changes
/// twice for each search, one after the other for the whole machine, and this P's bit
/// stays in the mask of offers.
///
/// Nobody relies on such a thief, so it need not look once more when it finds nothing.
/// When it finds something it is a publisher: what it took and does not run at once
/// was in no queue for a moment, and a searcher that went to sleep at that moment has
/// not seen it.
pub(crate) fn quickly(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    if !departs(Departure::QuickSteal) {
        return None;
    }
    probe::searching(true);
    let stolen = from_some_rings(sched, thief, QUICK);
    probe::searching(false);
    let stolen = stolen?;
    if note_steal(sched, thief) && !is(Mutant::QuietMove) {
        fence(Ordering::SeqCst);
        super::wake::wake_more(sched);
    }
    Some(stolen)
}

/// Counts a steal, and offers what it brought beyond the first. False if that is
/// nothing.
pub(super) fn note_steal(sched: &'static Sched, thief: Held) -> bool {
    thief.counters.steals.bump();
    thief.counters.stolen.add(1 + thief.runq.len() as u64);
    let more = !thief.runq.rings_empty();
    if more {
        super::wake::offer(sched, thief);
    }
    more
}

/// How thoroughly a searcher looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Four rounds over all who have something.
    Everywhere,
    /// At a few of them: it looks again soon, and so do others.
    Around,
}

/// So many victims, and so many heaps of timers, are a look around.
const AROUND: usize = 8;

/// Steals for `thief`, whose own rings are empty.
pub(crate) fn steal(sched: &'static Sched, thief: Held, look: Look) -> Option<&'static G> {
    // With no ring in sight there is nothing to go round for.
    let rings = !departs(Departure::Bitmap) || sched.offers.any(sched.procs());
    let (rounds, some) = match look {
        Look::Everywhere if rings => (ROUNDS, usize::MAX),
        Look::Everywhere => (1, usize::MAX),
        Look::Around => (1, AROUND),
    };
    for round in 1..=rounds {
        // Those who look around are many, and some look again soon.
        let watch = || if look == Look::Around { None } else { from_kept(sched, thief) };
        let beyond =
            || from_timers(sched, thief, some).or_else(|| from_next(sched, thief)).or_else(watch);
        let stolen = from_some_rings(sched, thief, some)
            .or_else(|| if round == rounds { beyond() } else { None });
        if let Some(g) = stolen {
            note_steal(sched, thief);
            return Some(g);
        }
    }
    thief.counters.failed_steals.bump();
    None
}

/// Half of some victim's ring.
pub(super) fn from_rings(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    from_some_rings(sched, thief, usize::MAX)
}

/// The same, from one of the first victims.
fn from_some_rings(sched: &'static Sched, thief: Held, some: usize) -> Option<&'static G> {
    let stolen = victims(sched, thief)
        .take(some)
        .take_while(|_| !sched.closing())
        .filter(|p| !brief::is_kept(p))
        .find_map(|p| p.runq.steal_into(&thief.runq));
    thief.own().scant.set(thief.runq.rings_empty());
    stolen.and_then(|g| super::branches::oldest(thief, g))
}

/// A goroutine whose timer is due, on one of so many Ps.
fn from_timers(sched: &'static Sched, thief: Held, some: usize) -> Option<&'static G> {
    if !timers::steal(sched, thief, some) {
        return None;
    }
    thief.runq.pop().map(|popped| popped.item)
}

/// A runnext that is free to be taken. Whoever looks at an offer withdraws it:
/// if it comes to nothing, its owner has run the goroutine, and offers the next
/// one itself.
fn from_next(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    if !departs(Departure::Bitmap) {
        return victims(sched, thief).find_map(steal_next);
    }
    // Not all at the same one.
    let from = thief.random() % sched.procs();
    sched
        .next_offers
        .iter_from(from, sched.procs())
        .filter(|id| sched.next_offers.remove(*id))
        .find_map(|id| steal_next(sched.p(id)))
}

/// Half of a queue that is on trial (see `brief`), if it is there when that is over. The
/// thief counts as a searcher, so it looks for other work meanwhile.
fn from_kept(sched: &'static Sched, thief: Held) -> Option<&'static G> {
    let until = next_free(sched, thief)?;
    while clock::now() < until {
        (0..8).for_each(|_| hint::spin_loop());
        let other_work = sched.runq_size.load(Ordering::Relaxed) != 0 || any_next_offered(sched);
        if other_work || sched.closing() || next_free(sched, thief).is_none() {
            return None;
        }
        if let Some(g) = from_rings(sched, thief) {
            return Some(g);
        }
    }
    from_rings(sched, thief)
}

/// When the first trial ends, if a queue is on trial.
fn next_free(sched: &'static Sched, thief: Held) -> Option<u64> {
    let others = sched.offers.iter(sched.procs()).filter(|id| *id != thief.id);
    let queues = others.map(|id| sched.p(id)).filter(|p| !p.runq.rings_empty());
    queues.map(brief::kept_until).filter(|until| *until != 0).min()
}

/// The Ps that offer something, each once, in a random order.
fn victims(sched: &'static Sched, thief: Held) -> impl Iterator<Item = &'static P> {
    let seed = thief.random();
    let walk = (!departs(Departure::Bitmap)).then(|| everybody(sched, thief, seed));
    let offers = walk.is_none().then(|| those_that_offer(sched, thief, seed));
    walk.into_iter().flatten().chain(offers.into_iter().flatten()).inspect(|_| probe::victim())
}

/// Go's victims: all Ps that are not idle.
fn everybody(sched: &'static Sched, thief: Held, seed: u32) -> impl Iterator<Item = &'static P> {
    StealOrder::over(sched.procs())
        .start(seed)
        .filter(move |id| *id != thief.id && !sched.idle_mask.contains(*id))
        .map(|id| sched.p(id))
}

/// The Ps that offer something: a few that are near first, if any are.
fn those_that_offer(
    sched: &'static Sched,
    thief: Held,
    seed: u32,
) -> impl Iterator<Item = &'static P> {
    let first = near::first(sched, thief, seed);
    order(first, &sched.offers, sched.procs(), thief.id, seed).map(|id| sched.p(id))
}

/// The members of `offers` but the thief, each once.
fn order(
    first: First,
    offers: &Mask,
    procs: u32,
    thief: u32,
    seed: u32,
) -> impl Iterator<Item = u32> {
    let words = procs.div_ceil(WORD as u32);
    let others = StealOrder::over(words).start(seed).flat_map(move |word| {
        let offers = offers.word(word as usize);
        let base = word * WORD as u32;
        let here = if offers == 0 { 1 } else { (procs - base).min(WORD as u32) };
        StealOrder::over(here)
            .start(seed >> 8)
            .filter(move |bit| offers & (1 << bit) != 0)
            .map(move |bit| base + bit)
    });
    first.iter().chain(others.filter(move |id| *id != thief && !first.contains(*id)))
}

/// Takes a runnext that stays: its owner computes on.
fn steal_next(p: &'static P) -> Option<&'static G> {
    let seen = p.runq.peek_offered()?;
    if departs(Departure::SpinGrace) {
        let owner = p.m();
        let late = owner.and_then(M::curg).is_some_and(|g| g.score() == LATE);
        let grace = match owner {
            // It cannot run it before the thief sleeps.
            Some(owner) if apart::displaces(owner) => 0,
            _ if late => GRACE_IF_LATE,
            _ => GRACE,
        };
        // The shortest sleep is many times the grace.
        let mut now = clock::now();
        let (mut until, at_most) = (now + grace, now + INSIDE_AT_MOST);
        while now < until {
            hint::spin_loop();
            if p.runq.peek_offered() != Some(seen) {
                return None;
            }
            now = clock::now();
            if now < at_most && owner.is_some_and(|m| m.lease.inside()) {
                until = now + grace;
            }
        }
    } else {
        Note::new().sleep_for(GOS_GRACE);
    }
    let g = p.runq.steal_next(seen)?;
    // Teaches the goroutine that runs there (see `wake`).
    p.late.store(true, Ordering::Relaxed);
    Some(g)
}

/// Whether any P has something to take that somebody should take: queues that were left
/// to their owners do not count (see `brief`).
pub(crate) fn anything_waits(sched: &Sched) -> bool {
    // A bit may be stale: thieves were there, the owner has not looked. A runnext that
    // was not offered does not count: nobody but its owner may take it, and whoever
    // looked for it would look again and again, in the owner's cache lines (two
    // goroutines that play ping-pong took twice as long).
    let is_work = |p: &P| !p.runq.rings_empty() && brief::left(p).is_none();
    if !departs(Departure::Bitmap) {
        return sched.ps().any(|p| is_work(p) || p.runq.peek_offered().is_some());
    }
    sched.offers.iter(sched.procs()).any(|id| is_work(sched.p(id))) || any_next_offered(sched)
}

fn any_next_offered(sched: &Sched) -> bool {
    let procs = sched.procs();
    sched.next_offers.iter(procs).any(|id| sched.p(id).runq.peek_offered().is_some())
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::super::near::Places;
    use super::*;
    use crate::prim::place::{Place, Shape};
    use std::collections::HashSet;

    const PROCS: u32 = 96;

    /// 96 Ps in caches of 8 and nodes of 32, their numbers in no order.
    fn machine() -> (Places, Vec<Place>) {
        let cpus: Vec<(usize, usize)> = (0..96).map(|cpu| (cpu / 8, cpu / 32)).collect();
        let places = Places::new(Box::leak(Box::new(Shape::new(&cpus))));
        let at: Vec<Place> = (0..96)
            .map(|p| p * 35 % 96)
            .map(|cpu| Place { cache: cpu / 8, node: cpu / 32 })
            .collect();
        at.iter().enumerate().for_each(|(p, place)| places.moves(p as u32, None, *place));
        (places, at)
    }

    /// Numbers as random as a P's.
    fn seeds(n: usize) -> impl Iterator<Item = u32> {
        let rng = crate::prim::rng::Rng::new(7);
        (0..n).map(move |_| rng.next())
    }

    #[test]
    fn each_that_offers_is_visited_once_and_the_thief_never() {
        let (places, at) = machine();
        let offers = Mask::new();
        let offering: HashSet<u32> = (0..PROCS).filter(|p| p % 3 != 1).collect();
        offering.iter().for_each(|p| offers.insert(*p));
        for seed in seeds(2_000) {
            let thief = seed % 7 * 9;
            let first = places.first(at[thief as usize], &offers, PROCS, thief, seed);
            let visited: Vec<u32> = order(first, &offers, PROCS, thief, seed).collect();
            let once: HashSet<u32> = visited.iter().copied().collect();
            assert_eq!(visited.len(), once.len(), "twice: {visited:?}");
            let others: HashSet<u32> = offering.iter().copied().filter(|p| *p != thief).collect();
            assert_eq!(once, others);
        }
    }

    #[test]
    fn near_ones_come_first_and_nobody_is_left_out() {
        const SEARCHES: usize = 400_000;
        let (places, at) = machine();
        let offers = Mask::new();
        (0..PROCS).for_each(|p| offers.insert(p));
        let (thief, mut begun) = (5, vec![0usize; PROCS as usize]);
        for seed in seeds(SEARCHES) {
            let first = places.first(at[thief as usize], &offers, PROCS, thief, seed);
            let order: Vec<u32> = order(first, &offers, PROCS, thief, seed).take(8).collect();
            begun[order[0] as usize] += 1;
            if !near::anywhere(seed) {
                let mine = at[thief as usize];
                let [cache, node] = near::FIRST;
                assert!(order[..cache].iter().all(|p| at[*p as usize].cache == mine.cache));
                let same_node = |p: &u32| at[*p as usize].node == mine.node;
                assert!(order[cache..cache + node].iter().all(same_node));
            }
        }
        // One search in eight begins anywhere. The first P of a word's order is a random
        // one of its 64, and a word of fewer Ps is as likely as another.
        let least = SEARCHES / 8 / PROCS as usize / 2;
        for (p, begun) in begun.iter().enumerate().filter(|(p, _)| *p != thief as usize) {
            assert!(*begun >= least, "P{p}: first in {begun} searches, not {least}");
        }
    }
}
