//! Waiting for descriptors: who looks whether one is ready, and whom to wake.
//!
//! Each runtime has a [`Poller`]; a descriptor is registered with that of the first
//! one who waits for it, once. Those who wait may be goroutines of any runtime, or
//! plain threads: a wait is a [`Turn`], and a turn wakes anybody. When a runtime ends,
//! those who still wait in its poller are woken, find nothing, and wait in their own.
//! A plain thread's is the default runtime's.
//!
//! # Who looks
//!
//! 1. *A P with nothing to run* ([`look`], phase 5 of `find_runnable`), without
//!    waiting; the last that runs for some microseconds, if that is worth it ([`watch`]).
//! 2. *One idle M* (`find::sleep_idle`): it waits in the poller, until the next timer if
//!    it is also the keeper of the timers. Somebody who has a P for it rings.
//! 3. *A P that is busy*, now and then, if nobody else has ([`look_if_late`]).
//! 4. *sysmon*, when all Ps compute ([`look_for_others`]).
//!
//! # Why no event is overlooked
//!
//! An event stays in the kernel until somebody looks. So it is enough that somebody
//! always will: while a P has an M, that M looks, at the latest when it goes to sleep,
//! and sysmon is awake. An M that goes to sleep waits in the poller unless another
//! does (both with the scheduler's lock held). Whoever leaves the poller to run
//! something has a P. A descriptor is registered by a goroutine, whose M has a P, or
//! by somebody else, who tells an idle M to look ([`see_to_it`]).

use super::g::WaitReason;
use super::m::{self, Inside};
use super::p::Held;
use super::park;
use super::schedt::Sched;
use super::timers::{self, Armed, Due};
use super::waiter::{Slept, Turn, Waiter};
use super::wake;
use crate::poll::desc::PollDesc;
use crate::poll::direction::{Begin, Direction, Seen, Wait, Woken};
use crate::poll::table::{Noted, Table};
use crate::prim::atomic::{Ordering, fence};
use crate::prim::clock;
use crate::prim::epoll::{Batch, Event, Source};
use crate::prim::mutant::{Mutant, is};
use std::io;
use std::panic::Location;

/// A descriptor that turns wait for.
pub(crate) type Desc = PollDesc<Turn>;

// Ten thousand idle connections have as many.
#[cfg(not(sim))]
const _: () = assert!(size_of::<Desc>() == 128);

static DESCS: Table<Desc> = Table::new(Desc::new);

/// What takes longer than this is worth waking a thread for: about twice what that
/// takes until the thread runs.
const WORTH_WAKING: u64 = 100_000;

/// A busy P looks if nobody has for so long.
const LATE: u64 = 200_000;

/// sysmon looks if nobody has for so long: a P is idle, but nobody waits in the
/// poller, since the one that did has found something that takes its time.
const UNWATCHED: u64 = 1_000_000;
/// The same while all Ps are busy.
const VERY_LATE: u64 = 10_000_000;

/// Reading, and accepting; or writing, and connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

impl Side {
    #[inline(always)]
    pub(crate) fn of(self, desc: &Desc) -> &Direction<Turn> {
        match self {
            Side::Read => &desc.read,
            Side::Write => &desc.write,
        }
    }
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Forever,
    /// Not at all.
    None,
    /// So many nanoseconds, from the moment at which it has to.
    For(u64),
}

/// What a call waits with.
pub(crate) struct Call<'a, P> {
    pub(crate) fd: Source<'a>,
    pub(crate) side: Side,
    /// Asked when it has to wait.
    pub(crate) patience: P,
    pub(crate) site: &'static Location<'static>,
    /// Finds the scheduler of the caller: the layer above knows the default one.
    pub(crate) home: fn() -> &'static Sched,
}

/// What an owner of a descriptor has in order to wait for it: nothing, until it
/// first does.
///
/// The owner calls [`release`](Self::release) before it closes the descriptor.
#[derive(Debug, Default)]
pub(crate) struct Pollable {
    desc: Noted<Desc>,
}

impl Pollable {
    pub(crate) const fn new() -> Self {
        Pollable { desc: Noted::none() }
    }

