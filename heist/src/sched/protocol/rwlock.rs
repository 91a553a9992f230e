//! The word of a reader-writer lock.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 `WRITER` | a writer holds it |
//! | 1 `READERS_QUEUED` | readers are queued |
//! | 2 `WRITERS_QUEUED` | writers are queued |
//! | 3–63 | how many readers hold it |
//!
//! The bits of the queues change only with the queue's lock held. While one is
//! set nobody enters by itself: whoever leaves last hands the lock over, to all
//! readers that a writer kept out, or to the writer that waits for the last
//! reader, so that neither kind starves the other.
//!
//! Between the step in which the last holder leaves and the one in which it hands
//! over, the lock has no holder and cannot be entered. Whoever queues meanwhile is
//! found by the one who hands over, which needs the queue's lock for that. If all
//! who were queued go away first, the lock is free, and the one who wanted to hand
//! it over finds that out ([`is_orphaned`](RwLockWord::is_orphaned)).

use crate::prim::atomic::{AtomicUsize, Ordering};

const WRITER: usize = 1 << 0;
const READERS_QUEUED: usize = 1 << 1;
const WRITERS_QUEUED: usize = 1 << 2;
const QUEUED: usize = READERS_QUEUED | WRITERS_QUEUED;
const READER: usize = 1 << 3;
const HELD: usize = !QUEUED;

/// Who wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One of many.
    Reader,
    /// Alone.
    Writer,
}

/// Who gets the lock when it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nobody: it is free.
    Nobody,
    /// So many readers, besides those that hold it already.
    Readers(usize),
    /// One writer.
    Writer,
}

/// What one who has left must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Leave {
    Done,
    /// It was the last, and somebody is queued.
    HandOver,
    /// It had not entered: nothing has changed, but for a moment.
    NotHeld,
}

/// The word.
#[derive(Debug)]
pub(crate) struct RwLockWord {
    word: AtomicUsize,
}

