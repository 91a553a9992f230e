//! G: the control block of a goroutine.
//!
//! 128 bytes in memory that is never unmapped and only ever holds Gs, so a
//! `&'static G` stays valid whatever becomes of the goroutine. Everything that
//! others may look at is atomic; what only the owner touches is in `storage`
//! (the closure before the first run, the result after the last) and in the
//! [`Frame`](crate::context::Frame) on its stack.
//!
//! | field | written by | when |
//! |---|---|---|
//! | `state` | see `protocol::g_state` | |
//! | `ticket` | see `protocol::ticket` | |
//! | `join` | see `protocol::join` | |
//! | `turn` | see `protocol::turn` | |
//! | `reason`, `since`, `holder`, `wait_site` | the goroutine | before it parks |
//! | `flags` | the spawner, then the goroutine | |
//! | the others | the spawner, the first M that runs it | before it is shared |

use super::forks::Attached;
use super::local::Locals;
use super::m::M;
use super::protocol::g_state::{GState, Ready};
use super::protocol::join::JoinWord;
use super::protocol::ticket::Ticket;
use super::protocol::turn::TurnWord;
use super::storage::Storage;
use super::task::Task;
use crate::context;
use crate::prim::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::prim::hint;
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::Location;
use std::ptr;

/// What a started goroutine keeps on its stack for the scheduler. Its end looks at the
/// first two fields, which are in the line of what else it looks at.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Ext {
    /// Its `goroutine_local!` values, if it ever had one.
    pub(crate) locals: OnceCell<Box<RefCell<Locals>>>,
    /// Its open forks, if it ever forked; the next goroutine of the frame finds
    /// them empty.
    pub(crate) forks: OnceCell<Attached>,
    /// The M that it must run on, while the flag `PINNED` is set.
    pub(crate) pinned: Cell<Option<&'static M>>,
    /// How often it has locked its thread without unlocking it since.
    pub(crate) locks: Cell<u32>,
    /// It unwinds, and waits until some moment.
    pub(crate) timed: Cell<bool>,
    /// How often it went on where its runtime, which closes, would have it unwind (see
    /// `park::wait_point`). If the goroutine before has left some here, it is fewer times.
    pub(crate) let_go: Cell<u32>,
}

impl context::Tidy for Ext {
    #[inline(always)]
    fn is_tidy(&self) -> bool {
        // A pin that is over is overwritten before the next one counts, and locks
        // are undone at the end.
        self.locals.get().is_none()
    }

    fn is_empty(&self) -> bool {
        self.locals.get().is_none() && self.forks.get().is_none()
    }
}

pub(crate) type Frame = context::Frame<Ext>;

/// Why a goroutine waits. Texts are Go's where Go has the thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WaitReason {
    /// It does not, or nobody said why.
    None,
    /// `join` of another goroutine, or the end of a scope.
    Join,
    /// `thread::park`.
    Park,
    WaitGroup,
    Sleep,
    ChanReceive,
    ChanSend,
    Select,
    SelectNoCases,
    MutexLock,
    RwLockRead,
    RwLockWrite,
    Condvar,
    Barrier,
    Once,
    Semaphore,
    /// The network, a pipe: a descriptor.
    Io,
}

