//! Who takes the next step.

use super::machine::Machine;
use super::vthread::ThreadId;

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chooser {
    /// Uniformly among the threads that have a core, at every step.
    Random,
    /// PCT (Burckhardt et al., ASPLOS 2010): random priorities, the highest
    /// goes on, and at `changes` random steps of the first `length` the one
    /// that runs falls below all others. It finds a bug that needs `changes`
    /// ordering constraints with a known probability.
    Pct {
        /// Priority changes.
        changes: u32,
        /// Steps among which they are spread.
        length: u32,
    },
    /// The core whose clock is behind: the machine as fast as it is.
    Timed,
}

/// After so many steps a thread falls back, whatever its priority: a loop that
/// waits for others and says so nowhere must not wait for ever.
const TOO_LONG: u64 = 2_000;

/// The state of a chooser.
pub(super) struct Choice {
    /// Steps at which the priority changes, for PCT, last first.
    changes: Vec<u64>,
    /// Below all that were given out.
    lowest: i64,
    candidates: Vec<ThreadId>,
}

impl Choice {
    pub(super) fn new(chooser: Chooser, random: &mut dyn FnMut(u32) -> u32) -> Self {
        let mut changes = Vec::new();
        if let Chooser::Pct { changes: n, length } = chooser {
            changes = (0..n).map(|_| u64::from(random(length.max(1)))).collect();
            changes.sort_unstable_by(|a, b| b.cmp(a));
        }
        Choice { changes, lowest: 0, candidates: Vec::new() }
    }
}

impl Machine {
    /// The priority of a new thread.
    pub(super) fn new_priority(&mut self) -> i64 {
        1 + i64::from(self.rng.next())
    }

    /// The calling thread waits for others: they go first.
    pub(super) fn give_way(&mut self) {
        self.choice.lowest -= 1;
        let (current, lowest) = (self.current, self.choice.lowest);
        self.threads[current].priority = lowest;
    }

    /// Chooses among the threads that have a core, not by time. `None` if there
    /// are none.
    pub(super) fn choose(&mut self) -> Option<ThreadId> {
        let mut candidates = std::mem::take(&mut self.choice.candidates);
        candidates.clear();
        candidates.extend(self.cores.runnable(self.now));
        let chosen = match self.config.chooser {
            _ if candidates.is_empty() => None,
            Chooser::Pct { .. } => self.choose_by_priority(&candidates),
            Chooser::Random | Chooser::Timed => {
                Some(candidates[self.below(candidates.len() as u32) as usize])
            }
        };
        self.choice.candidates = candidates;
        chosen
    }

    fn choose_by_priority(&mut self, candidates: &[ThreadId]) -> Option<ThreadId> {
        let due = self.choice.changes.last().is_some_and(|step| *step <= self.counts.steps);
        if due {
            self.choice.changes.pop();
        }
        if due || self.threads[self.current].steps.is_multiple_of(TOO_LONG) {
            self.give_way();
        }
        candidates.iter().copied().max_by_key(|t| self.threads[*t].priority)
    }
}
