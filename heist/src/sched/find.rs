//! Finding the next goroutine: near before far, cheap before dear.
//!
//! The phases, in the order of Go's `findRunnable`:
//!
//! | # | phase | where |
//! |---|---|---|
//! | 0 | safe point: does the runtime close, or the world stop? | [`stop::at_safe_point`] |
//! | 1 | timers that are due | [`timers::check`] |
//! | 2 | every 61st tick, what the P was told, one from the global queue (with many Ps: some, more rarely), or one that yielded | [`from_global_now_and_then`] |
//! | 3 | the local queue: runnext, then the ring | [`from_local`] |
//! | 4 | what the P was told; a batch from the global queue; those who yielded | [`told`](super::told), [`next_round`] |
//! | 5 | the network | [`poll_network`] |
//! | 6 | timers, exactly; steal | [`timers::run_gathered`], [`steal::steal`] |
//! | 7 | goroutines of idle priority | [`idle_priority`] |
//! | 8 | give the P up, look at everything once more, sleep | [`sleep`] |

use super::g::{G, flag};
use super::m::M;
use super::p::Held;
use super::policy::{Departure, departs};
use super::protocol::idle::{Found, Recheck};
use super::schedt::Sched;
use super::shared::Shared;
use super::steal::{self, Look};
use super::stop::{self, Halt};
use super::timers::Keeper;
use super::{apart, brief, near, netpoll, thieves, timers, wake};
use crate::prim::atomic::{Ordering, fence};
use crate::prim::clock;
use crate::prim::epoll::Batch;
use crate::prim::lock::Guard;
use crate::prim::mutant::{Mutant, is};
use crate::prim::{hint, probe};
use crate::timer::NEVER;
use std::ptr;
use std::time::Duration;

/// How often the global queue comes before the local one: a prime, so that no
/// rhythm of the program's own hides it.
pub(crate) const GLOBAL_EVERY: u32 = 61;

/// How long a goroutine and those that it wakes through runnext may keep a P
/// while others are queued.
pub(crate) const SLICE: u64 = 10_000_000;

/// How long an idle M that is needed sleeps at least before it asks again whether it is.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How many runnexts in a row run before the clock is read.
const SAMPLE: u32 = 32;

/// Fewer goroutines than this that yield on a P are no crowd.
const CROWD: usize = 64;

/// How often a P without a crowd looks whether another has one.
const EVEN_OUT_EVERY: u32 = 16;

/// In so many rounds each of them has been on the global queue once. More often
/// costs more: it may change its P there, and its stack's lines go along.
const ABOUT: usize = 32;

/// A goroutine to run.
pub(crate) struct Next {
    pub(crate) g: &'static G,
    /// It goes on in the time slice of the one before it.
    pub(crate) inherit_time: bool,
}

impl Next {
    fn fresh(g: &'static G) -> Next {
        Next { g, inherit_time: false }
    }
}

/// The next goroutine for an M with a P. Sleeps until there is one; `None` when
/// the thread is to end, with no P.
///
/// What is near is inlined into the scheduler's loop: most goroutines that run next are
/// there, a moment after their waker has left.
#[inline(always)]
pub(crate) fn find_runnable(m: &'static M) -> Option<Next> {
    match near(m) {
        Near::Here(next) => Some(next),
        Near::Nothing => find_farther(m),
        Near::End => None,
    }
}

/// What is to be run next, of what the P itself has.
enum Near {
    Here(Next),
    Nothing,
    /// The thread is to end.
    End,
}

/// Phases 0 to 3.
#[inline(always)]
fn near(m: &'static M) -> Near {
    if m.sched.halts() && !may_go_on(m) {
        return Near::End;
    }
    let p = m.held();
    timers::check(m.sched, p);
    match from_global_now_and_then(m, p).or_else(|| from_local(p)) {
        Some(next) => Near::Here(found(m, next)),
        None => Near::Nothing,
    }
}

