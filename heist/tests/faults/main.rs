//! Bad input and bad luck: overflows, crashes, deadlocks, signals, exits,
//! panics. Each gives a clear message or keeps working; nothing hangs.
//!
//! Most of these end a process, so they run this binary again for one test with
//! `HEIST_TEST_CHILD` set. Two need a process without libtest's threads:
//! `examples/deadlock.rs` and `examples/panics.rs`.

#[path = "../common/mod.rs"]
mod common;

mod asleep;
mod exit;
mod line;
mod much;
mod panics;
mod process;
mod settings;
mod stack;
mod threads;
