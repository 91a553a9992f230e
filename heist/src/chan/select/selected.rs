//! What a select has chosen, until it is completed.

use super::engine::Chosen;
use super::landing::Landing;
use crate::chan::channel::all_gone;
use crate::chan::error::{RecvError, SendError, SendTimeoutError};
use crate::chan::large::is_huge;
use crate::chan::receiver::Receiver;
use crate::chan::sender::Sender;
use crate::prim::thread;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// An operation that a [`Select`](super::Select) has chosen. It must be completed, with
/// [`send`](Self::send) or [`recv`](Self::recv): dropping it panics.
///
/// ```
/// use heist::chan::{self, Select};
///
/// let (s, r) = chan::bounded(1);
/// let mut select = Select::new();
/// select.send(&s);
/// let operation = select.select();
/// assert_eq!(operation.index(), 0);
/// assert_eq!(operation.send(&s, "hello"), Ok(()));
/// assert_eq!(r.recv(), Ok("hello"));
/// ```
#[must_use]
pub struct SelectedOperation<'a> {
    /// `None` when it was completed.
    pub(super) chosen: Option<Chosen<'a>>,
    pub(super) landing: Landing,
    /// Whoever selects is who has the receivers: it may drop their messages.
    pub(super) at_home: bool,
}

// As crossbeam's. Nobody sees a message on its way between a panic and its end: whoever
// has the operation completes it, or drops it and the message with it.
impl UnwindSafe for SelectedOperation<'_> {}
impl RefUnwindSafe for SelectedOperation<'_> {}

impl SelectedOperation<'_> {
    /// The index of the operation.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::unbounded();
    /// s.send(1).unwrap();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), 0);
    /// operation.recv(&r).unwrap();
    /// ```
    pub fn index(&self) -> usize {
        self.chosen.as_ref().map_or(usize::MAX, Chosen::index)
    }

    /// Completes a send.
    ///
    /// # Errors
    ///
    /// If no receiver is left; the message comes back.
    ///
    /// ```
    /// use heist::chan::{self, Select, SendError};
    ///
    /// let (s, r) = chan::bounded(0);
    /// drop(r);
    /// let mut select = Select::new();
    /// select.send(&s);
    /// assert_eq!(select.select().send(&s, 1), Err(SendError(1)));
    /// ```
    ///
    /// # Panics
    ///
    /// If `s` is not the sender that was added to the select.
    pub fn send<T>(mut self, s: &Sender<T>, msg: T) -> Result<(), SendError<T>> {
        complete_send(&mut self.chosen, s, msg)
    }

    /// Completes a receive.
    ///
    /// # Errors
    ///
    /// If there is no message and no sender is left.
    ///
    /// ```
    /// use heist::chan::{self, Select};
    ///
    /// let (s, r) = chan::unbounded();
    /// s.send(1).unwrap();
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.select().recv(&r), Ok(1));
    /// ```
    ///
    /// # Panics
    ///
    /// If `r` is not the receiver that was added to the select.
    pub fn recv<T>(mut self, r: &Receiver<T>) -> Result<T, RecvError> {
        complete_recv(&mut self.chosen, &mut self.landing, r)
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("SelectedOperation { .. }")
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if let Some(chosen) = self.chosen.take() {
            // Elsewhere the message, which may belong to another thread, is
            // leaked, as in crossbeam.
            if self.at_home || !chosen.has_message() {
                // SAFETY: the landing is the one that it was selected with.
                unsafe { chosen.abandon(&mut self.landing) };
            }
            // A goroutine that unwinds already, or is told to, does so quietly.
            if !thread::panicking() {
                panic!("dropped `SelectedOperation` without completing the operation");
            }
        }
    }
}

#[inline]
fn complete_send<T>(
    chosen: &mut Option<Chosen<'_>>,
    sender: &Sender<T>,
    message: T,
) -> Result<(), SendError<T>> {
    let is_of = chosen.as_ref().is_some_and(|chosen| chosen.is_of(sender));
    assert!(is_of, "passed a sender that wasn't selected");
    if const { is_huge::<T>() } {
        return complete_send_huge(chosen, sender, message);
    }
    match chosen.take() {
        Some(chosen) => chosen.send(sender, message),
        None => unreachable!("asserted above"),
    }
}

/// Out of line: see `large.rs`. If there is no stack with room for it, the operation is
/// still to be given up.
#[inline(never)]
fn complete_send_huge<T>(
    chosen: &mut Option<Chosen<'_>>,
    sender: &Sender<T>,
    message: T,
) -> Result<(), SendError<T>> {
    let send = |message| match chosen.take() {
        Some(chosen) => {
            chosen.send(sender, message).map_err(|error| SendTimeoutError::Disconnected(error.0))
        }
        None => unreachable!("the caller has asserted it"),
    };
    sender.send_huge(message, send).map_err(|(_, message)| SendError(message))
}

#[inline]
fn complete_recv<T>(
    chosen: &mut Option<Chosen<'_>>,
    landing: &mut Landing,
    receiver: &Receiver<T>,
) -> Result<T, RecvError> {
    let is_of = chosen.as_ref().is_some_and(|chosen| chosen.is_of(receiver));
    assert!(is_of, "passed a receiver that wasn't selected");
    match chosen.take() {
        // SAFETY: the receiver at this address, which is still borrowed, was
        // selected: it is the same one, and so is the type of its messages. The
        // landing is the one that it was selected with.
        Some(chosen) => unsafe { chosen.recv(landing) }.map_err(all_gone),
        None => unreachable!("asserted above"),
    }
}

/// A case of a macro that was selected and is being completed. If the message's
/// expression does not come to an end, the operation is given up.
#[doc(hidden)]
pub struct Completion<'a, 'l> {
    chosen: Option<Chosen<'a>>,
    landing: &'l mut Landing,
}

impl<'a, 'l> Completion<'a, 'l> {
    #[inline]
    pub fn new(chosen: Chosen<'a>, landing: &'l mut Landing) -> Self {
        Completion { chosen: Some(chosen), landing }
    }

    #[inline]
    pub fn send<T>(mut self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        complete_send(&mut self.chosen, sender, message)
    }

    #[inline]
    pub fn recv<T>(mut self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        complete_recv(&mut self.chosen, self.landing, receiver)
    }
}

impl Drop for Completion<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(chosen) = self.chosen.take() {
            // SAFETY: the landing is the one that it was selected with.
            unsafe { chosen.abandon(self.landing) };
        }
    }
}