    #[inline(always)]
    fn desc(&self) -> Option<&'static Desc> {
        self.desc.get()
    }

    #[cold]
    fn make(&self) -> &'static Desc {
        let mine = DESCS.take();
        let Some(theirs) = self.desc.set_first(mine) else { return mine };
        DESCS.put(mine.number());
        theirs
    }

    /// Makes a call that returns [`WouldBlock`](io::ErrorKind::WouldBlock) instead of
    /// waiting, and waits in its place.
    ///
    /// # Errors
    ///
    /// Those of the call, `WouldBlock` too if the patience is over; `TimedOut` if the
    /// deadline has passed; `ConnectionAborted` once it was closed.
    #[inline(always)] // as `park::yield_now`
    pub(crate) fn run<R>(
        &self,
        call: Call<'_, impl Fn() -> Patience>,
        mut attempt: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.run_short(call, |_| false, &mut attempt)
    }

    /// As [`run`](Self::run). If `short` says so, the call has left nothing for the
    /// next one until there is an event (see `poll::direction`).
    #[inline(always)] // as `park::yield_now`
    pub(crate) fn run_short<R>(
        &self,
        call: Call<'_, impl Fn() -> Patience>,
        short: impl Fn(&R) -> bool,
        mut attempt: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        // One that never has to wait computes as others do. Not afterwards: what was read
        // is not to be lost.
        park::wait_point();
        let mut until = None;
        loop {
            let desc = self.desc();
            let (seen, in_vain) = match desc.map(|desc| call.side.of(desc).begin()) {
                None => (None, false),
                Some(Begin::Try(seen)) => (Some(seen), false),
                // Only events change the count: without a registration there are none,
                // and who does not wait asks the kernel.
                Some(Begin::Wait(seen)) => {
                    let in_vain = desc.is_some_and(Desc::is_registered)
                        && (call.patience)() != Patience::None;
                    (Some(seen), in_vain)
                }
                Some(Begin::Expired) => return Err(expired()),
                Some(Begin::Closed) => return Err(closed()),
            };
            if !in_vain {
                match attempt() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // What a closed socket says in the kernel, an end of file or that
                    // it does not listen, is not for whoever used it when it was closed.
                    _ if self.is_closed(call.side) => return Err(closed()),
                    Ok(value) => {
                        if let (Some(desc), Some(seen)) = (desc, seen)
                            && short(&value)
                        {
                            call.side.of(desc).note_drained(seen);
                        }
                        return Ok(value);
                    }
                    Err(error) => return Err(error),
                }
            }
            self.wait(&call, desc, seen, &mut until)?;
        }
    }

    #[inline(always)]
    fn is_closed(&self, side: Side) -> bool {
        self.desc().is_some_and(|desc| matches!(side.of(desc).begin(), Begin::Closed))
    }

    /// Waits until it is worth trying again.
    #[inline(always)] // as `park::yield_now`
    fn wait(
        &self,
        call: &Call<'_, impl Fn() -> Patience>,
        desc: Option<&'static Desc>,
        seen: Option<Seen>,
        until: &mut Option<u64>,
    ) -> io::Result<()> {
        match (call.patience)() {
            Patience::Forever => {}
            Patience::None => {
                park::poll_point();
                return Err(would_block());
            }
            // From the first wait on.
            Patience::For(time) => {
                until.get_or_insert_with(|| clock::now().saturating_add(time));
            }
        }
        let (desc, seen) = match (desc, seen) {
            (Some(desc), Some(seen)) if desc.is_registered() => (desc, seen),
            _ => match self.prepare(call.fd, call.side, call.home)? {
                Some(ready) => ready,
                None => return Ok(()),
            },
        };
        let direction = call.side.of(desc);
        let (turn, wait) = unfrozen(|| {
            let turn = Waiter::current().begin();
            (turn, direction.wait(seen, turn))
        });
        if wait == Wait::Again {
            return Ok(());
        }
        match turn.sleep(*until, WaitReason::Io, call.site) {
            Slept::Woken => Ok(()),
            Slept::Expired => {
                unfrozen(|| direction.leave(turn));
                Err(would_block())
            }
            Slept::Unwind => {
                unfrozen(|| direction.leave(turn));
                park::unwind()
            }
        }
    }

    /// The first wait for a descriptor. When it is registered, the kernel reports
    /// what is ready already, so the call need not be tried once more. `None` if it
    /// must be tried.
    #[cold]
    fn prepare(
        &self,
        fd: Source<'_>,
        side: Side,
        home: fn() -> &'static Sched,
    ) -> io::Result<Option<(&'static Desc, Seen)>> {
        let desc = self.desc().unwrap_or_else(|| self.make());
        let (Begin::Try(seen) | Begin::Wait(seen)) = side.of(desc).begin() else {
            return Ok(None);
        };
        let sched = home();
        if desc.register(fd, || &sched.poll)?.is_none() {
            // Another was first: an event may lie between the call and `seen`.
            return Ok(None);
        }
        timers::adopt_deadlines(sched);
        see_to_it(sched);
        Ok(Some((desc, seen)))
    }

    /// Sets the moment at which calls begin to fail, those that wait now included;
    /// `None` for never.
    pub(crate) fn set_deadline(&self, side: Side, when: Option<u64>, home: fn() -> &'static Sched) {
        let Some(desc) = self.desc().or_else(|| when.is_some().then(|| self.make())) else {
            return;
        };
        let passed = when.is_some_and(|when| when <= clock::now());
        let (number, woken) = unfrozen(|| side.of(desc).set_deadline(passed));
        wake_all(woken, Turn::wake);
        let armed = match when {
            Some(when) if !passed => {
                let due = Due::Poll(desc, side, number);
                let armed = timers::arm_anywhere(home(), due, when);
                if armed.is_none() {
                    timers::keep_deadline(when, due);
                }
                armed
            }
            _ => None,
        };
        let word = armed.map_or(0, Armed::half_word);
        // Of two who set it at once, one may tell the wrong heap: it only counts.
        match desc.alarms[side as usize].swap(word, Ordering::Relaxed) {
            0 => {}
            before => Armed::from_half_word(before).disarm(),
        }
    }

    /// Whether the kernel has announced an end, or an error, to those who wait.
    #[cold]
    pub(crate) fn has_ended(&self, side: Side) -> bool {
        self.desc().is_some_and(|desc| side.of(desc).has_ended())
    }

    /// Those who wait try again: something has happened of which the kernel tells nobody.
    pub(crate) fn nudge(&self, side: Side) {
        if let Some(desc) = self.desc() {
            wake_all(unfrozen(|| side.of(desc).ready(true)), Turn::wake);
        }
    }

    /// Calls fail from now on, those that wait now included.
    pub(crate) fn close(&self) {
        let desc = self.desc().unwrap_or_else(|| self.make());
        wake_all(unfrozen(|| desc.read.close()), Turn::wake);
        wake_all(unfrozen(|| desc.write.close()), Turn::wake);
    }

    /// The owner is about to close the descriptor, or to give it away. Nobody waits.
    #[inline]
    pub(crate) fn release(&self, fd: Source<'_>) {
        let Some(desc) = self.desc() else { return };
        unfrozen(|| desc.deregister(fd));
        for alarm in &desc.alarms {
            match alarm.swap(0, Ordering::Relaxed) {
                0 => {}
                set => Armed::from_half_word(set).disarm(),
            }
        }
        self.desc.clear();
        DESCS.put(desc.number());
    }
}

