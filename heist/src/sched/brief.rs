//! Queues that are gone before a thief could come.
//!
//! A goroutine that wakes several others leaves a short queue behind: the last one is
//! next, the others are in the ring, and there is more than one P could run. If each of
//! them runs for a microsecond, the queue is empty before a thread that is woken for it
//! has got its CPU; waking it costs as much as running them, and if it comes in time
//! after all, it and the one that woke it work on the same channels from two CPUs (a
//! select over four channels on two Ps: 140 to 210 ns for a message, and 60 if all stay).
//!
//! Nobody can know, so each P predicts it from how long such queues lasted before:
//!
//! | event | score |
//! |---|---|
//! | a queue was gone sooner than a thief comes ([`SOON`]) | one more, up to [`SURE`] |
//! | a queue lasted longer, or sysmon has seen one that did | 0 |
//!
//! With [`SURE`] a queue of a few is left to its owner: nobody is woken for it, and
//! those who are awake do not take from it, or each message would take a goroutine to the
//! other side (40,000 to 100,000 steals for 400,000 messages of that select, one goroutine
//! each). sysmon, which looks every few milliseconds at least while somebody is idle
//! (`backoff`), does not count such a queue as work that waits until it has seen the same
//! one for a while. Then it wakes somebody, and says so.
//!
//! How long a queue would have lasted is not known if a thief took it. So while a P is not
//! sure, somebody is woken for its queue, and who is awake and finds nothing else watches
//! it until it has lasted too long ([`kept_until`]), and only then takes from it: a *trial*.
//! After one that failed there is none for a while, for twice as many queues each time up
//! to [`RARELY`]: those who wait in long queues wait no longer for it than one in so many.
//!
//! All that is for goroutines that were woken. One that is new, whose time has come, or
//! that yields, says nothing about how long it will run, and the queue that it joins is
//! anybody's ([`mixes`]).
//!
//! The clock is read twice for a queue, and for one in [`EVERY`] once a P is sure.

use super::p::{Held, P};
use crate::prim::atomic::Ordering;
use crate::prim::clock;
use std::cell::Cell;

/// About what it takes from a wake-up until the thread runs, on a virtual machine.
pub(crate) const SOON: u64 = 50_000;

/// So many queues in a row that were gone soon, and the next one will be.
const SURE: u8 = 2;

/// How many queues are measured of a P that is sure: one of so many.
const EVERY: u32 = 16;

/// After trials that failed, one of so many queues is a trial, at least.
const RARELY: u32 = 64;

/// How many goroutines are a few.
const FEW: usize = 8;

/// What a P knows about its queues. The holder's.
#[derive(Default)]
pub(crate) struct Brief {
    score: Cell<u8>,
    /// The number of the present queue, or the last one; never 0 once there was one.
    number: Cell<u32>,
    /// There is a queue, as far as is known.
    open: Cell<bool>,
    /// When it began, if it is measured, or 0.
    since: Cell<u64>,
    /// How many more queues are not measured.
    skip: Cell<u32>,
    /// There are others in it than those that were woken here.
    mixed: Cell<bool>,
    /// It is a trial.
    trial: Cell<bool>,
    /// How many more queues are no trial, and how many after the next one that fails.
    pause: Cell<u32>,
    pauses: Cell<u32>,
}

/// The holder has queued a goroutine that it has woken, or that gives way to such. Whether
/// it is left to this P, and nobody is woken for it.
#[inline]
pub(crate) fn leave_to_owner(p: Held) -> bool {
    let brief = &p.own().brief;
    let queued = p.runq.in_rings();
    if queued <= 1 || !brief.open.get() {
        begin(p, queued > 1);
    }
    let few = queued <= FEW && !brief.mixed.get();
    let leaves = few && brief.score.get() >= SURE;
    // Relaxed, as all here: hints for sysmon, which looks again, and for thieves.
    p.left.store(if leaves { brief.number.get() } else { 0 }, Ordering::Relaxed);
    if brief.trial.get() {
        p.kept_until.store(if few { brief.since.get() + SOON } else { 0 }, Ordering::Relaxed);
    }
    leaves
}

/// The holder has queued another one.
#[inline(always)]
pub(crate) fn mixes(p: Held) {
    if p.own().brief.open.get() {
        mixes_with_open(p);
    }
}

