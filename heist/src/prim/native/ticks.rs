//! The present moment by the processor's own counter.
//!
//! Half of what `clock_gettime` takes is waiting: it lets all instructions before it end, so
//! that readings are in order (23 ns on a virtual machine, where the counter alone takes 10,
//! during which others go on). What is to be due after some time need not be in order with
//! anything. So a P keeps a pair of readings, of the clock and of the counter ([`Pace`]), and
//! counts on from there for up to a millisecond.
//!
//! That is the kernel's own arithmetic where its clock goes by the same counter, which it only
//! does if that runs evenly and alike on all CPUs ([`is_the_clock`]). Elsewhere, and until the
//! rate is known, it is the clock that is read.
//!
//! *Not early*: the counter is read first, so that a pair is late by as long as the clock took;
//! the rate is rounded up by more than it may be wrong; and [`AHEAD`] is for a counter that is
//! read before its turn. That is a fifth of a microsecond in all. A rate is believed if it was
//! measured twice: where the counter runs on while the machine is suspended, and the clock does
//! not, one that was measured across that makes no sense. Should the counter be found to have
//! been behind the clock all the same, it is not used any more.

use super::clock;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// For how many ticks a pair is good: a millisecond or less at 2 GHz and more.
const FRESH: u64 = 1 << 21;

/// How many ticks a pair may take: else its thread was interrupted between the two.
const TIGHT: u64 = 2_000;

/// How many nanoseconds two pairs are apart that tell the rate. In the least of them the
/// readings at both ends are wrong by a microsecond at the most, which is 40 of a million; after
/// the most the machine may have slept, or the clock been set right.
const APART: std::ops::Range<u64> = 50_000_000..5_000_000_000;

/// What is added to the rate, of a million.
const ROUND_UP: u64 = 100;

/// By how much two measurements may differ that are of the same rate, of a million.
const ALIKE: u64 = 150;

/// How many nanoseconds before its turn a counter may be read: as long as a processor can be
/// busy with what comes before.
const AHEAD: u64 = 30;

/// How far behind the clock, in nanoseconds, is not to be explained by that.
const BEHIND: u64 = 2_000;

/// Nanoseconds in 2³² ticks; [`UNKNOWN`], or [`NONE`].
static RATE: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = 0;
/// The clock does not go by the counter.
const NONE: u64 = 1;

/// A moment by the clock and by the counter.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    nanos: u64,
}

impl Pair {
    const NEVER: Pair = Pair { ticks: 0, nanos: 0 };

    /// The moment; and the pair, unless something came between its two readings.
    fn read() -> (u64, Option<Pair>) {
        let ticks = counter();
        let nanos = clock::now();
        let is_tight = counter().wrapping_sub(ticks) < TIGHT;
        (nanos, is_tight.then_some(Pair { ticks, nanos }))
    }

    /// The moment of a later tick that is no more than 2³² away.
    #[inline(always)]
    fn count_on(self, ticks: u64, rate: u64) -> u64 {
        self.nanos + (((ticks - self.ticks) * rate) >> 32)
    }
}

/// What keeps the time for a P.
#[derive(Debug)]
pub(crate) struct Pace {
    pair: Cell<Pair>,
    /// From which on the rate is learned.
    first: Cell<Pair>,
    /// What it was the last time.
    learned: Cell<u64>,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        let never = Cell::new(Pair::NEVER);
        Pace { pair: Cell::new(Pair::NEVER), first: never, learned: Cell::new(UNKNOWN) }
    }

    /// Nanoseconds on the monotonic clock: not less than [`clock::now`] would tell, and not
    /// more than some hundred more.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // Relaxed: a number, and whoever sees an older one does with that.
        let rate = RATE.load(Ordering::Relaxed);
        if rate > NONE {
            let (ticks, pair) = (counter(), self.pair.get());
            // One that has gone back, since its machine was moved, is not fresh either.
            if ticks.wrapping_sub(pair.ticks) < FRESH {
                return pair.count_on(ticks, rate);
            }
        }
        self.look()
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> u64 {
        let rate = RATE.load(Ordering::Relaxed);
        if rate == NONE || rate == UNKNOWN && !is_the_clock() {
            RATE.store(NONE, Ordering::Relaxed);
            return clock::now();
        }
        let (now, Some(pair)) = Pair::read() else { return clock::now() };
        match learn(self.first.get(), pair) {
            Learned::Rate(new) => {
                self.first.set(pair);
                if are_alike(self.learned.replace(new), new) || are_alike(rate, new) {
                    // Not if it was found to be of no use meanwhile.
                    let (one, other) = (Ordering::Relaxed, Ordering::Relaxed);
                    let _ = RATE.compare_exchange(rate, new, one, other);
                }
            }
            Learned::Nothing => {}
            Learned::BeginAnew => self.first.set(pair),
        }
        if rate != UNKNOWN && was_behind(self.pair.get(), pair, rate) {
            RATE.store(NONE, Ordering::Relaxed);
        }
        self.pair.set(Pair { nanos: pair.nanos + AHEAD, ..pair });
        now
    }
}

