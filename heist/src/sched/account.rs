//! What those who compute have had of the CPUs, and what they are owed.
//!
//! Frozen goroutines have their turns one after the other, but a turn is not always as much:
//! those with a P share the CPUs with runners and with other programs, and how long each runs
//! is the kernel's to say. So a turn (from one freeze to the next, with a P and without) is
//! worth a certain time on a CPU. Who gets more of it or less has that settled by the length
//! of its next slice, and by who is frozen first: deficit round robin. Without that, a
//! hundred that compute differ by a half after 16 turns.
//!
//! An account belongs to an M, and is for the goroutine that was last frozen there or lost its
//! P: a frozen one stays on its thread. One that parks and goes on elsewhere begins anew.
//! Slices that ended by a call of the runtime do not count: there it waits for its turn as
//! others do. sysmon, which freezes, keeps it; a new thread of the M begins a new one.

use super::find::SLICE;
use crate::prim::atomic::{AtomicU64, Ordering};

/// The shortest and the longest slice. Longer ones would keep sleepers waiting.
const SHORTEST: i64 = SLICE as i64 / 4;
const LONGEST: i64 = 2 * SLICE as i64;

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

/// The account of an M. Times are those of its thread's CPU clock.
#[derive(Default)]
pub(crate) struct Account {
    /// Whose it is: the goroutine's number. 0 is nobody's.
    g: AtomicU64,
    /// How long it has run of this turn, until `mark`.
    had: AtomicU64,
    /// When it was frozen, or lost its P.
    mark: AtomicU64,
    /// Signed: who has had too much owes it.
    owed: AtomicU64,
}

impl Account {
    /// The M gets another thread, which has another clock.
    pub(super) fn forget(&self) {
        self.g.store(0, Ordering::Relaxed);
    }

    /// A goroutine loses its P that was first seen with it when the clock showed `seen`.
    pub(super) fn lose_p(&self, g: u64, seen: Option<u64>, now: u64) {
        if self.g.swap(g, Ordering::Relaxed) != g {
            self.owed.store(0, Ordering::Relaxed);
            self.had.store(0, Ordering::Relaxed);
            // It was not frozen here.
            self.mark.store(seen.unwrap_or(now), Ordering::Relaxed);
        }
        let began = self.began(g, seen).unwrap_or(now);
        self.had.store(self.had_since(began, now), Ordering::Relaxed);
        self.mark.store(now, Ordering::Relaxed);
    }

    /// Its turn has ended, which was worth so much.
    pub(super) fn settle(&self, now: u64, worth: u64) {
        let had = self.had_since(self.mark.swap(now, Ordering::Relaxed), now);
        let owed = self.owed().saturating_add_unsigned(worth).saturating_sub_unsigned(had);
        self.owed.store(owed.clamp(-MOST, MOST).cast_unsigned(), Ordering::Relaxed);
        self.had.store(0, Ordering::Relaxed);
    }

    /// When a goroutine that was first seen with its P at `seen` has had its slice.
    pub(super) fn end_of_slice(&self, g: u64, seen: Option<u64>) -> Option<u64> {
        let owed = if self.g.load(Ordering::Relaxed) == g { self.owed() } else { 0 };
        let slice = (SLICE as i64 + owed).clamp(SHORTEST, LONGEST) as u64;
        self.began(g, seen).map(|began| began.saturating_add(slice))
    }

    /// How much more than it is owed it has had of this turn.
    pub(super) fn over(&self, now: u64) -> i64 {
        let had = self.had_since(self.mark.load(Ordering::Relaxed), now);
        had.min(i64::MAX as u64).cast_signed().saturating_sub(self.owed())
    }

    /// When a goroutine that was first seen with its P at `seen` began: then, or, if it was
    /// frozen shortly before, when it was.
    fn began(&self, g: u64, seen: Option<u64>) -> Option<u64> {
        let mark = self.mark.load(Ordering::Relaxed);
        let since = seen.and_then(|seen| seen.checked_sub(mark));
        let frozen = self.g.load(Ordering::Relaxed) == g && since.is_some_and(|ns| ns < SLICE);
        if frozen { Some(mark) } else { seen }
    }

