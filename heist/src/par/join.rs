//! `join`: two branches that may run at the same time.

use super::{measure, registry};
use crate::runtime;
use crate::sched::branches::{self, Settled};
use crate::sched::forks::{self, Approach, List, Order, Record};
use crate::sched::protocol::forks::Unlinked;
use crate::stack;
use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr;

/// What a branch of [`join_context`] is told.
#[derive(Debug)]
pub struct FnContext {
    migrated: bool,
    /// Not for other threads, as in rayon.
    _marker: PhantomData<*mut ()>,
}

impl FnContext {
    #[inline(always)]
    pub(super) fn new(migrated: bool) -> Self {
        FnContext { migrated, _marker: PhantomData }
    }

    /// Whether another goroutine than the one that forked runs the branch: somebody
    /// had nothing else to do, so it pays to fork more.
    #[inline]
    pub fn migrated(&self) -> bool {
        self.migrated
    }
}

/// Calls both closures, perhaps at the same time, and returns both results.
///
/// The caller runs the first; the second is run by whoever is idle, or else by the
/// caller afterwards. A fork that nobody takes costs a few nanoseconds, so forking at
/// every level of a recursion is the right grain. Either branch may block, also on
/// the other one.
///
/// On a plain OS thread both run on the default runtime, and the thread waits.
///
/// ```
/// fn fib(n: u32) -> u64 {
///     if n < 2 {
///         return n.into();
///     }
///     let (a, b) = heist::par::join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// assert_eq!(fib(20), 6765);
/// ```
///
/// # Panics
///
/// With the panic of a branch. Both branches have ended then: borrowed values are
/// safe. If both panic it is the panic of the first.
///
/// What a branch borrows must be free for it, which the compiler checks:
///
/// ```compile_fail,E0499
/// let mut numbers = vec![1, 2];
/// heist::par::join(|| numbers.push(3), || numbers.push(4));
/// ```
///
/// and able to go to another thread:
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(7);
/// heist::par::join(|| println!("{shared}"), || ());
/// ```
///
/// ```compile_fail,E0277
/// heist::par::join(|| (), || std::rc::Rc::new(7));
/// ```
#[inline]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let (a, b) = (
        #[inline(always)]
        |_| a(),
        #[inline(always)]
        |_| b(),
    );
    fork(a, b, false)
}

/// As [`join`]; each branch is told whether it [migrated](FnContext::migrated).
///
/// ```
/// let (first, _) = heist::run(|| heist::par::join_context(|a| a.migrated(), |b| b.migrated()));
/// assert!(!first, "the first branch stays");
/// let both = heist::par::join_context(|a| a.migrated(), |b| b.migrated());
/// assert_eq!(both, (true, true), "from a plain thread both go to the runtime");
/// ```
#[inline]
pub fn join_context<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    fork(a, b, false)
}

/// What a fork keeps in its frame.
#[repr(C)]
struct Fork<B, RB> {
    record: Record,
    /// Of whoever runs the second branch: see `protocol::branch`.
    b: UnsafeCell<MaybeUninit<B>>,
    /// Left by another goroutine that ran it.
    outcome: UnsafeCell<MaybeUninit<Result<RB, Box<dyn Any + Send>>>>,
}

