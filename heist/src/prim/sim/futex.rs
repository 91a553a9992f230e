//! Sleeping on a word.

use super::atomic::{AtomicU32, Ordering};
use super::machine::{observe, pause, step, with};
use super::record::Op;
use std::time::Duration;

/// A word that threads can sleep on.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Futex {
    word: AtomicU32,
}

impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Futex { word: AtomicU32::new(value) }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Sleeps while the word equals `expected`. May return early.
    #[track_caller]
    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        step(Op::FutexWait, self.address());
        // The kernel compares and sleeps in one go.
        let mut same = false;
        observe(|| same = self.word.load(Ordering::SeqCst) == expected);
        if !same {
            return;
        }
        let timeout = timeout.map(crate::prim::nanos);
        with(|m| {
            let until = timeout.map(|t| m.time().saturating_add(t));
            m.block(Some(self.address()), until);
        });
        pause();
    }

    /// Wakes one sleeper, if there is one.
    #[track_caller]
    pub(crate) fn wake_one(&self) {
        step(Op::FutexWake, self.address());
        with(|m| {
            if m.wake_one(self.address()) && m.timed() {
                m.cost(m.config.costs.wake_call);
            }
        });
    }
}
