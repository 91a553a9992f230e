//! P: a processor, the right to run goroutines.
//!
//! Allocated once and kept by its scheduler. Most of it belongs to the M that
//! holds it: those fields are in [`Own`] and are reached through [`Held`], which
//! only the holder can have. What thieves, sysmon and reports read is atomic.

use super::alarm;
use super::brief::Brief;
use super::frames::Frames;
use super::g::G;
use super::g_pool;
use super::jobs::Jobs;
use super::m::M;
use super::protocol::run_queue::RunQueue;
use super::timers::Due;
use super::told::Told;
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::prim::clock::{self, Pace};
use crate::prim::place::Place;
use crate::prim::rng::Rng;
use crate::stacks;
use crate::timer::Timers;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

/// Counters that the holder writes and anybody reads.
///
/// One writer each, so an increment is a load and a store, not a
/// read-modify-write.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) spawned: Count,
    pub(crate) finished: Count,
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    pub(crate) failed_steals: Count,
    pub(crate) overflows: Count,
    pub(crate) spared_wakes: Count,
    pub(crate) parks: Count,
    pub(crate) promoted: Count,
    pub(crate) raided: Count,
}

/// A counter with one writer.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Undoes one [`bump`](Self::bump).
    pub(crate) fn take_back(&self) {
        self.add(u64::MAX);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What only the holder touches.
pub(crate) struct Own {
    pub(crate) gs: g_pool::Cache,
    pub(crate) frames: Frames,
    rng: Rng,
    /// Ids that were reserved and not yet given out.
    ids: Cell<(u64, u64)>,
    /// The present goroutine has offered a runnext to thieves.
    pub(crate) offered_next: Cell<bool>,
    /// The bit of this P in the mask of non-empty Ps is set.
    pub(crate) advertised: Cell<bool>,
    /// For timers that it sets.
    pub(crate) pace: Pace,
    /// The prediction that new goroutines start with (see `wake`).
    pub(crate) birth_score: Cell<u8>,
    /// The last tick at which the global queue came first.
    pub(crate) looked: Cell<u32>,
    /// The goroutine that was the last to leave its stack in order to wait.
    pub(crate) left: Cell<Option<&'static G>>,
    /// For how many nanoseconds the goroutine that is just leaving its stack is going to
    /// sleep (see `nap`).
    pub(crate) nap: Cell<u64>,
    /// When the present row of runnexts began, once it is long.
    pub(crate) slice_start: Cell<u64>,
    /// How many more calls may find nothing before one yields (see
    /// `park::poll_point`).
    pub(crate) polls: Cell<u32>,
    /// How many more waits begin at once (see `park::give_way_to_few`).
    pub(crate) wary: Cell<u32>,
    /// Since when its M has searched in vain, or 0 (see `find::search_on`).
    pub(crate) search_since: Cell<u64>,
    pub(crate) looks: Looks,
    pub(crate) brief: Brief,
    /// The present goroutine yields to a few others (see `park::give_way_to_few`).
    pub(crate) gives_way: Cell<bool>,
    pub(crate) alarms: alarm::Cache,
    /// When the network last had something for this P, and for how many goroutines.
    pub(crate) batch: Cell<(u64, u64)>,
    /// Kept for its memory: timers that are being fired.
    pub(crate) due: Cell<Vec<Due>>,
    /// Where it was seen to run (see `near`).
    pub(crate) place: Cell<Option<Place>>,
    /// Its last search for victims brought one goroutine at most (see `near`).
    pub(crate) scant: Cell<bool>,
}

/// How a P reads the clock for its timers (see `timers::check`).
#[derive(Default)]
pub(crate) struct Looks {
    /// How many goroutines run before the next reading.
    pub(crate) left: Cell<u32>,
    /// How many ran between the last two.
    pub(crate) every: Cell<u32>,
    /// When the last reading was.
    pub(crate) last: Cell<u64>,
    /// How long a goroutine took on this P, of those between the last two.
    pub(crate) each: Cell<u64>,
    /// How many were queued when the last of its timers, or of the network's events, began
    /// to be handed out.
    pub(crate) queued: Cell<usize>,
    /// A chain of runnexts kept the P at that time, and none of them has gone before it.
    pub(crate) chained: Cell<bool>,
    /// The tick at which the last of those that went behind the others has its turn.
    pub(crate) reached: Cell<u32>,
}

/// The processor.
pub(crate) struct P {
    pub(crate) id: u32,
    pub(crate) runq: RunQueue<G>,
    /// How many goroutines were started or resumed, runnext not counted.
    tick: AtomicU32,
    /// How many runnexts ran in a row since.
    streak: AtomicU32,
    /// The M that holds it, for reports.
    m: AtomicPtr<M>,
    /// It has yet to call what every P is to call (see `stop::on_each_p`).
    pub(crate) safe_point: AtomicBool,
    /// A thief took this P's runnext: its goroutine computes on after a wake.
    pub(crate) late: AtomicBool,
    /// The number of a queue that nobody was woken for, or 0 (see `brief`). Written by the
    /// holder.
    pub(crate) left: AtomicU32,
    /// Until when thieves keep off its queue, or 0. Written by the holder.
    pub(crate) kept_until: AtomicU64,
    /// The number of one that sysmon has seen for long.
    pub(crate) overdue: AtomicU32,
    pub(crate) timers: Timers<Due>,
    /// The clock, as of the last time that somebody read it for this P: its holder now and then,
    /// and sysmon while that is with one goroutine. Reports of those who wait go by it.
    now: AtomicU64,
    /// sysmon has seen a timer that is late.
    pub(crate) timers_late: AtomicBool,
    /// It was idle since an M last [began](Held::begin) with it. By whoever makes it idle, and
    /// by its next holder.
    pub(crate) rested: AtomicBool,
    pub(crate) counters: Counters,
    /// What `par` has spawned here.
    pub(crate) jobs: Jobs,
    /// Goroutines that begin here.
    pub(crate) told: Told,
    own: Own,
}

// SAFETY: all fields but `own` are atomic; `own` is reached through `Held` only,
// of which there is at most one.
unsafe impl Sync for P {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for P {}

/// How many goroutines a P has run at least between two moments, by its steps: ticks, and
/// the runnexts since the last one.
pub(super) fn run_between(before: (u32, u32), now: (u32, u32)) -> u32 {
    match now.0.wrapping_sub(before.0) {
        0 => now.1.saturating_sub(before.1),
        ticks => ticks.saturating_add(now.1),
    }
}

impl P {
    pub(crate) fn new(id: u32, alone: bool) -> Self {
        P {
            id,
            runq: RunQueue::new(alone),
            tick: AtomicU32::new(0),
            streak: AtomicU32::new(0),
            m: AtomicPtr::new(ptr::null_mut()),
            safe_point: AtomicBool::new(false),
            late: AtomicBool::new(false),
            left: AtomicU32::new(0),
            kept_until: AtomicU64::new(0),
            overdue: AtomicU32::new(0),
            timers: Timers::new(),
            now: AtomicU64::new(0),
            timers_late: AtomicBool::new(false),
            rested: AtomicBool::new(true),
            counters: Counters::default(),
            jobs: Jobs::new(),
            told: Told::new(),
            own: Own {
                gs: g_pool::Cache::new(id),
                frames: Frames::new(),
                rng: Rng::new(0),
                ids: Cell::new((0, 0)),
                offered_next: Cell::new(false),
                advertised: Cell::new(false),
                pace: Pace::new(),
                birth_score: Cell::new(super::wake::UNDECIDED),
                looked: Cell::new(u32::MAX),
                left: Cell::new(None),
                nap: Cell::new(0),
                slice_start: Cell::new(0),
                polls: Cell::new(0),
                wary: Cell::new(0),
                search_since: Cell::new(0),
                looks: Looks::default(),
                brief: Brief::default(),
                gives_way: Cell::new(false),
                alarms: alarm::Cache::new(),
                batch: Cell::default(),
                due: Cell::default(),
                place: Cell::new(None),
                scant: Cell::new(false),
            },
        }
    }

    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// What changes with every goroutine that runs.
    pub(crate) fn steps(&self) -> (u32, u32) {
        (self.tick(), self.streak.load(Ordering::Relaxed))
    }

    /// The time, as of some recent moment.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Somebody has read the clock.
    #[inline(always)]
    pub(crate) fn note_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Free control blocks, for reports.
    pub(crate) fn free_gs(&self) -> usize {
        // An atomic inside of what otherwise is the holder's.
        self.own.gs.len()
    }

    /// The M that holds it, as of some recent moment.
    pub(crate) fn m(&self) -> Option<&'static M> {
        // SAFETY: null or a `&'static M`.
        // Acquire: with `set_m`, for what the M says of itself.
        unsafe { self.m.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set_m(&self, m: Option<&'static M>) {
        self.m.store(m.map_or(ptr::null_mut(), |m| ptr::from_ref(m).cast_mut()), Ordering::Release);
    }
}

/// A P and the proof that this thread holds it.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    p: &'static P,
    /// Not for other threads.
    marker: PhantomData<*mut ()>,
}

impl Held {
    /// # Safety
    ///
    /// The calling thread's M holds `p`, and the value is not used once it
    /// gives `p` up (a goroutine does so when it suspends).
    #[inline(always)]
    pub(crate) unsafe fn new(p: &'static P) -> Held {
        Held { p, marker: PhantomData }
    }

    /// A P of no scheduler's.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Held {
        let p = Box::leak(Box::new(P::new(0, false)));
        // SAFETY: nobody else knows it.
        unsafe { Held::new(p) }
    }

    /// The P itself, for those who keep it without holding it.
    pub(crate) fn get(self) -> &'static P {
        self.p
    }

    #[inline(always)]
    pub(crate) fn own(&self) -> &'static Own {
        &self.p.own
    }

    /// The M has just got it. If it was idle, the time before was nobody's. If it was taken
    /// from one that blocks, that took as long: so those behind it do not move, and a timer
    /// goes before them (`timers::moves`).
    pub(crate) fn begin(self) {
        let now = clock::now();
        self.note_now(now);
        // Relaxed: who made it idle did so with the scheduler's lock, which who took it had.
        if self.rested.load(Ordering::Relaxed) {
            self.rested.store(false, Ordering::Relaxed);
            self.own().looks.last.set(now);
        }
    }

    /// Counts a goroutine that starts a slice of its own.
    #[inline(always)]
    pub(crate) fn tick_up(&self) -> u32 {
        let tick = self.p.tick.load(Ordering::Relaxed).wrapping_add(1);
        self.p.tick.store(tick, Ordering::Relaxed);
        tick
    }

    /// Counts a goroutine that goes on in the slice of the one before it; returns
    /// how many there were in a row.
    #[inline(always)]
    pub(crate) fn streak_up(&self) -> u32 {
        let streak = self.p.streak.load(Ordering::Relaxed).wrapping_add(1);
        self.p.streak.store(streak, Ordering::Relaxed);
        streak
    }

    #[inline(always)]
    pub(crate) fn end_streak(&self) {
        self.p.streak.store(0, Ordering::Relaxed);
    }

    pub(crate) fn random(&self) -> u32 {
        self.own().rng.next()
    }

    /// A goroutine id. Taken 64 at a time, so that the shared counter is rarely
    /// touched.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        const BATCH: u64 = 64;
        let (mut next, mut end) = self.own().ids.get();
        if next == end {
            next = super::schedt::reserve_ids(BATCH);
            end = next + BATCH;
        }
        self.own().ids.set((next + 1, end));
        next
    }

    /// Gives away what the P has cached.
    pub(crate) fn flush(&self, class: stacks::Class) {
        self.own().gs.flush();
        self.own().frames.reset(class);
    }

    /// Makes the P new for another runtime.
    pub(crate) fn reset(&self, class: stacks::Class, seed: u64) {
        self.own().rng.reseed(seed ^ u64::from(self.p.id) << 32);
        self.flush(class);
        self.p.told.clear();
        self.p.left.store(0, Ordering::Relaxed);
        self.own().gives_way.set(false);
        self.own().offered_next.set(false);
        self.own().advertised.set(false);
        self.own().looked.set(u32::MAX);
        self.own().search_since.set(0);
        self.own().place.set(None);
        self.own().scant.set(false);
        self.end_streak();
        self.own().birth_score.set(super::wake::UNDECIDED);
        self.p.late.store(false, Ordering::Relaxed);
        self.p.tick.store(0, Ordering::Relaxed);
        let c = &self.p.counters;
        let all = [
            &c.spawned,
            &c.finished,
            &c.steals,
            &c.stolen,
            &c.failed_steals,
            &c.overflows,
            &c.spared_wakes,
            &c.parks,
            &c.promoted,
            &c.raided,
        ];
        all.into_iter().for_each(Count::clear);
    }
}

impl Deref for Held {
    type Target = P;
    #[inline(always)]
    fn deref(&self) -> &P {
        self.p
    }
}
