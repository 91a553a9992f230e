//! Leaving a P: park, yield, and being made ready again.

use super::g::{G, WaitReason, flag};
use super::in_place;
use super::m::{self, Inside, M, ToLeave};
use super::protocol::g_state::Ready;
use super::schedt::Sched;
use super::task::Shutdown;
use super::{brief, tls_guard, wake};
use crate::context::{Resume, Suspend};
use crate::prim::atomic::{AtomicU32, Ordering};
use crate::prim::fatal::fatal;
use crate::prim::{clock, hint, thread};
use std::panic::Location;
use std::ptr;

/// Puts the calling goroutine to sleep. The caller has made it known to exactly
/// one waker, who calls [`ready`] exactly once, before or after.
///
/// # Unwinding
///
/// Panics with a private payload when the runtime shuts down. A caller whose
/// waker may still come must then withdraw, and if it is too late for that,
/// [`absorb`] the wake-up.
#[inline(always)] // as `yield_now`
pub(crate) fn park(reason: WaitReason, site: &'static Location<'static>) {
    if park_whatever_comes(reason, site) == Resume::Unwind {
        unwind();
    }
}

/// Like [`park`], for waits that must not be cut short: returns also when the
/// runtime shuts down and wants the goroutine to unwind, and the caller, whose
/// waker may still come, parks again.
#[inline(always)] // as `yield_now`
pub(crate) fn park_whatever_comes(reason: WaitReason, site: &'static Location<'static>) -> Resume {
    let inside = match Inside::enter_to_leave() {
        ToLeave::Inside(inside) => inside,
        ToLeave::Evicted(m) => return park_without_p(m, reason, site),
        ToLeave::Foreign => fatal!("park outside of a goroutine"),
    };
    let Some(g) = inside.g() else { fatal!("park outside of a goroutine") };
    g.note_wait(reason, inside.p.now(), site);
    park_noted(inside, g)
}

/// The same by a goroutine that is inside and has noted what for.
#[inline(always)] // as `yield_now`
pub(crate) fn park_noted(inside: Inside, g: &'static G) -> Resume {
    if g.state.take_notified() {
        return Resume::Run;
    }
    if stays(inside.m, g) {
        return in_place::park(inside.pack(), g);
    }
    wake::learn(inside.p, g);
    wake_or_order(g, suspend(inside, g, Suspend::Park))
}

/// Like [`park_whatever_comes`], of the calling goroutine, which unwinds and waits until some
/// moment: it is told, too, since a runtime that closes has no timers, and sees to it that
/// it ends all the same.
#[cold]
#[inline(never)]
pub(crate) fn park_for_a_time(
    g: &'static G,
    reason: WaitReason,
    site: &'static Location<'static>,
) -> Resume {
    // SAFETY: the goroutine runs, and it is the caller.
    let timed = |timed| unsafe { g.frame() }.map(|frame| frame.ext.timed.set(timed));
    timed(true);
    let resumed = park_whatever_comes(reason, site);
    timed(false);
    resumed
}

/// A goroutine that is told to unwind while its wake-up is there has been woken.
#[inline(always)]
pub(crate) fn wake_or_order(g: &'static G, resumed: Resume) -> Resume {
    if resumed == Resume::Unwind && g.state.take_notified() {
        return Resume::Run;
    }
    resumed
}

/// A park on a thread that has no P: it was taken while the goroutine computed or
/// blocked. Waiting needs none.
#[cold]
#[inline(never)]
fn park_without_p(m: &'static M, reason: WaitReason, site: &'static Location<'static>) -> Resume {
    let Some(g) = m.goes_on_without_p() else { fatal!("park outside of a goroutine") };
    if g.state.take_notified() {
        m.lease.leave();
        return Resume::Run;
    }
    // First: by that a shutdown tells one that was woken from one that yields.
    g.note_wait(reason, clock::now(), site);
    if m.sched.closing() {
        return park_in_shutdown(m, g);
    }
    if stays(m, g) {
        return in_place::park_without_p(m, g);
    }
    wake_or_order(g, leave(g, Suspend::Park))
}

