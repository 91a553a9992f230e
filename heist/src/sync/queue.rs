//! The queue that everything in `heist::sync` waits in.
//!
//! A first-in first-out list of records on the stacks of those who wait, under a
//! small lock that guards also what they wait for. Waiting allocates nothing.
//!
//! Who takes a record out of the list also *claims* its wait
//! (`sched::protocol::turn`): from then on the waiter stays asleep until it is
//! woken, so the record may still be read. A waiter whose time is up, or whose
//! runtime shuts down, has closed its wait; its claim fails, and it takes itself
//! out of the list under the lock.

use crate::prim::lock::{Guard, Lock, Rank};
use crate::sched::g::WaitReason;
use crate::sched::waiter::{Slept, Turn, Waiter};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr;

/// `LISTS` lists of waiters, and what they wait for.
pub(super) struct WaitQueue<T = (), const LISTS: usize = 1> {
    inner: Lock<Inner<T, LISTS>>,
}

struct Inner<T, const LISTS: usize> {
    data: T,
    lists: [List; LISTS],
}

/// The ends of a list; null if it is empty.
#[derive(Clone, Copy)]
struct List {
    first: *const Record,
    last: *const Record,
}

// SAFETY: the records are on other stacks, and reached only with the queue's
// lock, or by the one who has claimed them.
unsafe impl Send for List {}

/// One who waits. All but `turn` and `tag` changes only with the queue's lock.
struct Record {
    turn: Turn,
    /// Whatever the one who takes it out should know.
    tag: u64,
    queued: Cell<bool>,
    next: Cell<*const Record>,
    previous: Cell<*const Record>,
}

/// How somebody waits.
pub(super) struct Wait {
    /// Before all others, not behind them.
    pub(super) first: bool,
    /// What the one who takes it out should know.
    pub(super) tag: u64,
    /// On the monotonic clock.
    pub(super) deadline: Option<u64>,
    pub(super) reason: WaitReason,
    pub(super) site: &'static Location<'static>,
}

impl Wait {
    /// Behind all others, without a limit.
    pub(super) fn new(reason: WaitReason, site: &'static Location<'static>) -> Wait {
        Wait { first: false, tag: 0, deadline: None, reason, site }
    }
}

/// How a wait ended.
#[must_use]
pub(super) enum Waited<'a, T, const LISTS: usize> {
    /// Somebody took the caller out of the queue, and woke it.
    Woken,
    /// By the clock: the caller has left the queue, whose lock it holds again.
    Expired(Locked<'a, T, LISTS>),
    /// Likewise, because the runtime shuts down.
    Unwind(Locked<'a, T, LISTS>),
}

/// Somebody who was taken out of the queue, to be woken when the queue's lock
/// has been released.
#[must_use]
pub(super) struct Popped {
    pub(super) turn: Turn,
    pub(super) tag: u64,
}

impl<T, const LISTS: usize> WaitQueue<T, LISTS> {
    pub(super) const fn new(data: T) -> Self {
        let empty = List { first: ptr::null(), last: ptr::null() };
        WaitQueue { inner: Lock::new(Rank::Leaf, Inner { data, lists: [empty; LISTS] }) }
    }

    pub(super) fn lock(&self) -> Locked<'_, T, LISTS> {
        Locked { queue: self, inner: self.inner.lock() }
    }
}

/// The queue, locked.
pub(super) struct Locked<'a, T, const LISTS: usize> {
    queue: &'a WaitQueue<T, LISTS>,
    inner: Guard<'a, Inner<T, LISTS>>,
}

impl<T, const LISTS: usize> Deref for Locked<'_, T, LISTS> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner.data
    }
}

impl<T, const LISTS: usize> DerefMut for Locked<'_, T, LISTS> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.data
    }
}

impl<'a, T, const LISTS: usize> Locked<'a, T, LISTS> {
    pub(super) fn is_empty(&self, list: usize) -> bool {
        self.inner.lists[list].first.is_null()
    }

