//! Switching stacks: create, resume, suspend, finish.
//!
//! The only file that knows corosensei. Everything that belongs to a started
//! goroutine and dies with its stack sits in a [`Frame`] at the stack's top, so
//! that a goroutine that never ran costs none of it.
//!
//! A frame outlives its goroutine: when the body returns, the frame suspends
//! once more, [`Suspend::Done`], and can be given the next body. That saves setting
//! a coroutine up and tearing it down (65 to 45 ns for a short goroutine). [`Frame::retire`]
//! ends one for good.
//!
//! Nothing here is `Send`-checked: a suspended frame goes from thread to
//! thread. What makes that sound is said where a goroutine is spawned (its
//! closure is `Send`) and in `README.md` (nothing that came out of a
//! thread-local lives across a blocking call).

use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::stacks::{self, Class, Stack};
use corosensei::stack::StackPointer;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, UnsafeCell};
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};

/// What a suspended goroutine is told when it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Go on.
    Run,
    /// Unwind to the root: the runtime shuts down. To a frame that is done: it
    /// is of no more use.
    Unwind,
}

/// What a goroutine asks of its M when it leaves its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// Queue me behind the others.
    Yield,
    /// Queue me behind everybody, on the global queue: my time is over.
    Preempt,
    /// I sleep until somebody makes me ready.
    Park,
    /// I sleep for a time.
    Sleep,
    /// My body has returned.
    Done,
}

/// A stack's bounds in corosensei's terms.
#[derive(Clone, Copy)]
struct Bounds {
    base: StackPointer,
    limit: StackPointer,
}

// SAFETY: `base` and `limit` bound a range inside a `Stack` that the frame (or
// the segment's user) owns until execution on it is over, with a guard page
// below; both are 16-byte aligned.
unsafe impl corosensei::stack::Stack for Bounds {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl Bounds {
    fn new(base: usize, limit: usize) -> Self {
        let pointer = |address| StackPointer::new(address).expect("stacks are not at address zero");
        Bounds { base: pointer(base & !15), limit: pointer(limit) }
    }
}

type Routine = Coroutine<Resume, Suspend, (), Bounds>;

/// What a frame keeps for its user can be told to be as good as new.
pub(crate) trait Tidy {
    fn is_tidy(&self) -> bool;

    /// Whether it has nothing that would have to be dropped, either.
    fn is_empty(&self) -> bool;
}

/// What a started goroutine has beside its control block.
///
/// In the order of need: a switch touches the first cache line, the end of a goroutine the
/// first two, which are one pair. Of a hundred thousand that wait, none is in a cache, and
/// each line that need not come saves 15 ns.
#[repr(C, align(128))]
pub(crate) struct Frame<E> {
    routine: UnsafeCell<ManuallyDrop<Routine>>,
    yielder: Cell<*const Yielder<Resume, Suspend>>,
    /// What the body is called with.
    argument: Cell<*const ()>,
    /// It lies in the part of its stack that always keeps its pages, and so does what it
    /// needs of the stack when it is done.
    stays: Cell<bool>,
    /// A segment that was used and may be used again soon.
    spare: Cell<Option<Stack>>,
    stack: ManuallyDrop<Stack>,
    /// What the layer above keeps here.
    pub(crate) ext: E,
    /// The lowest usable address of the segment in use; read by the handler of
    /// stack overflows.
    limit: AtomicUsize,
    /// Where the segment in use ends.
    top: Cell<usize>,
    /// What is in use of the segments before it.
    outer: Cell<*const Outer>,
}

/// A part of a stack that is in use: from the lowest address to the highest.
pub(crate) type Part = (usize, usize);

/// The used part of a segment whose user has gone on on another one. On that
/// segment, in the frame that called.
struct Outer {
    part: Part,
    next: *const Outer,
}

/// Prepares a frame on `stack` that runs `body(argument)`, with the argument
/// that [`Frame::set_argument`] sets before each first resume.
///
/// # Safety
///
/// `body` must be callable with the arguments that are set, on whatever thread
/// resumes the frame, and must not unwind.
///
/// Its type is known here, so that it becomes a part of the coroutine's function: one frame
/// less on each stack, which is a cache line of each goroutine that waits, and one return
/// that no CPU predicts.
pub(crate) unsafe fn create<E: Default + 'static>(
    stack: Stack,
    body: impl Fn(*const ()) + 'static,
) -> NonNull<Frame<E>> {
    let frame = place_on::<E>(&stack);
    let (address, keeps) = (frame as usize, stack.keeps_from());
    let bounds = Bounds::new(address, stack.limit());
    let body = move |yielder: &Yielder<Resume, Suspend>, _: Resume| {
        // SAFETY: the frame is written before the first resume, and outlives
        // the bodies, which run on the stack below it.
        let frame = unsafe { &*frame };
        frame.yielder.set(yielder);
        frame.stays.set(exact_stack_pointer() - BELOW_ON_STACK >= keeps);
        loop {
            body(frame.argument.get());
            if yielder.suspend(Suspend::Done) == Resume::Unwind {
                return;
            }
        }
    };
    let routine = Coroutine::with_stack(bounds, body);
    // Field by field: a frame built elsewhere and copied here costs more than
    // all the rest of this function.
    // SAFETY: the address is aligned and inside the stack, which is ours, above
    // the base that the coroutine was given.
    unsafe {
        (&raw mut (*frame).routine).write(UnsafeCell::new(ManuallyDrop::new(routine)));
        (&raw mut (*frame).yielder).write(Cell::new(ptr::null()));
        (&raw mut (*frame).argument).write(Cell::new(ptr::null()));
        (&raw mut (*frame).stays).write(Cell::new(false));
        (&raw mut (*frame).limit).write(AtomicUsize::new(stack.limit()));
        (&raw mut (*frame).spare).write(Cell::new(None));
        (&raw mut (*frame).ext).write(E::default());
        (&raw mut (*frame).top).write(Cell::new(address));
        (&raw mut (*frame).outer).write(Cell::new(ptr::null()));
        (&raw mut (*frame).stack).write(ManuallyDrop::new(stack));
    }
    // SAFETY: inside a mapping, so not null.
    unsafe { NonNull::new_unchecked(frame) }
}

