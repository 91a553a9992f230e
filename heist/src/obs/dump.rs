//! The dump of all goroutines, in the shape that Go's users know.

use crate::prim::clock;
use crate::sched::g::{G, WaitReason, flag};
use crate::sched::protocol::g_state::Status;
use crate::sched::{g_pool, names, schedt};
use std::fmt::{self, Write};

/// Goroutines that a dying process lists: more would hide the message.
const ENOUGH: usize = 100;

/// Prints the dump to standard error, from wherever the process is.
pub(super) fn print() {
    let mut text = String::new();
    if !write_all(&mut text, ENOUGH, |visit| g_pool::try_each_used(visit)) {
        text.push_str("(the goroutines cannot be listed: their pool is locked)\n");
    }
    crate::prim::os::write_stderr(text.as_bytes());
}

/// The dump as text.
pub(crate) fn dump_to_string() -> String {
    let mut text = String::new();
    write_all(&mut text, usize::MAX, |visit| {
        g_pool::each_used(visit);
        true
    });
    text
}

fn write_all(
    text: &mut String,
    limit: usize,
    each: impl FnOnce(&mut dyn FnMut(&'static G)) -> bool,
) -> bool {
    let mut goroutines = Vec::new();
    let complete = each(&mut |g| goroutines.push(g));
    goroutines.sort_by_key(|g| g.id());
    let (now, calls) = (clock::now(), in_calls());
    // Writing to a string does not fail.
    for g in goroutines.iter().take(limit) {
        let _ = write_one(text, g, holder(g, &goroutines), calls.contains(&g.id()), now);
    }
    if goroutines.len() > limit {
        let _ = writeln!(text, "... and {} more goroutines", goroutines.len() - limit);
    }
    complete
}

/// The id of who held the lock that `g` waits for, if it is among `goroutines`, which
/// are sorted.
fn holder(g: &G, goroutines: &[&G]) -> Option<u64> {
    let low = u64::from(g.holder()?);
    let last = goroutines.last()?.id();
    let ids = (0..=last >> 32).map(|high| high << 32 | low);
    let lives = |id: &u64| goroutines.binary_search_by_key(id, |g| g.id()).is_ok();
    ids.into_iter().find(lives)
}

/// The ids of those in a call that was declared, and that have their P, perhaps:
/// only their M knows.
fn in_calls() -> Vec<u64> {
    let mut ids = Vec::new();
    for shared in schedt::all().filter_map(|sched| sched.shared.try_lock()) {
        let calls = shared.all_ms.iter().filter(|m| m.lease.in_call());
        ids.extend(calls.filter_map(|m| m.curg()).map(G::id));
    }
    ids
}

fn write_one(out: &mut String, g: &G, holder: Option<u64>, in_call: bool, now: u64) -> fmt::Result {
    let (reason, since) = g.wait();
    let state = match g.state.status() {
        Status::Waiting => reason.text(),
        Status::Runnable => "runnable",
        Status::Running if !in_call => "running",
        Status::Running | Status::Syscall => "syscall",
        Status::Preempted => "preempted",
        // It ended while we looked.
        Status::Idle | Status::Dead => return Ok(()),
    };
    write!(out, "goroutine {}", g.id())?;
    if let Some(name) = g.has(flag::NAMED).then(|| names::try_get(g.id())).flatten() {
        write!(out, " '{name}'")?;
    }
    write!(out, " [{state}")?;
    let waits = g.state.status() == Status::Waiting && reason != WaitReason::None;
    let minutes = now.saturating_sub(since) / 60_000_000_000;
    if waits && minutes >= 1 {
        write!(out, ", {minutes} minute{}", if minutes == 1 { "" } else { "s" })?;
    }
    if let Some(holder) = holder.filter(|_| waits) {
        write!(out, ", it was held by goroutine {holder}")?;
    }
    if g.has(flag::PINNED) {
        write!(out, ", locked to thread")?;
    }
    if g.has(flag::IDLE_PRIORITY) {
        write!(out, ", idle priority")?;
    }
    writeln!(out, "]:")?;
    if let Some(site) = g.wait_site().filter(|_| waits) {
        writeln!(out, "\t{site}")?;
    }
    match g.parent() {
        0 => write!(out, "created by a plain thread")?,
        parent => write!(out, "created by goroutine {parent}")?,
    }
    if let Some(site) = g.site() {
        write!(out, "\n\t{site}")?;
    }
    writeln!(out, "\n")
}
