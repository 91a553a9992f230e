//! sysmon: a thread without a P that watches the others.
//!
//! | what | why |
//! |---|---|
//! | a goroutine that blocks its thread, or computes on | its P is taken (`retake`) |
//! | a runnext that stays | its owner computes on; it is taken to the others |
//! | a timer that is late, or will be | its P computes; a thief is woken, or the P is taken (`lookout`) |
//! | nobody looks at the network | all who could compute; it looks itself |
//! | work, an idle P and no searcher | a thread could not be started; try again |
//! | requests from the network that are shared | is there a CPU for it? (`company`) |
//! | a thief that was kept off a CPU | it may use all again if it does not wake up (`apart`) |
//! | a goroutine that forks, and an idle P, or 0.1 s without a fork | it is asked for a branch, then raided (`thieves`) |
//! | the CPU limit has changed | there are as many Ps as it says, unless set by hand |
//! | free stacks that lie around | their pages go back to the kernel |
//! | everything sleeps for good | deadlock: say so (`deadlock`) |
//! | `HEISTDEBUG=schedtrace` | the line is printed from here |
//! | SIGQUIT | the dump is printed from here, however wedged the others are |
//!
//! It sleeps 20 µs (0.1 ms while all compute), longer when there has been nothing to do
//! (`backoff`); and when all Ps have been idle for a while, until one of them is needed.

use super::backoff::{Backoff, LONG, MEDIUM, Round, SHORT};
use super::lookout::Lookout;
use super::m::HeistThread;
use super::mask::MAX_PROCS;
use super::p::{Count, P, run_between};
use super::protocol::run_queue::NextUp;
use super::retake::Retaker;
use super::schedt::Sched;
use super::thieves::Beat;
use super::{
    apart, brief, company, deadlock, g::G, netpoll, park, signal, steal, stop, thieves, timers,
    wake,
};
use crate::prim::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::prim::lock::{Lock, Rank};
use crate::prim::note::Note;
use crate::prim::thread::{OsThread, Pace};
use crate::prim::{clock, thread};
use crate::stacks;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// Those behind one who takes so long to answer a request are helped.
const LONG_REQUEST: u64 = 1_000_000;

/// How long one that forks may compute without a fork while all Ps are busy, before others
/// get a branch of its: twice that at most. Most have nothing to wait for, and do their
/// branches better themselves.
const SILENCE: u64 = 100_000_000;

/// How long all Ps must be idle before it sleeps deeply.
const LINGER: u64 = 100_000_000;
const TRIM_EVERY: u64 = 1_000_000_000;

/// When a process in which everything sleeps is looked at again.
const CHECK_FIRST: Duration = Duration::from_millis(500);
const CHECK_LAST: Duration = Duration::from_secs(8);

/// A P that has run so many goroutines since the last look moves: a quarter of a
/// millisecond each, if it looks as rarely as it may.
const MOVES: u32 = 16;

const STACK: usize = 256 << 10;

/// Reports, which the layer above knows how to print.
pub(crate) struct Reports {
    /// One line, and details if asked for, about a scheduler.
    pub(crate) trace: fn(&'static Sched, detail: bool),
    /// All goroutines of the process.
    pub(crate) dump: fn(),
    /// The schedulers and all goroutines, without waiting for anybody.
    pub(crate) dying: fn(),
}

static REPORTS: OnceLock<Reports> = OnceLock::new();

/// Sets the reports. The first caller wins.
pub(crate) fn set_reports(reports: Reports) {
    crate::prim::fatal::set_report(reports.dying);
    REPORTS.get_or_init(|| reports);
}

/// The part of a scheduler that belongs to its sysmon.
pub(crate) struct Sysmon {
    note: Note,
    /// It sleeps until somebody wakes it.
    deep: AtomicBool,
    /// Until when it sleeps; 0 if it does not, or only for the shortest time.
    until: AtomicU64,
    /// How long it sleeps at most while a P is idle and another busy, in nanoseconds.
    most: AtomicU64,
    stop: AtomicBool,
    rounds: Count,
    thread: Lock<Option<thread::JoinHandle<()>>>,
}

impl Sysmon {
    pub(crate) fn new() -> Self {
        Sysmon {
            note: Note::new(),
            deep: AtomicBool::new(false),
            until: AtomicU64::new(0),
            most: AtomicU64::new(MEDIUM.as_nanos() as u64),
            stop: AtomicBool::new(false),
            rounds: Count::default(),
            thread: Lock::new(Rank::Threads, None),
        }
    }

