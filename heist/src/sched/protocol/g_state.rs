//! The state word of a goroutine.
//!
//! # The word
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0–3 | status | one of [`Status`] |
//! | 8 | `NOTIFIED` | made ready while still on its way to sleep |
//!
//! # Who may change it
//!
//! | from | to | by whom |
//! |---|---|---|
//! | idle, dead | runnable | the spawner, before anybody else knows the G |
//! | runnable | running | the M that took it out of a queue: it alone has it |
//! | running | runnable | its M, when it yields |
//! | running | waiting | its M, after it left the stack ([`GState::park`]) |
//! | waiting | runnable | its one waker ([`GState::ready`]) |
//! | running | syscall | the goroutine, around a declared blocking call |
//! | syscall | running | the goroutine, on the way back |
//! | running | preempted | its own thread, in the handler that stops it |
//! | preempted | running | its own thread: its turn has come, or it was let go |
//! | running | dead | its M, when the body returned |
//! | runnable, waiting | dead | shutdown, once no M is left |
//!
//! Statuses have Go's names and numbers.
//!
//! # Ready against park
//!
//! A goroutine makes itself known to its waker *before* it leaves its stack, so
//! the waker may come first. Exactly one `ready` answers each `park`; whoever
//! hands out the right to wake (a wait queue, a token) sees to that. So there
//! are two orders. Park first: `ready` finds `waiting` and takes the G to a
//! queue. Ready first: it finds `running`, leaves `NOTIFIED`, and the M that
//! completes the park finds the mark and queues the G itself. In neither is the
//! G in a queue before its stack is still, and in neither is the wake-up lost.
//!
//! # Queued with its thread
//!
//! A goroutine that lost its P and cannot leave its thread where it is (it is in
//! the middle of a runtime call, or a signal stopped it in the middle of
//! anything) waits for its turn in a queue, on its thread. It may have made itself
//! known to a waker by then, so the mark can come at any moment: these
//! transitions ([`GState::leave_with_thread`], [`GState::run_with_thread`]) keep
//! it, and `ready` leaves it also on a goroutine that is queued.

use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::fatal::fatal;
use crate::prim::mutant::{Mutant, is};

/// What a goroutine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    /// Control block never used. Nobody has it.
    Idle = 0,
    /// In a run queue; whoever takes it out has it. Not executing.
    Runnable = 1,
    /// Executing user code on its stack; the M that runs it has both.
    Running = 2,
    /// In a declared blocking call: on its thread, perhaps without a P.
    Syscall = 3,
    /// Parked: in no run queue; some wait queue or token knows it.
    Waiting = 4,
    /// Finished. The block waits for its join handle or for reuse; no stack.
    Dead = 6,
    /// Stopped on its own thread by sysmon; its thread is queued, or will be.
    Preempted = 9,
}

const STATUS: u32 = 0xf;
const NOTIFIED: u32 = 1 << 8;

impl Status {
    fn of(word: u32) -> Status {
        match word & STATUS {
            0 => Status::Idle,
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Syscall,
            4 => Status::Waiting,
            6 => Status::Dead,
            9 => Status::Preempted,
            other => fatal!("goroutine status {other} does not exist"),
        }
    }
}

impl Status {
    /// The statuses that may become this one, a bit each.
    #[inline(always)]
    const fn predecessors(self) -> u32 {
        const fn bit(status: Status) -> u32 {
            1 << status as u32
        }
        use Status::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};
        match self {
            Idle => 0,
            Runnable => bit(Idle) | bit(Dead) | bit(Running) | bit(Waiting),
            Running => bit(Runnable) | bit(Syscall) | bit(Preempted),
            Syscall | Waiting | Preempted => bit(Running),
            Dead => bit(Runnable) | bit(Running) | bit(Waiting),
        }
    }
}

#[cold]
#[inline(never)]
fn bad_transition(word: u32, to: Status) -> ! {
    fatal!("bad goroutine transition: {word:#x} to {to:?}")
}

/// What the M does after [`GState::park`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Park {
    /// The goroutine sleeps; somebody else will queue it.
    Parked,
    /// Its waker came first: the goroutine is runnable and the caller queues it.
    Notified,
}

/// What a waker does after [`GState::ready`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ready {
    /// The goroutine is runnable and the caller's: queue it.
    Enqueue,
    /// It had not parked yet; its M will queue it.
    Deferred,
}

/// The state word.
#[derive(Debug)]
pub(crate) struct GState {
    word: AtomicU32,
}

