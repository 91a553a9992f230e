//! M: an OS thread that runs goroutines.
//!
//! An M's scheduler loop runs on the thread's own stack and resumes goroutines
//! on theirs. Ms are never freed: their scheduler reuses them.

use super::forks::Desk;
use super::g::G;
use super::p::{Held, P};
use super::protocol::lease::{Entry, Lease};
use super::schedt::Sched;
use super::signal;
use crate::prim::atomic::{AtomicBool, AtomicPtr, Ordering, keep};
use crate::prim::lock::{Lock, Rank};
use crate::prim::note::Note;
use crate::prim::thread;
use std::io;
use std::marker::PhantomData;
use std::ptr;

/// Stack of an M's thread. The scheduler needs little; the signal handlers have
/// a stack of their own, and user code runs on goroutine stacks.
const STACK: usize = 256 << 10;

/// The machine. In lines of its own: each entry into the runtime writes to it,
/// and neighbours would take the line from each other.
#[repr(align(128))]
pub(crate) struct M {
    pub(crate) id: u32,
    pub(crate) sched: &'static Sched,
    /// Sleeps here without a P; woken with one in `next_p`, or to end.
    pub(crate) note: Note,
    /// A P on its way to this M.
    next_p: AtomicPtr<P>,
    /// The P that it holds. Written by its thread.
    p: AtomicPtr<P>,
    /// The goroutine that it runs. Written by its thread.
    curg: AtomicPtr<G>,
    /// It counts as a searcher.
    searching: AtomicBool,
    pub(crate) lease: Lease,
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
            note: Note::new(),
            next_p: AtomicPtr::new(ptr::null_mut()),
            p: AtomicPtr::new(ptr::null_mut()),
            curg: AtomicPtr::new(ptr::null_mut()),
            searching: AtomicBool::new(false),
            lease: Lease::new(),
            desk: Desk::new(),
            thread: Lock::new(Rank::Threads, None),
        }));
        keep(m)
    }

    /// The P that it holds, for reports and for its own thread.
    #[inline(always)]
    pub(crate) fn p(&self) -> Option<&'static P> {
        load(&self.p)
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
        debug_assert!(load(&self.next_p).is_none());
        self.set_searching(searching);
        store(&self.next_p, Some(p));
    }

    /// Own thread: takes the P that it was woken with.
    pub(crate) fn acquire_next_p(&'static self) -> bool {
        let Some(p) = load(&self.next_p) else { return false };
        store(&self.next_p, None);
        self.acquire_p(p);
        true
    }

    /// Own thread: holds `p` from now on.
    pub(crate) fn acquire_p(&'static self, p: &'static P) {
        debug_assert!(self.p().is_none() && p.m().is_none());
        store(&self.p, Some(p));
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

    /// Own thread: its P.
    #[inline(always)]
    pub(crate) fn held(&'static self) -> Held {
        match self.p() {
            // SAFETY: the M's own thread asks, and the M holds it.
            Some(p) => unsafe { Held::new(p) },
            None => crate::prim::fatal::fatal!("M{} runs without a P", self.id),
        }
    }

    /// Starts a thread for this M, which begins with `p`.
    pub(crate) fn start(&'static self, p: &'static P, searching: bool) -> io::Result<()> {
        self.set_searching(searching);
        store(&self.next_p, Some(p));
        let name = format!("{}-m{}", self.sched.config().thread_name, self.id);
        let started = thread::start(name, STACK, move || self.main());
        match started {
            Ok(handle) => {
                *self.thread.lock() = Some(handle);
                Ok(())
            }
            Err(error) => {
                store(&self.next_p, None);
                self.set_searching(false);
                Err(error)
            }
        }
    }

    fn main(&'static self) {
        let _count = HeistThread::new();
        // A signal from the M's last life.
        self.note.clear();
        thread::set_slot(ptr::from_ref(self).cast());
        thread::sleep_precisely();
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
        if let Some(p) = sched.take_idle_p(&mut shared) {
            store(&m.next_p, Some(p));
        }
        m
    };
    let _count = HeistThread::new();
    m.note.clear();
    let before = thread::slot();
    thread::set_slot(ptr::from_ref(m).cast());
    thread::sleep_precisely();
    let stack = signal::AltStack::install();
    if m.acquire_next_p() || super::find::stop_m(m) {
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
    #[inline(always)]
    pub(crate) fn enter() -> Option<Inside> {
        let m = current()?;
        let nested = m.lease.inside();
        if m.lease.enter() == Entry::Evicted {
            return Self::without_p(m, nested);
        }
        Some(Inside { m, p: m.held(), nested, marker: PhantomData })
    }

    #[cold]
    fn without_p(m: &'static M, nested: bool) -> Option<Inside> {
        if !super::in_place::regain_p(m) {
            return None;
        }
        Some(Inside { m, p: m.held(), nested, marker: PhantomData })
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

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.nested {
            self.m.lease.leave();
        }
    }
}

/// Counts the threads of heist in this process: what is left are others, which
/// could wake a goroutine (see `sysmon::check_dead`).
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