    /// How often it has looked around. It moves if this does.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.get()
    }

    /// Whether it sleeps until somebody wakes it. Changes with the scheduler's lock.
    #[cfg(sim)]
    pub(crate) fn sleeps_deeply(&self) -> bool {
        self.deep.load(Ordering::Relaxed)
    }

    /// A P is about to run something.
    #[inline]
    pub(crate) fn notice_activity(&self) {
        // Relaxed: it goes to sleep with the scheduler's lock held, and the
        // caller has that lock.
        if self.deep.load(Ordering::Relaxed) && self.deep.swap(false, Ordering::Relaxed) {
            self.note.wake();
        }
    }

    /// A timer was set that is due then, on a P with others to run, which may compute, or
    /// while this one looks rarely. The caller has published it and made a fence.
    #[inline]
    pub(crate) fn notice_timer(&self, when: u64) {
        // Relaxed: the fences here and in `Watch::sleep` see to it that it has seen the
        // timer, or this sees until when it sleeps.
        if when < self.until.load(Ordering::Relaxed) {
            self.do_not_oversleep();
        }
    }

    /// Whether it looks more rarely than it used to while somebody could help.
    pub(crate) fn is_relaxed(&self) -> bool {
        self.most.load(Ordering::Relaxed) > MEDIUM.as_nanos() as u64
    }

    /// A P goes idle, the first of all that were busy: somebody could help them from now on,
    /// and it looks more often then.
    pub(crate) fn notice_idle(&self) {
        let until = self.until.load(Ordering::Relaxed);
        // Relaxed, as all about how long it sleeps.
        let most = self.most.load(Ordering::Relaxed);
        if until != 0 && until > clock::now().saturating_add(most) {
            self.do_not_oversleep();
        }
    }

    #[cold]
    fn do_not_oversleep(&self) {
        // Once is enough for all that come until it has looked.
        if self.until.swap(0, Ordering::Relaxed) != 0 {
            self.note.wake();
        }
    }

    /// Makes it look now. Safe to call from a signal handler.
    pub(crate) fn poke(&self) {
        self.note.wake();
    }
}

/// Starts the thread.
pub(crate) fn start(sched: &'static Sched) -> io::Result<()> {
    sched.sysmon.stop.store(false, Ordering::SeqCst);
    let name = format!("{}-sysmon", sched.config().thread_name);
    let handle = thread::start(name, STACK, move || {
        let _count = HeistThread::new();
        // 20 µs, and not 20 and what the kernel likes to add: those who block their
        // threads without a word are found one after the other. Nor is it to wait for a CPU
        // until those who compute have had their time: it is here to look after them.
        thread::sleep_precisely();
        OsThread::current().set_pace(Pace::Prompt);
        Watch::new(sched).run();
        // It asks nobody any more; what it has asked would slow other runtimes down.
        park::set_requests(sched, false);
    })?;
    *sched.sysmon.thread.lock() = Some(handle);
    Ok(())
}

/// Ends the thread and waits for it.
pub(crate) fn stop(sched: &'static Sched) {
    sched.sysmon.stop.store(true, Ordering::SeqCst);
    sched.sysmon.poke();
    let handle = sched.sysmon.thread.lock().take();
    if let Some(handle) = handle {
        // It runs no user code, so it ends, and it does not panic.
        let _ = handle.join();
    }
}

/// What sysmon saw of a P the last time.
#[derive(Clone, Copy, Default)]
struct Seen {
    steps: (u32, u32),
    /// When it was first seen with these.
    since: u64,
    next: Option<NextUp<G>>,
    /// The queue that was left to it, by its number, and when it was first seen.
    left: Option<(u32, u64)>,
    /// It had others to run.
    queued: bool,
}

/// Whether somebody is woken for work that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Help {
    Now,
    /// To see what comes of it (`company`): there is no hurry.
    OnTrial,
    NotNow,
}

struct Watch {
    sched: &'static Sched,
    seen: Vec<Seen>,
    retaker: Retaker,
    judge: company::Judge,
    apart: apart::Watcher,
    /// When it last had a look at a P that was left to its requests.
    helped: u64,
    /// When it last asked those who fork, or nobody did.
    beaten: u64,
    /// When there is something to do next, as far as is known.
    next: Option<u64>,
    /// All Ps were with goroutines that compute.
    all_compute: bool,
    /// This round is soon after the last one, to see whether what was queued still is.
    confirms: bool,
    /// When a P was last seen busy.
    busy: u64,
    lookout: Lookout,
    trimmed: u64,
    traced: u64,
}

