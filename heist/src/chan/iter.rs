//! Iterators over the messages of a channel.

use super::Receiver;
use std::fmt;
use std::iter::FusedIterator;
use std::panic::Location;

/// Receives until no sender is left: [`Receiver::iter`].
///
/// ```
/// use heist::chan;
///
/// let (s, r) = chan::unbounded();
/// s.send(1).unwrap();
/// s.send(2).unwrap();
/// drop(s);
/// assert_eq!(r.iter().collect::<Vec<_>>(), [1, 2]);
/// ```
pub struct Iter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// Receives until there is no message: [`Receiver::try_iter`].
///
/// ```
/// use heist::chan;
///
/// let (s, r) = chan::unbounded();
/// s.send(1).unwrap();
/// assert_eq!(r.try_iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct TryIter<'a, T> {
    pub(super) receiver: &'a Receiver<T>,
}

/// Receives until no sender is left, and has the receiver.
///
/// ```
/// use heist::chan;
///
/// let (s, r) = chan::unbounded();
/// s.send(1).unwrap();
/// drop(s);
/// assert_eq!(r.into_iter().collect::<Vec<_>>(), [1]);
/// ```
pub struct IntoIter<T> {
    pub(super) receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    #[cfg_attr(not(debug_assertions), inline(always))] // as `Receiver::recv`
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.next(Location::caller())
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.try_next(Location::caller())
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[cfg_attr(not(debug_assertions), inline(always))] // as `Receiver::recv`
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.next(Location::caller())
    }
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Iter { .. }")
    }
}

impl<T> fmt::Debug for TryIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("TryIter { .. }")
    }
}

impl<T> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("IntoIter { .. }")
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
        IntoIter { receiver: self }
    }
}
