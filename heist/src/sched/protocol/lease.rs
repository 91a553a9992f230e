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
//! | `place` | `USER` | the M is in user code |
//! | | `RUNTIME` | it is in the runtime, and its P is its own |
//! | | `CALL` | it is in user code that says that it may block |
//! | `claim` | `NONE` | the M has its P |
//! | | `ASKED` | sysmon wants the P; undecided |
//! | | `TAKEN` | the M has no P, and must get one before it goes on |
//! | | `BORROWED` | sysmon uses the P for a moment; the M waits for that |
//!
//! # Why exactly one of them has the P
//!
//! Entry: store `place = RUNTIME`, light barrier, load `claim`. Retake: store
//! `claim = ASKED`, heavy barrier, load `place`. The barriers forbid that both
//! miss the other. If the retake sees `RUNTIME` it withdraws. If the entry
//! sees `ASKED`, the two settle it by compare-and-swap on `claim`: the entry
//! tries `ASKED -> NONE` and keeps the P, the retake tries `ASKED -> TAKEN` and
//! has it; one of them fails and knows. So what the retake looks at between the
//! barrier and its compare-and-swap is what it gets, if that succeeds.

use crate::prim::atomic::{AtomicU32, Ordering, heavy_barrier, light_barrier};
use crate::prim::hint;
use crate::prim::mutant::{Mutant, is};

const USER: u32 = 0;
const RUNTIME: u32 = 1;
const CALL: u32 = 2;

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

/// One M's side of the lease.
#[derive(Debug)]
pub(crate) struct Lease {
    place: AtomicU32,
    claim: AtomicU32,
}

impl Lease {
    /// An M starts inside the runtime, without a P.
    pub(crate) fn new() -> Self {
        Lease { place: AtomicU32::new(RUNTIME), claim: AtomicU32::new(TAKEN) }
    }