impl Watch {
    fn new(sched: &'static Sched) -> Self {
        let now = clock::now();
        let seen = vec![Seen::default(); sched.procs() as usize];
        let retaker = Retaker::new(sched);
        let judge = company::Judge::new();
        Watch {
            sched,
            seen,
            retaker,
            judge,
            apart: apart::Watcher::new(),
            helped: now,
            beaten: now,
            next: None,
            all_compute: false,
            busy: now,
            confirms: false,
            lookout: Lookout::default(),
            trimmed: now,
            traced: now,
        }
    }

    fn run(&mut self) {
        let mut backoff = Backoff::new();
        let config = self.sched.config();
        while !self.sched.sysmon.stop.load(Ordering::SeqCst) {
            if self.sleep(backoff.next(self.half_idle(), self.all_compute)) {
                signal::dump_if_asked();
            }
            self.sched.sysmon.rounds.bump();
            let now = clock::now();
            if let Some(every) = config.trace
                && now - self.traced >= every.as_nanos() as u64
                && let Some(reports) = REPORTS.get()
            {
                self.traced = now;
                (reports.trace)(self.sched, config.trace_detail);
            }
            backoff.note(self.look(now));
            let most = backoff.most().as_nanos() as u64;
            self.sched.sysmon.most.store(most, Ordering::Relaxed);
            if now - self.busy > LINGER && config.trace.is_none() {
                self.sleep_deeply();
                (backoff, self.busy) = (Backoff::new(), clock::now());
            }
        }
    }

    /// Whether some Ps are busy and others idle.
    fn half_idle(&self) -> bool {
        (1..self.sched.procs()).contains(&self.sched.idle.idle_ps())
    }

