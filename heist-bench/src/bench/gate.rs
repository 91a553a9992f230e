//! Waiting for many tasks, the same way for every peer: a counter, and a wake-up
//! from whoever brings it to zero.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tasks borrow it for ever, so none of them pays for a reference count.
pub(super) struct Gate<W> {
    left: AtomicU64,
    waiter: Mutex<Option<W>>,
}

impl<W> Gate<W> {
    /// Lives until the process ends: a process makes one.
    pub(super) fn new() -> &'static Gate<W> {
        Box::leak(Box::new(Gate { left: AtomicU64::new(0), waiter: Mutex::new(None) }))
    }

    /// Closes it, for `n` tasks to open.
    pub(super) fn close(&self, n: u64, waiter: W) {
        *self.waiter.lock().expect("nobody panics here") = Some(waiter);
        self.left.store(n, Ordering::Release);
    }

    /// A task is done.
    #[inline]
    pub(super) fn pass(&self, wake: impl FnOnce(&W)) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiter) = &*self.waiter.lock().expect("nobody panics here")
        {
            wake(waiter);
        }
    }

    /// Whether all tasks are done.
    pub(super) fn is_open(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// heist's gate: its goroutines park.
pub(super) type HeistGate = Gate<heist::thread::Thread>;

impl HeistGate {
    /// The calling goroutine will wait for `n`.
    pub(super) fn close_for_me(&self, n: u64) {
        self.close(n, heist::thread::current());
    }

    #[inline]
    pub(super) fn done(&self) {
        self.pass(heist::thread::Thread::unpark);
    }

    pub(super) fn wait(&self) {
        while !self.is_open() {
            heist::thread::park();
        }
    }
}

/// may's gate: its coroutines park.
pub(super) type MayGate = Gate<may::coroutine::Coroutine>;

impl MayGate {
    /// The calling coroutine will wait for `n`.
    pub(super) fn close_for_me(&self, n: u64) {
        self.close(n, may::coroutine::current());
    }

    #[inline]
    pub(super) fn done(&self) {
        self.pass(may::coroutine::Coroutine::unpark);
    }

    pub(super) fn wait(&self) {
        while !self.is_open() {
            may::coroutine::park();
        }
    }
}

/// tokio's gate: its tasks await a `Notify`.
pub(super) type TokioGate = Gate<&'static tokio::sync::Notify>;

impl TokioGate {
    #[inline]
    pub(super) fn done(&self) {
        self.pass(|notify| notify.notify_one());
    }

    pub(super) async fn wait(&self, notify: &'static tokio::sync::Notify) {
        while !self.is_open() {
            notify.notified().await;
        }
    }
}

/// A `Notify` that tasks borrow for ever.
pub(super) fn notify() -> &'static tokio::sync::Notify {
    Box::leak(Box::new(tokio::sync::Notify::new()))
}
