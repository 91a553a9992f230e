//! Values that belong to a goroutine: the store behind `goroutine_local!`.
//!
//! A goroutine's values are in its frame and move with it. A plain OS thread
//! has a store of its own.

use super::g::{Ext, G};
use super::m;
use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;

/// The values of one goroutine, in the order in which they were made.
pub(crate) struct Locals {
    values: Vec<Local>,
    /// The goroutine has ended: no new values.
    closed: bool,
}

/// A value, by the address of its key.
struct Local {
    key: usize,
    /// `None` from when the end of the goroutine has come to it: it is not made again.
    value: Option<Rc<dyn Any>>,
    /// Whether dropping it does anything. Those for which it does not are there for the
    /// destructors of all others.
    has_destructor: bool,
}

/// The goroutine ends, and what is asked for is gone.
struct Gone;

thread_local! {
    /// The values of a plain thread. They are dropped by [`END`]: destructors still find
    /// the others.
    static THREAD: ManuallyDrop<RefCell<Locals>> =
        const { ManuallyDrop::new(RefCell::new(Locals::new())) };
    static END: End = const { End };
}

/// Drops the values of a plain thread that ends.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        THREAD.with(|locals| close(locals));
    }
}

/// The caller's value for a key, made by `init` if it has none. `None` once it has been
/// dropped, or all are.
pub(crate) fn get_or_init<T: 'static>(key: usize, init: impl FnOnce() -> T) -> Option<Rc<T>> {
    if let Some(value) = with_locals(|locals| locals.find::<T>(key))?.ok()? {
        return Some(value);
    }
    // Outside of the borrow: it may use other keys, or this one.
    let value = Rc::new(init());
    let stored = value.clone();
    // What it replaces, if `init` made one too, is dropped outside as well.
    let replaced = with_locals(|locals| locals.put(key, stored))?;
    replaced.ok().map(|_| value)
}

impl Locals {
    const fn new() -> Self {
        Locals { values: Vec::new(), closed: false }
    }

    fn find<T: 'static>(&self, key: usize) -> Result<Option<Rc<T>>, Gone> {
        match self.values.iter().find(|local| local.key == key) {
            Some(local) => match local.value.clone().map(Rc::downcast) {
                Some(Ok(value)) => Ok(Some(value)),
                _ => Err(Gone),
            },
            None if self.closed => Err(Gone),
            None => Ok(None),
        }
    }

    /// Returns what was there before.
    fn put<T: 'static>(&mut self, key: usize, value: Rc<T>) -> Result<Option<Rc<dyn Any>>, Gone> {
        if let Some(local) = self.values.iter_mut().find(|local| local.key == key) {
            return match &mut local.value {
                Some(old) => Ok(Some(std::mem::replace(old, value))),
                None => Err(Gone),
            };
        }
        if self.closed {
            return Err(Gone);
        }
        let has_destructor = std::mem::needs_drop::<T>();
        self.values.push(Local { key, value: Some(value), has_destructor });
        Ok(None)
    }

    /// Takes out the last one that has anything to drop.
    fn take_last(&mut self) -> Option<Rc<dyn Any>> {
        let with_destructors = self.values.iter_mut().rev().filter(|local| local.has_destructor);
        with_destructors.filter_map(|local| local.value.take()).next()
    }
}

impl Default for Locals {
    fn default() -> Self {
        Locals::new()
    }
}

/// Never inlined: the caller may be on another thread next time.
#[inline(never)]
fn with_locals<R>(f: impl FnOnce(&mut Locals) -> R) -> Option<R> {
    match m::current_g() {
        Some(g) => {
            // SAFETY: the goroutine runs, and it is the caller.
            let Ext { locals, .. } = &unsafe { g.frame() }?.ext;
            Some(f(&mut locals.get_or_init(Box::default).borrow_mut()))
        }
        None => {
            // Once it ends this fails, and nothing more is made of it.
            let _ = END.try_with(|_| ());
            Some(THREAD.with(|locals| f(&mut locals.borrow_mut())))
        }
    }
}

/// Drops the values of a goroutine that ends, on its own stack.
#[inline]
pub(crate) fn drop_all(g: &'static G) {
    // SAFETY: the goroutine runs, and it is the caller.
    if let Some(locals) = unsafe { g.frame() }.and_then(|frame| frame.ext.locals.get()) {
        close(locals);
    }
}

/// Drops the values one by one, as std does: the last one first; a destructor finds those
/// that are still there, and may make new ones, but not what has had its turn. So it comes
/// to an end: there are only so many keys.
#[cold]
#[inline(never)]
fn close(locals: &RefCell<Locals>) {
    loop {
        let last = locals.borrow_mut().take_last();
        let Some(value) = last else { break };
        super::task::drop_or_abort_with("a goroutine_local! value", || drop(value));
    }
    let mut locals = locals.borrow_mut();
    locals.values = Vec::new();
    locals.closed = true;
}
