//! A descriptor that somebody waits for, or has waited for.
//!
//! The block outlives the descriptor: an event that the kernel reported before the
//! descriptor was closed finds the block, and its tag says that the event is
//! another's.

use super::direction::Direction;
use super::poller::Poller;
use crate::prim::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::prim::epoll::{Event, Source};
use crate::prim::lock::{Lock, Rank};
use std::io;
use std::ptr;

/// The block. In lines of its own, as two threads write to it: the one that waits
/// and the one that looks.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PollDesc<W> {
    number: u32,
    /// Changes when the block is given to another descriptor.
    tag: AtomicU32,
    pub(crate) read: Direction<W>,
    pub(crate) write: Direction<W>,
    /// Where the timers of its deadlines are, to tell when one is not needed any
    /// more: for whoever sets them.
    pub(crate) alarms: [AtomicU32; 2],
    /// Where it is registered.
    home: Lock<Option<&'static Poller>>,
    /// It is registered, to look at without the lock.
    registered: AtomicBool,
}

impl<W: Copy + PartialEq> PollDesc<W> {
    pub(crate) fn new(number: u32) -> Self {
        PollDesc {
            number,
            tag: AtomicU32::new(0),
            read: Direction::new(),
            write: Direction::new(),
            alarms: [AtomicU32::new(0), AtomicU32::new(0)],
            home: Lock::new(Rank::Poll, None),
            registered: AtomicBool::new(false),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// What comes back with its events.
    fn token(&self) -> u64 {
        u64::from(self.tag.load(Ordering::Relaxed)) << 32 | u64::from(self.number)
    }

    /// The number in a token.
    pub(crate) fn number_of(event: &Event) -> u32 {
        event.token() as u32
    }

    /// Whether an event is this descriptor's, and not that of one before it. If the
    /// descriptor goes right after this look, the next one's waiter is woken for
    /// nothing and tries again.
    pub(crate) fn is_mine(&self, event: &Event) -> bool {
        event.token() == self.token()
    }

    /// Whether it is registered. A caller that asks after it has seen a direction
    /// ([`Direction::begin`]) may wait if so: if the registration goes meanwhile, the
    /// count changes.
    #[inline(always)]
    pub(crate) fn is_registered(&self) -> bool {
        // Relaxed: `leave` comes before the change of the count, which is a release.
        self.registered.load(Ordering::Relaxed)
    }

    /// Registers it, once, with `poller` unless it is with another. Returns where it
    /// was registered just now.
    ///
    /// # Errors
    ///
    /// Those of epoll_ctl(2).
    #[inline]
    pub(crate) fn register(
        &self,
        fd: Source<'_>,
        poller: impl FnOnce() -> &'static Poller,
    ) -> io::Result<Option<&'static Poller>> {
        let mut home = self.home.lock();
        if home.is_some() {
            return Ok(None);
        }
        let poller = poller();
        poller.add(fd, self.token())?;
        *home = Some(poller);
        self.registered.store(true, Ordering::Relaxed);
        Ok(Some(poller))
    }

    /// The descriptor goes. The block is as new afterwards, and its tag another.
    pub(crate) fn deregister(&self, fd: Source<'_>) {
        let mut home = self.home.lock();
        if let Some(poller) = home.take() {
            poller.remove(fd);
        }
        self.registered.store(false, Ordering::Relaxed);
        self.tag.store(self.tag.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        drop(home);
        self.read.reset();
        self.write.reset();
    }

    /// Its poller goes, and takes the registration along. Returns whether it was
    /// registered there: then those who wait must be told to wait elsewhere.
    pub(crate) fn leave(&self, poller: &Poller) -> bool {
        let mut home = self.home.lock();
        let there = home.is_some_and(|home| ptr::eq(home, poller));
        if there {
            *home = None;
            self.registered.store(false, Ordering::Relaxed);
        }
        there
    }

    /// Whether somebody waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.read.has_waiters() || self.write.has_waiters()
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::epoll::Batch;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_event_of_the_descriptor_before_is_not_mine() {
        static POLLER: Poller = Poller::new();
        let desc = PollDesc::<u32>::new(7);
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(desc.register(near.as_fd(), || &POLLER).unwrap().is_some());
        assert!(desc.register(near.as_fd(), || &POLLER).unwrap().is_none(), "once");
        let mut batch = Batch::new();
        assert!(POLLER.look(&mut batch));
        let event = *batch.iter().next().unwrap();
        assert_eq!(PollDesc::<u32>::number_of(&event), 7);
        assert!(desc.is_mine(&event));
        desc.deregister(near.as_fd());
        assert!(!desc.is_mine(&event), "nobody's");
        assert!(desc.register(near.as_fd(), || &POLLER).unwrap().is_some());
        assert!(!desc.is_mine(&event), "the next one's");
    }
}
