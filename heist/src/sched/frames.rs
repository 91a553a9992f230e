//! The frames that a P keeps: stacks on which the next goroutine can start at
//! once.
//!
//! Last in, first out, without a lock. What overflows goes back to the pool of
//! stacks, and stays a frame there, so that it need not be made again.

use super::exec;
use super::g::Frame;
use crate::context;
use crate::stacks::{self, Class, StackError, Used};
use std::cell::Cell;
use std::ptr::NonNull;

/// Frames that a P keeps.
const CACHE: usize = 64;

/// Stacks that it takes from the pool at a time, if they were used before, or others get
/// many.
const BATCH: usize = 32;

/// The cache of a P, all of one class.
pub(crate) struct Frames {
    class: Cell<Class>,
    len: Cell<usize>,
    free: [Cell<Option<NonNull<Frame>>>; CACHE],
}

impl Frames {
    pub(crate) fn new() -> Self {
        Frames {
            class: Cell::new(Class::default_class()),
            len: Cell::new(0),
            free: [const { Cell::new(None) }; CACHE],
        }
    }

    /// Empties the cache, which from now on keeps frames of `class`.
    pub(crate) fn reset(&self, class: Class) {
        self.spill(self.len.get());
        self.class.set(class);
    }

    /// Whether a frame is of the cache's class.
    #[inline(always)]
    pub(crate) fn are_like(&self, frame: &Frame) -> bool {
        frame.class() == self.class.get()
    }

    /// A frame of the cache's class.
    #[inline]
    pub(crate) fn take(&self) -> Result<NonNull<Frame>, StackError> {
        let len = self.len.get();
        if len > 0
            && let Some(frame) = self.free[(len - 1) % CACHE].get()
        {
            self.len.set(len - 1);
            return Ok(frame);
        }
        self.make()
    }

    #[cold]
    fn make(&self) -> Result<NonNull<Frame>, StackError> {
        let class = self.class.get();
        let mut more = [const { None }; BATCH - 1];
        let first = stacks::acquire_some(class, &mut more)?;
        let mut len = 0;
        for stack in more.into_iter().rev().flatten() {
            self.free[len].set(Some(frame_on(stack)));
            len += 1;
        }
        self.len.set(len);
        Ok(frame_on(first))
    }

    /// Takes back a frame that is done.
    #[inline]
    pub(crate) fn put(&self, frame: NonNull<Frame>) {
        // SAFETY: the goroutine has ended: the caller has its frame alone.
        let class = unsafe {
            Frame::clear(frame);
            frame.as_ref().class()
        };
        let len = self.len.get();
        if len == CACHE || class != self.class.get() {
            return self.put_slowly(frame, class);
        }
        self.free[len % CACHE].set(Some(frame));
        self.len.set(len + 1);
    }

    #[cold]
    fn put_slowly(&self, frame: NonNull<Frame>, class: Class) {
        if class != self.class.get() {
            // SAFETY: as in `put`.
            return stacks::release(unsafe { Frame::retire(frame) });
        }
        self.spill(CACHE / 2);
        self.put(frame);
    }

    /// The `n` that were not used for longest go to the pool.
    fn spill(&self, n: usize) {
        let (mut left, mut bare) = (Vec::with_capacity(n), Vec::new());
        for frame in self.free[..n].iter().filter_map(Cell::get) {
            // SAFETY: the cache has its frames alone.
            unsafe {
                match Frame::leave(frame) {
                    Some(stack) => left.push(stack),
                    None if frame.as_ref().has_started() => bare.push(Frame::retire(frame)),
                    None => bare.push(Frame::discard(frame)),
                }
            }
        }
        stacks::release_all(bare);
        stacks::leave_all(left);
        let left = self.len.get() - n;
        for i in 0..left {
            self.free[i].set(self.free[n + i].get());
        }
        self.len.set(left);
    }
}

/// A frame on a stack: the one that was left there, if there is one.
fn frame_on(used: Used) -> NonNull<Frame> {
    if used.left {
        // SAFETY: all that is left on stacks are frames of goroutines, in `spill`.
        unsafe { context::take_up(used.stack) }
    } else {
        exec::new_frame(used.stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_serves_and_spills() {
        let _alone = crate::tests_alone();
        // Of a size that nobody else has: others would take some of them from the pool.
        let class = Class::for_usable(6 << 20).unwrap();
        let frames = Frames::new();
        frames.reset(class);
        let mut taken: Vec<_> = (0..3 * CACHE).map(|_| frames.take().unwrap()).collect();
        let count = taken.len();
        // Run each once, so that it is done.
        for frame in &taken {
            crate::sched::exec::run_nothing_on(*frame);
        }
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), count, "each frame is given out once");
        let last = taken[count - 1];
        // Unoptimised code goes further down than what a stack keeps.
        // SAFETY: the test has it.
        let stay = taken.iter().filter(|frame| unsafe { frame.as_ref() }.stays()).count();
        assert!(stay == count || cfg!(debug_assertions));
        taken.into_iter().for_each(|frame| frames.put(frame));
        assert!(frames.len.get() <= CACHE);
        assert_eq!(frames.take().unwrap(), last, "the last one back is the first one out");
        frames.put(last);
        frames.reset(class);
        assert_eq!(frames.len.get(), 0);
        // They are in the pool, where most of their pages go, and are frames still.
        stacks::trim_all();
        let again: Vec<_> = (0..count).map(|_| frames.take().unwrap()).collect();
        assert!(again.contains(&last));
        // SAFETY: as above.
        let started = again.iter().filter(|frame| unsafe { frame.as_ref() }.has_started()).count();
        assert_eq!(started, stay);
        again.iter().for_each(|frame| crate::sched::exec::run_nothing_on(*frame));
        again.into_iter().for_each(|frame| frames.put(frame));
        frames.reset(Class::default_class());
    }
}
