//! Those who wait at a channel: records on their stacks, linked.

use std::cell::Cell;
use std::ptr;

/// One who waits: how others end the wait.
pub(crate) trait Waits: Copy {
    /// Wins the right to end the wait, which only one gets. Whoever has it wakes,
    /// once, and until then the waiter's stack stays as it is.
    #[must_use]
    fn claim(self) -> bool;

    /// Whether somebody could still win it.
    fn is_open(self) -> bool;

    /// Ends the wait. By the winner.
    fn wake(self);
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nobody has ended it yet.
    Waiting,
    /// A receiver has its message, a sender is rid of its own. A sender that did
    /// not have one yet has room for it.
    Done,
    /// The other side of the channel is gone.
    Disconnected,
    /// A sender that did not have its message yet: a receiver waits for it.
    Paired,
    /// A receiver whose sender changed its mind: try again.
    Retry,
}

/// A place in a queue, on the stack of whoever waits.
///
/// All but `who` is written by whoever holds the channel's latch, and after the
/// record has left the queue, by the one that claimed the wait, until it wakes.
#[derive(Debug)]
pub(crate) struct Record<W> {
    next: Cell<*const Record<W>>,
    prev: Cell<*const Record<W>>,
    queued: Cell<bool>,
    outcome: Cell<Outcome>,
    pub(crate) who: W,
    /// Where the message goes to, or comes from; null for a sender that does not
    /// have it yet, and then, with [`Outcome::Paired`], the receiver's record.
    slot: Cell<*mut ()>,
}

impl<W: Waits> Record<W> {
    pub(crate) fn new(who: W, slot: *mut ()) -> Self {
        Record {
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            queued: Cell::new(false),
            outcome: Cell::new(Outcome::Waiting),
            who,
            slot: Cell::new(slot),
        }
    }

    /// Whether it is in a queue. With the latch.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.get()
    }

    /// What came of it. By its owner after the wake-up, or with the latch.
    #[inline(always)]
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    #[inline(always)]
    pub(crate) fn set_outcome(&self, outcome: Outcome) {
        self.outcome.set(outcome);
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> *mut () {
        self.slot.get()
    }

    pub(crate) fn set_slot(&self, slot: *mut ()) {
        self.slot.set(slot);
    }
}

/// A queue of records, first come first served. Everything here is for the
/// holder of the channel's latch.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    head: *const Record<W>,
    tail: *const Record<W>,
}

impl<W: Waits> Queue<W> {
    pub(crate) const fn new() -> Self {
        Queue { head: ptr::null(), tail: ptr::null() }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Adds a record at the end.
    ///
    /// # Safety
    ///
    /// It is in no queue, and stays where it is until it has left this one.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, record: &Record<W>) {
        record.next.set(ptr::null());
        record.prev.set(self.tail);
        record.queued.set(true);
        // SAFETY: records in the queue are alive.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(record),
            None => self.head = record,
        }
        self.tail = record;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<&Record<W>> {
        // SAFETY: records in the queue are alive.
        let record = unsafe { self.head.as_ref() }?;
        self.head = record.next.get();
        // SAFETY: as above.
        match unsafe { self.head.as_ref() } {
            Some(head) => head.prev.set(ptr::null()),
            None => self.tail = ptr::null(),
        }
        record.queued.set(false);
        Some(record)
    }

    /// Takes a record out, if it is in the queue; it is in no other.
    pub(crate) fn remove(&mut self, record: &Record<W>) {
        if !record.queued.replace(false) {
            return;
        }
        let (prev, next) = (record.prev.get(), record.next.get());
        // SAFETY: records in the queue are alive.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail = prev,
        }
    }

    /// Takes the first one whose wait nobody has ended, and claims it.
    #[inline(always)]
    pub(crate) fn claim_first(&mut self) -> Option<Claimed<W>> {
        loop {
            let record = self.pop()?;
            if record.who.claim() {
                return Some(Claimed(record));
            }
        }
    }

    /// Takes and claims all of them.
    pub(crate) fn claim_all(&mut self) -> Chain<W> {
        let mut chain = Chain::new();
        while let Some(claimed) = self.claim_first() {
            chain.push(claimed);
        }
        chain
    }

    /// Whether there is one that could be claimed.
    pub(crate) fn any_open(&self) -> bool {
        let mut at = self.head;
        // SAFETY: records in the queue are alive.
        while let Some(record) = unsafe { at.as_ref() } {
            if record.who.is_open() {
                return true;
            }
            at = record.next.get();
        }
        false
    }
}

