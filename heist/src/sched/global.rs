//! The global queue: who puts in what, and how much each P takes.

use super::g::G;
use super::p::Held;
use super::policy::{Departure, departs};
use super::protocol::run_queue::HALF;
use super::schedt::{GROUP, Sched};
use super::shared::Shared;
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::fatal::fatal;
use crate::prim::lock::Guard;
use crate::prim::mutant::{Mutant, is};

/// A P's turn at the global queue.
struct GlobalTurn(Option<&'static AtomicBool>);

impl Drop for GlobalTurn {
    fn drop(&mut self) {
        if let Some(taken) = self.0 {
            taken.store(false, Ordering::Relaxed);
        }
    }
}

impl Sched {
    /// Queues goroutines at the tail of the global queue. False if the runtime
    /// is closed: they will not run.
    #[must_use]
    pub(crate) fn put_global(&self, gs: impl IntoIterator<Item = &'static G>) -> bool {
        self.put_global_in(self.life(), gs)
    }

    /// As [`put_global`](Self::put_global), for goroutines of a certain life.
    #[must_use]
    pub(crate) fn put_global_in(
        &self,
        life: u32,
        gs: impl IntoIterator<Item = &'static G>,
    ) -> bool {
        let mut shared = self.shared.lock();
        if shared.closed || life != self.life() {
            return false;
        }
        self.put_global_locked(&mut shared, gs);
        true
    }

    pub(crate) fn put_global_locked(
        &self,
        shared: &mut Guard<'_, Shared>,
        gs: impl IntoIterator<Item = &'static G>,
    ) {
        shared.runq.append(gs);
        self.note_global_size(shared);
    }

    /// The global queue has changed.
    pub(crate) fn note_global_size(&self, shared: &Guard<'_, Shared>) {
        self.runq_size.store(shared.queued(), Ordering::SeqCst);
        if self.frozen_size.load(Ordering::Relaxed) != shared.frozen.len() {
            self.frozen_size.store(shared.frozen.len(), Ordering::Relaxed);
        }
    }

    /// The right to take from the global queue, which one of a group has at a time. The
    /// others go elsewhere: a thousand that see something there would queue up at its
    /// lock, and the kernel lets one of them through every 7 µs, long after the queue is
    /// empty. One that finds nothing elsewhere takes the lock when it goes to sleep, and
    /// looks again if there is something. (To try the lock instead is worse than to wait
    /// for it: each attempt takes its cache line from the one that is to give it back.)
    fn turn_at_global(&'static self, p: Held) -> Option<GlobalTurn> {
        if self.groups() == 1 {
            return Some(GlobalTurn(None));
        }
        let taken = &self.at_global[(p.id / GROUP) as usize];
        // Relaxed: it protects nothing; what the queue holds is the lock's.
        let free = !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Relaxed);
        free.then_some(GlobalTurn(Some(taken)))
    }

    /// Takes some goroutines from the global queue: one to run now, and the others go
    /// behind those that yielded on this P.
    pub(crate) fn take_global_few(
        &'static self,
        p: Held,
        few: usize,
        frozen_first: bool,
    ) -> Option<&'static G> {
        let _turn = self.turn_at_global(p)?;
        let mut shared = self.shared.lock();
        let first = if frozen_first { shared.pop_frozen() } else { None };
        let g = first.or_else(|| shared.runq.pop()).or_else(|| shared.pop_frozen());
        if few > 1 {
            let room = p.runq.room_for_yielded().min(few - 1);
            self.move_from_global(&mut shared, p, 1, room);
        }
        self.note_global_size(&shared);
        g
    }

    /// Moves the P's share of the global queue behind those that yielded on it, where
    /// there is `room`.
    fn move_from_global(
        &self,
        shared: &mut Guard<'_, Shared>,
        p: Held,
        sharers: usize,
        room: usize,
    ) {
        shared.runq.take_batch(sharers, room, |g| {
            if p.runq.push_yielded(g).is_err() {
                fatal!("a ring with {room} free slots is full");
            }
        });
        // Before the lock is free: a searcher that finds the global queue empty
        // under the lock, and goes to sleep, looks at the offers next.
        super::wake::offer(self, p);
    }

    /// Among how many Ps the global queue is shared out. Many take a part of it for
    /// several, who steal it: if each of 256 took its own, one at a time under the lock,
    /// all would wait for that longer than they work.
    fn sharers(&self) -> usize {
        self.procs().div_ceil(self.groups()) as usize
    }

    /// How many groups of Ps take from the global queue as one would in a small runtime.
    pub(crate) fn groups(&self) -> u32 {
        if departs(Departure::Groups) { self.procs().div_ceil(GROUP) } else { 1 }
    }

    /// Takes the P's share of the global queue, and one of the frozen ones, which it
    /// returns: to be run first, since the rest of the share waits for the P's next
    /// round anyway. If there is no room for it, some of
    /// those that yielded on this P go behind it first. So each of them runs many
    /// times before it waits for everybody, and few of them change their P, which
    /// costs more than all the rest of a yield.
    pub(crate) fn take_global_batch(&'static self, p: Held) -> Option<&'static G> {
        let sharers = self.sharers();
        let _turn = self.turn_at_global(p)?;
        let mut shared = self.shared.lock();
        if p.runq.room_for_yielded() < shared.runq.batch(sharers, HALF)
            && let Some(some) = p.runq.take_yielded(|_| HALF)
        {
            shared.runq.append(some.iter());
        }
        let room = p.runq.room_for_yielded().min(HALF);
        self.move_from_global(&mut shared, p, sharers, room);
        let frozen = shared.pop_frozen();
        if !is(Mutant::StaleGlobalSize) {
            self.note_global_size(&shared);
        }
        frozen
    }
}
