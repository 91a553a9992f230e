//! Whether anybody waits for a condition.
//!
//! Those who wait are in a list under a lock. A notification that finds nobody, and most
//! do, should not take it: it reads one flag, which whoever joins the list sets before it
//! releases the mutex that it waits with.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::mutant::{self, Mutant};

/// What a notification does.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Notify {
    /// Nothing: nobody waits.
    Nobody,
    /// Look into the list.
    Look,
}

/// The flag. It changes with the lock of the list.
pub(crate) struct CondvarWord {
    occupied: AtomicBool,
}

impl CondvarWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        CondvarWord { occupied: AtomicBool::new(false) }
    }

    #[cfg(all(test, loom))]
    fn new() -> Self {
        CondvarWord { occupied: AtomicBool::new(false) }
    }

    /// The caller joins the list, and has not released its mutex yet.
    #[inline]
    pub(crate) fn joined(&self) {
        if !mutant::is(Mutant::WaitUnseen) {
            // Relaxed: whoever notifies after this wait has learned of it somehow, by the
            // mutex as a rule, and what orders the two orders this store and the load in
            // `notify`.
            self.occupied.store(true, Ordering::Relaxed);
        }
    }

    /// Somebody has left the list, or was taken out of it; `others` are still there.
    #[inline]
    pub(crate) fn left(&self, others: bool) {
        let others = others && !mutant::is(Mutant::LeaveAlone);
        // Relaxed: after the stores of those who are there, by the lock of the list.
        self.occupied.store(others, Ordering::Relaxed);
    }

    /// Somebody notifies.
    #[inline]
    pub(crate) fn notify(&self) -> Notify {
        // Relaxed: see `joined`.
        if self.occupied.load(Ordering::Relaxed) { Notify::Look } else { Notify::Nobody }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::turn::{End, Number, TurnWord};
    use super::*;
    use crate::prim::atomic::AtomicU64;
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use crate::prim::mutant::must_fail;
    use loom::sync::{Arc, Mutex, MutexGuard};
    use std::collections::VecDeque;

    /// A condition variable, and the mutex and what is waited for.
    struct World {
        word: CondvarWord,
        list: Mutex<VecDeque<(usize, Number)>>,
        turns: [AtomicU64; 2],
        beds: [Bed; 2],
        mutex: Mutex<()>,
        ready: Plain<u32>,
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                word: CondvarWord::new(),
                list: Mutex::new(VecDeque::new()),
                turns: [0, 1].map(|_| AtomicU64::new(0)),
                beds: [0, 1].map(|_| Bed::new()),
                mutex: Mutex::new(()),
                ready: Plain::new(0),
            })
        }

        /// `Condvar::wait_until`; returns whether the clock has ended it.
        fn wait<'a>(
            &'a self,
            me: usize,
            number: Number,
            guard: MutexGuard<'a, ()>,
        ) -> (MutexGuard<'a, ()>, bool) {
            let mut list = self.list.lock().unwrap();
            self.word.joined();
            list.push_back((me, number));
            drop(list);
            drop(guard);
            self.beds[me].sleep();
            let expired = TurnWord(&self.turns[me]).end_of(number) == End::Expired;
            if expired {
                let mut list = self.list.lock().unwrap();
                list.retain(|(other, _)| *other != me);
                self.word.left(!list.is_empty());
            }
            (self.mutex.lock().unwrap(), expired)
        }

        /// `Condvar::notify_one`.
        fn notify_one(&self) {
            if self.word.notify() == Notify::Nobody {
                return;
            }
            let mut list = self.list.lock().unwrap();
            let first = std::iter::from_fn(|| list.pop_front())
                .find(|(who, number)| TurnWord(&self.turns[*who]).claim(*number));
            self.word.left(!list.is_empty());
            drop(list);
            if let Some((who, _)) = first {
                self.beds[who].wake();
            }
        }

        /// Makes one of what is waited for, as is usual: the mutex is released before
        /// the notification.
        fn make_one(&self) {
            let guard = self.mutex.lock().unwrap();
            self.ready.set(self.ready.get() + 1);
            drop(guard);
            self.notify_one();
        }

        /// Waits for one, and takes it. False if the clock came first.
        fn take_one(&self, me: usize, number: Option<Number>) -> bool {
            let mut guard = self.mutex.lock().unwrap();
            while self.ready.get() == 0 {
                let number = number.unwrap_or_else(|| TurnWord(&self.turns[me]).begin());
                let (again, expired) = self.wait(me, number, guard);
                guard = again;
                if expired {
                    break;
                }
            }
            let taken = self.ready.get() != 0;
            if taken {
                self.ready.set(self.ready.get() - 1);
            }
            drop(guard);
            taken
        }
    }

    fn explore(model: impl Fn() + Send + Sync + 'static) {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(3);
        bounded.check(model);
    }

    /// One who waits, and one who makes what it waits for: no notification is lost.
    fn wait_and_notify() {
        let world = World::new();
        let waiter = {
            let world = world.clone();
            loom::thread::spawn(move || assert!(world.take_one(0, None)))
        };
        world.make_one();
        world.beds[0].abandon();
        waiter.join().unwrap();
        assert_eq!(world.word.notify(), Notify::Nobody);
    }

    /// Two wait, the first until the clock ends it: what is made goes to one of them, and
    /// the second does not suffer from the first one's leaving.
    fn wait_and_leave() {
        let world = World::new();
        let number = TurnWord(&world.turns[0]).begin();
        let first = {
            let world = world.clone();
            loom::thread::spawn(move || world.take_one(0, Some(number)))
        };
        let second = {
            let world = world.clone();
            loom::thread::spawn(move || assert!(world.take_one(1, None)))
        };
        if TurnWord(&world.turns[0]).expire(number) {
            world.beds[0].wake();
        }
        world.make_one();
        if first.join().unwrap() {
            // It was the first one's.
            world.make_one();
        }
        world.beds[1].abandon();
        second.join().unwrap();
        assert_eq!(world.word.notify(), Notify::Nobody);
    }

    #[test]
    fn a_wait_against_a_notification() {
        explore(wait_and_notify);
    }

    #[test]
    fn a_wait_that_ends_against_another_and_a_notification() {
        explore(wait_and_leave);
    }

    #[test]
    fn mistakes_are_seen() {
        must_fail(Mutant::WaitUnseen, wait_and_notify);
        must_fail(Mutant::LeaveAlone, wait_and_leave);
    }
}
