//! What a run is told, and what it counts.

use super::choose::Chooser;
use super::cost::Costs;
use super::fault::Faults;
use super::topology::Topology;
use crate::prim::mutant::Mutant;

/// A run of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// All choices follow from it.
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) chooser: Chooser,
    pub(crate) faults: Faults,
    pub(crate) costs: Costs,
    /// Whether stores may reach others late, as x86 does it (see `buffer`).
    pub(crate) store_buffers: bool,
    /// A run that takes more steps does not end by itself.
    pub(crate) step_limit: u64,
    /// A deliberate mistake in heist's protocols.
    pub(crate) mutant: Option<Mutant>,
    /// Bits that the scheduler's policy reads (`sched::policy`).
    pub(crate) knobs: u32,
    pub(crate) hooks: Hooks,
}

/// What the layer above watches a run with. Called between two steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    /// At every step.
    pub(crate) step: Option<fn()>,
    /// When every thread sleeps.
    pub(crate) quiet: Option<fn()>,
    /// The handler of signals, on the thread, with the value that was sent. Takes
    /// steps.
    pub(crate) signal: Option<fn(u64)>,
    /// Ends the process with a report.
    pub(crate) violation: fn(&str) -> !,
}

impl Counts {
    /// What happened since `then`.
    pub(crate) fn since(&self, then: &Counts) -> Counts {
        Counts {
            steps: self.steps - then.steps,
            transfers: std::array::from_fn(|i| self.transfers[i] - then.transfers[i]),
            futex_waits: self.futex_waits - then.futex_waits,
            futex_wakes: self.futex_wakes - then.futex_wakes,
            thread_starts: self.thread_starts - then.thread_starts,
            context_switches: self.context_switches - then.context_switches,
            page_faults: self.page_faults - then.page_faults,
            lock_wait: self.lock_wait - then.lock_wait,
            probes: self.probes - then.probes,
            searches: self.searches - then.searches,
            searching: self.searching - then.searching,
            busy: self.busy - then.busy,
        }
    }
}

/// What happened on the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Operations of `prim`.
    pub(crate) steps: u64,
    /// Cache lines that came from another core, by distance: same last-level
    /// cache, same node, other node.
    pub(crate) transfers: [u64; 3],
    pub(crate) futex_waits: u64,
    pub(crate) futex_wakes: u64,
    pub(crate) thread_starts: u64,
    pub(crate) context_switches: u64,
    /// First touches of pages.
    pub(crate) page_faults: u64,
    /// Nanoseconds, summed over threads, that locks were waited for.
    pub(crate) lock_wait: u64,
    /// Victims that thieves looked at.
    pub(crate) probes: u64,
    /// Searches for something to steal.
    pub(crate) searches: u64,
    /// Nanoseconds, summed over threads, spent searching.
    pub(crate) searching: u64,
    /// Nanoseconds that cores had a thread.
    pub(crate) busy: u64,
}