/// Phase 0, if there is something to it. False when the thread is to end.
#[cold]
fn may_go_on(m: &'static M) -> bool {
    loop {
        match stop::at_safe_point(m) {
            Halt::GoOn => return true,
            Halt::LookAgain if !m.sched.halts() => return true,
            Halt::LookAgain => {}
            Halt::End => return false,
        }
    }
}

/// The phases from 4 on, and those before them once more, until there is something.
#[inline(never)]
fn find_farther(m: &'static M) -> Option<Next> {
    loop {
        let p = m.held();
        // What the P was told comes before those who yielded, who may do so for ever.
        let told = p.told.pop().map(Next::fresh);
        if let Some(next) = told.or_else(|| next_round(m, p)).or_else(|| from_local(p)) {
            return Some(found(m, next));
        }
        if !poll_network(m, p) && !timers::run_gathered(m.sched, p) {
            if let Some(g) = search(m, p).or_else(|| idle_priority(m)) {
                return Some(found(m, Next::fresh(g)));
            }
            if !search_on(m, p) && !sleep(m) {
                return None;
            }
        }
        match near(m) {
            Near::Here(next) => return Some(next),
            Near::Nothing => {}
            Near::End => return None,
        }
    }
}

/// A searcher that has found work stops searching, and makes sure that somebody
/// searches for the rest, if there is any.
#[inline(always)]
fn found(m: &'static M, next: Next) -> Next {
    // One that is handed over gets the P first: it may hold what waking others needs.
    if m.searching() && !next.g.has(flag::PINNED) {
        stop_searching(m);
    }
    next
}

#[cold]
fn stop_searching(m: &'static M) {
    m.set_searching(false);
    m.held().own().search_since.set(0);
    search_is_over(m.sched);
}

/// The end of a search that found something, of an M whose mark is gone already.
#[cold]
pub(crate) fn search_is_over(sched: &'static Sched) {
    probe::searching(false);
    // The decrement is the fence between "nobody searches" and this look at the
    // queues: whoever published work and saw us search is seen here.
    if sched.idle.found() == Found::WakeAnother
        && !is(Mutant::DropBaton)
        && (!departs(Departure::QuietEnd) || work_is_visible(sched))
    {
        // Two, if there may be so many: a machine wakes as a tree, not as a line.
        wake::wake_more(sched);
        wake::wake_more(sched);
    }
}

/// Phase 5. The last P that runs has nothing to steal, so its M goes to wait in the poller
/// right away, and would have looked twice: it looks only if that is worth more than one.
#[inline(always)]
fn poll_network(m: &'static M, p: Held) -> bool {
    let sched = m.sched;
    if !sched.poll.is_wanted() {
        return false;
    }
    let now = netpoll::note_done(sched, p);
    let waits_at_once = sched.idle.idle_ps() + 1 == sched.procs()
        && sched.idle_runq_size.load(Ordering::Relaxed) == 0;
    if waits_at_once { netpoll::watch(sched, p, now) } else { netpoll::look(sched, p) }
}

/// Phase 2.
#[inline(always)]
fn from_global_now_and_then(m: &'static M, p: Held) -> Option<Next> {
    let tick = p.tick();
    // Once a tick: runnexts that follow each other do not count ticks.
    if !tick.is_multiple_of(GLOBAL_EVERY) || p.own().looked.get() == tick {
        return None;
    }
    p.own().looked.set(tick);
    look_at_global(m, p)
}

