//! The scheduler's shared state: what all Ps and Ms of a runtime have in
//! common.
//!
//! A `Sched` is allocated once and recycled, never freed: a thread that readies
//! a goroutine at the moment its runtime ends finds a closed scheduler, not
//! freed memory.

use super::m::M;
use super::mask::{MAX_PROCS, Mask};
use super::near::Near;
use super::p::{Count, Held, P};
use super::policy::{Departure, departs};
use super::protocol::global_queue::GlobalQueue;
use super::protocol::idle::{Crew, Idle};
use super::shared::Shared;
use super::timers;
use crate::poll::poller::Poller;
use crate::prim::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, keep,
};
use crate::prim::clock;
use crate::prim::fatal::fatal;
use crate::prim::lock::{Lock, Rank};
use crate::prim::note::Note;
use crate::prim::thread;
use crate::stacks::Class;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Runtimes that can be alive in a process at a time.
const MAX_RUNTIMES: usize = 4096;

/// So many Ps are as many as one lock can bear that each of them takes now and then.
pub(super) const GROUP: u32 = 16;

/// What happens when a goroutine panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The panic ends its goroutine and is given to whoever joins it, as with
    /// std's threads.
    #[default]
    Isolate,
    /// As `Isolate`, and the runtime shuts down: it takes no new goroutines, the
    /// others stop at their next blocking call, and
    /// [`Runtime::run`](crate::Runtime::run) panics.
    ShutDown,
    /// The process aborts, once the panic's message is printed.
    Abort,
}

/// The layer above the scheduler, as a thread of a runtime sees it.
pub(crate) trait Upstairs: Any + Send + Sync {
    /// Calls [`M::main`] on a thread that the scheduler has started, inside of whatever the
    /// threads of the runtime are set up with.
    fn around(self: Arc<Self>, m: &'static M);
}

/// How a runtime was set up.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) procs: usize,
    /// Nobody has said how many: the number follows the CPU limit.
    pub(crate) follow_limit: bool,
    /// How many threads the user brings along.
    pub(crate) hosted: usize,
    /// How many Ps, the first ones, run nothing.
    pub(crate) reserved: usize,
    pub(crate) stack: Class,
    pub(crate) thread_name: String,
    pub(crate) max_threads: usize,
    /// How many goroutines may compute without a P; `None` for as many as Ps.
    pub(crate) max_runners: Option<usize>,
    pub(crate) idle_thread: Duration,
    pub(crate) shutdown: Duration,
    pub(crate) panic: PanicPolicy,
    pub(crate) seed: u64,
    pub(crate) trace: Option<Duration>,
    pub(crate) trace_detail: bool,
    pub(crate) tls_guard: bool,
}

/// Why an M does not simply go on to the next goroutine.
pub(crate) mod halt {
    /// The runtime shuts down.
    pub(crate) const CLOSING: u32 = 1;
    /// The world is to stop: give the P up (see `stop`).
    pub(crate) const STOPPING: u32 = 2;
    /// Each P is to call a function (see `stop::on_each_p`).
    pub(crate) const SAFE_POINT: u32 = 4;
}

/// How often sysmon acted; it alone writes.
#[derive(Default)]
pub(crate) struct Preemption {
    /// Ps taken from goroutines that computed or blocked.
    pub(crate) retakes: Count,
    /// Threads stopped.
    pub(crate) freezes: Count,
}

impl Preemption {
    fn clear(&self) {
        self.retakes.clear();
        self.freezes.clear();
    }
}

