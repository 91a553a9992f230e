//! std's channels: `std::sync::mpsc` on [`heist::chan`](crate::chan).
//!
//! The errors are std's own types, so that code that names them mixes.
//!
//! ```
//! use heist::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::channel();
//! for i in 0..10 {
//!     let sender = sender.clone();
//!     drop(heist::go(move || sender.send(i).unwrap()));
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<i32>(), 45);
//! ```

use crate::chan;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// A channel without a limit: sending never waits.
///
/// ```
/// let (sender, receiver) = heist::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = chan::unbounded();
    (Sender { inner: sender }, Receiver::new(receiver))
}

/// A channel for at most `bound` messages: sending waits while it is full. With a
/// bound of 0 each message is handed over to a receiver that waits.
///
/// ```
/// use heist::sync::mpsc::{TrySendError, sync_channel};
///
/// let (sender, receiver) = sync_channel(1);
/// sender.send(1).unwrap();
/// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = chan::bounded(bound);
    (SyncSender { inner: sender }, Receiver::new(receiver))
}

/// Sends to a [`channel`].
pub struct Sender<T> {
    inner: chan::Sender<T>,
}

/// Sends to a [`sync_channel`].
pub struct SyncSender<T> {
    inner: chan::Sender<T>,
}

/// Receives from a [`channel`] or a [`sync_channel`]: there is one of it.
pub struct Receiver<T> {
    inner: chan::Receiver<T>,
    /// As in std, two do not receive at the same time.
    not_sync: PhantomData<Cell<()>>,
}

/// With the receiver go the messages, as in std: who waits for what is in one of them,
/// a channel to answer on say, waits no longer.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.inner.discard();
    }
}

impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a message; it does not wait. That it was sent does not say that it
    /// will be received.
    ///
    /// # Errors
    ///
    /// If the receiver is gone; the message is in the error.
    #[track_caller]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        self.inner.send(t).map_err(|chan::SendError(t)| SendError(t))
    }
}

impl<T> SyncSender<T> {
    /// Sends a message; waits while the channel is full.
    ///
    /// # Errors
    ///
    /// If the receiver is gone; the message is in the error.
    #[track_caller]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        self.inner.send(t).map_err(|chan::SendError(t)| SendError(t))
    }

    /// Sends a message if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// If the channel is full, or the receiver is gone; the message is in the
    /// error.
    pub fn try_send(&self, t: T) -> Result<(), TrySendError<T>> {
        self.inner.try_send(t).map_err(|error| match error {
            chan::TrySendError::Full(t) => TrySendError::Full(t),
            chan::TrySendError::Disconnected(t) => TrySendError::Disconnected(t),
        })
    }
}

impl<T> Receiver<T> {
    fn new(inner: chan::Receiver<T>) -> Self {
        Receiver { inner, not_sync: PhantomData }
    }

    /// Receives a message if there is one.
    ///
    /// # Errors
    ///
    /// If there is none, or none and no sender.
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.inner.try_recv().map_err(|error| match error {
            chan::TryRecvError::Empty => TryRecvError::Empty,
            chan::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Waits for a message.
    ///
    /// # Errors
    ///
    /// If there is none and no sender.
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.inner.recv().map_err(|chan::RecvError| RecvError)
    }

    /// Waits for a message for at most so long.
    ///
    /// # Errors
    ///
    /// If none came in time, or there is none and no sender.
    ///
    /// ```
    /// use heist::sync::mpsc::{RecvTimeoutError, channel};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = channel::<()>();
    /// let soon = Duration::from_millis(1);
    /// assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.inner.recv_timeout(timeout).map_err(|error| match error {
            chan::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
            chan::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Messages, waiting for each, until there is no sender.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { rx: self }
    }

    /// The messages that are there, without waiting.
    ///
    /// ```
    /// let (sender, receiver) = heist::sync::mpsc::channel();
    /// (0..3).for_each(|i| sender.send(i).unwrap());
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { rx: self }
    }
}

/// What [`Receiver::iter`] returns.
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    rx: &'a Receiver<T>,
}

/// What [`Receiver::try_iter`] returns.
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    rx: &'a Receiver<T>,
}

/// What [`Receiver::into_iter`] returns.
#[derive(Debug)]
pub struct IntoIter<T> {
    rx: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.rx.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.rx.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.rx.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { rx: self }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { inner: self.inner.clone() }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        SyncSender { inner: self.inner.clone() }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
