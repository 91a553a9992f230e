//! Threads and what belongs to one.

use super::machine::{Machine, pause, step, with};
use super::record::Op;
use super::vthread::{State, ThreadId, VThread};
use crate::prim::note::Seat;
use std::io;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// The right to wait for a thread's end.
#[derive(Debug)]
pub(crate) struct JoinHandle<T> {
    thread: ThreadId,
    marker: std::marker::PhantomData<T>,
}

impl JoinHandle<()> {
    /// Waits for the thread to end. A panic of a thread ends the run.
    pub(crate) fn join(self) -> std::thread::Result<()> {
        step(Op::Yield, 0);
        let ended = |m: &mut Machine| {
            let ended = m.threads[self.thread].state == State::Ended;
            if !ended {
                m.threads[self.thread].joiner = Some(m.current);
                m.block(None, None);
            }
            ended
        };
        while with(ended) == Some(false) {
            pause();
        }
        Ok(())
    }
}

/// A handle to a thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    id: ThreadId,
    name: Arc<str>,
}

impl Thread {
    pub(crate) fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    pub(crate) fn unpark(&self) {
        step(Op::FutexWake, 0);
        with(|m| {
            m.threads[self.id].token = true;
            // Whatever it sleeps for, it looks again.
            if m.threads[self.id].sleeps_on.is_none() {
                m.unblock(self.id);
            }
        });
    }
}

/// The calling thread.
pub(crate) fn current() -> Thread {
    let (id, name) =
        with(|m| (m.current, m.threads[m.current].name.as_str().into())).unwrap_or((0, "".into()));
    Thread { id, name }
}

/// What a thread may ask its kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Prompt,
    Usual,
}

/// On which cores a thread may run: on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask;

/// A thread as its kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OsThread(u32);

impl OsThread {
    pub(crate) fn current() -> OsThread {
        OsThread(with(|m| m.current as u32).unwrap_or(0))
    }

    pub(crate) fn id(self) -> u32 {
        self.0
    }

    pub(crate) fn from_id(id: u32) -> OsThread {
        OsThread(id)
    }

    /// How long it has had a core; `None` once it has ended.
    pub(crate) fn cpu_time(self) -> Option<u64> {
        step(Op::Clock, 0);
        with(|m| {
            let t = m.threads.get(self.0 as usize)?;
            (t.state != State::Ended).then(|| m.cpu_time(self.0 as usize))
        })?
    }

    /// This kernel does not count it.
    pub(crate) fn ran_and_waited(self) -> Option<(u64, u64)> {
        None
    }

    /// All threads are alike to this kernel.
    pub(crate) fn set_pace(self, _pace: Pace) {}

    /// Nor do they have masks of CPUs.
    pub(crate) fn mask(self) -> Option<Mask> {
        None
    }

    pub(crate) fn set_mask(self, _mask: &Mask) -> bool {
        false
    }

    pub(crate) fn leave_out(self, _cpu: usize, _at_least: usize) -> bool {
        false
    }

    pub(crate) fn let_in(self, _cpu: usize) {}

    /// There is one signal here.
    #[track_caller]
    pub(crate) fn interrupt(self, _signal: i32, value: u64) -> bool {
        super::signal::send(self.0 as usize, value)
    }

    pub(crate) fn is_blocked(self) -> bool {
        with(|m| m.threads.get(self.0 as usize).is_some_and(|t| t.state == State::Blocked))
            .unwrap_or(false)
    }
}

/// Sleeps until there is a token, and takes it.
pub(crate) fn park() {
    while !park_until(None) {}
}

/// The same, for so long at most.
pub(crate) fn park_timeout(timeout: Duration) {
    park_until(Some(timeout));
}

/// Sleeps once, unless there is a token. Whether there was one.
fn park_until(timeout: Option<Duration>) -> bool {
    step(Op::FutexWait, 0);
    let timeout = timeout.map(crate::prim::nanos);
    let take = |m: &mut Machine| {
        let current = m.current;
        std::mem::take(&mut m.threads[current].token)
    };
    if with(take) != Some(false) {
        return true;
    }
    with(|m| m.block(None, timeout.map(|t| m.time().saturating_add(t))));
    pause();
    with(take) != Some(false)
}

#[track_caller]
pub(crate) fn yield_now() {
    step(Op::Yield, 0);
}

/// The cores of the machine.
#[allow(clippy::unnecessary_wraps)] // std's signature
pub(crate) fn available_parallelism() -> io::Result<NonZeroUsize> {
    let cores = with(|m| m.cores.len()).unwrap_or(1);
    Ok(NonZeroUsize::new(cores).unwrap_or(NonZeroUsize::MIN))
}

/// How many Ps a runtime should have that was not told.
pub(crate) fn usable_cpus() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The core that the calling thread is on.
pub(crate) fn cpu() -> Option<usize> {
    with(|m| {
        // A load from its own memory, and the call.
        m.cost(2);
        m.threads[m.current].core
    })
}

/// The cache and the node of each core.
pub(crate) fn cores() -> Vec<(usize, usize)> {
    with(|m| m.config.topology.places()).unwrap_or_default()
}

/// Virtual threads have no memory of their own.
pub(crate) fn tls_bounds(_first_frame: usize) -> [(usize, usize); 2] {
    [(0, 0); 2]
}

/// Whether the calling thread unwinds.
pub(crate) fn panicking() -> bool {
    let panicking = std::thread::panicking();
    with(|m| m.is_unwinding(panicking)).unwrap_or(panicking)
}

pub(crate) fn slot() -> *const () {
    with(|m| m.threads[m.current].slot).unwrap_or(ptr::null())
}

pub(crate) fn set_slot(value: *const ()) {
    with(|m| {
        let current = m.current;
        m.threads[current].slot = value;
    });
}

/// The ranks of the locks that the calling thread holds, a bit each.
pub(crate) fn held() -> u32 {
    with(|m| m.threads[m.current].held).unwrap_or(0)
}

pub(crate) fn set_held(ranks: u32) {
    with(|m| {
        let current = m.current;
        m.threads[current].held = ranks;
    });
}

/// The calling thread's seat.
pub(crate) fn seat() -> &'static Seat {
    let leak = || super::atomic::keep(Box::leak(Box::new(Seat::new())));
    with(|m| {
        let current = m.current;
        *m.threads[current].seat.get_or_insert_with(leak)
    })
    .unwrap_or_else(leak)
}

/// Timed sleeps are precise here.
pub(crate) fn sleep_precisely() {}

/// Starts a thread.
pub(crate) fn start(
    name: String,
    stack_size: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    step(Op::Start, 0);
    if with(|m| m.refuses_thread()) == Some(true) {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    let thread = VThread::new(name, stack_size, body)?;
    let thread = with(|m| {
        m.counts.thread_starts += 1;
        m.add(thread)
    });
    match thread {
        Some(thread) => Ok(JoinHandle { thread, marker: std::marker::PhantomData }),
        None => Err(io::Error::other("there is no machine to start a thread on")),
    }
}

pub(crate) fn stack_limit() -> usize {
    with(|m| m.threads[m.current].stack_limit).unwrap_or(1)
}

pub(crate) fn set_stack_limit(limit: usize) -> usize {
    with(|m| {
        let current = m.current;
        std::mem::replace(&mut m.threads[current].stack_limit, limit)
    })
    .unwrap_or(1)
}

/// How many threads there are.
#[allow(clippy::unnecessary_wraps)] // as the native backend
pub(crate) fn count_in_process() -> Option<usize> {
    with(|m| m.threads.iter().filter(|t| t.state != State::Ended).count())
}
