//! Waking a thread for work, or not.
//!
//! # Offers
//!
//! A P whose rings are not empty sets its bit in the mask of offers and keeps
//! it until it finds its own queue empty: one atomic operation per busy period,
//! not one per goroutine. A runnext is offered by a bit in a mask of its own,
//! which the thief that looks at it clears.
//!
//! # Prediction for runnext
//!
//! A goroutine that is alone in runnext will usually run as soon as the present
//! one blocks, a few nanoseconds from now; waking a thief for it costs
//! microseconds and then a migration. But if the present one computes on, the
//! thief was needed. Nobody can know, so each goroutine carries a score of two
//! bits about itself, "do I compute on after I wake somebody?":
//!
//! | event | score |
//! |---|---|
//! | a thief took my runnext: I was late | 3 |
//! | my runnext was offered to thieves, and then I left the P to it | one less |
//! | a new goroutine | the score of the last one that ended on this P |
//!
//! With 2 or 3 the runnext is offered, and a thief woken if one sleeps: also while
//! all Ps are busy, since one that has run out of work a moment later must see it.
//! With 0 or 1 nothing happens, and sysmon takes a runnext that stays to the
//! others, and the score says so. Neither side needs a clock.

use super::g::G;
use super::m::M;
use super::p::{Held, P};
use super::policy::{Departure, departs};
use super::protocol::idle::{Recheck, Wake};
use super::protocol::run_queue::HALF;
use super::schedt::Sched;
use super::shared::Shared;
use super::{apart, brief, timers};
use crate::prim::atomic::{AtomicBool, Ordering, fence, fence_after_rmw};
use crate::prim::fatal::fatal;
use crate::prim::lock::Guard;
use crate::prim::mutant::{Mutant, is};
use crate::timer::NEVER;
use std::ptr;

/// The score of a goroutine that nothing is known of: wake.
pub(crate) const UNDECIDED: u8 = 2;
/// The score of a goroutine that was late.
pub(crate) const LATE: u8 = 3;
const WAKES: u8 = 2;

/// Makes a goroutine the next one on the caller's P. It is runnable and the
/// caller's.
///
/// A lone runnext, whose waker is about to leave the P, costs no
/// read-modify-write: nobody is woken for it and nobody else looks at it.
#[inline(always)]
pub(crate) fn ready_next(m: &'static M, p: Held, g: &'static G) {
    let waker = m.curg();
    let score = waker.map_or(UNDECIDED, G::score);
    if (score >= WAKES || !departs(Departure::Prediction)) && !p.runq.alone() {
        return offer_next(m.sched, p, waker, g);
    }
    // It runs as soon as the caller leaves (a ring of 503 goroutines: 85 ns a hop, and
    // so 69). Who has just left is in the cache (a ping-pong: 56 ns, and so 54).
    if !p.own().left.get().is_some_and(|left| ptr::eq(left, g)) {
        g.prefetch_stack();
    }
    match p.runq.put_next(g) {
        Some(kicked) => {
            // One that is new says nothing about how long it will run: those that arrive at
            // random, and compute for 20 µs, waited for each other while a P was idle.
            let leaves_soon = kicked.has_frame() && departs(Departure::Prediction);
            put_kicked(m.sched, p, kicked, leaves_soon);
        }
        None if m.sched.idle.idle_ps() != 0 => p.counters.spared_wakes.bump(),
        None => {}
    }
}

/// The runnext that was goes to the ring: there is more than this P can run, unless its
/// waker leaves soon and so do those that it has woken.
#[inline(always)]
fn put_kicked(sched: &'static Sched, p: Held, kicked: &'static G, leaves_soon: bool) {
    if !is(Mutant::LoseKicked) {
        push_tail(sched, p, kicked);
    }
    if p.runq.alone() {
        return;
    }
    if !leaves_soon {
        brief::mixes(p);
    } else if brief::leave_to_owner(p) {
        // No fence: sysmon looks after it.
        return p.counters.spared_wakes.bump();
    }
    fence(Ordering::SeqCst);
    wake_p(sched);
}

/// A runnext that its waker will be in the way of.
#[inline(never)]
fn offer_next(sched: &'static Sched, p: Held, waker: Option<&'static G>, g: &'static G) {
    if let Some(waker) = waker {
        learn_late(p, waker);
    }
    let kicked = p.runq.put_next_offered(g);
    p.own().offered_next.set(true);
    // The exchange was a full fence: whoever withdraws the offer after this look
    // sees the goroutine.
    fence_after_rmw();
    if !sched.next_offers.contains(p.id) {
        sched.next_offers.insert(p.id);
    }
    match kicked {
        Some(kicked) => put_kicked(sched, p, kicked, false),
        None => wake_p(sched),
    }
}

