//! M: an OS thread that runs goroutines.
//!
//! An M's scheduler loop runs on the thread's own stack and resumes goroutines
//! on theirs. Ms are never freed: their scheduler reuses them.

use super::account::Account;
use super::apart::KeptOff;
use super::desk::Desk;
use super::g::G;
use super::p::{Count, Held, P};
use super::protocol::delivery::Delivery;
use super::protocol::freeze::Freeze;
use super::protocol::g_state::Status;
use super::protocol::lease::{Entry, Lease};
use super::schedt::Sched;
use super::signal;
use super::tls_guard::ThreadMemory;
use crate::prim::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, keep};
use crate::prim::lock::{Lock, Rank};
use crate::prim::note::Note;
use crate::prim::thread::{self, Pace};
use std::io;
use std::marker::PhantomData;
use std::ptr;

/// Stack of an M's thread. The scheduler needs little; the signal handlers have
/// a stack of their own, and user code runs on goroutine stacks.
const STACK: usize = 256 << 10;

/// How long an M watches for what a goroutine that is locked to its thread needs,
/// a P from another thread: about what sleeping and being woken would cost, so
/// that it at most doubles that, and mostly spares it.
const PATIENCE: u64 = 20_000;

/// Watching is in the way of what is watched for if there is only one CPU.
fn patience() -> u64 {
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) { PATIENCE } else { 0 }
}

/// The id of Ms without a thread of their own, which unwind goroutines.
const GHOST: u32 = u32::MAX;

/// The machine. In lines of its own: each entry into the runtime writes to it,
/// and neighbours would take the line from each other.
#[repr(align(128))]
pub(crate) struct M {
    pub(crate) id: u32,
    pub(crate) sched: &'static Sched,
    /// Sleeps here without a P, or in the poller; woken with one in `next_p`, or to
    /// end.
    pub(crate) note: Note,
    /// A P on its way to this M.
    next_p: Delivery<P>,
    /// The P that it holds, or held when its lease ended. Written by its thread.
    p: AtomicPtr<P>,
    /// The last that it held, also if it has given it up since. Its thread's.
    last_p: AtomicPtr<P>,
    /// The goroutine that it runs. Written by its thread.
    curg: AtomicPtr<G>,
    /// It counts as a searcher.
    searching: AtomicBool,
    pub(crate) lease: Lease,
    /// sysmon wants the goroutine to leave at its next safe point.
    pub(crate) preempt: AtomicBool,
    /// It is to be on time (see [`M::keep_time`]).
    prompt: AtomicBool,
    /// Where it may not wake up.
    pub(crate) kept_off: KeptOff,
    /// The CPU where its thread last woke a thief, and one; or 0. A hint.
    pub(crate) woke_at: AtomicU32,
    /// A thread of the user's, to be left as it is (see [`serve`]).
    serves: AtomicBool,
    /// sysmon wants the thread to stand still.
    pub(crate) freeze: Freeze,
    /// How often it has gone on, with a P, after it stood still. Counted by its thread.
    pub(crate) turns: Count,
    /// What the goroutine that computes there has had.
    pub(crate) account: Account,
    /// The thread, as the kernel knows it.
    os: AtomicU32,
    /// How long it watches for a P that is likely to come before it sleeps, in
    /// nanoseconds.
    pub(crate) patience: u64,
    /// Its thread's own memory.
    pub(crate) tls: ThreadMemory,
    /// What forks look at (see `sched::forks`).
    pub(crate) desk: Desk,
    pub(crate) thread: Lock<Option<thread::JoinHandle<()>>>,
}

/// A pointer-sized word that holds a `&'static T` or nothing.
#[inline(always)]
fn load<T>(word: &AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: `store` puts only `&'static T` there.
    unsafe { word.load(Ordering::Acquire).as_ref() }
}

#[inline(always)]
fn store<T>(word: &AtomicPtr<T>, value: Option<&'static T>) {
    word.store(value.map_or(ptr::null_mut(), |v| ptr::from_ref(v).cast_mut()), Ordering::Release);
}