#[cold]
fn mixes_with_open(p: Held) {
    p.own().brief.mixed.set(true);
    p.left.store(0, Ordering::Relaxed);
    p.kept_until.store(0, Ordering::Relaxed);
}

/// Whether the P expects its queues to be gone soon.
#[inline]
pub(crate) fn is_sure(p: Held) -> bool {
    p.own().brief.score.get() >= SURE
}

fn begin(p: Held, mixed: bool) {
    let brief = &p.own().brief;
    let last = brief.number.get();
    if last != 0 && p.overdue.load(Ordering::Relaxed) == last {
        brief.score.set(0);
        brief.skip.set(0);
    }
    if brief.open.get() && brief.trial.get() && !brief.mixed.get() {
        // Whoever watched has taken the last of it.
        failed(brief);
    }
    brief.number.set(last.wrapping_add(1).max(1));
    brief.open.set(true);
    brief.mixed.set(mixed);
    let sure = brief.score.get() >= SURE;
    let pause = brief.pause.get();
    brief.trial.set(!sure && pause == 0);
    brief.pause.set(pause.saturating_sub(1));
    p.kept_until.store(0, Ordering::Relaxed);
    let skip = brief.skip.get();
    brief.skip.set(skip.saturating_sub(1));
    brief.since.set(if skip == 0 { clock::now() } else { 0 });
}

fn failed(brief: &Brief) {
    let pauses = (2 * brief.pauses.get()).clamp(1, RARELY);
    brief.pauses.set(pauses);
    brief.pause.set(pauses);
}

/// The holder has taken a goroutine out of its rings.
#[inline(always)]
pub(crate) fn popped(p: Held) {
    if p.own().brief.open.get() && p.runq.rings_empty() {
        end(p);
    }
}

#[inline(never)]
fn end(p: Held) {
    let brief = &p.own().brief;
    brief.open.set(false);
    p.left.store(0, Ordering::Relaxed);
    p.kept_until.store(0, Ordering::Relaxed);
    let since = brief.since.replace(0);
    if since == 0 {
        return;
    }
    if clock::now().saturating_sub(since) >= SOON {
        brief.score.set(0);
        if brief.trial.get() {
            failed(brief);
        }
        return;
    }
    brief.pauses.set(0);
    brief.pause.set(0);
    if brief.score.get() + 1 >= SURE {
        brief.score.set(SURE);
        brief.skip.set(EVERY - 1);
    } else {
        brief.score.set(brief.score.get() + 1);
    }
}

/// The queue of the P that was left to it, by its number; `None` if there is none, or
/// sysmon has seen it for long enough.
pub(crate) fn left(p: &P) -> Option<u32> {
    let left = p.left.load(Ordering::Relaxed);
    (left != 0 && left != p.overdue.load(Ordering::Relaxed)).then_some(left)
}

/// Until when thieves keep off the queue of the P, which is on trial; 0 if it is not.
#[inline]
pub(crate) fn kept_until(p: &P) -> u64 {
    p.kept_until.load(Ordering::Relaxed)
}

/// Whether a thief may not take from the P now.
#[inline]
pub(crate) fn is_kept(p: &P) -> bool {
    left(p).is_some() || {
        let until = kept_until(p);
        until != 0 && clock::now() < until
    }
}

/// sysmon has seen a queue of the P that was left to it for long.
pub(crate) fn is_overdue(p: &P, number: u32) {
    p.overdue.store(number, Ordering::Relaxed);
}

#[cfg(all(test, not(sim)))]
mod tests {
    use super::*;
    use crate::sched::g::G;

    /// A P that nobody else knows, and a goroutine to queue.
    fn world() -> (Held, &'static G) {
        (Held::of_nobody(), crate::sched::g_pool::take().unwrap())
    }

    fn queue(p: Held, g: &'static G) -> bool {
        p.runq.push(g).unwrap();
        leave_to_owner(p)
    }

    fn take(p: Held) {
        assert!(p.runq.pop().is_some());
        popped(p);
    }

    /// As if its queues had been gone soon.
    fn be_sure(p: Held) {
        p.own().brief.score.set(SURE);
        p.own().brief.skip.set(u32::MAX);
    }

