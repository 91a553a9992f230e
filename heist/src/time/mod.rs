//! Sleeping, timers, tickers and timeouts.
//!
//! Everything here works on goroutines, which park, and on plain OS threads,
//! which block.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`sleep`], [`sleep_until`] |
//! | `timer.rs` | [`Timer`]: a function that is called later |
//! | `ticker.rs` | [`Ticker`]: once a period |
//! | `timeout.rs` | [`timeout`]: a function that has so long |
//!
//! ```
//! use heist::time::{self, Duration, Instant};
//!
//! let begin = Instant::now();
//! heist::run(|| time::sleep(Duration::from_millis(5)));
//! assert!(begin.elapsed() >= Duration::from_millis(5));
//! ```

mod ticker;
mod timeout;
mod timer;

pub use ticker::Ticker;
pub use timeout::{Elapsed, timeout};
pub use timer::Timer;

use crate::prim::{clock, nanos};
use crate::sched::g::WaitReason;
use crate::sched::waiter::Waiter;
use crate::sched::{nap, park};
use std::panic::Location;

pub use std::time::{
    Duration, Instant, SystemTime, SystemTimeError, TryFromFloatSecsError, UNIX_EPOCH,
};

/// Sleeps for at least so long. Nothing but the calling goroutine, or the
/// calling thread, waits; a sleep of [`Duration::MAX`] does not end.
///
/// ```
/// heist::time::sleep(std::time::Duration::from_micros(50));
/// ```
#[inline] // as `park::yield_now`: one return less that the CPU mispredicts
#[track_caller]
pub fn sleep(duration: Duration) {
    if duration.is_zero() {
        return for_no_time();
    }
    nap::sleep(nanos(duration), Location::caller());
}

/// Not a part of [`sleep`]: what it would need on the stack, all who sleep would have there.
#[cold]
#[inline(never)]
fn for_no_time() {
    crate::thread::yield_now();
}

/// Sleeps until the moment has come.
///
/// ```
/// use heist::time::{self, Duration, Instant};
///
/// let soon = Instant::now() + Duration::from_millis(1);
/// time::sleep_until(soon);
/// assert!(Instant::now() >= soon);
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) {
    let left = deadline.saturating_duration_since(clock::instant());
    if left.is_zero() {
        park::poll_point();
    } else {
        nap::sleep(nanos(left), Location::caller());
    }
}

/// Not by a timer that is due in centuries: whoever looks for deadlocks sees that nothing
/// ends it.
fn sleep_for_ever(site: &'static Location<'static>) -> ! {
    loop {
        Waiter::current().sleep(WaitReason::Sleep, site);
    }
}
