//! Whoever waits: a goroutine parks, a plain OS thread sleeps.
//!
//! There are two ways to wait.
//!
//! *Alone.* Exactly one other knows the [`Waiter`] and wakes it exactly once:
//! whoever takes it out of a queue under that queue's lock, say.
//! [`Waiter::sleep`] and its kin; nothing is decided by anybody but the queue.
//!
//! *One of many.* Several may want to end the wait: the channels of a select, a
//! channel and the clock. [`Waiter::begin`] makes a [`Turn`], which all of them
//! get; whoever wins [`Turn::claim`] wakes, once, and the others go away. See
//! `protocol::turn`.

use super::g::{G, WaitReason};
use super::m::{self, Inside};
use super::p::Held;
use super::park;
use super::protocol::g_state::Status;
use super::protocol::turn::{End, Number, TurnWord};
use super::schedt::Sched;
use super::timers::{self, Due};
use crate::context::Resume;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::prim::note::Seat;
use crate::prim::{clock, thread};
use std::num::NonZeroUsize;
use std::panic::Location;
use std::ptr;

/// One who waits, in a word: a G, or with the lowest bit set a thread's seat.
/// Neither is ever freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter(NonZeroUsize);

const THREAD: usize = 1;

// The words of locks keep some bits beside their owner (see `protocol::once`).
const _: () = assert!(align_of::<G>() >= 16 && align_of::<Seat>() >= 16);

/// OS threads that sleep here until a goroutine wakes them (see
/// `deadlock`).
static SLEEPING_THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many OS threads sleep until a goroutine wakes them. One that has set itself
/// an alarm does not count, as if it were awake: the clock may wake it.
pub(crate) fn sleeping_threads() -> isize {
    // Negative for a moment when a wake-up comes before its sleep.
    SLEEPING_THREADS.load(Ordering::SeqCst) as isize
}

