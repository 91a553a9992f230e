//! The machine: its state, its driver, and what happens at each step.

use super::choose::Choice;
use super::config::{Config, Counts};
use super::cores::Cores;
use super::lines::{ByAddress, Lines};
use super::record::{Op, Record, place};
use super::signal;
use super::topology::Distance;
use super::vthread::{Exit, State, ThreadId, VThread};
use crate::prim::mutant::Mutant;
use crate::prim::rng::Rng;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::panic::Location;
use std::ptr;

type Heap<T> = BinaryHeap<Reverse<T>>;

/// Something counted for each place in the sources.
type Sites = HashMap<&'static Location<'static>, u64>;

pub(super) struct Machine {
    pub(super) config: Config,
    pub(super) rng: Rng,
    pub(super) threads: Vec<VThread>,
    pub(super) cores: Cores,
    /// The thread that takes a step.
    pub(super) current: ThreadId,
    /// The clock, in a run that is not by time.
    pub(super) now: u64,
    pub(super) counts: Counts,
    /// How many numbers were given out.
    serials: usize,
    pub(super) choice: Choice,
    pub(super) record: Record,
    /// Some thread start was refused: fewer threads than Ps are no mistake.
    pub(super) refused: bool,
    /// When, a number that makes it unique, who sleeps, which of its sleeps.
    timers: Heap<(u64, u64, ThreadId, u64)>,
    /// In a run by time: when the cores that have a thread take their next step.
    pub(super) events: Heap<(u64, u64, usize)>,
    pub(super) sequence: u64,
    /// Who sleeps on which word.
    waiters: HashMap<usize, VecDeque<ThreadId>, BuildHasherDefault<ByAddress>>,
    pub(super) lines: Lines,
    /// How often each place in the sources waited for a line from another core.
    transfers_at: Sites,
    /// How long each place waited for a lock.
    pub(super) waits_at: Sites,
    /// Who goes on when the current thread pauses.
    chosen: Option<ThreadId>,
    /// Wake-ups that are on their way.
    late: usize,
    /// The hook for quiet moments was called, and nothing has happened since.
    told_quiet: bool,
    /// Operations are the observer's: they are no steps.
    observing: bool,
    unwinders: usize,
    log: Vec<u8>,
}

thread_local! {
    static MACHINE: Cell<*mut Machine> = const { Cell::new(ptr::null_mut()) };
}

/// Whoever steps is told what to do.
enum Verdict {
    Go,
    Pause(Exit),
    TooManySteps,
}

/// What the driver does next.
enum Turn {
    Run(ThreadId),
    Quiet,
    Over,
    Stuck,
}

/// Calls `f` with the machine, if there is one. `f` takes no step.
pub(super) fn with<R>(f: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    let machine = MACHINE.with(Cell::get);
    // SAFETY: null, or the machine of `run`, which lives on in the driver's
    // frame. All is on one OS thread, and no reference is kept while another
    // virtual thread runs, since `f` takes no step.
    unsafe { machine.as_mut() }.map(f)
}

/// Runs `main` as the first thread of a machine, until all its threads have
/// ended. Returns what was counted and the time that it took.
pub(crate) fn run(config: Config, main: impl FnOnce() + 'static) -> (Counts, u64) {
    let mut machine = Machine::new(config);
    let first = VThread::new("main".into(), 1 << 20, main);
    machine.add(first.unwrap_or_else(|error| panic!("no stack for the first thread: {error}")));
    // The machine is reached through this pointer only from here on.
    let machine = Box::into_raw(Box::new(machine));
    MACHINE.with(|m| m.set(machine));
    drive();
    MACHINE.with(|m| m.set(ptr::null_mut()));
    // SAFETY: made from a box above, and nobody else has the pointer any more.
    let machine = unsafe { Box::from_raw(machine) };
    (machine.counts, machine.now)
}