/// Those behind a local queue that is never empty: what the P was told and the global queue,
/// and those that yielded here, by turns.
#[cold]
fn look_at_global(m: &'static M, p: Held) -> Option<Next> {
    // Also the clock that reports of waiting goroutines go by.
    let now = clock::now();
    p.note_now(now);
    netpoll::look_if_late(m.sched, p, now);
    near::settle(m.sched, p);
    let yielded_first = (p.tick() / GLOBAL_EVERY).is_multiple_of(2);
    // Of many Ps each takes more, and more seldom: the lock is one for all.
    let groups = m.sched.groups();
    let turn = p.tick() / GLOBAL_EVERY / 2 + p.id;
    let global = || match m.sched.runq_size.load(Ordering::Relaxed) {
        0 => None,
        // One that is frozen is taken alone, so it must not be rarer.
        _ if !turn.is_multiple_of(groups) && m.sched.frozen_size.load(Ordering::Relaxed) == 0 => {
            None
        }
        _ => m.sched.take_global_few(p, groups as usize, (turn / groups).is_multiple_of(2)),
    };
    // What the P was told nobody else takes, so it comes before those who can be stolen.
    let others = || p.told.pop().or_else(global);
    let g = match yielded_first {
        true => p.runq.pop_yielded().or_else(others),
        false => others().or_else(|| p.runq.pop_yielded()),
    };
    brief::popped(p);
    g.map(Next::fresh)
}

/// Phase 3.
#[inline(always)]
fn from_local(p: Held) -> Option<Next> {
    let popped = p.runq.pop()?;
    if !popped.inherit_time {
        brief::popped(p);
    } else if slice_is_over(p) {
        return rotate(p, popped.item);
    }
    Some(Next { g: popped.item, inherit_time: popped.inherit_time })
}

/// Whether goroutines that wake each other through runnext have kept the P for
/// a whole slice. The clock is read once in a while only.
#[inline(always)]
fn slice_is_over(p: Held) -> bool {
    let streak = p.streak_up();
    streak.is_multiple_of(SAMPLE) && slice_is_over_at(p, streak)
}

#[cold]
fn slice_is_over_at(p: Held, streak: u32) -> bool {
    let now = p.own().pace.now();
    if streak == SAMPLE {
        p.own().slice_start.set(now);
    }
    now.saturating_sub(p.own().slice_start.get()) >= timers::slice(p)
}

/// The runnext goes behind the others; the first of them runs.
#[cold]
fn rotate(p: Held, g: &'static G) -> Option<Next> {
    p.end_streak();
    // The ring has room: it is only pushed to by us, and thieves only take.
    if p.runq.push_yielded(g).is_err() {
        return Some(Next::fresh(g));
    }
    brief::mixes(p);
    // A new slice, and with it a new look at the global queue soon.
    p.tick_up();
    p.runq.pop().map(|popped| Next::fresh(popped.item))
}

/// Phase 4: the ring is empty. The P's share of the global queue goes behind
/// those that yielded, and they all get their turn; one that was frozen comes
/// first.
#[inline]
fn next_round(m: &'static M, p: Held) -> Option<Next> {
    let mut frozen = None;
    if m.sched.runq_size.load(Ordering::Relaxed) != 0 {
        frozen = m.sched.take_global_batch(p).map(Next::fresh);
    } else if p.runq.yielded() > CROWD || p.tick().is_multiple_of(EVEN_OUT_EVERY) {
        even_out(m.sched, p);
    }
    if p.runq.yielded() > 0 {
        p.runq.turn();
        wake::advertise(m.sched, p);
    }
    frozen
}

/// Those that yield stay on their P, so a P with many of them serves each less
/// often than one with few, and one whose thread the kernel has stopped serves
/// none. So at the end of a round Ps even out what they have: a few of them by way
/// of the global queue, many (whom its lock could not bear) only by taking.
#[cold]
fn even_out(sched: &'static Sched, p: Held) {
    let others = sched.procs() - 1;
    if others == 0 {
        return;
    }
    let other = sched.p((p.id + 1 + p.random() % others) % (others + 1));
    let (mine, theirs) = (p.runq.yielded(), other.runq.len());
    if mine > CROWD && sched.groups() == 1 {
        // To the global queue, where the others look at the end of their rounds:
        // half of what is too much, and always a few, so that all get about.
        let too_much = |mine: usize| (mine.saturating_sub(theirs) / 2).max(mine / ABOUT);
        if let Some(some) = p.runq.take_yielded(too_much) {
            // Refused by a runtime that closes: shutdown finds them by their state.
            let _ = sched.put_global(some.iter());
        }
    } else if theirs > 2 * mine + CROWD
        && let Some(g) = other.runq.steal_into(&p.runq)
    {
        wake::put_tail(sched, p, g);
        // Who went to sleep meanwhile may have seen neither ring with them.
        fence(Ordering::SeqCst);
        wake::wake_p(sched);
    }
}