    /// Sleeps for `delay` at most, or until somebody wakes it: true.
    fn sleep(&mut self, delay: Duration) -> bool {
        let sysmon = &self.sched.sysmon;
        if delay == SHORT {
            return sysmon.note.sleep_for(delay);
        }
        // Before it looks when the next timer is due: who sets one afterwards sees it.
        let most = clock::after(delay);
        sysmon.until.store(most, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let delay = self.until_next(delay);
        // Unless it was woken already.
        let end = clock::after(delay);
        let (relaxed, until) = (Ordering::Relaxed, &sysmon.until);
        let _ = until.compare_exchange(most, end, relaxed, relaxed);
        let woken = sysmon.note.sleep_for(delay);
        until.store(0, relaxed);
        woken
    }

    /// `delay`, but no longer than until the next timer is late, the end of a slice,
    /// or until it is this one's turn to look at the network.
    fn until_next(&mut self, delay: Duration) -> Duration {
        let now = clock::now();
        let late = timers::wanted(self.sched).saturating_add(timers::LATE + self.lookout.extra);
        // One that is late already is somebody else's, or nobody's: no hurry.
        let next = [Some(late), self.next].into_iter().flatten().filter(|&at| at > now).min();
        let left = next.map_or(delay, |at| Duration::from_nanos(at - now));
        self.lookout.wakes = next == Some(late) && left <= delay;
        left.max(SHORT).min(delay)
    }

    /// Timers that are due and have not fired: their P computes. Somebody else
    /// does it, if somebody is idle. Nothing to look around sooner for again: it knows
    /// when the next one is late (`until_next`), and in a crowd some always are.
    fn help_late_timers(&mut self, now: u64) {
        let mut any = false;
        for p in self.sched.ps().filter(|p| timers::are_late(self.sched, p, now)) {
            p.timers_late.store(true, Ordering::Relaxed);
            any = true;
        }
        self.lookout.note(now, any);
        if any && self.sched.idle.idle_ps() > 0 {
            fence(Ordering::SeqCst);
            wake::wake_p(self.sched);
        }
    }

    /// One round.
    fn look(&mut self, now: u64) -> Round {
        let idle = self.sched.idle.idle_ps();
        if (idle as usize) < self.sched.usable_procs() {
            self.busy = now;
        }
        if now - self.trimmed > TRIM_EVERY {
            self.trimmed = now;
            stacks::trim();
            self.apart.follow(self.sched);
            self.follow_limit();
        }
        let mut acted = false;
        // Whether a P has others to run, and has been with one for long.
        let mut stands = false;
        // Whether a P has been busy with few since the last look.
        let mut lingers = false;
        // Whether one that had others to run then has.
        let mut crawls = false;
        // Whoever stops the world takes Ps, too.
        if let Some(_alone) = self.sched.taking.try_lock() {
            self.seen.resize(self.sched.procs() as usize, Seen::default());
            for (i, p) in self.sched.ps().enumerate() {
                lingers |= lingers_since(p, self.seen[i].steps);
                crawls |= self.seen[i].queued && lingers_since(p, self.seen[i].steps);
                acted |= self.help_stale_next(i, p, now);
                self.note_left_queue(i, p, now);
                stands |= now - self.seen[i].since > LONG_REQUEST && !p.runq.rings_empty();
            }
            let looked = self.retaker.look(now);
            self.next = looked.next;
            self.all_compute = looked.computing == self.sched.procs();
            acted |= looked.acted;
        } else {
            lingers = true;
            // Whoever has that may wait for what a frozen one holds, and perhaps no P
            // is left that would run it.
            acted |= super::freeze::let_oldest_go(self.sched);
        }
        self.help_late_timers(now);
        // Afterwards somebody waits there, so that it need not look again soon.
        lingers |= netpoll::look_for_others(self.sched, now);
        self.judge.look(self.sched, now);
        self.apart.look(self.sched, now);
        lingers |= self.sched.company.is_on_trial();
        if idle > 0 && self.sched.idle.searching() == 0 && work_waits(self.sched) {
            let help = if stands { Help::Now } else { self.whether_to_help(now, crawls) };
            if help != Help::NotNow {
                fence(Ordering::SeqCst);
                wake::wake_p(self.sched);
            }
            acted |= help == Help::Now;
            lingers |= help == Help::OnTrial;
        }
        if idle > 0 {
            // A thread could not be started for them.
            self.sched.ps().filter(|p| !p.told.is_empty()).for_each(|p| {
                wake::wake_this(self.sched, p);
            });
        }
        acted |= self.beat(idle, now);
        let is_busy = self.busy == now;
        let is_smooth = !acted && !lingers && is_busy;
        self.confirm_soon(is_smooth, now);
        match acted {
            true => Round::Acted,
            false if is_smooth => Round::Smooth,
            false if !is_busy && !lingers => Round::Idle,
            false => Round::Quiet,
        }
    }

    /// Asks those who fork for branches: for whoever is idle, or, rarely, because one of them
    /// may wait, without a call, for what another branch is to do.
    fn beat(&mut self, idle: u32, now: u64) -> bool {
        if !thieves::anybody(self.sched) {
            self.beaten = now;
            return false;
        }
        // If there is something to take, somebody is on the way, or its P is soon done with it.
        let wanted = idle > 0 && !work_waits(self.sched);
        if !wanted && now - self.beaten < SILENCE {
            return false;
        }
        self.beaten = now;
        match thieves::beat(self.sched, wanted) {
            Beat::Nothing => false,
            Beat::Asked => wanted,
            Beat::Raided => true,
        }
    }

    /// A P that has run many and is with one that computes since moves, at this look. What
    /// is queued there waits for a second one, which comes as soon as ever, and not when all
    /// that move are looked at again. Not if it has gone on to another one during this look.
    fn confirm_soon(&mut self, is_smooth: bool, now: u64) {
        let pause = |(p, seen): (&'static P, &Seen)| {
            let stays = p.steps() == seen.steps && !p.runq.is_empty();
            // Of a queue that was left to its P nobody else takes.
            let pause = if seen.left.is_some() { brief::SOON } else { MEDIUM.as_nanos() as u64 };
            stays.then_some(pause)
        };
        let pause = || self.sched.ps().zip(&self.seen).filter_map(pause).min();
        let soon = if is_smooth && !self.confirms { pause() } else { None }.map(|ns| now + ns);
        self.confirms = soon.is_some();
        self.next = [self.next, soon].into_iter().flatten().min();
    }

    /// Whether to wake somebody for what waits. It is nobody's business if a P that goes
    /// from request to request has been left to it (`netpoll::deliver`). That is looked at
    /// now and then all the same, as anybody else's work would be: a thread could have been
    /// refused.
    fn whether_to_help(&mut self, now: u64, crawls: bool) -> Help {
        let queued = self.sched.runq_size.load(Ordering::Relaxed)
            + self.sched.idle_runq_size.load(Ordering::Relaxed);
        // Nor if those of a crowd run who have gathered, one soon after the other.
        if queued == 0 && !crawls && self.sched.gathering.is_crowded(now) {
            return Help::NotNow;
        }
        if queued != 0 || !self.sched.poll.is_wanted() {
            return Help::Now;
        }
        if now - self.helped < LONG.as_nanos() as u64 {
            return Help::NotNow;
        }
        self.helped = now;
        match self.sched.company.is_welcome(now, true) {
            true => Help::OnTrial,
            false => Help::NotNow,
        }
    }

    /// As many Ps as the process may use CPUs, unless somebody has said how many.
    fn follow_limit(&self) {
        if let Some(procs) = another_limit(self.sched, thread::usable_cpus) {
            // Refused by a runtime that closes.
            let _ = stop::set_procs(self.sched, procs, stop::Reason::CpuLimit);
        }
    }

    /// A runnext that was there a round ago, on a P that has run nothing since, is
    /// given to others: its owner computes.
    fn help_stale_next(&mut self, i: usize, p: &'static P, at: u64) -> bool {
        let (own, offered) = (p.runq.peek_own(), p.runq.peek_offered());
        let before = self.seen[i];
        let left = before.left;
        let queued = !p.runq.rings_empty();
        let mut now = Seen { steps: p.steps(), since: at, next: own.or(offered), left, queued };
        if now.steps == before.steps {
            now.since = before.since;
            // It may compute for minutes, and then wait: since now, and not since it began.
            p.note_now(at);
        }
        self.seen[i] = now;
        let stays = now.next.is_some() && now.next == before.next && now.steps == before.steps;
        if !stays || self.sched.procs() == 1 {
            return false;
        }
        if let Some(seen) = own {
            return self.take_from_owner(p, seen);
        }
        self.sched.next_offers.insert(p.id);
        fence(Ordering::SeqCst);
        wake::wake_p(self.sched);
        true
    }

    /// A queue that was left to its P, and that is still there after a while, counts as
    /// work that waits.
    fn note_left_queue(&mut self, i: usize, p: &'static P, now: u64) {
        let left = brief::left(p);
        let since = match self.seen[i].left {
            Some((number, since)) if left == Some(number) => since,
            _ => now,
        };
        self.seen[i].left = left.map(|number| (number, since));
        if let Some(number) = left
            && now - since >= brief::SOON
        {
            brief::is_overdue(p, number);
        }
    }

    /// Takes a runnext that was not offered to the global queue.
    fn take_from_owner(&self, p: &'static P, seen: NextUp<G>) -> bool {
        let Some(m) = p.m() else { return false };
        let take = || {
            if !m.p().is_some_and(|its| ptr::eq(its, p)) {
                return None;
            }
            // SAFETY: the P is this M's, which is in user code and stays there
            // until it gets the P back.
            unsafe { p.runq.take_own(seen) }
        };
        let Some(Some(g)) = m.lease.borrow(take) else { return false };
        // Teaches the goroutine that runs there (see `wake`).
        p.late.store(true, Ordering::Relaxed);
        wake::inject(self.sched, self.sched.life(), g);
        true
    }

    /// All Ps have been idle for a while.
    fn sleep_deeply(&mut self) {
        {
            let shared = self.sched.shared.lock();
            let queued = shared.queued() + shared.idle_runq.len();
            if shared.idle_ps.len() < self.sched.usable_procs() || queued > 0 {
                return;
            }
            // Under the lock: a P leaves the idle ones only with it.
            self.sched.sysmon.deep.store(true, Ordering::Relaxed);
            // Whoever went to sleep last took that office. If it could not, because a
            // thread was refused, say, another does.
            if wake::is_unkept(self.sched, &shared) {
                wake::send_keeper(self.sched, shared);
            }
        }
        let (mut patience, mut warm) = (CHECK_FIRST, true);
        while self.sched.sysmon.deep.load(Ordering::Relaxed) {
            deadlock::check();
            if self.sched.sysmon.stop.load(Ordering::SeqCst) {
                return;
            }
            // While goroutines sleep, a thread that could wake them may end:
            // look again, ever more rarely. And stacks that were used until now lie
            // around warm.
            let woken = if self.sched.goroutines() != 0 {
                let woken = self.sched.sysmon.note.sleep_for(patience);
                patience = (patience * 2).min(CHECK_LAST);
                woken
            } else if warm {
                self.sched.sysmon.note.sleep_for(stacks::WARM)
            } else {
                self.sched.sysmon.note.sleep();
                true
            };
            if !woken {
                stacks::trim();
                warm = false;
            }
            signal::dump_if_asked();
        }
        // Not now: what is warm is wanted again.
        self.trimmed = clock::now();
    }
}

/// Whether a P that is busy has run few goroutines since it was seen with those steps.
fn lingers_since(p: &P, before: (u32, u32)) -> bool {
    p.m().is_some() && run_between(before, p.steps()) < MOVES
}

/// Another number of Ps that a runtime should have, if it goes by that of the CPUs.
fn another_limit(sched: &Sched, cpus: impl FnOnce() -> usize) -> Option<u32> {
    if !sched.follow_limit.load(Ordering::Relaxed) {
        return None;
    }
    Some(cpus().min(MAX_PROCS) as u32).filter(|procs| *procs != sched.procs())
}

fn work_waits(sched: &Sched) -> bool {
    sched.runq_size.load(Ordering::Relaxed) != 0
        || sched.idle_runq_size.load(Ordering::Relaxed) != 0
        || steal::anything_waits(sched)
}

/// Prints all goroutines.
pub(crate) fn dump() {
    if let Some(reports) = REPORTS.get() {
        (reports.dump)();
    }
}

#[cfg(all(test, not(any(loom, sim))))]
mod tests {
    use super::*;
    use crate::Builder;