/// Where the frame of a stack is.
fn place_on<E>(stack: &Stack) -> *mut Frame<E> {
    let top = stack.top() - stack.colour();
    ((top - mem::size_of::<Frame<E>>()) & !(mem::align_of::<Frame<E>>() - 1)) as *mut Frame<E>
}

/// Takes up the frame that was [left](Frame::leave) on a stack.
///
/// # Safety
///
/// A frame with such an `E` was left there, and nobody has used the stack since.
pub(crate) unsafe fn take_up<E>(stack: Stack) -> NonNull<Frame<E>> {
    let frame = place_on::<E>(&stack);
    // SAFETY: the frame is there, as it was left, and has the stack again.
    unsafe {
        (&raw mut (*frame).stack).write(ManuallyDrop::new(stack));
        NonNull::new_unchecked(frame)
    }
}

impl<E> Frame<E> {
    /// Sets what the next body is called with. The frame is new, or done.
    #[inline(always)]
    pub(crate) fn set_argument(&self, argument: *const ()) {
        self.argument.set(argument);
    }

    /// The class of its stack.
    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        self.stack.class()
    }

    /// Runs the goroutine until it suspends, and returns what it asks for;
    /// `None` when the frame has ended for good.
    ///
    /// # Safety
    ///
    /// The caller is the only one that resumes this frame, it has an argument,
    /// and it has not ended.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, how: Resume) -> Option<Suspend> {
        // SAFETY: exclusive by the caller's promise. The goroutine itself uses
        // only the yielder while it runs.
        let routine = unsafe { &mut *self.routine.get() };
        match routine.resume(how) {
            CoroutineResult::Yield(suspend) => Some(suspend),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Leaves the stack, from the goroutine that runs on it. Returns when it is
    /// resumed, perhaps on another thread: nothing that was read from the M or
    /// from a thread-local before is valid any more.
    ///
    /// # Safety
    ///
    /// The caller runs on this frame's stack or on a segment chained to it.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, suspend: Suspend) -> Resume {
        // SAFETY: set at the start of the body, and alive as long as it runs.
        unsafe { (*self.yielder.get()).suspend(suspend) }
    }

    /// Calls `visit` with each part of its stack that is in use, from `lowest` on,
    /// until that returns something.
    ///
    /// # Safety
    ///
    /// The caller runs on this frame's stack or on a segment chained to it.
    pub(crate) unsafe fn each_part_from<R>(
        &self,
        lowest: usize,
        mut visit: impl FnMut(Part) -> Option<R>,
    ) -> Option<R> {
        if let Some(found) = visit((lowest, self.top.get())) {
            return Some(found);
        }
        let mut outer = self.outer.get();
        // SAFETY: null, or in a frame that is still in use, since what it called
        // has not returned.
        while let Some(Outer { part, next }) = unsafe { outer.as_ref() } {
            if let Some(found) = visit(*part) {
                return Some(found);
            }
            outer = *next;
        }
        None
    }

    /// The lowest usable address of the segment in use.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Calls `f` on a segment with at least `bytes` of stack; `None` and `f`
    /// back if there is no memory for one.
    ///
    /// # Safety
    ///
    /// The caller runs on this frame's stack or on a segment chained to it.
    pub(crate) unsafe fn on_segment<R, F: FnOnce() -> R>(
        &self,
        bytes: usize,
        f: F,
    ) -> Result<R, (F, stacks::StackError)> {
        let segment = match self.segment(bytes) {
            Ok(segment) => segment,
            Err(error) => return Err((f, error)),
        };
        let bounds = Bounds::new(segment.top(), segment.limit());
        let part = (exact_stack_pointer() - BELOW_ON_STACK, self.top.replace(segment.top()));
        let outer = Outer { part, next: self.outer.get() };
        self.outer.set(&outer);
        let before = self.limit.swap(segment.limit(), Ordering::Relaxed);
        /// Restores the frame also when `f` unwinds.
        struct Leave<'a, E> {
            frame: &'a Frame<E>,
            limit: usize,
            outer: &'a Outer,
            segment: Option<Stack>,
        }
        impl<E> Drop for Leave<'_, E> {
            fn drop(&mut self) {
                self.frame.limit.store(self.limit, Ordering::Relaxed);
                self.frame.top.set(self.outer.part.1);
                self.frame.outer.set(self.outer.next);
                if let Some(old) = self.frame.spare.replace(self.segment.take()) {
                    stacks::release(old);
                }
            }
        }
        let _leave = Leave { frame: self, limit: before, outer: &outer, segment: Some(segment) };
        Ok(corosensei::on_stack(bounds, f))
    }

    fn segment(&self, bytes: usize) -> Result<Stack, stacks::StackError> {
        // Not smaller than the goroutine's own stack: a recursion that needs
        // one segment will need more of it.
        let class = Class::for_usable(bytes)?.max(self.stack.class());
        match self.spare.take() {
            Some(spare) if spare.class() >= class => Ok(spare),
            spare => {
                if let Some(spare) = spare {
                    stacks::release(spare);
                }
                stacks::acquire(class)
            }
        }
    }

    /// Makes a frame that is done ready for another goroutine.
    ///
    /// # Safety
    ///
    /// The caller has the frame alone.
    #[inline]
    pub(crate) unsafe fn clear(frame: NonNull<Frame<E>>)
    where
        E: Default + Tidy,
    {
        // SAFETY: exclusive by the caller's promise, and initialised.
        let frame = unsafe { &mut *frame.as_ptr() };
        if frame.spare.get_mut().is_some() || !frame.ext.is_tidy() {
            frame.clear_slowly();
        }
    }

    /// Out of line: few goroutines leave something behind, and their end would
    /// pay for the registers that this needs.
    #[cold]
    #[inline(never)]
    fn clear_slowly(&mut self)
    where
        E: Default,
    {
        if let Some(spare) = self.spare.take() {
            stacks::release(spare);
        }
        self.ext = E::default();
    }

    /// Whether it was ever resumed.
    pub(crate) fn has_started(&self) -> bool {
        !self.yielder.get().is_null()
    }

    /// Whether it can be left on its stack.
    #[cfg(test)]
    pub(crate) fn stays(&self) -> bool {
        self.stays.get()
    }

    /// Leaves a frame that is done on its stack, for whoever [takes it up](take_up), if it
    /// has nothing to drop: somebody may use the stack for something else. `None` if it
    /// cannot stay, and all is as it was.
    ///
    /// # Safety
    ///
    /// As [`clear`](Self::clear).
    pub(crate) unsafe fn leave(frame: NonNull<Frame<E>>) -> Option<Stack>
    where
        E: Tidy,
    {
        // SAFETY: exclusive by the caller's promise, and initialised.
        let frame = unsafe { &mut *frame.as_ptr() };
        if !frame.stays.get() || frame.spare.get_mut().is_some() || !frame.ext.is_empty() {
            return None;
        }
        // SAFETY: the frame is not used before it gets the stack back.
        Some(unsafe { ManuallyDrop::take(&mut frame.stack) })
    }

    /// Ends a frame that is done, and returns its stack.
    ///
    /// # Safety
    ///
    /// As [`clear`](Self::clear).
    pub(crate) unsafe fn retire(frame: NonNull<Frame<E>>) -> Stack {
        // SAFETY: the caller has it alone, and it waits for this.
        let ended = unsafe { frame.as_ref().resume(Resume::Unwind) };
        debug_assert!(ended.is_none(), "a frame was retired that was not done");
        // SAFETY: as above.
        unsafe { Self::discard(frame) }
    }

    /// Takes a frame apart that never started, or has ended, and returns its
    /// stack.
    ///
    /// # Safety
    ///
    /// As [`clear`](Self::clear).
    pub(crate) unsafe fn discard(frame: NonNull<Frame<E>>) -> Stack {
        // SAFETY: the caller has it alone; nothing refers to it any more.
        let frame = unsafe { &mut *frame.as_ptr() };
        // SAFETY: taken once; the frame's memory is not read again.
        unsafe { ManuallyDrop::drop(frame.routine.get_mut()) };
        if let Some(spare) = frame.spare.take() {
            stacks::release(spare);
        }
        // SAFETY: as above.
        unsafe { ptr::drop_in_place(&mut frame.ext) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::take(&mut frame.stack) }
    }
}

