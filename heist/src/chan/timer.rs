//! Channels that the clock sends to: [`after`], [`at`], [`tick`].
//!
//! They hold a moment and nothing else. Whoever receives sleeps until then, so
//! the scheduler's timers know of such a channel only while somebody waits at it.
//!
//! [`after`]: super::after
//! [`at`]: super::at
//! [`tick`]: super::tick

use super::channel::Site;
use super::error::TryRecvError;
use super::until::Until;
use crate::prim::clock;
use crate::prim::latch::Latch;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::waiter::{Slept, Waiter};
use std::time::{Duration, Instant};

/// The clock's channel. All receivers of it share one.
pub(super) struct Timer<T> {
    /// When the next message comes; `None` if there will be none.
    next: Latch<Option<Instant>>,
    /// How long it is from one message to the next, if there is a next.
    period: Option<Duration>,
    /// Makes the message: a receiver is one of `T`, and this only ever one of
    /// instants.
    message: fn(Instant) -> T,
}

impl Timer<Instant> {
    /// One message at `when`, and with a period more of them.
    pub(super) fn new(when: Instant, period: Option<Duration>) -> Self {
        Timer { next: Latch::new(Some(when)), period, message: std::convert::identity }
    }
}

impl<T> Timer<T> {
    /// When the next message comes.
    pub(super) fn next(&self) -> Option<Instant> {
        *self.next.lock()
    }

    /// Takes the next message if it comes by `by`, and returns its moment.
    fn claim(&self, by: Option<Instant>, now: Instant) -> Option<Instant> {
        let mut next = self.next.lock();
        let moment = (*next)?;
        if by.is_some_and(|by| moment > by) {
            return None;
        }
        // A receiver that comes late does not make up for what it has missed.
        *next = self.period.and_then(|period| moment.max(now).checked_add(period));
        Some(moment)
    }

    /// Takes the message that is there.
    pub(super) fn take_due(&self) -> Option<T> {
        let now = clock::instant();
        self.claim(Some(now), now).map(self.message)
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.take_due().ok_or_else(|| {
            park::poll_point();
            TryRecvError::Empty
        })
    }

    /// Receives, and sleeps until then. `Empty` means that the time is up.
    pub(super) fn recv(&self, until: Until, site: Site) -> Result<T, TryRecvError> {
        let now = clock::instant();
        let by = match until {
            Until::Moment(deadline) => Some(deadline),
            _ => None,
        };
        // Of several receivers, each has a message of its own to wait for.
        if self.period.is_some() {
            let Some(claimed) = self.claim(by, now) else { return sleep_in_vain(until, site) };
            sleep(Until::Moment(claimed), site);
            return Ok((self.message)(claimed));
        }
        if let Some(moment) = self.next().filter(|moment| by.is_none_or(|by| *moment <= by)) {
            sleep(Until::Moment(moment), site);
            if let Some(moment) = self.claim(by, now) {
                return Ok((self.message)(moment));
            }
        }
        sleep_in_vain(until, site)
    }

    /// Whether a message is there.
    pub(super) fn is_ready(&self) -> bool {
        self.next().is_some_and(|moment| moment <= clock::instant())
    }
}

/// Sleeps until then, when nothing will have come, or forever.
pub(super) fn sleep_in_vain<T>(until: Until, site: Site) -> Result<T, TryRecvError> {
    if !sleep(until, site) {
        park::poll_point();
    }
    Err(TryRecvError::Empty)
}

/// Sleeps until then, or forever. False if it is then already.
fn sleep(until: Until, site: Site) -> bool {
    let deadline = until.clock();
    if until.is_over(deadline) {
        return false;
    }
    let turn = Waiter::current().begin();
    match turn.sleep(deadline, WaitReason::ChanReceive, site) {
        Slept::Expired | Slept::Woken => true,
        Slept::Unwind => park::unwind(),
    }
}

#[cfg(all(test, not(sim)))]
mod tests {
    use crate::chan::{self, Receiver, select};
    use crate::runtime::{Builder, current_sched};
    use std::time::{Duration, Instant};

    const HOUR: Duration = Duration::from_secs(3600);

    /// What the timers of the caller's runtime hold.
    fn queued() -> usize {
        current_sched().ps().map(|p| p.timers.len()).sum()
    }

    /// The heaps know of these channels only while somebody waits at them.
    #[test]
    fn nobody_waits_and_the_heaps_are_empty() {
        Builder::new().max_procs(1).build().unwrap().run(|| {
            let channels: Vec<Receiver<Instant>> =
                (0..1000).flat_map(|_| [chan::after(HOUR), chan::tick(HOUR)]).collect();
            for channel in &channels {
                assert!(channel.try_recv().is_err());
                select! {
                    recv(channel) -> _ => unreachable!("not within the hour"),
                    default => {}
                }
            }
            assert_eq!(queued(), 0);

            let (s, r) = chan::bounded(0);
            let waits = crate::go(move || {
                select! {
                    recv(r) -> _ => {}
                    recv(channels[0]) -> _ => unreachable!("not within the hour"),
                    recv(channels[1]) -> _ => unreachable!("not within the hour"),
                }
            });
            while queued() == 0 {
                crate::thread::yield_now();
            }
            assert_eq!(queued(), 1, "one wait, until the earlier of both");
            s.send(()).unwrap();
            waits.join().unwrap();
        });
    }
}