/// Phase 6.
fn search(m: &'static M, p: Held) -> Option<&'static G> {
    if m.sched.procs() == 1 {
        return None;
    }
    if !m.searching() {
        if let Some(g) = steal::quickly(m.sched, p) {
            return Some(g);
        }
        if !m.sched.idle.try_search(m.sched.procs()) {
            return None;
        }
        m.set_searching(true);
    }
    probe::searching(true);
    wake::withdraw_offer(m.sched, p);
    let look = if is_patient(m.sched) { Look::Around } else { Look::Everywhere };
    steal::steal(m.sched, p, look).or_else(|| thieves::beg(m.sched, p))
}

/// Whether searchers search for a while: if there are many, each with a CPU to do it on.
fn is_patient(sched: &Sched) -> bool {
    sched.has_many_cpus() && departs(Departure::Patience)
}

/// How long a searcher searches: about what it costs to sleep and to be woken. So
/// it costs at most twice what it would if it knew what comes.
const PATIENCE: u64 = 20_000;

/// Between two looks of all searchers together there is this much time for each P that
/// works: one that searches for itself looks as often as its share is.
const LOOK: u64 = 4_000;

/// The shortest and the longest pause between two looks of a searcher.
const PAUSES: (u64, u64) = (200, 5_000);

/// Whether a searcher that has found nothing looks again. The pause before that is
/// the longer the more search and the fewer work, so that the machine's looks
/// are as many as there is work, not as there are searchers.
fn search_on(m: &'static M, p: Held) -> bool {
    let sched = m.sched;
    if !m.searching() || !is_patient(sched) {
        return false;
    }
    let (searching, idle) = (sched.idle.searching(), sched.idle.idle_ps());
    let working = sched.procs().saturating_sub(searching + idle);
    let (now, since) = (clock::now(), p.own().search_since.get());
    if working == 0 || since != 0 && now.saturating_sub(since) > PATIENCE {
        p.own().search_since.set(0);
        return false;
    }
    if since == 0 {
        p.own().search_since.set(now);
    }
    let pause = u64::from(searching) * LOOK / u64::from(working);
    let until = now + pause.clamp(PAUSES.0, PAUSES.1);
    while clock::now() < until {
        (0..8).for_each(|_| hint::spin_loop());
    }
    true
}

/// Phase 7.
#[inline]
fn idle_priority(m: &'static M) -> Option<&'static G> {
    if m.sched.idle_runq_size.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut shared = m.sched.shared.lock();
    let g = shared.idle_runq.pop();
    m.sched.idle_runq_size.store(shared.idle_runq.len(), Ordering::SeqCst);
    g
}

/// Phase 8. Returns false when the thread is to end; otherwise the M has a P
/// again and looks once more.
fn sleep(m: &'static M) -> bool {
    let sched = m.sched;
    {
        let mut shared = sched.shared.lock();
        let queued = shared.queued() + shared.idle_runq.len();
        if sched.closing() || queued != 0 || !m.held().told.is_empty() {
            if sched.groups() > 1 {
                // Another of its group is there to take it, and may need the CPU for that.
                drop(shared);
                hint::give_way();
            }
            return true;
        }
        wake::withdraw_offer(sched, m.held());
        m.held().counters.parks.bump();
        m.held().own().search_since.set(0);
        let p = if is(Mutant::KeepIdleP) { sched.p(m.held().id) } else { m.release_p() };
        sched.put_idle_p(&mut shared, p);
    }
    let searched = m.searching();
    let Recheck = if searched {
        probe::searching(false);
        m.set_searching(false);
        sched.idle.give_up()
    } else {
        sched.idle.rest()
    };
    thieves::ask_before_sleep(sched);
    if is(Mutant::NoRecheck) || !work_is_visible(sched) || !search_again(m) {
        return sleep_in_office(m);
    }
    true
}

/// There is work after all: the M takes a P back and searches, unless somebody
/// else does.
fn search_again(m: &'static M) -> bool {
    let sched = m.sched;
    if !sched.idle.try_claim_search() {
        return false;
    }
    let mut shared = sched.shared.lock();
    let Some(p) = sched.take_idle_p(&mut shared) else {
        // With the lock: whoever gives a P up later must not see us search.
        sched.idle.no_idle_p();
        return false;
    };
    drop(shared);
    m.acquire_p(p);
    m.set_searching(true);
    true
}

/// An M without a P takes an idle one if there is something to run. False if
/// there is nothing, or no P: then whoever gives one up sees the work.
pub(crate) fn take_p_for_work(m: &'static M) -> bool {
    let sched = m.sched;
    if !work_is_visible(sched) {
        return false;
    }
    let idle = sched.take_idle_p(&mut sched.shared.lock());
    let Some(p) = idle else { return false };
    m.acquire_p(p);
    m.held().begin();
    true
}

/// Whether there is work that a thief could take: the global queues, and the
/// Ps that have something to offer.
pub(crate) fn work_is_visible(sched: &Sched) -> bool {
    sched.runq_size.load(Ordering::SeqCst) != 0
        || sched.idle_runq_size.load(Ordering::SeqCst) != 0
        || steal::anything_waits(sched)
        || timers_are_due(sched)
}

fn timers_are_due(sched: &Sched) -> bool {
    let next = timers::wanted(sched);
    next != NEVER && next <= clock::now()
}

/// From now on the M, which has no P, can be chosen to run one. Returns false
/// when the thread is to end.
pub(crate) fn become_idle(m: &'static M) -> bool {
    let mut shared = m.sched.shared.lock();
    if !shared.closed {
        shared.idle_ms.push(m);
    }
    !shared.closed
}

/// Sleeps as an idle M until somebody gives it a P; watches for it for so many
/// nanoseconds first. Returns false when the thread is to end.
pub(crate) fn sleep_idle(m: &'static M, watch: u64) -> bool {
    m.note.watch(watch);
    let offices = take_offices(m, &mut m.sched.shared.lock());
    sleep_as(m, offices)
}

/// [`become_idle`] and [`sleep_idle`], with the lock taken once.
fn sleep_in_office(m: &'static M) -> bool {
    let offices = {
        let mut shared = m.sched.shared.lock();
        if shared.closed {
            return false;
        }
        shared.idle_ms.push(m);
        take_offices(m, &mut shared)
    };
    sleep_as(m, offices)
}

fn sleep_as(m: &'static M, mut offices: Offices) -> bool {
    let sched = m.sched;
    let mut patience = sched.config().idle_thread;
    loop {
        if offices.timers.is_some() {
            m.keep_time();
        }
        let mut events = None;
        let woken = if offices.polls {
            let batch = events.insert(Batch::new());
            // First the right to wait, then the note: who rings when it says that this
            // one is there must reach it.
            // But it may have lost the office already, chosen to run a P, and another may
            // be there in its place, until there is an event.
            let is_over = || m.is_given_p() || !sched.shared.lock().polls(m);
            match sched.poll.enter(is_over) {
                Some(waiting) => m.note.sleep_elsewhere(|| waiting.wait(offices.timers, batch)),
                None => true,
            }
        } else {
            m.note.sleep_until(Some(offices.timers.unwrap_or_else(|| clock::after(patience))))
        };
        if m.acquire_next_p() {
            apart::woke_up(m);
            m.held().begin();
            if let Some(events) = &events {
                netpoll::deliver(sched, m.held(), events);
            }
            return true;
        }
        if sched.closing() {
            events.iter().for_each(netpoll::deliver_from_outside);
            // Chosen at the last moment, it has a P to give up.
            let chosen = !leave_idle(&mut sched.shared.lock(), m) && m.acquire_next_p();
            apart::woke_up(m);
            return chosen;
        }
        let some = events.as_ref().is_some_and(|events| !events.is_empty());
        // Or a P has begun to look after its own meanwhile.
        let due = !woken && offices.timers.is_some() && timers_are_due(sched);
        if (some || due) && come_back(m) {
            if let Some(events) = &events {
                netpoll::deliver(sched, m.held(), events);
            }
            timers::run_all_due(sched, m.held());
            return true;
        }
        if some {
            // No P is idle: those that run will see them.
            events.iter().for_each(netpoll::deliver_from_outside);
        } else if !woken && !offices.polls && offices.timers.is_none() {
            if retire(m) {
                return false;
            }
            // It is needed: whoever wants threads to end at once does not want that
            // asked without a pause.
            patience = patience.max(ASK_AGAIN);
        }
        // Or it was told to look at its offices again.
        offices = take_offices(m, &mut sched.shared.lock());
    }
}

/// What an idle M looks after while it sleeps.
struct Offices {
    /// It sleeps until the earliest timer of all, which is then.
    timers: Option<u64>,
    /// It waits in the poller.
    polls: bool,
}

/// An idle M becomes the keeper of the timers, if there are any and nobody sleeps
/// until the earliest of them; and goes to wait in the poller, if something is
/// registered there and nobody waits.
fn take_offices(m: &'static M, shared: &mut Guard<'_, Shared>) -> Offices {
    let sched = m.sched;
    // One that was chosen meanwhile is about to run. Ps that are busy look after
    // their timers themselves, and at the network.
    let idle = shared.idle_ms.iter().any(|idle| ptr::eq(*idle, m)) && !shared.idle_ps.is_empty();
    // With the lock: see `timers::arm_outside`.
    let until = timers::wanted(sched);
    let earlier = shared.keeper.is_none_or(|keeper| ptr::eq(keeper.m, m) || until < keeper.until);
    let keeps = idle && earlier && until != NEVER;
    // If others run, they look at the network, unless they were seen not to.
    let last = (shared.idle_ps.len() == sched.procs() as usize || sched.poll.lags())
        && !is(Mutant::PollNobody);
    let polls =
        idle && last && sched.poll.is_wanted() && shared.poller.is_none_or(|p| ptr::eq(p, m));
    // Or the next one to sleep would rely on it.
    shared.leave_offices(m);
    if keeps {
        shared.keeper = Some(Keeper { m, until });
    }
    if polls {
        shared.poller = Some(m);
    }
    Offices { timers: keeps.then_some(until), polls }
}

/// An M that was not chosen has seen something to do: it takes an idle P. False if it
/// is to sleep again: somebody has chosen it, or no P is idle.
fn come_back(m: &'static M) -> bool {
    let sched = m.sched;
    let p = {
        let mut shared = sched.shared.lock();
        shared.leave_offices(m);
        // Chosen by another, it has a P already.
        let Some(at) = shared.idle_ms.iter().position(|idle| ptr::eq(*idle, m)) else {
            return false;
        };
        let Some(p) = sched.take_idle_p(&mut shared) else { return false };
        shared.idle_ms.swap_remove(at);
        p
    };
    m.acquire_p(p);
    m.held().begin();
    true
}

/// Takes the M out of the idle ones. False if somebody has chosen it already, or
/// a shutdown has emptied the list.
fn leave_idle(shared: &mut Shared, m: &'static M) -> bool {
    let before = shared.idle_ms.len();
    shared.idle_ms.retain(|idle| !ptr::eq(*idle, m));
    shared.idle_ms.len() != before
}

/// Ends a thread that has been idle for long, unless the Ps need it: each that is idle
/// has one that sleeps, whatever the others wait for.
fn retire(m: &'static M) -> bool {
    let sched = m.sched;
    let mut shared = sched.shared.lock();
    // Who has something to look after looks for a sleeper with the lock held, and tells
    // it afterwards: this one may be it.
    if shared.idle_ms.len() <= shared.idle_ps.len() || wake::is_unkept(sched, &shared) {
        return false;
    }
    leave_idle(&mut shared, m)
}
