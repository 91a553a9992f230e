//! A piece of a loop: items that one goroutine runs, unless others take some.
//!
//! The items after the one that runs are the second branch of a fork that stays linked
//! throughout (`protocol::rest`): if an item parks, blocks its thread or computes for long,
//! others have the rest. An item costs a store and a comparison for that, where a fork of
//! its own would cost ten instructions.
//!
//! The last item is run when the fork is unlinked: so the rest is never empty, and nobody is
//! called for nothing.

use crate::sched::branches::{self, Settled};
use crate::sched::forks::{self, Approach, Order, Record};
use crate::sched::protocol::forks::Unlinked;
use crate::sched::protocol::rest::Rest;
use crate::stack;
use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr;

/// What a piece keeps in its frame.
#[repr(C)]
struct Piece<'a, T, D> {
    record: Record,
    rest: Rest,
    end: usize,
    /// Runs the rest, for another goroutine.
    divide: &'a D,
    /// Left by another goroutine that ran the rest.
    outcome: UnsafeCell<MaybeUninit<Result<T, Box<dyn Any + Send>>>>,
}

impl<'a, T, D> Piece<'a, T, D>
where
    T: Send,
    D: Fn(Range<usize>) -> T + Sync,
{
    #[inline]
    fn new(range: &Range<usize>, divide: &'a D) -> Self {
        Piece {
            record: Record::new(Self::run),
            rest: Rest::new(range.start, range.end - 1),
            end: range.end,
            divide,
            outcome: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The items that were claimed. By whoever has claimed them, or has heard of it.
    fn range(&self) -> Range<usize> {
        self.rest.limit()..self.end
    }

    /// Whether an item is the runner's that did not seem to be.
    ///
    /// # Safety
    ///
    /// The record is linked.
    #[cold]
    #[inline(never)]
    unsafe fn is_own(&self, item: usize) -> bool {
        // SAFETY: the caller's promise.
        item < unsafe { self.record.with_latch(|| self.rest.limit()) }
    }

    /// Others claim the rest, and run it.
    ///
    /// # Safety
    ///
    /// `record` is that of a piece of this type, whose rest the caller has claimed, and
    /// taken if it is to run.
    unsafe fn run(record: *const Record, order: Order) {
        // SAFETY: the record is the piece's first field.
        let piece = unsafe { &*record.cast::<Self>() };
        match order {
            Order::Claimed => piece.rest.cut(),
            Order::Raided => piece.rest.cut_running(),
            // SAFETY: the caller has taken it.
            Order::Run => unsafe { piece.run_taken(None) },
            // SAFETY: as above.
            Order::Cancel(payload) => unsafe { piece.run_taken(Some(payload)) },
        }
    }

    /// Runs the rest, or leaves why it was not run. A function of its own: whoever claims has a
    /// stack that may be too small for the value.
    ///
    /// # Safety
    ///
    /// The caller has taken it, on a stack of its own unless it is cancelled.
    #[inline(never)]
    unsafe fn run_taken(&self, cancel: Option<Box<dyn Any + Send>>) {
        let outcome = match cancel {
            None => catch_unwind(AssertUnwindSafe(|| (self.divide)(self.range()))),
            Some(payload) => Err(payload),
        };
        // SAFETY: the runner looks here when this goroutine has ended.
        unsafe { (*self.outcome.get()).write(outcome) };
    }

    /// # Safety
    ///
    /// Another goroutine has run the rest and has ended. Called once.
    unsafe fn outcome(&self) -> Result<T, Box<dyn Any + Send>> {
        // SAFETY: the caller's promise.
        unsafe { (*self.outcome.get()).assume_init_read() }
    }

    /// An item panicked. What others run is finished; the rest is not begun.
    #[cold]
    #[inline(never)]
    fn panicked(&self, payload: Box<dyn Any + Send>) -> ! {
        // SAFETY: it is linked, and this is called once.
        if unsafe { self.record.unlink() } == Unlinked::Claimed
            && branches::settle(&self.record, Location::caller()) == Settled::Done
        {
            // SAFETY: it is done.
            let outcome = unsafe { self.outcome() };
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(outcome))) {
                // Its destructor is not called: it might panic, too.
                std::mem::forget(second);
            }
        }
        resume_unwind(payload)
    }
}

