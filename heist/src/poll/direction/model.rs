//! Ready against wait against close against deadline, model-checked.

use super::*;
use crate::prim::bed::Bed;
use crate::prim::mutant::must_fail;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;

struct World {
    direction: Direction<usize>,
    /// What a read finds.
    data: AtomicUsize,
    /// Whether a waiter was woken, and how often.
    beds: [Bed; 2],
    wakes: [AtomicUsize; 2],
    /// How often each has gone to sleep.
    sleeps: [AtomicUsize; 2],
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            direction: Direction::new(),
            data: AtomicUsize::new(0),
            beds: [Bed::new(), Bed::new()],
            wakes: [AtomicUsize::new(0), AtomicUsize::new(0)],
            sleeps: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn wake(&self, woken: Woken<usize>) {
        woken.each(|who| {
            self.wakes[who].fetch_add(1, Ordering::Relaxed);
            self.beds[who].wake();
        });
    }

    /// Reads what there is, or waits: as `sched::netpoll` does. `None` if the
    /// deadline has passed or it was closed.
    fn read(&self, who: usize) -> Option<()> {
        loop {
            let seen = match self.direction.begin() {
                Begin::Expired | Begin::Closed => return None,
                Begin::Wait(seen) => seen,
                Begin::Try(seen) => {
                    // Relaxed: a socket promises nothing more.
                    let took = |n: usize| n.checked_sub(1);
                    let data = &self.data;
                    if data.fetch_update(Ordering::Relaxed, Ordering::Relaxed, took).is_ok() {
                        return Some(());
                    }
                    seen
                }
            };
            if self.direction.wait(seen, who) == Wait::Sleep {
                self.sleeps[who].fetch_add(1, Ordering::Relaxed);
                self.beds[who].sleep();
            }
        }
    }

    /// Reads all that there is, which is less than there is room for, or waits.
    fn drain(&self, who: usize) -> usize {
        loop {
            let seen = match self.direction.begin() {
                Begin::Expired | Begin::Closed => return 0,
                Begin::Wait(seen) => seen,
                Begin::Try(seen) => {
                    let all = self.data.swap(0, Ordering::Relaxed);
                    if all > 0 {
                        self.direction.note_drained(seen);
                        return all;
                    }
                    seen
                }
            };
            if self.direction.wait(seen, who) == Wait::Sleep {
                self.beds[who].sleep();
            }
        }
    }

    /// The kernel: data, then the event.
    fn deliver(&self, n: usize) {
        self.data.fetch_add(n, Ordering::Relaxed);
        self.wake(self.direction.ready(false));
    }
}

/// Spinning at a lock that is held makes for endless histories; this many
/// preemptions are enough to see a broken protocol fail.
fn explore(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A reader sleeps only if it will be woken.
fn event_model() {
    let world = World::new();
    let kernel = {
        let world = world.clone();
        loom::thread::spawn(move || {
            world.deliver(1);
            world.beds[0].abandon();
        })
    };
    assert_eq!(world.read(0), Some(()));
    kernel.join().unwrap();
    assert!(!world.direction.has_waiters());
}

#[test]
fn ready_against_wait() {
    explore(3, event_model);
}

#[test]
fn an_event_that_is_ignored_is_missed() {
    must_fail(Mutant::IgnoreEvent, event_model);
}

/// Two readers, one event for two messages: both go on.
#[test]
fn one_event_for_two_who_wait() {
    explore(2, || {
        let world = World::new();
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.read(1))
        };
        world.deliver(2);
        assert_eq!(world.read(0), Some(()));
        assert_eq!(other.join().unwrap(), Some(()));
        assert!(!world.direction.has_waiters());
    });
}

/// An event, a close and a reader: it goes on, with or without data, and is
/// woken at most once for each wait.
fn close_model() {
    let world = World::new();
    let kernel = {
        let world = world.clone();
        loom::thread::spawn(move || world.deliver(1))
    };
    let closer = {
        let world = world.clone();
        loom::thread::spawn(move || world.wake(world.direction.close()))
    };
    let _ = world.read(0);
    kernel.join().unwrap();
    closer.join().unwrap();
    assert!(!world.direction.has_waiters());
    assert!(matches!(world.direction.begin(), Begin::Closed));
}

#[test]
fn ready_against_close_against_wait() {
    explore(2, close_model);
}

#[test]
fn a_close_that_leaves_no_trace_is_noticed() {
    must_fail(Mutant::ForgetClosed, close_model);
}

