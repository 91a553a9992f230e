//! Timers on the scheduler: who sets them, and who looks when one is due.
//!
//! Each P has a heap of its own (`crate::timer`). An entry is looked after by
//!
//! 1. *its P*, when it looks for the next goroutine. Reading the clock costs as
//!    much as a switch, so a busy P reads it about every 2 µs and not every time
//!    ([`check`]); a P with nothing to run looks exactly ([`run_due`]), unless they come
//!    in a crowd: then it rests until some have gathered ([`run_gathered`], `gather`).
//! 2. *thieves*, in their last round, for all Ps in the mask of those that have
//!    timers ([`steal`]).
//! 3. *the keeper*: of the Ms that sleep, the one that sleeps until the earliest
//!    entry of all, or until a crowd has gathered ([`Keeper`], `find::sleep_idle`). An M that goes to sleep and knows
//!    of an earlier entry takes the office over; that costs nobody a wake-up.
//!    Who adds an entry has a P, whose M looks when it goes to sleep; or it is a
//!    plain thread and wakes a sleeper, which looks then.
//! 4. *sysmon*, when all that fails: it sleeps no longer than until the earliest
//!    entry is late, wakes a thief for one that is late, and tells its P to look; if nobody is
//!    idle, it takes the P from a goroutine that computes, a little before (`retake`).

use super::alarm::Alarm;
use super::find::SLICE;
use super::g::{G, flag};
use super::gather;
use super::m::{Inside, M};
use super::netpoll::{self, Desc, Side};
use super::p::{Held, P};
use super::protocol::turn::Number;
use super::schedt::Sched;
use super::task;
use super::wake;
use crate::prim::atomic::{Ordering, fence, fence_after_rmw};
use crate::prim::lock::{Lock, Rank};
use crate::prim::{clock, hint};
use crate::timer::{Added, NEVER};

/// How often a busy P with timers reads the clock.
const LOOK_EVERY: u64 = 2_000;

/// How many goroutines it runs at most in between: if they suddenly take longer
/// than those before them, so do timers, until sysmon notices.
const LOOK_AT_LEAST: u32 = 63;

/// How many entries fire before others get a turn.
const BATCH: usize = 64;