    /// Whether the M is in the runtime. For its own thread; to others it was so a
    /// moment ago.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn inside(&self) -> bool {
        self.place.load(Ordering::Relaxed) == RUNTIME
    }

    /// User code says that it may block from now on, or that it is over.
    #[inline(always)]
    pub(crate) fn declare(&self, call: bool) {
        // Release: as `leave`, whose store whoever retakes may no longer see.
        let order =
            if is(Mutant::DeclareUnordered) { Ordering::Relaxed } else { Ordering::Release };
        self.place.store(if call { CALL } else { USER }, order);
    }

    /// Whether the M is in a call that was declared. For sysmon and for reports.
    pub(crate) fn in_call(&self) -> bool {
        self.place.load(Ordering::Relaxed) == CALL
    }

    /// User code calls the runtime.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Entry {
        self.place.store(RUNTIME, Ordering::Relaxed);
        light_barrier();
        // Acquire: pairs with the release of TAKEN in `retake`.
        match self.claim.load(Ordering::Acquire) {
            NONE => Entry::Tenant,
            _ => self.settle(),
        }
    }

    #[cold]
    fn settle(&self) -> Entry {
        if is(Mutant::EnterUnsettled) && self.claim.load(Ordering::Relaxed) == ASKED {
            return Entry::Tenant;
        }
        loop {
            match self.claim.compare_exchange(ASKED, NONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) | Err(NONE) => return Entry::Tenant,
                Err(BORROWED) if is(Mutant::EnterLoan) => return Entry::Tenant,
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
        self.place.store(USER, Ordering::Release);
    }

    /// The M has a P again.
    #[inline]
    pub(crate) fn renew(&self) {
        self.claim.store(NONE, Ordering::Relaxed);
    }

    /// The M has given its P up by itself: the next entry is told.
    #[inline]
    pub(crate) fn end(&self) {
        if is(Mutant::KeepLease) {
            return;
        }
        // Over a question that came meanwhile: whoever asked sees that it has failed.
        // (loom would let a plain store come before a read-modify-write that did not
        // read it, which no order of the two allows.)
        #[cfg(loom)]
        let _ = self.claim.swap(TAKEN, Ordering::Relaxed);
        #[cfg(not(loom))]
        self.claim.store(TAKEN, Ordering::Relaxed);
    }

    /// Whether the M has lost its P, or given it up. For its own thread, and for
    /// whoever retakes.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.claim.load(Ordering::Relaxed) == TAKEN
    }

    /// Tries to take the P from an M that is in user code. `look` says what to do
    /// with it, or that it is not wanted after all; it runs while the M stays where
    /// it is, and counts only if the P was taken then. `None` also if the M is in
    /// the runtime (it comes to a safe point soon) or has no P.
    ///
    /// One caller at a time.
    pub(crate) fn retake<T>(&self, look: impl FnOnce() -> Option<T>) -> Option<T> {
        self.take_for(TAKEN, look)
    }

    /// Uses the P of an M that is in user code, for a moment. `None` if the M is in
    /// the runtime, or has no P. One caller at a time, who also is the only one to
    /// [`retake`](Self::retake).
    pub(crate) fn borrow<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        self.take_for(BORROWED, || Some(()))?;
        let value = f();
        // Release: pairs with the acquire in `settle`.
        self.claim.store(NONE, Ordering::Release);
        Some(value)
    }

    /// Asks for the P, and has it if the M is not in the runtime.
    fn take_for<T>(&self, what: u32, look: impl FnOnce() -> Option<T>) -> Option<T> {
        // An M without a P has nothing to give.
        self.claim.compare_exchange(NONE, ASKED, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        heavy_barrier();
        // Acquire: pairs with the release in `leave`.
        let out = self.place.load(Ordering::Acquire) != RUNTIME || is(Mutant::TakeInside);
        let wanted = if out { look() } else { None };
        let to = if wanted.is_some() { what } else { NONE };
        // Fails if the entry kept its P. Otherwise the M has been in user code from
        // the barrier to here, and what `look` saw of it holds.
        self.claim.compare_exchange(ASKED, to, Ordering::AcqRel, Ordering::Acquire).ok()?;
        wanted
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
        assert_eq!(lease.retake(|| Some(())), None, "it is in the runtime");
        lease.leave();
        assert_eq!(lease.retake(|| None::<()>), None, "not wanted after all");
        assert_eq!(lease.enter(), Entry::Tenant);
        lease.leave();
        assert_eq!(lease.retake(|| Some(7)), Some(7));
        assert!(lease.is_over());
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
    use crate::prim::mutant::must_fail;
    use loom::sync::Arc;

    /// Two entries against a retake: the P is never used by both, and what the retake
    /// saw of it before it had it still holds.
    fn enter_and_retake() {
        let steps = AtomicU32::new(0);
        let shared = Arc::new((Lease::new(), Plain::new(0u32), steps));
        let step = |shared: &(Lease, Plain<u32>, AtomicU32)| {
            shared.1.set(shared.1.get() + 1);
            shared.2.store(shared.1.get(), Ordering::Relaxed);
        };
        shared.0.renew();
        step(&shared);
        shared.0.leave();
        let sysmon = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let taken = shared.0.retake(|| Some(shared.2.load(Ordering::Relaxed)));
                if let Some(seen) = taken {
                    assert_eq!(seen, shared.1.get());
                    step(&shared);
                }
                taken.is_some()
            })
        };
        let mut evicted = false;
        for _ in 0..2 {
            match shared.0.enter() {
                Entry::Tenant => {
                    step(&shared);
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
    }

    #[test]
    fn entry_against_retake() {
        loom::model(enter_and_retake);
    }

    #[test]
    fn mistakes_are_seen() {
        must_fail(Mutant::TakeInside, enter_and_retake);
        must_fail(Mutant::EnterUnsettled, enter_and_retake);
    }

    /// Two entries against a loan: what belongs to the P is used by one at a time,
    /// and the M keeps its P.
    fn enter_and_borrow() {
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
    }

    #[test]
    fn entry_against_borrow() {
        loom::model(enter_and_borrow);
    }

    #[test]
    fn mistakes_with_loans_are_seen() {
        must_fail(Mutant::EnterLoan, enter_and_borrow);
    }

    /// A declared call (`sched::syscall`) against a retake that wants only what is in
    /// one: whoever takes the P sees all that the runtime did with it, and the M hears
    /// of it when the call is over, or at its next entry.
    fn call_and_retake() {
        let shared = Arc::new((Lease::new(), Plain::new(0u32)));
        shared.0.renew();
        let sysmon = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let taken = shared.0.retake(|| shared.0.in_call().then_some(())).is_some();
                if taken {
                    assert_eq!(shared.1.get(), 1);
                    shared.1.set(2);
                }
                taken
            })
        };
        shared.1.set(1);
        shared.0.leave();
        shared.0.declare(true);
        // Here it blocks.
        shared.0.declare(false);
        let over = shared.0.is_over();
        let entry = shared.0.enter();
        if entry == Entry::Tenant {
            assert!(!over, "what was taken stays taken");
            assert_eq!(shared.1.get(), 1);
            shared.1.set(2);
        }
        let taken = sysmon.join().unwrap();
        assert_eq!(entry == Entry::Evicted, taken, "one of them has the P");
        assert_eq!(shared.1.get(), 2);
    }

    #[test]
    fn a_declared_call_against_retake() {
        loom::model(call_and_retake);
    }

    /// A call that gives its P up at once (`sched::syscall::blocking`), against whoever
    /// gets that and against a retake: the M has no P when it is back, and takes the one
    /// that is idle then.
    fn give_up_and_come_back() {
        /// The lease, what belongs to the P, and whether that is idle.
        type Shared = (Lease, Plain<u32>, AtomicU32);
        fn use_idle(shared: &Shared) -> bool {
            let idle = shared.2.swap(0, Ordering::Acquire) == 1;
            if idle {
                shared.1.set(shared.1.get() + 1);
                shared.2.store(1, Ordering::Release);
            }
            idle
        }
        let shared: Arc<Shared> = Arc::new((Lease::new(), Plain::new(0), AtomicU32::new(0)));
        shared.0.renew();
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                assert!(shared.0.retake(|| shared.0.in_call().then_some(())).is_none());
                u32::from(use_idle(&shared))
            })
        };
        shared.1.set(1);
        shared.0.end();
        shared.2.store(1, Ordering::Release);
        shared.0.leave();
        shared.0.declare(true);
        // Here it blocks.
        shared.0.declare(false);
        let over = shared.0.is_over();
        let mine = match shared.0.enter() {
            Entry::Tenant => {
                shared.1.set(shared.1.get() + 1);
                true
            }
            Entry::Evicted => use_idle(&shared),
        };
        let used = other.join().unwrap();
        assert!(over, "it is told");
        assert_eq!(shared.1.get(), 1 + used + u32::from(mine));
    }

    #[test]
    fn a_p_given_up_for_a_call() {
        loom::model(give_up_and_come_back);
    }

    #[test]
    fn mistakes_with_calls_are_seen() {
        must_fail(Mutant::DeclareUnordered, call_and_retake);
        must_fail(Mutant::KeepLease, give_up_and_come_back);
    }
}
