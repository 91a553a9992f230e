//! Who searches for work and who sleeps.
//!
//! | word | counts |
//! |---|---|
//! | `idle_ps` | Ps without an M (Go's `npidle`) |
//! | `searching` | Ms with a P and no work, looking (Go's `nmspinning`) |
//!
//! # The rules
//!
//! 1. Who publishes work wakes a searcher only if nobody searches and a P is
//!    idle ([`claim_wake`](Idle::claim_wake)); the claim makes the new searcher
//!    count before its thread runs, so that a burst of work wakes one thread.
//! 2. A searcher that finds work stops counting, and if it was the last one it
//!    wakes the next: one wakes another while there is work ([`found`](Idle::found)).
//!    On a machine with many idle Ps several may search ([`Crew`]), and it wakes two
//!    ([`claim_more`](Idle::claim_more)): such a machine wakes as a tree.
//! 3. At most half of the busy Ps search ([`try_search`](Idle::try_search)).
//! 4. Who gives a P up looks at every queue once more *afterwards*: a searcher
//!    when it no longer counts ([`give_up`](Idle::give_up)), and also who did not
//!    search ([`rest`](Idle::rest)). If there is work and nobody searches, it does
//!    ([`try_claim_search`](Idle::try_claim_search)).
//!
//! `sched/README.md`, "No wake-up is lost", has the argument. In short: the
//! publisher fills a queue, passes a full fence and reads `searching` and
//! `idle_ps`; who goes to sleep adds to `idle_ps`, takes itself off `searching`,
//! passes a full fence and reads the queues. Both cannot miss the other.

use crate::prim::atomic::{AtomicU32, Ordering, fence};
use crate::prim::fatal::fatal;
use crate::prim::mutant::{Mutant, is};
use crossbeam_utils::CachePadded;

/// How many may search or be on their way to, beyond the one that always may: one for
/// each `2^n` idle Ps. In Go there is one, whatever the size of the machine, which wakes
/// in a line: 7 µs and more for each thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew(pub(crate) u32);

impl Crew {
    /// One more for each 16 idle Ps; with fewer it is as in Go.
    #[cfg(not(loom))]
    pub(crate) const SIXTEENTH: Crew = Crew(4);
    /// One at a time.
    #[cfg(not(loom))]
    pub(crate) const ONE: Crew = Crew(31);

    fn of(self, idle_ps: u32) -> u32 {
        idle_ps >> self.0
    }
}

/// Whether to wake a searcher.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// No: enough search already, or no P is idle.
    Nobody,
    /// Yes: take an idle P and start an M on it as a searcher. It counts as one
    /// already; if there is no idle P after all, [`Idle::no_idle_p`].
    Claimed,
}

/// What a searcher does once it has found work.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    /// Enough others search.
    Run,
    /// It was the last one, or too few are left: wake another before running.
    WakeAnother,
}

/// A P was given up: look at every queue once more before sleeping.
#[derive(Debug)]
#[must_use]
pub(crate) struct Recheck;

/// The counters. Each has its own cache line: who spawns reads `idle_ps`, which
/// seldom changes on a busy machine, and must not wait for those who search (at 256
/// cores that was 0.3 µs of each task of 1 µs).
#[derive(Debug)]
pub(crate) struct Idle {
    idle_ps: CachePadded<AtomicU32>,
    searching: CachePadded<AtomicU32>,
    crew: Crew,
}

impl Idle {
    pub(crate) fn new(crew: Crew) -> Self {
        let zero = || CachePadded::new(AtomicU32::new(0));
        Idle { idle_ps: zero(), searching: zero(), crew }
    }

    /// Starts anew, for a scheduler that opens again.
    #[cfg(not(loom))]
    pub(crate) fn reset(&self) {
        self.idle_ps.store(0, Ordering::SeqCst);
        self.searching.store(0, Ordering::SeqCst);
    }

