//! What a workload notes while it runs. It costs no virtual time.

use crate::prim::sim::{Counts, counts, forget_places, longest_waits, most_transfers, now};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Default)]
struct Notes {
    on: bool,
    expected: usize,
    done: usize,
    /// Latencies count from the beginning, not only in the window.
    from_rest: bool,
    /// Nanoseconds of user code, within the window.
    work: u64,
    latencies: Vec<u64>,
    /// The window in which the machine is busy everywhere: from a third of the
    /// tasks to nine tenths.
    window: Option<(u64, u64)>,
    opened: u64,
    begun: (u64, Counts),
    /// Since [`Probe::begin`]: tasks, and page faults before that.
    tasks: usize,
    faults_before: u64,
    /// Tasks since then.
    counted: usize,
    /// What was counted until the window's end, and for how many tasks.
    ended: Option<(u64, Counts, usize)>,
    transfers_at: Vec<(String, u64)>,
    waits_at: Vec<(String, u64)>,
}

/// Shared by all goroutines of a workload.
#[derive(Clone, Default)]
pub(super) struct Probe(Rc<RefCell<Notes>>);

// SAFETY: all goroutines of a simulated machine are on one OS thread.
unsafe impl Send for Probe {}
// SAFETY: as above.
unsafe impl Sync for Probe {}

/// What was noted.
pub(super) struct Noted {
    pub(super) tasks: usize,
    pub(super) work: u64,
    /// Of the window.
    pub(super) time: u64,
    /// What the counts are of: the window, or everything if it is the beginning that
    /// matters.
    pub(super) total: u64,
    pub(super) latencies: Vec<u64>,
    pub(super) counts: Counts,
    /// How many tasks the counts are of.
    pub(super) counted: usize,
    /// First touches of pages for each task, from the beginning on: who is busy needs no
    /// more of them.
    pub(super) page_faults: f64,
    /// The places that waited longest for lines, and for locks.
    pub(super) transfers_at: Vec<(String, u64)>,
    pub(super) waits_at: Vec<(String, u64)>,
}

impl Probe {
    /// From now on, everything is noted.
    pub(super) fn begin(&self) {
        forget_places();
        let (begun, faults_before) = ((now(), counts()), counts().page_faults);
        *self.0.borrow_mut() = Notes { on: true, begun, faults_before, ..Notes::default() };
    }

    /// So many tasks are about to come.
    pub(super) fn expect(&self, n: usize) {
        let mut notes = self.0.borrow_mut();
        (notes.expected, notes.done) = (n, 0);
    }

    /// The same, and it is the beginning that matters: nobody is awake yet.
    pub(super) fn expect_from_rest(&self, n: usize) {
        self.expect(n);
        self.0.borrow_mut().from_rest = true;
    }

    /// A task of so many nanoseconds is done.
    pub(super) fn task(&self, nanos: u64) {
        let mut notes = self.0.borrow_mut();
        if !notes.on {
            return;
        }
        notes.done += 1;
        notes.counted += 1;
        notes.tasks += 1;
        let (from, to) = (notes.expected / 3, notes.expected * 9 / 10);
        if notes.done == from.max(1) {
            notes.opened = now();
            if !notes.from_rest {
                (notes.begun, notes.counted) = ((now(), counts()), 0);
                forget_places();
            }
        } else if notes.done > from && notes.done <= to {
            notes.work += nanos;
            let (time, tasks) = notes.window.unwrap_or_default();
            if notes.done == to {
                notes.window = Some((time + now() - notes.opened, tasks + (to - from) as u64));
                notes.ended = Some((now(), counts(), notes.counted));
                notes.transfers_at = most_transfers();
                notes.waits_at = longest_waits();
            }
        }
    }

    pub(super) fn latency(&self, nanos: u64) {
        let mut notes = self.0.borrow_mut();
        if notes.on && (notes.from_rest || notes.done >= notes.expected / 3) {
            notes.latencies.push(nanos);
        }
    }

    /// Everything that was noted.
    pub(super) fn end(&self) -> Noted {
        let notes = self.0.take();
        let (time, tasks) = notes.window.unwrap_or((1, 0));
        let page_faults = (counts().page_faults - notes.faults_before) as f64;
        let (end, counts, counted) =
            notes.ended.unwrap_or_else(|| (now(), counts(), notes.counted));
        Noted {
            tasks: tasks as usize,
            work: notes.work,
            time: time.max(1),
            total: (end - notes.begun.0).max(1),
            latencies: notes.latencies,
            counts: counts.since(&notes.begun.1),
            counted,
            page_faults: page_faults / notes.tasks.max(1) as f64,
            transfers_at: notes.transfers_at,
            waits_at: notes.waits_at,
        }
    }
}