/// There is no P to be had any more: shutdown runs goroutines one after the
/// other. Those that must not leave their thread wait with it; others go back, so
/// that what they wait for can come.
fn park_in_shutdown(m: &'static M, g: &'static G) -> Resume {
    if must_stay(g) {
        return in_place::park_in_shutdown(m, g);
    }
    wake_or_order(g, leave(g, Suspend::Park))
}

/// Lets others run. The goroutine goes on when they have had their turn.
///
/// Inlined into the caller, like everything down to the switch: each frame
/// between the caller and the switch is returned from after it, and the CPU,
/// whose return predictor has seen other calls meanwhile, mispredicts each of
/// those returns (a yield went from 55 to 25 ns).
#[inline(always)]
pub(crate) fn yield_now() {
    if yield_whatever_comes() == Resume::Unwind {
        unwind();
    }
}

/// Like [`yield_now`], but returns also when the runtime shuts down.
#[inline(always)]
pub(crate) fn yield_whatever_comes() -> Resume {
    let inside = match Inside::enter_to_leave() {
        ToLeave::Inside(inside) => inside,
        ToLeave::Evicted(m) => return yield_without_p(m),
        ToLeave::Foreign => return yield_thread(),
    };
    let Some(g) = inside.g() else { fatal!("yield outside of a goroutine") };
    g.note_no_wait();
    if stays(inside.m, g) {
        return in_place::yield_now(inside.pack(), g);
    }
    wake::learn(inside.p, g);
    suspend(inside, g, Suspend::Yield)
}

#[cold]
fn yield_thread() -> Resume {
    thread::yield_now();
    Resume::Run
}

/// A yield on a thread that has no P. Also in a shutdown: a goroutine that was
/// woken there goes on where it waited, and may never wait again; it goes back,
/// and is told to unwind.
#[cold]
#[inline(never)]
fn yield_without_p(m: &'static M) -> Resume {
    let Some(g) = m.goes_on_without_p() else { return yield_thread() };
    g.note_no_wait();
    if stays(m, g) {
        return in_place::yield_without_p(m, g);
    }
    leave(g, Suspend::Yield)
}

/// How often a goroutine may look at something in vain before others get a turn.
const POLLS: u32 = 64;

/// A call that would have had to wait, and was told not to, has found nothing.
/// Goroutines that try again and again are to be stopped like those that wait:
/// every 64th such call on a P yields, and in a runtime that shuts down each unwinds once
/// the goroutine has lost its P, as a wait does.
///
/// So the caller has nothing that would be lost: who has calls [`poll_point_in_hand`].
///
/// **Not in a `Debug` or `Display`**, nor [`safe_point`], nor anything that waits:
/// `println!` formats while it holds the lock of stdout, which belongs to the thread and
/// may be taken by it again. The goroutine might go on on another thread, and the next one
/// on this thread would find the lock its own, and stdout in use.
#[inline]
pub(crate) fn poll_point() {
    if has_polled_enough() {
        yield_after_polls();
    }
}

/// A [`poll_point`] of a caller that is to have something back, the message that it tried
/// to send. Never unwinds: where it began, at its [`wait_point`], it could have.
#[inline]
pub(crate) fn poll_point_in_hand() {
    if has_polled_enough() {
        yield_in_hand();
    }
}

/// Whether the calling goroutine is to yield, since it has looked in vain too often, or
/// nobody schedules any more.
#[inline]
fn has_polled_enough() -> bool {
    let Some(m) = m::current() else { return false };
    let Some(g) = m.curg() else { return false };
    let Some(inside) = Inside::enter() else { return has_polled_enough_at_the_end(g) };
    let polls = &inside.p.own().polls;
    let left = polls.get();
    polls.set(if left > 0 { left - 1 } else { POLLS - 1 });
    left == 0
}

