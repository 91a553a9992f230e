//! The last steps of a run, for a report.

use super::machine::Machine;
use super::vthread::ThreadId;
use std::fmt::Write;
use std::panic::Location;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Load,
    Store,
    /// A read-modify-write.
    Update,
    Fence,
    /// A barrier on all cores (membarrier).
    Barrier,
    Spin,
    Yield,
    Clock,
    FutexWait,
    FutexWake,
    /// A call on a device or on what watches devices.
    Device,
    Start,
    Signal,
    /// User code.
    Work,
}

#[derive(Clone, Copy)]
struct Step {
    number: u64,
    time: u64,
    thread: ThreadId,
    core: usize,
    op: Op,
    address: usize,
    site: &'static Location<'static>,
}

/// How many steps a report shows.
const KEEP: usize = 80;

/// A ring of steps.
pub(super) struct Record {
    steps: Vec<Step>,
}

impl Record {
    pub(super) fn new() -> Self {
        Record { steps: Vec::with_capacity(KEEP) }
    }
}

impl Machine {
    pub(super) fn note_step(&mut self, op: Op, address: usize, site: &'static Location<'static>) {
        let current = self.current;
        self.threads[current].site = Some(site);
        let step = Step {
            number: self.counts.steps,
            time: self.time(),
            thread: self.current,
            core: self.threads[self.current].core,
            op,
            address,
            site,
        };
        if self.record.steps.len() < KEEP {
            self.record.steps.push(step);
        } else {
            self.record.steps[self.counts.steps as usize % KEEP] = step;
        }
    }

    /// The last steps, oldest first, a line each.
    pub(super) fn last_steps(&self) -> String {
        let mut steps = self.record.steps.clone();
        steps.sort_by_key(|step| step.number);
        let mut text = String::new();
        for step in steps {
            let name = &self.threads[step.thread].name;
            let _ = writeln!(
                text,
                "  {:>8}  {:>10} ns  core {:<3} {:<14} {:<9} {:#014x}  {}",
                step.number,
                step.time,
                step.core,
                name,
                format!("{:?}", step.op),
                step.address,
                place(step.site),
            );
        }
        text
    }
}

/// A place in heist's sources.
pub(super) fn place(site: &Location<'_>) -> String {
    let file = site.file().rsplit("src/").next().unwrap_or_default();
    format!("{file}:{}", site.line())
}
