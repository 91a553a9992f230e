//! Alarms: functions that the clock calls. What a `time::Timer` is the handle of.
//!
//! An alarm is a cache line in memory that is never freed and only ever holds alarms,
//! so a heap of timers can keep one that was stopped, at no cost, until its time comes
//! (see `protocol::alarm`). Ps keep those that are free. The function lies in the
//! alarm if it is small, so that one that is made and stopped, as most are, allocates
//! nothing and takes one read-modify-write.

use super::m::Inside;
use super::protocol::alarm::{AlarmWord, Called, Last, Ring};
use super::protocol::join::Detach;
use super::schedt::Sched;
use super::spawn::{self, Options};
use super::storage::Storage;
use super::task;
use super::timers::{self, Armed, Due};
use crate::prim::atomic::{AtomicPtr, AtomicU64, Ordering, keep};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use std::cell::Cell;
use std::mem;
use std::panic::Location;
use std::ptr;

/// What the clock calls.
#[repr(align(64))]
pub(crate) struct Alarm {
    word: AlarmWord,
    /// On which P it was set last, to tell that it was stopped. Of several threads
    /// that set one, one may tell the wrong P: it only counts.
    place: AtomicU64,
    /// What kind of function it holds.
    kind: AtomicPtr<Kind>,
    function: Storage<4>,
}

#[cfg(not(sim))]
const _: () = assert!(size_of::<Alarm>() == 64);

/// When an alarm is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// By the clock.
    At(u64),
    /// So many nanoseconds from now.
    After(u64),
}

impl When {
    #[inline(always)]
    fn by(self, now: impl FnOnce() -> u64) -> u64 {
        match self {
            When::At(when) => when,
            When::After(nanos) => now().saturating_add(nanos),
        }
    }
}

/// What can be done with a function of some type.
struct Kind {
    /// Calls it as often as its time has come.
    call: unsafe fn(&'static Alarm),
    drop: unsafe fn(&'static Alarm),
}

struct KindOf<F>(std::marker::PhantomData<F>);

impl<F: FnMut()> KindOf<F> {
    const KIND: &'static Kind = &Kind { call: Self::call, drop: Self::drop };

    /// # Safety
    ///
    /// The caller is the goroutine of an alarm that holds an `F`.
    unsafe fn call(alarm: &'static Alarm) {
        /// The function unwinds, and is no more.
        struct Lost(&'static Alarm);
        impl Drop for Lost {
            fn drop(&mut self) {
                if let Some(last) = self.0.word.give_up(true) {
                    self.0.free(last);
                }
            }
        }
        loop {
            // SAFETY: the caller's promise; only this goroutine takes it out.
            let mut f = unsafe { alarm.function.take::<F>() };
            let lost = Lost(alarm);
            f();
            mem::forget(lost);
            // SAFETY: it was taken out above. Before the word says so: the next one
            // to call may be another goroutine.
            unsafe { alarm.function.put(f) };
            match alarm.word.called() {
                Called::Again => {}
                Called::Rest => return,
                Called::Last(last) => return alarm.free(last),
            }
        }
    }

    /// # Safety
    ///
    /// The caller has an alarm alone that holds an `F`.
    unsafe fn drop(alarm: &'static Alarm) {
        // SAFETY: the caller's promise.
        drop(unsafe { alarm.function.take::<F>() });
    }
}

/// The goroutine of an alarm, until it calls. If its runtime ends before, nobody
/// does.
struct Caller(&'static Alarm);

impl Caller {
    fn call(self) {
        let alarm = self.0;
        mem::forget(self);
        // SAFETY: of the kind that the alarm holds, on its one goroutine.
        unsafe { (alarm.kind().call)(alarm) };
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(last) = self.0.word.give_up(false) {
            self.0.free(last);
        }
    }
}

impl Alarm {
    /// An alarm that calls `f` then. Whoever has it is the one handle: it calls
    /// [`drop_handle`](Self::drop_handle) once, and nothing afterwards.
    #[inline]
    pub(crate) fn start<F: FnMut() + Send + 'static>(
        f: F,
        when: When,
        sched: impl FnOnce() -> &'static Sched,
    ) -> &'static Alarm {
        let inside = Inside::enter();
        let alarm = match &inside {
            Some(inside) => inside.p.own().alarms.take(),
            None => take(&mut FREE.lock()),
        };
        alarm.kind.store(ptr::from_ref(KindOf::<F>::KIND).cast_mut(), Ordering::Relaxed);
        // SAFETY: a free alarm is the caller's, and holds nothing.
        unsafe { alarm.function.put(f) };
        let number = alarm.word.begin();
        alarm.arm(inside, number, when, sched);
        alarm
    }

    /// Handle: sets it anew.
    pub(crate) fn set(&'static self, when: When, sched: impl FnOnce() -> &'static Sched) {
        let number = self.word.set();
        self.arm(Inside::enter(), number, when, sched);
    }

    #[inline(always)]
    fn arm(
        &'static self,
        inside: Option<Inside>,
        number: u64,
        when: When,
        sched: impl FnOnce() -> &'static Sched,
    ) {
        let due = Due::Call(self, number);
        let armed = match inside {
            Some(inside) => {
                Some(timers::arm_inside(&inside, due, when.by(|| inside.p.own().pace.now())))
            }
            None => timers::arm_outside(sched(), due, when.by(clock::now)),
        };
        match armed {
            Some(armed) => self.place.store(armed.word(), Ordering::Relaxed),
            // The runtime has shut down: nothing is called any more. The handle is
            // there, so nobody is the last.
            None => _ = self.word.stop(),
        }
    }

    /// Handle: stops it. Whether that kept it from calling.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        let stopped = self.word.stop();
        if stopped {
            Armed::from_word(self.place.load(Ordering::Relaxed)).disarm();
        }
        stopped
    }

    /// Whether it is set.
    pub(crate) fn is_set(&self) -> bool {
        self.word.is_set()
    }

    /// Handle: goes away. The function is the user's, and so is what its drop does:
    /// it goes here, or on the goroutine that calls it last.
    #[inline]
    pub(crate) fn drop_handle(&'static self) {
        if let Some(last) = self.word.drop_handle() {
            self.free(last);
        }
    }

    /// Entry: whether its time may still come.
    pub(crate) fn is_set_with(&self, number: u64) -> bool {
        self.word.is_set_with(number)
    }

    /// Entry: its time has come, on a thread of the scheduler.
    pub(crate) fn ring(&'static self, sched: &'static Sched, number: u64) {
        match self.word.ring(number) {
            Ring::Nothing => {}
            Ring::Last(last) => self.free(last),
            Ring::Call => {
                let caller = Caller(self);
                // SAFETY: nothing is borrowed, and functions of alarms are `Send`.
                let spawned = unsafe {
                    spawn::spawn_on(
                        sched,
                        move || caller.call(),
                        Options::default(),
                        Location::caller(),
                    )
                };
                // A runtime that shuts down calls nothing any more.
                if let Ok(g) = spawned {
                    match g.join.detach() {
                        Detach::GoroutineOwns => {}
                        Detach::Done => task::forget_outcome(g),
                    }
                }
            }
        }
    }

    /// Entry: its runtime has ended.
    pub(crate) fn cancel(&'static self, number: u64) {
        if let Some(last) = self.word.cancel(number) {
            self.free(last);
        }
    }

    fn kind(&self) -> &'static Kind {
        // SAFETY: set from a `&'static` when the alarm was taken.
        unsafe { &*self.kind.load(Ordering::Relaxed) }
    }