/// Without a P in a runtime that closes: on the thread that unwinds, say, which is told
/// when it yields, and ends by that alone. One that unwinds already goes on: it gives the
/// CPU away only every 64th time, since on a busy machine each costs a slice of the kernel's.
#[cold]
#[inline(never)]
fn has_polled_enough_at_the_end(g: &'static G) -> bool {
    if !thread::panicking() {
        return true;
    }
    let enough = was_let_go_enough(g);
    if enough {
        forget_let_go(g);
    }
    enough
}

#[cold]
#[inline(never)]
fn yield_after_polls() {
    yield_now();
}

#[cold]
#[inline(never)]
fn yield_in_hand() {
    let (Resume::Run | Resume::Unwind) = yield_whatever_comes();
}

/// How many goroutines are a few, to whom one gives way that is about to wait.
const FEW: usize = 8;

/// How many of those that are about to wait do so at once after one has given way in
/// vain.
const WARY: u32 = 16;

/// The caller is about to wait for one of many, which is dear. If a few goroutines are
/// runnable on its P, one of which may be what it waits for, they run first. Returns
/// whether they have.
///
/// A few only: behind many it would be later than one that is woken, who is next. And
/// not while a P is idle, which would be woken to take it away, unless this one's queues
/// are brief: then nobody is.
///
/// Never unwinds: the wait that follows does.
#[inline(always)]
pub(crate) fn give_way_to_few() -> bool {
    let Some(m) = m::current() else { return false };
    let Some(g) = m.curg() else { return false };
    if must_stay(g) || g.has(flag::IDLE_PRIORITY) {
        return false;
    }
    let Some(inside) = Inside::enter() else { return false };
    let (p, wary) = (inside.p, inside.p.own().wary.get());
    if wary > 0 {
        p.own().wary.set(wary - 1);
        return false;
    }
    let queued = p.runq.len();
    if queued == 0 || queued > FEW {
        return false;
    }
    if !p.runq.alone() {
        let sure = brief::is_sure(p);
        if !sure && m.sched.idle.idle_ps() != 0 {
            return false;
        }
        p.own().gives_way.set(sure);
    }
    drop(inside);
    let (Resume::Run | Resume::Unwind) = yield_whatever_comes();
    true
}

/// What [`give_way_to_few`] let run was not what the caller waits for.
pub(crate) fn gave_way_in_vain() {
    if let Some(inside) = Inside::enter() {
        inside.p.own().wary.set(WARY);
    }
}

/// How many runtimes have asked a goroutine to yield.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// sysmon, or who closes the runtime: whether some goroutine of it is asked to yield.
pub(crate) fn set_requests(sched: &'static Sched, some: bool) {
    if sched.requests.swap(some, Ordering::Relaxed) != some {
        // Wraps around: a sum of ones and minus ones.
        REQUESTS.fetch_add(if some { 1 } else { u32::MAX }, Ordering::Relaxed);
    }
}

/// A place where a goroutine that has had its time leaves: each call of the
/// runtime that succeeds without waiting. One load of a word that hardly ever
/// changes.
///
/// Never unwinds, since the caller may have done something that its own caller is to
/// know of: see [`wait_point`].
#[inline(always)]
pub(crate) fn safe_point() {
    if is_anybody_asked() {
        heed_request();
    }
}

/// A [`safe_point`] at the beginning of a call that a shutdown may cut short, since it may
/// wait. It is one that need not wait, and others may clean something up by it: a runtime
/// that closes, whose goroutines are asked all the time, lets 64 of them go, and then
/// unwinds the goroutine here.
#[inline(always)]
pub(crate) fn wait_point() {
    if is_anybody_asked() {
        heed_request_or_unwind();
    }
}

