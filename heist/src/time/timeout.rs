//! Giving a function so long.

use super::Duration;
use crate::prim::clock;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::waiter::{Slept, Turn, Waiter};
use crate::thread;
use std::fmt;
use std::panic::{Location, resume_unwind};

/// The time was over first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// Calls `f` on a goroutine of its own and waits for its value, at most for so
/// long. If `f` panics, so does the caller.
///
/// Code that blocks cannot be cut off in the middle: after a timeout `f` goes on
/// by itself, and its value is dropped. Give it something to notice by, a
/// channel or a deadline of its own, if it is to stop.
///
/// # Errors
///
/// [`Elapsed`] if `f` has not returned by then.
///
/// ```
/// use heist::time::{self, Duration};
///
/// assert_eq!(time::timeout(Duration::from_secs(10), || 6 * 7), Ok(42));
/// let slow = time::timeout(Duration::from_millis(1), || time::sleep(Duration::from_secs(1)));
/// assert_eq!(slow.unwrap_err().to_string(), "deadline has elapsed");
/// ```
#[track_caller]
pub fn timeout<F, T>(duration: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    /// Says that it is over, however it ends.
    struct Over(Turn);
    impl Drop for Over {
        fn drop(&mut self) {
            if self.0.claim() {
                self.0.wake();
            }
        }
    }
    let deadline = clock::after(duration);
    let turn = Waiter::current().begin();
    let over = Over(turn);
    let spawned = thread::Builder::new().spawn(move || {
        let _over = over;
        f()
    });
    let handle = spawned.unwrap_or_else(|error| {
        // The closure is gone, and has said that it is over.
        let _ = turn.give_up();
        park::unwind_if_closing();
        panic!("{error}");
    });
    match turn.sleep(Some(deadline), WaitReason::Join, Location::caller()) {
        Slept::Expired => Err(Elapsed(())),
        Slept::Unwind => park::unwind(),
        Slept::Woken => Ok(handle.join().unwrap_or_else(|payload| resume_unwind(payload))),
    }
}