/// Does something with a direction, from user code: inside of the runtime, where no
/// thread is frozen. Whoever looks at the network might wait for it.
#[inline(always)]
fn unfrozen<R>(f: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter();
    f()
}

/// As a call that gives up returns it: std's read with a timeout does.
#[cold]
fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[cold]
fn expired() -> io::Error {
    park::poll_point();
    io::Error::new(io::ErrorKind::TimedOut, "the deadline has passed")
}

/// What calls on a closed descriptor return.
#[cold]
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "use of a closed socket")
}

/// Whether that is what a call on a closed descriptor returns: the kernel's errors of
/// the same kind have a number.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted && error.raw_os_error().is_none()
}

/// Wakes those who still wait.
#[inline]
pub(crate) fn wake_all(woken: Woken<Turn>, wake: impl Fn(Turn)) {
    woken.each(|turn| {
        if turn.claim() {
            wake(turn);
        }
    });
}

/// A descriptor was registered with `sched`. If that is not by one of its own Ms,
/// which look when they go to sleep, one of those that sleep must.
fn see_to_it(sched: &'static Sched) {
    if m::current().is_some_and(|m| std::ptr::eq(m.sched, sched)) || is(Mutant::RegisterUnseen) {
        return;
    }
    wake_poller(sched);
}

/// Has an idle M look whether it should wait in the poller.
fn wake_poller(sched: &'static Sched) {
    let shared = sched.shared.lock();
    if shared.poller.is_none() && !shared.closed {
        wake::send_keeper(sched, shared);
    }
}

/// What an event is for, if it still is there.
fn each_woken(event: &Event, wake: impl Fn(Turn)) {
    let Some(desc) = DESCS.get(Desc::number_of(event)).filter(|desc| desc.is_mine(event)) else {
        return;
    };
    if event.readable() {
        wake_all(desc.read.ready(event.ends_reading()), &wake);
    }
    if event.writable() {
        wake_all(desc.write.ready(event.ends_writing()), &wake);
    }
}