/// What two pairs tell.
#[derive(Debug, PartialEq, Eq)]
enum Learned {
    /// Nanoseconds in 2³² ticks, rounded up.
    Rate(u64),
    /// They are too close.
    Nothing,
    /// They are too far apart, or what is between them makes no sense.
    BeginAnew,
}

fn learn(first: Pair, last: Pair) -> Learned {
    let nanos = last.nanos.saturating_sub(first.nanos);
    if nanos < APART.start {
        return Learned::Nothing;
    }
    let ticks = last.ticks.saturating_sub(first.ticks);
    if nanos >= APART.end || ticks == 0 {
        return Learned::BeginAnew;
    }
    let rate = (u128::from(nanos) << 32) * u128::from(1_000_000 + ROUND_UP)
        / (u128::from(ticks) * 1_000_000);
    // No counter takes 256 ns for a tick, and `count_on` would overflow.
    match u64::try_from(rate) {
        Ok(rate @ 2..0x100_0000_0000) => Learned::Rate(rate),
        _ => Learned::BeginAnew,
    }
}

/// Whether two measurements are of the same rate.
fn are_alike(one: u64, other: u64) -> bool {
    one.abs_diff(other) < other / 1_000_000 * ALIKE
}

/// Whether who counted on from `before` would have been behind the clock just now. Of a long
/// time ago that says nothing.
fn was_behind(before: Pair, now: Pair, rate: u64) -> bool {
    now.ticks.wrapping_sub(before.ticks) < 4 * FRESH
        && before.count_on(now.ticks, rate) + BEHIND < now.nanos
}

/// Whether the kernel's clock goes by this counter.
#[cfg(target_arch = "x86_64")]
fn is_the_clock() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        std::fs::read_to_string(path).is_ok_and(|name| name.trim() == "tsc")
    })
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: all processors with 64 bits have it. Where the kernel forbids it to programs
    // (prctl PR_SET_TSC), its own clock would end them as well.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Elsewhere a reading of the clock was not measured.
#[cfg(not(target_arch = "x86_64"))]
fn is_the_clock() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_time_and_is_rounded_up() {
        let first = Pair { ticks: 5_000, nanos: 7_000 };
        let after = |ticks, nanos| {
            learn(first, Pair { ticks: first.ticks + ticks, nanos: first.nanos + nanos })
        };
        let long = APART.start;
        assert_eq!(after(long, long - 1), Learned::Nothing);
        assert_eq!(after(long, APART.end), Learned::BeginAnew, "who knows what was");
        assert_eq!(after(0, long), Learned::BeginAnew, "it stands still");
        assert_eq!(after(1, long), Learned::BeginAnew, "it hardly moves");
        let Learned::Rate(rate) = after(2 * long, long) else { panic!("two ticks in each") };
        let exact = 1u64 << 31;
        assert!((1..=ROUND_UP + 1).contains(&((rate - exact) / (exact / 1_000_000))), "{rate}");
        assert_eq!(first.count_on(7_000, exact), 8_000);
    }

    #[test]
    fn a_rate_across_a_suspension_is_not_believed() {
        let first = Pair { ticks: 5_000, nanos: 7_000 };
        let after = |ticks, nanos| {
            let Learned::Rate(rate) = learn(first, Pair { ticks, nanos }) else { panic!() };
            rate
        };
        let (usual, again) = (after(200_000_000, 100_000_000), after(400_000_000, 200_000_100));
        assert!(are_alike(usual, again) && !are_alike(UNKNOWN, usual));
        let hour = after(7_200_000_000_000, 100_000_000);
        assert!(!are_alike(usual, hour) && !are_alike(hour, usual));
    }

    #[test]
    fn a_counter_that_was_behind_is_found_out() {
        let (before, rate) = (Pair { ticks: 1_000, nanos: 1_000 }, 1 << 32);
        let after = |ticks, nanos| was_behind(before, Pair { ticks, nanos }, rate);
        assert!(!after(1_001_000, 1_001_000) && !after(1_001_000, 999_000));
        assert!(!after(1_001_000, 1_001_000 + BEHIND) && after(1_001_000, 1_001_001 + BEHIND));
        assert!(!after(1_000 + 4 * FRESH, 900_000_000), "long ago");
        assert!(!after(500, 900_000_000), "it has gone back");
    }

    /// Whoever sets a timer by it is not early; and it does not run away.
    #[test]
    fn it_is_not_behind_the_clock() {
        let pace = Pace::new();
        let begin = clock::now();
        let (mut counted, mut most) = (0, 0);
        while counted < 100_000 && clock::now() < begin + 1_000_000_000 {
            let before = clock::now();
            let now = pace.now();
            assert!(now >= before, "{} ns behind", before - now);
            most = most.max(now.saturating_sub(clock::now()));
            counted += u64::from(RATE.load(Ordering::Relaxed) > NONE);
        }
        assert!(most < 10_000, "{most} ns ahead");
        assert_eq!(counted > 0, is_the_clock(), "{RATE:?}");
    }
}