    /// The caller queues, releases the lock, does `meanwhile`, and sleeps. It may be
    /// woken from when it is queued, so `meanwhile` neither waits nor yields.
    #[inline(always)] // as `park::yield_now`
    pub(super) fn wait(
        mut self,
        list: usize,
        wait: Wait,
        meanwhile: impl FnOnce(),
    ) -> Waited<'a, T, LISTS> {
        let queue = self.queue;
        let record = Record {
            turn: Waiter::current().begin(),
            tag: wait.tag,
            queued: Cell::new(true),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
        };
        // SAFETY: the record stays where it is until `Leave` has taken it out, or
        // somebody else has and has woken us.
        unsafe { self.inner.lists[list].link(&record, wait.first) };
        drop(self);
        let leave = Leave { queue, list, record: &record };
        meanwhile();
        match record.turn.sleep(wait.deadline, wait.reason, wait.site) {
            Slept::Woken => {
                std::mem::forget(leave);
                Waited::Woken
            }
            Slept::Expired => Waited::Expired(leave.now()),
            Slept::Unwind => Waited::Unwind(leave.now()),
        }
    }

    /// Takes the first one out, for the caller to wake.
    pub(super) fn pop(&mut self, list: usize) -> Option<Popped> {
        loop {
            let list = &mut self.inner.lists[list];
            // SAFETY: a record in the list lives; it is taken out under the lock
            // that we hold.
            let first = unsafe { list.first.as_ref() }?;
            // SAFETY: it is in this list.
            unsafe { list.unlink(first) };
            let popped = Popped { turn: first.turn, tag: first.tag };
            if popped.turn.claim() {
                return Some(popped);
            }
        }
    }

    /// Takes all out, to be woken when they are dropped: not before the queue's
    /// lock.
    pub(super) fn pop_all(&mut self, list: usize) -> Batch {
        self.pop_while(list, |_, _| true, |_, _| ())
    }

    /// Takes out the first ones that are accepted by their tags, and notes each
    /// that was taken in what they wait for. As [`pop_all`](Self::pop_all).
    pub(super) fn pop_while(
        &mut self,
        list: usize,
        mut accept: impl FnMut(&T, u64) -> bool,
        mut taken: impl FnMut(&mut T, u64),
    ) -> Batch {
        let mut batch = Batch { first: ptr::null(), len: 0 };
        let mut last: *const Record = ptr::null();
        let Inner { data, lists } = &mut *self.inner;
        let list = &mut lists[list];
        // SAFETY: as in `pop`.
        while let Some(first) = unsafe { list.first.as_ref() } {
            // One whose time is up may stop those behind it, until it is gone.
            if !accept(data, first.tag) {
                break;
            }
            // SAFETY: it is in this list.
            unsafe { list.unlink(first) };
            if !first.turn.claim() {
                continue;
            }
            taken(data, first.tag);
            batch.len += 1;
            // SAFETY: it was claimed by us and is not woken before the batch is
            // dropped, so it lives.
            match unsafe { last.as_ref() } {
                None => batch.first = first,
                Some(last) => last.next.set(first),
            }
            last = first;
        }
        batch
    }
}

impl List {
    /// # Safety
    ///
    /// With the queue's lock; the record is in no list, and lives until it is out
    /// of this one.
    unsafe fn link(&mut self, record: &Record, first: bool) {
        let this = ptr::from_ref(record);
        if first {
            record.next.set(self.first);
        } else {
            record.previous.set(self.last);
        }
        let neighbour = if first { self.first } else { self.last };
        // SAFETY: null, or a record in the list.
        match unsafe { neighbour.as_ref() } {
            None => (self.first, self.last) = (this, this),
            Some(neighbour) if first => {
                neighbour.previous.set(this);
                self.first = this;
            }
            Some(neighbour) => {
                neighbour.next.set(this);
                self.last = this;
            }
        }
    }

    /// # Safety
    ///
    /// With the queue's lock; the record is in this list.
    unsafe fn unlink(&mut self, record: &Record) {
        debug_assert!(record.queued.get());
        let (next, previous) = (record.next.get(), record.previous.get());
        // SAFETY: null, or a record in the list; likewise below.
        match unsafe { previous.as_ref() } {
            None => self.first = next,
            Some(previous) => previous.next.set(next),
        }
        // SAFETY: see above.
        match unsafe { next.as_ref() } {
            None => self.last = previous,
            Some(next) => next.previous.set(previous),
        }
        record.queued.set(false);
        record.next.set(ptr::null());
    }
}

/// Takes a record out, whatever happens to its owner.
struct Leave<'a, 'r, T, const LISTS: usize> {
    queue: &'a WaitQueue<T, LISTS>,
    list: usize,
    record: &'r Record,
}

impl<'a, T, const LISTS: usize> Leave<'a, '_, T, LISTS> {
    /// The wait has been closed: nobody wakes the owner any more.
    #[cold]
    fn now(self) -> Locked<'a, T, LISTS> {
        let locked = self.take_out();
        std::mem::forget(self);
        locked
    }

    fn take_out(&self) -> Locked<'a, T, LISTS> {
        let mut locked = self.queue.lock();
        if self.record.queued.get() {
            // SAFETY: it is in this list, and nowhere else.
            unsafe { locked.inner.lists[self.list].unlink(self.record) };
        }
        locked
    }
}

impl<T, const LISTS: usize> Drop for Leave<'_, '_, T, LISTS> {
    /// What it does before it sleeps has panicked.
    fn drop(&mut self) {
        drop(self.take_out());
        let _ = self.record.turn.give_up();
    }
}

impl Popped {
    #[inline]
    pub(super) fn wake(self) {
        self.turn.wake();
    }
}

/// Those who were taken out together.
pub(super) struct Batch {
    first: *const Record,
    len: usize,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: claimed by us and not woken: it lives.
        while let Some(record) = unsafe { self.first.as_ref() } {
            let turn = record.turn;
            // Before it is woken: afterwards the record is gone.
            self.first = record.next.get();
            turn.wake();
        }
    }
}
