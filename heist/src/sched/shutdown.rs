//! The end of a runtime, in steps.
//!
//! 1. **Close.** `closing` is set: spawns are refused, Ms stop when their
//!    goroutine leaves. The queues are closed: what is made ready from outside
//!    is not queued any more.
//! 2. **Stop.** Sleeping Ms are woken and end. Running ones end as soon as
//!    their goroutine parks, yields or returns; it yields when it looks at something
//!    in vain, or begins what might wait. Waits for them, up to the deadline.
//! 3. **Unwind.** With no M left, every goroutine that still lives is this
//!    thread's: one that never ran has its closure dropped, one that is parked
//!    is resumed with the order to unwind, so that everything on its stack is
//!    dropped. Whoever joins it gets an error. Up to the deadline, too.
//! 4. **Leave.** sysmon ends, others who waited in this runtime's poller are told to
//!    wait elsewhere, all threads are joined, the scheduler is recycled.
//!
//! A goroutine that does not stop by the deadline (it computes and calls nothing that
//! could wait, blocks its thread, or refuses to unwind) is left behind with its thread and reported on
//! standard error. Its memory stays valid for as long as the process lives.

use super::exec;
use super::g::{Frame, G, WaitReason, flag};
use super::m::{self, M};
use super::protocol::g_state::{Park, Status};
use super::protocol::join::Finish;
use super::schedt::Sched;
use super::task::Shutdown;
use super::waiter::Waiter;
use super::{g_pool, in_place, netpoll, park, sysmon};
use crate::context::{Resume, Suspend};
use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::fatal::fatal;
use crate::prim::{clock, thread};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

const STACK: usize = 1 << 20;

/// A goroutine that swallows the unwinding and parks again is resumed this
/// often before it is left behind.
const PATIENCE: usize = 100;

/// What is left of a runtime.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// So many goroutines, with or without their threads.
    Behind(usize),
}

/// Ends a runtime, from any thread. From one of its own goroutines it only
/// begins: the rest is done behind the caller's back.
pub(crate) fn close(sched: &'static Sched) {
    let Some(m) = m::current() else {
        close_and_report(sched);
        return;
    };
    // On a goroutine: its M must not wait. Another thread does. It does not
    // count as one of heist's, since it can wake a goroutine.
    let waiter = (m.sched.slot() != sched.slot()).then(Waiter::current);
    // At once, so that nothing is spawned after the drop, whoever does the rest.
    sched.start_closing();
    let started = thread::start("heist-shutdown".into(), STACK, move || {
        close_and_report(sched);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    });
    match (started, waiter) {
        (Ok(_), Some(waiter)) => {
            // Nothing withdraws the waiter: wait for its wake-up, come what may.
            let site = std::panic::Location::caller();
            waiter.sleep_whatever_comes(super::g::WaitReason::Join, site);
        }
        (Ok(_), None) => {}
        // No thread to do it: the runtime stays as it is, closed to new work.
        (Err(_), _) => sched.start_closing(),
    }
}

/// Ends a runtime without waiting for that.
pub(crate) fn close_behind(sched: &'static Sched) {
    sched.start_closing();
    if thread::start("heist-shutdown".into(), STACK, move || close_and_report(sched)).is_err() {
        close(sched);
    }
}

/// A goroutine panicked under `PanicPolicy::ShutDown`.
pub(crate) fn begin_from_panic(sched: &'static Sched) {
    let g = m::current_g().map_or(0, G::id);
    sched.fatal_panic.lock().get_or_insert(g);
    stop_everything(sched);
    // Somebody has to unwind the others, or whoever waits for them waits for
    // ever; it cannot be one of the Ms, which all end now.
    let deadline = deadline_of(sched);
    let mut shutdown_thread = sched.shutdown_thread.lock();
    if shutdown_thread.is_some() {
        return; // another panic was first
    }
    let started = thread::start("heist-shutdown".into(), STACK, move || {
        wind_down(sched, deadline);
    });
    match started {
        Ok(handle) => *shutdown_thread = Some(handle),
        Err(_) => fatal!("no thread to shut the runtime down after a panic in goroutine {g}"),
    }
}