/// What happens when the time has come.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// A wait expires.
    Wake(&'static G, Number),
    /// A `park_timeout` does.
    Unpark(&'static G, Number),
    /// An alarm rings, which was set with this number.
    Call(&'static Alarm, u64),
    /// The deadline of a descriptor's direction has come, the one with this number.
    Poll(&'static Desc, Side, u64),
}

impl Due {
    fn alive(&self) -> bool {
        match self {
            Due::Wake(g, number) | Due::Unpark(g, number) => g.turn().is_open(*number),
            Due::Call(alarm, number) => alarm.is_set_with(*number),
            Due::Poll(desc, side, number) => side.of(desc).is_deadline(*number),
        }
    }

    /// Asks for the memory that it needs, which was not touched since it was set.
    fn prefetch(&self) {
        if let Due::Wake(g, _) | Due::Unpark(g, _) = self {
            hint::prefetch_to_write(*g);
        }
    }

    /// Asks for what running whom it has made ready will need.
    fn prefetch_stack(&self) {
        if let Due::Wake(g, _) | Due::Unpark(g, _) = self {
            g.prefetch_stack();
        }
    }

    /// Does it, on behalf of the P that looked.
    fn fire(&self, sched: &'static Sched, p: Held) {
        match *self {
            Due::Wake(g, number) => {
                if g.turn().expire(number) {
                    ready_last(sched, p, g);
                }
            }
            Due::Unpark(g, number) => {
                // Before the wait is over: afterwards the block may be
                // another's.
                let id = g.id();
                if g.turn().expire(number) && g.ticket.expire(id) {
                    ready_last(sched, p, g);
                }
            }
            // Nothing is called any more, and what the function's drop does is not for
            // this thread: whoever clears the timers drops it.
            Due::Call(..) if sched.closing() => drop(add(sched, p.get(), *self, NEVER)),
            Due::Call(alarm, number) => alarm.ring(sched, number),
            Due::Poll(desc, side, number) => {
                netpoll::wake_all(side.of(desc).expire(number), |turn| turn.wake_last(sched, p));
            }
        }
    }
}

/// How long what is queued may take before one whose time has come goes before it.
const HURRY: u64 = 100_000;

/// Whether a goroutine that is queued on `p` now runs soon. It does not if those before
/// it block their threads, each until sysmon has seen that, or compute: the queue was
/// not there first then, it is in the way. Those whose time came with its own are not in
/// its way ([`begin_batch`]).
fn moves(p: Held) -> bool {
    let looks = &p.own().looks;
    let behind = looks.each.get().saturating_mul(looks.queued.get() as u64);
    behind < HURRY || p.runq.peek_own().is_some() || p.runq.peek_offered().is_some()
}

/// Several are going to be made ready by [`ready_last`].
pub(crate) fn begin_batch(p: Held) {
    let looks = &p.own().looks;
    looks.queued.set(p.runq.len());
    looks.chained.set(p.steps().1 != 0);
}

/// How long goroutines that wake each other through runnext may keep the P: one slice, and
/// less while one whose time has come is queued behind them.
pub(super) fn slice(p: Held) -> u64 {
    /// No queue is longer, and what is further away was reached long ago: ticks wrap around.
    const FARTHEST: u32 = 1 << 16;
    let behind = p.own().looks.reached.get().wrapping_sub(p.tick());
    if (1..FARTHEST).contains(&behind) { HURRY } else { SLICE }
}

/// Makes a goroutine ready behind the others, as a rule: the clock favours nobody, and
/// those that expire together run in the order of their time.
pub(crate) fn ready_last(sched: &'static Sched, p: Held, g: &'static G) {
    use super::protocol::g_state::Ready;
    let idle_priority = g.has(flag::IDLE_PRIORITY);
    match g.ready_with_p() {
        Ready::Deferred => {}
        Ready::Enqueue if idle_priority => wake::inject_idle(sched, sched.life(), g),
        Ready::Enqueue => {
            let looks = &p.own().looks;
            if looks.chained.replace(false) {
                // A chain of runnexts would go on for the rest of its slice, and each other
                // one in the queue for a whole one. It is behind them now instead.
                if let Some(other) = p.runq.put_next(g) {
                    wake::put_tail(sched, p, other);
                }
            } else if moves(p) {
                // It is reached after so many, of which some may begin a chain.
                looks.reached.set(p.tick().wrapping_add(p.runq.len() as u32 + 1));
                wake::put_due(sched, p, g);
            } else {
                let _empty = p.runq.put_next(g);
            }
        }
    }
}

/// A timer that was set.
#[derive(Clone, Copy)]
pub(crate) struct Armed {
    sched: &'static Sched,
    p: &'static P,
}

impl Armed {
    /// It is not needed any more, and has not fired.
    #[inline]
    pub(crate) fn disarm(self) {
        self.p.timers.note_dead();
    }

    /// Where it is set, in half a word; never 0.
    pub(crate) fn half_word(self) -> u32 {
        // At most 1,024 Ps, and as many as 4,096 runtimes.
        u32::from(self.sched.slot()) << 16 | self.p.id << 1 | 1
    }

    /// The timer that [`half_word`](Self::half_word) came from.
    pub(crate) fn from_half_word(word: u32) -> Armed {
        let sched = super::schedt::at((word >> 16) as u16);
        Armed { sched, p: sched.p((word & 0xffff) >> 1) }
    }

    /// Where it is set, in a word.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.sched.slot()) << 32 | u64::from(self.p.id)
    }

    /// The timer that [`word`](Self::word) came from.
    pub(crate) fn from_word(word: u64) -> Armed {
        let sched = super::schedt::at((word >> 32) as u16);
        Armed { sched, p: sched.p(word as u32) }
    }
}

/// Sets a timer on the caller's P. `None` on a thread without one.
#[inline(always)]
pub(crate) fn arm(due: Due, when: u64) -> Option<Armed> {
    Inside::enter().map(|inside| arm_inside(&inside, due, when))
}

/// Sets a timer on the caller's P.
#[inline(always)]
pub(crate) fn arm_inside(inside: &Inside, due: Due, when: u64) -> Armed {
    add(inside.sched(), inside.p.get(), due, when)
}

/// Sets a timer that ends the wait of a goroutine, which has `p`.
///
/// A function of its own, and what it needs in registers: the frame of who sleeps should be
/// small, since of a hundred thousand that do none is in a cache.
#[inline(never)]
pub(crate) fn arm_wait(p: Held, g: &'static G, number: Number, when: u64) -> Armed {
    add(super::schedt::at(g.runtime()), p.get(), Due::Wake(g, number), when)
}

/// Sets a timer on some P of a runtime, from any thread. `None` if it has closed.
pub(crate) fn arm_anywhere(sched: &'static Sched, due: Due, when: u64) -> Option<Armed> {
    match Inside::enter() {
        Some(inside) if std::ptr::eq(inside.sched(), sched) => Some(arm_inside(&inside, due, when)),
        _ => arm_outside(sched, due, when),
    }
}

/// Sets a timer on some P, from a thread without one. `None` if the runtime has
/// closed.
#[cold]
pub(crate) fn arm_outside(sched: &'static Sched, due: Due, when: u64) -> Option<Armed> {
    let shared = sched.shared.lock();
    if shared.closed {
        return None;
    }
    let armed = add(sched, sched.p(0), due, when);
    if shared.keeper.is_none_or(|keeper| sched.gathering.wanted(when) < keeper.until) {
        wake::send_keeper(sched, shared);
        // If all compute, nobody but sysmon looks.
        sched.sysmon.notice_timer(when);
    }
    Some(armed)
}

#[inline(always)]
fn add(sched: &'static Sched, p: &'static P, due: Due, when: u64) -> Armed {
    let armed = Armed { sched, p };
    // Centuries from now is set too: somebody is still to be woken.
    let when = when.min(NEVER - 1);
    if p.timers.add(when, due, Due::alive) == Added::Earliest {
        // Pairs with the fence in `leave_mask`: the bit is seen to be gone, or the
        // entry is. With an earlier one in the heap that is so already.
        fence(Ordering::SeqCst);
        if !sched.timer_mask.contains(p.id) {
            sched.timer_mask.insert(p.id);
            // So that `notice_timer` may rely on it.
            fence_after_rmw();
        }
        let others = !p.runq.is_empty() || sched.runq_size.load(Ordering::Relaxed) != 0;
        if others || sched.sysmon.is_relaxed() {
            sched.sysmon.notice_timer(when);
        }
    }
    armed
}

/// A busy P looks now and then whether something is due.
#[inline(always)]
pub(crate) fn check(sched: &'static Sched, p: Held) {
    if p.timers.next() == NEVER {
        return;
    }
    let left = p.own().looks.left.get();
    if left > 0 && !p.timers_late.load(Ordering::Relaxed) {
        p.own().looks.left.set(left - 1);
        return;
    }
    look(sched, p);
}

/// Reads the clock, and chooses when to do so again from how long the last
/// goroutines took.
#[inline(never)]
fn look(sched: &'static Sched, p: Held) {
    let looks = &p.own().looks;
    let now = p.own().pace.now();
    let took = now.saturating_sub(looks.last.replace(now));
    let each = (took / u64::from(looks.every.get() + 1)).max(1);
    let every = (LOOK_EVERY / each).min(u64::from(LOOK_AT_LEAST)) as u32;
    looks.every.set(every);
    looks.left.set(every);
    looks.each.set(each);
    p.note_now(now);
    p.timers_late.store(false, Ordering::Relaxed);
    // That is not behind the clock, but may be ahead of it, and nobody is woken early.
    if p.timers.next() <= now {
        fire_due(sched, p, [&*p], clock::now());
    }
}

/// A P runs what is due of its own. Returns whether there was something.
pub(crate) fn run_due(sched: &'static Sched, p: Held) -> bool {
    p.timers.next() != NEVER && fire_due(sched, p, [&*p], clock::now())
}

/// The same by a P with nothing else to do, which may wait for a crowd to gather.
pub(crate) fn run_gathered(sched: &'static Sched, p: Held) -> bool {
    if p.timers.next() == NEVER {
        return false;
    }
    let now = clock::now();
    !gather::gathers(sched, now) && fire_due(sched, p, [&*p], now)
}

/// Runs what is due on so many of the Ps that have timers, on behalf of `thief`.
/// Returns whether there was something. A crowd that gathers is left alone.
pub(crate) fn steal(sched: &'static Sched, thief: Held, some: usize) -> bool {
    let wanted = wanted(sched);
    wanted != NEVER && {
        let now = clock::now();
        wanted <= now && steal_at(sched, thief, some, now)
    }
}

/// The keeper's time has come: it runs all that is due, as far as its queue has room for it,
/// and the others gather meanwhile.
pub(crate) fn run_all_due(sched: &'static Sched, p: Held) {
    let now = clock::now();
    while p.runq.room_for_due() > BATCH {
        if !steal_at(sched, p, usize::MAX, now) {
            gather::gathers(sched, now);
            return;
        }
    }
}

fn steal_at(sched: &'static Sched, thief: Held, some: usize, now: u64) -> bool {
    let from = thief.random() % sched.procs();
    let all = sched.timer_mask.iter_from(from, sched.procs()).map(|id| sched.p(id));
    fire_due(sched, thief, all.filter(|p| p.timers.next() <= now).take(some), now)
}

/// Does what is due on some Ps, on behalf of one. Returns whether there was something.
fn fire_due<'a>(
    sched: &'static Sched,
    p: Held,
    of: impl IntoIterator<Item = &'a P>,
    now: u64,
) -> bool {
    begin_batch(p);
    let mut some = false;
    for of in of {
        some |= fire_due_of(sched, p, of, now);
    }
    // Those of a crowd that have gathered run one after the other, as long as that takes no
    // longer than they have waited: for so little, waking another M is dear.
    let each = p.own().looks.each.get();
    // If nobody has looked how long they take here, it may be anything.
    let gathered = sched.gathering.is_crowded(now)
        && each != 0
        && each.saturating_mul(p.runq.len() as u64) < gather::WAIT;
    if some && p.runq.len() > 1 && !gathered {
        // Before the count is read: who goes idle counts itself before it looks at rings.
        fence(Ordering::SeqCst);
        if sched.idle.idle_ps() != 0 {
            wake::wake_p(sched);
        }
    }
    some
}

/// Does what is due on one P, without waking anybody to help.
fn fire_due_of(sched: &'static Sched, p: Held, of: &P, now: u64) -> bool {
    let mut due = p.own().due.take();
    // No more than the queue has room for: they would be no sooner on the global one, and
    // in no cache when their turn comes.
    let room = p.runq.room_for_due().clamp(1, BATCH);
    of.timers.take_due(now, room, &mut due);
    let some = !due.is_empty();
    due.iter().for_each(Due::prefetch);
    due.iter().for_each(|due| due.fire(sched, p));
    // In a loop of its own: the CPU looks up several pages at a time, but not across the
    // locked instructions of a wake-up.
    due.iter().for_each(Due::prefetch_stack);
    due.clear();
    p.own().due.set(due);
    if of.timers.next() == NEVER && sched.timer_mask.contains(of.id) {
        leave_mask(sched, of);
    }
    some
}

/// A P without timers leaves the mask. One that was added at the same time,
/// by a thread that still saw the bit, brings it back.
#[cold]
fn leave_mask(sched: &Sched, p: &P) {
    sched.timer_mask.remove(p.id);
    fence(Ordering::SeqCst);
    if p.timers.next() != NEVER {
        sched.timer_mask.insert(p.id);
    }
}

/// When the earliest timer of all is due, or [`NEVER`].
pub(crate) fn earliest(sched: &Sched) -> u64 {
    let next = sched.timer_mask.iter(sched.procs()).map(|id| sched.p(id).timers.next());
    next.min().unwrap_or(NEVER)
}

/// When somebody idle is to look at the timers of some P, or [`NEVER`]: when the earliest is
/// due, or when those of a crowd have gathered.
pub(crate) fn wanted(sched: &Sched) -> u64 {
    sched.gathering.wanted(earliest(sched))
}

/// A timer is late when its time came so long ago: before, its P or the keeper of the
/// timers sees to it.
pub(crate) const LATE: u64 = 50_000;

/// Whether one of this P's is late: then its P computes.
pub(crate) fn are_late(sched: &Sched, p: &P, now: u64) -> bool {
    sched.gathering.wanted(p.timers.next()) <= now.saturating_sub(LATE)
}

/// A timer of a P that computes is looked after so long before its time: as long as it
/// takes to ask for the P, to take it, and to wake a thread that then waits for the time.
pub(crate) const AHEAD: u64 = 250_000;

/// When that is for the next of this P's.
pub(crate) fn ahead_of_next(p: &P) -> u64 {
    p.timers.next().saturating_sub(AHEAD)
}

/// Drops those of this P's that nobody waits for, up to the first that somebody does.
pub(crate) fn drop_dead_first(p: &P) {
    p.timers.drop_first_dead(Due::alive);
}

/// Whether anything waits for the clock; dead entries are dropped first.
pub(crate) fn any(sched: &Sched) -> bool {
    for id in sched.timer_mask.iter(sched.procs()) {
        sched.p(id).timers.sweep(Due::alive);
    }
    earliest(sched) != NEVER
}

/// Moves the timers of a P that goes to another one. The world stands.
pub(crate) fn move_all(sched: &'static Sched, from: &'static P, to: &'static P) {
    for (when, due) in from.timers.take_all() {
        add(sched, to, due, when);
    }
    sched.timer_mask.remove(from.id);
}

/// The M that sleeps until the earliest timer.
#[derive(Clone, Copy)]
pub(crate) struct Keeper {
    pub(crate) m: &'static M,
    pub(crate) until: u64,
}

/// Deadlines of descriptors whose runtime has ended, while there is no other.
static HOMELESS: Lock<Vec<(u64, Due)>> = Lock::new(Rank::Leaf, Vec::new());

/// The deadlines of descriptors outlive the runtime in which they were set, as the
/// descriptors do: another runtime keeps them, or the next one with somebody who waits.
pub(crate) fn hand_deadlines_over(sched: &'static Sched) {
    for p in sched.ps() {
        for (when, due) in p.timers.take_all() {
            match due {
                Due::Poll(..) if due.alive() => keep_deadline(when, due),
                Due::Poll(..) => {}
                _ => drop(add(sched, p, due, when)),
            }
        }
    }
}

/// Sets a deadline in some runtime, since the one of the caller has closed.
pub(crate) fn keep_deadline(when: u64, due: Due) {
    if !super::schedt::all().any(|sched| arm_outside(sched, due, when).is_some()) {
        HOMELESS.lock().push((when, due));
    }
}

/// A runtime in which somebody waits for a descriptor.
pub(crate) fn adopt_deadlines(sched: &'static Sched) {
    let deadlines = std::mem::take(&mut *HOMELESS.lock());
    for (when, due) in deadlines.into_iter().filter(|(_, due)| due.alive()) {
        if arm_outside(sched, due, when).is_none() {
            keep_deadline(when, due);
        }
    }
}

/// Drops all timers of a runtime that has ended.
pub(crate) fn clear(sched: &Sched) {
    for p in sched.ps() {
        for (_, due) in p.timers.take_all() {
            if let Due::Call(alarm, number) = due {
                task::drop_or_abort_with("a timer's function", || alarm.cancel(number));
            }
        }
    }
    sched.timer_mask.clear();
}
