//! Fork-join: the open forks of goroutines, and how branches are shared.
//!
//! A fork is a record in the frame of `par::join`, or of a loop whose rest is one
//! (`par::piece`), in a list that belongs to the goroutine (`protocol::forks`). To fork, a goroutine looks at the [`Desk`] of its
//! M, links the record, runs the first branch, unlinks the record and runs the
//! second: plain loads and stores, and two comparisons. Everything else is rare:
//!
//! | when | what |
//! |---|---|
//! | the first fork since an M resumed the goroutine | the desk is set up ([`approach`]); if a P is idle, the oldest fork is shared |
//! | somebody asked (`sched::thieves`) | the oldest fork is shared at the next fork |
//! | the goroutine parks, yields or waits with its thread | all its forks are shared ([`left`], [`share_all`]) |
//! | it neither forks nor leaves, and somebody is idle, or that lasts; or it has lost its P | the oldest fork is raided |
//! | the stack is short | the fork goes on on another segment |
//!
//! Shared means: the record is claimed, and a goroutine without a stack is queued
//! that runs its second branch. The control block is the node; nothing else is
//! allocated.
//!
//! `par/README.md` has the arguments: why the bound holds, why branches may block on
//! each other, and what memory is needed.

use super::g::{Birth, G, WaitReason};
use super::g_pool;
use super::m::{self, Inside, M};
use super::p::Held;
use super::park;
use super::protocol::branch::{BranchWord, Reclaim, Take};
use super::protocol::forks::{Forks, Link, Unlinked, Unset};
use super::protocol::g_state::Status;
use super::protocol::join::{Detach, Wait};
use super::schedt::{self, Sched};
use super::spawn::Counted;
use super::task::{Ended, Shutdown, Task};
use super::waiter::Waiter;
use super::{brief, netpoll, timers, wake};
use crate::context::Suspend;
use crate::prim::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence, fence_after_rmw, keep,
};
use crate::prim::clock;
use crate::prim::lock::{Lock, Rank};
use crate::prim::mutant::{Mutant, is};
use std::any::Any;
use std::cell::Cell;
use std::panic::Location;
use std::ptr::{self, NonNull};

/// Nobody's stack pointer is at or above these.
const SPECIAL: usize = usize::MAX - 2;
/// Somebody wants to know whether there is a fork within a certain time.
const PROBED: usize = SPECIAL;
/// The desk is not set up for the goroutine, or has to be set up anew.
const UNSET: usize = usize::MAX - 1;
/// Somebody asks for a branch.
const ASKED: usize = usize::MAX;

/// What a fork looks at first. One for each M, since Ms are never freed: thieves
/// write there.
#[derive(Debug)]
pub(crate) struct Desk {
    /// A fork whose record is below this address has something else to do first.
    /// It is the goroutine's stack limit and some, [`UNSET`], [`PROBED`], or [`ASKED`].
    /// Written by the M's thread, and by those who ask.
    guard: AtomicUsize,
    /// The forks of the goroutine that the guard is set up for.
    forks: AtomicPtr<List>,
    /// The goroutine has forked since it was resumed. Written by the M's thread.
    open: AtomicBool,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Desk {
            guard: AtomicUsize::new(UNSET),
            forks: AtomicPtr::new(ptr::null_mut()),
            open: AtomicBool::new(false),
        }
    }

    /// Whether the goroutine has forked since it was resumed.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The next fork sets the desk up anew. One that was asked for a branch does so anyway,
    /// and must not forget it: whoever asked may be asleep.
    fn measure_anew(&self) {
        let guard = self.guard.load(Ordering::Relaxed);
        if guard < SPECIAL {
            // Relaxed: as in `ask`. If it fails, somebody has asked meanwhile.
            let (set, unset) = (Ordering::Relaxed, Ordering::Relaxed);
            let _asked = self.guard.compare_exchange(guard, UNSET, set, unset);
        }
    }

    /// Asks for a branch.
    pub(super) fn ask(&self) -> Ask {
        let guard = self.guard.load(Ordering::Relaxed);
        match guard {
            ASKED => Ask::Before,
            UNSET => Ask::Nobody,
            _ => self.mark(guard, ASKED),
        }
    }

    /// Asks for a sign of life. The next fork gives it, and shares nothing: nobody is idle.
    pub(super) fn probe(&self) -> Ask {
        let guard = self.guard.load(Ordering::Relaxed);
        match guard {
            ASKED | PROBED => Ask::Before,
            UNSET => Ask::Nobody,
            _ => self.mark(guard, PROBED),
        }
    }

    fn mark(&self, guard: usize, with: usize) -> Ask {
        // Relaxed: a flag. If the desk changes meanwhile, nobody is asked.
        match self.guard.compare_exchange(guard, with, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ask::Asked,
            Err(_) => Ask::Nobody,
        }
    }

    /// The list of the goroutine that was asked, or probed, and has not answered.
    pub(super) fn silent(&self) -> Option<&'static List> {
        if !matches!(self.guard.load(Ordering::Relaxed), ASKED | PROBED) {
            return None;
        }
        // SAFETY: null or a leaked list.
        unsafe { self.forks.load(Ordering::Acquire).as_ref() }
    }
}

