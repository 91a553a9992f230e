//! Runners: goroutines that go on without a P. Past a cap, the one that has run
//! longest is frozen, by its thread's own time and what it is owed (`account`).
//!
//! A frozen goroutine waits inside of a signal handler, on its own thread, wherever
//! it was: nothing is switched, so nothing that it was in the middle of can break.
//! It is queued like one that yielded, and the M that finds it hands its P over and
//! wakes the thread (`exec::hand_over`).
//!
//! 1. sysmon asks (`protocol::freeze`) and sends SIGURG to the thread, with the
//!    number of the question.
//! 2. The handler refuses where the thread must not stop ([`may_freeze`]); sysmon
//!    asks again soon. Otherwise it says so and waits.
//! 3. sysmon sees that and queues the goroutine.
//! 4. The handler wakes up with a P and returns; or without one, when the runtime
//!    closes, when sysmon lets the thread go, or when sysmon does nothing any more.
//!
//! # What a frozen thread may hold
//!
//! A lock of heist: never, those are counted ([`lock::any_held`]). A lock of
//! the C library or the dynamic linker: never, the handler refuses while the program
//! counter is in them. Any other lock (a std `Mutex`, that of `stdout`, of an
//! allocator linked into the program): whoever wants it sleeps in the kernel, loses
//! its P, and so the frozen one's turn comes. That fails if the one who wants it is
//! in the runtime (an allocator's lock): an M there keeps its P, and may even hold
//! the scheduler's lock; or on the way there, in std's part of starting a thread, with
//! a P that waits for it. sysmon notices that such an M sleeps, or such a P does not
//! arrive, and lets the frozen ones go, the oldest first. And sysmon itself may be the one: it starts threads,
//! which allocates, and it needs the scheduler's lock. So a frozen thread looks
//! after it, ever more rarely: one that has not moved meanwhile waits for
//! somebody, perhaps for this thread, which goes on then without being asked.
//!
//! # When the signal does not come
//!
//! The thread masks it, or somebody has replaced the handler: after a while sysmon
//! withdraws the question and lets the goroutine be, for a second. More threads
//! than wanted compute then; nobody starves.

use super::account;
use super::g::{G, flag};
use super::in_place;
use super::m::{self, M};
use super::protocol::freeze::{Answer, Epoch};
use super::protocol::g_state::Status;
use super::schedt::Sched;
use super::{signal, wake};
use crate::prim::atomic::{Ordering, fence};
use crate::prim::lock;
use crate::prim::mutant::{Mutant, is};
use std::ptr;
use std::time::Duration;

/// How often a runner's CPU clock is read, at the most and at the least.
const CHECK_SOON: u64 = 1_000_000;
const CHECK_LATE: u64 = 10_000_000;

/// How long a thread may run without answering a signal, which comes first when it
/// runs.
const PATIENCE: u64 = 2_000_000;

/// How long one that does not hear is left in peace.
const DEAF: u64 = 1_000_000_000;

/// A thread that used more than this part of the time computes.
const BURNS: u64 = 16;

/// How long one that must not be stopped where it was is left in peace: it is likely
/// to be there again, and a signal costs some microseconds.
const REFUSED: u64 = 200_000;

/// How long one that was let go may run, by its CPU clock, before it is asked again: to where
/// it gives back what somebody may wait for.
const SPARED: u64 = 5_000_000;

/// After which time a frozen thread looks whether sysmon moves: at first, and at the
/// most.
const TRUST_FIRST: Duration = Duration::from_millis(20);
const TRUST_LAST: Duration = Duration::from_secs(2);

/// A goroutine that goes on without a P.
struct Runner {
    m: &'static M,
    g: u64,
    cpu: u64,
    checked: u64,
    /// How long until its clock is read again.
    wait: u64,
    burns: bool,
    /// It computed when it was last looked at, or when its P was taken.
    computed: bool,
    /// The question, and the CPU clock when it was asked.
    asked: Option<(Epoch, u64)>,
    /// It stands still, or did at the last look: it answered this question.
    stands: Option<Epoch>,
    /// Not to be asked before.
    quiet_until: u64,
    /// Nor before its CPU clock shows that.
    spared: u64,
}

/// sysmon's list of runners.
pub(super) struct Freezer {
    sched: &'static Sched,
    runners: Vec<Runner>,
}

impl Freezer {
    pub(super) fn new(sched: &'static Sched) -> Self {
        Freezer { sched, runners: Vec::with_capacity(64) }
    }

