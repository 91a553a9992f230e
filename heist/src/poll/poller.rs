//! The poller of a runtime: an epoll instance, and the rule that one at a time looks
//! at it.
//!
//! One at a time, because a ring of the bell is an event like any other: two who
//! wait at the same time could take each other's.

use super::watch::{WATCH, Watch};
use crate::prim::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::prim::epoll::{Batch, Epoll, Source};
use crate::prim::lock::{Lock, Rank};
use crate::prim::mutant::{Mutant, is};
use crate::prim::note::Bell;
use crate::prim::{clock, hint};
use std::io;
use std::sync::Arc;

/// The poller.
#[derive(Debug)]
pub(crate) struct Poller {
    /// Opened by the first descriptor if not before, closed with its runtime. Shared, so
    /// that the descriptors below live as long as somebody uses them.
    epoll: Lock<Option<Arc<Epoll>>>,
    /// It is one of those that were opened before ([`Poller::open_early`]).
    #[cfg(not(sim))]
    early: AtomicBool,
    /// How many descriptors are registered.
    registered: AtomicUsize,
    /// Somebody looks, or waits.
    busy: AtomicBool,
    /// Somebody waits.
    waits: AtomicBool,
    /// When somebody looked last.
    last: AtomicU64,
    /// How likely those that run are not to look soon (see [`Poller::lags`]).
    lag: AtomicU32,
    /// How long one who was woken runs, in nanoseconds: a running average.
    service: AtomicU64,
    /// Whether one who is going to wait looks for a while first.
    watch: Watch,
}

/// So many pollers at a time are opened before they are needed.
#[cfg(not(sim))]
const MOST_EARLY: u32 = 8;

/// How many are.
#[cfg(not(sim))]
static EARLY: AtomicU32 = AtomicU32::new(0);

/// How often those that run must have looked in time before nobody waits beside
/// them any more.
const LAG: u32 = 32;

impl Poller {
    pub(crate) const fn new() -> Self {
        Poller {
            epoll: Lock::new(Rank::Leaf, None),
            #[cfg(not(sim))]
            early: AtomicBool::new(false),
            registered: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            last: AtomicU64::new(0),
            lag: AtomicU32::new(0),
            // Unknown: long.
            service: AtomicU64::new(1_000_000),
            watch: Watch::new(),
        }
    }