    /// How many Ps are idle.
    #[inline]
    pub(crate) fn idle_ps(&self) -> u32 {
        self.idle_ps.load(Ordering::Relaxed)
    }

    /// How many Ms search.
    #[inline]
    pub(crate) fn searching(&self) -> u32 {
        self.searching.load(Ordering::Relaxed)
    }

    /// Under the scheduler's lock: a P joins the idle ones.
    pub(crate) fn p_goes_idle(&self) {
        self.idle_ps.fetch_add(1, Ordering::SeqCst);
    }

    /// Under the scheduler's lock: a P leaves the idle ones.
    pub(crate) fn p_leaves_idle(&self) {
        if self.idle_ps.fetch_sub(1, Ordering::SeqCst) == 0 {
            fatal!("negative npidle");
        }
    }

    /// An M without work asks to search, of `procs` Ps in all (rule 3).
    pub(crate) fn try_search(&self, procs: u32) -> bool {
        let busy = procs.saturating_sub(self.idle_ps.load(Ordering::Acquire));
        if 2 * self.searching.load(Ordering::Acquire) >= busy {
            return false;
        }
        self.search();
        true
    }

    /// One more searches.
    pub(crate) fn search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller has published work and passed a full fence since (rule 1).
    #[inline(always)]
    pub(crate) fn claim_wake(&self) -> Wake {
        // Relaxed: the caller's fence orders the load after the publication.
        if self.idle_ps.load(Ordering::Relaxed) == 0 { Wake::Nobody } else { self.claim(0) }
    }

    /// The same by a thief that sees more work than it has taken: also if some search,
    /// but fewer than the [`Crew`]. Not by whoever spawns: waking takes it as long as many
    /// spawns, and with all cores idle it would wake one for each.
    pub(crate) fn claim_more(&self) -> Wake {
        match self.idle_ps.load(Ordering::Relaxed) {
            0 => Wake::Nobody,
            idle => self.claim(self.crew.of(idle)),
        }
    }

    /// Becomes the one searcher if there is none.
    pub(crate) fn try_claim_search(&self) -> bool {
        self.claim(0) == Wake::Claimed
    }