/// What a word of [`Waiter`] stands for.
enum Kind {
    Goroutine(&'static G),
    Thread(&'static Seat),
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Slept {
    /// By its waker.
    Woken,
    /// By the clock: nobody else will wake.
    Expired,
    /// The runtime shuts down and nobody else will wake: leave all queues, then
    /// [`park::unwind`].
    Unwind,
}

impl Waiter {
    /// The caller.
    #[inline]
    pub(crate) fn current() -> Waiter {
        match m::current_g() {
            Some(g) => Waiter::of(g),
            None => Waiter::new(ptr::from_ref(thread::seat()).expose_provenance() | THREAD),
        }
    }

    /// A goroutine.
    #[inline]
    pub(crate) fn of(g: &'static G) -> Waiter {
        Waiter::new(ptr::from_ref(g).expose_provenance())
    }

    #[inline]
    fn new(word: usize) -> Waiter {
        match NonZeroUsize::new(word) {
            Some(word) => Waiter(word),
            None => unreachable!("references are not null"),
        }
    }

    pub(crate) fn word(self) -> NonZeroUsize {
        self.0
    }

    /// The waiter that [`word`](Self::word) came from.
    pub(crate) fn from_word(word: NonZeroUsize) -> Waiter {
        Waiter(word)
    }

    #[inline]
    fn kind(self) -> Kind {
        let address = self.0.get();
        if address & THREAD == 0 {
            // SAFETY: the word of a goroutine's waiter is the address of its G,
            // and Gs are never unmapped.
            Kind::Goroutine(unsafe { &*ptr::with_exposed_provenance::<G>(address) })
        } else {
            // SAFETY: the word of a thread's waiter is the address of its seat,
            // and seats are never freed.
            Kind::Thread(unsafe { &*ptr::with_exposed_provenance::<Seat>(address & !THREAD) })
        }
    }

    /// What its goroutine does, as of some recent moment; `None` for a thread.
    pub(crate) fn status(self) -> Option<Status> {
        match self.kind() {
            Kind::Goroutine(g) => Some(g.state.status()),
            Kind::Thread(_) => None,
        }
    }

    /// The id of its goroutine; `None` for a thread.
    pub(crate) fn goroutine_id(self) -> Option<u64> {
        match self.kind() {
            Kind::Goroutine(g) => Some(g.id()),
            Kind::Thread(_) => None,
        }
    }

    /// The caller, whose waiter this is, is going to wait for a lock that `holder`
    /// has: for reports.
    pub(crate) fn note_holder(self, holder: Option<Waiter>) {
        if let Kind::Goroutine(g) = self.kind() {
            g.note_holder(holder.filter(|holder| *holder != self).and_then(Waiter::goroutine_id));
        }
    }

    /// The caller, whose waiter this is, sleeps until [`wake`](Self::wake).
    ///
    /// # Unwinding
    ///
    /// As [`park::park`].
    #[inline(always)] // as `park::yield_now`
    pub(crate) fn sleep(self, reason: WaitReason, site: &'static Location<'static>) {
        if self.sleep_or_unwind(reason, site) == Slept::Unwind {
            park::unwind();
        }
    }

    /// Like [`sleep`](Self::sleep), but does not unwind: says when it should.
    /// The caller leaves the queue that its waker finds it in; if it is too late
    /// for that, it waits for the wake-up with [`absorb`](Self::absorb).
    #[inline(always)] // as `park::yield_now`
    pub(crate) fn sleep_or_unwind(
        self,
        reason: WaitReason,
        site: &'static Location<'static>,
    ) -> Slept {
        match self.kind() {
            Kind::Goroutine(_) => match park::park_whatever_comes(reason, site) {
                Resume::Run => Slept::Woken,
                Resume::Unwind => Slept::Unwind,
            },
            Kind::Thread(seat) => {
                sleep_thread(seat);
                Slept::Woken
            }
        }
    }

    /// Like [`sleep`](Self::sleep), but returns only when it was woken: what it
    /// waits for borrows from its stack.
    pub(crate) fn sleep_whatever_comes(self, reason: WaitReason, site: &'static Location<'static>) {
        match self.kind() {
            Kind::Goroutine(_) => {
                while park::park_whatever_comes(reason, site) == Resume::Unwind {}
            }
            Kind::Thread(seat) => sleep_thread(seat),
        }
    }

    /// Wakes the waiter: exactly once for each sleep.
    #[inline]
    pub(crate) fn wake(self) {
        match self.kind() {
            Kind::Goroutine(g) => park::ready(g),
            Kind::Thread(seat) => {
                // By the waker, so that a thread that was woken does not count
                // as asleep until it runs.
                SLEEPING_THREADS.fetch_sub(1, Ordering::SeqCst);
                seat.note.wake();
            }
        }
    }

    /// Waits for a wake-up that can no longer be withdrawn.
    pub(crate) fn absorb(self) {
        match self.kind() {
            Kind::Goroutine(_) => park::absorb(),
            // Its waker counts it as awake, so it counts as asleep.
            Kind::Thread(seat) => sleep_thread(seat),
        }
    }

    /// The caller, whose waiter this is, begins a wait that one of many ends.
    #[inline]
    pub(crate) fn begin(self) -> Turn {
        Turn { waiter: self, number: self.turn().begin() }
    }

    #[inline]
    fn turn(self) -> TurnWord<'static> {
        match self.kind() {
            Kind::Goroutine(g) => g.turn(),
            Kind::Thread(seat) => TurnWord(&seat.turn),
        }
    }
}

#[cold]
fn sleep_thread(seat: &'static Seat) {
    SLEEPING_THREADS.fetch_add(1, Ordering::SeqCst);
    seat.note.sleep();
}

/// One wait, known to several who may end it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    waiter: Waiter,
    number: Number,
}

impl Turn {
    /// Whose wait it is.
    pub(crate) fn waiter(self) -> Waiter {
        self.waiter
    }

    /// Wins the right to end the wait, which only one gets: then [`wake`]
    /// follows, and until it comes, the waiter's stack stays as it is.
    ///
    /// [`wake`]: Self::wake
    #[inline]
    #[must_use]
    pub(crate) fn claim(self) -> bool {
        self.waiter.turn().claim(self.number)
    }

    /// Wakes whoever waits. By the winner, once.
    #[inline]
    pub(crate) fn wake(self) {
        self.waiter.wake();
    }

    /// As [`wake`](Self::wake), on behalf of a P that has found what was waited for: a
    /// goroutine of its runtime goes behind the others there.
    #[inline]
    pub(crate) fn wake_last(self, sched: &'static Sched, p: Held) {
        match self.waiter.kind() {
            Kind::Goroutine(g) if g.runtime() == sched.slot() => {
                g.prefetch_stack();
                timers::ready_last(sched, p, g);
            }
            _ => self.wake(),
        }
    }

    /// Whether nobody has ended it.
    pub(crate) fn is_open(self) -> bool {
        self.waiter.turn().is_open(self.number)
    }