/// How a question was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Ask {
    /// The goroutine does not fork, or there is none.
    Nobody,
    /// It will answer at its next fork.
    Asked,
    /// Somebody else has asked, and it has not answered.
    Before,
}

/// The list of a goroutine, in memory that is never freed. In lines of its own: each
/// fork writes to it, and two goroutines that fork on two cores would take the line
/// from each other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct List {
    pub(crate) forks: Forks,
    /// Whose it is: the slot of a runtime and 1, or 0. Changes with the list's latch.
    runtime: AtomicU32,
    /// What is measured, while something is (see `par::measure`). The goroutine's.
    pub(crate) meter: Cell<*mut ()>,
}

// SAFETY: `meter` is touched only by the goroutine that the list is attached to.
unsafe impl Sync for List {}

static FREE: Lock<Vec<&'static List>> = Lock::new(Rank::Leaf, Vec::new());

/// A list that belongs to a frame.
pub(crate) struct Attached(&'static List);

impl Attached {
    fn new(sched: &Sched) -> Self {
        let free = FREE.lock().pop();
        let list = free.unwrap_or_else(|| {
            keep(Box::leak(Box::new(List {
                forks: Forks::new(),
                runtime: AtomicU32::new(0),
                meter: Cell::new(ptr::null_mut()),
            })))
        });
        let runtime = u32::from(sched.slot()) + 1;
        list.forks.with_latch(|| list.runtime.store(runtime, Ordering::Relaxed));
        Attached(list)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let list = self.0;
        list.forks.with_latch(|| list.runtime.store(0, Ordering::Relaxed));
        FREE.lock().push(list);
    }
}

/// What is done with a second branch.
pub(crate) enum Order {
    /// Nothing yet: it was claimed, with the list's latch, by a call for its forker, which
    /// does not run meanwhile.
    Claimed,
    /// The same by a raider: its forker may run.
    Raided,
    /// By another goroutine than the one that forked.
    Run,
    /// Not at all: the runtime shuts down.
    Cancel(Box<dyn Any + Send>),
}

/// A fork: the first field of what `par::join` or `par::piece` keeps in its frame.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Record {
    link: Link,
    /// Runs the second branch on another goroutine and leaves its outcome in the
    /// frame; before that it is told that the branch was claimed, by whoever claims it, on
    /// that one's stack and with the list's latch. Does not unwind.
    run: unsafe fn(*const Record, Order),
    /// The branch, once the fork is claimed.
    branch: Unset<G>,
    /// The list that it is linked into. Here and not in a variable of `join`: that would be
    /// in a register that every call of the recursion saves and restores, also at the
    /// leaves, which do not fork.
    list: Unset<Forks>,
}

impl Record {
    #[inline(always)]
    pub(crate) fn new(run: unsafe fn(*const Record, Order)) -> Self {
        let (link, branch) = (Link::new(), Unset::new());
        Record { link, run, branch, list: Unset::new() }
    }