/// Adds a goroutine at the tail of the local queue; if that is full, half of it
/// goes to the global queue.
#[inline]
pub(crate) fn put_tail(sched: &'static Sched, p: Held, g: &'static G) {
    if p.runq.push(g).is_err() {
        overflow(sched, p, g);
    }
    offer(sched, p);
}

/// The same for a goroutine that was woken here: the queue may be left to its owner.
#[inline(always)]
fn push_tail(sched: &'static Sched, p: Held, g: &'static G) {
    if p.runq.push(g).is_err() {
        overflow(sched, p, g);
    }
    advertise(sched, p);
}

/// The same for one of many whose time has come, or that the network has something for.
#[inline]
pub(crate) fn put_due(sched: &'static Sched, p: Held, g: &'static G) {
    if p.runq.push_due(g).is_err() {
        overflow(sched, p, g);
    }
    offer(sched, p);
}

/// Adds a goroutine that yielded. The caller knows whether it gives way to a queue that is
/// left to its owner (see `brief`).
#[inline]
pub(crate) fn put_yielded(sched: &'static Sched, p: Held, g: &'static G) {
    if p.runq.push_yielded(g).is_err() {
        overflow_yielded(sched, p, g);
    }
    advertise(sched, p);
}

/// The ring is full: its older half and `g` go to the global queue
/// (Go's `runqputslow`), or to this P's part of it.
#[cold]
fn overflow(sched: &'static Sched, p: Held, g: &'static G) {
    p.counters.overflows.bump();
    // With many Ps, behind those that yielded here while there is room: the second ring is
    // this P's shard of the global queue. All that fill their rings would meet at one lock,
    // to put and to take. Thieves see both rings; and like the global queue, this one
    // comes before the first every so many ticks.
    let stays = sched.groups() > 1 && p.runq.room_for_yielded() > HALF;
    loop {
        if let Some(half) = p.runq.take_half() {
            let rest = (!is(Mutant::LoseOverflow)).then_some(g);
            if stays {
                return half.iter().chain(rest).for_each(|g| stay(p, g));
            }
            return to_global(sched, half.iter().chain(rest));
        }
        // Thieves were faster: there is room now.
        if p.runq.push(g).is_ok() {
            return;
        }
    }
}

fn stay(p: Held, g: &'static G) {
    if p.runq.push_yielded(g).is_err() {
        fatal!("a ring with room for half a ring and one is full");
    }
}

#[cold]
fn overflow_yielded(sched: &'static Sched, p: Held, g: &'static G) {
    p.counters.overflows.bump();
    loop {
        if let Some(half) = p.runq.take_yielded(|n| n - n / 2) {
            return to_global(sched, half.iter().chain([g]));
        }
        if p.runq.push_yielded(g).is_ok() {
            return;
        }
    }
}

fn to_global(sched: &'static Sched, gs: impl Iterator<Item = &'static G>) {
    // A closed runtime drops what is queued: shutdown finds the goroutines by
    // their state, not by their queue.
    let _ = sched.put_global(gs);
}

/// Queues a goroutine from outside: a thread without a P, or another runtime.
pub(crate) fn inject(sched: &'static Sched, life: u32, g: &'static G) {
    if sched.put_global_in(life, [g]) {
        // The queue's size was stored with SeqCst; this makes it a fence.
        fence(Ordering::SeqCst);
        wake_p(sched);
    }
}

/// Queues a goroutine of idle priority.
pub(crate) fn inject_idle(sched: &'static Sched, life: u32, g: &'static G) {
    {
        let mut shared = sched.shared.lock();
        if shared.closed || life != sched.life() {
            return;
        }
        shared.idle_runq.append([g]);
        sched.idle_runq_size.store(shared.idle_runq.len(), Ordering::SeqCst);
    }
    fence(Ordering::SeqCst);
    wake_p(sched);
}

/// Offers what the holder has queued, and whatever else is queued, to all.
#[inline(always)]
pub(crate) fn offer(sched: &Sched, p: Held) {
    advertise(sched, p);
    brief::mixes(p);
}

/// Sets the P's bit in the mask of offers.
#[inline(always)]
pub(crate) fn advertise(sched: &Sched, p: Held) {
    if !p.own().advertised.get() && !is(Mutant::NoOffer) {
        set_offer(sched, p);
    }
}

#[cold]
fn set_offer(sched: &Sched, p: Held) {
    p.own().advertised.set(true);
    sched.offers.insert(p.id);
}

/// Clears the P's bit: its rings are empty, as nobody but its holder, the
/// caller, can fill them.
pub(crate) fn withdraw_offer(sched: &Sched, p: Held) {
    if p.own().advertised.replace(false) {
        sched.offers.remove(p.id);
    }
}