fn drive() {
    loop {
        match with(Machine::next_turn).unwrap_or(Turn::Over) {
            Turn::Run(thread) => {
                let routine = with(|m| {
                    m.current = thread;
                    m.threads[thread].take_routine()
                });
                let Some(mut routine) = routine.flatten() else {
                    panic!("thread {thread} was chosen, and has no stack")
                };
                let goes_on = routine.resume();
                with(|m| {
                    if goes_on {
                        m.threads[thread].put_routine(routine);
                    } else {
                        m.end(thread);
                    }
                });
            }
            Turn::Quiet => {
                if let Some(hook) = with(|m| m.config.hooks.quiet).flatten() {
                    observe(hook);
                }
            }
            Turn::Over => return,
            Turn::Stuck => violate("every thread sleeps, and nothing can wake one"),
        }
    }
}

/// A step of the calling thread: it costs time, and others may go first.
#[track_caller]
pub(super) fn step(op: Op, address: usize) {
    step_at(op, address, Location::caller());
}

pub(super) fn step_at(op: Op, address: usize, site: &'static Location<'static>) {
    let verdict =
        with(|m| (!m.observing).then(|| (m.take_step(op, address, site), m.config.hooks.step)));
    let Some(Some((verdict, hook))) = verdict else { return };
    if let Some(hook) = hook {
        observe(hook);
    }
    match verdict {
        Verdict::Go => {}
        Verdict::Pause(exit) => exit.pause(),
        Verdict::TooManySteps => violate("the run does not end: too many steps"),
    }
    signal::take();
    if !matches!(op, Op::Load | Op::Store | Op::Spin | Op::Clock | Op::Work) {
        with(Machine::flush_own);
    }
}

/// Pauses the calling thread, which has made itself sleep.
pub(super) fn pause() {
    let exit = with(|m| m.threads[m.current].exit());
    if let Some(exit) = exit {
        exit.pause();
        signal::take();
    }
}

/// Calls `f`, whose operations are no steps.
pub(crate) fn observe(f: impl FnOnce()) {
    with(|m| m.observing = true);
    f();
    with(|m| m.observing = false);
}

/// Reports a broken rule, and ends the process.
pub(crate) fn violate(message: &str) -> ! {
    let (report, hook) = with(|m| {
        m.observing = true;
        let log = String::from_utf8_lossy(&m.log);
        let said = if log.is_empty() { String::new() } else { format!("heist said:\n{log}") };
        let text = format!(
            "{message}\nat step {}, {} ns\n{said}threads:\n{}last steps:\n{}",
            m.counts.steps,
            m.time(),
            m.thread_table(),
            m.last_steps()
        );
        (text, m.config.hooks.violation)
    })
    .unwrap_or_else(|| panic!("{message}"));
    hook(&report)
}

/// The virtual time.
pub(crate) fn now() -> u64 {
    with(|m| m.time()).unwrap_or(0)
}

/// The caller computes for so many nanoseconds, outside of heist.
#[track_caller]
pub(crate) fn work(nanos: u64) {
    /// Somebody may want something of the thread meanwhile, so it takes some steps: a
    /// run that explores one for each so many nanoseconds, but no more than so
    /// many, a run by time one for so many.
    const PART: u64 = 500;
    const PARTS: u64 = 20;
    const TIMED_PART: u64 = 250_000;
    let site = Location::caller();
    let Some(timed) = with(|m| m.timed()) else { return };
    let parts =
        if timed { nanos.div_ceil(TIMED_PART).max(1) } else { (nanos / PART).clamp(1, PARTS) };
    with(|m| m.threads[m.current].in_user = true);
    for part in 0..parts {
        let spent = nanos / parts + u64::from(part < nanos % parts);
        with(|m| if timed { m.cost(spent) } else { m.now += spent });
        step_at(Op::Work, 0, site);
    }
    with(|m| m.threads[m.current].in_user = false);
}