    /// Links the fork.
    ///
    /// # Safety
    ///
    /// As [`Forks::link`].
    #[inline(always)]
    pub(crate) unsafe fn link_to(&self, forks: &'static Forks) {
        // Relaxed: only the goroutine that forks looks there.
        self.list.store(ptr::from_ref(forks).cast_mut(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { forks.link(&self.link) };
    }

    /// Unlinks the fork.
    ///
    /// # Safety
    ///
    /// It is linked, and the newest of its list.
    #[inline(always)]
    pub(crate) unsafe fn unlink(&self) -> Unlinked {
        // SAFETY: stored by `link_to`, from a `&'static`.
        let forks = unsafe { &*self.list.load(Ordering::Relaxed) };
        forks.unlink(&self.link)
    }

    /// Waits until nobody claims of the fork's list any more, and calls `f` before
    /// anybody else does.
    ///
    /// # Safety
    ///
    /// It is linked.
    pub(crate) unsafe fn with_latch<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: as in `unlink`.
        unsafe { &*self.list.load(Ordering::Relaxed) }.with_latch(f)
    }
}

/// The forks of the calling goroutine, if it can fork right here and has nothing else
/// to do first.
#[inline(always)]
pub(crate) fn at_once(here: usize) -> Option<&'static Forks> {
    let m = m::current()?;
    if here < m.desk.guard.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: a guard that is an address means that the list is the goroutine's, and
    // not null.
    Some(unsafe { &NonNull::new_unchecked(m.desk.forks.load(Ordering::Relaxed)).as_ref().forks })
}

/// What a fork that could not go on at once does.
#[derive(Debug)]
#[must_use]
pub(crate) enum Approach {
    /// Fork, and if so, share the oldest fork.
    Fork(&'static List, bool),
    /// The caller is no goroutine.
    Outside,
    /// Go on on another segment of the stack.
    Deep,
    /// Run both branches one after the other: the runtime closes.
    Serial,
    /// Run both branches one after the other and measure them.
    Metered(&'static List),
}

/// The rare part of a fork: before its record, at address `here`, is linked.
///
/// It must not unwind: the caller's second branch is bytes meanwhile, which nobody would drop.
/// So an order to unwind that comes while it yields is left to the next wait
/// (`park::heed_request`), and what is called here calls nobody's code but the runtime's.
#[cold]
#[inline(never)]
pub(crate) fn approach(here: usize) -> Approach {
    let Some(m) = m::current() else { return Approach::Outside };
    let Some(g) = m.curg() else { return Approach::Serial };
    // SAFETY: the goroutine runs, and it is the caller.
    let Some(frame) = (unsafe { g.frame() }) else { return Approach::Serial };
    let limit = frame.limit() + reserve(frame.class().usable());
    if here < limit {
        return Approach::Deep;
    }
    let Some(list) = own_list() else { return Approach::Serial };
    if !list.meter.get().is_null() {
        return Approach::Metered(list);
    }
    let Some(inside) = Inside::enter() else { return Approach::Serial };
    let sched = inside.sched();
    if sched.closing() {
        return Approach::Serial;
    }
    // The only safe point of a goroutine that does nothing but fork.
    if inside.m.preempt.load(Ordering::Relaxed) && !park::may_not_be_preempted(g) {
        if somebody_waits(&inside) {
            drop(inside);
            park::heed_request();
            return approach(here);
        }
        // It has the P for another slice: its branches are its own work, and better done
        // in their order.
        inside.m.preempt.store(false, Ordering::Relaxed);
        inside.p.tick_up();
    }
    let desk = &inside.m.desk;
    desk.forks.store(ptr::from_ref(list).cast_mut(), Ordering::Release);
    let mut before = desk.guard.swap(limit, Ordering::Relaxed);
    if !desk.is_open() {
        before = UNSET;
        desk.open.store(true, Ordering::Relaxed);
        sched.forking.fetch_add(1, Ordering::SeqCst);
    }
    let mut share = before == ASKED;
    if before == UNSET {
        // An M that goes to sleep counts its P as idle, fences, and asks those who
        // fork: it sees this one, or is seen here.
        fence_after_rmw();
        share |= sched.idle.idle_ps() != 0;
    }
    // Something to steal is there already: it will do for whoever asked, unless it is left
    // to this P.
    let to_steal = !inside.p.runq.rings_empty() && brief::left(&inside.p).is_none();
    Approach::Fork(list, share && !to_steal)
}

/// Whether there is something to run on the caller's P that is no branch. Runs the timers
/// that are due, and looks at the network.
fn somebody_waits(inside: &Inside) -> bool {
    let (sched, p) = (inside.sched(), inside.p);
    timers::run_due(sched, p);
    netpoll::look_if_late(sched, p, clock::now());
    let is_other = |g: &'static G| !ptr::eq(g.task(), &raw const BRANCH);
    if let Some(g) = p.runq.pop_if(is_other) {
        // It is the first, and stays it.
        let _none = p.runq.put_next(g);
    }
    sched.runq_size.load(Ordering::Relaxed) != 0
        || p.runq.peek_own().is_some()
        || p.runq.peek_offered().is_some()
}

/// The list of the calling goroutine.
pub(crate) fn own_list() -> Option<&'static List> {
    let m = m::current()?;
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = unsafe { m.curg()?.frame() }?;
    Some(frame.ext.forks.get_or_init(|| Attached::new(m.sched)).0)
}

/// The list of the calling goroutine, if that is being measured.
pub(crate) fn metered() -> Option<&'static List> {
    // SAFETY: the goroutine runs, and it is the caller.
    let frame = unsafe { m::current_g()?.frame() }?;
    let list = frame.ext.forks.get()?.0;
    (!list.meter.get().is_null()).then_some(list)
}