/// A deadline that comes while another sets a new one: the old one does nothing
/// to a reader that waits for the new one, which data ends.
fn two_deadlines_model() {
    let world = World::new();
    let (old, _) = world.direction.set_deadline(false);
    let (_, woken) = world.direction.set_deadline(false);
    world.wake(woken);
    let clock = {
        let world = world.clone();
        loom::thread::spawn(move || world.wake(world.direction.expire(old)))
    };
    let kernel = {
        let world = world.clone();
        loom::thread::spawn(move || world.deliver(1))
    };
    assert_eq!(world.read(0), Some(()));
    clock.join().unwrap();
    kernel.join().unwrap();
}

#[test]
fn an_old_deadline_against_a_new_one_against_wait() {
    explore(2, two_deadlines_model);
}

#[test]
fn an_old_deadline_that_still_counts_is_noticed() {
    must_fail(Mutant::AnyDeadline, two_deadlines_model);
}

/// The deadline ends a wait that nothing else does.
#[test]
fn deadline_against_wait() {
    explore(3, || {
        let world = World::new();
        let (number, _) = world.direction.set_deadline(false);
        let clock = {
            let world = world.clone();
            loom::thread::spawn(move || world.wake(world.direction.expire(number)))
        };
        assert_eq!(world.read(0), None);
        clock.join().unwrap();
        assert!(!world.direction.has_waiters());
    });
}

/// All at once: an event, a close, the deadline and one who reads. It goes on, with
/// the data or without, which is still there then; each of its waits was ended once;
/// and from then on it is closed. (One thread is the event's and the deadline's, as a
/// P looks at both: of four there are too many histories.)
fn all_at_once_model(event_first: bool) {
    let world = World::new();
    let (number, _) = world.direction.set_deadline(false);
    let looker = {
        let world = world.clone();
        loom::thread::spawn(move || {
            if event_first {
                world.deliver(1);
            }
            world.wake(world.direction.expire(number));
            if !event_first {
                world.deliver(1);
            }
        })
    };
    let closer = {
        let world = world.clone();
        loom::thread::spawn(move || world.wake(world.direction.close()))
    };
    let read = world.read(0);
    looker.join().unwrap();
    closer.join().unwrap();
    assert!(!world.direction.has_waiters());
    assert!(matches!(world.direction.begin(), Begin::Closed));
    assert_eq!(world.data.load(Ordering::Relaxed), usize::from(read.is_none()));
    let [sleeps, wakes] = [&world.sleeps[0], &world.wakes[0]];
    assert_eq!(sleeps.load(Ordering::Relaxed), wakes.load(Ordering::Relaxed));
}

#[test]
fn ready_against_wait_against_close_against_deadline() {
    explore(2, || all_at_once_model(true));
    explore(2, || all_at_once_model(false));
}

#[test]
fn a_deadline_that_leaves_somebody_in_the_list_is_noticed() {
    must_fail(Mutant::ExpireListed, || all_at_once_model(false));
    must_fail(Mutant::ForgetClosed, || all_at_once_model(true));
}

/// One who gives up while the event comes: it is woken or out of the list, and
/// the other one, who stays, is woken.
#[test]
fn giving_up_against_ready() {
    explore(3, || {
        let world = World::new();
        for who in 0..2 {
            let Begin::Try(seen) = world.direction.begin() else { unreachable!() };
            assert_eq!(world.direction.wait(seen, who), Wait::Sleep);
        }
        let kernel = {
            let world = world.clone();
            loom::thread::spawn(move || world.deliver(1))
        };
        world.direction.leave(0);
        world.beds[1].sleep();
        kernel.join().unwrap();
        assert_eq!(world.wakes[1].load(Ordering::Relaxed), 1);
        assert!(world.wakes[0].load(Ordering::Relaxed) <= 1);
        assert!(!world.direction.has_waiters());
    });
}

/// A late event of the descriptor before does not keep a wait from its own.
#[test]
fn a_late_event_against_reuse() {
    explore(3, || {
        let world = World::new();
        let kernel = {
            let world = world.clone();
            // Late, for the descriptor before; then its own.
            loom::thread::spawn(move || {
                world.wake(world.direction.ready(true));
                world.deliver(1);
            })
        };
        world.direction.reset();
        assert_eq!(world.read(0), Some(()));
        kernel.join().unwrap();
    });
}

/// Two messages, each with its event, for one who reads all that there is and does
/// not try again until there is an event.
fn short_model() {
    let world = World::new();
    let kernel = {
        let world = world.clone();
        loom::thread::spawn(move || {
            world.deliver(1);
            world.deliver(1);
            world.beds[0].abandon();
        })
    };
    let mut read = 0;
    while read < 2 {
        read += world.drain(0);
    }
    kernel.join().unwrap();
    assert!(!world.direction.has_waiters());
}

#[test]
fn short_reads_against_events() {
    explore(3, short_model);
}

#[test]
fn a_short_read_of_a_later_event_is_noticed() {
    must_fail(Mutant::DrainedLater, short_model);
}