/// Calls `f` on a segment from a plain thread.
pub(crate) fn on_thread_segment<R, F: FnOnce() -> R>(
    bytes: usize,
    f: F,
) -> Result<R, (F, stacks::StackError)> {
    let segment = match Class::for_usable(bytes.max(THREAD_SEGMENT)).and_then(stacks::acquire) {
        Ok(segment) => segment,
        Err(error) => return Err((f, error)),
    };
    let bounds = Bounds::new(segment.top(), segment.limit());
    /// Restores the limit also when `f` unwinds.
    struct Leave(usize, Option<Stack>);
    impl Drop for Leave {
        fn drop(&mut self) {
            crate::prim::thread::set_stack_limit(self.0);
            self.1.take().into_iter().for_each(stacks::release);
        }
    }
    let before = crate::prim::thread::set_stack_limit(segment.limit());
    let _leave = Leave(before, Some(segment));
    Ok(corosensei::on_stack(bounds, f))
}

/// A thread that ran out of its own stack will want much.
const THREAD_SEGMENT: usize = 1 << 20;

/// The frames between a call on another segment and its switch take less.
const BELOW_ON_STACK: usize = 1024;

/// The stack pointer of the function that this is inlined into: all that it keeps
/// on the stack lies above.
#[inline(always)]
pub(crate) fn exact_stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: copies a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, rsp", out(reg) pointer,
            options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mov {}, sp", out(reg) pointer,
            options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// The stack pointer, near enough to measure what is left.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tidy for () {
        fn is_tidy(&self) -> bool {
            true
        }
        fn is_empty(&self) -> bool {
            true
        }
    }

    unsafe fn twice(argument: *const ()) {
        // SAFETY: the test passes a cell with the frame in it.
        let shared = unsafe { &*argument.cast::<(Cell<Option<NonNull<Frame<()>>>>, Cell<u32>)>() };
        // SAFETY: this runs on that frame.
        let frame = unsafe { shared.0.get().unwrap().as_ref() };
        shared.1.set(1);
        // SAFETY: as above.
        let how = unsafe { frame.suspend(Suspend::Yield) };
        assert_eq!(how, Resume::Run);
        // SAFETY: as above.
        let deep = unsafe {
            frame.on_segment(1 << 20, || {
                // SAFETY: a chained segment of the frame.
                let how = frame.suspend(Suspend::Park);
                assert_eq!(how, Resume::Unwind);
                7
            })
        };
        shared.1.set(deep.unwrap_or(0));
    }

    #[test]
    fn two_lives_of_a_frame_with_a_suspend_on_a_segment() {
        let _alone = crate::tests_alone();
        let shared = (Cell::new(None), Cell::new(0));
        let stack = stacks::acquire(Class::default_class()).unwrap();
        let limit = stack.limit();
        // SAFETY: `shared` outlives the frame, which is called with it alone.
        let frame: NonNull<Frame<()>> = unsafe { create(stack, |shared| twice(shared)) };
        shared.0.set(Some(frame));
        // SAFETY: alive until it is retired; this test alone resumes it.
        unsafe {
            for _ in 0..2 {
                let f = frame.as_ref();
                f.set_argument(ptr::from_ref(&shared).cast());
                assert_eq!(f.resume(Resume::Run), Some(Suspend::Yield));
                assert_eq!((shared.1.get(), f.limit()), (1, limit));
                assert_eq!(f.resume(Resume::Run), Some(Suspend::Park));
                assert_ne!(f.limit(), limit, "on the segment");
                assert_eq!(f.resume(Resume::Unwind), Some(Suspend::Done));
                assert_eq!((shared.1.get(), f.limit()), (7, limit));
                Frame::clear(frame);
                if let Some(stack) = Frame::leave(frame) {
                    assert_eq!(take_up(stack), frame);
                } else {
                    assert!(f.spare.take().map(stacks::release).is_some(), "nothing in its way");
                }
            }
            stacks::release(Frame::retire(frame));
        }
    }
}
