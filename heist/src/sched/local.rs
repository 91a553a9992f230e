//! Values that belong to a goroutine: the store behind `goroutine_local!`.
//!
//! A goroutine's values are in its frame and move with it. A plain OS thread
//! has a store of its own.

use super::g::{Ext, G};
use super::m;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

/// The values of one goroutine, by the address of their key.
#[derive(Default)]
pub(crate) struct Locals {
    values: Vec<(usize, Rc<dyn Any>)>,
    /// The goroutine ends: no new values.
    closed: bool,
}

thread_local! {
    /// The values of a plain thread.
    static THREAD: RefCell<Locals> = RefCell::default();
}

/// Destructors that create values again are humoured this often, as in std.
const ROUNDS: usize = 5;

/// The caller's value for a key, made by `init` if it has none. `None` once its
/// values are being dropped for good.
pub(crate) fn get_or_init<T: 'static>(key: usize, init: impl FnOnce() -> T) -> Option<Rc<T>> {
    if let Some(value) = with_locals(|locals| locals.find::<T>(key))?.ok()? {
        return Some(value);
    }
    // Outside of the borrow: it may use other keys, or this one.
    let value = Rc::new(init());
    let stored = value.clone();
    // What it replaces, if `init` made one too, is dropped outside as well.
    let replaced = with_locals(|locals| {
        if locals.closed {
            return Err(Closed);
        }
        let replaced = match locals.values.iter_mut().find(|(k, _)| *k == key) {
            Some(entry) => Some(std::mem::replace(&mut entry.1, stored)),
            None => {
                locals.values.push((key, stored));
                None
            }
        };
        Ok(replaced)
    })?;
    replaced.ok().map(|_| value)
}

impl Locals {
    fn find<T: 'static>(&self, key: usize) -> Result<Option<Rc<T>>, Closed> {
        let found = self.values.iter().find(|(k, _)| *k == key);
        match found.and_then(|(_, value)| value.clone().downcast().ok()) {
            None if self.closed => Err(Closed),
            value => Ok(value),
        }
    }
}

struct Closed;

/// Never inlined: the caller may be on another thread next time.
#[inline(never)]
fn with_locals<R>(f: impl FnOnce(&mut Locals) -> R) -> Option<R> {
    match m::current_g() {
        Some(g) => {
            // SAFETY: the goroutine runs, and it is the caller.
            let Ext { locals, .. } = &unsafe { g.frame() }?.ext;
            Some(f(&mut locals.get_or_init(Box::default).borrow_mut()))
        }
        None => THREAD.try_with(|locals| f(&mut locals.borrow_mut())).ok(),
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

#[cold]
#[inline(never)]
fn close(locals: &RefCell<Locals>) {
    for _ in 0..ROUNDS {
        let values = std::mem::take(&mut locals.borrow_mut().values);
        super::task::drop_or_abort_with("a goroutine_local! value", || drop(values));
    }
    // Destructors that create values without end: those leak, as in std.
    let mut locals = locals.borrow_mut();
    std::mem::forget(std::mem::take(&mut locals.values));
    locals.closed = true;
}