fn deadline_of(sched: &'static Sched) -> u64 {
    let patience = crate::prim::nanos(sched.config().shutdown);
    clock::now().saturating_add(patience)
}

fn close_and_report(sched: &'static Sched) {
    if let Left::Behind(n) = close_blocking(sched) {
        let text = format!(
            "heist: a runtime was dropped while {n} of its goroutines would not stop;\n\t\
             they are left behind (see Builder::shutdown_timeout)\n"
        );
        crate::prim::os::write_stderr(text.as_bytes());
    }
}

/// All steps, on a thread that may sleep.
fn close_blocking(sched: &'static Sched) -> Left {
    let left = wind_down(sched, deadline_of(sched));
    let shutdown_thread = sched.shutdown_thread.lock().take();
    if let Some(handle) = shutdown_thread {
        // It had its turn before, or has nothing to do any more.
        let _ = handle.join();
    }
    sysmon::stop(sched);
    netpoll::dissolve(sched);
    if left != Left::Nothing {
        return left;
    }
    let ms = sched.shared.lock().all_ms.clone();
    for m in ms {
        let handle = m.thread.lock().take();
        if let Some(handle) = handle {
            // The thread has left the scheduler; what remains of it is std's.
            let _ = handle.join();
        }
    }
    sched.recycle();
    Left::Nothing
}

/// Steps 1 to 3. Whoever comes second waits and finds nothing to do.
fn wind_down(sched: &'static Sched, deadline: u64) -> Left {
    let left = wind_down_asked(sched, deadline);
    // It would slow other runtimes down.
    park::set_requests(sched, false);
    left
}

fn wind_down_asked(sched: &'static Sched, deadline: u64) -> Left {
    let mut given_up = sched.winding_down.lock();
    if *given_up {
        return Left::Behind(sched.goroutines());
    }
    stop_everything(sched);
    let mut unwinders = Unwinders::new(sched);
    loop {
        // Each time: sysmon, which says whether it asks somebody, may have seen too late
        // that the runtime closes.
        park::set_requests(sched, true);
        // Ms that wait with their goroutine may wait for one that must be
        // unwound first.
        if in_place::all_wait(sched) {
            let threads = sched.shared.lock().threads;
            if threads == 0 && sched.goroutines() == 0 && unwinders.all_done() {
                return Left::Nothing;
            }
            unwinders.help();
        }
        let Some(left) = deadline.checked_sub(clock::now()) else {
            *given_up = true;
            return Left::Behind(sched.goroutines());
        };
        // The last M and every unwinder say so when they end.
        sched.all_stopped.sleep_for(Duration::from_nanos(left.min(2_000_000)));
    }
}

/// Steps 1 and 2, without waiting.
fn stop_everything(sched: &'static Sched) {
    sched.start_closing();
    let all: Vec<&'static M> = {
        let mut shared = sched.shared.lock();
        shared.closed = true;
        // The goroutines in them are found by their state.
        shared.runq.clear();
        // Their threads see that the runtime closes, and go on.
        shared.frozen.clear();
        shared.idle_runq.clear();
        sched.runq_size.store(0, Ordering::SeqCst);
        sched.idle_runq_size.store(0, Ordering::SeqCst);
        shared.idle_ms.clear();
        shared.all_ms.clone()
    };
    // Also those that wait with their goroutine, and those that do not sleep
    // yet: a note keeps its signal.
    all.iter().for_each(|m| m.note.wake());
}

/// An M's thread is about to end.
pub(crate) fn thread_ended(m: &'static M) {
    let sched = m.sched;
    let mut shared = sched.shared.lock();
    shared.threads -= 1;
    shared.free_ms.push(m);
    let last = shared.threads == 0;
    drop(shared);
    if last && sched.closing() {
        sched.all_stopped.wake();
    }
}

