//! What can go wrong with a message.
//!
//! Errors of senders carry the message that was not sent. Names, methods and
//! texts are those of crossbeam-channel.

use std::error::Error;
use std::fmt;

/// Nobody can receive any more: the message comes back.
///
/// ```
/// use heist::chan::{self, SendError};
///
/// let (s, r) = chan::unbounded();
/// drop(r);
/// assert_eq!(s.send("hello"), Err(SendError("hello")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`try_send`](super::Sender::try_send) did not send.
///
/// ```
/// use heist::chan::{self, TrySendError};
///
/// let (s, _r) = chan::bounded(1);
/// assert_eq!(s.try_send(1), Ok(()));
/// assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full; if it holds no messages at all, no receiver waits.
    Full(T),
    /// No receiver is left.
    Disconnected(T),
}

/// Why [`send_timeout`](super::Sender::send_timeout) and
/// [`send_deadline`](super::Sender::send_deadline) did not send.
///
/// ```
/// use heist::chan::{self, SendTimeoutError};
/// use std::time::Duration;
///
/// let (s, _r) = chan::bounded(0);
/// assert_eq!(s.send_timeout(1, Duration::ZERO), Err(SendTimeoutError::Timeout(1)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The time was up before there was room, or a receiver.
    Timeout(T),
    /// No receiver is left.
    Disconnected(T),
}

/// There is no message, and no sender is left.
///
/// ```
/// use heist::chan::{self, RecvError};
///
/// let (s, r) = chan::unbounded::<i32>();
/// drop(s);
/// assert_eq!(r.recv(), Err(RecvError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Why [`try_recv`](super::Receiver::try_recv) returned no message.
///
/// ```
/// use heist::chan::{self, TryRecvError};
///
/// let (s, r) = chan::unbounded::<i32>();
/// assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
/// drop(s);
/// assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is no message; if the channel holds none at all, no sender waits.
    Empty,
    /// There is no message, and no sender is left.
    Disconnected,
}

/// Why [`recv_timeout`](super::Receiver::recv_timeout) and
/// [`recv_deadline`](super::Receiver::recv_deadline) returned no message.
///
/// ```
/// use heist::chan::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (_s, r) = chan::unbounded::<i32>();
/// assert_eq!(r.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvTimeoutError {
    /// The time was up before there was a message.
    Timeout,
    /// There is no message, and no sender is left.
    Disconnected,
}

/// No operation of a select was ready.
///
/// ```
/// use heist::chan::{self, Select};
///
/// let (_s, r) = chan::unbounded::<i32>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert!(select.try_select().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrySelectError;

/// No operation of a select was ready in time.
///
/// ```
/// use heist::chan::{self, Select};
/// use std::time::Duration;
///
/// let (_s, r) = chan::unbounded::<i32>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert!(select.select_timeout(Duration::from_millis(1)).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectTimeoutError;

/// No operation was ready.
///
/// ```
/// use heist::chan::{self, Select, TryReadyError};
///
/// let (_s, r) = chan::unbounded::<i32>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.try_ready(), Err(TryReadyError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryReadyError;

/// No operation was ready in time.
///
/// ```
/// use heist::chan::{self, ReadyTimeoutError, Select};
/// use std::time::Duration;
///
/// let (_s, r) = chan::unbounded::<i32>();
/// let mut select = Select::new();
/// select.recv(&r);
/// assert_eq!(select.ready_timeout(Duration::from_millis(1)), Err(ReadyTimeoutError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTimeoutError;

const NO_RECEIVER: &str = "sending on a disconnected channel";
const NO_SENDER: &str = "receiving on an empty and disconnected channel";

/// Texts, without a bound on the message: what was not sent need not be
/// printable. `Debug` is that of a string, with its quotes, as crossbeam's is.
macro_rules! texts {
    ($($error:ty, [$($generic:ident)?] { $($pattern:pat => $debug:expr, $display:expr;)* })*) => {$(
        impl<$($generic)?> fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($pattern => f.pad($display),)* }
            }
        }
        texts!(@debug $error, [$($generic)?] { $($pattern => $debug;)* });
    )*};
    (@debug $error:ty, [] $body:tt) => { impl Error for $error {} };
    (@debug $error:ty, [$generic:ident] { $($pattern:pat => $debug:expr;)* }) => {
        impl<$generic> fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($pattern => fmt::Debug::fmt($debug, f),)* }
            }
        }
        impl<$generic: Send> Error for $error {}
    };
}

texts! {
    SendError<T>, [T] {
        SendError(_) => "SendError(..)", NO_RECEIVER;
    }
    TrySendError<T>, [T] {
        TrySendError::Full(_) => "Full(..)", "sending on a full channel";
        TrySendError::Disconnected(_) => "Disconnected(..)", NO_RECEIVER;
    }
    SendTimeoutError<T>, [T] {
        SendTimeoutError::Timeout(_) => "SendTimeoutError(..)", "timed out waiting on send operation";
        SendTimeoutError::Disconnected(_) => "SendTimeoutError(..)", NO_RECEIVER;
    }
    RecvError, [] {
        RecvError => "", NO_SENDER;
    }
    TryRecvError, [] {
        TryRecvError::Empty => "", "receiving on an empty channel";
        TryRecvError::Disconnected => "", NO_SENDER;
    }
    RecvTimeoutError, [] {
        RecvTimeoutError::Timeout => "", "timed out waiting on receive operation";
        RecvTimeoutError::Disconnected => "", "channel is empty and disconnected";
    }
    TrySelectError, [] {
        TrySelectError => "", "all operations in select would block";
    }
    SelectTimeoutError, [] {
        SelectTimeoutError => "", "timed out waiting on select";
    }
}

impl<T> SendError<T> {
    /// The message.
    ///
    /// ```
    /// use heist::chan;
    ///
    /// let (s, r) = chan::unbounded();
    /// drop(r);
    /// assert_eq!(s.send(7).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The message.
    ///
    /// ```
    /// use heist::chan;
    ///
    /// let (s, _r) = chan::bounded(0);
    /// assert_eq!(s.try_send(7).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        let (TrySendError::Full(message) | TrySendError::Disconnected(message)) = self;
        message
    }

    /// Whether the channel was full.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether no receiver is left.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The message.
    ///
    /// ```
    /// use heist::chan;
    /// use std::time::Duration;
    ///
    /// let (s, _r) = chan::bounded(0);
    /// assert_eq!(s.send_timeout(7, Duration::ZERO).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        let (SendTimeoutError::Timeout(message) | SendTimeoutError::Disconnected(message)) = self;
        message
    }

    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Whether no receiver is left.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Whether there was no message.
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Whether no sender is left.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Whether the time was up.
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Whether no sender is left.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, RecvTimeoutError::Disconnected)
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(error: SendError<T>) -> Self {
        TrySendError::Disconnected(error.0)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> Self {
        SendTimeoutError::Disconnected(error.0)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> Self {
        RecvTimeoutError::Disconnected
    }
}
