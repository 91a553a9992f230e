//! The side that sends.

use super::error::{SendError, SendTimeoutError, TrySendError};
use super::handle::Handle;
use super::large::{is_huge, is_large, with_room};
use super::until::Until;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// Sends messages into a channel. Clones send into the same one; when the last
/// is gone, receivers get what is left and then an error.
///
/// ```
/// use heist::chan;
///
/// heist::run(|| {
///     let (s, r) = chan::bounded(0);
///     for i in 0..3 {
///         let s = s.clone();
///         heist::go(move || s.send(i).unwrap());
///     }
///     drop(s);
///     assert_eq!(r.iter().sum::<i32>(), 3);
/// });
/// ```
pub struct Sender<T> {
    pub(super) channel: Handle<T, true>,
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Goes without a word: if it was the last one, receivers wait for ever.
    pub(crate) fn forsake(self) {
        self.channel.forsake();
    }

    /// Sends a message, and waits while the channel is full. If it holds no
    /// messages at all, waits until a receiver takes this one.
    ///
    /// # Errors
    ///
    /// If no receiver is left; the message comes back.
    ///
    /// ```
    /// use heist::chan::{self, SendError};
    ///
    /// let (s, r) = chan::bounded(1);
    /// assert_eq!(s.send(1), Ok(()));
    /// drop(r);
    /// assert_eq!(s.send(2), Err(SendError(2)));
    /// ```
    #[cfg_attr(not(debug_assertions), inline(always))] // as `park::yield_now`
    #[track_caller]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        if const { is_large::<T>() } {
            return self.send_large(message, Location::caller());
        }
        match self.channel.send(message, Until::Forever, Location::caller()) {
            Ok(()) => Ok(()),
            Err(error) => Err(SendError(error.into_inner())),
        }
    }

    /// Out of line: see [`is_large`].
    #[inline(never)]
    fn send_large(&self, message: T, site: &'static Location<'static>) -> Result<(), SendError<T>> {
        if const { !is_huge::<T>() } {
            return match self.channel.send(message, Until::Forever, site) {
                Ok(()) => Ok(()),
                Err(error) => Err(SendError(error.into_inner())),
            };
        }
        // Not by `map_err`: unoptimised, each function has copies of its own.
        match self.send_huge(message, |message| self.channel.send(message, Until::Forever, site)) {
            Ok(()) => Ok(()),
            Err((_, message)) => Err(SendError(message)),
        }
    }

    /// Sends, by `send`, on a stack with room for it. Returns whether it was in vain since
    /// the channel is disconnected. The message comes back where it was: one copy is all
    /// that is on the caller's stack.
    #[inline(always)]
    pub(super) fn send_huge(
        &self,
        message: T,
        send: impl FnOnce(T) -> Result<(), SendTimeoutError<T>>,
    ) -> Result<(), (bool, T)> {
        let mut slot = Some(message);
        let failed = with_room::<T, _>(|| {
            let error = send(slot.take()?).err()?;
            let disconnected = error.is_disconnected();
            slot = Some(error.into_inner());
            Some(disconnected)
        });
        match (failed, slot) {
            (Some(disconnected), Some(message)) => Err((disconnected, message)),
            _ => Ok(()),
        }
    }

    /// Sends a message if that needs no waiting. Every now and then a try in vain
    /// lets other goroutines run.
    ///
    /// # Errors
    ///
    /// If the channel is full (if it holds no messages at all: no receiver
    /// waits), or no receiver is left; the message comes back.
    ///
    /// ```
    /// use heist::chan::{self, TrySendError};
    ///
    /// let (s, r) = chan::bounded(1);
    /// assert_eq!(s.try_send(1), Ok(()));
    /// assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
    /// drop(r);
    /// assert_eq!(s.try_send(3), Err(TrySendError::Disconnected(3)));
    /// ```
    #[inline]
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        if const { !is_huge::<T>() } {
            return self.channel.try_send(message);
        }
        self.send_huge(message, |message| match self.channel.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(message)) => Err(SendTimeoutError::Timeout(message)),
            Err(TrySendError::Disconnected(message)) => {
                Err(SendTimeoutError::Disconnected(message))
            }
        })
        .map_err(|(disconnected, message)| match disconnected {
            true => TrySendError::Disconnected(message),
            false => TrySendError::Full(message),
        })
    }

    /// Sends a message, and waits at most so long.
    ///
    /// # Errors
    ///
    /// If the time is up, or no receiver is left; the message comes back.
    ///
    /// ```
    /// use heist::chan::{self, SendTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (s, r) = chan::bounded(1);
    /// let soon = Duration::from_millis(1);
    /// assert_eq!(s.send_timeout(1, soon), Ok(()));
    /// assert_eq!(s.send_timeout(2, soon), Err(SendTimeoutError::Timeout(2)));
    /// # drop(r);
    /// ```
    #[track_caller]
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until(message, Until::after(timeout), Location::caller())
    }

    /// Sends a message, and waits at most until then.
    ///
    /// # Errors
    ///
    /// If the time is up, or no receiver is left; the message comes back.
    ///
    /// ```
    /// use heist::chan::{self, SendTimeoutError};
    /// use std::time::Instant;
    ///
    /// let (s, _r) = chan::bounded(0);
    /// assert_eq!(s.send_deadline(1, Instant::now()), Err(SendTimeoutError::Timeout(1)));
    /// ```
    #[track_caller]
    pub fn send_deadline(&self, message: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_until(message, Until::Moment(deadline), Location::caller())
    }

    #[inline(always)]
    fn send_until(
        &self,
        message: T,
        until: Until,
        site: &'static Location<'static>,
    ) -> Result<(), SendTimeoutError<T>> {
        if const { !is_huge::<T>() } {
            return self.channel.send(message, until, site);
        }
        self.send_huge(message, |message| self.channel.send(message, until, site)).map_err(
            |(disconnected, message)| match disconnected {
                true => SendTimeoutError::Disconnected(message),
                false => SendTimeoutError::Timeout(message),
            },
        )
    }

    /// Whether there is no message. A channel of capacity zero is always empty.
    ///
    /// ```
    /// let (s, _r) = heist::chan::unbounded();
    /// assert!(s.is_empty());
    /// s.send(0).unwrap();
    /// assert!(!s.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.channel.len() == 0
    }

    /// Whether there is no room. A channel of capacity zero is always full.
    ///
    /// ```
    /// let (s, _r) = heist::chan::bounded(1);
    /// assert!(!s.is_full());
    /// s.send(0).unwrap();
    /// assert!(s.is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        self.channel.is_full()
    }

    /// How many messages there are.
    ///
    /// ```
    /// let (s, _r) = heist::chan::unbounded();
    /// s.send(1).unwrap();
    /// s.send(2).unwrap();
    /// assert_eq!(s.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.channel.len()
    }

    /// How many messages there can be, if there is a bound.
    ///
    /// ```
    /// let (s, _r) = heist::chan::bounded::<i32>(5);
    /// assert_eq!(s.capacity(), Some(5));
    /// let (s, _r) = heist::chan::unbounded::<i32>();
    /// assert_eq!(s.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.channel.capacity()
    }

    /// Whether both send into the same channel.
    ///
    /// ```
    /// let (s, _r) = heist::chan::unbounded::<i32>();
    /// let (other, _r) = heist::chan::unbounded::<i32>();
    /// assert!(s.same_channel(&s.clone()));
    /// assert!(!s.same_channel(&other));
    /// ```
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.channel.same(&other.channel)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { channel: self.channel.clone() }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Sender { .. }")
    }
}