#[cold]
#[inline(never)]
fn heed_request_or_unwind() {
    let Some(m) = m::current() else { return };
    if !m.sched.closing() {
        return heed_request();
    }
    let Some(g) = m.curg() else { return };
    // One without a P, on the thread that unwinds, say, has entered in vain and never left.
    let inside = m.lease.inside() && m.p().is_some();
    let may_not = inside || may_not_be_preempted(g) || thread::panicking();
    if !may_not && was_let_go_enough(g) {
        yield_now();
    }
}

/// Counts how often the calling goroutine has gone on in a runtime that closes, and says
/// whether that was often enough.
fn was_let_go_enough(g: &'static G) -> bool {
    // SAFETY: the goroutine runs, and it is the caller.
    let Some(frame) = (unsafe { g.frame() }) else { return false };
    let let_go = &frame.ext.let_go;
    let_go.set(let_go.get().saturating_add(1));
    let_go.get() > POLLS
}

/// The calling goroutine is let go on as often again.
fn forget_let_go(g: &'static G) {
    // SAFETY: the goroutine runs, and it is the caller.
    if let Some(frame) = unsafe { g.frame() } {
        frame.ext.let_go.set(0);
    }
}

/// A [`safe_point`] at the end of a call that wakes others: they do not wait until its
/// caller's turn comes again.
pub(crate) struct SafePointAfter;

impl Drop for SafePointAfter {
    #[inline(always)]
    fn drop(&mut self) {
        safe_point();
    }
}

/// Whether some goroutine of the process is asked to yield.
#[inline(always)]
pub(crate) fn is_anybody_asked() -> bool {
    REQUESTS.load(Ordering::Relaxed) != 0
}

/// As [`safe_point`], for whoever comes here rarely.
#[cold]
#[inline(never)]
pub(crate) fn heed_request() {
    let Some(m) = m::current() else { return };
    if !m.preempt.load(Ordering::Relaxed) || m.lease.inside() {
        return;
    }
    let Some(g) = m.curg() else { return };
    if may_not_be_preempted(g) {
        return;
    }
    m.preempt.store(false, Ordering::Relaxed);
    if stays(m, g) {
        let (Resume::Run | Resume::Unwind) = yield_whatever_comes();
        return;
    }
    let inside = match Inside::enter_to_leave() {
        ToLeave::Inside(inside) => inside,
        // It has lost its P already, and has nothing to give.
        ToLeave::Evicted(m) => return m.lease.leave(),
        ToLeave::Foreign => return,
    };
    g.note_no_wait();
    wake::learn(inside.p, g);
    let (Resume::Run | Resume::Unwind) = suspend(inside, g, Suspend::Preempt);
}

/// Whether the goroutine is inside of `no_preempt`.
pub(crate) fn may_not_be_preempted(g: &'static G) -> bool {
    g.has(flag::NO_PREEMPT)
}

/// Runs `f` and lets the goroutine keep its P meanwhile, however long it computes.
pub(crate) fn no_preempt<T>(f: impl FnOnce() -> T) -> T {
    /// Ends it, also when `f` panics. Nested ones end with the outermost.
    struct Allow;
    impl Drop for Allow {
        fn drop(&mut self) {
            if let Some(g) = m::current_g() {
                g.set(flag::NO_PREEMPT, false);
            }
        }
    }
    let outermost = m::current_g().is_some_and(|g| {
        let outermost = !may_not_be_preempted(g);
        g.set(flag::NO_PREEMPT, true);
        outermost
    });
    let allow = outermost.then_some(Allow);
    let value = f();
    drop(allow);
    // Whoever asked meanwhile has waited.
    safe_point();
    value
}

/// Whether the goroutine, which is about to leave its thread, stays there: it has to,
/// or the guard of thread-locals has found a reason.
#[inline(always)]
pub(crate) fn stays(m: &'static M, g: &'static G) -> bool {
    must_stay(g) || (m.tls.is_guarded() && tls_guard::holds_thread_local(m, g))
}

/// Whether the goroutine cannot leave its thread: it is pinned, or it unwinds.
#[inline(always)]
pub(crate) fn must_stay(g: &'static G) -> bool {
    g.has(flag::PINNED) || thread::panicking()
}