impl<B, RB> Fork<B, RB>
where
    B: FnOnce(FnContext) -> RB + Send,
    RB: Send,
{
    /// With a copy of the second branch. One of the two is used, by whoever has the branch.
    /// The other one is bytes: what it borrows is another's by then, so that it must not
    /// even count as a value, and both are `MaybeUninit`.
    #[inline(always)]
    fn new(b: &MaybeUninit<B>) -> Self {
        Fork {
            record: Record::new(Self::run),
            // SAFETY: any bytes are a value of this type.
            b: UnsafeCell::new(unsafe { ptr::read(b) }),
            outcome: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// # Safety
    ///
    /// The caller has the second branch, and uses this copy of it, once.
    #[inline(always)]
    unsafe fn take(&self) -> B {
        // SAFETY: the caller's promise; a fork is made with a branch.
        unsafe { (*self.b.get()).assume_init_read() }
    }

    /// Another goroutine runs the second branch.
    ///
    /// # Safety
    ///
    /// `record` is that of a fork of this type, whose branch the caller has claimed, and
    /// taken if it is to run.
    unsafe fn run(record: *const Record, order: Order) {
        match order {
            // Nothing of it depends on when.
            Order::Claimed | Order::Raided => {}
            // SAFETY: the caller's promise.
            Order::Run => unsafe { Self::run_taken(record, None) },
            // SAFETY: as above.
            Order::Cancel(payload) => unsafe { Self::run_taken(record, Some(payload)) },
        }
    }

    /// [`run`](Self::run) on the stack of the branch, or instead of it. A function of its own:
    /// whoever claims has a stack that may be too small for what the branch returns.
    ///
    /// # Safety
    ///
    /// As there, and it is taken.
    #[inline(never)]
    unsafe fn run_taken(record: *const Record, cancel: Option<Box<dyn Any + Send>>) {
        // SAFETY: the record is the fork's first field.
        let fork = unsafe { &*record.cast::<Self>() };
        // SAFETY: the caller has taken it.
        let b = unsafe { fork.take() };
        let outcome = match cancel {
            None => catch_unwind(AssertUnwindSafe(|| b(FnContext::new(true)))),
            // A panic of its destructor is one of the branch.
            Some(payload) => catch_unwind(AssertUnwindSafe(|| drop(b))).and(Err(payload)),
        };
        // SAFETY: whoever forked looks here when this goroutine has ended.
        unsafe { (*fork.outcome.get()).write(outcome) };
    }

    /// # Safety
    ///
    /// Another goroutine has run the second branch and has ended. Called once.
    unsafe fn outcome(&self) -> Result<RB, Box<dyn Any + Send>> {
        // SAFETY: the caller's promise.
        unsafe { (*self.outcome.get()).assume_init_read() }
    }
}

#[inline(always)]
fn fork<A, B, RA, RB>(a: A, b: B, migrated: bool) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    // Beside the copy in the fork, for when nobody claims it. Of this one the compiler knows
    // what is in it; that in the fork it would have to load, and what a closure borrows
    // after that: at every fork, in front of the second call.
    let b = MaybeUninit::new(b);
    let fork = Fork::<B, RB>::new(&b);
    let here = ptr::from_ref(&fork).addr();
    match forks::at_once(here) {
        // SAFETY: the list of the calling goroutine; the fork is unlinked below,
        // whatever becomes of the branches, and later ones are by then.
        Some(forks) => unsafe { fork.record.link_to(forks) },
        None => match forks::approach(here) {
            Approach::Fork(list, share) => {
                // SAFETY: as above.
                unsafe { fork.record.link_to(&list.forks) };
                if share {
                    branches::share_one(list);
                }
            }
            // SAFETY: the fork is not linked, so the second branch is ours.
            other => return elsewhere(&other, a, unsafe { fork.take() }),
        },
    }
    let first = catch_unwind(AssertUnwindSafe(
        #[inline(always)]
        || a(FnContext::new(migrated)),
    ));
    let ra = match first {
        Ok(ra) => ra,
        Err(payload) => panicked(payload, &fork),
    };
    // SAFETY: linked above.
    if unsafe { fork.record.unlink() } == Unlinked::Claimed
        && branches::settle(&fork.record, Location::caller()) == Settled::Done
    {
        // SAFETY: it is done.
        return match unsafe { fork.outcome() } {
            Ok(rb) => (ra, rb),
            Err(payload) => resume(payload, ra),
        };
    }
    // SAFETY: nobody has claimed it, or it was reclaimed, and the fork's copy is not used.
    let b = unsafe { b.assume_init() };
    let rb = b(FnContext::new(migrated));
    (ra, rb)
}

/// The second branch panicked, elsewhere.
#[cold]
#[inline(never)]
fn resume<RA>(payload: Box<dyn Any + Send>, ra: RA) -> ! {
    drop(ra);
    resume_unwind(payload)
}

/// The first branch panicked. The second one is finished all the same; what becomes
/// of it nobody hears.
#[cold]
#[inline(never)]
fn panicked<B, RB>(payload: Box<dyn Any + Send>, fork: &Fork<B, RB>) -> !
where
    B: FnOnce(FnContext) -> RB + Send,
    RB: Send,
{
    // SAFETY: it is linked, and this is called once.
    let claimed = unsafe { fork.record.unlink() } == Unlinked::Claimed;
    let second: Result<(), Box<dyn Any + Send>> =
        if claimed && branches::settle(&fork.record, Location::caller()) == Settled::Done {
            // SAFETY: it is done.
            let outcome = unsafe { fork.outcome() };
            catch_unwind(AssertUnwindSafe(|| drop(outcome)))
        } else {
            // SAFETY: nobody has claimed it, or it was reclaimed.
            let b = unsafe { fork.take() };
            // An order to unwind is no panic: nothing new is begun.
            let shutdown = branches::is_shutdown(&*payload);
            catch_unwind(AssertUnwindSafe(|| match shutdown {
                true => drop(b),
                false => drop(b(FnContext::new(false))),
            }))
        };
    if let Err(second) = second {
        // Its destructor is not called: it might panic, too.
        std::mem::forget(second);
    }
    resume_unwind(payload)
}

/// A fork that could not be made right here.
#[cold]
#[inline(never)]
fn elsewhere<A, B, RA, RB>(approach: &Approach, a: A, b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    match *approach {
        Approach::Outside => {
            let both = move || again(a, b, true);
            runtime::run_on(registry::outside(), None, Location::caller(), both)
        }
        Approach::Deep => {
            let passed = size_of::<A>() + size_of::<B>() + size_of::<RA>() + size_of::<RB>();
            stack::on_segment(forks::segment(passed), move || again(a, b, false))
        }
        Approach::Metered(list) => one_after_the_other(Some(list), a, b),
        Approach::Serial | Approach::Fork(..) => one_after_the_other(None, a, b),
    }
}

#[inline(never)]
fn again<A, B, RA, RB>(a: A, b: B, migrated: bool) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    fork(a, b, migrated)
}

fn one_after_the_other<A, B, RA, RB>(list: Option<&'static List>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA,
    B: FnOnce(FnContext) -> RB,
{
    let mut split = list.map(measure::Split::new);
    let first = catch_unwind(AssertUnwindSafe(|| a(FnContext::new(false))));
    let first = match first {
        // An order to unwind is no panic: nothing new is begun.
        Err(payload) if branches::is_shutdown(&*payload) => {
            drop(b);
            resume_unwind(payload)
        }
        first => first,
    };
    if let Some(split) = &mut split {
        split.next();
    }
    let second = catch_unwind(AssertUnwindSafe(|| b(FnContext::new(false))));
    drop(split);
    match (first, second) {
        (Ok(ra), Ok(rb)) => (ra, rb),
        (Err(payload), _) | (_, Err(payload)) => resume_unwind(payload),
    }
}
