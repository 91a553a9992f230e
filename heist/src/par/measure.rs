//! Work and span of a computation, in the way of Cilkview.
//!
//! A computation that is measured runs on one goroutine: both branches of each fork, one
//! after the other, and the closures of a scope when its body is done. What each strand
//! takes is added to the work, and along the longer branch of each fork to the span.

use super::scope::inside;
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::sched::forks::{self, List};
use crate::sched::jobs::Job;
use crate::stack;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::ptr;
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
/// how much of that must be done one after the other.
///
/// What counts as a fork: [`join`](super::join()) and all that is made of it
/// ([`par_for`](super::par_for()), [`map_reduce`](super::map_reduce), sorting, rayon's
/// iterators), and what is spawned in a [`scope`](super::scope()) of either kind, whose
/// closures run when its body is done. What does not: goroutines, closures that are
/// [spawned](super::spawn()) without a scope or [broadcast](super::broadcast()), and what
/// is installed on another pool. They run elsewhere as ever; the time that `f` waits for
/// them is a part of its strand.
///
/// A measurement within another one is a part of it: what it finds counts there, too.
///
/// Since all of it runs on the calling goroutine, branches that block on each other must
/// not be measured: the first would wait for ever.
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
    if !list.meter.get().is_null() {
        // A part of another measurement, which goes on meanwhile.
        return read_around(list, f);
    }
    /// Ends the measurement also when `f` panics.
    struct Metering(&'static List);
    impl Drop for Metering {
        fn drop(&mut self) {
            self.0.meter.set(ptr::null_mut());
            forks::refresh();
        }
    }
    let mut meter = Meter::new();
    list.meter.set((&raw mut meter).cast());
    let _metering = Metering(list);
    forks::refresh();
    read_around(list, f)
}

/// Calls `f` on a goroutine that is measured: what the meter shows afterwards and did not
/// before is that of `f`. The longest chain through `f` begins where `f` does.
fn read_around<R>(list: &'static List, f: impl FnOnce() -> R) -> (R, Measured) {
    let before = Meter::with(list, Meter::read);
    let value = f();
    let after = Meter::with(list, Meter::read);
    let nanos = Duration::from_nanos;
    let measured = Measured {
        work: nanos(after.work - before.work),
        span: nanos(after.at.span - before.at.span),
        burdened_span: nanos(after.at.burdened - before.at.burdened),
        forks: after.forks - before.forks,
    };
    (value, measured)
}

/// Where a strand is: how long the longest chain of strands up to it takes, in
/// nanoseconds since the measurement began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    span: u64,
    burdened: u64,
}

impl Moment {
    fn later(self, other: Moment) -> Moment {
        Moment { span: self.span.max(other.span), burdened: self.burdened.max(other.burdened) }
    }

    fn burden(self) -> Moment {
        Moment { burdened: self.burdened + BURDEN, ..self }
    }
}

/// The measurement of a goroutine.
#[derive(Clone, Copy)]
struct Meter {
    work: u64,
    /// Where the present strand is.
    at: Moment,
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
        Meter { work: 0, at: Moment::default(), since: clock::now(), reading, forks: 0 }
    }

    fn strand_ends(&mut self) -> Moment {
        let now = clock::now();
        let took = (now - self.since).saturating_sub(self.reading);
        self.since = now;
        self.work += took;
        self.at.span += took;
        self.at.burdened += took;
        self.at
    }

    /// What it shows up to now.
    fn read(&mut self) -> Meter {
        self.strand_ends();
        *self
    }

    /// The meter of a goroutine that is measured: the caller.
    fn with<R>(list: &'static List, f: impl FnOnce(&mut Meter) -> R) -> R {
        // SAFETY: the meter is in the frame of `measure_here`, further up on the stack
        // of this goroutine, and nothing refers to it but for moments like this.
        f(unsafe { &mut *list.meter.get().cast::<Meter>() })
    }
}

/// A fork that is measured: made before the first branch, told when the second begins,
/// dropped when that is done.
pub(super) struct Split {
    list: &'static List,
    begin: Moment,
    first: Moment,
}

