//! The lease of a P to an M: how a P can be taken from a goroutine that is
//! running, or blocked, in user code.
//!
//! A goroutine in user code needs no P until it calls the runtime. So while it
//! is out there, sysmon may take the P away for others, and the goroutine finds
//! out at its next entry. Entries are frequent and retakes are rare; the entry
//! therefore costs a plain store and a plain load, and the retake pays for the
//! fence on both sides (an asymmetric pair: membarrier(2), about 10 µs).
//!
//! | word | value | meaning |
//! |---|---|---|
//! | `inside` | 0, 1 | the M is in user code; in the runtime |
//! | `claim` | `NONE` | the M has its P |
//! | | `ASKED` | sysmon wants the P; undecided |
//! | | `TAKEN` | the M has no P, and must get one before it goes on |
//! | | `BORROWED` | sysmon uses the P for a moment; the M waits for that |
//!
//! # Why exactly one of them has the P
//!
//! Entry: store `inside = 1`, light barrier, load `claim`. Retake: store
//! `claim = ASKED`, heavy barrier, load `inside`. The barriers forbid that both
//! miss the other. If the retake sees `inside == 1` it withdraws. If the entry
//! sees `ASKED`, the two settle it by compare-and-swap on `claim`: the entry
//! tries `ASKED -> NONE` and keeps the P, the retake tries `ASKED -> TAKEN` and
//! has it; one of them fails and knows.

use crate::prim::atomic::{AtomicU32, Ordering, heavy_barrier, light_barrier};
use crate::prim::hint;

const NONE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const BORROWED: u32 = 3;

/// What an entry into the runtime found.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Entry {
    /// The M still has its P.
    Tenant,
    /// The P was taken: get one before doing anything that needs it.
    Evicted,
}

/// What a retake achieved.
#[allow(dead_code)] // sysmon retakes Ps once it preempts
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Retake {
    /// The caller has the P now.
    Taken,
    /// The M is in the runtime: it keeps its P, and will come to a safe point.
    Busy,
}

/// One M's side of the lease.
#[derive(Debug)]
pub(crate) struct Lease {
    inside: AtomicU32,
    claim: AtomicU32,
}

impl Lease {
    /// An M starts inside the runtime, without a P.
    pub(crate) fn new() -> Self {
        Lease { inside: AtomicU32::new(1), claim: AtomicU32::new(TAKEN) }
    }

    /// Whether the M is in the runtime. For its own thread.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != 0
    }

    /// User code calls the runtime.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Entry {
        self.inside.store(1, Ordering::Relaxed);
        light_barrier();
        // Acquire: pairs with the release of TAKEN in `retake`.
        match self.claim.load(Ordering::Acquire) {
            NONE => Entry::Tenant,
            _ => self.settle(),
        }
    }

    #[cold]
    fn settle(&self) -> Entry {
        loop {
            match self.claim.compare_exchange(ASKED, NONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) | Err(NONE) => return Entry::Tenant,
                Err(BORROWED) => hint::give_way(),
                Err(_) => return Entry::Evicted,
            }
        }
    }

    /// The runtime returns to user code.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the acquire in `retake`; whoever takes the P sees
        // all that the runtime did with it.
        self.inside.store(0, Ordering::Release);
    }

    /// The M has a P again.
    #[inline]
    pub(crate) fn renew(&self) {
        self.claim.store(NONE, Ordering::Relaxed);
    }

    /// The M has given its P up by itself: the next entry is told.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn end(&self) {
        self.claim.store(TAKEN, Ordering::Relaxed);
    }

    /// Tries to take the P from the M. One caller at a time.
    #[allow(dead_code)] // as `Retake`
    pub(crate) fn retake(&self) -> Retake {
        if self.ask_for(TAKEN) { Retake::Taken } else { Retake::Busy }
    }

    /// Uses the P of an M that is in user code, for a moment. `None` if the M is in
    /// the runtime, or has no P. One caller at a time, who also is the only one to
    /// [`retake`](Self::retake).
    pub(crate) fn borrow<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        if !self.ask_for(BORROWED) {
            return None;
        }
        let value = f();
        // Release: pairs with the acquire in `settle`.
        self.claim.store(NONE, Ordering::Release);
        Some(value)
    }

    /// Asks for the P, and has it if the M is not in the runtime.
    fn ask_for(&self, what: u32) -> bool {
        // An M without a P has nothing to give.
        if self.claim.compare_exchange(NONE, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        heavy_barrier();
        let to = if self.inside.load(Ordering::Acquire) == 0 { what } else { NONE };
        let settled = self.claim.compare_exchange(ASKED, to, Ordering::AcqRel, Ordering::Acquire);
        // Otherwise withdrawn, or the entry kept its P.
        settled.is_ok() && to == what
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_p_is_taken_only_from_user_code() {
        let lease = Lease::new();
        assert_eq!(lease.enter(), Entry::Evicted, "no P yet");
        lease.renew();
        assert_eq!(lease.retake(), Retake::Busy);
        lease.leave();
        assert_eq!(lease.retake(), Retake::Taken);
        assert_eq!(lease.enter(), Entry::Evicted);
        assert_eq!(lease.borrow(|| ()), None, "it has no P");
        lease.renew();
        assert_eq!(lease.borrow(|| ()), None, "it is in the runtime");
        lease.leave();
        assert_eq!(lease.borrow(|| 7), Some(7));
        assert_eq!(lease.enter(), Entry::Tenant);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    /// Two entries against a retake: the P is never used by both.
    #[test]
    fn entry_against_retake() {
        loom::model(|| {
            let shared = Arc::new((Lease::new(), Plain::new(0u32)));
            shared.0.renew();
            shared.1.set(shared.1.get() + 1);
            shared.0.leave();
            let sysmon = {
                let shared = shared.clone();
                loom::thread::spawn(move || match shared.0.retake() {
                    Retake::Taken => {
                        shared.1.set(shared.1.get() + 1);
                        true
                    }
                    Retake::Busy => false,
                })
            };
            let mut evicted = false;
            for _ in 0..2 {
                match shared.0.enter() {
                    Entry::Tenant => {
                        shared.1.set(shared.1.get() + 1);
                        shared.0.leave();
                    }
                    Entry::Evicted => {
                        evicted = true;
                        break;
                    }
                }
            }
            let taken = sysmon.join().unwrap();
            assert!(!evicted || taken, "evicted, but nobody has the P");
        });
    }

    /// Two entries against a loan: what belongs to the P is used by one at a time,
    /// and the M keeps its P.
    #[test]
    fn entry_against_borrow() {
        loom::model(|| {
            let shared = Arc::new((Lease::new(), Plain::new(0u32)));
            shared.0.renew();
            shared.1.set(1);
            shared.0.leave();
            let sysmon = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let loan = shared.0.borrow(|| shared.1.set(shared.1.get() + 1));
                    u32::from(loan.is_some())
                })
            };
            for _ in 0..2 {
                assert_eq!(shared.0.enter(), Entry::Tenant);
                shared.1.set(shared.1.get() + 1);
                shared.0.leave();
            }
            let borrowed = sysmon.join().unwrap();
            assert_eq!(shared.0.enter(), Entry::Tenant);
            assert_eq!(shared.1.get(), 3 + borrowed);
        });
    }
}
