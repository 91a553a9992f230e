//! Waiting for devices, edge-triggered, and a bell.
//!
//! As on Linux: a device whose state changes is put on a list, once. Whoever looks
//! takes it off, and is told what the device is ready for at that moment, both
//! directions; if that is nothing any more, it is not told.

use super::device::Device;
use super::machine::{pause, step, with};
use super::record::Op;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) const BATCH: usize = 128;

/// What is watched.
pub(crate) type Source<'a> = &'a Device;

/// A device has become ready, or may have.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    token: u64,
    readable: bool,
    writable: bool,
    hung_up: bool,
}

impl Event {
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn readable(&self) -> bool {
        self.readable
    }

    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn ends_reading(&self) -> bool {
        self.hung_up
    }

    pub(crate) fn ends_writing(&self) -> bool {
        self.hung_up
    }
}

/// The events of one wait.
pub(crate) struct Batch {
    events: Vec<Event>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Batch { events: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

/// What an instance and the devices that it watches share.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    devices: VecDeque<(Device, u64)>,
    rung: bool,
}

impl Ready {
    /// As [`Device::state`]: nobody waits.
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn add(&self, device: &Device, token: u64) {
        let mut list = self.list();
        if !list.devices.iter().any(|(other, _)| other.is(device)) {
            list.devices.push_back((device.clone(), token));
        }
        drop(list);
        self.wake();
    }

    pub(super) fn forget(&self, device: &Device) {
        self.list().devices.retain(|(other, _)| !other.is(device));
    }

    fn wake(&self) {
        with(|m| m.wake_one(self.address()));
    }

    /// Takes what there is. Whether there was anything, the bell included.
    fn take(&self, batch: &mut Batch) -> bool {
        let mut list = self.list();
        let n = list.devices.len().min(BATCH);
        let taken: Vec<_> = list.devices.drain(..n).collect();
        let rung = std::mem::take(&mut list.rung);
        drop(list);
        batch.events = taken.iter().filter_map(|(device, token)| event(device, *token)).collect();
        rung || !batch.events.is_empty()
    }
}

fn event(device: &Device, token: u64) -> Option<Event> {
    let is = device.readiness();
    let (readable, writable, hung_up) = (is.readable, is.writable, is.hung_up);
    (readable || writable).then_some(Event { token, readable, writable, hung_up })
}

/// An instance.
#[derive(Debug)]
pub(crate) struct Epoll(Arc<Ready>);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Epoll(Arc::default()))
    }

    #[track_caller]
    pub(crate) fn add(&self, device: Source<'_>, token: u64) -> io::Result<()> {
        device.watch(&self.0, token)
    }

    #[track_caller]
    pub(crate) fn remove(&self, device: Source<'_>) -> io::Result<()> {
        device.unwatch(&self.0)
    }

    #[track_caller]
    pub(crate) fn look(&self, batch: &mut Batch) {
        step(Op::Device, self.0.address());
        self.0.take(batch);
    }

    /// Waits for events, for the bell, or until a moment. May return early.
    #[track_caller]
    pub(crate) fn wait(&self, until: Option<u64>, batch: &mut Batch) {
        step(Op::Device, self.0.address());
        // The kernel looks and sleeps in one go.
        if self.0.take(batch) {
            return;
        }
        let sleeps = with(|m| {
            let sleeps = until.is_none_or(|until| m.time() < until);
            if sleeps {
                m.block(Some(self.0.address()), until);
            }
            sleeps
        });
        if sleeps == Some(true) {
            pause();
            self.0.take(batch);
        }
    }

    #[track_caller]
    pub(crate) fn ring(&self) {
        step(Op::Device, self.0.address());
        self.0.list().rung = true;
        self.0.wake();
    }

    /// Whether a device would be reported, for rules.
    pub(crate) fn has_events(&self) -> bool {
        let devices: Vec<_> = self.0.list().devices.iter().cloned().collect();
        devices.iter().any(|(device, token)| event(device, *token).is_some())
    }
}