/// The goroutine leaves the P, which will run its runnext now: was that offered
/// in vain, or was an offer missing?
#[inline(always)]
pub(crate) fn learn(p: Held, g: &'static G) {
    if !learn_late(p, g) && p.own().offered_next.get() && p.runq.peek_offered().is_some() {
        g.set_score(g.score().saturating_sub(1));
    }
    p.own().offered_next.set(false);
}

/// Whether a thief had to run what the goroutine has made ready.
#[inline(always)]
fn learn_late(p: Held, g: &'static G) -> bool {
    let late = p.late.load(Ordering::Relaxed);
    if late {
        p.late.store(false, Ordering::Relaxed);
        g.set_score(LATE);
    }
    late
}

/// Wakes a searcher if nobody searches and a P is idle. The caller has passed a
/// full fence since it published work.
#[inline(always)]
pub(crate) fn wake_p(sched: &'static Sched) {
    if sched.idle.claim_wake() == Wake::Claimed {
        start_searcher(sched);
    }
}

/// The same by a thief, of whom several may search on a machine with many idle Ps.
pub(crate) fn wake_more(sched: &'static Sched) {
    if sched.idle.claim_more() == Wake::Claimed {
        start_searcher(sched);
    }
}

#[cold]
#[inline(never)]
fn start_searcher(sched: &'static Sched) {
    let mut shared = sched.shared.lock();
    if shared.closed {
        let _ = sched.idle.found();
        return;
    }
    match sched.take_idle_p(&mut shared) {
        Some(p) => run_p(sched, shared, p, true),
        None => sched.idle.no_idle_p(),
    }
}

/// Starts an M for a P that was told something, if it is idle.
pub(crate) fn wake_this(sched: &'static Sched, p: &'static P) {
    let mut shared = sched.shared.lock();
    if !shared.closed && sched.take_this_idle_p(&mut shared, p) {
        run_p_on(sched, shared, p, false, Shared::take_rested_m);
    }
}

/// Starts the first M of a runtime, on its first P.
pub(crate) fn start_first(sched: &'static Sched) -> std::io::Result<()> {
    let (m, p) = {
        let mut shared = sched.shared.lock();
        // Whoever set a timer here from outside has started one already.
        let Some(p) = sched.take_idle_p(&mut shared) else { return Ok(()) };
        shared.threads += 1;
        (free_m(sched, &mut shared), p)
    };
    m.start(p, false).inspect_err(|_| {
        let mut shared = sched.shared.lock();
        shared.threads -= 1;
        shared.free_ms.push(m);
        sched.put_idle_p(&mut shared, p);
    })
}

pub(super) fn free_m(sched: &'static Sched, shared: &mut Guard<'_, Shared>) -> &'static M {
    shared.free_ms.pop().unwrap_or_else(|| {
        let m = M::new(shared.all_ms.len() as u32, sched);
        shared.all_ms.push(m);
        // Room for all of them, so that nobody who goes idle waits for an allocator
        // with the lock held.
        let all = shared.all_ms.len();
        let idle = shared.idle_ms.len();
        shared.idle_ms.reserve(all - idle);
        let free = shared.free_ms.len();
        shared.free_ms.reserve(all - free);
        m
    })
}

/// Runs `p`, which nobody holds, on an idle M or on a new one.
pub(crate) fn start_m(sched: &'static Sched, p: &'static P, searching: bool) {
    run_p(sched, sched.shared.lock(), p, searching);
}

/// As [`start_m`], with the lock. An M is chosen and has its P before the lock
/// is free: a shutdown finds it either idle or with a P, and counts its thread.
fn run_p(sched: &'static Sched, shared: Guard<'_, Shared>, p: &'static P, searching: bool) {
    run_p_on(sched, shared, p, searching, Shared::take_idle_m);
}

