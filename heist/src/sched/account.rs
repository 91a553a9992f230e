//! What those who compute have had of the CPUs, and what they are owed.
//!
//! Frozen goroutines have their turns one after the other, but a turn is not always as much:
//! those with a P share the CPUs with runners and with other programs, and how long each runs
//! is the kernel's to say. So a turn (from one freeze to the next, with a P and without) is
//! worth a certain time on a CPU. Who gets more of it or less has that settled by the length
//! of its next slice: deficit round robin. Without that, a hundred that compute differed by a
//! factor of two after ten seconds.
//!
//! An account belongs to an M: a frozen goroutine stays on its thread. Only sysmon, which
//! freezes, reads and writes it.

use super::find::SLICE;
use crate::prim::atomic::{AtomicU64, Ordering};

/// The shortest and the longest slice.
const SHORTEST: i64 = SLICE as i64 / 4;
const LONGEST: i64 = 3 * SLICE as i64;

/// The most that is owed, by either side: what somebody lost or gained by a long accident is
/// not made up for by many turns.
const MOST: i64 = 8 * SLICE as i64;

/// What a turn is worth while so many others compute without a P: a slice, and the same rate
/// without a P.
pub(super) fn worth(procs: u32, runners: usize) -> u64 {
    let procs = u64::from(procs.max(1));
    // There are not more that compute than the cap says, and it may say anything.
    SLICE + SLICE * (runners as u64).min(8 * procs) / procs
}

/// The account of an M.
#[derive(Default)]
pub(crate) struct Account {
    /// Whose it is: the goroutine's number. 0 is nobody's.
    g: AtomicU64,
    /// The CPU clock of the thread when the turn began.
    began: AtomicU64,
    /// Signed: who has had too much owes it.
    owed: AtomicU64,
}

impl Account {
    /// A goroutine loses its P that began to run when the clock showed that, unless it has an
    /// account already.
    pub(super) fn open(&self, g: u64, began: u64) {
        if self.g.load(Ordering::Relaxed) != g {
            self.g.store(g, Ordering::Relaxed);
            self.began.store(began, Ordering::Relaxed);
            self.owed.store(0, Ordering::Relaxed);
        }
    }

    /// Its turn has ended, which was worth so much.
    pub(super) fn settle(&self, cpu: u64, worth: u64) {
        let had = cpu.saturating_sub(self.began.swap(cpu, Ordering::Relaxed));
        let owed = self.owed().saturating_add_unsigned(worth).saturating_sub_unsigned(had);
        self.owed.store(owed.clamp(-MOST, MOST).cast_unsigned(), Ordering::Relaxed);
    }

    /// What the clock of the thread shows when a goroutine that has an account has had its
    /// slice.
    pub(super) fn end_of_slice(&self, g: u64) -> Option<u64> {
        if self.g.load(Ordering::Relaxed) != g {
            return None;
        }
        let slice = (SLICE as i64 + self.owed()).clamp(SHORTEST, LONGEST) as u64;
        Some(self.began.load(Ordering::Relaxed).saturating_add(slice))
    }

    /// How much more than it is owed it has had of this turn, when the clock shows that.
    pub(super) fn over(&self, cpu: u64) -> i64 {
        let had = cpu.saturating_sub(self.began.load(Ordering::Relaxed));
        had.min(i64::MAX as u64).cast_signed().saturating_sub(self.owed())
    }

    fn owed(&self) -> i64 {
        self.owed.load(Ordering::Relaxed).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_had_more_has_a_shorter_slice_next() {
        let account = Account::default();
        let slice =
            |g| account.end_of_slice(g).map(|end| end - account.began.load(Ordering::Relaxed));
        assert_eq!(slice(7), None, "it has none");
        account.open(7, 1_000);
        assert_eq!((slice(7), slice(8)), (Some(SLICE), None));
        account.settle(1_000 + 2 * SLICE + 300, 2 * SLICE);
        assert_eq!(slice(7), Some(SLICE - 300));
        account.open(7, 5);
        assert_eq!(slice(7), Some(SLICE - 300), "it is open");
        account.settle(1_000 + 4 * SLICE, 2 * SLICE);
        assert_eq!(slice(7), Some(SLICE), "settled");
        account.open(8, 5);
        assert_eq!((slice(7), slice(8)), (None, Some(SLICE)), "another one's now");
    }

    #[test]
    fn accidents_are_not_made_up_for_for_ever() {
        let account = Account::default();
        account.open(1, 0);
        account.settle(u64::MAX, SLICE);
        assert_eq!(account.owed(), -MOST);
        assert_eq!(account.end_of_slice(1), Some(u64::MAX));
        account.open(2, 1_000 * SLICE);
        account.settle(0, u64::MAX);
        assert_eq!(account.owed(), MOST, "a clock of another thread");
        assert_eq!(account.end_of_slice(2), Some(LONGEST as u64));
    }

    #[test]
    fn a_turn_is_worth_a_slice_and_what_runners_get() {
        assert_eq!(worth(2, 0), SLICE);
        assert_eq!(worth(2, 2), 2 * SLICE);
        assert_eq!(worth(4, 1), SLICE + SLICE / 4);
        assert_eq!(worth(1, usize::MAX), 9 * SLICE);
    }
}