/// The scheduler of one runtime.
pub(crate) struct Sched {
    slot: u16,
    pub(crate) shared: Lock<Shared>,
    /// Length of the global queue, the frozen ones included, to look at without the
    /// lock.
    pub(crate) runq_size: CachePadded<AtomicUsize>,
    /// A P of this group takes from the global queue (see `global`).
    pub(super) at_global: [CachePadded<AtomicBool>; MAX_PROCS / GROUP as usize],
    /// How many of those are frozen.
    pub(crate) frozen_size: AtomicUsize,
    pub(crate) idle: Idle,
    /// Ps whose rings have something for thieves, or may have.
    pub(crate) offers: Mask,
    /// Ps whose runnext is free for thieves.
    pub(crate) next_offers: Mask,
    /// Ps with timers, or that had some a moment ago.
    pub(crate) timer_mask: Mask,
    /// Until when timers wait for each other.
    pub(crate) gathering: super::gather::Gathering,
    /// Ps without an M.
    pub(crate) idle_mask: Mask,
    /// Where Ps run.
    pub(crate) near: Near,
    /// How often it was opened.
    life: AtomicU32,
    /// Read at every step, written when the runtime opens and closes.
    /// Bits of [`halt`].
    halt: CachePadded<AtomicU32>,
    procs: AtomicU32,
    /// The number of Ps follows the CPU limit.
    pub(crate) follow_limit: AtomicBool,
    /// The most that there were in this life: what those have counted still counts.
    most_procs: AtomicU32,
    reserved: AtomicU32,
    pub(crate) idle_runq_size: AtomicUsize,
    all_ps: Box<[OnceLock<&'static P>]>,
    config: Lock<Option<Arc<Config>>>,
    /// Goroutines spawned and finished by those without a P.
    pub(crate) foreign_spawned: AtomicU64,
    pub(crate) foreign_finished: AtomicU64,
    pub(crate) opened: AtomicU64,
    /// How many CPUs there were when it got its Ps, if it has many.
    cpus: AtomicU32,
    /// Wakes the thread that waits for the Ms to end.
    pub(crate) all_stopped: Note,
    pub(crate) sysmon: super::sysmon::Sysmon,
    /// What its goroutines wait for outside of the process, and some others.
    pub(crate) poll: Poller,
    /// Whether those who are ready there are worth another M.
    pub(crate) company: super::company::Company,
    /// Since when goroutines have been waiting for a stack, or 0.
    pub(crate) no_stack_since: AtomicU64,
    /// The goroutine whose panic closed the runtime (`PanicPolicy::ShutDown`).
    pub(crate) fatal_panic: Lock<Option<u64>>,
    /// Held by whoever stops and unwinds the runtime; says whether it was given
    /// up: whoever was unwinding it may still be at it.
    pub(crate) winding_down: Lock<bool>,
    /// Goroutines that somebody unwinds, or has.
    pub(crate) unwinding: Lock<BTreeSet<u64>>,
    /// Ms without a thread, for those who unwind.
    ghosts: Lock<Vec<&'static M>>,
    /// Who takes Ps from Ms: sysmon, or whoever stops the world.
    pub(crate) taking: Lock<()>,
    /// Wakes whoever stops the world.
    pub(crate) stopped: Note,
    /// What each P is to call, while [`halt::SAFE_POINT`] is set.
    pub(crate) safe_point: Lock<Option<super::stop::SafePoint>>,
    /// Why the world is being stopped, or stands.
    pub(crate) stopped_for: Lock<Option<super::stop::Reason>>,
    /// What sysmon did to those that would not leave.
    pub(crate) preemption: Preemption,
    /// `usize::MAX` for as many as Ps.
    max_runners: AtomicUsize,
    /// A goroutine was asked to yield (see `park::safe_point`).
    pub(crate) requests: AtomicBool,
    /// Goroutines have lost their Ps to whoever stopped the world; sysmon, which looks
    /// after runners, does not know them yet.
    pub(crate) evicted: AtomicBool,
    /// Ms that wait with their goroutine.
    pub(crate) in_place: AtomicUsize,
    /// Stacks that were searched for thread-locals, and those that had some.
    pub(crate) tls_searches: AtomicU64,
    pub(crate) tls_holds: AtomicU64,
    /// Ms whose goroutine has forked since they resumed it.
    pub(crate) forking: CachePadded<AtomicUsize>,
    /// The M that was last kept off a CPU and has not woken up, its number and one; or 0.
    pub(crate) kept_off: AtomicU32,
    /// What the layer above keeps with a runtime.
    pub(crate) upstairs: Lock<Option<Arc<dyn Upstairs>>>,
    /// The thread that a panic started in order to shut the runtime down.
    pub(crate) shutdown_thread: Lock<Option<thread::JoinHandle<()>>>,
}

static TABLE: [AtomicPtr<Sched>; MAX_RUNTIMES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_RUNTIMES];

/// Schedulers that can be opened again, and how many there are in all.
static FREE: Lock<(Vec<&'static Sched>, u16)> = Lock::new(Rank::Runtimes, (Vec::new(), 0));

/// Every scheduler ever made, open or not.
pub(crate) fn all() -> impl Iterator<Item = &'static Sched> {
    // SAFETY: null or a leaked `Sched`; the table fills from the front.
    TABLE.iter().map_while(|entry| unsafe { entry.load(Ordering::Acquire).as_ref() })
}

/// The scheduler in a slot.
pub(crate) fn at(slot: u16) -> &'static Sched {
    // SAFETY: null or a leaked `Sched`.
    match unsafe { TABLE[slot as usize].load(Ordering::Acquire).as_ref() } {
        Some(sched) => sched,
        None => fatal!("no runtime in slot {slot}"),
    }
}