    /// Whether somebody has woken it since the last time.
    fn woken(sysmon: &Sysmon) -> bool {
        sysmon.note.sleep_for(Duration::ZERO)
    }

    #[test]
    fn a_timer_wakes_it_that_is_due_before_it_would_look() {
        let sysmon = Sysmon::new();
        sysmon.notice_timer(1);
        assert!(!woken(&sysmon), "it does not sleep");
        sysmon.until.store(1_000, Ordering::Relaxed);
        sysmon.notice_timer(2_000);
        assert!(!woken(&sysmon), "it looks in time");
        sysmon.notice_timer(500);
        assert!(woken(&sysmon));
        sysmon.notice_timer(400);
        assert!(!woken(&sysmon), "it has been woken already");
    }

    /// One that computes alone keeps its P, and its first call afterwards may be one that waits.
    #[test]
    fn the_time_goes_on_for_one_that_computes() {
        Builder::new().max_procs(1).build().unwrap().run(|| {
            let p = crate::sched::m::Inside::enter().unwrap().p.get();
            for _ in 0..3 {
                let before = p.now();
                while p.now() == before {
                    std::hint::spin_loop();
                }
                assert!(p.now() > before);
            }
        });
    }

    #[test]
    fn goroutines_are_counted_by_ticks_and_runnexts() {
        assert_eq!(run_between((5, 3), (5, 3)), 0);
        assert_eq!(run_between((5, 3), (5, 20)), 17);
        assert_eq!(run_between((5, 3), (7, 1)), 3);
        assert_eq!(run_between((u32::MAX, 9), (1, 0)), 2);
        assert_eq!(run_between((5, 3), (5, 0)), 0, "a new streak");
    }