    fn had_since(&self, mark: u64, now: u64) -> u64 {
        self.had.load(Ordering::Relaxed).saturating_add(now.saturating_sub(mark))
    }

    fn owed(&self) -> i64 {
        self.owed.load(Ordering::Relaxed).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 7;

    /// A turn that begins at `at`: with a P, then without, each for so long. Returns its end.
    fn turn(account: &Account, at: u64, with: u64, without: u64) -> u64 {
        // sysmon sees it a little later.
        account.lose_p(G, Some(at + 1000), at + with);
        account.settle(at + with + without, 2 * SLICE);
        at + with + without
    }

    fn slice(account: &Account, at: u64) -> u64 {
        account.end_of_slice(G, Some(at + 1000)).unwrap() - at
    }

    #[test]
    fn who_has_had_more_has_a_shorter_slice_next() {
        let account = Account::default();
        assert_eq!(account.end_of_slice(G, Some(5)), Some(5 + SLICE), "it has none");
        assert_eq!(account.end_of_slice(G, None), None, "nobody knows when it began");
        account.lose_p(G, Some(1000), 1000 + SLICE);
        account.settle(1000 + 2 * SLICE, 2 * SLICE);
        let at = turn(&account, 1000 + 2 * SLICE, SLICE, SLICE + 300);
        assert_eq!(slice(&account, at), SLICE - 300);
        let at = turn(&account, at, SLICE - 300, SLICE);
        assert_eq!(slice(&account, at), SLICE, "settled");
        let at = turn(&account, at, SLICE / 2, SLICE);
        assert_eq!(slice(&account, at), SLICE + SLICE / 2);
        assert_eq!(account.end_of_slice(G + 1, Some(at)), Some(at + SLICE), "another one");
        account.forget();
        assert_eq!(account.end_of_slice(G, Some(at)), Some(at + SLICE), "forgotten");
    }

    #[test]
    fn who_has_had_most_is_frozen_first() {
        let (long, short) = (Account::default(), Account::default());
        long.lose_p(1, Some(0), 2 * SLICE);
        short.lose_p(2, Some(50 * SLICE), 51 * SLICE);
        assert!(long.over(2 * SLICE) > short.over(51 * SLICE));
        assert!(long.over(2 * SLICE) < short.over(53 * SLICE), "it ran on");
        long.settle(2 * SLICE, SLICE);
        assert_eq!(long.over(2 * SLICE), SLICE as i64, "it owes that");
    }

    /// It was frozen, went on, and called the runtime; other goroutines ran on the thread.
    #[test]
    fn what_it_did_not_have_to_be_stopped_for_does_not_count() {
        let account = Account::default();
        account.lose_p(G, Some(0), SLICE);
        account.settle(2 * SLICE, 2 * SLICE);
        let (seen, now) = (500 * SLICE, 501 * SLICE);
        assert_eq!(account.end_of_slice(G, Some(seen)), Some(seen + SLICE));
        account.lose_p(G, Some(seen), now);
        assert_eq!(account.over(now), SLICE as i64);
    }

    #[test]
    fn accidents_are_not_made_up_for_for_ever() {
        let account = Account::default();
        account.lose_p(G, Some(0), 1);
        account.settle(u64::MAX, SLICE);
        assert_eq!(account.owed(), -MOST);
        account.settle(u64::MAX, u64::MAX);
        assert_eq!(account.owed(), MOST);
        account.lose_p(G, Some(3), 5);
        assert_eq!(account.over(5), 2 - MOST, "a clock that went back");
    }

    #[test]
    fn a_turn_is_worth_a_slice_and_what_runners_get() {
        assert_eq!(worth(2, 0), SLICE);
        assert_eq!(worth(2, 2), 2 * SLICE);
        assert_eq!(worth(4, 1), SLICE + SLICE / 4);
        assert_eq!(worth(1, usize::MAX), 9 * SLICE);
    }
}
