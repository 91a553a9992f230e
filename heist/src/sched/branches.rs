//! Second branches that are shared: goroutines, from the claim to the end.
//!
//! Shared means: the record of a fork is claimed, and a goroutine without a stack is queued
//! that runs its second branch. The control block is the node; nothing else is
//! allocated. The one that forked takes it back, if nobody has begun it when its first branch
//! is done, or waits for its end ([`settle`]).

use super::forks::{List, Order, Record};
use super::g::{Birth, G, WaitReason};
use super::g_pool;
use super::m::{Inside, M};
use super::p::Held;
use super::protocol::branch::{BranchWord, Reclaim, Take};
use super::protocol::forks::{Forks, Link};
use super::protocol::g_state::Status;
use super::protocol::join::{Detach, Wait};
use super::schedt::{self, Sched};
use super::spawn::Counted;
use super::task::{Ended, Shutdown, Task};
use super::waiter::Waiter;
use super::wake;
use crate::context::Suspend;
use crate::prim::atomic::{Ordering, fence};
use crate::prim::mutant::{Mutant, is};
use std::any::Any;
use std::panic::Location;
use std::ptr;

/// The branch in its control block.
struct Branch {
    record: *const Record,
    word: BranchWord,
}

fn branch_of(g: &'static G) -> *mut Branch {
    g.storage.slot::<Branch>()
}

static BRANCH: Task = Task { run: run_branch, cancel: cancel_branch, drop_outcome: no_outcome };

pub(super) fn is_branch(g: &G) -> bool {
    ptr::eq(g.task(), &raw const BRANCH)
}

/// # Safety
///
/// As [`Task::run`].
unsafe fn run_branch(g: &'static G) -> Ended {
    // SAFETY: the block holds a branch, and is not freed before this goroutine has
    // ended.
    let branch = unsafe { &*branch_of(g) };
    if branch.word.take() == Take::Run {
        // SAFETY: taken: whoever forked it waits, with its frame, for the end of
        // this goroutine.
        unsafe { ((*branch.record).run)(branch.record, Order::Run) };
    }
    // Whoever forked it has the panic, if there was one.
    Ended::Quietly
}

/// # Safety
///
/// As [`Task::cancel`].
unsafe fn cancel_branch(g: &'static G, payload: Box<dyn Any + Send>) {
    // SAFETY: as in `run_branch`.
    let branch = unsafe { &*branch_of(g) };
    if branch.word.take() == Take::Run {
        // SAFETY: as in `run_branch`.
        unsafe { ((*branch.record).run)(branch.record, Order::Cancel(payload)) };
    }
}