    /// The caller, whose wait this is, no longer wants it. If somebody has won
    /// already, takes the wake-up and returns false.
    #[must_use]
    pub(crate) fn give_up(self) -> bool {
        let closed = self.waiter.turn().close(self.number);
        if !closed {
            self.waiter.absorb();
        }
        closed
    }

    /// The caller, whose wait this is, sleeps until somebody ends it, at the
    /// latest at `deadline` on the monotonic clock.
    ///
    /// Never unwinds. With [`Slept::Woken`] the winner has done its work; in the
    /// other cases nobody has won and nobody will.
    #[inline(always)] // as `park::yield_now`
    pub(crate) fn sleep(
        self,
        deadline: Option<u64>,
        reason: WaitReason,
        site: &'static Location<'static>,
    ) -> Slept {
        match self.waiter.kind() {
            Kind::Goroutine(g) => {
                let Some(when) = deadline else {
                    return self.slept(park::park_whatever_comes(reason, site));
                };
                if thread::panicking() {
                    return self.sleep_while_unwinding(g, when, reason, site);
                }
                let Some(inside) = Inside::enter() else {
                    return self.sleep_without_timers(g, when, reason, site);
                };
                // First, so that where it waits need not be kept meanwhile.
                g.note_wait(reason, inside.p.now(), site);
                let alarm = timers::arm_wait(inside.p, g, self.number, when);
                let slept = self.slept(park::park_noted(inside, g));
                if slept != Slept::Expired {
                    alarm.disarm();
                }
                slept
            }
            Kind::Thread(seat) => self.sleep_thread(seat, deadline),
        }
    }

    /// The present wait of a goroutine that is the caller.
    pub(crate) fn present(g: &'static G) -> Turn {
        Turn { waiter: Waiter::of(g), number: g.turn().present() }
    }

    /// The caller, whose wait this is, was told to unwind.
    pub(crate) fn woken_to_unwind(self) -> Slept {
        let resumed = match self.waiter.kind() {
            Kind::Goroutine(g) => park::wake_or_order(g, Resume::Unwind),
            Kind::Thread(_) => Resume::Unwind,
        };
        self.slept(resumed)
    }

    #[inline]
    fn slept(self, resumed: Resume) -> Slept {
        if resumed == Resume::Unwind && self.give_up() {
            return Slept::Unwind;
        }
        match self.waiter.turn().end_of(self.number) {
            End::Claimed => Slept::Woken,
            End::Expired => Slept::Expired,
        }
    }

    /// By a goroutine that unwinds, which a shutdown does not tell to.
    #[cold]
    #[inline(never)]
    fn sleep_while_unwinding(
        self,
        g: &'static G,
        deadline: u64,
        reason: WaitReason,
        site: &'static Location<'static>,
    ) -> Slept {
        let Some(alarm) = timers::arm(Due::Wake(g, self.number), deadline) else {
            return self.sleep_without_timers(g, deadline, reason, site);
        };
        if park::park_for_a_time(g, reason, site) == Resume::Unwind {
            alarm.disarm();
            return self.sleep_without_timers(g, deadline, reason, site);
        }
        let slept = self.slept(Resume::Run);
        if slept != Slept::Expired {
            alarm.disarm();
        }
        slept
    }

    /// The runtime closes and has no timers any more. A goroutine that unwinds
    /// waits with its thread; others are told to unwind as soon as they park.
    #[cold]
    fn sleep_without_timers(
        self,
        g: &'static G,
        deadline: u64,
        reason: WaitReason,
        site: &'static Location<'static>,
    ) -> Slept {
        if !thread::panicking() {
            return self.slept(park::park_whatever_comes(reason, site));
        }
        while !g.state.take_notified() {
            let now = clock::now();
            if now >= deadline && self.waiter.turn().expire(self.number) {
                return Slept::Expired;
            }
            super::in_place::pause_in_shutdown(deadline.saturating_sub(now));
        }
        self.slept(Resume::Run)
    }

    #[cold]
    fn sleep_thread(self, seat: &'static Seat, deadline: Option<u64>) -> Slept {
        let Some(deadline) = deadline else {
            sleep_thread(seat);
            return Slept::Woken;
        };
        if !seat.note.sleep_until(Some(deadline)) {
            if self.waiter.turn().expire(self.number) {
                return Slept::Expired;
            }
            // Too late: the winner's wake-up is on its way.
            seat.note.sleep();
        }
        // Its waker has taken off a sleep that was not counted.
        SLEEPING_THREADS.fetch_add(1, Ordering::SeqCst);
        Slept::Woken
    }
}