    /// The P of `m` was taken while it ran `g`, which computed, or blocked its thread.
    /// It was first seen with that P when its thread's CPU clock showed `seen`, if it was read.
    pub(super) fn watch(
        &mut self,
        m: &'static M,
        g: &'static G,
        now: u64,
        computed: bool,
        seen: Option<u64>,
    ) {
        let old = self.runners.iter().position(|runner| ptr::eq(runner.m, m));
        // A question that is still open stays so: it may be answered now.
        let asked = old.and_then(|at| self.runners.swap_remove(at).asked);
        let cpu = m.os_thread().cpu_time().unwrap_or(0);
        m.account.lose_p(g.id(), seen, cpu);
        self.runners.push(Runner {
            m,
            g: g.id(),
            cpu,
            checked: now,
            wait: CHECK_SOON,
            burns: false,
            computed,
            asked,
            stands: None,
            quiet_until: 0,
            spared: 0,
        });
    }

    /// Whoever stopped the world has taken the Ps of some.
    pub(super) fn watch_evicted(&mut self, now: u64) {
        // A copy: `watch` allocates, and asks the kernel.
        let all = self.sched.shared.lock().all_ms.clone();
        for m in all {
            let out = m.lease.is_over() && !m.lease.inside();
            let Some(g) = m.curg().filter(|_| out) else { continue };
            let known = |runner: &Runner| ptr::eq(runner.m, m) && runner.g == g.id();
            if !self.runners.iter().any(known) {
                m.keep_time_no_more();
                self.watch(m, g, now, true, None);
            }
        }
    }

    /// When it wants to look again.
    pub(super) fn next(&self) -> Option<u64> {
        if self.running() <= self.cap() {
            return None;
        }
        let running = self.runners.iter().filter(|runner| runner.stands.is_none());
        running.map(|runner| runner.checked + runner.wait).min()
    }

    /// How many there are that do not stand still.
    fn running(&self) -> usize {
        self.runners.iter().filter(|runner| runner.stands.is_none()).count()
    }

    /// Whether there are so many runners that there should not be one more before
    /// some have stopped.
    pub(super) fn is_behind(&self) -> bool {
        let asked = self.runners.iter().filter(|runner| runner.asked.is_some()).count();
        asked > self.sched.procs() as usize
    }

    /// Whether one more may lose its P and go on without being in anybody's way.
    pub(super) fn has_room(&self) -> bool {
        let computes = |runner: &&Runner| runner.stands.is_none() && runner.computed;
        self.runners.iter().filter(computes).count() < self.cap()
    }

    fn cap(&self) -> usize {
        self.sched.max_runners()
    }

    /// One round. Returns whether there was something to do.
    pub(super) fn look(&mut self, now: u64) -> bool {
        let before = self.runners.len();
        self.runners.retain(Runner::is_one);
        let mut acted = self.take_answers(now) || self.runners.len() != before;
        self.runners.iter_mut().for_each(Runner::notice_let_go);
        if self.running() >= self.cap() {
            self.runners.iter_mut().for_each(|runner| runner.check(now));
        }
        if self.running() > self.cap() {
            acted |= self.ask_the_longest(now);
        }
        acted
    }

    /// Queues those that stand still.
    fn take_answers(&mut self, now: u64) -> bool {
        let sched = self.sched;
        let worth = account::worth(sched.procs(), self.cap());
        let mut some = false;
        for runner in &mut self.runners {
            let Some((epoch, at)) = runner.asked else { continue };
            some = true;
            match runner.m.freeze.answer(epoch) {
                Answer::Frozen => {}
                Answer::Refused => {
                    runner.asked = None;
                    runner.quiet_until = now + REFUSED;
                    continue;
                }
                Answer::Open if runner.ran_since(at) < PATIENCE => continue,
                Answer::Open => {
                    if runner.m.freeze.withdraw(epoch) {
                        runner.asked = None;
                        runner.quiet_until = now + DEAF;
                        continue;
                    }
                }
            }
            (runner.asked, runner.stands, runner.burns) = (None, Some(epoch), false);
            if let Some(cpu) = runner.m.os_thread().cpu_time() {
                runner.m.account.settle(cpu, worth);
            }
            queue(sched, runner.m);
        }
        some
    }

