//! Waiting for devices: a queue of events that threads post, and a bell.

use super::atomic::{AtomicU32, Ordering};
use super::futex::Futex;
use super::mutex::Mutex;
use super::world::clock;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) const BATCH: usize = 128;

/// A device has become ready: readable, that is.
#[derive(Clone, Copy)]
pub(crate) struct Event(u64);

impl Event {
    pub(crate) fn token(&self) -> u64 {
        self.0
    }

    pub(crate) fn readable(&self) -> bool {
        true
    }

    pub(crate) fn writable(&self) -> bool {
        false
    }

    pub(crate) fn ends_reading(&self) -> bool {
        false
    }

    pub(crate) fn ends_writing(&self) -> bool {
        false
    }
}

/// The events of one wait.
pub(crate) struct Batch {
    events: Vec<Event>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Batch { events: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

/// What devices have posted.
#[derive(Debug)]
pub(crate) struct Epoll {
    posted: Mutex<VecDeque<u64>>,
    /// Changes with each event and each ring.
    changes: Futex,
    rings: AtomicU32,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Epoll {
            posted: Mutex::new(VecDeque::new()),
            changes: Futex::new(0),
            rings: AtomicU32::new(0),
        })
    }

    /// There are no descriptors on this machine, only devices, which post.
    pub(crate) fn add(&self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(crate) fn remove(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// A device is ready.
    #[allow(dead_code)] // for scenarios with devices
    pub(crate) fn post(&self, token: u64) {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push_back(token);
        self.change();
    }

    fn change(&self) {
        self.changes.word().fetch_add(1, Ordering::SeqCst);
        self.changes.wake_one();
    }

    pub(crate) fn look(&self, batch: &mut Batch) {
        // Whoever looks takes the rings along, as on a real machine.
        self.rings.store(0, Ordering::SeqCst);
        self.take(batch);
    }

    fn take(&self, batch: &mut Batch) {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        let n = posted.len().min(BATCH);
        batch.events = posted.drain(..n).map(Event).collect();
    }

    pub(crate) fn wait(&self, until: Option<u64>, batch: &mut Batch) {
        loop {
            let changes = self.changes.word().load(Ordering::SeqCst);
            self.take(batch);
            if !batch.events.is_empty() || self.rings.swap(0, Ordering::SeqCst) != 0 {
                return;
            }
            let left = match until.map(|until| until.saturating_sub(clock::now())) {
                Some(0) => return,
                left => left.map(Duration::from_nanos),
            };
            self.changes.wait(changes, left);
        }
    }

    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.change();
    }
}