/// Wakes those who waited for what has happened, on a P. Its own goroutines go to its
/// queue (`injectglist`, of which the part with the global queue is not needed: thieves
/// take half).
///
/// Another M is woken for what takes this one longer than waking takes. How long that
/// is, the last batches tell: most requests are answered in microseconds, and two
/// threads that share them get in each other's way, and in that of whoever sends them.
/// And only if there is a CPU for it, or two get more done all the same (`company`). If this batch is
/// another matter, sysmon wakes somebody.
pub(crate) fn deliver(sched: &'static Sched, p: Held, events: &Batch) {
    deliver_at(sched, p, events, clock::now());
}

/// The same if the time is known.
#[inline]
fn deliver_at(sched: &'static Sched, p: Held, events: &Batch, now: u64) {
    let before = p.runq.len();
    timers::begin_batch(p);
    events.iter().for_each(|event| each_woken(event, |turn| turn.wake_last(sched, p)));
    let queued = p.runq.len();
    p.own().batch.set((now, queued.saturating_sub(before) as u64));
    let takes = sched.poll.service_time().saturating_mul(queued as u64);
    if queued > 1
        && takes > WORTH_WAKING
        && sched.company.is_welcome(now, sched.idle.idle_ps() != 0)
    {
        fence(Ordering::SeqCst);
        wake::wake_p(sched);
    }
}

/// A P has nothing to run: what it was given last has been done. Returns the time.
pub(crate) fn note_done(sched: &'static Sched, p: Held) -> u64 {
    let now = clock::now();
    let (since, goroutines) = p.own().batch.replace((0, 0));
    if let Some(each) = now.saturating_sub(since).checked_div(goroutines) {
        sched.poll.note_service_time(each);
    }
    now
}

/// As [`deliver`], without a P.
pub(crate) fn deliver_from_outside(events: &Batch) {
    events.iter().for_each(|event| each_woken(event, Turn::wake));
}

/// A P looks. Returns whether there is something to run now.
#[cold]
#[inline(never)]
pub(crate) fn look(sched: &'static Sched, p: Held) -> bool {
    let mut batch = Batch::new();
    if !sched.poll.look(&mut batch) {
        return false;
    }
    deliver(sched, p, &batch);
    !p.runq.is_empty()
}

/// The last P that runs looks for a while, if that is likely to be worth it, instead of being
/// given up for a moment. Returns whether there is something to run now.
///
/// To others it is busy, and what they have they leave to it if no other P is idle. So it ends
/// when there is anything else.
#[cold]
#[inline(never)]
pub(crate) fn watch(sched: &'static Sched, p: Held, now: u64) -> bool {
    let is_over = |now| {
        sched.runq_size.load(Ordering::Relaxed) != 0
            || sched.halts()
            || !p.told.is_empty()
            || timers::wanted(sched) <= now
    };
    let mut batch = Batch::new();
    let Some(now) = sched.poll.watch(now, &mut batch, is_over) else { return false };
    p.note_now(now);
    deliver_at(sched, p, &batch, now);
    !p.runq.is_empty()
}

/// A busy P looks, if nobody has for a while.
pub(crate) fn look_if_late(sched: &'static Sched, p: Held, now: u64) {
    if sched.poll.is_wanted() && now.saturating_sub(sched.poll.last_look(now)) > LATE {
        look(sched, p);
    }
}

/// sysmon looks, if nobody has for long. Returns whether there was something.
pub(crate) fn look_for_others(sched: &'static Sched, now: u64) -> bool {
    if !sched.poll.is_wanted() {
        return false;
    }
    let patience = if sched.idle.idle_ps() == 0 { VERY_LATE } else { UNWATCHED };
    if now.saturating_sub(sched.poll.last_look(now)) <= patience {
        return false;
    }
    let mut batch = Batch::new();
    let looked = sched.poll.look(&mut batch) && !batch.is_empty();
    if looked {
        deliver_from_outside(&batch);
    }
    // From now on somebody waits, if there is somebody.
    sched.poll.note_lag();
    wake_poller(sched);
    looked
}

/// Whether anybody waits for a descriptor (see `deadlock`).
pub(crate) fn anybody_waits() -> bool {
    DESCS.iter().any(Desc::has_waiters)
}

/// How many descriptors have a block.
#[cfg(all(test, not(any(loom, sim))))]
pub(crate) fn blocks() -> usize {
    DESCS.taken()
}

