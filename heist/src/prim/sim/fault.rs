//! What goes wrong on the machine, and how often.

use super::machine::Machine;
use super::vthread::State;

/// One in so many, each; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Steps at which some sleeper's futex call returns without a wake-up.
    pub(crate) spurious: u32,
    /// Wake-ups that arrive late.
    pub(crate) late: u32,
    /// Steps at which a core stands still for a while.
    pub(crate) stall: u32,
    /// Thread starts that the machine refuses.
    pub(crate) refuse: u32,
    /// Steps at which a thread loses its core to one that waits for it.
    pub(crate) preempt: u32,
    /// Steps at which the clock jumps to the next timer.
    pub(crate) jump: u32,
    /// Signals that nobody hears, since the thread masks them.
    pub(crate) deaf: u32,
}

/// How late a late wake-up can be, and how long a stall, in nanoseconds.
const LATEST: u32 = 200_000;
const LONGEST_STALL: u32 = 50_000;

impl Machine {
    /// The faults of a step. Not in a run by time, which measures.
    pub(super) fn faults_of_step(&mut self) {
        let faults = self.config.faults;
        if self.one_in(faults.spurious) {
            self.wake_somebody_in_vain();
        }
        if self.one_in(faults.stall) {
            let (core, until) = (self.below(self.cores.len() as u32), self.below(LONGEST_STALL));
            self.cores.stall(core as usize, self.now + u64::from(until));
        }
        if self.one_in(faults.preempt) {
            let core = self.below(self.cores.len() as u32) as usize;
            self.preempt(core);
        }
        if self.one_in(faults.jump)
            && let Some(next) = self.next_timer()
        {
            self.now = self.now.max(next);
        }
    }

    fn wake_somebody_in_vain(&mut self) {
        let sleepers: Vec<usize> = (0..self.threads.len())
            .filter(|t| {
                let thread = &self.threads[*t];
                thread.state == State::Blocked && thread.sleeps_on.is_some()
            })
            .collect();
        if sleepers.is_empty() {
            return;
        }
        let sleeper = sleepers[self.below(sleepers.len() as u32) as usize];
        self.stop_waiting(sleeper);
        self.unblock(sleeper);
    }

    /// How long a wake-up is on its way.
    pub(super) fn lateness(&mut self) -> u64 {
        if self.one_in(self.config.faults.late) { u64::from(self.below(LATEST)) } else { 0 }
    }

    /// Whether the machine refuses a thread.
    pub(super) fn refuses_thread(&mut self) -> bool {
        let refused = self.one_in(self.config.faults.refuse);
        self.refused |= refused;
        refused
    }
}