impl M {
    pub(crate) fn new(id: u32, sched: &'static Sched) -> &'static M {
        let m = Box::leak(Box::new(M {
            id,
            sched,
            note: Note::with_bell(&sched.poll),
            next_p: Delivery::new(),
            p: AtomicPtr::new(ptr::null_mut()),
            last_p: AtomicPtr::new(ptr::null_mut()),
            curg: AtomicPtr::new(ptr::null_mut()),
            searching: AtomicBool::new(false),
            lease: Lease::new(),
            preempt: AtomicBool::new(false),
            prompt: AtomicBool::new(false),
            kept_off: KeptOff::new(),
            woke_at: AtomicU32::new(0),
            serves: AtomicBool::new(false),
            freeze: Freeze::new(),
            turns: Count::default(),
            account: Account::default(),
            os: AtomicU32::new(0),
            patience: patience(),
            tls: ThreadMemory::new(),
            desk: Desk::new(),
            thread: Lock::new(Rank::Threads, None),
        }));
        keep(m)
    }

    /// An M without a thread of its own, for whoever unwinds goroutines.
    pub(crate) fn ghost(sched: &'static Sched) -> &'static M {
        M::new(GHOST, sched)
    }

    pub(crate) fn is_ghost(&self) -> bool {
        self.id == GHOST
    }

    /// Its thread, as the kernel knows it.
    pub(crate) fn os_thread(&self) -> thread::OsThread {
        thread::OsThread::from_id(self.os.load(Ordering::Relaxed))
    }

    /// The P that it holds, for reports.
    pub(crate) fn holds(&self) -> Option<&'static P> {
        self.p().filter(|_| !self.lease.is_over())
    }

    /// The P that it holds, or that was taken and it has not noticed. For its own
    /// thread.
    #[inline(always)]
    pub(crate) fn p(&self) -> Option<&'static P> {
        load(&self.p)
    }

