//! Shared and exclusive access without data: the protocol's word and the queue.

use super::queue::{Locked, Wait, WaitQueue, Waited};
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::protocol::rwlock::{Kind, Leave, Next, RwLockWord};
use std::panic::Location;

/// The lists of the queue.
const READERS: usize = 0;
const WRITERS: usize = 1;

/// The lock of [`RwLock`](super::RwLock).
pub(super) struct RawRwLock {
    word: RwLockWord,
    queue: WaitQueue<(), 2>,
}

impl RawRwLock {
    pub(super) const fn new() -> Self {
        RawRwLock { word: RwLockWord::new(), queue: WaitQueue::new(()) }
    }

    #[inline]
    pub(super) fn read(&self, site: &'static Location<'static>) {
        park::wait_point();
        if !self.word.try_enter(Kind::Reader) {
            self.enter(Kind::Reader, READERS, Wait::new(WaitReason::RwLockRead, site));
        }
    }

    #[inline]
    pub(super) fn write(&self, site: &'static Location<'static>) {
        park::wait_point();
        if !self.word.try_enter(Kind::Writer) {
            self.enter(Kind::Writer, WRITERS, Wait::new(WaitReason::RwLockWrite, site));
        }
    }

    #[inline]
    pub(super) fn try_enter(&self, kind: Kind) -> bool {
        park::wait_point();
        let entered = self.try_enter_only(kind);
        if !entered {
            park::poll_point();
        }
        entered
    }

    /// [`try_enter`](Self::try_enter) that lets nobody else run.
    #[inline]
    pub(super) fn try_enter_only(&self, kind: Kind) -> bool {
        self.word.try_enter(kind)
    }

    #[inline(never)]
    fn enter(&self, kind: Kind, list: usize, wait: Wait) {
        let queue = self.queue.lock();
        if self.word.enter_or_enqueue(kind) {
            return;
        }
        if let Waited::Expired(queue) | Waited::Unwind(queue) = queue.wait(list, wait, || ()) {
            self.leave_queue(queue);
            park::unwind();
        }
        self.word.entered();
    }

    #[cold]
    fn leave_queue(&self, mut queue: Locked<'_, (), 2>) {
        if self.word.left(!queue.is_empty(READERS), !queue.is_empty(WRITERS)) {
            let readers = queue.pop_all(READERS);
            self.word.admit(readers.len());
            drop(queue);
            drop(readers);
        }
    }

    #[inline]
    pub(super) fn leave_read(&self) {
        match self.word.leave_read() {
            Leave::Done => {}
            Leave::HandOver => self.hand_over(WRITERS),
            Leave::NotHeld => self.not_held(),
        }
    }

    #[inline]
    pub(super) fn leave_write(&self) {
        match self.word.leave_write() {
            Leave::Done => {}
            Leave::HandOver => self.hand_over(READERS),
            Leave::NotHeld => self.not_held(),
        }
    }

    /// The last holder has left, and somebody is queued. `preferred` were kept
    /// out by those who held it.
    #[cold]
    fn hand_over(&self, preferred: usize) {
        let mut queue = self.queue.lock();
        if !self.word.is_orphaned() {
            return; // those who were queued went away, and others came, or come
        }
        let first_writer = if preferred == WRITERS { queue.pop(WRITERS) } else { None };
        if first_writer.is_none() {
            let readers = queue.pop_all(READERS);
            if readers.len() > 0 {
                let next = Next::Readers(readers.len());
                self.word.hand_over(next, false, !queue.is_empty(WRITERS));
                drop(queue);
                drop(readers);
                return;
            }
        }
        let writer = first_writer.or_else(|| queue.pop(WRITERS));
        let next = if writer.is_some() { Next::Writer } else { Next::Nobody };
        self.word.hand_over(next, !queue.is_empty(READERS), !queue.is_empty(WRITERS));
        drop(queue);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The writer lets readers in, and is one of them.
    pub(super) fn downgrade(&self) {
        if self.word.try_downgrade() {
            return;
        }
        let mut queue = self.queue.lock();
        let readers = queue.pop_all(READERS);
        self.word.downgrade(readers.len(), !queue.is_empty(WRITERS));
        drop(queue);
        drop(readers);
    }

    /// Whoever came in that moment may have queued for nobody.
    #[cold]
    fn not_held(&self) -> ! {
        self.hand_over(WRITERS);
        panic!("sync: unlock of unlocked rwlock: a guard was dropped twice")
    }
}