    #[test]
    fn nothing_is_left_to_a_p_that_is_not_sure() {
        let (p, g) = world();
        assert!(!queue(p, g));
        assert_eq!(left(&p), None);
    }

    #[test]
    fn a_few_are_left_to_one_that_is_and_many_are_not() {
        let (p, g) = world();
        be_sure(p);
        for _ in 0..FEW {
            assert!(queue(p, g));
        }
        assert!(left(&p).is_some());
        assert!(!queue(p, g), "too many");
        assert_eq!(left(&p), None);
    }

    #[test]
    fn what_is_left_ends_with_the_queue() {
        let (p, g) = world();
        be_sure(p);
        let _left = (queue(p, g), queue(p, g));
        let first = left(&p);
        take(p);
        assert!(first.is_some() && left(&p) == first, "one is there");
        take(p);
        assert_eq!(left(&p), None);
        assert!(queue(p, g) && left(&p) != first);
    }

    #[test]
    fn a_p_whose_queue_was_overdue_is_not_sure_any_more() {
        let (p, g) = world();
        be_sure(p);
        assert!(queue(p, g));
        is_overdue(&p, left(&p).unwrap());
        assert_eq!(left(&p), None, "it counts as work");
        take(p);
        assert!(!queue(p, g));
    }

    #[test]
    fn queues_that_last_are_not_brief() {
        let (p, g) = world();
        be_sure(p);
        p.own().brief.skip.set(0);
        assert!(queue(p, g));
        p.own().brief.since.set(1);
        take(p);
        assert!(!is_sure(p) && !queue(p, g));
    }

    /// As if all that it has tried had lasted.
    fn doubt(p: Held) {
        p.own().brief.score.set(0);
        p.own().brief.pause.set(u32::MAX);
    }

    #[test]
    fn thieves_keep_off_what_is_left_to_its_owner_until_it_is_overdue() {
        let (p, g) = world();
        be_sure(p);
        assert!(queue(p, g) && is_kept(&p));
        is_overdue(&p, left(&p).unwrap());
        assert!(!is_kept(&p));
    }

    #[test]
    fn a_queue_that_others_join_is_anybodys() {
        let (p, g) = world();
        be_sure(p);
        assert!(queue(p, g) && queue(p, g));
        p.runq.push(g).unwrap();
        mixes(p);
        assert!(!is_kept(&p));
        assert!(!queue(p, g), "the other is still there");
        (0..4).for_each(|_| take(p));
        assert!(queue(p, g), "another queue");
    }

    #[test]
    fn a_queue_behind_others_is_anybodys() {
        let (p, g) = world();
        be_sure(p);
        p.runq.push(g).unwrap();
        mixes(p);
        assert!(!queue(p, g) && !is_kept(&p));
    }

    #[test]
    fn a_trial_that_ends_soon_makes_sure() {
        let (p, g) = world();
        for _ in 0..SURE {
            assert!(!queue(p, g), "somebody is woken");
            assert!(kept_until(&p) > 0, "and watches");
            take(p);
            assert_eq!(kept_until(&p), 0);
        }
        assert!(queue(p, g) && left(&p).is_some());
    }

    /// One of 1, 2, 4, ... queues, and of so many for ever.
    #[test]
    fn trials_that_fail_get_rare() {
        let (p, g) = world();
        let mut tried = vec![];
        for i in 0..400 {
            assert!(!queue(p, g));
            if kept_until(&p) != 0 {
                tried.push(i);
                // It has lasted, and a thief has taken it.
                p.own().brief.since.set(1);
                p.kept_until.store(1, Ordering::Relaxed);
                assert!(!is_kept(&p));
            }
            let _ = p.runq.pop();
        }
        assert_eq!(tried, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264, 329, 394]);
    }

    #[test]
    fn many_are_not_tried() {
        let (p, g) = world();
        (0..FEW).for_each(|_| assert!(!queue(p, g) && kept_until(&p) != 0));
        assert!(!queue(p, g));
        assert_eq!(kept_until(&p), 0);
    }

    #[test]
    fn a_p_in_doubt_tries_again_after_a_queue_that_was_gone_soon() {
        let (p, g) = world();
        doubt(p);
        assert!(!queue(p, g));
        assert_eq!(kept_until(&p), 0);
        take(p);
        assert!(!queue(p, g));
        assert!(kept_until(&p) != 0);
    }
}
