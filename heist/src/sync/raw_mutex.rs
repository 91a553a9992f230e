//! Mutual exclusion without data: the protocol's word, the queue, and when to
//! spin.

use super::queue::{Locked, Wait, WaitQueue, Waited};
use super::spin::Spin;
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::clock;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::protocol::mutex::{Enqueue, MutexWord, Release};
use crate::sched::waiter::Waiter;
use std::panic::Location;

/// How long a waiter waits before the mutex is handed over in order.
const STARVES_AFTER: u64 = 1_000_000;

/// How often others may take the mutex before somebody who was woken: then they
/// queue behind it. Without that, a goroutine that locks again and again would
/// keep the woken one, which is next on the same P, from running. Queueing, unlike
/// yielding, leaves other Ps nothing that would compete for the mutex.
const BARGES: u32 = 128;

/// The lock of [`Mutex`](super::Mutex).
pub(super) struct RawMutex {
    word: MutexWord,
    /// How often the mutex was taken before somebody who was woken. For the owner.
    barges: AtomicU32,
    queue: WaitQueue,
}

/// How one who could not have the mutex at once has fared so far.
#[derive(Default)]
struct Contender {
    /// When it queued first.
    since: Option<u64>,
    /// The protocol's `WOKEN` is its own.
    woken: bool,
    /// It has waited too long.
    starving: bool,
    spin: Spin,
}

impl RawMutex {
    pub(super) const fn new() -> Self {
        RawMutex { word: MutexWord::new(), barges: AtomicU32::new(0), queue: WaitQueue::new(()) }
    }

    #[inline(always)]
    pub(super) fn lock(&self, site: &'static Location<'static>) {
        park::wait_point();
        let me = Waiter::current();
        if self.word.try_lock(me.word()).is_err() {
            self.lock_contended(me, site, Contender::default());
        } else if self.word.is_contended() {
            self.barge(me, site);
        }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        park::wait_point();
        let taken = self.try_lock_only();
        if !taken {
            park::poll_point();
        }
        taken
    }

    /// [`try_lock`](Self::try_lock) that lets nobody else run.
    #[inline]
    pub(super) fn try_lock_only(&self) -> bool {
        self.word.try_lock(Waiter::current().word()).is_ok()
    }

    /// The caller has the mutex, and has come before somebody who was woken.
    #[inline(never)]
    fn barge(&self, me: Waiter, site: &'static Location<'static>) {
        let barges = self.barges.load(Ordering::Relaxed) + 1;
        self.barges.store(barges % BARGES, Ordering::Relaxed);
        if barges < BARGES {
            return;
        }
        let mut contender = Contender { since: Some(clock::now()), ..Contender::default() };
        let queue = self.queue.lock();
        if self.word.give_way()
            && !self.sleep(me, &mut contender, queue, false, site, || self.unlock())
        {
            self.lock_contended(me, site, contender);
        }
    }

    #[inline(never)]
    fn lock_contended(
        &self,
        me: Waiter,
        site: &'static Location<'static>,
        mut contender: Contender,
    ) {
        loop {
            match self.take(me, contender.woken) {
                Ok(()) => return,
                Err(owner) if owner == me.word().get() => locked_twice(site),
                Err(owner) if contender.spin.once(owner) => continue,
                Err(_) => {}
            }
            if contender.woken {
                contender.woken = false;
                self.word.raise(true);
            }
            // Whoever was woken in vain is the first to be woken again.
            let again = contender.since.is_some();
            if !again {
                contender.since = Some(clock::now());
            }
            let queue = self.queue.lock();
            match self.word.enqueue(contender.starving) {
                Enqueue::Queued => {}
                Enqueue::Free => continue,
                Enqueue::Raise => {
                    drop(queue);
                    self.word.raise(false);
                    continue;
                }
            }
            if self.sleep(me, &mut contender, queue, again, site, || ()) {
                return;
            }
        }
    }