/// A random number, of the run's own.
pub(crate) fn rng() -> u32 {
    with(|m| m.rng.next()).unwrap_or(0)
}

/// The next of the numbers from one.
pub(crate) fn serial() -> usize {
    with(|m| {
        m.serials += 1;
        m.serials
    })
    .unwrap_or(1)
}

/// What was counted so far.
pub(crate) fn counts() -> Counts {
    with(|m| m.counts).unwrap_or_default()
}

/// The places in the sources that waited longest for lines from other cores, and
/// how long.
pub(crate) fn most_transfers() -> Vec<(String, u64)> {
    with(|m| most(&m.transfers_at)).unwrap_or_default()
}

/// The places that waited longest for locks, and how long.
pub(crate) fn longest_waits() -> Vec<(String, u64)> {
    with(|m| most(&m.waits_at)).unwrap_or_default()
}

/// Both lists begin anew.
pub(crate) fn forget_places() {
    with(|m| {
        m.transfers_at.clear();
        m.waits_at.clear();
    });
}

fn most(sites: &Sites) -> Vec<(String, u64)> {
    let mut all: Vec<_> = sites.iter().map(|(site, n)| (place(site), *n)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

/// The policy's bits, and the mutant.
pub(crate) fn knobs() -> (u32, Option<Mutant>) {
    with(|m| (m.config.knobs, m.config.mutant)).unwrap_or_default()
}

/// For each thread that has or wants a core: who it is, how many steps it has
/// taken, and whether it only watches others. Those that compute outside of heist
/// apart.
pub(crate) fn running_threads(mut each: impl FnMut(usize, u64, bool)) {
    with(|m| {
        for (id, thread) in m.threads.iter().enumerate() {
            let runs = matches!(thread.state, State::Ready | State::Running);
            if runs && !thread.in_user {
                each(id, thread.steps, thread.watcher);
            }
        }
    });
}

/// Whether the machine has refused a thread.
pub(crate) fn has_refused() -> bool {
    with(|m| m.refused).unwrap_or(false)
}

/// Whether a core stands still for a while, with the thread that is on it.
pub(crate) fn a_core_stands_still() -> bool {
    with(|m| m.cores.next_unstalled(m.now).is_some()).unwrap_or(false)
}

/// Whether somebody was woken who comes late.
pub(crate) fn a_wake_up_is_late() -> bool {
    with(|m| m.late > 0).unwrap_or(false)
}

/// How many steps a thread has taken, and whether it still has or wants a core.
pub(crate) fn step_of(thread: usize) -> Option<u64> {
    with(|m| {
        let thread = &m.threads[thread];
        let runs = matches!(thread.state, State::Ready | State::Running) && !thread.in_user;
        runs.then_some(thread.steps)
    })
    .flatten()
}

impl Machine {
    fn new(config: Config) -> Self {
        let rng = Rng::new(config.seed);
        let choice = Choice::new(config.chooser, &mut |n| rng.next() % n);
        Machine {
            cores: Cores::new(config.topology.cores()),
            rng,
            threads: Vec::new(),
            current: 0,
            // Not zero, which words of heist's have a meaning for.
            now: 1_000,
            counts: Counts::default(),
            serials: 0,
            choice,
            record: Record::new(),
            refused: false,
            timers: Heap::new(),
            events: Heap::new(),
            sequence: 0,
            waiters: HashMap::default(),
            lines: Lines::new(),
            transfers_at: Sites::new(),
            waits_at: Sites::new(),
            chosen: None,
            late: 0,
            told_quiet: false,
            observing: false,
            unwinders: 0,
            log: Vec::new(),
            config,
        }
    }

    pub(super) fn below(&mut self, n: u32) -> u32 {
        self.rng.next() % n.max(1)
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// The time of whoever takes a step.
    pub(super) fn time(&self) -> u64 {
        if !self.timed() || self.threads.is_empty() {
            return self.now;
        }
        self.now.max(self.cores.time(self.threads[self.current].core))
    }

    /// The current thread's core spends time.
    pub(super) fn cost(&mut self, nanos: u64) {
        let core = self.threads[self.current].core;
        self.cores.at(core).time += nanos;
    }

    /// The current thread waits for the kernel to find a page.
    pub(super) fn page_fault(&mut self) {
        self.counts.page_faults += 1;
        self.cost(self.config.costs.fault);
    }

    /// What a step costs, and whether it was a transfer.
    fn charge(&mut self, op: Op, address: usize, site: &'static Location<'static>) {
        let costs = self.config.costs;
        let core = self.threads[self.current].core;
        let fixed = match op {
            Op::Load | Op::Store => 0,
            Op::Update | Op::Fence => costs.locked,
            Op::Barrier => costs.barrier,
            Op::Spin => costs.pause,
            Op::Yield | Op::FutexWait | Op::FutexWake | Op::Device => costs.call,
            Op::Signal => costs.signal,
            Op::Clock => costs.clock,
            Op::Start => costs.start,
            Op::Work => 0,
        };
        let rest = self.cores.at(core).eighths + costs.own_eighths;
        self.cores.at(core).eighths = rest % 8;
        let mut total = fixed + rest / 8;
        if matches!(op, Op::Load | Op::Store | Op::Update) {
            let (write, time) = (op != Op::Load, self.cores.time(core));
            let with = (&self.config.topology, &costs);
            let access = self.lines.access(with, core, address, write, time);
            total += access.cost;
            if access.fresh && self.lines.touch(address) {
                self.page_fault();
            }
            if access.from != Distance::Own {
                *self.transfers_at.entry(site).or_default() += access.cost;
            }
            match access.from {
                Distance::Own => {}
                Distance::Cache => self.counts.transfers[0] += 1,
                Distance::Node => self.counts.transfers[1] += 1,
                Distance::Remote => self.counts.transfers[2] += 1,
            }
        }
        self.cost(total);
    }

    fn take_step(&mut self, op: Op, address: usize, site: &'static Location<'static>) -> Verdict {
        self.counts.steps += 1;
        self.threads[self.current].steps += 1;
        match op {
            Op::FutexWait => self.counts.futex_waits += 1,
            Op::FutexWake => self.counts.futex_wakes += 1,
            _ => {}
        }
        if self.counts.steps > self.config.step_limit {
            return Verdict::TooManySteps;
        }
        if self.timed() {
            return self.timed_step(op, address, site);
        }
        self.note_step(op, address, site);
        // A core takes so many steps in a microsecond. Those that are idle take none: with
        // them counted, a goroutine that polls while others block would take all the steps
        // of a run before the end of a slice.
        self.now += (10 / self.cores.busy().max(1) as u64).max(1);
        if matches!(op, Op::Spin | Op::Yield) {
            self.give_way();
        }
        if self.one_in(4) {
            let current = self.current;
            self.threads[current].buffer.flush_one();
        }
        self.fire_timers();
        self.faults_of_step();
        let core = self.threads[self.current].core;
        if self.threads[self.current].state == State::Running
            && (op == Op::Yield || self.slice_is_over(core, self.current))
        {
            self.preempt(core);
        }
        self.chosen = self.choose();
        if self.chosen == Some(self.current) {
            self.chosen = None;
            return Verdict::Go;
        }
        Verdict::Pause(self.threads[self.current].exit())
    }

    fn timed_step(&mut self, op: Op, address: usize, site: &'static Location<'static>) -> Verdict {
        self.charge(op, address, site);
        let core = self.threads[self.current].core;
        let yields = op == Op::Yield && !self.cores.queue.is_empty();
        if yields || self.slice_is_over(core, self.current) {
            self.preempt(core);
            return Verdict::Pause(self.threads[self.current].exit());
        }
        let time = self.cores.time(core);
        let event = self.events.peek().map(|Reverse((when, ..))| *when);
        let next = event.into_iter().chain(self.next_timer()).min();
        if next.is_none_or(|next| next >= time) {
            return Verdict::Go;
        }
        self.schedule(core, time);
        Verdict::Pause(self.threads[self.current].exit())
    }

    fn next_turn(&mut self) -> Turn {
        if self.timed() { self.next_timed_turn() } else { self.next_chosen_turn() }
    }

    fn next_chosen_turn(&mut self) -> Turn {
        if let Some(thread) = self.chosen.take() {
            return Turn::Run(thread);
        }
        if !self.told_quiet && self.is_quiet() {
            self.told_quiet = true;
            return Turn::Quiet;
        }
        self.fire_timers();
        loop {
            if let Some(thread) = self.choose() {
                return Turn::Run(thread);
            }
            let timer = self.next_timer();
            match timer.into_iter().chain(self.cores.next_unstalled(self.now)).min() {
                Some(next) => self.now = self.now.max(next),
                None => return self.nobody_left(),
            }
            self.fire_timers();
        }
    }

    fn next_timed_turn(&mut self) -> Turn {
        loop {
            let timer = self.next_timer();
            let event = self.events.peek().map(|Reverse((when, ..))| *when);
            match (timer, event) {
                (None, None) => return self.nobody_left(),
                (Some(timer), event) if event.is_none_or(|event| timer <= event) => {
                    self.now = self.now.max(timer);
                    self.fire_timers();
                }
                _ => {
                    let Some(Reverse((when, _, core))) = self.events.pop() else { continue };
                    self.now = self.now.max(when);
                    let Some(thread) = self.cores.at(core).thread else { continue };
                    if self.slice_is_over(core, thread) {
                        self.preempt(core);
                        continue;
                    }
                    return Turn::Run(thread);
                }
            }
        }
    }

    fn nobody_left(&self) -> Turn {
        let all_ended = self.threads.iter().all(|t| t.state == State::Ended);
        if all_ended { Turn::Over } else { Turn::Stuck }
    }

    /// Whether every thread sleeps, and no wake-up is on its way. (A watcher that
    /// is in the middle of something may be about to wake somebody.)
    fn is_quiet(&self) -> bool {
        let works = |t: &VThread| matches!(t.state, State::Ready | State::Running);
        self.late == 0 && !self.threads.iter().any(works)
    }

    /// Adds a thread.
    pub(super) fn add(&mut self, mut thread: VThread) -> ThreadId {
        thread.priority = self.new_priority();
        // Where its starter is; the kernel moves it to an idle core near.
        thread.core = self.threads.get(self.current).map_or(0, |t| t.core);
        self.threads.push(thread);
        let id = self.threads.len() - 1;
        let time = if id == 0 { self.now } else { self.time() };
        self.told_quiet = false;
        self.place(id, time);
        id
    }

    fn end(&mut self, thread: ThreadId) {
        let t = &mut self.threads[thread];
        t.state = State::Ended;
        let (core, joiner) = (t.core, t.joiner.take());
        self.unwinders -= usize::from(std::mem::take(&mut t.unwinding));
        self.vacate(core);
        if let Some(joiner) = joiner {
            self.unblock(joiner);
        }
    }

    /// The current thread sleeps, on a word if it says which, until a time if it
    /// says when. The caller pauses next.
    pub(super) fn block(&mut self, word: Option<usize>, until: Option<u64>) {
        let id = self.current;
        let t = &mut self.threads[id];
        t.state = State::Blocked;
        t.sleep += 1;
        t.sleeps_on = word;
        let (core, sleep) = (t.core, t.sleep);
        if let Some(word) = word {
            self.waiters.entry(word).or_default().push_back(id);
        }
        if let Some(until) = until {
            self.set_timer(until, id, sleep);
        }
        self.vacate(core);
    }

    fn set_timer(&mut self, when: u64, thread: ThreadId, sleep: u64) {
        self.sequence += 1;
        self.timers.push(Reverse((when, self.sequence, thread, sleep)));
    }

    /// When the next sleep that can end by itself does.
    pub(super) fn next_timer(&mut self) -> Option<u64> {
        while let Some(Reverse((when, _, thread, sleep))) = self.timers.peek() {
            let t = &self.threads[*thread];
            if t.state == State::Blocked && t.sleep == *sleep {
                return Some(*when);
            }
            self.timers.pop();
        }
        None
    }

    fn fire_timers(&mut self) {
        while self.next_timer().is_some_and(|when| when <= self.now) {
            if let Some(Reverse((_, _, thread, _))) = self.timers.pop() {
                self.stop_waiting(thread);
                self.unblock_at(thread, self.now);
            }
        }
    }

    /// Takes a thread off the word that it sleeps on.
    pub(super) fn stop_waiting(&mut self, thread: ThreadId) {
        if let Some(word) = self.threads[thread].sleeps_on.take()
            && let Some(waiters) = self.waiters.get_mut(&word)
        {
            waiters.retain(|t| *t != thread);
        }
    }

    /// Wakes one that sleeps on a word, if there is one.
    pub(super) fn wake_one(&mut self, word: usize) -> bool {
        let Some(thread) = self.waiters.get_mut(&word).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.threads[thread].sleeps_on = None;
        match self.lateness() {
            0 => self.unblock(thread),
            late => {
                let t = &mut self.threads[thread];
                t.sleep += 1;
                t.late = true;
                let sleep = t.sleep;
                self.late += 1;
                self.set_timer(self.now + late, thread, sleep);
            }
        }
        true
    }

    /// A thread that sleeps wants a core again.
    pub(super) fn unblock(&mut self, thread: ThreadId) {
        self.unblock_at(thread, self.time());
    }

    fn unblock_at(&mut self, thread: ThreadId, time: u64) {
        if self.threads[thread].state != State::Blocked {
            return;
        }
        // Whatever wakes it, a wake-up that was on its way comes to nothing.
        self.late -= usize::from(std::mem::take(&mut self.threads[thread].late));
        self.threads[thread].sleep += 1;
        self.threads[thread].ready_at = time;
        if !self.threads[thread].watcher {
            self.told_quiet = false;
        }
        self.place(thread, time);
    }

    fn flush_own(&mut self) {
        let current = self.current;
        self.threads[current].buffer.flush();
    }

    /// Whether the current thread unwinds, when nobody else can have started to.
    /// std counts panics for the one OS thread that all of this is.
    pub(super) fn note_unwinding(&mut self, panicking: bool) {
        let current = self.current;
        let mine = &mut self.threads[current].unwinding;
        if self.unwinders == usize::from(*mine) && *mine != panicking {
            *mine = panicking;
            self.unwinders = usize::from(panicking);
        }
    }

    pub(super) fn is_unwinding(&self, panicking: bool) -> bool {
        let mine = self.threads[self.current].unwinding;
        if self.unwinders == usize::from(mine) { panicking } else { mine }
    }

    pub(super) fn say(&mut self, text: &[u8]) {
        const MOST: usize = 16 << 10;
        if self.log.len() < MOST {
            self.log.extend_from_slice(text);
        }
    }

    fn thread_table(&self) -> String {
        let line = |(id, t): (usize, &VThread)| {
            let mark = if id == self.current { '*' } else { ' ' };
            let pending = if t.buffer.is_empty() { "" } else { ", stores pending" };
            let site = t.site.map(place).unwrap_or_default();
            format!(
                "{mark} {:<14} {:?} core {}, {} steps, at {site}{pending}\n",
                t.name, t.state, t.core, t.steps
            )
        };
        self.threads.iter().enumerate().map(line).collect()
    }
}