/// How much stack a fork leaves to the branches that do not fork, of so much.
fn reserve(usable: usize) -> usize {
    const MOST: usize = 256 << 10;
    (usable / 2).min(MOST)
}

/// How large a segment is that a fork goes on on.
pub(crate) const SEGMENT: usize = 1 << 20;

/// The calling goroutine goes on on another segment: forks measure anew.
pub(crate) fn refresh() {
    if let Some(m) = m::current() {
        m.desk.measure_anew();
    }
}

/// The branch in its control block.
struct Branch {
    record: *const Record,
    word: BranchWord,
}

fn branch_of(g: &'static G) -> *mut Branch {
    g.storage.slot::<Branch>()
}

static BRANCH: Task = Task { run: run_branch, cancel: cancel_branch, drop_outcome: no_outcome };

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
    if !ptr::eq(last.task(), &raw const BRANCH) || thief.runq.push(last).is_err() {
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
    let desk = &m.desk;
    desk.guard.store(UNSET, Ordering::Relaxed);
    desk.open.store(false, Ordering::Relaxed);
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

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;

    /// Whoever asked may sleep: the question stays until a fork answers it.
    #[test]
    fn another_segment_does_not_forget_a_question() {
        let desk = Desk::new();
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Nobody, "nobody forks");
        desk.guard.store(0x1000, Ordering::Relaxed);
        assert_eq!(desk.ask(), Ask::Asked);
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Before, "still asked");
        desk.guard.store(0x1000, Ordering::Relaxed);
        desk.measure_anew();
        assert_eq!(desk.ask(), Ask::Nobody, "to be set up anew");
    }

    #[test]
    fn a_probe_is_no_question_and_hides_none() {
        let desk = Desk::new();
        assert_eq!(desk.probe(), Ask::Nobody, "nobody forks");
        desk.guard.store(0x1000, Ordering::Relaxed);
        assert_eq!(desk.probe(), Ask::Asked);
        assert_eq!(desk.probe(), Ask::Before, "no fork since");
        assert_ne!(desk.guard.load(Ordering::Relaxed), ASKED);
        assert_eq!(desk.ask(), Ask::Asked);
        assert_eq!(desk.probe(), Ask::Before);
        assert_eq!(desk.guard.load(Ordering::Relaxed), ASKED, "still asked");
    }
}
