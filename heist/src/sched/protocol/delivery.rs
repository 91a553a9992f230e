//! A P on its way to an M: how a thread that waits without one gets one.
//!
//! The M sleeps on its note. Whoever has a P for it puts that here first and wakes it
//! then; the M looks here before it sleeps and whenever it wakes up, and sleeps again
//! if there is none. So a wake-up that brings no P (the runtime closes, say, or it was
//! meant for the sleep before) does no harm, and one that does is not lost: a note
//! keeps a signal that comes before the sleep.
//!
//! A goroutine that is locked to its thread, or cannot leave it, gets its P this way
//! (`exec::hand_over`), and so does an idle M (`wake::start_m`).

use crate::prim::atomic::{AtomicPtr, Ordering};
use crate::prim::mutant::{Mutant, is};
use std::ptr;

/// Where an M finds the P that it was woken with. One at a time is on its way.
#[derive(Debug)]
pub(crate) struct Delivery<P> {
    word: AtomicPtr<P>,
}

impl<P> Delivery<P> {
    pub(crate) fn new() -> Self {
        Delivery { word: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Puts a P there; the caller wakes the M afterwards, or starts it.
    pub(crate) fn put(&self, p: *const P) {
        // Release: pairs with the acquire in `arrived`; the M sees all that was done
        // with the P.
        let order = if is(Mutant::PutUnordered) { Ordering::Relaxed } else { Ordering::Release };
        self.word.store(p.cast_mut(), order);
    }

    /// Puts a P there and wakes the M.
    pub(crate) fn hand_over(&self, p: *const P, wake: impl FnOnce()) {
        if is(Mutant::WakeEmptyHanded) {
            wake();
            return self.put(p);
        }
        self.put(p);
        wake();
    }

    /// The P that has come, or null. It stays there until [`taken`](Self::taken).
    #[inline(always)]
    pub(crate) fn arrived(&self) -> *mut P {
        self.word.load(Ordering::Acquire)
    }

    /// The M has what was there.
    #[inline(always)]
    pub(crate) fn taken(&self) {
        // Release: whoever sees that none is on its way sees the M with its P.
        self.word.store(ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::atomic::AtomicU32;
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use crate::prim::mutant::must_fail;
    use crate::sched::protocol::g_state::{GState, Park, Ready, Status};
    use loom::sync::Arc;

    /// A P, and what belongs to it.
    type Steps = Plain<u32>;

    struct World {
        g: GState,
        /// Which thread the goroutine cannot leave.
        pinned: Plain<u32>,
        delivery: Delivery<Steps>,
        note: Bed,
        /// That of the goroutine's M, and the waker's.
        ps: [Steps; 2],
        /// The first of them is idle.
        idle: AtomicU32,
    }

    const THREAD: u32 = 7;

    impl World {
        fn step(&self, p: usize) {
            self.ps[p].set(self.ps[p].get() + 1);
        }
    }

    /// The goroutine waits with its thread (`in_place`): its M gives its P up, sleeps,
    /// and goes on with the one that it gets.
    fn wait_with_thread(world: &World) -> usize {
        world.pinned.set(THREAD);
        if world.g.park() == Park::Notified {
            world.g.become_(Status::Running);
            return 0;
        }
        world.idle.store(1, Ordering::Release);
        loop {
            let p = world.delivery.arrived();
            if let Some(p) = world.ps.iter().position(|other| ptr::eq(other, p)) {
                world.delivery.taken();
                world.g.become_(Status::Running);
                return p;
            }
            world.note.sleep();
        }
    }

    /// An M with a P makes the goroutine ready, finds it in its queue and hands that P
    /// over, while a third thread wakes the one that waits for nothing, and uses the
    /// idle P.
    fn hand_over_model() {
        let world = Arc::new(World {
            g: GState::new(),
            pinned: Plain::new(0),
            delivery: Delivery::new(),
            note: Bed::new(),
            ps: [Plain::new(0), Plain::new(0)],
            idle: AtomicU32::new(0),
        });
        world.g.become_(Status::Runnable);
        world.g.become_(Status::Running);
        let waker = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.step(1);
                match world.g.ready() {
                    Ready::Enqueue => {
                        assert_eq!(world.pinned.get(), THREAD);
                        world.delivery.hand_over(&world.ps[1], || world.note.wake());
                        world.note.abandon();
                        true
                    }
                    Ready::Deferred => {
                        world.step(1);
                        false
                    }
                }
            })
        };
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.note.wake();
                let idle = world.idle.swap(0, Ordering::Acquire) == 1;
                if idle {
                    world.step(0);
                }
                u32::from(idle)
            })
        };
        world.step(0);
        let p = wait_with_thread(&world);
        world.step(p);
        let (handed, used) = (waker.join().unwrap(), other.join().unwrap());
        assert_eq!(handed, p == 1, "it goes on with the P that it was given");
        let [own, given] = [&world.ps[0], &world.ps[1]].map(Plain::get);
        assert_eq!((own, given), if handed { (1 + used, 2) } else { (2, 2) });
        assert!(world.delivery.arrived().is_null());
    }

    #[test]
    fn a_hand_over_against_a_wait_with_the_thread() {
        let mut bounded = loom::model::Builder::new();
        bounded.preemption_bound = Some(3);
        bounded.check(hand_over_model);
    }

    #[test]
    fn mistakes_are_seen() {
        must_fail(Mutant::WakeEmptyHanded, hand_over_model);
        must_fail(Mutant::PutUnordered, hand_over_model);
    }
}