/// The threads that unwind goroutines (step 3). One is enough, unless a
/// destructor on it waits for another goroutine, which must be unwound too:
/// then there is a second one, and so on.
struct Unwinders {
    sched: &'static Sched,
    threads: Vec<(thread::JoinHandle<()>, Arc<Unwinder>)>,
    /// When the last one was started.
    last: u64,
    /// The last that is done found nobody to unwind.
    in_vain: bool,
}

/// What an unwinder says of itself.
#[derive(Debug, Default)]
struct Unwinder {
    done: AtomicBool,
    /// It has found nobody: those who are left wait with their threads.
    in_vain: AtomicBool,
}

impl Unwinders {
    /// How long one may be busy before it is taken to wait.
    const BUSY: u64 = 20_000_000;
    /// How long after one that had nothing to do the next one is started, at the least.
    const IN_VAIN: u64 = 1_000_000;
    const MOST: usize = 64;

    fn new(sched: &'static Sched) -> Self {
        Unwinders { sched, threads: Vec::new(), last: 0, in_vain: false }
    }

    fn all_done(&self) -> bool {
        self.threads.iter().all(|(_, unwinder)| unwinder.done.load(Ordering::SeqCst))
    }

    /// Joins those that are done: they would keep their stacks.
    fn reap(&mut self) {
        for (handle, unwinder) in std::mem::take(&mut self.threads) {
            if unwinder.done.load(Ordering::SeqCst) {
                self.in_vain = unwinder.in_vain.load(Ordering::SeqCst);
                let _ = handle.join();
            } else {
                self.threads.push((handle, unwinder));
            }
        }
    }

    /// Starts one if there is none, or if those that there are seem to wait.
    fn help(&mut self) {
        let now = clock::now();
        let since = now.saturating_sub(self.last);
        self.reap();
        let busy = !self.threads.is_empty();
        let waits = since > Self::BUSY && self.threads.len() < Self::MOST;
        let in_vain = self.in_vain && since < Self::IN_VAIN;
        if self.sched.goroutines() == 0 || busy && !waits || in_vain {
            return;
        }
        self.last = now;
        let unwinder = Arc::new(Unwinder::default());
        let (sched, says) = (self.sched, unwinder.clone());
        let started = thread::start("heist-unwind".into(), STACK, move || {
            says.in_vain.store(!unwind_all(sched), Ordering::SeqCst);
            says.done.store(true, Ordering::SeqCst);
            sched.all_stopped.wake();
        });
        match started {
            Ok(handle) => self.threads.push((handle, unwinder)),
            Err(_) => drop(unwind_all(self.sched)),
        }
    }
}

impl Drop for Unwinders {
    fn drop(&mut self) {
        for (handle, unwinder) in self.threads.drain(..) {
            // One whose destructor does not return is left behind.
            if unwinder.done.load(Ordering::SeqCst) {
                let _ = handle.join();
            }
        }
    }
}

/// Unwinds the goroutines of a runtime that no M runs and no other unwinder has,
/// those apart that wait in place with an M of their own. Returns whether there were any.
fn unwind_all(sched: &'static Sched) -> bool {
    for p in sched.ps() {
        // Queued goroutines are found by their state.
        let _one_at_a_time = sched.unwinding.lock();
        drop(in_place::drain(p));
    }
    // An M without a P, so that the code that runs finds its goroutine.
    let m = sched.take_ghost();
    let before = thread::slot();
    thread::set_slot(ptr::from_ref(m).cast());
    let stack = super::signal::AltStack::install();
    let mut mine = Vec::new();
    g_pool::each_used(|g| {
        if is_left(sched, g) {
            mine.push((g, g.id()));
        }
    });
    // The youngest first: parents often wait for their children.
    mine.sort_by_key(|(_, id)| std::cmp::Reverse(*id));
    let any = !mine.is_empty();
    for (g, id) in mine {
        // An id that was claimed stays so, also when its block is another's.
        if !sched.unwinding.lock().insert(id) {
            continue;
        }
        // Since it was seen it may have ended, unwound by another, and its block be that
        // of another runtime's goroutine.
        if g.id() != id || !is_left(sched, g) || !unwind_one(sched, m, g) {
            sched.unwinding.lock().remove(&id);
        }
    }
    drop(stack);
    thread::set_slot(before);
    sched.put_ghost(m);
    any
}

