//! What the scheduler promises: parallelism, fairness, nobody forgotten. From
//! Go's scheduler tests as a list of behaviours, in our own words.

#[path = "../common/mod.rs"]
mod common;
mod fairness;
mod idle_priority;
mod inside;
mod parallelism;
mod runnext;
mod several;
mod waits;

use common::*;
use heist::thread;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Tests that keep all cores busy wait for each other: together they would
/// finish as well, but late.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes until something has happened: keeps its P.
fn spin_until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        std::hint::spin_loop();
    }
}