    /// Own thread: the P that it had last.
    pub(crate) fn last_p(&self) -> Option<&'static P> {
        load(&self.last_p)
    }

    #[inline(always)]
    pub(crate) fn curg(&self) -> Option<&'static G> {
        load(&self.curg)
    }

    #[inline(always)]
    pub(crate) fn set_curg(&self, g: Option<&'static G>) {
        store(&self.curg, g);
    }

    pub(crate) fn searching(&self) -> bool {
        self.searching.load(Ordering::Relaxed)
    }

    pub(crate) fn set_searching(&self, searching: bool) {
        self.searching.store(searching, Ordering::Relaxed);
    }

    /// Gives a sleeping M a P; the caller wakes it.
    pub(crate) fn give(&'static self, p: &'static P, searching: bool) {
        debug_assert!(!self.is_given_p());
        self.set_searching(searching);
        self.next_p.put(p);
    }

    /// Gives an M that waits with its goroutine a P, and wakes it.
    pub(crate) fn hand_over(&'static self, p: &'static P) {
        debug_assert!(!self.is_given_p());
        self.set_searching(false);
        self.next_p.hand_over(p, || self.note.wake());
    }

    /// Whether a P is on its way to it.
    pub(crate) fn is_given_p(&self) -> bool {
        !self.next_p.arrived().is_null()
    }

    /// Own thread: takes the P that it was woken with.
    pub(crate) fn acquire_next_p(&'static self) -> bool {
        // SAFETY: only a `&'static P` is ever put there.
        let Some(p) = (unsafe { self.next_p.arrived().as_ref() }) else { return false };
        self.acquire_p(p);
        // Then, so that it is never without in the eyes of others.
        self.next_p.taken();
        true
    }

    /// Own thread: holds `p` from now on. Safe to call from a signal handler.
    pub(crate) fn acquire_p(&'static self, p: &'static P) {
        debug_assert!(self.p().is_none() && p.m().is_none());
        store(&self.p, Some(p));
        store(&self.last_p, Some(p));
        p.set_m(Some(self));
        self.lease.renew();
    }

    /// Own thread: gives its P up.
    pub(crate) fn release_p(&'static self) -> &'static P {
        let Some(p) = self.p() else { crate::prim::fatal::fatal!("releasep: no P") };
        store(&self.p, None);
        p.set_m(None);
        self.lease.end();
        p
    }

    /// Own thread: its P was taken from it.
    fn was_evicted(&'static self) {
        store(&self.p, None);
    }

    /// Own thread, which is going to sleep until the next timer, or sysmon, which is going
    /// to wake it for one: threads without a P compete with it for the CPUs, hundreds
    /// perhaps, that wake up at once. The kernel is to let this one go first. Where no P
    /// was ever taken from anybody, there are none, and it is not asked.
    pub(crate) fn keep_time(&self) {
        let asked = self.prompt.load(Ordering::Relaxed) || self.serves();
        if self.sched.preemption.retakes.get() != 0 && !asked {
            self.prompt.store(true, Ordering::Relaxed);
            self.os_thread().set_pace(Pace::Prompt);
        }
    }

    /// Whether its thread is the user's, to be left as it is.
    pub(super) fn serves(&self) -> bool {
        self.serves.load(Ordering::Relaxed)
    }

    /// sysmon, which has taken its P: now it is one of the others. If it keeps the time
    /// again meanwhile, it asks again the next time.
    pub(crate) fn keep_time_no_more(&self) {
        if self.prompt.load(Ordering::Relaxed) {
            self.os_thread().set_pace(Pace::Usual);
            self.prompt.store(false, Ordering::Relaxed);
        }
    }

    /// Own thread: its P.
    #[inline(always)]
    pub(crate) fn held(&'static self) -> Held {
        match self.p() {
            // SAFETY: the M's own thread asks, and the M holds it.
            Some(p) => unsafe { Held::new(p) },
            None => self.has_no_p(),
        }
    }

    #[cold]
    #[inline(never)]
    fn has_no_p(&self) -> ! {
        crate::prim::fatal::fatal!("M{} runs without a P", self.id)
    }

    /// Starts a thread for this M, which begins with `p`.
    pub(crate) fn start(&'static self, p: &'static P, searching: bool) -> io::Result<()> {
        self.set_searching(searching);
        self.next_p.put(p);
        let name = format!("{}-m{}", self.sched.config().thread_name, self.id);
        let upstairs = self.sched.upstairs.lock().clone();
        let started = thread::start(name, STACK, move || match upstairs {
            Some(upstairs) => upstairs.around(self),
            None => self.main(),
        });
        match started {
            Ok(handle) => {
                *self.thread.lock() = Some(handle);
                Ok(())
            }
            Err(error) => {
                self.next_p.taken();
                self.set_searching(false);
                Err(error)
            }
        }
    }

    /// What its thread does, once for each [`start`](Self::start).
    pub(crate) fn main(&'static self) {
        let _count = HeistThread::new();
        // A signal from the M's last life.
        self.note.clear();
        thread::set_slot(ptr::from_ref(self).cast());
        self.os.store(thread::OsThread::current().id(), Ordering::Relaxed);
        thread::sleep_precisely();
        self.prompt.store(false, Ordering::Relaxed);
        self.serves.store(false, Ordering::Relaxed);
        self.kept_off.forget();
        self.account.forget();
        // Whoever started it may have been prompt.
        self.os_thread().set_pace(Pace::Usual);
        self.tls.found(&self.sched.config());
        let stack = signal::AltStack::install();
        if self.acquire_next_p() {
            super::exec::run_loop(self);
        }
        thread::set_slot(ptr::null());
        drop(stack);
        super::shutdown::thread_ended(self);
    }
}

/// The calling thread, which the user has brought along, works for a runtime until
/// that closes: at once, if its life is over.
#[cfg(not(sim))] // pools are not simulated
pub(crate) fn serve(sched: &'static Sched, life: u32) {
    let m = {
        let mut shared = sched.shared.lock();
        if shared.closed || life != sched.life() {
            return;
        }
        shared.expected = shared.expected.saturating_sub(1);
        shared.threads += 1;
        let m = super::wake::free_m(sched, &mut shared);
        // It looks around: nobody was woken for it.
        // Also over a P that came too late in the M's last life.
        match sched.take_idle_p(&mut shared) {
            Some(p) => m.next_p.put(p),
            None => m.next_p.taken(),
        }
        m
    };
    let _count = HeistThread::new();
    m.note.clear();
    let before = thread::slot();
    thread::set_slot(ptr::from_ref(m).cast());
    m.os.store(thread::OsThread::current().id(), Ordering::Relaxed);
    thread::sleep_precisely();
    m.prompt.store(false, Ordering::Relaxed);
    m.serves.store(true, Ordering::Relaxed);
    m.kept_off.forget();
    m.account.forget();
    m.tls.found(&sched.config());
    let stack = signal::AltStack::install();
    let has_p = m.acquire_next_p() || super::find::become_idle(m) && super::find::sleep_idle(m, 0);
    if has_p {
        super::exec::run_loop(m);
    }
    thread::set_slot(before);
    drop(stack);
    super::shutdown::thread_ended(m);
}