impl Split {
    pub(super) fn new(list: &'static List) -> Self {
        Meter::with(list, |meter| {
            meter.forks += 1;
            let begin = meter.strand_ends();
            Split { list, begin, first: begin }
        })
    }

    pub(super) fn next(&mut self) {
        Meter::with(self.list, |meter| {
            self.first = meter.strand_ends();
            meter.at = self.begin;
        });
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        Meter::with(self.list, |meter| meter.at = meter.strand_ends().later(self.first).burden());
    }
}

/// The closures of a scope that is measured. They run when the scope's body is done,
/// one after the other, and count from where they were spawned.
pub(super) struct Deferred {
    list: &'static List,
    jobs: Lock<VecDeque<(Moment, Job)>>,
}

impl Deferred {
    /// For a scope of the caller's, if the caller is measured.
    pub(super) fn new() -> Option<Self> {
        let list = forks::metered()?;
        Some(Deferred { list, jobs: Lock::new(Rank::Leaf, VecDeque::new()) })
    }

    /// Keeps a job for later, unless somebody else spawned it who is not measured.
    pub(super) fn keep(&self, job: Job) -> Result<(), Job> {
        if !forks::metered().is_some_and(|list| ptr::eq(list, self.list)) {
            return Err(job);
        }
        let begin = Meter::with(self.list, |meter| {
            meter.forks += 1;
            meter.strand_ends().burden()
        });
        self.jobs.lock().push_back((begin, job));
        Ok(())
    }

    /// Runs what was kept, and what that spawns.
    pub(super) fn run(&self, newest_first: bool) {
        let next = || {
            let mut jobs = self.jobs.lock();
            if newest_first { jobs.pop_back() } else { jobs.pop_front() }
        };
        let mut end = Meter::with(self.list, Meter::strand_ends);
        while let Some((begin, job)) = next() {
            Meter::with(self.list, |meter| {
                meter.strand_ends();
                meter.at = begin;
            });
            // A goroutine of its own would have had a stack of its own.
            if stack::remaining() < ROOM {
                stack::on_segment(forks::segment(0), job);
            } else {
                job();
            }
            end = end.later(Meter::with(self.list, Meter::strand_ends));
        }
        Meter::with(self.list, |meter| meter.at = end);
    }

    /// Nothing new is begun: the runtime shuts down.
    pub(super) fn forget(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        drop(jobs);
    }
}

/// How much stack a closure finds at least.
const ROOM: usize = 128 << 10;

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;

    fn of(work: u64, span: u64, burdened_span: u64, forks: u64) -> Measured {
        let micros = Duration::from_micros;
        Measured {
            work: micros(work),
            span: micros(span),
            burdened_span: micros(burdened_span),
            forks,
        }
    }

    #[test]
    fn the_bound_is_a_share_of_the_work_and_the_burdened_span() {
        let measured = of(1_000, 100, 150, 7);
        assert_eq!(measured.bound(4), Duration::from_micros(250 + 150));
        assert_eq!(measured.bound(0), Duration::from_micros(1_000 + 150), "at least one P");
        assert_eq!(measured.parallelism(), 10.0);
        assert!((measured.burdened_parallelism() - 1_000.0 / 150.0).abs() < 1e-9);
    }

    #[test]
    fn each_advice_where_it_is_due() {
        let advice = |measured: Measured| measured.advice(4);
        assert!(advice(of(1_000, 1_000, 1_000, 0)).contains("no forks"));
        assert!(advice(of(1_000, 900, 910, 3)).contains("one strand"));
        assert!(advice(of(1_000, 200, 210, 3)).contains("is little for 4 Ps"));
        assert!(advice(of(1_000, 10, 500, 99)).contains("sharing costs more than 4 Ps gain"));
        // 1000 / (1000 / 4 + 20)
        assert!(advice(of(1_000, 10, 20, 99)).contains("enough for 4 Ps: expect about 3.7 times"));
    }
}
