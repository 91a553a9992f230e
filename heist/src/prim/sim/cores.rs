//! The virtual OS scheduler: which thread is on which core.
//!
//! One queue for all cores. A thread that wakes up goes to the core where it was
//! last if that is idle, else to an idle core near it, else it waits for one. A
//! thread that has had its core for a slice, or yields, loses it to one that waits. (A
//! slice alone is not fair: a loop that takes a lock and yields may be in step with it, and
//! lose its core only while it has the lock.)

use super::choose::Chooser;
use super::machine::Machine;
use super::topology::Topology;
use super::vthread::{State, ThreadId};
use std::cmp::Reverse;
use std::collections::VecDeque;

pub(super) struct Core {
    pub(super) thread: Option<ThreadId>,
    /// Its clock, in a run by time.
    pub(super) time: u64,
    /// Eighths of a nanosecond that the clock does not show yet.
    pub(super) eighths: u64,
    /// A thread that woke up is to have it.
    pub(super) preempt: bool,
    /// Stands still until then.
    stalled: u64,
}

pub(super) struct Cores {
    cores: Vec<Core>,
    /// Threads that want a core.
    pub(super) queue: VecDeque<ThreadId>,
    /// A bit for each core without a thread.
    idle: Vec<u64>,
    /// How many have one.
    busy: usize,
}

impl Cores {
    pub(super) fn new(n: usize) -> Self {
        let core = || Core { thread: None, time: 0, eighths: 0, preempt: false, stalled: 0 };
        let mut idle = vec![0u64; n.div_ceil(64)];
        (0..n).for_each(|c| idle[c / 64] |= 1 << (c % 64));
        Cores { cores: (0..n).map(|_| core()).collect(), queue: VecDeque::new(), idle, busy: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.cores.len()
    }

    /// How many cores have a thread.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    pub(super) fn at(&mut self, core: usize) -> &mut Core {
        &mut self.cores[core]
    }

    pub(super) fn time(&self, core: usize) -> u64 {
        self.cores[core].time
    }

    pub(super) fn set(&mut self, core: usize, thread: Option<ThreadId>) {
        self.busy -= usize::from(self.cores[core].thread.is_some());
        self.busy += usize::from(thread.is_some());
        self.cores[core].thread = thread;
        let (word, bit) = (core / 64, 1 << (core % 64));
        if thread.is_some() {
            self.idle[word] &= !bit;
        } else {
            self.idle[word] |= bit;
        }
    }

    pub(super) fn stall(&mut self, core: usize, until: u64) {
        self.cores[core].stalled = until;
    }

    /// The threads that have a core which does not stand still.
    pub(super) fn runnable(&self, now: u64) -> impl Iterator<Item = ThreadId> {
        self.cores.iter().filter(move |c| c.stalled <= now).filter_map(|c| c.thread)
    }

    /// When the first of the cores that stand still goes on.
    pub(super) fn next_unstalled(&self, now: u64) -> Option<u64> {
        let stalled = self.cores.iter().filter(|c| c.thread.is_some() && c.stalled > now);
        stalled.map(|c| c.stalled).min()
    }

    /// An idle core, near `core` if there is one.
    fn idle_near(&self, topology: &Topology, core: usize) -> Option<usize> {
        if self.cores[core].thread.is_none() {
            return Some(core);
        }
        topology.around(core).into_iter().find_map(|range| self.idle_in(range))
    }

    fn idle_in(&self, range: std::ops::Range<usize>) -> Option<usize> {
        let words = range.start / 64..range.end.div_ceil(64);
        words.into_iter().find_map(|word| {
            let mut bits = self.idle[word];
            if range.start > word * 64 {
                bits &= !0 << (range.start % 64);
            }
            if range.end < (word + 1) * 64 {
                bits &= !(!0 << (range.end % 64));
            }
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

impl Machine {
    /// A thread wants a core, from `time` on.
    pub(super) fn place(&mut self, thread: ThreadId, time: u64) {
        self.threads[thread].state = State::Ready;
        let last = self.threads[thread].core;
        match self.cores.idle_near(&self.config.topology, last) {
            Some(core) => {
                let latency = if self.timed() { self.config.costs.wake } else { 0 };
                self.put_on(core, thread, time + latency);
            }
            None => {
                self.cores.queue.push_back(thread);
                let running = self.cores.at(last).thread.map(|t| self.threads[t].since);
                if running.is_some_and(|since| since + self.config.costs.granularity < time) {
                    self.cores.at(last).preempt = true;
                }
            }
        }
    }

    /// A thread gets a core that has none.
    fn put_on(&mut self, core: usize, thread: ThreadId, time: u64) {
        self.counts.context_switches += 1;
        self.cores.set(core, Some(thread));
        let c = self.cores.at(core);
        c.preempt = false;
        c.time = c.time.max(time);
        let start = c.time;
        let t = &mut self.threads[thread];
        (t.state, t.core, t.since) = (State::Running, core, start);
        if self.timed() {
            self.schedule(core, start);
        }
    }

    /// In a run by time: the core takes its next step at `time`.
    pub(super) fn schedule(&mut self, core: usize, time: u64) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, core)));
    }

    /// A core's thread sleeps, ends or is taken off: the next one gets it.
    pub(super) fn vacate(&mut self, core: usize) {
        if let Some(thread) = self.cores.at(core).thread {
            let ran = self.time_of(core).saturating_sub(self.threads[thread].since);
            self.counts.busy += ran;
            self.threads[thread].cpu += ran;
            // The kernel's own fences.
            self.threads[thread].buffer.flush();
        }
        self.cores.set(core, None);
        if let Some(next) = self.cores.queue.pop_front() {
            let time = self.time_of(core).max(self.threads[next].ready_at);
            let switch = if self.timed() { self.config.costs.switch } else { 0 };
            self.put_on(core, next, time + switch);
        }
    }

    /// Takes a core from its thread, if another one waits for it.
    pub(super) fn preempt(&mut self, core: usize) {
        self.cores.at(core).preempt = false;
        if let Some(thread) = self.cores.at(core).thread
            && !self.cores.queue.is_empty()
        {
            self.threads[thread].state = State::Ready;
            self.vacate(core);
            self.cores.queue.push_back(thread);
        }
    }

    /// Whether the core's thread has to go: its slice is over, or somebody who
    /// woke up is to have the core.
    pub(super) fn slice_is_over(&mut self, core: usize, thread: ThreadId) -> bool {
        if self.cores.queue.is_empty() {
            return false;
        }
        let ran = self.time_of(core).saturating_sub(self.threads[thread].since);
        self.cores.at(core).preempt || ran > self.config.costs.slice
    }

    /// How long a thread has had a core.
    pub(super) fn cpu_time(&self, thread: ThreadId) -> u64 {
        let t = &self.threads[thread];
        // A core that computes is ahead of others, which do not know yet.
        let now = self.time_of(t.core).min(self.time());
        let running = t.state == State::Running;
        t.cpu + if running { now.saturating_sub(t.since) } else { 0 }
    }

    fn time_of(&self, core: usize) -> u64 {
        if self.timed() { self.cores.time(core) } else { self.now }
    }

    pub(super) fn timed(&self) -> bool {
        self.config.chooser == Chooser::Timed
    }
}