/// Leaves the stack. On return the goroutine may be on another thread: `inside`
/// is gone, and everything else is looked up anew.
#[inline(always)]
pub(crate) fn suspend(inside: Inside, g: &'static G, how: Suspend) -> Resume {
    // The scheduler loop, which this goes to, leaves the runtime.
    std::mem::forget(inside);
    leave(g, how)
}

#[inline(always)]
fn leave(g: &'static G, how: Suspend) -> Resume {
    // SAFETY: the goroutine runs, on its own stack.
    unsafe {
        match g.frame() {
            Some(frame) => frame.suspend(how),
            None => fatal!("a goroutine runs without a stack"),
        }
    }
}

/// Unwinds the calling goroutine to its root, without a panic message.
#[cold]
pub(crate) fn unwind() -> ! {
    if cfg!(panic = "abort") {
        fatal!(
            "a runtime shuts down while its goroutines wait, and with panic = \"abort\" they \
             cannot be unwound:\n\tlet them end before it is dropped, or use the default \
             runtime, which never is"
        );
    }
    // Who catches it may clean up before it is told again.
    m::current_g().into_iter().for_each(forget_let_go);
    std::panic::resume_unwind(Box::new(Shutdown))
}

/// What the caller asked for is not to be had. If that is since its runtime shuts down,
/// it unwinds here and not at its next wait: the shutdown is no fault of the program's,
/// and whatever it would make of an error would look like one. Whoever unwinds already,
/// and a plain thread, goes on.
#[cold]
pub(crate) fn unwind_if_closing() {
    let closing = m::current().is_some_and(|m| m.curg().is_some() && m.sched.closing());
    if closing && !thread::panicking() {
        unwind();
    }
}

/// Makes a goroutine runnable. The one answer to its park.
#[inline]
pub(crate) fn ready(g: &'static G) {
    if let Some(m) = m::current()
        && m.sched.slot() == g.runtime()
        && !g.has(flag::IDLE_PRIORITY)
        && let Some(inside) = Inside::enter()
        // Not before: the entry may have waited for the P while the runtime began to close.
        && !inside.sched().closing()
    {
        return match g.ready_with_p() {
            Ready::Deferred => {}
            Ready::Enqueue => wake::ready_next(inside.m, inside.p, g),
        };
    }
    ready_from_outside(g);
}

#[cold]
#[inline(never)]
fn ready_from_outside(g: &'static G) {
    // Looked at before the goroutine is runnable: from then on a runtime that
    // shuts down may end it, and the block may be another's.
    let home = Home::of(g);
    match g.state.ready() {
        Ready::Deferred => {}
        Ready::Enqueue => home.enqueue(g),
    }
}

/// Where a goroutine is queued.
pub(crate) struct Home {
    sched: &'static Sched,
    /// The life of the scheduler that the goroutine belongs to.
    life: u32,
    idle_priority: bool,
}

impl Home {
    /// The home of a goroutine that cannot end meanwhile.
    #[inline]
    pub(crate) fn of(g: &'static G) -> Home {
        let sched = match m::current() {
            Some(m) if m.sched.slot() == g.runtime() => m.sched,
            _ => super::schedt::at(g.runtime()),
        };
        Home { sched, life: sched.life(), idle_priority: g.has(flag::IDLE_PRIORITY) }
    }

    /// Queues a runnable goroutine that nobody else has. If the runtime has
    /// closed since, it is left to those who close it.
    #[inline]
    pub(crate) fn enqueue(self, g: &'static G) {
        if self.idle_priority {
            return wake::inject_idle(self.sched, self.life, g);
        }
        if let Some(m) = m::current()
            && ptr::eq(m.sched, self.sched)
            && !self.sched.closing()
            && let Some(inside) = Inside::enter()
        {
            return wake::ready_next(inside.m, inside.p, g);
        }
        wake::inject(self.sched, self.life, g);
    }
}