impl WaitReason {
    /// In the order of their numbers.
    const ALL: [(WaitReason, &'static str); 17] = [
        (WaitReason::None, "waiting"),
        (WaitReason::Join, "join"),
        (WaitReason::Park, "park"),
        (WaitReason::WaitGroup, "sync.WaitGroup.Wait"),
        (WaitReason::Sleep, "sleep"),
        (WaitReason::ChanReceive, "chan receive"),
        (WaitReason::ChanSend, "chan send"),
        (WaitReason::Select, "select"),
        (WaitReason::SelectNoCases, "select (no cases)"),
        (WaitReason::MutexLock, "sync.Mutex.Lock"),
        (WaitReason::RwLockRead, "sync.RWMutex.RLock"),
        (WaitReason::RwLockWrite, "sync.RWMutex.Lock"),
        (WaitReason::Condvar, "sync.Cond.Wait"),
        (WaitReason::Barrier, "barrier"),
        (WaitReason::Once, "once"),
        (WaitReason::Semaphore, "semacquire"),
        (WaitReason::Io, "IO wait"),
    ];

    fn of(byte: u8) -> WaitReason {
        Self::ALL.get(byte as usize).map_or(WaitReason::None, |(reason, _)| *reason)
    }

    /// The text in dumps.
    pub(crate) fn text(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Bits of `flags`.
pub(crate) mod flag {
    /// It has a name, in the table of names.
    pub(crate) const NAMED: u8 = 1;
    /// It runs only when a P would otherwise go idle.
    pub(crate) const IDLE_PRIORITY: u8 = 2;
    /// It runs only on the M in its frame's `pinned`.
    pub(crate) const PINNED: u8 = 4;
    /// Its outcome is in the storage.
    pub(crate) const OUTCOME: u8 = 8;
    /// It runs again, only to drop an outcome that nobody took.
    pub(crate) const DROPPING: u8 = 16;
    /// It is inside of `no_preempt`.
    pub(crate) const NO_PREEMPT: u8 = 32;
    /// Two bits: how likely others must run what this goroutine makes ready
    /// (see `sched::wake`).
    pub(crate) const SCORE_SHIFT: u8 = 6;
}

/// The control block.
#[repr(C, align(128))]
pub(crate) struct G {
    pub(crate) state: GState,
    runtime: AtomicU16,
    reason: AtomicU8,
    flags: AtomicU8,
    pub(crate) ticket: Ticket,
    task: AtomicPtr<Task>,
    frame: AtomicPtr<Frame>,
    pub(crate) join: JoinWord,
    turn: AtomicU64,
    /// Begins in the first cache line, with all that a run needs.
    pub(crate) storage: Storage<6>,
    /// In units of [`SINCE_UNIT`].
    since: AtomicU32,
    /// The lower half of the id of who held the lock that it waits for.
    holder: AtomicU32,
    wait_site: AtomicPtr<Location<'static>>,
    site: AtomicPtr<Location<'static>>,
    parent: AtomicU64,
}

const _: () = assert!(size_of::<G>() == 128);

/// In which a goroutine notes since when it waits: a second or so, as a power of two.
/// Reports tell minutes.
const SINCE_UNIT: u64 = 1 << 30;

/// What a spawner says of a new goroutine.
pub(crate) struct Birth {
    pub(crate) id: u64,
    pub(crate) runtime: u16,
    pub(crate) parent: u64,
    pub(crate) flags: u8,
    pub(crate) site: &'static Location<'static>,
    pub(crate) task: &'static Task,
}

impl G {
    /// Fills a free block in. The caller has it alone.
    #[inline(always)]
    pub(crate) fn init(&self, birth: Birth) {
        self.runtime.store(birth.runtime, Ordering::Relaxed);
        self.reason.store(0, Ordering::Relaxed);
        self.flags.store(birth.flags, Ordering::Relaxed);
        self.ticket.reset(birth.id);
        self.task.store(ptr::from_ref(birth.task).cast_mut(), Ordering::Relaxed);
        self.site.store(ptr::from_ref(birth.site).cast_mut(), Ordering::Relaxed);
        self.parent.store(birth.parent, Ordering::Relaxed);
        self.join.reset();
    }

    /// The goroutine's id: unique in the process, never reused.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.ticket.id()
    }

    /// The id of the goroutine that spawned it, or 0.
    pub(crate) fn parent(&self) -> u64 {
        self.parent.load(Ordering::Relaxed)
    }

    /// The slot of its runtime in the table of runtimes.
    #[inline]
    pub(crate) fn runtime(&self) -> u16 {
        self.runtime.load(Ordering::Relaxed)
    }

    /// What it runs.
    #[inline]
    pub(crate) fn task(&self) -> &'static Task {
        // SAFETY: set at birth from a `&'static`; only Gs that were born are
        // asked.
        unsafe { &*self.task.load(Ordering::Relaxed) }
    }

    /// Where it was spawned; `None` for a block that was never used.
    pub(crate) fn site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null or from a `&'static`.
        unsafe { self.site.load(Ordering::Relaxed).as_ref() }
    }