/// Fewer Ps than this are no crowd of searchers, and what they wait for is seldom
/// there a moment later.
const MANY: u32 = 8;

/// How many are woken at a time.
fn crew() -> Crew {
    if departs(Departure::Crew) { Crew::SIXTEENTH } else { Crew::ONE }
}

/// Reserves goroutine ids, from 1 on.
pub(crate) fn reserve_ids(n: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(n, Ordering::Relaxed)
}

impl Sched {
    /// Opens a scheduler: a recycled one or a new one. `None` if there are too
    /// many.
    pub(crate) fn open(config: Config) -> Option<&'static Sched> {
        let recycled = FREE.lock().0.pop();
        let sched = match recycled {
            Some(sched) => sched,
            None => Sched::make()?,
        };
        sched.procs.store(config.procs as u32, Ordering::Relaxed);
        sched.most_procs.store(config.procs as u32, Ordering::Relaxed);
        sched.follow_limit.store(config.follow_limit, Ordering::Relaxed);
        sched.opened.store(clock::now(), Ordering::Relaxed);
        sched.note_cpus(config.procs as u32);
        sched.foreign_spawned.store(0, Ordering::Relaxed);
        sched.foreign_finished.store(0, Ordering::Relaxed);
        sched.tls_searches.store(0, Ordering::Relaxed);
        sched.tls_holds.store(0, Ordering::Relaxed);
        *sched.fatal_panic.lock() = None;
        sched.unwinding.lock().clear();
        // The largest number has another meaning, and nobody gets near the others.
        let runners = config.max_runners.map_or(usize::MAX, |n| n.min(usize::MAX / 2));
        sched.max_runners.store(runners, Ordering::Relaxed);
        sched.preemption.clear();
        let (class, seed, hosted) = (config.stack, config.seed, config.hosted);
        let reserved = config.reserved as u32;
        sched.reserved.store(reserved, Ordering::Relaxed);
        *sched.upstairs.lock() = None;
        *sched.config.lock() = Some(Arc::new(config));
        sched.offers.clear();
        sched.next_offers.clear();
        sched.near.clear();
        sched.idle.reset();
        let alone = sched.procs() == 1;
        let mut shared = sched.shared.lock();
        for id in (0..sched.procs()).rev() {
            let p: &'static P = sched.all_ps[id as usize]
                .get_or_init(|| keep(Box::leak(Box::new(P::new(id, alone)))));
            p.runq.set_alone(alone);
            // SAFETY: the scheduler has no Ms yet, so nobody holds its Ps.
            unsafe { Held::new(p) }.reset(class, seed);
            if id >= reserved {
                sched.put_idle_p(&mut shared, p);
            }
        }
        shared.expected = hosted;
        sched.life.store(sched.life().wrapping_add(1), Ordering::Relaxed);
        // With the lock: whoever finds it open, and starts an M, has that find it open.
        sched.halt.store(0, Ordering::Release);
        shared.closed = false;
        drop(shared);
        Some(sched)
    }

    fn make() -> Option<&'static Sched> {
        let mut free = FREE.lock();
        let slot = free.1;
        if slot as usize == MAX_RUNTIMES {
            return None;
        }
        free.1 += 1;
        let sched: &'static Sched = Box::leak(Box::new(Sched {
            slot,
            shared: Lock::new(
                Rank::Sched,
                Shared {
                    runq: GlobalQueue::new(),
                    frozen: VecDeque::new(),
                    idle_runq: GlobalQueue::new(),
                    idle_ps: Vec::new(),
                    idle_ms: Vec::new(),
                    free_ms: Vec::new(),
                    keeper: None,
                    poller: None,
                    stopped: Vec::new(),
                    all_ms: Vec::new(),
                    threads: 0,
                    expected: 0,
                    closed: true,
                },
            ),
            runq_size: CachePadded::new(AtomicUsize::new(0)),
            at_global: [const { CachePadded::new(AtomicBool::new(false)) }; _],
            frozen_size: AtomicUsize::new(0),
            idle: Idle::new(crew()),
            offers: Mask::new(),
            next_offers: Mask::new(),
            timer_mask: Mask::new(),
            gathering: super::gather::Gathering::new(),
            idle_mask: Mask::new(),
            near: Near::new(),
            life: AtomicU32::new(0),
            halt: CachePadded::new(AtomicU32::new(halt::CLOSING)),
            procs: AtomicU32::new(0),
            follow_limit: AtomicBool::new(false),
            most_procs: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            idle_runq_size: AtomicUsize::new(0),
            all_ps: (0..MAX_PROCS).map(|_| OnceLock::new()).collect(),
            config: Lock::new(Rank::Leaf, None),
            foreign_spawned: AtomicU64::new(0),
            foreign_finished: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            cpus: AtomicU32::new(0),
            all_stopped: Note::new(),
            sysmon: super::sysmon::Sysmon::new(),
            poll: Poller::new(),
            company: super::company::Company::default(),
            no_stack_since: AtomicU64::new(0),
            fatal_panic: Lock::new(Rank::Leaf, None),
            winding_down: Lock::new(Rank::Shutdown, false),
            unwinding: Lock::new(Rank::Leaf, BTreeSet::new()),
            ghosts: Lock::new(Rank::Leaf, Vec::new()),
            taking: Lock::new(Rank::Taking, ()),
            stopped: Note::new(),
            safe_point: Lock::new(Rank::Leaf, None),
            stopped_for: Lock::new(Rank::Leaf, None),
            preemption: Preemption::default(),
            max_runners: AtomicUsize::new(usize::MAX),
            requests: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            in_place: AtomicUsize::new(0),
            tls_searches: AtomicU64::new(0),
            tls_holds: AtomicU64::new(0),
            forking: CachePadded::new(AtomicUsize::new(0)),
            kept_off: AtomicU32::new(0),
            upstairs: Lock::new(Rank::Leaf, None),
            shutdown_thread: Lock::new(Rank::Leaf, None),
        }));
        TABLE[slot as usize].store(ptr::from_ref(keep(sched)).cast_mut(), Ordering::Release);
        Some(sched)
    }

    /// Gives a scheduler back that has no threads and no goroutines.
    pub(crate) fn recycle(&'static self) {
        {
            let mut shared = self.shared.lock();
            if shared.threads != 0 || shared.queued() != 0 {
                fatal!("a runtime was recycled with {} threads", shared.threads);
            }
            while self.take_idle_p(&mut shared).is_some() {}
            shared.stopped.clear();
            shared.keeper = None;
            shared.poller = None;
        }
        timers::clear(self);
        for p in self.ps_ever() {
            // Goroutines that were queued with their threads went on by themselves, and
            // have ended: their places are left.
            drop(super::in_place::drain(p));
            // SAFETY: there are no Ms, so nobody holds the Ps.
            unsafe { Held::new(p) }.reset(self.config().stack, 0);
        }
        // A thread that was about to wake an M finds the runtime closed, and stops
        // searching. Should the kernel not let it for so long, the slot is not used again.
        let patience = clock::after(Duration::from_secs(1));
        while self.idle.searching() != 0 {
            if clock::now() > patience {
                return;
            }
            thread::yield_now();
        }
        FREE.lock().0.push(self);
    }

    /// Which of its lives this is. It changes while the lock is held.
    #[inline(always)]
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    /// How many Ps there are.
    #[inline(always)]
    pub(crate) fn procs(&self) -> u32 {
        self.procs.load(Ordering::Relaxed)
    }

    /// Whether there are many Ps, and a CPU for each of them.
    #[inline]
    pub(crate) fn has_many_cpus(&self) -> bool {
        let procs = self.procs();
        procs >= MANY && procs <= self.cpus.load(Ordering::Relaxed)
    }

    /// There will be so many Ps. Asked only if it matters: the kernel answers in files.
    pub(crate) fn note_cpus(&self, procs: u32) {
        if procs >= MANY {
            self.cpus.store(thread::usable_cpus() as u32, Ordering::Relaxed);
            self.near.prepare();
        }
    }

    /// How many goroutines may compute without a P.
    pub(crate) fn max_runners(&self) -> usize {
        match self.max_runners.load(Ordering::Relaxed) {
            usize::MAX => self.procs() as usize,
            set => set,
        }
    }

    /// How many of them run nothing, the first ones.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// How many Ps are idle when nothing runs.
    pub(crate) fn usable_procs(&self) -> usize {
        (self.procs() - self.reserved()) as usize
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        match &*self.config.lock() {
            Some(config) => config.clone(),
            None => fatal!("a runtime without a configuration"),
        }
    }

    /// An M without a thread of its own, and its return.
    pub(crate) fn take_ghost(&'static self) -> &'static M {
        let ghost = self.ghosts.lock().pop();
        ghost.unwrap_or_else(|| M::ghost(self))
    }

    pub(crate) fn put_ghost(&self, m: &'static M) {
        self.ghosts.lock().push(m);
    }

    /// The Ps, and those that there were before their number was lowered.
    pub(crate) fn ps_ever(&self) -> impl Iterator<Item = &'static P> {
        let most = self.most_procs.load(Ordering::Relaxed) as usize;
        self.all_ps[..most].iter().filter_map(|p| p.get().copied())
    }

    /// The Ps that run something.
    pub(crate) fn usable_ps(&self) -> impl Iterator<Item = &'static P> {
        self.ps().skip(self.reserved() as usize)
    }

    /// The Ps.
    pub(crate) fn ps(&self) -> impl Iterator<Item = &'static P> {
        self.all_ps[..self.procs() as usize].iter().filter_map(|p| p.get().copied())
    }

    #[inline]
    pub(crate) fn p(&self, id: u32) -> &'static P {
        match self.all_ps[id as usize].get() {
            Some(p) => p,
            None => fatal!("P{id} does not exist"),
        }
    }

    /// Whether the runtime shuts down.
    #[inline(always)]
    pub(crate) fn closing(&self) -> bool {
        self.halt.load(Ordering::Acquire) & halt::CLOSING != 0
    }

    pub(crate) fn start_closing(&self) {
        self.set_halt(halt::CLOSING, true);
    }

    /// Whether an M has something to look at before it goes on: see [`halt`].
    #[inline(always)]
    pub(crate) fn halts(&self) -> bool {
        self.halt.load(Ordering::Acquire) != 0
    }

    /// Whether the world is to stop.
    pub(crate) fn stopping(&self) -> bool {
        self.halt.load(Ordering::Acquire) & halt::STOPPING != 0
    }

    pub(crate) fn set_halt(&self, bit: u32, on: bool) {
        if on {
            self.halt.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.halt.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Changes the number of Ps, while nobody holds one.
    pub(crate) fn set_procs(&'static self, procs: u32) {
        let alone = procs == 1;
        for id in 0..procs.max(self.procs()) {
            let make = || keep(Box::leak(Box::new(P::new(id, alone))));
            let p: &'static P = self.all_ps[id as usize].get_or_init(make);
            p.runq.set_alone(alone);
        }
        self.most_procs.fetch_max(procs, Ordering::Relaxed);
        self.procs.store(procs, Ordering::SeqCst);
    }

    /// The goroutine whose panic closed the runtime, if that is what `payload`
    /// comes from.
    pub(crate) fn fatal_panic_of(&self, payload: &Box<dyn std::any::Any + Send>) -> Option<u64> {
        payload.is::<super::task::Shutdown>().then(|| *self.fatal_panic.lock()).flatten()
    }

    /// Goroutines that live, exactly when nothing runs.
    pub(crate) fn goroutines(&self) -> usize {
        // Finished first: a goroutine that ends meanwhile counts as alive, and
        // the difference is never negative.
        let sum = |f: fn(&P) -> u64| self.ps_ever().map(f).sum::<u64>();
        let finished =
            sum(|p| p.counters.finished.get()) + self.foreign_finished.load(Ordering::Acquire);
        let spawned =
            sum(|p| p.counters.spawned.get()) + self.foreign_spawned.load(Ordering::Acquire);
        spawned.saturating_sub(finished) as usize
    }
}

impl std::fmt::Debug for Sched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sched")
            .field("slot", &self.slot)
            .field("procs", &self.procs())
            .finish_non_exhaustive()
    }
}