    fn ask_the_longest(&mut self, now: u64) -> bool {
        let burning = self.runners.iter().filter(|runner| runner.burns).count();
        let asked = self.runners.iter().filter(|runner| runner.asked.is_some()).count();
        if burning <= self.cap() + asked || self.sched.closing() {
            return false;
        }
        let longest = self
            .runners
            .iter_mut()
            .filter(|runner| runner.burns && runner.asked.is_none() && runner.quiet_until <= now)
            .filter(|runner| runner.spared <= runner.cpu)
            .max_by_key(|runner| runner.m.account.over(runner.cpu));
        let Some(runner) = longest else { return false };
        let Some(epoch) = runner.m.freeze.ask() else { return false };
        if runner.m.os_thread().interrupt(signal::PREEMPT, signal::our_value(epoch.word())) {
            let cpu = runner.m.os_thread().cpu_time().unwrap_or(0);
            runner.asked = Some((epoch, cpu));
        } else if runner.m.freeze.withdraw(epoch) {
            runner.quiet_until = now + DEAF;
        }
        true
    }
}

impl Runner {
    /// Whether it still is without a P, and runs the same goroutine.
    fn is_one(&self) -> bool {
        self.m.lease.is_over() && self.m.curg().is_some_and(|g| g.id() == self.g)
            || self.asked.is_some()
    }

    fn ran_since(&self, cpu: u64) -> u64 {
        self.m.os_thread().cpu_time().map_or(u64::MAX, |now| now.saturating_sub(cpu))
    }

    /// One that was let go without a P, and has heard it, is a runner as others are, after a
    /// while.
    fn notice_let_go(&mut self) {
        if self.stands.is_some_and(|epoch| !self.m.freeze.stands(epoch)) {
            (self.stands, self.wait, self.computed) = (None, CHECK_SOON, true);
            self.spared = self.m.os_thread().cpu_time().map_or(0, |cpu| cpu + SPARED);
        }
    }

    /// Does it compute?
    fn check(&mut self, now: u64) {
        if self.stands.is_some() || now - self.checked < self.wait {
            return;
        }
        let cpu = self.m.os_thread().cpu_time().unwrap_or(self.cpu);
        // One that has to share a CPU with many uses little of it, and still
        // computes: the kernel says whether it sleeps.
        let used = cpu.saturating_sub(self.cpu) * BURNS > now - self.checked;
        // One that was asleep and has not run since still is, or does not compute yet. There
        // may be hundreds of those, and the kernel takes its time to answer.
        let asleep = || cpu == self.cpu && !self.computed || self.m.os_thread().is_blocked();
        self.burns = !self.m.lease.in_call() && (used || !asleep());
        self.computed = self.burns;
        self.wait = if self.burns { CHECK_SOON } else { (self.wait * 2).min(CHECK_LATE) };
        (self.cpu, self.checked) = (cpu, now);
    }
}

/// Queues a thread that stands still.
fn queue(sched: &'static Sched, m: &'static M) {
    let queued = {
        let mut shared = sched.shared.lock();
        if !shared.closed {
            shared.frozen.push_back(m);
            sched.note_global_size(&shared);
        }
        !shared.closed
    };
    if queued {
        sched.preemption.freezes.bump();
        fence(Ordering::SeqCst);
        wake::wake_p(sched);
    } else {
        let_go(m);
    }
}

/// Lets the goroutine go that was frozen first, without a P. False if there is none.
pub(super) fn let_oldest_go(sched: &'static Sched) -> bool {
    let mut shared = sched.shared.lock();
    let gone = std::iter::from_fn(|| shared.frozen.pop_front()).any(let_go);
    sched.note_global_size(&shared);
    gone
}

/// False if the thread does not stand still any more.
fn let_go(m: &'static M) -> bool {
    let gone = m.freeze.let_go();
    if gone {
        m.note.wake();
    }
    gone
}

/// The signal handler, on the thread that was asked. Allocates nothing, takes no
/// lock; `pc` is where the thread was.
pub(super) fn answer(epoch: Epoch, pc: usize) {
    let _no_locks = lock::forbid();
    let Some(m) = m::current() else { return };
    let stops = m.curg().is_some_and(|g| may_freeze(m, g, pc));
    // It learns of its eviction here.
    let Some(g) = stops.then(|| m.goes_on_without_p()).flatten() else {
        m.freeze.refuse(epoch);
        return;
    };
    let pinned_before = in_place::pin(g, m);
    g.state.leave_with_thread(Status::Preempted);
    if m.freeze.freeze(epoch) {
        stand_still(m);
        // One that was let go has had no turn.
        if m.p().is_some() {
            m.turns.bump();
        }
        m.freeze.thaw();
    }
    g.state.run_with_thread(Status::Preempted);
    in_place::unpin(g, pinned_before);
}

