//! Work and span of a computation, in the way of Cilkview.
//!
//! A computation that is measured runs on one goroutine: both branches of each fork, one
//! after the other. What each strand takes is added to the work, and along the longer
//! branch of each fork to the span.

use super::scope::inside;
use crate::prim::clock;
use crate::sched::forks::{self, List};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// What a fork costs whose branch goes to another P, in nanoseconds: it is shared, a
/// thief is woken, finds it and misses its caches.
const BURDEN: u64 = 10_000;

/// What [`measure`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measured {
    /// T1: the time of all strands, what one P takes.
    pub work: Duration,
    /// T∞: the time of the longest chain of strands, what any number of Ps take.
    pub span: Duration,
    /// The span if each fork on it went to another P, with what that costs.
    pub burdened_span: Duration,
    /// How many forks there were.
    pub forks: u64,
}

impl Measured {
    /// The most Ps that can be kept busy on average: work by span.
    pub fn parallelism(&self) -> f64 {
        ratio(self.work, self.span)
    }

    /// The same with the cost of sharing: how many Ps pay.
    pub fn burdened_parallelism(&self) -> f64 {
        ratio(self.work, self.burdened_span)
    }

    /// The time that so many Ps take at most, about: T1/P + T∞, with what sharing costs.
    pub fn bound(&self, procs: usize) -> Duration {
        self.work / u32::try_from(procs.max(1)).unwrap_or(u32::MAX) + self.burdened_span
    }

    /// What to do about it, for so many Ps.
    ///
    /// ```
    /// let (_, measured) = heist::par::measure(|| std::hint::black_box(7));
    /// assert!(measured.advice(8).contains("no forks"));
    /// ```
    pub fn advice(&self, procs: usize) -> String {
        let (plain, burdened) = (self.parallelism(), self.burdened_parallelism());
        let enough = procs as f64;
        if self.forks == 0 {
            "there are no forks: nothing can run in parallel".into()
        } else if plain < 1.5 {
            format!("a parallelism of {plain:.1}: one strand is nearly all of it; divide that")
        } else if plain < 2.0 * enough {
            format!(
                "a parallelism of {plain:.1} is little for {procs} Ps: make the longest chain \
                 shorter, or fork at more places"
            )
        } else if burdened < enough {
            format!(
                "sharing costs more than {procs} Ps gain ({burdened:.1}): the whole is small \
                 for them; give each more at a time"
            )
        } else {
            format!("enough for {procs} Ps: expect about {:.1} times the speed of one", {
                ratio(self.work, self.bound(procs))
            })
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "work {:.3?}, span {:.3?}, {} forks, parallelism {:.1}, burdened {:.1}",
            self.work,
            self.span,
            self.forks,
            self.parallelism(),
            self.burdened_parallelism()
        )
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}

/// Calls `f`, one branch after the other, and measures it: how much there is to do, and
/// how much of that must be done one after the other. The forks that count are those of
/// [`join`](super::join()) and of what is made of it.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() < 100 {
///         return numbers.iter().sum();
///     }
///     let (low, high) = numbers.split_at(numbers.len() / 2);
///     let (a, b) = heist::par::join(|| sum(low), || sum(high));
///     a + b
/// }
/// let numbers: Vec<u64> = (0..100_000).collect();
/// let (total, measured) = heist::par::measure(|| sum(&numbers));
/// assert_eq!(total, 4_999_950_000);
/// assert_eq!(measured.forks, 1023);
/// assert!(measured.work > measured.span);
/// println!("{measured}: {}", measured.advice(8));
/// ```
#[track_caller]
pub fn measure<R: Send>(f: impl FnOnce() -> R + Send) -> (R, Measured) {
    inside(Location::caller(), move || measure_here(f))
}

fn measure_here<R>(f: impl FnOnce() -> R) -> (R, Measured) {
    let Some(list) = forks::own_list() else {
        // A runtime that closes: nothing forks any more.
        return (f(), Measured::default());
    };
    /// Ends the measurement also when `f` panics.
    struct Metering(&'static List, *mut ());
    impl Drop for Metering {
        fn drop(&mut self) {
            self.0.meter.set(self.1);
            forks::refresh();
        }
    }
    let mut meter = Meter::new();
    let metering = Metering(list, list.meter.replace((&raw mut meter).cast()));
    forks::refresh();
    let value = f();
    drop(metering);
    meter.strand_ends();
    let Chain { work, span, burdened } = meter.chain;
    let nanos = Duration::from_nanos;
    let measured = Measured {
        work: nanos(work),
        span: nanos(span),
        burdened_span: nanos(burdened),
        forks: meter.forks,
    };
    (value, measured)
}

/// What strands that follow each other take, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    work: u64,
    span: u64,
    burdened: u64,
}

/// The measurement of a goroutine.
struct Meter {
    /// Since the last fork or join whose branches are not done.
    chain: Chain,
    /// When the present strand began.
    since: u64,
    /// What two readings of the clock cost, which is not the program's.
    reading: u64,
    forks: u64,
}

impl Meter {
    fn new() -> Self {
        let reading = (0..100).map(|_| {
            let begin = clock::now();
            clock::now() - begin
        });
        let reading = reading.min().unwrap_or(0);
        Meter { chain: Chain::default(), since: clock::now(), reading, forks: 0 }
    }

    fn strand_ends(&mut self) {
        let now = clock::now();
        let took = (now - self.since).saturating_sub(self.reading);
        self.since = now;
        self.chain.work += took;
        self.chain.span += took;
        self.chain.burdened += took;
    }

    fn of(list: &'static List) -> *mut Meter {
        list.meter.get().cast()
    }
}

/// A fork that is measured: made before the first branch, told when the second begins,
/// dropped when that is done.
pub(super) struct Split {
    list: &'static List,
    before: Chain,
    first: Chain,
}

impl Split {
    pub(super) fn new(list: &'static List) -> Self {
        // SAFETY: the meter is in the frame of `measure_here`, further up on the stack
        // of this goroutine, and nothing refers to it but for moments like this.
        let meter = unsafe { &mut *Meter::of(list) };
        meter.strand_ends();
        meter.forks += 1;
        let before = std::mem::take(&mut meter.chain);
        Split { list, before, first: Chain::default() }
    }

    pub(super) fn next(&mut self) {
        // SAFETY: as in `new`.
        let meter = unsafe { &mut *Meter::of(self.list) };
        meter.strand_ends();
        self.first = std::mem::take(&mut meter.chain);
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        let meter = unsafe { &mut *Meter::of(self.list) };
        meter.strand_ends();
        let second = meter.chain;
        meter.chain = Chain {
            work: self.before.work + self.first.work + second.work,
            span: self.before.span + self.first.span.max(second.span),
            burdened: self.before.burdened + self.first.burdened.max(second.burdened) + BURDEN,
        };
    }
}
