//! What `par::spawn` leaves for a goroutine to run: the newest first where it was
//! spawned, the oldest first elsewhere.
//!
//! Goroutines are queued first in, first out. Who divides a problem by spawning wants
//! the part that it left last next, while it is in the cache, and thieves to have the
//! part that it left first, which is the largest. So a job goes to a stack of its P,
//! and a goroutine is queued that takes *some* job of that stack: the newest on its own
//! P, the oldest on another. There are as many of those as there are jobs.

use super::m;
use super::p::P;
use crate::prim::lock::{Lock, Rank};
use std::collections::VecDeque;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// A closure to run once. It leaves no panic behind.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Jobs that run in the order in which they came.
pub(crate) struct Fifo(Lock<VecDeque<Job>>);

impl Fifo {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Fifo(Lock::new(Rank::Leaf, VecDeque::new())))
    }

    pub(crate) fn push(&self, job: Job) {
        self.0.lock().push_back(job);
    }

    fn pop(&self) -> Option<Job> {
        self.0.lock().pop_front()
    }
}

/// The right to run the next job of a queue. If it is dropped, as when a runtime shuts
/// down, a job is: whoever waits for them counts on it.
pub(crate) struct NextOf(Option<Arc<Fifo>>);

impl NextOf {
    pub(crate) fn new(fifo: Arc<Fifo>) -> Self {
        NextOf(Some(fifo))
    }

    pub(crate) fn run(mut self) {
        let job = self.0.take().and_then(|fifo| fifo.pop());
        if let Some(job) = job {
            job();
        }
    }
}

impl Drop for NextOf {
    fn drop(&mut self) {
        drop(self.0.take().and_then(|fifo| fifo.pop()));
    }
}

/// What lies on a stack.
pub(crate) enum Entry {
    Job(Job),
    /// The next job of a queue, whichever that is by then.
    Next(Arc<Fifo>),
}

/// The jobs of a P.
pub(crate) struct Jobs {
    stack: Lock<VecDeque<Entry>>,
    /// Those that are to run first in, first out.
    fifo: OnceLock<Arc<Fifo>>,
}

impl Jobs {
    pub(crate) fn new() -> Self {
        Jobs { stack: Lock::new(Rank::Leaf, VecDeque::new()), fifo: OnceLock::new() }
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.stack.lock().push_back(entry);
    }

    /// The P's own queue.
    pub(crate) fn fifo(&self) -> Arc<Fifo> {
        self.fifo.get_or_init(Fifo::new).clone()
    }
}

/// The right to run one job of a P. If it is dropped, as when a runtime shuts down, a
/// job is.
pub(crate) struct Runner(&'static P);

impl Runner {
    pub(crate) fn of(home: &'static P) -> Self {
        Runner(home)
    }

    pub(crate) fn run(self) {
        let job = self.take();
        std::mem::forget(self);
        if let Some(job) = job {
            job();
        }
    }

    fn take(&self) -> Option<Job> {
        let at_home = m::current().and_then(|m| m.p()).is_some_and(|p| ptr::eq(p, self.0));
        let entry = {
            let mut entries = self.0.jobs.stack.lock();
            if at_home { entries.pop_back() } else { entries.pop_front() }
        };
        match entry? {
            Entry::Job(job) => Some(job),
            Entry::Next(fifo) => fifo.pop(),
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.take());
    }
}