/// A record whose wait the caller has claimed and not yet ended: its owner
/// sleeps, and it stays where it is.
#[derive(Debug)]
#[must_use]
pub(crate) struct Claimed<W>(*const Record<W>);

impl<W: Waits> Claimed<W> {
    /// The record of one who waits for the caller and nobody else.
    ///
    /// # Safety
    ///
    /// The record's owner sleeps until the caller ends its wait.
    pub(crate) unsafe fn from_raw(record: *const Record<W>) -> Self {
        Claimed(record)
    }

    pub(crate) fn into_raw(self) -> *const Record<W> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn record(&self) -> &Record<W> {
        // SAFETY: by its definition alive until `end`, which consumes it.
        unsafe { &*self.0 }
    }

    /// Ends the wait.
    #[inline(always)]
    pub(crate) fn end(self, outcome: Outcome) {
        let record = self.record();
        // Before it is woken: then its stack is its own again.
        let who = record.who;
        record.set_outcome(outcome);
        who.wake();
    }
}

/// Claimed records, linked.
#[derive(Debug)]
#[must_use]
pub(crate) struct Chain<W> {
    head: *const Record<W>,
    tail: *const Record<W>,
}

impl<W: Waits> Chain<W> {
    pub(crate) const fn new() -> Self {
        Chain { head: ptr::null(), tail: ptr::null() }
    }

    /// Adds one; what came of its wait is set.
    pub(crate) fn push(&mut self, claimed: Claimed<W>) {
        let record = claimed.into_raw();
        // SAFETY: claimed and not yet woken, like all in the chain.
        unsafe {
            (*record).next.set(ptr::null());
            match self.tail.as_ref() {
                Some(tail) => tail.next.set(record),
                None => self.head = record,
            }
        }
        self.tail = record;
    }

    /// Sets what came of all these waits.
    pub(crate) fn with(self, outcome: Outcome) -> Self {
        let mut at = self.head;
        // SAFETY: claimed and not yet woken.
        while let Some(record) = unsafe { at.as_ref() } {
            record.set_outcome(outcome);
            at = record.next.get();
        }
        self
    }

    /// Adds another chain.
    pub(crate) fn append(&mut self, mut other: Chain<W>) {
        while let Some(claimed) = other.pop() {
            self.push(claimed);
        }
    }

    fn pop(&mut self) -> Option<Claimed<W>> {
        // SAFETY: claimed and not yet woken.
        let record = unsafe { self.head.as_ref() }?;
        self.head = record.next.get();
        if self.head.is_null() {
            self.tail = ptr::null();
        }
        Some(Claimed(record))
    }

    /// Wakes them, in order. Without the latch.
    #[inline(always)]
    pub(crate) fn wake(self) {
        if !self.head.is_null() {
            self.wake_some();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_some(mut self) {
        while let Some(claimed) = self.pop() {
            let outcome = claimed.record().outcome();
            claimed.end(outcome);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One whose wait may have been ended elsewhere, and who counts those that ask.
    #[derive(Clone, Copy)]
    struct Asked<'a> {
        open: &'a Cell<bool>,
        times: &'a Cell<usize>,
    }

    impl Waits for Asked<'_> {
        fn claim(self) -> bool {
            self.times.set(self.times.get() + 1);
            self.open.replace(false)
        }

        fn is_open(self) -> bool {
            self.open.get()
        }

        fn wake(self) {}
    }

    /// Many wait at a channel, a part of them leaves from wherever it is, and another part was
    /// woken elsewhere: each of the rest is asked once, and nobody is looked for. So twice as
    /// many take twice as long.
    #[test]
    fn the_work_grows_with_their_number() {
        for n in [1_000, 2_000, 100_000] {
            let (times, open) = (Cell::new(0), vec![Cell::new(true); n]);
            let records: Vec<_> = open
                .iter()
                .map(|open| Record::new(Asked { open, times: &times }, ptr::null_mut()))
                .collect();
            let mut queue = Queue::new();
            // SAFETY: they outlive the queue, where they are.
            records.iter().for_each(|record| unsafe { queue.push(record) });
            (0..n).step_by(3).rev().for_each(|i| queue.remove(&records[i]));
            (1..n).step_by(3).for_each(|i| open[i].set(false));
            let rest: Vec<_> = (2..n).step_by(3).map(|i| ptr::from_ref(&records[i])).collect();
            let claimed: Vec<_> =
                std::iter::from_fn(|| queue.claim_first()).map(Claimed::into_raw).collect();
            assert_eq!(claimed, rest, "in turn");
            assert_eq!(times.get(), n - n.div_ceil(3), "each that is left, once");
            assert!(queue.is_empty() && !queue.any_open());
        }
    }
}