    /// Whether there is anything to look for.
    #[inline(always)]
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: who registers a descriptor sees to it that somebody looks.
        self.registered.load(Ordering::Relaxed) != 0
    }

    /// When somebody looked last; now, if somebody waits.
    pub(crate) fn last_look(&self, now: u64) -> u64 {
        if self.waits.load(Ordering::Relaxed) { now } else { self.last.load(Ordering::Relaxed) }
    }

    /// Whether somebody should wait here although others run.
    ///
    /// Those that run look when they have nothing else to do, usually within
    /// microseconds; whoever waited beside them would be woken for each event that
    /// they could have taken along, and take turns with them at handling one. But
    /// what they run may compute. Nobody can know, so it is learned: sysmon finds out
    /// that nobody has looked for a millisecond, and each look that comes while
    /// somebody waits says the opposite.
    pub(crate) fn lags(&self) -> bool {
        self.lag.load(Ordering::Relaxed) != 0
    }

    /// Nobody has looked for long.
    pub(crate) fn note_lag(&self) {
        self.lag.store(LAG, Ordering::Relaxed);
    }

    /// How long one who was woken runs, by the last ones, in nanoseconds.
    pub(crate) fn service_time(&self) -> u64 {
        self.service.load(Ordering::Relaxed)
    }

    /// The last ones ran so long.
    pub(crate) fn note_service_time(&self, nanos: u64) {
        // Relaxed, and no read-modify-write: it is a guess.
        let before = self.service_time();
        self.service.store(before - before / 4 + nanos / 4, Ordering::Relaxed);
    }

    /// Its runtime is built. By the time that somebody has to wait, the process may have
    /// no descriptors left, and calls on those that it has would fail: so they are taken
    /// now, if there are any. Not by a program that has a runtime for everything: most of
    /// them never wait for a descriptor.
    #[cfg(not(sim))]
    pub(crate) fn open_early(&self) {
        // Relaxed, here and in `close`: they count.
        if EARLY.fetch_add(1, Ordering::Relaxed) < MOST_EARLY
            && let Ok(epoll) = Epoll::new()
        {
            *self.epoll.lock() = Some(Arc::new(epoll));
            self.early.store(true, Ordering::Relaxed);
        } else {
            EARLY.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn add(&self, fd: Source<'_>, token: u64) -> io::Result<()> {
        let epoll = {
            let mut epoll = self.epoll.lock();
            match &*epoll {
                Some(epoll) => epoll.clone(),
                None => epoll.insert(Arc::new(Epoll::new()?)).clone(),
            }
        };
        epoll.add(fd, token)?;
        self.registered.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn remove(&self, fd: Source<'_>) {
        // It fails for a descriptor that somebody else has closed: then the kernel
        // has removed it.
        if let Some(epoll) = self.epoll() {
            let _ = epoll.remove(fd);
        }
        self.registered.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether an event waits for somebody to look.
    #[cfg(sim)]
    pub(crate) fn has_events(&self) -> bool {
        let epoll = self.epoll.try_lock();
        epoll.is_some_and(|epoll| epoll.as_ref().is_some_and(|epoll| epoll.has_events()))
    }

    fn epoll(&self) -> Option<Arc<Epoll>> {
        self.epoll.lock().clone()
    }

    /// Takes what there is, unless somebody looks already: then that one takes it.
    #[must_use]
    pub(crate) fn look(&self, batch: &mut Batch) -> bool {
        if self.busy.load(Ordering::Relaxed) || self.busy.swap(true, Ordering::Acquire) {
            // Relaxed, and no read-modify-write: it is a guess.
            self.lag.store(self.lag.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
            return false;
        }
        let epoll = self.epoll();
        if let Some(epoll) = &epoll {
            epoll.look(batch);
        }
        self.last.store(clock::now(), Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        epoll.is_some()
    }

    /// Looks again and again, by one who would wait otherwise, while that is worth it
    /// ([`Watch`]), nobody else looks and `is_over`, which is told the time, does not say that
    /// there is something else. `begin` is now. Returns when it was over, if there is an event.
    #[must_use]
    pub(crate) fn watch(
        &self,
        begin: u64,
        batch: &mut Batch,
        is_over: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        if !self.watch.is_worth_it()
            || self.busy.load(Ordering::Relaxed)
            || self.busy.swap(true, Ordering::Acquire)
        {
            return None;
        }
        let (mut now, mut found) = (begin, false);
        if let Some(epoll) = self.epoll() {
            while !found && now.saturating_sub(begin) < WATCH && !is_over(now) {
                epoll.look(batch);
                found = !batch.is_empty();
                now = clock::now();
            }
        }
        if found {
            self.watch.note(begin, now);
        } else {
            self.watch.note_vain(begin);
        }
        self.last.store(now, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        found.then_some(now)
    }

    /// Becomes the one who looks, in order to wait; none if `is_over` says that there is
    /// nothing to wait for any more.
    pub(crate) fn enter(&self, mut is_over: impl FnMut() -> bool) -> Option<Waiting<'_>> {
        // Who looks does so for a moment: this one must not go to sleep without
        // looking, as it may be the last.
        while self.busy.swap(true, Ordering::Acquire) {
            if is_over() {
                return None;
            }
            hint::give_way();
        }
        self.waits.store(true, Ordering::Relaxed);
        Some(Waiting { poller: self })
    }

    /// Its runtime has ended: everything that was registered is not any more.
    pub(crate) fn close(&self) {
        self.registered.store(0, Ordering::SeqCst);
        self.epoll.lock().take();
        #[cfg(not(sim))]
        if self.early.swap(false, Ordering::Relaxed) {
            EARLY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The right to wait. Whoever has it may be rung for: nobody else takes that event.
pub(crate) struct Waiting<'a> {
    poller: &'a Poller,
}

impl Waiting<'_> {
    /// Waits for events, for the bell, or until a moment.
    pub(crate) fn wait(&self, until: Option<u64>, batch: &mut Batch) {
        let Some(epoll) = self.poller.epoll() else { return };
        let begin = self.poller.watch.begun(clock::now());
        epoll.wait(until, batch);
        self.poller.watch.note(begin, clock::now());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.poller.last.store(clock::now(), Ordering::Relaxed);
        self.poller.waits.store(false, Ordering::Relaxed);
        self.poller.busy.store(false, Ordering::Release);
    }
}

impl Bell for Poller {
    fn ring(&self) {
        if is(Mutant::NoRing) {
            return;
        }
        if let Some(epoll) = self.epoll() {
            epoll.ring();
        }
    }
}