impl GState {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        GState { word: AtomicU32::new(Status::Idle as u32) }
    }

    /// The status, for reports: it may change at any moment.
    #[inline]
    pub(crate) fn status(&self) -> Status {
        // Acquire: pairs with the release in `become_`; whoever sees a goroutine
        // alive sees whose it is.
        Status::of(self.word.load(Ordering::Acquire))
    }

    /// A transition that only the G's present owner can make: no other thread
    /// writes the word meanwhile, so a plain store does.
    ///
    /// Release: pairs with `status`. (Between owners, the queue that carries the
    /// G orders everything.)
    #[inline(always)]
    pub(crate) fn become_(&self, to: Status) {
        let word = self.word.load(Ordering::Relaxed);
        // Where it may come from, as a set of bits, is known to the compiler.
        if word > STATUS || to.predecessors() >> word & 1 == 0 {
            bad_transition(word, to);
        }
        self.word.store(to as u32, Ordering::Release);
    }

    /// Running to waiting, by the M, once the goroutine has left its stack.
    #[inline]
    pub(crate) fn park(&self) -> Park {
        const RUNNING: u32 = Status::Running as u32;
        // Release: pairs with the acquire in `ready`; who wakes the goroutine
        // and whoever runs it next see its stack as it left it.
        // Acquire: in the other order we see what the waker wrote.
        match self.word.compare_exchange(
            RUNNING,
            Status::Waiting as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Park::Parked,
            Err(word) if word == RUNNING | NOTIFIED => {
                // The one waker has been here: nobody else writes now.
                self.word.store(Status::Runnable as u32, Ordering::Relaxed);
                Park::Notified
            }
            Err(word) => fatal!("park of a goroutine in state {word:#x}"),
        }
    }

    /// Whether the waker has come already: the park can be spared.
    #[inline]
    pub(crate) fn take_notified(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        if word == Status::Running as u32 | NOTIFIED || word == Status::Syscall as u32 | NOTIFIED {
            self.word.store(word & !NOTIFIED, Ordering::Relaxed);
            return true;
        }
        false
    }

    /// Running to another status, of a goroutine that stays on its thread: a
    /// waker may leave its mark meanwhile, and it is kept.
    #[inline]
    pub(crate) fn leave_with_thread(&self, to: Status) {
        self.change_status(Status::Running, to);
    }

    /// Back to running, on the same thread; the mark is kept, too.
    #[inline]
    pub(crate) fn run_with_thread(&self, from: Status) {
        self.change_status(from, Status::Running);
    }

    fn change_status(&self, from: Status, to: Status) {
        // AcqRel: as `park` and `ready`; what a waker wrote before its mark goes
        // along with the word.
        let before = self.word.fetch_xor(from as u32 ^ to as u32, Ordering::AcqRel);
        if before & STATUS != from as u32 || to.predecessors() >> from as u32 & 1 == 0 {
            bad_transition(before, to);
        }
    }

    /// Shutdown, when no M is left: takes a parked goroutine in order to resume
    /// it. A waker that comes later only leaves its mark. False if one came
    /// first, and made it runnable.
    #[cfg(not(loom))]
    pub(crate) fn claim_waiting(&self) -> bool {
        let (waiting, running) = (Status::Waiting as u32, Status::Running as u32);
        self.word.compare_exchange(waiting, running, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Shutdown, when no M is left: takes a goroutine that was woken and has not
    /// run since, in order to resume it. It still gets its wake-up.
    #[cfg(not(loom))]
    pub(crate) fn claim_woken(&self) {
        self.word.store(Status::Running as u32 | NOTIFIED, Ordering::Release);
    }

    /// Shutdown: a goroutine that ended without wanting its wake-up.
    #[cfg(not(loom))]
    pub(crate) fn forget_notification(&self) {
        self.word.fetch_and(!NOTIFIED, Ordering::AcqRel);
    }

    /// As [`ready`](Self::ready), by a waker that no shutdown can come before: if the
    /// goroutine waits, `alone` says so. Then nobody but its one waker writes the word,
    /// and a plain store does: a read-modify-write costs as much as all the rest of a
    /// wake-up.
    #[inline(always)]
    pub(crate) fn ready_if(&self, alone: impl FnOnce() -> bool) -> Ready {
        // Acquire: pairs with the release in `park`.
        if self.word.load(Ordering::Acquire) == Status::Waiting as u32 && alone() {
            // Release: pairs with `status`, as in `become_`.
            self.word.store(Status::Runnable as u32, Ordering::Release);
            return Ready::Enqueue;
        }
        self.ready()
    }

    /// Answers one park: waiting to runnable, or a mark for a park to come.
    #[inline]
    pub(crate) fn ready(&self) -> Ready {
        const WAITING: u32 = Status::Waiting as u32;
        // On its thread, with a P, without one, or queued for one.
        const MARKABLE: u32 = 1 << Status::Running as u32
            | 1 << Status::Runnable as u32
            | 1 << Status::Preempted as u32
            // In `blocking`, which may call the runtime: it says so when it enters,
            // and may be known to a waker before.
            | 1 << Status::Syscall as u32;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (to, answer) = match word {
                WAITING => (Status::Runnable as u32, Ready::Enqueue),
                _ if word & NOTIFIED == 0 && MARKABLE >> word & 1 == 1 => {
                    let mark = if is(Mutant::ForgetNotified) { 0 } else { NOTIFIED };
                    (word | mark, Ready::Deferred)
                }
                _ => fatal!("ready of a goroutine in state {word:#x}"),
            };
            // Orderings: see `park`, the other side.
            match self.word.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return answer,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Status::{Dead, Idle, Preempted, Runnable, Running, Syscall, Waiting};

    #[test]
    fn every_status_survives_the_word() {
        for status in [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted] {
            assert_eq!(Status::of(status as u32), status);
        }
    }

    #[test]
    fn only_the_transitions_of_the_table_are_legal() {
        let all = [Idle, Runnable, Running, Syscall, Waiting, Dead, Preempted];
        let legal = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
        let may_become = |a: Status, b: Status| b.predecessors() >> a as u32 & 1 == 1;
        assert_eq!(legal.filter(|(a, b)| may_become(*a, *b)).count(), 13, "as the table says");
        assert!(!may_become(Waiting, Running), "a woken goroutine goes through a queue");
        assert!(!may_become(Dead, Running));
        assert!(!may_become(Runnable, Waiting));
    }

    #[test]
    fn both_orders_of_ready_and_park() {
        let g = GState::new();
        g.become_(Runnable);
        g.become_(Running);
        assert_eq!(g.park(), Park::Parked);
        assert_eq!(g.ready(), Ready::Enqueue);
        g.become_(Running);
        assert_eq!(g.ready(), Ready::Deferred);
        assert_eq!(g.park(), Park::Notified);
        assert_eq!(g.status(), Runnable);
        g.become_(Running);
        assert_eq!(g.ready(), Ready::Deferred);
        assert!(g.take_notified());
        assert!(!g.take_notified());
        assert_eq!(g.status(), Running);
    }

    #[test]
    fn a_waker_alone_gets_the_same_answers() {
        let g = GState::new();
        g.become_(Runnable);
        g.become_(Running);
        assert_eq!(g.ready_if(|| true), Ready::Deferred, "it has not parked");
        assert_eq!(g.park(), Park::Notified);
        for alone in [true, false] {
            g.become_(Running);
            assert_eq!(g.park(), Park::Parked);
            assert_eq!(g.ready_if(|| alone), Ready::Enqueue);
            assert_eq!(g.status(), Runnable);
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    /// Whoever queues the goroutine must see its stack; exactly one side does.
    fn ready_against_park_by(ready: fn(&GState) -> Ready) {
        loom::model(move || {
            let shared = Arc::new((GState::new(), Plain::new(0)));
            shared.0.become_(Status::Runnable);
            shared.0.become_(Status::Running);
            let waker = {
                let shared = shared.clone();
                loom::thread::spawn(move || match ready(&shared.0) {
                    Ready::Enqueue => {
                        assert_eq!(shared.1.get(), 1);
                        1
                    }
                    Ready::Deferred => 0,
                })
            };
            shared.1.set(1);
            let by_parker = match shared.0.park() {
                Park::Parked => 0,
                Park::Notified => 1,
            };
            assert_eq!(by_parker + waker.join().unwrap(), 1, "queued exactly once");
            assert_eq!(shared.0.status(), Status::Runnable);
        });
    }

    #[test]
    fn ready_against_park() {
        ready_against_park_by(GState::ready);
    }

    /// A plain store, if it finds that the goroutine waits.
    #[test]
    fn ready_alone_against_park() {
        ready_against_park_by(|state| state.ready_if(|| true));
    }

    /// A waker against a goroutine that waits for a P with its thread, and then
    /// parks: the wake-up is not lost, and the goroutine is queued for it once.
    #[test]
    fn ready_against_a_wait_for_a_p() {
        loom::model(|| {
            let shared = Arc::new((GState::new(), Plain::new(0)));
            shared.0.become_(Status::Runnable);
            shared.0.become_(Status::Running);
            let waker = {
                let shared = shared.clone();
                loom::thread::spawn(move || match shared.0.ready() {
                    Ready::Enqueue => {
                        assert_eq!(shared.1.get(), 1);
                        1
                    }
                    Ready::Deferred => 0,
                })
            };
            shared.0.leave_with_thread(Status::Runnable);
            shared.0.run_with_thread(Status::Runnable);
            shared.1.set(1);
            let by_parker = match shared.0.park() {
                Park::Parked => 0,
                Park::Notified => 1,
            };
            assert_eq!(by_parker + waker.join().unwrap(), 1, "queued exactly once");
        });
    }
}