    fn sched(runtime: &crate::Runtime) -> &'static Sched {
        runtime.run(|| super::super::m::current().unwrap().sched)
    }

    #[test]
    fn the_cpu_limit_is_for_those_who_were_not_told() {
        let told = Builder::new().max_procs(3).build().unwrap();
        assert_eq!(another_limit(sched(&told), || 1), None);
        let follows = Builder::new().build().unwrap();
        if crate::prim::env::var("HEIST_MAX_PROCS").is_some_and(|text| !text.is_empty()) {
            // The environment tells: in the process that is started below, say.
            return assert_eq!(another_limit(sched(&follows), || 1_000), None);
        }
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", std::thread::current().name().unwrap()]);
        let told = again.env("HEIST_MAX_PROCS", "3").output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stdout));
        assert!(String::from_utf8_lossy(&told.stdout).contains("1 passed"), "{told:?}");
        let (sched, procs) = (sched(&follows), follows.max_procs());
        assert_eq!(another_limit(sched, || procs), None, "as it is");
        assert_eq!(another_limit(sched, || procs + 1), Some(procs as u32 + 1));
        assert_eq!(another_limit(sched, || 1_000_000), Some(MAX_PROCS as u32));
        follows.set_max_procs(procs);
        assert_eq!(another_limit(sched, || procs + 1), None, "told since");
    }
}
