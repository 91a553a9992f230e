//! Descriptors of the poller that are not sockets: pipes, terminals, children.

use super::fd;
use super::whole::Whole;
use crate::runtime::current_sched;
use crate::sched::netpoll::{self, Call, Patience, Side};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;

/// A descriptor that can be waited for.
pub(crate) struct Pollable<T: AsFd> {
    /// Always there, until it is taken out.
    inner: Option<T>,
    poll: netpoll::Pollable,
}

impl<T: AsFd> Pollable<T> {
    pub(crate) fn new(inner: T) -> Pollable<T> {
        Pollable { inner: Some(inner), poll: netpoll::Pollable::new() }
    }

    pub(crate) fn get(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("only `into_inner` takes it, and the descriptor with it"),
        }
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.poll.release(self.get().as_fd());
        match self.inner.take() {
            Some(inner) => inner,
            None => unreachable!("as in `get`"),
        }
    }

    /// Makes a call, and waits when that would block.
    pub(crate) fn run<R>(
        &self,
        side: Side,
        site: &'static Location<'static>,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let waits = Call {
            fd: self.get().as_fd(),
            side,
            patience: || Patience::Forever,
            site,
            home: current_sched,
        };
        self.poll.run(waits, || call(self.get()))
    }

    /// Makes a call that reads, and waits when that would block.
    #[track_caller]
    pub(crate) fn read<R>(&self, call: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.run(Side::Read, Location::caller(), call)
    }

    /// Makes calls that write, and waits when one would block, until all `len` bytes are
    /// written. A call leaves out what is written already, so many bytes.
    #[track_caller]
    pub(crate) fn write(
        &self,
        len: usize,
        mut call: impl FnMut(&T, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut whole = Whole::new(len);
        let attempt = |inner: &T| whole.attempt(|| true, |done| call(inner, done));
        let written = self.run(Side::Write, Location::caller(), attempt);
        whole.end(written)
    }

    /// Waits until a call that reads would not block, whatever the mode of the open
    /// file. Returns at once for what the kernel does not poll.
    #[track_caller]
    pub(crate) fn wait_readable(&self) -> io::Result<()> {
        self.read(|descriptor| match fd::is_readable(descriptor) {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }
}

impl<T: AsFd> Drop for Pollable<T> {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            self.poll.release(inner.as_fd());
        }
    }
}

impl<T: AsFd> AsFd for Pollable<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Pollable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