    /// Sleeps in the queue. Returns whether the caller was made the owner; if not,
    /// it was woken.
    #[inline(always)] // as `park::yield_now`
    fn sleep(
        &self,
        me: Waiter,
        contender: &mut Contender,
        queue: Locked<'_, (), 1>,
        first: bool,
        site: &'static Location<'static>,
        meanwhile: impl FnOnce(),
    ) -> bool {
        let since = contender.since.unwrap_or(0);
        let wait = Wait { first, tag: since, ..Wait::new(WaitReason::MutexLock, site) };
        me.note_holder(self.owner());
        if let Waited::Expired(queue) | Waited::Unwind(queue) = queue.wait(0, wait, meanwhile) {
            self.word.left(!queue.is_empty(0));
            drop(queue);
            park::unwind();
        }
        if self.word.is_owned_by(me.word()) {
            return true;
        }
        contender.woken = true;
        contender.starving = clock::now().saturating_sub(since) > STARVES_AFTER;
        contender.spin = Spin::default();
        false
    }

    /// Takes the mutex if it is free; otherwise says who has it. Looks first: a
    /// compare-and-swap that fails takes the cache line away from the owner.
    fn take(&self, me: Waiter, woken: bool) -> Result<(), usize> {
        if let Some(owner) = self.word.owner() {
            return Err(owner.get());
        }
        self.word.try_lock(me.word())?;
        if woken {
            self.barges.store(0, Ordering::Relaxed);
            self.word.woken_has_locked();
        }
        Ok(())
    }

    /// Never waits or yields: the caller may be queued somewhere.
    #[inline(always)]
    pub(super) fn unlock(&self) {
        let release = self.word.release();
        if release != Release::Done {
            self.look(release);
        }
    }

    /// A release finds that somebody waits.
    #[inline(never)]
    fn look(&self, release: Release) {
        let held = match release {
            Release::Done => return,
            Release::Wake => false,
            Release::Look => true,
            Release::NotLocked => panic!(
                "sync: unlock of unlocked mutex: a guard was dropped twice, or one that was \
                 forgotten"
            ),
        };
        let mut queue = self.queue.lock();
        if held && self.word.is_starving() {
            return self.hand_over(queue);
        }
        if held {
            self.word.free();
        }
        if !self.word.begin_wake() {
            return;
        }
        let first = queue.pop(0);
        self.word.end_wake(first.is_some(), !queue.is_empty(0));
        drop(queue);
        if let Some(first) = first {
            first.wake();
        }
    }

    #[cold]
    fn hand_over(&self, mut queue: Locked<'_, (), 1>) {
        let first = queue.pop(0);
        // As in Go, the mode ends with the last one, or with one that has not
        // waited long.
        let starving = first
            .as_ref()
            .is_some_and(|first| clock::now().saturating_sub(first.tag) > STARVES_AFTER);
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

/// Or by a goroutine before it that had the same block: nobody else can give it back either.
#[cold]
fn locked_twice(site: &'static Location<'static>) -> ! {
    panic!(
        "deadlock: the mutex that is to be locked at {site} is held by the caller itself, which \
         would wait for itself forever; drop the first guard before (or by one that ended \
         without giving it back: its guard was forgotten)"
    )
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::hint;
    use crate::{Builder, go, thread};
    use std::sync::Arc;

    /// As in Go: one that was woken after more than a millisecond, and finds that another has
    /// come before it, is handed the mutex next.
    #[test]
    fn who_has_waited_a_millisecond_in_vain_is_handed_the_mutex() {
        Builder::new().max_procs(1).build().unwrap().run(|| {
            for waits_long in [true, false] {
                let mutex = Arc::new(RawMutex::new());
                let site = Location::caller();
                mutex.lock(site);
                let its = mutex.clone();
                let waiter = go(move || {
                    its.lock(site);
                    its.unlock();
                });
                while mutex.queue.lock().is_empty(0) {
                    thread::yield_now();
                }
                let end = clock::now() + STARVES_AFTER;
                while waits_long && clock::now() <= end {
                    hint::spin_loop();
                }
                mutex.unlock();
                assert!(mutex.try_lock_only(), "the waiter is woken, and has not run yet");
                while mutex.queue.lock().is_empty(0) {
                    thread::yield_now();
                }
                // The machine may have stopped this thread for a millisecond.
                if waits_long {
                    assert!(mutex.word.is_starving());
                }
                let hands_over = mutex.word.is_starving();
                mutex.unlock();
                assert_eq!(mutex.owner().is_some(), hands_over, "the waiter owns it, or nobody");
                waiter.join().unwrap();
                assert!(!mutex.word.is_starving() && mutex.owner().is_none(), "it is over");
            }
        });
    }
}