/// # Safety
///
/// Never called: a branch leaves its outcome in the frame of the fork.
unsafe fn no_outcome(_: &'static G) {}

/// A thief has stolen a batch and would begin with its last. Branches are taken oldest
/// first: what was forked first is the most.
#[inline]
pub(super) fn oldest(thief: Held, last: &'static G) -> Option<&'static G> {
    if !is_branch(last) || thief.runq.push(last).is_err() {
        return Some(last);
    }
    // Nothing, if another thief was here meanwhile.
    thief.runq.pop().map(|popped| popped.item)
}

/// Fills a block in for a branch.
///
/// # Safety
///
/// The block is free and the caller's; the fork is claimed.
unsafe fn emplace(
    g: &'static G,
    (id, parent): (u64, u64),
    sched: &Sched,
    link: *mut Link,
    how: Order,
) {
    let record = link.cast::<Record>();
    // SAFETY: the link is a record's first field; the fork is claimed, so its frame
    // is there.
    unsafe { ((*record).run)(record, how) };
    g.init(Birth {
        id,
        runtime: sched.slot(),
        parent,
        flags: wake::UNDECIDED << super::g::flag::SCORE_SHIFT,
        site: Location::caller(),
        task: &BRANCH,
    });
    // SAFETY: the storage is free and ours.
    unsafe { branch_of(g).write(Branch { record, word: BranchWord::new() }) };
    // Release: pairs with the acquire in `settle`.
    // SAFETY: as above.
    unsafe { &(*record).branch }.store(ptr::from_ref(g).cast_mut(), Ordering::Release);
    g.state.become_(Status::Runnable);
}

/// Shares the oldest open fork of the caller, if there is one: claims it and queues
/// its branch.
fn share(inside: &Inside, g: &'static G, forks: &Forks) -> bool {
    let (p, sched) = (inside.p, inside.sched());
    // Without memory for a block the branch runs here.
    let Ok(node) = p.own().gs.take() else { return false };
    let claimed = forks.promote(|link| {
        // SAFETY: the block was just taken, and the fork claimed.
        unsafe { emplace(node, (p.next_id(), g.id()), sched, link, Order::Claimed) };
    });
    if !claimed {
        p.own().gs.put(node);
        return false;
    }
    p.counters.spawned.bump();
    p.counters.promoted.bump();
    wake::put_tail(sched, p, node);
    true
}

fn announce(sched: &'static Sched) {
    fence(Ordering::SeqCst);
    wake::wake_p(sched);
}

/// Somebody is idle: shares the oldest fork of the caller.
#[cold]
#[inline(never)]
pub(crate) fn share_one(list: &'static List) {
    let Some(inside) = Inside::enter() else { return };
    let Some(g) = inside.g() else { return };
    if share(&inside, g, &list.forks) {
        announce(inside.sched());
    }
}

/// The calling goroutine is going to block with its thread: what it has forked must
/// not wait for it.
pub(crate) fn share_all(inside: &Inside, g: &'static G) {
    if !inside.m.desk.is_open() || inside.sched().closing() {
        return;
    }
    share_all_of(inside, g);
}

#[cold]
fn share_all_of(inside: &Inside, g: &'static G) {
    // SAFETY: the goroutine runs here, or has just left.
    let list = unsafe { g.frame() }.and_then(|frame| frame.ext.forks.get());
    let mut shared = false;
    while list.is_some_and(|list| share(inside, g, &list.0.forks)) {
        shared = true;
    }
    if shared {
        announce(inside.sched());
    }
}

/// A goroutine that has forked has left its stack; nobody else has it yet.
#[cold]
#[inline(never)]
pub(crate) fn left(m: &'static M, g: &'static G, asked: Option<Suspend>) {
    m.desk.close();
    m.sched.forking.fetch_sub(1, Ordering::Relaxed);
    if asked == Some(Suspend::Done) || m.sched.closing() || is(Mutant::KeepForks) {
        return;
    }
    match Inside::enter() {
        Some(inside) => share_all_of(&inside, g),
        None => raid_all(m.sched, g),
    }
}

/// As [`share_all`], for an M that has lost its P.
pub(crate) fn share_all_without_p(m: &'static M, g: &'static G) {
    if m.desk.is_open() && !m.sched.closing() {
        raid_all(m.sched, g);
    }
}

/// Queues all forks of a goroutine that runs here without a P, or has just left.
#[cold]
fn raid_all(sched: &'static Sched, g: &'static G) {
    // SAFETY: the goroutine runs here, or has just left.
    let list = unsafe { g.frame() }.and_then(|frame| frame.ext.forks.get());
    let Some(list) = list else { return };
    while let Some(node) = raid(list.0, sched, None) {
        wake::inject(sched, sched.life(), node);
    }
}

/// Raids the list of a goroutine that runs: claims its oldest fork for the caller.
pub(super) fn raid(
    list: &'static List,
    sched: &'static Sched,
    p: Option<Held>,
) -> Option<&'static G> {
    if list.forks.is_empty() {
        return None;
    }
    let node = match p {
        Some(p) => p.own().gs.take(),
        None => g_pool::take(),
    };
    let node = node.ok()?;
    let id = schedt::reserve_ids(1);
    let ours = || list.runtime.load(Ordering::Relaxed) == u32::from(sched.slot()) + 1;
    // First: once it is claimed, its forker may end, and a shutdown count those that are
    // left.
    let counted = p.is_none().then(|| Counted::new(sched));
    let claimed = list.forks.raid(ours, |link| {
        // SAFETY: the block was just taken, and the fork claimed.
        unsafe { emplace(node, (id, 0), sched, link, Order::Raided) };
    });
    match (claimed, p) {
        (true, Some(p)) => {
            p.counters.spawned.bump();
            p.counters.raided.bump();
        }
        (true, None) => counted.into_iter().for_each(Counted::stays),
        (false, Some(p)) => p.own().gs.put(node),
        (false, None) => g_pool::put(node),
    }
    claimed.then_some(node)
}

/// What became of a second branch that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Settled {
    /// Nobody has begun it: it is the caller's again.
    Reclaimed,
    /// It has ended; its outcome is in the frame.
    Done,
}

/// The first branch is done, and the fork was claimed.
#[cold]
#[inline(never)]
pub(crate) fn settle(record: &Record, site: &'static Location<'static>) -> Settled {
    // SAFETY: set when the fork was claimed, from a `&'static`; the block is not freed
    // before we let go of it.
    let g: &'static G = unsafe { &*record.branch.load(Ordering::Acquire) };
    // SAFETY: a branch's block.
    match unsafe { &*branch_of(g) }.word.reclaim() {
        Reclaim::Mine => {
            if g.join.detach() == Detach::Done {
                free(g);
            }
            Settled::Reclaimed
        }
        Reclaim::Taken => {
            if !g.join.is_done() {
                let waiter = Waiter::current();
                if g.join.wait(waiter.word()) == Wait::Sleep {
                    // Not cut short: the branch borrows from this stack.
                    waiter.sleep_whatever_comes(WaitReason::Join, site);
                }
            }
            free(g);
            Settled::Done
        }
    }
}

fn free(g: &'static G) {
    match Inside::enter() {
        Some(inside) => inside.p.own().gs.put(g),
        None => g_pool::put(g),
    }
}

/// What unwinds whoever waits for something that a shutdown has cancelled.
pub(crate) fn shutdown_payload() -> Box<dyn Any + Send> {
    Box::new(Shutdown)
}

/// Whether a panic's payload is the order to unwind.
pub(crate) fn is_shutdown(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Shutdown>()
}
