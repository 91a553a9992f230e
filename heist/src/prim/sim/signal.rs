//! Signals to a thread.
//!
//! A signal comes before some step of its thread: the next one that is taken when
//! nothing else is asked of the machine, a later one in a run that explores, since a
//! real one takes its time, too. It ends a sleep. Its handler runs on the thread, on
//! the stack that it was on, and no other handler on top of that. As on Linux, a
//! signal that comes while its like waits is forgotten.

use super::machine::{Machine, step, with};
use super::record::Op;
use super::vthread::{State, ThreadId};

/// A thread's side of it.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// What came with the signal that waits.
    pending: Option<u64>,
    /// The handler runs.
    busy: bool,
}

/// Sends a signal. False if the thread has ended.
#[track_caller]
pub(super) fn send(to: ThreadId, value: u64) -> bool {
    step(Op::Signal, 0);
    with(|m| m.send_signal(to, value)).unwrap_or(false)
}

/// The calling thread is about to take a step, or has slept: what has come for it is
/// handled first.
pub(super) fn take() {
    let Some(Taken { handler, value, in_user }) = with(Machine::take_signal).flatten() else {
        return;
    };
    handler(value);
    with(|m| {
        let current = m.current;
        m.threads[current].mailbox.busy = false;
        m.threads[current].in_user = in_user;
    });
}

/// A signal that has come.
struct Taken {
    handler: fn(u64),
    value: u64,
    /// The thread was in user code.
    in_user: bool,
}

impl Machine {
    fn send_signal(&mut self, to: ThreadId, value: u64) -> bool {
        if self.threads.get(to).is_none_or(|t| t.state == State::Ended) {
            return false;
        }
        if self.one_in(self.config.faults.deaf) {
            return true; // the thread masks it
        }
        let mailbox = &mut self.threads[to].mailbox;
        mailbox.pending.get_or_insert(value);
        // A handler masks it, until it is over.
        if !mailbox.busy {
            self.stop_waiting(to);
            self.unblock(to);
        }
        true
    }

    fn take_signal(&mut self) -> Option<Taken> {
        /// One in so many steps before which a signal could come is the one.
        const LATENESS: u32 = 3;
        let current = self.current;
        let thread = &self.threads[current];
        let handler = self.config.hooks.signal?;
        if thread.mailbox.pending.is_none() || thread.mailbox.busy {
            return None;
        }
        if !self.timed() && !self.one_in(LATENESS) {
            return None;
        }
        if self.timed() {
            self.cost(self.config.costs.signal);
        }
        let thread = &mut self.threads[current];
        // The kernel's own fences.
        thread.buffer.flush();
        thread.mailbox.busy = true;
        let value = thread.mailbox.pending.take()?;
        Some(Taken { handler, value, in_user: std::mem::take(&mut thread.in_user) })
    }
}
