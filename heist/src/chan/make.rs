//! Making channels.

use super::handle;
use super::receiver::{Receiver, Source};
use super::sender::Sender;
use super::timer::Timer;
use crate::prim::clock;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A channel that holds any number of messages: sending never waits.
///
/// ```
/// let (s, r) = heist::chan::unbounded();
/// s.send("hello").unwrap();
/// assert_eq!(r.recv(), Ok("hello"));
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

/// A channel that holds at most `cap` messages: sending waits while it is full.
///
/// With a capacity of zero it holds none: sender and receiver meet, and the
/// message goes from one to the other.
///
/// ```
/// use heist::chan;
///
/// let (s, r) = chan::bounded(1);
/// s.send(1).unwrap();
/// assert!(s.try_send(2).is_err());
/// assert_eq!(r.recv(), Ok(1));
///
/// let (s, r) = chan::bounded(0);
/// heist::go(move || s.send(3).unwrap());
/// assert_eq!(r.recv(), Ok(3));
/// ```
///
/// # Panics
///
/// If there is no memory address for so many messages.
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    // One less than what stands for "without a bound".
    channel(cap.min(usize::MAX - 1))
}

fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = handle::new(capacity);
    (Sender { channel: sender }, Receiver { source: Source::Channel(receiver) })
}

/// A channel with one message, which comes so much later: the moment of it.
///
/// Costs nothing while nobody waits. If the time is longer than the clock can
/// tell, the message never comes.
///
/// ```
/// use heist::chan;
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// let timeout = chan::after(Duration::from_millis(5));
/// assert!(timeout.try_recv().is_err());
/// assert!(timeout.recv().unwrap() >= begin + Duration::from_millis(5));
/// ```
pub fn after(duration: Duration) -> Receiver<Instant> {
    clock::instant().checked_add(duration).map_or_else(never, at)
}

/// A channel with one message, which comes at that moment: the moment itself.
///
/// ```
/// use heist::chan;
/// use std::time::{Duration, Instant};
///
/// let moment = Instant::now() + Duration::from_millis(5);
/// assert_eq!(chan::at(moment).recv(), Ok(moment));
/// ```
pub fn at(when: Instant) -> Receiver<Instant> {
    Receiver { source: Source::Timer(Arc::new(Timer::new(when, None))) }
}

/// A channel with a message every so often: the moment of it. The clones of the
/// receiver share them.
///
/// At most one message waits to be received: the next comes a period after the
/// last one was taken, or after its time, whichever is later.
///
/// ```
/// use heist::chan;
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// let ticks = chan::tick(Duration::from_millis(2));
/// ticks.recv().unwrap();
/// ticks.recv().unwrap();
/// assert!(begin.elapsed() >= Duration::from_millis(4));
/// ```
pub fn tick(duration: Duration) -> Receiver<Instant> {
    match clock::instant().checked_add(duration) {
        Some(when) => {
            Receiver { source: Source::Timer(Arc::new(Timer::new(when, Some(duration)))) }
        }
        None => never(),
    }
}

/// A channel without messages, that is never disconnected: for a case of a
/// select that is not always there.
///
/// ```
/// use heist::chan;
/// use std::time::Duration;
///
/// let timeout: Option<Duration> = None;
/// let expired = timeout.map_or_else(chan::never, chan::after);
/// assert!(expired.try_recv().is_err());
/// ```
pub const fn never<T>() -> Receiver<T> {
    Receiver { source: Source::Nowhere(PhantomData) }
}