    #[inline]
    fn free(&'static self, last: Last) {
        /// Also if the function's drop unwinds.
        struct Free(&'static Alarm);
        impl Drop for Free {
            #[inline]
            fn drop(&mut self) {
                self.0.word.end();
                put(self.0);
            }
        }
        let _free = Free(self);
        if last.holds_function {
            // SAFETY: the caller has the alarm alone, and it holds such a function.
            unsafe { (self.kind().drop)(self) };
        }
    }
}

/// Alarms that are made, and that a P and the others trade, at a time.
const BATCH: usize = 32;

static FREE: Lock<Vec<&'static Alarm>> = Lock::new(Rank::Leaf, Vec::new());

/// The free alarms of a P, last in, first out.
pub(crate) struct Cache {
    len: Cell<usize>,
    free: [Cell<Option<&'static Alarm>>; 2 * BATCH],
}

impl Cache {
    pub(crate) fn new() -> Self {
        Cache { len: Cell::new(0), free: [const { Cell::new(None) }; 2 * BATCH] }
    }

    #[inline(always)]
    fn take(&self) -> &'static Alarm {
        let last = self.len.get().wrapping_sub(1);
        if let Some(alarm) = self.free.get(last).and_then(Cell::get) {
            self.len.set(last);
            return alarm;
        }
        self.refill()
    }

    #[cold]
    #[inline(never)]
    fn refill(&self) -> &'static Alarm {
        let mut free = FREE.lock();
        let alarm = take(&mut free);
        for cell in &self.free[..BATCH - 1] {
            cell.set(Some(take(&mut free)));
        }
        self.len.set(BATCH - 1);
        alarm
    }

    #[inline(always)]
    fn put(&self, alarm: &'static Alarm) {
        let len = self.len.get();
        match self.free.get(len) {
            Some(cell) => {
                cell.set(Some(alarm));
                self.len.set(len + 1);
            }
            None => self.put_slowly(alarm),
        }
    }

    #[cold]
    #[inline(never)]
    fn put_slowly(&self, alarm: &'static Alarm) {
        FREE.lock().extend(self.free[BATCH..].iter().filter_map(Cell::get));
        self.len.set(BATCH);
        self.put(alarm);
    }
}

/// A free alarm, for whoever has no P to take one from.
fn take(free: &mut Vec<&'static Alarm>) -> &'static Alarm {
    free.pop().unwrap_or_else(|| {
        let new = || Alarm {
            word: AlarmWord::new(),
            place: AtomicU64::new(0),
            kind: AtomicPtr::new(ptr::null_mut()),
            function: Storage::new(),
        };
        let (first, rest) = match keep(Vec::from_iter([(); BATCH].map(|()| new())).leak()) {
            [first, rest @ ..] => (first, rest),
            [] => unreachable!("some were made"),
        };
        free.extend(rest);
        first
    })
}

#[inline]
fn put(alarm: &'static Alarm) {
    match Inside::enter() {
        Some(inside) => inside.p.own().alarms.put(alarm),
        None => FREE.lock().push(alarm),
    }
}