/// Whether a goroutine of the runtime is left to an unwinder: nobody runs it, and it does
/// not wait with a thread of its own. One that runs, on a thread that the runtime has
/// lost, ends by itself or comes back.
fn is_left(sched: &'static Sched, g: &'static G) -> bool {
    // What is pinned stays so while it waits: asked before its state.
    g.runtime() == sched.slot()
        && !g.has(flag::PINNED)
        && matches!(g.state.status(), Status::Waiting | Status::Runnable)
}

/// Ends one goroutine. Returns whether it did.
fn unwind_one(sched: &'static Sched, m: &'static M, g: &'static G) -> bool {
    if !g.has_started() {
        // One that runs to its end on a thread of its own, which waited for a P
        // when the others stopped, has given its stack back already.
        if g.state.status() != Status::Runnable {
            return false;
        }
        cancel(g);
    } else if !unwind_started(m, g) {
        return false;
    }
    end_without_p(sched, g);
    true
}

/// A goroutine that never ran: its closure is dropped.
fn cancel(g: &'static G) {
    if g.has(flag::DROPPING) {
        // SAFETY: its outcome was left to be dropped, and nobody else runs it.
        unsafe { (g.task().drop_outcome)(g) };
    } else {
        // SAFETY: it never ran, so the storage holds its closure, and nobody
        // else will run it.
        unsafe { (g.task().cancel)(g, Box::new(Shutdown)) };
    }
}

/// Resumes a goroutine with the order to unwind, until its body has returned. It
/// may refuse; then it is tried again later.
fn unwind_started(m: &'static M, g: &'static G) -> bool {
    for _ in 0..PATIENCE {
        match g.state.status() {
            Status::Waiting => {
                if !g.state.claim_waiting() {
                    continue; // its waker came first
                }
            }
            // Woken, and not run since: it is owed the wake-up.
            Status::Runnable if g.wait().0 != WaitReason::None => g.state.claim_woken(),
            Status::Runnable => g.state.become_(Status::Running),
            _ => return false,
        }
        m.set_curg(Some(g));
        // SAFETY: no M is left: this thread alone resumes goroutines.
        let asked = unsafe { g.frame() }.and_then(|frame| unsafe { frame.resume(Resume::Unwind) });
        m.set_curg(None);
        match asked {
            Some(Suspend::Done) => return true,
            Some(Suspend::Park) => match g.state.park() {
                Park::Parked | Park::Notified => {}
            },
            Some(Suspend::Yield | Suspend::Preempt) => g.state.become_(Status::Runnable),
            // There is no P, so that it would have slept with the thread.
            Some(Suspend::Sleep) => fatal!("a goroutine left to sleep without a P"),
            None => fatal!("a goroutine lost its stack"),
        }
    }
    false
}

/// The end of a goroutine where there is no P to give its parts to.
pub(crate) fn end_without_p(sched: &'static Sched, g: &'static G) {
    if g.has_frame() {
        let started = g.has_started();
        let frame = exec::take_frame(g);
        // SAFETY: it is done, or never began, and nobody else has it.
        let stack = unsafe { if started { Frame::retire(frame) } else { Frame::discard(frame) } };
        crate::stacks::release(stack);
    }
    sched.foreign_finished.fetch_add(1, Ordering::Relaxed);
    g.state.forget_notification();
    match exec::bury(g) {
        Finish::HandleOwns => {}
        Finish::Wake(waiter) => Waiter::from_word(waiter).wake(),
        Finish::Detached => {
            if g.has(flag::OUTCOME) {
                // SAFETY: the outcome is in the storage and nobody has a handle.
                unsafe { (g.task().drop_outcome)(g) };
            }
            g_pool::put(g);
        }
    }
}
