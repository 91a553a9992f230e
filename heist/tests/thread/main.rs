//! `heist::thread` keeps the promises of `std::thread`'s documentation, on
//! goroutines and on plain OS threads; `goroutine_local!` and `heist::stack`
//! keep their own.

#[path = "../common/mod.rs"]
mod common;
mod drops;
mod identity;
mod locals;
mod park;
mod scope;
mod spawn;
mod stacks;

use common::*;
use heist::thread;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

fn dig_from_here(goal: usize) -> usize {
    let top = 0u8;
    dig(std::hint::black_box(&raw const top).addr(), goal)
}

/// Recurses until at least `goal` bytes of stack are in use below `top`.
/// Returns the number of levels.
#[inline(never)]
fn dig(top: usize, goal: usize) -> usize {
    let mut page = [0u8; 2048];
    let here = std::hint::black_box(&mut page).as_ptr().addr();
    let below = if top.saturating_sub(here) >= goal { 0 } else { dig(top, goal) };
    // Used after the call, so that it cannot be a loop.
    page[below % page.len()] = 1;
    below + usize::from(std::hint::black_box(&page).contains(&1))
}