/// The M of the calling thread, if it is one of ours.
#[inline(always)]
pub(crate) fn current() -> Option<&'static M> {
    let slot = thread::slot().cast::<M>();
    // SAFETY: the slot holds null or a leaked M.
    unsafe { slot.as_ref() }
}

/// The goroutine that the caller runs on.
#[inline]
pub(crate) fn current_g() -> Option<&'static G> {
    current()?.curg()
}

/// A call from user code into the runtime, on a thread of ours, with a P.
///
/// While it lives the P cannot be taken away. It must be dropped, or given up by
/// suspending, before user code goes on.
pub(crate) struct Inside {
    pub(crate) m: &'static M,
    pub(crate) p: Held,
    /// The thread was in the runtime already (a scheduler loop calls).
    nested: bool,
    marker: PhantomData<*mut ()>,
}

impl Inside {
    /// Enters; `None` on a thread that is not ours, or that has no P and can
    /// get none since its runtime closes.
    ///
    /// An M whose P was taken gets another one first, and its thread waits for
    /// that: the goroutine stays where it is.
    #[inline(always)]
    pub(crate) fn enter() -> Option<Inside> {
        let m = current()?;
        let nested = m.lease.inside();
        // Made here only, so that it lives in registers: through memory, a copy of
        // three words that reads `nested` right after its byte was written waits for
        // the store, which costs more than all the rest of an entry.
        if m.lease.enter() == Entry::Evicted && !super::in_place::regain_p(m) {
            return None;
        }
        Some(Inside { m, p: m.held(), nested, marker: PhantomData })
    }

    /// Enters in order to leave the goroutine's stack, which needs no P.
    #[inline(always)]
    pub(crate) fn enter_to_leave() -> ToLeave {
        let Some(m) = current() else { return ToLeave::Foreign };
        let nested = m.lease.inside();
        if m.lease.enter() == Entry::Evicted {
            return ToLeave::Evicted(m);
        }
        ToLeave::Inside(Inside { m, p: m.held(), nested, marker: PhantomData })
    }

    #[inline(always)]
    pub(crate) fn sched(&self) -> &'static Sched {
        self.m.sched
    }

    /// The goroutine that called.
    #[inline(always)]
    pub(crate) fn g(&self) -> Option<&'static G> {
        self.m.curg()
    }
}

/// What [`Inside::enter_to_leave`] found.
pub(crate) enum ToLeave {
    Inside(Inside),
    /// The M has lost its P: see [`M::goes_on_without_p`].
    Evicted(&'static M),
    /// Not a thread of ours.
    Foreign,
}

impl M {
    /// Own thread, which entered the runtime and has found its P taken: what its
    /// goroutine does next needs none. The goroutine, if it has one.
    #[cold]
    pub(crate) fn goes_on_without_p(&'static self) -> Option<&'static G> {
        self.was_evicted();
        let g = self.curg()?;
        if g.state.status() == Status::Syscall {
            g.state.run_with_thread(Status::Syscall);
        }
        Some(g)
    }
}

/// An [`Inside`] on its way to a function that is seldom called: in two registers. Three
/// words would go through memory, for which the frame of each caller would have room.
pub(crate) struct Packed {
    m: &'static M,
    nested: bool,
}

impl Inside {
    #[inline(always)]
    pub(crate) fn pack(self) -> Packed {
        let packed = Packed { m: self.m, nested: self.nested };
        std::mem::forget(self);
        packed
    }
}

impl Packed {
    pub(crate) fn unpack(self) -> Inside {
        Inside { m: self.m, p: self.m.held(), nested: self.nested, marker: PhantomData }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.nested {
            self.m.lease.leave();
        }
    }
}

/// Counts the threads of heist in this process: what is left are others, which
/// could wake a goroutine (see `deadlock`).
pub(crate) struct HeistThread;

static HEIST_THREADS: crate::prim::atomic::AtomicUsize = crate::prim::atomic::AtomicUsize::new(0);

impl HeistThread {
    pub(crate) fn new() -> Self {
        HEIST_THREADS.fetch_add(1, Ordering::SeqCst);
        HeistThread
    }

    pub(crate) fn count() -> usize {
        HEIST_THREADS.load(Ordering::SeqCst)
    }
}

impl Drop for HeistThread {
    fn drop(&mut self) {
        HEIST_THREADS.fetch_sub(1, Ordering::SeqCst);
    }
}