/// Until there is a P, or a reason to go on without.
fn stand_still(m: &'static M) {
    let (mut trust, mut doubts) = (TRUST_FIRST, false);
    let mut seen = m.sched.sysmon.rounds();
    while !m.acquire_next_p() && !m.freeze.is_let_go() {
        // One that was called waits on: whoever did brings its P, come what may.
        if m.sched.closing() && m.freeze.let_go() {
            return;
        }
        if m.note.sleep_for(if doubts { TRUST_FIRST } else { trust }) {
            continue;
        }
        let rounds = m.sched.sysmon.rounds();
        let stands = std::mem::replace(&mut seen, rounds) == rounds;
        // Twice: on a machine with much to do it is the kernel that lets sysmon wait.
        if stands && doubts && m.freeze.let_go() {
            return;
        }
        doubts = stands;
        trust = (trust * 2).min(TRUST_LAST);
    }
}

/// Whether the thread may stand still where it is: in user code, without a P,
/// holding nothing that the runtime itself could wait for.
fn may_freeze(m: &'static M, g: &'static G, pc: usize) -> bool {
    if is(Mutant::FreezeAnywhere) {
        return g.state.status() == Status::Running && !m.sched.closing();
    }
    m.lease.is_over()
        && !m.lease.inside()
        && !m.lease.in_call()
        && g.state.status() == Status::Running
        && !g.has(flag::NO_PREEMPT)
        && !lock::any_held()
        && !signal::forking()
        && !signal::in_system_code(pc)
        && !m.sched.closing()
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::prim::atomic::AtomicBool;
    use crate::prim::{clock, thread};
    use crate::sched::schedt;
    use std::sync::Arc;

    const HOGS: usize = 100;

    /// What a hundred that compute for ever on two Ps have had, the least first.
    struct Shares {
        turns: Vec<u64>,
        /// Of their threads' own time.
        cpu: Vec<u64>,
    }

    impl Shares {
        fn of(threads: &[&'static M]) -> Shares {
            let turns = threads.iter().map(|m| m.turns.get()).collect();
            let cpu = threads.iter().map(|m| m.os_thread().cpu_time().unwrap()).collect();
            Shares { turns, cpu }
        }

        fn since(mut self, before: &Shares) -> Shares {
            for (now, before) in [(&mut self.turns, &before.turns), (&mut self.cpu, &before.cpu)] {
                now.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
                now.sort_unstable();
            }
            self
        }
    }

    /// What they have had when each has had so many turns, and whether that is nearly all
    /// that the CPUs had to give.
    fn shares_of_hogs(turns: u64) -> (Shares, bool) {
        let runtime = crate::Builder::new().max_procs(2).thread_name("turns").build().unwrap();
        let mut all = schedt::all().filter(|sched| !sched.closing());
        let sched = all.find(|sched| sched.config().thread_name == "turns").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..HOGS)
            .map(|_| {
                let stop = stop.clone();
                runtime.go(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        // Each stays on its thread.
        let running = || {
            let all = sched.shared.lock().all_ms.clone();
            all.into_iter().filter(|m| m.curg().is_some()).collect::<Vec<_>>()
        };
        while running().len() < HOGS {
            thread::sleep(Duration::from_millis(10));
        }
        let threads = running();
        let (before, begin) = (Shares::of(&threads), clock::now());
        let (shares, waited) = loop {
            thread::sleep(Duration::from_millis(10));
            let shares = Shares::of(&threads).since(&before);
            let waited = clock::now() - begin;
            if shares.turns[0] >= turns {
                break (shares, waited);
            }
            assert!(waited < 300_000_000_000, "some have no turns: {:?}", shares.turns);
        };
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        let nearly_all = shares.cpu.iter().sum::<u64>() >= waited * cpus.min(2) / 10 * 9;
        (shares, nearly_all)
    }

    /// As long as each has had its turns: nobody has had a fifth more of them than another, nor
    /// of the CPUs. On a machine with much else to do sysmon takes a thread that does not get to
    /// run for one that waits for what a stopped one has, and lets some go out of turn: a try
    /// that did not have the CPUs to itself shows nothing.
    #[test]
    fn a_hundred_hogs_get_on_alike() {
        const TURNS: u64 = 16;
        let within_a_fifth = |had: &[u64]| had[HOGS - 1] <= had[0] + had[0] / 5;
        let mut seen = Vec::new();
        let fair = (0..4).any(|_| {
            let (Shares { turns, cpu }, nearly_all) = shares_of_hogs(TURNS);
            seen.push([turns[0], turns[HOGS - 1], cpu[0], cpu[HOGS - 1]]);
            within_a_fifth(&turns) && within_a_fifth(&cpu) || !nearly_all
        });
        assert!(fair, "least and most of turns, and of the CPUs' nanoseconds: {seen:?}");
    }
}