/// A runtime has ended, and its poller goes. Others who wait there try again, and
/// wait in their own.
pub(crate) fn dissolve(sched: &'static Sched) {
    timers::hand_deadlines_over(sched);
    for desc in DESCS.iter().filter(|desc| desc.leave(&sched.poll)) {
        if is(Mutant::DissolveQuietly) {
            continue;
        }
        wake_all(desc.read.ready(false), Turn::wake);
        wake_all(desc.write.ready(false), Turn::wake);
    }
    sched.poll.close();
}

#[cfg(all(test, not(any(loom, sim))))]
pub(in crate::sched) mod tests {
    use super::*;
    use crate::prim::hint;
    use crate::sched::schedt::{Config, PanicPolicy};
    use crate::sched::shutdown;
    use crate::stacks::Class;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// A scheduler without a thread: nobody looks at its poller, and no sysmon.
    fn nobody_at_work() -> &'static Sched {
        Sched::open(Config {
            procs: 1,
            follow_limit: false,
            hosted: 0,
            reserved: 0,
            stack: Class::default_class(),
            thread_name: "netpoll".into(),
            max_threads: 10,
            max_runners: None,
            idle_thread: Duration::from_secs(1),
            shutdown: Duration::from_secs(1),
            panic: PanicPolicy::Isolate,
            seed: 1,
            trace: None,
            trace_detail: false,
            tls_guard: false,
        })
        .unwrap()
    }

    /// Has the only P of a runtime do something when nobody has looked for a while. Returns
    /// whether it has looked: sysmon waits for longer, as a rule.
    pub(in crate::sched) fn looks_meanwhile(busy: impl Fn(&'static Sched) + Sync) -> bool {
        let runtime = crate::Builder::new().max_procs(1).build().unwrap();
        runtime.run(|| {
            let sched = m::current().unwrap().sched;
            let (near, _far) = UnixStream::pair().unwrap();
            let desc = DESCS.take();
            assert!(desc.register(near.as_fd(), || &sched.poll).unwrap().is_some());
            let _ = sched.poll.look(&mut Batch::new());
            let looked = sched.poll.last_look(0);
            while clock::now() - looked <= LATE {
                hint::spin_loop();
            }
            busy(sched);
            let looks = sched.poll.last_look(0) != looked;
            unfrozen(|| desc.deregister(near.as_fd()));
            DESCS.put(desc.number());
            looks
        })
    }

    #[test]
    fn a_busy_p_looks_when_it_is_late() {
        let look = |after| {
            looks_meanwhile(|sched| {
                let inside = Inside::enter().unwrap();
                look_if_late(sched, inside.p, sched.poll.last_look(0) + after);
            })
        };
        // All of them are late if the thread stands still in the middle.
        assert!((0..20).any(|_| !look(LATE)), "others look soon enough");
        assert!(look(LATE + 1));
    }

    /// Those who only yield leave nobody the time to look.
    #[test]
    fn a_p_whose_goroutines_only_yield_looks() {
        let looks =
            |_: &u32| looks_meanwhile(|_| (0..200).for_each(|_| crate::thread::yield_now()));
        assert!((0..20).filter(looks).count() > 10);
    }

    /// The caller waits, and plays sysmon, too.
    #[test]
    fn sysmon_finds_what_nobody_else_looks_for() {
        let sched = nobody_at_work();
        assert!(!look_for_others(sched, u64::MAX), "nobody wants it");
        let (near, mut far) = UnixStream::pair().unwrap();
        let desc = DESCS.take();
        assert!(desc.register(near.as_fd(), || &sched.poll).unwrap().is_some());
        // What there is from the beginning: it can be written to.
        assert!(sched.poll.look(&mut Batch::new()));
        let looked = sched.poll.last_look(0);

        let Begin::Try(seen) = desc.read.begin() else { panic!("nothing has happened") };
        let turn = Waiter::current().begin();
        assert_eq!(desc.read.wait(seen, turn), Wait::Sleep);
        far.write_all(b"x").unwrap();
        assert!(!look_for_others(sched, looked + UNWATCHED), "others look soon enough");
        assert!(desc.read.has_waiters());
        assert!(look_for_others(sched, looked + UNWATCHED + 1));
        assert!(sched.poll.lags(), "from now on somebody should wait there");
        let hour = clock::now() + 3_600_000_000_000;
        assert_eq!(turn.sleep(Some(hour), WaitReason::Io, Location::caller()), Slept::Woken);
        assert!(!desc.has_waiters());

        desc.deregister(near.as_fd());
        DESCS.put(desc.number());
        shutdown::close(sched);
    }
}