    /// One more, if no more than `most` search.
    #[inline(always)]
    fn claim(&self, most: u32) -> Wake {
        // The load spares a contended exchange when enough search.
        let now = self.searching.load(Ordering::Relaxed);
        if now > most {
            return Wake::Nobody;
        }
        // If it fails, another was claimed, or one of those that searched at the load
        // has stopped since: the last of them looks at the queues afterwards.
        match self.searching.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => Wake::Claimed,
            Err(_) => Wake::Nobody,
        }
    }

    /// Under the scheduler's lock: a claimed search found no idle P. Every P has
    /// an M, and each of them looks at the queues once it has given its P up.
    pub(crate) fn no_idle_p(&self) {
        let _ = self.leave();
    }

    /// A searcher has found work (rule 2).
    pub(crate) fn found(&self) -> Found {
        if is(Mutant::LeakSearcher) {
            return Found::Run;
        }
        let (left, idle) = (self.leave(), self.idle_ps.load(Ordering::Relaxed));
        if left <= self.crew.of(idle) { Found::WakeAnother } else { Found::Run }
    }

    /// A searcher has found nothing and has given its P up (rule 4).
    pub(crate) fn give_up(&self) -> Recheck {
        let _ = self.leave();
        // Pairs with the fence of the publisher.
        if !is(Mutant::NoSearcherFence) {
            fence(Ordering::SeqCst);
        }
        Recheck
    }

    /// An M that did not search has given its P up (rule 4). Somebody else may
    /// have searched when it asked to ([`try_search`](Self::try_search)), and have
    /// found work and looked around before the P was idle.
    pub(crate) fn rest(&self) -> Recheck {
        // Between the P's entry into `idle_ps` and the look at the queues; pairs
        // with the fence of the publisher.
        fence(Ordering::SeqCst);
        Recheck
    }

    fn leave(&self) -> u32 {
        let before = self.searching.fetch_sub(1, Ordering::SeqCst);
        if before == 0 {
            fatal!("negative nmspinning");
        }
        before - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_burst_wakes_one() {
        let idle = Idle::new(Crew::SIXTEENTH);
        assert_eq!(idle.claim_wake(), Wake::Nobody, "no idle P");
        idle.p_goes_idle();
        idle.p_goes_idle();
        assert_eq!(idle.claim_wake(), Wake::Claimed);
        assert_eq!(idle.claim_wake(), Wake::Nobody, "one is on its way");
        assert_eq!(idle.found(), Found::WakeAnother);
        assert_eq!(idle.claim_wake(), Wake::Claimed);
    }

    #[test]
    fn thieves_on_a_large_machine_wake_a_few() {
        for (crew, woken) in [(Crew::SIXTEENTH, 3), (Crew::ONE, 1)] {
            let idle = Idle::new(crew);
            (0..40).for_each(|_| idle.p_goes_idle());
            assert_eq!(idle.claim_wake(), Wake::Claimed);
            assert_eq!(idle.claim_wake(), Wake::Nobody, "one is on its way");
            let claimed = (0..10).filter(|_| idle.claim_more() == Wake::Claimed).count();
            assert_eq!(1 + claimed, woken);
            assert_eq!(idle.found(), Found::WakeAnother, "fewer are left");
            assert_eq!(idle.try_claim_search(), woken == 1, "somebody searches");
        }
    }

    #[test]
    fn at_most_half_of_the_busy_search() {
        let idle = Idle::new(Crew::SIXTEENTH);
        let searchers = (0..8).filter(|_| idle.try_search(8)).count();
        assert_eq!(searchers, 4);
        (0..4).for_each(|_| idle.p_goes_idle());
        assert!(!idle.try_search(8), "4 busy, 4 searching");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::atomic::{AtomicU32, fence_after_rmw};
    use crate::prim::mutant::must_fail;
    use loom::sync::{Arc, Mutex};

    /// Two Ps. One M runs and publishes; another searches, or comes to.
    struct World {
        idle: Idle,
        /// The publisher's queue: runnext, exchanged as in `RunQueue`.
        queue: AtomicU32,
        /// The ring of a thief that does not count as a searcher: its tail and its head.
        moved: AtomicU32,
        taken: AtomicU32,
        /// Idle Ps and how many Ms were woken with one.
        lists: Mutex<(u32, u32)>,
    }

    impl World {
        fn take(&self) -> bool {
            self.queue.swap(0, Ordering::AcqRel) == 1
                || self.moved.load(Ordering::Acquire) == 1
                    && self.taken.swap(1, Ordering::AcqRel) == 0
        }

        fn is_visible(&self) -> bool {
            self.queue.load(Ordering::Acquire) == 1
                || self.moved.load(Ordering::Acquire) != self.taken.load(Ordering::Acquire)
        }

        fn publish(&self) {
            self.queue.swap(1, Ordering::AcqRel);
            fence_after_rmw();
            self.wake();
        }

        /// `steal::quickly`: what it has taken is in its own ring a moment later.
        fn move_quickly(&self) {
            if self.queue.swap(0, Ordering::AcqRel) == 1 {
                self.moved.store(1, Ordering::Release);
                if !is(Mutant::QuietMove) {
                    fence(Ordering::SeqCst);
                    self.start(self.idle.claim_more());
                }
            }
        }

        fn wake(&self) {
            self.start(self.idle.claim_wake());
        }

        fn start(&self, wake: Wake) {
            if wake == Wake::Claimed {
                let mut lists = self.lists.lock().unwrap();
                if lists.0 > 0 {
                    lists.0 -= 1;
                    self.idle.p_leaves_idle();
                    lists.1 += 1;
                } else {
                    self.idle.no_idle_p();
                }
            }
        }

        /// The end of `find_runnable`, as an M with a P and no work: returns
        /// whether it got the work before it went to sleep.
        fn find_or_sleep(&self, mut searching: bool) -> bool {
            loop {
                if !searching {
                    searching = self.idle.try_search(2);
                }
                if searching && self.take() {
                    let _ = self.idle.found();
                    return true;
                }
                {
                    let mut lists = self.lists.lock().unwrap();
                    lists.0 += 1;
                    self.idle.p_goes_idle();
                }
                let Recheck = if searching { self.idle.give_up() } else { self.idle.rest() };
                if !self.is_visible() || !self.idle.try_claim_search() {
                    return false;
                }
                let mut lists = self.lists.lock().unwrap();
                if lists.0 == 0 {
                    // Its P was given to an M that somebody woke.
                    self.idle.no_idle_p();
                    return false;
                }
                lists.0 -= 1;
                self.idle.p_leaves_idle();
                searching = true;
            }
        }
    }

    fn world() -> Arc<World> {
        world_with(Crew(4))
    }

    fn world_with(crew: Crew) -> Arc<World> {
        let zero = || AtomicU32::new(0);
        let (queue, moved, taken) = (zero(), zero(), zero());
        Arc::new(World { idle: Idle::new(crew), queue, moved, taken, lists: Mutex::new((0, 0)) })
    }

    /// Work published while the last searcher goes to sleep: it is found, or
    /// somebody was woken for it.
    #[test]
    fn submit_against_the_last_searcher_parking() {
        loom::model(submit_against_a_searcher);
    }

    fn submit_against_a_searcher() {
        let world = world();
        world.idle.search();
        let searcher = {
            let world = world.clone();
            loom::thread::spawn(move || world.find_or_sleep(true))
        };
        world.publish();
        let found = searcher.join().unwrap();
        let woken = world.lists.lock().unwrap().1 > 0;
        assert!(found || woken, "a runnable goroutine, an idle P, and nobody awake");
    }

    #[test]
    fn the_searchers_fence_is_needed() {
        must_fail(Mutant::NoSearcherFence, submit_against_a_searcher);
    }

    /// A thief that does not count as a searcher moves work while the last searcher
    /// goes to sleep.
    #[test]
    fn a_quick_move_against_the_last_searcher_parking() {
        loom::model(quick_move_against_a_searcher);
        // The same on a machine where one idle P is worth a searcher more.
        loom::model(|| quick_move_in(&world_with(Crew(0))));
    }

    fn quick_move_against_a_searcher() {
        quick_move_in(&world());
    }

    fn quick_move_in(world: &Arc<World>) {
        world.queue.store(1, Ordering::Relaxed);
        world.idle.search();
        let searcher = {
            let world = world.clone();
            loom::thread::spawn(move || world.find_or_sleep(true))
        };
        world.move_quickly();
        let found = searcher.join().unwrap();
        let woken = world.lists.lock().unwrap().1 > 0;
        assert!(found || woken, "a runnable goroutine, an idle P, and nobody awake");
    }

    #[test]
    fn a_quick_move_must_wake() {
        must_fail(Mutant::QuietMove, quick_move_against_a_searcher);
    }

    /// Work published while the last searcher goes to sleep, and a second M gives its P
    /// up without searching.
    #[test]
    fn submit_against_two_that_park() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(submit_against_two);
    }

    fn submit_against_two() {
        let world = world();
        world.idle.search();
        let searcher = {
            let world = world.clone();
            loom::thread::spawn(move || world.find_or_sleep(true))
        };
        let idler = {
            let world = world.clone();
            loom::thread::spawn(move || world.find_or_sleep(false))
        };
        world.publish();
        let found = searcher.join().unwrap() | idler.join().unwrap();
        let woken = world.lists.lock().unwrap().1 > 0;
        assert!(found || woken, "a runnable goroutine, an idle P, and nobody awake");
    }
}
