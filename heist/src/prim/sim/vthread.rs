//! A virtual OS thread.

use super::buffer::StoreBuffer;
use super::machine;
use super::signal::Mailbox;
use crate::prim::note::Seat;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;

pub(super) type ThreadId = usize;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Wants a core.
    Ready,
    /// Has one.
    Running,
    /// Sleeps.
    Blocked,
    Ended,
}

/// The thread.
pub(super) struct VThread {
    pub(super) name: String,
    pub(super) state: State,
    /// The core that it is on, or was on last.
    pub(super) core: usize,
    /// Counts its sleeps, so that an old timer does not end a new one.
    pub(super) sleep: u64,
    /// The word that it sleeps on.
    pub(super) sleeps_on: Option<usize>,
    /// A wake-up is on its way to it.
    pub(super) late: bool,
    /// When it may run at the earliest.
    pub(super) ready_at: u64,
    /// Since when it has had its core.
    pub(super) since: u64,
    /// How long it had one before.
    pub(super) cpu: u64,
    /// It only watches others, and what it would mend must not be broken.
    pub(super) watcher: bool,
    /// It computes, outside of heist.
    pub(super) in_user: bool,
    /// For PCT: the higher goes first.
    pub(super) priority: i64,
    pub(super) steps: u64,
    /// Where its last step was.
    pub(super) site: Option<&'static Location<'static>>,
    /// Since when it searches for work, as the scheduler says.
    pub(super) searching_since: Option<u64>,
    pub(super) buffer: StoreBuffer,
    pub(super) mailbox: Mailbox,
    pub(super) joiner: Option<ThreadId>,
    /// std's park token.
    pub(super) token: bool,
    /// Thread-locals of `prim`.
    pub(super) slot: *const (),
    pub(super) seat: Option<&'static Seat>,
    pub(super) stack_limit: usize,
    pub(super) held: u32,
    pub(super) unwinding: bool,
    routine: Option<Coroutine<(), (), (), DefaultStack>>,
    yielder: Rc<Cell<*const Yielder<(), ()>>>,
}

impl VThread {
    pub(super) fn new(
        name: String,
        stack: usize,
        body: impl FnOnce() + 'static,
    ) -> std::io::Result<VThread> {
        let yielder = Rc::new(Cell::new(ptr::null()));
        let known = yielder.clone();
        // User code may run on it when a runtime shuts down, and unoptimised
        // code needs more than the thread's share.
        let stack = DefaultStack::new(stack.max(256 << 10))?;
        let low = corosensei::stack::Stack::limit(&stack).get();
        let routine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            known.set(yielder);
            body();
        });
        Ok(VThread {
            watcher: name.ends_with("-sysmon"),
            name,
            state: State::Ready,
            core: 0,
            sleep: 0,
            sleeps_on: None,
            late: false,
            ready_at: 0,
            since: 0,
            cpu: 0,
            mailbox: Mailbox::default(),
            in_user: false,
            priority: 0,
            steps: 0,
            site: None,
            searching_since: None,
            buffer: StoreBuffer::default(),
            joiner: None,
            token: false,
            slot: ptr::null(),
            seat: None,
            stack_limit: low,
            held: 0,
            unwinding: false,
            routine: Some(routine),
            yielder,
        })
    }

    /// The coroutine, to resume it without borrowing the thread.
    pub(super) fn take_routine(&mut self) -> Option<Routine> {
        self.routine.take().map(Routine)
    }

    pub(super) fn put_routine(&mut self, routine: Routine) {
        self.routine = Some(routine.0);
    }

    /// How this thread gives control back to the driver.
    pub(super) fn exit(&self) -> Exit {
        Exit(self.yielder.get())
    }
}

/// A thread's coroutine while the driver has it.
pub(super) struct Routine(Coroutine<(), (), (), DefaultStack>);

impl Routine {
    /// Lets the thread run until it pauses; false when it has ended.
    pub(super) fn resume(&mut self) -> bool {
        matches!(self.0.resume(()), CoroutineResult::Yield(()))
    }
}

/// The way from a thread to the driver.
#[derive(Clone, Copy)]
pub(super) struct Exit(*const Yielder<(), ()>);

impl Exit {
    /// Pauses the calling thread, whose exit this is. It may be on the stack of
    /// a goroutine that it runs: what is saved is a stack pointer.
    pub(super) fn pause(self) {
        let unwinding = std::thread::panicking();
        machine::with(|m| m.note_unwinding(unwinding));
        // SAFETY: the coroutine has started, for its thread calls, and its
        // yielder lives until it ends.
        unsafe { (*self.0).suspend(()) };
    }
}
