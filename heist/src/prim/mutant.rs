//! Deliberate mistakes in the protocols, for tests of the tests.
//!
//! A checker that never fails proves nothing. Each mutant is a way in which this
//! scheduler could plausibly have been wrong; `heist-sim/tests/mutants.rs` and
//! the models of `sched::protocol` and `poll` show that each is caught. In the shipped
//! build [`is`] is a constant `false`, and nothing of a mutant is left.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(sim), allow(dead_code))] // chosen by the simulator and by models
pub(crate) enum Mutant {
    /// Who gives a P up goes to sleep without looking once more.
    NoRecheck,
    /// A searcher that gives up passes no fence before it looks once more.
    NoSearcherFence,
    /// The last searcher that finds work does not see to it that another one
    /// searches.
    DropBaton,
    /// A thief takes two thirds of a ring, not half.
    StealTwoThirds,
    /// An overflow forgets the goroutine that did not fit.
    LoseOverflow,
    /// A kicked out runnext is forgotten.
    LoseKicked,
    /// A consumer moves a ring's head without checking that nobody else did.
    NoCommit,
    /// The owner takes runnext without claiming it against thieves.
    TakeNextUnseen,
    /// A wake-up that comes before the park is forgotten.
    ForgetNotified,
    /// A P goes idle and stays in the hands of its M.
    KeepIdleP,
    /// A search that ends does not take itself off the count.
    LeakSearcher,
    /// A note's wake-up does not make the system call.
    NoFutexWake,
    /// The end of a goroutine does not wake who joins it.
    NoJoinWake,
    /// The length of the global queue is not told after a batch was taken.
    StaleGlobalSize,
    /// The owner refills a ring's slots without the bit that offers them.
    NoOffer,
    /// A thief that does not count as a searcher wakes nobody for what it has moved.
    QuietMove,
    /// A goroutine that yields to a runnext is queued without a fence.
    YieldUnseen,
    /// A P is taken from an M that is in the runtime.
    TakeInside,
    /// An entry into the runtime does not settle with whoever asks for the P.
    EnterUnsettled,
    /// Who goes to wait for a descriptor does not see an event that came since its call.
    IgnoreEvent,
    /// A deadline ends a wait also after another was set.
    AnyDeadline,
    /// A close wakes those who wait, and calls go on as before.
    ForgetClosed,
    /// A read that was short counts as one of the last event, not of the last that it
    /// can have seen.
    DrainedLater,
    /// The last M to sleep does not wait in the poller.
    PollNobody,
    /// Whoever has a P for the M in the poller does not ring.
    NoRing,
    /// A descriptor that a plain thread registers is not seen to.
    RegisterUnseen,
    /// A poller goes, and those of others who wait there are not told.
    DissolveQuietly,
    /// A raider does not make the stores of whoever forks arrive.
    RaidUnfenced,
    /// Whoever unlinks a fork does not see that a raid goes on.
    UnlinkBlind,
    /// A way to the mark stays known when the mark is gone.
    KeepMark,
    /// Whoever forked a branch takes it back without checking that nobody has begun
    /// it.
    ReclaimUnseen,
    /// A goroutine that parks keeps its open forks to itself.
    KeepForks,
    /// A thread is stopped wherever it is, in the runtime too.
    FreezeAnywhere,
    /// A thread is asked to stand still before it has heard that it may go on.
    AskUnanswered,
    /// A P that goes takes the goroutines that are queued on it along.
    ForgetQueue,
    /// A P that goes takes its timers along.
    ForgetTimers,
    /// A call that is declared does not publish what the runtime did before it.
    DeclareUnordered,
    /// Who gives its P up does not end its lease.
    KeepLease,
    /// An entry into the runtime does not wait for the end of a loan.
    EnterLoan,
    /// A P is put at an M's door, and what was done with it is not published.
    PutUnordered,
    /// A thread is woken for a P before the P is there.
    WakeEmptyHanded,
    /// A deadline that has passed wakes those who wait, and leaves them in the list.
    ExpireListed,
    /// Who waits for a condition does not say so.
    WaitUnseen,
    /// Who leaves a condition takes itself for the last.
    LeaveAlone,
    /// In a runtime that closes, who is queued with its thread goes on at once.
    GoOnInHand,
}

impl Mutant {
    /// Those that the simulator catches. The others are the models': what a fence
    /// beside a locked instruction adds, or a release, x86 does not show, which part of a
    /// ring a thief takes breaks no rule, and that an entry meets a retake or a loan, an
    /// event a short read, or a deadline a close, in the very moment that matters takes
    /// thousands of seeds.
    #[cfg(sim)]
    pub(crate) const SIMULATED: [Mutant; 30] = [
        Mutant::NoRecheck,
        Mutant::DropBaton,
        Mutant::LoseOverflow,
        Mutant::LoseKicked,
        Mutant::NoCommit,
        Mutant::TakeNextUnseen,
        Mutant::ForgetNotified,
        Mutant::KeepIdleP,
        Mutant::LeakSearcher,
        Mutant::NoFutexWake,
        Mutant::NoJoinWake,
        Mutant::StaleGlobalSize,
        Mutant::NoOffer,
        Mutant::YieldUnseen,
        Mutant::TakeInside,
        Mutant::RaidUnfenced,
        Mutant::UnlinkBlind,
        Mutant::ReclaimUnseen,
        Mutant::KeepForks,
        Mutant::FreezeAnywhere,
        Mutant::IgnoreEvent,
        Mutant::AnyDeadline,
        Mutant::ForgetClosed,
        Mutant::PollNobody,
        Mutant::NoRing,
        Mutant::RegisterUnseen,
        Mutant::DissolveQuietly,
        Mutant::ForgetQueue,
        Mutant::ForgetTimers,
        Mutant::GoOnInHand,
    ];
}

/// Whether this mistake is to be made.
#[cfg(not(any(loom, sim)))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Whether this mistake is to be made, in this run.
#[cfg(sim)]
pub(crate) fn is(mutant: Mutant) -> bool {
    super::sim::knobs().1 == Some(mutant)
}

#[cfg(loom)]
mod models {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        /// All threads of a model are on one OS thread.
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether this mistake is to be made, in this model.
    pub(crate) fn is(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(mutant)
    }

    /// Runs a model with a mistake; it must fail.
    #[cfg(test)]
    pub(crate) fn must_fail(mutant: Mutant, model: impl Fn() + Sync + Send + 'static) {
        let run = std::panic::AssertUnwindSafe(|| {
            CHOSEN.set(Some(mutant));
            let mut bounded = loom::model::Builder::new();
            bounded.preemption_bound = Some(3);
            bounded.check(model);
        });
        let outcome = std::panic::catch_unwind(run);
        CHOSEN.set(None);
        assert!(outcome.is_err(), "the model does not see {mutant:?}");
    }
}
#[cfg(loom)]
pub(crate) use models::is;
#[cfg(all(loom, test))]
pub(crate) use models::must_fail;