impl RwLockWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        RwLockWord { word: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        RwLockWord { word: AtomicUsize::new(0) }
    }

    /// Enters if that is possible at once.
    #[inline]
    pub(crate) fn try_enter(&self, kind: Kind) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (blocked, entered) = match kind {
                Kind::Reader => (word & (WRITER | QUEUED) != 0, word.wrapping_add(READER)),
                Kind::Writer => (word != 0, WRITER),
            };
            if blocked {
                return false;
            }
            // Acquire: pairs with the releases of those who left.
            match self.word.compare_exchange_weak(
                word,
                entered,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// With the queue's lock: enters, or says that it queues. Returns whether it
    /// has entered.
    pub(crate) fn enter_or_enqueue(&self, kind: Kind) -> bool {
        let bit = match kind {
            Kind::Reader => READERS_QUEUED,
            Kind::Writer => WRITERS_QUEUED,
        };
        loop {
            if self.try_enter(kind) {
                return true;
            }
            let word = self.word.load(Ordering::Relaxed);
            // Queueing is right only while there is something to wait for.
            let waits = word & QUEUED != 0
                || match kind {
                    Kind::Reader => word & WRITER != 0,
                    Kind::Writer => word & HELD != 0,
                };
            // Relaxed: the queue's lock orders what the one who hands over reads.
            if waits
                && self
                    .word
                    .compare_exchange(word, word | bit, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                return false;
            }
        }
    }

    /// A reader leaves.
    #[inline]
    pub(crate) fn leave_read(&self) -> Leave {
        // Release: pairs with the acquire of the next writer.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        let word = before.wrapping_sub(READER);
        if before < READER {
            self.word.fetch_add(READER, Ordering::Relaxed);
            return Leave::NotHeld;
        }
        if word & HELD == 0 && word & QUEUED != 0 { Leave::HandOver } else { Leave::Done }
    }

    /// The writer leaves.
    #[inline]
    pub(crate) fn leave_write(&self) -> Leave {
        // Release: pairs with the acquire of whoever enters next.
        let before = self.word.fetch_sub(WRITER, Ordering::Release);
        if before & WRITER == 0 {
            self.word.fetch_add(WRITER, Ordering::Relaxed);
            return Leave::NotHeld;
        }
        if before & QUEUED != 0 { Leave::HandOver } else { Leave::Done }
    }

    /// The writer becomes a reader, if nobody is queued.
    pub(crate) fn try_downgrade(&self) -> bool {
        // Release: readers see what was written.
        self.word.compare_exchange(WRITER, READER, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// With the queue's lock: the writer becomes a reader, together with so many
    /// others from the queue.
    pub(crate) fn downgrade(&self, others: usize, writers_queued: bool) {
        let queued = if writers_queued { WRITERS_QUEUED } else { 0 };
        // A writer holds it and the queue cannot change: nobody else writes.
        self.word.store(((1 + others) * READER) | queued, Ordering::Release);
    }

    /// With the queue's lock: whether nobody holds it and somebody is queued. Then
    /// nobody enters by itself, and the caller hands it over. Otherwise there is
    /// nothing to hand over, and others may be entering: the word is theirs.
    pub(crate) fn is_orphaned(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & HELD == 0 && word & QUEUED != 0
    }

    /// With the queue's lock, while nobody holds it and somebody was queued: who
    /// gets it, and who is queued still.
    pub(crate) fn hand_over(&self, next: Next, readers_queued: bool, writers_queued: bool) {
        let held = match next {
            Next::Nobody => 0,
            Next::Readers(n) => n * READER,
            Next::Writer => WRITER,
        };
        // AcqRel: what the last holders wrote, whom this thread saw leave, goes
        // on to the next ones, who are woken after this.
        self.word.swap(held | Self::queued(readers_queued, writers_queued), Ordering::AcqRel);
    }

    /// With the queue's lock: somebody has left the queue and was not woken.
    /// Returns whether the readers in it may enter now, since the last writer
    /// that kept them out is gone: then [`admit`](Self::admit) them.
    #[must_use]
    pub(crate) fn left(&self, readers_queued: bool, writers_queued: bool) -> bool {
        let queued = Self::queued(readers_queued, writers_queued);
        let before = self.word.fetch_and(HELD | queued, Ordering::Relaxed);
        before & WRITER == 0 && readers_queued && !writers_queued
    }

    /// With the queue's lock: so many readers, all that were queued, enter
    /// beside those who hold it.
    pub(crate) fn admit(&self, readers: usize) {
        // Acquire and release as in `hand_over`.
        self.word.fetch_add((readers * READER).wrapping_sub(READERS_QUEUED), Ordering::AcqRel);
    }

    /// The caller was woken, and the lock has been handed to it.
    pub(crate) fn entered(&self) {
        // Acquire: pairs with the release of the one who handed it over, who has
        // seen all others leave.
        let word = self.word.load(Ordering::Acquire);
        debug_assert_ne!(word & HELD, 0);
    }

    fn queued(readers: bool, writers: bool) -> usize {
        (if readers { READERS_QUEUED } else { 0 }) | if writers { WRITERS_QUEUED } else { 0 }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::bed::Bed;
    use crate::prim::cell::Plain;
    use loom::sync::{Arc, Mutex};

    struct World {
        word: RwLockWord,
        /// Readers and writers.
        queue: Mutex<[Vec<usize>; 2]>,
        beds: Vec<Bed>,
        data: Plain<u32>,
    }

    impl World {
        fn new(threads: usize) -> Arc<World> {
            Arc::new(World {
                word: RwLockWord::new(),
                queue: Mutex::new([Vec::new(), Vec::new()]),
                beds: (0..threads).map(|_| Bed::new()).collect(),
                data: Plain::new(0),
            })
        }

        fn enter(&self, kind: Kind, me: usize) {
            if self.word.try_enter(kind) {
                return;
            }
            let mut queue = self.queue.lock().unwrap();
            if self.word.enter_or_enqueue(kind) {
                return;
            }
            queue[kind as usize].push(me);
            drop(queue);
            self.beds[me].sleep();
            self.word.entered();
        }

        /// `RawRwLock::hand_over`.
        fn hand_over(&self, writers_first: bool) {
            let mut queue = self.queue.lock().unwrap();
            if !self.word.is_orphaned() {
                return;
            }
            let woken = if queue[0].is_empty() || (writers_first && !queue[1].is_empty()) {
                let writer = (!queue[1].is_empty()).then(|| queue[1].remove(0));
                let next = if writer.is_some() { Next::Writer } else { Next::Nobody };
                self.word.hand_over(next, !queue[0].is_empty(), !queue[1].is_empty());
                writer.into_iter().collect()
            } else {
                let readers = std::mem::take(&mut queue[0]);
                self.word.hand_over(Next::Readers(readers.len()), false, !queue[1].is_empty());
                readers
            };
            drop(queue);
            woken.into_iter().for_each(|one| self.beds[one].wake());
        }

        fn read(&self, me: usize) {
            self.enter(Kind::Reader, me);
            self.data.get();
            if self.word.leave_read() == Leave::HandOver {
                self.hand_over(true);
            }
        }

        fn write(&self, me: usize) {
            self.enter(Kind::Writer, me);
            self.data.set(self.data.get() + 1);
            if self.word.leave_write() == Leave::HandOver {
                self.hand_over(false);
            }
        }
    }

    /// Whoever has an even number reads, the others write.
    fn contend(threads: usize, rounds: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let world = World::new(threads);
            let run = move |world: &World, me: usize| {
                (0..rounds)
                    .for_each(|_| if me % 2 == 0 { world.read(me) } else { world.write(me) });
            };
            let others: Vec<_> = (1..threads)
                .map(|me| {
                    let world = world.clone();
                    loom::thread::spawn(move || run(&world, me))
                })
                .collect();
            run(&world, 0);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(world.word.word.load(Ordering::Relaxed), 0, "free, and nobody is queued");
        });
    }

    #[test]
    fn a_reader_against_a_writer() {
        contend(2, 2);
    }

    #[test]
    fn two_readers_against_a_writer() {
        contend(3, 1);
    }

    /// A reader that is queued goes away while the writer that kept it out leaves,
    /// and another writer comes by: it is alone.
    #[test]
    fn a_hand_over_to_one_who_went_away() {
        loom::model(|| {
            let world = World::new(3);
            world.enter(Kind::Writer, 0);
            assert!(!world.word.enter_or_enqueue(Kind::Reader));
            world.queue.lock().unwrap()[0].push(2);
            let reader = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    let mut queue = world.queue.lock().unwrap();
                    if queue[0].pop().is_some() {
                        assert!(!world.word.left(false, !queue[1].is_empty()));
                        return;
                    }
                    drop(queue);
                    world.beds[2].sleep();
                    world.word.entered();
                    if world.word.leave_read() == Leave::HandOver {
                        world.hand_over(true);
                    }
                })
            };
            let writer = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    if world.word.try_enter(Kind::Writer) {
                        world.data.set(world.data.get() + 1);
                        assert_ne!(world.word.word.load(Ordering::Relaxed) & WRITER, 0);
                        if world.word.leave_write() == Leave::HandOver {
                            world.hand_over(false);
                        }
                    }
                })
            };
            world.data.set(1);
            if world.word.leave_write() == Leave::HandOver {
                world.hand_over(false);
            }
            reader.join().unwrap();
            writer.join().unwrap();
            assert_eq!(world.word.word.load(Ordering::Relaxed), 0);
        });
    }
}
