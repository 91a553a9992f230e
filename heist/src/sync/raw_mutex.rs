//! Mutual exclusion without data: the protocol's word, the queue, and when to
//! spin.

use super::queue::{Wait, WaitQueue, Waited};
use super::spin::Spin;
use crate::prim::clock;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::protocol::mutex::{Attempt, MutexWord, Release};
use crate::sched::waiter::Waiter;
use std::panic::Location;

/// How long a waiter waits before the mutex is handed over in order.
const STARVES_AFTER: u64 = 1_000_000;

/// The lock of [`Mutex`](super::Mutex).
pub(super) struct RawMutex {
    word: MutexWord,
    queue: WaitQueue,
}

impl RawMutex {
    pub(super) const fn new() -> Self {
        RawMutex { word: MutexWord::new(), queue: WaitQueue::new(()) }
    }

    #[inline(always)]
    pub(super) fn lock(&self, site: &'static Location<'static>) {
        let me = Waiter::current();
        if !self.word.lock_fast(me.word()) {
            self.lock_contended(me, site);
        }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let me = Waiter::current().word();
        if self.word.lock_fast(me) || self.word.attempt(me, false) == Attempt::Locked {
            return true;
        }
        park::poll_point();
        false
    }

    #[inline(never)]
    fn lock_contended(&self, me: Waiter, site: &'static Location<'static>) {
        let mut spin = Spin::new();
        // Since when it waits, and whether it was woken since: then `WOKEN` of
        // the protocol is its own, as it is while it spins.
        let (mut since, mut woken, mut starving) = (None, false, false);
        let mut again = false;
        loop {
            match self.word.attempt(me.word(), woken) {
                Attempt::Locked => return,
                Attempt::Held { owner, .. } if owner == me.word().get() => locked_twice(site),
                Attempt::Held { owner, starving: false } if spin.once(owner) => {
                    woken = woken || self.word.stay_awake();
                    continue;
                }
                Attempt::Held { .. } => {}
            }
            let since = *since.get_or_insert_with(clock::now);
            let queue = self.queue.lock();
            if !self.word.enqueue(woken, starving) {
                continue;
            }
            // Whoever was woken in vain is the first to be woken again.
            let wait = Wait { first: again, tag: since, ..Wait::new(WaitReason::MutexLock, site) };
            if let Waited::Expired(queue) | Waited::Unwind(queue) = queue.wait(0, wait, || ()) {
                self.word.left(!queue.is_empty(0));
                drop(queue);
                park::unwind();
            }
            if self.word.is_owned_by(me.word()) {
                return;
            }
            (woken, again) = (true, true);
            starving = starving || clock::now().saturating_sub(since) > STARVES_AFTER;
            spin = Spin::new();
        }
    }

    #[inline(always)]
    pub(super) fn unlock(&self) {
        // Whoever releases it again and again lets those run who want it.
        if !self.word.unlock_fast() && self.unlock_contended() {
            park::poll_point();
        }
    }

    /// Releases it by a caller that is queued somewhere, and may be woken already:
    /// it cannot yield.
    pub(super) fn unlock_queued(&self) {
        if !self.word.unlock_fast() {
            self.unlock_contended();
        }
    }

    /// Returns whether somebody wants it who is awake.
    #[inline(never)]
    fn unlock_contended(&self) -> bool {
        match self.word.release() {
            Release::Done => {}
            Release::Contended => return true,
            Release::Wake => self.wake_first(),
            Release::HandOver => self.hand_over(),
            Release::NotLocked => panic!(
                "sync: unlock of unlocked mutex: a guard was dropped twice, or one that was \
                 forgotten"
            ),
        }
        false
    }

    #[cold]
    fn wake_first(&self) {
        let mut queue = self.queue.lock();
        let first = queue.pop(0);
        self.word.popped(first.is_some(), !queue.is_empty(0));
        drop(queue);
        if let Some(first) = first {
            first.wake();
        }
    }

    #[cold]
    fn hand_over(&self) {
        let now = clock::now();
        let mut queue = self.queue.lock();
        let first = queue.pop(0);
        // As in Go, the mode ends with the last one, or with one that has not
        // waited long.
        let starving = first.as_ref().is_some_and(|f| now.saturating_sub(f.tag) > STARVES_AFTER);
        let owner = first.as_ref().map(|first| first.turn.waiter().word());
        self.word.hand_over(owner, !queue.is_empty(0), starving);
        drop(queue);
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Who holds it, as of some recent moment.
    pub(super) fn owner(&self) -> Option<Waiter> {
        self.word.owner().map(Waiter::from_word)
    }
}

#[cold]
fn locked_twice(site: &'static Location<'static>) -> ! {
    panic!(
        "deadlock: the mutex that is to be locked at {site} is held by the caller itself, which \
         would wait for itself forever; drop the first guard before"
    )
}
