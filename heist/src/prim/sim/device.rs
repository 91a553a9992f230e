//! Devices: what becomes ready, and what an epoll instance watches.
//!
//! A device has messages to read and room for messages to be written, and it can hang
//! up. The other end is whoever delivers and makes room: a thread of the machine.
//! Every operation is a system call: one step, and what it does nobody sees half done.

use super::epoll::Ready;
use super::machine::step;
use super::record::Op;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    messages: usize,
    room: usize,
    hung_up: bool,
    /// By several instances, as a descriptor may be: one that goes is left behind.
    watched: Vec<(Arc<Ready>, u64)>,
}

/// What an instance reports of a device.
#[derive(Clone, Copy)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) hung_up: bool,
}

impl Device {
    pub(crate) fn new() -> Self {
        Device::default()
    }

    /// No thread of the machine waits here: there is no step while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn call(&self) -> MutexGuard<'_, State> {
        step(Op::Device, Arc::as_ptr(&self.0).addr());
        self.state()
    }

    /// Reads so many messages at most; none is the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none yet.
    #[track_caller]
    pub(crate) fn read(&self, most: usize) -> io::Result<usize> {
        let mut state = self.call();
        if state.messages == 0 && !state.hung_up {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = state.messages.min(most);
        state.messages -= n;
        Ok(n)
    }

    /// Writes so many messages at most.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room yet, `BrokenPipe` after the end.
    #[track_caller]
    pub(crate) fn write(&self, most: usize) -> io::Result<usize> {
        let mut state = self.call();
        if state.hung_up {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = state.room.min(most);
        state.room -= n;
        Ok(n)
    }

    /// The other end: there is more to read.
    #[track_caller]
    pub(crate) fn deliver(&self, messages: usize) {
        self.change(|state| state.messages += messages);
    }

    /// The other end: there is more room.
    #[track_caller]
    pub(crate) fn make_room(&self, messages: usize) {
        self.change(|state| state.room += messages);
    }

    /// The other end goes.
    #[track_caller]
    pub(crate) fn hang_up(&self) {
        self.change(|state| state.hung_up = true);
    }

    /// The other end: whether all messages have been read.
    #[track_caller]
    pub(crate) fn is_drained(&self) -> bool {
        self.call().messages == 0
    }

    #[track_caller]
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.call();
        change(&mut state);
        state.watched.iter().for_each(|(ready, token)| ready.add(self, *token));
    }

    pub(super) fn readiness(&self) -> Readiness {
        let state = self.state();
        Readiness {
            readable: state.messages > 0 || state.hung_up,
            writable: state.room > 0 || state.hung_up,
            hung_up: state.hung_up,
        }
    }

    pub(super) fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Has an instance watch it, which hears at once of what is ready already.
    #[track_caller]
    pub(super) fn watch(&self, ready: &Arc<Ready>, token: u64) -> io::Result<()> {
        let mut state = self.call();
        if state.watched.iter().any(|(watching, _)| Arc::ptr_eq(watching, ready)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.watched.push((ready.clone(), token));
        ready.add(self, token);
        Ok(())
    }

    #[track_caller]
    pub(super) fn unwatch(&self, ready: &Arc<Ready>) -> io::Result<()> {
        let mut state = self.call();
        let before = state.watched.len();
        state.watched.retain(|(watching, _)| !Arc::ptr_eq(watching, ready));
        if state.watched.len() == before {
            return Err(io::ErrorKind::NotFound.into());
        }
        ready.forget(self);
        Ok(())
    }
}
