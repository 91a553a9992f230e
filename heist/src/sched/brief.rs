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
//! With [`SURE`] a queue of a few is left to its owner: it is offered, and those who are
//! awake may take from it, but nobody is woken for it. sysmon, which looks every few
//! milliseconds at least while somebody is idle (`backoff`), does not count such a queue as work that waits
//! until it has seen the same one for a while. Then it wakes somebody, and says so.
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
}

/// The holder has queued a goroutine while a P is idle. Whether it is left to this P,
/// and nobody is woken for it.
#[inline]
pub(crate) fn leave_to_owner(p: Held) -> bool {
    let brief = &p.own().brief;
    let queued = p.runq.in_rings();
    if queued <= 1 || !brief.open.get() {
        begin(p);
    }
    let leaves = brief.score.get() >= SURE && queued <= FEW;
    // Relaxed, as all here: a hint for sysmon, which looks again.
    p.left.store(if leaves { brief.number.get() } else { 0 }, Ordering::Relaxed);
    leaves
}

/// Whether the P expects its queues to be gone soon.
#[inline]
pub(crate) fn is_sure(p: Held) -> bool {
    p.own().brief.score.get() >= SURE
}

fn begin(p: Held) {
    let brief = &p.own().brief;
    let last = brief.number.get();
    if last != 0 && p.overdue.load(Ordering::Relaxed) == last {
        brief.score.set(0);
        brief.skip.set(0);
    }
    brief.number.set(last.wrapping_add(1).max(1));
    brief.open.set(true);
    let skip = brief.skip.get();
    brief.skip.set(skip.saturating_sub(1));
    brief.since.set(if skip == 0 { clock::now() } else { 0 });
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
    let since = brief.since.replace(0);
    if since == 0 {
        return;
    }
    if clock::now().saturating_sub(since) >= SOON {
        brief.score.set(0);
    } else if brief.score.get() + 1 >= SURE {
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
}