/// Waits for a wake-up that is on its way to the calling goroutine, which no
/// longer wants it: its waker has been chosen and cannot be stopped.
pub(crate) fn absorb() {
    if let Some(g) = m::current_g() {
        while !g.state.take_notified() {
            hint::spin_loop();
            thread::yield_now();
        }
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::atomic::AtomicBool;
    use crate::sync::{Barrier, Condvar, Context, Mutex, Once, RwLock, Semaphore, WaitGroup};
    use crate::time::{Duration, Timer};
    use crate::{chan, go};
    use std::sync::Arc;

    /// Asks the caller to leave, as sysmon does, after what comes `before` and before each
    /// `call`, until another goroutine has run. How often it took.
    fn asks_until_another_runs(before: &dyn Fn(), call: &dyn Fn()) -> usize {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let other = go(move || runs.store(true, Ordering::Relaxed));
        let mut asks = 0;
        while !ran.load(Ordering::Relaxed) && asks < 100 {
            let m = m::current().unwrap();
            if m.lease.is_over() {
                // sysmon has taken the P on its own account.
                crate::thread::yield_now();
                continue;
            }
            asks += 1;
            before();
            // sysmon may take this back meanwhile: hence more than once.
            set_requests(m.sched, true);
            m.preempt.store(true, Ordering::Relaxed);
            call();
        }
        let _ = other.join();
        asks
    }

    /// On one P, whoever calls one of these over and over lets others run.
    #[test]
    fn calls_that_do_not_wait_honour_a_request() {
        let (send, receive) = chan::unbounded();
        let (mutex, rwlock) = (Mutex::new(()), RwLock::new(()));
        let (semaphore, condvar) = (Semaphore::new(1_000), Condvar::new());
        let timer = Timer::after(Duration::MAX, || ());
        assert!(timer.stop());
        let token = || crate::thread::current().unpark();
        let (done, once) = (Once::new(), Once::new());
        done.call_once(|| ());
        let group = WaitGroup::new();
        let calls: &[(&str, &(dyn Fn() + Sync))] = &[
            ("unpark", &|| crate::thread::current().unpark()),
            ("notify_one", &|| condvar.notify_one()),
            ("notify_all", &|| condvar.notify_all()),
            ("add", &|| group.add(1)),
            ("done", &|| group.done()),
            ("wait for nothing", &|| WaitGroup::new().wait()),
            ("call_once", &|| done.call_once(|| ())),
            ("call_once_force", &|| once.call_once_force(|_| ())),
            ("Once::wait", &|| done.wait()),
            ("send", &|| send.send(1).unwrap()),
            ("recv", &|| assert_eq!(receive.recv(), Ok(1))),
            ("lock", &|| drop(mutex.lock())),
            ("read", &|| drop(rwlock.read())),
            ("acquire", &|| std::mem::forget(semaphore.acquire())),
            ("Barrier::wait", &|| assert!(Barrier::new(1).wait().is_leader())),
            ("Timer::after", &|| drop(Timer::after(Duration::MAX, || ()))),
            ("Timer::stop", &|| assert!(!timer.stop())),
            ("cancel", &|| Context::background().with_cancel().1.cancel()),
            ("add_permits", &|| semaphore.add_permits(1)),
            ("syscall", &|| crate::syscall(|| ())),
            ("no_preempt", &|| crate::no_preempt(|| ())),
        ];
        crate::Builder::new().max_procs(1).build().unwrap().run(|| {
            group.add(1_000);
            (0..1_000).for_each(|_| send.send(1).unwrap());
            for (name, call) in calls {
                let asks = asks_until_another_runs(&|| (), call);
                assert!(asks < 100, "{name} is no safe point");
            }
            let parks: [&dyn Fn(); 2] =
                [&crate::thread::park, &|| crate::thread::park_timeout(Duration::MAX)];
            for park in parks {
                assert!(asks_until_another_runs(&token, park) < 100, "park with a token");
            }
        });
    }
}