/// Folds a range into `value`. If others take the rest of it, `divide` gives them the value
/// of that, and `reduce` puts both together.
pub(super) fn run<T, F, D, R>(
    mut range: Range<usize>,
    mut value: T,
    fold: &F,
    divide: &D,
    reduce: &R,
) -> T
where
    T: Send,
    F: Fn(T, usize) -> T,
    D: Fn(Range<usize>) -> T + Sync,
    R: Fn(T, T) -> T,
{
    // Here, and not by calling itself, however often the rest comes back.
    while range.len() > 1 {
        match attempt(&range, value, fold, divide, reduce) {
            Attempt::Done(value) => return value,
            Attempt::Back(folded, rest) => (value, range) = (folded, rest),
        }
    }
    range.fold(value, fold)
}

/// Runs items as long as they are the runner's, and says where that ended. A function of its
/// own with no call in it but those of the items, which are inlined if they are small: the
/// registers are theirs. (With the rest of [`attempt`] around it a sum of floats took three
/// times as long.)
#[inline(never)]
fn stretch<T>(
    rest: &Rest,
    items: Range<usize>,
    mut value: T,
    fold: &impl Fn(T, usize) -> T,
) -> (T, usize) {
    let mut item = items.start;
    while item < items.end && rest.begin(item) {
        value = fold(value, item);
        item += 1;
    }
    (value, item)
}

/// How far the runner came.
enum Attempt<T> {
    /// To the end.
    Done(T),
    /// To where the rest was claimed; nobody has begun that.
    Back(T, Range<usize>),
}

#[inline]
fn attempt<T, F, D, R>(
    range: &Range<usize>,
    value: T,
    fold: &F,
    divide: &D,
    reduce: &R,
) -> Attempt<T>
where
    T: Send,
    F: Fn(T, usize) -> T,
    D: Fn(Range<usize>) -> T + Sync,
    R: Fn(T, T) -> T,
{
    let last = range.end - 1;
    let piece = Piece::new(range, divide);
    let here = ptr::from_ref(&piece).addr();
    match forks::at_once(here) {
        // SAFETY: the list of the calling goroutine; the fork is unlinked below,
        // whatever becomes of the items, and later ones are by then.
        Some(forks) => unsafe { piece.record.link_to(forks) },
        None => match forks::approach(here) {
            Approach::Fork(list, share) => {
                // SAFETY: as above.
                unsafe { piece.record.link_to(&list.forks) };
                if share {
                    branches::share_one(list);
                }
            }
            Approach::Deep => {
                let again = || run(range.clone(), value, fold, divide, reduce);
                let room = forks::segment(size_of::<T>());
                return Attempt::Done(stack::on_segment(room, again));
            }
            // There is nobody else.
            Approach::Outside | Approach::Serial | Approach::Metered(_) => {
                return Attempt::Done(range.clone().fold(value, fold));
            }
        },
    }
    let items = || {
        let (mut value, mut item) = (value, range.start);
        loop {
            (value, item) = stretch(&piece.rest, item..last, value, fold);
            // SAFETY: linked above.
            if item == last || !unsafe { piece.is_own(item) } {
                return value;
            }
        }
    };
    let value = match catch_unwind(AssertUnwindSafe(items)) {
        Ok(value) => value,
        Err(payload) => piece.panicked(payload),
    };
    // SAFETY: linked above.
    if unsafe { piece.record.unlink() } == Unlinked::Mine {
        return Attempt::Done(fold(value, last));
    }
    if branches::settle(&piece.record, Location::caller()) == Settled::Reclaimed {
        return Attempt::Back(value, piece.range());
    }
    // SAFETY: it is done.
    match unsafe { piece.outcome() } {
        Ok(rest) => Attempt::Done(reduce(value, rest)),
        Err(payload) => {
            drop(value);
            resume_unwind(payload)
        }
    }
}