/// The same; `idle` says which of those that are idle.
#[inline]
fn run_p_on(
    sched: &'static Sched,
    mut shared: Guard<'_, Shared>,
    p: &'static P,
    searching: bool,
    idle: fn(&mut Shared) -> Option<&'static M>,
) {
    if shared.closed {
        // Nobody runs any more; shutdown empties the queue of the P.
        if searching {
            let _ = sched.idle.found();
        }
        return;
    }
    if super::signal::forked() {
        fatal!(
            "this process was forked from a goroutine, and the runtime's threads are gone; \
             only exec or exit from here"
        );
    }
    if let Some(m) = idle(&mut shared) {
        if searching {
            apart::keep_off(m);
            apart::wakes_a_thief();
        }
        m.give(p, searching);
        drop(shared);
        m.note.wake();
        return;
    }
    if shared.expected > 0 {
        // A thread is on its way, and looks around when it comes.
        return without_thread(sched, &mut shared, p, searching);
    }
    let limit = sched.config().max_threads;
    if shared.threads >= limit {
        if shared.stuck() >= shared.threads {
            drop(shared);
            fatal!(
                "program exceeds {limit}-thread limit; goroutines that block their thread need \
                 one each:\n\traise Builder::max_threads, or block less"
            );
        }
        // Some thread is left to run goroutines: fewer at a time.
        return without_thread(sched, &mut shared, p, searching);
    }
    if super::locked::is_locked() {
        // Its goroutine may have changed what a new thread inherits: its mask of
        // CPUs, its priority, its namespaces. sysmon, which has not, sees that a
        // thread is missing.
        without_thread(sched, &mut shared, p, searching);
        drop(shared);
        return sched.sysmon.poke();
    }
    shared.threads += 1;
    let m = free_m(sched, &mut shared);
    drop(shared);
    if let Err(error) = m.start(p, searching) {
        no_thread(sched, m, p, searching, &error);
    }
}

/// The kernel refused a thread. The others go on; sysmon tries again while
/// there is work for one more.
#[cold]
fn no_thread(
    sched: &'static Sched,
    m: &'static M,
    p: &'static P,
    searching: bool,
    error: &std::io::Error,
) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        crate::prim::os::write_stderr(
            format!(
                "heist: cannot start a thread ({error}); going on with those that run\n\t\
                 (limits: ulimit -u, the cgroup's pids.max, memory)\n"
            )
            .as_bytes(),
        );
    }
    let mut shared = sched.shared.lock();
    shared.threads -= 1;
    shared.free_ms.push(m);
    without_thread(sched, &mut shared, p, searching);
}

/// There is no thread for a P: it goes idle, and what was queued on it goes where
/// the others see it.
fn without_thread(
    sched: &'static Sched,
    shared: &mut Guard<'_, Shared>,
    p: &'static P,
    searching: bool,
) {
    // What it was told stays: sysmon, or the thread that comes, looks at that.
    if !p.runq.is_empty() {
        let queued = super::in_place::drain(p);
        sched.put_global_locked(shared, queued);
    }
    sched.put_idle_p(shared, p);
    if searching {
        let _ = sched.idle.found();
    }
}

/// Whether nobody sleeps until the next timer, or in the poller, though somebody should
/// once all who run have stopped.
pub(crate) fn is_unkept(sched: &Sched, shared: &Shared) -> bool {
    let next = timers::wanted(sched);
    let kept = next == NEVER || shared.keeper.is_some_and(|keeper| keeper.until <= next);
    !kept || (shared.poller.is_none() && sched.poll.is_wanted())
}

/// Has an M look after the timers and the network: one that sleeps; or if all wait with
/// their goroutines, one for an idle P. Without an idle P those who run look before they
/// sleep.
///
/// Who sleeps looks at both with the lock held before it does: it has seen what the caller
/// has set, or it is among the sleepers.
pub(crate) fn send_keeper(sched: &'static Sched, mut shared: Guard<'_, Shared>) {
    let sleeper = shared.keeper.map(|keeper| keeper.m).or(shared.idle_ms.last().copied());
    if let Some(m) = sleeper {
        drop(shared);
        m.note.wake();
    } else if let Some(p) = sched.take_idle_p(&mut shared) {
        run_p(sched, shared, p, false);
    }
}

/// Gives a P whose M is going to block to another M, or makes it idle
/// (Go's `handoffp`).
pub(crate) fn handoff_p(sched: &'static Sched, p: &'static P) {
    let queued = !p.runq.is_empty() || sched.runq_size.load(Ordering::SeqCst) != 0;
    if queued || !p.told.is_empty() {
        return start_m(sched, p, false);
    }
    // Nobody searches and nobody is idle: this P may be the only one to notice
    // what comes next.
    if sched.idle.idle_ps() == 0 && sched.idle.try_claim_search() {
        return start_m(sched, p, true);
    }
    let mut shared = sched.shared.lock();
    if shared.queued() != 0 || !p.told.is_empty() {
        drop(shared);
        return start_m(sched, p, false);
    }
    // An M that goes to sleep looks at the timers and the network, but the one that
    // gives this P up waits with its goroutine: if nobody keeps them, another M looks.
    let unkept = is_unkept(sched, &shared);
    sched.put_idle_p(&mut shared, p);
    if unkept {
        send_keeper(sched, shared);
    } else {
        drop(shared);
    }
    // Who published work before the P was idle has woken nobody for it.
    let Recheck = sched.idle.rest();
    if super::find::work_is_visible(sched) {
        wake_p(sched);
    }
}
