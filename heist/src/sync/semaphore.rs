//! [`Semaphore`]: a number of permits, of which one may hold several.

use super::queue::{Locked, Wait, WaitQueue, Waited};
use crate::prim::clock;
use crate::sched::g::WaitReason;
use crate::sched::park;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// A weighted semaphore, first in, first out: whoever wants many permits is not
/// passed by those who want few.
///
/// A permit is given back when its guard is dropped; the guard may be sent to
/// another goroutine.
///
/// ```
/// use heist::sync::{Arc, Semaphore};
///
/// let at_most_two = Arc::new(Semaphore::new(2));
/// let tasks: Vec<_> = (0..10)
///     .map(|i| {
///         let at_most_two = Arc::clone(&at_most_two);
///         heist::go(move || {
///             let _permit = at_most_two.acquire();
///             i
///         })
///     })
///     .collect();
/// assert_eq!(tasks.into_iter().map(|task| task.join().unwrap()).sum::<i32>(), 45);
/// assert_eq!(at_most_two.available_permits(), 2);
/// ```
pub struct Semaphore {
    /// The free permits.
    queue: WaitQueue<u64>,
}

impl Semaphore {
    /// A semaphore with so many permits.
    #[must_use]
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore { queue: WaitQueue::new(permits as u64) }
    }

    /// How many permits are free, as of some recent moment.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        let permits = self.count();
        if permits == 0 {
            park::poll_point()
        } else {
            park::wait_point()
        }
        permits
    }

    /// [`available_permits`](Self::available_permits) that lets nobody else run.
    fn count(&self) -> usize {
        *self.queue.lock() as usize
    }

    /// Waits for a permit.
    #[track_caller]
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Waits until so many permits are free at the same time. If the semaphore
    /// never has as many, it waits until they are [added](Self::add_permits).
    ///
    /// ```
    /// let semaphore = heist::sync::Semaphore::new(3);
    /// let two = semaphore.acquire_many(2);
    /// assert!(semaphore.try_acquire_many(2).is_none());
    /// drop(two);
    /// assert!(semaphore.try_acquire_many(3).is_some());
    /// ```
    #[track_caller]
    pub fn acquire_many(&self, n: usize) -> SemaphorePermit<'_> {
        self.take(n as u64, None, Location::caller());
        SemaphorePermit { semaphore: self, permits: n }
    }

    /// Takes a permit if one is free and nobody waits.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes so many permits if they are free and nobody waits.
    pub fn try_acquire_many(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        self.try_take(n).then(|| SemaphorePermit { semaphore: self, permits: n })
    }

    /// Waits for a permit for at most so long. [`Duration::MAX`] is without a
    /// limit.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let none = heist::sync::Semaphore::new(0);
    /// assert!(none.acquire_timeout(Duration::from_millis(1)).is_none());
    /// ```
    #[track_caller]
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Waits for so many permits for at most so long.
    #[track_caller]
    pub fn acquire_many_timeout(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.take(n as u64, Some(clock::after(timeout)), Location::caller())
            .then(|| SemaphorePermit { semaphore: self, permits: n })
    }

    /// As [`acquire`](Self::acquire), with a permit that borrows nothing.
    ///
    /// ```
    /// use heist::sync::{Arc, Semaphore};
    ///
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = Arc::clone(&semaphore).acquire_owned();
    /// heist::go(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available_permits(), 1);
    /// ```
    #[track_caller]
    pub fn acquire_owned(self: Arc<Self>) -> OwnedSemaphorePermit {
        self.acquire_many_owned(1)
    }

    /// As [`acquire_many`](Self::acquire_many), with a permit that borrows nothing.
    #[track_caller]
    pub fn acquire_many_owned(self: Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        self.take(n as u64, None, Location::caller());
        OwnedSemaphorePermit { semaphore: self, permits: n }
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that borrows nothing.
    #[must_use]
    pub fn try_acquire_owned(self: Arc<Self>) -> Option<OwnedSemaphorePermit> {
        self.try_take(1).then(|| OwnedSemaphorePermit { semaphore: self, permits: 1 })
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), with a permit that borrows
    /// nothing.
    #[must_use]
    #[track_caller]
    pub fn acquire_owned_timeout(
        self: Arc<Self>,
        timeout: Duration,
    ) -> Option<OwnedSemaphorePermit> {
        self.take(1, Some(clock::after(timeout)), Location::caller())
            .then(|| OwnedSemaphorePermit { semaphore: self, permits: 1 })
    }

    /// So many more permits are free.
    ///
    /// # Panics
    ///
    /// If that are more than `usize` can count.
    #[track_caller]
    pub fn add_permits(&self, n: usize) {
        let _after = park::SafePointAfter;
        let mut queue = self.queue.lock();
        let Some(permits) = queue.checked_add(n as u64) else {
            drop(queue);
            panic!("sync: a Semaphore has too many permits");
        };
        *queue = permits;
        Self::hand_out(queue);
    }

    /// Wakes those for whom there is enough now, in order.
    fn hand_out(mut queue: Locked<'_, u64, 1>) {
        let lucky = queue.pop_while(0, |permits, n| n <= *permits, |permits, n| *permits -= n);
        drop(queue);
        drop(lucky);
    }

    fn try_take(&self, n: usize) -> bool {
        park::wait_point();
        let mut queue = self.queue.lock();
        let taken = queue.is_empty(0) && *queue >= n as u64;
        if taken {
            *queue -= n as u64;
        }
        drop(queue);
        if !taken {
            park::poll_point();
        }
        taken
    }

    fn take(&self, n: u64, deadline: Option<u64>, site: &'static Location<'static>) -> bool {
        park::wait_point();
        let mut queue = self.queue.lock();
        if queue.is_empty(0) && *queue >= n {
            *queue -= n;
            return true;
        }
        let wait = Wait { tag: n, deadline, ..Wait::new(WaitReason::Semaphore, site) };
        match queue.wait(0, wait, || ()) {
            Waited::Woken => true,
            Waited::Expired(queue) => {
                // It may have been the one that the others waited behind.
                Self::hand_out(queue);
                false
            }
            Waited::Unwind(queue) => {
                Self::hand_out(queue);
                park::unwind();
            }
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permits = self.count();
        f.debug_struct("Semaphore").field("permits", &permits).finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`], given back when dropped.
#[must_use = "if unused the permit is given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

/// Permits of a [`Semaphore`] in an [`Arc`], given back when dropped.
#[must_use = "if unused the permit is given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl SemaphorePermit<'_> {
    /// How many they are.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Does not give them back: the semaphore has fewer from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl OwnedSemaphorePermit {
    /// How many they are.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Does not give them back: the semaphore has fewer from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.add_permits(self.permits);
        }
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.add_permits(self.permits);
        }
    }
}
