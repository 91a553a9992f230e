//! The side that receives.

use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::handle::Handle;
use super::iter::{Iter, TryIter};
use super::large::{is_large, with_room};
#[cfg(not(sim))]
use super::sender::Sender;
use super::timer::{self, Timer};
use super::until::Until;
use crate::sched::park;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives messages from a channel. Clones share them: each message goes to one
/// receiver.
///
/// ```
/// use heist::chan;
///
/// heist::run(|| {
///     let (s, r) = chan::unbounded();
///     heist::go(move || (0..10).for_each(|i| s.send(i).unwrap()));
///     assert_eq!(r.iter().sum::<i32>(), 45);
/// });
/// ```
pub struct Receiver<T> {
    pub(super) source: Source<T>,
}

impl<T> Receiver<T> {
    /// The receiver, which is the only one of its channel, is about to be dropped: so
    /// are the messages.
    pub(crate) fn discard(&self) {
        if let Source::Channel(channel) = &self.source {
            drop(channel.discard());
        }
    }

    /// Whether it is the only one of its channel.
    pub(crate) fn is_only_one(&self) -> bool {
        matches!(&self.source, Source::Channel(channel) if channel.is_only_one())
    }
}

/// Where messages come from.
pub(super) enum Source<T> {
    Channel(Handle<T, false>),
    Timer(Arc<Timer<T>>),
    Nowhere(PhantomData<fn() -> T>),
}

impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Receiver<T> {
    /// Receives a message, and waits until there is one.
    ///
    /// # Errors
    ///
    /// If there is none and no sender is left.
    ///
    /// ```
    /// use heist::chan::{self, RecvError};
    ///
    /// let (s, r) = chan::unbounded();
    /// heist::go(move || s.send(5).unwrap());
    /// assert_eq!(r.recv(), Ok(5));
    /// assert_eq!(r.recv(), Err(RecvError));
    /// ```
    #[cfg_attr(not(debug_assertions), inline(always))] // as `park::yield_now`
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        let site = Location::caller();
        let received = match &self.source {
            Source::Channel(channel) if const { !is_large::<T>() } => {
                channel.recv(Until::Forever, site)
            }
            _ => {
                return with_room::<T, _>(|| {
                    self.recv_elsewhere(Until::Forever, site).map_err(|_| RecvError)
                });
            }
        };
        match received {
            Ok(message) => Ok(message),
            Err(_) => Err(RecvError),
        }
    }

    /// As [`recv`](Self::recv), for iterators.
    #[inline(always)]
    pub(super) fn next(&self, site: &'static Location<'static>) -> Option<T> {
        match &self.source {
            Source::Channel(channel) if const { !is_large::<T>() } => {
                channel.recv(Until::Forever, site).ok()
            }
            _ => with_room::<T, _>(|| self.recv_elsewhere(Until::Forever, site).ok()),
        }
    }

    /// Receives a message if there is one. Every now and then a try in vain lets
    /// other goroutines run.
    ///
    /// # Errors
    ///
    /// If there is none (if the channel holds none at all: no sender waits);
    /// says whether no sender is left.
    ///
    /// ```
    /// use heist::chan::{self, TryRecvError};
    ///
    /// let (s, r) = chan::unbounded();
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
    /// s.send(5).unwrap();
    /// drop(s);
    /// assert_eq!(r.try_recv(), Ok(5));
    /// assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let site = Location::caller();
        with_room::<T, _>(|| self.try_recv_here(site))
    }

    /// As [`try_recv`](Self::try_recv), for iterators.
    #[inline]
    pub(super) fn try_next(&self, site: &'static Location<'static>) -> Option<T> {
        with_room::<T, _>(|| self.try_recv_here(site).ok())
    }

    #[inline]
    fn try_recv_here(&self, site: &'static Location<'static>) -> Result<T, TryRecvError> {
        match &self.source {
            Source::Channel(channel) => channel.try_recv(site),
            Source::Timer(timer) => timer.try_recv(),
            Source::Nowhere(_) => {
                park::poll_point();
                Err(TryRecvError::Empty)
            }
        }
    }

    /// Receives a message, and waits at most so long.
    ///
    /// # Errors
    ///
    /// If the time is up, or there is none and no sender is left.
    ///
    /// ```
    /// use heist::chan::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (s, r) = chan::unbounded::<i32>();
    /// let soon = Duration::from_millis(1);
    /// assert_eq!(r.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
    /// drop(s);
    /// assert_eq!(r.recv_timeout(soon), Err(RecvTimeoutError::Disconnected));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until(Until::after(timeout), Location::caller())
    }

    /// Receives a message, and waits at most until then.
    ///
    /// # Errors
    ///
    /// If the time is up, or there is none and no sender is left.
    ///
    /// ```
    /// use heist::chan::{self, RecvTimeoutError};
    /// use std::time::Instant;
    ///
    /// let (_s, r) = chan::unbounded::<i32>();
    /// assert_eq!(r.recv_deadline(Instant::now()), Err(RecvTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_until(Until::Moment(deadline), Location::caller())
    }

    #[inline(always)]
    fn recv_until(
        &self,
        until: Until,
        site: &'static Location<'static>,
    ) -> Result<T, RecvTimeoutError> {
        with_room::<T, _>(|| {
            let received = match &self.source {
                Source::Channel(channel) => channel.recv(until, site),
                _ => self.recv_elsewhere(until, site),
            };
            received.map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        })
    }

    /// Receives from what is no channel, or what is large.
    #[cold]
    #[inline(never)]
    fn recv_elsewhere(
        &self,
        until: Until,
        site: &'static Location<'static>,
    ) -> Result<T, TryRecvError> {
        match &self.source {
            Source::Channel(channel) => channel.recv(until, site),
            Source::Timer(timer) => timer.recv(until, site),
            Source::Nowhere(_) => timer::sleep_in_vain(until, site),
        }
    }

    /// Whether there is no message. A channel of capacity zero is always empty.
    ///
    /// ```
    /// let (s, r) = heist::chan::unbounded();
    /// assert!(r.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!r.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room. A channel of capacity zero is always full.
    ///
    /// ```
    /// let (s, r) = heist::chan::bounded(1);
    /// assert!(!r.is_full());
    /// s.send(0).unwrap();
    /// assert!(r.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        match &self.source {
            Source::Channel(channel) => channel.is_full(),
            Source::Timer(_) => self.len() == 1,
            // It has no room at all.
            Source::Nowhere(_) => true,
        }
    }

    /// How many messages there are.
    ///
    /// ```
    /// let (s, r) = heist::chan::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Channel(channel) => channel.len(),
            Source::Timer(timer) if timer.is_ready() => 1,
            Source::Timer(_) | Source::Nowhere(_) => {
                park::poll_point();
                0
            }
        }
    }

    /// How many messages there can be, if there is a bound.
    ///
    /// ```
    /// let (_s, r) = heist::chan::bounded::<i32>(5);
    /// assert_eq!(r.capacity(), Some(5));
    /// let (_s, r) = heist::chan::unbounded::<i32>();
    /// assert_eq!(r.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        match &self.source {
            Source::Channel(channel) => channel.capacity(),
            Source::Timer(_) => Some(1),
            Source::Nowhere(_) => Some(0),
        }
    }

    /// Receives until no sender is left; each step waits for a message.
    ///
    /// ```
    /// let (s, r) = heist::chan::unbounded();
    /// heist::go(move || (0..3).for_each(|i| s.send(i).unwrap()));
    /// assert_eq!(r.iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Receives the messages that are there.
    ///
    /// ```
    /// let (s, r) = heist::chan::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Whether both receive from the same channel.
    ///
    /// ```
    /// let (_s, r) = heist::chan::unbounded::<i32>();
    /// let (_s, other) = heist::chan::unbounded::<i32>();
    /// assert!(r.same_channel(&r.clone()));
    /// assert!(!r.same_channel(&other));
    /// ```
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        match (&self.source, &other.source) {
            (Source::Channel(a), Source::Channel(b)) => a.same(b),
            (Source::Timer(a), Source::Timer(b)) => Arc::ptr_eq(a, b),
            (Source::Nowhere(_), Source::Nowhere(_)) => true,
            _ => false,
        }
    }

    /// Whether it receives what this one sends.
    #[cfg(not(sim))]
    pub(crate) fn is_of(&self, sender: &Sender<T>) -> bool {
        matches!(&self.source, Source::Channel(channel) if channel.same(&sender.channel))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let source = match &self.source {
            Source::Channel(channel) => Source::Channel(channel.clone()),
            Source::Timer(timer) => Source::Timer(timer.clone()),
            Source::Nowhere(_) => Source::Nowhere(PhantomData),
        };
        Receiver { source }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Receiver { .. }")
    }
}