    /// Where it waits.
    pub(crate) fn wait_site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null or from a `&'static`.
        unsafe { self.wait_site.load(Ordering::Relaxed).as_ref() }
    }

    /// Who ends its present wait. The word outlives the goroutine: its numbers
    /// go on in the next one.
    #[inline]
    pub(crate) fn turn(&self) -> TurnWord<'_> {
        TurnWord(&self.turn)
    }

    /// Answers its park, by a waker that has a P of its runtime. Shutdown takes
    /// goroutines that wait once no M has a P; only one that waits with its thread takes
    /// itself, as soon as the runtime closes.
    #[inline(always)]
    pub(crate) fn ready_with_p(&self) -> Ready {
        // Pinned before it parked, if at all, so that this sees it.
        self.state.ready_if(|| !self.has(flag::PINNED))
    }

    /// Notes why, since when and where it is going to wait.
    #[inline]
    pub(crate) fn note_wait(&self, reason: WaitReason, now: u64, site: &'static Location<'static>) {
        self.reason.store(reason as u8, Ordering::Relaxed);
        self.since.store((now / SINCE_UNIT) as u32, Ordering::Relaxed);
        self.wait_site.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    }

    /// Notes that it yields: it waits for nothing but its turn.
    #[inline]
    pub(crate) fn note_no_wait(&self) {
        self.reason.store(WaitReason::None as u8, Ordering::Relaxed);
    }

    /// Why it waits, and since when on the monotonic clock, roughly.
    pub(crate) fn wait(&self) -> (WaitReason, u64) {
        let reason = WaitReason::of(self.reason.load(Ordering::Relaxed));
        (reason, u64::from(self.since.load(Ordering::Relaxed)) * SINCE_UNIT)
    }

    /// Notes whose lock it is going to wait for; `None` if that is not known.
    pub(crate) fn note_holder(&self, id: Option<u64>) {
        self.holder.store(id.unwrap_or(0) as u32, Ordering::Relaxed);
    }

    /// The lower half of the id of who held the lock that it waits for, when it began
    /// to; `None` if that is not known.
    pub(crate) fn holder(&self) -> Option<u32> {
        let holder = self.holder.load(Ordering::Relaxed);
        (self.wait().0 == WaitReason::MutexLock && holder != 0).then_some(holder)
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets or clears flags. One writer at a time: the goroutine, or whoever
    /// has it while it does not run.
    pub(crate) fn set(&self, flag: u8, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        self.flags.store(if on { flags | flag } else { flags & !flag }, Ordering::Relaxed);
    }

    /// The two bits of the wake prediction.
    #[inline]
    pub(crate) fn score(&self) -> u8 {
        self.flags.load(Ordering::Relaxed) >> flag::SCORE_SHIFT
    }

    #[inline]
    pub(crate) fn set_score(&self, score: u8) {
        debug_assert!(score < 4);
        let flags = self.flags.load(Ordering::Relaxed) & ((1 << flag::SCORE_SHIFT) - 1);
        self.flags.store(flags | score << flag::SCORE_SHIFT, Ordering::Relaxed);
    }

    /// Its frame; `None` before the first run and after the last.
    ///
    /// # Safety
    ///
    /// The caller keeps the goroutine from ending meanwhile: it runs on it, or
    /// has it while it does not run.
    #[inline]
    pub(crate) unsafe fn frame(&self) -> Option<&Frame> {
        // SAFETY: a frame lives until its goroutine ends.
        unsafe { self.frame.load(Ordering::Relaxed).as_ref() }
    }

    /// Asks for what a switch to it and its way back will touch: the first two lines of its
    /// frame, and the end of its stack, which lies right below if it is not deep. Of a
    /// goroutine that is about to run: its stack is often in no cache, and its page in no
    /// table of the CPU's.
    #[inline(always)]
    pub(crate) fn prefetch_stack(&self) {
        const LINE: usize = 64;
        let frame = self.frame.load(Ordering::Relaxed).cast::<u8>();
        if !frame.is_null() {
            for lines in [0, 2, 4, 6] {
                hint::prefetch(frame.wrapping_sub(lines * LINE));
            }
        }
    }

    /// Whether it has run.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        !self.frame.load(Ordering::Relaxed).is_null()
    }

    /// Whether its body has begun: not if it only has a frame of its own size.
    pub(crate) fn has_started(&self) -> bool {
        // SAFETY: only those who have the goroutine ask, and it does not end.
        unsafe { self.frame() }.is_some_and(Frame::has_started)
    }

    /// Sets its frame, or takes it away. By whoever has the goroutine.
    #[inline]
    pub(crate) fn set_frame(&self, frame: Option<ptr::NonNull<Frame>>) {
        let frame = frame.map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
        self.frame.store(frame, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for G {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "G{}", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::WaitReason;

    #[test]
    fn wait_reasons_have_their_own_texts() {
        for (i, (reason, _)) in WaitReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
            assert_eq!(WaitReason::of(i as u8), *reason);
        }
    }
}
